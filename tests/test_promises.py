"""The two promises every method keeps: clients do not interfere between messages, and what the method adds is alive.

A new method needs an entry in `CASES`; without one the first test here fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import fake_cuda
import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro import registry
from fedrepro.baselines.personal import clients_of
from fedrepro.baselines.pfedhn import PFedHN
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.nn.models import DGCN, GAT, GCN, MLP, GraphSAGE, Model
from fedrepro.engine.training import Trained, client_gradients, train
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.theory.diffusion import AS_TRAINED, switch_off

FEATURES, CLASSES, CLIENTS, SEEDS = 12, 3, 5, (0, 1, 2)
ROUNDS = 30


@dataclass(frozen=True)
class Case:
    """How a method is put to the test.

    Args:
        model: its network.
        options: hyper-parameters beside those all methods get.
        clients: per run.
        signal: what the method adds beside a classifier on a client's own graph, as far as a gradient can reach it:
            names of weights, or "received" for the rows of other clients' nodes.
        off: ways to switch off what it adds: the name and options of another run, or a change of the trained state.
            Empty only for a method that exchanges nothing.
    """

    model: Model
    options: dict[str, Any] = field(default_factory=dict)
    clients: int = CLIENTS
    signal: tuple[str, ...] = ()
    off: tuple[Way, ...] = ()


Way = tuple[str, dict[str, Any]] | Callable[[Any, Federation, State], State]


def without_attention(method: Method, fed: Federation, state: State) -> State:
    """Layer 1 as a plain mean over neighbours."""
    silent = ("layer1.source", "layer1.target")
    return replace(state, shared={n: torch.zeros_like(w) if n in silent else w for n, w in state.shared.items()})


def one_description(method: PFedHN, fed: Federation, state: State) -> State:
    """pFedHN's clients with one description: their mean."""
    networks = [{**n, "clients": n["clients"].mean(1, keepdim=True).expand_as(n["clients"])}
                for n in state.more.networks]  # fmt: skip
    return replace(state, personal=method._written(fed, state.more._replace(networks=networks), state.personal))


def off(switch: str) -> Callable[[FedSheafHN, Federation, State], State]:
    """What FedSheafHN's clients get with a part of its trained server switched off, see `switch_off`."""

    def way(method: FedSheafHN, fed: Federation, state: State) -> State:
        return switch_off(method, fed, state, switch)

    way.__name__ = switch
    return way


GCN_, GAT_ = GCN(FEATURES, CLASSES, hidden=16), GAT(FEATURES, CLASSES, hidden=4, heads=4)
MLP_ = MLP(FEATURES, CLASSES, hidden=16)  # sees no edge within a client
SAGE_ = GraphSAGE(FEATURES, CLASSES, hidden=16)
SMALL = {
    "generator_epochs": 6,
    "generator_hidden": 16,
    "generator_width": 32,
    "generator_lr": 0.01,
    "hidden_share": 0.5,
}
SAINT_ = GCN(FEATURES, CLASSES, hidden=16, layers=3)
STEPS = {"unit": "iteration", "coverage": 5.0}  # a round of one step: labels shape embeddings from the second on
# FedSheafHN's embeddings are made after training, so labels shape its first message: not without a warm-up.
EARLY = {"warmup": 0, "hyper_hidden": 16, "steps": 1}
SHEAF = {**EARLY, "local_epochs": 3}
CASES = {
    "Central": Case(GCN_, clients=1),
    "Local": Case(GCN_),
    "GFL-APPNP": Case(MLP_, off=(("FedMLP", {}),)),
    "FedMLP": Case(MLP_, off=(("MLPs", {}),)),
    "MLPs": Case(MLP_),
    "CentralUnbiased": Case(GCN_, clients=1),
    "FedAvg": Case(GCN_, off=(("Local", {}),)),
    "FedSGD": Case(GCN_, off=(("Local", {}),)),
    "DistGAT": Case(GAT_, off=(("Local", {}),)),
    "FedGCN": Case(GCN_, signal=("received",), off=(("FedGCN", {"hops": 0}), ("FedGCN", {"hops": 1}))),
    "FedProx": Case(GCN_, {"mu": 1.0, "local_epochs": 3}, off=(("FedProx", {"mu": 0.0}), ("Local", {}))),
    "FedPer": Case(GCN_, off=(("FedAvg", {}), ("Local", {}))),
    "FED-PUB": Case(
        GCN_,
        {"scale": 20.0},
        signal=("layer1.weight.mask", "layer2.weight.mask"),
        off=(("FED-PUB", {"scale": 0.0}), ("FED-PUB", {"masks": False}), ("Local", {})),
    ),
    "FedStruct": Case(
        DGCN(FEATURES, CLASSES, hidden=16, depth=1),
        {"width": 16, "structure_hidden": (16,), "structure_depth": 2, "prune": 10},
        off=(("FedStruct", {"structure": "none"}), ("Local", {})),
    ),
    "FedStruct (as coded)": Case(
        DGCN(FEATURES, CLASSES, hidden=16, depth=1),
        {"width": 16, "structure_hidden": (16,), "backbone": "GraphSAGE"},
        off=(("FedStruct", {"structure": "none"}), ("Local", {})),
    ),
    "FedGCN (raw neighbours)": Case(
        GraphSAGE(FEATURES, CLASSES, hidden=16), signal=("received",), off=(("FedAvg", {}), ("Local", {}))
    ),
    # One round of sums gives a client rows of its own nodes only.
    "FedGCN (local degrees)": Case(GCN_, off=(("FedGCN", {"hops": 0}), ("Local", {}))),
    "FedSage+": Case(SAGE_, SMALL, signal=("received",), off=(("FedSage+", {"neighbours": "none"}), ("Local", {}))),
    "pFedHN": Case(GCN_, {"local_epochs": 3, "server_lr": 0.003}, off=(one_description, ("Local", {}), ("FedAvg", {}))),
    "pFedGraph": Case(GCN_, {"local_epochs": 5, "alpha": 0.2}, off=(("pFedGraph", {"alpha": 1e9}), ("Local", {}))),
    "Flow": Case(GCN_, {"local_epochs": 3}, off=(("FedAvg", {}), ("Local", {}))),
    "FGGP": Case(
        GCN_,
        {"local_epochs": 2},
        off=(("FGGP", {"augment": False}), ("FGGP", {"cluster": "mean"}), ("Local", {})),
    ),
    "FGGP (activated)": Case(GCN_, {"local_epochs": 2}, off=(("FGGP", {"local_epochs": 2}), ("Local", {}))),
    "FedSage+ (FedSGD)": Case(
        SAGE_,
        {**SMALL, "scheme": "fedstruct", "count": "true"},
        signal=("received",),
        off=(("FedSage+ (FedSGD)", {"neighbours": "none"}), ("Local", {})),
    ),
    "FedSheafHN": Case(
        GCN_,
        SHEAF,
        off=(off("one client's vector for all"), off("no diffusion"), off("untrained server"), ("Local", {})),
    ),
    "FedSheafHN (as printed)": Case(GCN_, EARLY, off=(("FedSheafHN", EARLY), off("untrained server"), ("Local", {}))),
    "FedSheafHN (as coded)": Case(GCN_, EARLY, off=(("Local", {}),)),
    "GraphSAINT": Case(SAINT_, STEPS),
    "GraphSAINT-SW": Case(SAINT_, {**STEPS, "q": 2}, off=(("GraphSAINT", STEPS),)),
    "Feras": Case(SAINT_, {**STEPS, "q": 2}, off=(("GraphSAINT-SW", {**STEPS, "q": 2}), ("GraphSAINT", STEPS))),
    "FedGAT": Case(
        GAT_, signal=("received", "layer1.source", "layer1.target"), off=(("DistGAT", {}), without_attention)
    ),
    "DistGAT (FedSGD)": Case(GAT_, off=(("Local", {}),)),
    "FedGAT (FedSGD)": Case(
        GAT_, signal=("received", "layer1.source", "layer1.target"), off=(("DistGAT (FedSGD)", {}), without_attention)
    ),
    "DistGAT (as coded)": Case(GAT_, off=(("Local", {}),)),
    # The code's scores are too near to uniform for its attention to be a signal.
    "FedGAT (as coded)": Case(
        replace(GAT_, input_dropout=0.0), signal=("received",), off=(("DistGAT (as coded)", {}),)
    ),
}
EVERY = pytest.mark.parametrize("name", sorted(CASES))
CHUNKS = pytest.mark.parametrize("chunk", [None, 2], ids=["together", "in chunks"])


def graph(seed: int, sparse: bool = False) -> Data:
    """A stochastic block model whose edges say more of the class than its features do."""
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=240)
    upper = np.triu(rng.random((240, 240)) < np.where(y[:, None] == y, 0.06, 0.015), 1)
    x = 0.7 * np.eye(CLASSES, FEATURES)[y] + 0.5 * rng.normal(size=(240, FEATURES))
    if sparse:
        x *= rng.random(x.shape) < 0.2
    role = rng.random(240)
    return Data(
        x=torch.tensor(x, dtype=torch.float32), y=torch.from_numpy(y), num_classes=CLASSES,
        edge_index=torch.from_numpy(np.array(np.nonzero(upper | upper.T))), train_mask=torch.from_numpy(role < 0.2),
        val_mask=torch.from_numpy((role >= 0.2) & (role < 0.3)), test_mask=torch.from_numpy(role >= 0.3),
    )  # fmt: skip


def federate(
    data: Data, clients: int, seed: int, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Federation:
    """Clients of unequal size, drawn at random: most edges join two of them."""
    order = np.random.default_rng(seed).permutation(data.num_nodes)
    cuts = np.cumsum(np.arange(1, clients) * data.num_nodes // (clients * (clients + 1) // 2))
    parts = [torch.from_numpy(part) for part in np.split(order, cuts)]
    return Federation.of(data, parts, seed, dtype=dtype, device=device)


def runs(
    name: str, change: Callable[[int, Data], Data] | None = None, sparse: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Federation:  # fmt: skip
    """Three runs of a method side by side, each on a graph of its own.

    Args:
        change: of the graph of each run.
    """
    graphs = [graph(seed, sparse) for seed in SEEDS]
    graphs = [change(run, data) if change else data for run, data in enumerate(graphs)]
    return Federation.stack([federate(d, CASES[name].clients, seed, dtype) for seed, d in zip(SEEDS, graphs)])


def build(name: str, dropout: float = 0.0, **options: Any) -> Method:
    case = CASES[name]
    model = replace(case.model, dropout=dropout)
    made: Method = registry.load("train", name)(model=model, **{**case.options, **options})
    return made


def variant(name: str, options: dict[str, Any], kind: str = "") -> Method:
    """A method with a case's model; the case's own options hold for its own method alone."""
    own = CASES[name].options if kind in ("", name) else {}
    made: Method = registry.load("train", name)(model=CASES[kind or name].model, **{**own, **options})
    return made


def test_every_registered_method_has_an_entry() -> None:
    """A method that is registered without an entry in `CASES` fails here."""
    assert sorted(CASES) == registry.names("train")


Heard = list[tuple[Tensor, tuple[Tensor, ...]]]

# -- non-interference -------------------------------------------------------------------------------------------------


def computed(
    method: Method, fed: Federation, state: State, chunk: int | None, heard: Heard | None = None, client: int = -1
) -> Weights:
    """What each client computes in one round before its next message: `[clients, ...]`, weights or gradients.

    Args:
        heard: messages that clients receive inside a step, for a method with `receive`: filled if it is empty, else
            `client` hears its part of them again, so that nothing else of the other clients reaches it.
    """
    if method.upload == "gradients":
        return client_gradients(method, fed, state)
    seen: list[Update] = []
    record, again = heard is not None and not heard, iter(heard or ())

    class Watched(type(method)):  # type: ignore[misc]
        def receive(self, inside: Federation, *args: Any) -> tuple[Tensor, ...]:
            made = super().receive(inside, *args)
            owner = inside.batch.batch
            if record:
                assert heard is not None
                heard.append((owner, made))
            elif heard:
                of, before = next(again)
                made = tuple(part.clone() for part in made)
                for part, old in zip(made, before, strict=True):
                    part[owner == client] = old[of == client]
            return made  # type: ignore[no-any-return]

        def start(self, _: Federation) -> tuple[Federation, State]:
            return fed, state

        def aggregate(self, state: State, update: Update) -> State:
            seen.append(update)
            return super().aggregate(state, update)  # type: ignore[no-any-return]

    train(Watched(**{f.name: getattr(method, f.name) for f in fields(method)}), fed, 1, evaluate=(), chunk=chunk)
    return seen[0].after


def same(a: Weights, b: Weights, client: int) -> bool:
    return all(torch.equal(a[name][client], b[name][client]) for name in a)


def with_features(fed: Federation, nodes: Tensor) -> Federation:
    """Other features at these nodes of the batch."""
    assert isinstance(fed.x, Tensor)
    return fed.with_features(fed.x + nodes[:, None].float())


def with_labels(fed: Federation, nodes: Tensor) -> Federation:
    """Other labels at these nodes of the batch."""
    batch = fed.batch.clone()
    batch.y = torch.where(nodes, (batch.y + 1) % CLASSES, batch.y)
    return replace(fed, batch=batch, _cache={})


def with_edges(fed: Federation, nodes: Tensor) -> Federation:
    """Every other edge that arrives at these nodes of the batch taken away, and one added from each client's first."""
    batch = fed.batch.clone()
    arriving = nodes[batch.edge_index[1]]
    keep = ~arriving | (arriving.cumsum(0) % 2 == 0)
    target = nodes.nonzero().squeeze(1)
    added = torch.stack([batch.ptr[batch.batch[target]], target])
    batch.edge_index = torch.cat([batch.edge_index[:, keep], added[:, added[0] != added[1]]], dim=1)
    if batch.get("edge_weight") is not None:
        count = batch.edge_index.shape[1] - int(keep.sum())
        batch.edge_weight = torch.cat([batch.edge_weight[keep], batch.edge_weight.new_full((count,), 0.3)])
    return replace(fed, batch=batch, _cache={})


def some(fed: Federation) -> list[int]:
    """Five of the clients, of every run."""
    return list(range(fed.clients))[:: max(1, fed.clients // 5)]


def local_epochs(name: str) -> dict[str, int]:
    """Two, where a client takes steps at all."""
    return {} if registry.load("train", name).upload == "gradients" else {"local_epochs": 2}


@EVERY
@pytest.mark.parametrize("change", [with_features, with_labels])
@CHUNKS
def test_features_and_labels_of_others_change_nothing(
    name: str, change: Callable[[Federation, Tensor], Federation], chunk: int | None
) -> None:
    """Other features or labels at all other clients after the exchange leave a client's round bitwise as it was; at
    the client itself they do not.
    """
    method = build(name, dropout=0.3, **local_epochs(name))
    fed, state = method.start(runs(name))
    heard: Heard = []
    before = computed(method, fed, state, chunk, heard)
    able = fed.count("train") > 0
    for client in some(fed):
        mine = fed.batch.batch == client
        assert same(before, computed(method, change(fed, ~mine), state, chunk, heard, client), client), client
        assert same(before, computed(method, change(fed, mine), state, chunk), client) != bool(able[client]), client


# Other edges move a client's entries in the chunk's tensors. A vectorized exponential rounds the last few entries of
# a tensor differently from the rest, so attention is bitwise only in chunks of one; the test after this bounds it.
EDGED = {name: case for name, case in CASES.items() if not isinstance(case.model, MLP)}
BITWISE = [(n, c) for n, case in EDGED.items() for c in (None, 2, 1) if c == 1 or not isinstance(case.model, GAT)]


@pytest.mark.parametrize(("name", "chunk"), BITWISE)
def test_edges_of_others_change_nothing(name: str, chunk: int | None) -> None:
    """Other edges at all other clients after the exchange leave a client's round bitwise as it was; at the client
    itself they do not.
    """
    method = build(name, dropout=0.3, **local_epochs(name))
    fed, state = method.start(runs(name))
    heard: Heard = []
    before = computed(method, fed, state, chunk, heard)
    able = fed.count("train") > 0
    for client in some(fed):
        mine = fed.batch.batch == client
        assert same(before, computed(method, with_edges(fed, mine), state, chunk), client) != bool(able[client]), client
    for client in some(fed):
        other = fed.batch.batch != client
        assert same(before, computed(method, with_edges(fed, other), state, chunk, heard, client), client), client


@EVERY
@CHUNKS
def test_edges_of_others_change_no_more_than_rounding(name: str, chunk: int | None) -> None:
    """The same in float64 with gradient descent, which does not magnify rounding: within 1e-14."""
    method = build(name, dropout=0.3, optimizer="sgd", lr=0.1, **local_epochs(name))
    fed, state = method.start(runs(name, dtype=torch.float64))
    heard: Heard = []
    before = computed(method, fed, state, chunk, heard)
    for client in some(fed):
        after = computed(method, with_edges(fed, fed.batch.batch != client), state, chunk, heard, client)
        assert max(float((after[key][client] - w[client]).abs().max()) for key, w in before.items()) < 1e-14


def shifted_labels(part: Tensor, data: Data) -> Data:
    data.y = data.y.clone()
    data.y[part] = (data.y[part] + 1) % CLASSES
    return data


@EVERY
def test_labels_never_travel(name: str) -> None:
    """Other labels at one client, from the start, leave what every other client computes bitwise as it was."""
    method = build(name)
    before = computed(method, *method.start(runs(name)), None)
    part = runs(name).sources[0].parts[0]
    after = computed(method, *method.start(runs(name, lambda run, d: d if run else shifted_labels(part, d))), None)
    unchanged = [same(before, after, client) for client in range(len(SEEDS) * CASES[name].clients)]
    assert unchanged == [False] + [True] * (len(unchanged) - 1)


@EVERY
def test_a_client_sees_every_message(name: str) -> None:
    """Each weight the server sends changes what clients train, each row of another's node what its holder predicts."""
    method = build(name)
    fed, state = method.start(runs(name))
    before = computed(method, fed, state, None)
    able = fed.count("train") > 0
    generator = torch.Generator().manual_seed(0)
    for weight, w in state.shared.items():
        bump = torch.rand(w.shape, generator=generator)
        bumped = replace(state, shared={**state.shared, weight: w + 0.1 * bump})
        after = computed(method, fed, bumped, None)
        deaf = [same(before, after, client) for client in range(fed.clients)]
        if method.upload == "gradients" and weight.endswith((".source", ".target")):
            # attention to a node alone, or moved alike for all neighbours, is what it was
            assert not all(deaf) and all(torch.tensor(deaf)[~able]), weight
        else:
            assert deaf == (~able).tolist(), weight
    own, whole = fed.batch.ring == 0, method.predict(fed, state)
    received = (~own).nonzero().squeeze(1)
    for row in received[:: max(1, len(received) // 60)].tolist():
        client = fed.batch.batch == fed.batch.batch[row]
        moved = (method.predict(with_features(fed, torch.arange(fed.nodes) == row), state) != whole).any(1)
        assert bool(moved[own & client].any()) and not bool(moved[~client].any()), row


def test_methods_that_exchange_before_training_are_told_apart() -> None:
    """Only FedGCN, FedGAT and FedSage+ hold rows of other nodes; central and local training send nothing at all."""
    holding, silent = set(), set()
    for name in CASES:
        _, fed, _ = train(build(name), runs(name), 1)
        if bool((fed.batch.ring > 0).any()):
            holding.add(name)
        if not any(fed.traffic.summary()["bytes"].values()):
            silent.add(name)
    known = {"FedGCN", "FedGAT", "FedGAT (FedSGD)", "FedGAT (as coded)", "FedSage+", "FedSage+ (FedSGD)"}
    known |= {"FedGCN (raw neighbours)"}
    assert holding == {name for name, case in CASES.items() if "received" in case.signal} == known
    alone = {"Central", "Local", "CentralUnbiased", "MLPs", "GraphSAINT"}
    assert silent == {name for name, case in CASES.items() if not case.off} == alone


# -- a NaN stays in its run -------------------------------------------------------------------------------------------


def poisoned(run: int, data: Data) -> Data:
    """A NaN in place of one feature of a training node of run 1."""
    if run == 1:
        data.x = data.x.clone()
        node = int(data.train_mask.nonzero()[5])
        data.x[node, int(data.x[node].nonzero()[0])] = torch.nan
    return data


@EVERY
@CHUNKS
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_nan_in_one_run_leaves_the_others_bitwise(name: str, chunk: int | None, sparse: bool) -> None:
    """A run that diverges is named, and the runs beside it keep every weight and score to the last bit."""
    method = build(name, dropout=0.3)
    sound = train(method, runs(name, sparse=sparse), 3, chunk=chunk)
    ill = train(method, runs(name, poisoned, sparse), 3, chunk=chunk)
    assert sound.history.diverged == {}
    assert list(ill.history.diverged) == [1]
    for run in (0, 2):
        clients = ill.fed.run == run
        for name_of, w in ill.state.shared.items():
            assert torch.equal(w[run], sound.state.shared[name_of][run])
        for name_of, w in ill.state.personal.items():
            assert torch.equal(w[clients], sound.state.personal[name_of][clients])
        assert ill.history.result(run) == sound.history.result(run)
        assert [x[run] for x in ill.history.loss] == [x[run] for x in sound.history.loss]
    assert all(bool(w[1].isnan().any()) for w in ill.state.shared.values())


# -- alive ------------------------------------------------------------------------------------------------------------


@cache
def trained(name: str, options: tuple[tuple[str, Any], ...] = (), kind: str = "") -> Trained:
    """Three runs of a method; `kind` names another method whose model and graphs are used."""
    return train(variant(name, dict(options), kind), runs(kind or name), ROUNDS, evaluate=())


def predictions(method: Method, fed: Federation, state: State) -> list[Tensor]:
    """Predicted classes of each run's test nodes, in the order of their ids."""
    chosen = method.predict(fed, state).argmax(1)
    found = []
    for run in range(fed.runs):
        rows = ((fed.batch.ring == 0) & fed.batch.test_mask & (fed.run[fed.batch.batch] == run)).nonzero().squeeze(1)
        found.append(chosen[rows[fed.batch.node_id[rows].argsort()]])
    return found


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
    """Of the switches the untrained server is the one that tells: taking back what the server learned changes no
    prediction if it does not step, nor in the public code's variant, whose Delta is zero.
    """
    still = {"hyper_lr": 1e-12, "sheaf_lr": 1e-12, "hyper_weight_decay": 0.0, "sheaf_weight_decay": 0.0}
    assert max(changed("FedSheafHN", off("untrained server"), **still)) < 0.01
    # its sheaf decays, and no more
    assert changed("FedSheafHN (as coded)", off("untrained server"), sheaf_weight_decay=0.0) == [0.0] * len(SEEDS)


SIGNALS = [(name, signal) for name, case in CASES.items() for signal in case.signal]


@cache
def gradient_ratios(name: str) -> dict[str, list[float]]:
    """Norm of the gradient of each signal over that of the classifier's weights, round by round."""
    found: dict[str, list[float]] = {signal: [] for signal in CASES[name].signal}

    class Watched(registry.load("train", name)):  # type: ignore[misc]
        def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
            weights = super().begin_round(fed, state, t)
            leaves = {key: w.clone().requires_grad_() for key, w in weights.items()}
            x = fed.x.clone().requires_grad_()
            seen = fed.shared() if self.upload == "gradients" else fed
            loss = self.local_loss(leaves, seen.with_features(x), state, t).sum()
            by_name = dict(zip([*leaves, "received"], torch.autograd.grad(loss, [*leaves.values(), x])))
            by_name["received"] = by_name["received"][fed.batch.ring > 0]
            for signal, ratios in found.items():
                ratios.append(float(by_name[signal].norm() / by_name["layer2.weight"].norm()))
            return weights  # type: ignore[no-any-return]

    train(Watched(model=CASES[name].model, **CASES[name].options), runs(name), ROUNDS, evaluate=())
    return found


@pytest.mark.parametrize(("name", "signal"), SIGNALS, ids=[f"{n} - {s}" for n, s in SIGNALS])
def test_the_signal_has_a_gradient(name: str, signal: str) -> None:
    """At least 1e-3 of the classifier's, in the median round."""
    ratios = gradient_ratios(name)[signal]
    assert len(ratios) == ROUNDS and float(np.median(ratios)) >= 1e-3


PARTS = ("sheaf.encode", "sheaf.0.w1", "sheaf.0.w2", "sheaf.0.map", "sheaf.decode", "hyper.attention.query",
         "hyper.attention.key", "hyper.attention.value", "hyper.mlp0", "hyper.mlp1",
         "hyper.out.layer1.weight")  # fmt: skip


def server_ratios(name: str) -> dict[str, list[float]]:
    """Of FedSheafHN's server, part by part and round by round: the norm of the gradient it steps along over that of the
    clients' change of their heads, the smallest of the runs.
    """
    found: dict[str, list[float]] = {part: [] for part in PARTS}

    class Watched(registry.load("train", name)):  # type: ignore[misc]
        def aggregate(self, state: State, update: Update) -> State:
            sizes: dict[str, list[float]] = {part: [] for part in PARTS}
            for run, server in enumerate(state.more.servers):
                mine = clients_of(update.fed, run)
                change, _ = self.change(update, mine)
                grads = server.gradient(self.vectors_of(state.more.used[mine]), update.round, change)
                head = sum(float((update.after[n] - update.before[n])[mine].norm()) ** 2 for n in self.personal) ** 0.5
                for part, each in sizes.items():
                    mine_too = [float(g.norm()) ** 2 for n, g in grads.items() if n.startswith(part)]
                    each.append(sum(mine_too) ** 0.5 / head)
            for part, each in sizes.items():
                found[part].append(min(each))
            return super().aggregate(state, update)  # type: ignore[no-any-return]

    options = {**CASES["FedSheafHN"].options, "maps_made": "layer", "attention": "softmax"}
    train(Watched(model=GCN_, **options), runs("FedSheafHN"), ROUNDS, evaluate=())
    return found


def test_every_part_of_the_server_has_a_gradient() -> None:
    """Each of `PARTS`: at least 1e-3 of the head's change, in the median round of the worst of three seeds. As coded
    there is none.
    """
    found = server_ratios("FedSheafHN")
    assert {part: float(np.median(each)) for part, each in found.items() if np.median(each) < 1e-3} == {}
    assert not any(sum(each) for each in server_ratios("FedSheafHN (as coded)").values())


# -- the device -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sparse"), [*((name, False) for name in sorted(CASES)), ("FedAvg", True), ("FedStruct", True)]
)
def test_a_gpu_gets_all_its_tensors(name: str, sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device that refuses what CUDA refuses, every method trains, and gives what it gives on the CPU."""
    short = {"generator_epochs": 1} if "generator_epochs" in CASES[name].options else {}
    method, data, clients = build(name, dropout=0.3, **short), graph(0, sparse), CASES[name].clients
    expected = train(method, federate(data, clients, 0), 2)
    with fake_cuda.device(monkeypatch):
        fed = federate(data, clients, 0, device="cuda")
        assert isinstance(fed.batch.y, fake_cuda.Cuda)
        made = train(method, fed, 2)
        facts = method.facts(made.fed, made.state)
        result = made.history.result(0)
    assert made.history.loss[-1] == pytest.approx(expected.history.loss[-1], abs=1e-5)
    wanted = expected.history.result(0)
    assert list(result) == list(wanted)
    assert result["before"]["last"] == pytest.approx(wanted["before"]["last"], abs=0.02)
    assert [list(one) for one in facts] == [list(one) for one in method.facts(expected.fed, expected.state)]


def test_a_tensor_left_behind_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device refuses a method that makes a tensor of its own on the CPU."""

    class Forgetful(FedAvg):
        def local_loss(self, *given: Any, **more: Any) -> Tensor:
            return super().local_loss(*given, **more) * torch.ones(CLIENTS)

    train(Forgetful(model=GCN_), federate(graph(0), CLIENTS, 0), 1)
    with fake_cuda.device(monkeypatch), pytest.raises(fake_cuda.DeviceError, match="is on the CPU"):
        train(Forgetful(model=GCN_), federate(graph(0), CLIENTS, 0, device="cuda"), 1)
