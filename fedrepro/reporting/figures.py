"""The plot forms that exhibits need, in one style, drawn with seaborn.

A form draws into `axes` if given, else on a new figure, and returns the figure. Bands and whiskers are 95% t intervals
of the mean over runs, those of scores cut at 0 and 1, or 100 for percent. A line that others cover is wider. The legend
stands under the axes and says how many runs there are. Open circles are what a paper prints, the argument `printed`:
rows with the columns of the frame.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import MatplotlibDeprecationWarning
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedrepro.errors import one_of, require
from fedrepro.reporting import legible
from fedrepro.reporting.dots import dots as dots
from fedrepro.reporting.frames import check_columns
from fedrepro.reporting.heat import heat as heat
from fedrepro.reporting.statistics import interval, over_runs, runs, slope, within
from fedrepro.reporting.style import COLOURS, DASHES, MARKERS, style, uncover

BANDS = ("interval", "range", "none")
MARKED = 30  # points of a line above which it has no markers
UNCLEAR = 0.25  # half-width of an exponent's interval above which no line is drawn through the points
PRINTED: dict[str, Any] = {"facecolor": "none", "edgecolor": "#666666", "linewidth": 1.2, "s": 46, "zorder": 4}


def curves(
    frame: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    band: str = "interval",
    *,
    order: Sequence[Any] = (),
    printed: pd.DataFrame | None = None,
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
    with legible.canvas(axes, title, x, y) as ax:
        rows, names, look = _counted(frame, [x], y, by, order)
        # Seaborn finds means and intervals one value of `x` at a time, a minute for thousands of rounds.
        means = over_runs(rows, [by, x], y)
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
            dashes=look["dashes"],
            markeredgewidth=0,
            estimator=None,
            legend=False,  # seaborn would draw one with its title, in which what follows is missing
            ax=ax,
        )
        for line, name in zip(ax.lines[-len(names) :], names):
            line.set_label(name)
        uncover(ax.lines[-len(names) :] if names else [])
        low, high = ("least", "most") if band == "range" else ("low", "high")
        for name in names if band != "none" else ():
            line = means[means[by].eq(name)].sort_values(x)
            if line[low].notna().any():
                ax.fill_between(line[x], line[low], line[high], color=look["palette"][name], alpha=0.15, linewidth=0)
        if printed is not None and len(printed):
            edges = [look["palette"].get(look["names"].get(name), PRINTED["edgecolor"]) for name in printed[by]]
            ax.scatter(printed[x], printed[y], **{**PRINTED, "edgecolor": edges})
            ax.scatter([], [], label="printed", **PRINTED)
        if pd.api.types.is_integer_dtype(frame[x]):
            ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
        ax.legend()
    return legible.whole(ax)


def _counted(
    frame: pd.DataFrame, keys: list[str], y: str, by: str, order: Sequence[Any]
) -> tuple[pd.DataFrame, list[str], dict[str, Any]]:
    """Return the rows with the runs counted in each name of `by`, the names in order, and the look of each."""
    names: dict[Any, str] = {}
    look: dict[str, Any] = {"palette": {}, "markers": {}, "dashes": {}, "names": names}
    frame = frame[list(dict.fromkeys([*keys, by, y]))]
    for index, name in enumerate(order or list(frame[by].dropna().unique())):
        group = frame[frame[by].eq(name)].dropna(subset=[y])
        if group.empty:
            continue
        names[name] = f"{name} ({runs(group.groupby(keys)[y].count())})"
        for kind, values in (("palette", COLOURS), ("markers", MARKERS), ("dashes", DASHES)):
            look[kind][names[name]] = values[index % len(values)]
    rows = frame[frame[by].isin(names)]
    return rows.assign(**{by: rows[by].map(names)}), list(names.values()), look


def bars(
    frame: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    *,
    order: Sequence[Any] = (),
    points: bool = False,
    span: float = 0.0,
    printed: pd.DataFrame | None = None,
    axes: Axes | None = None,
    title: str = "",
) -> Figure:
    """Draw the mean of `y` in groups `x`, one colour for each value of `by`, with 95% intervals over runs.

    Args:
        order: see `curves`.
        points: draw points instead of bars, on an axis that need not begin at zero, for small differences of large
            numbers.
        span: least length of that axis, so that the noise of single runs does not fill it.
    """
    check_columns(frame, ("y",), x=x, y=y, by=by)
    with legible.canvas(axes, title, x, y) as ax:
        rows, names, look = _counted(frame, [x], y, by, order)
        groups = [str(group) for group in dict.fromkeys(frame[x])]
        rows = rows.assign(**{x: rows[x].astype(str)})
        shared: dict[str, Any] = {
            "x": x,
            "y": y,
            "hue": by,
            "order": groups,
            "hue_order": names,
            "palette": look["palette"],
            "errorbar": lambda values: within(y, frame[y], *interval(values)[1:3]),  # both ends
            "ax": ax,
        }
        width = 0.8 / max(len(names), 1)
        if points:
            markers = [look["markers"][name] for name in names]
            dodge = 0.8 - width
            sns.pointplot(rows, linestyles="none", markers=markers, dodge=dodge, markersize=4, linewidth=1.2, **shared)
            low, high = ax.get_ylim()
            if high - low < span:
                ax.set_ylim((low + high - span) / 2, (low + high + span) / 2)
        else:
            sns.barplot(rows, err_kws={"color": "#222222", "linewidth": 1}, saturation=1, **shared)
        if printed is not None and len(printed):
            shift = {name: (place + 0.5) * width - 0.4 for place, name in enumerate(names)}
            told = printed[printed[x].astype(str).isin(groups) & printed[by].map(look["names"]).isin(names)]
            at = [groups.index(str(group)) + shift[look["names"][name]] for group, name in zip(told[x], told[by])]
            ax.scatter(at, told[y], label="printed", **PRINTED)
        ax.grid(axis="x", visible=False)
        ax.legend()
    return legible.whole(ax)


def boxes(
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    printed: pd.DataFrame | None = None,
    axes: Axes | None = None,
    title: str = "",
) -> Figure:
    """Draw the quartiles of `y` for every value of `x`, with all points over them and their number under the name."""
    check_columns(frame, ("y",), x=x, y=y)
    if frame[y].isna().all():
        frame = frame[:0]  # of which matplotlib draws no box
    names = list(dict.fromkeys(frame[x]))
    counts = frame[x].value_counts()
    with legible.canvas(axes, title, "", y) as ax:
        shared: dict[str, Any] = {"x": x, "y": y, "order": names, "color": COLOURS[0], "ax": ax}
        with warnings.catch_warnings():
            # Seaborn 0.13 asks matplotlib for `vert`, which 3.11 deprecates.
            warnings.simplefilter("ignore", MatplotlibDeprecationWarning)
            box: dict[str, Any] = {"showfliers": False, "fill": False, "linecolor": "#222222"}
            sns.boxplot(frame, medianprops={"color": COLOURS[1]}, **box, **shared)
        sns.stripplot(frame, jitter=False, alpha=0.5, **shared)
        if printed is not None and (told := printed[printed[x].isin(names)]).size:
            ax.scatter([names.index(name) for name in told[x]], told[y], label="printed", **PRINTED)
            ax.legend()
        ax.set_xticks(range(len(names)), [f"{name}\n(n = {counts[name]})" for name in names])
        ax.grid(axis="x", visible=False)
    return legible.whole(ax)


def apart(
    frame: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    *,
    order: Sequence[Any] = (),
    printed: pd.DataFrame | None = None,
    title: str = "",
    ylabel: str = "",
    wide: int = 4,
) -> Figure | None:
    """Draw what `curves` draws where lines cover each other: a small panel a line, the others behind it in grey."""
    names = list(dict.fromkeys(frame[by].dropna())) if len(frame) else []
    colours = list(order) or names
    names = [name for name in colours if name in names]
    if not names:
        return None
    check_columns(frame, ("y",), x=x, y=y, by=by)
    means = over_runs(frame, [by, x], y)
    rows = -(-len(names) // wide)
    with style():
        columns = min(wide, len(names))
        size = (2.3 * columns, 2.1 * rows)
        figure, places = plt.subplots(rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False)
        for ax, name in zip(places.flat, names):
            for _, line in means[means[by].ne(name)].groupby(by, sort=False):
                ax.plot(line[x], line["mean"], color="#BBBBBB", linewidth=0.8)
            told = None if printed is None else printed[printed[by].eq(name)]
            curves(frame[frame[by].eq(name)], x, y, by, order=colours, printed=told, axes=ax)
            counted = ax.get_legend_handles_labels()[1][0]
            ax.get_legend().remove()
            ax.set_title("\n(".join(counted.rsplit(" (", 1)), fontsize=8)
            ax.set(xlabel=x, ylabel=ylabel or y)
            ax.label_outer()
        for ax in places.flat[max(len(names) - columns, 0) : len(names)]:  # the lowest of its column
            ax.xaxis.set_tick_params(labelbottom=True)
            ax.set_xlabel(x, visible=True)  # emptied by `label_outer`, hidden by seaborn
        for ax in places.flat[len(names) :]:
            ax.remove()
        first, told = places.flat[0], {}
        if len(names) > 1:
            told["the lines of the other panels"] = first.plot([], [], color="#BBBBBB", linewidth=0.8)[0]
        if printed is not None and len(printed):
            told["printed"] = first.scatter([], [], **PRINTED)
        first.legend(list(told.values()), list(told))
        figure.suptitle(title, fontsize=10)
        legible.legends(figure)
        plt.close(figure)
    return figure


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
    beside: bool = False,
    **arguments: Any,
) -> Figure | None:
    """Draw one panel for each value of `panel` (or combination of several columns); None for an empty frame.

    A value of `by` has one colour in all panels, and one legend stands below them.

    Args:
        draw: a form of this module; it is called as `draw(rows, by=by, order=order, axes=axes, **arguments)`.
            Of an argument `printed`, it gets the rows of its panel.
        order: see `curves`.
        wide: most panels in a row.
        size: width and height of a panel in inches.
        ylabel: instead of the column's name.
        beside: whether the panels of a row have one vertical axis, so that they can be compared.
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
        shape = (size[0] * columns, size[1] * lines)
        sides: Literal["row", "none"] = "row" if beside else "none"
        figure, grid = plt.subplots(lines, columns, figsize=shape, sharey=sides, squeeze=False)
        for ax, (values, rows) in zip(grid.flat, groups):
            told = [str(value) if isinstance(value, str) else f"{key} = {value}" for key, value in zip(keys, values)]
            given = dict(arguments)
            if given.get("printed") is not None:
                chosen = given["printed"][list(keys)].eq(list(values)).all(axis=1)
                given["printed"] = given["printed"][chosen]
            draw(rows, by=by, order=names, axes=ax, title=", ".join(told), **given)
            if ylabel:
                ax.set_ylabel(ylabel)
        for ax in grid.flat[len(groups) :]:
            ax.set_axis_off()
        if title:
            figure.suptitle(title, fontsize=10)
        legible.legends(figure)
        plt.close(figure)
    return figure


def slopes(
    frame: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    *,
    order: Sequence[Any] = (),
    axes: Axes | None = None,
    title: str = "",
) -> Figure:
    """Draw `y` against `x` on logarithmic axes with the fitted power law, whose exponent is in the legend.

    No line is drawn where the interval of the exponent is longer than a half, since any line would be a guess.
    """
    check_columns(frame, ("x", "y"), x=x, y=y, by=by)
    with legible.canvas(axes, title, x, y) as ax:
        for index, name in enumerate(order or frame[by].dropna().unique()):
            if (group := frame[frame[by].eq(name)]).empty:
                continue
            fit = slope(group[x].tolist(), group[y].tolist())
            colour = COLOURS[index % len(COLOURS)]
            bounds = "" if np.isnan(fit.low) else f" [{fit.low:z.2f}, {fit.high:z.2f}]"
            ends = np.array([group[x].min(), group[x].max()], dtype=float)
            look: Any = {"marker": MARKERS[index % len(MARKERS)], "color": colour}
            ax.plot(group[x], group[y], linestyle="", **look)
            told = f"{name}: exponent {fit.slope:z.2f}{bounds}"
            if fit.high - fit.low > 2 * UNCLEAR:
                ax.plot([], [], linestyle="", label=f"{told}, no line", **look)
            else:
                line = np.exp(fit.intercept) * ends**fit.slope
                ax.plot(ends, line, dashes=DASHES[index % len(DASHES)] or (None, None), color=colour, label=told)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.legend()
    return legible.whole(ax)


def finish(figure: Figure, *, counts: bool = True, **names: Any) -> Figure:
    """Name the axes of a figure of one panel (`names`, as `Axes.set` takes them) and bring its legend up to date.

    Args:
        counts: keep the numbers of runs in the legend. They are removed where a line is not made of runs, as a bound.
    """
    with style():
        ax = figure.axes[0]
        ax.set(**names)
        handles, labels = ax.get_legend_handles_labels()
        if not counts:
            labels = [legible.COUNTED.sub("", label) for label in labels]
        ax.legend(handles, labels)
        legible.legends(figure)
    return figure
