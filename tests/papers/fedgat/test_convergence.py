"""Compare FedGAT with PyG's exact GAT as the degree rises, and its aggregated gradients with one central GAT's."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fedgat_plain import (
    CLASSES,
    FEATURES,
    NODES,
    From,
    conv,
    exact,
    exact_first,
    federate,
    gat,
    graph,
    largest_score,
    logits,
    random_weights,
    split,
)
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Weights
from fedrepro.engine.nn.models import GAT
from fedrepro.engine.training import client_gradients, train
from fedrepro.papers.fedgat import chebyshev
from fedrepro.papers.fedgat.method import DistGAT, DistGATSGD, FedGAT, FedGATSGD
from fedrepro.papers.fedgat.theory.identities import FirstLayer

DEGREES = [2, 4, 8, 16, 32, 64]


class SmoothFedGAT(FedGAT):
    """A control with the series of exp(x), which has no kink."""

    @cached_property
    def series(self) -> np.ndarray:
        return chebyshev.coefficients(lambda t: np.exp(self.interval * t), self.degree)


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
    gradients = []
    for clients in (1, 6):
        fed, state = method.start(federate(data, clients))
        count = fed.count("train").double()
        gradient = client_gradients(method, fed, state)
        gradients.append({name: torch.tensordot(count, g, 1) for name, g in gradient.items()})
    assert all((gradients[1][name] - g).abs().max() < 1e-10 for name, g in gradients[0].items())
    assert all(g.abs().max() > 1e-3 for g in gradients[0].values())


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
        score = {"score": "code", "interval": 5.0} if kind == "code" else {"interval": 3.0}
        method = FedGATSGD(model=gat(), degree=6, **score, **more)
    fed = federate(data, 4)
    _, first = method.start(fed)
    trained = train(method, fed, 4).state.shared
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
    assert all((trained[name][0] - w).abs().max() < 1e-8 for name, w in leaves.items())
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
