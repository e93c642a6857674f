"""Feras and its baselines as a plain program: one host after the other, sub-graphs as lists, PyG's layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from graphs import block_model
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

from fedrepro import registry
from fedrepro.data.partition import partition
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import GCN
from fedrepro.papers.feras.method import Feras
from fedrepro.papers.feras.saint.method import GraphSAINT, GraphSAINTSW
from fedrepro.papers.feras.saint.sampler import Graph, Sampler

NODES, FEATURES, CLASSES, HIDDEN, HOSTS = 90, 6, 3, 7, 3
NET = GCN(FEATURES, CLASSES, hidden=HIDDEN, layers=3)
SMALL: dict[str, Any] = {"budget": 9, "coverage": 8.0}
SGD: dict[str, Any] = {"optimizer": "sgd", "lr": 0.3}


def data(seed: int = 0, sparse: bool = False, labels: int = 0) -> Data:
    """Return a block model with two thirds of its nodes for training; `labels` above 0 gives each node several."""
    graph = block_model(NODES, degree=7, classes=CLASSES, features=FEATURES, seed=seed, sparse=sparse)
    graph.train_mask = torch.arange(NODES) % 3 > 0
    graph.val_mask, graph.test_mask = torch.arange(NODES) % 6 == 0, torch.arange(NODES) % 6 == 3
    if labels:
        graph.y = (random.uniform((NODES, labels), "labels", seed) < 0.4).float()
        graph.num_classes = labels
    return graph


def federate(graph: Data, seed: int = 0, kappa: float = 0.4) -> Federation:
    parts = partition(graph, f"private-public(kappa={kappa})", HOSTS, seed)
    return Federation.of(graph, parts, seed, dtype=torch.float64)


def drawn(method: GraphSAINT, graph: Data, seed: int, t: int, step: int) -> list[list[int]]:
    """Return the nodes of each host's sub-graph, drawn from the training graph."""
    train_nodes = graph.train_mask.nonzero().squeeze(1)
    sub, sampler = training_graph(method, graph)
    streams = random.keys("saint step", np.full(HOSTS, seed), np.arange(HOSTS), t, step)
    return [train_nodes[torch.from_numpy(kept)].tolist() for kept in sampler.draw(sub, streams)]


def training_graph(method: GraphSAINT, graph: Data) -> tuple[Graph, Sampler]:
    """Build the training graph by hand: edges between training nodes, renumbered from 0."""
    number = {int(v): i for i, v in enumerate(graph.train_mask.nonzero())}
    pairs = [(number[u], number[v]) for u, v in graph.edge_index.T.tolist() if u in number and v in number]
    sub = Graph.of(np.array(pairs).T, len(number))
    return sub, Sampler.scaled(method.sampler, len(number), method.budget, method.depth, method.frontier)


class Plain:
    """Training host after host, with sub-graphs as lists, PyG's layers, and one optimizer per host."""

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
        """Count C_v and C_vu over the sub-graphs drawn before training."""
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
        """Return the edges of a sub-graph, with self-loops, and their weights."""
        row_of = {v: i for i, v in enumerate(nodes)}
        trained = self.graph.train_mask
        known = [(u, v) for u, v in self.graph.edge_index.T.tolist() if trained[u] and trained[v]]
        inner = [(u, v) for u, v in known if u in row_of and v in row_of]
        normalised = self.method.normalise
        degree = dict.fromkeys(row_of if not normalised else trained.nonzero().squeeze(1).tolist(), 0)
        for _, v in known if normalised else inner:
            degree[v] += 1
        ends, weights = [], []
        for u, v in inner:
            ratio = max(self.count[v], 1) / max(self.pairs.get((v, u), 0), 1) if normalised else 1.0
            scale = degree[v] if self.method.layer == "saint" else ((degree[u] + 1) * (degree[v] + 1)) ** 0.5
            ends.append((row_of[u], row_of[v]))
            weights.append(ratio / scale)
        if self.method.layer == "gcn":
            ends += [(row_of[v], row_of[v]) for v in nodes]
            weights += [1 / (degree[v] + 1) for v in nodes]
        return torch.tensor(ends).T, torch.tensor(weights, dtype=torch.float64)

    def conv(self, w: dict[str, Tensor], i: int, h: Tensor, edges: Tensor, weight: Tensor | None) -> Tensor:
        """Compute one convolution by PyG. A `weight` of None means the whole graph with PyG's normalization."""
        name = f"layer{i}"
        if self.method.layer == "gcn":
            layer = GCNConv(h.shape[1], HIDDEN, normalize=weight is None).double()
            call = {"lin.weight": w[f"{name}.weight"].T, "bias": w[f"{name}.bias"]}
            return F.relu(torch.func.functional_call(layer, call, (h, edges, weight)))
        half = len(w[f"{name}.bias"]) // 2
        root = h @ w[f"{name}.root"] + w[f"{name}.bias"][:half]
        if weight is None:
            mean = SAGEConv(h.shape[1], HIDDEN, bias=False, root_weight=False).double()
            near = torch.func.functional_call(mean, {"lin_l.weight": w[f"{name}.weight"].T}, (h, edges))
        else:
            near = torch.zeros_like(root).index_add(0, edges[1], weight[:, None] * (h @ w[f"{name}.weight"])[edges[0]])
        parts = []
        for z in (F.relu(root), F.relu(near + w[f"{name}.bias"][half:])):
            parts.append((z - z.mean(1, keepdim=True)) / (z.var(1, keepdim=True, correction=0) + 1e-9).sqrt())
        return torch.cat(parts, 1) * w[f"{name}.scale"] + w[f"{name}.offset"]

    def last(self, w: dict[str, Tensor], h: Tensor) -> Tensor:
        h = h / h.norm(dim=1, keepdim=True).clamp(min=1e-12) if self.method.layer == "saint" else h
        return h @ w["layer3.weight"] + w["layer3.bias"]

    def features(self, n: int, nodes: list[int]) -> Tensor:
        return torch.stack([self.x[v] if v in self.sees[n] else torch.zeros(FEATURES).double() for v in nodes])

    def loss(self, n: int, logits: Tensor, nodes: list[int]) -> Tensor:
        everyone = self.method.labels == "all"
        scored = [i for i, v in enumerate(nodes) if everyone or v in self.sees[n]]
        labelled = sum(bool(self.graph.train_mask[v]) for v in range(NODES) if everyone or v in self.sees[n])
        total = torch.zeros(()).double()
        for i in scored:
            y, z = self.graph.y[nodes[i]], logits[i]
            multi = self.graph.y.dim() == 2
            term = F.binary_cross_entropy_with_logits(z, y.double()) if multi else F.cross_entropy(z, y)
            total = total + term * (self.sets / max(self.count[nodes[i]], 1) / labelled if self.method.normalise else 1)
        return total if self.method.normalise else total / max(len(scored), 1)

    def step(self, t: int, step: int) -> None:
        """Take one step of every host."""
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
        """Return the means of lines 8 to 12 over hosts that see a node and drew it, with the wanted gradient."""
        rows = []
        for i, v in enumerate(sets[n]):
            owners = [m for m in range(HOSTS) if v in self.sees[m] and v in sets[m]]
            embeddings = [hidden[m][sets[m].index(v)] for m in owners]
            if self.method.gradient == "stopped":
                embeddings = [row if m == n else row.detach() for m, row in zip(owners, embeddings, strict=True)]
            alone = hidden[n][i] if self.method.absent == "own" else torch.zeros_like(hidden[n][i])
            rows.append(sum(embeddings) / len(embeddings) if embeddings else alone)
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
        """Return the logits of all nodes at every host on the whole graph, `[hosts * nodes, classes]`."""
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


def build(name: str, model: GCN = NET, **options: Any) -> GraphSAINTSW:
    made: GraphSAINTSW = registry.load("train", name)(model=model, **{**SMALL, **SGD, **options})
    return made


def plain(method: GraphSAINTSW, graph: Data, rounds: int, seed: int = 0, kappa: float = 0.4) -> Plain:
    """Return the plain program after some rounds."""
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
