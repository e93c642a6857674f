"""Train by pFedGraph, from "Personalized Federated Learning with Inferred Collaboration Graphs".

R. Ye, Z. Ni, F. Wu, S. Chen and Y. Wang, ICML 2023, https://proceedings.mlr.press/v202/ye23b.html. Public code:
https://github.com/MediaBrain-SJTU/pFedGraph. The server infers with whom each client should average. Let theta_i be
client i's trained weights, theta^0 the initial model, and p `[clients]` the clients' shares of the training nodes. The
server computes for each client

    S_ij = cos(theta_i - theta^0, theta_j - theta^0), set to 1 above a threshold                                 (1)
    w_i  = argmin over the simplex of sum_j [ alpha (w_j - p_j)^2 - S_ij w_j ]                                   (2)
    theta_i <- sum_j w_ij theta_j,      r_i = sum_j w_ij theta_j / ||theta_j||                                   (3)

and from the second round on the client's loss keeps it near its collaborators:

    L_i(theta) - penalty <r_i, theta> / ||theta||                                                                (4)

In each round:

1. the server sends theta_i and r_i to client i (`Method.begin_round`);
2. every client takes `local_epochs` steps on (4) (`PFedGraph.local_loss`);
3. the server computes w by (1) and (2) (`PFedGraph.collaboration`). The minimum of (2) is the Euclidean projection of
   p + S_i / (2 alpha) onto the simplex (`project_onto_simplex`), so no solver is needed;
4. the server mixes weights and references by (3) (`PFedGraph.aggregate`).

The public code has a plus in (4), which repels (`penalty_sign="coded"`). The differences in (1) are to the initial
model and not to the start of the round, as in that code. A client without training nodes trains nothing and is in
nobody's average; it receives the average with weights p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedrepro.baselines.personal import chunk_of, clients_of, flatten_slices, last_layers, receivers
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Update
from fedrepro.errors import one_of, require


class Server(NamedTuple):
    """The initial model `[runs, ...]`, the references r_i `[clients, ...]`, and each run's last w of its senders."""

    initial: Weights
    reference: Weights
    collaboration: tuple[Tensor, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PFedGraph(Method):
    """A personal network per client, averaged by weights that the server infers.

    Args:
        alpha: pull of w towards the shares p. A large value gives FedAvg; with a small one a client averages with
            itself and near equals only.
        penalty: weight of the cosine with the reference.
        penalty_sign: "attract" as in (4), or "coded".
        threshold: similarities above it count as 1.
        compare: the weights that enter S: "all", or the "head" (the last layer).
    """

    average: str = "train"
    optimizer_state: str = "reset"
    alpha: float = 0.8
    penalty: float = 0.01
    penalty_sign: str = "attract"
    threshold: float = 0.9
    compare: str = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.alpha > 0, "alpha", "positive", self.alpha)
        require(self.penalty >= 0, "penalty", "zero or positive", self.penalty)
        one_of("penalty_sign", self.penalty_sign, ("attract", "coded"))
        one_of("compare", self.compare, ("all", "head"))

    @property
    def receptive(self) -> int | None:
        """Return the model's hops, since the penalty depends on no node."""
        return self.model.hops

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Draw one common model."""
        common = self.model.init(fed.seeds, fed.dtype, fed.device)
        return fed, State({}, {name: w[fed.run].clone() for name, w in common.items()}, Server(common, {}))

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Return the loss (4), `[clients]`; in the first round the cross-entropy by itself."""
        loss = super().local_loss(weights, fed, state, t)
        reference: Weights = state.more.reference
        if not self.penalty or not reference:
            return loss
        part = chunk_of(fed)
        inner = [(w * reference[name][part]).flatten(1).sum(1) for name, w in weights.items()]
        squares = [w.square().flatten(1).sum(1) for w in weights.values()]
        cosine: Tensor = sum(inner[1:], inner[0]) / sum(squares[1:], squares[0]).sqrt()
        sign = 1 if self.penalty_sign == "coded" else -1
        return loss + sign * self.penalty * cosine

    def aggregate(self, state: State, update: Update) -> State:
        """Mix the weights of the clients that trained and their references for each client that receives, by (3)."""
        fed, server, taking, collaborations = update.fed, state.more, receivers(update.fed, update.active), []
        personal = {name: w.clone() for name, w in update.after.items()}
        old = server.reference or {name: torch.zeros_like(w) for name, w in personal.items()}
        reference = {name: w.clone() for name, w in old.items()}
        for run in range(fed.runs):
            part = clients_of(fed, run)
            senders, takers = (index[part].nonzero().squeeze(1) for index in (update.active, taking))
            sent = {name: w[part][senders] for name, w in update.after.items()}
            share = (update.by[part][senders] / update.by[part].sum()).to(fed.dtype)
            w = self.collaboration(sent, {name: v[run] for name, v in server.initial.items()}, share)
            rows = share.expand(len(takers), -1).clone()
            rows[update.active[part][takers]] = w
            length = flatten_slices(sent, slice(None)).norm(dim=1).clamp(min=1e-12)
            for name, value in sent.items():
                personal[name][part][takers] = (rows @ value.flatten(1)).view(-1, *value.shape[1:])
                reference[name][part][takers] = ((rows / length) @ value.flatten(1)).view(-1, *value.shape[1:])
            collaborations.append(w)
        self._count(fed, update, taking)
        return State({}, personal, Server(server.initial, reference, tuple(collaborations)))

    def collaboration(self, sent: Weights, initial: Weights, share: Tensor) -> Tensor:
        """Return w of equation (2), `[senders, senders]`.

        Args:
            sent: weights of the clients that trained, `[senders, ...]`.
            initial: theta^0.
            share: p, `[senders]`.
        """
        names = last_layers(self.model, 1) if self.compare == "head" else tuple(sent)
        away = flatten_slices({name: sent[name] - initial[name] for name in names}, slice(None))
        unit = away / away.norm(dim=1, keepdim=True).clamp(min=1e-12)
        similarity = unit @ unit.T
        similarity = torch.where(similarity > self.threshold, 1.0, similarity)
        return project_onto_simplex(share + similarity / (2 * self.alpha))

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Return per run, for the last round, the mean `entropy` of the rows of w and the mean `self_weight` w_ii.

        An entropy of 0 means that every client keeps only its own weights. The logarithm of the number of clients means
        uniform averages.
        """
        facts = []
        for w in state.more.collaboration:
            entropy = -torch.special.xlogy(w, w).sum(1).mean()
            facts.append({"entropy": float(entropy), "self_weight": float(w.diagonal().mean())})
        return facts

    def _count(self, fed: Federation, update: Update, taking: Tensor) -> None:
        """Count the trained weights up, the mixed weights down, and the reference down if the loss uses it."""
        size = sum(w[0].numel() for w in update.after.values())
        trained, received = (
            torch.bincount(fed.run[who], minlength=fed.runs).cpu().numpy() for who in (update.active, taking)
        )
        fed.traffic.send("up", "weights", trained * size, round=update.round)
        fed.traffic.send("down", "weights", received * size, round=update.round)
        if self.penalty:
            fed.traffic.send("down", "reference", received * size, round=update.round)


def project_onto_simplex(rows: Tensor) -> Tensor:
    """Project each row onto the non-negative vectors that sum to 1, in Euclidean distance: `[rows, columns]`."""
    down = rows.sort(dim=1, descending=True).values
    count = torch.arange(1, rows.shape[1] + 1, device=rows.device, dtype=rows.dtype)
    excess = (down.cumsum(1) - 1) / count
    support = (down > excess).sum(1, keepdim=True).clamp(min=1)
    return (rows - excess.gather(1, support - 1)).clamp(min=0)
