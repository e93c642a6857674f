"""GraphSAINT's samplers compared with their definitions, and unbiasedness of the coefficients by repeated sampling."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import block_model

from fedrepro.engine.nn import random
from fedrepro.errors import ArgumentError
from fedrepro.papers.feras.saint import sampler as saint

NODES = 60
KINDS = pytest.mark.parametrize("kind", ["node", "edge", "rw", "mrw"])
BUDGET = {"node": 15, "edge": 8, "rw": 8, "mrw": 24, "full": 1}


def edges(seed: int = 0) -> np.ndarray:
    """Return the edges of a graph with three isolated nodes."""
    return block_model(NODES, degree=5, seed=seed).edge_index.numpy()


def graph(seed: int = 0) -> saint.Graph:
    return saint.Graph.of(edges(seed), NODES)


def adjacency(pairs: np.ndarray, nodes: int = NODES) -> np.ndarray:
    a = np.zeros((nodes, nodes))
    a[pairs[1], pairs[0]] = 1
    return a


def sampler(kind: str) -> saint.Sampler:
    return saint.Sampler(kind, BUDGET[kind], depth=2, frontier=6)


def streams(count: int, name: str = "test") -> np.ndarray:
    return random.keys(name, np.arange(count))


# -- the graph --------------------------------------------------------------------------------------------------------


def test_graph_lists_neighbours_without_loops() -> None:
    """Neighbours are those of the adjacency matrix, in order, and loops are dropped."""
    pairs = np.concatenate([edges(), [[4, 5], [4, 5]]], 1)
    g, a = saint.Graph.of(pairs, NODES), adjacency(edges())
    for v in range(NODES):
        assert g.col[g.ptr[v] : g.ptr[v + 1]].tolist() == np.flatnonzero(a[v]).tolist()
    assert g.degree.tolist() == a.sum(1).tolist() and (g.row == np.nonzero(a)[0]).all()


def test_induced_entries_are_those_of_the_sub_matrix() -> None:
    """Targets, sources and entries of a sub-graph equal the matrix that is cut out."""
    g, a = graph(), adjacency(edges())
    nodes = np.flatnonzero(random.uniform((NODES,), "chosen").numpy() < 0.5)
    target, source, entry = g.induced(nodes)
    matrix = np.zeros((len(nodes), len(nodes)))
    matrix[target, source] = 1
    assert (matrix == a[np.ix_(nodes, nodes)]).all() and matrix.sum() == len(entry)
    assert (g.row[entry] == nodes[target]).all() and (g.col[entry] == nodes[source]).all()
    part = g.part(nodes)
    assert (adjacency(np.stack([part.col, part.row]), len(nodes)) == matrix).all()


# -- the draws --------------------------------------------------------------------------------------------------------


@KINDS
def test_a_draw_depends_on_its_stream_alone(kind: str) -> None:
    """A stream gives the same sub-graph with others, alone and in another order; another stream gives another."""
    g, s, every = graph(), sampler(kind), streams(40)
    kept = s.draw(g, every)
    assert (s.draw(g, every[::-1])[::-1] == kept).all()
    assert all((s.draw(g, every[i : i + 1])[0] == kept[i]).all() for i in (0, 7, 39))
    assert len({row.tobytes() for row in kept}) > 35


def probability(kind: str, g: saint.Graph) -> np.ndarray:
    """Return each node's probability to be in a sub-graph by the definition of the node and the edge sampler."""
    a = adjacency(np.stack([g.col, g.row]))
    if kind == "node":
        p = (((a + np.eye(NODES)) / (a.sum(1) + 1)[:, None]) ** 2).sum(0)
        return 1 - (1 - p / p.sum()) ** BUDGET[kind]
    d = np.maximum(a.sum(1), 1)
    weight = np.triu(a * (1 / d[:, None] + 1 / d[None, :]), 1)
    assert weight.sum() == pytest.approx((a.sum(1) > 0).sum())  # what normalizes P_e
    at_node = (weight + weight.T).sum(1) / weight.sum()
    return 1 - (1 - at_node) ** BUDGET[kind]


@pytest.mark.parametrize("kind", ["node", "edge"])
def test_independent_samplers_have_their_probabilities(kind: str) -> None:
    """Each node is in as many of 20,000 sub-graphs as the formula says, within 4.5 standard errors."""
    g, count = graph(), 20_000
    shares, p = sampler(kind).draw(g, streams(count)).mean(0), probability(kind, g)
    error = np.sqrt(np.maximum(p * (1 - p), 1e-9) / count)
    assert (np.abs(shares - p) / error).max() < 4.5
    other = probability("edge" if kind == "node" else "node", g)  # control: the other sampler's
    assert (np.abs(shares - other) / error).max() > 20


def test_random_walks_visit_as_the_transition_matrix_says() -> None:
    """A walk of two steps visits each node with the probability that the chain's matrices give."""
    g, count = graph(), 20_000
    a = adjacency(edges())
    step = np.where(a.sum(1, keepdims=True) > 0, a / np.maximum(a.sum(1, keepdims=True), 1), np.eye(NODES))
    p = np.zeros(NODES)
    for v in range(NODES):  # 1 - P(root, first and second step all elsewhere)
        off = np.ones(NODES)
        off[v] = 0
        p[v] = 1 - (off / NODES) @ (step * off) @ (step * off) @ np.ones(NODES)
    shares = saint.Sampler("rw", 1, depth=2).draw(g, streams(count)).mean(0)
    error = np.sqrt(p * (1 - p) / count)
    assert (np.abs(shares - p) / error).max() < 4.5
    shorter = saint.Sampler("rw", 1, depth=1).draw(g, streams(count)).mean(0)
    assert (np.abs(shorter - p) / error).max() > 10


def walk(g: saint.Graph, stream: np.ndarray, budget: int, frontier: int) -> set[int]:
    """Return the nodes of a multi-dimensional random walk, written as one step after the other over a list."""
    first = saint.uniform(stream, "frontier", frontier)[0]
    which, where = (saint.uniform(stream, name, budget - frontier)[0] for name in ("which", "where"))
    at = [int(u * g.nodes) for u in first]
    kept = set(at)
    for u, v in zip(which, where, strict=True):
        total = int(sum(g.degree[node] for node in at))
        if not total:
            break
        rest, index = int(u * total), 0
        while rest >= g.degree[at[index]]:
            rest -= int(g.degree[at[index]])
            index += 1
        near = g.col[g.ptr[at[index]] : g.ptr[at[index] + 1]]
        at[index] = int(near[int(v * len(near))])
        kept.add(at[index])
    return kept


@pytest.mark.parametrize(("budget", "frontier"), [(24, 6), (50, 17), (10, 1), (9, 9)])
def test_frontier_walks_equal_a_plain_loop(budget: int, frontier: int) -> None:
    """Many walks side by side visit the nodes that each visits alone."""
    g, every = graph(), streams(30)
    kept = saint.Sampler("mrw", budget, frontier=frontier).draw(g, every)
    for i in range(30):
        assert set(np.flatnonzero(kept[i])) == walk(g, every[i : i + 1], budget, frontier)


def test_isolated_nodes_stay_where_they_are() -> None:
    """On a graph without edges walks keep their roots, and the edge sampler takes every node."""
    g = saint.Graph.of(np.zeros((2, 0), np.int64), 10)
    assert saint.Sampler("rw", 3).draw(g, streams(20)).sum(1).max() <= 3
    assert saint.Sampler("mrw", 5, frontier=2).draw(g, streams(20)).sum(1).max() <= 2
    assert saint.Sampler("edge", 3).draw(g, streams(2)).all()
    assert saint.Sampler("node", 3).draw(g, streams(20)).sum(1).min() >= 1


def test_sizes_and_defaults() -> None:
    """Nominal sizes are those of GraphSAINT's code, and on PPI's 9716 training nodes the defaults are its budgets."""
    assert [saint.Sampler.scaled(kind, 9716).budget for kind in saint.SHARES] == [6024, 3984, 3012, 7967, 9716]
    sizes = [saint.Sampler(kind, 100, depth=3, frontier=10).size(500) for kind in saint.SAMPLERS]
    assert sizes == [100, 200, 300, 100, 500]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "walk", "budget": 3}, "sampler must be one of"),
        ({"kind": "rw", "budget": 0}, "budget must be at least 1"),
        ({"kind": "rw", "budget": 3, "depth": 0}, "depth must be at least 1"),
        ({"kind": "mrw", "budget": 3, "frontier": 4}, "frontier must be between 1 and the budget, 3"),
    ],
)
def test_bad_arguments(given: dict[str, object], message: str) -> None:
    """The error names the argument and its allowed values."""
    with pytest.raises(ArgumentError, match=message):
        saint.Sampler(**given)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="coverage must be positive"):
        saint.estimate(graph(), sampler("rw"), 0, 0)


# -- the coefficients -------------------------------------------------------------------------------------------------


@KINDS
def test_counts_equal_counting(kind: str) -> None:
    """C_v and C_vu equal a count by hand over the same sub-graphs, which cover the graph as often as asked."""
    g, s = graph(), sampler(kind)
    known = saint.estimate(g, s, 30, seed=5)
    kept = s.draw(g, random.keys("saint coverage", 5, np.arange(known.drawn)))
    assert kept.sum() >= 30 * NODES > kept[:-1].sum()
    assert (known.nodes == kept.sum(0)).all()
    together = kept.astype(int).T @ kept.astype(int)
    assert (known.entries == together[g.row, g.col]).all()
    every = np.arange(len(g.col))
    ratio = np.maximum(known.nodes[g.row], 1) / np.maximum(known.entries, 1)
    assert (known.edge_ratio(g, every) == ratio).all()
    assert (known.node_weight(np.arange(NODES)) == known.drawn / np.maximum(known.nodes, 1)).all()
    assert (saint.estimate(g, s, 30, seed=6).nodes != known.nodes).any()


def estimates(kind: str, normalised: bool, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the error of each sub-graph's loss `[draws]`, and a z score of each node's aggregation.

    The loss of a node and its feature are fixed numbers; coefficients come from other sub-graphs than those scored.
    """
    g, s = graph(), sampler(kind)
    known = saint.estimate(g, s, 3000, seed=1)
    x, degree = random.normal((NODES,), "x").numpy() + 1, np.maximum(g.degree, 1)
    loss = np.where(g.degree > 0, g.degree + random.normal((NODES,), "loss").numpy(), 0)  # 0 where no edge leads
    losses, values = np.zeros(draws), [[] for _ in range(NODES)]
    for i, kept in enumerate(s.draw(g, streams(draws, f"fresh {kind}"))):
        nodes = np.flatnonzero(kept)
        target, source, entry = g.induced(nodes)
        ratio = known.edge_ratio(g, entry) if normalised else np.ones(len(entry))
        weight = known.node_weight(nodes) / NODES if normalised else np.full(len(nodes), 1 / len(nodes))
        losses[i] = (weight * loss[nodes]).sum()
        sums = np.bincount(target, ratio * x[nodes[source]], len(nodes)) / degree[nodes]
        for v, value in zip(nodes, sums, strict=True):
            values[v].append(value)
    truth = np.array([x[g.col[g.ptr[v] : g.ptr[v + 1]]].sum() / degree[v] for v in range(NODES)])
    z = []
    for v in range(NODES):
        drawn = np.array(values[v])
        if g.degree[v] and len(drawn) > 100:
            z.append((drawn.mean() - truth[v]) / (drawn.std() / np.sqrt(len(drawn)) + 1e-9))
    return losses - loss.mean(), np.array(z)


# Coefficients are themselves estimated, from 3000 / (share of nodes in a sub-graph) sub-graphs: with d draws scored,
# the standard error of a z score is sqrt(1 + d / that) at most.
DRAWS = 2500


@KINDS
def test_loss_and_aggregation_are_unbiased(kind: str) -> None:
    """Means over sub-graphs are the whole graph's within 4.5 standard errors, but not without the coefficients."""
    limit = 4.5 * np.sqrt(1 + DRAWS / saint.estimate(graph(), sampler(kind), 3000, seed=1).drawn)
    losses, z = estimates(kind, True, DRAWS)
    assert abs(losses.mean()) / (losses.std() / np.sqrt(DRAWS)) < limit
    assert len(z) >= 40 and np.abs(z).max() < limit
    losses, z = estimates(kind, False, DRAWS)
    assert abs(losses.mean()) / (losses.std() / np.sqrt(DRAWS)) > 2 * limit
    assert np.median(np.abs(z)) > 2 * limit


def test_full_budget_needs_no_coefficient() -> None:
    """With every node in every sub-graph all ratios are 1, and the loss is a plain mean."""
    known = saint.estimate(graph(), saint.Sampler("full", 1), 50, 0)
    assert known.drawn == 1 and (known.edge_ratio(graph(), np.arange(len(graph().col))) == 1).all()
    assert (known.node_weight(np.arange(NODES)) == 1).all()
