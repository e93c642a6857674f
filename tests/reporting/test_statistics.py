"""Intervals, paired differences, power laws and discoveries, compared with SciPy, brute force and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedrepro.errors import ArgumentError
from fedrepro.reporting.statistics import (
    common,
    discoveries,
    interval,
    mean_gap,
    over_runs,
    paired,
    quantile,
    slope,
    tail,
)

RNG = np.random.default_rng(7)
EIGHT = RNG.normal(0.8, 0.02, 8)
LOWER = EIGHT - 0.01 + RNG.normal(0, 0.01, 8)


def benjamini_hochberg(p_values: list[float], level: float) -> list[bool]:
    """Reject the k smallest p-values, where k is the largest rank with p_(k) <= level k / m (1995, Section 3.1)."""
    ranked = sorted(p_values)
    kept = max((k for k, p in enumerate(ranked, 1) if p <= level * k / len(ranked)), default=0)
    return [kept > 0 and p <= ranked[kept - 1] for p in p_values]


def test_interval_has_the_ends_of_a_table_of_t() -> None:
    """The interval of 1, 2, 3 is 2 ± 4.3027 / sqrt(3), since t(0.975, 2) = 4.3027 and the deviation is 1."""
    half = 4.30265 / math.sqrt(3)
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2, 2 - half, 2 + half, 3), abs=1e-5)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_interval_agrees_with_scipy(level: float) -> None:
    """The ends are those of SciPy's one-sample t test at any level."""
    ends = stats.ttest_1samp(EIGHT, 0.0).confidence_interval(level)
    assert interval(EIGHT, level=level)[1:3] == pytest.approx((ends.low, ends.high))


def test_one_value_has_no_interval() -> None:
    """A single run has a mean and ends that are NaN."""
    one = interval([5.0])
    assert (one.mean, one.runs) == (5, 1) and math.isnan(one.low) and math.isnan(one.high)


def test_no_value_is_an_error() -> None:
    """An interval needs at least one value."""
    with pytest.raises(ArgumentError, match="values must be at least one number"):
        interval([])


def test_interval_covers_the_mean_of_few_runs() -> None:
    """The interval covers the mean in 95% of 4,000 samples of three; the normal one, a control, in fewer than 85%."""
    samples = np.random.default_rng(0).normal(size=(4000, 3))
    covered = np.mean([one.low < 0 < one.high for one in map(interval, samples)])
    normal = np.abs(samples.mean(1)) < 1.96 * samples.std(1, ddof=1) / math.sqrt(3)
    assert abs(covered - 0.95) < 0.011 and normal.mean() < 0.85


def test_paired_agrees_with_scipys_t_test() -> None:
    """The p-value and the interval are those of `scipy.stats.ttest_rel`."""
    result, reference = paired(list(EIGHT), list(LOWER)), stats.ttest_rel(EIGHT, LOWER)
    ends = reference.confidence_interval(0.95)
    assert (result.p, result.low, result.high) == pytest.approx((reference.pvalue, ends.low, ends.high))
    assert (result.difference, result.pairs) == (pytest.approx(np.mean(EIGHT - LOWER)), 8)


def test_paired_is_antisymmetric() -> None:
    """Exchanging the methods changes the sign of the difference and exchanges the ends, and leaves the p-value."""
    one, other = paired(list(EIGHT), list(LOWER)), paired(list(LOWER), list(EIGHT))
    assert (other.difference, other.low, other.high) == pytest.approx((-one.difference, -one.high, -one.low))
    assert other.p == pytest.approx(one.p)


def test_paired_uses_the_pairing() -> None:
    """A small steady gain across seeds that differ much is significant in pairs, and not without them."""
    base = np.linspace(0.6, 0.9, 10)
    gain = base + 0.005 + 0.001 * np.cos(np.arange(10))
    assert paired(list(gain), list(base)).p < 1e-4
    assert stats.ttest_ind(gain, base).pvalue > 0.5


@pytest.mark.parametrize(("gap", "p"), [(0.0, 1.0), (1.0, 0.0)])
def test_constant_gaps_have_an_interval_of_no_width(gap: float, p: float) -> None:
    """Three equal gaps give p = 1 if they are zero, and p = 0 if they are not."""
    result = paired([2.0 + gap, 3.0 + gap, 4.0 + gap], [2.0, 3.0, 4.0])
    assert (result.low, result.high, result.p) == (gap, gap, p)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1.0, 2.0], [1.0], "b must be as long as a"),
        ([1.0], [1.0], "a must be at least two scores"),
        ([1.0, 2.0], [1.0, math.nan], "b must be finite numbers"),
        ([1.0, math.inf], [1.0, 2.0], "a must be finite numbers"),
    ],
)
def test_paired_names_what_is_wrong(a: list[float], b: list[float], message: str) -> None:
    """Different lengths, a single pair and scores that are not finite are errors that name the argument."""
    with pytest.raises(ArgumentError, match=message):
        paired(a, b)


def test_common_pairs_by_seed() -> None:
    """Scores are paired by their index, in any order, on the seeds at which both are numbers."""
    left = pd.Series([1.0, 2.0, 4.0, 9.0, 3.0], index=[0, 1, 2, 5, 3])
    right = pd.Series([math.nan, 1.0, 0.5, 0.0, 7.0], index=[3, 2, 1, 0, 8])
    assert common(left, right) == paired([1.0, 2.0, 4.0], [0.0, 0.5, 1.0])


def test_one_common_seed_is_not_compared() -> None:
    """Two methods that share one seed have no paired difference."""
    assert common(pd.Series([1.0, 2.0], index=[0, 1]), pd.Series([1.0, 2.0], index=[1, 2])) is None


def test_slope_recovers_an_exponent() -> None:
    """Points on y = 2 x^-1.5 give the exponent -1.5, the constant log 2 and an interval of no width."""
    x = np.array([1.0, 2, 4, 8, 16])
    fit = slope(list(x), list(2 * x**-1.5))
    assert fit == pytest.approx((-1.5, -1.5, -1.5, math.log(2), 5), abs=1e-6)


def test_slope_agrees_with_the_normal_equations() -> None:
    """Noisy points give the least-squares line of NumPy, and the interval of the textbook's standard error."""
    x = np.array([1.0, 2, 4, 8, 16])
    y = x**2 * np.exp(np.random.default_rng(0).normal(0, 0.1, 5))
    (k, constant), covariance = np.polyfit(np.log(x), np.log(y), 1, cov=True)
    half = stats.t.ppf(0.975, 3) * math.sqrt(covariance[0, 0])
    assert slope(list(x), list(y)) == pytest.approx((k, k - half, k + half, constant, 5))


def test_two_points_have_a_slope_without_interval() -> None:
    """A line through two points leaves no residual to estimate an error from."""
    fit = slope([1, 2], [1, 4])
    assert fit.slope == pytest.approx(2) and math.isnan(fit.low) and math.isnan(fit.high)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 0], [1, 2], "positive"),
        ([1, 2], [1, -2], "positive"),
        ([1, 2], [1, math.nan], "positive"),
        ([1, 2], [1], "as long as x"),
        ([3, 3], [1, 2], "at least two different values"),
    ],
)
def test_slope_names_what_is_wrong(x: list[float], y: list[float], message: str) -> None:
    """A power law needs positive pairs and two different values of x."""
    with pytest.raises(ArgumentError, match=message):
        slope(x, y)


@pytest.mark.parametrize("seed", range(20))
def test_discoveries_follow_the_definition(seed: int) -> None:
    """The p-values kept are those below the largest that lies under the line level k / m."""
    p_values = (np.random.default_rng(seed).uniform(size=12) ** 3).tolist()
    assert discoveries(p_values, 0.05) == benjamini_hochberg(p_values, 0.05)


def test_discoveries_correct_for_several_tests() -> None:
    """Two of the four p-values of 0.01, 0.02, 0.04 and 0.9 are kept, although three are below 0.05."""
    assert discoveries([0.04, 0.9, 0.01, 0.02], 0.05) == [False, False, True, True]


def test_discoveries_step_up() -> None:
    """A p-value above its own line is kept if a larger one is below its line."""
    assert discoveries([0.03, 0.04], 0.05) == [True, True]
    assert discoveries([0.03, 0.06], 0.05) == [False, False]


def test_nothing_tested_discovers_nothing() -> None:
    """No p-value gives no decision, and one that rounding brought above 1 is no error."""
    assert discoveries([], 0.05) == [] and discoveries([1.0 + 1e-15], 0.05) == [False]


def test_one_degree_of_freedom_is_cauchys_distribution() -> None:
    """A quarter of Cauchy's distribution lies beyond 1, and its quantile is tan(pi (q - 1/2))."""
    assert tail(1.0, 1.0, 1) == pytest.approx(0.25)
    assert quantile(0.975, 1) == pytest.approx(math.tan(math.pi * 0.475))


def test_tail_is_in_units_of_the_standard_error() -> None:
    """The tail beyond 3 with an error of 2 is SciPy's beyond 1.5; a negative distance leaves more than half."""
    assert tail(3.0, 2.0, 4) == pytest.approx(stats.t.sf(1.5, 4))
    assert tail(-3.0, 2.0, 4) == pytest.approx(1 - stats.t.sf(1.5, 4))


@pytest.mark.parametrize(("distance", "p"), [(0.1, 0.0), (0.0, 1.0), (-0.1, 1.0)])
def test_tail_without_error_is_certain(distance: float, p: float) -> None:
    """A standard error of zero leaves no chance beyond a positive distance, and all beyond the rest."""
    assert tail(distance, 0.0, 3) == p


def test_a_mean_gap_is_paired_over_common_seeds() -> None:
    """It is the interval of the differences of common seeds; one has no ends, and none has no mean."""
    left, right = pd.Series([3.0, 5.0, 9.0], index=[0, 1, 2]), pd.Series([2.0, 2.0, math.nan], index=[0, 1, 2])
    assert mean_gap(left, right) == interval([1.0, 3.0])
    mean, low, high, runs = mean_gap(left, right[:1])
    assert (mean, runs) == (1.0, 1) and math.isnan(low) and math.isnan(high)
    mean, *_, runs = mean_gap(left, right[2:])
    assert math.isnan(mean) and runs == 0


def test_means_over_runs_have_the_interval_of_each_group() -> None:
    """Each group has the t interval of its own runs, and a single run has none."""
    frame = pd.DataFrame({"x": [1, 1, 1, 2], "y": [3.0, 5.0, 10.0, 4.0]})
    several, alone = over_runs(frame, ["x"], "y").to_dict("records")
    assert (several["mean"], several["low"], several["high"]) == pytest.approx(interval([3.0, 5.0, 10.0])[:3])
    assert (several["least"], several["most"], alone["mean"]) == (3.0, 10.0, 4.0) and math.isnan(alone["low"])
