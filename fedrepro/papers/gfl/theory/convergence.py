"""GFL's Lemma A.1, and Theorem 4.1 with Corollary 4.2: what the bounds are made of, measured on small federations.

The theorem bounds the mean over updates of `||grad F||^2` at the average by four terms, none of them negative. Their
constants are not given; that of the first is the 2 of the descent lemma, `2 (F(W^0) - F*) / (eta T)`, so what stays
below this term stays below the bound, whatever the other constants. F*, which is not known, is at most the lowest F
met, which makes the term smaller than it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import MLP
from fedrepro.engine.training import train
from fedrepro.papers.gfl import data as csbm_tasks
from fedrepro.papers.gfl.clients import FIRST, SECOND, Graph, Own
from fedrepro.papers.gfl.method import GFLAPPNP
from fedrepro.papers.gfl.theory.identities import central_loss, federation, share_of, watching
from fedrepro.runs.run import Run

HIDDEN = 64


# -- Lemma A.1 --------------------------------------------------------------------------------------------------------


def compensation_error(run: Run) -> dict[str, Any]:
    """GFL-L1: both sides of `||h^_{j->k} - h_{j->k}||^2 <= 2 eta^2 rho_h^2 I^2 Delta_k`, largest over j, k and updates.

    h^ uses the average of the last exchange, h the client's current weights. rho_h is the largest norm of the Jacobian
    of h by the weights at any sample and any client's weights (Assumption 5), Delta the largest squared norm of a
    gradient that was followed (Assumption 6). A bound is to be made of the constants of other runs.
    """
    fed = federation(run.dataset, run.seed)
    local, lr, rounds = int(run.options["local_epochs"]), float(run.options["lr"]), int(run.options["rounds"])
    most = {"largest_error": 0.0, "rho_h": 0.0, "Delta": 0.0}
    before: list[tuple[int, Tensor]] = []

    @dataclass(frozen=True, kw_only=True)
    class Watched(GFLAPPNP):
        def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
            here = {name: w.detach() for name, w in weights.items()}
            graph, (w1, w2) = state.more.graphs[0], (state.shared[name][0] for name in (FIRST, SECOND))
            first, second = self.first_layers(here, fed, state)[graph.trained], here[SECOND][graph.trained]
            error = F.relu(graph.x @ first) @ second - F.relu(graph.x @ w1) @ w2
            means = error.new_zeros(len(error), len(graph.a), error.shape[2])
            means.index_add_(1, graph.node, graph.share[None, :, None] * error)
            found = {
                "largest_error": float(means.square().sum(2).max()),
                "rho_h": float(_jacobian_norms(graph.x, first, second).max()),
            }
            flat = torch.cat([first.flatten(1), second.flatten(1)], 1)
            if before and before[0][0] == t:
                found["Delta"] = float(((flat - before[0][1]) / lr).square().sum(1).max())
            before[:] = [(t, flat)]
            most.update({name: max(most[name], value) for name, value in found.items()})
            return super().local_loss(weights, fed, state, t)

    model = MLP(fed.features, fed.classes, HIDDEN)
    train(Watched(model=model, lr=lr, local_epochs=local, share=share_of(run.dataset)), fed, rounds, evaluate=())
    return {"result": {**most, "updates": local * rounds}}


def _jacobian_norms(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Spectral norms `[clients, samples]` of the Jacobian J of h = relu(x W1) W2 by all weights.

    `J J^T = |relu(x W1)|^2 I + |x|^2 W2^T diag(m) W2`, with m the hidden units that are on.
    """
    hidden = F.relu(x @ first)
    on = (hidden > 0).to(x.dtype)
    outer = torch.einsum("ksh,khc,khd->kscd", on, second, second) * x.square().sum(1)[None, :, None, None]
    norms: Tensor = (torch.linalg.eigvalsh(outer)[..., -1] + hidden.square().sum(2)).sqrt()
    return norms


# -- Theorem 4.1 and Corollary 4.2 ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ascending(GFLAPPNP):
    """The printed sign (GFL-Q3), which climbs: no bound on its gradients can hold."""

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        return -super().local_loss(weights, fed, state, t)


def rate(run: Run) -> dict[str, Any]:
    """GFL-Th1, GFL-Th2: `mean`, of `||grad F(W)||^2` at the averages before each round, F the clients' mean loss.

    Beside it what the theorem asks for: `first_term`, `2 (F(W^0) - lowest F) / (eta T)`, and `condition`, of which it
    wants `13 I eta^2 rho_f^2 < 1`. Options: updates T, local_epochs I, lr (0 for sqrt(N/T)), error (of each h_j),
    batch, ascend (the printed sign).
    """
    options = run.options
    fed = federation(run.dataset, run.seed)
    updates, local = int(options["updates"]), int(options["local_epochs"])
    nodes = csbm_tasks.clients(run.dataset)
    lr = float(options["lr"]) or (nodes / updates) ** 0.5
    norms: list[float] = []
    losses: list[float] = []
    smooth: list[float] = []

    def look(ordered: Federation, state: State) -> None:
        graph, own = state.more.graphs[0], state.more.own
        leaves = [state.shared[name][0].clone().requires_grad_() for name in (FIRST, SECOND)]
        loss = central_loss(ordered, graph, own, *leaves).mean()
        losses.append(float(loss.detach()))
        norms.append(sum(float(g.square().sum()) for g in torch.autograd.grad(loss, leaves)))
        if len(norms) in (1, updates // local + 1):
            smooth.append(smoothness(ordered, graph, own, leaves[0].detach(), leaves[1].detach()))

    kind = Ascending if options.get("ascend") else GFLAPPNP
    method = kind(
        model=MLP(fed.features, fed.classes, HIDDEN), lr=lr, local_epochs=local, batch=int(options["batch"]),
        share="train",
    )  # fmt: skip
    look(*method.start(fed))
    train(watching(method, look, float(options["error"])), fed, updates // local, evaluate=())
    rho = max(smooth)
    return {
        "result": {
            "mean": sum(norms[:-1]) / len(norms[:-1]), "at_start": norms[0], "eta": lr, "N": nodes,
            "loss_at_start": losses[0], "lowest_loss": min(losses),
            "first_term": 2 * (losses[0] - min(losses)) / (lr * updates),
            "rho_f": rho, "condition": 13 * local * lr**2 * rho**2,
            "lambda_max": csbm_tasks.parameters(run.dataset)["lambda_max"],
            "sigma_H": (nodes * fed.classes) ** 0.5 * float(options["error"]),
        }
    }  # fmt: skip


def smoothness(
    fed: Federation, graph: Graph, own: Own, first: Tensor, second: Tensor, clients: int = 5, steps: int = 6
) -> float:
    """The largest curvature of the losses F_k of the first clients at some weights, by power iteration: at most rho_f,
    which is the largest over all clients and weights.
    """
    held = graph.share > 0
    x, y = fed.x[graph.rows][held], fed.batch.y  # type: ignore[index]
    place = held.cumsum(0) - 1
    few = slice(graph.trained.start, min(graph.trained.start + clients, graph.trained.stop))
    rows = own.rows[few]
    mine = place[rows - graph.rows.start]
    mean = torch.zeros(len(graph.a), len(x), dtype=x.dtype)
    mean[graph.node[held], torch.arange(len(x))] = graph.share[held]
    mix, diagonal = graph.off[: len(rows)] @ mean, graph.a.diagonal()[graph.train[: len(rows)]]

    def loss(w1: Tensor, w2: Tensor, own_rows: Tensor, target: Tensor, part: Tensor, row: Tensor, a: Tensor) -> Tensor:
        h = F.relu(x @ w1) @ w2
        logits = a * h[own_rows] + row @ h
        return (F.cross_entropy(logits, target, reduction="none") * part).sum()

    data = (mine, y[rows], own.share[few], mix, diagonal)
    gradient = torch.func.grad(loss, argnums=(0, 1))

    def curve(v1: Tensor, v2: Tensor, *client: Tensor) -> tuple[Tensor, Tensor]:
        made: tuple[Tensor, Tensor] = torch.func.jvp(
            lambda w1, w2: gradient(w1, w2, *client), (first, second), (v1, v2)
        )[1]
        return made

    v = torch.func.vmap(gradient, in_dims=(None, None, *[0] * len(data)))(first, second, *data)
    norm = torch.zeros(len(rows), dtype=x.dtype)
    for _ in range(steps):
        norm = (v[0].square().sum((1, 2)) + v[1].square().sum((1, 2))).sqrt()[:, None, None]
        v = tuple(each / norm.clamp(min=1e-300) for each in v)
        v = torch.func.vmap(curve)(*v, *data)
    return float((v[0].square().sum((1, 2)) + v[1].square().sum((1, 2))).sqrt().max())
