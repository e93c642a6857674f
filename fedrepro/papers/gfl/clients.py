"""What GFL-APPNP's server and clients hold before training: propagation matrix, graphs, the clients' samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import MLP
from fedrepro.engine.nn.optim import Optimizer, OptimizerState
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of

PROPAGATIONS = ("appnp", "truncated", "printed", "none")
FIRST, SECOND = "layer1.weight", "layer2.weight"


def propagation_weights(kind: str, alpha: float, steps: int) -> list[float]:
    """Weight of each power of S in A: `[steps + 1]` (GFL-Q1).

    Args:
        kind: one of `PROPAGATIONS`; "none" is the identity (Remark 1).
    """
    one_of("propagation", kind, PROPAGATIONS)
    if kind == "none" or steps == 0:
        return [1.0]
    if kind == "printed":  # Eq. 13b
        return [(1 - alpha) * alpha**i for i in range(steps)] + [alpha**steps]
    last = (1 - alpha) ** steps * (1 if kind == "appnp" else alpha)
    return [alpha * (1 - alpha) ** i for i in range(steps)] + [last]


def propagation(edges: Tensor, nodes: int, kind: str, alpha: float, steps: int) -> Tensor:
    """A `[nodes, nodes]`, float64, from `edges` `[2, edges]` without self-loops (Eq. 13b with the weights chosen)."""
    adjacency = torch.eye(nodes, dtype=torch.float64)
    adjacency[edges[1], edges[0]] = 1.0
    scale = adjacency.sum(1).rsqrt()
    s = scale[:, None] * adjacency * scale
    power, total = torch.eye(nodes, dtype=torch.float64), torch.zeros(nodes, nodes, dtype=torch.float64)
    for weight in propagation_weights(kind, alpha, steps):
        total += weight * power
        power = s @ power
    return total


@dataclass(frozen=True)
class Graph:
    """What the server knows of one run, and where its clients and samples stand in the batch.

    Args:
        rows: its samples in the batch.
        x: their features, `[samples, features]`.
        clients: its training clients, then one for all the rest.
        a: A `[nodes, nodes]`.
        node: `[samples]`, the graph node a sample belongs to.
        share: `[samples]`, 1/n_j for the samples whose mean is h_j, else 0.
        train: `[training clients]`, their graph nodes.
        gram: `[training clients * padded samples, held samples]`, A_kj / n_j times the inner products of features; None
            where one local step makes it useless.
    """

    rows: slice
    x: Tensor | Sparse
    clients: slice
    a: Tensor
    node: Tensor
    share: Tensor
    train: Tensor
    gram: Tensor | None

    @property
    def trained(self) -> slice:
        """Its training clients among the clients of the batch."""
        return slice(self.clients.start, self.clients.start + len(self.train))

    @cached_property
    def held(self) -> Tensor | slice:
        """The samples that make up the means h_j."""
        chosen = self.share > 0
        return slice(None) if bool(chosen.all()) else chosen.nonzero().squeeze(1)

    @cached_property
    def transposed(self) -> Tensor | Sparse:
        """x at the held samples, transposed."""
        if isinstance(self.x, Sparse):
            x = self.x if isinstance(self.held, slice) else self.x.rows(self.held)
            return Sparse.of(x.pattern.col, x.pattern.row, x.value, (x.shape[1], x.shape[0]))
        return self.x[self.held].T

    @cached_property
    def off(self) -> Tensor:
        """Rows of A at the training clients, without the diagonal: `[training clients, nodes]`."""
        out = self.a[self.train].clone()
        out[torch.arange(len(self.train)), self.train] = 0
        return out

    @cached_property
    def mix(self) -> Tensor:
        """off off^T, float64, on the CPU: `[training clients, training clients]`."""
        off = self.off.double().cpu()
        return off @ off.T


@dataclass(frozen=True)
class Own:
    """Training samples of each client, padded: `rows` `[clients, samples]` in the batch, `share` 1/n or 0, `x`, and the
    inner products `gram` `[clients, samples, samples]`; `source` is the federation's x they were taken from.
    """

    rows: Tensor
    share: Tensor
    x: Tensor
    gram: Tensor
    source: Tensor | Sparse


@dataclass(frozen=True)
class PlainSGD(Optimizer):
    """SGD on all clients at once: the gradient of a client that does not train is zero or ignored."""

    @torch.no_grad()
    def step(self, weights: Weights, grads: Weights, state: OptimizerState, active: Tensor | None = None) -> None:
        """Move the weights in place by one step."""
        for name, grad in grads.items():
            moved = weights[name].detach()
            if active is not None:
                grad = torch.where(active.to(grad.device).view(-1, *[1] * (grad.dim() - 1)), grad, 0.0)
            moved.add_(grad, alpha=-self.lr)


def one_slice_for_the_rest(fed: Federation) -> tuple[Federation, list[Tensor]]:
    """The same clients in another order: each run's training clients first, and the others, whose weights are always
    the server's, as one client.

    Returns:
        The federation, and for each run the graph node `[samples]` of each of its samples.
    """
    able = fed.count("train") > 0
    client = fed.batch.batch
    place = torch.where(able, fed.number, fed.number.max() + 1)  # the rest comes last
    group = fed.run * (int(fed.number.max()) + 2) + place
    order = torch.argsort(group[client] * (int(fed.clients) + 1) + client, stable=True)
    kept, batch = torch.unique(group[client][order], return_inverse=True)
    new = torch.empty_like(order)
    new[order] = torch.arange(fed.nodes, device=fed.device)
    graph = fed.batch.clone()
    for name in fed.batch.keys():  # noqa: SIM118 - iterating a PyG batch yields pairs
        if name not in ("edge_index", "edge_weight", "batch", "ptr", "num_nodes"):
            graph[name] = fed.batch[name][order]
    graph.edge_index, graph.batch = new[fed.batch.edge_index], batch
    graph.ptr = torch.searchsorted(batch, torch.arange(len(kept) + 1, device=fed.device))
    run = kept // (int(fed.number.max()) + 2)
    ordered = replace(
        fed, batch=graph, x=fed.x.rows(order) if isinstance(fed.x, Sparse) else fed.x[order], run=run,
        number=kept % (int(fed.number.max()) + 2), slice_of=torch.arange(len(kept), device=fed.device), _cache={},
    )  # fmt: skip
    owner, of = fed.number[client][order], run[batch]
    return ordered, [owner[of == number] for number in range(fed.runs)]


def initial_weights(model: MLP, fed: Federation) -> Weights:
    """PyTorch's default for linear layers without bias, uniform on +-1/sqrt(fan in): `[runs, in, out]`."""
    made: Weights = {}
    for name, shape in zip((FIRST, SECOND), model.widths):
        each = [(2 * random.uniform(shape, "init", seed, name) - 1) / math.sqrt(shape[0]) for seed in fed.seeds]
        made[name] = torch.stack(each).to(fed.device, fed.dtype)
    return made


def training_rows(fed: Federation) -> Tensor:
    """Where each client's training samples stand in the batch, `[clients, most samples]`, -1 for padding."""
    rows, _ = fed.rows("train")
    client = fed.batch.batch[rows]
    count = torch.bincount(client, minlength=fed.clients)
    start = count.cumsum(0) - count
    out = torch.full((fed.clients, int(count.max())), -1, device=fed.device)
    out[client, torch.arange(len(rows), device=fed.device) - start[client]] = rows
    return out


def own_samples(fed: Federation, rows: Tensor) -> Own:
    held = (rows >= 0).to(fed.dtype)
    flat = rows.clamp(min=0).flatten()
    x = fed.x.rows(flat).dense() if isinstance(fed.x, Sparse) else fed.x[flat]
    x = (x * held.flatten()[:, None]).view(*rows.shape, -1)
    share = held / held.sum(1, keepdim=True).clamp(min=1)
    return Own(rows, share, x, x @ x.transpose(1, 2), fed.x)


CURVE_POINTS = 30


@dataclass
class Trace:
    """Losses of the averaged model after each round; training reads nothing of it.

    Args:
        losses: one array `[2, runs]` a round: training and validation loss, each a mean over samples.
        node_test: `[runs]`, at the round of lowest validation loss: the share of test nodes whose samples are
            classified right by majority; empty where a node has one sample, or samples of several labels.
    """

    losses: list[np.ndarray] = field(default_factory=list)
    node_test: np.ndarray = field(default_factory=lambda: np.empty(0))

    def add(self, fed: Federation, graphs: tuple[Graph, ...], logits: Tensor, votes: bool) -> None:
        """Score one round."""
        run = fed.run[fed.batch.batch]
        found = []
        for mask in ("train", "val"):
            rows, _ = fed.rows(mask)
            each = F.cross_entropy(logits[rows], fed.batch.y[rows], reduction="none").double().cpu().numpy()
            of = run[rows].cpu().numpy()
            found.append(np.bincount(of, each, fed.runs) / np.bincount(of, minlength=fed.runs))
        self.losses.append(np.stack(found))
        if not votes or len(graphs[0].node) <= 2 * len(graphs[0].a):
            return
        if not self.node_test.size:
            self.node_test = np.full(fed.runs, np.nan)
        earlier = np.min([loss[1] for loss in self.losses[:-1]], axis=0, initial=np.inf)
        for number in np.flatnonzero(found[1] < earlier):
            self.node_test[number] = _majority(fed, graphs[number], logits)

    def facts(self) -> list[dict[str, float]]:
        """Per run: the curves at `CURVE_POINTS` rounds evenly spaced, and `node_test`."""
        rounds = len(self.losses)
        at = np.unique(np.linspace(0, rounds - 1, min(rounds, CURVE_POINTS)).round().astype(int))
        out = []
        for number in range(self.losses[0].shape[1]):
            facts = {"curve.round": (at + 1).tolist()}
            for name, place in (("train_loss", 0), ("val_loss", 1)):
                facts[f"curve.{name}"] = [float(f"{self.losses[k][place, number]:.4g}") for k in at]
            if self.node_test.size:
                facts["node_test"] = float(self.node_test[number])
            out.append(facts)
        return out


def _majority(fed: Federation, graph: Graph, logits: Tensor) -> float:
    test = fed.batch.test_mask[graph.rows]
    node, y = graph.node[test], fed.batch.y[graph.rows][test]
    votes = logits.new_zeros(len(graph.a), fed.classes)
    votes.index_add_(0, node, F.one_hot(logits[graph.rows][test].argmax(1), fed.classes).to(votes.dtype))
    label = torch.zeros(len(graph.a), dtype=y.dtype, device=y.device).scatter_(0, node, y)
    return float((votes.argmax(1) == label)[votes.sum(1) > 0].double().mean())
