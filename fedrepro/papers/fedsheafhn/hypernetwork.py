"""A hypernetwork that makes the weights of all clients' models from one vector each (FedSheafHN, Section 3.3).

    X_att = softmax((X Q)(X K)^T) X V (Eq. 10)      a = MLP(X_att)      tensor k of client i = scale_k (a_i W_k + b_k)

Everything here happens at the server, for one run at a time. How the output starts decides whether clients start from
usable weights, and no paper says it; hence `output`:

    plain     scale 1 and PyTorch's default initialization everywhere, as in the public code of FedSheafHN
    scaled    b = 0, and W such that every generated matrix has the spread of Glorot's initialization
    anchored  b is one common initial model, W a tenth of "scaled": clients start close to what FedAvg starts from

W_k is by far the largest thing a server holds, and its gradient a^T Delta a product of thin factors: it is made and
used up block of columns by block of columns, inside the cache (`blocks`, `gradient_blocks`).
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
from fedrepro.papers.fedsheafhn.collaboration import Drop, kept

ATTENTIONS = ("softmax", "free", "none")
OUTPUTS = ("anchored", "scaled", "plain")
DEPARTURE = 0.1  # how far "anchored" lets clients start from the common model, in Glorot's spread
BLOCK = 4096  # columns of an output matrix moved at a time


@dataclass(frozen=True)
class Hypernetwork:
    """Sizes of a hypernetwork.

    Args:
        width: of the clients' vectors.
        shapes: names and shapes of the tensors it makes; a vector `layer1.bias` has the scale of `layer1.weight`.
        clients: of the run; the "free" attention has a matrix of that size, so that no client can join.
        attention: "softmax" (Eq. 10), "free" (one learned matrix, at first the identity, as in the public code) or
            "none".
        hidden, layers: width and number of the hidden layers, each with ReLU and dropout.
        output: see the module's text.
        dropout: after attention "free" and after every hidden layer.
    """

    width: int
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    clients: int
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
        """The fixed factor of a generated tensor: the standard deviation of Glorot's initialization of its layer."""
        if self.output == "plain":
            return 1.0
        rows, columns = dict(self.shapes)[name.rpartition(".")[0] + ".weight"]
        return math.sqrt(2.0 / (rows + columns))

    def init(self, seed: int, x: Tensor, start: Weights) -> Weights:
        """Initial weights.

        Args:
            x: the clients' vectors at the start `[clients, width]`, on which the output's scale is measured.
            start: the common initial model, tensors of `shapes`.
        """
        made = self._attention_init(seed)
        for i, (a, b) in enumerate(pairwise([self.width, *[self.hidden] * self.layers])):
            made[f"hyper.mlp{i}.weight"] = self._matrix(seed, f"hyper.mlp{i}.weight", a, b)
            made[f"hyper.mlp{i}.bias"] = self._bias(seed, f"hyper.mlp{i}.bias", a, b)
        made = {name: w.to(x) for name, w in made.items()}
        size = float(self.features(made, x, kept).square().sum(1).mean().sqrt())
        size = size if math.isfinite(size) and size > 0 else 1.0
        for name, shape in self.shapes:
            made |= {part: w.to(x) for part, w in self._output(seed, name, shape, size, start[name]).items()}
        return made

    def _attention_init(self, seed: int) -> Weights:
        if self.attention == "softmax":
            names = [f"hyper.attention.{part}" for part in ("query", "key", "value")]
            return {name: glorot(self.width, self.width, seed=seed, name=name) for name in names}
        return {"hyper.attention": torch.eye(self.clients)} if self.attention == "free" else {}

    def _matrix(self, seed: int, name: str, rows: int, columns: int) -> Tensor:
        if self.output == "plain":
            return (2 * random.uniform((rows, columns), "init", seed, name) - 1) / math.sqrt(rows)
        return glorot(rows, columns, seed=seed, name=name)

    def _bias(self, seed: int, name: str, rows: int, columns: int) -> Tensor:
        if self.output == "plain":
            return (2 * random.uniform((columns,), "init", seed, name) - 1) / math.sqrt(rows)
        return torch.zeros(columns)

    def _output(self, seed: int, name: str, shape: tuple[int, ...], size: float, start: Tensor) -> Weights:
        """W_k and b_k; W_k is uniform, and too large to be drawn by hashing."""
        weight, bias, entries = f"hyper.out.{name}.weight", f"hyper.out.{name}.bias", math.prod(shape)
        if self.output != "plain" and len(shape) == 1:  # biases start at zero
            return {weight: torch.zeros(self.hidden, entries), bias: torch.zeros(entries)}
        drawn = _uniform(self.hidden, entries, seed, weight)
        if self.output == "plain":
            return {
                weight: drawn.div_(math.sqrt(self.hidden)),
                bias: (2 * random.uniform((entries,), "init", seed, bias) - 1) / math.sqrt(self.hidden),
            }
        drawn.mul_(math.sqrt(3.0) / size)
        if self.output == "scaled":
            return {weight: drawn, bias: torch.zeros(entries)}
        return {weight: drawn.mul_(DEPARTURE), bias: start.flatten() / self.scale(name)}

    def features(self, weights: Weights, x: Tensor, drop: Drop) -> Tensor:
        """Attention and hidden layers: `[clients, hidden]`."""
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
        """The generated tensors, `[clients, ...]` each (Eq. 11)."""
        a = self.features(weights, x, drop)
        made = {}
        for name, shape in self.shapes:
            scale = self.scale(name)
            bias, weight = weights[f"hyper.out.{name}.bias"], weights[f"hyper.out.{name}.weight"]
            made[name] = torch.addmm(scale * bias, scale * a, weight).view(-1, *shape)
        return made

    def back(self, weights: Weights, change: Weights) -> Tensor:
        """The vector-Jacobian product by the features: the sum of scale_k Delta_k W_k^T, `[clients, hidden]`."""
        parts = [
            self.scale(name) * (delta.flatten(1) @ weights[f"hyper.out.{name}.weight"].T)
            for name, delta in reversed(change.items())
        ]
        return sum(parts[1:], parts[0])


def by_columns(w: Tensor) -> Tensor:
    """An output matrix `[hidden, entries]` laid out column by column, as `blocks` needs it."""
    return w.T.contiguous().T


def blocks(name: str, w: Tensor) -> Weights:
    """Views of `BLOCK` columns each of an output matrix laid out column by column, `[1, numbers]`."""
    return {f"{name}[{i}]": part[None] for i, part in enumerate(torch.split(w.T.view(-1), BLOCK * len(w)))}


def gradient_blocks(name: str, a: Tensor, change: Tensor) -> Iterator[tuple[str, Tensor]]:
    """a^T Delta, of features `[clients, hidden]` and `[clients, entries]`, in the blocks of `blocks`, one at a time."""
    for i, part in enumerate(torch.split(change.T, BLOCK)):
        yield f"{name}[{i}]", (part @ a).view(1, -1)


def _uniform(rows: int, columns: int, seed: int, name: str) -> Tensor:
    """Uniform on (-1, 1), a function of seed and name alone."""
    key = int(random.keys("init", seed, name) >> np.uint64(1))
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(key)).mul_(2).sub_(1)
