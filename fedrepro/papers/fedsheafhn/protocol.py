"""FedSheafHN as the paper prints it and as its public code runs (SH-Q3).

Neither is the method that its authors describe in words. The printed step climbs the clients' loss. The public code
generates weights that take no effect. `method` has the corrected form, and the differences are two short classes here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.local import Local
from fedrepro.engine.method import State, Step, Update
from fedrepro.engine.nn.optim import Optimizer, OptimizerState
from fedrepro.engine.training import train
from fedrepro.papers.fedsheafhn.method import FedSheafHN


@dataclass(frozen=True, kw_only=True)
class FedSheafHNAsPrinted(FedSheafHN):
    """FedSheafHN with the printed update, Delta = trained - generated, which the server subtracts (Eq. 12, 13)."""

    sign: str = "ascent"


@dataclass(frozen=True, kw_only=True)
class _Alone(Local):
    """Training of each client by itself, with an optimizer that goes on afterwards."""

    given: Optimizer

    def rule(self) -> Optimizer:
        """Return the optimizer that was given."""
        return self.given


@dataclass(frozen=True, kw_only=True)
class FedSheafHNAsCoded(FedSheafHN):
    """FedSheafHN as the authors' public code runs it on PyTorch Geometric 2.

    Only the two generated biases take effect, and clients do not train them. The matrices are the client's own. The
    code's Delta is zero, so that the hypernetwork and its attention never move. The result is local training with
    biases that a server makes at random.

    Two more details follow the code. A client has one Adam from its first step on, so that round 1 goes on with the
    moments of the warm-up. New embeddings are taken after the rounds r_in, 2 r_in, ... counted from 0, and serve from
    the next round on.
    """

    standardized: bool = False
    warmup: int = 10
    age: str = "fresh"
    graph: str = "complete"
    learner: str = "linear"
    maps_made: str = "once"
    gate: bool = True
    attention: str = "free"
    output: str = "plain"
    sheaf_lr: float = 0.02
    hyper_lr: float = 0.01

    @property
    def received(self) -> tuple[str, ...]:
        """Return the names of the convolutions' biases."""
        return tuple(name for name, shape in self.shapes if len(shape) == 1)

    @cached_property
    def held(self) -> list[OptimizerState]:
        """Return the clients' moments since the start, none before it."""
        return []

    def rule(self) -> Optimizer:
        """Return the clients' optimizer, which goes on with the moments of the warm-up unless they are reset."""
        plain = super().rule()
        if self.optimizer_state == "reset":
            return plain
        return Lasting(plain.name, plain.lr, plain.weight_decay, plain.momentum, self.held)

    def warmed(self, fed: Federation) -> Weights:
        """Return every client's weights `[clients, ...]` after the warm-up, and keep its moments."""
        self.held.clear()
        alone = _Alone(**self.local_options(self.warmup), given=self.rule())
        return train(alone, fed, 1, evaluate=()).state.personal if self.warmup else alone.start(fed)[1].personal

    def _is_refresh(self, t: int) -> bool:
        """Return whether the server takes new embeddings before round `t`, those that arrived after round `t - 1`."""
        return self._is_sending(t - 1)

    def _is_sending(self, t: int) -> bool:
        """Return whether clients send their embedding after round `t`, counted from 0."""
        return bool(self.refresh) and t > 0 and t % self.refresh == 0

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """Yield the local epochs, in which all weights but the generated biases move."""
        names = tuple(name for name in state.personal if name not in self.received)
        for epoch in range(self.local_epochs):
            yield Step(names, partial(self.local_loss, fed=fed.at(t, epoch), state=state, t=t))

    def change(self, update: Update, members: slice) -> tuple[Weights, float]:
        """Return a Delta of zero: in the code the trained and the generated weights share their memory."""
        return {name: torch.zeros_like(update.before[name][members]) for name, _ in self.shapes}, 0.0


@dataclass(frozen=True)
class Lasting(Optimizer):
    """An optimizer whose moments outlast one training: every training goes on with those in `held`."""

    held: list[OptimizerState] = field(default_factory=list)

    def init(self, weights: Mapping[str, Tensor]) -> OptimizerState:
        """Return the moments held, or zero ones, which are held from then on."""
        if not self.held:
            self.held.append(super().init(weights))
        return self.held[0]
