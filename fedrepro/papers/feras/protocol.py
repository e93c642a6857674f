"""Run Feras as printed: Algorithm 1 and the table of Section 5.2, host by host and message by message.

The method (`fedrepro.papers.feras.method`) computes all hosts as one batch. Here every host has a dense matrix, and the
aggregation server is a dictionary, so memory grows with the square of a sub-graph. Both start from the same weights and
use the sub-graphs that the method draws, so their weights, embeddings and tables must agree.

One iteration of Algorithm 1, or of the table of Section 5.2:

    1. Every host n draws its sub-graph; x_n = 0 at nodes it cannot see (lines 4 to 6).           `_sub_graphs`
    2. Every host n computes x^_n = relu(A_n x_n W1_n + b1_n) (line 7).                           `_layer`
    3. Every host sends the rows of the nodes that it sees (line 8).                              `_push`
    4. Every host receives a row for each node of its sub-graph (lines 10 to 12, or the table).   `_pull`
    5. Every host computes the other layers, its loss, and a step of SGD (lines 13 and 14).       `literal`
    6. The server averages the weights (line 18, which the printed text calls line 16).           `literal`

Decisions the paper leaves open: rows of other hosts are constants (FR-Q4). A node that no host which sees it drew has
the row zero in Algorithm 1, and its old row in the table (FR-Q3).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.papers.feras.method import Feras

Pushed = dict[int, dict[int, Tensor]]  # node -> host -> row


class Host(NamedTuple):
    """One host's sub-graph in an iteration.

    Shapes: `nodes` and `sees` `[k]`, `a` `[k, k]`, `x` `[k, features]`, `y` `[k]`, `share` `[k]`.
    """

    nodes: list[int]
    sees: list[bool]
    a: Tensor
    x: Tensor
    y: Tensor
    share: Tensor


def literal(method: Feras, fed: Federation, state: State, rounds: int, broken: bool = False) -> dict[str, list[Tensor]]:
    """Run iterations of Algorithm 1 or of the table, as `method.exchange` says, with plain SGD and q = 1.

    Args:
        method: draws the sub-graphs; a network of three layers with p = 1.
        fed, state: one run, as `method.start` returned it.
        rounds: iterations.
        broken: a negative control that changes one line. The mean takes rows of hosts that do not see the node; or a
            host reads nothing that was written in this iteration.

    Returns:
        "weights", one vector per host; "embeddings", one `[nodes, width]` per iteration, as the second layer uses them;
        "table", one `[nodes, width]`.
    """
    weights = [{name: w[n].clone().requires_grad_() for name, w in state.personal.items()} for n in range(fed.clients)]
    blank = torch.zeros_like(state.personal["layer1.bias"][0])
    table: dict[int, Tensor] = {}
    embeddings: list[Tensor] = []
    for t in range(rounds):
        hosts = _sub_graphs(method, fed, state, t)
        hidden = [_layer(host, host.x, w, 1) for host, w in zip(hosts, weights, strict=True)]
        pushed = _push(hosts, hidden, everything=broken and method.exchange == "average")
        used = []
        for n, host in enumerate(hosts):
            used.append(_pull(n, host, pushed, None if method.exchange == "average" else table, blank, broken))
            logits = _layer(host, used[n], weights[n], 2) @ weights[n]["layer3.weight"] + weights[n]["layer3.bias"]
            loss = (F.cross_entropy(logits, host.y, reduction="none") * host.share).sum()
            gradients = torch.autograd.grad(loss, list(weights[n].values()), retain_graph=True)
            moved = zip(weights[n].items(), gradients, strict=True)
            weights[n] = {name: (w - method.lr * g).detach() for (name, w), g in moved}
        embeddings.append(torch.cat(used).detach())
        table |= {node: list(rows.values())[-1].detach() for node, rows in pushed.items()}
        mean = {name: torch.stack([w[name] for w in weights]).mean(0) for name in weights[0]}
        weights = [{name: w.clone().requires_grad_() for name, w in mean.items()} for _ in weights]
    stacked = torch.stack([table.get(v, blank) for v in range(fed.sources[0].data.num_nodes)])
    vectors = [torch.cat([w.detach().flatten() for w in host_weights.values()]) for host_weights in weights]
    return {"weights": vectors, "embeddings": embeddings, "table": [stacked]}


def _sub_graphs(method: Feras, fed: Federation, state: State, t: int) -> list[Host]:
    """Cut every host's sub-graph out of the batch that the method draws for an iteration."""
    sample = method.sample(fed.at(t, 0), state, t)
    batch, a, x = sample.fed.batch, sample.a.dense(), sample.fed.x
    assert isinstance(x, Tensor)
    hosts = []
    for n in range(fed.clients):
        p = slice(int(batch.ptr[n]), int(batch.ptr[n + 1]))
        nodes, sees = batch.node_id[p].tolist(), batch.visible[p].tolist()
        hosts.append(Host(nodes, sees, a[p, p], x[p], batch.y[p], sample.share[p]))
    return hosts


def _layer(host: Host, h: Tensor, weights: Weights, i: int) -> Tensor:
    """Return relu(A h W + b) of layer i, `[k, width]`."""
    return F.relu(host.a @ h @ weights[f"layer{i}.weight"] + weights[f"layer{i}.bias"])


def _push(hosts: list[Host], hidden: list[Tensor], everything: bool) -> Pushed:
    """Send the rows of the nodes that each host sees to the server, or of all its nodes."""
    pushed: Pushed = {}
    for n, host in enumerate(hosts):
        for node, sees, row in zip(host.nodes, host.sees, hidden[n], strict=True):
            if sees or everything:
                pushed.setdefault(node, {})[n] = row
    return pushed


def _pull(n: int, host: Host, pushed: Pushed, table: dict[int, Tensor] | None, blank: Tensor, broken: bool) -> Tensor:
    """Return the rows that host n continues with, `[k, width]`: means, or with a table the latest rows."""
    used = []
    for node, sees in zip(host.nodes, host.sees, strict=True):
        rows = {m: row if m == n else row.detach() for m, row in pushed.get(node, {}).items()}
        if table is None:
            used.append(torch.stack(list(rows.values())).mean(0) if rows else blank)
        elif sees:
            used.append(rows[n])
        else:
            earlier = [] if broken else [row for m, row in rows.items() if m < n]
            used.append(earlier[-1] if earlier else table.get(node, blank))
    return torch.stack(used)
