"""Train by FGGP, from "Federated Graph Learning under Domain Shift with Generalizable Prototypes".

G. Wan, W. Huang and M. Ye, AAAI 2024, https://ojs.aaai.org/index.php/AAAI/article/view/29468. Class prototypes of all
clients replace the classifier, and every client also trains on a second view of its graph. The second view is sampled
around A^u `[nodes, nodes]`, which holds the client's edges and the nearest neighbours of every node under the global
model. An augmentor Z = GCN(X; A^u) `[nodes, hidden]` sets the probabilities of its edges. With the weighted class means
b_c of view 1 and a_c of view 2 `[hidden]`:

    edges     p = alpha Z Z^T / max Z Z^T + (1 - alpha) A^u, sampled straight through                            (1)
    loss      CE(view 1) + CE(view 2) + contrast(a, b) + reconstruction of A^u by Z Z^T                          (2)
    predict   the class of the prototypes nearest to h_v, weighted by softmax(cosine / 0.1)                      (3)

Every `refresh` rounds the server's model renews A^u (`FGGP._graphs`). In each round:

1. the server sends network and augmentor; each client keeps its linear classifier (`Method.begin_round`);
2. the client embeds its nodes in view 1, its graph (`FGGP.view`);
3. the augmentor samples view 2 by (1), and the client embeds its nodes there (`second_view`);
4. the client takes `local_epochs` steps on (2) (`FGGP.local_loss`). The prototypes weigh a training node by 1 with its
   label, any other by its confidence with its predicted label (`soft_labels`, `class_means`, `contrast`);
5. the client sends its prototypes of view 1, class by class, with the weights;
6. the server averages the weights, clusters the prototypes of each class, and writes the cluster means into a bank
   (`FGGP.aggregate`, `finch`, `Bank`);
7. a node is predicted by (3) under the averaged network (`FGGP.predict`).

The paper's text was not at hand. Its abstract says that clustered prototypes replace the classifier, and the public
code (https://github.com/GuanchengWan/FGGP, fedced9) predicts by the vote (3). The prototypes are those of the trained
local networks, and they vote on embeddings of the averaged one. So both are the method's own, and the classifier is
shown next to the vote only for information (SH-B5).

This is the public code with seven changes, of which the first five concern the vote:

- The bank starts empty, and not with random vectors of class 0.
- Every class has its own slots, where the code has one ring for all classes.
- Prototypes are keyed by class, and not by their position among the present classes.
- An embedding is the output of the last layer but one before its ReLU, where the code's is after it (`FGGPActivated`).
- The prototypes that a client sends have the labels and confidences of its trained network without dropout. The code
  takes these from the logits before the last step, with dropout.
- A client's classifier stays with it instead of being reset.
- The confidence takes no gradient.

The network is the one that is given, and the code's has batch normalization. We leave out the parts that the code
computes without using them, which are a distillation and a second contrast.

Training multiplies rounding more than in any other method that was measured: the same code with other instructions of
the processor may choose another round, and its accuracy then moves by points (`runs/rounding.csv`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.baselines.personal import chunk_of, clients_of, embed, last_layers, require_layers
from fedrepro.baselines.prototypes import Bank, class_means, cluster_means, contrast, finch
from fedrepro.baselines.second_view import Graph, Sampled, second_view
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.models import GCN, Model, glorot
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require


class Server(NamedTuple):
    """The server's memory: each run's bank, and each client's A^u."""

    banks: tuple[Bank, ...]
    graphs: tuple[Graph, ...]


@dataclass(frozen=True, kw_only=True)
class FGGP(FedAvg):
    """FedAvg of a GCN and an augmentor, with prototypes instead of a classifier.

    Args:
        refresh: number of rounds after which A^u is renewed.
        neighbours: nearest neighbours of a node in A^u.
        augment: whether there is a second view.
        blend: alpha.
        contrast: weight of the contrast of prototypes.
        temperature: its temperature.
        reconstruct: weight of the augmentor's reconstruction loss.
        prototypes: slots of a class in the bank.
        cluster: "finch", or the "mean" of all clients' prototypes of a class.
        nearest: number of prototypes that vote.
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
        """Return the names of the linear classifier, which both cross-entropies train."""
        return last_layers(self.model, 1)

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Draw network and augmentor, and make empty banks and the first A^u."""
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
        """Return the loss (2), `[clients]`."""
        h, logits = self.view(weights, fed, lambda x: fed.operator("gcn") @ x)
        loss = layers.cross_entropy(fed, logits)
        if not self.augment:
            return loss
        graphs = state.more.graphs[chunk_of(fed)]
        sampled, reconstruction = self._second_views(weights, fed, graphs, t)

        def propagate(x: Tensor) -> Tensor:
            return torch.cat([graph @ rows for graph, rows in zip(sampled, _split_by_client(fed, x))])

        h2, logits2 = self.view(weights, fed, propagate, " of view 2")
        loss = loss + layers.cross_entropy(fed, logits2)
        if self.contrast:
            label, weight = soft_labels(fed, logits)
            a, b = (class_means(x, label, weight, fed.batch.batch, fed.clients, fed.classes) for x in (h2, h))
            loss = loss + self.contrast * contrast(a, b, _present_classes(fed, label), self.temperature)
        if self.reconstruct:
            loss = loss + self.reconstruct * reconstruction
        return loss

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return the logits of the client's classifier, `[nodes, classes]`."""
        return self.view(weights, fed, lambda x: fed.operator("gcn") @ x)[1]

    def aggregate(self, state: State, update: Update) -> State:
        """Average the weights, cluster the prototypes, and renew A^u every `refresh` rounds."""
        fed, averaged = update.fed, super().aggregate(state, update)
        with torch.no_grad():
            h, logits = self.view(update.after, fed, lambda x: fed.operator("gcn") @ x)
            label, weight = soft_labels(fed, logits)
            means = class_means(h, label, weight, fed.batch.batch, fed.clients, fed.classes)
        present = _present_classes(fed, label) & update.active[:, None]
        banks, count = [], torch.zeros(fed.runs, device=fed.device)
        for run, bank in enumerate(state.more.banks):
            part = clients_of(fed, run)
            for c in range(fed.classes):
                rows = means[part][present[part][:, c], c]
                if len(rows):
                    centres = (
                        cluster_means(rows, finch(rows)) if self.cluster == "finch" else rows.mean(0, keepdim=True)
                    )
                    bank, count[run] = bank.written(c, centres), count[run] + len(centres)
            banks.append(bank)
        self._count(fed, update, present, count)
        renew = self.augment and (update.round + 1) % self.refresh == 0
        graphs = self._graphs(fed, averaged) if renew else state.more.graphs
        return replace(averaged, more=Server(tuple(banks), graphs))

    def predict(self, fed: Federation, state: State) -> Tensor:
        """Return the log of the prototypes' votes (3) under the averaged network, `[nodes, classes]`.

        Before there are prototypes each client's classifier predicts.
        """
        if not all(bool(bank.filled.any()) for bank in state.more.banks):
            return super().predict(fed, state)
        h, run = embed(self.model, state.shared, fed.shared()), fed.run[fed.batch.batch]
        votes = h.new_empty(len(h), fed.classes)
        for number, bank in enumerate(state.more.banks):
            votes[run == number] = bank.scores(h[run == number], self.nearest)
        return votes

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Return per run the `prototypes` in the bank, and the `added_edges` of A^u per node."""
        facts = []
        for run, bank in enumerate(state.more.banks):
            part = clients_of(fed, run)
            source, target = fed.batch.edge_index
            edges = int(((fed.run[fed.batch.batch[target]] == run) & (source != target)).sum())
            nodes = int(fed.batch.ptr[part.stop] - fed.batch.ptr[part.start])
            total = sum(graph.edges for graph in state.more.graphs[part])
            added = (total - nodes - edges) / nodes if self.augment else 0.0
            facts.append({"prototypes": float(bank.filled.sum()), "added_edges": added})
        return facts

    # -- the views ----------------------------------------------------------------------------------------------------

    def view(
        self, weights: Weights, fed: Federation, propagate: Callable[[Tensor], Tensor], name: str = ""
    ) -> tuple[Tensor, Tensor]:
        """Return embedding `[nodes, hidden]` and logits under a propagation; `name` tells dropout masks apart."""
        last = len(self.model.widths)
        x: Tensor | Sparse = layers.dropout(fed, fed.input, self.model.first_dropout, f"layer1{name}")
        for i in range(1, last + 1):
            out = layers.linear(fed, x, weights[f"layer{i}.weight"])
            out = propagate(out) if i <= self.model.layers else out
            out = out + layers.per_node(fed, weights[f"layer{i}.bias"])
            if i < last:
                h = out
                x = layers.relu_dropout(fed, h, self.model.dropout, f"layer{i + 1}{name}")
        return h, out

    def _augmentor(self, weights: Weights, fed: Federation, graphs: Sequence[Graph]) -> Tensor:
        """Return Z `[nodes, hidden]`, from a GCN of two layers on A^u with a ReLU at the end."""

        def layer(x: Tensor | Sparse, weight: Tensor) -> Tensor:
            parts = _split_by_client(fed, layers.linear(fed, x, weight))
            return torch.cat([graph.operator @ rows for graph, rows in zip(graphs, parts)])

        return F.relu(layer(layer(fed.input, weights["augment1.weight"]), weights["augment2.weight"]))

    def _second_views(
        self, weights: Weights, fed: Federation, graphs: Sequence[Graph], t: int
    ) -> tuple[list[Sampled], Tensor]:
        """Return the clients' sampled graphs and their reconstruction losses `[clients]`."""
        views, step = [], fed.clock.step if fed.clock else 0
        for client, z in enumerate(_split_by_client(fed, self._augmentor(weights, fed, graphs))):
            key = ("augment", fed.seeds[int(fed.run[client])], int(fed.number[client]), t, step)
            views.append(second_view(z, graphs[client], self.blend, *key))
        sampled, losses = zip(*views)
        return list(sampled), torch.stack(losses)

    def _graphs(self, fed: Federation, state: State) -> tuple[Graph, ...]:
        """Return every client's A^u: its edges, its nodes' nearest neighbours under the global model, the diagonal."""
        if not self.augment:
            return ()
        graphs = []
        with torch.no_grad():
            h = F.normalize(embed(self.model, state.shared, fed.shared()), dim=1)
        source, target = fed.batch.edge_index
        for client, rows in enumerate(_split_by_client(fed, h)):
            n, first = len(rows), int(fed.batch.ptr[client])
            graph = torch.eye(n, dtype=fed.dtype, device=fed.device)
            # Twins in a graph have the same embedding but for rounding, so cosines are compared to five digits and ties
            # go to the smaller number.
            similarity = ((rows @ rows.T) * 1e5).round().fill_diagonal_(-torch.inf)
            near = torch.argsort(similarity, dim=1, descending=True, stable=True)[:, : min(self.neighbours, n - 1)]
            graph.scatter_(1, near, 1.0)
            inner = fed.batch.batch[target] == client
            graph[target[inner] - first, source[inner] - first] = 1.0
            graphs.append(Graph.of(graph))
        return tuple(graphs)

    def _count(self, fed: Federation, update: Update, present: Tensor, count: Tensor) -> None:
        """Count a prototype up for each class of a client, and this round's cluster means down to every client."""
        width = self.model.widths[-1][0]
        up = torch.zeros_like(count).index_add(0, fed.run, present.sum(1).to(count.dtype))
        down = count * torch.bincount(fed.run, minlength=fed.runs)
        fed.traffic.send("up", "prototypes", width * up.cpu().numpy(), round=update.round)
        fed.traffic.send("down", "prototypes", width * down.cpu().numpy(), round=update.round)


@dataclass(frozen=True, kw_only=True)
class FGGPActivated(FGGP):
    """FGGP with the embeddings of its public code, those after the ReLU.

    They enter the prototypes, the contrast, the vote and the nearest neighbours of A^u. The classifier takes what it
    took before, since a second ReLU changes nothing.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "model", with_activated_embedding(self.model))

    def view(
        self, weights: Weights, fed: Federation, propagate: Callable[[Tensor], Tensor], name: str = ""
    ) -> tuple[Tensor, Tensor]:
        """Return embedding `[nodes, hidden]` after the ReLU, and logits."""
        h, logits = super().view(weights, fed, propagate, name)
        return F.relu(h), logits


def with_activated_embedding(model: Model) -> Model:
    """Return a model whose last layer but one ends with a ReLU, so that `embed` does; its logits stay as they are."""

    class Activated(type(model)):  # type: ignore[misc]
        def _layer(self, fed: Federation, h: Tensor | Sparse, weights: Weights, i: int) -> Tensor:
            out: Tensor = super()._layer(fed, h, weights, i)
            return F.relu(out) if i == len(self.widths) - 1 else out

    return Activated(**{item.name: getattr(model, item.name) for item in fields(model)})


def soft_labels(fed: Federation, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return a label and a weight for every node, `[nodes]` each, without gradient.

    A training node has its label and weight 1, any other its predicted label and the probability of that.
    """
    best = torch.softmax(logits.detach(), dim=1).max(1)
    train = fed.batch.train_mask
    return torch.where(train, fed.batch.y, best.indices), torch.where(train, 1.0, best.values)


def _split_by_client(fed: Federation, x: Tensor) -> tuple[Tensor, ...]:
    """Return each client's rows."""
    return torch.split(x, fed.batch.ptr.diff().tolist())


def _present_classes(fed: Federation, label: Tensor) -> Tensor:
    """Return whether a client has a node of a class, `[clients, classes]` bool."""
    present = torch.zeros(fed.clients, fed.classes, dtype=torch.bool, device=fed.device)
    present[fed.batch.batch, label] = True
    return present
