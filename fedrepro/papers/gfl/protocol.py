"""Run Algorithm 1 of GFL-APPNP line by line, client after client, with whole weights and every grad C_k.

Nothing is stacked, stored in other coordinates or skipped here. `method.py` trains the same numbers faster, and the
check GFL-A1 compares the two. The one departure from the box is the sign of the gradient: the printed (y - y^) climbs,
and we follow (y^ - y) (GFL-Q3). Only clients with training samples take part in lines 1, 4 and 5 (GFL-Q13).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.papers.gfl.clients import Graph


def encode(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Return MLP(x; W) without biases, `[samples, classes]`, for W = (W1, W2)."""
    return F.relu(x @ weights[0]) @ weights[1]


def algorithm1(
    graph: Graph, rows: Sequence[Tensor], y: Tensor, weights: Sequence[Tensor], *, lr: float, local: int, rounds: int
) -> list[Tensor]:
    """Return the server's weights (W1, W2) after some communication rounds.

    Args:
        graph: the graph between clients, with dense features of one run.
        rows: the training samples of each training client, as indices of `graph.x`.
        y: labels, `[samples]`.
        weights: the initial W1 `[features, hidden]` and W2 `[hidden, classes]`.
        lr: eta.
        local: I, updates per round.
    """
    assert isinstance(graph.x, Tensor)
    server = list(weights)
    for _ in range(rounds):
        # On client j: the mean of h over its samples, under the average.
        leaves = [w.clone().requires_grad_() for w in server]
        h = graph.means(encode(graph.x, leaves)[graph.held])
        sent = []
        for k, node in enumerate(graph.train.tolist()):
            # On the server: C_k, and its gradient by automatic differentiation of each class.
            c = graph.off[k] @ h
            gradient_of_c = [torch.autograd.grad(entry, leaves, retain_graph=True) for entry in c]
            local_weights = [w.detach() for w in server]
            for _ in range(local):
                gradient = client_gradient(
                    graph.x[rows[k]], y[rows[k]], local_weights, graph.a[node, node], c.detach(), gradient_of_c
                )
                local_weights = [w - lr * g for w, g in zip(local_weights, gradient)]
            sent.append(local_weights)
        # On the server: the mean of what the clients upload.
        server = [sum(w / len(sent) for w in part) for part in zip(*sent)]
    return server


def client_gradient(
    x: Tensor, y: Tensor, weights: Sequence[Tensor], a_kk: Tensor, c: Tensor, gradient_of_c: Sequence[Sequence[Tensor]]
) -> list[Tensor]:
    """Return g_k = mean_s (y^_ks - y_ks) (A_kk grad h_ks + grad C_k), one tensor for W1 and one for W2.

    Args:
        x, y: the samples of the batch.
        c: C_k, `[classes]`.
        gradient_of_c: grad C_kc for each class c, by W1 and by W2.
    """
    leaves = [w.clone().requires_grad_() for w in weights]
    h = encode(x, leaves)
    residual = ((a_kk * h + c).softmax(1) - F.one_hot(y, h.shape[1])).detach() / len(x)
    gradient = list(torch.autograd.grad((residual * a_kk * h).sum(), leaves))
    for error, part in zip(residual.sum(0), gradient_of_c):
        gradient = [g + error * p for g, p in zip(gradient, part)]
    return gradient
