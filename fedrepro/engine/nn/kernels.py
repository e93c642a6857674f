"""Compute the passes over memory that dominate dropout as one compiled loop each, on a CPU.

A mask by the hash of `fedrepro.engine.nn.random` takes about a dozen passes of torch operations. Numba compiles the
same integer arithmetic into one pass, with the same bits, and needs no compiler at installation. The first call of a
kernel compiles it for some seconds and keeps the result in a cache on the disk. `compiled` decides where the kernels
are used; elsewhere torch operations compute the same numbers.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Number of entries below which torch operations take less time than loading the kernels.
FEW = 2**14


def compiled(like: Tensor, entries: int) -> bool:
    """Return whether the kernels compute `entries` numbers of the type and on the device of `like`."""
    here = like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64)
    return here and entries >= FEW and _installed()


def scales(row_key: Tensor, column: Tensor, at_least: int, value: float, out: Tensor) -> None:
    """Write `value` where the pair of row key and column is kept, else 0.

    Args:
        row_key: int32 `[rows]`.
        column: int32 `[columns]`, multiplied by the golden ratio.
        at_least: the smallest 32-bit number whose pair is kept.
        value: the factor of kept entries, exact in the type of `out`.
        out: `[rows, columns]`, overwritten.
    """
    _kernels().scales(row_key.numpy(), column.numpy(), np.int32(at_least), _scalar(value, out), out.numpy())


def scaled(x: Tensor, row_key: Tensor, column: Tensor, at_least: int, value: float) -> Tensor:
    """Return `x` times the factors of `scales`, `[rows, columns]`."""
    out = torch.empty_like(x)
    _kernels().scaled(x.numpy(), row_key.numpy(), column.numpy(), np.int32(at_least), _scalar(value, x), out.numpy())
    return out


def rectified(x: Tensor, row_key: Tensor, column: Tensor, at_least: int, value: float) -> tuple[Tensor, Tensor]:
    """Return `relu(x)` times the factors of `scales`, and the slope of the result in `x`, `[rows, columns]` each."""
    out, slope = torch.empty_like(x), torch.empty_like(x)
    _kernels().rectified(
        x.numpy(), row_key.numpy(), column.numpy(), np.int32(at_least), _scalar(value, x), out.numpy(), slope.numpy()
    )
    return out, slope


def dropped(value: Tensor, row: Tensor, column: Tensor, row_key: Tensor, at_least: int, keep: float) -> Tensor:
    """Return `value / keep` for the kept entries of a sparse matrix, else 0, `[entries]`.

    Args:
        value: `[entries]`.
        row: the row of each entry.
        column: int32 `[entries]`, the column of each entry times the golden ratio.
        row_key: int32 `[rows]`.
        at_least: the smallest 32-bit number whose pair is kept.
        keep: the probability of keeping an entry.
    """
    out = torch.empty_like(value)
    arrays = [part.numpy() for part in (value, row, column, row_key)]
    _kernels().dropped(*arrays, np.int32(at_least), _scalar(keep, value), out.numpy())
    return out


def uniform(first: np.ndarray, second: np.ndarray, out: Tensor) -> None:
    """Write uniform numbers in (0, 1), `[rows, columns]`, at the positions `first[i] + second[j]` of uint64."""
    _kernels().uniform(first, second, out.numpy())


def _scalar(value: float, like: Tensor) -> Any:
    return np.float32(value) if like.dtype == torch.float32 else np.float64(value)


@cache
def _installed() -> bool:
    return find_spec("numba") is not None


@cache
def _kernels() -> ModuleType:
    # Numba takes half a second to import, which a run on a small graph does not need.
    from fedrepro.engine.nn import loops

    return loops
