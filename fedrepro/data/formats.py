"""Read the formats in which graphs are published, and bring graphs into one standard form.

The readers written here cannot execute code (numpy without pickles, JSON, CSV). `read_pyg` may unpickle, so it gets
only files with a known checksum.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

from fedrepro.errors import DataError

PARTS = ("train", "val", "test")

SPARSE_BELOW = 0.25
"""Features with a smaller share of non-zero entries are sparse, here and in the engine."""

Reader = Callable[[Path, tuple[str, ...]], Data]
"""A function of the folder of a data set and its files, relative to that folder."""


def features_of(matrix: Any) -> torch.Tensor:
    """Return features as float32, as `torch.sparse_csr` if less than a quarter is non-zero, else dense.

    Args:
        matrix: a SciPy sparse matrix, an array or a dense tensor `[nodes, features]`.
    """
    sparse = sp.csr_matrix(matrix.numpy() if isinstance(matrix, torch.Tensor) else matrix, dtype=np.float32)
    sparse.eliminate_zeros()
    if sparse.nnz >= SPARSE_BELOW * sparse.shape[0] * sparse.shape[1]:
        return torch.from_numpy(sparse.toarray())
    return csr_tensor(sparse)


def csr_tensor(matrix: Any) -> torch.Tensor:
    """Return a SciPy CSR matrix as `torch.sparse_csr`, with sorted int64 indices."""
    matrix.sort_indices()
    with _quiet():
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.data),
            size=matrix.shape,
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings that torch gives at the first sparse tensor of a process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")
        yield


def csr_matrix(x: torch.Tensor) -> Any:
    """Return a sparse tensor of torch as a SciPy CSR matrix."""
    with _quiet():
        x = x.to_sparse_csr()
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return sp.csr_matrix(parts, shape=tuple(x.shape))


def read(kind: str, folder: Path, files: tuple[str, ...], **arguments: Any) -> Data:
    """Read the raw files of a data set.

    Args:
        kind: a key of `READERS`, or the name of a class of PyG's data sets.
        folder: the folder of the files.
        files: their paths in that folder.
        arguments: arguments of the class of PyG.
    """
    return READERS[kind](folder, files) if kind in READERS else read_pyg(kind, folder, files, **arguments)


def read_pyg(dataset: str, folder: Path, files: tuple[str, ...], **arguments: Any) -> Data:
    """Read files through a class of PyG, which gets a scratch folder since it writes next to the raw files."""

    def slim(data: Data) -> Data:
        data.x = features_of(data.x)
        return data

    with tempfile.TemporaryDirectory(prefix="fedrepro-") as scratch:
        for file in files:
            link = Path(scratch) / folder.name / file
            link.parent.mkdir(parents=True, exist_ok=True)
            _link(link, (folder / file).resolve())
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            # The files are pickles of old versions of numpy and scipy, and the import warns of torch.jit.
            warnings.simplefilter("ignore")
            from torch_geometric import datasets

            data: Data = getattr(datasets, dataset)(scratch, pre_transform=slim, **arguments)[0]
    return data


def _link(link: Path, target: Path) -> None:
    try:
        link.symlink_to(target)
    except OSError:  # The file system has no links.
        shutil.copyfile(target, link)


def read_heterophilous(folder: Path, files: tuple[str, ...]) -> Data:
    """Read the npz of a heterophilous graph (Platonov et al. 2023), which lists edges once and has ten splits."""
    with np.load(folder / files[0], allow_pickle=False) as file:
        x = torch.from_numpy(file["node_features"]).float()
        edges = torch.from_numpy(file["edges"]).long().t().contiguous()
        data = Data(x=x, y=torch.from_numpy(file["node_labels"]).long())
        data.edge_index = to_undirected(edges, num_nodes=len(x))
        for part in PARTS:
            data[f"{part}_mask"] = torch.from_numpy(file[f"{part}_masks"]).bool().t()
    return data


def read_ogb_csv(folder: Path, files: tuple[str, ...]) -> Data:
    """Read the compressed CSV files of ogb (Hu et al. 2020), with edges directed as listed and the split by time.

    ogb's own loader is not used, since it asks on standard input, uses the network and unpickles.
    """
    import pandas as pd

    def table(file: str, dtype: type) -> torch.Tensor:
        frame = pd.read_csv(folder / file, header=None, dtype=dtype, compression="gzip")
        return torch.from_numpy(frame.to_numpy(copy=True))

    x = table("raw/node-feat.csv.gz", np.float32)
    data = Data(x=x, y=table("raw/node-label.csv.gz", np.int64).squeeze(1))
    data.edge_index = coalesce(table("raw/edge.csv.gz", np.int64).t().contiguous(), num_nodes=len(x))
    for part, file in zip(PARTS, ("train", "valid", "test"), strict=True):
        data[f"{part}_mask"] = _mask(table(f"split/time/{file}.csv.gz", np.int64).squeeze(1), len(x))
    return data


def read_graphsaint(folder: Path, files: tuple[str, ...]) -> Data:
    """Read GraphSAINT's format (Zeng et al. 2020): adj_full.npz, feats.npy, class_map.json and role.json.

    Its adj_train.npz is the subgraph of adj_full.npz on the training nodes and is not needed.
    """
    with np.load(folder / "raw/adj_full.npz", allow_pickle=False) as file:
        adjacency = sp.csr_matrix((file["data"], file["indices"], file["indptr"]), file["shape"]).tocoo()
    x = torch.from_numpy(np.load(folder / "raw/feats.npy", allow_pickle=False)).float()
    edges = torch.from_numpy(np.stack([adjacency.row, adjacency.col]).astype(np.int64))
    data = Data(x=x, edge_index=coalesce(edges, num_nodes=len(x)))
    classes = json.loads((folder / "raw/class_map.json").read_text())
    labels = np.array([classes[str(node)] for node in range(len(x))])
    data.y = torch.from_numpy(labels.astype(np.float32 if labels.ndim == 2 else np.int64))
    roles = json.loads((folder / "raw/role.json").read_text())
    for part, role in zip(PARTS, ("tr", "va", "te"), strict=True):
        data[f"{part}_mask"] = _mask(torch.tensor(roles[role], dtype=torch.long), len(x))
    return data


READERS: dict[str, Reader] = {
    "heterophilous": read_heterophilous,
    "ogb-csv": read_ogb_csv,
    "graphsaint": read_graphsaint,
}


def _mask(index: torch.Tensor, nodes: int) -> torch.Tensor:
    """Return the mask `[nodes]` that is true at some node ids."""
    mask = torch.zeros(nodes, dtype=torch.bool)
    mask[index] = True
    return mask


def pack(data: Data) -> bytes:
    """Return a graph in standard form as the bytes of an npz without pickles."""
    arrays = {
        "y": data.y.numpy(),
        "edge_index": data.edge_index.numpy(),
        "classes": np.array(data.num_classes),
    }
    if data.x.layout == torch.sparse_csr:
        matrix = csr_matrix(data.x)
        arrays |= {key: getattr(matrix, key) for key in ("data", "indices", "indptr")}
        arrays["shape"] = np.array(matrix.shape)
    else:
        arrays["x"] = data.x.numpy()
    if "public" in data:
        arrays["public"] = data.public.numpy()
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def unpack(file: Path, name: str) -> Data:
    """Read back the graph that `pack` wrote."""
    with file.open("rb") as content, np.load(content, allow_pickle=False) as arrays:
        if "x" in arrays:
            x = torch.from_numpy(arrays["x"])
        else:
            parts = tuple(arrays[key] for key in ("data", "indices", "indptr"))
            x = csr_tensor(sp.csr_matrix(parts, shape=tuple(arrays["shape"])))
        data = Data(x=x, edge_index=torch.from_numpy(arrays["edge_index"]), y=torch.from_numpy(arrays["y"]))
        data.num_classes, data.name = int(arrays["classes"]), name
        if "public" in arrays:
            data.public = torch.from_numpy(arrays["public"])
    return data


def standard(given: Data, name: str) -> Data:
    """Return a graph in the form that `datasets.load` promises.

    Raises:
        DataError: `given` is no graph. The message says what is wrong with it.
    """

    def need(condition: bool, what: str) -> None:
        if not condition:
            raise DataError(f"Data set {name!r}: {what}.")

    need(isinstance(given, Data), f"expected a torch_geometric Data, got {type(given).__name__}")
    for key in ("x", "y", "edge_index"):
        need(isinstance(given.get(key), torch.Tensor), f"{key} is missing or no tensor")
    x, y, edges = given.x, given.y, given.edge_index
    need(x.dim() == 2, f"x must be [nodes, features], got {tuple(x.shape)}")
    nodes = x.shape[0]
    if x.layout == torch.strided:
        need(bool(torch.isfinite(x).all()), "x has entries that are not finite")
    else:
        x = csr_tensor(csr_matrix(x))
    y = y.squeeze(1) if y.dim() == 2 and y.shape[1] == 1 else y
    need(y.dim() in (1, 2) and len(y) == nodes, f"y must have one row a node ({nodes}), got {tuple(y.shape)}")
    y = y.long() if y.dim() == 1 else y.float()
    need(nodes > 0 and bool((y >= 0).all()), "y must be classes from 0 upwards, one a node")
    fits = edges.dim() == 2 and edges.shape[0] == 2 and not edges.is_floating_point()
    need(fits, f"edge_index must be integers [2, edges], got {edges.dtype} {tuple(edges.shape)}")
    inside = edges.numel() == 0 or (int(edges.min()) >= 0 and int(edges.max()) < nodes)
    need(inside, f"edge_index must name nodes from 0 to {nodes - 1}")
    data = Data(x=x.float(), edge_index=coalesce(edges.long(), num_nodes=nodes), y=y)
    data.num_classes, data.name = y.shape[1] if y.dim() == 2 else int(y.max()) + 1, name
    need(given.get("edge_weight") is None, "edge_weight is not used: methods weigh edges by degree, so leave it out")
    masks = [given.get(f"{part}_mask") for part in PARTS]
    present = sum(isinstance(mask, torch.Tensor) for mask in masks)
    need(present in (0, 3), f"train_mask, val_mask and test_mask must all be given, or none; got {present} of 3")
    if present:
        need(all(len(mask) == nodes for mask in masks), "masks must have one row a node")
        data.public = torch.stack([mask.bool().reshape(nodes, -1) for mask in masks], dim=2)
        need(int(data.public.sum(2).max()) <= 1, "a node is in two of train_mask, val_mask, test_mask")
    return data
