"""Attack FedStruct: find other clients' edges and labels as an honest but curious client (Sections 5.4, D.1 and G.1).

The paper argues that a client can hardly find the edges of others, because of pruning, of the low rank of the messages,
and of graph isomorphism. Node ids travel with the messages, however, so isomorphism hides nothing, and a client's
knowledge grows with every power. Client i attacks from one of three views:

    combined    its rows M of A-. Neighbours have similar columns: pairs are ranked by the cosine of their columns.
    powers      its rows X_l of every power. X_(l+1) = X_l A^ is linear in A^: least squares.
    blocks      B_i.k of the second power. B_i.k = A~_k^[i] A^^[k] and client i knows A~_k^[i]: least squares, which is
                exact for a node of k that is the only neighbour at k of some node of i.

With Hop2Vec, S is trained so that g(s_u) tells the labels near u, and every client holds S and g. `labels` reads the
labels of others from them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.data import partition
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State
from fedrepro.engine.training import train
from fedrepro.errors import one_of, require
from fedrepro.papers.fedstruct import network, powers, structure
from fedrepro.papers.fedstruct.method import StructureMethod, structure_features
from fedrepro.papers.fedstruct.variants import KnownGraph
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

VIEWS = ("combined", "powers", "blocks")
LARGEST = 6000  # nodes of a graph, for the memory of dense matrices
# Penalties of least squares, relative to the largest diagonal entry. That on pruned powers is larger, since a small one
# magnifies their errors.
RIDGE = 1e-12
NOISY = 1e-5
Matrix = npt.NDArray[np.float64]


# -- edges ------------------------------------------------------------------------------------------------------------


def edges(run: Run) -> dict[str, Any]:
    """Measure how well a client ranks the pairs of nodes of other clients by whether an edge joins them.

    Options: prune (30; 0 keeps all entries), structure_depth (10), budget ("blocks" or "matrix"), view (one of `VIEWS`,
    "combined"), attackers (2; results are averaged over the first clients).

    Returns:
        Means over attackers. `auc`: area under the curve, 0.5 for no knowledge. `precision`: share of edges among the
        pairs of highest score, as many as there are edges. `density`: the precision of guessing. `edges` and `pairs`:
        their numbers at other clients. `self` and `between`: area under the curve of pairs within one other client, and
        of pairs between two other clients.
    """
    options = run.options
    prune, depth = int(options.get("prune", 30)), int(options.get("structure_depth", 10))
    view, budget = one_of("view", str(options.get("view", "combined")), VIEWS), str(options.get("budget", "blocks"))
    data = tasks.graph(run)
    n = int(data.num_nodes)
    require(n <= LARGEST, "dataset", f"of at most {LARGEST} nodes", n)
    parts = partition.divide(data, run.partition, run.clients, run.seed)
    held = [part.numpy() for part in parts]
    last = 2 if view == "blocks" else depth
    obtained = [p.matrix for p in powers.powers(data, parts, last, prune, budget)]
    measured = []
    for attacker in range(min(int(options.get("attackers", 2)), len(held))):
        nodes = held[attacker]
        if view == "combined":
            score = from_combined(obtained[-1][nodes])
        elif view == "powers":
            score = from_powers([power[nodes] for power in obtained], NOISY if prune else RIDGE)
        else:
            score = from_blocks(data, held, attacker, prune if budget == "blocks" else 0)
        measured.append(rated(score, structure.adjacency(data), held, attacker))
    return {"result": {name: float(np.mean([one[name] for one in measured])) for name in measured[0]}}


def from_combined(rows: csr_matrix) -> Matrix:
    """Return the cosine of every two columns of the rows that a client holds, `[nodes, nodes]`."""
    m = rows.toarray()
    length = np.linalg.norm(m, axis=0)
    m = m / np.where(length > 0, length, 1.0)
    return np.asarray(m.T @ m)


def from_powers(rows: list[csr_matrix], ridge: float = RIDGE) -> Matrix:
    """Return the A^ for which X_l A^ is closest to X_(l+1) over all powers that the client holds, made symmetric."""
    require(len(rows) >= 2, "structure_depth", "at least 2 for the view 'powers'", len(rows))
    x = np.concatenate([power.toarray() for power in rows[:-1]])
    y = np.concatenate([power.toarray() for power in rows[1:]])
    return _either_way(_solved(x, y, ridge))


def from_blocks(data: Data, held: list[npt.NDArray[np.int64]], attacker: int, prune: int) -> Matrix:
    """Return the rows of A^ at other clients k for which A~_k^[i] A^^[k] is closest to the received B_i.k."""
    a, step = powers.with_loops(data), powers.transition(data)
    n, nodes = a.shape[0], held[attacker]
    owner = np.empty(n, dtype=np.int64)
    for client, part in enumerate(held):
        owner[part] = client
    quota = -(-prune // len(held)) * np.array([len(part) for part in held])
    estimate = np.zeros((n, n))
    for k, part in enumerate(held):
        if k == attacker:
            continue
        through = a[nodes][:, part]
        near = np.flatnonzero(np.asarray(through.sum(0)).ravel())
        block = through @ step[part]
        if prune:
            entries = block.tocoo()
            whole = csr_matrix((entries.data, (nodes[entries.row], entries.col)), shape=(n, n))
            block = powers.largest_by_block(whole, owner, quota)[nodes]
        estimate[part[near]] = _solved(through[:, near].toarray(), block.toarray())
    return _either_way(estimate)


def _solved(x: Matrix, y: Matrix, ridge: float = RIDGE) -> Matrix:
    """Return the smallest Z with X Z closest to Y (ridge regression), from the smaller of X X^T and X^T X."""
    penalty = ridge * max(float((x**2).sum(0).max()), 1e-300)
    wide = x.shape[0] < x.shape[1]
    gram = x @ x.T if wide else x.T @ x
    gram[np.diag_indices_from(gram)] += penalty
    return np.asarray(x.T @ np.linalg.solve(gram, y) if wide else np.linalg.solve(gram, x.T @ y))


def _either_way(m: Matrix) -> Matrix:
    return np.maximum(m, m.T)


def rated(score: Matrix, a: csr_matrix, held: list[npt.NDArray[np.int64]], attacker: int) -> dict[str, float]:
    """Return the area under the curve and the precision over all pairs of nodes that the attacker does not hold."""
    owner = np.empty(a.shape[0], dtype=np.int64)
    for client, part in enumerate(held):
        owner[part] = client
    others = np.flatnonzero(owner != attacker)
    upper = np.triu(np.ones((len(others), len(others)), dtype=bool), 1)
    values = score[np.ix_(others, others)][upper]
    joined = (a[others][:, others].toarray() > 0)[upper]
    same = (owner[others][:, None] == owner[others][None])[upper]
    count = int(joined.sum())
    best = np.argpartition(-values, count)[:count] if 0 < count < len(values) else np.arange(count)
    return {
        "auc": auc(values, joined),
        "precision": float(joined[best].mean()) if count else float("nan"),
        "density": float(joined.mean()),
        "edges": float(count),
        "pairs": float(len(values)),
        "self": auc(values[same], joined[same]),
        "between": auc(values[~same], joined[~same]),
    }


def auc(score: Matrix, positive: npt.NDArray[np.bool_]) -> float:
    """Return the probability that a positive scores above a negative, with ties as a half; NaN if either is missing."""
    high, low = score[positive], np.sort(score[~positive])
    if not len(high) or not len(low):
        return float("nan")
    below, not_above = (np.searchsorted(low, high, side) for side in ("left", "right"))
    return float((below + not_above).mean() / (2 * len(low)))


# -- labels -----------------------------------------------------------------------------------------------------------


def labels(run: Run) -> dict[str, Any]:
    """Measure how often clients guess the labels of others' nodes from the values that all clients hold after training.

    Options: those of the train method.

    Returns:
        Accuracies. `train` and `other`: of argmax g(s_u) at labelled and at unlabelled nodes. `gradient`: at labelled
        nodes, of the class whose g(s_u) the first round's gradient of S would raise most (Hop2Vec only). `nearest`: at
        others' nodes, of the label of the attacker's labelled node with the most similar s (G.1). `majority`: of the
        most frequent training label. `test`: of the trained method at test nodes.
    """
    run = run.replace(task="train", method="FedStruct")
    fed = tasks.federation([run])
    method, loop = tasks.method(run, fed.features, fed.classes)
    assert isinstance(method, StructureMethod)
    sage = isinstance(method, KnownGraph) and method.backbone == "GraphSAGE"
    require(method.structure != "none" and not sage, "structure", "of decoupled FedStruct", "none")
    trained = train(method, fed, int(loop["rounds"]), evaluate=())
    data, batch = fed.sources[0].data, trained.fed.batch
    hit = (of_structure(method, trained.state).argmax(1) == data.y).double()
    majority = torch.bincount(data.y[data.train_mask], minlength=fed.classes).argmax()
    with torch.no_grad():
        logits = method.predict(trained.fed, trained.state)
    result = {
        "train": float(hit[data.train_mask].mean()),
        "other": float(hit[~data.train_mask].mean()),
        "gradient": from_gradient(method, *method.start(tasks.federation([run]))),
        "nearest": from_nearest(trained.fed, trained.state),
        "majority": float((data.y == majority).double().mean()),
        "test": float((logits.argmax(1) == batch.y)[batch.test_mask].double().mean()),
    }
    return {"result": result}


def of_structure(method: StructureMethod, state: State, s: Tensor | None = None) -> Tensor:
    """Return g(s_u) at every node of the graph, without the propagation, `[nodes, classes]`."""
    s = structure_features(state) if s is None else s
    return s if method.head == "direct" else network.structure_network(network.weights_of_g(state.shared), s[None])[0]


def from_gradient(method: StructureMethod, fed: Federation, state: State) -> float | None:
    """Return the accuracy, at labelled nodes, of the class c with the largest - <dL/ds_u, dg_c/ds_u> in round 0."""
    if "structure" not in state.shared:
        return None
    leaves = {name: w.clone().requires_grad_() for name, w in state.shared.items()}
    share = fed.count("train") / fed.count("train").sum()
    loss = (method.local_loss(leaves, fed.shared(), state, 0) * share.to(fed.dtype)).sum()
    (sent,) = torch.autograd.grad(loss, leaves["structure"])
    s = structure_features(state).clone().requires_grad_()
    logits = of_structure(method, state, s)
    rises = [torch.autograd.grad(logits[:, c].sum(), s, retain_graph=True)[0] for c in range(fed.classes)]
    score = torch.stack([-(sent[0] * rise).sum(1) for rise in rises], 1)
    data = fed.sources[0].data
    return float((score.argmax(1) == data.y)[data.train_mask].double().mean())


def from_nearest(fed: Federation, state: State) -> float:
    """Return the accuracy, over all clients and others' nodes, of the label of the client's most similar node.

    The similarity is the cosine of s, and only labelled nodes of the client count.
    """
    s = torch.nn.functional.normalize(structure_features(state).double(), dim=1)
    source = fed.sources[0]
    hits, count = 0.0, 0
    for part in source.parts:
        labelled = part[source.data.train_mask[part]]
        others = torch.ones(len(s), dtype=torch.bool)
        others[part] = False
        if len(labelled):
            nearest = labelled[(s[others] @ s[labelled].T).argmax(1)]
            hits += float((source.data.y[nearest] == source.data.y[others]).sum())
            count += int(others.sum())
    return hits / count
