"""Sum FedGAT's weighted messages without storing one message per edge, with the digits of `layers.attend`.

A client of FedGAT scores every edge of its extended graph in every head. Ten clients of Squirrel have millions of edges
together, each with a message of 64 numbers in `layers.attend`. On a CPU one compiled loop gathers, weighs and sums
instead. It rounds each product and adds in the order of the edges, as the torch operations do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedrepro.engine.nn import kernels, layers
from fedrepro.engine.nn.sparse import Edges

BLOCK = 4096  # edges whose gradients are computed at once, which then stay in a core's cache


def attend(edges: Edges, score: Tensor, h: Tensor) -> Tensor:
    """Return what `layers.attend` returns (Eq. 1 and 2), `[nodes, heads, width]`.

    Args:
        score: `[edges, heads]`.
        h: `[nodes, heads, width]`.
    """
    if not kernels.compiled(h, score.numel()):
        return layers.attend(edges, score, h)
    total = edges.sum(score)
    mixed: Tensor = _Mixed.apply(score, h, edges)  # type: ignore[no-untyped-call]
    return mixed / torch.where(total == 0, 1.0, total)[..., None]


class _Mixed(torch.autograd.Function):
    """The sum over the edges of each target node of the score times the source's `h`."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, h: Tensor, edges: Edges) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(score, h)
        return _mix(edges._by_target.ptr_t, edges._by_target.order, edges.source, score, h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (score, h), edges = ctx.saved_tensors, ctx.edges
        grad_score, by = torch.empty_like(score), edges._by_source
        at_target, at_source = h.new_empty(2, BLOCK, *h.shape[1:]).unbind()
        for out, source, target in zip(*(part.split(BLOCK) for part in (grad_score, edges.source, edges.target))):
            product = torch.index_select(grad, 0, target, out=at_target[: len(out)])
            product.mul_(torch.index_select(h, 0, source, out=at_source[: len(out)]))
            torch.sum(product, -1, out=out)
        return grad_score, _mix(by.ptr_t, by.order, edges.target, score, grad), None


def _mix(ptr: Tensor, edge: Tensor, other: Tensor, score: Tensor, rows: Tensor) -> Tensor:
    """Return for each node the sum over its edges of `score[e] * rows[other[e]]`, in the order of `edge`."""
    from fedrepro.papers.fedgat import loops  # Numba takes half a second to import

    out = torch.zeros_like(rows, memory_format=torch.contiguous_format)
    values = [part.detach().contiguous().numpy() for part in (score, rows)]
    loops.mix(ptr.numpy(), edge.numpy(), other.numpy(), values[0], values[1], out.numpy())
    return out
