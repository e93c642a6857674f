"""What claims and checks came to, in sentences."""

from __future__ import annotations

import pandas as pd
import pytest

from fedrepro.errors import ArgumentError
from fedrepro.reporting import checks, outcome, session


def test_claims_are_counted_and_told_one_by_one() -> None:
    """The verdict stands first, and a single claim needs no count."""
    rows = [("A-C1", "Ours is best.", "fails"), ("A-C2", "It is fast", "holds"), ("A-C3", "It is small.", "holds")]
    frame = pd.DataFrame(rows, columns=["id", "claim", "verdict"])
    assert outcome.sentences(frame) == [
        "Of 3 claims, 1 fails and 2 hold.",
        "**fails** (A-C1): Ours is best.",
        "**holds** (A-C2): It is fast.",
        "**holds** (A-C3): It is small.",
    ]
    assert outcome.sentences(frame[:1]) == ["**fails** (A-C1): Ours is best."]


def test_a_check_that_fails_and_a_control_that_passes_are_named() -> None:
    """Checks and controls are counted apart; one that came out otherwise than it should is told."""
    rows = [
        checks.row("A-1", "small", 0, 1),
        checks.row("A-2", "smaller", 2, 1),
        checks.control("A-1", "broken", 2, 1),
        checks.control("A-2", "hardly broken", 0, 1),
    ]
    assert outcome.sentences(pd.DataFrame(rows)) == [
        "1 of 2 checks hold.",
        "**fails** (A-2): smaller.",
        "1 of 2 negative controls fail, as they must.",
        "**passes, as it must not** (A-2-control): hardly broken.",
    ]
    assert outcome.sentences(pd.DataFrame(rows[:1] + rows[2:3])) == [
        "1 of 1 checks hold.",
        "1 of 1 negative controls fail, as they must.",
    ]


def test_of_many_that_fail_the_rest_is_counted() -> None:
    """Six are named and the others are counted by their verdict."""
    rows = [checks.row(f"A-{n}", "small", 2, 1) for n in range(9)]
    said = outcome.sentences(pd.DataFrame(rows))
    assert len(said) == 8 and said[-1] == "Of the others that do not hold, 3: fails."


def test_what_is_neither_held_nor_failed_is_not_counted() -> None:
    """The verdict of an attack, or of what was not tested, is told and is no check that fails to hold."""
    attack = checks.row("A-1", "a cosine", 1, 1) | {"verdict": "rebuilt"}
    assert outcome.sentences(pd.DataFrame([attack])) == ["**rebuilt** (A-1): a cosine."]
    both = pd.DataFrame([attack, checks.row("A-2", "small", 0, 1)])
    assert outcome.sentences(both) == ["1 of 1 checks hold.", "**rebuilt** (A-1): a cosine."]


def test_no_check_and_another_frame() -> None:
    """No check is said to be none, and a frame of something else is an error."""
    assert outcome.sentences(pd.DataFrame(columns=list(checks.COLUMNS))) == ["No check was run."]
    with pytest.raises(ArgumentError, match="one of claims or of checks"):
        outcome.sentences(pd.DataFrame({"verdict": ["holds"]}))


def test_a_notebook_tells_claims_and_checks() -> None:
    """`came_out` takes frames as well as IDs, and returns a list in Markdown."""
    nb = session.begin("fedgat/5-x", profile="quick", device="cpu", seeds=0, engine="local")
    told = nb.came_out(pd.DataFrame([checks.row("A-1", "small", 0, 1)])).data
    assert told == "- 1 of 1 checks hold."


def test_a_folded_table_says_its_rows_and_escapes_them() -> None:
    """The count stands outside the fold, long cells are whole, and a cell is text and no markup."""
    long = "<b>" + "word " * 40
    html = outcome.folded(pd.DataFrame({"id": ["A-Q1"], "why": [long]}), "deviations").data
    assert html.startswith("<details><summary>1 deviations</summary>") and html.endswith("</details>")
    assert "&lt;b&gt;" in html and html.count("word") == 40
