"""Tell how much a result may change on another machine: little more than rounding was measured to move it."""

from __future__ import annotations

import hashlib
import math
from functools import cache
from pathlib import Path

from fedrepro import paths

POINT, MEAN_POINT = 0.01, 0.003  # of any method, in a run and in the mean of several
SPREADS = 3  # how many times what rounding moved a result, as root mean square, is allowed
MOVED = Path(__file__).with_name("rounding.csv")  # measured by tests/rounding.py


def allowed(method: str, at: str, runs: int = 1) -> float:
    """Return how much another machine may change a field of a method's result, in one run or in the mean of several."""
    moved = SPREADS * measured().get((method, part(at)), 0.0)
    return max(POINT if runs == 1 else MEAN_POINT, moved / math.sqrt(runs))


def part(at: str) -> str:
    """Return of which part of a result a field is.

    `before.best.val_f1` and `after.best.test_f1` are of the part `best f1`, `before.last.test` is of `last accuracy`,
    and any value that is no score is of its first name, such as `facts` or `traffic`.
    """
    first, *more = at.split(".")
    if first not in ("before", "after") or len(more) < 2:
        return first
    return f"{more[0]} {more[1].partition('_')[2] or 'accuracy'}"


def version(method: str) -> str:
    """Return a short hash of what another machine may change in results of a method."""
    own = sorted((name, moved) for (of, name), moved in measured().items() if of == method)
    return hashlib.sha256(repr((POINT, MEAN_POINT, SPREADS, own)).encode()).hexdigest()[:8]


@cache
def measured() -> dict[tuple[str, str], float]:
    """Return how far rounding by itself moved results, as root mean square over runs, by method and part."""
    return {(row["method"], row["part"]): float(row["moved"]) for row in paths.read_csv(MOVED)}
