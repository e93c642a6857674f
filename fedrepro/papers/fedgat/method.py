"""FedGAT (Ambekar et al. 2024, Section 4 and Algorithms 1, 2): a GAT whose first layer needs one exchange before
training.

The scores e_ij = exp(LeakyReLU(x_ij)), x_ij = a_1.W h_i + a_2.W h_j, of layer 1 are replaced by a polynomial of degree
p in x_ij. From matrices that the server sends once, a client then computes sum_j x_ij^n h_j and sum_j x_ij^n for every
power n, and from these its layer (Eq. 7):

    h_i = phi( W sum_j p(x_ij) h_j / sum_j p(x_ij) )

This file trains that layer in its edge form: the polynomial is evaluated on each edge. What the matrices would yield is
the same number, so training, accuracy and gradients are those of the protocol, at a small part of its memory.

Decisions the paper leaves open:

    FG-Q2   the term n = 0 is counted once (the identity D^0 of Algorithm 2 would count it twice)
    FG-Q3   the series lives on [-interval, interval]; scores outside are not clipped, no client could: share reported
    FG-Q9   no exchange per round: a client evaluates layer 1 on its nodes and their neighbours, layer 2 on its nodes
    FG-Q11  the basis is evaluated by the three-term recurrence, not as powers
    FG-Q15  all clients with training nodes take part and weigh the same (Eq. 19); weight 0 for the others
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.client_graphs import Source
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn import layers, random
from fedrepro.engine.nn.models import GAT
from fedrepro.engine.nn.sparse import Edges
from fedrepro.errors import one_of, require
from fedrepro.papers.fedgat import chebyshev
from fedrepro.papers.fedgat.distgat import DistGAT


@dataclass(frozen=True, kw_only=True)
class FedGAT(DistGAT):
    """Args:
    degree: p, the degree of the polynomial (16 in the paper).
    interval: R; the series is made for scores in [-R, R].
    score: "paper" for exp(LeakyReLU(.)) of a.Wh; "code" for what the authors' public code computes instead: a
        least-squares fit, on 500 points, of a smooth LeakyReLU without the exponential, on attention vectors over the
        input features, divided by their number.
    lone_neighbour: "kept", or "dropped": a node with a single neighbour at other clients loses it (Section 5, FG-Q8).
        Neither algorithm box does it, nor does the public code.
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
        """Chebyshev coefficients of the score on [-interval, interval], `[degree + 1]`."""
        scaled = _stretched(_code_score if self.score == "code" else paper_score, self.interval)
        if self.score == "code":
            return chebyshev.least_squares(scaled, self.degree, points=500)
        return chebyshev.coefficients(scaled, self.degree)

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """The exchange before training: a client can then compute layer 1 at its own nodes and at their neighbours."""
        dropped = self.lone_neighbour == "dropped"
        extended = fed.halo(2, [_without_lone_neighbours(source) for source in fed.sources] if dropped else None)
        _count(fed, extended)
        extended, state = super().start(extended)
        if self.score == "code":
            _free_vectors(state.shared, fed, self.model)
        return extended, state

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Layer 1 with the polynomial (Eq. 7), layer 2 an exact GAT layer."""
        h, score, edges = self._first(weights, fed)
        mixed = layers.attend(edges, chebyshev.evaluate(score / self.interval, self.series), h)
        return self.model.second_layer(weights, fed, mixed)

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Per run, at the last weights: the largest |x_ij|, the share of them outside the interval, and the share of
        polynomial values that are negative, which no exponential is.
        """
        shared = fed.shared()
        with torch.no_grad():
            _, x, edges = self._first(state.shared, shared)
            score = chebyshev.evaluate(x / self.interval, self.series)
        run = fed.run[fed.batch.batch][edges.target]
        out = []
        for r in range(fed.runs):
            size, values = x[run == r].abs(), score[run == r]
            outside = float((size > self.interval).double().mean())
            negative = float((values < 0).double().mean())
            out.append({"largest_score": float(size.max()), "outside": outside, "negative": negative})
        return out

    def _first(self, weights: Weights, fed: Federation) -> tuple[Tensor, Tensor, Edges]:
        """W h `[nodes, heads, hidden]`, x_ij `[edges, heads]`, and the edges at nodes whose layer 1 is needed."""
        edges = fed.attention_edges(1)
        x = layers.dropout(fed, fed.input, self.model.first_dropout, "layer1")
        source, target = weights["layer1.source"], weights["layer1.target"]
        h = layers.linear(fed, x, weights["layer1.weight"])
        h = h.view(len(h), -1, self.model.hidden)
        if self.score == "paper":
            return h, layers.attention_scores(fed, h, source, target, edges), edges
        from_source = layers.linear(fed, x, source.transpose(1, 2)) / fed.features
        from_target = layers.linear(fed, x, target.transpose(1, 2)) / fed.features
        return h, edges.at_source(from_source) + edges.at_target(from_target), edges


def paper_score(x: np.ndarray) -> np.ndarray:
    """exp(LeakyReLU(x)) with slope 0.2, the score of a GAT (FedGAT Eq. 3)."""
    return np.exp(np.where(x > 0, x, 0.2 * x))


def _code_score(x: np.ndarray) -> np.ndarray:
    """A smooth LeakyReLU without the exponential, as in the authors' public code."""
    return 0.2 * x + 0.2 * np.logaddexp(0.0, 4.0 * x)


def _stretched(f: Callable[[np.ndarray], np.ndarray], radius: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda t: f(radius * t)


def _free_vectors(shared: Weights, fed: Federation, model: GAT) -> None:
    """Attention vectors over the input features, uniform on (-1, 1), in place of those over W h."""
    for name in ("layer1.source", "layer1.target"):
        drawn = [random.uniform((model.heads, fed.features), "init", seed, name) * 2 - 1 for seed in fed.seeds]
        shared[name] = torch.stack(drawn).to(fed.device, fed.dtype)


def _without_lone_neighbours(source: Source) -> Data:
    """The run's graph without the edges to nodes that have exactly one neighbour at another client."""
    data, owner = source.data, torch.empty(source.data.num_nodes, dtype=torch.long)
    for client, part in enumerate(source.parts):
        owner[part] = client
    cross = owner[data.edge_index[0]] != owner[data.edge_index[1]]
    lone = torch.bincount(data.edge_index[1][cross], minlength=data.num_nodes) == 1
    made = data.clone()
    made.edge_index = data.edge_index[:, ~(cross & lone[data.edge_index[1]])]
    return made


def _count(fed: Federation, extended: Federation) -> None:
    """Features up; down, for every node whose layer 1 a client computes, M1(s), M2(s), K1 and K2 (Algorithm 1).

    A node with g neighbours (itself included) takes 2 d matrices of (2g)^2, a vector of 2g and a matrix of 2g by d.
    """
    edges = extended.attention_edges(1)
    g = torch.bincount(edges.target, minlength=extended.nodes).double()
    each = 2 * fed.features * (2 * g) ** 2 + 2 * g + 2 * g * fed.features
    down = torch.zeros(fed.runs, dtype=torch.float64, device=fed.device)
    down.index_add_(0, extended.run[extended.batch.batch], torch.where(g > 0, each, 0.0))
    nodes = torch.bincount(fed.run[fed.batch.batch], minlength=fed.runs).cpu().numpy()
    fed.traffic.send("up", "features", fed.features * nodes)
    fed.traffic.send("down", "matrices", down.cpu().numpy())
