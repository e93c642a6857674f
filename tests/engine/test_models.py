"""Models of stacked layers, against plain PyG networks on each client's graph with that client's weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import F64, SIZES, with_graphs
from graphs import Plain, gap, largest_difference
from torch_geometric.nn import SAGEConv

from fedrepro.engine.nn import layers, models
from fedrepro.errors import ArgumentError

MODELS: dict[str, models.Model] = {
    "GCN": models.GCN(**SIZES),
    "GCN of three layers": models.GCN(**SIZES, layers=3),
    "GAT": models.GAT(**SIZES, heads=3, output_heads=2),
    "GraphSAGE": models.GraphSAGE(**SIZES),
    "MLP": models.MLP(**SIZES),
    "APPNP": models.APPNP(**SIZES, steps=4),
    "DGCN": models.DGCN(**SIZES, depth=3),
    "GCNHead": models.GCNHead(**SIZES),
    "SAGEHead": models.SAGEHead(**SIZES, stack=(6, 4), input_norm=True),
    "bare SAGEHead": models.SAGEHead(**SIZES, bare=True),
    "MLP of two widths": models.MLP(**SIZES, stack=(6, 5)),
    "normalized DGCN": models.DGCN(**SIZES, input_norm=True),
    "normalized GraphSAGE": models.GraphSAGE(**SIZES, input_norm=True),
}


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed with self-loops"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_model_is_the_plain_network_on_every_client(model: models.Model, sparse: bool, directed: bool) -> None:
    """Logits, losses and gradients equal those of PyG networks with each client's weights, to 1e-10."""
    fed, graphs = with_graphs(sparse=sparse, directed=directed)
    weights = {name: w.requires_grad_() for name, w in model.init([3, 4, 5, 6], F64).items()}
    for w in weights.values():
        w.data += 0.1 * torch.randn(w.shape, dtype=F64)  # biases start at zero
    logits = model(weights, fed)
    loss = layers.cross_entropy(fed, logits)
    gradients = dict(zip(weights, torch.autograd.grad(loss.sum(), list(weights.values())), strict=True))
    start = 0
    for client, graph in enumerate(graphs):
        plain = Plain(model, {name: w[client].detach() for name, w in weights.items()})
        expected = plain(graph)
        stop = start + len(graph.x)
        assert gap(logits[start:stop], expected) < 1e-10
        start = stop
        gradient = {name: g[client] for name, g in gradients.items()}
        if not bool(graph.train_mask.any()):
            assert loss[client].item() == 0 and not any(bool(g.any()) for g in gradient.values())
            continue
        F.cross_entropy(expected[graph.train_mask], graph.y[graph.train_mask]).backward()
        assert largest_difference(gradient, plain.slice(gradient=True)) < 1e-10


def test_initial_weights_are_glorot_and_a_function_of_the_seed() -> None:
    """Matrices fill +-sqrt(6 / (in + out)), biases are 0, a seed gives the same slice in any company, two differ."""
    model = models.GCN(features=300, classes=5, hidden=100)
    weights = model.init([4, 9], F64)
    w = weights["layer1.weight"]
    bound = np.sqrt(6 / 400)
    assert 0.999 * bound < float(w.abs().max()) <= bound
    assert abs(float(w.var()) / (bound**2 / 3) - 1) < 0.02
    assert not bool(weights["layer1.bias"].any())
    assert all(torch.equal(weights[name][1], alone[0]) for name, alone in model.init([9], F64).items())
    assert not torch.equal(w[0], w[1])
    assert abs(np.corrcoef(w[0, :100, :5].flatten(), weights["layer2.weight"][0].flatten())[0, 1]) < 0.2


def test_initial_weights_as_in_pytorch() -> None:
    """Matrices and biases fill +-1/sqrt(fan in), as `torch.nn.Linear` and PyG's `SAGEConv` do."""
    weights = models.SAGEHead(features=100, classes=40, stack=(64, 64), initial="torch").init([4], F64)
    plain = SAGEConv(100, 64)
    for name, other in (("weight", plain.lin_l.weight), ("bias", plain.lin_l.bias), ("root", plain.lin_r.weight)):
        mine = weights[f"layer1.{name}"]
        assert 0.9 * 0.1 < float(mine.abs().max()) <= 0.1 and float(other.detach().abs().max()) <= 0.1 + 1e-6
        assert abs(float(mine.var()) * 300 - 1) < (0.4 if name == "bias" else 0.05)
    assert 0.9 / 8 < float(weights["layer3.weight"].abs().max()) <= 1 / 8
    assert not torch.equal(weights["layer1.weight"], weights["layer1.root"])


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("GNC", {}, "model must be one of .*Got 'GNC'. Did you mean 'GCN'"),
        ("GCN", {"hidden": 0}, "hidden must be at least 1"),
        ("GCN", {"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ("GCN", {"input_dropout": -0.1}, r"input_dropout must be in \[0, 1\) or -1"),
        ("GAT", {"layers": 3}, "layers must be 2"),
        ("GAT", {"heads": 0}, "heads must be at least 1"),
        ("MLP", {"initial": "zero"}, "initial must be one of 'glorot', 'torch'"),
        ("GAT", {"input_norm": True}, "input_norm must be False"),
        ("MLP", {"stack": (4, 0)}, "stack must be widths of at least 1"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(name: str, sizes: dict[str, Any], message: str) -> None:
    """An unknown name or a bad size is an `ArgumentError` that says what is allowed."""
    with pytest.raises(ArgumentError, match=message):
        models.model(name, features=4, classes=2, **sizes)
