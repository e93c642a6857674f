"""FedSheafHN's runs: by themselves, with others and in chunks; its messages, frozen clients, facts and options."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from fedsheafhn_plain import (
    BARE,
    CLASSES,
    CLIENTS,
    FEATURES,
    HIDDEN,
    MODEL,
    QUICK,
    UNLABELLED,
    build,
    federate,
    graph,
    watched,
)
from graphs import gap, largest_difference

from fedrepro import registry
from fedrepro.baselines import malicious
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import GAT, GCN
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError
from fedrepro.papers.fedsheafhn.exhibits.settings import DATASETS, MODULES, NETWORKS, settings, setup
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.protocol import FedSheafHNAsCoded, FedSheafHNAsPrinted

# -- by themselves, with others, in chunks ----------------------------------------------------------------------------


def noisy(**options: Any) -> FedSheafHN:
    method = build(sheaf_dropout=0.3, hyper_dropout=0.3, malicious=0.34, attack="gaussian", refresh=2, **options)
    return replace(method, model=replace(MODEL, dropout=0.4))


def test_runs_side_by_side_equal_runs_alone() -> None:
    """Three runs side by side give what each gives by itself, with dropout and forged embeddings."""
    method = noisy()
    alone = [train(method, federate(seed), 4) for seed in range(3)]
    both = train(method, Federation.stack([federate(seed) for seed in range(3)]), 4)
    for run, single in enumerate(alone):
        members = both.fed.run == run
        assert (
            largest_difference({n: w[members] for n, w in both.state.personal.items()}, single.state.personal) < 1e-10
        )
        servers = both.state.more.servers[run].weights, single.state.more.servers[0].weights
        assert largest_difference(*servers) < 1e-10
        for name, values in both.history.result(run)["after"]["best"].items():
            assert values == pytest.approx(single.history.result(0)["after"]["best"][name], abs=1e-9), name
    assert gap(both.state.more.used[:CLIENTS], both.state.more.used[CLIENTS : 2 * CLIENTS]) > 1e-3


@pytest.mark.parametrize("chunk", [1, 4])
def test_chunks_change_nothing(chunk: int) -> None:
    """A loop over clients gives the numbers of the stack."""
    method = noisy()
    ways = [train(method, federate(), 3, chunk=c) for c in (None, chunk)]
    assert largest_difference(*(made.state.personal for made in ways)) < 1e-12


def test_permuting_clients_permutes_results() -> None:
    """No result depends on a client's number, apart from one-hot vectors, dropout and the free attention."""
    data, parts = graph()
    order = [3, 0, 5, 1, 4, 2]
    method = build(refresh=2)
    one = train(method, Federation.of(data, parts, 0, dtype=torch.float64), 4).state.personal
    two = train(method, Federation.of(data, [parts[i] for i in order], 0, dtype=torch.float64), 4).state.personal
    assert largest_difference({name: w[order] for name, w in one.items()}, two) < 1e-9


def test_a_client_without_labels_never_moves() -> None:
    """A client without labels keeps its first head and embedding, and its Delta is zero."""
    method = build(refresh=1)
    trained, _, updates = watched(method, 3)
    _, first = method.start(federate())
    client = UNLABELLED[0]
    assert torch.equal(trained.state.more.used[client], first.more.used[client])
    for name in updates[-1].after:
        assert torch.equal(updates[-1].after[name][client], updates[-1].before[name][client])
    assert torch.equal(
        trained.state.personal["layer3.weight"][client], MODEL.init([0], torch.float64)["layer3.weight"][0]
    )


def test_clients_not_drawn_do_not_move() -> None:
    """Clients that are not drawn in a round keep their head and their last embedding."""
    _, states, updates = watched(build(refresh=1, participation=0.5), 3)
    for before, after, update in zip(states, states[1:], updates[1:]):
        out = ~update.active
        assert int(out.sum()) == 4
        assert torch.equal(after.more.used[out], before.more.used[out])
        assert torch.equal(after.personal["layer3.bias"][out], before.personal["layer3.bias"][out])


# -- messages, attacks, facts -----------------------------------------------------------------------------------------


def test_messages_are_counted() -> None:
    """Backbone and change are counted each round, embeddings before training and in the rounds that send them."""
    scalars = FEATURES * HIDDEN + HIDDEN + HIDDEN * HIDDEN + HIDDEN
    traffic = train(build(refresh=2), federate(), 4).fed.traffic
    assert traffic.summary()["before"] == {"up.embedding": CLIENTS * HIDDEN}
    plain = {"down.generated weights": 5 * scalars, "up.weight change": 5 * scalars}
    for t in range(4):
        assert traffic.round(t) == (plain | {"up.embedding": 5 * HIDDEN} if t % 2 == 0 else plain), t
    silent = train(build(vectors="one-hot", diffusion="none"), federate(), 4).fed.traffic
    assert silent.round(0) == plain
    assert sum(silent.summary()["before"].values()) == 0


@pytest.mark.parametrize("attack", malicious.ATTACKS)
def test_forged_embeddings(attack: str) -> None:
    """A third of each run's clients sends equal or independent entries, drawn anew for every message."""
    fed = Federation.stack([federate(0), federate(1)])
    true = torch.randn(fed.clients, 4000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    arrived = malicious.forge_embeddings(fed, true, 0.34, attack, 2.0, 7)
    bad = malicious.malicious_clients(fed, 0.34)
    assert bad.view(2, -1).sum(1).tolist() == [2, 2]
    assert torch.equal(arrived[~bad], true[~bad])
    for row in arrived[bad]:
        if attack == "same":
            assert len(row.unique()) == 1
        else:
            assert float(row.std()) == pytest.approx(2.0, rel=0.05)
    assert not torch.equal(arrived[bad], malicious.forge_embeddings(fed, true, 0.34, attack, 2.0, 8)[bad])
    alone = malicious.forge_embeddings(federate(1), true[CLIENTS:], 0.34, attack, 2.0, 7)
    assert torch.equal(alone, arrived[CLIENTS:])
    assert malicious.forge_embeddings(fed, true, 0.0, attack, 2.0, 7) is true
    with pytest.raises(ArgumentError, match="malicious must be a share that leaves an honest client"):
        malicious.forge_embeddings(fed, true, 0.95, attack, 2.0, 7)
    draws = [malicious.forge_embeddings(fed, true[:, :1], 0.34, attack, 2.0, t)[bad] for t in range(500)]
    assert float(torch.cat(draws).std()) == pytest.approx(2.0, rel=0.06)


@pytest.mark.parametrize("kind", [FedSheafHN, FedSheafHNAsCoded])
def test_a_client_sees_every_tensor_it_is_sent(kind: type[FedSheafHN]) -> None:
    """A change of one generated tensor at one client changes the training of that client only."""
    method = build(kind)
    fed, state = method.start(federate())
    assert set(method.received) == (
        {n for n, _ in method.shapes} if kind is FedSheafHN else {"layer1.bias", "layer2.bias"}
    )

    def trained(weights: Weights) -> Weights:
        leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
        loss = method.local_loss(leaves, fed.at(0, 0), state, 0).sum()
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))

    before = trained(state.personal)
    for name in method.received:
        bumped = state.personal[name].clone()
        bumped[4] += 0.3
        after = trained({**state.personal, name: bumped})
        moved = [any(bool((after[n][i] != w[i]).any()) for n, w in before.items()) for i in range(CLIENTS)]
        assert moved == [i == 4 for i in range(CLIENTS)], name


def test_forged_embeddings_reach_the_server_and_no_one_else() -> None:
    """The server uses forged embeddings of malicious clients and true ones of all others."""
    first = {share: build(malicious=share).start(federate())[1] for share in (0.0, 0.34)}
    bad = malicious.malicious_clients(federate(), 0.34)
    differ = (first[0.0].more.used != first[0.34].more.used).any(1)
    assert torch.equal(differ, bad)
    heads = [state.personal["layer3.weight"] for state in first.values()]
    assert torch.equal(*heads)


def test_facts() -> None:
    """The facts agree with the history's scores, and the server's numbers are not trivial."""
    method = build(malicious=0.34, refresh=1)
    trained, _, _ = watched(method, 4, Federation.stack([federate(0), federate(1)]))
    for run, facts in enumerate(method.facts(trained.fed, trained.state)):
        scored = [a for a in facts["client_test"] if a is not None]
        last = trained.history.result(run)["after"]["last"]["test_clients"]
        assert np.mean(scored) == pytest.approx(last) == pytest.approx(facts["client_mean"])
        assert np.std(scored) == pytest.approx(facts["client_sd"])
        bad = malicious.malicious_clients(trained.fed, 0.34)[trained.fed.run == run].tolist()
        assert facts["malicious_clients"] == [i for i, forged in enumerate(bad) if forged]
        honest = [a for a, b in zip(facts["client_test"], bad) if a is not None and not b]
        assert facts["honest_test"] == pytest.approx(np.mean(honest))
        assert facts["delta"] > 0.01 and facts["server_moved"] > 0.01 and facts["generated_spread"] > 0.01
        assert 0 < facts["map_size"] < 1 and facts["diffusion_change"] > 0.01
    assert "map_size" not in method.facts(*_trained(build(diffusion="gcn")))[0]


def _trained(method: FedSheafHN) -> tuple[Federation, State]:
    _, fed, state = train(method, federate(), 1)
    return fed, state


def test_rows_of_the_tables_differ() -> None:
    """Every row of Tables 4 and 5 is a separate run."""
    rows = {**MODULES, **NETWORKS}
    weights = {
        name: train(build(**options), federate(), 7).state.personal["layer1.weight"] for name, options in rows.items()
    }
    assert torch.equal(weights["+ Dynamic embedding"], weights["w/ Sheaf diffusion"])
    different = [w for name, w in weights.items() if name != "w/ Sheaf diffusion"]
    assert min(gap(a, b) for i, a in enumerate(different) for b in different[:i]) > 1e-6


def test_generated_features_are_prepared_as_the_graphs_own() -> None:
    """FedSage+ divides generated features by their row sums if the graph's features are divided (SH-B1)."""
    asked = {d: "row-sum" in setup(d, 10)["prepare"] for d in DATASETS}
    assert asked == {d: settings("FedSage+", d, 10).get("row_sum", False) for d in DATASETS}
    assert set(asked.values()) == {True, False}


def test_the_last_layer_of_a_plain_gcn_is_its_head() -> None:
    """With a plain GCN one convolution is generated and the second stays local (SH-Q11)."""
    method = FedSheafHN(model=GCN(FEATURES, CLASSES, HIDDEN), **BARE, **QUICK)
    trained = train(method, federate(), 2)
    assert method.personal == ("layer2.weight", "layer2.bias")
    assert [name for name, _ in method.shapes] == ["layer1.weight", "layer1.bias"]
    assert trained.state.more.used.shape == (CLIENTS, HIDDEN)


@pytest.mark.parametrize(("sign", "factor"), [("descent", 1), ("ascent", -1)])
def test_delta_is_generated_minus_trained(sign: str, factor: int) -> None:
    """Delta has one row for each client of a run; with the printed sign it is trained minus generated."""
    method = build(sign=sign)
    _, _, updates = watched(method, 1, Federation.stack([federate(0), federate(1)]))
    members = slice(CLIENTS, 2 * CLIENTS)
    delta, size = method.change(updates[0], members)
    before, after = ({n: w[members] for n, w in part.items()} for part in (updates[0].before, updates[0].after))
    assert delta.keys() == {name for name, _ in method.shapes}
    assert all(torch.equal(w, factor * (before[name] - after[name])) for name, w in delta.items())
    norms = [math.sqrt(sum(float(w[name].square().sum()) for name in delta)) for w in (delta, before)]
    assert size == pytest.approx(norms[0] / norms[1]) and size > 0


def test_registered_names() -> None:
    """The three registered variants differ in the sign of the server's step."""
    kinds = [registry.load("train", f"FedSheafHN{end}") for end in ("", " (as printed)", " (as coded)")]
    assert kinds == [FedSheafHN, FedSheafHNAsPrinted, FedSheafHNAsCoded]
    assert [kind(model=MODEL).sign for kind in kinds] == ["descent", "ascent", "descent"]


def test_every_option_reaches_its_part() -> None:
    """Each option of a part of the server arrives there under the part's own name for it."""
    other_names = {"kind": "diffusion", "share": "malicious"}
    other_names |= {"hidden": "hyper_hidden", "layers": "hyper_layers"}
    changed = {"kind": "gat", "maps": "general", "learner": "linear", "maps_made": "once", "attention": "free"}
    changed |= {"output": "plain", "attack": "gaussian"}
    default = FedSheafHN(model=MODEL)
    for part, dropout in (("collaboration", "sheaf_dropout"), ("hyper", "hyper_dropout"), ("forgery", "")):
        before = getattr(default, part)
        for item in fields(before):
            if item.name == "shapes":
                continue
            value = getattr(before, item.name)
            new = not value if isinstance(value, bool) else changed.get(item.name) or value + type(value)(1) / 2
            new = value + 1 if type(value) is int else new
            option = dropout if item.name == "dropout" else other_names.get(item.name, item.name)
            method = FedSheafHN(model=MODEL, **{option: new})
            assert getattr(method, part) == replace(before, **{item.name: new}), option


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sign": "up"}, "sign"),
        ({"age": "old"}, "age"),
        ({"vectors": "random"}, "vectors"),
        ({"graph": "ring"}, "graph"),
        ({"diffusion": "sgc"}, "diffusion"),
        ({"attention": "linear"}, "attention"),
        ({"output": "zero"}, "output"),
        ({"warmup": -2}, "warmup"),
        ({"refresh": -1}, "refresh"),
        ({"neighbours": -1}, "neighbours"),
        ({"hyper_layers": 0}, "hyper_layers"),
        ({"hyper_dropout": 1.0}, "hyper_dropout"),
        ({"malicious": 1.0}, "malicious"),
        ({"attack": "zero"}, "attack"),
        ({"tau": 0.0}, "tau"),
        ({"server_optimizer": "rmsprop"}, "optimizer"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, Any], words: str) -> None:
    """An impossible option is named before anything is trained."""
    with pytest.raises(ArgumentError, match=words):
        FedSheafHN(model=MODEL, **options)


def test_wrong_models_are_errors() -> None:
    """The model must be a GCN with a layer before the head."""
    with pytest.raises(ArgumentError, match="a GCN"):
        FedSheafHN(model=GAT(FEATURES, CLASSES))
    with pytest.raises(ArgumentError, match="the last of which is the head"):
        FedSheafHN(model=GCN(FEATURES, CLASSES, layers=1))
