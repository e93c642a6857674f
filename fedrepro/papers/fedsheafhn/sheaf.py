"""The sheaf Laplacian of a collaboration graph and its normalisation (FedSheafHN, Section 3.2, Eq. 5 and 6).

A sheaf gives every node and every edge of a graph a space R^d and every incident pair (v, e) a restriction map
F_{v,e} `[d, d]`. With the coboundary (delta x)_e = F_{u,e} x_u - F_{v,e} x_v the Laplacian is L = delta^T delta:

    L_vv = sum over edges e at v of F_{v,e}^T F_{v,e}          L_vu = -F_{v,e}^T F_{u,e}

Edges are unordered pairs `[2, pairs]`, one column each; states are `[nodes * d, channels]`, the d rows of a node
together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedrepro.errors import one_of, require

MAPS = ("diagonal", "orthogonal", "general")


def slots(kind: str, stalk: int) -> int:
    """Numbers that make one restriction map of a kind: d, d (d - 1) / 2 or d^2.

    Raises:
        ArgumentError: an unknown kind.
    """
    one_of("maps", kind, MAPS)
    return {"diagonal": stalk, "orthogonal": stalk * (stalk - 1) // 2, "general": stalk**2}[kind]


def as_maps(values: Tensor, kind: str, stalk: int) -> Tensor:
    """Restriction maps `[pairs, d, d]` from their free numbers `[pairs, slots]`.

    "orthogonal" is the Cayley transform (I - A/2)^-1 (I + A/2) of the skew matrix A whose lower triangle is given: a
    rotation, and the identity for d = 1.
    """
    require(values.shape[1] == slots(kind, stalk), "values", f"of {slots(kind, stalk)} columns", tuple(values.shape))
    if kind == "diagonal":
        return torch.diag_embed(values)
    if kind == "general":
        return values.view(-1, stalk, stalk)
    row, col = torch.tril_indices(stalk, stalk, -1, device=values.device)
    lower = values.new_zeros(len(values), stalk, stalk)
    lower = lower.index_put((torch.arange(len(values), device=values.device)[:, None], row, col), values)
    half = (lower - lower.mT) / 2
    eye = torch.eye(stalk, dtype=values.dtype, device=values.device)
    rotation: Tensor = torch.linalg.solve(eye - half, eye + half)
    return rotation


def laplacian(first: Tensor, second: Tensor, pairs: Tensor, nodes: int) -> Tensor:
    """L as blocks `[nodes, nodes, d, d]` (Eq. 5).

    Args:
        first, second: F_{u,e} and F_{v,e} of the pairs' first and second node, `[pairs, d, d]`.
        pairs: `[2, pairs]`.
    """
    u, v = pairs
    across = first.mT @ second
    place = torch.cat([u * nodes + u, v * nodes + v, u * nodes + v, v * nodes + u])
    blocks = torch.cat([first.mT @ first, second.mT @ second, -across, -across.mT])
    empty = first.new_zeros(nodes * nodes, *first.shape[1:])
    return empty.index_add(0, place, blocks).view(nodes, nodes, *first.shape[1:])


def normalised(blocks: Tensor, augmented: bool, diagonal: bool) -> Tensor:
    """D^-1/2 L D^-1/2 as blocks, D the block diagonal of L (Eq. 6), or D + I in its place where `augmented`, as in the
    public code: then every block can be inverted and the eigenvalues lie in [0, 2).

    Args:
        diagonal: the blocks of D are diagonal matrices, as with diagonal or orthogonal maps. A node without edges,
            whose block is zero, has the pseudo-inverse: zero.
    """
    every = torch.arange(len(blocks), device=blocks.device)
    own = blocks[every, every]
    if augmented:
        own = own + torch.eye(own.shape[1], dtype=own.dtype, device=own.device)
    root = _diagonal_root(own) if diagonal else inverse_root(own)
    return root[:, None] @ blocks @ root[None, :]


def matrix(blocks: Tensor) -> Tensor:
    """Blocks `[nodes, nodes, d, d]` as one matrix `[nodes * d, nodes * d]`."""
    nodes, _, stalk, _ = blocks.shape
    return blocks.permute(0, 2, 1, 3).reshape(nodes * stalk, nodes * stalk)


def _diagonal_root(own: Tensor) -> Tensor:
    value = own.diagonal(dim1=1, dim2=2)
    present = value > torch.finfo(own.dtype).eps
    safe = torch.where(present, value, torch.ones_like(value))
    return torch.diag_embed(torch.where(present, safe.rsqrt(), torch.zeros_like(value)))


def inverse_root(own: Tensor) -> Tensor:
    """M^-1/2 of symmetric positive semi-definite matrices `[..., d, d]`; eigenvalues at rounding's level count as zero
    and keep a zero inverse.
    """
    made: Tensor = _InverseRoot.apply(own)  # type: ignore[no-untyped-call]
    return made


class _InverseRoot(torch.autograd.Function):
    """The derivative of l^-1/2 between two eigenvalues is -1 / (sqrt(l m) (sqrt(l) + sqrt(m))), which is finite also
    where they are equal: that of an eigendecomposition is not.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        finite = own.isfinite().flatten(-2).all(-1)[..., None, None]
        value, vector = torch.linalg.eigh(torch.where(finite, own, torch.zeros_like(own)))
        tiny = torch.finfo(own.dtype).eps * own.shape[-1] * value.amax(-1, keepdim=True).clamp(min=1e-30)
        inverse = torch.where(value > tiny, value.clamp(min=1e-30).rsqrt(), torch.zeros_like(value))
        ctx.save_for_backward(inverse, vector)
        return torch.where(finite, (vector * inverse[..., None, :]) @ vector.mT, torch.nan)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        inverse, vector = ctx.saved_tensors
        one, two = inverse[..., :, None], inverse[..., None, :]
        sums = one + two
        slope = -((one * two) ** 2) / torch.where(sums > 0, sums, torch.ones_like(sums))
        made: Tensor = vector @ ((vector.mT @ grad @ vector) * slope) @ vector.mT
        return made
