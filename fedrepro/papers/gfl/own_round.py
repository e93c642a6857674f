"""Train MLPs of which each client keeps the model of its lowest validation loss (GFL-S).

GFL-APPNP's paper (Appendix A.2.2) keeps the model of the lowest validation loss, and does not say whose loss that is
where every client has a separate model. `method.MLPs` has one round for all clients, that of their lowest pooled
loss. In the public code each client keeps the model of the round in which its loss is lowest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn.sparse import groups_of, sum_groups
from fedrepro.papers.gfl.method import Memory, MLPs


@dataclass(frozen=True)
class Kept(Memory):
    """All that persists between rounds.

    Args:
        lowest: each client's lowest validation loss so far, `[clients]`.
    """

    lowest: Tensor


@dataclass(frozen=True, kw_only=True)
class MLPsOwnRound(MLPs):
    """MLPs that are scored by the models which the clients keep, each that of its lowest validation loss so far.

    Training is that of `MLPs`. The pooled loss of the kept models never rises, so that its lowest round is the last in
    which a client found a better model.
    """

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Give every client the initial weights, which it does not keep."""
        fed, state = super().start(fed)
        lowest = torch.full((fed.clients,), torch.inf, dtype=fed.dtype, device=fed.device)
        return fed, replace(state, more=Kept(**vars(state.more), lowest=lowest))

    def aggregate(self, state: State, update: Update) -> State:
        """Keep all weights where they are, and of each client the predictions of the better model.

        A client without validation samples keeps its last model.
        """
        fed, before = update.fed, state.more
        state = super().aggregate(state, update)
        logits, client = state.more.received.logits, fed.batch.batch
        loss = validation_loss(fed, logits)
        better = improves(loss, before.lowest)
        kept = torch.where(better[client, None], logits, before.received.logits)
        received, lowest = replace(state.more.received, logits=kept), torch.where(better, loss, before.lowest)
        return replace(state, more=replace(state.more, received=received, lowest=lowest))


def improves(loss: Tensor, lowest: Tensor) -> Tensor:
    """Return which clients take their new model, `[clients]`. They need a lower loss, or no finite loss so far.

    A client without validation samples, whose loss is NaN, thus keeps its last model. One whose weights diverge keeps
    the best of those before.
    """
    return (loss < lowest) | ~lowest.isfinite()


def validation_loss(fed: Federation, logits: Tensor) -> Tensor:
    """Return each client's mean cross-entropy over its validation samples, `[clients]`; NaN for a client without."""
    rows, _ = fed.rows("val")
    losses = F.cross_entropy(logits[rows], fed.batch.y[rows], reduction="none")
    return sum_groups(losses, groups_of(fed.batch.batch[rows], fed.clients)) / fed.count("val")
