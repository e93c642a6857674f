"""FedSheafHN's checks: identities, theorems with their counterexamples, statistics and costs."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from fedsheafhn_checks import SMALL, compute, run
from graphs import gap
from torch import Tensor

from fedrepro.data import datasets, partition
from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import GCNHead
from fedrepro.papers.fedsheafhn import sheaf
from fedrepro.papers.fedsheafhn.exhibits.claims import STATED
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.theory import convergence, generalization, statistics
from fedrepro.papers.fedsheafhn.theory.convergence import Problem
from fedrepro.reporting import checks
from fedrepro.runs import process

pytestmark = pytest.mark.usefixtures("block")


def verdicts(result: dict[str, Any]) -> dict[str, str]:
    """Return the verdicts by ID, after a check that each follows from its row's two numbers."""
    for row in result["checks"]:
        assert (row["verdict"] in (checks.HOLDS, checks.MISSED)) == (row["measured"] <= row["bound"]), row
        assert math.isfinite(row["measured"]) and math.isfinite(row["bound"]), row
    ids = [row["id"] for row in result["checks"]]
    assert len(set(ids)) == len(ids)
    return {row["id"]: row["verdict"] for row in result["checks"]}


def controls(outcomes: dict[str, str]) -> set[str]:
    assert checks.MISSED not in outcomes.values()
    return {name for name, verdict in outcomes.items() if verdict == checks.CAUGHT}


# -- identities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_identities_hold_to_machine_precision(seed: int) -> None:
    """Every identity holds within 1e-12, and every control is far from it."""
    result = compute("check", "FedSheafHN-identities", seed)
    outcomes = verdicts(result)
    assert controls(outcomes) == {"SH-I1-control", "SH-I2-control", "SH-I3-control"}
    assert set(outcomes.values()) == {"holds", "fails, as it must"}
    for row in result["checks"]:
        assert row["measured"] > 0.1 if row["id"].endswith("control") else row["measured"] < 1e-12, row


def test_identities_fail_for_a_wrong_laplacian(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks notice a Laplacian whose blocks off the diagonal have the wrong sign."""
    right = sheaf.laplacian

    def wrong(*given: Any) -> Tensor:
        blocks = right(*given)
        every = torch.arange(len(blocks))
        own = torch.zeros_like(blocks)
        own[every, every] = blocks[every, every]
        return 2 * own - blocks

    monkeypatch.setattr(sheaf, "laplacian", wrong)
    assert verdicts(compute("check", "FedSheafHN-identities"))["SH-I1-general"] == "fails"


# -- convergence ------------------------------------------------------------------------------------------------------


def test_theorem_1_and_lemmas() -> None:
    """The checks find which statements hold and which fail as printed, and the bound keeps its floor."""
    result = compute("check", "FedSheafHN-convergence", rounds=256)
    outcomes = verdicts(result)
    printed = {"SH-L2-printed", "SH-L4-printed", "SH-Th1-printed"}
    assert controls(outcomes) == {f"SH-{name}-control" for name in ("L1", "L3", "L3-drift", "Th1-noise", "Th1-start")}
    first = next(row for row in result["checks"] if row["id"] == "SH-Th1-start")
    assert first["measured"] > 0.4 * first["bound"]  # met within a factor of 2.5, so that a smaller bound would show
    assert {name for name, verdict in outcomes.items() if verdict == "fails"} == {"SH-Th1-floor"} | printed
    curve = result["curve"]
    assert curve["T"] == [16, 64, 256]
    assert curve["measured"] == sorted(curve["measured"], reverse=True)
    assert all(m <= b for m, b in zip(curve["measured"], curve["bound"]))
    c = result["constants"]
    assert curve["floor"] == [pytest.approx((c["L"] + 2) * c["b1"] ** 2 / 5)] * 3


def test_the_printed_left_side_of_lemma_2_is_the_clients_moves() -> None:
    """After one step without noise the ratio is that of |J^T grad f|^2 to 3 (L7 b3 b2)^2, whatever beta.

    The form without the bracket keeps a part that does not depend on beta. The closed one holds where L7 is one.
    """
    problem = Problem(2, a=1.5, k=0.0, mu=0.05, sigma=0.0, local=2)
    ratios = [convergence.lemma2(problem, beta, printed=True)[0] for beta in (0.05, 0.2)]
    worst = 0.0
    for state in range(8):
        eta = 2 * random.normal((problem.size,), "state", problem.seed, state)
        by_eta, _ = problem.gradients(eta, torch.zeros(problem.clients, problem.size, dtype=torch.float64))
        worst = max(worst, float(by_eta.square().sum(-1).max()))
    c = problem.constants
    assert ratios == pytest.approx([worst / (3 * (c["L7"] * c["b3"] * c["b2"]) ** 2)] * 2)
    assert ratios[0] > 1 > convergence.lemma2(Problem(), 0.05, printed=True)[0]


def autodiff(problem: Problem, eta: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Differentiate the printed objective automatically."""
    leaves = eta.clone().requires_grad_(), h.clone().requires_grad_()
    w = torch.stack([a @ torch.sin(problem.k * leaves[0]) / problem.k for a in problem.jacobians])
    loss = problem.mu * (torch.sqrt(1 + (w - problem.centres[0]) ** 2) - 1).sum(1).mean()
    loss = loss + problem.nu * (torch.sqrt(1 + (leaves[1] - problem.centres[1]) ** 2) - 1).sum(1).mean()
    assert float(loss.detach()) == pytest.approx(float(problem.loss(eta, h)))
    one, two = torch.autograd.grad(loss, leaves)
    return one, two


def test_the_problem_is_what_it_says() -> None:
    """Gradients equal automatic ones, and the constants are reached far away or at the minima."""
    problem = Problem(3, a=1.7, k=0.8, mu=0.9, nu=0.6)
    eta, h = random.normal((3,), "eta", 0), random.normal((4, 3), "h", 0)
    one, two = autodiff(problem, eta, h)
    by_eta, by_head = problem.gradients(eta, h)
    assert gap(by_eta.mean(0), one) < 1e-12 and gap(by_head / 4, two) < 1e-12
    assert float(problem.squared_norm(eta, h)) == pytest.approx(float(one.square().sum() + two.square().sum()))
    c = problem.constants
    assert torch.linalg.matrix_norm(problem.jacobians, 2).tolist() == pytest.approx([c["b3"]] * 4)
    far = torch.full((4, 3), 1e6, dtype=torch.float64)
    assert problem.slope(far).norm(dim=1).tolist() == pytest.approx([c["b2"]] * 4)
    assert problem.head_slope(far).norm(dim=1).tolist() == pytest.approx([c["b1"]] * 4)
    step = problem.slope(problem.centres[0] + 1e-6) / 1e-6
    assert float(step.max()) == pytest.approx(c["L7"])


def test_a_round_is_the_algorithm() -> None:
    """A round equals local steps client by client and one step of the server with the first Jacobian."""
    problem, beta = Problem(1), 0.07
    eta, h = random.normal((2, 3), "eta", 0), random.normal((2, 4, 3), "h", 0)
    noise = problem.noise(2, "test")
    after, heads, sums = convergence.train_round(problem, eta, h, beta, noise)
    for r in range(2):
        move = torch.zeros(3, dtype=torch.float64)
        for i in range(4):
            leaf = eta[r].clone().requires_grad_()
            w0 = problem.jacobians[i] @ torch.sin(problem.k * leaf) / problem.k
            w, head, total = w0.detach(), h[r, i], torch.zeros(3, dtype=torch.float64)
            for step in range(problem.local):
                assert gap(sums[step][r, i], total) < 1e-12
                x = w - problem.centres[0][i]
                g = problem.mu * x / torch.sqrt(1 + x * x) + noise[step, r, i]
                w, total = w - beta * g, total + g
                y = head - problem.centres[1][i]
                head = head - beta * problem.nu * y / torch.sqrt(1 + y * y)
            assert gap(heads[r, i], head) < 1e-12
            move += torch.autograd.grad((w0 * total).sum(), leaf)[0] / 4
        assert gap(after[r], eta[r] - beta * move) < 1e-12


def test_noise_has_the_stated_variance() -> None:
    """The noise has mean zero and mean squared norm sigma^2."""
    noise = Problem(sigma=0.3).noise(4000, "test")
    assert float(noise.square().sum(-1).mean()) == pytest.approx(0.09, rel=0.03)
    assert float(noise.mean().abs()) < 0.005


def test_the_bound_is_eq_16() -> None:
    """The bound equals its four terms written out, and without heads it has no floor."""
    problem = replace(Problem(), a=2.0, sigma=0.7)
    c = problem.constants
    first, n, steps, rounds = 1.3, 4, 5, 100
    second = c["L"] * c["L1"] * (16 * 0.49 + 8 * steps * c["L_G^2"]) / (steps * math.sqrt(n * rounds))
    third = 16 * n * c["L7"] ** 2 * c["b3"] ** 2 * c["b2"] ** 2 / rounds
    fourth = (c["L"] + 2) / steps * c["b1"] ** 2
    found = convergence.bound(problem, rounds, first)
    assert found == pytest.approx(first / 20 + second + third + fourth)
    assert convergence.floor(replace(problem, nu=0.0)) == 0


@pytest.mark.parametrize("call", range(3))
def test_a_state_whose_numbers_are_nan_breaks_the_lemmas(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of eight states is enough for Lemmas 2 to 4."""
    train, calls = convergence.train_round, itertools.count()

    def broken(*given: Any) -> Any:
        eta, h, sums = train(*given)
        factor = math.nan if next(calls) % 8 == call else 1.0
        return factor * eta, factor * h, [factor * total for total in sums]

    monkeypatch.setattr(convergence, "train_round", broken)
    assert math.isnan(convergence.lemma2(Problem(), 0.05, printed=False)[0])
    assert all(map(math.isnan, convergence.lemmas34(Problem(), 0.05).values()))


def test_a_gap_that_is_nan_breaks_theorem_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pair of N and M whose gap is NaN fails every row that takes the largest of several gaps."""
    for name, broken in (("largest_gap", ("SH-Th2", "SH-Th2-monotone")), ("trained_gap", ("SH-Th2-trained",))):
        with monkeypatch.context() as patch:
            right = getattr(generalization, name)
            patch.setattr(generalization, name, lambda n, m, *a, f=right: math.nan if n == 4 else f(n, m, *a))
            rows = compute("check", "FedSheafHN-generalization", most_clients=16, samples=100)["checks"]
        outcomes = {row["id"]: row["verdict"] for row in rows}
        assert {outcomes[id_] for id_ in broken} == {"fails"}, outcomes
    assert outcomes["SH-Th2-optimism"] == "fails"


# -- generalization ---------------------------------------------------------------------------------------------------


def test_theorem_2() -> None:
    """The gap shrinks with N and M as the theorem says, but that of only heads exceeds the printed bound."""
    result = compute("check", "FedSheafHN-generalization", most_clients=16, samples=100)
    outcomes = verdicts(result)
    assert controls(outcomes) == {"SH-Th2-control", "SH-Th2-heads-control"}
    failed = {name for name, verdict in outcomes.items() if verdict == "fails"}
    assert failed - {"SH-Th2-printed-64"} == {"SH-Th2-printed-128", "SH-Th2-printed-256"}
    assert list(zip(result["gap"]["N"], result["gap"]["M"])) == [(n, m) for n in (1, 4, 16) for m in (50, 100)]
    assert {name for name in STATED if name.startswith("SH-Th2")} <= set(
        outcomes
    )  # a row of another name would not count


def test_heads_exceed_the_printed_bound_from_some_number_of_clients_on() -> None:
    """The gap itself is compared with xi: it is below it with few clients, and above it with many."""
    checked = {row["id"]: row for row in generalization._check_heads(0, 200)}
    for n in generalization.MANY:
        one = checked[f"SH-Th2-printed-{n}"]
        gap_, xi = generalization.largest_gap(n, 200, 0, 0, 8), generalization.bound(n, 200, 8, 0)
        assert one["measured"] == pytest.approx(gap_ / xi) and one["bound"] == 1
        assert one["verdict"] == ("holds" if gap_ <= xi else "fails") and f"N = {n}" in one["statement"]
    assert [checked[f"SH-Th2-printed-{n}"]["verdict"] for n in generalization.MANY] == ["holds", "fails", "fails"]


@pytest.mark.parametrize("which", ["shared", "own"])
def test_heads_that_are_what_another_count_says_change_the_verdicts(
    which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads that are shared keep the printed bound; heads whose samples are all one exceed the corrected bound too."""
    right = generalization.largest_gap

    def other(n: int, m: int, seed: int, shared: int, own: int) -> float:
        return right(n, m, seed, own, shared) if which == "shared" else right(n, m if shared else 1, seed, shared, own)

    monkeypatch.setattr(generalization, "largest_gap", other)
    outcomes = {row["id"]: row["verdict"] for row in generalization._check_heads(0, 100)}
    failed = {name for name, verdict in outcomes.items() if verdict == "fails"}
    printed = {f"SH-Th2-printed-{n}" for n in generalization.MANY}
    if which == "shared":  # and the parameters that stand in their place are each client's own
        assert failed == {"SH-Th2-shared"} and outcomes["SH-Th2-heads"] == "holds"
        assert outcomes["SH-Th2-heads-control"] == checks.MISSED
    else:
        assert failed == printed | {"SH-Th2-heads"}


def test_a_head_whose_gap_is_nan_passes_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """One number of clients whose gap is NaN fails its printed row, both rows over all N, and misses the control."""
    right = generalization.largest_gap
    monkeypatch.setattr(generalization, "largest_gap", lambda n, *a: math.nan if n == 64 else right(n, *a))
    outcomes = {row["id"]: row["verdict"] for row in generalization._check_heads(0, 50)}
    assert {outcomes[f"SH-Th2-{name}"] for name in ("printed-64", "shared", "heads")} == {"fails"}
    assert outcomes["SH-Th2-heads-control"] == checks.MISSED


def test_largest_gap_is_reached_and_never_passed() -> None:
    """No random parameters pass the closed form of the largest gap, and the best ones reach it."""
    clients, samples = 3, 20
    e = generalization._means_on_sphere(clients, samples, 4, 1, 0, "shared")[0] / math.sqrt(2)
    personal = generalization._means_on_sphere(clients, samples, 2, 1, 0, "own")[0] / math.sqrt(2)
    largest = generalization.largest_gap(clients, samples, 0, shared=4, personal=2, repeats=1)
    rng = np.random.default_rng(0)
    phi, u = rng.normal(size=(5000, 4)), rng.normal(size=(5000, clients, 2))
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    u /= np.linalg.norm(u, axis=2, keepdims=True)
    gaps = np.abs(phi @ e.mean(0) + np.einsum("knd,nd->kn", u, personal).mean(1))
    assert gaps.max() <= largest
    best = e.mean(0) @ e.mean(0) / np.linalg.norm(e.mean(0)) + np.linalg.norm(personal, axis=1).mean()
    assert best == pytest.approx(largest)


def test_bound_solves_its_equation() -> None:
    """The bound xi solves its equation and never exceeds sqrt(2) R."""
    for n, m in ((1, 500), (8, 60), (64, 400)):
        xi = generalization.bound(n, m)
        right = (generalization.OWN + generalization.SHARED / n) * math.log(3 / xi) + math.log(10) / n
        assert m * xi**2 == pytest.approx(right)
    assert generalization.bound(1, 1) == pytest.approx(math.sqrt(2))
    assert generalization.largest_gap(1, 1, 0) == pytest.approx(math.sqrt(2))  # one sample: attained


def test_trained_gap_has_the_known_mean() -> None:
    """With one client the mean gap is p/(M - p - 1) + p/M for p parameters and normal designs."""
    p, m = generalization.OWN + generalization.SHARED, 200
    found = generalization.trained_gap(1, m, 0, repeats=300)
    assert found == pytest.approx(p / (m - p - 1) + p / m, rel=0.1)


# -- statistics -------------------------------------------------------------------------------------------------------


def test_statistics() -> None:
    """The statistics equal networkx's and a plain loop over pairs of clients, for overlapping parts too."""
    data = datasets.assemble("block", "", "40/30/30", 0)
    for spec, clients in (("random(equal=True)", 6), ("overlapping-metis(parts=2)", 10), ("single", 1)):
        given = run("check", "FedSheafHN-statistics").replace(partition=spec, clients=clients)
        result = statistics.statistics(given)["result"]
        parts = partition.partition(data, spec, clients, 0)
        whole = networkx.Graph(list(map(tuple, data.edge_index.T.tolist())))
        whole.add_nodes_from(range(60))
        graphs = [whole.subgraph(part.tolist()) for part in parts]
        assert result["nodes"] == pytest.approx(np.mean([len(g) for g in graphs]))
        assert result["edges"] == pytest.approx(np.mean([2 * g.number_of_edges() for g in graphs]))
        assert result["clustering"] == pytest.approx(np.mean([networkx.average_clustering(g) for g in graphs]))
        assert (result["clients"], result["classes"]) == (clients, 3)
        guesses = []
        for part in parts:
            train, test = ([int(data.y[v]) for v in part if data[f"{split}_mask"][v]] for split in ("train", "test"))
            guess = max(range(3), key=train.count)
            guesses += [test.count(guess) / len(test)] if test else []
        assert result["majority"] == pytest.approx(np.mean(guesses))
        labels = [torch.bincount(data.y[part], minlength=3).double().numpy() for part in parts]
        shares = [x / x.sum() for x in labels]
        values = [jensen_shannon(p, q) for i, p in enumerate(shares) for q in shares[:i]]
        if clients == 1:
            assert result["heterogeneity"] is None and result["divergence_base2"] is None
            continue
        assert result["divergence"] == pytest.approx(np.median(values))
        assert result["divergence_base2"] == pytest.approx(np.median(values) / math.log(2))
        assert result["heterogeneity"] == pytest.approx(np.median(np.sqrt(values)))
        assert result["heterogeneity_base2"] == pytest.approx(np.median(np.sqrt(values)) / math.sqrt(math.log(2)))


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    def entropy(x: np.ndarray) -> float:
        return float(-sum(v * math.log(v) for v in x if v > 0))

    return max(0.0, entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2)


def test_clustering_of_single_nodes() -> None:
    """Coefficients equal networkx's with a hub, repeated and directed edges, and self-loops."""
    rng = np.random.default_rng(0)
    ends = np.concatenate([rng.integers(30, size=(2, 120)), [[0] * 29, range(1, 30)], [[3, 4], [3, 4]]], axis=1)
    graph = networkx.Graph([(a, b) for a, b in ends.T.tolist() if a != b])
    expected = [networkx.clustering(graph, node) for node in range(30)]
    assert statistics.clustering(ends, 32).tolist() == pytest.approx([*expected, 0.0, 0.0])


# -- costs ------------------------------------------------------------------------------------------------------------


def test_server_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's seconds are part of a round's, its weights are counted, and timing changes no training."""
    monkeypatch.setattr(process, "peak_mebibytes", lambda work, *arguments: (work(*arguments), 64.0)[1])
    result = compute("bench", "FedSheafHN-server", rounds=2, **SMALL)
    timing = result["timing"]
    assert 0 < timing["server_seconds"] < timing["round_seconds"]
    assert timing["peak_mebibytes"] == 64
    method = FedSheafHN(model=GCNHead(7, 3, 6), hyper_hidden=8, channels=4, steps=2)
    data = datasets.assemble("block", "", "40/30/30", 0)
    fed = Federation.of(data, partition.partition(data, "random(equal=True)", 6, 0), 0)
    weights = method.start(fed)[1].more.servers[0].weights
    assert result["server_scalars"] == sum(w.numel() for w in weights.values())
    average = compute("bench", "FedSheafHN-server", of="FedAvg", rounds=2, memory=False, model="GCNHead", hidden=6)
    assert "peak_mebibytes" not in average["timing"]
    assert average["server_scalars"] == sum(w.numel() for w in GCNHead(7, 3, 6).init([0]).values())
    assert average["timing"]["server_seconds"] < average["timing"]["round_seconds"]
