"""Compute the matrices and edge lists of a federation, which it caches and hands to the layers.

Each function takes the federation as `Graphs`, the few attributes read here, so that this module needs no import of
the class that calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.nn.sparse import Edges, Sparse, bag


class Graphs(Protocol):
    """The attributes of a `Federation` that this module reads."""

    @property
    def batch(self) -> Data: ...
    @property
    def parent(self) -> tuple[Graphs, Tensor] | None: ...
    @property
    def nodes(self) -> int: ...
    @property
    def clients(self) -> int: ...
    @property
    def runs(self) -> int: ...
    @property
    def run(self) -> Tensor: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...
    def operator(self, kind: str, reach: int | None = None) -> Sparse: ...


def propagation(fed: Graphs, kind: str, reach: int | None) -> Sparse:
    """Return a propagation matrix `[nodes, nodes]`, see `Federation.operator`.

    The matrix of a part is cut out of the whole federation's matrix, so that degrees are those of the whole graph.
    """
    if reach is not None:
        near = torch.where(fed.batch.ring <= reach, torch.arange(fed.nodes, device=fed.device), -1)
        all_nodes = torch.arange(fed.nodes, device=fed.device)
        whole = fed.operator(kind)
        return whole if bool((near >= 0).all()) else whole.cut(near, all_nodes, whole.shape)
    shape = (fed.nodes, fed.nodes)
    if fed.parent is not None:
        parent, nodes = fed.parent
        new_index = torch.full((parent.nodes,), -1, device=fed.device)
        new_index[nodes] = torch.arange(len(nodes), device=fed.device)
        return parent.operator(kind).cut(new_index, new_index, shape)
    if kind == "given":
        source, target = fed.batch.edge_index
        return Sparse.of(target, source, fed.batch.edge_weight.to(fed.dtype), shape)
    source, target = fed.batch.edge_index if kind == "mean" else _with_self_loops(fed)
    degree = torch.bincount(target, minlength=fed.nodes).to(fed.dtype)
    value = degree[source].rsqrt() * degree[target].rsqrt() if kind == "gcn" else 1.0 / degree[target]
    return Sparse.of(target, source, value, shape)


def attention_edges(fed: Graphs, reach: int) -> Edges:
    """Return the edges of a GAT layer, see `Federation.attention_edges`."""
    source, target = _with_self_loops(fed)
    keep = fed.batch.ring[target] <= reach
    return Edges(source[keep], target[keep], fed.nodes)


def mask_rows(fed: Graphs, mask: str) -> tuple[Tensor, Sparse]:
    """Return the own nodes of a split and the matrix that averages over each client's, see `Federation.rows`."""
    rows = ((fed.batch.ring == 0) & fed.batch[f"{mask}_mask"]).nonzero().squeeze(1)
    client = fed.batch.batch[rows]
    value = 1.0 / torch.bincount(client, minlength=fed.clients)[client].to(fed.dtype)
    return rows, Sparse.of(client, torch.arange(len(rows), device=fed.device), value, (fed.clients, len(rows)))


def count(fed: Graphs, mask: str) -> Tensor:
    """Count each client's own nodes of a split or of "all", see `Federation.count`."""
    own = fed.batch.ring == 0
    chosen = own if mask == "all" else own & fed.batch[f"{mask}_mask"]
    return torch.bincount(fed.batch.batch[chosen], minlength=fed.clients)


def average(fed: Graphs, weights: Mapping[str, Tensor], by: Tensor) -> dict[str, Tensor]:
    """Return the weighted mean over each run's clients, see `Federation.average`."""
    if fed.device.type == "cuda" and fed.runs > 1:
        return _average_in_products(fed, weights, by)
    means: dict[str, list[Tensor]] = {name: [] for name in weights}
    for run in range(fed.runs):
        chosen = (fed.run == run) & (by > 0)
        parts = consecutive(chosen)
        if len(parts) == 1 and parts[0].stop - parts[0].start == 1:
            # The mean of one client is that client's weights.
            for name, w in weights.items():
                means[name].append(w[parts[0].start])
            continue
        share = by.double() / by[chosen].sum()
        for name, w in weights.items():
            sums = [share[part].to(w.dtype) @ w[part].flatten(1) for part in parts]
            mean = sum(sums[1:], sums[0]) if sums else w.new_full((w[0].numel(),), torch.nan)
            means[name].append(mean.view(w.shape[1:]))
    # One run's mean needs no copy, which small graphs feel.
    return {name: torch.stack(rows) if fed.runs > 1 else rows[0][None] for name, rows in means.items()}


def _average_in_products(fed: Graphs, weights: Mapping[str, Tensor], by: Tensor) -> dict[str, Tensor]:
    """Average all runs in one product a weight, since a GPU takes as long for one run as for many."""
    active = (by > 0).nonzero().squeeze(1)
    ptr = torch.searchsorted(fed.run[active], torch.arange(fed.runs + 1, device=fed.device))
    total = bag(by.double()[:, None], active, ptr)
    share = by[active] / total[fed.run[active], 0]
    out = {}
    for name, w in weights.items():
        mean = bag(w.flatten(1), active, ptr, share)
        out[name] = torch.where(total > 0, mean, torch.nan).view(fed.runs, *w.shape[1:])
    return out


def normalize(x: Tensor | Sparse) -> Tensor | Sparse:
    """Return `x / s` with the two further columns `-m / s` and 1, see `Federation.normalized`.

    The mean m and the standard deviation s are those of a node's features, computed in float64. A sparse `x` stays
    sparse, because the mean is not subtracted from each entry.
    """
    nodes, width = x.shape
    if isinstance(x, Tensor):
        mean, power = x.double().mean(1), x.double().square().mean(1)
    else:
        sums = torch.zeros(nodes, 2, dtype=torch.float64, device=x.value.device)
        value = x.value.double()
        mean, power = sums.index_add_(0, x.pattern.row, torch.stack([value, value * value], 1)).unbind(1)
        mean, power = mean / width, power / width
    rescale = (power - mean * mean + 1e-5).rsqrt()
    added = torch.stack([-mean * rescale, torch.ones_like(mean)], 1)
    if isinstance(x, Tensor):
        return torch.cat([x * rescale[:, None].to(x.dtype), added.to(x.dtype)], 1)
    all_nodes = torch.arange(nodes, device=mean.device)
    row = torch.cat([x.pattern.row, all_nodes, all_nodes])
    col = torch.cat([x.pattern.col, torch.full_like(all_nodes, width), torch.full_like(all_nodes, width + 1)])
    value = torch.cat([x.value.double() * rescale[x.pattern.row], *added.unbind(1)])
    return Sparse.of(row, col, value.to(x.value.dtype), (nodes, width + 2))


def consecutive(chosen: Tensor) -> list[slice]:
    """Return the stretches of True in a mask as slices, since a sum over views copies nothing."""
    on = chosen.cpu()
    if bool(on.all()):
        return [slice(0, len(on))]
    edge = np.diff(on.numpy().astype(np.int8), prepend=0, append=0).nonzero()[0]
    return [slice(start, stop) for start, stop in edge.reshape(-1, 2).tolist()]


def _with_self_loops(fed: Graphs) -> tuple[Tensor, Tensor]:
    """Return edges with one self-loop per node, as PyG's `add_remaining_self_loops` does on unweighted graphs."""
    source, target = fed.batch.edge_index
    is_no_loop = source != target
    nodes = torch.arange(fed.nodes, device=fed.device)
    return torch.cat([source[is_no_loop], nodes]), torch.cat([target[is_no_loop], nodes])
