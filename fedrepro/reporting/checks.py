"""Checks of a bound or identity, one row each, with negative controls that must fail.

A row has the columns id, statement, measured, bound and verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fedrepro.errors import require

if TYPE_CHECKING:
    from pandas import DataFrame

    from fedrepro.reporting.session import Notebook

ROUNDING = 1e-12  # what an identity that holds exactly may miss in float64

COLUMNS = ("id", "statement", "measured", "bound", "verdict")
HOLDS, FAILS, NOT_MEASURED = "holds", "fails", "not measured"
NOT_TESTED = "not tested"  # what no implementation could fail; the statement says why
CAUGHT, MISSED = "fails, as it must", "passes, as it must not"  # the outcomes of a negative control

Row = dict[str, Any]


def worst_of(errors: Iterable[float]) -> float:
    """Return the largest of some numbers, and NaN if one of them is NaN, which Python's `max` may drop."""
    given = list(errors)
    return math.nan if any(map(math.isnan, given)) else max(given)


def row(check_id: str, statement: str, measured: float, bound: float, holds: bool | None = None) -> Row:
    """Return a check, which holds if the measured number is at most its bound, unless `holds` says otherwise.

    A number that is not finite was not measured, and its check fails.
    """
    passed = math.isfinite(measured) and (measured <= bound if holds is None else holds)
    return {
        "id": check_id, "statement": statement, "measured": float(measured), "bound": float(bound),
        "verdict": "holds" if passed else "fails",
    }  # fmt: skip


def control(check_id: str, statement: str, measured: float, bound: float) -> Row:
    """Return a negative control. The measured number must exceed the bound, or the check next to it shows nothing."""
    verdict = "fails, as it must" if measured > bound else "passes, as it must not"
    return row(f"{check_id}-control", statement, measured, bound) | {"verdict": verdict}


def limit(
    check_id: str, statement: str, measured: float | None, *, most: float | None = None, least: float | None = None
) -> dict[str, str]:
    """Return the row of a measured number that must keep a limit, such as a time or a memory.

    Args:
        measured: None or NaN where nothing was measured.
        most, least: the limit, exactly one of the two.

    Raises:
        ArgumentError: both limits are given, or none.
    """
    require((most is None) != (least is None), "most, least", "exactly one limit", (most, least))
    missing = measured is None or math.isnan(measured)
    holds = not missing and (measured <= most if most is not None else measured >= least)  # type: ignore[operator]
    return {
        "id": check_id,
        "statement": statement,
        "measured": NOT_MEASURED if missing else f"{measured:.3g}",
        "bound": f"at most {most:g}" if most is not None else f"at least {least:g}",
        "verdict": NOT_MEASURED if missing else HOLDS if holds else FAILS,
    }


def is_control(row: Row) -> bool:
    """Return whether a row is a negative control."""
    return str(row["id"]).endswith("-control")


def collect(frame: DataFrame, *prefixes: str) -> DataFrame:
    """Return the checks in the records of a frame whose ID begins with one of `prefixes` (all, if none is given).

    Keep the worst of several seeds with the same ID and statement. A check that failed is worse than one that holds,
    and among equals the larger measured number is worse. A negative control that was missed is worse than one that was
    caught, and among equals the smaller measured number is worse.
    """
    import pandas as pd

    worst: dict[tuple[str, str], Row] = {}
    for checks in frame["checks"] if len(frame) else ():
        for one in checks:
            if not str(one["id"]).startswith(prefixes or ""):
                continue
            key = (one["id"], one["statement"])
            if key not in worst or _badness(one) > _badness(worst[key]):
                worst[key] = one
    return pd.DataFrame(list(worst.values()), columns=list(COLUMNS))


def save(nb: Notebook, rows: DataFrame, *exhibit_ids: str, **columns: Any) -> DataFrame:
    """Write checks to the table of the notebook's paper and to the files of exhibits, and return the written rows.

    Args:
        rows: as `collect` returns them.
        exhibit_ids: the file of each gets the checks whose ID begins with its own.
        columns: further columns of these files.
    """
    written = nb.checks(rows)
    for exhibit_id in exhibit_ids:
        nb.save(exhibit_id, written[written["id"].str.startswith(exhibit_id)].assign(**columns))
    return written


def _badness(row: Row) -> tuple[bool, float]:
    """Return what is larger for the worse of two rows of one check: whether it does not pass, and by how much."""
    if row["measured"] is None:  # NaN, as the store keeps it
        return True, math.inf
    if is_control(row):
        return row["verdict"] != CAUGHT, -row["measured"]
    return row["verdict"] != HOLDS, row["measured"]
