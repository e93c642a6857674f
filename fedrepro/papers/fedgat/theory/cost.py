"""What FedGAT sends before training, counted message by message from a partition alone (Figures 3, 4, 7, 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.data import datasets, partition, statistics
from fedrepro.papers.fedgat import protocol
from fedrepro.papers.fedgat.theory.bounds import theorem1
from fedrepro.runs.run import Run

SCALAR = 4  # bytes of a float32


def count(data: Data, parts: Sequence[Tensor]) -> dict[str, Any]:
    """Scalars and bytes before training, over all clients, for a network of two layers.

    Each client uploads its features. It receives a message for each node whose first layer it evaluates: its own and
    their neighbours (FG-Q9). "raw" is what it would receive instead if neighbours' features were simply sent: those of
    the nodes within two hops that it does not hold. Every transfer counts.

    Returns:
        "up": scalars; "matrix", "vector" and "raw", each with "down" (scalars), "scalars" (up and down) and "bytes" of
        both; "own": "scalars" down if messages went to the owners of their nodes alone, by form; "messages" received
        and "nodes"; "largest": neighbours of a node, itself among them (B); "reach": nodes within two hops of a client
        (B_L); "theorem1": K B_L d B^3 "cubed", K B_L d B^2 "squared"; "cross_client_edges" and "edges".
    """
    near = protocol.neighbours(data)
    nodes, features = data.num_nodes, int(data.x.shape[1])
    g = np.array([len(ids) for ids in near])
    each = {form: np.array([protocol.scalars(form, int(n), features) for n in g]) for form in protocol.FORMS}
    hop = csr_matrix((np.ones(g.sum()), np.concatenate(near), np.concatenate([[0], g.cumsum()])), shape=(nodes, nodes))
    messages, reach, halo, down = 0, 0, 0, dict.fromkeys(protocol.FORMS, 0)
    for part in parts:
        member = np.zeros(nodes)
        member[part.numpy()] = 1.0
        first = hop.T @ member > 0  # own nodes and those from which an edge leads to them
        second = hop.T @ first.astype(float) > 0
        messages += int(first.sum())
        reach = max(reach, int(second.sum()))
        halo += int(second.sum()) - len(part)
        for form in protocol.FORMS:
            down[form] += int(each[form][first].sum())
    up = sum(len(part) for part in parts) * features
    sizes = {**down, "raw": halo * features}
    held = statistics.manifest(data, parts)
    bounds = {name: theorem1(len(parts), reach, features, int(g.max()), power)
              for name, power in (("cubed", 3), ("squared", 2))}  # fmt: skip
    return {
        "up": up,
        **{name: {"down": n, "scalars": up + n, "bytes": SCALAR * (up + n)} for name, n in sizes.items()},
        "own": {form: int(each[form].sum()) for form in protocol.FORMS},
        "messages": messages,
        "nodes": nodes,
        "largest": int(g.max()),
        "reach": reach,
        "theorem1": bounds,
        "cross_client_edges": held["cross_client_edges"],
        "edges": held["edges"],
    }


def pretraining(run: Run) -> dict[str, Any]:
    """`count` for the graph and the partition of a run."""
    data = datasets.assemble(run.dataset, run.prepare, run.split, run.seed)
    return {"result": count(data, partition.partition(data, run.partition, run.clients, run.seed))}
