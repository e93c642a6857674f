"""Run FedGAT's protocol literally, so that the server builds and sends every matrix and the clients train by them.

The paper has two forms, Matrix FedGAT (Section 4, Algorithms 1 and 2) and Vector FedGAT (Appendix F). The class
`FedGAT` trains the same layer edge by edge. This file takes memory that grows with the square of a node's degree,
and serves to check the layer, to count what is sent, and to attack it.

A node i has g neighbours, itself among them, and d features. The server sends about it:

    Matrix   M1(s), M2(s) `[2g, 2g]` for s = 1..d      K1 `[2g]`       K2 `[2g, d]`
    Vector   M1, M2 `[d, 2g]`                          K1 `[2g, d]`    K2 `[2g, 2g]`    K3 `[2g]`

A client combines them under its weights and gets the sums of Eq. 8, from which Eq. 7 gives its layer:

    E^(n) = sum_j x_ij^n h_j      F^(n) = sum_j x_ij^n      n = 0..p

Algorithm 1, before training:

    1. The clients send the features of their nodes.                         `exchange`
    2. The server draws orthonormal u_1j, u_2j and builds U_j (Eq. 9).       `projectors`
    3. The server builds M1(s), M2(s) (Eq. 13), K1 and K2 (Eq. 11).          `matrix_messages`
    4. The server sends them for each node that a client evaluates.          `receivers`, `exchange`

Algorithm 2, layer 1 of a node at a client:

    1. b_1 = W^T a_1 and b_2 = W^T a_2 (Eq. 4).                              `attention`
    2. D = sum_s b_1(s) M1(s) + b_2(s) M2(s) (Eq. 14).                       `combination`
    3. E^(n) = K1^T D^n K2 and F^(n) = K1^T D^n K1 (Eq. 12).                 `matrix_moments`
    4. W sum_n q_n E^(n) / sum_n q_n F^(n) (Eq. 6, 7).                       `mix`

`FedGATProtocol` trains by these steps. Layer 2 and the rounds are those of `FedGAT`.

Points where the printed steps do not compute what they should:

    zeroth power    D^0 is the identity and would count n = 0 twice. E^(0) and F^(0) are halved. (FG-Q2)
    r and 1/r       Eq. 9 and Algorithm 1 swap them. Either choice is idempotent. Eq. 9 is taken. (FG-Q4)
    misprints       U_j is meant where Algorithm 1 prints A_j, N_i for N_j, b_2(s) h_j(s) for b_2(s) + h_j(s). (FG-Q5)
    Vector form     b_1, b_2 are meant for a_1, a_2, and F = R K3 for R K2. M1 and M2 are d x 2g. Each u_j is binary and
                    of norm 1, so it has a single one. The columns of masks 3 and 5 add up to zero, so that R^0, which
                    is all ones, cancels them. (FG-Q16)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.polynomial.chebyshev import cheb2poly
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn import random
from fedrepro.errors import ArgumentError, one_of, require
from fedrepro.papers.fedgat.method import DistGAT, FedGAT

FORMS = ("matrix", "vector")
LIMIT = 2**30  # bytes of one message

# -- messages ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """A message of the server about one node, or the part of it that is about the features from `first` on."""

    node: int
    first: int

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Return what is sent, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    @property
    def scalars(self) -> int:
        """Return how many numbers are sent."""
        return sum(tensor.numel() for tensor in self.tensors.values())


@dataclass(frozen=True)
class MatrixMessage(Message):
    """A message of Algorithm 1, whole or in parts.

    Args:
        m1, m2: `[features, 2g, 2g]`.
        k1: `[2g]` in the first part, and empty in the others.
        k2: `[2g, features]`.
    """

    m1: Tensor
    m2: Tensor
    k1: Tensor
    k2: Tensor


@dataclass(frozen=True)
class VectorMessage(Message):
    """A message of Vector FedGAT, always whole.

    Args:
        m1, m2: `[features, 2g]`.
        k1: `[2g, features]`.
        k2: `[2g, 2g]`.
        k3: `[2g]`.
    """

    m1: Tensor
    m2: Tensor
    k1: Tensor
    k2: Tensor
    k3: Tensor


def scalars(form: str, g: int, features: int) -> int:
    """Return how many numbers are sent about one node with `g` neighbours, itself among them."""
    if one_of("form", form, FORMS) == "matrix":
        return 2 * features * (2 * g) ** 2 + 2 * g + 2 * g * features
    return 3 * 2 * g * features + (2 * g) ** 2 + 2 * g


def neighbours(data: Data) -> list[np.ndarray]:
    """Return the neighbours of each node, itself among them. A neighbour is a node from which an edge leads to it."""
    nodes = np.arange(data.num_nodes)
    source, target = np.concatenate([data.edge_index.numpy(), np.stack([nodes, nodes])], axis=1)
    pairs = np.unique(target * data.num_nodes + source)
    return np.split(pairs % data.num_nodes, np.searchsorted(pairs // data.num_nodes, nodes[1:]))


def receivers(near: Sequence[np.ndarray], part: Tensor | np.ndarray) -> np.ndarray:
    """Return the nodes of a client and their neighbours.

    The client receives messages about these nodes if its network has two layers (FG-Q9).
    """
    return np.unique(np.concatenate([near[i] for i in part.tolist()]))


def dense_features(data: Data, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return the features of a graph as a dense matrix `[nodes, features]`."""
    x: Tensor = data.x if data.x.layout == torch.strided else data.x.to_dense()
    return x.to(dtype)


# -- the server -------------------------------------------------------------------------------------------------------


def message_parts(
    form: str, node: int, h_i: Tensor, h: Tensor, seed: int = 0, *, block: int | None = None, limit: int = LIMIT
) -> Iterator[Message]:
    """Return the parts of a node's message in either form. Arguments are those of `matrix_messages`.

    A Vector message is small and always comes whole.
    """
    if one_of("form", form, FORMS) == "matrix":
        return matrix_messages(node, h_i, h, seed, block=block, limit=limit)
    return iter([vector_message(node, h_i, h, seed, limit=limit)])


def matrix_messages(
    node: int, h_i: Tensor, h: Tensor, seed: int = 0, *, block: int | None = None, limit: int = LIMIT
) -> Iterator[MatrixMessage]:
    """Return the message of Algorithm 1 about one node (line 3), whole or in parts of `block` features.

    Args:
        node: number of the node. With `seed` it decides the orthonormal vectors and r.
        h_i: features of the node, `[features]`.
        h: h_j for all neighbours of the node, itself among them, `[g, features]`.
        limit: bytes that one part may take.

    Raises:
        ArgumentError: a part would take more than `limit`. The error comes before anything is allocated.
    """
    features = h.shape[1]
    block = features if block is None else block
    _check_limit(node, "matrix", len(h), min(block, features), h.element_size(), limit)
    return _matrix_parts(node, h_i, h, seed, block)


def _matrix_parts(node: int, h_i: Tensor, h: Tensor, seed: int, block: int) -> Iterator[MatrixMessage]:
    u1, projections = projectors(len(h), seed, node)
    u1, flat = u1.to(h.dtype), projections.to(h.dtype).flatten(1)
    k1 = 2**0.5 * u1.sum(0)  # Eq. 11
    shape = (-1, 2 * len(h), 2 * len(h))
    for first in range(0, h.shape[1], block):
        part = slice(first, first + block)
        m1 = torch.outer(h_i[part], flat.sum(0)).view(shape)  # Eq. 13
        m2 = (h[:, part].T @ flat).view(shape)
        yield MatrixMessage(node, first, m1, m2, k1 if first == 0 else k1[:0], 2**0.5 * u1.T @ h[:, part])


def projectors(g: int, seed: int, node: int) -> tuple[Tensor, Tensor]:
    """Return u_1j `[g, 2g]`, from a QR decomposition, and U_j `[g, 2g, 2g]` (line 2, Eq. 9), with r from (1/2, 2)."""
    q = torch.linalg.qr(random.normal((2 * g, 2 * g), "orthonormal", seed, node)).Q.T
    u1, u2 = q[:g], q[g:]
    r = 2.0 ** float(2 * random.uniform((1,), "r", seed, node) - 1)
    # The four terms of Eq. 9 are one outer product, so U_j has rank one.
    return u1, 0.5 * (u1 + u2 / r)[:, :, None] * (u1 + r * u2)[:, None, :]


def vector_message(node: int, h_i: Tensor, h: Tensor, seed: int = 0, *, limit: int = LIMIT) -> VectorMessage:
    """Return the message of Vector FedGAT about one node (Appendix F).

    Arguments and errors are those of `matrix_messages`. The free parts of the five masks are drawn from normal
    distributions, since the paper names none.
    """
    g, features = h.shape
    _check_limit(node, "vector", g, features, h.element_size(), limit)

    def draw(*shape: int, name: str) -> Tensor:
        return random.normal(shape, name, seed, node).to(h.dtype)

    order = random.uniform((2 * g,), "positions", seed, node).argsort()
    ones, rest = order[:g], order[g:]  # u_j has its one at ones[j]
    m1, m2 = h.new_zeros(features, 2 * g), h.new_zeros(features, 2 * g)
    k1, k2, k3 = h.new_zeros(2 * g, features), h.new_zeros(2 * g, 2 * g), h.new_zeros(2 * g)
    # K2 is mask4. Its rows at `ones` are u_j^T, since u_j^T mask4 = u_j^T, and the other rows are a random C.
    # Masks 1 and 2 times mask4 are then zero if they have a random B at `rest` and -B C at `ones`.
    c = draw(g, g, name="mask4")
    k2[ones, ones] = 1.0
    k2[rest[:, None], ones] = c
    for name, m, rows in (("mask1", m1, h_i.expand(g, -1)), ("mask2", m2, h)):
        b = draw(features, g, name=name)
        m[:, rest] = b
        m[:, ones] = rows.T - b @ c
    mask3, mask5 = draw(g, features, name="mask3"), draw(g, 1, name="mask5")
    k1[rest] = mask3 - mask3.mean(0)
    k1[ones] = h
    k3[rest] = (mask5 - mask5.mean(0))[:, 0]
    k3[ones] = 1.0
    return VectorMessage(node, 0, m1, m2, k1, k2, k3)


def _check_limit(node: int, form: str, g: int, features: int, size: int, limit: int) -> None:
    """Raise unless a part of a message, in scalars of `size` bytes, takes at most `limit` bytes."""
    needed = size * scalars(form, g, features)
    if needed > limit:
        blocks = "" if form == "vector" else ", or take the features in blocks (block=64)"
        raise ArgumentError(
            f"node {node} has {g} neighbours, itself among them, so {features} features of its {form} message take "
            f"{needed:,} bytes, beyond the limit of {limit:,}. Raise limit{blocks}."
        )


# -- the client -------------------------------------------------------------------------------------------------------


def layer(messages: Iterable[Message], weights: Weights, series: np.ndarray, interval: float) -> Tensor:
    """Return a node's first layer before bias and activation (Eq. 7), `[heads, hidden]`, from its message only.

    Args:
        messages: all parts of the node's message.
        weights: of one slice. "layer1.weight" is W of all heads `[features, heads * hidden]`, "layer1.source" and
            "layer1.target" are a_2 and a_1 `[heads, hidden]`.
        series: Chebyshev coefficients of the score on [-interval, interval], `[degree + 1]`.
        interval: half the length of the interval.
    """
    w, b1, b2 = attention(weights)
    return mix(*moments(messages, b1, b2, len(series) - 1), w, series, interval)


def attention(weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
    """Return W by heads `[features, heads, hidden]`, and b_1 and b_2 `[heads, features]` (Eq. 4)."""
    a1, a2 = weights["layer1.target"], weights["layer1.source"]
    w = weights["layer1.weight"].view(-1, *a1.shape)
    return w, torch.einsum("fhw,hw->hf", w, a1), torch.einsum("fhw,hw->hf", w, a2)


def moments(messages: Iterable[Message], b1: Tensor, b2: Tensor, degree: int) -> tuple[Tensor, Tensor]:
    """Return E^(n) and F^(n) of Eq. 8, n = 0..degree, from a node's message.

    Args:
        messages: all parts of the node's message.
        b1, b2: W^T a_1 and W^T a_2, `[heads, features]`.

    Returns:
        `[degree + 1, heads, features]` and `[degree + 1, heads]`.
    """
    parts = iter(messages)
    head = next(parts)
    if isinstance(head, VectorMessage):
        r = (b1 @ head.m1 + b2 @ head.m2) @ head.k2  # steps 1 and 2: sum_j x_ij u_j^T
        powers = r[None] ** torch.arange(degree + 1, dtype=r.dtype)[:, None, None]  # step 3, elementwise
        return powers @ head.k1, powers @ head.k3  # step 4
    assert isinstance(head, MatrixMessage)
    d, k2 = combination(chain([head], parts), b1, b2)
    return matrix_moments(d, head.k1, k2, degree)


def combination(messages: Iterable[Message], b1: Tensor, b2: Tensor) -> tuple[Tensor, Tensor]:
    """Return D of Eq. 14 `[heads, 2g, 2g]`, and K2 of all features `[2g, features]`."""
    d, k2 = b1.new_zeros(()), []
    for message in messages:
        assert isinstance(message, MatrixMessage)
        part = slice(message.first, message.first + len(message.m1))
        terms = b1[:, part] @ message.m1.flatten(1) + b2[:, part] @ message.m2.flatten(1)
        d = d + terms.view(len(b1), *message.m1.shape[1:])
        k2.append(message.k2)
    return d, torch.cat(k2, 1)


def matrix_moments(d: Tensor, k1: Tensor, k2: Tensor, degree: int) -> tuple[Tensor, Tensor]:
    """Return E^(n) and F^(n) from D, K1 and K2 (Eq. 12), shapes as for `moments`."""
    power = k1.expand(len(d), 1, -1)  # K1^T D^n
    e, f = [], []
    for n in range(degree + 1):
        # K1^T K2 = 2 sum_j h_j, since D^0 is the identity and not sum_j U_j (FG-Q2).
        share = 0.5 if n == 0 else 1.0
        e.append(share * (power @ k2).squeeze(1))
        f.append(share * (power @ k1).squeeze(1))
        power = power @ d
    return torch.stack(e), torch.stack(f)


def mix(e: Tensor, f: Tensor, w: Tensor, series: np.ndarray, interval: float) -> Tensor:
    """Return W sum_n q_n E^(n) / sum_n q_n F^(n) (Eq. 6, 7), `[heads, hidden]`, with q the series in powers of x."""
    q = torch.from_numpy(cheb2poly(series) / interval ** np.arange(len(series))).to(w)
    mixed = torch.einsum("n,nhf->hf", q, e) / (q @ f)[:, None]
    return torch.einsum("hf,fhw->hw", mixed, w)


# -- training by the protocol -----------------------------------------------------------------------------------------

Mailbox = dict[tuple[int, int], Message]  # (client, node) -> the client's message about the node


def exchange(fed: Federation, form: str = "matrix", limit: int = LIMIT) -> Mailbox:
    """Return the messages that every client receives before training (lines 1 and 4), and count them in `fed.traffic`.

    The clients send their features. The server sends a client one message about each node that it evaluates.

    Raises:
        ArgumentError: the federation has several runs, or the messages take more than `limit` bytes together.
    """
    require(fed.runs == 1, "fed", "one run", fed.runs)
    data, parts = fed.sources[0]
    near, x = neighbours(data), dense_features(data, fed.dtype)
    wanted = [(client, int(i)) for client, part in enumerate(parts) for i in receivers(near, part)]
    size = torch.finfo(fed.dtype).bits // 8
    needed = size * sum(scalars(form, len(near[i]), x.shape[1]) for _, i in wanted)
    require(needed <= limit, "limit", f"at least {needed:,} bytes, which these messages take together", limit)
    for part in parts:
        fed.traffic.send("up", "features", len(part) * x.shape[1])
    mailbox: Mailbox = {}
    for client, i in wanted:
        (message,) = message_parts(form, i, x[i], x[near[i]], fed.seeds[0], limit=limit)
        fed.traffic.send("down", "matrices", message.scalars)
        mailbox[client, i] = message
    return mailbox


@dataclass(frozen=True, kw_only=True)
class FedGATProtocol(FedGAT):
    """A FedGAT that computes its first layer from messages, node by node, for small graphs.

    It trains the same weights as `FedGAT`, up to rounding.

    Args:
        form: "matrix" or "vector".
        limit: bytes that all messages may take together.
    """

    form: str = "matrix"
    limit: int = LIMIT

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("form", self.form, FORMS)
        one_of("score", self.score, ("paper",))

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Run Algorithm 1 (lines 1 to 4). Return the federation and the initial weights with the messages."""
        mailbox = exchange(fed, self.form, self.limit)
        extended, state = DistGAT.start(self, fed.halo(2))
        return extended, State(state.shared, state.personal, mailbox)

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return the logits `[nodes, classes]`, layer 1 from the messages (Algorithm 2) and layer 2 as in a GAT."""
        slices = [{name: w[i] for name, w in weights.items()} for i in range(fed.slices)]
        heads = list(weights["layer1.weight"].new_zeros(fed.nodes, self.model.heads, self.model.hidden))
        for n in sorted(set(fed.attention_edges(1).target.tolist())):
            key = int(fed.number[fed.batch.batch[n]]), int(fed.batch.node_id[n])
            heads[n] = layer([state.more[key]], slices[int(fed.node_slice[n])], self.series, self.interval)
        return self.model.second_layer(weights, fed, torch.stack(heads))
