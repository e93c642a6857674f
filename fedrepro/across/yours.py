"""Run the protocol for a user's method or graph, and compare it with the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from fedrepro import paths, registry
from fedrepro.across import protocol, statistics, tables
from fedrepro.across.protocol import CLIENTS, FINE_TUNED, MAIN, METIS, TUNING_SEED, Column
from fedrepro.data import datasets
from fedrepro.errors import FedreproError, is_whole, one_of, require
from fedrepro.reporting import frames
from fedrepro.runs.execute import execute
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store, opened

FILE = "across-yours"
ATTACKED = 5000  # nodes of the largest graph whose pairs the attacker compares


def across(
    method: str = "",
    *,
    dataset: str = "Cora",
    partitions: str | Sequence[str] = (METIS,),
    clients: int = CLIENTS,
    split: str = "",
    beside: str | Sequence[str] = ("Local", "FedAvg"),
    seeds: int | Iterable[int] = 5,
    store: Store | None = None,
    metric: str = "accuracy",
    **options: Any,
) -> pd.DataFrame:
    """Run the protocol for a method, or on a graph, and return its rows with those of other methods.

    The method is tuned as all others: six points on validation nodes, with a seed that is not shown. On a graph of the
    protocol the others come from the store, and what it lacks of `beside` is computed. On a graph of yours, `beside` is
    tuned and computed too.

    Args:
        method: a registered method; empty to compare the methods of `beside` only.
        dataset: a graph of the protocol, or one of yours (see `fedrepro.data.own`).
        partitions: how the graph is divided among clients, in one way or several.
        clients: the number of clients.
        split: `public`, or percentages of training, validation and test nodes. By default a graph of yours that has a
            split keeps it (`public`), with its features as they are. All others have the protocol's 20/40/40.
        beside: methods that the table must have too, or one of them.
        seeds: number of runs a cell, or their seeds.
        store: where runs are kept, in its file `across-yours`; by default the suite's own store for a graph of the
            protocol, and `paths.personal()` for another.
        metric: what tuning chooses by on validation nodes, and what differences and order are of: `accuracy`,
            `macro_f1` or `auc`. The points that the suite has chosen are those of accuracy, so that with another metric
            all methods of `beside` are tuned, and the table has no others.
        options: options that replace those of the protocol in all runs, such as `rounds=2` for a trial.

    Returns:
        One row for each method and column: accuracy, macro-F1, area under the ROC curve and worst client with the half
        of a 95% interval, MiB per client, runs, and the difference to Local, paired over seeds, with its interval. A
        column `note` says which methods are no better than a constant prediction, if there are any.

    Raises:
        ArgumentError: a method is not registered, the metric is not known, or there are no seeds.
        FedreproError: a run failed, or its graph cannot be had.
    """
    beside, partitions = ([given] if isinstance(given, str) else list(given) for given in (beside, partitions))
    wanted = [tables.name_of(name) for name in dict.fromkeys([*beside, *([method] if method else [])])]
    for name in wanted:
        registered = protocol.METHODS[name].registered if name in protocol.METHODS else ""
        one_of("method", registered or name, registry.names("train"))
    drawn = _drawn(seeds)
    one_of("metric", metric, tables.METRICS)
    columned = any(name != "Central" for name in wanted)
    require(columned, "beside", "a method other than Central, whose runs stand in the columns of others", beside)
    kept = store if store is not None else opened() if dataset in protocol.SEEDS else Store(paths.personal())
    split = split or ("public" if _has_split(dataset) else MAIN)
    columns = [Column(dataset, partition, clients, split) for partition in partitions]
    runs: list[Run] = []
    for name in wanted:
        known = metric == "accuracy" and (dataset, name) in protocol.chosen()
        point = None if known else _tuned(name, columns[0], kept, options, metric)
        runs += [
            run
            for column in columns
            if not protocol.why_not(name, column)
            for run in protocol.cell(name, column, drawn, point, **options)
        ]
    frame = _computed(runs, kept)
    if {*columns} <= {*protocol.columns()} and not options and metric == "accuracy":
        others = [run for run in protocol.table([dataset]) if run.seed in drawn]
        frame = pd.concat([frame, execute(others, store=kept, file=FILE, budget=0.0, quiet=True)]).drop_duplicates(
            "key"
        )
    table = tables.scored(frames.with_series(frame, kept), metric)
    asked = [Column(row.dataset, row.partition, row.clients, row.split) in columns for row in table.itertuples()]
    return beside_others(table[asked], metric)


def _drawn(seeds: int | Iterable[int]) -> list[int]:
    """Return the seeds of the runs that are shown."""
    drawn = list(seeds) if isinstance(seeds, Iterable) else list(range(seeds if is_whole(seeds) else 0))
    held = bool(drawn) and all(is_whole(seed, 0) and seed != TUNING_SEED for seed in drawn)
    allowed = f"an integer >= 1, or integers >= 0 other than {TUNING_SEED}, the seed of tuning"
    require(held, "seeds", allowed, seeds)
    return drawn


def _has_split(dataset: str) -> bool:
    """Return whether a graph is one of the user's and has a split."""
    return datasets.by_hand(dataset) and "public" in datasets.load(dataset)


def _computed(runs: list[Run], store: Store) -> pd.DataFrame:
    """Return runs as a table. A run that fails is an error, since its row would be missing in silence."""
    frame = execute(runs, store=store, file=FILE, quiet=True)
    for trouble in [*frame.attrs["failed"], *frame.attrs["unavailable"]]:
        raise FedreproError(
            f"A run of {trouble['run']['method']} on {trouble['run']['dataset']} failed: {trouble['error']}"
        )
    return frame


def _tuned(name: str, column: Column, store: Store, options: dict[str, Any], metric: str) -> protocol.Options:
    """Return the point of a method that has the highest validation score on a graph, tuning it where needed."""
    runs = [
        run for point in protocol.points(name) for run in protocol.cell(name, column, [TUNING_SEED], point, **options)
    ]
    best = tables.choose(_computed(runs, store), metric)
    return protocol.points(name)[int(best["place"].iloc[0]) if len(best) else 0]


def attacks(methods: Sequence[str], column: Column, nodes: int, **options: Any) -> list[Run]:
    """Return the runs of the attacker on some methods, one each; none on a graph of more than `ATTACKED` nodes.

    Central training sends nothing and is left out. The arguments are those of `protocol.cell`.
    """
    names = [name for name in methods if name != "Central" and nodes <= ATTACKED]
    return [
        run for name in names for run in protocol.cell(name, column, [0], task="attack", name="across-leak", **options)
    ]


def summary(frame: pd.DataFrame, attacked: pd.DataFrame) -> pd.DataFrame:
    """Return one table of trained and attacked runs of one graph, a row a method.

    Args:
        frame: training runs, as `execute` returns them.
        attacked: the runs of `attacks`, as `execute` returns them.

    Returns:
        Columns method, accuracy, macro-F1 and AUC in percent with half of a 95% interval, MiB that a client sends and
        receives, leaks and runs. `leaks` says which share of features, edges and labels the attacker rebuilds, from 0
        for a guess without messages to 1 for all, and why where it was not run.
    """
    table = beside_others(tables.scored(frame))
    shown = pd.DataFrame({"method": table["row"]})
    for value, name in (("accuracy", "accuracy"), ("F1", "macro-F1"), ("AUC", "AUC")):
        half = table[f"{value} ±"].map(lambda wide: "" if wide != wide else f" ± {wide:.1f}")
        shown[name] = table[value].map(lambda score: "" if score != score else f"{score:.1f}") + half
    known = tables.leaks(attacked).set_index("row") if len(attacked) else pd.DataFrame()
    failed = {tables.name_of(one["run"]["options"]["of"]): one["error"] for one in attacked.attrs.get("failed", ())}

    def told(name: str) -> str:
        if name == "Central":
            return "not attacked: all data are in one place"
        if name == FINE_TUNED:
            return "as FedAvg"
        if name in known.index:
            row = known.loc[name]
            shares = ", ".join(f"{goal} {row[goal]:.2f}" for goal in tables.GOALS if row[goal] == row[goal])
            return f"{shares} (no use made of {row['unused']})" if row["unused"] else shares
        return f"not attacked: {failed.get(name, f'the graph has over {ATTACKED} nodes')}"

    shown["MiB"], shown["leaks"] = table["MiB"], table["row"].map(told)
    return shown.assign(**table[["runs", *(["note"] if "note" in table else [])]])


def beside_others(table: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Return the rows of a scored table with their differences to Local in a metric, the best row first."""
    of = tables.METRICS[metric][0]
    columns = [Column(r.dataset, r.partition, r.clients, r.split) for r in table.itertuples()]
    keys = ["column", "row"]
    out = pd.DataFrame(columns=keys)
    for value in (*tables.SCORES, "worst"):
        cells = tables.summary(table, value, list(dict.fromkeys(columns))).query("runs > 0")
        names = {"mean": value, "half95": f"{value} ±"}
        out = out.merge(cells[[*keys, "mean", "half95"]].rename(columns=names), on=keys, how="outer", sort=False)
    sizes = table.groupby(keys, sort=False).agg(MiB=("bytes", "mean"), runs=("seed", "nunique")).reset_index()
    gaps = statistics.differences(table, of, bases=("Local",)).rename(columns={"difference": "minus Local"})
    out = out.merge(sizes, on=keys, how="left").merge(gaps[[*keys, "minus Local", "low", "high"]], on=keys, how="left")
    constant = table.assign(constant=table["note"].ne("")).groupby(keys)["constant"].sum()
    if constant.any():
        counts = zip(constant.reindex(pd.MultiIndex.from_frame(out[keys])), out["runs"])
        told = [f"{n} of {runs} runs are no better than a constant prediction" if n else "" for n, runs in counts]
        out = out.assign(note=told)
    return out.sort_values(["column", of], ascending=[True, False], kind="stable").reset_index(drop=True)
