"""FedSheafHN as printed and as coded (SH-Q3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State, Step, Update
from fedrepro.papers.fedsheafhn.method import FedSheafHN


@dataclass(frozen=True, kw_only=True)
class FedSheafHNAsPrinted(FedSheafHN):
    """The update as printed: Delta = trained - generated, subtracted (Eq. 12, 13 and Algorithm 1; SH-Q3)."""

    sign: str = "ascent"


@dataclass(frozen=True, kw_only=True)
class FedSheafHNAsCoded(FedSheafHN):
    """What the authors' public code does on PyTorch Geometric 2: of the generated weights only the two biases take
    effect, and these are not trained; the matrices are the client's own, and Delta is zero, so that hypernetwork and
    attention never move. In effect local training with biases made at random.
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
        """The biases of the convolutions."""
        return tuple(name for name, shape in self.shapes if len(shape) == 1)

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """Generated biases do not move."""
        names = tuple(name for name in state.personal if name not in self.received)
        for epoch in range(self.local_epochs):
            yield Step(names, partial(self.local_loss, fed=fed.at(t, epoch), state=state, t=t))

    def _change(self, update: Update, mine: slice) -> tuple[Weights, float]:
        return {name: torch.zeros_like(update.before[name][mine]) for name, _ in self.shapes}, 0.0
