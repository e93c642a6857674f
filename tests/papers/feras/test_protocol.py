"""Feras's literal forms: the method agrees with them, and they tell Algorithm 1 and the table apart."""

from __future__ import annotations

from fedrepro.papers.feras.protocol import literal
from fedrepro.papers.feras.theory.identities import algorithms, largest_gap, small_instance


def test_algorithms_match_line_by_line_and_no_broken_line_does() -> None:
    """Weights, embeddings of every iteration and the table agree with the literal forms, and not with broken ones."""
    measured = {row["id"]: row["measured"] for row in algorithms(3)}
    wanted = ["FR-A1", "FR-A1-embeddings", "FR-A2", "FR-A2-embeddings", "FR-A2-table"]
    assert sorted(measured) == sorted([*wanted, *(f"{check}-control" for check in wanted)])
    assert all(measured[check] < 1e-12 < 1e-3 < measured[f"{check}-control"] for check in wanted)


def test_the_other_algorithm_is_told_apart() -> None:
    """The literal table gives other embeddings and other weights than the literal average."""
    (average, fed), (table, _) = (small_instance(3, exchange) for exchange in ("average", "table"))
    holding, state = average.start(fed)
    left, right = (literal(method, holding, state, 3) for method in (average, table))
    assert min(largest_gap(left[name], right[name]) for name in ("weights", "embeddings")) > 1e-3
