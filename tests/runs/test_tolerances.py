"""Tolerances for another machine follow from how far rounding was measured to move a method's results."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from fake_tasks import fill, runs

import fedrepro.runs
from fedrepro.runs import execute as engine
from fedrepro.runs import tolerances, verification
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store

pytestmark = pytest.mark.usefixtures("fakes")


@pytest.mark.parametrize(
    ("method", "field", "shifts", "verdict"),
    [
        ("FedSheafHN", "last", [0.05, -0.05, 0.0], "close"),
        ("FedSheafHN", "last", [0.07, 0.0, 0.0], "differs"),
        ("FedSheafHN", "last", [0.04, 0.04, 0.04], "differs"),
        ("FedSheafHN", "best", [0.02, 0.0, 0.0], "differs"),
        ("FedAvg", "last", [0.02, 0.0, 0.0], "differs"),
    ],
)
def test_a_method_that_multiplies_rounding(
    method: str, field: str, shifts: list[float], verdict: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine a part may move by three times what rounding moved it: in a run, and by less in the mean."""
    monkeypatch.setattr(tolerances, "measured", lambda: {("FedSheafHN", "last accuracy"): 0.02})

    def train(runs: list[Run], device: str) -> list[dict[str, Any]]:
        return [{"result": {"after": {field: {"test": 0.5 + shifts[run.seed]}}}, "chunk": 1} for run in runs]

    tasks = types.ModuleType("fedrepro.runs.tasks")
    tasks.train = train  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fedrepro.runs.tasks", tasks)
    monkeypatch.setattr(fedrepro.runs, "tasks", tasks, raising=False)
    wanted = sweep(task="train", paper="p", method=method, seed=range(3))
    fill(store, wanted, chunk=99, result={"after": {field: {"test": 0.5}}})
    found = set(verification.verify(store, 3, workers=1)["verdict"])
    assert ("differs" in found) == (verdict == "differs")


def test_what_rounding_moves_was_measured() -> None:
    """FedAvg, measured as a control, needs little more room than any other method, and far less than these two."""
    moved = tolerances.measured()
    assert max(value for (method, _), value in moved.items() if method == "FedAvg") < tolerances.POINT / 2
    for method in ("FedSheafHN", "FGGP"):
        assert moved[method, "best accuracy"] > 2 * moved["FedAvg", "best accuracy"]


@pytest.mark.parametrize(
    ("at", "part"),
    [
        ("before.last.test", "last accuracy"),
        ("after.best.val_f1", "best f1"),
        ("before.best_loss.test_clients", "best_loss clients"),
        ("facts.delta", "facts"),
        ("traffic.training.up.weights", "traffic"),
    ],
)
def test_a_field_has_a_part(at: str, part: str) -> None:
    """Scores go by round and measure, whatever the view and whether before or after local training."""
    assert tolerances.part(at) == part


def off(store: Store, shift: float, seeds: int = 5) -> None:
    """Store runs of older code, of another machine, whose scores lie off by a shift."""
    records = [record | {"chunk": 99, "fingerprint": "old"} for record in engine.compute(runs(seeds=seeds))]
    for record in records:
        record["result"]["score"]["test"] += shift * (-1) ** record["run"]["seed"]
    store.append("a", *records)


@pytest.mark.parametrize(("seeds", "verified", "stale"), [(5, 1, 5), (5, 2, 5), (5, 3, 0), (1, 1, 0)])
def test_three_runs_clear_a_cell_that_agrees_as_far_as_rounding_moves_it(
    seeds: int, verified: int, stale: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run within a wide tolerance says little about the code; three clear their cell, or all that there are."""
    monkeypatch.setattr(tolerances, "measured", lambda: {("quick", "score"): 0.05})
    off(store, 0.1, seeds)
    assert set(verification.verify(store, verified, workers=1)["verdict"]) == {"close"}
    assert len(verification.stale(store)) == stale


def test_one_run_clears_a_cell_that_agrees_as_any_method_must(store: Store) -> None:
    """Within the tolerance that holds for all methods one run is enough."""
    off(store, 0.005)
    assert set(verification.verify(store, 1, workers=1)["verdict"]) == {"close"}
    assert not verification.stale(store)


def test_a_difference_under_other_tolerances_is_judged_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that differed leaves its cell stale. Once the tolerances are wider it does, too, until a run agrees."""
    off(store, 0.3, 2)
    assert set(verification.verify(store, 1, workers=1)["verdict"]) == {"differs"}
    assert len(verification.stale(store)) == 2
    monkeypatch.setattr(tolerances, "POINT", 1.0)
    assert len(verification.stale(store)) == 2
    assert set(verification.verify(store, 1, workers=1)["verdict"]) == {"close"}
    assert not verification.stale(store)


@pytest.mark.parametrize(("old", "new", "change"), [(-200.0, -202.0, -0.01), (200, 202, 0.01), (-0.5, -0.6, -0.1)])
def test_a_number_is_compared_by_its_size_whatever_its_sign(old: float, new: float, change: float) -> None:
    """A change is relative to a size above 1, also below zero."""
    record = {"run": {"task": "check"}, "result": {"x": old}}
    found = verification.compare(record, {**record, "result": {"x": new}})
    assert found == {"x": pytest.approx(change)}
