"""Take federations and layered networks apart, as personalized methods need it."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.models import APPNP, DGCN, GAT, Model
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import require

# -- the parts of a federation ----------------------------------------------------------------------------------------


def chunk_of(fed: Federation) -> slice:
    """Return the indices that the clients of a chunk have among all clients of all runs.

    Raises:
        ArgumentError: the clients are not consecutive.
    """
    return fed.cached("chunk", lambda: _chunk_of(fed))  # type: ignore[no-any-return]


def _chunk_of(fed: Federation) -> slice:
    sizes = torch.tensor([len(source.parts) for source in fed.sources], device=fed.device)
    index = (sizes.cumsum(0) - sizes)[fed.run] + fed.number
    first, last = int(index[0]), int(index[-1])
    require(last - first + 1 == fed.clients, "fed", "a federation of consecutive clients", index.tolist())
    return slice(first, last + 1)


def clients_of(fed: Federation, run: int) -> slice:
    """Return the indices of one run's clients in a federation of all clients."""
    sizes = [len(source.parts) for source in fed.sources]
    return slice(sum(sizes[:run]), sum(sizes[: run + 1]))


def receivers(fed: Federation, active: Tensor) -> Tensor:
    """Return the clients that receive a personalized model from the server, `[clients]` bool.

    These are the clients that trained and those without training nodes, which never train. A client that was not
    drawn in this round keeps its model.
    """
    return active | (fed.count("train") == 0)


def flatten_slices(weights: Weights, part: slice | Tensor) -> Tensor:
    """Return all weights of some slices as rows, `[slices, parameters]`."""
    return torch.cat([w[part].flatten(1) for w in weights.values()], dim=1)


def squared_distance(a: Weights, b: Weights) -> Tensor:
    """Return the sum of (a - b)^2 over all weights that `b` names, slice by slice: `[slices]`."""
    parts = [(a[name] - w).square().flatten(1).sum(1) for name, w in b.items()]
    return sum(parts[1:], parts[0])


# -- the parts of a network -------------------------------------------------------------------------------------------


def require_layers(model: Model, method: str) -> None:
    """Raise unless a model is a plain sequence of layers.

    Raises:
        ArgumentError: the model is a GAT, propagates its logits, or has a single layer.
    """
    plain = not isinstance(model, (GAT, APPNP, DGCN)) and len(model.widths) > 1
    require(plain, "model", f"a sequence of layers with ReLU between them for {method}", type(model).__name__)


def last_layers(model: Model, count: int) -> tuple[str, ...]:
    """Return the names of the weights of the last `count` layers.

    The weights of the input's normalization belong to the first layer.
    """
    first = len(model.widths) - count + 1
    names = []
    for name in model.init([0]):
        number = name.split(".")[0].removeprefix("layer")
        names += [name] if (int(number) if number.isdigit() else 1) >= first else []
    return tuple(names)


def first_input(model: Model, fed: Federation, weights: Weights) -> tuple[Tensor | Sparse, Weights]:
    """Return the input of the first layer, and the weights with which that layer takes it.

    The input is normalized if the model does so; else it goes through dropout.
    """
    if model.input_norm:
        return layers.normalized_input(fed, weights)
    return layers.dropout(fed, fed.input, model.first_dropout, "layer1"), weights


def layer(model: Model, fed: Federation, h: Tensor | Sparse, weights: Weights, i: int) -> Tensor:
    """Apply layer `i` of a model, counted from 1, without dropout and activation."""
    if i <= model.layers:
        return model._layer(fed, h, weights, i)
    # A linear head follows the layers of GCNHead and SAGEHead.
    return layers.linear(fed, h, weights[f"layer{i}.weight"], weights[f"layer{i}.bias"])


def next_input(model: Model, fed: Federation, h: Tensor, i: int) -> Tensor:
    """Return the input of layer `i` from the output of the layer before it."""
    return layers.relu_dropout(fed, h, model.dropout, f"layer{i}")


def embed(model: Model, weights: Weights, fed: Federation) -> Tensor:
    """Return the output of the last layer but one before its ReLU, `[nodes, hidden]`."""
    x, weights = first_input(model, fed, weights)
    h = layer(model, fed, x, weights, 1)
    for i in range(2, len(model.widths)):
        h = layer(model, fed, next_input(model, fed, h, i), weights, i)
    return h


def classify(model: Model, weights: Weights, fed: Federation, h: Tensor) -> Tensor:
    """Return the logits `[nodes, classes]` from the result of `embed`."""
    last = len(model.widths)
    return layer(model, fed, next_input(model, fed, h, last), weights, last)
