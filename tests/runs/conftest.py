"""Provide the fixtures of the tests of runs: an empty store, and functions to run that need no torch."""

from __future__ import annotations

from pathlib import Path

import fake_tasks
import pytest

from fedrepro.runs.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty store."""
    return Store(tmp_path / "results")


@pytest.fixture
def fakes() -> None:
    """Register `fake_tasks` as checks and benchmarks until the end of the test, as all that a test registers."""
    fake_tasks.register()
