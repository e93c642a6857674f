"""The identities of the engine's notebooks hold or fail by their error."""

from __future__ import annotations

import pytest

from fedrepro.papers.engine.exhibits import identity


@pytest.mark.parametrize(
    ("error", "bound", "above", "measured", "limit", "verdict"),
    [
        (3e-16, 1e-12, False, "< 1e-12", "< 1e-12", "holds"),
        (0.25, 1e-12, False, "0.25", "< 1e-12", "fails"),
        (0.0, 0.0, False, "0", "0 (bitwise)", "holds"),
        (1e-17, 0.0, False, "1e-17", "0 (bitwise)", "fails"),
        (0.25, 1e-3, True, "0.25", "> 0.001", "holds"),
        (1e-4, 1e-3, True, "0.0001", "> 0.001", "fails"),
        (float("nan"), 1e-3, True, "nan", "> 0.001", "fails"),
        (float("nan"), 1e-12, False, "nan", "< 1e-12", "fails"),
    ],
)
def test_an_error_decides(error: float, bound: float, above: bool, measured: str, limit: str, verdict: str) -> None:
    """An identity needs an error within its bound, a broken version one beyond it, and NaN is neither."""
    row = identity(1, "a statement", error, bound, above=above)
    shown = {"measured": measured, "bound": limit, "verdict": verdict}
    assert row == {"id": "EN-I1", "statement": "a statement", **shown}
