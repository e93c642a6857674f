"""Runs of a sweep on the simulated accelerator: where they compute, what is stored, and what becomes of failures.

As `on_device.py`, it is started by `test_device.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_tasks
import pytest
import torch
from device import simulated

from fedrepro import registry
from fedrepro.errors import ArgumentError
from fedrepro.runs import lanes, provenance
from fedrepro.runs.execute import compute, execute
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store
from fedrepro.runs.verification import verify

# On this device an operation comes as its `out` form, which says this of a loss averaged over nodes.
pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
TOY = {"dataset": "Cora~standin", "prepare": "unit-norm", "split": "public", "partition": "random", "clients": 3}


@pytest.fixture(autouse=True)
def _whole_device() -> Iterator[None]:
    yield
    simulated.limit()


def trained(**more: Any) -> Run:
    return Run("train", "p", "FedAvg", options={"rounds": 2, "hidden": 4, **more.pop("options", {})}, **TOY | more)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    fake_tasks.register()
    for name in ("on device", "meeting"):
        target = f"fake_tasks:{name.replace(' ', '_')}"
        registry.REGISTRY["check", name] = registry.Entry(target, on_device=True, options=None)
    yield Store(tmp_path / "results")
    for name in ("on device", "meeting"):
        del registry.REGISTRY["check", name]
    fake_tasks.forget()


def test_a_sweep_on_a_gpu(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training goes through a process of the GPU, checks beside it through the CPU's; records say where, and how.

    A device assert costs a process: its run is told as failed and not stored, and those after it are computed.
    """
    monkeypatch.setattr(lanes, "ATTEMPTS", 2)  # each costs a process, which takes seconds to begin
    log = {"log": str(tmp_path)}
    on_gpu = [Run("check", "p", "on device", seed=seed, options=log) for seed in range(3)]
    on_cpu = [Run("check", "p", "logged", seed=seed, options={"log": f"{tmp_path}/log"}) for seed in range(2)]
    wanted = [*on_gpu, trained(), *on_cpu]
    with pytest.warns(UserWarning, match="1 run failed: .*device-side assert"):
        frame = execute(wanted, store=store, file="a", device="auto", workers=2, progress=False)
    assert {trouble["key"] for trouble in frame.attrs["failed"]} == {on_gpu[1].key}
    assert "device-side assert" in frame.attrs["failed"][0]["error"]
    assert store.failure(on_gpu[1].key) is None and on_gpu[1].key not in store
    places = {record["key"]: store.environments[record["environment"]] for record in store}
    assert {places[run.key]["device"] for run in (on_gpu[0], on_gpu[2], trained())} == {simulated.NAME}
    assert {places[run.key]["device"] for run in on_cpu} == {"cpu"}
    gpu, cpu = places[trained().key], places[on_cpu[0].key]
    assert (gpu["capability"], gpu["float32_matmul_precision"], gpu["deterministic"]) == ("8.0", "highest", True)
    assert gpu["memory_mebibytes"] == simulated.MEMORY >> 20 and {"cuda", "driver"} <= set(gpu)
    assert set(cpu) == {*provenance.environment("cpu")} and set(cpu) < set(gpu)
    assert not torch.are_deterministic_algorithms_enabled()
    processes = [int(line.split()[1]) for line in Path(f"{tmp_path}/log").read_text().splitlines()]
    first, last = (store.get(on_gpu[n].key)["result"] for n in (0, 2))  # type: ignore[index]
    assert len({first["process"], last["process"], os.getpid(), *processes}) == 3 + len(set(processes))
    # The collector, asked after each run, does not go through the modules.
    assert min(first["frozen"], last["frozen"]) > 100_000


def test_several_processes_share_a_gpu(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With FEDREPRO_PER_GPU several runs compute there at once, and training gives what it gives alone."""
    monkeypatch.setenv("FEDREPRO_PER_GPU", "2")
    meet = {"folder": str(tmp_path / "meet"), "count": 2}  # each waits for the other
    pair = [Run("check", "p", "meeting", seed=seed, options=meet) for seed in range(2)]
    train = [trained(options={"rounds": rounds}) for rounds in (2, 3)]
    frame = execute([*pair, *train], store=store, file="a", device="cuda", workers=2, progress=False)
    assert not frame.attrs["failed"] and len(frame) == 4
    (first, second) = (store.get(run.key)["result"]["process"] for run in pair)  # type: ignore[index]
    assert first != second
    for run in train:
        (alone,) = compute([run], "cuda")
        assert alone["result"] == store.get(run.key)["result"]  # type: ignore[index]
    monkeypatch.setenv("FEDREPRO_PER_GPU", "many")
    with pytest.raises(ArgumentError, match="FEDREPRO_PER_GPU must be an integer >= 1"):
        execute(
            [trained(seed=1), pair[0].replace(seed=7)], store=store, file="a", device="cuda", workers=2, progress=False
        )


def test_a_worker_of_dask_computes_there(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of Dask, a process of its own, finds the device, and training gives there what it gives here."""
    distributed = pytest.importorskip("distributed", reason="Dask is not tried: the extra 'dask' is not installed")
    there = Run("check", "p", "on device")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        monkeypatch.setenv("FEDREPRO_ADDRESS", cluster.scheduler_address)
        frame = execute([there, trained()], store=store, file="a", executor="dask", device="auto", progress=False)
    assert not frame.attrs["failed"]
    records = {record["key"]: record for record in store}
    places = [store.environments[records[run.key]["environment"]]["device"] for run in (there, trained())]
    assert places == [simulated.NAME] * 2 and records[there.key]["result"]["process"] != os.getpid()
    assert records[trained().key]["result"] == compute([trained()], "cuda")[0]["result"]


def test_memory_that_ends_is_no_record(store: Store) -> None:
    """A run for which memory ends is told as failed, is not stored, and is computed once there is memory."""
    simulated.limit(torch.cuda.memory_allocated() + 10_000)
    with pytest.warns(UserWarning) as told:
        frame = execute([trained()], store=store, file="a", device="cuda", progress=False)
    assert "1 run failed: OutOfMemoryError" in str(told[0].message) and "frame is empty" in str(told[1].message)
    assert [trouble["error"][:38] for trouble in frame.attrs["failed"]] == [
        "OutOfMemoryError: CUDA out of memory. T"[:38]
    ]
    assert len(frame) == 0 and store.failure(trained().key) is None
    simulated.limit()
    assert len(execute([trained()], store=store, file="a", device="cuda", progress=False)) == 1


def test_side_by_side_does_not_fit(store: Store) -> None:
    """Runs that do not fit side by side are trained one after the other."""

    def most(*runs: Run) -> int:
        torch.cuda.reset_peak_memory_stats()
        compute(runs, "cuda")
        return torch.cuda.max_memory_allocated()

    seeds = [trained(seed=seed) for seed in range(4)]
    together, alone = most(*seeds), most(seeds[0])
    simulated.limit((2 * alone + together) // 3)
    again = compute(seeds, "cuda")
    assert [record["status"] for record in again] == ["ok"] * 4


def test_seeds_side_by_side_by_default(store: Store) -> None:
    """A GPU trains the seeds of a cell as one batch unless told otherwise, and the CPU one after the other."""
    for hidden, (device, asked, sizes) in enumerate([("cuda", None, [3]), ("cpu", None, [1] * 3), ("cuda", 2, [2, 1])]):
        runs = [trained(seed=seed, options={"hidden": 1 + hidden}) for seed in range(3)]
        execute(runs, store=store, file="a", device=device, progress=False, workers=1, side_by_side=asked)
        batches = {tuple(record["batch"]["seeds"]) for run in runs if (record := store.get(run.key))}
        assert sorted(map(len, batches), reverse=True) == sizes


def test_verified_where_it_was_computed(store: Store) -> None:
    """`verify` computes a record of a GPU on the GPU, to the last bit, and on the CPU within rounding."""
    execute([trained()], store=store, file="a", device="cuda", progress=False)
    found = [verify(store, 1, device=device, progress=False)["verdict"].item() for device in ("own", "cuda", "cpu")]
    assert found == ["identical", "identical", "close"]
