"""The runs behind GFL-APPNP's exhibits.

Every training cell exists in two readings. The reading "text" is what the paper describes: propagation with teleport
(the text cites APPNP), one step for each of the T updates, and the printed rates. The reading "code" is what gave the
published numbers: the truncated propagation, one pass over the local batches for each update, the rates and budgets of
the public code, and validation and test nodes of subCora as coded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fedrepro.reporting.exhibits import Grid, settings, smallest
from fedrepro.runs.run import Run, sweep

Row = tuple[str, str]  # method and setting, as published

REPETITIONS = 20
CLIENTS = {"csbm-DNC": 200, "csbm-SNC": 200, "csbm-SC": 50, "subCora": 300, "csbm-d": 40}
COLUMNS = ("csbm-DNC", "subCora", "csbm-SNC", "csbm-SC")  # of Table 2
READINGS = ("text", "code")
MAIN = "code"  # the reading that stands first: saved models give the saved accuracies only with its propagation
VARIANTS_OF_DATA = (" Z/p", " as coded", " redrawn")  # endings of the names of data sets
DEGREES = (25, 15, 10, 5)

# Rows of Table 2. The ablations V1 and V2 have I = 10.
GFL_ROWS: list[Row] = [("GFL-APPNP", f"I={i}") for i in (1, 10, 20, 50)]
GFL_ROWS += [("GFL-APPNP-V1", "I=10"), ("GFL-APPNP-V2", "I=10")]
CENTRAL_ROWS: list[Row] = [("GCN", ""), ("GAT", ""), ("GraphSAGE", "")]
MLP_ROWS: list[Row] = [*(("FedMLP", f"I={i}") for i in (10, 20, 50)), ("MLPs", "")]
VARIANTS = [row for row in GFL_ROWS if row[0] == "GFL-APPNP"]
ABLATED = [*GFL_ROWS[4:], VARIANTS[1]]
TEN = VARIANTS[1]  # I = 10
OWN_ROUND = "MLPs (own round)"  # the method behind MLPs in the code's reading (GFL-S)

TABLES = settings("gfl")
CENTRAL = TABLES["central"]

check = partial(sweep, task="check", paper="gfl")


def base_name(dataset: str) -> str:
    """Return the name of a data set without the ending that names its variant."""
    return next((dataset.removesuffix(end) for end in VARIANTS_OF_DATA if dataset.endswith(end)), dataset)


def cell(row: Row, dataset: str, reading: str, seeds: Sequence[int] = range(REPETITIONS), **more: Any) -> list[Run]:
    """Return the runs of one cell of Table 2, with one client for each node of the graph, or one for central models.

    Args:
        row: method and setting.
        dataset: a column of Table 2, or a variant of it.
        reading: one of `READINGS`.
        seeds: the repetitions.
        more: options to add or to replace.
    """
    method, setting = row
    base = base_name(dataset)
    if reading == "code" and dataset == "subCora":
        dataset = "subCora as coded"
    graph: dict[str, Any] = {"dataset": dataset, "split": "public", "seed": list(seeds)}
    if method in CENTRAL:
        lr, updates = CENTRAL[method][base]
        options = {**CENTRAL[method]["options"], "optimizer": "sgd", "lr": lr, "rounds": updates, **more}
        central = {"method": "CentralUnbiased", "partition": "single", "clients": 1}
        return sweep(task="train", paper="gfl", options=options, **central, **graph)
    local = int(setting.removeprefix("I=") or 1)
    supervised = base == "csbm-SC" or base.startswith("csbm-d")
    known, lr, updates = _own_options(row, base, reading, supervised)
    options = {**known, "model": "MLP", "hidden": 64, "lr": lr, "local_epochs": local}
    if supervised:
        options |= {"batch": 5, "update": "pass" if reading == "code" else "step"}
    options |= {"rounds": max(1, updates // local), **more}
    clients = CLIENTS["csbm-d" if base.startswith("csbm-d") else base]
    name = method if method in ("FedMLP", "MLPs") else "GFL-APPNP"
    name = OWN_ROUND if name == "MLPs" and reading == "code" else name
    return sweep(task="train", paper="gfl", method=name, partition="blocks", clients=clients, options=options, **graph)


def _own_options(row: Row, base: str, reading: str, supervised: bool) -> tuple[dict[str, Any], float, int]:
    """Return the options that only a row's method has, its learning rate and its number of updates."""
    method, setting = row
    if method in ("FedMLP", "MLPs"):
        return {}, *TABLES["mlps"][reading][method]
    lr, updates = TABLES["printed_row"].get(f"{base} {method}", TABLES["printed"].get(base, (0.5, 1500)))
    if reading == "code":
        code = TABLES["code_row"]
        lr, updates = code.get(f"{base} {method}", code.get(f"{base} {setting}", (lr, updates)))
    options: dict[str, Any] = {"propagation": "truncated" if reading == "code" else "appnp"}
    options["share"] = "train" if supervised else "all"
    if method.endswith("V1"):
        options["noise"] = 1
    if method.endswith("V2"):
        options["compensation"] = False
    return options, lr, updates


def rows_of(dataset: str) -> list[Row]:
    """Return the rows with a number in one column of Table 2, but "APPNP", which repeats the runs of I = 1."""
    if dataset == "csbm-SC":
        return GFL_ROWS + MLP_ROWS
    return GFL_ROWS if dataset == "csbm-SNC" else GFL_ROWS + CENTRAL_ROWS


def table(columns: Sequence[str] = COLUMNS, rows: Callable[[str], list[Row]] = rows_of) -> list[Run]:
    """Return some cells of Table 2 in both readings. Central models of the block models have one reading."""
    return [
        run
        for reading in READINGS
        for dataset in columns
        for row in rows(dataset)
        if reading == "text" or row not in CENTRAL_ROWS or dataset == "subCora"
        for run in cell(row, dataset, reading)
    ]


def is_quick(run: Run) -> bool:
    """Keep two repetitions of the cells that train for minutes at most."""
    local, base = run.options.get("local_epochs"), base_name(run.dataset)
    if base == "csbm-DNC":
        kept = run.options["model"] not in ("GAT", "GraphSAGE")
    elif base == "csbm-SC":
        kept = run.method != "GFL-APPNP" or local != 1
    else:
        kept = local == 50
    return run.seed < 2 and kept


SMALL = ("csbm-DNC", "csbm-SC", *(f"csbm-d{degree}" for degree in DEGREES))


def small_table(runs: Callable[[], list[Run]], columns: Sequence[str] = SMALL) -> Callable[[], list[Run]]:
    """Return the smoke form of a grid of training runs: I = 10, central models and MLPs, without the data of Cora."""
    per = ("dataset", "method", "model", "propagation", "noise", "compensation")

    def kept(run: Run) -> bool:
        ours = run.method != "GFL-APPNP" or run.options["local_epochs"] == 10
        return ours and base_name(run.dataset) in columns and base_name(run.dataset) != "subCora"

    return lambda: smallest(filter(kept, runs()), per, {})


def readings() -> list[Run]:
    """Return Eq. 13b and the features' noise as printed, and the initialization of central models (GFL-Q1, Q2, B).

    For DNC at I = 1 the public code has a separate rate, so its propagation is run at the printed rate too. On SC the
    mean h_j is taken over all samples of a client (GFL-Q7), and MLPs as coded have one round for all clients (GFL-S).
    """
    runs = [run for name in COLUMNS for run in cell(TEN, name, "text", propagation="printed")]
    runs += [run for name in COLUMNS if name != "subCora" for run in cell(TEN, f"{name} Z/p", "text")]
    runs += cell(GFL_ROWS[0], "csbm-DNC", "text", propagation="truncated")
    for row in CENTRAL_ROWS:
        runs += cell(row, "csbm-DNC", "text", torch_init=not CENTRAL[row[0]]["options"].get("torch_init", False))
    runs += cell(TEN, "csbm-SC", "text", share="all")
    runs += [run.replace(method="MLPs") for run in cell(MLP_ROWS[3], "csbm-SC", "code")]
    return runs + cell(MLP_ROWS[0], "csbm-SC Z/p", "text")


def redrawn() -> list[Run]:
    """Return the synthetic columns in the code's reading, with graph, u and split drawn anew per repetition.

    These repetitions are independent, and their interval holds the spread between graphs. SNC has only I = 1, as its
    other rows agree with the printed numbers on our graph. The graphs of GFL-F2a have only I = 10, for GFL-C5.
    """
    runs = [run for d in ("csbm-DNC", "csbm-SC") for row in rows_of(d) for run in cell(row, f"{d} redrawn", "code")]
    runs += [run for d in DEGREES for run in cell(TEN, f"csbm-d{d} redrawn", "code")]
    return runs + cell(GFL_ROWS[0], "csbm-SNC redrawn", "code")


def trained_again() -> list[Run]:
    """Return GFL-APPNP on subCora as coded, trained again. Repetition 20 has the sub-graph of repetition 0."""
    return [run for row in GFL_ROWS for run in cell(row, "subCora", MAIN, range(REPETITIONS, 2 * REPETITIONS))]


def connectivity() -> list[Run]:
    """Return I = 10 on four graphs of growing mean degree, in both readings.

    All graphs of a repetition share initial weights (GFL-Q6).
    """
    return [run for reading in READINGS for d in DEGREES for run in cell(TEN, f"csbm-d{d}", reading)]


# --- theory, data and privacy: no training -----------------------------------------------------------------------

GRAPHS = ["csbm-DNC", "csbm-SNC", "csbm-SC", *(f"csbm-d{degree}" for degree in DEGREES)]
RATES = TABLES["rates"]


def identities(rounds: int = 50) -> list[Run]:
    """Return the checks of the gradient split, of one local step and of the identity as aggregator."""
    two = ["csbm-DNC", "csbm-SC"]
    return [
        *check(method="gfl-gradient-split", dataset=two),
        *check(method="gfl-one-local-step", dataset=two, options={"rounds": rounds}),
        *check(method="gfl-identity-aggregator", dataset="csbm-SC"),
    ]


def algorithm() -> list[Run]:
    """Return the checks of Algorithm 1, line by line against the method."""
    return check(method="gfl-algorithm", dataset=["csbm-DNC", "csbm-SC"], options={"local_epochs": [1, 5]})


def lemma(local: Sequence[int] = (10, 20, 50), rounds: int = 10, seeds: int = 3) -> list[Run]:
    """Return the checks of Lemma A.1. With I = 1 the estimate is exact, so that nothing is to be seen."""
    options = {"local_epochs": list(local), "lr": [0.1, 0.5], "rounds": rounds}
    return check(method="gfl-compensation-error", dataset="csbm-DNC", seed=range(seeds), options=options)


def rates(seeds: int = 5, shorter: int = 1) -> list[Run]:
    """Return the runs of Theorem 4.1 and Corollary 4.2, one axis at a time around a base.

    T and N are swept at eta = sqrt(N/T) (an option `lr` of 0), N also at the base's fixed step. I, sigma_H and
    lambda_max are swept at the fixed step. A control climbs with steps of the printed sign.

    Args:
        seeds: number of repetitions.
        shorter: divides the updates, and keeps two values of each axis if above 1.
    """
    few = slice(2 if shorter > 1 else None)
    base, points = RATES["base"], []
    for axis, steps in RATES["axes"].items():
        lr = 0 if axis == "T" else base["lr"]
        points += [("csbm-n40", {**base, "lr": lr, steps["option"]: value}) for value in steps["values"][few]]
    for nodes in [10, 20, 40, 80][few]:
        points += [(f"csbm-n{nodes}x40", {**base, "lr": lr, "local_epochs": 1}) for lr in (0, base["lr"])]
    points += [(f"csbm-d{degree}", dict(base)) for degree in DEGREES[:: 3 if shorter > 1 else 1]]
    points.append(("csbm-n40", {**base, "lr": 0, "ascend": True}))
    runs: list[Run] = []
    for dataset, options in points:
        if shorter > 1:
            local = min(4, options["local_epochs"])
            updates = options["updates"] // shorter // local * local
            options = {**options, "updates": updates, "local_epochs": local}
        runs += check(method="gfl-rate", dataset=dataset, seed=range(seeds), options=options)
    return list(dict.fromkeys(runs))


def privacy(updates: int = 600) -> list[Run]:
    """Return the attacks of a server and of a neighbour on x, with and without the noise of V1.

    In further runs the server sees a fifth and a tenth of the rounds under noise, and the neighbour sees one round.
    """
    options: dict[str, Any] = {"noise": [0, 1], "updates": updates, "local_epochs": [1, 10, 20, 50]}
    common: dict[str, Any] = {"task": "attack", "paper": "gfl", "method": "gfl-reconstruction", "seed": range(5)}
    server = sweep(options={**options, "party": "server", "neighbours": 4}, **common)
    fewer = {"noise": 1, "updates": [updates // 10, updates // 5], "local_epochs": 1, "party": "server"}
    server += sweep(options={**fewer, "neighbours": 4}, **common)
    client = sweep(options={**options, "party": "client", "neighbours": [1, 2, 4, 8, 16]}, **common)
    options |= {"local_epochs": options["local_epochs"][1:], "neighbours": [2, 4, 8, 16, 64]}
    common["method"] = "gfl-differences"
    once = {**options, "noise": 0, "updates": 10, "local_epochs": 10}
    return server + client + sweep(options=options, **common) + sweep(options=once, **common)


def small_privacy() -> list[Run]:
    """Return one short attack of each party."""
    return [run for run in privacy(updates=60) if run.seed == 0 and run.options["local_epochs"] in (1, 10)]


# --- the exhibits ------------------------------------------------------------------------------------------------


def _table_grid(columns: Sequence[str], rows: Callable[[str], list[Row]]) -> Grid:
    runs = partial(table, columns, rows)
    return Grid(runs, is_quick, smoke=small_table(runs, columns if len(columns) == 1 else SMALL))


def _column(dataset: str, rows: list[Row]) -> Grid:
    return _table_grid((dataset,), lambda _: rows)


def is_quick_reading(run: Run) -> bool:
    """Keep two repetitions of I = 10 on DNC, and of FedMLP."""
    ours = base_name(run.dataset) == "csbm-DNC" and run.options.get("local_epochs") == 10
    return run.seed < 2 and (ours or run.method == "FedMLP")


def is_quick_redrawn(run: Run) -> bool:
    """Keep two repetitions of GFL-APPNP on DNC and on GFL-F2a's graphs, and of FedMLP on SC, with I = 10."""
    shown = run.dataset == "csbm-DNC redrawn" or run.dataset.startswith("csbm-d")
    ours = shown and not {"noise", "compensation"} & set(run.options)
    return run.seed < 2 and run.options.get("local_epochs") == 10 and (ours or run.method == "FedMLP")


FIGURE3 = dict(zip("abcd", COLUMNS))

_statistics = Grid(partial(check, method="gfl-statistics", dataset=GRAPHS), per=("dataset",))
_identities = Grid(identities, smoke=partial(identities, rounds=5))
_algorithm = Grid(algorithm, per=("dataset", "local_epochs"))
_rates = Grid(rates, smoke=partial(rates, seeds=1, shorter=5))
_subcora = partial(check, method="gfl-subcora", dataset=["subCora", "subCora as coded"], seed=range(REPETITIONS))
_ablations = _table_grid(COLUMNS, lambda _: ABLATED)

GRIDS = {
    "GFL-T1": _table_grid(COLUMNS[:2], rows_of),
    "GFL-T2": _table_grid(COLUMNS, rows_of),
    "GFL-F2a": Grid(connectivity, lambda run: run.seed < 2, smoke=small_table(connectivity)),
    "GFL-F2b": _column("csbm-SC", [*VARIANTS[1:], *MLP_ROWS]),
    **{f"GFL-F3{part}": _column(name, VARIANTS) for part, name in FIGURE3.items()},
    "GFL-F4": _ablations,
    "GFL-X1": _ablations,
    "GFL-X2": _rates,
    "GFL-T2-redrawn": Grid(redrawn, is_quick_redrawn, smoke=small_table(redrawn)),
    "GFL-T2-subCora": Grid(trained_again, lambda run: run.seed < 22 and run.options["local_epochs"] == 50, smoke=list),
    "GFL-Q1": Grid(readings, is_quick_reading, smoke=small_table(readings)),
    **dict.fromkeys(("GFL-A1", "GFL-A2", "GFL-F1a", "GFL-F1b"), _algorithm),
    "GFL-I1": Grid(partial(check, method="gfl-weights")),
    **dict.fromkeys(("GFL-I2", "GFL-I3", "GFL-I6"), _identities),
    **dict.fromkeys(("GFL-I4", "GFL-I5", "GFL-P1", "GFL-P3", "GFL-P4", "GFL-P5"), _statistics),
    "GFL-P2": Grid(_subcora, lambda run: True, smoke=list),
    "GFL-Th1": _rates,
    "GFL-Th2": _rates,
    "GFL-L1": Grid(
        lemma,
        lambda run: run.seed < 2 and run.options["local_epochs"] == 10,
        smoke=partial(lemma, local=(5,), rounds=2, seeds=2),
    ),
    "GFL-Q7": Grid(privacy, smoke=small_privacy),
}
