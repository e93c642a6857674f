"""Build the block-diagonal batch of client graphs that a `Federation` wraps.

`build` cuts one run's graph into client graphs, with halo nodes where a method asks for them. `join` puts the batches
of several runs side by side, and `concatenate` does the same for their features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.data.formats import SPARSE_BELOW
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import require

Array = npt.NDArray[np.int64]
Device = str | torch.device
MASKS = ("train_mask", "val_mask", "test_mask")


class Source(NamedTuple):
    """The graph of one run and its partition, which the server and the clients hold together."""

    data: Data
    parts: tuple[Tensor, ...]


def check(data: Data, parts: Sequence[Tensor]) -> None:
    """Raise unless every part is a set of nodes and every mask has one boolean per node.

    Raises:
        ArgumentError: no part is given, a part is no vector of distinct node ids, or a mask is not boolean `[nodes]`.
    """
    require(len(parts) > 0, "parts", "at least one client", len(parts))
    nodes = int(data.num_nodes or 0)
    for number, part in enumerate(parts):
        argument = f"parts[{number}]"
        is_ids = isinstance(part, Tensor) and part.dim() == 1 and part.dtype in (torch.int64, torch.int32)
        require(
            is_ids, argument, "a vector of node ids", part if not isinstance(part, Tensor) else (part.dtype, part.shape)
        )
        inside = not len(part) or bool((part.min() >= 0) & (part.max() < nodes))
        require(inside, argument, f"node ids from 0 to {nodes - 1}", part)
        require(int(torch.bincount(part, minlength=1).max()) <= 1, argument, "different nodes", part)
    for name in MASKS:
        mask = data.get(name)
        if mask is not None:
            fits = mask.dtype == torch.bool and mask.shape == (nodes,)
            require(fits, name, f"boolean, of shape ({nodes},)", (mask.dtype, tuple(mask.shape)))


def build(source: Source, hops: int) -> Data:
    """Return one block per client of a run, as `Federation.batch` describes it.

    A block holds the client's own nodes, then those of ring 1, ring 2 and so on, each ring sorted by node id. It holds
    the edges between its nodes that arrive at a node of ring `hops - 1` or less, in the order of the graph.

    Args:
        source: the graph and its partition.
        hops: the number of rings around a client's own nodes. With 0 a block holds the edges between own nodes.
    """
    data, nodes = source.data, source.data.num_nodes
    sender, target = data.edge_index.numpy()
    all_edges = np.arange(len(target))
    arriving = csr_matrix((np.ones(len(target), bool), (target, all_edges)), shape=(nodes, len(target)))

    def edges_into(chosen: Array) -> Array:
        """Return the numbers of the edges that arrive at some nodes."""
        start = arriving.indptr[chosen].astype(np.int64)
        count = arriving.indptr[chosen + 1] - start
        edges: Array = arriving.indices[np.repeat(start - np.cumsum(count) + count, count) + np.arange(count.sum())]
        return edges

    # The row in the batch of each node of the current client, -1 for other nodes.
    row = np.full(nodes, -1)
    node, ring, edge, ends, ptr = [], [], [], [], [0]
    for part in source.parts:
        rings = [part.numpy()]
        row[rings[0]] = 0
        for _ in range(hops):
            senders = np.unique(sender[edges_into(rings[-1])])
            rings.append(senders[row[senders] < 0])
            row[rings[-1]] = 0
        members = np.concatenate(rings)
        row[members] = ptr[-1] + np.arange(len(members))
        kept = np.sort(edges_into(np.concatenate(rings[: max(hops, 1)])))
        kept = kept[row[sender[kept]] >= 0]
        node.append(members)
        ring.append(np.repeat(np.arange(len(rings)), [len(nodes_of_ring) for nodes_of_ring in rings]))
        edge.append(kept)
        ends.append(row[np.stack([sender[kept], target[kept]])])
        ptr.append(ptr[-1] + len(members))
        row[members] = -1

    node_id, sizes = np.concatenate(node), np.diff(ptr)
    graph = Data(
        edge_index=torch.from_numpy(np.concatenate(ends, 1)),
        y=data.y[node_id],
        node_id=torch.from_numpy(node_id),
        ring=torch.from_numpy(np.concatenate(ring)),
        num_nodes=len(node_id),
        batch=torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)),
        ptr=torch.tensor(ptr),
    )
    if data.get("edge_weight") is not None:
        graph.edge_weight = data.edge_weight[np.concatenate(edge)]
    for name in MASKS:
        mask = data.get(name)
        graph[name] = mask[node_id] if mask is not None else torch.zeros(len(node_id), dtype=torch.bool)
    return graph


def join(graphs: list[Data]) -> Data:
    """Return the batches of several runs as one, with node, client and edge indices shifted."""
    joined = Data(num_nodes=sum(graph.num_nodes for graph in graphs))
    nodes = np.cumsum([0] + [graph.num_nodes for graph in graphs])
    clients = np.cumsum([0] + [len(graph.ptr) - 1 for graph in graphs])
    shift = {"edge_index": nodes, "batch": clients, "ptr": nodes}
    for name in graphs[0].keys():  # noqa: SIM118 - iterating a PyG graph yields pairs
        if name == "num_nodes":
            continue
        parts = [graph[name] for graph in graphs]
        if name in shift:
            # Each shift has one entry more than there are graphs: the total.
            parts = [part + int(by) for part, by in zip(parts, shift[name], strict=False)]
        if name == "ptr":
            parts = [parts[0], *(part[1:] for part in parts[1:])]
        joined[name] = torch.cat(parts, -1 if name == "edge_index" else 0)
    return joined


def feature_rows(x: Tensor, chosen: Tensor) -> Tensor | Sparse:
    """Return some rows of a feature matrix, dense or sparse as the layers take them.

    Args:
        x: `[nodes, features]`, dense or `torch.sparse_csr`. A dense matrix with few non-zero entries becomes sparse.
        chosen: `[rows]` node ids.
    """
    if x.layout == torch.strided and (x != 0).float().mean() >= SPARSE_BELOW:
        return x.index_select(0, chosen)
    return Sparse.from_tensor(x).rows(chosen)


def concatenate(parts: list[Tensor | Sparse], device: Device, dtype: torch.dtype) -> Tensor | Sparse:
    """Return the features of several runs below each other: sparse if all are sparse, else dense."""
    if not all(isinstance(part, Sparse) for part in parts):
        return torch.cat([p.dense() if isinstance(p, Sparse) else p for p in parts]).to(device, dtype)
    if len(parts) == 1:
        return parts[0].to(device, dtype)
    start, rows, cols, values = 0, [], [], []
    for part in parts:
        assert isinstance(part, Sparse)
        rows.append(part.pattern.row + start)
        cols.append(part.pattern.col)
        values.append(part.value)
        start += part.shape[0]
    shape = (start, parts[0].shape[1])
    return Sparse.of(torch.cat(rows), torch.cat(cols), torch.cat(values), shape).to(device, dtype)
