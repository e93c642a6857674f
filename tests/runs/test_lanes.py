"""Lanes: who computes which groups, who has a GPU, and what becomes of a worker whose GPU is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedrepro.runs import lanes
from fedrepro.runs.executors import DeviceLostError, Inline

HOLDS = """
import sys, time
from fedrepro.runs.lanes import Lane
lane = Lane(iter(()), 1, gpu=sys.argv[1])
assert lane.is_ready()
print("has it", flush=True)
time.sleep(60)
"""


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a GPU whose lock lies in this test's folder."""
    monkeypatch.setattr(lanes.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    lanes._lock.cache_clear()
    yield "0"
    lanes._lock.cache_clear()


def where(number: int) -> tuple[int, int, str | None]:
    return number, os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES")


def loses(number: int) -> int:
    """Lose the GPU of this process with number 1."""
    if number == 1 or os.environ.get("LOST") == str(os.getpid()):
        os.environ["LOST"] = str(os.getpid())  # a new process inherits it, and is another
        raise DeviceLostError("AcceleratorError: CUDA error: device-side assert triggered")
    return os.getpid()


def outcomes(crew: list[lanes.Lane], work: Any) -> list[Any]:
    kept: list[Any] = []
    lanes.gather(crew, work, lambda group, outcome: kept.append((group, outcome)))
    return [outcome for _, outcome in sorted(kept, key=lambda pair: pair[0])]


def test_a_gpu_beside_the_cpu(gpu: str) -> None:
    """The GPU's groups go through a separate process that sees that GPU, the others through the CPU's processes."""
    crew = [lanes.Lane(iter(range(3)), 1, gpu=gpu, apart=True), lanes.Lane(iter(range(10, 14)), 2)]
    found = outcomes(crew, where)
    on_gpu, on_cpu = found[:3], found[3:]
    assert {name for *_, name in on_gpu} == {gpu} and {name for *_, name in on_cpu} == {
        os.getenv("CUDA_VISIBLE_DEVICES")
    }
    assert len({process for _, process, _ in on_gpu}) == 1
    assert not {process for _, process, _ in on_gpu} & {os.getpid(), *(process for _, process, _ in on_cpu)}


def test_one_process_at_a_time_has_a_gpu(gpu: str) -> None:
    """A lane waits while another process has the GPU, draws nothing meanwhile, and goes on once that is killed."""
    other = subprocess.Popen([sys.executable, "-c", HOLDS, gpu], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None and other.stdout.readline() == "has it\n"
        drawn: list[int] = []

        def groups() -> Iterator[int]:
            for number in range(2):
                drawn.append(number)
                yield number

        deadline = time.monotonic() + 0.5
        lanes.gather([lanes.Lane(groups(), 1, gpu=gpu)], abs, lambda group, outcome: None, deadline=deadline)
        assert drawn == []
        assert outcomes([lanes.Lane(iter([-3]), 1, gpu="1")], abs) == [3]  # another GPU is free
    finally:
        other.kill()
        other.communicate()
    assert outcomes([lanes.Lane(iter([-3]), 1, gpu=gpu)], abs) == [3]


def test_the_gpu_is_given_back(gpu: str) -> None:
    """A lane whose groups have ended lets another have the GPU, while the rest is still computed."""
    first = lanes.Lane(iter([1]), 1, gpu=gpu)
    seen: list[bool] = []

    def later() -> Iterator[int | None]:
        for _ in range(3):
            yield None
        seen.append(first._holds)
        yield 5

    lanes.gather([first, lanes.Lane(later(), 1)], abs, lambda group, outcome: None)
    assert seen == [False]


@pytest.mark.parametrize("apart", [True, False])
def test_a_lost_gpu_costs_a_worker(gpu: str, apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a GPU is lost, the rest is computed by a new process; what loses it three times comes with the error."""
    monkeypatch.setenv("LOST", "")
    found = outcomes([lanes.Lane(iter(range(4)), 1, gpu=gpu, apart=apart)], loses)
    assert isinstance(found[1], DeviceLostError) and "device-side assert" in str(found[1])
    assert all(isinstance(process, int) for process in (found[0], *found[2:])) and found[0] != found[2]


def test_this_process_is_not_replaced_where_others_cannot_compute(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything after the loss of a GPU comes with the error if no other process can compute a notebook's code."""
    monkeypatch.setenv("LOST", "")
    found = outcomes([lanes.Lane(iter(range(3)), 1, Inline(), gpu)], loses)
    assert found[0] == os.getpid() and all(isinstance(outcome, DeviceLostError) for outcome in found[1:])
