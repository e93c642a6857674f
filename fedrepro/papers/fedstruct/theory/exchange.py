"""Check and count FedStruct's exchanges: Algorithm 3, Figure 3, the example of D.2, Tables 1 and 9, Appendix G.1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn.models import DGCN
from fedrepro.engine.traffic import Traffic
from fedrepro.engine.training import client_gradients, train
from fedrepro.errors import require
from fedrepro.papers.fedstruct import powers as adjacency_powers
from fedrepro.papers.fedstruct import protocol, structure
from fedrepro.papers.fedstruct.method import FedStruct, StructureMethod
from fedrepro.papers.fedstruct.network import Exchanged
from fedrepro.papers.fedstruct.theory.setup import gap, graph_and_parts, small_federation
from fedrepro.papers.fedstruct.variants import KnownGraph
from fedrepro.reporting.checks import worst_of
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

DENSE = 6000  # nodes of the largest graph whose full powers are computed


def powers(run: Run) -> dict[str, Any]:
    """Compare the rows of A^^Ls that clients obtain with those used in training and with the full power (FS-A3, FS-I2).

    Options: prune (30; 0 keeps all entries), structure_depth (10), budget ("blocks" runs Algorithm 3 literally;
    "matrix" is the other reading of FS-Q9, which no client can follow by itself).

    Returns:
        `difference`: of the literal form and the form used in training. `full_difference`: of the unpruned literal form
        and the dense power, on graphs of up to 6000 nodes. `difference_control` and `full_difference_control`: the
        same without the first client's blocks at the others. `relative_error`: to the full power, Frobenius.
        `row_sum`: the mean that pruning leaves. `kept_per_node`: entries. `blocks`, `indices`: scalars from client to
        client. `bound`: L_s K p n in total (Table 1). `text_bound`: L_s p n for each client (D.1).
    """
    prune, depth, budget, data, parts = _requested(run, "blocks")
    n, beta = int(data.num_nodes), [0.0] * depth + [1.0]
    require(n <= DENSE or prune > 0, "prune", f"positive on more than {DENSE} nodes", prune)
    quick, sent = adjacency_powers.combined(data, parts, beta, prune, budget)
    names = ("difference", "full_difference", "difference_control", "full_difference_control", "relative_error")
    result: dict[str, Any] = dict.fromkeys(names)
    result |= {"blocks": float(sent), "indices": 2.0 * sent}
    if budget == "blocks" or not prune:
        traffic = Traffic()
        literal = protocol.assembled(protocol.acquire(data, parts, beta[1:], prune, traffic))
        before = traffic.summary()["before"]
        without = _without_first(literal, parts)
        result["difference"] = float(abs(literal - quick).max())
        result["difference_control"] = float(abs(without - quick).max())
        result |= {"blocks": before.get("up.power blocks", 0.0), "indices": before.get("up.power indices", 0.0)}
    if n <= DENSE:
        full = _full(data, depth)
        if not prune:
            result["full_difference"] = float(np.abs(literal.toarray() - full).max())
            result["full_difference_control"] = float(np.abs(without.toarray() - full).max())
        result["relative_error"] = float(np.linalg.norm(quick.toarray() - full) / np.linalg.norm(full))
    result |= {"row_sum": float(quick.sum() / n), "kept_per_node": quick.nnz / n}
    return {"result": result | {"bound": depth * len(parts) * prune * n, "text_bound": depth * prune * n}}


def _requested(run: Run, budget: str) -> tuple[int, int, str, Data, list[Tensor]]:
    """Return the options prune, structure_depth and budget of a run, its graph and its partition."""
    options = run.options
    rule = int(options.get("prune", 30)), int(options.get("structure_depth", 10)), str(options.get("budget", budget))
    return *rule, *graph_and_parts(run)


def _without_first(rows: csr_matrix, parts: list[Tensor]) -> csr_matrix:
    """Return the rows of A- `[nodes, nodes]` without the first client's blocks at the others."""
    first = adjacency_powers.owners(parts, rows.shape[0]) == 0
    entries = rows.tocoo()
    kept = first[entries.row] | ~first[entries.col]
    return csr_matrix((entries.data[kept], (entries.row[kept], entries.col[kept])), shape=rows.shape)


def _full(data: Data, depth: int) -> np.ndarray:
    """Return the dense power of D~^-1 (A+I), `[nodes, nodes]`."""
    step = adjacency_powers.transition(data)
    power = step.toarray()
    for _ in range(depth - 1):
        power = step @ power
    return np.asarray(power)


def combined(run: Run) -> dict[str, Any]:
    """Return A^^Ls full and pruned, with nodes in the order of the run's partition (FS-F3).

    Options: prune (30), structure_depth (10), cells (48), budget ("matrix"), ranks (true).

    Returns:
        `full` and `pruned`: means over cells x cells blocks of nodes. `inside_full` and `inside_pruned`: share of the
        mass within parts. `rank_full` and `rank_pruned`: number of singular values above 1e-3 of the largest, None
        without ranks. `sizes`: of the parts. `nodes`: of the graph.
    """
    prune, depth, budget, data, parts = _requested(run, "matrix")
    cells = int(run.options.get("cells", 48))
    require(int(data.num_nodes) <= DENSE, "dataset", f"of at most {DENSE} nodes", int(data.num_nodes))
    kept, _ = adjacency_powers.combined(data, parts, [0.0] * depth + [1.0], prune, budget)
    order = np.concatenate([part.numpy() for part in parts])
    owner = adjacency_powers.owners(parts, len(order))[order]
    same = owner[:, None] == owner[None]
    edges = np.linspace(0, len(order), cells + 1).astype(int)[:-1]
    size = np.diff([*edges, len(order)])
    result: dict[str, Any] = {"sizes": [len(part) for part in parts], "nodes": len(order)}
    for name, matrix in (("full", _full(data, depth)), ("pruned", kept.toarray())):
        ordered = matrix[np.ix_(order, order)]
        sums = np.add.reduceat(np.add.reduceat(ordered, edges, 0), edges, 1)
        result[name] = (sums / np.outer(size, size)).tolist()
        result[f"inside_{name}"] = float(ordered[same].sum() / ordered.sum())
        result[f"rank_{name}"] = _rank(ordered) if run.options.get("ranks", True) else None
    return {"result": result}


def _rank(m: np.ndarray) -> int:
    values = torch.linalg.svdvals(torch.from_numpy(m)).numpy()
    return int((values > 1e-3 * values[0]).sum())


# -- the example of D.2 -----------------------------------------------------------------------------------------------

_ZERO = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]
_CORNER = [[0, 0, 0], [0, 0, 0], [0, 0, 1]]
_LAST_COLUMN = [[0, 0, 1], [0, 0, 1], [0, 0, 1]]
PRINTED = {"A~_2^[1]": _CORNER, "A~_1^[3]": _ZERO, "Eq. 39: A~_2^[3]": [[0, 0, 0], [0, 0, 0], [1, 0, 0]]}
PRINTED |= {"B_211": _LAST_COLUMN, "B_221": _CORNER, "B_231": _ZERO}
PRINTED |= {"B_213": _ZERO, "B_223": _CORNER, "B_233": _LAST_COLUMN}
# Eq. 38, the knowledge of client 2: rows of nodes 4, 5, 6, and of the others their entries in columns 4, 5, 6.
KNOWN_ROWS = [[0, 1, 0, 0, 1, 1, 0, 0, 1], [0, 0, 0, 1, 0, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0, 0, 0, 0]]
KNOWN_COLUMNS = {1: [0, 0, 0], 2: [1, 0, 0], 3: [0, 0, 1], 7: [0, 0, 0], 8: [0, 0, 0], 9: [1, 0, 0]}


def example(run: Run) -> dict[str, Any]:
    """Recompute the matrices of D.2 from the adjacency matrix printed there (FS-I3).

    Returns:
        `printed` and `computed`: matrices by name. `agrees`: by name. `transposed`: names of matrices whose print is
        the transpose. `misprints`: place, print and right value. The second power of client 2's rows.
    """
    clients = protocol.example_clients()
    computed = {"A~_2^[1]": clients[0].outgoing[1], "A~_1^[3]": clients[2].outgoing[0]}
    computed |= {"Eq. 39: A~_2^[3]": clients[2].outgoing[1]}
    computed |= {f"B_2{j}{k}": clients[k - 1].block(1, j - 1) for k in (1, 3) for j in (1, 2, 3)}
    right = {name: block.toarray().astype(int).tolist() for name, block in computed.items()}
    agrees = {name: right[name] == PRINTED[name] for name in PRINTED}
    wrong = [name for name, same in agrees.items() if not same]
    misprints = [{"place": name, "printed": PRINTED[name], "computed": right[name]} for name in wrong]

    def misprint(place: str, printed: Any, computed: Any) -> None:
        misprints.append({"place": place, "printed": printed, "computed": computed})

    a = structure.adjacency(protocol.example()[0]).toarray().astype(int)
    known = {"rows": a[3:6].tolist(), "columns": {v: a[v - 1, 3:6].tolist() for v in KNOWN_COLUMNS}}
    printed = {"rows": KNOWN_ROWS, "columns": KNOWN_COLUMNS}
    if known != printed:
        misprint("Eq. 38: known entries", printed, known)
    crossing = sorted([int(u) + 1, int(v) + 1] for u, v in zip(*a.nonzero()) if u // 3 != v // 3 and u < v)
    misprint("text: edges between clients", [[2, 4], [4, 9], [3, 6]], crossing)
    misprint("Algorithm 3, line 9", "[A^_j^[K]]", "[A^_j^[k]]")
    clients[1].collect({(j, k): clients[k].block(1, j) for j in range(3) for k in range(3)}, 1.0)
    second = np.concatenate([block.toarray() for block in clients[1].power], 1).astype(int)
    transposed = [name for name in wrong if np.array_equal(np.transpose(right[name]), PRINTED[name])]
    result = {"printed": PRINTED, "computed": right, "agrees": agrees, "transposed": transposed}
    return {"result": result | {"misprints": misprints, "second power of A~, rows of client 2": second.tolist()}}


# -- communication ----------------------------------------------------------------------------------------------------


def communication(run: Run) -> dict[str, Any]:
    """Count the scalars that a FedStruct run of these options sends, next to the orders of Tables 1 and 9.

    Options: those of the method, and rounds (E).

    Returns:
        `before` and `training`: by direction and name, over all E rounds. `formula`: the tables' orders with constants
        1 ("before", "training", and "sage" for the training of FedSage+). `sizes`: theta (without S), S, n, K, d_s.
    """
    data, parts = graph_and_parts(run)
    fed = Federation.of(data, parts, run.seed)
    method, loop = tasks.method(run, fed.features, fed.classes)
    assert isinstance(method, StructureMethod)
    _, trained, state = train(method, fed, 1, evaluate=())
    sent, rounds = trained.traffic.summary(), int(loop["rounds"])
    n, k, d = int(data.num_nodes), len(parts), method.width
    p = (method.prune if isinstance(method, FedStruct) else 0) or n
    sizes = {name: w[0].numel() for name, w in state.shared.items()}
    of_s = sizes.pop("structure", 0)
    theta, hop = sum(sizes.values()), method.structure == "H2V"
    formula = {
        "before": float(method.structure_depth * k * p * n + (0 if hop else k * d * n)),
        "training": float(rounds * k * theta + (rounds * k * d * n if hop else 0)),
        "sage": float(rounds * k**2 * theta + rounds * k * d * n),
    }
    if isinstance(method, KnownGraph):
        jacobians = rounds * n * d * theta + (rounds * k * n * d + rounds * n**2 * d**2 if hop else 0)
        formula |= {"before": 0.0, "training": float(rounds * k * theta + jacobians)}
    training = {name: rounds * scalars for name, scalars in sent["training"].items()}
    sizes = {"theta": theta, "S": of_s, "n": n, "K": k, "d_s": d}
    return {"result": {"before": sent["before"], "training": training, "formula": formula, "sizes": sizes}}


def aggregates(run: Run) -> dict[str, Any]:
    """Run the round that shares sums literally, on a small graph, and compare it with the method (FS-A5).

    Options: structure, "Deg" (with g) or "H2V" (without g).

    Returns:
        `prediction` and `gradient`: largest differences. `prediction_control` and `gradient_control`: the least of
        the other clients' differences without the first client's sums. `sent`: scalars from client to client in a
        round. `claimed`: the count of G.1, (|V~ without V~_i| + |theta_s|) c over all clients. Eq. 48 has one Jacobian
        per labelled node, which that count leaves out.
    """
    kind = str(run.options.get("structure", "Deg"))
    fed = small_federation(run.seed)
    sizes: dict[str, Any] = {"width": 6, "structure_hidden": (4,), "prune": 5}
    head = "direct" if kind == "H2V" else "mlp"
    method = FedStruct(model=DGCN(fed.features, fed.classes, hidden=5), structure=kind, head=head, **sizes)
    fed, state = method.start(fed)
    traffic = Traffic()
    predictions, gradients = protocol.aggregate_round(method, fed, state, traffic)
    logits = method.predict(fed, state)[fed.batch.node_id.argsort()]
    means, (data, parts) = client_gradients(method, fed, state), fed.sources[0]
    of_g = sum(w[0].numel() for name, w in gradients.items() if name != "structure")
    got: Exchanged = state.more.exchanged
    silent = got._replace(matrices=(_without_first(got.matrices[0], list(parts)),))
    lacking = protocol.aggregate_round(
        method, fed, replace(state, more=state.more._replace(exchanged=silent)), Traffic()
    )
    labelled = [part[data.train_mask[part]] for part in parts]

    def errors(predictions: list[Tensor], gradients: Weights) -> tuple[list[float], list[float]]:
        """Return the largest difference of each client's predictions, and of its gradients."""
        of_clients = [gap(predictions[i], logits[v].softmax(1)) for i, v in enumerate(labelled)]
        of_gradients = [
            worst_of(gap(sums[i], len(v) * means[name][i]) for name, sums in gradients.items())
            for i, v in enumerate(labelled)
        ]
        return of_clients, of_gradients

    result = dict(zip(("prediction", "gradient"), map(worst_of, errors(predictions, gradients))))
    result |= {f"{name}_control": float(np.min(found[1:])) for name, found in zip(tuple(result), errors(*lacking))}
    claimed = sum((int(data.train_mask.sum()) - len(v) + of_g) * fed.classes for v in labelled)
    result |= {"sent": traffic.summary()["before"]["up.aggregates"], "claimed": float(claimed)}
    return {"result": result}
