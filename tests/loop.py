"""Training as a plain loop over clients, to compare the engine with, and what the tests of training share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from graphs import Plain, block_model, client_graph, unequal_parts, without_labels
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.nn import models, random

Weights = dict[str, Tensor]
SIZES = {"features": 7, "classes": 3, "hidden": 5}
GCN = models.GCN(**SIZES)
DROPPING = models.GCN(**SIZES, dropout=0.6)
UNLABELLED: dict[int, list[int]] = {1: [], 3: [1], 5: [0, 3], 10: [2, 5]}
SGD: dict[str, Any] = {"optimizer": "sgd", "lr": 0.1}
WEIGHTS: dict[str, Callable[[Data], int]] = {
    "equal": lambda graph: 1,
    "train": lambda graph: int(graph.train_mask.sum()),
    "nodes": lambda graph: len(graph.y),
}
MOVING: dict[str, dict[str, Any]] = {
    "adam": {"weight_decay": 0.1},
    "sgd": {**SGD, "weight_decay": 0.1, "momentum": 0.9},
}


def task(clients: int, seed: int = 0, **kind: Any) -> tuple[Data, list[Tensor]]:
    """A graph and a partition into unequal parts, some of them without training nodes."""
    data = block_model(48, degree=4 + 1.2 * clients, seed=seed, **kind)  # dense enough for edges inside small clients
    parts = unequal_parts(48, clients, seed)
    return without_labels(data, parts, UNLABELLED[clients]), parts


def watch(method: Method) -> tuple[Method, list[Update]]:
    """Return the method, and a list that fills with the updates its server receives, one a round, in training."""
    updates: list[Update] = []

    class Watched(type(method)):  # type: ignore[misc]
        def aggregate(self, state: State, update: Update) -> State:
            updates.append(update)
            return super().aggregate(state, update)

    return Watched(**{f.name: getattr(method, f.name) for f in fields(method)}), updates


def client(weights: Weights, number: int) -> Weights:
    return {name: w[number] for name, w in weights.items()}


class Round(NamedTuple):
    """Hold a round of the plain loop: the server's weights, each client's after training, and the chosen clients."""

    server: dict[str, Tensor]
    clients: list[dict[str, Tensor]]
    chosen: list[int]


def dropout_masks(model: models.Model, graph: Data, seed: int, client: int, t: int, step: int) -> list[Tensor]:
    """Return the factors of each layer's input, by seed, client, node id, layer, round, step and column."""
    nodes = random.keys("node", seed, client, graph.node_id.numpy()).astype(np.int64)
    masks = []
    for i, (width, _) in enumerate(model.widths, start=1):
        columns = width * model.heads if isinstance(model, models.GAT) and i == 2 else width
        rows = random.row_keys(torch.from_numpy(nodes), "dropout", f"layer{i}", t, step)
        kept = random.keep(rows[:, None], torch.arange(columns), model.dropout)
        masks.append(kept.to(graph.x.dtype) / (1 - model.dropout))
    return masks


def chosen_clients(method: Method, graphs: Sequence[Data], seed: int, t: int) -> list[int]:
    """Who trains: of the clients with training nodes, those of the smallest draws keyed by seed and round."""
    able = [i for i, graph in enumerate(graphs) if bool(graph.train_mask.any())]
    if method.participation == 1:
        return able
    draws = random.uniform((len(able),), "participation", seed, t).tolist()
    count = max(1, round(method.participation * len(able)))
    return sorted(able[place] for place in sorted(range(len(able)), key=lambda k: draws[k])[:count])


def optimizer_of(method: Method, net: Plain) -> torch.optim.Optimizer:
    """torch.optim's optimizer with the method's hyper-parameters."""
    if method.optimizer == "adam":
        return torch.optim.Adam(net.parameters(), lr=method.lr, weight_decay=method.weight_decay)
    return torch.optim.SGD(net.parameters(), lr=method.lr, weight_decay=method.weight_decay, momentum=method.momentum)


def client_loss(method: Method, net: Plain, graph: Data, seed: int, client: int, t: int, step: int) -> Tensor:
    """Mean cross-entropy over a client's training nodes, dropout on."""
    masks = dropout_masks(method.model, graph, seed, client, t, step) if method.model.dropout else None
    return F.cross_entropy(net(graph, masks)[graph.train_mask], graph.y[graph.train_mask])


def loop(
    method: Method, data: Data, parts: Sequence[Tensor], rounds: int, seed: int, dtype: torch.dtype
) -> list[Round]:
    """The plain program: client after client, PyG layers and torch.optim; the kind of method is told by its name."""
    name = type(method).__name__
    graphs = [client_graph(data, part, dtype) for part in parts]
    server = {key: w[0] for key, w in method.model.init([seed], dtype).items()}
    nets = [Plain(method.model, server) for _ in graphs]
    central = Plain(method.model, server)
    optimizers, at_server = [optimizer_of(method, net) for net in nets], optimizer_of(method, central)
    history = []
    for t in range(rounds):
        chosen = chosen_clients(method, graphs, seed, t)
        size = {i: WEIGHTS[method.average](graphs[i]) for i in chosen}
        share = {i: size[i] / sum(size.values()) for i in chosen}
        if name not in ("Local", "Central"):
            for net in nets:
                net.load(server)
        if name == "FedSGD":
            losses = [share[i] * client_loss(method, central, graphs[i], seed, i, t, 0) for i in chosen]
            at_server.zero_grad()
            sum(losses[1:], losses[0]).backward()
            at_server.step()
            server = {key: w.clone() for key, w in central.slice().items()}
        else:
            for i in chosen:
                if method.optimizer_state == "reset":
                    optimizers[i] = optimizer_of(method, nets[i])
                for step in range(method.local_epochs):
                    optimizers[i].zero_grad()
                    client_loss(method, nets[i], graphs[i], seed, i, t, step).backward()
                    optimizers[i].step()
            trained = [net.slice() for net in nets]
            server = {key: sum(share[i] * trained[i][key] for i in chosen) for key in server}
        history.append(Round(server, [{k: w.clone() for k, w in net.slice().items()} for net in nets], chosen))
    return history
