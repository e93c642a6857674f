"""Sheaf collaboration: the graph of the clients, its sheaf Laplacian and the diffusion on it (FedSheafHN, Section 3.2).

The server describes every client by a vector. It joins similar clients by an edge (Eq. 4) and mixes the vectors along
the edges (Eq. 5 to 9). In this file a node is a client, and everything happens at the server of one run.

A sheaf gives every node and every edge a space R^d, called a stalk. It gives every pair of a node v and an edge e at v
a restriction map F_{v,e} `[d, d]` from the node's stalk to the edge's. The difference of two neighbours u and v is
taken in the stalk of their edge, (delta x)_e = F_{u,e} x_u - F_{v,e} x_v. The sheaf Laplacian is L = delta^T delta:

    L_vv = sum over edges e at v of F_{v,e}^T F_{v,e}        L_vu = -F_{v,e}^T F_{u,e}                    (Eq. 5)
    Delta = D^-1/2 L D^-1/2, where D is the block diagonal of L                                           (Eq. 6)
    X_t = X_{t-1} - sigma(Delta (I (x) W1) X_{t-1} W2)                                                    (Eq. 7, 8)

X `[nodes * d, channels]` holds the d rows of a node together, W1 is `[d, d]` and W2 `[channels, channels]`. Edges are
unordered pairs of nodes, one column each: `[2, pairs]`. Table 5 replaces the sheaf by a GCN or a GAT.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import glorot
from fedrepro.engine.nn.sparse import groups_of, sum_groups
from fedrepro.errors import one_of, require

Drop = Callable[[Tensor, float, str], Tensor]  # dropout of a tensor with a probability, at a layer of this name
MAPS = ("diagonal", "orthogonal", "general")
DIFFUSIONS = ("sheaf", "gcn", "gat", "none")


def keep_all(x: Tensor, p: float, name: str) -> Tensor:
    """Return `x`: the dropout of a model that is used and not trained."""
    return x


# -- the collaboration graph ------------------------------------------------------------------------------------------


def nearest(x: Tensor, neighbours: int) -> Tensor:
    """Return the edges of the symmetric k-nearest-neighbour graph under cosine similarity (Eq. 4).

    Args:
        x: the clients' vectors `[clients, width]`.
        neighbours: K. Two clients are joined if one is among the K most similar to the other (SH-Q9).

    Returns:
        `[2, pairs]`, the smaller client number first. Ties are broken by client number.
    """
    unit = F.normalize(x.detach(), dim=1)
    similarity = (unit @ unit.T).fill_diagonal_(-torch.inf)
    chosen = similarity.argsort(dim=1, descending=True, stable=True)[:, : min(neighbours, len(x) - 1)]
    near = torch.zeros_like(similarity, dtype=torch.bool).scatter_(1, chosen, True)
    # A Laplacian needs undirected edges, which the paper does not mention.
    return (near | near.T).triu(1).nonzero().T


def complete(nodes: int, device: str | torch.device = "cpu") -> Tensor:
    """Return all pairs of nodes `[2, pairs]`."""
    return torch.triu_indices(nodes, nodes, 1, device=device)


def normalised_adjacency(pairs: Tensor, nodes: int, dtype: torch.dtype) -> Tensor:
    """Return the operator of a GCN, D~^-1/2 (A+I) D~^-1/2 `[nodes, nodes]`."""
    adjacency = torch.eye(nodes, dtype=dtype, device=pairs.device)
    adjacency[pairs[0], pairs[1]] = adjacency[pairs[1], pairs[0]] = 1
    root = adjacency.sum(1).rsqrt()
    return root[:, None] * adjacency * root


# -- the sheaf Laplacian ----------------------------------------------------------------------------------------------


def map_size(kind: str, stalk: int) -> int:
    """Return how many numbers make one restriction map of a kind: d, d (d - 1) / 2 or d^2.

    Raises:
        ArgumentError: the kind is not in `MAPS`.
    """
    one_of("maps", kind, MAPS)
    return {"diagonal": stalk, "orthogonal": stalk * (stalk - 1) // 2, "general": stalk**2}[kind]


def as_maps(values: Tensor, kind: str, stalk: int) -> Tensor:
    """Return restriction maps `[maps, d, d]` made of their free numbers `[maps, map_size]`.

    An orthogonal map is the Cayley transform (I - A/2)^-1 (I + A/2) of the skew matrix A whose lower triangle is given.
    It is a rotation, and the identity for d = 1.

    Raises:
        ArgumentError: the kind is not in `MAPS`, or the numbers do not fit it.
    """
    size = map_size(kind, stalk)
    require(values.shape[1] == size, "values", f"of {size} columns", tuple(values.shape))
    if kind == "diagonal":
        return torch.diag_embed(values)
    if kind == "general":
        return values.view(-1, stalk, stalk)
    row, column = torch.tril_indices(stalk, stalk, -1, device=values.device)
    lower = values.new_zeros(len(values), stalk, stalk)
    lower = lower.index_put((torch.arange(len(values), device=values.device)[:, None], row, column), values)
    half = (lower - lower.mT) / 2
    eye = torch.eye(stalk, dtype=values.dtype, device=values.device)
    rotation: Tensor = torch.linalg.solve(eye - half, eye + half)
    return rotation


def laplacian(first: Tensor, second: Tensor, pairs: Tensor, nodes: int) -> Tensor:
    """Return the sheaf Laplacian as blocks `[nodes, nodes, d, d]` (Eq. 5).

    Args:
        first, second: F_{u,e} and F_{v,e} of the first and the second node of each edge, `[pairs, d, d]`.
        pairs: the edges `[2, pairs]`.
    """
    u, v = pairs
    across = first.mT @ second
    index = torch.cat([u * nodes + u, v * nodes + v, u * nodes + v, v * nodes + u])
    blocks = torch.cat([first.mT @ first, second.mT @ second, -across, -across.mT])
    return sum_groups(blocks, groups_of(index, nodes * nodes)).view(nodes, nodes, *first.shape[1:])


def normalised(blocks: Tensor, augmented: bool, diagonal: bool) -> Tensor:
    """Return D^-1/2 L D^-1/2 as blocks `[nodes, nodes, d, d]` (Eq. 6).

    Args:
        blocks: L, `[nodes, nodes, d, d]`.
        augmented: use D + I instead of D, as in the public code. Then every block can be inverted, and the eigenvalues
            lie in [0, 2).
        diagonal: the blocks of D are diagonal matrices, as with diagonal or orthogonal maps. The block of a node
            without edges is zero, and so is its pseudo-inverse.
    """
    every = torch.arange(len(blocks), device=blocks.device)
    degree = blocks[every, every]
    if augmented:
        degree = degree + torch.eye(degree.shape[1], dtype=degree.dtype, device=degree.device)
    root = _diagonal_root(degree) if diagonal else inverse_root(degree)
    return root[:, None] @ blocks @ root[None, :]


def matrix(blocks: Tensor) -> Tensor:
    """Return blocks `[nodes, nodes, d, d]` as one matrix `[nodes * d, nodes * d]`."""
    nodes, _, stalk, _ = blocks.shape
    return blocks.permute(0, 2, 1, 3).reshape(nodes * stalk, nodes * stalk)


def _diagonal_root(degree: Tensor) -> Tensor:
    value = degree.diagonal(dim1=1, dim2=2)
    present = value > torch.finfo(degree.dtype).eps
    # Both branches of `where` are differentiated, so the one that is not taken must be finite too.
    safe = torch.where(present, value, torch.ones_like(value))
    return torch.diag_embed(torch.where(present, safe.rsqrt(), torch.zeros_like(value)))


def inverse_root(matrices: Tensor) -> Tensor:
    """Return M^-1/2 of symmetric positive semi-definite matrices `[..., d, d]`.

    Eigenvalues of the size of rounding errors count as zero, and their inverse is zero.
    """
    root: Tensor = _InverseRoot.apply(matrices)  # type: ignore[no-untyped-call]
    return root


class _InverseRoot(torch.autograd.Function):
    """M^-1/2 with a derivative that is finite where two eigenvalues are equal.

    Between eigenvalues l and m the derivative of l^-1/2 is -1 / (sqrt(l m) (sqrt(l) + sqrt(m))). The derivative of an
    eigendecomposition divides by l - m instead.
    """

    @staticmethod
    def forward(ctx: Any, matrices: Tensor) -> Tensor:
        finite = matrices.isfinite().flatten(-2).all(-1)[..., None, None]
        value, vector = torch.linalg.eigh(torch.where(finite, matrices, torch.zeros_like(matrices)))
        tiny = torch.finfo(matrices.dtype).eps * matrices.shape[-1] * value.amax(-1, keepdim=True).clamp(min=1e-30)
        inverse = torch.where(value > tiny, value.clamp(min=1e-30).rsqrt(), torch.zeros_like(value))
        ctx.save_for_backward(inverse, vector)
        return torch.where(finite, (vector * inverse[..., None, :]) @ vector.mT, torch.nan)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        inverse, vector = ctx.saved_tensors
        one, two = inverse[..., :, None], inverse[..., None, :]
        total = one + two
        slope = -((one * two) ** 2) / torch.where(total > 0, total, torch.ones_like(total))
        out: Tensor = vector @ ((vector.mT @ grad @ vector) * slope) @ vector.mT
        return out


# -- diffusion --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Diffusion:
    """The network S(X; theta) that mixes the clients' vectors along the collaboration graph (Eq. 5 to 9).

    It has an encoder, `steps` layers and a decoder. Encoder and decoder are those of the public code (SH-DIF).

    Args:
        kind: the layers are those of a "sheaf", a "gcn" or a "gat"; "none" returns the vectors as they are.
        residual: a layer of a GCN or GAT adds to its input instead of replacing it. A layer of a sheaf always adds.
        steps: T_s, the number of layers.
        channels, stalk: h and d. A state has d * h numbers, which a GCN or GAT treats as one vector.
        maps: the kind of the restriction maps, one of `MAPS`.
        learner: the function that makes the map F_{u,e} of an edge (u, v) from the two states. "linear" is
            tanh([x_u || x_v] W), and "mlp" is tanh(relu([x_u || x_v] V + c) W).
        maps_made: every "layer" makes maps from its own input, or all layers use those made "once" by the first.
        gate: a layer keeps (1 + tanh(eps)) of its input instead of all of it (Eq. 8).
        augmented: normalise by D + I instead of D, see `normalised`.
        dropout: probability before the encoder and before the decoder.
    """

    kind: str = "sheaf"
    residual: bool = False
    steps: int = 4
    channels: int = 20
    stalk: int = 1
    maps: str = "diagonal"
    learner: str = "mlp"
    maps_made: str = "layer"
    gate: bool = False
    augmented: bool = True
    dropout: float = 0.3

    def __post_init__(self) -> None:
        one_of("diffusion", self.kind, DIFFUSIONS)
        one_of("learner", self.learner, ("mlp", "linear"))
        one_of("maps_made", self.maps_made, ("layer", "once"))
        for name in ("steps", "channels", "stalk"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(0 <= self.dropout < 1, "sheaf_dropout", "in [0, 1)", self.dropout)
        map_size(self.maps, self.stalk)

    @property
    def state(self) -> int:
        """Return d * h, the width of one client's state."""
        return self.stalk * self.channels

    def init(self, seed: int, width: int) -> Weights:
        """Return initial weights for vectors of some width, a function of the seed and each weight's name."""
        if self.kind == "none":
            return {}
        weights = linear(seed, "sheaf.encode", width, self.state)
        for t in range(self.steps):
            weights |= self._layer(seed, t)
        return weights | linear(seed, "sheaf.decode", self.state, width)

    def _layer(self, seed: int, t: int) -> Weights:
        """Return the initial weights of layer `t`; W1 starts at the identity and W2 orthogonal."""
        prefix = f"sheaf.{t}."
        if self.kind != "sheaf":
            weights = {f"{prefix}weight": _orthogonal(seed, f"{prefix}weight", self.state)}
            vectors = [f"{prefix}{end}" for end in ("source", "target") if self.kind == "gat"]
            return weights | {name: glorot(self.state, 1, seed=seed, name=name) for name in vectors}
        weights = {f"{prefix}w1": torch.eye(self.stalk), f"{prefix}w2": _orthogonal(seed, f"{prefix}w2", self.channels)}
        if self.gate:
            weights[f"{prefix}eps"] = torch.zeros(self.stalk, 1)
        if self.maps_made == "once" and t:
            return weights
        hidden = [self.state] if self.learner == "mlp" else []
        for i, shape in enumerate(pairwise([2 * self.state, *hidden, map_size(self.maps, self.stalk)])):
            name = f"{prefix}map{i}.weight"
            weights[name] = glorot(*shape, seed=seed, name=name)
        if self.learner == "mlp":
            weights[f"{prefix}map0.bias"] = torch.zeros(self.state)
        return weights

    def __call__(self, weights: Weights, x: Tensor, pairs: Tensor, drop: Drop) -> Tensor:
        """Return S(X; theta) `[clients, width]` (Eq. 9)."""
        if self.kind == "none":
            return x
        return self.decode(weights, self.states(weights, self.encode(weights, x, drop), pairs)[-1], drop)

    def encode(self, weights: Weights, x: Tensor, drop: Drop = keep_all) -> Tensor:
        """Turn vectors `[clients, width]` into states `[clients, d * h]`."""
        return F.elu(drop(x, self.dropout, "encode") @ weights["sheaf.encode.weight"] + weights["sheaf.encode.bias"])

    def decode(self, weights: Weights, h: Tensor, drop: Drop = keep_all) -> Tensor:
        """Turn states `[clients, d * h]` into vectors `[clients, width]`."""
        return drop(h, self.dropout, "decode") @ weights["sheaf.decode.weight"] + weights["sheaf.decode.bias"]

    def states(self, weights: Weights, h: Tensor, pairs: Tensor) -> list[Tensor]:
        """Return the states `[clients, d * h]` before the first layer, which are `h`, and after every layer."""
        states, operator = [h], self.operator(weights, h, pairs, 0)
        for t in range(self.steps):
            if t and self.kind == "sheaf" and self.maps_made == "layer":
                operator = self.operator(weights, h, pairs, t)
            h = (self._diffuse if self.kind == "sheaf" else self._convolve)(weights, h, operator, t)
            states.append(h)
        return states

    def operator(self, weights: Weights, h: Tensor, pairs: Tensor, t: int) -> Tensor:
        """Return the matrix that layer `t` applies to states.

        It is the normalised Laplacian `[clients * d, clients * d]` that the layer makes of the states (Eq. 5, 6), or
        the normalised adjacency of a GCN or GAT.
        """
        if self.kind != "sheaf":
            return normalised_adjacency(pairs, len(h), h.dtype)
        first, second = self.restriction_maps(weights, h, pairs, t)
        blocks = laplacian(first, second, pairs, len(h))
        return matrix(normalised(blocks, self.augmented, diagonal=self.maps != "general"))

    def restriction_maps(self, weights: Weights, h: Tensor, pairs: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """Return F_{u,e} and F_{v,e} `[pairs, d, d]`, made of the ordered pairs (u, v) and (v, u)."""
        one, two = h[pairs[0]], h[pairs[1]]
        both = torch.cat([torch.cat([one, two], 1), torch.cat([two, one], 1)])
        last = "map0"
        if self.learner == "mlp":
            both = F.relu(both @ weights[f"sheaf.{t}.map0.weight"] + weights[f"sheaf.{t}.map0.bias"])
            last = "map1"
        values = torch.tanh(both @ weights[f"sheaf.{t}.{last}.weight"])
        first, second = as_maps(values, self.maps, self.stalk).chunk(2)
        return first, second

    def _diffuse(self, weights: Weights, h: Tensor, delta: Tensor, t: int) -> Tensor:
        """Take one step X <- X - ELU(Delta (I (x) W1) X W2) on states `[clients, d * h]` (Eq. 7, 8)."""
        x = h.view(len(h), self.stalk, self.channels)
        mixed = torch.einsum("ij,njh->nih", weights[f"sheaf.{t}.w1"], x).reshape(-1, self.channels)
        change = F.elu(delta @ mixed @ weights[f"sheaf.{t}.w2"]).view_as(x)
        kept = (1 + torch.tanh(weights[f"sheaf.{t}.eps"])) * x if self.gate else x
        return (kept - change).view(len(h), -1)

    def _convolve(self, weights: Weights, h: Tensor, adjacency: Tensor, t: int) -> Tensor:
        """Take one layer of a GCN or GAT with ELU on states `[clients, d * h]`."""
        mixed, share = h @ weights[f"sheaf.{t}.weight"], adjacency
        if self.kind == "gat":
            source, target = mixed @ weights[f"sheaf.{t}.source"], mixed @ weights[f"sheaf.{t}.target"]
            score = F.leaky_relu(target + source.T, 0.2)
            share = score.masked_fill(adjacency == 0, -torch.inf).softmax(1)
        new = F.elu(share @ mixed)
        return h + new if self.residual else new


def linear(seed: int, name: str, rows: int, columns: int) -> Weights:
    """Return the initial weight and bias of a linear layer."""
    weight = glorot(rows, columns, seed=seed, name=f"{name}.weight")
    return {f"{name}.weight": weight, f"{name}.bias": torch.zeros(columns)}


def _orthogonal(seed: int, name: str, size: int) -> Tensor:
    """Return a random orthogonal matrix."""
    q, r = torch.linalg.qr(random.normal((size, size), "init", seed, name))
    orthogonal: Tensor = q * r.diagonal().sign()
    return orthogonal
