"""Stacked layers, their loss and their dropout, against plain PyG layers on each client's graph with its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import F64, SIZES, federation, with_graphs
from graphs import block_model, client_graph, dense_operator, gap, unequal_parts
from torch import Tensor
from torch.func import functional_call
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GATConv, GCNConv, SAGEConv

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import layers, models
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import ArgumentError

Weights = dict[str, Tensor]
WIDTH_IN, WIDTH_OUT, HEADS = SIZES["features"], 5, 2


def draw(shapes: dict[str, tuple[int, ...]], slices: int, seed: int = 0) -> Weights:
    made = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn((slices, *shape), generator=made, dtype=F64).requires_grad_()
        for name, shape in shapes.items()
    }


class Case(NamedTuple):
    """A stacked layer, and the plain one for a client's graph and slice."""

    shapes: dict[str, tuple[int, ...]]
    stacked: Callable[[Federation, Any, Weights], Tensor]
    plain: Callable[[Tensor, Tensor, Weights], Tensor]


def plain_gcn(x: Tensor, edges: Tensor, w: Weights) -> Tensor:
    parameters = {"lin.weight": w["weight"].T, "bias": w["bias"]}
    return functional_call(GCNConv(WIDTH_IN, WIDTH_OUT), parameters, (x, edges))


def plain_gat(x: Tensor, edges: Tensor, w: Weights) -> Tensor:
    parameters = {"lin.weight": w["weight"].T, "att_src": w["source"][None], "att_dst": w["target"][None]}
    return functional_call(GATConv(WIDTH_IN, WIDTH_OUT, HEADS, bias=False), parameters, (x, edges))


def plain_sage(x: Tensor, edges: Tensor, w: Weights) -> Tensor:
    parameters = {"lin_l.weight": w["weight"].T, "lin_l.bias": w["bias"], "lin_r.weight": w["root"].T}
    return functional_call(SAGEConv(WIDTH_IN, WIDTH_OUT), parameters, (x, edges))


def stacked_gat(fed: Federation, x: Tensor, w: Weights) -> Tensor:
    return layers.gat(fed, x, fed.attention_edges(0), w["weight"], w["source"], w["target"]).flatten(1)


def row(edges: Tensor, nodes: int) -> Tensor:
    return torch.from_numpy(dense_operator("row", edges, nodes))


def plain_series(x: Tensor, edges: Tensor, w: Weights) -> Tensor:
    p = row(edges, len(x))
    return 0.5 * x - p @ p @ x + 0.25 * (p @ p @ p @ x)


AFFINE: dict[str, tuple[int, ...]] = {"weight": (WIDTH_IN, WIDTH_OUT), "bias": (WIDTH_OUT,)}
VECTOR = (HEADS, WIDTH_OUT)
CASES = {
    "linear": Case(
        AFFINE,
        lambda fed, x, w: layers.linear(fed, x, w["weight"], w["bias"]),
        lambda x, edges, w: F.linear(x, w["weight"].T, w["bias"]),
    ),
    "linear without bias": Case(
        {"weight": AFFINE["weight"]},
        lambda fed, x, w: layers.linear(fed, x, w["weight"]),
        lambda x, edges, w: x @ w["weight"],
    ),
    "GCN": Case(AFFINE, lambda fed, x, w: layers.gcn(fed, x, w["weight"], w["bias"]), plain_gcn),
    "GCN by rows": Case(
        AFFINE,
        lambda fed, x, w: layers.gcn(fed, x, w["weight"], w["bias"], kind="row"),
        lambda x, edges, w: row(edges, len(x)) @ x @ w["weight"] + w["bias"],
    ),
    "GraphSAGE": Case(
        {**AFFINE, "root": AFFINE["weight"]},
        lambda fed, x, w: layers.sage(fed, x, w["weight"], w["root"], w["bias"]),
        plain_sage,
    ),
    "GAT": Case(
        {"weight": (WIDTH_IN, HEADS * WIDTH_OUT), "source": VECTOR, "target": VECTOR},
        stacked_gat,
        plain_gat,
    ),
}
DENSE_ONLY = {
    "APPNP": Case({}, lambda fed, x, w: layers.appnp(fed, x, 0.2, 6), lambda x, edges, w: APPNP(6, 0.2)(x, edges)),
    "decoupled": Case({}, lambda fed, x, w: layers.decoupled(fed, x, [0.5, 0.0, -1.0, 0.25]), plain_series),
    "LayerNorm": Case(
        {"scale": (WIDTH_IN,), "shift": (WIDTH_IN,)},
        lambda fed, x, w: layers.layer_norm(fed, x, w["scale"], w["shift"]),
        lambda x, edges, w: F.layer_norm(x, (WIDTH_IN,), w["scale"], w["shift"]),
    ),
}


def check(case: Case, fed: Federation, graphs: list[Data]) -> None:
    """Values and gradients, of weights and of dense inputs, to 1e-10."""
    weights = draw(case.shapes, len(graphs))
    dense = not isinstance(fed.x, Sparse)
    x = fed.x.clone().requires_grad_() if dense else fed.input
    out = case.stacked(fed, x, weights)
    towards = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=F64)
    wanted = [*weights.values(), *([x] if dense else [])]
    stacked_gradients = torch.autograd.grad(out, wanted, towards)
    start = 0
    for client, graph in enumerate(graphs):
        stop = start + len(graph.x)
        client_weights = {name: w[client].detach().requires_grad_() for name, w in weights.items()}
        input_ = graph.x.clone().requires_grad_()
        expected = case.plain(input_, graph.edge_index, client_weights)
        assert gap(out[start:stop], expected) < 1e-10
        gradients = torch.autograd.grad(
            expected, [*client_weights.values(), input_], towards[start:stop], allow_unused=True
        )
        for stacked, single in zip(stacked_gradients, gradients[: len(client_weights)], strict=False):
            assert single is not None
            assert gap(stacked[client], single) < 1e-10
        if dense:
            assert gap(stacked_gradients[-1][start:stop], gradients[-1]) < 1e-10
        start = stop
    assert start == fed.nodes


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed with self-loops"])
@pytest.mark.parametrize("name", [*CASES, *DENSE_ONLY])
def test_a_stacked_layer_is_the_plain_one_on_every_client(name: str, directed: bool) -> None:
    """On dense features, values and gradients equal PyG's layer on each client's graph with its slice."""
    check({**CASES, **DENSE_ONLY}[name], *with_graphs(directed=directed))


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed with self-loops"])
@pytest.mark.parametrize("name", CASES)
def test_sparse_features_give_the_plain_layer_too(name: str, directed: bool) -> None:
    """On sparse features the same holds for values and gradients of the weights."""
    check(CASES[name], *with_graphs(directed=directed, sparse=True))


@pytest.mark.parametrize("name", [*CASES, *DENSE_ONLY])
def test_layers_take_a_graph_without_edges_and_a_single_client(name: str) -> None:
    """One client whose nodes are all isolated is handled as PyG does."""
    data = block_model(6, features=WIDTH_IN, isolated=6)
    assert data.edge_index.numel() == 0
    parts = [torch.arange(6)]
    check({**CASES, **DENSE_ONLY}[name], Federation.of(data, parts, dtype=F64), [client_graph(data, parts[0])])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_weights_stored_once_equal_the_expanded_ones(name: str, sparse: bool) -> None:
    """With one slice per run, outputs equal those of equal slices, and the gradient is the sum over the run's."""
    fed = Federation.stack([federation(seed, sparse=sparse) for seed in (0, 1)])
    once = draw(CASES[name].shapes, 2)
    expanded = {key: w[fed.run].detach().requires_grad_() for key, w in once.items()}
    shared = fed.shared()
    a, b = CASES[name].stacked(shared, shared.input, once), CASES[name].stacked(fed, fed.input, expanded)
    assert gap(a, b) < 1e-12
    towards = torch.randn_like(a)
    for one, per_client in zip(
        torch.autograd.grad(a, [*once.values()], towards), torch.autograd.grad(b, [*expanded.values()], towards)
    ):
        summed = torch.zeros_like(one).index_add_(0, fed.run, per_client)
        assert gap(one, summed) < 1e-10


def test_a_weight_with_another_number_of_slices_is_refused() -> None:
    """Neither too few nor too many slices are taken."""
    fed = federation()
    for slices in (1, 3, 5):
        with pytest.raises(ArgumentError, match="weight must be of 4 slices"):
            layers.linear(fed, fed.input, torch.ones(slices, WIDTH_IN, 2, dtype=F64))


# -- loss ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", ["train", "val", "test"])
def test_cross_entropy_is_each_clients_own_mean(mask: str) -> None:
    """The loss vector has PyTorch's mean over a client's nodes of the split, 0 where it has none."""
    fed, graphs = with_graphs()
    logits = torch.randn(fed.nodes, 3, dtype=F64)
    losses = layers.cross_entropy(fed, logits, mask)
    start, empty = 0, 0
    for client, graph in enumerate(graphs):
        mine = logits[start : start + len(graph.x)][graph[f"{mask}_mask"]]
        y = graph.y[graph[f"{mask}_mask"]]
        expected = F.cross_entropy(mine, y) if len(y) else torch.zeros((), dtype=F64)
        empty += not len(y)
        assert abs(float(losses[client] - expected)) < 1e-12
        start += len(graph.x)
    assert mask != "train" or empty == 1


def test_cross_entropy_of_several_labels_is_the_mean_binary_one() -> None:
    """Targets `[nodes, labels]` take the mean binary cross-entropy over a client's nodes and labels."""
    data = block_model(20)
    data.y = (torch.rand(20, 3, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    parts = unequal_parts(20, 3)
    fed = Federation.of(data, parts, dtype=F64)
    logits = torch.randn(20, 3, dtype=F64)
    losses, start = layers.cross_entropy(fed, logits, "test"), 0
    for client, part in enumerate(part.sort().values for part in parts):
        chosen = data.test_mask[part]
        expected = F.binary_cross_entropy_with_logits(
            logits[start : start + len(part)][chosen], data.y[part][chosen].double()
        )
        assert not bool(chosen.any()) or abs(float(losses[client] - expected)) < 1e-12
        start += len(part)


# -- dropout ---------------------------------------------------------------------------------------


def ones(fed: Federation, columns: int = 400) -> Tensor:
    return torch.ones(fed.nodes, columns, dtype=F64)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_dropout_keeps_the_mean(p: float) -> None:
    """Entries are 0 with probability p, else divided by 1 - p, at every client."""
    fed = federation()
    out = layers.dropout(fed.at(0, 0), ones(fed), p, "layer1")
    assert torch.allclose(out.unique(), torch.tensor([0, 1 / (1 - p)], dtype=F64))
    for client in range(fed.clients):
        mine = out[fed.batch.batch == client]
        assert abs(float(mine.mean()) - 1) < 6 * np.sqrt(p / (1 - p) / mine.numel())


def test_dropout_is_off_without_a_clock_or_probability() -> None:
    """In evaluation, and at p = 0, the input itself comes back."""
    fed = federation()
    x = ones(fed)
    assert layers.dropout(fed, x, 0.5, "layer1") is x
    assert layers.dropout(fed.at(0, 0), x, 0.0, "layer1") is x


@pytest.mark.parametrize("name", ["MLP", "GCN", "GCNHead", "GraphSAGE", "GAT"])
def test_input_features_can_have_a_dropout_of_their_own(name: str) -> None:
    """Without dropout elsewhere a model is that in evaluation on the features that are left; with the common
    probability it is the model without the option.
    """
    fed = federation()
    now, sizes = fed.at(1, 0), {**SIZES, "classes": WIDTH_OUT}
    alone = models.model(name, **sizes, input_dropout=0.5)
    weights = alone.init([0] * fed.slices, F64)
    left = fed.with_features(layers.dropout(now, fed.x, 0.5, "layer1"))
    assert gap(alone(weights, now), alone(weights, left)) < 1e-12 < gap(alone(weights, now), alone(weights, fed))
    both, same = (models.model(name, **sizes, dropout=0.5, input_dropout=p) for p in (-1.0, 0.5))
    assert torch.equal(both(weights, now), same(weights, now))
    hidden = models.model(name, **sizes, dropout=0.5, input_dropout=0.0)
    assert gap(hidden(weights, now), both(weights, now)) > 1e-3 < gap(hidden(weights, now), alone(weights, fed))


def test_dropout_drops_the_same_entries_of_sparse_and_dense_features() -> None:
    """The mask depends on node and column, not on how features are stored."""
    fed = federation(sparse=True)
    assert isinstance(fed.x, Sparse) and isinstance(fed.input, Sparse)
    now = fed.at(2, 1)
    dense = layers.dropout(now, fed.x.dense(), 0.6, "layer1")
    assert 0 < int((dense != 0).sum()) < len(fed.x.value)
    assert torch.equal(layers.dropout(now, fed.x, 0.6, "layer1").dense(), dense)
    in_blocks = layers.dropout(now, fed.input, 0.6, "layer1").dense().view(fed.nodes, fed.slices, -1)
    assert torch.equal(in_blocks.sum(1), dense)


def test_dropout_masks_differ_by_round_step_layer_seed_client_and_node() -> None:
    """Changing any one part of the key gives an unrelated mask."""
    fed = federation()
    other = Federation.of(fed.sources[0].data, fed.sources[0].parts, seed=1, dtype=F64)
    turned = Federation.of(fed.sources[0].data, fed.sources[0].parts[::-1], seed=0, dtype=F64)
    order = torch.argsort(turned.batch.node_id)[torch.argsort(torch.argsort(fed.batch.node_id))]

    def mask(on: Federation, round: int = 0, step: int = 0, layer: str = "layer1") -> Tensor:
        return layers.dropout(on.at(round, step), ones(on, 50), 0.5, layer) != 0

    first = mask(fed)
    shifted = torch.cat([first[1:], first[:1]])
    others = [mask(fed, 1), mask(fed, 0, 1), mask(fed, 0, 0, "layer2"), mask(other), mask(turned)[order], shifted]
    for changed in others:
        assert abs(float((first == changed).double().mean()) - 0.5) < 0.07
    assert torch.equal(first, mask(fed))


def test_dropout_does_not_depend_on_who_stands_beside() -> None:
    """A node's mask is the same in the whole federation, in another stack, among selected clients and focused."""
    fed = federation()
    stack = Federation.stack([federation(5), fed])
    chosen, focused = fed.select([1, 3]), fed.focus(1)

    def masks(on: Federation) -> dict[tuple[int, int], list[float]]:
        out = layers.dropout(on.at(3, 2), ones(on, 20), 0.6, "layer2")
        key = zip(on.run[on.batch.batch].tolist(), on.number[on.batch.batch].tolist(), on.batch.node_id.tolist())
        return {k[1:]: row.tolist() for k, row in zip(key, out, strict=True) if k[0] == on.runs - 1}

    whole = masks(fed)
    assert len({tuple(row) for row in whole.values()}) > 30
    for part in (stack, chosen, focused, fed.shared()):
        found = masks(part)
        assert found and all(whole[key] == row for key, row in found.items())


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_a_dropout_that_is_no_probability_is_refused(p: float) -> None:
    """p must be in [0, 1)."""
    fed = federation()
    with pytest.raises(ArgumentError, match="dropout"):
        layers.dropout(fed, ones(fed), p, "layer1")
