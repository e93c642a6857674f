"""Hold every option that a run may change to having an effect, and refuse what a method does not support.

A method takes the options of `Method` and of its model. One that it ignores would be stored with a result that it did
not change. Each method is trained for three rounds on 48 nodes, with one option changed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import torch
from graphs import block_model

from fedrepro import registry
from fedrepro.engine.federation import Federation
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError, FedreproError
from fedrepro.reporting import describing
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

METHODS = [name for name in registry.names("train") if not registry.by_hand("train", name)]
# Settings under which all of a method runs within three rounds, and what is trained before them is small.
BASE: dict[str, dict[str, Any]] = {
    "FedSage+": {"generator_epochs": 2, "generator_width": 8},
    "FedSage+ (FedSGD)": {"generator_epochs": 2, "generator_width": 8},
    "FGGP": {"refresh": 1, "prototypes": 2, "nearest": 2},
    "FGGP (activated)": {"refresh": 1, "prototypes": 2, "nearest": 2},
    "FedSheafHN": {"refresh": 1},
    "FedSheafHN (as printed)": {"refresh": 1},
    "FedSheafHN (as coded)": {"refresh": 1},
    "Feras": {"q": 2, "budget": 4, "layers": 3},
    "GraphSAINT": {"budget": 4},
    "GraphSAINT-SW": {"q": 2, "budget": 4},
}
# Settings that an option needs to have an effect.
WITH: dict[str, dict[str, Any]] = {
    "momentum": {"optimizer": "sgd"},
    "attack": {"malicious": 0.5},
    "tau": {"malicious": 0.5, "attack": "gaussian"},
    "residual": {"diffusion": "gcn"},
    "age": {"refresh": 2},
    "neighbours": {"graph": "knn"},
    "hyper_lr": {"hyper_weight_decay": 0.1},
    "update": {"batch": 1},
    "frontier": {"sampler": "mrw"},
    "walk": {"structure": "Fed*"},
    "loops": {"structure": "Fed*"},
    "walk_epochs": {"structure": "N2V"},
    "feature_seed": {"structure": "N2V"},
    "last": {"backbone": "GraphSAGE"},
    "counts": {"structure": "GDV-73"},
}
# Here `average` has nothing to weigh: no average, or one of another kind. Stored runs of these give it nevertheless.
NO_AVERAGE = ("Central", "CentralUnbiased", "Local", "FED-PUB", "FedSheafHN", "pFedHN", "Feras", "GraphSAINT", "MLPs")
NO_AVERAGE += ("MLPs (own round)",)


def run_of(method: str, options: dict[str, Any]) -> Run:
    return Run(task="train", paper="", method=method, dataset="Cora", options=options)


LEARNED, ALL = 2, 4  # how many parts of an outcome: scores and losses, or messages and facts, too


def outcome(method: str, options: dict[str, Any]) -> list[Any]:
    """Train three rounds; return scores, losses, messages and facts."""
    data = block_model(48, features=5, degree=5, isolated=0)
    count = 1 if method.startswith("Central") else 12
    fed = Federation.of(data, [torch.arange(k, 48, count) for k in range(count)], 0)
    built, _ = tasks.method(run_of(method, options), fed.features, fed.classes)
    history, fed, state = train(built, fed, 3)
    losses = [float(loss[0]) for loss in history.loss]
    return [history.result(0), losses, fed.traffic.summary(0), built.facts(fed, state)[0]]


def others(method: str, base: dict[str, Any], name: str, value: Any) -> list[Any]:
    """Return other values of an option; those of a string are the choices that its error names."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        near = [value + 1, value + 2, value - 1] if isinstance(value, int) else [value / 2, 0.7, 2 * value, 0.3]
        return [one for one in near if one != value]
    if isinstance(value, tuple):
        return [(8,), (8, 8)]
    with pytest.raises(ArgumentError) as error:
        tasks.method(run_of(method, {**base, name: "none such"}), 5, 3)
    return [one for one in re.findall(r"'([^']*)'", str(error.value).split("Got")[0]) if one not in (value, name)]


def base_of(method: str) -> dict[str, Any]:
    """Return the settings with which other values are tried, with two local epochs where the method allows them."""
    base = {"model": describing.models(method)[0], **BASE.get(method, {})}
    with contextlib.suppress(ArgumentError):
        tasks.method(run_of(method, {**base, "local_epochs": 2}), 5, 3)
        return {**base, "local_epochs": 2}
    return base


def options_of(method: str, base: dict[str, Any]) -> Iterator[tuple[str, Any, int]]:
    """Yield name and value of every option that a run of a method may give, and the parts of an outcome it counts in.

    Weights that nothing uses would be counted as sent, so that an option of the model must change what is learned.
    """
    built, _ = tasks.method(run_of(method, base), 5, 3)
    for one, parts in ((built, ALL), (built.model, LEARNED)):
        for field in fields(one):
            if field.name not in ("model", "features", "classes"):
                yield field.name, getattr(one, field.name), parts


@pytest.mark.parametrize("method", METHODS)
def test_an_option_that_a_run_may_change_changes_the_run(method: str) -> None:
    base, fixed = base_of(method), registry.find("train", method).fixed
    plain = outcome(method, base)
    without = []
    for name, value, parts in options_of(method, base):
        if name in fixed or (name == "average" and method.startswith(NO_AVERAGE)):
            continue
        beside = {**base, **(WITH.get(name, {}))}
        try:
            before = plain if beside == base else outcome(method, beside)
        except ArgumentError:
            beside, before = base, plain
        tried = []
        for other in others(method, beside, name, value):
            with contextlib.suppress(FedreproError):
                tried.append(outcome(method, {**beside, name: other})[:parts] != before[:parts])
                if tried[-1]:
                    break
        without += [name] if tried and not any(tried) else []
    assert without == []


@pytest.mark.parametrize("method", [name for name in METHODS if registry.find("train", name).fixed])
def test_an_option_that_a_method_does_not_support_is_refused(method: str) -> None:
    fixed = registry.find("train", method).fixed
    base = base_of(method) | ({"model": "GCNHead"} if "bare" in fixed else {})
    plain = outcome(method, base)[:LEARNED]
    known = {name: value for name, value, _ in options_of(method, base)}
    listed = {row.option for row in [*describing.own("train", method), *describing.sizes(method)]}
    for name in fixed:
        if name == "model":
            assert describing.models(method) == [base["model"]]
            continue
        assert name not in listed
        tasks.check(run_of(method, {**base, name: known[name]}))
        other = others(method, base, name, known[name])[-1]
        with pytest.raises(ArgumentError, match=f"{name}' of .* must be {re.escape(repr(known[name]))}"):
            tasks.check(run_of(method, {**base, name: other}))
        # Flow would follow it in one of its two networks only.
        followed = outcome(method, {**base, name: other})[:LEARNED] != plain
        assert followed == ((method, name) == ("Flow", "bare")), name
