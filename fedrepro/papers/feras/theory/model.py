"""Write out Feras's two-layer model of Section 4.1, with linear activations and the squared loss.

    x^_n = A_n x_n W1_n      x~_n = Theta_n (x^_1; ...; x^_N)      y^_n = A_n x~_n W2_n      u = y^ - y, so c* = 1

Host n's share in x~_n is Theta*_n x^_n. Two equations are corrected. Eq. 40 prints Theta* = diag(1 / count(v)), but by
Eq. 8 the entry is 0 at a node that the host cannot see. Eq. 15 prints I_{k_n} (x) A x~, whose first factor must be
I_{m_3} (FR-Q7).

Arrays are NumPy's, and vec stacks columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from fedrepro.reporting.checks import worst_of

Array = npt.NDArray[Any]
WIDTHS = (4, 3, 2)  # m1, m2, m3
ROOM = 1e-9  # by which rounding may take a ratio beyond its bound


@dataclass(frozen=True)
class Host:
    """One host's sub-graph in an iteration.

    Shapes: `nodes` `[k]` numbers in the whole graph; `sees` `[k]` bool; `a` `[k, k]` normalized adjacency; `x` `[k,
    m1]`, zero at nodes that the host cannot see; `y` `[k, m3]`.
    """

    nodes: npt.NDArray[np.int64]
    sees: npt.NDArray[np.bool_]
    a: Array
    x: Array
    y: Array


@dataclass(frozen=True)
class System:
    """The sub-graphs of all hosts in one iteration."""

    hosts: tuple[Host, ...]

    @classmethod
    def random(cls, rng: Generator, *, signed: bool = True, connected: bool = True, m1: int = WIDTHS[0]) -> System:
        """Draw a graph of 12 private and public nodes, and a sub-graph of it for each of three hosts.

        Args:
            rng: the source of randomness.
            signed: True for features of both signs, False for non-negative ones.
            connected: True for sub-graphs that grow from a node along edges, False for sub-graphs on any nodes.
            m1: number of features.
        """
        hosts, nodes = 3, 12
        adjacency = np.triu(rng.random((nodes, nodes)) < rng.uniform(0.15, 0.6), 1)
        for v in range(1, nodes):  # a tree, so that the whole graph is connected
            adjacency[rng.integers(v), v] = True
        adjacency = adjacency | adjacency.T
        private = rng.random(nodes) < rng.uniform(0.2, 0.9)
        owner = rng.integers(hosts, size=nodes)
        x = rng.normal(size=(nodes, m1))
        y = rng.normal(size=(nodes, WIDTHS[2]))
        drawn = []
        for n in range(hosts):
            size = int(rng.integers(3, nodes + 1))
            chosen = np.sort(_grow(rng, adjacency, size) if connected else rng.permutation(nodes)[:size])
            sees = ~private[chosen] | (owner[chosen] == n)
            features = (x if signed else np.abs(x))[chosen] * sees[:, None]
            drawn.append(Host(chosen, sees, normalized(adjacency[np.ix_(chosen, chosen)]), features, y[chosen]))
        return cls(tuple(drawn))

    def rows(self, n: int) -> slice:
        """Return the rows of host n in the stack of all hosts."""
        start = sum(len(host.nodes) for host in self.hosts[:n])
        return slice(start, start + len(self.hosts[n].nodes))

    def share(self, n: int) -> Array:
        """Return 1 / count of each of host n's nodes, `[k_n]`; count is the number of hosts that see and drew it.

        The share is 0 if the count is 0.
        """
        seen = np.concatenate([host.nodes[host.sees] for host in self.hosts])
        count = np.array([(seen == v).sum() for v in self.hosts[n].nodes], dtype=float)
        return np.asarray(np.divide(1.0, count, out=np.zeros_like(count), where=count > 0))

    def theta(self, n: int) -> Array:
        """Return Theta_n of Eq. 8, `[k_n, sum of all k]`."""
        stacked = np.concatenate([np.where(host.sees, host.nodes, -1) for host in self.hosts])
        return np.asarray((self.hosts[n].nodes[:, None] == stacked[None]) * self.share(n)[:, None])

    def theta_star(self, n: int) -> Array:
        """Return the diagonal of Theta*_n: the share at nodes that the host sees, else 0. Eq. 40 omits the 0."""
        return np.asarray(self.share(n) * self.hosts[n].sees)

    def embeddings(self, w1: list[Array]) -> Array:
        """Return the stack x^ of Eq. 9 under each host's W1, `[sum of all k, m2]`."""
        return np.concatenate([host.a @ host.x @ w for host, w in zip(self.hosts, w1, strict=True)])

    def output(self, n: int, w1: list[Array], w2: Array) -> Array:
        """Return y^_n of Eq. 2 to 4, `[k_n, m3]`."""
        return np.asarray(self.hosts[n].a @ self.theta(n) @ self.embeddings(w1) @ w2)

    def m(self, n: int, diagonal: Array | None = None) -> Array:
        """Return M = A D A x of Eq. 21, `[k_n, m1]`, with D = Theta*, or the given diagonal."""
        host = self.hosts[n]
        d = self.theta_star(n) if diagonal is None else diagonal
        return np.asarray(host.a @ (d[:, None] * (host.a @ host.x)))

    def m_without_sharing(self, n: int) -> Array:
        """Return M of Eq. 42, `[k_n, m1]`, in which the identity replaces Theta*."""
        return self.m(n, np.ones(len(self.hosts[n].nodes)))

    def linear(self, n: int, layer: int, w1: list[Array], w2: Array) -> tuple[Array, Array]:
        """Return B and M of Eq. 14 in layer 1 or 2: vec(y^) = B + M vec(W_layer), with all else fixed."""
        host = self.hosts[n]
        if layer == 2:
            return np.zeros(host.y.size), np.kron(np.eye(w2.shape[1]), host.a @ self.theta(n) @ self.embeddings(w1))
        others = [np.zeros_like(w) if m == n else w for m, w in enumerate(w1)]
        return vec(self.output(n, others, w2)), np.kron(w2.T, self.m(n))


def _grow(rng: Generator, adjacency: Any, size: int) -> npt.NDArray[np.int64]:
    """Return nodes of a connected sub-graph, which grows from a node along edges."""
    chosen = [int(rng.integers(len(adjacency)))]
    while len(chosen) < size:
        near = np.flatnonzero(adjacency[chosen].any(0))
        chosen.append(int(rng.choice(np.setdiff1d(near, chosen))))
    return np.array(chosen)


def normalized(adjacency: Any) -> Array:
    """Return D~^-1/2 (A + I) D~^-1/2."""
    a = np.asarray(adjacency, dtype=float) + np.eye(len(adjacency))
    root = 1.0 / np.sqrt(a.sum(1))
    return np.asarray(a * root[:, None] * root[None])


def weights(rng: Generator, hosts: int, scale: float = 1.0) -> tuple[list[Array], Array]:
    """Draw W1 of every host, and one W2."""
    return [scale * rng.normal(size=WIDTHS[:2]) for _ in range(hosts)], rng.normal(size=WIDTHS[1:])


def vec(matrix: Array) -> Array:
    """Stack the columns of a matrix."""
    return matrix.T.ravel()


def step(system: System, n: int, layer: int, w1: list[Array], w2: Array, eta: float, lam: float) -> Array:
    """Return vec of the weights of a layer after host n's update, by Eq. 23."""
    b, m = system.linear(n, layer, w1, w2)
    w = vec(w1[n] if layer == 1 else w2)
    return np.asarray((1 - eta * lam) * w - eta * m.T @ (b + m @ w - vec(system.hosts[n].y)))


def lipschitz(m: Array, eta: float, lam: float) -> float:
    """Return the exact constant of the update of one layer: the norm of (1 - eta lambda) I - eta M^T M."""
    values = np.linalg.eigvalsh(m.T @ m)
    return float(np.abs(1 - eta * lam - eta * values).max())


def radius(m: Array) -> float:
    """Return rho(M^T M) = rho(M M^T)."""
    return float(np.linalg.norm(m, 2) ** 2)


def allowed(lam: float, *radii: float, c: float = 1.0) -> float:
    """Return the largest eta for which 1 - eta lambda / 2 is a constant: 4 / (2 c* max rho + 3 lambda).

    Lemma A.3 prints it with only the radius of M_2.
    """
    return 4.0 / (2.0 * c * worst_of(radii) + 3.0 * lam)


class Largest(dict[str, float]):
    """The largest absolute value noted under each name: 0 before the first, and NaN from the first NaN on."""

    def note(self, name: str, value: Any) -> None:
        """Keep the largest absolute value of a number or an array."""
        self[name] = worst_of((self.get(name, 0.0), float(np.abs(value).max())))
