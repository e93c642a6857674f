"""Forge the embeddings that malicious clients send (FedSheafHN, Section 4.4, Figure 7).

A malicious client trains honestly and sends another vector instead of its embedding `[width]`. The paper attacks both
FedSheafHN and FED-PUB in two ways:

    same        a 1, with one number a ~ N(0, tau^2) in all entries
    gaussian    N(0, tau^2 I), independent entries

The paper does not state tau, nor which clients are malicious, nor how often a vector is drawn. We draw the clients once
for each seed, and a vector anew for every client and every message (SH-F7).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import random
from fedrepro.errors import one_of, require

ATTACKS = ("same", "gaussian")


def check_attack_options(share: float, attack: str, tau: float) -> None:
    """Raise unless the three options of an attack are possible.

    Raises:
        ArgumentError: one of them is not; the message names it.
    """
    require(0 <= share < 1, "malicious", "in [0, 1)", share)
    one_of("attack", attack, ATTACKS)
    require(tau > 0, "tau", "positive", tau)


def malicious_clients(fed: Federation, share: float) -> Tensor:
    """Draw the malicious clients, `round(share * clients)` of each run, as a function of its seed.

    Returns:
        `[clients]` bool.

    Raises:
        ArgumentError: no client of a run would be honest.
    """
    mask = torch.zeros(fed.clients, dtype=torch.bool, device=fed.device)
    for run, seed in enumerate(fed.seeds):
        members = (fed.run == run).nonzero().squeeze(1)
        count = round(share * len(members))
        require(count < len(members), "malicious", "a share that leaves an honest client", share)
        order = random.uniform((len(members),), "malicious", seed).argsort().to(members.device)
        mask[members[order[:count]]] = True
    return mask


def forge_embeddings(fed: Federation, embeddings: Tensor, share: float, attack: str, tau: float, t: int) -> Tensor:
    """Return what arrives at the server if a share of the clients is malicious.

    Args:
        fed: the federation of all clients.
        embeddings: the true ones `[clients, width]`.
        share, attack, tau: see `Forgery`.
        t: the round, -1 before training.

    Returns:
        `[clients, width]`; `embeddings` itself if nobody is malicious.
    """
    if not share:
        return embeddings
    arrived, width = embeddings.clone(), embeddings.shape[1]
    for client in malicious_clients(fed, share).nonzero().squeeze(1).tolist():
        seed, number = fed.seeds[int(fed.run[client])], int(fed.number[client])
        columns = 1 if attack == "same" else width
        drawn = tau * random.normal((columns,), "forged", seed, number, t)
        arrived[client] = drawn.expand(width).to(arrived)
    return arrived


@dataclass(frozen=True, kw_only=True)
class Forgery:
    """An attack of a share of the clients on the embeddings that arrive at the server.

    Args:
        share: of each run's clients, in [0, 1).
        attack: one of `ATTACKS`.
        tau: standard deviation of a forged entry.
    """

    share: float = 0.0
    attack: str = "same"
    tau: float = 1.0

    def __post_init__(self) -> None:
        check_attack_options(self.share, self.attack, self.tau)

    def clients(self, fed: Federation) -> Tensor:
        """Return who is malicious, `[clients]` bool."""
        return malicious_clients(fed, self.share)

    def arrived(self, fed: Federation, embeddings: Tensor, t: int) -> Tensor:
        """Return what arrives at the server instead of `embeddings` `[clients, width]` in round `t`."""
        return forge_embeddings(fed, embeddings, share=self.share, attack=self.attack, tau=self.tau, t=t)
