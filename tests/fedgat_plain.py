"""A small graph for FedGAT, its exact layers by PyG, and its neighbours and scores by loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from graphs import graph_of
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GATConv

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import GAT
from fedrepro.papers.fedgat.method import DistGAT, FedGAT

NODES, FEATURES, CLASSES = 40, 6, 3


def graph(seed: int = 0, sparse: bool = False) -> Data:
    """Return an undirected graph of 40 nodes. The last node has no edge, and some nodes are in no split."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((NODES, NODES)) < 0.12, 1)
    upper[:, -1] = False
    x = rng.normal(size=(NODES, FEATURES))
    if sparse:
        x *= rng.random(x.shape) < 0.2
    split = rng.integers(4, size=NODES)
    return graph_of(torch.from_numpy(x), rng.integers(CLASSES, size=NODES), upper | upper.T, split, num_classes=CLASSES)


def split(nodes: int, clients: int, seed: int = 0) -> list[Tensor]:
    """Return clients of unequal size, the smallest with one node."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.choice(np.arange(2, nodes), clients - 1, replace=False)) if clients > 1 else []
    if clients > 1:
        cuts[0] = 1
    return [torch.from_numpy(part) for part in np.split(rng.permutation(nodes), cuts)]


def federate(data: Data, clients: int = 1, seed: int = 0) -> Federation:
    return Federation.of(data, split(data.num_nodes, clients, seed), seed, dtype=torch.float64)


def gat(**sizes: int) -> GAT:
    return GAT(**({"features": FEATURES, "classes": CLASSES, "hidden": 4, "heads": 2, "output_heads": 2} | sizes))


def random_weights(model: GAT, seed: int = 0, scale: float = 0.5) -> Weights:
    """Return weights of every name, none of them zero, as the server of one run holds them."""
    rng = np.random.default_rng(seed)
    return {name: torch.from_numpy(scale * rng.normal(size=tuple(w.shape))) for name, w in model.init([0]).items()}


def free_vectors(weights: Weights, scale: float) -> Weights:
    """Return the weights with attention vectors over the input features."""
    rng = np.random.default_rng(1)
    return weights | {
        name: torch.from_numpy(scale * rng.normal(size=(1, 2, FEATURES))) for name in ("layer1.source", "layer1.target")
    }


def logits(method: DistGAT, fed: Federation, weights: Weights) -> Tensor:
    """Return what the clients predict with these weights after the exchange, in the graph's node order."""
    fed, state = method.start(fed)
    out = method.predict(fed, replace(state, shared=weights))
    own = fed.batch.ring == 0
    ordered = torch.full((int(own.sum()), out.shape[1]), torch.nan, dtype=out.dtype)
    ordered[fed.batch.node_id[own]] = out[own]
    return ordered


def conv(weights: Weights, layer: int, concat: bool, slope: float = 0.2) -> GATConv:
    """Return PyG's exact GAT layer with the weights of one of ours."""
    weight, source, target = (weights[f"layer{layer}.{name}"][0] for name in ("weight", "source", "target"))
    layer_ = GATConv(weight.shape[0], source.shape[1], len(source), concat=concat, negative_slope=slope).double()
    vectors = {"att_src": source[None], "att_dst": target[None]}
    layer_.load_state_dict({**vectors, "bias": weights[f"layer{layer}.bias"][0], "lin.weight": weight.T})
    return layer_


def exact_first(weights: Weights, data: Data, slope: float = 0.2) -> Tensor:
    """Return the exact first layer before bias and ELU, on the whole graph."""
    with torch.no_grad():
        layer = conv(weights, 1, concat=True, slope=slope)
        return layer(data.x, data.edge_index) - layer.bias


def exact(weights: Weights, data: Data) -> Tensor:
    """Return the logits of the exact GAT on the whole graph."""
    with torch.no_grad():
        h = F.elu(conv(weights, 1, concat=True)(data.x, data.edge_index))
        return conv(weights, 2, concat=False)(h, data.edge_index)


def neighbours(data: Data) -> list[list[int]]:
    """Return each node's neighbours, itself among them."""
    near_of = [{i} for i in range(data.num_nodes)]
    for j, i in data.edge_index.T.tolist():
        near_of[i].add(j)
    return [sorted(near) for near in near_of]


def scores(weights: Weights, data: Data, head: int, through: bool = True) -> list[np.ndarray]:
    """Return x_ij of one head for each node's neighbours (Eq. 4), `through` W or of the input features themselves."""
    x = data.x.numpy()
    h = x @ weights["layer1.weight"][0].numpy().reshape(x.shape[1], -1, 4)[:, head] if through else x
    a2, a1 = weights["layer1.source"][0, head].numpy(), weights["layer1.target"][0, head].numpy()
    return [h[near] @ a2 + h[i] @ a1 for i, near in enumerate(neighbours(data))]


def largest_score(weights: Weights, data: Data, heads: int = 2) -> float:
    return float(max(np.abs(x).max() for head in range(heads) for x in scores(weights, data, head)))


class From(FedGAT):
    """A FedGAT that starts from given weights."""

    def start(self, fed: Federation) -> tuple[Federation, State]:
        fed, state = super().start(fed)
        return fed, replace(state, shared=random_weights(self.model))
