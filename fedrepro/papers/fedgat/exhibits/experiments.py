"""FedGAT: the runs behind its exhibits, its deviations and its claims.

FedGAT and DistGAT exist in two readings. "text" is what the paper describes: weights are averaged, the clients take
Adam's steps, learning rate and regularization are chosen on validation. "code" is what the authors' public code does:
gradients are aggregated, the server takes Adam's steps, with its own scores, rates and rounds. The central models and
FedGCN have one reading, which stands in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedrepro.reporting.compare import Claim, Paired, common, judge, limit
from fedrepro.reporting.legacy import Exhibit
from fedrepro.runs.run import Run, sweep

if TYPE_CHECKING:
    import pandas as pd

DATASETS = ("Cora", "CiteSeer", "PubMed")
NON_IID, IID = "dirichlet(beta=1)", "dirichlet(beta=10000)"
AGGREGATED = " (FedSGD)"  # ends the names of methods whose gradients are aggregated
ROUNDS = 100
READINGS = ("text", "code")
TUNING_ROUNDS, TUNING_SEED = 30, 100  # a seed that no reported run uses

# (learning rate, weight decay) of Adam: the paper's pair, the public code's, and four smaller steps, the last of which
# is the GCN's own. What a federated method's own paper trains it with is among the points tried for it (FG-Q12b).
Point = dict[str, Any]
GRID = ((0.1, 0.001), (0.06, 0.002), (0.03, 0.001), (0.03, 0.0005), (0.01, 0.001), (0.01, 0.0005))
PAIRS: tuple[Point, ...] = tuple({"lr": lr, "weight_decay": decay} for lr, decay in GRID)
OWN: dict[str, Point] = {"FedGCN": {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0.0005, "local_epochs": 3}}
LITERAL = PAIRS[0]
# The public code's learning rate, weight decay and rounds.
CODE = {
    "Cora": ({"lr": 0.06, "weight_decay": 0.002}, 35),
    "CiteSeer": ({"lr": 0.06, "weight_decay": 0.002}, 35),
    "PubMed": ({"lr": 0.04, "weight_decay": 0.003}, 30),
}

# Rows of FG-T1: the published method's name -> the registered method, its model, and its partitions.
ROWS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "GCN": ("Central", {"model": "GCN", "hidden": 16}, ("single",)),
    "GAT": ("Central", {"model": "GAT", "hidden": 8, "heads": 8}, ("single",)),
    "DistGAT": ("DistGAT", {"model": "GAT", "hidden": 8, "heads": 8}, (NON_IID, IID)),
    "FedGCN": ("FedGCN", {"model": "GCN", "hidden": 16, "hops": 2}, (NON_IID, IID)),
    "FedGAT": ("FedGAT", {"model": "GAT", "hidden": 8, "heads": 8, "degree": 16, "interval": 4.0}, (NON_IID, IID)),
}

# Places in `tried` chosen by validation: data set -> (row, partition) -> place.
CHOSEN: dict[str, dict[tuple[str, str], int]] = {
    "Cora": {
        ("GCN", "single"): 2,
        ("GAT", "single"): 5,
        ("DistGAT", NON_IID): 0,
        ("DistGAT", IID): 0,
        ("FedGCN", NON_IID): 6,
        ("FedGCN", IID): 6,
        ("FedGAT", NON_IID): 0,
        ("FedGAT", IID): 0,
    },
    "CiteSeer": {
        ("GCN", "single"): 3,
        ("GAT", "single"): 1,
        ("DistGAT", NON_IID): 0,
        ("DistGAT", IID): 1,
        ("FedGCN", NON_IID): 6,
        ("FedGCN", IID): 6,
        ("FedGAT", NON_IID): 2,
        ("FedGAT", IID): 3,
    },
    "PubMed": {
        ("GCN", "single"): 1,
        ("GAT", "single"): 4,
        ("DistGAT", NON_IID): 3,
        ("DistGAT", IID): 0,
        ("FedGCN", NON_IID): 6,
        ("FedGCN", IID): 0,
        ("FedGAT", NON_IID): 0,
        ("FedGAT", IID): 0,
    },
}


def cell(
    row: str, dataset: str, partition: str, point: Point, seeds: range | list[int], rounds: int = ROUNDS,
    clients: int = 10, **more: Any,
) -> list[Run]:  # fmt: skip
    """The runs of one cell of FG-T1, or of a sweep around it.

    Args:
        row: a key of `ROWS`.
        point: learning rate, weight decay and whatever else of the optimizer is not the default.
        clients: of a federated row.
        more: options beyond the row's own, or in their place.
    """
    method, options, _ = ROWS[row]
    heads = {"output_heads": 8} if row not in ("GCN", "FedGCN") and dataset.startswith("PubMed") else {}
    options = {**options, **heads, **point, "rounds": rounds, **more}
    return sweep(
        task="train", paper="fedgat", method=method, dataset=dataset, prepare="unit-norm", split="public",
        partition=partition, clients=1 if partition == "single" else clients, seed=list(seeds), options=options,
    )  # fmt: skip


def cells(datasets: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """(row, dataset, partition) of every cell of FG-T1 on these data sets, in the paper's order."""
    return [(row, d, p) for d in datasets for row, (_, _, partitions) in ROWS.items() for p in partitions]


def tried(row: str) -> tuple[Point, ...]:
    """The points of a row on validation: the six pairs, and what the method's own paper trains it with."""
    return (*PAIRS, *([OWN[row]] if row in OWN else []))


def tuning(profile: str) -> list[Run]:
    """All points on one seed; 30 rounds, or 100 for the points of a row whose own settings are made for 100."""
    if profile == "smoke":
        points = cells(("Cora~standin",))
        return [r for row, d, p in points for r in cell(row, d, p, PAIRS[2], [TUNING_SEED], rounds=2)]
    datasets = DATASETS if profile == "paper" else ("Cora",)
    return [
        run
        for row, d, p in cells(datasets)
        for point in tried(row)
        for run in cell(row, d, p, point, [TUNING_SEED], ROUNDS if row in OWN else TUNING_ROUNDS)
    ]


def tuned(frame: pd.DataFrame) -> pd.DataFrame:
    """Validation accuracy of the tuning runs, a row a cell of FG-T1 and a column a point tried."""
    frame = named_rows(frame)
    pair = "lr " + frame["lr"].astype(str) + ", decay " + frame["weight_decay"].astype(str)
    if "optimizer" in frame:  # which the pairs leave at its default
        pair = pair.mask(frame["optimizer"].eq("sgd"), "its own paper's")
    frame = frame.assign(point=pair)
    keys = ["dataset", "method", "partition", "rounds"]
    wide = frame.pivot_table(index=keys, columns="point", values="before.best.val", sort=False)
    return wide.rename_axis(columns=None).reset_index()


def chosen(row: str, dataset: str, partition: str) -> Point:
    """The point of `tried` with the highest validation accuracy in the stored tuning runs (the first of equals).

    A test recomputes the table above from the store.
    """
    return tried(row)[CHOSEN[dataset][(row, partition)]]


def table1(profile: str) -> list[Run]:
    """FG-T1 at the points chosen on validation."""
    return _table1(profile, chosen)


def table1_literal(profile: str) -> list[Run]:
    """FG-T1 at the paper's pair: learning rate 0.1, regularization 0.001, for every method."""
    return _table1(profile, lambda *_: LITERAL)


def _table1(profile: str, point: Callable[[str, str, str], Point]) -> list[Run]:
    if profile == "smoke":
        points = cells(("Cora~standin",))
        return [r for row, d, p in points for r in cell(row, d, p, point(row, "Cora", p), range(2), rounds=2)]
    seeds = {
        "quick": {"Cora": range(3), "CiteSeer": range(2), "PubMed": range(1)},
        "paper": {dataset: range(10) for dataset in DATASETS},
    }[profile]
    return [run for row, d, p in cells(DATASETS) for run in cell(row, d, p, point(row, d, p), seeds[d])]


def table1_code(profile: str) -> list[Run]:
    """FG-T1's FedGAT and DistGAT in the code's reading (FG-Q12c): aggregated gradients, Adam at the server, FedGAT's
    scores without exponential on [-5, 5], one output head, the code's rates and rounds.
    """
    seeds = {"smoke": {"Cora~standin": range(1)}, "quick": {"Cora": range(2)}}.get(
        profile, {dataset: range(10) for dataset in DATASETS}
    )
    scores: dict[str, Point] = {"DistGAT": {}, "FedGAT": {"score": "code", "interval": 5.0}}
    out = []
    for dataset, some in seeds.items():
        point, rounds = CODE[dataset.removesuffix("~standin")]
        rounds = 2 if profile == "smoke" else rounds
        for row, more in scores.items():
            for partition in (NON_IID, IID):
                out += cell(row, dataset, partition, point, some, rounds, output_heads=1, **more)
    return [run.replace(method=f"{run.method}{AGGREGATED}") for run in out]


def steps(profile: str) -> list[Run]:
    """FG-Q12b: FedGAT with the steps of FedGCN's own paper, gradient descent and three of them a round, on Cora."""
    smoke = profile == "smoke"
    seeds, rounds = (range(1), 2) if smoke else (range(1 if profile == "quick" else 3), ROUNDS)
    name = "Cora~standin" if smoke else "Cora"
    return [r for p in (NON_IID, IID) for r in cell("FedGAT", name, p, OWN["FedGCN"], seeds, rounds)]


def statistics(profile: str) -> list[Run]:
    """FG-T2: counts of the three graphs under the public split."""
    datasets = ("Cora~standin",) if profile == "smoke" else DATASETS
    return sweep(
        task="check", paper="fedgat", method="graph statistics", dataset=datasets, prepare="unit-norm", split="public"
    )


# FG-F2: accuracy against the number of clients; the paper says 1 to 20, not which. FG-F6 draws the same for Vector
# FedGAT, whose layer is the same function of the same weights: its accuracies are FedGAT's, its messages are not.
CLIENTS = (1, 2, 5, 10, 15, 20)
DEGREES = (2, 4, 8, 12, 16, 24, 32)
PANELS = {"a": ("Cora", NON_IID), "b": ("Cora", IID), "c": ("CiteSeer", NON_IID), "d": ("CiteSeer", IID)}
PARTLY_IID = "dirichlet(beta=100)"
BETAS = {"a": NON_IID, "b": PARTLY_IID, "c": IID}


def figure2(panel: str) -> Callable[[str], list[Run]]:
    """FG-F2a to d: FedGAT, FedGCN and DistGAT over the number of clients, with the points chosen at 10 clients.

    Three seeds; six of FedGAT and DistGAT at the smallest and the largest number, which FG-C2-clients compares.
    """
    dataset, partition = PANELS[panel]

    def seeds(profile: str, row: str, clients: int) -> range:
        ends = profile == "paper" and row != "FedGCN" and clients in (CLIENTS[0], CLIENTS[-1])
        return range(6 if ends else 3 if profile == "paper" else 1)

    def grid(profile: str) -> list[Run]:
        rounds = 2 if profile == "smoke" else ROUNDS
        counts = {"smoke": (2, 5), "quick": (2, 10), "paper": CLIENTS}[profile]
        name = f"{dataset}~standin" if profile == "smoke" else dataset
        if profile == "quick" and dataset != "Cora":
            return []
        points = {row: chosen(row, dataset, partition) for row in ("FedGAT", "FedGCN", "DistGAT")}
        return [
            run
            for n in counts
            for row, point in points.items()
            for run in cell(row, name, partition, point, seeds(profile, row, n), rounds, n)
        ]

    return grid


def figure5(panel: str) -> Callable[[str], list[Run]]:
    """FG-F5a to c: FedGAT over the degree of its polynomial on Cora, 10 clients (the paper does not say how many)."""
    partition = BETAS[panel]

    def grid(profile: str) -> list[Run]:
        smoke = profile == "smoke"
        seeds, rounds = (range(1), 2) if smoke else (range(1 if profile == "quick" else 3), ROUNDS)
        degrees = {"smoke": (2, 8), "quick": (8, 16), "paper": DEGREES}[profile]
        name = "Cora~standin" if smoke else "Cora"
        at = NON_IID if partition == NON_IID else IID
        ours, cut = (chosen(row, "Cora", at) for row in ("FedGAT", "DistGAT"))
        runs = [r for d in degrees for r in cell("FedGAT", name, partition, ours, seeds, rounds, degree=d)]
        return runs + cell("DistGAT", name, partition, cut, seeds, rounds)

    return grid


def lone_neighbours(profile: str) -> list[Run]:
    """FG-X3: FedGAT with the one-neighbour rule (FG-Q8) off and on, 10 clients."""
    datasets = {"smoke": ("Cora~standin",), "quick": ("Cora",), "paper": ("Cora", "CiteSeer")}[profile]
    seeds, rounds = (range(1), 2) if profile == "smoke" else (range(1 if profile == "quick" else 3), ROUNDS)
    return [
        run
        for d in datasets
        for p in (NON_IID, IID)
        for rule in ("kept", "dropped")
        for run in _lone(d, p, rule, seeds, rounds)
    ]


def _lone(dataset: str, partition: str, rule: str, seeds: range, rounds: int) -> list[Run]:
    point = chosen("FedGAT", dataset.removesuffix("~standin"), partition)
    more: dict[str, Any] = {"lone_neighbour": rule} if rule == "dropped" else {}  # a kept one is a run of FG-T1
    return cell("FedGAT", dataset, partition, point, seeds, rounds, **more)


def named_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame of runs with each method under its name in FG-T1: central runs under their model's, and those with
    aggregated gradients under that of what they train.
    """
    if "model" not in frame:  # nothing stored
        return frame
    central = frame["method"] == "Central"
    names = frame["method"].where(~central, frame["model"])
    return frame.assign(method=names.str.removesuffix(AGGREGATED))


def exchanged(profile: str) -> list[Run]:
    """FG-F1: the diagram's messages, counted in FedGAT's runs of FG-T1 on Cora."""
    return [run for run in table1(profile) if run.method == "FedGAT" and run.dataset.startswith("Cora")]


def price(profile: str) -> list[Run]:
    """FG-M1: a round of FedGAT and of DistGAT on Cora, 10 clients, i.i.d. labels."""
    name, rounds = ("Cora~standin", 2) if profile == "smoke" else ("Cora", 20)
    more: dict[str, Any] = {"repeats": 1, "memory": False} if profile == "smoke" else {}
    return [
        run.replace(task="bench", method="training", options={"of": run.method, **run.options, **more})
        for row in ("DistGAT", "FedGAT")
        for run in cell(row, name, IID, LITERAL, range(1), rounds)
    ]


TIMES, GIBIBYTES = 8.0, 1.5  # a round of FedGAT may cost so many of DistGAT's, and need so much memory


def price_checks(frame: pd.DataFrame) -> list[dict[str, str]]:
    """FedGAT's round against DistGAT's: rows of id, statement, measured, bound, verdict."""
    columns = ("timing.seconds_per_round", "timing.peak_mebibytes")  # the smoke profile measures no memory: None
    seconds, memory = ({} if frame.empty else frame.set_index("of")[c].astype(float).to_dict() for c in columns)
    times = seconds.get("FedGAT", math.nan) / seconds.get("DistGAT", math.nan)
    return [
        limit("FG-M1-time", "a round of FedGAT over one of DistGAT, Cora, 10 clients, degree 16", times,
                      most=TIMES),
        limit("FG-M1-memory", "FedGAT's largest memory in GiB, libraries included",
                      memory.get("FedGAT", math.nan) / 1024, most=GIBIBYTES),
    ]  # fmt: skip


def means(frame: pd.DataFrame, by: str = "clients") -> pd.DataFrame:
    """Mean, standard deviation and number of runs of the test accuracy per method and value of `by`."""
    groups = frame.groupby(["dataset", "partition", "method", by], sort=False)["test accuracy"]
    return groups.agg(["mean", "std", "count"]).rename(columns={"count": "runs"}).reset_index()


# -- the headline claims, judged on FG-T1 ----------------------------------------------------------------------------

SCORE = "before.best.test"
NEAR = 0.01  # "nearly the same accuracy": within one point
Part = tuple[Paired | None, float, float]


def _scores(frame: pd.DataFrame, row: str, dataset: str, partition: str) -> pd.Series:
    chosen = frame[(frame["method"] == row) & (frame["dataset"] == dataset) & (frame["partition"] == partition)]
    return chosen.set_index("seed")[SCORE].sort_index()


def _gap(frame: pd.DataFrame, a: tuple[str, str, str], b: tuple[str, str, str]) -> Paired | None:
    """Scores of cell `a` minus those of cell `b` on common seeds; None below two of them."""
    return common(_scores(frame, *a), _scores(frame, *b))


def _change(frame: pd.DataFrame, row: str) -> pd.Series:
    """A row's score at the largest number of clients minus that at the smallest, by seed."""
    runs = frame[frame["method"] == row]
    if "clients" not in runs or runs["clients"].nunique() < 2:
        return runs.set_index("seed")[SCORE].iloc[:0]
    wide = runs.pivot(index="seed", columns="clients", values=SCORE)
    return wide[wide.columns.max()] - wide[wide.columns.min()]


def _tables(get: Callable[..., pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """FG-T1 by reading; the central models and FedGCN, which have one, stand in both."""
    import pandas

    text, code, ours = get("FG-T1"), get("FG-T1-code"), ["FedGAT", "DistGAT"]
    return {
        "text": text,
        "code": pandas.concat([text[~text["method"].isin(ours)], code[code["method"].isin(ours)]]),
    }


def _over(get: Callable[..., pd.DataFrame], row: str, low: float, high: float = math.inf) -> dict[str, Part]:
    """FedGAT minus another row of FG-T1 in each cell and both readings, and the range claimed."""
    central = ROWS[row][2] == ("single",)
    return {
        f"{d}, {NAMES[p]}, {reading}, over {row}": (
            _gap(table, ("FedGAT", d, p), (row, d, "single" if central else p)), low, high,
        )
        for reading, table in _tables(get).items() for d in DATASETS for p in (NON_IID, IID)
    }  # fmt: skip


def _claim_central(get: Callable[..., pd.DataFrame]) -> tuple[str, str]:
    """FedGAT minus central GAT, paired over seeds, both readings: the interval lies above -1 point."""
    return judge(_over(get, "GAT", -NEAR), scale=100)


def _claim_distribution(get: Callable[..., pd.DataFrame]) -> tuple[str, str]:
    """FedGAT iid minus non-iid, 10 clients, both readings: the interval lies within one point (code: by design)."""
    return judge({
        f"{d}, {reading}": (_gap(table, ("FedGAT", d, IID), ("FedGAT", d, NON_IID)), -NEAR, NEAR)
        for reading, table in _tables(get).items() for d in DATASETS
    }, scale=100)  # fmt: skip


def _claim_clients(get: Callable[..., pd.DataFrame]) -> tuple[str, str]:
    """FG-F2, 20 clients minus 1, paired: FedGAT's change lies within one point; DistGAT falls by more than FedGAT."""
    parts: dict[str, Part] = {}
    for panel, (dataset, partition) in PANELS.items():
        frame = get(f"FG-F2{panel}")
        changes = {row: _change(frame, row) for row in ("FedGAT", "DistGAT")}
        where = f"{dataset}, {NAMES[partition]}"
        parts[f"{where}, FedGAT's change"] = (common(changes["FedGAT"], 0 * changes["FedGAT"]), -NEAR, NEAR)
        parts[f"{where}, DistGAT's fall over FedGAT's"] = (common(changes["FedGAT"], changes["DistGAT"]), 0.0, math.inf)
    return judge(parts, scale=100)


def _claim_distgat(get: Callable[..., pd.DataFrame]) -> tuple[str, str]:
    """FedGAT minus DistGAT on FG-T1, paired over seeds, both readings: the interval lies above zero."""
    return judge(_over(get, "DistGAT", 0.0), scale=100)


def _claim_fedgcn(get: Callable[..., pd.DataFrame]) -> tuple[str, str]:
    """FedGAT minus FedGCN and minus central GCN, paired over seeds, both readings: the interval lies above zero."""
    return judge({**_over(get, "FedGCN", 0.0), **_over(get, "GCN", 0.0)}, scale=100)


def _claim_degree(get: Callable[..., pd.DataFrame]) -> tuple[str, str]:
    """FedGAT at degree 8 minus degree 16, paired over seeds: the interval lies within one point either way."""
    parts = {}
    for panel, partition in BETAS.items():
        frame = get(f"FG-F5{panel}")
        pairs = (
            frame[frame["method"] == "FedGAT"].pivot(index="seed", columns="degree", values=SCORE)
            if "degree" in frame
            else None
        )
        both = pairs is not None and {8, 16} <= set(pairs.columns)
        parts[partition] = (common(pairs[8], pairs[16]) if pairs is not None and both else None, -NEAR, NEAR)
    return judge(parts, scale=100)


CLAIMS = (
    Claim("FG-C1", "fedgat", "A FedGAT-trained model is nearly as accurate as a central GAT.", _claim_central),
    Claim("FG-C2", "fedgat", "FedGAT is unaffected by i.i.d. or non-i.i.d. data.", _claim_distribution),
    Claim("FG-C2-clients", "fedgat", "FedGAT is unaffected by the number of clients, DistGAT falls with it.",
          _claim_clients),
    Claim("FG-C2-DistGAT", "fedgat", "FedGAT is above DistGAT, which drops the edges between clients.", _claim_distgat),
    Claim("FG-C3", "fedgat", "FedGAT beats FedGCN on every benchmark, and even centralised GCN.", _claim_fedgcn),
    Claim("FG-C5", "fedgat", "Accuracy hardly depends on the Chebyshev degree (fine at 8).", _claim_degree),
)  # fmt: skip

NAMES = {NON_IID: "non-iid", IID: "iid", "single": "central"}

EXHIBITS = [
    Exhibit("FG-T2", "fedgat", "fedgat/6-experiments", "Counts of the three graphs", statistics),
    *(Exhibit(f"FG-F2{p}", "fedgat", "fedgat/6-experiments", f"{d}, {NAMES[b]}: accuracy against clients", figure2(p))
      for p, (d, b) in PANELS.items()),
    *(Exhibit(f"FG-F6{p}", "fedgat", "fedgat/F-vector-fedgat", f"{d}, {NAMES[b]}: Vector FedGAT", figure2(p))
      for p, (d, b) in PANELS.items()),
    Exhibit("FG-X3", "fedgat", "fedgat/C-further-experiments", "The one-neighbour rule on and off", lone_neighbours),
    Exhibit("FG-F1", "fedgat", "fedgat/C-further-experiments", "Messages between server and clients", exchanged),
    Exhibit("FG-M1", "fedgat", "fedgat/C-further-experiments", "Seconds and memory of a round", price),
    *(Exhibit(f"FG-F5{p}", "fedgat", "fedgat/C-further-experiments", f"Cora, {b}: accuracy against degree", figure5(p))
      for p, b in BETAS.items()),
    Exhibit("FG-T1", "fedgat", "fedgat/6-experiments", "Test accuracy of central and federated models", table1),
    Exhibit("FG-T1-literal", "fedgat", "fedgat/6-experiments", "The same at learning rate 0.1", table1_literal),
    Exhibit("FG-T1-code", "fedgat", "fedgat/6-experiments", "FedGAT and DistGAT as the public code trains them",
            table1_code),
    Exhibit("FG-Q12b", "fedgat", "fedgat/6-experiments", "FedGAT with the steps of FedGCN's own paper", steps),
    Exhibit("FG-T1-tuning", "fedgat", "fedgat/6-experiments", "Validation accuracy over the points tried", tuning,
            seeded=False),
]  # fmt: skip
