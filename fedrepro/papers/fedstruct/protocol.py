"""FedStruct's exchanges word by word: Algorithm 3, the round of Section G.1 that shares sums, the example of D.2.

Here a client is an object that holds what it may hold and nothing more; what reaches another goes through `traffic`.
The forms used in training (`fedstruct_powers`, `fedstruct`) give the same numbers in less time.
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
from fedrepro.papers.fedstruct import network as net
from fedrepro.papers.fedstruct.method import FedStruct
from fedrepro.papers.fedstruct.powers import Ids, largest_by_block, owners, with_loops

Blocks = list[csr_matrix]

# -- Algorithm 3 ------------------------------------------------------------------------------------------------------


@dataclass
class Client:
    """What a client holds in Algorithm 3.

    Args:
        number: i.
        nodes: its nodes' ids, in increasing order.
        outgoing: A~_j^[i] for every j, `[own nodes, nodes of j]`.
        incoming: A~_i^[j] for every j, `[nodes of j, own nodes]`.
        inverse: its part of D~^-1, `[own nodes]`.
        power: [A^_j^[i]]^l for every j.
        combined: A-_j^[i] for every j.
        received: for each power from the second, the blocks that arrived: {(j, k): B_ijk}.
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
        """Line 3: the client's rows of A^ from its own edges."""
        self.power = [(diags(self.inverse) @ block).tocsr() for block in self.outgoing]
        self.combined = [beta_1 * block for block in self.power]

    def block(self, i: int, j: int) -> csr_matrix:
        """B_ijk = A~_k^[i] [A^_j^[k]]^(l-1), this client being k (Eq. 35; Algorithm 3 prints [K] for [k])."""
        return (self.incoming[i] @ self.power[j]).tocsr()

    def collect(self, blocks: dict[tuple[int, int], csr_matrix], beta: float) -> None:
        """Eq. 36 or 37 and line 14: the next power from the blocks of all clients k, then A- with it."""
        self.received.append(blocks)
        for j in range(len(self.power)):
            arrived = [b for (to, _), b in sorted(blocks.items()) if to == j]
            self.power[j] = (diags(self.inverse) @ sum(arrived[1:], arrived[0])).tocsr()
            self.combined[j] = (self.combined[j] + beta * self.power[j]).tocsr()

    def rows(self) -> csr_matrix:
        """A-^[i], `[own nodes, nodes]`, columns in the order of clients and their nodes."""
        return hstack(self.combined, format="csr")


def clients_of(data: Data, parts: Sequence[Tensor]) -> list[Client]:
    """The clients before the exchange: each knows the edges at its own nodes."""
    a, held = with_loops(data), [np.sort(part.numpy()) for part in parts]
    owners(parts, a.shape[0])
    made = []
    for number, nodes in enumerate(held):
        outgoing = [a[nodes][:, other].tocsr() for other in held]
        incoming = [a[other][:, nodes].tocsr() for other in held]
        degree = np.asarray(sum(block.sum(1) for block in outgoing)).ravel()
        made.append(Client(number, nodes, outgoing, incoming, 1.0 / degree))
    return made


def acquire(
    data: Data, parts: Sequence[Tensor], beta: Sequence[float], prune: int = 0, traffic: Traffic | None = None
) -> list[Client]:
    """Algorithm 3: the clients with their rows of A- = sum_l beta[l] A^^l over l = 1, 2, ...

    Args:
        beta: beta_1, ..., beta_L.
        prune: p; client k sends the ceil(p / K) n_i largest entries of each B_ijk (0: rows that are not zero, whole).
        traffic: counts what crosses a border.
    """
    require(len(beta) >= 1, "beta", "of one power at least", beta)
    clients, count = clients_of(data, parts), traffic or Traffic()
    for client in clients:
        client.begin(beta[0])
    for weight in beta[1:]:
        posted = {i: {(j, k.number): _pruned(k.block(i, j), clients, i, j, prune) for k in clients
                      for j in range(len(clients))} for i in range(len(clients))}  # fmt: skip
        for i, client in enumerate(clients):
            for (_, k), block in posted[i].items():
                if k != i:
                    _send(count, block, clients[k].incoming[i] if not prune else None)
            client.collect(posted[i], weight)
    return clients


def _pruned(block: csr_matrix, clients: Sequence[Client], i: int, j: int, prune: int) -> csr_matrix:
    """B~_ijk; equal entries are told apart by the nodes' ids, as in `fedstruct_powers`."""
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
    """From client to client by way of the server: entries with their indices; or, where nothing is pruned, every row
    that has an edge to the sender (`through`), whole.
    """
    numbers = block.nnz if through is None else int((np.diff(through.indptr) > 0).sum()) * block.shape[1]
    for way in ("up", "down"):
        traffic.send(way, "power blocks", numbers)
        if through is None:
            traffic.send(way, "power indices", 2 * numbers)


def assembled(clients: Sequence[Client]) -> csr_matrix:
    """All clients' rows of A-, in the order of the graph's nodes."""
    back = np.argsort(np.concatenate([client.nodes for client in clients]))
    whole = vstack([client.rows() for client in clients], format="csr")
    return whole[back][:, back].tocsr()


# -- Section G.1: sums instead of structure features ------------------------------------------------------------------


def aggregate_round(method: FedStruct, fed: Federation, state: State, traffic: Traffic) -> tuple[list[Tensor], Weights]:
    """One round in which no client sees another's structure features (Eq. 45 to 50).

    Client j sends client i, for i's labelled nodes v, sum_u A-_vu g(s_u) over its own nodes u (Eq. 47, 49) and the
    Jacobian of it by the weights of g (Eq. 48). Client i then has its predictions, and its gradients from them.

    Args:
        method: with features that are fixed, or a Hop2Vec without g (`head="direct"`).

    Returns:
        Each client's predictions at its labelled nodes, and its gradients by the weights of g, or by S, `[clients,
        ...]`: sums over nodes, as in the paper.
    """
    require(method.head == "direct" or method.structure != "H2V", "head", "'direct' for H2V", method.head)
    source, got = fed.sources[0], state.more.exchanged
    shared = {name: w[0] for name, w in state.shared.items()}
    own = {name: w for name, w in shared.items() if name[:9] == "structure" and name != "structure"}
    s = shared["structure"] if got.features is None else got.features[0]
    features = method.model(state.shared, fed.shared()).detach()[fed.batch.node_id.argsort()]
    a = torch.from_numpy(got.matrices[0].toarray()).to(s)
    predictions: list[Tensor] = []
    found: dict[str, list[Tensor]] = {name: [] for name in own or ("structure",)}
    for i, part in enumerate(source.parts):
        v = part[source.data.train_mask[part]]
        total, jacobian = (
            features[v],
            {name: torch.zeros(len(v), features.shape[1], *w.shape).to(w) for name, w in own.items()},
        )
        for j, others in enumerate(source.parts):
            sums, by = _message(own, s[others], a[v][:, others])
            total = total + sums
            jacobian = {name: jacobian[name] + each for name, each in by.items()}
            if i != j:
                size = sums.numel() + sum(each.numel() for each in by.values())
                for way in ("up", "down"):
                    traffic.send(way, "aggregates", size)
        predictions.append(total.softmax(1))
        residual = predictions[-1] - F.one_hot(source.data.y[v], total.shape[1]).to(total)
        for name, each in jacobian.items():
            found[name].append(torch.einsum("vc,vc...->...", residual, each))
        if not own:
            found["structure"].append(a[v].T @ residual)  # Eq. 50, rows of A- being the client's own
    return predictions, {name: torch.stack(each) for name, each in found.items()}


def _message(own: Weights, s: Tensor, a: Tensor) -> tuple[Tensor, Weights]:
    """What client j computes for client i: `[nodes of i, classes]` and its Jacobian by each weight of g.

    Args:
        s: j's structure features. a: A-_vu for i's nodes v and j's nodes u, which i sent once.
    """
    if not own:
        return a @ s, {}
    key = torch.zeros(len(s), dtype=torch.int64)

    def sums(weights: Weights) -> Tensor:
        stacked = {name: w[None] for name, w in weights.items()}
        return a @ net.structure_mlp(stacked, s[None], key, None, 0.0)[0]

    jacobian: Weights = torch.func.jacrev(sums)(own)
    return sums(own), jacobian


# -- the example of D.2 -----------------------------------------------------------------------------------------------

EXAMPLE_EDGES = [(1, 2), (1, 3), (2, 3), (3, 6), (4, 5), (4, 6), (5, 6), (6, 9), (7, 8), (7, 9), (8, 9)]


def example() -> tuple[Data, list[Tensor]]:
    """The graph of D.2, from the adjacency matrix printed there: nine nodes, three clients of three."""
    edges = torch.tensor(EXAMPLE_EDGES).T - 1
    return Data(edge_index=torch.cat([edges, edges.flip(0)], 1), num_nodes=9), list(torch.arange(9).view(3, 3))


def example_clients() -> list[Client]:
    """Its clients at the first power, with A^ taken for A~ as the example does "for simplicity"."""
    clients = clients_of(*example())
    for client in clients:
        client.inverse = np.ones(3)
        client.begin(1.0)
    return clients
