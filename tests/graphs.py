"""Small seeded graphs with masks, partitions of unequal parts, and plain PyG networks to compare the package with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GATConv, GCNConv, SAGEConv
from torch_geometric.utils import subgraph

from fedrepro.engine.nn import models


def graph_of(x: Tensor, y: np.ndarray, adjacency: np.ndarray, split: np.ndarray, **more: Any) -> Data:
    """A graph from its matrices; `split` says 0, 1 or 2 of a training, validation or test node, else it is in none."""
    masks = {f"{name}_mask": torch.from_numpy(split == i) for i, name in enumerate(("train", "val", "test"))}
    edges = torch.from_numpy(np.array(np.nonzero(adjacency)))
    return Data(x=x, y=torch.from_numpy(y), edge_index=edges, **masks, **more)


def block_model(
    nodes: int = 48,
    *,
    degree: float = 4,
    classes: int = 3,
    features: int = 7,
    seed: int = 0,
    directed: bool = False,
    isolated: int = 3,
    sparse: bool = False,
) -> Data:
    """A stochastic block model; node 0 and the last `isolated - 1` nodes have no edge.

    Args:
        degree: neighbours of a node, on average.
        directed: edges need not come in pairs, and some nodes have self-loops, as in Chameleon.
        sparse: 0/1 features as `torch.sparse_csr`, about one in eight set; else dense normal ones.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=nodes)
    near, far = 2 * degree / nodes, 0.6 * degree / nodes
    adjacency = rng.random((nodes, nodes)) < np.where(y[:, None] == y[None, :], near, far)
    if directed:
        adjacency[np.arange(0, nodes, 4), np.arange(0, nodes, 4)] = True
    else:
        adjacency = np.triu(adjacency, 1)
        adjacency = adjacency | adjacency.T
    alone = [0, *range(nodes - isolated + 1, nodes)] if isolated else []
    adjacency[alone, :] = False
    adjacency[:, alone] = False
    x = (rng.random((nodes, features)) < 0.125) if sparse else rng.normal(size=(nodes, features)) + np.eye(features)[y]
    dense = torch.tensor(x, dtype=torch.float32)
    split = rng.permutation(np.arange(nodes) % 3)
    x = dense.to_sparse_csr() if sparse else dense
    return graph_of(x, y, adjacency, split, name="block model", num_classes=classes)


def unequal_parts(nodes: int, clients: int, seed: int = 0) -> list[Tensor]:
    """Every node at one client; sizes grow with the client's number, and of several clients the first has one node."""
    order = torch.from_numpy(np.random.default_rng([seed, 1]).permutation(nodes))
    if clients == 1:
        return [order]
    share = np.cumsum(np.arange(1, clients)) / np.arange(1, clients).sum()
    ends = 1 + np.round((nodes - 1) * share).astype(int)
    return [order[:1], *(order[a:b] for a, b in zip([1, *ends[:-1]], ends, strict=True))]


def without_labels(data: Data, parts: Sequence[Tensor], clients: Sequence[int]) -> Data:
    """Return the graph with no training node at the named clients, and two or more (or all nodes) at each other."""
    data = data.clone()
    for number, part in enumerate(parts):
        if number in clients:
            data.train_mask[part] = False
        elif int(data.train_mask[part].sum()) < 2:
            data.train_mask[part[:2]] = True
            data.val_mask[part[:2]] = data.test_mask[part[:2]] = False
    return data


def client_graph(data: Data, part: Tensor, dtype: torch.dtype = torch.float64) -> Data:
    """Return the graph of one client: its nodes in increasing order, the edges between them, features dense."""
    part = part.sort().values
    edges, _ = subgraph(part, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)
    x = data.x.to_dense() if data.x.layout == torch.sparse_csr else data.x
    held = {name: data[name][part] for name in ("y", "train_mask", "val_mask", "test_mask")}
    return Data(x=x[part].to(dtype), edge_index=edges, node_id=part, **held)


def dense_operator(kind: str, edge_index: Tensor, nodes: int) -> np.ndarray:
    """A propagation matrix in NumPy: entry (target, source)."""
    a = np.zeros((nodes, nodes))
    a[edge_index[1].numpy(), edge_index[0].numpy()] = 1
    if kind == "mean":
        return a / np.maximum(a.sum(1, keepdims=True), 1)
    np.fill_diagonal(a, 1)
    degree = a.sum(1)
    return a / degree[:, None] if kind == "row" else a / np.sqrt(degree[:, None] * degree[None, :])


class Row(nn.Module):
    """`D~^-1 (A+I)` applied `depth` times."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth

    def forward(self, h: Tensor, edge_index: Tensor) -> Tensor:
        p = torch.from_numpy(dense_operator("row", edge_index, len(h))).to(h.dtype)
        for _ in range(self.depth):
            h = p @ h
        return h


class Plain(nn.Module):
    """The network of a `fedrepro.engine.nn.models` model in plain PyG layers, with one client's weights.

    Args:
        model: its sizes.
        weights: one slice, `{name: [in, out] or [out]}`; copied.
    """

    def __init__(self, model: models.Model, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.model = model
        kind = type(model).__name__
        self.propagate: nn.Module | None = None
        if kind == "GAT":
            assert isinstance(model, models.GAT)
            first = GATConv(model.features, model.hidden, model.heads)
            second = GATConv(model.heads * model.hidden, model.classes, model.output_heads, concat=False)
            self.layers = nn.ModuleList([first, second])
        else:
            layer = {"GCN": GCNConv, "GraphSAGE": SAGEConv, "SAGE": SAGEConv}.get(kind.removesuffix("Head"), nn.Linear)
            self.layers = nn.ModuleList([layer(a, b) for a, b in model.widths])
            if kind.endswith("Head"):
                self.layers[-1] = nn.Linear(*model.widths[-1])
        if isinstance(model, models.APPNP):
            self.propagate = APPNP(K=model.steps, alpha=model.alpha)
        if isinstance(model, models.DGCN):
            self.propagate = Row(model.depth)
        self.norm = nn.LayerNorm(model.features) if model.input_norm else None
        self.to(weights["layer1.weight"].dtype)
        self.load(weights)

    def load(self, weights: dict[str, Tensor]) -> None:
        """Copy one slice into the parameters."""
        with torch.no_grad():
            for name, parameter in self.named().items():
                value = weights[name].T if name.endswith((".weight", ".root")) else weights[name]
                parameter.copy_(value.reshape(parameter.shape))

    def named(self) -> dict[str, nn.Parameter]:
        """The parameters under the package's names; matrices are transposed, attention vectors have one more axis."""
        parameters: dict[str, nn.Parameter] = {}
        if self.norm is not None:
            parameters |= {"norm.scale": self.norm.weight, "norm.shift": self.norm.bias}
        for i, layer in enumerate(self.layers, start=1):
            if isinstance(layer, GATConv):
                parameters |= {f"layer{i}.source": layer.att_src, f"layer{i}.target": layer.att_dst}
                parameters |= {f"layer{i}.weight": layer.lin.weight, f"layer{i}.bias": layer.bias}
            elif isinstance(layer, SAGEConv):
                parameters |= {f"layer{i}.weight": layer.lin_l.weight, f"layer{i}.bias": layer.lin_l.bias}
                parameters[f"layer{i}.root"] = layer.lin_r.weight
            else:
                matrix = layer.lin.weight if isinstance(layer, GCNConv) else layer.weight
                parameters |= {f"layer{i}.weight": matrix, f"layer{i}.bias": layer.bias}
        return parameters

    def slice(self, gradient: bool = False) -> dict[str, Tensor]:
        """Weights (or their gradients) in the package's shapes."""
        out = {}
        for name, parameter in self.named().items():
            value = parameter.grad if gradient else parameter.detach()
            assert value is not None
            out[name] = value.T if name.endswith((".weight", ".root")) else value.squeeze(0)
        return out

    def forward(self, graph: Data, masks: Sequence[Tensor] | None = None) -> Tensor:
        """Logits; `masks[i]` multiplies the input of layer i (0, or 1 / (1 - p))."""
        h = graph.x if self.norm is None else self.norm(graph.x)
        for i, layer in enumerate(self.layers):
            h = h if masks is None else h * masks[i]
            h = layer(h) if isinstance(layer, nn.Linear) else layer(h, graph.edge_index)
            if i + 1 < len(self.layers) and not (getattr(self.model, "bare", False) and i + 2 == len(self.layers)):
                h = F.elu(h) if isinstance(layer, GATConv) else F.relu(h)
        return h if self.propagate is None else self.propagate(h, graph.edge_index)


def gap(a: Tensor, b: Tensor) -> float:
    """Largest absolute difference of two tensors of the same shape."""
    assert a.shape == b.shape, (a.shape, b.shape)
    return float((a - b).detach().abs().max()) if a.numel() else 0.0


def largest_difference(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """Largest absolute difference over all tensors of two dictionaries with the same names."""
    assert set(a) == set(b), (sorted(a), sorted(b))
    assert all(a[name].shape == b[name].shape for name in a), {name: (a[name].shape, b[name].shape) for name in a}
    return max(gap(a[name], b[name]) for name in a)


def identical(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Return whether two dictionaries have the same names and bitwise equal tensors."""
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a)
