"""FR-Th1 to Th3, L1, L2 and X1 on random two-layer systems, as printed and as corrected, with the constants measured.

What came out of checking them, for the squared loss (c* = 1):

    Lemma 4.2   layer 2 as printed; layer 1 fails where rho(M_2) < rho(M_1), for eta is bounded by M_2 alone. With
                eta <= 4 / (2 max(rho_1, rho_2) + 3 lambda) both layers have the constant 1 - eta lambda / 2, and the
                condition rho(M_1^T M_1) <= lambda / 2 is not needed: M^T M adds nothing above 1 - eta lambda
    Theorem 4.4 one layer at a time, received embeddings held fixed, it holds. The map of both layers together is no
                contraction: y^ is bilinear, so weights of the other sign reach the same y^, and with W = 0 between them
                as a saddle there are two fixed points
    Theorem 4.5 one layer at a time, with the received embeddings fixed, for every q, though each q leads elsewhere
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fedrepro.papers.feras.theory import model as theory
from fedrepro.papers.feras.theory.model import Array, System
from fedrepro.reporting.checks import Row, control, row
from fedrepro.runs.run import Run

ROOM = 1e-9  # of a ratio to its bound, for rounding
QS = (1, 5, 10)


# -- contractions: FR-Th1, L1, L2, Th2 --------------------------------------------------------------------------------


def contraction(run: Run) -> dict[str, Any]:
    """Lemmas 4.2 and 4.3, Theorems 4.1 and 4.4: largest constants over what is claimed, so at most 1 where it holds.

    Options: trials (200).

    Returns:
        "checks": rows; "constants": for one system and a grid of lambda and eta, `{lambda, eta, rho1, rho2, layer1,
        layer2, bound, conditions}` with the exact constants of both layers; "fixed_points": those of the map of both
        layers in a system of single numbers.
    """
    rng = np.random.default_rng([run.seed, 6])
    trials = int(run.options.get("trials", 200))
    checks = [*banach(rng), *lemma_42(rng, trials), *lemma_43(rng, trials), *theorem_44(rng, trials)]
    return {"result": {"checks": checks, "constants": constants(rng), "fixed_points": scalar_fixed_points(3.0, 1.0)}}


def banach(rng: np.random.Generator) -> list[Row]:
    """Theorem 4.1 on affine maps: from every start the same point; with the constant 1 of Definition 4.2 none."""
    t = rng.normal(size=(5, 5))
    t, b = 0.9 * t / np.linalg.norm(t, 2), rng.normal(size=5)
    w = 100 * rng.normal(size=(20, 5))
    for _ in range(600):
        w = w @ t.T + b
    spread = float(np.abs(w - np.linalg.solve(np.eye(5) - t, b)).max())
    shift = np.ones(5)
    moving = float(np.abs((w + 600 * shift) - (w + 599 * shift)).min())
    return [
        row("FR-Th1", "constant 0.9: distance of 20 starts to one fixed point after 600 steps", spread, 1e-12),
        control("FR-Th1", "constant 1, which Definition 4.2 allows: a shift still moves", moving, 1e-12),
    ]


def _drawn(rng: np.random.Generator, connected: bool = True) -> tuple[System, list[Array], Array]:
    system = theory.system(rng, connected=connected)
    return system, *theory.weights(rng, len(system.hosts), scale=float(rng.choice([0.01, 0.1, 1.0])))


def lemma_42(rng: np.random.Generator, trials: int) -> list[Row]:
    """Lemma 4.2 = A.3: the exact constant of each layer's update over 1 - eta lambda / 2, under its two conditions."""
    worst = dict.fromkeys(("layer 1", "layer 2", "corrected", "free", "beyond"), 0.0)
    for _ in range(trials):
        system, w1, w2 = _drawn(rng)
        for n in range(len(system.hosts)):
            m1, m2 = (system.linear(n, layer, w1, w2)[1] for layer in (1, 2))
            rho1, rho2 = theory.radius(m1), theory.radius(m2)
            lam, part = 2 * rho1 * rng.uniform(1, 3) + 1e-6, rng.choice([1.0, rng.uniform(0.05, 1)])
            eta = part * theory.allowed(lam, rho2)
            for name, m in (("layer 1", m1), ("layer 2", m2)):
                worst[name] = max(worst[name], _over(m, eta, lam))
            eta = part * theory.allowed(lam, rho1, rho2)
            worst["corrected"] = max(worst["corrected"], _over(m1, eta, lam), _over(m2, eta, lam))
            small = lam * rng.choice([1e-3, 1e-2, 0.1])  # rho_1 is far above small / 2
            eta = part * theory.allowed(small, rho1, rho2)
            worst["free"] = max(worst["free"], _over(m1, eta, small), _over(m2, eta, small))
            eta = 1.2 * theory.allowed(small, rho1, rho2)
            worst["beyond"] = max(worst["beyond"], _over(m1, eta, small), _over(m2, eta, small))
    limit = 1 + ROOM
    return [
        row("FR-L1-layer1", "constant of layer 1 over 1 - eta lambda/2, both conditions", worst["layer 1"], limit),
        row("FR-L1-layer2", "constant of layer 2 over 1 - eta lambda/2, both conditions", worst["layer 2"], limit),
        row("FR-L1-both", "eta <= 4/(2 max(rho1, rho2) + 3 lambda) (corrected)", worst["corrected"], limit),
        row("FR-L1-free", "the same without the condition on rho1 (corrected)", worst["free"], limit),
        control("FR-L1", "eta a fifth above that", worst["beyond"], limit),
    ]


def _over(m: Array, eta: float, lam: float) -> float:
    return theory.lipschitz(m, eta, lam) / (1 - eta * lam / 2)


def lemma_43(rng: np.random.Generator, trials: int) -> list[Row]:
    """Lemma 4.3: averages of maps, and mixtures in the Wasserstein distance on a line, over [sum a_i c_i^z]^(1/z)."""
    worst = dict.fromkeys(("average", "mixture", "sum"), 0.0)
    for _ in range(trials):
        hosts, z = int(rng.integers(2, 6)), int(rng.integers(1, 4))
        maps = rng.normal(size=(hosts, 4, 4))
        c = np.linalg.norm(maps, 2, axis=(1, 2))
        a = rng.dirichlet(np.ones(hosts))
        bound = float((a @ c**z) ** (1 / z))
        worst["average"] = max(worst["average"], float(np.linalg.norm(np.einsum("n,nij->ij", a, maps), 2)) / bound)
        worst["sum"] = max(worst["sum"], float(np.linalg.norm(maps[:1].repeat(hosts, 0).sum(0), 2)) / c[0])
        slope, shift = rng.uniform(-0.9, 0.9, hosts), rng.normal(size=hosts)
        p, q = rng.normal(size=30), rng.normal(size=30) + rng.normal()
        after = [np.sort((slope[:, None] * x + shift[:, None]).ravel()) for x in (p, q)]
        before = np.mean(np.abs(np.sort(p) - np.sort(q)) ** z) ** (1 / z)
        constant = np.mean(np.abs(slope) ** z) ** (1 / z)
        moved = np.mean(np.abs(after[0] - after[1]) ** z) ** (1 / z)
        worst["mixture"] = max(worst["mixture"], float(moved / (constant * before)))
    return [
        row("FR-L2", "constant of an average of maps over [sum a c^z]^(1/z)", worst["average"], 1 + ROOM),
        row("FR-L2-mixture", "the same in W_z on the line, hosts in equal shares", worst["mixture"], 1 + ROOM),
        control("FR-L2", "a sum of hosts without 1/N, as the Remark writes it", worst["sum"], 1 + ROOM),
    ]


def theorem_44(rng: np.random.Generator, trials: int) -> list[Row]:
    """Theorem 4.4: constants of the averaged map over 1 - eta lambda / 2, within the corrected conditions.

    Frozen: one layer, received embeddings as constants, the average over hosts. Live: W1 alone, shared by all, with the
    received embeddings following it, as one iteration of Algorithm 1 after another has it. Joint: W1 and W2 at W = 0.
    """
    frozen = live = 0.0
    for _ in range(trials):
        system, w1, w2 = _drawn(rng)
        hosts, w1 = range(len(system.hosts)), [w1[0]] * len(system.hosts)
        each = [[system.linear(n, layer, w1, w2)[1] for n in hosts] for layer in (1, 2)]
        radii = [theory.radius(m) for ms in each for m in ms]
        lam = 2 * max(theory.radius(m) for m in each[0]) * rng.uniform(1, 3) + 1e-6
        eta = rng.choice([1.0, rng.uniform(0.05, 1)]) * theory.allowed(lam, *radii)
        claimed = 1 - eta * lam / 2
        for ms in each:
            mean = np.mean([m.T @ m for m in ms], 0)
            frozen = max(frozen, float(np.linalg.norm((1 - eta * lam) * np.eye(len(mean)) - eta * mean, 2)) / claimed)
        whole = [np.kron(w2.T, _reach(system, n)) for n in hosts]
        mean = np.mean([m.T @ f for m, f in zip(each[0], whole, strict=True)], 0)
        live = max(live, float(np.linalg.norm((1 - eta * lam) * np.eye(len(mean)) - eta * mean, 2)) / claimed)
    limit, joint = 1 + ROOM, joint_constant(3.0, 1.0, 0.1)
    return [
        row(
            "FR-Th2", "the map of both layers, one number each, at W = 0: constant over 1 - eta lambda/2", joint, limit
        ),
        row("FR-Th2-frozen", "one layer, received embeddings fixed, hosts averaged (corrected)", frozen, limit),
        row("FR-Th2-live", "layer 1, received embeddings following the shared W1", live, limit),
        control("FR-Th2", "500 steps from (1, 1) and from (-1, -1): distance", _apart(3.0, 1.0, 0.1), 1e-6),
    ]


def _reach(system: System, n: int) -> Array:
    """d(y^_n) / d(W1) when all hosts share W1, before the factor of W2: A_n Theta_n (A_m x_m)_m, `[k_n, m1]`."""
    stacked = np.concatenate([host.a @ host.x for host in system.hosts])
    return np.asarray(system.hosts[n].a @ system.theta(n) @ stacked)


def joint_constant(y: float, lam: float, eta: float) -> float:
    """The map of w1 and w2 together for c = lambda/2 (w1^2 + w2^2) + (w1 w2 - y)^2 / 2, at 0, over 1 - eta lambda/2.

    There M_1 = M_2 = 0, so both conditions of Lemma 4.2 hold for eta <= 4 / (3 lambda).
    """
    jacobian = np.eye(2) - eta * np.array([[lam, -y], [-y, lam]])
    return float(np.linalg.norm(jacobian, 2) / (1 - eta * lam / 2))


def scalar_fixed_points(y: float, lam: float) -> list[list[float]]:
    """Where that map rests: 0, and for y > lambda both +-(sqrt(y - lambda), sqrt(y - lambda))."""
    root = float(np.sqrt(max(y - lam, 0.0)))
    return [[0.0, 0.0]] + ([[root, root], [-root, -root]] if root else [])


def _apart(y: float, lam: float, eta: float) -> float:
    ends = []
    for start in (1.0, -1.0):
        w = np.array([start, start])
        for _ in range(500):
            w = w - eta * (lam * w + (w[0] * w[1] - y) * w[::-1])
        ends.append(w)
    return float(np.linalg.norm(ends[0] - ends[1]))


def constants(rng: np.random.Generator) -> list[dict[str, float | bool]]:
    """Exact constants of both layers of one system over a grid of lambda and eta."""
    system, w1, w2 = _drawn(rng)
    m1, m2 = (system.linear(0, layer, w1, w2)[1] for layer in (1, 2))
    rho1, rho2 = theory.radius(m1), theory.radius(m2)
    out = []
    for scale, part in itertools.product((0.1, 0.5, 1, 2, 4), (0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5)):
        lam = 2 * rho1 * scale
        eta = part * theory.allowed(lam, rho2)
        out.append(
            {
                "lambda": lam, "eta": eta, "rho1": rho1, "rho2": rho2, "layer1": theory.lipschitz(m1, eta, lam),
                "layer2": theory.lipschitz(m2, eta, lam), "bound": 1 - eta * lam / 2,
                "conditions": scale >= 1 and part <= 1,
            }
        )  # fmt: skip
    return out


# -- rates: FR-Th3, X1 ------------------------------------------------------------------------------------------------


def rate(run: Run) -> dict[str, Any]:
    """Theorem 4.5 and the Remark: layer 1 with received embeddings fixed, averaged every q iterations.

    Options: steps (200), q (a list; 1, 5, 10).

    Returns:
        "checks": rows; "rate": for each q `{"iteration", "distance", "bound"}` at every averaging, the distance to
        where that q leads and K (1 - eta lambda/2)^T, and "shift", how far that point lies from the one of q = 1, over
        the norm of the latter.
    """
    rng = np.random.default_rng([run.seed, 7])
    steps, qs = int(run.options.get("steps", 200)), [int(q) for q in run.options.get("q", QS)]
    system, w1, w2 = _drawn(rng)
    linear = [system.linear(n, 1, w1, w2) for n in range(len(system.hosts))]
    rho = max(theory.radius(m) for _, m in linear)
    lam = 2 * rho
    eta = 0.02 * theory.allowed(lam, rho)  # small, so that the decay can be seen
    maps = [(1 - eta * lam) * np.eye(m.shape[1]) - eta * m.T @ m for _, m in linear]
    adds = [eta * m.T @ (theory.vec(h.y) - b) for (b, m), h in zip(linear, system.hosts, strict=True)]
    base, start = fixed_point(maps, adds, 1), theory.vec(w1[0]) + 1.0
    found: dict[str, Any] = {}
    for q in qs:
        point = fixed_point(maps, adds, q)
        distance = [float(np.linalg.norm(start - point))]
        w = start
        for _ in range(steps // q):
            w = np.mean([_composed(t, b, q, w) for t, b in zip(maps, adds, strict=True)], 0)
            distance.append(float(np.linalg.norm(w - point)))
        iteration = [q * i for i in range(len(distance))]
        bound = [distance[0] * (1 - eta * lam / 2) ** t for t in iteration]
        shift = float(np.linalg.norm(point - base) / np.linalg.norm(base))
        found[f"q{q}"] = {"iteration": iteration, "distance": distance, "bound": bound, "shift": shift}
    return {"result": {"checks": _rate_rows(found, eta * lam), "rate": found, "eta": eta, "lambda": lam}}


def _composed(t: Array, b: Array, q: int, w: Array) -> Array:
    for _ in range(q):
        w = t @ w + b
    return w


def fixed_point(maps: list[Array], adds: list[Array], q: int) -> Array:
    """Where q local steps of each map, then their mean, lead."""
    size = len(adds[0])
    mean = np.mean([np.linalg.matrix_power(t, q) for t in maps], 0)
    add = np.mean([_composed(t, b, q, np.zeros(size)) for t, b in zip(maps, adds, strict=True)], 0)
    return np.asarray(np.linalg.solve(np.eye(size) - mean, add))


def _rate_rows(found: dict[str, Any], decay: float) -> list[Row]:
    out = []
    for name, each in found.items():
        # Distances that have reached rounding say nothing of the rate.
        kept = [(t, d, b) for t, d, b in zip(each["iteration"], each["distance"], each["bound"]) if d > 1e-11]
        ratio = max(d / b for _, d, b in kept)
        id = "FR-Th3" if name == "q1" else f"FR-X1-{name}"
        out.append(row(id, f"distance over K (1 - eta lambda/2)^T, {name}", ratio, 1 + ROOM))
        tight = max(d / (each["distance"][0] * (1 - 2 * decay) ** t) for t, d, _ in kept)
        out.append(control(id, "over K (1 - 2 eta lambda)^T, faster than the regularization alone", tight, 1 + ROOM))
    shift = max(each["shift"] for each in found.values())
    out.append(row("FR-drift", "where q > 1 leads, against q = 1: largest relative distance", shift, 1e-9))
    return out
