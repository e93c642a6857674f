"""FedGAT's bounds as plain functions, as printed and as corrected: cost (Theorem 1), the error of the polynomial
(Theorem 2), of attention and embeddings (Theorems 3 and 4), and its way through the layers (Theorem 5, Lemma 1).

Theorem 2 first.
It lives on [-1, 1]; a score on [-radius, radius] is stretched to it, `g(t) = f(radius * t)`. The scores of a
GAT, exp(ReLU(x)) and exp(LeakyReLU(x)), have a kink at 0: g is absolutely continuous and g' of bounded variation, g''
is not. So k = 1 and the theorem gives no more than O(1/p) (FG-Q11).
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


# -- Theorem 1: what is sent before training ---------------------------------------------------------------------------


def theorem1(clients: int, reach: int, features: int, degree: int, power: int) -> float:
    """`K B_L d B^power`, what stands inside Theorem 1's O(.): power 3 as printed, 2 as Appendix D derives.

    Args:
        clients: K.
        reach: B_L, nodes of the largest L-hop neighbourhood of a client.
        degree: B, the largest number of neighbours, the node itself among them.
    """
    return float(clients) * reach * features * float(degree) ** power


def appendix_d(g: int, features: int) -> int:
    """`4 deg^2 d`, Appendix D's scalars for one node: M1 or M2 alone, where both are sent (FG-Q1)."""
    return 4 * g**2 * features


# -- Theorems 3 and 4: from scores to attention and embeddings ---------------------------------------------------------

PSI: dict[str, Function] = {
    "ReLU": lambda x: np.maximum(x, 0.0),
    "LeakyReLU": lambda x: np.where(x > 0, x, 0.2 * x),
    "ELU": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "tanh": np.tanh,
    "identity": lambda x: np.asarray(x, dtype=float),
}  # all monotone with Lipschitz constant 1, as Assumption 4 asks


def attention_factor(epsilon: Any, least: Any = 1.0) -> Any:
    """`2 eta / (1 - eta)`, eta = epsilon / least: Theorem 3 bounds |alpha^ - alpha| by alpha times this.

    The proof divides by the scores and takes them for at least 1, which is `least` = 1, as printed. It is so for
    psi >= 0 alone; in general `least` is the smallest score of the node's neighbourhood (FG-Q10).

    Raises:
        ArgumentError: an epsilon that is not below `least`: the approximate scores could then add up to nothing.
    """
    eta = np.asarray(epsilon) / np.asarray(least)
    require(bool(np.all((eta >= 0) & (eta < 1))), "epsilon", "at least 0 and below the smallest score", epsilon)
    return 2 * eta / (1 - eta)


def worst_attention_error(e: np.ndarray, epsilon: float) -> np.ndarray:
    """The largest |alpha^_ij - alpha_ij| over all scores within `epsilon` of `e` `[..., neighbours]`, same shape.

    alpha_ij is monotone in every score, so the worst is one score at one end and all others at the other.
    """
    total = e.sum(-1, keepdims=True)
    ends = []
    for sign in (1.0, -1.0):
        raised = e + sign * epsilon
        ends.append(np.abs(raised / (raised + total - e - sign * epsilon * (e.shape[-1] - 1)) - e / total))
    return np.asarray(np.maximum(*ends))


# -- Theorem 5 and Lemma 1: from one layer to the next -----------------------------------------------------------------


def lemma1_slack(x: Any, c: float) -> Any:
    """`c x - (exp(x) - 1)`, which Lemma 1 claims is not negative for x <= log c, c > 1."""
    return c * np.asarray(x) - np.expm1(x)


def score_bound(delta: float, kappa_psi: float = 1.0, score: Any = 1.0) -> Any:
    """Eq. 15: `2 c kappa_psi delta`, with the smallest c that the theorem allows, exp(2 kappa_psi delta).

    The proof drops the factor exp(psi(x_ij)): `score` = 1 is the bound as printed, the score itself the corrected one
    (FG-Q10).
    """
    return 2 * np.exp(2 * kappa_psi * delta) * kappa_psi * delta * np.asarray(score)


def embedding_bound(delta: float, kappa_psi: float = 1.0, kappa_phi: float = 1.0) -> float:
    """Eq. 17: `kappa_phi (varepsilon + delta)` with varepsilon of Eq. 16 at epsilon = 2 c kappa_psi delta.

    Softmax cancels the factor that Eq. 15 lacks: relative to a score, the error is at most that epsilon whatever psi.
    """
    return float(kappa_phi * (attention_factor(score_bound(delta, kappa_psi)) + delta))


def after_layers(delta: float, layers: int, kappa_psi: float = 1.0, kappa_phi: float = 1.0) -> dict[str, float]:
    """The error after more layers in the paper's three forms: Eq. 17 applied again and again ("eq17"), Appendix E's
    kappa_phi^L (1 + 4 c kappa_psi)^L delta ("appendix"), Section 5's kappa_psi^L delta ("section").

    "eq17" is NaN where Eq. 17 says nothing, its epsilon having reached 1.
    """
    error = delta
    for _ in range(layers):
        error = embedding_bound(error, kappa_psi, kappa_phi) if score_bound(error, kappa_psi) < 1 else math.nan
    c = math.exp(2 * kappa_psi * delta)
    appendix = (kappa_phi * (1 + 4 * c * kappa_psi)) ** layers * delta
    return {"eq17": error, "appendix": appendix, "section": kappa_psi**layers * delta}


# -- evaluating the series ---------------------------------------------------------------------------------------------


def float32_errors(f: Function, degree: int, radius: float) -> tuple[float, float]:
    """Largest error of a series in float32 against the same series in float64, on [-radius, radius]: in powers of x,
    and by the three-term recurrence (FG-Q11).
    """
    series = coefficients(lambda t: f(radius * t), degree)
    t = np.linspace(-1.0, 1.0, GRID)
    truth, t32 = chebval(t, series), t.astype(np.float32)
    powers = cheb2poly(series) / radius ** np.arange(degree + 1)
    by_powers = polyval(np.float32(radius) * t32, powers.astype(np.float32))
    by_recurrence = chebval(t32, series.astype(np.float32))
    return float(np.abs(by_powers - truth).max()), float(np.abs(by_recurrence - truth).max())
