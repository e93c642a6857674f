"""Count what a graph and a partition of it look like, as plain numbers for records and tables."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.data.formats import PARTS

Ids = npt.NDArray[np.int64]


def summarize(data: Data) -> dict[str, Any]:
    """Count a graph, with its edges in each of the conventions that the papers use (FG-Q18, FS-Q15, SH-Q15).

    The three papers print different numbers of edges for Cora, CiteSeer and PubMed. FedGAT's 5429, 4732 and 44338 are
    half the entries of the raw adjacency lists, with repetitions and self-loops. FedStruct's 5278, 4676 and 44327 are
    `undirected_edges` plus the self-loops of the raw files (0, 124, 3), which PyG removes on loading. FedSheafHN's are
    `directed_edges` of the largest component.

    Returns:
        - `nodes`, `self_loops`, `features`, `classes`.
        - `directed_edges`: columns of `edge_index`. An undirected edge counts in both directions, a self-loop once.
        - `undirected_edges`: distinct pairs of different nodes that an edge joins in either direction.
        - `class_nodes`: nodes per class, or per label if a node has several.
        - `homophily`: share of `undirected_edges` within a class (NaN if a node has several labels).
        - `degree_50`, `degree_90`, `degree_99`: quantiles of the degree in `undirected_edges`.
        - `isolated`: nodes of degree 0.
        - `density`: share of non-zero features.
        - `train`, `val`, `test`: nodes of the present split, else of the first public one, else 0.
    """
    nodes = data.num_nodes
    row, col = data.edge_index.numpy()
    is_no_loop = row != col
    low, high = np.minimum(row, col)[is_no_loop], np.maximum(row, col)[is_no_loop]
    pairs = np.unique(low * nodes + high)
    low_end, high_end = pairs // nodes, pairs % nodes
    degree = np.bincount(low_end, minlength=nodes) + np.bincount(high_end, minlength=nodes)
    y = data.y.numpy()
    counts = np.bincount(y, minlength=data.num_classes) if y.ndim == 1 else y.sum(0).astype(int)
    homophily = float(np.mean(y[low_end] == y[high_end])) if y.ndim == 1 and pairs.size else float("nan")
    entries = data.x.values() if data.x.layout == torch.sparse_csr else data.x
    quantiles = {f"degree_{part}": float(np.quantile(degree, part / 100)) for part in (50, 90, 99)}
    masks = [data.get(f"{part}_mask") for part in PARTS]
    if masks[0] is None:
        masks = list(data.public[:, 0].unbind(1)) if "public" in data else [torch.zeros(0)] * 3
    return {
        "nodes": nodes,
        "directed_edges": row.size,
        "undirected_edges": pairs.size,
        "self_loops": int((~is_no_loop).sum()),
        "features": data.x.shape[1],
        "classes": data.num_classes,
        "class_nodes": counts.tolist(),
        "homophily": homophily,
        **quantiles,
        "isolated": int((degree == 0).sum()),
        "density": int(torch.count_nonzero(entries)) / (nodes * data.x.shape[1]),
        **{part: int(mask.sum()) for part, mask in zip(PARTS, masks, strict=True)},
    }


def manifest(data: Data, parts: Sequence[Tensor]) -> dict[str, Any]:
    """Count a partition, for its record.

    An edge and its reverse count once, duplicates count once, and self-loops do not count. An edge is inner if one
    client holds both its ends. It is cross-client if both ends are held, but no client holds both. It is neither if no
    client holds one of its ends. If parts overlap, an inner edge that several clients hold counts once in the total.

    Args:
        data: the graph.
        parts: the node ids of each client.

    Returns:
        - `clients`.
        - `nodes`, `inner_edges`, `labels` and `isolated_nodes`, one entry per client. `labels` is a histogram over the
          classes (over the labels if a node has several). Isolated nodes have no neighbour in the client's own graph.
        - `edges`, `total_inner_edges`, `cross_client_edges` and `uncovered_nodes` of the whole graph. No client holds
          an uncovered node.
        - `checksum`, see the function of this name.
    """
    low, high = undirected_edges(data)
    member = _membership(data, parts)
    inner = member[:, low] & member[:, high]
    linked = [len(np.union1d(low[held], high[held])) for held in inner]
    return {
        "clients": len(parts),
        "nodes": [len(part) for part in parts],
        "inner_edges": inner.sum(1).tolist(),
        "labels": [_histogram(data, part) for part in parts],
        "isolated_nodes": [len(part) - with_edge for part, with_edge in zip(parts, linked, strict=True)],
        "edges": len(low),
        "total_inner_edges": int(inner.any(0).sum()),
        "cross_client_edges": cross_client_edges(data, parts),
        "uncovered_nodes": int((~member.any(0)).sum()),
        "checksum": checksum(parts),
    }


def cross_client_edges(data: Data, parts: Sequence[Tensor]) -> int:
    """Count the undirected edges whose ends are both held, but not by one client (see `manifest`)."""
    low, high = undirected_edges(data)
    member = _membership(data, parts)
    held = member.sum(0) > 0
    together = (member[:, low] & member[:, high]).any(0)
    return int((held[low] & held[high] & ~together).sum())


def checksum(parts: Sequence[Tensor]) -> str:
    """Return the SHA-256 of each part's length and node ids, as little-endian 64-bit integers."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.asarray([len(part), *part.tolist()], dtype="<i8").tobytes())
    return digest.hexdigest()


def count_nodes(data: Data) -> int:
    """Return the number of nodes, which labels always give."""
    return int(data.y.shape[0])


def directed_edges(data: Data) -> tuple[Ids, Ids]:
    """Return rows and columns of the distinct edges without self-loops, sorted by (row, column)."""
    rows, columns = data.edge_index.numpy()
    nodes = count_nodes(data)
    keys = np.unique((rows * nodes + columns)[rows != columns])
    return keys // nodes, keys % nodes


def undirected_edges(data: Data) -> tuple[Ids, Ids]:
    """Return the distinct pairs low < high of nodes that an edge joins in either direction."""
    rows, columns = directed_edges(data)
    nodes = count_nodes(data)
    keys = np.unique(np.minimum(rows, columns) * nodes + np.maximum(rows, columns))
    return keys // nodes, keys % nodes


def _membership(data: Data, parts: Sequence[Tensor]) -> npt.NDArray[np.bool_]:
    """Return whether a client holds a node, bool `[clients, nodes]`."""
    member = np.zeros((len(parts), count_nodes(data)), dtype=bool)
    for row, part in zip(member, parts, strict=True):
        row[part.numpy()] = True
    return member


def _histogram(data: Data, part: Tensor) -> list[int]:
    """Count a part's nodes of each class, or of each label."""
    labels = data.y[part]
    if labels.dim() == 2:
        return [int(count) for count in labels.sum(0).tolist()]
    classes = getattr(data, "num_classes", None) or int(data.y.max()) + 1
    return [int(count) for count in torch.bincount(labels, minlength=classes).tolist()]
