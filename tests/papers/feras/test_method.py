"""Feras and its baselines compared with Algorithm 1 and Section 5.2, written out host by host with PyG's layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from feras_plain import FEATURES, HIDDEN, HOSTS, NET, build, data, federate, held, plain
from graphs import gap, largest_difference

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.training import train
from fedrepro.papers.feras.method import Rows

# q counts epochs, not rounds (Section 5.2): with two epochs a round, q = 4 averages after the second of three rounds.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "isolated": ("GraphSAINT", {}),
    "isolated, node": ("GraphSAINT", {"sampler": "node", "budget": 20}),
    "isolated, edge": ("GraphSAINT", {"sampler": "edge"}),
    "isolated, mrw": ("GraphSAINT", {"sampler": "mrw", "budget": 25, "frontier": 8}),
    "isolated, Adam, every label": ("GraphSAINT", {"optimizer": "adam", "lr": 0.01, "labels": "all"}),
    "shared weights": ("GraphSAINT-SW", {"q": 2}),
    "shared weights, own layer": ("GraphSAINT-SW", {"q": 2, "layer": "saint"}),
    "shared weights, two epochs a round": ("GraphSAINT-SW", {"q": 4, "local_epochs": 2}),
    "Algorithm 1": ("Feras", {"q": 1, "unit": "iteration"}),
    "Algorithm 1, Adam": ("Feras", {"q": 2, "optimizer": "adam", "lr": 0.01}),
    "Algorithm 1, gradient through": ("Feras", {"q": 2, "gradient": "through"}),
    "Algorithm 1, own where absent": ("Feras", {"q": 2, "absent": "own"}),
    "Algorithm 1, own layer": ("Feras", {"q": 2, "layer": "saint"}),
    "Algorithm 1, after layer 2": ("Feras", {"q": 2, "p": 2}),
    "Algorithm 1, no coefficients": ("Feras", {"q": 2, "normalise": False}),
    "table": ("Feras", {"q": 2, "exchange": "table"}),
    "table, two epochs a round": ("Feras", {"q": 4, "local_epochs": 2, "exchange": "table"}),
    "table, Adam, every label": (
        "Feras",
        {"q": 1, "exchange": "table", "optimizer": "adam", "lr": 0.01, "labels": "all"},
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_three_rounds_equal_the_plain_program(variant: str) -> None:
    """Every host's weights after three rounds, and its logits on the whole graph, agree to 1e-10."""
    name, options = VARIANTS[variant]
    method, graph = build(name, **options), data()
    trained = train(method, federate(graph), 3)
    program = plain(method, graph, 3)
    for host in range(HOSTS):
        reference = {k: w.detach() for k, w in program.weights[host].items()}
        assert largest_difference(held(trained.state, host), reference) < 1e-10
    assert gap(method.predict(trained.fed, trained.state), program.predict()) < 1e-10
    start = method.start(federate(graph))[1]
    assert largest_difference(held(trained.state, 0), held(start, 0)) > 1e-2  # it moved


@pytest.mark.parametrize("name", ["GraphSAINT-SW", "Feras"])
@pytest.mark.parametrize("kind", ["sparse", "labels"])
def test_sparse_features_and_several_labels(name: str, kind: str) -> None:
    """Weights also agree with sparse features, and with several labels per node."""
    graph = data(sparse=kind == "sparse", labels=5 if kind == "labels" else 0)
    model = NET if kind == "sparse" else GCN(FEATURES, 5, hidden=HIDDEN, layers=3)
    method = build(name, model, q=1)
    trained = train(method, federate(graph), 2, evaluate=())
    program = plain(method, graph, 2)
    reference = {k: w.detach() for k, w in program.weights[0].items()}
    assert largest_difference(held(trained.state, 0), reference) < 1e-10


@pytest.mark.parametrize(("name", "exchange"), [("GraphSAINT", ""), ("Feras", "average"), ("Feras", "table")])
def test_runs_side_by_side_give_what_each_gives_alone(name: str, exchange: str) -> None:
    """Three seeds in one federation give the weights (to 1e-12), facts and traffic of each, with dropout on."""
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
    """Return the rows of triples (node, host, True if the host sees it)."""
    node, host, seen = (torch.tensor(part) for part in zip(*drawn, strict=True))
    count = torch.bincount(node[seen], minlength=int(node.max()) + 1)
    return Rows(node, node, host, seen, count)


A, B, C = 0, 1, 2
# Figure 1: A is seen by all three and drawn by hosts 0 and 1; B is private to 2, which drew it, as 0 did;
# C is private to 1, which did not draw it, as 2 did.
FIGURE = [(A, 0, True), (A, 1, True), (B, 2, True), (B, 0, False), (C, 2, False)]
SENT = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, 5.0], [9.0, 9.0], [8.0, 8.0]])


def test_figure_1() -> None:
    """A is the mean of two hosts, B comes through the server, and C is absent."""
    assert rows(FIGURE).mean(SENT).tolist() == [[2, 4], [2, 4], [5, 5], [5, 5], [0, 0]]
    assert rows(FIGURE).count.tolist() == [2, 1, 0]


def test_the_table_keeps_the_last_writer() -> None:
    """A host after the owner reads the new row, one before it reads the old row, and the last owner's row stays."""
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
    """The mean equals the matrix Theta of Eq. 8, built entry by entry, times the stacked embeddings."""
    rng = np.random.default_rng(seed)
    seen_by = {
        (int(v), int(n)): bool(rng.random() < 0.6) for v, n in zip(rng.integers(8, size=30), rng.integers(4, size=30))
    }
    listed = [(v, n, seen) for (v, n), seen in seen_by.items()]
    h = torch.from_numpy(rng.normal(size=(len(listed), 3)))
    theta = torch.zeros(len(listed), len(listed), dtype=torch.float64)
    for i, (v, _, _) in enumerate(listed):
        for j, (u, _, seen) in enumerate(listed):
            if u == v and seen:
                theta[i, j] = 1 / sum(s for w, _, s in listed if w == v)
    assert gap(rows(listed).mean(h), theta @ h) < 1e-14
    assert set(theta.sum(1).numpy().round(12).tolist()) <= {0.0, 1.0}


def test_public_nodes_alone_make_all_hosts_equal() -> None:
    """With kappa 0 and the full training graph, all hosts have the same weights, and Feras is GraphSAINT."""
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
    weighted = train(build("GraphSAINT", sampler="full", budget=0), federate(graph), 3, evaluate=()).state
    unweighted = train(build("GraphSAINT", sampler="full", budget=0, normalise=False), federate(graph), 3, evaluate=())
    assert largest_difference(weighted.personal, unweighted.state.personal) < 1e-13
    sampled = train(build("GraphSAINT"), federate(graph), 3, evaluate=()).state
    plain_mean = train(build("GraphSAINT", normalise=False), federate(graph), 3, evaluate=()).state
    assert largest_difference(sampled.personal, plain_mean.personal) > 1e-2  # coefficients are alive
