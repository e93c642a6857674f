"""Draw a compared table: the paper's numbers next to ours, one row a cell, with the word of each."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedrepro.errors import ArgumentError, require
from fedrepro.reporting import compare, exhibits, legible
from fedrepro.reporting.layout import MARKS
from fedrepro.reporting.statistics import runs, within
from fedrepro.reporting.style import COLOURS, style

LETTERS = 14  # letters of the legend's text to an inch
LONG = 30  # rows of a figure above which its ticks stand above it, too
NUMBERS = ("published_mean", "published_spread", "ours_mean", "difference", "half95", "runs")
COMPARED = ("metric", *NUMBERS, "verdict", "why")


def dots(
    table: pd.DataFrame, rows: Sequence[str] = ("method", "setting"), *, value: str = "", title: str = ""
) -> Figure:
    """Draw the paper's numbers (open) next to ours (filled) with the verdict's mark at the right, a panel a graph.

    The bar around our point is the 95% prediction interval: a rerun of the paper's experiment would print a number in
    it. It is cut where no score can be. The point is smaller if a cell has one run. If the printed number is a
    peak, our point is what is compared with it, the expected largest of as many runs.

    Args:
        table: as `compare.judge_table` returns it.
        rows: columns that name a row of the plot.
        value: the quantity that is compared, with its unit.
    """
    require(
        isinstance(table, pd.DataFrame) and len(table) > 0, "table", "a table with rows, of compare.judge_table", table
    )
    needed = (*rows, "dataset", *COMPARED)
    lacking = ", ".join(name for name in needed if name not in table)
    if lacking:
        raise ArgumentError(f"table must have the columns {', '.join(needed)}. Got one without {lacking}.")
    labels = table[list(rows)].astype(str).agg(" ".join, axis=1).str.strip()
    names = list(dict.fromkeys(labels))
    groups = list(table.groupby("dataset", sort=False))
    with style():
        size = (1.6 + 2.5 * len(groups), 1.2 + 0.3 * len(names))
        figure, grid = plt.subplots(1, len(groups), figsize=size, sharey=True, squeeze=False)
        for ax, (name, group) in zip(grid[0], groups):
            _panel(ax, group, [names.index(label) for label in labels[group.index]])
            ax.set_title(str(name) if group["runs"].gt(0).any() else f"{name}\nno run of ours")
            ax.grid(axis="y", visible=False)
            ax.tick_params(axis="y", length=0)  # the verdicts of the panel before stand there
            ax.tick_params(axis="x", top=len(names) > LONG, labeltop=len(names) > LONG)
        for ax in grid[0][1:]:
            ax.yaxis.set_visible(False)  # nothing of it is seen, and its many ticks take long
        grid[0][0].set_ylabel(", ".join(rows))
        grid[0][0].set_yticks(range(len(names)), names)
        grid[0][0].set_ylim(len(names) - 0.5, -0.5)
        peaks = "; beside a peak, the expected largest of as many runs" if compare.peaks(table).any() else ""
        counted = runs(table["runs"][table["runs"].gt(0)])
        words = [
            "published ± its spread",
            f"ours ({counted}), 95% interval in which the paper would print its number, cut where no score can be;"
            f" small: one run{peaks}",
        ]
        _legend(figure, words)
        grid[0][len(groups) // 2].set_xlabel(value)
        if title:
            figure.suptitle(title, fontsize=10)
        plt.close(figure)
    return figure


def explain(figure: Figure, mark: Any, words: str) -> None:
    """Add what another mark means to the legend of a figure of `dots`."""
    with style():
        (legend,) = figure.legends
        legend.remove()
        told = [text.get_text() for text in legend.get_texts()]
        _legend(figure, [*told, words], mark)


def _legend(figure: Figure, words: Sequence[str], *others: Any) -> None:
    known = dict(zip(*reversed(figure.axes[0].get_legend_handles_labels())))
    handles = [known["published"], known["ours"], *others]
    marks = "   ".join(f"{mark} {name}" for name, mark in MARKS.items())
    place = {"loc": "outside lower center", "title": marks, "title_fontsize": 8}
    lines = [textwrap.fill(one, int(LETTERS * figure.get_figwidth())) for one in words]
    legible.fitted(figure, handles, lines, figure.bbox.width - 8, place)


def _panel(ax: Axes, group: pd.DataFrame, heights: list[int]) -> None:
    spread = np.nan_to_num(group["published_spread"].to_numpy(dtype=float))
    point = exhibits.points(group["metric"])
    half = np.nan_to_num((group["half95"] * point).to_numpy(dtype=float))
    ours = (group["published_mean"] + group["difference"] * point).fillna(group["ours_mean"]).to_numpy(dtype=float)
    ends = within("score", [*group["published_mean"], *group["ours_mean"]], ours - half, ours + half)
    half = np.abs(np.subtract(ends, ours))  # to the left and to the right
    grey: dict[str, Any] = {"color": COLOURS[-1], "markerfacecolor": "white", "markersize": 7, "linewidth": 4}
    ax.errorbar(group["published_mean"], heights, xerr=spread, fmt="o", label="published", **grey)
    ax.errorbar(ours, heights, xerr=half, fmt="none", color=COLOURS[0])
    sizes = np.where(group["runs"].to_numpy(dtype=float) > 1, 16, 6)
    ax.scatter(ours, heights, s=sizes, color=COLOURS[0], label="ours", zorder=3)
    marks = [MARKS.get(verdict, "") for verdict in group["verdict"]]
    placed: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "ha": "left", "va": "center", "fontsize": 11}
    texts = [ax.text(1.01, height, mark, in_layout=False, **placed) for height, mark in zip(heights, marks)]
    if texts:
        max(texts, key=lambda text: len(text.get_text())).set_in_layout(True)  # room for the widest is room for all
