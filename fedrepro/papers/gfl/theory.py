"""Check GFL's identities, its Lemma A.1, and Theorem 4.1 with Corollary 4.2 on small federations.

The theorem bounds the mean over updates of `||grad F||^2` at the average by four terms, none of them negative. The
paper does not state their constants. We can still test the bound: the first term has the constant 2 of the descent
lemma, `2 (F(W^0) - F*) / (eta T)`, so that a mean below it is below the bound. F* is not known. The lowest F met is at
least F*, so putting it for F* only makes the first term smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.data import datasets, partition
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import MLP
from fedrepro.engine.training import train
from fedrepro.papers.gfl.clients import FIRST, SECOND, Graph, Samples, propagation, propagation_weights
from fedrepro.papers.gfl.data import TASKS, clients, components, parameters, topology
from fedrepro.papers.gfl.method import GFLAPPNP, RECEIVED, FedMLP, Memory, U
from fedrepro.papers.gfl.protocol import algorithm1, encode
from fedrepro.reporting.checks import worst_of
from fedrepro.runs.run import Run

NAMES = (FIRST, SECOND)


def federation(name: str, seed: int, dtype: torch.dtype = torch.float64) -> Federation:
    """Return a repetition of one of GFL's data sets, with one client per node of its graph."""
    data = datasets.assemble(name, "", "public", seed)
    return Federation.of(data, partition.divide(data, "blocks", clients(name), seed), seed, dtype=dtype)


def setting(run: Run, **options: Any) -> tuple[Federation, GFLAPPNP]:
    """Return the federation of a run and GFL-APPNP for it, with the means that its task has (GFL-Q7)."""
    fed = federation(run.dataset, run.seed)
    share = "train" if TASKS[run.dataset].supervised else "all"
    return fed, GFLAPPNP(model=MLP(fed.features, fed.classes, 64), **{"share": share, **options})


def watching(method: GFLAPPNP, look: Callable[[Federation, State], None], error: float = 0.0) -> GFLAPPNP:
    """Return the same method, which calls `look(federation, state)` after each round.

    Args:
        error: standard deviation of an error added to every h_j before the server sums C_k. This is an estimation
            error with sigma_j^2 = classes * error^2 (Assumption 2).
    """

    def disturb(fed: Federation, memory: Memory, t: int) -> None:
        for run, graph in enumerate(memory.graphs if error else ()):
            drawn = random.normal((len(graph.a), fed.classes), "estimation error", fed.seeds[run], t)
            memory.received.c[graph.trained] += graph.off @ (error * drawn.to(graph.a))

    @dataclass(frozen=True, kw_only=True)
    class Watched(type(method)):  # type: ignore[misc]
        def start(self, fed: Federation) -> tuple[Federation, State]:
            fed, state = super().start(fed)
            disturb(fed, state.more, 0)
            return fed, state

        def aggregate(self, state: State, update: Update) -> State:
            state = super().aggregate(state, update)
            disturb(update.fed, state.more, update.round + 1)
            look(update.fed, state)
            return state

    return Watched(**{item.name: getattr(method, item.name) for item in fields(method)})


def largest_difference(state: State, weights: list[Tensor]) -> float:
    """Return the largest difference between the server's weights of one run and others."""
    return worst_of(float((state.shared[name][0] - w).abs().max()) for name, w in zip(NAMES, weights))


def central_loss(fed: Federation, graph: Graph, samples: Samples, first: Tensor, second: Tensor) -> Tensor:
    """Return each training client's loss `[clients]` of central APPNP at one set of weights.

    One forward pass covers all samples and the whole propagation matrix, and nothing is split between clients.
    """
    h = encode(fed.x[graph.rows], (first, second))  # type: ignore[index]
    diagonal = graph.a.diagonal()
    z = diagonal[graph.node, None] * h + ((graph.a - torch.diag(diagonal)) @ graph.means(h[graph.held]))[graph.node]
    rows = samples.rows[graph.trained]
    losses = F.cross_entropy(z[rows.flatten() - graph.rows.start], fed.batch.y[rows.flatten()], reduction="none")
    return (losses.view_as(rows) * samples.share[graph.trained]).sum(1)


# -- identities -------------------------------------------------------------------------------------------------------


def weights(run: Run) -> dict[str, Any]:
    """Return the sum of the powers' weights, and the share that a node keeps of itself, A_kk (GFL-I1)."""
    graph = topology("csbm-DNC")
    result = {}
    for kind in ("appnp", "truncated", "printed"):
        powers = propagation_weights(kind, 0.1, 10)
        a = propagation(graph.edge_index, graph.num_nodes, kind, 0.1, 10)
        kept = float((a.diagonal() / a.sum(1)).mean())
        result[kind] = {"sum": sum(powers), "own_weight": powers[0], "own_share": kept}
    return {"result": result}


def statistics(run: Run) -> dict[str, Any]:
    """Return phi, lambda_max(B_N L^+), lambda_2 and class balance of a graph (GFL-I4, GFL-I5, GFL-P1)."""
    return {"result": parameters(run.dataset)}


def subcora_statistics(run: Run) -> dict[str, Any]:
    """Return the sizes of one sub-graph of Cora, and the share of test nodes that a training node reaches (GFL-P2)."""
    data = datasets.assemble(run.dataset, "", "public", run.seed)
    count, label = components(data)
    per_class = torch.bincount(data.y[data.train_mask], minlength=data.num_classes).double()
    reached = torch.isin(torch.from_numpy(label), torch.from_numpy(label)[data.train_mask])
    result = {
        "nodes": data.num_nodes,
        "edges": data.edge_index.shape[1] // 2,
        "components": count,
        **{part: int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test")},
        "class_count_sd": float(per_class.std(correction=0)),
        "test_reached": float(reached[data.test_mask].double().mean()),
    }
    return {"result": result}


def gradient_split(run: Run) -> dict[str, Any]:
    """Compare the gradient of one client's loss by Eq. 15b with automatic differentiation (GFL-I2, GFL-Q3).

    A step of the printed sign (y - y^) ascends, since its cosine to the gradient is -1.
    """
    fed, method = setting(run)
    fed, state = method.start(fed)
    graph, samples, received = state.more.graphs[0], state.more.samples, state.more.received
    first, second = (state.shared[name][0].clone().requires_grad_() for name in NAMES)
    exact = torch.autograd.grad(central_loss(fed, graph, samples, first, second)[0], [first, second])
    local = {name: w.detach().requires_grad_() for name, w in method.begin_round(fed, state, 0).items()}
    loss = method.local_loss(local, fed.at(0, 0), state, 0)
    names = (U, RECEIVED, SECOND)
    steps = dict(zip(names, torch.autograd.grad(loss[0], [local[name] for name in names])))
    split = (method.first_layers(steps, fed, state)[0] - state.shared[FIRST][0], steps[SECOND][0])
    error = worst_of(float((a - b).abs().max() / b.abs().max()) for a, b in zip(split, exact))
    norm = float(torch.cat([part.flatten() for part in exact]).norm())
    # This is the second layer's part of Eq. 15b as printed.
    hidden = F.relu(samples.x[0] @ first)
    logits = received.diagonal[0] * (hidden @ second) + received.c[0]
    residual = (F.one_hot(fed.batch.y[samples.rows[0]], fed.classes) - logits.softmax(1)).detach()
    printed = received.diagonal[0] * hidden.T @ residual * samples.share[0, 0]
    printed = printed + received.active[0][:, None] * (residual * samples.share[0][:, None]).sum(0)
    cosine = float(F.cosine_similarity(printed.detach().flatten(), exact[1].flatten(), dim=0))
    return {"result": {"relative_error": error, "printed_cosine": cosine, "gradient_norm": norm}}


def one_local_step(run: Run) -> dict[str, Any]:
    """Compare rounds with gradient steps of central APPNP, by the largest difference of weights (GFL-I3).

    Returns:
        `largest_difference` is that of rounds of I = 1 and one step each. `control` is that of rounds of I = 2 and two
        steps each.
    """
    rounds = int(run.options.get("rounds", 20))
    one, two = (_beside_central(run, local, rounds) for local in (1, 2))
    return {"result": {"largest_difference": one, "control": two, "rounds": rounds}}


def _beside_central(run: Run, local_epochs: int, rounds: int) -> float:
    """Return the largest difference of weights over rounds of I = `local_epochs` and as many steps of central APPNP."""
    lr = 0.5
    fed, method = setting(run, lr=lr, local_epochs=local_epochs)
    ordered, state = method.start(fed)
    pair = [state.shared[name][0].clone() for name in NAMES]
    differences: list[float] = []

    def compare(fed: Federation, after: State) -> None:
        for _ in range(local_epochs):
            leaves = [w.requires_grad_() for w in pair]
            loss = central_loss(ordered, state.more.graphs[0], state.more.samples, *leaves).mean()
            pair[:] = [(w - lr * grad).detach() for w, grad in zip(leaves, torch.autograd.grad(loss, leaves))]
        differences.append(largest_difference(after, pair))

    train(watching(method, compare), fed, rounds, evaluate=())
    return worst_of(differences)


def identity_aggregator(run: Run) -> dict[str, Any]:
    """Compare GFL with FedAvg in a plain loop, by the largest difference of weights after training (GFL-I6).

    Returns:
        `largest_difference` is that of GFL with A = identity. `control` is that of GFL with the graph's A.
    """
    lr, local, rounds = 0.2, 5, 4
    fed, with_graph = setting(run, lr=lr, local_epochs=local)
    method = FedMLP(model=MLP(fed.features, fed.classes, 64), lr=lr, local_epochs=local)
    state = method.start(fed)[1]
    server = [state.shared[name][0] for name in NAMES]
    x, y, client = fed.x, fed.batch.y, fed.batch.batch
    assert isinstance(x, Tensor)
    trained = (fed.count("train") > 0).nonzero().squeeze(1).tolist()
    for _ in range(rounds):
        sums = [torch.zeros_like(w) for w in server]
        for k in trained:
            rows = (client == k) & fed.batch.train_mask
            ws = [w.clone() for w in server]
            for _ in range(local):
                leaves = [w.requires_grad_() for w in ws]
                loss = F.cross_entropy(encode(x[rows], leaves), y[rows])
                ws = [(w - lr * g).detach() for w, g in zip(leaves, torch.autograd.grad(loss, leaves))]
            sums = [a + w / len(trained) for a, w in zip(sums, ws)]
        server = sums
    ends = [train(one, fed, rounds, evaluate=()).state for one in (method, with_graph)]
    difference, control = (largest_difference(end, server) for end in ends)
    return {"result": {"largest_difference": difference, "control": control, "rounds": rounds}}


def algorithm(run: Run) -> dict[str, Any]:
    """Compare the method with Algorithm 1 line by line, and count what was sent (GFL-A1, GFL-A2, GFL-F1a).

    For each part of Figure 1(b), the encoder and a client's row of A, the result holds its number of scalars and how
    many different ones the clients have (GFL-F1b).
    """
    local, rounds, lr = int(run.options["local_epochs"]), 2, 0.5
    fed, method = setting(run, lr=lr, local_epochs=local)
    trained = train(method, fed, rounds, evaluate=())
    ordered, state = method.start(fed)
    graph, samples = state.more.graphs[0], state.more.samples
    rows = [samples.rows[k][samples.share[k] > 0] for k in range(len(graph.train))]
    initial = [state.shared[name][0] for name in NAMES]
    server = algorithm1(graph, rows, ordered.batch.y, initial, lr=lr, local=local, rounds=rounds)
    received = method.begin_round(ordered, state, 0)
    encoders = torch.cat([method.first_layers(received, ordered, state).flatten(1), received[SECOND].flatten(1)], 1)
    result = {
        "largest_difference": largest_difference(trained.state, server),
        "rounds": rounds,
        "clients": len(graph.a),
        "sent": trained.fed.traffic.round(0),
    }
    for name, values in (("encoder", encoders), ("aggregator", graph.a)):
        result[name] = {"scalars": values.shape[1], "different": len(values.unique(dim=0))}
    return {"result": result}


# -- Lemma A.1 --------------------------------------------------------------------------------------------------------


def compensation_error(run: Run) -> dict[str, Any]:
    """Measure both sides of Lemma A.1, `||h^_{j->k} - h_{j->k}||^2 <= 2 eta^2 rho_h^2 I^2 Delta_k` (GFL-L1).

    h^ uses the average of the last exchange, h the client's current weights. rho_h is the largest norm of the Jacobian
    of h by the weights, at any sample and any client's weights (Assumption 5). Delta is the largest squared norm of a
    gradient that was followed (Assumption 6). The result holds the largest error over all pairs j != k and updates. A
    client computes its h by its current weights (Eq. 18), so that the left side is zero at j = k. Weights are seen as
    each local step finds them, so what the last step before an exchange adds is not measured. Take the constants of a
    bound from other runs than the one it is for.
    """
    local, lr, rounds = int(run.options["local_epochs"]), float(run.options["lr"]), int(run.options["rounds"])
    largest = {"largest_error": 0.0, "rho_h": 0.0, "Delta": 0.0}
    before: list[tuple[int, Tensor]] = []

    @dataclass(frozen=True, kw_only=True)
    class Watched(GFLAPPNP):
        def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
            local = {name: w.detach() for name, w in weights.items()}
            graph, average = state.more.graphs[0], [state.shared[name][0] for name in NAMES]
            first, second = self.first_layers(local, fed, state)[graph.trained], local[SECOND][graph.trained]
            error = encode(graph.x, (first, second)) - encode(graph.x, average)
            means = error.new_zeros(len(error), len(graph.a), error.shape[2])
            means.index_add_(1, graph.node, graph.share[None, :, None] * error)
            means[torch.arange(len(means)), graph.train] = 0  # j = k
            flat = torch.cat([first.flatten(1), second.flatten(1)], 1)
            measured = {
                "largest_error": float(means.square().sum(2).max()),
                "rho_h": float(jacobian_norms(graph.x, first, second).max()),
            }
            if before and before[0][0] == t:
                measured["Delta"] = float(((flat - before[0][1]) / lr).square().sum(1).max())
            before[:] = [(t, flat)]
            largest.update({name: worst_of((largest[name], value)) for name, value in measured.items()})
            return super().local_loss(weights, fed, state, t)

    fed, method = setting(run, lr=lr, local_epochs=local)
    watched = Watched(**{item.name: getattr(method, item.name) for item in fields(method)})
    train(watched, fed, rounds, evaluate=())
    return {"result": {**largest, "updates": local * rounds}}


def jacobian_norms(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return spectral norms `[clients, samples]` of the Jacobian J of h = relu(x W1) W2 by all weights.

    `J J^T = |relu(x W1)|^2 I + |x|^2 W2^T diag(m) W2`, where m marks the hidden units that are on.
    """
    hidden = F.relu(x @ first)
    on = (hidden > 0).to(x.dtype)
    outer = torch.einsum("ksh,khc,khd->kscd", on, second, second) * x.square().sum(1)[None, :, None, None]
    norms: Tensor = (torch.linalg.eigvalsh(outer)[..., -1] + hidden.square().sum(2)).sqrt()
    return norms


# -- Theorem 4.1 and Corollary 4.2 ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ascending(GFLAPPNP):
    """A control with the printed sign (GFL-Q3). It climbs, so that no bound on its gradients can hold."""

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Return the negative loss of each client, `[clients]`."""
        return -super().local_loss(weights, fed, state, t)


def rate(run: Run) -> dict[str, Any]:
    """Measure the mean of `||grad F(W)||^2` at the averages before each round (GFL-Th1, GFL-Th2).

    F is the clients' mean loss. Next to the mean are the theorem's `first_term`, `2 (F(W^0) - lowest F) / (eta T)`, and
    its `condition`, `13 I eta^2 rho_f^2`, which must be below 1. The option `updates` is T,
    `local_epochs` is I, and `lr` 0 means sqrt(N/T). `batch` is the size of a batch, `error` is added to each h_j, and
    `ascend` takes the printed sign.
    """
    options = run.options
    updates, local = int(options["updates"]), int(options["local_epochs"])
    nodes = clients(run.dataset)
    lr = float(options["lr"]) or (nodes / updates) ** 0.5
    norms: list[float] = []
    losses: list[float] = []
    curvatures: list[float] = []

    def look(ordered: Federation, state: State) -> None:
        graph, samples = state.more.graphs[0], state.more.samples
        leaves = [state.shared[name][0].clone().requires_grad_() for name in NAMES]
        loss = central_loss(ordered, graph, samples, *leaves).mean()
        losses.append(float(loss.detach()))
        norms.append(sum(float(g.square().sum()) for g in torch.autograd.grad(loss, leaves)))
        if len(norms) in (1, updates // local + 1):
            curvatures.append(smoothness(ordered, graph, samples, leaves[0].detach(), leaves[1].detach()))

    fed = federation(run.dataset, run.seed)
    kind = Ascending if options.get("ascend") else GFLAPPNP
    model, batch = MLP(fed.features, fed.classes, 64), int(options["batch"])
    method = kind(model=model, lr=lr, local_epochs=local, batch=batch, share="train")
    look(*method.start(fed))
    train(watching(method, look, float(options["error"])), fed, updates // local, evaluate=())
    rho = worst_of(curvatures)
    result = {
        "mean": sum(norms[:-1]) / len(norms[:-1]),
        "at_start": norms[0],
        "eta": lr,
        "N": nodes,
        "loss_at_start": losses[0],
        "lowest_loss": min(losses),
        "first_term": 2 * (losses[0] - min(losses)) / (lr * updates),
        "rho_f": rho,
        "condition": 13 * local * lr**2 * rho**2,
        "lambda_max": parameters(run.dataset)["lambda_max"],
        "sigma_H": (nodes * fed.classes) ** 0.5 * float(options["error"]),
    }
    return {"result": result}


def smoothness(
    fed: Federation, graph: Graph, samples: Samples, first: Tensor, second: Tensor, clients: int = 5, steps: int = 6
) -> float:
    """Return the largest curvature of the first clients' losses F_k at some weights, by power iteration.

    It is at most rho_f, which is the largest over all clients and weights.
    """
    held = graph.share > 0
    x = fed.x[graph.rows][held]  # type: ignore[index]
    few = slice(graph.trained.start, min(graph.trained.start + clients, graph.trained.stop))
    rows = samples.rows[few]
    index = (held.cumsum(0) - 1)[rows - graph.rows.start]
    mean = torch.zeros(len(graph.a), len(x), dtype=x.dtype)
    mean[graph.node[held], torch.arange(len(x))] = graph.share[held]
    mix, diagonal = graph.off[: len(rows)] @ mean, graph.a.diagonal()[graph.train[: len(rows)]]
    data = (index, fed.batch.y[rows], samples.share[few], mix, diagonal)

    def loss(w1: Tensor, w2: Tensor, index: Tensor, y: Tensor, share: Tensor, row: Tensor, a: Tensor) -> Tensor:
        h = encode(x, (w1, w2))
        return (F.cross_entropy(a * h[index] + row @ h, y, reduction="none") * share).sum()

    gradient = torch.func.grad(loss, argnums=(0, 1))

    def curve(v1: Tensor, v2: Tensor, *client: Tensor) -> tuple[Tensor, Tensor]:
        """Return the product of a client's Hessian with a direction."""
        moved = torch.func.jvp(lambda w1, w2: gradient(w1, w2, *client), (first, second), (v1, v2))
        result: tuple[Tensor, Tensor] = moved[1]
        return result

    def norms(v: tuple[Tensor, Tensor]) -> Tensor:
        return (v[0].square().sum((1, 2)) + v[1].square().sum((1, 2))).sqrt()

    v = torch.func.vmap(gradient, in_dims=(None, None, *[0] * len(data)))(first, second, *data)
    for _ in range(steps):
        scale = norms(v)[:, None, None].clamp(min=1e-300)
        v = torch.func.vmap(curve)(v[0] / scale, v[1] / scale, *data)
    return float(norms(v).max())
