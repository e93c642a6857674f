"""Compare published numbers with stored runs: the word of each cell, and the agreement of rankings.

`fedrepro.reporting.rule` has the rule that finds the word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from fedrepro.data.shapes import whole
from fedrepro.errors import one_of, require
from fedrepro.reporting import rule
from fedrepro.reporting.frames import check_columns
from fedrepro.reporting.priors import prior
from fedrepro.reporting.statistics import numbers, quantile

PEAK = "the published number is a peak: ours is the expected largest of as many runs"
SPREAD_KINDS = ("sd", "not stated", "standard error", "ci95", "ci95 normal", "peak", "")
IDENTIFIERS = ("exhibit", "dataset", "method", "clients", "partition", "setting", "metric")
PUBLISHED = ("published", "published_mean", "published_spread")
INCOMPLETE, STANDIN = "~incomplete", "~standin"
KINDS = ("", INCOMPLETE, STANDIN)
"""Endings of the names of whole real graphs, of incomplete ones and of stand-ins: what a number is judged on first."""
PARTLY = "measured on a graph of which a part is missing"
NORMAL = 1.96  # half-width of a 95% interval of the normal distribution, in standard errors, as programs round it
FOREIGN = ("equals ", "another row")  # how the provenance of a number that is not of its cell begins


class Verdict(NamedTuple):
    """The word for one published number and our runs, with the numbers behind it.

    The difference (ours minus published) and the half-widths of its 90% and 95% intervals are in accuracy points; means
    and standard deviation are in the published unit. `if_redrawn` and `if_kept` are the words if the paper had drawn
    its splits anew for each run, and if it had kept one. `why` says what was assumed, or why nothing was tested.
    """

    ours_mean: float
    ours_sd: float
    runs: int
    difference: float = math.nan
    half90: float = math.nan
    half95: float = math.nan
    p: float = math.nan
    verdict: str = rule.NOT_TESTED
    if_redrawn: str = rule.NOT_TESTED
    if_kept: str = rule.NOT_TESTED
    why: str = ""


MEASURED = Verdict._fields


def judge_cell(
    ours: Sequence[float],
    published: float | None,
    spread: float | None = None,
    *,
    point: float = 0.01,
    runs_published: int = 10,
    spread_kind: str = "not stated",
    redrawn: bool | None = None,
    rounding: float = 0.0,
    prior: rule.Prior = rule.NO_PRIOR,
    anew: tuple[float, int] = (math.nan, 0),
    untested: str = "",
) -> Verdict:
    """Compare our runs with one published number.

    Args:
        ours: one score a run, in the unit of the published number.
        published: the published mean; None or NaN if the cell is empty.
        spread: the number printed behind its ±; None or NaN if there is none.
        point: one accuracy point in this unit: 0.01 for fractions, 1 for percent.
        runs_published: runs behind the published mean.
        spread_kind: what `spread` is: `sd` over runs, `standard error`, `ci95` (half-width of a 95% t interval), `ci95
            normal` (1.96 standard errors of the runs' population standard deviation), `not stated` (taken as `sd`),
            `peak` (the number is the largest of its runs) or empty (none).
        redrawn: whether the paper drew split and partition anew for each run. None, not known, is judged as False.
        rounding: the unit of the last printed digit.
        prior: of our variance, in points^2.
        anew: where our runs keep one graph as the paper's do, the standard deviation of scores on graphs drawn anew, in
            the unit of the published number, and the number of these graphs; NaN elsewhere.
        untested: a reason not to test the number, such as a stand-in.

    Raises:
        ArgumentError: a score is not finite, a spread is negative, or its kind unknown.
    """
    one_of("spread_kind", spread_kind, SPREAD_KINDS)
    scores = numbers("ours", ours)
    target, printed = (
        math.nan if value is None else numbers(name, [value], finite=False)[0]
        for name, value in (("published", published), ("spread", spread))
    )
    require(not math.isinf(target), "published", "a finite number, NaN or None", published)
    require(not printed < 0, "spread", "at least 0", spread)
    require(point > 0, "point", "above 0", point)
    require(runs_published >= 2, "runs_published", "at least 2", runs_published)
    runs = len(scores)
    mean = float(scores.mean()) if runs else math.nan
    sd = float(scores.std(ddof=1)) if runs > 1 else math.nan
    reasons = [untested] if untested else []
    reasons += ["not measured"] if not runs else []
    reasons += ["nothing published"] if math.isnan(target) else []
    reasons += ["one run only, and no prior for its spread"] if runs == 1 and not prior.freedom else []
    if reasons:
        return Verdict(mean, sd, runs, (mean - target) / point, why="; ".join(reasons))
    variance, freedom = rule.moderated(sd / point, runs, prior)
    # The prior is one of variances on one graph, which would make that over graphs too small.
    between = rule.moderated(anew[0] / point, anew[1]) if anew[1] > 1 else (math.nan, math.nan)
    by_flag = {}
    for drawn in (True, False):
        by_flag[drawn] = rule.intervals(
            mean / point, variance, freedom, runs, target / point, as_sd(printed, spread_kind, runs_published) / point,
            runs_published, redrawn=drawn, peak=spread_kind == "peak", rounding=rounding / point, anew=between,
        )  # fmt: skip
    judged = {drawn: rule.words(one.difference, one.half90, one.half95) for drawn, one in by_flag.items()}
    chosen = by_flag[bool(redrawn)]
    notes = {
        "one run: its spread is the prior's": runs == 1,
        PEAK: spread_kind == "peak",
        "no spread is printed: ours stands for it": math.isnan(printed) and spread_kind != "peak",
        f"the ± is not explained: taken as a standard deviation over {runs_published} runs": spread_kind == "not stated"
        and not math.isnan(printed),
        f"our runs keep one graph too: its variance is that of {anew[1]} drawn anew": anew[1] > 1,
        "not known whether splits were redrawn: judged as kept": redrawn is None and len(set(judged.values())) > 1,
    }
    why = "; ".join(note for note, holds in notes.items() if holds)
    difference, half90, half95, p = map(float, chosen[:4])
    words = (judged[bool(redrawn)], judged[True], judged[False])
    return Verdict(mean, sd, runs, difference, half90, half95, p, *words, why)


def as_sd(spread: float, kind: str, runs: int) -> float:
    """Return a printed spread as a standard deviation over runs, with n - 1 in its denominator."""
    if kind == "ci95":
        return spread / quantile(0.975, runs - 1) * math.sqrt(runs)
    if kind == "ci95 normal":  # 1.96 s sqrt((n - 1) / n) / sqrt(n)
        return spread / NORMAL * runs / math.sqrt(runs - 1)
    return spread * math.sqrt(runs) if kind == "standard error" else spread


def judge_table(
    frame: pd.DataFrame,
    published: pd.DataFrame,
    on: Sequence[str] = ("dataset", "method", "clients", "partition"),
    value: str = "test",
) -> pd.DataFrame:
    """Return one row for each published cell: the printed number, our runs and the word.

    Args:
        frame: one row a run, as `execute` returns it; rows whose `status` is not `ok` are left out. Scores are in the
            published unit.
        published: rows of `exhibits.published`, which say how the paper ran them (columns `paper`, `point`,
            `runs_published` and `redrawn`). Where our runs keep one graph as the paper's do, `anew` holds scores on
            graphs drawn anew, a Series by graph.
        on: columns that identify a cell in both; numbers match however they are written.
        value: the column of `frame` that holds the score.

    Returns:
        The columns `IDENTIFIERS`, `PUBLISHED`, `MEASURED` and, where the published rows have it, `provenance`. Where
        no run on the whole graph exists, one on an incomplete graph (`Cora~incomplete`) is judged, and the row has its
        name as `dataset`. Where neither exists, a stand-in (`Cora~standin`) is shown in the cell of its graph, without
        a difference, and is not tested. Neither is a number that equals one of another protocol or of another row.

    Raises:
        ArgumentError: a column is missing, or a seed occurs twice in a cell (`on` mixes different runs).
    """
    for column in on:
        one_of("on", column, published.columns)
    identifiers = [*IDENTIFIERS, *(name for name in on if name not in IDENTIFIERS)]
    carried = [name for name in ("provenance",) if name in published]
    ours = scores(frame, on, value)
    rows = []
    for cell in published.to_dict("records"):
        key = cell_key(cell, on)
        kind = next((kind for kind in KINDS if (key, kind) in ours), "")
        origin = str(cell.get("provenance") or "")
        reasons = ["measured on a stand-in"] if kind == STANDIN else []
        reasons += [f"the printed number: {origin}"] if origin.startswith(FOREIGN) else []
        judged = judge_cell(
            [*ours.get((key, kind), {}).values()],
            cell["value_number"],
            cell["spread_number"],
            point=cell["point"],
            runs_published=cell["runs_published"],
            spread_kind=cell["spread_kind"],
            redrawn=cell["redrawn"],
            rounding=last_digit(cell["value"]),
            prior=prior(cell["paper"], cell["dataset"]),
            anew=over_graphs(cell),
            untested="; ".join(reasons),
        )
        if kind == STANDIN:
            judged = judged._replace(difference=math.nan)
        elif kind == INCOMPLETE:
            cell["dataset"] += INCOMPLETE
            judged = judged._replace(why="; ".join([PARTLY, *filter(None, [judged.why])]))
        printed = f"{cell['value']} ± {cell['spread']}" if cell["spread"] else cell["value"]
        known = dict(zip(PUBLISHED, (printed, cell["value_number"], cell["spread_number"])))
        rows.append({n: cell[n] for n in identifiers} | known | judged._asdict() | {n: cell[n] for n in carried})
    return pd.DataFrame(rows, columns=[*identifiers, *PUBLISHED, *MEASURED, *carried])


def over_graphs(cell: Mapping[str, Any]) -> tuple[float, int]:
    """Return the standard deviation of our scores on graphs drawn anew for a published cell, and their number."""
    scores = cell.get("anew")
    return (math.nan, 0) if scores is None else (float(scores.std(ddof=1)), len(scores))


def peaks(table: pd.DataFrame) -> pd.Series:
    """Return which cells of a table were judged against the largest of the paper's runs."""
    return table["why"].fillna("").str.contains(PEAK, regex=False)


def last_digit(printed: str) -> float:
    """Return the unit of the last digit of a printed number; 0 if it is no decimal number."""
    try:
        float(printed)
    except ValueError:
        return 0.0
    return 10.0 ** -len(printed.partition(".")[2]) if "e" not in printed.lower() else 0.0


def scores(frame: pd.DataFrame, on: Sequence[str], value: str) -> dict[tuple[tuple[str, ...], str], dict[Any, float]]:
    """Return the score of each seed, by cell and by the kind of its graph, one of `KINDS`.

    Raises:
        ArgumentError: see `judge_table`.
    """
    if isinstance(frame, pd.DataFrame) and frame.empty:
        return {}
    check_columns(frame, ("value",), value=value)
    for column in on:
        one_of("on", column, list(frame.columns))
    if "status" in frame.columns:
        frame = frame[frame["status"] == "ok"]
    scores_by_cell: dict[tuple[tuple[str, ...], str], dict[Any, float]] = {}
    used = [name for name in dict.fromkeys((*on, "dataset", "seed", value)) if name in frame]
    for run in frame.loc[frame[value].notna(), used].to_dict("records"):
        kind = next((end for end in KINDS[1:] if str(run.get("dataset", "")).endswith(end)), "")
        key = tuple(whole(canonical(run[column])) for column in on)
        cell = scores_by_cell.setdefault((key, kind), {})
        seed = run.get("seed", len(cell))
        require(seed not in cell, "on", "columns that tell runs of one seed apart", (list(on), key))
        cell[seed] = float(run[value])
    return scores_by_cell


def cell_key(row: Mapping[Any, Any], on: Sequence[str]) -> tuple[str, ...]:
    """Return the name of a row's cell, the same however its numbers are written."""
    return tuple(canonical(row[column]) for column in on)


def canonical(value: Any) -> str:
    """Return the name of a value, `10`, `10.0` and `"10"` being the same."""
    try:
        return f"{float(value):.12g}"
    except (TypeError, ValueError):
        return str(value)


def rank_agreement(table: pd.DataFrame, by: Sequence[str], order: Sequence[str] = ("method",)) -> pd.DataFrame:
    """Return Kendall's tau-b between the published and the measured ranking of the methods, per column of a table.

    Args:
        table: as `judge_table` returns it.
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
