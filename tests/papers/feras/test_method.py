"""Feras and its baselines against Algorithm 1 and Section 5.2 written out host by host, with PyG's layers."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import block_model, gap, largest_difference
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

from fedrepro import registry
from fedrepro.data.partition import partition
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import Method, State
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError
from fedrepro.papers.feras.method import Feras, Rows
from fedrepro.papers.feras.saint import sampler as saint
from fedrepro.papers.feras.saint.method import GraphSAINT, GraphSAINTSW

NODES, FEATURES, CLASSES, HIDDEN, HOSTS = 90, 6, 3, 7, 3
NET = GCN(FEATURES, CLASSES, hidden=HIDDEN, layers=3)
SMALL: dict[str, Any] = {"budget": 9, "coverage": 8.0}
SGD: dict[str, Any] = {"optimizer": "sgd", "lr": 0.3}


def data(seed: int = 0, sparse: bool = False, labels: int = 0) -> Data:
    """A block model of which two thirds are to train on; several labels a node on demand."""
    made = block_model(NODES, degree=7, classes=CLASSES, features=FEATURES, seed=seed, sparse=sparse)
    made.train_mask = torch.arange(NODES) % 3 > 0
    made.val_mask, made.test_mask = torch.arange(NODES) % 6 == 0, torch.arange(NODES) % 6 == 3
    if labels:
        made.y = (random.uniform((NODES, labels), "labels", seed) < 0.4).float()
        made.num_classes = labels
    return made


def federate(graph: Data, seed: int = 0, kappa: float = 0.4) -> Federation:
    parts = partition(graph, f"private-public(kappa={kappa})", HOSTS, seed)
    return Federation.of(graph, parts, seed, dtype=torch.float64)


def drawn(method: GraphSAINT, graph: Data, seed: int, t: int, step: int) -> list[list[int]]:
    """The nodes of each host's sub-graph, drawn from the training graph alone."""
    train_nodes = graph.train_mask.nonzero().squeeze(1)
    sub, sampler = training_graph(method, graph)
    streams = random.keys("saint step", np.full(HOSTS, seed), np.arange(HOSTS), t, step)
    return [train_nodes[torch.from_numpy(kept)].tolist() for kept in sampler.draw(sub, streams)]


def training_graph(method: GraphSAINT, graph: Data) -> tuple[saint.Graph, saint.Sampler]:
    """By hand: edges between training nodes, in their numbering."""
    number = {int(v): i for i, v in enumerate(graph.train_mask.nonzero())}
    pairs = [(number[u], number[v]) for u, v in graph.edge_index.T.tolist() if u in number and v in number]
    sub = saint.Graph.of(np.array(pairs).T, len(number))
    return sub, saint.Sampler.scaled(method.sampler, len(number), method.budget, method.depth, method.frontier)


class Plain:
    """Training host after host: sub-graphs as dense lists, PyG layers, one optimizer a host."""

    def __init__(self, method: GraphSAINTSW, graph: Data, parts: list[Tensor], start: dict[str, Tensor], seed: int):
        self.method, self.graph, self.seed = method, graph, seed
        self.x = graph.x.to_dense().double() if graph.x.layout == torch.sparse_csr else graph.x.double()
        self.sees = [set(part.tolist()) for part in parts]
        self.weights = [{k: w.clone().requires_grad_() for k, w in start.items()} for _ in parts]
        kind = torch.optim.Adam if method.optimizer == "adam" else torch.optim.SGD
        self.optimizers = [kind(list(w.values()), lr=method.lr) for w in self.weights]
        self.table: dict[int, Tensor] = {}
        self.known()

    def known(self) -> None:
        """C_v and C_vu by counting over the sub-graphs drawn beforehand."""
        sub, sampler = training_graph(self.method, self.graph)
        nodes = self.graph.train_mask.nonzero().squeeze(1).tolist()
        self.count, self.pairs, self.sets = dict.fromkeys(nodes, 0), {}, 0
        while sum(self.count.values()) < self.method.coverage * len(nodes):
            kept = sampler.draw(sub, random.keys("saint coverage", self.seed, np.arange(self.sets, self.sets + 1)))[0]
            inside = {nodes[i] for i in np.flatnonzero(kept)}
            self.sets += 1
            for v in inside:
                self.count[v] += 1
            for u, v in self.graph.edge_index.T.tolist():
                if u in inside and v in inside:
                    self.pairs[v, u] = self.pairs.get((v, u), 0) + 1

    def sub_graph(self, nodes: list[int]) -> tuple[Tensor, Tensor]:
        """Edges of a sub-graph with their weights, self-loops among them."""
        place = {v: i for i, v in enumerate(nodes)}
        trained = self.graph.train_mask
        known = [(u, v) for u, v in self.graph.edge_index.T.tolist() if trained[u] and trained[v]]
        inner = [(u, v) for u, v in known if u in place and v in place]
        normalised = self.method.normalise
        degree = dict.fromkeys(place if not normalised else trained.nonzero().squeeze(1).tolist(), 0)
        for _, v in known if normalised else inner:
            degree[v] += 1
        ends, weights = [], []
        for u, v in inner:
            ratio = max(self.count[v], 1) / max(self.pairs.get((v, u), 0), 1) if normalised else 1.0
            scale = degree[v] if self.method.layer == "saint" else ((degree[u] + 1) * (degree[v] + 1)) ** 0.5
            ends.append((place[u], place[v]))
            weights.append(ratio / scale)
        if self.method.layer == "gcn":
            ends += [(place[v], place[v]) for v in nodes]
            weights += [1 / (degree[v] + 1) for v in nodes]
        return torch.tensor(ends).T, torch.tensor(weights, dtype=torch.float64)

    def conv(self, w: dict[str, Tensor], i: int, h: Tensor, edges: Tensor, weight: Tensor | None) -> Tensor:
        """One convolution by PyG; `weight` None is the whole graph under PyG's own normalization."""
        name = f"layer{i}"
        if self.method.layer == "gcn":
            layer = GCNConv(h.shape[1], HIDDEN, normalize=weight is None).double()
            call = {"lin.weight": w[f"{name}.weight"].T, "bias": w[f"{name}.bias"]}
            return F.relu(torch.func.functional_call(layer, call, (h, edges, weight)))
        half = len(w[f"{name}.bias"]) // 2
        own = h @ w[f"{name}.root"] + w[f"{name}.bias"][:half]
        if weight is None:
            mean = SAGEConv(h.shape[1], HIDDEN, bias=False, root_weight=False).double()
            near = torch.func.functional_call(mean, {"lin_l.weight": w[f"{name}.weight"].T}, (h, edges))
        else:
            near = torch.zeros_like(own).index_add(0, edges[1], weight[:, None] * (h @ w[f"{name}.weight"])[edges[0]])
        parts = []
        for z in (F.relu(own), F.relu(near + w[f"{name}.bias"][half:])):
            parts.append((z - z.mean(1, keepdim=True)) / (z.var(1, keepdim=True, correction=0) + 1e-9).sqrt())
        return torch.cat(parts, 1) * w[f"{name}.scale"] + w[f"{name}.offset"]

    def last(self, w: dict[str, Tensor], h: Tensor) -> Tensor:
        h = h / h.norm(dim=1, keepdim=True).clamp(min=1e-12) if self.method.layer == "saint" else h
        return h @ w["layer3.weight"] + w["layer3.bias"]

    def features(self, n: int, nodes: list[int]) -> Tensor:
        return torch.stack([self.x[v] if v in self.sees[n] else torch.zeros(FEATURES).double() for v in nodes])

    def loss(self, n: int, logits: Tensor, nodes: list[int]) -> Tensor:
        everyone = self.method.labels == "all"
        mine = [i for i, v in enumerate(nodes) if everyone or v in self.sees[n]]
        labelled = sum(bool(self.graph.train_mask[v]) for v in range(NODES) if everyone or v in self.sees[n])
        total = torch.zeros(()).double()
        for i in mine:
            y, z = self.graph.y[nodes[i]], logits[i]
            multi = self.graph.y.dim() == 2
            each = F.binary_cross_entropy_with_logits(z, y.double()) if multi else F.cross_entropy(z, y)
            total = total + each * (self.sets / max(self.count[nodes[i]], 1) / labelled if self.method.normalise else 1)
        return total if self.method.normalise else total / max(len(mine), 1)

    def step(self, t: int, step: int) -> None:
        """One iteration."""
        method = self.method
        sets = drawn(method, self.graph, self.seed, t, step)
        subs = [self.sub_graph(nodes) for nodes in sets]
        p = method.p if isinstance(method, Feras) else 0
        if isinstance(method, Feras) and method.exchange == "table":
            for n in range(HOSTS):  # one host after the other, each to the end of its step
                h = self.lower(n, sets[n], subs[n], p)
                for i, v in enumerate(sets[n]):
                    if v in self.sees[n]:
                        self.table[v] = h[i].detach()
                nothing = torch.zeros_like(h[0])
                rows = [h[i] if v in self.sees[n] else self.table.get(v, nothing) for i, v in enumerate(sets[n])]
                self.move(n, self.loss(n, self.upper(n, torch.stack(rows), subs[n], p), sets[n]))
            return
        hidden = [self.lower(n, sets[n], subs[n], p) for n in range(HOSTS)]
        if isinstance(method, Feras):
            hidden = [self.average(n, hidden, sets) for n in range(HOSTS)]
        losses = [self.loss(n, self.upper(n, hidden[n], subs[n], p), sets[n]) for n in range(HOSTS)]
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        sum(losses[1:], losses[0]).backward()
        for optimizer in self.optimizers:
            optimizer.step()

    def lower(self, n: int, nodes: list[int], sub: tuple[Tensor, Tensor], p: int) -> Tensor:
        h = self.features(n, nodes)
        for i in range(1, p + 1):
            h = self.conv(self.weights[n], i, h, *sub)
        return h

    def upper(self, n: int, h: Tensor, sub: tuple[Tensor, Tensor], p: int) -> Tensor:
        for i in range(p + 1, 3):
            h = self.conv(self.weights[n], i, h, *sub)
        return self.last(self.weights[n], h)

    def average(self, n: int, hidden: list[Tensor], sets: list[list[int]]) -> Tensor:
        """Lines 8 to 12: the mean over hosts that see and drew a node; others' rows are constants, or not."""
        rows = []
        for i, v in enumerate(sets[n]):
            owners = [m for m in range(HOSTS) if v in self.sees[m] and v in sets[m]]
            each = [hidden[m][sets[m].index(v)] for m in owners]
            if self.method.gradient == "stopped":
                each = [row if m == n else row.detach() for m, row in zip(owners, each, strict=True)]
            alone = hidden[n][i] if self.method.absent == "own" else torch.zeros_like(hidden[n][i])
            rows.append(sum(each) / len(each) if each else alone)
        return torch.stack(rows)

    def move(self, n: int, loss: Tensor) -> None:
        self.optimizers[n].zero_grad()
        loss.backward()
        self.optimizers[n].step()

    def averaged(self) -> None:
        with torch.no_grad():
            for name in self.weights[0]:
                mean = sum(w[name] for w in self.weights) / HOSTS
                for w in self.weights:
                    w[name].copy_(mean)

    def predict(self) -> Tensor:
        """Logits of all nodes at every host on the whole graph, `[hosts * nodes, classes]`."""
        every, edges = list(range(NODES)), self.graph.edge_index
        p = self.method.p if isinstance(self.method, Feras) else 0
        hidden = []
        for n in range(HOSTS):
            h = self.features(n, every)
            for i in range(1, p + 1):
                h = self.conv(self.weights[n], i, h, edges, None)
            hidden.append(h)
        out = []
        for n in range(HOSTS):
            h = hidden[n]
            if isinstance(self.method, Feras):
                owners = {v: [m for m in range(HOSTS) if v in self.sees[m]] for v in every}
                if self.method.exchange == "average":
                    h = torch.stack([sum(hidden[m][v] for m in owners[v]) / len(owners[v]) for v in every])
                else:
                    h = torch.stack([h[v] if n in owners[v] else hidden[owners[v][-1]][v] for v in every])
            for i in range(p + 1, 3):
                h = self.conv(self.weights[n], i, h, edges, None)
            out.append(self.last(self.weights[n], h))
        return torch.cat(out).detach()


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "isolated": ("GraphSAINT", {}),
    "isolated, node": ("GraphSAINT", {"sampler": "node", "budget": 20}),
    "isolated, edge": ("GraphSAINT", {"sampler": "edge"}),
    "isolated, mrw": ("GraphSAINT", {"sampler": "mrw", "budget": 25, "frontier": 8}),
    "isolated, Adam, every label": ("GraphSAINT", {"optimizer": "adam", "lr": 0.01, "labels": "all"}),
    "shared weights": ("GraphSAINT-SW", {"q": 2}),
    "shared weights, own layer": ("GraphSAINT-SW", {"q": 2, "layer": "saint"}),
    "Algorithm 1": ("Feras", {"q": 1, "unit": "iteration"}),
    "Algorithm 1, Adam": ("Feras", {"q": 2, "optimizer": "adam", "lr": 0.01}),
    "Algorithm 1, gradient through": ("Feras", {"q": 2, "gradient": "through"}),
    "Algorithm 1, own where absent": ("Feras", {"q": 2, "absent": "own"}),
    "Algorithm 1, own layer": ("Feras", {"q": 2, "layer": "saint"}),
    "Algorithm 1, after layer 2": ("Feras", {"q": 2, "p": 2}),
    "Algorithm 1, no coefficients": ("Feras", {"q": 2, "normalise": False}),
    "table": ("Feras", {"q": 2, "exchange": "table"}),
    "table, Adam, every label": (
        "Feras",
        {"q": 1, "exchange": "table", "optimizer": "adam", "lr": 0.01, "labels": "all"},
    ),
}


def build(name: str, model: GCN = NET, **options: Any) -> GraphSAINTSW:
    made: GraphSAINTSW = registry.load("train", name)(model=model, **{**SMALL, **SGD, **options})
    return made


def plain(method: GraphSAINTSW, graph: Data, rounds: int, seed: int = 0, kappa: float = 0.4) -> Plain:
    """The reference after some rounds."""
    parts = partition(graph, f"private-public(kappa={kappa})", HOSTS, seed)
    _, state = method.start(federate(graph, seed, kappa))
    program = Plain(method, graph, parts, {name: w[0] for name, w in state.personal.items()}, seed)
    steps = method.local_epochs * (state.more.iterations if method.unit == "epoch" else 1)
    for t in range(rounds):
        for step in range(steps):
            program.step(t, step)
        if isinstance(method, GraphSAINTSW) and (t + 1) * method.local_epochs % method.q == 0:
            program.averaged()
    return program


def held(state: State, host: int) -> dict[str, Tensor]:
    return {name: w[host] for name, w in state.personal.items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_three_rounds_equal_the_plain_program(variant: str) -> None:
    """Every host's weights after three rounds to 1e-10, and its logits on the whole graph."""
    name, options = VARIANTS[variant]
    method, graph = build(name, **options), data()
    made = train(method, federate(graph), 3)
    program = plain(method, graph, 3)
    for host in range(HOSTS):
        reference = {k: w.detach() for k, w in program.weights[host].items()}
        assert largest_difference(held(made.state, host), reference) < 1e-10
    assert gap(method.predict(made.fed, made.state), program.predict()) < 1e-10
    start = method.start(federate(graph))[1]
    assert largest_difference(held(made.state, 0), held(start, 0)) > 1e-2  # it moved


@pytest.mark.parametrize("name", ["GraphSAINT-SW", "Feras"])
@pytest.mark.parametrize("kind", ["sparse", "labels"])
def test_sparse_features_and_several_labels(name: str, kind: str) -> None:
    """The same with features kept sparse, and with several labels a node."""
    graph = data(sparse=kind == "sparse", labels=5 if kind == "labels" else 0)
    model = NET if kind == "sparse" else GCN(FEATURES, 5, hidden=HIDDEN, layers=3)
    method = build(name, model, q=1)
    made = train(method, federate(graph), 2, evaluate=())
    program = plain(method, graph, 2)
    reference = {k: w.detach() for k, w in program.weights[0].items()}
    assert largest_difference(held(made.state, 0), reference) < 1e-10


@pytest.mark.parametrize(("name", "exchange"), [("GraphSAINT", ""), ("Feras", "average"), ("Feras", "table")])
def test_runs_side_by_side_give_what_each_gives_alone(name: str, exchange: str) -> None:
    """Three seeds in one federation, dropout on: weights, facts and traffic of each to 1e-12."""
    options = {"exchange": exchange} if exchange else {}
    method = build(name, replace(NET, dropout=0.3), optimizer="adam", lr=0.01, **options)
    graphs = [data(seed) for seed in range(3)]
    together = train(method, Federation.stack([federate(g, s) for s, g in enumerate(graphs)]), 3)
    facts = method.facts(together.fed, together.state)
    for seed, graph in enumerate(graphs):
        alone = train(method, federate(graph, seed), 3)
        for host in range(HOSTS):
            assert largest_difference(held(together.state, seed * HOSTS + host), held(alone.state, host)) < 1e-12
        assert facts[seed] == pytest.approx(method.facts(alone.fed, alone.state)[0])
        assert together.fed.traffic.summary(seed) == alone.fed.traffic.summary(0)
        assert together.history.result(seed)["before"]["last"] == pytest.approx(
            alone.history.result(0)["before"]["last"]
        )


# -- Figure 1 and the exchange on its own -----------------------------------------------------------------------------


def rows(drawn: list[tuple[int, int, bool]]) -> Rows:
    """Rows of (node, host, whether the host sees it)."""
    node, host, seen = (torch.tensor(part) for part in zip(*drawn, strict=True))
    count = torch.bincount(node[seen], minlength=int(node.max()) + 1)
    return Rows(node, node, host, seen, count)


A, B, C = 0, 1, 2
# Figure 1: A is seen by all three and drawn by hosts 0 and 1; B is private to 2, which drew it, as 0 did;
# C is private to 1, which did not draw it, as 2 did.
FIGURE = [(A, 0, True), (A, 1, True), (B, 2, True), (B, 0, False), (C, 2, False)]
SENT = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, 5.0], [9.0, 9.0], [8.0, 8.0]])


def test_figure_1() -> None:
    """A is the mean of two hosts, B is available through the server, C is absent."""
    assert rows(FIGURE).mean(SENT).tolist() == [[2, 4], [2, 4], [5, 5], [5, 5], [0, 0]]
    assert rows(FIGURE).count.tolist() == [2, 1, 0]


def test_the_table_keeps_the_last_writer() -> None:
    """A host after the owner reads this iteration's row, one before it the older one; the last of two owners stays."""
    table = torch.arange(6.0).view(3, 2)
    fresh, pulled = rows(FIGURE).latest(SENT, table[rows(FIGURE).key])
    assert pulled.tolist() == [[1, 2], [3, 6], [5, 5], [2, 3], [4, 5]]  # host 0 comes before 2, which writes B
    assert not fresh.any()
    later = [(A, 0, True), (A, 1, True), (B, 0, True), (B, 2, False), (C, 2, False)]
    fresh, pulled = rows(later).latest(SENT, table[rows(later).key])
    assert pulled.tolist() == [[1, 2], [3, 6], [5, 5], [5, 5], [4, 5]] and fresh.tolist() == [False] * 3 + [True, False]
    assert rows(FIGURE).written(table, SENT).tolist() == [[3, 6], [5, 5], [4, 5]]


@pytest.mark.parametrize("seed", range(5))
def test_mean_is_theta(seed: int) -> None:
    """Eq. 7 and 8: the mean equals the matrix Theta, built entry by entry, times the stacked embeddings."""
    rng = np.random.default_rng(seed)
    each = {
        (int(v), int(n)): bool(rng.random() < 0.6) for v, n in zip(rng.integers(8, size=30), rng.integers(4, size=30))
    }
    listed = [(v, n, seen) for (v, n), seen in each.items()]
    h = torch.from_numpy(rng.normal(size=(len(listed), 3)))
    theta = torch.zeros(len(listed), len(listed), dtype=torch.float64)
    for i, (v, _, _) in enumerate(listed):
        for j, (u, _, seen) in enumerate(listed):
            if u == v and seen:
                theta[i, j] = 1 / sum(s for w, _, s in listed if w == v)
    assert gap(rows(listed).mean(h), theta @ h) < 1e-14
    assert set(theta.sum(1).numpy().round(12).tolist()) <= {0.0, 1.0}


def test_public_nodes_alone_make_all_hosts_equal() -> None:
    """With kappa 0 and the full training graph every step, all hosts compute the same, and Feras is GraphSAINT."""
    graph, full = data(), {"sampler": "full", "budget": 0}
    states = [
        train(build(name, **full, **more), federate(graph, kappa=0.0), 3, evaluate=()).state
        for name, more in (("GraphSAINT", {}), ("Feras", {"gradient": "through"}), ("Feras", {"exchange": "table"}))
    ]
    for state in states:
        assert largest_difference(held(state, 0), held(state, 2)) < 1e-13
        assert largest_difference(held(state, 0), held(states[0], 0)) < 1e-13
    stopped = train(build("Feras", **full), federate(graph, kappa=0.0), 3, evaluate=()).state
    # Only a third of a row's gradient is a host's own when others' shares are constants: the first layer lags.
    assert largest_difference(held(stopped, 0), held(states[0], 0)) > 1e-3


def test_full_sampler_is_full_batch_training() -> None:
    """GraphSAINT with every training node in each step equals plain training on the training graph."""
    graph = data()
    made = train(build("GraphSAINT", sampler="full", budget=0), federate(graph), 3, evaluate=()).state
    unweighted = train(build("GraphSAINT", sampler="full", budget=0, normalise=False), federate(graph), 3, evaluate=())
    assert largest_difference(made.personal, unweighted.state.personal) < 1e-13
    sampled = train(build("GraphSAINT"), federate(graph), 3, evaluate=()).state
    plain_mean = train(build("GraphSAINT", normalise=False), federate(graph), 3, evaluate=()).state
    assert largest_difference(sampled.personal, plain_mean.personal) > 1e-2  # coefficients are alive


# -- what hosts know --------------------------------------------------------------------------------------------------


def test_hosts_hold_every_node_and_see_their_own() -> None:
    """Zero features and no label where a host cannot see; the options change just what they say."""
    graph, source = data(), federate(data())
    fed, state = build("Feras").start(source)
    visible = fed.batch.visible.view(HOSTS, NODES)
    for host, part in enumerate(source.sources[0].parts):
        seen = torch.zeros(NODES, dtype=torch.bool)
        seen[part] = True
        assert (visible[host] == seen).all()
        x = fed.x[host * NODES : (host + 1) * NODES]
        assert (x == graph.x.double() * seen[:, None]).all()
        assert (fed.batch.train_mask.view(HOSTS, -1)[host] == graph.train_mask & seen).all()
    assert (fed.batch.test_mask.view(HOSTS, -1) == graph.test_mask).all()
    assert len({id(host) for host in state.more.hosts}) == 1  # one topology
    every = build("Feras", labels="all").start(source)[0]
    assert (every.batch.train_mask.view(HOSTS, -1) == graph.train_mask).all()
    own = build("Feras", evaluate="visible").start(source)[0]
    assert (own.batch.test_mask.view(HOSTS, -1) == graph.test_mask & visible).all()
    apart, state = build("Feras", topology="visible").start(source)
    assert (apart.batch.test_mask.view(HOSTS, -1) == graph.test_mask & visible).all()
    for host in range(HOSTS):
        assert set(state.more.hosts[host].train) == set(
            (graph.train_mask & visible[host]).nonzero().squeeze(1).tolist()
        )
    ends = apart.batch.edge_index
    assert apart.batch.visible[ends].all() and (fed.batch.edge_index % NODES).max() < NODES


@pytest.mark.parametrize("name", ["GraphSAINT", "GraphSAINT-SW", "Feras"])
@pytest.mark.parametrize("sampler", saint.SAMPLERS)
def test_a_host_without_training_nodes_draws_nothing(name: str, sampler: str) -> None:
    """Of the visible topology it has no node to sample: the others train as without it."""
    graph = data()
    trained, aside = graph.train_mask.nonzero().squeeze(1), (~graph.train_mask).nonzero().squeeze(1)
    parts = [torch.cat([trained[:35], aside[:8]]), torch.cat([trained[25:], aside[8:16]]), aside[16:]]
    method = build(name, topology="visible", sampler=sampler)
    beside, alone = (train(method, Federation.of(graph, some, dtype=torch.float64), 3) for some in (parts, parts[:2]))
    assert len(beside.state.more.hosts[2].train) == 0
    assert all(torch.equal(w, beside.state.personal[name][:2]) for name, w in alone.state.personal.items())


def test_training_never_meets_a_test_node() -> None:
    """Inductive: other features, labels and edges of held-out nodes leave the weights bitwise as they were."""
    graph, other = data(), data()
    aside = ~graph.train_mask
    other.x = torch.where(aside[:, None], 100 * graph.x, graph.x)
    other.y = torch.where(aside, (graph.y + 1) % CLASSES, graph.y)
    keep = graph.train_mask[graph.edge_index].all(0) | (torch.arange(graph.edge_index.shape[1]) % 3 == 0)
    other.edge_index = graph.edge_index[:, keep]
    made, after = (train(build("Feras"), federate(g), 2, evaluate=()).state.personal for g in (graph, other))
    assert all(torch.equal(made[name], after[name]) for name in made)


def test_facts_and_traffic() -> None:
    """Facts equal counts by hand; every embedding and weight that travels is counted."""
    graph, q, rounds = data(), 2, 4
    method = build("Feras", q=q)
    made = train(method, federate(graph), rounds)
    facts = method.facts(made.fed, made.state)[0]
    iterations = made.state.more.iterations
    assert iterations == -(-int(graph.train_mask.sum()) // (SMALL["budget"] * method.depth)) == facts["iterations"]
    parts = federate(graph).sources[0].parts
    sets = [drawn(method, graph, 0, t, s) for t in range(rounds) for s in range(iterations)]
    sizes = [len(nodes) for each in sets for nodes in each]
    assert facts["sampled_nodes"] == pytest.approx(np.mean(sizes))
    assert facts["kappa"] == pytest.approx(1 - np.mean([len(part) / NODES for part in parts]))
    seen = sum(len(set(nodes) & set(part.tolist())) for each in sets for nodes, part in zip(each, parts))
    unseen = sum(sizes) - seen
    fresh = sum(
        any(v in nodes and v in part.tolist() for nodes, part in zip(each, parts, strict=True))
        for each in sets for n in range(HOSTS) for v in set(each[n]) - set(parts[n].tolist())
    )  # fmt: skip
    assert facts["fresh"] == pytest.approx(fresh / unseen) and 0.1 < facts["fresh"] < 1
    each = sum(w[0].numel() for w in made.state.personal.values())
    sent = made.fed.traffic.summary()["training"]
    assert sent == {
        "up.embeddings": seen * HIDDEN, "down.embeddings": sum(sizes) * HIDDEN,
        "up.weights": rounds // q * HOSTS * each, "down.weights": rounds // q * HOSTS * each,
    }  # fmt: skip
    logits = method.predict(made.fed, made.state).view(HOSTS, NODES, -1).argmax(2)
    right = (logits == graph.y)[:, graph.test_mask].double()
    look = made.fed.batch.visible.view(HOSTS, NODES)[:, graph.test_mask]
    for name, which in (("test_seen", look), ("test_unseen", ~look)):
        assert facts[name] == pytest.approx(np.mean([float(right[n][which[n]].mean()) for n in range(HOSTS)]))
    scores = made.history.result(0)["before"]["last"]
    assert scores["test_clients"] == pytest.approx(float(right.mean()))


def test_scores_of_both_views() -> None:
    """What hosts trained and what they then hold differ in rounds that average, and only there."""
    made = train(build("GraphSAINT-SW", q=2), federate(data()), 4).history
    before, after = made.before.series(0)["val_loss"], made.after.series(0)["val_loss"]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True, False]
    alone = train(build("GraphSAINT"), federate(data()), 3).history
    assert alone.before.series(0) == alone.after.series(0)


def test_received_embeddings_are_alive() -> None:
    """The loss has a gradient by received rows of at least 1e-3 of that by the classifier, and they change the loss."""
    ratios, losses = [], []

    class Watched(Feras):
        def receive(self, *given: Any) -> tuple[Tensor, Tensor]:
            made, share = super().receive(*given)
            self.caught.append(made.requires_grad_())
            return made, share

    for t in range(5):
        method = Watched(**{f.name: getattr(build("Feras"), f.name) for f in fields(Feras)})
        object.__setattr__(method, "caught", [])
        fed, state = method.start(federate(data(), kappa=0.6))
        leaves = {name: w.clone().requires_grad_() for name, w in state.personal.items()}
        loss = method.local_loss(leaves, fed.at(t, 0), state, t)
        unseen = ~method.sample(fed.at(t, 0), state, t).fed.batch.visible
        by_row, by_last = torch.autograd.grad(loss.sum(), [method.caught[0], leaves["layer3.weight"]])
        ratios.append(float(by_row[unseen].norm() / by_last.norm()))
        without = build("GraphSAINT-SW").local_loss(leaves, fed.at(t, 0), state, t)
        losses.append(float((loss - without).detach().abs().min()))
    assert np.median(ratios) >= 1e-3 and min(losses) > 1e-6


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("GraphSAINT", {"sampler": "walk"}, "sampler must be one of"),
        ("GraphSAINT", {"layer": "gat"}, "layer must be one of"),
        ("GraphSAINT", {"topology": "own"}, "topology must be one of"),
        ("GraphSAINT", {"labels": "none"}, "labels must be one of"),
        ("GraphSAINT", {"evaluate": "none"}, "evaluate must be one of"),
        ("GraphSAINT", {"unit": "round"}, "unit must be one of"),
        ("GraphSAINT", {"coverage": 0.0}, "coverage must be positive"),
        ("GraphSAINT", {"budget": -1}, "budget must be at least 0"),
        ("GraphSAINT", {"model": replace(NET, layers=1)}, "model must be a GCN of 2 or more layers"),
        ("GraphSAINT-SW", {"q": 0}, "q must be at least 1"),
        ("GraphSAINT-SW", {"q": 3, "local_epochs": 2}, "q must be a multiple of local_epochs, 2"),
        ("Feras", {"exchange": "mean"}, "exchange must be one of"),
        ("Feras", {"gradient": "on"}, "gradient must be one of"),
        ("Feras", {"absent": "stale"}, "absent must be one of"),
        ("Feras", {"p": 3}, "p must be from 1 to 2"),
    ],
)
def test_bad_options(name: str, given: dict[str, Any], message: str) -> None:
    """Each is named with what is allowed."""
    with pytest.raises(ArgumentError, match=message):
        registry.load("train", name)(**{"model": NET, **given})


def test_runs_must_agree_on_the_length_of_an_epoch() -> None:
    """Graphs of which one needs more steps cannot be trained side by side; halo nodes cannot be added to."""
    few = data()
    few.train_mask = torch.arange(NODES) % 3 > 1
    method: Method = build("GraphSAINT")
    with pytest.raises(ArgumentError, match="equally many steps"):
        method.start(Federation.stack([federate(data()), federate(few)]))
    with pytest.raises(ArgumentError, match="without halo"):
        method.start(federate(data()).halo(1))
