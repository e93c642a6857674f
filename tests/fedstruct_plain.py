"""FedStruct on a small graph, with every kind of structure, and a plain program of its layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import Plain, block_model, client_graph, dense_operator
from graphs import unequal_parts as parts_of
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import DGCN
from fedrepro.papers.fedstruct.method import StructureMethod
from fedrepro.papers.fedstruct.variants import KnownGraph, choice

NODES, CLIENTS, DEPTH = 48, 4, 3
MODEL = DGCN(7, 3, hidden=5, depth=2, input_norm=True)
SMALL: dict[str, Any] = {"width": 6, "structure_hidden": (4,), "structure_depth": DEPTH, "walk": 3, "walk_epochs": 1}
KINDS = [
    {"structure": "H2V", "prune": 0},
    {"structure": "H2V", "prune": 4},
    {"structure": "H2V", "prune": 4, "budget": "blocks"},
    {"structure": "H2V", "head": "direct", "prune": 0},
    {"structure": "H2V", "head": "direct", "prune": 4, "beta": (0.2, -0.5, 0.3, 1.0)},
    {"structure": "Deg", "prune": 0, "beta": (0.2, -0.5, 0.3, 1.0)},
    {"structure": "Fed*", "prune": 4, "norm": False},
    {"structure": "GDV", "prune": 0, "structure_hidden": (4, 3)},
    {"structure": "N2V", "prune": 4, "structure_hidden": ()},
    {"structure": "H2V", "prune": 0, "graph": "known", "backbone": "GraphSAGE", "structure_hidden": (4, 3)},
    {"structure": "GDV", "prune": 0, "graph": "known", "combine": "layer"},
    {"structure": "H2V", "prune": 0, "double_softmax": True},
    {"structure": "H2V", "prune": 4, "structure_depth": 0},
    {"structure": "Deg", "prune": 0, "structure_depth": 0},
    {"structure": "none"},
]
EVERY = pytest.mark.parametrize("options", KINDS, ids=lambda o: "-".join(str(v) for v in o.values()))


def graph(seed: int = 0) -> tuple[Data, list[Tensor]]:
    """Return a small graph and its parts: client 0 has one node, and client 1 no training node."""
    data, parts = block_model(NODES, seed=seed), parts_of(NODES, CLIENTS, seed)
    data.train_mask[parts[1]] = False
    data.train_mask[parts[0]] = True
    return data, parts


def build(options: dict[str, Any], **more: Any) -> StructureMethod:
    return choice(**{"model": MODEL, **SMALL, **options, **more})


def start(options: dict[str, Any], seed: int = 0, **more: Any) -> tuple[StructureMethod, Federation, State]:
    """Return a method before its first round, with weights none of which is zero."""
    data, parts = graph(seed)
    method = build(options, **more)
    fed, state = method.start(Federation.of(data, parts, seed, dtype=torch.float64))
    generator = torch.Generator().manual_seed(1)
    shared = {
        name: w + 0.3 * torch.randn(w.shape, generator=generator, dtype=w.dtype) for name, w in state.shared.items()
    }
    return method, fed, replace(state, shared=shared)


class Reference(nn.Module):
    """FedStruct in plain layers: one weight set, dense matrices, one graph per client."""

    def __init__(self, method: StructureMethod, fed: Federation, state: State) -> None:
        super().__init__()
        source, shared = fed.sources[0], {name: w[0] for name, w in state.shared.items()}
        self.method, self.data = method, source.data
        self.sage = isinstance(method, KnownGraph) and method.backbone == "GraphSAGE"
        self.layer = isinstance(method, KnownGraph) and method.combine == "layer"
        self.graphs = [client_graph(source.data, part) for part in source.parts]
        self.f = Plain(method.model, {n: w for n, w in shared.items() if n.startswith(("layer", "norm"))})
        own = {n.replace(".", "_"): nn.Parameter(w.clone()) for n, w in shared.items() if n[0] in "sc"}
        self.own = nn.ParameterDict(own)
        got = state.more.exchanged
        self.s = None if got is None or got.features is None else got.features[0]
        if got is not None:
            step = dense_operator("row", source.data.edge_index, NODES)
            beta = method.weights_of_powers
            full = sum(b * np.linalg.matrix_power(step, k) for k, b in enumerate(beta))
            self.a = torch.from_numpy(got.matrices[0].toarray() if getattr(method, "prune", 0) else np.asarray(full))

    def embeddings(self) -> Tensor:
        """Return sum_u A-_vu g(s_u) at every node."""
        w, sage = self.own, self.sage
        h = w["structure"] if self.s is None else self.s
        layers = [n for n in w if n.endswith("_weight")]
        if "structure_scale" in w:
            how = (h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-5).sqrt() if sage else F.layer_norm(h, h.shape[1:])
            h = how * w["structure_scale"] + w["structure_shift"]
        for i in range(1, len(layers) + 1):
            if sage and i < len(layers):
                conv = SAGEConv(*w[f"structure{i}_weight"].shape).double()
                value = {"lin_l.weight": w[f"structure{i}_weight"].T, "lin_l.bias": w[f"structure{i}_bias"]}
                value["lin_r.weight"] = w[f"structure{i}_root"].T
                h = torch.func.functional_call(conv, value, (h, self.data.edge_index))
            else:
                h = h @ w[f"structure{i}_weight"] + w[f"structure{i}_bias"]
            h = F.relu(h) if i < len(layers) else h
        return h if sage else self.a @ h

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return f and the structure embeddings, in the order of the graph's nodes."""
        h = torch.zeros(NODES, 3, dtype=torch.float64)
        for g in self.graphs:
            h = h.index_add(0, g.node_id, self.f(g))
        if self.method.structure == "none":
            return h, torch.zeros_like(h)
        z = self.embeddings()
        if self.layer:
            return h @ self.own["combine_features"], z @ self.own["combine_structure"]
        return h, z

    def loss(self) -> Tensor:
        """Return the mean over all training nodes (Eq. 3 and 5)."""
        logits = sum(self.forward())
        logits = logits.softmax(1) if self.method.double_softmax else logits
        return F.cross_entropy(logits[self.data.train_mask], self.data.y[self.data.train_mask])

    def weights(self) -> Weights:
        """Return the weights under the package's names."""
        return {**self.f.slice(), **{n.replace("_", "."): w.detach() for n, w in self.own.items()}}


def in_order(fed: Federation, rows: Tensor) -> Tensor:
    return rows[fed.batch.node_id.argsort()]
