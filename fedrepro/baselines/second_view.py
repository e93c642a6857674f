"""FGGP's second view of a client's graph: probabilities from an augmentor's output Z, a graph sampled from them, and
the loss that makes Z Z^T rebuild the first one.

Matrices of nodes by nodes are passed over in square blocks, on and above the diagonal only: Z Z^T and the sampled
graph are symmetric, and what stays in a CPU's cache costs a fraction of what does not. Comparisons write numbers, not
booleans, which on a CPU take four times as long.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedrepro.engine.nn import random
from fedrepro.engine.nn.sparse import Sparse

EDGE = 1e-6  # probabilities as near to 0 or 1 take no gradient, and uniform numbers are kept as far away
FEW = 16  # columns, below which a product with a symmetric matrix is taken from the other side


class Block(NamedTuple):
    """Some rows i and columns j of an `[nodes, nodes]` matrix, a square on the diagonal or a rectangle above it.

    Args:
        rows, columns: which, as slices; on the diagonal the same.
        pair: places, in the flattened block, of the pairs i <= j with a one of A^u at (i, j) or (j, i).
        ones: how many of the two are, `[pairs]`; on the diagonal 1.
        edge: whether (i, j) is, as a number, `[pairs]`.
    """

    rows: slice
    columns: slice
    pair: Tensor
    ones: Tensor
    edge: Tensor

    @property
    def diagonal(self) -> bool:
        """Whether entries below the diagonal are in it, which do not count."""
        return self.rows == self.columns


class Graph(NamedTuple):
    """A client's A^u, 0/1 with a full diagonal, not symmetric: `D^-1/2 A^u D^-1/2`, how many ones, its blocks."""

    operator: Sparse
    edges: int
    blocks: tuple[Block, ...]

    @property
    def rest(self) -> float:
        """How many entries are no ones, for each that is."""
        return self.operator.shape[0] ** 2 / self.edges - 1

    @property
    def weight(self) -> float:
        """Of an entry's cross-entropy in the reconstruction loss."""
        others = self.operator.shape[0] ** 2 - self.edges
        return 1 / (2 * others) if others else 0.0

    def empty(self, like: Tensor) -> list[Tensor]:
        """Room for every block of a matrix, `[rows, columns]` each, in one piece of memory."""
        shapes = [[part.stop - part.start for part in (block.rows, block.columns)] for block in self.blocks]
        sizes = [rows * columns for rows, columns in shapes]
        return [part.view(shape) for part, shape in zip(torch.split(like.new_empty(sum(sizes)), sizes), shapes)]

    @classmethod
    def of(cls, dense: Tensor) -> Graph:
        """From the matrix `[nodes, nodes]`."""
        n = len(dense)
        number = -(-n // math.isqrt(random.PIECE)) if dense.device.type == "cpu" else 1
        bounds = [n * part // number for part in range(number + 1)]
        parts = [slice(*pair) for pair in itertools.pairwise(bounds)]
        blocks = []
        for rows, columns in itertools.combinations_with_replacement(parts, 2):
            here, there = dense[rows, columns], dense[columns, rows].T
            if rows == columns:
                here, there = here.triu(), there.triu(1)
            both = (here + there).flatten()
            pair = both.nonzero()[:, 0]
            blocks.append(Block(rows, columns, pair, both[pair], here.flatten()[pair]))
        scale = dense.sum(1).rsqrt()
        operator = Sparse.from_tensor(scale[:, None] * dense * scale)
        return cls(operator, int(dense.count_nonzero()), tuple(blocks))


class Sampled:
    """A sampled graph, 0/1, symmetric, with a full diagonal.

    What comes back to its entries is a sum of products of tall matrices; `returned` holds those, and `handle` is what
    automatic differentiation sees in the graph's place: it calls on them when all are there. Ask for the gradients
    at Z and at what was multiplied in one call.

    Args:
        a: `[nodes, nodes]`.
    """

    def __init__(self, a: Tensor) -> None:
        self.a = a
        self.scale = a.sum(1, keepdim=True).rsqrt()
        self.handle = a.new_zeros(())
        self.returned: list[tuple[Tensor, Tensor]] = []

    def __matmul__(self, x: Tensor) -> Tensor:
        """`D^-1/2 A D^-1/2 X` with the row sums D, `[nodes, columns]`."""
        product: Tensor = _Product.apply(self.handle, x, self)  # type: ignore[no-untyped-call]
        return product

    def times(self, x: Tensor) -> Tensor:
        """`A X`; a CPU multiplies a few columns several times faster as rows, and A is symmetric."""
        return self.a @ x if x.shape[1] >= FEW else (x.T @ self.a).T


def second_view(z: Tensor, graph: Graph, blend: float, *key: int | str) -> tuple[Sampled, Tensor]:
    """A sampled graph and the reconstruction loss, a scalar; both pass a gradient to `z`.

    An edge i < j is where u > 1 - p, with p = blend Z Z^T / max Z Z^T + (1 - blend) A^u and u uniform. Backward it is
    the relaxed Bernoulli of temperature 1, sigmoid(logit p + logit u) = p u / (p u + (1 - p)(1 - u)), whose slope in p
    is u (1 - u) / (p u + (1 - p)(1 - u))^2.

    The loss tells the entries of A^u from the rest by Z Z^T: cross-entropy with both weighing the same, 0 for a
    complete A^u.

    Args:
        z: `[nodes, hidden]`, no entry negative.
        blend: in [0, 1].
        key: what the uniform numbers are a function of, beside the place in the matrix.
    """
    factor = blend / z.square().sum(1).max().clamp(min=1e-12)  # the largest of Z Z^T is on its diagonal
    a, loss = z.new_empty(len(z), len(z)), z.new_zeros(())
    grams, draws, drawn_by = graph.empty(z), graph.empty(z), random.keys(*key)
    with torch.no_grad():
        for block, gram, u in zip(graph.blocks, grams, draws):
            torch.mm(z[block.rows], z[block.columns].T, out=gram)
            u.copy_(random.uniform_block(block.rows, block.columns, len(z), drawn_by))
            p = _chance(gram, factor, block, blend)
            drawn = torch.gt(u, p.neg_().add_(1), out=p)
            if block.diagonal:
                drawn.triu_(1)
                drawn = (drawn + drawn.T).fill_diagonal_(1.0)
            a[block.rows, block.columns] = drawn
            if not block.diagonal:
                a[block.columns, block.rows] = drawn.T
            loss += _cross_entropy(gram, block, graph.rest)
    sampled = Sampled(a)
    held = _Held(sampled.returned, graph, blend, grams, draws)  # not `sampled`, whose handle leads back here: a cycle
    sampled.handle, loss = _SecondView.apply(z, factor, loss * graph.weight, held)  # type: ignore[no-untyped-call]
    return sampled, loss


class _Held(NamedTuple):
    """What the backward pass of a second view needs; Z Z^T and the uniform numbers block by block."""

    returned: list[tuple[Tensor, Tensor]]
    graph: Graph
    blend: float
    grams: list[Tensor]
    draws: list[Tensor]


class _SecondView(torch.autograd.Function):
    """The gradient of `second_view` in Z and in the factor of Z Z^T."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, factor: Tensor, loss: Tensor, held: _Held) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(z, factor)
        ctx.held = held
        return z.new_zeros(()), loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, to_loss: Tensor) -> tuple[Tensor | None, ...]:
        z, factor = ctx.saved_tensors
        returned, graph, blend, grams, draws = ctx.held
        both = _both_ways(returned)
        returned.clear()
        to_z, to_factor = torch.zeros_like(z), torch.zeros_like(factor)
        for block, gram, u in zip(graph.blocks, grams, draws):
            # by pair i <= j: the sum of what comes back to the entries (i, j) and (j, i) of Z Z^T
            pairs = _cross_entropy_slope(gram, block, graph.rest, to_loss * graph.weight)
            if both is not None:
                to_p = both[0][block.rows] @ both[1][block.columns].T
                to_p *= _slope(_chance(gram, factor, block, blend), u)
                if block.diagonal:
                    to_p.triu_(1)
                to_factor += torch.dot(to_p.flatten(), gram.flatten())
                pairs += to_p.mul_(factor)
            to_z[block.rows].addmm_(pairs, z[block.columns])
            to_z[block.columns].addmm_(pairs.T, z[block.rows])
        return to_z, to_factor, None, None


class _Product(torch.autograd.Function):
    """The product of a sampled graph's operator with X, `[nodes, columns]`."""

    @staticmethod
    def forward(ctx: Any, handle: Tensor, x: Tensor, sampled: Sampled) -> Tensor:
        inner = sampled.times(sampled.scale * x)
        ctx.save_for_backward(x, inner)
        ctx.sampled = sampled
        return sampled.scale * inner

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, inner = ctx.saved_tensors
        sampled: Sampled = ctx.sampled
        outer = sampled.scale * grad
        back = sampled.times(outer)
        to_scale = (grad * inner + x * back).sum(1, keepdim=True)
        # to A: outer (scale x)^T, and its row sums' share to every entry of a row
        one = torch.ones_like(to_scale)
        sampled.returned.append((torch.cat([outer, -0.5 * to_scale * sampled.scale**3], 1),
                                 torch.cat([sampled.scale * x, one], 1)))  # fmt: skip
        return grad.new_zeros(()), sampled.scale * back, None


def _both_ways(products: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor] | None:
    """Two matrices whose product `left right^T` is the sum of the products `p q^T` and of their transposes; none
    for no products.
    """
    if not products:
        return None
    left, right = (torch.cat(part, dim=1) for part in zip(*products))
    return torch.cat([left, right], dim=1), torch.cat([right, left], dim=1)


def _cross_entropy(gram: Tensor, block: Block, rest: float) -> Tensor:
    """Sum over a block's pairs, both ways: log(1 + e^x), and rest * log(1 + e^-x) in its stead for A^u's ones."""
    each, at = _softplus(gram), gram.flatten()[block.pair]
    total = 2 * (each.triu() if block.diagonal else each).sum()
    if block.diagonal:
        total -= each.diagonal().sum()
    return total + (block.ones * (rest * _softplus(-at) - _softplus(at))).sum()


def _softplus(x: Tensor) -> Tensor:
    return F.softplus(x, threshold=50)  # log(1 + e^x) = x to the last bit from there on, in double precision too


def _cross_entropy_slope(gram: Tensor, block: Block, rest: float, scale: Tensor) -> Tensor:
    """The derivative of `_cross_entropy` by pair, 0 below the diagonal, times a scalar."""
    slope = torch.sigmoid(gram)
    at = slope.flatten()[block.pair]
    slope *= 2 * scale
    if block.diagonal:
        slope.diagonal().mul_(0.5)
        slope.triu_()
    slope.view(-1).index_add_(0, block.pair, scale * block.ones * (rest * (at - 1) - at))
    return slope


def _chance(gram: Tensor, factor: Tensor, block: Block, blend: float) -> Tensor:
    """p for the pairs of a block."""
    p = gram * factor
    p.view(-1).index_add_(0, block.pair, block.edge * (1 - blend))
    return p


def _slope(p: Tensor, u: Tensor) -> Tensor:
    """Of the relaxed Bernoulli in p."""
    u = u.clamp(EDGE, 1 - EDGE)
    rest = 1 - u
    slope = torch.addcmul(rest, p, u - rest).square_()
    torch.div(u.mul_(rest), slope, out=slope)
    return slope.mul_(p.sub_(0.5).abs_().le_(0.5 - EDGE))
