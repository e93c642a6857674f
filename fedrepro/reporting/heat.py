"""Draw a matrix as colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.figure import Figure

from fedrepro.errors import ArgumentError, require
from fedrepro.reporting import legible


def heat(
    matrix: Any,
    rows: Sequence[Any] | None = None,
    columns: Sequence[Any] | None = None,
    label: str = "",
    *,
    limits: tuple[float | None, float | None] = (None, None),
    title: str = "",
) -> Figure:
    """Draw a matrix `[rows, columns]` as colours, first row on top, with its numbers written in if it is small.

    NaN is white.

    Args:
        limits: the values of the lightest and the darkest colour, for figures that are compared; None is the matrix's.
    """
    try:
        values = np.asarray(matrix, dtype=float)
    except (TypeError, ValueError):
        raise ArgumentError(f"matrix must be numbers [rows, columns]. Got {matrix!r}.") from None
    require(values.ndim == 2 and values.size > 0, "matrix", "two-dimensional and not empty", values.shape)
    for name, given, count in (("rows", rows, len(values)), ("columns", columns, values.shape[1])):
        require(given is None or len(given) == count, name, f"{count} names, or None", given)
    with legible.canvas(None, title, "", "") as ax:
        longest = max(len(f"{value:.3g}") for value in values.flat)
        # Thousands of vector cells would make a file that no browser opens quickly.
        sns.heatmap(
            values,
            cmap="Blues",
            vmin=limits[0],
            vmax=limits[1],
            annot=values.size <= 100 and longest * values.shape[1] <= 40,  # what can be read in the width of a figure
            fmt=".3g",
            ax=ax,
            cbar_kws={"label": label},
            xticklabels="auto" if columns is None else [str(name) for name in columns],
            yticklabels="auto" if rows is None else [str(name) for name in rows],
            rasterized=values.size > 2500,
        )
        ax.grid(visible=False)
    return legible.whole(ax)
