"""NeighGen (Zhang et al. 2021, FedSage+): a client learns to generate the neighbours it cannot see.

A client hides some of its own nodes and learns, from the graph that is left, how many hidden neighbours a node has
(n_v) and what their features are (U_v, at most q of them):

    encoder   z_v = relu(R relu(R X W1 + b1) W2 + b2),   R = D~^-1 (A+I) of the graph that is left
    dGen      n^_v = relu(z_v w + b)
    fGen      X^_v = tanh(drop(relu(relu((z_v + noise) F1) F2)) F3),   q rows; the first k_v are new neighbours of v
    L_d       mean over training nodes of smooth-L1(n^_v, n_v)
    L_f       sum over their generated rows of the least squared distance to a row of U_v, a mean over features
    L_c       cross-entropy of a GraphSAGE on the graph with the generated neighbours
    L_f(j)    L_f with neighbours of random nodes of client j in place of U_v: what crosses between clients

Everything here is one client's, so clients are trained one after another: the generator's last matrix alone has
`width * q * features` weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.baselines.impaired import Held, Impaired, Other, impaired
from fedrepro.engine.federation import Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import glorot
from fedrepro.engine.nn.optim import Optimizer
from fedrepro.engine.nn.sparse import SliceProducts, Sparse

FEATURE = "feature"  # the names of fGen's weights begin with it


class Losses(NamedTuple):
    """Where a generator's training ended: L_f, the mean of L_f(j) over other clients, and how many of these it met."""

    own: float
    cross: float
    others: int


@dataclass(frozen=True)
class NeighGen:
    """Args:
    epochs, lr, weight_decay, dropout: of its training, with Adam.
    hidden_share: of a client's nodes; training nodes are never hidden.
    most: q.
    encoder, latent, hidden, width: of the encoder (features-encoder-latent; also of the classifier) and of fGen
        (latent-hidden-width-q features).
    scheme: "original": `epochs` of the local loss, then `epochs` of (local + sum over others of L_f(j)) / clients in
        which fGen alone moves. "fedstruct": `epochs` of local + mean over others of L_f(j), everything moves, and L_f
        is a mean over generated rows.
    true_count: k_v is the true number of missing neighbours.
    cross: whether other clients' neighbours enter.
    row_sum: a generated row leaves fGen divided by the sum of its absolute values.
    scaled: L_f and L_f(j) are in units of the mean squared entry of the client's features, not in those of the features
        themselves: of rows that sum to 1 they are else thousands of times smaller than L_d and L_c.
    """

    epochs: int
    lr: float
    weight_decay: float
    dropout: float
    hidden_share: float
    most: int
    encoder: int
    latent: int
    hidden: int
    width: int
    scheme: str
    true_count: bool
    cross: bool
    row_sum: bool
    scaled: bool

    def init(self, held: Held, classes: int, count: Tensor) -> Weights:
        """Glorot's weights and zero biases, one slice; dGen's bias is the mean of n_v, for a dying ReLU generates
        nothing.
        """
        features, q = held.x.shape[1], self.most
        shapes = {
            "encoder1": (features, self.encoder), "encoder2": (self.encoder, self.latent), "count": (self.latent, 1),
            "feature1": (self.latent, self.hidden), "feature2": (self.hidden, self.width),
            "feature3": (self.width, q * features), "classifier1": (features, self.encoder),
            "classifier2": (self.encoder, classes),
        }  # fmt: skip
        made: Weights = {}
        for name, (a, b) in shapes.items():
            parts = ("weight", "root") if name.startswith("classifier") else ("weight",)
            for part in parts:
                drawn = glorot(a, b, seed=held.seed, name=f"neighgen.{held.number}.{name}.{part}")
                made[f"{name}.{part}"] = drawn.to(held.x)[None]
            made[f"{name}.bias"] = held.x.new_zeros(1, b)
        made["count.bias"] += count.to(held.x).mean()
        return made

    # -- training -----------------------------------------------------------------------------------------------------

    def train(self, held: Held, others: Sequence[Held], classes: int) -> tuple[Weights, Losses]:
        """One client's generator, trained against the neighbours of the others."""
        graph = impaired(held, self.hidden_share, self.most)
        weights = self.init(held, classes, graph.missing[graph.train])
        met = [Other.of(other) for other in others] if self.cross else []
        met = [other for other in met if len(other.able)]
        found = (0.0, 0.0)
        if self.scheme == "original":
            self._epochs(weights, list(weights), held, graph, [], 0)
            names = [name for name in weights if name.startswith(FEATURE)]
            found = self._epochs(weights, names, held, graph, met, self.epochs, 1 / (1 + len(others)))
        else:
            found = self._epochs(weights, list(weights), held, graph, met, 0)
        return weights, Losses(*found, others=len(met))

    def _epochs(
        self, weights: Weights, names: list[str], held: Held, graph: Impaired, met: list[Other], first: int,
        factor: float = 1.0,
    ) -> tuple[float, float]:  # fmt: skip
        rule = Optimizer("adam", self.lr, self.weight_decay)
        state = rule.init({name: weights[name] for name in names})
        own = cross = weights["count.bias"].new_zeros(())
        for epoch in range(first, first + self.epochs):
            leaves = {name: w.detach().requires_grad_(name in names) for name, w in weights.items()}
            local, own, cross = self.losses(leaves, held, graph, met, epoch)
            share = 1.0 if self.scheme == "original" else 1 / max(1, len(met))
            loss = factor * (local + share * cross)
            grads = torch.autograd.grad(loss, [leaves[name] for name in names], allow_unused=True)
            rule.step(weights, {name: g for name, g in zip(names, grads) if g is not None}, state)
        return float(own.detach()), float(cross.detach()) / max(1, len(met))

    def losses(
        self, weights: Weights, held: Held, graph: Impaired, met: list[Other], epoch: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """L_d + L_f + L_c, L_f alone, and the sum over other clients of L_f(j), each a number."""
        z = self.encode(weights, graph.x, graph.edges, held.keys[graph.nodes], epoch)
        count = self.count(weights, z)
        target = graph.missing.to(z)
        kept = self.kept(graph.missing if self.true_count else count.detach().round())  # the public code truncates
        rows = self.features(weights, z, graph.near, held, epoch, kept[graph.near])
        host = graph.near[kept[graph.near].nonzero()[:, 0]]
        here = graph.train.nonzero().squeeze(1)
        scale: float | Tensor = len(here) * self.most if self.scheme == "original" else max(1, int(kept[here].sum()))
        scale = scale * held.x.square().mean() if self.scaled else scale
        of_train = graph.train[host].nonzero().squeeze(1)
        mine, node = rows.index_select(0, of_train)[:, None], host[of_train]
        on = (graph.missing[node] > 0)[:, None]
        own = least_distance(mine, on, held.x[graph.rows[node]], graph.filled[node]) / scale
        logits = self._classify(weights, graph, rows, host)
        label = held.y[graph.nodes][here]
        wrong = F.cross_entropy(logits[here], label)
        local = F.smooth_l1_loss(count[here], target[here]) + own + wrong
        drawn_for = torch.searchsorted(here, node)
        return local, own, self._cross(mine, drawn_for, len(here), held, met, epoch) / scale

    def _cross(self, mine: Tensor, at: Tensor, nodes: int, held: Held, met: list[Other], epoch: int) -> Tensor:
        """The sum over other clients, as one squared distance: the nearest rows are added up before it is taken.

        Args:
            mine: `[rows, 1, features]`.
            at: `[rows]`, whose neighbour each is, of so many `nodes` that neighbours are drawn for.
        """
        total, squares = torch.zeros_like(mine), mine.new_zeros(mine.shape[:2])
        for other in met:
            drawn = other.draw(nodes, self.most, held, epoch)[at]
            chosen = drawn.gather(1, nearest(mine, other.held.x[drawn], other.squares[drawn]))
            total += other.held.x[chosen]
            squares += other.squares[chosen]
        distance = len(met) * mine.square().sum(-1) - 2 * (mine * total).sum(-1) + squares
        return distance.sum() / mine.shape[-1]

    # -- the network --------------------------------------------------------------------------------------------------

    def encode(self, weights: Weights, x: Tensor | Sparse, edges: Tensor, keys: Tensor, epoch: int | None) -> Tensor:
        """z `[nodes, latent]`; dropout is off where `epoch` is None."""
        every = torch.arange(len(keys), device=keys.device).expand(2, -1)
        mean = mean_operator(torch.cat([edges, every], dim=1), len(keys), weights["encoder1.weight"])
        h = F.relu(mean @ (x @ weights["encoder1.weight"][0]) + weights["encoder1.bias"])
        h = self._dropped(h, keys, "encoder", epoch)
        return F.relu(mean @ (h @ weights["encoder2.weight"][0]) + weights["encoder2.bias"])

    def count(self, weights: Weights, z: Tensor) -> Tensor:
        """n^ `[nodes]`."""
        return F.relu(z @ weights["count.weight"][0] + weights["count.bias"]).squeeze(1)

    def kept(self, count: Tensor) -> Tensor:
        """Which generated rows are neighbours, `[nodes, q]`: the first k_v."""
        whole = torch.nan_to_num(count.double(), nan=0.0).clamp(0, self.most)
        return torch.arange(self.most, device=count.device) < whole[:, None]

    def features(
        self, weights: Weights, z: Tensor, nodes: Tensor, held: Held, epoch: int | None, kept: Tensor | None = None
    ) -> Tensor:
        """X^ `[nodes, q, features]` at some nodes of those in `z`; noise is added in evaluation too.

        Args:
            kept: `[nodes, q]`, the rows that are wanted; then the result is these alone, `[rows, features]`.
        """
        noise = random.normal(tuple(z.shape), "neighgen noise", held.seed, held.number, -1 if epoch is None else epoch)
        h = z[nodes] + noise.to(z)[nodes]
        for name in ("feature1", "feature2"):
            h = F.relu(h @ weights[f"{name}.weight"][0] + weights[f"{name}.bias"])
        h = self._dropped(h, held.keys[nodes], "feature", epoch)
        q, width = self.most, held.x.shape[1]
        wanted = torch.ones(len(nodes), q, dtype=torch.bool, device=z.device) if kept is None else kept
        place, row = wanted.T.nonzero(as_tuple=True)  # a node's q rows come from q matrices
        matrices = weights["feature3.weight"].view(-1, q, width).transpose(0, 1)
        out = SliceProducts.of(h.index_select(0, row), matrices, torch.bincount(place, minlength=q).tolist())
        out = torch.tanh(out + weights["feature3.bias"].view(q, width).index_select(0, place))
        out = F.normalize(out, p=1.0) if self.row_sum else out
        out = out.index_select(0, torch.argsort(row * q + place))
        return out.view(len(nodes), q, width) if kept is None else out

    def _classify(self, weights: Weights, graph: Impaired, new: Tensor, host: Tensor) -> Tensor:
        """Logits of a two-layer GraphSAGE on the mended graph. Nodes that no training node sees are not mended."""
        old, total = len(graph.nodes), len(graph.nodes) + len(new)
        added = torch.stack([torch.arange(old, total, device=new.device), host])
        mean = mean_operator(torch.cat([graph.edges, added, added.flip(0)], dim=1), total, new)
        first, first_root, second, second_root = (
            weights[f"classifier{layer}.{part}"][0] for layer in (1, 2) for part in ("weight", "root")
        )
        seen, own = (torch.cat([graph.x @ w, new @ w]) for w in (first, first_root))
        h = F.relu(mean @ seen + own + weights["classifier1.bias"])
        return mean @ (h @ second) + h @ second_root + weights["classifier2.bias"]

    def _dropped(self, h: Tensor, keys: Tensor, place: str, epoch: int | None) -> Tensor:
        if epoch is None or not self.dropout:
            return h
        rows = random.row_keys(keys, "neighgen", place, epoch)
        kept = random.keep(rows[:, None], torch.arange(h.shape[1], device=h.device), self.dropout)
        return h * kept.to(h.dtype) / (1 - self.dropout)

    # -- use ----------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def generate(self, weights: Weights, held: Held) -> tuple[Tensor, Tensor]:
        """New neighbours of a client's nodes, seen in its whole graph: features `[new, features]` and whose neighbour
        each is `[new]`.
        """
        z = self.encode(weights, held.x, held.edges, held.keys, None)
        kept = self.kept(held.missing if self.true_count else self.count(weights, z).round())
        hosts = kept.any(1).nonzero().squeeze(1)
        return self.features(weights, z, hosts, held, None, kept[hosts]), hosts[kept[hosts].nonzero()[:, 0]]


@torch.no_grad()
def nearest(made: Tensor, given: Tensor, squares: Tensor) -> Tensor:
    """For each generated row the place of the nearest given one, `[nodes, rows]`.

    Args:
        made: `[nodes, rows, features]`.
        given: `[nodes, q, features]`.
        squares: `[nodes, q]`, the squared lengths of the given rows; infinite for one that does not count.
    """
    return (squares[:, None] - 2 * made @ given.transpose(1, 2)).argmin(-1)


def least_distance(made: Tensor, on: Tensor, given: Tensor, filled: Tensor) -> Tensor:
    """Sum over the rows that count of the mean squared distance to the nearest given row (several may share it).

    Args:
        made: `[nodes, q, features]`.
        on: `[nodes, q]`, which of these rows count.
        given: `[nodes, q, features]`.
        filled: `[nodes, q]`, which given rows there are.
    """
    place = nearest(made, given, given.square().sum(-1).masked_fill(~filled, torch.inf))
    chosen = given.gather(1, place[..., None].expand(-1, -1, given.shape[-1]))
    distance = (made - chosen).square().mean(-1)
    return torch.where(on, distance, 0.0).sum()


def mean_operator(edges: Tensor, nodes: int, like: Tensor) -> Sparse:
    """`D^-1 A` over edges (source, target): `[nodes, nodes]`."""
    degree = torch.bincount(edges[1], minlength=nodes).to(like.dtype)
    return Sparse.of(edges[1], edges[0], 1.0 / degree[edges[1]], (nodes, nodes))
