"""Checks of a bound or identity: one row each, with a negative control beside it."""

from __future__ import annotations

from typing import Any

ROUNDING = 1e-12  # what an identity that holds exactly may miss in float64

Row = dict[str, Any]


def row(id: str, statement: str, measured: float, bound: float, holds: bool | None = None) -> Row:
    """A check: it holds where the measured number is at most its bound, unless `holds` says otherwise."""
    found = measured <= bound if holds is None else holds
    return {
        "id": id, "statement": statement, "measured": float(measured), "bound": float(bound),
        "verdict": "holds" if found else "fails",
    }  # fmt: skip


def control(id: str, statement: str, measured: float, bound: float) -> Row:
    """A negative control: the measured number must be beyond the bound, or the check beside it shows nothing."""
    verdict = "fails, as it must" if measured > bound else "passes, as it must not"
    return row(f"{id}-control", statement, measured, bound) | {"verdict": verdict}
