"""FedAvg, FedSGD and Local satisfy what follows from their definitions, whatever the numbers are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from graphs import Plain, block_model, client_graph, gap, identical, largest_difference, unequal_parts
from loop import DROPPING, GCN, MOVING, SGD, Weights, client, optimizer_of, task, watch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.local import Local
from fedrepro.engine.method import Method
from fedrepro.engine.nn import models
from fedrepro.engine.training import client_gradients, train

F64 = torch.float64


# -- nothing leaks before it is sent ---------------------------------------------------------------


def inner(data: Data, part: Tensor) -> Tensor:
    """Return which edges lie inside a part: `[edges]`."""
    return torch.isin(data.edge_index, part).all(0)


def changed(data: Data, part: Tensor, what: str) -> Data:
    """Return the graph with other features or labels at the nodes of one part, or without its inner edges."""
    data = data.clone()
    if what == "features":
        data.x[part] = data.x[part].flip(1) + 1
    elif what == "labels":
        data.y[part] = (data.y[part] + 1) % 3
    else:
        data.edge_index = data.edge_index[:, ~inner(data, part)]
    return data


def computed(kind: type[Method], data: Data, parts: list[Tensor]) -> list[Weights]:
    """Return what each client computes before it next receives anything: its weights, or FedSGD's gradients."""
    method, updates = watch(kind(model=DROPPING, lr=0.05))
    fed = Federation.of(data, parts)
    trained = train(method, fed, 3 if kind is Local else 1)
    if kind is FedSGD:
        started, state = method.start(fed)
        gradients = client_gradients(method, started, state)
        return [client(gradients, number) for number in range(fed.clients)]
    assert trained.history.diverged == {}
    return [client(updates[-1].after, number) for number in range(fed.clients)]


@pytest.mark.parametrize("what", ["features", "labels", "edges"])
@pytest.mark.parametrize("kind", [FedAvg, FedSGD, Local])
def test_nothing_leaks_between_messages(kind: type[Method], what: str) -> None:
    """Changing what client j holds changes what j computes, and leaves every bit of every other client's result."""
    data, parts = task(10)
    before = computed(kind, data, parts)
    heard = [j for j, part in enumerate(parts) if bool((inner(data, part) & data.train_mask[data.edge_index[1]]).any())]
    assert len(heard) >= 2 and 9 in heard
    for j in heard:
        after = computed(kind, changed(data, parts[j], what), parts)
        assert [i for i in range(10) if not identical(before[i], after[i])] == [j]


@pytest.mark.parametrize("j", [3, 5])
def test_the_size_of_another_client_changes_no_bit(j: int) -> None:
    """Edges of client j decide how many of its nodes matter, and so how far the others' are padded."""
    data = block_model(600, degree=20, features=50)
    parts = unequal_parts(600, 6)
    model = models.GCN(features=50, classes=3, hidden=16)
    weights = []
    for given in (data, changed(data, parts[j], "edges")):
        method, updates = watch(FedAvg(model=model))
        train(method, Federation.of(given, parts), 1)
        weights.append(updates[0].after)
    assert [i for i in range(6) if not identical(client(weights[0], i), client(weights[1], i))] == [j]


def test_fedavg_is_alive() -> None:
    """After one round clients differ, and another's labels reach a client from the second round on."""
    data, parts = task(5)
    updates_of = []
    for given in (data, changed(data, parts[4], "labels")):
        method, updates = watch(FedAvg(model=GCN))
        train(method, Federation.of(given, parts, dtype=F64), 2)
        updates_of.append(updates)
    first, other = updates_of
    trained = [1, 2, 4]
    assert first[0].active.nonzero().squeeze(1).tolist() == trained
    assert not any(
        identical(client(first[0].after, i), client(first[0].after, j)) for i in trained for j in trained if i < j
    )
    assert identical(client(first[0].after, 1), client(other[0].after, 1))
    assert largest_difference(client(first[1].after, 1), client(other[1].after, 1)) > 1e-4


# -- FedSGD ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", MOVING.values(), ids=MOVING)
def test_fedsgd_is_central_training_on_the_union_of_the_client_graphs(options: dict[str, Any]) -> None:
    """Without dropout, with gradients weighted by training nodes: PyG on all inner edges, mean over training nodes."""
    data, parts = task(10)
    method = FedSGD(model=GCN, **options)
    trained = train(method, Federation.of(data, parts, dtype=F64), 5)
    owner = torch.empty(48, dtype=torch.long)
    for number, part in enumerate(parts):
        owner[part] = number
    union = client_graph(data, torch.arange(48))
    union.edge_index = data.edge_index[:, owner[data.edge_index[0]] == owner[data.edge_index[1]]]
    net = Plain(GCN, client(GCN.init([0], F64), 0))
    optimizer = optimizer_of(method, net)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(union)[union.train_mask], union.y[union.train_mask])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert len({round(value, 6) for value in losses}) == 5
    assert largest_difference(client(trained.state.shared, 0), net.slice()) < 1e-10


@pytest.mark.parametrize("average", ["equal", "train", "nodes"])
def test_client_gradients_average_to_the_aggregated_one(average: str) -> None:
    """In two runs, dropout on, the weighted mean of per-client gradients is the gradient the server receives."""
    fed = Federation.stack([Federation.of(*task(5, seed), seed, dtype=F64) for seed in (0, 1)])
    method, updates = watch(FedSGD(model=DROPPING, average=average))
    train(method, fed, 1)
    _, state = method.start(fed)
    gradients = client_gradients(method, fed, state)
    assert largest_difference(fed.average(gradients, updates[0].by), updates[0].gradient) < 1e-12
    assert not identical(client(gradients, 1), client(gradients, 2))
    silenced = {name: g.clone() for name, g in gradients.items()}
    for g in silenced.values():
        g[4] = 0
    assert largest_difference(fed.average(silenced, updates[0].by), updates[0].gradient) > 1e-4


# -- FedAvg's invariants ---------------------------------------------------------------------------


def test_fedavg_of_one_client_is_local_training() -> None:
    """The weights of both, dropout on, agree bitwise after each of three rounds."""
    data, parts = task(1)
    fed = Federation.of(data, parts)
    for rounds in (1, 2, 3):
        averaged = train(FedAvg(model=DROPPING, local_epochs=2), fed, rounds).state.shared
        alone = train(Local(model=DROPPING, local_epochs=2), fed, rounds).state.personal
        assert identical(averaged, alone)


@pytest.mark.parametrize("average", ["equal", "train", "nodes"])
def test_one_plain_local_step_is_a_step_along_the_averaged_gradient(average: str) -> None:
    """theta - lr * sum_i p_i grad L_i(theta) for one local epoch of SGD."""
    data, parts = task(10)
    fed = Federation.of(data, parts, dtype=F64)
    method, updates = watch(FedAvg(model=DROPPING, average=average, **SGD))
    trained = train(method, fed, 1)
    _, state = method.start(fed)
    size = {"equal": torch.ones(10), "train": fed.count("train"), "nodes": fed.count("all")}[average].double()
    p = torch.where(fed.count("train") > 0, size, 0.0)
    assert torch.equal(p / p.sum(), updates[0].by / updates[0].by.sum())
    for name, gradient in client_gradients(method, fed, state).items():
        step = torch.tensordot(p / p.sum(), gradient, 1)
        assert gap(trained.state.shared[name][0], state.shared[name][0] - 0.1 * step) < 1e-12


def test_fedavg_of_identical_clients_is_any_one_of_them() -> None:
    """Three clients that hold the same nodes, dropout off, train as a single one."""
    data, _ = task(1)
    everything = torch.arange(48)
    method = FedAvg(model=GCN, local_epochs=3, weight_decay=0.01)
    three = train(method, Federation.of(data, [everything] * 3, dtype=F64), 3)
    one = train(method, Federation.of(data, [everything], dtype=F64), 3)
    assert largest_difference(three.state.shared, one.state.shared) < 1e-12


@pytest.mark.parametrize("kind", [FedAvg, FedSGD])
@pytest.mark.parametrize("average", ["equal", "nodes"])
def test_permuting_clients_permutes_nothing_but_their_order(kind: type[Method], average: str) -> None:
    """Dropout off, the server's weights do not depend on the numbering of the clients."""
    data, parts = task(10)
    method = kind(model=GCN, average=average)
    order = [7, 2, 9, 0, 4, 1, 3, 8, 6, 5]
    a = train(method, Federation.of(data, parts, dtype=F64), 3)
    b = train(method, Federation.of(data, [parts[i] for i in order], dtype=F64), 3)
    assert largest_difference(a.state.shared, b.state.shared) < 1e-10
    assert a.history.result(0)["before"]["last"]["test"] == b.history.result(0)["before"]["last"]["test"]
