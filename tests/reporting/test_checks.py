"""Rows of checks: which hold, which negative controls are caught, and which of several seeds is told."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from fedrepro.errors import ArgumentError
from fedrepro.reporting import checks
from fedrepro.reporting.checks import CAUGHT, COLUMNS, FAILS, HOLDS, MISSED, Row, collect, control, limit, row, worst_of


def stored(*records: list[Row]) -> pd.DataFrame:
    """Return the frame of records that hold these checks, one list a seed."""
    return pd.DataFrame({"seed": range(len(records)), "checks": list(records)})


@pytest.mark.parametrize(
    ("measured", "bound", "verdict"),
    [(1.0, 1.0, HOLDS), (1.1, 1.0, FAILS), (-5, 0, HOLDS), *((x, 1.0, FAILS) for x in (math.nan, math.inf, -math.inf))],
)
def test_a_check_holds_up_to_its_bound(measured: float, bound: float, verdict: str) -> None:
    """A measured number holds at its bound, fails beyond it, and fails if it is not finite."""
    assert row("X-1", "s", measured, bound)["verdict"] == verdict


@pytest.mark.parametrize(("holds", "verdict"), [(True, HOLDS), (False, FAILS)])
def test_a_check_may_be_decided_elsewhere(holds: bool, verdict: str) -> None:
    """A verdict that is given goes before the comparison with the bound."""
    assert row("X-1", "s", 2.0 if holds else 0.0, 1.0, holds)["verdict"] == verdict


@pytest.mark.parametrize("measured", [math.nan, math.inf, -math.inf])
def test_nothing_holds_that_is_not_finite(measured: float) -> None:
    """A verdict from elsewhere does not save a number that is not finite."""
    assert row("X-1", "s", measured, math.inf, holds=True)["verdict"] == FAILS


@pytest.mark.parametrize("errors", list(itertools.permutations([0.5, math.nan, 2.0])))
def test_the_worst_of_errors_is_nan_if_one_is(errors: tuple[float, ...]) -> None:
    """NaN is told wherever it stands, and without it the largest number."""
    assert math.isnan(worst_of(errors)) and worst_of(x for x in errors if x == x) == 2.0


@pytest.mark.parametrize(
    ("measured", "verdict"), [(1.0, MISSED), (1.1, CAUGHT), (math.nan, MISSED), (math.inf, CAUGHT)]
)
def test_a_control_must_be_beyond_the_bound(measured: float, verdict: str) -> None:
    """A negative control that keeps the bound, or was not measured, shows that the check sees nothing."""
    assert control("X-1", "s", measured, 1.0)["verdict"] == verdict


def test_a_control_is_named_after_its_check() -> None:
    """The control of a check has the check's ID with an ending by which it is recognized, and the same columns."""
    check, negative = row("X-1", "s", 0.0, 1.0), control("X-1", "s", 2.0, 1.0)
    assert negative["id"] == "X-1-control" and checks.is_control(negative) and not checks.is_control(check)
    assert tuple(check) == tuple(negative) == COLUMNS


@pytest.mark.parametrize(
    ("measured", "bound", "verdict"),
    [
        (2.0, {"most": 2.0}, HOLDS),
        (2.01, {"most": 2.0}, FAILS),
        (2.0, {"least": 2.0}, HOLDS),
        (1.9, {"least": 2.0}, FAILS),
        (0.0, {"most": 0.0}, HOLDS),
        (None, {"most": 2.0}, "not measured"),
        (math.nan, {"least": 2.0}, "not measured"),
    ],
)
def test_a_limit_is_kept_broken_or_not_measured(measured: float | None, bound: dict[str, float], verdict: str) -> None:
    """A number on the limit keeps it, and a number that was not measured neither keeps nor breaks it."""
    assert limit("x", "a number", measured, **bound)["verdict"] == verdict


def test_a_limit_says_what_was_measured() -> None:
    """The row holds the measured number in three digits and the limit in words."""
    assert limit("x", "seconds", 1.23456, most=2.0) == {
        "id": "x",
        "statement": "seconds",
        "measured": "1.23",
        "bound": "at most 2",
        "verdict": "holds",
    }
    assert limit("x", "seconds", None, least=0.5)["bound"] == "at least 0.5"


@pytest.mark.parametrize("bounds", [{}, {"most": 1.0, "least": 0.0}])
def test_a_limit_is_one_number(bounds: dict[str, float]) -> None:
    """Two limits, or none, are an error."""
    with pytest.raises(ArgumentError, match="exactly one limit"):
        limit("x", "a number", 1.0, **bounds)


@pytest.mark.parametrize("order", list(itertools.permutations([0.2, 0.9, 0.5])))
def test_of_several_seeds_the_largest_error_is_told(order: tuple[float, ...]) -> None:
    """The row with the largest measured number is kept if all seeds hold, in any order of the seeds."""
    table = collect(stored(*([row("X-1", "s", measured, 1.0)] for measured in order)))
    assert table["measured"].tolist() == [0.9] and list(table) == list(COLUMNS)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_seed_that_failed_is_told(order: tuple[int, int]) -> None:
    """A seed whose number is small but beyond its bound is worse than one whose number is larger and holds."""
    rows = [row("X-1", "s", 0.2, 0.1), row("X-1", "s", 0.9, 1.0)]
    assert collect(stored(*([rows[n]] for n in order)))["verdict"].tolist() == [FAILS]


@pytest.mark.parametrize("order", list(itertools.permutations([3.0, 2.0, 5.0])))
def test_of_controls_the_nearest_to_passing_is_told(order: tuple[float, ...]) -> None:
    """The control with the smallest measured number is kept if all are caught, in any order of the seeds."""
    table = collect(stored(*([control("X-1", "s", measured, 1.0)] for measured in order)))
    assert table["measured"].tolist() == [2.0]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("measured", "bound"), [(3.0, 4.0), (math.nan, 1.0)])
def test_a_control_that_was_missed_is_told(measured: float, bound: float, order: tuple[int, int]) -> None:
    """A control that passes on one seed is worse than one that is caught with a smaller number on another seed."""
    rows = [control("X-1", "s", 2.0, 1.0), control("X-1", "s", measured, bound)]
    assert rows[1]["verdict"] == MISSED
    assert collect(stored(*([rows[n]] for n in order)))["verdict"].tolist() == [MISSED]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_number_that_is_not_finite_is_told(order: tuple[int, int]) -> None:
    """A seed whose error is NaN fails, so it is worse than one that holds."""
    rows = [row("X-1", "s", math.nan, 1.0), row("X-1", "s", 0.5, 1.0)]
    assert collect(stored(*([rows[n]] for n in order)))["verdict"].tolist() == [FAILS]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_stored_nan_is_told(order: tuple[int, int]) -> None:
    """The store keeps NaN as None; such a row fails, and such a control is missed."""
    rows = [
        [make("X-1", "s", x, 1.0) | ({"measured": None} if x != x else {}) for make in (row, control)]
        for x in (math.nan, 0.5)
    ]
    assert collect(stored(*(rows[n] for n in order)))["verdict"].tolist() == [FAILS, MISSED]


def test_checks_of_other_statements_stay_apart() -> None:
    """Two statements under one ID are two checks, and a control is not merged with its check."""
    seed = [row("X-1", "s", 0.1, 1.0), row("X-1", "t", 0.2, 1.0), control("X-1", "s", 2.0, 1.0)]
    assert len(collect(stored(seed, seed))) == 3


@pytest.mark.parametrize(
    ("prefixes", "ids"), [((), ["A-1", "A-2", "B-1"]), (("A",), ["A-1", "A-2"]), (("A-2", "B"), ["A-2", "B-1"])]
)
def test_checks_are_chosen_by_prefix(prefixes: tuple[str, ...], ids: list[str]) -> None:
    """Without a prefix all checks are returned, else those that begin with one of them, in stored order."""
    seed = [row(name, "s", 0.0, 1.0) for name in ("A-1", "A-2", "B-1")]
    assert collect(stored(seed), *prefixes)["id"].tolist() == ids


def test_an_empty_store_has_no_checks() -> None:
    """A frame without runs gives an empty table with the columns of a full one."""
    assert list(collect(pd.DataFrame())) == list(COLUMNS) and collect(pd.DataFrame()).empty


def test_checks_are_saved_by_exhibit() -> None:
    """Every check goes to the paper's list as it is written there, and to the file of the exhibit that its ID names."""
    saved: dict[str, pd.DataFrame] = {}
    nb: Any = SimpleNamespace(checks=lambda rows: rows.assign(measured="0.0"), save=saved.__setitem__)
    rows = collect(stored([row(name, "s", 0.0, 1.0) for name in ("A-1", "A-2", "B-1", "C-1")]))
    written = checks.save(nb, rows, "A", "B", runs=3)
    assert written["id"].tolist() == ["A-1", "A-2", "B-1", "C-1"] and "runs" not in written
    assert {name: part["id"].tolist() for name, part in saved.items()} == {"A": ["A-1", "A-2"], "B": ["B-1"]}
    assert all(set(part["measured"]) == {"0.0"} and set(part["runs"]) == {3} for part in saved.values())
