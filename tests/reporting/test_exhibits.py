"""Exhibits name their runs, choices made on validation follow from the store, and claims can come out either way."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from fedrepro import paths
from fedrepro.errors import ArgumentError
from fedrepro.papers.engine.exhibits import WAYS, speed_checks, speed_table
from fedrepro.papers.fedgat.exhibits import experiments as fedgat
from fedrepro.reporting import exhibits
from fedrepro.reporting.compare import claims_table
from fedrepro.reporting.exhibits import registered
from fedrepro.runs.store import Store


@pytest.mark.parametrize("name", registered())
def test_quick_runs_are_among_the_paper_runs(name: str) -> None:
    """What two cores recompute is part of what the paper's setting asks for, and no run is asked for twice."""
    quick, paper = registered()[name].runs("quick"), registered()[name].runs("paper")
    assert {run.key for run in quick} <= {run.key for run in paper}
    assert len({run.key for run in paper}) == len(paper) > 0


@pytest.mark.parametrize("name", registered())
def test_smoke_runs_need_no_graph(name: str) -> None:
    """A smoke run works on stand-ins or on nothing, so it is never mistaken for a real one."""
    drawn = ("~standin", "csbm-")  # synthetic data under its own name
    runs = registered()[name].runs("smoke")
    assert all(run.dataset == "" or any(mark in run.dataset for mark in drawn) for run in runs)


def test_an_unknown_profile_is_an_error() -> None:
    """The message lists the profiles."""
    with pytest.raises(ArgumentError, match="profile must be one of 'smoke', 'quick', 'paper'"):
        registered()["FG-T1"].runs("quik")


def test_chosen_points_follow_from_the_stored_tuning_runs() -> None:
    """Each cell's point has the highest validation accuracy of those tried, the first of equals."""
    frame = fedgat.named_rows(Store(paths.root() / "data" / "results").frame(fedgat.tuning("paper")))
    frame["optimizer"], frame["local_epochs"] = frame["optimizer"].fillna("adam"), frame["local_epochs"].fillna(1)
    for row, dataset, partition in fedgat.cells(fedgat.DATASETS):
        cell = frame[(frame.method == row) & (frame.dataset == dataset) & (frame.partition == partition)]
        scores = cell.set_index(["optimizer", "lr", "weight_decay", "local_epochs"])["before.best.val"]
        points = [scores["adam", lr, decay, 1] for lr, decay in fedgat.GRID]
        if row == "FedGCN":
            points.append(scores["sgd", 0.5, 0.0005, 3])
        assert len(points) == len(fedgat.tried(row)) == len(cell)
        assert fedgat.CHOSEN[dataset][row, partition] == points.index(max(points))


def test_tuning_is_a_table_of_named_columns() -> None:
    """One row a cell, one column a point under its name; a point that was not tried for a row is left blank."""
    frame = pd.DataFrame({
        "method": ["Central", "Central", "FedGCN", "FedGCN"], "model": ["GCN"] * 4, "dataset": "Cora",
        "partition": ["single", "single", fedgat.IID, fedgat.IID], "rounds": [30, 30, 100, 100],
        "optimizer": [None, None, None, "sgd"], "lr": [0.1, 0.06, 0.1, 0.5],
        "weight_decay": [0.001, 0.002, 0.001, 0.0005], "before.best.val": [0.1, 0.2, 0.3, 0.4],
    })  # fmt: skip
    table = fedgat.tuned(frame)
    points = ["lr 0.1, decay 0.001", "lr 0.06, decay 0.002", "its own paper's"]
    assert table.columns.tolist() == ["dataset", "method", "partition", "rounds", *points]
    assert table[points].fillna(-1).to_numpy().tolist() == [[0.1, 0.2, -1], [0.3, -1, 0.4]]
    assert fedgat.tuned(frame.iloc[:2].drop(columns="optimizer")).columns.tolist() == table.columns.tolist()[:-1]


def test_the_code_reading_aggregates_gradients() -> None:
    """FG-T1-code is FedGAT and DistGAT with the public code's settings, ten seeds of each published cell."""
    runs = registered()["FG-T1-code"].runs("paper")
    cells = {(run.method, run.dataset, run.partition) for run in runs}
    assert {method for method, _, _ in cells} == {"DistGAT (FedSGD)", "FedGAT (FedSGD)"}
    assert len(cells) == 12 and len(runs) == 120
    for run in runs:
        rate, decay, rounds = (0.04, 0.003, 30) if run.dataset == "PubMed" else (0.06, 0.002, 35)
        assert (run.options["lr"], run.options["weight_decay"], run.options["rounds"]) == (rate, decay, rounds)
        assert run.options.get("score") == ("code" if run.method.startswith("FedGAT") else None)
    named = fedgat.named_rows(pd.DataFrame({"method": [run.method for run in runs], "model": "GAT"}))
    assert set(named.method) == {"FedGAT", "DistGAT"}


def table1(gap: float) -> pd.DataFrame:
    """FG-T1 on five seeds with FedAvg-like noise; FedGAT is `gap` above every other row."""
    rows = []
    for row, dataset, partition in fedgat.cells(fedgat.DATASETS):
        for seed in range(5):
            score = 0.7 + 0.001 * ((7 * seed + len(row)) % 5) + (gap if row == "FedGAT" else 0.0)
            rows.append({"method": row, "dataset": dataset, "partition": partition, "seed": seed, fedgat.SCORE: score})
    return pd.DataFrame(rows)


def store(text: float, code: float) -> Callable[[str], pd.DataFrame]:
    """FG-T1 in two readings with a gap each, and nothing else."""

    def get(exhibit: str) -> pd.DataFrame:
        if exhibit == "FG-T1-code":
            table = table1(code)
            return table[table.method.isin(["FedGAT", "DistGAT"])]
        return table1(text)

    return get


@pytest.mark.parametrize(
    ("text", "code", "verdicts"),
    [
        (0.1, 0.1, ["holds", "holds", "holds", "holds"]),
        (-0.1, -0.1, ["fails", "holds", "fails", "fails"]),
        (0.1, -0.1, ["holds in part", "holds", "holds in part", "holds in part"]),
    ],
)
def test_claims_come_out_either_way(text: float, code: float, verdicts: list[str]) -> None:
    """Tables where FedGAT is far above or far below the others decide the claims, in each reading by itself."""
    judged = claims_table(fedgat.CLAIMS, store(text, code)).set_index("id").verdict
    assert judged[["FG-C1", "FG-C2", "FG-C2-DistGAT", "FG-C3"]].tolist() == verdicts
    assert set(judged[["FG-C2-clients", "FG-C5"]]) == {"cannot be checked here"}  # neither was varied


@pytest.mark.parametrize(
    ("ours", "cut", "verdict"), [(0.0, 0.1, "holds"), (0.05, 0.1, "holds in part"), (0.1, 0.0, "fails")]
)
def test_the_claim_about_clients_can_fail(ours: float, cut: float, verdict: str) -> None:
    """FedGAT must keep its accuracy from the smallest to the largest number of clients, and DistGAT lose more."""
    fall = {"FedGAT": ours, "DistGAT": cut}
    rows = [
        {"method": row, "clients": n, "seed": seed, fedgat.SCORE: 0.8 - fall[row] * n / 20 + 0.0001 * (seed * n % 3)}
        for row in fall for n in (1, 10, 20) for seed in range(4)
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    judged = claims_table(fedgat.CLAIMS, lambda id: frame if id.startswith("FG-F2") else table1(0.0).iloc[:0])
    assert judged.set_index("id").verdict["FG-C2-clients"] == verdict


def test_a_wide_interval_speaks_for_no_claim() -> None:
    """Two seeds that differ by twenty points show nothing and contradict nothing."""
    frame = table1(0.0)
    frame = frame[frame.seed < 2].copy()
    frame.loc[(frame.method == "FedGAT") & (frame.seed == 1), fedgat.SCORE] += 0.2
    judged = claims_table(fedgat.CLAIMS, lambda _: frame)
    assert judged.verdict[0] == "undecided" and "0 shown, 0 contradicted" in judged.evidence[0]


def test_a_claim_without_runs_cannot_be_checked() -> None:
    """An empty store gives no verdict, not a favourable one."""
    judged = claims_table(fedgat.CLAIMS, lambda _: table1(0.0).iloc[:0])
    assert set(judged.verdict) == {"cannot be checked here"}


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
