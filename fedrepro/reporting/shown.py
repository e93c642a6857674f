"""Show figures in a notebook as they were saved, without drawing them again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Figures are laid out to their edges. IPython's own choice, "tight", draws each a second time to find them.
EDGES: dict[str, Any] = {"bbox_inches": None}
_saved: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def keep(figure: Figure, svg: str) -> None:
    """Keep how a figure was saved, until it is changed."""
    _saved[figure] = svg
    figure.stale = False  # matplotlib sets it again with every change


def by(shell: Any) -> None:
    """Let the shell of a notebook show figures to their edges, and those that were saved as they were saved."""
    shell.config.InlineBackend.print_figure_kwargs = EDGES
    if "matplotlib.figure" not in sys.modules:  # which will read the setting
        return
    from IPython.core.pylabtools import print_figure
    from matplotlib.figure import Figure

    formatters = shell.display_formatter.formatters
    png = formatters["image/png"]
    if getattr(png.type_printers.get(Figure), "func", None) is print_figure:  # not what a user chose
        png.for_type(Figure, as_png)
        formatters["image/svg+xml"].for_type(Figure, as_svg)


def as_svg(figure: Figure) -> str | None:
    """Return a figure as it was saved, or None if it was not, or was changed since."""
    return None if figure.stale else _saved.get(figure)


def as_png(figure: Figure) -> str | None:
    """Return a figure as PNG in base64, or None if it is shown as it was saved, or nothing is drawn on it."""
    if as_svg(figure) is not None:
        return None
    from IPython.core.pylabtools import print_figure

    drawn: str | None = print_figure(figure, "png", base64=True, **EDGES)  # type: ignore[no-untyped-call]
    return drawn
