"""What sheaf diffusion does to the clients' vectors, stage by stage (SH-F3, Figure 3; Eq. 5 to 9), and what a trained
server's parts do to its clients.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Weights
from fedrepro.engine.training import train
from fedrepro.errors import require
from fedrepro.papers.fedsheafhn import sheaf
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.server import Server
from fedrepro.papers.fedsheafhn.theory.switches import switched
from fedrepro.runs import tasks
from fedrepro.runs.run import Run


def diffusion(run: Run) -> dict[str, Any]:
    """Trains FedSheafHN and follows the clients' vectors through its sheaf, with the server's weights of the start and
    of the end, each on the vectors of its own round and without dropout.

    Options: those of the training run.

    Returns:
        "result": {"start": {...}, "end": {...}}, the lists of `stages`, and "off": {...}, those of
        `fedsheafhn_switches.switched`.
    """
    wanted = run.replace(task="train", method="FedSheafHN")
    fed = tasks.federation([wanted])
    method, loop = tasks.method(wanted, fed.features, fed.classes)
    assert isinstance(method, FedSheafHN)
    require(method.diffusion == "sheaf", "diffusion", "'sheaf'", method.diffusion)
    made = train(method, fed, int(loop["rounds"]), evaluate=())
    memory = made.state.more
    server = memory.servers[0]
    start = method.server(server.seed, memory.first).weights
    found = {"start": (start, memory.first), "end": (server.weights, memory.used)}
    result: dict[str, Any] = {name: stages(server, w, method.vectors_of(x)) for name, (w, x) in found.items()}
    return {"result": {**result, "off": switched(method, made.fed, made.state)}}


@torch.no_grad()
def stages(server: Server, weights: Weights, vectors: Tensor) -> dict[str, list[Any]]:
    """The vectors as they come, encoded, after each layer and decoded, one entry of each list a stage.

    Args:
        weights: of the server, in place of its own.
        vectors: X_0, `[clients, width]`.

    Returns:
        `stage`: its name. `neighbours`, `others`: mean cosine of the vectors of two clients with and without an edge
        of the collaboration graph between them (None where there are no such pairs). `step`: the norm of a layer's
        change over that of what it was given. `energy`: tr(X^T Delta X) / ||X||^2 of what a layer was given, with the
        Laplacian the layer makes of it: 0 where all clients agree after their maps. `map_size` and `map_spread`: mean
        absolute entry and standard deviation of its restriction maps. The last four are None but at layers.
    """
    part, pairs = server.diffusion, server.pairs(vectors)
    h = part.encode(weights, vectors)
    states = [h, *(replace(part, steps=t + 1).diffuse(weights, h, pairs) for t in range(part.steps))]
    decoded = part.decode(weights, states[-1])
    layers = [_layer(server, weights, states, pairs, t) for t in range(part.steps)]
    blank: dict[str, float | None] = dict.fromkeys(("step", "energy", "map_size", "map_spread"))
    names = ["vectors", "encoded", *(f"layer {t + 1}" for t in range(part.steps)), "decoded"]
    rows = [blank, blank, *layers, blank]
    similar = [_cosines(x, pairs) for x in (vectors, *states, decoded)]
    found: dict[str, list[Any]] = {"stage": names}
    found |= dict(zip(("neighbours", "others"), map(list, zip(*similar)), strict=True))
    return found | {name: [row[name] for row in rows] for name in blank}


def _cosines(x: Tensor, pairs: Tensor) -> tuple[float | None, float | None]:
    """The mean cosine of two rows over the given pairs, and over all others."""
    unit = F.normalize(x, dim=1)
    cosine = unit @ unit.T
    edge = torch.zeros_like(cosine, dtype=torch.bool)
    edge[pairs[0], pairs[1]] = True
    other = torch.ones_like(edge).triu(1) & ~edge
    near, far = (float(cosine[where].mean()) if bool(where.any()) else None for where in (edge, other))
    return near, far


def _layer(server: Server, weights: Weights, states: list[Tensor], pairs: Tensor, t: int) -> dict[str, float | None]:
    part, h, after = server.diffusion, states[t], states[t + 1]
    made = t if part.maps_made == "layer" else 0
    given = states[made]
    maps = torch.cat(part.restriction_maps(weights, given, pairs, made))
    delta = sheaf.matrix(part.laplacian(weights, given, pairs, made))
    x = h.view(-1, part.channels)
    return {
        "step": float((after - h).norm() / h.norm()),
        "energy": float((x * (delta @ x)).sum() / x.square().sum()),
        "map_size": float(maps.abs().mean()) if len(maps) else 0.0,
        "map_spread": float(maps.std(correction=0)) if len(maps) else 0.0,
    }
