"""FS-A1, A2, A4: the boxes of Algorithms 1, 2 and 4 as plain loops over clients, against the method.

With Hop2Vec (Algorithm 2) each client holds its own copy of S and moves it by the gradient that the server last sent.
Where the server knows the graph (Algorithm 4) a client receives z_v and dz_v / dtheta_s and computes its gradients from
these (Proposition 4), without A- or S. Steps are plain descent, as printed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import subgraph

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import DGCN
from fedrepro.engine.training import train
from fedrepro.errors import one_of
from fedrepro.papers.fedstruct import powers as fedstruct_powers
from fedrepro.papers.fedstruct.method import FedStruct
from fedrepro.papers.fedstruct.theory.gradients import BETA, CLASSES, small_federation
from fedrepro.runs.run import Run

HIDDEN, WIDTH, DEPTH, LR = 4, 6, 2, 0.5


def algorithm(run: Run) -> dict[str, Any]:
    """The loop against the train method on a small seeded graph.

    Options: structure ("Deg": Algorithm 1, "H2V": Algorithm 2), graph ("unknown"; "known": Algorithm 4), rounds (3).

    Returns:
        Largest differences after the last round of theta (`weights`), of S (`structure`; None for "Deg"), and of
        `predictions` at all nodes; `moved`: how far training moved theta; `one_step_control`: the difference of theta
        when the first client's gradient is left out.
    """
    kind = one_of("structure", str(run.options.get("structure", "Deg")), ("Deg", "H2V"))
    known = one_of("graph", str(run.options.get("graph", "unknown")), ("unknown", "known")) == "known"
    rounds = int(run.options.get("rounds", 3))
    fed = small_federation(run.seed)
    options: dict[str, Any] = {"graph": "known", "combine": "layer", "prune": 0} if known else {"prune": 8}
    method = FedStruct(
        model=DGCN(fed.features, CLASSES, hidden=HIDDEN, depth=DEPTH), structure=kind, width=WIDTH, lr=LR,
        structure_hidden=(HIDDEN,), structure_depth=len(BETA) - 1, beta=BETA, norm=False, optimizer="sgd", **options,
    )  # fmt: skip
    made = train(method, fed, rounds, evaluate=())
    begun = method.start(fed)[1]
    theta, s = _loop(method, fed, begun, rounds, known)
    control, _ = _loop(method, fed, begun, rounds, known, silent=0)
    moved = {name: w[0] for name, w in made.state.shared.items()}
    logits = method.predict(made.fed, made.state)[fed.batch.node_id.argsort()]
    world = _World(method, fed, begun)
    predictions = world.logits(theta, s, torch.arange(len(world.data.y)))
    return {
        "result": {
            "weights": _gap(theta, moved), "structure": _gap({"structure": s}, moved) if kind == "H2V" else None,
            "predictions": float((predictions - logits).abs().max()),
            "moved": _gap(theta, {name: w[0] for name, w in begun.shared.items()}),
            "one_step_control": _gap(control, moved),
        }
    }  # fmt: skip


def _gap(a: Weights, b: Weights) -> float:
    return max(float((a[name] - b[name]).abs().max()) for name in a)


class _World:
    """The graph cut up: each client's own graph and rows of A-; nothing here moves."""

    def __init__(self, method: FedStruct, fed: Federation, state: State) -> None:
        source = fed.sources[0]
        self.method, self.data, self.parts = method, source.data, source.parts
        kept, _ = fedstruct_powers.combined(self.data, self.parts, BETA, method.prune, method.budget)
        self.abar = torch.from_numpy(kept.toarray())
        self.local = torch.zeros(len(self.data.y), len(self.data.y), dtype=torch.float64)
        for part in self.parts:
            edges, _ = subgraph(part, self.data.edge_index, num_nodes=len(self.data.y))
            a = torch.zeros_like(self.local)
            a[edges[1], edges[0]] = 1.0
            a[part, part] = 1.0
            self.local[part] = a[part] / a[part].sum(1, keepdim=True)
        got = state.more.exchanged
        self.s = state.shared["structure"][0] if got.features is None else got.features[0]

    def features(self, w: Weights, v: Tensor) -> Tensor:
        """h_v of f, over the client's own graph."""
        h = F.relu(self.data.x @ w["layer1.weight"] + w["layer1.bias"]) @ w["layer2.weight"] + w["layer2.bias"]
        for _ in range(DEPTH):
            h = self.local @ h
        return h[v]

    def structure(self, w: Weights, s: Tensor, v: Tensor) -> Tensor:
        """z_v = sum_u A-_vu g(s_u) (Eq. 9)."""
        g = F.relu(s @ w["structure1.weight"] + w["structure1.bias"]) @ w["structure2.weight"] + w["structure2.bias"]
        return self.abar[v] @ g

    def logits(self, w: Weights, s: Tensor, v: Tensor) -> Tensor:
        """Eq. 10, or Eq. 51 with Theta_c."""
        h, z = self.features(w, v), self.structure(w, s, v)
        if self.method.combine == "layer":
            return h @ w["combine.features"] + z @ w["combine.structure"]
        return h + z


def _loop(
    method: FedStruct, fed: Federation, state: State, epochs: int, known: bool, silent: int = -1
) -> tuple[Weights, Tensor]:
    """The epochs of a box; theta at the server and S as all clients hold it, with the last gradient applied.

    Args:
        silent: a client whose gradient is left out.
    """
    world = _World(method, fed, state)
    theta = {name: w[0].clone() for name, w in state.shared.items() if name != "structure"}
    copies = [world.s.clone() for _ in world.parts]  # of S, one per client
    hop = "structure" in state.shared
    gradient_s = torch.zeros_like(world.s)  # "Server initialize"
    labelled = int(world.data.train_mask.sum())
    for _ in range(epochs):
        sums = {name: torch.zeros_like(w) for name, w in theta.items()}
        sum_s = torch.zeros_like(world.s)
        for i, part in enumerate(world.parts):
            if hop:
                copies[i] = copies[i] - LR * gradient_s  # Eq. 14
            v = part[world.data.train_mask[part]]
            compute = _from_jacobians if known else _from_rows
            by_theta, by_s = compute(world, theta, copies[i], v)
            if i != silent:
                sums = {name: sums[name] + by_theta[name] for name in sums}
                sum_s = sum_s + by_s
        theta = {name: w - LR * sums[name] / labelled for name, w in theta.items()}  # Eq. 5
        gradient_s = sum_s / labelled
    return theta, copies[0] - LR * gradient_s if hop else copies[0]


def _from_rows(world: _World, theta: Weights, s: Tensor, v: Tensor) -> tuple[Weights, Tensor]:
    """Algorithms 1 and 2: gradients of L_i (Eq. 4) by theta and S, from the client's rows of A- and S."""
    leaves = {name: w.clone().requires_grad_() for name, w in theta.items()}
    at = s.clone().requires_grad_()
    loss = F.cross_entropy(world.logits(leaves, at, v), world.data.y[v], reduction="sum")
    *grads, by_s = torch.autograd.grad(loss, [*leaves.values(), at])
    return dict(zip(leaves, grads)), by_s


def _from_jacobians(world: _World, theta: Weights, s: Tensor, v: Tensor) -> tuple[Weights, Tensor]:
    """Algorithm 4: the server sends z_v and its Jacobians; the client needs neither A- nor S (Proposition 4)."""
    of_g = {name: w for name, w in theta.items() if name.startswith("structure")}
    sent_z = world.structure(theta, s, v)
    by_weights: Weights = torch.func.jacrev(lambda w: world.structure(w, s, v))(of_g)
    by_structure: Tensor = torch.func.jacrev(lambda x: world.structure(theta, x, v))(s)

    leaves = {name: w.clone().requires_grad_() for name, w in theta.items() if name not in of_g}
    z = sent_z.clone().requires_grad_()
    q = world.features(leaves, v) @ leaves["combine.features"] + z @ leaves["combine.structure"]
    loss = F.cross_entropy(q, world.data.y[v], reduction="sum")
    *grads, by_z = torch.autograd.grad(loss, [*leaves.values(), z])
    found = dict(zip(leaves, grads))
    found |= {name: torch.einsum("vc,vc...->...", by_z, each) for name, each in by_weights.items()}
    return found, torch.einsum("vc,vc...->...", by_z, by_structure)
