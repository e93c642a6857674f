"""FedGCN (Yao et al. 2023): sums over neighbourhoods are exchanged once, then a GCN is trained by FedAvg.

With S = D~^-1/2 (A+I) D~^-1/2 of the whole graph, each client sends to the server its part of (S X)_v for every node v
that has a neighbour with it; the server adds the parts and sees only sums. With as many rounds of sums as
layers a GCN is exact:

    hops  a client receives                          layer 1                  layer 2
    0     nothing                                    inner edges              inner edges (= FedAvg of a GCN)
    1     (SX)_v of its own nodes                    exact                    inner edges, global degrees: not exact
    2     and of their neighbours in other clients   exact there too          exact
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import coo_matrix, csr_matrix, diags
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.client_graphs import Source
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require


@dataclass(frozen=True, kw_only=True)
class FedGCN(FedAvg):
    """Args:
    hops: 0, 1 or 2 (see the table above); the FedGAT paper does not say which it compares with (FG-Q12), 2 is
        FedGCN's own choice.
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
        """Only the second layer propagates once sums are exchanged."""
        return super().receptive if self.hops == 0 else 1

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """The exchange of sums; afterwards each client holds rows of S X as its features."""
        if self.hops == 0:
            return super().start(fed)
        summed = fed.halo(self.hops - 1, graphs=[_propagated(source) for source in fed.sources])
        _count(fed, summed)
        return super().start(summed)

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """relu((SX) W1 + b1) at every node held, then S (. W2) + b2 at own nodes."""
        if self.hops == 0:
            return super().forward(weights, fed, state)
        x = layers.dropout(fed, fed.input, self.model.first_dropout, "layer1")
        h = F.relu(layers.linear(fed, x, weights["layer1.weight"], weights["layer1.bias"]))
        h = layers.dropout(fed, h, self.model.dropout, "layer2")
        return layers.gcn(fed, h, weights["layer2.weight"], weights["layer2.bias"], kind="given", reach=0)


def _propagated(source: Source) -> Data:
    """The run's graph with S X as features, self-loops among its edges and S as their weights."""
    data = source.data
    row, col = data.edge_index.numpy()
    proper, n = row != col, data.num_nodes
    loops = np.arange(n)
    source_node, target = np.concatenate([row[proper], loops]), np.concatenate([col[proper], loops])
    scale = diags(1.0 / np.sqrt(np.bincount(target, minlength=n)))
    s = (scale @ coo_matrix((np.ones(len(target)), (target, source_node)), shape=(n, n)) @ scale).tocoo()
    x = (s.tocsr() @ _scipy(data.x)).tocsr()
    x.sort_indices()
    made = data.clone()
    made.edge_index = torch.from_numpy(np.stack([s.col, s.row]).astype(np.int64))
    made.edge_weight = torch.from_numpy(s.data)
    density = x.nnz / (x.shape[0] * x.shape[1])
    if density < 0.25:
        ptr, col, value = (torch.from_numpy(a) for a in (x.indptr.astype(np.int64), x.indices.astype(np.int64), x.data))
        made.x = torch.sparse_csr_tensor(ptr, col, value, size=x.shape)
    else:
        made.x = torch.from_numpy(x.toarray())
    return made


def _scipy(x: Tensor) -> csr_matrix:
    sparse = Sparse.from_tensor(x)
    return csr_matrix(
        (sparse.value.double().numpy(), sparse.pattern.col.numpy(), sparse.pattern.ptr.numpy()), shape=sparse.shape
    )


def _count(fed: Federation, summed: Federation) -> None:
    """Up: one part of width `features` for every (node, client holding a neighbour of it); down: every row a client
    holds.
    """
    up = []
    for source in fed.sources:
        pairs = set()
        row, col = source.data.edge_index.numpy()
        for client, part in enumerate(source.parts):
            held = np.zeros(source.data.num_nodes, dtype=bool)
            held[part.numpy()] = True
            reached = np.union1d(col[held[row]], part.numpy())  # a node's own client holds it, hence sends a part
            pairs.add((client, len(reached)))
        up.append(fed.features * sum(count for _, count in pairs))
    held_rows = torch.bincount(summed.run[summed.batch.batch], minlength=summed.runs).cpu().numpy()
    fed.traffic.send("up", "neighbour sums", np.asarray(up, dtype=float))
    fed.traffic.send("down", "neighbour sums", fed.features * held_rows)
