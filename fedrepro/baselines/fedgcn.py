"""Train by FedGCN, which exchanges sums over neighbourhoods once.

Y. Yao, W. Jin, S. Ravi and C. Joe-Wong, "FedGCN: Convergence-Communication Tradeoffs in Federated Training of Graph
Convolutional Networks", NeurIPS 2023, arXiv:2201.12433. Clients exchange sums over neighbourhoods
once, and FedAvg then trains a GCN without any further exchange of features. With S = D~^-1/2 (A+I) D~^-1/2 of the
whole graph `[nodes, nodes]` and the features X `[nodes, features]`, client z adds to the sum of node v

    s_z(v) = sum over the neighbours u of v that z holds of S_vu x_u,        sum_z s_z(v) = (S X)_v               (1)

Before training (`FedGCN.start`):

1. every client sends s_z(v) for each node v that has a neighbour with it;
2. the server adds the parts, and sees only sums if they are encrypted;
3. the server sends each client the sums of its nodes and, with two hops, of their neighbours.

In each round:

4. the clients train relu((S X) W1 + b1) followed by S (.) W2 + b2 (`FedGCN.forward`);
5. the server averages the weights (`Method.aggregate`).

A GCN is exact if there are as many rounds of sums as layers. The option `hops` counts them:

    hops  a client receives                          layer 1                  layer 2
    0     nothing                                    inner edges              inner edges (FedAvg of a GCN)
    1     (S X)_v of its own nodes                   exact                    inner edges, global degrees: not exact
    2     and of their neighbours in other clients   exact there too          exact

The FedGAT paper does not say with which of them it compares (FG-Q12); we take FedGCN's own choice of 2. The authors'
code sends no sums. It gives each client the raw features of its two-hop ball, in which the degrees of the outer nodes
are wrong, so its second layer is not exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_matrix, csr_matrix, diags
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.client_graphs import Source
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require


@dataclass(frozen=True, kw_only=True)
class FedGCN(FedAvg):
    """FedAvg of a two-layer GCN whose clients hold neighbourhood sums as features.

    Args:
        hops: rounds of sums: 0, 1 or 2, as in the table above.
    """

    hops: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("hops", self.hops, (0, 1, 2))
        require(
            isinstance(self.model, GCN) and self.model.layers == 2,
            "model",
            "a GCN of two layers for FedGCN",
            self.model,
        )

    @property
    def receptive(self) -> int | None:
        """Return 1 once sums are exchanged, since only the second layer propagates then."""
        return super().receptive if self.hops == 0 else 1

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Exchange the sums (steps 1 to 3) and return clients that hold rows of S X as features."""
        if self.hops == 0:
            return super().start(fed)
        summed = fed.halo(self.hops - 1, graphs=[_propagate(source) for source in fed.sources])
        _count(fed, summed)
        return super().start(summed)

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return relu((S X) W1 + b1) at every node held, then S (.) W2 + b2 at the clients' own nodes."""
        if self.hops == 0:
            return super().forward(weights, fed, state)
        x = layers.dropout(fed, fed.input, self.model.first_dropout, "layer1")
        h = layers.linear(fed, x, weights["layer1.weight"], weights["layer1.bias"])
        h = layers.relu_dropout(fed, h, self.model.dropout, "layer2")
        return layers.gcn(fed, h, weights["layer2.weight"], weights["layer2.bias"], kind="given", reach=0)


def _propagate(source: Source) -> Data:
    """Return a run's graph with S X as features, self-loops among its edges and S as edge weights."""
    data = source.data
    row, col = data.edge_index.numpy()
    proper, n = row != col, data.num_nodes
    loops = np.arange(n)
    source_node, target = np.concatenate([row[proper], loops]), np.concatenate([col[proper], loops])
    scale = diags(1.0 / np.sqrt(np.bincount(target, minlength=n)))
    s = (scale @ coo_matrix((np.ones(len(target)), (target, source_node)), shape=(n, n)) @ scale).tocoo()
    x = (s.tocsr() @ _scipy(data.x)).tocsr()
    x.sort_indices()
    summed = data.clone()
    summed.edge_index = torch.from_numpy(np.stack([s.col, s.row]).astype(np.int64))
    summed.edge_weight = torch.from_numpy(s.data)
    density = x.nnz / (x.shape[0] * x.shape[1])
    if density < 0.25:
        ptr, col, value = (torch.from_numpy(a) for a in (x.indptr.astype(np.int64), x.indices.astype(np.int64), x.data))
        summed.x = torch.sparse_csr_tensor(ptr, col, value, size=x.shape)
    else:
        summed.x = torch.from_numpy(x.toarray())
    return summed


def _scipy(x: Tensor) -> csr_matrix:
    """Return a matrix of features in SciPy's format, in double precision."""
    sparse = Sparse.from_tensor(x)
    return csr_matrix(
        (sparse.value.double().numpy(), sparse.pattern.col.numpy(), sparse.pattern.ptr.numpy()), shape=sparse.shape
    )


def _count(fed: Federation, summed: Federation) -> None:
    """Count the exchange of sums.

    Up travels one part of width `features` for every pair of a node and a client that holds a neighbour of it, down
    every row that a client holds.
    """
    up = []
    for source in fed.sources:
        parts = set()
        row, col = source.data.edge_index.numpy()
        for client, nodes in enumerate(source.parts):
            held = np.zeros(source.data.num_nodes, dtype=bool)
            held[nodes.numpy()] = True
            # A client holds its own nodes, hence sends a part of their sums too.
            reached = np.union1d(col[held[row]], nodes.numpy())
            parts.add((client, len(reached)))
        up.append(fed.features * sum(count for _, count in parts))
    rows = torch.bincount(summed.run[summed.batch.batch], minlength=summed.runs).cpu().numpy()
    fed.traffic.send("up", "neighbour sums", np.asarray(up, dtype=float))
    fed.traffic.send("down", "neighbour sums", fed.features * rows)
