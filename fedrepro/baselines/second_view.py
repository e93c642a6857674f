"""Draw FGGP's second view of a client's graph, and compute the loss that makes the augmentor rebuild the first one.

The method is in `fedrepro.baselines.fggp`. With the augmentor's output Z `[nodes, hidden]` and the first view A^u
`[nodes, nodes]`, an edge i < j of the second view exists with probability

    p = alpha Z Z^T / max Z Z^T + (1 - alpha) A^u                                                                (1)

Matrices of nodes by nodes are passed over in square blocks, on and above the diagonal only, because Z Z^T and the
sampled graph are symmetric. A block stays in a CPU's cache, which saves most of the time. Comparisons write numbers
and not booleans, which take four times as long on a CPU.

Whole matrices with automatic differentiation would need less code, and so would their checkpointed form, which computes
them again in the backward pass. The blocks are kept because they are faster:

- On Computers with 10 clients a client has 1338 nodes, so that one matrix in single precision takes 7.2 MB.
- Automatic differentiation keeps six matrices of a client until its backward pass: Z Z^T, alpha Z Z^T, p, the relaxed
  Bernoulli, the sampled graph and A^u. These are 430 MB if all ten clients train in one chunk.
- The blocks keep the sampled graph, and of Z Z^T and the uniform numbers the part on and above the diagonal. These are
  2.2 matrices of a client, or 155 MB. Checkpoints keep none, and all six for one client at a time in the backward pass.
- A step of ten random graphs of that size with width 128 took 0.7 s of processor time on one thread in blocks, 1.2 s
  with whole matrices, and 1.9 s with checkpoints. The process grew by 245, 1239 and 550 MiB. When the allocator
  returned every large piece to the system at once, it grew by 298, 582 and 208 MiB, so that memory by itself would not
  decide between blocks and checkpoints.
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

# Probabilities within this distance of 0 or 1 take no gradient, and uniform numbers are kept as far from both.
MARGIN = 1e-6
# Number of columns below which a product with a symmetric matrix is taken from the other side.
FEW_COLUMNS = 16


class Block(NamedTuple):
    """Some rows i and columns j of an `[nodes, nodes]` matrix, a square on the diagonal or a rectangle above it.

    Args:
        rows: the rows as a slice.
        columns: the columns as a slice, equal to `rows` on the diagonal.
        pair: indices, in the flattened block, of the pairs i <= j with a one of A^u at (i, j) or (j, i).
        ones: number of ones at the two entries, `[pairs]`; 1 on the diagonal.
        edge: entry (i, j) of A^u, `[pairs]`.
    """

    rows: slice
    columns: slice
    pair: Tensor
    ones: Tensor
    edge: Tensor

    @property
    def diagonal(self) -> bool:
        """Return whether the block has entries below the diagonal, which do not count."""
        return self.rows == self.columns


class Graph(NamedTuple):
    """A client's A^u, 0/1 with a full diagonal, not symmetric: `D^-1/2 A^u D^-1/2`, number of ones, blocks."""

    operator: Sparse
    edges: int
    blocks: tuple[Block, ...]

    @property
    def rest(self) -> float:
        """Return the number of zeros of A^u per one."""
        return self.operator.shape[0] ** 2 / self.edges - 1

    @property
    def weight(self) -> float:
        """Return the weight of an entry's cross-entropy in the reconstruction loss."""
        others = self.operator.shape[0] ** 2 - self.edges
        return 1 / (2 * others) if others else 0.0

    def empty(self, like: Tensor) -> list[Tensor]:
        """Allocate every block of a matrix, `[rows, columns]` each, in one piece of memory."""
        shapes = [[part.stop - part.start for part in (block.rows, block.columns)] for block in self.blocks]
        sizes = [rows * columns for rows, columns in shapes]
        return [part.view(shape) for part, shape in zip(torch.split(like.new_empty(sum(sizes)), sizes), shapes)]

    @classmethod
    def of(cls, dense: Tensor) -> Graph:
        """Cut the matrix `[nodes, nodes]` into blocks."""
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

    The gradient at its entries is a sum of products of tall matrices, which `returned` collects in the backward pass.
    Automatic differentiation sees the scalar `handle` instead of the graph, so that it reads `returned` when all
    products are there. The gradients at Z and at the multiplied matrices must be asked for in one call.

    Args:
        a: `[nodes, nodes]`.
    """

    def __init__(self, a: Tensor) -> None:
        self.a = a
        self.scale = a.sum(1, keepdim=True).rsqrt()
        self.handle = a.new_zeros(())
        self.returned: list[tuple[Tensor, Tensor]] = []

    def __matmul__(self, x: Tensor) -> Tensor:
        """Return `D^-1/2 A D^-1/2 X` with the row sums D, `[nodes, columns]`."""
        product: Tensor = _Product.apply(self.handle, x, self)  # type: ignore[no-untyped-call]
        return product

    def times(self, x: Tensor) -> Tensor:
        """Return `A X`. A CPU multiplies a few columns several times faster as rows, and A is symmetric."""
        return self.a @ x if x.shape[1] >= FEW_COLUMNS else (x.T @ self.a).T


def second_view(z: Tensor, graph: Graph, blend: float, *key: int | str) -> tuple[Sampled, Tensor]:
    """Return a sampled graph and the reconstruction loss, a scalar. Both pass a gradient to `z`.

    An edge i < j exists if u > 1 - p, with p of equation (1) and u uniform. The backward pass takes instead the relaxed
    Bernoulli of temperature 1, sigmoid(logit p + logit u) = p u / (p u + (1 - p)(1 - u)), whose slope in p is
    u (1 - u) / (p u + (1 - p)(1 - u))^2.

    The loss is the cross-entropy that tells the ones of A^u from its zeros by Z Z^T, with the same weight for both. It
    is 0 for a complete A^u.

    Args:
        z: `[nodes, hidden]`, no entry negative.
        graph: A^u.
        blend: alpha, in [0, 1].
        key: the key of the uniform numbers, which also depend on the entry of the matrix.
    """
    # The largest entry of Z Z^T is on its diagonal.
    factor = blend / z.square().sum(1).max().clamp(min=1e-12)
    a, loss = z.new_empty(len(z), len(z)), z.new_zeros(())
    grams, draws, drawn_by = graph.empty(z), graph.empty(z), random.keys(*key)
    with torch.no_grad():
        for block, gram, u in zip(graph.blocks, grams, draws):
            torch.mm(z[block.rows], z[block.columns].T, out=gram)
            random.uniform_block(block.rows, block.columns, len(z), drawn_by, u)
            p = _probability(gram, factor, block, blend)
            drawn = torch.gt(u, p.neg_().add_(1), out=p)
            if block.diagonal:
                drawn.triu_(1)
                drawn = (drawn + drawn.T).fill_diagonal_(1.0)
            a[block.rows, block.columns] = drawn
            if not block.diagonal:
                a[block.columns, block.rows] = drawn.T
            loss += _cross_entropy(gram, block, graph.rest)
    sampled = Sampled(a)
    # It does not hold `sampled`, whose handle leads back here. Such a cycle would keep the matrices in memory.
    saved = _Saved(sampled.returned, graph, blend, grams, draws)
    sampled.handle, loss = _SecondView.apply(z, factor, loss * graph.weight, saved)  # type: ignore[no-untyped-call]
    return sampled, loss


class _Saved(NamedTuple):
    """The values that the backward pass needs: Z Z^T and the uniform numbers block by block."""

    returned: list[tuple[Tensor, Tensor]]
    graph: Graph
    blend: float
    grams: list[Tensor]
    draws: list[Tensor]


class _SecondView(torch.autograd.Function):
    """The operation `second_view`, whose gradient is taken in Z and in the factor of Z Z^T."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, factor: Tensor, loss: Tensor, held: _Saved) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(z, factor)
        ctx.held = held
        return z.new_zeros(()), loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, to_loss: Tensor) -> tuple[Tensor | None, ...]:
        z, factor = ctx.saved_tensors
        returned, graph, blend, grams, draws = ctx.held
        both = _symmetrize(returned)
        returned.clear()
        to_z, to_factor = torch.zeros_like(z), torch.zeros_like(factor)
        for block, gram, u in zip(graph.blocks, grams, draws):
            # By pair i <= j: the sum of the gradients at the entries (i, j) and (j, i) of Z Z^T.
            pairs = _cross_entropy_slope(gram, block, graph.rest, to_loss * graph.weight)
            if both is not None:
                to_p = both[0][block.rows] @ both[1][block.columns].T
                to_p *= _bernoulli_slope(_probability(gram, factor, block, blend), u)
                if block.diagonal:
                    to_p.triu_(1)
                to_factor += torch.dot(to_p.flatten(), gram.flatten())
                pairs += to_p.mul_(factor)
            to_z[block.rows].addmm_(pairs, z[block.columns])
            to_z[block.columns].addmm_(pairs.T, z[block.rows])
        return to_z, to_factor, None, None


class _Product(torch.autograd.Function):
    """The product of a sampled graph's operator with X, `[nodes, columns]`, and its gradient."""

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
        # The gradient at A is outer (scale x)^T, and that of the row sums at every entry of a row.
        one = torch.ones_like(to_scale)
        sampled.returned.append(
            (torch.cat([outer, -0.5 * to_scale * sampled.scale**3], 1), torch.cat([sampled.scale * x, one], 1))
        )
        return grad.new_zeros(()), sampled.scale * back, None


def _symmetrize(products: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor] | None:
    """Return two matrices whose product `left right^T` is the sum of the products `p q^T` and their transposes.

    Returns None if there is no product.
    """
    if not products:
        return None
    left, right = (torch.cat(part, dim=1) for part in zip(*products))
    return torch.cat([left, right], dim=1), torch.cat([right, left], dim=1)


def _cross_entropy(gram: Tensor, block: Block, rest: float) -> Tensor:
    """Sum log(1 + e^x) over both entries of a block's pairs, or rest * log(1 + e^-x) for the ones of A^u."""
    zeros, at_ones = _softplus(gram), gram.flatten()[block.pair]
    total = 2 * (zeros.triu() if block.diagonal else zeros).sum()
    if block.diagonal:
        total -= zeros.diagonal().sum()
    return total + (block.ones * (rest * _softplus(-at_ones) - _softplus(at_ones))).sum()


def _softplus(x: Tensor) -> Tensor:
    """Return log(1 + e^x). From 50 on it is x to the last bit, in double precision too."""
    return F.softplus(x, threshold=50)


def _cross_entropy_slope(gram: Tensor, block: Block, rest: float, scale: Tensor) -> Tensor:
    """Return the derivative of `_cross_entropy` by pair, 0 below the diagonal, times a scalar."""
    slope = torch.sigmoid(gram)
    at_ones = slope.flatten()[block.pair]
    slope *= 2 * scale
    if block.diagonal:
        slope.diagonal().mul_(0.5)
        slope.triu_()
    slope.view(-1).index_add_(0, block.pair, scale * block.ones * (rest * (at_ones - 1) - at_ones))
    return slope


def _probability(gram: Tensor, factor: Tensor, block: Block, blend: float) -> Tensor:
    """Return p of equation (1) for the pairs of a block."""
    p = gram * factor
    p.view(-1).index_add_(0, block.pair, block.edge * (1 - blend))
    return p


def _bernoulli_slope(p: Tensor, u: Tensor) -> Tensor:
    """Return the slope of the relaxed Bernoulli in p."""
    u = u.clamp(MARGIN, 1 - MARGIN)
    rest = 1 - u
    slope = torch.addcmul(rest, p, u - rest).square_()
    torch.div(u.mul_(rest), slope, out=slope)
    return slope.mul_(p.sub_(0.5).abs_().le_(0.5 - MARGIN))
