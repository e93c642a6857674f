"""Define a federated method by the hooks of one round, which are FedAvg's unless a method overrides them.

    fed, state = start(fed)                          once, before the first round
    for each round t:
        active = select(fed, t)                      the clients that train
        weights = begin_round(fed, state, t)         the server sends weights, clients exchange what they need
        for each step of local_steps(fed, state, t): every active client follows the gradient of its loss
        state = aggregate(state, update)             the server averages the weights that it receives
        predict(fed, state)                          the logits that are scored

A method overrides the hooks that its paper changes and no others. Weights are dictionaries of stacked tensors,
`[runs, ...]` at the server and `[clients, ...]` at the clients (see `fedrepro.engine.federation`). The module
`fedrepro.engine.training` calls the hooks.
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
    """One local step: the names of the weights that move, and the loss `[clients]` that they descend."""

    names: tuple[str, ...]
    loss: Callable[[Weights], Tensor]


class Update(NamedTuple):
    """The result of one round of local training, which the server aggregates.

    Args:
        before: weights that the clients received, `[clients, ...]` (`[runs, ...]` for a method that uploads gradients).
        after: the same weights after the local steps.
        gradient: gradient of the weighted sum of client losses at `before`, `[runs, ...]`. It is empty unless `upload`
            is "gradients".
        active: `[clients]` bool, the clients that trained.
        by: `[clients]`, weights in averages, 0 for a client that did not train.
        fed: the federation that was trained on.
        round: number of the round, from 0.
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
    """The weights and other values that persist between rounds.

    Args:
        shared: the server's weights, `[runs, ...]`.
        personal: weights that never leave their client, `[clients, ...]`.
        more: any other value that a method keeps.
    """

    shared: Weights
    personal: Weights
    more: Any = None


@dataclass(frozen=True, kw_only=True)
class Method:
    """The hyper-parameters of every method, and the default round, which is FedAvg's.

    Args:
        model: the network.
        optimizer: "adam" or "sgd", at the clients (at the server for a method that uploads gradients).
        lr: learning rate of the optimizer.
        weight_decay: L2 regularization of the optimizer.
        momentum: momentum of SGD.
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

    # "weights", or "gradients": one gradient at the received weights, without a local step.
    upload: ClassVar[str] = "weights"
    # "round", or "step": clients exchange inside local training, which forbids chunks.
    sync: ClassVar[str] = "round"

    def __post_init__(self) -> None:
        one_of("average", self.average, AVERAGES)
        one_of("optimizer_state", self.optimizer_state, ("kept", "reset"))
        require(self.local_epochs >= 1, "local_epochs", "at least 1", self.local_epochs)
        require(0 < self.participation <= 1, "participation", "in (0, 1]", self.participation)
        self.rule()

    @property
    def personal(self) -> tuple[str, ...]:
        """Return the names of the weights that are never sent."""
        return ()

    @property
    def receptive(self) -> int | None:
        """Return the number of hops beyond which no node changes an output, or None to keep all nodes.

        Training and scoring leave out nodes that are further from the nodes with a loss or a score. A method that
        overrides `local_loss` keeps all nodes unless it overrides this property, too.
        """
        return None if type(self).local_loss is not Method.local_loss else self.model.hops

    def rule(self) -> Optimizer:
        """Return the optimizer with this method's hyper-parameters."""
        return Optimizer(self.optimizer, self.lr, self.weight_decay, self.momentum)

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Return the federation to train on and the initial state.

        A method that exchanges nodes, features or edges before training returns another federation than `fed`.
        """
        weights = self.model.init(fed.seeds, fed.dtype, fed.device)
        shared = {name: w for name, w in weights.items() if name not in self.personal}
        personal = {name: w for name, w in weights.items() if name in self.personal}
        return fed, State(shared, {name: w[fed.run].clone() for name, w in personal.items()})

    def select(self, fed: Federation, t: int) -> Tensor:
        """Draw the clients that train in round `t` among those with training nodes, `[clients]` bool."""
        trainable = fed.count("train") > 0
        if self.participation == 1:
            return trainable
        chosen = torch.zeros_like(trainable)
        for run, seed in enumerate(fed.seeds):
            pool = (trainable & (fed.run == run)).nonzero().squeeze(1)
            order = random.uniform((len(pool),), "participation", seed, t).argsort()
            chosen[pool[order[: max(1, round(self.participation * len(pool)))].to(pool.device)]] = True
        return chosen

    def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
        """Return the weights with which each client starts round `t`, `[clients, ...]`.

        Every exchange that precedes local training happens here.
        """
        if self.upload == "gradients":
            return state.shared
        return {**fed.broadcast(state.shared), **state.personal}

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """Yield the local steps of one round, each with the names of the weights that it moves."""
        names = tuple(state.shared) + tuple(state.personal)
        for epoch in range(self.local_epochs):
            yield Step(names, partial(self.local_loss, fed=fed.at(t, epoch), state=state, t=t))

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Return each client's mean loss over its training nodes, `[clients]`."""
        return layers.cross_entropy(fed, self.forward(weights, fed, state))

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return the logits `[nodes, classes]` under these weights."""
        return self.model(weights, fed)

    def aggregate(self, state: State, update: Update) -> State:
        """Average the weights of the clients that trained, per run. This is the server's step."""
        sent = {name: update.after[name] for name in state.shared}
        personal = {name: update.after[name] for name in state.personal}
        shared = update.fed.average(sent, update.by) if sent else {}
        return State(shared, personal, state.more)

    def predict(self, fed: Federation, state: State) -> Tensor:
        """Return the logits `[nodes, classes]` of the model that each client holds between rounds."""
        if state.personal:
            return self.forward({**fed.broadcast(state.shared), **state.personal}, fed, state)
        return self.forward(state.shared, fed.shared(), state)

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Return facts about the trained method for each run's record, one dictionary per run."""
        return [{} for _ in fed.seeds]

    def client_weights(self, fed: Federation, active: Tensor) -> Tensor:
        """Return the clients' weights in averages, not normalized and 0 for inactive clients, `[clients]`."""
        if self.average == "equal":
            return active.to(torch.float64)
        return fed.count("all" if self.average == "nodes" else "train") * active.to(torch.float64)
