"""Exhibits name their runs, choices made on validation follow from the store, and claims can come out either way."""

from __future__ import annotations

import pandas as pd
import pytest

from fedrepro import exhibits, paths
from fedrepro.compare import claims_table
from fedrepro.errors import ArgumentError
from fedrepro.exhibits import EXHIBITS, fedgat
from fedrepro.exhibits.engine import WAYS, speed_checks, speed_table
from fedrepro.store import Store


@pytest.mark.parametrize("name", EXHIBITS)
def test_quick_runs_are_among_the_paper_runs(name: str) -> None:
    """What two cores recompute is part of what the paper's setting asks for, and no run is asked for twice."""
    quick, paper = EXHIBITS[name].runs("quick"), EXHIBITS[name].runs("paper")
    assert {run.key for run in quick} <= {run.key for run in paper}
    assert len({run.key for run in paper}) == len(paper) > 0


@pytest.mark.parametrize("name", EXHIBITS)
def test_smoke_runs_need_no_graph(name: str) -> None:
    """A smoke run works on stand-ins or on nothing, so it is never mistaken for a real one."""
    drawn = ("~standin", "csbm-")  # synthetic data under its own name
    runs = EXHIBITS[name].runs("smoke")
    assert all(run.dataset == "" or any(mark in run.dataset for mark in drawn) for run in runs)


def test_an_unknown_profile_is_an_error() -> None:
    """The message lists the profiles."""
    with pytest.raises(ArgumentError, match="profile must be one of 'smoke', 'quick', 'paper'"):
        EXHIBITS["FG-T1"].runs("quik")


def test_chosen_pairs_follow_from_the_stored_tuning_runs() -> None:
    """Each cell's pair has the highest validation accuracy of its six points, the first of equals."""
    frame = fedgat.named_rows(Store(paths.root() / "data" / "results").frame(fedgat.tuning("paper")))
    for row, dataset, partition in fedgat.cells(fedgat.DATASETS):
        cell = frame[(frame.method == row) & (frame.dataset == dataset) & (frame.partition == partition)]
        scores = cell.set_index(["lr", "weight_decay"])["before.best.val"]
        points = [scores[pair] for pair in fedgat.GRID]
        assert fedgat.CHOSEN[dataset][row, partition] == points.index(max(points))


def table1(gap: float) -> pd.DataFrame:
    """FG-T1 on five seeds with FedAvg-like noise; FedGAT is `gap` above every other row."""
    rows = []
    for row, dataset, partition in fedgat.cells(fedgat.DATASETS):
        for seed in range(5):
            score = 0.7 + 0.001 * ((7 * seed + len(row)) % 5) + (gap if row == "FedGAT" else 0.0)
            rows.append({"method": row, "dataset": dataset, "partition": partition, "seed": seed, fedgat.SCORE: score})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("gap", "verdicts"), [(0.1, ["holds"] * 3), (-0.1, ["fails", "holds", "fails"])])
def test_claims_come_out_either_way(gap: float, verdicts: list[str]) -> None:
    """A table where FedGAT is far above or far below the others decides the claims accordingly."""
    judged = claims_table(fedgat.CLAIMS, lambda _: table1(gap))
    assert judged.verdict.tolist() == [*verdicts, "cannot be checked here"]  # no degree was varied


def test_a_wide_interval_speaks_for_no_claim() -> None:
    """Two seeds that differ by twenty points show nothing and contradict nothing."""
    frame = table1(0.0)
    frame = frame[frame.seed < 2].copy()
    frame.loc[(frame.method == "FedGAT") & (frame.seed == 1), fedgat.SCORE] += 0.2
    judged = claims_table(fedgat.CLAIMS, lambda _: frame)
    assert judged.verdict[0] == "cannot be checked here" and "undecided" in judged.evidence[0]


def test_a_claim_without_runs_cannot_be_checked() -> None:
    """An empty store gives no verdict, not a favourable one."""
    judged = claims_table(fedgat.CLAIMS, lambda _: table1(0.0).iloc[:0])
    assert set(judged.verdict) == {"cannot be checked here"}


@pytest.mark.parametrize("paper", exhibits.PAPERS)
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
    record = {"clients": 10, "hidden": 64, "repeats": 5, "stack.chunk": 10}
    for way in WAYS:
        record |= {
            f"{way}.timing.seconds_per_round": seconds[way],
            f"{way}.timing.peak_mebibytes": 500.0,
            f"{way}.test": 0.8,
        }
    rows = {row["id"]: row["verdict"] for row in speed_checks(speed_table(pd.DataFrame([record])))}
    assert rows == {"EN-4a": verdict, "EN-4b": "not measured", "EN-4c": verdict, "EN-4d": "holds"}


@pytest.mark.parametrize(
    ("seconds", "memory", "verdicts"),
    [(0.05, 500.0, ["holds", "holds"]), (0.09, 2000.0, ["fails", "fails"]), (0.05, None, ["holds", "not measured"])],
)
def test_the_price_of_a_round_can_be_too_high(seconds: float, memory: float | None, verdicts: list[str]) -> None:
    """FedGAT's round against one of DistGAT that takes 0.01 s; memory that was not measured keeps no limit."""
    frame = pd.DataFrame({
        "of": ["DistGAT", "FedGAT"], "timing.seconds_per_round": [0.01, seconds],
        "timing.peak_mebibytes": [None, memory],
    })  # fmt: skip
    assert [row["verdict"] for row in fedgat.price_checks(frame)] == verdicts
    assert {row["verdict"] for row in fedgat.price_checks(frame.iloc[:0])} == {"not measured"}
