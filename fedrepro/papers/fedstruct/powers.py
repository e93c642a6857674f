"""Compute powers of A^ = D~^-1 (A+I) as FedStruct's clients obtain them, and A- = sum_l beta_l A^^l (Eq. 2 and 32).

For the l-th power client k computes B_ijk = A~_k^[i] [A^_j^[k]]^(l-1) for every pair (i, j) of clients and sends it to
client i. The rows of client i in the l-th power are then D~^-1 sum_k B_ijk (Eq. 34 to 37). This module handles all i
and j at once for each k. `fedrepro.papers.fedstruct.protocol` does the same exchange block by block.

The paper gives two rules for pruning a power (FS-Q9). Neither says whether rows are scaled up again. They are not here,
as in the authors' code. Each client computes its rows of A^ by itself, so the first power is never pruned.

    "matrix"  Keep the p n largest entries of each power (Section 5.3, the authors' code). No single client could tell
              which entries these are, so B_ijk is sent unpruned.
    "blocks"  Client k sends the ceil(p / K) n_i largest entries of each B_ijk (Appendix D).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, diags
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.client_graphs import Source
from fedrepro.engine.nn import random
from fedrepro.errors import one_of, require

BUDGETS = ("matrix", "blocks")
Ids = npt.NDArray[np.int64]


class Power(NamedTuple):
    """A power as the clients hold it.

    Args:
        matrix: the rows of all clients together, `[nodes, nodes]`.
        sent: values that clients sent each other to compute it from the power before. Each comes with two indices.
    """

    matrix: csr_matrix
    sent: int


def with_loops(data: Data) -> csr_matrix:
    """Return A~ = A + I, `[target, source]`, with exactly one self-loop per node."""
    source, target = data.edge_index.cpu().numpy()
    is_edge, loops = source != target, np.arange(int(data.num_nodes))
    row, col = np.concatenate([target[is_edge], loops]), np.concatenate([source[is_edge], loops])
    return csr_matrix((np.ones(len(row)), (row, col)), shape=(len(loops), len(loops)))


def transition(data: Data) -> csr_matrix:
    """Return A^ = D~^-1 A~, `[nodes, nodes]`, whose rows sum to 1."""
    a = with_loops(data)
    return (diags(1.0 / np.asarray(a.sum(1)).ravel()) @ a).tocsr()


def owners(parts: Sequence[Tensor], nodes: int) -> Ids:
    """Return the client that holds each node, `[nodes]`.

    Raises:
        ArgumentError: no client holds a node, or more than one does.
    """
    counts = np.zeros(nodes, dtype=np.int64)
    owner = np.full(nodes, -1)
    for client, part in enumerate(parts):
        owner[part.numpy()] = client
        counts[part.numpy()] += 1
    require(
        bool((counts == 1).all()), "partition", "disjoint and of all nodes for FedStruct", np.unique(counts).tolist()
    )
    return owner


def powers(data: Data, parts: Sequence[Tensor], depth: int, prune: int, budget: str = "matrix") -> Iterator[Power]:
    """Yield the powers 1 to `depth`, pruned after each multiplication.

    Args:
        data: the whole graph.
        parts: the nodes of each client.
        depth: the last power, L_s.
        prune: p; 0 keeps every entry, and rows then fill in to `nodes` entries.
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
    """Return A- = sum_l beta[l] A^^l over l = 0, 1, ..., and how many values clients send each other for it."""
    n = int(data.num_nodes)
    total, sent = csr_matrix(diags(np.full(n, float(beta[0])))), 0
    further = powers(data, parts, len(beta) - 1, prune, budget) if len(beta) > 1 else iter(())
    for number, power in enumerate(further, start=1):
        sent += power.sent
        if beta[number]:
            total = total + beta[number] * power.matrix
    total = total.tocsr()
    total.eliminate_zeros()
    total.sort_indices()
    return total, sent


def largest(m: csr_matrix, count: int) -> csr_matrix:
    """Keep the `count` largest entries.

    A hash of row and column decides among equal entries, so that no client's nodes come first.
    """
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
    """Keep the `quota[i]` largest entries of each block (i, j), the rows of client i and the columns of client j."""
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


# -- the sizes of messages --------------------------------------------------------------------------------------------


def full_blocks(source: Source, depth: int) -> float:
    """Return the scalars of the unpruned B_ijk, k other than i, of the powers 2 to `depth`.

    A row of B_i.k that has an edge to client k is sent whole, one scalar for every node of the graph. Other rows are
    zero and are not sent.
    """
    a, n = with_loops(source.data), int(source.data.num_nodes)
    owner = owners(source.parts, n)
    entries = a.tocoo()
    reached = np.unique(entries.row.astype(np.int64) * len(source.parts) + owner[entries.col])
    rows = int((reached % len(source.parts) != owner[reached // len(source.parts)]).sum())
    return float(max(depth - 1, 0)) * rows * n


def rows_elsewhere(source: Source) -> float:
    """Return the number of pairs (v, u) of a client's training node v and a node u of another client."""
    sizes = [len(part) for part in source.parts]
    train = [int(source.data.train_mask[part].sum()) for part in source.parts]
    return float(sum(t * (sum(sizes) - n) for t, n in zip(train, sizes, strict=True)))


def crossing(m: csr_matrix, source: Source) -> float:
    """Return the number of entries of A- in rows of training nodes whose column belongs to another client."""
    owner, entries = owners(source.parts, m.shape[0]), m.tocoo()
    labelled = source.data.train_mask.cpu().numpy()[entries.row]
    return float((labelled & (owner[entries.row] != owner[entries.col])).sum())
