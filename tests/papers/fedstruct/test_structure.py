"""Compare structure features with brute force, closed forms, and the loss of the library behind Node2Vec."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from graphs import block_model, gap
from scipy.sparse import csr_matrix
from torch_geometric.data import Data

from fedrepro.errors import ArgumentError
from fedrepro.papers.fedstruct import node2vec, structure

# Edges of the connected graphs on nodes 0 to 3 and the orbit of each node (Przulj 2007, Figure 1).
GRAPHLETS = [
    ([(0, 1)], (0, 0)),
    ([(0, 1), (1, 2)], (1, 2, 1)),
    ([(0, 1), (1, 2), (0, 2)], (3, 3, 3)),
    ([(0, 1), (1, 2), (2, 3)], (4, 5, 5, 4)),
    ([(0, 1), (0, 2), (0, 3)], (7, 6, 6, 6)),
    ([(0, 1), (1, 2), (2, 3), (0, 3)], (8, 8, 8, 8)),
    ([(0, 1), (1, 2), (2, 3), (1, 3)], (9, 11, 10, 10)),
    ([(0, 1), (1, 2), (2, 3), (0, 3), (1, 3)], (12, 13, 12, 13)),
    ([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], (14, 14, 14, 14)),
]


def by_hand(graph: nx.Graph) -> np.ndarray:
    """Match every set of 2 to 4 nodes to a graphlet by isomorphism."""
    out = np.zeros((len(graph), structure.ORBITS))
    for size in (2, 3, 4):
        for nodes in combinations(graph, size):
            part = graph.subgraph(nodes)
            for edges, orbits in GRAPHLETS:
                whole = nx.Graph(edges)
                match = nx.isomorphism.GraphMatcher(whole, part)
                if len(whole) == size and match.is_isomorphic():
                    for place, node in match.mapping.items():
                        out[node, orbits[place]] += 1
    return out


def matrix(graph: nx.Graph) -> csr_matrix:
    edges = np.array([*graph.edges]).reshape(-1, 2).T
    return structure.adjacency(Data(edge_index=torch.from_numpy(edges), num_nodes=len(graph)))


@pytest.mark.parametrize("density", [0.15, 0.4, 0.7, 0.9])
@pytest.mark.parametrize("nodes", [5, 9, 12])
def test_orbit_counts_are_those_of_brute_force(nodes: int, density: float) -> None:
    """Every orbit of every node agrees on random graphs."""
    for seed in range(2):
        graph = nx.gnp_random_graph(nodes, density, seed=seed)
        assert np.array_equal(structure.orbit_counts(matrix(graph)), by_hand(graph))


def test_orbit_counts_of_a_cycle_and_a_complete_graph() -> None:
    """A cycle has only paths, and a complete graph only edges, triangles and K4."""
    ring = structure.orbit_counts(matrix(nx.cycle_graph(9)))
    assert np.array_equal(ring, np.tile([2, 2, 1, 0, 2, 2] + [0] * 9, (9, 1)))
    full = structure.orbit_counts(matrix(nx.complete_graph(6)))
    assert full[:, [0, 3, 14]].tolist() == [[5, 10, 10]] * 6
    assert full.sum() == 6 * 25


def test_orbit_sums_hold_on_a_larger_graph() -> None:
    """Two orbits of one graphlet occur in a fixed ratio over the whole graph, across blocks of rows, too."""
    o = structure.orbit_counts(matrix(nx.gnm_random_graph(1300, 9000, seed=1))).sum(0)
    assert (o >= 0).all()
    assert o[1] == 2 * o[2] and o[4] == o[5] and o[6] == 3 * o[7] and o[9] == o[11] and o[10] == 2 * o[11]
    assert o[12] == o[13] and o[3] % 3 == 0 and o[8] % 4 == 0 and o[14] % 4 == 0


def test_relabelling_permutes_all_features() -> None:
    """A node's features do not depend on its number."""
    data = block_model(60, seed=3)
    order = torch.from_numpy(np.random.default_rng(0).permutation(60))
    moved = Data(edge_index=order[data.edge_index], num_nodes=60)
    for kind in ("Deg", "Fed*", "GDV", "GDV-73"):
        before, after = (structure.features(kind, d, 12, walk=5) for d in (data, moved))
        assert gap(after[order], before) < 1e-5


def test_direction_loops_and_repeats_do_not_matter() -> None:
    """Features are those of the undirected simple graph."""
    data = block_model(30, seed=1, directed=True)
    both = torch.cat([data.edge_index, data.edge_index.flip(0)], 1)
    a = structure.adjacency(data)
    assert (a != a.T).nnz == 0 and a.diagonal().sum() == 0 and a.max() == 1
    assert (a != structure.adjacency(Data(edge_index=both, num_nodes=30))).nnz == 0


def test_graphlet_features_are_standardized() -> None:
    """A column that varies has mean 0 and variance 1, and one that does not is 0."""
    features = structure.graphlets(matrix(nx.gnp_random_graph(40, 0.2, seed=0))).double()
    assert features.shape == (40, 15)
    assert float(features.mean(0).abs().max()) < 1e-6
    spread = features.std(0, correction=0)
    assert float((spread - 1).abs().min()) < 1e-6 and bool(((spread - 1).abs() < 1e-5).logical_or(spread == 0).all())
    assert bool((structure.graphlets(matrix(nx.cycle_graph(7))) == 0).all())


def test_degrees_are_one_hot() -> None:
    """Degrees at and above the last column share it."""
    made = structure.degree(matrix(nx.star_graph(6)), 4)
    assert made.sum() == 7 and made[0, 3] == 1 and bool((made[1:, 1] == 1).all())


@pytest.mark.parametrize("loops", [True, False])
def test_walk_diagonals_are_those_of_dense_powers(loops: bool) -> None:
    """The walk is D~^-1 (A+I), or D^-1 A with zeros at isolated nodes; blocks change nothing."""
    data = block_model(48, seed=2)
    a = structure.adjacency(data).toarray() + (np.eye(48) if loops else 0)
    total = a.sum(1, keepdims=True)
    step = np.divide(a, total, out=np.zeros_like(a), where=total > 0)
    expected = np.stack([np.linalg.matrix_power(step, k).diagonal() for k in range(1, 8)], 1)
    made = structure.walk_diagonals(structure.adjacency(data), 7, loops, block=20)
    assert np.abs(made.numpy() - expected).max() < 1e-6
    assert loops or float(made[:, 0].abs().max()) == 0


def test_walk_diagonals_in_closed_form() -> None:
    """A walk returns with probability 1/(n-1) on K_n after two steps, and d / (2 |E|) after many steps."""
    complete = structure.walk_diagonals(matrix(nx.complete_graph(7)), 2, loops=False)
    assert gap(complete[:, 1].double(), torch.full((7,), 1 / 6, dtype=torch.float64)) < 1e-7
    graph = nx.gnp_random_graph(12, 0.5, seed=0)
    a = matrix(graph)
    limit = torch.from_numpy(np.diff(a.indptr) / a.nnz)
    assert gap(structure.walk_diagonals(a, 60, loops=False)[:, -1].double(), limit) < 1e-6


def test_fedstar_is_degree_next_to_the_walk() -> None:
    """The columns are those of both parts, here 7 and 3, and 206 and 50 in the authors' code."""
    a = matrix(nx.gnp_random_graph(20, 0.3, seed=0))
    made = structure.fedstar(a, 10, 3)
    assert torch.equal(made, torch.cat([structure.degree(a, 7), structure.walk_diagonals(a, 3)], 1))
    with pytest.raises(ArgumentError, match="walk must be"):
        structure.fedstar(a, 10, 10)


# -- Node2Vec ---------------------------------------------------------------------------------------------------------


def test_a_uniform_walk_steps_along_edges_evenly() -> None:
    """With p = q = 1 frequencies are those of D^-1 A within four standard errors; walks stay at isolated nodes."""
    a = matrix(nx.gnp_random_graph(8, 0.5, seed=2))
    steps = node2vec.walks(a, np.repeat(np.arange(8), 20_000), 2, 1.0, 1.0, "test")
    counts = np.zeros((8, 8))
    np.add.at(counts, (steps[:, 0], steps[:, 1]), 1)
    expected = a.toarray() / a.sum(1)
    assert (np.abs(counts / 20_000 - expected) < 4 * np.sqrt(0.25 / 20_000)).all()
    alone = node2vec.walks(matrix(nx.empty_graph(3)), np.arange(3), 5, 1.0, 1.0, "test")
    assert np.array_equal(alone, np.tile(np.arange(3)[:, None], 5))


@pytest.mark.parametrize(("p", "q"), [(0.25, 1.0), (4.0, 0.5), (1.0, 2.0)])
def test_a_walk_returns_as_often_as_its_formula(p: float, q: float) -> None:
    """A graph without triangles has P(return) = (1/p) / (1/p + (d - 1)/q)."""
    a = matrix(nx.convert_node_labels_to_integers(nx.hypercube_graph(3)))
    walk = node2vec.walks(a, np.repeat(np.arange(8), 5_000), 3, p, q, "test")
    share = float((walk[:, 2] == walk[:, 0]).mean())
    expected = (1 / p) / (1 / p + 2 / q)
    assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / len(walk))


def test_a_walk_prefers_common_neighbours() -> None:
    """From t through v the weight is 1 for a node joined to t, 1/q for another, and 1/p for the way back."""
    a = matrix(nx.Graph([(0, 1), (1, 2), (0, 2), (1, 3)]))
    walk = node2vec.walks(a, np.zeros(60_000, dtype=np.int64), 3, 2.0, 4.0, "test")
    through = walk[walk[:, 1] == 1]
    found = [float((through[:, 2] == x).mean()) for x in (0, 2, 3)]
    expected = np.array([0.5, 1.0, 0.25]) / 1.75
    assert (np.abs(np.array(found) - expected) < 4 * np.sqrt(0.25 / len(through))).all()


def test_joined_finds_the_edges() -> None:
    """All pairs are right in a graph with an isolated node, and in a graph without edges."""
    a = matrix(nx.disjoint_union(nx.gnp_random_graph(9, 0.4, seed=5), nx.empty_graph(1)))
    u, v = (x.ravel() for x in np.meshgrid(np.arange(10), np.arange(10)))
    assert np.array_equal(node2vec.joined(a, u, v), a.toarray()[u, v] > 0)
    assert not node2vec.joined(matrix(nx.empty_graph(4)), np.arange(4), np.arange(4)).any()


@pytest.mark.parametrize("sign", [1, -1])
def test_the_gradient_is_that_of_the_windows(sign: int) -> None:
    """The gradient is that of the loss written window by window, as the library does, by autograd."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(12, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    walk = torch.randint(12, (7, 9), generator=generator)
    context = 4
    windows = torch.cat([walk[:, j : j + context] for j in range(9 - context + 1)])
    score = (table[windows[:, :1]] * table[windows[:, 1:]]).sum(-1)
    loss = -torch.nn.functional.logsigmoid(sign * score).mean()  # log(1 - sigma(x)) = log sigma(-x)
    loss.backward()
    rows, grad, value = node2vec.gradient(table.detach(), walk, context, sign)
    assert abs(value - float(loss.detach())) < 1e-12
    assert gap(torch.zeros_like(table).index_add(0, rows, grad), table.grad) < 1e-13


def test_rows_move_as_by_sparse_adam() -> None:
    """Three steps with repeated rows equal torch's, and rows without a gradient stay bitwise."""
    start = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain = torch.nn.Parameter(start.clone())
    library, ours = torch.optim.SparseAdam([plain], lr=0.05), node2vec._RowAdam(start.clone(), 0.05)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randint(4, (5,), generator=generator)
        grad = torch.randn(5, 3, generator=generator, dtype=torch.float64)
        plain.grad = torch.sparse_coo_tensor(rows[None], grad, start.shape, check_invariants=True)
        library.step()
        ours.step(rows, grad)
    assert gap(ours.table, plain) < 1e-14 and torch.equal(ours.table[4:], start[4:])


def test_cliques_are_told_apart() -> None:
    """Training makes dot products within a clique exceed those between two cliques without common edges."""
    a = matrix(nx.disjoint_union(nx.complete_graph(10), nx.complete_graph(10)))
    options = {"length": 8, "context": 4, "per_node": 5, "batch": 20, "lr": 0.05}
    gaps = []
    for epochs in (1, 60):
        z = node2vec.embed(a, 16, epochs=epochs, **options).numpy()
        dot = z @ z.T
        same = np.kron(np.eye(2), np.ones((10, 10))).astype(bool) & ~np.eye(20, dtype=bool)
        gaps.append(float(dot[same].mean() - dot[~same & ~np.eye(20, dtype=bool)].mean()))
    assert gaps[1] > max(1.0, gaps[0] + 1.0)


def test_embeddings_are_a_function_of_graph_and_seed() -> None:
    """The global generators are neither read nor moved."""
    a = matrix(nx.karate_club_graph())
    options = {"epochs": 1, "length": 6, "context": 3, "per_node": 2}
    state = torch.get_rng_state()
    first = node2vec.embed(a, 4, seed=1, **options)
    assert torch.equal(first, node2vec.embed(a, 4, seed=1, **options)) and torch.equal(state, torch.get_rng_state())
    assert gap(first, node2vec.embed(a, 4, seed=2, **options)) > 0.1


# -- kept features ----------------------------------------------------------------------------------------------------


def test_what_took_long_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features come from memory, or from a file named by graph, kind and code; small graphs leave no file."""
    monkeypatch.setenv("FEDREPRO_PROCESSED", str(tmp_path))
    monkeypatch.setattr(structure, "KEPT_FROM", 40)
    monkeypatch.setattr(structure, "_MEMORY", {})
    features = structure.features("GDV", block_model(48))
    (file,) = tmp_path.glob("*.npz")
    graphlets = structure.graphlets
    monkeypatch.setattr(structure, "graphlets", None)  # would fail if called again
    structure._MEMORY.clear()
    assert torch.equal(structure.features("GDV", block_model(48)), features)
    assert file.stat().st_mtime_ns and [*tmp_path.iterdir()] == [file]
    # A file that is torn, empty or changed in one byte is computed anew.
    whole = file.read_bytes()
    middle = len(whole) // 2
    changed = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (whole[:100], b"", changed):
        file.write_bytes(content)
        structure._MEMORY.clear()
        with monkeypatch.context() as mended:
            mended.setattr(structure, "graphlets", graphlets)
            assert torch.equal(structure.features("GDV", block_model(48)), features)
    with pytest.raises(TypeError):
        structure.features("GDV", block_model(48, seed=1))
    monkeypatch.undo()
    monkeypatch.setenv("FEDREPRO_PROCESSED", str(tmp_path / "none"))
    structure.features("GDV", block_model(30, seed=7))
    assert not (tmp_path / "none").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features are computed all the same, and stay in memory."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDREPRO_PROCESSED", str(tmp_path / "file" / "processed"))
    monkeypatch.setattr(structure, "KEPT_FROM", 40)
    monkeypatch.setattr(structure, "_MEMORY", {})
    made = structure.features("GDV", block_model(48))
    assert structure.features("GDV", block_model(48)) is made


def test_unknown_features_are_refused() -> None:
    """Hop2Vec is refused, too, since it is no function of the graph."""
    for kind in ("H2V", "degree"):
        with pytest.raises(ArgumentError, match="structure must be one of"):
            structure.features(kind, block_model(30))
