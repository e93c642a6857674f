"""How every method is put to the test: its network, its options, and what switches off what it adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from graphs import graph_of
from torch_geometric.data import Data

from fedrepro import registry
from fedrepro.baselines.pfedhn import PFedHN
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import Method, State
from fedrepro.engine.nn.models import DGCN, GAT, GCN, MLP, GraphSAGE, Model
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.theory.diffusion import switch_off

FEATURES, CLASSES, CLIENTS, SEEDS = 12, 3, 5, (0, 1, 2)
ROUNDS = 30


@dataclass(frozen=True)
class Case:
    """How a method is put to the test.

    Args:
        model: its network.
        options: hyper-parameters next to those all methods get.
        clients: per run.
        signal: what the method adds to a classifier on a client's own graph, as far as a gradient can reach it:
            names of weights, or "received" for the rows of other clients' nodes.
        off: ways to switch off what it adds: the name and options of another run, or a change of the trained state.
            Empty only for a method that exchanges nothing.
    """

    model: Model
    options: dict[str, Any] = field(default_factory=dict)
    clients: int = CLIENTS
    signal: tuple[str, ...] = ()
    off: tuple[Way, ...] = ()


Way = tuple[str, dict[str, Any]] | Callable[[Any, Federation, State], State]


def without_attention(method: Method, fed: Federation, state: State) -> State:
    """Layer 1 as a plain mean over neighbours."""
    silent = ("layer1.source", "layer1.target")
    return replace(state, shared={n: torch.zeros_like(w) if n in silent else w for n, w in state.shared.items()})


def one_description(method: PFedHN, fed: Federation, state: State) -> State:
    """pFedHN's clients with one description: their mean."""
    means = [n["clients"].mean(1, keepdim=True).expand_as(n["clients"]) for n in state.more.networks]
    networks = [{**n, "clients": mean} for n, mean in zip(state.more.networks, means)]
    return replace(state, personal=method._written(fed, state.more._replace(networks=networks), state.personal))


def off(switch: str) -> Callable[[FedSheafHN, Federation, State], State]:
    """Return a way of predicting with a part of FedSheafHN's trained server switched off, see `switch_off`."""

    def way(method: FedSheafHN, fed: Federation, state: State) -> State:
        return switch_off(method, fed, state, switch)

    way.__name__ = switch
    return way


GCN_, GAT_ = GCN(FEATURES, CLASSES, hidden=16), GAT(FEATURES, CLASSES, hidden=4, heads=4)
MLP_ = MLP(FEATURES, CLASSES, hidden=16)  # sees no edge within a client
SAGE_ = GraphSAGE(FEATURES, CLASSES, hidden=16)
SMALL = {
    "generator_epochs": 6,
    "generator_hidden": 16,
    "generator_width": 32,
    "generator_lr": 0.01,
    "hidden_share": 0.5,
}
SAINT_ = GCN(FEATURES, CLASSES, hidden=16, layers=3)
STEPS = {"unit": "iteration", "coverage": 5.0}  # a round of one step: labels shape embeddings from the second on
# FedSheafHN's embeddings are made after training, so labels shape its first message: not without a warm-up.
EARLY = {"warmup": 0, "hyper_hidden": 16, "steps": 1}
SHEAF = {**EARLY, "local_epochs": 3}
CASES = {
    "Central": Case(GCN_, clients=1),
    "Local": Case(GCN_),
    "GFL-APPNP": Case(MLP_, off=(("FedMLP", {}),)),
    "FedMLP": Case(MLP_, off=(("MLPs", {}),)),
    "MLPs": Case(MLP_),
    "MLPs (own round)": Case(MLP_),
    "CentralUnbiased": Case(GCN_, clients=1),
    "FedAvg": Case(GCN_, off=(("Local", {}),)),
    "FedSGD": Case(GCN_, off=(("Local", {}),)),
    "DistGAT": Case(GAT_, off=(("Local", {}),)),
    "FedGCN": Case(GCN_, signal=("received",), off=(("FedGCN", {"hops": 0}), ("FedGCN", {"hops": 1}))),
    "FedProx": Case(GCN_, {"mu": 1.0, "local_epochs": 3}, off=(("FedProx", {"mu": 0.0}), ("Local", {}))),
    "FedPer": Case(GCN_, off=(("FedAvg", {}), ("Local", {}))),
    "FED-PUB": Case(
        GCN_,
        {"scale": 20.0},
        signal=("layer1.weight.mask", "layer2.weight.mask"),
        off=(("FED-PUB", {"scale": 0.0}), ("FED-PUB", {"masks": False}), ("Local", {})),
    ),
    "FedStruct": Case(
        DGCN(FEATURES, CLASSES, hidden=16, depth=1),
        {"width": 16, "structure_hidden": (16,), "structure_depth": 2, "prune": 10},
        off=(("FedStruct", {"structure": "none"}), ("Local", {})),
    ),
    "FedStruct (as coded)": Case(
        DGCN(FEATURES, CLASSES, hidden=16, depth=1),
        {"width": 16, "structure_hidden": (16,), "backbone": "GraphSAGE"},
        off=(("FedStruct", {"structure": "none"}), ("Local", {})),
    ),
    "FedGCN (raw neighbours)": Case(
        GraphSAGE(FEATURES, CLASSES, hidden=16), signal=("received",), off=(("FedAvg", {}), ("Local", {}))
    ),
    # One round of sums gives a client rows of its own nodes only.
    "FedGCN (local degrees)": Case(GCN_, off=(("FedGCN", {"hops": 0}), ("Local", {}))),
    "FedSage+": Case(SAGE_, SMALL, signal=("received",), off=(("FedSage+", {"neighbours": "none"}), ("Local", {}))),
    "pFedHN": Case(GCN_, {"local_epochs": 3, "server_lr": 0.003}, off=(one_description, ("Local", {}), ("FedAvg", {}))),
    "pFedGraph": Case(GCN_, {"local_epochs": 5, "alpha": 0.2}, off=(("pFedGraph", {"alpha": 1e9}), ("Local", {}))),
    "Flow": Case(GCN_, {"local_epochs": 3}, off=(("FedAvg", {}), ("Local", {}))),
    "FGGP": Case(
        GCN_,
        {"local_epochs": 2},
        off=(("FGGP", {"augment": False}), ("FGGP", {"cluster": "mean"}), ("Local", {})),
    ),
    "FGGP (activated)": Case(GCN_, {"local_epochs": 2}, off=(("FGGP", {"local_epochs": 2}), ("Local", {}))),
    "FedSage+ (FedSGD)": Case(
        SAGE_,
        {**SMALL, "scheme": "fedstruct", "count": "true"},
        signal=("received",),
        off=(("FedSage+ (FedSGD)", {"neighbours": "none"}), ("Local", {})),
    ),
    "FedSheafHN": Case(
        GCN_,
        SHEAF,
        off=(off("one client's vector for all"), off("no diffusion"), off("untrained server"), ("Local", {})),
    ),
    "FedSheafHN (as printed)": Case(GCN_, EARLY, off=(("FedSheafHN", EARLY), off("untrained server"), ("Local", {}))),
    "FedSheafHN (as coded)": Case(GCN_, EARLY, off=(("Local", {}),)),
    "GraphSAINT": Case(SAINT_, STEPS),
    "GraphSAINT-SW": Case(SAINT_, {**STEPS, "q": 2}, off=(("GraphSAINT", STEPS),)),
    "Feras": Case(SAINT_, {**STEPS, "q": 2}, off=(("GraphSAINT-SW", {**STEPS, "q": 2}), ("GraphSAINT", STEPS))),
    "FedGAT": Case(
        GAT_, signal=("received", "layer1.source", "layer1.target"), off=(("DistGAT", {}), without_attention)
    ),
    "DistGAT (FedSGD)": Case(GAT_, off=(("Local", {}),)),
    "FedGAT (FedSGD)": Case(
        GAT_, signal=("received", "layer1.source", "layer1.target"), off=(("DistGAT (FedSGD)", {}), without_attention)
    ),
    "DistGAT (as coded)": Case(GAT_, off=(("Local", {}),)),
    # The code's scores are too near to uniform for its attention to be a signal.
    "FedGAT (as coded)": Case(
        replace(GAT_, input_dropout=0.0), signal=("received",), off=(("DistGAT (as coded)", {}),)
    ),
}
EVERY = pytest.mark.parametrize("name", sorted(CASES))
CHUNKS = pytest.mark.parametrize("chunk", [None, 2], ids=["together", "in chunks"])


def graph(seed: int, sparse: bool = False) -> Data:
    """A stochastic block model whose edges say more of the class than its features do."""
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=240)
    upper = np.triu(rng.random((240, 240)) < np.where(y[:, None] == y, 0.06, 0.015), 1)
    x = 0.7 * np.eye(CLASSES, FEATURES)[y] + 0.5 * rng.normal(size=(240, FEATURES))
    if sparse:
        x *= rng.random(x.shape) < 0.2
    split = np.digitize(rng.random(240), [0.2, 0.3])
    return graph_of(torch.from_numpy(x).float(), y, upper | upper.T, split, num_classes=CLASSES)


def federate(
    data: Data, clients: int, seed: int, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Federation:
    """Clients of unequal size, drawn at random: most edges join two of them."""
    order = np.random.default_rng(seed).permutation(data.num_nodes)
    cuts = np.cumsum(np.arange(1, clients) * data.num_nodes // (clients * (clients + 1) // 2))
    parts = [torch.from_numpy(part) for part in np.split(order, cuts)]
    return Federation.of(data, parts, seed, dtype=dtype, device=device)


def runs(
    name: str,
    change: Callable[[int, Data], Data] | None = None,
    sparse: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Federation:
    """Three runs of a method side by side, each on a separate graph.

    Args:
        change: of the graph of each run.
    """
    graphs = [graph(seed, sparse) for seed in SEEDS]
    graphs = [change(run, data) if change else data for run, data in enumerate(graphs)]
    return Federation.stack([federate(d, CASES[name].clients, seed, dtype) for seed, d in zip(SEEDS, graphs)])


def build(name: str, dropout: float = 0.0, **options: Any) -> Method:
    case = CASES[name]
    model = replace(case.model, dropout=dropout)
    made: Method = registry.load("train", name)(model=model, **{**case.options, **options})
    return made


def variant(name: str, options: dict[str, Any], kind: str = "") -> Method:
    """A method with a case's model; the case's own options hold for its own method alone."""
    own = CASES[name].options if kind in ("", name) else {}
    made: Method = registry.load("train", name)(model=CASES[kind or name].model, **{**own, **options})
    return made
