"""Inversion of Feras's shared embeddings: exact with enough equations, and not with too few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from graphs import block_model
from torch_geometric.data import Data

from fedrepro import registry
from fedrepro.data import datasets
from fedrepro.data.partition import partition
from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.models import GCN
from fedrepro.errors import ArgumentError
from fedrepro.papers.feras import attack as attacks
from fedrepro.runs.run import Run

FEATURES = 6


def small() -> Data:
    return block_model(60, degree=5, features=FEATURES, isolated=0)


@pytest.fixture(autouse=True)
def graph() -> None:
    datasets.register("feras attack", small)


def attack(kappa: float = 0.4, **options: Any) -> dict[str, float]:
    where: dict[str, Any] = {"split": "60/20/20", "partition": f"private-public(kappa={kappa})", "clients": 3}
    run = Run("attack", "feras", "feras-inversion", "feras attack", options=options, **where)
    found: dict[str, float] = registry.load("attack", "feras-inversion")(run)["result"]
    return found


def test_wide_embeddings_give_the_features_away() -> None:
    """Embeddings eight times as wide as the features give every row away in one message, but not in the control."""
    found = attack(hidden=8 * FEATURES)
    assert found["recovered"] == 1 and found["cosine"] > 1 - 1e-9 and found["relative_error"] < 1e-9
    assert found["control_cosine"] < 0.9 and found["equations_per_feature"] > 2 and found["rows"] > 15


def test_width_observations_and_depth() -> None:
    """Narrow embeddings hide the features, many iterations of them do not, and a second convolution hides more."""
    narrow, more = attack(hidden=4), attack(hidden=4, observations=8)
    assert narrow["recovered"] == 0 and narrow["equations_per_feature"] < 1
    assert more["cosine"] > narrow["cosine"] + 0.1 and more["equations_per_feature"] > narrow["equations_per_feature"]
    deep = attack(hidden=8 * FEATURES, depth=2, steps=200)
    shallow = attack(hidden=8 * FEATURES)
    assert deep["recovered"] < 0.5 < shallow["recovered"] and deep["cosine"] > deep["control_cosine"] + 0.2


def test_kappa_decides_what_is_sent() -> None:
    """A host that sees fewer nodes sends fewer rows."""
    few, many = attack(kappa=0.6, hidden=16), attack(kappa=0.3, hidden=16)
    assert few["rows"] < many["rows"] and few["kappa"] == pytest.approx(0.6, abs=0.02)


def overheard(seed: int = 0, observations: int = 1, depth: int = 1) -> tuple[list[attacks.Seen], Data, torch.Tensor]:
    run = Run("attack", "feras", "feras-inversion", "feras attack", seed=seed)
    data = attacks.neighbourhood(datasets.assemble("feras attack", "", "60/20/20", seed), run, 0)
    parts = partition(data, "private-public(kappa=0.4)", 3, seed)
    fed = Federation.of(data, parts, seed, dtype=torch.float64)
    net = GCN(FEATURES, 3, 48, layers=depth + 2)
    return attacks.overheard(net, fed, depth, observations, "rw"), data, parts[0]


def test_messages_are_what_the_host_computes() -> None:
    """Each row is relu(A x W + b) of the host's features at nodes that it sees, with weights that change."""
    seen, data, part = overheard(observations=3)
    assert len(seen) == 3
    for each in seen:
        assert each.sees.tolist() == torch.isin(each.nodes, part).tolist()
        x = data.x.double()[each.nodes] * each.sees[:, None]
        h = torch.relu(each.a @ x @ each.weights["layer1.weight"] + each.weights["layer1.bias"])
        assert float((h[each.sees] - each.h).abs().max()) < 1e-12
    assert float((seen[0].weights["layer1.weight"] - seen[2].weights["layer1.weight"]).abs().max()) > 1e-4


def test_the_attack_reads_the_message_and_nothing_else() -> None:
    """A message computed from other features gives those features, and not the true ones."""
    (seen,), data, _ = overheard()
    other = torch.from_numpy(np.random.default_rng(1).normal(size=(60, FEATURES)))
    x = other[seen.nodes] * seen.sees[:, None]
    h = torch.relu(seen.a @ x @ seen.weights["layer1.weight"] + seen.weights["layer1.bias"])
    nodes, fit = attacks.rebuild([seen._replace(h=h[seen.sees])], 60, FEATURES, 1, 500, 0)
    assert float((fit.x - other[nodes]).abs().max()) < 1e-8 < 0.1 < float((fit.x - data.x[nodes]).abs().max())
    assert fit.residual < 1e-10


def test_conjugate_gradients_give_the_shortest_solution() -> None:
    """Conjugate gradients equal NumPy's pseudo-inverse, with too few and with too many equations."""
    for rows in (4, 12):
        a = torch.from_numpy(np.random.default_rng(rows).normal(size=(rows, 7)))
        b = torch.from_numpy(np.random.default_rng(9).normal(size=(rows, 2)))
        fit = attacks.conjugate_gradients(lambda x, a=a: [a @ x], lambda v, a=a: a.T @ v[0], [b], 200, 1e-12)
        best = np.linalg.pinv(a.numpy()) @ b.numpy()
        assert np.abs(fit.x.numpy() - best).max() < 1e-9 and fit.steps < 200
        left = np.linalg.norm(a.numpy() @ best - b.numpy()) / np.linalg.norm(b.numpy())
        assert fit.residual == pytest.approx(left, abs=1e-9) and (left < 1e-9) == (rows == 4)


def test_a_fit_tells_whether_it_converged() -> None:
    """Ten steps leave a residual and say so, and with enough steps the attack ends within the tolerance."""
    early, late = (attack(hidden=6, observations=8, **more) for more in ({"steps": 10}, {}))
    assert early["steps"] == 10 and not early["converged"] and early["residual"] > attacks.TOLERANCE
    assert late["converged"] and late["residual"] <= attacks.TOLERANCE and 10 < late["steps"] < attacks.STEPS[1]
    assert late["relative_error"] < early["relative_error"] and late["recovered"] > early["recovered"]
    deep = attack(hidden=8, depth=2, steps=5)
    assert deep["steps"] == 5 and not deep["converged"] and 0 < deep["residual"] < 1


@pytest.mark.parametrize(("residual", "steps", "converged"), [(1e-3, 3, False), (1e-7, attacks.STEPS[1], True)])
def test_a_fit_that_stops_early_has_not_converged(
    residual: float, steps: int, converged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is the part left unexplained: contradicting equations stop a fit before its last step."""
    fit = attacks.Fit(torch.ones(3, FEATURES, dtype=torch.float64), residual, steps)
    monkeypatch.setattr(attacks, "rebuild", lambda *_: (torch.arange(3), fit))
    assert attack(hidden=6)["converged"] is converged


def test_comparison_by_hand() -> None:
    """The scores of one exact row and one of half the length leave out an empty row."""
    truth = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    found = attacks.compare(torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]), truth)
    assert found == {"cosine": 1.0, "relative_error": 0.0, "recovered": 0.5, "control_cosine": 0.0}


def test_neighbourhood_is_connected_and_of_its_size() -> None:
    """A neighbourhood is connected, all its nodes are for training, and another seed gives another one."""
    run = Run("attack", "feras", "feras-inversion", "feras attack")
    data = datasets.load("feras attack")
    cut = attacks.neighbourhood(data, run, 20)
    assert cut.num_nodes == 20 and bool(cut.train_mask.all()) and not bool(cut.test_mask.any())
    reach = np.eye(20)
    reach[cut.edge_index[1], cut.edge_index[0]] = 1
    assert (np.linalg.matrix_power(reach, 20) > 0).all()
    other = attacks.neighbourhood(data, run.replace(seed=1), 20)
    assert other.x.shape == cut.x.shape and not torch.equal(other.x, cut.x)


@pytest.mark.parametrize(("options", "message"), [({"depth": 3}, "depth"), ({"observations": 0}, "observations")])
def test_bad_options(options: dict[str, int], message: str) -> None:
    """The error names the option."""
    with pytest.raises(ArgumentError, match=message):
        attack(**options)
