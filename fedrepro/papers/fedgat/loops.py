"""The loop of `fedrepro.papers.fedgat.method.attend`, compiled by Numba. It is the plain reading of its formula."""

from __future__ import annotations

import numba


@numba.njit(cache=True, nogil=True)
def mix(ptr, edge, other, score, rows, out):  # type: ignore[no-untyped-def]
    """Add into `out`, which holds zeros, what `method._mix` describes."""
    for i in range(len(ptr) - 1):
        for at in range(ptr[i], ptr[i + 1]):
            e = edge[at]
            j = other[e]
            for head in range(score.shape[1]):
                weight = score[e, head]
                for k in range(rows.shape[2]):
                    out[i, head, k] += weight * rows[j, head, k]
