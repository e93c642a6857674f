"""Powers of A^ = D~^-1 (A+I) as FedStruct's clients obtain them, and their sum A- = sum_l beta_l A^^l (Eq. 2, 32).

Client k computes B_ijk = A~_k^[i] [A^_j^[k]]^(l-1) for every pair (i, j) and sends it to client i, whose rows of the
next power are D~^-1 sum_k B_ijk (Eq. 34 to 37). Here all i and j are handled at once for each k; the same exchange
block by block is `fedrepro.papers.fedstruct.protocol`.

FS-Q9, how a power is pruned. The paper gives two rules; neither says whether rows are scaled up again, and they are
not here, as in the authors' code. Each client knows its own rows of A^ itself, so the first power is never pruned.

    "matrix"  the p n largest entries of each power (Section 5.3, the authors' code). No single client could tell which
              these are, so B_ijk travels whole.
    "blocks"  client k sends the ceil(p / K) n_i largest entries of each B_ijk (Appendix D)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, diags
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.nn import random
from fedrepro.errors import one_of, require

BUDGETS = ("matrix", "blocks")
Ids = npt.NDArray[np.int64]


class Power(NamedTuple):
    """A power as the clients hold it, all their rows together `[nodes, nodes]`, and the numbers that had to be sent
    from client to client to make it of the one before (each comes with two indices).
    """

    matrix: csr_matrix
    sent: int


def with_loops(data: Data) -> csr_matrix:
    """A~ = A + I, `[target, source]`; exactly one self-loop per node."""
    source, target = data.edge_index.cpu().numpy()
    proper, every = source != target, np.arange(int(data.num_nodes))
    row, col = np.concatenate([target[proper], every]), np.concatenate([source[proper], every])
    return csr_matrix((np.ones(len(row)), (row, col)), shape=(len(every), len(every)))


def transition(data: Data) -> csr_matrix:
    """A^ = D~^-1 A~, `[nodes, nodes]`; rows sum to 1."""
    a = with_loops(data)
    return (diags(1.0 / np.asarray(a.sum(1)).ravel()) @ a).tocsr()


def owners(parts: Sequence[Tensor], nodes: int) -> Ids:
    """Which client holds each node, `[nodes]`.

    Raises:
        ArgumentError: a node is held by none, or by more than one.
    """
    held = np.zeros(nodes, dtype=np.int64)
    owner = np.full(nodes, -1)
    for client, part in enumerate(parts):
        owner[part.numpy()] = client
        held[part.numpy()] += 1
    require(bool((held == 1).all()), "partition", "disjoint and of all nodes for FedStruct", np.unique(held).tolist())
    return owner


def powers(data: Data, parts: Sequence[Tensor], depth: int, prune: int, budget: str = "matrix") -> Iterator[Power]:
    """The powers 1 to `depth`, pruned after each multiplication.

    Args:
        prune: p; 0 keeps every entry, which fills in to `nodes` entries a row.
        budget: one of `BUDGETS`.
    """
    require(depth >= 1, "structure_depth", "at least 1", depth)
    require(prune >= 0, "prune", "0 (full) or positive", prune)
    one_of("budget", budget, BUDGETS)
    a = with_loops(data)
    owner = owners(parts, a.shape[0])
    inverse = diags(1.0 / np.asarray(a.sum(1)).ravel())
    held = [part.numpy() for part in parts]
    columns = [a[:, part].tocsr() for part in held]
    quota = -(-prune // len(parts)) * np.array([len(part) for part in held])
    power = (inverse @ a).tocsr()
    yield Power(power, 0)
    for _ in range(2, depth + 1):
        total, sent = csr_matrix(a.shape), 0
        for k, part in enumerate(held):
            b = (columns[k] @ power[part]).tocsr()
            if prune and budget == "blocks":
                b = largest_by_block(b, owner, quota)
            sent += int(np.diff(b.indptr)[owner != k].sum())
            total = total + b
        power = (inverse @ total).tocsr()
        if prune and budget == "matrix":
            power = largest(power, prune * a.shape[0])
        yield Power(power, sent)


def combined(
    data: Data, parts: Sequence[Tensor], beta: Sequence[float], prune: int, budget: str = "matrix"
) -> tuple[csr_matrix, int]:
    """A- = sum_l beta[l] A^^l over l = 0, 1, ..., and the numbers sent for it."""
    n = int(data.num_nodes)
    total, sent = csr_matrix(diags(np.full(n, float(beta[0])))), 0
    made = powers(data, parts, len(beta) - 1, prune, budget) if len(beta) > 1 else iter(())
    for number, power in enumerate(made, start=1):
        sent += power.sent
        if beta[number]:
            total = total + beta[number] * power.matrix
    total = total.tocsr()
    total.eliminate_zeros()
    total.sort_indices()
    return total, sent


def largest(m: csr_matrix, count: int) -> csr_matrix:
    """The `count` largest entries. Of equal ones a hash of row and column decides, so no client's nodes come first."""
    if m.nnz <= count:
        return m
    entries = m.tocoo()
    limit = np.partition(entries.data, -count)[-count]
    keep = entries.data > limit
    equal = np.flatnonzero(entries.data == limit)
    order = np.argsort(_tie(entries.row[equal], entries.col[equal]), kind="stable")
    keep[equal[order[: count - int(keep.sum())]]] = True
    return _picked(entries, keep)


def largest_by_block(m: csr_matrix, owner: Ids, quota: Ids) -> csr_matrix:
    """The `quota[i]` largest entries of each block (i, j), the rows of client i and columns of client j."""
    entries, clients = m.tocoo(), len(quota)
    group = owner[entries.row] * clients + owner[entries.col]
    counts = np.bincount(group, minlength=clients * clients)
    if bool((counts <= np.repeat(quota, clients)).all()):
        return m
    order = np.lexsort((_tie(entries.row, entries.col), -entries.data, group))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return _picked(entries, rank < quota[owner[entries.row]])


def _tie(row: Ids, col: Ids) -> npt.NDArray[np.uint64]:
    return random.keys("equal entries", row.astype(np.int64), col.astype(np.int64))


def _picked(entries: csr_matrix, keep: npt.NDArray[np.bool_]) -> csr_matrix:
    return csr_matrix((entries.data[keep], (entries.row[keep], entries.col[keep])), shape=entries.shape)
