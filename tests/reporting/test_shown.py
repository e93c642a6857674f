"""Figures in notebooks: shown as they were saved, drawn again only after a change."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from IPython.core.pylabtools import retina_figure, select_figure_formats
from matplotlib.figure import Figure
from matplotlib.image import imread

from fedrepro.reporting import figures, files, shown

FRAME = pd.DataFrame({"x": [1, 1, 2, 2], "y": [0.1, 0.2, 0.3, 0.5], "by": ["a", "b", "a", "b"]})


def shell(formats: str = "png") -> Any:
    """A shell that only displays, as IPython sets it up for matplotlib."""
    made = SimpleNamespace(
        config=SimpleNamespace(InlineBackend=SimpleNamespace()), display_formatter=DisplayFormatter()
    )
    select_figure_formats(made, formats, bbox_inches="tight")
    shown.by(made)
    return made


def picture(text: str) -> np.ndarray:
    return np.asarray(imread(io.BytesIO(base64.b64decode(text))))


def test_a_saved_figure_is_shown_without_being_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture in the notebook is the saved file, and is what drawing the figure to its edges would give."""
    figure = figures.curves(FRAME, "x", "y", "by")
    files.save("p", "A-1", FRAME, figure, tmp_path)
    show = shell().display_formatter.formatters["image/png"]
    with monkeypatch.context() as patch:
        patch.delattr(Figure, "draw")
        (text,) = [show(figure)]
    assert base64.b64decode(text) == (tmp_path / "p" / "A-1.png").read_bytes()
    figure.stale = True
    assert np.array_equal(picture(show(figure)), picture(text))


def test_a_figure_that_was_changed_is_drawn_again(tmp_path: Path) -> None:
    """A colour that is set after saving is in the picture; so is what was never saved."""
    figure = figures.curves(FRAME, "x", "y", "by")
    show = shell().display_formatter.formatters["image/png"]
    assert picture(show(figure)).shape[:2] == (int(figure.bbox.height), int(figure.bbox.width))
    files.save("p", "A-1", FRAME, figure, tmp_path)
    before = picture(show(figure))
    figure.axes[0].set_facecolor("red")
    assert not np.array_equal(picture(show(figure)), before)


def test_a_format_that_the_user_chose_stays() -> None:
    """Only IPython's own picture is replaced."""
    kept = shell("retina").display_formatter.formatters["image/png"].type_printers[Figure]
    assert kept.func is retina_figure and kept.keywords["bbox_inches"] == "tight"
