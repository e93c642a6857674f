"""The grid behind each of FedStruct's exhibits.

Training runs are the cells of `cells` and `readings`. Checks, counts and attacks are listed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from fedrepro.papers.fedstruct.exhibits import cells, readings
from fedrepro.papers.fedstruct.exhibits.cells import CENTRAL, HOP2VEC, Cell
from fedrepro.papers.fedstruct.exhibits.settings import BEYOND, DATASETS, PREPARE, SETTINGS, method_of
from fedrepro.reporting.exhibits import Grid, keeps
from fedrepro.runs.run import Run, sweep

STANDIN = "Cora~standin"
REAL = ("Chameleon", "Cora", "CiteSeer", "Squirrel", "Photo", "PubMed")  # small graphs first
ATTACKED = ["Cora", "Chameleon"]

check = partial(sweep, task="check", paper="fedstruct")
on_graph = partial(sweep, paper="fedstruct", prepare=PREPARE, split=cells.SPLIT, clients=10, partition="random")
seeded = range(5)  # the seeds of checks that need no graph


# --- checks: small seeded graphs, or powers of a real one --------------------------------------------------------


def algorithm(structure: str, known: str = "unknown") -> Grid:
    """Return the check of a box as a plain loop over clients (FS-A1, FS-A2, FS-A4)."""
    options = {"structure": structure, "graph": known, "rounds": 3}
    return Grid(partial(check, method="fedstruct-algorithm", seed=seeded, options=options))


def powers(depths: Sequence[int], prune: Any, **more: Any) -> list[Run]:
    """Return Algorithm 3 line by line against the form used in training, and its error against p (FS-A3, FS-I2)."""
    options = {"structure_depth": list(depths), "prune": prune, **more}
    return on_graph(task="check", method="fedstruct-powers", dataset=ATTACKED, options=options)


def combined() -> list[Run]:
    """Return the combined adjacency of Cora in cells, full and with p = 30, ordered by Louvain parts (FS-F3).

    Order, normalization and L_s are not stated; L_s = 10 as in Table 5.
    """
    options = {"structure_depth": SETTINGS["Cora"].structure_depth, "prune": 30, "cells": 48, "ranks": True}
    return on_graph(task="check", method="fedstruct-combined", dataset="Cora", partition="louvain", options=options)


def generators() -> list[Run]:
    """Return seconds and needs of the generators of structure features (FS-T3, FS-P4)."""
    method, options = "fedstruct-structures", {"epochs": 1, "timed": True}
    return on_graph(task="check", method=method, dataset=list(readings.READ_ON), options=options)


def routes(counts: Sequence[int] = (10, 100, 1000, 2708), dataset: str = "Cora") -> list[Run]:
    """Return what FedGCN's server sees of the edges, from ten clients to one for each of Cora's nodes (FS-I4)."""
    one_each = "random(equal=True)"
    return on_graph(task="check", method="fedstruct-fedgcn", dataset=dataset, partition=one_each, clients=list(counts))


# --- messages: one width and depth on all graphs, so that only their sizes differ --------------------------------

SENDER: dict[str, Any] = {"model": "DGCN", "stack": (64,), "depth": 2, "structure_depth": 5, "rounds": 40}


def messages(**more: Any) -> list[Run]:
    """Return counts of scalars before and in training on graphs of growing size, for both rows of Tables 1 and 9."""
    options = {**SENDER, "structure": ["Deg", "H2V"], **more}
    return on_graph(task="traffic", method="FedStruct", dataset=list(REAL), options=options)


# --- graphs and partitions ---------------------------------------------------------------------------------------


def statistics() -> list[Run]:
    """Return counts as the files have them and after preparation (FS-T4, FS-T5)."""
    return check(method="graph statistics", dataset=[*DATASETS, BEYOND], prepare=["", PREPARE])


def manifests(partition: str) -> list[Run]:
    """Return sizes, cut edges and label histograms of a partition (FS-P1 to FS-P3)."""
    counts = cells.CLIENTS if partition == "random" else [10]
    manifest = partial(on_graph, task="partition", method="manifest", split="", seed=range(3))
    graphs = [*DATASETS, BEYOND]
    return [run for k in counts for run in manifest(dataset=graphs, partition=partition, clients=k)]


# --- privacy -----------------------------------------------------------------------------------------------------


def edges() -> list[Run]:
    """Return attacks that rank the edges of others, from each view of a client (FS-Q18-edges).

    A view holds the rows of the client, all powers it has seen on the way, or the blocks of the second power.
    """
    attack = partial(on_graph, task="attack", method="fedstruct-edges", seed=range(3), dataset=ATTACKED)
    shared = {"prune": [5, 30, 100, 0], "budget": "blocks", "attackers": 2}
    depths = {"combined": [2, 3, 5, 10], "powers": [2, 3, 5, 10], "blocks": [2]}
    views = [{**shared, "view": view, "structure_depth": seen} for view, seen in depths.items()]
    return [run for options in views for run in attack(options=options)]


def labels() -> list[Run]:
    """Return attacks that read labels of others from S, which every client holds, after some rounds (FS-Q18-labels)."""
    attack = partial(on_graph, task="attack", method="fedstruct-labels", seed=range(3))
    varied = {"rounds": [1, 5, 10, 20, 40], "head": ["mlp", "direct"]}
    usual = {dataset: method_of(HOP2VEC, dataset)[1] for dataset in ATTACKED}
    return [run for dataset in ATTACKED for run in attack(dataset=dataset, options=usual[dataset] | varied)]


def colluding() -> list[Run]:
    """Return G.1's condition where all clients but one collude, with the powers of each graph (FS-I5-graphs)."""
    checked = partial(on_graph, task="check", method="fedstruct-colluding", seed=range(3))
    budget = {"prune": 30, "budget": "matrix"}
    depths = {dataset: SETTINGS[dataset].structure_depth for dataset in ATTACKED}
    return [run for d in ATTACKED for run in checked(dataset=d, options={**budget, "structure_depth": depths[d]})]


# --- the exhibits ------------------------------------------------------------------------------------------------


class Trained(NamedTuple):
    """The cells of an exhibit of training runs, and which of them the profile `quick` has."""

    cells: Callable[[], Iterable[Cell]]
    quick: Callable[[Cell], bool]


def on(*datasets: str, **values: Any) -> Callable[[Cell], bool]:
    """Return the rule that keeps the cells of the first seed on some graphs, with some values as `keeps` takes them."""
    return lambda cell: keeps(dataset=datasets, **values)(cell.run)


def _quick4a(cell: Cell) -> bool:
    ends = (cells.labelled(5), cells.labelled(50))
    return cell.run.seed == 0 and cell.run.split in ends and cell.row in (CENTRAL, HOP2VEC, "FedSGD GNN")


def _quick4b(cell: Cell) -> bool:
    run = cell.run
    depth = run.options.get("structure_depth") or len(run.options["stack"])
    return run.seed == 0 and run.clients in (1, 5) and depth in (2, 20)


def _quick4c(cell: Cell) -> bool:
    return cell.run.seed == 0 and cell.run.clients in (5, 50) and cell.row in (HOP2VEC, "FedSGD GNN")


def _quick_prose(cell: Cell) -> bool:
    return any(cell.run in _quick_runs(name) for name in ("FS-T2", "FS-T6", "FS-T8", "FS-F4a", "FS-F4b"))


def _quick_known(cell: Cell) -> bool:
    return on("Cora")(cell) and cell.row.partition(", ")[2] in {
        name for one in readings.COMBINED.values() for name in one
    }


TRAINED = {
    "FS-T2": Trained(cells.table2, on("Cora")),
    "FS-T6": Trained(partial(cells.table, cells.T6), on("Cora")),
    "FS-T7": Trained(partial(cells.table, cells.T7), on("Cora", "Chameleon")),
    "FS-T8": Trained(partial(cells.table, cells.T8), on("Cora")),
    "FS-F1": Trained(cells.figure1, on("Cora")),
    "FS-F4a": Trained(cells.figure4a, _quick4a),
    "FS-F4b": Trained(cells.figure4b, _quick4b),
    "FS-F4c": Trained(cells.figure4c, _quick4c),
    "FS-F4d": Trained(cells.figure4d, on()),
    "FS-F6": Trained(cells.figure6, on()),
    "FS-X1": Trained(cells.prose, _quick_prose),
    "FS-X2": Trained(cells.heterophily, on()),
    "FS-T2-readings": Trained(readings.readings, lambda cell: on("Cora")(cell) and cell.row != readings.CODE_NAME),
    "FS-M1": Trained(readings.open_choices, on()),
    "FS-T6-readings": Trained(readings.further, on("Cora", partition=["random"])),
    "FS-T8-readings": Trained(readings.known, _quick_known),
    "FS-Q5": Trained(readings.mended, lambda cell: on("Cora")(cell) and cell.row != "FedSage+ (2048)"),
    "FS-F4b-training": Trained(readings.deep, on()),
}
UNSEEDED = ("FS-M1", "FS-F4b-training")  # they have the seed they need, `cells.OPEN_SEED`


@cache
def rows_of(exhibit_id: str) -> tuple[tuple[str, str], ...]:
    """Return (row, key) of every cell of an exhibit of training runs, of the paper's grid and of the smoke profile."""
    asked = list(TRAINED[exhibit_id].cells())
    short = cells.small(asked)
    short += [Cell(row, run.replace(seed=seed)) for seed in range(1, cells.SEEDS) for row, run in short]
    return tuple((row, run.key) for row, run in dict.fromkeys([*asked, *short]))


def _trained(name: str, trained: Trained) -> Grid:
    def runs() -> list[Run]:
        return [run for _, run in trained.cells()]

    def quick(run: Run) -> bool:
        return run in _quick_runs(name)

    def smoke() -> list[Run]:
        return [run for _, run in cells.small(trained.cells())]

    return Grid(runs, quick, smoke=smoke, seeded=name not in UNSEEDED)


@cache
def _quick_runs(name: str) -> frozenset[Run]:
    return frozenset(cell.run for cell in TRAINED[name].cells() if TRAINED[name].quick(cell))


_counting: dict[str, Any] = {
    "observers": [4, 8, 12, 16, 24],
    "unknowns": 12,
    "head": ["direct", "mlp"],
    "queries": [1, 4],
}
_gradients = Grid(partial(check, method="fedstruct-gradients", seed=seeded))
_messages = Grid(
    partial(messages, prune=30, budget=["matrix", "blocks"]),
    keeps(dataset=REAL[:3]),
    per=("dataset", "structure", "budget"),
    smoke={"structure_depth": 2},
)
_known = Grid(partial(messages, prune=0, graph="known"), keeps(dataset=REAL[:3]), per=("dataset", "structure"))
_combined = Grid(combined, smoke={"structure_depth": 3, "ranks": False})
_generators = Grid(generators, keeps(dataset=["Cora"]), smoke={"timed": False})
_statistics = Grid(statistics, keeps(dataset=["Cora", "CiteSeer", "Chameleon"]), per=("prepare",))

GRIDS = {
    **{name: _trained(name, trained) for name, trained in TRAINED.items()},
    "FS-A1": algorithm("Deg"),
    "FS-A2": algorithm("H2V"),
    "FS-A4": algorithm("Deg", "known"),
    "FS-A3": Grid(
        partial(powers, (2, 5, 10), [5, 10, 30, 100, 300], budget=["blocks", "matrix"]),
        keeps(dataset=["Cora"], structure_depth=[10], prune=[5, 30]),
        per=("budget",),
        smoke={"structure_depth": 2},
    ),
    "FS-I2": Grid(partial(powers, (3, 5, 10), 0), keeps(dataset=["Cora"], structure_depth=[3])),
    "FS-A5": Grid(
        partial(check, method="fedstruct-aggregates", seed=seeded, options={"structure": ["Deg", "H2V"]}),
        per=("structure",),
    ),
    **dict.fromkeys(("FS-Th1", "FS-Th2", "FS-Th3", "FS-Th4", "FS-L1"), _gradients),
    "FS-I1": Grid(partial(check, method="fedstruct-filter", seed=seeded)),
    "FS-I3": Grid(partial(check, method="fedstruct-example")),
    "FS-I4": Grid(routes, keeps(clients=[10, 2708]), smoke=partial(routes, (10, 2708), STANDIN)),
    "FS-I5": Grid(
        partial(check, method="fedstruct-counting", seed=seeded, options=_counting),
        per=("observers", "head", "queries"),
    ),
    "FS-I5-graphs": Grid(colluding, keeps(dataset=["Cora"]), smoke={"structure_depth": 2}),
    **dict.fromkeys(("FS-T1", "FS-F2"), _messages),
    **dict.fromkeys(("FS-T9", "FS-F5"), _known),
    **dict.fromkeys(("FS-F3a", "FS-F3b"), _combined),
    **dict.fromkeys(("FS-T3", "FS-P4"), _generators),
    **dict.fromkeys(("FS-T4", "FS-T5"), _statistics),
    **{
        f"FS-P{number}": Grid(partial(manifests, name), keeps(dataset=["Cora"], clients=[10]))
        for number, name in enumerate(("random", "louvain", "kmeans"), start=1)
    },
    "FS-Q18-edges": Grid(
        edges,
        keeps(dataset=["Cora"], structure_depth=[2, 10], prune=[0, 30]),
        per=("view",),
        smoke={"structure_depth": 2, "attackers": 1},
    ),
    "FS-Q18-labels": Grid(labels, keeps(dataset=["Cora"], rounds=[40]), per=("head",), smoke={"rounds": 2}),
}
