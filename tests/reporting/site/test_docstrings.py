"""Docstrings as markup."""

from __future__ import annotations

from fedrepro.reporting.site.docstrings import escaped, marked_up


def test_characters_are_no_markup() -> None:
    """Quoted names are literals, and stars, bars and trailing underscores are escaped."""
    assert escaped("`x_` is |a| * theta_ of e_ij") == r"``x_`` is \|a\| \* theta\_ of e_ij"


def test_equations_keep_their_lines() -> None:
    """An indented block is literal, and the text behind it is not."""
    lines = ["Take the layer", "", "    h = phi(W x)", "      + b", "", "of `x`."]
    assert marked_up(lines) == [
        "Take the layer",
        "",
        "",
        "::",
        "",
        "    h = phi(W x)",
        "      + b",
        "",
        "",
        "of ``x``.",
    ]


def test_tables_keep_their_columns() -> None:
    """Lines of a table stay lines, though they are not indented."""
    made = marked_up(["Read this:", "", "method      what trains", "protocol    the messages"])
    assert made[-3:] == ["", "    method      what trains", "    protocol    the messages"]


def test_sections_are_left_to_sphinx() -> None:
    """The lines of Args and Returns stay indented text, set off by a blank line."""
    made = marked_up(["Return it.", "Args:", "    x: a `[k,", "        2]` tensor."])
    assert made == ["Return it.", "", "Args:", "    x: a ``[k,", "        2]`` tensor."]
