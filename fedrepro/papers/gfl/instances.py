"""Show two small instances of GFL-APPNP whose numbers a reader can move."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F

from fedrepro.engine.nn import random
from fedrepro.papers.gfl import attack
from fedrepro.papers.gfl.pictures import PLACES, spread
from fedrepro.reporting import figures, pictures

FEATURES, HIDDEN, CLASSES, ROUNDS = 8, 16, 2, 20


def propagation(kind: str = "truncated", alpha: float = 0.1, steps: int = 10) -> Any:
    """Draw the matrix that spreads h over the five clients of the picture, and return the figure.

    Args:
        kind: the weights of the powers of S (GFL-Q1).
        alpha: teleport probability.
        steps: the highest power.
    """
    matrix = spread(kind, alpha, steps)
    title = f"Ã, {kind}: a client's row adds up to {float(matrix.sum(1).min()):.2f} or more"
    figure: Any = figures.heat(matrix, list(PLACES), list(PLACES), "entry", title=title)
    figure.axes[0].set(xlabel="client that shares h", ylabel="client that receives")
    return figure


def rebuilt(neighbours: int = 2, noise: float = 0.0, seed: int = 0) -> Any:
    """Draw how well the centre of a star rebuilds a leaf's features from sums, and return the figure.

    The weights of each round are drawn at random here and not trained, so that the cell takes no time.

    Args:
        neighbours: leaves whose gradients are summed up.
        noise: standard deviation of the noise on a gradient; V1 has 1.
    """
    x = random.normal((neighbours, FEATURES), "leaves", seed)
    averages, messages, rows = [], [], []
    for t in range(ROUNDS):
        first = random.normal((FEATURES, HIDDEN), "first layer", seed, t)
        second = random.normal((HIDDEN, CLASSES), "second layer", seed, t)
        on = (x @ first > 0).double()
        gradient = torch.einsum("jp,jh->ph", x, on)[None] * second.T[:, None] / neighbours
        gradient += noise / neighbours**0.5 * random.normal(tuple(gradient.shape), "noise", seed, t)
        averages.append((first, second))
        messages.append((torch.relu(x @ first).mean(0) @ second, gradient))
        guesses = {
            "least squares": attack.from_gradients(averages, messages),
            "shortest difference": attack.shortest_difference([w for _, w in averages], [g for _, g in messages]),
        }
        for name, guess in guesses.items():
            cosine = F.cosine_similarity(guess[None], x, dim=1).abs().max()
            rows.append({"rounds seen": t + 1, "cosine to the closest leaf": float(cosine), "attack": name})
    title = f"{neighbours} neighbours, noise {noise:g}"
    axes = ("rounds seen", "cosine to the closest leaf", "attack")
    figure = figures.curves(pd.DataFrame(rows), *axes, band="none", title=title)
    figures.finish(figure, counts=False)
    figure.axes[0].set_ylim(0, 1.05)
    figure.axes[0].axhline(1, color=pictures.FAINT, ls="--", lw=1)
    return figure
