"""The runs behind the exhibits of FedSheafHN.

Exhibits that the paper has only on ogbn-arxiv are also run on Computers and Cora (SH-D1). The stand-in of ogbn-arxiv
has its size, five rounds and a seed that no other graph uses, and is compared with no published number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

from fedrepro.papers.fedsheafhn.exhibits import settings
from fedrepro.papers.fedsheafhn.exhibits.settings import OURS, QUICK, STANDIN, cell, setup
from fedrepro.reporting.exhibits import SMOKE_ROUNDS, Grid, keeps, smallest
from fedrepro.runs.run import Run, sweep

Runs = Callable[[], list[Run]]
FEW = ("Local", "FedAvg", OURS)
check = partial(sweep, task="check", paper=settings.PAPER)


# --- the tables --------------------------------------------------------------------------------------------------


def standin(method: str, clients: int, **more: Any) -> list[Run]:
    """Return one run on the stand-in of ogbn-arxiv."""
    return cell(method, STANDIN, clients, [settings.STANDIN_SEED], rounds=settings.STANDIN_ROUNDS, **more)


def table(first: int, second: int) -> list[Run]:
    """Return Table 1 (10 and 20 clients) or 2 (30 and 50): eleven methods on six graphs, without a stand-in."""
    cells = product(settings.DATASETS, (first, second), settings.METHODS)
    return [run for dataset, clients, method in cells for run in cell(method, dataset, clients)]


def lineage_table() -> list[Run]:
    """Return six methods of Table 1 under the protocol of FED-PUB's line: 10 and 20 clients, Cora and CiteSeer."""
    cells = product(settings.LINEAGE_RATES, (10, 20), settings.LINEAGE)
    return [run for dataset, clients, method in cells for run in settings.lineage(method, dataset, clients)]


def literal_table() -> list[Run]:
    """Return the ten baselines of Tables 1 and 2 as the text has them literally, on Cora and CiteSeer."""
    counts = [clients for clients in settings.PARTITIONS if clients <= 50]
    cells = product(settings.LITERAL, counts, settings.OTHERS)
    return [run for dataset, clients, method in cells for run in settings.literal(method, dataset, clients)]


def variant(method: str, counts: Iterable[int] = (20, 30), **more: Any) -> list[Run]:
    """Return a method with some options on the graphs of `ABLATED` and on the stand-in."""
    runs = []
    for clients in counts:
        shown = clients == 20 and more.get("vectors") == "one-hot"  # in Figure 1(b), client by client
        kept: dict[str, Any] = {"series": settings.CLIENTS} if shown else {}
        runs += [run for dataset in settings.ABLATED for run in cell(method, dataset, clients, **more, **kept)]
        runs += standin(method, clients, **more, **kept)
    return runs


def personalized() -> list[Run]:
    """Return four personalized methods at 20 and 30 clients, client by client."""
    return [run for method in settings.PERSONAL for run in variant(method)]


def sheaf_and_none() -> list[Run]:
    """Return FedSheafHN with and without sheaf collaboration, 20 clients."""
    return variant(OURS, (20,)) + variant(OURS, (20,), **settings.MODULES["+ Hypernetwork"])


def modules() -> list[Run]:
    """Return the rows of Table 4: FedAvg, then one module after another."""
    return variant("FedAvg") + [run for options in settings.MODULES.values() for run in variant(OURS, **options)]


def networks() -> list[Run]:
    """Return the rows of Table 5: four networks on the collaboration graph."""
    return [run for options in settings.NETWORKS.values() for run in variant(OURS, **options)]


def readings() -> list[Run]:
    """Return other readings of what the paper leaves open, on Cora with 20 clients."""
    runs = [run for options in settings.READINGS.values() for run in cell(OURS, QUICK, 20, range(3), **options)]
    return list(dict.fromkeys(run for run in runs if _is_reading(run)))


def _is_reading(run: Run) -> bool:
    """Return whether a run is one of Table 1, or has other options than those; a reading may be that of Table 1."""
    usual = cell(OURS, run.dataset, run.clients, [run.seed])[0]
    return run == usual or run.options != {k: v for k, v in usual.options.items() if k != "series"}


def choices() -> list[Run]:
    """Return choices of ours for all methods or for FedSage+, on Cora with 20 clients, and the runs without them."""
    dropped, *generators = settings.CHOICES.values()
    rows = [(method, options) for options in (dict[str, Any](), dropped) for method in settings.METHODS]
    rows += [("FedSage+", options) for options in generators]
    return [run for method, options in rows for run in cell(method, QUICK, 20, range(3), **options)]


def fggp_readings() -> list[Run]:
    """Return FGGP under other readings of its public code, on Cora with 10 clients."""
    return [run for options in settings.FGGP_READINGS.values() for run in cell("FGGP", QUICK, 10, range(3), **options)]


TIMED = [(row, 20) for row in (OURS, "w/o Sheaf diffusion", "w/ GCN", settings.BASE_MODEL, "+ Hypernetwork")]
TIMED += [(OURS, 50), (OURS, 100)]


def server() -> list[Run]:
    """Return the benchmarks of the server: seconds and memory a round, of three seeds where a claim compares them."""
    rounds = {QUICK: 10, "Computers": 3, STANDIN: 3}
    cells = product(rounds, TIMED)
    return [run for dataset, (row, clients) in cells for run in _benchmark(row, dataset, clients, rounds[dataset])]


def _benchmark(row: str, dataset: str, clients: int, rounds: int) -> list[Run]:
    seeds = [0] if dataset == STANDIN else [0, 1, 2]
    method = "FedAvg" if row == settings.BASE_MODEL else OURS
    options = {**settings.MODULES.get(row, settings.NETWORKS.get(row, {})), "rounds": rounds, "of": method}
    options["warmup"] = None  # A round costs as much after fewer epochs.
    # All numbers of clients have METIS parts, as in the paper's table.
    runs = cell(method, dataset, 20, seeds, task="bench", name="FedSheafHN-server", **options)
    return [run.replace(clients=clients) for run in runs]


def tuning() -> list[Run]:
    """Return twelve points for every method on each graph of `TUNED`: one seed, 10 clients, few rounds."""
    tuned = partial(cell, clients=settings.TUNING_CLIENTS, seeds=[settings.TUNING_SEED])
    points = [(method, point) for method, points in settings.POINTS.items() for point in points]
    cells = [(method, dataset, point) for dataset in settings.TUNED for method, point in points]
    return [run for m, d, point in cells for run in tuned(m, d, tuned=point, rounds=settings.TUNING_ROUNDS[d])]


# --- the figures and algorithms ----------------------------------------------------------------------------------


def convergence(dataset: str) -> list[Run]:
    """Return all methods on one graph, 20 clients, round by round."""
    return [run for method in settings.METHODS for run in cell(method, dataset, 20)]


def all_curves() -> list[Run]:
    """Return the runs of the three panels of Figure 4."""
    return [run for dataset in settings.PANELS.values() for run in convergence(dataset)]


def local_epochs() -> list[Run]:
    """Return FedSheafHN for several numbers of local epochs, 20 clients (the paper does not name the partition)."""
    runs = []
    for dataset in ("Cora", "Computers"):
        for epochs in settings.LOCAL_EPOCHS:
            # The usual number is a cell of Table 1, which keeps its series.
            more: dict[str, Any] = {} if epochs == settings.EPOCHS[dataset] else {"local_epochs": epochs}
            runs += cell(OURS, dataset, 20, settings.SEEDS if dataset == QUICK else range(3), **more)
    return runs


def new_clients() -> list[Run]:
    """Return FedSheafHN with a share of the 30 clients that joins after training."""
    new = partial(cell, OURS, clients=30, task="check", name="FedSheafHN-new-clients")
    runs = [run for dataset in settings.ABLATED for ratio in settings.RATIOS for run in new(dataset, ratio=ratio)]
    few: dict[str, Any] = {"seeds": [settings.STANDIN_SEED], "rounds": settings.STANDIN_ROUNDS}
    return runs + [run for ratio in settings.RATIOS[::2] for run in new(STANDIN, ratio=ratio, **few)]


def malicious() -> list[Run]:
    """Return FedSheafHN and FED-PUB with a share of 20 clients that sends forged embeddings."""
    shares = product(settings.MALICIOUS[1:], settings.ATTACKS)
    rows = ({}, *({"malicious": share, "attack": attack} for share, attack in shares))
    return [run for method in (OURS, "FED-PUB") for more in rows for run in variant(method, (20,), **more)]


def variants() -> list[Run]:
    """Return Algorithm 1 corrected, as printed and as coded, and Local, 10 clients (SH-Q3)."""
    runs = []
    for dataset in ("Cora", "CiteSeer", "Photo"):
        for name in (OURS, "Local", *settings.VARIANTS):
            # The public code's own rate is the default of that variant. Any rate moves nothing, since Delta is zero.
            more: dict[str, Any] = {"hyper_lr": None} if name == settings.VARIANTS[1] else {}
            method = OURS if name in settings.VARIANTS else name
            seeds = range(3) if dataset == "Photo" else settings.SEEDS
            runs += cell(method, dataset, 10, seeds, name=name, **more)
    return runs


def exchanged() -> list[Run]:
    """Return the runs of Table 1 on Cora whose messages are counted: FedSheafHN's and FedAvg's."""
    return [run for run in table(10, 20) if run.method in (OURS, "FedAvg") and run.dataset == QUICK]


def diffusion() -> list[Run]:
    """Return the checks of each layer of the sheaf, on the vectors of 20 clients before and after training."""
    layers = partial(cell, OURS, clients=20, seeds=range(3), task="check", name="FedSheafHN-diffusion")
    return [run for dataset in ("Cora", "CiteSeer") for run in layers(dataset)]


# --- the data ----------------------------------------------------------------------------------------------------


GRAPHS = (*settings.DATASETS, settings.PARTLY, STANDIN)


def statistics(*counts: int, datasets: Sequence[str] = GRAPHS, seeds: Sequence[int] = settings.SEEDS) -> list[Run]:
    """Return the statistics of the whole graphs and of their parts for some numbers of clients."""
    runs = []
    for dataset in datasets:
        drawn = [settings.STANDIN_SEED] if dataset == STANDIN else list(seeds)
        whole = {**setup(dataset, 10), "partition": "single", "clients": 1}
        for fields, taken in ((whole, drawn[:1]), *((setup(dataset, clients), drawn) for clients in counts)):
            runs += check(method="FedSheafHN-statistics", seed=taken, **fields)
    return runs


def parts(*counts: int) -> list[Run]:
    """Return the manifests of Cora's partitions into some numbers of clients."""
    manifest = partial(sweep, task="partition", paper=settings.PAPER, method="manifest")
    return [run for clients in counts for run in manifest(**setup(QUICK, clients))]


# --- the exhibits ------------------------------------------------------------------------------------------------


quick = partial(keeps, dataset=[QUICK])


def small(paper: Runs, per: Sequence[str] = ("method",), methods: Sequence[str] = (), **options: Any) -> Runs:
    """Return the smoke form of a grid: one local epoch, and few parts for five overlapping clients."""

    def runs() -> list[Run]:
        kept = [run for run in paper() if not methods or run.method in methods]
        shrunk = options if kept[0].task == "partition" else {"local_epochs": 1, **options}
        return [
            run.replace(partition="overlapping-metis(parts=1)") if run.partition.startswith("overlapping") else run
            for run in smallest(kept, per, shrunk)
        ]

    return runs


def _seeds(method: str, **smoke: Any) -> Grid:
    """Return the grid of a check without a graph: five seeds, of which quick has two."""
    return Grid(partial(check, method=method, seed=range(5)), lambda run: run.seed < 2, smoke=smoke)


def _statistics(*counts: int) -> Grid:
    smoke = partial(statistics, *counts, datasets=(f"{QUICK}~standin",), seeds=(0,))
    return Grid(partial(statistics, *counts), keeps(dataset=settings.DATASETS[:2]), smoke=smoke)


def _grid(paper: Runs, kept: Callable[[Run], bool], per: Sequence[str], *, series: bool = False, **smoke: Any) -> Grid:
    return Grid(paper, kept, smoke=small(paper, per, **smoke), series=series)


def _curves(paper: Runs) -> Grid:
    # One smoke run a method serves SH-T1 and all panels, which smoke draws on one stand-in.
    return Grid(paper, quick(), smoke=_every_method, series=True)


_table1, _table2 = partial(table, 10, 20), partial(table, 30, 50)
_every_method = small(partial(convergence, QUICK))


def _quick_table1(run: Run) -> bool:
    """Keep all methods at 20 clients and three at 10."""
    return quick(clients=[20])(run) or quick(clients=[10], method=FEW)(run)


_personalized = _grid(personalized, quick(clients=[20]), ("method",), series=True)
_server = _grid(server, quick(), ("of", "vectors"), memory=False)
_new_clients = _grid(new_clients, quick(ratio=settings.RATIOS[::4]), (), ratio=0.4, rounds=SMOKE_ROUNDS)
_malicious = _grid(malicious, quick(malicious=(None, 0.4), attack=(None, "same")), ("method", "attack"))
_MODULES = ("method", "vectors", "diffusion", "attention", "refresh")

GRIDS = {
    "SH-T1": Grid(_table1, _quick_table1, smoke=_every_method),
    # Every method has its smoke run in SH-T1.
    "SH-T2": _grid(_table2, quick(clients=[30], method=FEW), ("method",), methods=("Local", OURS)),
    "SH-T1-lineage": _grid(lineage_table, lambda run: False, ("method",), methods=("Local",)),
    "SH-T1-literal": _grid(literal_table, lambda run: False, ("method",), methods=("FedAvg",)),
    "SH-T3": _personalized,
    "SH-T4": _grid(modules, quick(clients=[20]), _MODULES),
    "SH-T5": _grid(networks, quick(clients=[20]), _MODULES),
    "SH-T6": _server,
    "SH-T7": _statistics(10, 20),
    "SH-T8": _statistics(30, 50),
    "SH-T9": Grid(tuning, lambda run: False, smoke=small(tuning), seeded=False),
    "SH-F1a": _personalized,
    "SH-F1b": _grid(sheaf_and_none, quick(), ("vectors",), series=True),
    "SH-F2": _grid(exchanged, _quick_table1, ("method",)),
    "SH-F3": _grid(diffusion, quick(), ("method",)),
    **{f"SH-F4{panel}": _curves(partial(convergence, dataset)) for panel, dataset in settings.PANELS.items()},
    "SH-F5": _new_clients,
    "SH-F6": Grid(
        local_epochs,
        quick(local_epochs=(1, settings.EPOCHS[QUICK])),
        smoke=lambda: smallest(local_epochs()[:6], ("local_epochs",), {}),
    ),
    "SH-F7": _malicious,
    "SH-A1": _grid(variants, quick(), ("method",)),
    "SH-A2": _new_clients,
    "SH-A3": _malicious,
    **dict.fromkeys(("SH-I1", "SH-I2", "SH-I3"), _seeds("FedSheafHN-identities")),
    **dict.fromkeys(("SH-Th1", "SH-L1", "SH-L2", "SH-L3", "SH-L4"), _seeds("FedSheafHN-convergence", rounds=64)),
    "SH-Th2": _seeds("FedSheafHN-generalization", most_clients=16, samples=100),
    "SH-P1": Grid(partial(parts, 10, 20), per=("clients",)),
    "SH-P2": Grid(partial(parts, 30, 50), per=("clients",), smoke=small(partial(parts, 30, 50), ("clients",))),
    "SH-X1": _server,
    "SH-M1": _curves(all_curves),
    "SH-M2": _grid(
        readings, lambda run: False, ("method", *sorted({name for row in settings.READINGS.values() for name in row}))
    ),
    "SH-M3": _grid(choices, quick(method=("Local", OURS)), ("method", "input_dropout"), methods=("Local", OURS)),
    "SH-M4": _grid(fggp_readings, lambda run: False, ("method",)),
}
