"""Scores of a round and the rounds chosen by them, against NumPy and a plain loop over clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import Plain, client_graph, identical
from loop import DROPPING, GCN, client, loop, optimizer_of, task
from sklearn.metrics import f1_score, roc_auc_score

from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.local import Local
from fedrepro.engine.method import Method
from fedrepro.engine.scores import History, Scores, metrics, score
from fedrepro.engine.training import train

F64 = torch.float64


@pytest.mark.parametrize("kind", [FedAvg, FedSGD, Local])
def test_test_labels_change_no_choice(kind: type[Method]) -> None:
    """Permuting them leaves weights, losses, validation scores and selected rounds bitwise, and changes test scores."""
    results = []
    for permuted in (False, True):
        data, parts = task(5)
        if permuted:
            data.y[data.test_mask] = (data.y[data.test_mask] + 1) % 3
        trained = train(kind(model=DROPPING, lr=0.05), Federation.of(data, parts, 0), 8)
        views = {
            view: {
                pick: {name: v for name, v in entries.items() if not name.startswith("test")}
                for pick, entries in picks.items()
            }
            for view, picks in trained.history.result(0).items()
        }
        tests = trained.history.before.series(0)["test"]
        results.append(
            (
                {**trained.state.shared, **trained.state.personal},
                views,
                [loss.tolist() for loss in trained.history.loss],
                tests,
            )
        )
    (weights, views, losses, tests), (weights_, views_, losses_, tests_) = results
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
    scores = score(fed, logits)
    for run in (0, 1):
        for mask in ("val", "test"):
            pooled, mean, loss = accuracies(logits.numpy(), fed, run, mask)
            assert abs(scores[mask][run] - pooled) < 1e-12 and abs(scores[f"{mask}_clients"][run] - mean) < 1e-12
            assert mask == "test" or abs(scores["val_loss"][run] - loss) < 1e-12
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
        entries = {name: np.array([0.0, values[t]]) for name, values in rounds.items()}
        scores.add({**entries, "each": np.array([t, 10.0 + t])}, np.array([0, 1]), {})
    result = History(4, 2, before=scores).result(1)
    assert set(result) == {"before"}
    found = {name: (pick["round"], pick["test"]) for name, pick in result["before"].items()}
    assert found == {"last": (4, 0.9), "best": (2, 0.5), "best_loss": (3, 0.6)}


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


def test_every_clients_score_is_kept_of_the_round_of_best_validation() -> None:
    """Each client's score is NumPy's of the round of best validation, and NaN for a client without test nodes."""
    data, parts = task(5)
    data.test_mask[parts[1]] = False
    fed = Federation.of(data, parts, dtype=F64)
    scores = Scores()
    kept = []
    for seed in range(6):
        logits = torch.randn(fed.nodes, 3, dtype=F64, generator=torch.Generator().manual_seed(seed))
        logits -= 9.0 * (seed == 0) * F.one_hot(fed.batch.y, 3)  # the first is nowhere right
        found = score(fed, logits)
        scores.add(found, fed.run.numpy(), {})
        kept.append((float(found["val"][0]), logits.argmax(1).eq(fed.batch.y)))
    best = max(range(6), key=lambda t: kept[t][0])
    assert best > 0, "the first round is not the best"
    for number in range(5):
        test_nodes = (fed.batch.batch == number) & fed.batch.test_mask
        expected = kept[best][1][test_nodes].double().mean().item()
        got = scores.each[0][number]
        assert np.isnan(got) if not bool(test_nodes.any()) else abs(got - expected) < 1e-12


def test_several_labels_are_scored_by_micro_f1() -> None:
    """scikit-learn's F1 over the nodes of a split, pooled and per client, and the mean binary cross-entropy."""
    data, parts = task(5)
    rng = np.random.default_rng(0)
    data.y = torch.from_numpy((rng.random((48, 6)) < 0.3).astype(np.float32))
    data.num_classes = 6
    fed = Federation.of(data, parts, dtype=F64)
    logits = torch.from_numpy(rng.normal(size=(fed.nodes, 6)))
    scores = score(fed, logits)
    chosen = fed.batch.test_mask.numpy()
    y, said = fed.batch.y.numpy()[chosen], (logits.numpy() > 0)[chosen]
    owner = fed.batch.batch.numpy()[chosen]
    each = [f1_score(y[owner == c], said[owner == c], average="micro") for c in np.unique(owner)]
    assert abs(scores["test"][0] - f1_score(y, said, average="micro")) < 1e-12
    assert abs(scores["test_clients"][0] - np.mean(each)) < 1e-12
    held = fed.batch.val_mask
    loss = F.binary_cross_entropy_with_logits(logits[held], fed.batch.y[held].double())
    assert abs(scores["val_loss"][0] - loss.item()) < 1e-12


@pytest.mark.parametrize("hops", [0, 1])
def test_further_metrics_are_those_of_scikit_learn_on_the_logits_of_the_round(hops: int) -> None:
    """Macro-F1 and AUC of the best and the last round, for each run's own nodes."""
    feds = [Federation.of(*task(5, seed), seed, dtype=F64) for seed in (0, 1)]
    fed = Federation.stack(feds)
    history = History(4, 2)
    given = [
        torch.randn(fed.halo(hops).nodes, 3, dtype=F64, generator=torch.Generator().manual_seed(s)) for s in range(4)
    ]
    for logits in given:
        history.add("before", fed.halo(hops), logits)
    extended = fed.halo(hops)
    for run in (0, 1):
        result = history.result(run)["before"]
        assert result["best"]["round"] < 4 or run, "the last round is the best, so the two cannot be told apart"
        for pick in ("best", "last"):
            logits = given[int(result[pick]["round"]) - 1]
            for mask in ("val", "test"):
                chosen = extended.batch[f"{mask}_mask"] & (extended.batch.ring == 0)
                chosen &= extended.run[extended.batch.batch] == run
                y, p = extended.batch.y[chosen].numpy(), logits[chosen].softmax(1).numpy()
                f1 = f1_score(y, p.argmax(1), average="macro", zero_division=0)
                auc = np.mean([roc_auc_score(y == c, p[:, c]) for c in range(3)])
                assert abs(result[pick][f"{mask}_f1"] - f1) < 1e-12 and abs(result[pick][f"{mask}_auc"] - auc) < 1e-12
        assert "test_f1" not in result["best_loss"]


def test_one_dominant_class_is_told_from_a_model_that_learned() -> None:
    """A constant prediction has the majority's accuracy, an AUC of one half and one predicted class."""
    y = torch.tensor([0] * 80 + [1] * 20)
    constant, ranking = torch.zeros(100, 2), torch.zeros(100, 2)
    constant[:, 0] = 1.0
    ranking[:, 0], ranking[:, 1] = 1.0, y * 0.5
    scores = metrics(constant, y), metrics(ranking, y)
    assert (constant.argmax(1) == y).float().mean() == (ranking.argmax(1) == y).float().mean() == 0.8
    assert scores[0] == {"f1": pytest.approx(0.8 / 1.8), "auc": 0.5, "classes": 1.0}
    assert scores[1]["auc"] == 1.0 and scores[1]["f1"] == scores[0]["f1"]
    assert all(np.isnan(value) for value in metrics(constant[:0], y[:0]).values())
    one = metrics(constant, torch.zeros(100, dtype=torch.long))
    assert np.isnan(one["auc"]) and one["f1"] == 1.0


def test_metrics_of_several_labels_leave_out_a_label_that_no_node_or_every_node_has() -> None:
    """Macro-averages over labels, from scikit-learn, label by label."""
    rng = np.random.default_rng(1)
    y = torch.from_numpy((rng.random((60, 5)) < 0.3).astype(np.float32))
    y[:, 3], y[:, 4] = 0.0, 1.0
    logits = torch.from_numpy(rng.normal(size=(60, 5)))
    scores = metrics(logits, y)
    f1 = [f1_score(y[:, c].numpy(), (logits[:, c] > 0).numpy(), zero_division=0) for c in range(5)]
    auc = [roc_auc_score(y[:, c].numpy(), logits[:, c].numpy()) for c in range(3)]
    assert abs(scores["f1"] - np.mean(f1)) < 1e-12 and abs(scores["auc"] - np.mean(auc)) < 1e-12


def test_majority_and_kept_predictions_are_those_of_the_runs_own_nodes() -> None:
    """The share of the most frequent class, and the predicted class of each scored node at the best round."""
    data, parts = task(5)
    fed = Federation.of(data, parts, 0)
    history = train(FedAvg(model=DROPPING, lr=0.05), fed, 4).history
    kept, best = history.predictions(0), history.result(0)["before"]["best"]
    for mask in ("val", "test"):
        y = data.y[data[f"{mask}_mask"]]
        assert abs(history.majority(0)[mask] - y.bincount().max().item() / len(y)) < 1e-12
        columns = kept[mask]
        assert set(columns) == {"node", "label", "before", "after"}
        assert columns["label"] == data.y[columns["node"]].tolist()
        assert sorted(columns["node"]) == data[f"{mask}_mask"].nonzero().squeeze(1).tolist()
        right = np.mean(np.array(columns["before"]) == columns["label"])
        assert abs(right - best[mask]) < 1e-12
