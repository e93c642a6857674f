"""What FedStruct's clients hold after the exchange, as matrices over the batch with one block of columns per slice."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import random
from fedrepro.engine.nn.sparse import Sparse


class Exchanged(NamedTuple):
    """What an exchange before training leaves, per run.

    `matrices`: A- pruned, A^ (if nothing is pruned), or D^-1 A (for a GraphSAGE at the server); `features`: S, `[runs,
    nodes, columns]`, None for Hop2Vec; `nodes`: of each run's graph.
    """

    matrices: tuple[csr_matrix, ...]
    features: Tensor | None
    nodes: int


def runs_of(fed: Federation) -> Tensor:
    """The run of each weight slice, `[slices]`."""
    runs = fed.run.new_empty(fed.slices)
    runs[fed.slice_of] = fed.run
    return runs


def keys_of(fed: Federation, runs: Tensor, nodes: int) -> Tensor:
    """`[slices * nodes]` keys made of the run's seed and the node's id, the same at all its clients."""
    seeds = np.asarray(fed.seeds)[runs.cpu().numpy()]
    made = random.keys("structure", seeds[:, None], np.arange(nodes)[None])
    return torch.from_numpy(made.astype(np.int64).ravel()).to(fed.device)


def cached(fed: Federation, got: Exchanged, name: str, make: Callable[[], Sparse]) -> Sparse:
    """A matrix made once per federation and exchange."""
    _, matrix = fed.cached(("fedstruct", name, id(got)), lambda: (got, make()))
    found: Sparse = matrix
    return found


def of_clients(fed: Federation, got: Exchanged) -> Sparse:
    """Each client's rows of A-, `[nodes, slices * graph nodes]`; rows of nodes that do not count are empty."""
    run = fed.run[fed.batch.batch].cpu().numpy()
    ids, slices = fed.batch.node_id.cpu().numpy(), fed.node_slice.cpu().numpy()
    counts = (fed.batch.ring == 0).cpu().numpy()
    row, col, value = [], [], []
    for r, matrix in enumerate(got.matrices):
        mine = np.flatnonzero((run == r) & counts)
        part = matrix[ids[mine]].tocoo()
        row.append(mine[part.row])
        col.append(part.col + slices[mine[part.row]] * got.nodes)
        value.append(part.data)
    place, at = (torch.from_numpy(np.concatenate(each).astype(np.int64)).to(fed.device) for each in (row, col))
    entries = torch.from_numpy(np.concatenate(value)).to(fed.device, fed.dtype)
    return Sparse.of(place, at, entries, (fed.nodes, fed.slices * got.nodes))


def of_slices(fed: Federation, got: Exchanged, runs: Tensor) -> Sparse:
    """The run's matrix once per slice, block-diagonal."""
    row, col, value = [], [], []
    for s, r in enumerate(runs.tolist()):
        part = got.matrices[r].tocoo()
        row.append(part.row.astype(np.int64) + s * got.nodes)
        col.append(part.col.astype(np.int64) + s * got.nodes)
        value.append(part.data)
    place, at = (torch.from_numpy(np.concatenate(each)).to(fed.device) for each in (row, col))
    entries = torch.from_numpy(np.concatenate(value)).to(fed.device, fed.dtype)
    return Sparse.of(place, at, entries, (fed.slices * got.nodes, fed.slices * got.nodes))
