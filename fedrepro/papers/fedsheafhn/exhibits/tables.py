"""Tables 1 to 3 of FedSheafHN, its figures of clients and rounds, and the names under which all its runs are shown.

A score is the federated accuracy: the mean over clients of each client's test accuracy, in percent, at the round of
best validation accuracy. Each method is scored in the view of the paper that proposes it (`METHODS`, SH-V).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedrepro.papers.fedsheafhn.exhibits import settings
from fedrepro.papers.fedsheafhn.exhibits.grids import GRIDS
from fedrepro.papers.fedsheafhn.exhibits.settings import METHODS, OURS
from fedrepro.reporting import compare, exhibits, frames
from fedrepro.reporting.layout import MARKS
from fedrepro.reporting.statistics import mean_gap

CELL = ["dataset", "method", "clients"]
SHEAF = ("with sheaf collaboration", "without sheaf collaboration")
# Exhibits that are scored after local training throughout: the code of FED-PUB's line scores so, and in an ablation or
# over rounds no step must be a change of view (SH-V).
AT_MAJORITY = {"ours": "†", "published": "‡", "both": "†‡"}  # the marks of `as_printed`
CLASSIFIER = "FGGP, by its classifier"  # a row of `as_printed`, for information (SH-B5)
AFTER = ("SH-T1-lineage", "SH-T4", "SH-T5", "SH-M2", "SH-F4a", "SH-F4b", "SH-F4c")
ROWS = {"SH-T4": settings.MODULES, "SH-T5": settings.NETWORKS, "SH-M2": settings.READINGS}
TIMED = ("SH-T6", "SH-X1")

# --- names and scores --------------------------------------------------------------------------------------------


def prepare(frame: pd.DataFrame, exhibit_id: str) -> pd.DataFrame:
    """Return the runs of an exhibit with their scores and the paper's names; checks and tuning runs stay as they are.

    Training runs get the columns of `scored`. Those of an ablation get `row`, the name of their row in the table; those
    of Figure 1(b) are named by what they have; those of Figure 7 get `ratio`, the share of malicious clients.
    """
    if exhibit_id in TIMED:
        frame = with_rows(frame.assign(method=frame.get("of")), settings.MODULES | settings.NETWORKS)
        return frame.assign(row=frame["row"].where(frame["row"].ne("+ Dynamic embedding"), OURS))
    if exhibit_id == "SH-T9" or GRIDS[exhibit_id].task != "train":
        return frame
    frame = scored(frame, "after" if exhibit_id in AFTER else "before" if exhibit_id == "SH-M4" else "")
    if exhibit_id in ROWS:
        frame = with_rows(frame, ROWS[exhibit_id])
    if exhibit_id == "SH-M4":
        own_sgd = _column(frame, "optimizer").eq("sgd")
        names = {(options["name"], "optimizer" in options): row for row, options in settings.FGGP_READINGS.items()}
        frame = frame.assign(row=[names.get(key, "") for key in zip(frame["method"], own_sgd, strict=True)])
    if exhibit_id == "SH-F1b":
        without = _column(frame, "vectors").eq("one-hot")
        frame = frame.assign(method=without.map({True: SHEAF[1], False: SHEAF[0]}))
    if exhibit_id in ("SH-F7", "SH-A3"):
        ratio = _column(frame, "malicious").astype(float).fillna(0.0)
        frame = frame.assign(ratio=ratio, attack=_column(frame, "attack"))
    return frame


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    return frame[name] if name in frame else pd.Series(None, index=frame.index, dtype=object)


def view_of(method: str, run: Mapping[str, Any]) -> str:
    """Return the view in which a run of a method is scored, `before` or `after` local training.

    A method that takes the better view takes that of higher validation accuracy, each at its best round.
    """
    view = METHODS.get(method, METHODS[OURS]).view
    if view != "better":
        return view
    before, after = (run.get(f"{name}.best.val_clients", math.nan) for name in ("before", "after"))
    return "before" if before > after else "after"


def scored(frame: pd.DataFrame, view: str = "") -> pd.DataFrame:
    """Return the frame with the scores of one view, or of each method's view, in percent.

    The columns are `view`; `percent`, the federated accuracy at the best validation round; `other`, the same in the
    other view; `last`, at the last round; and `val`, on validation nodes at the best round.
    """
    views = pd.Series(
        [view or view_of(run["method"], run) for run in frame.to_dict("records")], frame.index, dtype=object
    )
    before = views.eq("before")

    def scores(where: str, nodes: str = "test", first: pd.Series = before) -> pd.Series:
        one, other = (_column(frame, f"{side}.{where}.{nodes}_clients").astype(float) for side in ("before", "after"))
        return 100 * one.where(first, other)

    named = {"percent": scores("best"), "last": scores("last"), "other": scores("best", first=~before)}
    return frame.assign(view=views, **named, val=scores("best", "val"))


def with_rows(frame: pd.DataFrame, rows: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return the frame with `row`: the row of an ablation whose options are those of the run.

    Only options that differ from those of Table 1 count. FedAvg is the base model.
    """
    options = sorted({name for changed in rows.values() for name in changed})
    names = []
    for run in frame.to_dict("records"):
        usual = settings.settings(OURS, run["dataset"], run["clients"])
        changed = {name: run[name] for name in options if not blank(run.get(name)) and run[name] != usual.get(name)}
        matching = [
            row for row, more in rows.items() if changed == {k: v for k, v in more.items() if v != usual.get(k)}
        ]
        names.append(settings.BASE_MODEL if run["method"] == "FedAvg" else matching[0] if matching else "")
    return frame.assign(row=names)


def blank(value: Any) -> bool:
    """Return whether a run lacks an option: its cell is None or NaN."""
    return value is None or value != value


def printed(exhibit_id: str) -> pd.DataFrame:
    """Return the numbers that the paper prints for one exhibit."""
    return exhibits.published(settings.PAPER).query("exhibit == @exhibit_id")


# --- Tables 1 and 2 ----------------------------------------------------------------------------------------------


def beside_published(frame: pd.DataFrame, exhibit_id: str) -> pd.DataFrame:
    """Compare the runs of Table 1 or 2 with the published cells; `other_mean` is our mean in the other view."""
    table = compare.judge_table(frame, printed(exhibit_id), on=CELL, value="percent")
    other = frame.assign(clients=frame["clients"].astype(str)).groupby(CELL)["other"].mean()
    return table.merge(other.rename("other_mean").reset_index(), on=CELL, how="left")


def with_majority(table: pd.DataFrame, statistics: pd.DataFrame) -> pd.DataFrame:
    """Return Table 1 or 2 with `majority`, the accuracy in percent of a client that knows only its frequent class.

    Such a client answers with the most frequent class among its training nodes. The number is the mean over clients and
    seeds, from the runs of Table 7 or 8 (`statistics`). The column `at_majority` names which of the two means is not
    above it: "ours", "published", "both", or neither (an empty string).
    """
    rows = statistics[statistics["clients"].gt(1)] if len(statistics) else statistics
    rows = rows.reindex(columns=["dataset", "clients", "majority"])
    rows = rows.assign(clients=rows["clients"].astype(str), majority=100 * rows["majority"].astype(float))
    means = rows.groupby(["dataset", "clients"], sort=False)["majority"].mean().reset_index()
    table = table.merge(means, on=["dataset", "clients"], how="left")
    low = (table[column].le(table["majority"]) for column in ("ours_mean", "published_mean"))
    names = {(True, True): "both", (True, False): "ours", (False, True): "published", (False, False): ""}
    return table.assign(at_majority=[names[pair] for pair in zip(*low, strict=True)])


def as_printed(table: pd.DataFrame) -> pd.DataFrame:
    """Return Table 1 or 2 in the paper's shape: our mean ± standard deviation, runs, verdict, and `AT_MAJORITY`'s mark.

    FGGP has a second row, its classifiers after local training (`other_mean`). They are shown for information (SH-B5).
    """

    def text(row: Any) -> str:
        spread = "" if row.ours_sd != row.ours_sd else f" ± {row.ours_sd:.2f}"
        mark = AT_MAJORITY.get(getattr(row, "at_majority", ""), "")
        return f"{row.ours_mean:.2f}{spread} ({row.runs}) {MARKS[row.verdict]}{mark}" if row.runs else mark

    columns = table.assign(column=table["dataset"] + ", " + table["clients"].astype(str) + " clients (percent)")
    order = list(dict.fromkeys(columns["column"]))
    wide = frames.paper_layout(columns, "method", "column", text).set_index("method").loc[list(METHODS), order]
    votes = columns[columns["method"].eq("FGGP")].set_index("column")
    wide.loc[CLASSIFIER] = [
        f"{row.other_mean:.2f} ({row.runs})" if row.runs else "" for row in votes.loc[order].itertuples()
    ]
    rows = [name for method in METHODS for name in (method, *([CLASSIFIER] if method == "FGGP" else []))]
    return wide.loc[rows].rename_axis(index="method", columns=None).reset_index()


def count_below_majority(table: pd.DataFrame) -> pd.DataFrame:
    """Count for each method the published means, and ours, that are not above `majority`, and the columns compared."""
    known = table.dropna(subset=["majority"])
    counts: dict[str, pd.Series] = {}
    for name, column in (("published", "published_mean"), ("ours", "ours_mean")):
        rows = known.dropna(subset=[column])
        low = rows.assign(low=rows[column].le(rows["majority"])).groupby("method", sort=False)["low"]
        counts |= {f"{name}, at or below": low.sum(), f"{name}, of": low.count()}
    return pd.DataFrame(counts).reindex(list(METHODS)).fillna(0).astype(int)


def rival_of(validation: Mapping[str, pd.Series]) -> str:
    """Return the method of highest mean validation accuracy, the first of equals; an empty string if there is none."""
    means = {name: scores.mean() for name, scores in validation.items()}
    return max(means, key=lambda name: means[name], default="")


def rank_against_rivals(frame: pd.DataFrame) -> pd.DataFrame:
    """Return where FedSheafHN stands in each column of Table 1 or 2 that was run on a real graph.

    The column `over Local` is FedSheafHN minus Local in points, on the seeds that both have, with its 95% interval
    (`low`, `high`; none for one run). The `rival` is the other method of best validation accuracy among those
    that share two seeds with FedSheafHN, as in SH-C1, and `over rival` is FedSheafHN minus it. `place` is one more than
    the methods whose mean test accuracy is above FedSheafHN's, each on the seeds that both have, and `methods` counts
    those compared, FedSheafHN among them.
    """
    rows = []
    for (dataset, clients), column in frame.groupby(["dataset", "clients"], sort=False):
        runs = {name: group.set_index("seed") for name, group in column.groupby("method")}
        if dataset not in settings.DATASETS or OURS not in runs:
            continue
        scores = {name: group["percent"] for name, group in runs.items()}
        gaps = {name: (scores[OURS] - score).dropna() for name, score in scores.items() if name != OURS}
        rival = rival_of({name: runs[name]["val"] for name, gap in gaps.items() if len(gap) > 1})
        over_local = mean_gap(scores[OURS], scores.get("Local", scores[OURS].iloc[:0]))[:3]
        over_rival = gaps[rival].mean() if rival else math.nan
        rank = 1 + sum(gap.mean() < 0 for gap in gaps.values())
        compared = 1 + sum(len(gap) > 0 for gap in gaps.values())
        runs_and_mean = [len(scores[OURS]), scores[OURS].mean()]
        rows.append([dataset, clients, *runs_and_mean, *over_local, rival, over_rival, rank, compared])
    columns = ["dataset", "clients", "runs", "ours_mean", "over Local", "low", "high", "rival", "over rival", "place"]
    return pd.DataFrame(rows, columns=[*columns, "methods"])


# --- clients -----------------------------------------------------------------------------------------------------


def clients_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each run and client with the client's accuracy in percent.

    A record without the list of its method's view at the best round gives FedSheafHN's list of the last round; a run
    with neither is left out.
    """
    runs = frame.to_dict("records")
    series = [run.get(f"series.{run['view']}.clients") for run in runs]
    lists = [kept if isinstance(kept, list) else run.get("facts.client_test") for kept, run in zip(series, runs)]
    keep = [*CELL, "seed"]
    rows = frames.explode(frame.assign(scores=lists), {"percent": "scores"}, keep, position="client", first=0)
    return rows.dropna(subset=["percent"]).assign(percent=lambda rows: 100 * rows["percent"].astype(float))


def over_clients(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the mean and the standard deviation over the clients of each run, in percent.

    The standard deviation is that of all clients, with their number as divisor, as in the records (`client_sd` of
    FedSheafHN).
    """
    each = clients_of(frame).groupby([*CELL, "seed"], sort=False)["percent"]
    return pd.DataFrame({"mean": each.mean(), "std": each.std(ddof=0)}).reset_index()


def spread_over_clients(frame: pd.DataFrame, exhibit_id: str) -> pd.DataFrame:
    """Return mean and standard deviation over clients, averaged over runs, and the published pairs (Table 3, Figure 1).

    A published pair that belongs to no graph of ours has a row without runs.
    """
    table = over_clients(frame).groupby(CELL, sort=False)
    means = table.agg(ours_mean=("mean", "mean"), ours_sd_over_clients=("std", "mean"), runs=("seed", "nunique"))
    pairs = {"value_number": "published_mean", "spread_number": "published_sd_over_clients"}
    paper = printed(exhibit_id).astype({"clients": int})
    if exhibit_id == "SH-F1b":
        paper = paper.assign(method=paper["setting"])
    paper = paper[[*CELL, *pairs]].rename(columns=pairs)
    ours = means.reset_index().astype({"dataset": object, "method": object, "clients": int})
    beside = ours.merge(paper, "left", on=CELL)
    alone = paper[~paper.set_index(CELL).index.isin(ours.set_index(CELL).index)]
    return pd.concat([beside, alone], ignore_index=True).astype({"runs": float}).fillna({"runs": 0})


def one_partition(clients: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of `clients_of` of the first seed that all methods of a data set share, or of each method's first.

    Clients of two seeds have only their number in common, as each seed draws a partition.
    """
    parts = [clients.iloc[:0]]
    for _, rows in clients.groupby("dataset", sort=False):
        shared = set.intersection(*(set(group["seed"]) for _, group in rows.groupby("method")))
        first = rows.groupby("method")["seed"].transform("min")
        parts.append(rows[rows["seed"].eq(min(shared) if shared else first)])
    return pd.concat(parts).reset_index(drop=True)


# --- rounds ------------------------------------------------------------------------------------------------------


def rounds_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each run and round: pooled validation accuracy `val` and federated accuracy `test`."""
    runs = frame.to_dict("records")
    curves = {name: [run.get(f"series.{run['view']}.{name}") for run in runs] for name in ("val", "test_clients")}
    lists = {"val": "val", "test": "test_clients"}
    rows = frames.explode(frame.assign(**curves), lists, ["dataset", "method", "seed"])
    return rows.assign(**{name: 100 * rows[name].astype(float) for name in lists})


def selection_bias(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how far the best test round lies above the best validation round, in points for each method (SH-M1)."""
    rows = [
        {"dataset": dataset, "method": method, "points": run["test"].max() - run.loc[run["val"].idxmax(), "test"]}
        for (dataset, method, _), run in rounds_of(frame).groupby(["dataset", "method", "seed"], sort=False)
    ]
    runs = pd.DataFrame(rows, columns=["dataset", "method", "points"]).groupby(["dataset", "method"], sort=False)
    names = {"mean": "points_mean", "max": "points_max", "count": "runs"}
    return runs["points"].agg(list(names)).rename(columns=names).reset_index()


def reached(frame: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Return in which round our mean curve is first at least the printed number, for each cell with curves and print.

    A number that is reached in the first rounds is one that a hardly trained model gives.

    Args:
        frame: runs with their series, as SH-M1's. The curve is the mean federated accuracy over the runs of a cell.
        table: Table 1 or 2 of `with_majority`.

    Returns:
        The columns `dataset`, `method`, `clients`, `published_mean`, `majority`, `first` (our mean after one round),
        `reached` (the round; NaN if no round gets there), `rounds` and `runs`. All but the last three are in percent.
    """
    wanted = table.dropna(subset=["published_mean"]).astype({"clients": int}).set_index(CELL)
    rows = []
    for cell, runs in frame.groupby(CELL, sort=False):
        points = rounds_of(runs)
        if cell not in wanted.index or points.empty:
            continue
        curve = points.groupby("round")["test"].mean()
        there = curve.index[curve.ge(wanted.loc[cell, "published_mean"])]
        known = wanted.loc[cell, ["published_mean", "majority"]]
        ends = [curve.iloc[0], there.min(), len(curve), points["seed"].nunique()]
        rows.append([*cell, *known, *ends])
    columns = [*CELL, "published_mean", "majority", "first", "reached", "rounds", "runs"]
    return pd.DataFrame(rows, columns=columns)
