"""The collaboration graph of the clients and what runs on it: sheaf diffusion, a GCN or a GAT (FedSheafHN, Eq. 4 to 9;
the last two for its Table 5).

Everything here happens at the server, for one run at a time: a client is a node, `x` `[clients, width]` its vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import glorot
from fedrepro.errors import one_of, require
from fedrepro.papers.fedsheafhn import sheaf

Drop = Callable[[Tensor, float, str], Tensor]
DIFFUSIONS = ("sheaf", "gcn", "gat", "none")


def kept(x: Tensor, p: float, name: str) -> Tensor:
    """The dropout that drops nothing, as when a model is used and not trained."""
    return x


def nearest(x: Tensor, neighbours: int) -> Tensor:
    """Pairs `[2, pairs]` (first < second) of clients one of which is among the other's `neighbours` most similar by the
    cosine of their vectors; of equally similar ones the first.
    """
    unit = F.normalize(x.detach(), dim=1)
    similar = (unit @ unit.T).fill_diagonal_(-torch.inf)
    chosen = similar.argsort(dim=1, descending=True, stable=True)[:, : min(neighbours, len(x) - 1)]
    near = torch.zeros_like(similar, dtype=torch.bool).scatter_(1, chosen, True)
    return (near | near.T).triu(1).nonzero().T  # SH-Q9: made symmetric, as a Laplacian needs


def complete(nodes: int, device: str | torch.device = "cpu") -> Tensor:
    """All pairs `[2, pairs]`."""
    return torch.triu_indices(nodes, nodes, 1, device=device)


def normalised_adjacency(pairs: Tensor, nodes: int, dtype: torch.dtype) -> Tensor:
    """D~^-1/2 (A+I) D~^-1/2 `[nodes, nodes]`."""
    a = torch.eye(nodes, dtype=dtype, device=pairs.device)
    a[pairs[0], pairs[1]] = a[pairs[1], pairs[0]] = 1
    root = a.sum(1).rsqrt()
    return root[:, None] * a * root


@dataclass(frozen=True)
class Diffusion:
    """Client vectors mixed along the collaboration graph: encoder, `steps` layers, decoder.

    Args:
        width: of the clients' vectors, in and out.
        kind: "sheaf", "gcn", "gat", or "none": the vectors as they are.
        residual: each layer of a GCN or GAT adds to its input instead of taking its place; the sheaf's always does.
        steps: T_s, layers.
        channels, stalk: h and d; the encoder makes `[clients, d * h]`. GCN and GAT work on these d * h together.
        maps: see `sheaf.MAPS`.
        learner: "linear" = tanh([x_u || x_v] W), or "mlp" = tanh(relu([x_u || x_v] V + c) W).
        maps_made: "layer" (each layer has its own learner, on its own states) or "once" for all layers.
        gate: a state keeps (1 + tanh(eps)) of itself instead of all (Eq. 8).
        augmented: see `sheaf.normalised`.
        dropout: before each of encoder and decoder.
    """

    width: int
    kind: str = "sheaf"
    steps: int = 4
    channels: int = 20
    stalk: int = 1
    maps: str = "diagonal"
    learner: str = "mlp"
    maps_made: str = "layer"
    gate: bool = False
    augmented: bool = True
    dropout: float = 0.3
    residual: bool = False

    def __post_init__(self) -> None:
        one_of("diffusion", self.kind, DIFFUSIONS)
        one_of("learner", self.learner, ("mlp", "linear"))
        one_of("maps_made", self.maps_made, ("layer", "once"))
        for name in ("steps", "channels", "stalk"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(0 <= self.dropout < 1, "sheaf_dropout", "in [0, 1)", self.dropout)
        sheaf.slots(self.maps, self.stalk)

    @property
    def state(self) -> int:
        """d * h, the numbers of one client's state."""
        return self.stalk * self.channels

    def init(self, seed: int) -> Weights:
        """Initial weights, a function of the seed and each weight's name alone."""
        if self.kind == "none":
            return {}
        made = {
            "sheaf.encode.weight": _glorot(seed, "sheaf.encode.weight", self.width, self.state),
            "sheaf.encode.bias": torch.zeros(self.state),
        }
        for t in range(self.steps):
            made |= self._layer(seed, t)
        made["sheaf.decode.weight"] = _glorot(seed, "sheaf.decode.weight", self.state, self.width)
        made["sheaf.decode.bias"] = torch.zeros(self.width)
        return made

    def _layer(self, seed: int, t: int) -> Weights:
        here, state = f"sheaf.{t}.", self.state
        if self.kind == "gcn":
            return {f"{here}weight": _orthogonal(seed, f"{here}weight", state)}
        if self.kind == "gat":
            vectors = {f"{here}{end}": _glorot(seed, f"{here}{end}", state, 1) for end in ("source", "target")}
            return {f"{here}weight": _orthogonal(seed, f"{here}weight", state), **vectors}
        made = {f"{here}w1": torch.eye(self.stalk), f"{here}w2": _orthogonal(seed, f"{here}w2", self.channels)}
        if self.gate:
            made[f"{here}eps"] = torch.zeros(self.stalk, 1)
        if self.maps_made == "once" and t:
            return made
        sizes = [2 * state, *([state] if self.learner == "mlp" else []), sheaf.slots(self.maps, self.stalk)]
        for i, (a, b) in enumerate(pairwise(sizes)):
            made[f"{here}map{i}.weight"] = _glorot(seed, f"{here}map{i}.weight", a, b)
        if self.learner == "mlp":
            made[f"{here}map0.bias"] = torch.zeros(state)
        return made

    def __call__(self, weights: Weights, x: Tensor, pairs: Tensor, drop: Drop) -> Tensor:
        """S(X; theta) `[clients, width]` (Eq. 9)."""
        if self.kind == "none":
            return x
        h = self.encode(weights, x, drop)
        if self.kind == "sheaf":
            h = self.diffuse(weights, h, pairs)
        else:
            a = normalised_adjacency(pairs, len(x), x.dtype)
            for t in range(self.steps):
                made = self._convolve(weights, h, a, t)
                h = h + made if self.residual else made
        return self.decode(weights, h, drop)

    def encode(self, weights: Weights, x: Tensor, drop: Drop = kept) -> Tensor:
        """Vectors `[clients, width]` as states `[clients, d * h]`."""
        return F.elu(drop(x, self.dropout, "encode") @ weights["sheaf.encode.weight"] + weights["sheaf.encode.bias"])

    def decode(self, weights: Weights, h: Tensor, drop: Drop = kept) -> Tensor:
        """States `[clients, d * h]` as vectors `[clients, width]`."""
        return drop(h, self.dropout, "decode") @ weights["sheaf.decode.weight"] + weights["sheaf.decode.bias"]

    def diffuse(self, weights: Weights, h: Tensor, pairs: Tensor) -> Tensor:
        """T_s steps X <- X - ELU(Delta (I (x) W1) X W2) on states `[clients, d * h]` (Eq. 7, 8)."""
        nodes, delta = len(h), h
        for t in range(self.steps):
            if t == 0 or self.maps_made == "layer":
                delta = sheaf.matrix(self.laplacian(weights, h, pairs, t))
            x = h.view(nodes, self.stalk, self.channels)
            inner = torch.einsum("ij,njh->nih", weights[f"sheaf.{t}.w1"], x).reshape(-1, self.channels)
            change = F.elu(delta @ inner @ weights[f"sheaf.{t}.w2"]).view_as(x)
            kept = (1 + torch.tanh(weights[f"sheaf.{t}.eps"])) * x if self.gate else x
            h = (kept - change).view(nodes, -1)
        return h

    def laplacian(self, weights: Weights, h: Tensor, pairs: Tensor, t: int) -> Tensor:
        """The normalised Laplacian that layer `t` makes of states `[clients, d * h]`: `[clients, clients, d, d]`."""
        first, second = self.restriction_maps(weights, h, pairs, t)
        return sheaf.normalised(
            sheaf.laplacian(first, second, pairs, len(h)), self.augmented, diagonal=self.maps != "general"
        )

    def restriction_maps(self, weights: Weights, h: Tensor, pairs: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """F_{u,e} and F_{v,e} `[pairs, d, d]`: of the ordered pairs (u, v) and (v, u)."""
        one, two = h[pairs[0]], h[pairs[1]]
        both = torch.cat([torch.cat([one, two], 1), torch.cat([two, one], 1)])
        if self.learner == "mlp":
            both = F.relu(both @ weights[f"sheaf.{t}.map0.weight"] + weights[f"sheaf.{t}.map0.bias"])
        last = "map1" if self.learner == "mlp" else "map0"
        values = torch.tanh(both @ weights[f"sheaf.{t}.{last}.weight"])
        first, second = sheaf.as_maps(values, self.maps, self.stalk).chunk(2)
        return first, second

    def _convolve(self, weights: Weights, h: Tensor, a: Tensor, t: int) -> Tensor:
        mixed = h @ weights[f"sheaf.{t}.weight"]
        if self.kind == "gcn":
            return F.elu(a @ mixed)
        source, target = mixed @ weights[f"sheaf.{t}.source"], mixed @ weights[f"sheaf.{t}.target"]
        score = F.leaky_relu(target + source.T, 0.2).masked_fill(a == 0, -torch.inf)
        return F.elu(score.softmax(1) @ mixed)


def _glorot(seed: int, name: str, rows: int, columns: int) -> Tensor:
    return glorot(rows, columns, seed=seed, name=name) if columns else torch.zeros(rows, 0, dtype=torch.float64)


def _orthogonal(seed: int, name: str, size: int) -> Tensor:
    """A random orthogonal matrix."""
    q, r = torch.linalg.qr(random.normal((size, size), "init", seed, name))
    made: Tensor = q * r.diagonal().sign()
    return made
