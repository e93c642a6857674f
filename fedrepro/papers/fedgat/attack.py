"""Attack FedGAT's messages, from which a client recovers the features of every neighbour (FG-I6, FG-Q7).

Section 5 says that the matrices reveal sums over a neighbourhood and never the features of one node. They reveal all.
Each U_j has rank one, U_j = p_j q_j^T. So every combination of the matrices that a client can form,

    D = sum_s b_1(s) M1(s) + b_2(s) M2(s) = sum_j x_ij p_j q_j^T,

has the q_j among its left eigenvectors. Each q_j is orthogonal to all u_1k except u_1j. Hence, for each neighbour j,

    q_j^T K2 / q_j^T K1 = h_j^T.

The client needs one message, one eigendecomposition and no other knowledge. The Vector form needs no eigenvectors.
There M2 K2 = sum_j h_j u_j^T, and u_j has a single one, so the columns of M2 K2 are the features of the neighbours.

The file has three parts: the attack on one message (`recover`), the defences (`noisy`, the one-neighbour rule), and the
attack on a graph (`attack`), which measures what is recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fedrepro.data import datasets, partition
from fedrepro.engine.client_graphs import Source
from fedrepro.engine.nn import random
from fedrepro.errors import one_of
from fedrepro.papers.fedgat import protocol
from fedrepro.papers.fedgat.method import without_lone_neighbours
from fedrepro.papers.fedgat.protocol import MatrixMessage, Message, VectorMessage
from fedrepro.runs.run import Run

RECOVERED = 1e-8  # largest error of a feature vector that counts as recovered exactly
LONE = ("kept", "dropped")
LARGE = 41  # neighbours, the node itself among them, beyond which a message comes in blocks

Send = Callable[[], Iterable[Message]]  # returns the parts of one message, from the first one at every call


# -- the attack on one message ----------------------------------------------------------------------------------------


def recover(send: Send, h_i: Tensor) -> Tensor:
    """Return the features of a node's neighbours, itself among them, `[g, features]`, in no particular order.

    Args:
        send: returns the parts of the node's message.
        h_i: features of the node `[features]`, which the client holds.
    """
    head = next(iter(send()))
    if isinstance(head, VectorMessage):
        columns = (head.m2 @ head.k2).T
        return columns[columns.norm(dim=1).argsort(descending=True)[: len(head.k3) // 2]]
    assert isinstance(head, MatrixMessage)
    g = len(head.k1) // 2
    k2 = torch.cat([part.k2 for part in send() if isinstance(part, MatrixMessage)], 1)
    # The neighbours' features span the row space of K2. A component of b_2 outside it would only add noise.
    span = torch.linalg.svd(k2, full_matrices=False).Vh[:g]
    b2 = random.normal((1, len(span)), "attack").to(span) @ span
    # This b_1 makes M1 add 8 to every eigenvalue that belongs to a neighbour, and nothing to the others.
    square = float(h_i @ h_i)
    b1 = 8.0 / square * h_i[None] if square else torch.zeros_like(h_i)[None]
    d, _ = protocol.combination(send(), b1, b2)
    values, vectors = torch.linalg.eig(d[0].T)
    left = vectors[:, values.abs().argsort(descending=True)[:g]].T
    share = left @ head.k1.to(left.dtype)
    return torch.real((left @ k2.to(left.dtype)) / share[:, None])


def match(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the recovered vectors in the order of the true ones with the least total distance, `[g, features]`.

    Only the measurement of the attack needs this order. The attacker does not.
    """
    recovered = torch.nan_to_num(recovered, nan=1e6, posinf=1e6, neginf=-1e6)
    _, order = linear_sum_assignment(torch.cdist(truth, recovered).numpy())
    return recovered[order]


def recovered_words(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return, for each vector, the share of its k non-zero features among the k largest recovered ones, `[g]`."""
    shares = []
    for guess, true in zip(recovered, truth):
        words = true.nonzero().squeeze(1)
        best = guess.argsort(descending=True)[: len(words)]
        shares.append(torch.isin(words, best).double().mean() if len(words) else true.new_ones(()))
    return torch.stack(shares)


# -- the defences -----------------------------------------------------------------------------------------------------


def noisy(message: Message, sigma: float, seed: int) -> Message:
    """Return the message with independent normal noise of standard deviation `sigma` on every number."""
    if sigma == 0:
        return message
    generator = _generator("defence", seed, message.node, message.first)
    changed: dict[str, Any] = {
        name: tensor + sigma * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
        for name, tensor in message.tensors.items()
    }
    return replace(message, **changed)


def _generator(*names: int | str) -> torch.Generator:
    # A signed 64-bit integer is what a generator takes, so the key loses a bit.
    return torch.Generator().manual_seed(int(random.keys(*names) >> np.uint64(1)))


# -- the attack on a graph --------------------------------------------------------------------------------------------


class Scene(NamedTuple):
    """A partitioned graph in float64.

    Args:
        x: features `[nodes, features]`.
        owner: client of each node `[nodes]`.
        full: neighbours of each node, itself among them, at all clients.
        near: neighbours about which the node's message is, those that the one-neighbour rule keeps.
    """

    x: Tensor
    owner: np.ndarray
    full: list[np.ndarray]
    near: list[np.ndarray]

    def sender(self, form: str, node: int, sigma: float, seed: int) -> Send:
        """Return what sends the node's message, with noise, in blocks of features if it has many neighbours."""
        h = self.x[self.near[node]]
        block = 64 if len(h) > LARGE else None

        def send() -> Iterator[Message]:
            for part in protocol.message_parts(form, node, self.x[node], h, seed, block=block):
                yield noisy(part, sigma, seed)

        if block is not None:
            return send
        parts = list(send())  # small enough to keep, so that it is built once
        return lambda: parts


def scene(run: Run, lone: str = "kept") -> Scene:
    """Return the graph of a run. `lone` "dropped" applies the one-neighbour rule of Section 5 (FG-Q8)."""
    data = datasets.assemble(run.dataset, run.prepare, run.split, run.seed)
    parts = tuple(partition.divide(data, run.partition, run.clients, run.seed))
    owner = np.empty(data.num_nodes, dtype=np.int64)
    for client, part in enumerate(parts):
        owner[part.numpy()] = client
    full = protocol.neighbours(data)
    kept = one_of("lone", lone, LONE) == "kept"
    near = full if kept else protocol.neighbours(without_lone_neighbours(Source(data, parts)))
    return Scene(protocol.dense_features(data), owner, full, near)


def attack(run: Run) -> dict[str, Any]:
    """Let every client attack the messages about its nodes.

    Options: `form` is "matrix" or "vector". `noise` is the standard deviation of the defence's noise. `lone` is "kept",
    or "dropped" for the one-neighbour rule. `nodes` says how many nodes with at least two neighbours are attacked (0
    means all nodes).

    Returns:
        "nodes" is the number of attacked nodes with two or more neighbours, and "exact" the number of those all of
        whose neighbours are recovered with an error below 1e-8. "error" has the largest and the median error over
        their neighbours, and "words" the mean of `recovered_words`. "cross_client" is about edges to nodes of other
        clients: their number "pairs", the share of them "recovered" with an error below 1e-8, and the share of the
        nodes at their far ends that are "exposed", which means recovered at least once. "control" is the largest share
        recovered from messages about other features.
    """
    options = {"form": "matrix", "noise": 0.0, "lone": "kept", "nodes": 0, **run.options}
    form, sigma = one_of("form", options["form"], protocol.FORMS), float(options["noise"])
    here = scene(run, options["lone"])
    targets = _targets(here.near, int(options["nodes"]), run.seed)
    exact: list[bool] = []
    errors: list[float] = []
    words: list[float] = []
    cross: dict[tuple[int, int], float] = {}  # (node, neighbour at another client) -> error
    for node in targets:
        ids, truth = here.near[node], here.x[here.near[node]]
        features, error = _measure(here.sender(form, node, sigma, run.seed), here.x[node], truth)
        others = torch.from_numpy(ids != node)
        if others.sum() >= 2:
            exact.append(bool((error[others] < RECOVERED).all()))
            errors += error[others].tolist()
            words += recovered_words(features[others], truth[others]).tolist()
        cross |= {(node, int(ids[j])): float(error[j]) for j in np.flatnonzero(here.owner[ids] != here.owner[node])}
    hidden = [(node, j) for node in targets for j in np.setdiff1d(here.full[node], here.near[node]).tolist()]
    pairs = len(cross) + len(hidden)
    exposed = {j for (_, j), error in cross.items() if error < RECOVERED}
    return {
        "result": {
            "nodes": len(exact),
            "exact": sum(exact),
            "error": {"largest": float(np.max(errors)), "median": float(np.median(errors))},
            "words": float(np.mean(words)),
            "cross_client": {
                "pairs": pairs,
                "recovered": sum(error < RECOVERED for error in cross.values()) / max(pairs, 1),
                "exposed": len(exposed) / max(len({j for _, j in [*cross, *hidden]}), 1),
            },
            "control": _control(form, here, targets, run.seed),
        }
    }


def _targets(near: list[np.ndarray], wanted: int, seed: int) -> list[int]:
    """Return all nodes, or `wanted` random nodes with at least two neighbours and at most 40."""
    if wanted == 0:
        return list(range(len(near)))
    several = np.array([node for node, ids in enumerate(near) if len(ids) > 2])
    order = random.uniform((len(several),), "targets", seed).argsort().numpy()
    small = [int(node) for node in several[order] if len(near[node]) <= LARGE]
    return sorted(small[:wanted])


def _measure(send: Send, h_i: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the attack recovers, in the order of `truth`, and the largest error of each vector, `[g]`."""
    features = match(recover(send, h_i), truth)
    return features, (features - truth).abs().amax(1)


def _control(form: str, here: Scene, targets: list[int], seed: int) -> float:
    """Return the largest share of vectors "recovered" from messages about other features, columns moved by one."""
    other = here._replace(x=here.x.roll(1, 1))
    shares = [0.0]
    for node in [node for node in targets if 2 < len(here.near[node]) <= LARGE][:20]:
        _, error = _measure(other.sender(form, node, 0.0, seed), other.x[node], here.x[here.near[node]])
        shares.append(float((error < RECOVERED).double().mean()))
    return max(shares)
