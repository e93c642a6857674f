"""Layers on stacked weights: every client's own slice in one call.

Each takes node values `[nodes, ...]` of a federation's batch and weights with one slice per client (or per run, see
`Federation.shared`), and equals the layer of the same name applied to each client's graph with its slice. Sparse
inputs are one block-diagonal product, dense ones one product per slice; propagation comes after the product: `A (X
W)`, not `(A X) W`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.nn import random
from fedrepro.engine.nn.sparse import Edges, Sparse
from fedrepro.errors import require

if TYPE_CHECKING:
    from fedrepro.engine.federation import Federation, Weights


def linear(fed: Federation, x: Tensor | Sparse, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x W + b` with each node's own slice.

    Args:
        x: `[nodes, in]`, or sparse `[nodes, slices * in]` as `Federation.input`.
        weight: `[slices, in, out]`.
        bias: `[slices, out]`.

    Returns:
        `[nodes, out]`.
    """
    require(weight.shape[0] == fed.slices, "weight", f"of {fed.slices} slices", tuple(weight.shape))
    if isinstance(x, Sparse):
        out = x @ weight.flatten(0, 1)
    elif weight.shape[0] == 1:
        out = x @ weight[0]
    else:
        out = fed.grouped(x, weight)
    return out if bias is None else out + per_node(fed, bias)


def per_node(fed: Federation, value: Tensor) -> Tensor:
    """A value per slice `[slices, width]` at each of its nodes: `[nodes, width]`, or `[1, width]` where one slice
    serves all.
    """
    return value if value.shape[0] == 1 else fed.member @ value


X = TypeVar("X", bound=Tensor | Sparse)


def dropout(fed: Federation, x: X, p: float, layer: str) -> X:
    """Inverted dropout while the federation has a clock; the identity in evaluation.

    The mask is a function of (run seed, client, round, step, layer, node id, column).

    Args:
        p: probability of a zero, in [0, 1).
        layer: name of the place in the network.
    """
    require(0 <= p < 1, "dropout", "in [0, 1)", p)
    if fed.clock is None or p == 0:
        return x
    key = random.row_keys(fed.node_key, "dropout", layer, *fed.clock)
    if isinstance(x, Sparse):
        kept = random.keep(key[x.pattern.row], x.pattern.col % fed.features, p)
        return x.with_values(x.value * kept / (1 - p))  # type: ignore[return-value]
    by = random.scales(key[:, None], torch.arange(x.shape[1], device=x.device), p, x.dtype)
    return x * by if x.requires_grad else by.mul_(x)  # type: ignore[return-value]


def gcn(
    fed: Federation, x: Tensor | Sparse, weight: Tensor, bias: Tensor | None = None, *, kind: str = "gcn",
    reach: int | None = None,
) -> Tensor:  # fmt: skip
    """Graph convolution, Kipf and Welling (2017), Eq. 2 without the nonlinearity: `S (x W) + b`.

    Args:
        kind, reach: the propagation matrix, see `Federation.operator`.
    """
    out = fed.operator(kind, reach) @ linear(fed, x, weight)
    return out if bias is None else out + per_node(fed, bias)


def sage(
    fed: Federation, x: Tensor | Sparse, neighbour: Tensor, root: Tensor, bias: Tensor | None = None, *,
    reach: int | None = None,
) -> Tensor:  # fmt: skip
    """GraphSAGE with mean aggregation, Hamilton et al. (2017): `mean_{u in N(v)} x_u W_n + x_v W_r + b`; an empty
    mean is 0.
    """
    out = fed.operator("mean", reach) @ linear(fed, x, neighbour) + linear(fed, x, root)
    return out if bias is None else out + per_node(fed, bias)


def attention_scores(fed: Federation, h: Tensor, source: Tensor, target: Tensor, edges: Edges) -> Tensor:
    """`a_1 . W h_i + a_2 . W h_j` for every edge j -> i: `[edges, heads]` (GAT, Velickovic et al. 2018; FedGAT Eq. 4).

    Args:
        h: `W h`, `[nodes, heads, width]`.
        source, target: a_2 and a_1, `[slices, heads, width]`.
    """
    at = [per_node(fed, a.flatten(1)).view(-1, *a.shape[1:]) for a in (source, target)]
    from_source, from_target = ((h * a).sum(-1) for a in at)
    return edges.at_source(from_source) + edges.at_target(from_target)


def attend(edges: Edges, score: Tensor, h: Tensor) -> Tensor:
    """Messages weighted by positive scores over their sum at the target: `[nodes, heads, width]` (FedGAT Eq. 1 and 2).

    Args:
        score: `[edges, heads]`.
        h: `[nodes, heads, width]`.
    """
    total = edges.sum(score)
    mixed = edges.sum(edges.at_source(h) * score[..., None])
    return mixed / torch.where(total == 0, 1.0, total)[..., None]


def softmax_scores(edges: Edges, x: Tensor, negative_slope: float = 0.2) -> Tensor:
    """`exp(LeakyReLU(x))`, divided by the largest at its target, which changes no ratio: `[edges, heads]`."""
    x = F.leaky_relu(x, negative_slope)
    return torch.exp(x - edges.max(x)[edges.target])


def gat(fed: Federation, x: Tensor | Sparse, edges: Edges, weight: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Graph attention, Velickovic et al. (2018): `[nodes, heads, width]`.

    Args:
        weight: `[slices, in, heads * width]`.
        source, target: attention vectors, `[slices, heads, width]`.
        edges: see `Federation.attention_edges`.
    """
    heads, width = source.shape[1:]
    h = linear(fed, x, weight).view(-1, heads, width)
    return attend(edges, softmax_scores(edges, attention_scores(fed, h, source, target, edges)), h)


def decoupled(fed: Federation, h: Tensor, betas: list[float], kind: str = "row") -> Tensor:
    """`sum_l betas[l] P^l h`, a polynomial in a propagation matrix (FedStruct Eq. 2 and 11; SGC)."""
    out, power = betas[0] * h, h
    for beta in betas[1:]:
        power = fed.operator(kind) @ power
        out = out + beta * power if beta else out
    return out


def appnp(fed: Federation, h: Tensor, alpha: float = 0.1, steps: int = 10) -> Tensor:
    """Personalized propagation, Gasteiger et al. (2019): `Z <- (1 - alpha) S Z + alpha h`, `steps` times from `Z =
    h`.
    """
    z = h
    for _ in range(steps):
        z = (1 - alpha) * (fed.operator("gcn") @ z) + alpha * h
    return z


def layer_norm(fed: Federation, x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-5) -> Tensor:
    """Layer normalization over a node's features, scale and shift of its slice `[slices, width]`."""
    normal = F.layer_norm(x, x.shape[1:], eps=eps)
    return normal * per_node(fed, scale) + per_node(fed, shift)


def normalized_input(fed: Federation, weights: Weights) -> tuple[Tensor | Sparse, Weights]:
    """LayerNorm on the features before a first layer, without making sparse features dense.

    With mean m and deviation s of a node's features, `((x - m) / s * scale + shift) W` is `x / s` times `scale * W`
    plus `-m / s` times `scale W` plus `shift W`: two more features, and two more rows of W.

    Args:
        weights: "norm.scale" and "norm.shift" `[slices, features]`, and the first layer's matrices "layer1.weight"
            (and "layer1.root") `[slices, features, out]`.

    Returns:
        The features with the two added, as `Federation.input`, and the weights with the first layer's changed.
    """
    scale, shift = weights["norm.scale"][..., None], weights["norm.shift"][..., None]
    changed: Weights = {}
    for name in ("layer1.weight", "layer1.root"):
        if name in weights:
            scaled, shifted = scale * weights[name], shift * weights[name]
            changed[name] = torch.cat([scaled, scaled.sum(1, keepdim=True), shifted.sum(1, keepdim=True)], 1)
    return fed.normalized.input, {**weights, **changed}


def cross_entropy(fed: Federation, logits: Tensor, mask: str = "train") -> Tensor:
    """Mean loss over each client's own nodes of a split: `[clients]`; 0 for a client that has none.

    Multi-label targets (`y` of two dimensions) take the mean binary cross-entropy over labels.
    """
    rows, mean = fed.rows(mask)
    return (mean @ node_losses(logits[rows], fed.batch.y[rows])[:, None]).squeeze(1)


def node_losses(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each row `[rows]`; for labels `[rows, labels]` the mean binary cross-entropy over labels."""
    if y.dim() == 2:
        return F.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none").mean(1)
    return F.cross_entropy(logits, y, reduction="none")
