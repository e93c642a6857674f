"""Compare the powers that clients obtain with dense matrix powers, and the pruned ones with a search by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import block_model, dense_operator
from graphs import unequal_parts as parts_of
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.errors import ArgumentError
from fedrepro.papers.fedstruct import powers

NODES, CLIENTS = 48, 4


def graph() -> tuple[Data, list[Tensor]]:
    return block_model(NODES), parts_of(NODES, CLIENTS)


def test_unpruned_powers_are_the_matrix_powers() -> None:
    """Powers computed from blocks client by client equal those of the dense matrix to 1e-14, and have row sums 1."""
    data, parts = graph()
    step = dense_operator("row", data.edge_index, NODES)
    for number, power in enumerate(powers.powers(data, parts, 6, 0), start=1):
        assert np.abs(power.matrix.toarray() - np.linalg.matrix_power(step, number)).max() < 1e-14
        assert np.abs(power.matrix.sum(1) - 1).max() < 1e-14


def test_the_largest_entries_of_a_power_are_kept() -> None:
    """A power keeps p n entries, none smaller than one left out, and they are not scaled up."""
    data, parts = graph()
    p, before = 3, dense_operator("row", data.edge_index, NODES)
    step = before
    for power in list(powers.powers(data, parts, 5, p))[1:]:
        whole, kept = step @ before, power.matrix.toarray()
        assert power.matrix.nnz == p * NODES == (kept > 0).sum()
        assert np.abs((kept - whole)[kept > 0]).max() < 1e-14
        assert whole[kept > 0].min() >= whole[kept == 0].max() - 1e-14
        before = kept


def test_the_largest_entries_of_each_block_are_kept() -> None:
    """Client k sends at most ceil(p / K) n_i numbers of each block, none smaller than one left out."""
    data, parts = graph()
    p, a = 5, dense_operator("row", data.edge_index, NODES)
    loops = (a > 0).astype(float)
    quota = [-(-p // CLIENTS) * len(part) for part in parts]
    second = list(powers.powers(data, parts, 2, p, "blocks"))[1]
    expected, sent = np.zeros((NODES, NODES)), 0
    held = [part.numpy() for part in parts]
    sums = {}
    for i, rows in enumerate(held):
        for j, cols in enumerate(held):
            for k, through in enumerate(held):
                b = loops[np.ix_(rows, through)] @ a[np.ix_(through, cols)]
                entries = np.sort(b[b > 0])[::-1][: quota[i]]
                sums[i, j] = sums.get((i, j), 0) + entries.sum()
                sent += len(entries) if i != k else 0
            expected[np.ix_(rows, cols)] = sums[i, j]
    degree = loops.sum(1)
    kept = second.matrix.toarray() * degree[:, None]
    for i, rows in enumerate(held):
        for j, cols in enumerate(held):
            assert abs(kept[np.ix_(rows, cols)].sum() - sums[i, j]) < 1e-12  # ties aside, the same entries
    assert second.sent == sent
    assert second.matrix.nnz < (a @ a > 0).sum()


def test_ties_do_not_favour_low_numbers() -> None:
    """On a cycle all rows are alike, and the entries that are kept are spread over them."""
    n = 200
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    data = Data(edge_index=torch.cat([ring, ring.flip(0)], 1), num_nodes=n)
    pruned = list(powers.powers(data, [torch.arange(n)], 2, 2))[1].matrix  # 5 entries a row: 3/9, 2 of 2/9, 2 of 1/9
    per_row = np.diff(pruned.indptr)
    halves = per_row[: n // 2].sum(), per_row[n // 2 :].sum()
    assert pruned.nnz == 2 * n and max(halves) < 1.15 * min(halves)
    assert pruned.data.min() > 0.2


@pytest.mark.parametrize("budget", powers.BUDGETS)
def test_the_error_falls_with_p(budget: str) -> None:
    """The error reaches zero once everything is kept."""
    data, parts = graph()
    full = list(powers.powers(data, parts, 4, 0))[-1].matrix.toarray()
    errors = []
    for p in (2, 6, 15, CLIENTS * NODES):
        kept = list(powers.powers(data, parts, 4, p, budget))[-1].matrix.toarray()
        errors.append(np.linalg.norm(kept - full) / np.linalg.norm(full))
    assert errors[0] > errors[1] > errors[2] > errors[3] and errors[3] < 1e-14


def test_a_partition_must_cover_each_node_once() -> None:
    """A partition with overlapping or missing nodes is refused."""
    data, parts = graph()
    for wrong in (parts[:-1], [*parts, parts[0]]):
        with pytest.raises(ArgumentError, match="disjoint"):
            next(powers.powers(data, wrong, 2, 0))
