"""What another machine may change follows from how far rounding was measured to move a method's results."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_tasks
import pytest
from fake_tasks import fill, runs

import fedrepro.runs
from fedrepro import registry
from fedrepro.runs import execute as engine
from fedrepro.runs import verification
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store


@pytest.fixture(autouse=True)
def _fakes() -> Iterator[None]:
    fake_tasks.register()
    yield
    fake_tasks.forget()
    registry._own.clear()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


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
    monkeypatch.setattr(verification, "_moved", lambda: {("FedSheafHN", "last accuracy"): 0.02})

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
    moved = verification._moved()
    assert max(value for (method, _), value in moved.items() if method == "FedAvg") < verification.POINT / 2
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
    assert verification.part(at) == part


def test_a_difference_under_other_tolerances_is_judged_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that differed leaves its cell stale. Once the tolerances are wider it does, too, until a run agrees."""
    records = [record | {"chunk": 99, "fingerprint": "old"} for record in engine.compute(runs(seeds=2))]
    for record in records:
        record["result"]["score"]["test"] += 0.3
    store.append("a", *records)
    assert set(verification.verify(store, 1, workers=1)["verdict"]) == {"differs"}
    assert len(verification.stale(store)) == 2
    monkeypatch.setattr(verification, "POINT", 1.0)
    verification.tolerances.cache_clear()
    assert len(verification.stale(store)) == 2
    assert set(verification.verify(store, 1, workers=1)["verdict"]) == {"close"}
    assert not verification.stale(store)
    monkeypatch.undo()
    verification.tolerances.cache_clear()
