"""Compare FedStruct's propositions with automatic differentiation, each with a control that must fail.

`gradients` has Lemma 1 and Propositions 1 to 4, `polynomial_filter` Equations 11 and 12, `counting` the argument of
Appendix G.1 on sums that hide structure features, and `colluding` its condition on a graph.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import DGCN
from fedrepro.engine.training import client_gradients
from fedrepro.papers.fedstruct import powers
from fedrepro.papers.fedstruct.method import FedStruct
from fedrepro.papers.fedstruct.theory.setup import (
    BETA,
    CLASSES,
    CLIENTS,
    FEATURES,
    NODES,
    gap,
    graph_and_parts,
    local_operator,
    small_federation,
    small_graph,
)
from fedrepro.reporting.checks import worst_of
from fedrepro.runs.run import Run

# -- Lemma 1 and Propositions 1 to 4 ----------------------------------------------------------------------------------

WEIGHTS = ("theta_s", "theta_f", "theta_c_s", "theta_c_f")


class Setting:
    """A small instance, float64: A-, S, weights of one layer each for f and g, and Theta_c."""

    def __init__(self, seed: int) -> None:
        self.data, self.parts = small_federation(seed).sources[0]
        self.abar = torch.from_numpy(powers.combined(self.data, self.parts, BETA, 0)[0].toarray())
        local = local_operator(self.data, self.parts)
        # A^ X of each client's own graph.
        self.hidden = torch.zeros(NODES, FEATURES, dtype=torch.float64)
        for part in self.parts:
            self.hidden[part] = local[part][:, part] @ self.data.x[part]
        square = (CLASSES, CLASSES)
        shapes = {"s": (NODES, 5), "direct": (NODES, CLASSES), "theta_f": (FEATURES, CLASSES), "theta_s": (5, CLASSES)}
        shapes |= {"theta_c_s": square, "theta_c_f": square}
        self.w = {name: random.normal(shape, "setting", seed, name) for name, shape in shapes.items()}
        self.y = F.one_hot(self.data.y, CLASSES).double()

    def labelled(self, client: int) -> Tensor:
        """Return V~_i, the training nodes of a client."""
        return self.parts[client][self.data.train_mask[self.parts[client]]]

    def logits(self, w: dict[str, Tensor], v: Tensor, head: str) -> Tensor:
        """Return q_v of Eq. 10 ("mlp"), Eq. 15 ("direct") or Eq. 51 ("layer"), `[nodes v, classes]`."""
        z = self.abar[v] @ (w["direct"] if head == "direct" else torch.tanh(w["s"] @ w["theta_s"]))
        h = torch.tanh(self.hidden[v] @ w["theta_f"])
        return z @ w["theta_c_s"] + h @ w["theta_c_f"] if head == "layer" else z + h

    def automatic(self, names: tuple[str, ...], client: int, head: str) -> list[Tensor]:
        """Return the gradients of L_i, a sum over V~_i (Eq. 4), by automatic differentiation."""
        leaves, v = {name: w.clone().requires_grad_() for name, w in self.w.items()}, self.labelled(client)
        loss = F.cross_entropy(self.logits(leaves, v, head), self.data.y[v], reduction="sum")
        return list(torch.autograd.grad(loss, [leaves[name] for name in names]))

    def residual(self, v: Tensor, head: str) -> Tensor:
        """Return y^_v - y_v, `[nodes v, classes]`."""
        return self.logits(self.w, v, head).softmax(1) - self.y[v]

    def jacobians(self) -> tuple[Tensor, Tensor]:
        """Return dg(s_u) / dtheta_s and df(v) / dtheta_f, each `[nodes, classes, *weights]`."""
        w, eye = self.w, torch.eye(CLASSES, dtype=torch.float64)
        of_g = 1 - torch.tanh(w["s"] @ w["theta_s"]) ** 2
        of_f = 1 - torch.tanh(self.hidden @ w["theta_f"]) ** 2
        outer = "uc,up,cd->ucpd"
        return torch.einsum(outer, of_g, w["s"], eye), torch.einsum(outer, of_f, self.hidden, eye)


def gradients(run: Run) -> dict[str, Any]:
    """Check Lemma 1 and Propositions 1 to 4 on a small seeded graph (FS-L1, FS-Th1 to FS-Th4).

    Returns:
        Largest absolute differences over all clients, by name:

        - `lemma1`. Its control applies softmax twice.
        - those of Proposition 1, as `proposition1` returns them.
        - `prop2`. Its control has A-^T for A-, which is not symmetric.
        - `prop3`. Its control sums over the client's own nodes only.
        - `prop4`. Its control leaves out Theta_c. `prop4_printed` sums over all labelled nodes V~, as printed, instead
          of the client's.
    """
    at = Setting(run.seed)
    worst: dict[str, float] = defaultdict(float)

    def compare(name: str, formula: Tensor, automatic: Tensor) -> None:
        worst[name] = worst_of((worst[name], gap(formula, automatic)))

    q = random.normal((20, CLASSES), "lemma", run.seed).requires_grad_()
    y = at.data.y[:20]
    lemma = (q.softmax(1) - at.y[:20]).detach()
    for name, logits in (("lemma1", q), ("lemma1_control", q.softmax(1))):
        compare(name, lemma, torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), q)[0])

    of_g, of_f = at.jacobians()
    all_labelled = torch.cat([at.labelled(client) for client in range(CLIENTS)])
    for client, part in enumerate(at.parts):
        v, names = at.labelled(client), ("theta_f", "theta_s")
        by_f, by_g = at.automatic(names, client, "mlp")
        residual = at.residual(v, "direct")
        (by_s,) = at.automatic(("direct",), client, "direct")
        compare("prop2", at.abar[v].T @ residual, by_s)  # Eq. 16
        compare("prop2_control", at.abar[:, v] @ residual, by_s)

        residual = at.residual(v, "mlp")
        weights = torch.einsum("vu,vc->uc", at.abar[v], residual)
        compare("prop3", torch.einsum("ucpd,uc->pd", of_g, weights), by_g)  # Eq. 22
        compare("prop3", torch.einsum("vcpd,vc->pd", of_f[v], residual), by_f)
        compare("prop3_control", torch.einsum("ucpd,uc->pd", of_g[part], weights[part]), by_g)

        automatic = at.automatic(WEIGHTS, client, "layer")
        for name, nodes in (("prop4", v), ("prop4_control", v), ("prop4_printed", all_labelled)):
            formula = proposition4(at, nodes, of_g, of_f, with_layer=name != "prop4_control")
            for by_formula, by_weight in zip(formula, automatic, strict=True):
                compare(name, by_formula, by_weight)
    return {"result": dict(worst) | proposition1(run.seed)}


def proposition1(seed: int) -> dict[str, float]:
    """Change what a client of FedStruct with a Hop2Vec need not know, and what it needs.

    Proposition 1 says that predictions at a client's labelled nodes, and its gradients, require nothing from outside
    but the rows of A- of these nodes, and S. The client's own features are not from outside: those of its unlabelled
    nodes reach its labelled ones over its own edges.

    Returns:
        Largest changes over all clients, and least ones for the controls. `prop1_outside` is that of the gradients, and
        `prop1_logits` that of the logits at labelled nodes, if all else changes: the rows of A- of all other nodes, the
        client's unlabelled ones among them; features and edges of other clients; and all labels but those of the
        client's labelled nodes. The controls are `prop1_inside` and `prop1_logits_inside` for changed rows of its
        labelled nodes, and `prop1_features`, the change of the logits if the client has other features.
    """
    fed = small_federation(seed)
    (data, parts), model = fed.sources[0], DGCN(fed.features, fed.classes, hidden=5)
    method = FedStruct(model=model, structure_hidden=(4,), width=6, prune=5)
    fed, state = method.start(fed)

    def measured(data: Data, rows: Tensor) -> tuple[Weights, Tensor]:
        """Return all clients' gradients, and the logits of all nodes, on a graph and with changed rows of A-."""
        changed = state.more.exchanged.matrices[0].toarray()
        changed[rows.numpy()] *= 1.7
        exchanged = state.more.exchanged._replace(matrices=(csr_matrix(changed),))
        at = replace(state, more=state.more._replace(exchanged=exchanged))
        other = Federation.of(data, list(parts), seed, dtype=torch.float64)
        return client_gradients(method, other, at), method.predict(other, at)[other.batch.node_id.argsort()]

    none = torch.zeros(NODES, dtype=torch.bool)
    gradients, logits = measured(data, none)
    changes: dict[str, list[float]] = defaultdict(list)
    for client, part in enumerate(parts):
        at_client = torch.isin(torch.arange(NODES), part)
        labelled = at_client & data.train_mask
        outside, features = data.clone(), data.clone()
        outside.x = torch.where(at_client[:, None], data.x, 1.7 * data.x + 1)
        outside.y = torch.where(labelled, data.y, (data.y + 1) % CLASSES)
        outside.edge_index = data.edge_index[:, at_client[data.edge_index].all(0)]
        features.x = torch.where(at_client[:, None], 1.7 * data.x + 1, data.x)
        for name, graph, rows in (("outside", outside, ~labelled), ("inside", data, labelled), ("own", features, none)):
            by_weight, at_nodes = measured(graph, rows)
            changes[name].append(worst_of(gap(by_weight[key][client], w[client]) for key, w in gradients.items()))
            changes[f"{name} logits"].append(gap(at_nodes[labelled], logits[labelled]))
    return {
        "prop1_outside": worst_of(changes["outside"]),
        "prop1_logits": worst_of(changes["outside logits"]),
        "prop1_inside": float(np.min(changes["inside"])),
        "prop1_logits_inside": float(np.min(changes["inside logits"])),
        "prop1_features": float(np.min(changes["own logits"])),
    }


def proposition4(at: Setting, v: Tensor, of_g: Tensor, of_f: Tensor, *, with_layer: bool = True) -> list[Tensor]:
    """Return the gradients of Proposition 4 and Appendix H.1, summed over nodes v, by the weights in `WEIGHTS`."""
    residual, w = at.residual(v, "layer"), at.w
    through = [residual @ w[name].T if with_layer else residual for name in ("theta_c_s", "theta_c_f")]
    z = at.abar[v] @ torch.tanh(w["s"] @ w["theta_s"])
    h = torch.tanh(at.hidden[v] @ w["theta_f"])
    weights = torch.einsum("vu,vc->uc", at.abar[v], through[0])
    by_s, by_f = torch.einsum("ucpd,uc->pd", of_g, weights), torch.einsum("vcpd,vc->pd", of_f[v], through[1])
    return [by_s, by_f, z.T @ residual, h.T @ residual]


# -- Eq. 11 and 12 ----------------------------------------------------------------------------------------------------


def polynomial_filter(run: Run) -> dict[str, Any]:
    """Check that Z = sum_l beta_l A^^l G filters the spectrum of G (FS-I1, FS-Q8).

    Returns:
        Largest absolute differences. `inverse`: with U^-1, which is right. `transpose`: with U^T as printed in Eq. 11,
        which is wrong since A^ is not symmetric. `symmetric`: with U^T for D~^-1/2 (A+I) D~^-1/2, for which Eq. 11
        holds. `orthogonality`: the largest entry of U^T U - I.
    """
    a = powers.with_loops(small_graph(run.seed)).toarray()
    degree = a.sum(1)
    g = random.normal((NODES, CLASSES), "filter", run.seed).numpy()
    step, symmetric = a / degree[:, None], a / np.sqrt(np.outer(degree, degree))
    values, v = np.linalg.eigh(symmetric)
    # The columns of V are eigenvectors of the symmetric matrix, and those of D~^-1/2 V of A^. Eq. 11 has unit lengths.
    u = v / np.sqrt(degree)[:, None]
    u = u / np.linalg.norm(u, axis=0)

    def difference(basis: np.ndarray, spectrum: np.ndarray, m: np.ndarray) -> float:
        response = np.asarray(sum(b * values**power for power, b in enumerate(BETA)))
        polynomial = np.asarray(sum(b * np.linalg.matrix_power(m, power) @ g for power, b in enumerate(BETA)))
        return float(np.abs(basis @ (response[:, None] * spectrum) - polynomial).max())

    result = {
        "inverse": difference(u, np.linalg.solve(u, g), step),
        "transpose": difference(u, u.T @ g, step),
        "symmetric": difference(v, v.T @ g, symmetric),
        "orthogonality": float(np.abs(u.T @ u - np.eye(NODES)).max()),
    }
    return {"result": result}


# -- G.1: counting ----------------------------------------------------------------------------------------------------


def counting(run: Run) -> dict[str, Any]:
    """Decide if client 1 can solve for client 2's structure features from the sums that it receives (FS-I5, FS-Q17).

    The paper's client 1 is all clients but client 2, who collude.

    Options: observers |V~_1| (8), unknowns m (12 nodes of client 2 with weight in the sums), head ("direct": s_u has c
    entries, Eq. 49; "mlp": d_s = 5 entries behind a linear g, Eq. 47), queries (1: rounds with other weights of g).

    Returns:
        `equations`: c |V~_1| per query. `unknowns`: m c or m d_s. `prevented`: the text's condition, m > |V~_1| or
        m d_s > c |V~_1|; the second is printed as n d_s > c |V~_1| (FS-Q17). `rank` and `nullity`: of the system.
        `error`: relative error of the least-squares reconstruction. `recovered`: share of nodes known exactly.
    """
    options = run.options
    observers, nodes = int(options.get("observers", 8)), int(options.get("unknowns", 12))
    head, queries = str(options.get("head", "direct")), int(options.get("queries", 1))
    width = CLASSES if head == "direct" else 5
    weight = random.uniform((observers, nodes), "counting", run.seed, "A").numpy()
    s = random.normal((nodes, width), "counting", run.seed, "s").numpy()
    blocks = []
    for query in range(queries):
        g = random.normal((width, CLASSES), "counting", run.seed, "g", query).numpy()
        # A row is an entry (v, c) of the sums, and a column an entry (u, k) of S.
        blocks.append(np.kron(weight, np.eye(CLASSES) if head == "direct" else g.T))
    system = np.concatenate(blocks)
    guess = np.linalg.lstsq(system, system @ s.ravel(), rcond=None)[0].reshape(s.shape)
    rank, equations, unknowns = int(np.linalg.matrix_rank(system)), CLASSES * observers, nodes * width
    known = np.linalg.norm(guess - s, axis=1) < 1e-6 * np.linalg.norm(s, axis=1)
    result: dict[str, Any] = {"equations": equations, "unknowns": unknowns, "prevented": unknowns > equations}
    result |= {"rank": rank, "nullity": unknowns - rank, "recovered": float(known.mean())}
    return {"result": result | {"error": float(np.linalg.norm(guess - s) / np.linalg.norm(s))}}


def colluding(run: Run) -> dict[str, Any]:
    """Evaluate G.1's condition for Hop2Vec, m > |V~_1|, on a graph and its partition (FS-I5-graphs).

    Every client in turn is client 2. Client 1 is all other clients together, as in the paper, or one of them.

    Options: prune (30), structure_depth (10), budget ("matrix").

    Returns:
        For `together` and `alone`, means over the pairs of clients 1 and 2. `labelled`: |V~_1|. `hidden`: m, the nodes
        of client 2 with weight in the sums. `broken`: the share of pairs for which the condition fails. `rank`: of the
        weights. `determined`: the share of hidden nodes whose features follow from one round.
    """
    options = run.options
    prune, depth = int(options.get("prune", 30)), int(options.get("structure_depth", 10))
    data, parts = graph_and_parts(run)
    rule = [0.0] * depth + [1.0], prune, str(options.get("budget", "matrix"))
    abar, labelled = powers.combined(data, parts, *rule)[0], [part[data.train_mask[part]].numpy() for part in parts]
    solved: dict[str, list[dict[str, float]]] = {"together": [], "alone": []}
    for target, part in enumerate(parts):
        others = [v for client, v in enumerate(labelled) if client != target]
        for name, groups in (("together", [np.concatenate(others)]), ("alone", others)):
            solved[name] += [solvable(abar[v][:, part.numpy()].toarray()) for v in groups]
    return {"result": {k: {n: float(np.mean([one[n] for one in each])) for n in each[0]} for k, each in solved.items()}}


def solvable(weights: np.ndarray) -> dict[str, float]:
    """Return the counts of `colluding` for sums with some weights, `[labelled nodes, nodes]`."""
    system = weights[:, (weights != 0).any(0)]
    labelled, hidden = system.shape
    told = {"labelled": float(labelled), "hidden": float(hidden), "broken": float(0 < hidden <= labelled)}
    if not system.size:
        return {**told, "rank": 0.0, "determined": 0.0}
    _, sizes, v = np.linalg.svd(system)
    rank = int((sizes > sizes[0] * max(system.shape) * np.finfo(float).eps).sum())
    known = (v[:rank] ** 2).sum(0) > 1 - 1e-8  # the unit vector of the node lies in the row space
    return {**told, "rank": float(rank), "determined": float(known.mean())}
