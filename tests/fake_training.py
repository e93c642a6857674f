"""A replacement of what trains, without torch."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

import fedrepro.runs.trial  # before its tasks are replaced, which it would else keep for all tests that follow
from fedrepro.errors import DivergedError
from fedrepro.runs.run import Run


def fake_training(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """A `fedrepro.runs.tasks` without torch, whose seed 2 diverges; the batches of seeds it was given."""
    calls: list[list[int]] = []

    def train(runs: list[Run], device: str) -> list[dict[str, Any]]:
        calls.append([run.seed for run in runs])
        if 2 in calls[-1]:
            raise DivergedError("seed 2")
        if 5 in calls[-1] and len(runs) > 1:
            return [{"error": "DivergedError: seed 5"} if run.seed == 5 else result(run) for run in runs]
        return [result(run) for run in runs]

    def result(run: Run) -> dict[str, Any]:
        return {"result": {"seed_was": run.seed}, "chunk": 7, "series": {"val": [run.seed]}}

    fake = types.ModuleType("fedrepro.runs.tasks")
    fake.train = train  # type: ignore[attr-defined]
    fake.check = lambda run: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fedrepro.runs.tasks", fake)
    monkeypatch.setattr(fedrepro.runs, "tasks", fake, raising=False)
    return calls
