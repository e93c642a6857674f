"""Published against measured: verdicts, rank agreement, paired seeds, rates, claims.

The rule. Let `d` be our mean less the published one, and the margin the larger of one accuracy point
and the paper's own spread. One interval, [low, high], 90% for `d` by Welch's t from the two means, spreads
and numbers of runs, decides:

    inside ±margin    reproduced      two one-sided tests, each at 5%
    outside ±margin   differs         p against |d| <= margin, Benjamini-Hochberg over an exhibit
    neither           undecided       with the number of runs it would need
    nothing to test   not comparable  fewer than two runs, no spread, peak of runs, stand-in

Where the truth is equal, `differs` stays below 5%; where it is exactly at the margin, `reproduced` does.
Where the margin is the paper's spread, an estimate itself, `differs` at the margin rises to about 10%.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from fedrepro.errors import one_of, require
from fedrepro.reporting.checks import limit as limit
from fedrepro.reporting.statistics import Interval, Paired, Slope, interval, quantile, tail
from fedrepro.reporting.statistics import common as common
from fedrepro.reporting.statistics import paired as paired
from fedrepro.reporting.statistics import slope as slope

LEVEL = 0.05
MAX_RUNS = 1000
REPRODUCED, DIFFERS, UNDECIDED, NOT_COMPARABLE = "reproduced", "differs", "undecided", "not comparable"
VERDICTS = (REPRODUCED, DIFFERS, UNDECIDED, NOT_COMPARABLE)
SPREAD_KINDS = ("sd", "not stated", "standard error", "ci95", "peak", "")
IDENTIFIERS = ("exhibit", "dataset", "method", "clients", "partition", "setting", "metric")
PUBLISHED = ("published", "published_mean", "published_spread")
MEASURED = (
    "ours_mean", "ours_sd", "runs", "difference", "low", "high", "p", "verdict", "needed_runs", "why",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------
# one cell


@dataclass(frozen=True)
class Verdict:
    """One published number against our runs; `low` and `high` are the 90% interval of the difference. `sides`: what was
    tested, ours, theirs and the margin; None if nothing was.
    """

    verdict: str
    ours_mean: float
    ours_sd: float
    runs: int
    difference: float
    low: float
    high: float
    p: float
    needed_runs: int | None
    why: str
    sides: tuple[_Side, _Side, float] | None = field(default=None, repr=False, compare=False)


def verdict(
    ours: Sequence[float],
    published: float | None,
    spread: float | None,
    *,
    margin: float = 0.01,
    runs_published: int = 10,
    spread_kind: str = "not stated",
    peak: bool = False,
    standin: bool = False,
) -> Verdict:
    """Hold our runs against one published number.

    Args:
        ours: one score a run, in the unit of the published number.
        published: the published mean; None or NaN if the cell is empty.
        spread: what the paper prints behind its ±; None or NaN if nothing.
        margin: the smallest difference that matters; the paper's own spread replaces it if larger.
        runs_published: runs behind the published mean.
        spread_kind: what `spread` is: `sd` over runs, `standard error`, `ci95` (half-width of a 95% t
            interval), `not stated` (taken as `sd`), `peak` or empty (none).
        peak: the published number is the best of several runs.
        standin: our runs are on a stand-in for the paper's data.

    Raises:
        ArgumentError: a score is not finite, a spread is negative, or its kind unknown.
    """
    one_of("spread_kind", spread_kind, SPREAD_KINDS)
    scores = np.asarray(ours, dtype=float)
    require(bool(np.isfinite(scores).all()), "ours", "finite scores", list(ours))
    target = math.nan if published is None else float(published)
    printed = math.nan if spread is None else float(spread)
    require(not printed < 0, "spread", "at least 0", spread)
    require(margin > 0, "margin", "above 0", margin)
    require(runs_published >= 2, "runs_published", "at least 2", runs_published)
    runs = len(scores)
    mean = float(scores.mean()) if runs else math.nan
    sd = float(scores.std(ddof=1)) if runs > 1 else math.nan
    against = _unfair(runs, target, printed, peak or spread_kind == "peak", standin)
    if against:
        low, high = interval(scores, level=1 - 2 * LEVEL)[1:3] if runs else (math.nan, math.nan)
        difference = mean - target
        return Verdict(NOT_COMPARABLE, mean, sd, runs, difference, low - target, high - target, math.nan, None, against)
    theirs = _Side(target, _as_sd(printed, spread_kind, runs_published), runs_published)
    found = _decide(_Side(mean, sd, runs), theirs, max(margin, printed))
    if spread_kind == "not stated":
        note = f"; what the ± is was not stated: taken as a standard deviation over {runs_published} runs"
        return replace(found, why=found.why + note)
    return found


class _Side(NamedTuple):
    mean: float
    sd: float
    runs: Any


def _unfair(runs: int, published: float, spread: float, peak: bool, standin: bool) -> str:
    """Why a cell cannot be judged; empty if it can."""
    reasons = {
        "not measured": runs == 0,
        "one run only": runs == 1,
        "nothing published": math.isnan(published),
        "the published number is a peak of runs": peak,
        "no spread published": math.isnan(spread) and not peak,
        "measured on a stand-in": standin,
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)


def _as_sd(spread: float, kind: str, runs: int) -> float:
    """Return a printed spread as a standard deviation over runs."""
    if kind == "ci95":
        return spread / quantile(0.975, runs - 1) * math.sqrt(runs)
    return spread * math.sqrt(runs) if kind == "standard error" else spread


def _decide(ours: _Side, theirs: _Side, margin: float) -> Verdict:
    difference = ours.mean - theirs.mean
    error, freedom = (float(value) for value in _welch(ours, theirs))
    half = quantile(1 - LEVEL, freedom) * error
    low, high = difference - half, difference + half
    # At the margin's edge both tails count, so that p <= 5% implies an interval outside it.
    p = tail(abs(difference) - margin, error, freedom) + tail(abs(difference) + margin, error, freedom)
    needed = None
    if -margin <= low and high <= margin:
        name, why = REPRODUCED, "the interval lies within the margin"
    elif p <= LEVEL:
        name, why = DIFFERS, "the interval lies outside the margin"
    else:
        needed = _needed(ours, theirs, margin)
        enough = f"{needed} runs would" if needed else f"not even {MAX_RUNS} runs would"
        name, why = UNDECIDED, f"the interval does not settle it; {enough}, if mean and spread stay"
    why += f" (margin {margin:.6g}, interval [{low:.6g}, {high:.6g}])"
    numbers = (ours.mean, ours.sd, ours.runs, difference, low, high, min(p, 1.0), needed)
    return Verdict(name, *numbers, why, (ours, theirs, margin))


def _welch(ours: _Side, theirs: _Side) -> tuple[Any, Any]:
    """Standard error of a difference of two means, and its degrees of freedom (Welch, Satterthwaite)."""
    a, b = (side.sd**2 / np.asarray(side.runs, dtype=float) for side in (ours, theirs))
    below = np.asarray(a**2 / (ours.runs - 1) + b**2 / (theirs.runs - 1))
    freedom = np.divide((a + b) ** 2, below, out=np.full_like(below, np.inf), where=below > 0)
    return np.sqrt(a + b), freedom


def _needed(ours: _Side, theirs: _Side, margin: float, level: float = LEVEL) -> int | None:
    """The fewest runs of ours that decide at a level, mean and spreads staying as they are; None beyond `MAX_RUNS`."""
    tries = np.arange(ours.runs + 1, MAX_RUNS + 1)
    error, freedom = _welch(ours._replace(runs=tries), theirs)
    half = stdtrit(freedom, 1 - level) * error
    decided = half <= abs(abs(ours.mean - theirs.mean) - margin)
    return int(tries[decided][0]) if decided.any() else None


# ---------------------------------------------------------------------------------------------------------
# one exhibit


def verdicts(rows: Sequence[Verdict], *, level: float = LEVEL) -> list[Verdict]:
    """The verdicts of one exhibit, `differs` kept only where Benjamini-Hochberg at `level` keeps it.

    The family is every cell that was tested at all. Benjamini and Hochberg, J. R. Stat. Soc. B 57 (1995).
    """
    tested = [row.p for row in rows if not math.isnan(row.p)]
    threshold = _threshold(tested, level)
    asked = level * (sum(p <= threshold for p in tested) + 1) / max(1, len(tested))  # of one cell more

    def open_cell(row: Verdict) -> Verdict:
        needed = _needed(*row.sides, level=asked) if row.sides else None
        enough = f"{needed} runs would" if needed else f"not even {MAX_RUNS} runs would"
        note = f"undecided after Benjamini-Hochberg over {len(tested)} cells; {enough}, if all else stays; alone, "
        return replace(row, verdict=UNDECIDED, needed_runs=needed, why=note + row.why)

    return [open_cell(row) if row.verdict == DIFFERS and row.p > threshold else row for row in rows]


def table(
    frame: pd.DataFrame,
    published: pd.DataFrame,
    on: Sequence[str] = ("dataset", "method", "clients", "partition"),
    value: str = "test",
    *,
    margin: float = 0.01,
    runs_published: int = 10,
    scale: float = 1.0,
) -> pd.DataFrame:
    """One row per published cell: what is printed, what we measured, and the verdict.

    Args:
        frame: one row per run, as `engine.execute` returns it; rows whose `status` is not `ok` are left out.
        published: rows of `published.load`.
        on: columns that identify a cell in both; numbers match however they are written.
        value: the column of `frame` that holds the score.
        margin: as in `verdict`, in the published unit.
        runs_published: as in `verdict`.
        scale: our score times this is in the published unit (100 for percent).

    A stand-in (`Cora~standin`) fills the cell of its name only where no run on the real data exists, and is
    then not comparable.

    Raises:
        ArgumentError: a column is missing, or a seed occurs twice in a cell (`on` mixes different runs).
    """
    for column in on:
        one_of("on", column, published.columns)
    identifiers = [*IDENTIFIERS, *(name for name in on if name not in IDENTIFIERS)]
    ours = _cells(frame, on, value)
    rows = []
    for cell in published.to_dict("records"):
        key = tuple(_canonical(cell[column]) for column in on)
        standin = (key, False) not in ours and (key, True) in ours
        found = verdict(
            [scale * score for score in ours.get((key, standin), [])],
            cell["value_number"],
            cell["spread_number"],
            margin=margin,
            runs_published=runs_published,
            spread_kind=cell["spread_kind"],
            standin=standin,
        )
        printed = f"{cell['value']} ± {cell['spread']}" if cell["spread"] else cell["value"]
        numbers = (cell["value_number"], cell["spread_number"])
        rows.append(({name: cell[name] for name in identifiers}, (printed, *numbers), found))
    judged: dict[int, Verdict] = {}
    for name in dict.fromkeys(row["exhibit"] for row, _, _ in rows):
        places = [place for place, (row, _, _) in enumerate(rows) if row["exhibit"] == name]
        judged |= dict(zip(places, verdicts([rows[place][2] for place in places])))
    return pd.DataFrame(
        [
            row | dict(zip(PUBLISHED, numbers)) | {name: getattr(judged[place], name) for name in MEASURED}
            for place, (row, numbers, _) in enumerate(rows)
        ],
        columns=[*identifiers, *PUBLISHED, *MEASURED],
    ).astype({"needed_runs": "Int64"})


def _threshold(tested: Sequence[float], level: float = LEVEL) -> float:
    """The largest p-value that Benjamini and Hochberg's procedure keeps; below 0 if none."""
    ranked = enumerate(sorted(tested), start=1)
    return max((p for rank, p in ranked if p <= level * rank / len(tested)), default=-1.0)


def _cells(frame: pd.DataFrame, on: Sequence[str], value: str) -> dict[tuple[tuple[str, ...], bool], list[float]]:
    """Scores by cell and by whether they come from a stand-in."""
    if frame.empty:
        return {}
    for column in [*on, value]:
        one_of("column", column, frame.columns)
    if "status" in frame.columns:
        frame = frame[frame["status"] == "ok"]
    found: dict[tuple[tuple[str, ...], bool], list[float]] = {}
    seen: set[tuple[Any, ...]] = set()
    for run in frame.to_dict("records"):
        if pd.isna(run[value]):
            continue
        standin = str(run.get("dataset", "")).endswith("~standin")
        key = tuple(_canonical(run[column]).removesuffix("~standin") for column in on)
        if "seed" in run:
            mark = (key, standin, run["seed"])
            require(mark not in seen, "on", "columns that tell runs of one seed apart", (list(on), key))
            seen.add(mark)
        found.setdefault((key, standin), []).append(float(run[value]))
    return found


def _canonical(value: Any) -> str:
    """A cell's name, `10`, `10.0` and `"10"` being the same."""
    try:
        return f"{float(value):.12g}"
    except (TypeError, ValueError):
        return str(value)


def rank_agreement(table: pd.DataFrame, by: Sequence[str], order: Sequence[str] = ("method",)) -> pd.DataFrame:
    """Kendall's tau-b between the published and the measured ranking of the methods, per column of a table.

    Args:
        table: as `table` returns it.
        by: columns that name a column of the paper's table, such as `["dataset", "setting"]`.
        order: columns that name what is ranked.

    Returns:
        `by`, `methods` (how many have both numbers) and `tau` (NaN below two methods or where all are equal).

    Raises:
        ArgumentError: a method occurs twice in a column.
    """
    from scipy.stats import kendalltau

    rows = []
    for name, group in table.groupby(list(by), sort=False):
        both = group.dropna(subset=["published_mean", "ours_mean"])
        twice = both[both.duplicated(list(order))]
        require(twice.empty, "by", f"columns within which {list(order)} is unique", list(by))
        several = min(both["published_mean"].nunique(), both["ours_mean"].nunique()) > 1
        tau = float(kendalltau(both["published_mean"], both["ours_mean"]).statistic) if several else math.nan
        rows.append(dict(zip(by, name)) | {"methods": len(both), "tau": tau})
    return pd.DataFrame(rows, columns=[*by, "methods", "tau"])


# ---------------------------------------------------------------------------------------------------------
# claims

SHOWN, CONTRADICTED = "shown", "contradicted"
CLAIM_VERDICTS = ("holds", "holds in part", "fails", UNDECIDED, "cannot be checked here")
CLAIM_COLUMNS = ("id", "paper", "claim", "check", "evidence", "verdict")


@dataclass(frozen=True)
class Claim:
    """A headline claim and the function of the store that judges it.

    `check(get)` returns evidence, with its measured digits, and one of `CLAIM_VERDICTS`; `get` gives the
    frame of an exhibit's runs. The first line of its docstring says what is checked.
    """

    id: str
    paper: str
    text: str
    check: Callable[[Callable[..., pd.DataFrame]], tuple[str, str]]


def claims_table(claims: Sequence[Claim], get: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    """Judge every claim: the columns of `CLAIM_COLUMNS`, one row a claim.

    Raises:
        ArgumentError: a check has no docstring, or its verdict is none of `CLAIM_VERDICTS`.
    """
    rows: list[Mapping[str, str]] = []
    for claim in claims:
        how = (claim.check.__doc__ or "").strip().split("\n")[0]
        require(bool(how), f"the check of {claim.id}", "a function whose docstring says what it checks", how)
        evidence, found = claim.check(get)
        one_of(f"the verdict of {claim.id}", found, CLAIM_VERDICTS)
        rows.append(dict(zip(CLAIM_COLUMNS, (claim.id, claim.paper, claim.text, how, evidence, found))))
    return pd.DataFrame(rows, columns=list(CLAIM_COLUMNS))


def judge(
    parts: Mapping[str, tuple[Paired | Slope | Interval | None, float, float]],
    *, scale: float = 1.0, unit: str = "points", digits: int = 1, most: bool = False, some: bool = False,
) -> tuple[str, str]:  # fmt: skip
    """Evidence line and verdict of a claim from named differences (or slopes, or means), each with the open range it
    should lie in.

    A part is shown if its 95% interval lies inside the range, contradicted if it lies outside, undecided otherwise: too
    few runs speak for no claim. Benjamini and Hochberg's procedure over the parts leaves undecided what a few of many
    intervals would show by chance.

    Args:
        parts: `{name: (difference, low, high)}`; None where there are no two runs to compare: it is named, and a claim
            of all parts then holds in part at best.
        scale: of the printed numbers (100 for points where scores are fractions).
        unit: named behind them.
        digits: decimals printed.
        most: the claim is of most parts, not of all: it holds where more than half are shown, and fails where half or
            more are contradicted, those not compared being neither.
        some: the claim is of some parts: it holds where one is shown, and fails where all are contradicted.
    """
    found = {name: (gap, *_alone(gap, low, high)) for name, (gap, low, high) in parts.items() if gap is not None}
    missing = [name for name in parts if name not in found]
    rest = f"; not compared: {', '.join(missing)}" if missing else ""
    if not found:
        return f"no two runs of one seed to compare{rest}", "cannot be checked here"
    threshold = _threshold([p for _, _, p in found.values()])
    marks, texts = [], []
    for name, (gap, alone, p) in found.items():
        kept = alone == UNDECIDED or p <= threshold
        marks.append(alone if kept else UNDECIDED)
        middle, *ends = (f"{scale * value:+.{digits}f}" for value in (gap[0], gap.low, gap.high))
        texts.append(f"{name} {middle} [{', '.join(ends)}] {marks[-1]}{'' if kept else f' ({alone} if alone)'}")
    shown, against, undecided = (marks.count(mark) for mark in (SHOWN, CONTRADICTED, UNDECIDED))
    holds = 2 * shown > len(parts) if most else bool(shown) if some else shown == len(parts)
    fails = 2 * against >= len(parts) if most else against == len(parts) if some else against and not shown
    open_part = "holds in part" if shown else UNDECIDED
    verdict = "holds" if holds else "fails" if fails else open_part
    counts = f"{shown} shown, {against} contradicted, {undecided} undecided"
    return f"{counts}: {'; '.join(texts)} ({unit}){rest}", verdict


def _alone(gap: Paired | Slope | Interval, low: float, high: float) -> tuple[str, float]:
    """Return what one 95% interval says of an open range, and the p-value of that: at most 5% where it is decided."""
    freedom = gap[-1] - (2 if isinstance(gap, Slope) else 1)

    def p(end: float, edge: float) -> float:
        """Return the p-value of a value beyond `edge`, from the half of the interval between the mean and `end`."""
        half = abs(end - gap[0])
        if math.isnan(half) or half == 0:  # runs that all tie on the edge say nothing
            return 1.0 if math.isnan(half) or gap[0] == edge else 0.0
        return 2 * tail(abs(edge - gap[0]) / half * quantile(0.975, freedom), 1.0, freedom)

    if low < gap[0] < high:
        return SHOWN if low < gap.low and gap.high < high else UNDECIDED, max(p(gap.low, low), p(gap.high, high))
    out = gap.high < low or gap.low > high
    return CONTRADICTED if out else UNDECIDED, p(gap.high, low) if gap[0] <= low else p(gap.low, high)
