"""FedStruct's network on structure features: g, an MLP before the propagation (Eq. 8), or a GraphSAGE (Appendix H).

As in the authors' code: normalization of the input, ReLU then dropout between layers and none on the input, biases.
All take stacked features `[slices, nodes, columns]`, one slice per run (or per client), each with its own weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import MLP, Model, SAGEHead
from fedrepro.engine.nn.sparse import Sparse

EPS = 1e-5
SIZES = ("features", "classes", "hidden", "layers", "stack", "dropout", "input_norm")  # of a model


def structure_weights(
    model: Model, columns: int, hidden: Sequence[int], classes: int, seed: int, *, norm: bool, sage: bool
) -> Weights:
    """Initial weights of g by name, drawn as those of f (`model`): an MLP, or a GraphSAGE stack and a linear layer."""
    kind = SAGEHead if sage else MLP
    return _drawn(kind, model, "structure", seed, columns, classes, tuple(hidden), norm)


def combining_weights(model: Model, classes: int, seed: int) -> Weights:
    """Theta_c in its two halves (Eq. 51), `[classes, classes]` each."""
    made = {}
    for part in ("features", "structure"):
        made[f"combine.{part}"] = _drawn(MLP, model, f"combine.{part}", seed, classes, classes)[
            f"combine.{part}1.weight"
        ]
    return made


def _drawn(
    kind: type[Model], like: Model, name: str, seed: int, width: int, classes: int, stack: tuple[int, ...] = (),
    norm: bool = False,
) -> Weights:  # fmt: skip
    """A model's initial weights under other names, from a seed of their own; what is not a size is as in `like`."""
    common = {f.name: getattr(like, f.name) for f in fields(Model) if f.name not in SIZES}
    sizes: dict[str, Any] = {"features": width, "classes": classes, "stack": stack, "layers": 1, "input_norm": norm}
    key = int(random.keys("weights of", name, seed) >> np.uint64(1))
    made = kind(**sizes, **common).init([key], torch.float64)
    return {n.replace("layer", name).replace("norm", name): w[0] for n, w in made.items()}


def structure_mlp(weights: Weights, s: Tensor, key: Tensor, clock: tuple[int, int] | None, dropout: float) -> Tensor:
    """g of every node's structure features: `[slices, nodes, classes]` from `[slices, nodes, columns]`.

    Args:
        key: `[slices * nodes]` 64-bit keys of the dropout masks. clock: round and step; None in evaluation.
    """
    if "structure.scale" in weights:
        normal = F.layer_norm(s, s.shape[2:], eps=EPS)
        s = normal * weights["structure.scale"][:, None] + weights["structure.shift"][:, None]
    depth = sum(name.startswith("structure") and name.endswith(".weight") for name in weights)
    for i in range(1, depth + 1):
        s = torch.bmm(s, weights[f"structure{i}.weight"]) + weights[f"structure{i}.bias"][:, None]
        if i < depth:
            s = mask(F.relu(s), key, clock, dropout, i)
    return s


def structure_sage(
    weights: Weights, s: Tensor, mean: Sparse, key: Tensor, clock: tuple[int, int] | None, dropout: float
) -> Tensor:
    """The same by a GraphSAGE stack on the whole graph, with BatchNorm (of the batch's own statistics) on the input.

    Args:
        mean: D^-1 A of the whole graph, one block per slice `[slices * nodes, slices * nodes]`.
    """
    if "structure.scale" in weights:
        var, average = torch.var_mean(s, 1, correction=0, keepdim=True)
        s = (s - average) * (var + EPS).rsqrt()
        s = s * weights["structure.scale"][:, None] + weights["structure.shift"][:, None]
    depth = sum(name.startswith("structure") and name.endswith(".weight") for name in weights)
    for i in range(1, depth + 1):
        out = torch.bmm(s, weights[f"structure{i}.weight"])
        if i < depth:
            out = (mean @ out.flatten(0, 1)).view_as(out) + torch.bmm(s, weights[f"structure{i}.root"])
        out = out + weights[f"structure{i}.bias"][:, None]
        s = mask(F.relu(out), key, clock, dropout, i) if i < depth else out
    return s


def mask(x: Tensor, key: Tensor, clock: tuple[int, int] | None, p: float, layer: int) -> Tensor:
    """Inverted dropout of `[slices, nodes, width]`; the mask is a function of key, round, step, layer and column."""
    if clock is None or p == 0:
        return x
    rows = random.row_keys(key, "dropout", f"structure{layer}", *clock).view(*x.shape[:2], 1)
    return x * random.scales(rows, torch.arange(x.shape[2], device=x.device), p, x.dtype)
