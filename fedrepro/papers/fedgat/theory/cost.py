"""Count what FedGAT sends before training, message by message, from a partition (Figures 3, 4, 7, 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.data import datasets, partition, statistics
from fedrepro.papers.fedgat import protocol
from fedrepro.papers.fedgat.theory.bounds import theorem1
from fedrepro.runs.run import Run

SCALAR = 4  # bytes of a float32


def count(data: Data, parts: Sequence[Tensor]) -> dict[str, Any]:
    """Count scalars and bytes before training over all clients, for a network of two layers.

    Each client sends its features. It receives a message about each node whose first layer it evaluates, which are its
    nodes and their neighbours (FG-Q9). For comparison, "raw" counts the features of all nodes within two hops that the
    client does not hold. Every transfer counts.

    Returns:
        "up" is scalars. "matrix", "vector" and "raw" have scalars "down", and "scalars" and "bytes" of both directions.
        "own" has the scalars down, by form, if each message went only to the client of its node. "messages" is the
        number received, "nodes" that of the graph. "largest" is B, the largest number of neighbours of a node, itself
        among them, and "reach" is B_L, the largest number of nodes within two hops of a client. "theorem1" has K B_L d
        B^3 ("cubed") and K B_L d B^2 ("squared"). "cross_client_edges" and "edges" are counts.
    """
    near = protocol.neighbours(data)
    features = int(data.x.shape[1])
    g = np.array([len(ids) for ids in near])
    scalars = {form: np.array([protocol.scalars(form, int(n), features) for n in g]) for form in protocol.FORMS}
    first = [protocol.receivers(near, part) for part in parts]
    reaches = [len(protocol.receivers(near, ids)) for ids in first]
    up = sum(len(part) for part in parts) * features
    down = {form: sum(int(scalars[form][ids].sum()) for ids in first) for form in protocol.FORMS}
    down["raw"] = (sum(reaches) - sum(len(part) for part in parts)) * features
    manifest = statistics.manifest(data, parts)
    powers = {"cubed": 3, "squared": 2}
    return {
        "up": up,
        **{name: {"down": n, "scalars": up + n, "bytes": SCALAR * (up + n)} for name, n in down.items()},
        "own": {form: int(scalars[form].sum()) for form in protocol.FORMS},
        "messages": sum(len(ids) for ids in first),
        "nodes": data.num_nodes,
        "largest": int(g.max()),
        "reach": max(reaches),
        "theorem1": {name: theorem1(len(parts), max(reaches), features, int(g.max()), n) for name, n in powers.items()},
        "cross_client_edges": manifest["cross_client_edges"],
        "edges": manifest["edges"],
    }


def pretraining(run: Run) -> dict[str, Any]:
    """Count what is sent before training for the graph and the partition of a run."""
    data = datasets.assemble(run.dataset, run.prepare, run.split, run.seed)
    return {"result": count(data, partition.divide(data, run.partition, run.clients, run.seed))}
