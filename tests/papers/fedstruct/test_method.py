"""Compare FedStruct with plain PyG layers on dense powers of D~^-1 (A+I), and with central training."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import Plain, block_model, client_graph, dense_operator, gap, identical, largest_difference
from graphs import unequal_parts as parts_of
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

from fedrepro import registry
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import DGCN, MLP, SAGEHead
from fedrepro.engine.training import client_gradients, train
from fedrepro.errors import ArgumentError
from fedrepro.papers.fedstruct import network, powers, structure
from fedrepro.papers.fedstruct.method import FedStruct, StructureMethod
from fedrepro.papers.fedstruct.variants import KnownGraph, SharedSums, choice

NODES, CLIENTS, DEPTH = 48, 4, 3
MODEL = DGCN(7, 3, hidden=5, depth=2, input_norm=True)
SMALL: dict[str, Any] = {"width": 6, "structure_hidden": (4,), "structure_depth": DEPTH, "walk": 3, "walk_epochs": 1}
KINDS = [
    {"structure": "H2V", "prune": 0},
    {"structure": "H2V", "prune": 4},
    {"structure": "H2V", "prune": 4, "budget": "blocks"},
    {"structure": "H2V", "head": "direct", "prune": 0},
    {"structure": "H2V", "head": "direct", "prune": 4, "beta": (0.2, -0.5, 0.3, 1.0)},
    {"structure": "Deg", "prune": 0, "beta": (0.2, -0.5, 0.3, 1.0)},
    {"structure": "Fed*", "prune": 4, "norm": False},
    {"structure": "GDV", "prune": 0, "structure_hidden": (4, 3)},
    {"structure": "N2V", "prune": 4, "structure_hidden": ()},
    {"structure": "H2V", "prune": 0, "graph": "known", "backbone": "GraphSAGE", "structure_hidden": (4, 3)},
    {"structure": "GDV", "prune": 0, "graph": "known", "combine": "layer"},
    {"structure": "H2V", "prune": 0, "double_softmax": True},
    {"structure": "H2V", "prune": 4, "structure_depth": 0},
    {"structure": "Deg", "prune": 0, "structure_depth": 0},
    {"structure": "none"},
]
EVERY = pytest.mark.parametrize("options", KINDS, ids=lambda o: "-".join(str(v) for v in o.values()))


def graph(seed: int = 0) -> tuple[Data, list[Tensor]]:
    """Return a small graph and its parts: client 0 has one node, and client 1 no training node."""
    data, parts = block_model(NODES, seed=seed), parts_of(NODES, CLIENTS, seed)
    data.train_mask[parts[1]] = False
    data.train_mask[parts[0]] = True
    return data, parts


def build(options: dict[str, Any], **more: Any) -> StructureMethod:
    return choice(**{"model": MODEL, **SMALL, **options, **more})


def start(options: dict[str, Any], seed: int = 0, **more: Any) -> tuple[StructureMethod, Federation, State]:
    """Return a method before its first round, with weights none of which is zero."""
    data, parts = graph(seed)
    method = build(options, **more)
    fed, state = method.start(Federation.of(data, parts, seed, dtype=torch.float64))
    generator = torch.Generator().manual_seed(1)
    shared = {
        name: w + 0.3 * torch.randn(w.shape, generator=generator, dtype=w.dtype) for name, w in state.shared.items()
    }
    return method, fed, replace(state, shared=shared)


class Reference(nn.Module):
    """FedStruct in plain layers: one weight set, dense matrices, one graph per client."""

    def __init__(self, method: StructureMethod, fed: Federation, state: State) -> None:
        super().__init__()
        source, shared = fed.sources[0], {name: w[0] for name, w in state.shared.items()}
        self.method, self.data = method, source.data
        self.sage = isinstance(method, KnownGraph) and method.backbone == "GraphSAGE"
        self.layer = isinstance(method, KnownGraph) and method.combine == "layer"
        self.graphs = [client_graph(source.data, part) for part in source.parts]
        self.f = Plain(method.model, {n: w for n, w in shared.items() if n.startswith(("layer", "norm"))})
        own = {n.replace(".", "_"): nn.Parameter(w.clone()) for n, w in shared.items() if n[0] in "sc"}
        self.own = nn.ParameterDict(own)
        got = state.more.exchanged
        self.s = None if got is None or got.features is None else got.features[0]
        if got is not None:
            step = dense_operator("row", source.data.edge_index, NODES)
            beta = method.weights_of_powers
            full = sum(b * np.linalg.matrix_power(step, k) for k, b in enumerate(beta))
            self.a = torch.from_numpy(got.matrices[0].toarray() if getattr(method, "prune", 0) else np.asarray(full))

    def embeddings(self) -> Tensor:
        """Return sum_u A-_vu g(s_u) at every node."""
        w, sage = self.own, self.sage
        h = w["structure"] if self.s is None else self.s
        layers = [n for n in w if n.endswith("_weight")]
        if "structure_scale" in w:
            how = (h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-5).sqrt() if sage else F.layer_norm(h, h.shape[1:])
            h = how * w["structure_scale"] + w["structure_shift"]
        for i in range(1, len(layers) + 1):
            if sage and i < len(layers):
                conv = SAGEConv(*w[f"structure{i}_weight"].shape).double()
                value = {"lin_l.weight": w[f"structure{i}_weight"].T, "lin_l.bias": w[f"structure{i}_bias"]}
                value["lin_r.weight"] = w[f"structure{i}_root"].T
                h = torch.func.functional_call(conv, value, (h, self.data.edge_index))
            else:
                h = h @ w[f"structure{i}_weight"] + w[f"structure{i}_bias"]
            h = F.relu(h) if i < len(layers) else h
        return h if sage else self.a @ h

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return f and the structure embeddings, in the order of the graph's nodes."""
        h = torch.zeros(NODES, 3, dtype=torch.float64)
        for g in self.graphs:
            h = h.index_add(0, g.node_id, self.f(g))
        if self.method.structure == "none":
            return h, torch.zeros_like(h)
        z = self.embeddings()
        if self.layer:
            return h @ self.own["combine_features"], z @ self.own["combine_structure"]
        return h, z

    def loss(self) -> Tensor:
        """Return the mean over all training nodes (Eq. 3 and 5)."""
        logits = sum(self.forward())
        logits = logits.softmax(1) if self.method.double_softmax else logits
        return F.cross_entropy(logits[self.data.train_mask], self.data.y[self.data.train_mask])

    def weights(self) -> Weights:
        """Return the weights under the package's names."""
        return {**self.f.slice(), **{n.replace("_", "."): w.detach() for n, w in self.own.items()}}


def in_order(fed: Federation, rows: Tensor) -> Tensor:
    return rows[fed.batch.node_id.argsort()]


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
    made = train(method, fed, 4)
    for _ in range(4):
        stepper.zero_grad()
        reference.loss().backward()
        stepper.step()
    moved = {name: w[0] for name, w in made.state.shared.items()}
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
    made = [
        train(kind, fed, 3).state.shared for kind in (FedSGD(model=model), build({"structure": "none"}, model=model))
    ]
    assert identical(*made)


# -- what crosses a client's border -----------------------------------------------------------------------------------


@EVERY
def test_the_servers_gradient_is_the_mean_of_the_clients(options: dict[str, Any]) -> None:
    """The mean is weighted by training nodes (Eq. 5); dropout is on, since all clients draw the same masks for g."""
    method, fed, state = start(options, model=replace(MODEL, dropout=0.4))
    each = client_gradients(method, fed, state, t=2)
    leaves = {name: w.clone().requires_grad_() for name, w in state.shared.items()}
    share = fed.count("train") / fed.count("train").sum()
    loss = (method.local_loss(leaves, fed.shared().at(2, 0), state, 2) * share).sum()
    whole = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))
    mean = {name: torch.einsum("k,k...->...", share.to(w.dtype), w)[None] for name, w in each.items()}
    # f's masks are each client's own, and the same either way
    assert largest_difference(whole, mean) < 1e-12


def with_edges(fed: Federation, client: int) -> Federation:
    """Remove every second edge inside all other clients, after the exchange."""
    batch = fed.batch.clone()
    other = batch.batch[batch.edge_index[1]] != client
    batch.edge_index = batch.edge_index[:, ~other | (other.cumsum(0) % 2 == 0)]
    return replace(fed, batch=batch, _cache={})


def with_labels(fed: Federation, client: int) -> Federation:
    """Change the labels at all other clients."""
    batch = fed.batch.clone()
    batch.y = torch.where(batch.batch == client, batch.y, (batch.y + 1) % 3)
    return replace(fed, batch=batch, _cache={})


@EVERY
@pytest.mark.parametrize("change", [with_edges, with_labels])
def test_a_client_computes_from_what_it_received(options: dict[str, Any], change: Any) -> None:
    """Other clients' edges and labels, changed after the exchange, leave a client's gradient bitwise as it was."""
    method, fed, state = start(options, model=replace(MODEL, dropout=0.4))
    before = client_gradients(method, fed, state)
    for client in range(CLIENTS):
        after = client_gradients(method, change(fed, client), state)
        changed = [not torch.equal(a[k], b[k]) for a, b in zip(before.values(), after.values()) for k in [client]]
        assert not any(changed), client


def test_a_client_needs_its_rows_and_s_alone() -> None:
    """Other clients' rows of A- do not matter to a client, and its own do (Proposition 1)."""
    method, fed, state = start(KINDS[1])
    before = client_gradients(method, fed, state)
    got, mine = state.more.exchanged, fed.sources[0].parts[3].numpy()
    for inside in (False, True):
        m = got.matrices[0].toarray()
        rows = np.isin(np.arange(NODES), mine) == inside
        m[rows] *= 1.5
        moved = got._replace(matrices=(type(got.matrices[0])(m),))
        after = client_gradients(method, fed, replace(state, more=state.more._replace(exchanged=moved)))
        assert identical(*({n: w[3] for n, w in g.items()} for g in (before, after))) is not inside


def test_runs_side_by_side_are_runs_alone() -> None:
    """Three rounds of three seeds on three graphs, with dropout, equal the runs by themselves to 1e-10."""
    method = build(KINDS[1], model=replace(MODEL, dropout=0.4), lr=0.02)
    alone = [Federation.of(*graph(seed), seed, dtype=torch.float64) for seed in (0, 1, 2)]
    together = train(method, Federation.stack(alone), 3).state.shared
    for run, fed in enumerate(alone):
        made = train(method, fed, 3).state.shared
        assert largest_difference({n: w[0] for n, w in made.items()}, {n: w[run] for n, w in together.items()}) < 1e-10


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
    made = train(method, fed, 20)
    assert len(ratios) == 20 and float(np.median(ratios)) > 1e-3
    assert gap(made.state.shared["structure"], method.start(fed)[1].shared["structure"]) > 0.05


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


# -- traffic ----------------------------------------------------------------------------------------------------------


def traffic(options: dict[str, Any]) -> tuple[StructureMethod, Federation, dict[str, dict[str, float]], State]:
    method = build(options)
    made = train(method, Federation.of(*graph()), 2)
    return method, made.fed, made.fed.traffic.summary(), made.state


def test_before_training_blocks_and_structure_features_travel() -> None:
    """S goes up once and down to the other clients; each value of a pruned block comes with two indices."""
    _, fed, seen, _ = traffic(KINDS[1])
    source = fed.sources[0]
    sent = powers.combined(source.data, source.parts, [0, 0, 0, 1], 4)[1]
    blocks = {"up.power blocks": sent, "down.power blocks": sent}
    indices = {"up.power indices": 2 * sent, "down.power indices": 2 * sent}
    features = {"up.structure features": NODES * 6, "down.structure features": (CLIENTS - 1) * NODES * 6}
    assert seen["before"] == blocks | indices | features
    assert sent > 0


def test_unpruned_rows_travel_whole() -> None:
    """A row of n numbers is sent for each power from the second, each node, and each other client with a neighbour."""
    _, _, seen, _ = traffic(KINDS[0])
    data, parts = graph()
    owner = powers.owners(parts, NODES)
    pairs = {(v, owner[u]) for u, v in data.edge_index.T.tolist() if owner[u] != owner[v]}
    assert seen["before"]["up.power blocks"] == (DEPTH - 1) * NODES * len(pairs)
    assert "up.power indices" not in seen["before"]


def test_each_round_weights_and_gradients_travel() -> None:
    """Every client with training nodes receives weights and sends gradients; S is among them only for Hop2Vec."""
    for options, s in ((KINDS[1], NODES * 6), (KINDS[5], 0)):
        _, _, seen, state = traffic(options)
        each = sum(w[0].numel() for w in state.shared.values())
        assert ("structure" in state.shared) == bool(s) and each > s
        assert seen["training"] == {"down.weights": 2 * 3 * each, "up.gradients": 2 * 3 * each}


def test_aggregates_are_sent_in_place_of_s() -> None:
    """A labelled node and another client cost c sums, and with a fixed S also c per weight of g (Eq. 47 and 48)."""
    for options in ({"structure": "Deg", "prune": 4}, {"structure": "H2V", "head": "direct", "prune": 4}):
        plain, (method, fed, seen, state) = traffic(options), traffic({**options, "sharing": "aggregates"})
        assert identical(plain[3].shared, state.shared)
        labelled = int(fed.batch.train_mask.sum())
        g = sum(w[0].numel() for n, w in state.shared.items() if n.startswith("structure") and n != "structure")
        assert (g > 0) == (method.structure == "Deg")
        assert seen["training"]["up.aggregates"] == 2 * labelled * (CLIENTS - 1) * 3 * (1 + g)
        assert "up.structure features" not in seen["before"]
        m, source = state.more.exchanged.matrices[0].toarray(), fed.sources[0]
        owner = powers.owners(source.parts, NODES)
        rows = (owner[:, None] != owner[None]) & source.data.train_mask.numpy()[:, None]
        assert seen["before"]["up.combined entries"] == (m[rows.nonzero()] > 0).sum()


def test_a_server_that_knows_the_graph_sends_embeddings_and_jacobians() -> None:
    """The server sends nothing before training; then c numbers per labelled node, and c per weight of the branch."""
    _, fed, seen, state = traffic(KINDS[9])
    labelled = int(fed.batch.train_mask.sum())
    g = sum(w[0].numel() for n, w in state.shared.items() if n.startswith("structure"))
    assert seen["before"] == {}
    assert seen["training"]["down.structure embeddings"] == 2 * labelled * 3
    assert seen["training"]["down.structure jacobians"] == 2 * labelled * 3 * g


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
