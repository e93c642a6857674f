"""Build what a host of GraphSAINT or Feras holds: all nodes, the features of those it sees, and the edges it knows.

The hosts of Feras share the topology and not the features (Section 3.1). The federation that is trained on therefore
gives every client all nodes of its run's graph, in the graph's order. The features are zero at nodes that the client
cannot see. This zero is the mean of a column if columns were standardized, which is done over the training nodes of all
hosts. It is a real zero only on CS and Physics (FR-S4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import require
from fedrepro.papers.feras.saint.network import rows_of
from fedrepro.papers.feras.saint.sampler import Coefficients, Graph, Sampler, estimate


@dataclass(frozen=True)
class Host:
    """The edges that a host knows. Hosts that know the same edges are one object.

    Args:
        train: nodes of the training graph, increasing, in the numbering of the run's graph.
        graph: the graph induced on them, from which sub-graphs are drawn.
        sampler: the rule for drawing.
        known: the coefficients of that rule.
        whole: all edges, for predictions.
    """

    train: np.ndarray
    graph: Graph
    sampler: Sampler
    known: Coefficients
    whole: Graph

    @classmethod
    def of(cls, edges: np.ndarray, training: np.ndarray, sampler: dict[str, Any], coverage: float, seed: int) -> Host:
        """Build a host from its edges `[2, edges]`, a mask of its training nodes, and arguments of `Sampler.scaled`."""
        whole = Graph.of(edges, len(training))
        train = np.flatnonzero(training)
        graph, rule = whole.part(train), Sampler.scaled(nodes=len(train), **sampler)
        return cls(train, graph, rule, estimate(graph, rule, coverage, seed), whole)

    def block(self, nodes: np.ndarray, layer: str, normalise: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the propagation matrix of a sub-graph: target, source and weight of its entries.

        Args:
            nodes: training nodes, increasing.
            layer: "gcn" for D~^-1/2 (A+I) D~^-1/2, "saint" for D^-1 A.
            normalise: True weights an edge as in the training graph, times C_v / C_vu. False weights it as in the
                sub-graph (Feras, Section 4.1).
        """
        target, source, entry = self.graph.induced(nodes)
        degree = self.graph.degree[nodes] if normalise else np.bincount(target, minlength=len(nodes))
        ratio = self.known.edge_ratio(self.graph, entry) if normalise else np.ones(len(entry))
        if layer == "saint":
            return target, source, ratio / degree[target]
        loop, root = np.arange(len(nodes)), 1.0 / np.sqrt(degree + 1.0)
        weight = np.concatenate([ratio * root[target] * root[source], root * root])
        return np.concatenate([target, loop]), np.concatenate([source, loop]), weight

    @cached_property
    def _bags(self) -> dict[torch.device, tuple[Tensor, ...]]:
        """Return neighbours, row pointers and degrees as tensors, by the device that has asked for them."""
        return {}

    @torch.no_grad()
    def spread(self, h: Tensor, layer: str) -> Tensor:
        """Propagate `[nodes, width]` over all edges, without a gradient and without storing a weight per edge."""
        if h.device not in self._bags:
            parts = self.whole.col, self.whole.ptr.astype(np.int32), self.whole.degree
            self._bags[h.device] = tuple(torch.from_numpy(part).to(h.device) for part in parts)
        col, ptr, degree = self._bags[h.device]
        if layer == "saint":
            sums = F.embedding_bag(col, h, ptr, mode="sum", include_last_offset=True)
            return sums / degree.clamp(min=1)[:, None].to(h.dtype)
        root = (degree + 1).to(h.dtype).rsqrt()[:, None]
        scaled = h * root
        sums = F.embedding_bag(col, scaled, ptr, mode="sum", include_last_offset=True)
        return sums.add_(scaled).mul_(root)


def hold_every_node(fed: Federation, labels: str, topology: str, evaluate: str) -> Federation:
    """Give each client all nodes of its run's graph.

    Args:
        fed: the clients with their own nodes.
        labels: "visible" or "all", the labels that enter a host's loss (FR-Q4): `train_mask`.
        topology: "shared" or "visible", the edges that a host knows.
        evaluate: "all" or "visible", the nodes that are scored at a host (FR-Q6): `val_mask`, `test_mask`. With the
            topology "visible" only visible nodes are scored.

    Returns:
        A federation whose batch has two more node attributes: `visible`, True if the client sees the node's features,
        and `training`, True if the client's training graph has the node.

    Raises:
        ArgumentError: a client has halo nodes.
    """
    require(not bool((fed.batch.ring > 0).any()), "fed", "made by `Federation.of`, without halo", fed.nodes)
    parts: list[dict[str, Tensor]] = []
    ptr = [0]
    new_row = torch.empty(fed.nodes, dtype=torch.long)
    for client, run in enumerate(fed.run.tolist()):
        data, rows = fed.sources[run].data, rows_of(fed, client)
        ids, count = fed.batch.node_id[rows].cpu(), data.num_nodes
        visible = torch.zeros(count, dtype=torch.bool)
        visible[ids] = True
        new_row[rows] = ids + ptr[-1]
        held = visible if topology == "visible" else torch.ones_like(visible)
        scored = visible if "visible" in (evaluate, topology) else held
        parts.append(
            {
                "y": data.y,
                "node_id": torch.arange(count),
                "ring": torch.zeros(count, dtype=torch.long),
                "batch": torch.full((count,), client),
                "visible": visible,
                "training": data.train_mask & held,
                "train_mask": data.train_mask & (held if labels == "all" else visible),
                "val_mask": data.val_mask & scored,
                "test_mask": data.test_mask & scored,
            }
        )
        ptr.append(ptr[-1] + count)
    batch = Data(edge_index=_edges(fed, parts, topology, ptr), num_nodes=ptr[-1], ptr=torch.tensor(ptr))
    for name in parts[0]:
        batch[name] = torch.cat([part[name] for part in parts])
    x = _among_all(fed.x, new_row.to(fed.device), ptr[-1])
    return replace(fed, batch=batch.to(fed.device), x=x, _cache={})


def _edges(fed: Federation, parts: list[dict[str, Tensor]], topology: str, ptr: list[int]) -> Tensor:
    """Return the edges of all clients.

    Writing those of each client into one array saves a gigabyte on a graph of Reddit's size.
    """
    known = [fed.sources[run].data.edge_index for run in fed.run.tolist()]
    if topology == "visible":
        known = [edges[:, part["visible"][edges].all(0)] for edges, part in zip(known, parts, strict=True)]
    out = torch.empty(2, sum(edges.shape[1] for edges in known), dtype=torch.long)
    done = 0
    for start, edges in zip(ptr, known, strict=False):
        torch.add(edges, start, out=out[:, done : done + edges.shape[1]])
        done += edges.shape[1]
    return out


def _among_all(x: Tensor | Sparse, rows: Tensor, nodes: int) -> Tensor | Sparse:
    """Return `x` as certain rows of `nodes` rows; the others are zero."""
    if isinstance(x, Sparse):
        return Sparse.of(rows[x.pattern.row], x.pattern.col, x.value, (nodes, x.shape[1]))
    return x.new_zeros(nodes, x.shape[1]).index_copy_(0, rows, x)


def sharing_hosts(fed: Federation, sampler: dict[str, Any], coverage: float) -> tuple[Host, ...]:
    """Return one host per client, all of a run being one object that knows the run's graph."""
    of_run = [
        Host.of(source.data.edge_index.numpy(), source.data.train_mask.numpy(), sampler, coverage, seed)
        for source, seed in zip(fed.sources, fed.seeds, strict=True)
    ]
    return tuple(of_run[run] for run in fed.run.tolist())


def hosts(fed: Federation, sampler: dict[str, Any], coverage: float) -> tuple[Host, ...]:
    """Return one host per client of a federation from `hold_every_node`, which knows the edges of the batch."""
    built: dict[tuple[int, bytes, bytes], Host] = {}
    out = []
    batch = fed.batch
    owner = batch.batch[batch.edge_index[1]]
    for client, run in enumerate(fed.run.tolist()):
        rows = rows_of(fed, client)
        edges = (batch.edge_index[:, owner == client] - rows.start).cpu().numpy()
        training = batch.training[rows].cpu().numpy()
        key = (run, edges.tobytes(), training.tobytes())
        if key not in built:
            built[key] = Host.of(edges, training, sampler, coverage, fed.seeds[run])
        out.append(built[key])
    return tuple(out)
