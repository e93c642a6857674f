"""How a process computes: with one thread, and with the memory of large tensors kept."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # numbers of glibc's mallopt(3)
_KEPT_BYTES = 2**30


def settle() -> None:
    """Set torch, if loaded, to one thread, and let the C library reuse freed memory up to 1 GiB a block.

    On small graphs a second thread slows both down, and the number of threads changes the last bits. Memory: glibc
    gives a freed block of more than 32 MiB back to the system, so that every round touches the pages of its stacked
    weights for the first time, which takes longer than its arithmetic. Elsewhere than on glibc nothing is set.
    """
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
            mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


@contextmanager
def restored_threads() -> Iterator[None]:
    """What runs inside may change torch's number of threads; afterwards it is as before."""
    torch: Any = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else None
    try:
        yield
    finally:
        if before is not None:
            torch.set_num_threads(before)
