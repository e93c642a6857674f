"""FGGP's second view against dense matrices and torch's own gradients."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from graphs import gap
from plain import F64, normal
from torch import Tensor

from fedrepro.baselines.second_view import Graph, second_view
from fedrepro.engine.nn import random


def first_view(nodes: int, density: float) -> Tensor:
    """A^u at random: 0/1, a full diagonal, not symmetric."""
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(nodes, nodes, generator=generator) < density).to(F64).fill_diagonal_(1)


def plain_view(z: Tensor, first_graph: Tensor, blend: float, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The second view's graph, the gradient straight through; its normalization; the reconstruction loss."""
    inner, n2 = z @ z.T, first_graph.numel()
    p = blend * inner / inner.max().clamp(min=1e-12) + (1 - blend) * first_graph
    soft = torch.sigmoid(torch.logit(p, 1e-6) + torch.logit(u, 1e-6))
    drawn = torch.triu((u > 1 - p) + soft - soft.detach(), 1)
    graph = drawn + drawn.T + torch.eye(len(z), dtype=F64)
    rest = (n2 - first_graph.sum()) / first_graph.sum()
    loss = F.binary_cross_entropy_with_logits(inner, first_graph, pos_weight=rest) * n2 / (2 * (n2 - first_graph.sum()))
    return graph, normal(graph), loss


@pytest.mark.parametrize(("nodes", "columns"), [(2, 3), (30, 20), (700, 3)])
def test_the_second_view_is_its_definition(nodes: int, columns: int) -> None:
    """Graph, two products with it, loss, and every gradient, against whole matrices and automatic differentiation,
    700 nodes in six blocks: the graph entry by entry, the rest to 1e-11.
    """
    generator, first_graph = torch.Generator().manual_seed(1), first_view(nodes, 0.02)
    z = torch.randn(nodes, 6, generator=generator, dtype=F64).relu().requires_grad_()
    x, to1, to2 = (torch.randn(nodes, columns, generator=generator, dtype=F64).requires_grad_() for _ in range(3))
    graph = Graph.of(first_graph)
    assert nodes < 700 or len(graph.blocks) == 6
    sampled, loss = second_view(z, graph, 0.6, "key", 3)
    plain, operator, plain_loss = plain_view(z, first_graph, 0.6, random.uniform((nodes, nodes), "key", 3))
    assert torch.equal(sampled.a, plain.detach().round()) and (nodes < 30 or 0.01 < float(sampled.a.mean()) < 0.5)
    first, wanted = sampled @ x, operator @ x
    second, wanted2 = sampled @ (first * to1.detach()), operator @ (wanted * to1.detach())
    pairs = [
        ((first * to1).sum(), (wanted * to1).sum()),
        ((second * to2).sum(), (wanted2 * to2).sum()),
        (loss, plain_loss),
        ((second * to2).sum() + 3 * loss, (wanted2 * to2).sum() + 3 * plain_loss),
    ]
    for got, expected in pairs:
        assert gap(got.detach(), expected.detach()) <= 1e-11 * max(1.0, abs(float(expected.detach())))
        both = [torch.autograd.grad(v, (z, x), retain_graph=True, materialize_grads=True) for v in (got, expected)]
        assert all(gap(ours, theirs) <= 1e-11 * float(theirs.abs().max()) for ours, theirs in zip(*both))
        assert nodes == 2 or bool(both[0][0].any())


def test_a_second_view_is_freed_when_dropped() -> None:
    """No cycle keeps its matrices: they go with the last reference, before or after the backward pass."""
    z = torch.rand(9, 3, dtype=F64, requires_grad=True)
    for backward in (False, True):
        sampled, loss = second_view(z, Graph.of(first_view(9, 0.2)), 0.5, "key")
        total, seen = (sampled @ z).sum() + loss, weakref.ref(sampled)
        if backward:
            total.backward()
        gc.disable()
        try:
            del sampled, loss, total
            assert seen() is None
        finally:
            gc.enable()


def test_twins_share_the_gradient_of_the_largest_product() -> None:
    """Two nodes with the same Z at which Z Z^T is largest: four entries tie, and the gradient is theirs evenly."""
    first_graph, z = first_view(9, 0.2), torch.rand(9, 3, dtype=F64)
    z[4] = z[7] = 2
    z.requires_grad_()
    x = torch.rand(9, 2, dtype=F64)
    sampled, _ = second_view(z, Graph.of(first_graph), 0.5, "key")
    _, operator, _ = plain_view(z, first_graph, 0.5, random.uniform((9, 9), "key"))
    ours, theirs = (torch.autograd.grad((m @ x)[:, 0].square().sum(), z)[0] for m in (sampled, operator))
    assert gap(ours, theirs) < 1e-12 and bool(theirs.any())


def test_reconstruction_of_a_complete_graph_is_nothing() -> None:
    """All entries one: no rest to tell them from, the loss and its gradient are 0."""
    z = torch.rand(4, 3, dtype=F64).requires_grad_()
    _, loss = second_view(z, Graph.of(torch.ones(4, 4, dtype=F64)), 0.5, "key")
    loss.backward()
    assert float(loss.detach()) == 0 and float(z.grad.abs().max()) == 0


def test_reconstruction_is_torchs_weighted_cross_entropy() -> None:
    """Value and gradient for products up to some hundreds, to 1e-11 of the largest."""
    first_graph, z = first_view(30, 0.2), (20 * torch.rand(30, 4, dtype=F64)).requires_grad_()
    _, _, expected = plain_view(z, first_graph, 0.5, torch.rand(30, 30, dtype=F64))
    _, loss = second_view(z, Graph.of(first_graph), 0.5, "key")
    assert gap(loss.detach(), expected.detach()) < 1e-11 * float(expected.detach())
    (got,), (wanted,) = torch.autograd.grad(loss, z), torch.autograd.grad(expected, z)
    assert gap(got, wanted) < 1e-11 * float(wanted.abs().max())
