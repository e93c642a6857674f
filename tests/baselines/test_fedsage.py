"""FedSage+: the graphs that it mends, what it reveals of neighbours, its limits and its messages."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from fedsage_plain import MODEL, SMALL
from graphs import block_model, gap, identical
from loop import task
from plain import F64
from torch import Tensor
from torch_geometric.nn import SAGEConv

from fedrepro.baselines.fedsage import FedSage, FedSageSGD, _with_rows, add_true_neighbours
from fedrepro.baselines.impaired import ClientView
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.nn.models import GCN, GraphSAGE
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_new_nodes_hang_on_their_hosts(sparse: bool) -> None:
    """With the true count every node gets min(q, cut edges) neighbours of its own, joined both ways; own nodes, their
    features, labels, masks and edges stay.
    """
    data, parts = task(5, sparse=sparse)
    before = Federation.of(data, parts, dtype=F64)
    after, state = FedSage(model=MODEL, count="true", **SMALL).start(before)
    original = after.batch.ring == 0
    for name in ("y", "node_id", "train_mask", "val_mask", "test_mask", "batch"):
        assert torch.equal(after.batch[name][original], before.batch[name])
    old, new_x = (fed.x if isinstance(fed.x, Tensor) else fed.x.dense() for fed in (before, after))
    assert torch.equal(new_x[original], old) and 0 < float(new_x[~original].abs().max()) <= 1
    assert torch.equal(after.count("all"), before.count("all"))
    source, target = after.batch.edge_index
    assert bool((after.batch.batch[source] == after.batch.batch[target]).all())
    new = {(int(u), int(v)) for u, v in zip(source, target) if not (original[u] and original[v])}
    assert new == {(v, u) for u, v in new} and len(new) == 2 * int((~original).sum())
    wanted = torch.cat([ClientView.of(before, c).missing for c in range(5)]).clamp(max=3)
    wanted[before.count("train")[before.batch.batch] == 0] = 0  # no generator without training nodes
    hosts = torch.tensor([v for u, v in new if not original[u]])
    assert torch.equal(torch.bincount(hosts, minlength=after.nodes)[original], wanted)
    assert len(torch.unique(torch.stack([after.batch.batch, after.batch.node_id]), dim=1).T) == after.nodes
    assert state.more.facts[0]["added"] == pytest.approx(float(wanted.double().mean()))


def test_few_new_rows_leave_features_sparse() -> None:
    """Sparse and dense matrices with the same rows, whatever their share."""
    rows = torch.rand(30, 6, dtype=F64) * (torch.rand(30, 6) < 0.2)
    for count in (0, 2, 20):
        where = torch.zeros(30 + count, dtype=torch.bool)
        where[torch.arange(count) * 3 // 2] = True
        new = torch.rand(count, 6, dtype=F64)
        extended = _with_rows(Sparse.from_tensor(rows), new, where)
        assert isinstance(extended, Sparse) == (count < 20)
        dense = extended.dense() if isinstance(extended, Sparse) else extended
        assert torch.equal(dense[where], new) and torch.equal(dense[~where], rows)
        assert torch.equal(dense, _with_rows(rows, new, where))  # type: ignore[arg-type]


def test_without_cut_edges_nothing_is_added() -> None:
    """True count, no edge between clients: FedAvg on the same graphs, to the last bit."""
    data, parts = task(3)
    owner = torch.empty(48, dtype=torch.long)
    for number, part in enumerate(parts):
        owner[part] = number
    data.edge_index = data.edge_index[:, owner[data.edge_index[0]] == owner[data.edge_index[1]]]
    fed = Federation.of(data, parts)
    plain = train(FedAvg(model=MODEL), fed, 3).state.shared
    for options in ({"count": "true"}, {"neighbours": "ideal"}):
        assert identical(train(FedSage(model=MODEL, **options, **SMALL), fed, 3).state.shared, plain)


@pytest.mark.parametrize("kind", ["FedAvg", "FedSGD"])
def test_fedsage_without_neighbours_is_the_plain_method(kind: str) -> None:
    """FedSage is only the classifier, bitwise; with generated neighbours it is not."""
    fed = Federation.of(*task(5))
    mended, plain = {"FedAvg": (FedSage, FedAvg), "FedSGD": (FedSageSGD, FedSGD)}[kind]
    expected = train(plain(model=MODEL), fed, 3).state.shared
    assert identical(train(mended(model=MODEL, neighbours="none"), fed, 3).state.shared, expected)
    assert not identical(train(mended(model=MODEL, count="true", **SMALL), fed, 3).state.shared, expected)
    assert mended(model=MODEL).average == plain(model=MODEL).average


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_ideal_neighbours_make_the_first_layer_central(sparse: bool) -> None:
    """GraphSAGE's first layer at own nodes equals that on the whole graph, to 1e-12; each copy is joined both ways."""
    data, parts = task(5, sparse=sparse)
    fed = add_true_neighbours(Federation.of(data, parts, dtype=F64))
    x = data.x.to_dense().double() if sparse else data.x.double()
    w = MODEL.init([0], F64)
    first = GraphSAGE(features=7, classes=5, layers=1)
    got = first({name: w[name] for name in w if name.startswith("layer1")}, fed.shared())
    conv = SAGEConv(7, 5).double()
    pieces = {"lin_l.weight": w["layer1.weight"][0].T, "lin_l.bias": w["layer1.bias"][0]}
    central = torch.func.functional_call(conv, {**pieces, "lin_r.weight": w["layer1.root"][0].T}, (x, data.edge_index))
    inner = fed.batch.ring == 0
    assert gap(got[inner], central[fed.batch.node_id[inner]]) < 1e-12
    edges = {(int(u), int(v)) for u, v in fed.batch.edge_index.T}
    assert edges == {(v, u) for u, v in edges}
    outer = ~inner
    assert not any(outer[u] and outer[v] for u, v in edges)


def test_ideal_neighbours_beat_none() -> None:
    """On a graph whose edges tell the class, cut at random, true neighbours raise test accuracy by five points."""
    data = block_model(300, degree=8, features=4, isolated=0)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    fed = Federation.of(data, list(order.chunk(10)))
    options: dict[str, Any] = {"model": GraphSAGE(4, 3, hidden=16), "lr": 0.02}
    with_, without = (train(FedSage(neighbours=kind, **options), fed, 40).history for kind in ("ideal", "none"))
    scores = [h.result(0)["before"]["last"]["test"] for h in (with_, without)]
    assert scores[0] > scores[1] + 0.05


def test_what_the_generator_sends() -> None:
    """The formula of the protocol: for each epoch and ordered pair, latent rows and fGen one way, its gradient back."""
    data, parts = task(5)
    parts = [parts[i] for i in (1, 2, 4)]  # the clients that have training nodes
    fed = Federation.of(data, parts)
    outcome = train(FedSage(model=MODEL, **SMALL), fed, 1)
    fgen = 5 * 6 + 6 + 6 * 9 + 9 + 9 * 3 * 7 + 3 * 7
    trained = int(fed.count("train").sum())
    before = outcome.fed.traffic.summary()["before"]
    assert before == {"up.generator": 4 * 2 * (3 * fgen + 5 * trained), "down.generator gradients": 4 * 2 * 3 * fgen}
    outcome = train(FedSage(model=MODEL, neighbours="ideal"), fed, 1)
    copies = int((outcome.fed.batch.ring > 0).sum())
    asked = len(outcome.fed.batch.node_id[outcome.fed.batch.ring > 0].unique())
    expected = {"up.neighbour features": 7 * asked, "down.neighbour features": 7 * copies}
    assert outcome.fed.traffic.summary()["before"] == expected
    assert train(FedSage(model=MODEL, neighbours="none"), fed, 1).fed.traffic.summary()["before"] == {}


def test_facts_are_means_over_nodes_and_generators() -> None:
    """The neighbours `wanted` are counted edge by edge, at most q a node; losses are means over the three clients of
    five that have a generator.
    """
    data, parts = task(5)
    fed = Federation.of(data, parts, dtype=F64)
    method = FedSage(model=MODEL, **SMALL)
    (facts,) = method.facts(*method.start(fed))
    held = [ClientView.of(fed, client) for client in range(5)]
    last = [method.generator.train(held[i], held[:i] + held[i + 1 :], 3)[1] for i in (1, 2, 4)]
    owner = {int(v): number for number, part in enumerate(parts) for v in part}
    cut = [0] * 48
    for u, v in data.edge_index.T.tolist():
        cut[v] += owner[u] != owner[v]
    assert max(cut) > 3
    assert facts["wanted"] == pytest.approx(sum(min(number, 3) for number in cut) / 48)
    assert facts["generator_loss"] == pytest.approx(sum(each.own for each in last) / 3)
    assert facts["cross_loss"] == pytest.approx(sum(each.cross for each in last) / 3)
    assert facts["cross_loss"] > 1e-3 and abs(facts["cross_loss"] - facts["generator_loss"]) > 1e-3


def test_any_model_trains_on_mended_graphs() -> None:
    """Two runs of a GCN that generate different nodes agree, by themselves and together, to 1e-10."""
    method = FedSage(model=GCN(7, 3, hidden=5, dropout=0.5), count="true", **SMALL)
    feds = [Federation.of(*task(clients, seed), seed, dtype=F64) for seed, clients in ((3, 3), (4, 5))]
    both = train(method, Federation.stack(feds), 3)
    for run, fed in enumerate(feds):
        alone = train(method, fed, 3)
        assert gap(both.state.shared["layer1.weight"][run], alone.state.shared["layer1.weight"][0]) < 1e-10
        assert both.state.more.facts[run] == alone.state.more.facts[0]


def test_every_option_reaches_the_generator() -> None:
    """Each option of the generator arrives there under the generator's own name for it, and changes no other."""
    other_names = {name: f"generator_{name}" for name in ("epochs", "lr", "weight_decay", "dropout", "hidden", "width")}
    other_names |= {"encoder": "encoder_hidden", "true_count": "count"}
    changed: dict[str, Any] = {"scheme": "fedstruct", "true_count": True}
    default = FedSage(model=MODEL).generator
    for item in fields(default):
        value = getattr(default, item.name)
        new = changed[item.name] if item.name in changed else value + 1 if type(value) is int else value / 2
        new = not value if isinstance(value, bool) else new
        option = "true" if item.name == "true_count" else new
        method = FedSage(model=MODEL, **{other_names.get(item.name, item.name): option})
        assert new != value and method.generator == replace(default, **{item.name: new}), item.name


def test_bad_options_of_fedsage_are_refused() -> None:
    """Unknown choices and impossible numbers, by name."""
    words = {"neighbours": "some", "scheme": "paper", "count": "guess"}
    numbers = {"most": 0, "hidden_share": 1.0, "generator_dropout": 1.0, "generator_width": 0}
    for name, value in {**words, **numbers}.items():
        with pytest.raises(ArgumentError, match=name):
            FedSage(model=MODEL, **{name: value})
