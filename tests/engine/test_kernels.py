"""Compiled loops against the torch operations that they replace, to the bit."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from loop import task

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import kernels, layers, random
from fedrepro.engine.nn.random import Clock
from fedrepro.engine.nn.sparse import Sparse

DTYPES = [torch.float32, torch.float64]
SHAPES = [(1, 1), (3, 7), (128, 1), (1, 129), (257, 33)]


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def bits(x: torch.Tensor) -> list[int]:
    """Return the bits of all entries, so that 0 and -0 and two NaNs can be told apart or found equal."""
    return x.contiguous().view(torch.int32 if x.dtype == torch.float32 else torch.int64).flatten().tolist()


def both(monkeypatch: pytest.MonkeyPatch, make):  # type: ignore[no-untyped-def]
    """Return what `make` computes by torch operations and by the compiled loops."""
    results = []
    for few in (10**9, 0):
        monkeypatch.setattr(kernels, "FEW", few)
        results.append(make())
    return results


def keys(rows: int) -> torch.Tensor:
    return random.row_keys(torch.arange(rows) * 12345678910111, "dropout", "layer1", 3, 1)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.97])
@pytest.mark.parametrize("shape", SHAPES)
def test_masks_are_those_of_torch_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], p: float, dtype: torch.dtype
) -> None:
    """Factors of inverted dropout, of two and of three dimensions."""
    rows, columns = shape
    key, column = keys(rows), torch.arange(columns)
    plain, fast = both(monkeypatch, lambda: random.scales(key[:, None], column, p, dtype))
    assert bits(plain) == bits(fast) and fast.dtype == dtype
    cube = keys(2 * rows).view(2, rows, 1)
    plain, fast = both(monkeypatch, lambda: random.scales(cube, column, p, dtype))
    assert bits(plain) == bits(fast) and fast.shape == (2, rows, columns)


def test_another_key_or_column_gives_another_mask() -> None:
    """The control: a comparison to the bit tells masks of neighbouring keys and columns apart."""
    key, column = keys(64), torch.arange(512)
    one = torch.empty(64, 512)
    other = torch.empty(64, 512)
    for out, shift in ((one, 0), (other, 1)):
        kernels.scales(key, random.golden(column + shift), random.at_least(0.5), 2.0, out)
    assert bits(one) != bits(other) and bits(one[:, 1:]) == bits(other[:, :-1])


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_uniform_blocks_are_those_of_numpy_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, p: float, dtype: torch.dtype
) -> None:
    """Rows and columns of the whole matrix, rounded to the type asked for."""
    whole = random.uniform((90, 70), "block", p)
    drawn = random.keys("block", p)

    def make() -> torch.Tensor:
        out = torch.empty(30, 41, dtype=dtype)
        random.uniform_block(slice(11, 41), slice(20, 61), 70, drawn, out)
        return out

    plain, fast = both(monkeypatch, make)
    assert bits(plain) == bits(fast) == bits(whole[11:41, 20:61].to(dtype))


def federation(dtype: torch.dtype) -> Federation:
    data, parts = task(5)
    return Federation.of(data, parts, 3, dtype=dtype).at(2, 1)


@pytest.mark.parametrize("odd", [0.0, -0.0, float("inf"), float("nan")])
@pytest.mark.parametrize("p", [0.3, 0.5])
def test_relu_and_dropout_in_one_pass_are_the_two_in_a_row(
    monkeypatch: pytest.MonkeyPatch, p: float, odd: float, dtype: torch.dtype
) -> None:
    """Values and gradients equal up to the sign of a zero, and a NaN passes."""
    fed = federation(dtype)
    h = torch.randn(fed.nodes, 33, dtype=dtype, generator=torch.Generator().manual_seed(0))
    h[::5, ::3] = odd
    upstream = torch.randn(fed.nodes, 33, dtype=dtype, generator=torch.Generator().manual_seed(1))

    def make() -> tuple[torch.Tensor, torch.Tensor]:
        leaf = h.clone().requires_grad_()
        out = layers.relu_dropout(fed, leaf, p, "layer2")
        (grad,) = torch.autograd.grad((out * upstream)[out.isfinite()].sum(), leaf)
        return out.detach(), grad

    (plain, slope), (fast, slope_) = both(monkeypatch, make)
    assert torch.equal(plain.nan_to_num(7.0), fast.nan_to_num(7.0))
    assert torch.equal(plain.isnan(), fast.isnan()) and torch.equal(slope, slope_)
    reference = layers.dropout(fed, F.relu(h), p, "layer2")
    assert torch.equal(reference.nan_to_num(7.0), fast.nan_to_num(7.0))
    off = layers.relu_dropout(fed, h, 0.0, "layer2")
    assert torch.equal(off.nan_to_num(7.0), F.relu(h).nan_to_num(7.0))


@pytest.mark.parametrize("p", [0.3, 0.5])
def test_dropped_features_are_those_of_torch(monkeypatch: pytest.MonkeyPatch, p: float, dtype: torch.dtype) -> None:
    """Dense with and without gradient, sparse values in both orders, blocks of several clients."""
    fed = federation(dtype)
    x = torch.randn(fed.nodes, 29, dtype=dtype, generator=torch.Generator().manual_seed(0))
    for wanted in (False, True):
        leaf = x.clone().requires_grad_(wanted)
        plain, fast = both(monkeypatch, lambda leaf=leaf: layers.dropout(fed, leaf, p, "layer1").detach())
        assert bits(plain) == bits(fast)
    sparse = Sparse.from_tensor(x * (x > 0.5)).blocks(torch.arange(fed.nodes) % 3, 3)
    key = random.row_keys(fed.node_key, "dropout", "layer1", *Clock(2, 1))
    plain, fast = both(monkeypatch, lambda: sparse.dropped(key, 29, p))
    assert bits(plain.value) == bits(fast.value) and bits(plain.value_t) == bits(fast.value_t)
    assert 0 < (fast.value == 0).float().mean() < 1


def test_without_numba_torch_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels are not used, even for many entries."""
    monkeypatch.setattr(kernels, "FEW", 0)
    monkeypatch.setattr(kernels, "_installed", lambda: False)
    monkeypatch.setattr(kernels, "_kernels", lambda: pytest.fail("a kernel was asked for"))
    fed = federation(torch.float32)
    assert layers.relu_dropout(fed, torch.randn(fed.nodes, 8), 0.5, "layer2").shape == (fed.nodes, 8)
