"""Can x be rebuilt from what GFL-APPNP sends? (Section 3.4 says that it is infeasible.)

The server receives of client j, every round, h_j and its gradient under weights it knows (it averaged them):

    h_j = relu(x_j W1) W2        grad h_jc / grad W1 = x_j (m_j * W2[:, c])^T

so one noiseless gradient is x_j itself, up to a factor that W2 gives. V1 adds noise to the gradient but not to h_j.
Noise of a fixed size averages out over rounds. Fitting x_j to h_j too, `classes` numbers a round, does not help here:
the fit (`from_h`) ends in a worse guess than the gradients alone give.

Client k receives sums over its neighbours, grad C_k = (sum_j A_kj x_j m_j^T) W2[:, c]: with one neighbour that is the
server's case again. With more, the direction found here is a mixture, but the neighbours can be told apart
(`gfl_differences`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import MLP
from fedrepro.engine.training import train
from fedrepro.errors import one_of, require
from fedrepro.papers.gfl import data as csbm_tasks
from fedrepro.papers.gfl.clients import FIRST, SECOND
from fedrepro.papers.gfl.method import GFLAPPNP
from fedrepro.papers.gfl.theory.identities import watching
from fedrepro.runs.run import Run

PARTIES = ("server", "client")


def reconstruct(run: Run) -> dict[str, Any]:
    """The cosine between a client's x and what an honest-but-curious party rebuilds after a whole training.

    Options: party ("server", or "client": the centre of the star), neighbours (of the centre), local_epochs I, updates
    T (so T / I rounds are seen), noise (V1: 1). The victim is a leaf; the centre rebuilds the one closest to its guess.
    """
    options = run.options
    party = one_of("party", options["party"], PARTIES)
    local, noise = int(options["local_epochs"]), float(options["noise"])
    rounds = int(options["updates"]) // local
    fed = star(int(options["neighbours"]), run.seed)
    method = GFLAPPNP(model=MLP(fed.features, fed.classes, 64), lr=0.5, local_epochs=local, noise=noise)
    averages: list[tuple[Tensor, Tensor]] = []
    train(
        watching(method, lambda _, s: averages.append((s.shared[FIRST][0], s.shared[SECOND][0]))),
        fed,
        rounds,
        evaluate=(),
    )
    a = method.start(fed)[1].more.graphs[0].a
    x = fed.x
    assert isinstance(x, Tensor)
    if party == "server":
        messages = [_message(x[1:2], *pair, torch.ones(1), noise, run.seed, t) for t, pair in enumerate(averages)]
        rough = from_gradients(averages, messages)
        fitted = from_h(averages, messages, rough) if noise else rough
        quality, better = (float(F.cosine_similarity(guess, x[1], dim=0)) for guess in (rough, fitted))
    else:
        messages = [_message(x[1:], *pair, a[0, 1:], noise, run.seed, t) for t, pair in enumerate(averages)]
        guess = from_gradients(averages, messages)
        quality = better = float(F.cosine_similarity(guess[None], x[1:], dim=1).max())
    return {
        "result": {
            "cosine": quality,
            "cosine_with_h": better,
            "rounds": rounds,
            "numbers_seen": rounds * messages[0][1].numel(),
        }
    }


def star(leaves: int, seed: int) -> Federation:
    """A centre and its leaves, one training sample each, with csbm-DNC's features, which is all that is scored."""
    require(leaves >= 1, "neighbours", "at least 1", leaves)
    whole = csbm_tasks.sample("csbm-DNC", seed)
    order = torch.from_numpy(random.keys("star", seed, whole.y.numpy() * 0 + range(len(whole.y))).argsort())
    chosen = order[: leaves + 1]
    edges = torch.stack([torch.zeros(leaves, dtype=torch.long), torch.arange(1, leaves + 1)])
    data = Data(x=whole.x[chosen], y=whole.y[chosen], edge_index=torch.cat([edges, edges.flip(0)], 1))
    data.num_classes = 2
    for name in ("train_mask", "val_mask", "test_mask"):
        data[name] = torch.ones(leaves + 1, dtype=torch.bool)
    return Federation.of(data, [torch.tensor([node]) for node in range(leaves + 1)], seed, dtype=torch.float64)


def _message(
    x: Tensor, first: Tensor, second: Tensor, weight: Tensor, noise: float, seed: int, t: int
) -> tuple[Tensor, Tensor]:
    """Sums over senders of h `[classes]` and of its noisy gradient by layer 1 `[classes, features, hidden]`."""
    z = F.relu(x.to(first.dtype) @ first)
    weight = weight.to(first.dtype)
    mask = torch.einsum("j,jp,jh->ph", weight, x.to(first.dtype), (z > 0).to(first.dtype))
    gradient = mask[None] * second.T[:, None]
    if noise:
        each = random.normal(tuple(gradient.shape), "uploaded noise", seed, t).to(gradient)
        gradient = gradient + noise * weight.norm() * each
    return weight @ (z @ second), gradient


def from_gradients(averages: list[tuple[Tensor, Tensor]], messages: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The direction of x by least squares over all entries of the gradients, rounds pooled: `[features]`."""
    guess = torch.zeros(averages[0][0].shape[0], dtype=averages[0][0].dtype)
    for (_, second), (_, gradient) in zip(averages, messages):
        guess += torch.einsum("cph,hc->p", gradient, second)
    return guess


def from_h(averages: list[tuple[Tensor, Tensor]], messages: list[tuple[Tensor, Tensor]], guess: Tensor) -> Tensor:
    """The x near a guess of its direction that fits one client's h in every round (L-BFGS): `[features]`."""
    first = torch.stack([pair[0] for pair in averages])
    second = torch.stack([pair[1] for pair in averages])
    h = torch.stack([message[0] for message in messages])
    x = (0.1 * guess / guess.norm()).requires_grad_()
    rule = torch.optim.LBFGS([x], max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-14)

    def misfit() -> float:
        rule.zero_grad()
        hidden = F.relu(torch.einsum("p,tph->th", x, first))
        loss = ((torch.einsum("th,thc->tc", hidden, second) - h) ** 2).sum() / (h**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    rule.step(misfit)  # type: ignore[no-untyped-call]
    found: Tensor = x.detach()
    return found
