"""Draw the random nodes and layers on which the checks run, and keep the largest error over them.

The layers satisfy the paper's Assumptions 2 to 4: features, b_1 = W^T a_1 and b_2 = W^T a_2 have norm at most 1, and W
is orthogonal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fedrepro.engine.nn import random
from fedrepro.reporting.checks import worst_of

LAYERS, WIDTHS, NEIGHBOURS = 400, (1, 2, 3), (2, 5, 20)


def largest(trials: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the largest value of each name over all trials, at least 0, and NaN if one of them is NaN."""
    worst: dict[str, float] = {}
    for trial in trials:
        worst |= {name: worst_of((worst.get(name, 0.0), value)) for name, value in trial.items()}
    return worst


def random_node(g: int, features: int, heads: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the features of a node's neighbours `[g, features]`, and b_1 and b_2 `[heads, features]`.

    The node itself is the first of its neighbours.
    """
    h = random.normal((g, features), "features", seed, g) / features**0.5
    b1, b2 = (random.normal((heads, features), name, seed, g) / features**0.5 for name in ("b1", "b2"))
    return h, b1, b2


class Layer(NamedTuple):
    """A batch of random nodes, each in a first layer with W and phi the identity.

    Args:
        own: features of the node, `[layers, width]`.
        near: features of its neighbours, `[layers, neighbours, width]`.
        b1, b2: `[layers, width]`.
    """

    own: np.ndarray
    near: np.ndarray
    b1: np.ndarray
    b2: np.ndarray

    def scores(self) -> np.ndarray:
        """Return x_ij `[layers, neighbours]`, between -2 and 2."""
        return np.asarray((self.b1 * self.own).sum(-1, keepdims=True) + (self.near @ self.b2[..., None])[..., 0])

    def embed(self, e: np.ndarray) -> np.ndarray:
        """Return the embeddings `[layers, width]` under the scores `e` `[layers, neighbours]`."""
        return np.asarray((shares(e)[..., None] * self.near).sum(-2))


def shares(e: np.ndarray) -> np.ndarray:
    """Return the attention coefficients, scores divided by their sum over the neighbours."""
    return np.asarray(e / e.sum(-1, keepdims=True))


def random_layers(seed: int = 0) -> Iterator[Layer]:
    """Yield layers of every width and number of neighbours.

    Widths are small and many neighbours are aligned with b_2, so that scores reach both ends of [-2, 2].
    """
    rng = np.random.default_rng(seed)
    for width in WIDTHS:
        for neighbours in NEIGHBOURS:
            b1, b2, centre = (_unit(rng.normal(size=(LAYERS, width))) for _ in range(3))
            near = _unit(rng.normal(size=(LAYERS, neighbours, width)))
            aligned = rng.random((LAYERS, neighbours, 1)) < rng.random((LAYERS, 1, 1))
            near = np.where(aligned, -b2[:, None], near)
            yield Layer(np.where(rng.random((LAYERS, 1)) < 0.5, -b1, centre), near, b1, b2)


def _unit(v: np.ndarray) -> np.ndarray:
    return np.asarray(v / np.linalg.norm(v, axis=-1, keepdims=True))


def opposed_neighbours() -> Layer:
    """Return two neighbours with equal, low scores and features that point apart, for angles up to 90 degrees.

    Their scores are x = -1 - cos(angle). They break Theorem 4 as printed if exp(psi(x)) falls below about 1/2.
    """
    angle = np.linspace(0.0, np.pi / 2, 91)
    b = np.broadcast_to([1.0, 0.0], (len(angle), 2))
    near = np.stack([np.stack([-np.cos(angle), s * np.sin(angle)], -1) for s in (1.0, -1.0)], 1)
    return Layer(-b, near, b, b)
