"""Hold many client graphs as one block-diagonal batch, the object that every method trains on.

The clients of a run, and several runs (seeds) side by side, are one PyG `Data`. `batch.batch` says which client a
node belongs to, and `batch.ptr` says where each client starts. A stacked weight has one slice per client. `shared()`
is the same federation with one slice per run, for weights that are equal on all clients. A central model is a
federation of one client. No edge of the batch crosses a client boundary. A method exchanges through `halo`, `average`
and `broadcast`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine import client_graphs, operators
from fedrepro.engine.client_graphs import Device, Source, feature_rows
from fedrepro.engine.nn import random
from fedrepro.engine.nn.random import Clock
from fedrepro.engine.nn.sparse import Edges, SliceProducts, Sparse, pick
from fedrepro.engine.traffic import Traffic
from fedrepro.errors import one_of, require

Weights = dict[str, Tensor]
Parts = Sequence[Tensor]
DERIVED = "a part or view of another federation, or one with other features"


@dataclass(frozen=True)
class Federation:
    """Client graphs of one or several runs.

    Args:
        batch: the block-diagonal graph, with `batch`, `ptr`, `y`, `edge_index`, `edge_weight` (optional), `train_mask`,
            `val_mask`, `test_mask`, `node_id` (in the run's graph) and `ring`. The ring is 0 for a client's own nodes
            and k for a halo node k hops away.
        x: features of the batch's nodes, dense `[nodes, features]` or `Sparse`.
        run: `[clients]`, the run that a client belongs to. The clients of a run are consecutive.
        number: `[clients]`, the client's number within its run.
        seeds: one seed per run.
        sources: the graph and partition behind each run.
        slice_of: `[clients]`, the slice of a stacked weight that a client uses.
        clock: set while training, when dropout is on; None in evaluation.
        parent: the federation this one was cut out of, and its nodes there.
        derived: True for a part or view of another federation, or one with other features than its `sources`.
    """

    batch: Data
    x: Tensor | Sparse
    run: Tensor
    number: Tensor
    seeds: tuple[int, ...]
    sources: tuple[Source, ...]
    slice_of: Tensor
    traffic: Traffic
    clock: Clock | None = None
    parent: tuple[Federation, Tensor] | None = field(default=None, repr=False)
    derived: bool = False
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, data: Data, parts: Parts, seed: int = 0, *, device: Device = "cpu", dtype: torch.dtype = torch.float32
    ) -> Federation:
        """Return the federation of one run: each client holds the nodes of its part and the edges between them.

        Args:
            data: the graph, with features, labels and split masks.
            parts: one tensor of node ids per client.
            seed: the seed of all randomness of this run.

        Raises:
            ArgumentError: a part is no vector of distinct node ids, or a mask is not boolean `[nodes]`.
        """
        client_graphs.check(data, parts)
        source = Source(data, tuple(torch.sort(part).values for part in parts))
        return cls._build((source,), (seed,), 0, device, dtype)

    @classmethod
    def stack(cls, federations: Sequence[Federation]) -> Federation:
        """Return several runs side by side; no run sees another.

        Raises:
            ArgumentError: a federation is derived or holds halo nodes. Stack first, then extend.
        """
        for number, fed in enumerate(federations):
            argument, halo_nodes = f"federations[{number}]", int((fed.batch.ring > 0).sum())
            require(not fed.derived, argument, "as `Federation.of` made it", DERIVED)
            require(halo_nodes == 0, argument, "without halo nodes", halo_nodes)
        first = federations[0]
        sources = tuple(source for fed in federations for source in fed.sources)
        seeds = tuple(seed for fed in federations for seed in fed.seeds)
        return cls._build(sources, seeds, 0, first.device, first.dtype)

    @classmethod
    def _build(
        cls, sources: tuple[Source, ...], seeds: tuple[int, ...], hops: int, device: Device, dtype: torch.dtype
    ) -> Federation:
        graphs = [client_graphs.build(source, hops) for source in sources]
        clients = [len(source.parts) for source in sources]
        return cls(
            batch=client_graphs.join(graphs).to(device),
            x=client_graphs.concatenate(
                [feature_rows(s.data.x, g.node_id) for s, g in zip(sources, graphs, strict=True)], device, dtype
            ),
            run=torch.repeat_interleave(torch.arange(len(sources)), torch.tensor(clients)).to(device),
            number=torch.cat([torch.arange(count) for count in clients]).to(device),
            seeds=seeds,
            sources=sources,
            slice_of=torch.arange(sum(clients), device=device),
            traffic=Traffic(len(sources), torch.finfo(dtype).bits // 8),
        )

    def halo(self, hops: int, graphs: Sequence[Data] | None = None) -> Federation:
        """Return the same clients, each with copies of the nodes up to `hops` edges outside its own.

        A client's own nodes come first (`ring` 0), then the nodes one hop away (`ring` 1), and so on. The edges are
        those that arrive at nodes of ring `hops - 1` or less, so each such node sees all its neighbours in the whole
        graph. The caller counts the messages for this exchange in `traffic`.

        Args:
            hops: 0 gives the clients' own nodes and inner edges again.
            graphs: one per run, on the same nodes, with the features, edges and `edge_weight` that an exchange before
                training produced. None means the runs' graphs themselves.

        Raises:
            ArgumentError: `hops` is negative, or this federation is derived.
        """
        require(hops >= 0, "hops", "zero or positive", hops)
        allowed = "as `of`, `stack` or `halo` made it, since nodes and features come from its graphs"
        require(not self.derived, "a federation to extend", allowed, DERIVED)
        sources = self.sources
        if graphs is not None:
            sources = tuple(Source(g, source.parts) for g, source in zip(graphs, self.sources, strict=True))
        extended = self._build(sources, self.seeds, hops, self.device, self.dtype)
        return replace(extended, traffic=self.traffic, sources=self.sources, derived=graphs is not None)

    @property
    def device(self) -> torch.device:
        """Return the device of the tensors."""
        return self.run.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the floating-point type of the features, and so of the weights."""
        return self.x.value.dtype if isinstance(self.x, Sparse) else self.x.dtype

    @property
    def nodes(self) -> int:
        """Return the number of nodes of the batch, halo nodes included."""
        return int(self.batch.num_nodes)

    @property
    def clients(self) -> int:
        """Return the number of clients, over all runs."""
        return len(self.run)

    @property
    def runs(self) -> int:
        """Return the number of runs side by side."""
        return len(self.seeds)

    @property
    def slices(self) -> int:
        """Return the number of slices of a stacked weight: clients, or runs after `shared()`."""
        count: int = self.cached("slices", lambda: int(self.slice_of.max()) + 1)
        return count

    @property
    def features(self) -> int:
        """Return the number of features of a node."""
        return int(self.x.shape[1])

    @property
    def classes(self) -> int:
        """Return the number of classes (of labels for a multi-label graph)."""
        return int(self.sources[0].data.num_classes)

    def at(self, round: int, step: int) -> Federation:
        """Return this federation in training, at a local step of a round."""
        return replace(self, clock=Clock(round, step))

    def shared(self) -> Federation:
        """Return the same clients with one weight slice per run."""
        return self._view("shared", lambda: replace(self, slice_of=self.run, derived=True, _cache={}))

    def select(self, clients: Sequence[int]) -> Federation:
        """Return only some clients, in increasing order, with one weight slice each."""
        return self._view(("select", tuple(sorted(clients))), lambda: self._select(sorted(clients)))

    def _select(self, clients: Sequence[int]) -> Federation:
        chosen = torch.as_tensor(clients, device=self.device)
        nodes = torch.isin(self.batch.batch, chosen).nonzero().squeeze(1)
        return self._restrict(nodes, self.batch.ring[nodes], chosen)

    def focus(self, hops: int, masks: Sequence[str] = ("train",)) -> Federation:
        """Return the part of each client's graph that its outputs at the nodes of some splits depend on.

        Own nodes of these splits become `ring` 0, nodes with an edge to them become `ring` 1, and so on. Nodes beyond
        `hops` are left out. A network of `hops` propagation steps gives the same outputs at ring 0 as on the whole
        graph: degrees are those of the whole graph, and dropout depends on node ids, not on positions.

        Args:
            hops: propagation steps of the network.
            masks: the splits, from "train", "val", "test".
        """
        return self._view(("focus", hops, tuple(masks)), lambda: self._focus(hops, masks))

    def _focus(self, hops: int, masks: Sequence[str]) -> Federation:
        ring = torch.full((self.nodes,), hops + 1, device=self.device)
        wanted = torch.stack([self.batch[f"{mask}_mask"] for mask in masks]).any(0) & (self.batch.ring == 0)
        ring[wanted] = 0
        source, target = self.batch.edge_index
        for hop in range(1, hops + 1):
            near = source[ring[target] < hop]
            ring[near] = torch.clamp(ring[near], max=hop)
        nodes = (ring <= hops).nonzero().squeeze(1)
        clients = torch.arange(self.clients, device=self.device)
        return self._restrict(nodes, ring[nodes], clients, slice_of=self.slice_of)

    def _restrict(self, nodes: Tensor, ring: Tensor, clients: Tensor, slice_of: Tensor | None = None) -> Federation:
        """Return some nodes of some clients, with new rings. Propagation matrices are cut out of this federation's."""
        new_index = torch.full((self.nodes,), -1, device=self.device)
        new_index[nodes] = torch.arange(len(nodes), device=self.device)
        ends = new_index[self.batch.edge_index]
        edges = (ends >= 0).all(0)
        part = Data(edge_index=ends[:, edges], num_nodes=len(nodes))
        for name in self.batch.keys():  # noqa: SIM118 - iterating a PyG batch yields pairs
            if name == "edge_weight":
                part[name] = self.batch[name][edges]
            elif name not in ("edge_index", "batch", "ptr", "num_nodes"):
                part[name] = self.batch[name][nodes]
        part.ring = ring
        part.batch = torch.searchsorted(clients, self.batch.batch[nodes])
        part.ptr = torch.searchsorted(part.batch, torch.arange(len(clients) + 1, device=self.device))
        return replace(
            self,
            batch=part,
            x=self.x.rows(nodes) if isinstance(self.x, Sparse) else self.x.index_select(0, nodes),
            run=self.run[clients],
            number=self.number[clients],
            slice_of=torch.arange(len(clients), device=self.device) if slice_of is None else slice_of,
            parent=(self, nodes),
            derived=True,
            _cache={},
        )

    def with_features(self, x: Tensor | Sparse) -> Federation:
        """Return the same graph with other node features."""
        return replace(self, x=x, derived=True, _cache={})

    @property
    def normalized(self) -> Federation:
        """Return the same graph with features `x / s`, `-m / s` and 1, see `layers.normalized_input`.

        The mean m and the standard deviation s are those of a node's features, as in LayerNorm with epsilon 1e-5.
        """
        return self._view("normalized", lambda: self.with_features(operators.normalize(self.x)))

    @property
    def node_slice(self) -> Tensor:
        """Return the weight slice that each node uses, `[nodes]`."""
        slices: Tensor = self.cached("node_slice", self._node_slice)
        return slices

    def _node_slice(self) -> Tensor:
        return self.slice_of[self.batch.batch]

    @property
    def input(self) -> Tensor | Sparse:
        """Return the features as layers take them: `[nodes, features]`, or sparse `[nodes, slices * features]`."""
        x: Tensor | Sparse = self.cached("input", self._input)
        return x

    def _input(self) -> Tensor | Sparse:
        if not isinstance(self.x, Sparse) or self.slices == 1:
            return self.x
        return self.x.blocks(self.node_slice, self.slices)

    @property
    def node_key(self) -> Tensor:
        """Return a 64-bit key per node, from the run's seed, the client's number and the node's id, `[nodes]`."""
        keys: Tensor = self.cached("node_key", self._node_key)
        return keys

    def _node_key(self) -> Tensor:
        client = self.batch.batch.cpu().numpy()
        seed = np.asarray(self.seeds)[self.run.cpu().numpy()[client]]
        keys = random.keys("node", seed, self.number.cpu().numpy()[client], self.batch.node_id.cpu().numpy())
        return torch.from_numpy(keys.astype(np.int64)).to(self.device)

    def grouped(self, x: Tensor, weight: Tensor) -> Tensor:
        """Multiply each slice's rows of `x`, `[nodes, in]`, by its matrix of `weight`, `[slices, in, out]`."""
        counts: list[int] = self.cached("counts", self._counts)
        # On a CPU one product per slice: its rounding then depends on no other slice's size. On a GPU one batched
        # product, padded to the longest slice.
        if self.device.type == "cpu" and max(counts) > 1:
            return SliceProducts.of(x, weight, counts)
        length = max(counts)
        if min(counts) == length:
            return torch.bmm(x.view(len(counts), length, x.shape[1]), weight).flatten(0, 1)
        position = self.cached("padded", lambda: self._padded(length))
        padding = x.new_zeros(len(counts) * length, x.shape[1]).index_copy(0, position, x)
        return pick(torch.bmm(padding.view(len(counts), length, x.shape[1]), weight).flatten(0, 1), position)

    def _counts(self) -> list[int]:
        return torch.bincount(self.node_slice, minlength=self.slices).tolist()

    def _padded(self, length: int) -> Tensor:
        counts = torch.bincount(self.node_slice, minlength=self.slices)
        within = torch.arange(self.nodes, device=self.device) - (counts.cumsum(0) - counts)[self.node_slice]
        return self.node_slice * length + within

    @property
    def member(self) -> Sparse:
        """Return the matrix `[nodes, slices]` that turns a value per slice into one per node: 1 for a node's slice."""
        matrix: Sparse = self.cached("member", self._member)
        return matrix

    def _member(self) -> Sparse:
        ones = torch.ones(self.nodes, device=self.device, dtype=self.dtype)
        return Sparse.of(torch.arange(self.nodes, device=self.device), self.node_slice, ones, (self.nodes, self.slices))

    def operator(self, kind: str, reach: int | None = None) -> Sparse:
        """Return a propagation matrix `[nodes, nodes]` over the edges that each client holds.

        Args:
            kind: "gcn" = D~^-1/2 (A+I) D~^-1/2; "row" = D~^-1 (A+I); "mean" = D^-1 A; "given" = the batch's
                `edge_weight`.
            reach: rows of nodes with a larger `ring` are left empty, since no wanted output depends on them. None
                keeps all rows.
        """
        one_of("kind", kind, ("gcn", "row", "mean", "given"))
        matrix: Sparse = self.cached((kind, reach), lambda: operators.propagation(self, kind, reach))
        return matrix

    def attention_edges(self, reach: int) -> Edges:
        """Return the edges of a GAT layer, with one self-loop per node, at targets whose `ring` is at most `reach`."""
        edges: Edges = self.cached(("attention", reach), lambda: operators.attention_edges(self, reach))
        return edges

    def rows(self, mask: str) -> tuple[Tensor, Sparse]:
        """Return the own nodes of a split ("train", "val", "test"), and the matrix that averages over each client's.

        Returns:
            `[rows]` node indices and a `Sparse` `[clients, rows]` with 1/count entries. A client without such nodes
            has an empty row.
        """
        rows: tuple[Tensor, Sparse] = self.cached(("rows", mask), lambda: operators.mask_rows(self, mask))
        return rows

    def count(self, mask: str = "all") -> Tensor:
        """Count each client's own nodes of a split ("train", "val", "test") or of "all", `[clients]`."""
        count: Tensor = self.cached(("count", mask), lambda: operators.count(self, mask))
        return count

    def average(self, weights: Weights, by: Tensor) -> Weights:
        """Return the weighted mean over each run's clients, `[runs, ...]` from `[clients, ...]`.

        Args:
            weights: `[clients, ...]` under each name.
            by: `[clients]`, not negative. A client of weight 0 is left out, even if its weights are not finite. A run
                whose clients all have weight 0 gives NaN.
        """
        return operators.average(self, weights, by)

    def broadcast(self, weights: Weights) -> Weights:
        """Return each run's weights at its clients, `[clients, ...]` from `[runs, ...]`; a view if there is one run."""
        if self.runs == 1:
            return {name: w.expand(self.clients, *w.shape[1:]) for name, w in weights.items()}
        return {name: w[self.run] for name, w in weights.items()}

    def _view(self, key: Any, make: Callable[[], Federation]) -> Federation:
        """Return a view computed once, with this federation's clock and traffic.

        The kept view does not refer to this federation. A circle of references would hold the memory of a run until
        the cyclic collector comes.
        """

        def kept() -> tuple[Federation, Tensor | None]:
            view = make()
            cut = view.parent is not None and view.parent is not self.parent
            return replace(view, parent=None), view.parent[1] if cut and view.parent else None

        view: Federation
        view, nodes = self.cached(key, kept)
        parent = self.parent if nodes is None else (self, nodes)
        return replace(view, parent=parent, clock=self.clock, traffic=self.traffic)

    def cached(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what `make` computes, computed once for each `key`, independent of clock and traffic."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]
