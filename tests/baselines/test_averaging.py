"""FedProx and FedPer against a plain loop over clients, and against FedAvg and Local at their limits."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from graphs import identical, largest_difference
from loop import DROPPING, GCN, SGD, WEIGHTS, task, watch
from plain import F64, able, clients_of, detached, initial, leaves, loss, mean, optimizer_of, options, row, step

from fedrepro.baselines.fedper import FedPer
from fedrepro.baselines.fedprox import FedProx
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.local import Local
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError


@pytest.mark.parametrize("average", ["equal", "train", "nodes"])
@pytest.mark.parametrize("mu", [0.01, 2.0])
def test_fedprox_is_its_plain_loop(mu: float, average: str) -> None:
    """Dense GCNs and torch.optim client after client: the server's weights agree after three rounds, to 1e-10."""
    data, parts = task(5)
    method = FedProx(model=GCN, mu=mu, local_epochs=3, average=average, **options())
    trained = train(method, Federation.of(data, parts, dtype=F64), 3)
    held, server = clients_of(data, parts), initial(method)
    clients = {i: leaves(server) for i in able(held)}
    steps = {i: optimizer_of(method, list(w.values())) for i, w in clients.items()}
    for _ in range(3):
        drift = []
        for i, w in clients.items():
            with torch.no_grad():
                for name, value in w.items():
                    value.copy_(server[name])
            for _ in range(3):
                away = sum((value - server[name]).square().sum() for name, value in w.items())
                step(steps[i], loss(w, held[i]) + mu / 2 * away)
            drift.append(sum(float((v.detach() - server[n]).square().sum()) for n, v in w.items()) ** 0.5)
        shares = [WEIGHTS[average](held[i].graph) for i in clients]
        server = mean([detached(w) for w in clients.values()], shares)
    assert largest_difference(row(trained.state.shared, 0), server) < 1e-10
    assert method.facts(trained.fed, trained.state)[0]["drift"] == pytest.approx(sum(drift) / len(drift), rel=1e-9)


def test_fedprox_without_its_term_is_fedavg_to_the_last_bit() -> None:
    """With mu = 0, dropout and two local epochs FedProx is FedAvg; with a positive mu it is not."""
    fed = Federation.of(*task(5))
    plain = train(FedAvg(model=DROPPING, local_epochs=2), fed, 3).state.shared
    assert identical(train(FedProx(model=DROPPING, local_epochs=2, mu=0.0), fed, 3).state.shared, plain)
    assert largest_difference(train(FedProx(model=DROPPING, local_epochs=2, mu=1.0), fed, 3).state.shared, plain) > 1e-3


def test_one_local_step_of_fedprox_is_fedavg() -> None:
    """The term has no gradient at the received weights, whatever mu is."""
    fed = Federation.of(*task(5), dtype=F64)
    plain = train(FedAvg(model=DROPPING, **SGD), fed, 3).state.shared
    for mu in (0.1, 10.0):
        assert identical(train(FedProx(model=DROPPING, mu=mu, **SGD), fed, 3).state.shared, plain)


def test_clients_of_fedprox_stay_nearer_as_mu_grows() -> None:
    """The reported drift falls strictly over mu = 0, 0.1, 1, 10."""
    fed = Federation.of(*task(5), dtype=F64)
    drifts = []
    for mu in (0.0, 0.1, 1.0, 10.0):
        method = FedProx(model=GCN, mu=mu, local_epochs=8, optimizer="sgd", lr=0.1)
        trained = train(method, fed, 1)
        drifts.append(method.facts(trained.fed, trained.state)[0]["drift"])
    assert all(a > b > 0 for a, b in pairwise(drifts))


def test_fedper_is_its_plain_loop() -> None:
    """The first convolution is averaged, the second stays with its client; both agree to 1e-10."""
    data, parts = task(5)
    method = FedPer(model=GCN, local_epochs=2, average="train", **options())
    trained = train(method, Federation.of(data, parts, dtype=F64), 3)
    held, server = clients_of(data, parts), initial(method)
    clients = [leaves(server) for _ in held]
    steps = [optimizer_of(method, list(w.values())) for w in clients]
    base = ("layer1.weight", "layer1.bias")
    for _ in range(3):
        for i in able(held):
            with torch.no_grad():
                for name in base:
                    clients[i][name].copy_(server[name])
            for _ in range(2):
                step(steps[i], loss(clients[i], held[i]))
        shares = [int(held[i].train.sum()) for i in able(held)]
        server = mean([detached(clients[i]) for i in able(held)], shares)
    assert set(trained.state.shared) == set(base)
    assert largest_difference(row(trained.state.shared, 0), {name: server[name] for name in base}) < 1e-10
    for i, w in enumerate(clients):
        assert largest_difference(row(trained.state.personal, i), {n: w[n] for n in w if n not in base}) < 1e-10
    bases, heads = trained.state.shared["layer1.weight"], trained.state.personal["layer2.weight"]
    assert len(bases) == 1 and float((heads[1] - heads[2]).detach().abs().max()) > 1e-3


def test_fedper_between_fedavg_and_local() -> None:
    """No personal layer: FedAvg to the last bit; all of them: Local."""
    fed = Federation.of(*task(5))
    none, both = (train(FedPer(model=DROPPING, personal_layers=k, local_epochs=2), fed, 3) for k in (0, 2))
    assert identical(none.state.shared, train(FedAvg(model=DROPPING, local_epochs=2), fed, 3).state.shared)
    assert identical(both.state.personal, train(Local(model=DROPPING, local_epochs=2), fed, 3).state.personal)
    assert none.state.personal == {} and both.state.shared == {}


def test_only_the_base_of_fedper_travels() -> None:
    """P_b scalars a client and round each way, FedProx sends everything."""
    fed = Federation.of(*task(5))
    base, whole = 7 * 5 + 5, 7 * 5 + 5 + 5 * 3 + 3
    for method, scalars in ((FedPer(model=GCN), base), (FedProx(model=GCN), whole)):
        outcome = train(method, fed, 2)
        trained = int((outcome.fed.count("train") > 0).sum())
        assert outcome.fed.traffic.round(1) == {"down.weights": trained * scalars, "up.weights": trained * scalars}


def test_bad_options_are_refused() -> None:
    """A negative mu, and more personal layers than there are."""
    with pytest.raises(ArgumentError, match="mu must be"):
        FedProx(model=GCN, mu=-1.0)
    with pytest.raises(ArgumentError, match="personal_layers must be"):
        FedPer(model=GCN, personal_layers=3)


def test_a_client_not_drawn_keeps_its_head() -> None:
    """At participation 0.5 who does not train is left bitwise."""
    method, updates = watch(FedPer(model=GCN, participation=0.5))
    train(method, Federation.of(*task(5)), 2)
    idle = ~updates[1].active
    assert bool(idle.any())
    for name in ("layer2.weight", "layer2.bias"):
        assert torch.equal(updates[1].after[name][idle], updates[0].after[name][idle])
