"""Many client graphs as one block-diagonal batch: the object every method trains on.

The clients of a run, and several runs (seeds) side by side, are one PyG `Data`: `batch.batch` says which client a
node belongs to and `batch.ptr` where each client starts. Stacked weights have one slice per client; `shared()` is the
same federation with one slice per run, for weights that are equal on all clients. A central model is a federation of
one client. Nothing crosses a client boundary in the batch; what a method exchanges goes through `halo`, `average` and
`broadcast`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.nn import random
from fedrepro.engine.nn.sparse import Edges, SliceProducts, Sparse
from fedrepro.engine.traffic import Traffic
from fedrepro.errors import one_of, require

Weights = dict[str, Tensor]
Array = npt.NDArray[np.int64]
MASKS = ("train_mask", "val_mask", "test_mask")
SPARSE_BELOW = 0.25  # denser features are multiplied as they are
DERIVED = "a part or view of another federation, or one with other features"


class Source(NamedTuple):
    """The graph behind one run and its partition: what the server and the clients together hold."""

    data: Data
    parts: tuple[Tensor, ...]


class Clock(NamedTuple):
    """Where training stands; layers draw their dropout masks from it."""

    round: int
    step: int


@dataclass(frozen=True)
class Federation:
    """Client graphs of one or several runs.

    Args:
        batch: block-diagonal graph with `batch`, `ptr`, `y`, `edge_index`, `edge_weight` (optional), `train_mask`,
            `val_mask`, `test_mask`, `node_id` (in the run's graph), `ring` (0 for a client's own nodes, k for a halo
            node k hops away).
        x: features of the batch's nodes, dense `[nodes, features]` or `Sparse`.
        run: `[clients]`, which run a client belongs to; clients of a run are consecutive.
        number: `[clients]`, the client's number within its run.
        seeds: one per run.
        sources: the graph and partition behind each run.
        slice_of: `[clients]`, which slice of a stacked weight a client uses.
        clock: set while training (dropout on), None in evaluation.
        parent: the federation this one was cut out of, and its nodes there.
        derived: whether this one is not what its `sources` make: a part or view of another, or with other features.
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

    # -- making one ---------------------------------------------------------------------------------------------------

    @classmethod
    def of(
        cls, data: Data, parts: Sequence[Tensor], seed: int = 0, *, device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Federation:  # fmt: skip
        """One run: each client holds the nodes of its part and the edges between them.

        Args:
            data: the graph, with features, labels and split masks.
            parts: one tensor of node ids per client.
            seed: of all randomness of this run.

        Raises:
            ArgumentError: a part is no vector of different nodes of the graph, or a mask is not boolean, one a node.
        """
        _check(data, parts)
        source = Source(data, tuple(torch.sort(part).values for part in parts))
        return cls._build((source,), (seed,), 0, device, dtype)

    @classmethod
    def stack(cls, federations: Sequence[Federation]) -> Federation:
        """Several runs side by side; none sees another.

        Raises:
            ArgumentError: a federation holds halo nodes, is a part or view of another, or has other features; stack
                first, then extend.
        """
        for number, fed in enumerate(federations):
            what, copies = f"federations[{number}]", int((fed.batch.ring > 0).sum())
            require(not fed.derived, what, "as `Federation.of` made it", DERIVED)
            require(copies == 0, what, "without halo nodes", copies)
        first = federations[0]
        sources = tuple(source for fed in federations for source in fed.sources)
        seeds = tuple(seed for fed in federations for seed in fed.seeds)
        return cls._build(sources, seeds, 0, first.device, first.dtype)

    @classmethod
    def _build(
        cls,
        sources: tuple[Source, ...],
        seeds: tuple[int, ...],
        hops: int,
        device: str | torch.device,
        dtype: torch.dtype,
    ) -> Federation:
        blocks = [_client_graphs(source, hops) for source in sources]
        clients = [len(source.parts) for source in sources]
        return cls(
            batch=_side_by_side(blocks).to(device),
            x=_concatenate(
                [feature_rows(source.data.x, g.node_id) for source, g in zip(sources, blocks, strict=True)],
                device,
                dtype,
            ),
            run=torch.repeat_interleave(torch.arange(len(sources)), torch.tensor(clients)).to(device),
            number=torch.cat([torch.arange(count) for count in clients]).to(device),
            seeds=seeds,
            sources=sources,
            slice_of=torch.arange(sum(clients), device=device),
            traffic=Traffic(len(sources), torch.finfo(dtype).bits // 8),
        )

    def halo(self, hops: int, graphs: Sequence[Data] | None = None) -> Federation:
        """The same clients, each with copies of the nodes up to `hops` edges outside its own.

        A client's own nodes come first (`ring` 0), then the nodes one hop away (`ring` 1), and so on. Edges are those
        arriving at nodes of ring `hops - 1` or less, so each such node sees all its neighbours in the whole graph.
        What travels to make it is for the caller to count in `traffic`.

        Args:
            hops: 0 gives the clients' own nodes and inner edges again.
            graphs: one per run, on the same nodes: what an exchange before training made of the runs' graphs
                (features, edges, `edge_weight`). None: the runs' graphs themselves.

        Raises:
            ArgumentError: a negative number, or this is a part or view of another federation, or has other features.
        """
        require(hops >= 0, "hops", "zero or positive", hops)
        allowed = "as `of`, `stack` or `halo` made it, since nodes and features come from its graphs"
        require(not self.derived, "a federation to extend", allowed, DERIVED)
        sources = self.sources
        if graphs is not None:
            sources = tuple(Source(g, source.parts) for g, source in zip(graphs, self.sources, strict=True))
        extended = self._build(sources, self.seeds, hops, self.device, self.dtype)
        return replace(extended, traffic=self.traffic, sources=self.sources, derived=graphs is not None)

    # -- sizes --------------------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """Where the tensors lie."""
        return self.run.device

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the features, and so of the weights."""
        return self.x.value.dtype if isinstance(self.x, Sparse) else self.x.dtype

    @property
    def nodes(self) -> int:
        """Number of nodes of the batch, halo copies included."""
        return int(self.batch.num_nodes)

    @property
    def clients(self) -> int:
        """Number of clients, over all runs."""
        return len(self.run)

    @property
    def runs(self) -> int:
        """Number of runs side by side."""
        return len(self.seeds)

    @property
    def slices(self) -> int:
        """Number of slices of a stacked weight: clients, or runs after `shared()`."""
        found: int = self.cached("slices", self._slices)
        return found

    def _slices(self) -> int:
        return int(self.slice_of.max()) + 1

    @property
    def features(self) -> int:
        """Number of features of a node."""
        return int(self.x.shape[1])

    @property
    def classes(self) -> int:
        """Number of classes (labels of a multi-label graph)."""
        return int(self.sources[0].data.num_classes)

    # -- views --------------------------------------------------------------------------------------------------------

    def at(self, round: int, step: int) -> Federation:
        """This federation while training, at a local step of a round."""
        return replace(self, clock=Clock(round, step))

    def shared(self) -> Federation:
        """The same clients with one weight slice per run."""
        return self._view("shared", lambda: replace(self, slice_of=self.run, derived=True, _cache={}))

    def select(self, clients: Sequence[int]) -> Federation:
        """Some of the clients alone, in increasing order, one weight slice each."""
        return self._view(("select", tuple(sorted(clients))), lambda: self._select(sorted(clients)))

    def _select(self, clients: Sequence[int]) -> Federation:
        chosen = torch.as_tensor(clients, device=self.device)
        nodes = torch.isin(self.batch.batch, chosen).nonzero().squeeze(1)
        return self._restrict(nodes, self.batch.ring[nodes], chosen)

    def focus(self, hops: int, masks: Sequence[str] = ("train",)) -> Federation:
        """The part of each client's graph that its outputs at some nodes depend on.

        Own nodes in a split become `ring` 0, nodes from which an edge leads to them `ring` 1, and so on; nodes beyond
        `hops` are left out. A network of `hops` propagation steps gives the same outputs at ring 0 as on the whole
        graph: degrees are those of the whole graph, and dropout depends on node ids, not on positions.

        Args:
            hops: propagation steps of the network.
            masks: splits whose nodes matter, from "train", "val", "test".
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
        every = torch.arange(self.clients, device=self.device)
        return self._restrict(nodes, ring[nodes], every, slice_of=self.slice_of)

    def _restrict(self, nodes: Tensor, ring: Tensor, clients: Tensor, slice_of: Tensor | None = None) -> Federation:
        """The named nodes of the named clients, with new rings; propagation matrices are cut out of this
        federation's.
        """
        new = torch.full((self.nodes,), -1, device=self.device)
        new[nodes] = torch.arange(len(nodes), device=self.device)
        ends = new[self.batch.edge_index]
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
        """The same graph with other node features."""
        return replace(self, x=x, derived=True, _cache={})

    @property
    def normalized(self) -> Federation:
        """The same graph with features `x / s`, `-m / s` and 1 for a node's mean m and standard deviation s over its
        features (LayerNorm's, epsilon 1e-5): see `layers.normalized_input`.
        """
        return self._view("normalized", lambda: self.with_features(_normalized(self.x)))

    # -- what layers need ---------------------------------------------------------------------------------------------

    @property
    def node_slice(self) -> Tensor:
        """`[nodes]`, the weight slice each node uses."""
        found: Tensor = self.cached("node_slice", self._node_slice)
        return found

    def _node_slice(self) -> Tensor:
        return self.slice_of[self.batch.batch]

    @property
    def input(self) -> Tensor | Sparse:
        """The features as layers take them: dense `[nodes, features]`, or sparse in blocks `[nodes, slices *
        features]`.
        """
        found: Tensor | Sparse = self.cached("input", self._input)
        return found

    def _input(self) -> Tensor | Sparse:
        if not isinstance(self.x, Sparse) or self.slices == 1:
            return self.x
        return self.x.blocks(self.node_slice, self.slices)

    @property
    def node_key(self) -> Tensor:
        """`[nodes]`, a 64-bit key made of the run's seed, the client's number and the node's id."""
        found: Tensor = self.cached("node_key", self._node_key)
        return found

    def _node_key(self) -> Tensor:
        client = self.batch.batch.cpu().numpy()
        seed = np.asarray(self.seeds)[self.run.cpu().numpy()[client]]
        made = random.keys("node", seed, self.number.cpu().numpy()[client], self.batch.node_id.cpu().numpy())
        return torch.from_numpy(made.astype(np.int64)).to(self.device)

    def grouped(self, x: Tensor, weight: Tensor) -> Tensor:
        """Each slice's rows of `x` times its own matrix: `[nodes, out]` from `[nodes, in]` and `[slices, in, out]`.

        On a CPU every slice is a product of its own, so that its rounding depends on nobody else's size; on a GPU all
        are one batched product, padded to the longest.
        """
        counts: list[int] = self.cached("counts", self._counts)
        if self.device.type == "cpu" and max(counts) > 1:
            return SliceProducts.of(x, weight, counts)
        length = max(counts)
        if min(counts) == length:
            return torch.bmm(x.view(len(counts), length, x.shape[1]), weight).flatten(0, 1)
        position = self.cached("padded", lambda: self._padded(length))
        padding = x.new_zeros(len(counts) * length, x.shape[1]).index_copy(0, position, x)
        return torch.bmm(padding.view(len(counts), length, x.shape[1]), weight).flatten(0, 1)[position]

    def _counts(self) -> list[int]:
        return torch.bincount(self.node_slice, minlength=self.slices).tolist()

    def _padded(self, length: int) -> Tensor:
        counts = torch.bincount(self.node_slice, minlength=self.slices)
        within = torch.arange(self.nodes, device=self.device) - (counts.cumsum(0) - counts)[self.node_slice]
        return self.node_slice * length + within

    @property
    def member(self) -> Sparse:
        """`[nodes, slices]`, one where a node belongs to a slice: turns a value per slice into one per node."""
        found: Sparse = self.cached("member", self._member)
        return found

    def _member(self) -> Sparse:
        ones = torch.ones(self.nodes, device=self.device, dtype=self.dtype)
        return Sparse.of(torch.arange(self.nodes, device=self.device), self.node_slice, ones, (self.nodes, self.slices))

    def operator(self, kind: str, reach: int | None = None) -> Sparse:
        """A propagation matrix `[nodes, nodes]` over the edges each client holds.

        Args:
            kind: "gcn" = D~^-1/2 (A+I) D~^-1/2; "row" = D~^-1 (A+I); "mean" = D^-1 A; "given" = the batch's
                `edge_weight`.
            reach: rows of nodes with a larger `ring` are left empty, for no wanted output depends on them; None keeps
                all.
        """
        one_of("kind", kind, ("gcn", "row", "mean", "given"))
        matrix: Sparse = self.cached((kind, reach), lambda: _operator(self, kind, reach))
        return matrix

    def attention_edges(self, reach: int) -> Edges:
        """The edges a GAT layer sees, one self-loop per node added, at targets whose `ring` is at most `reach`."""
        edges: Edges = self.cached(("attention", reach), lambda: _attention_edges(self, reach))
        return edges

    def rows(self, mask: str) -> tuple[Tensor, Sparse]:
        """Own nodes in a split, and the matrix that averages a value over each client's.

        Args:
            mask: "train", "val" or "test".

        Returns:
            `[rows]` node indices and a `Sparse` `[clients, rows]` with 1/count entries; a client without such nodes
            has an empty row.
        """
        found: tuple[Tensor, Sparse] = self.cached(("rows", mask), lambda: _mask_rows(self, mask))
        return found

    def count(self, mask: str = "all") -> Tensor:
        """`[clients]`, own nodes in a split ("train", "val", "test") or altogether ("all")."""
        own = self.batch.ring == 0
        chosen = own if mask == "all" else own & self.batch[f"{mask}_mask"]
        return torch.bincount(self.batch.batch[chosen], minlength=self.clients)

    # -- the server's two verbs ---------------------------------------------------------------------------------------

    def average(self, weights: Weights, by: Tensor) -> Weights:
        """Weighted mean over each run's clients: `[runs, ...]` from `[clients, ...]`.

        Args:
            by: `[clients]` non-negative; a client of weight 0 is left out, even where its weights are not finite. A
                run whose clients all weigh 0 gives NaN.
        """
        out = {name: w.new_empty(self.runs, *w.shape[1:]) for name, w in weights.items()}
        for run in range(self.runs):
            chosen = (self.run == run) & (by > 0)
            share = by.double() / by[chosen].sum()
            parts = _consecutive(chosen)
            for name, w in weights.items():
                sums = [share[part].to(w.dtype) @ w[part].flatten(1) for part in parts]
                out[name][run] = sum(sums[1:], sums[0]).view(w.shape[1:]) if sums else torch.nan
        return out

    def broadcast(self, weights: Weights) -> Weights:
        """Each run's weights at its clients: `[clients, ...]` from `[runs, ...]`; a view where there is one run."""
        if self.runs == 1:
            return {name: w.expand(self.clients, *w.shape[1:]) for name, w in weights.items()}
        return {name: w[self.run] for name, w in weights.items()}

    def _view(self, key: Any, make: Callable[[], Federation]) -> Federation:
        """A view made once, with this federation's clock and traffic."""
        view: Federation = self.cached(key, make)
        return replace(view, clock=self.clock, traffic=self.traffic)

    def cached(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once under `key`, whatever the clock and traffic."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]


def _consecutive(chosen: Tensor) -> list[slice]:
    """The runs of True in a mask, as slices: summing over views copies nothing."""
    edge = torch.diff(chosen.int(), prepend=chosen.new_zeros(1).int(), append=chosen.new_zeros(1).int()).cpu()
    starts, stops = (edge == 1).nonzero().squeeze(1), (edge == -1).nonzero().squeeze(1)
    return [slice(a, b) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]


# -- building client graphs -------------------------------------------------------------------------------------------


def _client_graphs(source: Source, hops: int) -> Data:
    """One block per client of a run: its own nodes, then those of each ring, in order of their ids; of the edges that
    arrive at a node of ring `hops - 1` or less those that leave from a node of the block, in the order of the graph.
    """
    data, nodes = source.data, source.data.num_nodes
    sender, target = data.edge_index.numpy()
    every = np.arange(len(target))
    arriving = csr_matrix((np.ones(len(target), bool), (target, every)), shape=(nodes, len(target)))

    def edges_into(chosen: Array) -> Array:
        start = arriving.indptr[chosen].astype(np.int64)
        count = arriving.indptr[chosen + 1] - start
        found: Array = arriving.indices[np.repeat(start - np.cumsum(count) + count, count) + np.arange(count.sum())]
        return found

    place = np.full(nodes, -1)  # of a node in the batch, for the client at hand
    node, ring, edge, ends, ptr = [], [], [], [], [0]
    for part in source.parts:
        shells = [part.numpy()]
        place[shells[0]] = 0
        for _ in range(hops):
            near = np.unique(sender[edges_into(shells[-1])])
            shells.append(near[place[near] < 0])
            place[shells[-1]] = 0
        mine = np.concatenate(shells)
        place[mine] = ptr[-1] + np.arange(len(mine))
        into = np.sort(edges_into(np.concatenate(shells[: max(hops, 1)])))
        into = into[place[sender[into]] >= 0]
        node.append(mine)
        ring.append(np.repeat(np.arange(len(shells)), [len(shell) for shell in shells]))
        edge.append(into)
        ends.append(place[np.stack([sender[into], target[into]])])
        ptr.append(ptr[-1] + len(mine))
        place[mine] = -1

    chosen, sizes = np.concatenate(node), np.diff(ptr)
    graph = Data(
        edge_index=torch.from_numpy(np.concatenate(ends, 1)),
        y=data.y[chosen],
        node_id=torch.from_numpy(chosen),
        ring=torch.from_numpy(np.concatenate(ring)),
        num_nodes=len(chosen),
        batch=torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)),
        ptr=torch.tensor(ptr),
    )
    if data.get("edge_weight") is not None:
        graph.edge_weight = data.edge_weight[np.concatenate(edge)]
    for name in MASKS:
        mask = data.get(name)
        graph[name] = mask[chosen] if mask is not None else torch.zeros(len(chosen), dtype=torch.bool)
    return graph


def _side_by_side(graphs: list[Data]) -> Data:
    """Several block-diagonal graphs as one."""
    joined = Data(num_nodes=sum(graph.num_nodes for graph in graphs))
    nodes = np.cumsum([0] + [graph.num_nodes for graph in graphs])
    clients = np.cumsum([0] + [len(graph.ptr) - 1 for graph in graphs])
    shift = {"edge_index": nodes, "batch": clients, "ptr": nodes}
    for name in graphs[0].keys():  # noqa: SIM118 - iterating a PyG graph yields pairs
        if name == "num_nodes":
            continue
        parts = [graph[name] for graph in graphs]
        if name in shift:
            parts = [part + int(by) for part, by in zip(parts, shift[name], strict=False)]  # one more, the end
        if name == "ptr":
            parts = [parts[0], *(part[1:] for part in parts[1:])]
        joined[name] = torch.cat(parts, -1 if name == "edge_index" else 0)
    return joined


def feature_rows(x: Tensor, chosen: Tensor) -> Tensor | Sparse:
    """Some rows of dense or CSR features, dense or sparse as layers should take them."""
    if x.layout == torch.strided and (x != 0).float().mean() >= SPARSE_BELOW:
        return x.index_select(0, chosen)
    return Sparse.from_tensor(x).rows(chosen)


def _concatenate(parts: list[Tensor | Sparse], device: str | torch.device, dtype: torch.dtype) -> Tensor | Sparse:
    if not all(isinstance(part, Sparse) for part in parts):
        return torch.cat([p.dense() if isinstance(p, Sparse) else p for p in parts]).to(device, dtype)
    if len(parts) == 1:
        return parts[0].to(device, dtype)
    start, rows, cols, values = 0, [], [], []
    for part in parts:
        assert isinstance(part, Sparse)
        rows.append(part.pattern.row + start)
        cols.append(part.pattern.col)
        values.append(part.value)
        start += part.shape[0]
    shape = (start, parts[0].shape[1])
    return Sparse.of(torch.cat(rows), torch.cat(cols), torch.cat(values), shape).to(device, dtype)


def _normalized(x: Tensor | Sparse) -> Tensor | Sparse:
    nodes, width = x.shape
    if isinstance(x, Tensor):
        mean, power = x.double().mean(1), x.double().square().mean(1)
    else:
        sums = torch.zeros(nodes, 2, dtype=torch.float64, device=x.value.device)
        value = x.value.double()
        mean, power = sums.index_add_(0, x.pattern.row, torch.stack([value, value * value], 1)).unbind(1)
        mean, power = mean / width, power / width
    rescale = (power - mean * mean + 1e-5).rsqrt()
    added = torch.stack([-mean * rescale, torch.ones_like(mean)], 1)
    if isinstance(x, Tensor):
        return torch.cat([x * rescale[:, None].to(x.dtype), added.to(x.dtype)], 1)
    every = torch.arange(nodes, device=mean.device)
    row = torch.cat([x.pattern.row, every, every])
    col = torch.cat([x.pattern.col, torch.full_like(every, width), torch.full_like(every, width + 1)])
    value = torch.cat([x.value.double() * rescale[x.pattern.row], *added.unbind(1)])
    return Sparse.of(row, col, value.to(x.value.dtype), (nodes, width + 2))


# -- propagation ------------------------------------------------------------------------------------------------------


def _with_loops(fed: Federation) -> tuple[Tensor, Tensor]:
    """Edges with exactly one self-loop per node, as PyG's `add_remaining_self_loops` gives on unweighted graphs."""
    source, target = fed.batch.edge_index
    proper = source != target
    every = torch.arange(fed.nodes, device=fed.device)
    return torch.cat([source[proper], every]), torch.cat([target[proper], every])


def _operator(fed: Federation, kind: str, reach: int | None) -> Sparse:
    if reach is not None:
        near = torch.where(fed.batch.ring <= reach, torch.arange(fed.nodes, device=fed.device), -1)
        every = torch.arange(fed.nodes, device=fed.device)
        whole = fed.operator(kind)
        return whole if bool((near >= 0).all()) else whole.cut(near, every, whole.shape)
    shape = (fed.nodes, fed.nodes)
    if fed.parent is not None:
        parent, nodes = fed.parent
        new = torch.full((parent.nodes,), -1, device=fed.device)
        new[nodes] = torch.arange(len(nodes), device=fed.device)
        return parent.operator(kind).cut(new, new, shape)
    if kind == "given":
        source, target = fed.batch.edge_index
        return Sparse.of(target, source, fed.batch.edge_weight.to(fed.dtype), shape)
    source, target = fed.batch.edge_index if kind == "mean" else _with_loops(fed)
    degree = torch.bincount(target, minlength=fed.nodes).to(fed.dtype)
    value = degree[source].rsqrt() * degree[target].rsqrt() if kind == "gcn" else 1.0 / degree[target]
    return Sparse.of(target, source, value, shape)


def _check(data: Data, parts: Sequence[Tensor]) -> None:
    """Raise unless the parts are nodes of the graph and its masks say yes or no of each."""
    require(len(parts) > 0, "parts", "at least one client", len(parts))
    nodes = int(data.num_nodes or 0)
    for number, part in enumerate(parts):
        what = f"parts[{number}]"
        ids = isinstance(part, Tensor) and part.dim() == 1 and part.dtype in (torch.int64, torch.int32)
        require(ids, what, "a vector of node ids", part if not isinstance(part, Tensor) else (part.dtype, part.shape))
        inside = not len(part) or bool((part.min() >= 0) & (part.max() < nodes))
        require(inside, what, f"node ids from 0 to {nodes - 1}", part)
        require(int(torch.bincount(part, minlength=1).max()) <= 1, what, "different nodes", part)
    for name in MASKS:
        mask = data.get(name)
        if mask is not None:
            fits = mask.dtype == torch.bool and mask.shape == (nodes,)
            require(fits, name, f"boolean, of shape ({nodes},)", (mask.dtype, tuple(mask.shape)))


def _attention_edges(fed: Federation, reach: int) -> Edges:
    source, target = _with_loops(fed)
    keep = fed.batch.ring[target] <= reach
    return Edges(source[keep], target[keep], fed.nodes)


def _mask_rows(fed: Federation, mask: str) -> tuple[Tensor, Sparse]:
    rows = ((fed.batch.ring == 0) & fed.batch[f"{mask}_mask"]).nonzero().squeeze(1)
    client = fed.batch.batch[rows]
    value = 1.0 / torch.bincount(client, minlength=fed.clients)[client].to(fed.dtype)
    return rows, Sparse.of(client, torch.arange(len(rows), device=fed.device), value, (fed.clients, len(rows)))
