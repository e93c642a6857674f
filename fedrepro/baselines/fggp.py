"""FGGP (Wan et al. 2024): class prototypes of all clients in place of a classifier, and a second view of each graph.

One round of a client:

    view 1   the network on the client's graph
    view 2   the same network on a graph sampled around A^u, the client's edges and the nearest neighbours of every node
             under the global model; an augmentor Z = GCN(X; A^u) sets the probabilities
             alpha Z Z^T / max + (1 - alpha) A^u, sampled straight through
    loss     CE(view 1) + CE(view 2) + contrast of the views' class prototypes + reconstruction of A^u by Z Z^T

The server averages network and augmentor, clusters the clients' prototypes of each class (FINCH) and keeps the cluster
means in a bank; a node's class is that of the prototypes nearest to its embedding under the averaged network.

This follows the authors' public code, for the paper's text was not at hand, but for: the bank starts empty, prototypes
are keyed by class and not by position, a client's classifier stays with it instead of being reset, the pseudo-labels'
confidence takes no gradient. What the code computes without using (distillation, a second contrast) is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.baselines.personal import clients_of, embed, last_layers, place, require_layers
from fedrepro.baselines.prototypes import Bank, class_means, cluster_means, contrast, finch
from fedrepro.baselines.second_view import Graph, Sampled, second_view
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.models import GCN, glorot
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require


class Server(NamedTuple):
    """Each run's bank, and each client's A^u."""

    banks: tuple[Bank, ...]
    graphs: tuple[Graph, ...]


@dataclass(frozen=True, kw_only=True)
class FGGP(FedAvg):
    """Args:
    refresh: rounds between neighbour graphs.
    neighbours: nearest neighbours of a node in A^u.
    augment: whether there is a second view.
    blend: alpha.
    contrast, temperature: weight of the contrast of prototypes and its temperature.
    reconstruct: weight of the augmentor's reconstruction loss.
    prototypes: slots of a class in the bank.
    cluster: "finch", or the "mean" of all clients' prototypes of a class.
    nearest: how many prototypes vote.
    """

    average: str = "nodes"
    optimizer_state: str = "reset"
    refresh: int = 10
    neighbours: int = 2
    augment: bool = True
    blend: float = 0.5
    contrast: float = 1.0
    temperature: float = 0.5
    reconstruct: float = 1.0
    prototypes: int = 10
    cluster: str = "finch"
    nearest: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        require_layers(self.model, "FGGP")
        fits = isinstance(self.model, GCN) and not self.model.input_norm
        require(fits, "model", "a GCN without LayerNorm on its input for FGGP", self.model)
        for name in ("refresh", "neighbours", "prototypes", "nearest"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("contrast", "reconstruct"):
            require(getattr(self, name) >= 0, name, "zero or positive", getattr(self, name))
        require(0 <= self.blend <= 1, "blend", "in [0, 1]", self.blend)
        require(self.temperature > 0, "temperature", "positive", self.temperature)
        one_of("cluster", self.cluster, ("finch", "mean"))

    @property
    def personal(self) -> tuple[str, ...]:
        """The linear classifier that both cross-entropies train."""
        return last_layers(self.model, 1)

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Network, augmentor, empty banks, and the first neighbour graphs."""
        fed, state = super().start(fed)
        hidden = self.model.widths[0][1]
        shapes = {"augment1.weight": (self.model.features, hidden), "augment2.weight": (hidden, hidden)}
        for name, shape in shapes.items() if self.augment else ():
            drawn = [glorot(*shape, seed=seed, name=name) for seed in fed.seeds]
            state.shared[name] = torch.stack(drawn).to(fed.device, fed.dtype)
        like = torch.zeros(1, self.model.widths[-1][0], dtype=fed.dtype, device=fed.device)
        banks = (Bank.empty(fed.classes, self.prototypes, like),) * fed.runs
        return fed, replace(state, more=Server(banks, self._graphs(fed, state)))

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """The four losses, `[clients]`."""
        h, logits = self.view(weights, fed, lambda x: fed.operator("gcn") @ x)
        loss = layers.cross_entropy(fed, logits)
        if not self.augment:
            return loss
        graphs = state.more.graphs[place(fed)]
        sampled, reconstruction = self._second_views(weights, fed, graphs, t)

        def propagate(x: Tensor) -> Tensor:
            return torch.cat([graph @ rows for graph, rows in zip(sampled, _split(fed, x))])

        h2, logits2 = self.view(weights, fed, propagate, " of view 2")
        loss = loss + layers.cross_entropy(fed, logits2)
        if self.contrast:
            label, weight = soft_labels(fed, logits)
            a, b = (class_means(x, label, weight, fed.batch.batch, fed.clients, fed.classes) for x in (h2, h))
            loss = loss + self.contrast * contrast(a, b, _present(fed, label), self.temperature)
        if self.reconstruct:
            loss = loss + self.reconstruct * reconstruction
        return loss

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Logits of the client's own classifier."""
        return self.view(weights, fed, lambda x: fed.operator("gcn") @ x)[1]

    def aggregate(self, state: State, update: Update) -> State:
        """Averages, the clusters of prototypes, and new neighbour graphs where it is time."""
        fed, made = update.fed, super().aggregate(state, update)
        with torch.no_grad():
            h, logits = self.view(update.after, fed, lambda x: fed.operator("gcn") @ x)
            label, weight = soft_labels(fed, logits)
            means = class_means(h, label, weight, fed.batch.batch, fed.clients, fed.classes)
        present = _present(fed, label) & update.active[:, None]
        banks, count = [], torch.zeros(fed.runs, device=fed.device)
        for run, bank in enumerate(state.more.banks):
            part = clients_of(fed, run)
            for c in range(fed.classes):
                rows = means[part][present[part][:, c], c]
                if len(rows):
                    kept = cluster_means(rows, finch(rows)) if self.cluster == "finch" else rows.mean(0, keepdim=True)
                    bank, count[run] = bank.written(c, kept), count[run] + len(kept)
            banks.append(bank)
        self._count(fed, update, present, count)
        again = self.augment and (update.round + 1) % self.refresh == 0
        graphs = self._graphs(fed, made) if again else state.more.graphs
        return replace(made, more=Server(tuple(banks), graphs))

    def predict(self, fed: Federation, state: State) -> Tensor:
        """Log of the votes of the nearest prototypes, `[nodes, classes]`, under the averaged network; before there are
        any, each client's classifier.
        """
        if not all(bool(bank.filled.any()) for bank in state.more.banks):
            return super().predict(fed, state)
        h, run = embed(self.model, state.shared, fed.shared()), fed.run[fed.batch.batch]
        out = h.new_empty(len(h), fed.classes)
        for number, bank in enumerate(state.more.banks):
            out[run == number] = bank.scores(h[run == number], self.nearest)
        return out

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Per run: prototypes in the bank, and edges a node has in A^u beside the client's."""
        found = []
        for run, bank in enumerate(state.more.banks):
            part = clients_of(fed, run)
            source, target = fed.batch.edge_index
            edges = int(((fed.run[fed.batch.batch[target]] == run) & (source != target)).sum())
            nodes = int(fed.batch.ptr[part.stop] - fed.batch.ptr[part.start])
            total = sum(graph.edges for graph in state.more.graphs[part])
            added = (total - nodes - edges) / nodes if self.augment else 0.0
            found.append({"prototypes": float(bank.filled.sum()), "added_edges": added})
        return found

    # -- the views ----------------------------------------------------------------------------------------------------

    def view(
        self, weights: Weights, fed: Federation, propagate: Callable[[Tensor], Tensor], name: str = ""
    ) -> tuple[Tensor, Tensor]:
        """Embedding `[nodes, hidden]` and logits under a propagation; with a name, under dropout masks of its own."""
        last = len(self.model.widths)
        x: Tensor | Sparse = layers.dropout(fed, fed.input, self.model.first_dropout, f"layer1{name}")
        for i in range(1, last + 1):
            out = layers.linear(fed, x, weights[f"layer{i}.weight"])
            out = propagate(out) if i <= self.model.layers else out
            out = out + layers.per_node(fed, weights[f"layer{i}.bias"])
            if i < last:
                h = out
                x = layers.dropout(fed, F.relu(h), self.model.dropout, f"layer{i + 1}{name}")
        return h, out

    def _augmentor(self, weights: Weights, fed: Federation, graphs: Sequence[Graph]) -> Tensor:
        """Z `[nodes, hidden]`: a GCN of two layers on A^u, ReLU at the end."""

        def layer(x: Tensor | Sparse, weight: Tensor) -> Tensor:
            rows = _split(fed, layers.linear(fed, x, weight))
            return torch.cat([graph.operator @ mine for graph, mine in zip(graphs, rows)])

        return F.relu(layer(layer(fed.input, weights["augment1.weight"]), weights["augment2.weight"]))

    def _second_views(
        self, weights: Weights, fed: Federation, graphs: Sequence[Graph], t: int
    ) -> tuple[list[Sampled], Tensor]:
        """The clients' sampled graphs and their reconstruction losses `[clients]`."""
        made, step = [], fed.clock.step if fed.clock else 0
        for client, z in enumerate(_split(fed, self._augmentor(weights, fed, graphs))):
            key = ("augment", fed.seeds[int(fed.run[client])], int(fed.number[client]), t, step)
            made.append(second_view(z, graphs[client], self.blend, *key))
        sampled, losses = zip(*made)
        return list(sampled), torch.stack(losses)

    def _graphs(self, fed: Federation, state: State) -> tuple[Graph, ...]:
        """A^u of every client: its edges, its nodes' nearest neighbours under the global model, the diagonal."""
        if not self.augment:
            return ()
        made = []
        with torch.no_grad():
            h = F.normalize(embed(self.model, state.shared, fed.shared()), dim=1)
        source, target = fed.batch.edge_index
        for client, rows in enumerate(_split(fed, h)):
            n, first = len(rows), int(fed.batch.ptr[client])
            graph = torch.eye(n, dtype=fed.dtype, device=fed.device)
            # to five digits, ties by number: twins in a graph have the same embedding but for rounding
            similarity = ((rows @ rows.T) * 1e5).round().fill_diagonal_(-torch.inf)
            near = torch.argsort(similarity, dim=1, descending=True, stable=True)[:, : min(self.neighbours, n - 1)]
            graph.scatter_(1, near, 1.0)
            mine = fed.batch.batch[target] == client
            graph[target[mine] - first, source[mine] - first] = 1.0
            made.append(Graph.of(graph))
        return tuple(made)

    def _count(self, fed: Federation, update: Update, present: Tensor, count: Tensor) -> None:
        """Up: a prototype for each class a client has; down: this round's cluster means to every client."""
        width = self.model.widths[-1][0]
        up = torch.zeros_like(count).index_add(0, fed.run, present.sum(1).to(count.dtype))
        down = count * torch.bincount(fed.run, minlength=fed.runs)
        fed.traffic.send("up", "prototypes", width * up.cpu().numpy(), round=update.round)
        fed.traffic.send("down", "prototypes", width * down.cpu().numpy(), round=update.round)


def soft_labels(fed: Federation, logits: Tensor) -> tuple[Tensor, Tensor]:
    """A label and a weight for every node: its own and 1 where it trains, else the predicted one and its probability;
    `[nodes]` each, without gradient.
    """
    best = torch.softmax(logits.detach(), dim=1).max(1)
    train = fed.batch.train_mask
    return torch.where(train, fed.batch.y, best.indices), torch.where(train, 1.0, best.values)


def _split(fed: Federation, x: Tensor) -> tuple[Tensor, ...]:
    return torch.split(x, fed.batch.ptr.diff().tolist())


def _present(fed: Federation, label: Tensor) -> Tensor:
    """`[clients, classes]` bool: whether a client has a node of a class."""
    found = torch.zeros(fed.clients, fed.classes, dtype=torch.bool, device=fed.device)
    found[fed.batch.batch, label] = True
    return found
