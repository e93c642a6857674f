"""Make a figure legible, and measure whether it is: nothing is cut, and no legend or text lies on something else.

`arrange` wraps titles, puts legends under the axes and writes ticks as plain numbers. `faults` measures what is left.
"""

from __future__ import annotations

import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, LogFormatter, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox, ScaledTranslation

from fedrepro.reporting.statistics import runs
from fedrepro.reporting.style import style

BELOW = "below"  # marks a legend that stands under axes, for which the figure has grown already
PLAIN = (1e-3, 1e5)  # values between are written as plain numbers on a logarithmic axis
COUNTED = re.compile(r" \((\d+)(?:-(\d+))? runs?\)$")
GAP = 2  # pixels that texts and canvas may share, less than what is seen


def whole(part: Artist) -> Figure:
    """Return the figure of axes, or of an axis."""
    figure = part.get_figure(root=True)
    assert figure is not None
    return figure


@contextmanager
def canvas(axes: Axes | None, title: str, xlabel: str, ylabel: str) -> Iterator[Axes]:
    """Give the axes to draw into. A new figure is closed, so that a notebook shows it once."""
    with style():
        ax = plt.subplots(figsize=(5.2, 3.4))[1] if axes is None else axes
        # Seaborn would create all ticks to set these labels. They are hidden where tick labels are.
        ax.set_xlabel(xlabel, visible=ax.xaxis.get_tick_params().get("labelbottom", True))
        ax.set_ylabel(ylabel, visible=ax.yaxis.get_tick_params().get("labelleft", True))
        try:
            with warnings.catch_warnings():  # a frame without rows has no names for colours and the legend
                warnings.filterwarnings("ignore", "No artists with labels|Ignoring `palette`")
                yield ax
            if not ax.has_data():
                ax.text(0.5, 0.5, "no rows", transform=ax.transAxes, ha="center", va="center")
            ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
            if axes is None:
                legends(whole(ax))
        finally:
            if axes is None:
                plt.close(whole(ax))


def arrange(figure: Figure) -> Figure:
    """Lay out a figure: wrap its titles, write its ticks as plain numbers, put its legends under its axes.

    A figure without a layout engine is left as it is. Doing it again changes nothing.
    """
    engine = figure.get_layout_engine()
    if engine is None:
        return figure
    with style():
        axises = [axis for ax in figure.axes if ax.axison for axis in (ax.xaxis, ax.yaxis) if axis.get_visible()]
        for axis in axises:
            _logarithmic(axis)
        legends(figure)
        engine.execute(figure)  # finds positions and sizes in a third of the time of a drawing
        thinner = False
        for axis in axises:
            thinner |= _thin(axis)
            if isinstance(axis.get_major_locator(), MaxNLocator | LogLocator):
                # At another resolution a locator may choose other ticks, with labels of another width.
                axis.set_major_locator(FixedLocator(list(axis.get_majorticklocs())))
            offset = axis.get_offset_text()
            power = re.search(r"1e(-?\d+)$", offset.get_text().replace("\N{MINUS SIGN}", "-"))
            if power and offset.get_visible():
                _scaled(axis, int(power[1]))
                offset.set_visible(False)
                thinner = True
        for _ in range(3):  # a broken label moves the axes, and with them the middle of a title
            moved = thinner | (broken := _wrap_all(figure))
            if any(ax.get_legend() for ax in figure.axes):  # again, since labels under the axes may have changed
                before = _places(figure)
                legends(figure)
                moved |= _places(figure) != before
            if moved:
                engine.execute(figure)
            if not broken:
                break
    return figure


def legends(figure: Figure) -> None:
    """Put the legends of the axes under them: one for all panels where a look means the same in each, else one each.

    The figure grows by what they need.
    """
    told = {ax: legend for ax in figure.axes if (legend := ax.get_legend()) is not None}
    for ax in [ax for ax, legend in told.items() if not legend.get_texts()]:
        told.pop(ax).remove()
    if not told or figure.get_layout_engine() is None:
        return
    shared = _shared(list(told.values()))
    taken = 0.0
    if shared is not None:
        for legend in told.values():
            taken += _height(legend) if legend.get_label() == BELOW else 0.0
            legend.remove()
        for legend in [one for one in figure.legends if one.get_label() == BELOW]:
            taken += _height(legend)
            legend.remove()
        handles, labels, title = shared
        arguments: dict[str, Any] = {"loc": "outside lower center", "title": title or None}
        new = fitted(figure, handles, labels, figure.bbox.width - 8, arguments)
        figure.set_figheight(figure.get_figheight() + (_height(new) - taken) / figure.dpi)
        return
    rows: dict[int, list[float]] = {}
    for ax, legend in told.items():
        spec = ax.get_subplotspec()
        row, columns = (spec.rowspan.start, spec.get_gridspec().ncols) if spec else (0, 1)
        old = _height(legend) if legend.get_label() == BELOW else 0.0
        box = ax.xaxis.get_tightbbox()
        depth = (ax.bbox.y0 - box.y0 if box is not None else 0.0) / figure.dpi
        arguments = {
            "loc": "upper center",
            "bbox_to_anchor": (0.5, 0),
            "bbox_transform": ax.transAxes + ScaledTranslation(0, -depth, figure.dpi_scale_trans),
            "borderaxespad": 0.2,
            "title": legend.get_title().get_text() or None,
        }
        labels = [text.get_text() for text in legend.get_texts()]
        new = fitted(ax, legend.legend_handles, labels, figure.bbox.width / columns - 8, arguments)
        rows.setdefault(row, []).append(_height(new) - old)
    figure.set_figheight(figure.get_figheight() + sum(max(grown) for grown in rows.values()) / figure.dpi)


def fitted(
    owner: Any, handles: Sequence[Any], labels: Sequence[str], width: float, arguments: dict[str, Any]
) -> Legend:
    """Return a new legend of a figure or axes with as many columns as `width` pixels hold."""
    for columns in dict.fromkeys(-(-len(labels) // lines) for lines in range(-(-len(labels) // 4), len(labels) + 1)):
        legend: Legend = owner.legend(handles, labels, ncols=columns, **arguments)
        if columns == 1 or legend.get_window_extent().width <= width:
            break
        legend.remove()
    legend.set_label(BELOW)
    return legend


def _places(figure: Figure) -> list[list[float]]:
    """Return the height of a figure and where its legends stand, in pixels."""
    boxes = [legend.get_window_extent().bounds for legend in _legends(figure)]
    return [[round(figure.bbox.height, 1)], *([round(one, 1) for one in box] for box in boxes)]


def _height(legend: Legend) -> float:
    return float(legend.get_window_extent().height) + 6


def _shared(told: list[Legend]) -> tuple[list[Any], list[str], str] | None:
    """Return handles, labels and title of one legend for several, with their runs counted together; None if none fits.

    A look (colour, marker and dashes) must mean the same in all, and a name look the same.
    """
    looks: dict[Any, str] = {}
    names: dict[str, tuple[Any, list[int]]] = {}
    for legend in told:
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            label = text.get_text()
            counted = COUNTED.search(label)
            name = COUNTED.sub("", label)
            look = _look(handle)
            if looks.setdefault(look, name) != name or _look(names.setdefault(name, (handle, []))[0]) != look:
                return None
            names[name][1].extend(int(number) for number in (counted.groups() if counted else ()) if number)
    titles = {legend.get_title().get_text() for legend in told}
    if len(titles) > 1:
        return None
    labels = [f"{name} ({runs(counts)})" if counts else name for name, (_, counts) in names.items()]
    return [handle for handle, _ in names.values()], labels, titles.pop()


def _look(handle: Any) -> Any:
    names = ("get_color", "get_facecolor", "get_marker", "get_linestyle")
    return tuple(str(getattr(handle, name)()) if hasattr(handle, name) else "" for name in names)


def _logarithmic(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as plain numbers, as few as can be read."""
    low, high = sorted(axis.get_view_interval())
    ours = isinstance(axis.get_major_locator(), LogLocator) and isinstance(axis.get_major_formatter(), LogFormatter)
    if axis.get_scale() != "log" or low <= 0 or not ours:
        return
    decades = np.log10(high / low)
    plain = low >= PLAIN[0] and high <= PLAIN[1]
    axis.set_minor_formatter(NullFormatter())
    if decades < 1 or (decades < 2.5 and plain):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades >= 1 else (1, 1.5, 2, 3, 4, 5, 6, 8)))
    if plain:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif decades < 1:
        power = int(np.floor(np.log10(high)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 10.0**power:.3g}"))
        _scaled(axis, power)


def _scaled(axis: Axis, power: int) -> None:
    """Say in the label of an axis in which power of ten its ticks are."""
    told = axis.get_label_text()
    axis.set_label_text(f"{told}{', ' if told else ''}in $10^{{{power}}}$")


def _ticks(axis: Axis, minor: bool = True) -> list[Text]:
    """Return the labels of an axis that are shown."""
    scale = axis.get_transform().transform  # a slack in values would be decades of a logarithmic axis
    low, high = sorted(scale(axis.get_view_interval()))
    ticks = [*axis.get_major_ticks(), *(axis.get_minor_ticks() if minor else [])]
    inside = [tick for tick in ticks if abs(scale(tick.get_loc()) - (low + high) / 2) <= (0.5 + 1e-9) * (high - low)]
    labels = [label for tick in inside for label in (tick.label1, tick.label2)]
    return [label for label in labels if label.get_visible() and label.get_text()]


def _thin(axis: Axis) -> bool:
    """Leave out ticks until their labels stand apart, turn names, which cannot be left out; return whether any were."""
    for step in range(2, 8):
        axis.get_majorticklabels()  # brings labels and positions up to date
        labels = _ticks(axis, minor=False)
        boxes = [label.get_window_extent() for label in labels]
        if not any(overlap(one.padded(3), other) for one, other in pairwise(boxes)):
            return step > 2
        locator = axis.get_major_locator()
        numbers = all(re.fullmatch(r"[-\N{MINUS SIGN}\d.e+]+", label.get_text()) for label in labels)
        if isinstance(locator, MaxNLocator):
            locator.set_params(nbins=max(len(labels) - 1, 2))
        elif isinstance(locator, LogLocator):
            axis.set_major_locator(LogLocator(subs=((1, 2, 5), (1, 3), (1,))[min(step - 2, 2)]))
        elif numbers and isinstance(locator, FixedLocator):
            texts = [label.get_text() for label in labels]
            axis.set_ticks(list(axis.get_majorticklocs()[::step]), texts[::step])
        else:
            if labels[0].get_rotation() == 0:
                _turn(axis, labels)
            return True
    return True


def _turn(axis: Axis, labels: list[Text]) -> None:
    """Turn the names under an axis, long ones upright, and let the figure grow by the height that they need."""
    figure = whole(axis)
    boxes = [label.get_window_extent() for label in labels]
    long = max(box.width for box in boxes) > figure.dpi
    axis.set_tick_params(rotation=90 if long else 30)
    for label in axis.get_majorticklabels():
        label.set(ha="center" if long else "right", rotation_mode="default" if long else "anchor")
    higher = max(label.get_window_extent().height for label in labels) - max(box.height for box in boxes)
    figure.set_figheight(figure.get_figheight() + higher / figure.dpi)


def _wrap_all(figure: Figure) -> bool:
    """Break the lines of titles and labels that are longer than the space they have; return whether there were any."""
    broken = False
    for text in figure.texts:
        upright = text.get_rotation() == 90
        broken |= _wrap(text, figure.bbox.size[int(upright)] - 12, upright)
    for ax in figure.axes:
        spec = ax.get_subplotspec()
        rows, columns = (spec.get_gridspec().nrows, spec.get_gridspec().ncols) if spec else (1, 1)
        centre = (ax.bbox.x0 + ax.bbox.x1) / 2, (ax.bbox.y0 + ax.bbox.y1) / 2
        wide, tall = (
            2 * min(middle, full - middle) if parts == 1 else 1.1 * own
            for middle, full, own, parts in zip(centre, figure.bbox.size, ax.bbox.size, (columns, rows))
        )
        broken |= _wrap(ax.title, wide - 6)
        broken |= _wrap(ax.xaxis.label, wide - 6)
        broken |= _wrap(ax.yaxis.label, tall - 6, upright=True)
    return broken


def _wrap(text: Text, limit: float, upright: bool = False) -> bool:
    def size() -> float:
        box = text.get_window_extent()
        return float(box.height if upright else box.width)

    if size() <= limit:
        return False
    unbroken = str(text.get_label())  # what the text was before its lines were broken
    if unbroken.split() != text.get_text().split():
        text.set_label(unbroken := text.get_text())
    lines = unbroken.split("\n")
    longest = width = max(map(len, lines))
    limit -= 8  # so that the next layout does not break the lines anew
    while longest and size() > limit and width > 8:
        width = min(width - 1, int(width * limit / size()) + 1)
        kept = [re.sub(r"\$[^$]*\$", lambda math: math[0].replace(" ", "\0"), line) for line in lines]
        wrapped = [textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in kept]
        text.set_text("\n".join(wrapped).replace("\0", " "))
    return width < longest


def faults(figure: Figure, drawn: bool = False) -> list[str]:
    """Return what cannot be read of a figure, one sentence a fault; measured on the figure as it would be drawn.

    A text that leaves the canvas is a fault, and so are two texts that overlap, and a legend over a line, a point, a
    band or a bar. A text inside the axes may lie on what it names.

    Args:
        drawn: the figure was just drawn as an SVG, and is not drawn once more.
    """
    if drawn:
        dpi, figure.dpi = figure.dpi, 72  # by which the texts of an SVG are measured
        told = _faults(figure)
        figure.dpi = dpi
        return told
    figure.draw_without_rendering()
    return _faults(figure)


def _faults(figure: Figure) -> list[str]:
    texts = [text for text in _texts(figure) if text.get_text().strip()]
    boxes = [text.get_window_extent() for text in texts]
    canvas = figure.bbox.padded(GAP / 2)
    told = [
        f"{_named(text)} leaves the canvas."
        for text, box in zip(texts, boxes)
        if box.x0 < canvas.x0 or box.y0 < canvas.y0 or box.x1 > canvas.x1 or box.y1 > canvas.y1
    ]
    # The box of a slanted text is wider than the text.
    straight = [index for index, text in enumerate(texts) if text.get_rotation() % 90 == 0]
    ends = np.array([boxes[index].extents for index in straight]).reshape(-1, 4)
    for index, (x0, y0, x1, y1) in enumerate(ends):
        rest = ends[index + 1 :]
        width = np.minimum(x1, rest[:, 2]) - np.maximum(x0, rest[:, 0])
        height = np.minimum(y1, rest[:, 3]) - np.maximum(y0, rest[:, 1])
        for other in np.flatnonzero((width > GAP) & (height > GAP)):
            pair = texts[straight[index]], texts[straight[index + 1 + int(other)]]
            told.append(f"{_named(pair[0])} overlaps {_named(pair[1])}.")
    for legend in _legends(figure):
        box = legend.get_window_extent()
        for ax in figure.axes:
            inside = Bbox.intersection(box, ax.bbox)
            if inside is not None and any(_covers(inside, artist) for artist in _data(ax)):
                told.append(f"The legend with {_named(legend.get_texts()[0])} lies on data.")
    return told


def _named(text: Text) -> str:
    return "'" + " ".join(text.get_text().split()) + "'"


def overlap(one: Bbox, other: Bbox) -> bool:
    return Bbox.intersection(one, other) is not None


def _legends(figure: Figure) -> list[Legend]:
    return [*figure.legends, *(legend for ax in figure.axes if (legend := ax.get_legend()) is not None)]


def _texts(figure: Figure) -> Iterator[Text]:
    """Yield the texts of a figure that are shown."""
    yield from figure.texts
    for legend in _legends(figure):
        yield from (legend.get_title(), *legend.get_texts())
    for ax in figure.axes:
        yield from ax.texts
        if ax.axison and ax.get_visible():
            yield from (ax.title, ax.xaxis.label, ax.yaxis.label)
            for axis in (one for one in (ax.xaxis, ax.yaxis) if one.get_visible()):
                yield from _ticks(axis)
                if axis.get_offset_text().get_visible():
                    yield axis.get_offset_text()


def _data(ax: Axes) -> list[Any]:
    return [one for one in (*ax.lines, *ax.collections, *ax.patches) if one.get_visible()]


def _covers(box: Bbox, artist: Any) -> bool:
    """Return whether a box lies on a line, a marker, a bar, a band or a point."""
    if isinstance(artist, Collection):
        places = artist.get_offset_transform().transform(np.ma.filled(artist.get_offsets(), np.nan))
        if len(places) > 1 or not np.allclose(places, artist.get_offset_transform().transform((0, 0))):
            return bool(box.padded(3).count_contains(places[np.isfinite(places).all(axis=1)]))
        paths = [artist.get_transform().transform_path(path) for path in artist.get_paths()]
        filled = bool(len(artist.get_facecolor()))
    else:
        paths = [artist.get_transform().transform_path(artist.get_path())]
        filled = not hasattr(artist, "get_marker")
    return any(path.cleaned(remove_nans=True).intersects_bbox(box, filled) for path in paths if np.size(path.vertices))
