"""Theorem 2 of FedGAT: the truncated Chebyshev series of the scores, its error, its rate and its bound."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from fedrepro.errors import ArgumentError
from fedrepro.papers.fedgat.chebyshev import coefficients
from fedrepro.papers.fedgat.theory.bounds import (
    Function,
    chebyshev_error,
    exp_leaky_relu,
    rate,
    slope_variation,
    theorem2_bound,
)

exp_relu = partial(exp_leaky_relu, slope=0.0)
DEGREES = range(2, 65)
DOUBLING = [2, 4, 8, 16, 32, 64]
SCORES = pytest.mark.parametrize("f", [exp_leaky_relu, exp_relu], ids=["LeakyReLU", "ReLU"])


def test_series_of_a_known_function() -> None:
    """exp(t) has the coefficients I_0(1), 2 I_1(1), 2 I_2(1), ...: modified Bessel functions, by their power series."""

    def bessel(n: int) -> float:
        return sum(0.5 ** (2 * m + n) / (math.factorial(m) * math.factorial(m + n)) for m in range(20))

    expected = [bessel(0)] + [2 * bessel(n) for n in range(1, 9)]
    assert np.abs(coefficients(np.exp, 8) - expected).max() < 1e-14


def test_series_of_a_polynomial_is_exact() -> None:
    """A cubic has no error from degree 3 on, and one below."""

    def cubic(x: np.ndarray) -> np.ndarray:
        return x**3 - 2 * x + 0.5

    assert chebyshev_error(cubic, 3, radius=3.0) < 1e-12
    assert abs(chebyshev_error(cubic, 2, radius=3.0) - 27 / 4) < 1e-12  # t^3 = (3 T_1 + T_3) / 4


@pytest.mark.parametrize(("radius", "degree", "known"), [(1, 8, 0.028), (1, 16, 0.015), (2, 8, 0.055), (2, 16, 0.030)])
def test_error_of_the_gat_score(radius: float, degree: int, known: float) -> None:
    """The errors of exp(LeakyReLU) at degree 8 and 16 on [-1, 1] and [-2, 2] (FG-Q11)."""
    assert abs(chebyshev_error(exp_leaky_relu, degree, radius) - known) < 6e-4


@pytest.mark.parametrize(("radius", "slope"), [(1.0, 0.2), (1.0, 0.0), (2.0, 0.2)])
def test_variation_in_closed_form(radius: float, slope: float) -> None:
    """The slope of exp(LeakyReLU) only rises, so its variation is what it gains from one end to the other."""
    gained = radius * (math.exp(radius) - slope * math.exp(-slope * radius))
    measured = slope_variation(partial(exp_leaky_relu, slope=slope), radius)
    assert abs(measured - gained) < 1e-3 * gained


@SCORES
def test_bound_holds_at_every_degree(f: Function) -> None:
    """2V / (pi (p - 1)) is never less than the error, for p = 2..64 on [-1, 1]."""
    variation = slope_variation(f)
    assert all(chebyshev_error(f, p) <= theorem2_bound(variation, p) for p in DEGREES)


@SCORES
def test_a_tenth_of_the_variation_breaks_the_bound(f: Function) -> None:
    """Negative control: with V / 10 the bound is below the error at most degrees."""
    variation = slope_variation(f) / 10
    broken = [p for p in DEGREES if chebyshev_error(f, p) > theorem2_bound(variation, p)]
    assert len(broken) > 55 and broken[-1] == 64


@pytest.mark.parametrize(("f", "jump"), [(exp_leaky_relu, 0.8), (exp_relu, 1.0)], ids=["LeakyReLU", "ReLU"])
def test_a_kink_costs_one_over_p(f: Function, jump: float) -> None:
    """The slope is -1 as Theorem 2 says for k = 1, and p times the error tends to (jump of f') / pi."""
    assert -1.02 < rate(f, range(16, 65)) < -0.95
    assert -1.0 < rate(f, DOUBLING) < -0.85
    assert abs(64 * chebyshev_error(f, 64) - jump / math.pi) < 0.02 * jump / math.pi


def test_a_smooth_score_falls_much_faster() -> None:
    """Control: exp(x), without a kink, falls faster than any power the kinked scores reach."""
    assert rate(np.exp, [2, 4, 8]) < -8
    assert chebyshev_error(np.exp, 16) < 1e-12 < 1e-2 < chebyshev_error(exp_leaky_relu, 16)


def test_bound_in_numbers() -> None:
    """Theorem 2 by hand: V = pi, p = 5, k = 2 gives 2 / (2 * 9)."""
    assert abs(theorem2_bound(math.pi, 5, 2) - 1 / 9) < 1e-15


def test_arguments_are_checked() -> None:
    """A degree not above k, a radius of 0 and a single degree are errors that name the argument."""
    with pytest.raises(ArgumentError, match=r"degree must be larger than k = 1\. Got 1\."):
        theorem2_bound(1.0, 1)
    with pytest.raises(ArgumentError, match="radius must be positive"):
        chebyshev_error(np.exp, 3, 0.0)
    with pytest.raises(ArgumentError, match="degrees must be at least two different degrees"):
        rate(np.exp, [4, 4])
