"""What the parts of FedSheafHN's server do for its clients: a trained server with one of them switched off.

Two trainings, one without the part, drift apart as they would for any change of a setting; here one trained server is
used with and without.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State
from fedrepro.papers.fedsheafhn.facts import clients_of
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.server import together
from fedrepro.papers.fedsheafhn.theory.clients import accuracy_after

AS_TRAINED = "as trained"
SWITCHES = (AS_TRAINED, "one client's vector for all", "another client's vector", "no diffusion", "untrained server")


def generated(method: FedSheafHN, fed: Federation, state: State, switch: str) -> State:
    """A trained state in which the clients hold what their server generates under a switch, without dropout; what stays
    with the clients stays.

    Args:
        switch: of `SWITCHES`. Vectors are the first client's, or of the client half of the run's number further on; no
            diffusion is W2 = 0 in every layer, so that vectors are encoded and decoded; an untrained server has the
            weights of the start.
    """
    memory, made = state.more, []
    with torch.no_grad():
        for server, mine in zip(memory.servers, clients_of(fed), strict=True):
            vectors, weights = method.vectors_of(memory.used[mine]), server.weights
            if switch == "one client's vector for all":
                vectors = vectors[:1].expand_as(vectors)
            elif switch == "another client's vector":
                vectors = vectors.roll(len(vectors) // 2, 0)
            elif switch == "no diffusion":
                weights = {n: torch.zeros_like(w) if n.endswith(".w2") else w for n, w in weights.items()}
            elif switch == "untrained server":
                weights = method.server(server.seed, memory.first[mine]).weights
            made.append(server.generate(weights, vectors, None))
    new = together(made)
    return replace(state, personal={n: new[n] if n in method.received else w for n, w in state.personal.items()})


def switched(method: FedSheafHN, fed: Federation, state: State) -> dict[str, list[Any]]:
    """Every entry of `SWITCHES` in a trained run, one entry of each list a switch.

    Args:
        fed: of one run.

    Returns:
        `switch`: its name. `changed`: the share of test nodes that the models as generated classify otherwise than as
        trained. `received`, `trained`: federated test accuracy of these models, before and after a round's local
        epochs, whose Adam has fresh moments.
    """
    rows = fed.rows("test")[0]
    found: dict[str, list[Any]] = {name: [] for name in ("switch", "changed", "received", "trained")}
    usual: Tensor | None = None
    for switch in SWITCHES:
        weights = generated(method, fed, state, switch).personal
        with torch.no_grad():
            classes = method.model(weights, fed)[rows].argmax(1)
        usual = classes if usual is None else usual
        found["switch"].append(switch)
        found["changed"].append(float((classes != usual).to(fed.dtype).mean()))
        found["received"].append(accuracy_after(method, fed, weights, 0))
        found["trained"].append(accuracy_after(method, fed, weights, method.local_epochs))
    return found
