"""GraphSAINT (Zeng et al. 2020) on the hosts of Feras: alone, or with weights averaged every q epochs (GraphSAINT-SW).

In every step each host draws a sub-graph of the training graph, whose topology all hosts know, sets the features of
nodes it cannot see to zero, and steps along the loss of the nodes whose labels it has. Prediction is on the whole
graph, of which training has seen neither validation nor test nodes (inductive).

Decisions the paper leaves open:

    FR-Q2   weights are averaged every q epochs (Section 5.2); with `unit="iteration"` every q iterations, so that q = 1
            is Algorithm 1
    FR-Q4   labels of nodes a host cannot see stay out of its loss, for the paper calls them private
    FR-Q5   isolated hosts are as many, and see as much, as those of the row they are compared with
    FR-Q6   all validation and test nodes are scored at every host, those it cannot see with zero features
    FR-Q12  S = D~^-1/2 (A+I) D~^-1/2 of Section 4.1 with GraphSAINT's coefficients; `layer="saint"` is the layer of
            GraphSAINT's code instead
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Step, Update
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require
from fedrepro.papers.feras.saint import sampler as saint
from fedrepro.papers.feras.saint.hosts import LAYERS, Host, hold_every_node, hosts, sharing_hosts
from fedrepro.papers.feras.saint.network import Network, one_client, rows_of

WHOSE = ("visible", "all")
UNITS = ("epoch", "iteration")


class Sample(NamedTuple):
    """The sub-graphs of all hosts in one step.

    Args:
        fed: the sub-graphs as a federation; its batch has `visible` and `node_id`.
        a: propagation within them, `[nodes, nodes]`.
        share: `[nodes]`, what each node's loss is multiplied by before the sum over a host's sub-graph.
    """

    fed: Federation
    a: Sparse
    share: Tensor


@dataclass
class Work:
    """What is kept between the calls of one training, and never changes a result.

    Args:
        counts: `[runs]` each: sub-graphs, their nodes, and what a method counts besides.
        built: the batch hosts were built from last, and those hosts.
        scored: the weights, federation and logits of the last prediction.
        drawn: hosts, and by their streams of a step the nodes each draws in it: some steps of a round together.
        table: Feras' table of embeddings within a round, `[nodes of all runs, width]`.
    """

    counts: dict[str, np.ndarray] = field(default_factory=dict)
    built: tuple[Any, tuple[Host, ...]] | None = None
    scored: tuple[Weights, Federation, Tensor] | None = None
    drawn: tuple[tuple[Host, ...], dict[bytes, list[np.ndarray]]] = ((), {})
    table: Tensor | None = None


@dataclass(frozen=True)
class Memory:
    """Between rounds: what hosts sample from, steps of an epoch, and the table of embeddings (Feras)."""

    batch: Any
    hosts: tuple[Host, ...]
    iterations: int
    work: Work
    table: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class GraphSAINT(Method):
    """Isolated hosts (the paper's first baseline).

    Args:
        model: a `GCN`, of which the sizes are used: `layers - 1` convolutions and a dense layer, ReLU between them.
        local_epochs: units of a round.
        sampler: one of `saint.SAMPLERS`.
        budget, depth, frontier: see `saint.Sampler`; 0 takes GraphSAINT's share of the training nodes on PPI.
        coverage: how often each node is drawn, on average, to estimate the coefficients.
        layer: "gcn", `relu(S (h W) + b)`; or "saint", `relu(h W_r + b_r)` beside `relu(D^-1 A (h W) + b)`, each
            standardized over a node's features, and the last embedding scaled to length 1.
        normalise: False leaves the coefficients out: S of the sub-graph, and the plain mean of its losses.
        labels, evaluate: whose labels enter the loss and which nodes are scored, "visible" or "all".
        topology: "shared", or "visible": a host knows the edges among the nodes it sees alone.
        unit: what a round is made of, an "epoch" or an "iteration" (one step).
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
        one_of("sampler", self.sampler, saint.SAMPLERS)
        one_of("layer", self.layer, LAYERS)
        one_of("labels", self.labels, WHOSE)
        one_of("topology", self.topology, ("shared", "visible"))
        one_of("evaluate", self.evaluate, WHOSE)
        one_of("unit", self.unit, UNITS)
        for name in ("budget", "frontier"):
            require(getattr(self, name) >= 0, name, "at least 0", getattr(self, name))
        require(self.coverage > 0, "coverage", "positive", self.coverage)

    @property
    def personal(self) -> tuple[str, ...]:
        """Every weight: a host keeps its own from one averaging to the next."""
        return tuple(self.network.init((0,), torch.float32, "cpu"))

    @property
    def network(self) -> Network:
        """The layers of a host."""
        return Network(self.model, self.layer)

    # -- hooks --------------------------------------------------------------------------------------------------------

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Hosts with all nodes; one set of initial weights a run; the coefficients."""
        known = sharing_hosts(fed, self._sampler, self.coverage) if self.topology == "shared" else None
        fed = hold_every_node(fed, self.labels, self.topology, self.evaluate)
        known = known or hosts(fed, self._sampler, self.coverage)
        initial = self.network.init(fed.seeds, fed.dtype, fed.device)
        own = {name: w[fed.run].clone() for name, w in initial.items()}
        return fed, State({}, own, Memory(fed.batch, known, self._iterations(fed), Work()))

    @property
    def _sampler(self) -> dict[str, Any]:
        return {"kind": self.sampler, "budget": self.budget, "depth": self.depth, "frontier": self.frontier}

    def _iterations(self, fed: Federation) -> int:
        """Steps of an epoch: training nodes over the nominal size of a sub-graph, the same for all hosts."""
        found = set()
        for source in fed.sources:
            nodes = int(source.data.train_mask.sum())
            found.add(-(-nodes // saint.Sampler.scaled(nodes=nodes, **self._sampler).size(nodes)))
        require(len(found) == 1, "fed", "of runs with equally many steps in an epoch", sorted(found))
        return found.pop()

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """The iterations of a round's units."""
        for step in range(self._steps(state)):
            loss = partial(self.local_loss, fed=fed.at(t, step), state=state, t=t)
            yield Step(tuple(state.personal), loss)

    def _steps(self, state: State) -> int:
        """Steps of a round."""
        iterations: int = state.more.iterations
        return self.local_epochs * (iterations if self.unit == "epoch" else 1)

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Each host's loss on its sub-graph, unbiased for the mean over its labelled nodes: `[clients]`."""
        sample = self.sample(fed, state, t)
        h: Tensor | None = None
        for i in range(1, self.model.layers):
            h = self.network.convolution(weights, sample.fed, sample.a.__matmul__, h, i)
            h = self.share(sample, h, i, state, t)
        assert h is not None
        logits = self.network.dense(weights, sample.fed, h)
        y = sample.fed.batch.y
        if y.dim() == 2:
            each = F.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none").mean(1)
        else:
            each = F.cross_entropy(logits, y, reduction="none")
        return each.new_zeros(fed.clients).index_add(0, sample.fed.batch.batch, each * sample.share)

    def share(self, sample: Sample, h: Tensor, layer: int, state: State, t: int) -> Tensor:
        """What hosts make of each other's embeddings `[nodes, width]` after a convolution: nothing."""
        return h

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Logits of every node at every host, on the whole graph: `[nodes, classes]`."""
        work: Work = state.more.work
        if work.scored is not None and _same(weights, fed, *work.scored[:2]):
            return work.scored[2]  # nothing was averaged since: what a host holds is what it trained
        out = torch.empty(fed.nodes, fed.classes, dtype=fed.dtype, device=fed.device)
        known = self._hosts(fed, state)
        for run in range(fed.runs):
            clients = (fed.run == run).nonzero().squeeze(1).tolist()
            self._predict(weights, fed, known, clients, out)
        work.scored = ({name: w.clone() for name, w in weights.items()}, fed, out)
        return out

    def _predict(
        self, weights: Weights, fed: Federation, known: tuple[Host, ...], clients: list[int], out: Tensor
    ) -> None:
        """Logits of one run's hosts, written to their rows."""
        for client in clients:
            alone, own = one_client(fed, client), {name: w[client : client + 1] for name, w in weights.items()}
            spread = partial(known[client].spread, layer=self.layer)
            h: Tensor | None = None
            for i in range(1, self.model.layers):
                h = self.network.convolution(own, alone, spread, h, i)
            assert h is not None
            out[rows_of(fed, client)] = self.network.dense(own, alone, h)

    def aggregate(self, state: State, update: Update) -> State:
        """Weights stay where they are."""
        return State({}, update.after, state.more)

    def predict(self, fed: Federation, state: State) -> Tensor:
        """Logits `[nodes, classes]` of what each host holds between rounds."""
        return self.forward(state.personal, fed, state)

    # -- sampling -----------------------------------------------------------------------------------------------------

    def _hosts(self, fed: Federation, state: State) -> tuple[Host, ...]:
        """The hosts of the start, built again where the federation's graph is not the one of the start."""
        memory: Memory = state.more
        if fed.batch is memory.batch:
            return memory.hosts
        if memory.work.built is None or memory.work.built[0] is not fed.batch:
            memory.work.built = (fed.batch, hosts(fed, self._sampler, self.coverage))
        return memory.work.built[1]

    def sample(self, fed: Federation, state: State, t: int) -> Sample:
        """Every host's sub-graph of a step, a function of (seed, host, round, step)."""
        known, work, step = self._hosts(fed, state), state.more.work, 0 if fed.clock is None else fed.clock.step
        # A walk of many short steps costs almost the same for one sub-graph as for 64.
        last = max(step + 1, min(step + saint.TOGETHER // fed.clients, self._steps(state)))
        seeds = np.asarray(fed.seeds)[fed.run.cpu().numpy()]
        streams = random.keys("saint step", seeds, fed.number.cpu().numpy(), t, np.arange(step, last)[:, None])
        key = streams[0].tobytes()
        if work.drawn[0] is not known or key not in work.drawn[1]:
            work.drawn = (known, _draw(known, streams))
        return self._assemble(fed, state, known, work.drawn[1][key])

    def _assemble(self, fed: Federation, state: State, known: tuple[Host, ...], drawn: list[np.ndarray]) -> Sample:
        rows, ends, weights, shares, start = [], [], [], [], 0
        labelled = fed.batch.train_mask.cpu().numpy()
        total = fed.count("train").cpu().numpy()
        for client, (host, nodes) in enumerate(zip(known, drawn, strict=True)):
            target, source, strength = host.block(nodes, self.layer, self.normalise)
            row = host.train[nodes] + int(fed.batch.ptr[client])
            here = labelled[row]
            each = host.known.node_weight(nodes) / max(total[client], 1) if self.normalise else 1 / max(here.sum(), 1)
            rows.append(row)
            ends.append(np.stack([target, source]) + start)
            weights.append(strength)
            shares.append(np.where(here, each, 0.0))
            start += len(nodes)
        self._note(fed, state, "subgraphs", np.ones(fed.clients))
        self._note(fed, state, "nodes", np.array([len(nodes) for nodes in drawn]))
        row = torch.from_numpy(np.concatenate(rows)).to(fed.device)
        target, source = torch.from_numpy(np.concatenate(ends, 1)).to(fed.device)
        weight = torch.from_numpy(np.concatenate(weights)).to(fed.device, fed.dtype)
        a = Sparse.of(target, source, weight, (start, start))
        ptr = np.cumsum([0, *map(len, drawn)])
        batch = Data(num_nodes=start, ptr=torch.from_numpy(ptr).to(fed.device), ring=torch.zeros_like(row))
        for name in ("y", "node_id", "visible", "batch"):
            batch[name] = fed.batch[name][row]
        x = fed.x.rows(row) if isinstance(fed.x, Sparse) else fed.x.index_select(0, row)
        share = torch.from_numpy(np.concatenate(shares)).to(fed.device, fed.dtype)
        return Sample(replace(fed, batch=batch, x=x, parent=None, _cache={}), a, share)

    def _note(self, fed: Federation, state: State, name: str, count: np.ndarray) -> None:
        """Add counts `[clients]` to their runs."""
        added = np.bincount(fed.run.cpu().numpy(), count, fed.runs)
        counts = state.more.work.counts
        counts[name] = counts.get(name, 0) + added

    # -- facts --------------------------------------------------------------------------------------------------------

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Per run: kappa as it came out, sampling, and the last round's test score at nodes hosts see and do not see
        (mean over hosts; micro-F1 with several labels a node).
        """
        counts, memory = state.more.work.counts, state.more
        hidden = 1 - _per_client(fed, fed.batch.visible)
        logits = self.predict(fed, state)
        out = []
        for run in range(fed.runs):
            mine = (fed.run == run).nonzero().squeeze(1).tolist()
            host = memory.hosts[mine[0]]
            found = {
                "kappa": float(hidden[mine].mean()),
                "iterations": memory.iterations,
                "sampled_nodes": float(counts["nodes"][run] / counts["subgraphs"][run]),
                "train_nodes": len(host.train),
                "subgraphs": host.known.drawn,
            }
            for name, which in (("test_seen", fed.batch.visible), ("test_unseen", ~fed.batch.visible)):
                each = [_score(fed, logits, rows_of(fed, client), which & fed.batch.test_mask) for client in mine]
                scored = [score for score in each if score is not None]
                if scored:
                    found[name] = float(np.mean(scored))
            out.append(found)
        return out


@dataclass(frozen=True, kw_only=True)
class GraphSAINTSW(GraphSAINT):
    """Weights averaged every `q` units (the paper's second baseline)."""

    q: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.q >= 1, "q", "at least 1", self.q)
        whole = self.q % self.local_epochs == 0
        require(whole, "q", f"a multiple of local_epochs, {self.local_epochs}, the length of a round", self.q)

    def averages(self, t: int) -> bool:
        """Whether weights are averaged at the end of round `t`."""
        return (t + 1) * self.local_epochs % self.q == 0

    def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
        """What each host holds; counted as received in the first round and after each averaging."""
        if t == 0 or self.averages(t - 1):
            _count_weights(fed, state.personal, "down", t)
        return super().begin_round(fed, state, t)

    def aggregate(self, state: State, update: Update) -> State:
        """Every q units each host takes the average (Eq. 12); the others' optimizer states stay their own."""
        made = super().aggregate(state, update)
        if not self.averages(update.round):
            return made
        _count_weights(update.fed, made.personal, "up", update.round)
        average = update.fed.average(made.personal, update.by)
        return replace(made, personal={name: w.contiguous() for name, w in update.fed.broadcast(average).items()})


def _draw(known: tuple[Host, ...], streams: np.ndarray) -> dict[bytes, list[np.ndarray]]:
    """Nodes of every host's sub-graph in some steps, by the step's streams `[steps, clients]`."""
    drawn: list[dict[int, np.ndarray]] = [{} for _ in streams]
    for host in {id(host): host for host in known}.values():
        clients = [client for client, each in enumerate(known) if each is host]
        kept = host.sampler.draw(host.graph, streams[:, clients].ravel()).reshape(len(streams), len(clients), -1)
        for step, rows in zip(drawn, kept, strict=True):
            step |= {client: np.flatnonzero(row) for client, row in zip(clients, rows, strict=True)}
    return {
        each.tobytes(): [step[client] for client in range(len(known))]
        for each, step in zip(streams, drawn, strict=True)
    }


def _same(weights: Weights, fed: Federation, others: Weights, scored: Federation) -> bool:
    """Whether a prediction would be made again: the same weights, graph and features."""
    here = scored.batch is fed.batch and scored.x is fed.x
    return here and all(torch.equal(w, others[name]) for name, w in weights.items())


def _count_weights(fed: Federation, weights: Weights, direction: str, t: int) -> None:
    each = sum(w[0].numel() for w in weights.values())
    able = fed.run[fed.count("train") > 0].cpu().numpy()
    fed.traffic.send(direction, "weights", np.bincount(able, minlength=fed.runs) * each, round=t)


def _per_client(fed: Federation, which: Tensor) -> Tensor:
    """Share of each client's nodes for which something holds: `[clients]`."""
    return torch.stack([which[rows_of(fed, client)].double().mean() for client in range(fed.clients)])


def _score(fed: Federation, logits: Tensor, rows: slice, which: Tensor) -> float | None:
    """Accuracy, or micro-F1 where nodes have several labels, at one client; None without nodes to score."""
    chosen = which[rows]
    if not bool(chosen.any()):
        return None
    guess, y = logits[rows][chosen], fed.batch.y[rows][chosen]
    if y.dim() == 1:
        return float((guess.argmax(1) == y).double().mean())
    yes, right = guess > 0, y > 0.5
    both = int((yes & right).sum())
    return 2 * both / max(int(yes.sum()) + int(right.sum()), 1)
