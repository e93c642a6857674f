"""Compare FedStruct's training with Algorithms 1, 2 and 4 as plain loops over clients (FS-A1, FS-A2, FS-A4).

With Hop2Vec (Algorithm 2) each client holds a copy of S and moves it by the gradient that the server last sent. If the
server knows the graph (Algorithm 4), a client receives z_v and dz_v / dtheta_s and computes its gradients from these,
without A- or S (Proposition 4). Steps are plain gradient descent, as printed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import DGCN
from fedrepro.engine.training import train
from fedrepro.errors import one_of
from fedrepro.papers.fedstruct import powers
from fedrepro.papers.fedstruct.method import structure_features
from fedrepro.papers.fedstruct.theory.setup import BETA, CLASSES, gap, local_operator, small_federation
from fedrepro.papers.fedstruct.variants import choice
from fedrepro.reporting.checks import worst_of
from fedrepro.runs.run import Run

HIDDEN, WIDTH, DEPTH, LR, PRUNE = 4, 6, 2, 0.5, 8


def algorithm(run: Run) -> dict[str, Any]:
    """Compare the loop with the train method on a small seeded graph.

    Options: structure ("Deg": Algorithm 1, "H2V": Algorithm 2), graph ("unknown"; "known": Algorithm 4), rounds (3).

    Returns:
        Largest differences after the last round. `weights`: of theta. `structure`: of S, None for "Deg". `predictions`:
        of the logits at all nodes. `moved`: how far training moved theta. `one_step_control` and `structure_control`:
        the differences of theta and S if the server leaves out the first client's gradients.
    """
    kind = one_of("structure", str(run.options.get("structure", "Deg")), ("Deg", "H2V"))
    known = one_of("graph", str(run.options.get("graph", "unknown")), ("unknown", "known")) == "known"
    rounds = int(run.options.get("rounds", 3))
    fed = small_federation(run.seed)
    options: dict[str, Any] = {"graph": "known", "combine": "layer"} if known else {"prune": PRUNE}
    options |= {"structure": kind, "width": WIDTH, "structure_hidden": (HIDDEN,), "norm": False}
    options |= {"structure_depth": len(BETA) - 1, "beta": BETA, "lr": LR, "optimizer": "sgd"}
    method = choice(model=DGCN(fed.features, CLASSES, hidden=HIDDEN, depth=DEPTH), **options)
    _, trained, state = train(method, fed, rounds, evaluate=())
    begun = method.start(fed)[1]
    box = _Box(fed, begun, known)
    theta, s = box.run(rounds)
    control, control_s = box.run(rounds, silent=0)
    weights = {name: w[0] for name, w in state.shared.items()}
    logits = method.predict(trained, state)[fed.batch.node_id.argsort()]
    result = {
        "weights": _largest(theta, weights),
        "structure": gap(s, weights["structure"]) if kind == "H2V" else None,
        "structure_control": gap(control_s, weights["structure"]) if kind == "H2V" else None,
        "predictions": gap(box.logits(theta, s, torch.arange(len(box.data.y))), logits),
        "moved": _largest(theta, {name: w[0] for name, w in begun.shared.items()}),
        "one_step_control": _largest(control, weights),
    }
    return {"result": result}


def _largest(a: Weights, b: Weights) -> float:
    return worst_of(gap(a[name], b[name]) for name in a)


class _Box:
    """The loop of a box on dense matrices: each client has its subgraph and its rows of A-, and nobody else's.

    Args:
        fed: the federation.
        state: the weights and the exchanged values before the first round.
        known: whether the server knows the graph.
    """

    def __init__(self, fed: Federation, state: State, known: bool) -> None:
        self.data, self.parts = fed.sources[0]
        self.known = known
        combined, _ = powers.combined(self.data, self.parts, BETA, 0 if known else PRUNE)
        self.abar = torch.from_numpy(combined.toarray())
        self.local = local_operator(self.data, self.parts)
        self.start = {name: w[0] for name, w in state.shared.items() if name != "structure"}
        self.s, self.hop = structure_features(state), "structure" in state.shared

    def run(self, epochs: int, silent: int = -1) -> tuple[Weights, Tensor]:
        """Return theta at the server, and S at the clients with the last gradient applied.

        Args:
            epochs: rounds of the loop.
            silent: a client whose gradient the server leaves out.
        """
        theta = self.start
        copies = [self.s for _ in self.parts]
        gradient_s = torch.zeros_like(self.s)
        labelled = int(self.data.train_mask.sum())
        for _ in range(epochs):
            sums = {name: torch.zeros_like(w) for name, w in theta.items()}
            sum_s = torch.zeros_like(self.s)
            for i, part in enumerate(self.parts):
                if self.hop:
                    copies[i] = copies[i] - LR * gradient_s  # Eq. 14
                v = part[self.data.train_mask[part]]
                by_theta, by_s = (self._from_jacobians if self.known else self._from_rows)(theta, copies[i], v)
                if i != silent:
                    sums = {name: sums[name] + by_theta[name] for name in sums}
                    sum_s = sum_s + by_s
            theta = {name: w - LR * sums[name] / labelled for name, w in theta.items()}  # Eq. 5
            gradient_s = sum_s / labelled
        return theta, copies[0] - LR * gradient_s if self.hop else copies[0]

    def features(self, w: Weights, v: Tensor) -> Tensor:
        """Return h_v of f over the client's own graph, `[nodes v, classes]`."""
        h = F.relu(self.data.x @ w["layer1.weight"] + w["layer1.bias"]) @ w["layer2.weight"] + w["layer2.bias"]
        for _ in range(DEPTH):
            h = self.local @ h
        return h[v]

    def structure(self, w: Weights, s: Tensor, v: Tensor) -> Tensor:
        """Return z_v = sum_u A-_vu g(s_u) (Eq. 9), `[nodes v, classes]`."""
        g = F.relu(s @ w["structure1.weight"] + w["structure1.bias"]) @ w["structure2.weight"] + w["structure2.bias"]
        return self.abar[v] @ g

    def logits(self, w: Weights, s: Tensor, v: Tensor) -> Tensor:
        """Return the sum of both embeddings (Eq. 10), or their combination by Theta_c (Eq. 51)."""
        h, z = self.features(w, v), self.structure(w, s, v)
        return h @ w["combine.features"] + z @ w["combine.structure"] if self.known else h + z

    def _from_rows(self, theta: Weights, s: Tensor, v: Tensor) -> tuple[Weights, Tensor]:
        """Return the gradients of L_i (Eq. 4) by theta and S, as in Algorithms 1 and 2."""
        leaves = {name: w.clone().requires_grad_() for name, w in theta.items()}
        at = s.clone().requires_grad_()
        loss = F.cross_entropy(self.logits(leaves, at, v), self.data.y[v], reduction="sum")
        *grads, by_s = torch.autograd.grad(loss, [*leaves.values(), at])
        return dict(zip(leaves, grads)), by_s

    def _from_jacobians(self, theta: Weights, s: Tensor, v: Tensor) -> tuple[Weights, Tensor]:
        """Return the same from z_v and its Jacobians, which the server sends (Algorithm 4)."""
        of_g = {name: w for name, w in theta.items() if name.startswith("structure")}
        z = self.structure(theta, s, v).clone().requires_grad_()
        by_weights: Weights = torch.func.jacrev(lambda w: self.structure(w, s, v))(of_g)
        by_structure: Tensor = torch.func.jacrev(lambda x: self.structure(theta, x, v))(s)

        leaves = {name: w.clone().requires_grad_() for name, w in theta.items() if name not in of_g}
        q = self.features(leaves, v) @ leaves["combine.features"] + z @ leaves["combine.structure"]
        loss = F.cross_entropy(q, self.data.y[v], reduction="sum")
        *grads, by_z = torch.autograd.grad(loss, [*leaves.values(), z])
        of_s = {name: torch.einsum("vc,vc...->...", by_z, jacobian) for name, jacobian in by_weights.items()}
        return dict(zip(leaves, grads)) | of_s, torch.einsum("vc,vc...->...", by_z, by_structure)
