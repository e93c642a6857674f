"""A block model with clear communities, and the calls of every partition on it."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

FULL = {
    "single": ("single", 1),
    "random": ("random", 5),
    "louvain": ("louvain", 5),
    "kmeans": ("kmeans", 5),
    "metis": ("metis", 5),
    "overlapping-metis": ("overlapping-metis(parts=2)", 10),
    "dirichlet": ("dirichlet(beta=1)", 5),
    "private-public": ("private-public(kappa=0.4)", 5),
    "one-node-per-client": ("one-node-per-client", 240),
    "blocks": ("blocks", 5),
}
CALLS = list(FULL.values())


def block_model(nodes: int = 240, blocks: int = 4, seed: int = 0, isolated: int = 0) -> Data:
    """A stochastic block model with a feature direction per block; the last `isolated` nodes have no edge."""
    rng = np.random.default_rng(seed)
    y = rng.integers(blocks, size=nodes)
    probability = np.where(y[:, None] == y[None, :], 0.12, 0.01)
    upper = np.triu(rng.random((nodes, nodes)) < probability, k=1)
    upper[:, nodes - isolated :] = False
    x = np.eye(blocks)[y] + 0.3 * rng.normal(size=(nodes, blocks))
    return Data(
        x=torch.tensor(x, dtype=torch.float32),
        y=torch.tensor(y),
        edge_index=torch.tensor(np.array(np.nonzero(upper | upper.T))),
        name="block model",
        num_classes=blocks,
    )


def with_edges(data: Data, edge_index: torch.Tensor) -> Data:
    changed = data.clone()
    changed.edge_index = edge_index
    return changed


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(p, q) for p, q in zip(a, b, strict=True))
