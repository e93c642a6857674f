"""FedStruct: runs that train no table: algorithms, propositions, identities, statistics, messages and attacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedrepro.papers.fedstruct.exhibits.settings import DATASETS, PREPARE, SETTINGS, method_of
from fedrepro.reporting.legacy import Exhibit
from fedrepro.runs.run import Run, sweep

if TYPE_CHECKING:
    import pandas as pd

STANDIN = "Cora~standin"
REAL = ("Chameleon", "Cora", "CiteSeer", "Squirrel", "Photo", "PubMed")  # small graphs first
COUNTS = {"observers": [4, 8, 12, 16, 24], "unknowns": 12, "head": ["direct", "mlp"], "queries": [1, 4]}  # FS-I5
COUNTED = ("Deg", "H2V")  # FS-T1's two rows of FedStruct


def _task(
    task: str, method: str, datasets: tuple[str, ...] = ("",), seeds: int = 1, clients: int = 10, **more: Any
) -> list[Run]:
    """Runs on prepared graphs with the paper's split, or on no graph at all."""
    common = {"task": task, "paper": "fedstruct", "method": method, "seed": range(seeds)}
    if datasets == ("",):
        return sweep(**common, **more)
    more = {"split": "10/10/80", "partition": "random", **more}
    return sweep(**common, dataset=list(datasets), prepare=PREPARE, clients=clients, **more)


def _some(profile: str, quick: tuple[str, ...], paper: tuple[str, ...]) -> tuple[str, ...]:
    return {"smoke": (STANDIN,), "quick": quick, "paper": paper}[profile]


# -- identities and propositions: small seeded graphs, no data set ---------------------------------------------------


def plain(method: str, **options: Any) -> Callable[[str], list[Run]]:
    """A check that needs no graph, on one seed or five."""

    def grid(profile: str) -> list[Run]:
        return _task("check", method, seeds=5 if profile == "paper" else 1, options=options)

    return grid


def example(profile: str) -> list[Run]:
    """FS-I3: nothing is drawn, so there is one run."""
    return _task("check", "fedstruct-example")


# -- Algorithm 3 and the combined adjacency --------------------------------------------------------------------------


def powers(profile: str) -> list[Run]:
    """FS-A3: Algorithm 3 word by word against the form used in training, and its error against p."""
    depths, kept = ([2], [30]) if profile == "smoke" else ([2, 5, 10], [5, 10, 30, 100, 300])
    datasets = _some(profile, ("Cora",), ("Cora", "Chameleon"))
    if profile == "quick":
        depths, kept = [10], [5, 30]
    options = {"structure_depth": depths, "prune": kept, "budget": ["blocks", "matrix"]}
    return _task("check", "fedstruct-powers", datasets, options=options)


def full_powers(profile: str) -> list[Run]:
    """FS-I2: without pruning the assembled blocks are the central powers."""
    depths = [3] if profile != "paper" else [3, 5, 10]
    datasets = _some(profile, ("Cora",), ("Cora", "Chameleon"))
    return _task("check", "fedstruct-powers", datasets, options={"structure_depth": depths, "prune": 0})


def combined(profile: str) -> list[Run]:
    """FS-F3a, b: the combined adjacency of Cora, in cells, full and with p = 30; nodes ordered by Louvain parts (order,
    normalization and L_s are not stated; L_s = 10 as in Table 5).
    """
    smoke = profile == "smoke"
    depth = 3 if smoke else SETTINGS["Cora"].structure_depth
    options = {"structure_depth": depth, "prune": 30, "cells": 48, "ranks": not smoke}
    return _task("check", "fedstruct-combined", (STANDIN if smoke else "Cora",), partition="louvain", options=options)


# -- what travels ------------------------------------------------------------------------------------------------------

# One width and depth on all graphs, so that only their sizes differ.
SENDER: dict[str, Any] = {"model": "DGCN", "stack": (64,), "depth": 2, "structure_depth": 5}


def _sizes(profile: str) -> tuple[str, ...]:
    """Graphs of different sizes, as growth with the number of nodes is what is fitted."""
    return {"smoke": (STANDIN, "CiteSeer~standin"), "quick": REAL[:3], "paper": REAL}[profile]


def messages(profile: str) -> list[Run]:
    """FS-T1: scalars before and in training on graphs of growing size, all with L_s = 5 and p = 30."""
    options = {**SENDER, "structure": list(COUNTED), "prune": 30, "budget": ["matrix", "blocks"], "rounds": 40}
    if profile == "smoke":
        options["structure_depth"] = 2
    return _task("traffic", "FedStruct", _sizes(profile), options=options)


def known_messages(profile: str) -> list[Run]:
    """FS-T9: the same where the server knows the graph."""
    options = {**SENDER, "structure": list(COUNTED), "prune": 0, "graph": "known", "rounds": 40}
    return _task("traffic", "FedStruct", _sizes(profile), options=options)


def totals(frame: pd.DataFrame) -> pd.DataFrame:
    """Counted runs with `before` and `training`, all scalars of either phase, `nodes`, and `beside`: what is neither
    theta on its way down nor its gradient on its way up, which have the same size on a graph of any number of nodes.
    """
    if not len(frame):
        return frame
    sums = {
        phase: frame[[name for name in frame if name.startswith(f"{phase}.")]].sum(axis=1).astype(float)
        for phase in ("before", "training")
    }
    theta = 2.0 * frame["rounds"] * frame["sizes.K"] * frame["sizes.theta"]
    return frame.assign(nodes=frame["sizes.n"], beside=sums["before"] + sums["training"] - theta, **sums)


# -- data, partitions and generators ---------------------------------------------------------------------------------


def statistics(profile: str) -> list[Run]:
    """FS-T4 and T5: counts as the files have them and after preparation."""
    datasets = _some(profile, ("Cora", "CiteSeer", "Chameleon"), (*DATASETS, "Squirrel"))
    return sweep(
        task="check", paper="fedstruct", method="graph statistics", dataset=list(datasets), prepare=["", PREPARE]
    )


def manifests(partition: str) -> Callable[[str], list[Run]]:
    """FS-P1 to P3: sizes, cut edges and label histograms of a partition."""

    def grid(profile: str) -> list[Run]:
        datasets = _some(profile, ("Cora",), (*DATASETS, "Squirrel"))
        counts = [10] if profile != "paper" or partition != "random" else [5, 10, 20]
        seeds, more = 3 if profile == "paper" else 1, {"partition": partition, "split": ""}
        return [run for k in counts for run in _task("partition", "manifest", datasets, seeds, k, **more)]

    return grid


def generators(profile: str) -> list[Run]:
    """FS-T3 and P4: seconds and needs of the generators of structure features."""
    graphs = _some(profile, ("Cora",), ("Cora", "CiteSeer", "Chameleon"))
    return _task("check", "fedstruct-structures", graphs, options={"epochs": 1, "timed": profile != "smoke"})


def routes(profile: str) -> list[Run]:
    """FS-I4: what the server of a 2-hop FedGCN sees of the edges, from ten clients to one node a client."""
    counts = {"smoke": [10, 2708], "quick": [10, 2708], "paper": [10, 100, 1000, 2708]}[profile]  # 2708: Cora's nodes
    graph = (STANDIN if profile == "smoke" else "Cora",)
    return [r for k in counts for r in _task("check", "fedstruct-fedgcn", graph, 1, k, partition="random(equal=True)")]


# -- privacy ---------------------------------------------------------------------------------------------------------


def edges(profile: str) -> list[Run]:
    """FS-Q18: which edges of others a client ranks first: from the rows it holds, from all powers it has seen on the
    way, and from the blocks it was sent.
    """
    seeds, depths, kept = {
        "smoke": (1, [2], [30]), "quick": (1, [2, 10], [30, 0]), "paper": (3, [2, 3, 5, 10], [5, 30, 100, 0]),
    }[profile]  # fmt: skip
    graphs = _some(profile, ("Cora",), ("Cora", "Chameleon"))
    options = {"prune": kept, "budget": "blocks", "attackers": 1 if profile == "smoke" else 2}
    seen = {"combined": depths, "powers": depths, "blocks": [2]}  # blocks are those of the second power
    return [
        run
        for view, chosen in seen.items()
        for run in _task("attack", "fedstruct-edges", graphs, seeds, options={
            **options, "view": view, "structure_depth": chosen})
    ]  # fmt: skip


def labels(profile: str) -> list[Run]:
    """FS-Q18: labels of other clients guessed from S, which every client holds, after some rounds."""
    seeds, rounds = {"smoke": (1, [2]), "quick": (1, [40]), "paper": (3, [1, 5, 10, 20, 40])}[profile]
    graphs = _some(profile, ("Cora",), ("Cora", "Chameleon"))
    return [
        run
        for graph in graphs
        for run in _task("attack", "fedstruct-labels", (graph,), seeds, options={
            **method_of("FedStruct (H2V)", graph)[1], "rounds": rounds, "head": ["mlp", "direct"]})
    ]  # fmt: skip


def algorithm(structure: str, graph: str = "unknown") -> Callable[[str], list[Run]]:
    """FS-A1, A2, A4: the box as a plain loop over clients against the method."""
    return plain("fedstruct-algorithm", structure=structure, graph=graph, rounds=3)


EXHIBITS = [
    *(Exhibit(name, "fedstruct", "fedstruct/5-fedstruct", title, grid) for name, title, grid in (
        ("FS-A1", "Algorithm 1 word by word against the method", algorithm("Deg")),
        ("FS-A2", "Algorithm 2 word by word against the method", algorithm("H2V")),
        ("FS-F2", "Messages of FedStruct", messages),
        ("FS-F3a", "Combined adjacency of Cora", combined),
        ("FS-F3b", "Combined adjacency of Cora, pruned", combined),
        ("FS-I1", "Decoupled GCN as a polynomial filter", plain("fedstruct-filter")),
        ("FS-T1", "Scalars sent before and in training", messages),
    )),
    *(Exhibit(name, "fedstruct", "fedstruct/A-structure-features", title, generators) for name, title in (
        ("FS-T3", "Properties of the generators"),
        ("FS-P4", "Generators of structure features"),
    )),
    *(Exhibit(name, "fedstruct", "fedstruct/C-gradients", title, grid) for name, title, grid in (
        ("FS-Th1", "Local rows and structure features suffice", plain("fedstruct-gradients")),
        ("FS-Th2", "Gradient with respect to S", plain("fedstruct-gradients")),
        ("FS-Th3", "Local gradients", plain("fedstruct-gradients")),
        ("FS-L1", "Gradient of softmax with cross-entropy", plain("fedstruct-gradients")),
        ("FS-I4", "What FedGCN's server must know", routes),
    )),
    *(Exhibit(name, "fedstruct", "fedstruct/D-private-acquisition", title, grid) for name, title, grid in (
        ("FS-A3", "Algorithm 3 word by word, and its error", powers),
        ("FS-I2", "Distributed powers against central ones", full_powers),
        ("FS-I3", "The worked example recomputed", example),
    )),
    *(Exhibit(name, "fedstruct", "fedstruct/E-settings", title, statistics) for name, title in (
        ("FS-T4", "Statistics of the graphs"),
        ("FS-T5", "Hyper-parameters"),
    )),
    *(Exhibit(f"FS-P{number}", "fedstruct", "fedstruct/F-additional-results", f"Partition {name}", manifests(name))
      for number, name in enumerate(("random", "louvain", "kmeans"), start=1)),
    *(Exhibit(name, "fedstruct", "fedstruct/G-privacy", title, grid) for name, title, grid in (
        ("FS-A5", "The variant that shares aggregates", plain("fedstruct-aggregates", structure=["Deg", "H2V"])),
        ("FS-I5", "Counting conditions as rank tests", plain("fedstruct-counting", **COUNTS)),
        ("FS-Q18-edges", "Edges of others ranked from the rows a client holds", edges),
        ("FS-Q18-labels", "Labels of others guessed from S", labels),
    )),
    *(Exhibit(name, "fedstruct", "fedstruct/H-global-graph", title, grid) for name, title, grid in (
        ("FS-A4", "Algorithm 4 word by word against the method", algorithm("Deg", "known")),
        ("FS-F5", "Messages where the server knows the graph", known_messages),
        ("FS-T9", "Scalars sent where the server knows the graph", known_messages),
        ("FS-Th4", "Gradients where the server knows the graph", plain("fedstruct-gradients")),
    )),
]  # fmt: skip
