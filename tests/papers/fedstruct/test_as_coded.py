"""The readings of the public code: plain layers, S that stays, raw orbits, and FedGCN on raw neighbourhoods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from graphs import block_model, dense_operator, gap, identical, unequal_parts
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

from fedrepro.baselines.fedgcn import FedGCN
from fedrepro.baselines.fedsage import FedSage
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import DGCN, GCN, GraphSAGE
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError
from fedrepro.papers.fedstruct import orbits, structure
from fedrepro.papers.fedstruct.as_coded import KnownGraphAsCoded, LocalDegrees, RawNeighbours, raw_graphlets
from fedrepro.papers.fedstruct.variants import KnownGraph

NODES, CLIENTS = 48, 4
MODEL = DGCN(7, 3, hidden=5, depth=2, input_norm=True)
SAGE: dict[str, Any] = {"model": MODEL, "width": 6, "structure_hidden": (5, 4), "backbone": "GraphSAGE"}
F64 = torch.float64


def fed_of(seed: int = 0) -> Federation:
    return Federation.of(block_model(NODES, seed=seed), unequal_parts(NODES, CLIENTS, seed), seed, dtype=F64)


def start(method: KnownGraph, seed: int = 0) -> tuple[Federation, State]:
    """A method before its first round, with weights none of which is zero."""
    fed, state = method.start(fed_of(seed))
    generator = torch.Generator().manual_seed(1)
    shared = {n: w + 0.3 * torch.randn(w.shape, generator=generator, dtype=F64) for n, w in state.shared.items()}
    return fed, replace(state, shared=shared)


def plain(state: State, data: Data, relu: bool) -> Tensor:
    """The structure branch in PyG's layers on the whole graph, `[nodes, classes]`."""
    w = {name: value[0] for name, value in state.shared.items()}
    s = w["structure"]
    s = (s - s.mean(0)) / (s.var(0, unbiased=False) + 1e-5).sqrt() * w["structure.scale"] + w["structure.shift"]
    for i in (1, 2):
        conv = SAGEConv(*w[f"structure{i}.weight"].shape).double()
        value = {"lin_l.weight": w[f"structure{i}.weight"].T, "lin_l.bias": w[f"structure{i}.bias"]}
        value["lin_r.weight"] = w[f"structure{i}.root"].T
        s = torch.func.functional_call(conv, value, (s, data.edge_index))
        s = s.relu() if i == 1 or relu else s
    return s @ w["structure3.weight"] + w["structure3.bias"]


@pytest.mark.parametrize("last", ["linear", "relu"])
def test_the_structure_branch_is_that_of_plain_layers(last: str) -> None:
    """With and without the last ReLU it equals PyG's layers to 1e-12, and the two differ."""
    method = KnownGraphAsCoded(last=last, **SAGE)
    fed, state = start(method)
    z = method.parts(state.shared, fed.shared(), state)[1][fed.batch.node_id.argsort()]
    assert gap(z, plain(state, fed.sources[0].data, last == "relu")) < 1e-12
    assert gap(z, plain(state, fed.sources[0].data, last != "relu")) > 0.01


def test_with_the_last_relu_it_is_the_tables_method() -> None:
    """The reading changes one thing: with ReLU and trained S it trains bitwise as `KnownGraph`, dropout included."""
    options = {**SAGE, "model": replace(MODEL, dropout=0.4)}
    usual = train(KnownGraph(**options), fed_of(), 3).state.shared
    assert identical(train(KnownGraphAsCoded(last="relu", **options), fed_of(), 3).state.shared, usual)
    assert not identical(train(KnownGraphAsCoded(**options), fed_of(), 3).state.shared, usual)


def test_dropout_of_hidden_layers_stays() -> None:
    """Without the last ReLU the inner layers still drop out in training, alike at all clients."""
    method = KnownGraphAsCoded(**{**SAGE, "model": replace(MODEL, dropout=0.4)})
    fed, state = start(method)
    still, first, second = (
        method.parts(state.shared, view.shared(), state)[1] for view in (fed, fed.at(0, 0), fed.at(1, 0))
    )
    assert gap(still, first) > 0.01 and gap(first, second) > 0.01


def test_an_untrained_s_stays_as_drawn() -> None:
    """S is bitwise its start after three rounds while all other weights move; trained it moves too."""
    start_s = KnownGraphAsCoded(**SAGE).start(fed_of())[1].shared
    for trained in (True, False):
        moved = train(KnownGraphAsCoded(trained=trained, weight_decay=0.01, **SAGE), fed_of(), 3).state.shared
        still = [name for name, w in moved.items() if torch.equal(w, start_s[name])]
        assert still == ([] if trained else ["structure"])


def test_raw_counts_are_standardized_counts_of_73_orbits() -> None:
    """Columns are the counts, moved and scaled; their logarithms, which the tables' reading has, are others."""
    a = structure.adjacency(block_model(NODES, seed=0))
    counts, raw = orbits.orbits(a).numpy(), raw_graphlets(a).double().numpy()
    assert raw.shape == (NODES, 73)
    varied = counts.std(0) > 0
    for column in np.flatnonzero(varied):
        assert np.corrcoef(counts[:, column], raw[:, column])[0, 1] == pytest.approx(1.0, abs=1e-6)
    assert np.allclose(raw[:, varied].mean(0), 0, atol=1e-6) and np.allclose(raw[:, varied].std(0), 1, atol=1e-5)
    assert (raw[:, ~varied] == 0).all()
    method = KnownGraphAsCoded(model=MODEL, structure="GDV-73", structure_hidden=(4,))
    s = method.start(fed_of())[1].more.exchanged.features[0]
    assert gap(s, torch.from_numpy(raw)) < 1e-6
    logs = replace(method, counts="logs").start(fed_of())[1].more.exchanged.features[0]
    assert gap(logs, structure.graphlets_of_five(a).double()) < 1e-6 and gap(s, logs) > 0.1


# -- FedGCN -----------------------------------------------------------------------------------------------------------

NET = GraphSAGE(7, 3, hidden=5, layers=2)


def test_one_hop_is_fedsages_ideal() -> None:
    """With one hop it trains bitwise as the suite's FedSage+ with true neighbours, and counts the same messages."""
    ours, ideal = (
        train(kind, fed_of(), 3) for kind in (RawNeighbours(model=NET, hops=1), FedSage(model=NET, neighbours="ideal"))
    )
    assert identical(ours.state.shared, ideal.state.shared)
    assert ours.fed.traffic.summary() == ideal.fed.traffic.summary()
    assert ours.fed.traffic.summary()["before"]["down.neighbour features"] > 0


def test_two_hops_make_two_layers_central() -> None:
    """Two GraphSAGE layers at own nodes equal those on the whole graph; with one hop they do not."""
    w = {name: value + 0.1 for name, value in NET.init([0], F64).items()}
    for hops, exact in ((2, True), (1, False)):
        fed, _ = RawNeighbours(model=NET, hops=hops).start(fed_of())
        whole = Federation.of(fed.sources[0].data, [torch.arange(NODES)], dtype=F64)
        own = fed.batch.ring == 0
        difference = gap(NET(w, fed.shared())[own], NET(w, whole.shared())[fed.batch.node_id[own]])
        assert (difference < 1e-12) == exact


def test_every_copy_is_joined_both_ways() -> None:
    """The extended graphs are symmetric, and hold no edge between two outermost copies."""
    fed, _ = RawNeighbours(model=NET, hops=2).start(fed_of())
    source, target = fed.batch.edge_index
    assert {*zip(source.tolist(), target.tolist())} == {*zip(target.tolist(), source.tolist())}
    assert len({*zip(source.tolist(), target.tolist())}) == len(source)
    assert not ((fed.batch.ring[source] == 2) & (fed.batch.ring[target] == 2)).any()


def test_local_degrees_are_the_subgraphs() -> None:
    """Layer 2 is PyG's GCNConv on a client's own subgraph; layer 1 takes the sums of the whole graph."""
    model = GCN(7, 3, hidden=5)
    method = LocalDegrees(model=model)
    fed, state = method.start(fed_of())
    w = {name: value[0] + 0.1 for name, value in state.shared.items()}
    logits = method.forward({name: value[None] for name, value in w.items()}, fed.shared(), state)
    data = fed.sources[0].data
    s = torch.from_numpy(dense_operator("gcn", data.edge_index, NODES))
    h = (s @ data.x.to_dense().double() @ w["layer1.weight"] + w["layer1.bias"]).relu()
    conv = GCNConv(5, 3).double()
    for client, part in enumerate(fed.sources[0].parts):
        inside = torch.full((NODES,), -1)
        inside[part] = torch.arange(len(part))
        ends = inside[data.edge_index]
        value = {"lin.weight": w["layer2.weight"].T, "bias": w["layer2.bias"]}
        expected = torch.func.functional_call(conv, value, (h[part], ends[:, (ends >= 0).all(0)]))
        rows = (fed.batch.batch == client).nonzero().squeeze(1)
        assert torch.equal(fed.batch.node_id[rows], part)
        assert gap(logits[rows], expected) < 1e-12
    other = FedGCN(model=model, hops=1).forward({n: v[None] for n, v in w.items()}, fed.shared(), state)
    assert gap(logits, other) > 0.001


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (KnownGraphAsCoded, {**SAGE, "last": "tanh"}, "last must be one of"),
        (KnownGraphAsCoded, {**SAGE, "counts": "log"}, "counts must be one of"),
        (KnownGraphAsCoded, {"model": MODEL, "structure": "Deg", "trained": False}, "trained must be True"),
        (RawNeighbours, {"model": NET, "hops": 3}, "hops must be one of"),
        (LocalDegrees, {"model": GCN(7, 3, hidden=5), "hops": 2}, "hops must be 1"),
    ],
)
def test_odd_options_are_refused(kind: Any, options: dict[str, Any], message: str) -> None:
    """The error names the argument and what is allowed."""
    with pytest.raises(ArgumentError, match=message):
        kind(**options)
