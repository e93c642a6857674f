"""Train by FedProx, from "Federated Optimization in Heterogeneous Networks".

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar and V. Smith, MLSys 2020, arXiv:1812.06127. The local objective
keeps a client near the weights w^t that it received in round t:

    F_i(w) = L_i(w) + mu/2 ||w - w^t||^2                                                                         (1)

In each round:

1. the server sends w^t to the clients (`Method.begin_round`);
2. every client takes `local_epochs` steps on F_i instead of L_i (`FedProx.local_loss`);
3. the server averages the weights that come back (`FedProx.aggregate`).

The penalty has no gradient at w^t. With one full-batch step per round FedProx is therefore FedAvg for every mu.
Public codes scale the term in several ways; we use (1), with the square and the factor 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedrepro.baselines.personal import squared_distance
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn.sparse import groups_of, sum_groups
from fedrepro.errors import require


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term in the local objective.

    Args:
        mu: weight of the proximal term. With 0 the method is FedAvg to the last bit.
    """

    mu: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.mu >= 0, "mu", "zero or positive", self.mu)

    @property
    def receptive(self) -> int | None:
        """Return the model's hops, since the proximal term depends on no node."""
        return self.model.hops

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Return F_i of equation (1), `[clients]`."""
        loss = super().local_loss(weights, fed, state, t)
        if self.mu == 0:
            return loss
        return loss + self.mu / 2 * squared_distance(weights, fed.broadcast(state.shared))

    def aggregate(self, state: State, update: Update) -> State:
        """Average as FedAvg does, and keep the mean distance that the clients moved."""
        distance = squared_distance(update.after, update.before).sqrt() * update.active
        drift = sum_groups(distance, groups_of(update.fed.run, update.fed.runs))
        count = torch.bincount(update.fed.run[update.active], minlength=update.fed.runs)
        return replace(super().aggregate(state, update), more=drift / count)

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Return `drift`, the mean distance of the clients from the weights they received in the last round."""
        return [{"drift": float(value)} for value in state.more]
