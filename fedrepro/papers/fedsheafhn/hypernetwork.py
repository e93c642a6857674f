"""The hypernetwork H(X; phi), which makes every client's weights from its vector (FedSheafHN, Section 3.3).

    X_att = softmax((X Q)(X K)^T) X V               attention over the clients of a run              (Eq. 10)
    a_i   = MLP(x_att,i)                            features of client i, `[hidden]`
    w_ik  = scale_k (a_i W_k + b_k)                 tensor k of client i                             (Eq. 11)

X `[clients, width]` holds the clients' vectors after the diffusion. Q, K and V are `[width, width]`, W_k is
`[hidden, entries]` and b_k `[entries]`, where tensor k has so many entries. Everything happens at the server of a run.

The start of the output decides whether clients begin with usable weights. The paper does not describe it (SH-HN), so
the option `output` has three readings:

    plain       scale 1 and PyTorch's default initialization everywhere, as in the public code
    scaled      b = 0, and W such that every generated matrix has the standard deviation of Glorot's initialization
    anchored    b is one common initial model and W a tenth of "scaled", so that clients start close to that model

W_k is by far the largest tensor of the server, and its gradient a^T Delta is a product of two thin factors. The server
therefore makes and uses this gradient one block of columns after another, within the cache (`blocks`,
`gradient_blocks`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import glorot
from fedrepro.errors import one_of, require
from fedrepro.papers.fedsheafhn.sheaf import Drop, keep_all, linear

ATTENTIONS = ("softmax", "free", "none")
OUTPUTS = ("anchored", "scaled", "plain")
DEPARTURE = 0.1  # the clients' distance from the common model under "anchored", relative to "scaled"
BLOCK = 4096  # columns of an output matrix that the server moves at a time

Shapes = tuple[tuple[str, tuple[int, ...]], ...]  # names and shapes of tensors


@dataclass(frozen=True, kw_only=True)
class Hypernetwork:
    """A network that turns the clients' vectors into their models' tensors (Eq. 10 and 11).

    Args:
        shapes: names and shapes of the generated tensors. The bias `layer1.bias` has the scale of `layer1.weight`.
        attention: "softmax" (Eq. 10); "free", one learned `[clients, clients]` matrix that starts at the identity, as
            in the public code, with which no client can join later; or "none".
        hidden, layers: width and number of the hidden layers, each with ReLU and dropout.
        output: the start of the output, one of `OUTPUTS`; see the module's text.
        dropout: probability after a "free" attention and after every hidden layer.
    """

    shapes: Shapes
    attention: str = "softmax"
    hidden: int = 128
    layers: int = 2
    output: str = "anchored"
    dropout: float = 0.3

    def __post_init__(self) -> None:
        one_of("attention", self.attention, ATTENTIONS)
        one_of("output", self.output, OUTPUTS)
        require(self.hidden >= 1, "hyper_hidden", "at least 1", self.hidden)
        require(self.layers >= 1, "hyper_layers", "at least 1", self.layers)
        require(0 <= self.dropout < 1, "hyper_dropout", "in [0, 1)", self.dropout)

    def scale(self, name: str) -> float:
        """Return the fixed factor of a generated tensor, the standard deviation of Glorot's start of its layer."""
        if self.output == "plain":
            return 1.0
        rows, columns = dict(self.shapes)[name.rpartition(".")[0] + ".weight"]
        return math.sqrt(2.0 / (rows + columns))

    def init(self, seed: int, x: Tensor, start: Weights) -> Weights:
        """Return initial weights.

        Args:
            seed: of the run.
            x: the clients' first vectors `[clients, width]`, on which the size of the features is measured.
            start: the common initial model, the tensors of `shapes`.
        """
        clients, width = x.shape
        weights: Weights = {"hyper.attention": torch.eye(clients)} if self.attention == "free" else {}
        if self.attention == "softmax":
            names = [f"hyper.attention.{part}" for part in ("query", "key", "value")]
            weights = {name: glorot(width, width, seed=seed, name=name) for name in names}
        for i, (rows, columns) in enumerate(pairwise([width, *[self.hidden] * self.layers])):
            name = f"hyper.mlp{i}"
            if self.output == "plain":
                weights[f"{name}.weight"] = _default((rows, columns), rows, seed, f"{name}.weight")
                weights[f"{name}.bias"] = _default((columns,), rows, seed, f"{name}.bias")
            else:
                weights |= linear(seed, name, rows, columns)
        weights = {name: w.to(x) for name, w in weights.items()}
        size = float(self.features(weights, x, keep_all).square().sum(1).mean().sqrt())
        size = size if math.isfinite(size) and size > 0 else 1.0
        for name, shape in self.shapes:
            output = self._output(seed, name, shape, size, start[name])
            weights |= {f"hyper.out.{name}.{part}": w.to(x) for part, w in output.items()}
        return weights

    def _output(self, seed: int, tensor: str, shape: tuple[int, ...], size: float, start: Tensor) -> Weights:
        """Return W_k and b_k of one generated tensor, for features of a given size."""
        entries, name = math.prod(shape), f"hyper.out.{tensor}"
        if self.output != "plain" and len(shape) == 1:  # generated biases start at zero
            return {"weight": torch.zeros(self.hidden, entries), "bias": torch.zeros(entries)}
        weight = _uniform(self.hidden, entries, seed, f"{name}.weight")
        if self.output == "plain":
            bias = _default((entries,), self.hidden, seed, f"{name}.bias")
            return {"weight": weight.div_(math.sqrt(self.hidden)), "bias": bias}
        weight.mul_(math.sqrt(3.0) / size)
        if self.output == "scaled":
            return {"weight": weight, "bias": torch.zeros(entries)}
        return {"weight": weight.mul_(DEPARTURE), "bias": start.flatten() / self.scale(tensor)}

    def features(self, weights: Weights, x: Tensor, drop: Drop) -> Tensor:
        """Return a = MLP(X_att), the attention and the hidden layers `[clients, hidden]` (Eq. 10)."""
        if self.attention == "softmax":
            query, key, value = (x @ weights[f"hyper.attention.{part}"] for part in ("query", "key", "value"))
            x = (query @ key.T).softmax(1) @ value
        elif self.attention == "free":
            x = drop(weights["hyper.attention"] @ x, self.dropout, "attention")
        for i in range(self.layers):
            x = F.relu(x @ weights[f"hyper.mlp{i}.weight"] + weights[f"hyper.mlp{i}.bias"])
            x = drop(x, self.dropout, f"mlp{i}")
        return x

    def __call__(self, weights: Weights, x: Tensor, drop: Drop) -> Weights:
        """Return the generated tensors, `[clients, ...]` each (Eq. 11)."""
        a = self.features(weights, x, drop)
        generated = {}
        for name, shape in self.shapes:
            scale = self.scale(name)
            bias, weight = weights[f"hyper.out.{name}.bias"], weights[f"hyper.out.{name}.weight"]
            generated[name] = torch.addmm(scale * bias, scale * a, weight).view(-1, *shape)
        return generated

    def back(self, weights: Weights, change: Weights) -> Tensor:
        """Return Delta's vector-Jacobian product by the features, sum_k scale_k Delta_k W_k^T `[clients, hidden]`."""
        parts = [
            self.scale(name) * (delta.flatten(1) @ weights[f"hyper.out.{name}.weight"].T)
            for name, delta in reversed(change.items())
        ]
        return sum(parts[1:], parts[0])


def by_columns(w: Tensor) -> Tensor:
    """Return an output matrix `[hidden, entries]` laid out column by column, as `blocks` needs it."""
    return w.T.contiguous().T


def blocks(name: str, w: Tensor) -> Weights:
    """Return views `[1, numbers]` of an output matrix laid out column by column, each of `BLOCK` columns."""
    return {f"{name}[{i}]": part[None] for i, part in enumerate(torch.split(w.T.view(-1), BLOCK * len(w)))}


def gradient_blocks(name: str, a: Tensor, change: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the gradient a^T Delta block by block, under the names and in the layout of `blocks`.

    Args:
        name: of the output matrix.
        a: features `[clients, hidden]`.
        change: Delta of one tensor `[clients, entries]`.
    """
    for i, part in enumerate(torch.split(change.T, BLOCK)):
        yield f"{name}[{i}]", (part @ a).view(1, -1)


def _default(shape: tuple[int, ...], fan_in: int, seed: int, name: str) -> Tensor:
    """Return PyTorch's default start of a linear layer, uniform on +-1/sqrt(fan_in)."""
    return (2 * random.uniform(shape, "init", seed, name) - 1) / math.sqrt(fan_in)


def _uniform(rows: int, columns: int, seed: int, name: str) -> Tensor:
    """Return numbers uniform on (-1, 1), a function of seed and name; too many to draw them by hashing each."""
    key = int(random.keys("init", seed, name) >> np.uint64(1))
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(key)).mul_(2).sub_(1)
