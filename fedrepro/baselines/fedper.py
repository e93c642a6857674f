"""Train by FedPer, from "Federated Learning with Personalization Layers".

M. G. Arivazhagan, V. Aggarwal, A. K. Singh and S. Choudhary, arXiv:1912.00818, 2019. A network is a base b, which the
server averages, and a head h_i, which never leaves client i. With weights p_i of the clients,

    (b_i, h_i) = local steps on L_i(b, h_i)         b <- sum_i p_i b_i                                           (1)

In each round:

1. the server sends b to the clients (`Method.begin_round`);
2. every client trains base and head together (`Method.local_steps`);
3. the server averages the bases; each client keeps its head with its optimizer state (`Method.aggregate`).

The algorithm is FedAvg's, and `FedPer.personal` names the weights that do not travel. All clients of a run start from
the same head, which is our choice. A score should be read after local training, because a client that has just
received b holds a head that was fitted to another base.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedrepro.baselines.personal import last_layers
from fedrepro.engine.fedavg import FedAvg
from fedrepro.errors import require


@dataclass(frozen=True, kw_only=True)
class FedPer(FedAvg):
    """FedAvg of all layers but the last, which stay with their client.

    Args:
        personal_layers: number of layers, from the last, that form the head. With 0 the method is FedAvg, with all
            layers it is Local.
    """

    personal_layers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        most = len(self.model.widths)
        require(0 <= self.personal_layers <= most, "personal_layers", f"from 0 to {most}", self.personal_layers)

    @property
    def personal(self) -> tuple[str, ...]:
        """Return the names of the head's weights."""
        return last_layers(self.model, self.personal_layers)
