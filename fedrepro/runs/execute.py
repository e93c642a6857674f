"""Compute the runs a store lacks, tell which of those it has still hold, and recompute some of them.

    store = Store()
    frame = execute(sweep(...), store=store, file="fedgat/6-experiments")    # one row a run
    status(store, runs)                                                      # done, wanted, stale, ...
    verify(store, 5)                                                         # recomputed and compared

A run's value depends on the run alone: not on the executor, the order, or what is computed beside it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from fedrepro.data.shapes import SHAPES
from fedrepro.errors import DataError
from fedrepro.runs.computing import compute as compute
from fedrepro.runs.computing import compute_all
from fedrepro.runs.executors import executor as executor
from fedrepro.runs.run import Run
from fedrepro.runs.store import Record, Store
from fedrepro.runs.verification import stale as stale
from fedrepro.runs.verification import status as status
from fedrepro.runs.verification import verify as verify

if TYPE_CHECKING:
    from pandas import DataFrame


def execute(
    runs: Iterable[Run],
    *,
    store: Store,
    file: str,
    executor: Executor | str | None = None,
    budget: float | None = None,
    device: str = "cpu",
    progress: bool = True,
    workers: int | None = None,
    side_by_side: int = 1,
    retry: bool = True,
    strict: bool = False,
) -> DataFrame:
    """Compute the runs that the store lacks; the tidy frame of all that it then has (`Store.frame`).

    Seeds 0, 1, ... over all cells, small graphs first. Each record is in the store as soon as its run is
    finished, so that an interruption loses only what was being computed.

    Args:
        runs: what is wanted; one asked for twice is computed once.
        store: where records are looked up and kept.
        file: its file for new records: the notebook's name.
        executor: any `concurrent.futures` executor, or a name for `executor`. Default: a pool of
            spawned processes, or this process if there is one thing to compute, one worker or training on a GPU.
        budget: minutes after which nothing new is started; 0 computes nothing.
        device: `auto` (a GPU if there is one), `cpu` or `cuda`, for training and benchmarks of rounds; the rest is
            computed on the CPU.
        progress: show a bar with the time left, if the error stream is a terminal.
        workers: runs computed at once; default `$FEDREPRO_WORKERS`, else the number of cores.
        side_by_side: how many training runs that differ in seed alone are trained as one batch.
        retry: compute runs again that failed before.
        strict: raise if a graph cannot be had, instead of leaving its runs out.

    Returns:
        The frame. In its `attrs` two lists of `{"key", "run", "error"}`: `failed`, and `unavailable` for the
        runs whose graph cannot be had.

    Raises:
        ArgumentError: `cuda` without a GPU.
        StoreError: a record cannot be written; those before it are kept.
        DataError: with `strict`.
    """
    wanted = list({run.key: run for run in runs}.values())
    store.refresh()
    missing = [run for run in wanted if run.key not in store and (retry or store.failure(run.key) is None)]
    unavailable: list[dict[str, Any]] = []

    def keep(records: list[Record]) -> None:
        unavailable.extend(_trouble(record) for record in records if record["status"] == "unavailable")
        if strict and unavailable:
            raise DataError(unavailable[0]["error"].partition(": ")[2])
        store.append(file, *(record for record in records if record["status"] != "unavailable"))

    def lacking(runs: Sequence[Run]) -> bool:
        store.refresh()  # another process may have computed them meanwhile
        return any(run.key not in store for run in runs)

    compute_all(
        _batches(missing, side_by_side),
        keep,
        executor=executor,
        workers=workers,
        device=device,
        progress=progress,
        wanted=lacking,
        deadline=math.inf if budget is None else time.monotonic() + 60 * budget,
    )
    frame = store.frame(wanted)
    failures = [failure for run in wanted if (failure := store.failure(run.key)) is not None]
    frame.attrs["failed"] = [_trouble(failure) for failure in failures]
    frame.attrs["unavailable"] = unavailable
    return frame


def _trouble(record: Record) -> dict[str, Any]:
    return {name: record[name] for name in ("key", "run", "error")}


def _batches(runs: Sequence[Run], side_by_side: int) -> list[list[Run]]:
    """Runs to be computed as one, in order: seeds slowest, then by the size of the graph, then as given."""
    sizes = {name: shape.nodes for name, shape in SHAPES.items()}
    ordered = sorted(runs, key=lambda run: (run.seed, sizes.get(run.dataset.removesuffix("~standin"), 0)))
    if side_by_side <= 1:
        return [[run] for run in ordered]
    open_: dict[Run, list[Run]] = {}
    batches = []
    for run in ordered:
        cell = run.replace(seed=0)
        if run.task != "train" or len(open_.get(cell, [])) in (0, side_by_side):
            open_[cell] = []
            batches.append(open_[cell])
        open_[cell].append(run)
    return batches
