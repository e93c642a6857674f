"""Generate structure features, which describe a node's position in the graph without its features or its label.

A generator takes a whole graph and returns one row per node (Section 5.1 and Appendix A):

    Deg     one-hot degree
    Fed*    one-hot degree, and the diagonals of the powers of the random walk (Tan et al. 2023)
    GDV     graphlet degree vector: how often a node is at each orbit of the connected graphs of 2 to 4 nodes
            (Przulj 2007)
    GDV-73  the same for 2 to 5 nodes, as in FedStruct's code, see `fedrepro.papers.fedstruct.orbits`
    N2V     Node2Vec, see `fedrepro.papers.fedstruct.node2vec`
    H2V     Hop2Vec: random numbers that training then moves (`hop2vec`)

All generators treat the graph as undirected and leave out self-loops. Except Hop2Vec they depend only on the graph.
Features that took long to compute are therefore kept in `data/processed` and read back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_matrix, diags, eye_array
from torch import Tensor
from torch_geometric.data import Data

from fedrepro import paths
from fedrepro.engine.nn import random
from fedrepro.errors import one_of, require
from fedrepro.papers.fedstruct import node2vec, orbits
from fedrepro.runs import provenance

STRUCTURES = ("Deg", "Fed*", "GDV", "GDV-73", "N2V", "H2V")
ORBITS = 15  # of graphlets of up to four nodes
# Nodes of the smallest graph whose features are kept in a file.
KEPT_FROM = 1000
Counts = npt.NDArray[np.float64]


def adjacency(data: Data) -> csr_matrix:
    """Return the graph's symmetric 0/1 matrix without self-loops, `[nodes, nodes]`, float64."""
    row, col = data.edge_index.cpu().numpy()
    is_edge, n = row != col, int(data.num_nodes)
    a = csr_matrix((np.ones(int(is_edge.sum())), (row[is_edge], col[is_edge])), shape=(n, n))
    a = (a + a.T).tocsr()
    a.data[:] = 1.0
    a.sort_indices()
    return a


def degree(a: csr_matrix, width: int) -> Tensor:
    """Return one-hot degrees, `[nodes, width]`, float32; degrees of `width - 1` and more share the last column."""
    require(width >= 1, "width", "at least 1", width)
    column = np.minimum(np.diff(a.indptr), width - 1)
    return torch.nn.functional.one_hot(torch.from_numpy(column.astype(np.int64)), width).float()


def walk_diagonals(a: csr_matrix, steps: int, loops: bool = True, block: int = 1024) -> Tensor:
    """Return the diagonals of the powers 1 to `steps` of the random walk, `[nodes, steps]`, float32.

    D~^-1 (A + I) is similar to the symmetric S = D~^-1/2 (A + I) D~^-1/2, and its powers have the same diagonals. Half
    of the powers suffice, since the diagonal of S^(j+k) = S^j S^k is a sum over entries of S^j and S^k.

    Args:
        a: the graph, as of `adjacency`.
        steps: the last power.
        loops: whether the walk has self-loops, as the paper's A^ does. FedStar and the authors' code have none, and a
            node without edges then gets zeros.
        block: columns multiplied at a time.
    """
    require(steps >= 1, "steps", "at least 1", steps)
    n = a.shape[0]
    b = (a + eye_array(n)).tocsr() if loops else a
    total = np.asarray(b.sum(1)).ravel()
    scale = diags(np.where(total > 0, 1.0 / np.sqrt(np.maximum(total, 1)), 0.0))
    s = (scale @ b @ scale).tocsr()
    out = np.empty((n, steps))
    for start in range(0, n, block):
        part = slice(start, min(start + block, n))
        before = np.zeros((n, part.stop - start))
        before[np.arange(start, part.stop), np.arange(part.stop - start)] = 1.0
        for step in range(1, steps + 1):
            if step % 2:
                after = s @ before
                out[part, step - 1] = np.einsum("ij,ij->j", before, after)
            else:
                out[part, step - 1] = np.einsum("ij,ij->j", after, after)
                before = after
    return torch.from_numpy(out).float()


def fedstar(a: csr_matrix, width: int, walk: int = 50, loops: bool = True) -> Tensor:
    """Return `width - walk` columns of one-hot degree, then `walk` diagonals, `[nodes, width]`.

    The authors' code has 206 columns and 50 diagonals (FS-Q16).

    Raises:
        ArgumentError: no column is left for the degree.
    """
    require(0 < walk < width, "walk", f"from 1 to {width - 1} for width {width}", walk)
    return torch.cat([degree(a, width - walk), walk_diagonals(a, walk, loops)], 1)


def orbit_counts(a: csr_matrix) -> Counts:
    """Return how often each node is at orbits 0 to 14, those of induced connected subgraphs of 2 to 4 nodes.

    Returns:
        `[nodes, 15]`, integers as float64.
    """
    return orbits.orbits(a, ORBITS).numpy()


def graphlets(a: csr_matrix) -> Tensor:
    """Return `log(1 + count)` of the 15 orbits, each column with mean 0 and variance 1, float32.

    Constant columns are 0. FedStruct's code standardizes the raw counts instead, which reach 10^7 at hubs.
    """
    return _standardized(orbit_counts(a))


def graphlets_of_five(a: csr_matrix) -> Tensor:
    """Return the same of all 73 orbits, `[nodes, 73]`."""
    return _standardized(orbits.orbits(a).numpy())


def _standardized(counts: Counts) -> Tensor:
    logs = np.log1p(counts)
    spread = logs.std(0)
    return torch.from_numpy((logs - logs.mean(0)) / np.where(spread > 1e-12, spread, np.inf)).float()


def hop2vec(nodes: int, width: int, seed: int) -> Tensor:
    """Return S of Hop2Vec before training, `[nodes, width]`, float64.

    Its entries are normal with standard deviation 0.05, as in the authors' code (FS-Q16).
    """
    return 0.05 * random.normal((nodes, width), "hop2vec", seed)


def features(
    kind: str, data: Data, width: int = 256, *, walk: int = 50, loops: bool = True, epochs: int = 50, seed: int = 0
) -> Tensor:
    """Return the structure features of a whole graph by name, `[nodes, columns]`, float32.

    Args:
        kind: "Deg", "Fed*", "GDV", "GDV-73" or "N2V".
        data: the graph.
        width: number of columns, except that "GDV" has 15 and "GDV-73" 73.
        walk: number of diagonals in "Fed*".
        loops: whether the walk of "Fed*" has self-loops.
        epochs: of "N2V".
        seed: of "N2V".
    """
    one_of("structure", kind, STRUCTURES[:-1])
    a = adjacency(data)
    if kind == "Deg":
        return degree(a, width)
    if kind == "GDV":
        return _kept(a, "graphlets", lambda: graphlets(a))
    if kind == "GDV-73":
        return _kept(a, "graphlets of five", lambda: graphlets_of_five(a))
    if kind == "Fed*":
        require(0 < walk < width, "walk", f"from 1 to {width - 1} for width {width}", walk)
        slow = _kept(a, f"walk {walk} {loops}", lambda: walk_diagonals(a, walk, loops))
        return torch.cat([degree(a, width - walk), slow], 1)
    name = f"node2vec {width} {epochs} {seed}"
    return _kept(a, name, lambda: node2vec.embed(a, width, epochs=epochs, seed=seed))


_MEMORY: dict[str, Tensor] = {}


def _kept(a: csr_matrix, name: str, make: Callable[[], Tensor]) -> Tensor:
    """Return the result of `make`, computed once per graph and version of this code.

    For larger graphs it is kept in a file. The folder is `$FEDREPRO_PROCESSED`, else `data/processed`.
    """
    # The name of the file holds the hash of this code as fingerprints have it, so that features never outlive the code
    # that computed them. Only `runs.provenance` has this hash. It imports neither the store nor
    # `reporting`, and no fingerprint contains its code.
    code = provenance.hash_code(f"{__name__}:features")
    parts = (code.encode(), name.encode(), a.indptr.tobytes(), a.indices.tobytes())
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    if key in _MEMORY:
        return _MEMORY[key]
    folder = Path(os.environ.get("FEDREPRO_PROCESSED") or paths.root() / "data" / "processed")
    file = folder / f"structure-{key[:20]}.npz"
    try:
        with file.open("rb") as stream, np.load(stream) as kept:
            result = torch.from_numpy(kept["features"])
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        # There is no file, an interrupted write left a part of one, or its content does not match its checksum.
        result = make()
        if a.shape[0] >= KEPT_FROM:
            # In a read-only checkout each process computes the features anew.
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                partial = file.with_suffix(f".partial{os.getpid()}.npz")
                np.savez(partial, features=result.numpy())
                partial.replace(file)
    _MEMORY[key] = result
    return result
