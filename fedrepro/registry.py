"""What can be run: the published methods, and the checks, attacks and benchmarks beside them.

One line an entry, and none of them is imported before it is used, so that listing methods
and computing the key of a run need no torch.
Raise `version` when a change alters results: the keys of its runs change with it, and
what was stored under the old ones is never served for the new.
"""

from __future__ import annotations

import fnmatch
import importlib
from dataclasses import dataclass
from typing import Any

from fedrepro.errors import one_of, require

TASKS = ("train", "check", "attack", "partition", "traffic", "bench")


@dataclass(frozen=True)
class Entry:
    """Where something lives (`"package.module:Name"`), which version of its results it gives, and whether it is a
    function of the device too; what is not computes on the CPU, but for training.
    """

    target: str
    version: int = 1
    on_device: bool = False


REGISTRY: dict[tuple[str, str], Entry] = {
    ("train", "Central"): Entry("fedrepro.methods.central:Central"),
    ("train", "Local"): Entry("fedrepro.methods.local:Local"),
    ("train", "FedAvg"): Entry("fedrepro.methods.fedavg:FedAvg"),
    ("train", "FedSGD"): Entry("fedrepro.methods.fedsgd:FedSGD"),
    ("train", "DistGAT"): Entry("fedrepro.methods.distgat:DistGAT"),
    ("train", "FedGCN"): Entry("fedrepro.methods.fedgcn:FedGCN"),
    ("train", "FedGAT"): Entry("fedrepro.methods.fedgat:FedGAT"),
    ("train", "DistGAT (FedSGD)"): Entry("fedrepro.methods.fedgat_sgd:DistGATSGD"),
    ("train", "FedGAT (FedSGD)"): Entry("fedrepro.methods.fedgat_sgd:FedGATSGD"),
    ("train", "GFL-APPNP"): Entry("fedrepro.methods.gfl:GFLAPPNP"),
    ("train", "FedMLP"): Entry("fedrepro.methods.fedmlp:FedMLP"),
    ("train", "MLPs"): Entry("fedrepro.methods.fedmlp:MLPs"),
    ("train", "CentralUnbiased"): Entry("fedrepro.methods.gfl_central:CentralUnbiased"),
    ("train", "FedProx"): Entry("fedrepro.methods.fedprox:FedProx"),
    ("train", "FedPer"): Entry("fedrepro.methods.fedper:FedPer"),
    ("train", "FED-PUB"): Entry("fedrepro.methods.fedpub:FedPub"),
    ("train", "FedSage+"): Entry("fedrepro.methods.fedsage:FedSage"),
    ("train", "FedSage+ (FedSGD)"): Entry("fedrepro.methods.fedsage:FedSageSGD"),
    ("train", "pFedHN"): Entry("fedrepro.methods.pfedhn:PFedHN"),
    ("train", "pFedGraph"): Entry("fedrepro.methods.pfedgraph:PFedGraph"),
    ("train", "Flow"): Entry("fedrepro.methods.flow:Flow"),
    ("train", "FGGP"): Entry("fedrepro.methods.fggp:FGGP"),
    ("train", "FedStruct"): Entry("fedrepro.methods.fedstruct:FedStruct"),
    ("train", "FedSheafHN"): Entry("fedrepro.methods.fedsheafhn:FedSheafHN"),
    ("train", "FedSheafHN (as printed)"): Entry("fedrepro.methods.fedsheafhn_variants:FedSheafHNAsPrinted"),
    ("train", "FedSheafHN (as coded)"): Entry("fedrepro.methods.fedsheafhn_variants:FedSheafHNAsCoded"),
    ("train", "GraphSAINT"): Entry("fedrepro.methods.saint:GraphSAINT"),
    ("train", "GraphSAINT-SW"): Entry("fedrepro.methods.saint:GraphSAINTSW"),
    ("train", "Feras"): Entry("fedrepro.methods.feras:Feras"),
    ("check", "gfl-weights"): Entry("fedrepro.theory.gfl:weights"),
    ("check", "gfl-statistics"): Entry("fedrepro.theory.gfl:statistics"),
    ("check", "gfl-gradient-split"): Entry("fedrepro.theory.gfl:gradient_split"),
    ("check", "gfl-one-local-step"): Entry("fedrepro.theory.gfl:one_local_step"),
    ("check", "gfl-identity-aggregator"): Entry("fedrepro.theory.gfl:identity_aggregator"),
    ("check", "gfl-compensation-error"): Entry("fedrepro.theory.gfl_convergence:compensation_error", 2),
    ("check", "gfl-algorithm"): Entry("fedrepro.theory.gfl:algorithm1", 2),
    ("check", "gfl-subcora"): Entry("fedrepro.theory.gfl:subcora_statistics"),
    ("check", "gfl-rate"): Entry("fedrepro.theory.gfl_convergence:rate", 2),
    ("check", "feras-identities"): Entry("fedrepro.theory.feras_identities:identities", 2),
    ("check", "feras-contraction"): Entry("fedrepro.theory.feras_theorems:contraction"),
    ("check", "feras-rate"): Entry("fedrepro.theory.feras_theorems:rate"),
    ("check", "feras-looser"): Entry("fedrepro.theory.feras_looser:looser"),
    ("check", "feras-conditions"): Entry("fedrepro.theory.feras_looser:conditions"),
    ("attack", "gfl-reconstruction"): Entry("fedrepro.attacks.gfl:reconstruct"),
    ("attack", "gfl-differences"): Entry("fedrepro.attacks.gfl_differences:tell_apart"),
    ("attack", "feras-inversion"): Entry("fedrepro.attacks.feras:inversion", 2),
    ("partition", "manifest"): Entry("fedrepro.tasks:partition_manifest"),
    ("check", "graph statistics"): Entry("fedrepro.tasks:graph_statistics"),
    ("check", "FedGAT-identities"): Entry("fedrepro.theory.fedgat_identities:identities"),
    ("check", "FedGAT-theorems"): Entry("fedrepro.theory.fedgat_theorems:theorems"),
    ("check", "FedGAT-protocol"): Entry("fedrepro.theory.fedgat_identities:equal_layers"),
    ("traffic", "FedGAT"): Entry("fedrepro.theory.fedgat_cost:pretraining"),
    ("attack", "FedGAT"): Entry("fedrepro.attacks.fedgat:attack"),
    ("attack", "FedGAT-price"): Entry("fedrepro.attacks.fedgat_price:price", 2),
    ("check", "fedstruct-gradients"): Entry("fedrepro.theory.fedstruct:gradients"),
    ("check", "fedstruct-filter"): Entry("fedrepro.theory.fedstruct:polynomial_filter"),
    ("check", "fedstruct-counting"): Entry("fedrepro.theory.fedstruct:counting"),
    ("check", "fedstruct-powers"): Entry("fedrepro.theory.fedstruct_exchange:powers"),
    ("check", "fedstruct-combined"): Entry("fedrepro.theory.fedstruct_exchange:combined"),
    ("check", "fedstruct-example"): Entry("fedrepro.theory.fedstruct_exchange:example"),
    ("check", "fedstruct-algorithm"): Entry("fedrepro.theory.fedstruct_algorithms:algorithm"),
    ("check", "fedstruct-aggregates"): Entry("fedrepro.theory.fedstruct_exchange:aggregates"),
    ("check", "fedstruct-structures"): Entry("fedrepro.theory.fedstruct_properties:structures"),
    ("check", "fedstruct-fedgcn"): Entry("fedrepro.theory.fedstruct_properties:fedgcn"),
    ("traffic", "FedStruct"): Entry("fedrepro.theory.fedstruct_exchange:communication"),
    ("attack", "fedstruct-edges"): Entry("fedrepro.attacks.fedstruct:edges"),
    ("attack", "fedstruct-labels"): Entry("fedrepro.attacks.fedstruct:labels"),
    ("check", "FedSheafHN-identities"): Entry("fedrepro.theory.fedsheafhn:identities"),
    ("check", "FedSheafHN-convergence"): Entry("fedrepro.theory.fedsheafhn_convergence:convergence", 3),
    ("check", "FedSheafHN-generalization"): Entry("fedrepro.theory.fedsheafhn_generalization:generalization", 3),
    ("check", "FedSheafHN-statistics"): Entry("fedrepro.theory.fedsheafhn_data:statistics", 2),
    ("check", "FedSheafHN-new-clients"): Entry("fedrepro.theory.fedsheafhn_clients:new_clients"),
    ("check", "FedSheafHN-diffusion"): Entry("fedrepro.theory.fedsheafhn_diffusion:diffusion", 3),
    ("bench", "FedSheafHN-server"): Entry("fedrepro.theory.fedsheafhn_clients:server_cost"),
    ("bench", "feras"): Entry("fedrepro.bench_feras:feras"),
    ("bench", "rounds"): Entry("fedrepro.bench:rounds", on_device=True),
    ("bench", "training"): Entry("fedrepro.bench:training"),
}

# What trains a run, whatever its method.
TRAIN = "fedrepro.tasks:train"

# What makes the graphs that this package generates, by a pattern of their names.
GENERATORS = {
    "*~standin": "fedrepro.synthetic:standin",
    "csbm-*": "fedrepro.csbm_tasks:register_graphs",
    "subCora*": "fedrepro.csbm_tasks:register_graphs",
}

_BUILT_IN = frozenset(REGISTRY)
_own: dict[tuple[str, str], Any] = {}


def register(task: str, name: str, target: Any, version: int = 1) -> None:
    """Add a method (or check, attack, bench) of your own under `name`.

    Args:
        task: one of `TASKS`.
        name: as it will be written in a `Run`; not one of this package's, whose results are stored under it.
        target: the class or function itself, or `"module:Name"` (needed where worker processes must find it).
        version: raise it when its results change.

    Raises:
        ArgumentError: an unknown task, or a name that this package has for it.
    """
    one_of("task", task, TASKS)
    require((task, name) not in _BUILT_IN, "name", f"one that nothing of task {task!r} in this package has", name)
    _own.pop((task, name), None)
    if isinstance(target, str):
        REGISTRY[task, name] = Entry(target, version)
        return
    REGISTRY[task, name] = Entry(f"{target.__module__}:{target.__qualname__}", version)
    _own[task, name] = target


def generator(dataset: str) -> str | None:
    """Return the `"module:function"` that makes a graph of this name, or None if the package does not generate it."""
    return next((target for pattern, target in GENERATORS.items() if fnmatch.fnmatchcase(dataset, pattern)), None)


def names(task: str) -> list[str]:
    """The names registered for a task, sorted."""
    return sorted(name for kind, name in REGISTRY if kind == task)


def find(task: str, name: str) -> Entry:
    """The entry of a task and name.

    Raises:
        ArgumentError: nothing of this name is registered; the message lists what is.
    """
    if (task, name) not in REGISTRY:
        one_of("method" if task == "train" else f"method of task {task!r}", name, names(task))
    return REGISTRY[task, name]


def load(task: str, name: str) -> Any:
    """The class (task `train`) or function behind a name, imported now."""
    entry = find(task, name)
    if (task, name) in _own:
        return _own[task, name]
    module, _, attribute = entry.target.partition(":")
    return getattr(importlib.import_module(module), attribute)
