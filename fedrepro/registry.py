"""Register what can be run: the published methods, and the checks, attacks and benchmarks.

An entry is one line and is imported only when it is used, so that listing methods and computing the key of a run need
no torch. Raise `version` when a change alters results. The keys of the runs change with it, and results under the old
keys are never served for the new ones.
"""

from __future__ import annotations

import fnmatch
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedrepro.errors import one_of, require

TASKS = ("train", "check", "attack", "partition", "traffic", "bench")


@dataclass(frozen=True)
class Entry:
    """The home of a registered class or function and the version of its results.

    Args:
        target: `"package.module:Name"`.
        version: raised when a change alters results.
        on_device: whether the function is also given the device. All others but training compute on the CPU.
        options: the options of a function that reads a run's options itself: each name with what is taken where a run
            does not give it, or with a type where a run must give it. None leaves them unchecked.
        trains: the method whose options a run may have besides, since the function trains it; `"of"` if the option of
            this name says which.
    """

    target: str
    version: int = 1
    on_device: bool = False
    options: Mapping[str, Any] | None = field(default_factory=dict)
    trains: str = ""


# Options that several functions share, or that are too many for a line.
_RATE = {"updates": int, "local_epochs": int, "lr": float, "error": float, "batch": int, "ascend": False}
_SEEN = {"noise": float, "local_epochs": int, "neighbours": int, "updates": int}
_INVERTED = {"depth": 1, "observations": 1, "steps": 0, "nodes": 300, "hidden": 256, "sampler": "rw"}
_SENT = {"form": "matrix", "noise": 0.0, "lone": "kept", "nodes": 0}
_COUNTED = {"observers": 8, "unknowns": 12, "head": "direct", "queries": 1}
_PRUNED = {"prune": 30, "structure_depth": 10, "budget": "blocks"}
_ROUNDS = {"hidden": int, "local_epochs": 3, "rounds": 10, "repeats": 5, "memory": True}
_NODES = {"nodes": int, "degree": 10, "features": 32, "classes": 5}
_NODES |= {"hidden": int, "local_epochs": 3, "rounds": 3, "repeats": 3, "memory": True}
_SERVER = {"of": "FedSheafHN", "rounds": 10, "memory": True}
_WATCHED = {"of": str, "memory": True}

REGISTRY: dict[tuple[str, str], Entry] = {
    ("train", "Central"): Entry("fedrepro.engine.central:Central"),
    ("train", "Local"): Entry("fedrepro.engine.local:Local"),
    ("train", "FedAvg"): Entry("fedrepro.engine.fedavg:FedAvg"),
    ("train", "FedSGD"): Entry("fedrepro.engine.fedsgd:FedSGD"),
    ("train", "DistGAT"): Entry("fedrepro.papers.fedgat.method:DistGAT"),
    ("train", "FedGCN"): Entry("fedrepro.baselines.fedgcn:FedGCN"),
    ("train", "FedGAT"): Entry("fedrepro.papers.fedgat.method:FedGAT"),
    ("train", "DistGAT (FedSGD)"): Entry("fedrepro.papers.fedgat.method:DistGATSGD"),
    ("train", "FedGAT (FedSGD)"): Entry("fedrepro.papers.fedgat.method:FedGATSGD"),
    ("train", "DistGAT (as coded)"): Entry("fedrepro.papers.fedgat.as_coded:DistGATAsCoded"),
    ("train", "FedGAT (as coded)"): Entry("fedrepro.papers.fedgat.as_coded:FedGATAsCoded"),
    ("train", "GFL-APPNP"): Entry("fedrepro.papers.gfl.method:GFLAPPNP"),
    ("train", "FedMLP"): Entry("fedrepro.papers.gfl.method:FedMLP"),
    ("train", "MLPs"): Entry("fedrepro.papers.gfl.method:MLPs"),
    ("train", "CentralUnbiased"): Entry("fedrepro.papers.gfl.method:CentralUnbiased"),
    ("train", "FedProx"): Entry("fedrepro.baselines.fedprox:FedProx"),
    ("train", "FedPer"): Entry("fedrepro.baselines.fedper:FedPer"),
    ("train", "FED-PUB"): Entry("fedrepro.baselines.fedpub:FedPub"),
    ("train", "FedSage+"): Entry("fedrepro.baselines.fedsage:FedSage"),
    ("train", "FedSage+ (FedSGD)"): Entry("fedrepro.baselines.fedsage:FedSageSGD"),
    ("train", "pFedHN"): Entry("fedrepro.baselines.pfedhn:PFedHN"),
    ("train", "pFedGraph"): Entry("fedrepro.baselines.pfedgraph:PFedGraph"),
    ("train", "Flow"): Entry("fedrepro.baselines.flow:Flow"),
    ("train", "FGGP"): Entry("fedrepro.baselines.fggp:FGGP"),
    ("train", "FGGP (activated)"): Entry("fedrepro.baselines.fggp:FGGPActivated"),
    ("train", "FedStruct"): Entry("fedrepro.papers.fedstruct.variants:choice"),
    ("train", "FedStruct (as coded)"): Entry("fedrepro.papers.fedstruct.as_coded:KnownGraphAsCoded"),
    ("train", "FedGCN (raw neighbours)"): Entry("fedrepro.papers.fedstruct.as_coded:RawNeighbours"),
    ("train", "FedGCN (local degrees)"): Entry("fedrepro.papers.fedstruct.as_coded:LocalDegrees"),
    ("train", "FedSheafHN"): Entry("fedrepro.papers.fedsheafhn.method:FedSheafHN"),
    ("train", "FedSheafHN (as printed)"): Entry("fedrepro.papers.fedsheafhn.protocol:FedSheafHNAsPrinted"),
    ("train", "FedSheafHN (as coded)"): Entry("fedrepro.papers.fedsheafhn.protocol:FedSheafHNAsCoded", 2),
    ("train", "GraphSAINT"): Entry("fedrepro.papers.feras.saint.method:GraphSAINT"),
    ("train", "GraphSAINT-SW"): Entry("fedrepro.papers.feras.saint.method:GraphSAINTSW"),
    ("train", "Feras"): Entry("fedrepro.papers.feras.method:Feras"),
    ("check", "gfl-weights"): Entry("fedrepro.papers.gfl.theory:weights"),
    ("check", "gfl-statistics"): Entry("fedrepro.papers.gfl.theory:statistics"),
    ("check", "gfl-gradient-split"): Entry("fedrepro.papers.gfl.theory:gradient_split"),
    ("check", "gfl-one-local-step"): Entry("fedrepro.papers.gfl.theory:one_local_step", options={"rounds": 20}),
    ("check", "gfl-identity-aggregator"): Entry("fedrepro.papers.gfl.theory:identity_aggregator"),
    ("check", "gfl-compensation-error"): Entry(
        "fedrepro.papers.gfl.theory:compensation_error", 2, options={"local_epochs": int, "lr": float, "rounds": int}
    ),
    ("check", "gfl-algorithm"): Entry("fedrepro.papers.gfl.theory:algorithm", 2, options={"local_epochs": int}),
    ("check", "gfl-subcora"): Entry("fedrepro.papers.gfl.theory:subcora_statistics"),
    ("check", "gfl-rate"): Entry("fedrepro.papers.gfl.theory:rate", 2, options=_RATE),
    ("check", "feras-identities"): Entry("fedrepro.papers.feras.theory.identities:identities", 2),
    ("check", "feras-contraction"): Entry(
        "fedrepro.papers.feras.theory.convergence:contraction", options={"trials": 200}
    ),
    ("check", "feras-rate"): Entry("fedrepro.papers.feras.theory.convergence:rate", options={"steps": 200, "q": ()}),
    ("check", "feras-looser"): Entry("fedrepro.papers.feras.theory.looser:looser", options={"trials": 500}),
    ("check", "feras-conditions"): Entry("fedrepro.papers.feras.theory.convergence:conditions", trains="Feras"),
    ("attack", "gfl-reconstruction"): Entry(
        "fedrepro.papers.gfl.attack:reconstruct", 2, options={**_SEEN, "party": str}
    ),
    ("attack", "gfl-differences"): Entry("fedrepro.papers.gfl.attack:tell_apart", options=_SEEN),
    ("attack", "feras-inversion"): Entry("fedrepro.papers.feras.attack:inversion", 2, options=_INVERTED),
    ("partition", "manifest"): Entry("fedrepro.runs.tasks:partition_manifest"),
    ("check", "graph statistics"): Entry("fedrepro.runs.tasks:graph_statistics"),
    ("check", "FedGAT-identities"): Entry("fedrepro.papers.fedgat.theory.identities:identities"),
    ("check", "FedGAT-theorems"): Entry("fedrepro.papers.fedgat.theory.theorems:theorems"),
    ("check", "FedGAT-protocol"): Entry(
        "fedrepro.papers.fedgat.theory.identities:equal_layers", options={"whole": 40, "nodes": 0}
    ),
    ("traffic", "FedGAT"): Entry("fedrepro.papers.fedgat.theory.cost:pretraining"),
    ("attack", "FedGAT"): Entry("fedrepro.papers.fedgat.attack:attack", options=_SENT),
    ("check", "fedstruct-gradients"): Entry("fedrepro.papers.fedstruct.theory.gradients:gradients"),
    ("check", "fedstruct-filter"): Entry("fedrepro.papers.fedstruct.theory.gradients:polynomial_filter"),
    ("check", "fedstruct-counting"): Entry("fedrepro.papers.fedstruct.theory.gradients:counting", options=_COUNTED),
    ("check", "fedstruct-powers"): Entry("fedrepro.papers.fedstruct.theory.exchange:powers", options=_PRUNED),
    ("check", "fedstruct-combined"): Entry(
        "fedrepro.papers.fedstruct.theory.exchange:combined", options={**_PRUNED, "cells": 48, "ranks": True}
    ),
    ("check", "fedstruct-example"): Entry("fedrepro.papers.fedstruct.theory.exchange:example"),
    ("check", "fedstruct-algorithm"): Entry(
        "fedrepro.papers.fedstruct.theory.algorithms:algorithm",
        options={"structure": "Deg", "graph": "unknown", "rounds": 3},
    ),
    ("check", "fedstruct-aggregates"): Entry(
        "fedrepro.papers.fedstruct.theory.exchange:aggregates", options={"structure": "Deg"}
    ),
    ("check", "fedstruct-structures"): Entry(
        "fedrepro.papers.fedstruct.theory.properties:structures", options={"epochs": 1, "timed": True}
    ),
    ("check", "fedstruct-fedgcn"): Entry("fedrepro.papers.fedstruct.theory.properties:fedgcn"),
    ("traffic", "FedStruct"): Entry("fedrepro.papers.fedstruct.theory.exchange:communication", trains="FedStruct"),
    ("attack", "fedstruct-edges"): Entry(
        "fedrepro.papers.fedstruct.attack:edges", options={**_PRUNED, "view": "combined", "attackers": 2}
    ),
    ("attack", "fedstruct-labels"): Entry("fedrepro.papers.fedstruct.attack:labels", trains="FedStruct"),
    ("check", "FedSheafHN-identities"): Entry("fedrepro.papers.fedsheafhn.theory.identities:identities"),
    ("check", "FedSheafHN-convergence"): Entry(
        "fedrepro.papers.fedsheafhn.theory.convergence:convergence", 3, options={"rounds": 0}
    ),
    ("check", "FedSheafHN-generalization"): Entry(
        "fedrepro.papers.fedsheafhn.theory.generalization:generalization", 3, options={"most_clients": 0, "samples": 0}
    ),
    ("check", "FedSheafHN-statistics"): Entry("fedrepro.papers.fedsheafhn.theory.statistics:statistics", 2),
    ("check", "FedSheafHN-new-clients"): Entry(
        "fedrepro.papers.fedsheafhn.theory.clients:new_clients",
        options={"ratio": float, "of": "FedSheafHN"},
        trains="of",
    ),
    ("check", "FedSheafHN-diffusion"): Entry(
        "fedrepro.papers.fedsheafhn.theory.diffusion:diffusion", 3, trains="FedSheafHN"
    ),
    ("bench", "FedSheafHN-server"): Entry(
        "fedrepro.papers.fedsheafhn.theory.clients:server_cost", options=_SERVER, trains="of"
    ),
    ("bench", "rounds"): Entry("fedrepro.papers.engine.bench:rounds", on_device=True, options=_ROUNDS),
    ("bench", "nodes"): Entry("fedrepro.papers.engine.bench:nodes", options=_NODES),
    ("bench", "training"): Entry(
        "fedrepro.papers.engine.bench:training", options={"of": str, "repeats": 5, "memory": True}, trains="of"
    ),
    ("bench", "across-cost"): Entry("fedrepro.across.messages:cost", options=_WATCHED, trains="of"),
    ("attack", "across-leak"): Entry("fedrepro.across.attacker:leak", options=_WATCHED, trains="of"),
}

# The names of `fedrepro.data.partition.PARTITIONS`, which needs torch.
PARTITIONS = (
    "single",
    "random",
    "louvain",
    "kmeans",
    "metis",
    "overlapping-metis",
    "dirichlet",
    "private-public",
    "one-node-per-client",
    "blocks",
)

# The function that trains a run with any method.
TRAIN = "fedrepro.runs.tasks:train"

# The functions that generate graphs, by a pattern of the graphs' names.
GENERATORS = {
    "*~standin": "fedrepro.data.synthetic:draw_standin",
    "csbm-*": "fedrepro.papers.gfl.data:register_graphs",
    "subCora*": "fedrepro.papers.gfl.data:register_graphs",
}

_BUILT_IN = frozenset(REGISTRY)
_own: dict[tuple[str, str], Any] = {}


def register(task: str, name: str, target: Any, version: int = 1, options: Mapping[str, Any] | None = None) -> None:
    """Add your method (or check, attack, bench) under `name`.

    Args:
        task: one of `TASKS`.
        name: as it will be written in a `Run`; not one of this package's, whose results are stored under it.
        target: the class or function itself, or `"module:Name"` (needed where worker processes must find it).
        version: raise it when its results change.
        options: of a function that does not train, the options that it reads, as `Entry` has them; default unchecked.

    Raises:
        ArgumentError: an unknown task, a name that this package has for it, or a target, version or options that are
            none.
    """
    one_of("task", task, TASKS)
    require(isinstance(name, str) and bool(name), "name", "a string", name)
    spelled = not isinstance(target, str) or re.fullmatch(r"[\w.]+:[\w.]+", target)
    named = isinstance(target, str) or (callable(target) and hasattr(target, "__qualname__"))
    require(bool(spelled and named), "target", "a class, a function, or 'module:name'", target)
    whole = isinstance(version, int) and not isinstance(version, bool) and version >= 1
    require(whole, "version", "an integer >= 1", version)
    require(options is None or isinstance(options, Mapping), "options", "a mapping of names to values", options)
    require((task, name) not in _BUILT_IN, "name", f"one that nothing of task {task!r} in this package has", name)
    _own.pop((task, name), None)
    if isinstance(target, str):
        REGISTRY[task, name] = Entry(target, version, options=options)
        return
    REGISTRY[task, name] = Entry(f"{target.__module__}:{target.__qualname__}", version, options=options)
    _own[task, name] = target


def generator(dataset: str) -> str | None:
    """Return the `"module:function"` that makes a graph of this name, or None if the package does not generate it.

    Raises:
        ArgumentError: the name is no string.
    """
    require(isinstance(dataset, str), "data set", "a string", dataset)
    return next((target for pattern, target in GENERATORS.items() if fnmatch.fnmatchcase(dataset, pattern)), None)


def names(task: str) -> list[str]:
    """Return the names registered for a task, sorted."""
    return sorted(name for kind, name in REGISTRY if kind == task)


def find(task: str, name: str) -> Entry:
    """Return the entry of a task and name.

    Raises:
        ArgumentError: nothing of this name is registered; the message lists the names.
    """
    if (task, name) not in REGISTRY:
        one_of("method" if task == "train" else f"method of task {task!r}", name, names(task))
    return REGISTRY[task, name]


def load(task: str, name: str) -> Any:
    """Import and return the class (task `train`) or function of a name."""
    entry = find(task, name)
    if (task, name) in _own:
        return _own[task, name]
    module, _, attribute = entry.target.partition(":")
    return getattr(importlib.import_module(module), attribute)
