from __future__ import annotations

import inspect
import json
import linecache
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fake_tasks
import pandas as pd
import pytest
import torch
from fake_training import fake_training

from fedrepro import registry
from fedrepro.errors import DataError, StoreError
from fedrepro.runs import execute as engine
from fedrepro.runs import executors, provenance
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FEDREPRO_WORKERS", "2")
    fake_tasks.register()
    yield
    fake_tasks.forget()


def runs(method: str = "quick", seeds: int = 3, **axes: Any) -> list[Run]:
    return sweep(**{"task": "check", "paper": "p", "method": method, "seed": range(seeds), **axes})


def computed(log: Path) -> list[str]:
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def logging_runs(tmp_path: Path, seeds: int = 3, **axes: Any) -> list[Run]:
    return runs("logged", seeds, options={"log": str(tmp_path / "log"), "pause": 0}, **axes)


# --- compute ---


def test_record() -> None:
    """A computed run is a complete record made of JSON values, with the result the function gave."""
    (run,) = runs(seeds=1, dataset="Cora", clients=5)
    (record,) = engine.compute([run])
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["key"] == run.key and Run.from_dict(record["run"]) == run and record["version"] == 1
    assert record["status"] == "ok" and record["error"] is None
    assert record["result"]["score"] == {"test": 1 / 7} and record["result"]["count"] == 5
    assert record["batch"] == {"seeds": [run.seed], "seconds": record["seconds"]} and record["chunk"] is None
    assert len(record["fingerprint"]) == 64 and record["when"].endswith("+00:00")
    assert {"python", "torch", "numpy", "cpu", "device", "threads"} <= set(record["environment"])


@pytest.mark.parametrize(
    ("value", "expected"), [("nan", None), ("numpy", 0.1), ("array", [0, 1, 2]), ([1, [2.5]], [1, [2.5]])]
)
def test_values(value: object, expected: object) -> None:
    """NumPy's numbers and arrays become JSON's, and an undefined number becomes null."""
    (record,) = engine.compute([Run("check", "p", "numbers", options={"value": value})])
    assert record["status"] == "ok" and record["result"] == {"value": expected} and record["chunk"] == 4


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("fails", "KeyError: 'seed 0'"),
        ("diverges", "DivergedError: the loss is not a number in round 3"),
        ("leaves", "SystemExit: 0"),
        ("nothing", "ArgumentError: what 'nothing' returns must be .*Got None"),
        ("numbers", "ArgumentError: numbers.result.value must be finite. Got inf"),
    ],
)
def test_failures_are_records(method: str, told: str) -> None:
    """An error becomes a failed record with its type and message, and no result."""
    import re

    (record,) = engine.compute([Run("check", "p", method, options={"value": "inf"})])
    assert record["status"] == "failed" and record["result"] == {} and re.match(told, record["error"])


def test_one_thread_of_torch() -> None:
    """Whatever the number of threads, runs are computed with one, and the number is restored."""

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        registry.register("check", "quick", lambda run: {"result": {"threads": torch.get_num_threads()}})
        (record,) = engine.compute(runs(seeds=1))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
        registry._own.clear()
    assert record["result"] == {"threads": 1} and record["environment"]["threads"] == 1


def test_side_by_side(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """Training runs that differ only in seed are computed as batches; one that fails does not fail the others."""
    calls = fake_training(monkeypatch)
    wanted = sweep(task="train", paper="p", method=["FedAvg", "Local"], seed=range(6))
    frame = engine.execute(wanted, store=store, file="a", workers=1, side_by_side=3, quiet=True)
    assert calls == [[0, 1, 2], [0], [1], [2]] * 2 + [[3, 4, 5]] * 2
    assert sorted(frame["seed"]) == [0, 0, 1, 1, 3, 3, 4, 4] and list(frame["seed_was"]) == list(frame["seed"])
    assert {trouble["error"] for trouble in frame.attrs["failed"]} == {
        "DivergedError: seed 2",
        "DivergedError: seed 5",
    }
    record = store.get(wanted[6].key)  # FedAvg, seed 3
    assert record is not None and record["series"] == {"val": [3]} and record["chunk"] == 7
    assert record["batch"]["seeds"] == [run.seed for run in wanted[6::2]]
    assert record["seconds"] == pytest.approx(record["batch"]["seconds"] / 3, abs=1e-4)
    alone = store.get(wanted[0].key)
    assert alone is not None and alone["batch"]["seeds"] == [wanted[0].seed]


def test_seeds_stand_side_by_side_if_their_weights_fit_the_cache(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """Cora has 1,433 features: three float32 of 1433 x 16 for each of 10 clients are 2.8 MB a seed, 12 in 32 MiB.

    With 64 hidden units it is 3, with 256 none, and so it is for a graph of unknown size. A number that is given wins.
    """
    calls = fake_training(monkeypatch)
    common = {"task": "train", "paper": "p", "method": "Local", "partition": "random", "clients": 10, "dataset": "Cora"}
    wanted = sweep(**common, options={"hidden": [16, 64, 256]}, seed=range(4, 8))
    small, middle, large = (next(run for run in wanted if run.options["hidden"] == hidden) for hidden in (16, 64, 256))
    assert [engine.seeds_in_cache(run) for run in (small, middle, large)] == [12, 3, 1]
    assert engine.seeds_in_cache(small.replace(dataset="csbm-SNC")) == 1
    assert engine.seeds_in_cache(small.replace(task="check", method="gfl-weights", options={})) == 1
    engine.execute(wanted, store=store, file="a", workers=1, side_by_side="auto", progress=False, quiet=True)
    assert sorted(map(len, calls)) == [1, 1, 1, 1, 1, 3, 4]


# --- execute ---


@pytest.mark.parametrize("workers", [1, 2])
def test_execute(store: Store, tmp_path: Path, workers: int) -> None:
    """Runs the store lacks are computed once each, the frame holds all of them, another call computes none."""
    wanted = logging_runs(tmp_path, dataset=["Cora", "CS"])
    for expected in (4, 6, 6):
        asked = wanted[:4] if expected == 4 else [*wanted, *wanted]
        frame = engine.execute(asked, store=store, file="fedgat/6-x", workers=workers, progress=False)
        assert len(computed(tmp_path / "log")) == expected == len(frame)
    assert sorted(computed(tmp_path / "log")) == sorted(run.key for run in wanted)
    assert list(frame["key"]) == [run.key for run in wanted] and list(frame["count"]) == [1] * 6
    assert list(frame["score.test"]) == [(run.seed + 1) / 7 for run in wanted]
    assert frame.attrs == {"failed": [], "unavailable": []}
    assert (store.folder / "fedgat-6-x.jsonl").is_file() and len(Store(store.folder)) == 6


def test_order(store: Store, tmp_path: Path) -> None:
    """Seeds slowest, then small graphs first, then as given."""
    wanted = logging_runs(tmp_path, 2, dataset=["Physics", "Cora", "PubMed~standin", ""], clients=[9, 2])
    engine.execute(wanted, store=store, file="a", workers=1)
    found = [store.get(key)["run"] for key in computed(tmp_path / "log")]  # type: ignore[index]
    assert [(run["seed"], run["dataset"], run["clients"]) for run in found] == [
        (seed, dataset, clients)
        for seed in (0, 1)
        for dataset in ("", "Cora", "PubMed~standin", "Physics")
        for clients in (9, 2)
    ]


def test_failures_do_not_stop_others(store: Store) -> None:
    """Failed runs are kept with their error, left out of the frame, told in its attrs, and tried again."""
    wanted = [*runs("fails", 2), *runs("quick", 2)]
    with pytest.warns(UserWarning) as said:
        frame = engine.execute(wanted, store=store, file="a", workers=2)
    assert list(frame["method"]) == ["quick", "quick"]
    line = inspect.getsourcelines(fake_tasks.fails)[1] + 1
    errors = [f"KeyError: 'seed {seed}' (fake_tasks.py:{line})" for seed in range(2)]
    assert [trouble["error"] for trouble in frame.attrs["failed"]] == errors
    assert [str(one.message) for one in said] == [f"1 run failed: {error}" for error in errors]
    assert {one.filename for one in said} == {__file__}
    registry.register("check", "fails", "fake_tasks:quick")  # mended
    assert len(engine.execute(wanted, store=store, file="a", workers=1, retry=False, quiet=True)) == 2
    frame = engine.execute(wanted, store=store, file="a", workers=1)
    assert len(frame) == 4 and frame.attrs["failed"] == []


def test_unavailable_data(store: Store) -> None:
    """Runs whose graph cannot be had are left out and reported, not kept as failures; strict raises."""
    wanted = [*runs("absent", 2, dataset="Reddit"), *runs("quick", 1)]
    with pytest.warns(UserWarning, match="^2 runs left out: DataError: put the files of Reddit"):
        frame = engine.execute(wanted, store=store, file="a", workers=2)
    assert len(frame) == 1 and frame.attrs["failed"] == []
    told = {trouble["error"] for trouble in frame.attrs["unavailable"]}
    assert told == {"DataError: put the files of Reddit into data/raw"} and len(frame.attrs["unavailable"]) == 2
    assert (store.folder / "a.jsonl").read_text().count("\n") == 1
    with pytest.raises(DataError, match=r"^put the files of Reddit"):
        engine.execute(wanted, store=store, file="a", workers=1, strict=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_ends_its_program_is_a_failed_run(store: Store, workers: int) -> None:
    """A run that calls `sys.exit` fails with that as its error, and the sweep goes on."""
    frame = engine.execute(runs("leaves", 6), store=store, file="a", workers=workers, progress=False, quiet=True)
    assert sorted(frame["seed"]) == [1, 2, 3, 4, 5]
    (trouble,) = frame.attrs["failed"]
    assert trouble["error"].startswith("SystemExit: 0 (fake_tasks.py:")
    assert (store.folder / "a.jsonl").read_bytes().count(b"\n") == 6


def test_budget(store: Store, tmp_path: Path) -> None:
    """When the time is spent nothing new is started; what was computed is the beginning of the order."""
    wanted = runs("logged", 40, options={"log": str(tmp_path / "log"), "pause": 0.02}, clients=[1, 2])
    assert len(engine.execute(wanted, store=store, file="a", budget=0)) == 0 and not store.folder.exists()
    frame = engine.execute(wanted, store=store, file="a", workers=1, budget=0.3 / 60)
    assert 2 <= len(frame) < 40 and computed(tmp_path / "log") == [run.key for run in wanted[: len(frame)]]


def test_lost_worker_once(store: Store, tmp_path: Path) -> None:
    """The runs of a worker that was lost are done again."""
    frame = engine.execute(runs("once", 4, options={"log": str(tmp_path)}), store=store, file="a", workers=2)
    assert len(frame) == 4 and frame.attrs["failed"] == []


def test_lost_worker_always(store: Store) -> None:
    """A run that always ends its worker fails after three attempts, and takes no other with it."""
    frame = engine.execute(runs("kills", 5), store=store, file="a", workers=2, quiet=True)
    assert sorted(frame["seed"]) == [0, 2, 3, 4]
    (trouble,) = frame.attrs["failed"]
    assert trouble["run"]["seed"] == 1 and trouble["error"].startswith("BrokenProcessPool")


def test_broken_executor_of_the_caller(store: Store) -> None:
    """A pool that was given and breaks is replaced by one of our own."""
    with executors.executor("local", workers=2) as given:
        frame = engine.execute(runs("kills", 3), store=store, file="a", executor=given, quiet=True)
    assert sorted(frame["seed"]) == [0, 2]


def test_any_executor(store: Store) -> None:
    """Threads of the caller do as well, and stay the caller's to shut down."""
    with ThreadPoolExecutor(3) as given:
        frame = engine.execute(runs(seeds=5), store=store, file="a", executor=given)
        assert len(frame) == 5 and given.submit(int, "3").result() == 3


def test_what_workers_cannot_import(store: Store) -> None:
    """A function written on the spot is computed in this process, whatever the number of workers."""
    registry.register("check", "quick", lambda run: {"result": {"process": os.getpid()}})
    try:
        frame = engine.execute(runs(seeds=3), store=store, file="a", workers=2)
    finally:
        registry._own.clear()
    assert list(frame["process"]) == [os.getpid()] * 3


@pytest.mark.filterwarnings("ignore:All is computed in this process")  # tests/runs/test_clusters.py expects it
def test_made_graphs_go_to_workers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph registered by hand keeps its runs in this process; one this package makes, loaded here, does not."""
    from fedrepro.data import datasets

    monkeypatch.setattr(datasets, "_own", dict.fromkeys(("mine", "csbm-SC")))

    class Counting(executors.Inline):
        _max_workers = 1
        given = 0

        def submit(self, *task: Any, **more: Any) -> Any:
            self.given += 1
            return super().submit(*task, **more)

    for dataset, expected in (("csbm-SC", 3), ("mine", 0)):
        counting = Counting()
        engine.execute(runs(dataset=dataset), store=store, file="a", executor=counting, progress=False)
        assert counting.given == expected


def test_a_result_belongs_to_the_code_it_began_with(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fingerprint is taken before a run computes, as its file may change meanwhile."""
    seen: list[str] = []
    real = fake_tasks.quick
    monkeypatch.setattr("fedrepro.runs.provenance.fingerprint", lambda *of: seen.append("code") or "f")
    monkeypatch.setattr(fake_tasks, "quick", lambda run: seen.append("run") or real(run))
    engine.execute(runs(seeds=1), store=store, file="a", workers=1, progress=False)
    assert seen[:2] == ["code", "run"]


def test_workers_are_processes_with_one_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default runs are computed in other processes, where one thread is set before torch is loaded."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    registry.register("check", "quick", "fake_tasks:threads")
    frame = engine.execute(runs(seeds=2), store=store, file="a")
    assert os.getpid() not in list(frame["process"]) and list(frame["omp"]) == ["1", "1"]


def test_interruption(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption loses only the run in flight; the next call computes the rest."""
    wanted = logging_runs(tmp_path, 5)
    stop = fake_tasks.quick

    def interrupted(run: Run) -> dict[str, Any]:
        if run.seed == 3:
            raise KeyboardInterrupt
        return stop(run)

    with monkeypatch.context() as patch:
        patch.setattr(fake_tasks, "quick", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.execute(wanted, store=store, file="a", workers=1)
    assert len(Store(store.folder)) == 3
    assert len(engine.execute(wanted, store=store, file="a", workers=1)) == 5
    assert len(computed(tmp_path / "log")) == 6


def test_computed_elsewhere_meanwhile(store: Store, tmp_path: Path) -> None:
    """A run that another process finishes while this one is at work is not computed again."""
    wanted = logging_runs(tmp_path, 3)
    other = Store(store.folder)

    class Meddler(executors.Inline):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            done = super().submit(fn, *args, **kwargs)
            if wanted[2].key not in other:
                other.append("b", *engine.compute([wanted[2]]))
            return done

    frame = engine.execute(wanted, store=store, file="a", executor=Meddler(), workers=1)
    assert len(frame) == 3 and len(computed(tmp_path / "log")) == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_computed_again_has_its_new_result(store: Store, tmp_path: Path, workers: int) -> None:
    """All runs whose keys are given are computed again, once, and no other; the file keeps the old lines."""
    wanted = logging_runs(tmp_path, 3)
    engine.execute(wanted, store=store, file="a", workers=1)
    old = {record["key"]: record for record in store}
    again = pd.Series([run.key for run in wanted[1:]], index=[7, 8])  # as a column of a frame
    store.append("a", old[again[7]] | {"result": {"score": {"test": 0.0}}})  # a result that the code would not give
    frame = engine.execute(wanted, store=store, file="b", workers=workers, progress=False, again=again)
    assert list(frame["score.test"]) == [(run.seed + 1) / 7 for run in wanted]
    assert sorted(computed(tmp_path / "log")[3:]) == sorted(again)
    assert {store.file(key) for key in again} == {"b.jsonl"} and store.file(wanted[0].key) == "a.jsonl"
    assert len((store.folder / "a.jsonl").read_bytes().splitlines()) == 4


def test_a_run_that_fails_when_computed_again_keeps_its_result(store: Store) -> None:
    """The failure is told and the old result stays, so that nothing stored is lost."""
    (run,) = runs("fails", 1)
    before = engine.compute(runs("quick", 1))[0]
    code = provenance.fingerprint(run.task, run.method)
    store.append("a", before | {"key": run.key, "run": run.to_dict(), "fingerprint": code})
    frame = engine.execute([run], store=store, file="a", workers=1, again=[run.key], quiet=True)
    assert list(frame["score.test"]) == [1 / 7]
    (trouble,) = frame.attrs["failed"]
    assert trouble["error"].startswith("KeyError: 'seed 0'")


def test_a_store_that_cannot_be_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk stops the execution with an error that says so, and ends the workers."""
    wanted = runs("logged", 30, options={"log": os.devnull, "pause": 0.05})

    def full(descriptor: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    before = threading.active_count()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(StoreError, match="the disk is full"):
            engine.execute(wanted, store=store, file="a", workers=1)
    assert len(Store(store.folder)) == 0 and threading.active_count() <= before


def test_results_of_other_code_of_an_own_method_are_told(store: Store) -> None:
    """A method that a script changed gives its stored results with a warning; computed again they have none."""

    def take(result: int) -> None:
        body = f"def edited(run):\n    return {{'result': {{'value': {result}}}}}"
        Path(store.folder.parent / "mine.py").write_text(body)
        linecache.clearcache()
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(body, str(store.folder.parent / "mine.py"), "exec"), space)
        registry.register("check", "edited", space["edited"])

    take(1)
    wanted = runs("edited", 2)
    engine.execute(wanted, store=store, file="a")
    take(2)
    with pytest.warns(UserWarning, match=r"^2 results of 'edited' were computed by other code of it: raise `version`"):
        frame = engine.execute(wanted, store=store, file="a")
    assert list(frame["value"]) == [1, 1]
    assert list(engine.execute(wanted, store=store, file="a", again=frame["key"])["value"]) == [2, 2]
