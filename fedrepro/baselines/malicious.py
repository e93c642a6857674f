"""Clients that send forged embeddings (FedSheafHN, Section 4.4): the attacks of its Figure 7, also on FED-PUB.

Two kinds, a drawn once per client and message:

    same       a 1 with one a ~ N(0, tau^2) for all entries
    gaussian   N(0, tau^2 I)
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import random
from fedrepro.errors import one_of, require

ATTACKS = ("same", "gaussian")


def check(share: float, attack: str, tau: float) -> None:
    """Raise unless the three options of the attack are possible.

    Raises:
        ArgumentError: which is not.
    """
    require(0 <= share < 1, "malicious", "in [0, 1)", share)
    one_of("attack", attack, ATTACKS)
    require(tau > 0, "tau", "positive", tau)


def chosen(fed: Federation, share: float) -> Tensor:
    """`[clients]` bool: which clients are malicious, `round(share * clients)` of each run, a function of its seed.

    Raises:
        ArgumentError: that would be all of them.
    """
    found = torch.zeros(fed.clients, dtype=torch.bool, device=fed.device)
    for run, seed in enumerate(fed.seeds):
        mine = (fed.run == run).nonzero().squeeze(1)
        count = round(share * len(mine))
        require(count < len(mine), "malicious", "a share that leaves an honest client", share)
        order = random.uniform((len(mine),), "malicious", seed).argsort().to(mine.device)
        found[mine[order[:count]]] = True
    return found


def forged(fed: Federation, embeddings: Tensor, share: float, attack: str, tau: float, t: int) -> Tensor:
    """What arrives at the server instead of `embeddings` `[clients, width]` in round `t` (-1: before training)."""
    if not share:
        return embeddings
    out, width = embeddings.clone(), embeddings.shape[1]
    for client in chosen(fed, share).nonzero().squeeze(1).tolist():
        seed, number = fed.seeds[int(fed.run[client])], int(fed.number[client])
        columns = 1 if attack == "same" else width
        drawn = tau * random.normal((columns,), "forged", seed, number, t)
        out[client] = drawn.expand(width).to(out)
    return out
