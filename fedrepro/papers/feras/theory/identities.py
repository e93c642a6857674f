"""Compare Feras's algorithms with their literal forms, and check its identities on random systems.

The rows are those of Figure 1 (FR-F1), Algorithm 1 and the table (FR-A1, FR-A2), the sharing matrix and the radius
(FR-I1, FR-I2), and Corollaries A.1, A.2 and B.1 (FR-C1 to FR-C3). Each has a negative control, which must fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrepro.data import partition, synthetic
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.training import train
from fedrepro.papers.feras.method import Feras, Rows
from fedrepro.papers.feras.protocol import literal
from fedrepro.papers.feras.saint.method import Sample
from fedrepro.papers.feras.theory.model import Array, Largest, System, radius, step, vec, weights
from fedrepro.reporting.checks import ROUNDING, Row, control, row, worst_of
from fedrepro.runs.run import Run

TRIALS, ROUNDS, ETA, LAM = 40, 3, 0.05, 0.3


def identities(run: Run) -> dict[str, Any]:
    """Return the rows of all algorithms and identities, under "checks"."""
    return {"result": {"checks": [*figure_1(), *algorithms(run.seed), *linear_forms(run.seed), *norm_bound(run.seed)]}}


# -- the algorithms ---------------------------------------------------------------------------------------------------


def figure_1() -> list[Row]:
    """Check the rows that hosts receive in Figure 1.

    Node A is drawn by two of the hosts that see it, B by its owner and another host, and C not by its owner.
    """
    node = torch.tensor([0, 0, 1, 1, 2])
    host, sees = torch.tensor([0, 1, 2, 0, 2]), torch.tensor([True, True, True, False, False])
    rows = Rows(node, node, host, sees, torch.bincount(node[sees], minlength=3))
    h = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, 5.0], [9.0, 9.0], [8.0, 8.0]], dtype=torch.float64)
    wanted = torch.tensor([[2.0, 4.0], [2.0, 4.0], [5.0, 5.0], [5.0, 5.0], [0.0, 0.0]], dtype=torch.float64)
    plain = torch.stack([h[node == v].mean(0) for v in node.tolist()])
    text = "A is the mean of hosts 1 and 2, B comes through the server, C is absent"
    return [
        row("FR-F1", text, float((rows.mean(h) - wanted).abs().max()), 0.0),
        control("FR-F1", "the mean over all hosts that drew the node", float((plain - wanted).abs().max()), 0.1),
    ]


def algorithms(seed: int) -> list[Row]:
    """Compare the method with Algorithm 1 and with the sequential table, both run literally.

    The rows compare the embeddings that hosts use in every iteration, and the weights and the table after the last. In
    a control one line of the literal form is changed.
    """
    checks = []
    for name, exchange, text, broken in (
        ("FR-A1", "average", "Algorithm 1, line by line", "with rows of hosts that do not see the node in the mean"),
        ("FR-A2", "table", "hosts one after another with a table", "with the table as it was before the iteration"),
    ):
        method, fed = small_instance(seed, exchange)
        start = method.start(fed)
        state = train(method, fed, ROUNDS, evaluate=()).state
        vectors = [torch.cat([w[n].flatten() for w in state.personal.values()]) for n in range(fed.clients)]
        trained = {"weights": vectors, "embeddings": method.seen}
        if exchange == "table":
            trained["table"] = [state.more.table]
        printed, changed = (literal(method, *start, ROUNDS, broken=wrong) for wrong in (False, True))
        for part, values in trained.items():
            check = name if part == "weights" else f"{name}-{part}"
            statement = f"{text}: largest difference of the {part}"
            checks.append(row(check, statement, largest_gap(values, printed[part]), 1e-10))
            checks.append(control(check, broken, largest_gap(values, changed[part]), 1e-3))
    return checks


def largest_gap(left: list[Tensor], right: list[Tensor]) -> float:
    """Return the largest absolute difference of two lists of tensors."""
    return worst_of(float((a - b).abs().max()) for a, b in zip(left, right, strict=True))


@dataclass(frozen=True, kw_only=True)
class Watched(Feras):
    """Feras that keeps in `seen` the embeddings that hosts use, one entry per iteration."""

    seen: list[Tensor] = field(default_factory=list, compare=False)

    def share(self, sample: Sample, h: Tensor, layer: int, state: State, t: int) -> Tensor:
        """Share as Feras does, and keep the result."""
        used = super().share(sample, h, layer, state, t)
        if layer == self.p:
            self.seen.append(used.detach())
        return used


def small_instance(seed: int, exchange: str) -> tuple[Watched, Federation]:
    """Return a method that averages weights in every iteration, and three hosts on a random graph of 120 nodes."""
    data = synthetic.draw_csbm(120, 8, 1.5, 2.0, 6, seed)
    quarter = torch.from_numpy(np.random.default_rng(seed).permutation(120) % 4)
    data.train_mask, data.val_mask, data.test_mask = quarter < 2, quarter == 2, quarter > 2
    options: dict[str, Any] = {"optimizer": "sgd", "lr": 0.5, "unit": "iteration", "q": 1, "budget": 15}
    method = Watched(model=GCN(6, 2, hidden=5, layers=3), exchange=exchange, coverage=10.0, **options)
    parts = partition.divide(data, "private-public(kappa=0.4)", 3, seed)
    return method, Federation.of(data, parts, seed, dtype=torch.float64)


# -- Eq. 7 to 24 and 38 to 42 -----------------------------------------------------------------------------------------


def linear_forms(seed: int) -> list[Row]:
    """Check Theta, the linear forms of both layers, the update rule and the spectral radius, on random systems."""
    rng = np.random.default_rng([seed, 4])
    worst = Largest()
    for _ in range(TRIALS):
        system = System.random(rng)
        w1, w2 = weights(rng, len(system.hosts))
        stacked = system.embeddings(w1)
        for n, host in enumerate(system.hosts):
            worst.note("I1", system.theta(n) @ stacked - _mean_over_hosts(system, n, stacked, seen=True))
            worst.note("I1 control", system.theta(n) @ stacked - _mean_over_hosts(system, n, stacked, seen=False))
            y = vec(system.output(n, w1, w2))
            for layer in (1, 2):
                b, m = system.linear(n, layer, w1, w2)
                w = vec(w1[n] if layer == 1 else w2)
                worst.note("C1", b + m @ w - y)
                worst.note("C1 control", m @ w - y)
                moved = step(system, n, layer, w1, w2, ETA, LAM)
                worst.note("C2", moved - (w - ETA * _gradient(system, n, layer, w1, w2)))
                plain = np.kron(w2.T, system.m_without_sharing(n)) if layer == 1 else m
                worst.note("C2 control", moved - ((1 - ETA * LAM) * w - ETA * plain.T @ (y - vec(host.y))))
            block = system.theta(n)[:, system.rows(n)]
            worst.note("I2 diagonal", block - np.diag(system.theta_star(n)))
            worst.note("I2 printed", block - np.diag(system.share(n)))
            rho, factor = radius(system.linear(n, 1, w1, w2)[1]), radius(w2)
            for name, m in (("I2", system.m(n)), ("I2 control", system.m_without_sharing(n))):
                product = factor * radius(m)
                # A host may see none of its nodes. Both radii are then 0.
                worst.note(name, (rho - product) / max(rho, product, 1e-9))
    zero = "Theta* is 0 where the host cannot see the node (corrected)"
    return [
        row("FR-I1", "Theta x^ is the mean over hosts that see the node and drew it", worst["I1"], ROUNDING),
        control("FR-I1", "the mean over all hosts that drew it", worst["I1 control"], ROUNDING),
        row("FR-C1", "vec(y^) = B + M vec(W), both layers (Eq. 15 with I_{m3})", worst["C1"], ROUNDING),
        control("FR-C1", "without B", worst["C1 control"], ROUNDING),
        row("FR-C2", "the update rule against automatic differentiation, both layers", worst["C2"], ROUNDING),
        control("FR-C2", "with the identity in place of Theta*", worst["C2 control"], ROUNDING),
        row("FR-I2", "rho(M1^T M1) = rho(W2 W2^T) rho(M M^T), relative", worst["I2"], 1e-10),
        control("FR-I2", "with the identity in place of Theta*", worst["I2 control"], 1e-10),
        row("FR-I2-printed", "Theta* = diag(1/count) as printed in Eq. 40", worst["I2 printed"], ROUNDING),
        row("FR-I2-diagonal", zero, worst["I2 diagonal"], ROUNDING),
    ]


def _mean_over_hosts(system: System, n: int, stacked: Array, seen: bool) -> Array:
    """Return the mean row of each of host n's nodes, over the hosts that drew it, or also see it (`seen`)."""
    node = np.concatenate([host.nodes for host in system.hosts])
    counted = np.concatenate([host.sees for host in system.hosts]) | (not seen)
    means = []
    for v in system.hosts[n].nodes:
        rows = stacked[(node == v) & counted]
        means.append(np.mean(rows, 0) if len(rows) else np.zeros(stacked.shape[1]))
    return np.stack(means)


def _gradient(system: System, n: int, layer: int, w1: list[Array], w2: Array) -> Array:
    """Return vec of the gradient of c_n (Eq. 10) by one layer, by automatic differentiation."""
    first = [torch.from_numpy(w).requires_grad_(m == n) for m, w in enumerate(w1)]
    second = torch.from_numpy(w2).requires_grad_()
    hosts = [(torch.from_numpy(h.a), torch.from_numpy(h.x)) for h in system.hosts]
    stacked = torch.cat([a @ x @ w for (a, x), w in zip(hosts, first, strict=True)])
    y = hosts[n][0] @ torch.from_numpy(system.theta(n)) @ stacked @ second
    leaf = first[n] if layer == 1 else second
    cost = 0.5 * LAM * leaf.square().sum() + 0.5 * (y - torch.from_numpy(system.hosts[n].y)).square().sum()
    (gradient,) = torch.autograd.grad(cost, leaf)
    return vec(gradient.numpy())


def norm_bound(seed: int) -> list[Row]:
    """Check Corollary B.1 on random Hermitian matrices, some of them complex. The control is not Hermitian."""
    rng = np.random.default_rng([seed, 5])
    worst = Largest()
    for _ in range(TRIALS):
        a = rng.normal(size=(6, 6)) + 1j * rng.normal(size=(6, 6)) * rng.integers(2)
        a, v = a + a.conj().T, rng.normal(size=6)
        worst.note("C3", np.linalg.norm(a @ v) / (np.abs(np.linalg.eigvalsh(a)).max() * np.linalg.norm(v)))
    other = np.array([[1.0, 5.0], [0.0, 1.0]])
    broken = float(np.linalg.norm(other @ np.array([0.0, 1.0])) / np.abs(np.linalg.eigvals(other)).max())
    return [
        row("FR-C3", "||A v|| / (rho(A) ||v||) for Hermitian A", worst["C3"], 1 + 1e-12),
        control("FR-C3", "for a matrix that is not Hermitian", broken, 1 + 1e-12),
    ]
