"""Whether what FedSheafHN's server learned matters to its clients: a trained server with one of its parts switched off,
and what that changes of the clients' predictions.

Two runs, one with the part and one without, differ in all their random steps; here one trained server is used twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedrepro.federation import Federation, Weights
from fedrepro.methods.base import State
from fedrepro.methods.fedsheafhn import FedSheafHN
from fedrepro.methods.fedsheafhn_facts import clients_of
from fedrepro.methods.fedsheafhn_server import Server, together
from fedrepro.theory.fedsheafhn_clients import accuracy_after

# What is changed of a server, its clients' vectors [clients, width] and its weights, given those at the start as well.
Switch = Callable[[Server, Tensor, Weights], tuple[Server, Tensor, Weights]]


def _no_diffusion(server: Server, vectors: Tensor, start: Weights) -> tuple[Server, Tensor, Weights]:
    return replace(server, diffusion=replace(server.diffusion, kind="none")), vectors, server.weights


AS_TRAINED = "as trained"
SWITCHES: dict[str, Switch] = {
    AS_TRAINED: lambda server, vectors, start: (server, vectors, server.weights),
    "one vector for all": lambda server, vectors, start: (server, vectors.mean(0).expand_as(vectors), server.weights),
    "the next client's vector": lambda server, vectors, start: (server, vectors.roll(1, 0), server.weights),
    "no diffusion": _no_diffusion,
    "untrained server": lambda server, vectors, start: (server, vectors, start),
}


def generated(method: FedSheafHN, fed: Federation, state: State, switch: Switch) -> State:
    """A trained state in which the clients hold what their server generates under a switch, without dropout; what stays
    with the clients stays.
    """
    memory, made = state.more, []
    with torch.no_grad():
        for server, mine in zip(memory.servers, clients_of(fed), strict=True):
            start = method.server(server.seed, memory.first[mine]).weights
            now, vectors, weights = switch(server, method.vectors_of(memory.used[mine]), start)
            made.append(now.generate(weights, vectors, None))
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
    for name, switch in SWITCHES.items():
        weights = generated(method, fed, state, switch).personal
        with torch.no_grad():
            classes = method.model(weights, fed)[rows].argmax(1)
        usual = classes if usual is None else usual
        found["switch"].append(name)
        found["changed"].append(float((classes != usual).to(fed.dtype).mean()))
        found["received"].append(accuracy_after(method, fed, weights, 0))
        found["trained"].append(accuracy_after(method, fed, weights, method.local_epochs))
    return found
