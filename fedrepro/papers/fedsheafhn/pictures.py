"""Draw FedSheafHN: from one vector for each client to the weights of each client, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedrepro.papers.fedsheafhn import sheaf
from fedrepro.reporting import pictures
from fedrepro.reporting.pictures import arrow, box, note

NEIGHBOURS = 2
ANGLES = (2.4, 3.5, 4.4, 1.3, 0.2, 5.6)  # positions of the clients around the collaboration graph


def embeddings() -> torch.Tensor:
    """Return vectors of six clients in two groups of three, `[6, 4]`."""
    noise = torch.randn(6, 4, generator=torch.Generator().manual_seed(3))
    return (torch.tensor([[1.0, 1.0, 0.1, 0.1]] * 3 + [[0.1, 0.1, 1.0, 1.0]] * 3) + 0.25 * noise).abs()


@pictures.drawn_once
def method() -> Any:
    """Draw a round of FedSheafHN with six clients, and return the figure.

    The edges are those of the package's collaboration graph on the vectors that are drawn.
    """
    figure, ax = pictures.sheet("FedSheafHN: the server makes every client's weights from one vector each", height=4.2)
    vectors = embeddings()
    note(ax, (0.1, 3.75), "1  each client sends\nan embedding $v_i$")
    for client, row in enumerate(vectors):
        y, colour = 3.0 - 0.4 * client, pictures.client_colour(client)
        note(ax, (0.1, y + 0.05), f"client {client}", colour=colour, size=8)
        pictures.cells(ax, (0.8, y + 0.08), row.numpy(), 0.2, colour=colour)
    arrow(ax, (1.7, 2.0), (2.2, 2.0))

    note(ax, (2.3, 3.75), "2  collaboration graph:\nthe most similar clients")
    places = {i: (3.15 + 0.75 * float(np.cos(a)), 2.1 + 0.75 * float(np.sin(a))) for i, a in enumerate(ANGLES)}
    edges = [(int(u), int(v)) for u, v in sheaf.nearest(vectors, NEIGHBOURS).T]
    pictures.graph(ax, edges, places, {client: client for client in places})
    arrow(ax, (4.15, 2.2), (4.55, 2.2))

    note(ax, (4.5, 3.75), "3  sheaf diffusion along it, with\na map $F_{u,e}$ at each end of an edge")
    step, gap = "$X\\leftarrow X-\\sigma(\\Delta_F(I\\!\\otimes\\!W_1)XW_2)$", "$F_{u,e}x_u-F_{v,e}x_v$"
    box(ax, (5.55, 2.2), f"{step}\n\ndisagreement after maps:\n{gap}", (1.95, 1.3))
    arrow(ax, (6.53, 2.2), (6.85, 2.2))
    note(ax, (6.85, 3.75), "4  attention")
    box(ax, (7.35, 2.2), "each client\nattends to\nthe others", (0.95, 1.0))
    arrow(ax, (7.83, 2.2), (8.15, 2.2))
    note(ax, (7.95, 3.75), "5  hypernetwork")
    box(ax, (8.7, 2.2), "$\\omega_i=H_\\varphi(x_i)$", (1.1, 0.8))

    pictures.path(ax, (8.9, 1.8), (8.9, 0.45), (1.3, 0.45), (1.3, 0.8))
    note(ax, (2.0, 0.78), "6  weights $\\omega_i$ go down; each client trains them with a head that it keeps")
    up = pictures.client_colour(1)
    pictures.path(ax, (0.5, 0.8), (0.5, 0.12), (9.2, 0.12), (9.2, 1.8), colour=up, dashed=True)
    note(
        ax,
        (2.0, 0.4),
        "7  the change $\\Delta\\omega_i$ goes up; the server steps $\\theta,\\varphi$ along it",
        colour=up,
    )
    return figure
