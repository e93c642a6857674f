"""The network of GraphSAINT's hosts: convolutions and a dense layer, on sub-graphs or on a host's whole graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.models import GCN, glorot
from fedrepro.engine.nn.sparse import Sparse


@dataclass(frozen=True)
class Network:
    """`model.layers - 1` convolutions and a dense layer.

    Args:
        model: the sizes, and the dropout on each layer's input.
        layer: "gcn" or "saint", see `fedrepro.papers.feras.saint.method.GraphSAINT`.
    """

    model: GCN
    layer: str

    def init(self, seeds: tuple[int, ...], dtype: torch.dtype, device: str | torch.device) -> Weights:
        """Initial weights, `[runs, ...]`: the model's, or those of GraphSAINT's layer."""
        if self.layer == "gcn":
            return self.model.init(seeds, dtype, device)
        each = []
        for seed in seeds:
            made: Weights = {}
            width = self.model.features
            for i in range(1, self.model.layers):
                for name in (f"layer{i}.weight", f"layer{i}.root"):
                    made[name] = glorot(width, self.model.hidden, seed=seed, name=name)
                width = 2 * self.model.hidden
                made |= {f"layer{i}.bias": torch.zeros(width), f"layer{i}.offset": torch.zeros(width)}
                made[f"layer{i}.scale"] = torch.ones(width)
            last = f"layer{self.model.layers}"
            made[f"{last}.weight"] = glorot(width, self.model.classes, seed=seed, name=f"{last}.weight")
            each.append({**made, f"{last}.bias": torch.zeros(self.model.classes)})
        return {name: torch.stack([w[name] for w in each]).to(device, dtype) for name in each[0]}

    def convolution(
        self, weights: Weights, fed: Federation, spread: Callable[[Tensor], Tensor], given: Tensor | None, i: int
    ) -> Tensor:
        """The i-th convolution of embeddings, or of the features where none are given: `[nodes, width]`.

        Args:
            fed: its batch has `visible` and `node_id`.
            spread: propagates over the edges at hand.
        """
        part, seen = (fed, None) if given is not None else _seen(fed)
        h = layers.dropout(part, part.input if given is None else given, self.model.dropout, f"layer{i}")
        weight, bias = weights[f"layer{i}.weight"], layers.per_node(fed, weights[f"layer{i}.bias"])
        if isinstance(h, Tensor) and h.shape[1] <= weight.shape[2]:  # the narrower side is propagated
            z = layers.linear(fed, spread(_placed(h, seen, fed.nodes)), weight)
        else:
            z = spread(_placed(layers.linear(part, h, weight), seen, fed.nodes))
        if self.layer == "gcn":
            return F.relu(z + bias)
        root = _placed(layers.linear(part, h, weights[f"layer{i}.root"]), seen, fed.nodes)
        both = torch.cat([root, z], 1)
        halves = F.relu(both + bias).view(len(both), 2, -1)
        normal = F.layer_norm(halves, halves.shape[2:], eps=1e-9).flatten(1)
        scale, offset = (layers.per_node(fed, weights[f"layer{i}.{name}"]) for name in ("scale", "offset"))
        return normal * scale + offset

    def dense(self, weights: Weights, fed: Federation, h: Tensor) -> Tensor:
        """The last layer: logits `[nodes, classes]`."""
        last = f"layer{self.model.layers}"
        if self.layer == "saint":
            h = F.normalize(h, dim=1)
        h = layers.dropout(fed, h, self.model.dropout, last)
        return layers.linear(fed, h, weights[f"{last}.weight"], weights[f"{last}.bias"])


def _seen(fed: Federation) -> tuple[Federation, Tensor | None]:
    """The nodes whose features their host sees, and which they are. All others' features are zeros, which dropout and
    products leave out; a sparse matrix does so by itself (None: all nodes).
    """
    if isinstance(fed.x, Sparse):
        return fed, None
    seen = fed.batch.visible.nonzero().squeeze(1)
    batch = Data(num_nodes=len(seen), batch=fed.batch.batch[seen], node_id=fed.batch.node_id[seen])
    return replace(fed, batch=batch, x=fed.x.index_select(0, seen), _cache={}), seen


def _placed(h: Tensor, seen: Tensor | None, nodes: int) -> Tensor:
    """Rows of the nodes seen among zero rows of the others."""
    return h if seen is None else h.new_zeros(nodes, h.shape[1]).index_copy_(0, seen, h)


def rows_of(fed: Federation, client: int) -> slice:
    """Where a client's nodes stand in the batch."""
    return slice(int(fed.batch.ptr[client]), int(fed.batch.ptr[client + 1]))


def one_client(fed: Federation, client: int) -> Federation:
    """A client's nodes and features with one weight slice, for predictions; its edges are left to the host."""
    rows = rows_of(fed, client)
    count = rows.stop - rows.start
    batch = Data(num_nodes=count, batch=torch.zeros(count, dtype=torch.long, device=fed.device))
    batch.visible, batch.node_id = fed.batch.visible[rows], fed.batch.node_id[rows]
    every = torch.arange(rows.start, rows.stop, device=fed.device)
    x = fed.x.rows(every) if isinstance(fed.x, Sparse) else fed.x[rows]
    first = torch.zeros(1, dtype=torch.long, device=fed.device)
    return replace(
        fed, batch=batch, x=x, run=first, number=fed.number[client : client + 1], slice_of=first, clock=None,
        parent=None, _cache={},
    )  # fmt: skip
