"""The rule on printed and measured numbers of three papers, frozen in `rule_cells.csv`, against a plain program.

The file has a row for each cell of FG-T1 (in three readings), GFL-T1, GFL-T2, FS-T2 and FS-T7, and for each cell of
FS-T6 and FS-T8 with three runs; all numbers are in points. A cell of one run has the pooled standard deviation of its
row, with ten degrees of freedom. The counts of whole tables, without a prior, came from a program that shares no code
with this package. The store may grow without moving them.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedrepro.reporting import compare, rule

CELLS = pd.read_csv(Path(__file__).with_name("rule_cells.csv"))
RUNS = {"FG": 10, "FS": 10, "GFL": 20}  # behind a printed mean
KIND = {"FG": "sd", "FS": "sd", "GFL": "ci95"}  # of a printed spread, as it was read when the counts were made
POOLED = 10  # degrees of freedom of a pooled standard deviation


def part(table: str) -> pd.DataFrame:
    return CELLS[CELLS["table"].eq(table)]


def three_runs() -> pd.DataFrame:
    """FedStruct's distinct cells of three runs; a number that two tables print counts once."""
    cells = CELLS[CELLS["table"].str.startswith("FS-") & CELLS["runs"].eq(3)]
    return cells.drop_duplicates(["dataset", "row", "clients", "partition", "printed", "spread"])


def said(cells: pd.DataFrame, *, redrawn: bool, kind: str = "", shift: float = 0.0) -> np.ndarray:
    """The words of the rule, without a prior, for printed numbers moved by `shift` points."""
    study = str(cells["table"].iloc[0]).partition("-")[0]
    count = RUNS[study]
    spread = np.array([compare.as_sd(value, kind or KIND[study], count) for value in cells["spread"]])
    freedom = cells["runs"].sub(1).where(cells["runs"].gt(1), POOLED)
    intervals = rule.intervals(
        cells["ours"], cells["sd"] ** 2, freedom, cells["runs"], cells["printed"] + shift, spread, count,
        redrawn=redrawn,
    )  # fmt: skip
    return np.asarray(rule.words(intervals.difference, intervals.half90, intervals.half95))


def counts(words: np.ndarray) -> str:
    return "/".join(str(int((words == word).sum())) for word in rule.WORDS[:5])


def plain(cell: dict[str, float], *, redrawn: bool, runs: int, kind: str) -> str:
    """The word of one cell by the textbook: Welch's interval with the printed error, or with ours in its place."""
    half = stats.t.ppf(0.975, runs - 1)
    printed = cell["spread"] * math.sqrt(runs) / half if kind == "ci95" else cell["spread"]
    ours, our_variance = cell["sd"] ** 2, cell["sd"] ** 2 / cell["runs"]
    freedom = cell["runs"] - 1 if cell["runs"] > 1 else POOLED
    if math.isnan(printed) or (not redrawn and printed <= cell["sd"]):
        theirs, degrees = ours / (runs if redrawn else 1), freedom
    else:
        theirs = printed**2 / (runs if redrawn else 1)
        degrees = (our_variance + theirs) ** 2 / (our_variance**2 / freedom + theirs**2 / (runs - 1))
    error = math.sqrt(our_variance + theirs)
    gap, h90, h95 = abs(cell["ours"] - cell["printed"]), *(error * stats.t.ppf(q, degrees) for q in (0.95, 0.975))
    if gap + h90 <= 2:
        return "agrees"
    if gap <= h95:
        return "compatible" if h95 <= 5 else "compatible, but wide"
    return "differs" if gap - h90 > 2 else "differs a little"


@pytest.mark.parametrize(
    ("table", "redrawn", "expected"),
    [
        ("FG-T1", True, "5/0/0/9/10"),
        ("FG-T1", False, "1/11/2/5/5"),
        ("FG-T1-code", True, "5/2/0/5/0"),
        ("FG-T1-code", False, "2/10/0/0/0"),
        ("FG-T1-literal", True, "6/1/0/7/10"),
        ("FG-T1-literal", False, "1/10/6/4/3"),
        ("GFL-T1", True, "1/1/5/6/1"),
        ("GFL-T2", True, "10/2/8/11/5"),
        ("FS-T2", True, "25/98/6/9/2"),
        ("FS-T7", True, "22/75/1/2/0"),
    ],
)
def test_counts_of_a_table(table: str, redrawn: bool, expected: str) -> None:
    """The rule gives the counts of the other program, if splits were redrawn and if one was kept."""
    assert counts(said(part(table), redrawn=redrawn)) == expected


def test_counts_of_three_runs() -> None:
    """FedStruct's 298 distinct cells of three runs have these words."""
    assert len(three_runs()) == 298
    assert counts(said(three_runs(), redrawn=True)) == "108/138/18/21/13"


@pytest.mark.parametrize("redrawn", [True, False])
def test_every_word_is_the_textbooks(redrawn: bool) -> None:
    """Cell by cell the word is that of Welch's interval, written out with SciPy's quantiles."""
    for table, cells in CELLS.groupby("table"):
        study = str(table).partition("-")[0]
        facts = {"redrawn": redrawn, "runs": RUNS[study], "kind": KIND[study]}
        assert [plain(cell, **facts) for cell in cells.to_dict("records")] == said(cells, redrawn=redrawn).tolist()


def test_what_a_spread_is_moves_words() -> None:
    """Negative control: taken for standard deviations, GFL's half-widths of intervals give other counts."""
    assert counts(said(part("GFL-T1"), redrawn=True, kind="sd")) == "1/2/3/6/2"
    assert counts(said(part("GFL-T2"), redrawn=True, kind="sd")) == "10/3/6/11/6"


@pytest.mark.parametrize("shift", [5.0, -5.0])
def test_five_points_flip_words(shift: float) -> None:
    """Negative control: printed numbers moved by five points are found out.

    No cell agrees any more but those that lay nearly five points off on the other side, and most cells differ.
    """
    for table in ("FG-T1-code", "GFL-T2", "FS-T2", "FS-T7"):
        cells = part(table)
        before, after = said(cells, redrawn=True), said(cells, redrawn=True, shift=shift)
        fitted = before == rule.AGREES
        assert fitted.any() and not np.isin(after[fitted], rule.FITS).any()
        told = before != rule.WIDE
        assert (before != after)[told].mean() > 0.6
        assert np.isin(after, (rule.DIFFERS, rule.LITTLE)).sum() > np.isin(before, (rule.DIFFERS, rule.LITTLE)).sum()
