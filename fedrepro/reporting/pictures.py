"""Draw how a method works: who holds what, who sends what, and small graphs whose nodes belong to clients.

A sheet is measured in inches, with the origin at its lower left corner.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

from fedrepro.reporting import shown, widgets
from fedrepro.reporting.style import COLOURS, style
from fedrepro.runs import cache

Point = tuple[float, float]
INK, FAINT = "#222222", "#BBBBBB"


def tint(colour: str, share: float = 0.2) -> str:
    """Return a colour mixed with white, of which `share` is the colour."""
    channels = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - one)):02X}" for one in channels)


def sheet(title: str, width: float = 9.4, height: float = 4.0) -> tuple[Figure, Axes]:
    """Return an empty figure of `width` times `height` inches, and its axes, whose unit is an inch."""
    with style():
        figure = plt.figure(figsize=(width, height), layout="none")
        ax = figure.add_axes((0, 0, 1, 1))
        ax.set(xlim=(0, width), ylim=(0, height))
        ax.axis("off")
        ax.text(0.1, height - 0.1, title, fontsize=10, fontweight="bold", va="top")
        plt.close(figure)
    return figure, ax


def drawn_once(draw: Callable[[], Any]) -> Callable[[], Any]:
    """Decorate a function that draws the picture of a method, which most notebooks of its paper show.

    In a notebook that runs from beginning to end with nobody before it, the function returns the picture as an image in
    PNG, whatever format is chosen for figures. The image is kept until a file of the package or the version of
    matplotlib changes, so that one notebook draws it for all.
    """

    @wraps(draw)
    def method() -> Any:
        if not os.environ.get(widgets.HEADLESS):
            return draw()
        from IPython.display import Image

        state = cache.package()
        of = state and f"{state} {matplotlib.__version__}"
        image = cache.kept(f"picture-{draw.__module__}.{draw.__qualname__}", of, lambda: shown.as_png(draw()))
        return Image(base64.b64decode(image or ""))  # type: ignore[no-untyped-call]

    return method


def box(ax: Axes, centre: Point, text: str, size: Point = (1.6, 0.6), colour: str = INK) -> None:
    """Draw a box with a text in it."""
    place = (centre[0] - size[0] / 2, centre[1] - size[1] / 2)
    shape = "round,pad=0,rounding_size=0.08"
    patch = FancyBboxPatch(place, *size, boxstyle=shape, facecolor=tint(colour, 0.12), edgecolor=colour, lw=1.1)
    ax.add_patch(patch).set_zorder(2)
    ax.text(*centre, text, ha="center", va="center", fontsize=8.5, zorder=3)


def arrow(ax: Axes, start: Point, end: Point, text: str = "", *, colour: str = INK, above: float = 0.12) -> None:
    """Draw a message as an arrow, with what is sent `above` the middle of it."""
    patch = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, shrinkA=0, shrinkB=0, lw=1.2, color=colour)
    ax.add_patch(patch).set_zorder(2)
    x, y = ((one + other) / 2 for one, other in zip(start, end))
    ax.text(x, y + above, text, ha="center", va="center", fontsize=8, color=colour, zorder=4)


def path(ax: Axes, *corners: Point, colour: str = INK, dashed: bool = False) -> None:
    """Draw a message that goes round corners, with an arrow at its end."""
    ax.plot(*zip(*corners[:-1]), color=colour, lw=1.2, ls="--" if dashed else "-", zorder=2)
    arrow(ax, corners[-2], corners[-1], colour=colour)


def note(ax: Axes, place: Point, text: str, *, colour: str = INK, align: str = "left", size: float = 8.5) -> None:
    """Write a text whose first line begins at a point."""
    ax.text(*place, text, ha=align, va="top", fontsize=size, color=colour, zorder=4, linespacing=1.35)


def graph(
    ax: Axes,
    edges: Sequence[tuple[int, int]],
    places: Mapping[int, Point],
    owner: Mapping[int, int],
    *,
    names: Mapping[int, str] | None = None,
    hollow: Sequence[int] = (),
    ringed: Sequence[int] = (),
    labels: Mapping[tuple[int, int], str] | None = None,
    radius: float = 0.16,
) -> None:
    """Draw a graph whose nodes have the colours of their clients.

    Args:
        edges: pairs of nodes. An edge between two clients is dashed.
        places: where each node is.
        owner: the client of each node; -1 for a node that belongs to nobody.
        names: what is written into a node; by default its number.
        hollow: nodes that are drawn without a filling.
        ringed: nodes with a black ring.
        labels: what is written at the middle of an edge.
    """
    for u, v in edges:
        line = (0, (3, 2)) if owner[u] != owner[v] else "-"
        ax.plot(*zip(places[u], places[v]), color=INK, lw=1.1, ls=line, zorder=1)
        if labels and (u, v) in labels:
            x, y = np.add(places[u], places[v]) / 2
            patch = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
            ax.text(x, y, labels[u, v], fontsize=7, ha="center", va="center", bbox=patch, zorder=1.5)
    for node, (x, y) in places.items():
        colour, empty = client_colour(owner[node]), node in hollow
        face = "white" if empty else colour
        ax.add_patch(Circle((x, y), radius, facecolor=face, edgecolor=colour, lw=1.6, zorder=3))
        if node in ringed:
            ax.add_patch(Circle((x, y), 1.4 * radius, facecolor="none", edgecolor=INK, lw=1.2, zorder=2))
        text, ink = str(node) if names is None else names[node], colour if empty else "white"
        ax.text(x, y, text, ha="center", va="center", fontsize=7.5, color=ink, fontweight="bold", zorder=4)


def client_colour(client: int) -> str:
    """Return the colour of a client, grey for -1."""
    return COLOURS[client % (len(COLOURS) - 2)] if client >= 0 else "#888888"


def cells(ax: Axes, corner: Point, matrix: object, side: float, *, colour: str = COLOURS[0], digits: int = -1) -> None:
    """Draw a matrix `[rows, columns]` as squares, first row on top, each as dark as its entry is large.

    Args:
        corner: the upper left corner.
        side: of a square.
        digits: write entries with so many decimals; -1 writes none.
    """
    values = np.atleast_2d(np.asarray(matrix, dtype=float))
    top = np.abs(values).max() or 1.0
    for (row, column), value in np.ndenumerate(values):
        x, y = corner[0] + column * side, corner[1] - (row + 1) * side
        face = tint(colour, 0.05 + 0.85 * abs(value) / top) if value else "white"
        ax.add_patch(Rectangle((x, y), side, side, facecolor=face, edgecolor=FAINT, lw=0.5, zorder=2))
        if digits >= 0 and value:
            ink = "white" if abs(value) > 0.6 * top else INK
            look: Any = {"fontsize": 6, "ha": "center", "va": "center", "color": ink, "zorder": 3}
            ax.text(x + side / 2, y + side / 2, f"{value:.{digits}f}", **look)
