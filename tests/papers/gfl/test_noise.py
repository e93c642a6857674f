"""GFL-APPNP's noise: its spread, and that the part which is drawn is distributed as the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from gfl_plain import CLASSES, FEATURES, HIDDEN, NET, NODES, SAMPLES, data, federate
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.models import MLP
from fedrepro.engine.training import train
from fedrepro.papers.gfl import exchange
from fedrepro.papers.gfl.clients import FIRST
from fedrepro.papers.gfl.method import GFLAPPNP


def test_noise_has_the_stated_spread_and_changes_training() -> None:
    """V1's noise on grad C_k has the variance of a sum over neighbours with weights A_kj, and changes the weights."""
    graph = data(split_nodes=True)
    method = GFLAPPNP(model=MLP(FEATURES, CLASSES, 400), lr=0.1, local_epochs=2, noise=2.0)
    _, state = method.start(federate(graph))
    received, off = state.more.received, state.more.graphs[0].off
    for k in range(3):
        assert float(received.noise.first[k].std()) == pytest.approx(2 * float(off[k].norm()), rel=0.05)
    together = float((received.noise.first[0] * received.noise.first[1]).mean())
    assert together == pytest.approx(4 * float(off[0] @ off[1]), abs=0.1 * float(off[0].norm() * off[1].norm()) * 4)
    noisy = train(method, federate(graph), 2).state.shared
    bare = train(replace(method, noise=0.0), federate(graph), 2).state.shared
    assert not torch.equal(noisy[FIRST], bare[FIRST])


def gaussian(draw: Callable[[torch.Generator], Tensor], times: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of a random tensor over independent draws."""
    source = torch.Generator().manual_seed(3)
    drawn = np.stack([draw(source).numpy().ravel() for _ in range(times)])
    return drawn.mean(0), np.cov(drawn.T)


@pytest.mark.parametrize("rank", [4, 2])
@pytest.mark.parametrize("wrong", ["", "independent"])
def test_the_noise_that_is_used_is_distributed_as_if_all_of_it_were_drawn(rank: int, wrong: str) -> None:
    """The noise at the samples and its weighted sum have mean zero and the covariance of noise that is drawn whole.

    A sum drawn independently of the noise at the samples has another covariance. Linearly dependent samples count too.
    """
    clients, features, classes, times = 4, 5, 2, 20_000
    make = torch.Generator().manual_seed(rank)
    off, w = (torch.randn(*shape, generator=make, dtype=torch.float64) for shape in ((clients, 6), (clients, classes)))
    x = torch.randn(clients, rank, generator=make, dtype=torch.float64)
    x = x @ torch.randn(rank, features, generator=make, dtype=torch.float64)
    mix = off @ off.T

    def whole(source: torch.Generator) -> Tensor:
        noise = torch.empty(clients, classes, features, 1, dtype=torch.float64)
        exchange.draw(mix, source, noise)
        return torch.cat([torch.einsum("kp,kcph->kch", x, noise).flatten(), torch.einsum("kc,kcph->p", w, noise)])

    def used(source: torch.Generator) -> Tensor:
        at = exchange.draw_at_samples(mix, x, classes, 1, source)
        seen = exchange.draw_at_samples(mix, x, classes, 1, source) if wrong else at
        return torch.cat([at.flatten(), exchange.draw_mean(mix, x, w, seen, source).flatten()])

    (mean, covariance), (_, expected) = gaussian(used, times), gaussian(whole, times)
    scale = np.sqrt(np.diag(expected))
    assert np.abs(mean / scale).max() < 5 / times**0.5
    gap = np.abs((covariance - expected) / np.outer(scale, scale)).max()
    assert (gap > 0.2) if wrong else (gap < 5 * (4 / times) ** 0.5)


def test_noise_is_drawn_whole_only_where_more_of_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first layer's noise is drawn whole for clients with several samples, and never for clients with one."""
    many = data(split_nodes=True)
    first = torch.arange(0, NODES * SAMPLES, SAMPLES)
    names = ("x", "y", "train_mask", "val_mask", "test_mask")
    one = Data(
        edge_index=many.edge_index // SAMPLES, num_classes=CLASSES, **{name: many[name][first] for name in names}
    )
    alone = Federation.of(one, list(torch.arange(NODES).view(NODES, 1)), 0)
    sizes: list[int] = []
    monkeypatch.setattr(exchange, "draw", lambda mix, source, out: sizes.append(out[0].numel()))
    layers = CLASSES * FEATURES * HIDDEN, CLASSES * HIDDEN * CLASSES
    method = GFLAPPNP(model=NET, lr=0.1, local_epochs=2, noise=1.0)
    for fed, drawn in ((alone, layers[1:]), (federate(many), layers)):
        sizes.clear()
        method.start(fed)
        assert tuple(sizes) == drawn
