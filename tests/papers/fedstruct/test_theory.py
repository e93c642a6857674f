"""Check FedStruct's propositions: identities to rounding, and controls that must fail."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from graphs import block_model, unequal_parts

from fedrepro.data import partition
from fedrepro.errors import ArgumentError
from fedrepro.papers.fedstruct import network, powers, protocol
from fedrepro.papers.fedstruct.method import FedStruct
from fedrepro.papers.fedstruct.theory import algorithms, exchange, gradients, properties, setup
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

DATA, PARTS = block_model(48, seed=3), unequal_parts(48, 4, 3)


def check(name: str, **options: Any) -> Run:
    return Run(
        task="check", paper="fedstruct", method=f"fedstruct-{name}", seed=options.pop("seed", 0), options=options
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "graph", lambda run: DATA)
    monkeypatch.setattr(partition, "divide", lambda *_: PARTS)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_gradients_are_those_of_automatic_differentiation(seed: int) -> None:
    """Lemma 1 and Propositions 1 to 4 hold to 1e-12, and every control differs by more than 1e-2."""
    errors = gradients.gradients(check("gradients", seed=seed))["result"]
    right = {"lemma1", "prop1_outside", "prop1_logits", "prop2", "prop3", "prop4"}
    assert max(errors[name] for name in right) < 1e-12
    assert min(value for name, value in errors.items() if name not in right) > 1e-2
    assert len(errors) == 14 and errors["prop1_outside"] == errors["prop1_logits"] == 0


def test_the_check_of_proposition_1_sees_a_method_that_reads_rows_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method whose clients add the mean of all structure embeddings fails the check of Proposition 1."""
    plain = network.client_rows

    def leaky(fed: Any, got: Any) -> Any:
        rows = plain(fed, got)

        class Leaky:
            def __matmul__(self, g: torch.Tensor) -> torch.Tensor:
                z = rows @ g
                return z + z.mean(0)

        return Leaky()

    assert gradients.proposition1(0)["prop1_outside"] == 0
    monkeypatch.setattr(network, "client_rows", leaky)
    assert gradients.proposition1(0)["prop1_outside"] > 1e-6


@pytest.mark.parametrize("mutant", ["features", "labels", "edges"])
def test_the_check_of_proposition_1_sees_what_others_hold(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that adds a mean over all clients, of features, labels or neighbours, fails both parts of the check."""
    parts = FedStruct.parts

    def leaky(self: FedStruct, weights: Any, fed: Any, state: Any) -> tuple[torch.Tensor, torch.Tensor]:
        h, z = parts(self, weights, fed, state)
        if mutant == "features":
            return h * (1 + fed.x.mean()), z
        if mutant == "labels":
            return h * (1 + fed.batch.y.double().mean()), z
        return h * (1 + fed.sources[0].data.edge_index.shape[1]), z

    monkeypatch.setattr(FedStruct, "parts", leaky)
    found = gradients.proposition1(0)
    assert found["prop1_outside"] > 1e-6 and found["prop1_logits"] > 1e-6


@pytest.mark.parametrize("call", [0, 5, 30])
def test_a_difference_that_is_nan_is_told(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One comparison among many is NaN, and so is the number of its check."""
    gap, calls = gradients.gap, itertools.count()
    monkeypatch.setattr(gradients, "gap", lambda a, b: math.nan if next(calls) == call else gap(a, b))
    assert sum(math.isnan(value) for value in gradients.gradients(check("gradients"))["result"].values()) == 1


@pytest.mark.parametrize("name", ["prediction", "gradient"])
def test_sums_that_differ_by_nan_are_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose predictions or gradients are NaN decides the check of shared sums."""
    shared = protocol.aggregate_round

    def broken(*given: Any) -> Any:
        predictions, sums = shared(*given)
        if name == "prediction":
            predictions[2] = math.nan * predictions[2]
        return predictions, {key: sums[key] * (1 if name == "prediction" else math.nan) for key in sums}

    assert exchange.aggregates(check("aggregates"))["result"][f"{name}_control"] > 1e-3
    monkeypatch.setattr(protocol, "aggregate_round", broken)
    found = exchange.aggregates(check("aggregates"))["result"]
    assert math.isnan(found[name]) and math.isnan(found[f"{name}_control"])


def test_a_weight_that_is_nan_is_the_largest_difference() -> None:
    """The second of three weights differs by NaN, and no other one hides it."""
    ones = dict.fromkeys("abc", torch.ones(2))
    assert algorithms._largest(ones, ones) == 0
    assert math.isnan(algorithms._largest(ones, {**ones, "b": math.nan * torch.ones(2)}))


@pytest.mark.parametrize("prune", [0, 3])
def test_powers_without_a_client_differ(prune: int, small: None) -> None:
    """The literal blocks equal the form used in training, and not without one client's blocks at the others."""
    run = check("powers", prune=prune, structure_depth=3).replace(dataset="Cora~standin", clients=4)
    errors = exchange.powers(run.replace(options={**run.options, "budget": "blocks"}))["result"]
    assert errors["difference"] < 1e-12 and errors["difference_control"] > 1e-3
    if prune == 0:
        assert errors["full_difference"] < 1e-12 and errors["full_difference_control"] > 1e-3


def test_proposition_4_as_printed_holds_for_one_client_alone() -> None:
    """The printed sums run over all labelled nodes, which are the client's only if there is one client."""
    at = gradients.Setting(0)
    at.parts = (torch.arange(setup.NODES),)
    of_g, of_f = at.jacobians()
    made = gradients.proposition4(at, at.labelled(0), of_g, of_f)
    automatic = at.automatic(gradients.WEIGHTS, 0, "layer")
    assert max(float((a - b).abs().max()) for a, b in zip(made, automatic)) < 1e-11


def test_the_filter_needs_the_inverse() -> None:
    """The filter holds with U^-1 to 1e-11; with U^T as printed only for the symmetric matrix (FS-I1)."""
    found = gradients.polynomial_filter(check("filter"))["result"]
    assert found["inverse"] < 1e-11 and found["symmetric"] < 1e-11
    assert found["transpose"] > 0.1 and found["orthogonality"] > 0.01


@pytest.mark.parametrize(
    ("options", "prevented", "recovered"),
    [
        ({"observers": 8, "unknowns": 12}, True, 0.0),
        ({"observers": 12, "unknowns": 12}, False, 1.0),
        ({"observers": 20, "unknowns": 12}, False, 1.0),
        ({"observers": 12, "unknowns": 12, "head": "mlp"}, True, 0.0),
        ({"observers": 20, "unknowns": 12, "head": "mlp"}, False, 0.0),  # 60 equations and unknowns, rank 36
        ({"observers": 12, "unknowns": 12, "head": "mlp", "queries": 2}, True, 1.0),  # two rounds suffice
    ],
)
def test_counting_equations(options: dict[str, Any], prevented: bool, recovered: float) -> None:
    """The rank decides; the text's condition is neither necessary nor sufficient with g or several rounds (FS-I5)."""
    result = gradients.counting(check("counting", **options))["result"]
    assert result["prevented"] is prevented and result["recovered"] == recovered
    assert (result["nullity"] == 0) == (recovered == 1.0) and (result["error"] < 1e-9) == (recovered == 1.0)
    assert result["rank"] + result["nullity"] == result["unknowns"]


def test_colluding_clients_have_the_labelled_nodes_of_all_but_one(small: None) -> None:
    """Every count equals one by a plain loop, for all other clients together and for each of them (FS-I5-graphs)."""
    run = check("colluding", structure_depth=2, prune=4).replace(dataset="Cora~standin", clients=4)
    means = gradients.colluding(run)["result"]
    abar = powers.combined(DATA, PARTS, (0.0, 0.0, 1.0), 4)[0].toarray()
    labelled = [[v for v in part.tolist() if DATA.train_mask[v]] for part in PARTS]
    for name in ("together", "alone"):
        pairs = []
        for target, part in enumerate(PARTS):
            others = [v for client, v in enumerate(labelled) if client != target]
            for v1 in [[v for each in others for v in each]] if name == "together" else others:
                seen = [u for u in part.tolist() if any(abar[v, u] > 0 for v in v1)]
                rank = np.linalg.matrix_rank(abar[np.ix_(v1, seen)]) if seen else 0
                pairs.append((len(v1), len(seen), 0 < len(seen) <= len(v1), rank))
        expected = dict(zip(("labelled", "hidden", "broken", "rank"), np.mean(pairs, 0)))
        assert {key: means[name][key] for key in expected} == pytest.approx(expected)
    assert means["together"]["labelled"] == pytest.approx(3 * means["alone"]["labelled"])


@pytest.mark.parametrize(
    ("weights", "rank", "determined", "broken"),
    [
        ([[0.5, 0.25, 0.0]], 1, 0.0, 0.0),  # one equation for two unknowns; nobody asks for the third
        ([[0.5, 0.25, 0.0], [1 / 3, 1 / 3, 0.0]], 2, 1.0, 1.0),
        ([[0.5, 0.25, 0.0], [1.0, 0.5, 0.0]], 1, 0.0, 1.0),  # the same equation twice
        ([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], 2, 1 / 3, 0.0),
        ([[0.0, 0.0, 0.0]], 0, 0.0, 0.0),
    ],
)
def test_sums_that_determine_nodes(weights: list[list[float]], rank: int, determined: float, broken: float) -> None:
    """A node is determined if some combination of the sums holds no other node, by hand."""
    found = gradients.solvable(np.array(weights))
    assert (found["rank"], found["determined"], found["broken"]) == (rank, pytest.approx(determined), broken)


def test_the_figure_of_combined_matrices(small: None) -> None:
    """Means over cells add up to the mass, and pruning only removes mass (FS-F3)."""
    run = check("combined", structure_depth=3, prune=4, cells=12).replace(dataset="Cora~standin", clients=4)
    result = exchange.combined(run)["result"]
    full, pruned = np.array(result["full"]), np.array(result["pruned"])
    assert full.shape == pruned.shape == (12, 12) and abs(full.sum() * 16 - 48) < 1e-9  # cells of 4 x 4 nodes
    assert (pruned <= full + 1e-12).all() and pruned.sum() < full.sum()
    assert 0 < result["inside_full"] < 1 and result["rank_full"] <= 48 and result["sizes"] == [len(p) for p in PARTS]
    plain = exchange.combined(run.replace(options={**run.options, "ranks": False}))["result"]
    assert plain == {**result, "rank_full": None, "rank_pruned": None}


def test_the_properties_of_the_generators(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Hop2Vec depends on labels; it and Node2Vec tell a cycle's nodes apart; it and Deg are local (FS-T3)."""
    monkeypatch.setattr(properties, "DIMENSION", 54)
    marks = properties.structures(check("structures").replace(dataset="Cora~standin", clients=4))["result"]
    assert {k for k, v in marks.items() if v["task_dependent"]} == {"H2V"}
    assert {k for k, v in marks.items() if v["global"]} == {"H2V", "N2V"}
    assert {k for k, v in marks.items() if v["local"]} == {"H2V", "Deg"}
    assert max(marks, key=lambda k: marks[k]["settings"]) == "N2V" and marks["GDV"]["settings"] == 0
    assert all(v["seconds"] > 0 for v in marks.values())


def test_routes_of_fedgcn(small: None) -> None:
    """Routes are pairs of a node and a client, fewer than cross-client edges; clients of one node reveal edges."""
    counts = properties.fedgcn(check("fedgcn").replace(dataset="Cora~standin", clients=4))["result"]
    owner = {int(v): c for c, part in enumerate(PARTS) for v in part}
    pairs = [(u, v) for u, v in DATA.edge_index.T.tolist() if owner[u] != owner[v]]
    assert counts["cross_client_edges"] == len(pairs) and counts["edges"] == DATA.edge_index.shape[1]
    assert counts["routes"] == len({(u, owner[v]) for u, v in pairs}) < len(pairs)
    assert counts["named"] == sum(owner[v] == 0 for _, v in pairs) / len(pairs)


def test_large_graphs_need_pruning(monkeypatch: pytest.MonkeyPatch) -> None:
    """No full power is computed of a graph above the limit."""
    monkeypatch.setattr(tasks, "graph", lambda run: DATA)
    monkeypatch.setattr(partition, "divide", lambda *_: PARTS)
    monkeypatch.setattr(exchange, "DENSE", 40)
    run = check("powers", prune=0).replace(dataset="Cora~standin", clients=4)
    with pytest.raises(ArgumentError, match="prune must be positive"):
        exchange.powers(run)
    some = exchange.powers(run.replace(options={"prune": 3}))["result"]
    assert some["relative_error"] is None and some["difference"] < 1e-14


@pytest.mark.parametrize("structure", ["Deg", "H2V"])
@pytest.mark.parametrize("graph", ["unknown", "known"])
def test_the_boxes_are_the_method(structure: str, graph: str) -> None:
    """Theta, S and predictions agree to 1e-12 after four rounds, and not without one client's gradient."""
    run = check("algorithm", structure=structure, graph=graph, rounds=4)
    errors = algorithms.algorithm(run)["result"]
    assert max(errors["weights"], errors["predictions"], errors["structure"] or 0) < 1e-12
    assert (errors["structure"] is None) == (structure == "Deg")
    assert errors["moved"] > 0.05 and errors["one_step_control"] > 1e-3
