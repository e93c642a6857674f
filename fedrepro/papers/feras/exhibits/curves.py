"""Feras's scores over epochs, and how soon they are reached."""

from __future__ import annotations

import math

import pandas as pd

from fedrepro.papers.feras.exhibits.grids import FERAS, METHODS
from fedrepro.papers.feras.exhibits.tables import CELL
from fedrepro.reporting import frames
from fedrepro.reporting.statistics import mean_gap

RISE = 0.95  # the share of a run's own rise after which it counts as converged
LATE = 50  # "between epoch 50 and 400": where the paper compares values of q


def curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each run and scored epoch: `epoch`, `F1-micro` and `validation`, means over hosts."""
    keep = ["dataset", "method", "row", "sampler", "kappa", "hosts", "seed", "q", "local_epochs"]
    lists = {"F1-micro": "series.before.test_clients", "validation": "series.before.val_clients"}
    points = frames.explode(frame, lists, keep)
    epoch = points["round"] * points["local_epochs"].fillna(1).astype(int)
    return points.assign(epoch=epoch)[[*keep[:-1], "epoch", *lists]]


def gaps(points: pd.DataFrame) -> pd.DataFrame:
    """Return how far Feras is ahead of each other method at each epoch that both score, in points, seed by seed.

    Two lines whose bands overlap may still differ in every seed, since seeds move both. The column `gap` does not show
    what moves both.
    """
    keys = [*CELL, "seed", "epoch"]
    wide = points.pivot_table(index=keys, columns="method", values="F1-micro", sort=False)
    parts = [
        (100 * (wide[FERAS] - wide[over])).dropna().rename("gap").reset_index().assign(over=f"over {over}")
        for over in METHODS[:2]
        if FERAS in wide and over in wide
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*keys, "gap", "over"])


def epochs_saved(points: pd.DataFrame) -> pd.DataFrame:
    """Return how many epochs earlier Feras reaches the highest validation score that both of two runs reach.

    Runs are paired by graph, kappa, hosts and seed. `target` is the lower one of the two runs' highest validation
    scores. `other` and `feras` are the first scored epochs at which either run has it or more, and `saved` is `other`
    minus `feras`. A tie saves nothing, as scores are taken once in a few epochs. `missed` says that Feras never reaches
    the other run's own highest score, and is information only.

    A method with the higher plateau passes the target on its way up, so it is earlier although it may rise no faster.
    `own saved` does not know the plateau: it is the difference of the first epochs at which each run has gone `RISE` of
    the way from its own first score to its own highest one. A test simulates both.

    The rule is symmetric, which it was not before: the target was the other run's highest score, and a Feras that never
    reached it lost all of its epochs. It was changed after the numbers had been seen. A simulation of two methods with
    one curve and independent noise showed that the old rule finds a loss where there is none; a test repeats it.
    """
    keys = [*CELL, "seed"]
    rows = []
    for key, cell in points.dropna(subset="validation").groupby(keys, sort=False):
        runs = {name: group.set_index("epoch")["validation"] for name, group in cell.groupby("method")}
        for over in METHODS[:2]:
            if FERAS not in runs or over not in runs:
                continue
            ours, other = runs[FERAS], runs[over]
            target = min(ours.max(), other.max())
            at, first = (scores.index[scores >= target].min() for scores in (other, ours))
            own = _risen(other) - _risen(ours)
            rows.append([*key, over, target, at, first, at - first, own, ours.max() < other.max()])
    return pd.DataFrame(rows, columns=[*keys, "over", "target", "other", "feras", "saved", "own saved", "missed"])


def _risen(scores: pd.Series) -> int:
    """Return the first epoch at which a run has `RISE` of its rise from its first score to its highest one."""
    first, highest = scores.iloc[0], scores.max()
    return int(scores.index[scores >= first + RISE * (highest - first)].min())


def speed(points: pd.DataFrame) -> pd.DataFrame:
    """Return means of `epochs_saved` over seeds, the runs of Feras with `missed`, and the paces of both methods."""
    saved = epochs_saved(points).groupby([*CELL, "over"], sort=False)
    table = saved[["other", "feras", "saved", "own saved"]].mean()
    table = table.assign(**{"never reached": saved["missed"].sum(), "runs": saved.size()}).reset_index()
    paces = pace(points).groupby([*CELL, "method"], sort=False)["pace"].mean()
    for name, methods in (("pace", table["over"]), ("pace of Feras", [FERAS] * len(table))):
        keys = zip(*(table[column] for column in CELL), methods, strict=True)
        table[name] = [paces.get(key, math.nan) for key in keys]
    return table


def pace(points: pd.DataFrame) -> pd.DataFrame:
    """Return the shape of each run's curve: its mean score in the first half of the epochs over its highest score.

    The number is information only. It is 1 for a curve that never rises, and falls where the same curve goes on to a
    higher plateau, so it does not say which of two methods is faster.
    """
    keys = ["dataset", "method", "sampler", "kappa", "hosts", "q", "seed"]
    last = points.groupby(keys, sort=False, dropna=False)["epoch"].transform("max")
    early = points["F1-micro"].where(points["epoch"] <= last / 2)
    runs = points.assign(early=early).groupby(keys, sort=False, dropna=False)
    return (runs["early"].mean() / runs["F1-micro"].max()).rename("pace").reset_index()


def next_to_one(points: pd.DataFrame) -> pd.DataFrame:
    """Return the curves of each q above 1 with those of q = 1, and the column `beside`, which names this q.

    The curves of q = 1 are repeated for each other q. Without another q they are returned once.
    """
    several = sorted(q for q in points["q"].unique() if q > 1)
    pairs = [points[points["q"].isin([1, q])].assign(beside=f"q = {q:g}") for q in several]
    return pd.concat(pairs).sort_values("dataset", kind="stable") if pairs else points.assign(beside="")


def largest_effect(points: pd.DataFrame) -> float | None:
    """Return the most by which the curve of any q leaves that of q = 1 from epoch 50 on, in the runs of one graph.

    The difference is a mean over common seeds, at each epoch that is scored for both. None if nothing is common.
    """
    late = points[points["epoch"].ge(LATE) & points["epoch"].mod(5).eq(0)]
    wide = late.pivot_table(index=["epoch", "seed"], columns="q", values="F1-micro")
    if 1 not in wide:
        return None
    gaps = wide.drop(columns=1).sub(wide[1], axis=0).groupby("epoch").mean().abs().stack().dropna()
    return float(gaps.max()) if len(gaps) else None


def late_scores(points: pd.DataFrame) -> pd.DataFrame:
    """Return the mean score from epoch 50 on for every graph and q, and its difference to q = 1 (FR-X1).

    Runs with fewer than 100 epochs are averaged from their half on. The difference is paired over seeds.
    """
    rows = []
    for dataset, group in points.groupby("dataset", sort=False):
        start = min(LATE, group["epoch"].max() / 2)
        late = group[group["epoch"].ge(start) & group["epoch"].mod(5 if start == LATE else 1).eq(0)]
        wide = late.pivot_table(index="seed", columns="q", values="F1-micro")
        first = wide[1] if 1 in wide else wide.iloc[:, 0] * math.nan
        for q, scores in wide.items():
            gap, low, high, _ = mean_gap(scores, first)
            ends = (low, high) if q != 1 else (math.nan, math.nan)
            rows.append([dataset, int(q), scores.mean(), scores.count(), gap, *ends])
    return pd.DataFrame(rows, columns=["dataset", "q", "F1-micro", "runs", "minus q=1", "low", "high"])
