"""Generate missing neighbours by NeighGen, the generator of FedSage+.

K. Zhang, C. Yang, X. Li, L. Sun and S. M. Yiu, "Subgraph Federated Learning with Missing Neighbor Generation",
NeurIPS 2021, arXiv:2106.13430. The method that uses the generator is in `fedrepro.baselines.fedsage`.

A client hides some of its nodes (`hide_nodes`) and learns from the impaired graph that is left. For each node v it
predicts the number n_v of hidden neighbours and their features U_v, at most q rows. With R = D~^-1 (A+I) of the
impaired graph:

    encoder   z_v = relu(R relu(R X W1 + b1) W2 + b2), `[latent]`                          (`NeighGen.encode`)   (1)
    dGen      n^_v = relu(z_v w + b)                                                       (`NeighGen.count`)    (2)
    fGen      X^_v = tanh(drop(relu(relu((z_v + noise) F1) F2)) F3), `[q, features]`       (`NeighGen.features`) (3)

The first k_v rows of X^_v are new neighbours of v, where k_v is n^_v rounded. Four losses train the generator, as means
over the training nodes (`NeighGen.losses`):

    L_d      smooth-L1(n^_v, n_v)                                                                                (4)
    L_f      1/q sum over the k_v rows of the least squared distance to a row of U_v, a mean over features       (5)
    L_c      cross-entropy of a GraphSAGE on the graph with the generated neighbours                             (6)
    L_f(j)   L_f with neighbours of random nodes of client j in place of U_v                                     (7)

Only L_f(j) crosses between clients. An integer k_v passes no gradient, so dGen learns from L_d by itself.

One client is trained after another, since the last matrix of fGen has `width * q * features` weights. `scheme` chooses
what the paper and the public codes do differently:

1. "original" (the authors' code): `epochs` of L_d + L_f + L_c, then `epochs` of that and the sum of L_f(j) over the
   number of clients, in which only fGen moves.
2. "fedstruct" (FedStruct's code): `epochs` of L_d + L_f + L_c and the mean of L_f(j), in which all weights move. There
   L_f and L_f(j) are means over the generated rows, in place of 1/q and the mean over nodes.

The authors' code truncates n^_v, and we round it. Both keep the first k_v rows and add the noise in evaluation too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.baselines.impaired import ClientView, Impaired, OtherClient, hide_nodes
from fedrepro.engine.federation import Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import glorot
from fedrepro.engine.nn.optim import Optimizer
from fedrepro.engine.nn.sparse import SliceProducts, Sparse

# The names of fGen's weights begin with it.
FEATURE = "feature"


class Losses(NamedTuple):
    """The last losses of a generator: L_f, the mean of L_f(j) over other clients, and the number of these."""

    own: float
    cross: float
    others: int


@dataclass(frozen=True, kw_only=True)
class NeighGen:
    """The generator's sizes and how it trains.

    Args:
        epochs: full-batch steps of each phase.
        lr: Adam's learning rate.
        weight_decay: Adam's weight decay.
        dropout: in encoder and fGen.
        hidden_share: share of a client's nodes that are hidden. Training nodes never are.
        most: q, the largest number of neighbours that a node gets.
        encoder: hidden width of the encoder and of the classifier.
        latent: width of z_v.
        hidden: width of fGen's first layer.
        width: width of fGen's second layer.
        scheme: "original" or "fedstruct", see above.
        true_count: whether k_v is the true number of missing neighbours.
        cross: whether L_f(j) enters.
        row_sum: whether fGen divides a row by the sum of its absolute values.
        scaled: whether L_f and L_f(j) are in units of the mean squared entry of the client's features. Else they are
            thousands of times smaller than L_d and L_c if the rows of the features sum to 1.
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

    def init(self, held: ClientView, classes: int, count: Tensor) -> Weights:
        """Draw Glorot's weights with zero biases, one slice.

        The bias of dGen starts at the mean of n_v, since a ReLU that starts at 0 may never generate anything.
        """
        features, q = held.x.shape[1], self.most
        shapes = {
            "encoder1": (features, self.encoder),
            "encoder2": (self.encoder, self.latent),
            "count": (self.latent, 1),
            "feature1": (self.latent, self.hidden),
            "feature2": (self.hidden, self.width),
            "feature3": (self.width, q * features),
            "classifier1": (features, self.encoder),
            "classifier2": (self.encoder, classes),
        }
        weights: Weights = {}
        for name, (a, b) in shapes.items():
            parts = ("weight", "root") if name.startswith("classifier") else ("weight",)
            for part in parts:
                drawn = glorot(a, b, seed=held.seed, name=f"neighgen.{held.number}.{name}.{part}")
                weights[f"{name}.{part}"] = drawn.to(held.x)[None]
            weights[f"{name}.bias"] = held.x.new_zeros(1, b)
        weights["count.bias"] += count.to(held.x).mean()
        return weights

    # -- training -----------------------------------------------------------------------------------------------------

    def train(self, held: ClientView, others: Sequence[ClientView], classes: int) -> tuple[Weights, Losses]:
        """Train one client's generator, also against the neighbours of other clients."""
        graph = hide_nodes(held, self.hidden_share, self.most)
        weights = self.init(held, classes, graph.missing[graph.train])
        met = [OtherClient.of(other) for other in others] if self.cross else []
        met = [other for other in met if len(other.able)]
        last = (0.0, 0.0)
        if self.scheme == "original":
            self._epochs(weights, list(weights), held, graph, [], 0)
            names = [name for name in weights if name.startswith(FEATURE)]
            last = self._epochs(weights, names, held, graph, met, self.epochs, 1 / (1 + len(others)))
        else:
            last = self._epochs(weights, list(weights), held, graph, met, 0)
        return weights, Losses(*last, others=len(met))

    def _epochs(
        self,
        weights: Weights,
        names: list[str],
        held: ClientView,
        graph: Impaired,
        met: list[OtherClient],
        first: int,
        factor: float = 1.0,
    ) -> tuple[float, float]:
        """Take `epochs` steps of Adam on some of the weights, in place, and return the last L_f and mean L_f(j)."""
        rule = Optimizer("adam", self.lr, self.weight_decay)
        state = rule.init({name: weights[name] for name in names})
        own_loss = cross_loss = weights["count.bias"].new_zeros(())
        for epoch in range(first, first + self.epochs):
            leaves = {name: w.detach().requires_grad_(name in names) for name, w in weights.items()}
            local, own_loss, cross_loss = self.losses(leaves, held, graph, met, epoch)
            share = 1.0 if self.scheme == "original" else 1 / max(1, len(met))
            loss = factor * (local + share * cross_loss)
            grads = torch.autograd.grad(loss, [leaves[name] for name in names], allow_unused=True)
            rule.step(weights, {name: g for name, g in zip(names, grads) if g is not None}, state)
        return float(own_loss.detach()), float(cross_loss.detach()) / max(1, len(met))

    def losses(
        self, weights: Weights, held: ClientView, graph: Impaired, met: list[OtherClient], epoch: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return L_d + L_f + L_c, L_f by itself, and the sum of L_f(j) over other clients, each a scalar."""
        z = self.encode(weights, graph.x, graph.edges, held.keys[graph.nodes], epoch)
        count = self.count(weights, z)
        target = graph.missing.to(z)
        kept = self.kept(graph.missing if self.true_count else count.detach().round())
        rows = self.features(weights, z, graph.near, held, epoch, kept[graph.near])
        host = graph.near[kept[graph.near].nonzero()[:, 0]]
        here = graph.train.nonzero().squeeze(1)
        scale: float | Tensor = len(here) * self.most if self.scheme == "original" else max(1, int(kept[here].sum()))
        scale = scale * held.x.square().mean() if self.scaled else scale
        of_train = graph.train[host].nonzero().squeeze(1)
        generated, node = rows.index_select(0, of_train)[:, None], host[of_train]
        on = (graph.missing[node] > 0)[:, None]
        own_loss = least_distance(generated, on, held.x[graph.rows[node]], graph.filled[node]) / scale
        logits = self._classify(weights, graph, rows, host)
        label = held.y[graph.nodes][here]
        classification = F.cross_entropy(logits[here], label)
        local = F.smooth_l1_loss(count[here], target[here]) + own_loss + classification
        drawn_for = torch.searchsorted(here, node)
        return local, own_loss, self._cross(generated, drawn_for, len(here), held, met, epoch) / scale

    def _cross(
        self, generated: Tensor, at: Tensor, nodes: int, held: ClientView, met: list[OtherClient], epoch: int
    ) -> Tensor:
        """Return the sum of L_f(j) over other clients, not yet divided by the scale.

        The squared distances to the nearest rows of all clients cost one product, since
        sum_j |x - u_j|^2 = J |x|^2 - 2 x (sum_j u_j) + sum_j |u_j|^2.

        Args:
            generated: neighbours that the client has generated, `[rows, 1, features]`.
            at: index `[rows]` of the training node whose neighbour each row is.
            nodes: number of training nodes, for which neighbourhoods are drawn.
            held: the client that generates.
            met: the other clients.
            epoch: the epoch, for the random draw.
        """
        total, squares = torch.zeros_like(generated), generated.new_zeros(generated.shape[:2])
        for other in met:
            drawn = other.draw(nodes, self.most, held, epoch)[at]
            chosen = drawn.gather(1, nearest(generated, other.held.x[drawn], other.squares[drawn]))
            total += other.held.x[chosen]
            squares += other.squares[chosen]
        distance = len(met) * generated.square().sum(-1) - 2 * (generated * total).sum(-1) + squares
        return distance.sum() / generated.shape[-1]

    # -- the network --------------------------------------------------------------------------------------------------

    def encode(self, weights: Weights, x: Tensor | Sparse, edges: Tensor, keys: Tensor, epoch: int | None) -> Tensor:
        """Return z of equation (1), `[nodes, latent]`. Without an epoch there is no dropout."""
        loops = torch.arange(len(keys), device=keys.device).expand(2, -1)
        mean = mean_operator(torch.cat([edges, loops], dim=1), len(keys), weights["encoder1.weight"])
        h = F.relu(mean @ (x @ weights["encoder1.weight"][0]) + weights["encoder1.bias"])
        h = self._dropped(h, keys, "encoder", epoch)
        return F.relu(mean @ (h @ weights["encoder2.weight"][0]) + weights["encoder2.bias"])

    def count(self, weights: Weights, z: Tensor) -> Tensor:
        """Return n^ of equation (2), `[nodes]`."""
        return F.relu(z @ weights["count.weight"][0] + weights["count.bias"]).squeeze(1)

    def kept(self, count: Tensor) -> Tensor:
        """Return the generated rows that are neighbours, the first k_v: `[nodes, q]` bool."""
        limit = torch.nan_to_num(count.double(), nan=0.0).clamp(0, self.most)
        return torch.arange(self.most, device=count.device) < limit[:, None]

    def features(
        self,
        weights: Weights,
        z: Tensor,
        nodes: Tensor,
        held: ClientView,
        epoch: int | None,
        kept: Tensor | None = None,
    ) -> Tensor:
        """Return X^ of equation (3) at some nodes of those in `z`, with noise in evaluation too.

        Args:
            weights: the generator's weights.
            z: latent rows of all nodes, `[all nodes, latent]`.
            nodes: indices in `z`.
            held: the client.
            epoch: the epoch, None in evaluation.
            kept: the rows that are wanted, `[nodes, q]` bool.

        Returns:
            `[nodes, q, features]`, or with `kept` only the wanted rows, `[rows, features]`.
        """
        noise = random.normal(tuple(z.shape), "neighgen noise", held.seed, held.number, -1 if epoch is None else epoch)
        h = z[nodes] + noise.to(z)[nodes]
        for name in ("feature1", "feature2"):
            h = F.relu(h @ weights[f"{name}.weight"][0] + weights[f"{name}.bias"])
        h = self._dropped(h, held.keys[nodes], "feature", epoch)
        q, width = self.most, held.x.shape[1]
        wanted = torch.ones(len(nodes), q, dtype=torch.bool, device=z.device) if kept is None else kept
        # The q rows of a node come from q matrices, so rows are grouped by their number.
        slot, row = wanted.T.nonzero(as_tuple=True)
        matrices = weights["feature3.weight"].view(-1, q, width).transpose(0, 1)
        out = SliceProducts.of(h.index_select(0, row), matrices, torch.bincount(slot, minlength=q).tolist())
        out = torch.tanh(out + weights["feature3.bias"].view(q, width).index_select(0, slot))
        out = F.normalize(out, p=1.0) if self.row_sum else out
        out = out.index_select(0, torch.argsort(row * q + slot))
        return out.view(len(nodes), q, width) if kept is None else out

    def _classify(self, weights: Weights, graph: Impaired, new: Tensor, host: Tensor) -> Tensor:
        """Return the logits of a GraphSAGE of two layers on the mended graph, for (6).

        Nodes that are not next to a training node are not mended, since they change no loss.
        """
        old, total = len(graph.nodes), len(graph.nodes) + len(new)
        added = torch.stack([torch.arange(old, total, device=new.device), host])
        mean = mean_operator(torch.cat([graph.edges, added, added.flip(0)], dim=1), total, new)
        first, first_root, second, second_root = (
            weights[f"classifier{layer}.{part}"][0] for layer in (1, 2) for part in ("weight", "root")
        )
        neighbour, root = (torch.cat([graph.x @ w, new @ w]) for w in (first, first_root))
        h = F.relu(mean @ neighbour + root + weights["classifier1.bias"])
        return mean @ (h @ second) + h @ second_root + weights["classifier2.bias"]

    def _dropped(self, h: Tensor, keys: Tensor, layer: str, epoch: int | None) -> Tensor:
        """Apply dropout with one mask a key, layer and epoch.

        In training `features` takes the keys of the places in the client's whole graph whose numbers the nodes of the
        impaired graph have. They are not the nodes' own, but no two nodes share one.
        """
        if epoch is None or not self.dropout:
            return h
        rows = random.row_keys(keys, "neighgen", layer, epoch)
        kept = random.keep(rows[:, None], torch.arange(h.shape[1], device=h.device), self.dropout)
        return h * kept.to(h.dtype) / (1 - self.dropout)

    # -- use ----------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def generate(self, weights: Weights, held: ClientView) -> tuple[Tensor, Tensor]:
        """Generate new neighbours of a client's nodes, with its whole graph as the encoder's input.

        Returns:
            Their features `[new, features]`, and the node whose neighbour each is, `[new]`.
        """
        z = self.encode(weights, held.x, held.edges, held.keys, None)
        kept = self.kept(held.missing if self.true_count else self.count(weights, z).round())
        hosts = kept.any(1).nonzero().squeeze(1)
        return self.features(weights, z, hosts, held, None, kept[hosts]), hosts[kept[hosts].nonzero()[:, 0]]


@torch.no_grad()
def nearest(generated: Tensor, given: Tensor, squares: Tensor) -> Tensor:
    """Return for each generated row the index of the nearest given row, `[nodes, rows]`.

    Args:
        generated: `[nodes, rows, features]`.
        given: `[nodes, q, features]`.
        squares: squared lengths of the given rows `[nodes, q]`, infinite for a row that does not count.
    """
    return (squares[:, None] - 2 * generated @ given.transpose(1, 2)).argmin(-1)


def least_distance(generated: Tensor, on: Tensor, given: Tensor, filled: Tensor) -> Tensor:
    """Return the sum of the mean squared distances of generated rows to their nearest given rows.

    Several generated rows may share a given row.

    Args:
        generated: `[nodes, q, features]`.
        on: the generated rows that count, `[nodes, q]` bool.
        given: `[nodes, q, features]`.
        filled: the given rows that exist, `[nodes, q]` bool.
    """
    closest = nearest(generated, given, given.square().sum(-1).masked_fill(~filled, torch.inf))
    chosen = given.gather(1, closest[..., None].expand(-1, -1, given.shape[-1]))
    distance = (generated - chosen).square().mean(-1)
    return torch.where(on, distance, 0.0).sum()


def mean_operator(edges: Tensor, nodes: int, like: Tensor) -> Sparse:
    """Return `D^-1 A` of edges (source, target): `[nodes, nodes]`."""
    degree = torch.bincount(edges[1], minlength=nodes).to(like.dtype)
    return Sparse.of(edges[1], edges[0], 1.0 / degree[edges[1]], (nodes, nodes))
