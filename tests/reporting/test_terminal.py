"""Tables in a terminal: no word is broken, what is constant is said once, and a pipe gets them as wide as they are."""

from __future__ import annotations

import io
from collections.abc import Callable

import pandas as pd
import pytest

from fedrepro.reporting import terminal

URL = "https://example.org/a/rather/long/path/to/a/file/that/is/wider/than/the/terminal/is.zip"
ROWS = [["CiteSeer", "compatible, but wide", "2026-11-28T06:34:52+00:00"], ["Cora", "agrees", URL]]
Printed = Callable[[], list[str]]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """The lines printed since the last call."""
    return lambda: capsys.readouterr().out.splitlines()


def test_a_pipe_has_no_width(monkeypatch: pytest.MonkeyPatch, printed: Printed) -> None:
    """Rows are one line without trailing blanks if the output is no terminal, and `$COLUMNS` limits their width."""
    monkeypatch.delenv("COLUMNS", raising=False)
    terminal.table(("dataset", "verdict", "what"), ROWS)
    lines = printed()
    assert len(lines) == 3 and URL in lines[2] and "compatible, but wide" in lines[1]
    assert lines == [line.rstrip() for line in lines]
    monkeypatch.setenv("COLUMNS", "45")
    terminal.table(("dataset", "verdict"), [row[:1] + [" ".join(row[1:2] * 9)] for row in ROWS])
    assert max(map(len, printed())) <= 45


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_no_word_is_broken(width: int, monkeypatch: pytest.MonkeyPatch, printed: Printed) -> None:
    """At every width all words are there whole, and lines are longer only for a longer word."""
    monkeypatch.setenv("COLUMNS", str(width))
    terminal.table(("dataset", "verdict", "what"), ROWS, whole=("dataset",))
    lines = printed()
    words = {word for line in lines for word in line.split()}
    assert {part for row in ROWS for cell in row for part in cell.split()} <= words
    assert all(len(line) <= width or line.split()[-1] in (URL, ROWS[0][2]) for line in lines)


def test_sentences_stand_below(monkeypatch: pytest.MonkeyPatch, printed: Printed) -> None:
    """A column of sentences is numbered, each sentence being said once; what is the same in all rows is said above."""
    monkeypatch.delenv("COLUMNS", raising=False)
    frame = pd.DataFrame({"a": [1, 2, 3, 4], "same": ["x"] * 4, "why": ["one reason", "", "another", "one reason"]})
    terminal.frame(frame, notes=("why",))
    lines = printed()
    assert lines[0] == "same: x" and [line.split() for line in lines[2:6]] == [
        ["1", "1"],
        ["2"],
        ["3", "2"],
        ["4", "1"],
    ]
    assert lines[6:] == ["", "why 1: one reason", "why 2: another"]


def test_csv_is_the_whole_frame(capsys: pytest.CaptureFixture[str]) -> None:
    """CSV has every column and digit, and no character that steers a terminal."""
    frame = pd.DataFrame({"a": [1 / 3, 0.5], "same": ["x", "x"], "text": ["\x1b[1m", "a, b"]})
    terminal.csv(frame)
    told = capsys.readouterr().out
    assert "\x1b" not in told
    read = pd.read_csv(io.StringIO(told))
    assert list(read) == list(frame) and list(read["a"]) == [1 / 3, 0.5] and read["text"][1] == "a, b"
