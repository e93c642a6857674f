"""The suite on the simulated accelerator: every method, its launches and waits, its memory, and runs of a sweep.

pytest does not collect this file by its name, since the device must be loaded before torch: `test_device.py` starts it.
By hand: `PYTHONPATH=tests python -m device.simulated python -m pytest tests/device/on_device.py`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from device import simulated
from test_promises import CASES, CLIENTS, build, federate, graph
from torch import Tensor

from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.training import History, train

# On this device an operation comes as its `out` form, which says this of a loss averaged over nodes.
pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")

# Operations and waits of a second round at most. On small graphs a GPU's time goes to launches.
BUDGET = {"FedAvg": (240, 26), "FedSGD": (180, 20), "FGGP": (2900, 120)}
OTHERS = (3000, 300)
# Methods that come out with other last bits than on the CPU, since products of slices of unequal size are padded. Their
# losses agree within this share.
ROUNDED = {
    ("FedGAT", False): 1e-6,
    ("FedGCN (raw neighbours)", False): 1e-6,
    ("FedStruct", False): 1e-6,
    ("FedStruct", True): 1e-6,
}


@pytest.fixture(autouse=True)
def _whole_device() -> Iterator[None]:
    yield
    simulated.limit()
    simulated.noise(0.0)
    simulated.forget_assert()


def made(name: str) -> Any:
    short = {"generator_epochs": 1} if "generator_epochs" in CASES[name].options else {}
    return build(name, dropout=0.3, **short)


def numbers(history: History) -> np.ndarray:
    """Return all scores and losses of a history, one after the other."""
    results = [history.result(run) for run in range(history.runs)]
    scores = [
        value for result in results for picks in result.values() for pick in picks.values() for value in pick.values()
    ]
    return np.concatenate([scores, *history.loss])


@pytest.mark.parametrize(
    ("name", "sparse"), [*((name, False) for name in sorted(CASES)), ("FedAvg", True), ("FedStruct", True)]
)
def test_a_method_gives_what_it_gives_on_the_cpu(name: str, sparse: bool) -> None:
    """Every method: the same bits, every operation has a CUDA kernel, and a round keeps its budget."""
    data, clients, counts = graph(0, sparse), CASES[name].clients, []
    expected = train(made(name), federate(data, clients, 0), 2).history
    gc.collect()
    gc.disable()
    before = torch.cuda.memory_allocated()
    for rounds in (1, 2):
        fed = federate(data, clients, 0, device="cuda")
        with simulated.Watch() as watch:
            history = train(made(name), fed, rounds).history
        counts.append((sum(watch.ops.values()), watch.count(simulated.WAITS)))
    result = numbers(history)
    del fed, history
    left = torch.cuda.memory_allocated() - before
    gc.enable()
    assert left == 0
    assert simulated.without_kernel(set(watch.ops)) == set()
    within = ROUNDED.get((name, sparse), 0.0)
    np.testing.assert_allclose(result, numbers(expected), rtol=within, atol=0)
    launches, waits = (later - first for first, later in zip(*counts, strict=True))
    most = BUDGET.get(name, OTHERS)
    assert launches <= most[0] and waits <= most[1], (launches, waits)


class Quiet(FedAvg):
    """FedAvg with a loss of its own, the same one."""

    reads = False

    def local_loss(self, *given: Any, **more: Any) -> Tensor:
        losses = super().local_loss(*given, **more)
        assert not self.reads or all(loss.item() >= 0 for loss in losses.detach())
        return losses


class Chatty(Quiet):
    """FedAvg that reads every loss on the host, one wait a client."""

    reads = True


class Forgetful(FedAvg):
    """FedAvg with a tensor of its own on the CPU."""

    def local_loss(self, *given: Any, **more: Any) -> Tensor:
        return super().local_loss(*given, **more) * torch.ones(CLIENTS)


class Keeps(FedAvg):
    """FedAvg that keeps what it has computed."""

    kept: list[Tensor] = []  # noqa: RUF012

    def local_loss(self, *given: Any, **more: Any) -> Tensor:
        losses = super().local_loss(*given, **more)
        self.kept.append(losses)
        return losses


def of(kind: type) -> Any:
    return kind(model=CASES["FedAvg"].model)


def test_a_tensor_left_behind_is_noticed() -> None:
    """The device refuses a method that makes a tensor of its own on the CPU."""
    train(of(Forgetful), federate(graph(0), CLIENTS, 0), 1)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        train(of(Forgetful), federate(graph(0), CLIENTS, 0, device="cuda"), 1)


def test_a_wait_in_a_step_is_counted() -> None:
    """A method that reads its losses on the host waits once a client more."""

    def waits(kind: type) -> int:
        with simulated.Watch() as watch:
            train(of(kind), federate(graph(0), CLIENTS, 0, device="cuda"), 1)
        return watch.count(simulated.WAITS)

    assert waits(Chatty) == waits(Quiet) + CLIENTS


def held(kind: type) -> int:
    """Return the bytes that three runs leave behind without the cyclic collector."""
    gc.collect()
    gc.disable()
    try:
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            train(of(kind), federate(graph(0), CLIENTS, 0, device="cuda"), 1)
        return torch.cuda.memory_allocated() - before
    finally:
        gc.enable()


def test_memory_is_given_back() -> None:
    """Three runs leave nothing on the device, before any cyclic collection."""
    assert held(FedAvg) == 0


def test_memory_that_is_kept_is_noticed() -> None:
    """A method that keeps its losses leaves bytes on the device."""
    try:
        assert held(Keeps) > 0
    finally:
        Keeps.kept.clear()


def test_an_operation_without_a_kernel_is_noticed() -> None:
    """The list of missing kernels names an operation that CUDA does not have."""
    assert simulated.without_kernel({"aten::mkldnn_linear", "aten::mm"}) == {"mkldnn_linear"}


def test_memory_runs_out_on_demand() -> None:
    """A limit makes training end with torch's own error, and the memory is there again after it."""
    simulated.limit(torch.cuda.memory_allocated() + 100_000)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory"):
        train(of(FedAvg), federate(graph(0), CLIENTS, 0, device="cuda"), 1)
    gc.collect()
    simulated.limit()
    train(of(FedAvg), federate(graph(0), CLIENTS, 0, device="cuda"), 1)


def test_rounding_is_noticed() -> None:
    """Products and sums with an error of one unit in the last place change the loss, by about as much."""
    fed = federate(graph(0), CLIENTS, 0, device="cuda")
    exact = train(of(FedAvg), fed, 3).history.loss[-1]
    simulated.noise(6e-8)
    rounded = train(of(FedAvg), fed, 3).history.loss[-1]
    assert 0 < np.abs(rounded - exact).max() < 1e-5


def test_an_index_out_of_range_ends_the_context() -> None:
    """A label beyond the classes is a device assert, after which nothing works in this process."""
    fed = federate(graph(0), CLIENTS, 0, device="cuda")
    fed.batch.y[:] = 7
    for _ in range(2):
        with pytest.raises(torch.AcceleratorError, match="device-side assert"):
            train(of(FedAvg), fed, 1)
