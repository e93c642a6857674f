"""Rebuild a client's features x from what GFL-APPNP sends. Section 3.4 of the paper says that this is infeasible.

Every round the server receives h_j of client j and its gradient, under weights that it knows since it averaged them:

    h_j = relu(x_j W1) W2        grad h_jc / grad W1 = x_j (m_j * W2[:, c])^T

Here m_j marks the hidden units that are on. One gradient without noise is therefore x_j itself, up to a factor that W2
gives (`from_gradients`). V1 adds noise to the gradient and not to h_j. Noise of a fixed size averages out over rounds.
Besides, h_j goes out clean and gives `classes` equations for x_j a round. Once they clearly outnumber x_j's features,
`from_h` solves them, from the guess that the noisy gradients give.

Client k receives sums over its neighbours, grad C_k = M_k diag(W2[:, c]) with M_k = sum_j A_kj x_j m_j^T. With one
neighbour this is the server's case again. With several, `from_gradients` finds a mixture, but the client can tell its
neighbours apart (`shortest_difference`). A column of M_k sums A_kj x_j over the neighbours whose ReLU of that hidden
unit is on. Two columns, or one column in two successive rounds, differ by a sum over the neighbours whose ReLU differs.
If that is one neighbour the difference is A_kj x_j itself, and the shortest difference above zero is mostly such a one.
The attack uses no label, no graph and no A_kj.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy.optimize import leastsq
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import MLP
from fedrepro.engine.training import train
from fedrepro.errors import one_of, require
from fedrepro.papers.gfl.clients import FIRST, SECOND
from fedrepro.papers.gfl.data import sample
from fedrepro.papers.gfl.method import GFLAPPNP
from fedrepro.papers.gfl.theory import watching
from fedrepro.runs.run import Run

PARTIES = ("server", "client")
ROUNDING = 1e-9  # differences below this part of the longest column are rounding

Array = npt.NDArray[np.float64]
Pairs = list[tuple[Tensor, Tensor]]


def reconstruct(run: Run) -> dict[str, Any]:
    """Return the cosine between a client's x and what an honest-but-curious party rebuilds after a whole training.

    The victim is a leaf of a star. A curious centre is scored on the leaf that is closest to its guess.

    The option `party` is "server", or "client" for the centre. `neighbours` are those of the centre. `local_epochs` is
    I and `updates` is T, so that T / I rounds are seen. `noise` is its standard deviation, 1 for V1.
    """
    server = one_of("party", run.options["party"], PARTIES) == "server"
    x, weight, averages = _train_on_star(run)
    senders, weight = (x[:1], torch.ones(1)) if server else (x, weight)
    messages = _messages(run, senders, weight, averages)
    rough = from_gradients(averages, messages)
    fitted = from_h(averages, messages, rough) if server and float(run.options["noise"]) else rough
    cosine, with_h = (float(F.cosine_similarity(guess[None], senders, dim=1).max()) for guess in (rough, fitted))
    seen = len(averages) * messages[0][1].numel()
    return {"result": {"cosine": cosine, "cosine_with_h": with_h, "rounds": len(averages), "numbers_seen": seen}}


def tell_apart(run: Run) -> dict[str, Any]:
    """Return the largest cosine, up to sign, between the shortest difference and any neighbour's x.

    The centre of a star attacks its leaves after a whole training. The options are those of `reconstruct` without the
    party.
    """
    x, weight, averages = _train_on_star(run)
    gradients = [gradient for _, gradient in _messages(run, x, weight, averages)]
    guess = shortest_difference([second for _, second in averages], gradients)
    cosine = F.cosine_similarity(guess[None], x, dim=1).abs().max()
    return {"result": {"cosine_of_difference": float(cosine), "rounds": len(averages)}}


# -- what the parties see ---------------------------------------------------------------------------------------------


def star(leaves: int, seed: int) -> Federation:
    """Return a centre and its leaves, one client and one training sample each, with features of csbm-DNC."""
    require(leaves >= 1, "neighbours", "at least 1", leaves)
    whole = sample("csbm-DNC", seed)
    order = torch.from_numpy(random.keys("star", seed, whole.y.numpy() * 0 + range(len(whole.y))).argsort())
    chosen = order[: leaves + 1]
    edges = torch.stack([torch.zeros(leaves, dtype=torch.long), torch.arange(1, leaves + 1)])
    data = Data(x=whole.x[chosen], y=whole.y[chosen], edge_index=torch.cat([edges, edges.flip(0)], 1))
    data.num_classes = 2
    for name in ("train_mask", "val_mask", "test_mask"):
        data[name] = torch.ones(leaves + 1, dtype=torch.bool)
    return Federation.of(data, [torch.tensor([node]) for node in range(leaves + 1)], seed, dtype=torch.float64)


def _train_on_star(run: Run) -> tuple[Tensor, Tensor, Pairs]:
    """Train on a star. Returns the leaves' x, their weights A_kj at the centre, and the average of each round."""
    options = run.options
    local, noise = int(options["local_epochs"]), float(options["noise"])
    fed = star(int(options["neighbours"]), run.seed)
    method = GFLAPPNP(model=MLP(fed.features, fed.classes, 64), lr=0.5, local_epochs=local, noise=noise)
    averages: Pairs = []
    seen = watching(method, lambda _, state: averages.append((state.shared[FIRST][0], state.shared[SECOND][0])))
    train(seen, fed, int(options["updates"]) // local, evaluate=())
    assert isinstance(fed.x, Tensor)
    return fed.x[1:], method.start(fed)[1].more.graphs[0].a[0, 1:], averages


def _messages(run: Run, x: Tensor, weight: Tensor, averages: Pairs) -> Pairs:
    """Return each round's weighted sums over senders of h and of its noisy gradient by the first layer.

    Their shapes are `[classes]` and `[classes, features, hidden]`.
    """
    messages, noise = [], float(run.options["noise"])
    for t, (first, second) in enumerate(averages):
        weight = weight.to(first.dtype)
        z = F.relu(x.to(first.dtype) @ first)
        mask = torch.einsum("j,jp,jh->ph", weight, x.to(first.dtype), (z > 0).to(first.dtype))
        gradient = mask[None] * second.T[:, None]
        if noise:
            drawn = random.normal(tuple(gradient.shape), "uploaded noise", run.seed, t).to(gradient)
            gradient = gradient + noise * weight.norm() * drawn
        messages.append((weight @ (z @ second), gradient))
    return messages


# -- guesses of x -----------------------------------------------------------------------------------------------------


def from_gradients(averages: Pairs, messages: Pairs) -> Tensor:
    """Return the direction of x by least squares over all entries of all rounds' gradients, `[features]`."""
    guess = torch.zeros(averages[0][0].shape[0], dtype=averages[0][0].dtype)
    for (_, second), (_, gradient) in zip(averages, messages):
        guess += torch.einsum("cph,hc->p", gradient, second)
    return guess


def from_h(averages: Pairs, messages: Pairs, guess: Tensor) -> Tensor:
    """Return the x near a guess of its direction that fits one client's h in every round, `[features]`.

    The fit is MINPACK's (Levenberg and Marquardt). Each equation counts by the inverse length of its gradient without
    ReLU, as late rounds have large weights and would outweigh all others. A short first step keeps the fit near the
    guess. If the rounds have fewer equations than x has features the guess is returned, as many x fit.
    """
    parts = [list(part) for part in zip(*averages)] + [[sums for sums, _ in messages]]
    first, second, h = (torch.stack(part).double().numpy() for part in parts)
    scale = 1 / np.linalg.norm(first @ second, axis=1)
    if h.size < len(guess):
        return guess

    def misfit(x: Array) -> Array:
        hidden = np.maximum(x @ first, 0)
        return np.ravel(scale * (np.einsum("th,thc->tc", hidden, second) - h))

    def jacobian(x: Array) -> Array:
        on = second * (x @ first > 0)[..., None]
        return np.reshape(scale[..., None] * (first @ on).swapaxes(1, 2), (h.size, -1))

    start = (guess / guess.norm()).numpy()
    steps = {"factor": 0.1, "diag": np.ones_like(start), "ftol": 1e-14, "xtol": 1e-14, "maxfev": 300}
    # `full_output` keeps it from warning of a fit that is exact before the tolerances are met.
    return torch.from_numpy(leastsq(misfit, start, Dfun=jacobian, full_output=True, **steps)[0])


def shortest_difference(seconds: list[Tensor], gradients: list[Tensor]) -> Tensor:
    """Return the shortest difference above zero between columns of M_k, `[features]`.

    Columns are compared with each other, and with themselves in the round before. The result is zero if none differ.

    Args:
        seconds: W2 `[hidden, classes]` of each round.
        gradients: grad C_k by the first layer of each round, `[classes, features, hidden]`.
    """
    shortest, guess = float("inf"), gradients[0].new_zeros(gradients[0].shape[1])
    before: Tensor | None = None
    for second, gradient in zip(seconds, gradients):
        columns = torch.einsum("cph,hc->hp", gradient, second) / second.square().sum(1, keepdim=True)
        one, other = torch.triu_indices(len(columns), len(columns), 1)
        differences = columns[one] - columns[other]
        if before is not None:
            differences = torch.cat([differences, columns - before])
        before = columns
        length = differences.norm(dim=1)
        length[length < ROUNDING * columns.norm(dim=1).max()] = float("inf")
        if float(length.min()) < shortest:
            shortest, guess = float(length.min()), differences[length.argmin()]
    return guess
