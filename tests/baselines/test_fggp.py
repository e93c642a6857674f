"""FGGP and its prototypes against plain loops over classes and nodes, and at their limits."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from functools import partial

import networkx as nx
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import gap, largest_difference
from loop import DROPPING, GCN, task, watch
from plain import (
    F64,
    Client,
    Weights,
    able,
    clients_of,
    detached,
    gcn,
    hidden,
    leaves,
    mean,
    normal,
    optimizer_of,
    row,
    step,
)
from torch import Tensor

from fedrepro.baselines.fggp import FGGP, FGGPActivated, soft_labels
from fedrepro.baselines.prototypes import Bank, class_means, contrast, finch
from fedrepro.baselines.second_view import Graph, second_view
from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import models, random
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError

# -- prototypes -------------------------------------------------------------------------------------------------------


def brute_finch(points: np.ndarray) -> set[frozenset[int]]:
    """Links of the definition as a networkx graph, its components, then the same on their means."""

    def level(x: np.ndarray) -> list[list[int]]:
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        similarity = unit @ unit.T
        np.fill_diagonal(similarity, -np.inf)
        nearest = similarity.argmax(1)
        links = nx.empty_graph(len(x))
        for a in range(len(x)):
            for b in range(len(x)):
                if a != b and (nearest[a] == b or nearest[b] == a or nearest[a] == nearest[b]):
                    links.add_edge(a, b)
        return [sorted(part) for part in nx.connected_components(links)]

    if len(points) == 1:
        return {frozenset([0])}
    clusters = level(points)
    while len(clusters) > 1:
        merged = level(np.stack([points[part].mean(0) for part in clusters]))
        if len(merged) in (1, len(clusters)):
            break
        clusters = [sorted(i for at in group for i in clusters[at]) for group in merged]
    return {frozenset(part) for part in clusters}


def test_finch_is_its_definition() -> None:
    """Against networkx components on 60 random sets of 1 to 30 points."""
    rng = np.random.default_rng(0)
    sizes = set()
    for n in list(range(1, 31)) * 2:
        points = rng.normal(size=(n, 3))
        label = finch(torch.from_numpy(points)).tolist()
        assert {frozenset(np.flatnonzero(np.array(label) == c).tolist()) for c in set(label)} == brute_finch(points)
        sizes.add(max(label) + 1)
    assert len(sizes) >= 4


def test_finch_finds_separated_groups() -> None:
    """Two tight groups come back; two points are one cluster; three groups far apart are not merged into one."""
    rng = np.random.default_rng(1)
    for groups in (2, 3):
        centres = np.eye(groups, 6)
        points = np.concatenate([c + 0.01 * rng.normal(size=(7, 6)) for c in centres])
        label = finch(torch.from_numpy(points)).view(groups, 7)
        together = bool((label == label[:, :1]).all())
        assert together and len(label[:, 0].unique()) in ((2,) if groups == 2 else (2, 3))
    assert finch(torch.eye(2)).tolist() == [0, 0]


def test_class_means_by_hand() -> None:
    """A weighted mean for each client and class, one after another."""
    generator = torch.Generator().manual_seed(0)
    h, weight = torch.randn(40, 4, generator=generator, dtype=F64), torch.rand(40, generator=generator, dtype=F64)
    label, group = torch.randint(3, (40,), generator=generator), torch.randint(2, (40,), generator=generator)
    label[group == 1] = label[group == 1].clamp(max=1)
    got = class_means(h, label, weight, group, 2, 3)
    for g in range(2):
        for c in range(3):
            at = (group == g) & (label == c)
            expected = (weight[at, None] * h[at]).sum(0) / weight[at].sum() if bool(at.any()) else torch.zeros(4)
            assert gap(got[g, c], expected.to(F64)) < 1e-13


def contrast_by_hand(a: Tensor, b: Tensor, classes: list[int], temperature: float) -> Tensor:
    total = a.new_zeros(())
    for c in classes:
        s = torch.cosine_similarity
        pos = torch.exp(s(a[c], b[c], 0) / temperature)
        neg = [torch.exp(s(a[c], other[d], 0) / temperature) for d in classes if d != c for other in (a, b)]
        total = total - torch.log(pos / (pos + sum(neg)))
    return total / len(classes)


def test_the_contrast_is_infonce() -> None:
    """Values and gradients class by class, with classes missing; one class gives 0; equal orthogonal views are best."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(3, 4, 5, generator=generator, dtype=F64).requires_grad_() for _ in range(2))
    present = torch.tensor([[True] * 4, [True, False, True, False], [False, True, False, False]])
    got = contrast(a, b, present, 0.5)
    for g in range(3):
        expected = contrast_by_hand(a[g], b[g], present[g].nonzero()[:, 0].tolist(), 0.5)
        assert gap(got[g], expected) < 1e-12
        both = [torch.autograd.grad(v, (a, b), retain_graph=True, materialize_grads=True) for v in (got[g], expected)]
        assert all(gap(x, y) < 1e-12 for x, y in zip(*both, strict=True))
    assert float(got[2].detach()) == 0
    best = torch.eye(4, 5, dtype=F64)[None]
    least = float(contrast(best, best, present[:1], 0.5))
    assert all(
        least < float(contrast(best, best[:, order], present[:1], 0.5)) for order in ([1, 0, 2, 3], [3, 2, 1, 0])
    )


def test_the_bank_votes() -> None:
    """One prototype a class and k = 1: the nearest; more: softmax of the k nearest cosines summed by class; the oldest
    is overwritten.
    """
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(3, 4, generator=generator, dtype=F64)
    bank = Bank.empty(3, 2, rows)
    for c in range(3):
        bank = bank.written(c, rows[c : c + 1])
    h = torch.randn(50, 4, generator=generator, dtype=F64)
    similarity = torch.cosine_similarity(h[:, None], rows[None], dim=2)
    assert torch.equal(bank.scores(h, nearest=1).argmax(1), similarity.argmax(1))
    more = torch.randn(4, 4, generator=generator, dtype=F64)
    bank = bank.written(0, more[:1]).written(1, more[1:])  # class 1 has two slots: the last two of four stay
    kept = [(0, rows[0]), (0, more[0]), (1, more[2]), (1, more[3]), (2, rows[2])]
    got = bank.scores(h, nearest=3).exp()
    for node, x in enumerate(h):
        best = sorted(((float(torch.cosine_similarity(x, row, 0)), c) for c, row in kept), reverse=True)[:3]
        total = sum(math.exp(s / 0.1) for s, _ in best)
        for c in range(3):
            expected = sum(math.exp(s / 0.1) for s, d in best if d == c) / total
            assert float(got[node, c]) == pytest.approx(expected, rel=1e-9, abs=1e-11)


# -- the method -------------------------------------------------------------------------------------------------------


def embedding(w: Weights, c: Client, method: FGGP) -> Tensor:
    """The first layer's output, after its ReLU for the public code's reading."""
    return torch.relu(hidden(w, c)) if isinstance(method, FGGPActivated) else hidden(w, c)


def scaled_masks(c: Client, number: int, t: int, at: int, p: float, view: str) -> tuple[Tensor, Tensor]:
    """Return the factors that dropout puts on the features and on the hidden layer of one view in one step."""
    keys = torch.from_numpy(random.keys("node", 0, number, c.graph.node_id.numpy()).astype(np.int64))
    masks = []
    for layer, width in (("layer1", 7), ("layer2", 5)):
        by = random.row_keys(keys, "dropout", layer + view, t, at)
        masks.append(random.keep(by[:, None], torch.arange(width), p) / (1 - p))
    return masks[0].to(F64), masks[1].to(F64)


def both(w: Weights, c: Client, masks: tuple[Tensor, Tensor], method: FGGP) -> tuple[Tensor, Tensor]:
    """Embedding and logits of one view with dropout."""
    c = c._replace(x=c.x * masks[0])
    return embedding(w, c, method), c.s @ (torch.relu(hidden(w, c)) * masks[1]) @ w["layer2.weight"] + w["layer2.bias"]


def neighbour_graph(w: Weights, c: Client, k: int, method: FGGP) -> Tensor:
    """A^u node by node: edges, the diagonal, and the k nearest others by cosine of the embedding."""
    h, n = embedding(w, c, method), len(c.x)
    a = torch.eye(n, dtype=F64)
    a[c.graph.edge_index[1], c.graph.edge_index[0]] = 1
    for v in range(n):
        near = [round(1e5 * float(torch.cosine_similarity(h[v], h[u], 0))) for u in range(n)]  # twins tie
        others = sorted((u for u in range(n) if u != v), key=lambda u, near=near: (-near[u], u))
        for u in others[:k]:
            a[v, u] = 1
    return a


def plain_loss(w: Weights, c: Client, a: Tensor, number: int, t: int, at: int, method: FGGP) -> Tensor:
    """The four losses of one client."""
    s = normal(a)
    z = torch.relu(s @ (s @ (c.x @ w["augment1.weight"])) @ w["augment2.weight"])
    inner = z @ z.T
    p = method.blend * inner / inner.max().clamp(min=1e-12) + (1 - method.blend) * a
    u = random.uniform((len(a), len(a)), "augment", 0, number, t, at)
    soft = torch.sigmoid(torch.logit(p, 1e-6) + torch.logit(u, 1e-6))
    drawn = torch.triu((u > 1 - p) + soft - soft.detach(), 1)
    view2 = c._replace(s=normal(drawn + drawn.T + torch.eye(len(a))))
    key = (number, t, at, method.model.dropout)
    h1, logits = both(w, c, scaled_masks(c, *key, ""), method)
    h2, logits2 = both(w, view2, scaled_masks(c, *key, " of view 2"), method)
    total = F.cross_entropy(logits[c.train], c.y[c.train]) + F.cross_entropy(logits2[c.train], c.y[c.train])
    best = torch.softmax(logits.detach(), 1).max(1)
    label = torch.where(c.train, c.y, best.indices)
    weight = torch.where(c.train, 1.0, best.values)
    means = []
    for h in (h2, h1):
        by_class = [weight[label == k] @ h[label == k] / weight[label == k].sum() for k in range(3)]
        means.append(torch.stack(by_class))
    classes = sorted(set(label.tolist()))
    total = total + method.contrast * contrast_by_hand(means[0], means[1], classes, method.temperature)
    n2, ones = a.numel(), float(a.sum())
    if ones < n2:
        rest = (n2 - ones) / ones
        by_class = torch.where(a > 0, -rest * F.logsigmoid(inner), -F.logsigmoid(-inner))
        total = total + method.reconstruct * n2 / (2 * (n2 - ones)) * by_class.mean()
    return total


@pytest.mark.parametrize("model", [GCN, DROPPING], ids=["whole", "dropout"])
@pytest.mark.parametrize("kind", [FGGP, FGGPActivated])
def test_fggp_is_its_plain_loop(kind: type[FGGP], model: models.GCN) -> None:
    """Network, augmentor and classifiers after three rounds of two steps, neighbour graphs renewed once: to 1e-8."""
    data, parts = task(5)
    method = kind(model=model, local_epochs=2, refresh=2, optimizer="sgd", lr=0.1, momentum=0.9, weight_decay=0.01)
    outcome = train(method, Federation.of(data, parts, dtype=F64), 3)
    held = clients_of(data, parts)
    server = {n: w[0] for n, w in method.start(Federation.of(data, parts, dtype=F64))[1].shared.items()}
    heads = [{n: w[0] for n, w in GCN.init([0], F64).items() if n[5] == "2"} for _ in held]
    for t in range(3):
        if t % 2 == 0:
            graphs = [neighbour_graph(server, c, 2, method) for c in held]
        trained = {}
        for i in able(held):
            w = leaves({**server, **heads[i]})
            optimizer = optimizer_of(method, list(w.values()))
            for at in range(2):
                step(optimizer, plain_loss(w, held[i], graphs[i], i, t, at, method))
            trained[i] = detached(w)
            heads[i] = {n: trained[i][n] for n in heads[i]}
        sizes = [len(held[i].x) for i in trained]
        server = mean([{n: w[n] for n in server} for w in trained.values()], sizes)
    assert largest_difference(row(outcome.state.shared, 0), server) < 1e-8
    for i, head in enumerate(heads):
        assert largest_difference(row(outcome.state.personal, i), head) < 1e-8


@pytest.mark.parametrize("cluster", ["finch", "mean"])
@pytest.mark.parametrize("kind", [FGGP, FGGPActivated])
def test_the_server_clusters_what_trained_clients_send(kind: type[FGGP], cluster: str) -> None:
    """The bank after one round, class by class: FINCH of the prototypes of the clients that trained, or their mean."""
    data, parts = task(10)
    method, updates = watch(kind(model=GCN, local_epochs=2, prototypes=8, cluster=cluster))
    outcome = train(method, Federation.of(data, parts, dtype=F64), 1)
    held, update = clients_of(data, parts), updates[0]
    (bank,) = outcome.state.more.banks
    sent = 0
    for c in range(3):
        rows = []
        for i in able(held):
            w = row(update.after, i)
            best = torch.softmax(gcn(w, held[i]), 1).max(1)
            label = torch.where(held[i].train, held[i].y, best.indices)
            weight = torch.where(held[i].train, 1.0, best.values)[label == c]
            if bool((label == c).any()):
                rows.append(weight @ embedding(w, held[i], method)[label == c] / weight.sum())
        points = torch.stack(rows)
        sent += len(rows)
        groups = brute_finch(points.numpy()) if cluster == "finch" else {frozenset(range(len(points)))}
        expected = torch.stack([points[sorted(part)].mean(0) for part in groups])
        got = bank.rows[c][bank.filled[c]]
        similarity = F.normalize(expected, dim=1) @ got.T
        assert len(got) == len(expected) and bool((similarity.max(1).values > 1 - 1e-12).all())
    filled = int(bank.filled.sum())
    weights = 8 * (7 * 5 + 5 + 7 * 5 + 5 * 5)
    prototypes = {"up.prototypes": 5 * sent, "down.prototypes": 5 * filled * 10}
    assert outcome.fed.traffic.round(0) == {**prototypes, "up.weights": weights, "down.weights": weights}
    assert method.facts(outcome.fed, outcome.state)[0]["prototypes"] == filled
    # The vote: every node's embedding under the averaged network, against this bank.
    averaged = row(outcome.state.shared, 0)
    votes = [bank.scores(embedding({**averaged, **row(outcome.state.personal, 0)}, c, method), 20) for c in held]
    assert gap(method.predict(outcome.fed, outcome.state), torch.cat(votes)) < 1e-9


def test_without_blend_and_neighbours_view_2_is_view_1() -> None:
    """With alpha = 0 only probabilities of 0 and 1 are left: the sampled graph is A^u mirrored, to the last entry."""
    _, state = FGGP(model=GCN, blend=0.0).start(Federation.of(*task(3), dtype=F64))
    for number, (graph, c) in enumerate(zip(state.more.graphs, clients_of(*task(3)))):
        first_view = torch.eye(len(c.x), dtype=F64)
        first_view[c.graph.edge_index[1], c.graph.edge_index[0]] = 1
        got, _ = second_view(
            torch.rand(len(first_view), 4, dtype=F64), Graph.of(first_view), 0.0, "augment", 0, number, 0, 0
        )
        assert gap(got @ torch.eye(len(first_view), dtype=F64), c.s) < 1e-14
        assert bool((graph.operator @ torch.eye(len(first_view), dtype=F64))[first_view > 0].all())


def test_the_augmentor_learns_from_the_classifier_and_the_graph() -> None:
    """Gradients at both its matrices of at least a thousandth of the classifier's, from each of the losses it is in."""
    fed = Federation.of(*task(3), dtype=F64)
    for off in ({"reconstruct": 0.0, "contrast": 0.0}, {"contrast": 0.0}, {"reconstruct": 0.0}):
        method = FGGP(model=GCN, **off)  # type: ignore[arg-type]
        seen, state = method.start(fed)
        w = leaves(method.begin_round(seen, state, 0))
        method.local_loss(w, seen.at(0, 0), state, 0).sum().backward()
        classifier = float(w["layer2.weight"].grad.norm())
        for name in ("augment1.weight", "augment2.weight"):
            assert float(w[name].grad.norm()) > 1e-3 * classifier, (off, name)


def test_others_prototypes_change_predictions() -> None:
    """A bank with only one client's prototypes predicts otherwise in at least 1% of the nodes, in three seeds."""
    for seed in range(3):
        fed = Federation.of(*task(5, seed), seed, dtype=F64)
        method, updates = watch(FGGP(model=GCN, local_epochs=2, lr=0.05))
        outcome = train(method, fed, 3)
        everyone = method.predict(outcome.fed, outcome.state).argmax(1)
        update = updates[-1]
        bank = Bank.empty(3, 10, torch.zeros(1, 5, dtype=F64))
        h, logits = method.view(update.after, fed, partial(operator.matmul, fed.operator("gcn")))
        label, weight = soft_labels(fed, logits)
        means = class_means(h, label, weight, fed.batch.batch, 5, 3)[4]
        for c in range(3):
            bank = bank.written(c, means[c : c + 1])
        state = replace(outcome.state, more=outcome.state.more._replace(banks=(bank,)))
        assert float((method.predict(outcome.fed, state).argmax(1) != everyone).double().mean()) >= 0.01


def test_classifiers_predict_until_there_are_prototypes() -> None:
    """Before the first aggregation the logits are those of the network, with each client's classifier."""
    fed = Federation.of(*task(3), dtype=F64)
    method = FGGP(model=GCN)
    fed, state = method.start(fed)
    weights = {**fed.broadcast(state.shared), **state.personal}
    got = method.predict(fed, state)
    for i, c in enumerate(clients_of(*task(3))):
        first, last = int(fed.batch.ptr[i]), int(fed.batch.ptr[i + 1])
        assert gap(got[first:last], gcn(row(weights, i), c)) < 1e-12


def test_facts_count_the_added_edges() -> None:
    """`added_edges` counts, per node, the neighbours in A^u that are not in the graph; without view 2 it is 0."""
    data, parts = task(5)
    fed = Federation.of(data, parts, dtype=F64)
    method = FGGP(model=GCN, neighbours=3)
    _, state = method.start(fed)
    server = {n: w[0] for n, w in state.shared.items()} | {n: w[0] for n, w in state.personal.items()}
    added = 0
    for c in clients_of(data, parts):
        inner_edges = torch.eye(len(c.x), dtype=F64)
        inner_edges[c.graph.edge_index[1], c.graph.edge_index[0]] = 1
        added += int(neighbour_graph(server, c, 3, method).sum() - inner_edges.sum())
    assert added > 0
    assert method.facts(fed, state)[0] == {"prototypes": 0.0, "added_edges": pytest.approx(added / fed.nodes)}
    without = FGGP(model=GCN, augment=False)
    assert without.facts(*without.start(fed))[0]["added_edges"] == 0.0


def test_bad_options_of_fggp_are_refused() -> None:
    """A model that is no GCN, and options by name."""
    with pytest.raises(ArgumentError, match="a GCN"):
        FGGP(model=models.GraphSAGE(7, 3))
    wrong = {"blend": 2.0, "neighbours": 0, "cluster": "k-means", "temperature": 0.0, "contrast": -1.0, "nearest": 0}
    for name, value in wrong.items():
        with pytest.raises(ArgumentError, match=name):
            FGGP(model=GCN, **{name: value})
