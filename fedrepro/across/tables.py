"""Turn the runs of the protocol into what a reader sees: rows of methods, columns of graphs and clients."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.across import protocol
from fedrepro.across.protocol import CLIENT, FEDAVG_READINGS, FINE_TUNED, METHODS, Column
from fedrepro.errors import one_of, require
from fedrepro.reporting import checks, frames, statistics
from fedrepro.runs import records

# The scores of a run, by the name of the column of a frame that holds it; `worst` and `spread` come from its clients.
SCORES = {"accuracy": "test", "F1": "test_f1", "AUC": "test_auc"}
# The metrics by which options can be chosen: the column of a table, and the entry of a run on validation nodes.
METRICS = {"accuracy": ("accuracy", "val"), "macro_f1": ("F1", "val_f1"), "auc": ("AUC", "val_auc")}
VALUES = (*SCORES, "worst", "spread", "validation")
BEST = "best"  # the round of best validation accuracy
MAIN_COLUMNS = ("row", "column", "dataset", "partition", "clients", "split", "seed", *VALUES, "bytes", "key", "note")
MIB = 2.0**20


def scored(frame: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Return one row for each run and row name, with scores in percent.

    `validation` is the metric, one of `METRICS`, on validation nodes at the round of best validation accuracy. `worst`
    is the lowest accuracy of a client and `spread` the standard deviation over clients. `bytes` are what a client sends
    and receives in a whole run, in MiB. `note` says of a run that it is no better than a constant prediction. Central
    runs stand in every column of their graph and split.
    """
    entry = METRICS[one_of("metric", metric, METRICS)][1]
    rows = [_row(run, name, view, entry) for run in frame.to_dict("records") for name, view in _views(run, entry)]
    table = pd.DataFrame(rows, columns=list(MAIN_COLUMNS))
    return with_central(table, ["dataset", "split"], ["column", "partition", "clients"])


def with_central(table: pd.DataFrame, on: list[str], setting: list[str]) -> pd.DataFrame:
    """Return a table in which every central run has a row in each setting of its graph that another row has.

    Args:
        on: columns that name the graph.
        setting: columns that name the setting, such as a partition.
    """
    central = table["row"] == "Central"
    settings = table.loc[~central, [*on, *setting]].drop_duplicates()
    spread = table[central].drop(columns=setting).merge(settings, on=on)[list(table)]
    parts = [part for part in (spread, table[~central]) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else table


def over_base(table: pd.DataFrame, base: str, keys: list[str]) -> pd.DataFrame:
    """Return the table with `lead`, the accuracy less that of a base with the same `keys`; NaN where it has no run."""
    base_scores = table[table["row"] == base].set_index(keys)["accuracy"]
    matching = base_scores.reindex(pd.MultiIndex.from_frame(table[keys])).to_numpy()
    return table.assign(lead=table["accuracy"].to_numpy() - matching)


def readings(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the scored runs of AX-13, whose rows are the readings of FedAvg, and FedSGD."""
    changed = ("optimizer_state", "local_epochs")
    usual = {name: CLIENT[name] for name in changed}
    rows = {tuple({**usual, **more}[name] for name in changed): name for name, more in FEDAVG_READINGS.items()}
    table = scored(frame)
    table = table[table["row"].isin(["FedAvg", "FedSGD"])]
    options = frame.drop_duplicates("key").set_index("key")
    named = [
        rows[tuple(options.loc[run.key, name] for name in changed)] if run.row == "FedAvg" else run.row
        for run in table.itertuples()
    ]
    return table.assign(row=named)


def name_of(registered: str) -> str:
    """Return the name of a method's row, given its registered name."""
    return next((name for name, row in METHODS.items() if row.registered == registered), registered)


def _score(run: dict[str, Any], name: str) -> float:
    """Return a score of a run; NaN if it has none, such as an AUC on one class."""
    value = run.get(name)
    return math.nan if value is None else float(value)


def _views(run: dict[str, Any], entry: str) -> Iterator[tuple[str, str]]:
    name = name_of(run["method"])
    view = protocol.view(name)
    if view == "better":
        val = {v: _score(run, f"{v}.{BEST}.{entry}") for v in ("before", "after")}
        view = max(val, key=lambda v: -math.inf if math.isnan(val[v]) else val[v])
    # A method that sends gradients has no model after local training.
    held = not math.isnan(_score(run, f"{view}.{BEST}.val"))
    yield name, view if held else "before"
    if name == "FedAvg":
        yield FINE_TUNED, "after"


def _row(run: dict[str, Any], name: str, view: str, validation: str) -> dict[str, Any]:
    column = Column(run["dataset"], run["partition"], run["clients"], run["split"])
    entries = {**SCORES, "validation": validation}
    values: dict[str, Any] = {score: 100 * _score(run, f"{view}.{BEST}.{entry}") for score, entry in entries.items()}
    kept = run.get(f"series.{view}.clients")
    by_client = [v for v in kept if v is not None] if isinstance(kept, list | tuple) else []
    values |= {"worst": 100 * min(by_client), "spread": 100 * float(np.std(by_client))} if by_client else {}
    sent = sum(run.get(f"traffic.bytes.{stage}", math.nan) for stage in ("before", "training"))
    at = [f"{view}.{BEST}.test", f"{view}.{BEST}.test_classes", "majority.test"]
    values["note"] = records.constant(*(run.get(name) for name in at))
    fields = {"row": name, "column": column.label, "bytes": sent / run["clients"] / MIB, "key": run["key"]}
    return fields | column._asdict() | {"seed": run["seed"]} | values


def order(rows: Sequence[str]) -> list[str]:
    """Return names of rows in the order of the protocol; those of users come last."""
    known = [name for method in METHODS for name in ([method, FINE_TUNED] if method == "FedAvg" else [method])]
    return [name for name in known if name in set(rows)] + sorted(set(rows) - set(known))


NAMES = {protocol.METIS: "METIS", "dirichlet": "Dirichlet"}  # of partitions, as their authors write them


def spoken(label: str) -> str:
    """Return the label of a column as a title says it: `Cora metis 10` as `Cora, METIS, 10 clients`."""
    match = re.fullmatch(r"(.+) (\S+) (\d+)(, .+)?", str(label))
    if match is None:
        return str(label)
    graph, kind, clients, split = match.groups(default="")
    return f"{graph}, {NAMES.get(kind, kind)}, {clients} clients{split}"


def summary(table: pd.DataFrame, value: str = "accuracy", columns: Sequence[Column] = ()) -> pd.DataFrame:
    """Return mean, half of the 95% interval and runs of every row and column; a note says why a cell has no run.

    Args:
        table: as `scored` gives it.
        columns: by default all of the protocol, and further ones of the table.
    """
    labels = {c.label: c for c in columns or protocol.columns()}
    if not columns:
        labels |= {r.column: Column(r.dataset, r.partition, r.clients, r.split) for r in table.itertuples()}
    cells = {key: part[value].dropna() for key, part in table.groupby(["column", "row"])}
    rows = []
    for label, column in labels.items():
        for name in order([*METHODS, FINE_TUNED, *table["row"]]):
            runs = cells.get((label, name), pd.Series(dtype=float))
            mean, low, high, count = statistics.interval(runs) if len(runs) else (math.nan, math.nan, math.nan, 0)
            method = "FedAvg" if name == FINE_TUNED else name
            note = "" if count else protocol.why_not(method, column) or "not computed yet"
            rows.append((label, name, mean, (high - low) / 2, count, note))
    return pd.DataFrame(rows, columns=["column", "row", "mean", "half95", "runs", "note"])


def wide(cells: pd.DataFrame, digits: int = 1) -> pd.DataFrame:
    """Return a summary as a page shows it: rows of methods, and `mean +- half (runs)`; without empty columns."""
    held = cells[cells.groupby("column")["runs"].transform("sum") > 0]

    def text(cell: Any) -> str:
        if not cell.runs:
            return "" if cell.note == "not computed yet" else "–"
        half = "" if math.isnan(cell.half95) else f" ± {cell.half95:.{digits}f}"
        return f"{cell.mean:.{digits}f}{half} ({cell.runs})"

    return frames.paper_layout(held, "row", "column", text) if len(held) else pd.DataFrame({"row": []})


def missing(cells: pd.DataFrame) -> pd.DataFrame:
    """Return how many cells of each column have all their seeds, lack some, and have none in the protocol."""
    wanted = cells["column"].map({c.label: protocol.SEEDS[c.dataset] for c in protocol.columns()}).fillna(1)
    kinds = {"with runs": cells["runs"] >= wanted, "missing": cells["runs"].lt(wanted) & cells["runs"].gt(0)}
    kinds["missing"] |= cells["note"].eq("not computed yet")
    counts = cells.assign(**kinds, none=~(kinds["with runs"] | kinds["missing"])).groupby("column", sort=False)
    table = counts[["with runs", "missing", "none"]].sum().reset_index()
    return table.rename(columns={"none": "not in the protocol"})


def choose(frame: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Return the point of highest validation score for each graph and method whose points were all tried.

    The first of equals is taken. The columns are those of `chosen.csv`, and `validation`.

    Args:
        metric: one of `METRICS`; all are taken at the round of best validation accuracy, and none on test nodes.

    Raises:
        ArgumentError: the metric is not known, or a run has no such score.
    """
    rows = []
    table = scored(frame, metric).drop_duplicates("key") if len(frame) else pd.DataFrame(columns=MAIN_COLUMNS)
    table = table[table["row"] != FINE_TUNED]
    runs = {run["key"]: run for run in frame.to_dict("records")}
    for (dataset, method), part in table.groupby(["dataset", "row"], sort=False):
        scores = dict(zip(part["key"], part["validation"]))
        by_point = [
            [score for key, score in scores.items() if point.items() <= runs[key].items()]
            for point in protocol.points(method)
        ]
        if all(by_point):
            best = [values[0] for values in by_point]
            held = f"a score that the runs of {method} on {dataset} hold on validation nodes"
            require(not any(map(math.isnan, best)), "metric", held, metric)
            rows.append((dataset, method, int(np.argmax(best)), max(best)))
    return pd.DataFrame(rows, columns=["dataset", "method", "place", "validation"])


# -- costs ------------------------------------------------------------------------------------------------------------


def sent(frame: pd.DataFrame) -> pd.DataFrame:
    """Return MiB per client and run by message, before and in training, in each column."""
    if frame.empty:
        return pd.DataFrame(columns=["column", "row", "stage", "direction", "message", "MiB"])
    labels = [Column(r.dataset, r.partition, r.clients, r.split).label for r in frame.itertuples()]
    named = frame.assign(column=labels, row=[name_of(method) for method in frame["method"]])
    counted = frames.messages(named, ["column", "row", "clients"])
    mib = 4 * counted["scalars"] / counted["clients"] / MIB  # a scalar is a number of four bytes
    return counted.assign(MiB=mib).drop(columns=["scalars", "clients"])


def seconds(frame: pd.DataFrame) -> pd.DataFrame:
    """Return seconds before training, of server and clients in a round, and peak memory, from the runs of AX-8."""
    names = {"timing.before": "seconds before", "timing.server": "server's seconds"}
    names |= {"timing.clients": "clients' seconds", "timing.peak_mebibytes": "peak MiB"}
    held = frame.reindex(columns=["dataset", "of", *names]).rename(columns={**names, "of": "row"})
    return held.assign(row=[name_of(name) for name in held["row"]])


def front(points: pd.DataFrame) -> pd.Series:
    """Return whether no other row has at most these bytes and at least this accuracy, and less or more of one."""
    costs, gains = points["bytes"].to_numpy(), points["accuracy"].to_numpy()
    beaten = [
        bool(((costs <= c) & (gains >= g) & ((costs < c) | (gains > g))).any())
        for c, g in zip(costs, gains, strict=True)
    ]
    return ~pd.Series(beaten, index=points.index, dtype=bool)


def against(table: pd.DataFrame, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Return mean accuracy and MiB of every row in some columns, with a mark for the Pareto front of each column.

    Central training is left out, since it sends all data and counts no message.
    """
    held = table[(table["row"] != "Central") & (table["column"].isin(columns) if columns else True)]
    points = held.groupby(["column", "row"], sort=False)[["accuracy", "bytes"]].mean().reset_index()
    marks = [front(part) for _, part in points.groupby("column", sort=False)]
    return points.assign(front=pd.concat(marks) if marks else pd.Series(dtype=bool))


# -- leaks ------------------------------------------------------------------------------------------------------------

GOALS = ("features", "edges", "labels")
# The distance by which a control may miss. Labels of one class for all nodes, guessed from 400 draws, scatter by less
# than 0.01 about chance in a run, and the largest distance is taken over all runs and goals.
TOLERANCE = 0.05
# Methods whose server is given the edges among clients' nodes, and what for.
HELD = {
    "FedGAT": "builds each node's matrices over its neighbours",
    "GFL-APPNP": "sums the neighbours' representations",
    "Feras": "hands out the topology",
}


def leaks(frame: pd.DataFrame) -> pd.DataFrame:
    """Return for each graph and method what is rebuilt, as shares of the way from a guess (0) to everything (1).

    The guess is the better one of chance and the prior guess, neither of which needs a message (see `attacker`). A mean
    below it counts as 0. The columns `<goal> measured` and `<goal> guessed` hold the cosine, the area under the curve
    and the accuracy themselves, and `class measured` the accuracy of naming the client's commonest class. Edges that
    the server holds by protocol count as 1, and `edges held` says what it holds them for.
    """
    rows = []
    for run in frame.to_dict("records"):
        row = {"dataset": run["dataset"], "row": name_of(run["of"]), "class measured": run.get("class", math.nan)}
        for goal in GOALS:
            measured, *guesses = (
                math.nan if run.get(name) is None else float(run[name])
                for name in (f"sent.{goal}", f"chance.{goal}", f"prior.{goal}")
            )
            # The chance of a cosine is an upper bound, which exceeds 1 where features are few. No share is known then.
            guessed = min(1.0, max((guess for guess in guesses if not math.isnan(guess)), default=math.nan))
            row |= {f"{goal} measured": measured, f"{goal} guessed": guessed}
            row[goal] = (measured - guessed) / (1 - guessed) if guessed < 1 else math.nan
        rows.append(row | {"used": run["used"], "unused": run["unused"]})
    both = [f"{goal} {kind}" for goal in GOALS for kind in ("measured", "guessed")]
    names = ["dataset", "row", *both, "class measured", *GOALS, "used", "unused"]
    table = pd.DataFrame(rows, columns=names)
    by_row = table.groupby(["dataset", "row"], sort=False)
    shares = by_row.agg({name: "first" if name in ("used", "unused") else "mean" for name in names[2:]}).reset_index()
    # They are cut after the mean: cut for each attack, they would make noise look like a leak.
    shares = shares.assign(**{goal: shares[goal].clip(lower=0.0) for goal in GOALS})
    held = shares["row"].map(HELD).fillna("")
    return shares.assign(**{"edges": shares["edges"].mask(held.ne(""), 1.0), "edges held": held})


def controls(frame: pd.DataFrame) -> list[checks.Row]:
    """Judge the attacker's controls over all its runs: noise must give chance, and plain data 1.

    The statement on noise has the draws that the stored runs have made.
    """
    noise, plain = 0.0, 0.0
    for run in frame.to_dict("records"):
        for goal in GOALS:
            off = run[f"noise.{goal}"] - run[f"chance.{goal}"]
            # The chance of a cosine is an upper bound, and what lies below it is chance.
            noise = checks.worst_of((noise, off if goal == "features" else abs(off)))
            plain = checks.worst_of((plain, abs(run[f"plain.{goal}"] - 1)))
    told = "normal noise in place of the messages gives chance, largest distance over goals and methods"
    draws = frame["draws"] if "draws" in frame else pd.Series([math.nan])
    if draws.notna().all() and len(draws):
        least = int(draws.min())
        told += f" ({least} draws for labels without rows, raised after this check had failed with fewer)"
    return [
        checks.row("AX-K1", told, noise, TOLERANCE),
        checks.row("AX-K2", "plain data in place of the messages give 1", plain, 1e-6),
    ]
