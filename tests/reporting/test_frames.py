"""Frames of runs, compared with loops over their rows."""

from __future__ import annotations

import math
import statistics
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedrepro.errors import ArgumentError
from fedrepro.reporting import frames

RUNS = [
    {"key": f"{method}-{clients}-{seed}", "method": method, "clients": clients, "seed": seed}
    for clients in (20, 5)
    for method in ("FedGAT", "FedAvg")
    for seed in (2, 0, 1)
]
SCORES = np.random.default_rng(1).normal(80, 2, (2, len(RUNS)))
FRAME = pd.DataFrame(RUNS).assign(test=SCORES[0], val=SCORES[1])
AT_5 = {"clients": 5, "method": "FedGAT"}


def by_loop(score: str, **where: Any) -> list[float]:
    """Return the scores of the runs with these values, by a loop over the runs."""
    rows = SCORES[["test", "val"].index(score)]
    return [float(x) for run, x in zip(RUNS, rows) if all(run[name] == value for name, value in where.items())]


@pytest.mark.parametrize(
    ("where", "runs"),
    [({}, 12), ({"clients": 5}, 6), (AT_5, 3), ({"clients": [5, 20], "seed": (0, 1)}, 8), ({"clients": {7}}, 0)],
)
def test_select_takes_values_and_lists(where: dict[str, Any], runs: int) -> None:
    """A row is selected if each column has the value, or one of the list; without conditions all are."""
    assert len(frames.select(FRAME, where)) == runs


def test_select_finds_nothing_without_the_column() -> None:
    """A frame whose runs lack an option has none with a value of it, and keeps its columns."""
    none = frames.select(FRAME, {"hidden": 16})
    assert none.empty and list(none) == list(FRAME)


def test_scores_are_indexed_by_seed() -> None:
    """The scores of a cell are floats in the order of their seeds, not of their rows."""
    scores = frames.scores(FRAME.astype({"test": object}), AT_5, "test")
    last, first, second = by_loop("test", **AT_5)
    assert list(scores.index) == [0, 1, 2] and scores.tolist() == [first, second, last]
    assert scores.dtype == float


def test_a_run_that_is_stored_twice_counts_once() -> None:
    """A run that stands in a frame twice gives one score a seed."""
    twice = pd.concat([FRAME, FRAME])
    pd.testing.assert_series_equal(frames.scores(twice, AT_5, "test"), frames.scores(FRAME, AT_5, "test"))


def test_two_runs_of_one_seed_are_refused() -> None:
    """A condition that leaves several runs a seed is an error that names it, and not the first of the runs."""
    with pytest.raises(ArgumentError, match=r"where must be values that leave one run a seed.*'FedGAT'.*\[0, 1, 2\]"):
        frames.scores(FRAME, {"method": "FedGAT"}, "test")
    with pytest.raises(ArgumentError, match="one run a seed"):  # without keys, and in a difference
        frames.difference(FRAME.drop(columns="key"), {"method": "FedGAT"}, AT_5, "test")


@pytest.mark.parametrize(("frame", "value"), [(FRAME, "percent"), (pd.DataFrame(), "test")])
def test_no_such_score_is_an_empty_series(frame: pd.DataFrame, value: str) -> None:
    """A frame without the score, such as an empty store's, has no scores and raises nothing."""
    assert frames.scores(frame, AT_5, value).empty


def test_difference_is_paired_over_seeds() -> None:
    """The difference of two cells is SciPy's paired t test on their seeds in one order."""
    gap = frames.difference(FRAME, AT_5, AT_5 | {"method": "FedAvg"}, "test")
    assert gap is not None
    reference = stats.ttest_rel(by_loop("test", **AT_5), by_loop("test", clients=5, method="FedAvg"))
    assert (gap.p, gap.pairs) == (pytest.approx(reference.pvalue), 3)


def test_difference_needs_two_common_seeds() -> None:
    """Cells that share no two seeds are not compared."""
    left, right = {**AT_5, "seed": [0, 1]}, {**AT_5, "seed": [1, 2]}
    assert frames.difference(FRAME, left, right, "test") is None


def test_means_are_those_of_a_loop() -> None:
    """Mean and sample standard deviation of each cell agree with Python's, in the order of first appearance."""
    table = frames.means(FRAME, ["method", "clients"], "test")
    assert list(table) == ["method", "clients", "mean", "std", "runs"]
    cells = [("FedGAT", 20), ("FedAvg", 20), ("FedGAT", 5), ("FedAvg", 5)]
    for row, (method, clients) in zip(table.itertuples(index=False), cells, strict=True):
        values = by_loop("test", method=method, clients=clients)
        expected = (statistics.mean(values), statistics.stdev(values), 3)
        assert row[:2] == (method, clients) and row[2:] == pytest.approx(expected)


def test_means_leave_missing_scores_out() -> None:
    """A run without the score is not among the runs of a mean."""
    table = frames.means(FRAME.assign(test=FRAME["test"].where(FRAME["seed"] > 0)), ["method"], "test")
    assert table["runs"].tolist() == [4, 4] and table["mean"].notna().all()


def test_means_of_several_scores() -> None:
    """Several scores have a column of means each, and one of runs."""
    table = frames.means(FRAME, ["clients"], ["test", "val"]).set_index("clients")
    assert list(table) == ["test", "val", "runs"] and table["runs"].tolist() == [6, 6]
    assert table.loc[5, ["test", "val"]].tolist() == pytest.approx(
        [statistics.mean(by_loop(score, clients=5)) for score in ("test", "val")]
    )


def test_a_cell_without_an_option_has_a_mean() -> None:
    """Runs that lack an option of the others are a cell of their own; they are not left out."""
    frame = FRAME.assign(hidden=[16.0 if run["method"] == "FedGAT" else math.nan for run in RUNS])
    table = frames.means(frame, ["method", "hidden"], "test")
    assert table["method"].tolist() == ["FedGAT", "FedAvg"] and table["runs"].tolist() == [6, 6]


def test_series_come_from_the_records() -> None:
    """Each run has its lists of rounds in columns `series.<name>`, and None where its record keeps none."""
    records = {"a": {"series": {"before.test": [0.1, 0.2]}}, "b": {}, "d": {"series": {"after.test": [0.3]}}}
    store = cast("Any", SimpleNamespace(get=records.get))
    frame = frames.with_series(pd.DataFrame({"key": ["a", "b", "c", "d"]}), store)
    assert list(frame) == ["key", "series.before.test", "series.after.test"]
    assert frame["series.before.test"].tolist() == [[0.1, 0.2], None, None, None]
    assert frame["series.after.test"].tolist() == [None, None, None, [0.3]]


def test_an_empty_frame_has_no_series() -> None:
    """A frame without runs needs no store."""
    assert frames.with_series(pd.DataFrame(), cast("Any", None)).empty


LISTS = pd.DataFrame({"method": ["A", "B", "C"], "up": [[1, 2], None, [3]], "down": [[5, 6], [7], [8]]})


def test_explode_makes_a_row_of_each_entry() -> None:
    """Entries are numbered from 1 and run through the lists side by side; a run without a list is left out."""
    table = frames.explode(LISTS, {"sent": "up", "received": "down"}, ["method"])
    assert list(table) == ["method", "round", "sent", "received"]
    assert table.to_numpy().tolist() == [["A", 1, 1, 5], ["A", 2, 2, 6], ["C", 1, 3, 8]]


def test_explode_numbers_from_first() -> None:
    """Clients are numbered from 0 in a column of another name."""
    table = frames.explode(LISTS, {"sent": "up"}, ["method"], position="client", first=0)
    assert table["client"].tolist() == [0, 1, 0]


def test_explode_refuses_lists_of_different_lengths() -> None:
    """Two lists of one run that differ in length are an error, not cut to the shorter."""
    with pytest.raises(ValueError, match="shorter"):
        frames.explode(LISTS.assign(down=[[5], [7], [8]]), {"sent": "up", "received": "down"}, [])


def test_explode_of_nothing_has_its_columns() -> None:
    """An empty store gives an empty table with the columns of a full one."""
    assert list(frames.explode(pd.DataFrame(), {"sent": "up"}, ["method"])) == ["method", "round", "sent"]


TRAFFIC = pd.DataFrame(
    {
        "method": ["A", "A", "B"],
        "traffic.before.up.features": [10.0, 20.0, math.nan],
        "traffic.training.up.weights": [100.0, 100.0, 300.0],
        "traffic.training.down.weights": [1.0, 3.0, 5.0],
        "traffic.bytes.training": [404.0, 412.0, 1220.0],
    }
)


def test_messages_are_means_by_stage_and_direction() -> None:
    """Scalars are means over the runs that sent the message; totals in bytes are no message."""
    table = frames.messages(TRAFFIC, ["method"])
    rows = {tuple(row[:4]): tuple(row[4:]) for row in table.itertuples(index=False)}
    assert list(table) == ["method", "stage", "direction", "message", "scalars", "runs"]
    assert rows == {
        ("A", "before", "up", "features"): (15.0, 2),
        ("A", "training", "up", "weights"): (100.0, 2),
        ("A", "training", "down", "weights"): (2.0, 2),
        ("B", "training", "up", "weights"): (300.0, 1),
        ("B", "training", "down", "weights"): (5.0, 1),
    }


def test_messages_whose_names_have_a_dot_stay_apart() -> None:
    """The name of a message is all that follows the direction."""
    frame = pd.DataFrame({"method": ["A"], **{f"traffic.training.up.layer.{n}": [float(n)] for n in (1, 2)}})
    table = frames.messages(frame, ["method"])
    assert table[["message", "scalars"]].to_numpy().tolist() == [["layer.1", 1.0], ["layer.2", 2.0]]


@pytest.mark.parametrize("frame", [TRAFFIC[["method"]], TRAFFIC.iloc[:0]])
def test_runs_without_traffic_have_no_messages(frame: pd.DataFrame) -> None:
    """Runs that counted no message give an empty table with the columns of a full one."""
    table = frames.messages(frame, ["method"])
    assert table.empty and list(table) == ["method", "stage", "direction", "message", "scalars", "runs"]


def layout(cells: list[tuple[str, str, str]], rows: str | list[str] = "method") -> pd.DataFrame:
    table = pd.DataFrame(cells, columns=["method", "clients", "dataset"]).assign(mean=range(len(cells)))
    return frames.paper_layout(table, rows, "dataset", lambda row: f"{row.mean}!")


def test_the_papers_layout_keeps_the_order_of_the_table() -> None:
    """Rows and columns appear in the order in which the table has them, not sorted."""
    wide = layout([("z", "5", "PubMed"), ("z", "5", "Cora"), ("a", "5", "Cora"), ("a", "5", "PubMed")])
    assert list(wide) == ["method", "PubMed", "Cora"]
    assert wide.to_numpy().tolist() == [["z", "0!", "1!"], ["a", "3!", "2!"]]


def test_rows_of_two_columns_keep_the_order_of_the_table() -> None:
    """Rows are in the order of their pairs, although a later value of the second column came first elsewhere."""
    wide = layout([("a", "5", "Cora"), ("b", "20", "Cora"), ("b", "5", "Cora")], ["method", "clients"])
    assert wide.to_numpy().tolist() == [["a", "5", "0!"], ["b", "20", "1!"], ["b", "5", "2!"]]


def test_a_cell_that_the_table_lacks_is_empty() -> None:
    """A method without a number on a data set has a missing cell there."""
    wide = layout([("a", "5", "Cora"), ("b", "5", "PubMed")])
    assert wide.isna().to_numpy().tolist() == [[False, False, True], [False, True, False]]
