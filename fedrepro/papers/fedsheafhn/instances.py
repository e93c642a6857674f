"""Show two small instances of FedSheafHN whose numbers a reader can move."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from fedrepro.papers.fedsheafhn import sheaf
from fedrepro.reporting import figures


def diffusion(first: float = 2.0, second: float = 1.0, steps: int = 12) -> Any:
    """Draw how two clients come to rest whose edge has two restriction maps, and return the figure.

    The states begin at 1 and -1. A step moves them along minus L_F (Eq. 5), divided by twice its largest eigenvalue.

    Args:
        first, second: the maps F_{u,e} and F_{v,e}, which are numbers here. At rest both states agree after them.
    """
    maps = torch.tensor([first, second], dtype=torch.float64)[:, None, None, None]
    laplacian = sheaf.matrix(sheaf.laplacian(maps[0], maps[1], torch.tensor([[0], [1]]), nodes=2))
    largest = float(torch.linalg.eigvalsh(laplacian)[-1])
    x, rows = torch.tensor([1.0, -1.0], dtype=torch.float64), []
    for step in range(steps + 1):
        after = maps.flatten() * x
        for name, values in (("client", x), ("after its map, client", after)):
            rows += [{"step": step, "state": float(v), "line": f"{name} {i}"} for i, v in enumerate(values)]
        x = x - laplacian @ x / (2 * largest) if largest else x
    title = (
        f"maps {first:g} and {second:g}: after the maps the last states differ by {abs(float(after[0] - after[1])):.1e}"
    )
    figure = figures.curves(pd.DataFrame(rows), "step", "state", "line", band="none", title=title)
    figures.finish(figure, counts=False)
    return figure


def server_steps(
    sign: int, local: float = 0.5, alpha: float = 0.2, x: float = 2.0, theta: float = 0.0, rounds: int = 8
) -> list[float]:
    """Return the loss (omega - 1)^2 / 2 after each round of a hypernetwork with one number, omega = theta x.

    Args:
        sign: +1 for Algorithm 1 as printed, theta <- theta - alpha J Delta; -1 for its correction (SH-Q3).
        local: the size of the client's one local step.
        alpha: the server's rate.
    """
    losses = []
    for _ in range(rounds):
        generated = theta * x
        trained = generated - local * (generated - 1)
        theta = theta - sign * alpha * x * (trained - generated)
        losses.append((theta * x - 1) ** 2 / 2)
    return losses


def two_signs(local: float = 0.5, alpha: float = 0.2) -> Any:
    """Draw the loss round by round with the printed and the corrected sign, and return the figure."""
    named = {"as printed": +1, "corrected": -1}
    rows = [
        {"round": number, "loss": loss, "sign": name}
        for name, sign in named.items()
        for number, loss in enumerate(server_steps(sign, local, alpha), 1)
    ]
    title = f"local step {local:g}, server's rate {alpha:g}"
    figure = figures.curves(pd.DataFrame(rows), "round", "loss", "sign", band="none", title=title)
    figures.finish(figure, counts=False, yscale="log")
    return figure
