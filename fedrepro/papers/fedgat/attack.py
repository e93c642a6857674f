"""What a client learns from FedGAT's messages: every neighbour's feature vector (FG-I6, FG-Q7).

Section 5 says that the matrices reveal sums over a neighbourhood and never one node's features. They do not protect
them. Each U_j has rank one, U_j = p_j q_j^T, so every combination of the M's that a client can form,

    D = sum_s b1(s) M1(s) + b2(s) M2(s) = sum_j x_j p_j q_j^T,

has the q_j among its left eigenvectors, and q_j is orthogonal to all u_1k but its own. Hence, for each neighbour j,

    q_j^T K2 / q_j^T K1 = h_j^T.

This takes one node's message, one eigendecomposition, and no other knowledge. In the Vector form no eigenvector is
needed: M2 K2 = sum_j h_j u_j^T, where u_j has a single one, so the columns of M2 K2 are the neighbours' features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.data import datasets, partition
from fedrepro.engine.nn import random
from fedrepro.errors import one_of
from fedrepro.papers.fedgat import protocol
from fedrepro.papers.fedgat.protocol import MatrixMessage, Message, VectorMessage
from fedrepro.runs.run import Run

RECOVERED = 1e-8  # largest error of a feature vector that counts as recovered exactly
LONE = ("kept", "dropped")
LARGE = 41  # neighbours, the node itself among them, beyond which a message comes in blocks


# -- the attack -------------------------------------------------------------------------------------------------------


def recover(send: Callable[[], Iterable[Message]], own: Tensor) -> Tensor:
    """The features of a node's neighbours, itself among them, from its message alone: `[g, features]`, in no order.

    Args:
        send: the parts of the message, anew at every call.
        own: h_i `[features]`, which the client holds.
    """
    head = next(iter(send()))
    if isinstance(head, VectorMessage):
        return _recover_vector(head)
    return _recover_matrix(send, own)


def _recover_matrix(send: Callable[[], Iterable[Message]], own: Tensor) -> Tensor:
    first = next(iter(send()))
    assert isinstance(first, MatrixMessage)
    k1 = first.k1
    g = len(k1) // 2
    k2 = torch.cat([part.k2 for part in send() if isinstance(part, MatrixMessage)], 1)
    # b2 in the row space of K2, which the neighbours' features span: no other direction carries more than noise
    span = torch.linalg.svd(k2, full_matrices=False).Vh[:g]
    b2 = random.normal((1, len(span)), "attack").to(span) @ span
    # b1 so that M1 adds 8 to every eigenvalue that belongs to a neighbour, and none to the others
    square = float(own @ own)
    b1 = 8.0 / square * own[None] if square else torch.zeros_like(own)[None]
    d, _ = protocol.combination(send(), b1, b2)
    values, vectors = torch.linalg.eig(d[0].T)
    left = vectors[:, values.abs().argsort(descending=True)[:g]].T
    share = left @ k1.to(left.dtype)
    return torch.real((left @ k2.to(left.dtype)) / share[:, None])


def _recover_vector(message: VectorMessage) -> Tensor:
    columns = (message.m2 @ message.k2).T
    kept = columns.norm(dim=1).argsort(descending=True)[: len(message.k3) // 2]
    return columns[kept]


def paired(found: Tensor, truth: Tensor) -> Tensor:
    """The recovered vectors in the order of the true ones, so that the total distance is least: `[g, features]`.

    Only measuring the attack needs this; the attacker does not.
    """
    from scipy.optimize import linear_sum_assignment

    found = torch.nan_to_num(found, nan=1e6, posinf=1e6, neginf=-1e6)
    _, guess = linear_sum_assignment(torch.cdist(truth, found).numpy())
    return found[guess]


def words_found(found: Tensor, truth: Tensor) -> Tensor:
    """For each pair of vectors, the share of the true one's k non-zero features among the k largest found: `[g]`."""
    shares = []
    for guess, true in zip(found, truth):
        words = true.nonzero().squeeze(1)
        best = guess.argsort(descending=True)[: len(words)]
        shares.append(torch.isin(words, best).double().mean() if len(words) else true.new_ones(()))
    return torch.stack(shares)


# -- the defences -----------------------------------------------------------------------------------------------------


def noisy(message: Message, sigma: float, seed: int) -> Message:
    """The message with independent normal noise of standard deviation `sigma` on every number."""
    if sigma == 0:
        return message
    first = message.first if isinstance(message, MatrixMessage) else 0
    generator = torch.Generator().manual_seed(int(random.keys("defence", seed, message.node, first) >> np.uint64(1)))
    changed: dict[str, Any] = {
        name: part + sigma * torch.randn(part.shape, generator=generator, dtype=part.dtype)
        for name, part in vars(message).items()
        if isinstance(part, Tensor)
    }
    return replace(message, **changed)


def without_lone(near: list[np.ndarray], owner: np.ndarray) -> list[np.ndarray]:
    """Neighbourhoods by the one-neighbour rule (l.250 of Section 5): a node's only neighbour elsewhere is dropped."""
    kept = []
    for node, ids in enumerate(near):
        away = owner[ids] != owner[node]
        kept.append(ids[~away] if away.sum() == 1 else ids)
    return kept


# -- on a graph -------------------------------------------------------------------------------------------------------


class Scene(NamedTuple):
    """A partitioned graph: its data, which client owns a node, the full neighbourhoods and dense features."""

    data: Data
    owner: np.ndarray
    near: list[np.ndarray]
    x: Tensor


def scene(run: Run) -> Scene:
    """The graph of a run in float64."""
    data = datasets.assemble(run.dataset, run.prepare, run.split, run.seed)
    owner = np.empty(data.num_nodes, dtype=np.int64)
    for client, part in enumerate(partition.partition(data, run.partition, run.clients, run.seed)):
        owner[part.numpy()] = client
    x = data.x.to_dense() if data.x.layout != torch.strided else data.x
    return Scene(data, owner, protocol.neighbours(data), x.double())


def attack(run: Run) -> dict[str, Any]:
    """Every client attacks the messages of its own nodes.

    Options: `form` "matrix" or "vector"; `noise`, standard deviation of the defence's noise; `lone` "kept", or
    "dropped" for the one-neighbour rule; `nodes`, how many nodes with at least two neighbours are attacked (0: all
    nodes).

    Returns:
        "nodes" attacked that have two or more neighbours, and "exact": those of them all of whose neighbours came out
        with an error below 1e-8; "error", largest and median over their neighbours; "words": the mean share of a
        neighbour's words recovered (`words_found`); "cross_client": edges to other clients' nodes as "pairs", the
        share of them "recovered" with an error below 1e-8, and "exposed", the share of the nodes at their far ends
        that were recovered at least once; "control": the largest share recovered from messages of other features.
    """
    options = {"form": "matrix", "noise": 0.0, "lone": "kept", "nodes": 0, **run.options}
    form, sigma = one_of("form", options["form"], protocol.FORMS), float(options["noise"])
    here = scene(run)
    near = here.near if one_of("lone", options["lone"], LONE) == "kept" else without_lone(here.near, here.owner)
    targets = _targets(near, int(options["nodes"]), run.seed)
    tally = _Tally()
    for node in targets:
        found = recover(_sender(form, here, near, node, sigma, run.seed), here.x[node])
        tally.add(here, node, near[node], found)
    dropped = [(n, j) for n in targets for j in np.setdiff1d(here.near[n], near[n]).tolist()]
    small = [node for node in targets if 2 < len(near[node]) <= LARGE][:20]
    return {"result": tally.result(dropped) | {"control": _control(form, here, near, small, run.seed)}}


def _targets(near: list[np.ndarray], wanted: int, seed: int) -> list[int]:
    several = np.array([node for node, ids in enumerate(near) if len(ids) > 2])
    if wanted == 0:
        return list(range(len(near)))
    order = random.uniform((len(several),), "targets", seed).argsort().numpy()
    small = [int(node) for node in several[order] if len(near[node]) <= LARGE]
    return sorted(small[:wanted])


def _sender(
    form: str, here: Scene, near: list[np.ndarray], node: int, sigma: float, seed: int
) -> Callable[[], Iterator[Message]]:
    """What the server sends for a node, in blocks of features where it has many neighbours."""
    h = here.x[near[node]]
    block = 64 if len(h) > LARGE else None

    def send() -> Iterator[Message]:
        if form == "vector":
            yield noisy(protocol.vector_message(node, here.x[node], h, seed), sigma, seed)
            return
        for part in protocol.matrix_messages(node, here.x[node], h, seed, block=block):
            yield noisy(part, sigma, seed)

    if block is None:  # small enough to be kept
        kept = list(send())
        return lambda: iter(kept)
    return send


class _Tally:
    """What the attack yields, gathered node by node."""

    def __init__(self) -> None:
        self.several = self.exact = 0
        self.errors: list[float] = []
        self.words: list[float] = []
        self.pairs: dict[tuple[int, int], float] = {}

    def add(self, here: Scene, node: int, ids: np.ndarray, found: Tensor) -> None:
        truth = here.x[ids]
        found = paired(found, truth)
        errors = (found - truth).abs().amax(1)
        others = torch.from_numpy(ids != node)
        if others.sum() >= 2:
            self.several += 1
            self.exact += bool((errors[others] < RECOVERED).all())
            self.errors += errors[others].tolist()
            self.words += words_found(found[others], truth[others]).tolist()
        for place in np.flatnonzero(here.owner[ids] != here.owner[node]):
            self.pairs[node, int(ids[place])] = float(errors[place])

    def result(self, dropped: list[tuple[int, int]]) -> dict[str, Any]:
        pairs = len(self.pairs) + len(dropped)
        hit = {j for (_, j), error in self.pairs.items() if error < RECOVERED}
        known = {j for _, j in [*self.pairs, *dropped]}
        return {
            "nodes": self.several,
            "exact": self.exact,
            "error": {"largest": float(np.max(self.errors)), "median": float(np.median(self.errors))},
            "words": float(np.mean(self.words)),
            "cross_client": {
                "pairs": pairs,
                "recovered": sum(error < RECOVERED for error in self.pairs.values()) / max(pairs, 1),
                "exposed": len(hit) / max(len(known), 1),
            },
        }


def _control(form: str, here: Scene, near: list[np.ndarray], nodes: list[int], seed: int) -> float:
    """The share of vectors "recovered" when the messages are about other features: columns moved by one."""
    moved = here._replace(x=here.x.roll(1, 1))
    shares = [0.0]
    for node in nodes:
        found, truth = recover(_sender(form, moved, near, node, 0.0, seed), moved.x[node]), here.x[near[node]]
        errors = (paired(found, truth) - truth).abs().amax(1)
        shares.append(float((errors < RECOVERED).double().mean()))
    return max(shares)
