"""Frames of stored runs, turned into what an exhibit shows.

A frame has one row a run, as `Store.frame` gives it. Scores are addressed by column, `<view>.<round>.<score>`:

    view    before     the model that the server sends, before local training
            after      the model after local training
    round   last       the last round
            best       the round of best validation accuracy
            best_loss  the round of lowest validation loss
    score   val, test                  accuracy pooled over the nodes of all clients
            val_clients, test_clients  mean over clients of each client's accuracy
            val_loss                   mean validation loss

So `before.best.test` is the pooled test accuracy of the server's model at the best validation round. Facts of a method
are `facts.<name>`; messages are `traffic.<stage>.<direction>.<message>`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.errors import ArgumentError, one_of, require
from fedrepro.reporting.statistics import Paired, common
from fedrepro.runs.store import Store

Where = Mapping[str, Any]
RUNS = {"count": "runs"}
REPEATS = "repeats "  # how the provenance of a number begins that another table prints too


def check_columns(frame: Any, numbers: Sequence[str] = (), **columns: str) -> None:
    """Raise unless a frame has the columns that the arguments name, those of `numbers` with numbers in them.

    Raises:
        ArgumentError: it has not.
    """
    require(isinstance(frame, pd.DataFrame), "frame", "a pandas DataFrame", type(frame).__name__)
    for argument, column in columns.items():
        one_of(argument, column, list(frame.columns))
    for argument in numbers:
        try:
            pd.to_numeric(frame[columns[argument]])
        except (TypeError, ValueError):
            raise ArgumentError(f"{argument} must be a column of numbers. Got {columns[argument]!r}.") from None


def select(frame: pd.DataFrame, where: Where) -> pd.DataFrame:
    """Return the rows whose columns have the values in `where`; a value may be a list of those allowed.

    A frame that lacks one of the columns has no such row.
    """
    return frame[_chosen(frame, where)]


def _chosen(frame: pd.DataFrame, where: Where) -> Any:
    """Return an array that says which rows `select` selects."""
    chosen = np.full(len(frame), all(column in frame for column in where))
    for column, value in where.items() if chosen.any() else ():
        held = frame[column]
        plain = isinstance(held.dtype, np.dtype) or held.dtype == "str"
        if plain and type(value) in (str, int):  # claims ask thousands of times, and `isin` takes five times as long
            chosen &= held.to_numpy() == value
        else:
            chosen &= held.isin(list(value) if isinstance(value, list | tuple | set) else [value]).to_numpy()
    return chosen


def scores(frame: pd.DataFrame, where: Where, value: str) -> pd.Series:
    """Return one score a seed, indexed by seed, of the runs that `where` selects.

    A run that is in the frame twice, such as one of two exhibits, counts once.

    Raises:
        ArgumentError: `where` selects several runs of a seed, so that no score is the seed's.
    """
    if value not in frame or "seed" not in frame:
        return pd.Series(dtype=float)
    chosen = _chosen(frame, where)
    seeds, values = frame["seed"].to_numpy()[chosen], frame[value].to_numpy()[chosen]
    if len(set(seeds.tolist())) < len(seeds):
        rows = frame[[name for name in dict.fromkeys(("key", "seed", value)) if name in frame]][chosen]
        rows = rows.drop_duplicates()
        twice = sorted(set(rows["seed"][rows["seed"].duplicated()]))
        require(not twice, "where", "values that leave one run a seed", f"{dict(where)} (seeds {twice})")
        seeds, values = rows["seed"].to_numpy(), rows[value].to_numpy()
    order = np.argsort(seeds, kind="stable")
    return pd.Series(values[order].astype(float), index=pd.Index(seeds[order], name="seed"), name=value)


def difference(frame: pd.DataFrame, left: Where, right: Where, value: str) -> Paired | None:
    """Return the scores of one cell minus those of another, paired over their common seeds; None below two."""
    return common(scores(frame, left, value), scores(frame, right, value))


def leads(frame: pd.DataFrame, base: str, names: Sequence[str], value: str, by: str = "method") -> dict[str, Paired]:
    """Return how far some rows lie above a base, paired over seeds, without those that share no two seeds with it."""
    gaps = {name: difference(frame, {by: name}, {by: base}, value) for name in names if name != base}
    return {name: gap for name, gap in gaps.items() if gap is not None}


def means(frame: pd.DataFrame, by: Sequence[str], value: str | Sequence[str]) -> pd.DataFrame:
    """Return mean, standard deviation and number of runs of a score for each combination of `by`.

    Runs that lack an option in `by` are a combination too. With several scores the columns are `<score>`, their means,
    and `runs`.
    """
    groups = frame.groupby(list(by), sort=False, dropna=False)
    if isinstance(value, str):
        return groups[value].agg(["mean", "std", "count"]).rename(columns=RUNS).reset_index()
    table = groups[list(value)].mean()
    return table.assign(runs=groups.size()).reset_index()


def with_series(frame: pd.DataFrame, store: Store) -> pd.DataFrame:
    """Return the frame with what its records keep of rounds and clients, in columns `series.<view>.<entry>`."""
    kept = [(store.get(key) or {}).get("series") or {} for key in frame["key"]] if len(frame) else []
    names = dict.fromkeys(name for series in kept for name in series)
    return frame.assign(**{f"series.{name}": [series.get(name) for series in kept] for name in names})


def explode(
    frame: pd.DataFrame, lists: Mapping[str, str], keep: Sequence[str], position: str = "round", first: int = 1
) -> pd.DataFrame:
    """Return one row for each run and entry of its lists, such as rounds or clients.

    Args:
        lists: name of the new column to the column that holds a list; a run without one of them is left out.
        keep: columns to repeat in each row.
        position: name of the column that numbers the entries, from `first`.
    """
    columns = [*keep, position, *lists]
    held = frame.reindex(columns=list(dict.fromkeys([*keep, *lists.values()])))
    rows = []
    for run in held.to_dict("records"):
        entries = [run[column] for column in lists.values()]
        if all(isinstance(values, list | tuple) for values in entries):
            repeated = [run[name] for name in keep]
            rows += [[*repeated, number, *values] for number, values in enumerate(zip(*entries, strict=True), first)]
    return pd.DataFrame(rows, columns=columns)


def messages(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the mean scalars that runs sent, by stage, direction and message, over the runs that agree in `by`."""
    names = [name for name in frame if str(name).startswith(("traffic.before.", "traffic.training."))]
    long = frame.melt(list(by), names, "message", "scalars").dropna(subset=["scalars"])
    parts = long["message"].str.split(".", n=3, expand=True).reindex(columns=range(4))
    long = long.assign(stage=parts[1], direction=parts[2], message=parts[3])
    counted = long.groupby([*by, "stage", "direction", "message"], sort=False, dropna=False)["scalars"].agg(
        ["mean", "count"]
    )
    return counted.rename(columns={"mean": "scalars", **RUNS}).reset_index()


def distinct(printed: pd.DataFrame) -> pd.DataFrame:
    """Return the printed numbers without the cells that a table repeats from another, so that none counts twice.

    Raises:
        ArgumentError: the frame has no column `provenance`, see `exhibits.published`.
    """
    one_of("column", "provenance", list(printed.columns))
    return printed[~printed["provenance"].astype(str).str.startswith(REPEATS)]


def paper_layout(
    table: pd.DataFrame, rows: str | Sequence[str], columns: str | Sequence[str], cell: Callable[[Any], str]
) -> pd.DataFrame:
    """Return a table in the paper's layout: one text a cell, rows and columns in the order of `table`."""
    cells = table.assign(cell=[cell(row) for row in table.itertuples()])
    wide = cells.pivot_table(index=rows, columns=columns, values="cell", aggfunc="first", sort=False)
    # `pivot_table` orders the values of each column by themselves, not their pairs.
    order = cells.set_index([rows] if isinstance(rows, str) else list(rows)).index.unique()
    return wide.reindex(order).reset_index()
