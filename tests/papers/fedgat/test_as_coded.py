"""Compare FedGAT and DistGAT as coded with PyG's layers and PyTorch's Adam on one graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fedgat_plain import CLASSES, FEATURES, NODES, graph
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GATConv

from fedrepro.data.datasets import prepare
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn.models import GAT
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError
from fedrepro.papers.fedgat.as_coded import DistGATAsCoded, FedGATAsCoded

MODEL = GAT(FEATURES, CLASSES, hidden=4, heads=2)
RATES = {"lr": 0.05, "weight_decay": 0.01}


def parts(clients: int) -> list[Tensor]:
    order = torch.from_numpy(np.random.default_rng(1).permutation(NODES))
    return list(order.tensor_split(clients))


def inner_edges(data: Data, clients: int) -> Tensor:
    """Return the edges inside the clients."""
    owner = torch.empty(NODES, dtype=torch.long)
    for client, part in enumerate(parts(clients)):
        owner[part] = client
    return data.edge_index[:, owner[data.edge_index[0]] == owner[data.edge_index[1]]]


def pyg(weights: Weights, layer: int, x: Tensor, edges: Tensor) -> Tensor:
    """Return PyG's GAT layer with one of our layers' weights, which keep their gradients."""
    weight, source, target, bias = (
        weights[f"layer{layer}.{name}"][0] for name in ("weight", "source", "target", "bias")
    )
    conv = GATConv(weight.shape[0], source.shape[1], len(source)).double()
    names = {"att_src": source[None], "att_dst": target[None], "bias": bias, "lin.weight": weight.T}
    return torch.func.functional_call(conv, names, (x, edges))  # type: ignore[no-any-return]


def code_layer(weights: Weights, data: Data, coefficients: np.ndarray) -> Tensor:
    """Return layer 1 of the public code before ELU: powers of free scores, their ratio, and no bias."""
    linked = torch.eye(NODES, dtype=torch.bool)
    linked[data.edge_index[1], data.edge_index[0]] = True
    weight, source, target = (weights[f"layer1.{name}"][0] for name in ("weight", "source", "target"))
    heads = []
    for head, (a2, a1) in enumerate(zip(source, target, strict=True)):
        x = ((data.x @ a1)[:, None] + (data.x @ a2)[None]) / data.x.shape[1]
        score = sum(c * x**n for n, c in enumerate(coefficients)) * linked
        heads.append(score / score.sum(1, keepdim=True) @ data.x @ weight[:, 4 * head : 4 * head + 4])
    return torch.cat(heads, 1)


def trained_by_hand(first: Weights, data: Data, edges: Tensor, coefficients: np.ndarray | None, twice: bool) -> Weights:
    """Return the weights after four steps of PyTorch's Adam on the mean loss over all training nodes of one graph."""
    leaves = {name: w.clone().requires_grad_() for name, w in first.items()}
    optimizer = torch.optim.Adam(list(leaves.values()), **RATES)
    for _ in range(4):
        optimizer.zero_grad()
        given = coefficients is None
        h = pyg(leaves, 1, data.x, edges) if given else code_layer(leaves, data, coefficients)  # type: ignore[arg-type]
        out = pyg(leaves, 2, F.elu(h), edges)
        out = out.softmax(1) if twice else out
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: w.detach() for name, w in leaves.items()}


def furthest(a: Weights, b: Weights) -> float:
    return max(float((a[name] - w).abs().max()) for name, w in b.items())


@pytest.mark.parametrize("clients", [1, 4])
def test_distgat_trains_pygs_gat_with_two_softmaxes(clients: int) -> None:
    """One client trains the central GAT, four train on the edges inside them; one softmax gives other weights."""
    data, method = graph(), DistGATAsCoded(model=MODEL, **RATES)
    fed = Federation.of(data, parts(clients), dtype=torch.float64)
    first, trained = method.start(fed)[1].shared, train(method, fed, 4).state.shared
    edges = inner_edges(data, clients)
    assert furthest(trained, trained_by_hand(first, data, edges, None, twice=True)) < 1e-8
    assert furthest(trained, trained_by_hand(first, data, edges, None, twice=False)) > 1e-2


def test_fedgat_trains_the_public_codes_layer() -> None:
    """Four clients train the code's first layer on the whole graph; it has no bias, and W starts on (-1, 1)."""
    data, method = graph(2), FedGATAsCoded(model=MODEL, degree=6, **RATES)
    fed = Federation.of(data, parts(4), seed=3, dtype=torch.float64)
    first, trained = method.start(fed)[1].shared, train(method, fed, 4).state.shared
    coefficients = np.polynomial.chebyshev.cheb2poly(method.series) / method.interval ** np.arange(7)
    expected = trained_by_hand(first, data, data.edge_index, coefficients, twice=True)
    assert furthest(trained, expected) < 1e-8
    assert "layer1.bias" not in trained and trained["layer2.bias"].abs().max() > 0
    drawn = first["layer1.weight"]
    assert 0.9 < drawn.abs().max() <= 1 and abs(float(drawn.mean())) < 0.2 and 0.4 < drawn.std() < 0.8


@pytest.mark.parametrize("steps", ["unit-norm", "centred-norm"])
def test_sparse_features_train_what_dense_ones_do(steps: str) -> None:
    """Row minima in a further column make centred features sparse, and change no weight."""
    data = graph(5)
    data.x = (
        data.x
        * (torch.rand(data.x.shape, generator=torch.Generator().manual_seed(0)) < 0.15)
        @ torch.eye(FEATURES, 40).double()
    )
    data.x = torch.cat([data.x.abs(), torch.ones(NODES, 1)], 1).to_sparse_csr()
    data = prepare(data, steps)
    model = GAT(41, CLASSES, hidden=4, heads=2)
    method = FedGATAsCoded(model=model, degree=6, **RATES)
    fed = Federation.of(data, parts(4), seed=3, dtype=torch.float64)
    begun, state = method.start(fed)
    assert isinstance(begun.x, Sparse) and begun.features == 42
    data.x = data.x.to_dense().double()
    coefficients = np.polynomial.chebyshev.cheb2poly(method.series) / method.interval ** np.arange(7)
    expected = trained_by_hand(state.shared, data, data.edge_index, coefficients, twice=True)
    assert furthest(train(method, fed, 4).state.shared, expected) < 1e-6


def test_the_first_layer_can_start_as_a_gats() -> None:
    """With the option "gat" the bias is trained and W is Glorot's; any other word is refused."""
    fed = Federation.of(graph(2), parts(4), seed=3, dtype=torch.float64)
    method = FedGATAsCoded(model=MODEL, first_layer="gat", **RATES)
    assert torch.equal(method.start(fed)[1].shared["layer1.weight"], MODEL.init([3], torch.float64)["layer1.weight"])
    assert train(method, fed, 2).state.shared["layer1.bias"].abs().max() > 1e-3
    with pytest.raises(ArgumentError, match="first_layer"):
        FedGATAsCoded(model=MODEL, first_layer="glorot")


def test_fedgat_as_coded_does_not_see_the_partition() -> None:
    """Since gradients are averaged and no edge is missing, 1 and 8 clients train the same weights."""
    feds = [Federation.of(graph(4), parts(k), dtype=torch.float64) for k in (1, 8)]
    histories = [train(FedGATAsCoded(model=MODEL, **RATES), fed, 5) for fed in feds]
    assert furthest(histories[0].state.shared, histories[1].state.shared) < 1e-8


def test_centred_features_are_the_public_codes() -> None:
    """A row less its mean has mean zero and norm 1; a row of zeros stays zero."""
    x = torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [3.0, 1.0, 0.0, 0.0]])
    data = Data(x=x, y=torch.zeros(3, dtype=torch.long), edge_index=torch.zeros(2, 0, dtype=torch.long))
    centred = prepare(data, "centred-norm").x
    expected = x - x.mean(1, keepdim=True)
    assert torch.allclose(centred[[0, 2]], expected[[0, 2]] / expected[[0, 2]].norm(dim=1, keepdim=True))
    assert centred[1].abs().max() == 0
