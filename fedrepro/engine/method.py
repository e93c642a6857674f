"""What a federated method is: the hooks of one round, with FedAvg's behaviour as their default.

    round = begin_round -> local_steps -> aggregate

A method overrides what its paper changes and nothing else. Weights are dictionaries of stacked tensors: `[runs, ...]`
for what the server holds, `[clients, ...]` for what clients hold (see `fedrepro.engine.federation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import layers, random
from fedrepro.engine.nn.models import Model
from fedrepro.engine.nn.optim import Optimizer
from fedrepro.errors import one_of, require

AVERAGES = ("equal", "train", "nodes")


class Step(NamedTuple):
    """One local step: the weights that move and the loss `[clients]` they descend."""

    names: tuple[str, ...]
    loss: Callable[[Weights], Tensor]


class Update(NamedTuple):
    """What a round of local training made.

    Args:
        before: weights the clients received, `[clients, ...]` (`[runs, ...]` for a method that uploads gradients).
        after: the same after the local steps.
        gradient: of the weighted sum of client losses at `before`, `[runs, ...]`; only where `upload` is "gradients".
        active: `[clients]` bool, who trained.
        by: `[clients]`, weights in averages, 0 for who did not train.
        fed: the federation trained on.
        round: the round.
    """

    before: Weights
    after: Weights
    gradient: Weights
    active: Tensor
    by: Tensor
    fed: Federation
    round: int


@dataclass(frozen=True)
class State:
    """What persists between rounds.

    Args:
        shared: the server's weights, `[runs, ...]`.
        personal: weights that never leave their client, `[clients, ...]`.
        more: whatever else a method keeps.
    """

    shared: Weights
    personal: Weights
    more: Any = None


@dataclass(frozen=True, kw_only=True)
class Method:
    """Hyper-parameters every method has, and the default round: FedAvg.

    Args:
        model: the network.
        optimizer: "adam" or "sgd", at the clients (at the server for a method that uploads gradients).
        lr, weight_decay, momentum: of the optimizer.
        local_epochs: full-batch steps of a client in a round.
        average: weights of the clients in averages: "equal", by "train" nodes, or by all "nodes". A client without
            training nodes takes no step and has no weight.
        optimizer_state: "kept" across rounds (weights are replaced, moments stay) or "reset" every round.
        participation: share of the clients with training nodes that are drawn each round.
    """

    model: Model
    optimizer: str = "adam"
    lr: float = 0.01
    weight_decay: float = 0.0
    momentum: float = 0.0
    local_epochs: int = 1
    average: str = "equal"
    optimizer_state: str = "kept"
    participation: float = 1.0

    upload: ClassVar[str] = "weights"  # or "gradients": one gradient at the received weights, no local step
    sync: ClassVar[str] = "round"  # or "step": clients exchange inside local training, which forbids chunks

    def __post_init__(self) -> None:
        one_of("average", self.average, AVERAGES)
        one_of("optimizer_state", self.optimizer_state, ("kept", "reset"))
        require(self.local_epochs >= 1, "local_epochs", "at least 1", self.local_epochs)
        require(0 < self.participation <= 1, "participation", "in (0, 1]", self.participation)
        self.rule()

    @property
    def personal(self) -> tuple[str, ...]:
        """Names of the weights that are never sent."""
        return ()

    @property
    def receptive(self) -> int | None:
        """How many hops from a node its output depends on; training and scoring then leave out what is further from
        the nodes that count.

        None: everything is kept. That is so for a method with a loss of its own, unless it says otherwise.
        """
        return None if type(self).local_loss is not Method.local_loss else self.model.hops

    def rule(self) -> Optimizer:
        """The optimizer's rule."""
        return Optimizer(self.optimizer, self.lr, self.weight_decay, self.momentum)

    # -- the hooks, in the order a run calls them
    # -----------------------------------------------------------------------

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Initial weights, and the federation to train on: another one where the method exchanges something
        beforehand.
        """
        weights = self.model.init(fed.seeds, fed.dtype, fed.device)
        shared = {name: w for name, w in weights.items() if name not in self.personal}
        own = {name: w for name, w in weights.items() if name in self.personal}
        return fed, State(shared, {name: w[fed.run].clone() for name, w in own.items()})

    def select(self, fed: Federation, t: int) -> Tensor:
        """`[clients]` bool: who trains in round `t`, among those with training nodes."""
        able = fed.count("train") > 0
        if self.participation == 1:
            return able
        chosen = torch.zeros_like(able)
        for run, seed in enumerate(fed.seeds):
            mine = (able & (fed.run == run)).nonzero().squeeze(1)
            drawn = random.uniform((len(mine),), "participation", seed, t).argsort()
            chosen[mine[drawn[: max(1, round(self.participation * len(mine)))].to(mine.device)]] = True
        return chosen

    def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
        """The weights each client starts round `t` with, `[clients, ...]`. The place for every exchange before local
        training.
        """
        if self.upload == "gradients":
            return state.shared
        return {**fed.broadcast(state.shared), **state.personal}

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """The steps of one round; each names the weights it moves."""
        names = tuple(state.shared) + tuple(state.personal)
        for epoch in range(self.local_epochs):
            yield Step(names, partial(self.local_loss, fed=fed.at(t, epoch), state=state, t=t))

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Each client's own mean loss, `[clients]`."""
        return layers.cross_entropy(fed, self.forward(weights, fed, state))

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Logits `[nodes, classes]` under these weights."""
        return self.model(weights, fed)

    def aggregate(self, state: State, update: Update) -> State:
        """The server's step: weights of those who trained, averaged per run."""
        sent = {name: update.after[name] for name in state.shared}
        kept = {name: update.after[name] for name in state.personal}
        shared = update.fed.average(sent, update.by) if sent else {}
        return State(shared, kept, state.more)

    def predict(self, fed: Federation, state: State) -> Tensor:
        """Logits `[nodes, classes]` of what each client holds between rounds."""
        if state.personal:
            return self.forward({**fed.broadcast(state.shared), **state.personal}, fed, state)
        return self.forward(state.shared, fed.shared(), state)

    # -- facts
    # ------------------------------------------------------------------------------------------------------------

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """What a method reports of itself at the end, one dictionary per run; it goes into the run's record."""
        return [{} for _ in fed.seeds]

    def client_weights(self, fed: Federation, active: Tensor) -> Tensor:
        """`[clients]`, weights in averages (not normalized), 0 for who is not active."""
        if self.average == "equal":
            return active.to(torch.float64)
        return fed.count("all" if self.average == "nodes" else "train") * active.to(torch.float64)
