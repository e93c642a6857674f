"""Train GraphSAINT on several hosts: isolated, or with weights averaged every q epochs (GraphSAINT-SW).

"GraphSAINT: Graph Sampling Based Inductive Learning Method", Hanqing Zeng, Hongkuan Zhou, Ajitesh Srivastava, Rajgopal
Kannan and Viktor Prasanna, ICLR 2020, https://arxiv.org/abs/1907.04931. Feras compares itself with both (Section 5.1).

Every host has a part of the nodes of one graph, and all hosts know the graph's edges. One step of host n:

    1. Draw a sub-graph V_n of the training graph.                   `GraphSAINT.sample`
    2. Set the features of nodes that the host cannot see to zero.   `hosts.hold_every_node`
    3. Compute h = relu(S h W + b) for each convolution.             `Network.convolution`
    4. Compute logits by a dense layer, and the loss.                `GraphSAINT.local_loss`
    5. Follow the gradient.                                          `fedrepro.engine.training`

S is `Sample.a` `[nodes, nodes]`, W `[in, out]`. The entry of edge (v <- u) in S is that of the whole training graph
times C_v / C_vu, and the loss of node v is multiplied by `Sample.share` = (drawn / C_v) / (labelled nodes). Both sums
are then unbiased (see `saint.sampler`). Predictions use the whole graph. Training sees neither validation nor test
nodes, so the setting is inductive. GraphSAINT on one machine differs: it sees the features of all nodes.

Decisions the paper leaves open:

    averaging      Weights are averaged every q epochs (Section 5.2). With `unit="iteration"` they are averaged every q
                   steps, so q = 1 is Algorithm 1. (FR-Q2)
    labels         A host's loss excludes nodes that it cannot see, since the paper calls their labels private. (FR-Q4)
    isolated rows  There are as many isolated hosts, with as many nodes, as in the compared row. (FR-Q5)
    evaluation     Every host scores all validation and test nodes; unseen ones have zero features. (FR-Q6)
    layer          S is D~^-1/2 (A+I) D~^-1/2 of Section 4.1, with GraphSAINT's coefficients. `layer="saint"` is the
                   layer of GraphSAINT's code instead. (FR-Q12)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Step, Update
from fedrepro.engine.nn import layers, random
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.nn.sparse import Sparse, groups_of, sum_groups
from fedrepro.errors import one_of, require
from fedrepro.papers.feras.saint.hosts import Host, hold_every_node, hosts, sharing_hosts
from fedrepro.papers.feras.saint.network import LAYERS, Network, View, rows_of
from fedrepro.papers.feras.saint.sampler import SAMPLERS, TOGETHER, Sampler

CHOICES = {
    "sampler": SAMPLERS,
    "layer": LAYERS,
    "labels": ("visible", "all"),
    "topology": ("shared", "visible"),
    "evaluate": ("visible", "all"),
    "unit": ("epoch", "iteration"),
}


class Sample(NamedTuple):
    """The sub-graphs of all hosts in one step.

    Args:
        fed: the sub-graphs as a federation; its batch has `visible` and `node_id`.
        a: the propagation matrix within them, `[nodes, nodes]`.
        share: `[nodes]`, the factor of each node's loss before the sum over a host's sub-graph.
    """

    fed: Federation
    a: Sparse
    share: Tensor


@dataclass
class Work:
    """Caches and counters of one training. They never change a result.

    Args:
        counts: `[runs]` each: sub-graphs, their nodes, and further counts of a method.
        built: the batch from which hosts were last built, and those hosts.
        scored: weights, federation and logits of the last prediction.
        drawn: hosts, and the nodes that each draws in some steps of a round, by the streams of a step.
        table: the table of embeddings within a round (Feras), `[nodes of all runs, width]`.
    """

    counts: dict[str, np.ndarray] = field(default_factory=dict)
    built: tuple[Any, tuple[Host, ...]] | None = None
    scored: tuple[Weights, Federation, Tensor] | None = None
    drawn: tuple[tuple[Host, ...], dict[bytes, list[np.ndarray]]] = ((), {})
    table: Tensor | None = None


@dataclass(frozen=True)
class Memory:
    """The state between rounds: the hosts, the steps of an epoch, and the table of embeddings (Feras)."""

    batch: Any
    hosts: tuple[Host, ...]
    iterations: int
    work: Work
    table: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class GraphSAINT(Method):
    """Isolated hosts, each of which trains on sub-graphs (the paper's first baseline).

    Args:
        model: a `GCN` that gives the sizes: `layers - 1` convolutions and a dense layer, with ReLU between them.
        local_epochs: units of a round.
        sampler: one of `SAMPLERS`.
        budget, depth, frontier: see `Sampler`. For `budget` and `frontier`, 0 takes GraphSAINT's share of the training
            nodes on PPI.
        coverage: mean number of draws per node to estimate the coefficients.
        layer: "gcn" is `relu(S (h W) + b)`. "saint" concatenates `relu(h W_r + b_r)` and `relu(D^-1 A (h W) + b)`, each
            standardized over a node's features; it scales the last embedding to length 1.
        normalise: False omits the coefficients: S is that of the sub-graph, and the loss is a plain mean.
        labels, evaluate: the labels that enter the loss, and the nodes that are scored: "visible" or "all".
        topology: "shared", or "visible": a host knows only the edges between nodes that it sees.
        unit: the unit of a round, an "epoch" or an "iteration" (one step).
    """

    model: GCN
    sampler: str = "rw"
    budget: int = 0
    depth: int = 2
    frontier: int = 0
    coverage: float = 50.0
    layer: str = "gcn"
    normalise: bool = True
    labels: str = "visible"
    topology: str = "shared"
    evaluate: str = "all"
    unit: str = "epoch"

    sync: ClassVar[str] = "step"  # all hosts' sub-graphs of a step are one batch

    def __post_init__(self) -> None:
        super().__post_init__()
        require(type(self.model) is GCN and self.model.layers >= 2, "model", "a GCN of 2 or more layers", self.model)
        for name, choices in CHOICES.items():
            one_of(name, getattr(self, name), choices)
        for name in ("budget", "frontier"):
            require(getattr(self, name) >= 0, name, "at least 0", getattr(self, name))
        require(self.coverage > 0, "coverage", "positive", self.coverage)

    @property
    def personal(self) -> tuple[str, ...]:
        """Return the names of all weights, since a host keeps its weights from one averaging to the next."""
        return tuple(self.network.init((0,), torch.float32, "cpu"))

    @property
    def network(self) -> Network:
        """Return the network of a host."""
        return Network(self.model, self.layer)

    @property
    def _sampler(self) -> dict[str, Any]:
        return {"kind": self.sampler, "budget": self.budget, "depth": self.depth, "frontier": self.frontier}

    # -- hooks --------------------------------------------------------------------------------------------------------

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Give every host all nodes, estimate the coefficients, and draw one set of initial weights per run."""
        known = sharing_hosts(fed, self._sampler, self.coverage) if self.topology == "shared" else None
        fed = hold_every_node(fed, self.labels, self.topology, self.evaluate)
        known = known or hosts(fed, self._sampler, self.coverage)
        initial = self.network.init(fed.seeds, fed.dtype, fed.device)
        personal = {name: w[fed.run].clone() for name, w in initial.items()}
        return fed, State({}, personal, Memory(fed.batch, known, self._iterations(fed), Work()))

    def _iterations(self, fed: Federation) -> int:
        """Return the steps of an epoch: training nodes over the nominal size of a sub-graph, equal for all hosts."""
        counts = [int(source.data.train_mask.sum()) for source in fed.sources]
        steps = {-(-count // Sampler.scaled(nodes=count, **self._sampler).size(count)) for count in counts}
        require(len(steps) == 1, "fed", "of runs with equally many steps in an epoch", sorted(steps))
        return steps.pop()

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """Yield the steps of a round's units."""
        for step in range(self._steps(state)):
            yield Step(tuple(state.personal), partial(self.local_loss, fed=fed.at(t, step), state=state, t=t))

    def _steps(self, state: State) -> int:
        iterations: int = state.more.iterations
        return self.local_epochs * (iterations if self.unit == "epoch" else 1)

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Return each host's loss on its sub-graph, unbiased for the mean over its labelled nodes, `[clients]`."""
        sample = self.sample(fed, state, t)
        h: Tensor | None = None
        for i in range(1, self.model.layers):
            h = self.network.convolution(weights, sample.fed, sample.a.__matmul__, h, i)
            h = self.share(sample, h, i, state, t)
        assert h is not None
        losses = layers.node_losses(self.network.dense(weights, sample.fed, h), sample.fed.batch.y)
        return sum_groups(losses * sample.share, groups_of(sample.fed.batch.batch, fed.clients))

    def share(self, sample: Sample, h: Tensor, layer: int, state: State, t: int) -> Tensor:
        """Return the embeddings `[nodes, width]` that hosts use after a convolution; here those they computed."""
        return h

    def aggregate(self, state: State, update: Update) -> State:
        """Keep each host's weights at the host."""
        return State({}, update.after, state.more)

    def predict(self, fed: Federation, state: State) -> Tensor:
        """Return the logits `[nodes, classes]` of what each host holds between rounds."""
        return self.forward(state.personal, fed, state)

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return the logits of every node at every host, on the whole graph, `[nodes, classes]`."""
        work: Work = state.more.work
        # If nothing was averaged, what a host trained and what it holds are equal: one prediction serves both scores.
        if work.scored is not None and _same(weights, fed, *work.scored[:2]):
            return work.scored[2]
        out = torch.empty(fed.nodes, fed.classes, dtype=fed.dtype, device=fed.device)
        for run in range(fed.runs):
            self._predict(weights, fed, self._hosts(fed, state), _clients(fed, run), out)
        work.scored = ({name: w.clone() for name, w in weights.items()}, fed, out)
        return out

    def _predict(
        self, weights: Weights, fed: Federation, known: tuple[Host, ...], clients: list[int], out: Tensor
    ) -> None:
        """Write the logits of one run's hosts to their rows."""
        for client in clients:
            view = self._view(weights, fed, known, client)
            h = self.network.convolutions(view, None, range(1, self.model.layers))
            out[rows_of(fed, client)] = self.network.dense(view.weights, view.fed, h)

    def _view(self, weights: Weights, fed: Federation, known: tuple[Host, ...], client: int) -> View:
        return View.of(weights, fed, client, partial(known[client].spread, layer=self.layer))

    # -- sampling -----------------------------------------------------------------------------------------------------

    def _hosts(self, fed: Federation, state: State) -> tuple[Host, ...]:
        """Return the hosts of the start, or new ones if the federation's graph is not that of the start."""
        memory: Memory = state.more
        if fed.batch is memory.batch:
            return memory.hosts
        if memory.work.built is None or memory.work.built[0] is not fed.batch:
            memory.work.built = (fed.batch, hosts(fed, self._sampler, self.coverage))
        return memory.work.built[1]

    def sample(self, fed: Federation, state: State, t: int) -> Sample:
        """Draw every host's sub-graph of a step, a function of (seed, host, round, step)."""
        known, work, step = self._hosts(fed, state), state.more.work, 0 if fed.clock is None else fed.clock.step
        # A walk of many short steps costs almost as much for one sub-graph as for 64, so several steps are drawn.
        last = max(step + 1, min(step + TOGETHER // fed.clients, self._steps(state)))
        seeds = np.asarray(fed.seeds)[fed.run.cpu().numpy()]
        streams = random.keys("saint step", seeds, fed.number.cpu().numpy(), t, np.arange(step, last)[:, None])
        key = streams[0].tobytes()
        if work.drawn[0] is not known or key not in work.drawn[1]:
            work.drawn = (known, _draw(known, streams))
        return self._assemble(fed, state, known, work.drawn[1][key])

    def _assemble(self, fed: Federation, state: State, known: tuple[Host, ...], drawn: list[np.ndarray]) -> Sample:
        """Join the sub-graphs of all hosts to one batch."""
        sizes = np.array([len(nodes) for nodes in drawn])
        ptr = np.cumsum([0, *sizes])
        labelled, total = fed.batch.train_mask.cpu().numpy(), fed.count("train").cpu().numpy()
        parts = []
        for client, (host, nodes) in enumerate(zip(known, drawn, strict=True)):
            *ends, weight = host.block(nodes, self.layer, self.normalise)
            row = host.train[nodes] + int(fed.batch.ptr[client])
            if self.normalise:
                share = host.known.node_weight(nodes) / max(total[client], 1)
            else:
                share = 1 / max(labelled[row].sum(), 1)
            parts.append((row, np.stack(ends) + ptr[client], weight, np.where(labelled[row], share, 0.0)))
        arrays = (np.concatenate(part, -1) for part in zip(*parts, strict=True))
        rows, (target, source), values, shares = (torch.from_numpy(array).to(fed.device) for array in arrays)
        self._note(fed, state, "subgraphs", np.ones(fed.clients))
        self._note(fed, state, "nodes", sizes)
        size = int(ptr[-1])
        batch = Data(num_nodes=size, ptr=torch.from_numpy(ptr).to(fed.device), ring=torch.zeros_like(rows))
        for name in ("y", "node_id", "visible", "batch"):
            batch[name] = fed.batch[name][rows]
        x = fed.x.rows(rows) if isinstance(fed.x, Sparse) else fed.x.index_select(0, rows)
        a = Sparse.of(target, source, values.to(fed.dtype), (size, size))
        return Sample(replace(fed, batch=batch, x=x, parent=None, _cache={}), a, shares.to(fed.dtype))

    def _note(self, fed: Federation, state: State, name: str, count: np.ndarray) -> None:
        """Add counts `[clients]` to their runs."""
        counts = state.more.work.counts
        counts[name] = counts.get(name, 0) + np.bincount(fed.run.cpu().numpy(), count, fed.runs)

    # -- facts --------------------------------------------------------------------------------------------------------

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Return the measured kappa, facts of the sampling, and the last round's test scores, one entry per run.

        The test score is given at nodes that hosts see and at nodes that they do not see, as the mean over hosts. It is
        accuracy, or micro-F1 if a node may have several labels.
        """
        counts, memory = state.more.work.counts, state.more
        seen = fed.batch.visible
        visible = torch.stack([seen[rows_of(fed, client)].double().mean() for client in range(fed.clients)])
        logits = self.predict(fed, state)
        facts = []
        for run in range(fed.runs):
            clients = _clients(fed, run)
            host = memory.hosts[clients[0]]
            of_run = {
                "kappa": float((1 - visible)[clients].mean()),
                "iterations": memory.iterations,
                "sampled_nodes": float(counts["nodes"][run] / counts["subgraphs"][run]),
                "train_nodes": len(host.train),
                "subgraphs": host.known.drawn,
            }
            for name, mask in (("test_seen", seen), ("test_unseen", ~seen)):
                scores = [_score(fed, logits, rows_of(fed, client), mask & fed.batch.test_mask) for client in clients]
                defined = [score for score in scores if score is not None]
                if defined:
                    of_run[name] = float(np.mean(defined))
            facts.append(of_run)
        return facts


@dataclass(frozen=True, kw_only=True)
class GraphSAINTSW(GraphSAINT):
    """GraphSAINT whose weights are averaged from time to time (the paper's second baseline).

    Args:
        q: local epochs between two averages, a multiple of `local_epochs`.
    """

    q: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.q >= 1, "q", "at least 1", self.q)
        allowed = f"a multiple of local_epochs, {self.local_epochs}, the length of a round"
        require(self.q % self.local_epochs == 0, "q", allowed, self.q)

    def averages(self, t: int) -> bool:
        """Return True if weights are averaged at the end of round `t`."""
        return (t + 1) * self.local_epochs % self.q == 0

    def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
        """Return each host's weights; they count as received in the first round and after each averaging."""
        if t == 0 or self.averages(t - 1):
            _count_weights(fed, state.personal, "down", t)
        return super().begin_round(fed, state, t)

    def aggregate(self, state: State, update: Update) -> State:
        """Average the weights every q units and send the mean to each host (Eq. 12); optimizer states stay local."""
        kept = super().aggregate(state, update)
        if not self.averages(update.round):
            return kept
        _count_weights(update.fed, kept.personal, "up", update.round)
        mean = update.fed.broadcast(update.fed.average(kept.personal, update.by))
        return replace(kept, personal={name: w.contiguous() for name, w in mean.items()})


def _draw(known: tuple[Host, ...], streams: np.ndarray) -> dict[bytes, list[np.ndarray]]:
    """Return the nodes of every host's sub-graph in some steps, by the step's streams `[steps, clients]`."""
    drawn: list[dict[int, np.ndarray]] = [{} for _ in streams]
    for host in {id(host): host for host in known}.values():
        clients = [client for client, other in enumerate(known) if other is host]
        kept = host.sampler.draw(host.graph, streams[:, clients].ravel()).reshape(len(streams), len(clients), -1)
        for nodes, rows in zip(drawn, kept, strict=True):
            nodes |= {client: np.flatnonzero(row) for client, row in zip(clients, rows, strict=True)}
    return {
        stream.tobytes(): [nodes[client] for client in range(len(known))]
        for stream, nodes in zip(streams, drawn, strict=True)
    }


def _clients(fed: Federation, run: int) -> list[int]:
    return (fed.run == run).nonzero().squeeze(1).tolist()


def _same(weights: Weights, fed: Federation, others: Weights, scored: Federation) -> bool:
    """Return True if weights, graph and features are those of an earlier prediction."""
    unchanged = scored.batch is fed.batch and scored.x is fed.x
    return unchanged and all(torch.equal(w, others[name]) for name, w in weights.items())


def _count_weights(fed: Federation, weights: Weights, direction: str, t: int) -> None:
    """Count the weights that travel between the server and the hosts with training nodes."""
    size = sum(w[0].numel() for w in weights.values())
    able = fed.run[fed.count("train") > 0].cpu().numpy()
    fed.traffic.send(direction, "weights", np.bincount(able, minlength=fed.runs) * size, round=t)


def _score(fed: Federation, logits: Tensor, rows: slice, mask: Tensor) -> float | None:
    """Return accuracy at one client, or micro-F1 if nodes may have several labels; None without nodes to score."""
    chosen = mask[rows]
    if not bool(chosen.any()):
        return None
    guess, y = logits[rows][chosen], fed.batch.y[rows][chosen]
    if y.dim() == 1:
        return float((guess.argmax(1) == y).double().mean())
    yes, true = guess > 0, y > 0.5
    both = int((yes & true).sum())
    return 2 * both / max(int(yes.sum()) + int(true.sum()), 1)
