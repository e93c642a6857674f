"""Intervals, paired differences and power laws, over runs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit
from scipy.stats import false_discovery_control, linregress

from fedrepro.errors import ArgumentError, require

SCORE = re.compile(r"percent|test|score|.*accuracy.*|F1.*")  # columns of scores, which lie between 0 and 1, or 100


class Interval(NamedTuple):
    """A mean with its t interval over runs; the ends are NaN for a single run."""

    mean: float
    low: float
    high: float
    runs: int


class Paired(NamedTuple):
    """Mean of the differences between two methods on the same seeds, with interval and p-value."""

    difference: float
    low: float
    high: float
    p: float
    pairs: int


class Slope(NamedTuple):
    """Exponent of a power law fitted to points, with its t interval."""

    slope: float
    low: float
    high: float
    intercept: float
    points: int


def numbers(name: str, values: Any, *, finite: bool = True) -> np.ndarray:
    """Return a list of numbers as an array.

    Args:
        name: the argument's name, for the message.
        finite: whether NaN and infinity are refused.

    Raises:
        ArgumentError: the values are no list, or an entry is not a (finite) number.
    """
    listed = isinstance(values, Sequence | np.ndarray | pd.Series) and not isinstance(values, str)
    require(listed, name, "a list", values)
    allowed = "finite numbers" if finite else "numbers"
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name} must be {allowed}. Got {list(values)!r}.") from None
    require(array.ndim == 1 and bool(not finite or np.isfinite(array).all()), name, allowed, list(values))
    return array


def interval(values: ArrayLike, *, level: float = 0.95) -> Interval:
    """Return the t interval of a mean.

    Raises:
        ArgumentError: there is no value, a value is not a number, or the level is not between 0 and 1.
    """
    scores = numbers("values", values, finite=False)
    require(isinstance(level, int | float) and 0 < level < 1, "level", "a number between 0 and 1", level)
    runs = len(scores)
    require(runs > 0, "values", "at least one number", values)
    mean = float(scores.mean())
    if runs == 1:
        return Interval(mean, math.nan, math.nan, 1)
    half = quantile((1 + level) / 2, runs - 1) * float(scores.std(ddof=1)) / math.sqrt(runs)
    return Interval(mean, mean - half, mean + half, runs)


def within(column: str, scores: Any, *ends: Any) -> list[Any]:
    """Return ends of intervals as they are drawn: those of scores cut at 0 and 1, or 100 for percent.

    A t interval knows no bounds, and no score is beyond them. Ends of what is no score, by the column's name or by a
    value out of range, are returned as they are.
    """
    values = np.asarray(scores, dtype=float)
    values = values[np.isfinite(values)]
    if not SCORE.fullmatch(column) or not len(values) or values.min() < 0 or values.max() > 100:
        return [*ends]
    return [np.clip(end, 0.0, 1.0 if values.max() <= 1 else 100.0) for end in ends]


def over_runs(frame: pd.DataFrame, keys: list[str], y: str) -> pd.DataFrame:
    """Return mean, least, most and 95% interval (see `within`) of `y` for each combination of `keys`.

    A single run has no interval.
    """
    groups = frame.dropna(subset=[y]).groupby(keys, sort=False)[y]
    table = groups.agg(["mean", "std", "count", "min", "max"]).reset_index()
    half = stdtrit(np.maximum(table["count"] - 1, 1), 0.975) * table["std"] / np.sqrt(table["count"])
    table = table.rename(columns={"min": "least", "max": "most"})
    low, high = within(y, frame[y], table["mean"] - half, table["mean"] + half)
    return table.assign(low=low, high=high)


def paired(a: Sequence[float], b: Sequence[float]) -> Paired:
    """Compare two methods that share seeds: `a[i]` and `b[i]` are scores of one seed.

    The p-value is that of the two-sided paired t test.

    Raises:
        ArgumentError: the lengths differ, there are fewer than two pairs, or a score is not finite.
    """
    left, right = numbers("a", a), numbers("b", b)
    require(len(left) == len(right), "b", f"as long as a, {len(left)}", len(right))
    require(len(left) >= 2, "a", "at least two scores", a)
    # `scipy.stats.ttest_rel` gives the same interval and p-value, but takes twelve times as long, and claims compare
    # thousands of pairs. For equal scores its p-value is NaN.
    gaps = left - right
    mean, low, high, pairs = interval(gaps)
    p = 2 * tail(abs(mean), float(gaps.std(ddof=1)) / math.sqrt(pairs), pairs - 1) if mean else 1.0
    return Paired(mean, low, high, min(p, 1.0), pairs)


def mean_gap(left: pd.Series, right: pd.Series) -> Interval:
    """Return the mean difference of scores by seed, over the seeds that both have, with its t interval.

    The ends are NaN for a single common seed, and so is the mean for none.
    """
    gaps = (left - right).dropna()
    return interval(gaps.to_numpy()) if len(gaps) else Interval(math.nan, math.nan, math.nan, 0)


def common(left: pd.Series, right: pd.Series) -> Paired | None:
    """Return the paired differences of two scores on the seeds (index values) that both have; None below two."""
    one, other = ({seed: score for seed, score in side.items() if score == score} for side in (left, right))
    seeds = [seed for seed in one if seed in other]
    return paired([one[seed] for seed in seeds], [other[seed] for seed in seeds]) if len(seeds) > 1 else None


def slope(x: Sequence[float], y: Sequence[float]) -> Slope:
    """Fit the exponent `k` of `y = c x^k` by least squares in logarithms; `intercept` is `log c`.

    Raises:
        ArgumentError: a value is not positive, the lengths differ, or `x` has fewer than two values.
    """
    xs, ys = numbers("x", x, finite=False), numbers("y", y, finite=False)
    require(len(xs) == len(ys), "y", f"as long as x, {len(xs)}", len(ys))
    require(bool((xs > 0).all() and (ys > 0).all()), "x and y", "positive", (list(x), list(y)))
    require(len(set(xs.tolist())) > 1, "x", "at least two different values", list(x))
    fit = linregress(np.log(xs), np.log(ys))
    freedom = len(xs) - 2
    half = quantile(0.975, freedom) * float(fit.stderr) if freedom else math.nan
    k = float(fit.slope)
    return Slope(k, k - half, k + half, float(fit.intercept), len(xs))


def discoveries(p_values: Sequence[float], level: float) -> list[bool]:
    """Return which of several tests Benjamini and Hochberg's procedure keeps at a false discovery rate `level`."""
    if not p_values:
        return []
    adjusted = false_discovery_control(np.clip(p_values, 0.0, 1.0), method="bh")
    return [bool(p <= level) for p in adjusted]


def quantile(level: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution."""
    return float(stdtrit(freedom, level))


def tail(distance: float, error: float, freedom: float) -> float:
    """Return P(difference > distance) for a t variate whose standard error is `error`."""
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(stdtr(freedom, -distance / error))


def runs(counts: Any) -> str:
    """Return how many runs some numbers have, as `10 runs`, `3-10 runs` or `1 run`."""
    numbers = [int(count) for count in counts]
    low, high = (min(numbers), max(numbers)) if numbers else (0, 0)
    return f"{low}-{high} runs" if low < high else f"{low} run{'s' if low != 1 else ''}"
