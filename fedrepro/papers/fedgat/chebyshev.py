"""Chebyshev series of a function and their evaluation by the three-term recurrence.

Monomials are avoided on purpose: in float32 a degree-24 series written in powers of x is worse than one of degree 16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor

from fedrepro.errors import require


def coefficients(f: Callable[[np.ndarray], np.ndarray], degree: int, points: int = 4096) -> np.ndarray:
    """The truncated Chebyshev series of `f` on [-1, 1]: `[degree + 1]` (FedGAT, Eq. 22 with the integral as a sum
    over Chebyshev nodes).

    The sum is exact for polynomials of degree below `2 * points - degree`; for the kinked scores of a GAT its error
    at 4096 points is below 1e-7.
    """
    require(degree >= 0, "degree", "zero or positive", degree)
    theta = np.pi * (np.arange(points) + 0.5) / points
    angles = np.arange(degree + 1)[:, None] * theta
    series = 2.0 / points * np.cos(angles) @ f(np.cos(theta))
    series[0] /= 2.0
    return np.asarray(series)


def least_squares(f: Callable[[np.ndarray], np.ndarray], degree: int, points: int) -> np.ndarray:
    """The polynomial closest to `f` on equidistant points of [-1, 1], in the Chebyshev basis: `[degree + 1]`."""
    t = np.linspace(-1.0, 1.0, points)
    return np.asarray(chebyshev.chebfit(t, f(t), degree))


class _Series(torch.autograd.Function):
    """`sum_n c_n T_n(t)`; value and derivative from one pass of the recurrence, so that only the derivative is kept."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, series: tuple[float, ...]) -> Tensor:
        before, now = torch.ones_like(t), t  # T_0, T_1
        slope_before, slope = torch.zeros_like(t), torch.ones_like(t)  # T_0', T_1'
        value = torch.full_like(t, series[0])
        derivative = torch.zeros_like(t)
        for n, c in enumerate(series[1:], start=1):
            value.add_(now, alpha=c)
            derivative.add_(slope, alpha=c)
            if n + 1 < len(series):  # T_{n+1} = 2 t T_n - T_{n-1}, and its derivative
                slope_before, slope = slope, (2 * t * slope).add_(now, alpha=2).sub_(slope_before)
                before, now = now, (2 * t * now).sub_(before)
        ctx.save_for_backward(derivative)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.saved_tensors[0], None


def evaluate(t: Tensor, series: np.ndarray) -> Tensor:
    """`sum_n series[n] T_n(t)`, elementwise, differentiable; outside [-1, 1] the polynomial simply goes on."""
    made: Tensor = _Series.apply(t, tuple(float(c) for c in series))  # type: ignore[no-untyped-call]
    return made
