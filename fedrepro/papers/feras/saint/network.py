"""Compute the network of a host: convolutions and a dense layer, on its sub-graph or on its whole graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.models import GCN, glorot
from fedrepro.engine.nn.sparse import Sparse

LAYERS = ("gcn", "saint")
Spread = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Network:
    """A network of `model.layers - 1` convolutions and a dense layer.

    Args:
        model: the sizes, and the dropout on the input of each layer.
        layer: "gcn" or "saint", see `fedrepro.papers.feras.saint.method.GraphSAINT`.
    """

    model: GCN
    layer: str

    def init(self, seeds: tuple[int, ...], dtype: torch.dtype, device: str | torch.device) -> Weights:
        """Return initial weights, `[runs, ...]`: those of the model, or of GraphSAINT's layer."""
        if self.layer == "gcn":
            return self.model.init(seeds, dtype, device)
        runs = [self._init(seed) for seed in seeds]
        return {name: torch.stack([w[name] for w in runs]).to(device, dtype) for name in runs[0]}

    def _init(self, seed: int) -> Weights:
        weights: Weights = {}
        width = self.model.features
        for i in range(1, self.model.layers):
            for name in (f"layer{i}.weight", f"layer{i}.root"):
                weights[name] = glorot(width, self.model.hidden, seed=seed, name=name)
            width = 2 * self.model.hidden
            weights |= {f"layer{i}.{name}": torch.zeros(width) for name in ("bias", "offset")}
            weights[f"layer{i}.scale"] = torch.ones(width)
        last = f"layer{self.model.layers}"
        weights[f"{last}.weight"] = glorot(width, self.model.classes, seed=seed, name=f"{last}.weight")
        return {**weights, f"{last}.bias": torch.zeros(self.model.classes)}

    def convolution(self, weights: Weights, fed: Federation, spread: Spread, given: Tensor | None, i: int) -> Tensor:
        """Return the output of convolution i, `[nodes, width]`.

        Args:
            weights: the weights of the network.
            fed: the nodes; its batch has `visible` and `node_id`.
            spread: propagates `[nodes, width]` over the edges.
            given: the input `[nodes, width]`. None means the features.
            i: number of the convolution, from 1.
        """
        part, seen = (fed, None) if given is not None else _seen(fed)
        h = layers.dropout(part, part.input if given is None else given, self.model.dropout, f"layer{i}")
        weight, bias = weights[f"layer{i}.weight"], layers.per_node(fed, weights[f"layer{i}.bias"])
        # Propagation costs least on the narrower side of the weight.
        if isinstance(h, Tensor) and h.shape[1] <= weight.shape[2]:
            z = layers.linear(fed, spread(_among_all(h, seen, fed.nodes)), weight)
        else:
            z = spread(_among_all(layers.linear(part, h, weight), seen, fed.nodes))
        if self.layer == "gcn":
            return F.relu(z + bias)
        root = _among_all(layers.linear(part, h, weights[f"layer{i}.root"]), seen, fed.nodes)
        both = torch.cat([root, z], 1)
        halves = F.relu(both + bias).view(len(both), 2, -1)
        normal = F.layer_norm(halves, halves.shape[2:], eps=1e-9).flatten(1)
        scale, offset = (layers.per_node(fed, weights[f"layer{i}.{name}"]) for name in ("scale", "offset"))
        return normal * scale + offset

    def convolutions(self, view: View, h: Tensor | None, numbers: Iterable[int]) -> Tensor:
        """Return the output of several convolutions in turn on a host's whole graph, see `convolution`."""
        for i in numbers:
            h = self.convolution(*view, h, i)
        assert h is not None
        return h

    def dense(self, weights: Weights, fed: Federation, h: Tensor) -> Tensor:
        """Return the output of the last layer, the logits `[nodes, classes]`."""
        last = f"layer{self.model.layers}"
        if self.layer == "saint":
            h = F.normalize(h, dim=1)
        h = layers.dropout(fed, h, self.model.dropout, last)
        return layers.linear(fed, h, weights[f"{last}.weight"], weights[f"{last}.bias"])


def _seen(fed: Federation) -> tuple[Federation, Tensor | None]:
    """Return the nodes whose features their host sees, and their positions.

    All other features are zero, so dropout and products leave them out. A sparse matrix does so by itself; for it the
    positions are None, which means all nodes.
    """
    if isinstance(fed.x, Sparse):
        return fed, None
    seen = fed.batch.visible.nonzero().squeeze(1)
    batch = Data(num_nodes=len(seen), batch=fed.batch.batch[seen], node_id=fed.batch.node_id[seen])
    return replace(fed, batch=batch, x=fed.x.index_select(0, seen), _cache={}), seen


def _among_all(h: Tensor, seen: Tensor | None, nodes: int) -> Tensor:
    """Return the rows of the nodes that are seen, and zero rows for the others."""
    return h if seen is None else h.new_zeros(nodes, h.shape[1]).index_copy_(0, seen, h)


def rows_of(fed: Federation, client: int) -> slice:
    """Return the rows of a client's nodes in the batch."""
    return slice(int(fed.batch.ptr[client]), int(fed.batch.ptr[client + 1]))


class View(NamedTuple):
    """One host on its whole graph, for predictions: one weight slice, its nodes, and the propagation over all edges."""

    weights: Weights
    fed: Federation
    spread: Spread

    @classmethod
    def of(cls, weights: Weights, fed: Federation, client: int, spread: Spread) -> View:
        """Cut a client's nodes and weights out of those of all clients."""
        rows = rows_of(fed, client)
        count = rows.stop - rows.start
        batch = Data(num_nodes=count, batch=torch.zeros(count, dtype=torch.long, device=fed.device))
        batch.visible, batch.node_id = fed.batch.visible[rows], fed.batch.node_id[rows]
        every = torch.arange(rows.start, rows.stop, device=fed.device)
        x = fed.x.rows(every) if isinstance(fed.x, Sparse) else fed.x[rows]
        first, number = torch.zeros(1, dtype=torch.long, device=fed.device), fed.number[client : client + 1]
        host = replace(
            fed, batch=batch, x=x, run=first, number=number, slice_of=first, clock=None, parent=None, _cache={}
        )
        return cls({name: w[client : client + 1] for name, w in weights.items()}, host, spread)
