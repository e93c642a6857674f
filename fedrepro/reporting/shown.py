"""Show figures in a notebook as they were saved, without drawing them again."""

from __future__ import annotations

import sys
from base64 import b64encode
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Figures are laid out to their edges. IPython's own choice, "tight", draws each a second time to find them.
EDGES: dict[str, Any] = {"bbox_inches": None}
_saved: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()


def keep(figure: Figure, png: bytes) -> None:
    """Keep how a figure was saved, until it is changed."""
    _saved[figure] = png
    figure.stale = False  # matplotlib sets it again with every change


def by(shell: Any) -> None:
    """Let the shell of a notebook show figures to their edges, and those that were saved as they were saved."""
    shell.config.InlineBackend.print_figure_kwargs = EDGES
    if "matplotlib.figure" not in sys.modules:  # which will read the setting
        return
    from IPython.core.pylabtools import print_figure
    from matplotlib.figure import Figure

    formatter = shell.display_formatter.formatters["image/png"]
    if getattr(formatter.type_printers.get(Figure), "func", None) is print_figure:  # not what a user chose
        formatter.for_type(Figure, as_png)


def as_png(figure: Figure) -> str | None:
    """Return a figure as PNG in base64, or None if nothing is drawn on it."""
    if figure in _saved and not figure.stale:
        return b64encode(_saved[figure]).decode("ascii")
    from IPython.core.pylabtools import print_figure

    drawn: str | None = print_figure(figure, "png", base64=True, **EDGES)  # type: ignore[no-untyped-call]
    return drawn
