"""Capture what a method sends while it trains, and the seconds that the server and the clients take.

Messages are read from the hooks of `fedrepro.engine.method`, so that every method is watched in the same way. Messages
before training are taken from the federation that `start` returns, or computed as the method computes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np
import torch
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
# The messages that the attacker uses besides weights, by the names under which they are counted.
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


@dataclass
class Heard:
    """Embeddings that Feras and FedSheafHN send, as their own hooks compute them.

    Args:
        rows: those of Feras in the first round, by step: client and number `[nodes]` of the nodes that their hosts see
            and have drawn, and their embeddings `[nodes, width]`.
        means: those of FedSheafHN, by message: the clients' embeddings `[clients, width]`, and the weights behind them.
    """

    rows: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    means: list[tuple[Tensor, Weights]] = field(default_factory=list)


def overheard(method: Method) -> tuple[Method, Heard]:
    """Return a method that computes the same and keeps the embeddings it sends, if it is Feras or FedSheafHN."""
    heard = Heard()
    kind: Any = type(method)

    def share(self: Any, sample: Any, h: Tensor, layer: int, state: State, t: int) -> Tensor:
        if layer == getattr(self, "p", None) and t == 0:
            batch = sample.fed.batch
            seen = batch.visible
            heard.rows.append((batch.batch[seen], batch.node_id[seen], h[seen].detach()))
        out: Tensor = kind.share(self, sample, h, layer, state, t)
        return out

    def mean_embeddings(self: Any, fed: Federation, weights: Weights) -> Tensor:
        sent: Tensor = kind.mean_embeddings(self, fed, weights)
        heard.means.append((sent.detach(), {name: w.detach() for name, w in weights.items()}))
        return sent

    hooks = {hook.__name__: hook for hook in (share, mean_embeddings) if hasattr(kind, hook.__name__)}
    built: Any = object.__new__(type(kind.__name__, (kind,), hooks))
    built.__dict__.update(method.__dict__)  # a frozen dataclass cannot be filled otherwise
    return built, heard


def listen(run: Run) -> tuple[Method, Federation, Log, Heard]:
    """Train a run as `watch` does; return its method, its federation at the start, the log and what was heard."""
    fed = tasks.federation([run])
    method, loop = tasks.method(run, fed.features, fed.classes)
    method, heard = overheard(method)
    method, log = watched(method)
    return method, train(method, fed, loop["rounds"], evaluate=()).fed, log, heard


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


def of_client(run: Run, client: int, listened: tuple[Method, Federation, Log, Heard]) -> dict[str, Tensor]:
    """Return the messages of one client as tensors, by the name that the attacker knows them under.

    `update` `[features, hidden]` and `bias` `[classes]` are what the client's message of the first round moves, and
    `W1`, `b1`, `W2`, `b2` the weights in that of the last round. `rows` `[nodes, features]`, `embeddings`
    `[nodes, hidden]` and `powers` `[rows of another client, nodes]` belong to nodes whose number is known, and `mean`
    `[1, hidden]` to a client. `known` `[features, hidden]` are the weights behind an embedding: those that the server
    has sent, or those that it knows from what it has sent and received.
    """
    method, fed, log, heard = listened
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
        average = log.states[-1].shared  # for a method that trains its weights in other coordinates (GFL-APPNP)
        if name in names and name in last.after:
            out[key] = weight(last.after, name)
        elif name in average:
            out[key] = average[name][0]
    about = {name.partition(".")[2] for part in counted.values() for name in part}
    return out | _embeddings(client, fed, log, heard) | _of_nodes(run, client, fed, log, about)


def _embeddings(client: int, fed: Federation, log: Log, heard: Heard) -> dict[str, Tensor]:
    """Return the embeddings that a client sends, and the first layer's weights behind them.

    For a node, keep the row that was sent first, and zeros if none was. A client's mean embedding is taken without the
    bias. Its weights are known to the server, which has generated them and receives what local training changes; those
    of the first message, after a warm-up that is not sent, are given to the attacker.
    """
    if heard.rows:
        nodes = fed.sources[0].parts[client]
        rows = heard.rows[0][2].new_zeros(fed.sources[0].data.num_nodes, heard.rows[0][2].shape[1])
        for clients, numbers, values in reversed(heard.rows):
            mask = clients == client
            rows[numbers[mask]] = values[mask]
        return {"embeddings": rows[nodes], "known": log.updates[0].before[FIRST][client].detach()}
    if heard.means:
        means, weights = heard.means[-1]
        return {"mean": means[client : client + 1] - weights[BIAS][client], "known": weights[FIRST][client]}
    return {}


def _of_nodes(run: Run, client: int, fed: Federation, log: Log, counted: set[str]) -> dict[str, Tensor]:
    """Return the messages about single nodes of a client, but for embeddings."""
    source = fed.sources[0]
    nodes = source.parts[client]
    out: dict[str, Tensor] = {}
    x = dense(source.data.x).float()
    if "features" in counted:  # FedGAT
        out["rows"] = x[nodes]
    if "neighbour sums" in counted:  # FedGCN: rows of S X, with S of the whole graph
        edges, weights = gcn_norm(source.data.edge_index, num_nodes=len(x), dtype=x.dtype)
        out["rows"] = (Sparse.of(edges[1], edges[0], weights, (len(x), len(x))) @ x)[nodes]
    if "power blocks" in counted:  # FedStruct: what another client holds of the powers of the adjacency
        other = source.parts[(client + 1) % len(source.parts)].numpy()
        options = run.options
        blocks = powers.powers(source.data, source.parts, int(options["structure_depth"]), int(options["prune"]))
        held = list(blocks)[-1].matrix[other][:, nodes.numpy()]
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
