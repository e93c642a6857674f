"""FedGAT and DistGAT as the authors' public code trains them: aggregated gradients, one optimizer at the server.

The paper averages weights (Eq. 19). Its code sends one gradient per client and round, weighs it by the client's share
of training nodes, and takes one step of Adam at the server (FG-Q12c). All clients then hold the same weights, and the
aggregated gradient is that of the mean loss over all training nodes. FedGAT's layers miss no edge, so it trains as one
client would that held the whole graph, whatever the partition; DistGAT trains on the union of the client graphs.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedrepro.engine.fedsgd import FedSGD
from fedrepro.papers.fedgat.distgat import DistGAT
from fedrepro.papers.fedgat.method import FedGAT


@dataclass(frozen=True, kw_only=True)
class DistGATSGD(FedSGD, DistGAT):
    """FedSGD of a GAT on client graphs whose cross-client edges are dropped."""


@dataclass(frozen=True, kw_only=True)
class FedGATSGD(FedSGD, FedGAT):
    """FedSGD of FedGAT's layers, with the same exchange before training."""
