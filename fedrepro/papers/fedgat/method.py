"""Train FedGAT, and DistGAT, the baseline of its paper.

"FedGAT: A Privacy-Preserving Federated Approximation Algorithm for Graph Attention Networks", Siddharth Ambekar,
Yuhang Yao, Ryan Li and Carlee Joe-Wong, 2024, https://arxiv.org/abs/2412.16144.

The clients train a GAT of two layers. The first layer needs the features of neighbours at other clients, weighted by
scores e_ij that change with every step. FedGAT replaces the score by a polynomial p of fixed degree. The server then
sends certain matrices once, before training, and these are all that a client needs to compute its first layer (Eq. 7):

    h_i' = phi( W sum_j p(x_ij) h_j / sum_j p(x_ij) ),      x_ij = a_1 . W h_i + a_2 . W h_j

    h_i         features of node i                                        `Federation.input` `[nodes, features]`
    j           the neighbours of i, itself among them                    `Federation.attention_edges`
    W, a_2, a_1 "layer1.weight" `[features, heads * hidden]`, "layer1.source" and "layer1.target" `[heads, hidden]`
    p           series of degree `degree` for e_ij = exp(LeakyReLU(x_ij)) `FedGAT.series` `[degree + 1]`
    phi         bias and ELU                                              `GAT.second_layer`

This file trains the layer in its edge form, which evaluates p on every edge. The matrices give exactly the same layer.
Training edge by edge therefore gives the protocol's accuracy and gradients, with far less memory. The matrices are in
`fedrepro.papers.fedgat.protocol`, which also trains by them on small graphs.

Algorithm 1, before training:

    1. The clients send the features of their nodes.                      `FedGAT.start`, counted in `_count_exchange`
    2. The server builds M1, M2, K1 and K2 for every node.                `protocol.matrix_messages`
    3. The server sends them to the clients that need them.               `FedGAT.start`, `protocol.exchange`

Algorithm 2, in each round:

    1. The server sends its weights to the clients.                       `Method.begin_round`
    2. The server selects clients.                                        `Method.select`
    3. Each client computes layer 1 by Eq. 7, layer 2 as any GAT.         `FedGAT.forward`
    4. Each client takes a step on its loss.                              `Method.local_steps`
    5. The server averages the weights.                                   `Method.aggregate`

Decisions the paper leaves open:

    zeroth power    The term n = 0 is counted once. The identity D^0 of Algorithm 2 would count it twice. (FG-Q2)
    interval        The series approximates the score on [-interval, interval]. Scores outside are not clipped, since
                    no client could clip them. Their share is reported. (FG-Q3)
    second layer    Clients exchange nothing in a round. A client evaluates layer 1 at its nodes and at their
                    neighbours, and layer 2 at its nodes. (FG-Q9)
    lone neighbour  Section 5 drops a neighbour that is the only one at other clients, but neither algorithm does, nor
                    does the public code. By default it is kept. (FG-Q8)
    basis           The polynomial is evaluated by the three-term recurrence, not in powers of x. (FG-Q11)
    optimizer       The paper averages weights (Eq. 19). The authors' public code sends gradients, see `FedGATSGD`, and
                    `fedrepro.papers.fedgat.as_coded` for all else that it does otherwise. (FG-Q12c)
    self-loops      A node is among its own neighbours in both layers, as in GAT and in the public code. (FG-Q19)
    average         All clients with training nodes take part and weigh the same (Eq. 19). The others have weight 0.
                    (FG-Q15)

Not to be confused with FedAvg of a GAT, which drops the edges between clients. That is `DistGAT`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch_geometric.data import Data

from fedrepro.engine.client_graphs import Source
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.method import State
from fedrepro.engine.nn import kernels, layers, random
from fedrepro.engine.nn.models import GAT
from fedrepro.engine.nn.sparse import Edges
from fedrepro.errors import one_of, require
from fedrepro.papers.fedgat import chebyshev

BLOCK = 4096  # edges whose gradients are computed at once, which then stay in a core's cache


@dataclass(frozen=True, kw_only=True)
class DistGAT(FedAvg):
    """A GAT trained by FedAvg on client graphs without cross-client edges (Section 6).

    A federation holds only the edges inside clients unless a method asks for more.
    """

    model: GAT

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.model, GAT), "model", "a GAT for DistGAT", type(self.model).__name__)


@dataclass(frozen=True, kw_only=True)
class FedGAT(DistGAT):
    """A GAT with cross-client edges, whose first layer needs one exchange before training.

    Args:
        degree: p, the degree of the polynomial. The paper uses 16.
        interval: R. The series approximates the score for x_ij in [-R, R].
        score: "paper" is exp(LeakyReLU(x_ij)) of Eq. 3 and 4. "code" is the score in the authors' public code. It has
            no exponential, its LeakyReLU is smooth, its polynomial is a least-squares fit on 500 points, and its
            attention vectors act on the input features, divided by their number.
        lone_neighbour: "kept" or "dropped". If "dropped", a node with exactly one neighbour at other clients loses it.
    """

    degree: int = 16
    interval: float = 4.0
    score: str = "paper"
    lone_neighbour: str = "kept"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.degree >= 1, "degree", "at least 1", self.degree)
        require(self.interval > 0, "interval", "positive", self.interval)
        one_of("score", self.score, ("paper", "code"))
        one_of("lone_neighbour", self.lone_neighbour, ("kept", "dropped"))

    @cached_property
    def series(self) -> np.ndarray:
        """Return the Chebyshev coefficients of the score on [-interval, interval], `[degree + 1]`."""
        scaled = _stretch(code_score if self.score == "code" else paper_score, self.interval)
        if self.score == "code":
            return chebyshev.least_squares(scaled, self.degree, points=500)
        return chebyshev.coefficients(scaled, self.degree)

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Return the clients after the exchange of Algorithm 1 (lines 1 to 3), and the initial weights.

        Each client can then compute layer 1 at its nodes and at their neighbours. The matrices of line 2 are counted
        and not built, since the edge form gives the same layer.
        """
        dropped = self.lone_neighbour == "dropped"
        extended = fed.halo(2, [without_lone_neighbours(source) for source in fed.sources] if dropped else None)
        _count_exchange(fed, extended)
        extended, state = super().start(extended)
        if self.score == "code":
            _replace_attention_vectors(state.shared, fed, self.model)
        return extended, state

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return the logits `[nodes, classes]` (Algorithm 2, line 3), with layer 1 by Eq. 7 and layer 2 as in a GAT."""
        h, score, edges = self._first(weights, fed)
        heads = attend(edges, chebyshev.evaluate(score / self.interval, self.series), h)
        return self.model.second_layer(weights, fed, heads)

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Return facts about the scores x_ij at the last weights, one dictionary per run.

        Returns:
            "largest_score" is the largest |x_ij|. "outside" is the share of the scores outside the interval.
            "negative" is the share of negative values of the polynomial, while an exponential has none.
        """
        shared = fed.shared()
        with torch.no_grad():
            _, x, edges = self._first(state.shared, shared)
            score = chebyshev.evaluate(x / self.interval, self.series)
        run_of_edge = fed.run[fed.batch.batch][edges.target]
        facts = []
        for run in range(fed.runs):
            size, values = x[run_of_edge == run].abs(), score[run_of_edge == run]
            outside = float((size > self.interval).double().mean())
            negative = float((values < 0).double().mean())
            facts.append({"largest_score": float(size.max()), "outside": outside, "negative": negative})
        return facts

    def _first(self, weights: Weights, fed: Federation) -> tuple[Tensor, Tensor, Edges]:
        """Return W h `[nodes, heads, hidden]`, x_ij `[edges, heads]`, and the edges that layer 1 needs."""
        edges = fed.attention_edges(1)
        x = layers.dropout(fed, fed.input, self.model.first_dropout, "layer1")
        source, target = weights["layer1.source"], weights["layer1.target"]
        h = layers.linear(fed, x, weights["layer1.weight"])
        h = h.view(len(h), self.model.heads, self.model.hidden)
        if self.score == "paper":
            return h, layers.attention_scores(fed, h, source, target, edges), edges
        from_source = layers.linear(fed, x, source.transpose(1, 2)) / fed.features
        from_target = layers.linear(fed, x, target.transpose(1, 2)) / fed.features
        return h, edges.at_source(from_source) + edges.at_target(from_target), edges


@dataclass(frozen=True, kw_only=True)
class DistGATSGD(FedSGD, DistGAT):
    """DistGAT with aggregated gradients, which trains on the union of the client graphs."""


@dataclass(frozen=True, kw_only=True)
class FedGATSGD(FedSGD, FedGAT):
    """FedGAT with aggregated gradients, as the authors' public code trains it (FG-Q12c).

    In each round every client sends one gradient. The server weighs it by the client's share of training nodes and
    takes one step of Adam. The aggregated gradient is that of the mean loss over all training nodes. Since FedGAT's
    layers miss no edge, the weights are those of one client that holds the whole graph, whatever the partition.
    """


def paper_score(x: np.ndarray) -> np.ndarray:
    """Return exp(LeakyReLU(x)) with slope 0.2, the score of a GAT (Eq. 3)."""
    return np.exp(np.where(x > 0, x, 0.2 * x))


def code_score(x: np.ndarray) -> np.ndarray:
    """Return a smooth LeakyReLU without the exponential, the score in the authors' public code."""
    return 0.2 * x + 0.2 * np.logaddexp(0.0, 4.0 * x)


def _stretch(f: Callable[[np.ndarray], np.ndarray], radius: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return f as a function on [-1, 1]."""
    return lambda t: f(radius * t)


def _replace_attention_vectors(shared: Weights, fed: Federation, model: GAT) -> None:
    """Draw attention vectors over the input features, uniform on (-1, 1), in place of those over W h."""
    for name in ("layer1.source", "layer1.target"):
        vectors = [random.uniform((model.heads, fed.features), "init", seed, name) * 2 - 1 for seed in fed.seeds]
        shared[name] = torch.stack(vectors).to(fed.device, fed.dtype)


def without_lone_neighbours(source: Source) -> Data:
    """Return the run's graph without the cross-client edge of every node that has exactly one (Section 5, FG-Q8)."""
    data, owner = source.data, torch.empty(source.data.num_nodes, dtype=torch.long)
    for client, part in enumerate(source.parts):
        owner[part] = client
    cross = owner[data.edge_index[0]] != owner[data.edge_index[1]]
    lone = torch.bincount(data.edge_index[1][cross], minlength=data.num_nodes) == 1
    reduced = data.clone()
    reduced.edge_index = data.edge_index[:, ~(cross & lone[data.edge_index[1]])]
    return reduced


def _count_exchange(fed: Federation, extended: Federation) -> None:
    """Count the exchange of Algorithm 1 (lines 1 and 3) as if the matrices were sent.

    The clients send all features. The server sends M1(s), M2(s), K1 and K2 for every node whose layer 1 a client
    computes. If a node has g neighbours, itself among them, these are 2 d matrices of (2g)^2, a vector of 2g and a
    matrix of 2g by d.
    """
    edges = extended.attention_edges(1)
    g = torch.bincount(edges.target, minlength=extended.nodes).double()
    scalars = 2 * fed.features * (2 * g) ** 2 + 2 * g + 2 * g * fed.features
    down = torch.zeros(fed.runs, dtype=torch.float64, device=fed.device)
    down.index_add_(0, extended.run[extended.batch.batch], torch.where(g > 0, scalars, 0.0))
    nodes = torch.bincount(fed.run[fed.batch.batch], minlength=fed.runs).cpu().numpy()
    fed.traffic.send("up", "features", fed.features * nodes)
    fed.traffic.send("down", "matrices", down.cpu().numpy())


# -- the weighted sum of a layer ---------------------------------------------------------------------------------------
#
# A client of FedGAT scores every edge of its extended graph in every head. Ten clients of Squirrel have millions of
# edges together, each with a message of 64 numbers in `layers.attend`. On a CPU one compiled loop gathers, weighs and
# sums instead, and stores no message per edge. It rounds each product and adds in the order of the edges, as the torch
# operations do, so that all digits are those of `layers.attend`.


def attend(edges: Edges, score: Tensor, h: Tensor) -> Tensor:
    """Return the mean of the neighbours' `h`, weighted by `score` (Eq. 1 and 2), `[nodes, heads, width]`.

    Args:
        score: e_ij, not yet divided by its sum over the neighbours, `[edges, heads]`.
        h: W h_j, `[nodes, heads, width]`.
    """
    if not kernels.compiled(h, score.numel()):
        return layers.attend(edges, score, h)
    total = edges.sum(score)
    mixed: Tensor = _Mixed.apply(score, h, edges)  # type: ignore[no-untyped-call]
    return mixed / torch.where(total == 0, 1.0, total)[..., None]


class _Mixed(torch.autograd.Function):
    """The sum over the edges of each target node of the score times the source's `h`."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, h: Tensor, edges: Edges) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(score, h)
        return _mix(edges._by_target.ptr_t, edges._by_target.order, edges.source, score, h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (score, h), edges = ctx.saved_tensors, ctx.edges
        grad_score, by = torch.empty_like(score), edges._by_source
        at_target, at_source = h.new_empty(2, BLOCK, *h.shape[1:]).unbind()
        for out, source, target in zip(*(part.split(BLOCK) for part in (grad_score, edges.source, edges.target))):
            product = torch.index_select(grad, 0, target, out=at_target[: len(out)])
            product.mul_(torch.index_select(h, 0, source, out=at_source[: len(out)]))
            torch.sum(product, -1, out=out)
        return grad_score, _mix(by.ptr_t, by.order, edges.target, score, grad), None


def _mix(ptr: Tensor, edge: Tensor, other: Tensor, score: Tensor, rows: Tensor) -> Tensor:
    """Return for each node the sum over its edges of `score[e] * rows[other[e]]`, in the order of `edge`."""
    from fedrepro.papers.fedgat import loops  # Numba takes half a second to import

    out = torch.zeros_like(rows, memory_format=torch.contiguous_format)
    values = [part.detach().contiguous().numpy() for part in (score, rows)]
    loops.mix(ptr.numpy(), edge.numpy(), other.numpy(), values[0], values[1], out.numpy())
    return out
