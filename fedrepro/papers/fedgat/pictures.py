"""Draw FedGAT: the exchange before training, and what a client makes of a message in every step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedrepro.papers.fedgat import protocol
from fedrepro.reporting import pictures
from fedrepro.reporting.pictures import arrow, box, note

EDGES = ((0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5))
PLACES = {0: (0.4, 2.2), 1: (0.4, 1.2), 2: (1.1, 1.7), 3: (1.9, 1.7), 4: (2.6, 2.2), 5: (2.6, 1.2)}
OWNER = {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1}
NODE, NEAR, FEATURES = 2, [0, 1, 2, 3], 4


def normal(*shape: int, seed: int) -> Tensor:
    """Return normal numbers of a shape, in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def combined() -> tuple[protocol.MatrixMessage, Tensor]:
    """Return the message about node 2 of the small graph, and the D `[8, 8]` that a client makes of it (Eq. 14)."""
    features = normal(6, FEATURES, seed=0)
    (sent,) = protocol.matrix_messages(NODE, features[NODE], features[NEAR])
    b1, b2 = normal(2, 1, FEATURES, seed=1)
    return sent, protocol.combination([sent], b1, b2)[0][0]


@pictures.drawn_once
def method() -> Any:
    """Draw FedGAT on six nodes of two clients, and return the figure; the message is made, and its size counted."""
    figure, ax = pictures.sheet("FedGAT: one exchange before training, then federated averaging", height=4.1)
    sent, d = combined()
    pictures.graph(ax, EDGES, PLACES, OWNER)
    note(ax, (0.1, 0.85), "client A", colour=pictures.client_colour(0))
    note(ax, (2.2, 0.85), "client B", colour=pictures.client_colour(1))
    note(ax, (0.1, 3.6), "Node 2 attends to node 3, which client B holds.\nA must not see its features.")

    box(ax, (4.6, 2.7), "server\nprojections $U_j$ of all nodes", (2.1, 0.6))
    arrow(ax, (2.0, 2.7), (3.5, 2.7), "1  features, once")
    box(ax, (4.6, 1.3), "client A", (1.2, 0.5), pictures.client_colour(0))
    arrow(ax, (4.6, 2.4), (4.6, 1.57))
    pack = f"2  pack of node 2: $M_1, M_2, K_1, K_2$,\n{sent.scalars} numbers for {FEATURES} features each"
    note(ax, (4.7, 2.25), f"{pack}\nof {len(NEAR)} neighbours, itself among them", size=8)

    note(ax, (7.0, 3.72), "3  in each step, from the weights $b_1, b_2$:", size=8)
    pictures.cells(ax, (7.35, 3.4), d.numpy(), 0.15)
    note(ax, (8.6, 3.1), "$D=\\sum_j x_{2j}\\,U_j$", size=8)
    pictures.path(ax, (5.2, 1.3), (6.9, 1.3), (6.9, 2.75), (7.3, 2.75))
    note(ax, (7.0, 2.0), "powers: $K_1^\\top D^n K_1 = \\sum_j x_{2j}^n = F^{(n)}$", size=8)
    note(ax, (7.0, 1.65), "series: $p(x)=\\sum_n q_n x^n \\approx e^{\\psi(x)}$", size=8)
    note(ax, (7.0, 1.3), "layer 1: $W\\sum_n q_nE^{(n)} \\,/\\, \\sum_n q_nF^{(n)}$", size=8)
    box(ax, (4.6, 0.4), "server: average of the weights", (2.3, 0.45))
    arrow(ax, (4.45, 1.05), (4.45, 0.63))
    arrow(ax, (4.75, 0.63), (4.75, 1.05))
    note(ax, (5.0, 0.98), "4  every round: weights only")
    return figure
