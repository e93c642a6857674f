"""Measure the cost of a round in seconds and memory, for the stack and for plain loops over clients.

Five ways run the same FedAvg rounds and give the same accuracy. The model is a 2-layer GCN with Adam. All clients
train, and the global model is scored on every client's test nodes after each round.

    stack         this package: clients in chunks that fit the cache
    chunk of 1    this package, one client at a time
    PyG loop      `GCNConv` layers and dense features, one module per client, as a tutorial would write it
    sparse loop   a loop with this package's sparse products, one set of weight tensors per client
    fused loop    the sparse loop with `torch.optim.Adam(fused=True)`, which the stack uses and few loops do
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.training import train
from fedrepro.errors import one_of, require
from fedrepro.runs import process, tasks
from fedrepro.runs.run import Run

LR, WEIGHT_DECAY = 0.01, 5e-4
WAYS = ("stack", "chunk of 1", "PyG loop", "sparse loop", "fused loop")


def rounds(run: Run, device: str = "cpu") -> dict[str, Any]:
    """Measure the median seconds per round of each way over interleaved repeats, and its peak memory.

    The peak memory is that of a separate process. The options of the run are "hidden", "local_epochs" (3), "rounds"
    (10), "repeats" (5) and "memory" (True). With "memory" False the peak memory is left out, whose processes take
    seconds to start.

    Returns:
        "result": `{way: {"timing": {"seconds_per_round", "fastest", "peak_mebibytes"}, "test"}}`, and the stack's
        "chunk".
    """
    repeats, count = int(run.options.get("repeats", 5)), int(run.options.get("rounds", 10))
    steppers = {way: stepper(run, way, device) for way in WAYS}
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    test: dict[str, float] = {}
    for repeat in range(repeats + 1):
        for way, step in steppers.items():
            elapsed, test[way] = timed(step, count if repeat else 1, device)
            if repeat:  # The first is a warm-up.
                seconds[way].append(elapsed / count)
    result: dict[str, Any] = {
        way: {"timing": {"seconds_per_round": statistics.median(seconds[way]), "fastest": min(seconds[way])}}
        for way in WAYS
    }
    for way in WAYS:
        result[way]["test"] = test[way]
        measure = _peak_cuda if device.startswith("cuda") else _peak
        memory = bool(run.options.get("memory", True))
        result[way]["timing"]["peak_mebibytes"] = measure(run, way, device) if memory else None
    result["stack"]["chunk"] = _chunk(run, device)
    return {"result": result}


def training(run: Run) -> dict[str, Any]:
    """Measure the median seconds per round of any training method, scored in both views each round, and its memory.

    The start of training (an exchange, a first view of the graph) is left out by taking the difference between two
    numbers of rounds. The options of the run are "of" (the method), "repeats" (5), "memory" (True) and those of the
    training run. Half of its "rounds" are timed.

    Returns:
        "result": {"timing": {"seconds_per_round", "peak_mebibytes"}}.
    """
    repeats, memory = int(run.options.get("repeats", 5)), bool(run.options.get("memory", True))
    trained = _trained(run)
    fed = tasks.federation([trained])
    method, loop = tasks.method(trained, fed.features, fed.classes)
    timing: dict[str, float | None] = {"seconds_per_round": _seconds(method, fed, loop["rounds"], repeats)}
    timing["peak_mebibytes"] = process.peak_mebibytes(_three_rounds, trained.to_dict()) if memory else None
    return {"result": {"timing": timing}}


def nodes(run: Run) -> dict[str, Any]:
    """Measure the median seconds per round of the stack on a random graph of any size, and its memory.

    The ends of each edge, the class and the features of each node, and its client are drawn uniformly. The options of
    the run are "nodes", "degree" (10), "features" (32), "classes" (5), "hidden", "local_epochs" (3), "rounds" (3),
    "repeats" (3) and "memory" (True).

    Returns:
        "result": {"stack": {"timing": {"seconds_per_round", "peak_mebibytes"}}}.
    """
    options = run.options
    fed, method = _random(run)
    seconds = _seconds(method, fed, options.get("rounds", 3), options.get("repeats", 3))
    timing: dict[str, float | None] = {"seconds_per_round": seconds}
    measured = options.get("memory", True)
    timing["peak_mebibytes"] = process.peak_mebibytes(_random_rounds, run.to_dict()) if measured else None
    return {"result": {"stack": {"timing": timing}}}


def _random(run: Run) -> tuple[Federation, FedAvg]:
    options = {"degree": 10, "features": 32, "classes": 5, "local_epochs": 3, **run.options}
    rng, count, classes = np.random.default_rng(run.seed), options["nodes"], options["classes"]
    low, high = (torch.from_numpy(rng.integers(count, size=count * options["degree"] // 2)) for _ in range(2))
    split = torch.from_numpy(rng.random(count))
    graph = Data(
        x=torch.from_numpy(rng.standard_normal((count, options["features"]), dtype=np.float32)),
        y=torch.from_numpy(rng.integers(classes, size=count)),
        num_classes=classes,
        num_nodes=count,
        edge_index=torch.stack([torch.cat([low, high]), torch.cat([high, low])]),
        train_mask=split < 0.6,
        val_mask=(split >= 0.6) & (split < 0.8),
        test_mask=split >= 0.8,
    )
    parts = [torch.from_numpy(part) for part in np.array_split(rng.permutation(count), run.clients)]
    fed = Federation.of(graph, parts, run.seed)
    return fed, _method(fed, options["hidden"], options["local_epochs"])


def _random_rounds(run: dict[str, Any]) -> None:
    fed, method = _random(Run.from_dict(run))
    train(method, fed, 2)


def _seconds(method: Method, fed: Federation, rounds: int, repeats: int) -> float:
    """Return the median over repeats of the seconds of a round, from the difference between two lengths."""
    short, long = max(1, rounds // 2), rounds
    require(long > 1, "option 'rounds'", "at least 2", long)
    seconds = []
    for repeat in range(repeats + 1):
        spent = []
        for length in (short, long):
            start = time.perf_counter()
            train(method, fed, length)
            spent.append(time.perf_counter() - start)
        if repeat:  # The first is a warm-up.
            seconds.append((spent[1] - spent[0]) / (long - short))
    return statistics.median(seconds)


def _trained(run: Run) -> Run:
    """Return the training run that a benchmark times."""
    options = {name: v for name, v in run.options.items() if name not in ("of", "repeats", "memory")}
    return Run.from_dict(run.to_dict() | {"task": "train", "method": run.options["of"], "options": options})


def _three_rounds(run: dict[str, Any]) -> None:
    trained = Run.from_dict(run)
    tasks.train([trained.replace(options={**trained.options, "rounds": 3})])


def stepper(run: Run, way: str, device: str = "cpu") -> Callable[[int], float]:
    """Return a function that trains for some rounds and returns the last round's pooled test accuracy."""
    one_of("way", way, WAYS)
    fed = tasks.federation([run], device)
    epochs, hidden = int(run.options.get("local_epochs", 3)), int(run.options["hidden"])
    if way == "PyG loop":
        return _pyg_loop(fed, hidden, epochs)
    if way in ("sparse loop", "fused loop"):
        return _sparse_loop(fed, hidden, epochs, fused=way == "fused loop")
    chunk = 1 if way == "chunk of 1" else None
    return lambda count: _stack(fed, hidden, epochs, count, chunk)


class _Ready(GCN):
    """A GCN whose initial weights are drawn once and before the timing, as in the loops."""

    def init(
        self, seeds: Sequence[int], dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
    ) -> Weights:
        """Return copies of weights drawn once."""
        key = (self, tuple(seeds), dtype, str(device))
        if key not in _drawn:
            _drawn[key] = super().init(seeds, dtype, device)
        return {name: w.clone() for name, w in _drawn[key].items()}


_drawn: dict[object, Weights] = {}


def _stack(fed: Federation, hidden: int, epochs: int, count: int, chunk: int | None) -> float:
    trained = train(_method(fed, hidden, epochs), fed, count, evaluate=("before",), chunk=chunk)
    return trained.history.before.series(0)["test"][-1]


def _method(fed: Federation, hidden: int, epochs: int) -> FedAvg:
    model = _Ready(fed.features, fed.classes, hidden)
    return FedAvg(model=model, lr=LR, weight_decay=WEIGHT_DECAY, local_epochs=epochs)


class _Net(torch.nn.Module):
    """A 2-layer GCN of PyG."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = GCNConv(features, hidden, cached=True)
        self.second = GCNConv(hidden, classes, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.second(F.relu(self.first(x, edge_index)), edge_index)
        return out


def _pyg_loop(fed: Federation, hidden: int, epochs: int) -> Callable[[int], float]:
    """Return a loop in which clients with labels train in turn, each with a module and an optimizer."""
    clients = [fed.select([i]) for i in range(fed.clients)]
    graphs = [(c.x if isinstance(c.x, Tensor) else c.x.dense(), c.batch.edge_index, c.batch) for c in clients]
    start = GCN(fed.features, fed.classes, hidden).init(fed.seeds, fed.dtype, fed.device)

    def go(count: int) -> float:
        nets = [_Net(fed.features, hidden, fed.classes).to(fed.device) for _ in graphs]
        optimizers = [torch.optim.Adam(net.parameters(), lr=LR, weight_decay=WEIGHT_DECAY) for net in nets]
        shared = {
            "first.lin.weight": start["layer1.weight"][0].T,
            "first.bias": start["layer1.bias"][0],
            "second.lin.weight": start["layer2.weight"][0].T,
            "second.bias": start["layer2.bias"][0],
        }
        hits = total = 0
        for _ in range(count):
            trained = []
            for net, optimizer, (x, edges, batch) in zip(nets, optimizers, graphs, strict=True):
                net.load_state_dict(shared)
                if not bool(batch.train_mask.any()):
                    continue
                for _ in range(epochs):
                    optimizer.zero_grad()
                    out = net(x, edges)
                    F.cross_entropy(out[batch.train_mask], batch.y[batch.train_mask]).backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                trained.append({name: w.clone() for name, w in net.state_dict().items()})
            shared = {name: torch.stack([w[name] for w in trained]).mean(0) for name in shared}
            hits = total = 0
            with torch.no_grad():
                for net, (x, edges, batch) in zip(nets, graphs, strict=True):
                    net.load_state_dict(shared)
                    right = net(x, edges).argmax(1) == batch.y
                    hits += int(right[batch.test_mask].sum())
                    total += int(batch.test_mask.sum())
        return hits / total

    return go


def _sparse_loop(fed: Federation, hidden: int, epochs: int, fused: bool) -> Callable[[int], float]:
    """Return the same loop on plain tensors, with sparse features and prepared transposes."""
    clients = [fed.select([i]) for i in range(fed.clients)]
    parts = [(c.x, c.operator("gcn"), c.batch) for c in clients]
    start = [w[0] for w in GCN(fed.features, fed.classes, hidden).init(fed.seeds, fed.dtype, fed.device).values()]

    def forward(x: Any, s: Any, w: list[Tensor]) -> Tensor:
        h = F.relu(s @ (x @ w[0]) + w[1])
        out: Tensor = s @ (h @ w[2]) + w[3]
        return out

    def go(count: int) -> float:
        weights = [[w.clone().requires_grad_() for w in start] for _ in parts]
        optimizers = [torch.optim.Adam(w, lr=LR, weight_decay=WEIGHT_DECAY, fused=fused or None) for w in weights]
        shared = start
        hits = total = 0
        for _ in range(count):
            trained = []
            for w, optimizer, (x, s, batch) in zip(weights, optimizers, parts, strict=True):
                if not bool(batch.train_mask.any()):
                    continue
                with torch.no_grad():
                    for local, received in zip(w, shared, strict=True):
                        local.copy_(received)
                for _ in range(epochs):
                    optimizer.zero_grad()
                    F.cross_entropy(forward(x, s, w)[batch.train_mask], batch.y[batch.train_mask]).backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                trained.append(w)
            hits = total = 0
            with torch.no_grad():
                shared = [torch.stack([w[i] for w in trained]).mean(0) for i in range(len(start))]
                for x, s, batch in parts:
                    right = forward(x, s, shared).argmax(1) == batch.y
                    hits += int(right[batch.test_mask].sum())
                    total += int(batch.test_mask.sum())
        return hits / total

    return go


def timed(step: Callable[[int], float], count: int, device: str) -> tuple[float, float]:
    """Return the seconds of some rounds, and their test accuracy."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    start = time.perf_counter()
    test = step(count)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start, test


def _chunk(run: Run, device: str) -> int:
    fed = tasks.federation([run], device)
    method = _method(fed, int(run.options["hidden"]), int(run.options.get("local_epochs", 3)))
    return train(method, fed, 1, evaluate=()).history.chunk


def _peak(run: Run, way: str, device: str) -> float:
    return process.peak_mebibytes(_two_rounds, run.to_dict(), way)


def _two_rounds(run: dict[str, Any], way: str) -> None:
    stepper(Run.from_dict(run), way)(2)


def _peak_cuda(run: Run, way: str, device: str) -> float:
    """Return the largest allocation on the GPU during two rounds beyond the one before, in MiB."""
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    stepper(run, way, device)(2)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20
