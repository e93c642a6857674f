"""GraphSAINT (Zeng et al. 2020): sub-graph samplers, and the coefficients that undo their bias.

    node    `budget` nodes with replacement, P(u) in proportion to the squared norm of column u of D~^-1 (A+I)
    edge    `budget` edges with replacement, P(u,v) in proportion to 1/d_u + 1/d_v; both ends are kept
    rw      `budget` uniform roots, each walks `depth` uniform steps; every node visited is kept
    mrw     a frontier of uniform nodes; `budget` minus its size times, one of them, drawn in proportion to its degree,
            is replaced by a uniform neighbour; the first frontier and every neighbour drawn are kept
    full    every node

A sub-graph is induced on the nodes kept. With C_v and C_vu the number of `drawn` sub-graphs that held node v and both
ends of edge (v <- u), the sum of (C_v / C_vu) a_vu x_u over a sub-graph's edges is unbiased for the whole graph's
sum_u a_vu x_u given that v is in it, and the sum of l_v drawn / C_v over its nodes for the whole graph's sum of l_v.

Every draw is a function of a 64-bit stream alone, so many sub-graphs are drawn at once and each is the same however
many are.
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
# Of the training nodes: GraphSAINT's budgets on PPI (6000 nodes, 4000 edges, 3000 roots, 8000 nodes; 9716 to train on).
SHARES = {"node": 0.62, "edge": 0.41, "rw": 0.31, "mrw": 0.82, "full": 1.0}
FRONTIER = 0.31  # of the budget of the multi-dimensional walk: 2500 of 8000
TOGETHER = 64  # sub-graphs drawn at once when coefficients are estimated: one bit each of a word


@dataclass(frozen=True)
class Graph:
    """Neighbours of each node, without self-loops: those of `v` are `col[ptr[v]:ptr[v + 1]]`, increasing.

    Shapes: `ptr` `[nodes + 1]`, `col` `[entries]`; an undirected edge is two entries.
    """

    ptr: Array
    col: Array

    @classmethod
    def of(cls, edge_index: Array, nodes: int) -> Graph:
        """From `[2, edges]` (source, target), where `v` has `u` as a neighbour for every edge u -> v."""
        source, target = (np.asarray(part) for part in edge_index)
        if (loops := source == target).any():
            source, target = source[~loops], target[~loops]
        order = np.argsort(target * np.int64(nodes) + source, kind="stable")
        ptr = np.zeros(nodes + 1, np.int64)
        np.cumsum(np.bincount(target, minlength=nodes), out=ptr[1:])
        return cls(ptr, source[order].astype(np.int32))

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.ptr) - 1

    @cached_property
    def degree(self) -> Array:
        """`[nodes]`, neighbours of each."""
        return np.diff(self.ptr)

    @cached_property
    def row(self) -> Array:
        """`[entries]`, the node whose neighbour each entry is."""
        return np.repeat(np.arange(self.nodes, dtype=np.int32), self.degree)

    def part(self, nodes: Array) -> Graph:
        """The sub-graph induced on `nodes` (increasing), numbered by their place."""
        target, source, _ = self.induced(nodes)
        return Graph.of(np.stack([source, target]), len(nodes))

    def induced(self, nodes: Array) -> tuple[Array, Array, Array]:
        """Entries with both ends among `nodes` (increasing), as their places there: target, source, and the entry."""
        count = self.degree[nodes]
        start = np.repeat(self.ptr[nodes] - (np.cumsum(count) - count), count)
        entry = start + np.arange(len(start))
        local = np.full(self.nodes, -1, np.int64)
        local[nodes] = np.arange(len(nodes))
        source = local[self.col[entry]]
        keep = source >= 0
        return np.repeat(np.arange(len(nodes)), count)[keep], source[keep], entry[keep]

    @cached_property
    def column_norms(self) -> Array:
        """`[nodes]`, running sum of the squared column norms of D~^-1 (A+I)."""
        square = 1.0 / (self.degree + 1.0) ** 2
        return np.cumsum(square + np.bincount(self.col, square[self.row], self.nodes))

    @cached_property
    def edge_chances(self) -> Array:
        """`[entries]`, running sum of 1/d_u + 1/d_v."""
        inverse = 1.0 / np.maximum(self.degree, 1)
        return np.cumsum(inverse[self.row] + inverse[self.col])


@dataclass(frozen=True)
class Sampler:
    """How sub-graphs are drawn.

    Args:
        kind: one of `SAMPLERS`.
        budget: nodes, edges, roots, or nodes of the multi-dimensional walk, drawn for one sub-graph.
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
        """A sampler whose `budget` and `frontier`, where they are 0, are GraphSAINT's share of the `nodes` on PPI."""
        one_of("sampler", kind, SAMPLERS)
        budget = budget or max(1, round(SHARES[kind] * nodes))
        return cls(kind, budget, depth, frontier or max(1, round(FRONTIER * budget)))

    def size(self, nodes: int) -> int:
        """Nodes of a sub-graph as GraphSAINT's code counts them: an epoch is training nodes / size sub-graphs."""
        return {"edge": 2 * self.budget, "rw": self.budget * self.depth, "full": nodes}.get(self.kind, self.budget)

    def draw(self, graph: Graph, streams: Array) -> Array:
        """Which nodes each sub-graph keeps: bool `[streams, nodes]`.

        Args:
            streams: `[streams]` uint64, such as `random.keys` makes; one sub-graph each.
        """
        kept = np.zeros((len(streams), graph.nodes), bool)
        if self.kind == "full" or not graph.nodes or (self.kind == "edge" and not len(graph.col)):
            kept[:] = True
            return kept
        {"node": self._nodes, "edge": self._edges, "rw": self._walks, "mrw": self._frontiers}[self.kind](
            graph, streams, kept
        )
        return kept

    def _nodes(self, graph: Graph, streams: Array, kept: Array) -> None:
        _mark(kept, _pick(graph.column_norms, uniform(streams, "node", self.budget)))

    def _edges(self, graph: Graph, streams: Array, kept: Array) -> None:
        entry = _pick(graph.edge_chances, uniform(streams, "edge", self.budget))
        _mark(kept, graph.row[entry])
        _mark(kept, graph.col[entry])

    def _walks(self, graph: Graph, streams: Array, kept: Array) -> None:
        at = _scaled(uniform(streams, "root", self.budget), graph.nodes)
        _mark(kept, at)
        for step in range(self.depth):
            at = _neighbour(graph, at, uniform(streams, f"step {step}", self.budget))
            _mark(kept, at)

    def _frontiers(self, graph: Graph, streams: Array, kept: Array) -> None:
        """All walks side by side, step by step. The frontier's degrees lie in blocks of about its square root, whose
        sums are kept up to date, so that a step costs two short running sums.
        """
        steps, walk = self.budget - self.frontier, np.arange(len(streams))
        side = int(np.ceil(np.sqrt(self.frontier)))
        first = _scaled(uniform(streams, "frontier", self.frontier), graph.nodes)
        _mark(kept, first)
        node = np.zeros((len(streams), side, side), np.int64)
        weight = np.zeros((len(streams), side, side), np.int64)
        node.reshape(len(streams), -1)[:, : self.frontier] = first
        weight.reshape(len(streams), -1)[:, : self.frontier] = graph.degree[first]
        sums = weight.sum(2)
        which, where = uniform(streams, "which", steps), uniform(streams, "where", steps)
        for step in range(steps):
            total = np.cumsum(sums, 1)
            rest = (which[:, step] * total[:, -1]).astype(np.int64)
            block = np.minimum((total <= rest[:, None]).sum(1), side - 1)
            rest -= total[walk, block] - sums[walk, block]
            slot = np.minimum((np.cumsum(weight[walk, block], 1) <= rest[:, None]).sum(1), side - 1)
            able = weight[walk, block, slot] > 0  # false where the whole frontier has no neighbour
            moved = np.where(able, _neighbour(graph, node[walk, block, slot], where[:, step]), node[walk, block, slot])
            kept[walk[able], moved[able]] = True
            degree = graph.degree[moved]
            sums[walk, block] += np.where(able, degree - weight[walk, block, slot], 0)
            node[walk, block, slot] = moved
            weight[walk, block, slot] = np.where(able, degree, weight[walk, block, slot])


def uniform(streams: Array, name: str, count: int) -> Array:
    """Numbers in (0, 1), `[streams, count]`: a function of (stream, name, position) alone."""
    bits = random.keys(streams[:, None], name, np.arange(count)[None]) >> np.uint64(11)
    made: Array = (bits.astype(np.float64) + 0.5) / 2.0**53
    return made


def _scaled(u: Array, count: Array | int) -> Array:
    """A whole number below `count` for each number in (0, 1); rounding must not reach `count`."""
    return np.asarray(np.minimum((u * count).astype(np.int64), np.maximum(np.asarray(count) - 1, 0)))


def _pick(running: Array, u: Array) -> Array:
    """Places drawn in proportion to the steps of a running sum."""
    place = np.searchsorted(running, u * running[-1], side="right")
    return np.asarray(np.minimum(place, len(running) - 1))


def _neighbour(graph: Graph, at: Array, u: Array) -> Array:
    """A uniform neighbour of each node; a node without any stays."""
    if not len(graph.col):
        return at
    degree = graph.degree[at]
    entry = np.minimum(graph.ptr[at] + _scaled(u, degree), len(graph.col) - 1)
    return np.where(degree > 0, graph.col[entry], at)


def _mark(kept: Array, nodes: Array) -> None:
    kept[np.arange(len(kept))[:, None], nodes] = True


@dataclass(frozen=True)
class Coefficients:
    """How often nodes and edges were in the sub-graphs drawn beforehand.

    Shapes: `nodes` `[nodes]` C_v; `entries` `[entries]` C_vu, in the order of `Graph.col`.
    """

    drawn: int
    nodes: Array
    entries: Array

    # GraphSAINT's code trains on the very sub-graphs it counted, in which nothing is unseen, and gives other entries
    # an arbitrary number. Ours are drawn anew, so what was never seen counts as seen once.

    def edge_ratio(self, graph: Graph, entry: Array) -> Array:
        """C_v / C_vu of some entries, what their weights are multiplied by."""
        ratio: Array = np.maximum(self.nodes[graph.row[entry]], 1) / np.maximum(self.entries[entry], 1)
        return ratio

    def node_weight(self, nodes: Array) -> Array:
        """drawn / C_v of some nodes, what their losses are multiplied by."""
        weight: Array = self.drawn / np.maximum(self.nodes[nodes], 1)
        return weight


def estimate(graph: Graph, sampler: Sampler, coverage: float, seed: int) -> Coefficients:
    """Counts over sub-graphs drawn until they hold `coverage` nodes for every node of the graph.

    Args:
        coverage: GraphSAINT's code takes 50, and 25 on Flickr.
        seed: of these draws, a function of it alone.
    """
    require(coverage > 0, "coverage", "positive", coverage)
    nodes, entries = np.zeros(graph.nodes, np.int64), np.zeros(len(graph.col), np.int32)
    if sampler.kind == "full":
        return Coefficients(1, nodes + 1, entries + 1)
    drawn = total = 0
    while total < coverage * graph.nodes:
        kept = sampler.draw(graph, random.keys("saint coverage", seed, np.arange(drawn, drawn + TOGETHER)))
        sizes = kept.sum(1)
        enough = int(np.searchsorted(np.cumsum(sizes) + total, coverage * graph.nodes)) + 1
        kept = kept[:enough]
        drawn, total = drawn + len(kept), total + int(sizes[:enough].sum())
        nodes += kept.sum(0)
        entries += _together(graph, kept)
    return Coefficients(drawn, nodes, entries)


def _together(graph: Graph, kept: Array) -> Array:
    """In how many of at most 64 sub-graphs both ends of each entry are: their bits in one word a node."""
    bits = np.zeros((graph.nodes, 8), np.uint8)
    packed = np.packbits(kept, axis=0, bitorder="little")
    bits[:, : len(packed)] = packed.T
    word = bits.view(np.uint64)[:, 0]
    counts = np.empty(len(graph.col), np.uint8)
    for start in range(0, len(counts), 1 << 20):  # pieces, for the words of all entries would take much memory
        piece = slice(start, start + (1 << 20))
        counts[piece] = np.bitwise_count(word[graph.row[piece]] & word[graph.col[piece]])
    return counts
