"""The clients' vectors on their way through the sheaf (SH-F3, Figure 3), and a trained server with a part switched off.

Two trainings, one with and one without a part of the server, drift apart as they do after any change of a setting. Here
one trained server is therefore used with the part and without it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.baselines.personal import clients_of
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.training import train
from fedrepro.errors import require
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.server import Server
from fedrepro.papers.fedsheafhn.theory.clients import accuracy_after
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

AS_TRAINED = "as trained"
SWITCHES = (AS_TRAINED, "one client's vector for all", "another client's vector", "no diffusion", "untrained server")


def diffusion(run: Run) -> dict[str, Any]:
    """Train FedSheafHN and follow the clients' vectors through its sheaf.

    Args:
        run: its options are those of the training run.

    Returns:
        "result": `start` and `end`, the lists of `trace` for the server's weights before and after training, each on
        the vectors of the same round and without dropout; and `off`, the lists of `ablate_server`.

    Raises:
        ArgumentError: the layers on the collaboration graph are not those of a sheaf.
    """
    wanted = run.replace(task="train", method="FedSheafHN")
    fed = tasks.federation([wanted])
    method, loop = tasks.method(wanted, fed.features, fed.classes)
    assert isinstance(method, FedSheafHN)
    require(method.diffusion == "sheaf", "diffusion", "'sheaf'", method.diffusion)
    trained = train(method, fed, int(loop["rounds"]), evaluate=())
    memory = trained.state.more
    server = memory.servers[0]
    start = method.server(server.seed, memory.first)
    result: dict[str, Any] = {
        "start": trace(start, method.vectors_of(memory.first)),
        "end": trace(server, method.vectors_of(memory.used)),
        "off": ablate_server(method, trained.fed, trained.state),
    }
    return {"result": result}


@torch.no_grad()
def trace(server: Server, vectors: Tensor) -> dict[str, list[Any]]:
    """Describe the vectors before the encoder, after it, after each layer and after the decoder.

    Args:
        server: of one run, with sheaf diffusion.
        vectors: X_0 `[clients, width]`.

    Returns:
        Lists with one entry per stage. `stage` is its name. `neighbours` and `others` are the mean cosines of two
        clients' vectors with and without an edge between them (None without such pairs). The other four are None
        except at layers. `step` is the norm of a layer's change over that of its input. `energy` is
        tr(X^T Delta X) / ||X||^2 of a layer's input X and Laplacian Delta; it is 0 if the rows of D^-1/2 X agree after
        their maps. `map_size` and `map_spread` are mean absolute entry and standard deviation of its restriction maps.
    """
    part, weights, pairs = server.diffusion, server.weights, server.pairs(vectors)
    states = part.states(weights, part.encode(weights, vectors), pairs)
    layers = [_describe_layer(server, states, pairs, t) for t in range(part.steps)]
    blank: dict[str, float | None] = dict.fromkeys(("step", "energy", "map_size", "map_spread"))
    rows = [blank, blank, *layers, blank]
    cosines = [_cosines(x, pairs) for x in (vectors, *states, part.decode(weights, states[-1]))]
    return {
        "stage": ["vectors", "encoded", *(f"layer {t + 1}" for t in range(part.steps)), "decoded"],
        "neighbours": [near for near, _ in cosines],
        "others": [far for _, far in cosines],
        **{name: [row[name] for row in rows] for name in blank},
    }


def _cosines(x: Tensor, pairs: Tensor) -> tuple[float | None, float | None]:
    """Return the mean cosine of two rows over the given pairs, and over all others."""
    unit = F.normalize(x, dim=1)
    cosine = unit @ unit.T
    edge = torch.zeros_like(cosine, dtype=torch.bool)
    edge[pairs[0], pairs[1]] = True
    other = torch.ones_like(edge).triu(1) & ~edge
    near, far = (float(cosine[mask].mean()) if bool(mask.any()) else None for mask in (edge, other))
    return near, far


def _describe_layer(server: Server, states: list[Tensor], pairs: Tensor, t: int) -> dict[str, float | None]:
    """Return the last four entries of `trace` for layer `t`."""
    part, weights, before, after = server.diffusion, server.weights, states[t], states[t + 1]
    learner = t if part.maps_made == "layer" else 0
    maps = torch.cat(part.restriction_maps(weights, states[learner], pairs, learner))
    delta = part.operator(weights, states[learner], pairs, learner)
    x = before.view(-1, part.channels)
    return {
        "step": float((after - before).norm() / before.norm()),
        "energy": float((x * (delta @ x)).sum() / x.square().sum()),
        "map_size": float(maps.abs().mean()) if len(maps) else 0.0,
        "map_spread": float(maps.std(correction=0)) if len(maps) else 0.0,
    }


# -- a server with a part switched off --------------------------------------------------------------------------------


def switch_off(method: FedSheafHN, fed: Federation, state: State, switch: str) -> State:
    """Return a trained state in which the clients hold what their server generates with a part switched off.

    There is no dropout, and the weights that stay with the clients remain.

    Args:
        method: the trained method.
        fed: its federation.
        state: after training.
        switch: one of `SWITCHES`. "one client's vector for all" uses the first client's vector. "another client's
            vector" uses that of the client whose number is larger by half the number of clients. "no diffusion" sets W2
            to 0 in every layer, so that vectors are encoded and decoded only. "untrained server" uses the weights of
            the start.
    """
    memory, parts = state.more, []
    with torch.no_grad():
        for run, server in enumerate(memory.servers):
            members = clients_of(fed, run)
            vectors, weights = method.vectors_of(memory.used[members]), server.weights
            if switch == "one client's vector for all":
                vectors = vectors[:1].expand_as(vectors)
            elif switch == "another client's vector":
                vectors = vectors.roll(len(vectors) // 2, 0)
            elif switch == "no diffusion":
                weights = {name: torch.zeros_like(w) if name.endswith(".w2") else w for name, w in weights.items()}
            elif switch == "untrained server":
                weights = method.server(server.seed, memory.first[members]).weights
            parts.append(server.generate(weights, vectors, None))
    return replace(state, personal=method.deliver(parts, state.personal))


def ablate_server(method: FedSheafHN, fed: Federation, state: State) -> dict[str, list[Any]]:
    """Measure the effect of every switch on the clients of a trained run.

    Args:
        method: the trained method.
        fed: its federation, of one run.
        state: after training.

    Returns:
        Lists with one entry per switch. `switch` is its name. `changed` is the share of test nodes that the generated
        models classify otherwise than as trained. `received` and `trained` are their test accuracies, averaged over
        clients, before and after a round's local epochs, in which Adam has fresh moments.
    """
    rows = fed.rows("test")[0]
    result: dict[str, list[Any]] = {name: [] for name in ("switch", "changed", "received", "trained")}
    usual: Tensor | None = None
    for switch in SWITCHES:
        weights: Weights = switch_off(method, fed, state, switch).personal
        with torch.no_grad():
            classes = method.model(weights, fed)[rows].argmax(1)
        usual = classes if usual is None else usual
        result["switch"].append(switch)
        result["changed"].append(float((classes != usual).to(fed.dtype).mean()))
        result["received"].append(accuracy_after(method, fed, weights, 0))
        result["trained"].append(accuracy_after(method, fed, weights, method.local_epochs))
    return result
