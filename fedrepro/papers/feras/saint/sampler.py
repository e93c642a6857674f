"""Draw sub-graphs with the samplers of GraphSAINT, and estimate the coefficients that undo their bias.

"GraphSAINT: Graph Sampling Based Inductive Learning Method", Hanqing Zeng, Hongkuan Zhou, Ajitesh Srivastava, Rajgopal
Kannan and Viktor Prasanna, ICLR 2020, https://arxiv.org/abs/1907.04931.

A sub-graph is induced on the nodes that its sampler keeps:

    node    `budget` nodes with replacement. P(u) is proportional to the squared norm of column u of D~^-1 (A+I).
    edge    Both ends of `budget` edges with replacement. P(u,v) is proportional to 1/d_u + 1/d_v.
    rw      All nodes on `budget` random walks of `depth` uniform steps from uniform roots.
    mrw     A frontier of uniform nodes, and the nodes that replace them. One node of the frontier, drawn in proportion
            to its degree, is replaced by a uniform neighbour. This happens `budget` minus the frontier's size times.
    full    Every node.

The rule for nodes is that of GraphSAINT's paper. Its code draws a node in proportion to its degree instead. By the
paper's rule a node counts by how few other neighbours its neighbours have: one whose neighbours are hubs is drawn
rarely, however many they are, and one without edges can be drawn. By the code's rule only the number of neighbours
counts. The rules are thus far apart on graphs with hubs, but the coefficients below undo the bias of either. The rule
for the multi-dimensional walk is that of the code: the nodes that enter the frontier are kept (FR-S9).

Let C_v be the number of sub-graphs, among `drawn` of them, that hold node v. Let C_vu be the number that hold both ends
of edge (v <- u). Two sums over one sub-graph are then unbiased:

    sum_u (C_v / C_vu) a_vu x_u, given that v is in it, for sum_u a_vu x_u of the whole graph
    sum_v l_v drawn / C_v, for sum_v l_v of the whole graph

Every draw is a function of a 64-bit stream. Many sub-graphs are therefore drawn at once, and none depends on the
others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrepro.engine.nn import random
from fedrepro.errors import one_of, require

Array = npt.NDArray[Any]
SAMPLERS = ("node", "edge", "rw", "mrw", "full")
# Budgets as shares of the training nodes: those of GraphSAINT on PPI, which has 9716 training nodes (6000 nodes, 4000
# edges, 3000 roots, 8000 nodes of the multi-dimensional walk).
SHARES = {"node": 0.62, "edge": 0.41, "rw": 0.31, "mrw": 0.82, "full": 1.0}
FRONTIER = 0.31  # of the budget of the multi-dimensional walk: 2500 of 8000
TOGETHER = 64  # sub-graphs drawn at once to estimate coefficients: one bit of a word for each


@dataclass(frozen=True)
class Graph:
    """The neighbours of every node, without self-loops, in compressed rows.

    The neighbours of `v` are `col[ptr[v]:ptr[v + 1]]`, in increasing order. Shapes: `ptr` `[nodes + 1]`, `col`
    `[entries]`. An undirected edge is two entries.
    """

    ptr: Array
    col: Array

    @classmethod
    def of(cls, edge_index: Array, nodes: int) -> Graph:
        """Build the graph in which `v` has the neighbour `u` for every edge u -> v of `[2, edges]`."""
        source, target = (np.asarray(part) for part in edge_index)
        if (loops := source == target).any():
            source, target = source[~loops], target[~loops]
        order = np.argsort(target * np.int64(nodes) + source, kind="stable")
        ptr = np.zeros(nodes + 1, np.int64)
        np.cumsum(np.bincount(target, minlength=nodes), out=ptr[1:])
        return cls(ptr, source[order].astype(np.int32))

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.ptr) - 1

    @cached_property
    def degree(self) -> Array:
        """Return the number of neighbours of each node, `[nodes]`."""
        return np.diff(self.ptr)

    @cached_property
    def row(self) -> Array:
        """Return the node whose neighbour each entry is, `[entries]`."""
        return np.repeat(np.arange(self.nodes, dtype=np.int32), self.degree)

    def part(self, nodes: Array) -> Graph:
        """Return the sub-graph induced on `nodes` (increasing), renumbered from 0."""
        target, source, _ = self.induced(nodes)
        return Graph.of(np.stack([source, target]), len(nodes))

    def induced(self, nodes: Array) -> tuple[Array, Array, Array]:
        """Return target, source and entry of every edge between `nodes` (increasing); ends are positions in `nodes`."""
        count = self.degree[nodes]
        start = np.repeat(self.ptr[nodes] - (np.cumsum(count) - count), count)
        entry = start + np.arange(len(start))
        position = np.full(self.nodes, -1, np.int64)
        position[nodes] = np.arange(len(nodes))
        source = position[self.col[entry]]
        keep = source >= 0
        return np.repeat(np.arange(len(nodes)), count)[keep], source[keep], entry[keep]

    @cached_property
    def column_norms(self) -> Array:
        """Return the running sum of the squared column norms of D~^-1 (A+I), `[nodes]`."""
        square = 1.0 / (self.degree + 1.0) ** 2
        return np.cumsum(square + np.bincount(self.col, square[self.row], self.nodes))

    @cached_property
    def edge_chances(self) -> Array:
        """Return the running sum of 1/d_u + 1/d_v, `[entries]`."""
        inverse = 1.0 / np.maximum(self.degree, 1)
        return np.cumsum(inverse[self.row] + inverse[self.col])


@dataclass(frozen=True)
class Sampler:
    """A rule for drawing sub-graphs.

    Args:
        kind: one of `SAMPLERS`.
        budget: nodes, edges, roots, or nodes of the multi-dimensional walk that one sub-graph draws.
        depth: steps of a random walk.
        frontier: size of the frontier of the multi-dimensional walk.
    """

    kind: str
    budget: int
    depth: int = 2
    frontier: int = 1

    def __post_init__(self) -> None:
        one_of("sampler", self.kind, SAMPLERS)
        require(self.budget >= 1, "budget", "at least 1", self.budget)
        require(self.depth >= 1, "depth", "at least 1", self.depth)
        fits = self.kind != "mrw" or 1 <= self.frontier <= self.budget
        require(fits, "frontier", f"between 1 and the budget, {self.budget}", self.frontier)

    @classmethod
    def scaled(cls, kind: str, nodes: int, budget: int = 0, depth: int = 2, frontier: int = 0) -> Sampler:
        """Return a sampler; a `budget` or `frontier` of 0 means GraphSAINT's share of `nodes` on PPI."""
        one_of("sampler", kind, SAMPLERS)
        budget = budget or max(1, round(SHARES[kind] * nodes))
        return cls(kind, budget, depth, frontier or max(1, round(FRONTIER * budget)))

    def size(self, nodes: int) -> int:
        """Return the nominal number of nodes of a sub-graph.

        GraphSAINT's code divides the training nodes by it to get the number of sub-graphs in an epoch.
        """
        return {"edge": 2 * self.budget, "rw": self.budget * self.depth, "full": nodes}.get(self.kind, self.budget)

    def draw(self, graph: Graph, streams: Array) -> Array:
        """Draw one sub-graph per stream and return the nodes that it keeps, bool `[streams, nodes]`.

        Args:
            graph: the graph to draw from.
            streams: `[streams]` uint64, such as `random.keys` returns.
        """
        kept = np.zeros((len(streams), graph.nodes), bool)
        if self.kind == "full" or not graph.nodes or (self.kind == "edge" and not len(graph.col)):
            kept[:] = True
            return kept
        rule = {"node": self._nodes, "edge": self._edges, "rw": self._walks, "mrw": self._frontiers}[self.kind]
        kept[np.arange(len(kept))[:, None], rule(graph, streams)] = True
        return kept

    # Each rule returns the nodes that it meets, `[streams, ...]`, with repetitions.

    def _nodes(self, graph: Graph, streams: Array) -> Array:
        return _pick(graph.column_norms, uniform(streams, "node", self.budget))

    def _edges(self, graph: Graph, streams: Array) -> Array:
        entry = _pick(graph.edge_chances, uniform(streams, "edge", self.budget))
        return np.concatenate([graph.row[entry], graph.col[entry]], 1)

    def _walks(self, graph: Graph, streams: Array) -> Array:
        visited = [_scaled(uniform(streams, "root", self.budget), graph.nodes)]
        for step in range(self.depth):
            visited.append(_neighbour(graph, visited[-1], uniform(streams, f"step {step}", self.budget)))
        return np.concatenate(visited, 1)

    def _frontiers(self, graph: Graph, streams: Array) -> Array:
        """Walk all frontiers side by side, step by step.

        The frontier's degrees lie in blocks of about the square root of its size. The sums of the blocks are kept up
        to date, so that a step needs two short running sums.
        """
        steps, walk = self.budget - self.frontier, np.arange(len(streams))
        side = int(np.ceil(np.sqrt(self.frontier)))
        first = _scaled(uniform(streams, "frontier", self.frontier), graph.nodes)
        node, weight = np.zeros((2, len(streams), side, side), np.int64)
        node.reshape(len(streams), -1)[:, : self.frontier] = first
        weight.reshape(len(streams), -1)[:, : self.frontier] = graph.degree[first]
        sums = weight.sum(2)
        which, where = uniform(streams, "which", steps), uniform(streams, "where", steps)
        visited = [first]
        for step in range(steps):
            total = np.cumsum(sums, 1)
            rest = (which[:, step] * total[:, -1]).astype(np.int64)
            block = np.minimum((total <= rest[:, None]).sum(1), side - 1)
            rest -= total[walk, block] - sums[walk, block]
            slot = np.minimum((np.cumsum(weight[walk, block], 1) <= rest[:, None]).sum(1), side - 1)
            before = weight[walk, block, slot]
            # No node of the frontier has a neighbour where `before` is 0. The slot may then be padding, so the walk
            # returns the first node of the frontier, which is kept already.
            moved = np.where(before > 0, _neighbour(graph, node[walk, block, slot], where[:, step]), first[:, 0])
            after = np.where(before > 0, graph.degree[moved], 0)
            sums[walk, block] += after - before
            node[walk, block, slot], weight[walk, block, slot] = moved, after
            visited.append(moved[:, None])
        return np.concatenate(visited, 1)


def uniform(streams: Array, name: str, count: int) -> Array:
    """Return numbers in (0, 1), `[streams, count]`, that depend only on (stream, name, position)."""
    bits = random.keys(streams[:, None], name, np.arange(count)[None]) >> np.uint64(11)
    return np.asarray((bits.astype(np.float64) + 0.5) / 2.0**53)


def _scaled(u: Array, count: Array | int) -> Array:
    """Return a whole number below `count` for each number in (0, 1); rounding must not reach `count`."""
    return np.asarray(np.minimum((u * count).astype(np.int64), np.maximum(np.asarray(count) - 1, 0)))


def _pick(running: Array, u: Array) -> Array:
    """Return indices drawn in proportion to the increments of a running sum."""
    index = np.searchsorted(running, u * running[-1], side="right")
    return np.asarray(np.minimum(index, len(running) - 1))


def _neighbour(graph: Graph, at: Array, u: Array) -> Array:
    """Return a uniform neighbour of each node, or the node if it has none."""
    if not len(graph.col):
        return at
    degree = graph.degree[at]
    entry = np.minimum(graph.ptr[at] + _scaled(u, degree), len(graph.col) - 1)
    return np.where(degree > 0, graph.col[entry], at)


@dataclass(frozen=True)
class Coefficients:
    """Counts of the nodes and edges in sub-graphs drawn before training.

    GraphSAINT's code trains on the sub-graphs that it counted, in which every node and edge was seen. We draw new ones,
    so a node or edge that was never seen counts as seen once.

    Shapes: `nodes` `[nodes]` is C_v, and `entries` `[entries]` is C_vu in the order of `Graph.col`.
    """

    drawn: int
    nodes: Array
    entries: Array

    def edge_ratio(self, graph: Graph, entry: Array) -> Array:
        """Return C_v / C_vu of some entries, the factor of their weights."""
        return np.asarray(np.maximum(self.nodes[graph.row[entry]], 1) / np.maximum(self.entries[entry], 1))

    def node_weight(self, nodes: Array) -> Array:
        """Return drawn / C_v of some nodes, the factor of their losses."""
        return np.asarray(self.drawn / np.maximum(self.nodes[nodes], 1))


def estimate(graph: Graph, sampler: Sampler, coverage: float, seed: int) -> Coefficients:
    """Draw sub-graphs until they hold `coverage` nodes per node of the graph, and count.

    Args:
        graph, sampler: the graph and the rule for drawing from it.
        coverage: mean number of draws per node. GraphSAINT's code takes 50, and 25 on Flickr.
        seed: seed of these draws.
    """
    require(coverage > 0, "coverage", "positive", coverage)
    nodes, entries = np.zeros(graph.nodes, np.int64), np.zeros(len(graph.col), np.int32)
    if sampler.kind == "full":
        return Coefficients(1, nodes + 1, entries + 1)
    drawn = total = 0
    while total < coverage * graph.nodes:
        kept = sampler.draw(graph, random.keys("saint coverage", seed, np.arange(drawn, drawn + TOGETHER)))
        sizes = np.cumsum(kept.sum(1)) + total
        kept = kept[: int(np.searchsorted(sizes, coverage * graph.nodes)) + 1]
        drawn, total = drawn + len(kept), int(sizes[len(kept) - 1])
        nodes += kept.sum(0)
        entries += _count_pairs(graph, kept)
    return Coefficients(drawn, nodes, entries)


def _count_pairs(graph: Graph, kept: Array) -> Array:
    """Count the sub-graphs, at most 64, that hold both ends of each entry; a node's sub-graphs are bits of a word."""
    bits = np.zeros((graph.nodes, 8), np.uint8)
    packed = np.packbits(kept, axis=0, bitorder="little")
    bits[:, : len(packed)] = packed.T
    word = bits.view(np.uint64)[:, 0]
    counts = np.empty(len(graph.col), np.uint8)
    # The words of all entries at once would take too much memory on Reddit.
    for start in range(0, len(counts), 1 << 20):
        piece = slice(start, start + (1 << 20))
        counts[piece] = np.bitwise_count(word[graph.row[piece]] & word[graph.col[piece]])
    return counts
