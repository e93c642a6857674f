"""Compare FedGAT in its edge form with Eq. 7 in NumPy, PyG's exact GAT and brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import graph_of
from numpy.polynomial.legendre import legval, legvander
from scipy.integrate import quad
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GATConv

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import GAT
from fedrepro.engine.training import client_gradients, train
from fedrepro.papers.fedgat import chebyshev
from fedrepro.papers.fedgat.method import DistGAT, DistGATSGD, FedGAT, FedGATSGD
from fedrepro.papers.fedgat.theory.identities import FirstLayer

NODES, FEATURES, CLASSES = 40, 6, 3
DEGREES = [2, 4, 8, 16, 32, 64]


class SmoothFedGAT(FedGAT):
    """A control with the series of exp(x), which has no kink."""

    @cached_property
    def series(self) -> np.ndarray:
        return chebyshev.coefficients(lambda t: np.exp(self.interval * t), self.degree)


def graph(seed: int = 0, sparse: bool = False) -> Data:
    """Return an undirected graph of 40 nodes. The last node has no edge, and some nodes are in no split."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((NODES, NODES)) < 0.12, 1)
    upper[:, -1] = False
    x = rng.normal(size=(NODES, FEATURES))
    if sparse:
        x *= rng.random(x.shape) < 0.2
    split = rng.integers(4, size=NODES)
    return graph_of(torch.from_numpy(x), rng.integers(CLASSES, size=NODES), upper | upper.T, split, num_classes=CLASSES)


def split(nodes: int, clients: int, seed: int = 0) -> list[Tensor]:
    """Return clients of unequal size, the smallest with one node."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.choice(np.arange(2, nodes), clients - 1, replace=False)) if clients > 1 else []
    if clients > 1:
        cuts[0] = 1
    return [torch.from_numpy(part) for part in np.split(rng.permutation(nodes), cuts)]


def federate(data: Data, clients: int = 1, seed: int = 0) -> Federation:
    return Federation.of(data, split(data.num_nodes, clients, seed), seed, dtype=torch.float64)


def gat(**sizes: int) -> GAT:
    return GAT(**({"features": FEATURES, "classes": CLASSES, "hidden": 4, "heads": 2, "output_heads": 2} | sizes))


def random_weights(model: GAT, seed: int = 0, scale: float = 0.5) -> Weights:
    """Return weights of every name, none of them zero, as the server of one run holds them."""
    rng = np.random.default_rng(seed)
    return {name: torch.from_numpy(scale * rng.normal(size=tuple(w.shape))) for name, w in model.init([0]).items()}


def free_vectors(weights: Weights, scale: float) -> Weights:
    """Return the weights with attention vectors over the input features."""
    rng = np.random.default_rng(1)
    return weights | {
        name: torch.from_numpy(scale * rng.normal(size=(1, 2, FEATURES))) for name in ("layer1.source", "layer1.target")
    }


def logits(method: DistGAT, fed: Federation, weights: Weights) -> Tensor:
    """Return what the clients predict with these weights after the exchange, in the graph's node order."""
    fed, state = method.start(fed)
    out = method.predict(fed, replace(state, shared=weights))
    own = fed.batch.ring == 0
    ordered = torch.full((int(own.sum()), out.shape[1]), torch.nan, dtype=out.dtype)
    ordered[fed.batch.node_id[own]] = out[own]
    return ordered


def conv(weights: Weights, layer: int, concat: bool, slope: float = 0.2) -> GATConv:
    """Return PyG's exact GAT layer with the weights of one of ours."""
    weight, source, target = (weights[f"layer{layer}.{name}"][0] for name in ("weight", "source", "target"))
    made = GATConv(weight.shape[0], source.shape[1], len(source), concat=concat, negative_slope=slope).double()
    vectors = {"att_src": source[None], "att_dst": target[None]}
    made.load_state_dict({**vectors, "bias": weights[f"layer{layer}.bias"][0], "lin.weight": weight.T})
    return made


def exact_first(weights: Weights, data: Data, slope: float = 0.2) -> Tensor:
    """Return the exact first layer before bias and ELU, on the whole graph."""
    with torch.no_grad():
        layer = conv(weights, 1, concat=True, slope=slope)
        return layer(data.x, data.edge_index) - layer.bias


def exact(weights: Weights, data: Data) -> Tensor:
    """Return the logits of the exact GAT on the whole graph."""
    with torch.no_grad():
        h = F.elu(conv(weights, 1, concat=True)(data.x, data.edge_index))
        return conv(weights, 2, concat=False)(h, data.edge_index)


def neighbours(data: Data) -> list[list[int]]:
    """Return each node's neighbours, itself among them."""
    found = [{i} for i in range(data.num_nodes)]
    for j, i in data.edge_index.T.tolist():
        found[i].add(j)
    return [sorted(near) for near in found]


def scores(weights: Weights, data: Data, head: int, through: bool = True) -> list[np.ndarray]:
    """Return x_ij of one head for each node's neighbours (Eq. 4), `through` W or of the input features themselves."""
    x = data.x.numpy()
    h = x @ weights["layer1.weight"][0].numpy().reshape(x.shape[1], -1, 4)[:, head] if through else x
    a2, a1 = weights["layer1.source"][0, head].numpy(), weights["layer1.target"][0, head].numpy()
    return [h[near] @ a2 + h[i] @ a1 for i, near in enumerate(neighbours(data))]


def largest_score(weights: Weights, data: Data, heads: int = 2) -> float:
    return float(max(np.abs(x).max() for head in range(heads) for x in scores(weights, data, head)))


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
    """The coefficients equal the integrals of Eq. 22 for exp(LeakyReLU(x)), by quadrature split at the kink."""
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
    found = logits(method, federate(data, 3), weights)
    assert np.abs(found.numpy() - literal(weights, data, method)).max() < 1e-11


def test_second_layer_is_exact() -> None:
    """At 5 clients the logits equal PyG's exact second layer on top of Eq. 7."""
    data, model = graph(1), gat()
    weights = random_weights(model)
    method = FedGAT(model=model, degree=6, interval=3.0)
    found = logits(method, federate(data, 5), weights)
    first = torch.from_numpy(literal(weights, data, method)) + weights["layer1.bias"]
    expected = conv(weights, 2, concat=False)(F.elu(first), data.edge_index).detach()
    assert (found - expected).abs().max() < 1e-11
    assert (found - exact(weights, data)).abs().max() > 1e-4  # control: the polynomial is not the score


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
        own = set(part.tolist())
        one = {j for i in own for j in near[i]} | own
        two = {j for i in one for j in near[i]} | one
        mine = fed.batch.batch == client
        ids, ring = fed.batch.node_id[mine].tolist(), fed.batch.ring[mine].tolist()
        assert dict(zip(ids, ring)) == {v: 0 if v in own else 1 if v in one else 2 for v in two}
        arriving = fed.batch.edge_index[:, mine[fed.batch.edge_index[1]]]
        held = {tuple(edge) for edge in fed.batch.node_id[arriving].T.tolist()}
        assert held == {(j, i) for i in one for j in near[i] if j != i}


# -- convergence ------------------------------------------------------------------------------------------------------


def spread_scores() -> tuple[Data, Weights]:
    """Return a graph whose scores fill [-1, 1], and weights whose first layer returns the attention coefficients.

    Features and W are the identity. Row i of the layer is alpha_i, and x_ij = a_1[i] + a_2[j] is free.
    """
    rng = np.random.default_rng(0)
    upper = np.triu(rng.random((60, 60)) < 0.5, 1)
    every = torch.eye(60, dtype=torch.float64)
    edges = torch.from_numpy(np.array(np.nonzero(upper | upper.T)))
    data = Data(x=every, y=torch.zeros(60, dtype=torch.long), num_classes=2, edge_index=edges)
    a1, a2 = (torch.from_numpy(rng.uniform(-0.5, 0.5, (1, 1, 60))) for _ in range(2))
    layer = {"weight": every[None], "source": a2, "target": a1, "bias": torch.zeros(1, 60, dtype=torch.float64)}
    return data, {f"layer1.{name}": w for name, w in layer.items()}


def first_layer_errors(kind: type[FedGAT], slope: float, degrees: list[int]) -> tuple[list[float], list[float]]:
    """Return the largest error of an attention coefficient, and of a first-layer embedding, at each degree."""
    data, weights = spread_scores()
    named = FirstLayer(60, 2, 60, heads=1)
    small, wide = graph(4), FirstLayer(FEATURES, CLASSES, 4, heads=40)
    drawn = random_weights(wide, scale=0.15)

    def error(model: GAT, degree: int, interval: float, w: Weights, held: Data) -> float:
        method = kind(model=model, degree=degree, interval=interval)
        return float((logits(method, federate(held, 4), w) - exact_first(w, held, slope)).abs().max())

    attention = [error(named, degree, 1.0, weights, data) for degree in degrees]
    embedding = [error(wide, degree, largest_score(drawn, small, 40), drawn, small) for degree in degrees]
    return attention, embedding


def fitted(degrees: list[int], errors: list[float]) -> float:
    return float(np.polyfit(np.log(degrees), np.log(errors), 1)[0])


def test_first_layer_converges_at_the_rate_of_theorem_2() -> None:
    """Attention and embedding errors against PyG's exact layer fall like 1/p, as k = 1 says (FG-Q11)."""
    for errors in first_layer_errors(FedGAT, 0.2, DEGREES):
        assert -1.3 < fitted(DEGREES, errors) < -0.85
        assert errors[-1] < errors[0] / 20


def test_a_score_without_kink_converges_much_faster() -> None:
    """With exp(x) in place of exp(LeakyReLU(x)), a control, the layer is exact to 1e-12 at degree 16."""
    degrees = [2, 4, 8]
    for errors in first_layer_errors(SmoothFedGAT, 1.0, [*degrees, 16]):
        assert fitted(degrees, errors[:3]) < -6
        assert errors[3] < 1e-12


def test_predictions_converge_to_the_central_gat() -> None:
    """The logits of one client and of ten approach PyG's exact GAT as the degree rises."""
    data, model = graph(5), gat()
    weights = random_weights(model)
    interval, expected = largest_score(weights, data), exact(weights, data)
    for clients in (1, 10):
        for degree in (16, 64, 256):
            method = FedGAT(model=model, degree=degree, interval=interval)
            error = float((logits(method, federate(data, clients), weights) - expected).abs().max())
            assert error < 0.5 / degree


def trained_by_pyg(weights: Weights, data: Data, rounds: int, lr: float) -> Weights:
    """Train the exact GAT on the whole graph by gradient descent of the mean loss over training nodes."""
    first, second = conv(weights, 1, concat=True), conv(weights, 2, concat=False)
    parameters = [*first.parameters(), *second.parameters()]
    for _ in range(rounds):
        out = second(F.elu(first(data.x, data.edge_index)), data.edge_index)
        loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        with torch.no_grad():
            for p, g in zip(parameters, torch.autograd.grad(loss, parameters)):
                p -= lr * g
    named = {f"layer{n}": layer for n, layer in ((1, first), (2, second))}
    ours = {"lin.weight": "weight", "att_src": "source", "att_dst": "target", "bias": "bias"}
    return {
        f"{layer}.{ours[name]}": (p.T if name == "lin.weight" else p[0] if p.dim() == 3 else p).detach()
        for layer, module in named.items()
        for name, p in module.named_parameters()
    }


class From(FedGAT):
    """A FedGAT that starts from given weights."""

    def start(self, fed: Federation) -> tuple[Federation, State]:
        fed, state = super().start(fed)
        return fed, replace(state, shared=random_weights(self.model))


@pytest.mark.parametrize("clients", [1, 4])
def test_trajectory_converges_to_the_central_gat(clients: int) -> None:
    """Three rounds of gradient descent end closer to the exact GAT's the higher the degree is.

    Four clients weighted by training nodes take the same step as one, since their halo misses no edge.
    """
    data, model = graph(6), gat()
    start = random_weights(model)
    interval = 1.2 * largest_score(start, data)
    expected = trained_by_pyg(start, data, 3, 0.2)
    assert all((expected[name] - start[name][0]).abs().max() > 1e-3 for name in start)
    errors = []
    for degree in (16, 64, 256):
        method = From(model=model, degree=degree, interval=interval, optimizer="sgd", lr=0.2, average="train")
        _, _, state = train(method, federate(data, clients), 3)
        errors.append(max(float((state.shared[name][0] - w).abs().max()) for name, w in expected.items()))
    assert all(error < 0.15 / degree for error, degree in zip(errors, (16, 64, 256)))
    assert errors[1] < errors[0] / 2 and errors[2] < errors[1] / 2


def test_client_gradients_add_up_to_those_of_one_client() -> None:
    """The clients' gradients, weighted by training nodes, sum to the gradient of one client that holds everything."""
    data, method = graph(7), From(model=gat())
    found = []
    for clients in (1, 6):
        fed, state = method.start(federate(data, clients))
        count = fed.count("train").double()
        gradient = client_gradients(method, fed, state)
        found.append({name: torch.tensordot(count, g, 1) for name, g in gradient.items()})
    assert all((found[1][name] - g).abs().max() < 1e-10 for name, g in found[0].items())
    assert all(g.abs().max() > 1e-3 for g in found[0].values())


# -- aggregated gradients, as in the public code ----------------------------------------------------------------------


def dense(weights: Weights, data: Data, method: DistGAT) -> Tensor:
    """Return logits on one dense graph, with exact attention but FedGAT's powers of x_ij in the first layer."""
    linked = torch.eye(data.num_nodes, dtype=torch.bool)
    linked[data.edge_index[1], data.edge_index[0]] = True
    h = data.x
    for layer in (1, 2):
        w, source, target, bias = (weights[f"layer{layer}.{name}"] for name in ("weight", "source", "target", "bias"))
        mapped = (h @ w).view(len(h), len(source), -1)
        free = isinstance(method, FedGAT) and method.score == "code" and layer == 1
        ends = [h @ v.T / h.shape[1] if free else (mapped * v).sum(2) for v in (target, source)]
        x = ends[0][:, None] + ends[1][None]  # [target, source, heads]
        score = torch.exp(F.leaky_relu(x, 0.2))
        if isinstance(method, FedGAT) and layer == 1:
            q = np.polynomial.chebyshev.cheb2poly(method.series) / method.interval ** np.arange(method.degree + 1)
            score = torch.stack([q_n * x**n for n, q_n in enumerate(q)]).sum(0)
        score = score * linked[:, :, None]
        mixed = torch.einsum("ijh,jhf->ihf", score / score.sum(1, keepdim=True), mapped)
        h = F.elu(mixed.flatten(1) + bias) if layer == 1 else mixed.mean(1) + bias
    return h


@pytest.mark.parametrize("kind", [DistGATSGD, FedGATSGD, "code"], ids=["DistGAT", "FedGAT", "FedGAT, code's scores"])
def test_aggregated_gradients_train_one_central_gat(kind: type[DistGAT] | str) -> None:
    """Four clients' gradients and Adam at the server train one dense GAT with PyTorch's Adam.

    Gradients and losses are weighted by training nodes. FedGAT trains on the whole graph, and DistGAT on the union of
    the client graphs.
    """
    data, more = graph(14), {"lr": 0.05, "weight_decay": 0.01}
    parts = split(NODES, 4)
    method: DistGAT
    if kind is DistGATSGD:
        method = DistGATSGD(model=gat(), **more)
    else:
        own = {"score": "code", "interval": 5.0} if kind == "code" else {"interval": 3.0}
        method = FedGATSGD(model=gat(), degree=6, **own, **more)
    fed = federate(data, 4)
    _, first = method.start(fed)
    made = train(method, fed, 4).state.shared
    seen = data.clone()
    if kind is DistGATSGD:
        owner = torch.cat([torch.full((len(part),), client) for client, part in enumerate(parts)])
        owner = owner[torch.cat(parts).argsort()]
        seen.edge_index = data.edge_index[:, owner[data.edge_index[0]] == owner[data.edge_index[1]]]
        assert seen.num_edges < data.num_edges
    leaves = {name: w[0].clone().requires_grad_() for name, w in first.shared.items()}
    optimizer = torch.optim.Adam(list(leaves.values()), lr=0.05, weight_decay=0.01)
    labelled = [part[data.train_mask[part]] for part in parts]
    shares = [len(rows) / int(data.train_mask.sum()) for rows in labelled]
    assert 0 in shares or len(set(shares)) > 1
    for _ in range(4):
        optimizer.zero_grad()
        out = dense(leaves, seen, method)
        loss = sum(s * F.cross_entropy(out[rows], data.y[rows]) for s, rows in zip(shares, labelled) if len(rows))
        loss.backward()
        optimizer.step()
    assert all((made[name][0] - w).abs().max() < 1e-8 for name, w in leaves.items())
    assert all((first.shared[name][0] - w).abs().max() > 1e-2 for name, w in leaves.items())


def test_with_aggregated_gradients_fedgat_does_not_see_the_partition() -> None:
    """Weights after five rounds are the same at 1, 3 and 8 clients.

    With averaged weights, and for DistGAT, they are not.
    """
    data = graph(15)

    def spread(kind: type[DistGAT], **more: str) -> float:
        ends = [train(kind(model=gat(), lr=0.05, **more), federate(data, k), 5).state.shared for k in (1, 3, 8)]
        return max(float((end[name] - w).abs().max()) for end in ends[1:] for name, w in ends[0].items())

    assert spread(FedGATSGD) < 1e-8
    assert spread(FedGAT, average="train") > 1e-2 and spread(DistGATSGD) > 1e-2


# -- what it reports --------------------------------------------------------------------------------------------------


def test_facts_are_largest_score_and_share_outside() -> None:
    """The facts of a run count every edge at which a client evaluates its polynomial, edges of the halo included."""
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
    found = fed.traffic.summary()
    assert found["bytes"] == {stage: size * sum(found[stage].values()) for stage in ("before", "training")}


# -- the public code's score ------------------------------------------------------------------------------------------


def code_attention(source: np.ndarray, target: np.ndarray, data: Data) -> list[np.ndarray]:
    """Return the attention of each node over its neighbours as the public code computes it, for one head.

    A smooth LeakyReLU is fitted by degree 16 on 500 equidistant points of [-5, 5]. Scores come from free vectors over
    the input features, divided by their number. There is no exponential. The polynomial is in the Legendre basis.
    """
    grid = np.linspace(-5, 5, 500)
    smooth = 0.2 * grid + 0.8 * 0.25 * np.log(1 + np.exp(4 * grid))
    fit = np.linalg.lstsq(legvander(grid / 5, 16), smooth, rcond=None)[0]
    x, made = data.x.numpy(), []
    for i, near in enumerate(neighbours(data)):
        value = legval((x[near] @ source + x[i] @ target) / x.shape[1] / 5, fit)
        made.append(value / value.sum())
    return made


def test_code_score_is_the_public_codes() -> None:
    """The first layer mixes W h by the public code's weights."""
    data, model = graph(11), FirstLayer(FEATURES, CLASSES, 4, heads=2)
    weights = free_vectors(random_weights(model), 2.0)
    found = logits(FedGAT(model=model, score="code", interval=5.0), federate(data, 3), weights)
    wh = data.x.numpy() @ weights["layer1.weight"][0].numpy()
    for head in range(2):
        source, target = (weights[f"layer1.{name}"][0, head].numpy() for name in ("source", "target"))
        alpha = code_attention(source, target, data)
        mine = slice(4 * head, 4 * head + 4)
        expected = np.stack([a @ wh[near, mine] for a, near in zip(alpha, neighbours(data))])
        assert np.abs(found[:, mine].numpy() - expected).max() < 1e-10
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
    for i, found in enumerate(neighbours(data)):
        edge[i, found] = True
    for scale, low, high in ((1, 1e-4, 0.05), (400, 0.2, np.inf)):  # control: not divided by the features' number
        scaled = {name: scale * v for name, v in vectors.items()}
        alpha = logits(method, federate(data, 3), {**state.shared, **scaled, "layer1.weight": names}).numpy()
        source, target = (v[0, 0].numpy() for v in scaled.values())
        expected = code_attention(source, target, data)
        assert max(np.abs(row[found] - a).max() for row, found, a in zip(alpha, edge, expected)) < 1e-10
        assert low < np.abs(alpha * edge.sum(1, keepdims=True) - 1)[edge].max() < high


def test_code_score_trains() -> None:
    """The free vectors take part in training and in averaging like every other weight."""
    method = FedGAT(model=gat(), score="code", interval=5.0)
    fed = federate(graph(13), 3)
    _, before = method.start(fed)
    _, _, after = train(method, fed, 3)
    assert after.shared["layer1.source"].shape == (1, 2, FEATURES)
    assert all((after.shared[name] - before.shared[name]).abs().max() > 1e-4 for name in before.shared)
