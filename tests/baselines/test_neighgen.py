"""FedSage+'s generator: impaired graphs, losses, training and rows against plain loops over nodes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fedsage_plain import generator, held, plain_losses, plain_rows
from graphs import gap, identical, largest_difference
from loop import task
from plain import F64, Weights

from fedrepro.baselines.impaired import ClientView, OtherClient, hide_nodes
from fedrepro.baselines.neighgen import NeighGen, least_distance
from fedrepro.engine.federation import Federation

# -- the impaired graph -----------------------------------------------------------------------------------------------


def near(h: ClientView, v: int) -> list[int]:
    """Neighbours of a node within its client."""
    return sorted(int(u) for u, w in h.edges.T.tolist() if w == v)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_hidden_nodes_are_the_others_neighbours(share: float) -> None:
    """The share asked for is hidden where there are enough nodes that do not train; counts, rows and edges by brute
    force.
    """
    for h in held(3):
        graph, n = hide_nodes(h, share, 3), len(h.x)
        left = graph.nodes.tolist()
        hidden = sorted(set(range(n)) - set(left))
        assert len(hidden) == min(round(share * n), int((~h.train).sum()))
        assert not bool(h.train[hidden].any())
        assert {(left[a], left[b]) for a, b in graph.edges.T.tolist()} == {
            (u, v) for u, v in h.edges.T.tolist() if u in left and v in left
        }
        for new, v in enumerate(left):
            gone = [u for u in near(h, v) if u in hidden]
            assert int(graph.missing[new]) == len(gone)
            assert graph.rows[new][graph.filled[new]].tolist() == gone[:3]
        seen = {new for new in range(len(left)) if graph.train[new]}
        seen |= {a for a, b in graph.edges.T.tolist() if graph.train[b]}
        assert graph.near.tolist() == sorted(seen)


def test_missing_neighbours_are_those_at_other_clients() -> None:
    """Counted edge by edge."""
    data, parts = task(3)
    fed = Federation.of(data, parts, dtype=F64)
    for client, part in enumerate(parts):
        mine = part.sort().values.tolist()
        cut = [sum(1 for u, w in data.edge_index.T.tolist() if w == v and u not in mine) for v in mine]
        assert ClientView.of(fed, client).missing.tolist() == cut and sum(cut) > 0


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("count", ["predicted", "true"])
@pytest.mark.parametrize("scheme", ["original", "fedstruct"])
def test_losses_are_their_plain_loops(scheme: str, count: str, scaled: bool, dropout: float) -> None:
    """Values and every gradient, over three clients and two epochs, to 1e-12; generated rows do count."""
    gen = generator(scheme=scheme, count=count, scaled=scaled, generator_dropout=dropout)
    clients, counted = held(3), 0.0
    others = [OtherClient.of(h) for h in clients]
    for at, h in enumerate(clients):
        if not bool(h.train.any()):
            continue
        graph = hide_nodes(h, 0.4, 3)
        met = [other for i, other in enumerate(others) if i != at and len(other.able)]
        w = gen.init(h, 3, graph.missing[graph.train] + 1)
        for epoch in (0, 1):
            leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
            got, expected = (f(leaves, h, graph, met, epoch) for f in (gen.losses, lambda *a: plain_losses(gen, *a)))
            for a, b in zip(got, expected, strict=True):
                assert gap(a, b) < 1e-12
            counted += float(expected[2].detach())
            wanted: dict[str, Any] = {"inputs": list(leaves.values()), "materialize_grads": True}
            both = [torch.autograd.grad(p[0] + p[2], **wanted) for p in (got, expected)]
            for name, a, b in zip(leaves, *both, strict=True):
                assert gap(a, b) < 1e-12, name
    assert counted > 1e-3


def test_each_epoch_has_its_own_masks() -> None:
    """The encoder, which takes no noise, gives another z in each epoch, the same one twice, and in evaluation that
    without dropout.
    """
    gen, h = generator(generator_dropout=0.5), held(3)[2]
    w = gen.init(h, 3, h.missing)
    first, again, second, without = (gen.encode(w, h.x, h.edges, h.keys, epoch) for epoch in (0, 0, 1, None))
    assert torch.equal(first, again)
    assert min(gap(first, second), gap(first, without), gap(second, without)) > 1e-2
    assert torch.equal(without, generator().encode(w, h.x, h.edges, h.keys, 0))


def test_a_perfect_generator_has_no_loss() -> None:
    """Rows equal to true rows, in any order and repeated, give 0; any other gives more."""
    given, filled = torch.randn(4, 3, 6, dtype=F64), torch.ones(4, 3, dtype=torch.bool)
    filled[2, 1:] = False
    for order in ([0, 1, 2], [2, 0, 1], [1, 1, 1]):
        generated = given[:, order].clone()
        generated[2] = given[2, 0]
        assert float(least_distance(generated, torch.ones(4, 3).bool(), given, filled)) == 0
    assert float(least_distance(given + 0.1, torch.ones(4, 3).bool(), given, filled)) > 0.1
    generated = torch.randn(4, 3, 6, dtype=F64)
    on = torch.tensor([[True, False, True]] * 4)
    turned = least_distance(generated, on, given[:, [2, 0, 1]], filled[:, [2, 0, 1]])
    assert gap(turned, least_distance(generated, on, given, filled)) < 1e-14


# -- training ---------------------------------------------------------------------------------------------------------


def adam_loop(
    gen: NeighGen, w: Weights, names: list[str], h: ClientView, met: list[OtherClient], epochs: range, scale: float
) -> tuple[float, float]:
    """Train some weights with torch's Adam, in place; the original scheme scales all losses, the other only L_f(j).

    Returns the last L_f and the last mean of L_f(j).
    """
    graph = hide_nodes(h, gen.hidden_share, gen.most)
    leaves = {name: value.requires_grad_(name in names) for name, value in w.items()}
    adam = torch.optim.Adam([leaves[name] for name in names], lr=gen.lr, weight_decay=gen.weight_decay)
    for epoch in epochs:
        local, own_loss, cross_loss = plain_losses(gen, leaves, h, graph, met, epoch)
        adam.zero_grad()
        (scale * (local + cross_loss) if gen.scheme == "original" else local + scale * cross_loss).backward()
        adam.step()
    return float(own_loss.detach()), float(cross_loss.detach()) / max(1, len(met))


@pytest.mark.parametrize("scheme", ["original", "fedstruct"])
def test_training_is_its_plain_loop(scheme: str) -> None:
    """Both phases with torch's Adam, dropout on: weights and last losses agree to 1e-9; in the second phase of the
    original only fGen moves.
    """
    gen, clients = generator(scheme=scheme, count="true", generator_dropout=0.5), held(5)
    h, rest = clients[4], clients[:4]
    met = [other for other in map(OtherClient.of, rest) if len(other.able)]
    got, losses = gen.train(h, rest, 3)
    graph = hide_nodes(h, 0.4, 3)
    w = gen.init(h, 3, graph.missing[graph.train])
    if scheme == "original":
        adam_loop(gen, w, list(w), h, [], range(4), 1.0)
        w = {name: value.detach().clone() for name, value in w.items()}
        feature = [name for name in w if name.startswith("feature")]
        last = adam_loop(gen, w, feature, h, met, range(4, 8), 1 / 5)
    else:
        last = adam_loop(gen, w, list(w), h, met, range(4), 1 / len(met))
    assert largest_difference(got, w) < 1e-9
    assert losses == (pytest.approx(last[0], abs=1e-9), pytest.approx(last[1], abs=1e-9), len(met))
    assert len(met) > 1 and min(last) > 1e-3


def test_others_reach_a_generator_through_the_cross_term_alone() -> None:
    """Other features at client 1 change client 2's generator with the term, and not a bit without."""
    clients = held(3)
    changed = [clients[0], clients[1]._replace(x=clients[1].x + 1.0)]
    for cross in (True, False):
        gen = generator(cross=cross, count="true")
        a, b = (gen.train(clients[2], rest, 3)[0] for rest in (clients[:2], changed))
        assert identical(a, b) != cross


def cross_share(clients: list[ClientView], **options: Any) -> float:
    """The gradient of the cross term at fGen's last matrix over that of all other losses, in the median of 5 epochs."""
    gen, h, graph = generator(**options), clients[2], hide_nodes(clients[2], 0.4, 3)
    w = gen.init(h, 3, graph.missing[graph.train] + 1)
    met = [other for other in map(OtherClient.of, clients[:2]) if len(other.able)]
    ratios = []
    for epoch in range(5):
        leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
        local, _, cross = gen.losses(leaves, h, graph, met, epoch)
        weight = [leaves["feature3.weight"]]
        own, other = (torch.autograd.grad(part, weight, retain_graph=True)[0].norm() for part in (local, cross))
        ratios.append(float(other / own))
    return sorted(ratios)[2]


@pytest.mark.parametrize("scheme", ["original", "fedstruct"])
def test_the_cross_term_is_alive(scheme: str) -> None:
    """At least a thousandth."""
    assert cross_share(held(3), scheme=scheme) > 1e-3


BAGS = {"Cora": (1433, 18), "CiteSeer": (3703, 32), "PubMed": (500, 50), "Computers": (767, 267), "Photo": (745, 259)}


@pytest.mark.parametrize(("width", "entries"), BAGS.values(), ids=BAGS)
def test_the_cross_term_is_dead_where_rows_sum_to_one(width: int, entries: int) -> None:
    """With bags as wide and as full as a graph's of FedSheafHN's tables, divided by their sums, it is below a
    thousandth, unless losses are `scaled` (SH-B1).
    """
    drawn = torch.Generator().manual_seed(0)
    words = [torch.zeros(len(h.x), width, dtype=F64) for h in held(3)]
    for bag in words:
        bag.scatter_(1, torch.rand(bag.shape, generator=drawn).topk(entries).indices, 1 / entries)
    clients = [h._replace(x=bag) for h, bag in zip(held(3), words, strict=True)]
    assert cross_share(clients, row_sum=True) < 1e-3
    assert cross_share(clients, row_sum=True, scaled=True) > 1e-3


def test_generated_rows_are_the_networks() -> None:
    """The rows of one client: encoder on its whole graph, rounded count, tanh of fGen with noise and no dropout."""
    gen, clients = generator(generator_dropout=0.5), held(3)
    h = clients[2]
    w, _ = gen.train(h, clients[:2], 3)
    w["count.bias"] += 0.8
    n = len(h.x)
    a = torch.eye(n, dtype=F64)
    a[h.edges[1], h.edges[0]] = 1
    z = h.x
    for name in ("encoder1", "encoder2"):
        z = torch.relu(a / a.sum(1, keepdim=True) @ z @ w[f"{name}.weight"][0] + w[f"{name}.bias"])
    count = torch.relu(z @ w["count.weight"][0] + w["count.bias"])[:, 0].round().clamp(0, 3).long()
    rows = plain_rows(gen, w, z, torch.arange(n), h, None)
    expected = torch.cat([rows[v, : int(count[v])] for v in range(n)])
    x, host = gen.generate(w, h)
    assert len(x) > 3 and gap(x, expected) < 1e-12
    assert host.tolist() == [v for v in range(n) for _ in range(int(count[v]))]


def test_generated_rows_can_be_divided_by_their_sums() -> None:
    """With `row_sum` each row is the same network's, by the sum of its absolute values; in training it is as well, and
    its gradient with it.
    """
    plain, scaled = generator(), generator(row_sum=True)
    clients = held(3)
    h, graph = clients[2], hide_nodes(clients[2], 0.4, 3)
    w = plain.init(h, 3, graph.missing[graph.train] + 1)
    (before, host), (after, host_after) = plain.generate(w, h), scaled.generate(w, h)
    assert len(before) > 3 and torch.equal(host, host_after)
    assert gap(after, before / before.abs().sum(1, keepdim=True)) < 1e-14
    assert float((before.abs().sum(1) - 1).abs().min()) > 1e-3  # or nothing was scaled
    met = [other for other in map(OtherClient.of, clients[:2]) if len(other.able)]
    leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
    got, expected = scaled.losses(leaves, h, graph, met, 0), plain_losses(scaled, leaves, h, graph, met, 0)
    for a, b in zip(got, expected, strict=True):
        assert gap(a, b) < 1e-12
    gradient = torch.autograd.grad(got[0], leaves["feature3.weight"])[0]
    nudged = {name: value.clone() for name, value in w.items()}
    step = 1e-6 * gradient / gradient.norm()
    nudged["feature3.weight"] += step
    risen = scaled.losses(nudged, h, graph, met, 0)[0] - got[0]
    assert float(risen.detach()) == pytest.approx(1e-6 * float(gradient.norm()), rel=1e-3)
