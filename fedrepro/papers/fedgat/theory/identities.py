"""FedGAT's identities (Eq. 9 to 14, 21, 22, Appendix F) on random neighbourhoods, and its protocol on a real graph.

A check is a row: id, statement, the largest error measured, its bound, verdict. Beside each stands a control: the same
measurement where the identity must not hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.polynomial.chebyshev import chebval
from torch import Tensor

from fedrepro.data import datasets, partition
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import GAT
from fedrepro.papers.fedgat import protocol
from fedrepro.papers.fedgat.method import FedGAT
from fedrepro.reporting.checks import ROUNDING, Row, control, row
from fedrepro.runs.run import Run

SIZES = (1, 2, 3, 5, 8, 13)  # neighbours of the random nodes
FEATURES, HEADS, DEGREE = 7, 2, 8


def identities(run: Run) -> dict[str, Any]:
    """FG-I1 to FG-I6 on six random nodes, each with its control, and the counts FG-Q2, FG-Q4, FG-Q6.

    Returns:
        "checks": rows.
    """
    measured: dict[str, float] = {}
    for g in SIZES:
        for name, error in _node(g, run.seed).items():
            measured[name] = max(measured.get(name, 0.0), error) if "control" not in name else error
    text = {
        "FG-I1": "U_j U_j = U_j, U_j U_k = 0, D^n = sum_j x_ij^n U_j, n = 1..8 (either order of r and 1/r)",
        "FG-I2": "E^(n), F^(n) from K1, D, K2, n = 0..8, the term n = 0 halved",
        "FG-I3": "D = sum_s b1(s) M1(s) + b2(s) M2(s)",
        "FG-I5": "Vector FedGAT: E^(n), F^(n) from elementwise powers of R, n = 0..8",
        "FG-Q6": "K1^T M2(s) K1 = sum_j h_j(s), and K1^T K2 = 2 sum_j h_j^T",
        "FG-I1-control": "the same with vectors that are not orthonormal",
        "FG-I2-control": "the same with D^0 = I, as printed: n = 0 counted twice (FG-Q2)",
        "FG-I3-control": "the same with b2(s) + h_j(s), as printed (FG-Q5)",
        "FG-I5-control": "the same with R = D, before mask 4 is applied",
        "FG-Q6-control": "K1^T M2(s) K2 = sum_j h_j(s), as printed: it is sum_j h_j(s) h_j^T",
    }
    checks = []
    for name, statement in text.items():
        if name.endswith("-control"):
            checks.append(control(name.removesuffix("-control"), statement, measured[name], ROUNDING))
        else:
            checks.append(row(name, statement, measured[name], ROUNDING))
    return {"result": {"checks": checks + _chebyshev()}}


def _node(g: int, seed: int) -> dict[str, float]:
    """Errors of all identities at one random node with `g` neighbours, the node itself the first of them."""
    h = random.normal((g, FEATURES), "features", seed, g) / FEATURES**0.5
    b1, b2 = (random.normal((HEADS, FEATURES), name, seed, g) / FEATURES**0.5 for name in ("b1", "b2"))
    (message,) = protocol.matrix_messages(g, h[0], h, seed)
    vector = protocol.vector_message(g, h[0], h, seed)
    x = (b1 @ h[0])[:, None] + b2 @ h.T  # [heads, g]
    powers = x[None] ** torch.arange(DEGREE + 1)[:, None, None]
    e, f = powers @ h, powers.sum(2)
    _, u = protocol.projectors(g, seed, g)
    d, k2 = protocol.combination([message], b1, b2)
    exact = torch.einsum("hj,jab->hab", x, u)
    printed = (b1 @ h[0] + b2.sum(1))[:, None] + h.sum(1)  # FG-Q5
    bent = random.normal((g, 2 * g), "bent", seed, g)
    bent = bent / bent.norm(dim=1, keepdim=True)
    found = protocol.matrix_moments(d, message.k1, k2, DEGREE)
    r = b1 @ vector.m1 + b2 @ vector.m2
    unmasked = (r[None] ** torch.arange(DEGREE + 1)[:, None, None]) @ vector.k1
    return {
        "FG-I1": max(_projections(u, x), _projections(u.transpose(1, 2), x)),
        "FG-I1-control": _projections(bent[:, :, None] * bent[:, None, :], x),
        "FG-I2": max(_gap(found[0], e), _gap(found[1], f)),
        "FG-I2-control": _gap(message.k1 @ k2, e[0, 0]),
        "FG-I3": _gap(d, exact),
        "FG-I3-control": _gap(torch.einsum("hj,jab->hab", printed, u), exact),
        "FG-I5": max(_gap(a, b) for a, b in zip(protocol.moments([vector], b1, b2, DEGREE), (e, f))),
        "FG-I5-control": _gap(unmasked, e),
        "FG-Q6": max(
            _gap(torch.einsum("a,sab,b->s", message.k1, message.m2, message.k1), h.sum(0)),
            _gap(message.k1 @ k2, 2 * h.sum(0)),
        ),
        "FG-Q6-control": _gap(torch.einsum("a,sab,bt->st", message.k1, message.m2, k2), h.sum(0)[:, None]),
    }


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def _projections(u: Tensor, x: Tensor) -> float:
    """The largest error of FG-I1 for matrices u `[g, 2g, 2g]` and scores x `[heads, g]`."""
    products = u[:, None] @ u[None]
    same = torch.eye(len(u), dtype=u.dtype)[:, :, None, None] * u[None]
    d = torch.einsum("hj,jab->hab", x, u)
    errors, power = [_gap(products, same)], d
    for n in range(2, DEGREE + 1):
        power = power @ d
        errors.append(_gap(power, torch.einsum("hj,jab->hab", x**n, u)))
    return max(errors)


def _chebyshev() -> list[Row]:
    """FG-I4: T_n(cos t) = cos(n t), orthogonality under the weight (Eq. 21, 22); without the weight there is none."""
    theta = np.pi * (np.arange(64) + 0.5) / 64  # Gauss-Chebyshev nodes: exact below degree 128
    basis = chebval(np.cos(theta), np.eye(17))
    cosines = np.abs(basis - np.cos(np.arange(17)[:, None] * theta)).max()
    gram = np.pi / 64 * basis @ basis.T
    expected = np.diag([np.pi] + [np.pi / 2] * 16)
    nodes, weights = np.polynomial.legendre.leggauss(64)
    plain = chebval(nodes, np.eye(17))
    off = (weights * plain) @ plain.T
    return [
        row("FG-I4", "T_n(cos t) = cos(n t), orthogonal under 1/sqrt(1 - x^2), n = 0..16",
            max(float(cosines), float(np.abs(gram - expected).max())), ROUNDING),
        control("FG-I4", "the same orthogonality without the weight", float(np.abs(off - np.diag(np.diag(off))).max()),
                ROUNDING),
    ]  # fmt: skip


# -- the protocol on a graph ------------------------------------------------------------------------------------------


class FirstLayer(GAT):
    """A GAT that stops before its second layer: its logits are the first layer's heads side by side."""

    def second_layer(self, weights: Weights, fed: Federation, h: Tensor) -> Tensor:
        """The heads `[nodes, heads * hidden]`."""
        return h.flatten(1)


def equal_layers(run: Run) -> dict[str, Any]:
    """The first layer from messages alone, in both forms, against its edge form, in float64, at every node of a graph.

    Options: nodes of degree up to `whole` (40) receive their Matrix message whole, others in blocks of 64 features;
    `nodes`, how many nodes of degree up to 40 are looked at (0: every node).

    Returns:
        Nodes "whole", "in_blocks"; the largest errors "matrix", "matrix_in_blocks", "vector", and the controls
        "matrix_control" and "vector_control" with another neighbour's features in the message; the largest score;
        "bytes": of the largest message in float32, by form.
    """
    whole = int(run.options.get("whole", 40))
    data = datasets.assemble(run.dataset, run.prepare, run.split, run.seed)
    parts = partition.partition(data, run.partition, run.clients, run.seed)
    fed = Federation.of(data, parts, run.seed, dtype=torch.float64)
    network = FirstLayer(features=fed.features, classes=fed.classes, hidden=8, heads=8)
    method = FedGAT(model=network, degree=16, interval=4.0)
    extended, state = method.start(fed)
    # Scores up to 3.5: much of the interval, and none beyond, where powers of x would grow without bound.
    share = 3.5 / method.facts(extended, state)[0]["largest_score"]
    vectors = ("layer1.source", "layer1.target")
    weights = {name: w * share if name in vectors else w for name, w in state.shared.items()}
    state = replace(state, shared=weights)
    server = {name: w[0] for name, w in weights.items()}
    own = extended.batch.ring == 0
    expected = torch.empty(data.num_nodes, 64, dtype=torch.float64)
    expected[extended.batch.node_id[own]] = method.predict(extended, state)[own]

    def error(messages: Any, node: int) -> float:
        found = protocol.layer(messages, server, method.series, method.interval)
        return _gap(found.flatten(), expected[node])

    near = protocol.neighbours(data)
    x = data.x.to_dense().double() if data.x.layout != torch.strided else data.x.double()
    worst = dict.fromkeys(("matrix", "matrix_in_blocks", "vector", "matrix_control", "vector_control"), 0.0)
    chosen = _chosen(near, int(run.options.get("nodes", 0)), run.seed)
    for node in chosen:
        ids = near[node]
        h, large = x[ids], len(ids) > whole + 1
        parts_ = protocol.matrix_messages(node, x[node], h, run.seed, block=64 if large else None)
        found = {
            "matrix_in_blocks" if large else "matrix": error(parts_, node),
            "vector": error([protocol.vector_message(node, x[node], h, run.seed)], node),
        }
        if len(ids) == 3:  # the control: the message of a node whose neighbours have changed
            other = h.roll(1, 1)
            found["matrix_control"] = error(protocol.matrix_messages(node, x[node], other, run.seed), node)
            found["vector_control"] = error([protocol.vector_message(node, x[node], other, run.seed)], node)
        worst |= {name: max(worst[name], value) for name, value in found.items()}
    sizes = np.array([len(near[node]) for node in chosen])
    largest = int(sizes.max())
    facts = method.facts(extended, state)[0]
    return {
        "result": {
            "whole": int((sizes <= whole + 1).sum()), "in_blocks": int((sizes > whole + 1).sum()), **worst,
            "largest_score": facts["largest_score"], "largest_degree": largest - 1,
            "bytes": {form: 4 * protocol.scalars(form, largest, fed.features) for form in protocol.FORMS},
        }
    }  # fmt: skip


def _chosen(near: list[np.ndarray], wanted: int, seed: int) -> list[int]:
    """Every node, or `wanted` nodes of degree up to 40, every other of them with at least five neighbours."""
    if wanted == 0:
        return list(range(len(near)))
    order = random.uniform((len(near),), "nodes", seed).argsort().tolist()
    few = [node for node in order if len(near[node]) < 6]
    many = [node for node in order if 6 <= len(near[node]) <= 41]
    return few[: wanted - wanted // 2] + many[: wanted // 2]
