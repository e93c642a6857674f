"""The settings that all exhibits of FedSheafHN share, from `settings.toml`, and the runs of one cell of its tables.

The paper fixes METIS partitions, 40/30/30, two-layer GCN clients of width 128, and rounds and local epochs by data set.
`deviations.csv` lists what it leaves open. The open numbers are chosen on validation nodes, with as many trials for
every method (`POINTS`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from fedrepro import paths
from fedrepro.data.shapes import whole
from fedrepro.reporting import exhibits
from fedrepro.runs.run import Run, sweep

PAPER = "fedsheafhn"
TABLES = exhibits.settings(PAPER)
ARXIV = "ogbn-arxiv"
STANDIN = f"{ARXIV}~standin"
PARTLY = f"{ARXIV}~incomplete"  # its features are missing, which no statistic of a partition needs
QUICK = "Cora"  # the graph of the profile `quick`
DATASETS = ("Cora", "CiteSeer", "PubMed", "Computers", "Photo", ARXIV)
SEEDS = range(5)  # "five different runs"
# A stand-in is drawn with a seed above the five that real graphs have. A budget is spent on the real graphs first.
STANDIN_SEED, STANDIN_ROUNDS = 5, 5

PARTITIONS = {
    10: "metis",
    20: "metis",
    30: "overlapping-metis(parts=6)",
    50: "overlapping-metis(parts=10)",
    100: "metis",
}
SPLIT = "40/30/30"
ROUNDS, EPOCHS = TABLES["rounds"], TABLES["epochs"]


class Row(NamedTuple):
    """A method of Tables 1 and 2: how it is scored, and what is tried for it; `settings.toml` explains the fields."""

    view: str
    tried: Sequence[dict[str, Any]]
    options: dict[str, Any]
    rates: Sequence[float] = (0.01, 0.02, 0.001)  # SH-T9


METHODS = {name: Row(**{"options": {}, **row}) for name, row in TABLES["methods"].items()}
OURS = "FedSheafHN"
OTHERS = tuple(name for name in METHODS if name != OURS)
PERSONAL = ("pFedGraph", "FED-PUB", "Flow", OURS)  # the rows of SH-T3
WEIGHT_DECAYS = (0.0005, 1e-6)  # SH-Q13: of Table 9, and of FED-PUB's code, from which Local and FedAvg are
POINTS: dict[str, list[dict[str, Any]]] = {
    name: [
        {"lr": lr, **tried, "weight_decay": decay} for decay in WEIGHT_DECAYS for tried in row.tried for lr in row.rates
    ]
    for name, row in METHODS.items()
}
TUNED = ("Cora", "CiteSeer", "Photo", "PubMed")
LIKE = {"Computers": "Photo", ARXIV: "PubMed"}  # a data set -> the one whose choice it takes
TUNING_CLIENTS, TUNING_SEED = 10, 100  # a seed that no reported run uses
TUNING_ROUNDS = dict.fromkeys(TUNED, 30) | {"PubMed": 10}  # 90 to 300 local epochs
CHOSEN = exhibits.folder(PAPER) / "chosen.csv"
CURVES = ("Cora", "CiteSeer", "Computers")  # SH-F4
DRAWN = tuple(name for name in METHODS if name not in ("FedProx", "FedSage+", "FGGP"))  # eight have a colour each
EVERY_ROUND, CLIENTS = ("val", "test_clients", "clients"), ("clients",)  # lists that runs keep next to their scores
ABLATED = ("Cora", "Computers", ARXIV)  # SH-T3 to T6, F1, F5, F7: the paper has only ogbn-arxiv


# The rows of SH-T4, SH-T5, SH-M2, SH-M3 and SH-M4, each with the options that it changes.
MODULES, NETWORKS, READINGS, CHOICES, FGGP_READINGS = (
    TABLES[name] for name in ("modules", "networks", "readings", "choices", "fggp")
)
BASE_MODEL = "Base model (FedAvg)"
# SH-T1-lineage: the protocol of FED-PUB's line, for which `elsewhere.csv` has numbers that SH-T1 repeats to the digit.
# The split is 20/40/40. One local epoch, 100 rounds, Adam with the rates below, weight decay 1e-6 and dropout 0.5 are
# those of FED-PUB's public code, which drops no input (SH-DROP). Each method has the first value of the option that
# only it has. All methods are scored after local training at the round of best validation accuracy, over three runs.
# Settings and view were fixed before the first stored run. Probes on Cora were known: five cells in this view, and
# FedProx in five views (numbers of no table). The view is that of FED-PUB's public code.
LINEAGE = ("Local", "FedAvg", "FedProx", "FedPer", "FedSage+", "FED-PUB")
LINEAGE_SPLIT, LINEAGE_SEEDS = "20/40/40", range(3)
LINEAGE_RATES = {"Cora": 0.01, "CiteSeer": 0.001}
# SH-T1-literal: what the paper's text says, taken literally for every baseline: Adam (Section 4.1), and of Table 9 the
# weight decay 0.0005 and the middle rate 0.01. The other settings, and the view of each method, are those of SH-T1.
# pFedHN keeps Adam's moments between rounds, as every method does (SH-B2); its SGD in SH-T1 starts anew in each round.
LITERAL = ("Cora", "CiteSeer")
LITERAL_SEEDS = range(3)
VARIANTS = ("FedSheafHN (as printed)", "FedSheafHN (as coded)")
LOCAL_EPOCHS = (1, 3, 5, 10, 15, 20)
RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5)  # shares of new clients
MALICIOUS = (0.0, 0.2, 0.4, 0.6)
ATTACKS = ("same", "gaussian")
PANELS = dict(zip("abc", CURVES))


@cache
def chosen() -> dict[tuple[str, str], int]:
    """Return the index in `POINTS` that validation chose, by data set and method; a missing cell takes the first."""
    return {(row["dataset"], row["method"]): int(row["place"]) for row in paths.read_csv(CHOSEN)}


def settings(method: str, dataset: str, clients: int) -> dict[str, Any]:
    """Return all options of a cell of Table 1 or 2."""
    name = whole(dataset)
    options = {**TABLES["client"], "rounds": ROUNDS[name], "local_epochs": EPOCHS[name], **METHODS[method].options}
    options |= POINTS[method][chosen().get((LIKE.get(name, name), method), 0)]
    if name == ARXIV:
        options |= TABLES["arxiv_client"]
    if method == OURS and name == ARXIV:
        options |= TABLES["arxiv_sheaf"][str(clients if clients <= 50 else 20)]  # 100 clients are timed only (SH-T6)
    if method == "FED-PUB" and clients in (30, 50):
        options["scale"] = 5.0
    if method == "FedSage+" and name != ARXIV:
        options["row_sum"] = True  # Generated features are prepared like the real ones (SH-B1).
    return options


def setup(dataset: str, clients: int) -> dict[str, Any]:
    """Return the fields of a run that name its graph, its split and its clients."""
    prepare = "undirected+largest-component" if whole(dataset) == ARXIV else "largest-component+row-sum"
    partition = PARTITIONS[clients]
    return {"dataset": dataset, "prepare": prepare, "split": SPLIT, "partition": partition, "clients": clients}


def cell(
    method: str,
    dataset: str,
    clients: int,
    seeds: Iterable[int] = SEEDS,
    *,
    task: str = "train",
    name: str = "",
    tuned: dict[str, Any] | None = None,
    **more: Any,
) -> list[Run]:
    """Return the runs of one cell of Table 1 or 2, or of a sweep around it.

    Args:
        method: a key of `METHODS`.
        dataset: the graph.
        clients: a key of `PARTITIONS`.
        seeds: one run a seed.
        task, name: another task with the same settings, and its registered name.
        tuned: a point of `POINTS` in place of the chosen one.
        more: options to add or to replace; `None` removes one.
    """
    options = {**settings(method, dataset, clients), **(tuned or {})}
    if task == "train" and not more.keys() - {"rounds"} and not tuned:
        options["series"] = _series(method, whole(dataset), clients)
    options = {key: value for key, value in {**options, **more}.items() if value is not None}
    return sweep(
        task=task, paper=PAPER, method=name or method, seed=list(seeds), options=options, **setup(dataset, clients)
    )


def lineage(method: str, dataset: str, clients: int) -> list[Run]:
    """Return the runs of one cell under the protocol of FED-PUB's line, see `LINEAGE`."""
    point = {**METHODS[method].tried[0], "lr": LINEAGE_RATES[dataset], "weight_decay": WEIGHT_DECAYS[1]}
    runs = cell(method, dataset, clients, LINEAGE_SEEDS, tuned=point, rounds=100, local_epochs=1)
    return [run.replace(split=LINEAGE_SPLIT) for run in runs]


def literal(method: str, dataset: str, clients: int) -> list[Run]:
    """Return the runs of one cell of Table 1 or 2 with the paper's text taken literally, see `LITERAL`."""
    point = {**METHODS[method].tried[0], "lr": 0.01, "weight_decay": WEIGHT_DECAYS[0]}
    plain: dict[str, Any] = {"optimizer": None, "momentum": None}  # None: the default, which is Adam
    if method == "pFedHN":  # Its own default is to restart the clients' optimizer.
        plain["optimizer_state"] = "kept"
    runs = cell(method, dataset, clients, LITERAL_SEEDS, tuned=point, **plain)
    usual = cell(method, dataset, clients, LITERAL_SEEDS)
    # A cell whose choice on validation is this very point is already a cell of Table 1 or 2.
    return usual if runs[0].options == {k: v for k, v in usual[0].options.items() if k != "series"} else runs


def _series(method: str, dataset: str, clients: int) -> tuple[str, ...] | None:
    """Return what a run keeps with its scores: rounds for Figure 4, clients for Table 3 and Figure 1."""
    if clients == 20 and dataset in CURVES:
        return EVERY_ROUND
    return CLIENTS if clients in (20, 30) and dataset in ABLATED and method in PERSONAL else None
