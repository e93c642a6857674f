"""Feras's identities, lemmas and theorems: every row and its control, and counterexamples by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from fedrepro import registry
from fedrepro.data import datasets
from fedrepro.errors import ArgumentError
from fedrepro.papers.feras.theory import convergence, identities, looser, rates
from fedrepro.papers.feras.theory import model as theory
from fedrepro.runs.run import Run

CHECKS = {
    "feras-identities": {},
    "feras-contraction": {"trials": 60},
    "feras-rate": {},
    "feras-looser": {"trials": 400},
}


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """Return the result of every check without data, by its name."""
    return {
        name: registry.load("check", name)(Run("check", "feras", name, options=options))["result"]
        for name, options in CHECKS.items()
    }


# These rows are false as printed; all others hold.
FALSE = {"FR-I2-printed", "FR-L1-layer1", "FR-Th2", "FR-Th2-ends", "FR-Th2-live", "FR-drift", "FR-Th4-signed"}
FALSE |= {"FR-Th3-printed", "FR-X1-q5-printed", "FR-X1-q10-printed", "FR-X1-between"}


@pytest.mark.parametrize("name", CHECKS)
def test_rows_hold_and_controls_fail(name: str, results: dict[str, dict[str, Any]]) -> None:
    """Each row's verdict is the expected one, and each control is beyond its bound."""
    rows = {row["id"]: row for row in results[name]["checks"]}
    assert len(rows) == len(results[name]["checks"]) >= 4
    for check, row in rows.items():
        if check.endswith("-control"):
            assert row["verdict"] == "fails, as it must", check
        else:
            assert (row["verdict"] == "fails") == (check in FALSE), (check, row["measured"])


def test_all_listed_statements_are_checked(results: dict[str, dict[str, Any]]) -> None:
    """Each exhibit of the theory has a row."""
    ids = [row["id"] for result in results.values() for row in result["checks"]]
    for wanted in ("F1", "A1", "A2", "Th1", "L1", "L2", "Th2", "Th3", "Th4", "C1", "C2", "C3", "I1", "I2", "X1"):
        assert any(check.startswith(f"FR-{wanted}") and not check.endswith("control") for check in ids), wanted
        assert any(check.startswith(f"FR-{wanted}") and check.endswith("control") for check in ids), wanted


def test_another_seed_gives_the_same_verdicts(results: dict[str, dict[str, Any]]) -> None:
    """Another seed changes only the measured numbers."""
    for name in ("feras-contraction", "feras-rate"):
        other = registry.load("check", name)(Run("check", "feras", name, seed=1, options=CHECKS[name]))["result"]
        before = {row["id"]: row["verdict"] for row in results[name]["checks"]}
        assert {row["id"]: row["verdict"] for row in other["checks"]} == before
        assert other["checks"] != results[name]["checks"]


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_lemma_42_fails_by_hand() -> None:
    """For rho_1 = lambda / 2, rho_2 = 0 and eta = 4 / (3 lambda) the constant is 1, not 1/3."""
    lam = 2.0
    m1, m2 = np.array([[1.0]]), np.array([[0.0]])
    eta = theory.allowed(lam, theory.radius(m2))
    assert theory.radius(m1) <= lam / 2 and eta == pytest.approx(4 / (3 * lam))
    assert 1 - eta * lam / 2 == pytest.approx(1 / 3)
    assert theory.lipschitz(m1, eta, lam) == pytest.approx(1.0)
    assert eta * (lam + theory.radius(m1)) == pytest.approx(2)  # the one case in which the step does not contract
    mended = theory.allowed(lam, theory.radius(m1), theory.radius(m2))
    assert theory.lipschitz(m1, mended, lam) <= 1 - mended * lam / 2 + 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_exact_constants_are_reached(seed: int) -> None:
    """No pair of weights moves apart by more than the constant, and one direction moves by exactly the constant."""
    rng = np.random.default_rng(seed)
    m, y, eta, lam = rng.normal(size=(6, 4)), rng.normal(size=6), 0.1, 0.7

    def phi(w: np.ndarray) -> np.ndarray:
        leaf = torch.from_numpy(w).requires_grad_()
        cost = lam / 2 * leaf.square().sum() + 0.5 * (torch.from_numpy(m) @ leaf - torch.from_numpy(y)).square().sum()
        return w - eta * torch.autograd.grad(cost, leaf)[0].numpy()

    constant = theory.lipschitz(m, eta, lam)
    pairs = [(rng.normal(size=4), rng.normal(size=4)) for _ in range(200)]
    ratios = [np.linalg.norm(phi(a) - phi(b)) / np.linalg.norm(a - b) for a, b in pairs]
    values, vectors = np.linalg.eigh(m.T @ m)
    worst = vectors[:, np.abs(1 - eta * lam - eta * values).argmax()]
    assert max(ratios) <= constant + 1e-12
    assert np.linalg.norm(phi(worst) - phi(0 * worst)) == pytest.approx(constant)


def test_the_two_layer_map_has_three_fixed_points(results: dict[str, dict[str, Any]]) -> None:
    """The gradient of c = (w1^2 + w2^2) / 2 + (w1 w2 - 1.2)^2 / 2 is 0 at 0 and at +-(sqrt(0.2), sqrt(0.2))."""
    points = results["feras-contraction"]["fixed_points"]
    assert len(points) == 3 and np.abs(points[1]) == pytest.approx(math.sqrt(0.2))
    for w1, w2 in points:
        assert w1 + (w1 * w2 - 1.2) * w2 == pytest.approx(0) and w2 + (w1 * w2 - 1.2) * w1 == pytest.approx(0)
    # Expansion along (1, 1) at 0: 1 - eta (lambda - y) = 1.2 for eta = 0.1, next to 1 - eta lambda / 2 = 0.95.
    assert convergence.joint_constant(3.0, 1.0, 0.1) == pytest.approx(1.2 / 0.95)
    assert convergence.joint_constant(0.0, 1.0, 0.1) == pytest.approx(0.9 / 0.95)  # without a target it contracts


def test_the_two_layer_counterexample_is_inside_both_conditions(results: dict[str, dict[str, Any]]) -> None:
    """Both rows fail although rho_1 <= lambda/2 and eta <= 4/(2 rho_2 + 3 lambda) hold at the fixed points and on both
    ways to the ends, in both layers. With the former target, 3, the condition on rho_1 fails at the ends.
    """

    def inside(y: float, lam: float, eta: float) -> bool:
        ways = [convergence.scalar_path(y, lam, eta, sign * convergence.START) for sign in (1, -1)]
        w = np.concatenate([*ways, convergence.scalar_fixed_points(y, lam)])
        rho1, rho2 = w[:, 1] ** 2, w[:, 0] ** 2  # M_1 = w2 and M_2 = w1
        return bool((rho1 <= lam / 2).all() and all(eta <= theory.allowed(lam, rho) for rho in rho2))

    assert inside(*convergence.SCALAR) and not inside(3.0, 1.0, 0.1)
    rows = {row["id"]: row for row in results["feras-contraction"]["checks"]}
    assert rows["FR-Th2"]["verdict"] == rows["FR-Th2-ends"]["verdict"] == "fails"
    assert rows["FR-Th2"]["measured"] == pytest.approx(1.02 / 0.95)
    assert rows["FR-Th2-ends"]["measured"] == pytest.approx(2 * math.sqrt(0.4), abs=1e-6)


def test_the_counterexample_of_theorem_46(results: dict[str, dict[str, Any]]) -> None:
    """With features of both signs on a path of three nodes, halving entries of Theta* raises the radius."""
    example = results["feras-looser"]["counterexample"]
    a, x, theta = (np.array(example[name], float) for name in ("a", "x", "theta"))
    degree = np.array([2, 3, 2])
    path = np.eye(3) + np.eye(3, k=1) + np.eye(3, k=-1)
    assert np.allclose(a, path / np.sqrt(np.outer(degree, degree)))
    with_, without = (float(np.sum((a @ np.diag(d) @ a @ x) ** 2)) for d in (theta, np.ones(3)))
    assert (example["with"], example["without"]) == (pytest.approx(with_), pytest.approx(without))
    assert with_ > without and min(x) < 0 and set(theta) <= {1.0, 0.5}
    assert results["feras-looser"]["violations"] > 0
    pairs = results["feras-looser"]["theorem46"]
    assert all(a <= b * (1 + 1e-9) for a, b in zip(pairs["nonnegative"]["with"], pairs["nonnegative"]["without"]))


@pytest.mark.parametrize("seed", range(10))
def test_sharing_never_raises_an_entry_of_m_for_nonnegative_features(seed: int) -> None:
    """No entry of M is larger with sharing, whether sub-graphs are connected or not."""
    rng = np.random.default_rng(seed)
    system = theory.System.random(rng, signed=False, connected=False)
    for n in range(len(system.hosts)):
        assert (system.m(n) <= system.m_without_sharing(n) + 1e-15).all() and (system.m(n) >= 0).all()


def test_random_systems_are_what_they_say() -> None:
    """Sub-graphs are connected if asked, unseen nodes have no feature, and hosts agree on nodes that both see."""
    rng = np.random.default_rng(0)
    system = theory.System.random(rng)
    for host in system.hosts:
        assert (np.linalg.matrix_power((host.a > 0).astype(float), len(host.nodes)) > 0).all()
        assert (host.x[~host.sees] == 0).all() and (np.abs(host.x[host.sees]).sum(1) > 0).all()
    features: dict[int, np.ndarray] = {}
    for host in system.hosts:
        for v, sees, x in zip(host.nodes, host.sees, host.x, strict=True):
            if sees:
                assert np.array_equal(features.setdefault(int(v), x), x)


def test_the_two_layer_map_has_one_end_only_below_lambda() -> None:
    """The ends of the two-layer map are 4 apart for a target of 3 at lambda = 1, and meet for one below lambda."""
    assert convergence.distance_of_ends(3.0, 1.0, 0.1) == pytest.approx(4)
    assert convergence.distance_of_ends(0.5, 1.0, 0.1) < 1e-6


# -- numbers that are not finite --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations([1.0, math.nan, 2.0])))
def test_the_largest_noted_value_is_nan_if_one_is(order: tuple[float, ...]) -> None:
    """NaN stays under its name, wherever it stands, alone or in an array."""
    worst = theory.Largest()
    for value in order:
        worst.note("numbers", value)
    worst.note("array", np.array(order))
    worst.note("other", -1.0)
    assert math.isnan(worst["numbers"]) and math.isnan(worst["array"]) and worst["other"] == 1.0


def test_a_map_that_is_not_finite_gives_no_row_of_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its norm cannot be computed, and the check fails as a run."""
    monkeypatch.setattr(rates, "_mean", lambda maps, q: math.nan * maps[0])
    with pytest.raises(np.linalg.LinAlgError):
        rates._rate_rows(np.random.default_rng(0), 3, [1])


def test_a_radius_or_a_gap_that_is_nan_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One radius among hundreds fails Theorem 4.6, and one tensor among several is the largest gap."""
    radius, calls = looser.radius, itertools.count()
    monkeypatch.setattr(looser, "radius", lambda m: math.nan if next(calls) == 7 else radius(m))
    rows = looser.looser(Run("check", "feras", "feras-looser", options={"trials": 20}))["result"]["checks"]
    assert {row["id"]: row["verdict"] for row in rows}["FR-Th4"] == "fails"
    ones = [torch.ones(2)] * 3
    assert math.isnan(identities.largest_gap(ones, [torch.ones(2), torch.tensor([1.0, math.nan]), torch.ones(2)]))


# -- rates ------------------------------------------------------------------------------------------------------------


def test_rates_are_distances_to_the_fixed_point(results: dict[str, dict[str, Any]]) -> None:
    """Distances fall with every averaging, bounds start at the first distance, and a larger q moves the fixed point."""
    rate = results["feras-rate"]["rate"]
    decay = results["feras-rate"]["eta"] * results["feras-rate"]["lambda"]
    assert set(rate) == {"q1", "q5", "q10"}
    for name, curve in rate.items():
        q = int(name[1:])
        assert curve["iteration"] == list(range(0, 201, q))
        assert curve["bound"] == pytest.approx(
            [curve["distance"][0] * (1 - decay / 2) ** t for t in curve["iteration"]]
        )
        assert all(b <= a for a, b in zip(curve["distance"], curve["distance"][1:]))
    assert rate["q1"]["shift"] == 0 < rate["q5"]["shift"] < rate["q10"]["shift"]


def test_rates_are_bounded_at_the_largest_step_and_not_with_another_matrix() -> None:
    """By hand, one host and one weight: M = 1 at its largest eta moves by exactly -(1 - eta lambda/2), and a matrix of
    twice the radius at this eta leaves the bound after one step and after several.
    """
    one = [np.array([[1.0]])]
    eta, lam = rates.largest_step(one)
    assert eta == pytest.approx(4 / (2 + 3 * lam)) and 0 < lam < 0.1
    bound = 1 - eta * lam / 2
    for q in (1, 5):
        matched, other = (rates._mean(rates._maps(m, eta, lam), q) for m in (one, [np.sqrt(2) * one[0]]))
        assert matched.item() == pytest.approx((-bound) ** q) and abs(other.item()) > bound**q
    with pytest.raises(ArgumentError, match="steps must be at least the largest q, 10"):
        rates.rate(Run("check", "feras", "feras-rate", options={"steps": 9}))


def test_the_checks_of_the_rate_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row of the rate fails if eta is chosen for matrices M of a third of their size."""
    step = rates.largest_step
    monkeypatch.setattr(rates, "largest_step", lambda matrices: step([m / 3 for m in matrices]))
    rows = rates._rate_rows(np.random.default_rng(0), 5, [1, 5, 10])
    assert [row["verdict"] for row in rows] == ["fails", "fails, as it must"] * 3


def test_the_printed_conditions_leave_out_the_radius_of_layer_1() -> None:
    """By hand, one host and one weight: M_1 = 1, lambda = 2 and M_2 = 0 meet both conditions, and the factor of a step
    is 1 in place of 1/3, so that five steps exceed the stated rate by the fifth power of 3.
    """
    lam, eta = 2.0, theory.allowed(2.0, 0.0)
    step, bound = abs(1 - eta * lam - eta), 1 - eta * lam / 2
    assert step == pytest.approx(1) and bound == pytest.approx(1 / 3)
    moved = rates._mean(rates._maps([np.array([[1.0]])], eta, lam), 5)
    assert abs(moved.item()) / bound**5 == pytest.approx(3**5)


def test_hosts_leave_the_fixed_point_between_averages() -> None:
    """By hand, two hosts and one weight: they move to 1 and to -1 and halve the distance at each step, so that they are
    half from their fixed point, 0, after a step from it. With q = 1 or equal hosts the bound holds at every iteration.
    """
    maps, adds, start = [np.array([[0.5]])] * 2, [np.array([0.5]), np.array([-0.5])], np.array([8.0])
    assert rates.fixed_point(maps, adds, 2) == pytest.approx(0)
    # At T = 5 both hosts are where a step from 8 / 2^4 leads: at 3/4 and -1/4. The bound there is 8 / 2^5.
    assert rates.largest_between(maps, adds, 2, start, 5, 0.5) == pytest.approx(2)
    assert rates.largest_between(maps, adds, 1, start, 9, 0.5) == pytest.approx(1)
    assert rates.largest_between(maps, [adds[0]] * 2, 2, start, 9, 0.5) == pytest.approx(1)


def test_the_control_of_theorem_41_turns_its_starts() -> None:
    """An orthogonal map of any draw has one fixed point, and no start comes nearer to it."""
    for seed in range(20):
        rows = convergence.banach(np.random.default_rng(0), np.random.default_rng(seed))
        holds, turned = (row["measured"] for row in rows)
        assert holds < 1e-12 and 10 < turned < 1e5


def test_fixed_points_rest() -> None:
    """The mean of q local steps of each map from a fixed point is that point."""
    rng = np.random.default_rng(0)
    maps = [0.5 * np.eye(3) - 0.1 * (m := rng.normal(size=(3, 3))) @ m.T / 10 for _ in range(3)]
    adds = [rng.normal(size=3) for _ in range(3)]
    for q in (1, 4):
        point = rates.fixed_point(maps, adds, q)
        ends = []
        for t, b in zip(maps, adds, strict=True):
            w = point
            for _ in range(q):
                w = t @ w + b
            ends.append(w)
        assert np.abs(np.mean(ends, 0) - point).max() < 1e-13


# -- the experiments' settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [0, 1])
def test_conditions_at_given_settings(rounds: int) -> None:
    """Both radii equal those of dense matrices, and the first condition holds only with enough weight decay."""
    datasets.register("feras test", lambda: _small())
    where: dict[str, Any] = {
        "dataset": "feras test",
        "split": "60/20/20",
        "partition": "private-public(kappa=0.4)",
        "clients": 3,
    }
    options = {"hidden": 8, "sampler": "full", "coverage": 5.0, "rounds": rounds}
    run = Run("check", "feras", "feras-conditions", options=options, **where)
    result = convergence.conditions(run)["result"]
    verdicts = {row["id"]: row["verdict"] for row in result["checks"]}
    assert verdicts["FR-L1-settings-sum-lambda"] == verdicts["FR-L1-settings-mean-lambda"] == "fails"
    assert result["sum"]["lambda_needed"] == pytest.approx(2 * result["rho1"])
    assert result["mean"]["lambda_needed"] == pytest.approx(2 * result["rho1"] / result["nodes"])
    assert result["sum"]["eta_allowed"] == pytest.approx(2 / result["rho2"])
    decayed = run.replace(options={**options, "weight_decay": 3 * result["rho1"] + 1})
    if not rounds:
        after = {row["id"]: row["verdict"] for row in convergence.conditions(decayed)["result"]["checks"]}
        assert after["FR-L1-settings-sum-lambda"] == "holds"
        rho1, rho2 = _radii(run)
        assert (result["rho1"], result["rho2"]) == (pytest.approx(rho1, rel=1e-4), pytest.approx(rho2, rel=1e-4))


def _small() -> Any:
    from graphs import block_model

    return block_model(40, degree=5, features=5, isolated=0)


def _radii(run: Run) -> tuple[float, float]:
    """Return both radii by dense matrices; every host draws the whole training graph."""
    from fedrepro.engine.nn.models import GCN
    from fedrepro.runs import tasks

    fed = tasks.federation([run])
    data = fed.sources[0].data
    nodes = data.train_mask.nonzero().squeeze(1).numpy()
    adjacency = np.zeros((40, 40))
    adjacency[data.edge_index[1], data.edge_index[0]] = 1
    a = theory.normalized(adjacency[np.ix_(nodes, nodes)])
    w = {name: v[0].double().numpy() for name, v in GCN(5, fed.classes, 8, layers=3).init([run.seed]).items()}
    hosts = []
    for part in fed.sources[0].parts:
        sees = np.isin(nodes, part.numpy())
        x = data.x.double().numpy()[nodes] * sees[:, None]
        hosts.append(theory.Host(nodes, sees, a, x, np.zeros((len(nodes), 8))))
    system = theory.System(tuple(hosts))
    w1, w2 = [w["layer1.weight"]] * len(hosts), w["layer2.weight"]
    m1, m2 = (system.linear(0, layer, w1, w2)[1] for layer in (1, 2))
    return theory.radius(m1), theory.radius(m2)
