"""FedPer (Arivazhagan et al. 2019): the first layers are averaged, the last ones stay with their client.

A client trains base and head together; only the base travels. Read after local training: a client that has just
received a base holds a head fitted to another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedrepro.baselines.personal import last_layers
from fedrepro.engine.fedavg import FedAvg
from fedrepro.errors import require


@dataclass(frozen=True, kw_only=True)
class FedPer(FedAvg):
    """Args:
    personal_layers: how many weight layers, from the last, stay with the client; 0 is FedAvg, all of them Local.
        Clients of a run start from the same head.
    """

    personal_layers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        most = len(self.model.widths)
        require(0 <= self.personal_layers <= most, "personal_layers", f"from 0 to {most}", self.personal_layers)

    @property
    def personal(self) -> tuple[str, ...]:
        """Names of the head's weights."""
        return last_layers(self.model, self.personal_layers)
