"""Measure the cost of an epoch of Feras: time on PPI's size and by number of hosts, and memory on Reddit's size.

epoch    5 hosts on PPI's stand-in, 3000 random walks per sub-graph, hidden width 256, Algorithm 1
hosts    3, 5 and 10 hosts that together draw equally many nodes per iteration
memory   one epoch of 3 hosts on Reddit's stand-in, in a separate process (the paper's N = 5 ran out of memory)
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
NODES_TOGETHER = 4500  # per iteration over all hosts; so few that a sub-graph rarely draws a node twice
Way = tuple[Feras, Federation, tuple[str, ...]]  # what is timed: method, federation, views that are scored


def feras(run: Run) -> dict[str, Any]:
    """Take one of the three measurements.

    Options: what ("epoch", "hosts" or "memory"), repeats (5), exchange ("average"). A dataset of the run replaces the
    stand-in.

    Returns:
        "epoch": `{"timing": {"seconds_per_epoch", "seconds_with_scores"}, "sampled_nodes", "iterations",
        "train_nodes"}`; "hosts": `{"timing": {"median": {"3": seconds per iteration, ...}, "fastest", "median_ratio",
        "fastest_ratio"}, "sampled": {"3": nodes per iteration, ...}}`, where a ratio is largest over smallest;
        "memory": `{"timing": {"peak_mebibytes", "seconds"}, "nodes", "edges"}`.

    Raises:
        ArgumentError: "what" is none of the three.
    """
    measure = {"epoch": _epoch, "hosts": _hosts, "memory": _memory}
    return {"result": measure[one_of("option 'what'", str(run.options["what"]), measure)](run)}


def _federation(run: Run, stand_in: str, clients: int) -> Federation:
    data = datasets.assemble(run.dataset or stand_in, "", "public", run.seed)
    parts = partition.partition(data, f"private-public(kappa={KAPPA})", clients, run.seed)
    return Federation.of(data, parts, run.seed)


def _method(fed: Federation, run: Run, hidden: int = 256, **options: Any) -> Feras:
    model = GCN(fed.features, fed.classes, hidden, layers=3, dropout=0.1)
    return Feras(model=model, exchange=str(run.options.get("exchange", "average")), **options)


def _epoch(run: Run) -> dict[str, Any]:
    fed = _federation(run, "PPI~standin", 5)
    method = _method(fed, run, budget=3000, coverage=5.0)
    trained = train(method, fed, 1)
    facts = method.facts(trained.fed, trained.state)[0]
    ways = {"seconds_per_epoch": (method, fed, ()), "seconds_with_scores": (method, fed, ("before", "after"))}
    timing = {name: statistics.median(seconds) for name, seconds in _time(run, ways).items()}
    return {"timing": timing, **{name: facts[name] for name in ("sampled_nodes", "iterations", "train_nodes")}}


def _hosts(run: Run) -> dict[str, Any]:
    ways: dict[str, Way] = {}
    sampled: dict[str, float] = {}
    for clients in (3, 5, 10):
        fed = _federation(run, "PPI~standin", clients)
        budget = NODES_TOGETHER // (3 * clients)  # roots, each of which walks two steps
        method = _method(fed, run, budget=budget, coverage=5.0, unit="iteration", local_epochs=STEPS, q=STEPS)
        ways[str(clients)] = (method, fed, ())
        trained = train(method, fed, 1, evaluate=())
        sampled[str(clients)] = clients * method.facts(trained.fed, trained.state)[0]["sampled_nodes"]
    timing: dict[str, Any] = {}
    rounds = _time(run, ways)
    for name, rule in (("median", statistics.median), ("fastest", min)):
        seconds = {clients: rule(times) / STEPS for clients, times in rounds.items()}
        timing |= {name: seconds, f"{name}_ratio": max(seconds.values()) / min(seconds.values())}
    return {"timing": timing, "sampled": sampled}


def _time(run: Run, ways: dict[str, Way]) -> dict[str, list[float]]:
    """Return the seconds of each round of each way, interleaved; neither the start nor the first round counts."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(int(run.options.get("repeats", 5))):
        for name, (method, fed, evaluate) in ways.items():
            ends: list[float] = []
            train(_with_clock(method, ends), fed, 3, evaluate=evaluate)
            seconds[name] += [b - a for a, b in pairwise(ends)]
    return seconds


def _with_clock(method: Feras, ends: list[float]) -> Feras:
    """Return the same method, which notes the time at the end of each round's local training."""

    class Watched(Feras):
        def aggregate(self, state: State, update: Update) -> State:
            ends.append(time.perf_counter())
            return super().aggregate(state, update)

    return Watched(**{item.name: getattr(method, item.name) for item in fields(method)})


def _memory(run: Run) -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_train_reddit, (run.to_dict(),))


def _train_reddit(specification: dict[str, Any]) -> dict[str, Any]:
    """Train one epoch in this process; return its largest memory, with libraries and the building of the graph.

    The C library returns freed memory as it does by default. `process.settle` would make it keep the largest tensors,
    which are not needed twice.
    """
    torch.set_num_threads(1)
    run = Run.from_dict(specification)
    # A list, so that this function drops its reference: training replaces the features by larger ones.
    held = [_federation(run, "Reddit~standin", 3)]
    method = _method(held[0], run, hidden=128, budget=2000, depth=4, coverage=2.0)
    source = held[0].sources[0].data
    start = time.perf_counter()
    train(method, held.pop(), 1)
    seconds = time.perf_counter() - start
    timing = {"peak_mebibytes": process.resident_mebibytes(), "seconds": seconds}
    return {"timing": timing, "nodes": source.num_nodes, "edges": source.edge_index.shape[1] // 2}
