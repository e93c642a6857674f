"""Runs side by side, chunks and the order of clients change nothing in any subgraph baseline."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest
import torch
from graphs import gap
from loop import SIZES, task, watch
from torch import Tensor

from fedrepro import registry
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import Method
from fedrepro.engine.nn.models import GCN, GCNHead
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

F64 = torch.float64
SIZE = {"generator_epochs": 2, "generator_hidden": 6, "generator_width": 9, "latent": 5, "encoder_hidden": 4}
SMALL: dict[str, Any] = {"count": "true", **SIZE}
OPTIONS: dict[str, dict[str, Any]] = {
    "FedProx": {"mu": 0.5},
    "FedPer": {},
    "FED-PUB": {"proxies": 2, "proxy_nodes": 15, "scale": 10.0},
    "FedSage+": SMALL,
    "FedSage+ (FedSGD)": {**SMALL, "scheme": "fedstruct"},
    "pFedHN": {"hyper_hidden": 8, "server_lr": 0.003},
    "pFedGraph": {"alpha": 0.5},
    "Flow": {"policy_hidden": 6},
    "FGGP": {"refresh": 2},
}
EVERY = pytest.mark.parametrize("name", sorted(OPTIONS))
ORDER = [2, 0, 4, 1, 3]


def build(name: str, model: GCN, **options: Any) -> Method:
    kind = registry.load("train", name)
    epochs = {} if kind.upload == "gradients" else {"local_epochs": 2}
    made: Method = kind(model=model, **OPTIONS[name], **epochs, **options)
    return made


class Kept:
    """Three rounds of training, with the method."""

    def __init__(self, method: Method, fed: Federation, chunk: int | None = None) -> None:
        self.method = method
        self.history, self.fed, self.state = train(method, fed, 3, chunk=chunk)

    def run(self, number: int) -> list[Tensor]:
        """Return the server's weights, the clients' own ones and the logits of the nodes of one run at its end."""
        clients = self.fed.run == number
        own = [self.state.shared[name][number] for name in sorted(self.state.shared)]
        own += [self.state.personal[name][clients] for name in sorted(self.state.personal)]
        return [*own, self.method.predict(self.fed, self.state)[clients[self.fed.batch.batch]]]


@EVERY
@pytest.mark.parametrize("head", [False, True], ids=["GCN", "GCNHead"])
def test_runs_side_by_side_are_runs_alone(name: str, head: bool) -> None:
    """Two runs of 3 and 5 clients with dropout have the weights, logits and facts that each has by itself, to 1e-9."""
    model = (GCNHead if head else GCN)(**SIZES, dropout=0.4)
    method = build(name, model)
    feds = [Federation.of(*task(clients, seed), seed, dtype=F64) for seed, clients in ((3, 3), (4, 5))]
    both = Kept(method, Federation.stack(feds))
    for run, fed in enumerate(feds):
        alone = Kept(method, fed)
        for a, b in zip(both.run(run), alone.run(0), strict=True):
            assert gap(a, b) < 1e-9
        together, single = (k.method.facts(k.fed, k.state)[at] for k, at in ((both, run), (alone, 0)))
        assert together == pytest.approx(single, rel=1e-6, abs=1e-9, nan_ok=True)
        assert both.fed.traffic.summary(run) == alone.fed.traffic.summary(0)


@EVERY
def test_chunks_change_nothing(name: str) -> None:
    """Clients one by one, two by two and all at once agree with dropout on, to 1e-10."""
    method = build(name, GCN(**SIZES, dropout=0.4))
    fed = Federation.stack([Federation.of(*task(5, seed), seed, dtype=F64) for seed in (0, 1)])
    whole = Kept(method, fed)
    for chunk in (1, 2):
        parts = Kept(method, fed, chunk=chunk)
        for run in (0, 1):
            for a, b in zip(whole.run(run), parts.run(run), strict=True):
                assert gap(a, b) < 1e-10
            assert parts.history.before.series(run)["test"] == whole.history.before.series(run)["test"]


# These draw something for each client by its number: halves, noise, descriptions.
NUMBERED = {"FedSage+", "FedSage+ (FedSGD)", "pFedHN", "Flow", "FGGP"}


@pytest.mark.parametrize("name", sorted(set(OPTIONS) - NUMBERED))
def test_the_order_of_clients_does_not_matter(name: str) -> None:
    """Without dropout a permutation of the clients permutes their weights, to 1e-9."""
    data, parts = task(5)
    method = build(name, GCN(**SIZES))
    a = Kept(method, Federation.of(data, parts, dtype=F64)).state
    b = Kept(method, Federation.of(data, [parts[i] for i in ORDER], dtype=F64)).state
    for weight, w in a.shared.items():
        assert gap(w, b.shared[weight]) < 1e-9
    for weight, w in a.personal.items():
        assert gap(w[ORDER], b.personal[weight]) < 1e-9


@EVERY
def test_training_lowers_the_loss(name: str) -> None:
    """The loss falls over 30 rounds, and no run diverges."""
    method = build(name, GCN(**{**SIZES, "hidden": 16}), lr=0.02)
    history = train(method, Federation.of(*task(3)), 30).history
    loss = [float(value[0]) for value in history.loss]
    assert history.diverged == {} and min(loss[-3:]) < loss[0]


@pytest.mark.parametrize("name", ["FED-PUB", "pFedGraph"])
def test_clients_not_drawn_keep_their_model(name: str) -> None:
    """At participation 0.5 a client that is not drawn keeps its weights bitwise, and senders are the drawn ones only.

    A client without training nodes is never drawn, and receives an average in every round.
    """
    method, updates = watch(build(name, GCN(**SIZES), participation=0.5))
    fed = Federation.of(*task(5), dtype=F64)
    state = train(method, fed, 3).state
    last, trainable = updates[-1], fed.count("train") > 0
    idle, without = trainable & ~last.active, ~trainable
    assert int(idle.sum()) == 1 and int(without.sum()) == 2
    for weight, w in state.personal.items():
        assert torch.equal(w[idle], last.before[weight][idle])
        if not weight.endswith(".mask"):
            assert not torch.equal(w[without], last.before[weight][without])
            senders = last.after[weight][last.active].flatten(1)
            # a client receives a convex combination of the weights of the senders
            low, high = senders.min(0).values - 1e-12, senders.max(0).values + 1e-12
            taken = w[~idle].flatten(1)
            assert bool(((taken >= low) & (taken <= high)).all())


def test_an_option_of_another_method_is_an_error() -> None:
    """A run is refused whose method does not have an option that another one has."""
    known = {name: {field.name for field in fields(registry.load("train", name))} for name in OPTIONS}
    sizes = {field.name for field in fields(GCN)}
    for name, own in known.items():
        foreign = set[str]().union(*known.values()) - own - sizes
        assert foreign
        for option in foreign:
            run = Run(task="train", paper="fedsheafhn", method=name, options={option: 1})
            with pytest.raises(ArgumentError, match=f"options of {re.escape(name)} must be among .* Got '{option}'"):
                tasks.method(run, tasks.FEATURES, tasks.CLASSES)
