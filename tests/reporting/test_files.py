"""Drawings as files: coordinates that do not depend on the processor."""

from __future__ import annotations

import re

import matplotlib.pyplot as plt
import pytest

from fedrepro.reporting import files

COORDINATES = re.compile(r' d="([^"]*)"|translate\(([^)]*)\)| [xy][12]?="([^"]*)"')


@pytest.mark.parametrize(
    ("drawn", "kept"),
    [
        (b'<path d="M 1.23456 -0.98765 L 7 8.5"/>', b'<path d="M 1.23 -0.99 L 7 8.5"/>'),
        (b'<g transform="translate(2.3456 7.891) scale(0.123)">', b'<g transform="translate(2.35 7.89) scale(0.123)">'),
        (b'<use x="1.2345" y="-3.9999"/>', b'<use x="1.23" y="-4.00"/>'),
        (b'<line x1="0.005001" y2="2.71828"/>', b'<line x1="0.01" y2="2.72"/>'),
        (b'<text>79.4321</text><svg width="460.8123pt"/>', b'<text>79.4321</text><svg width="460.8123pt"/>'),
    ],
)
def test_coordinates_have_two_decimals(drawn: bytes, kept: bytes) -> None:
    """Coordinates of paths, shifts, marks and lines are rounded; texts, sizes and scales are not."""
    assert files._rounded(drawn) == kept


def test_a_drawn_figure_has_rounded_coordinates() -> None:
    """No coordinate of a figure has more than two decimals, and drawing it again gives the same bytes."""
    figure, ax = plt.subplots()
    ax.plot([1 / 3, 2 / 3, 1], [1 / 7, 5 / 7, 3 / 7], marker="o", label="a curve")
    ax.legend()
    drawing = files.drawn(figure)
    coordinates = ["".join(parts) for parts in COORDINATES.findall(drawing.decode())]
    assert len(coordinates) > 20 and any("." in text for text in coordinates)
    assert [text for text in coordinates if re.search(r"\.\d{3}", text)] == []
    assert files.drawn(figure) == drawing
    plt.close(figure)
