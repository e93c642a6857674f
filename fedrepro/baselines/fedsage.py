"""Train by FedSage+, from "Subgraph Federated Learning with Missing Neighbor Generation".

K. Zhang, C. Yang, X. Li, L. Sun and S. M. Yiu, NeurIPS 2021, arXiv:2106.13430. Clients generate the neighbours that
they miss, and then train a GraphSAGE together. FedSage is the same without generation. Before training:

1. every client trains a generator of missing neighbours, against its own hidden nodes and against neighbours of random
   nodes of the other clients (`NeighGen.train`, see `neighgen` for equations). Generators are never averaged;
2. every client generates neighbours of all its nodes (`NeighGen.generate`);
3. every client adds them to its graph, one new node per neighbour, joined to its host only (`mend`).

In each round:

4. the clients train the classifier on their mended graphs (`Method.local_steps`). New nodes carry no label and enter no
   score;
5. the server averages the weights (`FedSage`), or takes a step along the averaged gradients (`FedSageSGD`).

FedStruct's public code trains the generator in another way, knows how many neighbours are missing, and uses step 5 with
gradients: `scheme="fedstruct"`, `count="true"`, `FedSageSGD`.

FedStruct also compares with an ideal FedSage+, in which nothing is generated (FS-Q5, `neighbours="ideal"`). We read it
so that a client receives the true features of all neighbours of its nodes at other clients. It holds one copy of each,
joined to all its nodes that know it, without edges among copies (`add_true_neighbours`). This is an upper bound that
gives up privacy.

Some repositories call FedSage+ a method that adds noise to true neighbour features. This is not that method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from fedrepro.baselines.impaired import ClientView
from fedrepro.baselines.neighgen import Losses, NeighGen
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require

# Share of generated rows, which have no zeros, below which features stay sparse.
SPARSE_BELOW = 0.1


class Generated(NamedTuple):
    """One client's new nodes: features `[new, features]`, their hosts `[new]`, and the generator's last losses."""

    x: Tensor
    host: Tensor
    losses: Losses


class Memory(NamedTuple):
    """The memory of the method that trains the classifier, and facts about the generators, one dictionary per run."""

    inner: Any
    facts: list[dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Mending(Method):
    """A method on mended graphs, to be combined with one that trains the classifier.

    Args:
        neighbours: "generated", "none" (FedSage, the graphs as they are), or "ideal" (FS-Q5).
        count: number of neighbours that a node gets: as "predicted", or the "true" number of its cut edges, at most
            `most`.
        scheme, generator_epochs, generator_lr, generator_weight_decay, generator_dropout, most: see `NeighGen`.
        cross, scaled, encoder_hidden, latent, generator_hidden, generator_width: see `NeighGen`. Time and memory grow
            with `generator_width * most * features`.
        hidden_share: share of a client's nodes that are hidden. The authors' code hides half of those that are neither
            training nor test nodes, which is a tenth of all in its split, and FedStruct a tenth, too. Then sparse
            graphs have so few hidden neighbours that none is predicted. One half is our choice (SH-B1).
        row_sum: whether generated rows are divided by the sum of their absolute values, for graphs whose features
            were divided by theirs. Without it a row of tanh is many times longer than the real rows.
    """

    neighbours: str = "generated"
    scheme: str = "original"
    count: str = "predicted"
    generator_epochs: int = 20
    generator_lr: float = 0.001
    generator_weight_decay: float = 1e-4
    generator_dropout: float = 0.5
    hidden_share: float = 0.5
    most: int = 5
    cross: bool = True
    row_sum: bool = False
    scaled: bool = False
    encoder_hidden: int = 32
    latent: int = 128
    generator_hidden: int = 256
    generator_width: int = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("neighbours", self.neighbours, ("generated", "none", "ideal"))
        one_of("scheme", self.scheme, ("original", "fedstruct"))
        one_of("count", self.count, ("predicted", "true"))
        for name in ("generator_epochs", "most", "encoder_hidden", "latent", "generator_hidden", "generator_width"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(0 <= self.generator_dropout < 1, "generator_dropout", "in [0, 1)", self.generator_dropout)
        require(0 < self.hidden_share < 1, "hidden_share", "between 0 and 1", self.hidden_share)

    @property
    def generator(self) -> NeighGen:
        """Return the generator with this method's options."""
        return NeighGen(
            epochs=self.generator_epochs,
            lr=self.generator_lr,
            weight_decay=self.generator_weight_decay,
            dropout=self.generator_dropout,
            hidden_share=self.hidden_share,
            most=self.most,
            encoder=self.encoder_hidden,
            latent=self.latent,
            hidden=self.generator_hidden,
            width=self.generator_width,
            scheme=self.scheme,
            true_count=self.count == "true",
            cross=self.cross,
            row_sum=self.row_sum,
            scaled=self.scaled,
        )

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Train the generators and mend the graphs (steps 1 to 3), then start the method that trains the classifier."""
        facts: list[dict[str, float]] = [{} for _ in fed.seeds]
        if self.neighbours == "ideal":
            fed = add_true_neighbours(fed)
        if self.neighbours == "generated":
            held = [ClientView.of(fed, client) for client in range(fed.clients)]
            generated = [self._generated(held, client, fed) for client in range(fed.clients)]
            self._count(fed, held, generated)
            facts = [_summarize(fed, held, generated, run, self.most) for run in range(fed.runs)]
            fed = mend(fed, generated, self.most)
        fed, state = super().start(fed)
        return fed, replace(state, more=Memory(state.more, facts))

    def aggregate(self, state: State, update: Update) -> State:
        """Aggregate as the method that trains the classifier does."""
        after = super().aggregate(replace(state, more=state.more.inner), update)
        return replace(after, more=Memory(after.more, state.more.facts))

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Return per run the facts of `_summarize` if neighbours were generated."""
        summaries: list[dict[str, float]] = state.more.facts
        return summaries

    def _generated(self, held: list[ClientView], client: int, fed: Federation) -> Generated:
        """Train one client's generator and return its new nodes; none for a client without training nodes."""
        view = held[client]
        if not bool(view.train.any()):
            return Generated(view.x[:0], view.edges[0, :0], Losses(0.0, 0.0, 0))
        same_run = (fed.run == fed.run[client]).nonzero().squeeze(1).tolist()
        weights, losses = self.generator.train(view, [held[j] for j in same_run if j != client], fed.classes)
        return Generated(*self.generator.generate(weights, view), losses)

    def _count(self, fed: Federation, held: list[ClientView], generated: list[Generated]) -> None:
        """Count the messages that a deployment would need, since the public codes read other clients' features.

        In each epoch a client sends its latent rows at training nodes and its fGen to every other client, which sends
        back the gradient of L_f(j).
        """
        sizes = [self.latent * self.generator_hidden, self.generator_hidden * self.generator_width]
        sizes += [self.generator_width * self.most * fed.features]
        biases = self.generator_hidden + self.generator_width + self.most * fed.features
        generator, up, down = sum(sizes) + biases, np.zeros(fed.runs), np.zeros(fed.runs)
        for client, (view, new) in enumerate(zip(held, generated)):
            rows, run = int(view.train.sum()) * self.latent, int(fed.run[client])
            up[run] += self.generator_epochs * new.losses.others * (generator + rows)
            # In FedStruct's scheme the encoder learns from L_f(j) too.
            back = rows if self.scheme == "fedstruct" else 0
            down[run] += self.generator_epochs * new.losses.others * (generator + back)
        if self.cross:
            fed.traffic.send("up", "generator", up)
            fed.traffic.send("down", "generator gradients", down)


@dataclass(frozen=True, kw_only=True)
class FedSage(Mending, FedAvg):
    """FedSage+ with FedAvg of the classifier, as published."""


@dataclass(frozen=True, kw_only=True)
class FedSageSGD(Mending, FedSGD):
    """FedSage+ with FedSGD of the classifier, as in FedStruct's tables."""

    # The default of FedSGD, which that of `Mending` would hide.
    average: str = "train"


def mend(fed: Federation, generated: Sequence[Generated], most: int) -> Federation:
    """Return the same clients with their new nodes at `ring` 1, joined to their hosts in both directions."""
    graphs = []
    owner = fed.batch.batch[fed.batch.edge_index[1]]
    for client, new in enumerate(generated):
        first, last = int(fed.batch.ptr[client]), int(fed.batch.ptr[client + 1])
        rows = torch.arange(first, last, device=fed.device)
        added = torch.stack([len(rows) + torch.arange(len(new.host), device=fed.device), new.host])
        edges = [fed.batch.edge_index[:, owner == client] - first, added, added.flip(0)]
        graph = Data(edge_index=torch.cat(edges, dim=1), num_nodes=len(rows) + len(new.host))
        for name in ("y", "ring", "train_mask", "val_mask", "test_mask"):
            values = fed.batch[name][rows]
            graph[name] = torch.cat([values, values.new_zeros(len(new.host), *values.shape[1:])])
        graph.ring[len(rows) :] = 1
        count = torch.bincount(new.host, minlength=len(rows))
        rank = torch.arange(len(new.host), device=fed.device) - (count.cumsum(0) - count)[new.host]
        ids, total = fed.batch.node_id[rows], fed.sources[int(fed.run[client])].data.num_nodes
        graph.node_id = torch.cat([ids, total + ids[new.host] * most + rank])
        graphs.append(graph)
    batch = Batch.from_data_list(graphs)
    x = _with_rows(fed.x, torch.cat([new.x for new in generated]), batch.ring > 0)
    return replace(fed, batch=batch, x=x, parent=None, _cache={})


def _with_rows(existing: Tensor | Sparse, new: Tensor, where: Tensor) -> Tensor | Sparse:
    """Return the rows of `existing`, and those of `new` at the indices `where`; sparse as long as few rows are new."""
    index = [(~where).nonzero().squeeze(1), where.nonzero().squeeze(1)]
    shape = (len(where), new.shape[1])
    if isinstance(existing, Sparse) and len(new) < SPARSE_BELOW * len(where):
        row = [index[0][existing.pattern.row], index[1].repeat_interleave(shape[1])]
        col = [existing.pattern.col, torch.arange(shape[1], device=new.device).repeat(len(new))]
        return Sparse.of(torch.cat(row), torch.cat(col), torch.cat([existing.value, new.flatten()]), shape)
    x = new.new_zeros(shape)
    x[index[0]], x[index[1]] = existing.dense() if isinstance(existing, Sparse) else existing, new
    return x


def add_true_neighbours(fed: Federation, hops: int = 1) -> Federation:
    """Give every client copies of the nodes at other clients up to `hops` edges away, with their features (FS-Q5).

    A copy is joined in both directions to the nodes that know it. Edges between two outermost copies are left out.
    """
    extended = fed.halo(hops)
    batch = extended.batch.clone()
    outer = batch.ring[batch.edge_index[0]] == hops
    batch.edge_index = torch.cat([batch.edge_index, batch.edge_index[:, outer].flip(0)], dim=1)
    run = fed.run[batch.batch]
    copies = torch.bincount(run[batch.ring > 0], minlength=fed.runs)
    asked = [len(batch.node_id[(batch.ring > 0) & (run == r)].unique()) for r in range(fed.runs)]
    fed.traffic.send("up", "neighbour features", fed.features * np.array(asked))
    fed.traffic.send("down", "neighbour features", fed.features * copies.cpu().numpy())
    return replace(extended, batch=batch, _cache={})


def _summarize(
    fed: Federation, held: Sequence[ClientView], generated: Sequence[Generated], run: int, most: int
) -> dict[str, float]:
    """Return facts about the generators of one run.

    `added` and `wanted` are the generated and the missing neighbours per node, at most `most` each. `generator_loss`
    and `cross_loss` are the last L_f and L_f(j), as means over the clients that have a generator.
    """
    clients = [(view, new) for index, view, new in zip(fed.run.tolist(), held, generated) if index == run]
    nodes = sum(len(view.x) for view, _ in clients)
    trained = [new.losses for view, new in clients if bool(view.train.any())]
    return {
        "added": sum(len(new.host) for _, new in clients) / nodes,
        "wanted": sum(int(view.missing.clamp(max=most).sum()) for view, _ in clients) / nodes,
        "generator_loss": float(np.mean([losses.own for losses in trained])),
        "cross_loss": float(np.mean([losses.cross for losses in trained])),
    }
