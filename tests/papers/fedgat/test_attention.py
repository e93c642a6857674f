"""FedGAT's fused sum of weighted messages against the plain layer."""

from __future__ import annotations

import pytest
import torch

from fedrepro.engine.nn import kernels, layers
from fedrepro.engine.nn.sparse import Edges
from fedrepro.papers.fedgat import attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("heads", "width"), [(8, 8), (3, 5), (2, 64), (1, 1)])
def test_fused_messages_are_those_of_the_layer(heads: int, width: int, dtype: torch.dtype) -> None:
    """Values and both gradients are those of `layers.attend` to the last bit, also where no edge arrives or leaves."""
    generator = torch.Generator().manual_seed(heads)
    nodes, count = 301, attention.BLOCK * 4 + 7
    source = torch.randint(3, nodes, (count,), generator=generator)
    edges = Edges(source, torch.randint(0, nodes - 3, (count,), generator=generator), nodes)
    score = torch.rand(count, heads, generator=generator, dtype=dtype)
    h = torch.randn(nodes, heads, width, generator=generator, dtype=dtype)
    grad = torch.randn(nodes, heads, width, generator=generator, dtype=dtype)
    assert kernels.compiled(h, score.numel())
    results = []
    for attend in (layers.attend, attention.attend):
        inputs = score.clone().requires_grad_(), h.clone().requires_grad_()
        out = attend(edges, *inputs)
        out.backward(grad)
        results.append([out.detach(), *(part.grad for part in inputs)])
    assert all(torch.equal(fused, plain) for plain, fused in zip(*results))


def test_a_second_derivative_is_refused() -> None:
    """The compiled loop has no second derivative, which an error says instead of a gradient without it."""
    edges = Edges(torch.arange(kernels.FEW) % 7, torch.arange(kernels.FEW) % 5, 7)
    score = torch.rand(kernels.FEW, 1, requires_grad=True)
    h = torch.randn(7, 1, 2, requires_grad=True)
    (first,) = torch.autograd.grad(attention.attend(edges, score, h).square().sum(), h, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
