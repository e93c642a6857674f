"""Executors that compute runs: this process, a pool of processes, a Dask cluster, or Slurm.

Each is a `concurrent.futures.Executor`, which `fedrepro.runs.lanes` feeds.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

from fedrepro import paths
from fedrepro.errors import ArgumentError, is_whole, one_of, require

T = TypeVar("T")

ENGINES = ("local", "dask", "slurm")
NOTEBOOKS = 4  # at once that share a GPU, each of which may hold half a gigabyte of it for nothing but its context
ANSWER_SECONDS = 3.0  # a scheduler that takes longer to answer counts as not there
SCHEDULER = "the address of a Dask scheduler, such as 'tcp://host:8786'"


def cores() -> int:
    """Return the default number of workers: `$FEDREPRO_WORKERS`, else the cores that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, _named("FEDREPRO_WORKERS") or allowed or 1)


def per_gpu() -> int:
    """Return how many processes of a sweep share each GPU: `$FEDREPRO_PER_GPU`, else one.

    Python feeds a GPU more slowly than the GPU computes, so several processes leave it idle less. They share its
    memory, and take turns unless NVIDIA's Multi-Process Service runs.
    """
    return _named("FEDREPRO_PER_GPU") or 1


def _named(variable: str) -> int:
    """Return the positive integer that an environment variable holds, or 0 if it is not set."""
    given = os.environ.get(variable, "")
    require(given == "" or (given.isdecimal() and int(given) > 0), variable, "an integer >= 1", given)
    return int(given or 0)


def resolved(device: str) -> str:
    """Return `cpu` or `cuda` for `device`; `auto` means a GPU if there is one.

    Raises:
        ArgumentError: `cuda` is asked for and there is no GPU.
    """
    if device == "cpu":
        return device
    import torch

    has_gpu = torch.cuda.is_available()
    require(has_gpu or device == "auto", "device", "'auto' or 'cpu' where no GPU is found", device)
    if not has_gpu and has_driver():
        _say_why_not(torch.__version__, torch.version.cuda)
    return "cuda" if has_gpu else "cpu"


@cache
def _say_why_not(version: str, cuda: str | None) -> None:
    """Warn, once a process, that a GPU seems to be here and is not used."""
    why = f"is built for CUDA {cuda}, which the driver may be too old for" if cuda else "is built without CUDA"
    told = f"`nvidia-smi` is installed, but torch finds no GPU: torch {version} {why}. All is computed on the CPU."
    warnings.warn(told, stacklevel=3)


def has_driver() -> bool:
    """Return whether this machine seems to have a GPU of NVIDIA. It is found without torch."""
    return shutil.which("nvidia-smi") is not None


def gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, as `$CUDA_VISIBLE_DEVICES` takes them."""
    import torch

    count = torch.cuda.device_count()
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named[:count] or [str(number) for number in range(count)]


def at_once(device: str, engine: str = "local") -> int:
    """Return how many notebooks run at once by default: `NOTEBOOKS` a GPU where they compute on one, else a few.

    If notebooks share a GPU, one computes on it, and the others read the store and draw. Without a GPU there is one
    notebook more than cores, since each waits for its kernel to begin and to end.
    """
    # Importing torch takes seconds, and is not needed to know that a machine has no GPU.
    elsewhere = engine != "local" or device == "cpu" or (device == "auto" and not has_driver())
    if elsewhere or resolved(device) == "cpu":
        return cores() + 1
    return min(cores(), NOTEBOOKS * len(gpus()))


class DeviceLostError(BrokenExecutor):
    """The GPU of this process no longer works, as after a device-side assert. A new process is needed."""


def check(executor: object) -> None:
    """Raise unless something is None, the name of an engine, or an executor.

    Raises:
        ArgumentError: it is none of them.
    """
    if isinstance(executor, str):
        one_of("executor", executor, ENGINES)
    fits = executor is None or isinstance(executor, str) or callable(getattr(executor, "submit", None))
    require(fits, "executor", f"None, one of {ENGINES}, or an executor of concurrent.futures", executor)


def executor(engine: str, address: str = "", workers: int | None = None, **parameters: Any) -> Executor:
    """Return an executor by name.

    Args:
        engine: `local` (a pool of spawned processes), `dask` or `slurm`.
        address: the scheduler of `dask`, such as `tcp://host:8786`, or the partition of `slurm`;
            by default `$FEDREPRO_ADDRESS`.
        workers: `local`: number of processes, by default `cores()`.
        parameters: `slurm`: what `submitit.AutoExecutor.update_parameters` takes, such as `timeout_min`.

    Raises:
        ArgumentError: the engine is unknown, Dask has no address or none that answers, or the engine or its package is
            not installed.
    """
    one_of("engine", engine, ENGINES)
    require(workers is None or is_whole(workers), "workers", "an integer >= 1", workers)
    require(isinstance(address, str), "address", "a string", address)
    address = address or os.environ.get("FEDREPRO_ADDRESS", "")
    if engine == "dask":
        require(bool(address), "address", SCHEDULER, address)
        return Dask(address)
    if engine == "slurm":
        return Slurm(**({"slurm_partition": address} if address else {}), **parameters)
    return pool(workers or cores())


def pool(workers: int, gpu: str = "") -> ProcessPoolExecutor:
    """Return a pool of spawned processes, which end with this one even if it is killed, and see one GPU if named."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker, initargs=(gpu,))


def _begin_worker(gpu: str) -> None:
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    for library in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    # Interrupts are the parent's to handle, and a worker whose parent was killed would wait for ever.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    if gpu:  # each run ends with a search for reference cycles, which need not go through all that was imported
        with contextlib.suppress(ImportError):  # which a run meets again, and tells
            importlib.import_module("fedrepro.runs.tasks")
        gc.freeze()


def end_with_parent(end: Callable[[], object] = lambda: os._exit(1)) -> None:
    """Call `end` in a process of a pool as soon as the process above has ended, even if it was killed."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            end()

    threading.Thread(target=wait, daemon=True).start()


def give_up(given: Executor) -> None:
    """Shut down an executor without waiting, and end its processes in the middle of their work."""
    processes = list((getattr(given, "_processes", None) or {}).values())
    given.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


class Inline(Executor):
    """An executor that computes at once, in this process."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _reach(address: str) -> None:
    """Raise unless somebody listens at an address. Dask would leave a client behind that takes long to end."""
    where = urlsplit(address if "://" in address else f"tcp://{address}")
    if where.scheme not in ("tcp", "tls", "ws", "wss"):
        return  # within a process, or unknown to Dask, which says so
    try:
        require(bool(where.hostname and where.port), "address", SCHEDULER, address)
        with socket.create_connection((where.hostname, where.port), timeout=ANSWER_SECONDS):
            pass
    except OSError as error:
        wanted = f"{SCHEDULER}, that answers within {ANSWER_SECONDS:g} s"
        raise ArgumentError(f"address must be {wanted}. Got {address!r}: {error.strerror or error}.") from None
    except ValueError:  # a port that has letters
        raise ArgumentError(f"address must be {SCHEDULER}. Got {address!r}.") from None


class Dask(Executor):
    """The workers of a Dask cluster. They may come and go; the runs of a lost worker are computed again.

    Raises:
        ArgumentError: distributed is not installed, or no scheduler answers at the address.
    """

    def __init__(self, address: str) -> None:
        try:
            import distributed
        except ImportError as error:
            raise ArgumentError("engine 'dask' needs the extra: pip install 'fedrepro[dask]'.") from error
        client: Any = distributed.Client  # untyped
        _reach(address)
        # It would log tracebacks from its threads of what `gather` says in a sentence.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        try:
            self._client = client(address, timeout=ANSWER_SECONDS)
        except (OSError, ValueError) as error:
            raise ArgumentError(f"address must be {SCHEDULER}. Got {address!r}: {error}.") from None
        self._tasks: Executor = self._client.get_executor(pure=False)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._tasks.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._tasks.shutdown(wait=wait)
        self._client.close()


class Slurm(Executor):
    """Jobs of submitit as futures. A cancelled future cancels its job. Logs go to `data/slurm`, which all nodes see.

    Args:
        folder: another folder for the logs.
        cluster: as `submitit.AutoExecutor` takes it; `local` runs without Slurm.
        parameters: as `submitit.AutoExecutor.update_parameters` takes them.

    Raises:
        ArgumentError: submitit is not installed, or Slurm is not.
    """

    def __init__(self, folder: str | None = None, cluster: str = "slurm", **parameters: Any) -> None:
        try:
            import submitit
        except ImportError as error:
            raise ArgumentError("engine 'slurm' needs the extra: pip install 'fedrepro[slurm]'.") from error
        try:
            self._jobs = submitit.AutoExecutor(folder or paths.store().parent / "slurm", cluster=cluster)
        except RuntimeError as error:
            raise ArgumentError(f"engine must be 'local' or 'dask' where Slurm is not installed: {error}") from None
        self._jobs.update_parameters(**({"timeout_min": 24 * 60, "cpus_per_task": 1} | parameters))
        self._watched: dict[Future[Any], threading.Thread] = {}

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        job = self._jobs.submit(fn, *args, **kwargs)
        future: Future[T] = Future()
        watcher = self._watched[future] = threading.Thread(target=_watch, args=(job, future), daemon=True)

        def ended(future: Future[T]) -> None:
            del self._watched[future]
            if future.cancelled():
                job.cancel(check=False)

        future.add_done_callback(ended)
        watcher.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        watched = dict(self._watched)
        for future in watched if cancel_futures else ():
            future.cancel()
        for watcher in watched.values() if wait else ():
            watcher.join()


def _watch(job: Any, future: Future[Any]) -> None:
    """Give a future the outcome of its job. Until then it is pending, since a running one cannot be cancelled."""
    try:
        while not (future.cancelled() or job.done()):
            time.sleep(1.0)
        if future.set_running_or_notify_cancel():
            future.set_result(job.result())
    except Exception as error:
        if future.running() or future.set_running_or_notify_cancel():
            future.set_exception(error)
