"""FedSage+ (Zhang et al. 2021): clients generate their missing neighbours, then train on the mended graphs.

    1. every client trains a generator of missing neighbours (`neighgen`), against its own hidden nodes and against
       neighbours of random nodes of the other clients; generators are never averaged
    2. every client adds what it generates to its graph: one new node per neighbour, joined to its host alone
    3. federated training of the classifier on the mended graphs; new nodes carry no label and enter no score

FedStruct's public code trains the generator another way and knows how many neighbours are missing (`scheme`, `count`),
and steps along averaged gradients (`FedSageSGD`).
FS-Q5 "FedSage+ ideal": nothing is generated; a client is given the true features of all neighbours of its nodes at
other clients, one copy each, joined to all its nodes that know them, without edges among copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from fedrepro.baselines.impaired import Held
from fedrepro.baselines.neighgen import Losses, NeighGen
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require

SPARSE_BELOW = 0.1  # share of generated rows, which have no zeros


class Generated(NamedTuple):
    """One client's new nodes: features `[new, features]`, whose neighbour each is `[new]`, and where training ended."""

    x: Tensor
    host: Tensor
    losses: Losses


class Memory(NamedTuple):
    """What the method below keeps, and what is reported of the generators, one dictionary a run."""

    inner: Any
    facts: list[dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Mending(Method):
    """A method on mended graphs.

    Args:
        neighbours: "generated"; "none" (FedSage, the graphs as they are); "ideal" (FS-Q5).
        count: how many neighbours a node gets: as "predicted", or the "true" number of its cut edges, at most `most`.
        scheme, generator_epochs, generator_lr, generator_weight_decay, generator_dropout, hidden_share, most,
            encoder_hidden, latent, generator_hidden, generator_width, cross: see `NeighGen`. Time and memory grow
            with `generator_width * most * features`. Half of the nodes are hidden as in the authors' settings; with a
            tenth, as FedStruct does, sparse graphs leave so few hidden neighbours that none is predicted.
        row_sum: generated rows are divided by the sum of their absolute values, for graphs whose features were
            divided by theirs: what tanh returns is many times longer and drowns the real rows.
        scaled: see `NeighGen`.
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
        """The generator with this method's options."""
        return NeighGen(
            self.generator_epochs, self.generator_lr, self.generator_weight_decay, self.generator_dropout,
            self.hidden_share, self.most, self.encoder_hidden, self.latent, self.generator_hidden,
            self.generator_width, self.scheme, self.count == "true", self.cross, self.row_sum, self.scaled,
        )  # fmt: skip

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """The generators' training and the mended graphs; then as without."""
        facts: list[dict[str, float]] = [{} for _ in fed.seeds]
        if self.neighbours == "ideal":
            fed = ideal(fed)
        if self.neighbours == "generated":
            held = [Held.of(fed, client) for client in range(fed.clients)]
            made = [self._generated(held, client, fed) for client in range(fed.clients)]
            self._count(fed, held, made)
            facts = [_facts(fed, held, made, run, self.most) for run in range(fed.runs)]
            fed = mended(fed, made, self.most)
        fed, state = super().start(fed)
        return fed, replace(state, more=Memory(state.more, facts))

    def aggregate(self, state: State, update: Update) -> State:
        """As without."""
        made = super().aggregate(replace(state, more=state.more.inner), update)
        return replace(made, more=Memory(made.more, state.more.facts))

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """`_facts` of each run where neighbours were generated."""
        found: list[dict[str, float]] = state.more.facts
        return found

    def _generated(self, held: list[Held], client: int, fed: Federation) -> Generated:
        """New nodes of one client; none where it has no training node to learn from."""
        mine = held[client]
        if not bool(mine.train.any()):
            return Generated(mine.x[:0], mine.edges[0, :0], Losses(0.0, 0.0, 0))
        same_run = (fed.run == fed.run[client]).nonzero().squeeze(1).tolist()
        weights, losses = self.generator.train(mine, [held[j] for j in same_run if j != client], fed.classes)
        return Generated(*self.generator.generate(weights, mine), losses)

    def _count(self, fed: Federation, held: list[Held], made: list[Generated]) -> None:
        """In each epoch a client sends its latent rows at training nodes and its fGen to every other client, which
        sends back the gradient of L_f(j): the message of a deployment (the public codes read the features instead).
        """
        sizes = [self.latent * self.generator_hidden, self.generator_hidden * self.generator_width]
        sizes += [self.generator_width * self.most * fed.features]
        biases = self.generator_hidden + self.generator_width + self.most * fed.features
        generator, up, down = sum(sizes) + biases, np.zeros(fed.runs), np.zeros(fed.runs)
        for client, (mine, new) in enumerate(zip(held, made)):
            rows, run = int(mine.train.sum()) * self.latent, int(fed.run[client])
            up[run] += self.generator_epochs * new.losses.others * (generator + rows)
            back = rows if self.scheme == "fedstruct" else 0  # the encoder learns from it too
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

    average: str = "train"  # FedSGD's, which `Mending` would hide


def mended(fed: Federation, made: Sequence[Generated], most: int) -> Federation:
    """The same clients with their new nodes, in both directions joined to their hosts, at `ring` 1."""
    graphs = []
    owner = fed.batch.batch[fed.batch.edge_index[1]]
    for client, new in enumerate(made):
        first, last = int(fed.batch.ptr[client]), int(fed.batch.ptr[client + 1])
        rows = torch.arange(first, last, device=fed.device)
        added = torch.stack([len(rows) + torch.arange(len(new.host), device=fed.device), new.host])
        edges = [fed.batch.edge_index[:, owner == client] - first, added, added.flip(0)]
        graph = Data(edge_index=torch.cat(edges, dim=1), num_nodes=len(rows) + len(new.host))
        for name in ("y", "ring", "train_mask", "val_mask", "test_mask"):
            own = fed.batch[name][rows]
            graph[name] = torch.cat([own, own.new_zeros(len(new.host), *own.shape[1:])])
        graph.ring[len(rows) :] = 1
        count = torch.bincount(new.host, minlength=len(rows))
        place = torch.arange(len(new.host), device=fed.device) - (count.cumsum(0) - count)[new.host]
        ids, total = fed.batch.node_id[rows], fed.sources[int(fed.run[client])].data.num_nodes
        graph.node_id = torch.cat([ids, total + ids[new.host] * most + place])
        graphs.append(graph)
    batch = Batch.from_data_list(graphs)
    x = _with_rows(fed.x, torch.cat([new.x for new in made]), batch.ring > 0)
    return replace(fed, batch=batch, x=x, parent=None, _cache={})


def _with_rows(own: Tensor | Sparse, new: Tensor, where: Tensor) -> Tensor | Sparse:
    """The rows of `own` and of `new`, the latter at the places named; sparse as long as few rows are new."""
    at = [(~where).nonzero().squeeze(1), where.nonzero().squeeze(1)]
    shape = (len(where), new.shape[1])
    if isinstance(own, Sparse) and len(new) < SPARSE_BELOW * len(where):
        row = [at[0][own.pattern.row], at[1].repeat_interleave(shape[1])]
        col = [own.pattern.col, torch.arange(shape[1], device=new.device).repeat(len(new))]
        return Sparse.of(torch.cat(row), torch.cat(col), torch.cat([own.value, new.flatten()]), shape)
    x = new.new_zeros(shape)
    x[at[0]], x[at[1]] = own.dense() if isinstance(own, Sparse) else own, new
    return x


def ideal(fed: Federation) -> Federation:
    """FS-Q5: copies of the neighbours at other clients with their true features, joined in both directions."""
    extended = fed.halo(1)
    batch = extended.batch.clone()
    outer = batch.ring[batch.edge_index[0]] > 0
    batch.edge_index = torch.cat([batch.edge_index, batch.edge_index[:, outer].flip(0)], dim=1)
    run = fed.run[batch.batch]
    copies = torch.bincount(run[batch.ring > 0], minlength=fed.runs)
    asked = [len(batch.node_id[(batch.ring > 0) & (run == r)].unique()) for r in range(fed.runs)]
    fed.traffic.send("up", "neighbour features", fed.features * np.array(asked))
    fed.traffic.send("down", "neighbour features", fed.features * copies.cpu().numpy())
    return replace(extended, batch=batch, _cache={})


def _facts(
    fed: Federation, held: Sequence[Held], made: Sequence[Generated], run: int, most: int
) -> dict[str, float]:  # fmt: skip
    """Of one run: neighbours generated and neighbours missing (at most `most` each) per node, and where the
    generators' training ended, means over the clients that have one.
    """
    mine = [(h, m) for at, h, m in zip(fed.run.tolist(), held, made) if at == run]
    nodes = sum(len(h.x) for h, _ in mine)
    trained = [m.losses for h, m in mine if bool(h.train.any())]
    return {
        "added": sum(len(m.host) for _, m in mine) / nodes,
        "wanted": sum(int(h.missing.clamp(max=most).sum()) for h, _ in mine) / nodes,
        "generator_loss": float(np.mean([losses.own for losses in trained])),
        "cross_loss": float(np.mean([losses.cross for losses in trained])),
    }
