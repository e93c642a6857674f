"""Apply layers with stacked weights: each client's graph with that client's slice, in one call.

Each function takes node values `[nodes, ...]` of a federation's batch, and weights with one slice per client (or per
run, see `Federation.shared`). Its result equals the layer of the same name on each client's graph with its slice.
Sparse inputs take one block-diagonal product, dense inputs one product per slice. Propagation comes after the product,
`A (X W)` and not `(A X) W`, since `A X` has more non-zero entries.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import kernels, random
from fedrepro.engine.nn.sparse import Edges, Sparse, pick
from fedrepro.errors import require


def linear(fed: Federation, x: Tensor | Sparse, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `x W + b` with each node's slice of W and b.

    Args:
        x: `[nodes, in]`, or sparse `[nodes, slices * in]` like `Federation.input`.
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
    """Return each node's row of a value per slice, `[nodes, width]` from `[slices, width]`.

    The result is `[1, width]` if there is one slice.
    """
    return value if value.shape[0] == 1 else fed.member @ value


X = TypeVar("X", bound=Tensor | Sparse)


def dropout(fed: Federation, x: X, p: float, layer: str) -> X:
    """Apply inverted dropout while the federation has a clock, and nothing in evaluation.

    The mask is a function of (run seed, client, round, step, layer, node id, column).

    Args:
        x: `[nodes, width]`, dense or sparse.
        p: probability of a zero, in [0, 1).
        layer: name of the layer, so that each layer has another mask.
    """
    require(0 <= p < 1, "dropout", "in [0, 1)", p)
    if fed.clock is None or p == 0:
        return x
    key = random.row_keys(fed.node_key, "dropout", layer, *fed.clock)
    if isinstance(x, Sparse):
        return x.dropped(key, fed.features, p)  # type: ignore[return-value]
    column = torch.arange(x.shape[1], device=x.device)
    if x.requires_grad or not kernels.compiled(x, x.numel()):
        by = random.scales(key[:, None], column, p, x.dtype)
        return x * by if x.requires_grad else by.mul_(x)  # type: ignore[return-value]
    return kernels.scaled(  # type: ignore[return-value]
        x.contiguous(), key, random.golden(column), random.at_least(p), random.factor(p, x.dtype)
    )


def relu_dropout(fed: Federation, h: Tensor, p: float, layer: str) -> Tensor:
    """Return `dropout(fed, relu(h), p, layer)`, `[nodes, width]`, on a CPU in one pass over `h`."""
    if fed.clock is None or p == 0 or not kernels.compiled(h, h.numel()):
        return dropout(fed, F.relu(h), p, layer)
    key = random.row_keys(fed.node_key, "dropout", layer, *fed.clock)
    out: Tensor = _ReluDropout.apply(h, key, p)  # type: ignore[no-untyped-call]
    return out


class _ReluDropout(torch.autograd.Function):
    """The operation `relu_dropout`, whose slope is 0 where an entry is negative or dropped."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, row_key: Tensor, p: float) -> Tensor:
        column = random.golden(torch.arange(h.shape[1]))
        out, slope = kernels.rectified(h.contiguous(), row_key, column, random.at_least(p), random.factor(p, h.dtype))
        ctx.save_for_backward(slope)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return grad * slope, None, None


def gcn(
    fed: Federation,
    x: Tensor | Sparse,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kind: str = "gcn",
    reach: int | None = None,
) -> Tensor:
    """Return a graph convolution `S (x W) + b` (Kipf and Welling 2017, Eq. 2, without the nonlinearity).

    Args:
        kind, reach: the propagation matrix S, see `Federation.operator`.
    """
    out = fed.operator(kind, reach) @ linear(fed, x, weight)
    return out if bias is None else out + per_node(fed, bias)


def sage(
    fed: Federation,
    x: Tensor | Sparse,
    neighbour: Tensor,
    root: Tensor,
    bias: Tensor | None = None,
    *,
    reach: int | None = None,
) -> Tensor:
    """Return a GraphSAGE layer, `mean_{u in N(v)} x_u W_n + x_v W_r + b` (Hamilton et al. 2017).

    The mean over no neighbour is 0.

    Args:
        neighbour: W_n, `[slices, in, out]`.
        root: W_r, `[slices, in, out]`.
        reach: see `Federation.operator`.
    """
    out = fed.operator("mean", reach) @ linear(fed, x, neighbour) + linear(fed, x, root)
    return out if bias is None else out + per_node(fed, bias)


def attention_scores(fed: Federation, h: Tensor, source: Tensor, target: Tensor, edges: Edges) -> Tensor:
    """Return `a_1 . W h_i + a_2 . W h_j` for every edge j -> i, `[edges, heads]`.

    This is the score of GAT (Velickovic et al. 2018) and FedGAT (Eq. 4) before its nonlinearity.

    Args:
        h: `W h`, `[nodes, heads, width]`.
        source, target: a_2 and a_1, `[slices, heads, width]`.
    """
    vectors = [per_node(fed, a.flatten(1)).view(-1, *a.shape[1:]) for a in (source, target)]
    from_source, from_target = ((h * a).sum(-1) for a in vectors)
    return edges.at_source(from_source) + edges.at_target(from_target)


def attend(edges: Edges, score: Tensor, h: Tensor) -> Tensor:
    """Return the sum of messages weighted by score, divided by the sum of scores at the target (FedGAT Eq. 1 and 2).

    Args:
        score: positive scores, `[edges, heads]`.
        h: `[nodes, heads, width]`.

    Returns:
        `[nodes, heads, width]`.
    """
    total = edges.sum(score)
    mixed = edges.sum(edges.at_source(h) * score[..., None])
    return mixed / torch.where(total == 0, 1.0, total)[..., None]


def softmax_scores(edges: Edges, x: Tensor, negative_slope: float = 0.2) -> Tensor:
    """Return `exp(LeakyReLU(x))` up to a factor per target node, `[edges, heads]`."""
    x = F.leaky_relu(x, negative_slope)
    # The largest exponent at each target becomes 0, which prevents overflow and changes no ratio.
    return torch.exp(x - edges.max(x)[edges.target])


def gat(fed: Federation, x: Tensor | Sparse, edges: Edges, weight: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Return the heads of a graph attention layer (Velickovic et al. 2018), `[nodes, heads, width]`.

    Args:
        weight: `[slices, in, heads * width]`.
        source, target: attention vectors, `[slices, heads, width]`.
        edges: see `Federation.attention_edges`.
    """
    heads, width = source.shape[1:]
    h = linear(fed, x, weight).view(-1, heads, width)
    return attend(edges, softmax_scores(edges, attention_scores(fed, h, source, target, edges)), h)


def decoupled(fed: Federation, h: Tensor, betas: list[float], kind: str = "row") -> Tensor:
    """Return `sum_l betas[l] P^l h`, a polynomial in a propagation matrix P (FedStruct Eq. 2 and 11; SGC)."""
    out, power = betas[0] * h, h
    for beta in betas[1:]:
        power = fed.operator(kind) @ power
        out = out + beta * power if beta else out
    return out


def appnp(fed: Federation, h: Tensor, alpha: float = 0.1, steps: int = 10) -> Tensor:
    """Return Z after `steps` times `Z <- (1 - alpha) S Z + alpha h`, from Z = h (Gasteiger et al. 2019)."""
    z = h
    for _ in range(steps):
        z = (1 - alpha) * (fed.operator("gcn") @ z) + alpha * h
    return z


def layer_norm(fed: Federation, x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalize each node's features, then apply the scale and shift of its slice, `[slices, width]` each."""
    normal = F.layer_norm(x, x.shape[1:], eps=eps)
    return normal * per_node(fed, scale) + per_node(fed, shift)


def normalized_input(fed: Federation, weights: Weights) -> tuple[Tensor | Sparse, Weights]:
    """Apply LayerNorm to the features before the first layer, and keep sparse features sparse.

    Let m and s be the mean and standard deviation of a node's features. Then

        ((x - m) / s * scale + shift) W  =  (x / s) (scale * W)  +  (-m / s) (scale W)  +  1 (shift W),

    so the layer becomes one with the two further features `-m / s` and 1, and two further rows of W.

    Args:
        weights: "norm.scale" and "norm.shift" `[slices, features]`, and the first layer's matrices "layer1.weight"
            (and "layer1.root") `[slices, features, out]`.

    Returns:
        The features with the two further ones, like `Federation.input`, and the weights with those of the first layer
        changed.
    """
    scale, shift = weights["norm.scale"][..., None], weights["norm.shift"][..., None]
    changed: Weights = {}
    for name in ("layer1.weight", "layer1.root"):
        if name in weights:
            scaled, shifted = scale * weights[name], shift * weights[name]
            changed[name] = torch.cat([scaled, scaled.sum(1, keepdim=True), shifted.sum(1, keepdim=True)], 1)
    return fed.normalized.input, {**weights, **changed}


def cross_entropy(fed: Federation, logits: Tensor, mask: str = "train") -> Tensor:
    """Return the mean loss over each client's own nodes of a split, `[clients]`, 0 for a client that has none.

    With several labels per node (`y` has two dimensions) it is the mean binary cross-entropy over labels.
    """
    rows, mean = fed.rows(mask)
    labels = fed.cached(("labels", mask), lambda: fed.batch.y[rows])
    return (mean @ node_losses(pick(logits, rows), labels)[:, None]).squeeze(1)


def node_losses(logits: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of each row `[rows]`, or the mean binary cross-entropy for `y` `[rows, labels]`."""
    if y.dim() == 2:
        return F.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none").mean(1)
    return F.cross_entropy(logits, y, reduction="none")
