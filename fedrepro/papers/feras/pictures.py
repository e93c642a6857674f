"""Draw Feras: what a host sees and samples, and the mean that the aggregation server makes of embeddings."""

from __future__ import annotations

from typing import Any

import torch

from fedrepro.papers.feras.method import Rows
from fedrepro.reporting import pictures
from fedrepro.reporting.pictures import arrow, box, note

NAMES = dict(enumerate("ABC"))
OWNER = {0: -1, 1: 2, 2: 1}  # A is public, B belongs to host 3, C to host 2
COMPUTED = ({0: 1.0, 1: 7.0, 2: 9.0}, {0: 3.0}, {1: 20.0, 2: 9.0})  # by hosts 1, 2 and 3 for what they sampled


def figure_one() -> tuple[Rows, torch.Tensor]:
    """Return the rows of the paper's Figure 1, and the embeddings that hosts computed, `[rows, 1]`."""
    drawn = [(host, node, value) for host, values in enumerate(COMPUTED) for node, value in values.items()]
    host, node = torch.tensor([row[:2] for row in drawn]).T
    seen = torch.tensor([OWNER[node] in (-1, host) for host, node, _ in drawn])
    rows = Rows(node, node, host, seen, torch.bincount(node[seen], minlength=len(OWNER)))
    return rows, torch.tensor([[value] for *_, value in drawn])


@pictures.drawn_once
def method() -> Any:
    """Draw one iteration of Feras at three hosts, and return the figure.

    The means that hosts continue with are made by the method.
    """
    figure, ax = pictures.sheet("Feras: hosts share embeddings of nodes where they may not share features", height=4.2)
    rows, computed = figure_one()
    used = rows.mean(computed)
    note(ax, (0.1, 3.75), "filled: the host sees its features;\nhollow: features are zero there; ring: sampled")
    note(ax, (3.0, 3.75), "first layers:\n$\\hat x^n=\\bar A^n x^n w_1$")
    note(ax, (7.0, 3.75), "continues with the mean $\\tilde x^n$")
    box(ax, (5.68, 1.85), "aggregation\nserver: mean over\nhosts that see\nand sampled it", (1.3, 1.2))
    for host, values in enumerate(COMPUTED):
        y, colour, door = 2.85 - host, pictures.client_colour(host), 2.2 - 0.35 * host
        places = {node: (1.0 + 0.55 * node, y) for node in OWNER}
        unseen = [node for node in OWNER if OWNER[node] not in (-1, host)]
        pictures.graph(ax, ((0, 1), (1, 2)), places, OWNER, names=NAMES, hollow=unseen, ringed=list(values))
        note(ax, (0.1, y + 0.1), f"host {host + 1}", colour=colour)
        arrow(ax, (2.4, y), (2.85, y))
        host_rows = (rows.host == host).nonzero().squeeze(1).tolist()
        name = {row: NAMES[int(rows.node[row])] for row in host_rows}
        for x, shown in ((3.6, computed), (7.7, used)):
            box(ax, (x, y), "   ".join(f"{name[row]}: {float(shown[row]):g}" for row in host_rows), (1.4, 0.5), colour)
        sent = ", ".join(f"{name[row]}={float(computed[row]):g}" for row in host_rows if rows.seen[row])
        arrow(ax, (4.35, y), (5.0, door), sent, colour=colour, above=0.2)
        arrow(ax, (6.35, door), (6.95, y), colour=colour)
        arrow(ax, (8.45, y), (8.75, y))
        note(ax, (8.8, y + 0.18), "layers,\nloss", size=7.5)
    note(
        ax, (0.1, 0.35), "A is public, B is host 3's, C is host 2's. Nobody who sees C sampled it, so its row is zero."
    )
    note(ax, (6.2, 0.35), "Every q epochs the weights are averaged.")
    return figure
