"""FedGAT's protocol as printed: what the server sends before training, and how a client computes its layer from that.

Matrix FedGAT (Section 4, Algorithms 1 and 2) and Vector FedGAT (Appendix F). `methods/fedgat.py` trains the same layer
edge by edge; here every matrix is built, counted and sent, so memory grows with the square of a node's degree. A node
has g neighbours, itself among them, and d features:

    Matrix   M1(s), M2(s) for s = 1..d of (2g)^2 each, K1 of 2g, K2 of 2g x d
    Vector   M1, M2 of d x 2g, K1 of 2g x d, K2 of (2g)^2, K3 of 2g

Where the printed steps do not compute what they should:

    FG-Q2   D^0 is the identity, so n = 0 would be counted twice: E^(0) and F^(0) are halved
    FG-Q4   Eq. 9 and Algorithm 1 swap r and 1/r; either is idempotent, Eq. 9 is taken
    FG-Q5   U_j stands where Algorithm 1 prints A_j, N_i for N_j, b2(s) h_j(s) for b2(s) + h_j(s)
    FG-Q16  Vector: b1, b2 for a1, a2; F = R K3 for R K2; M1, M2 are d x 2g; u_j, binary and of norm 1, has a single
            one; masks 3 and 5 add up to zero over their rows, so that R^0, all ones, brings none of them in
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
from fedrepro.papers.fedgat.distgat import DistGAT
from fedrepro.papers.fedgat.method import FedGAT

FORMS = ("matrix", "vector")
LIMIT = 2**30  # bytes of one message


@dataclass(frozen=True)
class MatrixMessage:
    """What Algorithm 1 sends for a node, or the part of it that is about the features from `first` on.

    Shapes: m1, m2 `[features, 2g, 2g]`; k1 `[2g]`, in the first part alone (empty in others); k2 `[2g, features]`.
    """

    node: int
    first: int
    m1: Tensor
    m2: Tensor
    k1: Tensor
    k2: Tensor

    @property
    def scalars(self) -> int:
        """How many numbers travel."""
        return sum(part.numel() for part in (self.m1, self.m2, self.k1, self.k2))


@dataclass(frozen=True)
class VectorMessage:
    """What Vector FedGAT sends for a node: m1, m2 `[features, 2g]`, k1 `[2g, features]`, k2 `[2g, 2g]`, k3 `[2g]`."""

    node: int
    m1: Tensor
    m2: Tensor
    k1: Tensor
    k2: Tensor
    k3: Tensor

    @property
    def scalars(self) -> int:
        """How many numbers travel."""
        return sum(part.numel() for part in (self.m1, self.m2, self.k1, self.k2, self.k3))


Message = MatrixMessage | VectorMessage


# -- sizes ------------------------------------------------------------------------------------------------------------


def scalars(form: str, g: int, features: int) -> int:
    """Numbers sent for one node with `g` neighbours, itself among them."""
    if one_of("form", form, FORMS) == "matrix":
        return 2 * features * (2 * g) ** 2 + 2 * g + 2 * g * features
    return 3 * 2 * g * features + (2 * g) ** 2 + 2 * g


def neighbours(data: Data) -> list[np.ndarray]:
    """The neighbours of each node, itself among them: those an edge leads from."""
    every = np.arange(data.num_nodes)
    source, target = np.concatenate([data.edge_index.numpy(), np.stack([every, every])], axis=1)
    pairs = np.unique(target * data.num_nodes + source)
    return np.split(pairs % data.num_nodes, np.searchsorted(pairs // data.num_nodes, every[1:]))


def receivers(near: Sequence[np.ndarray], part: Tensor) -> np.ndarray:
    """The nodes whose message a client receives: its own and their neighbours, for a network of two layers (FG-Q9)."""
    return np.unique(np.concatenate([near[i] for i in part.tolist()]))


# -- the server -------------------------------------------------------------------------------------------------------


def matrix_messages(
    node: int, own: Tensor, h: Tensor, seed: int = 0, *, block: int | None = None, limit: int = LIMIT
) -> Iterator[MatrixMessage]:
    """Algorithm 1 for one node, whole or in parts of `block` features.

    Args:
        node: its number, which with `seed` decides the orthonormal vectors and r.
        own: h_i, `[features]`.
        h: h_j for all its neighbours, itself among them, `[g, features]`.
        limit: bytes that one part may take.

    Raises:
        ArgumentError: a part would take more than `limit`; said before anything is allocated.
    """
    features = h.shape[1]
    block = features if block is None else block
    _affordable(node, "matrix", len(h), min(block, features), h.element_size(), limit)
    return _matrix_parts(node, own, h, seed, block)


def _matrix_parts(node: int, own: Tensor, h: Tensor, seed: int, block: int) -> Iterator[MatrixMessage]:
    u1, projections = projectors(len(h), seed, node)
    u1, flat = u1.to(h.dtype), projections.to(h.dtype).flatten(1)
    k1 = 2**0.5 * u1.sum(0)  # Eq. 11
    for first in range(0, h.shape[1], block):
        part = slice(first, first + block)
        shape = (-1, 2 * len(h), 2 * len(h))
        yield MatrixMessage(
            node, first,
            m1=torch.outer(own[part], flat.sum(0)).view(shape),  # Eq. 13
            m2=(h[:, part].T @ flat).view(shape),
            k1=k1 if first == 0 else k1[:0],
            k2=2**0.5 * u1.T @ h[:, part],
        )  # fmt: skip


def projectors(g: int, seed: int, node: int) -> tuple[Tensor, Tensor]:
    """u_1j `[g, 2g]`, from a QR decomposition, and U_j `[g, 2g, 2g]` of Eq. 9 with r drawn from (1/2, 2)."""
    q = torch.linalg.qr(random.normal((2 * g, 2 * g), "orthonormal", seed, node)).Q.T
    u1, u2 = q[:g], q[g:]
    r = 2.0 ** float(2 * random.uniform((1,), "r", seed, node) - 1)
    # r u1 u2^T + (1/r) u2 u1^T and the rest of Eq. 9 make one outer product
    return u1, 0.5 * (u1 + u2 / r)[:, :, None] * (u1 + r * u2)[:, None, :]


def vector_message(node: int, own: Tensor, h: Tensor, seed: int = 0, *, limit: int = LIMIT) -> VectorMessage:
    """Vector FedGAT's message for one node (Appendix F); arguments and errors as for `matrix_messages`."""
    g, features = h.shape
    _affordable(node, "vector", g, features, h.element_size(), limit)

    def draw(*shape: int, name: str) -> Tensor:
        return random.normal(shape, name, seed, node).to(h.dtype)

    order = random.uniform((2 * g,), "positions", seed, node).argsort()
    ones, rest = order[:g], order[g:]  # u_j has its one at ones[j]
    m1, m2 = h.new_zeros(features, 2 * g), h.new_zeros(features, 2 * g)
    k1, k2, k3 = h.new_zeros(2 * g, features), h.new_zeros(2 * g, 2 * g), h.new_zeros(2 * g)
    # mask4 has rows u_j^T = u_j^T mask4, and random ones C elsewhere; masks 1 and 2 are then (-B C, B)
    mixed = draw(g, g, name="mask4")
    k2[ones, ones] = 1.0
    k2[rest[:, None], ones] = mixed
    for name, m, rows in (("mask1", m1, own.expand(g, -1)), ("mask2", m2, h)):
        free = draw(features, g, name=name)
        m[:, rest] = free
        m[:, ones] = rows.T - free @ mixed
    k1[rest] = _centred(draw(g, features, name="mask3"))
    k1[ones] = h
    k3[rest] = _centred(draw(g, 1, name="mask5"))[:, 0]
    k3[ones] = 1.0
    return VectorMessage(node, m1, m2, k1, k2, k3)


def _centred(mask: Tensor) -> Tensor:
    return mask - mask.mean(0)


def _affordable(node: int, form: str, g: int, features: int, size: int, limit: int) -> None:
    needed = size * scalars(form, g, features)
    if needed > limit:
        blocks = "" if form == "vector" else ", or take the features in blocks (block=64)"
        raise ArgumentError(
            f"node {node} has {g} neighbours, itself among them, so {features} features of its {form} message take "
            f"{needed:,} bytes, beyond the limit of {limit:,}. Raise limit{blocks}."
        )


# -- the client -------------------------------------------------------------------------------------------------------


def moments(messages: Iterable[Message], b1: Tensor, b2: Tensor, degree: int) -> tuple[Tensor, Tensor]:
    """E^(n) = sum_j x_ij^n h_j and F^(n) = sum_j x_ij^n (Eq. 8), n = 0..degree, from a node's messages alone.

    Args:
        messages: all parts of one node's message.
        b1, b2: W^T a_1 and W^T a_2, `[heads, features]`.

    Returns:
        `[degree + 1, heads, features]` and `[degree + 1, heads]`.
    """
    parts = iter(messages)
    head = next(parts)
    if isinstance(head, VectorMessage):
        return _vector_moments(head, b1, b2, degree)
    d, k2 = combination(chain([head], parts), b1, b2)
    return matrix_moments(d, head.k1, k2, degree)


def combination(messages: Iterable[Message], b1: Tensor, b2: Tensor) -> tuple[Tensor, Tensor]:
    """D = sum_s b1(s) M1(s) + b2(s) M2(s) (Eq. 14) `[heads, 2g, 2g]`, and K2 of all features `[2g, features]`."""
    d, k2 = b1.new_zeros(()), []
    for message in messages:
        assert isinstance(message, MatrixMessage)
        part = slice(message.first, message.first + len(message.m1))
        mixed = b1[:, part] @ message.m1.flatten(1) + b2[:, part] @ message.m2.flatten(1)
        d = d + mixed.view(len(b1), *message.m1.shape[1:])
        k2.append(message.k2)
    return d, torch.cat(k2, 1)


def matrix_moments(d: Tensor, k1: Tensor, k2: Tensor, degree: int) -> tuple[Tensor, Tensor]:
    """E^(n) and F^(n) from D, K1 and K2 (Eq. 12), shapes as for `moments`."""
    power = k1.expand(len(d), 1, -1)  # K1^T D^n
    e, f = [], []
    for n in range(degree + 1):
        share = 0.5 if n == 0 else 1.0  # FG-Q2
        e.append(share * (power @ k2).squeeze(1))
        f.append(share * (power @ k1).squeeze(1))
        power = power @ d
    return torch.stack(e), torch.stack(f)


def _vector_moments(message: VectorMessage, b1: Tensor, b2: Tensor, degree: int) -> tuple[Tensor, Tensor]:
    r = (b1 @ message.m1 + b2 @ message.m2) @ message.k2  # steps 1 and 2: sum_j x_ij u_j^T
    powers = r[None] ** torch.arange(degree + 1, dtype=r.dtype)[:, None, None]  # step 3, elementwise
    return powers @ message.k1, powers @ message.k3  # step 4


def layer(messages: Iterable[Message], weights: Weights, series: np.ndarray, interval: float) -> Tensor:
    """The node's first layer before bias and activation (Eq. 7): `[heads, hidden]`.

    Args:
        weights: of one slice: "layer1.weight", W of all heads `[features, heads * hidden]`; "layer1.source" and
            "layer1.target", a_2 and a_1 `[heads, hidden]`.
        series: Chebyshev coefficients of the score on [-interval, interval].
    """
    w, b1, b2 = attention(weights)
    return mix(*moments(messages, b1, b2, len(series) - 1), w, series, interval)


def attention(weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
    """W by heads `[features, heads, hidden]`, b1 and b2 `[heads, features]` (Eq. 4); `weights` as for `layer`."""
    a1, a2 = weights["layer1.target"], weights["layer1.source"]
    w = weights["layer1.weight"].view(-1, *a1.shape)
    return w, torch.einsum("fhw,hw->hf", w, a1), torch.einsum("fhw,hw->hf", w, a2)


def mix(e: Tensor, f: Tensor, w: Tensor, series: np.ndarray, interval: float) -> Tensor:
    """W sum_n q_n E^(n) / sum_n q_n F^(n) (Eq. 6 and 7): `[heads, hidden]`."""
    q = torch.from_numpy(cheb2poly(series) / interval ** np.arange(len(series))).to(w)
    mixed = torch.einsum("n,nhf->hf", q, e) / (q @ f)[:, None]
    return torch.einsum("hf,fhw->hw", mixed, w)


# -- training by the protocol -----------------------------------------------------------------------------------------

Mailbox = dict[tuple[int, int], Message]  # (client, node) -> what the client received for that node


def exchange(fed: Federation, form: str = "matrix", limit: int = LIMIT) -> Mailbox:
    """The round before training, message by message: features up, and down a message for each node that a client
    evaluates; every one is counted in `fed.traffic`.

    Raises:
        ArgumentError: more than one run, or messages that take more than `limit` bytes together.
    """
    require(fed.runs == 1, "fed", "one run", fed.runs)
    data, parts = fed.sources[0]
    near, x = neighbours(data), _dense(data.x).to(fed.dtype)
    sent = [(client, int(i)) for client, part in enumerate(parts) for i in receivers(near, part)]
    size = torch.finfo(fed.dtype).bits // 8
    needed = size * sum(scalars(form, len(near[i]), x.shape[1]) for _, i in sent)
    require(needed <= limit, "limit", f"at least {needed:,} bytes, which these messages take together", limit)
    for part in parts:
        fed.traffic.send("up", "features", len(part) * x.shape[1])
    mailbox: Mailbox = {}
    for client, i in sent:
        message: Message
        if form == "matrix":
            (message,) = matrix_messages(i, x[i], x[near[i]], fed.seeds[0], limit=limit)
        else:
            message = vector_message(i, x[i], x[near[i]], fed.seeds[0], limit=limit)
        fed.traffic.send("down", "matrices", message.scalars)
        mailbox[client, i] = message
    return mailbox


def _dense(x: Tensor) -> Tensor:
    return x.to_dense() if x.layout != torch.strided else x


@dataclass(frozen=True, kw_only=True)
class FedGATProtocol(FedGAT):
    """FedGAT with its first layer computed from messages, node by node: for small graphs, and to be held against
    `FedGAT`.

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
        """The exchange; the messages are kept beside the weights."""
        mailbox = exchange(fed, self.form, self.limit)
        extended, state = DistGAT.start(self, fed.halo(2))
        return extended, State(state.shared, state.personal, mailbox)

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Layer 1 from the messages (Algorithm 2, l = 1), layer 2 an exact GAT layer (l > 1)."""
        slices = [{name: w[i] for name, w in weights.items()} for i in range(fed.slices)]
        rows = list(weights["layer1.weight"].new_zeros(fed.nodes, self.model.heads, self.model.hidden))
        for n in sorted(set(fed.attention_edges(1).target.tolist())):
            key = int(fed.number[fed.batch.batch[n]]), int(fed.batch.node_id[n])
            rows[n] = layer([state.more[key]], slices[int(fed.node_slice[n])], self.series, self.interval)
        return self.model.second_layer(weights, fed, torch.stack(rows))
