"""Exhibits name their runs, and the promises of the suite's speed can fail."""

from __future__ import annotations

import pandas as pd
import pytest

from fedrepro.errors import ArgumentError
from fedrepro.papers.engine.exhibits import WAYS, speed_checks, speed_table
from fedrepro.reporting import exhibits
from fedrepro.reporting.exhibits import registered
from fedrepro.runs import options


@pytest.mark.parametrize("name", registered())
def test_quick_runs_are_among_the_paper_runs(name: str) -> None:
    """The runs of the profile `quick` are among those of `paper`, which are one or more and none twice."""
    quick, paper = registered()[name].runs("quick"), registered()[name].runs("paper")
    assert {run.key for run in quick} <= {run.key for run in paper}
    assert len({run.key for run in paper}) == len(paper) > 0


@pytest.mark.parametrize("name", registered())
def test_smoke_runs_need_no_graph(name: str) -> None:
    """A smoke run works on stand-ins or on nothing, so it is never mistaken for a real one, and has options it may."""
    drawn = ("~standin", "csbm-")  # synthetic data under its own name
    runs = registered()[name].runs("smoke")
    assert all(run.dataset == "" or any(mark in run.dataset for mark in drawn) for run in runs)
    for run in runs:
        options.check(run)


def test_an_unknown_profile_is_an_error() -> None:
    """The message lists the profiles."""
    with pytest.raises(ArgumentError, match="profile must be one of 'smoke', 'quick', 'paper'"):
        registered()["FG-T1"].runs("quik")


@pytest.mark.parametrize("paper", exhibits.papers())
def test_deviations_are_numbered_rows(paper: str) -> None:
    """Every paper lists where its runs part from its text, each row with an id of its own and nothing left blank."""
    if paper == "engine":
        return
    rows = exhibits.deviations(paper)
    assert rows.id.is_unique and not rows.isna().any().any()
    assert list(rows.columns) == ["id", "what the paper says", "what we do", "why"]


@pytest.mark.parametrize(("loop", "verdict"), [(0.5, "holds"), (0.02, "fails")])
def test_speed_promises_can_fail(loop: float, verdict: str) -> None:
    """Loops of half a second against a stack of a tenth satisfy the promises; faster loops do not."""
    seconds = {"stack": 0.1} | dict.fromkeys(WAYS[1:], loop)
    record = {"method": "rounds", "dataset": "Cora", "split": "public", "clients": 10, "hidden": 64, "repeats": 5}
    record |= {"stack.chunk": 10}
    for way in WAYS:
        record |= {
            f"{way}.timing.seconds_per_round": seconds[way],
            f"{way}.timing.peak_mebibytes": 500.0,
            f"{way}.test": 0.8,
        }
    rows = {row["id"]: row["verdict"] for row in speed_checks(speed_table(pd.DataFrame([record])))}
    assert rows == {"EN-4a": verdict, "EN-4b": "not measured", "EN-4c": verdict, "EN-4d": "holds", "EN-4e": verdict}
