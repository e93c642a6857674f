"""The noise of GFL-APPNP-V1 on the first layer's part of the uploaded gradients, drawn from what is used of it.

Client k receives N_k = sum_{j != k} A_kj E_j, where E_j `[classes, features, hidden]` is what neighbour j added:
standard normal times `std`. So the N_k are normal with covariance `mix = std^2 A_off A_off^T` over the clients, the
same for every entry, and can be drawn without the E_j (`draw`).

Where every client trains on one sample x_k, training uses less of them still: x_k^T N_k in the local steps, and one sum
over clients, sum_kc w_kc N_kc, when the server averages; w depends on the first alone. Both are jointly normal, so the
first is drawn at the exchange (`at_samples`) and the sum from its distribution given the first (`total`): features x
hidden numbers a round instead of clients x classes times as many. The distribution is the same (tested against `draw`).
"""

from __future__ import annotations

import torch
from torch import Tensor

TINY = 1e-10  # eigenvalues below this share of the largest are rounding


def root(matrix: Tensor) -> Tensor:
    """The symmetric square root of a positive semi-definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    made: Tensor = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    return made


def draw(mix: Tensor, source: torch.Generator, out: Tensor) -> None:
    """N_k for every client, into `out` `[clients, ...]`.

    Args:
        mix: `[clients, clients]`, float64.
        source: generator of the normal numbers.
    """
    drawn = torch.randn(out.flatten(1).shape, generator=source).to(out)
    torch.mm(root(mix).to(out), drawn, out=out.flatten(1))


def at_samples(mix: Tensor, x: Tensor, classes: int, hidden: int, source: torch.Generator) -> Tensor:
    """x_k^T N_k for clients with one sample each, float64: `[clients, classes, hidden]`.

    Args:
        mix: `[clients, clients]`, float64.
        x: samples `[clients, features]`, float64.
    """
    drawn = torch.randn(len(x), classes * hidden, generator=source, dtype=torch.float64)
    return (root(mix * (x @ x.T)) @ drawn).view(len(x), classes, hidden)


def total(mix: Tensor, x: Tensor, w: Tensor, at: Tensor, source: torch.Generator) -> Tensor:
    """sum_kc w_kc N_kc given what the noise does at the samples, float64: `[features, hidden]`.

    With b_c = mix w_c, S = mix * x x^T and v = sum_c w_c^T mix w_c, the sum has mean x^T sum_c diag(b_c) S^+ at_c and,
    in each column, covariance v I - x^T (S^+ * sum_c b_c b_c^T) x, which is v I outside the span of the samples.

    Args:
        mix: `[clients, clients]`, float64.
        x: samples `[clients, features]`, float64.
        w: weights `[clients, classes]`, float64.
        at: `[clients, classes, hidden]`, from `at_samples`.
    """
    b = mix @ w
    v = float((b * w).sum().clamp(min=0))
    inner = x @ x.T
    inverse = torch.linalg.pinv(mix * inner, rtol=TINY, hermitian=True)
    mean = x.T @ torch.einsum("kc,kl,lch->kh", b, inverse, at)
    values, vectors = torch.linalg.eigh(inner)
    kept = values > TINY * values[-1]
    size = values[kept].sqrt()
    left = vectors[:, kept] * size
    basis = (vectors[:, kept].T @ x) / size[:, None]  # [rank, features], orthonormal rows
    own = torch.eye(len(size), dtype=x.dtype) * v - left.T @ (inverse * (b @ b.T)) @ left
    drawn = torch.randn(x.shape[1], at.shape[2], generator=source, dtype=torch.float64)
    inside = basis @ drawn
    made: Tensor = mean + v**0.5 * drawn + basis.T @ (root(own) @ inside - v**0.5 * inside)
    return made
