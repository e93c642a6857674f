"""Compare Chebyshev series with NumPy's evaluation and SciPy's quadrature."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev as numpy_chebyshev
from scipy.integrate import quad

from fedrepro.errors import ArgumentError
from fedrepro.papers.fedgat import chebyshev


def score(t: np.ndarray) -> np.ndarray:
    """Return exp(LeakyReLU(2 t)), which has a kink at 0."""
    return np.exp(np.where(t > 0, 2 * t, 0.4 * t))


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 8, 16, 24])
def test_series_is_evaluated_as_numpy_does(degree: int) -> None:
    """The value is NumPy's `chebval` and the gradient the derivative of the series, inside and outside [-1, 1]."""
    series = np.random.default_rng(degree).normal(size=degree + 1)
    t = torch.linspace(-1.05, 1.05, 43, dtype=torch.float64, requires_grad=True)
    value = chebyshev.evaluate(t, series)
    (slope,) = torch.autograd.grad(value.sum(), t)
    at = t.detach().numpy()
    expected = numpy_chebyshev.chebval(at, series)
    derivative = numpy_chebyshev.chebval(at, numpy_chebyshev.chebder(series)) if degree else np.zeros_like(at)
    assert np.abs(value.detach().numpy() - expected).max() < 1e-11 * max(1, np.abs(expected).max())
    assert np.abs(slope.numpy() - derivative).max() < 1e-11 * max(1, np.abs(derivative).max())


def test_evaluation_leaves_its_argument_alone_and_keeps_its_shape() -> None:
    """A `[edges, heads]` tensor of float32 gives one of the same shape and type, and is not changed."""
    t = torch.linspace(-1, 1, 12).view(6, 2)
    given = t.clone()
    value = chebyshev.evaluate(t, np.array([1.0, 2.0, 3.0]))
    assert torch.equal(t, given)
    assert value.shape == (6, 2) and value.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_blocks_change_no_digit(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Value and gradient of several blocks and a rest are those of one block, to the bit, for transposed values too."""
    series = np.random.default_rng(3).normal(size=17)
    given = torch.linspace(-1.1, 1.1, 7 * (chebyshev.BLOCK // 2 + 3), dtype=dtype).view(7, -1)

    def both(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        t = t.detach().requires_grad_()
        value = chebyshev.evaluate(t, series)
        return value, torch.autograd.grad(value.sum(), t)[0]

    value, slope = both(given)
    turned_value, turned_slope = both(given.T)
    monkeypatch.setattr(chebyshev, "BLOCK", given.numel())
    one_value, one_slope = both(given)
    assert torch.equal(value, one_value) and torch.equal(slope, one_slope)
    assert torch.allclose(turned_value.T, one_value) and torch.allclose(turned_slope.T, one_slope)


@pytest.mark.parametrize("f", [np.exp, score, lambda t: np.abs(t)], ids=["smooth", "kinked score", "absolute value"])
def test_coefficients_are_the_integrals_of_the_series(f: Callable[[np.ndarray], np.ndarray]) -> None:
    """A coefficient is 2 / pi times the integral of f T_n / sqrt(1 - x^2), half of it for n = 0."""
    series = chebyshev.coefficients(f, 8)

    def integral(n: int) -> float:
        # with x = cos(theta); the kink at theta = pi / 2 is an end of both halves
        def integrand(theta: float) -> float:
            return float(f(np.asarray(np.cos(theta)))) * float(np.cos(n * theta))

        halves = [quad(integrand, a, a + np.pi / 2, epsabs=1e-12)[0] for a in (0.0, np.pi / 2)]
        return 2 / np.pi * sum(halves) * (0.5 if n == 0 else 1.0)

    expected = np.array([integral(n) for n in range(9)])
    assert np.abs(series - expected).max() < 1e-6


def test_a_polynomial_is_its_own_series() -> None:
    """The series of a polynomial of the same degree has its coefficients, to machine precision."""
    given = np.array([0.5, -1.0, 2.0, 0.25])
    series = chebyshev.coefficients(lambda t: numpy_chebyshev.chebval(t, given), 6)
    assert np.abs(series - np.pad(given, (0, 3))).max() < 1e-13


def test_least_squares_fit_is_numpys() -> None:
    """The fitted series minimizes the squared error on equidistant points (normal equations)."""
    series = chebyshev.least_squares(score, 5, 500)
    t = np.linspace(-1, 1, 500)
    residual = numpy_chebyshev.chebvander(t, 5).T @ (numpy_chebyshev.chebval(t, series) - score(t))
    assert np.abs(residual).max() < 1e-9


def test_a_negative_degree_is_refused() -> None:
    """An `ArgumentError` names the degree."""
    with pytest.raises(ArgumentError, match="degree"):
        chebyshev.coefficients(np.exp, -1)
