"""Count graphlet orbits of up to five nodes: how often every node is at each of 73 positions in small connected graphs.

FedStruct's code describes a node by its orbit counts in graphlets of 2 to 5 nodes (ORCA, Hočevar and Demšar 2014). This
module counts them exactly and without a compiled extension, in three steps:

1. Count the homomorphisms of each small graph into the large one that send its root to a given node. A homomorphism
   keeps edges, and may send two nodes to one. The counts are sums of products. `_plan` orders the sums, one node of the
   pattern at a time, so that no intermediate has more than two indices. 58 patterns are then sparse products (`_Maps`).
2. The other 15 patterns have K4 as a minor, and no such order. They are counted in the dense adjacency among each
   node's neighbours (`_dense`).
3. A homomorphism is a copy of the pattern, or of the pattern with some nodes merged. A copy is an induced subgraph, or
   lies in a denser one on the same nodes. Both relations are fixed integers (`_system`), and the system is triangular.

"Maps" below are homomorphisms.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_matrix, diags, vstack
from torch import Tensor

from fedrepro.errors import require

Counts = npt.NDArray[np.float64]
Key = tuple[Any, ...]
Edges = frozenset[tuple[int, int]]

# Edges of the 30 graphlets G0 to G29 and the orbit of each node (Przulj 2007, Figure 1; ORCA counts in this order).
GRAPHLETS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("01", (0, 0)),
    ("01 12", (1, 2, 1)),
    ("01 02 12", (3, 3, 3)),
    ("01 12 23", (4, 5, 5, 4)),
    ("01 02 03", (7, 6, 6, 6)),
    ("01 12 23 03", (8, 8, 8, 8)),
    ("01 12 13 23", (9, 11, 10, 10)),
    ("01 03 12 13 23", (12, 13, 12, 13)),
    ("01 02 03 12 13 23", (14, 14, 14, 14)),
    ("01 12 23 34", (15, 16, 17, 16, 15)),
    ("01 02 03 34", (21, 19, 19, 20, 18)),
    ("01 02 03 04", (23, 22, 22, 22, 22)),
    ("01 02 12 03 14", (26, 26, 25, 24, 24)),
    ("01 02 12 03 34", (30, 29, 29, 28, 27)),
    ("01 02 12 03 04", (33, 32, 32, 31, 31)),
    ("01 12 23 34 04", (34, 34, 34, 34, 34)),
    ("01 12 23 03 04", (38, 37, 36, 37, 35)),
    ("01 02 03 12 13 04", (42, 41, 40, 40, 39)),
    ("01 02 12 03 04 34", (44, 43, 43, 43, 43)),
    ("01 02 03 12 13 24", (48, 48, 47, 46, 45)),
    ("02 03 04 12 13 14", (50, 50, 49, 49, 49)),
    ("01 12 23 03 04 14", (53, 53, 51, 51, 52)),
    ("01 02 03 04 12 13 14", (55, 55, 54, 54, 54)),
    ("01 02 03 12 13 23 04", (58, 57, 57, 57, 56)),
    ("01 02 03 04 12 23 34", (61, 59, 60, 60, 59)),
    ("02 03 04 12 13 14 23", (63, 63, 64, 64, 62)),
    ("01 02 03 12 13 23 04 14", (67, 67, 66, 66, 65)),
    ("01 02 03 04 12 23 34 14", (69, 68, 68, 68, 68)),
    ("01 02 03 04 12 13 14 23 24", (71, 71, 71, 70, 70)),
    ("01 02 03 04 12 13 14 23 24 34", (72, 72, 72, 72, 72)),
)
ORBITS = 73
# No count of maps exceeds the fourth power of the largest degree, and float64 holds every integer up to 2^53.
LARGEST_DEGREE = 9741


def orbits(a: csr_matrix, count: int = ORBITS) -> Tensor:
    """Return how often each node is at orbits 0 to 72 in induced connected subgraphs of 2 to 5 nodes.

    Time grows with the number of walks of three steps (sparse products) and with the cubes of the degrees of nodes in
    triangles (dense products). On one core it was about 1 s for Cora, 3 s for Chameleon and 80 s for Computers. Memory
    is that of about ten sparse matrices with an entry for every two nodes at distance two, and a few times the square
    of the largest degree. It was 0.4, 0.5 and 3 GB.

    Args:
        a: symmetric 0/1 matrix `[nodes, nodes]` without self-loops, as of `structure.adjacency`.
        count: number of orbits to return; 15 for graphlets of up to four nodes.

    Returns:
        `[nodes, count]`, integers as float64.

    Raises:
        ArgumentError: `a` is no such matrix, or a node has more than 9741 neighbours.
    """
    a = csr_matrix(a, dtype=np.float64, copy=True)
    a.sum_duplicates()
    a.eliminate_zeros()
    simple = a.shape[0] == a.shape[1] and bool((a.data == 1).all()) and not a.diagonal().any() and (a != a.T).nnz == 0
    require(simple, "a", "a symmetric 0/1 matrix without self-loops", f"a matrix {a.shape}")
    degrees = np.diff(a.indptr)
    largest = int(degrees.max(initial=0))
    require(largest <= LARGEST_DEGREE, "a", f"of degrees up to {LARGEST_DEGREE}, for exact counts", largest)
    maps = np.zeros((ORBITS, a.shape[0]))
    if a.nnz:
        sparse = _Maps(a)
        patterns = _patterns()
        for orbit, vector in _dense(a, sparse.matrix(_TWO_STEPS)).items():
            maps[orbit] = vector
        for orbit in sorted({*range(count)} - {*_DENSE}):
            maps[orbit] = sparse.vector(_plan(*patterns[orbit]))
    # Smaller graphlets do not depend on larger ones, whose rows may stay empty.
    return torch.from_numpy(np.ascontiguousarray(_induced(maps)[:count].T))


# --- small graphs -------------------------------------------------------------------------------------------


def _edges(text: str) -> Edges:
    return frozenset((int(pair[0]), int(pair[1])) for pair in text.split())


def _moved(edges: Edges, to: tuple[int, ...]) -> Edges:
    return frozenset((min(to[i], to[j]), max(to[i], to[j])) for i, j in edges)


@cache
def _patterns() -> list[tuple[Edges, int]]:
    """Return, by orbit, its graphlet and the first of its nodes there."""
    first: dict[int, tuple[Edges, int]] = {}
    for text, orbits_of_nodes in GRAPHLETS:
        for node, orbit in enumerate(orbits_of_nodes):
            first.setdefault(orbit, (_edges(text), node))
    return [first[orbit] for orbit in range(ORBITS)]


@cache
def _orbits_by_graph() -> dict[tuple[int, Edges], tuple[int, ...]]:
    """Return the orbit of each node, for every connected graph on nodes 0 to 4 or fewer."""
    known = {}
    for text, orbits_of_nodes in GRAPHLETS:
        for to in permutations(range(len(orbits_of_nodes))):
            moved = tuple(orbits_of_nodes[to.index(node)] for node in range(len(to)))
            known[len(to), _moved(_edges(text), to)] = moved
    return known


@cache
def _system() -> tuple[Counts, Counts, Counts]:
    """Return the integers that lead from maps to copies, and from copies to induced subgraphs.

    Returns:
        `fixed` `[73]`: number of symmetries of a graphlet that keep its root. `merged` `[73, 73]`: maps of the row's
        pattern are `fixed` times its copies plus `merged` times the copies of the column's pattern, which is smaller.
        `within` `[73, 73]`: copies of the row's pattern in the column's, both with the same nodes and root.
    """
    known = _orbits_by_graph()
    fixed, merged, within = np.zeros(ORBITS), np.zeros((ORBITS, ORBITS)), np.zeros((ORBITS, ORBITS))
    for orbit, (edges, root) in enumerate(_patterns()):
        size = 1 + max(j for _, j in edges)
        orders = permutations(range(size))
        fixed[orbit] = sum(to[root] == root and _moved(edges, to) == edges for to in orders)
        for kept in range(size - 1, len(edges) + 1):
            for part in combinations(sorted(edges), kept):
                sparser = known.get((size, frozenset(part)))
                if sparser is not None:
                    within[sparser[root], orbit] += 1
    for orbit, (edges, root) in enumerate(_patterns()):
        size = 1 + max(j for _, j in edges)
        for to in product(range(size), repeat=size):
            blocks = 1 + max(to)
            # Blocks are numbered in the order of their first nodes, so that every partition is met once.
            first = all(block <= 1 + max(to[:node], default=-1) for node, block in enumerate(to))
            if first and blocks < size and all(to[i] != to[j] for i, j in edges):
                smaller = known[blocks, _moved(edges, to)][to[root]]
                merged[orbit, smaller] += fixed[smaller]
    return fixed, merged, within


def _induced(maps: Counts) -> Counts:
    """Return induced subgraphs `[73, nodes]` from maps `[73, nodes]`: smaller graphs first, then denser ones."""
    fixed, merged, within = _system()
    copies, out = np.zeros_like(maps), np.zeros_like(maps)
    for orbit in range(ORBITS):
        copies[orbit] = (maps[orbit] - merged[orbit] @ copies) / fixed[orbit]
    for orbit in sorted(range(ORBITS), key=lambda o: -len(_patterns()[o][0])):
        out[orbit] = copies[orbit] - within[orbit] @ out
    return out


# --- patterns with two indices at a time --------------------------------------------------------------------
# An expression is a tuple, so that equal ones are computed once. Matrices are ("edge",), ("through", left, weight,
# right) for a product with weights on the index that is summed over, and ("both", ...) for an entrywise product.
# Vectors are ("all", ...) for an entrywise product, ones if it is empty, and ("reach", matrix, weight) for a product.

_EDGE: Key = ("edge",)
_ONES: Key = ("all",)
_TWO_STEPS: Key = ("through", _EDGE, _ONES, _EDGE)


def _length(key: Key) -> int:
    return 1 + sum(_length(part) for part in key[1:])


def _turned(key: Key) -> Key:
    """Return the transposed matrix; the adjacency matrix is symmetric."""
    if key[0] == "through":
        return ("through", _turned(key[3]), key[2], _turned(key[1]))
    return _both(*(_turned(part) for part in key[1:])) if key[0] == "both" else key


def _both(*keys: Key) -> Key:
    parts = [part for key in keys for part in (key[1:] if key[0] == "both" else (key,))]
    return ("both", *sorted(parts, key=lambda part: (_length(part), repr(part))))


def _all(*keys: Key) -> Key:
    parts = [part for key in keys for part in (key[1:] if key[0] == "all" else (key,))]
    return parts[0] if len(parts) == 1 else ("all", *sorted(parts, key=repr))


def _plan(edges: Edges, root: int) -> Key:
    """Return the number of maps of a small graph with its root at each node, as an expression.

    Nodes are summed over one at a time: leaves first, then nodes of two neighbours. A node whose neighbours are joined
    comes before others, since its product is needed only at the edges.

    Raises:
        ArgumentError: a sum over a node of three neighbours is needed.
    """
    pairs: dict[tuple[int, int], Key] = dict.fromkeys(edges, _EDGE)
    weights: dict[int, Key] = dict.fromkeys({node for edge in edges for node in edge}, _ONES)

    def factor(i: int, j: int) -> Key:
        return pairs[i, j] if i < j else _turned(pairs[j, i])

    def around(node: int) -> list[int]:
        return [i + j - node for i, j in sorted(pairs) if node in (i, j)]

    def effort(node: int) -> tuple[int, bool, int]:
        near = around(node)
        joined = len(near) == 2 and (min(near), max(near)) in pairs
        return len(near), not joined, sum(_length(factor(node, other)) for other in near)

    # For every root that was a leaf: its weight, and the matrix to the next root.
    carried: list[tuple[Key, Key]] = []
    while pairs:
        near = around(root)
        if len(near) == 1:
            carried.append((weights.pop(root), factor(root, near[0])))
            del pairs[min(root, near[0]), max(root, near[0])]
            root = near[0]
            continue
        node = min((other for other in weights if other != root), key=effort)
        near = around(node)
        require(len(near) <= 2, "edges", "a graph without K4 as a minor", sorted(edges))
        if len(near) == 1:
            weights[near[0]] = _all(weights[near[0]], ("reach", factor(near[0], node), weights[node]))
        else:
            i, j = near
            new: Key = ("through", factor(i, node), weights[node], factor(node, j))
            pairs[i, j] = _both(pairs[i, j], new) if (i, j) in pairs else new
        del weights[node]
        pairs = {pair: key for pair, key in pairs.items() if node not in pair}
    expression = weights[root]
    for weight, matrix in reversed(carried):
        expression = _all(weight, ("reach", matrix, expression))
    return expression


class _Maps:
    """The values of expressions for one graph. Matrices and vectors that were computed are kept."""

    def __init__(self, a: csr_matrix) -> None:
        self.matrices: dict[Key, csr_matrix] = {_EDGE: a}
        self.vectors: dict[Key, Counts] = {_ONES: np.ones(a.shape[0])}

    def vector(self, key: Key) -> Counts:
        if key not in self.vectors:
            if key[0] == "all":
                value = np.prod([self.vector(part) for part in key[1:]], axis=0)
            else:
                value = self.matrix(key[1]) @ self.vector(key[2])
            self.vectors[key] = value
        return self.vectors[key]

    def matrix(self, key: Key) -> csr_matrix:
        if key not in self.matrices:
            if key[0] == "through":
                value = self._left(key) @ self.matrix(key[3])
            else:
                # The first factor is the shortest expression, hence the edges if they are among the factors.
                value = self.matrix(key[1])
                for part in key[2:]:
                    if part in self.matrices:
                        value = value.multiply(self.matrices[part]).tocsr()
                    else:
                        value = _product_at(value, self._left(part), self.matrix(part[3]))
            value.sort_indices()
            self.matrices[key] = value
        return self.matrices[key]

    def _left(self, key: Key) -> csr_matrix:
        left = self.matrix(key[1])
        return left if key[2] == _ONES else (left @ diags(self.vector(key[2]))).tocsr()


def _product_at(mask: csr_matrix, left: csr_matrix, right: csr_matrix, block: int = 512) -> csr_matrix:
    """Return `mask` times `left @ right`, entry by entry, without the whole product in memory."""
    starts = range(0, mask.shape[0], block)
    parts = [mask[s : s + block].multiply(left[s : s + block] @ right).tocsr() for s in starts]
    return vstack(parts, format="csr")


# --- patterns that need three indices at a time -------------------------------------------------------------

_DENSE = (14, 56, 57, 58, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72)


def _dense(a: csr_matrix, two: csr_matrix) -> dict[int, Counts]:
    """Count the maps of the patterns with K4 as a minor, by orbit.

    They are K4 without and with a leaf (14, 56 to 58), the wheel of four spokes without one of them (62 to 64), K4 and
    a node at two of its nodes (65 to 67), the wheel (68, 69), K5 without an edge (70, 71) and K5 (72).

    Args:
        a: the graph.
        two: paths of two steps, `a @ a`, with sorted indices.
    """
    n = a.shape[0]
    maps = {orbit: np.zeros(n) for orbit in _DENSE}
    # Per edge: ordered pairs of nodes that complete K4. Per pair of nodes: arcs between their common neighbours.
    complete, edges_between = a.copy(), two.copy()
    edges_between.data[:] = 0.0
    rows = np.repeat(np.arange(n, dtype=np.int64), np.diff(two.indptr))
    entries = rows * n + two.indices
    for node in range(n):
        row = slice(a.indptr[node], a.indptr[node + 1])
        near = a.indices[row].astype(np.int64)
        among = a[near][:, near].toarray()
        if not among.any():
            complete.data[row] = 0.0
            continue
        # For two neighbours of the node: the nodes that are neighbours of all three.
        common = among @ among
        at = np.searchsorted(entries, near[:, None] * n + near)
        paths = two.data[at]
        edges_between.data[at] += common
        triples = among * common
        complete.data[row] = triples.sum(1)
        weighted, squares = common * paths, common**2
        maps[63][near] += weighted.sum(1)
        maps[64][node] = weighted.sum()
        maps[66][node] = (triples * paths).sum()
        maps[68][near] += squares.sum(1)
        maps[69][node] = squares.sum()
        maps[70][near] += (among * (among @ triples)).sum(1)
        maps[71][node] = (triples * common).sum()
    degrees, ones = np.diff(a.indptr).astype(float), np.ones(n)
    maps[14] = complete @ ones
    maps[56], maps[57], maps[58] = a @ maps[14], complete @ degrees, maps[14] * degrees
    maps[62] = _product_at(a, a, edges_between) @ ones
    maps[65] = _product_at(a, a, complete) @ ones
    maps[67] = complete.multiply(two).tocsr() @ ones
    maps[72] = 24 * _complete_graphs(a)
    return maps


def _complete_graphs(a: csr_matrix) -> Counts:
    """Count the complete graphs of five nodes at each node.

    Each is met once, at its first two nodes in the order of degrees, as a triangle among the later neighbours that the
    two share.
    """
    degrees = np.diff(a.indptr)
    rank = np.empty(len(degrees), dtype=np.int64)
    rank[np.lexsort((np.arange(len(degrees)), degrees))] = np.arange(len(degrees))
    counts = np.zeros(len(degrees))
    for node in np.flatnonzero(degrees >= 4):
        near = a.indices[a.indptr[node] : a.indptr[node + 1]]
        later = near[rank[near] > rank[node]]
        if len(later) < 4:
            continue
        later = later[np.argsort(rank[later])]
        among = a[later][:, later].toarray()
        for second in range(len(later) - 3):
            third = second + 1 + np.flatnonzero(among[second, second + 1 :])
            if len(third) < 3:
                continue
            part = among[np.ix_(third, third)]
            at_each = ((part @ part) * part).sum(1) / 2
            counts[[node, later[second]]] += at_each.sum() / 3
            counts[later[third]] += at_each
    return counts
