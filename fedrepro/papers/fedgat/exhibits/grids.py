"""The runs behind each exhibit of FedGAT."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from fedrepro.papers.fedgat.exhibits import settings
from fedrepro.papers.fedgat.exhibits.settings import DATASETS, IID, NON_IID, PARTLY_IID, SETTING, as_coded, training
from fedrepro.reporting.exhibits import Grid, first_seed, smallest
from fedrepro.runs.run import Run, sweep

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


def seeded(runs: Iterable[Run], seeds: Sequence[int] = SEEDS) -> list[Run]:
    """Return each run with each of the seeds, the seed fastest."""
    return [run.replace(seed=seed) for run in runs for seed in seeds]


# -- accuracy ----------------------------------------------------------------------------------------------------------


def table1(point: settings.Point | None = None) -> list[Run]:
    """Return ten seeds of each cell of Table 1 in the reading *text*, at the chosen points or all at one."""
    return seeded([training(*cell, point) for cell in settings.cells()], range(10))


def both_readings() -> list[Run]:
    """Return ten seeds of each cell of Table 1 in both readings, *code* first."""
    return [*seeded([as_coded(*cell) for cell in settings.cells()], range(10)), *table1()]


def table1_code() -> list[Run]:
    """Return FedGAT and DistGAT in the code's reading (FG-Q12c): averaged gradients, Adam at the server, one head."""
    runs = [
        training(row, dataset, partition, settings.CODE[dataset], output_heads=1, **score)
        for dataset in DATASETS
        for row, score in settings.CODE_SCORE.items()
        for partition in (NON_IID, IID)
    ]
    return seeded([run.replace(method=f"{run.method}{settings.AGGREGATED}") for run in runs], range(10))


def code_steps() -> list[Run]:
    """Return what leads from FG-T1-code to the reading *code* of FedGAT and DistGAT, step by step.

    The steps are two softmaxes, then centred features, then the public code's layer 1. The last has ten seeds, the
    others five. FedGAT's weights do not depend on the partition here, so its steps are run in one partition.
    """
    full = [as_coded(*cell) for cell in settings.cells() if cell[0] in settings.CODE_SCORE]
    steps = []
    for run in full:
        of_a_gat = run.replace(options={**run.options, "first_layer": "gat"})
        if run.method.startswith("DistGAT"):
            steps.append(run.replace(prepare=SETTING["prepare"]))
        elif run.partition == NON_IID:
            steps += [of_a_gat.replace(prepare=SETTING["prepare"]), of_a_gat]
    return [*seeded(steps, range(5)), *seeded(full, range(10))]


def tuning() -> list[Run]:
    """Return all points tried: six a row of Table 1, for 30 rounds, with one seed."""
    runs = [
        training(*cell, point, rounds=settings.TUNING_ROUNDS)
        for cell in settings.cells()
        for point in settings.tried(cell[0])
    ]
    return seeded(runs, [settings.TUNING_SEED])


def fedgcn_steps() -> list[Run]:
    """Return FedGAT (on Cora) and FedGCN with the steps of FedGCN's own paper, in the reading *text* (FG-Q12b)."""
    steps = settings.OWN_PAPER["FedGCN"]
    ours = seeded([training("FedGAT", "Cora", partition, steps) for partition in (NON_IID, IID)])
    return ours + seeded([training(*cell, steps) for cell in settings.cells() if cell[0] == "FedGCN"], range(10))


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
        for made in (as_coded, training)
        for run in (
            *(made("FedGAT", "Cora", partition, degree=degree) for degree in DEGREES),
            made("DistGAT", "Cora", partition),
        )
    )


def lone_neighbours() -> list[Run]:
    """Return FedGAT with lone cross-client neighbours kept and dropped (FG-Q8)."""
    runs = [training("FedGAT", dataset, partition) for dataset in ("Cora", "CiteSeer") for partition in (NON_IID, IID)]
    drop = {"lone_neighbour": "dropped"}  # a run without the option is one of Table 1
    return seeded(rule for run in runs for rule in (run, run.replace(options={**run.options, **drop})))


def cost_of_a_round() -> list[Run]:
    """Return the benchmark of 20 rounds of DistGAT and of FedGAT on Cora."""
    runs = [training(row, "Cora", IID, settings.PAIRS[0], rounds=20) for row in ("DistGAT", "FedGAT")]
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
    """Return the smoke runs of all counts: two numbers of clients, since a curve needs two."""
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


def cora(run: Run) -> bool:
    """Return whether a run is on Cora."""
    return run.dataset == "Cora"


def few_seeds(run: Run) -> bool:
    """Return whether `quick` has a run of Table 1: fewer seeds on larger graphs, in the reading *code* on Cora only."""
    return run.seed < ({"Cora": 3, "CiteSeer": 2, "PubMed": 1} if in_text(run) else {"Cora": 2}).get(run.dataset, 0)


def in_text(run: Run) -> bool:
    """Return whether a run is one of the reading *text*, whose sparse features cost less."""
    return settings.reading(run.method, run.prepare) == settings.TEXT_READING


CELL = ("method", "model", "partition")  # a smoke run for each row of Table 1
READING = ("method", "model", "prepare")  # and for each row of a curve in both readings
_identities = Grid(lambda: [Run("check", "fedgat", "FedGAT-identities")])
_theorems = Grid(lambda: [Run("check", "fedgat", "FedGAT-theorems")])
# The layer from messages is compared with its edge form at all nodes of the three graphs.
_protocol = Grid(
    lambda: fedgat_sweep(task="check", method="FedGAT-protocol", dataset=DATASETS, partition=NON_IID, clients=10),
    cora,
    smoke={"nodes": 16, "whole": 6},
)
_betas = {"partition": list(BETAS.values())}
_partitions = partial(
    fedgat_sweep, task="partition", method="manifest", dataset=DATASETS, clients=10, seed=SEEDS, **_betas
)
# Vector FedGAT computes the same layer from the same weights, so Figure 6 draws the accuracies of Figure 2.
_by_clients = {
    panel: Grid(
        partial(by_clients, *where), lambda run: first_seed(run) and cora(run) and run.clients in (2, 10), READING
    )
    for panel, where in PANELS.items()
}
_by_degree = {
    panel: Grid(
        partial(by_degree, beta),
        lambda run: first_seed(run) and in_text(run) and run.options.get("degree", 8) in (8, 16),
        READING,
    )
    for panel, beta in BETAS.items()
}

GRIDS = {
    "FG-T1": Grid(both_readings, few_seeds, (*CELL, "prepare")),
    "FG-T1-literal": Grid(partial(table1, settings.PAIRS[0]), few_seeds, CELL),
    "FG-T1-code": Grid(table1_code, lambda run: cora(run) and run.seed < 2),
    "FG-T1-code-full": Grid(
        code_steps, lambda run: cora(run) and first_seed(run), ("method", "prepare", "first_layer")
    ),
    "FG-T1-tuning": Grid(tuning, cora, CELL, seeded=False),
    "FG-Q3-scored": Grid(scored_rounds, lambda run: cora(run) and first_seed(run), ("model",)),
    "FG-Q12b": Grid(fedgcn_steps, lambda run: cora(run) and first_seed(run), CELL),
    "FG-T2": Grid(partial(fedgat_sweep, task="check", method="graph statistics", dataset=DATASETS), seeded=False),
    "FG-F1": Grid(lambda: [run for run in table1() if run.method == "FedGAT" and cora(run)], few_seeds, CELL),
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
    "FG-X3": Grid(lone_neighbours, lambda run: first_seed(run) and cora(run), ("partition", "lone_neighbour")),
    "FG-M1": Grid(cost_of_a_round, per=("of",), smoke={"rounds": 2, "repeats": 1, "memory": False}),
}
