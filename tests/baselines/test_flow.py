"""Flow against a plain loop over clients with dense matrices, and at its limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import block_model, gap, identical, largest_difference, unequal_parts
from loop import GCN, task, watch
from plain import F64, Client, Weights, able, clients_of, detached, leaves, mean, optimizer_of, options, row, step
from torch import Tensor

from fedrepro.baselines.flow import Flow, halves
from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.models import GAT, GCNHead
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError

LAYERS = ("layer1.weight", "layer1.bias", "layer2.weight", "layer2.bias")


def routes(psi: Weights, c: Client) -> list[Tensor]:
    """Return q of both layers from the node's own features."""
    s, shares = c.x, []
    for k in (1, 2):
        s = s @ psi[f"policy.hidden{k}.weight"] + psi[f"policy.hidden{k}.bias"]
        s = torch.relu(s)
        shares.append(torch.softmax(s @ psi[f"policy.exit{k}.weight"] + psi[f"policy.exit{k}.bias"], 1))
    return shares


def mixed(g: Weights, w: Weights, q: list[Tensor], c: Client) -> Tensor:
    """Logits with every layer's rows mixed before the activation."""
    h = c.x
    for i in (1, 2):
        both = [c.s @ (h @ p[f"layer{i}.weight"]) + p[f"layer{i}.bias"] for p in (g, w)]
        h = q[i - 1][:, :1] * both[0] + q[i - 1][:, 1:] * both[1]
        h = torch.relu(h) if i == 1 else h
    return h


def pure(w: Weights, c: Client) -> Tensor:
    return mixed(w, w, [torch.tensor([[1.0, 0.0]], dtype=F64)] * 2, c)


def sets(fed: Federation, t: int, client: int) -> list[Tensor]:
    """A client's two halves as its own node numbers."""
    first, last = int(fed.batch.ptr[client]), int(fed.batch.ptr[client + 1])
    return [half.rows[(half.rows >= first) & (half.rows < last)] - first for half in halves(fed, t)]


@pytest.mark.parametrize("penalized", ["global", "local"])
def test_flow_is_its_plain_loop(penalized: str) -> None:
    """Global model and policy after three rounds, and each client's hard-routed logits, to 1e-9."""
    data, parts = task(5)
    method = Flow(model=GCN, local_epochs=2, penalty=0.3, penalized=penalized, policy_hidden=6, **options())
    method, updates = watch(method)
    fed = Federation.of(data, parts, dtype=F64)
    _, state = method.start(fed)
    outcome = train(method, fed, 3)
    held = clients_of(data, parts)
    server = {name: w[0] for name, w in state.shared.items()}
    models = {i: leaves(server) for i in able(held)}
    copies = {i: leaves({name: server[name] for name in LAYERS}) for i in models}
    steps = {}
    for i in models:
        psi = [w for name, w in models[i].items() if name.startswith("policy")]
        groups = (list(copies[i].values()), psi, [models[i][name] for name in LAYERS])
        steps[i] = [optimizer_of(method, list(group)) for group in groups]
    logits = {}
    for t in range(3):
        for i, c in ((i, held[i]) for i in models):
            near, rest = sets(fed, t, i)
            with torch.no_grad():
                for name, value in models[i].items():
                    value.copy_(server[name])
                for name, value in copies[i].items():
                    value.copy_(server[name])
            for _ in range(2):
                step(steps[i][0], F.cross_entropy(pure(copies[i], c)[near], c.y[near]))
            for _ in range(2):
                q = routes(models[i], c)
                g, w = ({n: v.detach() for n, v in part.items()} for part in (models[i], copies[i]))
                regular = sum(-(part[rest, int(penalized == "local")] ** 2 + 1e-6).log().mean() for part in q) / 2
                step(steps[i][1], F.cross_entropy(mixed(g, w, q, c)[rest], c.y[rest]) + 0.3 * regular)
                step(steps[i][2], F.cross_entropy(pure(models[i], c)[rest], c.y[rest]))
            hard = [F.one_hot(part.argmax(1), 2).to(F64) for part in routes(models[i], c)]
            logits[i] = mixed(models[i], copies[i], hard, c).detach()
        server = mean([detached(w) for w in models.values()], [int(held[i].train.sum()) for i in models])
    assert largest_difference(row(outcome.state.shared, 0), server) < 1e-9
    after = method.forward(updates[-1].after, fed, outcome.state)
    for i, expected in logits.items():
        assert gap(after[int(fed.batch.ptr[i]) : int(fed.batch.ptr[i + 1])], expected) < 1e-9


def test_halves_are_random_and_disjoint() -> None:
    """Every training node once, sizes differ by at most one, other halves in another round; one node is in both."""
    fed = Federation.of(*task(10))
    different = 0
    for client in range(10):
        first, last = int(fed.batch.ptr[client]), int(fed.batch.ptr[client + 1])
        trains = fed.batch.train_mask[first:last].nonzero().squeeze(1).tolist()
        a, b = (part.tolist() for part in sets(fed, 0, client))
        if len(trains) >= 2:
            assert sorted(a + b) == trains and len(b) - len(a) in (0, 1)
            different += sorted(a) != sorted(sets(fed, 1, client)[0].tolist())
        else:
            assert a == b == trains
    assert different >= 2


def test_equal_models_do_not_feel_the_policy() -> None:
    """At the start of a round the copy is the global model: logits do not depend on psi, the cross-entropy's gradient
    at psi is 0 to rounding; after the local half it is not.
    """
    fed = Federation.of(*task(5), dtype=F64)
    method, updates = watch(Flow(model=GCN, local_epochs=3, penalty=0.0, lr=0.05))
    _, state = method.start(fed)
    train(method, fed, 1)
    norms = []
    for weights in (method.begin_round(fed, state, 0), updates[0].after):
        w = leaves(weights)
        method.local_loss(w, fed.at(0, 0), state, 0).sum().backward()
        grads = [w[name].grad.norm() for name in w if name.startswith("policy")]
        norms.append(float(torch.stack(grads).norm()))
        classifier = float(w["layer2.weight"].grad.norm())
    assert norms[0] < 1e-12
    assert norms[1] > 1e-3 * classifier
    changed = {n: v + 1.0 if n.startswith("policy.hidden") else v for n, v in method.begin_round(fed, state, 0).items()}
    plain = method.forward(method.begin_round(fed, state, 0), fed.at(0, 0), state)
    assert gap(method.forward(changed, fed.at(0, 0), state), plain) < 1e-12


def test_fixed_routes_are_the_pure_models() -> None:
    """Route (1, 0) predicts with the global model, (0, 1) with the copy; the global model trains alike in all three."""
    fed, models = Federation.of(*task(5), dtype=F64), {}
    for route in ("learned", "global", "local"):
        method, updates = watch(Flow(model=GCN, local_epochs=2, route=route))
        state = train(method, fed, 2).state
        models[route] = {name: w for name, w in state.shared.items() if not name.startswith("policy")}
        model, copy = method.parts(updates[-1].after)
        if route != "learned":
            expected = method.model(copy if route == "local" else model, fed)
            assert identical({"p": method.forward(updates[-1].after, fed, state)}, {"p": expected})
            policies = [
                {n: w for n, w in s.shared.items() if n.startswith("policy")} for s in (state, method.start(fed)[1])
            ]
            assert largest_difference(*policies) < 1e-15
    assert identical(models["learned"], models["global"]) and identical(models["learned"], models["local"])


def test_hard_routes_on_one_side_are_that_route() -> None:
    """A policy that sends everything one way predicts as that model, to rounding."""
    fed = Federation.of(*task(5), dtype=F64)
    method, updates = watch(Flow(model=GCN, local_epochs=2))
    state = train(method, fed, 1).state
    model, copy = method.parts(updates[0].after)
    for side, pure_one in ((0, model), (1, copy)):
        psi = dict(updates[0].after)
        for k in (1, 2):
            psi[f"policy.exit{k}.bias"] = torch.zeros_like(psi[f"policy.exit{k}.bias"])
            psi[f"policy.exit{k}.bias"][:, side] = 1e3
        assert gap(method.forward(psi, fed, state), method.model(pure_one, fed)) < 1e-12


def test_routing_is_alive() -> None:
    """Predictions after local training differ from those of the pure global model in at least 1% of the nodes in each
    of three seeds; some but not all nodes go local; a large penalty sends more through the global model.
    """
    shares = []
    for penalty in (0.01, 5.0):
        by_seed = []
        for seed in range(3):
            data = block_model(240, degree=12, seed=seed)
            fed = Federation.of(data, unequal_parts(240, 5, seed), seed)
            method, updates = watch(Flow(model=GCN, local_epochs=5, lr=0.05, penalty=penalty))
            outcome = train(method, fed, 10)
            if penalty < 1:
                routed = method.forward(updates[-1].after, fed, outcome.state).argmax(1)
                plain = method.model(method.parts(updates[-1].after)[0], fed).argmax(1)
                assert float((routed != plain).float().mean()) >= 0.01
            facts = method.facts(outcome.fed, outcome.state)[0]
            assert set(facts) == {"local_share_1", "local_share_2"}
            by_seed.append(np.mean(list(facts.values())))
        shares.append(float(np.mean(by_seed)))
    assert 0 < shares[0] < 1 and shares[1] < shares[0]


def test_what_flow_sends() -> None:
    """Global model and policy both ways; the copy never travels."""
    fed = Federation.of(*task(1))
    sent = train(Flow(model=GCN, policy_hidden=6), fed, 2).fed.traffic.round(1)
    each = 7 * 5 + 5 + 5 * 3 + 3 + (7 * 6 + 6 + 6 * 2 + 2) + (6 * 3 + 3 + 3 * 2 + 2)
    assert sent == {"down.weights": each, "up.weights": each}


def test_flow_takes_any_network_of_layers() -> None:
    """A GCN with a head has three routed layers; a GAT is refused, and unknown options by name."""
    fed = Federation.of(*task(5))
    method = Flow(model=GCNHead(7, 3, hidden=5, dropout=0.5), local_epochs=2)
    made = train(method, fed, 2)
    assert len(method.facts(made.fed, made.state)[0]) == 3 and made.history.diverged == {}
    with pytest.raises(ArgumentError, match="sequence of layers"):
        Flow(model=GAT(7, 3))
    wrong: list[dict[str, Any]] = [{"penalty": -1.0}, {"route": "both"}, {"penalized": "all"}, {"policy_hidden": 0}]
    for option in wrong:
        with pytest.raises(ArgumentError, match=next(iter(option))):
            Flow(model=GCN, **option)
