"""pFedGraph (Ye et al. 2023): the server infers whom each client should average with.

    S_ij = cos(theta_i - theta^0, theta_j - theta^0), set to 1 above a threshold
    w_i  = argmin over the simplex of sum_j [ alpha (w_j - p_j)^2 - S_ij w_j ] = projection of p + S_i / (2 alpha)
    theta_i <- sum_j w_ij theta_j,   r_i = sum_j w_ij theta_j / ||theta_j||

and from the second round on a client's loss has - penalty <r_i, theta> / ||theta||, which keeps it near its
collaborators. The public code has a plus there, which repels ("coded"). Differences are to the initial model, not to
the round's start, as in that code.
A client without training nodes trains nothing and is in nobody's average; it receives the average with weights p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedrepro.baselines.personal import clients_of, last_layers, place, receives, stacked
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Update
from fedrepro.errors import one_of, require


class Server(NamedTuple):
    """The initial model `[runs, ...]`, the references r_i `[clients, ...]`, and each run's last w over those that
    trained.
    """

    initial: Weights
    reference: Weights
    collaboration: tuple[Tensor, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PFedGraph(Method):
    """Args:
    alpha: pull of w towards the shares p; large: FedAvg, small: alone or with near equals.
    penalty: weight of the cosine with the reference.
    penalty_sign: "attract", or as "coded".
    threshold: similarities above it count as 1.
    compare: which weights S is made of: "all", or the "head" (the last layer).
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
        """The penalty looks at no node."""
        return self.model.hops

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """One common model."""
        common = self.model.init(fed.seeds, fed.dtype, fed.device)
        return fed, State({}, {name: w[fed.run].clone() for name, w in common.items()}, Server(common, {}))

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Cross-entropy, and from the second round on the cosine with the reference."""
        loss = super().local_loss(weights, fed, state, t)
        reference: Weights = state.more.reference
        if not self.penalty or not reference:
            return loss
        part = place(fed)
        inner = [(w * reference[name][part]).flatten(1).sum(1) for name, w in weights.items()]
        squares = [w.square().flatten(1).sum(1) for w in weights.values()]
        cosine: Tensor = sum(inner[1:], inner[0]) / sum(squares[1:], squares[0]).sqrt()
        sign = 1 if self.penalty_sign == "coded" else -1
        return loss + sign * self.penalty * cosine

    def aggregate(self, state: State, update: Update) -> State:
        """Similarities, the simplex projection, and each client's own average and reference."""
        fed, server, taking, found = update.fed, state.more, receives(update.fed, update.active), []
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
            length = stacked(sent, slice(None)).norm(dim=1).clamp(min=1e-12)
            for name, value in sent.items():
                personal[name][part][takers] = (rows @ value.flatten(1)).view(-1, *value.shape[1:])
                reference[name][part][takers] = ((rows / length) @ value.flatten(1)).view(-1, *value.shape[1:])
            found.append(w)
        self._count(fed, update, taking)
        return State({}, personal, Server(server.initial, reference, tuple(found)))

    def collaboration(self, sent: Weights, initial: Weights, share: Tensor) -> Tensor:
        """w `[clients, clients]` of the clients that trained, from their weights and shares p `[clients]`."""
        chosen = last_layers(self.model, 1) if self.compare == "head" else tuple(sent)
        away = stacked({name: sent[name] - initial[name] for name in chosen}, slice(None))
        unit = away / away.norm(dim=1, keepdim=True).clamp(min=1e-12)
        similarity = unit @ unit.T
        similarity = torch.where(similarity > self.threshold, 1.0, similarity)
        return onto_simplex(share + similarity / (2 * self.alpha))

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Per run, in the last round: mean `entropy` of the rows of w (0: alone; log of their number: uniform), and
        mean `self_weight` w_ii.
        """
        found = []
        for w in state.more.collaboration:
            entropy = -torch.special.xlogy(w, w).sum(1).mean()
            found.append({"entropy": float(entropy), "self_weight": float(w.diagonal().mean())})
        return found

    def _count(self, fed: Federation, update: Update, taking: Tensor) -> None:
        """Up: the weights of those that trained. Down: the mixed weights, and the reference where it has a use."""
        each = sum(w[0].numel() for w in update.after.values())
        trained, received = (torch.bincount(fed.run[who], minlength=fed.runs).cpu().numpy() for who in
                             (update.active, taking))  # fmt: skip
        fed.traffic.send("up", "weights", trained * each, round=update.round)
        fed.traffic.send("down", "weights", received * each, round=update.round)
        if self.penalty:
            fed.traffic.send("down", "reference", received * each, round=update.round)


def onto_simplex(rows: Tensor) -> Tensor:
    """Euclidean projection of each row onto the vectors that are non-negative and sum to 1: `[rows, columns]`."""
    down = rows.sort(dim=1, descending=True).values
    count = torch.arange(1, rows.shape[1] + 1, device=rows.device, dtype=rows.dtype)
    excess = (down.cumsum(1) - 1) / count
    support = (down > excess).sum(1, keepdim=True).clamp(min=1)
    return (rows - excess.gather(1, support - 1)).clamp(min=0)
