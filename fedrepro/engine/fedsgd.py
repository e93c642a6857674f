"""Train by FedSGD, from "Communication-Efficient Learning of Deep Networks from Decentralized Data".

H. B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Aguera y Arcas, AISTATS 2017, arXiv:1602.05629. Every client sends
one gradient per round, and the server's optimizer takes one step along their weighted mean. All clients hold the same
weights, so these exist once per run, and one backward pass of the weighted sum of client losses yields the server's
gradient. Without dropout the trajectory is that of central training on the union of the client graphs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fedrepro.engine.federation import Federation
from fedrepro.engine.method import Method, State, Update
from fedrepro.errors import require


@dataclass(frozen=True, kw_only=True)
class FedSGD(Method):
    """FedSGD, whose `optimizer` steps at the server.

    With `average="train"` the averaged gradient is that of the mean loss over all training nodes of a run.
    """

    average: str = "train"

    upload: ClassVar[str] = "gradients"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.local_epochs == 1, "local_epochs", "1 for FedSGD, whose clients take no step", self.local_epochs)

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Return the federation, the initial weights and the server's optimizer state."""
        fed, state = super().start(fed)
        return fed, replace(state, more=self.rule().init(state.shared))

    def aggregate(self, state: State, update: Update) -> State:
        """Take one step of the server's optimizer along the averaged gradient."""
        moved = {name: w.clone() for name, w in state.shared.items()}
        self.rule().step(moved, update.gradient, state.more)
        return replace(state, shared=moved)
