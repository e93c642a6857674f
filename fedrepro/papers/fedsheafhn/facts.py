"""What a run of FedSheafHN keeps between rounds, the clients' embeddings, and what it reports of itself at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.papers.fedsheafhn.hypernetwork import BLOCK
from fedrepro.papers.fedsheafhn.server import Server


@dataclass(frozen=True)
class Memory:
    """Between rounds.

    Args:
        servers: one per run.
        used: X_0, what the server works with `[clients, width]`.
        sent: what it received last `[clients, width]`.
        first: X_0 of the first round `[clients, width]`.
        trained: the clients' weights after their last local training `[clients, ...]`.
        delta: per run, the norm of the last Delta over that of the generated weights.
    """

    servers: tuple[Server, ...]
    used: Tensor
    sent: Tensor
    first: Tensor
    trained: Weights
    delta: tuple[float, ...]


def embed(fed: Federation, weights: Weights, depth: int) -> Tensor:
    """Mean over each client's own nodes of the output of its last of `depth` convolutions, before the ReLU and without
    dropout: `[clients, hidden]` (Eq. 3).

    Args:
        fed: the whole federation.
        weights: `[clients, ...]`.
    """
    h: Tensor | Sparse = fed.input
    for i in range(1, depth + 1):
        h = layers.gcn(fed, h, weights[f"layer{i}.weight"], weights[f"layer{i}.bias"])
        h = F.relu(h) if i < depth else h
    assert isinstance(h, Tensor)
    own = (fed.batch.ring == 0).nonzero().squeeze(1)
    client = fed.batch.batch[own]
    share = 1.0 / fed.count()[client].to(h.dtype)
    found: Tensor = Sparse.of(client, own, share, (fed.clients, fed.nodes)) @ h
    return found


def clients_of(fed: Federation) -> list[slice]:
    """Where each run's clients stand; they are consecutive."""
    ends = torch.bincount(fed.run, minlength=fed.runs).cumsum(0).tolist()
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def client_facts(fed: Federation, logits: Tensor, forged: Tensor) -> list[dict[str, Any]]:
    """Per run: `client_test`, accuracy of each client on its test nodes (None without any), its mean and standard
    deviation over clients, and over honest clients `honest_test`; `malicious_clients`, the numbers of the others.

    Args:
        logits: `[nodes, classes]`.
        forged: `[clients]` bool, who is malicious.
    """
    right = logits.argmax(1) == fed.batch.y
    test = (fed.batch.ring == 0) & fed.batch.test_mask
    hits = torch.bincount(fed.batch.batch[test & right], minlength=fed.clients).double()
    each = (hits / torch.bincount(fed.batch.batch[test], minlength=fed.clients)).cpu().numpy()
    bad = forged.cpu().numpy()
    out = []
    for mine in clients_of(fed):
        accuracy, honest = each[mine], ~bad[mine]
        scored = np.isfinite(accuracy)
        out.append(
            {
                "client_test": [float(a) if ok else None for a, ok in zip(accuracy, scored, strict=True)],
                "client_mean": float(accuracy[scored].mean()),
                "client_sd": float(accuracy[scored].std()),
                "honest_test": float(accuracy[scored & honest].mean()),
                "malicious_clients": np.flatnonzero(bad[mine]).tolist(),
            }
        )
    return out


def server_facts(server: Server, vectors: Tensor, start: Weights) -> dict[str, float]:
    """`generated_spread`, root mean square distance of the clients' generated weights from their mean, over their norm;
    `server_moved`, how far the hypernetwork went over its norm at the start; and with sheaf diffusion `map_size`, mean
    absolute entry of the first layer's restriction maps, and `diffusion_change`, how far the steps move the encoded
    states, over their norm.

    Args:
        start: the server's weights at the start, used up.
    """
    with torch.no_grad():
        made = server.generate(server.weights, vectors, None)
        flat = torch.cat([w.flatten(1) for w in made.values()], 1)
        parts = [name for name in start if name.startswith("hyper")]
        for name in parts:  # in blocks, for the two are laid out differently
            for block, now in zip(torch.split(start[name], BLOCK, -1), torch.split(server.weights[name], BLOCK, -1)):
                block.sub_(now)
        moved, size = sum(float(start[name].square_().sum()) for name in parts) ** 0.5, server.size
        spread = (flat - flat.mean(0)).square().sum(1).mean().sqrt() / flat.square().sum(1).mean().sqrt()
        out = {"generated_spread": float(spread), "server_moved": moved / size if size else 0.0}
        if server.diffusion.kind == "sheaf":
            weights, part = server.weights, server.diffusion
            h = part.encode(weights, vectors)
            pairs = server.pairs(vectors)
            maps = torch.cat(part.restriction_maps(weights, h, pairs, 0))
            change = part.diffuse(weights, h, pairs) - h
            out["map_size"] = float(maps.abs().mean()) if len(maps) else 0.0
            out["diffusion_change"] = float(change.norm() / h.norm())
    return out
