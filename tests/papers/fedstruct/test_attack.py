"""Check what FedStruct's clients learn of others: scores that find edges, exact cases, and controls that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from graphs import block_model, unequal_parts
from scipy.sparse import csr_matrix

from fedrepro.data import partition
from fedrepro.engine.federation import Federation
from fedrepro.errors import ArgumentError
from fedrepro.papers.fedstruct import attack as attacks
from fedrepro.papers.fedstruct import powers, structure
from fedrepro.runs.run import Run

NODES, CLIENTS = 90, 3
DATA, PARTS = block_model(NODES, seed=5, degree=5), unequal_parts(NODES, CLIENTS, 5)[::-1]
A = structure.adjacency(DATA)
HELD = [part.numpy() for part in PARTS]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks.tasks, "graph", lambda run: DATA)
    monkeypatch.setattr(partition, "divide", lambda *_: PARTS)
    monkeypatch.setattr(attacks.tasks, "federation", lambda runs: Federation.of(DATA, PARTS, runs[0].seed))


def attack(name: str, **options: Any) -> dict[str, float]:
    method = f"fedstruct-{name}"
    run = Run("attack", "fedstruct", method, dataset="Cora~standin", clients=CLIENTS, options=options)
    return getattr(attacks, name)(run)["result"]


def test_auc_is_the_share_of_ordered_pairs() -> None:
    """The area under the curve equals a count over all pairs, with ties as a half."""
    rng = np.random.default_rng(0)
    score, positive = rng.integers(6, size=60).astype(float), rng.random(60) < 0.3
    pairs = [(p > n) + 0.5 * (p == n) for p in score[positive] for n in score[~positive]]
    assert abs(attacks.auc(score, positive) - np.mean(pairs)) < 1e-12
    assert np.isnan(attacks.auc(score, np.zeros(60, dtype=bool)))


def test_a_score_that_knows_nothing_and_one_that_knows_all() -> None:
    """Random scores yield 0.5 and the density, the adjacency matrix 1 and 1, other nodes' edges about 0.5."""
    noise = np.random.default_rng(1).random((NODES, NODES))
    blind, sighted = (attacks.rated(m, A, HELD, 0) for m in (noise + noise.T, A.toarray()))
    assert abs(blind["auc"] - 0.5) < 0.06 and blind["precision"] < 3 * blind["density"] + 0.02
    assert sighted["auc"] == sighted["precision"] == sighted["self"] == sighted["between"] == 1
    order = np.random.default_rng(2).permutation(NODES)
    power = list(powers.powers(DATA, PARTS, 3, 0))[-1].matrix[HELD[0]]
    wrong = attacks.rated(attacks.from_combined(power)[np.ix_(order, order)], A, HELD, 0)
    assert abs(wrong["auc"] - 0.5) < 0.08


def test_only_pairs_that_the_attacker_does_not_hold_count() -> None:
    """The numbers of pairs and of edges are those among nodes of other clients."""
    scores = attacks.rated(A.toarray(), A, HELD, 1)
    others = np.setdiff1d(np.arange(NODES), HELD[1])
    assert scores["pairs"] == len(others) * (len(others) - 1) / 2
    assert scores["edges"] == A[others][:, others].nnz / 2


def test_pairs_within_a_client_are_told_from_pairs_between_two() -> None:
    """A score that knows only the edges within clients finds all of these, and of the others as many as by chance."""
    owner = np.argmax([np.isin(np.arange(NODES), part) for part in HELD], axis=0)
    found = attacks.rated(A.toarray() * (owner[:, None] == owner), A, HELD, 0)
    assert (found["self"], found["between"]) == (1.0, 0.5)


@pytest.mark.parametrize("view", attacks.VIEWS)
@pytest.mark.parametrize("prune", [0, 6])
def test_every_view_finds_edges(view: str, prune: int) -> None:
    """Every view is far better than guessing, with and without pruning."""
    found = attack("edges", view=view, prune=prune, structure_depth=3, attackers=1)
    assert found["auc"] > 0.6 and found["precision"] > 1.5 * found["density"]


def test_pruning_costs_the_attacker_something() -> None:
    """From fewer entries of all powers the attacker finds fewer edges."""
    full, some = (attack("edges", view="powers", prune=p, structure_depth=6, attackers=1) for p in (0, 2))
    assert full["precision"] > some["precision"]


def test_enough_exact_powers_give_the_graph_away() -> None:
    """If the rows of the powers span the space, least squares returns all of A^."""
    step = powers.transition(DATA)
    rng = np.random.default_rng(0)
    x = csr_matrix(rng.random((2 * NODES, NODES)))
    found = attacks.from_powers([x, csr_matrix(x @ step)])
    assert np.abs(found - np.maximum(step.toarray(), step.toarray().T)).max() < 1e-6
    assert attacks.rated(found, A, HELD, 0)["precision"] == 1


def test_the_only_neighbour_is_found_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of the second power yield the exact row of a node that is the only neighbour of an attacker's node."""
    monkeypatch.setattr(attacks, "_either_way", lambda m: m)
    nodes, estimate = HELD[0], attacks.from_blocks(DATA, HELD, 0, 0)
    step = powers.transition(DATA).toarray()
    alone = set()
    for part in HELD[1:]:
        through = A[nodes][:, part].toarray()
        alone |= {int(part[row.argmax()]) for row in through if row.sum() == 1}
    rows = sorted(alone)
    assert len(rows) >= 3 and np.abs(estimate[rows] - step[rows]).max() < 1e-6
    met = A[nodes].sum(0) > 0
    never = [w for part in HELD[1:] for w in part if not np.asarray(met).ravel()[w]]
    assert never and not estimate[never].any()


def test_labels_are_told_by_hop2vec() -> None:
    """After training S tells labels far better than the majority, and before training it tells nothing."""
    data = {"model": "DGCN", "hidden": 8, "depth": 1, "width": 16, "structure_hidden": (8,), "structure_depth": 2}
    late = attack("labels", **data, prune=10, rounds=60, lr=0.03)
    early = attack("labels", **data, prune=10, rounds=1, lr=1e-6)
    assert late["train"] > late["majority"] + 0.2 and late["train"] > early["train"] + 0.2
    assert abs(early["other"] - 1 / 3) < 0.2 and early["test"] < late["test"]


def test_the_first_gradient_tells_labels() -> None:
    """The gradient of s_u sums y^ - y over the nodes near u, u among them (Eq. 16)."""
    options = {"model": "DGCN", "hidden": 8, "depth": 1, "structure_depth": 1, "prune": 0, "rounds": 1}
    direct = attack("labels", **options, head="direct")
    behind = attack("labels", **options, width=16, structure_hidden=(8,))
    assert direct["gradient"] > direct["majority"] + 0.2 and behind["gradient"] > behind["majority"] + 0.2


def test_fixed_features_have_no_gradient() -> None:
    """Degrees have no gradient to read labels from, and the nearest node by degree says little."""
    found = attack("labels", model="DGCN", hidden=8, structure="Deg", width=8, structure_hidden=(8,), prune=5, rounds=2)
    assert found["gradient"] is None and 0 <= found["nearest"] < 0.8


def test_labels_are_counted_where_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that hold only the labels of unlabelled nodes are right there; guesses know only training labels."""
    data = DATA.clone()
    data.train_mask = (data.y == 2) & (torch.arange(NODES) % 3 > 0)  # of one class, which is not the commonest
    told = torch.where(data.train_mask, (data.y + 1) % 3, data.y)
    monkeypatch.setattr(attacks.tasks, "federation", lambda runs: Federation.of(data, PARTS, runs[0].seed))
    monkeypatch.setattr(attacks, "of_structure", lambda *_: torch.nn.functional.one_hot(told, 3).double())
    found = attack("labels", model="DGCN", hidden=8, structure="Deg", width=8, structure_hidden=(8,), prune=5, rounds=1)
    assert (found["train"], found["other"]) == (0.0, 1.0)
    assert found["majority"] == pytest.approx(float((data.y == 2).double().mean()))
    assert int(torch.bincount(data.y).argmax()) != 2


def test_odd_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown view, a graph that is too large and a single power are refused."""
    with pytest.raises(ArgumentError, match="view must be one of"):
        attack("edges", view="rows")
    with pytest.raises(ArgumentError, match="structure_depth must be"):
        attack("edges", view="powers", structure_depth=1)
    monkeypatch.setattr(attacks, "LARGEST", 50)
    with pytest.raises(ArgumentError, match="at most 50 nodes"):
        attack("edges")
