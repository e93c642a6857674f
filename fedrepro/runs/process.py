"""Set up a process for computing: one thread, and freed memory of large tensors kept."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # numbers of glibc's mallopt(3)
_KEPT_BLOCK = 2**27  # holds the stacked weights of a hundred clients, not the features of a large graph
_KEPT_BYTES = 2**30


def settle(device: str = "cpu") -> None:
    """Set torch, if loaded, to one thread, and let the C library keep freed blocks of up to 128 MiB, 1 GiB in all.

    For a GPU torch is also set to algorithms that give the same bits in every run, where it has them, and to products
    in full float32.

    On small graphs a second thread slows both down, and the number of threads changes the last bits. Memory: glibc
    gives a freed block of more than 32 MiB back to the system, so that every round touches the pages of its stacked
    weights for the first time, which takes longer than its arithmetic. Elsewhere than on glibc nothing is set.
    """
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
        if device == "cuda":
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read with the first product on the GPU
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # each filling would be one more launch
            torch.set_float32_matmul_precision("highest")
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, _KEPT_BLOCK)
            mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


@contextmanager
def restored() -> Iterator[None]:
    """Take float32 for torch's default inside, and restore it, the threads and what `settle` sets for a GPU afterwards.

    A script of which the default is float64 would else change what methods draw.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    dtype, threads, precision = torch.get_default_dtype(), torch.get_num_threads(), torch.get_float32_matmul_precision()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns, fills = torch.is_deterministic_algorithms_warn_only_enabled(), torch.utils.deterministic
    filled = fills.fill_uninitialized_memory
    try:
        torch.set_default_dtype(torch.float32)
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(deterministic, warn_only=warns)
        fills.fill_uninitialized_memory = filled


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the garbage collector in a block, or as a decorator in a function.

    Its search for reference cycles takes about a quarter of the time of reading a store.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def give_back() -> None:
    """Free what finished runs hold on a GPU, so that others find it free."""
    torch: Any = sys.modules["torch"]
    gc.collect()
    torch.cuda.empty_cache()


def peak_mebibytes(work: Callable[..., Any], *arguments: Any) -> float:
    """Return the largest resident memory in MiB, libraries included, of a new process that calls `work(*arguments)`.

    Args:
        work: a function of a module, which the process imports.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_resident, (work, arguments))


def _resident(work: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    settle()
    work(*arguments)
    return resident_mebibytes()


def resident_mebibytes() -> float:
    """Return the largest resident memory of this process until now, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would also count the parent's memory, inherited through fork
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8"))
        if found:
            return int(found.group(1)) / 1024
    import resource  # not on every system

    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts in bytes, other systems in KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
