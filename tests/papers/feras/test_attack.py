"""Inversion of Feras's shared embeddings: exact with enough equations, and not with too few."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
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
from fedrepro.papers.feras.exhibits import grids, tables
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


def overheard(
    seed: int = 0, observations: int = 1, depth: int = 1, hidden: int = 48, dropout: float = 0.0
) -> tuple[list[attacks.Seen], Data, torch.Tensor]:
    run = Run("attack", "feras", "feras-inversion", "feras attack", seed=seed)
    data = attacks.neighbourhood(datasets.assemble("feras attack", "", "60/20/20", seed), run, 0)
    parts = partition(data, "private-public(kappa=0.4)", 3, seed)
    fed = Federation.of(data, parts, seed, dtype=torch.float64)
    net = GCN(FEATURES, 3, hidden, layers=depth + 2, dropout=dropout)
    return attacks.overheard(net, fed, depth, observations, "rw"), data, parts[0]


def test_messages_are_what_the_host_computes() -> None:
    """Each row is relu(A x W + b) of the host's features at nodes that it sees, with weights that change."""
    seen, data, part = overheard(observations=3)
    assert len(seen) == 3
    for message in seen:
        assert message.sees.tolist() == torch.isin(message.nodes, part).tolist()
        x = data.x.double()[message.nodes] * message.sees[:, None]
        h = torch.relu(message.a @ x @ message.weights["layer1.weight"] + message.weights["layer1.bias"])
        assert float((h[message.sees] - message.h).abs().max()) < 1e-12
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
    """The part left unexplained shows whether a fit has converged, and not whether it stopped before its last step."""
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


WIDE = 16 * FEATURES  # a few messages have enough equations in every row


def test_one_message_under_dropout_gives_what_its_mask_kept() -> None:
    """Each entry is exact or zero, with about the share p of zeros; a solution that knows no dropout has none exact."""
    (seen,), data, _ = overheard(dropout=0.3, hidden=WIDE)
    nodes, fit = attacks.rebuild([seen], 60, FEATURES, 1, 500, 0, dropout=0.3)
    truth = data.x.double()[nodes]
    kept = (fit.x - truth).abs() < 1e-9
    assert bool((kept | (fit.x.abs() < 1e-9)).all()) and float(kept.double().mean()) == pytest.approx(0.7, abs=0.1)
    unaware = attacks.rebuild([seen], 60, FEATURES, 1, 500, 0)[1].x
    assert float(((unaware - truth).abs() < 1e-9).double().mean()) < 0.01 and fit.residual < 1e-10


def test_more_messages_give_the_entries_that_one_mask_hid() -> None:
    """A node in more such messages loses fewer entries; a clean message loses none, and has no such number."""
    clean, one, more = attack(hidden=WIDE), *(attack(hidden=WIDE, dropout=0.3, observations=n) for n in (1, 3))
    assert clean["recovered"] == 1 and "entries" not in clean
    assert attack(hidden=WIDE, dropout=0.0) == pytest.approx(clean, abs=1e-12)
    assert 0.6 < one["entries"] < 0.8 and one["recovered"] < 0.4
    assert more["entries"] > one["entries"] + 0.1 and more["recovered"] > one["recovered"]


def test_messages_with_too_few_equations_are_left_out_or_fitted_early() -> None:
    """A message with enough equations is used by itself. If none has, the fit stops at the residual of the masks, and
    goes on if it knows no dropout.
    """
    (whole,) = overheard(dropout=0.3, hidden=WIDE)[0]
    poor = whole._replace(h=torch.zeros_like(whole.h))
    both, alone = (attacks.rebuild(each, 60, FEATURES, 1, 500, 0, 0.3)[1] for each in ([whole, poor], [whole]))
    assert float((both.x - alone.x).abs().max()) < 1e-9 and both.residual < 1e-10
    seen = overheard(dropout=0.3, hidden=8, observations=16)[0]
    early = attacks.rebuild(seen, 60, FEATURES, 1, 5000, 0, 0.3)[1]
    late = attacks.rebuild(seen, 60, FEATURES, 1, 5000, 0)[1]
    assert early.steps < late.steps and late.residual < early.residual <= attacks.tolerated(0.3) == pytest.approx(
        math.sqrt(3 / 7)
    )
    assert attacks.tolerated(0.0) == attacks.TOLERANCE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 3}, "depth"),
        ({"observations": 0}, "observations"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": 0.1, "depth": 2}, "dropout"),
    ],
)
def test_bad_options(options: dict[str, float], message: str) -> None:
    """The error names the option."""
    with pytest.raises(ArgumentError, match=message):
        attack(**options)


def test_attacks_under_dropout_are_a_line_of_their_own() -> None:
    """They have the dropout and the width of training, and the widest; all others keep their options, thus keys."""
    masked = [run for run in grids.privacy() if "dropout" in run.options]
    for run in masked:
        hidden, _, dropout = grids.TABLES["sizes"][run.dataset]
        assert run.options["dropout"] == dropout > 0 and run.options["hidden"] in (hidden, grids.WIDTHS[-1])
    assert len(masked) == 24 and {run.dataset for run in masked} == set(grids.SWEPT)
    first = masked[0].replace(options={name: v for name, v in masked[0].options.items() if name != "dropout"})
    fields = {"dataset": "Photo", "partition": first.partition, "equations_per_feature": 1.0, "converged": True}
    frame = tables.attacks(pd.DataFrame([fields | dict(run.options) for run in (first, masked[0])]))
    assert frame["line"].tolist() == ["depth 1, kappa 60%", "depth 1, kappa 60%, dropout 0.1"]
    assert frame["dropout"].tolist() == [0.0, 0.1] and frame.groupby(tables.ATTACK).ngroups == 2
    assert frame["entries"].isna().all()


def test_a_setting_that_was_not_attacked_is_named() -> None:
    """A row under dropout without a clean row is named by its width, and so is a listed setting without a run.

    Nothing is said if every setting has a run, and every row under dropout a clean one.
    """
    wide = {"task": "attack", "paper": "feras", "method": "feras-inversion", "dataset": "Photo", "clients": 3}
    masked = {"depth": 1, "hidden": 128, "nodes": 100}
    runs = [
        Run(**wide, split="60/20/20", partition=grids.partition(60), options={**masked, "dropout": share})
        for share in (0.1, 0.0)
    ]
    frame = pd.DataFrame([{"dataset": run.dataset, "partition": run.partition, **run.options} for run in runs])
    leak = tables.attacks(frame.assign(converged=True, equations_per_feature=0.5))
    assert tables.not_attacked(leak, runs) == []
    absent, alone = tables.not_attacked(leak[leak["dropout"].gt(0)], runs)
    assert absent.endswith("computed yet: Photo, kappa 60%, depth 1, width 128, 1 message (clean).")
    assert "no clean row" in alone and "width 128, 1 message (dropout 0.1)" in alone
