"""Feras' two-layer model of Section 4.1, linear and with squared loss: its linear forms, and Eq. 7 to 40.

    x^_n = A_n x_n W1_n      x~_n = Theta_n (x^_1; ...; x^_N)      y^_n = A_n x~_n W2_n      u = y^ - y, so c* = 1

Host n's own part of x~_n is Theta*_n x^_n. Eq. 40 prints Theta* = diag(1 / count(v)); by Eq. 8 its entry is 0 at nodes
the host cannot see, whatever others drew. Eq. 15 prints I_{k_n} (x) A x~; its first factor is I_{m_3} (FR-Q7).

Arrays are NumPy's, vec stacks columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
WIDTHS = (4, 3, 2)  # m1, m2, m3


@dataclass(frozen=True)
class Host:
    """One host's sub-graph in an iteration.

    Shapes: `nodes` `[k]` numbers in the whole graph; `sees` `[k]` bool; `a` `[k, k]` normalized adjacency; `x` `[k,
    m1]`, zero rows where unseen; `y` `[k, m3]`.
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

    def part(self, n: int) -> slice:
        """Where host n's rows stand in the stack of all."""
        start = sum(len(host.nodes) for host in self.hosts[:n])
        return slice(start, start + len(self.hosts[n].nodes))

    def count(self, n: int) -> Array:
        """`[k_n]`, how many hosts that see each of host n's nodes drew it."""
        seen = np.concatenate([host.nodes[host.sees] for host in self.hosts])
        return np.array([(seen == v).sum() for v in self.hosts[n].nodes], dtype=float)

    def theta(self, n: int) -> Array:
        """Eq. 8: `[k_n, sum of all k]`."""
        stacked = np.concatenate([np.where(host.sees, host.nodes, -1) for host in self.hosts])
        count = self.count(n)
        share = np.divide(1.0, count, out=np.zeros_like(count), where=count > 0)
        made: Array = (self.hosts[n].nodes[:, None] == stacked[None]) * share[:, None]
        return made

    def own(self, n: int, printed: bool = False) -> Array:
        """The diagonal of Theta*: 1 / count where the host sees the node; as printed (Eq. 40) everywhere."""
        count = self.count(n)
        share = np.divide(1.0, count, out=np.zeros_like(count), where=count > 0)
        return np.asarray(share if printed else share * self.hosts[n].sees)

    def embeddings(self, w1: list[Array]) -> Array:
        """The stack x^ of Eq. 9 under each host's W1: `[sum of all k, m2]`."""
        return np.concatenate([host.a @ host.x @ w for host, w in zip(self.hosts, w1, strict=True)])

    def output(self, n: int, w1: list[Array], w2: Array) -> Array:
        """Eq. 2 to 4: `[k_n, m3]`."""
        return np.asarray(self.hosts[n].a @ self.theta(n) @ self.embeddings(w1) @ w2)

    def m(self, n: int, shared: bool = True, own: Array | None = None) -> Array:
        """M of Eq. 21, `[k_n, m1]`; without sharing Theta* is the identity (Eq. 42), or the diagonal given as `own`."""
        host = self.hosts[n]
        if own is None:
            own = self.own(n) if shared else np.ones(len(host.nodes))
        return np.asarray(host.a @ (own[:, None] * (host.a @ host.x)))

    def linear(self, n: int, layer: int, w1: list[Array], w2: Array) -> tuple[Array, Array]:
        """B and M of Eq. 14 in layer 1 or 2: vec(y^) = B + M vec(W_layer), all else fixed."""
        host = self.hosts[n]
        if layer == 2:
            return np.zeros(host.y.size), np.kron(np.eye(w2.shape[1]), host.a @ self.theta(n) @ self.embeddings(w1))
        others = [np.zeros_like(w) if m == n else w for m, w in enumerate(w1)]
        return vec(self.output(n, others, w2)), np.kron(w2.T, self.m(n))


def vec(matrix: Array) -> Array:
    """Columns stacked."""
    return matrix.T.ravel()


def step(system: System, n: int, layer: int, w1: list[Array], w2: Array, eta: float, lam: float) -> Array:
    """vec of the weights of a layer after host n's update, by Eq. 23."""
    b, m = system.linear(n, layer, w1, w2)
    w = vec(w1[n] if layer == 1 else w2)
    return np.asarray((1 - eta * lam) * w - eta * m.T @ (b + m @ w - vec(system.hosts[n].y)))


def lipschitz(m: Array, eta: float, lam: float) -> float:
    """The exact constant of the update of one layer: the norm of (1 - eta lambda) I - eta M^T M."""
    values = np.linalg.eigvalsh(m.T @ m)
    return float(np.abs(1 - eta * lam - eta * values).max())


def radius(m: Array) -> float:
    """rho(M^T M) = rho(M M^T)."""
    return float(np.linalg.norm(m, 2) ** 2)


def allowed(lam: float, *radii: float) -> float:
    """The largest eta for which 1 - eta lambda / 2 is a constant: 4 / (2 c* max rho + 3 lambda).

    As printed (Lemma A.3) rho is that of M_2 alone.
    """
    return 4.0 / (2.0 * max(radii) + 3.0 * lam)


# -- random systems ---------------------------------------------------------------------------------------------------


def system(
    rng: np.random.Generator, hosts: int = 3, nodes: int = 12, *, signed: bool = True, connected: bool = True,
    widths: tuple[int, int, int] = WIDTHS,
) -> System:  # fmt: skip
    """A random graph with private and public nodes, and a sub-graph of it for each host.

    Args:
        signed: features of both signs, else non-negative.
        connected: sub-graphs grow from a node along edges; else they are induced on any nodes.
    """
    adjacency = np.triu(rng.random((nodes, nodes)) < rng.uniform(0.15, 0.6), 1)
    for v in range(1, nodes):  # a tree, so that the whole graph is connected
        adjacency[rng.integers(v), v] = True
    adjacency = adjacency | adjacency.T
    private = rng.random(nodes) < rng.uniform(0.2, 0.9)
    owner = rng.integers(hosts, size=nodes)
    x = rng.normal(size=(nodes, widths[0]))
    y = rng.normal(size=(nodes, widths[2]))
    made = []
    for n in range(hosts):
        size = int(rng.integers(3, nodes + 1))
        chosen = np.sort(_grown(rng, adjacency, size) if connected else rng.permutation(nodes)[:size])
        sees = ~private[chosen] | (owner[chosen] == n)
        features = (x if signed else np.abs(x))[chosen] * sees[:, None]
        made.append(Host(chosen, sees, normalized(adjacency[np.ix_(chosen, chosen)]), features, y[chosen]))
    return System(tuple(made))


def normalized(adjacency: Any) -> Array:
    """D~^-1/2 (A + I) D~^-1/2."""
    a = np.asarray(adjacency, dtype=float) + np.eye(len(adjacency))
    root = 1.0 / np.sqrt(a.sum(1))
    scaled: Array = a * root[:, None] * root[None]
    return scaled


def weights(rng: np.random.Generator, hosts: int, scale: float = 1.0) -> tuple[list[Array], Array]:
    """W1 of every host, and one W2."""
    return [scale * rng.normal(size=WIDTHS[:2]) for _ in range(hosts)], rng.normal(size=WIDTHS[1:])


def _grown(rng: np.random.Generator, adjacency: Any, size: int) -> npt.NDArray[np.int64]:
    chosen = [int(rng.integers(len(adjacency)))]
    while len(chosen) < size:
        near = np.flatnonzero(adjacency[chosen].any(0))
        chosen.append(int(rng.choice(np.setdiff1d(near, chosen))))
    return np.array(chosen)
