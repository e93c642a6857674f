"""What FedStruct's clients and server send, message by message (Table 1, Table 9 and Section G.1 give the orders).

Messages between clients go through the server: up once, down once for each receiver. A sparse entry is a number and two
indices, counted under their own names. Weights and gradients of a round are counted by the training loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_matrix

from fedrepro.engine.client_graphs import Source
from fedrepro.engine.federation import Federation, Weights
from fedrepro.papers.fedstruct.powers import owners, with_loops

if TYPE_CHECKING:
    from fedrepro.papers.fedstruct.method import FedStruct


def count_before(
    method: FedStruct, fed: Federation, sent: Sequence[int], matrices: Sequence[csr_matrix], columns: int
) -> None:
    """The exchange before training.

    Args:
        sent: numbers in the blocks B_ijk that clients sent each other, per run, where powers are pruned.
        columns: of S.
    """
    if method.graph == "known":
        return
    traffic, clients = fed.traffic, np.bincount(fed.run.cpu().numpy(), minlength=fed.runs)
    if method.prune:
        _relay(fed, "power blocks", np.asarray(sent, dtype=float))
        _relay(fed, "power indices", 2.0 * np.asarray(sent))
    else:
        full = [full_blocks(source, method.structure_depth) for source in fed.sources]
        _relay(fed, "power blocks", np.asarray(full, dtype=float))
    if method.sharing == "structure":
        numbers = float(columns) * np.array([source.data.num_nodes for source in fed.sources])
        traffic.send("up", "structure features", numbers)
        traffic.send("down", "structure features", numbers * (clients - 1))
        return
    entries = [_crossing(m, source) for m, source in zip(matrices, fed.sources, strict=True)]
    if not method.prune:  # rows of training nodes, whole
        entries = [rows_elsewhere(source) for source in fed.sources]
    _relay(fed, "combined entries", np.asarray(entries, dtype=float))


def count_round(method: FedStruct, fed: Federation, shared: Weights, t: int) -> None:
    """What a round needs beside weights and gradients: aggregates (Eq. 47 to 49), or the server's embeddings."""
    own = sum(w[0].numel() for name, w in shared.items() if name[:9] == "structure" and name != "structure")
    of_s = shared["structure"][0].numel() if "structure" in shared else 0
    labelled = np.bincount(fed.run.cpu().numpy(), fed.count("train").cpu().numpy(), fed.runs)
    clients = np.bincount(fed.run.cpu().numpy(), minlength=fed.runs)
    if method.sharing == "aggregates":
        # from each other client, for each labelled node v: c sums (Eq. 47), and c for each weight of g (Eq. 48)
        _relay(fed, "aggregates", labelled * (clients - 1) * fed.classes * (1.0 + own), t)
    if method.graph == "known" and method.structure != "none":
        fed.traffic.send("down", "structure embeddings", labelled * fed.classes, round=t)
        fed.traffic.send("down", "structure jacobians", labelled * fed.classes * float(own + of_s), round=t)


def _relay(fed: Federation, name: str, numbers: np.ndarray, t: int | None = None) -> None:
    for way in ("up", "down"):
        if t is None:
            fed.traffic.send(way, name, numbers)
        else:
            fed.traffic.send(way, name, numbers, round=t)


def full_blocks(source: Source, depth: int) -> float:
    """Numbers in the unpruned B_ijk of the powers 2 to `depth`, k other than i, rows without an edge to k left out.

    A row that has such an edge is sent whole, one number for every node of the graph.
    """
    a, n = with_loops(source.data), int(source.data.num_nodes)
    owner = owners(source.parts, n)
    entries = a.tocoo()
    reached = np.unique(entries.row.astype(np.int64) * len(source.parts) + owner[entries.col])
    rows = int((reached % len(source.parts) != owner[reached // len(source.parts)]).sum())
    return float(max(depth - 1, 0)) * rows * n


def rows_elsewhere(source: Source) -> float:
    """Numbers A-_vu for training nodes v of each client and nodes u of the others."""
    sizes = [len(part) for part in source.parts]
    train = [int(source.data.train_mask[part].sum()) for part in source.parts]
    return float(sum(t * (sum(sizes) - n) for t, n in zip(train, sizes, strict=True)))


def _crossing(m: csr_matrix, source: Source) -> float:
    """Entries of A- in rows of training nodes whose column belongs to another client."""
    owner, entries = owners(source.parts, m.shape[0]), m.tocoo()
    labelled = source.data.train_mask.cpu().numpy()[entries.row]
    return float((labelled & (owner[entries.row] != owner[entries.col])).sum())
