"""Say how fast a round could be on this machine, from the speed of the work that no program leaves out.

A local step reads and writes every weight of every client once in the optimizer, and multiplies by the sparse features
and adjacencies, forward and backward. Both are counted for what training nodes can see. The speed of each is measured
on this machine, as one call over the same shapes. Scores, averages, activations, the loss and all of Python come on top
of this, so the floor lies below what a program reaches that uses the same kernels. With few weights most of it is the
time of a call.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.engine.training import CHUNK_BYTES
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

HOPS = 2  # propagation steps of the network
# Adam reads weight, gradient and two moments, and writes all but the gradient, in numbers of four bytes.
BYTES = 7 * 4


def floor(run: Run) -> dict[str, Any]:
    """Count the work of a round of FedAvg with a 2-layer GCN, and measure how fast this machine does it.

    The options of the run are "hidden", "local_epochs" (3) and "repeats" (20).

    Returns:
        "result": the "bytes" that the optimizer moves in a round, the "operations" (multiplications and additions) of
        its sparse products, and under "timing" `bytes_per_second`, `operations_per_second` and the floor,
        `seconds_per_round`.
    """
    fed = tasks.federation([run])
    hidden, repeats = int(run.options["hidden"]), int(run.options.get("repeats", 20))
    work = counts(fed, hidden, int(run.options.get("local_epochs", 3)))
    weights = client_weights(fed, hidden)
    weights *= max(1, min(fed.clients, CHUNK_BYTES // (4 * weights)))  # as many as the stack trains at a time
    x, weight = _sparse(fed.focus(HOPS)), torch.rand(fed.features, hidden)
    rates = {
        "bytes_per_second": BYTES * weights / _seconds(_adam(weights), repeats),
        "operations_per_second": 2 * len(x.value) * hidden / _seconds(lambda: x @ weight, repeats),
    }
    spent = work["bytes"] / rates["bytes_per_second"] + work["operations"] / rates["operations_per_second"]
    return {"result": {**work, "timing": {**rates, "seconds_per_round": spent}}}


def counts(fed: Federation, hidden: int, epochs: int) -> dict[str, int]:
    """Return the bytes that Adam moves in a round, and the operations of the sparse products, over all clients.

    The features are multiplied forward, and backward for the gradient of the first weights. An adjacency is multiplied
    forward and backward, in the first layer for nodes within one edge of a training node, in the second for training
    nodes. A product with n stored entries and `width` columns has 2 n `width` operations.
    """
    seen = fed.focus(HOPS)
    training = int((fed.count("train") > 0).sum())
    first, second = (len(seen.operator("gcn", reach).value) for reach in (1, 0))
    products = len(_sparse(seen).value) * hidden + first * hidden + second * fed.classes
    return {
        "bytes": epochs * training * BYTES * client_weights(fed, hidden),
        "operations": epochs * 2 * 2 * products,
    }


def client_weights(fed: Federation, hidden: int) -> int:
    """Return the number of weights of a client: two matrices and two biases."""
    return hidden * (fed.features + 1) + (hidden + 1) * fed.classes


def _sparse(fed: Federation) -> Sparse:
    return fed.x if isinstance(fed.x, Sparse) else Sparse.from_tensor(fed.x)


def _adam(count: int) -> Callable[[], Any]:
    weight = torch.rand(count, requires_grad=True)
    weight.grad = torch.rand(count)
    return torch.optim.Adam([weight], fused=True).step


def _seconds(work: Callable[[], Any], repeats: int) -> float:
    """Return the median seconds of a call; the first two, which pay for memory that is new, do not count."""
    spent = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent[2:])
