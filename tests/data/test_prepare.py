"""Preparing and splitting graphs, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from raw_files import dense
from torch_geometric.data import Data

from fedrepro.data import datasets
from fedrepro.data.formats import csr_matrix, csr_tensor, features_of
from fedrepro.errors import ArgumentError

# --- prepare ------------------------------------------------------------------------------------------------


def test_graph_steps(loaded: Data) -> None:
    """Edges are mirrored, self-loops removed, and the largest component relabelled; the given graph is untouched."""
    before = loaded.edge_index.clone()
    both = datasets.prepare(loaded, "undirected+no-self-loops").edge_index
    assert both.tolist() == [[0, 0, 1, 2, 2, 3, 4, 5], [1, 2, 0, 0, 3, 2, 5, 4]]
    part = datasets.prepare(loaded, "largest-component")
    assert part.edge_index.tolist() == [[0, 0, 1, 2, 3], [1, 2, 0, 2, 2]] and part.y.tolist() == [0, 1, 0, 0]
    assert torch.equal(part.public, loaded.public[:4]) and torch.equal(part.x, loaded.x[:4])
    assert torch.equal(loaded.edge_index, before) and loaded.num_nodes == 6


@pytest.mark.parametrize("sparse", [False, True])
def test_feature_steps(sparse: bool, loaded: Data) -> None:
    """Every normalization equals NumPy; the first two keep sparse features sparse, zero rows stay zero."""
    x = loaded.x.numpy().astype(np.float64)
    x[:, 3] = 0
    loaded.x = csr_tensor(sp.csr_matrix(x.astype(np.float32))) if sparse else torch.from_numpy(x).float()
    loaded = datasets.split(loaded, "public")
    centred = x - x.mean(1, keepdims=True)

    def safe(a: Any, b: Any) -> Any:
        return np.divide(a, b, out=np.zeros_like(a), where=b > 0)

    train = x[:3]
    expected = {
        "row-sum": safe(x, x.sum(1, keepdims=True) * np.ones_like(x)),
        "unit-norm": safe(x, np.linalg.norm(x, axis=1, keepdims=True) * np.ones_like(x)),
        "centred-norm": safe(centred, np.linalg.norm(centred, axis=1, keepdims=True) * np.ones_like(x)),
        "standardized": (x - train.mean(0)) / np.where(train.std(0) > 0, train.std(0), 1),
        "layer-norm": centred / np.sqrt(x.var(1, keepdims=True) + 1e-5),
    }
    for step, wanted in expected.items():
        found = datasets.prepare(loaded, step).x
        assert np.allclose(dense(found), wanted, atol=1e-6), step
        assert (found.layout == torch.sparse_csr) == (sparse and step in ("row-sum", "unit-norm"))


def test_sparse_component_stays_sparse(loaded: Data) -> None:
    """Taking a component keeps sparse features sparse and their rows."""
    wanted = loaded.x[:4].numpy()
    loaded.x = csr_tensor(sp.csr_matrix(loaded.x.numpy()))
    part = datasets.prepare(loaded, "largest-component")
    assert part.x.layout == torch.sparse_csr and np.array_equal(dense(part.x), wanted)


def test_prepare_errors(loaded: Data) -> None:
    """An unknown step, negative features under row-sum and standardizing without a split are named."""
    with pytest.raises(ArgumentError, match=r"prepare step must be one of .*Did you mean 'row-sum'"):
        datasets.prepare(loaded, "undirected+rowsum")
    with pytest.raises(ArgumentError, match=r"after split"):
        datasets.prepare(loaded, "standardized")
    loaded.x = -loaded.x
    with pytest.raises(ArgumentError, match=r"without negative entries. Got -5.0"):
        datasets.prepare(loaded, "row-sum")


def test_assemble_standardizes_after_the_split(loaded: Data) -> None:
    """In one call, steps before `standardized` come before the split and the rest after."""
    data = datasets.assemble("tiny", "largest-component+standardized", "public")
    train = loaded.x[:3].numpy().astype(np.float64)
    wanted = (loaded.x[:4].numpy() - train.mean(0)) / np.where(train.std(0) > 0, train.std(0), 1)
    assert np.allclose(data.x.numpy(), wanted, atol=1e-6)
    assert "train_mask" not in datasets.assemble("tiny", "undirected")


def test_sparse_below_a_quarter() -> None:
    """Features with less than a quarter of non-zero entries are sparse, others dense, values the same."""
    for filled, layout in ((24, torch.sparse_csr), (25, torch.strided)):
        x = np.zeros(100, np.float32)
        x[np.random.default_rng(0).permutation(100)[:filled]] = 2
        kept = features_of(torch.from_numpy(x.reshape(10, 10)))
        assert kept.layout == layout and np.array_equal(dense(kept), x.reshape(10, 10))
        if layout == torch.sparse_csr:
            assert np.array_equal(csr_matrix(kept).toarray(), x.reshape(10, 10))


# --- split --------------------------------------------------------------------------------------------------


def test_percentages(loaded: Data) -> None:
    """Percentages cover all nodes once, are a function of the seed, and leave the global generators as they are."""
    big = Data(x=torch.zeros(1003, 1), y=torch.zeros(1003, dtype=torch.long), edge_index=loaded.edge_index)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    one, two, other = (datasets.split(big, "10/10/80", seed) for seed in (4, 4, 5))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)
    counts = [int(one[f"{part}_mask"].sum()) for part in ("train", "val", "test")]
    assert counts == [100, 101, 802]
    assert torch.equal(one.train_mask.int() + one.val_mask.int() + one.test_mask.int(), torch.ones(1003).int())
    assert torch.equal(one.train_mask, two.train_mask) and not torch.equal(one.train_mask, other.train_mask)


def test_percentages_are_uniform(loaded: Data) -> None:
    """Over seeds every node is a training node about equally often: chi-square below its 99.9% quantile."""
    small = Data(x=torch.zeros(20, 1), y=torch.zeros(20, dtype=torch.long), edge_index=loaded.edge_index)
    hits = sum(datasets.split(small, "20/20/60", seed).train_mask.double() for seed in range(500))
    # Each node is drawn with probability 0.2 in 500 splits; 19 degrees of freedom: 43.8.
    statistic = float(((hits - 100) ** 2 / (100 * 0.8)).sum()) * 19 / 20  # type: ignore[union-attr]
    assert statistic < 43.8


@pytest.mark.parametrize(
    "name", ["10/10/70", "50/50", "a/b/c", "0/10/90", "-10/20/90", "random", "", "1e999/1/1", "1/0/99"]
)
def test_split_errors(name: str, loaded: Data) -> None:
    """Percentages that are not three positive numbers of sum 100 are refused with what was given."""
    with pytest.raises(ArgumentError, match=r"split must be .*100"):
        datasets.split(loaded, name)


def test_empty_part_and_no_public_split(loaded: Data) -> None:
    """A part without nodes, a public split that does not exist and a negative seed are errors."""
    with pytest.raises(ArgumentError, match=r"at least one of the 6 nodes"):
        datasets.split(loaded, "10/10/80")
    del loaded.public
    with pytest.raises(ArgumentError, match=r"publishes none"):
        datasets.split(loaded, "public")
    with pytest.raises(ArgumentError, match=r"seed"):
        datasets.split(loaded, "40/30/30", -1)
