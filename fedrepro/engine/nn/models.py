"""Define models as pure functions of weights and a federation: `model(weights, fed) -> [nodes, classes]`.

A model holds sizes and no weights. So the same function runs local, received or generated weights, on a client's graph
or on another. Dropout is on while the federation has a clock (`Federation.at`).
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
    """Draw from the uniform distribution on +-sqrt(6 / (fan in + fan out)) (Glorot and Bengio 2010).

    Fan in and fan out are the last two axes of the shape.
    """
    return uniform_below(math.sqrt(6.0 / (shape[-2] + shape[-1])), shape, seed, name)


def uniform_below(bound: float, shape: tuple[int, ...], seed: int, name: str) -> Tensor:
    """Draw from the uniform distribution on +-bound, as a function of the seed and the weight's name."""
    return (2 * random.uniform(shape, "init", seed, name) - 1) * bound


@dataclass(frozen=True)
class Model:
    """The sizes common to all models, and a stack of layers with ReLU and dropout between them.

    Args:
        features: width of the input.
        classes: width of the output.
        hidden: width of the hidden layers.
        layers: number of weight layers.
        dropout: probability of dropping an input or hidden entry while training.
        stack: widths of the hidden layers if they differ, first to last. `hidden` and `layers` then follow from it.
        input_norm: whether the input passes through LayerNorm with a learned scale and shift. It is then not dropped.
        initial: "glorot" for Glorot matrices and zero biases, or "torch" for PyTorch's default, in which both are
            uniform on +-1/sqrt(fan in).
        input_dropout: probability of dropping an input entry, or -1 for the value of `dropout`.
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

    # The number of `layers` whose output are the classes.
    _output_layers: ClassVar[int] = 1

    @property
    def first_dropout(self) -> float:
        """Return the probability of dropping an input entry."""
        return self.dropout if self.input_dropout == -1 else self.input_dropout

    @property
    def widths(self) -> list[tuple[int, int]]:
        """Return the widths (in, out) of each weight matrix."""
        hidden = self.stack or (self.hidden,) * (self.layers - self._output_layers)
        return list(pairwise([self.features, *hidden, self.classes]))

    @property
    def hops(self) -> int:
        """Return the number of propagation steps, beyond which a node cannot change an output."""
        return self.layers

    def init(
        self, seeds: Sequence[int], dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
    ) -> Weights:
        """Return initial weights, one slice per seed, which depend only on the seed and the weight's name."""
        slices = [self._init(seed) for seed in seeds]
        return {name: torch.stack([w[name] for w in slices]).to(device, dtype) for name in slices[0]}

    def _init(self, seed: int) -> Weights:
        weights: Weights = {}
        for i, (width_in, width_out) in enumerate(self.widths, start=1):
            weights[f"layer{i}.weight"] = self._matrix(width_in, width_out, seed, f"layer{i}.weight")
            bias = uniform_below(1 / math.sqrt(width_in), (width_out,), seed, f"layer{i}.bias")
            weights[f"layer{i}.bias"] = bias if self.initial == "torch" else torch.zeros(width_out)
        if self.input_norm:
            weights |= {"norm.scale": torch.ones(self.features), "norm.shift": torch.zeros(self.features)}
        return weights

    def _matrix(self, width_in: int, width_out: int, seed: int, name: str) -> Tensor:
        if self.initial == "torch":
            return uniform_below(1 / math.sqrt(width_in), (width_in, width_out), seed, name)
        return glorot(width_in, width_out, seed=seed, name=name)

    def __call__(self, weights: Weights, fed: Federation) -> Tensor:
        """Return the logits `[nodes, classes]`."""
        if self.input_norm:
            x, weights = layers.normalized_input(fed, weights)
        else:
            x = layers.dropout(fed, fed.input, self.first_dropout, "layer1")
        h = self._layer(fed, x, weights, 1)
        for i in range(2, self.layers + 1):
            h = self._layer(fed, layers.relu_dropout(fed, h, self.dropout, f"layer{i}"), weights, i)
        return h

    def _layer(self, fed: Federation, h: Tensor | Sparse, weights: Weights, i: int) -> Tensor:
        return layers.linear(fed, h, weights[f"layer{i}.weight"], weights[f"layer{i}.bias"])


@dataclass(frozen=True)
class MLP(Model):
    """Linear layers with ReLU between them, which use no edge."""

    @property
    def hops(self) -> int:
        """Return 0, since no edge is used."""
        return 0


@dataclass(frozen=True)
class GCN(Model):
    """A graph convolutional network (Kipf and Welling 2017)."""

    # Only the propagation leaves out what no wanted output depends on. ReLU, dropout and the products with weights take
    # all rows of the focus. With fewer rows a weight's gradient would be summed in another order, and round otherwise.
    def _layer(self, fed: Federation, h: Tensor | Sparse, weights: Weights, i: int) -> Tensor:
        reach = self.layers - i
        return layers.gcn(fed, h, weights[f"layer{i}.weight"], weights[f"layer{i}.bias"], reach=reach)


@dataclass(frozen=True)
class GraphSAGE(Model):
    """GraphSAGE with mean aggregation and a root weight (Hamilton et al. 2017)."""

    def _init(self, seed: int) -> Weights:
        weights = super()._init(seed)
        for i, (width_in, width_out) in enumerate(self.widths, start=1):
            weights[f"layer{i}.root"] = self._matrix(width_in, width_out, seed, f"layer{i}.root")
        return weights

    def _layer(self, fed: Federation, h: Tensor | Sparse, weights: Weights, i: int) -> Tensor:
        part = {name: weights[f"layer{i}.{name}"] for name in ("weight", "root", "bias")}
        return layers.sage(fed, h, part["weight"], part["root"], part["bias"], reach=self.layers - i)


@dataclass(frozen=True)
class _Head(Model):
    """Convolutions and a linear classifier after them, with ReLU and dropout between all of them.

    Args:
        layers: number of convolutions, the classifier not counted.
        bare: whether the classifier takes the last convolution's output without ReLU and dropout.
    """

    bare: bool = False

    _output_layers: ClassVar[int] = 0

    def _init(self, seed: int) -> Weights:
        weights = super()._init(seed)
        # The classifier takes no neighbours.
        weights.pop(f"layer{self.layers + 1}.root", None)
        return weights

    def __call__(self, weights: Weights, fed: Federation) -> Tensor:
        """Return the logits `[nodes, classes]`."""
        name = f"layer{self.layers + 1}"
        h = self.embed(weights, fed)
        if not self.bare:
            h = layers.relu_dropout(fed, h, self.dropout, name)
        return layers.linear(fed, h, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def embed(self, weights: Weights, fed: Federation) -> Tensor:
        """Return the output of the last convolution before its ReLU, `[nodes, hidden]`."""
        return super().__call__(weights, fed)


@dataclass(frozen=True)
class GCNHead(_Head, GCN):
    """Graph convolutions and a linear classifier, the client model of FedSheafHN (Section 4.1; SH-Q11, SH-DROP)."""


@dataclass(frozen=True)
class SAGEHead(_Head, GraphSAGE):
    """GraphSAGE layers and a linear classifier, the GNN of FedStruct (Table 5)."""


@dataclass(frozen=True)
class APPNP(MLP):
    """An MLP, followed by personalized propagation of its logits (Gasteiger et al. 2019).

    Args:
        alpha: teleport probability.
        steps: propagation steps.
    """

    alpha: float = 0.1
    steps: int = 10

    @property
    def hops(self) -> int:
        """Return the number of propagation steps."""
        return self.steps

    def __call__(self, weights: Weights, fed: Federation) -> Tensor:
        """Return the logits `[nodes, classes]`."""
        return layers.appnp(fed, super().__call__(weights, fed), self.alpha, self.steps)


@dataclass(frozen=True)
class DGCN(MLP):
    """A decoupled GCN: an MLP, followed by (D~^-1 (A+I))^L (FedStruct Eq. 2 with beta only at the last power).

    Args:
        depth: the power L.
    """

    depth: int = 2

    @property
    def hops(self) -> int:
        """Return the power."""
        return self.depth

    def __call__(self, weights: Weights, fed: Federation) -> Tensor:
        """Return the logits `[nodes, classes]`."""
        return layers.decoupled(fed, super().__call__(weights, fed), [0.0] * self.depth + [1.0])


@dataclass(frozen=True)
class GAT(Model):
    """A graph attention network of two layers (Velickovic et al. 2018).

    The heads of the first layer are concatenated and pass through ELU. Those of the second are averaged.

    Args:
        hidden: width of one head.
        heads: heads of the first layer.
        output_heads: heads of the second layer (1, on PubMed 8).
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
        matrices = {name: glorot(*shape, seed=seed, name=name) for name, shape in shapes.items()}
        return {**matrices, "layer1.bias": torch.zeros(first), "layer2.bias": torch.zeros(self.classes)}

    def __call__(self, weights: Weights, fed: Federation) -> Tensor:
        """Return the logits `[nodes, classes]`."""
        x = layers.dropout(fed, fed.input, self.first_dropout, "layer1")
        h = layers.gat(fed, x, fed.attention_edges(1), *_attention(weights, 1))
        return self.second_layer(weights, fed, h)

    def second_layer(self, weights: Weights, fed: Federation, h: Tensor) -> Tensor:
        """Return logits `[nodes, classes]` from the first layer's heads `[nodes, heads, hidden]`.

        The heads are taken before bias and ELU. Only the logits of nodes of ring 0 are meaningful.
        """
        h = F.elu(h.flatten(1) + layers.per_node(fed, weights["layer1.bias"]))
        h = layers.dropout(fed, h, self.dropout, "layer2")
        out = layers.gat(fed, h, fed.attention_edges(0), *_attention(weights, 2))
        return out.mean(1) + layers.per_node(fed, weights["layer2.bias"])


def _attention(weights: Weights, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    return weights[f"layer{layer}.weight"], weights[f"layer{layer}.source"], weights[f"layer{layer}.target"]


MODELS: dict[str, type[Model]] = {m.__name__: m for m in (GCN, GCNHead, GAT, GraphSAGE, SAGEHead, MLP, APPNP, DGCN)}


def model(name: str, **sizes: int | float | tuple[int, ...]) -> Model:
    """Return a model by name, such as `model("GCN", features=1433, classes=7, hidden=64)`."""
    return MODELS[one_of("model", name, MODELS)](**sizes)  # type: ignore[arg-type]
