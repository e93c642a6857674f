"""The headline claims of GFL-APPNP as data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

from fedrepro.papers.gfl.exhibits import grids, theory
from fedrepro.papers.gfl.exhibits.grids import READINGS, TEN, Row
from fedrepro.reporting import claims, frames, statistics
from fedrepro.reporting.claims import NOT_CHECKED, NOT_TESTED, Difference, Get, Parts
from fedrepro.reporting.frames import Where


def where(column: str, row: Row, reading: str) -> Where:
    """Return what selects a cell of Table 2. Central models on DNC have one reading, which stands in both."""
    method, setting = row
    reading = "text" if method in grids.CENTRAL and column == "csbm-DNC" else reading
    return {"column": column, "method": method, "setting": setting, "reading": reading}


def apart(
    column: str, reading: str, left: Row, right: Row, name: str, above: float = -math.inf, below: float = math.inf
) -> Difference:
    """Return the difference of two rows of Table 2 in one column and reading, in points."""
    first, second = where(column, left, reading), where(column, right, reading)
    return Difference("GFL-T2", first, second, above=above, below=below, name=name)


def local_updates() -> Iterator[Difference]:
    """Yield GFL-APPNP with more local updates minus I = 1, in both readings, at the same rate.

    The public code trains DNC's I = 1 at a separate rate. Its reading is therefore compared with I = 1 at the printed
    rate (GFL-Q1), so that only the local updates differ.
    """
    first = grids.VARIANTS[0]
    for c, r, row in product(grids.COLUMNS[:2], READINGS, grids.VARIANTS[1:]):
        part = apart(c, r, row, first, f"{c}, {r}: {' '.join(row)} - {' '.join(first)}", -1.5, 1.5)
        if (c, r) == (grids.COLUMNS[0], "code"):
            part = replace(part, minus=where(c, first, "code, printed rate"), minus_exhibit="GFL-Q1")
        yield part


def over_central() -> Iterator[Difference]:
    """Yield GFL-APPNP at I = 10 minus each central model, on DNC and subCora, in both readings."""
    for c, r, row in product(grids.COLUMNS[:2], READINGS, grids.CENTRAL_ROWS):
        yield apart(c, r, TEN, row, f"{c}, {r}: {' '.join(TEN)} - {' '.join(row)}", above=-2.0)


def over_mlps() -> Iterator[Difference]:
    """Yield GFL-APPNP's lead over FedMLP and MLPs on SC: above zero, and over FedMLP about nine points.

    FedMLP is compared at the same I. Its number at I = 50, and that of MLPs, are misprints (GFL-Q4).
    """
    pairs = ((TEN, grids.MLP_ROWS[0]), (grids.VARIANTS[2], grids.MLP_ROWS[1]), (TEN, grids.MLP_ROWS[3]))
    for r, (ours, row) in product(READINGS, pairs):
        name = " ".join(row).strip()
        yield apart("csbm-SC", r, ours, row, f"beats {name}, {r}", above=0.0)
        if row[0] == "FedMLP":
            yield apart("csbm-SC", r, ours, row, f"about 9 over {name}, {r}", 7.0, 11.0)


def compensation() -> Iterator[Difference]:
    """Yield I = 10 minus both ablations on all four tasks."""
    for c, r in product(grids.COLUMNS, READINGS):
        yield apart(c, r, TEN, ("GFL-APPNP-V2", "I=10"), f"{c}, {r}, over V2", above=0.0)
        yield apart(c, r, TEN, ("GFL-APPNP-V1", "I=10"), f"{c}, {r}, over V1", below=2.0)


def by_degree(exhibit: str, readings: Sequence[str]) -> Iterator[Difference]:
    """Yield each mean degree's lead over the next smaller one."""
    for r, (a, b) in product(readings, pairwise(grids.DEGREES)):
        more, fewer = ({"column": f"csbm-d{degree}", "reading": r} for degree in (a, b))
        yield Difference(exhibit, more, fewer, above=0.0, name=f"{r}, d = {a} over {b}")


def connectivity(get: Get) -> tuple[str, str]:
    """Judge GFL-C5 on graphs drawn anew, and report the leads on one graph a degree.

    The claim speaks of graphs, so its interval must hold the spread between them. The repetitions of GFL-F2a share one
    graph a degree. The evidence names its leads, which judge nothing.
    """
    (anew, verdict), (fixed, _) = (
        claims.judge_claim(dict(part for leads in by_degree(*of) for part in leads.parts(get)))
        for of in (("GFL-T2-redrawn", ["redrawn"]), ("GFL-F2a", READINGS))
    )
    told = fixed.replace(": ", "; ", 1)
    return f"graphs drawn anew: {anew}; one graph a degree, which judges nothing, has {told}", verdict


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
        "GFL-C1": [*local_updates()],
        "GFL-C2": [*over_central()],
        "GFL-C3": [*over_mlps()],
        "GFL-C4": [*compensation()],
        "GFL-C5": connectivity,
        "GFL-C6": rate,
        "GFL-C7": [other_tasks],
    },
)
