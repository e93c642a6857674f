"""Clusters that are not there or go away: one sentence each, within five seconds, and nothing finished is lost."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from fedrepro.data import datasets
from fedrepro.errors import ArgumentError, FedreproError
from fedrepro.runs import execute as engine
from fedrepro.runs import executors
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store

pytestmark = pytest.mark.usefixtures("fakes")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def test_a_scheduler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address at which nobody listens is an error of one sentence within five seconds."""
    pytest.importorskip("distributed", reason="Dask is not tried: the extra 'dask' is not installed")
    monkeypatch.setenv("FEDREPRO_ADDRESS", f"tcp://127.0.0.1:{free_port()}")
    start = time.monotonic()
    with pytest.raises(ArgumentError, match=r"address must be .*, that answers within 3 s\. Got 'tcp://127.0.0.1:\d+'"):
        engine.execute(_runs(2), store=Store(tmp_path), file="a", executor="dask")
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "address", ["not an address", "tcp://host", "tcp://host:port", "http://127.0.0.1:1", "127.0.0.1"]
)
def test_an_address_that_is_none(address: str) -> None:
    """Text that is no address of a scheduler is refused with the form of one."""
    pytest.importorskip("distributed", reason="Dask is not tried: the extra 'dask' is not installed")
    with pytest.raises(ArgumentError, match=rf"address must be .*'tcp://host:8786'.* Got '{address}'"):
        executors.executor("dask", address)


def test_slurm_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine `slurm` is refused if Slurm's commands are missing."""
    pytest.importorskip("submitit", reason="Slurm is not tried: the extra 'slurm' is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ArgumentError, match=r"engine must be 'local' or 'dask' where Slurm is not installed: .*srun"):
        engine.execute(_runs(2), store=Store(tmp_path), file="a", executor="slurm")


class Ends(Executor):
    """A cluster whose scheduler ends after two runs: what it has is cancelled."""

    _max_workers = 5

    def __init__(self) -> None:
        self.given: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.given.append(future)
        if len(self.given) in (2, 5):
            future.set_result(fn(*args))
        if len(self.given) == 5:
            for other in self.given:
                if other.cancel():
                    other.set_running_or_notify_cancel()
        return future


def test_a_cluster_that_ends(tmp_path: Path) -> None:
    """Runs that a cluster cancels by itself are an error that says so; all that was finished is kept."""
    store = Store(tmp_path)
    with pytest.raises(
        FedreproError, match=r"Ends has cancelled a run, as a cluster does that ends\. What was finished"
    ):
        engine.execute(_runs(5), store=store, file="a", executor=Ends())
    assert len(store) == 2


def test_what_other_machines_cannot_import_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph registered by hand is computed in this process, and a warning says so; on the local engine none does."""
    monkeypatch.setattr(datasets, "_own", {})
    edges = torch.tensor([[0, 1], [1, 0]])
    datasets.register("mine", lambda: Data(x=torch.eye(4), y=torch.tensor([0, 1, 0, 1]), edge_index=edges))
    store, runs = Store(tmp_path), sweep(task="check", paper="p", method="quick", dataset="mine", seed=range(2))
    with pytest.warns(UserWarning, match="All is computed in this process: other machines cannot import graphs"):
        frame = engine.execute(runs, store=store, file="a", executor="slurm")
    assert len(frame) == 2
    assert len(engine.execute([run.replace(clients=2) for run in runs], store=store, file="a")) == 2


def test_an_option_that_needs_too_much_memory_is_named() -> None:
    """The record of a run that no memory suffices for names the option; another error stays as it is."""
    run = Run(
        "train", "p", "FedAvg", dataset="Cora~standin", split="30/30/40", clients=2, partition="random(equal=True)"
    )
    (record,) = engine.compute([run.replace(options={"rounds": 2, "hidden": 10**12})])
    assert record["status"] == "failed" and "(the largest option is hidden = 1000000000000)" in record["error"]
    (record,) = engine.compute([run.replace(options={"rounds": 2, "hiden": 10**12})])
    assert "hiden" in record["error"] and "largest option" not in record["error"]


def _runs(seeds: int) -> list[Run]:
    return sweep(task="check", paper="p", method="quick", seed=range(seeds))
