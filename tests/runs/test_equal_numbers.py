"""A run's numbers are the same to the last bit, or to rounding, where README.md promises it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedrepro.engine import training
from fedrepro.runs import tasks
from fedrepro.runs.execute import compute, execute
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store

HERE = Path(__file__).resolve()
ROUNDING = 1e-5  # of float32 over two rounds, relative


def wanted() -> list[Run]:
    """Two seeds of averaging and of a method that exchanges rows before it trains, with dropout, at three clients."""
    cell = {"dataset": "Cora~standin", "prepare": "undirected+row-sum", "split": "10/10/80", "partition": "metis"}
    options = {"rounds": 2, "hidden": 4, "dropout": 0.5, "series": True}
    methods = ["FedAvg", "FedGCN"]
    return sweep(task="train", paper="p", method=methods, **cell, clients=3, seed=range(2), options=options)


def values(runs: list[Run]) -> dict[str, Any]:
    """Compute runs one by one; return what each came to, without seconds."""
    return {run.key: told(compute([run])[0]) for run in runs}


def told(record: Any) -> Any:
    assert record["status"] == "ok", record["error"]
    return json.loads(json.dumps({name: record[name] for name in ("result", "series") if name in record}))


def numbers(nested: Any) -> Iterator[float]:
    if isinstance(nested, dict | list):
        for entry in nested.values() if isinstance(nested, dict) else nested:
            yield from numbers(entry)
    elif isinstance(nested, int | float):
        yield float(nested)


def losses(result: Any) -> list[float]:
    return [result["result"]["train_loss"], *result["series"]["train_loss"]]


@pytest.fixture(scope="module")
def usual() -> dict[str, Any]:
    """The numbers of all runs, in their order, in this process."""
    numbers_of = values(wanted())
    assert len({json.dumps(scores) for scores in numbers_of.values()}) == len(numbers_of) == 4, (
        "the runs differ from each other"
    )
    assert all(len(list(numbers(scores))) > 40 for scores in numbers_of.values())
    return numbers_of


def test_order_and_what_was_drawn_before_change_no_bit(usual: dict[str, Any]) -> None:
    """In the reverse order, after other draws from global generators and with two threads, all is the same."""
    before = torch.get_num_threads()
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    torch.set_num_threads(2)
    try:
        assert values(wanted()[::-1]) == usual
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_no_bit(workers: int, usual: dict[str, Any]) -> None:
    """One process, or two that each compute some of the runs, store the same numbers."""
    store = Store()
    execute(wanted(), store=store, file="a", workers=workers, progress=False)
    records = [store.get(run.key) for run in wanted()]
    assert {record["key"]: told(record) for record in records if record is not None} == usual


def test_hash_seed_and_threads_change_no_bit(usual: dict[str, Any]) -> None:
    """An interpreter with another hash seed and two OpenMP threads gives the same numbers."""
    path = os.pathsep.join([str(HERE.parent), str(HERE.parents[2])])
    environment = os.environ | {
        "PYTHONHASHSEED": "7",
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "PYTHONPATH": path,
    }
    code = "import json, test_equal_numbers as t; print(json.dumps(t.values(t.wanted())))"
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == usual


@pytest.mark.parametrize("chunk", [1, 2])
def test_other_chunks_change_rounding_alone(chunk: int, usual: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With one or two clients in a chunk, losses agree to rounding."""
    monkeypatch.setattr(tasks, "train_federation", partial(training.train, chunk=chunk))
    for key, found in values(wanted()).items():
        assert losses(found) == pytest.approx(losses(usual[key]), rel=ROUNDING)


def test_seeds_side_by_side_change_rounding_alone(usual: dict[str, Any]) -> None:
    """Two seeds that are trained as one batch have the losses that each has by itself, to rounding."""
    for method in ("FedAvg", "FedGCN"):
        runs = [run for run in wanted() if run.method == method]
        for record in compute(runs):
            assert losses(told(record)) == pytest.approx(losses(usual[record["key"]]), rel=ROUNDING)


def test_another_seed_is_more_than_rounding(usual: dict[str, Any]) -> None:
    """The control: two seeds of a method differ by more than what is called rounding."""
    first, second = (usual[run.key] for run in wanted() if run.method == "FedAvg")
    assert losses(first) != pytest.approx(losses(second), rel=10 * ROUNDING)
