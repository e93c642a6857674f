"""Draw GFL-APPNP: clients that are nodes, the sums that a client gets of its neighbours, and its local steps."""

from __future__ import annotations

from typing import Any

import torch

from fedrepro.papers.gfl import clients
from fedrepro.reporting import pictures
from fedrepro.reporting.pictures import arrow, box, note

EDGES = ((0, 1), (0, 2), (0, 3), (3, 4))
PLACES = {0: (1.5, 2.2), 1: (0.6, 2.9), 2: (0.6, 1.5), 3: (2.4, 2.2), 4: (3.0, 2.9)}


def spread(kind: str = "truncated", alpha: float = 0.1, steps: int = 10) -> torch.Tensor:
    """Return the matrix that spreads h over the small graph, `[5, 5]`.

    Args:
        kind: the weights of the powers, one of `clients.PROPAGATIONS`; "truncated" are those of the public code.
        alpha: teleport probability.
        steps: the highest power.
    """
    pairs = torch.tensor(EDGES).T
    return clients.propagation(torch.cat([pairs, pairs.flip(0)], 1), len(PLACES), kind, alpha, steps)


@pictures.drawn_once
def method() -> Any:
    """Draw a round of GFL-APPNP for client 0 with its neighbours, and return the figure.

    The numbers at the edges are those of the matrix that spreads h, in the public code's reading.
    """
    figure, ax = pictures.sheet("GFL-APPNP: every client is a node, and neighbours learn from sums")
    row = [float(value) for value in spread()[0]]
    labels = {(0, other): f"{row[other]:.3f}" for other in (1, 2, 3)}
    pictures.graph(ax, EDGES, PLACES, {node: node for node in PLACES}, labels=labels, radius=0.2)
    note(ax, (0.1, 3.5), "one client at each node; at the edges $\\tilde A_{0j}$")
    reached = (
        f"$\\tilde A_{{00}}={row[0]:.3f}$; client 4, two edges away,\nreaches 0 with $\\tilde A_{{04}}={row[4]:.3f}$"
    )
    note(ax, (0.1, 1.05), reached)

    box(ax, (4.6, 2.9), "clients $j$:\n$h_j=\\mathrm{MLP}(x_j;\\bar W)$", (1.7, 0.7))
    arrow(ax, (5.5, 2.9), (6.8, 2.9), "1  $h_j,\\ \\nabla h_j$")
    note(ax, (5.55, 2.75), "(V1 adds noise\nto $\\nabla h_j$)", size=7.5)
    box(ax, (7.9, 2.9), "server:\n$C_0=\\sum_{j\\neq 0}\\tilde A_{0j}h_j$,  $\\nabla C_0$", (2.1, 0.8))
    arrow(ax, (7.9, 2.48), (7.9, 1.75))
    note(ax, (8.0, 2.3), "2  sums only (V2\nleaves out $\\nabla C_0$)", size=7.5)
    logits = "$\\hat y=\\mathrm{softmax}(\\tilde A_{00}h_0 + C_0)$"
    step = "$\\nabla f=(\\hat y-y)(\\tilde A_{00}\\nabla h_0+\\nabla C_0)$"
    text = f"client 0, I steps with $C_0,\\nabla C_0$ fixed\n{logits}\n{step}"
    box(ax, (7.3, 1.3), text, (3.5, 0.85), pictures.client_colour(0))
    arrow(ax, (5.5, 1.3), (4.9, 1.3), "3  $W_0$")
    box(ax, (4.15, 1.3), "server:\n$\\bar W$ = average", (1.4, 0.7))
    arrow(ax, (4.15, 1.68), (4.15, 2.5))
    note(ax, (3.75, 2.2), "4  $\\bar W$")
    note(
        ax,
        (3.5, 0.5),
        "With I = 1 this is a step of central APPNP; between exchanges $C_0$ and $\\nabla C_0$ grow old.",
    )
    return figure
