"""What an honest-but-curious FedStruct client learns of others' edges and labels (Sections 5.4, G.1, D.1).

The paper argues that others' edges are very hard to find: pruning, the low rank of what is sent, graph isomorphism.
But nodes are named, so isomorphism hides nothing, and what a client holds grows with every power. Client i has

    combined    its rows M of A- alone. Neighbours are reached alike: columns of M that point the same way are joined.
    powers      its rows of every power, X_l. X_(l+1) = X_l A^ is linear in the A^ it looks for: least squares.
    blocks      B_ijk of the second power, one by one. B_i.k = A~_k^[i] A^^[k], and it knows A~_k^[i]: least squares,
                and exact for a node of k's that alone is joined to one of i's.

Labels: with Hop2Vec S is trained so that g(s_u) tells the label near u, and every client holds S and g.
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
from fedrepro.papers.fedstruct import network as net
from fedrepro.papers.fedstruct import powers as fedstruct_powers
from fedrepro.papers.fedstruct import structure
from fedrepro.papers.fedstruct.method import FedStruct
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

VIEWS = ("combined", "powers", "blocks")
LARGEST = 6000  # nodes
RIDGE = 1e-12  # of least squares on exact powers, relative to the largest diagonal entry
NOISY = 1e-5  # on pruned ones, whose errors a smaller one magnifies
Matrix = npt.NDArray[np.float64]


# -- edges ------------------------------------------------------------------------------------------------------------


def edges(run: Run) -> dict[str, Any]:
    """How well a client ranks the pairs of nodes that it does not hold by whether they are joined.

    Options: prune (30; 0 for full), structure_depth (10), budget ("blocks" or "matrix"), view (one of `VIEWS`,
    "combined"), attackers (2: the first clients, averaged).

    Returns:
        `auc` (0.5: no knowledge); `precision`: share of edges among as many pairs of highest score as there are edges;
        `density`: the precision of guessing; `edges` and `pairs` the attacker does not see, on average; `self`: auc of
        pairs within one other client, and `between` for pairs of two others.
    """
    options = run.options
    prune, depth = int(options.get("prune", 30)), int(options.get("structure_depth", 10))
    view, budget = one_of("view", str(options.get("view", "combined")), VIEWS), str(options.get("budget", "blocks"))
    data = tasks.graph(run)
    n = int(data.num_nodes)
    require(n <= LARGEST, "dataset", f"of at most {LARGEST} nodes", n)
    parts = partition.partition(data, run.partition, run.clients, run.seed)
    held = [part.numpy() for part in parts]
    last = 2 if view == "blocks" else depth
    powers = [p.matrix for p in fedstruct_powers.powers(data, parts, last, prune, budget)]
    found = []
    for attacker in range(min(int(options.get("attackers", 2)), len(held))):
        own = held[attacker]
        if view == "combined":
            score = from_combined(powers[-1][own])
        elif view == "powers":
            score = from_powers([power[own] for power in powers], NOISY if prune else RIDGE)
        else:
            score = from_blocks(data, held, attacker, prune if budget == "blocks" else 0)
        found.append(rated(score, structure.adjacency(data), held, attacker))
    return {"result": {name: float(np.mean([each[name] for each in found])) for name in found[0]}}


def from_combined(rows: csr_matrix) -> Matrix:
    """The cosine of two nodes' columns of the rows a client holds: `[nodes, nodes]`."""
    m = rows.toarray()
    length = np.linalg.norm(m, axis=0)
    m = m / np.where(length > 0, length, 1.0)
    return np.asarray(m.T @ m)


def from_powers(rows: list[csr_matrix], ridge: float = RIDGE) -> Matrix:
    """The A^ for which X_l A^ is closest to X_(l+1), over all powers the client holds, made symmetric."""
    require(len(rows) >= 2, "structure_depth", "at least 2 for the view 'powers'", len(rows))
    x = np.concatenate([power.toarray() for power in rows[:-1]])
    y = np.concatenate([power.toarray() for power in rows[1:]])
    return _either_way(_solved(x, y, ridge))


def from_blocks(data: Data, held: list[npt.NDArray[np.int64]], attacker: int, prune: int) -> Matrix:
    """The rows of A^ at other clients k for which A~_k^[i] times them is closest to B_i.k as received."""
    a, step = fedstruct_powers.with_loops(data), fedstruct_powers.transition(data)
    n, own = a.shape[0], held[attacker]
    owner = np.empty(n, dtype=np.int64)
    for client, part in enumerate(held):
        owner[part] = client
    quota = -(-prune // len(held)) * np.array([len(part) for part in held])
    found = np.zeros((n, n))
    for k, part in enumerate(held):
        if k == attacker:
            continue
        through = a[own][:, part]
        near = np.flatnonzero(np.asarray(through.sum(0)).ravel())
        block = through @ step[part]
        if prune:
            placed = block.tocoo()
            whole = csr_matrix((placed.data, (own[placed.row], placed.col)), shape=(n, n))
            block = fedstruct_powers.largest_by_block(whole, owner, quota)[own]
        found[part[near]] = _solved(through[:, near].toarray(), block.toarray())
    return _either_way(found)


def _solved(x: Matrix, y: Matrix, ridge: float = RIDGE) -> Matrix:
    """The smallest Z with X Z closest to Y (ridge regression), by whichever of X X^T and X^T X is smaller."""
    penalty = ridge * max(float((x**2).sum(0).max()), 1e-300)
    wide = x.shape[0] < x.shape[1]
    gram = x @ x.T if wide else x.T @ x
    gram[np.diag_indices_from(gram)] += penalty
    return np.asarray(x.T @ np.linalg.solve(gram, y) if wide else np.linalg.solve(gram, x.T @ y))


def _either_way(m: Matrix) -> Matrix:
    return np.maximum(m, m.T)


def rated(score: Matrix, a: csr_matrix, held: list[npt.NDArray[np.int64]], attacker: int) -> dict[str, float]:
    """Area under the curve and precision over all pairs of nodes that the attacker does not hold."""
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
        "auc": auc(values, joined), "precision": float(joined[best].mean()) if count else float("nan"),
        "density": float(joined.mean()), "edges": float(count), "pairs": float(len(values)),
        "self": auc(values[same], joined[same]), "between": auc(values[~same], joined[~same]),
    }  # fmt: skip


def auc(score: Matrix, positive: npt.NDArray[np.bool_]) -> float:
    """Probability that a positive has the higher score than a negative, ties counting half; nan without both."""
    high, low = score[positive], np.sort(score[~positive])
    if not len(high) or not len(low):
        return float("nan")
    below, not_above = (np.searchsorted(low, high, side) for side in ("left", "right"))
    return float((below + not_above).mean() / (2 * len(low)))


# -- labels -----------------------------------------------------------------------------------------------------------


def labels(run: Run) -> dict[str, Any]:
    """How often clients guess the labels of others' nodes from what all clients hold after a training of FedStruct.

    Options: those of the train method.

    Returns:
        `train`, `other`: accuracy of argmax g(s_u) at labelled and at unlabelled nodes; `gradient`: of the class along
        which the first round's gradient of S would raise g(s_u), at labelled nodes (Hop2Vec alone); `nearest`: of the
        label of the attacker's own labelled node whose s is most alike, at others' nodes (G.1); `majority`: of always
        guessing the most frequent training label; `test`: the trained method's test accuracy.
    """
    known = run.replace(task="train", method="FedStruct")
    fed = tasks.federation([known])
    method, loop = tasks.method(known, fed.features, fed.classes)
    assert isinstance(method, FedStruct)
    require(
        method.structure != "none" and method.backbone == "decoupled", "structure", "of decoupled FedStruct", "none"
    )
    made = train(method, fed, int(loop["rounds"]), evaluate=())
    data = fed.sources[0].data
    guess = of_structure(method, made.fed, made.state).argmax(1)
    right, marked = (guess == data.y).double(), data.train_mask
    counts = torch.bincount(data.y[marked], minlength=fed.classes)
    with torch.no_grad():
        logits = method.predict(made.fed, made.state)
    at = made.fed.batch.test_mask
    begun = method.start(tasks.federation([known]))
    return {
        "result": {
            "train": float(right[marked].mean()), "other": float(right[~marked].mean()),
            "gradient": from_gradient(method, *begun), "nearest": from_nearest(method, made.fed, made.state),
            "majority": float((data.y == counts.argmax()).double().mean()),
            "test": float((logits.argmax(1) == made.fed.batch.y)[at].double().mean()),
        }
    }  # fmt: skip


def of_structure(method: FedStruct, fed: Federation, state: State, s: Tensor | None = None) -> Tensor:
    """g(s_u) at every node of the graph, without the propagation: `[nodes, classes]`."""
    s = features_of(state) if s is None else s
    if method.head == "direct":
        return s
    weights = {name: w for name, w in state.shared.items() if name.startswith("structure") and name != "structure"}
    return net.structure_mlp(weights, s[None], torch.zeros(len(s), dtype=torch.int64), None, 0.0)[0]


def features_of(state: State) -> Tensor:
    """S of the first run, `[nodes, columns]`."""
    got = state.more.exchanged
    found: Tensor = state.shared["structure"][0] if got.features is None else got.features[0]
    return found


def from_gradient(method: FedStruct, fed: Federation, state: State) -> float | None:
    """Accuracy, at labelled nodes, of the class c with the largest - <dL/ds_u, dg_c/ds_u> in the first round."""
    if "structure" not in state.shared:
        return None
    leaves = {name: w.clone().requires_grad_() for name, w in state.shared.items()}
    share = fed.count("train") / fed.count("train").sum()
    loss = (method.local_loss(leaves, fed.shared(), state, 0) * share.to(fed.dtype)).sum()
    (sent,) = torch.autograd.grad(loss, leaves["structure"])
    s = features_of(state).clone().requires_grad_()
    logits = of_structure(method, fed, state, s)
    rises = [torch.autograd.grad(logits[:, c].sum(), s, retain_graph=True)[0] for c in range(fed.classes)]
    score = torch.stack([-(sent[0] * rise).sum(1) for rise in rises], 1)
    data = fed.sources[0].data
    return float((score.argmax(1) == data.y)[data.train_mask].double().mean())


def from_nearest(method: FedStruct, fed: Federation, state: State) -> float:
    """Accuracy of the label of the attacker's labelled node of most similar s (cosine), over all clients and others'
    nodes.
    """
    s = torch.nn.functional.normalize(features_of(state).double(), dim=1)
    source = fed.sources[0]
    hits, count = 0.0, 0
    for part in source.parts:
        mine = part[source.data.train_mask[part]]
        others = torch.ones(len(s), dtype=torch.bool)
        others[part] = False
        if len(mine):
            nearest = mine[(s[others] @ s[mine].T).argmax(1)]
            hits += float((source.data.y[nearest] == source.data.y[others]).sum())
            count += int(others.sum())
    return hits / count
