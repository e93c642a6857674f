"""Keep tests to one thread and away from the committed results and exhibits, and take out what they registered."""

from __future__ import annotations

import os

# The variable must be set before any test imports torch.
os.environ["OMP_NUM_THREADS"] = "1"

from collections.abc import Iterator

import pytest

from fedrepro import registry


@pytest.fixture(autouse=True)
def _scratch_store(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send what a test stores or draws to its own temporary folder."""
    monkeypatch.setenv("FEDREPRO_STORE", f"{tmp_path}/results")
    monkeypatch.setenv("FEDREPRO_FIGURES", f"{tmp_path}/figures")


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """Take out after each test what it registered, since other tests go through all methods."""
    entries, targets = dict(registry.REGISTRY), dict(registry._own)
    yield
    for held, before in ((registry.REGISTRY, entries), (registry._own, targets)):
        held.clear()
        held.update(before)  # type: ignore[arg-type]
