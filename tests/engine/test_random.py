"""Numbers that are functions of their key: distributions, distinct keys, independence of position."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from fedrepro.engine.nn import random

ROWS = torch.from_numpy(random.keys("node", 0, 0, np.arange(2000)).astype(np.int64))


def chi_square(table: np.ndarray) -> float:
    """Pearson's statistic of independence of a contingency table."""
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    return float(((table - expected) ** 2 / expected).sum())


def mask(p: float, columns: int = 64, *call: int | str) -> torch.Tensor:
    return random.keep(random.row_keys(ROWS, "dropout", *(call or ("layer1", 0, 0)))[:, None], torch.arange(columns), p)


def test_uniform_numbers_have_the_moments_of_the_uniform_distribution() -> None:
    """Mean 1/2, variance 1/12, twenty equally likely bins, strictly inside (0, 1)."""
    u = random.uniform((200, 500), "test", 1).numpy().ravel()
    assert u.dtype == np.float64
    assert 0 < u.min() < 1e-3 and 1 - 1e-3 < u.max() < 1
    assert abs(u.mean() - 0.5) < 5 * math.sqrt(1 / 12 / len(u))
    assert abs(u.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / len(u))
    counts = np.histogram(u, bins=20, range=(0, 1))[0]
    assert ((counts - 5000) ** 2 / 5000).sum() < 60  # 19 degrees of freedom


def test_normal_numbers_have_the_moments_of_the_normal_distribution() -> None:
    """Mean 0, variance 1, skewness 0, fourth moment 3, and neighbours are uncorrelated."""
    z = random.normal((100_000,), "test", 1).numpy()
    n = len(z)
    assert abs(z.mean()) < 5 / math.sqrt(n)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((z**3).mean()) < 5 * math.sqrt(15 / n)
    assert abs((z**4).mean() - 3) < 5 * math.sqrt(96 / n)
    assert abs((z[1:] * z[:-1]).mean()) < 5 / math.sqrt(n)


def test_every_combination_of_parts_has_a_key_of_its_own() -> None:
    """No two of 100,000 combinations of seed, client, node and name share a key, nor do their orders."""
    nodes = np.arange(1000)
    keys = [
        random.keys(name, seed, client, nodes)
        for name, seed, client in itertools.product(("node", "layer1"), range(5), range(10))
    ]
    flat = np.concatenate(keys)
    assert flat.dtype == np.uint64
    assert len(np.unique(flat)) == len(flat) == 100_000
    assert random.keys(1, 2) != random.keys(2, 1)
    assert random.keys(1) != random.keys(1, 0)
    assert random.keys("a", "b") != random.keys("ab")


def test_keys_broadcast_as_single_calls() -> None:
    """A key computed in an array is the key computed by itself."""
    together = random.keys("node", 7, np.arange(4)[:, None], np.arange(3))
    alone = np.array([[random.keys("node", 7, i, j) for j in range(3)] for i in range(4)])
    assert np.array_equal(together, alone)


def test_a_number_does_not_depend_on_how_many_are_drawn() -> None:
    """The first numbers of a longer draw are those of a shorter one, and repeated calls agree."""
    assert torch.equal(random.uniform((3, 4), "x", 1).flatten(), random.uniform((100,), "x", 1)[:12])
    assert torch.equal(random.normal((5,), "x", 1), random.normal((9,), "x", 1)[:5])
    assert not torch.equal(random.uniform((5,), "x", 1), random.uniform((5,), "x", 2))
    block = torch.empty(3, 2, dtype=torch.float64)
    random.uniform_block(slice(2, 5), slice(4, 6), 7, random.keys("x", 1), block)
    assert torch.equal(block, random.uniform((9, 7), "x", 1)[2:5, 4:6])


def test_blocks_have_the_same_bits_on_every_device() -> None:
    """The 64-bit integers of torch, which a GPU takes, give NumPy's numbers, for keys with and without the top bit."""
    keys = [random.keys("x", number) for number in range(6)]
    assert {int(key) >> 63 for key in keys} == {0, 1}
    for key in keys:
        part = slice(70, 95), slice(2000, 2100), 2708, key
        here = torch.empty(part[0].stop - part[0].start, part[1].stop - part[1].start, dtype=torch.float64)
        random.uniform_block(*part, here)
        assert torch.equal(random._uniform_block(*part, "cpu"), here)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.6, 0.95])
def test_entries_are_kept_with_probability_one_minus_p(p: float) -> None:
    """The share of kept entries is 1 - p overall, and in each row and column within six standard errors."""
    kept = mask(p).double().numpy()
    for axis, count in ((None, kept.size), (0, kept.shape[0]), (1, kept.shape[1])):
        error = math.sqrt(p * (1 - p) / count)
        assert np.abs(kept.mean(axis) - (1 - p)).max() <= 6 * error
    if 0 < p < 1:
        rows = kept.sum(1)
        assert 0.8 < rows.var() / (kept.shape[1] * p * (1 - p)) < 1.2


def test_kept_entries_of_neighbouring_columns_are_independent() -> None:
    """For every pair of the first columns the 2 by 2 table passes a chi-square test with generous bounds."""
    kept = mask(0.5, 16).numpy()
    statistics = []
    for a, b in itertools.combinations(range(16), 2):
        table = np.histogram2d(kept[:, a], kept[:, b], bins=2)[0]
        statistics.append(chi_square(table))
    assert max(statistics) < 25
    assert 0.6 < np.mean(statistics) < 1.5  # one degree of freedom


def test_kept_entries_of_neighbouring_nodes_are_independent() -> None:
    """Each pair of the first rows, whose node ids are consecutive, passes a chi-square test with generous bounds."""
    kept = mask(0.5, 1024)[:17].numpy()
    statistics = [
        chi_square(np.histogram2d(kept[a], kept[b], bins=2)[0]) for a, b in itertools.combinations(range(17), 2)
    ]
    assert max(statistics) < 25
    assert 0.6 < np.mean(statistics) < 1.5


def test_masks_of_other_calls_are_independent() -> None:
    """Changing layer, round or step gives a mask unrelated to the first; changing nothing gives the same."""
    calls = [("layer1", 0, 0), ("layer2", 0, 0), ("layer1", 1, 0), ("layer1", 0, 1), ("layer1", 1, 1)]
    masks = [mask(0.5, 32, *call).numpy().ravel() for call in calls]
    for a, b in itertools.combinations(masks, 2):
        assert chi_square(np.histogram2d(a, b, bins=2)[0]) < 25
    assert torch.equal(mask(0.5, 32, *calls[0]), mask(0.5, 32, *calls[0]))


def test_whether_an_entry_is_kept_does_not_depend_on_its_position() -> None:
    """The decision for a node and a column is the same in any order, selection or shape."""
    whole = mask(0.4)
    rows, columns = torch.tensor([1999, 3, 3, 77]), torch.tensor([5, 0, 63])
    key = random.row_keys(ROWS[rows], "dropout", "layer1", 0, 0)
    assert torch.equal(random.keep(key[:, None], columns, 0.4), whole[rows][:, columns])
    pairs = random.keep(key[:3], columns, 0.4)
    assert torch.equal(pairs, whole[rows[:3], columns])


def test_raising_p_only_drops_more() -> None:
    """An entry dropped at p is dropped at every larger p."""
    assert not bool((mask(0.6) & ~mask(0.3)).any())


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 0.6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inverted_dropout_scales_what_is_kept(p: float, dtype: torch.dtype) -> None:
    """The scales are the mask over `1 - p`, to the last bit, over several pieces and for any shapes that broadcast."""
    key = random.row_keys(ROWS, "dropout", "layer1", 0, 0)
    for rows, columns in ((key[:, None], 300), (key.view(4, 500, 1), 7), (key[:0, None], 5)):
        column = torch.arange(columns)
        by = random.scales(rows, column, p, dtype)
        assert by.dtype == dtype
        assert torch.equal(by, random.keep(rows, column, p).to(dtype) / (1 - p))
