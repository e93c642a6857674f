"""Train FedGAT, DistGAT and the central GAT as the authors' public code does (FG-Q12c).

The printed tables are those of the public code, which differs from the text. Compared with `method`, this reading
changes the loss, the first layer and the features:

    server      averages the clients' gradients by their shares of training nodes and takes a step of Adam
                                                                         `FedGATSGD`, `DistGATSGD`
    loss        the model ends in a softmax, and the cross-entropy applies another one to its output     `_TwoSoftmaxes`
    layer 1     scores without exponential; W and the attention vectors start uniform on (-1, 1); no bias
                                                                         `FedGAT.score`, `FedGATAsCoded`
    features    each row less its mean, then divided by its norm         the step "centred-norm" of `datasets.prepare`
    score       of the last round, before the step of that round: a run of R rounds in the code is one of R - 1 here,
                and its score is that of its last round

The code's central GAT is its DistGAT with one client, which holds the whole graph.

We depart from the public code where it cannot matter much, or where it speaks against the paper's protocol:

    hubs        The code drops neighbours of a node beyond 150 at random: one node of Cora, two of PubMed. We keep all.
    seeds       The code draws from one seed, 42, and reuses one partition and one exchange in all repetitions. Each of
                our seeds draws a partition and initial weights.
    polynomial  The code evaluates powers of x in float32. We evaluate the same polynomial by its recurrence.
    n = 0       The code's Matrix form doubles the constant term. We use that of its Vector form (FG-Q2).
    repetitions The code repeats a sweep over clients three times. We run ten seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedrepro.data.formats import SPARSE_BELOW
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.models import uniform_below
from fedrepro.engine.nn.sparse import Edges, Sparse
from fedrepro.errors import one_of, require
from fedrepro.papers.fedgat.method import DistGATSGD, FedGATSGD


class _TwoSoftmaxes:
    """A mixin for a method whose model ends in a softmax, so that the cross-entropy takes probabilities for logits."""

    # It does not inherit from `Method`, whose defaults would then replace those of `FedSGD` in a class made of both.
    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return the probabilities `[nodes, classes]`, whose order is that of the logits."""
        logits: Tensor = super().forward(weights, fed, state)  # type: ignore[misc]
        return logits.softmax(1)


@dataclass(frozen=True, kw_only=True)
class DistGATAsCoded(_TwoSoftmaxes, DistGATSGD):
    """DistGAT as the authors' public code trains it. With one client it is the code's central GAT."""


@dataclass(frozen=True, kw_only=True)
class FedGATAsCoded(_TwoSoftmaxes, FedGATSGD):
    """FedGAT as the authors' public code trains it.

    Centred features have no zeros, which makes layer 1 slow. But the entries that were zero are alike in a row, and
    are its smallest. So the clients hold x_v - min(x_v), which is sparse again, and min(x_v) as a further column, and

        x_v W = (x_v - min(x_v)) W + min(x_v) (1 W),        1 W the sum of the rows of W.

    Args:
        first_layer: "code" starts W uniform on (-1, 1) and gives layer 1 no bias, as the public code does. "gat" starts
            it as a GAT, with Glorot's W and a bias.
    """

    score: str = "code"
    interval: float = 5.0
    first_layer: str = "code"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("score", self.score, ("code",))
        one_of("first_layer", self.first_layer, ("code", "gat"))
        require(self.model.first_dropout == 0, "input_dropout", "0 for FedGAT as coded", self.model.first_dropout)

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Return the clients after the exchange, with row minima as a further feature, and the initial weights."""
        extended, state = super().start(fed)
        extended = extended.with_features(_with_minima(extended.x))
        if self.first_layer == "gat":
            return extended, state
        shared = {name: w for name, w in state.shared.items() if name != "layer1.bias"}
        name, shape = "layer1.weight", tuple(shared["layer1.weight"].shape[1:])
        drawn = torch.stack([uniform_below(1.0, shape, seed, name) for seed in fed.seeds])
        shared[name] = drawn.to(fed.device, fed.dtype)
        return extended, replace(state, shared=shared, more=self.rule().init(shared))

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return the probabilities `[nodes, classes]`."""
        if self.first_layer == "code":
            weights = {**weights, "layer1.bias": torch.zeros_like(weights["layer1.weight"][:, 0])}
        return super().forward(weights, fed, state)

    def _first(self, weights: Weights, fed: Federation) -> tuple[Tensor, Tensor, Edges]:
        """Return W h `[nodes, heads, hidden]`, x_ij `[edges, heads]`, and the edges, from one product."""
        edges = fed.attention_edges(1)
        vectors = [weights[f"layer1.{name}"].transpose(1, 2) for name in ("source", "target")]
        matrix = torch.cat([weights["layer1.weight"], *vectors], 2)
        out = layers.linear(fed, fed.input, torch.cat([matrix, matrix.sum(1, keepdim=True)], 1))
        heads = vectors[0].shape[2]
        h, from_source, from_target = out[:, : -2 * heads], out[:, -2 * heads : -heads], out[:, -heads:]
        x = edges.at_source(from_source) + edges.at_target(from_target)
        return h.reshape(len(h), heads, self.model.hidden), x / matrix.shape[1], edges


def _with_minima(x: Tensor | Sparse) -> Tensor | Sparse:
    """Return features less their row's minimum, and the minimum as a further column; those of sparse rows are 0."""
    if isinstance(x, Sparse):
        return Sparse.of(x.pattern.row, x.pattern.col, x.value, (x.shape[0], x.shape[1] + 1))
    lowest = x.min(1, keepdim=True).values
    parts = torch.cat([x - lowest, lowest], 1)
    return Sparse.from_tensor(parts) if float((parts != 0).double().mean()) < SPARSE_BELOW else parts
