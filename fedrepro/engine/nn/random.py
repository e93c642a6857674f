"""Compute random numbers as a pure function of (run seed, client, round, step, layer, node, column).

No function here has a state, so a number never depends on the numbers drawn before it. A run gives the same numbers by
itself or next to other runs, in any chunk and in any order. Keys are 64-bit integers from the finalizer of splitmix64
(Steele, Lea and Flood 2014). Masks use a 32-bit finalizer, whose arithmetic costs about as much as `torch.rand`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedrepro.engine.nn import kernels

# Numbers of 8 bytes computed at once, so that all passes over them stay in a CPU's cache.
PIECE = 2**16
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Clock(NamedTuple):
    """The round and local step that training has reached. Layers draw their dropout masks from it."""

    round: int
    step: int


def _mix(x: np.ndarray) -> np.ndarray:
    """Apply the finalizer of splitmix64 to each uint64 entry. An array is overwritten."""
    with np.errstate(over="ignore"):
        x ^= x >> np.uint64(30)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(27)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return np.asarray(x)


def keys(*parts: int | str | np.ndarray) -> np.ndarray:
    """Return one 64-bit key per combination of parts (integers, names, or integer arrays that broadcast)."""
    key = np.zeros((), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            if isinstance(part, str):
                part = int.from_bytes(hashlib.sha256(part.encode()).digest()[:8], "little")
            number = (
                np.asarray(part).astype(np.uint64) if isinstance(part, np.ndarray) else np.uint64(int(part) % 2**64)
            )
            key = _mix(key * np.uint64(3) + number + _GOLDEN)
    return key


def uniform(shape: tuple[int, ...], *parts: int | str) -> Tensor:
    """Return uniform numbers in (0, 1), float64, that depend only on `parts` and on the position."""
    out, key = np.empty(int(np.prod(shape))), keys(*parts)
    for start in range(0, len(out), PIECE):
        piece = out[start : start + PIECE]
        _fill(piece, np.arange(start, start + len(piece), dtype=np.uint64) * _GOLDEN + key)
    return torch.from_numpy(out).reshape(shape)


def uniform_block(rows: slice, columns: slice, width: int, key: np.ndarray, out: Tensor) -> None:
    """Write some rows and columns of `uniform((any, width), *parts)` into `out`, where `key` is `keys(*parts)`.

    They are computed on the device of `out`, with the same bits everywhere.
    """
    if out.device.type != "cpu":
        out.copy_(_uniform_block(rows, columns, width, key, out.device))
        return
    row, column = (np.arange(part.start, part.stop, dtype=np.uint64) for part in (rows, columns))
    first, second = row * np.uint64(width) * _GOLDEN + key, column * _GOLDEN
    if kernels.compiled(out, out.numel()):
        kernels.uniform(first, second, out)
        return
    numbers = np.empty(out.shape)
    _fill(numbers, first[:, None] + second)
    out.copy_(torch.from_numpy(numbers))


def _uniform_block(rows: slice, columns: slice, width: int, key: np.ndarray, device: torch.device | str) -> Tensor:
    """Compute `uniform_block` in torch's 64-bit integers, which wrap as NumPy's unsigned ones do."""
    golden, start = _signed64(int(_GOLDEN)), _signed64(int(key))
    row, column = (torch.arange(part.start, part.stop, device=device) for part in (rows, columns))
    x = (row * width * golden + start)[:, None] + column * golden
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        x ^= _shifted(x, shift)
        x *= _signed64(factor)
    return _shifted(x, 11).double().add_(0.5).mul_(2.0**-53)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shift 64-bit integers to the right as if they had no sign."""
    return (x >> bits).bitwise_and_(2 ** (64 - bits) - 1)


def _signed64(number: int) -> int:
    return (number & 2**64 - 1) - ((number & 2**63) << 1)


def _fill(out: np.ndarray, places: np.ndarray) -> None:
    """Write uniform numbers into `out`; `places` are positions times the golden ratio plus a key, overwritten."""
    bits = _mix(places)
    bits >>= np.uint64(11)
    np.add(bits, 0.5, out=out)
    out *= 2.0**-53


def normal(shape: tuple[int, ...], *parts: int | str) -> Tensor:
    """Return standard normal numbers, float64, from `uniform` by the Box-Muller transform."""
    radius = torch.sqrt(-2.0 * torch.log(uniform(shape, *parts, "radius")))
    return radius * torch.cos(2.0 * torch.pi * uniform(shape, *parts, "angle"))


def _signed32(key: int) -> int:
    return (key & 0xFFFFFFFF) - ((key & 0x80000000) << 1)


def _scramble(x: Tensor) -> Tensor:
    """Apply a 32-bit finalizer in place. The masks turn torch's arithmetic shifts into logical ones."""
    shifted = x >> 16
    x ^= shifted.bitwise_and_(0xFFFF)
    x *= 0x7FEB352D
    x ^= torch.bitwise_right_shift(x, 15, out=shifted).bitwise_and_(0x1FFFF)
    x *= _signed32(0x846CA68B)
    x ^= torch.bitwise_right_shift(x, 16, out=shifted).bitwise_and_(0xFFFF)
    return x


def row_keys(node_key: Tensor, *call: int | str) -> Tensor:
    """Return a 32-bit key per node for one call of a layer, from the nodes' 64-bit keys, `[nodes]`."""
    mixed = node_key ^ int(keys(*call).astype(np.int64))
    mixed = (mixed ^ ((mixed >> 32) & 0xFFFFFFFF)) * 0x2545F4914F6CDD1D
    return (mixed >> 32).to(torch.int32)


def golden(column: Tensor) -> Tensor:
    """Return columns times the golden ratio, in 32-bit integers that wrap, as `kernels` takes them."""
    return column.to(torch.int32) * _signed32(0x9E3779B9)


def keep(row_key: Tensor, column: Tensor, p: float) -> Tensor:
    """Draw True with probability `1 - p` for each pair of a row key and a column, which broadcast together."""
    kept = torch.empty(np.broadcast_shapes(row_key.shape, column.shape), dtype=torch.bool, device=row_key.device)
    for piece, number in _numbers(kept, row_key, column):
        torch.ge(number, at_least(p), out=piece)
    return kept


def scales(row_key: Tensor, column: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """Return the factors of inverted dropout: `1 / (1 - p)` where `keep` is true, else 0."""
    integer = torch.int32 if dtype.itemsize == 4 else torch.int64
    bits = torch.full((), factor(p, dtype), dtype=dtype, device=row_key.device).view(integer)
    out = torch.empty(np.broadcast_shapes(row_key.shape, column.shape), dtype=integer, device=row_key.device)
    result = out.view(dtype)
    if kernels.compiled(result, out.numel()) and column.dim() == row_key.shape[-1] == 1:
        flat = result.view(-1, len(column))
        kernels.scales(row_key.flatten(), golden(column), at_least(p), factor(p, dtype), flat)
        return result
    for piece, number in _numbers(out, row_key, column):
        # All bits or none, which saves a detour over a mask of booleans.
        ones = number.ge_(at_least(p)).neg_().to(integer)
        torch.bitwise_and(ones, bits, out=piece)
    return result


def factor(p: float, dtype: torch.dtype) -> float:
    """Return `1 / (1 - p)` as rounded in a floating-point type."""
    return float(torch.ones((), dtype=dtype) / (1 - p))


def at_least(p: float) -> int:
    """Return the smallest 32-bit number whose pair is kept."""
    return int(-(2**31) + p * 2**32)


def _numbers(out: Tensor, row_key: Tensor, column: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pieces of `out`, each with a random int32 per entry.

    About a dozen passes compute them: on a CPU piece by piece, on a GPU over all entries at once.
    """
    if out.numel() == 0:
        return
    column = golden(column)
    rows = max(1, 2 * PIECE * len(out) // out.numel()) if out.device.type == "cpu" else len(out)
    for piece, *parts in zip(*(torch.split(x.expand_as(out), rows) for x in (out, row_key, column))):
        yield piece, _scramble(parts[0] + parts[1])
