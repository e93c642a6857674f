"""The few plot forms the exhibits need, in one style, and their files: the same bytes every time.

Every form draws into `axes` if given, else on a figure of its own, and returns the figure.
Bands and whiskers are 95% t intervals of the mean over runs; the legend says how many runs there are.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedrepro import paths
from fedrepro.errors import StoreError, one_of, require
from fedrepro.reporting.compare import DIFFERS, NOT_COMPARABLE, REPRODUCED, UNDECIDED
from fedrepro.reporting.statistics import interval, slope

# Okabe and Ito's palette: told apart by colour-blind readers and in grey.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "savefig.dpi": 110,
    "svg.fonttype": "path",
    "svg.hashsalt": "fedrepro",
}
MARKS = {REPRODUCED: "=", DIFFERS: "≠", UNDECIDED: "?", NOT_COMPARABLE: "–"}
BANDS = ("interval", "range", "none")


# ---------------------------------------------------------------------------------------------------------
# forms


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
    """Mean of `y` against `x`, one line per value of `by`, with a band over runs.

    Args:
        frame: one row per run and `x`.
        band: `interval` (95% of the mean), `range` (lowest to highest run) or `none`.
        order: values of `by` as colours go over them, for figures that share them; default as they come in the frame.
    """
    one_of("band", band, BANDS)
    with _axes(axes, title, x, y) as ax:
        for place, name in enumerate(order or frame[by].dropna().unique()):
            group = frame[frame[by].eq(name)]
            if group.empty:
                continue
            means = _means(group, [x], y).sort_values(x)
            low, high = ("least", "most") if band == "range" else ("low", "high")
            colour = COLOURS[place % len(COLOURS)]
            marker = MARKERS[place % len(MARKERS)] if len(means) <= 30 else ""
            label = f"{name} ({runs(means['runs'])})"
            ax.plot(means[x], means["mean"], marker=marker, color=colour, label=label)
            if band != "none" and means[low].notna().any():
                ax.fill_between(means[x], means[low], means[high], color=colour, alpha=0.15, linewidth=0)
        if pd.api.types.is_integer_dtype(frame[x]):
            ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
        ax.legend()
    return _figure(ax)


def dots(
    table: pd.DataFrame,
    rows: Sequence[str] = ("method", "setting"),
    panels: str = "dataset",
    *,
    value: str = "",
    title: str = "",
) -> Figure:
    """Paper against ours: published open, ours filled with its interval (smaller where it is one run and has none), the
    verdict's mark at the right.

    Args:
        table: as `compare.table` returns it.
        rows: columns that name a row of the plot.
        panels: column with one panel per value.
        value: what is compared, with its unit.
    """
    labels = table[list(rows)].astype(str).agg(" ".join, axis=1).str.strip()
    names = list(dict.fromkeys(labels))
    groups = list(table.groupby(panels, sort=False))
    with _style():
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
        found = dict(zip(*reversed(grid[0][0].get_legend_handles_labels())))
        handles = [found["published"], found["ours"]]
        words = [
            "published ± its spread",
            f"ours ({runs(table['runs'])}), 90% interval of the difference; small: one run",
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
    half = np.nan_to_num((group["high"] - group["low"]).to_numpy(dtype=float) / 2)
    grey: dict[str, Any] = {"color": COLOURS[-1], "markerfacecolor": "white", "markersize": 7, "linewidth": 4}
    ax.errorbar(group["published_mean"], heights, xerr=spread, fmt="o", label="published", **grey)
    ax.errorbar(group["ours_mean"], heights, xerr=half, fmt="none", color=COLOURS[0])
    sizes = np.where(group["runs"].to_numpy(dtype=float) > 1, 16, 6)
    ax.scatter(group["ours_mean"], heights, s=sizes, color=COLOURS[0], label="ours", zorder=3)
    for height, found in zip(heights, group["verdict"]):
        mark = MARKS.get(found, "")
        ax.text(1.01, height, mark, transform=ax.get_yaxis_transform(), ha="left", va="center", fontsize=11)


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
    """Mean of `y` as bars in groups `x`, one colour per value of `by`, with 95% intervals over runs.

    Args:
        order: see `curves`.
        points: in place of bars, on an axis that need not begin at zero: for small differences of large numbers.
    """
    groups, names = list(dict.fromkeys(frame[x])), list(order) or list(dict.fromkeys(frame[by]))
    width = 0.8 / max(len(names), 1)
    with _axes(axes, title, x, y) as ax:
        for place, name in enumerate(names):
            means = _means(frame[frame[by] == name], [x], y)
            where = [groups.index(group) + (place - (len(names) - 1) / 2) * width for group in means[x]]
            half = np.nan_to_num((means["high"] - means["mean"]).to_numpy(dtype=float))
            label, colour = f"{name} ({runs(means['runs'])})", COLOURS[place % len(COLOURS)]
            if means.empty:
                continue
            if points:
                marker = MARKERS[place % len(MARKERS)]
                ax.errorbar(where, means["mean"], yerr=half, fmt=marker, color=colour, label=label)
                continue
            ax.bar(where, means["mean"], width * 0.92, color=colour, label=label)
            ax.errorbar(where, means["mean"], yerr=half, fmt="none", ecolor="#222222", elinewidth=1)
        ax.set_xticks(range(len(groups)), [str(group) for group in groups])
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
    """A matrix `[rows, columns]` as colours, first row on top, with its numbers written in if it is small."""
    values = np.asarray(matrix, dtype=float)
    require(values.ndim == 2, "matrix", "two-dimensional", values.shape)
    with _axes(axes, title, "", "") as ax:
        # Thousands of vector cells would make a file no browser likes.
        mesh = ax.pcolormesh(values, cmap="Blues", rasterized=values.size > 2500)
        ax.invert_yaxis()
        ax.grid(visible=False)
        _figure(ax).colorbar(mesh, ax=ax, label=label)
        if rows is not None:
            ax.set_yticks(np.arange(values.shape[0]) + 0.5, [str(row) for row in rows])
        if columns is not None:
            ax.set_xticks(np.arange(values.shape[1]) + 0.5, [str(column) for column in columns])
        if values.size <= 100:
            middle = (np.nanmin(values) + np.nanmax(values)) / 2
            for (i, j), value in np.ndenumerate(values):
                colour = "white" if value > middle else "black"
                ax.text(j + 0.5, i + 0.5, f"{value:.3g}", ha="center", va="center", color=colour)
    return _figure(ax)


def slopes(frame: pd.DataFrame, x: str, y: str, by: str, *, axes: Axes | None = None, title: str = "") -> Figure:
    """Log-log points of `y` against `x` with the fitted power law; its exponent stands in the legend."""
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


def boxes(frame: pd.DataFrame, x: str, y: str, *, axes: Axes | None = None, title: str = "") -> Figure:
    """Quartiles of `y` for every value of `x`, with all points over them and their number under the name."""
    names = list(dict.fromkeys(frame[x]))
    groups = [frame.loc[frame[x] == name, y].to_numpy(dtype=float) for name in names]
    with _axes(axes, title, "", y) as ax:
        ax.boxplot(groups, showfliers=False, medianprops={"color": COLOURS[1]})
        for place, group in enumerate(groups, start=1):
            ax.plot(np.full(len(group), place), group, "o", color=COLOURS[0], alpha=0.5)
        labels = [f"{name}\n(n = {len(group)})" for name, group in zip(names, groups)]
        ax.set_xticks(range(1, len(names) + 1), labels)
        ax.grid(axis="x", visible=False)
    return _figure(ax)


def finish(figure: Figure, *, below: bool = True, counts: bool = True, **names: Any) -> Figure:
    """A figure of one panel with its axes named (`names`, as `Axes.set` takes them) and its legend out of the way.

    Args:
        below: the legend stands under the axes instead of among the lines.
        counts: the legend keeps its numbers of runs; without where a line is no run, such as a bound.
    """
    with _style():
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
    """`10 runs`, `3-10 runs`, `1 run`: how many runs stand behind some numbers."""
    numbers = [int(count) for count in counts]
    low, high = (min(numbers), max(numbers)) if numbers else (0, 0)
    return f"{low}-{high} runs" if low < high else f"{low} run{'s' if low != 1 else ''}"


def _means(frame: pd.DataFrame, keys: list[str], y: str) -> pd.DataFrame:
    """Mean, interval, least, most and number of runs of `y` per group, in order of appearance."""
    rows = []
    for name, group in frame.dropna(subset=[y]).groupby(keys, sort=False):
        values = group[y].tolist()
        rows.append([*name, *interval(values), min(values), max(values)])
    return pd.DataFrame(rows, columns=[*keys, "mean", "low", "high", "runs", "least", "most"])


def _style() -> AbstractContextManager[None]:
    """Our style over the library's defaults, whatever the user's own settings are."""
    return plt.style.context(["default", STYLE], after_reset=True)


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


@contextmanager
def _axes(axes: Axes | None, title: str, xlabel: str, ylabel: str) -> Iterator[Axes]:
    """The axes to draw into; a figure of our own is closed, so that a notebook shows it once."""
    with _style():
        ax = plt.subplots(figsize=(5.2, 3.4))[1] if axes is None else axes
        try:
            yield ax
            ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
        finally:
            if axes is None:
                plt.close(_figure(ax))


# ---------------------------------------------------------------------------------------------------------
# files


def save(
    paper: str,
    exhibit_id: str,
    frame: pd.DataFrame,
    figure: Figure | None = None,
    folder: Path | str | None = None,
) -> list[Path]:
    """Write an exhibit: `<folder>/<paper>/<exhibit_id>.csv`, and `.svg` and `.png` where there is a figure.

    The same frame and figure give the same bytes in any process. Each file is replaced whole or not at all.

    Args:
        paper: folder name, such as `fedgat` or `engine`.
        exhibit_id: such as `FG-T1`; `claims`, `checks` and `deviations` for the tables of a paper.
        frame: its index is not written.
        folder: default `paths.figures()`.

    Raises:
        ArgumentError: a name that is no plain file name.
        StoreError: a file cannot be written.
    """
    for argument, name in (("paper", paper), ("exhibit_id", exhibit_id)):
        plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name)
        require(plain is not None, argument, "letters, digits, - and _", name)
    place = Path(folder or paths.figures()) / paper
    written = [replace_file(place / f"{exhibit_id}.csv", csv_text(frame).encode())]
    if figure is not None:
        with _style(), plt.rc_context({"figure.constrained_layout.use": False}):
            for kind, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
                buffer = io.BytesIO()
                figure.savefig(buffer, format=kind, metadata=metadata)
                figure.set_layout_engine(None)  # laid out now; doing it again costs as much as drawing
                content = buffer.getvalue()
                if kind == "svg":
                    content = _name_clips(content)
                written.append(replace_file(place / f"{exhibit_id}.{kind}", content))
    return written


def _name_clips(svg: bytes) -> bytes:
    """Number a drawing's clip paths in their order.

    Matplotlib names one after a hash of all the bits of its rectangle, and the last of them are the processor's.
    """
    names: dict[bytes, bytes] = {}
    return re.sub(rb"\bp[0-9a-f]{10}\b", lambda found: names.setdefault(found[0], b"clip%d" % len(names)), svg)


def csv_text(frame: pd.DataFrame) -> str:
    """A frame as CSV: six significant digits, LF, whole numbers in full, nothing for what is missing."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(frame.columns)
    columns = [[_cell(value) for value in frame.iloc[:, place].tolist()] for place in range(frame.shape[1])]
    writer.writerows(zip(*columns))
    return text.getvalue()


def machine(value: float) -> str:
    """An error of an identity: six significant digits, `< 1e-12` where only rounding is left."""
    return "< 1e-12" if abs(value) < 1e-12 else f"{value:.6g}"


def _cell(value: Any) -> Any:
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, sort_keys=True)
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return ""
    if isinstance(value, (float, np.floating)):
        return f"{float(value) + 0.0:.6g}"  # + 0.0 turns -0 into 0
    return value


def replace_file(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all, making its folder.

    Raises:
        StoreError: it cannot be written; what was there before is still there.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(content)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from error
    return path
