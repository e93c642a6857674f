"""Draw the engine: the clients' graphs as one block-diagonal batch, and their weights as one stack."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from fedrepro.engine.federation import Federation
from fedrepro.reporting import pictures
from fedrepro.reporting.pictures import arrow, box, note

EDGES = ((0, 1), (1, 2), (2, 3), (0, 3), (4, 5), (3, 4))
PARTS = ((0, 1, 2, 3), (4, 5))


def propagation() -> Any:
    """Return the engine's propagation matrix of six nodes at two clients as an array, `[6, 6]`."""
    pairs = to_undirected(torch.tensor(EDGES).T)
    data = Data(x=torch.eye(6), y=torch.zeros(6, dtype=torch.long), edge_index=pairs, num_classes=2)
    for name in ("train_mask", "val_mask", "test_mask"):
        data[name] = torch.ones(6, dtype=torch.bool)
    fed = Federation.of(data, [torch.tensor(part) for part in PARTS], dtype=torch.float64)
    return fed.operator("gcn").dense().numpy()


@pictures.drawn_once
def method() -> Any:
    """Draw a round of FedAvg in one program, on six nodes of two clients, and return the figure."""
    figure, ax = pictures.sheet("One program trains all clients", height=3.7)
    places = {0: (0.4, 2.3), 1: (1.2, 2.3), 2: (1.2, 1.5), 3: (0.4, 1.5), 4: (0.4, 0.6), 5: (1.2, 0.6)}
    pictures.graph(ax, EDGES, places, {node: client for client, part in enumerate(PARTS) for node in part})
    note(ax, (0.1, 3.2), "1  the graph of two clients\n(dashed: cross-client edge)")
    arrow(ax, (1.5, 1.6), (2.2, 1.6))

    matrix, side = propagation(), 0.31
    whole = matrix.copy()
    whole[4:] = 0
    pictures.cells(ax, (2.3, 2.55), whole, side, colour=pictures.client_colour(0), digits=2)
    below = (2.3 + 4 * side, 2.55 - 4 * side)
    pictures.cells(ax, below, matrix[4:, 4:], side, colour=pictures.client_colour(1), digits=2)
    note(ax, (2.2, 3.2), "2  one block-diagonal batch\n(the cross-client edge is dropped)")
    arrow(ax, (4.2, 1.6), (4.65, 1.6))

    for client, name in enumerate("AB"):
        place = (5.3 + 0.12 * client, 1.75 - 0.75 * client)
        box(ax, place, rf"$\Theta[{client}] = \theta_{name}$", (1.2, 0.5), pictures.client_colour(client))
    note(ax, (4.6, 3.2), "3  one stack of weights\n[clients, in, out]")
    arrow(ax, (6.05, 1.6), (6.42, 1.6))
    box(ax, (7.15, 1.4), "loss[A] + loss[B]\none backward pass", (1.45, 0.8))
    note(ax, (6.45, 3.2), "4  every client takes\na local step")
    arrow(ax, (7.88, 1.4), (8.15, 1.4))
    box(ax, (8.7, 1.4), "server:\n$\\sum_k p_k\\,\\theta_k$", (1.1, 0.8))
    note(ax, (8.1, 3.2), "5  average")
    pictures.path(ax, (8.7, 1.0), (8.7, 0.3), (5.4, 0.3), (5.4, 0.72))
    note(ax, (5.6, 0.55), "broadcast: the average to every slice")
    return figure
