"""Compare orbit counts with brute force, the published numbering, closed forms and identities."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
import torch
from networkx.generators.atlas import graph_atlas_g
from scipy.sparse import csr_matrix

from fedrepro.errors import ArgumentError
from fedrepro.papers.fedstruct import orbits as module
from fedrepro.papers.fedstruct import structure
from fedrepro.papers.fedstruct.orbits import GRAPHLETS, ORBITS, orbits

# Right sides of ORCA's system (Hočevar and Demšar 2014), one for every orbit that the others would leave free to be
# swapped: four nodes with these edges, the counted node being 0, and a fifth node joined to the given ones at least;
# how many orderings of the nodes show the same five; and how often each orbit is met.
SYSTEM = [
    ("01 12 23", "3", 1, "15*1 27*2 34*2 35*2 45*2 51*1 52*2 59*1"),
    ("01 12 23", "0", 1, "16*1 29*1 34*2 36*2 46*2 51*1 52*2 59*1"),
    ("01 12 23", "2", 1, "18*2 24*1 27*2 36*2 45*2 46*2 51*1 59*1"),
    ("01 12 13", "3", 1, "19*1 31*2 35*2 37*1 39*2 40*1 49*4 54*4"),
    ("01 12 13", "0", 2, "20*1 32*1 37*1 40*1 49*2 54*2"),
    ("01 02 03", "3", 2, "21*1 33*2 38*2 42*2 50*3 55*3"),
    ("01 12 13", "1", 2, "22*3 31*2 32*1 39*1 40*1 54*2"),
    ("01 02 03", "0", 6, "23*4 33*2 42*1 55*1"),
    ("01 12 13 23", "2", 1, "24*1 39*2 45*2 51*1 56*6 59*1 62*4 65*4"),
    ("01 03 12 13", "3", 1, "25*2 40*1 48*1 52*2 57*2 59*1 64*2 66*2"),
    ("01 02 03 23", "2", 1, "26*1 42*2 47*2 53*1 58*6 61*2 63*2 67*2"),
    ("01 12 13 23", "0", 2, "28*1 43*1 51*1 59*1 62*2 65*2"),
    ("01 03 12 13", "2", 1, "29*1 43*2 52*2 53*1 59*1 60*1 64*2 66*2"),
    ("01 02 03 23", "1", 2, "30*1 44*4 53*1 61*2 63*1 67*1"),
    ("01 03 12 13", "1", 1, "32*2 40*1 41*2 43*2 57*2 59*1 60*1 66*2"),
    ("01 03 12 13 23", "1", 1, "40*1 54*4 59*1 60*1 65*4 66*2 68*2 70*6"),
    ("01 12 03 13 23", "2", 2, "46*1 59*1 63*1 65*2 68*2 70*3"),
    ("01 02 03 13 23", "1", 1, "48*1 60*1 61*2 64*2 67*2 68*2 69*8 71*4"),
    ("01 02 03 12 13 23", "012", 2, "71*2 72*12"),
]

GRAPHS = {
    "sparse": nx.gnp_random_graph(14, 0.18, seed=1),
    "tree": nx.random_labeled_tree(13, seed=2),
    "medium": nx.gnp_random_graph(11, 0.4, seed=3),
    "half": nx.gnp_random_graph(11, 0.5, seed=4),
    "dense": nx.gnp_random_graph(10, 0.7, seed=5),
    "denser": nx.gnp_random_graph(10, 0.9, seed=6),
    "disconnected": nx.disjoint_union(nx.gnp_random_graph(7, 0.6, seed=7), nx.gnp_random_graph(6, 0.5, seed=8)),
    "isolated nodes": nx.disjoint_union(nx.empty_graph(2), nx.gnp_random_graph(8, 0.5, seed=9)),
    "hubs": nx.barabasi_albert_graph(13, 3, seed=10),
    "bipartite": nx.complete_bipartite_graph(4, 5),
    "complete": nx.complete_graph(8),
    "cycle": nx.cycle_graph(9),
    "star": nx.star_graph(8),
    "wheel": nx.wheel_graph(8),
    "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4)),
    "two nodes": nx.path_graph(2),
}


def matrix(graph: nx.Graph) -> csr_matrix:
    return csr_matrix(nx.to_numpy_array(graph, nodelist=range(len(graph))))


def counts(graph: nx.Graph) -> np.ndarray:
    return orbits(matrix(graph)).numpy()


def small(text: str) -> nx.Graph:
    return nx.Graph((int(pair[0]), int(pair[1])) for pair in text.split())


@cache
def recognized(size: int, edges: frozenset[tuple[int, int]]) -> tuple[int, ...]:
    """Return the orbit of each of a few nodes in the graphlet that they form, or () if they are not connected."""
    part = nx.Graph(edges)
    part.add_nodes_from(range(size))
    for text, places in GRAPHLETS:
        match = nx.isomorphism.GraphMatcher(part, small(text))
        if len(places) == size and match.is_isomorphic():
            return tuple(places[match.mapping[node]] for node in range(size))
    return ()


def by_hand(graph: nx.Graph) -> np.ndarray:
    """Count every set of 2 to 5 nodes."""
    out = np.zeros((len(graph), ORBITS))
    for size in range(2, 6):
        for nodes in combinations(range(len(graph)), size):
            edges = frozenset(
                pair for pair in combinations(range(size), 2) if graph.has_edge(*(nodes[i] for i in pair))
            )
            for node, orbit in zip(nodes, recognized(size, edges)):
                out[node, orbit] += 1
    return out


@pytest.mark.parametrize("name", GRAPHS)
def test_counts_are_those_of_brute_force(name: str) -> None:
    """Every orbit of every node agrees; so do orbits 0 to 14 if only these are counted."""
    counted = counts(GRAPHS[name])
    assert counted.shape == (len(GRAPHS[name]), ORBITS) and counted.dtype == np.float64
    assert np.array_equal(counted, by_hand(GRAPHS[name]))
    assert np.array_equal(counted[:, : structure.ORBITS], structure.orbit_counts(matrix(GRAPHS[name])))


@pytest.mark.parametrize("seed", range(8))
def test_counts_on_random_graphs_of_all_densities(seed: int) -> None:
    """Graphs of nine nodes hold every graphlet."""
    for density in (0.25, 0.5, 0.75):
        graph = nx.gnp_random_graph(9, density, seed=100 + seed)
        assert np.array_equal(counts(graph), by_hand(graph))


def test_brute_force_meets_every_orbit_and_notices_one_edge() -> None:
    """No orbit is compared only as 0 with 0, and a graph without one of its edges differs (negative control)."""
    assert (sum(by_hand(graph).sum(0) for graph in GRAPHS.values()) > 0).all()
    for name in ("sparse", "half", "denser", "cycle"):
        less = GRAPHS[name].copy()
        less.remove_edge(*next(iter(less.edges)))
        assert not np.array_equal(counts(less), by_hand(GRAPHS[name]))


def test_graphlets_are_all_connected_graphs_of_two_to_five_nodes() -> None:
    """No graphlet occurs twice, none of the atlas is missing, and smaller ones come first."""
    graphlets = [small(text) for text, _ in GRAPHLETS]
    assert all(nx.is_connected(graph) for graph in graphlets)
    assert not any(nx.is_isomorphic(one, two) for one, two in combinations(graphlets, 2))
    known = [graph for graph in graph_atlas_g() if 2 <= len(graph) <= 5 and nx.is_connected(graph)]
    assert len(known) == len(graphlets) == 30
    assert all(any(nx.is_isomorphic(one, two) for two in graphlets) for one in known)
    assert [len(graph) for graph in graphlets] == sorted(len(graph) for graph in graphlets)


def test_orbits_are_those_of_the_automorphisms() -> None:
    """Two nodes have the same orbit if and only if an automorphism takes one to the other; numbers run on."""
    numbers = []
    for text, places in GRAPHLETS:
        graph = small(text)
        maps = [*nx.isomorphism.GraphMatcher(graph, graph).isomorphisms_iter()]
        for i in graph:
            assert {to[i] for to in maps} == {j for j in graph if places[j] == places[i]}
        numbers += sorted(set(places))
    assert numbers == [*range(ORBITS)]


def right_side(dense: np.ndarray, edges: str, joined: str) -> np.ndarray:
    """Count at each node, which is 0, four nodes that induce `edges` and a fifth that is joined to `joined`."""
    other = 1 - np.eye(len(dense))
    factors = [
        (dense if f"{i}{j}" in edges.split() else other - dense, f"{'abcd'[i]}{'abcd'[j]}")
        for i, j in combinations(range(4), 2)
    ]
    factors += [(dense if str(i) in joined else other, f"{'abcd'[i]}e") for i in range(4)]
    return np.einsum(",".join(index for _, index in factors) + "->a", *(factor for factor, _ in factors), optimize=True)


def holds(counted: np.ndarray, dense: np.ndarray) -> list[bool]:
    """Return True for each line of ORCA's system that holds for these counts."""
    out = []
    for edges, joined, orderings, sums in SYSTEM:
        terms = [tuple(map(int, term.split("*"))) for term in sums.split()]
        left = orderings * sum(times * counted[:, orbit] for orbit, times in terms)
        out.append(np.array_equal(left, right_side(dense, edges, joined)))
    return out


def test_numbering_is_that_of_orca() -> None:
    """The published equations hold; after a swap of any two of the orbits 15 to 72 at least one does not."""
    graph = nx.gnp_random_graph(13, 0.55, seed=11)
    dense = nx.to_numpy_array(graph)
    counted = counts(graph)
    assert all(holds(counted, dense))
    right = [right_side(dense, edges, joined) for edges, joined, _, _ in SYSTEM]
    terms = [{int(o): int(t) for o, t in (term.split("*") for term in sums.split())} for *_, sums in SYSTEM]
    for swap in combinations(range(15, ORBITS), 2):
        other = counted.copy()
        other[:, swap] = counted[:, swap[::-1]]
        touched = [line for line, each in enumerate(terms) if set(swap) & set(each)]
        sums = {line: SYSTEM[line][2] * sum(t * other[:, o] for o, t in terms[line].items()) for line in touched}
        assert any(not np.array_equal(sums[line], right[line]) for line in touched), swap


def test_closed_forms() -> None:
    """Counts of stars, complete graphs, cycles and complete bipartite graphs follow from combinatorics."""
    star = counts(nx.star_graph(9))
    assert star[0, [0, 2, 7, 23]].tolist() == [9, 36, 84, 126] and star[0].sum() == 255
    assert star[1, [0, 1, 6, 22]].tolist() == [1, 8, 28, 56] and star[1].sum() == 93
    full = counts(nx.complete_graph(12))
    assert full[:, [0, 3, 14, 72]].tolist() == [[11, 55, 165, 330]] * 12 and full.sum() == 12 * 561
    five, seven = counts(nx.cycle_graph(5))[0], counts(nx.cycle_graph(7))[0]
    assert np.array_equal(five[:15], seven[:15])
    assert five[34] == 1 and five[15:].sum() == 1
    assert seven[[15, 16, 17]].tolist() == [2, 2, 1] and seven[15:].sum() == 5
    parts = counts(nx.complete_bipartite_graph(3, 6))
    assert parts[0, [49, 50]].tolist() == [15, 2 * 20] and parts[3, [49, 50]].tolist() == [3 * 10, 5]


@pytest.mark.parametrize(
    "graph",
    [
        nx.gnm_random_graph(1100, 5000, seed=1),
        nx.powerlaw_cluster_graph(700, 6, 0.6, seed=2),
        nx.stochastic_block_model([40, 40], [[0.6, 0.1], [0.1, 0.6]], seed=3),
    ],
    ids=["even", "hubs", "blocks"],
)
def test_sums_over_a_graphlet_agree(graph: nx.Graph) -> None:
    """A graphlet that occurs k times adds k times an orbit's size to that orbit, over all nodes and blocks of rows."""
    counted = counts(graph)
    assert (counted >= 0).all() and (counted == np.round(counted)).all()
    assert np.array_equal(counted[:, : structure.ORBITS], structure.orbit_counts(matrix(graph)))
    for _, places in GRAPHLETS:
        times = {counted[:, orbit].sum() / places.count(orbit) for orbit in places}
        assert len(times) == 1 and times.pop().is_integer()


def test_relabelling_permutes_the_rows() -> None:
    """A node's counts do not depend on its number."""
    a = matrix(nx.powerlaw_cluster_graph(300, 5, 0.5, seed=4))
    order = np.random.default_rng(0).permutation(300)
    assert torch.equal(orbits(a[order][:, order]), orbits(a)[torch.from_numpy(order)])


def test_components_do_not_matter_to_each_other() -> None:
    """A union has the rows of its parts."""
    one, two = nx.gnp_random_graph(30, 0.2, seed=5), nx.gnp_random_graph(20, 0.4, seed=6)
    assert np.array_equal(counts(nx.disjoint_union(one, two)), np.concatenate([counts(one), counts(two)]))


def test_graphs_without_edges_have_zeros() -> None:
    """A graph without edges has only zeros, and one without nodes no rows."""
    assert orbits(csr_matrix((4, 4))).tolist() == [[0.0] * ORBITS] * 4
    assert orbits(csr_matrix((0, 0))).shape == (0, ORBITS)


def test_the_matrix_is_left_as_it_is() -> None:
    """Integers, entries out of order and stored zeros are accepted, and the caller's matrix is not changed."""
    graph = GRAPHS["half"]
    row, col = np.nonzero(np.ones((len(graph), len(graph)), dtype=bool))
    values = nx.to_numpy_array(graph, dtype=np.int32)[:, ::-1].ravel()
    odd = csr_matrix((values, col[::-1], np.searchsorted(row, range(len(graph) + 1))), shape=(len(graph), len(graph)))
    data, indices = odd.data.copy(), odd.indices.copy()
    assert np.array_equal(orbits(odd).numpy(), counts(graph))
    assert np.array_equal(odd.data, data) and np.array_equal(odd.indices, indices)


def test_what_is_no_simple_graph_is_refused() -> None:
    """Loops, weights, a single direction and a matrix that is not square are refused."""
    edge = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    for wrong in (edge + np.eye(3), 2 * edge, np.triu(edge), edge[:2]):
        with pytest.raises(ArgumentError, match="symmetric 0/1"):
            orbits(csr_matrix(wrong))


def test_degrees_beyond_exact_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fourth power of the limit is the last that float64 tells from its neighbours."""
    assert module.LARGEST_DEGREE**4 <= 2**53 < (module.LARGEST_DEGREE + 1) ** 4
    monkeypatch.setattr(module, "LARGEST_DEGREE", 7)
    orbits(matrix(nx.star_graph(7)))
    with pytest.raises(ArgumentError, match="degrees up to 7"):
        orbits(matrix(nx.star_graph(8)))


@pytest.mark.parametrize("orbit", range(ORBITS))
def test_dense_patterns_are_those_without_a_plan(orbit: int) -> None:
    """A pattern has an order of sums with two indices, or is counted among neighbours, never both."""
    pattern = module._patterns()[orbit]
    if orbit in module._DENSE:
        with pytest.raises(ArgumentError, match="K4 as a minor"):
            module._plan(*pattern)
    else:
        assert module._plan(*pattern)
