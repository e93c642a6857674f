"""Clients and a two-layer GCN in dense matrices, one client at a time, to compare the baselines with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from graphs import client_graph, dense_operator
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.method import Method

Weights = dict[str, Tensor]
F64 = torch.float64


class Client(NamedTuple):
    """Features, GCN's and GraphSAGE's propagation matrices, labels, training nodes, the graph they come from."""

    x: Tensor
    s: Tensor
    mean: Tensor
    y: Tensor
    train: Tensor
    graph: Data


def normal(a: Tensor) -> Tensor:
    """Return D^-1/2 A D^-1/2 of a dense matrix, with its row sums D."""
    d = torch.diag(a.sum(1) ** -0.5)
    return d @ a @ d


def clients_of(data: Data, parts: Sequence[Tensor]) -> list[Client]:
    """Return what each client holds, in float64."""
    held = []
    for part in parts:
        graph = client_graph(data, part)
        s, mean = (torch.from_numpy(dense_operator(kind, graph.edge_index, len(graph.y))) for kind in ("gcn", "mean"))
        held.append(Client(graph.x, s, mean, graph.y, graph.train_mask, graph))
    return held


def hidden(w: Weights, c: Client) -> Tensor:
    """The first convolution before its ReLU."""
    return c.s @ c.x @ w["layer1.weight"] + w["layer1.bias"]


def gcn(w: Weights, c: Client) -> Tensor:
    """Logits of a GCN of two layers."""
    return c.s @ torch.relu(hidden(w, c)) @ w["layer2.weight"] + w["layer2.bias"]


def loss(w: Weights, c: Client) -> Tensor:
    """Mean cross-entropy over training nodes."""
    return F.cross_entropy(gcn(w, c)[c.train], c.y[c.train])


def able(held: Sequence[Client]) -> list[int]:
    """Who has training nodes."""
    return [i for i, c in enumerate(held) if bool(c.train.any())]


def leaves(w: Weights) -> Weights:
    """Copies that take a gradient."""
    return {name: value.detach().clone().requires_grad_() for name, value in w.items()}


def detached(w: Weights) -> Weights:
    return {name: value.detach().clone() for name, value in w.items()}


def optimizer_of(method: Method, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    """torch.optim's optimizer with the method's hyper-parameters."""
    if method.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=method.lr, weight_decay=method.weight_decay)
    return torch.optim.SGD(parameters, lr=method.lr, weight_decay=method.weight_decay, momentum=method.momentum)


def mean(weights: Sequence[Weights], shares: Sequence[float]) -> Weights:
    """Weighted mean; shares are normalized here."""
    return {name: sum(p * w[name] for p, w in zip(shares, weights)) / sum(shares) for name in weights[0]}


def initial(method: Method, seed: int = 0) -> Weights:
    """The model's initial weights in float64."""
    return {name: w[0] for name, w in method.model.init([seed], F64).items()}


def step(optimizer: torch.optim.Optimizer, value: Tensor) -> None:
    optimizer.zero_grad()
    value.backward()
    optimizer.step()


def row(w: Weights, i: int) -> Weights:
    """One slice."""
    return {name: value[i] for name, value in w.items()}


def options(**more: Any) -> dict[str, Any]:
    """Adam with weight decay, moments kept."""
    return {"lr": 0.05, "weight_decay": 0.01, **more}
