"""What a host of GraphSAINT and Feras holds: every node of the graph, features of those it sees, edges to sample from.

Feras' hosts share the topology and not the features (Section 3.1): the federation trained on gives every client all
nodes of its run's graph, in the graph's order, with zeros where it cannot see.
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
from fedrepro.papers.feras.saint import sampler as saint

LAYERS = ("gcn", "saint")


@dataclass(frozen=True)
class Host:
    """The edges a host knows; hosts that know the same ones are one object.

    Args:
        train: nodes of the training graph, increasing, in the numbering of the run's graph.
        graph: induced on them, what sub-graphs are drawn from.
        sampler: how.
        known: its coefficients.
        whole: all edges, what is predicted on.
    """

    train: np.ndarray
    graph: saint.Graph
    sampler: saint.Sampler
    known: saint.Coefficients
    whole: saint.Graph

    def block(self, nodes: np.ndarray, layer: str, normalise: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Propagation within the sub-graph on some training nodes: target, source, weight.

        The weight of an edge is that of the training graph times C_v / C_vu; without `normalise` that of the sub-graph
        on its own (Feras, Section 4.1).
        """
        target, source, entry = self.graph.induced(nodes)
        degree = self.graph.degree[nodes] if normalise else np.bincount(target, minlength=len(nodes))
        ratio = self.known.edge_ratio(self.graph, entry) if normalise else np.ones(len(entry))
        if layer == "saint":  # D^-1 A
            return target, source, ratio / degree[target]
        own, root = np.arange(len(nodes)), 1.0 / np.sqrt(degree + 1.0)  # D~^-1/2 (A+I) D~^-1/2
        weight = np.concatenate([ratio * root[target] * root[source], root * root])
        return np.concatenate([target, own]), np.concatenate([source, own]), weight

    @cached_property
    def _bags(self) -> tuple[Tensor, Tensor, Tensor]:
        graph = self.whole
        return (
            torch.from_numpy(graph.col),
            torch.from_numpy(graph.ptr.astype(np.int32)),
            torch.from_numpy(graph.degree),
        )

    @torch.no_grad()
    def spread(self, h: Tensor, layer: str) -> Tensor:
        """One propagation over all edges, `[nodes, width]`, without a gradient and without a weight per edge."""
        col, ptr, degree = (part.to(h.device) for part in self._bags)
        if layer == "saint":
            sums = F.embedding_bag(col, h, ptr, mode="sum", include_last_offset=True)
            return sums / degree.clamp(min=1)[:, None].to(h.dtype)
        root = (degree + 1).to(h.dtype).rsqrt()[:, None]
        scaled = h * root
        sums = F.embedding_bag(col, scaled, ptr, mode="sum", include_last_offset=True)
        return sums.add_(scaled).mul_(root)


def hold_every_node(fed: Federation, labels: str, topology: str, evaluate: str) -> Federation:
    """Each client with all nodes of its run's graph, own or not.

    Args:
        labels: "visible" or "all", whose labels enter a host's loss (FR-Q4): `train_mask`.
        topology: "shared" or "visible", which edges it knows.
        evaluate: "all" or "visible", which nodes are scored at it (FR-Q6): `val_mask`, `test_mask`.

    Returns:
        A federation whose batch has two more node attributes: `visible`, whether the client sees the node's features,
        and `training`, whether its training graph has the node.
    """
    require(not bool((fed.batch.ring > 0).any()), "fed", "made by `Federation.of`, without halo", fed.nodes)
    parts: list[dict[str, Tensor]] = []
    ptr = [0]
    place = torch.empty(fed.nodes, dtype=torch.long)
    for client, run in enumerate(fed.run.tolist()):
        data, rows = fed.sources[run].data, slice(int(fed.batch.ptr[client]), int(fed.batch.ptr[client + 1]))
        ids = fed.batch.node_id[rows].cpu()
        visible = torch.zeros(data.num_nodes, dtype=torch.bool)
        visible[ids] = True
        place[rows] = ids + ptr[-1]
        held = visible if topology == "visible" else torch.ones_like(visible)
        scored = visible if "visible" in (evaluate, topology) else held
        parts.append(
            {
                "y": data.y,
                "node_id": torch.arange(data.num_nodes),
                "ring": torch.zeros(data.num_nodes, dtype=torch.long),
                "batch": torch.full((data.num_nodes,), client),
                "visible": visible,
                "training": data.train_mask & held,
                "train_mask": data.train_mask & (held if labels == "all" else visible),
                "val_mask": data.val_mask & scored,
                "test_mask": data.test_mask & scored,
            }
        )
        ptr.append(ptr[-1] + data.num_nodes)
    batch = Data(edge_index=_edges(fed, parts, topology, ptr), num_nodes=ptr[-1], ptr=torch.tensor(ptr))
    for name in parts[0]:
        batch[name] = torch.cat([part[name] for part in parts])
    return replace(fed, batch=batch.to(fed.device), x=_placed(fed.x, place.to(fed.device), ptr[-1]), _cache={})


def _edges(fed: Federation, parts: list[dict[str, Tensor]], topology: str, ptr: list[int]) -> Tensor:
    """Every client's edges, written into place: a copy beside them would be a gigabyte on a graph of Reddit's size."""
    known = [fed.sources[run].data.edge_index for run in fed.run.tolist()]
    if topology == "visible":
        known = [edges[:, part["visible"][edges].all(0)] for edges, part in zip(known, parts, strict=True)]
    out = torch.empty(2, sum(edges.shape[1] for edges in known), dtype=torch.long)
    done = 0
    for start, edges in zip(ptr, known, strict=False):
        torch.add(edges, start, out=out[:, done : done + edges.shape[1]])
        done += edges.shape[1]
    return out


def _placed(x: Tensor | Sparse, place: Tensor, nodes: int) -> Tensor | Sparse:
    """The rows of `x` at `place` among `nodes` rows, the others zero."""
    if isinstance(x, Sparse):
        return Sparse.of(place[x.pattern.row], x.pattern.col, x.value, (nodes, x.shape[1]))
    out = x.new_zeros(nodes, x.shape[1])
    out[place] = x
    return out


def sharing_hosts(fed: Federation, sampler: dict[str, Any], coverage: float) -> tuple[Host, ...]:
    """One host per client, those of a run being one object: all know the run's graph."""
    every = [
        _host(source.data.edge_index.numpy(), source.data.train_mask.numpy(), sampler, coverage, seed)
        for source, seed in zip(fed.sources, fed.seeds, strict=True)
    ]
    return tuple(every[run] for run in fed.run.tolist())


def hosts(fed: Federation, sampler: dict[str, Any], coverage: float) -> tuple[Host, ...]:
    """One host per client of a federation that `hold_every_node` made, from the edges its batch holds now."""
    made: list[tuple[int, np.ndarray, np.ndarray, Host]] = []
    out = []
    batch = fed.batch
    owner = batch.batch[batch.edge_index[1]] if fed.clients > 1 else None
    for client, run in enumerate(fed.run.tolist()):
        rows = slice(int(batch.ptr[client]), int(batch.ptr[client + 1]))
        known = batch.edge_index if owner is None else batch.edge_index[:, owner == client]
        edges, training = (known - rows.start).cpu().numpy(), batch.training[rows].cpu().numpy()
        same = (
            host
            for which, a, b, host in made
            if which == run and np.array_equal(a, edges) and np.array_equal(b, training)
        )
        found = next(same, None)
        if found is None:
            found = _host(edges, training, sampler, coverage, fed.seeds[run])
            made.append((run, edges, training, found))
        out.append(found)
    return tuple(out)


def _host(edges: np.ndarray, training: np.ndarray, sampler: dict[str, Any], coverage: float, seed: int) -> Host:
    whole = saint.Graph.of(edges, len(training))
    train = np.flatnonzero(training)
    graph = whole.part(train)
    chosen = saint.Sampler.scaled(nodes=len(train), **sampler)
    return Host(train, graph, chosen, saint.estimate(graph, chosen, coverage, seed), whole)
