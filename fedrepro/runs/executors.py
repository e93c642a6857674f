"""Executors that compute runs: this process, a pool of processes, a Dask cluster, or Slurm.

Each is a `concurrent.futures.Executor`, and the function `gather` feeds it. A limited number of groups is in flight.
Each result is handed over as it comes, and the groups of a lost worker are computed again.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from typing import Any, TypeVar
from urllib.parse import urlsplit

from fedrepro import paths
from fedrepro.errors import ArgumentError, FedreproError, one_of, require

T = TypeVar("T")
R = TypeVar("R")

ENGINES = ("local", "dask", "slurm")
ATTEMPTS = 3
PAUSE = 0.1  # seconds until a group is asked for again where there was none
ANSWER_SECONDS = 3.0  # a scheduler that takes longer to answer counts as not there
SCHEDULER = "the address of a Dask scheduler, such as 'tcp://host:8786'"


def cores() -> int:
    """Return the default number of workers: `$FEDREPRO_WORKERS`, else the cores that this process may use."""
    given = os.environ.get("FEDREPRO_WORKERS", "")
    require(given == "" or (given.isdecimal() and int(given) > 0), "FEDREPRO_WORKERS", "an integer >= 1", given)
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, int(given or allowed or 1))


def resolved(device: str) -> str:
    """Return `cpu` or `cuda` for `device`; `auto` means a GPU if there is one.

    Raises:
        ArgumentError: `cuda` is asked for and there is no GPU.
    """
    if device == "cpu":
        return device
    import torch

    found = torch.cuda.is_available()
    require(found or device == "auto", "device", "'auto' or 'cpu' where no GPU is found", device)
    return device if device != "auto" else "cuda" if found else "cpu"


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
    positive = isinstance(workers, int) and not isinstance(workers, bool) and workers >= 1
    require(workers is None or positive, "workers", "an integer >= 1", workers)
    require(isinstance(address, str), "address", "a string", address)
    address = address or os.environ.get("FEDREPRO_ADDRESS", "")
    if engine == "dask":
        require(bool(address), "address", SCHEDULER, address)
        return Dask(address)
    if engine == "slurm":
        return Slurm(**({"slurm_partition": address} if address else {}), **parameters)
    return pool(workers or cores())


def pool(workers: int) -> ProcessPoolExecutor:
    """Return a pool of spawned processes, which end with this one even if it is killed."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker)


def _begin_worker() -> None:
    for library in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    # Interrupts are the parent's to handle, and a worker whose parent was killed would wait for ever.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


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
        folder: another place for the logs.
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


def gather(
    groups: Iterable[T | None],
    work: Callable[[T], R],
    keep: Callable[[T, R | Exception], None],
    *,
    executor: Executor | None,
    workers: int,
    deadline: float = float("inf"),
) -> None:
    """Compute `work(group)` for all groups and give each result to `keep` as soon as it is there.

    A group whose worker was lost is computed again at the end, alone, so that the one which breaks
    workers is told from those it took with it; after three attempts `keep` gets the error.

    Args:
        groups: drawn one by one, when a worker is free; None says that there is none for the moment.
        work: a function worker processes can import.
        keep: called in this process.
        executor: None: processes of its own, or none at all with one worker.
        workers: groups in flight at most.
        deadline: `time.monotonic()` after which nothing new is started.
    """
    crew = _Crew(executor, workers)
    fresh, again = iter(groups), deque[tuple[T, int]]()
    ended = object()
    flying: dict[Future[R], tuple[T, int, Executor]] = {}

    def land(future: Future[R]) -> None:
        group, attempt, where = flying.pop(future)
        if future.cancelled():
            kind = type(where).__name__
            raise FedreproError(f"{kind} has cancelled a run, as a cluster does that ends. What was finished is kept.")
        error = future.exception()
        if isinstance(error, BrokenExecutor):
            crew.replace(where)
        if error is None:
            keep(group, future.result())
        elif not isinstance(error, Exception):
            raise error
        elif attempt < ATTEMPTS:
            again.append((group, attempt + 1))
        else:
            keep(group, error)

    try:
        while True:
            pause = None
            while len(flying) < workers and time.monotonic() < deadline:
                group: Any = next(fresh, ended)
                if group is None or group is ended:
                    pause = PAUSE if group is None else None
                    break
                future, where = crew.submit(work, group)
                flying[future] = group, 1, where
            if not flying and again and time.monotonic() < deadline:
                group, attempt = again.popleft()
                future, where = crew.submit(work, group)
                flying[future] = group, attempt, where
            if flying:
                done = wait(flying, timeout=pause, return_when=FIRST_COMPLETED).done
                for future in sorted(done, key=lambda each: each.cancelled()):  # results before the end of a cluster
                    land(future)
            elif pause:
                time.sleep(pause)
            else:
                return
    except KeyboardInterrupt:
        for future in [future for future in flying if future.done() and future.exception() is None]:
            keep(flying[future][0], future.result())
        raise
    finally:
        for future in flying:
            future.cancel()
        crew.close(abandon=bool(flying))


class _Crew:
    """The given executor or a new pool, which is replaced once it is broken."""

    def __init__(self, given: Executor | None, workers: int) -> None:
        self.given, self.workers = given, workers
        self.current = given or (pool(workers) if workers > 1 else Inline())

    def submit(self, work: Callable[[T], R], group: T) -> tuple[Future[R], Executor]:
        try:
            return self.current.submit(work, group), self.current
        except BrokenExecutor:
            self.replace(self.current)
            return self.current.submit(work, group), self.current

    def replace(self, broken: Executor) -> None:
        if broken is self.current:
            broken.shutdown(wait=False)
            self.current = pool(self.workers)

    def close(self, abandon: bool) -> None:
        """Shut down a pool made here; `abandon` ends its processes in the middle of their work."""
        if self.current is self.given:
            return
        if abandon:
            give_up(self.current)
        else:
            self.current.shutdown(cancel_futures=True)
