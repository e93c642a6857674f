"""Hosts of GraphSAINT and Feras: what they hold, what they send, what they report, and which options they refuse."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from feras_plain import CLASSES, HIDDEN, HOSTS, NET, NODES, SMALL, build, data, drawn, federate
from torch import Tensor

from fedrepro import registry
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import Method
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError
from fedrepro.papers.feras.method import Feras
from fedrepro.papers.feras.saint.sampler import SAMPLERS


def test_hosts_hold_every_node_and_see_their_own() -> None:
    """A host has zero features and no label of a node that it cannot see, and each option changes only its part."""
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
    scored = build("Feras", evaluate="visible").start(source)[0]
    assert (scored.batch.test_mask.view(HOSTS, -1) == graph.test_mask & visible).all()
    apart, state = build("Feras", topology="visible").start(source)
    assert (apart.batch.test_mask.view(HOSTS, -1) == graph.test_mask & visible).all()
    for host in range(HOSTS):
        assert set(state.more.hosts[host].train) == set(
            (graph.train_mask & visible[host]).nonzero().squeeze(1).tolist()
        )
    ends = apart.batch.edge_index
    assert apart.batch.visible[ends].all() and (fed.batch.edge_index % NODES).max() < NODES


@pytest.mark.parametrize("name", ["GraphSAINT", "GraphSAINT-SW", "Feras"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_host_without_training_nodes_draws_nothing(name: str, sampler: str) -> None:
    """A host without training nodes in the visible topology leaves the others' training as it is without that host."""
    graph = data()
    trained, aside = graph.train_mask.nonzero().squeeze(1), (~graph.train_mask).nonzero().squeeze(1)
    parts = [torch.cat([trained[:35], aside[:8]]), torch.cat([trained[25:], aside[8:16]]), aside[16:]]
    method = build(name, topology="visible", sampler=sampler)
    beside, alone = (train(method, Federation.of(graph, some, dtype=torch.float64), 3) for some in (parts, parts[:2]))
    assert len(beside.state.more.hosts[2].train) == 0
    assert all(torch.equal(w, beside.state.personal[name][:2]) for name, w in alone.state.personal.items())


def test_training_never_meets_a_test_node() -> None:
    """Other features, labels and edges of held-out nodes leave the weights bitwise as they were."""
    graph, other = data(), data()
    aside = ~graph.train_mask
    other.x = torch.where(aside[:, None], 100 * graph.x, graph.x)
    other.y = torch.where(aside, (graph.y + 1) % CLASSES, graph.y)
    keep = graph.train_mask[graph.edge_index].all(0) | (torch.arange(graph.edge_index.shape[1]) % 3 == 0)
    other.edge_index = graph.edge_index[:, keep]
    before, after = (train(build("Feras"), federate(g), 2, evaluate=()).state.personal for g in (graph, other))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_facts_and_traffic() -> None:
    """Facts equal counts by hand, and every embedding and weight that travels is counted."""
    graph, q, rounds = data(), 2, 4
    method = build("Feras", q=q)
    trained = train(method, federate(graph), rounds)
    facts = method.facts(trained.fed, trained.state)[0]
    iterations = trained.state.more.iterations
    assert iterations == -(-int(graph.train_mask.sum()) // (SMALL["budget"] * method.depth)) == facts["iterations"]
    parts = federate(graph).sources[0].parts
    sets = [drawn(method, graph, 0, t, s) for t in range(rounds) for s in range(iterations)]
    sizes = [len(nodes) for by_host in sets for nodes in by_host]
    assert facts["sampled_nodes"] == pytest.approx(np.mean(sizes))
    assert facts["kappa"] == pytest.approx(1 - np.mean([len(part) / NODES for part in parts]))
    seen = sum(len(set(nodes) & set(part.tolist())) for by_host in sets for nodes, part in zip(by_host, parts))
    unseen = sum(sizes) - seen
    fresh = sum(
        any(v in nodes and v in part.tolist() for nodes, part in zip(by_host, parts, strict=True))
        for by_host in sets
        for n in range(HOSTS)
        for v in set(by_host[n]) - set(parts[n].tolist())
    )
    assert facts["fresh"] == pytest.approx(fresh / unseen) and 0.1 < facts["fresh"] < 1
    weights = rounds // q * HOSTS * sum(w[0].numel() for w in trained.state.personal.values())
    embeddings = {"up.embeddings": seen * HIDDEN, "down.embeddings": sum(sizes) * HIDDEN}
    sent = trained.fed.traffic.summary()["training"]
    assert sent == {**embeddings, "up.weights": weights, "down.weights": weights}
    logits = method.predict(trained.fed, trained.state).view(HOSTS, NODES, -1).argmax(2)
    right = (logits == graph.y)[:, graph.test_mask].double()
    look = trained.fed.batch.visible.view(HOSTS, NODES)[:, graph.test_mask]
    for name, which in (("test_seen", look), ("test_unseen", ~look)):
        assert facts[name] == pytest.approx(np.mean([float(right[n][which[n]].mean()) for n in range(HOSTS)]))
    scores = trained.history.result(0)["before"]["last"]
    assert scores["test_clients"] == pytest.approx(float(right.mean()))


def test_scores_of_both_views() -> None:
    """The weights that hosts trained differ from those they then hold only in rounds that average."""
    history = train(build("GraphSAINT-SW", q=2), federate(data()), 4).history
    before, after = history.before.series(0)["val_loss"], history.after.series(0)["val_loss"]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True, False]
    alone = train(build("GraphSAINT"), federate(data()), 3).history
    assert alone.before.series(0) == alone.after.series(0)


def test_received_embeddings_are_alive() -> None:
    """Received rows change the loss, and its gradient by them is at least 1e-3 of that by the classifier."""
    ratios, losses = [], []

    class Watched(Feras):
        def receive(self, *given: Any) -> tuple[Tensor, Tensor]:
            rows, share = super().receive(*given)
            self.caught.append(rows.requires_grad_())
            return rows, share

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
    """The error names the option and its allowed values."""
    with pytest.raises(ArgumentError, match=message):
        registry.load("train", name)(**{"model": NET, **given})


def test_runs_must_agree_on_the_length_of_an_epoch() -> None:
    """Runs with different numbers of steps cannot train side by side, and clients must have no halo nodes."""
    few = data()
    few.train_mask = torch.arange(NODES) % 3 > 1
    method: Method = build("GraphSAINT")
    with pytest.raises(ArgumentError, match="equally many steps"):
        method.start(Federation.stack([federate(data()), federate(few)]))
    with pytest.raises(ArgumentError, match="without halo"):
        method.start(federate(data()).halo(1))
