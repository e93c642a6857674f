"""Statistics of the clients' graphs (FedSheafHN, Tables 7 and 8), and the score of a guess from labels only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.data import partition
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

Array = npt.NDArray[np.float64]


def statistics(run: Run) -> dict[str, Any]:
    """Compute one column of Tables 7 and 8; every number is a mean over clients.

    Args:
        run: names the graph and the partition; "single" is the original graph.

    Returns:
        "result": `clients`, `classes`, `nodes`, `edges` (both directions, SH-Q15) and `clustering` (a mean over a
        client's nodes first). `heterogeneity` is the median over pairs of clients of the Jensen-Shannon distance
        between their label distributions, with natural logarithms, and `heterogeneity_base2` that with logarithms to
        base 2. `divergence` and `divergence_base2` are their squares, the Jensen-Shannon divergence. The paper names
        the divergence, but its digits are close to the distance. All four are None for one client. `majority` is the
        score of `majority`.
    """
    data = tasks.graph(run)
    parts = partition.divide(data, run.partition or "single", run.clients, run.seed)
    graphs = [client_edges(data, part) for part in parts]
    sizes = [len(part) for part in parts]
    labels = np.stack([np.bincount(data.y[part].numpy(), minlength=data.num_classes) for part in parts])
    result: dict[str, Any] = {
        "clients": len(parts),
        "classes": int(data.num_classes),
        "nodes": float(np.mean(sizes)),
        "edges": float(np.mean([edges.shape[1] for edges in graphs])),
        "clustering": float(np.mean([clustering(e, n).mean() for e, n in zip(graphs, sizes, strict=True)])),
        "majority": majority(data, parts),
    }
    for base, end in ((None, ""), (2, "_base2")):
        median = median_distance(labels.astype(float), base) if len(parts) > 1 else None
        square = median_distance(labels.astype(float), base, power=2) if len(parts) > 1 else None
        result |= {f"heterogeneity{end}": median, f"divergence{end}": square}
    return {"result": result}


def majority(data: Data, parts: Sequence[Tensor]) -> float:
    """Return the test accuracy of a guess that needs no training, a mean over clients with test nodes.

    Each client predicts the class that is most frequent among its training nodes. Ties are broken by class number.
    """
    scores = []
    for part in parts:
        y, test = data.y[part], data.test_mask[part]
        most = torch.bincount(y[data.train_mask[part]], minlength=data.num_classes).argmax()
        if bool(test.any()):
            scores.append(float((y[test] == most).double().mean()))
    return float(np.mean(scores))


def client_edges(data: Data, part: Tensor) -> npt.NDArray[np.int64]:
    """Return the edges between the nodes of a part `[2, edges]`, both directions of each, renumbered."""
    number = torch.full((data.num_nodes,), -1)
    number[part] = torch.arange(len(part))
    ends = number[data.edge_index]
    return np.asarray(ends[:, (ends >= 0).all(0)].numpy())


def clustering(edges: npt.NDArray[np.int64], nodes: int) -> Array:
    """Return local clustering coefficients `[nodes]` (Watts and Strogatz 1998).

    The coefficient is the number of triangles at a node over the number of pairs of its neighbours, and 0 for degree 0
    and 1. Directions, repetitions and self-loops of the edges are ignored.
    """
    row, col = edges[:, edges[0] != edges[1]]
    a = sp.coo_matrix((np.ones(row.size), (row, col)), (nodes, nodes)).tocsr()
    a = ((a + a.T) > 0).astype(np.float64)
    degree = np.asarray(a.sum(1)).ravel()
    # Edges point to the node of larger degree. No node then has many successors, and each triangle a -> b -> c, a -> c
    # is counted once.
    rank = np.lexsort((np.arange(nodes), degree)).argsort()
    entries = a.tocoo()
    up = rank[entries.row] < rank[entries.col]
    forward = sp.coo_matrix((np.ones(int(up.sum())), (entries.row[up], entries.col[up])), (nodes, nodes)).tocsr()
    by_middle = (forward.T @ forward).multiply(forward).tocsr()  # entry (b, c) counts the nodes a
    through = (forward @ forward).multiply(forward).tocsr()  # entry (a, c) counts the nodes b
    triangles = sum(np.asarray(m.sum(axis)).ravel() for m, axis in ((through, 1), (by_middle, 1), (by_middle, 0)))
    pairs = degree * (degree - 1) / 2
    return np.asarray(triangles / np.maximum(pairs, 1))


def median_distance(counts: Array, base: float | None = None, power: int = 1) -> float:
    """Return the median over pairs of rows of the Jensen-Shannon distance of their distributions, to a power.

    Args:
        counts: one row of label counts per client `[clients, classes]`.
        base: of the logarithms; None for natural ones.
        power: 2 gives the Jensen-Shannon divergence.
    """
    distances = [float(jensenshannon(p, q, base=base)) ** power for p, q in combinations(counts, 2)]
    return float(np.median(distances))
