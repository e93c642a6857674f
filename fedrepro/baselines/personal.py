"""What personalized methods share: a client's place among all clients, and the parts of a layered network."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.models import APPNP, DGCN, GAT, Model
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import require


def place(fed: Federation) -> slice:
    """Where the clients of a federation, or of a chunk of it, stand among all clients of all runs.

    Raises:
        ArgumentError: they are not consecutive.
    """
    sizes = torch.tensor([len(source.parts) for source in fed.sources], device=fed.device)
    at = (sizes.cumsum(0) - sizes)[fed.run] + fed.number
    first, last = int(at[0]), int(at[-1])
    require(last - first + 1 == fed.clients, "fed", "a federation of consecutive clients", at.tolist())
    return slice(first, last + 1)


def clients_of(fed: Federation, run: int) -> slice:
    """The clients of one run in a federation of all clients."""
    sizes = [len(source.parts) for source in fed.sources]
    return slice(sum(sizes[:run]), sum(sizes[: run + 1]))


def receives(fed: Federation, active: Tensor) -> Tensor:
    """`[clients]` bool: who takes a personalized model from the server. Beside those who trained these are the
    clients without training nodes, which never train; who was not drawn this round keeps its model.
    """
    return active | (fed.count("train") == 0)


def stacked(weights: Weights, part: slice | Tensor) -> Tensor:
    """All weights of some slices, one row a slice: `[slices, parameters]`."""
    return torch.cat([w[part].flatten(1) for w in weights.values()], dim=1)


def squared_distance(a: Weights, b: Weights) -> Tensor:
    """Sum over all weights of (a - b)^2, slice by slice: `[slices]`; over the names of `b`."""
    parts = [(a[name] - w).square().flatten(1).sum(1) for name, w in b.items()]
    return sum(parts[1:], parts[0])


# -- the parts of a network -------------------------------------------------------------------------------------------


def require_layers(model: Model, method: str) -> None:
    """Raise unless a model is a plain sequence of layers.

    Raises:
        ArgumentError: for a GAT, a model that propagates its logits, and a single layer.
    """
    plain = not isinstance(model, (GAT, APPNP, DGCN)) and len(model.widths) > 1
    require(plain, "model", f"a sequence of layers with ReLU between them for {method}", type(model).__name__)


def last_layers(model: Model, count: int) -> tuple[str, ...]:
    """Names of the weights of the last `count` layers, with the input's normalization where these are all."""
    first = len(model.widths) - count + 1
    found = []
    for name in model.init([0]):
        number = name.split(".")[0].removeprefix("layer")
        found += [name] if (int(number) if number.isdigit() else 1) >= first else []
    return tuple(found)


def first_input(model: Model, fed: Federation, weights: Weights) -> tuple[Tensor | Sparse, Weights]:
    """What the first layer takes, and the weights to give it: features normalized, or else with dropout."""
    if model.input_norm:
        return layers.normalized_input(fed, weights)
    return layers.dropout(fed, fed.input, model.first_dropout, "layer1"), weights


def layer(model: Model, fed: Federation, h: Tensor | Sparse, weights: Weights, i: int) -> Tensor:
    """Layer `i` of a model, counted from 1, without dropout and activation."""
    if i <= model.layers:
        return model._layer(fed, h, weights, i)
    return layers.linear(fed, h, weights[f"layer{i}.weight"], weights[f"layer{i}.bias"])  # a head after the layers


def next_input(model: Model, fed: Federation, h: Tensor, i: int) -> Tensor:
    """What layer `i` takes of the output of the layer before."""
    return layers.dropout(fed, F.relu(h), model.dropout, f"layer{i}")


def embed(model: Model, weights: Weights, fed: Federation) -> Tensor:
    """Output of the last layer but one before its ReLU, `[nodes, hidden]`."""
    x, weights = first_input(model, fed, weights)
    h = layer(model, fed, x, weights, 1)
    for i in range(2, len(model.widths)):
        h = layer(model, fed, next_input(model, fed, h, i), weights, i)
    return h


def classify(model: Model, weights: Weights, fed: Federation, h: Tensor) -> Tensor:
    """Logits `[nodes, classes]` from what `embed` returns."""
    last = len(model.widths)
    return layer(model, fed, next_input(model, fed, h, last), weights, last)
