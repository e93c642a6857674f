"""GFL-APPNP compared with a plain program over clients, and the messages it sends."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gfl_plain import CLASSES, FEATURES, HIDDEN, NET, NODES, SAMPLES, data, federate
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation
from fedrepro.engine.method import Method
from fedrepro.engine.nn.models import GAT, GCN
from fedrepro.engine.training import Trained, train
from fedrepro.errors import ArgumentError
from fedrepro.papers.gfl.clients import FIRST, SECOND, Trace, propagation, propagation_weights
from fedrepro.papers.gfl.method import GFLAPPNP, RECEIVED, CentralUnbiased, FedMLP, MLPs, U
from fedrepro.papers.gfl.own_round import MLPsOwnRound, improves


def matrix(graph: Data, weights: list[float]) -> np.ndarray:
    """Return the propagation matrix by its definition, in NumPy."""
    a = np.eye(NODES)
    a[graph.edge_index[1] // SAMPLES, graph.edge_index[0] // SAMPLES] = 1
    s = a / np.sqrt(np.outer(a.sum(1), a.sum(1)))
    return np.asarray(sum(w * np.linalg.matrix_power(s, i) for i, w in enumerate(weights)))


def plain(
    graph: Data, method: GFLAPPNP, first: Tensor, second: Tensor, rounds: int
) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]:
    """Run Algorithm 1 client after client, with whole weights and Jacobians.

    Returns the averaged W1 and W2, and each client's weights after its last local step.
    """
    x, node = graph.x.double(), torch.arange(NODES * SAMPLES) // SAMPLES
    a = torch.from_numpy(matrix(graph, propagation_weights(method.propagation, method.alpha, method.steps)))
    used = graph.train_mask if method.share == "train" else torch.ones_like(graph.train_mask)
    able = [k for k in range(NODES) if bool(graph.train_mask[node == k].any())]
    for _ in range(rounds):
        server = [first.clone().requires_grad_(), second.clone().requires_grad_()]
        h = F.relu(x @ server[0]) @ server[1]
        means = torch.stack(
            [h[(node == j) & used].mean(0) if bool(used[node == j].any()) else h[0] * 0 for j in range(NODES)]
        )
        clients = []
        for k in able:
            off = a[k].clone()
            off[k] = 0
            c = off @ means
            jacobian = [torch.autograd.grad(entry, server, retain_graph=True) for entry in c]
            ws, rows = [first, second], (node == k) & graph.train_mask
            for _ in range(method.local_epochs):
                leaves = [w.clone().requires_grad_() for w in ws]
                z = a[k, k] * (F.relu(x[rows] @ leaves[0]) @ leaves[1]) + c.detach()
                residual = (z.softmax(1) - F.one_hot(graph.y[rows], CLASSES)).detach() / int(rows.sum())
                steps = list(torch.autograd.grad((residual * z).sum(), leaves))
                if method.compensation:
                    for error, entry in zip(residual.sum(0), jacobian):
                        steps = [g + error * j for g, j in zip(steps, entry)]
                ws = [w - method.lr * g for w, g in zip(ws, steps)]
            clients.append((ws[0], ws[1]))
        first, second = (torch.stack([ws[i] for ws in clients]).mean(0) for i in (0, 1))
    return first, second, clients


@pytest.mark.parametrize("propagation", ["appnp", "truncated", "printed"])
@pytest.mark.parametrize(("local", "compensation"), [(1, True), (4, True), (4, False)])
@pytest.mark.parametrize(("share", "split_nodes"), [("train", False), ("all", True)])
def test_rounds_equal_algorithm_1(
    propagation: str, local: int, compensation: bool, share: str, split_nodes: bool
) -> None:
    """Three rounds give the weights of Algorithm 1 written out client by client, to 1e-10."""
    graph = data(split_nodes=split_nodes)
    method = GFLAPPNP(
        model=NET, lr=0.3, local_epochs=local, compensation=compensation, propagation=propagation, share=share
    )
    start = method.start(federate(graph))[1].shared
    trained = train(method, federate(graph), 3).state.shared
    first, second, _ = plain(graph, method, start[FIRST][0], start[SECOND][0], 3)
    assert float((trained[FIRST][0] - first).abs().max()) < 1e-10
    assert float((trained[SECOND][0] - second).abs().max()) < 1e-10
    assert float((trained[FIRST][0] - start[FIRST][0]).abs().max()) > 1e-3


def test_sparse_features_give_the_same() -> None:
    """Sparse features give the weights that Algorithm 1 gives on dense ones."""
    graph = data(split_nodes=True, sparse=True)
    method = GFLAPPNP(model=NET, lr=0.3, local_epochs=3)
    fed = federate(graph)
    assert not isinstance(fed.x, Tensor)
    start = method.start(fed)[1].shared
    first, _, _ = plain(graph, method, start[FIRST][0], start[SECOND][0], 2)
    assert float((train(method, fed, 2).state.shared[FIRST][0] - first).abs().max()) < 1e-10


@pytest.mark.parametrize("sparse", [False, True])
def test_scores_after_local_training_use_each_clients_weights(sparse: bool) -> None:
    """First layers that are computed from coordinates, and logits under them, are those of the plain program."""
    graph = data(sparse=sparse)
    method = GFLAPPNP(model=NET, lr=0.3, local_epochs=3, share="train")
    _, state = method.start(federate(graph))
    seen = []

    class Watched(GFLAPPNP):
        def aggregate(self, state, update):  # type: ignore[no-untyped-def]
            seen.append(
                (self.first_layers(update.after, update.fed, state), self.forward(update.after, update.fed, state))
            )
            return super().aggregate(state, update)

    train(Watched(model=NET, lr=0.3, local_epochs=3, share="train"), federate(graph), 1)
    start = state.shared
    _, _, clients = plain(graph, method, start[FIRST][0], start[SECOND][0], 1)
    a, c = state.more.graphs[0].a, state.more.received.c
    for k, (first, second) in enumerate(clients):
        rows = slice(k * SAMPLES, (k + 1) * SAMPLES)
        assert float((seen[0][0][k] - first).abs().max()) < 1e-10
        logits = a[k, k] * (F.relu(graph.x[rows].double() @ first) @ second) + c[k]
        assert float((seen[0][1][rows] - logits).abs().max()) < 1e-10


def central_appnp(graph: Data, first: Tensor, second: Tensor, lr: float, rounds: int) -> list[tuple[Tensor, Tensor]]:
    """Take gradient steps on the clients' mean loss through the whole propagation matrix; return all weights."""
    a = torch.from_numpy(matrix(graph, propagation_weights("appnp", 0.1, 10)))
    rows, steps = graph.train_mask.nonzero().squeeze(1), []
    for _ in range(rounds):
        leaves = [w.clone().requires_grad_() for w in (first, second)]
        h = (F.relu(graph.x.double() @ leaves[0]) @ leaves[1]).view(NODES, SAMPLES, CLASSES)
        means = h.mean(1)
        z = a.diagonal()[:, None, None] * h + (a @ means - a.diagonal()[:, None] * means)[:, None]
        loss = F.cross_entropy(z.flatten(0, 1)[rows], graph.y[rows])
        first, second = (w - lr * g for w, g in zip((first, second), torch.autograd.grad(loss, leaves)))
        steps.append((first, second))
    return steps


def test_one_local_step_is_central_appnp() -> None:
    """With I = 1 each of ten rounds is a step of central APPNP, to 1e-10 (GFL-I3)."""
    graph = data(split_nodes=True)
    method = GFLAPPNP(model=NET, lr=0.4)
    start = method.start(federate(graph))[1].shared
    expected = central_appnp(graph, start[FIRST][0], start[SECOND][0], 0.4, 10)
    for rounds in range(1, 11):
        trained = train(method, federate(graph), rounds).state.shared
        assert float((trained[FIRST][0] - expected[rounds - 1][0]).abs().max()) < 1e-10
        assert float((trained[SECOND][0] - expected[rounds - 1][1]).abs().max()) < 1e-10


def test_identity_aggregator_is_fedavg() -> None:
    """Without the graph, rounds are those of FedAvg in a plain loop (GFL-I6)."""
    graph = data()
    method = FedMLP(model=NET, lr=0.3, local_epochs=3)
    start = method.start(federate(graph))[1].shared
    first, _, _ = plain(graph, replace(method, steps=0), start[FIRST][0], start[SECOND][0], 3)
    trained = train(method, federate(graph), 3).state.shared
    assert float((trained[FIRST][0] - first).abs().max()) < 1e-10


def test_mlps_send_nothing_and_stay_apart() -> None:
    """Independent networks equal the clients of a federation that never averages; nothing travels."""
    graph = data()
    trained = train(MLPs(model=NET, lr=0.3, local_epochs=2), federate(graph), 3)
    one_round = FedMLP(model=NET, lr=0.3, local_epochs=6)
    start = one_round.start(federate(graph))[1].shared
    _, _, clients = plain(graph, replace(one_round, steps=0), start[FIRST][0], start[SECOND][0], 1)
    second = trained.state.personal[SECOND]
    assert max(float((second[k] - ws[1]).abs().max()) for k, ws in enumerate(clients)) < 1e-10
    assert trained.fed.traffic.summary()["bytes"] == {"before": 0.0, "training": 0.0}


def test_each_mlp_is_scored_in_its_own_best_round() -> None:
    """The score is that of clients which each keep the model of their lowest validation loss, in a plain loop (GFL-S).

    Training is that of `MLPs`, which have one round for all clients.
    """
    graph, options = data(), {"model": NET, "lr": 2.0, "local_epochs": 2}
    y, node, rounds = graph.y, torch.arange(NODES * SAMPLES) // SAMPLES, []

    class Watched(MLPs):
        def aggregate(self, state, update):  # type: ignore[no-untyped-def]
            state = super().aggregate(state, update)
            rounds.append(state.more.received.logits.clone())
            return state

    common, separate = (train(kind(**options), federate(graph), 12) for kind in (Watched, MLPsOwnRound))
    kept = torch.zeros(len(y), CLASSES, dtype=torch.float64)
    chosen = []
    for k in range(NODES):
        held = (node == k) & graph.val_mask
        losses = [float(F.cross_entropy(logits[held], y[held])) for logits in rounds]
        chosen.append(int(np.argmin(losses)))
        kept[node == k] = rounds[chosen[-1]][node == k]
    assert len(set(chosen)) > 1
    test = graph.test_mask
    expected = float((kept[test].argmax(1) == y[test]).double().mean())
    score, other = (trained.history.result(0)["before"]["best_loss"] for trained in (separate, common))
    assert score["round"] == max(chosen) + 1 and score["test"] == pytest.approx(expected)
    assert score["val_loss"] == pytest.approx(float(F.cross_entropy(kept[graph.val_mask], y[graph.val_mask])))
    assert score["val_loss"] < other["val_loss"]
    for name, w in separate.state.personal.items():
        assert torch.equal(w, common.state.personal[name])


@pytest.mark.parametrize("kind", ["appnp", "truncated", "printed"])
def test_propagation_matrix(kind: str) -> None:
    """A equals a sum of matrix powers, whose weights sum to 1, or to 0.686 if truncated (GFL-Q1)."""
    graph = data()
    weights = propagation_weights(kind, 0.1, 10)
    edges = graph.edge_index // SAMPLES
    a = propagation(edges, NODES, kind, 0.1, 10).numpy()
    assert np.abs(a - matrix(graph, weights)).max() < 1e-12
    assert sum(weights) == pytest.approx({"truncated": 0.68619}.get(kind, 1.0), abs=1e-5)
    assert weights[0] == pytest.approx(0.9 if kind == "printed" else 0.1)


def test_clients_without_labels_share_one_slice_that_never_moves() -> None:
    """Three of nine clients train in a slice each, followed by one slice for the rest, whose coordinates stay zero."""
    graph = data(split_nodes=True)
    method = GFLAPPNP(model=NET, lr=0.3, local_epochs=3)
    updates = []

    class Watched(GFLAPPNP):
        def aggregate(self, state, update):  # type: ignore[no-untyped-def]
            updates.append(update)
            return super().aggregate(state, update)

    train(Watched(model=NET, lr=0.3, local_epochs=3), federate(graph), 2)
    fed, _ = method.start(federate(graph))
    assert fed.clients == 4 and fed.count("train").tolist() == [4, 4, 4, 0]
    after = updates[-1].after
    assert not after[U][3].any() and not after[RECEIVED][3].any()
    assert torch.equal(after[SECOND][3], updates[-1].before[SECOND][3])
    assert bool(after[U][:3].any()) and bool(after[RECEIVED][:3].any())


def test_runs_side_by_side_equal_runs_alone() -> None:
    """Noise and batches are functions of seed, client and round: two runs stacked give what each gives by itself."""
    method = GFLAPPNP(model=NET, lr=0.2, local_epochs=3, noise=1.0, batch=1, update="pass", share="train")
    alone = [train(method, federate(data(seed), seed), 3) for seed in (0, 1)]
    both = train(method, Federation.stack([federate(data(seed), seed) for seed in (0, 1)]), 3)
    for run, trained in enumerate(alone):
        for name, w in trained.state.shared.items():
            assert float((both.state.shared[name][run] - w[0]).abs().max()) < 1e-10
        assert both.history.result(run)["before"]["last"]["val_loss"] == pytest.approx(
            trained.history.result(0)["before"]["last"]["val_loss"], abs=1e-10
        )


def test_batches_go_through_all_samples() -> None:
    """Each pass meets every training sample once, in an order that changes with the pass."""
    method = GFLAPPNP(model=NET, batch=1, local_epochs=4, share="train")
    fed, state = method.start(federate(data()))
    passes = []
    for t in range(3):
        masks = [method._batch(fed.at(t, step), state.more.samples) > 0 for step in range(4)]
        passes += [torch.stack(masks[:2]), torch.stack(masks[2:])]
    assert all(bool((masks.sum(0) == 1).all()) for masks in passes)
    assert any(not torch.equal(a, b) for a, b in pairwise(passes))


def sent(method: Method, split_nodes: bool = True) -> dict[str, float]:
    trained: Trained = train(method, federate(data(split_nodes=split_nodes)), 2)
    return trained.fed.traffic.round(1)


def test_messages_are_counted() -> None:
    """All clients receive weights, and those that train send some; all exchange h, C and, on request, gradients."""
    size = FEATURES * HIDDEN + HIDDEN * CLASSES
    assert sent(GFLAPPNP(model=NET, lr=0.1)) == {
        "down.weights": NODES * size,
        "up.weights": 3 * size,
        "up.h": NODES * CLASSES,
        "down.C": NODES * CLASSES,
        "up.gradient of h": NODES * CLASSES * size,
        "down.gradient of C": NODES * CLASSES * size,
    }
    assert {"up.gradient of h", "down.gradient of C"}.isdisjoint(sent(GFLAPPNP(model=NET, lr=0.1, compensation=False)))
    assert set(sent(FedMLP(model=NET, lr=0.1))) == {"down.weights", "up.weights"}


def test_majority_is_reported_where_labels_are_fixed() -> None:
    """The facts hold the share of test nodes that a majority classifies right, at the lowest validation loss."""
    graph = data(split_nodes=True)
    trained = train(GFLAPPNP(model=NET, lr=0.3), federate(graph), 4)
    facts = trained.state.more.trace.facts()[0]
    best = int(np.argmin([loss[1][0] for loss in trained.state.more.trace.losses])) + 1
    upto = train(GFLAPPNP(model=NET, lr=0.3), federate(graph), best)
    logits = upto.state.more.received.logits[3 * SAMPLES :].view(-1, SAMPLES, CLASSES).argmax(2)
    right = []
    for row, node in enumerate([k for k in range(NODES) if k % 3]):
        if node % 3 == 2:
            votes = torch.bincount(logits[row], minlength=CLASSES)
            right.append(int(votes.argmax()) == int(graph.y[node * SAMPLES]))
    assert facts["node_test"] == pytest.approx(np.mean(right))
    assert len(facts["curve.val_loss"]) == 4


def test_votes_are_taken_at_the_lowest_loss() -> None:
    """The majorities are reported of the second of three rounds, whose validation loss is the lowest."""
    fed, state = GFLAPPNP(model=NET).start(federate(data(split_nodes=True)))
    graph, y, trace = state.more.graphs[0], fed.batch.y, Trace()
    odd = torch.arange(len(y)) % SAMPLES == 0  # one sample of each node is given another label than the other three
    for sure, nodes in ((0.0, (2, 5, 8)), (2.0, (5,)), (1.0, (5, 8))):  # the test nodes that are classified right
        logits = sure * F.one_hot(y, CLASSES).double()
        most = torch.isin(graph.node, torch.tensor(nodes)) ^ odd
        voted = F.one_hot(torch.where(most, y, (y + 1) % CLASSES), CLASSES).double()
        trace.add(fed, [graph], torch.where(fed.batch.test_mask[:, None], voted, logits), votes=True)
    first, second, third = (loss[1][0] for loss in trace.losses)
    assert first > third > second
    assert trace.facts()[0]["node_test"] == pytest.approx(1 / 3)


def test_central_models_keep_biases_at_zero() -> None:
    """The central baselines train weights only; PyTorch's initialization has the bound 1/sqrt(fan in)."""
    fed = Federation.of(data(), [torch.arange(NODES * SAMPLES)], 0)
    trained = train(CentralUnbiased(model=GCN(FEATURES, CLASSES, 4), optimizer="sgd", lr=0.1), fed, 3).state.personal
    assert not any(bool(w.any()) for name, w in trained.items() if name.endswith("bias"))
    start = CentralUnbiased(model=GCN(FEATURES, CLASSES, 400), torch_init=True).start(fed)[1].personal
    bound = float(start["layer1.weight"].abs().max())
    assert bound == pytest.approx(FEATURES**-0.5, rel=0.01)


def test_pytorchs_initialization_leaves_attention_vectors_alone() -> None:
    """A GAT's weights move to the bound of PyTorch's linear layers; its attention vectors stay Glorot's."""
    fed = Federation.of(data(), [torch.arange(NODES * SAMPLES)], 0)
    model = GAT(FEATURES, CLASSES, 4, heads=2)
    usual, other = (CentralUnbiased(model=model, torch_init=it).start(fed)[1].personal for it in (False, True))
    for name, w in usual.items():
        assert torch.equal(w, other[name]) is (not name.endswith("weight")), name


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "adam"}, r"optimizer must be 'sgd'\. Got 'adam'"),
        ({"weight_decay": 0.1}, r"weight_decay must be 0\. Got 0\.1"),
        ({"momentum": 0.9}, r"momentum must be 0\. Got 0\.9"),
        ({"propagation": "ppr"}, "propagation"),
        ({"update": "epoch"}, "update"),
        ({"share": "val"}, "share"),
        ({"noise": -1}, "noise"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, object], words: str) -> None:
    """An error names an option that the method does not know or cannot follow."""
    with pytest.raises(ArgumentError, match=words):
        GFLAPPNP(model=NET, **options)


def test_a_client_keeps_its_best_model_when_its_weights_diverge() -> None:
    """A NaN loss takes the place of no finite one; without any finite loss the last model is kept."""
    nan, inf = torch.nan, torch.inf
    loss, lowest = torch.tensor([nan, 0.5, nan, 1.0, 0.8]), torch.tensor([0.4, inf, nan, 0.9, 0.9])
    assert improves(loss, lowest).tolist() == [False, True, True, False, True]
