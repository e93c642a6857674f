"""The runs behind Feras's exhibits.

The paper's graphs (PPI, Flickr, Reddit) are run under their names wherever they can be had, with GraphSAINT's widths,
epochs and budgets. Their stand-ins run under separate names, with narrower networks and fewer epochs, and are compared
with nothing published. The paper asks whether sharing embeddings helps the more, the larger the share kappa of nodes is
that a host cannot see. This question is answered on five real graphs, split as the paper's PPI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any

from fedrepro.reporting.exhibits import Grid, keeps, settings, smallest
from fedrepro.runs.run import Run, sweep

ISOLATED, SHARED, FERAS = METHODS = ("GraphSAINT", "GraphSAINT-SW", "Feras")
SAMPLERS = {"node": "Node", "edge": "Edge", "rw": "RW", "mrw": "MRW"}
HOSTS = (3, 5)
PUBLISHED = ("PPI", "Flickr", "Reddit")
STANDINS = tuple(f"{name}~standin" for name in PUBLISHED)
REAL = ("Photo", "Computers", "PubMed", "CS", "Physics")
SWEPT = ("Photo", "PubMed")  # kappa and q vary on these two and on PPI
TABLE_KAPPAS, KAPPAS = (40, 60), (30, 40, 50, 60)  # percent
PERIODS = (1, 5, 10, 15, 30, 70)  # of FR-F5; the paper names 1, 5, 10, 15 and the range 1 to 70
EPOCHS_A_ROUND = 5  # q of all other exhibits is a multiple of it; scores are taken once a round
SPLIT = "66/12/22"  # of PPI (FR-T1), for graphs without a published split

TABLES = settings("feras")
SEEDS = {"PPI": 5, "Flickr": 5, "Reddit": 5, "Photo": 5, "Computers": 5, "PubMed": 5, "CS": 3, "Physics": 3}
WIDE = ("CS", "Physics")  # thousands of words: kept sparse, so scaled by rows and not by columns


def seeds_of(dataset: str, most: int = 5) -> range:
    """Return the repetitions of a data set; a stand-in has one."""
    return range(min(most, SEEDS.get(dataset, 1)))


def partition(kappa: int) -> str:
    """Return the partition in which a host cannot see kappa percent of the nodes."""
    return f"private-public(kappa={kappa / 100:g})"


def cell(
    method: str, dataset: str, kappa: int, hosts: int, seeds: Iterable[int], sampler: str = "rw", **more: Any
) -> list[Run]:
    """Return the runs of one cell of Table 2, or of a sweep around it.

    Args:
        method: one of `METHODS`.
        dataset: one of `sizes` in `settings.toml`.
        kappa: percentage of nodes that a host cannot see.
        hosts: N.
        seeds: the repetitions.
        sampler: a key of `SAMPLERS`.
        more: options to add or to replace; `epochs` gives another number of them.
    """
    hidden, epochs, dropout = TABLES["sizes"][dataset]
    local = more.pop("local_epochs", EPOCHS_A_ROUND)
    if more.get("unit") == "iteration":  # then rounds are iterations, of which an epoch has two
        local, epochs = 1, 2 * epochs
    options: dict[str, Any] = {
        "layers": 3,
        "hidden": hidden,
        "dropout": dropout,
        "sampler": sampler,
        "local_epochs": local,
        "rounds": -(-more.pop("epochs", epochs) // local),
        "series": ("val_clients", "test_clients"),
        **TABLES["budgets"].get(dataset, {}).get(sampler, {}),
    }
    if dataset in STANDINS:
        options["coverage"] = 5
    if method != ISOLATED:
        options["q"] = 10
    if method == FERAS:
        options["exchange"] = "table"  # the experiments' way (FR-Q3); Algorithm 1 is one of the readings
    return sweep(
        task="train",
        paper="feras",
        method=method,
        dataset=dataset,
        prepare="unit-norm" if dataset in WIDE else "standardized",
        split="public" if dataset in (*PUBLISHED, *STANDINS) else SPLIT,
        partition=partition(kappa),
        clients=hosts,
        seed=list(seeds),
        options={**options, **more},
    )


def rows(dataset: str, kappas: Sequence[int], samplers: Iterable[str]) -> list[Run]:
    """Return isolated hosts under some samplers, and the methods that share under the random walk."""
    methods = [(ISOLATED, sampler) for sampler in samplers] + [(method, "rw") for method in METHODS[1:]]
    seeds = seeds_of(dataset)
    return [r for kappa in kappas for n in HOSTS for m, s in methods for r in cell(m, dataset, kappa, n, seeds, s)]


def table2() -> list[Run]:
    """Return isolated hosts with four samplers (stand-ins: one), and the methods that share with the random walk."""
    graphs = (*REAL, *PUBLISHED, *STANDINS)
    return [run for d in graphs for run in rows(d, TABLE_KAPPAS, ("rw",) if d in STANDINS else SAMPLERS)]


def samplers() -> list[Run]:
    """Return the other samplers for the methods that share, with three hosts: the paper chose the best of four."""
    return [
        run
        for d in (*REAL[:3], *PUBLISHED)
        for kappa in TABLE_KAPPAS
        for method in METHODS[1:]
        for sampler in ("node", "edge", "mrw")
        for run in cell(method, d, kappa, 3, seeds_of(d, most=3), sampler)
    ]


def sensitivity(kappas: Sequence[int]) -> list[Run]:
    """Return all methods with the random walk over kappa."""
    return [run for d in (*SWEPT, "PPI", STANDINS[0]) for run in rows(d, kappas, ("rw",))]


def periods() -> list[Run]:
    """Return Feras with q from 1 to 70 epochs between averages, with five hosts at kappa 40%."""
    runs = []
    for d in (*SWEPT, "PPI", STANDINS[0]):
        for q in PERIODS:
            options: dict[str, Any] = {"local_epochs": 1 if q == 1 else EPOCHS_A_ROUND, "q": q}
            options["epochs"] = 400 if d == "PPI" else 140
            runs += cell(FERAS, d, 40, 5, seeds_of(d, most=3), **options)
    return runs


MAIN = "main"


def saint() -> list[Run]:
    """Return Table 2 under the second main reading, GraphSAINT's own layer, which the experiments are said to use.

    The reading was fixed after its effect on one cell was known (Photo, kappa 60%, three hosts: FR-T2-readings). Its
    grid was fixed before any other cell was run. Everything else, scores and views included, is as in the main reading.
    """
    cells = [(d, kappa, n) for d in REAL[:3] for kappa in TABLE_KAPPAS for n in HOSTS]
    return [run for cell_ in cells for m in METHODS for run in cell(m, *cell_, range(3), layer="saint")]


def messages() -> list[Run]:
    """Return three hosts at kappa 60%, whose messages are counted: the main reading."""
    return [run for d in SWEPT for method in METHODS for run in cell(method, d, 60, 3, range(3))]


def by_reading() -> dict[str, list[Run]]:
    """Return the runs of three hosts at kappa 60% by reading: `MAIN` and those of `settings.toml`."""
    runs = {MAIN: messages()}
    for text, row in TABLES["readings"].items():
        runs[text] = [r for d in SWEPT for m in row["methods"] for r in cell(m, d, 60, 3, range(3), **row["options"])]
    return runs


def small_by_reading() -> dict[str, list[Run]]:
    """Return a short run of each method of the main reading, and of the last method of every other one."""
    short = {text: small(runs, ("method",)) for text, runs in by_reading().items()}
    return {text: runs if text == MAIN else runs[-1:] for text, runs in short.items()}


def reading_of() -> dict[str, str]:
    """Return the reading of each run by its key."""
    both = [*small_by_reading().items(), *by_reading().items()]
    return {run.key: text for text, runs in both for run in runs}


def small(runs: Iterable[Run], per: Sequence[str]) -> list[Run]:
    """Return the smoke form of training runs: one epoch a round, and weights averaged in each."""
    averaged = (run.replace(options={**run.options, "local_epochs": 1}) for run in smallest(runs, per, {}))
    return [run.replace(options={**run.options, "q": 1}) if "q" in run.options else run for run in averaged]


@cache
def _quick_readings() -> frozenset[Run]:
    """Return one run of each method of the main reading and of Feras in the first five others, on Photo."""
    kept = list(by_reading().items())[:6]
    runs = [run for text, group in kept for run in group if text == MAIN or run.method == FERAS]
    return frozenset(run for run in runs if run.dataset == "Photo" and run.seed == 0)


# --- theory, data and privacy: no training -----------------------------------------------------------------------

check = partial(sweep, task="check", paper="feras")
WIDTHS = (64, 256, 1024, 2048)  # of the attack
ATTACKED = 100  # nodes of the part of the graph on which it is tried
MASKED = (1, 16)  # messages under dropout


def statistics() -> list[Run]:
    """Return the counts of the graphs under their splits."""
    runs = [check(method="graph statistics", dataset=d, split=SPLIT) for d in REAL]
    runs += [check(method="graph statistics", dataset=d, split="public") for d in (*PUBLISHED, *STANDINS)]
    return [run for group in runs for run in group]


def partitions() -> list[Run]:
    """Return the private and public nodes for every kappa and number of hosts."""
    graphs = ("Photo", STANDINS[0])
    kinds = [partition(kappa) for kappa in KAPPAS]
    return sweep(
        task="partition", paper="feras", method="manifest", dataset=list(graphs), partition=kinds, clients=list(HOSTS)
    )


def conditions() -> list[Run]:
    """Return whether Lemma 4.2's conditions hold at the settings of the experiments (FR-L1-settings)."""
    return check(
        method="feras-conditions",
        dataset=list(REAL[:3]),
        split=SPLIT,
        prepare=["standardized", "unit-norm"],
        partition=partition(60),
        clients=3,
        options={"hidden": 128},
    )


def privacy() -> list[Run]:
    """Return the attack on shared embeddings for several depths, widths, kappas and numbers of messages.

    All messages are clean but those of the last runs. These have the dropout and the width with which Feras is trained
    on the graph, and the width at which one clean message gives every feature away.
    """
    shared: dict[str, Any] = {"task": "attack", "paper": "feras", "method": "feras-inversion", "dataset": list(SWEPT)}
    shared |= {"prepare": "standardized", "split": SPLIT, "clients": 3}
    wide = {"depth": [1, 2], "hidden": list(WIDTHS), "nodes": ATTACKED}
    several = {"depth": 1, "hidden": list(WIDTHS[1:3]), "nodes": ATTACKED, "observations": [4, 16]}
    runs = sweep(partition=[partition(30), partition(60)], options=wide, seed=range(3), **shared)
    runs += sweep(partition=partition(60), options=several, seed=range(3), **shared)
    for dataset in SWEPT:
        width, _, dropout = TABLES["sizes"][dataset]
        masked = {"depth": 1, "hidden": [width, WIDTHS[-1]], "nodes": ATTACKED, "dropout": dropout}
        for count in MASKED:
            more = {"observations": count} if count > 1 else {}
            setting = {**shared, "dataset": dataset, "partition": partition(60), "options": masked | more}
            runs += sweep(seed=range(3), **setting)
    return runs


# --- the exhibits ------------------------------------------------------------------------------------------------


def is_quick(run: Run) -> bool:
    """Keep two repetitions of three hosts on Photo with the random walk, and one isolated run of each other sampler."""
    if run.dataset != "Photo" or run.clients != 3:
        return False
    usual = run.options["sampler"] == "rw" and run.seed < 2
    return usual or (run.method == ISOLATED and run.seed == 0 and run.partition == partition(60))


def is_quick_kappa(run: Run) -> bool:
    """Keep three hosts on Photo, with a second repetition at the values of kappa of Table 2."""
    repetitions = 2 if run.partition in [partition(kappa) for kappa in TABLE_KAPPAS] else 1
    return run.dataset == "Photo" and run.clients == 3 and run.seed < repetitions


def is_quick_attack(run: Run) -> bool:
    """Keep attacks of one message: a fit to several takes many minutes."""
    first = run.dataset == "Photo" and run.seed == 0 and run.partition == partition(60)
    depth, hidden = run.options["depth"], run.options["hidden"]
    return first and "observations" not in run.options and (hidden in (64, 1024) or (depth, hidden) == (1, 2048))


def _trained(
    runs: Callable[[], list[Run]], quick: Callable[[Run], bool], per: Sequence[str] = ("method",), series: bool = False
) -> Grid:
    return Grid(runs, quick, smoke=lambda: small(runs(), per), series=series)


_identities = Grid(partial(check, method="feras-identities"))
_contraction = Grid(partial(check, method="feras-contraction", options={"trials": 200}), smoke={"trials": 20})
_periods = Grid(
    periods,
    keeps(dataset=["Photo"], q=(10, 70)),
    smoke=lambda: smallest(periods(), ("q",), {"local_epochs": 1})[:2],
    series=True,
)

GRIDS = {
    "FR-T1": Grid(statistics, lambda run: run.dataset in (*REAL, STANDINS[0])),
    "FR-T2": _trained(table2, is_quick, ("method", "sampler")),
    "FR-F3a": _trained(partial(sensitivity, (30, 40)), is_quick_kappa, series=True),
    "FR-F3b": _trained(partial(sensitivity, (50, 60)), is_quick_kappa, series=True),
    "FR-F4": _trained(partial(sensitivity, KAPPAS), is_quick_kappa),
    "FR-F5": _periods,
    "FR-X1": _periods,
    "FR-P1": Grid(partitions, lambda run: True, per=("partition", "clients")),
    "FR-F2": _trained(messages, keeps(dataset=["Photo"])),
    "FR-T2-readings": Grid(
        lambda: [run for runs in by_reading().values() for run in runs],
        lambda run: run in _quick_readings(),
        smoke=lambda: [run for runs in small_by_reading().values() for run in runs],
    ),
    "FR-T2-saint": _trained(saint, lambda run: False),
    "FR-T2-samplers": _trained(samplers, lambda run: False, ("method", "sampler")),
    **dict.fromkeys(("FR-F1", "FR-A1", "FR-A2", "FR-I1", "FR-I2", "FR-C1", "FR-C2", "FR-C3"), _identities),
    **dict.fromkeys(("FR-Th1", "FR-Th2", "FR-L1", "FR-L2"), _contraction),
    "FR-L1-settings": Grid(conditions, keeps(dataset=["Photo"])),
    "FR-Th3": Grid(partial(check, method="feras-rate", options={"steps": 200}), smoke={"steps": 50}),
    "FR-Th4": Grid(
        partial(check, method="feras-looser", options={"trials": [500, 5000]}),
        keeps(trials=[500]),
        smoke={"trials": 50},
    ),
    "FR-privacy": Grid(privacy, is_quick_attack, per=("depth", "dropout"), smoke={"nodes": 60, "steps": 20}),
}
