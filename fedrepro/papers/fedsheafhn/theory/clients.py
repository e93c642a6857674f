"""Clients that join after training (SH-A2, Figure 5), and the cost of the server (Table 6)."""

from __future__ import annotations

import statistics as stats
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from fedrepro.data import partition
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.local import Local
from fedrepro.engine.method import State
from fedrepro.engine.nn import random
from fedrepro.engine.training import train
from fedrepro.errors import require
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.runs import process, tasks
from fedrepro.runs.run import Run

# -- new clients ------------------------------------------------------------------------------------------------------


def new_clients(run: Run) -> dict[str, Any]:
    """Train without a share of the clients, which then join the trained server.

    A new client trains by itself from the common initial model and sends its embedding. The server, whose theta and phi
    are frozen, generates its weights. The client then trains one round of local epochs.

    Args:
        run: its options are "ratio", the share of new clients; "of", the method ("FedSheafHN"); and those of its
            training run.

    Returns:
        "result": test accuracies, averaged over clients. `train_test` and `train_best` are those of the trained clients
        after local training, in the last round and in that of best validation. The new clients' are `new_received`
        before their local epochs, `new_test` after these, and `new_alone` after as many local epochs without the
        server. `new` and `trained` are the numbers of clients.

    Raises:
        ArgumentError: the ratio leaves nobody on one side, or the method does not allow new clients.
    """
    options = dict(run.options)
    ratio, name = float(options.pop("ratio")), str(options.pop("of", "FedSheafHN"))
    data = tasks.graph(run)
    parts = partition.divide(data, run.partition, run.clients, run.seed)
    count = round(ratio * len(parts))
    require(0 < count < len(parts), "ratio", "a share that leaves trained and new clients", ratio)
    order = random.uniform((len(parts),), "new clients", run.seed).argsort().tolist()
    old, new = (
        Federation.of(data, [parts[i] for i in sorted(numbers)], run.seed) for numbers in (order[count:], order[:count])
    )
    method, loop = tasks.method(Run("train", run.paper, name, options=options), old.features, old.classes)
    require(isinstance(method, FedSheafHN), "of", "FedSheafHN or a variant of it", name)
    assert isinstance(method, FedSheafHN)
    open_ended = method.uses_embeddings and method.attention != "free"
    require(open_ended, "options", "without one-hot vectors and free attention, which fix the clients", options)
    trained = train(method, old, int(loop["rounds"]))
    received, alone = join(method, trained.state, new), method.warmed(new)
    view = trained.history.result(0)["after"]
    result = {
        "train_test": view["last"]["test_clients"],
        "train_best": view.get("best", view["last"])["test_clients"],
        "new": count,
        "trained": len(parts) - count,
        "new_received": accuracy_after(method, new, received, 0),
        "new_test": accuracy_after(method, new, received, method.local_epochs),
        "new_alone": accuracy_after(method, new, alone, method.local_epochs),
    }
    return {"result": result}


def join(method: FedSheafHN, state: State, new: Federation) -> Weights:
    """Return the weights `[clients, ...]` of new clients: generated backbones, and each client's own head.

    A head comes from the client's training by itself.

    Args:
        method: the trained method.
        state: of the trained clients, of one run.
        new: the new clients.
    """
    memory, weights = state.more, method.warmed(new)
    with torch.no_grad():
        embeddings = torch.cat([memory.used, method.mean_embeddings(new, weights)])
        server = memory.servers[0]
        generated = server.generate(server.weights, method.vectors_of(embeddings, trained=memory.used), None)
    return method.deliver([{name: w[-new.clients :] for name, w in generated.items()}], weights)


def accuracy_after(method: FedSheafHN, fed: Federation, weights: Weights, epochs: int) -> float:
    """Return the test accuracy after some local epochs from these weights, averaged over clients.

    Adam starts with fresh moments.
    """

    class FromWeights(Local):
        def start(self, fed: Federation) -> tuple[Federation, State]:
            return fed, State({}, weights)

    if epochs:
        trained = train(FromWeights(**method.local_options(epochs)), fed, 1, evaluate=("after",))
        return trained.history.result(0)["after"]["last"]["test_clients"]
    rows, mean = fed.rows("test")
    with torch.no_grad():
        right = (method.model(weights, fed)[rows].argmax(1) == fed.batch.y[rows]).to(fed.dtype)
    return float((mean @ right[:, None]).squeeze(1)[fed.count("test") > 0].mean())


# -- the cost of the server -------------------------------------------------------------------------------------------


def server_cost(run: Run) -> dict[str, Any]:
    """Measure the seconds of a round and of the server's part in it, and the memory of a process that does two rounds.

    The clients compute their embeddings inside the server's hooks. That time is counted as theirs. Nothing is scored.

    Args:
        run: its options are "of", the method ("FedSheafHN"); "rounds" (10); "memory" (true), whether memory is
            measured, in a separate process; and those of its training run.

    Returns:
        "result": `server_scalars`, how many weights the server trains, and `timing` with `server_seconds` and
        `round_seconds`, medians over the rounds after the first, and `peak_mebibytes`.
    """
    seconds, server, state = _time_rounds(run, int(run.options.get("rounds", 10)))
    timing = {"server_seconds": stats.median(server), "round_seconds": stats.median(seconds)}
    if run.options.get("memory", True):
        timing["peak_mebibytes"] = process.peak_mebibytes(_train_one_round, run.to_dict())
    weights = [s.weights for s in state.more.servers] if hasattr(state.more, "servers") else [state.shared]
    return {"result": {"timing": timing, "server_scalars": sum(w.numel() for part in weights for w in part.values())}}


def _time_rounds(run: Run, rounds: int) -> tuple[list[float], list[float], State]:
    """Return the seconds of each round after the first, those of the server's part in it, and the last state."""
    options = {name: value for name, value in run.options.items() if name not in ("of", "rounds", "memory")}
    wanted = run.replace(task="train", method=str(run.options.get("of", "FedSheafHN")), options=options)
    fed = tasks.federation([wanted])
    method, _ = tasks.method(wanted, fed.features, fed.classes)
    starts: list[float] = []
    server: list[float] = []

    def timed(hook: Callable[..., Any], sign: int) -> Callable[..., Any]:
        """Return a hook that adds its seconds to the server's, or subtracts them."""

        def wrapped(*given: Any) -> Any:
            begun = time.perf_counter()
            if hook is kind.begin_round:
                starts.append(begun)
                server.append(0.0)
            result = hook(*given)
            if server:  # the first embeddings are sent before any round
                server[-1] += sign * (time.perf_counter() - begun)
            return result

        return wrapped

    kind: Any = type(method)
    signs = {"begin_round": 1, "aggregate": 1, "_embeddings": -1}
    hooks = {name: timed(getattr(kind, name), sign) for name, sign in signs.items() if hasattr(kind, name)}
    method = type(kind.__name__, (kind,), hooks)(**{item.name: getattr(method, item.name) for item in fields(method)})
    trained = train(method, fed, rounds + 1, evaluate=())
    starts.append(time.perf_counter())
    return np.diff(starts)[1:].tolist(), server[1:], trained.state


def _train_one_round(run: dict[str, Any]) -> None:
    _time_rounds(Run.from_dict(run), 1)
