"""Every method on the simulated accelerator: its numbers, launches, waits, sums and memory.

pytest does not collect this file by its name, since the device must be loaded before torch: `test_device.py` starts it.
By hand: `PYTHONPATH=tests python -m device.simulated python -m pytest tests/device/on_device.py`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from device import simulated
from promises import CASES, CLIENTS, build, federate, graph
from torch import Tensor

from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.training import History, Trained, train
from fedrepro.paths import read_csv

# On this device an operation comes as its `out` form, which says this of a loss averaged over nodes.
pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")

# Operations and waits of a second round at most, for each method. On small graphs a GPU's time goes to launches.
BUDGETS = {
    row["method"]: (int(row["operations"]), int(row["waits"]))
    for row in read_csv(Path(__file__).with_name("budgets.csv"))
}
# Where a GPU would add floats in the order in which its threads arrive, and why that changes no result.
UNORDERED = {
    "baselines.fggp._count": "whole numbers",
    "engine.training._gradient": "whole numbers",
    "papers.fedgat.method._count_exchange": "whole numbers",
    "papers.gfl.clients._majority": "whole numbers",
    "papers.gfl.clients.of": "whole numbers",
    "baselines.second_view._cross_entropy_slope": "no place is named twice",
    "baselines.second_view._probability": "no place is named twice",
    "engine.nn.sparse.max": "a maximum",
}
# Sums to which torch's deterministic algorithms, on after `process.settle("cuda")`, give one order: the gradient
# of `index_select`, and `index_add_` over the entries of sparse features in `normalize`. Another way to write that line
# would make every stored training record stale.
ORDERED_BY_TORCH = {
    ("FedSage+", "dense"): {"backward"},
    ("FedSage+ (FedSGD)", "dense"): {"backward"},
    ("FedAvg", "normalized"): {"engine.operators.normalize"},
}
# Methods that come out with other last bits than on the CPU, since products of slices of unequal size are padded. Their
# losses agree within this share.
ROUNDED = {
    ("FedGAT", "dense"): 1e-6,
    ("FedGCN (raw neighbours)", "dense"): 1e-6,
    ("FedStruct", "dense"): 1e-6,
    ("FedStruct", "sparse"): 1e-6,
}
# Beside dense features: sparse ones, and `normalized`, which are sparse ones that pass LayerNorm first.
FURTHER = [("FedAvg", "sparse"), ("FedStruct", "sparse"), ("FedAvg", "normalized")]


@pytest.fixture(autouse=True)
def _whole_device() -> Iterator[None]:
    yield
    simulated.limit()
    simulated.noise(0.0)
    simulated.forget_assert()


def made(name: str, features: str = "dense") -> Any:
    short = {"generator_epochs": 1} if "generator_epochs" in CASES[name].options else {}
    method: Any = build(name, dropout=0.3, **short)
    return replace(method, model=replace(method.model, input_norm=True)) if features == "normalized" else method


def numbers(history: History) -> np.ndarray:
    """Return all scores and losses of a history, one after the other."""
    results = [history.result(run) for run in range(history.runs)]
    scores = [
        value for result in results for picks in result.values() for pick in picks.values() for value in pick.values()
    ]
    return np.concatenate([scores, *history.loss])


def excess(method: str, operations: int, waits: int) -> str:
    """Return a sentence if a round of a method has no budget or goes beyond it, else an empty text."""
    asked = f"a round has {operations} operations and {waits} waits"
    if method not in BUDGETS:
        return f"{method} has no budget of its own in budgets.csv: {asked}."
    most = BUDGETS[method]
    fits = operations <= most[0] and waits <= most[1]
    return "" if fits else f"{method} goes beyond its budget of {most[0]} and {most[1]}: {asked}."


@pytest.mark.parametrize(("name", "features"), [*((name, "dense") for name in sorted(CASES)), *FURTHER])
def test_a_method_gives_what_it_gives_on_the_cpu(name: str, features: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method: the same bits, every operation has a CUDA kernel, a round keeps its budget, and no memory stays.

    No floats are added in the order of a GPU's threads where that could change a result.
    """
    monkeypatch.setattr("fedrepro.engine.nn.sparse.LONGEST", 10**9)  # sums in pieces round otherwise, see below
    data, clients, counts = graph(0, features != "dense"), CASES[name].clients, []
    expected = train(made(name, features), federate(data, clients, 0), 2).history
    gc.collect()
    gc.disable()
    before = torch.cuda.memory_allocated()
    for rounds in (1, 2):
        fed = federate(data, clients, 0, device="cuda")
        with simulated.Watch() as watch:
            history = train(made(name, features), fed, rounds).history
        counts.append((sum(watch.ops.values()), watch.count(simulated.WAITS)))
    result = numbers(history)
    del fed, history
    left = torch.cuda.memory_allocated() - before
    gc.enable()
    assert left == 0
    assert simulated.without_kernel(set(watch.ops)) == set()
    assert watch.unordered - UNORDERED.keys() == ORDERED_BY_TORCH.get((name, features), set())
    within = ROUNDED.get((name, features), 0.0)
    np.testing.assert_allclose(result, numbers(expected), rtol=within, atol=0)
    launches, waits = (later - first for first, later in zip(*counts, strict=True))
    assert excess(name, launches, waits) == ""


def test_every_method_has_a_budget_of_its_own() -> None:
    """`budgets.csv` names each method once and no other, and a method that it does not name is told by its name."""
    rows = [row["method"] for row in read_csv(Path(__file__).with_name("budgets.csv"))]
    assert rows == sorted(CASES)
    assert excess("FedNew", 150, 4) == (
        "FedNew has no budget of its own in budgets.csv: a round has 150 operations and 4 waits."
    )


@pytest.mark.parametrize("grown", [(5, 1), (1, 5)])
def test_a_round_beyond_its_budget_is_told(grown: tuple[int, int]) -> None:
    """A method of which a round has five times the operations or the waits goes beyond its budget, whichever it is."""
    for method, most in BUDGETS.items():
        operations, waits = (number * factor for number, factor in zip(most, grown, strict=True))
        told = f"{method} goes beyond its budget of {most[0]} and {most[1]}: a round has {operations} operations"
        assert excess(method, *most) == "" and excess(method, operations, waits).startswith(told)


@pytest.mark.parametrize("name", ["FedAvg", "GFL-APPNP", "DistGAT"])
def test_sums_in_pieces_come_to_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of sparse products that are summed piece by piece change losses by rounding."""
    clients = CASES[name].clients
    expected = train(made(name), federate(graph(0), clients, 0), 2).history.loss
    monkeypatch.setattr("fedrepro.engine.nn.sparse.LONGEST", 2)
    loss = train(made(name), federate(graph(0), clients, 0, device="cuda"), 2).history.loss
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


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


class Scatters(FedAvg):
    """FedAvg whose losses are added up in no order, forward and backward."""

    def local_loss(self, *given: Any, **more: Any) -> Tensor:
        losses = super().local_loss(*given, **more)
        same = torch.zeros(len(losses), dtype=torch.int64, device=losses.device)
        return losses.index_select(0, same) + torch.zeros_like(losses).index_add(0, same, losses)


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


def test_a_sum_in_no_order_is_noticed() -> None:
    """A method that adds floats by `index_add`, and its gradient by that of `index_select`, is told by its name."""
    with simulated.Watch() as watch:
        train(of(Scatters), federate(graph(0), CLIENTS, 0, device="cuda"), 1)
    assert watch.unordered == {"on_device.local_loss", "backward"}


def held(kind: type) -> int:
    """Return the bytes that three runs leave behind without the cyclic collector."""
    gc.collect()
    gc.disable()
    try:
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            train(of(kind), federate(graph(0), CLIENTS, 0, device="cuda"), 1)
        for _ in range(100):  # the thread of the backward pass lets go of its tensors when a busy machine gets to it
            if torch.cuda.memory_allocated() == before:
                break
            time.sleep(0.02)
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


def wide(device: str = "cuda", chunk: int | None = None) -> tuple[Trained, int]:
    """Train two rounds of a network whose activations fill the memory; return the peak, too."""
    torch.cuda.reset_peak_memory_stats()
    method = FedAvg(model=replace(CASES["FedAvg"].model, hidden=512))
    trained = train(method, federate(graph(0), CLIENTS, 0, device=device), 2, chunk=chunk)
    return trained, torch.cuda.max_memory_allocated()


def test_chunks_are_halved_until_they_fit() -> None:
    """Training begins again with fewer clients at a time if all at once do not fit, and agrees with the CPU."""
    before = torch.cuda.memory_allocated()
    whole, fewer = wide()[1], wide(chunk=-(-CLIENTS // 2))[1]
    gc.collect()  # Python may find a cycle late; `test_memory_is_given_back` measures without it
    assert torch.cuda.memory_allocated() == before and fewer < whole
    simulated.limit((whole + fewer) // 2)
    trained, most = wide()
    assert 1 < trained.history.chunk < CLIENTS and most <= (whole + fewer) // 2
    on_cpu, _ = wide("cpu")
    np.testing.assert_allclose(numbers(trained.history), numbers(on_cpu.history), rtol=1e-5)
    # What was sent in the attempt that ended is not counted.
    assert trained.fed.traffic.summary(0) == on_cpu.fed.traffic.summary(0)


class Greedy(FedAvg):
    """FedAvg that asks for more memory than there is, whatever the chunk; `begun` counts its attempts."""

    begun: list[int] = []  # noqa: RUF012

    def local_loss(self, *given: Any, **more: Any) -> Tensor:
        self.begun.append(more["fed"].clients)
        return super().local_loss(*given, **more) + torch.empty(simulated.MEMORY, device="cuda")[0]


def test_memory_that_never_suffices_ends_once() -> None:
    """Training stops halving with one client at a time, with torch's own error."""
    Greedy.begun.clear()
    with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory"):
        train(of(Greedy), federate(graph(0), CLIENTS, 0, device="cuda"), 1)
    begun = Greedy.begun
    assert (begun[0], begun[-1]) == (CLIENTS, 1)
    assert begun[1:] == [-(-size // 2) for size in begun[:-1]]


def test_seeds_side_by_side_come_to_the_same() -> None:
    """Two runs are averaged in one product a weight, to the losses of a CPU within rounding."""

    def both(device: str) -> np.ndarray:
        feds = [federate(graph(0), CLIENTS, seed, device=device) for seed in (0, 1)]
        return numbers(train(of(FedAvg), Federation.stack(feds), 2).history)

    np.testing.assert_allclose(both("cuda"), both("cpu"), rtol=1e-6)


def test_an_average_leaves_out_clients_of_no_weight() -> None:
    """A client of weight 0 does not count even if its weights are not finite; a run without weights gives NaN."""
    feds = [federate(graph(0), CLIENTS, seed, device="cuda") for seed in (0, 1, 2)]
    fed = Federation.stack(feds)
    by, w = torch.ones(fed.clients, dtype=torch.float64), torch.arange(fed.clients * 2.0).view(-1, 2)
    by[0], w[0], by[2 * CLIENTS :] = 0, torch.inf, 0
    (mean,) = fed.average({"w": w.cuda()}, by.cuda()).values()
    expected = [w[1:CLIENTS].mean(0), w[CLIENTS : 2 * CLIENTS].mean(0), torch.full((2,), torch.nan)]
    torch.testing.assert_close(mean.cpu(), torch.stack(expected), equal_nan=True)


def test_rounding_is_noticed() -> None:
    """Products and sums with an error of one unit in the last place change losses, by about as much."""
    fed = federate(graph(0), CLIENTS, 0, device="cuda")
    exact = train(of(FedAvg), fed, 5).history.loss
    torch.manual_seed(0)  # of the noise
    simulated.noise(6e-8)
    rounded = train(of(FedAvg), fed, 5).history.loss  # one number may come out the same
    assert 0 < np.abs(np.subtract(rounded, exact)).max() < 1e-5


def test_an_index_out_of_range_ends_the_context() -> None:
    """A label beyond the classes is a device assert, after which nothing works in this process."""
    fed = federate(graph(0), CLIENTS, 0, device="cuda")
    fed.batch.y[:] = 7
    for _ in range(2):
        with pytest.raises(torch.AcceleratorError, match="device-side assert"):
            train(of(FedAvg), fed, 1)
