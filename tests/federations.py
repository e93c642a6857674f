"""A federation of unequal clients, and what each of its clients holds."""

from __future__ import annotations

from typing import Any

import torch
from graphs import block_model, client_graph, unequal_parts, without_labels
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.sparse import Sparse

F64 = torch.float64
SIZES = {"features": 7, "classes": 3, "hidden": 4}


def federation(
    seed: int = 0, *, nodes: int = 40, clients: int = 4, sparse: bool = False, directed: bool = True
) -> Federation:
    """Clients of unequal size, the first of one node, the third without training nodes."""
    data = block_model(nodes, seed=seed, directed=directed, sparse=sparse)
    parts = unequal_parts(nodes, clients, seed)
    fed = Federation.of(without_labels(data, parts, [2]), parts, seed, dtype=F64)
    assert isinstance(fed.x, Sparse) == sparse
    return fed


def with_graphs(**options: Any) -> tuple[Federation, list[Data]]:
    """The federation, and what each client holds as a separate graph."""
    fed = federation(**options)
    data, parts = fed.sources[0]
    return fed, [client_graph(data, part) for part in parts]


def dense(fed: Federation) -> Tensor:
    return fed.x.dense() if isinstance(fed.x, Sparse) else fed.x


def held(fed: Federation, client: int) -> tuple[list[int], list[int], set[tuple[int, int]]]:
    """Node ids and rings of a client in order, and its edges as pairs of node ids; other fields checked on the way."""
    rows = (fed.batch.batch == client).nonzero().squeeze(1)
    assert rows.tolist() == list(range(int(fed.batch.ptr[client]), int(fed.batch.ptr[client + 1])))
    ids = fed.batch.node_id[rows]
    data = fed.sources[int(fed.run[client])].data
    for name in ("y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(fed.batch[name][rows], data[name][ids])
    whole = data.x.to_dense() if data.x.layout == torch.sparse_csr else data.x
    assert torch.equal(dense(fed)[rows], whole[ids].to(fed.dtype))
    pairs = fed.batch.edge_index[:, torch.isin(fed.batch.edge_index[1], rows)]
    assert bool(torch.isin(pairs, rows).all())
    named = fed.batch.node_id[pairs].T.tolist()
    edges = {(a, b) for a, b in named}
    assert len(edges) == len(named)
    return ids.tolist(), fed.batch.ring[rows].tolist(), edges
