"""Node structure features: what FedStruct says of a node's place in the graph, without its features or label.

Each generator takes a whole graph and gives one row per node (FedStruct, Section 5.1 and Appendix A):

    Deg    one-hot degree
    Fed*   one-hot degree beside the diagonals of the random walk's powers (Tan et al. 2023)
    GDV    graphlet degree vector: how often a node sits at each orbit of the connected graphs of 2 to 4 nodes
           (Przulj 2007)
    GDV-73 the same for 2 to 5 nodes, as in FedStruct's code, see `fedrepro.papers.fedstruct.orbits`
    N2V    Node2Vec, see `fedrepro.papers.fedstruct.node2vec`
    H2V    Hop2Vec: random numbers, which training then moves (`hop2vec`)

All treat the graph as undirected and leave self-loops out. Except Hop2Vec they depend on the graph alone, so what
took long is kept in `data/processed` and read back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
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
ORBITS = 15
KEPT_FROM = 1000  # nodes; features of smaller graphs are not worth a file
Counts = npt.NDArray[np.float64]


def adjacency(data: Data) -> csr_matrix:
    """The graph's symmetric 0/1 matrix `[nodes, nodes]`, without self-loops, float64."""
    row, col = data.edge_index.cpu().numpy()
    proper, n = row != col, int(data.num_nodes)
    a = csr_matrix((np.ones(int(proper.sum())), (row[proper], col[proper])), shape=(n, n))
    a = (a + a.T).tocsr()
    a.data[:] = 1.0
    a.sort_indices()
    return a


def degree(a: csr_matrix, width: int) -> Tensor:
    """One-hot degrees `[nodes, width]`, float32; degrees of `width - 1` and more share the last column."""
    require(width >= 1, "width", "at least 1", width)
    column = np.minimum(np.diff(a.indptr), width - 1)
    return torch.nn.functional.one_hot(torch.from_numpy(column.astype(np.int64)), width).float()


def walk_diagonals(a: csr_matrix, steps: int, loops: bool = True, block: int = 1024) -> Tensor:
    """Diagonals of the powers 1 to `steps` of the random walk, `[nodes, steps]`, float32.

    D~^-1 (A + I) is similar to the symmetric S = D~^-1/2 (A + I) D~^-1/2, which therefore has the same diagonals, and
    half of the powers suffice: the diagonal of S^(j+k) is that of S^j S^k, a sum over entries.

    Args:
        loops: with the identity added, as the paper's A^; without, as FedStar and the authors' code. A node without
            edges then gets zeros.
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
    """Fed*: `width - walk` columns of one-hot degree, then `walk` diagonals (FS-Q16: 206 and 50 in the authors' code).

    Raises:
        ArgumentError: no column is left for the degree.
    """
    require(0 < walk < width, "walk", f"from 1 to {width - 1} for width {width}", walk)
    return torch.cat([degree(a, width - walk), walk_diagonals(a, walk, loops)], 1)


def orbit_counts(a: csr_matrix) -> Counts:
    """How often each node sits at orbits 0 to 14, `[nodes, 15]`: induced connected subgraphs of 2 to 4 nodes.

    Copies that need not be induced are counted by sparse products; what denser graphs contribute to sparser ones is
    then taken off, the densest first.
    """
    d = np.diff(a.indptr).astype(float)
    triangles, near, squares = _two_steps(a)  # T = A o A^2, its row sums, and sum over u of C(common neighbours, 2)
    t = near / 2
    less = d - 1
    o = np.zeros((len(d), ORBITS))
    o[:, 0] = d
    o[:, 1] = a @ less - 2 * t
    o[:, 2] = d * less / 2 - t
    o[:, 3] = t
    o[:, 14] = _complete_graphs(a)
    pairs = triangles.copy()
    pairs.data = pairs.data * (pairs.data - 1) / 2
    o[:, 13] = np.asarray(pairs.sum(1)).ravel() - 3 * o[:, 14]
    around = np.asarray(a.multiply(a @ triangles).sum(1)).ravel() / 2 - t
    o[:, 12] = around - 3 * o[:, 14]
    o[:, 11] = t * (d - 2) - 2 * o[:, 13] - 3 * o[:, 14]
    o[:, 10] = triangles @ (d - 2) - 2 * o[:, 13] - 2 * o[:, 12] - 6 * o[:, 14]
    o[:, 9] = a @ t - 2 * t - 2 * o[:, 12] - 3 * o[:, 14]
    o[:, 8] = squares - o[:, 12] - o[:, 13] - 3 * o[:, 14]
    o[:, 7] = d * less * (d - 2) / 6 - o[:, 11] - o[:, 13] - o[:, 14]
    o[:, 6] = a @ (less * (d - 2) / 2) - o[:, 9] - o[:, 10] - 2 * o[:, 12] - o[:, 13] - 3 * o[:, 14]
    inner = less * (a @ less) - 2 * t
    o[:, 5] = inner - 2 * o[:, 8] - 2 * o[:, 11] - o[:, 10] - 2 * o[:, 12] - 4 * o[:, 13] - 6 * o[:, 14]
    ends = a @ (a @ less) - d * less - 2 * t
    o[:, 4] = ends - 2 * o[:, 8] - 2 * o[:, 9] - o[:, 10] - 4 * o[:, 12] - 2 * o[:, 13] - 6 * o[:, 14]
    return o


def _two_steps(a: csr_matrix, block: int = 512) -> tuple[csr_matrix, Counts, Counts]:
    """A o A^2, its row sums, and at each node the sum of C(c, 2) over its c > 0 common neighbours with another."""
    from scipy.sparse import vstack

    kept, squares = [], np.empty(a.shape[0])
    for start in range(0, a.shape[0], block):
        rows = a[start : start + block]
        paths_of_two = (rows @ a).tocsr()
        kept.append(rows.multiply(paths_of_two).tocsr())
        own = paths_of_two[np.arange(rows.shape[0]), start + np.arange(rows.shape[0])]
        each = paths_of_two.copy()
        each.data = each.data * (each.data - 1) / 2
        self_pairs = np.asarray(own).ravel()
        squares[start : start + block] = np.asarray(each.sum(1)).ravel() - self_pairs * (self_pairs - 1) / 2
    triangles = vstack(kept, format="csr")
    return triangles, np.asarray(triangles.sum(1)).ravel(), squares


def _complete_graphs(a: csr_matrix) -> Counts:
    """Complete graphs of four nodes at each node: each is met at its node of least degree, as a triangle among the
    neighbours that come later in the order of degrees.
    """
    d = np.diff(a.indptr)
    place = np.empty(len(d), dtype=np.int64)
    place[np.lexsort((np.arange(len(d)), d))] = np.arange(len(d))
    found = np.zeros(len(d))
    for node in np.flatnonzero(d >= 3):
        near = a.indices[a.indptr[node] : a.indptr[node + 1]]
        later = near[place[near] > place[node]]
        if len(later) < 3:
            continue
        among = a[later][:, later].toarray().astype(np.float32)
        at_each = ((among @ among) * among).sum(1) / 2
        found[node] += at_each.sum() / 3
        found[later] += at_each
    return found


def graphlets(a: csr_matrix) -> Tensor:
    """GDV: `log(1 + count)` of the 15 orbits, each column with mean 0 and variance 1, float32; constant columns are 0.

    FedStruct's code standardizes the raw counts, which reach 10^7 at hubs.
    """
    return _standardized(orbit_counts(a))


def graphlets_of_five(a: csr_matrix) -> Tensor:
    """GDV-73: the same of the 73 orbits `fedrepro.papers.fedstruct.orbits` counts."""
    return _standardized(orbits.orbits(a).numpy())


def _standardized(counts: Counts) -> Tensor:
    logs = np.log1p(counts)
    spread = logs.std(0)
    return torch.from_numpy((logs - logs.mean(0)) / np.where(spread > 1e-12, spread, np.inf)).float()


def hop2vec(nodes: int, width: int, seed: int) -> Tensor:
    """Hop2Vec before training: normal with standard deviation 0.05 (the authors' code, FS-Q16), `[nodes, width]`,
    float64.
    """
    return 0.05 * random.normal((nodes, width), "hop2vec", seed)


def features(
    kind: str, data: Data, width: int = 256, *, walk: int = 50, loops: bool = True, epochs: int = 50, seed: int = 0
) -> Tensor:
    """The structure features of a whole graph by name: `[nodes, columns]`, float32.

    Args:
        kind: "Deg", "Fed*", "GDV", "GDV-73" or "N2V".
        width: number of columns ("GDV" has 15 of its own, "GDV-73" 73).
        walk, loops: of "Fed*".
        epochs, seed: of "N2V".
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
    """What `make` gives, computed once per graph and version of this code, and kept in a file for larger graphs.

    The folder is `$FEDREPRO_PROCESSED`, else `data/processed`.
    """
    code = provenance.hash_code(f"{__name__}:features")
    parts = (code.encode(), name.encode(), a.indptr.tobytes(), a.indices.tobytes())
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    if key in _MEMORY:
        return _MEMORY[key]
    folder = Path(os.environ.get("FEDREPRO_PROCESSED") or paths.root() / "data" / "processed")
    file = folder / f"structure-{key[:20]}.npy"
    try:
        made = torch.from_numpy(np.load(file))
    except (OSError, ValueError, EOFError):  # none, or torn: made again
        made = make()
        if a.shape[0] >= KEPT_FROM:
            with contextlib.suppress(OSError):  # in a read-only checkout it is computed again in each process
                folder.mkdir(parents=True, exist_ok=True)
                partial = file.with_suffix(f".partial{os.getpid()}.npy")
                np.save(partial, made.numpy())
                partial.replace(file)
    _MEMORY[key] = made
    return made
