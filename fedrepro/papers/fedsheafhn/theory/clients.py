"""Clients that join after training (SH-A2, Figure 5), and what the server costs (Table 6)."""

from __future__ import annotations

import statistics as stats
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrepro.data import partition
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.local import Local
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.nn import random
from fedrepro.engine.training import train
from fedrepro.errors import require
from fedrepro.papers.fedsheafhn.facts import embed
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.runs import process, tasks
from fedrepro.runs.run import Run

# -- new clients ------------------------------------------------------------------------------------------------------


def new_clients(run: Run) -> dict[str, Any]:
    """Training without a share of the clients, which then join: each trains alone from the common initial model, sends
    its embedding, gets generated weights (theta and phi frozen) and takes one round of local epochs from them.

    Options: "ratio", the share; "of", the method ("FedSheafHN"); and those of its training run.

    Returns:
        "result": test accuracy averaged over clients: `train_test` and `train_best` of those trained, after local
        training, in the last and the best validation round; of the new ones `new_test` after and `new_received` before
        their local epochs, and `new_alone` of as many local epochs without the server; `new`, `trained`: how many.
    """
    options = dict(run.options)
    ratio, name = float(options.pop("ratio")), str(options.pop("of", "FedSheafHN"))
    data = tasks.graph(run)
    parts = partition.partition(data, run.partition, run.clients, run.seed)
    count = round(ratio * len(parts))
    require(0 < count < len(parts), "ratio", "a share that leaves trained and new clients", ratio)
    order = random.uniform((len(parts),), "new clients", run.seed).argsort().tolist()
    kept, late = (sorted(chosen) for chosen in (order[count:], order[:count]))
    old, new = (Federation.of(data, [parts[i] for i in chosen], run.seed) for chosen in (kept, late))
    wanted = Run("train", run.paper, name, options=options)
    method, loop = tasks.method(wanted, old.features, old.classes)
    require(isinstance(method, FedSheafHN), "of", "FedSheafHN or a variant of it", name)
    assert isinstance(method, FedSheafHN)
    open_ended = method.vectors == "embedding" and method.attention != "free"
    require(open_ended, "options", "without one-hot vectors and free attention, which fix the clients", options)
    trained = train(method, old, int(loop["rounds"]))
    received = joined(method, trained.state, new)
    alone = method.warmed(new)
    scores = {
        "new_received": accuracy_after(method, new, received, 0),
        "new_test": accuracy_after(method, new, received, method.local_epochs),
        "new_alone": accuracy_after(method, new, alone, method.local_epochs),
    }
    view = trained.history.result(0)["after"]
    best = view.get("best", view["last"])["test_clients"]
    own = {"train_test": view["last"]["test_clients"], "train_best": best, "new": len(late), "trained": len(kept)}
    return {"result": {**own, **scores}}


def joined(method: FedSheafHN, state: State, new: Federation) -> Weights:
    """What new clients hold when they have joined: heads from training alone, and generated backbones `[clients, ...]`.

    Args:
        state: of the trained clients, of one run.
        new: the new clients.
    """
    own = method.warmed(new)
    with torch.no_grad():
        embeddings = torch.cat([state.more.used, embed(new, own, method.depth)])
        server = state.more.servers[0]
        vectors = method.vectors_of(embeddings, trained=state.more.used)
        made = server.generate(server.weights, vectors, None)
    return {name: made[name][-new.clients :] if name in method.received else w for name, w in own.items()}


def accuracy_after(method: FedSheafHN, fed: Federation, weights: Weights, epochs: int) -> float:
    """Mean test accuracy over clients after some local epochs from these weights."""

    class From(Local):
        def start(self, fed: Federation) -> tuple[Federation, State]:
            return fed, State({}, weights)

    common = {f.name: getattr(method, f.name) for f in fields(Local)}
    alone = From(**{**common, "local_epochs": max(1, epochs), "participation": 1.0})
    made = train(alone, fed, 1, evaluate=("after",)) if epochs else None
    if made is not None:
        return made.history.result(0)["after"]["last"]["test_clients"]
    with torch.no_grad():
        logits = method.model(weights, fed)
    return _mean_accuracy(fed, logits)


def _mean_accuracy(fed: Federation, logits: Tensor) -> float:
    rows, mean = fed.rows("test")
    right = (logits[rows].argmax(1) == fed.batch.y[rows]).to(fed.dtype)
    has = fed.count("test") > 0
    return float((mean @ right[:, None]).squeeze(1)[has].mean())


# -- what the server costs --------------------------------------------------------------------------------------------


def server_cost(run: Run) -> dict[str, Any]:
    """Seconds of a round and of the server's part of it, and the largest memory of a process that does two rounds.

    Options: "of", the method ("FedSheafHN"); "rounds" (10); "memory" (true; false leaves it out, and the process with
    it); and those of its training run. What clients compute inside the server's hooks, their embeddings, counts as
    theirs. Nothing is scored.

    Returns:
        "result": {"timing": {"server_seconds", "round_seconds", "peak_mebibytes"} (medians over rounds after the
        first), "server_scalars": weights the server trains}.
    """
    seconds, server, state = _timed_rounds(run, int(run.options.get("rounds", 10)))
    timing = {"server_seconds": stats.median(server), "round_seconds": stats.median(seconds)}
    if run.options.get("memory", True):
        timing["peak_mebibytes"] = process.peak_mebibytes(_one_round, run.to_dict())
    weights = [s.weights for s in state.more.servers] if hasattr(state.more, "servers") else [state.shared]
    return {"result": {"timing": timing, "server_scalars": sum(w.numel() for part in weights for w in part.values())}}


def _timed_rounds(run: Run, rounds: int) -> tuple[list[float], list[float], State]:
    """Seconds of each round after the first, of the server's part of it, and the last state."""
    options = {name: value for name, value in run.options.items() if name not in ("of", "rounds", "memory")}
    wanted = run.replace(task="train", method=str(run.options.get("of", "FedSheafHN")), options=options)
    fed = tasks.federation([wanted])
    method, _ = tasks.method(wanted, fed.features, fed.classes)
    starts: list[float] = []
    server: list[float] = []
    kind: Any = type(method)

    @dataclass(frozen=True, kw_only=True)
    class Timed(kind):  # type: ignore[misc]
        def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
            starts.append(time.perf_counter())
            made, spent = _spent(lambda: super(Timed, self).begin_round(fed, state, t))
            server.append(spent)
            weights: Weights = made
            return weights

        def aggregate(self, state: State, update: Update) -> State:
            made, spent = _spent(lambda: super(Timed, self).aggregate(state, update))
            server[-1] += spent
            ended: State = made
            return ended

        def _embeddings(self, fed: Federation, weights: Weights, t: int) -> Tensor:
            made, spent = _spent(lambda: super(Timed, self)._embeddings(fed, weights, t))
            if server:
                server[-1] -= spent
            embeddings: Tensor = made
            return embeddings

    timed: Method = Timed(**{f.name: getattr(method, f.name) for f in fields(method)})
    made = train(timed, fed, rounds + 1, evaluate=())
    starts.append(time.perf_counter())
    return np.diff(starts)[1:].tolist(), server[1:], made.state


def _spent(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    made = work()
    return made, time.perf_counter() - start


def _one_round(run: dict[str, Any]) -> None:
    _timed_rounds(Run.from_dict(run), 1)
