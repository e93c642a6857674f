"""The promise every method keeps that clients do not interfere between messages, nor runs side by side at any time.

A new method needs an entry in `promises.CASES`; without one the first test here fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import fake_cuda
import pytest
import torch
from promises import CASES, CHUNKS, CLASSES, CLIENTS, EVERY, GCN_, SEEDS, build, federate, graph, runs
from torch import Tensor
from torch_geometric.data import Data

from fedrepro import registry
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.nn.models import GAT, MLP
from fedrepro.engine.training import client_gradients, train


def test_every_registered_method_has_an_entry() -> None:
    """A method that is registered without an entry in `CASES` fails here."""
    assert sorted(CASES) == registry.names("train")


Heard = list[tuple[Tensor, tuple[Tensor, ...]]]

# -- non-interference -------------------------------------------------------------------------------------------------


def computed(
    method: Method, fed: Federation, state: State, chunk: int | None, heard: Heard | None = None, client: int = -1
) -> Weights:
    """Return what each client computes in a round before its next message: `[clients, ...]`, weights or gradients.

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
            messages = super().receive(inside, *args)
            owner = inside.batch.batch
            if record:
                assert heard is not None
                heard.append((owner, messages))
            elif heard:
                of, before = next(again)
                messages = tuple(part.clone() for part in messages)
                for part, old in zip(messages, before, strict=True):
                    part[owner == client] = old[of == client]
            return messages  # type: ignore[no-any-return]

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
    """Other edges at all other clients move a client's round by less than 1e-14, in float64 with gradient descent."""
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
            # attention to only one node, or moved alike for all neighbours, is what it was
            assert not all(deaf) and all(torch.tensor(deaf)[~able]), weight
        else:
            assert deaf == (~able).tolist(), weight
    held, whole = fed.batch.ring == 0, method.predict(fed, state)
    received = (~held).nonzero().squeeze(1)
    for row in received[:: max(1, len(received) // 60)].tolist():
        client = fed.batch.batch == fed.batch.batch[row]
        moved = (method.predict(with_features(fed, torch.arange(fed.nodes) == row), state) != whole).any(1)
        assert bool(moved[held & client].any()) and not bool(moved[~client].any()), row


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
    alone = {"Central", "Local", "CentralUnbiased", "MLPs", "MLPs (own round)", "GraphSAINT"}
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
    """A run that diverges is named, and the runs next to it keep every weight and score to the last bit."""
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
        trained = train(method, fed, 2)
        facts = method.facts(trained.fed, trained.state)
        result = trained.history.result(0)
    assert trained.history.loss[-1] == pytest.approx(expected.history.loss[-1], abs=1e-5)
    wanted = expected.history.result(0)
    assert list(result) == list(wanted)
    assert result["before"]["last"] == pytest.approx(wanted["before"]["last"], abs=0.02)
    assert [list(one) for one in facts] == [list(one) for one in method.facts(expected.fed, expected.state)]


def test_a_tensor_left_behind_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device refuses a method that makes a tensor on the CPU."""

    class Forgetful(FedAvg):
        def local_loss(self, *given: Any, **more: Any) -> Tensor:
            return super().local_loss(*given, **more) * torch.ones(CLIENTS)

    train(Forgetful(model=GCN_), federate(graph(0), CLIENTS, 0), 1)
    with fake_cuda.device(monkeypatch), pytest.raises(fake_cuda.DeviceError, match="is on the CPU"):
        train(Forgetful(model=GCN_), federate(graph(0), CLIENTS, 0, device="cuda"), 1)
