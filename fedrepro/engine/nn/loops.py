"""The loops of `fedrepro.engine.nn.kernels`, compiled by Numba. Each is the plain reading of its formula.

Numba widens products of 32-bit integers to 64 bits, so each step is cut back to 32 bits.
"""

from __future__ import annotations

import numba
import numpy as np

_compile = numba.njit(cache=True, nogil=True)


@_compile
def _number(key, column):  # type: ignore[no-untyped-def]
    """Return the random 32-bit number of a pair, see `random._scramble`."""
    x = np.uint32(np.uint32(key) + np.uint32(column))
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x7FEB352D))
    x = np.uint32(x ^ (x >> np.uint32(15)))
    x = np.uint32(x * np.uint32(0x846CA68B))
    x = np.uint32(x ^ (x >> np.uint32(16)))
    return np.int32(x)


@_compile
def scales(row_key, column, at_least, value, out):  # type: ignore[no-untyped-def]
    """See `kernels.scales`."""
    zero = value - value
    for i in range(len(row_key)):
        for j in range(len(column)):
            out[i, j] = value if _number(row_key[i], column[j]) >= at_least else zero


@_compile
def scaled(x, row_key, column, at_least, value, out):  # type: ignore[no-untyped-def]
    """See `kernels.scaled`."""
    zero = value - value
    for i in range(len(row_key)):
        for j in range(len(column)):
            out[i, j] = x[i, j] * (value if _number(row_key[i], column[j]) >= at_least else zero)


@_compile
def rectified(x, row_key, column, at_least, value, out, slope):  # type: ignore[no-untyped-def]
    """See `kernels.rectified`. A NaN passes, so that a run that diverged is seen to."""
    zero = value - value
    for i in range(len(row_key)):
        for j in range(len(column)):
            factor = value if _number(row_key[i], column[j]) >= at_least else zero
            negative = x[i, j] <= zero
            slope[i, j] = zero if negative else factor
            out[i, j] = zero if negative else x[i, j] * factor


@_compile
def dropped(value, row, column, row_key, at_least, keep, out):  # type: ignore[no-untyped-def]
    """See `kernels.dropped`."""
    zero = keep - keep
    for entry in range(len(value)):
        kept = _number(row_key[row[entry]], column[entry]) >= at_least
        out[entry] = value[entry] / keep if kept else zero


@_compile
def uniform(first, second, out):  # type: ignore[no-untyped-def]
    """See `kernels.uniform` and `random._fill`."""
    for i in range(len(first)):
        for j in range(len(second)):
            x = first[i] + second[j]
            x ^= x >> np.uint64(30)
            x *= np.uint64(0xBF58476D1CE4E5B9)
            x ^= x >> np.uint64(27)
            x *= np.uint64(0x94D049BB133111EB)
            x ^= x >> np.uint64(31)
            out[i, j] = (np.float64(x >> np.uint64(11)) + 0.5) * 2.0**-53
