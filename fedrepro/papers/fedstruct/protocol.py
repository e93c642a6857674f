"""Run FedStruct's exchanges message by message: Algorithm 3, the round of Appendix G.1, and the example of D.2.

A client is an object that holds the values it may hold and nothing more. Every message to another client is counted in
`traffic`. Training uses the forms of `fedrepro.papers.fedstruct.powers` and `fedrepro.papers.fedstruct.method`, which
return the same numbers in less time.

Algorithm 3, for client i:

    1. compute its rows of A^ from its own edges                      (line 3)         `Client.begin`
    2. for each further power l: compute B_jk from the last power     (line 9, Eq. 35) `Client.block`
    3.   send the blocks, pruned, to the clients                      (Appendix D)     `_pruned`, `_send`
    4.   add the received blocks, scale by D~^-1, add beta_l times    (Eq. 36, 37)     `Client.collect`

The paper prints [A^_j^[K]] for [A^_j^[k]] in line 9. Its example contains more misprints (FS-Q13), which
`fedrepro.papers.fedstruct.theory.exchange` lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_matrix, diags, hstack, vstack
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.traffic import Traffic
from fedrepro.errors import require
from fedrepro.papers.fedstruct import network
from fedrepro.papers.fedstruct.method import StructureMethod, structure_features
from fedrepro.papers.fedstruct.powers import Ids, largest_by_block, owners, with_loops

Blocks = list[csr_matrix]

# -- Algorithm 3 ------------------------------------------------------------------------------------------------------


@dataclass
class Client:
    """A client of Algorithm 3 and the values that it holds.

    Args:
        number: i.
        nodes: the ids of its nodes, in increasing order.
        outgoing: A~_j^[i] for every j, `[own nodes, nodes of j]`.
        incoming: A~_i^[j] for every j, `[nodes of j, own nodes]`.
        inverse: its part of D~^-1, `[own nodes]`.
        power: [A^_j^[i]]^l for every j.
        combined: A-_j^[i] for every j.
        received: for each power from the second, the blocks that it received, {(j, k): B_ijk}.
    """

    number: int
    nodes: Ids
    outgoing: Blocks
    incoming: Blocks
    inverse: np.ndarray
    power: Blocks = field(default_factory=list)
    combined: Blocks = field(default_factory=list)
    received: list[dict[tuple[int, int], csr_matrix]] = field(default_factory=list)

    def begin(self, beta_1: float) -> None:
        """Compute the client's rows of A^ from its own edges (line 3)."""
        self.power = [(diags(self.inverse) @ block).tocsr() for block in self.outgoing]
        self.combined = [beta_1 * block for block in self.power]

    def block(self, i: int, j: int) -> csr_matrix:
        """Return B_ijk = A~_k^[i] [A^_j^[k]]^(l-1), where this client is k (Eq. 35)."""
        return (self.incoming[i] @ self.power[j]).tocsr()

    def collect(self, blocks: dict[tuple[int, int], csr_matrix], beta: float) -> None:
        """Compute the next power from the blocks of all clients k (Eq. 36 and 37), then add it to A- (line 14)."""
        self.received.append(blocks)
        for j in range(len(self.power)):
            arrived = [b for (to, _), b in sorted(blocks.items()) if to == j]
            self.power[j] = (diags(self.inverse) @ sum(arrived[1:], arrived[0])).tocsr()
            self.combined[j] = (self.combined[j] + beta * self.power[j]).tocsr()

    def rows(self) -> csr_matrix:
        """Return A-^[i], `[own nodes, nodes]`, with columns in the order of the clients and of their nodes."""
        return hstack(self.combined, format="csr")


def clients_of(data: Data, parts: Sequence[Tensor]) -> list[Client]:
    """Return the clients before the exchange, when each knows only the edges at its own nodes."""
    a, held = with_loops(data), [np.sort(part.numpy()) for part in parts]
    owners(parts, a.shape[0])
    clients = []
    for number, nodes in enumerate(held):
        outgoing = [a[nodes][:, other].tocsr() for other in held]
        incoming = [a[other][:, nodes].tocsr() for other in held]
        degree = np.asarray(sum(block.sum(1) for block in outgoing)).ravel()
        clients.append(Client(number, nodes, outgoing, incoming, 1.0 / degree))
    return clients


def acquire(
    data: Data, parts: Sequence[Tensor], beta: Sequence[float], prune: int = 0, traffic: Traffic | None = None
) -> list[Client]:
    """Run Algorithm 3 and return the clients with their rows of A- = sum_l beta_l A^^l over l = 1, 2, ...

    Args:
        beta: beta_1, ..., beta_L.
        prune: p; client k sends the ceil(p / K) n_i largest entries of each B_ijk. With 0 it sends whole rows, and
            leaves out those that are zero.
        traffic: the ledger of messages.
    """
    require(len(beta) >= 1, "beta", "of one power at least", beta)
    clients, count = clients_of(data, parts), traffic or Traffic()
    for client in clients:
        client.begin(beta[0])
    for weight in beta[1:]:
        pairs = [(j, k) for k in range(len(clients)) for j in range(len(clients))]
        # All clients compute their blocks of one power before any of them moves on to the next.
        posted = [
            {(j, k): _pruned(clients[k].block(i, j), clients, i, j, prune) for j, k in pairs}
            for i in range(len(clients))
        ]
        for i, client in enumerate(clients):
            for (_, k), block in posted[i].items():
                if k != i:
                    _send(count, block, clients[k].incoming[i] if not prune else None)
            client.collect(posted[i], weight)
    return clients


def _pruned(block: csr_matrix, clients: Sequence[Client], i: int, j: int, prune: int) -> csr_matrix:
    """Return B~_ijk. The ids of the nodes decide among equal entries, as in `powers.largest_by_block`."""
    quota = -(-prune // len(clients)) * len(clients[i].nodes)
    if not prune or block.nnz <= quota:
        return block
    rows, cols = clients[i].nodes, clients[j].nodes
    n = 1 + max(int(client.nodes.max()) for client in clients)
    entries = block.tocoo()
    placed = csr_matrix((entries.data, (rows[entries.row], cols[entries.col])), shape=(n, n))
    kept = largest_by_block(placed, np.zeros(n, dtype=np.int64), np.array([quota]))
    return kept[rows][:, cols].tocsr()


def _send(traffic: Traffic, block: csr_matrix, through: csr_matrix | None) -> None:
    """Count a message from client to client, up to the server and down from it.

    A pruned block costs its entries and their indices. An unpruned one is sent as whole rows: those that have an edge
    to the sender, which are the rows of `through` that are not zero.
    """
    numbers = block.nnz if through is None else int((np.diff(through.indptr) > 0).sum()) * block.shape[1]
    for way in ("up", "down"):
        traffic.send(way, "power blocks", numbers)
        if through is None:
            traffic.send(way, "power indices", 2 * numbers)


def assembled(clients: Sequence[Client]) -> csr_matrix:
    """Return the rows of A- of all clients, in the order of the graph's nodes."""
    back = np.argsort(np.concatenate([client.nodes for client in clients]))
    whole = vstack([client.rows() for client in clients], format="csr")
    return whole[back][:, back].tocsr()


# -- Appendix G.1: sums instead of structure features ------------------------------------------------------------------


def aggregate_round(
    method: StructureMethod, fed: Federation, state: State, traffic: Traffic
) -> tuple[list[Tensor], Weights]:
    """Run one round in which no client sees another's structure features (Eq. 45 to 50).

    For the labelled nodes v of client i, client j sends sum_u A-_vu g(s_u) over its own nodes u (Eq. 47 and 49) and the
    Jacobian of that sum by the weights of g (Eq. 48). Client i computes its predictions and its gradients from them.

    Args:
        method: a method with fixed features, or with a Hop2Vec without g (`head="direct"`).
        fed: the federation.
        state: weights and exchanged values.
        traffic: the ledger of messages.

    Returns:
        Each client's predictions at its labelled nodes, and its gradients by the weights of g, or by S, `[clients,
        ...]`. The gradients are sums over nodes, as in the paper.
    """
    require(method.head == "direct" or method.structure != "H2V", "head", "'direct' for H2V", method.head)
    source, shared = fed.sources[0], {name: w[0] for name, w in state.shared.items()}
    of_g, s = network.weights_of_g(shared), structure_features(state)
    features = method.model(state.shared, fed.shared()).detach()[fed.batch.node_id.argsort()]
    a = torch.from_numpy(state.more.exchanged.matrices[0].toarray()).to(s)
    predictions: list[Tensor] = []
    gradients: dict[str, list[Tensor]] = {name: [] for name in of_g or ("structure",)}
    for i, part in enumerate(source.parts):
        v = part[source.data.train_mask[part]]
        total = features[v]
        jacobian = {name: torch.zeros(len(v), total.shape[1], *w.shape).to(w) for name, w in of_g.items()}
        for j, others in enumerate(source.parts):
            sums, by_weight = _message(of_g, s[others], a[v][:, others])
            total = total + sums
            jacobian = {name: jacobian[name] + part_of_j for name, part_of_j in by_weight.items()}
            if i != j:
                size = sums.numel() + sum(part_of_j.numel() for part_of_j in by_weight.values())
                for direction in ("up", "down"):
                    traffic.send(direction, "aggregates", size)
        predictions.append(total.softmax(1))
        residual = predictions[-1] - F.one_hot(source.data.y[v], total.shape[1]).to(total)
        for name, by_weights in jacobian.items():
            gradients[name].append(torch.einsum("vc,vc...->...", residual, by_weights))
        if not of_g:
            # Eq. 50: the client needs only its own rows of A-.
            gradients["structure"].append(a[v].T @ residual)
    return predictions, {name: torch.stack(by_client) for name, by_client in gradients.items()}


def _message(of_g: Weights, s: Tensor, a: Tensor) -> tuple[Tensor, Weights]:
    """Return the message of client j to client i: sums `[nodes of i, classes]`, and their Jacobian by each weight of g.

    Args:
        of_g: the weights of g.
        s: structure features of j's nodes u.
        a: A-_vu for i's nodes v, which i sent before training.
    """
    if not of_g:
        return a @ s, {}

    def sums(weights: Weights) -> Tensor:
        stacked = {name: w[None] for name, w in weights.items()}
        return a @ network.structure_network(stacked, s[None])[0]

    jacobian: Weights = torch.func.jacrev(sums)(of_g)
    return sums(of_g), jacobian


# -- the example of D.2 -----------------------------------------------------------------------------------------------

EXAMPLE_EDGES = [(1, 2), (1, 3), (2, 3), (3, 6), (4, 5), (4, 6), (5, 6), (6, 9), (7, 8), (7, 9), (8, 9)]


def example() -> tuple[Data, list[Tensor]]:
    """Return the graph of D.2 from the adjacency matrix printed there: nine nodes, three clients of three nodes."""
    edges = torch.tensor(EXAMPLE_EDGES).T - 1
    return Data(edge_index=torch.cat([edges, edges.flip(0)], 1), num_nodes=9), list(torch.arange(9).view(3, 3))


def example_clients() -> list[Client]:
    """Return the clients of the example at the first power, with A~ in place of A^, as in the paper's example."""
    clients = clients_of(*example())
    for client in clients:
        client.inverse = np.ones(3)
        client.begin(1.0)
    return clients
