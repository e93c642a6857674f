"""Figures in notebooks: shown as they were saved, drawn again only after a change."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from IPython.core.pylabtools import retina_figure, select_figure_formats
from matplotlib.figure import Figure

from fedrepro.reporting import figures, files, shown

FRAME = pd.DataFrame({"x": [1, 1, 2, 2], "y": [0.1, 0.2, 0.3, 0.5], "by": ["a", "b", "a", "b"]})


def shell(formats: str = "png") -> Any:
    """A shell that only displays, as IPython sets it up for matplotlib."""
    inline_shell = SimpleNamespace(
        config=SimpleNamespace(InlineBackend=SimpleNamespace()), display_formatter=DisplayFormatter()
    )
    select_figure_formats(inline_shell, formats, bbox_inches="tight")
    shown.by(inline_shell)
    return inline_shell


def test_a_saved_figure_is_shown_without_being_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one picture in the notebook is the saved file."""
    figure = figures.curves(FRAME, "x", "y", "by")
    files.save("p", "A-1", FRAME, figure, tmp_path)
    display = shell().display_formatter
    with monkeypatch.context() as patch:
        patch.delattr(Figure, "draw")
        shown_as = display.format(figure)[0]
    assert shown_as.pop("image/svg+xml") == (tmp_path / "p" / "A-1.svg").read_text(encoding="utf-8")
    assert list(shown_as) == ["text/plain"]


def test_a_figure_that_was_changed_is_drawn_again(tmp_path: Path) -> None:
    """A figure that was never saved is drawn as a PNG, and so is one that is changed after saving."""
    figure = figures.curves(FRAME, "x", "y", "by")
    display = shell().display_formatter
    before = display.format(figure)[0]
    files.save("p", "A-1", FRAME, figure, tmp_path)
    assert "image/png" not in display.format(figure)[0]
    figure.axes[0].set_facecolor("red")
    after = display.format(figure)[0]
    assert before["image/png"] != after["image/png"] and "image/svg+xml" not in {**before, **after}


def test_a_format_that_the_user_chose_stays() -> None:
    """Only IPython's own picture is replaced."""
    kept = shell("retina").display_formatter.formatters["image/png"].type_printers[Figure]
    assert kept.func is retina_figure and kept.keywords["bbox_inches"] == "tight"
