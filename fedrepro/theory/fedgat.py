"""FedGAT's bounds as plain functions: the error of the polynomial that stands for the score (Theorem 2).

The theorem lives on [-1, 1]; a score on [-radius, radius] is stretched to it, `g(t) = f(radius * t)`. The scores of a
GAT, exp(ReLU(x)) and exp(LeakyReLU(x)), have a kink at 0: g is absolutely continuous and g' of bounded variation, g''
is not. So k = 1 and the theorem gives no more than O(1/p) (FG-Q11).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.polynomial.chebyshev import chebval

from fedrepro.errors import require
from fedrepro.nn.chebyshev import coefficients

Function = Callable[[np.ndarray], np.ndarray]
GRID = 20_001  # odd, so that the kink at 0 is one of the points


def exp_leaky_relu(x: np.ndarray, slope: float = 0.2) -> np.ndarray:
    """exp(psi(x)) with psi = LeakyReLU (Eq. 3); slope 0 is ReLU, slope 1 the smooth exp(x)."""
    return np.asarray(np.exp(np.where(x > 0, x, slope * x)))


def chebyshev_error(f: Function, degree: int, radius: float = 1.0) -> float:
    """`||s_p(f) - f||_inf` on [-radius, radius], the largest error of the truncated series of Eq. 22.

    Args:
        f: the score, elementwise.
        degree: p.
        radius: half the interval's length.

    Raises:
        ArgumentError: a negative degree, or a radius that is not positive.
    """
    require(radius > 0, "radius", "positive", radius)
    t = np.linspace(-1.0, 1.0, GRID)
    series = coefficients(lambda u: f(radius * u), degree)
    return float(np.abs(chebval(t, series) - f(radius * t)).max())


def slope_variation(f: Function, radius: float = 1.0) -> float:
    """V of Theorem 2 for k = 1: the total variation of g' on [-1, 1], where g(t) = f(radius * t).

    Summed over the slopes of g between neighbouring grid points, so that a jump of g' counts in full.
    """
    require(radius > 0, "radius", "positive", radius)
    t = np.linspace(-1.0, 1.0, GRID)
    slopes = np.diff(f(radius * t)) / np.diff(t)
    return float(np.abs(np.diff(slopes)).sum())


def theorem2_bound(variation: float, degree: int, k: int = 1) -> float:
    """`2 V / (pi k (p - k)^k)`, the right-hand side of Theorem 2.

    Args:
        variation: V, the total variation of the k-th derivative on [-1, 1].
        degree: p, larger than k.
        k: how often the function can be differentiated.

    Raises:
        ArgumentError: k below 1, a degree of k or less, or a negative variation.
    """
    require(k >= 1, "k", "at least 1", k)
    require(degree > k, "degree", f"larger than k = {k}", degree)
    require(variation >= 0, "variation", "zero or positive", variation)
    return 2.0 * variation / (np.pi * k * float(degree - k) ** k)


def rate(f: Function, degrees: Sequence[int], radius: float = 1.0) -> float:
    """Slope of log `chebyshev_error` against log degree, by least squares; -1 is O(1/p).

    Raises:
        ArgumentError: fewer than two different degrees, or a degree below 1.
    """
    require(len(set(degrees)) >= 2, "degrees", "at least two different degrees", list(degrees))
    require(min(degrees) >= 1, "degrees", "at least 1 each", list(degrees))
    errors = [chebyshev_error(f, degree, radius) for degree in degrees]
    return float(np.polyfit(np.log(degrees), np.log(errors), 1)[0])
