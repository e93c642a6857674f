"""The runs behind the exhibits AX-1 to AX-14, which `protocol` lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fedrepro.across import protocol
from fedrepro.across.protocol import PREPARE, SMALL
from fedrepro.reporting.exhibits import Grid, shrunk
from fedrepro.runs.run import Run, sweep

WATCHED_ROUNDS = 10  # of measurements and attacks
ATTACKED = ("Cora", "Chameleon")
SMALL_CLIENTS = 20  # of an attack in the profile `smoke`, as it compares all pairs of a client's nodes
LEAST = {"rounds": 2, "local_epochs": 1, "q": 1, "generator_epochs": 1, "generator_width": 16, "structure_depth": 2}
TWICE = ("Local", "FedAvg", "FedProx")  # have two seeds in the profile `smoke`, so that there is a difference


def watched(task: str, name: str, graphs: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """Return the measurements or attacks of every method on some graphs, or in the method's own column."""
    return [
        run
        for graph in (*graphs, "subCora")
        for method, column in protocol.grounds(graph).items()
        if graph != "subCora" or method in protocol.OWN_GROUND
        for run in protocol.cell(method, column, seeds, task=task, name=name, rounds=WATCHED_ROUNDS)
    ]


costs = partial(watched, "bench", "across-cost", SMALL, [0])
leaks = partial(watched, "attack", "across-leak", ATTACKED, range(3))


def tuning() -> list[Run]:
    """Return all tuning runs, graph by graph."""
    return [run for graph in protocol.SEEDS for run in protocol.tuning(graph)]


def homophily() -> list[Run]:
    """Return the counts of every graph that is divided by METIS, among them its homophily."""
    graphs = [graph for graph in protocol.SEEDS if graph != "subCora"]
    return sweep(task="check", paper=protocol.PAPER, method="graph statistics", dataset=graphs, prepare=PREPARE)


def twins() -> list[Run]:
    """Return the counts of twins, and the runs that are scored with and without them."""
    return [*protocol.twin_counts(), *protocol.twin_runs()]


def first_column(run: Run) -> bool:
    """Keep the first seed on METIS parts of Cora with 10 clients, and the central run."""
    return (
        run.seed == 0
        and run.dataset == "Cora"
        and run.split == protocol.MAIN
        and run.clients in (1, 10)
        and (run.partition in ("single", protocol.METIS))
    )


def small(runs: Callable[[], Sequence[Run]], twice: Sequence[str] = ()) -> Callable[[], list[Run]]:
    """Return the smoke form of a grid: the first run of each method on a stand-in, with as little as possible."""

    def shrink() -> list[Run]:
        first: dict[str, Run] = {}
        for run in runs():
            first.setdefault(str(run.options.get("of", run.method)), run)
        smallest = []
        for name, run in first.items():
            less = {name: least for name, least in LEAST.items() if name in run.options}
            less |= {"memory": False} if run.task == "bench" else {}
            less |= {"hidden": 16} if run.dataset == "subCora" else {}
            one = shrunk(run, less)
            if one.dataset == "subCora":  # made from Cora, which may not be there
                one = one.replace(dataset="csbm-DNC", clients=min(200, one.clients))
            elif run.task == "attack" and one.clients > 1:
                one = one.replace(clients=SMALL_CLIENTS)
            smallest += [one.replace(seed=seed) for seed in ((0, 1) if name in twice else (one.seed,))]
        return smallest

    return shrink


_table = Grid(protocol.table, first_column, smoke=small(protocol.table, TWICE), series=True)
_once = Grid(protocol.table, first_column, smoke=small(protocol.table), series=True)  # its exhibits show no difference
_leaks = Grid(leaks, lambda run: run.dataset == "Cora" and run.seed == 0, smoke=small(leaks))
GRIDS = {
    **dict.fromkeys(("AX-1", "AX-2", "AX-4", "AX-5"), _table),
    **dict.fromkeys(("AX-7", "AX-9", "AX-11", "AX-12"), _once),
    "AX-3": Grid(tuning, lambda run: False, smoke=lambda: small(tuning)()[:3], seeded=False),
    "AX-6": Grid(homophily, smoke=small(homophily)),
    "AX-8": Grid(costs, lambda run: run.dataset == "Cora", smoke=small(costs)),
    "AX-10": _leaks,
    "AX-13": Grid(
        protocol.fedavg_readings,
        lambda run: run.dataset == "Cora" and run.seed == 0,
        per=("method", "optimizer_state", "local_epochs"),
        series=True,
    ),
    "AX-14": Grid(twins, lambda run: run.dataset == "Chameleon" and run.seed == 0, smoke=small(twins), series=True),
}
