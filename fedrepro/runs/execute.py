"""Compute the runs that a store lacks, and make records of what comes out.

    store = Store()
    frame = execute(sweep(...), store=store, file="fedgat/6-experiments")    # one row a run

The value of a run depends only on the run. It is the same to the last bit whatever the executor, the order, the number
of workers, the hash seed and the threads that the environment asks for, of which one is used. Seeds that are trained
side by side, and other chunks of clients, change it by rounding.
`fedrepro.runs.verification` tells which stored results still hold.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, NamedTuple

from fedrepro import paths, registry
from fedrepro.data.shapes import SHAPES, whole
from fedrepro.errors import DataError, is_whole, one_of, require
from fedrepro.runs import executors, lanes, notices, options, process, records
from fedrepro.runs import progress as progress_
from fedrepro.runs.lines import Record
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store, file_name

if TYPE_CHECKING:
    from pandas import DataFrame

CACHE = 32 * 2**20  # bytes: the last-level cache of the processor on which side by side was measured
HIDDEN = 16  # units of a model whose run does not say it
# A GPU waits for the host most of a round of small clients: ten seeds take three times as long as one (EN-GPU).
SEEDS_ON_GPU = 10
IN_FLIGHT = 64  # on an executor that does not tell its number of workers


def compute(runs: Sequence[Run], device: str = "cpu") -> list[Record]:
    """Compute runs with one thread of torch.

    Args:
        runs: of task `train` they may differ only in their seed, and are trained side by side.
        device: `cpu` or `cuda`, for training and what else is a function of the device.

    Returns:
        One record a run. `status` is `ok`, `failed` (with the error), `unavailable` where the graph cannot be had, or
        `lost` where the memory of the GPU has ended or code was edited; `environment` is still spelled out.

    Raises:
        DeviceLostError: the GPU no longer works in this process.
    """
    require(bool(runs), "runs", "at least one Run", runs)
    _check_runs(runs)
    if len(runs) > 1 and runs[0].task != "train":
        return [record for run in runs for record in compute([run], device)]
    device = _placed(runs, device)
    with process.restored(), warnings.catch_warnings():
        # It adds whole numbers only, which give the same sum in any order, and torch would warn of each call.
        warnings.filterwarnings("ignore", "_bincount_cuda does not have a deterministic", UserWarning)
        start = time.perf_counter()
        outputs: list[dict[str, Any]] | None = None
        try:
            function = _function(runs, device)
            options.check(runs[0])
            records.take_note(runs[0])  # now: while runs compute, somebody may edit the files they came from
            start = time.perf_counter()  # what follows belongs to the runs; imports do not
            outputs = records.outputs(function(list(runs), device), runs[0].method)
        except (Exception, SystemExit) as error:  # what a run calls may end programs
            if device == "cuda" and "CUDA error" in str(error):
                raise executors.DeviceLostError(records.describe(error)) from None
            if len(runs) == 1:
                told = notices.described(error) + records.largest_option(runs[0], error)
                lost = type(error).__name__ in ("OutOfMemoryError", "CodeChangedError")
                outputs = [{"error": told, "unavailable": isinstance(error, DataError), "lost": lost}]
        if device == "cuda":
            process.give_back()
        if outputs is None:  # one that fails must not fail the others
            return [record for run in runs for record in compute([run], device)]
        batch = records.batch_of(runs, time.perf_counter() - start)
        return [records.record(run, device, batch, output) for run, output in zip(runs, outputs, strict=True)]


def _check_runs(runs: Sequence[Run]) -> None:
    for run in runs:
        require(isinstance(run, Run), "runs", "of type Run", run)


def _placed(runs: Sequence[Run], device: str) -> str:
    """Return the device on which runs of one method compute when `device` is asked for, whatever the graph's size."""
    run = runs[0]
    return device if run.task == "train" or registry.find(run.task, run.method).on_device else "cpu"


def _function(runs: Sequence[Run], device: str) -> Callable[[list[Run], str], Sequence[Any]]:
    """Import and return the function that computes runs of a task and method, with the process settled."""
    run = runs[0]
    if run.task == "train":
        from fedrepro.runs import tasks, trial

        process.settle(device)
        trial.check(runs)
        return tasks.train
    single = registry.load(run.task, run.method)
    process.settle(device)
    if registry.find(run.task, run.method).on_device:
        return lambda runs, device: [single(run, device) for run in runs]
    return lambda runs, device: [single(run) for run in runs]


class _Group(NamedTuple):
    """A batch of runs, and what a worker process must know to compute it."""

    runs: Sequence[Run]
    device: str
    entries: Mapping[tuple[str, str], registry.Entry]


def _compute(group: _Group) -> list[Record]:
    registry.REGISTRY.update(group.entries)  # a worker has not seen what was registered by hand
    return compute(group.runs, executors.resolved(group.device))


def compute_all(
    batches: Sequence[Sequence[Run]],
    keep: Callable[[list[Record]], None],
    *,
    executor: Executor | str | None = None,
    workers: int | None = None,
    device: str = "cpu",
    progress: bool = True,
    claim: Callable[[Sequence[Run]], tuple[Sequence[Run], Sequence[Run]]] = lambda runs: (runs, ()),
    deadline: float = math.inf,
) -> None:
    """Compute batches of runs on an executor, and give the records of each to `keep` as they come.

    Args:
        batches: runs that `compute` takes together.
        keep: called in this process.
        executor: an executor or the name of one; None for spawned processes, one for each GPU and the rest for the
            CPU, or for this process if there is one batch or one worker.
        workers: batches computed at once on the CPU; default `executors.cores()`.
        device: `auto`, `cpu` or `cuda`, where it matters; looked for only if there is something to compute.
        progress: show the time left, see `fedrepro.runs.progress`.
        claim: asked before a batch is started. It returns those runs to be computed now, and those that another
            process is computing, which are asked for again at the end.
        deadline: `time.monotonic()` after which nothing new is started.
    """
    if not batches or time.monotonic() >= deadline:
        return
    local = executor in (None, "local")
    if executor not in ("dask", "slurm"):  # whose workers are other machines, with or without a GPU
        device = executors.resolved(device)
    methods = {(run.task, run.method) for runs in batches for run in runs}
    trained = {of for runs in batches for run in runs if isinstance(of := run.options.get("of"), str)}
    methods |= {("train", name) for name in registry.names("train") if name in trained}
    entries = {method: registry.find(*method) for method in methods}
    # Worker processes cannot import code that was written in a notebook or inside a function.
    here = any(mark in entry.target for entry in entries.values() for mark in ("__main__:", "<"))
    # They have not seen graphs registered by hand either. The module datasets knows these, if it is loaded at all.
    datasets: Any = sys.modules.get("fedrepro.data.datasets")
    here = here or (datasets is not None and any(datasets.by_hand(run.dataset) for runs in batches for run in runs))
    why = ""
    if here and not local:
        told = "graphs, methods or functions that were registered by hand or written in a notebook"
        why = f"other machines cannot import {told}"
    by_place = {place: [runs for runs in batches if _placed(runs, device) == place] for place in ("cuda", "cpu")}
    most = workers or (2 if by_place["cuda"] else executors.cores())  # a GPU has a separate process
    several = local and len(batches) > 1 and most > 1
    if several and not here and (script := progress_.unguarded()):
        here = True
        why = f'{script} has no `if __name__ == "__main__":`, without which worker processes would begin it anew'
    if why:
        warnings.warn(f"All is computed in this process: {why}.", stacklevel=3)
    bar = progress_.bar(sum(map(len, batches)), progress)

    def groups(left: Sequence[Sequence[Run]]) -> Iterator[_Group | None]:
        while left:
            elsewhere = []
            for runs in left:
                claimed, theirs = claim(runs)
                bar.update(len(runs) - len(claimed) - len(theirs))
                if theirs:
                    elsewhere.append(theirs)
                if claimed:
                    bar.set_description_str("", refresh=False)
                    yield _Group(claimed, _placed(claimed, device), entries)
            if left := elsewhere:
                bar.set_description_str("waiting for another process")
                yield None

    def land(group: _Group, outcome: list[Record] | Exception) -> None:
        if isinstance(outcome, Exception):
            batch = records.batch_of(group.runs, 0.0)
            output = {"error": records.describe(outcome), "lost": isinstance(outcome, executors.DeviceLostError)}
            outcome = [records.record(run, group.device, batch, output) for run in group.runs]
        keep(outcome)
        bar.update(len(group.runs))

    with bar:
        if not (here or local):
            wishes: dict[str, Any] = {"gpus_per_node": 1} if executor == "slurm" and device == "cuda" else {}
            engine = executors.executor(executor, **wishes) if isinstance(executor, str) else executor
            width: int = getattr(engine, "_max_workers", IN_FLIGHT)
            crew = [lanes.Lane(groups(batches), workers or width, engine, lent=engine is executor)]
        else:
            gpus = executors.gpus()[:workers] if by_place["cuda"] else []
            if several and not here:
                on_gpus = groups(by_place["cuda"])
                crew = [lanes.Lane(on_gpus, executors.per_gpu(), gpu=gpu, apart=True) for gpu in gpus]
                crew += [lanes.Lane(groups(by_place["cpu"]), workers or executors.cores())] if by_place["cpu"] else []
            else:
                crew = [lanes.Lane(groups(batches), 1, executors.Inline() if here else None, "".join(gpus[:1]))]
        lanes.gather(crew, _compute, land, deadline=deadline)


def execute(
    runs: Iterable[Run],
    *,
    store: Store | None = None,
    file: str = "mine",
    executor: Executor | str | None = None,
    budget: float | None = None,
    device: str = "cpu",
    progress: bool = True,
    workers: int | None = None,
    side_by_side: int | str | None = None,
    retry: bool = True,
    strict: bool = False,
    again: Collection[str] = (),
    quiet: bool = False,
) -> DataFrame:
    """Compute the runs that the store lacks, and return the frame of all that it then has (`Store.frame`).

    If several processes want the same run, one computes it, and the others take it from the store. If that one is
    killed, another takes over.

    The runs of seed 0 of all cells come first, then those of seed 1, and so on, small graphs first. Each record is
    in the store as soon as its run is finished, so that an interruption loses only what was being computed.

    Args:
        runs: what is wanted; one asked for twice is computed once.
        store: where records are looked up and kept; default the personal store, `paths.personal()`.
        file: its file for new records: the notebook's name.
        executor: any `concurrent.futures` executor, or a name for `executor`. Default: a pool of
            spawned processes, or this process if there is one thing to compute or one worker. `executors.per_gpu`
            processes compute on each GPU, and of all sweeps of a user one at a time has a GPU.
        budget: minutes after which nothing new is started; 0 computes nothing.
        device: `auto` (a GPU if there is one), `cpu` or `cuda`, for training and benchmarks of rounds; the rest is
            computed on the CPU.
        progress: show the time left, see `fedrepro.runs.progress`.
        workers: runs computed at once; default `$FEDREPRO_WORKERS`, else the number of cores.
        side_by_side: how many training runs that differ only in seed are trained as one batch; by default one on the
            CPU and `SEEDS_ON_GPU` on a GPU. `auto` is as many as `seeds_in_cache` says, or `SEEDS_ON_GPU`. Side by side
            a run gives the same numbers as by itself, up to rounding.
        retry: compute runs again that failed before.
        strict: raise if a graph cannot be had, instead of leaving its runs out.
        again: keys of runs to compute although the store has them, such as those of `verification.stale`. The new
            record is then the run's result. If it fails, the old one stays.
        quiet: leave it to the caller to tell of runs that failed or were left out. Otherwise warnings do.

    Returns:
        The frame. Its last column `note`, if there is one, says which runs are no better than a constant prediction.
        Its `attrs` have two lists of `{"key", "run", "error"}`: `failed`, and `unavailable` for the runs whose graph
        cannot be had. A failed run is not stored, and is computed the next time, if a GPU could not compute it, for
        want of memory or since it broke, or if its code was edited after this process had imported it.

    Raises:
        ArgumentError: an argument has a wrong type or is out of range, a run to be computed has a name or an option
            that is not known, or `cuda` without a GPU. Nothing is computed then.
        StoreError: a record cannot be written; those before it are kept.
        DataError: with `strict`.
    """
    runs = list(runs)
    _check_runs(runs)
    store = Store(paths.personal()) if store is None else store
    require(isinstance(store, Store), "store", "a Store", store)
    file_name(file)
    require(workers is None or is_whole(workers), "workers", "an integer >= 1", workers)
    beside = side_by_side in (None, "auto") or is_whole(side_by_side)
    require(beside, "side_by_side", "an integer >= 1 or 'auto'", side_by_side)
    minutes = isinstance(budget, int | float) and not isinstance(budget, bool) and budget >= 0
    require(budget is None or minutes, "budget", "a number of minutes >= 0", budget)
    executors.check(executor)
    one_of("device", device, ("auto", "cpu", "cuda"))
    again = set(again)  # in a column of a frame Python would look among the numbers of its rows
    wanted = list({run.key: run for run in runs}.values())
    store.refresh()
    lacking = [run for run in wanted if run.key not in store or run.key in again]
    missing = [run for run in lacking if retry or store.failure(run.key) is None] if budget != 0 else []
    if missing:
        _check_names(missing)
        if executor not in ("dask", "slurm") and executors.resolved(device) == "cuda" and not is_whole(side_by_side):
            side_by_side = SEEDS_ON_GPU
    before = {run.key: (store.age(run.key), store.failure(run.key)) for run in missing}
    claimed: set[str] = set()
    unavailable: list[dict[str, Any]] = []
    lost: list[dict[str, Any]] = []

    def keep(landed: list[Record]) -> None:
        lost.extend(_trouble(record) for record in landed if record["status"] == "lost" or fails_again(record))
        unavailable.extend(_trouble(record) for record in landed if record["status"] == "unavailable")
        if strict and unavailable:
            raise DataError(unavailable[0]["error"].partition(": ")[2])
        told = [record for record in landed if record["status"] not in ("unavailable", "lost")]
        store.append(file, *(records.in_force(record, store.age(record["key"])) for record in told))
        release(record["key"] for record in landed)

    def fails_again(record: Record) -> bool:  # which the store does not tell of a run that has a result
        return record["status"] == "failed" and record["key"] in store

    def release(keys: Iterable[str]) -> None:
        for key in list(keys):
            store.release(key)
            claimed.discard(key)

    def ended(run: Run) -> bool:
        return (store.age(run.key), store.failure(run.key)) != before[run.key]

    def claim(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
        wanted = [run for run in runs if not ended(run)]
        claimed.update(run.key for run in wanted if store.claim(run.key))
        theirs = [run for run in wanted if run.key not in claimed]
        if len(theirs) < len(wanted):
            store.refresh()  # another process may have computed what could be claimed until just now
        release(run.key for run in wanted if run.key in claimed and ended(run))
        return [run for run in wanted if run.key in claimed], theirs

    try:
        compute_all(
            _batches(missing, side_by_side or 1),
            keep,
            executor=executor,
            workers=workers,
            device=device,
            progress=progress,
            claim=claim,
            deadline=math.inf if budget is None else time.monotonic() + 60 * budget,
        )
    finally:
        release(claimed)
    store.refresh()
    frame = store.frame(wanted)
    notes = [records.note((store.get(key) or {}).get("result") or {}) for key in frame["key"]]
    if any(notes):
        frame["note"] = notes
    failures = [failure for run in wanted if (failure := store.failure(run.key)) is not None]
    frame.attrs["failed"] = [_trouble(failure) for failure in failures] + lost
    frame.attrs["unavailable"] = unavailable
    told = [] if quiet else [*notices.troubles(frame), *notices.emptied(frame)]
    for line in [*told, *notices.edited(list(store.records(frame["key"])))]:
        warnings.warn(line, stacklevel=2)
    return frame


def _check_names(runs: Iterable[Run]) -> None:
    """Raise unless every name and option is known. Among runs that differ only in seed, one is looked at."""
    cells = {(r.task, r.method, r.dataset, r.prepare, r.split, r.partition, r.options): r for r in runs}
    for run in cells.values():
        if run.task == "train" or run.dataset or run.partition:
            from fedrepro.runs import tasks

            tasks.check(run)
        options.check(run)


def _trouble(record: Record) -> dict[str, Any]:
    return {name: record[name] for name in ("key", "run", "error")}


def _batches(runs: Sequence[Run], side_by_side: int | str) -> list[list[Run]]:
    """Return the batches in order: seeds slowest, then by the size of the graph, then as given."""
    sizes = {name: shape.nodes for name, shape in SHAPES.items()}
    ordered = sorted(runs, key=lambda run: (run.seed, sizes.get(whole(run.dataset), 0)))
    open_: dict[Run, list[Run]] = {}
    batches = []
    for run in ordered:
        cell = run.replace(seed=0)
        most = side_by_side if isinstance(side_by_side, int) else seeds_in_cache(run)
        if run.task != "train" or len(open_.get(cell, [])) in (0, most):
            open_[cell] = []
            batches.append(open_[cell])
        open_[cell].append(run)
    return batches


def seeds_in_cache(run: Run) -> int:
    """Return how many seeds of a training run to train side by side on a CPU; at least 1.

    The weights of these seeds and Adam's two moments fit into `CACHE` together. The weights of the first layer are
    counted, `features` times `hidden` for each client, which are nearly all weights on graphs with many features.
    The number is 1 for a graph whose features are not listed in `SHAPES`.
    """
    shape = SHAPES.get(whole(run.dataset))
    hidden = run.options.get("hidden", HIDDEN)
    if shape is None or run.task != "train" or not isinstance(hidden, int):
        return 1
    return max(1, CACHE // (3 * 4 * shape.features * hidden * (run.clients or 1)))
