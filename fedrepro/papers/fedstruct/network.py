"""Compute the structure branch: g on structure features, and the matrices that carry its output to the clients.

The network g is an MLP before the propagation (Eq. 8), or a GraphSAGE on the whole graph (Appendix H). It follows the
authors' code: its input is normalized and not dropped, ReLU and dropout stand between its layers, and its layers have
biases. Its tensors are stacked, `[slices, nodes, columns]`, one slice per run (or per client, where weights differ).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import coo_matrix, csr_matrix
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import Model
from fedrepro.engine.nn.sparse import Sparse

EPS = 1e-5
# The fields of a model that g does not take from the feature model f.
SIZES = ("features", "classes", "hidden", "layers", "stack", "dropout", "input_norm")


class Exchanged(NamedTuple):
    """The values that an exchange before training leaves, per run.

    Args:
        matrices: A- if powers are pruned, A^ if they are not, or D^-1 A for a GraphSAGE; each `[nodes, nodes]`.
        features: S, `[runs, nodes, columns]`; None for Hop2Vec, whose S is a weight.
        nodes: number of nodes of each run's graph.
        columns: number of columns of S.
    """

    matrices: tuple[csr_matrix, ...]
    features: Tensor | None
    nodes: int
    columns: int


# -- the weights of g -------------------------------------------------------------------------------------------------


def weights_of_g(weights: Weights) -> Weights:
    """Return the weights of g by name, without S."""
    return {name: w for name, w in weights.items() if name.startswith("structure") and name != "structure"}


def initial(kind: type[Model], like: Model, name: str, seed: int, **sizes: Any) -> Weights:
    """Return the initial weights of a model of a `kind`, under names that begin with `name`.

    They are drawn by the rule of the model `like`, from a separate seed, so that none equals a weight of `like`.

    Args:
        kind: the class of the model.
        like: the model whose fields hold, except for its sizes.
        name: the first part of the weights' names.
        seed: seed of the run.
        sizes: those fields among `SIZES` that differ from one layer without normalization.
    """
    rules = {f.name: getattr(like, f.name) for f in fields(Model) if f.name not in SIZES}
    key = int(random.keys("weights of", name, seed) >> np.uint64(1))
    weights = kind(**{"layers": 1, **sizes}, **rules).init([key], torch.float64)
    return {n.replace("layer", name).replace("norm", name): w[0] for n, w in weights.items()}


# -- the layers of g --------------------------------------------------------------------------------------------------


def structure_network(
    weights: Weights, s: Tensor, mean: Sparse | None = None, drop: Callable[[Tensor, int], Tensor] | None = None
) -> Tensor:
    """Return g(s_u) of every node, `[slices, nodes, classes]`.

    Args:
        weights: the weights of g, one slice each.
        s: structure features, `[slices, nodes, columns]`.
        mean: D^-1 A of the whole graph, one block per slice `[slices * nodes, slices * nodes]`. With it g is a
            GraphSAGE whose input passes through BatchNorm; without it g is an MLP whose input passes through LayerNorm.
        drop: dropout of a hidden layer, given the layer's number; None in evaluation.
    """
    if "structure.scale" in weights:
        if mean is None:
            s = F.layer_norm(s, s.shape[2:], eps=EPS)
        else:
            # The statistics are those of the batch in evaluation, too: the batch is always the whole graph.
            var, average = torch.var_mean(s, 1, correction=0, keepdim=True)
            s = (s - average) * (var + EPS).rsqrt()
        s = s * weights["structure.scale"][:, None] + weights["structure.shift"][:, None]
    depth = sum(name.startswith("structure") and name.endswith(".weight") for name in weights)
    for layer in range(1, depth + 1):
        out = torch.bmm(s, weights[f"structure{layer}.weight"])
        if mean is not None and layer < depth:
            out = (mean @ out.flatten(0, 1)).view_as(out) + torch.bmm(s, weights[f"structure{layer}.root"])
        s = out + weights[f"structure{layer}.bias"][:, None]
        if layer < depth:
            s = F.relu(s) if drop is None else drop(F.relu(s), layer)
    return s


def mask(x: Tensor, layer: int, key: Tensor, clock: tuple[int, int], p: float) -> Tensor:
    """Apply inverted dropout to `[slices, nodes, width]`.

    The mask is a function of key, round, step, layer and column. All clients of a run share the keys `[slices * nodes]`
    and therefore the masks.
    """
    if p == 0:
        return x
    rows = random.row_keys(key, "dropout", f"structure{layer}", *clock).view(*x.shape[:2], 1)
    return x * random.scales(rows, torch.arange(x.shape[2], device=x.device), p, x.dtype)


def dropout_keys(fed: Federation, nodes: int) -> Tensor:
    """Return keys `[slices * nodes]` made of the run's seed and the node's id, equal at all clients of a run."""
    seeds = np.asarray(fed.seeds)[runs_of(fed).cpu().numpy()]
    keys = random.keys("structure", seeds[:, None], np.arange(nodes)[None])
    return torch.from_numpy(keys.astype(np.int64).ravel()).to(fed.device)


# -- matrices over the batch ------------------------------------------------------------------------------------------


def runs_of(fed: Federation) -> Tensor:
    """Return the run of each weight slice, `[slices]`."""
    runs = fed.run.new_empty(fed.slices)
    runs[fed.slice_of] = fed.run
    return runs


def client_rows(fed: Federation, got: Exchanged) -> Sparse:
    """Return each client's rows of A-, `[nodes, slices * graph nodes]`; halo nodes have empty rows."""

    def build() -> Sparse:
        run = fed.run[fed.batch.batch].cpu().numpy()
        ids, slices = fed.batch.node_id.cpu().numpy(), fed.node_slice.cpu().numpy()
        is_own = (fed.batch.ring == 0).cpu().numpy()
        parts = []
        for number, matrix in enumerate(got.matrices):
            rows = np.flatnonzero((run == number) & is_own)
            part = matrix[ids[rows]].tocoo()
            parts.append((rows[part.row], slices[rows[part.row]] * got.nodes + part.col, part))
        return _sparse(fed, parts, (fed.nodes, fed.slices * got.nodes))

    return _cached(fed, got, "rows", build)


def blocks(fed: Federation, got: Exchanged) -> Sparse:
    """Return the run's matrix once per slice, block-diagonal, `[slices * graph nodes, slices * graph nodes]`."""

    def build() -> Sparse:
        matrices = [got.matrices[run].tocoo() for run in runs_of(fed).tolist()]
        parts = [(m.row + np.int64(k * got.nodes), m.col + np.int64(k * got.nodes), m) for k, m in enumerate(matrices)]
        return _sparse(fed, parts, (fed.slices * got.nodes, fed.slices * got.nodes))

    return _cached(fed, got, "blocks", build)


def at_own_nodes(fed: Federation, got: Exchanged, rows: Tensor) -> Tensor:
    """Return the rows `[slices * graph nodes, classes]` of each client's own nodes, and zeros at halo nodes."""
    index = fed.node_slice * got.nodes + fed.batch.node_id
    return torch.where((fed.batch.ring == 0)[:, None], rows[index], 0.0)


def _sparse(fed: Federation, parts: list[tuple[Any, Any, coo_matrix]], shape: tuple[int, int]) -> Sparse:
    """Return the matrix with the given rows, columns and values of each part."""
    row, col = (torch.from_numpy(np.concatenate([p[i] for p in parts]).astype(np.int64)).to(fed.device) for i in (0, 1))
    values = torch.from_numpy(np.concatenate([matrix.data for _, _, matrix in parts])).to(fed.device, fed.dtype)
    return Sparse.of(row, col, values, shape)


def _cached(fed: Federation, got: Exchanged, name: str, build: Callable[[], Sparse]) -> Sparse:
    """Build a matrix once per federation and exchange."""
    # The exchange is kept with its matrix: its id could otherwise be that of a later object.
    matrix: Sparse = fed.cached(("fedstruct", name, id(got)), lambda: (got, build()))[1]
    return matrix
