"""A small graph for the checks of FedSheafHN."""

from __future__ import annotations

from typing import Any

import pytest
from graphs import block_model

from fedrepro.data import datasets


@pytest.fixture
def block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a block model of 60 nodes under the name `block` in place of a real graph."""
    known: dict[str, Any] = {}
    monkeypatch.setattr(datasets, "_own", known)
    known["block"] = lambda seed: block_model(60, degree=8, seed=seed, isolated=0)
