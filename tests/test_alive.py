"""The promise every method keeps that what it adds is alive: it has a gradient, and without it predictions change."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from promises import CASES, GCN_, ROUNDS, SEEDS, Way, build, off, runs, variant
from torch import Tensor

from fedrepro import registry
from fedrepro.baselines.personal import clients_of
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.training import Trained, train
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.theory.diffusion import AS_TRAINED


@cache
def trained(name: str, options: tuple[tuple[str, Any], ...] = (), kind: str = "") -> Trained:
    """Three runs of a method; `kind` names another method whose model and graphs are used."""
    return train(variant(name, dict(options), kind), runs(kind or name), ROUNDS, evaluate=())


def predictions(method: Method, fed: Federation, state: State) -> list[Tensor]:
    """Predicted classes of each run's test nodes, in the order of their ids."""
    chosen = method.predict(fed, state).argmax(1)
    classes = []
    for run in range(fed.runs):
        rows = ((fed.batch.ring == 0) & fed.batch.test_mask & (fed.run[fed.batch.batch] == run)).nonzero().squeeze(1)
        classes.append(chosen[rows[fed.batch.node_id[rows].argsort()]])
    return classes


OFF = [(name, way) for name, case in CASES.items() for way in case.off]


def changed(name: str, way: Way, **options: Any) -> list[float]:
    """The share of test predictions of a trained method that a way of switching its signal off changes, per run."""
    method = build(name, **options)
    _, fed, state = trained(name, tuple(options.items()))
    if callable(way):
        state = off(AS_TRAINED)(method, fed, state) if isinstance(method, FedSheafHN) else state
        on, without = (predictions(method, fed, one) for one in (state, way(method, fed, state)))
    else:
        on = predictions(method, fed, state)
        other, more = way
        _, fed, state = trained(other, tuple(more.items()), name)
        without = predictions(variant(other, more, name), fed, state)
    return [float((a != b).float().mean()) for a, b in zip(on, without, strict=True)]


@pytest.mark.parametrize(("name", "way"), OFF, ids=[f"{n} - {w.__name__ if callable(w) else w}" for n, w in OFF])
def test_switching_the_signal_off_changes_predictions(name: str, way: Way) -> None:
    """At least 1% of the test predictions, in each of three seeds."""
    assert min(changed(name, way)) >= 0.01


def test_a_server_that_learns_nothing_is_noticed() -> None:
    """The switch of the untrained server changes less than 1% of the predictions if the server does not step, and none
    in the public code's variant if its sheaf does not decay.
    """
    still = {"hyper_lr": 1e-12, "sheaf_lr": 1e-12, "hyper_weight_decay": 0.0, "sheaf_weight_decay": 0.0}
    assert max(changed("FedSheafHN", off("untrained server"), **still)) < 0.01
    # its sheaf decays, and no more
    assert changed("FedSheafHN (as coded)", off("untrained server"), sheaf_weight_decay=0.0) == [0.0] * len(SEEDS)


SIGNALS = [(name, signal) for name, case in CASES.items() for signal in case.signal]


@cache
def gradient_ratios(name: str) -> dict[str, list[float]]:
    """Norm of the gradient of each signal over that of the classifier's weights, round by round."""
    ratios_of: dict[str, list[float]] = {signal: [] for signal in CASES[name].signal}

    class Watched(registry.load("train", name)):  # type: ignore[misc]
        def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
            weights = super().begin_round(fed, state, t)
            leaves = {key: w.clone().requires_grad_() for key, w in weights.items()}
            x = fed.x.clone().requires_grad_()
            seen = fed.shared() if self.upload == "gradients" else fed
            loss = self.local_loss(leaves, seen.with_features(x), state, t).sum()
            by_name = dict(zip([*leaves, "received"], torch.autograd.grad(loss, [*leaves.values(), x])))
            by_name["received"] = by_name["received"][fed.batch.ring > 0]
            for signal, ratios in ratios_of.items():
                ratios.append(float(by_name[signal].norm() / by_name["layer2.weight"].norm()))
            return weights  # type: ignore[no-any-return]

    train(Watched(model=CASES[name].model, **CASES[name].options), runs(name), ROUNDS, evaluate=())
    return ratios_of


@pytest.mark.parametrize(("name", "signal"), SIGNALS, ids=[f"{n} - {s}" for n, s in SIGNALS])
def test_the_signal_has_a_gradient(name: str, signal: str) -> None:
    """At least 1e-3 of the classifier's, in the median round."""
    ratios = gradient_ratios(name)[signal]
    assert len(ratios) == ROUNDS and float(np.median(ratios)) >= 1e-3


SHEAF_PARTS = ("encode", "0.w1", "0.w2", "0.map", "decode")
HYPER_PARTS = ("attention.query", "attention.key", "attention.value", "mlp0", "mlp1", "out.layer1.weight")
PARTS = (*(f"sheaf.{part}" for part in SHEAF_PARTS), *(f"hyper.{part}" for part in HYPER_PARTS))


def server_ratios(name: str) -> dict[str, list[float]]:
    """Return, part by part of FedSheafHN's server and round by round, the norm of the gradient it steps along over that
    of the clients' change of their heads, the smallest of the runs.
    """
    smallest: dict[str, list[float]] = {part: [] for part in PARTS}

    class Watched(registry.load("train", name)):  # type: ignore[misc]
        def aggregate(self, state: State, update: Update) -> State:
            sizes: dict[str, list[float]] = {part: [] for part in PARTS}
            for run, server in enumerate(state.more.servers):
                of_run = clients_of(update.fed, run)
                change, _ = self.change(update, of_run)
                grads = server.gradient(self.vectors_of(state.more.used[of_run]), update.round, change)
                head = (
                    sum(float((update.after[n] - update.before[n])[of_run].norm()) ** 2 for n in self.personal) ** 0.5
                )
                for part, ratios in sizes.items():
                    squares = [float(g.norm()) ** 2 for n, g in grads.items() if n.startswith(part)]
                    ratios.append(sum(squares) ** 0.5 / head)
            for part, ratios in sizes.items():
                smallest[part].append(min(ratios))
            return super().aggregate(state, update)  # type: ignore[no-any-return]

    options = {**CASES["FedSheafHN"].options, "maps_made": "layer", "attention": "softmax"}
    train(Watched(model=GCN_, **options), runs("FedSheafHN"), ROUNDS, evaluate=())
    return smallest


def test_every_part_of_the_server_has_a_gradient() -> None:
    """Each of `PARTS`: at least 1e-3 of the head's change, in the median round of the worst of three seeds. As coded
    there is none.
    """
    found = server_ratios("FedSheafHN")
    assert {part: float(np.median(each)) for part, each in found.items() if np.median(each) < 1e-3} == {}
    assert not any(sum(each) for each in server_ratios("FedSheafHN (as coded)").values())
