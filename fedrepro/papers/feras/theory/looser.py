"""FR-Th4 (Theorem 4.6) on random systems, and whether Lemma 4.2's conditions hold at the experiments' settings.

The theorem compares rho(M M^T) with sharing, M = A Theta* A x, and without, Theta* = I. For non-negative features it
holds entry by entry, M being no larger anywhere, and needs no connected sub-graph. For signed features it fails, and
standardized features are signed (FR-Q8).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from torch import Tensor

from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.training import train
from fedrepro.papers.feras.method import Feras, Rows
from fedrepro.papers.feras.theory import model as theory
from fedrepro.reporting.checks import control, row
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

ROOM = 1e-9  # of a ratio to its bound, for rounding


def looser(run: Run) -> dict[str, Any]:
    """Theorem 4.6: rho(M M^T) with sharing over that without, largest over all hosts of random systems.

    Options: trials (500).

    Returns:
        "checks": rows; "theorem46": `{"nonnegative" | "signed": {"with": [...], "without": [...]}}`; "counterexample":
        the smallest with signed features found by enumeration, as nested lists `a`, `x`, `theta` (the diagonal), and
        both radii; "violations": how many of the "signed_pairs".
    """
    rng = np.random.default_rng([run.seed, 8])
    trials = int(run.options.get("trials", 500))
    pairs = {
        "nonnegative": _pairs(rng, trials, signed=False),
        "signed": _pairs(rng, trials, signed=True),
        "disconnected": _pairs(rng, trials, signed=False, connected=False),
        "larger": _pairs(rng, trials, signed=False, larger=True),
    }
    worst = {name: _largest(each["with"], each["without"]) for name, each in pairs.items()}
    example, limit = counterexample(), 1 + ROOM
    worst["signed"] = max(worst["signed"], example["with"] / example["without"])
    text = "rho(M M^T) with sharing over without"
    apart = f"{text}, non-negative, any sub-graphs, connected or not (corrected)"
    checks = [
        row("FR-Th4", f"{text}, non-negative features", worst["nonnegative"], limit),
        row("FR-Th4-signed", f"{text}, signed features (FR-Q8)", worst["signed"], limit),
        row("FR-Th4-disconnected", apart, worst["disconnected"], limit),
        control("FR-Th4", "with entries of Theta* between 1 and 2", worst["larger"], limit),
    ]
    signed = pairs["signed"]
    violations = sum(a > b * limit for a, b in zip(signed["with"], signed["without"], strict=True))
    kept = {name: pairs[name] for name in ("nonnegative", "signed")}
    return {
        "result": {
            "checks": checks, "theorem46": kept, "counterexample": example, "violations": violations,
            "signed_pairs": len(signed["with"]),
        }
    }  # fmt: skip


def _pairs(
    rng: np.random.Generator, trials: int, *, signed: bool, connected: bool = True, larger: bool = False
) -> dict[str, list[float]]:
    out: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(trials):
        system = theory.system(rng, signed=signed, connected=connected, widths=(int(rng.integers(1, 5)), 3, 2))
        for n, host in enumerate(system.hosts):
            own = 1 + rng.random(len(host.nodes)) if larger else None
            out["with"].append(theory.radius(system.m(n, own=own)))
            out["without"].append(theory.radius(system.m(n, shared=False)))
    return out


def _largest(a: list[float], b: list[float]) -> float:
    return max((x / y for x, y in zip(a, b, strict=True) if y > 1e-12), default=0.0)


def counterexample() -> dict[str, Any]:
    """The smallest with whole features: fewest nodes, then smallest features, then the largest ratio.

    A path, one feature a node, and the diagonal of Theta* among 1, 1/2 and 0 (a public node drawn by two hosts or
    one; a node nobody drew is not the host's own, so 0 goes with feature 0).
    """
    for nodes, top in itertools.product((2, 3, 4), (1, 2, 3)):
        a = theory.normalized(np.eye(nodes, k=1) + np.eye(nodes, k=-1))
        best: dict[str, Any] = {}
        for x, theta in itertools.product(
            itertools.product(range(-top, top + 1), repeat=nodes), itertools.product((1.0, 0.5), repeat=nodes)
        ):
            m = [a @ (np.array(t)[:, None] * (a @ np.array(x, float)[:, None])) for t in (theta, np.ones(nodes))]
            shared, plain = (theory.radius(each) for each in m)
            if plain > 1e-12 and shared > plain * (1 + ROOM) and shared / plain > best.get("ratio", 0):
                best = {"a": a.tolist(), "x": list(x), "theta": list(theta), "with": shared, "without": plain}
                best["ratio"] = shared / plain
        if best:
            return best
    return {}


# -- the experiments' settings: FR-L1-settings ------------------------------------------------------------------------


def conditions(run: Run) -> dict[str, Any]:
    """Lemma 4.2's two conditions on the first host's first sub-graph of a training run, with a linear first layer.

    Options: hidden (256), lr (0.01), weight_decay (0), rounds (0: initial weights; else epochs of Feras before), and
    those of the sampler.

    Returns:
        "checks": rows, for the loss summed and averaged over nodes (c* = 1 and 1/k); "rho1", "rho2", "nodes",
        "nonnegative" (features), and for both losses "lambda_needed" = 2 c* rho1 and "eta_allowed".
    """
    options = dict(run.options)
    hidden, lr, lam = int(options.pop("hidden", 256)), float(options.pop("lr", 0.01)), options.pop("weight_decay", 0.0)
    rounds = int(options.pop("rounds", 0))
    fed = tasks.federation([run])
    network = GCN(fed.features, fed.classes, hidden, layers=3)
    method = Feras(model=network, lr=lr, weight_decay=float(lam), normalise=False, **options)
    if rounds:
        fed, state = train(method, fed, rounds, evaluate=())[1:]
    else:
        fed, state = method.start(fed)
    rho1, rho2, nodes, least = _radii(method, fed, state)
    checks, found = [], {}
    for name, c in (("sum", 1.0), ("mean", 1.0 / nodes)):
        needed, eta = 2 * c * rho1, 4 / (2 * c * rho2 + 3 * float(lam))
        found[name] = {"lambda_needed": needed, "eta_allowed": eta}
        text = f"squared loss, {name} over nodes"
        checks.append(
            row(f"FR-L1-settings-{name}-lambda", f"lambda needed, against weight decay ({text})", needed, float(lam))
        )
        checks.append(
            row(f"FR-L1-settings-{name}-eta", f"learning rate, against the largest allowed ({text})", lr, eta)
        )
    numbers = {"rho1": rho1, "rho2": rho2, "nodes": nodes, "nonnegative": bool(least >= 0)}
    return {"result": {"checks": checks, **numbers, **found}}


def _radii(method: Feras, fed: Federation, state: State) -> tuple[float, float, int, float]:
    """rho(M1^T M1), rho(M2^T M2), nodes and the smallest feature of the first host's sub-graph."""
    sample = method.sample(fed.at(0, 0), state, 0)
    batch, rows = sample.fed.batch, Rows.of(sample.fed)
    k = int(batch.ptr[1])
    x = sample.fed.x if isinstance(sample.fed.x, Tensor) else sample.fed.x.dense()
    ax = sample.a @ x
    own = rows.seen / rows.count[rows.node].clamp(min=1)
    m = (sample.a @ (own[:, None].to(ax.dtype) * ax))[:k]  # block-diagonal: the first rows are the first host's
    w1, w2 = (state.personal[f"layer{i}.weight"] for i in (1, 2))
    client = batch.batch
    hidden = ax.new_zeros(len(ax), w1.shape[2])
    for n in range(fed.clients):
        hidden[client == n] = ax[client == n] @ w1[n]
    received = (sample.a @ rows.mean(hidden))[:k]
    rho1 = theory.radius(m.double().numpy()) * theory.radius(w2[0].double().numpy())
    return rho1, theory.radius(received.double().numpy()), k, float(x[:k].min())
