"""Show two small instances of FedStruct whose numbers a reader can move."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrepro.papers.fedstruct.pictures import EDGES, OWNER, PLACES, power
from fedrepro.reporting import pictures


def pruning(p: int = 2, depth: int = 3) -> Any:
    """Draw a power of the walk's matrix on eight nodes, full and pruned, and return the figure.

    Args:
        p: every power but the first keeps its 8 p largest entries.
        depth: the power, L_s.
    """
    figure, ax = pictures.sheet(f"The walk of {depth} steps: all of it, and with p = {p}", 7.2, 3.6)
    full, kept = power(depth), power(depth, p)
    for x, name, matrix in ((0.5, "full", full), (4.1, f"p = {p}", kept)):
        pictures.note(ax, (x, 3.3), f"{name}: {np.count_nonzero(matrix)} entries")
        pictures.cells(ax, (x, 2.95), matrix, 0.31, digits=2)
        for node, client in OWNER.items():
            colour = pictures.client_colour(client)
            pictures.note(ax, (x - 0.2, 2.88 - 0.31 * node), str(node), colour=colour)
    missing = np.linalg.norm(full - kept) / np.linalg.norm(full)
    text = f"mean row sum {kept.sum(1).mean():.3f}; relative error of the power {missing:.3f}"
    pictures.note(ax, (0.4, 0.35), text)
    return figure


def cut(clients: int = 3, seed: int = 0) -> Any:
    """Draw the eight nodes under a random partition, and return the figure.

    Args:
        clients: K. Over all partitions a share 1/K of the edges stays within a client.
        seed: of the partition.
    """
    owner = dict(enumerate(np.random.default_rng(seed).integers(clients, size=len(PLACES)).tolist()))
    kept = sum(owner[u] == owner[v] for u, v in EDGES)
    figure, ax = pictures.sheet("A random partition: dashed edges are lost to local training", 6.4, 3.7)
    pictures.graph(ax, EDGES, PLACES, owner)
    told = f"{kept} of {len(EDGES)} edges are within a client,\na share of {kept / len(EDGES):.2f}"
    pictures.note(ax, (3.0, 2.4), f"{told}\nexpected: 1/K = {1 / clients:.2f}")
    return figure
