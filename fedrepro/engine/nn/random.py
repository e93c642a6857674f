"""Randomness as a pure function of (run seed, client, round, step, layer, node, column).

Nothing here has a state, so a number never depends on what was drawn before it: a run gives the same
numbers alone or beside others, in any chunk and in any order.
Keys are 64-bit integers made by the finalizer of splitmix64 (Steele, Lea and Flood 2014); masks use a 32-bit
finalizer, whose arithmetic costs about as much as `torch.rand`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

PIECE = 2**16  # numbers of 8 bytes made at once: what passes over them stays in a CPU's cache
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64, elementwise on uint64; an array is overwritten."""
    with np.errstate(over="ignore"):
        x ^= x >> np.uint64(30)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(27)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return np.asarray(x)


def keys(*parts: int | str | np.ndarray) -> np.ndarray:
    """One 64-bit key for each combination of parts (integers, names, or integer arrays that broadcast)."""
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
    """Numbers in (0, 1), float64, a function of `parts` and of the position alone."""
    out, key = np.empty(int(np.prod(shape))), keys(*parts)
    for start in range(0, len(out), PIECE):
        piece = out[start : start + PIECE]
        _fill(piece, np.arange(start, start + len(piece), dtype=np.uint64) * _GOLDEN + key)
    return torch.from_numpy(out).reshape(shape)


def uniform_block(rows: slice, columns: slice, width: int, key: np.ndarray) -> Tensor:
    """What `uniform((any, width), *parts)` has in some rows and columns, `key` being `keys(*parts)`."""
    out = np.empty((rows.stop - rows.start, columns.stop - columns.start))
    row, column = (np.arange(part.start, part.stop, dtype=np.uint64) for part in (rows, columns))
    _fill(out, (row * np.uint64(width) * _GOLDEN + key)[:, None] + column * _GOLDEN)
    return torch.from_numpy(out)


def _fill(out: np.ndarray, places: np.ndarray) -> None:
    """Uniform numbers, into `out`, from positions times the golden ratio plus a key (uint64, overwritten)."""
    bits = _mix(places)
    bits >>= np.uint64(11)
    np.add(bits, 0.5, out=out)
    out *= 2.0**-53


def normal(shape: tuple[int, ...], *parts: int | str) -> Tensor:
    """Standard normal numbers, float64, by Box and Muller from `uniform`."""
    radius = torch.sqrt(-2.0 * torch.log(uniform(shape, *parts, "radius")))
    return radius * torch.cos(2.0 * torch.pi * uniform(shape, *parts, "angle"))


def _signed32(key: int) -> int:
    return (key & 0xFFFFFFFF) - ((key & 0x80000000) << 1)


def _scramble(x: Tensor) -> Tensor:
    """A 32-bit finalizer, in place; the masks make torch's arithmetic shifts logical ones."""
    shifted = x >> 16
    x ^= shifted.bitwise_and_(0xFFFF)
    x *= 0x7FEB352D
    x ^= torch.bitwise_right_shift(x, 15, out=shifted).bitwise_and_(0x1FFFF)
    x *= _signed32(0x846CA68B)
    x ^= torch.bitwise_right_shift(x, 16, out=shifted).bitwise_and_(0xFFFF)
    return x


def row_keys(node_key: Tensor, *call: int | str) -> Tensor:
    """A 32-bit key for each node `[nodes]` in one call, from the nodes' 64-bit keys."""
    mixed = node_key ^ int(keys(*call).astype(np.int64))
    mixed = (mixed ^ ((mixed >> 32) & 0xFFFFFFFF)) * 0x2545F4914F6CDD1D
    return (mixed >> 32).to(torch.int32)


def keep(row_key: Tensor, column: Tensor, p: float) -> Tensor:
    """True with probability `1 - p`, for each pair of a row key and a column that broadcast together."""
    kept = torch.empty(np.broadcast_shapes(row_key.shape, column.shape), dtype=torch.bool, device=row_key.device)
    for piece, number in _numbers(kept, row_key, column):
        torch.ge(number, _at_least(p), out=piece)
    return kept


def scales(row_key: Tensor, column: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """What inverted dropout multiplies by: `1 / (1 - p)` where `keep` is true, else 0."""
    integer = torch.int32 if dtype.itemsize == 4 else torch.int64
    bits = (torch.ones((), dtype=dtype, device=row_key.device) / (1 - p)).view(integer)
    out = torch.empty(np.broadcast_shapes(row_key.shape, column.shape), dtype=integer, device=row_key.device)
    for piece, number in _numbers(out, row_key, column):
        ones = number.ge_(_at_least(p)).neg_().to(integer)  # all bits or none: no detour over a mask of booleans
        torch.bitwise_and(ones, bits, out=piece)
    return out.view(dtype)


def _at_least(p: float) -> int:
    """The number from which on a pair is kept."""
    return int(-(2**31) + p * 2**32)


def _numbers(out: Tensor, row_key: Tensor, column: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Pieces of `out` and, for each, an int32 of every pair: a dozen passes, on a CPU piece by piece, on a GPU over
    all at once.
    """
    if out.numel() == 0:
        return
    column = column.to(torch.int32) * _signed32(0x9E3779B9)
    rows = max(1, 2 * PIECE * len(out) // out.numel()) if out.device.type == "cpu" else len(out)
    for piece, *parts in zip(*(torch.split(x.expand_as(out), rows) for x in (out, row_key, column))):
        yield piece, _scramble(parts[0] + parts[1])
