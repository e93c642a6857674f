"""Capture what a method sends while it trains, and the seconds that the server and the clients take.

Messages are read from the hooks of `fedrepro.engine.method`, so that every method is watched in the same way. What
travels before training is taken from the federation that `start` returns, or computed as the method computes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.engine.training import client_gradients, train
from fedrepro.papers.fedstruct import powers
from fedrepro.runs import process, tasks
from fedrepro.runs.run import Run

FIRST, BIAS, SECOND, LAST = "layer1.weight", "layer1.bias", "layer2.weight", "layer2.bias"
SIDES = {"start": "before", "begin_round": "server", "aggregate": "server"}
WEIGHTS = ("up.weights", "up.gradients", "up.weight change")
# What the attacker makes use of, beside weights, by the name under which it is counted.
USED = {"features", "neighbour sums", "power blocks", "power indices", "embedding", "embeddings", "hidden", "h"}


@dataclass
class Log:
    """The log of a training: the updates of its rounds, its first and last state, and seconds by side."""

    updates: list[Update] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"before": 0.0, "server": 0.0})
    depth: int = 0


def watched(method: Method) -> tuple[Method, Log]:
    """Return a method that computes the same and writes a log.

    The server's side is `begin_round` and `aggregate`, with what clients compute there for the exchange. Feras
    exchanges inside local steps, which are the clients' side. Hooks that call each other are counted once.
    """
    log, kind = Log(), type(method)

    def hook(name: str) -> Callable[..., Any]:
        inner = getattr(kind, name)

        @wraps(inner)
        def timed(self: Method, *arguments: Any, **named: Any) -> Any:
            log.depth, begun = log.depth + 1, time.perf_counter()
            try:
                out = inner(self, *arguments, **named)
            finally:
                log.depth -= 1
                if not log.depth:
                    log.seconds[SIDES[name]] += time.perf_counter() - begun
            if not log.depth and name == "aggregate":
                log.updates.append(arguments[1])
                log.states[1:] = [out]
            elif not log.depth and name == "start":
                log.states.append(out[1])
            return out

        return timed

    built: Any = object.__new__(type(kind.__name__, (kind,), {name: hook(name) for name in SIDES}))
    built.__dict__.update(method.__dict__)  # a frozen dataclass cannot be filled otherwise
    return built, log


def trained(run: Run) -> Run:
    """Return the training run that an attack or a measurement watches: its options but for `of`."""
    options = {name: value for name, value in run.options.items() if name not in ("of", "memory")}
    return Run.from_dict(run.to_dict() | {"task": "train", "method": run.options["of"], "options": options})


def watch(run: Run) -> tuple[Method, Federation, Log, float]:
    """Train a run without scoring it; return its method, its federation at the start, the log and all seconds."""
    fed = tasks.federation([run])
    method, loop = tasks.method(run, fed.features, fed.classes)
    method, log = watched(method)
    begun = time.perf_counter()
    ended = train(method, fed, loop["rounds"], evaluate=())
    return method, ended.fed, log, time.perf_counter() - begun


def cost(run: Run) -> dict[str, Any]:
    """Measure the seconds of server and clients in a round, those before training, and the peak memory.

    The options are those of the training run, `of` (the method) and `memory` (True: measure it in a new process).

    Returns:
        "result": `{"timing": {"before", "server", "clients", "peak_mebibytes"}}`. Seconds of the server and of all
        clients together are means over rounds, and those before training are the seconds of `start`.
    """
    watched_run = trained(run)
    _, _, log, whole = watch(watched_run)
    rounds = len(log.updates)
    timing: dict[str, Any] = {"before": log.seconds["before"], "server": log.seconds["server"] / rounds}
    timing["clients"] = max(0.0, whole - sum(log.seconds.values())) / rounds
    known = watched_run.to_dict()
    timing["peak_mebibytes"] = process.peak_mebibytes(_again, known) if run.options.get("memory", True) else None
    return {"result": {"timing": timing}}


def _again(run: dict[str, Any]) -> None:
    tasks.train([Run.from_dict(run)])


def sent_names(method: Method, counted: dict[str, float], weights: Weights) -> list[str]:
    """Return the names of the weights that a method sends: none, all but the personal ones, or all."""
    if not any(name in counted for name in WEIGHTS):
        return []
    shared = [name for name in weights if name not in method.personal]
    return shared or list(weights)


def of_client(run: Run, client: int, watched_as: tuple[Method, Federation, Log, float]) -> dict[str, Tensor]:
    """Return the messages of one client as tensors, by the name that the attacker knows them under.

    `update` `[features, hidden]` and `bias` `[classes]` are what the client's message of the first round moves, and
    `W1`, `b1`, `W2`, `b2` the weights in that of the last round. `rows` `[nodes, features]`, `embeddings`
    `[nodes, hidden]` and `powers` `[rows of another client, nodes]` belong to nodes whose number is known, and `mean`
    `[1, hidden]` to a client. `known` `[features, hidden]` are weights that the server has sent.
    """
    method, fed, log, _ = watched_as
    counted = fed.traffic.summary()
    first, last = log.updates[0], log.updates[-1]
    names = sent_names(method, counted["training"], last.after)
    gradients = client_gradients(method, fed, log.states[0]) if method.upload == "gradients" else {}
    out: dict[str, Tensor] = {}

    def weight(source: Weights, name: str) -> Tensor:
        stacked = source[name]
        return stacked[client if len(stacked) == fed.clients else 0].detach()

    for key, name in (("update", FIRST), ("bias", LAST)):
        if name in names and name in first.before:
            out[key] = weight(gradients or {name: first.before[name] - first.after[name]}, name)
    for key, name in zip(("W1", "b1", "W2", "b2"), (FIRST, BIAS, SECOND, LAST)):
        average = log.states[-1].shared  # of a method that trains its weights in other coordinates (GFL-APPNP)
        if name in names and name in last.after:
            out[key] = weight(last.after, name)
        elif name in average:
            out[key] = average[name][0]
    about = {name.partition(".")[2] for part in counted.values() for name in part}
    return out | _of_nodes(run, client, fed, log, about)


def _of_nodes(run: Run, client: int, fed: Federation, log: Log, counted: set[str]) -> dict[str, Tensor]:
    """Return the messages about single nodes of a client, and the mean embedding of the client."""
    source = fed.sources[0]
    nodes, start = source.parts[client], log.updates[0].before
    out: dict[str, Tensor] = {}
    x = dense(source.data.x).float()
    if "features" in counted:  # FedGAT
        out["rows"] = x[nodes]
    if "neighbour sums" in counted:  # FedGCN: rows of S X, with S of the whole graph
        edges, weights = gcn_norm(source.data.edge_index, num_nodes=len(x), dtype=x.dtype)
        out["rows"] = torch.sparse_coo_tensor(edges.flip(0), weights, (len(x), len(x))).matmul(x)[nodes]
    if "embeddings" in counted:  # Feras: the output of its first convolution at the nodes that the host sees
        out["known"] = start[FIRST][client]
        out["embeddings"] = F.relu(x[nodes] @ out["known"] + start[BIAS][client])
    if "embedding" in counted and FIRST in start:  # FedSheafHN: the mean of the hidden layer over a client's nodes
        out["known"] = start[FIRST][client]
        out["mean"] = F.relu(x[nodes] @ out["known"] + start[BIAS][client]).mean(0, keepdim=True)
    if "power blocks" in counted:  # FedStruct: what another client holds of the powers of the adjacency
        other = source.parts[(client + 1) % len(source.parts)].numpy()
        options = run.options
        found = powers.powers(source.data, source.parts, int(options["structure_depth"]), int(options["prune"]))
        held = list(found)[-1].matrix[other][:, nodes.numpy()]
        out["powers"] = torch.from_numpy(held.toarray().astype(np.float32))
    if any(name.startswith("gradient of ") for name in counted):  # GFL-APPNP: grad h_j by the first layer, class 0
        shared = log.states[0].shared
        w1, w2 = shared[FIRST][0], shared[SECOND][0]
        on = (x @ w1 > 0).float() * w2[:, 0]
        # The gradient is x_j times (m_j * W2_0)^T, of which the attacker takes the column of largest norm.
        out["rows"] = x * on.abs().max(1, keepdim=True).values
    return out


def dense(x: Tensor | Sparse) -> Tensor:
    """Return features as a dense matrix `[nodes, features]`."""
    return x.dense() if isinstance(x, Sparse) else x.to_dense()
