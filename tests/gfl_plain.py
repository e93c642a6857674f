"""A small graph for GFL-APPNP whose nodes have several samples, one node a client."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.models import MLP

NODES, SAMPLES, FEATURES, CLASSES, HIDDEN = 9, 4, 5, 3, 6
NET = MLP(FEATURES, CLASSES, HIDDEN)


def data(seed: int = 0, split_nodes: bool = False, sparse: bool = False) -> Data:
    """Return a random connected graph whose nodes have several samples.

    The split is one of samples with labels of their own, or one of nodes with one label each.
    """
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((NODES, NODES)) < 0.4, 1)
    upper[range(NODES - 1), range(1, NODES)] = True
    row, col = np.nonzero(upper)
    x = rng.normal(size=(NODES * SAMPLES, FEATURES)) * (
        rng.random((NODES * SAMPLES, FEATURES)) < (0.2 if sparse else 1)
    )
    y = np.repeat(rng.integers(CLASSES, size=NODES), SAMPLES) if split_nodes else rng.integers(CLASSES, size=len(x))
    role = np.repeat(np.arange(NODES) % 3, SAMPLES) if split_nodes else np.tile([0, 0, 1, 2], NODES)
    edges = torch.from_numpy(np.stack([np.concatenate([row, col]), np.concatenate([col, row])])) * SAMPLES
    graph = Data(x=torch.tensor(x, dtype=torch.float32), y=torch.from_numpy(y), edge_index=edges, num_classes=CLASSES)
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        graph[name] = torch.from_numpy(role == number)
    return graph


def federate(graph: Data, seed: int = 0) -> Federation:
    parts = list(torch.arange(NODES * SAMPLES).view(NODES, -1))
    return Federation.of(graph, parts, seed, dtype=torch.float64)
