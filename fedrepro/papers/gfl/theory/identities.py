"""GFL's algorithm and identities: each a check on small federations."""

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
from fedrepro.papers.gfl import data as csbm_tasks
from fedrepro.papers.gfl.clients import FIRST, SECOND, Graph, Own, propagation, propagation_weights
from fedrepro.papers.gfl.fedmlp import FedMLP
from fedrepro.papers.gfl.method import GFLAPPNP, RECEIVED, Received, U
from fedrepro.runs.run import Run


def federation(name: str, seed: int, dtype: torch.dtype = torch.float64) -> Federation:
    """A repetition of a data set of `csbm_tasks`, one client per node of its graph."""
    data = datasets.assemble(name, "", "public", seed)
    return Federation.of(data, partition.partition(data, "blocks", csbm_tasks.clients(name), seed), seed, dtype=dtype)


def share_of(name: str) -> str:
    """Which samples make h_j (GFL-Q7)."""
    return "train" if csbm_tasks.TASKS[name].supervised else "all"


# -- identities -------------------------------------------------------------------------------------------------------


def weights(run: Run) -> dict[str, Any]:
    """GFL-I1: what the weights of the powers sum to, and what a node keeps of itself on average (A_kk)."""
    graph = csbm_tasks.topology("csbm-DNC")
    found = {}
    for kind in ("appnp", "truncated", "printed"):
        each = propagation_weights(kind, 0.1, 10)
        a = propagation(graph.edge_index, graph.num_nodes, kind, 0.1, 10)
        found[kind] = {"sum": sum(each), "own_weight": each[0], "own_share": float((a.diagonal() / a.sum(1)).mean())}
    return {"result": found}


def statistics(run: Run) -> dict[str, Any]:
    """GFL-I4, GFL-I5, GFL-P1 and P3 to P5: a graph's phi, lambda_max(B_N L^+), 1/(N lambda_2) and class balance."""
    return {"result": csbm_tasks.parameters(run.dataset)}


def central_loss(fed: Federation, graph: Graph, own: Own, first: Tensor, second: Tensor) -> Tensor:
    """Each training client's loss `[clients]` of central APPNP at one set of weights, by automatic differentiation.

    Nothing is split or stored here: one forward pass over all samples and the whole propagation matrix.
    """
    x = fed.x[graph.rows]  # type: ignore[index]
    h = F.relu(x @ first) @ second
    means = h.new_zeros(len(graph.a), h.shape[1]).index_add(0, graph.node, graph.share[:, None] * h)
    off = graph.a - torch.diag(graph.a.diagonal())
    z = graph.a.diagonal()[graph.node, None] * h + (off @ means)[graph.node]
    rows = own.rows[graph.trained]
    y = fed.batch.y[rows]
    each = F.cross_entropy(z[rows.flatten() - graph.rows.start], y.flatten(), reduction="none").view_as(rows)
    return (each * own.share[graph.trained]).sum(1)


def gradient_split(run: Run) -> dict[str, Any]:
    """GFL-I2, GFL-Q3: the gradient of one client's loss by Eq. 15b against automatic differentiation, relative error.

    With the printed sign (y - y^) the cosine to the gradient is -1: the step would ascend.
    """
    fed = federation(run.dataset, run.seed)
    method = GFLAPPNP(model=MLP(fed.features, fed.classes, 64), share=share_of(run.dataset))
    fed, state = method.start(fed)
    graph, own, got = state.more.graphs[0], state.more.own, state.more.received
    first, second = (state.shared[name][0].clone().requires_grad_() for name in (FIRST, SECOND))
    exact = torch.autograd.grad(central_loss(fed, graph, own, first, second)[0], [first, second])
    held = {name: w.detach().requires_grad_() for name, w in method.begin_round(fed, state, 0).items()}
    loss = method.local_loss(held, fed.at(0, 0), state, 0)
    names = (U, RECEIVED, SECOND)
    steps = dict(zip(names, torch.autograd.grad(loss[0], [held[name] for name in names])))
    zero = {name: torch.zeros_like(w) for name, w in held.items()} | {name: steps[name] for name in (U, RECEIVED)}
    split = (method.first_layers(zero, fed, state)[0] - state.shared[FIRST][0], steps[SECOND][0])
    error = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(split, exact))
    flat = torch.cat([part.flatten() for part in exact])
    logits = got.own[0] * (F.relu(own.x[0] @ first) @ second) + got.shared[0]
    residual = F.one_hot(fed.batch.y[own.rows[0]], fed.classes) - logits.softmax(1)
    own_part = got.own[0] * F.relu(own.x[0] @ first).T @ residual.detach() * own.share[0, 0]
    printed = own_part + got.active[0][:, None] * (residual * own.share[0][:, None]).sum(0)
    cosine = float(F.cosine_similarity(printed.detach().flatten(), exact[1].flatten(), dim=0))
    return {"result": {"relative_error": error, "printed_cosine": cosine, "gradient_norm": float(flat.norm())}}


def one_local_step(run: Run) -> dict[str, Any]:
    """GFL-I3: with I = 1 every round equals a step of central APPNP; the largest difference of weights over rounds."""
    fed = federation(run.dataset, run.seed)
    lr, rounds = 0.5, int(run.options.get("rounds", 20))
    method = GFLAPPNP(model=MLP(fed.features, fed.classes, 64), lr=lr, share=share_of(run.dataset))
    ordered, state = method.start(fed)
    pair = [state.shared[name][0].clone() for name in (FIRST, SECOND)]
    gaps: list[float] = []

    def compare(_: Federation, made: State) -> None:
        leaves = [w.requires_grad_() for w in pair]
        loss = central_loss(ordered, state.more.graphs[0], state.more.own, *leaves).mean()
        for place, grad in enumerate(torch.autograd.grad(loss, leaves)):
            pair[place] = (leaves[place] - lr * grad).detach()
        gaps.append(max(float((made.shared[name][0] - w).abs().max()) for name, w in zip((FIRST, SECOND), pair)))

    train(watching(method, compare), fed, rounds, evaluate=())
    return {"result": {"largest_difference": max(gaps), "rounds": rounds}}


def identity_aggregator(run: Run) -> dict[str, Any]:
    """GFL-I6: GFL with A = identity against a plain loop of FedAvg over clients; the largest difference of weights."""
    fed = federation(run.dataset, run.seed)
    lr, local, rounds = 0.2, 5, 4
    made = train(FedMLP(model=MLP(fed.features, fed.classes, 64), lr=lr, local_epochs=local), fed, rounds, evaluate=())
    _, state = FedMLP(model=MLP(fed.features, fed.classes, 64)).start(fed)
    server = [state.shared[name][0] for name in (FIRST, SECOND)]
    x, y, client = fed.x, fed.batch.y, fed.batch.batch
    assert isinstance(x, Tensor)
    for _ in range(rounds):
        sums = [torch.zeros_like(w) for w in server]
        trained = (fed.count("train") > 0).nonzero().squeeze(1).tolist()
        for k in trained:
            rows = (client == k) & fed.batch.train_mask
            ws = [w.clone() for w in server]
            for _ in range(local):
                leaves = [w.requires_grad_() for w in ws]
                loss = F.cross_entropy(F.relu(x[rows] @ leaves[0]) @ leaves[1], y[rows])
                ws = [(w - lr * g).detach() for w, g in zip(leaves, torch.autograd.grad(loss, leaves))]
            sums = [a + w / len(trained) for a, w in zip(sums, ws)]
        server = sums
    gap = max(float((made.state.shared[name][0] - w).abs().max()) for name, w in zip((FIRST, SECOND), server))
    return {"result": {"largest_difference": gap, "rounds": rounds}}


def watching(method: GFLAPPNP, look: Callable[[Federation, State], None], error: float = 0.0) -> GFLAPPNP:
    """The same method, calling `look(federation, state)` after each round.

    Args:
        error: standard deviation of what is added to every h_j before the server sums C_k: an estimation error with
            sigma_j^2 = classes * error^2 (Assumption 2).
    """

    @dataclass(frozen=True, kw_only=True)
    class Watched(type(method)):  # type: ignore[misc]
        def aggregate(self, state: State, update: Update) -> State:
            made: State = super().aggregate(state, update)
            look(update.fed, made)
            return made

        def _exchange(self, fed: Federation, graphs: tuple[Graph, ...], own: Own, shared: Weights, t: int) -> Received:
            got: Received = super()._exchange(fed, graphs, own, shared, t)
            for run, graph in enumerate(graphs if error else ()):
                drawn = random.normal((len(graph.a), fed.classes), "estimation error", fed.seeds[run], t)
                got.shared[graph.trained] += graph.off @ (error * drawn.to(graph.a))
            return got

    return Watched(**{item.name: getattr(method, item.name) for item in fields(method)})


# -- Algorithm 1, word by word ----------------------------------------------------------------------------------------


def algorithm1(run: Run) -> dict[str, Any]:
    """GFL-A1, GFL-A2: Algorithm 1 with each client's weights and the Jacobian of every h_j written out (the sign that
    descends, GFL-Q3), against the method; the largest difference of weights after some rounds, and what was sent.

    GFL-F1b: weights of the encoder, entries of a client's row of A, and how many of each differ between clients.
    """
    fed = federation(run.dataset, run.seed)
    local, rounds, lr = int(run.options["local_epochs"]), 2, 0.5
    method = GFLAPPNP(model=MLP(fed.features, fed.classes, 64), lr=lr, local_epochs=local, share=share_of(run.dataset))
    made = train(method, fed, rounds, evaluate=())
    ordered, state = method.start(fed)
    graph, own = state.more.graphs[0], state.more.own
    x = ordered.x
    assert isinstance(x, Tensor)
    server = [state.shared[name][0] for name in (FIRST, SECOND)]
    for _ in range(rounds):
        leaves = [w.clone().requires_grad_() for w in server]
        h = F.relu(x @ leaves[0]) @ leaves[1]
        means = h.new_zeros(len(graph.a), h.shape[1]).index_add(0, graph.node, graph.share[:, None] * h)
        total = [torch.zeros_like(w) for w in server]
        for k, node in enumerate(graph.train.tolist()):
            c = graph.off[k] @ means
            jacobian = [torch.autograd.grad(entry, leaves, retain_graph=True) for entry in c]
            ws, rows = [w.detach() for w in server], own.rows[k][own.share[k] > 0]
            for _ in range(local):
                here = [w.clone().requires_grad_() for w in ws]
                hk = F.relu(x[rows] @ here[0]) @ here[1]
                residual = (graph.a[node, node] * hk + c).softmax(1) - F.one_hot(ordered.batch.y[rows], fed.classes)
                residual = residual.detach() / len(rows)
                steps = torch.autograd.grad((residual * graph.a[node, node] * hk).sum(), here)
                for e, each in zip(residual.sum(0), jacobian):
                    steps = tuple(g + e * j for g, j in zip(steps, each))
                ws = [w - lr * g for w, g in zip(ws, steps)]
            total = [a + w / len(graph.train) for a, w in zip(total, ws)]
        server = total
    gap = max(float((made.state.shared[name][0] - w).abs().max()) for name, w in zip((FIRST, SECOND), server))
    broadcast = method.begin_round(ordered, state, 0)
    encoders = torch.cat([method.first_layers(broadcast, ordered, state).flatten(1), broadcast[SECOND].flatten(1)], 1)
    found = {"encoder": encoders, "aggregator": graph.a}
    parts = {name: {"scalars": rows.shape[1], "different": len(rows.unique(dim=0))} for name, rows in found.items()}
    sent = made.fed.traffic.round(0)
    return {"result": {"largest_difference": gap, "rounds": rounds, "clients": len(graph.a), "sent": sent, **parts}}


def subcora_statistics(run: Run) -> dict[str, Any]:
    """GFL-P2: sizes of one sub-graph of Cora and how many of its test nodes a training node reaches."""
    data = datasets.assemble(run.dataset, "", "public", run.seed)
    parts, label = csbm_tasks.components(data)
    counts = torch.bincount(data.y[data.train_mask], minlength=data.num_classes).double()
    reached = torch.isin(torch.from_numpy(label), torch.from_numpy(label)[data.train_mask])
    return {
        "result": {
            "nodes": data.num_nodes, "edges": data.edge_index.shape[1] // 2, "components": parts,
            "train": int(data.train_mask.sum()), "val": int(data.val_mask.sum()), "test": int(data.test_mask.sum()),
            "class_count_sd": float(counts.std(correction=0)),
            "test_reached": float(reached[data.test_mask].double().mean()),
        }
    }  # fmt: skip
