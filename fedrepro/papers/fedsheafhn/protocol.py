"""FedSheafHN as the paper prints it and as its public code runs (SH-Q3).

Neither is the method that its authors describe in words. The printed step climbs the clients' loss. The public code
generates weights that take no effect. `method` has the corrected form, and the differences are two short classes here.
"""

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
    """FedSheafHN with the printed update, Delta = trained - generated, which the server subtracts (Eq. 12, 13)."""

    sign: str = "ascent"


@dataclass(frozen=True, kw_only=True)
class FedSheafHNAsCoded(FedSheafHN):
    """FedSheafHN as the authors' public code runs it on PyTorch Geometric 2.

    Only the two generated biases take effect, and clients do not train them. The matrices are the client's own. The
    code's Delta is zero, so that the hypernetwork and its attention never move. The result is local training with
    biases that a server makes at random.
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

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """Yield the local epochs, in which all weights but the generated biases move."""
        names = tuple(name for name in state.personal if name not in self.received)
        for epoch in range(self.local_epochs):
            yield Step(names, partial(self.local_loss, fed=fed.at(t, epoch), state=state, t=t))

    def change(self, update: Update, members: slice) -> tuple[Weights, float]:
        """Return a Delta of zero: in the code the trained and the generated weights share their memory."""
        return {name: torch.zeros_like(update.before[name][members]) for name, _ in self.shapes}, 0.0
