"""How many bad inputs are tried, and that a message without the argument, the rule or the value would be noticed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from refused import FORM, refuses

from fedrepro.errors import ArgumentError

FILES = sorted(Path(__file__).parent.glob("test_bad_*.py"))


def rows() -> list[ast.Call]:
    """Return every row of bad inputs that a file of this folder has."""
    calls = (node for file in FILES for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    return [call for call in calls if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "bad"]


def test_two_hundred_bad_inputs_are_tried() -> None:
    """Each row has a name of its own in its file and words that its message must have."""
    found = rows()
    assert len(FILES) == 3 and len(found) >= 200
    assert all(len(row.args) >= 3 for row in found), "a row without words checks the type alone"


@pytest.mark.parametrize(
    "text",
    [
        "clients must be an integer >= 1.",
        "clients is wrong. Got 0.",
        "Got 0.",
        "The run failed.",
        "clients must be an integer >= 1. Got 0",
    ],
)
def test_half_a_message_is_noticed(text: str) -> None:
    """A message that lacks what is allowed or what was given, or is no sentence, fails."""

    def raises() -> None:
        raise ArgumentError(text)

    with pytest.raises(AssertionError):
        refuses(raises, ())
    assert FORM.search("clients must be an integer >= 1. Got 0.")
