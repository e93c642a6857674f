"""The plot forms that exhibits need, in one style, drawn with seaborn.

A form draws into `axes` if given, else on a new figure, and returns the figure. Bands and whiskers are 95% t intervals
of the mean over runs. The legend says how many runs there are.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import MatplotlibDeprecationWarning
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.special import stdtrit

from fedrepro.errors import ArgumentError, one_of, require
from fedrepro.reporting.frames import check_columns
from fedrepro.reporting.layout import MARKS as MARKS
from fedrepro.reporting.statistics import interval, slope
from fedrepro.reporting.style import COLOURS, MARKERS, style
from fedrepro.reporting.style import STYLE as STYLE

MARKED = 30  # points of a line above which it has no markers


def _interval(values: Any) -> tuple[float, float]:
    """Return the ends of the t interval of the mean, as seaborn's `errorbar` wants them."""
    return interval(values)[1:3]


BANDS = ("interval", "range", "none")
COMPARED = ("published_mean", "published_spread", "ours_mean", "difference", "half95", "runs", "verdict")


def curves(
    frame: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    band: str = "interval",
    *,
    order: Sequence[Any] = (),
    axes: Axes | None = None,
    title: str = "",
) -> Figure:
    """Draw the mean of `y` against `x`, one line for each value of `by`, with a band over runs.

    Args:
        frame: one row for each run and value of `x`.
        band: `interval` (95% interval of the mean), `range` (lowest to highest run) or `none`.
        order: values of `by` in the order of the colours, for figures that share them. By default the frame's order.
    """
    one_of("band", band, BANDS)
    check_columns(frame, ("y",), x=x, y=y, by=by)
    with _axes(axes, title, x, y) as ax:
        rows, names, look = _counted(frame, [x], y, by, order)
        # Seaborn finds means and intervals one value of `x` at a time, a minute for thousands of rounds.
        means = _means(rows, [by, x], y)
        long = means.groupby(by)[x].count().max() > MARKED if len(means) else False
        sns.lineplot(
            means,
            x=x,
            y="mean",
            hue=by,
            hue_order=names,
            palette=look["palette"],
            style=by,
            style_order=names,
            markers=False if long else look["markers"],
            dashes=False,
            markeredgewidth=0,
            estimator=None,
            ax=ax,
        )
        low, high = ("least", "most") if band == "range" else ("low", "high")
        for name in names if band != "none" else ():
            line = means[means[by].eq(name)].sort_values(x)
            if line[low].notna().any():
                ax.fill_between(line[x], line[low], line[high], color=look["palette"][name], alpha=0.15, linewidth=0)
        if pd.api.types.is_integer_dtype(frame[x]):
            ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
        ax.legend()
    return _figure(ax)


def _counted(
    frame: pd.DataFrame, keys: list[str], y: str, by: str, order: Sequence[Any]
) -> tuple[pd.DataFrame, list[str], dict[str, Any]]:
    """Return the rows with the runs counted in each name of `by`, the names in order, their colours and markers."""
    names, palette, markers = {}, {}, {}
    for place, name in enumerate(order or list(frame[by].dropna().unique())):
        group = frame[frame[by].eq(name)].dropna(subset=[y])
        if group.empty:
            continue
        names[name] = f"{name} ({runs(group.groupby(keys)[y].count())})"
        palette[names[name]] = COLOURS[place % len(COLOURS)]
        markers[names[name]] = MARKERS[place % len(MARKERS)]
    rows = frame[frame[by].isin(names)]
    return rows.assign(**{by: rows[by].map(names)}), list(names.values()), {"palette": palette, "markers": markers}


def _means(frame: pd.DataFrame, keys: list[str], y: str) -> pd.DataFrame:
    """Return mean, 95% interval, least and most of `y` for each combination of `keys`; a single run has no interval."""
    groups = frame.dropna(subset=[y]).groupby(keys, sort=False)[y]
    table = groups.agg(["mean", "std", "count", "min", "max"]).reset_index()
    half = stdtrit(np.maximum(table["count"] - 1, 1), 0.975) * table["std"] / np.sqrt(table["count"])
    table = table.rename(columns={"min": "least", "max": "most"})
    return table.assign(low=table["mean"] - half, high=table["mean"] + half)


def bars(
    frame: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    *,
    order: Sequence[Any] = (),
    points: bool = False,
    axes: Axes | None = None,
    title: str = "",
) -> Figure:
    """Draw the mean of `y` in groups `x`, one colour for each value of `by`, with 95% intervals over runs.

    Args:
        order: see `curves`.
        points: draw points instead of bars, on an axis that need not begin at zero, for small differences of large
            numbers.
    """
    check_columns(frame, ("y",), x=x, y=y, by=by)
    with _axes(axes, title, x, y) as ax:
        rows, names, look = _counted(frame, [x], y, by, order)
        groups = [str(group) for group in dict.fromkeys(frame[x])]
        rows = rows.assign(**{x: rows[x].astype(str)})
        shared: dict[str, Any] = {"x": x, "y": y, "hue": by, "order": groups, "hue_order": names, "ax": ax}
        shared |= {"palette": look["palette"], "errorbar": _interval}
        if points:
            markers = [look["markers"][name] for name in names]
            dodge = 0.8 * (1 - 1 / max(len(names), 1))
            sns.pointplot(rows, linestyles="none", markers=markers, dodge=dodge, markersize=4, linewidth=1.2, **shared)
        else:
            sns.barplot(rows, err_kws={"color": "#222222", "linewidth": 1}, saturation=1, **shared)
        ax.margins(y=0.08 + 0.08 * len(names))  # room for the legend above the bars
        ax.grid(axis="x", visible=False)
        ax.legend()
    return _figure(ax)


def heat(
    matrix: Any,
    rows: Sequence[Any] | None = None,
    columns: Sequence[Any] | None = None,
    label: str = "",
    *,
    axes: Axes | None = None,
    title: str = "",
) -> Figure:
    """Draw a matrix `[rows, columns]` as colours, first row on top, with its numbers written in if it is small."""
    try:
        values = np.asarray(matrix, dtype=float)
    except (TypeError, ValueError):
        raise ArgumentError(f"matrix must be numbers [rows, columns]. Got {matrix!r}.") from None
    require(values.ndim == 2 and values.size > 0, "matrix", "two-dimensional and not empty", values.shape)
    for name, given, count in (("rows", rows, len(values)), ("columns", columns, values.shape[1])):
        require(given is None or len(given) == count, name, f"{count} names, or None", given)
    with _axes(axes, title, "", "") as ax:
        # Thousands of vector cells would make a file that no browser opens quickly.
        sns.heatmap(
            values,
            cmap="Blues",
            annot=values.size <= 100,
            fmt=".3g",
            ax=ax,
            cbar_kws={"label": label},
            xticklabels="auto" if columns is None else [str(name) for name in columns],
            yticklabels="auto" if rows is None else [str(name) for name in rows],
            rasterized=values.size > 2500,
        )
        ax.grid(visible=False)
    return _figure(ax)


def boxes(frame: pd.DataFrame, x: str, y: str, *, axes: Axes | None = None, title: str = "") -> Figure:
    """Draw the quartiles of `y` for every value of `x`, with all points over them and their number under the name."""
    check_columns(frame, ("y",), x=x, y=y)
    if frame[y].isna().all():
        frame = frame[:0]  # of which matplotlib draws no box
    names = list(dict.fromkeys(frame[x]))
    counts = frame[x].value_counts()
    with _axes(axes, title, "", y) as ax:
        shared: dict[str, Any] = {"x": x, "y": y, "order": names, "color": COLOURS[0], "ax": ax}
        with warnings.catch_warnings():
            # Seaborn 0.13 asks matplotlib for `vert`, which 3.11 deprecates.
            warnings.simplefilter("ignore", MatplotlibDeprecationWarning)
            box: dict[str, Any] = {"showfliers": False, "fill": False, "linecolor": "#222222"}
            sns.boxplot(frame, medianprops={"color": COLOURS[1]}, **box, **shared)
        sns.stripplot(frame, jitter=False, alpha=0.5, **shared)
        ax.set_xticks(range(len(names)), [f"{name}\n(n = {counts[name]})" for name in names])
        ax.grid(axis="x", visible=False)
    return _figure(ax)


def panels(
    frame: pd.DataFrame,
    panel: str | Sequence[str],
    draw: Callable[..., Figure],
    *,
    by: str,
    title: str = "",
    order: Sequence[Any] = (),
    wide: int = 3,
    size: tuple[float, float] = (4.6, 3.8),
    ylabel: str = "",
    **arguments: Any,
) -> Figure | None:
    """Draw one panel for each value of `panel` (or combination of several columns); None for an empty frame.

    A value of `by` has one colour in all panels, and each panel has its legend below it.

    Args:
        draw: a form of this module; it is called as `draw(rows, by=by, order=order, axes=axes, **arguments)`.
        order: see `curves`.
        wide: most panels in a row.
        size: width and height of a panel in inches.
        ylabel: in place of the column's name.
    """
    keys = [panel] if isinstance(panel, str) else list(panel)
    require(callable(draw), "draw", "a form of this module, such as figures.curves", draw)
    if isinstance(frame, pd.DataFrame) and frame.empty:
        return None
    for key in keys:
        check_columns(frame, panel=key, by=by)
    groups = list(frame.groupby(keys, sort=False))
    if not groups:
        return None
    names = list(order) or list(dict.fromkeys(frame[by].dropna()))
    columns = min(wide, len(groups))
    lines = -(-len(groups) // columns)
    with style():
        figure, grid = plt.subplots(lines, columns, figsize=(size[0] * columns, size[1] * lines), squeeze=False)
        for ax, (values, rows) in zip(grid.flat, groups):
            told = [str(value) if isinstance(value, str) else f"{key} = {value}" for key, value in zip(keys, values)]
            draw(rows, by=by, order=names, axes=ax, title=", ".join(told), **arguments)
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
            ax.margins(y=0.05)
            if ylabel:
                ax.set_ylabel(ylabel)
        for ax in grid.flat[len(groups) :]:
            ax.set_axis_off()
        if title:
            figure.suptitle(title, fontsize=10)
        plt.close(figure)
    return figure


def dots(
    table: pd.DataFrame,
    rows: Sequence[str] = ("method", "setting"),
    panels: str = "dataset",
    *,
    value: str = "",
    title: str = "",
) -> Figure:
    """Draw the paper's numbers (open) next to ours (filled) with the verdict's mark at the right.

    The bar around our point is the 95% prediction interval: a rerun of the paper's experiment would print a number in
    it. The point is smaller where a cell has one run.

    Args:
        table: as `compare.table` returns it.
        rows: columns that name a row of the plot.
        panels: column with one panel per value.
        value: the quantity that is compared, with its unit.
    """
    require(isinstance(table, pd.DataFrame) and len(table) > 0, "table", "a table with rows, of compare.table", table)
    needed = (*rows, panels, *COMPARED)
    lacking = ", ".join(name for name in needed if name not in table)
    if lacking:
        raise ArgumentError(f"table must have the columns {', '.join(needed)}. Got one without {lacking}.")
    labels = table[list(rows)].astype(str).agg(" ".join, axis=1).str.strip()
    names = list(dict.fromkeys(labels))
    groups = list(table.groupby(panels, sort=False))
    with style():
        size = (1.6 + 2.5 * len(groups), 1.2 + 0.3 * len(names))
        figure, grid = plt.subplots(1, len(groups), figsize=size, sharey=True, squeeze=False)
        for ax, (name, group) in zip(grid[0], groups):
            _panel(ax, group, [names.index(label) for label in labels[group.index]])
            ax.set_title(str(name))
            ax.grid(axis="y", visible=False)
            ax.tick_params(axis="y", length=0)  # the verdicts of the panel before stand there
        grid[0][0].set_ylabel(", ".join(rows))
        grid[0][0].set_yticks(range(len(names)), names)
        grid[0][0].set_ylim(len(names) - 0.5, -0.5)
        legend = dict(zip(*reversed(grid[0][0].get_legend_handles_labels())))
        handles = [legend["published"], legend["ours"]]
        words = [
            "published ± its spread",
            f"ours ({runs(table['runs'])}), 95% interval in which the paper would print its number; small: one run",
        ]
        marks = "   ".join(f"{mark} {name}" for name, mark in MARKS.items())
        figure.legend(handles, words, loc="outside lower center", ncols=2, title=marks, title_fontsize=8)
        grid[0][len(groups) // 2].set_xlabel(value)
        if title:
            figure.suptitle(title, fontsize=10)
        plt.close(figure)
    return figure


def _panel(ax: Axes, group: pd.DataFrame, heights: list[int]) -> None:
    spread = np.nan_to_num(group["published_spread"].to_numpy(dtype=float))
    points = (group["ours_mean"] - group["published_mean"]) / group["difference"].where(group["difference"].ne(0))
    half = np.nan_to_num(group["half95"].to_numpy(dtype=float) * points.abs().fillna(points.abs().median()))
    grey: dict[str, Any] = {"color": COLOURS[-1], "markerfacecolor": "white", "markersize": 7, "linewidth": 4}
    ax.errorbar(group["published_mean"], heights, xerr=spread, fmt="o", label="published", **grey)
    ax.errorbar(group["ours_mean"], heights, xerr=half, fmt="none", color=COLOURS[0])
    sizes = np.where(group["runs"].to_numpy(dtype=float) > 1, 16, 6)
    ax.scatter(group["ours_mean"], heights, s=sizes, color=COLOURS[0], label="ours", zorder=3)
    for height, verdict in zip(heights, group["verdict"]):
        mark = MARKS.get(verdict, "")
        ax.text(1.01, height, mark, transform=ax.get_yaxis_transform(), ha="left", va="center", fontsize=11)


def slopes(frame: pd.DataFrame, x: str, y: str, by: str, *, axes: Axes | None = None, title: str = "") -> Figure:
    """Draw `y` against `x` on logarithmic axes with the fitted power law, whose exponent is in the legend."""
    check_columns(frame, ("x", "y"), x=x, y=y, by=by)
    with _axes(axes, title, x, y) as ax:
        for place, (name, group) in enumerate(frame.groupby(by, sort=False)):
            fit = slope(group[x].tolist(), group[y].tolist())
            colour = COLOURS[place % len(COLOURS)]
            bounds = "" if np.isnan(fit.low) else f" [{fit.low:z.2f}, {fit.high:z.2f}]"
            ends = np.array([group[x].min(), group[x].max()], dtype=float)
            ax.plot(group[x], group[y], MARKERS[place % len(MARKERS)], color=colour)
            line = np.exp(fit.intercept) * ends**fit.slope
            ax.plot(ends, line, color=colour, label=f"{name}: exponent {fit.slope:z.2f}{bounds}")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.legend()
    return _figure(ax)


def finish(figure: Figure, *, below: bool = True, counts: bool = True, **names: Any) -> Figure:
    """Name the axes of a figure of one panel (`names`, as `Axes.set` takes them) and move its legend out of the way.

    Args:
        below: put the legend under the axes instead of among the lines.
        counts: keep the numbers of runs in the legend. They are removed where a line is not made of runs, as a bound.
    """
    with style():
        ax = figure.axes[0]
        ax.set(**names)
        handles, labels = ax.get_legend_handles_labels()
        if not counts:
            labels = [re.sub(r" \([-\d]+ runs?\)$", "", label) for label in labels]
        columns = 2 if max(map(len, labels), default=0) < 40 else 1
        place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": columns}
        ax.legend(handles, labels, **(place if below else {}))
        if below:
            ax.margins(y=0.05)  # no room for a legend
            figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(labels) // columns))
    return figure


def runs(counts: Any) -> str:
    """Return how many runs some numbers have, as `10 runs`, `3-10 runs` or `1 run`."""
    numbers = [int(count) for count in counts]
    low, high = (min(numbers), max(numbers)) if numbers else (0, 0)
    return f"{low}-{high} runs" if low < high else f"{low} run{'s' if low != 1 else ''}"


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


@contextmanager
def _axes(axes: Axes | None, title: str, xlabel: str, ylabel: str) -> Iterator[Axes]:
    """Give the axes to draw into. A new figure is closed, so that a notebook shows it once."""
    with style():
        ax = plt.subplots(figsize=(5.2, 3.4))[1] if axes is None else axes
        try:
            with warnings.catch_warnings():  # a frame without rows has no names for colours and the legend
                warnings.filterwarnings("ignore", "No artists with labels|Ignoring `palette`")
                yield ax
            if not ax.has_data():
                ax.text(0.5, 0.5, "no rows", transform=ax.transAxes, ha="center", va="center")
            ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
        finally:
            if axes is None:
                plt.close(_figure(ax))
