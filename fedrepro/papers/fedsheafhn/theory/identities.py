"""FedSheafHN's identities to machine precision, each with a negative control that must fail.

Eq. 5, 6      The sheaf Laplacian is delta^T delta, symmetric and positive semi-definite. With identity maps it is the
              graph Laplacian. The block diagonal of the normalised one is the identity (SH-I1).
Eq. 7 to 9    A diffusion step is the formula with its Kronecker product written out, and one propagation of a GCN is
              a special case (SH-I2).
Eq. 12 to 15  The server's gradient is that of the chain rule. With one local SGD step it is that of automatic
              differentiation through diffusion, hypernetwork and clients (SH-I3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import GCNHead
from fedrepro.papers.fedsheafhn import sheaf
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.server import Server
from fedrepro.papers.fedsheafhn.sheaf import Diffusion, keep_all
from fedrepro.reporting.checks import ROUNDING, Row, control, row
from fedrepro.runs.run import Run

NODES = 9


def identities(run: Run) -> dict[str, Any]:
    """Check SH-I1 to SH-I3 on a random collaboration graph and a random federation, in float64.

    Args:
        run: graph and federation are functions of its seed.

    Returns:
        "result": {"checks": rows, see `fedrepro.reporting.checks`}.
    """
    rows = [*_check_laplacian(run.seed), *_check_diffusion(run.seed), *_check_gradients(run.seed)]
    return {"result": {"checks": rows}}


def _pairs(seed: int) -> Tensor:
    """Return the edges of a connected graph, a path with random edges added, `[2, pairs]`."""
    path = torch.stack([torch.arange(NODES - 1), torch.arange(1, NODES)])
    drawn = (random.uniform((NODES, NODES), "pairs", seed) < 0.3).triu(2).nonzero().T
    return torch.cat([path, drawn], 1)


def _maps(seed: int, kind: str, stalk: int, count: int) -> tuple[Tensor, Tensor]:
    """Return random restriction maps at both ends of some edges, `[count, stalk, stalk]` each."""
    values = random.normal((2 * count, sheaf.map_size(kind, stalk)), "maps", seed, kind)
    first, second = sheaf.as_maps(values, kind, stalk).chunk(2)
    return first, second


def coboundary(first: Tensor, second: Tensor, pairs: Tensor, nodes: int) -> Tensor:
    """Return delta `[pairs * d, nodes * d]`, where (delta x)_e = F_{u,e} x_u - F_{v,e} x_v."""
    count, d = first.shape[:2]
    delta = first.new_zeros(count, d, nodes, d)
    every = torch.arange(count)
    delta[every, :, pairs[0], :] = first
    delta[every, :, pairs[1], :] = -second
    return delta.reshape(count * d, nodes * d)


def _gap(a: Tensor, b: Tensor) -> float:
    """Return the largest difference over the largest entry of `b`."""
    return float((a - b).detach().abs().max() / b.detach().abs().max().clamp(min=1e-300))


def _eye(size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64)


def _check_laplacian(seed: int) -> list[Row]:
    """Check SH-I1."""
    pairs, rows, every = _pairs(seed), [], torch.arange(NODES)
    count = pairs.shape[1]
    for kind in sheaf.MAPS:
        first, second = _maps(seed, kind, 3, count)
        blocks = sheaf.laplacian(first, second, pairs, NODES)
        whole, delta = sheaf.matrix(blocks), coboundary(first, second, pairs, NODES)
        lowest = -float(torch.linalg.eigvalsh(whole)[0])
        normal = sheaf.normalised(blocks, augmented=False, diagonal=kind != "general")[every, every]
        gap = _gap(normal, _eye(3).expand(NODES, 3, 3))
        rows += [
            row(f"SH-I1-{kind}", "L = delta^T delta (Eq. 5)", _gap(whole, delta.T @ delta), ROUNDING),
            row(f"SH-I1-{kind}-psd", "minus the smallest eigenvalue of L", lowest, ROUNDING),
            row(f"SH-I1-{kind}-normal", "block diagonal of Eq. 6 is I", gap, ROUNDING),
        ]
    same = _eye(3).expand(count, 3, 3)
    adjacency = torch.zeros(NODES, NODES, dtype=torch.float64)
    adjacency[pairs[0], pairs[1]] = adjacency[pairs[1], pairs[0]] = 1
    graph = torch.kron(torch.diag(adjacency.sum(1)) - adjacency, _eye(3))
    whole = sheaf.matrix(sheaf.laplacian(same, same, pairs, NODES))
    first, second = _maps(seed, "general", 3, count)
    turned = sheaf.matrix(sheaf.laplacian(first.mT, second.mT, pairs, NODES))
    delta = coboundary(first, second, pairs, NODES)
    return [
        *rows,
        row("SH-I1-identity", "identity maps give the graph Laplacian", _gap(whole, graph), ROUNDING),
        control("SH-I1", "maps without transposition", _gap(turned, delta.T @ delta), ROUNDING),
    ]


def _check_diffusion(seed: int) -> list[Row]:
    """Check SH-I2."""
    part = Diffusion(steps=1, channels=4, stalk=2, maps="general", dropout=0.0)
    weights = {name: w.double() for name, w in part.init(seed, width=5).items()}
    weights["sheaf.0.w1"] = weights["sheaf.0.w1"] + 0.3 * random.normal((2, 2), "w1", seed)
    pairs, h = _pairs(seed), random.normal((NODES, part.state), "states", seed)
    mixed = torch.kron(_eye(NODES), weights["sheaf.0.w1"]) @ h.view(NODES * 2, 4)
    change = F.elu(part.operator(weights, h, pairs, 0) @ mixed @ weights["sheaf.0.w2"]).view_as(h)
    after = part.states(weights, h, pairs)[-1]
    same = torch.ones(pairs.shape[1], 1, 1, dtype=torch.float64)
    blocks = sheaf.laplacian(same, same, pairs, NODES)
    smoothed = _eye(NODES) - sheaf.matrix(sheaf.normalised(blocks, True, True))
    gcn = sheaf.normalised_adjacency(pairs, NODES, torch.float64)
    return [
        row("SH-I2", "a step is X - ELU(Delta (I (x) W1) X W2) (Eq. 7, 8)", _gap(after, h - change), ROUNDING),
        row("SH-I2-gcn", "identity maps, no activation: one GCN propagation", _gap(smoothed, gcn), ROUNDING),
        control("SH-I2", "the sign of Eq. 7 left out", _gap(after, h + change), ROUNDING),
    ]


# -- SH-I3 ------------------------------------------------------------------------------------------------------------


def small(seed: int, **options: Any) -> tuple[FedSheafHN, Federation, State]:
    """Return FedSheafHN, a federation of four clients on a random graph, and the state at the start."""
    nodes, features, classes = 32, 4, 3
    y = (random.uniform((nodes,), "labels", seed) * classes).long()
    near = random.uniform((nodes, nodes), "edges", seed) < 0.25
    near = (near | near.T) & ~torch.eye(nodes, dtype=torch.bool)
    data = Data(x=random.normal((nodes, features), "features", seed) + F.one_hot(y, features), y=y, num_classes=classes)
    data.edge_index = near.nonzero().T
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data[name] = torch.arange(nodes) % 3 == number
    fed = Federation.of(data, list(torch.arange(nodes).view(4, -1)), seed, dtype=torch.float64)
    sizes = {"hyper_hidden": 5, "channels": 3, "stalk": 2, "steps": 2, "neighbours": 2, "maps": "general"}
    exact = {"hyper_dropout": 0.0, "sheaf_dropout": 0.0, "optimizer": "sgd"}
    method = FedSheafHN(model=GCNHead(features, classes, 4), **{**sizes, **exact, **options})
    fed, state = method.start(fed)
    return method, fed, state


def _check_gradients(seed: int) -> list[Row]:
    """Check SH-I3."""
    lr = 0.1
    method, fed, state = small(seed, lr=lr, local_epochs=1)
    server: Server = state.more.servers[0]
    vectors = method.vectors_of(state.more.used)

    def loss(generated: Weights) -> Tensor:
        """Return the sum of the clients' losses at generated weights."""
        return method.local_loss({**state.personal, **generated}, fed.at(0, 0), state, 0).sum()

    leaves = {name: w.clone().requires_grad_() for name, w in server.weights.items()}
    generated = server.generate(leaves, vectors, 0)
    exact = _flat(torch.autograd.grad(loss(generated), list(leaves.values()), retain_graph=True))
    at = {name: w.detach().requires_grad_() for name, w in generated.items()}
    # One SGD step changes a client's weights by lr times their gradient.
    change = dict(zip(at, (lr * g for g in torch.autograd.grad(loss(at), list(at.values()))), strict=True))
    gradient = _flat(server.gradient(vectors, 0, change).values())
    printed = _flat(server.gradient(vectors, 0, {name: -w for name, w in change.items()}).values())
    chained = _chain_rule(server, vectors, change)
    chain = "J_theta(S) J_X(H) and J_phi(H), written out (Eq. 14, 15)"
    turned = 1 - float(F.cosine_similarity(printed, exact, 0))
    return [
        row("SH-I3", "J^T Delta / lr is the gradient through the clients", _gap(gradient / lr, exact), ROUNDING),
        row("SH-I3-chain", chain, _gap(chained, gradient), ROUNDING),
        control("SH-I3", "with the printed sign (SH-Q3)", turned, ROUNDING),
    ]


def _chain_rule(server: Server, vectors: Tensor, change: Weights) -> Tensor:
    """Return J^T Delta by Eq. 12 to 15, with every Jacobian as a matrix."""
    theta, phi = ({n: w for n, w in server.weights.items() if n.startswith(part)} for part in ("sheaf", "hyper"))
    delta = _flat(change.values())

    def diffuse(*values: Tensor) -> Tensor:
        return server.diffused(dict(zip(theta, values, strict=True)), vectors, keep_all).flatten()

    def generate(x: Tensor, *values: Tensor) -> Tensor:
        generated = server.hyper(dict(zip(phi, values, strict=True)), x.view(len(vectors), -1), keep_all)
        return _flat(generated[name] for name in change)

    jacobian = torch.autograd.functional.jacobian
    last = diffuse(*theta.values())
    by_input, *by_phi = jacobian(generate, (last, *phi.values()))  # type: ignore[no-untyped-call]
    back = by_input.T @ delta
    by_theta = jacobian(diffuse, tuple(theta.values()))  # type: ignore[no-untyped-call]
    parts = dict(zip(theta, (j.flatten(1).T @ back for j in by_theta), strict=True))
    parts |= dict(zip(phi, (j.flatten(1).T @ delta for j in by_phi), strict=True))
    return torch.cat([parts[name] for name in server.weights])


def _flat(parts: Iterable[Tensor]) -> Tensor:
    """Return tensors as one vector."""
    return torch.cat([part.flatten() for part in parts])
