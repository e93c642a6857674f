"""FedMLP and MLPs (GFL, Section 6.3): GFL-APPNP's network and local steps without the graph, averaged or not.

With the identity as aggregator GFL is plain federated learning of the MLP (Remark 1): nothing but weights is exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State, Update
from fedrepro.errors import require
from fedrepro.papers.gfl.method import GFLAPPNP


@dataclass(frozen=True, kw_only=True)
class FedMLP(GFLAPPNP):
    """FedAvg of a two-layer MLP without biases, with SGD on batches."""

    propagation: str = "none"
    compensation: bool = False
    share: str = "train"

    def __post_init__(self) -> None:
        super().__post_init__()
        without = self.propagation == "none" and not self.compensation
        require(without, "propagation", "'none', without compensation, for an MLP", self.propagation)


@dataclass(frozen=True, kw_only=True)
class MLPs(FedMLP):
    """Every client trains its own MLP from common initial weights and sends nothing."""

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """The initial weights, at each client."""
        fed, state = super().start(fed)
        return fed, State({}, super().begin_round(fed, state, 0), state.more)

    def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
        """Each client's own weights."""
        return state.personal

    def aggregate(self, state: State, update: Update) -> State:
        """Nothing is averaged."""
        made = replace(state, personal=update.after)
        logits = self.forward(update.after, update.fed, made)
        state.more.trace.add(update.fed, state.more.graphs, logits, votes=False)
        return replace(made, more=replace(state.more, received=replace(state.more.received, logits=logits)))
