"""Sliders over plain functions: a static default everywhere, and a picture that follows them in Jupyter."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from notebooks_written import write

from fedrepro import paths
from fedrepro.errors import ArgumentError
from fedrepro.reporting import notebook, widgets


def product(first: int = 2, second: float = 0.5, name: str = "a") -> str:
    """A plain function."""
    return f"{name}: {first * second:g}"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of what is displayed, in order, in which a replacement is a pair."""
    seen: list[Any] = []

    def display(thing: Any, display_id: bool = False) -> Any:
        seen.append(thing)
        return SimpleNamespace(update=lambda new: seen.append(("in its place", new)))

    monkeypatch.setattr("IPython.display.display", display)
    return seen


def test_without_a_kernel_only_the_default_is_shown(shown: list[Any]) -> None:
    """Outside Jupyter there is nothing to move."""
    widgets.explore(product, first=(1, 5, 1))
    assert shown == ["a: 1"]


def test_a_slider_replaces_the_default(shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In Jupyter each argument has a slider or a choice, and moving one shows the function's new value in place."""
    monkeypatch.setattr(widgets, "live", lambda: True)
    widgets.explore(product, first=(1, 5, 1), second=(0.0, 1.0, 0.1), name=["a", "b"])
    first, second, name = shown[1].children
    assert [type(one).__name__ for one in (first, second, name)] == ["IntSlider", "FloatSlider", "Dropdown"]
    first.value = 4
    name.value = "b"
    assert shown[2:] == [("in its place", "a: 2"), ("in its place", "b: 2")]


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"third": (0, 1, 1)}, "ranges must be for arguments of product that have a default. Got 'third'"),
        ({"first": (3, 5, 1)}, r"the default of first must be within \(3, 5, 1\). Got 2"),
        ({"name": ["b"]}, r"the default of name must be within \['b'\]. Got 'a'"),
    ],
)
def test_wrong_ranges_are_errors(shown: list[Any], ranges: dict[str, Any], message: str) -> None:
    """An unknown argument and a default that is not allowed are named, and nothing is shown."""
    with pytest.raises(ArgumentError, match=message):
        widgets.explore(product, **ranges)
    assert shown == []


def test_a_headless_run_has_the_default_and_no_widget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook that is run from beginning to end holds the static output; a live kernel, as a control, a widget."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    cell = """from fedrepro.reporting import widgets
def product(first=2):
    return first * 3
widgets.explore(product, first=(1, 5, 1))"""
    write(tmp_path / "notebooks", "p/1-a", cell, "import os; del os.environ[widgets.HEADLESS]\n" + cell)
    cells = nbformat.read(notebook.run("p/1-a"), as_version=4).cells
    kinds = [[kind for one in c.outputs for kind in one.get("data", {})] for c in cells if c.cell_type == "code"][-2:]
    assert kinds[0] == ["text/plain"] and "application/vnd.jupyter.widget-view+json" in kinds[1]
