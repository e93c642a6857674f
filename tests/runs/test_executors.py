"""The executors, and what is computed where on a machine with a GPU."""

from __future__ import annotations

import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_tasks
import pytest
import torch
from fake_training import fake_training

from fedrepro import registry
from fedrepro.errors import ArgumentError, StoreError
from fedrepro.runs import execute as engine
from fedrepro.runs import executors
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


def test_executor_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown engine, a missing address or a missing package is an error that says what to do."""
    with pytest.raises(ArgumentError, match=r"engine must be one of 'local', 'dask', 'slurm'\. Got 'dusk'"):
        executors.executor("dusk")
    monkeypatch.delenv("FEDREPRO_ADDRESS", raising=False)
    with pytest.raises(ArgumentError, match="address must be the address of a Dask scheduler"):
        executors.executor("dask")
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ArgumentError, match=r"pip install 'fedrepro\[dask\]'"):
        executors.executor("dask", "tcp://127.0.0.1:1")
    with pytest.raises(ArgumentError, match=r"pip install 'fedrepro\[slurm\]'"):
        executors.executor("slurm")
    monkeypatch.setenv("FEDREPRO_WORKERS", "two")
    with pytest.raises(ArgumentError, match="FEDREPRO_WORKERS must be an integer"):
        executors.cores()


def test_dask(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs on a Dask cluster arrive in the store of the driver."""
    distributed = pytest.importorskip("distributed", reason="Dask is not tried: the extra 'dask' is not installed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        monkeypatch.setenv("FEDREPRO_ADDRESS", cluster.scheduler_address)
        frame = engine.execute([*runs(seeds=3), *runs("fails", 1)], store=store, file="a", executor="dask", quiet=True)
    assert list(frame["seed"]) == [0, 1, 2] and len(frame.attrs["failed"]) == 1


def test_slurm(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of submitit (run here without Slurm) arrive in the store of the driver."""
    pytest.importorskip("submitit", reason="Slurm is not tried: the extra 'slurm' is not installed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])]))
    with executors.Slurm(str(tmp_path / "logs"), cluster="local", timeout_min=1) as given:
        frame = engine.execute(runs(seeds=2), store=store, file="a", executor=given)
    assert list(frame["seed"]) == [0, 1] and frame.attrs["failed"] == []


class Job:
    """A job of a faked submitit: the first is done at once, another after five seconds unless it is cancelled."""

    all: list[Job] = []  # noqa: RUF012

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work, self.end, self.cancelled = work, time.monotonic() + 5 * bool(Job.all), False
        Job.all.append(self)

    def done(self) -> bool:
        return time.monotonic() >= self.end

    def result(self) -> Any:
        return self.work()

    def cancel(self, check: bool = True) -> None:
        self.cancelled = True


class Jobs:
    def __init__(self, folder: Path, cluster: str) -> None:
        Job.all = []

    def update_parameters(self, **parameters: Any) -> None:
        pass

    def submit(self, fn: Callable[..., Any], *args: Any) -> Job:
        return Job(lambda: fn(*args))


@pytest.mark.parametrize("trouble", ["an interrupt", "a full disk"])
def test_slurm_abandoned(store: Store, monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    """After an interrupt or an error of the store, jobs are cancelled and not waited for."""
    monkeypatch.setitem(sys.modules, "submitit", types.SimpleNamespace(AutoExecutor=Jobs))  # type: ignore[arg-type]

    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt if trouble == "an interrupt" else StoreError("the disk is full")

    monkeypatch.setattr(store, "append", stop)
    start = time.monotonic()
    with pytest.raises((KeyboardInterrupt, StoreError)):
        engine.execute(runs(seeds=4), store=store, file="a", executor="slurm")
    assert time.monotonic() - start < 5 and [job.cancelled for job in Job.all] == [False, True, True, True]


def test_slurm_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shutting down cancels what is pending only if asked; a cancelled future ends its job, a failed one tells why."""
    monkeypatch.setitem(sys.modules, "submitit", types.SimpleNamespace(AutoExecutor=Jobs))  # type: ignore[arg-type]
    given = executors.Slurm()
    failed, waiting = given.submit(int, "x"), given.submit(int, "3")
    assert isinstance(failed.exception(timeout=5), ValueError)
    given.shutdown(wait=False)
    assert not waiting.cancelled()
    given.shutdown(cancel_futures=True)
    assert waiting.cancelled() and [job.cancelled for job in Job.all] == [False, True]


@pytest.mark.parametrize("gpu", [True, False])
def test_auto_is_the_gpu_if_there_is_one(gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` is the GPU if there is one; `cuda` without one is refused."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert executors.resolved("cpu") == "cpu" and executors.resolved("auto") == ("cuda" if gpu else "cpu")
    if gpu:
        assert executors.resolved("cuda") == "cuda"
    else:
        with pytest.raises(ArgumentError, match="where no GPU is found"):
            executors.resolved("cuda")


@pytest.mark.parametrize(("cuda", "why"), [(None, "is built without CUDA"), ("13.0", "is built for CUDA 13.0")])
def test_auto_says_once_why_it_takes_the_cpu(cuda: str | None, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` says why torch finds no GPU if `nvidia-smi` is installed, and does not say it a second time."""
    executors._say_why_not.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(executors.shutil, "which", lambda program: f"/usr/bin/{program}")
    with pytest.warns(UserWarning, match=why):
        assert executors.resolved("auto") == "cpu"
    assert executors.resolved("auto") == "cpu" and executors.resolved("cpu") == "cpu"
    executors._say_why_not.cache_clear()


ON_THE_CPU = [("cpu", "local", True, 9), ("auto", "local", False, 9), ("cuda", "dask", True, 9)]
ON_A_GPU = [("auto", "local", True, 4), ("cuda", "local", False, 4)]


@pytest.mark.parametrize(("device", "engine", "smi", "expected"), [*ON_THE_CPU, *ON_A_GPU])
def test_four_notebooks_at_once_for_each_gpu(
    device: str, engine: str, smi: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notebooks that compute on a GPU share it with three others, and on the CPU there is one more than cores."""
    monkeypatch.setenv("FEDREPRO_WORKERS", "8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(executors.shutil, "which", lambda program: "/usr/bin/nvidia-smi" if smi else None)
    assert executors.at_once(device, engine) == expected


@pytest.mark.parametrize(
    ("given", "names"), [(None, ["0", "1"]), ("3,5", ["3", "5"]), ("GPU-a,GPU-b", ["GPU-a", "GPU-b"])]
)
def test_gpus_are_named_as_the_variable_takes_them(
    given: str | None, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker sees one GPU of those that this process sees, by the name that it has in `CUDA_VISIBLE_DEVICES`."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert executors.gpus() == names
    with executors.pool(1, names[1]) as given_pool:
        assert given_pool.submit(os.getenv, "CUDA_VISIBLE_DEVICES").result() == names[1]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> str:
    """Make torch find one GPU, and return its name."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    properties = SimpleNamespace(name="some GPU", major=9, minor=0, total_memory=2**33)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    return "some GPU"


def devices(store: Store) -> set[str]:
    return {store.environments[record["environment"]]["device"] for record in store}


@pytest.mark.parametrize("task", ["check", "bench"])
def test_what_needs_no_gpu(store: Store, gpu: str, task: str) -> None:
    """With a GPU, what only computes on the CPU says so, and takes all cores."""
    registry.register(task, "quick", "fake_tasks:threads")
    frame = engine.execute(runs(seeds=2, task=task), store=store, file="a", device="auto")
    assert devices(store) == {"cpu"} and os.getpid() not in list(frame["process"])


def test_rounds_are_timed_on_the_device(store: Store, gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is a function of the device is given it, and its record names it."""
    monkeypatch.setattr("fedrepro.papers.engine.bench.rounds", lambda run, device: {"result": {"on": device}})
    frame = engine.execute([Run("bench", "p", "rounds", options={"hidden": 16})], store=store, file="a", device="auto")
    assert list(frame["on"]) == ["cuda"] and devices(store) == {gpu}


def test_lost_workers_and_a_gpu(store: Store, gpu: str) -> None:
    """The record of a run that ended its worker names the CPU as well."""
    engine.execute(runs("kills", 2), store=store, file="a", device="cuda", workers=2, quiet=True)
    failure = store.failure(runs("kills", 2)[1].key)
    assert failure is not None and store.environments[failure["environment"]]["device"] == "cpu"


def test_training_takes_the_gpu(store: Store, gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds train as one batch in this process, or one after the other if asked, and their records name the GPU."""
    calls = fake_training(monkeypatch)
    seeds = [Run("train", "p", "FedAvg", seed=s) for s in (0, 1)]
    engine.execute(seeds, store=store, file="a", device="auto", workers=1)
    others = [seed.replace(options={"lr": 0.1}) for seed in seeds]
    engine.execute(others, store=store, file="a", device="auto", workers=1, side_by_side=1)
    assert calls == [[0, 1], [0], [1]] and devices(store) == {gpu}
