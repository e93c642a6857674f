"""FedStruct's exchanges, checked and counted: Algorithm 3, Figure 3, the example of D.2, Tables 1 and 9, G.1."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from fedrepro.data import partition
from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.models import DGCN
from fedrepro.engine.traffic import Traffic
from fedrepro.engine.training import client_gradients, train
from fedrepro.errors import require
from fedrepro.papers.fedstruct import powers as fedstruct_powers
from fedrepro.papers.fedstruct import protocol as fedstruct_protocol
from fedrepro.papers.fedstruct import structure
from fedrepro.papers.fedstruct.method import FedStruct
from fedrepro.papers.fedstruct.theory.gradients import small_federation
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

DENSE = 6000  # nodes; of larger graphs no full power is made here


def graph_and_parts(run: Run) -> tuple[Data, list[torch.Tensor]]:
    data = tasks.graph(run)
    return data, partition.partition(data, run.partition, run.clients, run.seed)


def powers(run: Run) -> dict[str, Any]:
    """FS-A3, FS-I2: the rows of A^^Ls that clients obtain, against the form used in training and the central power.

    Options: prune (30; 0 for full), structure_depth (10), budget ("blocks": Algorithm 3 is run literally; "matrix":
    the other reading of FS-Q9, which no client can follow alone).

    Returns:
        `difference` of literal and quick form; `full_difference` of the literal form without pruning and the dense
        power (graphs of up to 6000 nodes); `relative_error` (Frobenius) to the full power; `row_sum` left on average;
        `kept_per_node`; `blocks` and `indices` sent from client to client; `bound` L_s K p n (Table 1) and `text_bound`
        L_s p n (D.1).
    """
    options = run.options
    prune, depth = int(options.get("prune", 30)), int(options.get("structure_depth", 10))
    budget = str(options.get("budget", "blocks"))
    data, parts = graph_and_parts(run)
    n, beta = int(data.num_nodes), [0.0] * depth + [1.0]
    require(n <= DENSE or prune > 0, "prune", f"positive on more than {DENSE} nodes", prune)
    quick, sent = fedstruct_powers.combined(data, parts, beta, prune, budget)
    found: dict[str, Any] = {"difference": None, "full_difference": None, "relative_error": None}
    found |= {"blocks": float(sent), "indices": 2.0 * sent}
    if budget == "blocks" or not prune:
        traffic = Traffic()
        literal = fedstruct_protocol.assembled(fedstruct_protocol.acquire(data, parts, beta[1:], prune, traffic))
        seen = traffic.summary()["before"]
        found["difference"] = float(abs(literal - quick).max())
        found |= {"blocks": seen.get("up.power blocks", 0.0), "indices": seen.get("up.power indices", 0.0)}
    if n <= DENSE:
        full = _full(data, depth)
        if not prune:
            found["full_difference"] = float(np.abs(literal.toarray() - full).max())
        found["relative_error"] = float(np.linalg.norm(quick.toarray() - full) / np.linalg.norm(full))
    found |= {"row_sum": float(quick.sum() / n), "kept_per_node": quick.nnz / n}
    return {"result": found | {"bound": depth * len(parts) * prune * n, "text_bound": depth * prune * n}}


def _full(data: Data, depth: int) -> np.ndarray:
    """The dense power of D~^-1 (A+I), `[nodes, nodes]`."""
    step = fedstruct_powers.transition(data)
    power = step.toarray()
    for _ in range(depth - 1):
        power = step @ power
    return np.asarray(power)


def combined(run: Run) -> dict[str, Any]:
    """FS-F3: A^^Ls full and pruned, nodes ordered by the run's partition (Louvain shows communities).

    Options: prune (30), structure_depth (10), cells (48), budget ("matrix"), ranks (true).

    Returns:
        `full` and `pruned`: means over cells x cells blocks of nodes; `inside_full` and `inside_pruned`: share of the
        mass within parts; `rank_full` and `rank_pruned`: singular values above 1e-3 of the largest (None without
        ranks); `sizes` of parts.
    """
    options = run.options
    prune, depth, cells = (int(options.get(k, d)) for k, d in (("prune", 30), ("structure_depth", 10), ("cells", 48)))
    data, parts = graph_and_parts(run)
    require(int(data.num_nodes) <= DENSE, "dataset", f"of at most {DENSE} nodes", int(data.num_nodes))
    beta = [0.0] * depth + [1.0]
    kept, _ = fedstruct_powers.combined(data, parts, beta, prune, str(options.get("budget", "matrix")))
    order = np.concatenate([part.numpy() for part in parts])
    owner = fedstruct_powers.owners(parts, len(order))[order]
    same = owner[:, None] == owner[None]
    found: dict[str, Any] = {"sizes": [len(part) for part in parts]}
    for name, matrix in (("full", _full(data, depth)), ("pruned", kept.toarray())):
        placed = matrix[np.ix_(order, order)]
        edges = np.linspace(0, len(order), cells + 1).astype(int)[:-1]
        sums = np.add.reduceat(np.add.reduceat(placed, edges, 0), edges, 1)
        size = np.diff([*edges, len(order)])
        found[name] = (sums / np.outer(size, size)).tolist()
        found[f"inside_{name}"] = float(placed[same].sum() / placed.sum())
        found[f"rank_{name}"] = _rank(placed) if options.get("ranks", True) else None
    return {"result": found | {"nodes": len(order)}}


def _rank(m: np.ndarray) -> int:
    """Singular values above 1e-3 of the largest."""
    values = torch.linalg.svdvals(torch.from_numpy(m)).numpy()
    return int((values > 1e-3 * values[0]).sum())


# -- the example of D.2 -----------------------------------------------------------------------------------------------

_LAST_COLUMN = [[0, 0, 1], [0, 0, 1], [0, 0, 1]]
_CORNER = [[0, 0, 0], [0, 0, 0], [0, 0, 1]]
_ZERO = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]
PRINTED = {
    "A~_2^[1]": _CORNER, "A~_1^[3]": _ZERO, "Eq. 39: A~_2^[3]": [[0, 0, 0], [0, 0, 0], [1, 0, 0]],
    "B_211": _LAST_COLUMN, "B_221": _CORNER, "B_231": _ZERO, "B_213": _ZERO, "B_223": _CORNER, "B_233": _LAST_COLUMN,
}  # fmt: skip
# Eq. 38, what client 2 knows: rows of nodes 4, 5, 6, and of the others their entries in columns 4, 5, 6
KNOWN_ROWS = [[0, 1, 0, 0, 1, 1, 0, 0, 1], [0, 0, 0, 1, 0, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0, 0, 0, 0]]
KNOWN_COLUMNS = {1: [0, 0, 0], 2: [1, 0, 0], 3: [0, 0, 1], 7: [0, 0, 0], 8: [0, 0, 0], 9: [1, 0, 0]}


def example(run: Run) -> dict[str, Any]:
    """FS-I3: the matrices printed in D.2, recomputed from the adjacency matrix printed there.

    Returns:
        `printed` and `computed` matrices by name, `agrees` by name, `transposed`: names whose print is the transpose,
        the second power of client 2's rows, and `misprints` with place, print and what is right.
    """
    clients = fedstruct_protocol.example_clients()
    computed = {
        "A~_2^[1]": clients[0].outgoing[1], "A~_1^[3]": clients[2].outgoing[0],
        "Eq. 39: A~_2^[3]": clients[2].outgoing[1],
        **{f"B_2{j}{k}": clients[k - 1].block(1, j - 1) for k in (1, 3) for j in (1, 2, 3)},
    }  # fmt: skip
    made = {name: block.toarray().astype(int).tolist() for name, block in computed.items()}
    agrees = {name: made[name] == PRINTED[name] for name in PRINTED}
    wrong = [{"place": n, "printed": PRINTED[n], "computed": made[n]} for n, same in agrees.items() if not same]
    a = structure.adjacency(fedstruct_protocol.example()[0]).toarray().astype(int)
    known = {"rows": a[3:6].tolist(), "columns": {v: a[v - 1, 3:6].tolist() for v in KNOWN_COLUMNS}}
    printed = {"rows": KNOWN_ROWS, "columns": KNOWN_COLUMNS}
    if known != printed:
        wrong.append({"place": "Eq. 38: known entries", "printed": printed, "computed": known})
    crossing = sorted({(u + 1, v + 1) for u, v in zip(*a.nonzero()) if u // 3 != v // 3 and u < v})
    wrong.append({"place": "text: edges between clients", "printed": [[2, 4], [4, 9], [3, 6]],
                  "computed": [[int(u), int(v)] for u, v in crossing]})  # fmt: skip
    wrong.append({"place": "Algorithm 3, line 8", "printed": "[A^_j^[K]]", "computed": "[A^_j^[k]]"})
    blocks = {(j, k): clients[k].block(1, j) for j in range(3) for k in range(3)}
    clients[1].collect(blocks, 1.0)
    second = np.concatenate([block.toarray() for block in clients[1].power], 1).astype(int)
    transposed = [n for n, same in agrees.items() if not same and np.array_equal(np.transpose(made[n]), PRINTED[n])]
    return {
        "result": {
            "printed": PRINTED, "computed": made, "agrees": agrees, "transposed": transposed, "misprints": wrong,
            "second power of A~, rows of client 2": second.tolist(),
        }
    }  # fmt: skip


# -- communication ----------------------------------------------------------------------------------------------------


def communication(run: Run) -> dict[str, Any]:
    """FS-T1, FS-T9: scalars that a FedStruct run of these options sends, beside the orders of the tables.

    Options: those of the method, and rounds (E).

    Returns:
        `before` and `training` by direction and name, over all E rounds; `formula`: the tables' orders with constants 1
        ("before", "training", and "sage": FedSage+'s training); `sizes`: theta (without S), S, n, K, d_s.
    """
    data, parts = graph_and_parts(run)
    fed = Federation.of(data, parts, run.seed)
    method, loop = tasks.method(run, fed.features, fed.classes)
    assert isinstance(method, FedStruct)
    made = train(method, fed, 1, evaluate=())
    seen, rounds = made.fed.traffic.summary(), int(loop["rounds"])
    n, k, d, p = int(data.num_nodes), len(parts), method.width, method.prune or int(data.num_nodes)
    of_s = made.state.shared["structure"][0].numel() if "structure" in made.state.shared else 0
    theta = sum(w[0].numel() for w in made.state.shared.values()) - of_s
    hop = method.structure == "H2V"
    formula = {
        "before": float(method.structure_depth * k * p * n + (0 if hop else k * d * n)),
        "training": float(rounds * k * theta + (rounds * k * d * n if hop else 0)),
        "sage": float(rounds * k**2 * theta + rounds * k * d * n),
    }
    if method.graph == "known":
        more = rounds * n * d * theta + (rounds * k * n * d + rounds * n**2 * d**2 if hop else 0)
        formula |= {"before": 0.0, "training": float(rounds * k * theta + more)}
    return {
        "result": {
            "before": seen["before"], "training": {name: rounds * x for name, x in seen["training"].items()},
            "formula": formula, "sizes": {"theta": theta, "S": of_s, "n": n, "K": k, "d_s": d},
        }
    }  # fmt: skip


def aggregates(run: Run) -> dict[str, Any]:
    """FS-A5: the round that shares sums, literally, on a small graph; structure is "Deg" (with g) or "H2V" (without).

    Returns:
        Largest differences of `prediction` and `gradient` to the original; numbers `sent` from client to client in a
        round, and as `claimed` in G.1, (|V~ without V~_i| + |theta_s|) c over all clients. Eq. 48 has one Jacobian per
        labelled node, which that count leaves out.
    """
    kind = str(run.options.get("structure", "Deg"))
    fed = small_federation(run.seed)
    head = "direct" if kind == "H2V" else "mlp"
    method = FedStruct(
        model=DGCN(fed.features, fed.classes, hidden=5),
        structure=kind,
        head=head,
        width=6,
        structure_hidden=(4,),
        prune=5,
    )
    fed, state = method.start(fed)
    traffic = Traffic()
    predictions, gradients = fedstruct_protocol.aggregate_round(method, fed, state, traffic)
    logits = method.predict(fed, state)[fed.batch.node_id.argsort()]
    each, data = client_gradients(method, fed, state), fed.sources[0].data
    gap, slope, claimed = 0.0, 0.0, 0
    size = sum(w[0].numel() for name, w in gradients.items() if name != "structure")
    for i, part in enumerate(fed.sources[0].parts):
        v = part[data.train_mask[part]]
        gap = max(gap, float((predictions[i] - logits[v].softmax(1)).abs().max()))
        slope = max(slope, *(float((g[i] - len(v) * each[name][i]).abs().max()) for name, g in gradients.items()))
        claimed += (int(data.train_mask.sum()) - len(v) + size) * fed.classes
    sent = traffic.summary()["before"]["up.aggregates"]
    return {"result": {"prediction": gap, "gradient": slope, "sent": sent, "claimed": float(claimed)}}
