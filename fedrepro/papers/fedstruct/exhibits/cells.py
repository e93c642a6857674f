"""The training runs behind FedStruct's tables and figures, each under the name of the row that shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from fedrepro.data.shapes import whole
from fedrepro.papers.fedstruct.exhibits.settings import BEYOND, DATASETS, PARTITIONS, PARTLY, PREPARE, method_of
from fedrepro.reporting.exhibits import shrunk
from fedrepro.runs.run import Run, sweep

SEEDS = 10
OPEN_SEED = 100  # of runs that choose or explain on validation nodes; no table shows it
# The stand-in of Amazon Ratings has one seed, to show that everything runs at that size.
TABLE_SEEDS = {**dict.fromkeys((*DATASETS, BEYOND), SEEDS), PARTLY: 3, "Amazon Ratings~standin": 1}
SPLIT = "10/10/80"  # percentages of training, validation and test nodes

HOP2VEC, FED_STAR, CENTRAL = "FedStruct (H2V)", "FedStruct (Fed*)", "Central GNN"
_KINDS = ("FedStruct (Deg)", FED_STAR, HOP2VEC)
_BASELINES = ("FedSGD GNN", "FedSage+", "FedPub")
T2 = (CENTRAL, *_BASELINES, "FedGCN-2hop", *_KINDS, f"{HOP2VEC}-F", "Local GNN")
T6 = (
    *(CENTRAL, "Central DGCN", "Central MLP", "FedAvg GNN", "FedSGD GNN", "FedAvg DGCN", "FedSGD DGCN"),
    *("FedAvg MLP", "FedSGD MLP", "FedSage+", "FedPub", "FedGCN-1hop", "FedGCN-2hop", *_KINDS, f"{HOP2VEC}-F"),
    *("Local GNN", "Local DGCN", "Local MLP"),
)
T7 = (CENTRAL, "Central MLP", *_KINDS, *(f"{kind}-F" for kind in _KINDS))
KNOWN = tuple(f"FedStruct ({backbone}+{kind})" for backbone in ("DGCN", "GNN") for kind in ("H2V", "GDV", "N2V"))
T8 = ("Central DGCN", *KNOWN)
BARS = (CENTRAL, HOP2VEC, "FedGCN-2hop", "FedSage+", "FedSGD GNN")
F4A = (CENTRAL, HOP2VEC, *_KINDS[:2], *_BASELINES, "Local GNN")
F4B = (*_KINDS, CENTRAL, "FedSGD GNN")
F4C = (*_KINDS, "FedSGD GNN", "FedPub", "FedGCN-2hop")
F6 = ("FedSGD GNN", *(row for row in KNOWN if "GDV" not in row), CENTRAL)

CLIENTS = (5, 10, 20)  # of Table 2
LABELLED = (5, 10, 20, 30, 40, 50)  # percent
COUNTS = (5, 10, 20, 30, 40, 50)
DEPTHS = (1, 2, 3, 5, 10, 15, 20, 30, 40, 50, 60)
DEPTH_CLIENTS = {5: DEPTHS, 10: (2, 10, 20)}  # FS-Q12: 5 in the caption and the public code, 10 in the text
WIDTH = 64  # of the GraphSAGE layers of Figure 4(b), as many as propagations (FS-F4b)


class Cell(NamedTuple):
    """A run under the published name of its row, or under the name of a reading."""

    row: str
    run: Run


def cell(
    row: str,
    dataset: str,
    partition: str,
    seeds: int | Iterable[int] = SEEDS,
    clients: int = 10,
    split: str = SPLIT,
    *,
    name: str = "",
    method: str = "",
    **more: Any,
) -> list[Cell]:
    """Return the runs of one cell of a table, or of a sweep around it.

    Args:
        row: as published, such as `FedStruct (H2V)` or `Central GNN`.
        dataset: a key of `SETTINGS`, or the name of a stand-in or an incomplete graph of one.
        partition, clients: of a federated row; a central one has neither.
        seeds: the repetitions, or their number.
        name: the name of a reading, instead of the row's.
        method: the registered method of a reading, instead of the row's.
        more: options to add or to replace; None takes one away.
    """
    usual, options = method_of(row, dataset)
    method, options = method or usual, {**options, **more}
    whole: dict[str, Any] = {"method": method, "partition": partition, "clients": clients}
    if method == "Central":
        whole |= {"partition": "single", "clients": 1}
    repetitions = range(seeds) if isinstance(seeds, int) else seeds
    graph = {"dataset": dataset, "prepare": PREPARE, "split": split, "seed": list(repetitions)}
    options = {option: value for option, value in options.items() if value is not None}
    runs = sweep(task="train", paper="fedstruct", options=options, **whole, **graph)
    return [Cell(name or row, run) for run in runs]


def labelled(percent: int) -> str:
    """Return the split with some percent of training nodes, 10% validation nodes, and the rest test nodes."""
    return f"{percent}/10/{90 - percent}"


@cache
def table(
    rows: Sequence[str], partitions: Sequence[str] = PARTITIONS, clients: Sequence[int] = (10,)
) -> tuple[Cell, ...]:
    """Return the cells of a table: every row on every graph, under every partition and number of clients.

    A central row is the same under every partition, and is returned once. An incomplete graph is not divided by
    Louvain, whose communities depend on the edges that are missing.
    """
    asked = [one for one in product(TABLE_SEEDS, partitions, clients, rows) if one[:2] != (PARTLY, "louvain")]
    cells = [each for d, p, count, row in asked for each in cell(row, d, p, TABLE_SEEDS[d], count)]
    return tuple(dict.fromkeys(cells))


def table2() -> tuple[Cell, ...]:
    """Return the cells of Table 2."""
    return table(T2, ("random",), CLIENTS)


def part(
    cells: Iterable[Cell], rows: Sequence[str], datasets: Sequence[str], clients: Sequence[int] = (10,)
) -> list[Cell]:
    """Return the cells of a table with some rows, graphs (also incomplete, or stand-ins) and numbers of clients."""
    chosen = [each for each in cells if each.row in rows and each.run.clients in (1, *clients)]
    return [each for each in chosen if whole(each.run.dataset) in datasets]


def figure1() -> list[Cell]:
    """Return the cells of Table 2 that Figure 1 draws."""
    return part(table2(), BARS, ("Chameleon", "Cora", "Amazon Ratings"))


def figure4a() -> list[Cell]:
    """Return accuracy against the share of labelled nodes: Cora, random, 10 clients."""
    return [each for x in LABELLED for row in F4A for each in cell(row, "Cora", "random", split=labelled(x))]


def figure4b() -> list[Cell]:
    """Return accuracy against the number of propagations: Cora, K-means.

    FedStruct varies L_s and keeps its L; the baselines vary the layers of GraphSAGE.
    """
    cells = []
    columns = [(clients, depth) for clients, depths in DEPTH_CLIENTS.items() for depth in depths]
    for (clients, depth), row in product(columns, F4B):
        ours = row.startswith("FedStruct")
        more: dict[str, Any] = {"structure_depth": depth} if ours else {"stack": (WIDTH,) * depth}
        if clients == 5 or row == HOP2VEC:
            cells += cell(row, "Cora", "kmeans", clients=clients, **more)
    return cells


def figure4c() -> list[Cell]:
    """Return accuracy against the number of clients: Chameleon, random."""
    return [each for k in COUNTS for row in F4C for each in cell(row, "Chameleon", "random", clients=k)]


def figure4d() -> list[Cell]:
    """Return the cells of Table 6 that Figure 4(d) draws."""
    return part(table(T6), (*BARS, "FedPub"), ("Chameleon",))


def figure6() -> list[Cell]:
    """Return 1, 10 and 50% labelled nodes of Photo: K-means, 10 clients (not stated; as in Table 8)."""
    return [each for x in (1, 10, 50) for row in F6 for each in cell(row, "Photo", "kmeans", split=labelled(x))]


def heterophily() -> list[Cell]:
    """Return the cells of Table 2 on heterophilic graphs."""
    graphs = ("Chameleon", "Amazon Ratings", BEYOND)
    return part(table2(), (*BARS, "FedPub", "FedStruct (Deg)"), graphs, CLIENTS)


def prose() -> list[Cell]:
    """Return the cells behind every number of the text."""
    rows = {CENTRAL, "Local GNN", *_BASELINES, HOP2VEC, "FedStruct (DGCN+H2V)", "FedStruct (DGCN+N2V)"}
    graphs = ("Cora", "Chameleon", "Amazon Ratings")
    sources = [*table2(), *table(T6), *table(T8), *figure4a(), *figure4b()]
    return [each for each in sources if each.row in rows and each.run.dataset in graphs]


def small(cells: Iterable[Cell]) -> list[Cell]:
    """Return the first cell of each row on a stand-in, with two rounds and as little as possible before them.

    Louvain takes longer than two rounds do, so a row that has another partition takes that one. Parts with more nodes
    than n/K are one reading of many rows, and only the first row has it here.
    """
    first: dict[str, Cell] = {}
    for row, run in sorted(cells, key=lambda one: "louvain" in one.run.partition):
        first.setdefault(run.partition if "slack" in run.partition else row, Cell(row, run))
    return [Cell(row, shrunk(run, _shorter(run.options))) for row, run in first.values()]


def _shorter(options: Any) -> dict[str, Any]:
    """Return what shortens the stages before the first round."""
    less: dict[str, Any] = {}
    if "generator_epochs" in options:
        less |= {"generator_epochs": 1, "generator_width": 16}
    if "structure" in options:
        less |= {"structure_depth": min(3, options["structure_depth"])}
    if options.get("structure") == "N2V":
        less |= {"walk_epochs": 1}
    return less
