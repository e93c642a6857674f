"""The headline claims of GFL-APPNP as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pandas as pd

from fedrepro.papers.gfl.exhibits import grids, theory
from fedrepro.papers.gfl.exhibits.grids import READINGS, TEN, Row
from fedrepro.reporting import claims, frames, statistics
from fedrepro.reporting.claims import NOT_CHECKED, NOT_TESTED, Derived, Get, Parts
from fedrepro.reporting.frames import Where
from fedrepro.reporting.statistics import Paired


def where(column: str, row: Row, reading: str) -> Where:
    """Return what selects a cell of Table 2. Central models on DNC have one reading, which stands in both."""
    method, setting = row
    reading = "text" if method in grids.CENTRAL and column == "csbm-DNC" else reading
    return {"column": column, "method": method, "setting": setting, "reading": reading}


def gap(frame: pd.DataFrame, column: str, left: Row, right: Row, reading: str) -> Paired | None:
    """Return the paired difference of two rows in points on common repetitions; None below two."""
    return frames.difference(frame, where(column, left, reading), where(column, right, reading), "percent")


def local_updates(get: Get) -> Parts:
    """Return GFL-APPNP with more local updates minus I = 1, in both readings, at the same rate.

    The public code trains DNC's I = 1 at a separate rate. Its reading is therefore compared with I = 1 at the printed
    rate (GFL-Q1), so that only the local updates differ.
    """
    frame, parts, first = get("GFL-T2"), Parts(), grids.VARIANTS[0]
    for c in grids.COLUMNS[:2]:
        for r in READINGS:
            own_rate = (c, r) == (grids.COLUMNS[0], "code")
            other = get("GFL-Q1") if own_rate else frame
            base = where(c, first, "code, printed rate" if own_rate else r)
            for row in grids.VARIANTS[1:]:
                pair = (frames.scores(frame, where(c, row, r), "percent"), frames.scores(other, base, "percent"))
                parts[f"{c}, {r}: {' '.join(row)} - {' '.join(first)}"] = (statistics.common(*pair), -1.5, 1.5)
    return parts


def rows_apart(left: Sequence[Row], right: Sequence[Row], low: float, high: float = math.inf) -> Derived:
    """Return the differences of rows of Table 2 on DNC and subCora, in both readings, with one range."""

    def measure(get: Get) -> Parts:
        frame = get("GFL-T2")
        return {
            f"{c}, {r}: {' '.join(a)} - {' '.join(b)}": (gap(frame, c, a, b, r), low, high)
            for c in grids.COLUMNS[:2]
            for r in READINGS
            for a in left
            for b in right
        }

    return Derived(measure)


def over_mlps(get: Get) -> Parts:
    """Return GFL-APPNP's lead over FedMLP and MLPs on SC: above zero, and over FedMLP about nine points.

    FedMLP is compared at the same I. Its number at I = 50, and that of MLPs, are misprints (GFL-Q4).
    """
    frame, parts = get("GFL-T2"), Parts()
    for r in READINGS:
        for ours, row in ((TEN, grids.MLP_ROWS[0]), (grids.VARIANTS[2], grids.MLP_ROWS[1]), (TEN, grids.MLP_ROWS[3])):
            lead, name = gap(frame, "csbm-SC", ours, row, r), " ".join(row).strip()
            parts[f"beats {name}, {r}"] = (lead, 0.0, math.inf)
            if row[0] == "FedMLP":
                parts[f"about 9 over {name}, {r}"] = (lead, 7.0, 11.0)
    return parts


def compensation(get: Get) -> Parts:
    """Return I = 10 over both ablations on all four tasks."""
    frame, parts = get("GFL-T2"), Parts()
    for c in grids.COLUMNS:
        for r in READINGS:
            for name, low, high in (("V2", 0.0, math.inf), ("V1", -math.inf, 2.0)):
                parts[f"{c}, {r}, over {name}"] = (gap(frame, c, TEN, (f"GFL-APPNP-{name}", "I=10"), r), low, high)
    return parts


def leads_by_degree(frame: pd.DataFrame, readings: Sequence[str]) -> Parts:
    """Return each mean degree's lead over the next smaller one."""

    def percent(degree: int, reading: str) -> pd.Series:
        return frames.scores(frame, {"column": f"csbm-d{degree}", "reading": reading}, "percent")

    return {
        f"{r}, d = {a} over {b}": (statistics.common(percent(a, r), percent(b, r)), 0.0, math.inf)
        for r in readings
        for a, b in pairwise(grids.DEGREES)
    }


def connectivity(get: Get) -> tuple[str, str]:
    """Judge GFL-C5 on graphs drawn anew, and report the leads on one graph a degree.

    The claim speaks of graphs, so its interval must hold the spread between them. The repetitions of GFL-F2a share one
    graph a degree. The evidence names its leads, which judge nothing.
    """
    anew, verdict = claims.judge_claim(leads_by_degree(get("GFL-T2-redrawn"), ["redrawn"]))
    fixed, _ = claims.judge_claim(leads_by_degree(get("GFL-F2a"), READINGS))
    return f"graphs drawn anew: {anew}; one graph a degree, which judges nothing: {fixed}", verdict


def other_tasks(get: Get) -> Parts:
    """Return GFL-APPNP's lead on SNC and SC over the share of samples that one constant prediction gets right.

    On SNC that is the share of the larger class of nodes. On SC a sample has its node's tag in seven of ten cases.
    """
    frame, graphs, parts = get("GFL-T2"), get("GFL-I5"), Parts()
    for c in grids.COLUMNS[2:]:
        known = graphs[graphs["dataset"].eq(c)] if "positive" in graphs else graphs.iloc[:0]
        share = float((known["positive"] / known["nodes"]).iloc[0]) if len(known) else math.nan
        larger = max(share, 1 - share)
        constant = 100 * (0.3 + 0.4 * larger if c == "csbm-SC" else larger)
        for r in READINGS:
            for row in grids.VARIANTS:
                ours = frames.scores(frame, where(c, row, r), "percent")
                parts[f"{c}, {r}: {' '.join(row)}"] = (statistics.common(ours, 0 * ours + constant), 0.0, math.inf)
    return parts


def rate(get: Get) -> tuple[str, str]:
    """Return the ratios to the bound's first term and the exponents of N and T, which test nothing (`theory.HALF`).

    The linear speed-up is in the first term, too. Its factor N^(-1/2) comes from the corollary's step, for any descent.
    """
    table = theory.rate_table(theory.rate_points(get("GFL-Th2")))
    if table.empty:
        return "no runs", NOT_CHECKED
    told = [
        f"{row['axis']}: largest ratio {row['largest ratio to the first term']:.2f}, exponent {row['exponent']:+.2f}"
        f" [{row['low']:+.2f}, {row['high']:+.2f}] (corollary {row['exponent of the term']})"
        for row in table[table["axis"].isin(["T", "N"])].to_dict("records")
    ]
    return f"{'; '.join(told)}; not a test: {theory.HALF}", NOT_TESTED


CLAIMS = claims.read(
    "gfl",
    {
        "GFL-C1": [Derived(local_updates)],
        "GFL-C2": [rows_apart([TEN], grids.CENTRAL_ROWS, -2.0)],
        "GFL-C3": [Derived(over_mlps)],
        "GFL-C4": [Derived(compensation)],
        "GFL-C5": connectivity,
        "GFL-C6": rate,
        "GFL-C7": [Derived(other_tasks)],
    },
)
