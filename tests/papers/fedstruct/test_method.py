"""Compare FedStruct with plain PyG layers on dense powers of D~^-1 (A+I), and with central training."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from fedstruct_plain import EVERY, KINDS, MODEL, NODES, SMALL, Reference, build, graph, in_order, start
from graphs import gap, identical, largest_difference

from fedrepro import registry
from fedrepro.engine.federation import Federation
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import MLP, SAGEHead
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError
from fedrepro.papers.fedstruct import network, structure
from fedrepro.papers.fedstruct.method import FedStruct
from fedrepro.papers.fedstruct.variants import KnownGraph, SharedSums, choice

# -- the method against plain layers ----------------------------------------------------------------------------------


@EVERY
def test_logits_are_those_of_plain_layers(options: dict[str, Any]) -> None:
    """Both parts of the logits at every node equal the reference, to 1e-12, with weights once or per client."""
    method, fed, state = start(options)
    expected = Reference(method, fed, state)()
    shared = fed.shared()
    once = method.parts(state.shared, shared, state)
    each = method.parts(fed.broadcast(state.shared), fed, state)
    for a, b, e in zip(once, each, expected, strict=True):
        assert gap(in_order(fed, a), e) < 1e-12 and gap(a, b) < 1e-12
    assert gap(method.predict(fed, state), once[0] + once[1]) == 0


@EVERY
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_training_is_central_training_of_the_reference(options: dict[str, Any], optimizer: str) -> None:
    """Four rounds equal four steps of torch's optimizer on the mean loss over all training nodes, to 1e-10."""
    decay = {"lr": 0.05, "weight_decay": 0.01}
    method, fed, state = start(options, optimizer=optimizer, **decay)
    reference = Reference(method, fed, state)
    rule = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
    stepper = rule(reference.parameters(), **decay)

    vars(method)["start"] = lambda _: (fed, state)
    trained = train(method, fed, 4)
    for _ in range(4):
        stepper.zero_grad()
        reference.loss().backward()
        stepper.step()
    moved = {name: w[0] for name, w in trained.state.shared.items()}
    assert largest_difference(moved, reference.weights()) < 1e-10
    assert largest_difference(moved, {name: w[0] for name, w in state.shared.items()}) > 0.01


def test_the_structure_branch_alone_and_the_features_alone() -> None:
    """The option `inference` names the part that predicts, and the two parts add up to the whole."""
    _, fed, state = start(KINDS[0])
    both, z, h = (build(KINDS[0], inference=part).predict(fed, state) for part in ("both", "structure", "features"))
    assert gap(both, z + h) < 1e-15 and gap(both, z) > 0.1 and gap(both, h) > 0.1


def test_facts_are_the_accuracies_of_the_parts() -> None:
    """The accuracies are those at the last weights, over validation and test nodes."""
    method, fed, state = start(KINDS[0])
    facts = method.facts(fed, state)[0]
    h, z = method.parts(state.shared, fed.shared(), state)
    for name, logits in (("features", h), ("structure", z)):
        for mask in ("val", "test"):
            at = fed.batch[f"{mask}_mask"]
            assert facts[f"{name}_{mask}"] == float((logits[at].argmax(1) == fed.batch.y[at]).double().mean())
    assert facts["columns"] == 6 and facts["kept_per_node"] == NODES
    assert build(KINDS[1]).facts(*start(KINDS[1])[1:])[0]["kept_per_node"] <= 4


def test_without_structure_it_is_fedsgd() -> None:
    """With `structure="none"` only the feature branch trains, bitwise as FedSGD does, dropout included."""
    data, parts = graph()
    fed = Federation.of(data, parts, dtype=torch.float64)
    model = replace(MODEL, dropout=0.4)
    weights = [
        train(kind, fed, 3).state.shared for kind in (FedSGD(model=model), build({"structure": "none"}, model=model))
    ]
    assert identical(*weights)


# -- alive ------------------------------------------------------------------------------------------------------------


def test_s_has_a_gradient_and_moves() -> None:
    """The gradient of S is at least 1e-3 of the classifier's in the median of 20 rounds, and S moves."""
    data, parts = graph()
    ratios = []

    class Watched(FedStruct):
        def aggregate(self, state: State, update: Any) -> State:
            ratios.append(float(update.gradient["structure"].norm() / update.gradient["layer2.weight"].norm()))
            return super().aggregate(state, update)

    method = Watched(model=MODEL, **SMALL, prune=4)
    fed = Federation.of(data, parts)
    trained = train(method, fed, 20)
    assert len(ratios) == 20 and float(np.median(ratios)) > 1e-3
    assert gap(trained.state.shared["structure"], method.start(fed)[1].shared["structure"]) > 0.05


@pytest.mark.parametrize("kind", ["Deg", "Fed*", "GDV", "GDV-73", "N2V"])
def test_fixed_features_matter(kind: str) -> None:
    """Features of other nodes change predictions."""
    method, fed, state = start({"structure": kind, "prune": 0})
    before = method.predict(fed, state)
    got = state.more.exchanged
    shuffled = got._replace(features=got.features[:, torch.from_numpy(np.random.default_rng(0).permutation(NODES))])
    after = method.predict(fed, replace(state, more=state.more._replace(exchanged=shuffled)))
    assert gap(before, after) > 0.01


def test_dropout_hides_the_expected_share() -> None:
    """A hidden entry of g survives with probability 1 - p and is then divided by it; masks change with the round."""
    x, key = torch.ones(1, 500, 40, dtype=torch.float64), torch.arange(500) * 7919 + 13
    out = network.mask(x, 1, key, (3, 0), 0.7)
    assert set(out.unique().tolist()) == {0.0, 1 / (1 - 0.7)}
    assert abs(float((out > 0).double().mean()) - 0.3) < 0.01
    assert gap(out, network.mask(x, 1, key, (4, 0), 0.7)) > 0 and torch.equal(x, network.mask(x, 1, key, (3, 0), 0.0))


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"structure": "degree"}, "structure must be one of"),
        ({"head": "direct", "structure": "Deg"}, "head must be"),
        ({"beta": (1.0,)}, "beta must be"),
        ({"prune": -1}, "prune must be"),
        ({"graph": "known", "prune": 30}, "prune must be 0"),
        ({"backbone": "GraphSAGE"}, r"backbone must be .*\. Got 'GraphSAGE'"),
        ({"combine": "layer"}, "combine must be"),
        ({"sharing": "aggregates"}, "head must be 'direct'"),
        ({"structure_depth": -1}, "structure_depth must be"),
        ({"structure_hidden": (4, 0)}, "structure_hidden must be"),
        ({"budget": "rows"}, "budget must be one of"),
        ({"width": 3, "structure": "Fed*", "walk": 3}, "walk must be"),
    ],
)
def test_odd_options_are_refused(options: dict[str, Any], message: str) -> None:
    """The error names the argument and what is allowed."""
    with pytest.raises(ArgumentError, match=message):
        build(options).start(Federation.of(*graph()))


def test_options_choose_the_method() -> None:
    """The registry's entry builds one of three classes, and knows the options of all three."""
    assert type(build(KINDS[0])) is FedStruct and type(build(KINDS[9])) is KnownGraph
    assert type(build({"structure": "Deg", "sharing": "aggregates"})) is SharedSums
    known = {option.name for kind in (FedStruct, SharedSums, KnownGraph) for option in fields(kind)}
    assert {option.name for option in fields(choice)} == known | {"sharing", "graph"}
    assert registry.load("train", "FedStruct") is choice and choice.upload == FedStruct.upload


@pytest.mark.parametrize(
    "options",
    [
        {"backbone": "decoupled", "combine": "add", "graph": "unknown", "sharing": "structure"},
        {"graph": "known", "prune": 0, "budget": "blocks"},
    ],
)
def test_options_of_other_methods_may_be_named_without_effect(options: dict[str, Any]) -> None:
    """A run may spell out a value that changes nothing, as stored runs do."""
    assert build(options) == build({"graph": options["graph"]})


def test_any_feature_model_will_do() -> None:
    """An MLP or a GraphSAGE with a head can take the place of the decoupled GCN."""
    for model in (MLP(7, 3, hidden=4), SAGEHead(7, 3, stack=(4, 3), input_norm=True)):
        method, fed, state = start(KINDS[1], model=model)
        expected = Reference(method, fed, state)()
        assert gap(in_order(fed, method.predict(fed, state)), sum(expected)) < 1e-12


def test_weights_of_g_are_drawn_apart_from_those_of_f() -> None:
    """No column of g begins as one of f, although both are drawn by one rule."""
    data, parts = graph()
    for options in (KINDS[0], KINDS[9], KINDS[10]):
        method = build(options, model=replace(MODEL, stack=(6,)), width=7)
        _, state = method.start(Federation.of(data, parts, dtype=torch.float64))
        drawn = [w.flatten() for n, w in state.shared.items() if n.endswith(("weight", "root", "combine.features"))]
        drawn += [w.flatten() for n, w in state.shared.items() if n == "combine.structure"]
        assert len(drawn) >= 4
        for i, a in enumerate(drawn):
            for b in drawn[:i]:
                size = min(len(a), len(b))
                assert gap(a[:size] / a.abs().max(), b[:size] / b.abs().max()) > 0.1
        assert torch.equal(state.shared["structure.scale"], torch.ones_like(state.shared["structure.scale"]))


def test_hop2vec_starts_small_and_by_seed() -> None:
    """Hop2Vec starts normal with standard deviation 0.05, as a function of the seed."""
    s = structure.hop2vec(2000, 8, 3)
    assert abs(float(s.std()) - 0.05) < 0.001 and abs(float(s.mean())) < 0.002
    assert torch.equal(s, structure.hop2vec(2000, 8, 3)) and gap(s, structure.hop2vec(2000, 8, 4)) > 0.05
