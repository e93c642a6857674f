"""Check Theorems 4.1 and 4.4 and Lemmas 4.2 and 4.3 on random two-layer systems, as printed and as corrected.

The constants are measured, and the loss is squared (c* = 1). The checks have led to these statements:

    Lemma 4.2     Layer 2 holds as printed. The constant of layer 1 fails where rho(M_2) < rho(M_1), since only M_2
                  bounds eta. The step of layer 1 still contracts, with a larger constant: both conditions give
                  eta (lambda + rho_1) <= 2, and only at equality, which needs rho_2 = 0, is its constant 1. With
                  eta <= 4 / (2 max(rho_1, rho_2) + 3 lambda) both layers have the constant 1 - eta lambda / 2. The
                  condition rho(M_1^T M_1) <= lambda / 2 is then not needed: M^T M adds nothing above 1 - eta lambda.
    Theorem 4.4   It holds for one layer at a time, with received embeddings held fixed and this bound on eta. The map
                  of both layers together is no contraction: y^ is bilinear, so weights of the other sign give the same
                  y^. With one number in each layer and a target y > lambda the map has three fixed points: two of
                  opposite signs, and a saddle at W = 0 between them. At the outer two rho_1 = y - lambda.

The statements on Theorem 4.5 are in `rates`.
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
from fedrepro.papers.feras.theory.model import ROOM, Array, Largest, System, allowed, lipschitz, radius, weights
from fedrepro.reporting.checks import Row, control, row, worst_of
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

LIMIT = 1 + ROOM
# The system of single numbers has this y, lambda and eta. Both conditions hold at its fixed points and on the paths of
# `distance_of_ends`.
SCALAR = (1.2, 1.0, 0.1)
START = 0.5  # the value of both numbers
ADAM = "Adam's learning rate, as a rate of plain gradient descent"

# -- contractions: FR-Th1, L1, L2, Th2 --------------------------------------------------------------------------------


def contraction(run: Run) -> dict[str, Any]:
    """Measure the constants of Lemmas 4.2 and 4.3 and of Theorems 4.1 and 4.4, over those that the paper claims.

    A statement holds if its largest ratio is at most 1. Options: trials (200).

    Returns:
        "checks": rows; "constants": for one system and a grid of lambda and eta, `{lambda, eta, rho1, rho2, layer1,
        layer2, bound, conditions}` with the exact constants of both layers; "fixed_points": those of the map of both
        layers in a system of single numbers.
    """
    rng = np.random.default_rng([run.seed, 6])
    trials = int(run.options.get("trials", 200))
    checks = [
        *banach(rng, np.random.default_rng([run.seed, 8])),
        *lemma_42(rng, trials),
        *lemma_43(rng, trials),
        *theorem_44(rng, trials),
    ]
    return {"result": {"checks": checks, "constants": constants(rng), "fixed_points": scalar_fixed_points(*SCALAR[:2])}}


def banach(rng: np.random.Generator, turns: np.random.Generator) -> list[Row]:
    """Check Theorem 4.1 on affine maps: every start leads to one point, but not for a constant of 1.

    The map of the control is orthogonal, and `turns` draws it.
    """
    t = rng.normal(size=(5, 5))
    t, b = 0.9 * t / np.linalg.norm(t, 2), rng.normal(size=5)
    starts = 100 * rng.normal(size=(20, 5))
    turn = np.linalg.qr(turns.normal(size=(5, 5)))[0]
    turn *= -np.sign(np.linalg.det(turn))  # a rotation in five dimensions has an axis, and so no single fixed point

    def distance(t: Array) -> float:
        w = starts
        for _ in range(600):
            w = w @ t.T + b
        return float(np.abs(w - np.linalg.solve(np.eye(5) - t, b)).max())

    told = "distance of 20 starts to one fixed point after 600 steps"
    return [
        row("FR-Th1", f"constant 0.9: {told}", distance(t), 1e-12),
        control("FR-Th1", f"constant 1, which Definition 4.2 allows: {told}", distance(turn), 1e-12),
    ]


def draw(rng: np.random.Generator) -> tuple[System, list[Array], Array]:
    """Draw a system, W1 of every host, and one W2."""
    system = System.random(rng)
    return system, *weights(rng, len(system.hosts), scale=float(rng.choice([0.01, 0.1, 1.0])))


def lemma_42(rng: np.random.Generator, trials: int) -> list[Row]:
    """Compare the exact constant of each layer's update with 1 - eta lambda / 2, under Lemma 4.2's two conditions.

    "step" is the constant of layer 1 by itself, which must not exceed 1.
    """
    worst = Largest()

    def note(name: str, eta: float, lam: float, *matrices: Array) -> None:
        for m in matrices:
            worst.note(name, lipschitz(m, eta, lam) / (1 - eta * lam / 2))

    for _ in range(trials):
        system, w1, w2 = draw(rng)
        for n in range(len(system.hosts)):
            m1, m2 = (system.linear(n, layer, w1, w2)[1] for layer in (1, 2))
            rho1, rho2 = radius(m1), radius(m2)
            lam, part = 2 * rho1 * rng.uniform(1, 3) + 1e-6, rng.choice([1.0, rng.uniform(0.05, 1)])
            for name, m in (("layer 1", m1), ("layer 2", m2)):
                note(name, part * allowed(lam, rho2), lam, m)
            worst.note("step", lipschitz(m1, part * allowed(lam, rho2), lam))
            note("corrected", part * allowed(lam, rho1, rho2), lam, m1, m2)
            small = lam * rng.choice([1e-3, 1e-2, 0.1])  # rho_1 is far above small / 2
            note("free", part * allowed(small, rho1, rho2), small, m1, m2)
            note("beyond", 1.2 * allowed(small, rho1, rho2), small, m1, m2)
    return [
        row("FR-L1-layer1", "constant of layer 1 over 1 - eta lambda/2, both conditions", worst["layer 1"], LIMIT),
        row("FR-L1-step", "constant of layer 1 itself, both conditions: it contracts", worst["step"], LIMIT),
        row("FR-L1-layer2", "constant of layer 2 over 1 - eta lambda/2, both conditions", worst["layer 2"], LIMIT),
        row("FR-L1-both", "eta <= 4/(2 max(rho1, rho2) + 3 lambda) (corrected)", worst["corrected"], LIMIT),
        row("FR-L1-free", "the same without the condition on rho1 (corrected)", worst["free"], LIMIT),
        control("FR-L1", "eta a fifth above that", worst["beyond"], LIMIT),
    ]


def lemma_43(rng: np.random.Generator, trials: int) -> list[Row]:
    """Compare constants of averages of maps, and of mixtures in W_z on a line, with [sum a_i c_i^z]^(1/z)."""
    worst = Largest()
    for _ in range(trials):
        hosts, z = int(rng.integers(2, 6)), int(rng.integers(1, 4))
        maps = rng.normal(size=(hosts, 4, 4))
        c = np.linalg.norm(maps, 2, axis=(1, 2))
        a = rng.dirichlet(np.ones(hosts))
        bound = float((a @ c**z) ** (1 / z))
        worst.note("average", float(np.linalg.norm(np.einsum("n,nij->ij", a, maps), 2)) / bound)
        worst.note("sum", float(np.linalg.norm(maps[:1].repeat(hosts, 0).sum(0), 2)) / c[0])
        slope, shift = rng.uniform(-0.9, 0.9, hosts), rng.normal(size=hosts)
        p, q = rng.normal(size=30), rng.normal(size=30) + rng.normal()
        after = [np.sort((slope[:, None] * x + shift[:, None]).ravel()) for x in (p, q)]
        before = np.mean(np.abs(np.sort(p) - np.sort(q)) ** z) ** (1 / z)
        constant = np.mean(np.abs(slope) ** z) ** (1 / z)
        moved = np.mean(np.abs(after[0] - after[1]) ** z) ** (1 / z)
        worst.note("mixture", moved / (constant * before))
    return [
        row("FR-L2", "constant of an average of maps over [sum a c^z]^(1/z)", worst["average"], LIMIT),
        row("FR-L2-mixture", "the same in W_z on the line, hosts in equal shares", worst["mixture"], LIMIT),
        control("FR-L2", "a sum of hosts without 1/N, as the Remark writes it", worst["sum"], LIMIT),
    ]


def theorem_44(rng: np.random.Generator, trials: int) -> list[Row]:
    """Compare constants of the averaged map with 1 - eta lambda / 2, within the corrected conditions.

    "frozen" is one layer, with received embeddings as constants, averaged over hosts. "live" is W1, shared by all
    hosts, with received embeddings that follow it, as from one iteration of Algorithm 1 to the next. "beyond" is
    "frozen" with a small lambda and an eta above 4 / (2 rho + 3 lambda), where rho is that of the averaged M^T M. The
    first two rows are the map of W1 and W2 together: at W = 0, and after 500 steps from two starts.
    """
    worst = Largest()
    for _ in range(trials):
        system, w1, w2 = draw(rng)
        hosts, w1 = range(len(system.hosts)), [w1[0]] * len(system.hosts)
        first, second = ([system.linear(n, layer, w1, w2)[1] for n in hosts] for layer in (1, 2))
        radii = [radius(m) for m in first + second]
        lam = 2 * worst_of(radii[: len(first)]) * rng.uniform(1, 3) + 1e-6
        eta = rng.choice([1.0, rng.uniform(0.05, 1)]) * allowed(lam, *radii)
        # When all hosts share W1, d(y^_n) / d(W1) has the factors W2^T and A_n Theta_n (A_m x_m)_m.
        stacked = np.concatenate([host.a @ host.x for host in system.hosts])
        whole = [np.kron(w2.T, host.a @ system.theta(n) @ stacked) for n, host in enumerate(system.hosts)]
        for name, left, right in (("frozen", first, first), ("frozen", second, second), ("live", first, whole)):
            mean = np.mean([m.T @ f for m, f in zip(left, right, strict=True)], 0)
            constant = float(np.linalg.norm((1 - eta * lam) * np.eye(len(mean)) - eta * mean, 2))
            worst.note(name, constant / (1 - eta * lam / 2))
            if name == "frozen":
                small = 0.01 * lam  # the step is then that of the loss rather than of the regularization
                beyond = 1.2 * allowed(small, float(np.linalg.norm(mean, 2)))
                constant = float(np.linalg.norm((1 - beyond * small) * np.eye(len(mean)) - beyond * mean, 2))
                worst.note("beyond", constant / (1 - beyond * small / 2))
    joint = "the map of both layers, one number each, at W = 0: constant over 1 - eta lambda/2"
    ends = "the same map, both conditions: distance of its ends from (0.5, 0.5) and (-0.5, -0.5)"
    return [
        row("FR-Th2", joint, joint_constant(*SCALAR), LIMIT),
        row("FR-Th2-ends", ends, distance_of_ends(*SCALAR), 1e-6),
        row(
            "FR-Th2-frozen", "one layer, received embeddings fixed, hosts averaged (corrected)", worst["frozen"], LIMIT
        ),
        row("FR-Th2-live", "layer 1, received embeddings following the shared W1", worst["live"], LIMIT),
        control(
            "FR-Th2-frozen", "eta a fifth above 4/(2 rho + 3 lambda), rho that of the average", worst["beyond"], LIMIT
        ),
    ]


def joint_constant(y: float, lam: float, eta: float) -> float:
    """Return the constant at 0 of the map of w1 and w2 together, over 1 - eta lambda / 2.

    The cost is c = lambda/2 (w1^2 + w2^2) + (w1 w2 - y)^2 / 2. At 0, M_1 = M_2 = 0, so both conditions of Lemma 4.2
    hold for eta <= 4 / (3 lambda).
    """
    jacobian = np.eye(2) - eta * np.array([[lam, -y], [-y, lam]])
    return float(np.linalg.norm(jacobian, 2) / (1 - eta * lam / 2))


def scalar_fixed_points(y: float, lam: float) -> list[list[float]]:
    """Return the fixed points of that map: 0, and for y > lambda both +-(sqrt(y - lambda), sqrt(y - lambda))."""
    root = float(np.sqrt(max(y - lam, 0.0)))
    return [[0.0, 0.0]] + ([[root, root], [-root, -root]] if root else [])


def distance_of_ends(y: float, lam: float, eta: float) -> float:
    """Return the distance after 500 steps of that map from starts of opposite signs."""
    return float(np.linalg.norm(scalar_path(y, lam, eta, START)[-1] - scalar_path(y, lam, eta, -START)[-1]))


def scalar_path(y: float, lam: float, eta: float, start: float) -> Array:
    """Return the weights at 500 steps of that map from one start, `[501, 2]`."""
    path = [np.array([start, start])]
    for _ in range(500):
        w = path[-1]
        path.append(w - eta * (lam * w + (w[0] * w[1] - y) * w[::-1]))
    return np.stack(path)


def constants(rng: np.random.Generator) -> list[dict[str, float | bool]]:
    """Return the exact constants of both layers of one system over a grid of lambda and eta."""
    system, w1, w2 = draw(rng)
    m1, m2 = (system.linear(0, layer, w1, w2)[1] for layer in (1, 2))
    radii = {"rho1": radius(m1), "rho2": radius(m2)}
    out = []
    for scale, part in itertools.product((0.1, 0.5, 1, 2, 4), (0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5)):
        lam = 2 * radii["rho1"] * scale
        eta = part * allowed(lam, radii["rho2"])
        exact = {"layer1": lipschitz(m1, eta, lam), "layer2": lipschitz(m2, eta, lam), "bound": 1 - eta * lam / 2}
        out.append({"lambda": lam, "eta": eta, **radii, **exact, "conditions": scale >= 1 and part <= 1})
    return out


# -- the experiments' settings: FR-L1-settings ------------------------------------------------------------------------


def conditions(run: Run) -> dict[str, Any]:
    """Check Lemma 4.2's two conditions on the first host's first sub-graph, with a linear first layer.

    The conditions are those of plain gradient descent. Feras is trained with Adam, whose learning rate is compared as
    if it were a rate of plain gradient descent. Adam scales every step, so the rows on eta say nothing of its steps.

    Options: hidden (256), lr (0.01), weight_decay (0), rounds (0: initial weights; else epochs of Feras before), and
    those of the sampler.

    Returns:
        "checks": rows, for the loss summed and averaged over nodes (c* = 1 and 1/k); "rho1", "rho2", "nodes",
        "nonnegative" (features), and for both losses "lambda_needed" = 2 c* rho1 and "eta_allowed", the largest rate of
        the second condition with lambda = weight_decay.
    """
    options = {"hidden": 256, "lr": 0.01, "weight_decay": 0.0, "rounds": 0, **run.options}
    hidden, rounds = int(options.pop("hidden")), int(options.pop("rounds"))
    lr, lam = (float(options.pop(name)) for name in ("lr", "weight_decay"))
    fed = tasks.federation([run])
    network = GCN(fed.features, fed.classes, hidden, layers=3)
    method = Feras(model=network, lr=lr, weight_decay=lam, normalise=False, **options)
    if rounds:
        fed, state = train(method, fed, rounds, evaluate=())[1:]
    else:
        fed, state = method.start(fed)
    rho1, rho2, nodes, least = _radii(method, fed, state)
    result: dict[str, Any] = {"rho1": rho1, "rho2": rho2, "nodes": nodes, "nonnegative": bool(least >= 0), "checks": []}
    for name, c in (("sum", 1.0), ("mean", 1.0 / nodes)):
        needed, eta = 2 * c * rho1, allowed(lam, rho2, c=c)
        result[name] = {"lambda_needed": needed, "eta_allowed": eta}
        check, loss = f"FR-L1-settings-{name}", f"(squared loss, {name} over nodes)"
        result["checks"] += [
            row(f"{check}-lambda", f"lambda needed, against weight decay {loss}", needed, lam),
            row(f"{check}-eta", f"{ADAM}, against the largest allowed {loss}", lr, eta),
        ]
    return {"result": result}


def _radii(method: Feras, fed: Federation, state: State) -> tuple[float, float, int, float]:
    """Return rho(M1^T M1), rho(M2^T M2), the nodes and the smallest feature of the first host's sub-graph."""
    sample = method.sample(fed.at(0, 0), state, 0)
    client, rows = sample.fed.batch.batch, Rows.of(sample.fed)
    k = int(sample.fed.batch.ptr[1])  # all matrices are block-diagonal: the first k rows are the first host's
    x = sample.fed.x if isinstance(sample.fed.x, Tensor) else sample.fed.x.dense()
    ax = sample.a @ x
    theta_star = rows.seen / rows.count[rows.node].clamp(min=1)
    m = (sample.a @ (theta_star[:, None].to(ax.dtype) * ax))[:k]
    w1, w2 = (state.personal[f"layer{i}.weight"] for i in (1, 2))
    hidden = ax.new_zeros(len(ax), w1.shape[2])
    for n in range(fed.clients):
        hidden[client == n] = ax[client == n] @ w1[n]
    received = (sample.a @ rows.mean(hidden))[:k]
    rho1 = radius(m.double().numpy()) * radius(w2[0].double().numpy())
    return rho1, radius(received.double().numpy()), k, float(x[:k].min())
