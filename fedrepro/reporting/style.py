"""The look of every figure: colours, markers and matplotlib's settings."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import matplotlib.pyplot as plt
from cycler import cycler

# Colour-blind readers can tell them apart, and each has a contrast of 3 to white: tests/reporting/test_colours.py.
COLOURS = ["#574786", "#A42300", "#036556", "#BA80AB", "#D87A0F", "#0995EC", "#000000", "#8D986D"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
# Of lines, so that one is seen through the gaps of another that covers it.
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


def style() -> AbstractContextManager[None]:
    """Return the suite's style over the library's defaults, whatever the user's settings are."""
    return plt.style.context(["default", STYLE], after_reset=True)
