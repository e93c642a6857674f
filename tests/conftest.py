"""One thread, and no test touches the committed results or exhibits."""

from __future__ import annotations

import os

# before torch is imported by any test
os.environ["OMP_NUM_THREADS"] = "1"

import pytest


@pytest.fixture(autouse=True)
def _scratch_store(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send what a test stores or draws to its own temporary folder."""
    monkeypatch.setenv("FEDREPRO_STORE", f"{tmp_path}/results")
    monkeypatch.setenv("FEDREPRO_FIGURES", f"{tmp_path}/figures")
