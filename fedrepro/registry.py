"""Register what can be run: the published methods, and the checks, attacks and benchmarks.

An entry is one line and is imported only when it is used, so that listing methods and computing the key of a run need
no torch. Raise `version` when a change alters results. The keys of the runs change with it, and results under the old
keys are never served for the new ones.
"""

from __future__ import annotations

import fnmatch
import importlib
import re
from dataclasses import dataclass
from typing import Any

from fedrepro.errors import one_of, require

TASKS = ("train", "check", "attack", "partition", "traffic", "bench")


@dataclass(frozen=True)
class Entry:
    """The home of a registered class or function (`"package.module:Name"`) and the version of its results.

    An entry with `on_device` is also given the device. All others but training compute on the CPU.
    """

    target: str
    version: int = 1
    on_device: bool = False


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
    ("check", "gfl-one-local-step"): Entry("fedrepro.papers.gfl.theory:one_local_step"),
    ("check", "gfl-identity-aggregator"): Entry("fedrepro.papers.gfl.theory:identity_aggregator"),
    ("check", "gfl-compensation-error"): Entry("fedrepro.papers.gfl.theory:compensation_error", 2),
    ("check", "gfl-algorithm"): Entry("fedrepro.papers.gfl.theory:algorithm", 2),
    ("check", "gfl-subcora"): Entry("fedrepro.papers.gfl.theory:subcora_statistics"),
    ("check", "gfl-rate"): Entry("fedrepro.papers.gfl.theory:rate", 2),
    ("check", "feras-identities"): Entry("fedrepro.papers.feras.theory.identities:identities", 2),
    ("check", "feras-contraction"): Entry("fedrepro.papers.feras.theory.convergence:contraction"),
    ("check", "feras-rate"): Entry("fedrepro.papers.feras.theory.convergence:rate"),
    ("check", "feras-looser"): Entry("fedrepro.papers.feras.theory.looser:looser"),
    ("check", "feras-conditions"): Entry("fedrepro.papers.feras.theory.convergence:conditions"),
    ("attack", "gfl-reconstruction"): Entry("fedrepro.papers.gfl.attack:reconstruct", 2),
    ("attack", "gfl-differences"): Entry("fedrepro.papers.gfl.attack:tell_apart"),
    ("attack", "feras-inversion"): Entry("fedrepro.papers.feras.attack:inversion", 2),
    ("partition", "manifest"): Entry("fedrepro.runs.tasks:partition_manifest"),
    ("check", "graph statistics"): Entry("fedrepro.runs.tasks:graph_statistics"),
    ("check", "FedGAT-identities"): Entry("fedrepro.papers.fedgat.theory.identities:identities"),
    ("check", "FedGAT-theorems"): Entry("fedrepro.papers.fedgat.theory.theorems:theorems"),
    ("check", "FedGAT-protocol"): Entry("fedrepro.papers.fedgat.theory.identities:equal_layers"),
    ("traffic", "FedGAT"): Entry("fedrepro.papers.fedgat.theory.cost:pretraining"),
    ("attack", "FedGAT"): Entry("fedrepro.papers.fedgat.attack:attack"),
    ("attack", "FedGAT-price"): Entry("fedrepro.papers.fedgat.attack:price", 2),
    ("check", "fedstruct-gradients"): Entry("fedrepro.papers.fedstruct.theory.gradients:gradients"),
    ("check", "fedstruct-filter"): Entry("fedrepro.papers.fedstruct.theory.gradients:polynomial_filter"),
    ("check", "fedstruct-counting"): Entry("fedrepro.papers.fedstruct.theory.gradients:counting"),
    ("check", "fedstruct-powers"): Entry("fedrepro.papers.fedstruct.theory.exchange:powers"),
    ("check", "fedstruct-combined"): Entry("fedrepro.papers.fedstruct.theory.exchange:combined"),
    ("check", "fedstruct-example"): Entry("fedrepro.papers.fedstruct.theory.exchange:example"),
    ("check", "fedstruct-algorithm"): Entry("fedrepro.papers.fedstruct.theory.algorithms:algorithm"),
    ("check", "fedstruct-aggregates"): Entry("fedrepro.papers.fedstruct.theory.exchange:aggregates"),
    ("check", "fedstruct-structures"): Entry("fedrepro.papers.fedstruct.theory.properties:structures"),
    ("check", "fedstruct-fedgcn"): Entry("fedrepro.papers.fedstruct.theory.properties:fedgcn"),
    ("traffic", "FedStruct"): Entry("fedrepro.papers.fedstruct.theory.exchange:communication"),
    ("attack", "fedstruct-edges"): Entry("fedrepro.papers.fedstruct.attack:edges"),
    ("attack", "fedstruct-labels"): Entry("fedrepro.papers.fedstruct.attack:labels"),
    ("check", "FedSheafHN-identities"): Entry("fedrepro.papers.fedsheafhn.theory.identities:identities"),
    ("check", "FedSheafHN-convergence"): Entry("fedrepro.papers.fedsheafhn.theory.convergence:convergence", 3),
    ("check", "FedSheafHN-generalization"): Entry("fedrepro.papers.fedsheafhn.theory.generalization:generalization", 3),
    ("check", "FedSheafHN-statistics"): Entry("fedrepro.papers.fedsheafhn.theory.statistics:statistics", 2),
    ("check", "FedSheafHN-new-clients"): Entry("fedrepro.papers.fedsheafhn.theory.clients:new_clients"),
    ("check", "FedSheafHN-diffusion"): Entry("fedrepro.papers.fedsheafhn.theory.diffusion:diffusion", 3),
    ("bench", "FedSheafHN-server"): Entry("fedrepro.papers.fedsheafhn.theory.clients:server_cost"),
    ("bench", "rounds"): Entry("fedrepro.papers.engine.bench:rounds", on_device=True),
    ("bench", "nodes"): Entry("fedrepro.papers.engine.bench:nodes"),
    ("bench", "training"): Entry("fedrepro.papers.engine.bench:training"),
    ("bench", "across-cost"): Entry("fedrepro.across.messages:cost"),
    ("attack", "across-leak"): Entry("fedrepro.across.attacker:leak"),
}

# The names of `fedrepro.data.partition.PARTITIONS`, which needs torch.
PARTITIONS = (
    "single", "random", "louvain", "kmeans", "metis", "overlapping-metis", "dirichlet", "private-public",
    "one-node-per-client", "blocks",
)  # fmt: skip

# The function that trains a run with any method.
TRAIN = "fedrepro.runs.tasks:train"

# The functions that generate graphs, by a pattern of the graphs' names.
GENERATORS = {
    "*~standin": "fedrepro.data.synthetic:standin",
    "csbm-*": "fedrepro.papers.gfl.data:register_graphs",
    "subCora*": "fedrepro.papers.gfl.data:register_graphs",
}

_BUILT_IN = frozenset(REGISTRY)
_own: dict[tuple[str, str], Any] = {}


def register(task: str, name: str, target: Any, version: int = 1) -> None:
    """Add your method (or check, attack, bench) under `name`.

    Args:
        task: one of `TASKS`.
        name: as it will be written in a `Run`; not one of this package's, whose results are stored under it.
        target: the class or function itself, or `"module:Name"` (needed where worker processes must find it).
        version: raise it when its results change.

    Raises:
        ArgumentError: an unknown task, a name that this package has for it, or a target or version that is none.
    """
    one_of("task", task, TASKS)
    require(isinstance(name, str) and bool(name), "name", "a string", name)
    spelled = not isinstance(target, str) or re.fullmatch(r"[\w.]+:[\w.]+", target)
    named = isinstance(target, str) or (callable(target) and hasattr(target, "__qualname__"))
    require(bool(spelled and named), "target", "a class, a function, or 'module:name'", target)
    whole = isinstance(version, int) and not isinstance(version, bool) and version >= 1
    require(whole, "version", "an integer >= 1", version)
    require((task, name) not in _BUILT_IN, "name", f"one that nothing of task {task!r} in this package has", name)
    _own.pop((task, name), None)
    if isinstance(target, str):
        REGISTRY[task, name] = Entry(target, version)
        return
    REGISTRY[task, name] = Entry(f"{target.__module__}:{target.__qualname__}", version)
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
