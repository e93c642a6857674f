"""Write a main table in the paper's layout, as Markdown and as LaTeX.

A cell holds our mean ± standard deviation, the number of runs in brackets, the mark of its word, and the printed number
in square brackets below it (Markdown) or next to it (LaTeX).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from fedrepro.reporting import files, rule
from fedrepro.reporting.exhibits import MainTable, points

MARKS = dict(zip(rule.WORDS, ("=", "≈", "~", "(≠)", "≠", "–"), strict=True))
SCORES, POINTS = ("published", "ours_mean", "ours_sd"), ("difference", "half90", "half95")
NAMED = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}"}
LATEX = {"=": "$=$", "≈": r"$\approx$", "~": r"$\sim$", "(≠)": r"$(\neq)$", "≠": r"$\neq$", "–": "--"}


def wide(table: pd.DataFrame, layout: MainTable) -> pd.DataFrame:
    """Return a table of `compare.judge_table` with the paper's rows and columns, each cell a text.

    A column names a data set, what else tells the paper's columns apart, and the unit. A central model, which has one
    number for a graph, is repeated in no other column.
    """
    told = [name for name in layout.columns if table[name].astype(str).nunique() > 1 or name == "dataset"]
    column = table[told].astype(str).agg(", ".join, axis=1) + f" ({unit(table)})"
    row = table[list(layout.rows)].astype(str).agg(" ".join, axis=1).str.strip()
    cells = table.assign(_row=row, _column=column, _cell=[_cell(one) for one in table.to_dict("records")])
    whole = cells.pivot_table(index="_row", columns="_column", values="_cell", aggfunc="first", sort=False)
    whole = whole.reindex(index=list(dict.fromkeys(row)), columns=list(dict.fromkeys(column)))
    return whole.fillna("").rename_axis(index=" ".join(layout.rows), columns=None)


def unit(table: pd.DataFrame) -> str:
    """Return the unit of a table's scores, which is the paper's: percent, or a fraction of one."""
    return "percent" if points(table["metric"]).eq(1).all() else "fraction"


def with_units(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return columns of `compare.judge_table` with their units: those of the paper for scores, points for differences.

    A head that ends in brackets, as `ours_mean (text)`, is that of the same number.
    """
    told = dict.fromkeys(SCORES, unit(table)) | dict.fromkeys(POINTS, "points")
    known = {name: told.get(name.partition(" (")[0]) for name in columns}
    return table[list(columns)].rename(columns={name: f"{name}, {of}" for name, of in known.items() if of})


def _cell(row: dict[Any, Any]) -> str:
    mean, sd, runs = (float(str(row[name])) for name in ("ours_mean", "ours_sd", "runs"))
    printed = f"[{row['published']}]" if isinstance(row["published"], str) and row["published"] else ""
    if not runs > 0 or "stand-in" in str(row["why"]):  # a stand-in is not compared with the paper
        return printed
    digits = 3 if abs(mean) <= 1 else 2
    spread = f" ± {sd:.{digits}f}" if sd == sd else ""
    return f"{mean:.{digits}f}{spread} ({runs:.0f}) {MARKS.get(str(row['verdict']), '')} {printed}".strip()


def markdown(whole: pd.DataFrame) -> str:
    """Return the table as Markdown, with a line that explains the marks."""
    head = [str(whole.index.name), *whole.columns]
    lines = [[files.Markdown(files.plain(cell).replace(" [", "<br>[")) for cell in row] for row in whole.itertuples()]
    marks = ", ".join(f"{mark} {word}" for word, mark in MARKS.items())
    told = f"Ours ± standard deviation (runs) and the printed number in brackets. {marks}."
    return f"{files.table(head, lines)}\n{told}\n"


def latex(whole: pd.DataFrame) -> str:
    """Return the table as a LaTeX `tabular` of the package booktabs."""
    table = whole.reset_index().map(_escaped).rename(columns=_escaped)
    return str(table.to_latex(index=False, escape=False, column_format="l" + "r" * len(whole.columns)))


def _escaped(cell: str) -> str:
    text = re.sub(r"[\\^&%$#_{}]", lambda mark: NAMED.get(mark[0], f"\\{mark[0]}"), " ".join(cell.split()))
    for mark in ("(≠)", "≠", "≈", "~", "–", "="):
        text = text.replace(f" {mark} ", f" {LATEX[mark]} ").replace("±", r"$\pm$")
    return text
