"""Measure the generators of structure features (Table 3), and the knowledge of a 2-hop FedGCN's server (C.4)."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.models import DGCN
from fedrepro.engine.training import train
from fedrepro.papers.fedstruct import node2vec, powers, structure
from fedrepro.papers.fedstruct.method import FedStruct
from fedrepro.papers.fedstruct.theory.setup import graph_and_parts, small_federation
from fedrepro.runs.run import Run

DIMENSION = 256  # d_s of Table 5
# The features are computed anew: `structure.features` would read them from a file.
_GENERATORS: dict[str, Callable[..., Tensor]] = {
    "Deg": structure.degree,
    "Fed*": structure.fedstar,
    "GDV": structure.graphlets,
    "N2V": node2vec.embed,
    "H2V": structure.hop2vec,
}


def structures(run: Run) -> dict[str, Any]:
    """Measure the five properties of Table 3 (FS-T3).

    Options: epochs (of Node2Vec, 1), timed (true; with false, seconds are those of a small graph).

    Returns:
        By generator. `seconds`: for the run's graph. `task_dependent`: other labels give other features after training,
        on a small graph. `global`: features differ on a cycle, all of whose nodes look alike. `local`: features of a
        client's nodes do not depend on edges between other clients, on a small graph. `settings`: number of arguments
        to choose.
    """
    epochs = int(run.options.get("epochs", 1))
    source = small_federation(run.seed).sources[0]
    small, part = source.data, source.parts[0]
    at_own = torch.isin(small.edge_index, part).any(0)
    alone = Data(edge_index=small.edge_index[:, at_own], num_nodes=small.num_nodes)
    ring = torch.stack([torch.arange(64), (torch.arange(64) + 1) % 64])
    cycle = Data(edge_index=torch.cat([ring, ring.flip(0)], 1), num_nodes=64)
    timed = graph_and_parts(run)[0] if run.options.get("timed", True) else small
    result = {}
    for kind, generator in _GENERATORS.items():
        start = time.perf_counter()
        _features(kind, timed, epochs)
        seconds = time.perf_counter() - start
        alike = _features(kind, cycle, epochs)
        result[kind] = {
            "seconds": seconds,
            "task_dependent": kind == "H2V" and _moves_with_labels(run.seed),
            "global": bool((alike - alike[:1]).abs().max() > 1e-5),
            "local": torch.equal(_features(kind, small, epochs)[part], _features(kind, alone, epochs)[part]),
            "settings": len(inspect.signature(generator).parameters) - 1,
        }
    return {"result": result}


def _features(kind: str, data: Data, epochs: int) -> Tensor:
    a, generator = structure.adjacency(data), _GENERATORS[kind]
    if kind == "GDV":
        return generator(a)
    if kind == "H2V":
        return generator(a.shape[0], DIMENSION, 0)
    return generator(a, DIMENSION, epochs=epochs) if kind == "N2V" else generator(a, DIMENSION)


def _moves_with_labels(seed: int) -> bool:
    """Return True if Hop2Vec ends elsewhere under other labels."""
    ends = []
    for shift in (0, 1):
        fed = small_federation(seed)
        data, parts = fed.sources[0]
        data = data.clone()
        data.y = (data.y + shift) % fed.classes
        method = FedStruct(model=DGCN(fed.features, fed.classes), width=6, structure_hidden=(4,), prune=5)
        _, _, state = train(method, Federation.of(data, parts, seed), 3, evaluate=())
        ends.append(state.shared["structure"])
    return not torch.equal(*ends)


def fedgcn(run: Run) -> dict[str, Any]:
    """Count the routes that the server of a 2-hop FedGCN must know to forward sums (FS-I4, C.4).

    The sum of node j goes to each client that holds a neighbour i of j. The server therefore needs pairs of a node and
    a client, while C.4 says that it must know the edge (i, j).

    Returns:
        `edges`, `cross_client_edges` and `routes`: their numbers. `named`: the share of cross-client edges that routes
        reveal for certain, since the client holds only one node.
    """
    data, parts = graph_and_parts(run)
    owner = powers.owners(parts, int(data.num_nodes))
    source, target = data.edge_index.numpy()
    crossing = (owner[source] != owner[target]) & (source != target)
    routes = {*zip(source[crossing].tolist(), owner[target[crossing]].tolist())}
    sizes = np.array([len(part) for part in parts])
    named = float((sizes[owner[target[crossing]]] == 1).mean()) if crossing.any() else 0.0
    counts = {"edges": int((source != target).sum()), "cross_client_edges": int(crossing.sum())}
    return {"result": counts | {"routes": len(routes), "named": named}}
