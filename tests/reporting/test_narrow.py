"""The plan of runs that narrow intervals: what it counts, in which order, and what it computes."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from fedrepro.errors import ArgumentError
from fedrepro.reporting import answer, compare, exhibits, frames, narrow, rule
from fedrepro.reporting.priors import prior
from fedrepro.runs.run import Run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the committed store."""
    monkeypatch.setenv("FEDREPRO_STORE", str(ROOT / "data" / "results"))


def row_of(sds: list[float], printed: dict[str, Any]) -> dict[str, Any]:
    """Return the row of `compare.judge_table` for runs that lie so many points above the printed number."""
    runs = [
        {name: printed[name] for name in ("dataset", "method", "clients")} | {"seed": seed, "percent": value}
        for seed, value in enumerate(printed["value_number"] + sd for sd in sds)
    ]
    (row,) = compare.judge_table(
        pd.DataFrame(runs), pd.DataFrame([printed]), on=["dataset", "method", "clients"], value="percent"
    ).to_dict("records")
    return dict(row)


def cell(method: str = "Flow") -> dict[str, Any]:
    table = exhibits.published("fedsheafhn")
    chosen = table["exhibit"].eq("SH-T1") & table["method"].eq(method) & table["dataset"].eq("Cora")
    return dict(table[chosen].to_dict("records")[0])


def test_the_expected_half_width_is_that_of_runs_with_this_spread() -> None:
    """At the number of runs a cell has it is the cell's own; with more it is what these would give, and less."""
    printed = cell()
    row = row_of([-2.0, 0.0, 2.0], printed)
    assert narrow.half95(printed, row, 3) == pytest.approx(row["half95"])
    more = row_of([-2.0, 0.0, 2.0] * 3 + [math.sqrt(2.0), -math.sqrt(2.0)], printed)  # 11 runs of standard deviation
    assert more["ours_sd"] == pytest.approx(math.sqrt((6 * 4 + 4) / 10))
    assert narrow.half95(printed, row | {"ours_sd": more["ours_sd"]}, 11) == pytest.approx(more["half95"])
    widths = [narrow.half95(printed, row, count) for count in (3, 5, 10, 20)]
    assert widths == sorted(widths, reverse=True)
    one = row_of([0.0], printed)
    assert narrow.half95(printed, one, 1) == pytest.approx(one["half95"])
    alike = row | {"ours_sd": math.sqrt(prior("fedsheafhn", printed["dataset"]).variance)}
    assert narrow.half95(printed, one, 4) == pytest.approx(narrow.half95(printed, alike, 4))


def test_the_plan_counts_what_the_pages_count(committed: None) -> None:
    """Tested and narrow numbers are those of the committed pages; each number to buy is wide and has new seeds."""
    tested, slim, wide = narrow.numbers("fedsheafhn")
    known = answer.numbers(ROOT / "figures", "fedsheafhn")
    assert (tested, slim) == (known["tested"], round(known["narrow"] * tested))
    assert 0 < len(wide) <= tested - slim and [one.seconds for one in wide] == sorted(one.seconds for one in wide)
    stored = {(run.method, run.dataset) for one in wide for run in one.runs}
    assert stored and all(len({run.seed for run in one.runs}) == len(one.runs) > 0 for one in wide)
    table, said = narrow.plan(["fedsheafhn"])
    assert table["numbers"].sum() == len(wide) and table["runs"].sum() == sum(len(one.runs) for one in wide)
    assert len(said) == 1 and said[0].startswith(f"FedSheafHN: {slim} of {tested} tested numbers are narrow")


def a_wide(seconds: float, seed: int) -> narrow.Wide:
    return narrow.Wide("SH-T1", "Cora", "Flow", (Run("train", "fedsheafhn", "Flow", seed=seed),), seconds)


def test_the_cheapest_that_suffice_are_told() -> None:
    """Three more of ten numbers bring six narrow ones to 90%; if too few can be narrowed the sentence says so."""
    three = [a_wide(60.0 * n, n) for n in (1, 2, 3)]
    assert narrow._told("A", 10, 6, three).endswith(
        "the cheapest 3 more bring it to 90% (3 runs, 6.0 min on one core)."
    )
    assert "runs can narrow 2 more (2 runs, 3.0 min on one core)" in narrow._told("A", 10, 6, three[:2])
    assert "runs can narrow no other" in narrow._told("A", 10, 6, [])
    assert narrow._told("A", 10, 9, three).endswith("narrow (90%).")
    assert narrow._told("A", 10, 9, []).endswith("narrow (90%); up to 20 seeds leave the rest wide.")


def test_runs_are_bought_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheapest number is computed first, each in the notebook of its exhibit, until the time is up."""
    asked: list[tuple[str, int]] = []

    class Fake:
        def __init__(self, name: str, **_: Any) -> None:
            self.name = name

        def execute(self, runs: list[Run], left: float) -> list[Run]:
            asked.append((self.name, runs[0].seed))
            return runs

    monkeypatch.setattr(narrow, "begin", Fake)
    monkeypatch.setattr(narrow, "numbers", lambda paper: (9, 1, [a_wide(9.0, 1), a_wide(3.0, 2)]))
    assert narrow.buy(["fedsheafhn"], 1.0) == 2
    assert asked == [("fedsheafhn/4.2-results", 2), ("fedsheafhn/4.2-results", 1)]
    with pytest.raises(ArgumentError, match="--budget must be a number of minutes > 0"):
        narrow.buy(["fedsheafhn"], 0.0)
    with pytest.raises(ArgumentError, match="paper must be one of"):
        narrow.plan(["engine"])


def test_wide_is_the_rules_word() -> None:
    """A number counts as narrow exactly where its word is not called wide."""
    printed = cell()
    row = row_of([-6.0, 0.0, 6.0], printed)
    assert (row["verdict"] == rule.WIDE) == (row["half95"] > rule.WIDEST)
    slim = row_of([-0.1, 0.0, 0.1], printed)
    assert slim["half95"] < rule.WIDEST and slim["verdict"] != rule.WIDE


def test_graphs_drawn_anew_count_in_the_expected_half_width() -> None:
    """Twenty runs leave more than twice the half-width if graphs drawn anew add to it."""
    printed = cell() | {"anew": pd.Series([60.0, 80.0, 75.0, 85.0, 70.0])}
    row = row_of([-2.0, 0.0, 2.0], printed)
    assert narrow.half95(printed, row, 3) == pytest.approx(row["half95"])
    assert narrow.half95(printed, row, 20) > 2 * narrow.half95(cell(), row, 20)


@pytest.mark.parametrize(("on_gpu", "seconds"), [([False, True, False], 20.0), ([True] * 3, 320.0)])
def test_a_run_is_expected_to_take_what_those_on_a_cpu_took(
    on_gpu: list[bool], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seconds of a plan are for one core; those of a GPU stand only where there are no others."""
    printed = cell()
    row = row_of([-8.0, 0.0, 8.0], printed)
    frame = pd.DataFrame({"seconds": [10.0, 920.0, 30.0], "place": on_gpu})
    new = [Run("train", "fedsheafhn", "Flow", seed=seed) for seed in (3, 4)]
    notebook = SimpleNamespace(store=SimpleNamespace(on_gpu=lambda run: run["place"]))
    monkeypatch.setattr(narrow, "begin", lambda *_, **__: notebook)
    monkeypatch.setattr(narrow, "_cells", lambda _, id_: [(printed, row, frame)] if id_ == "SH-T1" else [])
    monkeypatch.setattr(narrow, "_further", lambda *_: new)
    monkeypatch.setattr(narrow, "half95", lambda *_: rule.WIDEST)
    tested, slim, (wide,) = narrow.numbers("fedsheafhn")
    assert (tested, slim, wide.runs, wide.seconds) == (1, 0, tuple(new), 2 * seconds)


def test_the_lowest_seeds_that_are_missing_are_bought() -> None:
    """A cell with the seeds 0, 2 and 9 that needs five gets 1 and 3."""
    run = Run("train", "fedsheafhn", "Flow", seed=0)

    notebook = SimpleNamespace(store={run.key: {"run": run.to_dict()}})
    frame = pd.DataFrame({"key": run.key, "seed": [0, 2, 9]})
    assert [one.seed for one in narrow._further(notebook, frame, 5)] == [1, 3]  # type: ignore[arg-type]


def test_the_cheapest_number_is_bought_first_however_many_a_row_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are in the order of their cost a number; nine of eleven numbers are less than 90%."""
    two = [a_wide(30.0, 1), a_wide(10.0, 2)]
    one = a_wide(25.0, 3)._replace(method="FedAvg")
    monkeypatch.setattr(narrow, "numbers", lambda _: (11, 8, [*two, one]))
    table, said = narrow.plan(["fedsheafhn"])
    assert table["method"].tolist() == ["Flow", "FedAvg"] and table["narrow then"].tolist() == ["90.9%", "100.0%"]
    assert "the cheapest 2 more bring it to 90%" in said[0]


def test_a_number_that_a_table_repeats_is_not_bought_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that repeats another's number and an untested one are not in the plan, and the first cell is."""
    layout = exhibits.MainTable({"method": "Flow"}, ("method",), ("dataset", "clients"), "percent")
    printed = pd.DataFrame([cell(), cell() | {"provenance": f"{frames.REPEATS}SH-T2"}, cell("FedAvg")])
    names = ["dataset", "method", "clients"]
    frame = pd.DataFrame([cell()] * 3)[names].assign(seed=range(3), percent=[80.0, 81.0, 82.0])
    monkeypatch.setattr(narrow, "main_runs", lambda *_: (frame, printed, layout))
    ((one, row, runs),) = narrow._cells(None, "SH-T1")  # type: ignore[arg-type]
    assert one["method"] == row["method"] == "Flow" and runs["seed"].tolist() == [0, 1, 2]
