"""Training, against a plain loop over clients; frozen clients, runs side by side, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from graphs import client_graph, identical, largest_difference
from loop import DROPPING, GCN, MOVING, SGD, SIZES, Weights, client, dropout_masks, loop, task, watch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.central import Central
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.local import Local
from fedrepro.engine.method import Method
from fedrepro.engine.nn import models
from fedrepro.engine.training import Trained, train
from fedrepro.errors import ArgumentError

F64 = torch.float64


def held(made: Trained) -> Weights:
    """Return the weights that server and clients hold at the end."""
    return {**made.state.shared, **made.state.personal}


# -- equal to a loop -------------------------------------------------------------------------------


def loop_gap(
    method: Method, tasks: Sequence[tuple[Data, list[Tensor]]], dtype: torch.dtype, chunk: int | None = None
) -> float:
    """Largest difference of the weights of server and clients after three rounds; seeds 3, 4, ... side by side."""
    feds = [Federation.of(data, parts, seed, dtype=dtype) for seed, (data, parts) in enumerate(tasks, start=3)]
    watched, updates = watch(method)
    trained = train(watched, feds[0] if len(feds) == 1 else Federation.stack(feds), 3, chunk=chunk)
    worst, start = 0.0, 0
    for run, (data, parts) in enumerate(tasks):
        rounds = loop(method, data, parts, 3, 3 + run, dtype)
        for number in range(len(parts)):
            if method.upload == "weights":
                weights = client(updates[-1].after, start + number)
                worst = max(worst, largest_difference(weights, rounds[-1].clients[number]))
            for t in range(3):
                assert bool(updates[t].active[start + number]) == (number in rounds[t].chosen)
        if trained.state.shared:
            worst = max(worst, largest_difference(client(trained.state.shared, run), rounds[-1].server))
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


RESET: dict[str, Any] = {"optimizer_state": "reset", "local_epochs": 3}
VARIANTS: dict[str, dict[str, Any]] = {
    "equal weights": {"average": "equal"},
    "training nodes": {"average": "train"},
    "all nodes": {"average": "nodes"},
    "plain SGD": SGD,
    "SGD, momentum, decay": {**SGD, "momentum": 0.9, "weight_decay": 0.05},
    "SGD, momentum, reset": {**SGD, **RESET, "momentum": 0.9},
    "Adam, reset": RESET,
    "one local epoch": {"local_epochs": 1},
    "three local epochs": {"local_epochs": 3},
    "half of the clients": {"participation": 0.5, "local_epochs": 2},
    "half of the clients, SGD, momentum": {**SGD, "momentum": 0.9, "weight_decay": 0.05, "participation": 0.5},
    "half of the clients, by nodes, reset": {**RESET, "participation": 0.5, "average": "nodes"},
}


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


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS)
def test_a_chunk_without_scored_nodes_trains_as_in_the_loop(model: models.Model, chunk: int) -> None:
    """Two clients without validation and test nodes, one of them with training nodes; scores are those of one chunk."""
    data, parts = task(10)
    unscored = torch.cat(parts[4:6])
    data.val_mask[unscored] = data.test_mask[unscored] = False
    method = FedAvg(model=model, optimizer="sgd", lr=0.1, momentum=0.9, local_epochs=2)
    assert loop_gap(method, [(data, parts)], F64, chunk) < 1e-10
    fed = Federation.of(data, parts, 3, dtype=F64)
    chunks, whole = (train(method, fed, 2, chunk=size).history for size in (chunk, None))
    for view in ("before", "after"):
        series, expected = (getattr(history, view).series(0) for history in (chunks, whole))
        assert all(np.abs(np.subtract(series[name], expected[name])).max() < 1e-10 for name in expected)


def test_the_masks_of_these_tests_drop_some_entries() -> None:
    """The oracle's dropout is no identity: about 0.6 of the entries are dropped, others in every step and client."""
    data, parts = task(3)
    graph = client_graph(data, parts[2])
    first, again, later, other = (
        dropout_masks(DROPPING, graph, 3, number, 0, step)[0] for number, step in ((2, 0), (2, 0), (2, 1), (1, 0))
    )
    assert abs(float((first == 0).double().mean()) - 0.6) < 0.15
    assert torch.equal(first, again) and not torch.equal(first, later) and not torch.equal(first, other)


# -- frozen clients --------------------------------------------------------------------------------


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
    trained = train(Local(model=GCN, weight_decay=0.1), Federation.of(data, parts, dtype=F64), 3, chunk=chunk)
    first = client(GCN.init([0], F64), 0)
    for number in range(10):
        weights = client(trained.state.personal, number)
        assert identical(weights, first) if number in (2, 5) else bool(weights["layer1.weight"].isnan().any())
    assert trained.history.diverged == {0: 1}


# -- runs never mix --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FedAvg, FedSGD, Local])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_nan_in_one_run_leaves_the_others_bitwise_unchanged(kind: type[Method], sparse: bool) -> None:
    """Weights and scores of the other runs keep their bits; the run with the NaN is listed as diverged."""
    trained = []
    for bad in (False, True):
        tasks = [task(5, seed, sparse=sparse) for seed in (0, 1, 2)]
        if bad:
            data, parts = tasks[1]
            x = data.x.to_dense() if sparse else data.x
            x[parts[4][data.train_mask[parts[4]]][0]] = torch.nan
            data.x = x.to_sparse_csr() if sparse else x
        fed = Federation.stack([Federation.of(*each, seed) for seed, each in enumerate(tasks)])
        trained.append(train(kind(model=DROPPING, lr=0.05), fed, 3))
    clean, spoilt = trained
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


# -- refused ---------------------------------------------------------------------------------------


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
    with pytest.raises(ArgumentError, match=r"clients must be 1 for central training.*Got 3"):
        train(Central(model=GCN), Federation.of(*task(3)), 1)


def test_no_rounds_are_refused() -> None:
    """At least one round is trained."""
    with pytest.raises(ArgumentError, match="rounds must be at least 1"):
        train(FedAvg(model=GCN), Federation.of(*task(3)), 0)


@pytest.mark.parametrize(
    ("wrong", "argument"), [({"chunk": 0}, "chunk"), ({"chunk": -1}, "chunk"), ({"evaluate": ("befor",)}, "evaluate")]
)
def test_arguments_of_training(wrong: dict[str, Any], argument: str) -> None:
    """Chunks of no client and views that do not exist are refused, not left unscored."""
    data, parts = task(1)
    with pytest.raises(ArgumentError, match=f"^{argument} must be"):
        train(FedAvg(model=GCN), Federation.of(data, parts), 2, **wrong)
