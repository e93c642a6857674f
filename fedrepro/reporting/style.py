"""The look of every figure: colours, markers and matplotlib's settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.lines import Line2D

# Colour-blind readers can tell them apart, and each has a contrast of 3 to white: tests/reporting/test_colours.py.
COLOURS = ["#574786", "#A42300", "#036556", "#BA80AB", "#D87A0F", "#0995EC", "#000000", "#8D986D"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
# The dashes of lines, so that a line is seen through the gaps of another that covers it.
DASHES: list[Any] = ["", (5, 1.5), (2, 1), (5, 1.5, 1, 1.5), (1, 1), (7, 2), (3, 1, 1, 1, 1, 1), (2, 2)]
STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#444444",
    "axes.formatter.limits": (-4, 5),
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


_inside = False  # whether a block of `style` is entered


@contextmanager
def style() -> Iterator[None]:
    """Set the suite's style over the library's defaults, whatever the user's settings are, until the end of a block.

    A block within another sets nothing, since that takes milliseconds. Settings that were changed since the outer block
    began stay as they are.
    """
    global _inside
    if _inside:
        yield
        return
    _inside = True
    try:
        with plt.style.context(["default", STYLE], after_reset=True):
            yield
    finally:
        _inside = False


def uncover(lines: Sequence[Line2D]) -> None:
    """Draw a line wider by each later one that covers it, so that it is seen on both sides of them.

    Lines cover each other if they have two points or more in common, and are there apart by less than a hundredth of
    what all span.
    """
    points = [np.asarray(line.get_xydata(), dtype=float) for line in lines]
    known = [dict(part[np.isfinite(part).all(axis=1)].tolist()) for part in points]
    heights = [y for part in known for y in part.values()]
    slack = 0.01 * (max(heights) - min(heights)) if heights else 0.0
    for index, line in enumerate(lines):
        for other in known[index + 1 :]:
            common = known[index].keys() & other.keys()
            if len(common) > 1 and all(abs(known[index][x] - other[x]) <= slack for x in common):
                line.set_linewidth(line.get_linewidth() + 2)
                line.set_markersize(line.get_markersize() + 2.5)
