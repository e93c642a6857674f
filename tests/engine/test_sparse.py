"""Sparse products and sums over edges, against dense NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedrepro.engine.nn import sparse as rules
from fedrepro.engine.nn.sparse import Edges, Pattern, Sparse, groups_of, sum_groups
from fedrepro.errors import ArgumentError

F64 = torch.float64


def matrix(rows: int = 6, columns: int = 5, seed: int = 0) -> np.ndarray:
    """A random matrix with an empty row, an empty column and negative entries."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((rows, columns)) < 0.4, rng.normal(size=(rows, columns)), 0.0)
    dense[2], dense[:, 1] = 0.0, 0.0
    return dense


def sparse(dense: np.ndarray) -> Sparse:
    return Sparse.from_tensor(torch.from_numpy(dense))


@pytest.mark.parametrize("width", [1, 4])
def test_product_and_its_gradient_are_the_dense_ones(width: int) -> None:
    """`A @ B` is NumPy's product, and the gradient of B is A^T times the gradient of the product."""
    a = matrix()
    b = torch.randn(5, width, dtype=F64, requires_grad=True)
    g = torch.randn(6, width, dtype=F64)
    out = sparse(a) @ b
    out.backward(g)
    assert np.abs(out.detach().numpy() - a @ b.detach().numpy()).max() < 1e-12
    assert b.grad is not None
    assert np.abs(b.grad.numpy() - a.T @ g.numpy()).max() < 1e-12


def test_csr_and_dense_tensors_give_the_same_matrix() -> None:
    """Reading a `torch.sparse_csr` tensor or a dense one makes the same entries."""
    dense = torch.from_numpy(matrix())
    assert torch.equal(Sparse.from_tensor(dense.to_sparse_csr()).dense(), dense)
    assert torch.equal(Sparse.from_tensor(dense).dense(), dense)


def test_coordinates_in_any_order_add_up_at_the_same_place() -> None:
    """`Sparse.of` takes unsorted coordinates, and entries at one place are summed in the product."""
    row, col = torch.tensor([2, 0, 2, 1]), torch.tensor([1, 0, 1, 2])
    value = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=F64)
    summed = Sparse.of(row, col, value, (3, 3))
    expected = torch.tensor([[2.0, 0, 0], [0, 0, 4], [0, 4, 0]], dtype=F64)
    assert torch.equal(summed @ torch.eye(3, dtype=F64), expected)
    assert torch.equal(summed.dense(), expected)


def test_rows_follow_the_index_and_its_repetitions() -> None:
    """`rows` gives the named rows in the order asked for, repeated where repeated, and none for an empty index."""
    a = matrix()
    index = torch.tensor([5, 2, 0, 5, 3])
    assert np.array_equal(sparse(a).rows(index).dense().numpy(), a[index.numpy()])
    assert sparse(a).rows(torch.tensor([], dtype=torch.long)).dense().shape == (0, 5)


def test_blocks_multiply_each_row_with_its_own_block() -> None:
    """Row i in block b of a stacked weight gives `a_i W_b`."""
    a, weight = matrix(), np.random.default_rng(1).normal(size=(3, 5, 2))
    block = np.array([0, 0, 1, 2, 2, 2])
    out = sparse(a).blocks(torch.from_numpy(block), 3) @ torch.from_numpy(weight).flatten(0, 1)
    expected = np.stack([a[i] @ weight[block[i]] for i in range(len(a))])
    assert np.abs(out.numpy() - expected).max() < 1e-12


def test_cut_keeps_the_entries_between_kept_rows_and_columns() -> None:
    """`cut` is the dense submatrix of kept rows and columns."""
    a = matrix(6, 6)
    keep = np.array([0, 2, 3, 5])
    new = torch.full((6,), -1)
    new[keep] = torch.arange(4)
    assert np.array_equal(sparse(a).cut(new, new, (4, 4)).dense().numpy(), a[np.ix_(keep, keep)])


def test_values_and_types_can_be_exchanged() -> None:
    """`with_values` keeps the places, `to` the numbers up to the type."""
    a = sparse(matrix())
    assert torch.equal(a.with_values(2 * a.value).dense(), 2 * a.dense())
    low = a.to("cpu", torch.float32)
    assert low.value.dtype == torch.float32
    assert torch.equal(low.dense(), a.dense().float())
    assert (low @ torch.eye(5)).dtype == torch.float32


def test_prepared_transpose_is_the_transpose() -> None:
    """The second half of a pattern lists the same entries by column."""
    a = matrix()
    prepared = sparse(a)
    pattern: Pattern = prepared.pattern
    counts = np.diff(pattern.ptr_t.numpy())
    back = np.zeros((5, 6))
    back[np.repeat(np.arange(5), counts), pattern.col_t.numpy()] = prepared.value_t.numpy()
    assert np.array_equal(back, a.T)


def test_a_product_of_wrong_size_is_refused() -> None:
    """A dense factor with another number of rows is an `ArgumentError` that names both sizes."""
    with pytest.raises(ArgumentError, match=r"5 rows to multiply \(6, 5\)"):
        _ = sparse(matrix()) @ torch.ones(4, 2, dtype=F64)


def edges() -> tuple[Edges, Tensor, Tensor]:
    """Seven edges on five nodes in no order; nothing arrives at node 3, node 4 is touched by none."""
    source = torch.tensor([0, 1, 2, 0, 3, 1, 2])
    target = torch.tensor([1, 0, 1, 2, 2, 1, 0])
    return Edges(source, target, 5), source, target


def test_edge_values_are_taken_from_the_right_ends() -> None:
    """`at_source` and `at_target` are indexing, and their gradients the sums over a node's edges."""
    made, _, _ = edges()
    rows = torch.randn(5, 2, 3, dtype=F64, requires_grad=True)
    for ends, take in ((made.source, made.at_source), (made.target, made.at_target)):
        assert torch.equal(take(rows), rows[ends])
        g = torch.randn(7, 2, 3, dtype=F64)
        (found,) = torch.autograd.grad(take(rows), rows, g)
        expected = torch.stack([g[ends == node].sum(0) for node in range(5)])
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def test_edges_stay_pairs_when_they_are_sorted() -> None:
    """Grouping by target loses no pair of ends."""
    made, source, target = edges()
    given = sorted(zip(source.tolist(), target.tolist(), strict=True))
    assert sorted(zip(made.source.tolist(), made.target.tolist(), strict=True)) == given


def test_messages_are_summed_at_their_target() -> None:
    """`sum` adds the messages of each target, 0 where none arrives; its gradient is the target's."""
    graph, _, _ = edges()
    messages = torch.randn(7, 3, dtype=F64, requires_grad=True)
    total = graph.sum(messages)
    expected = torch.stack([messages[graph.target == node].sum(0) for node in range(5)])
    assert torch.allclose(total, expected, rtol=0, atol=1e-12)
    g = torch.randn(5, 3, dtype=F64)
    (gradient,) = torch.autograd.grad(total, messages, g)
    assert torch.equal(gradient, g[graph.target])


@pytest.mark.parametrize("nodes", [0, 3])
def test_no_edges_sum_to_nothing(nodes: int) -> None:
    """Without edges every sum and every gradient is 0, with nodes and without."""
    none = torch.zeros(0, dtype=torch.long)
    graph, rows = Edges(none, none, nodes), torch.randn(nodes, 2, 4, dtype=F64, requires_grad=True)
    messages = graph.at_source(rows) + graph.at_target(rows)
    total = graph.sum(messages)
    assert messages.shape == (0, 2, 4) and torch.equal(total, torch.zeros(nodes, 2, 4, dtype=F64))
    (gradient,) = torch.autograd.grad(total.sum(), rows)
    assert torch.equal(gradient, torch.zeros(nodes, 2, 4, dtype=F64))


def test_largest_score_is_that_of_the_target() -> None:
    """`max` is the largest arriving score per head, negative ones too, and 0 where nothing arrives."""
    graph, _, _ = edges()
    scores = torch.randn(7, 2, dtype=F64) - 5
    largest = graph.max(scores)
    for node in range(5):
        arriving = scores[graph.target == node]
        expected = arriving.max(0).values if len(arriving) else torch.zeros(2, dtype=F64)
        assert torch.equal(largest[node], expected)


def test_a_value_that_is_no_number_stays_in_its_row() -> None:
    """A NaN in one dense row reaches only the rows of the product that use it."""
    a = matrix()
    b = torch.ones(5, 2, dtype=F64)
    b[3] = torch.nan
    touched = torch.from_numpy(a[:, 3] != 0)
    out = sparse(a) @ b
    assert torch.equal(out.isnan().all(1), touched)
    assert 0 < int(touched.sum()) < 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (16,), (33,), (3, 5)])
def test_groups_are_summed_as_index_add_does(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Sums over unsorted groups, an empty one among them, and their gradient are those of `index_add` to the bit."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(500, *shape, generator=draw, dtype=dtype).requires_grad_()
    index = torch.randint(6, (500,), generator=draw)
    sums = sum_groups(rows, groups_of(index, 7))
    expected = rows.new_zeros(7, *shape).index_add(0, index, rows)
    assert torch.equal(sums, expected)
    (grad,), (wanted,) = (torch.autograd.grad(total.square().sum(), [rows]) for total in (sums, expected))
    assert torch.equal(grad, wanted)
    assert not torch.equal(sum_groups(rows.flip(0), groups_of(index.flip(0), 7)), expected)
    assert torch.equal(sum_groups(rows[:0], groups_of(index[:0], 7)), torch.zeros(7, *shape, dtype=dtype))


@pytest.mark.parametrize("longest", [1, 3, 64])
def test_rows_in_pieces(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long rows are summed piece by piece, to what one sum gives within rounding; empty rows stay 0."""
    monkeypatch.setattr(rules, "LONGEST", longest)
    rng = np.random.default_rng(0)
    counts = [0, 5, 1, 0, 200, 3, 0]
    ptr = torch.tensor(np.cumsum([0, *counts]))
    col, value = torch.tensor(rng.integers(0, 9, sum(counts))), torch.tensor(rng.normal(size=sum(counts)))
    dense = torch.tensor(rng.normal(size=(9, 4)))
    cut = rules.pieces(ptr)
    assert cut is not None and int(cut.ptr.diff().max()) <= longest and len(cut.of_row) == len(ptr)
    expected = np.zeros((len(counts), 4))
    for row, start in enumerate(ptr[:-1].tolist()):
        for entry in range(start, start + counts[row]):
            expected[row] += float(value[entry]) * dense[int(col[entry])].numpy()
    np.testing.assert_allclose(rules.bag(dense, col, ptr, value, cut).numpy(), expected, atol=1e-12)
    assert rules.pieces(torch.tensor([0, 1, 1, 2])) is None and rules.pieces(torch.tensor([0])) is None


def test_picking_different_rows() -> None:
    """The selection that a GPU takes has the values and the gradient of an index."""
    rows = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    index, weight = torch.tensor([4, 0, 6]), torch.arange(9.0).view(3, 3)
    results = []
    for select in (lambda x: x[index], lambda x: rules._Pick.apply(x, index)):
        leaf = rows.clone().requires_grad_()
        chosen = select(leaf)
        (chosen * weight).sum().backward()
        results.append((chosen.detach(), leaf.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
