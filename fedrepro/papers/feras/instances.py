"""Show two small instances of Feras whose numbers a reader can move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data

from fedrepro.data import partition
from fedrepro.reporting import figures, pictures

NODES = 30


def visible(kappa: float = 0.4, hosts: int = 3, seed: int = 0) -> Any:
    """Draw which of 30 nodes each host sees, and return the figure.

    Args:
        kappa: the share of nodes that a host cannot see.
        hosts: N. A share kappa N / (N - 1) of the nodes is private.
    """
    data = Data(y=torch.zeros(NODES), edge_index=torch.zeros(2, 0, dtype=torch.long))
    seen = np.zeros((hosts, NODES))
    for host, nodes in enumerate(partition.private_public(data, hosts, seed, kappa)):
        seen[host, nodes] = 1
    public = int((seen.sum(0) == hosts).sum())
    order = np.lexsort([*seen, -seen.sum(0)])
    figure, ax = pictures.sheet(f"Each host lacks {kappa:.0%} of the features", 8.4, 1.2 + 0.35 * hosts)
    for host, row in enumerate(seen[:, order]):
        y, colour = 0.6 + 0.35 * (hosts - host), pictures.client_colour(host)
        pictures.note(ax, (0.1, y - 0.02), f"host {host + 1}", colour=colour)
        pictures.cells(ax, (0.8, y), row, 0.24, colour=colour)
    text = f"{public} public nodes, {NODES - public} private ones: a share of {1 - public / NODES:.2f}"
    pictures.note(ax, (0.8, 0.5), f"{text}; each host sees {int(seen[0].sum())}")
    return figure


def averaging(q: int = 10, rate: float = 0.2, steps: int = 60) -> Any:
    """Draw two hosts that descend different parabolas and average every q steps, and return the figure.

    The losses are (w - 1)^2 / 2 and 2 (w + 1)^2, and their sum is least at w = -3/5.

    Args:
        q: steps between two averages.
        rate: the learning rate.
    """
    bend, least = np.array([1.0, 4.0]), np.array([1.0, -1.0])
    best = float(bend @ least / bend.sum())
    w, rows = np.array([2.0, 2.0]), []
    for step in range(steps + 1):
        rows += [{"step": step, "w": value, "line": f"host {host + 1}"} for host, value in enumerate(w)]
        rows.append({"step": step, "w": w.mean(), "line": "average"})
        w = w - rate * bend * (w - least)
        if (step + 1) % q == 0:
            w = np.full(2, w.mean())
    title = f"q = {q}: the average ends {abs(rows[-1]['w'] - best):.3f} from the least sum of the losses"
    figure = figures.curves(pd.DataFrame(rows), "step", "w", "line", band="none", title=title)
    figures.finish(figure, counts=False)
    figure.axes[0].axhline(best, color=pictures.FAINT, ls="--", lw=1)
    return figure
