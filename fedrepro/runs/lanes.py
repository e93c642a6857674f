"""Feed executors with groups of runs, in lanes: each has its groups, computes some at once, and may have a GPU.

A limited number of groups is in flight. Each result is handed over as it comes. The groups of a lost worker are
computed again, in a new one.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from fedrepro.errors import FedreproError
from fedrepro.runs import executors

T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS = 3
PAUSE = 0.1  # seconds until a group is asked for again where there was none, or a GPU that another process has


class Lane:
    """An executor with the groups that it computes. It is replaced once it is broken.

    With a GPU the lane computes nothing before it has the GPU for itself: of all sweeps of a user on a machine one at a
    time computes on each GPU. The lane gives it back when no group is left.

    Args:
        groups: drawn one by one, when a worker is free; None says that there is none for the moment. Lanes may share
            them.
        workers: groups in flight at most.
        executor: None for new processes, or for this process with one worker.
        gpu: the GPU that its processes see, as `executors.gpus` names it.
        apart: whether one worker is a separate process, too.
        lent: whether the executor is somebody else's, who goes on with it; any other ends with the lane.
    """

    def __init__(
        self,
        groups: Iterator[Any],
        workers: int,
        executor: Executor | None = None,
        gpu: str = "",
        *,
        apart: bool = False,
        lent: bool = False,
    ) -> None:
        self.groups, self.workers, self.gpu = groups, workers, gpu
        self.given, self.lent = executor, lent
        apart = apart or workers > 1
        self.current = executor or (executors.pool(workers, gpu) if apart else executors.Inline())
        self.flying = 0
        self._lock = _lock(gpu, os.getpid()) if gpu else None
        self._holds = False

    def is_ready(self) -> bool:
        """Return whether the lane may compute: without a GPU always, with one as soon as no other process has it."""
        if self._lock is not None and not self._holds:
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                return False
            self._holds = True
        return True

    def submit(self, work: Callable[[T], R], group: T) -> tuple[Future[R], Executor]:
        """Submit a group, to a new executor if the current one turns out to be broken."""
        self.flying += 1
        try:
            return self.current.submit(work, group), self.current
        except BrokenExecutor:
            self.replace(self.current)
            return self.current.submit(work, group), self.current

    def replace(self, broken: Executor) -> None:
        """Take new processes instead of a broken pool, or of this process if its GPU no longer works."""
        own = broken is not self.given or isinstance(broken, ProcessPoolExecutor)
        if broken is self.current and own:
            broken.shutdown(wait=False)
            self.current = executors.pool(self.workers, self.gpu)

    def rest(self) -> None:
        """Give the GPU back, with the process that holds memory there, if nothing is in flight."""
        if self._holds and not self.flying:
            if isinstance(self.current, ProcessPoolExecutor):
                self.current.shutdown()
                self.current = executors.pool(self.workers, self.gpu)
            self._release()

    def close(self, abandon: bool) -> None:
        """Shut down the executor unless it is lent; `abandon` ends processes in the middle of their work."""
        if not (self.lent and self.current is self.given):
            if abandon:
                executors.give_up(self.current)
            else:
                self.current.shutdown(cancel_futures=True)
        self._release()

    def _release(self) -> None:
        if self._lock is not None and self._holds:
            self._lock.release()
            self._holds = False


@cache
def _lock(gpu: str, process: int) -> FileLock:
    """Return the lock of a GPU, which the system drops with the process."""
    user = os.getuid() if hasattr(os, "getuid") else ""
    name = re.sub(r"\W", "-", gpu)
    return FileLock(Path(tempfile.gettempdir()) / f"fedrepro-{user}-gpu-{name}.lock", thread_local=False)


def gather(
    lanes: Sequence[Lane],
    work: Callable[[Any], R],
    keep: Callable[[Any, R | Exception], None],
    *,
    deadline: float = float("inf"),
) -> None:
    """Compute `work(group)` for the groups of all lanes and give each result to `keep` as soon as it is there.

    A group whose worker was lost is computed again at the end by itself, so that the one which breaks
    workers is told from the groups that were lost with it; after three attempts `keep` gets the error.

    Args:
        work: a function worker processes can import.
        keep: called in this process.
        deadline: `time.monotonic()` after which nothing new is started.
    """
    again = deque[tuple[Any, int, Lane]]()
    flying: dict[Future[R], tuple[Any, int, Lane, Executor]] = {}

    def start(lane: Lane, group: Any, attempt: int = 1) -> None:
        future, where = lane.submit(work, group)
        flying[future] = group, attempt, lane, where

    def land(future: Future[R]) -> None:
        group, attempt, lane, where = flying.pop(future)
        lane.flying -= 1
        if future.cancelled():
            kind = type(where).__name__
            raise FedreproError(f"{kind} has cancelled a run, as a cluster does that ends. What was finished is kept.")
        error = future.exception()
        if isinstance(error, BrokenExecutor):
            lane.replace(where)
        if error is None:
            keep(group, future.result())
        elif not isinstance(error, Exception):
            raise error
        elif attempt < ATTEMPTS:
            again.append((group, attempt + 1, lane))
        else:
            keep(group, error)

    try:
        while True:
            waiting = [_fill(lane, start, deadline) for lane in lanes]  # of all, so that each is filled
            waits = any(waiting)
            if not flying and again and time.monotonic() < deadline:
                group, attempt, lane = again[0]
                if lane.is_ready():
                    again.popleft()
                    start(lane, group, attempt)
                else:
                    waits = True
            if flying:
                done = wait(flying, timeout=PAUSE if waits else None, return_when=FIRST_COMPLETED).done
                for future in sorted(done, key=lambda each: each.cancelled()):  # results before the end of a cluster
                    land(future)
            elif waits:
                time.sleep(PAUSE)
            elif not again or time.monotonic() >= deadline:
                return
    except KeyboardInterrupt:
        for future in [future for future in flying if future.done() and future.exception() is None]:
            keep(flying[future][0], future.result())
        raise
    finally:
        for future in flying:
            future.cancel()
        for lane in lanes:
            lane.close(abandon=bool(flying))


def _fill(lane: Lane, start: Callable[[Lane, Any], None], deadline: float) -> bool:
    """Give a lane as many groups as it takes; return whether it waits for one, or for its GPU."""
    while lane.flying < lane.workers and time.monotonic() < deadline:
        if not lane.is_ready():
            return True
        group = next(lane.groups, _ENDED)
        if group is _ENDED:
            lane.rest()
            return False
        if group is None:
            return True
        start(lane, group)
    return False


_ENDED = object()
