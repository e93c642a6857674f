"""Compare the lead of a paper's method over every other row of its tables with the printed lead.

Papers claim leads, not levels. A lead of ours is paired over seeds. The printed lead is the difference of two printed
means. Their difference has a word by the same rule as a single number (`fedrepro.reporting.rule`), with the prior of
leads. If the printed lead exceeds a point, their ratio has Fieller's interval (Fieller, J. R. Stat. Soc. B 16, 1954).

The variance of a printed lead is the sum of those of its two rows, as if they did not share splits: papers do not say
that they do. The words then err in at most 5% of cases, whether they do or not. Our paired variance, or the sum less
our covariance, would err in 16% of cases where rows have separate splits and ours correlate by 0.8 (both found by
simulation, see the tests).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from fedrepro.errors import one_of
from fedrepro.reporting import compare, exhibits, rule
from fedrepro.reporting.priors import LEAD, prior

LEAST = 1.0  # points of a printed lead below which a ratio says nothing
WHOLE = "single"  # the partition of a central model, which stands in every column of its graph
COLUMNS = (
    "over", "printed_lead", "our_lead", "pairs", "difference", "half90", "half95", "verdict",
    "ratio", "ratio_low", "ratio_high", "why",
)  # fmt: skip


def effects(frame: pd.DataFrame, published: pd.DataFrame, layout: exhibits.MainTable) -> pd.DataFrame:
    """Return one row for each other row and each column of a printed table.

    Args:
        frame: as in `compare.judge_table`.
        published: rows of `exhibits.published` for one table. Where our runs keep one graph as the paper's do,
            `anew` holds scores on graphs drawn anew, as in `compare.judge_table`. They are paired over graphs, unless
            `anew_own` is False for a row, whose scores are then another row's.
        layout: the columns that name rows and columns of the printed table, the row of the paper's method, the score.

    Returns:
        The columns that name a column of the table, `over` (the other row) and, in points, the printed and our lead,
        the number of pairs of seeds, their difference with the half-widths of its intervals and its word, and the ratio
        of ours to the printed lead with its 95% interval (infinite or NaN ends where the printed lead is not told from
        zero).

    Raises:
        ArgumentError: a column is missing.
    """
    for name in layout.key:
        one_of("rows and columns", name, published.columns)
    scores = series(frame, layout.key, layout.value)
    cells = published[published["value_number"].notna()].to_dict("records")
    lead_rows = []
    for top, other in pairs(cells, layout.headline, layout.columns):
        over = " ".join(str(other[name]) for name in layout.rows if other[name])
        pair = [scores.get(compare.cell_key(cell, layout.key), pd.Series(dtype=float)) for cell in (top, other)]
        lead_rows.append({name: top[name] for name in layout.columns} | {"over": over} | _lead(pair, top, other))
    return pd.DataFrame(lead_rows, columns=[*layout.columns, *COLUMNS])


def pairs(
    cells: Sequence[Mapping[str, Any]], headline: Mapping[str, str], columns: Sequence[str]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each cell of the paper's method with each other cell of its column, or of its graph for central models."""
    tops = [cell for cell in cells if all(str(cell[name]) == str(wanted) for name, wanted in headline.items())]
    for top in tops:
        for other in cells:
            same = all(other[name] == top[name] for name in columns)
            whole = other["partition"] == WHOLE and other["dataset"] == top["dataset"]
            if other is not top and (same or whole) and other not in tops:
                yield top, other


def series(frame: pd.DataFrame, key: Sequence[str], value: str) -> dict[tuple[str, ...], pd.Series]:
    """Return the scores of each cell on a whole real graph, indexed by seed."""
    known = compare.scores(frame, key, value)
    return {name: pd.Series(cell, dtype=float) for (name, kind), cell in known.items() if not kind}


def _lead(pair: Sequence[pd.Series], top: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    gaps = (pair[0] - pair[1]).dropna() / top["point"]
    printed = (top["value_number"] - other["value_number"]) / top["point"]
    known = {"printed_lead": printed, "our_lead": float(gaps.mean()) if len(gaps) else math.nan, "pairs": len(gaps)}
    sides = (top, other)
    foreign = [str(side.get("provenance") or "") for side in sides]
    reasons = [f"a printed number: {text}" for text in foreign if text.startswith(compare.FOREIGN)]
    reasons += ["a printed number is a peak"] if any(side["spread_kind"] == "peak" for side in sides) else []
    reasons += [_unpaired(top)] if not len(gaps) else []
    if reasons:
        return known | {"verdict": rule.NOT_TESTED, "why": "; ".join(reasons)}
    count = int(top["runs_published"])
    sds = [compare.as_sd(side["spread_number"], side["spread_kind"], count) / top["point"] for side in sides]
    sd = float(gaps.std(ddof=1)) if len(gaps) > 1 else math.nan
    variance, freedom = rule.moderated(sd, len(gaps), prior(top["paper"], top["dataset"], LEAD))
    if math.isnan(float(variance)):
        return known | {"verdict": rule.NOT_TESTED, "why": "one pair only, and no prior for its spread"}
    spread = math.hypot(*sds)
    redrawn = all(side["redrawn"] for side in sides)
    unit = math.hypot(*(compare.last_digit(side["value"]) for side in sides)) / top["point"]
    between, graphs = _over_graphs(sides)
    anew = (between / top["point"] ** 2, graphs - 1) if graphs > 1 else (math.nan, math.nan)
    one = rule.intervals(
        known["our_lead"],
        variance,
        freedom,
        len(gaps),
        printed,
        spread,
        count,
        redrawn=redrawn,
        rounding=unit,
        anew=anew,
    )
    word = rule.words(one.difference, one.half90, one.half95)
    told = {name: float(getattr(one, name)) for name in ("difference", "half90", "half95")}
    ratio: dict[str, float] = {}
    if abs(printed) > LEAST:
        t = float(stdtrit(one.freedom, 0.975))
        low, high = fieller(known["our_lead"], float(one.ours), printed, float(one.theirs), t)
        ratio = {"ratio": known["our_lead"] / printed, "ratio_low": low, "ratio_high": high}
    why = f"our runs keep one graph too: its variance is that of {graphs} drawn anew" if graphs > 1 else ""
    return known | told | {"verdict": word, "why": why} | ratio


def _unpaired(top: Mapping[str, Any]) -> str:
    """Say that two rows share no seed on a whole graph, and which command computes the runs that are missing."""
    why, known = "no seed in common on the whole graph", exhibits.registered().get(top.get("exhibit", ""))
    if known:
        why += f": `fedrepro run {known.notebook} --profile paper --budget 60` computes missing runs"
        why += f", and `fedrepro data '{top['dataset']}'` says whether the graph is here"
    return why


def _over_graphs(sides: Sequence[Mapping[str, Any]]) -> tuple[float, int]:
    """Return the variance of a lead on graphs drawn anew, and their number, in the published unit.

    It has no prior: that of leads is of variances on one graph.
    """
    scores: list[Any] = [side.get("anew") for side in sides]
    if any(one is None for one in scores):
        return math.nan, 0
    if all(side.get("anew_own", True) for side in sides):
        gaps = (scores[0] - scores[1]).dropna()
        return float(gaps.var(ddof=1)), len(gaps)
    # A row whose scores are another's shares nothing that is known: the interval is rather too wide.
    return sum(float(one.var(ddof=1)) for one in scores), min(map(len, scores))


def fieller(top: float, top_variance: float, bottom: float, bottom_variance: float, t: float) -> tuple[float, float]:
    """Return Fieller's interval of `top / bottom` for independent estimates and a quantile `t`.

    The ends are infinite where `bottom` is not told from zero, since the set of ratios is then unbounded.
    """
    a = bottom**2 - t**2 * bottom_variance
    if a <= 0:
        return -math.inf, math.inf
    b = top * bottom
    half = math.sqrt(max(b**2 - a * (top**2 - t**2 * top_variance), 0.0))
    return (b - half) / a, (b + half) / a


def summary(table: pd.DataFrame) -> dict[str, float]:
    """Return the leads of a table in a few numbers.

    A lead that is not tested is left out. Over a printed peak, for one, ours is a lead over a mean.

    Returns:
        `leads`, those with a word; `signed`, those whose printed lead is not zero, and `same_sign`, those of them whose
        sign ours has; and the medians of the printed lead, of ours, and of the ratio where there is one.
    """
    both = table[table["verdict"].ne(rule.NOT_TESTED)].dropna(subset=["printed_lead", "our_lead"])
    signed = both[both["printed_lead"].ne(0)]
    return {
        "leads": len(both),
        "signed": len(signed),
        "same_sign": int((np.sign(signed["printed_lead"]) == np.sign(signed["our_lead"])).sum()),
        "printed_lead": float(both["printed_lead"].median()),
        "our_lead": float(both["our_lead"].median()),
        "ratio": float((both["our_lead"] / both["printed_lead"])[both["printed_lead"].abs() > LEAST].median()),
    }
