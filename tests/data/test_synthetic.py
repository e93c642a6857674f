"""Stochastic block models and stand-ins against the statistics they promise."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from fedrepro.data import datasets, shapes, synthetic
from fedrepro.data.statistics import summarize
from fedrepro.errors import ArgumentError

REAL = os.environ.get("FEDREPRO_DATA")
MEASURED = list(shapes._MEASURED)
QUICK = ["Cora", "CiteSeer", "PubMed", "Chameleon", "Squirrel", "Photo", "Amazon Ratings", "PPI"]


# --- contextual stochastic block models ---------------------------------------------------------------------


@pytest.mark.parametrize("lam", [2.0, -2.0])
def test_csbm_edges(lam: float) -> None:
    """Edges within and between classes occur as often as c/N says, within four standard deviations."""
    nodes, degree = 200, 8.0
    inside = outside = pairs_inside = pairs_outside = 0
    for seed in range(20):
        data = synthetic.csbm(nodes, degree, lam, 1.0, 3, seed)
        row, col = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
        same = int((data.y[row] == data.y[col]).sum())
        ones = int(data.y.sum())
        inside, outside = inside + same, outside + row.numel() - same
        pairs_inside += math.comb(ones, 2) + math.comb(nodes - ones, 2)
        pairs_outside += ones * (nodes - ones)
    for found, pairs, sign in ((inside, pairs_inside, 1), (outside, pairs_outside, -1)):
        expected = pairs * (degree + sign * lam * math.sqrt(degree)) / nodes
        assert abs(found - expected) < 4 * math.sqrt(expected)


def test_csbm_is_undirected_without_loops() -> None:
    """Every edge is stored in both directions, sorted, and none is a self-loop."""
    edges = synthetic.csbm(100, 6, 1.5, 1, 4).edge_index.numpy()
    dense = np.zeros((100, 100), int)
    np.add.at(dense, tuple(edges), 1)
    assert (dense == dense.T).all() and dense.max() == 1 and np.trace(dense) == 0
    assert np.array_equal(np.stack(dense.nonzero()), edges)


@pytest.mark.parametrize(("noise", "deviation"), [("1/sqrt(p)", 1 / math.sqrt(50)), ("1/p", 1 / 50)])
def test_csbm_features(noise: str, deviation: float) -> None:
    """Features minus sqrt(mu/N) v u are noise of deviation 1/sqrt(p), or 1/p as printed."""
    data = synthetic.csbm(400, 8, 2, 3.0, 50, 1, noise=noise)
    v, u = data.parameters["v"], data.parameters["u"]
    rest = data.x.numpy() - math.sqrt(3.0 / 400) * np.outer(v, u)
    assert rest.std() == pytest.approx(deviation, rel=0.02) and abs(rest.mean()) < 4 * deviation / math.sqrt(rest.size)
    assert np.array_equal(data.y.numpy(), v > 0) and set(v) == {-1, 1}
    assert data.parameters["phi"] == pytest.approx(2 / math.pi * math.atan(2 * math.sqrt(400 / 50) / 3))


def test_csbm_noise_seed() -> None:
    """Another noise seed redraws features over the same graph, classes and direction; the same seed gives the same."""
    one, two, again = (synthetic.csbm(80, 6, 1, 1, 5, 3, noise_seed=seed) for seed in (0, 1, 0))
    assert torch.equal(one.edge_index, two.edge_index) and torch.equal(one.y, two.y)
    assert np.array_equal(one.parameters["u"], two.parameters["u"])
    assert torch.equal(one.x, again.x) and not torch.equal(one.x, two.x)
    assert not torch.equal(one.edge_index, synthetic.csbm(80, 6, 1, 1, 5, 4).edge_index)


def test_csbm_errors() -> None:
    """Impossible probabilities and unknown noise are refused."""
    with pytest.raises(ArgumentError, match=r"lam must be within .* Got 3"):
        synthetic.csbm(100, 4, 3, 1, 5)
    with pytest.raises(ArgumentError, match=r"degree must be small enough"):
        synthetic.csbm(10, 9, 3, 1, 5)
    with pytest.raises(ArgumentError, match=r"noise must be one of"):
        synthetic.csbm(100, 4, 1, 1, 5, noise="p")


# --- stand-ins ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*QUICK, pytest.param("Computers"), pytest.param("CS")])
def test_standin_statistics(name: str) -> None:
    """Sizes are equal; homophily is within 0.02, degree quantiles and feature density within 10%."""
    shape = shapes.SHAPES[name]
    data = datasets.load(f"{name}~standin")
    counts = summarize(data)
    assert data.name == f"{name}~standin"
    assert (counts["nodes"], counts["features"]) == (shape.nodes, shape.features)
    assert (counts["directed_edges"], counts["undirected_edges"]) == (shape.edges, shape.pairs)
    assert (counts["self_loops"], counts["isolated"]) == (shape.loops, shape.isolated)
    assert counts["classes"] == (shape.labels or len(shape.classes))
    for part, wanted in zip((50, 90, 99), shape.degrees, strict=False):
        assert counts[f"degree_{part}"] == pytest.approx(wanted, rel=0.1)
    assert counts["density"] == pytest.approx(shape.density, rel=0.1)
    assert tuple(counts[part] for part in ("train", "val", "test")) == (shape.split or (0, 0, 0))
    if not shape.labels:
        assert counts["class_nodes"] == list(shape.classes)
        assert abs(counts["homophily"] - shape.homophily) < 0.02
    else:
        assert data.y.dtype == torch.float32 and set(data.y.unique().tolist()) == {0, 1}


@pytest.mark.skipif(not REAL, reason="shapes are not compared with real files: FEDREPRO_DATA is unset")
@pytest.mark.parametrize("name", MEASURED)
def test_shapes_are_those_of_the_real_graphs(name: str) -> None:
    """The constants stored for a stand-in are what the real files give."""
    shape, real = shapes.SHAPES[name], datasets.load(name)
    counts = summarize(real)
    assert (shape.nodes, shape.edges, shape.pairs) == tuple(
        counts[key] for key in ("nodes", "directed_edges", "undirected_edges")
    )
    assert (shape.loops, shape.isolated, shape.features) == tuple(
        counts[key] for key in ("self_loops", "isolated", "features")
    )
    assert list(shape.classes) == counts["class_nodes"]
    assert shape.homophily == pytest.approx(counts["homophily"], abs=1e-4)
    assert shape.density == pytest.approx(counts["density"], abs=1e-5)
    wanted = [counts[f"degree_{part}"] for part in (50, 90, 99)]
    assert list(shape.degrees[:3]) == pytest.approx(wanted, abs=0.5)
    assert (shape.split or (0, 0, 0)) == tuple(counts[part] for part in ("train", "val", "test"))
    assert shape.splits == (real.public.shape[1] if "public" in real else 1)


def test_assumed_shapes_are_consistent() -> None:
    """Class sizes add up to the nodes, and splits do not exceed them."""
    for name, shape in shapes.SHAPES.items():
        assert sum(shape.classes) == shape.nodes and min(shape.classes) > 0, name
        assert shape.split is None or sum(shape.split) <= shape.nodes, name
        assert shape.pairs <= shape.edges - shape.loops <= 2 * shape.pairs, name
    assert set(shapes.SHAPES) == set(datasets.NAMES)


def test_standin_is_a_function_of_name_and_seed() -> None:
    """A seed gives one graph, whatever the global generators are, and another seed gives another graph."""
    one = synthetic.standin("Cora", 1)
    np.random.seed(7)
    torch.manual_seed(7)
    two, other = synthetic.standin("Cora", 1), synthetic.standin("Cora", 2)
    for key in ("edge_index", "y", "public"):
        assert torch.equal(one[key], two[key])
    assert torch.equal(one.x.to_dense(), two.x.to_dense())
    assert not torch.equal(one.edge_index, other.edge_index) and not torch.equal(one.y, other.y)


def test_standin_public_split_of_cora() -> None:
    """The public split has 20 training nodes a class and no node twice; ten splits differ where there are ten."""
    data = datasets.split(datasets.load("Cora~standin"), "public")
    assert torch.bincount(data.y[data.train_mask]).tolist() == [20] * 7
    assert int(data.public.sum(2).max()) == 1
    columns = datasets.load("Chameleon~standin").public
    assert columns.shape == (2277, 10, 3) and not torch.equal(columns[:, 0], columns[:, 1])


def test_standin_copies_do_not_share_changes() -> None:
    """Replacing an attribute of a loaded stand-in does not change the next load."""
    one = datasets.load("Cora~standin")
    one.x = one.x.to_dense() * 2
    assert datasets.load("Cora~standin").x.layout == torch.sparse_csr


class _TwoLayers(torch.nn.Module):
    """GCN, or MLP where `edges` is empty: two layers, hidden 32, dropout 0.5."""

    def __init__(self, data: Data, graph: bool) -> None:
        super().__init__()
        self.edges = data.edge_index if graph else torch.zeros(2, 0, dtype=torch.long)
        self.one = GCNConv(data.x.shape[1], 32, cached=True)
        self.two = GCNConv(32, data.num_classes, cached=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.one(x, self.edges))
        out: torch.Tensor = self.two(torch.dropout(hidden, 0.5, self.training), self.edges)
        return out


def _accuracy(data: Data, graph: bool) -> float:
    """Test accuracy at the epoch of best validation accuracy, of 100 with Adam, rate 0.01, weight decay 5e-4."""
    torch.manual_seed(0)
    x, model = data.x.to_dense(), _TwoLayers(data, graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    best = (-1.0, -1.0)
    for epoch in range(100):
        model.train()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x)[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        if epoch % 5 == 4:
            model.eval()
            with torch.no_grad():
                right = (model(x).argmax(1) == data.y).float()
            best = max(best, (float(right[data.val_mask].mean()), float(right[data.test_mask].mean())))
    return best[1]


@pytest.mark.parametrize(("name", "split"), [("Cora", "public"), ("Cora", "10/10/80"), ("Chameleon", "public")])
def test_a_gcn_beats_an_mlp_on_a_standin(name: str, split: str) -> None:
    """The graph of a stand-in raises accuracy by at least 3 points, and the task is not trivial: below 98%."""
    data = datasets.split(datasets.load(f"{name}~standin"), split)
    gcn, mlp = _accuracy(data, True), _accuracy(data, False)
    assert mlp + 0.03 <= gcn < 0.98
    assert mlp > 1.2 / data.num_classes  # features say something too
