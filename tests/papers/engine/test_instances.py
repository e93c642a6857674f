"""The small matrices of the engine's notebooks: as fractions, and their largest difference."""

from __future__ import annotations

import torch

from fedrepro.papers.engine import instances


def test_a_matrix_is_written_in_fractions() -> None:
    """The nearest fraction of small denominator is written, under the labels that are given."""
    matrix = torch.tensor([[1 / 3, 5 / 9], [0.0, 2.0]], dtype=torch.float64)
    table = instances.fractions(matrix, columns=["first", "second"])
    assert table["first"].tolist() == ["1/3", "0"] and table["second"].tolist() == ["5/9", "2"]


def test_the_gap_is_the_largest_over_all_weights() -> None:
    """Every entry of every weight counts, whatever its sign."""
    left = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[0.0]])}
    right = {"a": torch.tensor([1.0, 2.5]), "b": torch.tensor([[3.0]])}
    assert instances.gap(left, right) == 3.0 and instances.gap({"a": left["a"]}, right) == 0.5
    assert instances.gap(left, left) == 0.0
