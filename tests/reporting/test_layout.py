"""A main table in the paper's layout."""

from __future__ import annotations

import pandas as pd

from fedrepro.reporting import layout, rule
from fedrepro.reporting.exhibits import MainTable

LAYOUT = MainTable({"method": "A"}, columns=("dataset", "clients"))
SCORES = "test accuracy (percent)"
ROWS = [
    (SCORES, "Cora", "10", "A", 80.0, 1.0, 3, "79.5 ± 0.4", rule.AGREES, ""),
    (SCORES, "Cora", "20", "A", 70.0, float("nan"), 1, "75.0", rule.DIFFERS, ""),
    (SCORES, "Cora", "10", "B_2", 60.5, 2.0, 3, "61", rule.COMPATIBLE, ""),
    (SCORES, "Cora", "20", "B_2", 55.5, 2.0, 3, "61", rule.NOT_TESTED, "measured on a stand-in"),
]
NAMES = ["metric", "dataset", "clients", "method", "ours_mean", "ours_sd", "runs", "published", "verdict", "why"]


def test_rows_and_columns_are_the_papers() -> None:
    """Rows are methods, columns are what tells the paper's columns apart, in the printed order."""
    whole = layout.wide(pd.DataFrame(ROWS, columns=NAMES), LAYOUT)
    assert list(whole.index) == ["A", "B_2"] and list(whole.columns) == ["Cora, 10 (percent)", "Cora, 20 (percent)"]
    assert whole.loc["A", "Cora, 10 (percent)"] == "80.00 ± 1.00 (3) = [79.5 ± 0.4]"
    assert whole.loc["A", "Cora, 20 (percent)"] == "70.00 (1) ≠ [75.0]"


def test_heads_say_the_unit_of_the_paper() -> None:
    """Scores are in the unit of the printed ones, differences in points, and counts have none."""
    table = pd.DataFrame(ROWS, columns=NAMES).assign(difference=0.1, **{"half95 (text)": 0.1})
    heads = {*layout.with_units(table, list(table))}
    assert {"ours_mean, percent", "published, percent", "difference, points", "half95 (text), points", "runs"} < heads
    fractions = layout.with_units(table.assign(metric="test accuracy"), ["method", "ours_mean", "difference"])
    assert list(fractions) == ["method", "ours_mean, fraction", "difference, points"]
    assert "Cora, 10 (fraction)" in layout.wide(table.assign(metric="F1-micro"), LAYOUT)


def test_a_standin_is_not_shown_beside_the_print() -> None:
    """The cell of a stand-in holds the printed number alone."""
    whole = layout.wide(pd.DataFrame(ROWS, columns=NAMES), LAYOUT)
    assert whole.loc["B_2", "Cora, 20 (percent)"] == "[61]"


def test_markdown_and_latex_escape_what_they_must() -> None:
    """Both forms have a line for each row, and LaTeX's special characters are escaped."""
    whole = layout.wide(pd.DataFrame(ROWS, columns=NAMES), LAYOUT)
    text, tex = layout.markdown(whole), layout.latex(whole)
    assert "| A | 80.00 ± 1.00 (3) =<br>[79.5 ± 0.4] |" in text
    assert r"B\_2 & 60.50 $\pm$ 2.00 (3) $\approx$ [61]" in tex and tex.count(r"\\") == 3
