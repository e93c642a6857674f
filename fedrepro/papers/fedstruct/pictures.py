"""Draw FedStruct: a client's two streams, and what they need of other clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from fedrepro.papers.fedstruct import powers
from fedrepro.reporting import pictures
from fedrepro.reporting.pictures import arrow, box, note

EDGES = ((0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (4, 6), (6, 7))
X, Y = (0.4, 0.4, 1.1, 1.8, 2.3, 1.6, 2.3, 1.5), (3.0, 2.1, 2.55, 2.55, 1.9, 1.4, 1.0, 0.5)
PLACES = dict(enumerate(zip(X, Y)))
PARTS = ((0, 1, 2), (3, 4), (5, 6, 7))
OWNER = {node: client for client, part in enumerate(PARTS) for node in part}


def power(depth: int, prune: int = 0) -> Any:
    """Return a power of the walk's matrix on the small graph as an array `[8, 8]`, as the clients compute it together.

    Args:
        depth: the power, L_s.
        prune: p, so that every power but the first keeps its p n largest entries; 0 keeps all.
    """
    data = Data(edge_index=to_undirected(torch.tensor(EDGES).T), num_nodes=len(OWNER))
    *_, last = powers.powers(data, [torch.tensor(part) for part in PARTS], depth, prune)
    return last.matrix.toarray()


@pictures.drawn_once
def method() -> Any:
    """Draw how FedStruct with Hop2Vec classifies node 2 of client A, and return the figure.

    The row is that of node 2 in the third power, as the clients compute it.
    """
    title = "FedStruct with Hop2Vec: own features, and a node's place in the whole graph"
    figure, ax = pictures.sheet(title, height=4.2)
    pictures.graph(ax, EDGES, PLACES, OWNER)
    for client, place in enumerate(((0.1, 3.5), (2.1, 2.7), (2.6, 0.9))):
        note(ax, place, f"client {'ABC'[client]}", colour=pictures.client_colour(client))
    first = pictures.client_colour(0)

    note(ax, (3.2, 3.75), "features stay at A")
    box(ax, (4.1, 3.1), "A's features\nand A's edges", (1.6, 0.6), first)
    arrow(ax, (4.95, 3.1), (5.55, 3.1))
    box(ax, (6.25, 3.1), "$f_{\\theta_f}(2)$", (1.3, 0.6), first)

    note(ax, (3.2, 2.45), "row of node 2 in $\\hat A^3$, from the exchange before training")
    pictures.cells(ax, (3.3, 2.15), power(3)[[2]], 0.28, digits=2)
    start = np.random.default_rng(0).uniform(0.3, 1, (len(OWNER), 3, 1))
    for node, client in OWNER.items():
        colour = pictures.client_colour(client)
        note(ax, (3.44 + 0.28 * node, 1.85), str(node), colour=colour, align="center", size=7.5)
        pictures.cells(ax, (3.3 + 0.28 * node, 1.3), start[node], 0.28, colour=colour)
    note(ax, (5.75, 1.2), "$S$: a vector for every node,\nrandom at first, then trained", size=8)
    arrow(ax, (5.6, 1.75), (6.0, 1.75))
    box(ax, (6.85, 1.75), "$\\sum_u \\bar A_{2u}\\, g_{\\theta_s}(s_u)$", (1.6, 0.6))

    box(ax, (8.6, 2.5), "softmax\nof the sum", (1.1, 0.65), first)
    arrow(ax, (6.92, 3.1), (8.02, 2.65))
    arrow(ax, (7.67, 1.85), (8.02, 2.3))
    note(ax, (8.1, 3.2), "loss: A's\nlabelled nodes", size=8)
    pictures.path(ax, (8.6, 2.15), (8.6, 0.35), (5.6, 0.35))
    note(ax, (5.7, 0.72), "server adds up all clients' gradients of $\\theta_f,\\theta_s,S$", size=8)
    return figure
