"""GFL-APPNP: the runs behind its exhibits, its deviations and its claims.

Every cell exists in two readings. "text" is what the paper describes: propagation with teleport (the text cites APPNP),
one of the T updates is one step, the printed rates. "code" is what gave the published numbers: the truncated
propagation, an update is a pass over the local batches, the public code's rates and budgets, and subCora's validation
and test nodes in set order. Where a cell differs in the first and is reproduced in the second, it is explained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedrepro.compare import Claim, Paired, paired
from fedrepro.exhibits import Exhibit
from fedrepro.runs import Run, sweep

if TYPE_CHECKING:
    import pandas as pd

REPETITIONS = 20
CLIENTS = {"csbm-DNC": 200, "csbm-SNC": 200, "csbm-SC": 50, "subCora": 300, "csbm-d": 40}
COLUMNS = ("csbm-DNC", "subCora", "csbm-SNC", "csbm-SC")  # of Table 2
READINGS = ("text", "code")
SCORE = "before.best_loss.test"  # averaged model, round of lowest validation loss (A.2.2)

# Rows of Table 2 as (method, setting); V1 and V2 have I = 10.
GFL_ROWS = [("GFL-APPNP", f"I={i}") for i in (1, 10, 20, 50)] + [("GFL-APPNP-V1", "I=10"), ("GFL-APPNP-V2", "I=10")]
CENTRAL_ROWS = [("GCN", ""), ("GAT", ""), ("GraphSAGE", "")]
MLP_ROWS = [*(("FedMLP", f"I={i}") for i in (10, 20, 50)), ("MLPs", "")]

# (learning rate, updates) of GFL-APPNP by data set, as printed; then what differs for a row, then for the code.
PRINTED = {"csbm-DNC": (0.5, 3000), "subCora": (0.02, 4000), "csbm-SNC": (0.2, 5000), "csbm-SC": (0.2, 2000)}
PRINTED_ROW = {("csbm-SNC", "GFL-APPNP-V2"): (0.6, 8000)}
CODE_ROW = {
    ("csbm-DNC", "I=1"): (0.2, 3000), ("csbm-SC", "GFL-APPNP-V1"): (0.2, 2500), ("csbm-SC", "GFL-APPNP-V2"): (0.2, 2500),
}  # fmt: skip
MLP_RATES = {"text": {"FedMLP": (0.1, 2000), "MLPs": (0.1, 200)}, "code": {"FedMLP": (0.08, 1000), "MLPs": (0.05, 200)}}
CENTRAL = {
    "GCN": ({"model": "GCN", "hidden": 64}, {"csbm-DNC": (0.1, 4000), "subCora": (0.01, 4000)}),
    "GAT": ({"model": "GAT", "hidden": 8, "heads": 8}, {"csbm-DNC": (0.02, 4000), "subCora": (0.01, 4000)}),
    "GraphSAGE": (
        {"model": "GraphSAGE", "hidden": 64, "torch_init": True}, {"csbm-DNC": (0.02, 5000), "subCora": (0.01, 4000)},
    ),
}  # fmt: skip


def runs_of(
    method: str, dataset: str, options: dict[str, Any], seeds: range | list[int], single: bool = False
) -> list[Run]:
    """Runs with one client per node of the data set's graph, or one for all (`single`)."""
    name = dataset.removesuffix(" Z/p").removesuffix(" in set order")
    count = CLIENTS["csbm-d" if name.startswith("csbm-d") else name]
    return sweep(
        task="train", paper="gfl", method=method, dataset=dataset, split="public", seed=list(seeds), options=options,
        partition="single" if single else "blocks", clients=1 if single else count,
    )  # fmt: skip


def cell(
    row: tuple[str, str], dataset: str, reading: str, seeds: range | list[int], rounds: int | None = None, **more: Any
) -> list[Run]:
    """The runs of one cell of GFL-T2.

    Args:
        row: method and setting as published.
        dataset: a column of GFL-T2.
        reading: one of `READINGS`.
        rounds: fewer communication rounds than the cell's updates ask for.
        more: options to change or add.
    """
    method, setting = row
    if reading == "code" and dataset == "subCora":
        dataset = "subCora in set order"
    base = dataset.removesuffix(" Z/p").removesuffix(" in set order")
    if method in CENTRAL:
        options, rates = CENTRAL[method]
        lr, updates = rates[base]
        options = {**options, "optimizer": "sgd", "lr": lr, "rounds": rounds or updates, **more}
        return runs_of("CentralUnbiased", dataset, options, seeds, single=True)
    supervised = base == "csbm-SC" or base.startswith("csbm-d")
    local = int(setting.removeprefix("I=") or 1)
    if method in ("FedMLP", "MLPs"):
        lr, updates = MLP_RATES[reading][method]
        options = {}
    else:
        lr, updates = PRINTED_ROW.get((base, method), PRINTED.get(base, (0.5, 1500)))
        if reading == "code":
            lr, updates = CODE_ROW.get((base, method), CODE_ROW.get((base, setting), (lr, updates)))
        options = {"propagation": "truncated" if reading == "code" else "appnp", "share": "train"}
        if not supervised:
            options["share"] = "all"
        if method.endswith("V1"):
            options["noise"] = 1
        if method.endswith("V2"):
            options["compensation"] = False
    options |= {"model": "MLP", "hidden": 64, "lr": lr, "local_epochs": local}
    if supervised:
        options |= {"batch": 5, "update": "pass" if reading == "code" else "step"}
    options |= {"rounds": rounds or max(1, updates // local), **more}
    return runs_of(method if method in ("FedMLP", "MLPs") else "GFL-APPNP", dataset, options, seeds)


def rows_of(dataset: str) -> list[tuple[str, str]]:
    """The rows with a number in one column of GFL-T2, but "APPNP", which repeats the runs of I = 1."""
    if dataset == "csbm-SC":
        return GFL_ROWS + MLP_ROWS
    return GFL_ROWS if dataset == "csbm-SNC" else GFL_ROWS + CENTRAL_ROWS


def _seeds(profile: str, dataset: str, row: tuple[str, str]) -> range:
    """Which repetitions of a cell a profile computes."""
    if profile == "paper":
        return range(REPETITIONS)
    if profile == "smoke":
        return range(0) if dataset == "subCora" else range(2)
    if dataset == "csbm-DNC":
        return range(4 if row[1] != "I=1" else 2)
    if dataset == "csbm-SC":
        return range(3 if row[1] != "I=1" else 0)
    return range(2 if row[1] in ("I=20", "I=50") else 0)


def _table(profile: str, columns: tuple[str, ...], rows: Callable[[str], list[tuple[str, str]]]) -> list[Run]:
    rounds = 2 if profile == "smoke" else None
    return [
        run
        for reading in READINGS
        for dataset in columns
        for row in rows(dataset)
        if (reading == "text" or row not in CENTRAL_ROWS or dataset == "subCora") and _seeds(profile, dataset, row)
        for run in cell(row, dataset, reading, _seeds(profile, dataset, row), rounds)
    ]


def table2(profile: str) -> list[Run]:
    """GFL-T2 in both readings."""
    return _table(profile, COLUMNS, rows_of)


def table1(profile: str) -> list[Run]:
    """GFL-T1: the DNC columns of GFL-T2."""
    return [run for run in table2(profile) if run.dataset.startswith(("csbm-DNC", "subCora"))]


def readings(profile: str) -> list[Run]:
    """GFL-Q1 and GFL-Q2: Eq. 13b as printed, and the features' noise as printed, at I = 10."""
    rounds = 2 if profile == "smoke" else None
    seeds = range({"smoke": 1, "quick": 2, "paper": REPETITIONS}[profile])
    row = ("GFL-APPNP", "I=10")
    datasets = ("csbm-DNC", "csbm-SC") if profile != "paper" else COLUMNS
    out = [run for d in datasets for run in cell(row, d, "text", seeds, rounds, propagation="printed")]
    out += [run for d in datasets if d != "subCora" for run in cell(row, f"{d} Z/p", "text", seeds, rounds)]
    return out + cell(("FedMLP", "I=10"), "csbm-SC Z/p", "text", seeds, rounds)


def connectivity(profile: str) -> list[Run]:
    """GFL-F2a: four graphs of growing mean degree, I = 10, in both readings; the same initialization for all graphs."""
    seeds = range({"smoke": 1, "quick": 2, "paper": REPETITIONS}[profile])
    rounds = 2 if profile == "smoke" else None
    row = ("GFL-APPNP", "I=10")
    return [r for reading in READINGS for d in (25, 15, 10, 5) for r in cell(row, f"csbm-d{d}", reading, seeds, rounds)]


def of_dataset(dataset: str, rows: list[tuple[str, str]]) -> Callable[[str], list[Run]]:
    """The runs of some rows of one column."""
    return lambda profile: _table(profile, (dataset,), lambda _: rows)


VARIANTS = [row for row in GFL_ROWS if row[0] == "GFL-APPNP"]
ABLATED = [row for row in GFL_ROWS if row[0] != "GFL-APPNP"] + [("GFL-APPNP", "I=10")]

EXHIBITS = [
    Exhibit("GFL-T2", "gfl", "gfl/6-experiments", "Accuracy on four tasks with ablations", table2),
    Exhibit("GFL-T1", "gfl", "gfl/6-experiments", "Accuracy on deterministic node classification", table1),
    Exhibit("GFL-Q1", "gfl", "gfl/A-supplement", "Eq. 13b and the noise scale as printed", readings),
    Exhibit("GFL-F2a", "gfl", "gfl/6-experiments", "Accuracy against graph connectivity", connectivity),
]
