"""Multiply by fixed sparse matrices with a prepared transpose, and sum over groups of rows.

A sparse product is computed by `embedding_bag`: row `i` of `A @ B` is the weighted sum of the rows of `B` that row `i`
of `A` names. On this package's matrices (0/1 features, adjacency) a CPU takes a third of the time of the CSR product of
`torch.sparse`. The call is deterministic, and it is the same on a GPU. The backward pass is the product with the
transpose. The transpose is sorted once, when a backward pass first needs it, since sorting it in every step would cost
more than the product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.nn import kernels, random
from fedrepro.errors import require

LONGEST = 64  # entries that one thread of a GPU sums


@dataclass(frozen=True)
class Pattern:
    """The positions of the entries of a sparse matrix, with compressed rows, and those of its transpose.

    The shapes are `ptr` `[rows + 1]`, `row` and `col` `[entries]`, and for the transpose `ptr_t` `[columns + 1]` and
    `col_t` `[entries]`. `order` `[entries]` sorts values in row order into the transpose's order.
    """

    shape: tuple[int, int]
    ptr: Tensor
    row: Tensor
    col: Tensor

    @classmethod
    def of(cls, row: Tensor, col: Tensor, shape: tuple[int, int]) -> Pattern:
        """Return the pattern of coordinates that are sorted by row."""
        return cls(shape, pointers(row, shape[0]), row, col)

    @cached_property
    def order(self) -> Tensor:
        """Return the indices of the entries, sorted by column."""
        return torch.sort(self.col, stable=True).indices

    @cached_property
    def ptr_t(self) -> Tensor:
        """Return the position in `order` at which each column starts."""
        return pointers(self.col[self.order], self.shape[1])

    @cached_property
    def col_t(self) -> Tensor:
        """Return the rows of the entries in `order`."""
        return self.row[self.order]

    def sum(self, dense: Tensor, value: Tensor | None = None) -> Tensor:
        """Return the product of the matrix with these values in row order, by default ones, and `dense`."""
        return bag(dense, self.col, self.ptr, value, self._pieces if dense.is_cuda else None)

    def sum_t(self, dense: Tensor, value: Tensor | None = None) -> Tensor:
        """Return the product of the transpose with these values in its order, by default ones, and `dense`."""
        return bag(dense, self.col_t, self.ptr_t, value, self._pieces_t if dense.is_cuda else None)

    @cached_property
    def _pieces(self) -> Pieces | None:
        return pieces(self.ptr)

    @cached_property
    def _pieces_t(self) -> Pieces | None:
        return pieces(self.ptr_t)

    @cached_property
    def _numbers(self) -> dict[int, tuple[Tensor, Tensor]]:
        return {}

    def numbers(self, width: int) -> tuple[Tensor, Tensor]:
        """Return `random.golden` of each entry's column modulo `width`, in row order and in the transpose's order."""
        if width not in self._numbers:
            number = random.golden(self.col % width)
            self._numbers[width] = number, number[self.order]
        return self._numbers[width]


class Pieces(NamedTuple):
    """Rows cut into pieces: where each piece starts among the entries, and where each row starts among the pieces."""

    ptr: Tensor
    of_row: Tensor
    number: Tensor


def pieces(ptr: Tensor) -> Pieces | None:
    """Cut rows into pieces of `LONGEST` entries at most, or return None if none is longer."""
    count = ptr.diff()
    if not len(count) or int(count.max()) <= LONGEST:
        return None
    pieces_of = (count + LONGEST - 1) // LONGEST
    of_row = F.pad(pieces_of.cumsum(0), (1, 0))
    row = torch.repeat_interleave(pieces_of)
    number = torch.arange(len(row), device=ptr.device)
    starts = ptr[row] + (number - of_row[row]) * LONGEST
    return Pieces(torch.cat([starts, ptr[-1:]]), of_row, number)


def pointers(sorted_index: Tensor, groups: int) -> Tensor:
    """Return the position at which each group starts in a sorted index, `[groups + 1]`."""
    counts = torch.bincount(sorted_index, minlength=groups)
    return F.pad(counts.cumsum(0), (1, 0))


class _Product(torch.autograd.Function):
    """The product `A @ dense` for a fixed `A`, where the gradient of `dense` is `A^T @ gradient`."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: Sparse) -> Tensor:
        ctx.matrix = matrix
        return matrix.pattern.sum(dense, matrix.value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        pattern = ctx.matrix.pattern
        return pattern.sum_t(grad, ctx.matrix.value_t), None


def bag(dense: Tensor, index: Tensor, ptr: Tensor, value: Tensor | None = None, cut: Pieces | None = None) -> Tensor:
    """Return in row `i` the sum of the rows `index[ptr[i]:ptr[i + 1]]` of `dense`, each times its `value` if given.

    With `cut` the rows are summed piece by piece, as a GPU gives each row of a result to one thread.
    """
    if value is not None and value.dtype != dense.dtype:
        value = value.to(dense.dtype)
    starts = ptr if cut is None else cut.ptr
    out = F.embedding_bag(
        index, dense.contiguous(), starts, mode="sum", per_sample_weights=value, include_last_offset=True
    )
    return out if cut is None else bag(out, cut.number, cut.of_row)


class Sparse:
    """A sparse matrix whose values take no gradient, `[rows, columns]`.

    Args:
        pattern: the positions of the entries.
        value: `[entries]`, in row order.
    """

    def __init__(self, pattern: Pattern, value: Tensor) -> None:
        self.pattern = pattern
        self.value = value

    @cached_property
    def value_t(self) -> Tensor:
        """Return the values in the transpose's order."""
        return self.value[self.pattern.order]

    @classmethod
    def of(cls, row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> Sparse:
        """Return a matrix from coordinates in any order. Entries with equal coordinates add up in a product."""
        order = torch.argsort(row, stable=True)
        return cls(Pattern.of(row[order], col[order], shape), value[order])

    @classmethod
    def from_tensor(cls, x: Tensor) -> Sparse:
        """Return a matrix from a dense tensor or a `torch.sparse_csr` tensor."""
        if x.layout == torch.sparse_csr:
            rows = torch.repeat_interleave(torch.arange(x.shape[0], device=x.device), x.crow_indices().diff())
            return cls(Pattern.of(rows, x.col_indices(), (x.shape[0], x.shape[1])), x.values())
        row, col = x.nonzero(as_tuple=True)
        return cls(Pattern.of(row, col, (x.shape[0], x.shape[1])), x[row, col])

    @property
    def shape(self) -> tuple[int, int]:
        """Return `(rows, columns)`."""
        return self.pattern.shape

    def __matmul__(self, dense: Tensor) -> Tensor:
        require(
            dense.shape[0] == self.shape[1],
            "dense",
            f"of {self.shape[1]} rows to multiply {self.shape}",
            tuple(dense.shape),
        )
        product: Tensor = _Product.apply(dense, self)  # type: ignore[no-untyped-call]
        return product

    def with_values(self, value: Tensor) -> Sparse:
        """Return the same pattern with other values `[entries]`."""
        return Sparse(self.pattern, value)

    def dropped(self, row_key: Tensor, width: int, p: float) -> Sparse:
        """Return the matrix after inverted dropout of its entries.

        Args:
            row_key: a 32-bit key per row, see `random.row_keys`.
            width: columns of one block; an entry is kept by its column within the block.
            p: probability of a zero.
        """
        pattern = self.pattern
        if not kernels.compiled(self.value, len(self.value)):
            kept = random.keep(row_key[pattern.row], pattern.col % width, p)
            return self.with_values(self.value * kept / (1 - p))
        by_row, by_column = pattern.numbers(width)
        drawn = row_key, random.at_least(p), 1 - p
        out = self.with_values(kernels.dropped(self.value, pattern.row, by_row, *drawn))
        # The entries are listed once more, since sorting the result into the transpose's order takes longer.
        out.value_t = kernels.dropped(self.value_t, pattern.col_t, by_column, *drawn)
        return out

    def rows(self, index: Tensor) -> Sparse:
        """Return the rows that `index` names, in its order and with its repetitions."""
        counts = self.pattern.ptr.diff()[index]
        starts = torch.repeat_interleave(self.pattern.ptr[index] - F.pad(counts.cumsum(0), (1, 0))[:-1], counts)
        entries = starts + torch.arange(len(starts), device=index.device)
        row = torch.repeat_interleave(torch.arange(len(index), device=index.device), counts)
        pattern = Pattern.of(row, self.pattern.col[entries], (len(index), self.shape[1]))
        return Sparse(pattern, self.value[entries])

    def blocks(self, block: Tensor, count: int) -> Sparse:
        """Move row `i` into column block `block[i]` of `count` blocks, `[rows, count * columns]`."""
        col = self.pattern.col + block[self.pattern.row] * self.shape[1]
        pattern = Pattern.of(self.pattern.row, col, (self.shape[0], count * self.shape[1]))
        return Sparse(pattern, self.value)

    def cut(self, row: Tensor, col: Tensor, shape: tuple[int, int]) -> Sparse:
        """Return the entries whose row and column have a new index, renumbered.

        Args:
            row, col: the new index of each row and column, increasing, or -1 to leave it out.
            shape: the shape of the result.
        """
        rows, cols = row[self.pattern.row], col[self.pattern.col]
        keep = (rows >= 0) & (cols >= 0)
        return Sparse(Pattern.of(rows[keep], cols[keep], shape), self.value[keep])

    def to(self, device: str | torch.device, dtype: torch.dtype | None = None) -> Sparse:
        """Return a copy on another device or in another floating-point type."""
        here = self.pattern
        moved = Pattern(here.shape, here.ptr.to(device), here.row.to(device), here.col.to(device))
        return Sparse(moved, self.value.to(device, dtype or self.value.dtype))

    def dense(self) -> Tensor:
        """Return the same matrix as a dense tensor."""
        out = self.value.new_zeros(self.shape)
        out.index_put_((self.pattern.row, self.pattern.col), self.value, accumulate=True)
        return out


class _Gather(torch.autograd.Function):
    """The selection `rows[index]`, whose backward pass sums by a prepared transpose instead of scattering."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, pattern: Pattern) -> Tensor:
        ctx.pattern = pattern
        return rows[pattern.col]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        # The width is named, since -1 for it would be ambiguous without rows.
        total = ctx.pattern.sum_t(grad.reshape(len(grad), math.prod(grad.shape[1:])))
        return total.reshape(-1, *grad.shape[1:]), None


class _Pick(torch.autograd.Function):
    """The selection `rows[index]` of different rows, whose backward pass copies each gradient to its row."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = len(rows)
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return grad.new_zeros(ctx.rows, *grad.shape[1:]).index_copy_(0, index, grad), None


def pick(rows: Tensor, index: Tensor) -> Tensor:
    """Return `rows[index]`, where no row is named twice: a GPU then need not sort `index` for the gradient."""
    if not rows.is_cuda:
        return rows[index]
    picked: Tensor = _Pick.apply(rows, index)  # type: ignore[no-untyped-call]
    return picked


class Edges:
    """Edges grouped by target node, for layers that learn their edge weights.

    Args:
        source, target: `[edges]` node indices.
        nodes: number of nodes.
    """

    def __init__(self, source: Tensor, target: Tensor, nodes: int) -> None:
        order = torch.argsort(target, stable=True)
        self.source, self.target, self.nodes = source[order], target[order], nodes
        count = torch.arange(len(source), device=source.device)
        self._by_source = Pattern.of(count, self.source, (len(source), nodes))
        self._by_target = Pattern.of(count, self.target, (len(source), nodes))

    def at_source(self, rows: Tensor) -> Tensor:
        """Return `rows[source]`, `[edges, ...]`."""
        product: Tensor = _Gather.apply(rows, self._by_source)  # type: ignore[no-untyped-call]
        return product

    def at_target(self, rows: Tensor) -> Tensor:
        """Return `rows[target]`, `[edges, ...]`."""
        product: Tensor = _Gather.apply(rows, self._by_target)  # type: ignore[no-untyped-call]
        return product

    def sum(self, messages: Tensor) -> Tensor:
        """Sum the messages that arrive at each node, `[nodes, ...]` from `[edges, ...]`."""
        return sum_groups(messages, self._by_target)

    def max(self, scores: Tensor) -> Tensor:
        """Return the largest score at each node, without gradient, `[nodes, heads]`; 0 if no edge arrives."""
        out = scores.new_zeros(self.nodes, scores.shape[1])
        index = self.target[:, None].expand_as(scores)
        return out.scatter_reduce_(0, index, scores.detach(), "amax", include_self=False)


class SliceProducts(torch.autograd.Function):
    """The products of consecutive groups of rows with one matrix each, as one node of the autograd graph."""

    @classmethod
    def of(cls, x: Tensor, weight: Tensor, counts: list[int]) -> Tensor:
        """Multiply `x` `[rows, in]`, with `counts` rows in each group, by `weight` `[groups, in, out]`."""
        product: Tensor = cls.apply(x, weight, counts)  # type: ignore[no-untyped-call]
        return product

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, counts: list[int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.counts = counts
        out = x.new_empty(x.shape[0], weight.shape[2])
        for rows, w, part in zip(torch.split(x, counts), weight, torch.split(out, counts), strict=True):
            torch.mm(rows, w, out=part)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight = ctx.needs_input_grad[:2]
        grad_x = torch.empty_like(x) if wants_x else None
        grad_weight = torch.empty_like(weight) if wants_weight else None
        start = 0
        for group, count in enumerate(ctx.counts):
            part = slice(start, start + count)
            if grad_x is not None:
                torch.mm(grad[part], weight[group].T, out=grad_x[part])
            if grad_weight is not None:
                torch.mm(x[part].T, grad[part], out=grad_weight[group])
            start += count
        return grad_x, grad_weight, None


class _SumByTarget(torch.autograd.Function):
    """The sum of consecutive rows, which are sorted by target. Its backward pass is a selection."""

    @staticmethod
    def forward(ctx: Any, messages: Tensor, pattern: Pattern) -> Tensor:
        ctx.pattern = pattern
        return pattern.sum_t(messages)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad[ctx.pattern.col], None


def groups_of(index: Tensor, groups: int) -> Pattern:
    """Return the pattern by which `sum_groups` sums rows, from the group of each row `[rows]`."""
    count = torch.arange(len(index) + 1, device=index.device)
    return Pattern((len(index), groups), count, count[:-1], index)


def sum_groups(rows: Tensor, by: Pattern) -> Tensor:
    """Sum rows by group in the order of the rows, `[groups, ...]` from `[rows, ...]`.

    On a CPU the result is that of `index_add`, to the last bit. On a GPU `index_add` adds in the order in which threads
    arrive, and this function adds in the same order as on a CPU.

    Args:
        by: the groups, from `groups_of`.
    """
    width = math.prod(rows.shape[1:])
    total: Tensor = _SumByTarget.apply(rows.reshape(len(rows), width), by)  # type: ignore[no-untyped-call]
    return total.reshape(-1, *rows.shape[1:])
