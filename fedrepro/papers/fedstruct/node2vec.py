"""Embed nodes by Node2Vec (Grover and Leskovec 2016), from biased random walks and without a compiled extension.

Walks are drawn for all start nodes at once. Training follows the library version that FedStruct used. There is one
table z. Each walk is cut into windows, and the first node u of a window is paired with each later node v:

    loss = - mean over pairs of walks log sigma(z_u . z_v) - mean over pairs of random nodes log(1 - sigma(z_u . z_v))

Adam moves only the rows that a batch touches. All pairs of a walk come from one small matrix product, so the gradient
is written out instead of gathering every pair.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from fedrepro.engine.nn import random
from fedrepro.errors import require

Ids = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
# Proposals for one step of a walk; after these the last one is taken.
PROPOSALS = 64


def walks(a: csr_matrix, starts: Ids, length: int, p: float = 1.0, q: float = 1.0, *key: int | str) -> Ids:
    """Draw second-order random walks of `length` nodes, `[starts, length]`. A walk stays at a node without edges.

    From t through v to x, a neighbour of v, the weight is 1/p if x = t, 1 if x is joined to t, and else 1/q. The next
    node is proposed uniformly and accepted with its weight over the largest.

    Args:
        a: symmetric 0/1 matrix with sorted indices.
        starts: first nodes of the walks.
        length: nodes of a walk.
        p: return parameter.
        q: in-out parameter.
        key: values that the random numbers depend on, next to walk and step.
    """
    require(p > 0 and q > 0, "p and q", "positive", (p, q))
    require(length >= 1, "length", "at least 1", length)
    out = np.empty((len(starts), length), dtype=np.int64)
    out[:, 0] = starts
    for step in range(1, length):
        now = out[:, step - 1]
        before = out[:, step - 2] if step > 1 else None
        out[:, step] = _next(a, now, before, p, q, "walk", *key, step)
    return out


def _next(a: csr_matrix, now: Ids, before: Ids | None, p: float, q: float, *key: int | str) -> Ids:
    degree = np.diff(a.indptr)[now]
    chosen = now.copy()
    open_ = np.flatnonzero(degree > 0)
    plain = before is None or p == q == 1
    largest = max(1 / p, 1.0, 1 / q)
    for attempt in range(PROPOSALS):
        draw = random.uniform((2, len(now)), *key, attempt).numpy()[:, open_]
        entry = a.indptr[now[open_]] + np.floor(draw[0] * degree[open_]).astype(np.int64)
        x = a.indices[entry].astype(np.int64)
        chosen[open_] = x
        if plain:
            break
        assert before is not None
        t = before[open_]
        weight = np.where(x == t, 1 / p, np.where(joined(a, t, x), 1.0, 1 / q))
        open_ = open_[draw[1] * largest >= weight]
        if not len(open_):
            break
    return chosen


def joined(a: csr_matrix, u: Ids, v: Ids) -> npt.NDArray[np.bool_]:
    """Return True for each pair that is an edge."""
    return np.asarray(a[u, v]).ravel() > 0


def embed(
    a: csr_matrix,
    width: int = 256,
    *,
    epochs: int = 50,
    length: int = 20,
    context: int = 10,
    per_node: int = 10,
    negatives: int = 1,
    p: float = 1.0,
    q: float = 1.0,
    lr: float = 0.01,
    batch: int = 128,
    seed: int = 0,
) -> Tensor:
    """Return the table after training, `[nodes, width]`, float32; a function of the graph and the seed.

    Args:
        a: symmetric 0/1 matrix with sorted indices.
        width: columns of the table.
        epochs: passes over all start nodes.
        length: nodes of a walk.
        context: nodes of a window.
        per_node: walks from each node in an epoch.
        negatives: random walks for each real one.
        p: return parameter of the walks.
        q: in-out parameter of the walks.
        lr: learning rate of Adam.
        batch: start nodes of a step.
        seed: seed of the table and of the walks.
    """
    require(2 <= context <= length, "context", f"from 2 to the walk's length {length}", context)
    nodes = a.shape[0]
    table = random.normal((nodes, width), "node2vec table", seed).float()
    rule = _RowAdam(table, lr)
    steps = -(-nodes // batch)
    for epoch in range(epochs):
        order = random.uniform((nodes,), "node2vec order", seed, epoch).argsort().numpy()
        for step in range(steps):
            starts = np.tile(order[step * batch : (step + 1) * batch], per_node)
            real = walks(a, starts, length, p, q, "node2vec", seed, epoch, step)
            unreal = unrelated(np.tile(starts, negatives), nodes, length, "node2vec noise", seed, epoch, step)
            parts = [gradient(table, torch.from_numpy(w), context, sign) for w, sign in ((real, 1), (unreal, -1))]
            rule.step(torch.cat([rows for rows, _, _ in parts]), torch.cat([grad for _, grad, _ in parts]))
    return table


def unrelated(starts: Ids, nodes: int, length: int, *key: int | str) -> Ids:
    """Return the start nodes, each followed by nodes drawn uniformly, `[starts, length]`."""
    drawn = random.uniform((len(starts), length - 1), *key).numpy()
    return np.concatenate([starts[:, None], np.floor(drawn * nodes).astype(np.int64)], 1)


def gradient(table: Tensor, walk: Tensor, context: int, sign: int) -> tuple[Tensor, Tensor, float]:
    """Return the rows of the table that a loss touches (a row may repeat), its gradient at each, and the loss.

    Args:
        table: embeddings `[nodes, width]`.
        walk: node ids `[walks, length]`.
        context: nodes of a window.
        sign: 1 for `-log sigma(z_u . z_v)`, -1 for `-log(1 - sigma(z_u . z_v))`.
    """
    length = walk.shape[1]
    firsts = length - context + 1
    z = table[walk]
    score = torch.bmm(z[:, :firsts], z.transpose(1, 2))
    offset = torch.arange(length)[None] - torch.arange(firsts)[:, None]
    pair = ((offset > 0) & (offset < context)).to(score.dtype)
    count = float(pair.sum()) * len(walk)
    loss = float((torch.nn.functional.softplus(-sign * score) * pair).sum()) / count
    slope = torch.sigmoid(-sign * score) * pair * (-sign / count)
    grad = torch.bmm(slope.transpose(1, 2), z[:, :firsts])
    grad[:, :firsts] += torch.bmm(slope, z)
    return walk.flatten(), grad.flatten(0, 1), loss


class _RowAdam:
    """An Adam whose weights move, and whose moments decay, only in rows that have a gradient ("sparse Adam")."""

    def __init__(self, table: Tensor, lr: float) -> None:
        self.table, self.lr, self.count = table, lr, 0
        self.first, self.second = torch.zeros_like(table), torch.zeros_like(table)

    def step(self, rows: Tensor, grad: Tensor) -> None:
        """Move by the sum of the gradients given for each row."""
        self.count += 1
        touched, index = torch.unique(rows, return_inverse=True)
        total = grad.new_zeros(len(touched), grad.shape[1]).index_add_(0, index, grad)
        first = self.first[touched].lerp_(total, 0.1)
        second = self.second[touched].mul_(0.999).addcmul_(total, total, value=0.001)
        self.first[touched], self.second[touched] = first, second
        size = self.lr * (1 - 0.999**self.count) ** 0.5 / (1 - 0.9**self.count)
        self.table[touched] -= size * first / (second.sqrt_().add_(1e-8))
