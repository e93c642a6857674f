"""FedProx (Li et al. 2020): FedAvg whose local objective keeps a client near the weights it received.

    F_i(w) = L_i(w) + mu/2 ||w - w_received||^2

The penalty has no gradient at the received weights, so with one full-batch step in a round FedProx is FedAvg for
every mu.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedrepro.baselines.personal import squared_distance
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State, Update
from fedrepro.errors import require


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """Args:
    mu: weight of the proximal term; 0 is FedAvg to the last bit.
    """

    mu: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.mu >= 0, "mu", "zero or positive", self.mu)

    @property
    def receptive(self) -> int | None:
        """The proximal term looks at no node."""
        return self.model.hops

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Cross-entropy plus the proximal term, `[clients]`; the anchor is what the server sent this round."""
        loss = super().local_loss(weights, fed, state, t)
        if self.mu == 0:
            return loss
        return loss + self.mu / 2 * squared_distance(weights, fed.broadcast(state.shared))

    def aggregate(self, state: State, update: Update) -> State:
        """FedAvg's, remembering how far clients moved."""
        moved = squared_distance(update.after, update.before).sqrt() * update.active
        total = torch.zeros(update.fed.runs, dtype=moved.dtype, device=moved.device)
        drift = total.index_add(0, update.fed.run, moved)
        count = torch.bincount(update.fed.run[update.active], minlength=update.fed.runs)
        return replace(super().aggregate(state, update), more=drift / count)

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """`drift`: mean distance of the clients from the weights they received, in the last round."""
        return [{"drift": float(value)} for value in state.more]
