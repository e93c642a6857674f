"""FedStruct: the runs behind its tables and figures. Settings: `fedstruct_settings`; claims: `fedstruct_claims`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fedrepro.papers.fedstruct.exhibits import theory as fedstruct_theory
from fedrepro.papers.fedstruct.exhibits.settings import BEYOND, DATASETS, PARTITIONS, PREPARE, method_of, shortened
from fedrepro.reporting import compare, published
from fedrepro.reporting.legacy import Exhibit
from fedrepro.runs.run import Run, sweep

if TYPE_CHECKING:
    import pandas as pd

STANDIN = "Cora~standin"
SEEDS = 10
OPEN_SEED = 100  # of what is chosen or told apart on validation nodes; no table shows it
# FS-Q10: the last round, "after convergence"; validation chooses nothing. FedPub is read after local training.
VIEW, VIEW_OF = "before.last.test", {"FedPub": "after.last.test"}


class Cell(NamedTuple):
    """One run in the place it has in a table: the published name of its row."""

    row: str
    run: Run


def cell(
    row: str, dataset: str, partition: str, seeds: Iterable[int], clients: int = 10, split: str = "10/10/80",
    shortened_to: int | None = None, **more: Any,
) -> list[Cell]:  # fmt: skip
    """The runs of one cell, or of a sweep around it.

    Args:
        row: as published, such as `FedStruct (H2V)` or `Central GNN`.
        dataset: of `SETTINGS`, or its stand-in.
        partition, clients: of a federated row.
        shortened_to: rounds, fewer than the row's epochs, with a shortened pre-training.
        more: options to change or add.
    """
    method, options = method_of(row, dataset)
    if shortened_to is not None:
        options = shortened(options, shortened_to)
    if method == "Central":
        partition, clients = "single", 1
    runs = sweep(
        task="train", paper="fedstruct", method=method, dataset=dataset, prepare=PREPARE, split=split,
        partition=partition, clients=clients, seed=list(seeds), options={**options, **more},
    )  # fmt: skip
    return [Cell(row, run) for run in runs]


def distinct(cells: Iterable[Cell]) -> list[Cell]:
    """The cells without repetitions, in order: a central row is the same under every partition."""
    return list(dict.fromkeys(cells))


def only_runs(cells: Callable[[str], list[Cell]]) -> Callable[[str], list[Run]]:
    """The grid of an exhibit from its cells."""
    return lambda profile: list(dict.fromkeys(run for _, run in cells(profile)))


# -- which graphs and seeds a profile has ----------------------------------------------------------------------------


def seeds_of(profile: str, quick: dict[str, int]) -> dict[str, range]:
    """Seeds by data set. `quick` gives those of the quick profile; the paper has ten runs.

    Amazon Ratings is asked for by its own name, and left out where it cannot be had; one seed of its stand-in says
    whether everything runs at that size.
    """
    if profile == "smoke":
        return {STANDIN: range(1)}
    if profile == "quick":
        return {dataset: range(count) for dataset, count in quick.items()}
    graphs = {dataset: range(SEEDS) for dataset in (*DATASETS, BEYOND)}
    return graphs | {"Amazon Ratings~standin": range(1)}


def fewer(profile: str) -> int | None:
    """Rounds of the smoke profile; None where a row's own epochs are run."""
    return 2 if profile == "smoke" else None


# -- the tables ------------------------------------------------------------------------------------------------------

T2 = ("Central GNN", "FedSGD GNN", "FedSage+", "FedPub", "FedGCN-2hop", "FedStruct (Deg)", "FedStruct (Fed*)",
      "FedStruct (H2V)", "FedStruct (H2V)-F", "Local GNN")  # fmt: skip
T6 = ("Central GNN", "Central DGCN", "Central MLP", "FedAvg GNN", "FedSGD GNN", "FedAvg DGCN", "FedSGD DGCN",
      "FedAvg MLP", "FedSGD MLP", "FedSage+", "FedPub", "FedGCN-1hop", "FedGCN-2hop", "FedStruct (Deg)",
      "FedStruct (Fed*)", "FedStruct (H2V)", "FedStruct (H2V)-F", "Local GNN", "Local DGCN", "Local MLP")  # fmt: skip
T7 = ("Central GNN", "Central MLP", "FedStruct (Deg)", "FedStruct (Fed*)", "FedStruct (H2V)", "FedStruct (Deg)-F",
      "FedStruct (Fed*)-F", "FedStruct (H2V)-F")  # fmt: skip
T8 = ("Central DGCN", "FedStruct (DGCN+H2V)", "FedStruct (DGCN+GDV)", "FedStruct (DGCN+N2V)", "FedStruct (GNN+H2V)",
      "FedStruct (GNN+GDV)", "FedStruct (GNN+N2V)")  # fmt: skip
CLIENTS = (5, 10, 20)


def table(
    rows: Sequence[str], quick: dict[str, int], partitions: Sequence[str] = PARTITIONS, clients: Sequence[int] = (10,)
) -> Callable[[str], list[Cell]]:
    """The cells of a table: every row under every partition and number of clients."""

    @cache
    def cells(profile: str) -> list[Cell]:
        places = [(p, k) for p in partitions for k in clients]
        return distinct(
            each
            for dataset, seeds in seeds_of(profile, quick).items()
            for partition, count in (places if profile != "smoke" else [(partitions[-1], 10)])
            for row in rows
            for each in cell(row, dataset, partition, seeds, count, shortened_to=fewer(profile))
        )

    return cells


table2 = table(T2, {"Cora": 1}, ("random",), CLIENTS)
table6 = table(T6, {"Cora": 1})
table7 = table(T7, {"Cora": 1, "Chameleon": 1})
table8 = table(T8, {"Cora": 1})


def part(cells: Callable[[str], list[Cell]], rows: Sequence[str], datasets: Sequence[str], *clients: int) -> Callable[
    [str], list[Cell]
]:  # fmt: skip
    """Some rows and data sets of a table, at some numbers of clients: FS-F1, F4d and X2."""

    @cache
    def chosen(profile: str) -> list[Cell]:
        names = {*datasets, *(f"{name}~standin" for name in datasets), STANDIN}
        return [
            each
            for each in cells(profile)
            if each.row in rows and each.run.dataset in names and each.run.clients in (1, *clients)
        ]

    return chosen


BARS = ("Central GNN", "FedStruct (H2V)", "FedGCN-2hop", "FedSage+", "FedSGD GNN")
figure1 = part(table2, BARS, ("Chameleon", "Cora", "Amazon Ratings"), 10)
figure4d = part(table6, (*BARS, "FedPub"), ("Chameleon",), 10)
heterophily = part(table2, (*BARS, "FedPub", "FedStruct (Deg)"), ("Chameleon", "Amazon Ratings", BEYOND), *CLIENTS)

# -- the figures -----------------------------------------------------------------------------------------------------

F4A = ("Central GNN", "FedStruct (H2V)", "FedStruct (Deg)", "FedStruct (Fed*)", "FedSGD GNN", "FedSage+", "FedPub",
       "Local GNN")  # fmt: skip
F4B = ("FedStruct (Deg)", "FedStruct (Fed*)", "FedStruct (H2V)", "Central GNN", "FedSGD GNN")
F4C = ("FedStruct (Deg)", "FedStruct (Fed*)", "FedStruct (H2V)", "FedSGD GNN", "FedPub", "FedGCN-2hop")
F6 = ("FedSGD GNN", "FedStruct (DGCN+H2V)", "FedStruct (DGCN+N2V)", "FedStruct (GNN+H2V)", "FedStruct (GNN+N2V)",
      "Central GNN")  # fmt: skip
LABELLED = (5, 10, 20, 30, 40, 50)
WIDTH = 64  # of the GraphSAGE layers of FS-F4b, as many as propagations
DEPTHS = (1, 2, 3, 5, 10, 15, 20, 30, 40, 50, 60)
COUNTS = (5, 10, 20, 30, 40, 50)
DEPTH_CLIENTS = {5: DEPTHS, 10: (2, 10, 20)}  # FS-Q12: 5 in the caption and the public code, 10 in the text


def split(labelled: int) -> str:
    """x% training, 10% validation, the rest test nodes."""
    return f"{labelled}/10/{90 - labelled}"


@cache
def figure4a(profile: str) -> list[Cell]:
    """FS-F4a: accuracy against the share of labelled nodes, Cora, random, 10 clients."""
    shares = {"smoke": (10,), "quick": (5, 50), "paper": LABELLED}[profile]
    rows = F4A if profile != "quick" else F4A[:2] + F4A[4:5]
    return _sweep(profile, "Cora", [(row, "random", 10, split(x), {}) for x in shares for row in rows])


@cache
def figure4b(profile: str) -> list[Cell]:
    """FS-F4b: accuracy against the number of propagation layers, Cora, K-means. L_s for FedStruct, which also gives
    the structure embeddings alone ("H2V s"); layers for GraphSAGE.
    """
    points = []
    for clients, depths in DEPTH_CLIENTS.items():
        chosen = {"smoke": (2,), "quick": (2, 20), "paper": depths}[profile]
        for depth in chosen if profile == "paper" or clients == 5 else ():
            for row in F4B if clients == 5 else F4B[2:3]:
                ours = row.startswith("FedStruct")
                more: dict[str, Any] = {"structure_depth": depth} if ours else {"stack": (WIDTH,) * depth}
                points.append((row, "kmeans", clients, split(10), more))
    return _sweep(profile, "Cora", points)


DEEP = {"GraphSAGE": "Central GNN", "the same without neighbours (MLP)": "Central MLP"}


@cache
def deep(profile: str) -> list[Cell]:
    """FS-F4b-training: what stands behind GraphSAGE's fall with depth in FS-F4b. Two and 20 layers, with the dropout of
    the tables and without, with their epochs and five times as many; beside it as many linear layers, which see no
    neighbour and so cannot smooth anything over. Central, Cora, a seed no table shows.
    """
    if profile == "quick":
        return []
    name, rounds = (STANDIN, (2,)) if profile == "smoke" else ("Cora", (40, 200))
    return [
        Cell(kind, run)
        for kind, row in DEEP.items()
        for depth in (2, 20)
        for dropout in (0.7, 0.0)
        for count in rounds
        for _, run in cell(row, name, "single", [OPEN_SEED], stack=(WIDTH,) * depth, dropout=dropout, rounds=count)
    ]


def deep_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Last training loss and validation accuracy (percent) of each network of FS-F4b-training; `frame` as `labelled`
    returns it.
    """
    columns = ["dataset", "method", "propagations", "dropout", "rounds", "train_loss", "validation"]
    made = frame.assign(validation=100 * frame["before.last.val"]) if len(frame) else frame
    return made.reindex(columns=columns).rename(columns={"method": "network", "propagations": "layers"})


@cache
def figure4c(profile: str) -> list[Cell]:
    """FS-F4c: accuracy against the number of clients, Chameleon, random."""
    counts = {"smoke": (10,), "quick": (5, 50), "paper": COUNTS}[profile]
    rows = F4C if profile != "quick" else F4C[2:4]
    return _sweep(profile, "Chameleon", [(row, "random", k, split(10), {}) for k in counts for row in rows])


@cache
def figure6(profile: str) -> list[Cell]:
    """FS-F6: 1, 10 and 50% labelled nodes of Photo, K-means, 10 clients (not stated; as in FS-T8)."""
    if profile == "quick":
        return []
    shares = (10,) if profile == "smoke" else (1, 10, 50)
    return _sweep(profile, "Photo", [(row, "kmeans", 10, split(x), {}) for x in shares for row in F6])


def _sweep(
    profile: str, dataset: str, points: Sequence[tuple[str, str, int, str, dict[str, Any]]]
) -> list[Cell]:  # fmt: skip
    """Points (row, partition, clients, split, options) on one graph with the seeds of a profile."""
    seeds = range(SEEDS if profile == "paper" else 1)
    name = STANDIN if profile == "smoke" else dataset
    return distinct(
        each
        for row, partition, clients, share, more in points
        for each in cell(row, name, partition, seeds, clients, share, fewer(profile), **more)
    )


# -- other readings --------------------------------------------------------------------------------------------------

# Changes to FedStruct (H2V) at 10 clients, random partition, one at a time.
READINGS: dict[str, dict[str, Any]] = {
    "as in the tables": {},
    "Eq. 15: S has the classes as columns (FS-Q6)": {"head": "direct"},
    "Appendix D's block budgets (FS-Q9)": {"budget": "blocks"},
    "plain gradient descent (FS-Q10)": {"optimizer": "sgd"},
    "softmax twice, as in the public code": {"double_softmax": True},
    "gradients weighted by all nodes, as in the public code": {"average": "nodes"},
    "no structure": {"structure": "none"},
}
# Where Table 5 and the public code part.
CODE: dict[str, dict[str, Any]] = {
    "Cora": {"rounds": 50}, "PubMed": {"rounds": 50, "structure_depth": 10}, "Photo": {"lr": 0.008},
}  # fmt: skip


@cache
def readings(profile: str) -> list[Cell]:
    """FS-T2-readings: what the decisions the paper leaves open change; the row is the reading's name."""
    datasets = {"smoke": (STANDIN,), "quick": ("Cora",), "paper": ("Cora", "CiteSeer", "Chameleon")}[profile]
    seeds, rounds = range({"smoke": 1, "quick": 1, "paper": 3}[profile]), fewer(profile)
    out = []
    for dataset in datasets:
        for name, more in READINGS.items():
            made = cell("FedStruct (H2V)", dataset, "random", seeds, shortened_to=rounds, **more)
            out += [Cell(name, run) for _, run in made]
    for dataset, more in CODE.items() if profile == "paper" else ():
        made = cell("FedStruct (H2V)", dataset, "random", seeds, **more)
        out += [Cell("the public code's epochs, rate and depth", run) for _, run in made]
    return distinct(out)


# What neither the paper nor its code settles for a baseline is chosen on validation nodes, of a seed no table shows.
OPEN: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {
    ("Central GNN", "FedSGD GNN", "FedAvg GNN", "Local GNN"): {
        "linear classifier on the last layer as it is": {"bare": True},
        "ReLU and dropout before the linear classifier": {"bare": False},
    },
    ("FedGCN-1hop", "FedGCN-2hop"): {
        "gradient descent at 0.5, as its code": {"optimizer": "sgd", "lr": 0.5},
        "Adam at 0.01": {"optimizer": "adam", "lr": 0.01},
    },
    ("FedSage+",): {
        "true numbers of neighbours, a tenth hidden, as in FedStruct's code": {"count": "true", "hidden_share": 0.1},
        "predicted numbers, a tenth hidden": {"count": "predicted", "hidden_share": 0.1},
        "predicted numbers, a half hidden, as in its own code": {"count": "predicted", "hidden_share": 0.5},
    },
    ("FedPub",): {
        "penalties without gradient, as its code": {"penalties": "coded"},
        "penalties as printed": {"penalties": "printed"},
    },
}


@cache
def open_choices(profile: str) -> list[Cell]:
    """FS-M1: the readings of each open setting of a baseline; the row is the published one and the reading."""
    datasets = {"smoke": (STANDIN,), "quick": (), "paper": ("Cora", "Chameleon")}[profile]
    return [
        Cell(f"{row}, {reading}", run)
        for dataset in datasets
        for rows, readings_ in OPEN.items()
        for row in rows
        for reading, more in readings_.items()
        for _, run in cell(row, dataset, "random", [OPEN_SEED], shortened_to=fewer(profile), **more)
    ]


def open_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Validation accuracy of every reading of each open setting, one row a method and data set; `frame` as
    `labelled` returns it.
    """
    import pandas as pd

    rows = []
    for run in frame.to_dict("records"):
        row, _, reading = run["method"].partition(", ")
        view = VIEW_OF.get(row, VIEW).replace("test", "val")
        rows.append({"dataset": run["dataset"], "method": row, "reading": reading, "validation": 100 * run[view]})
    return pd.DataFrame(rows, columns=["dataset", "method", "reading", "validation"])


@cache
def mended(profile: str) -> list[Cell]:
    """FS-Q5: mending with the true neighbours, and with generators of two widths, under the three partitions."""
    rows = ("FedSage+", "FedSage+ ideal", "FedGCN-1hop (code)", "FedStruct (H2V)", "Central GNN")
    datasets = {"smoke": (STANDIN,), "quick": ("Cora",), "paper": ("Cora", "CiteSeer", "Chameleon")}[profile]
    seeds, rounds = range(3 if profile == "paper" else 1), fewer(profile)
    parts = PARTITIONS if profile != "smoke" else PARTITIONS[-1:]
    out = [
        each for d in datasets for p in parts for row in rows for each in cell(row, d, p, seeds, shortened_to=rounds)
    ]
    if profile == "paper":
        out += [each for p in parts for each in cell("FedSage+ (2048)", "Cora", p, seeds)]
    return distinct(out)


# Structure, the reading's name, and what it changes of a run of FS-T8.
COMBINED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("N2V", "added", {}), ("N2V", "joined by a layer", {"combine": "layer"}),
    ("GDV", "15 orbits", {}), ("GDV", "73 orbits", {"structure": "GDV-73"}),
)  # fmt: skip


@cache
def combined_logits(profile: str) -> list[Cell]:
    """FS-T8-readings: embeddings joined by a layer (Eq. 51) instead of added logits, 73 orbits in place of 15; random
    partition.
    """
    datasets = {"smoke": (STANDIN,), "quick": ("Cora",), "paper": ("Cora", "Chameleon")}[profile]
    seeds, rounds = range(3 if profile == "paper" else 1), fewer(profile)
    out = []
    for dataset in datasets:
        for head in ("DGCN", "GNN"):
            for name, text, more in COMBINED:
                row = f"FedStruct ({head}+{name})"
                made = cell(row, dataset, "random", seeds, shortened_to=rounds, **more)
                out += [Cell(f"{row}, {text}", run) for _, run in made]
    return distinct(out)


@cache
def prose(profile: str) -> list[Cell]:
    """FS-X1: the runs behind every number of the text."""
    wanted = {"Central GNN", "Local GNN", "FedSGD GNN", "FedSage+", "FedPub", "FedStruct (H2V)",
              "FedStruct (DGCN+H2V)", "FedStruct (DGCN+N2V)"}  # fmt: skip
    graphs = {"Cora", "Chameleon", "Amazon Ratings", STANDIN}
    sources = (table2, table6, table8, figure4a, figure4b)
    made = [each for source in sources for each in source(profile)]
    return distinct(each for each in made if each.row in wanted and each.run.dataset in graphs)


# -- what a notebook shows -------------------------------------------------------------------------------------------


@cache
def _rows(exhibit: str) -> tuple[tuple[str, str], ...]:
    """(published row, key) of every cell of an exhibit in any profile."""
    return tuple((row, run.key) for row, run in distinct(CELLS[exhibit]("paper") + CELLS[exhibit]("smoke")))


def labelled(frame: pd.DataFrame, exhibit: str) -> pd.DataFrame:
    """Stored runs of an exhibit, one row a cell, with `method` the published row, `registered` the method's own name,
    `percent` the test accuracy as published: last round, over all test nodes, `alone` that of FedStruct's structure
    part alone ("H2V s"), and `propagations` L_s or GraphSAGE's layers.

    A run that stands in several rows of an exhibit is repeated.
    """
    import pandas as pd

    at = {key: place for place, key in enumerate(frame["key"])} if len(frame) else {}
    found = [(row, at[key]) for row, key in _rows(exhibit) if key in at]
    shown = frame.iloc[[place for _, place in found]].reset_index(drop=True)
    rows = [row for row, _ in found]
    views = [VIEW_OF.get(row, VIEW) for row in rows]
    scores = [float(shown.at[place, view]) for place, view in enumerate(views)]
    depths = [_propagations(run) for run in shown.to_dict("records")]
    parts = shown.get("facts.structure_test", pd.Series(float("nan"), index=shown.index))
    return shown.rename(columns={"method": "registered"}).assign(
        method=pd.Series(rows, dtype=object),
        percent=pd.Series(scores, dtype=float) * 100,
        alone=100 * parts.astype(float),
        propagations=pd.Series(depths, dtype=float),
    )


def _propagations(run: dict[str, Any]) -> float:
    """L_s of FedStruct; the layers of a GraphSAGE."""
    if run["method"] == "FedStruct":
        return float(run["structure_depth"])
    return float(len(run["stack"])) if isinstance(run.get("stack"), tuple) else float("nan")


def judged(frame: pd.DataFrame, exhibit: str, on: Sequence[str] = ("dataset", "method", "clients", "partition")) -> (
    pd.DataFrame
):  # fmt: skip
    """Every published accuracy of an exhibit beside our runs, with its verdict; `frame` as `labelled` returns it."""
    printed = published.load("fedstruct")
    printed = printed[(printed["exhibit"] == exhibit) & (printed["metric"] == "test accuracy (percent)")]
    return compare.table(frame, printed, on=on, value="percent")


def beyond(frame: pd.DataFrame) -> pd.DataFrame:
    """Means of what is not published: Squirrel, and the stand-in of Amazon Ratings."""
    ours = frame[frame["dataset"].isin([BEYOND, "Amazon Ratings~standin", STANDIN])]
    keys = ["dataset", "method", "partition", "clients"]
    means = ours.groupby(keys, sort=False)["percent"].agg(["mean", "std", "count"])
    return means.rename(columns={"count": "runs"}).reset_index()


CELLS: dict[str, Callable[[str], list[Cell]]] = {
    "FS-T2": table2, "FS-T6": table6, "FS-T7": table7, "FS-T8": table8, "FS-F1": figure1, "FS-F4a": figure4a,
    "FS-F4b": figure4b, "FS-F4c": figure4c, "FS-F4d": figure4d, "FS-F6": figure6, "FS-X1": prose, "FS-X2": heterophily,
    "FS-T2-readings": readings, "FS-M1": open_choices, "FS-T8-readings": combined_logits, "FS-Q5": mended,
    "FS-F4b-training": deep,
}  # fmt: skip
TITLES = {
    "fedstruct/6-evaluation": {
        "FS-T2": "Accuracy with a random partition",
        "FS-F1": "Bars of five methods on three graphs",
        "FS-F4a": "Cora: accuracy against the share of labelled nodes",
        "FS-F4b": "Cora: accuracy against the number of propagation layers",
        "FS-F4b-training": "Cora: two and 20 layers, with and without neighbours and dropout",
        "FS-F4c": "Chameleon: accuracy against the number of clients",
        "FS-F4d": "Chameleon: accuracy under three partitions",
        "FS-X1": "Numbers stated in the text",
        "FS-X2": "Heterophilic graphs",
    },
    "fedstruct/E-settings": {
        "FS-T2-readings": "Decisions the paper leaves open",
        "FS-M1": "Baselines' open settings, on validation nodes",
    },
    "fedstruct/F-additional-results": {
        "FS-T6": "Accuracy under three partitions",
        "FS-T7": "Accuracy with and without pruning",
        "FS-Q5": "Mending with true neighbours",
    },
    "fedstruct/H-global-graph": {
        "FS-T8": "Accuracy where the server knows the graph",
        "FS-F6": "Photo: decoupled GCN against GNN at three shares of labels",
        "FS-T8-readings": "Embeddings joined by a layer or logits added; 15 orbits or 73",
    },
}
UNSEEDED = ("FS-M1", "FS-F4b-training")  # have the seed they need, `OPEN_SEED`
EXHIBITS = [
    *(
        Exhibit(name, "fedstruct", notebook, title, only_runs(CELLS[name]), seeded=name not in UNSEEDED)
        for notebook, exhibits in TITLES.items()
        for name, title in exhibits.items()
    ),
    *fedstruct_theory.EXHIBITS,
]
