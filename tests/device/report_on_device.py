"""The report of a GPU on the simulated accelerator.

As `on_device.py`, it is started by `test_device.py`.
"""

from __future__ import annotations

import math

import pytest
from device import simulated

from fedrepro.engine import training
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import Method, State
from fedrepro.papers.engine import gpu

# On this device an operation comes as its `out` form, which says this of a loss averaged over nodes.
pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")


def test_the_report_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make gpu-report` in its short form says where everything stands; a section that breaks is told, and counts."""
    runs = gpu.methods()
    monkeypatch.setattr(gpu, "methods", lambda: runs)  # reading all grids once takes seconds
    page, well = gpu.write(short=True, seconds=7200)  # this device is slow, and perhaps others use the machine
    text = page.read_text(encoding="utf-8")
    assert well and all(f"\n## {title}\n" in text for title in gpu.SECTIONS)
    assert simulated.NAME in text and "1 of 1 notebooks run" in text and "| identical |" in text
    assert {run.method for run in runs} >= {"FedAvg", "FedGAT", "FedStruct", "GFL-APPNP", "Feras", "FedSheafHN"}

    def breaks(short: bool, until: float) -> tuple[str, bool]:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(gpu, "SECTIONS", {"Memory": breaks})
    assert gpu.write(short=True)[1] is False
    assert "ended early: RuntimeError: CUDA error" in page.read_text(encoding="utf-8")
    page.unlink()


def test_memory_against_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report's table of memory has the bytes that the rule for clients at a time counted as they were trained."""
    counted: list[float] = []

    def counts(method: Method, fed: Federation, state: State) -> int:
        stack = {**fed.broadcast(state.shared), **state.personal}.values()
        chunk = chunk_size(method, fed, state)
        counted.append(chunk / fed.clients * sum(w.numel() * w.element_size() for w in stack) / 2**20)
        return chunk

    chunk_size = training.chunk_size
    monkeypatch.setattr(training, "chunk_size", counts)
    told, held = gpu._memory(True, math.inf)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told.splitlines() if line.startswith("|")]
    column, rows = cells[0].index("MiB of stacked weights"), cells[2:]
    assert held and [row[1] for row in rows] == ["FedAvg", "DistGAT", "FedGCN", "FedGAT"]
    assert [row[column] for row in rows] == [f"{size:.1f}" for size in counted[1:]], "the first run only warms up"
    assert all(float(row[column]) < float(row[cells[0].index("peak MiB")]) for row in rows)
