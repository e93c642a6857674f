"""Properties of the generators of structure features (FedStruct, Table 3); what a 2-hop FedGCN's server knows (C.4)."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.models import DGCN
from fedrepro.engine.training import train
from fedrepro.papers.fedstruct import node2vec, structure
from fedrepro.papers.fedstruct import powers as fedstruct_powers
from fedrepro.papers.fedstruct.method import FedStruct
from fedrepro.papers.fedstruct.theory.exchange import graph_and_parts
from fedrepro.papers.fedstruct.theory.gradients import small_federation
from fedrepro.runs.run import Run

DIMENSION = 256  # d_s of Table 5
_SETTINGS: dict[str, Callable[..., Any]] = {
    "Deg": structure.degree, "Fed*": structure.fedstar, "GDV": structure.graphlets, "N2V": node2vec.embed,
    "H2V": structure.hop2vec,
}  # fmt: skip


def structures(run: Run) -> dict[str, Any]:
    """FS-T3: the table's five properties, each as a measurement.

    Options: epochs (of Node2Vec, 1), timed (true; false: seconds are those of the small graph below).

    Returns:
        By generator: `seconds` for the run's graph; on small graphs `task_dependent`: other labels give other features
        after training; `global`: on a cycle, where all nodes look alike, features differ; `local`: features of a
        client's nodes do not depend on edges between other clients; and `settings`: arguments to choose.
    """
    epochs = int(run.options.get("epochs", 1))
    source = small_federation(run.seed).sources[0]
    small, mine = source.data, source.parts[0]
    own = torch.isin(small.edge_index, mine).any(0)
    alone = Data(edge_index=small.edge_index[:, own], num_nodes=small.num_nodes)
    ring = torch.stack([torch.arange(64), (torch.arange(64) + 1) % 64])
    cycle = Data(edge_index=torch.cat([ring, ring.flip(0)], 1), num_nodes=64)
    timed = graph_and_parts(run)[0] if run.options.get("timed", True) else small
    found = {}
    for kind in _SETTINGS:
        start = time.perf_counter()
        _uncached(kind, timed, epochs)
        seconds = time.perf_counter() - start
        alike = _uncached(kind, cycle, epochs)
        found[kind] = {
            "seconds": seconds,
            "task_dependent": kind == "H2V" and _moves_with_labels(run.seed),
            "global": bool((alike - alike[:1]).abs().max() > 1e-5),
            "local": torch.equal(_uncached(kind, small, epochs)[mine], _uncached(kind, alone, epochs)[mine]),
            "settings": len(inspect.signature(_SETTINGS[kind]).parameters) - 1,
        }
    return {"result": found}


def _uncached(kind: str, data: Data, epochs: int) -> torch.Tensor:
    a = structure.adjacency(data)
    made = {
        "Deg": lambda: structure.degree(a, DIMENSION), "Fed*": lambda: structure.fedstar(a, DIMENSION),
        "GDV": lambda: structure.graphlets(a), "N2V": lambda: node2vec.embed(a, DIMENSION, epochs=epochs),
        "H2V": lambda: structure.hop2vec(a.shape[0], DIMENSION, 0),
    }  # fmt: skip
    return made[kind]()


def _moves_with_labels(seed: int) -> bool:
    """Whether Hop2Vec ends elsewhere when the labels are others."""
    ends = []
    for shift in (0, 1):
        fed = small_federation(seed)
        data = fed.sources[0].data.clone()
        data.y = (data.y + shift) % fed.classes
        method = FedStruct(model=DGCN(fed.features, fed.classes), width=6, structure_hidden=(4,), prune=5)
        made = train(method, Federation.of(data, fed.sources[0].parts, seed), 3, evaluate=())
        ends.append(made.state.shared["structure"])
    return not torch.equal(*ends)


def fedgcn(run: Run) -> dict[str, Any]:
    """FS-I4 (C.4): what the server of a 2-hop FedGCN must know to forward sums.

    The sum of node j goes to each client that holds a neighbour i of j, so the server needs `routes`, pairs of a node
    and a client; C.4 says that it must know the edge (i, j). `named`: share of the cross-client edges that the routes
    give away for certain, because the client holds one node alone.
    """
    data, parts = graph_and_parts(run)
    owner = fedstruct_powers.owners(parts, int(data.num_nodes))
    source, target = data.edge_index.numpy()
    crossing = (owner[source] != owner[target]) & (source != target)
    routes = {*zip(source[crossing].tolist(), owner[target[crossing]].tolist())}
    sizes = np.array([len(part) for part in parts])
    named = float((sizes[owner[target[crossing]]] == 1).mean()) if crossing.any() else 0.0
    return {
        "result": {
            "edges": int((source != target).sum()), "cross_client_edges": int(crossing.sum()),
            "routes": len(routes), "named": named,
        }
    }  # fmt: skip
