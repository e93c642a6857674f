"""Training, against a plain loop over clients, and what must hold whatever the numbers are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import (
    Plain,
    block_model,
    client_graph,
    dropout_masks,
    gap,
    identical,
    largest_difference,
    loop,
    optimizer_of,
    unequal_parts,
    without_labels,
)
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.errors import ArgumentError
from fedrepro.federation import Federation
from fedrepro.methods.base import Method, State, Update
from fedrepro.methods.central import Central
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.fedsgd import FedSGD
from fedrepro.methods.local import Local
from fedrepro.nn import models
from fedrepro.training import History, Scores, Trained, client_gradients, score, train

F64 = torch.float64
SIZES = {"features": 7, "classes": 3, "hidden": 5}
GCN = models.GCN(**SIZES)
DROPPING = models.GCN(**SIZES, dropout=0.6)
UNLABELLED = {1: [], 3: [1], 5: [0, 3], 10: [2, 5]}
Weights = dict[str, Tensor]


def task(clients: int, seed: int = 0, **kind: Any) -> tuple[Data, list[Tensor]]:
    """A graph and a partition into unequal parts, some of them without training nodes."""
    data = block_model(48, degree=4 + 1.2 * clients, seed=seed, **kind)  # dense enough for edges inside small clients
    parts = unequal_parts(48, clients, seed)
    return without_labels(data, parts, UNLABELLED[clients]), parts


def watch(method: Method) -> tuple[Method, list[Update]]:
    """The same method, and the updates its server receives, round by round."""
    updates: list[Update] = []

    class Watched(type(method)):  # type: ignore[misc]
        def aggregate(self, state: State, update: Update) -> State:
            updates.append(update)
            return super().aggregate(state, update)

    return Watched(**{f.name: getattr(method, f.name) for f in fields(method)}), updates


def client(weights: Weights, number: int) -> Weights:
    return {name: w[number] for name, w in weights.items()}


def held(made: Trained) -> Weights:
    """What server and clients hold at the end."""
    return {**made.state.shared, **made.state.personal}


# -- equal to a loop ----------------------------------------------------------------------------------------------------


def loop_gap(
    method: Method, tasks: Sequence[tuple[Data, list[Tensor]]], dtype: torch.dtype, chunk: int | None = None
) -> float:
    """Largest difference of the weights of server and clients after three rounds; seeds 3, 4, ... side by side."""
    feds = [Federation.of(data, parts, seed, dtype=dtype) for seed, (data, parts) in enumerate(tasks, start=3)]
    watched, updates = watch(method)
    made = train(watched, feds[0] if len(feds) == 1 else Federation.stack(feds), 3, chunk=chunk)
    worst, start = 0.0, 0
    for run, (data, parts) in enumerate(tasks):
        rounds = loop(method, data, parts, 3, 3 + run, dtype)
        for number in range(len(parts)):
            if method.upload == "weights":
                found = client(updates[-1].after, start + number)
                worst = max(worst, largest_difference(found, rounds[-1].clients[number]))
            for t in range(3):
                assert bool(updates[t].active[start + number]) == (number in rounds[t].chosen)
        if made.state.shared:
            worst = max(worst, largest_difference(client(made.state.shared, run), rounds[-1].server))
        start += len(parts)
    moved = largest_difference(client(updates[-1].before, -1), client(method.model.init([3], dtype), 0))
    assert moved > 1e-3
    return worst


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("clients", [1, 3, 10])
@pytest.mark.parametrize("kind", [FedAvg, FedSGD, Local])
def test_three_rounds_equal_a_loop_over_clients(kind: type[Method], clients: int, dtype: torch.dtype) -> None:
    """Clients of unequal size, some without labels, Adam kept, weight decay and dropout: 1e-5, in float64 1e-10."""
    epochs = 1 if kind is FedSGD else 2
    method = kind(model=DROPPING, lr=0.02, weight_decay=0.01, local_epochs=epochs)
    assert loop_gap(method, [task(clients)], dtype) < (1e-10 if dtype == F64 else 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=["float32", "float64"])
def test_central_training_equals_a_plain_loop(dtype: torch.dtype) -> None:
    """One client with the whole graph is PyG's ordinary training, dropout on."""
    method = Central(model=DROPPING, lr=0.02, weight_decay=0.01)
    data, _ = task(1)
    assert loop_gap(method, [(data, [torch.arange(48)])], dtype) < (1e-10 if dtype == F64 else 1e-5)


SGD = {"optimizer": "sgd", "lr": 0.1}
VARIANTS: dict[str, dict[str, Any]] = {
    "equal weights": {"average": "equal"},
    "training nodes": {"average": "train"},
    "all nodes": {"average": "nodes"},
    "plain SGD": SGD,
    "SGD, momentum, decay": {**SGD, "momentum": 0.9, "weight_decay": 0.05},
    "SGD, momentum, reset": {**SGD, "momentum": 0.9, "optimizer_state": "reset", "local_epochs": 3},
    "Adam, reset": {"optimizer_state": "reset", "local_epochs": 3},
    "one local epoch": {"local_epochs": 1},
    "three local epochs": {"local_epochs": 3},
    "half of the clients": {"participation": 0.5, "local_epochs": 2},
    "half of the clients, SGD, momentum": {**SGD, "momentum": 0.9, "weight_decay": 0.05, "participation": 0.5},
    "half of the clients, by nodes, reset": {
        "participation": 0.5, "average": "nodes", "optimizer_state": "reset", "local_epochs": 3
    },
}  # fmt: skip


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("kind", [FedAvg, FedSGD, Local])
def test_every_option_equals_the_loop(kind: type[Method], options: dict[str, Any]) -> None:
    """Averages, optimizers, their state, local epochs and participation, ten clients, float64, dropout on."""
    if kind is FedSGD:
        options = {**options, "local_epochs": 1}
    assert loop_gap(kind(model=DROPPING, **{"lr": 0.02, **options}), [task(10)], F64) < 1e-10


@pytest.mark.parametrize("chunk", [1, 2, 3, 20])
@pytest.mark.parametrize("kind", [FedAvg, Local])
def test_chunks_of_any_size_equal_the_loop(kind: type[Method], chunk: int) -> None:
    """Chunks of one, two, three and all clients, of two seeds side by side, half of the clients taking part."""
    method = kind(model=DROPPING, lr=0.02, weight_decay=0.01, local_epochs=2, participation=0.5)
    assert loop_gap(method, [task(10), task(5, seed=1)], F64, chunk) < 1e-10


@pytest.mark.parametrize("kind", [FedAvg, FedSGD, Local])
def test_two_seeds_side_by_side_equal_two_loops(kind: type[Method]) -> None:
    """Runs with other graphs, partitions and numbers of clients, all clients in one chunk."""
    method = kind(model=DROPPING, lr=0.02, weight_decay=0.01)
    assert loop_gap(method, [task(3), task(10, seed=1), task(3)], F64) < 1e-10


NETWORKS: dict[str, models.Model] = {
    "GCN of three layers": models.GCN(**SIZES, layers=3, dropout=0.6),
    "GAT": models.GAT(**SIZES, heads=3, output_heads=2, dropout=0.6),
    "GraphSAGE": models.GraphSAGE(**SIZES, dropout=0.6),
    "MLP": models.MLP(**SIZES, dropout=0.6),
    "APPNP": models.APPNP(**SIZES, steps=3, dropout=0.6),
    "DGCN": models.DGCN(**SIZES, depth=2, dropout=0.6),
}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS)
def test_every_model_trains_as_in_the_loop(model: models.Model, sparse: bool) -> None:
    """FedAvg of each network on directed graphs with self-loops, two seeds, sparse and dense features."""
    tasks = [task(5, seed, directed=True, sparse=sparse) for seed in (0, 1)]
    # some gradients of a GAT cancel up to rounding, which Adam would divide by 1e-8; hence SGD
    method = FedAvg(model=model, optimizer="sgd", lr=0.1, momentum=0.9, local_epochs=2)
    assert loop_gap(method, tasks, F64) < 1e-10


def test_the_masks_of_these_tests_drop_some_entries() -> None:
    """The oracle's dropout is no identity: about 0.6 of the entries are dropped, others in every step and client."""
    data, parts = task(3)
    graph = client_graph(data, parts[2])
    first, again, later, other = (
        dropout_masks(DROPPING, graph, 3, number, 0, step)[0] for number, step in ((2, 0), (2, 0), (2, 1), (1, 0))
    )
    assert abs(float((first == 0).double().mean()) - 0.6) < 0.15
    assert torch.equal(first, again) and not torch.equal(first, later) and not torch.equal(first, other)


# -- frozen clients -----------------------------------------------------------------------------------------------------

MOVING: dict[str, dict[str, Any]] = {
    "adam": {"weight_decay": 0.1},
    "sgd": {**SGD, "weight_decay": 0.1, "momentum": 0.9},
}


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("options", MOVING.values(), ids=MOVING)
@pytest.mark.parametrize("kind", [FedAvg, Local])
def test_clients_that_do_not_train_keep_their_bits(
    kind: type[Method], options: dict[str, Any], chunk: int | None
) -> None:
    """Without labels or not selected, a client's weights after a round are those before it; the others' are not."""
    data, parts = task(10)
    method, updates = watch(kind(model=DROPPING, participation=0.5, local_epochs=2, **options))
    train(method, Federation.of(data, parts, dtype=F64), 4, chunk=chunk)
    seen = set()
    for update in updates:
        for number in range(10):
            same = identical(client(update.before, number), client(update.after, number))
            assert same == (not bool(update.active[number]))
            seen.add((number, same))
    assert (2, False) not in seen and (5, False) not in seen
    assert sum((number, True) in seen and (number, False) in seen for number in range(10)) >= 3


@pytest.mark.parametrize("options", MOVING.values(), ids=MOVING)
def test_a_client_that_pauses_goes_on_where_it_stopped(options: dict[str, Any]) -> None:
    """Its optimizer's state is frozen too: three rounds with a pause between them give the bits of three in a row."""
    data, parts = task(3)

    def trained(rounds: Sequence[int], last: int) -> Weights:
        class Pausing(Local):
            def select(self, fed: Federation, t: int) -> Tensor:
                return super().select(fed, t) & torch.tensor([True, True, t in rounds])

        made = train(Pausing(model=GCN, **options), Federation.of(data, parts, dtype=F64), last, chunk=1)
        return client(made.state.personal, 2)

    assert identical(trained((0, 2, 5), 6), trained((0, 1, 2), 3))
    assert not identical(trained((0, 2), 3), trained((0, 1, 2), 3))


@pytest.mark.parametrize("chunk", [None, 1])
def test_clients_that_do_not_train_stay_when_others_diverge(chunk: int | None) -> None:
    """NaN at every client that trains leaves the weights of those without labels bitwise where they were."""
    data, parts = task(10)
    data.x[torch.cat([part for number, part in enumerate(parts) if number not in (2, 5)])] = torch.nan
    made = train(Local(model=GCN, weight_decay=0.1), Federation.of(data, parts, dtype=F64), 3, chunk=chunk)
    first = client(GCN.init([0], F64), 0)
    for number in range(10):
        mine = client(made.state.personal, number)
        assert identical(mine, first) if number in (2, 5) else bool(mine["layer1.weight"].isnan().any())
    assert made.history.diverged == {0: 1}


# -- runs never mix -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FedAvg, FedSGD, Local])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_nan_in_one_run_leaves_the_others_bitwise_unchanged(kind: type[Method], sparse: bool) -> None:
    """Weights and scores of the other runs keep their bits; the run with the NaN is listed as diverged."""
    made = []
    for bad in (False, True):
        tasks = [task(5, seed, sparse=sparse) for seed in (0, 1, 2)]
        if bad:
            data, parts = tasks[1]
            x = data.x.to_dense() if sparse else data.x
            x[parts[4][data.train_mask[parts[4]]][0]] = torch.nan
            data.x = x.to_sparse_csr() if sparse else x
        fed = Federation.stack([Federation.of(*each, seed) for seed, each in enumerate(tasks)])
        made.append(train(kind(model=DROPPING, lr=0.05), fed, 3))
    clean, spoilt = made
    assert clean.history.diverged == {} and spoilt.history.diverged == {1: 1}
    for name, w in held(clean).items():
        kept = torch.tensor([0, 2]) if name in clean.state.shared else (clean.fed.run != 1).nonzero().squeeze(1)
        assert torch.equal(w[kept], held(spoilt)[name][kept])
    for run in (0, 2):
        assert clean.history.result(run) == spoilt.history.result(run)
        assert [loss[run] for loss in clean.history.loss] == [loss[run] for loss in spoilt.history.loss]
    assert any(bool(w.isnan().any()) for w in held(spoilt).values())


@pytest.mark.parametrize("kind", [FedAvg, FedSGD, Local])
def test_a_run_gives_the_same_numbers_alone_and_beside_others(kind: type[Method]) -> None:
    """Three rounds in float64, dropout on, participation below one: weights, losses and scores within 1e-10."""
    feds = [Federation.of(*task(clients, seed), seed, dtype=F64) for seed, clients in ((0, 3), (1, 10), (2, 5))]
    method = kind(model=DROPPING, lr=0.05, participation=0.7)
    together = train(method, Federation.stack(feds), 3)
    for run, fed in enumerate(feds):
        alone = train(method, fed, 3)
        mine = together.fed.run == run
        found = {**client(together.state.shared, slice(run, run + 1)), **client(together.state.personal, mine)}  # type: ignore[arg-type]
        assert largest_difference(held(alone), found) < 1e-10
        assert abs(np.array([a[0] - b[run] for a, b in zip(alone.history.loss, together.history.loss)])).max() < 1e-10
        for view in ("before", "after"):
            a, b = getattr(alone.history, view).series(0), getattr(together.history, view).series(run)
            assert a.keys() == b.keys()
            assert all(np.abs(np.subtract(a[name], b[name])).max() < 1e-10 for name in a)


# -- nothing leaks before it is sent ------------------------------------------------------------------------------------


def inner(data: Data, part: Tensor) -> Tensor:
    """Which edges lie inside a part: `[edges]`."""
    return torch.isin(data.edge_index, part).all(0)


def changed(data: Data, part: Tensor, what: str) -> Data:
    """The same graph with other features, labels or inner edges at the nodes of one part."""
    data = data.clone()
    if what == "features":
        data.x[part] = data.x[part].flip(1) + 1
    elif what == "labels":
        data.y[part] = (data.y[part] + 1) % 3
    else:
        data.edge_index = data.edge_index[:, ~inner(data, part)]
    return data


def computed(kind: type[Method], data: Data, parts: list[Tensor]) -> list[Weights]:
    """What each client computes before it next receives anything."""
    method, updates = watch(kind(model=DROPPING, lr=0.05))
    fed = Federation.of(data, parts)
    made = train(method, fed, 3 if kind is Local else 1)
    if kind is FedSGD:
        started, state = method.start(fed)
        gradients = client_gradients(method, started, state)
        return [client(gradients, number) for number in range(fed.clients)]
    assert made.history.diverged == {}
    return [client(updates[-1].after, number) for number in range(fed.clients)]


@pytest.mark.parametrize("what", ["features", "labels", "edges"])
@pytest.mark.parametrize("kind", [FedAvg, FedSGD, Local])
def test_nothing_leaks_between_messages(kind: type[Method], what: str) -> None:
    """Changing what client j holds changes what j computes, and leaves every other client's result bitwise alone."""
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
    found = []
    for given in (data, changed(data, parts[j], "edges")):
        method, updates = watch(FedAvg(model=model))
        train(method, Federation.of(given, parts), 1)
        found.append(updates[0].after)
    assert [i for i in range(6) if not identical(client(found[0], i), client(found[1], i))] == [j]


def test_fedavg_is_alive() -> None:
    """After one round clients differ, and another's labels reach a client from the second round on."""
    data, parts = task(5)
    found = []
    for given in (data, changed(data, parts[4], "labels")):
        method, updates = watch(FedAvg(model=GCN))
        train(method, Federation.of(given, parts, dtype=F64), 2)
        found.append(updates)
    first, other = found
    trained = [1, 2, 4]
    assert first[0].active.nonzero().squeeze(1).tolist() == trained
    assert not any(
        identical(client(first[0].after, i), client(first[0].after, j)) for i in trained for j in trained if i < j
    )
    assert identical(client(first[0].after, 1), client(other[0].after, 1))
    assert largest_difference(client(first[1].after, 1), client(other[1].after, 1)) > 1e-4


# -- FedSGD -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", MOVING.values(), ids=MOVING)
def test_fedsgd_is_central_training_on_the_union_of_the_client_graphs(options: dict[str, Any]) -> None:
    """Without dropout, with gradients weighted by training nodes: PyG on all inner edges, mean over training nodes."""
    data, parts = task(10)
    method = FedSGD(model=GCN, **options)
    made = train(method, Federation.of(data, parts, dtype=F64), 5)
    owner = torch.empty(48, dtype=torch.long)
    for number, part in enumerate(parts):
        owner[part] = number
    union = client_graph(data, torch.arange(48))
    union.edge_index = data.edge_index[:, owner[data.edge_index[0]] == owner[data.edge_index[1]]]
    net = Plain(GCN, client(GCN.init([0], F64), 0))
    optimizer = optimizer_of(method, net)
    for t in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(union)[union.train_mask], union.y[union.train_mask])
        loss.backward()
        optimizer.step()
        assert t == 0 or abs(float(loss.detach()) - before) > 1e-6
        before = float(loss.detach())
    assert largest_difference(client(made.state.shared, 0), net.slice()) < 1e-10


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


# -- FedAvg's invariants ------------------------------------------------------------------------------------------------


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
    made = train(method, fed, 1)
    _, state = method.start(fed)
    size = {"equal": torch.ones(10), "train": fed.count("train"), "nodes": fed.count("all")}[average].double()
    p = torch.where(fed.count("train") > 0, size, 0.0)
    assert torch.equal(p / p.sum(), updates[0].by / updates[0].by.sum())
    for name, gradient in client_gradients(method, fed, state).items():
        step = torch.tensordot(p / p.sum(), gradient, 1)
        assert gap(made.state.shared[name][0], state.shared[name][0] - 0.1 * step) < 1e-12


def test_fedavg_of_identical_clients_is_any_one_of_them() -> None:
    """Three clients that hold the same nodes, dropout off, train as one alone."""
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


# -- scores -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FedAvg, FedSGD, Local])
def test_test_labels_change_no_choice(kind: type[Method]) -> None:
    """Permuting them leaves weights, losses, validation scores and selected rounds bitwise, and changes test scores."""
    found = []
    for permuted in (False, True):
        data, parts = task(5)
        if permuted:
            data.y[data.test_mask] = (data.y[data.test_mask] + 1) % 3
        made = train(kind(model=DROPPING, lr=0.05), Federation.of(data, parts, 0), 8)
        views = {
            view: {
                pick: {name: v for name, v in entries.items() if not name.startswith("test")}
                for pick, entries in picks.items()
            }
            for view, picks in made.history.result(0).items()
        }
        tests = made.history.before.series(0)["test"]
        found.append((held(made), views, [loss.tolist() for loss in made.history.loss], tests))
    (weights, views, losses, tests), (weights_, views_, losses_, tests_) = found
    assert identical(weights, weights_) and views == views_ and losses == losses_ and tests != tests_
    assert set(views["before"]) == {"last", "best", "best_loss"}


def accuracies(logits: np.ndarray, fed: Federation, run: int, mask: str) -> tuple[float, float, float]:
    """Pooled accuracy, mean accuracy of the clients that have such nodes, pooled cross-entropy."""
    y, owner = fed.batch.y.numpy(), fed.batch.batch.numpy()
    chosen = fed.batch[f"{mask}_mask"].numpy() & (fed.batch.ring.numpy() == 0)
    right: list[list[bool]] = []
    losses: list[float] = []
    for number in np.flatnonzero(fed.run.numpy() == run):
        mine = [v for v in np.flatnonzero(chosen) if owner[v] == number]
        right.append([bool(np.argmax(logits[v]) == y[v]) for v in mine])
        losses += [float(np.log(np.exp(logits[v]).sum()) - logits[v, y[v]]) for v in mine]
    pooled = np.mean([hit for each in right for hit in each])
    return float(pooled), float(np.mean([np.mean(each) for each in right if each])), float(np.mean(losses))


@pytest.mark.parametrize("hops", [0, 1])
def test_scores_are_pooled_over_nodes_and_averaged_over_clients(hops: int) -> None:
    """NumPy's numbers, per run; clients without such nodes are left out of the average, halo copies of both."""
    feds = []
    for seed in (0, 1):
        data, parts = task(5, seed)
        data.test_mask[parts[1]] = False
        data.val_mask[parts[3]] = False
        feds.append(Federation.of(data, parts, seed, dtype=F64))
    fed = Federation.stack(feds).halo(hops)
    assert hops == 0 or fed.nodes > 96
    logits = torch.randn(fed.nodes, 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    found = score(fed, logits)
    for run in (0, 1):
        for mask in ("val", "test"):
            pooled, mean, loss = accuracies(logits.numpy(), fed, run, mask)
            assert abs(found[mask][run] - pooled) < 1e-12 and abs(found[f"{mask}_clients"][run] - mean) < 1e-12
            assert mask == "test" or abs(found["val_loss"][run] - loss) < 1e-12
            assert abs(pooled - mean) > 1e-3


@pytest.mark.parametrize("kind", [FedAvg, FedSGD, Local])
def test_before_scores_what_is_held_between_rounds_and_after_what_was_trained(kind: type[Method]) -> None:
    """Each round's "before" is the loop's aggregated weights, "after" every client's own trained weights."""
    data, parts = task(5)
    method = kind(model=DROPPING, lr=0.05)
    fed = Federation.of(data, parts, dtype=F64)
    history = train(method, fed, 3).history
    graphs = [client_graph(data, part) for part in parts]
    views = {"before": history.before, "after": history.after}
    differ = False
    for t, plain in enumerate(loop(method, data, parts, 3, 0, F64)):
        between = plain.clients if kind is Local else [plain.server] * 5
        for view, weights in (("before", between), ("after", plain.clients)):
            if kind is FedSGD and view == "after":
                assert not history.after.values
                continue
            logits = torch.cat([Plain(GCN, w)(g).detach() for w, g in zip(weights, graphs, strict=True)]).numpy()
            series = views[view].series(0)
            for mask in ("val", "test"):
                pooled, mean, loss = accuracies(logits, fed, 0, mask)
                assert abs(series[mask][t] - pooled) < 1e-12 and abs(series[f"{mask}_clients"][t] - mean) < 1e-12
                assert mask == "test" or abs(series["val_loss"][t] - loss) < 1e-9
        if kind is FedAvg:
            differ |= history.before.series(0)["val_loss"][t] != history.after.series(0)["val_loss"][t]
    assert differ or kind is not FedAvg


def test_a_view_that_is_not_asked_for_is_not_scored() -> None:
    """`evaluate` names the views; weights do not depend on it."""
    data, parts = task(3)
    fed = Federation.of(data, parts)
    both, none = (train(FedAvg(model=DROPPING), fed, 2, evaluate=views) for views in (("before", "after"), ()))
    assert identical(both.state.shared, none.state.shared)
    assert set(both.history.result(0)) == {"before", "after"} and none.history.result(0) == {}


def test_chosen_rounds_are_the_first_of_the_best() -> None:
    """ "best" is the first round of highest validation accuracy, "best_loss" that of lowest loss, "last" the last."""
    rounds = {"val": [0.2, 0.7, 0.7, 0.1], "test": [0.4, 0.5, 0.6, 0.9], "val_loss": [2.0, 1.0, 0.5, 3.0]}
    scores = Scores()
    for t in range(4):
        scores.add({name: np.array([0.0, values[t]]) for name, values in rounds.items()})
    result = History(4, 2, before=scores).result(1)
    assert set(result) == {"before"}
    assert {name: (pick["round"], pick["test"]) for name, pick in result["before"].items()} == {
        "last": (4, 0.9), "best": (2, 0.5), "best_loss": (3, 0.6)
    }  # fmt: skip


def test_the_training_loss_is_that_of_the_last_step_averaged_over_active_clients() -> None:
    """Per round, the mean over clients with training nodes of the loss before their last local step."""
    data, parts = task(3)
    method = FedAvg(model=GCN, local_epochs=2)
    history = train(method, Federation.of(data, parts, dtype=F64), 1).history
    losses = []
    for part in (parts[0], parts[2]):
        graph = client_graph(data, part)
        net = Plain(GCN, client(GCN.init([0], F64), 0))
        optimizer = optimizer_of(method, net)
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(graph)[graph.train_mask], graph.y[graph.train_mask])
            loss.backward()
            optimizer.step()
        losses.append(float(loss.detach()))
    assert abs(history.loss[0][0] - np.mean(losses)) < 1e-12


# -- refused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (FedAvg, {"average": "mean"}, "average must be one of 'equal', 'train', 'nodes'"),
        (FedAvg, {"optimizer_state": "keep"}, "optimizer_state must be .* Did you mean 'kept'"),
        (FedAvg, {"local_epochs": 0}, "local_epochs must be at least 1"),
        (FedAvg, {"participation": 0.0}, "participation must be"),
        (FedAvg, {"lr": 0}, "lr must be positive"),
        (FedSGD, {"local_epochs": 2}, "local_epochs must be 1 for FedSGD"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(kind: type[Method], options: dict[str, Any], message: str) -> None:
    """An `ArgumentError` says which and what is allowed."""
    with pytest.raises(ArgumentError, match=message):
        kind(model=GCN, **options)


def test_central_training_of_several_clients_is_refused() -> None:
    """Central takes one client a run, and says how many there were."""
    with pytest.raises(ArgumentError, match="clients must be 1 for central training.*Got 3"):
        train(Central(model=GCN), Federation.of(*task(3)), 1)


def test_no_rounds_are_refused() -> None:
    """At least one round is trained."""
    with pytest.raises(ArgumentError, match="rounds must be at least 1"):
        train(FedAvg(model=GCN), Federation.of(*task(3)), 0)
