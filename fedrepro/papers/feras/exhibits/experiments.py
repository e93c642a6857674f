"""Feras: the runs behind its exhibits. Its tables are in `feras_tables`, its claims in `feras_claims`,
its theory in `feras_theory`.

The paper's graphs (PPI, Flickr, Reddit) are wanted under their names wherever they can be had, with GraphSAINT's
widths and epochs. Their stand-ins run under their own names with narrower networks and fewer epochs, and are held
against nothing published. The paper's question, whether sharing embeddings helps the more the larger the share kappa
of nodes that a host cannot see, is answered on five real graphs, split as the paper's PPI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fedrepro.papers.feras.exhibits import theory as feras_theory
from fedrepro.papers.feras.exhibits.claims import CLAIMS as CLAIMS
from fedrepro.papers.feras.exhibits.tables import HOSTS, ISOLATED, METHODS, SAMPLERS
from fedrepro.reporting.legacy import Exhibit
from fedrepro.runs.run import Run, sweep

PUBLISHED = ("PPI", "Flickr", "Reddit")
STANDINS = tuple(f"{name}~standin" for name in PUBLISHED)
REAL = ("Photo", "Computers", "PubMed", "CS", "Physics")
SWEPT = ("Photo", "PubMed")  # kappa and q vary on these two beside PPI
SMOKE = "Cora~standin"
TABLE_KAPPAS, KAPPAS = (40, 60), (30, 40, 50, 60)
SERIES = ("val_clients", "test_clients")
PERIODS = (1, 5, 10, 15, 30, 70)  # of FR-F5; the paper names 1, 5, 10, 15 and the range 1 to 70
EPOCHS_A_ROUND = 5  # q of all other exhibits is a multiple of it; scores are taken once a round
SPLIT = "66/12/22"  # of PPI (FR-T1), for graphs without a split of their own

# (hidden, epochs, dropout). The paper's graphs as in GraphSAINT's configurations, of which PPI needs 400 epochs.
SIZES: dict[str, tuple[int, int, float]] = {
    "PPI": (512, 400, 0.1),
    "Flickr": (256, 30, 0.2),
    "Reddit": (128, 40, 0.1),
    "PPI~standin": (128, 60, 0.1),
    "Flickr~standin": (64, 20, 0.2),
    "Reddit~standin": (64, 10, 0.1),
    **dict.fromkeys(REAL, (128, 40, 0.1)),
    SMOKE: (16, 2, 0.1),
}
SEEDS = {"PPI": 5, "Flickr": 5, "Reddit": 5, "Photo": 5, "Computers": 5, "PubMed": 5, "CS": 3, "Physics": 3}
WIDE = ("CS", "Physics")  # thousands of words: kept sparse, so scaled by rows and not by columns


def seeds_of(dataset: str, profile: str, quick: int = 0) -> range:
    """Which repetitions of a data set a profile computes."""
    return range({"smoke": 1, "quick": quick, "paper": SEEDS.get(dataset, 1)}[profile])


def common(dataset: str, kappa: int, hosts: int, seeds: Iterable[int]) -> dict[str, Any]:
    """What every run on a graph shares: its preparation, its split and the partition into hosts."""
    return {
        "paper": "feras",
        "dataset": dataset,
        "prepare": "unit-norm" if dataset in WIDE else "standardized",
        "split": "public" if dataset.removesuffix("~standin") in PUBLISHED else SPLIT,
        "partition": f"private-public(kappa={kappa / 100:g})",
        "clients": hosts,
        "seed": list(seeds),
    }


def cell(
    method: str, dataset: str, kappa: int, hosts: int, seeds: Sequence[int], sampler: str = "rw", **more: Any
) -> list[Run]:
    """The runs of one cell of FR-T2, or of a sweep around it.

    Args:
        method: one of `METHODS`.
        dataset: a key of `SIZES`.
        kappa: percentage of nodes that a host cannot see.
        hosts: N.
        sampler: a key of `SAMPLERS`.
        more: options beyond the cell's own, or in their place; `epochs` for another number of them.
    """
    hidden, epochs, dropout = SIZES[dataset]
    each = more.pop("local_epochs", 1 if dataset == SMOKE else EPOCHS_A_ROUND)
    if more.get("unit") == "iteration":  # then rounds are iterations, of which an epoch has two
        each, epochs = 1, 2 * epochs
    options: dict[str, Any] = {
        "layers": 3, "hidden": hidden, "dropout": dropout, "sampler": sampler, "local_epochs": each,
        "rounds": -(-more.pop("epochs", epochs) // each), "series": SERIES,
    }  # fmt: skip
    if dataset.endswith("~standin"):
        options["coverage"] = 5
    if method != ISOLATED:
        options["q"] = 1 if dataset == SMOKE else 10
    if method == "Feras":
        options["exchange"] = "table"  # FR-Q3: the experiments' way; Algorithm 1 stands beside it in `readings`
    shared = common(dataset, kappa, hosts, seeds)
    return sweep(task="train", method=method, options={**options, **more}, **shared)


def table2(profile: str) -> list[Run]:
    """FR-T2: isolated hosts with four samplers (stand-ins: one); shared weights and Feras with the random walk."""
    if profile == "smoke":
        return _rows(SMOKE, (60,), (3,), range(1), SAMPLERS)
    if profile == "quick":
        others = [r for s in SAMPLERS if s != "rw" for r in cell(ISOLATED, "Photo", 60, 3, [0], s)]
        return _rows("Photo", TABLE_KAPPAS, (3,), range(2), ("rw",)) + others
    return [
        run
        for d in (*REAL, *PUBLISHED, *STANDINS)
        for run in _rows(d, TABLE_KAPPAS, HOSTS, seeds_of(d, profile), ("rw",) if d in STANDINS else SAMPLERS)
    ]


def _rows(
    dataset: str, kappas: Sequence[int], hosts: Sequence[int], seeds: range, samplers: Iterable[str]
) -> list[Run]:  # fmt: skip
    """Isolated hosts under these samplers, and the methods that share under the random walk."""
    rows = [(ISOLATED, sampler) for sampler in samplers] + [(method, "rw") for method in METHODS[1:]]
    return [
        run for kappa in kappas for n in hosts for m, s in rows for run in cell(m, dataset, kappa, n, seeds, s)
    ]  # fmt: skip


def samplers(profile: str) -> list[Run]:
    """The other three samplers for shared weights and Feras, three hosts: the paper chose the best of four."""
    graphs = {"smoke": (SMOKE,), "quick": (), "paper": (*REAL[:3], *PUBLISHED)}[profile]
    kappas, others = (60,) if profile == "smoke" else TABLE_KAPPAS, ("node", "edge", "mrw")
    return [
        run
        for d in graphs
        for kappa in kappas
        for method in METHODS[1:]
        for sampler in (others[:1] if profile == "smoke" else others)
        for run in cell(method, d, kappa, 3, range(min(3, len(seeds_of(d, profile)))), sampler)
    ]


def sensitivity(kappas: Sequence[int]) -> Callable[[str], list[Run]]:
    """FR-F3a, F3b, F4: all methods with the random walk over kappa; runs of FR-T2 where that has them."""

    def grid(profile: str) -> list[Run]:
        if profile == "smoke":
            return _rows(SMOKE, kappas[-1:], (3,), range(1), ("rw",))
        if profile == "quick":
            return [r for k in kappas for r in _rows("Photo", (k,), (3,), range(1 + (k in TABLE_KAPPAS)), ("rw",))]
        graphs = (*SWEPT, "PPI", STANDINS[0])
        return [r for d in graphs for r in _rows(d, kappas, HOSTS, seeds_of(d, "paper"), ("rw",))]

    return grid


def periods(profile: str) -> list[Run]:
    """FR-F5: Feras with q from 1 to 70 epochs between averages, five hosts, kappa 40%."""
    graphs = {"smoke": (SMOKE,), "quick": ("Photo",), "paper": (*SWEPT, "PPI", STANDINS[0])}[profile]
    chosen = PERIODS if profile == "paper" else (10, 70) if profile == "quick" else (1, 2)
    runs = []
    for d in graphs:
        epochs = {"smoke": 2, "paper": 400 if d == "PPI" else 140, "quick": 140}[profile]
        for q in chosen:
            each = 1 if q == 1 or profile == "smoke" else EPOCHS_A_ROUND
            seeds = range(min(3, len(seeds_of(d, profile, 1))))
            runs += cell("Feras", d, 40, 5, seeds, epochs=epochs, local_epochs=each, q=q)
    return runs


# What the text leaves open, one departure from the main reading at a time (FR-Q2, Q3, Q4, Q6, Q12, and the host's
# knowledge of the topology); the second to the fourth depart from the first, Algorithm 1's average, instead.
# A departure of training alone is run for Feras, one that also concerns others for all.
READINGS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "average at the same iteration (Algorithm 1)": ({"exchange": "average"}, METHODS[2:]),
    "the same, own embedding if no owner sampled": ({"exchange": "average", "absent": "own"}, METHODS[2:]),
    "gradients into received embeddings": ({"exchange": "average", "gradient": "through"}, METHODS[2:]),
    "weights averaged every iteration": (
        {"exchange": "average", "unit": "iteration", "q": 1}, METHODS[2:],
    ),
    "labels of unseen nodes in the loss": ({"labels": "all"}, METHODS),
    "scored on visible nodes only": ({"evaluate": "visible"}, METHODS),
    "edges among visible nodes only": ({"topology": "visible"}, METHODS[:2]),
    "GraphSAINT's layer": ({"layer": "saint"}, METHODS),
    "without GraphSAINT's coefficients": ({"normalise": False}, METHODS),
    "the whole graph at each step": ({"sampler": "full"}, METHODS),
}  # fmt: skip


def messages(profile: str) -> list[Run]:
    """FR-F2: three hosts at kappa 60%, whose messages are counted; the main reading of `readings`."""
    return [run for d, seeds in _read(profile) for method in METHODS for run in cell(method, d, 60, 3, seeds)]


def by_reading(profile: str) -> dict[str, list[Run]]:
    """FR-T2's cell of three hosts and kappa 60%: "main", and every reading of `READINGS`."""
    found = {"main": messages(profile)}
    for text, (options, methods) in list(READINGS.items())[: 5 if profile == "quick" else None]:
        named = methods if profile == "paper" else methods[-1:]
        found[text] = [r for d, seeds in _read(profile) for m in named for r in cell(m, d, 60, 3, seeds, **options)]
    return found


def readings(profile: str) -> list[Run]:
    """The runs of all readings."""
    return [run for runs in by_reading(profile).values() for run in runs]


def _read(profile: str) -> list[tuple[str, range]]:
    """Graphs and repetitions of the readings."""
    graphs = {"smoke": (SMOKE,), "quick": ("Photo",), "paper": SWEPT}[profile]
    return [(d, range(3 if profile == "paper" else 1)) for d in graphs]


def statistics(profile: str) -> list[Run]:
    """FR-T1: counts of the graphs under their splits."""
    graphs = {"smoke": (SMOKE,), "quick": (*REAL, STANDINS[0]), "paper": (*REAL, *PUBLISHED, *STANDINS)}[profile]
    return [
        Run("check", "feras", "graph statistics", d, split="public" if d in (*PUBLISHED, *STANDINS) else SPLIT)
        for d in graphs
    ]


def speed(profile: str) -> list[Run]:
    """What an epoch takes on PPI's size, against the number of hosts, and in memory on Reddit's size (FR-Q11)."""
    if profile == "smoke":
        return [Run("bench", "feras", "feras", SMOKE, options={"what": "epoch", "repeats": 1, "epochs": 1})]
    cases = [("epoch", STANDINS[0]), ("hosts", STANDINS[0]), ("memory", STANDINS[2])]
    return [Run("bench", "feras", "feras", d, options={"what": w}) for w, d in cases[: 1 if profile == "quick" else 3]]


def partitions(profile: str) -> list[Run]:
    """FR-P1: private and public nodes for every kappa and number of hosts."""
    graphs = (SMOKE,) if profile == "smoke" else ("Photo", STANDINS[0])
    runs = []
    for d in graphs:
        for kappa in KAPPAS:
            for n in HOSTS:
                shared = common(d, kappa, n, range(1)) | {"prepare": "", "split": ""}
                runs += sweep(task="partition", method="manifest", **shared)
    return runs


APPROACH, EXPERIMENTS = "feras/3-feras", "feras/5-experiments"
EXHIBITS = [
    *(Exhibit(name, "feras", EXPERIMENTS, title, grid) for name, title, grid in (
        ("FR-T1", "Counts of the graphs", statistics),
        ("FR-T2", "F1-micro at kappa 40% and 60%", table2),
        ("FR-F3a", "Convergence at kappa 30% and 40%", sensitivity((30, 40))),
        ("FR-F3b", "Convergence at kappa 50% and 60%", sensitivity((50, 60))),
        ("FR-F4", "F1-micro against kappa", sensitivity(KAPPAS)),
        ("FR-F5", "Convergence for q from 1 to 70 epochs", periods),
        ("FR-X1", "Does q change the rate?", periods),
        ("FR-speed", "What an epoch takes", speed),
    )),
    Exhibit("FR-P1", "feras", APPROACH, "Private and public nodes", partitions),
    Exhibit("FR-F2", "feras", APPROACH, "What is sent in an epoch", messages),
    Exhibit("FR-T2-readings", "feras", APPROACH, "What the text leaves open", readings),
    Exhibit("FR-T2-samplers", "feras", APPROACH, "Every sampler for the methods that share", samplers),
    *feras_theory.EXHIBITS,
]  # fmt: skip
