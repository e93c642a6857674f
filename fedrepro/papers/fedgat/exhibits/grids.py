"""The settings of FedGAT's experiments, and the runs behind each exhibit.

Every row of Table 1 has two readings, *code* and *text*, and they are shown in this order. Neither was chosen by its
distance to a printed number, and the protocol of the reading *code* was written down before its runs were made.

The reading *code* is what public code does (FG-Q12c), scored at its last round:

    FedGAT, DistGAT, GAT    the authors' public code, see `fedrepro.papers.fedgat.as_coded`. Its central GAT is its
                            DistGAT with one client. One output head on all graphs, rates and rounds of its script.
    GCN                     not in that code. The settings of the GCN's own paper (Kipf and Welling 2017): rate 0.01,
                            decay 0.0005, 200 rounds, feature rows divided by their sums. We leave out its dropout, as
                            FedGAT's paper says, and decay both layers, where it decays the first.
    FedGCN                  the public code of FedGCN's paper: gradient descent at 0.5, decay 0.0005, three local steps,
                            100 rounds, dropout 0.5 between the layers, features as they are. Ours sends exact sums,
                            where that code sends raw features, see `fedrepro.baselines.fedgcn`.

The reading *text* is what the paper describes. The server averages weights, the clients take Adam's steps, learning
rate and weight decay are chosen on validation, and the score is that of the round of best validation accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import Any

from fedrepro import paths
from fedrepro.reporting.exhibits import Grid, folder, keeps, settings, smallest
from fedrepro.runs.run import Run, sweep

Point = dict[str, Any]  # options of a run: what the optimizer is given

DATASETS = ("Cora", "CiteSeer", "PubMed")
NON_IID, PARTLY_IID, IID = "dirichlet(beta=1)", "dirichlet(beta=100)", "dirichlet(beta=10000)"
CENTRAL = "single"  # the partition of a central model
LABELS = {NON_IID: "non-iid", PARTLY_IID: "partly iid", IID: "iid", CENTRAL: "central"}

ROUNDS = 100
DEGREE = 16  # of FedGAT's polynomial
TUNING_ROUNDS, TUNING_SEED = 30, 100  # no reported run uses this seed
AGGREGATED = " (FedSGD)"  # ends the registered names of methods whose gradients the server averages
AS_CODED = " (as coded)"  # ends those of methods as the public code trains them
CODE_READING, TEXT_READING, PART_OF_CODE = "code", "text", "code in part"
READINGS = (CODE_READING, TEXT_READING)  # in the order in which tables show them

# Every run that needs a graph has these.
SETTING: dict[str, Any] = {"paper": "fedgat", "prepare": "unit-norm", "split": "public"}

TABLES = settings("fedgat")
# Rows of Table 1 with method and options; what else rows are given, see `settings.toml`.
ROWS, OWN_PAPER, CODE, CODE_SCORE, OTHERS_CODE = (
    TABLES[name] for name in ("rows", "own_paper", "code", "code_score", "others_code")
)

# Learning rate and weight decay of Adam: the paper's pair, the public code's, and four with smaller steps. The last is
# the pair of the GCN's own paper.
PAIRS: tuple[Point, ...] = tuple(
    {"lr": lr, "weight_decay": decay}
    for lr, decay in ((0.1, 0.001), (0.06, 0.002), (0.03, 0.001), (0.03, 0.0005), (0.01, 0.001), (0.01, 0.0005))
)

SEEDS = range(3)
# The paper draws 1 to 20 clients without saying which, and degrees around 16.
CLIENTS, MANY_CLIENTS = (1, 2, 5, 10, 15, 20), (20, 40, 60, 80, 100)
DEGREES = (2, 4, 8, 12, 16, 24, 32)
PANELS = {"a": ("Cora", NON_IID), "b": ("Cora", IID), "c": ("CiteSeer", NON_IID), "d": ("CiteSeer", IID)}
BETAS = {"a": NON_IID, "b": PARTLY_IID, "c": IID}
FORMS = ["matrix", "vector"]
ATTACKED = 1000  # nodes attacked in `quick`; `paper` attacks all of them, which 0 asks for

fedgat_sweep = partial(sweep, **SETTING)
_attack = partial(fedgat_sweep, task="attack", dataset="Cora", partition=NON_IID, clients=10)


# -- the settings of a run --------------------------------------------------------------------------------------------


def tried(row: str) -> tuple[Point, ...]:
    """Return the six points tried for a row. FedGCN has the steps of its paper instead of the public code's pair."""
    return (*(pair for pair in PAIRS if pair != PAIRS[1]), OWN_PAPER[row]) if row in OWN_PAPER else PAIRS


def chosen(row: str, dataset: str, partition: str) -> Point:
    """Return the point of `chosen.csv` for a cell of Table 1. Partly i.i.d. labels take that of i.i.d. ones.

    The point has the highest validation accuracy in the stored tuning runs, and is the first of equals. A test
    recomputes the file from the store.
    """
    return _chosen()[dataset, row, IID if partition == PARTLY_IID else partition]


@cache
def _chosen() -> dict[tuple[str, ...], Point]:
    points: dict[tuple[str, ...], Point] = {}
    for row in paths.read_csv(folder("fedgat") / "chosen.csv"):
        # An empty entry is the method's default, which the key of a run does not mention.
        given = {"optimizer": row["optimizer"], "local_epochs": int(row["local_epochs"])} if row["optimizer"] else {}
        point = {**given, "lr": float(row["lr"]), "weight_decay": float(row["weight_decay"])}
        points[row["dataset"], row["method"], row["partition"]] = point
    return points


def cells() -> list[tuple[str, str, str]]:
    """Return row, data set and partition of every cell of Table 1, in the paper's order."""
    return [
        (row, dataset, partition)
        for dataset in DATASETS
        for row, given in ROWS.items()
        for partition in ((CENTRAL,) if given["method"] == "Central" else (NON_IID, IID))
    ]


def training(
    row: str, dataset: str, partition: str, point: Point | None = None, clients: int = 10, **options: Any
) -> Run:
    """Return the run that trains one cell of Table 1, or of a sweep around it, with seed 0.

    Args:
        row: a key of `ROWS`.
        point: what the optimizer is given, by default the point that validation chose.
        clients: of a federated row.
        options: in addition to the row's options, or in place of them.
    """
    method, model = ROWS[row]["method"], ROWS[row]["options"]
    # FedGAT's Appendix C gives PubMed eight output heads, as the GAT's own paper does.
    heads = {"output_heads": 8} if model["model"] == "GAT" and dataset == "PubMed" else {}
    given = {"rounds": ROUNDS, **model, **heads, **(point or chosen(row, dataset, partition)), **options}
    clients = 1 if partition == CENTRAL else clients
    return Run("train", method=method, dataset=dataset, partition=partition, clients=clients, options=given, **SETTING)


def as_coded(row: str, dataset: str, partition: str, clients: int = 10, **options: Any) -> Run:
    """Return the run of a cell of Table 1 in the reading *code*, with seed 0.

    The public code scores the weights before the step of a round. Its 35 rounds are 34 here, 30 are 29.

    Args:
        options: see `training`.
    """
    if row in OTHERS_CODE:
        given = OTHERS_CODE[row]
        return training(row, dataset, partition, given["options"], clients, **options).replace(prepare=given["prepare"])
    point = {**CODE[dataset], "rounds": CODE[dataset]["rounds"] - 1}
    score = CODE_SCORE.get(row, {})
    run = training(row, dataset, partition, point, clients, **{"output_heads": 1, **score, **options})
    method = "DistGAT" if row == "GAT" else run.method
    return run.replace(method=f"{method}{AS_CODED}", prepare="centred-norm")


def reading(method: str, prepare: str) -> str:
    """Return the reading of a training run, from its registered method and the steps that prepare its features."""
    if method.endswith(AGGREGATED):
        return PART_OF_CODE
    return CODE_READING if method.endswith(AS_CODED) or prepare != SETTING["prepare"] else TEXT_READING


def seeded(runs: Iterable[Run], seeds: Sequence[int] = SEEDS) -> list[Run]:
    """Return each run with each of the seeds, the seed fastest."""
    return [run.replace(seed=seed) for run in runs for seed in seeds]


# -- accuracy ----------------------------------------------------------------------------------------------------------


def table1(point: Point | None = None) -> list[Run]:
    """Return ten seeds of each cell of Table 1 in the reading *text*, at the chosen points or all at one."""
    return seeded([training(*cell, point) for cell in cells()], range(10))


def both_readings() -> list[Run]:
    """Return ten seeds of each cell of Table 1 in both readings, *code* first."""
    return [*seeded([as_coded(*cell) for cell in cells()], range(10)), *table1()]


def table1_code() -> list[Run]:
    """Return FedGAT and DistGAT with averaged gradients, Adam at the server and one output head (FG-Q12c)."""
    runs = [
        training(row, dataset, partition, CODE[dataset], output_heads=1, **score)
        for dataset in DATASETS
        for row, score in CODE_SCORE.items()
        for partition in (NON_IID, IID)
    ]
    return seeded([run.replace(method=f"{run.method}{AGGREGATED}") for run in runs], range(10))


def code_steps() -> list[Run]:
    """Return what leads from FG-T1-code to the reading *code* of FedGAT and DistGAT, step by step.

    The steps are two softmaxes, then centred features, then the public code's layer 1. The last has ten seeds, the
    others five. FedGAT's weights do not depend on the partition here, so its steps are run in one partition.
    """
    full = [as_coded(*cell) for cell in cells() if cell[0] in CODE_SCORE]
    steps = []
    for run in full:
        of_a_gat = run.replace(options={**run.options, "first_layer": "gat"})
        if run.method.startswith("DistGAT"):
            steps.append(run.replace(prepare=SETTING["prepare"]))
        elif run.partition == NON_IID:
            steps += [of_a_gat.replace(prepare=SETTING["prepare"]), of_a_gat]
    return [*seeded(steps, range(5)), *seeded(full, range(10))]


def tuning() -> list[Run]:
    """Return the runs of all points tried, six for each cell of Table 1, with 30 rounds and one seed."""
    runs = [training(*cell, point, rounds=TUNING_ROUNDS) for cell in cells() for point in tried(cell[0])]
    return seeded(runs, [TUNING_SEED])


def fedgcn_steps() -> list[Run]:
    """Return FedGAT (on Cora) and FedGCN with the steps of FedGCN's own paper, in the reading *text* (FG-Q12b)."""
    steps = OWN_PAPER["FedGCN"]
    ours = seeded([training("FedGAT", "Cora", partition, steps) for partition in (NON_IID, IID)])
    return ours + seeded([training(*cell, steps) for cell in cells() if cell[0] == "FedGCN"], range(10))


def by_clients(dataset: str, partition: str) -> list[Run]:
    """Return FedGAT, FedGCN and DistGAT for each number of clients in both readings, *code* first.

    The reading *text* takes the points chosen for 10 clients. There are three seeds, and six of FedGAT and DistGAT at
    both ends in the reading *text*, which a claim compares.
    """
    rows = ("FedGAT", "FedGCN", "DistGAT")
    runs = seeded(as_coded(row, dataset, partition, clients) for clients in CLIENTS for row in rows)
    for clients in CLIENTS:
        ends = range(6) if clients in (CLIENTS[0], CLIENTS[-1]) else SEEDS
        for row, seeds in (("FedGAT", ends), ("FedGCN", SEEDS), ("DistGAT", ends)):
            runs += seeded([training(row, dataset, partition, clients=clients)], seeds)
    return runs


def by_degree(partition: str) -> list[Run]:
    """Return FedGAT on Cora for each degree of its polynomial, and DistGAT, with 10 clients, in both readings."""
    return seeded(
        run
        for build in (as_coded, training)
        for run in (
            *(build("FedGAT", "Cora", partition, degree=degree) for degree in DEGREES),
            build("DistGAT", "Cora", partition),
        )
    )


def lone_neighbours() -> list[Run]:
    """Return FedGAT with lone cross-client neighbours kept and dropped (FG-Q8)."""
    runs = [training("FedGAT", dataset, partition) for dataset in ("Cora", "CiteSeer") for partition in (NON_IID, IID)]
    drop = {"lone_neighbour": "dropped"}  # a run without the option is one of Table 1
    return seeded(rule for run in runs for rule in (run, run.replace(options={**run.options, **drop})))


def cost_of_a_round() -> list[Run]:
    """Return the benchmark of 20 rounds of DistGAT and of FedGAT on Cora."""
    runs = [training(row, "Cora", IID, PAIRS[0], rounds=20) for row in ("DistGAT", "FedGAT")]
    return [run.replace(task="bench", method="training", options={**run.options, "of": run.method}) for run in runs]


# -- communication -----------------------------------------------------------------------------------------------------


def traffic(datasets: Sequence[str], clients: Sequence[int] = CLIENTS) -> list[Run]:
    """Return the counts of what is sent before training, for each number of clients."""
    partitions = [NON_IID, IID]
    return fedgat_sweep(
        task="traffic", method="FedGAT", dataset=datasets, partition=partitions, clients=clients, seed=SEEDS
    )


def edges() -> list[Run]:
    """Return the counts for 1 to 20 clients on Cora and CiteSeer, and for 20 to 100 on Cora."""
    return list(dict.fromkeys([*traffic(["Cora", "CiteSeer"]), *traffic(["Cora"], MANY_CLIENTS)]))


def small_traffic() -> list[Run]:
    """Return the smoke runs of all counts. They have two numbers of clients, since a curve needs two."""
    return smallest(traffic(["Cora"], (2, 5)), ("partition", "clients"), {})


# -- checks and attacks ------------------------------------------------------------------------------------------------


def scored_rounds() -> list[Run]:
    """Return a measurement at the scored round (FG-Q3) for each run of FedGAT in the text's FG-T1 and FG-F2a."""
    runs = [run for run in (*table1(), *by_clients("Cora", NON_IID)) if run.method == "FedGAT" and in_text(run)]
    return [run.replace(task="check", method="FedGAT-scored") for run in dict.fromkeys(runs)]


def attack() -> list[Run]:
    """Return the attack on both forms, with and without the one-neighbour rule (FG-Q7)."""
    some = _attack(method="FedGAT", options={"form": FORMS, "lone": "kept", "nodes": ATTACKED})
    return some + _attack(method="FedGAT", options={"form": FORMS, "lone": ["kept", "dropped"], "nodes": 0})


# -- what the profile `quick` has, and the list ------------------------------------------------------------------------


def every_run(run: Run) -> bool:
    """Return True: `quick` computes the whole grid."""
    return True


def few_seeds(run: Run) -> bool:
    """Return whether `quick` has a run of Table 1: fewer seeds on larger graphs, in the reading *code* on Cora only."""
    return run.seed < ({"Cora": 3, "CiteSeer": 2, "PubMed": 1} if in_text(run) else {"Cora": 2}).get(run.dataset, 0)


def in_text(run: Run) -> bool:
    """Return whether a run is one of the reading *text*, whose sparse features cost less."""
    return reading(run.method, run.prepare) == TEXT_READING


PER_CELL = ("method", "model", "partition")  # a smoke run for each row of Table 1
PER_READING = ("method", "model", "prepare")  # and for each row of a curve in both readings
_identities = Grid(lambda: [Run("check", "fedgat", "FedGAT-identities")])
_theorems = Grid(lambda: [Run("check", "fedgat", "FedGAT-theorems")])
# The layer from messages is compared with its edge form at all nodes of the three graphs.
_protocol = Grid(
    lambda: fedgat_sweep(task="check", method="FedGAT-protocol", dataset=DATASETS, partition=NON_IID, clients=10),
    keeps(dataset=["Cora"]),
    smoke={"nodes": 16, "whole": 6},
)
_betas = {"partition": list(BETAS.values())}
_partitions = partial(
    fedgat_sweep, task="partition", method="manifest", dataset=DATASETS, clients=10, seed=SEEDS, **_betas
)
# Vector FedGAT computes the same layer from the same weights, so Figure 6 draws the accuracies of Figure 2.
_by_clients = {
    panel: Grid(partial(by_clients, *where), keeps(dataset=["Cora"], clients=(2, 10)), PER_READING)
    for panel, where in PANELS.items()
}
_by_degree = {
    panel: Grid(
        partial(by_degree, beta),
        lambda run: in_text(run) and keeps(degree=(None, 8, 16))(run),
        PER_READING,
    )
    for panel, beta in BETAS.items()
}

GRIDS = {
    "FG-T1": Grid(both_readings, few_seeds, (*PER_CELL, "prepare")),
    "FG-T1-literal": Grid(partial(table1, PAIRS[0]), few_seeds, PER_CELL),
    "FG-T1-code": Grid(table1_code, lambda run: run.dataset == "Cora" and run.seed < 2),
    "FG-T1-code-full": Grid(code_steps, keeps(dataset=["Cora"]), ("method", "prepare", "first_layer")),
    "FG-T1-tuning": Grid(tuning, lambda run: run.dataset == "Cora", PER_CELL, seeded=False),
    "FG-Q3-scored": Grid(scored_rounds, keeps(dataset=["Cora"]), ("model",)),
    "FG-Q12b": Grid(fedgcn_steps, keeps(dataset=["Cora"]), PER_CELL),
    "FG-T2": Grid(partial(fedgat_sweep, task="check", method="graph statistics", dataset=DATASETS), seeded=False),
    "FG-F1": Grid(
        lambda: [run for run in table1() if run.method == "FedGAT" and run.dataset == "Cora"], few_seeds, PER_CELL
    ),
    **{f"FG-F2{panel}": grid for panel, grid in _by_clients.items()},
    **dict.fromkeys(("FG-F3a", "FG-F7"), Grid(partial(traffic, ["Cora"]), every_run, smoke=small_traffic)),
    **dict.fromkeys(("FG-F3b", "FG-F8"), Grid(partial(traffic, ["CiteSeer"]), every_run, smoke=small_traffic)),
    "FG-F4": Grid(partial(traffic, ["Cora"], MANY_CLIENTS), every_run, smoke=small_traffic),
    **{f"FG-F5{panel}": grid for panel, grid in _by_degree.items()},
    **{f"FG-F6{panel}": grid for panel, grid in _by_clients.items()},
    **{f"FG-A{number}": _protocol for number in (1, 2, 3, 4)},
    **{f"FG-Th{number}": _theorems for number in (1, 2, 3, 4, 5)},
    "FG-L1": _theorems,
    **{f"FG-I{number}": _identities for number in (1, 2, 3, 4, 5)},
    "FG-I6": Grid(attack, lambda run: run.options["nodes"] == ATTACKED, ("form", "lone"), {"nodes": 12}),
    "FG-P1": Grid(_partitions, every_run, ("partition",)),
    "FG-X1": Grid(partial(traffic, ["Cora", "CiteSeer"]), every_run, smoke=small_traffic),
    "FG-X2": Grid(edges, every_run, smoke=small_traffic),
    "FG-X3": Grid(lone_neighbours, keeps(dataset=["Cora"]), ("partition", "lone_neighbour")),
    "FG-M1": Grid(cost_of_a_round, per=("of",), smoke={"rounds": 2, "repeats": 1, "memory": False}),
}
