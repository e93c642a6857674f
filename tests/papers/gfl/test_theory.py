"""The identities, the lemma's measurements and the theorem of GFL, with controls that must fail."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import MLP
from fedrepro.papers.gfl import theory
from fedrepro.papers.gfl.clients import FIRST, SECOND
from fedrepro.papers.gfl.method import GFLAPPNP
from fedrepro.papers.gfl.theory import central_loss, federation
from fedrepro.runs.run import Run


def check(function: Any, dataset: str = "csbm-DNC", seed: int = 0, **options: object) -> dict[str, Any]:
    """Return the result of a check."""
    run = Run("check", "gfl", "gfl-rate", dataset=dataset, seed=seed, options=options)
    result: dict[str, Any] = function(run)["result"]
    return result


def test_identities_hold() -> None:
    """Identities hold to machine precision, and the printed sign points the other way (GFL-I1 to I3, I6, GFL-Q3)."""
    split = check(theory.gradient_split)
    assert split["relative_error"] < 1e-10 and split["printed_cosine"] == pytest.approx(-1)
    for result in (check(theory.one_local_step, rounds=3), check(theory.identity_aggregator, "csbm-n10x40")):
        assert result["largest_difference"] < 1e-10 and result["control"] > 1e-4
    assert check(theory.weights)["truncated"]["sum"] == pytest.approx(0.686, abs=1e-3)


def test_weights_that_are_nan_are_told() -> None:
    """The largest difference of two layers is NaN if that of the second one is."""
    ones = torch.ones(1, 2, 2)
    assert theory.largest_difference(State({FIRST: ones, SECOND: ones}, {}), [ones[0], ones[0]]) == 0
    assert math.isnan(theory.largest_difference(State({FIRST: ones, SECOND: ones * math.nan}, {}), [ones[0], ones[0]]))


def test_a_curvature_or_a_constant_that_is_nan_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One NaN among two curvatures makes the condition NaN, and one among the updates the constant of Lemma A.1."""
    norms, calls = theory.jacobian_norms, itertools.count()
    monkeypatch.setattr(theory, "smoothness", lambda *_: (1.0, math.nan)[next(calls)])
    options = {"updates": 10, "local_epochs": 5, "lr": 0.4, "error": 0, "batch": 5}
    assert math.isnan(check(theory.rate, "csbm-n10x40", **options)["condition"])
    monkeypatch.setattr(theory, "jacobian_norms", lambda *x: norms(*x) * (math.nan if next(calls) == 3 else 1.0))
    result = check(theory.compensation_error, "csbm-n10x40", local_epochs=4, lr=0.5, rounds=1)
    assert math.isnan(result["rho_h"]) and result["Delta"] > 0


def test_curvature_is_that_of_the_whole_hessian() -> None:
    """Power iteration gives the largest eigenvalue of two clients' Hessians by automatic differentiation."""
    fed, state = GFLAPPNP(model=MLP(100, 2, 3), share="train").start(federation("csbm-n10x40", 0))
    graph, samples = state.more.graphs[0], state.more.samples
    first, second = (3 * state.shared[name][0] for name in (FIRST, SECOND))
    largest = []
    for k in range(2):

        def loss(flat: torch.Tensor, k: int = k) -> torch.Tensor:
            return central_loss(fed, graph, samples, flat[:300].view(100, 3), flat[300:].view(3, 2))[k]

        whole = torch.autograd.functional.hessian(loss, torch.cat([first.flatten(), second.flatten()]))
        largest.append(float(torch.linalg.eigvalsh(whole).abs().max()))
    curvature = theory.smoothness(fed, graph, samples, first, second, clients=2, steps=300)
    assert curvature == pytest.approx(max(largest), rel=1e-3)


def test_jacobian_norm_is_that_of_automatic_differentiation() -> None:
    """The closed form of rho_h at one sample equals the spectral norm of the whole Jacobian."""
    rng = torch.Generator().manual_seed(0)
    x, first, second = (torch.randn(shape, generator=rng, dtype=torch.float64) for shape in ((1, 5), (5, 4), (4, 3)))

    def h(flat: torch.Tensor) -> torch.Tensor:
        return (F.relu(x @ flat[:20].view(5, 4)) @ flat[20:].view(4, 3))[0]

    whole = torch.autograd.functional.jacobian(h, torch.cat([first.flatten(), second.flatten()]))
    norm = theory.jacobian_norms(x, first[None], second[None])
    assert float(norm) == pytest.approx(float(torch.linalg.matrix_norm(whole, 2)))


def test_the_lemma_leaves_out_what_a_client_knows_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest error is that over all pairs of different clients by brute force, below that with j = k (GFL-L1)."""
    errors = []

    class Recorded(GFLAPPNP):
        def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> torch.Tensor:
            assert isinstance(fed.x, torch.Tensor)
            local = {name: w.detach() for name, w in weights.items()}
            first, second = self.first_layers(local, fed, state), local[SECOND]
            average = [state.shared[name][0] for name in (FIRST, SECOND)]
            for j in range(10):
                x = fed.x[(fed.batch.batch == j) & fed.batch.train_mask]
                clean = (F.relu(x @ average[0]) @ average[1]).mean(0)
                for k in range(10):
                    moved = (F.relu(x @ first[k]) @ second[k]).mean(0)
                    errors.append((j, k, float((moved - clean).square().sum())))
            return super().local_loss(weights, fed, state, t)

    monkeypatch.setattr(theory, "GFLAPPNP", Recorded)
    measured = check(theory.compensation_error, "csbm-n10x40", local_epochs=4, lr=0.5, rounds=2)["largest_error"]
    assert measured == pytest.approx(max(error for j, k, error in errors if j != k), rel=1e-9)
    assert measured < max(error for _, _, error in errors)


def test_descent_stays_below_the_first_term_and_climbing_does_not() -> None:
    """Small steps have a mean of about half the first term of Theorem 4.1; the printed sign exceeds its maximum."""
    options = {"updates": 300, "local_epochs": 5, "lr": 0.4, "error": 0, "batch": 5}
    down = check(theory.rate, "csbm-n40", **options)
    assert 0.4 < down["mean"] / down["first_term"] < 0.6 and down["condition"] < 1
    # Theorem 4.1 asks for I eta^2 < 1 / (13 rho_f^2).
    assert down["condition"] == pytest.approx(5 * 0.4**2 / (1 / (13 * down["rho_f"] ** 2)))
    up = check(theory.rate, "csbm-n40", **options, ascend=True)
    assert up["first_term"] == 0 and up["mean"] > 2 * up["loss_at_start"] / (up["eta"] * 300)
