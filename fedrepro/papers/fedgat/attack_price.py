"""What noise on FedGAT's messages costs: test accuracy of a model trained without noise, and error of its first layer.

The noise is that of `attacks.fedgat.noisy`, independent on every number sent. For the Matrix form D is drawn with the
law that noise on M1 and M2 gives it, so that these need not be built for every node and strength.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import random
from fedrepro.engine.training import train
from fedrepro.errors import one_of
from fedrepro.papers.fedgat import chebyshev, protocol
from fedrepro.papers.fedgat.attack import noisy, scene
from fedrepro.papers.fedgat.method import FedGAT
from fedrepro.runs import tasks
from fedrepro.runs.run import Run


@lru_cache(maxsize=1)  # the strengths of a sweep share one training run
def _trained(run: Run) -> tuple[FedGAT, Federation, Weights]:
    """FedGAT trained without noise on a run's graph up to the round of best validation, and the graph as one client for
    evaluation.
    """
    federated = tasks.federation([run])
    method, loop = tasks.method(run, federated.features, federated.classes)
    assert isinstance(method, FedGAT)
    history, _, state = train(method, federated, int(loop["rounds"]), evaluate=("before",))
    best = int(history.result(0)["before"]["best"]["round"])
    if best < int(loop["rounds"]):  # training again, as far as that round: its weights were not kept
        _, _, state = train(method, federated, best, evaluate=())
    data = federated.sources[0].data
    whole = Federation.of(data, [torch.arange(data.num_nodes)], run.seed, dtype=torch.float64)
    return method, whole, {name: w.double() for name, w in state.shared.items()}


def price(run: Run) -> dict[str, Any]:
    """Options: `form` "matrix" or "vector", `noise` its standard deviation, and those of FedGAT's training.

    Returns:
        "accuracy" on the test nodes, and "layer": the error of a node's first layer over its norm, median over nodes.
    """
    options = {"model": "GAT", "hidden": 8, "heads": 8, **run.options}
    form, sigma = one_of("form", options.pop("form", "matrix"), protocol.FORMS), float(options.pop("noise", 0.0))
    training = Run("train", run.paper, "FedGAT", run.dataset, run.prepare, run.split, run.partition, run.clients,
                   run.seed, options)  # fmt: skip
    method, fed, weights = _trained(training)
    here = scene(run)
    w, b1, b2 = protocol.attention({name: w[0] for name, w in weights.items()})
    mixing = torch.linalg.cholesky(b1 @ b1.T + b2 @ b2.T + 1e-12 * torch.eye(len(b1), dtype=b1.dtype))
    noised, clean = [], []
    for node, ids in enumerate(here.near):
        h = here.x[ids]
        x = (b1 @ here.x[node])[:, None] + b2 @ h.T
        score = chebyshev.evaluate(x / method.interval, method.series)
        clean.append(torch.einsum("hj,jf,fhw->hw", score / score.sum(1, keepdim=True), h, w))
        if form == "vector":
            message = noisy(protocol.vector_message(node, here.x[node], h, run.seed), sigma, run.seed)
            found = protocol.moments([message], b1, b2, method.degree)
        else:
            found = _noisy_moments(node, x, h, mixing, sigma, method.degree, run.seed)
        noised.append(torch.nan_to_num(protocol.mix(*found, w, method.series, method.interval)))
    layer, exact = torch.stack(noised), torch.stack(clean)
    off = (layer - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1).clamp(min=1e-12)
    right = method.model.second_layer(weights, fed, layer).argmax(1) == fed.batch.y
    return {
        "result": {
            "accuracy": float(right[fed.batch.test_mask].double().mean()),
            "layer": float(off.median()),
        }
    }


def _noisy_moments(
    node: int, x: Tensor, h: Tensor, mixing: Tensor, sigma: float, degree: int, seed: int
) -> tuple[Tensor, Tensor]:
    """E and F of a noisy Matrix message. Noise on M1 and M2 makes the entries of D, over the heads, normal with
    covariance sigma^2 (b1 b1^T + b2 b2^T).
    """
    u1, u = protocol.projectors(len(h), seed, node)
    size = u.shape[1]
    generator = torch.Generator().manual_seed(int(random.keys("price", seed, node) >> np.uint64(1)))

    def noise(*shape: int) -> Tensor:
        return sigma * torch.randn(shape, generator=generator, dtype=h.dtype)

    d = torch.einsum("hj,jab->hab", x, u) + (mixing @ noise(len(mixing), size**2)).view(-1, size, size)
    k1 = 2**0.5 * u1.sum(0) + noise(size)
    k2 = 2**0.5 * u1.T @ h + noise(size, h.shape[1])
    return protocol.matrix_moments(d, k1, k2, degree)
