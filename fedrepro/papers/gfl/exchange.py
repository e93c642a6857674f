"""Compute what GFL-APPNP's clients hold after the exchange of a round: C_k, its gradient, and V1's noise on it.

Every client j sends h_j and its gradient under the server's average, and client k receives

    C_k = sum_{j != k} A_kj h_j        grad C_k = sum_{j != k} A_kj grad h_j

The gradient of C_kc by the first layer is M_k diag(W2[:, c]) with M_k = sum_{j != k} A_kj x_j m_j^T, where m_j says
which hidden units of j are on. The local steps use M_k only in products with samples (`Received.projected`), and the
server's average uses a sum over clients that needs the m_j (`Received.on`). M_k itself is never stored.

The noise of V1. Neighbour j adds E_j, `[classes, features, hidden]`, to the gradient that it uploads. Its entries are
standard normal numbers times `std`. So client k receives N_k = sum_{j != k} A_kj E_j. These N_k are normal with
covariance `mix = std^2 A_off A_off^T` over the clients, equal for every entry. They can be drawn without the E_j
(`draw`).

If every client trains on one sample x_k, training uses less of the noise: x_k^T N_k in the local steps, and the sum
sum_kc w_kc N_kc when the server averages. The w_kc depend on x_k^T N_k only, and both are jointly normal. We therefore
draw the first at the exchange (`draw_at_samples`), and later the sum from its distribution given the first
(`draw_mean`). A round then draws features times hidden numbers, not clients times classes times as many. The
distribution is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import random
from fedrepro.papers.gfl.clients import FIRST, SECOND, Graph, Samples

TINY = 1e-10  # eigenvalues below this share of the largest are rounding


@dataclass(frozen=True)
class Noise:
    """The noise that a round adds to grad C_k.

    Args:
        std: standard deviation of what each client adds.
        round: the round whose training it disturbs.
        at_samples: x_ks^T N_k, `[clients, samples, classes, hidden]`.
        second: the noise on the part of the second layer, `[clients, classes, hidden, classes]`.
        first: N_k, `[clients, classes, features, hidden]`, or None if `at_samples` is all that training uses of it.
    """

    std: float
    round: int
    at_samples: Tensor
    second: Tensor
    first: Tensor | None

    def fill(self, graph: Graph, samples: Samples, seed: int) -> None:
        """Draw the noise of one run, as a function of its seed and the round."""
        part = graph.trained
        mix, source = self.std**2 * graph.mix, _generator("gfl noise", seed, self.round)
        if self.first is None:
            x = samples.x[part, 0].double().cpu()
            classes, hidden = self.at_samples.shape[2:]
            self.at_samples[part, 0] = draw_at_samples(mix, x, classes, hidden, source)
        for noise in (self.first, self.second):
            if noise is not None:
                draw(mix, source, noise[part])
                noise[part.stop : graph.clients.stop] = 0
        if self.first is not None:
            self.at_samples[part] = (samples.x[part, None] @ self.first[part]).transpose(1, 2)

    def mean(self, graph: Graph, samples: Samples, w: Tensor, seed: int) -> Tensor:
        """Return sum_kc w_kc N_kc, `[features, hidden]`, for weights `[training clients, classes]`."""
        part = graph.trained
        if self.first is not None:
            return torch.einsum("kc,kcph->ph", w, self.first[part])
        x, w64, at = (value.double().cpu() for value in (samples.x[part, 0], w, self.at_samples[part, 0]))
        source = _generator("gfl noise in the mean", seed, self.round)
        return draw_mean(self.std**2 * graph.mix, x, w64, at, source).to(w)


@dataclass(frozen=True)
class Received:
    """The messages that clients hold after an exchange, and the parts that the server keeps to average the round.

    Args:
        c: C_k, `[clients, classes]`.
        diagonal: A_kk, `[clients]`.
        active: the gradient of C_k by the second layer, the same for each class, `[clients, hidden]`.
        projected: M_k^T x_ks, `[clients, samples, hidden]`.
        on: per run, which hidden units are on at each sample of the means, `[held samples, hidden]`, 0 or 1.
        logits: what the average predicts, `[nodes, classes]`.
        noise: None without noise.
    """

    c: Tensor
    diagonal: Tensor
    active: Tensor
    projected: Tensor
    on: list[Tensor]
    logits: Tensor
    noise: Noise | None = None


def exchange(
    fed: Federation, graphs: list[Graph], samples: Samples, shared: Weights, t: int, compensation: bool, std: float
) -> Received:
    """Compute h_j, C_k and grad C_k under the server's average before round `t` (Algorithm 1, lines 2, 3).

    Args:
        graphs: one per run.
        shared: the average, `[runs, ...]`.
        compensation: whether gradients are exchanged too.
        std: standard deviation of the noise on the gradients.
    """
    clients, width, features, hidden = *samples.rows.shape, *shared[FIRST].shape[1:]
    classes, zeros, empty = fed.classes, shared[FIRST].new_zeros, shared[FIRST].new_empty
    received = Received(
        c=zeros(clients, classes),
        diagonal=zeros(clients),
        active=zeros(clients, hidden),
        projected=zeros(clients, width, hidden),
        on=[],
        logits=zeros(fed.nodes, classes),
    )
    if std and compensation:
        # N_k is written out if clients train on several samples, or if some predict under their local weights.
        whole = width > 1 or not only_training_nodes(fed)
        first = empty(clients, classes, features, hidden) if whole else None
        at_samples, second = zeros(clients, width, classes, hidden), empty(clients, classes, hidden, classes)
        received = replace(received, noise=Noise(std, t, at_samples, second, first))
    for run, graph in enumerate(graphs):
        part, diagonal = graph.trained, graph.a.diagonal()
        z = F.relu(graph.x @ shared[FIRST][run])
        on = (z[graph.held] > 0).to(z.dtype)
        means = graph.means(z[graph.held])
        h = means @ shared[SECOND][run]
        c = graph.a @ h - diagonal[:, None] * h
        received.on.append(on)
        received.logits[graph.rows] = diagonal[graph.node, None] * (z @ shared[SECOND][run]) + c[graph.node]
        received.c[part], received.diagonal[part] = c[graph.train], diagonal[graph.train]
        if not compensation:
            continue
        received.active[part] = graph.off @ means
        if graph.gram is not None:
            received.projected[part] = (graph.gram @ on).view(-1, width, hidden)
        if received.noise is not None:
            received.noise.fill(graph, samples, fed.seeds[run])
    return received


def only_training_nodes(fed: Federation) -> bool:
    """Return whether every client that trains holds nothing but training nodes."""
    count = fed.count("train")
    return not bool(((count > 0) & (count < fed.count("all"))).any())


def count_messages(fed: Federation, graphs: list[Graph], shared: Weights, t: int, compensation: bool) -> None:
    """Count the messages of one exchange.

    Every client uploads h and its gradient (one number per class and weight), and receives C and its gradient. Clients
    that do not train also receive the average, since h is computed with it.
    """
    size = sum(w[0].numel() for w in shared.values())
    nodes = np.array([len(graph.a) for graph in graphs])
    rest = nodes - np.array([len(graph.train) for graph in graphs])
    if rest.any():
        fed.traffic.send("down", "weights", rest * size, round=t)
    for direction, name in (("up", "h"), ("down", "C")):
        fed.traffic.send(direction, name, nodes * fed.classes, round=t)
        if compensation:
            fed.traffic.send(direction, f"gradient of {name}", nodes * fed.classes * size, round=t)


# -- drawing V1's noise -----------------------------------------------------------------------------------------------


def _generator(name: str, seed: int, t: int) -> torch.Generator:
    return torch.Generator(device="cpu").manual_seed(int(random.keys(name, seed, t) >> np.uint64(1)))


def root(matrix: Tensor) -> Tensor:
    """Return the symmetric square root of a positive semi-definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    result: Tensor = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    return result


def draw(mix: Tensor, source: torch.Generator, out: Tensor) -> None:
    """Draw N_k for every client into `out`, `[clients, ...]`.

    Args:
        mix: covariance over the clients, `[clients, clients]`, float64.
        source: generator of the normal numbers.
    """
    normal = torch.randn(out.flatten(1).shape, generator=source).to(out)
    torch.mm(root(mix).to(out), normal, out=out.flatten(1))


def draw_at_samples(mix: Tensor, x: Tensor, classes: int, hidden: int, source: torch.Generator) -> Tensor:
    """Draw x_k^T N_k for clients with one sample each, float64: `[clients, classes, hidden]`.

    Args:
        mix: covariance over the clients, `[clients, clients]`, float64.
        x: samples `[clients, features]`, float64.
    """
    normal = torch.randn(len(x), classes * hidden, generator=source, dtype=torch.float64)
    return (root(mix * (x @ x.T)) @ normal).view(len(x), classes, hidden)


def draw_mean(mix: Tensor, x: Tensor, w: Tensor, at: Tensor, source: torch.Generator) -> Tensor:
    """Draw sum_kc w_kc N_kc given the noise at the samples, float64: `[features, hidden]`.

    With b_c = mix w_c, S = mix * x x^T and v = sum_c w_c^T mix w_c, the sum has mean x^T sum_c diag(b_c) S^+ at_c. Its
    covariance in each column is v I - x^T (S^+ * sum_c b_c b_c^T) x, which is v I outside the span of the samples.

    Args:
        mix: covariance over the clients, `[clients, clients]`, float64.
        x: samples `[clients, features]`, float64.
        w: weights `[clients, classes]`, float64.
        at: `[clients, classes, hidden]`, from `draw_at_samples`.
    """
    b = mix @ w
    v = float((b * w).sum().clamp(min=0))
    inner = x @ x.T
    inverse = torch.linalg.pinv(mix * inner, rtol=TINY, hermitian=True)
    mean = x.T @ torch.einsum("kc,kl,lch->kh", b, inverse, at)
    values, vectors = torch.linalg.eigh(inner)
    kept = values > TINY * values[-1]
    size = values[kept].sqrt()
    left = vectors[:, kept] * size
    basis = (vectors[:, kept].T @ x) / size[:, None]  # orthonormal rows, [rank, features]
    covariance = torch.eye(len(size), dtype=x.dtype) * v - left.T @ (inverse * (b @ b.T)) @ left
    normal = torch.randn(x.shape[1], at.shape[2], generator=source, dtype=torch.float64)
    inside = basis @ normal
    result: Tensor = mean + v**0.5 * normal + basis.T @ (root(covariance) @ inside - v**0.5 * inside)
    return result
