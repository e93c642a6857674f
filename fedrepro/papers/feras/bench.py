"""What an epoch of Feras costs: on PPI's size, against the number of hosts, and in memory on Reddit's size.

epoch    5 hosts on PPI's stand-in, 3000 random walks a sub-graph, hidden width 256, Algorithm 1
hosts    3, 5 and 10 hosts that together draw as many nodes an iteration
memory   one epoch of 3 hosts on Reddit's stand-in, in a process of its own (the paper's N = 5 ran out of memory)
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from dataclasses import fields
from itertools import pairwise
from typing import Any

import torch

from fedrepro.data import datasets, partition
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.training import train
from fedrepro.errors import one_of
from fedrepro.papers.feras.method import Feras
from fedrepro.runs import process
from fedrepro.runs.run import Run

KAPPA = 0.4
STEPS = 10  # iterations timed together
Way = tuple[Feras, Federation, tuple[str, ...]]
NODES_TOGETHER = 4500  # per iteration over all hosts, few enough for sub-graphs to hardly draw a node twice


def feras(run: Run) -> dict[str, Any]:
    """One of the three measurements.

    Options: what ("epoch", "hosts" or "memory"), repeats (5), exchange ("average"). A dataset of the run takes the
    stand-in's place.

    Returns:
        "epoch": `{"timing": {"seconds_per_epoch", "seconds_with_scores"}, "sampled_nodes", "iterations",
        "train_nodes"}`; "hosts": `{"timing": {"median": {"3": seconds an iteration, ...}, "fastest", "median_ratio",
        "fastest_ratio"}, "sampled": {"3": nodes an iteration, ...}}`, a ratio being largest over smallest; "memory":
        `{"timing": {"peak_mebibytes", "seconds"}, "nodes", "edges"}`.
    """
    measure = {"epoch": _epoch, "hosts": _hosts, "memory": _memory}
    return {"result": measure[one_of("option 'what'", str(run.options["what"]), measure)](run)}


def _federation(name: str, clients: int, seed: int) -> Federation:
    data = datasets.assemble(name, "", "public", seed)
    return Federation.of(data, partition.partition(data, f"private-public(kappa={KAPPA})", clients, seed), seed)


def _method(fed: Federation, run: Run, hidden: int = 256, **options: Any) -> Feras:
    model = GCN(fed.features, fed.classes, hidden, layers=3, dropout=0.1)
    return Feras(model=model, exchange=str(run.options.get("exchange", "average")), **options)


def _epoch(run: Run) -> dict[str, Any]:
    fed = _federation(run.dataset or "PPI~standin", 5, run.seed)
    method = _method(fed, run, budget=3000, coverage=5.0)
    trained = train(method, fed, 1)
    facts = method.facts(trained.fed, trained.state)[0]
    ways = {"seconds_per_epoch": (method, fed, ()), "seconds_with_scores": (method, fed, ("before", "after"))}
    seconds = _timed(run, ways)
    timing = {name: statistics.median(each) for name, each in seconds.items()}
    return {"timing": timing, **{each: facts[each] for each in ("sampled_nodes", "iterations", "train_nodes")}}


def _hosts(run: Run) -> dict[str, Any]:
    ways: dict[str, Way] = {}
    sampled: dict[str, float] = {}
    for clients in (3, 5, 10):
        fed = _federation(run.dataset or "PPI~standin", clients, run.seed)
        budget = NODES_TOGETHER // (3 * clients)  # roots, each of which walks two steps
        method = _method(fed, run, budget=budget, coverage=5.0, unit="iteration", local_epochs=STEPS, q=STEPS)
        ways[str(clients)] = (method, fed, ())
        trained = train(method, fed, 1, evaluate=())
        sampled[str(clients)] = clients * method.facts(trained.fed, trained.state)[0]["sampled_nodes"]
    seconds = _timed(run, ways)
    median, fastest = ({n: rule(each) / STEPS for n, each in seconds.items()} for rule in (statistics.median, min))
    ratios = {f"{name}_ratio": max(each.values()) / min(each.values()) for name, each in
              (("median", median), ("fastest", fastest))}  # fmt: skip
    return {"timing": {"median": median, "fastest": fastest, **ratios}, "sampled": sampled}


def _timed(run: Run, ways: dict[str, Way]) -> dict[str, list[float]]:
    """Seconds of each round of each way, interleaved; neither the start nor the first round counts."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(int(run.options.get("repeats", 5))):
        for name, (method, fed, evaluate) in ways.items():
            ends: list[float] = []
            train(_ending(method, ends), fed, 3, evaluate=evaluate)
            seconds[name] += [b - a for a, b in pairwise(ends)]
    return seconds


def _ending(method: Feras, ends: list[float]) -> Feras:
    """The same method, noting when the local training of a round has ended."""

    class Watched(Feras):
        def aggregate(self, state: State, update: Update) -> State:
            ends.append(time.perf_counter())
            return super().aggregate(state, update)

    return Watched(**{item.name: getattr(method, item.name) for item in fields(method)})


def _memory(run: Run) -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_resident, (run.to_dict(),))


def _resident(given: dict[str, Any]) -> dict[str, Any]:
    """One epoch in this process, and the largest memory it held, libraries and the making of the graph included.

    The C library gives freed memory back as it does by default: `process.settle` would have it keep the largest
    tensors, which are not needed twice.
    """
    torch.set_num_threads(1)
    run = Run.from_dict(given)
    held = [_federation(run.dataset or "Reddit~standin", 3, run.seed)]
    method = _method(held[0], run, hidden=128, budget=2000, depth=4, coverage=2.0)
    source = held[0].sources[0].data
    start = time.perf_counter()
    train(method, held.pop(), 1)
    seconds = time.perf_counter() - start
    timing = {"peak_mebibytes": process.resident_mebibytes(), "seconds": seconds}
    return {"timing": timing, "nodes": source.num_nodes, "edges": source.edge_index.shape[1] // 2}
