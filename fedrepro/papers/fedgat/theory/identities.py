"""Check FedGAT's identities on random nodes, and the layer from messages on a graph.

The identities are Eq. 9 to 14, 21, 22 and those of Appendix F. A row of a check has the largest error over the nodes.
Each identity has a negative control, the same measurement in a case where the identity must not hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.polynomial.chebyshev import chebval
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import GAT
from fedrepro.papers.fedgat import protocol
from fedrepro.papers.fedgat.method import FedGAT
from fedrepro.papers.fedgat.protocol import Message
from fedrepro.papers.fedgat.theory.trials import largest, random_node
from fedrepro.reporting.checks import ROUNDING, Row, control, row, worst_of
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

SIZES = (1, 2, 3, 5, 8, 13)  # neighbours of the random nodes
FEATURES, HEADS, DEGREE = 7, 2, 8

# The statement of each identity, and that of its negative control.
STATEMENTS = {
    "FG-I1": (
        "U_j U_j = U_j, U_j U_k = 0, D^n = sum_j x_ij^n U_j, n = 1..8 (either order of r and 1/r)",
        "the same with vectors that are not orthonormal",
    ),
    "FG-I2": (
        "E^(n), F^(n) from K1, D, K2, n = 0..8, the term n = 0 halved",
        "the same with D^0 = I, as printed: n = 0 counted twice (FG-Q2)",
    ),
    "FG-I3": (
        "D = sum_s b1(s) M1(s) + b2(s) M2(s)",
        "the same with b2(s) + h_j(s), as printed (FG-Q5)",
    ),
    "FG-I5": (
        "Vector FedGAT: E^(n), F^(n) from elementwise powers of R, n = 0..8",
        "the same with R = D, before mask 4 is applied",
    ),
    "FG-Q6": (
        "K1^T M2(s) K1 = sum_j h_j(s), and K1^T K2 = 2 sum_j h_j^T",
        "K1^T M2(s) K2 = sum_j h_j(s), as printed: it is sum_j h_j(s) h_j^T",
    ),
}


def identities(run: Run) -> dict[str, Any]:
    """Check the identities FG-I1 to FG-I5 and the sum of Section 5 (FG-Q6) on random nodes of six sizes.

    The controls are measured at the largest node.
    """
    errors, controls = zip(*(_node_errors(g, run.seed) for g in SIZES))
    worst = largest(errors)
    checks = [row(name, text, worst[name], ROUNDING) for name, (text, _) in STATEMENTS.items()]
    checks += [control(name, text, controls[-1][name], ROUNDING) for name, (_, text) in STATEMENTS.items()]
    return {"result": {"checks": checks + _chebyshev()}}


def _node_errors(g: int, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the errors of all identities and of their controls at one random node with `g` neighbours."""
    h, b1, b2 = random_node(g, FEATURES, HEADS, seed)
    (message,) = protocol.matrix_messages(g, h[0], h, seed)
    vector = protocol.vector_message(g, h[0], h, seed)
    k1, m2 = message.k1, message.m2
    x = (b1 @ h[0])[:, None] + b2 @ h.T  # [heads, g]
    e, f = _powers(x) @ h, _powers(x).sum(2)
    _, u = protocol.projectors(g, seed, g)
    d, k2 = protocol.combination([message], b1, b2)
    exact = torch.einsum("hj,jab->hab", x, u)
    matrix_e, matrix_f = protocol.matrix_moments(d, k1, k2, DEGREE)
    vector_e, vector_f = protocol.moments([vector], b1, b2, DEGREE)
    errors = {
        "FG-I1": worst_of((_projection_error(u, x), _projection_error(u.transpose(1, 2), x))),
        "FG-I2": worst_of((_gap(matrix_e, e), _gap(matrix_f, f))),
        "FG-I3": _gap(d, exact),
        "FG-I5": worst_of((_gap(vector_e, e), _gap(vector_f, f))),
        "FG-Q6": worst_of((_gap(torch.einsum("a,sab,b->s", k1, m2, k1), h.sum(0)), _gap(k1 @ k2, 2 * h.sum(0)))),
    }
    bent = random.normal((g, 2 * g), "bent", seed, g)  # unit vectors that are not orthogonal
    bent = bent / bent.norm(dim=1, keepdim=True)
    printed = (b1 @ h[0] + b2.sum(1))[:, None] + h.sum(1)  # x_ij with b2(s) + h_j(s) (FG-Q5)
    unmasked = b1 @ vector.m1 + b2 @ vector.m2
    controls = {
        "FG-I1": _projection_error(bent[:, :, None] * bent[:, None, :], x),
        "FG-I2": _gap(k1 @ k2, e[0, 0]),
        "FG-I3": _gap(torch.einsum("hj,jab->hab", printed, u), exact),
        "FG-I5": _gap(_powers(unmasked) @ vector.k1, e),
        "FG-Q6": _gap(torch.einsum("a,sab,bt->st", k1, m2, k2), h.sum(0)[:, None]),
    }
    return errors, controls


def _powers(x: Tensor) -> Tensor:
    """Return x^n for n = 0..DEGREE, `[DEGREE + 1, ...]`."""
    return x[None] ** torch.arange(DEGREE + 1)[:, None, None]


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def _projection_error(u: Tensor, x: Tensor) -> float:
    """Return the largest error of FG-I1 for matrices u `[g, 2g, 2g]` and scores x `[heads, g]`."""
    same = torch.eye(len(u), dtype=u.dtype)[:, :, None, None] * u[None]
    d = torch.einsum("hj,jab->hab", x, u)
    errors, power = [_gap(u[:, None] @ u[None], same)], d
    for n in range(2, DEGREE + 1):
        power = power @ d
        errors.append(_gap(power, torch.einsum("hj,jab->hab", x**n, u)))
    return worst_of(errors)


def _chebyshev() -> list[Row]:
    """Check FG-I4, that T_n(cos t) = cos(n t) and that the T_n are orthogonal under the weight (Eq. 21, 22)."""
    theta = np.pi * (np.arange(64) + 0.5) / 64  # Gauss-Chebyshev nodes, exact below degree 128
    basis = chebval(np.cos(theta), np.eye(17))
    cosines = np.abs(basis - np.cos(np.arange(17)[:, None] * theta)).max()
    gram = np.pi / 64 * basis @ basis.T
    error = worst_of((float(cosines), float(np.abs(gram - np.diag([np.pi] + [np.pi / 2] * 16)).max())))
    nodes, weights = np.polynomial.legendre.leggauss(64)
    unweighted = chebval(nodes, np.eye(17))
    products = (weights * unweighted) @ unweighted.T
    off = float(np.abs(products - np.diag(np.diag(products))).max())
    return [
        row("FG-I4", "T_n(cos t) = cos(n t), orthogonal under 1/sqrt(1 - x^2), n = 0..16", error, ROUNDING),
        control("FG-I4", "the same orthogonality without the weight", off, ROUNDING),
    ]


# -- the protocol on a graph ------------------------------------------------------------------------------------------


class FirstLayer(GAT):
    """A GAT that stops before its second layer. Its logits are the heads of the first layer, concatenated."""

    def second_layer(self, weights: Weights, fed: Federation, h: Tensor) -> Tensor:
        """Return the heads `[nodes, heads * hidden]`."""
        return h.flatten(1)


def equal_layers(run: Run) -> dict[str, Any]:
    """Compare the first layer from messages with its edge form, in both forms and in float64, at nodes of a graph.

    Options: `nodes` is the number of nodes of degree up to 40 that are compared (0 means every node). Nodes of degree
    up to `whole` (40) receive their Matrix message whole, the others in blocks of 64 features.

    Returns:
        "whole" and "in_blocks" are numbers of nodes. "matrix", "matrix_in_blocks" and "vector" are the largest errors.
        "matrix_control" and "vector_control" are those with other features in the message. "largest_score" is the
        largest |x_ij|, "largest_degree" that of the nodes, and "bytes" those of the largest message in float32, by
        form.
    """
    whole = int(run.options.get("whole", 40))
    fed = tasks.federation([run], dtype=torch.float64)
    data = fed.sources[0].data
    network = FirstLayer(features=fed.features, classes=fed.classes, hidden=8, heads=8)
    method = FedGAT(model=network, degree=16, interval=4.0)
    extended, state = method.start(fed)
    # Scores reach 3.5, which is much of the interval. None is beyond it, where powers of x would grow without bound.
    share = 3.5 / method.facts(extended, state)[0]["largest_score"]
    vectors = ("layer1.source", "layer1.target")
    state = replace(state, shared={name: w * share if name in vectors else w for name, w in state.shared.items()})
    server = {name: w[0] for name, w in state.shared.items()}
    inner = extended.batch.ring == 0
    expected = torch.empty(data.num_nodes, 64, dtype=torch.float64)
    expected[extended.batch.node_id[inner]] = method.predict(extended, state)[inner]
    near, x = protocol.neighbours(data), protocol.dense_features(data)

    def error(form: str, node: int, h: Tensor, block: int | None = None) -> float:
        message: Iterable[Message] = protocol.message_parts(form, node, x[node], h, run.seed, block=block)
        heads = protocol.layer(message, server, method.series, method.interval)
        return _gap(heads.flatten(), expected[node])

    def errors(node: int) -> dict[str, float]:
        h, large = x[near[node]], len(near[node]) > whole + 1
        name = "matrix_in_blocks" if large else "matrix"
        gaps = {name: error("matrix", node, h, 64 if large else None), "vector": error("vector", node, h)}
        if len(h) == 3:  # a control at some nodes is enough
            gaps |= {f"{form}_control": error(form, node, h.roll(1, 1)) for form in protocol.FORMS}
        return gaps

    chosen = _choose(near, int(run.options.get("nodes", 0)), run.seed)
    names = ("matrix", "matrix_in_blocks", "vector", "matrix_control", "vector_control")
    sizes = np.array([len(near[node]) for node in chosen])
    return {
        "result": {
            "whole": int((sizes <= whole + 1).sum()),
            "in_blocks": int((sizes > whole + 1).sum()),
            **largest([dict.fromkeys(names, 0.0), *(errors(node) for node in chosen)]),
            "largest_score": method.facts(extended, state)[0]["largest_score"],
            "largest_degree": int(sizes.max()) - 1,
            "bytes": {form: 4 * protocol.scalars(form, int(sizes.max()), fed.features) for form in protocol.FORMS},
        }
    }


def _choose(near: list[np.ndarray], wanted: int, seed: int) -> list[int]:
    """Return all nodes, or `wanted` random ones of degree up to 40, half of them with at least five neighbours."""
    if wanted == 0:
        return list(range(len(near)))
    order = random.uniform((len(near),), "nodes", seed).argsort().tolist()
    few = [node for node in order if len(near[node]) < 6]
    many = [node for node in order if 6 <= len(near[node]) <= 41]
    return few[: wanted - wanted // 2] + many[: wanted // 2]
