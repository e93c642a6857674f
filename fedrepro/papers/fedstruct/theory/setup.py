"""Build the instances that the checks share: a small seeded federation, and the graph and partition of a run."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.data import partition
from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import random
from fedrepro.papers.fedstruct import powers
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

NODES, FEATURES, CLASSES, CLIENTS = 60, 6, 3, 4
# The weights beta_0 to beta_3 differ, so that a check fails if two powers are exchanged.
BETA = (0.1, 0.3, -0.2, 0.8)


def small_graph(seed: int) -> Data:
    """Return a seeded graph of 60 nodes, float64: most edges join one class, and half of the nodes are for training."""
    y = torch.from_numpy(np.floor(random.uniform((NODES,), "small", seed, "y").numpy() * CLASSES).astype(np.int64))
    draw = random.uniform((NODES, NODES), "small", seed, "edges")
    upper = torch.triu(draw < torch.where(y[:, None] == y[None], 0.12, 0.03), 1)
    edge_index, x = (upper | upper.T).nonzero().T.contiguous(), random.normal((NODES, FEATURES), "small", seed, "x")
    role = random.uniform((NODES,), "small", seed, "role")
    masks = {"train_mask": role < 0.5, "val_mask": (role >= 0.5) & (role < 0.7), "test_mask": role >= 0.7}
    return Data(x=x, y=y, num_classes=CLASSES, edge_index=edge_index, **masks)


def small_federation(seed: int) -> Federation:
    """Return that graph at four clients, with nodes dealt in turn."""
    parts = [torch.arange(client, NODES, CLIENTS) for client in range(CLIENTS)]
    return Federation.of(small_graph(seed), parts, seed, dtype=torch.float64)


def graph_and_parts(run: Run) -> tuple[Data, list[Tensor]]:
    """Return the prepared graph of a run and its partition."""
    data = tasks.graph(run)
    return data, partition.divide(data, run.partition, run.clients, run.seed)


def local_operator(data: Data, parts: tuple[Tensor, ...]) -> Tensor:
    """Return D~^-1 (A+I) of every client's own subgraph, without cross-client edges, `[nodes, nodes]`."""
    owner = powers.owners(parts, int(data.num_nodes))
    inside = powers.with_loops(data).toarray() * (owner[:, None] == owner[None])
    return torch.from_numpy(inside / inside.sum(1, keepdims=True))


def gap(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference."""
    return float((a - b).abs().max())
