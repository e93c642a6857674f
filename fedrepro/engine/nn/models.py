"""Models as pure functions of (weights, federation): `model(weights, fed) -> [nodes, classes]`.

A model holds sizes only. The same function runs local, received or generated weights, on a client's graph or another;
dropout is on while the federation has a clock (`Federation.at`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import layers, random
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require


def glorot(*shape: int, seed: int, name: str) -> Tensor:
    """Uniform on +-sqrt(6 / (fan in + fan out)) over the last two axes (Glorot and Bengio 2010)."""
    return uniform_below(math.sqrt(6.0 / (shape[-2] + shape[-1])), shape, seed, name)


def uniform_below(bound: float, shape: tuple[int, ...], seed: int, name: str) -> Tensor:
    """Uniform on +-bound, a function of the seed and the weight's name."""
    return (2 * random.uniform(shape, "init", seed, name) - 1) * bound


@dataclass(frozen=True)
class Model:
    """Sizes common to all models.

    Args:
        features: width of the input.
        classes: width of the output.
        hidden: width of the hidden layers.
        layers: number of weight layers.
        dropout: probability of dropping an input or hidden entry while training.
        input_dropout: that of an input entry; -1 for `dropout`.
        stack: widths of the hidden layers where they differ, first to last; `hidden` and `layers` then follow it.
        input_norm: LayerNorm on the input, with a learned scale and shift; the input is then not dropped.
        initial: "glorot" matrices and zero biases, or "torch" for both uniform on +-1/sqrt(fan in), PyTorch's default.
    """

    features: int
    classes: int
    hidden: int = 16
    layers: int = 2
    dropout: float = 0.0
    stack: tuple[int, ...] = ()
    input_norm: bool = False
    initial: str = "glorot"
    input_dropout: float = -1.0

    def __post_init__(self) -> None:
        require(all(width >= 1 for width in self.stack), "stack", "widths of at least 1", self.stack)
        if self.stack:
            object.__setattr__(self, "layers", len(self.stack) + self._output_layers)
            object.__setattr__(self, "hidden", self.stack[-1])
        for name in ("features", "classes", "hidden", "layers"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(0 <= self.dropout < 1, "dropout", "in [0, 1)", self.dropout)
        require(0 <= self.first_dropout < 1, "input_dropout", "in [0, 1) or -1", self.input_dropout)
        one_of("initial", self.initial, ("glorot", "torch"))

    _output_layers: ClassVar[int] = 1  # of `layers`, those that give the classes

    @property
    def first_dropout(self) -> float:
        """Probability of dropping an input entry."""
        return self.dropout if self.input_dropout == -1 else self.input_dropout

    @property
    def widths(self) -> list[tuple[int, int]]:
        """(in, out) of each weight matrix."""
        hidden = self.stack or (self.hidden,) * (self.layers - self._output_layers)
        return list(pairwise([self.features, *hidden, self.classes]))

    @property
    def hops(self) -> int:
        """Propagation steps: how far away a node can be and still change an output."""
        return self.layers

    def init(
        self, seeds: Sequence[int], dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
    ) -> Weights:
        """Initial weights, one slice per seed, a function of the seed and the weight's name alone."""
        each = [self._init(seed) for seed in seeds]
        return {name: torch.stack([w[name] for w in each]).to(device, dtype) for name in each[0]}

    def _init(self, seed: int) -> Weights:
        made: Weights = {}
        for i, (width_in, width_out) in enumerate(self.widths, start=1):
            made[f"layer{i}.weight"] = self._matrix(width_in, width_out, seed, f"layer{i}.weight")
            fan_in = uniform_below(1 / math.sqrt(width_in), (width_out,), seed, f"layer{i}.bias")
            made[f"layer{i}.bias"] = fan_in if self.initial == "torch" else torch.zeros(width_out)
        if self.input_norm:
            made |= {"norm.scale": torch.ones(self.features), "norm.shift": torch.zeros(self.features)}
        return made

    def _matrix(self, width_in: int, width_out: int, seed: int, name: str) -> Tensor:
        if self.initial == "torch":
            return uniform_below(1 / math.sqrt(width_in), (width_in, width_out), seed, name)
        return glorot(width_in, width_out, seed=seed, name=name)

    def __call__(self, weights: Weights, fed: Federation) -> Tensor:
        """Logits `[nodes, classes]`."""
        if self.input_norm:
            x, weights = layers.normalized_input(fed, weights)
        else:
            x = layers.dropout(fed, fed.input, self.first_dropout, "layer1")
        h = self._layer(fed, x, weights, 1)
        for i in range(2, self.layers + 1):
            h = self._layer(fed, layers.dropout(fed, F.relu(h), self.dropout, f"layer{i}"), weights, i)
        return h

    def _layer(self, fed: Federation, h: Tensor | Sparse, weights: Weights, i: int) -> Tensor:
        return layers.linear(fed, h, weights[f"layer{i}.weight"], weights[f"layer{i}.bias"])


@dataclass(frozen=True)
class MLP(Model):
    """Linear layers with ReLU between them; sees no edge."""

    @property
    def hops(self) -> int:
        """None."""
        return 0


@dataclass(frozen=True)
class GCN(Model):
    """Graph convolutional network (Kipf and Welling 2017)."""

    def _layer(self, fed: Federation, h: Tensor | Sparse, weights: Weights, i: int) -> Tensor:
        reach = self.layers - i
        return layers.gcn(fed, h, weights[f"layer{i}.weight"], weights[f"layer{i}.bias"], reach=reach)


@dataclass(frozen=True)
class GraphSAGE(Model):
    """GraphSAGE with mean aggregation and a root weight (Hamilton et al. 2017)."""

    def _init(self, seed: int) -> Weights:
        made = super()._init(seed)
        for i, (width_in, width_out) in enumerate(self.widths, start=1):
            made[f"layer{i}.root"] = self._matrix(width_in, width_out, seed, f"layer{i}.root")
        return made

    def _layer(self, fed: Federation, h: Tensor | Sparse, weights: Weights, i: int) -> Tensor:
        part = {name: weights[f"layer{i}.{name}"] for name in ("weight", "root", "bias")}
        return layers.sage(fed, h, part["weight"], part["root"], part["bias"], reach=self.layers - i)


@dataclass(frozen=True)
class _Head(Model):
    """`layers` convolutions and a linear classifier after them, with ReLU and dropout between all of them and dropout
    of the input.

    Args:
        bare: the classifier sees the last convolution as it is, without ReLU and dropout.
    """

    bare: bool = False

    _output_layers: ClassVar[int] = 0

    def _init(self, seed: int) -> Weights:
        made = super()._init(seed)
        made.pop(f"layer{self.layers + 1}.root", None)  # the classifier sees a node alone
        return made

    def __call__(self, weights: Weights, fed: Federation) -> Tensor:
        """Logits `[nodes, classes]`."""
        name = f"layer{self.layers + 1}"
        h = self.embed(weights, fed)
        if not self.bare:
            h = layers.dropout(fed, F.relu(h), self.dropout, name)
        return layers.linear(fed, h, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def embed(self, weights: Weights, fed: Federation) -> Tensor:
        """Output of the last convolution, before its ReLU, `[nodes, hidden]`."""
        return super().__call__(weights, fed)


@dataclass(frozen=True)
class GCNHead(_Head, GCN):
    """Graph convolutions and a linear classifier: FedSheafHN's client (Section 4.1, width 128; SH-Q11, SH-DROP)."""


@dataclass(frozen=True)
class SAGEHead(_Head, GraphSAGE):
    """GraphSAGE layers and a linear classifier: FedStruct's GNN (Table 5)."""


@dataclass(frozen=True)
class APPNP(MLP):
    """MLP, then personalized propagation of its logits (Gasteiger et al. 2019).

    Args:
        alpha: teleport probability.
        steps: propagation steps.
    """

    alpha: float = 0.1
    steps: int = 10

    @property
    def hops(self) -> int:
        """One a step."""
        return self.steps

    def __call__(self, weights: Weights, fed: Federation) -> Tensor:
        """Logits `[nodes, classes]`."""
        return layers.appnp(fed, super().__call__(weights, fed), self.alpha, self.steps)


@dataclass(frozen=True)
class DGCN(MLP):
    """Decoupled GCN: MLP, then the power `depth` of D~^-1 (A+I) (FedStruct Eq. 2 with beta only at the last power).

    Args:
        depth: L of the paper.
    """

    depth: int = 2

    @property
    def hops(self) -> int:
        """The power."""
        return self.depth

    def __call__(self, weights: Weights, fed: Federation) -> Tensor:
        """Logits `[nodes, classes]`."""
        return layers.decoupled(fed, super().__call__(weights, fed), [0.0] * self.depth + [1.0])


@dataclass(frozen=True)
class GAT(Model):
    """Graph attention network of two layers (Velickovic et al. 2018), heads concatenated, ELU, output heads averaged.

    Args:
        hidden: width of one head.
        heads: of the first layer.
        output_heads: of the second layer (1; 8 on PubMed).
    """

    hidden: int = 8
    heads: int = 8
    output_heads: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.layers == 2, "layers", "2 for a GAT", self.layers)
        require(not self.stack, "stack", "empty for a GAT", self.stack)
        require(not self.input_norm, "input_norm", "False for a GAT", self.input_norm)
        require(self.initial == "glorot", "initial", "'glorot' for a GAT", self.initial)
        require(self.heads >= 1 and self.output_heads >= 1, "heads", "at least 1", (self.heads, self.output_heads))

    def _init(self, seed: int) -> Weights:
        first, second = self.heads * self.hidden, self.output_heads * self.classes
        shapes = {
            "layer1.weight": (self.features, first),
            "layer1.source": (self.heads, self.hidden),
            "layer1.target": (self.heads, self.hidden),
            "layer2.weight": (first, second),
            "layer2.source": (self.output_heads, self.classes),
            "layer2.target": (self.output_heads, self.classes),
        }
        made = {name: glorot(*shape, seed=seed, name=name) for name, shape in shapes.items()}
        return {**made, "layer1.bias": torch.zeros(first), "layer2.bias": torch.zeros(self.classes)}

    def __call__(self, weights: Weights, fed: Federation) -> Tensor:
        """Logits `[nodes, classes]`."""
        x = layers.dropout(fed, fed.input, self.first_dropout, "layer1")
        h = layers.gat(fed, x, fed.attention_edges(1), *_attention(weights, 1))
        return self.second_layer(weights, fed, h)

    def second_layer(self, weights: Weights, fed: Federation, h: Tensor) -> Tensor:
        """From the first layer's heads `[nodes, heads, hidden]`, before bias and ELU, to logits at own nodes `[nodes,
        classes]`.
        """
        h = F.elu(h.flatten(1) + layers.per_node(fed, weights["layer1.bias"]))
        h = layers.dropout(fed, h, self.dropout, "layer2")
        out = layers.gat(fed, h, fed.attention_edges(0), *_attention(weights, 2))
        return out.mean(1) + layers.per_node(fed, weights["layer2.bias"])


def _attention(weights: Weights, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    return weights[f"layer{layer}.weight"], weights[f"layer{layer}.source"], weights[f"layer{layer}.target"]


MODELS: dict[str, type[Model]] = {m.__name__: m for m in (GCN, GCNHead, GAT, GraphSAGE, SAGEHead, MLP, APPNP, DGCN)}


def model(name: str, **sizes: int | float | tuple[int, ...]) -> Model:
    """A model by name, such as `model("GCN", features=1433, classes=7, hidden=64)`."""
    return MODELS[one_of("model", name, MODELS)](**sizes)  # type: ignore[arg-type]
