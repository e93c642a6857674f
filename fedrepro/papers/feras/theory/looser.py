"""Check Theorem 4.6 on random systems: sharing loosens the constraint on the parameters (FR-Th4).

The theorem compares rho(M M^T) with sharing, where M = A Theta* A x, and without, where the identity replaces Theta*.
For non-negative features it holds entry by entry, since no entry of M is larger with sharing. It then needs no
connected sub-graph. For signed features it fails, and standardized features are signed (FR-Q8).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fedrepro.papers.feras.theory.model import ROOM, System, normalized, radius
from fedrepro.reporting.checks import control, row, worst_of
from fedrepro.runs.run import Run

Pairs = dict[str, list[float]]  # rho(M M^T) "with" and "without" sharing
LIMIT = 1 + ROOM


def looser(run: Run) -> dict[str, Any]:
    """Compare rho(M M^T) with and without sharing, for all hosts of random systems.

    Options: trials (500).

    Returns:
        "checks": rows; "theorem46": `{"nonnegative" | "signed": {"with": [...], "without": [...]}}`; "counterexample":
        see `counterexample`; "violations": how many of the "signed_pairs" violate the theorem.
    """
    rng = np.random.default_rng([run.seed, 8])
    trials = int(run.options.get("trials", 500))
    pairs = {
        "nonnegative": _pairs(rng, trials, signed=False),
        "signed": _pairs(rng, trials, signed=True),
        "disconnected": _pairs(rng, trials, signed=False, connected=False),
        "larger": _pairs(rng, trials, signed=False, larger=True),
    }
    ratios = {name: [a / b for a, b in _zip(radii) if not b <= 1e-12] for name, radii in pairs.items()}
    worst = {name: worst_of([0.0, *values]) for name, values in ratios.items()}
    example = counterexample()
    text = "rho(M M^T) with sharing over without"
    apart = f"{text}, non-negative, any sub-graphs, connected or not (corrected)"
    signed = worst_of((worst["signed"], example["with"] / example["without"]))
    checks = [
        row("FR-Th4", f"{text}, non-negative features", worst["nonnegative"], LIMIT),
        row("FR-Th4-signed", f"{text}, signed features (FR-Q8)", signed, LIMIT),
        row("FR-Th4-disconnected", apart, worst["disconnected"], LIMIT),
        control("FR-Th4", "with entries of Theta* between 1 and 2", worst["larger"], LIMIT),
    ]
    result: dict[str, Any] = {"checks": checks, "counterexample": example}
    result["theorem46"] = {name: pairs[name] for name in ("nonnegative", "signed")}
    result["violations"] = sum(a > b * LIMIT for a, b in _zip(pairs["signed"]))
    return {"result": result | {"signed_pairs": len(pairs["signed"]["with"])}}


def _zip(pairs: Pairs) -> zip[tuple[float, float]]:
    return zip(pairs["with"], pairs["without"], strict=True)


def _pairs(
    rng: np.random.Generator, trials: int, *, signed: bool, connected: bool = True, larger: bool = False
) -> Pairs:
    """Return both radii of all hosts of random systems; `larger` draws entries of Theta* from 1 to 2."""
    pairs: Pairs = {"with": [], "without": []}
    for _ in range(trials):
        system = System.random(rng, signed=signed, connected=connected, m1=int(rng.integers(1, 5)))
        for n, host in enumerate(system.hosts):
            diagonal = 1 + rng.random(len(host.nodes)) if larger else None
            pairs["with"].append(radius(system.m(n, diagonal)))
            pairs["without"].append(radius(system.m_without_sharing(n)))
    return pairs


def counterexample() -> dict[str, Any]:
    """Return the smallest counterexample with whole-number features on a path, one feature per node.

    The smallest has the fewest nodes, then the smallest features, then the largest ratio. The diagonal of Theta* is 1
    at a public node that one host drew and 1/2 at one that two hosts drew. Theta* is 0 only at a node that the host
    cannot see. Such nodes are not tried.

    Returns:
        Nested lists "a", "x" and "theta" (the diagonal), both radii "with" and "without", and their "ratio".
    """
    for nodes, top in itertools.product((2, 3, 4), (1, 2, 3)):
        a = normalized(np.eye(nodes, k=1) + np.eye(nodes, k=-1))
        best: dict[str, Any] = {}
        for x, theta in itertools.product(
            itertools.product(range(-top, top + 1), repeat=nodes), itertools.product((1.0, 0.5), repeat=nodes)
        ):
            m = [a @ (np.array(d)[:, None] * (a @ np.array(x, float)[:, None])) for d in (theta, np.ones(nodes))]
            shared, plain = (radius(matrix) for matrix in m)
            if plain > 1e-12 and shared > plain * LIMIT and shared / plain > best.get("ratio", 0):
                best = {"a": a.tolist(), "x": list(x), "theta": list(theta), "with": shared, "without": plain}
                best["ratio"] = shared / plain
        if best:
            return best
    return {}
