"""Graphs and samples of GFL-APPNP's clients: all that is fixed before the first round, and the trace of its losses.

The server knows the propagation matrix A between clients (`propagation`, `Graph`). A client knows its own samples
(`Samples`). Clients without training samples never change their weights, so that one slice of the stacked weights
serves all of them (`group_untrained`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import to_dense_batch

from fedrepro.engine.client_graphs import Source
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import MLP
from fedrepro.engine.nn.sparse import Pattern, Sparse, groups_of, sum_groups
from fedrepro.errors import one_of

PROPAGATIONS = ("appnp", "truncated", "printed", "none")
FIRST, SECOND = "layer1.weight", "layer2.weight"
CURVE_POINTS = 30  # rounds of a loss curve that a record keeps


# -- the propagation matrix -------------------------------------------------------------------------------------------


def propagation_weights(kind: str, alpha: float, steps: int) -> list[float]:
    """Return the weight of each power of S in A, `[steps + 1]` (GFL-Q1).

    Args:
        kind: one of `PROPAGATIONS`; "none" makes A the identity (Remark 1).
        alpha: teleport probability.
        steps: M, the highest power.
    """
    one_of("propagation", kind, PROPAGATIONS)
    if kind == "none" or steps == 0:
        return [1.0]
    if kind == "printed":
        return [(1 - alpha) * alpha**i for i in range(steps)] + [alpha**steps]
    last = (1 - alpha) ** steps * (1 if kind == "appnp" else alpha)
    return [alpha * (1 - alpha) ** i for i in range(steps)] + [last]


def propagation(edges: Tensor, nodes: int, kind: str, alpha: float, steps: int) -> Tensor:
    """Return A = sum_i weight_i S^i, `[nodes, nodes]`, float64 (Eq. 13b, with the chosen weights).

    S is the adjacency matrix with self-loops, normalized symmetrically.

    Args:
        edges: `[2, edges]` in both directions, without self-loops.
    """
    adjacency = torch.eye(nodes, dtype=torch.float64)
    adjacency[edges[1], edges[0]] = 1.0
    scale = adjacency.sum(1).rsqrt()
    s = scale[:, None] * adjacency * scale
    power, total = torch.eye(nodes, dtype=torch.float64), torch.zeros(nodes, nodes, dtype=torch.float64)
    for weight in propagation_weights(kind, alpha, steps):
        total += weight * power
        power = s @ power
    return total


def client_edges(source: Source) -> Tensor:
    """Return the edges between different clients of one run, `[2, edges]`."""
    owner = torch.empty(source.data.num_nodes, dtype=torch.long)
    for client, part in enumerate(source.parts):
        owner[part] = client
    ends = owner[source.data.edge_index]
    return ends[:, ends[0] != ends[1]]


# -- who holds which samples ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Samples:
    """The training samples of every client, padded to the largest number of them.

    Args:
        rows: `[clients, samples]`, their rows in the batch; -1 is padding.
        share: `[clients, samples]`, 1 over the client's number of training samples; 0 is padding.
        x: their features, `[clients, samples, features]`.
        gram: inner products of a client's samples, `[clients, samples, samples]`.
        source: the features of the federation they were taken from.
    """

    rows: Tensor
    share: Tensor
    x: Tensor
    gram: Tensor
    source: Tensor | Sparse

    @classmethod
    def of(cls, fed: Federation) -> Samples:
        """Collect the training samples of a federation."""
        rows, _ = fed.rows("train")
        client = fed.batch.batch[rows]
        dense = fed.x.rows(rows).dense() if isinstance(fed.x, Sparse) else fed.x[rows]
        x, filled = to_dense_batch(dense, client, batch_size=fed.clients)
        padded, _ = to_dense_batch(rows, client, fill_value=-1, batch_size=fed.clients)
        share = filled.to(fed.dtype) / filled.sum(1, keepdim=True).clamp(min=1)
        return cls(padded, share, x, x @ x.transpose(1, 2), fed.x)


@dataclass(frozen=True)
class Graph:
    """The graph between the clients of one run, and the rows of its clients and samples in the batch.

    Args:
        a: the propagation matrix A, `[nodes, nodes]`; every node is a client of the paper.
        rows: the run's samples in the batch.
        x: their features, `[samples, features]`.
        node: the graph node of each sample, `[samples]`.
        share: `[samples]`, 1/n_j if the sample is one of the n_j whose mean is h_j, else 0.
        clients: the run's slices: first its training clients, then one slice for all others.
        train: graph nodes of the training clients, `[training clients]`.
        gram: A_kj / n_j times the inner products of training samples with the samples of the means,
            `[training clients * padded samples, samples of the means]`; None if no step needs them.
    """

    a: Tensor
    rows: slice
    x: Tensor | Sparse
    node: Tensor
    share: Tensor
    clients: slice
    train: Tensor
    gram: Tensor | None = None

    @classmethod
    def of(cls, fed: Federation, samples: Samples, run: int, node: Tensor, a: Tensor, share: str) -> Graph:
        """Return the graph of one run.

        Args:
            node: the graph node of each sample of the run, `[samples]`.
            a: the propagation matrix.
            share: which samples make the mean h_j: "all" or "train" (GFL-Q7).
        """
        slices = (fed.run == run).nonzero().squeeze(1)
        clients = slice(int(slices[0]), int(slices[-1]) + 1)
        rows = slice(int(fed.batch.ptr[clients.start]), int(fed.batch.ptr[clients.stop]))
        used = fed.batch.train_mask[rows] if share == "train" else torch.ones_like(node, dtype=torch.bool)
        count = torch.bincount(node[used], minlength=len(a)).clamp(min=1)
        trained = int((fed.count("train")[clients] > 0).sum())
        train = node[samples.rows[clients.start : clients.start + trained, 0] - rows.start]
        every = torch.arange(rows.start, rows.stop, device=fed.device)
        x = fed.x.rows(every) if isinstance(fed.x, Sparse) else fed.x[rows]
        return cls(a, rows, x, node, used.to(fed.dtype) / count[node].to(fed.dtype), clients, train)

    def with_products(self, samples: Samples) -> Graph:
        """Return the same graph with `gram`."""
        x = samples.x[self.trained]
        products = (self.x @ x.flatten(0, 1).T.contiguous())[self.held].T.view(*x.shape[:2], -1)
        at = (self.off[:, self.node] * self.share)[:, None, self.held]
        return replace(self, gram=(products * at).flatten(0, 1))

    @property
    def trained(self) -> slice:
        """Return the run's training clients among the slices of the batch."""
        return slice(self.clients.start, self.clients.start + len(self.train))

    @cached_property
    def held(self) -> Tensor | slice:
        """Return the samples that make up the means h_j, as an index of the run's samples."""
        used = self.share > 0
        return slice(None) if bool(used.all()) else used.nonzero().squeeze(1)

    @cached_property
    def by_node(self) -> Pattern:
        """Return the samples at `held`, grouped by their node."""
        return groups_of(self.node[self.held], len(self.a))

    @cached_property
    def x_held(self) -> Tensor | Sparse:
        """Return the features of the samples that make up the means, `[held samples, features]`."""
        if isinstance(self.held, slice):
            return self.x
        return self.x.rows(self.held) if isinstance(self.x, Sparse) else self.x[self.held]

    @cached_property
    def transposed(self) -> Tensor | Sparse:
        """Return the transpose of `x_held`."""
        x = self.x_held
        if isinstance(x, Sparse):
            return Sparse.of(x.pattern.col, x.pattern.row, x.value, (x.shape[1], x.shape[0]))
        return x.T

    @cached_property
    def off(self) -> Tensor:
        """Return the rows of A at the training clients with a zero diagonal, `[training clients, nodes]`."""
        out = self.a[self.train].clone()
        out[torch.arange(len(self.train)), self.train] = 0
        return out

    @cached_property
    def mix(self) -> Tensor:
        """Return the product off off^T in float64 on the CPU, `[training clients, training clients]`."""
        off = self.off.double().cpu()
        return off @ off.T

    def means(self, values: Tensor) -> Tensor:
        """Return the mean over each node's samples, `[nodes, width]`, of values at `held`, `[held samples, width]`."""
        return sum_groups(self.share[self.held, None] * values, self.by_node)


def group_untrained(fed: Federation) -> tuple[Federation, list[Tensor]]:
    """Merge the clients of each run that never train into one client, behind those that do.

    Clients without training samples always hold the server's weights (GFL-Q13). One slice serves all of them.

    Returns:
        The federation in the new order, and the graph node of each of its samples, one tensor `[samples]` per run.
    """
    client, numbers = fed.batch.batch, int(fed.number.max()) + 2
    group = fed.run * numbers + torch.where(fed.count("train") > 0, fed.number, numbers - 1)
    order = torch.argsort(group[client] * (int(fed.clients) + 1) + client, stable=True)
    kept, batch = torch.unique(group[client][order], return_inverse=True)
    position = torch.empty_like(order)
    position[order] = torch.arange(fed.nodes, device=fed.device)
    graph = fed.batch.clone()
    for name in fed.batch.keys():  # noqa: SIM118 - iterating a PyG batch yields pairs
        if name not in ("edge_index", "edge_weight", "batch", "ptr", "num_nodes"):
            graph[name] = fed.batch[name][order]
    graph.edge_index, graph.batch = position[fed.batch.edge_index], batch
    graph.ptr = torch.searchsorted(batch, torch.arange(len(kept) + 1, device=fed.device))
    x = fed.x.rows(order) if isinstance(fed.x, Sparse) else fed.x[order]
    run, slices = kept // numbers, torch.arange(len(kept), device=fed.device)
    ordered = replace(fed, batch=graph, x=x, run=run, number=kept % numbers, slice_of=slices, _cache={})
    owner, run_of = fed.number[client][order], run[batch]
    return ordered, [owner[run_of == number] for number in range(fed.runs)]


# -- weights and losses -----------------------------------------------------------------------------------------------


def torch_uniform(shape: tuple[int, ...], seed: int, name: str) -> Tensor:
    """Draw a weight `[in, out]` uniform on +-1/sqrt(in), PyTorch's default for linear layers (GFL-Q10)."""
    return (2 * random.uniform(shape, "init", seed, name) - 1) / math.sqrt(shape[0])


def initial_weights(model: MLP, fed: Federation) -> Weights:
    """Return the server's initial weights, `[runs, in, out]`; there are no biases."""
    return {
        name: torch.stack([torch_uniform(shape, seed, name) for seed in fed.seeds]).to(fed.device, fed.dtype)
        for name, shape in zip((FIRST, SECOND), model.widths)
    }


@dataclass
class Trace:
    """Losses of the averaged model after each round. Training reads nothing of it.

    Args:
        losses: one array `[2, runs]` per round with the training and validation loss, means over samples.
        node_test: `[runs]`, the share of test nodes whose samples are classified right by majority, at the round of
            lowest validation loss; empty if a node has one sample, or samples of several labels.
    """

    losses: list[np.ndarray] = field(default_factory=list)
    node_test: np.ndarray = field(default_factory=lambda: np.empty(0))

    def add(self, fed: Federation, graphs: list[Graph], logits: Tensor, votes: bool) -> None:
        """Score one round by the logits `[nodes, classes]` of the averaged model."""
        run_of = fed.run[fed.batch.batch]
        losses = []
        for mask in ("train", "val"):
            rows, _ = fed.rows(mask)
            loss = F.cross_entropy(logits[rows], fed.batch.y[rows], reduction="none").double().cpu().numpy()
            run = run_of[rows].cpu().numpy()
            losses.append(np.bincount(run, loss, fed.runs) / np.bincount(run, minlength=fed.runs))
        lowest = np.min([earlier[1] for earlier in self.losses], axis=0, initial=np.inf)
        self.losses.append(np.stack(losses))
        if not votes or len(graphs[0].node) <= 2 * len(graphs[0].a):
            return
        if not self.node_test.size:
            self.node_test = np.full(fed.runs, np.nan)
        for number in np.flatnonzero(losses[1] < lowest):
            self.node_test[number] = _majority(fed, graphs[number], logits)

    def facts(self) -> list[dict[str, float]]:
        """Return per run the curves at `CURVE_POINTS` rounds, evenly spaced, and `node_test`."""
        rounds = len(self.losses)
        at = np.unique(np.linspace(0, rounds - 1, min(rounds, CURVE_POINTS)).round().astype(int))
        out = []
        for run in range(self.losses[0].shape[1]):
            facts = {"curve.round": (at + 1).tolist()}
            for row, name in enumerate(("train_loss", "val_loss")):
                facts[f"curve.{name}"] = [float(f"{self.losses[k][row, run]:.4g}") for k in at]
            if self.node_test.size:
                facts["node_test"] = float(self.node_test[run])
            out.append(facts)
        return out


def _majority(fed: Federation, graph: Graph, logits: Tensor) -> float:
    """Return the share of test nodes whose label most of their test samples are given."""
    test = fed.batch.test_mask[graph.rows]
    node, y = graph.node[test], fed.batch.y[graph.rows][test]
    votes = logits.new_zeros(len(graph.a), fed.classes)
    votes.index_add_(0, node, F.one_hot(logits[graph.rows][test].argmax(1), fed.classes).to(votes.dtype))
    label = torch.zeros(len(graph.a), dtype=y.dtype, device=y.device).scatter_(0, node, y)
    return float((votes.argmax(1) == label)[votes.sum(1) > 0].double().mean())
