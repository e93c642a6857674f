"""Readings of a main table: which explain a cell, and how many a placebo would."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedrepro.errors import ArgumentError
from fedrepro.reporting import compare, exhibits, readings, rule
from fedrepro.reporting.exhibits import MainTable

LAYOUT = MainTable({"method": "FedGAT"}, value="test")


def runs_of(mean: float, seeds: int = 10, spread: float = 0.003) -> pd.DataFrame:
    cell = {"dataset": "Cora", "method": "FedGAT", "clients": 10, "partition": "dirichlet(beta=1)", "status": "ok"}
    scores = np.random.default_rng(0).normal(mean, spread, seeds)
    return pd.DataFrame([cell | {"seed": seed, "test": score} for seed, score in enumerate(scores)])


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Return FG-T1's printed numbers, and let the paper's folder list two readings of it."""
    table = exhibits.published("fedgat")
    header = "exhibit,reading,kind,fixed,departures\n"
    lines = "FG-T1,coded,code,before,none\nFG-T1,taken literally,literal,after,none\n"
    (tmp_path / "readings.csv").write_text(header + lines)
    monkeypatch.setattr(exhibits, "folder", lambda paper: tmp_path)
    return table[table["exhibit"].eq("FG-T1")].assign(redrawn=True)


def test_a_reading_that_fits_explains_the_cell(printed: pd.DataFrame) -> None:
    """The printed 80.0 is explained by a reading that gives it, and not by one that is as far off as the main one."""
    others = {"coded": runs_of(0.80), "taken literally": runs_of(0.70)}
    judged = readings.table(runs_of(0.75), others, printed, LAYOUT)
    assert judged.set_index("reading")["explains"].to_dict() == {
        "main": False, "coded": True, "taken literally": False, "placebo": False,
    }  # fmt: skip
    assert list(judged["reading"]) == ["main", "coded", "taken literally", "placebo"]
    (cause,) = readings.causes(judged).to_dict("records")
    assert (cause["verdict"], cause["cause"]) == (rule.DIFFERS, "coded")
    assert "taken literally: differs (-10" in cause["readings run"]
    none = readings.table(runs_of(0.75), {"taken literally": runs_of(0.70)}, printed, LAYOUT)
    assert readings.causes(none)["cause"].tolist() == [readings.NO_CAUSE]


def test_a_reading_that_fits_by_its_width_alone_explains_nothing(printed: pd.DataFrame) -> None:
    """A reading of two runs that leaves the difference as it is has a wide interval, and is no cause."""
    others = {"coded": runs_of(0.774, seeds=2), "taken literally": runs_of(0.790, seeds=2)}
    found = readings.table(runs_of(0.775), others, printed, LAYOUT).set_index("reading")
    assert found["verdict"]["main"] == rule.LITTLE and set(found["verdict"][1:3]) <= {rule.COMPATIBLE, rule.AGREES}
    assert found["explains"].to_dict() == {"main": False, "coded": False, "taken literally": True, "placebo": False}


def explained(differs: float, left: float, runs: int, kept: bool, draws: int = 400) -> tuple[float, float]:
    """Return how often a reading explains a number that differs, without the condition `NEARER` and with it.

    Args:
        differs: points by which the main reading is off, with five runs and a standard deviation of one point.
        left: points by which the other reading is off, whose runs share most of their noise with the main one's.
        kept: whether the paper kept one split.
    """
    rng, counts = np.random.default_rng(0), np.zeros(3)
    for _ in range(draws):
        target = rng.normal(0, 1 if kept else 10**-0.5)
        noise = rng.normal(0, 1, 5)
        scores = differs + noise, left + 0.7 * noise[:runs] + rng.normal(0, 0.51**0.5, runs)
        how = {"point": 1.0, "runs_published": 10, "redrawn": not kept, "prior": rule.Prior(1.0, 4.0)}
        main, other = (compare.judge_cell(list(one), target, **how) for one in scores)
        if main.verdict in (rule.LITTLE, rule.DIFFERS):
            fits = other.verdict in rule.FITS
            nearer = abs(other.difference) <= readings.NEARER * abs(main.difference)
            counts += [1, fits, fits and nearer]
    return counts[1] / counts[0], counts[2] / counts[0]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("runs", [1, 3])
def test_a_reading_that_changes_nothing_seldom_explains_and_a_right_one_mostly(kept: bool, runs: int) -> None:
    """The simulation behind `NEARER`: without it one run of a reading that changes nothing often explains a number."""
    before, after = explained(2.5, 2.5, runs, kept)
    assert after <= 0.12 and after < before
    if runs == 1:
        assert before > 0.5, "the condition is not needed"
    assert explained(2.5, 0.0, runs, kept)[1] >= 0.65
    assert explained(4.0, 0.0, runs, kept)[1] >= 0.8


def test_a_cell_that_fits_needs_no_cause(printed: pd.DataFrame) -> None:
    """No reading explains a number with which the main one agrees, and it has no cause."""
    found = readings.table(runs_of(0.80), {"coded": runs_of(0.80)}, printed, LAYOUT)
    assert not found["explains"].any() and readings.causes(found).empty


def test_the_placebo_is_the_other_half_of_the_seeds(printed: pd.DataFrame) -> None:
    """Runs whose even seeds lie off the print and whose odd ones do not are "explained" by the placebo: noise."""
    odd_fits = runs_of(0.75)
    odd_fits.loc[odd_fits["seed"] % 2 == 1, "test"] += 0.05
    found = readings.table(odd_fits, {}, printed, LAYOUT)
    assert readings.placebo_rate(found) == (1, 1)
    assert readings.placebo_rates(found) == {found.loc[found["reading"].eq("placebo"), "open"].item(): (1, 1)}
    assert readings.placebo_rate(readings.table(runs_of(0.75), {}, printed, LAYOUT)) == (0, 1)


def test_the_reading_that_fits_most_often_is_marked_and_stays_in_its_place(printed: pd.DataFrame) -> None:
    """Each reading has its counts in the fixed order; a reading of a part of the table is not compared."""
    others = {"coded": runs_of(0.80), "taken literally": runs_of(0.70)}
    table = readings.table(runs_of(0.75), others, printed, LAYOUT)
    rows = readings.coverage(table)
    assert rows["reading"].tolist() == ["main", "coded", "taken literally"]
    assert rows["best"].tolist() == ["", "best", ""] and rows["fits"].tolist() == [0, 1, 0]
    assert rows["explains"].tolist() == [0, 1, 0] and set(rows["run on"]) == {1}
    more = table[table["reading"].eq("main")].assign(method="GAT")
    assert readings.coverage(pd.concat([table, more]))["best"].tolist() == ["", "", ""]


def test_a_reading_must_be_listed(printed: pd.DataFrame) -> None:
    """Readings are data, with when they were fixed: one that the file lacks is refused."""
    with pytest.raises(ArgumentError, match="reading"):
        readings.table(runs_of(0.75), {"another": runs_of(0.8)}, printed, LAYOUT)


def test_what_is_said_of_a_row_holds_for_the_main_readings_kind() -> None:
    """A reading of the main one's kind has its interval, and one of the text a wider one, as with a kept split."""
    printed = exhibits.published("fedgat")
    printed = printed[printed["exhibit"].eq("FG-T1") & printed["dataset"].eq("Cora") & printed["method"].eq("FedGAT")]
    columns = ["dataset", "method", "clients", "partition"]
    cell = printed[columns].iloc[0].to_dict()
    runs = pd.DataFrame([cell | {"seed": seed, "score": 0.78 + 0.01 * seed} for seed in range(3)])
    same = dict.fromkeys(("code in part", "text"), runs)
    layout = exhibits.study("fedgat").tables["FG-T1"]
    half = readings.table(runs, same, printed, layout).set_index("reading")["half95"]
    assert half["main"] == half["code in part"] < half["text"]


def test_where_the_first_half_fits_the_placebo_has_nothing_to_explain(printed: pd.DataFrame) -> None:
    """The placebo is compared with the other half of the seeds, and not with all of them."""
    runs = runs_of(0.80)
    runs.loc[runs["seed"] % 2 == 1, "test"] -= 0.1
    found = readings.table(runs, {}, printed, LAYOUT)
    assert found.set_index("reading")["verdict"]["main"] != rule.AGREES
    assert readings.placebo_rates(found) == {}


def test_what_was_not_tested_is_not_explained(printed: pd.DataFrame) -> None:
    """A reading that fits explains nothing where the main reading has no run."""
    found = readings.table(runs_of(0.75).assign(dataset="CiteSeer"), {"coded": runs_of(0.80)}, printed, LAYOUT)
    coded = found[found["reading"].eq("coded")]
    assert coded["verdict"].tolist() == [rule.AGREES] and not coded["explains"].any()


def test_a_reading_with_graphs_of_its_own_is_judged_by_them(printed: pd.DataFrame) -> None:
    """Scores on graphs drawn anew are those of the main reading, where a reading has none of its own."""
    rows = {"coded": runs_of(0.80), "taken literally": runs_of(0.80)}
    wide, slim = (
        printed.assign(anew=pd.Series([pd.Series([0.7, 0.7 + gap] * 3)] * len(printed), printed.index, dtype=object))
        for gap in (0.2, 0.02)
    )
    found = readings.table(runs_of(0.80), rows, wide, LAYOUT, {"coded": slim}).set_index("reading")["half95"]
    alone = readings.table(runs_of(0.80), rows, slim, LAYOUT).set_index("reading")["half95"]
    assert found["coded"] == alone["coded"] < found["taken literally"]


def told(reading: str, words: str, explains: bool = False, open_word: str = rule.DIFFERS) -> pd.DataFrame:
    """Return a reading of as many cells as there are letters: a for agrees, d for differs."""
    names = {"a": rule.AGREES, "d": rule.DIFFERS}
    rows = [
        dict.fromkeys(readings.COLUMNS, "") | {"dataset": str(cell), "reading": reading, "verdict": names[letter]}
        for cell, letter in enumerate(words)
    ]
    return pd.DataFrame(rows).assign(explains=explains, open=open_word, difference=3.0, kind="code", fixed="before")


def test_the_best_reading_is_one_of_the_whole_table() -> None:
    """A reading that fits more often, but was run on a part alone, is not best and hides no other."""
    table = pd.concat([told("main", "ddd"), told("coded", "add"), told("in part", "aa")])
    assert readings.coverage(table)["best"].tolist() == ["", "best", ""]


def test_a_wide_number_that_fits_better_is_none_that_differs() -> None:
    """Explained are numbers that differ, if only a little; a placebo is no cause and no reading that was run."""
    wide = pd.concat([told("main", "d"), told("coded", "a", True, rule.WIDE)])
    assert readings.coverage(wide)["explains"].tolist() == [0, 0]
    (row,) = readings.causes(pd.concat([told("main", "d"), told("placebo", "a", True)])).to_dict("records")
    assert (row["readings run"], row["cause"]) == ("none", readings.NO_CAUSE)
