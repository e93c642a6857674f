"""DistGAT (FedGAT, Section 6): a GAT trained by FedAvg on client graphs whose cross-client edges are dropped."""

from __future__ import annotations

from dataclasses import dataclass

from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.nn.models import GAT
from fedrepro.errors import require


@dataclass(frozen=True, kw_only=True)
class DistGAT(FedAvg):
    """FedAvg of a GAT; a federation holds inner edges only unless a method asks for more."""

    model: GAT

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.model, GAT), "model", "a GAT for DistGAT", type(self.model).__name__)
