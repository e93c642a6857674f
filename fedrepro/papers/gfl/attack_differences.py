"""Can a client of GFL-APPNP tell its neighbours' x apart, from the sums it receives?

Client k receives grad C_k = M_k diag(W2[:, c]) with M_k = sum_j A_kj x_j m_j^T, and knows W2. A column of M_k sums
A_kj x_j over the neighbours whose ReLU of that hidden unit is on. So two columns, or one column in two successive
rounds, differ by a sum over the neighbours whose ReLU differs. Where that is one neighbour the difference is A_kj x_j
itself, and the shortest non-zero difference is mostly such a one. Nothing else is used: no label, no graph, no A_kj.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.nn.models import MLP
from fedrepro.engine.training import train
from fedrepro.papers.gfl.attack import _message, star
from fedrepro.papers.gfl.clients import FIRST, SECOND
from fedrepro.papers.gfl.method import GFLAPPNP
from fedrepro.papers.gfl.theory.identities import watching
from fedrepro.runs.run import Run

ROUNDING = 1e-9  # differences below this part of the longest column are rounding


def tell_apart(run: Run) -> dict[str, Any]:
    """The largest cosine, up to sign, between the shortest difference and any neighbour's x, after a whole training.

    The centre of a star attacks its leaves. Options: neighbours, local_epochs I, updates T (so T / I rounds are seen),
    noise (V1: 1).
    """
    options = run.options
    local, noise = int(options["local_epochs"]), float(options["noise"])
    fed = star(int(options["neighbours"]), run.seed)
    method = GFLAPPNP(model=MLP(fed.features, fed.classes, 64), lr=0.5, local_epochs=local, noise=noise)
    averages: list[tuple[Tensor, Tensor]] = []
    seen = watching(method, lambda _, s: averages.append((s.shared[FIRST][0], s.shared[SECOND][0])))
    train(seen, fed, int(options["updates"]) // local, evaluate=())
    weight = method.start(fed)[1].more.graphs[0].a[0, 1:]
    x = fed.x
    assert isinstance(x, Tensor)
    messages = [_message(x[1:], *pair, weight, noise, run.seed, t)[1] for t, pair in enumerate(averages)]
    guess = shortest_difference([second for _, second in averages], messages)
    cosine = F.cosine_similarity(guess[None], x[1:], dim=1).abs().max()
    return {"result": {"cosine_of_difference": float(cosine), "rounds": len(averages)}}


def shortest_difference(seconds: list[Tensor], gradients: list[Tensor]) -> Tensor:
    """The shortest non-zero difference of two columns of M_k, or of one column in successive rounds: `[features]`.

    Zeros where no two differ.

    Args:
        seconds: W2 `[hidden, classes]` of each round.
        gradients: grad C_k by layer 1 of each round, `[classes, features, hidden]`.
    """
    shortest, guess = float("inf"), gradients[0].new_zeros(gradients[0].shape[1])
    before: Tensor | None = None
    for second, gradient in zip(seconds, gradients):
        columns = torch.einsum("cph,hc->hp", gradient, second) / second.square().sum(1, keepdim=True)
        one, other = torch.triu_indices(len(columns), len(columns), 1)
        found = columns[one] - columns[other]
        if before is not None:
            found = torch.cat([found, columns - before])
        before = columns
        length = found.norm(dim=1)
        length[length < ROUNDING * columns.norm(dim=1).max()] = float("inf")
        if float(length.min()) < shortest:
            shortest, guess = float(length.min()), found[length.argmin()]
    return guess
