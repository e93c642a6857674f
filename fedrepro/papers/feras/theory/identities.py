"""FR-F1, A1, A2, I1, I2, C1 to C3: Feras' algorithms written out, and its identities on random systems.

A check is a row (see `fedrepro.papers.fedgat.theory.identities`); beside each stands a control that must fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.data import partition, synthetic
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.training import train
from fedrepro.papers.feras.method import Feras, Rows
from fedrepro.papers.feras.saint.method import Sample
from fedrepro.papers.feras.theory import model as theory
from fedrepro.reporting.checks import ROUNDING, Row, control, row
from fedrepro.runs.run import Run

TRIALS, ROUNDS, ETA, LAM = 40, 3, 0.05, 0.3


def identities(run: Run) -> dict[str, Any]:
    """Rows of FR-F1, FR-A1, FR-A2, FR-I1, FR-I2, FR-C1, FR-C2, FR-C3, and what Eq. 15 and 40 print.

    Returns:
        "checks": rows.
    """
    return {"result": {"checks": [*figure_1(), *algorithms(run.seed), *linear_forms(run.seed), *norm_bound(run.seed)]}}


# -- the algorithms ---------------------------------------------------------------------------------------------------


def figure_1() -> list[Row]:
    """Node A is drawn by two of the hosts that see it, B by its owner and another host, C not by its owner."""
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
    """What hosts use as embeddings in every iteration, the weights and the table after the last: the method against
    Algorithm 1 and against the sequential table, host by host. A control breaks one line of the latter.
    """
    out = []
    for id, exchange, text, broken in (
        ("FR-A1", "average", "Algorithm 1, line by line", "with rows of hosts that do not see the node in the mean"),
        ("FR-A2", "table", "hosts one after another with a table", "with the table as it was before the iteration"),
    ):
        method, fed = _instance(seed, exchange)
        trained = _trained(method, fed)
        holding, state = method.start(fed)
        same, other = (literal(method, holding, state, ROUNDS, broken=wrong) for wrong in (False, True))
        for name in trained:
            each = id if name == "weights" else f"{id}-{name}"
            out.append(row(each, f"{text}: largest difference of the {name}", _gap(trained[name], same[name]), 1e-10))
            out.append(control(each, broken, _gap(trained[name], other[name]), 1e-3))
    return out


def _gap(left: list[Tensor], right: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(left, right, strict=True))


@dataclass(frozen=True, kw_only=True)
class _Watched(Feras):
    """Feras that keeps in `seen` what hosts use as embeddings, one entry an iteration."""

    seen: list[Tensor] = field(default_factory=list, compare=False)

    def share(self, sample: Sample, h: Tensor, layer: int, state: State, t: int) -> Tensor:
        used = super().share(sample, h, layer, state, t)
        if layer == self.p:
            self.seen.append(used.detach())
        return used


def _instance(seed: int, exchange: str) -> tuple[_Watched, Federation]:
    """The method with small sub-graphs and weights averaged every iteration, and three hosts on a random graph."""
    data = synthetic.csbm(120, 8, 1.5, 2.0, 6, seed)
    split = np.random.default_rng(seed).permutation(120) % 4
    data.train_mask, data.val_mask, data.test_mask = (
        torch.from_numpy(part) for part in (split < 2, split == 2, split > 2)
    )
    method = _Watched(
        model=GCN(6, 2, hidden=5, layers=3), optimizer="sgd", lr=0.5, exchange=exchange, unit="iteration", q=1,
        budget=15, coverage=10.0,
    )  # fmt: skip
    parts = partition.partition(data, "private-public(kappa=0.4)", 3, seed)
    return method, Federation.of(data, parts, seed, dtype=torch.float64)


def _trained(method: _Watched, fed: Federation) -> dict[str, list[Tensor]]:
    """`ROUNDS` iterations of the method, as `literal` returns them."""
    state = train(method, fed, ROUNDS, evaluate=()).state
    weights = [torch.cat([w[n].flatten() for w in state.personal.values()]) for n in range(fed.clients)]
    found = {"weights": weights, "embeddings": method.seen}
    return found | ({"table": [state.more.table]} if method.exchange == "table" else {})


def literal(method: Feras, fed: Federation, state: State, rounds: int, broken: bool = False) -> dict[str, list[Tensor]]:
    """Algorithm 1 or the table, host by host on the sub-graphs the method draws, in dense matrices and dictionaries.

    Args:
        broken: with one line changed: the mean takes rows of hosts that do not see the node, or a host takes nothing
            that was written in this iteration.

    Returns:
        "weights", one vector a host; "embeddings", one `[nodes, width]` an iteration, as used in the layers after the
        first; "table", one `[nodes, width]`.
    """
    own = [{name: w[n].clone().requires_grad_() for name, w in state.personal.items()} for n in range(fed.clients)]
    table: dict[int, Tensor] = {}
    embeddings: list[Tensor] = []
    for t in range(rounds):
        sample = method.sample(fed.at(t, 0), state, t)
        batch, a = sample.fed.batch, sample.a.dense()
        part = [slice(int(batch.ptr[n]), int(batch.ptr[n + 1])) for n in range(fed.clients)]
        x = sample.fed.x
        assert isinstance(x, Tensor)
        hidden = [
            F.relu(a[p, p] @ x[p] @ w["layer1.weight"] + w["layer1.bias"]) for p, w in zip(part, own, strict=True)
        ]
        pushed: dict[int, dict[int, Tensor]] = {}  # line 8: node -> host -> row
        for n, p in enumerate(part):
            for node, sees, h in zip(batch.node_id[p].tolist(), batch.visible[p].tolist(), hidden[n], strict=True):
                if sees or (broken and method.exchange == "average"):
                    pushed.setdefault(node, {})[n] = h
        used = []
        for n, p in enumerate(part):
            rows = []
            for node, sees in zip(batch.node_id[p].tolist(), batch.visible[p].tolist(), strict=True):
                got = pushed.get(node, {})
                if method.exchange == "average":  # lines 10 to 12
                    each = [h if m == n else h.detach() for m, h in got.items()]
                    rows.append(torch.stack(each).mean(0) if each else torch.zeros_like(hidden[n][0]))
                else:
                    before = [] if broken else [h.detach() for m, h in got.items() if m < n]
                    stale = table.get(node, torch.zeros_like(hidden[n][0]))
                    rows.append(got[n] if sees else before[-1] if before else stale)
            used.append(torch.stack(rows))
            h = F.relu(a[p, p] @ used[n] @ own[n]["layer2.weight"] + own[n]["layer2.bias"])
            logits = h @ own[n]["layer3.weight"] + own[n]["layer3.bias"]
            loss = (F.cross_entropy(logits, batch.y[p], reduction="none") * sample.share[p]).sum()
            grads = torch.autograd.grad(loss, list(own[n].values()), retain_graph=True)
            own[n] = {k: (w - method.lr * g).detach().requires_grad_() for (k, w), g in zip(own[n].items(), grads)}
        embeddings.append(torch.cat(used).detach())
        table |= {node: list(got.values())[-1].detach() for node, got in pushed.items()}
        mean = {name: torch.stack([w[name] for w in own]).mean(0).detach() for name in own[0]}  # line 18
        own = [{name: w.clone().requires_grad_() for name, w in mean.items()} for _ in own]
    empty = torch.zeros_like(hidden[0][0])
    stacked = torch.stack([table.get(v, empty).detach() for v in range(fed.sources[0].data.num_nodes)])
    weights = [torch.cat([w.detach().flatten() for w in each.values()]) for each in own]
    return {"weights": weights, "embeddings": embeddings, "table": [stacked]}


# -- Eq. 7 to 24 and 38 to 40 -----------------------------------------------------------------------------------------


def linear_forms(seed: int) -> list[Row]:
    """Theta, the linear forms of both layers, the update rule and the spectral radius, on random systems."""
    rng = np.random.default_rng([seed, 4])
    worst: dict[str, float] = {}

    def note(name: str, error: Any) -> None:
        worst[name] = max(worst.get(name, 0.0), float(np.abs(error).max()))

    for _ in range(TRIALS):
        system = theory.system(rng)
        w1, w2 = theory.weights(rng, len(system.hosts))
        stacked = system.embeddings(w1)
        for n, host in enumerate(system.hosts):
            note("I1", system.theta(n) @ stacked - _averaged(system, n, stacked, seen=True))
            note("I1 control", system.theta(n) @ stacked - _averaged(system, n, stacked, seen=False))
            y = theory.vec(system.output(n, w1, w2))
            for layer in (1, 2):
                b, m = system.linear(n, layer, w1, w2)
                w = theory.vec(w1[n] if layer == 1 else w2)
                note("C1", b + m @ w - y)
                note("C1 control", m @ w - y)
                moved = theory.step(system, n, layer, w1, w2, ETA, LAM)
                note("C2", moved - (w - ETA * _gradient(system, n, layer, w1, w2)))
                plain = np.kron(w2.T, system.m(n, shared=False)) if layer == 1 else m
                note("C2 control", moved - ((1 - ETA * LAM) * w - ETA * plain.T @ (y - theory.vec(host.y))))
            block = system.theta(n)[:, system.part(n)]
            note("I2 diagonal", block - np.diag(system.own(n)))
            note("I2 printed", block - np.diag(system.own(n, printed=True)))
            rho, factor = theory.radius(system.linear(n, 1, w1, w2)[1]), theory.radius(w2)
            for name, shared in (("I2", True), ("I2 control", False)):
                product = factor * theory.radius(system.m(n, shared=shared))
                note(name, (rho - product) / max(rho, product, 1e-9))  # a host may see none of its nodes: 0 = 0
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
        row(
            "FR-I2-diagonal",
            "Theta* is 0 where the host cannot see the node (corrected)",
            worst["I2 diagonal"],
            ROUNDING,
        ),
    ]


def _averaged(system: theory.System, n: int, stacked: np.ndarray, seen: bool) -> np.ndarray:
    """The mean over hosts, node by node."""
    rows = []
    for v in system.hosts[n].nodes:
        each = [
            stacked[system.part(m)][i]
            for m, host in enumerate(system.hosts)
            for i in np.flatnonzero(host.nodes == v)
            if host.sees[i] or not seen
        ]
        rows.append(np.mean(each, 0) if each else np.zeros(stacked.shape[1]))
    return np.stack(rows)


def _gradient(system: theory.System, n: int, layer: int, w1: list[np.ndarray], w2: np.ndarray) -> np.ndarray:
    """vec of the gradient of c_n (Eq. 10) by one layer, by automatic differentiation."""
    first = [torch.from_numpy(w).requires_grad_(m == n) for m, w in enumerate(w1)]
    second = torch.from_numpy(w2).requires_grad_()
    hosts = [(torch.from_numpy(h.a), torch.from_numpy(h.x)) for h in system.hosts]
    stacked = torch.cat([a @ x @ w for (a, x), w in zip(hosts, first, strict=True)])
    y = hosts[n][0] @ torch.from_numpy(system.theta(n)) @ stacked @ second
    leaf = first[n] if layer == 1 else second
    cost = 0.5 * LAM * leaf.square().sum() + 0.5 * (y - torch.from_numpy(system.hosts[n].y)).square().sum()
    (grad,) = torch.autograd.grad(cost, leaf)
    return theory.vec(grad.numpy())


def norm_bound(seed: int) -> list[Row]:
    """Corollary B.1 on random Hermitian matrices, complex ones among them; it fails for a nilpotent matrix."""
    rng = np.random.default_rng([seed, 5])
    worst = 0.0
    for _ in range(TRIALS):
        a = rng.normal(size=(6, 6)) + 1j * rng.normal(size=(6, 6)) * rng.integers(2)
        a, v = a + a.conj().T, rng.normal(size=6)
        worst = max(worst, float(np.linalg.norm(a @ v) / (np.abs(np.linalg.eigvalsh(a)).max() * np.linalg.norm(v))))
    other = np.array([[1.0, 5.0], [0.0, 1.0]])
    broken = float(np.linalg.norm(other @ np.array([0.0, 1.0])) / np.abs(np.linalg.eigvals(other)).max())
    return [
        row("FR-C3", "||A v|| / (rho(A) ||v||) for Hermitian A", worst, 1 + 1e-12),
        control("FR-C3", "for a matrix that is not Hermitian", broken, 1 + 1e-12),
    ]
