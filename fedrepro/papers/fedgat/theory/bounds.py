"""State FedGAT's bounds as plain functions, as printed and as corrected.

Theorem 1 is about what is sent, Theorem 2 about the polynomial, Theorems 3 and 4 about attention and embeddings, and
Theorem 5 and Lemma 1 about the way of an error through the layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import cheb2poly, chebval
from numpy.polynomial.polynomial import polyval

from fedrepro.errors import require
from fedrepro.papers.fedgat.chebyshev import coefficients

Function = Callable[[np.ndarray], np.ndarray]

# The number of points is odd, so that the kink of a score at 0 is one of them.
GRID = np.linspace(-1.0, 1.0, 20_001)

PSI: dict[str, Function] = {
    "ReLU": lambda x: np.maximum(x, 0.0),
    "LeakyReLU": lambda x: np.where(x > 0, x, 0.2 * x),
    "ELU": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "tanh": np.tanh,
    "identity": lambda x: np.asarray(x, dtype=float),
}  # all monotone with Lipschitz constant 1, as Assumption 4 asks


# -- Theorem 1, the cost before training ------------------------------------------------------------------------------


def theorem1(clients: int, reach: int, features: int, degree: int, power: int) -> float:
    """Return `K B_L d B^power`, the argument of O(.) in Theorem 1.

    Args:
        clients: K.
        reach: B_L, nodes of the largest L-hop neighbourhood of a client.
        features: d.
        degree: B, the largest number of neighbours, the node itself among them.
        power: 3 as printed, 2 as Appendix D derives (FG-Q1).
    """
    return float(clients) * reach * features * float(degree) ** power


def appendix_d(g: int, features: int) -> int:
    """Return `4 g^2 d`, Appendix D's scalars for one node. It counts M1 or M2, while both are sent (FG-Q1)."""
    return 4 * g**2 * features


# -- Theorem 2, the error of the polynomial ---------------------------------------------------------------------------
#
# The theorem is about functions on [-1, 1]. A score f on [-radius, radius] is stretched to it, g(t) = f(radius * t).
# The scores of a GAT, exp(ReLU(x)) and exp(LeakyReLU(x)), have a kink at 0, so g' is of bounded variation and g'' is
# not. Therefore k = 1, and the theorem gives no more than O(1/p) (FG-Q11).


def exp_leaky_relu(x: np.ndarray, slope: float = 0.2) -> np.ndarray:
    """Return exp(LeakyReLU(x)) (Eq. 3). Slope 0 gives exp(ReLU(x)), and slope 1 the smooth exp(x)."""
    return np.asarray(np.exp(np.where(x > 0, x, slope * x)))


def chebyshev_error(f: Function, degree: int, radius: float = 1.0) -> float:
    """Return `||s_p(f) - f||_inf` on [-radius, radius], the largest error of the truncated series.

    Args:
        f: the score, elementwise.
        degree: p.
        radius: half the length of the interval.

    Raises:
        ArgumentError: the degree is negative, or the radius is not positive.
    """
    require(radius > 0, "radius", "positive", radius)
    series = coefficients(lambda t: f(radius * t), degree)
    return float(np.abs(chebval(GRID, series) - f(radius * GRID)).max())


def slope_variation(f: Function, radius: float = 1.0) -> float:
    """Return V of Theorem 2 for k = 1, the total variation of g' on [-1, 1], where g(t) = f(radius * t).

    The variation is summed over the slopes between neighbouring grid points, so that a jump of g' counts in full.
    """
    require(radius > 0, "radius", "positive", radius)
    slopes = np.diff(f(radius * GRID)) / np.diff(GRID)
    return float(np.abs(np.diff(slopes)).sum())


def theorem2_bound(variation: float, degree: int, k: int = 1) -> float:
    """Return `2 V / (pi k (p - k)^k)`, the right-hand side of Theorem 2.

    Args:
        variation: V, the total variation of the k-th derivative on [-1, 1].
        degree: p, larger than k.
        k: how often the function can be differentiated.

    Raises:
        ArgumentError: k is below 1, the degree is at most k, or the variation is negative.
    """
    require(k >= 1, "k", "at least 1", k)
    require(degree > k, "degree", f"larger than k = {k}", degree)
    require(variation >= 0, "variation", "zero or positive", variation)
    return 2.0 * variation / (np.pi * k * float(degree - k) ** k)


def rate(f: Function, degrees: Sequence[int], radius: float = 1.0) -> float:
    """Return the exponent with which `chebyshev_error` falls with the degree. It is -1 for O(1/p).

    Raises:
        ArgumentError: there are fewer than two different degrees, or one is below 1.
    """
    require(len(set(degrees)) >= 2, "degrees", "at least two different degrees", list(degrees))
    require(min(degrees) >= 1, "degrees", "at least 1 each", list(degrees))
    return exponent(degrees, [chebyshev_error(f, degree, radius) for degree in degrees])


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the slope of log y against log x by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def evaluate_in_float32(series: np.ndarray, radius: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return a series on `GRID` in float32, in powers of x = radius * t, and by the recurrence (FG-Q11)."""
    t = GRID.astype(np.float32)
    powers = cheb2poly(series) / radius ** np.arange(len(series))
    return polyval(np.float32(radius) * t, powers.astype(np.float32)), chebval(t, series.astype(np.float32))


# -- Theorems 3 and 4, from scores to attention and embeddings --------------------------------------------------------


def attention_factor(epsilon: Any, least: Any = 1.0) -> Any:
    """Return `2 eta / (1 - eta)` with eta = epsilon / least. Theorem 3 bounds |alpha^ - alpha| by alpha times this.

    The proof divides by the scores and assumes that they are at least 1. The bound as printed therefore has `least` 1.
    The assumption is true only for psi >= 0. In general `least` is the smallest score of a neighbourhood (FG-Q10).

    Raises:
        ArgumentError: epsilon is not below `least`. The approximate scores could then add up to zero.
    """
    eta = np.asarray(epsilon) / np.asarray(least)
    require(bool(np.all((eta >= 0) & (eta < 1))), "epsilon", "at least 0 and below the smallest score", epsilon)
    return 2 * eta / (1 - eta)


def worst_attention_error(e: np.ndarray, epsilon: float) -> np.ndarray:
    """Return the largest |alpha^_ij - alpha_ij| over all scores within `epsilon` of `e`, both `[..., neighbours]`.

    alpha_ij is monotone in every score. In the worst case score j is at one end and all others are at the other end.
    """
    total = e.sum(-1, keepdims=True)
    ends = []
    for sign in (1.0, -1.0):
        raised = e + sign * epsilon
        ends.append(np.abs(raised / (raised + total - e - sign * epsilon * (e.shape[-1] - 1)) - e / total))
    return np.asarray(np.maximum(*ends))


# -- Theorem 5 and Lemma 1, from one layer to the next ----------------------------------------------------------------


def lemma1_slack(x: Any, c: Any) -> Any:
    """Return `c x - (exp(x) - 1)`. Lemma 1 claims that it is not negative for x <= log c and c > 1."""
    return c * np.asarray(x) - np.expm1(x)


def score_bound(delta: float, kappa_psi: float = 1.0, score: Any = 1.0) -> Any:
    """Return `2 c kappa_psi delta` (Eq. 15), with the smallest c that Theorem 5 allows, exp(2 kappa_psi delta).

    The proof drops the factor exp(psi(x_ij)). The bound as printed has `score` 1, and the corrected bound has the score
    itself (FG-Q10).
    """
    return 2 * np.exp(2 * kappa_psi * delta) * kappa_psi * delta * np.asarray(score)


def embedding_bound(delta: float, kappa_psi: float = 1.0, kappa_phi: float = 1.0) -> float:
    """Return `kappa_phi (varepsilon + delta)` (Eq. 17), with varepsilon of Eq. 16 at epsilon = 2 c kappa_psi delta.

    Softmax cancels the factor that Eq. 15 lacks. Relative to a score, the error is at most this epsilon for every psi.
    """
    return float(kappa_phi * (attention_factor(score_bound(delta, kappa_psi)) + delta))


def after_layers(delta: float, layers: int, kappa_psi: float = 1.0, kappa_phi: float = 1.0) -> dict[str, float]:
    """Return the error after `layers` more layers in the paper's three forms.

    Returns:
        "eq17" applies Eq. 17 again and again, and is NaN from where its epsilon reaches 1. "appendix" is
        kappa_phi^L (1 + 4 c kappa_psi)^L delta of Appendix E, and "section" is kappa_psi^L delta of Section 5.
    """
    error = delta
    for _ in range(layers):
        error = embedding_bound(error, kappa_psi, kappa_phi) if score_bound(error, kappa_psi) < 1 else math.nan
    c = math.exp(2 * kappa_psi * delta)
    appendix = (kappa_phi * (1 + 4 * c * kappa_psi)) ** layers * delta
    return {"eq17": error, "appendix": appendix, "section": kappa_psi**layers * delta}
