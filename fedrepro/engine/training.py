"""Run the training loop: rounds, local steps over chunks of clients, evaluation, and the history of all scores.

Clients are processed in chunks small enough for their weights to stay in cache. A chunk of one is the plain loop over
clients. Chunks change no result beyond rounding, since clients share nothing within a round.

A local step never waits for a GPU, so a CUDA graph could capture it. None does: the clock and Adam's count are numbers
of Python, and each round makes its tensors of updated weights and logits anew. On an H100 the kernels of small clients
take less than a tenth of a round (EN-GPU), and several processes on one GPU use what is left (`FEDREPRO_PER_GPU`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.nn.optim import OptimizerState
from fedrepro.engine.scores import VIEWS, History, runs_of
from fedrepro.engine.traffic import Traffic
from fedrepro.errors import one_of, require

# Bytes of stacked weights of one chunk on a CPU. Small chunks cost more calls, and large ones do not fit into the
# caches: with 100 clients and 64 hidden units 10 MB ran a tenth faster than 6 MB (EN-4). Activations are not counted:
# where they are large, on PubMed and Computers, a chunk of one client is slower than all ten at a time (EN-5).
CHUNK_BYTES = 10_000_000


@dataclass
class _Chunk:
    """Consecutive clients that are trained together.

    Args:
        part: the clients.
        fed: the part of their graphs that the training loss depends on.
        scored: the part of their graphs that validation and test scores depend on.
        rows: the indices of the nodes of `scored` among those of all clients.
    """

    part: slice
    fed: Federation
    scored: Federation
    rows: Tensor | slice


class Trained(NamedTuple):
    """The history of all runs, the federation that was trained on, and the method's last state.

    The federation is not the one given to `train` if the method exchanges data before training.
    """

    history: History
    fed: Federation
    state: State


def train(
    method: Method, fed: Federation, rounds: int, *, evaluate: tuple[str, ...] = VIEWS, chunk: int | None = None
) -> Trained:
    """Train every run of a federation.

    Args:
        method: the federated method, see `fedrepro.engine.method`.
        fed: one or several runs side by side.
        rounds: communication rounds.
        evaluate: views to score each round, from "before" and "after" (see `History`).
        chunk: clients trained at a time. None chooses the number by the size of the weights. On a GPU it begins with
            as many clients as free memory may hold, and halves their number as long as memory ends in the first round.

    Raises:
        ArgumentError: `rounds`, `evaluate` or `chunk` is not possible, or a run has no training node.
        torch.OutOfMemoryError: the memory of a GPU ends, even with one client at a time.
    """
    require(rounds >= 1, "rounds", "at least 1", rounds)
    require(chunk is None or chunk >= 1, "chunk", "at least 1, or None", chunk)
    for view in evaluate:
        one_of("evaluate", view, VIEWS)
    runs = fed.runs
    labelled = torch.bincount(fed.run, fed.count("train"), minlength=runs)
    require(bool((labelled > 0).all()), "fed", "a federation with training nodes in every run", labelled.tolist())
    given = [fed]
    chunks = method.sync == "round" and method.upload == "weights"
    memory_decides = chunk is None and chunks and fed.device.type == "cuda"
    del fed  # so that a federation which the method replaces at its start does not stay in memory
    if not memory_decides:
        return _rounds(method, given.pop(), History(rounds, runs), evaluate, chunk)
    while True:
        history = History(rounds, runs)
        try:
            return _rounds(method, given[0], history, evaluate, chunk)
        except torch.OutOfMemoryError:
            # A smaller chunk needs less memory for gradients and activations, and for nothing before or after a round.
            if history.chunk <= 1 or history.loss:
                raise
            chunk = -(-history.chunk // 2)
        given = [replace(given[0], _cache={})]
        gc.collect()
        torch.cuda.empty_cache()


def _rounds(method: Method, fed: Federation, history: History, evaluate: tuple[str, ...], chunk: int | None) -> Trained:
    """Start a method and train its rounds; `history` is filled as they end."""
    fed, state = method.start(replace(fed, traffic=Traffic(fed.runs, fed.traffic.size)))
    trainer = _Trainer(method, fed, state, chunk)
    history.chunk = trainer.chunk
    for t in range(history.rounds):
        active = method.select(fed, t)
        trains = active.cpu()  # copied once, since each question of the host makes a GPU wait
        update, loss, logits = trainer.round(state, t, active, trains, "after" in evaluate)
        state = method.aggregate(state, update)
        _count(method, fed, state, trains.numpy(), t)
        history.loss.append(_per_run(fed, loss, trains.numpy()))
        for number in np.flatnonzero(~np.isfinite(history.loss[-1])):
            history.diverged.setdefault(int(number), t + 1)
        if logits is not None:
            history.add("after", trainer.scored, logits)
        if "before" in evaluate:
            with torch.no_grad():
                history.add("before", trainer.scored, method.predict(trainer.scored, state))
        if len(history.diverged) == fed.runs:
            history.rounds = t + 1
            break
    for run in _spoiled(fed, state):
        history.diverged.setdefault(run, history.rounds)
    return Trained(history, fed, state)


def _spoiled(fed: Federation, state: State) -> list[int]:
    """Return the runs with a weight that is not finite, since the last step comes after the last loss."""
    fine = torch.ones(fed.runs, dtype=torch.bool, device=fed.device)
    for w in state.shared.values():
        fine &= w.isfinite().flatten(1).all(1)
    for w in state.personal.values():
        fine[fed.run[~w.isfinite().flatten(1).all(1)]] = False
    return [int(run) for run in (~fine).nonzero().squeeze(1)]


class _Trainer:
    """The local training of all clients, chunk by chunk, with the optimizer's state."""

    def __init__(self, method: Method, fed: Federation, state: State, chunk: int | None) -> None:
        self.method, self.fed = method, fed
        self.optimizer: OptimizerState | None = None
        self.chunk = fed.clients if method.sync == "step" else chunk or chunk_size(method, fed, state)
        hops = method.receptive
        self.scored = fed if hops is None else fed.focus(hops, ("val", "test"))
        self.seen = fed if hops is None else fed.focus(hops, ("train",))
        self.chunks = list(self._chunks())

    def _chunks(self) -> Iterator[_Chunk]:
        clients = list(range(self.fed.clients))
        for start in range(0, len(clients), self.chunk):
            part = slice(start, min(start + self.chunk, len(clients)))
            if self.chunk >= len(clients):
                yield _Chunk(part, self.seen, self.scored, slice(None))
                continue
            scored = self.scored.select(clients[part])
            assert scored.parent is not None
            yield _Chunk(part, self.seen.select(clients[part]), scored, scored.parent[1])

    def round(
        self, state: State, t: int, active: Tensor, trains: Tensor, predict: bool
    ) -> tuple[Update, Tensor, Tensor | None]:
        """Train one round of the clients that are `active`, which `trains` says on the host.

        Returns:
            The update, each client's loss at its last step `[clients]`, and the logits of the trained weights if
            `predict` is true and the method trains at the clients.
        """
        method, fed = self.method, self.fed
        before = method.begin_round(fed, state, t)
        by = method.client_weights(fed, active)
        if method.upload == "gradients":
            return self._gradient(before, state, t, active, by)
        after = {name: torch.empty(w.shape, dtype=w.dtype, device=w.device) for name, w in before.items()}
        if self.optimizer is None or method.optimizer_state == "reset":
            self.optimizer = method.rule().init(after)
        loss = torch.zeros(fed.clients, dtype=fed.dtype, device=fed.device)
        logits = torch.empty(self.scored.nodes, fed.classes, dtype=fed.dtype, device=fed.device) if predict else None
        for chunk in self.chunks:
            weights = {name: w[chunk.part].copy_(before[name][chunk.part]) for name, w in after.items()}
            if bool(trains[chunk.part].any()):
                loss[chunk.part] = self._steps(chunk, weights, state, t, trains[chunk.part])
            if logits is not None:
                with torch.no_grad():
                    logits[chunk.rows] = method.forward(weights, chunk.scored, state)
        return Update(before, after, {}, active, by, fed, t), loss, logits

    def _steps(self, chunk: _Chunk, weights: Weights, state: State, t: int, trains: Tensor) -> Tensor:
        """Take the local steps of one chunk, on views of all clients' weights and moments. Returns the last loss."""
        assert self.optimizer is not None
        stepping = None if bool(trains.all()) else trains
        moments = self.optimizer.view(chunk.part)
        rule, loss = self.method.rule(), torch.zeros(0)
        for step in self.method.local_steps(chunk.fed, state, t):
            leaves = {name: w.detach().requires_grad_(name in step.names) for name, w in weights.items()}
            loss = step.loss(leaves)
            names = [name for name in step.names if name in leaves]
            # The gradient of the sum of losses, since each client's loss depends on its own weights only.
            wanted = [leaves[name] for name in names]
            grads = torch.autograd.grad(loss, wanted, torch.ones_like(loss), allow_unused=True)
            gradients = {name: grad for name, grad in zip(names, grads, strict=True) if grad is not None}
            rule.step(weights, gradients, moments, stepping)
        return loss.detach()

    def _gradient(
        self, before: Weights, state: State, t: int, active: Tensor, by: Tensor
    ) -> tuple[Update, Tensor, Tensor | None]:
        """Compute the gradient of each run's weighted mean of client losses, at weights stored once per run."""
        method, shared = self.method, self.seen.shared()
        leaves = {name: w.detach().requires_grad_() for name, w in before.items()}
        loss = method.local_loss(leaves, shared.at(t, 0), state, t)
        total = torch.zeros(self.fed.runs, dtype=by.dtype, device=by.device).index_add_(0, self.fed.run, by)
        share = (by / total[self.fed.run]).to(loss.dtype)
        grads = torch.autograd.grad((loss * share)[active].sum(), list(leaves.values()))
        gradient = dict(zip(leaves, grads, strict=True))
        return Update(before, before, gradient, active, by, self.fed, t), loss.detach(), None


def client_gradients(method: Method, fed: Federation, state: State, t: int = 0) -> Weights:
    """Return each client's own gradient at the weights that it receives in round `t`, `[clients, ...]`."""
    received = method.begin_round(fed, state, t)
    stacked = fed.broadcast(received) if method.upload == "gradients" else received
    leaves = {name: w.clone().requires_grad_() for name, w in stacked.items()}
    loss = method.local_loss(leaves, fed.at(t, 0), state, t)
    return dict(zip(leaves, torch.autograd.grad(loss.sum(), list(leaves.values())), strict=True))


def chunk_size(method: Method, fed: Federation, state: State) -> int:
    """Return the number of clients to train at a time, so that all chunks are of about equal size.

    The stacked weights of a chunk fit into `CHUNK_BYTES`, on a GPU into its free memory, which is an upper limit:
    `train` takes smaller chunks if the activations do not fit next to them.
    """
    client_bytes = sum(w[0].numel() * w.element_size() for w in (*state.shared.values(), *state.personal.values()))
    limit = CHUNK_BYTES
    if fed.device.type == "cuda":
        limit = torch.cuda.mem_get_info(fed.device)[0]
    most = int(max(1, min(fed.clients, limit // client_bytes)))
    # Both divisions round up: the inner one is the number of chunks.
    return -(-fed.clients // -(-fed.clients // most))


def _count(method: Method, fed: Federation, state: State, active: np.ndarray, t: int) -> None:
    """Count the weights sent to every client that trained, and the weights or gradients that it sends back."""
    scalars = sum(w.numel() // len(w) for w in state.shared.values())
    clients = np.bincount(runs_of(fed)[active], minlength=fed.runs)
    if scalars:
        fed.traffic.send("down", "weights", clients * scalars, round=t)
        fed.traffic.send("up", method.upload, clients * scalars, round=t)


def _per_run(fed: Federation, loss: Tensor, active: np.ndarray) -> np.ndarray:
    """Return the mean loss over each run's active clients, `[runs]`."""
    run, value = runs_of(fed)[active], loss.double().cpu().numpy()[active]
    return np.asarray(np.bincount(run, value, fed.runs) / np.bincount(run, minlength=fed.runs))
