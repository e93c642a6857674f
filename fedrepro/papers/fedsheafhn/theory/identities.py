"""FedSheafHN's identities to machine precision (SH-I1 to I3), each with a control that must fail.

SH-I1   Eq. 5 and 6: the sheaf Laplacian is delta^T delta, symmetric, positive semi-definite; with identity maps it is
        the graph Laplacian; the normalised one has the identity as block diagonal
SH-I2   Eq. 7 to 9: a diffusion step is the one with the Kronecker product written out; one propagation of a GCN is a
        special case
SH-I3   Eq. 12 to 15: the server's gradient is the chain rule's, and with one local SGD step that of automatic
        differentiation through diffusion, hypernetwork and clients
"""

from __future__ import annotations

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
from fedrepro.papers.fedsheafhn.collaboration import Diffusion, normalised_adjacency
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.server import Server
from fedrepro.runs.run import Run

EXACT = 1e-12
NODES = 9


def check(id: str, statement: str, measured: float, bound: float, control: bool = False) -> dict[str, Any]:
    """One row: what was measured against what it must not exceed.

    Args:
        control: the inequality must fail.
    """
    holds = measured <= bound
    words = ("holds, as it must not", "fails, as it must") if control else ("holds", "fails")
    verdict = words[not holds]
    return {"id": id, "statement": statement, "measured": measured, "bound": bound, "verdict": verdict}


def identities(run: Run) -> dict[str, Any]:
    """SH-I1 to I3 on a random collaboration graph and a random federation, functions of the run's seed, in float64.

    Returns:
        "result": {"checks": rows of `check`}.
    """
    rows = [*_laplacian(run.seed), *_diffusion(run.seed), *_gradients(run.seed)]
    return {"result": {"checks": rows}}


def _pairs(seed: int) -> Tensor:
    """A connected graph: a path and random edges."""
    path = torch.stack([torch.arange(NODES - 1), torch.arange(1, NODES)])
    drawn = (random.uniform((NODES, NODES), "pairs", seed) < 0.3).triu(2).nonzero().T
    return torch.cat([path, drawn], 1)


def _maps(seed: int, kind: str, stalk: int, count: int) -> tuple[Tensor, Tensor]:
    values = random.normal((2 * count, sheaf.slots(kind, stalk)), "maps", seed, kind)
    first, second = sheaf.as_maps(values, kind, stalk).chunk(2)
    return first, second


def coboundary(first: Tensor, second: Tensor, pairs: Tensor, nodes: int) -> Tensor:
    """delta `[pairs * d, nodes * d]`: (delta x)_e = F_{u,e} x_u - F_{v,e} x_v."""
    count, d = first.shape[:2]
    delta = first.new_zeros(count, d, nodes, d)
    every = torch.arange(count)
    delta[every, :, pairs[0], :] = first
    delta[every, :, pairs[1], :] = -second
    return delta.reshape(count * d, nodes * d)


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().abs().max() / b.detach().abs().max().clamp(min=1e-300))


def _laplacian(seed: int) -> list[dict[str, Any]]:
    pairs, rows = _pairs(seed), []
    for kind in sheaf.MAPS:
        first, second = _maps(seed, kind, 3, pairs.shape[1])
        blocks = sheaf.laplacian(first, second, pairs, NODES)
        whole, delta = sheaf.matrix(blocks), coboundary(first, second, pairs, NODES)
        lowest = -float(torch.linalg.eigvalsh(whole)[0])
        rows += [
            check(f"SH-I1-{kind}", "L = delta^T delta (Eq. 5)", _gap(whole, delta.T @ delta), EXACT),
            check(f"SH-I1-{kind}-psd", "minus the smallest eigenvalue of L", lowest, EXACT),
        ]
        normal = sheaf.normalised(blocks, augmented=False, diagonal=kind != "general")
        every = torch.arange(NODES)
        eye = torch.eye(3, dtype=torch.float64).expand(NODES, 3, 3)
        rows.append(
            check(f"SH-I1-{kind}-normal", "block diagonal of Eq. 6 is I", _gap(normal[every, every], eye), EXACT)
        )
    eye = torch.eye(3, dtype=torch.float64).expand(pairs.shape[1], 3, 3)
    adjacency = torch.zeros(NODES, NODES, dtype=torch.float64)
    adjacency[pairs[0], pairs[1]] = adjacency[pairs[1], pairs[0]] = 1
    graph = torch.kron(torch.diag(adjacency.sum(1)) - adjacency, torch.eye(3, dtype=torch.float64))
    found = sheaf.matrix(sheaf.laplacian(eye, eye, pairs, NODES))
    first, second = _maps(seed, "general", 3, pairs.shape[1])
    turned = sheaf.matrix(sheaf.laplacian(first.mT, second.mT, pairs, NODES))
    delta = coboundary(first, second, pairs, NODES)
    return [
        *rows,
        check("SH-I1-identity", "identity maps give the graph Laplacian", _gap(found, graph), EXACT),
        check("SH-I1-control", "maps without transposition", _gap(turned, delta.T @ delta), EXACT, control=True),
    ]


def _diffusion(seed: int) -> list[dict[str, Any]]:
    part = Diffusion(5, "sheaf", 1, 4, 2, "general", dropout=0.0)
    weights = {name: w.double() for name, w in part.init(seed).items()}
    weights["sheaf.0.w1"] = weights["sheaf.0.w1"] + 0.3 * random.normal((2, 2), "w1", seed)
    pairs, h = _pairs(seed), random.normal((NODES, part.state), "states", seed)
    delta = sheaf.matrix(part.laplacian(weights, h, pairs, 0))
    x = h.view(NODES * 2, 4)
    mixed = torch.kron(torch.eye(NODES, dtype=torch.float64), weights["sheaf.0.w1"]) @ x
    change = F.elu(delta @ mixed @ weights["sheaf.0.w2"]).view_as(h)
    found = part.diffuse(weights, h, pairs)
    eye = torch.ones(pairs.shape[1], 1, 1, dtype=torch.float64)
    blocks = sheaf.laplacian(eye, eye, pairs, NODES)
    smoothed = torch.eye(NODES, dtype=torch.float64) - sheaf.matrix(sheaf.normalised(blocks, True, True))
    gcn = normalised_adjacency(pairs, NODES, torch.float64)
    return [
        check("SH-I2", "a step is X - ELU(Delta (I (x) W1) X W2) (Eq. 7, 8)", _gap(found, h - change), EXACT),
        check("SH-I2-gcn", "identity maps, no activation: one GCN propagation", _gap(smoothed, gcn), EXACT),
        check("SH-I2-control", "the sign of Eq. 7 left out", _gap(found, h + change), EXACT, control=True),
    ]


# -- SH-I3 ------------------------------------------------------------------------------------------------------------


def small(seed: int, **options: Any) -> tuple[FedSheafHN, Federation, State]:
    """A federation of four clients on a random graph, and FedSheafHN at its start."""
    nodes, features, classes = 32, 4, 3
    y = (random.uniform((nodes,), "labels", seed) * classes).long()
    near = random.uniform((nodes, nodes), "edges", seed) < 0.25
    near = (near | near.T) & ~torch.eye(nodes, dtype=torch.bool)
    data = Data(x=random.normal((nodes, features), "features", seed) + F.one_hot(y, features), y=y, num_classes=classes)
    data.edge_index = near.nonzero().T
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data[name] = torch.arange(nodes) % 3 == number
    fed = Federation.of(data, list(torch.arange(nodes).view(4, -1)), seed, dtype=torch.float64)
    method = FedSheafHN(
        model=GCNHead(features, classes, 4), hyper_hidden=5, channels=3, stalk=2, steps=2, neighbours=2,
        hyper_dropout=0.0, sheaf_dropout=0.0, maps="general", optimizer="sgd", **options,
    )  # fmt: skip
    fed, state = method.start(fed)
    return method, fed, state


def _gradients(seed: int) -> list[dict[str, Any]]:
    lr = 0.1
    method, fed, state = small(seed, lr=lr, local_epochs=1)
    server: Server = state.more.servers[0]
    vectors = method.vectors_of(state.more.used)
    leaves = {name: w.clone().requires_grad_() for name, w in server.weights.items()}
    generated = server.generate(leaves, vectors, 0)
    held = {**state.personal, **generated}
    loss = method.local_loss(held, fed.at(0, 0), state, 0).sum()
    exact = _flat(torch.autograd.grad(loss, list(leaves.values()), retain_graph=True))
    at = {name: held[name].detach().requires_grad_() for name in generated}
    own = method.local_loss({**state.personal, **at}, fed.at(0, 0), state, 0).sum()
    change = dict(zip(at, (lr * g for g in torch.autograd.grad(own, list(at.values()))), strict=True))
    found = _flat(server.gradient(vectors, 0, change).values())
    printed = _flat(server.gradient(vectors, 0, {name: -w for name, w in change.items()}).values())
    chained = _chain_rule(server, vectors, change)
    return [
        check("SH-I3", "J^T Delta / lr is the gradient through the clients", _gap(found / lr, exact), EXACT),
        check("SH-I3-chain", "J_theta(S) J_X(H) and J_phi(H), written out (Eq. 14, 15)", _gap(chained, found), EXACT),
        check(
            "SH-I3-control", "with the printed sign (SH-Q3)", 1 - float(F.cosine_similarity(printed, exact, 0)), EXACT,
            control=True,
        ),
    ]  # fmt: skip


def _chain_rule(server: Server, vectors: Tensor, change: Weights) -> Tensor:
    """Eq. 12 to 15 with every Jacobian as a matrix."""
    theta = {name: w for name, w in server.weights.items() if name.startswith("sheaf")}
    phi = {name: w for name, w in server.weights.items() if name.startswith("hyper")}
    delta = _flat(change.values())

    def kept(x: Tensor, p: float, name: str) -> Tensor:
        return x

    def diffuse(*values: Tensor) -> Tensor:
        return server.diffusion(dict(zip(theta, values, strict=True)), vectors, server.pairs(vectors), kept).flatten()

    def make(x: Tensor, *values: Tensor) -> Tensor:
        made = server.hyper(dict(zip(phi, values, strict=True)), x.view(len(vectors), -1), kept)
        return _flat(made[name] for name in change)

    jacobian = torch.autograd.functional.jacobian
    last = diffuse(*theta.values())
    by_input, *by_phi = jacobian(make, (last, *phi.values()))  # type: ignore[no-untyped-call]
    back = by_input.T @ delta
    by_theta = jacobian(diffuse, tuple(theta.values()))  # type: ignore[no-untyped-call]
    parts = dict(zip(theta, (j.flatten(1).T @ back for j in by_theta), strict=True))
    parts |= dict(zip(phi, (j.flatten(1).T @ delta for j in by_phi), strict=True))
    return torch.cat([parts[name] for name in server.weights])


def _flat(parts: Any) -> Tensor:
    return torch.cat([part.flatten() for part in parts])
