"""Compare FedGAT in its edge form with Eq. 7 in NumPy, PyG's exact layers, brute force and the plain weighted sum."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fedgat_plain import (
    CLASSES,
    FEATURES,
    NODES,
    conv,
    exact,
    federate,
    free_vectors,
    gat,
    graph,
    logits,
    neighbours,
    random_weights,
    scores,
    split,
)
from numpy.polynomial.chebyshev import chebval
from numpy.polynomial.legendre import legval, legvander
from scipy.integrate import quad
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import kernels, layers
from fedrepro.engine.nn.sparse import Edges
from fedrepro.engine.training import train
from fedrepro.papers.fedgat.method import BLOCK, DistGAT, FedGAT, attend
from fedrepro.papers.fedgat.theory.identities import FirstLayer

# -- the layer itself -------------------------------------------------------------------------------------------------


def literal(weights: Weights, data: Data, method: FedGAT) -> np.ndarray:
    """Return Eq. 7 and 8 as printed, with powers of x_ij, E^(n) and F^(n) of every node, and W after the sums."""
    powers = range(method.degree + 1)
    q = np.polynomial.chebyshev.cheb2poly(method.series) / method.interval ** np.arange(method.degree + 1)
    x, rows = data.x.numpy(), []
    for head, w in enumerate(weights["layer1.weight"][0].numpy().reshape(FEATURES, -1, 4).transpose(1, 2, 0)):
        at, out = scores(weights, data, head), []
        for x_i, near in zip(at, neighbours(data)):
            E = [sum(x_ij**n * x[j] for x_ij, j in zip(x_i, near)) for n in powers]
            F = [sum(x_ij**n for x_ij in x_i) for n in powers]
            out.append(w @ sum(q[n] * E[n] for n in powers) / sum(q[n] * F[n] for n in powers))
        rows.append(out)
    return np.concatenate(rows, axis=1)


@pytest.mark.parametrize("interval", [1.0, 4.0])
def test_series_is_that_of_the_score(interval: float) -> None:
    """The coefficients equal the integrals behind Eq. 22 for exp(LeakyReLU(x)), by quadrature split at the kink."""
    series = FedGAT(model=gat(), degree=9, interval=interval).series
    for n in range(10):

        def integrand(theta: float, n: int = n) -> float:
            x = interval * math.cos(theta)
            return math.exp(max(x, 0.2 * x)) * math.cos(n * theta)

        halves = quad(integrand, 0, math.pi / 2)[0] + quad(integrand, math.pi / 2, math.pi)[0]
        assert abs(series[n] - (2 if n else 1) / math.pi * halves) < 1e-7


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_layer_is_equation_7(sparse: bool) -> None:
    """The first layer equals W sum_n q_n E^(n) / sum_n q_n F^(n), with q in powers of x_ij."""
    data, model = graph(sparse=sparse), FirstLayer(FEATURES, CLASSES, 4, heads=2)
    weights = random_weights(model)
    method = FedGAT(model=model, degree=6, interval=3.0)
    heads = logits(method, federate(data, 3), weights)
    assert np.abs(heads.numpy() - literal(weights, data, method)).max() < 1e-11


def test_second_layer_is_exact() -> None:
    """At 5 clients the logits equal PyG's exact second layer on top of Eq. 7."""
    data, model = graph(1), gat()
    weights = random_weights(model)
    method = FedGAT(model=model, degree=6, interval=3.0)
    outputs = logits(method, federate(data, 5), weights)
    first = torch.from_numpy(literal(weights, data, method)) + weights["layer1.bias"]
    expected = conv(weights, 2, concat=False)(F.elu(first), data.edge_index).detach()
    assert (outputs - expected).abs().max() < 1e-11
    assert (outputs - exact(weights, data)).abs().max() > 1e-4  # control: the polynomial is not the score


@pytest.mark.parametrize("score", ["paper", "code"])
def test_own_nodes_do_not_see_the_number_of_clients(score: str) -> None:
    """With the same weights, 2 and 10 clients predict what one client does."""
    data = graph(2)
    method = FedGAT(model=gat(), score=score)
    weights = random_weights(method.model)
    if score == "code":
        weights = free_vectors(weights, 1.0)
    one = logits(method, federate(data, 1), weights)
    for clients in (2, 10):
        assert (logits(method, federate(data, clients), weights) - one).abs().max() < 1e-10
    dropped = logits(DistGAT(model=gat()), federate(data, 10), random_weights(method.model))
    assert (dropped - one).abs().max() > 1e-2  # control: without the exchange they do


def test_clients_hold_their_two_hop_balls() -> None:
    """After the exchange a client holds the nodes up to two hops away, and edges arriving up to one hop away."""
    data = graph(3)
    fed, _ = FedGAT(model=gat()).start(federate(data, 5))
    near = neighbours(data)
    for client, part in enumerate(fed.sources[0].parts):
        inner = set(part.tolist())
        one = {j for i in inner for j in near[i]} | inner
        two = {j for i in one for j in near[i]} | one
        at_client = fed.batch.batch == client
        ids, ring = fed.batch.node_id[at_client].tolist(), fed.batch.ring[at_client].tolist()
        assert dict(zip(ids, ring)) == {v: 0 if v in inner else 1 if v in one else 2 for v in two}
        arriving = fed.batch.edge_index[:, at_client[fed.batch.edge_index[1]]]
        held = {tuple(edge) for edge in fed.batch.node_id[arriving].T.tolist()}
        assert held == {(j, i) for i in one for j in near[i] if j != i}


# -- what it reports --------------------------------------------------------------------------------------------------


def test_facts_are_of_scores_and_of_their_polynomial() -> None:
    """The facts of a run count every edge at which a client evaluates its polynomial, edges of the halo included: the
    largest score, the share outside the interval, and the share of negative values.
    """
    data, model = graph(8), gat()
    method = FedGAT(model=model, interval=0.7)
    weights = random_weights(model)
    fed = Federation.stack([federate(data, 3), federate(graph(9), 2, seed=1)])
    fed, state = method.start(fed)
    both = {name: torch.cat([w, 2 * w]) for name, w in weights.items()}
    reported = method.facts(fed, replace(state, shared=both))
    for run, scale, graph_of_run in ((0, 1.0, data), (1, 2.0, graph(9))):
        near = neighbours(graph_of_run)
        scaled = {name: scale * w for name, w in weights.items()}
        x = np.stack([np.concatenate(scores(scaled, graph_of_run, head)) for head in range(2)])
        target = np.repeat(np.arange(NODES), [len(n) for n in near])
        seen = [np.isin(target, [j for i in part.tolist() for j in near[i]]) for part in fed.sources[run].parts]
        every = np.abs(np.concatenate([x[:, edges] for edges in seen], axis=1))
        assert abs(reported[run]["largest_score"] - every.max()) < 1e-12
        assert abs(reported[run]["outside"] - (every > 0.7).mean()) < 1e-12
        assert 0.05 < reported[run]["outside"] < 0.95
        value = chebval(np.concatenate([x[:, edges] for edges in seen], axis=1) / 0.7, method.series)
        assert abs(reported[run]["negative"] - (value < 0).mean()) < 1e-12
        assert reported[run]["negative"] > 0.01 and abs(reported[run]["negative"] - 0.5) > 0.05


def test_traffic_before_training() -> None:
    """All features go up; M1(s), M2(s), K1 and K2 of each node whose layer 1 a client computes go down."""
    data = graph(10)
    fed = federate(data, 4)
    FedGAT(model=gat()).start(fed)
    near, down = neighbours(data), 0
    for part in fed.sources[0].parts:
        for i in {j for v in part.tolist() for j in near[v]}:
            g = len(near[i])
            down += 2 * FEATURES * (2 * g) * (2 * g) + 2 * g + (2 * g) * FEATURES
    assert fed.traffic.summary()["before"] == {"up.features": NODES * FEATURES, "down.matrices": down}


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.float64, 8)])
def test_bytes_are_scalars_times_their_size(dtype: torch.dtype, size: int) -> None:
    """Before training as in training, a scalar takes the bytes of the federation's type."""
    fed = Federation.of(graph(10), split(NODES, 4), dtype=dtype)
    _, fed, _ = train(FedGAT(model=gat()), fed, 2)
    summary = fed.traffic.summary()
    assert summary["bytes"] == {stage: size * sum(summary[stage].values()) for stage in ("before", "training")}


# -- the public code's score ------------------------------------------------------------------------------------------


def code_attention(source: np.ndarray, target: np.ndarray, data: Data) -> list[np.ndarray]:
    """Return the attention of each node over its neighbours as the public code computes it, for one head.

    A smooth LeakyReLU is fitted by degree 16 on 500 equidistant points of [-5, 5]. Scores come from free vectors over
    the input features, divided by their number. There is no exponential. The polynomial is in the Legendre basis.
    """
    grid = np.linspace(-5, 5, 500)
    smooth = 0.2 * grid + 0.8 * 0.25 * np.log(1 + np.exp(4 * grid))
    fit = np.linalg.lstsq(legvander(grid / 5, 16), smooth, rcond=None)[0]
    x, coefficients = data.x.numpy(), []
    for i, near in enumerate(neighbours(data)):
        value = legval((x[near] @ source + x[i] @ target) / x.shape[1] / 5, fit)
        coefficients.append(value / value.sum())
    return coefficients


def test_code_score_is_the_public_codes() -> None:
    """The first layer mixes W h by the public code's weights."""
    data, model = graph(11), FirstLayer(FEATURES, CLASSES, 4, heads=2)
    weights = free_vectors(random_weights(model), 2.0)
    heads = logits(FedGAT(model=model, score="code", interval=5.0), federate(data, 3), weights)
    wh = data.x.numpy() @ weights["layer1.weight"][0].numpy()
    for head in range(2):
        source, target = (weights[f"layer1.{name}"][0, head].numpy() for name in ("source", "target"))
        alpha = code_attention(source, target, data)
        columns = slice(4 * head, 4 * head + 4)
        expected = np.stack([a @ wh[near, columns] for a, near in zip(alpha, neighbours(data))])
        assert np.abs(heads[:, columns].numpy() - expected).max() < 1e-10
        assert max(np.ptp(a) for a in alpha) > 0.1  # far from uniform: the comparison says something


def test_code_score_starts_as_plain_averaging() -> None:
    """At initialization the public code's attention is within 5% of uniform on unit-norm features.

    The weights are read from the first layer, whose W is the identity on a small block of features that name the node.
    """
    data = graph(12)
    bag = (np.random.default_rng(0).random((NODES, 360)) < 0.05).astype(float)
    bag /= np.linalg.norm(bag, axis=1, keepdims=True)
    data.x = torch.from_numpy(np.concatenate([bag, 1e-6 * np.eye(NODES)], axis=1))
    names = torch.zeros(1, 400, NODES, dtype=torch.float64)
    names[0, 360:] = 1e6 * torch.eye(NODES)
    method = FedGAT(model=FirstLayer(400, CLASSES, NODES, heads=1), score="code", interval=5.0)
    _, state = method.start(federate(data, 3))
    vectors = {name: state.shared[name] for name in ("layer1.source", "layer1.target")}
    assert all(v.shape == (1, 1, 400) and 0.9 < v.abs().max() <= 1 and abs(v.mean()) < 0.1 for v in vectors.values())
    edge = np.zeros((NODES, NODES), dtype=bool)
    for i, near in enumerate(neighbours(data)):
        edge[i, near] = True
    for scale, low, high in ((1, 1e-4, 0.05), (400, 0.2, np.inf)):  # control: not divided by the features' number
        scaled = {name: scale * v for name, v in vectors.items()}
        alpha = logits(method, federate(data, 3), {**state.shared, **scaled, "layer1.weight": names}).numpy()
        source, target = (v[0, 0].numpy() for v in scaled.values())
        expected = code_attention(source, target, data)
        assert max(np.abs(row[near] - a).max() for row, near, a in zip(alpha, edge, expected)) < 1e-10
        assert low < np.abs(alpha * edge.sum(1, keepdims=True) - 1)[edge].max() < high


def test_code_score_trains() -> None:
    """The free vectors take part in training and in averaging like every other weight."""
    method = FedGAT(model=gat(), score="code", interval=5.0)
    fed = federate(graph(13), 3)
    _, before = method.start(fed)
    _, _, after = train(method, fed, 3)
    assert after.shared["layer1.source"].shape == (1, 2, FEATURES)
    assert all((after.shared[name] - before.shared[name]).abs().max() > 1e-4 for name in before.shared)


@pytest.mark.parametrize("score", ["paper", "code"])
def test_a_client_without_scored_nodes_trains_in_a_chunk_of_its_own(score: str) -> None:
    """Its part of the scored graph has neither nodes nor edges; all weights are those of one chunk."""
    data = graph(13)
    unscored = split(NODES, 3)[1]
    data.val_mask[unscored] = data.test_mask[unscored] = False
    method = FedGAT(model=gat(), score=score, interval=5.0)
    alone, together = (train(method, federate(data, 3), 3, chunk=size).state.shared for size in (1, None))
    assert all((alone[name] - w).abs().max() < 1e-10 for name, w in together.items())


# -- the weighted sum of a layer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("heads", "width"), [(8, 8), (3, 5), (2, 64), (1, 1)])
def test_fused_messages_are_those_of_the_layer(heads: int, width: int, dtype: torch.dtype) -> None:
    """Values and both gradients are those of `layers.attend` to the last bit, also where no edge arrives or leaves."""
    generator = torch.Generator().manual_seed(heads)
    nodes, count = 301, BLOCK * 4 + 7
    source = torch.randint(3, nodes, (count,), generator=generator)
    edges = Edges(source, torch.randint(0, nodes - 3, (count,), generator=generator), nodes)
    score = torch.rand(count, heads, generator=generator, dtype=dtype)
    h = torch.randn(nodes, heads, width, generator=generator, dtype=dtype)
    grad = torch.randn(nodes, heads, width, generator=generator, dtype=dtype)
    assert kernels.compiled(h, score.numel())
    results = []
    for weighted_sum in (layers.attend, attend):
        inputs = score.clone().requires_grad_(), h.clone().requires_grad_()
        out = weighted_sum(edges, *inputs)
        out.backward(grad)
        results.append([out.detach(), *(part.grad for part in inputs)])
    assert all(torch.equal(fused, plain) for plain, fused in zip(*results))


def test_a_second_derivative_is_refused() -> None:
    """The compiled loop has no second derivative, which an error says instead of a gradient without it."""
    edges = Edges(torch.arange(kernels.FEW) % 7, torch.arange(kernels.FEW) % 5, 7)
    score = torch.rand(kernels.FEW, 1, requires_grad=True)
    h = torch.randn(7, 1, 2, requires_grad=True)
    (first,) = torch.autograd.grad(attend(edges, score, h).square().sum(), h, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
