"""Draw the protocol under which all methods are compared: what is the same for all, and what is measured."""

from __future__ import annotations

from typing import Any

from fedrepro.across import protocol
from fedrepro.reporting import pictures
from fedrepro.reporting.pictures import arrow, box, note

EDGES = ((0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5))
PLACES = {0: (0.4, 2.4), 1: (0.4, 1.6), 2: (1.0, 2.0), 3: (1.6, 2.0), 4: (2.2, 2.4), 5: (2.2, 1.6)}
OWNER = {node: int(node > 2) for node in PLACES}


def comparison() -> Any:
    """Draw how each method is tuned, trained and measured, and return the figure. Its numbers are the protocol's."""
    figure, ax = pictures.sheet("One protocol: only the method differs from row to row", height=3.5)
    pictures.graph(ax, EDGES, PLACES, OWNER)
    training, validation, test = protocol.MAIN.split("/")
    note(ax, (0.1, 3.2), f"the same graphs,\n{protocol.CLIENTS} clients and splits")
    note(
        ax,
        (0.1, 1.25),
        f"{training}% training, {validation}% validation,\n{test}% test nodes; METIS, random\nor Dirichlet parts",
    )
    arrow(ax, (2.5, 2.0), (2.9, 2.0))

    points, options = len(protocol.RATES), 2
    box(
        ax,
        (3.75, 2.0),
        f"tuning:\n{points} rates $\\times$ {options} options,\nvalidation nodes,\nseed {protocol.TUNING_SEED}",
        (1.6, 1.1),
    )
    note(ax, (2.95, 3.2), "the same budget\nfor every method")
    arrow(ax, (4.6, 2.0), (5.0, 2.0))

    rounds, epochs, hidden = (protocol.CLIENT[name] for name in ("rounds", "local_epochs", "hidden"))
    box(ax, (5.85, 2.0), f"training:\n{rounds} rounds,\n{epochs} local epochs,\n{hidden} hidden units", (1.6, 1.1))
    note(ax, (2.95, 1.25), "the best of the points is\ntaken, of equals the first")
    note(ax, (5.05, 1.25), "scored at the round of\nbest validation accuracy")
    seeds = sorted(set(protocol.SEEDS.values()))
    note(ax, (5.05, 3.2), f"{seeds[0]} or {seeds[-1]} seeds,\npaired over methods")

    told = (
        ("test accuracy, F1, clients", "One protocol"),
        ("bytes, seconds, memory", "What it costs"),
        ("features, edges, labels\nthat an attacker rebuilds", "What it reveals"),
    )
    for place, (what, notebook) in enumerate(told):
        y = 2.9 - 0.9 * place
        box(ax, (8.15, y), what, (2.2, 0.5), pictures.client_colour(place + 2))
        note(ax, (8.15, y - 0.28), notebook, align="center", size=7.5)
        arrow(ax, (6.7, 2.0), (7.0, y))
    return figure
