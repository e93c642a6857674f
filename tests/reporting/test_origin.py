"""The sentence under an exhibit: how many runs it draws, when they were computed, and at which commits."""

from __future__ import annotations

import pytest
from records import record

from fedrepro.reporting import origin
from fedrepro.reporting.exhibits import registered
from fedrepro.runs.store import Store

DAYS = ("2026-01-02T10:00:00+00:00", "2026-01-01T10:00:00+00:00")


@pytest.mark.parametrize(
    ("commits", "said"),
    [
        (("", ""), "Drawn from 2 runs of the store, computed between 2026-01-01 and 2026-01-02; their records name no"),
        (("b-dirty", ""), "between 2026-01-01 and 2026-01-02, 1 of them at commit b-dirty."),
        (("b", "b"), "2026-01-02, at commit b."),
        (("b", "a"), "2026-01-02, at 2 commits, the last b, 2026-01-02."),
    ],
)
def test_what_the_store_knows_is_said(commits: tuple[str, str], said: str) -> None:
    """Runs, days and commits come from the records; a record without a commit is said to have none."""
    told = origin.sentences({"when": when, "commit": commit} for when, commit in zip(DAYS, commits))
    assert said in told


def test_an_exhibit_has_its_runs() -> None:
    """Only the stored runs of an exhibit count; without any, nothing is said."""
    runs = registered()["FG-A1"].runs("paper")
    assert origin.teller()("FG-A1") == ""
    Store().append("fedgat-4-algorithm", record(runs[0], when=DAYS[0]) | {"commit": "abc"})
    assert origin.teller()("FG-A1") == "Drawn from 1 run of the store, computed on 2026-01-02, at commit abc."
    assert origin.teller()("no exhibit") == ""
