"""Notebooks, and the report of a GPU, on the simulated accelerator.

As `on_device.py`, it is started by `test_device.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from device import simulated

from fedrepro import paths
from fedrepro.papers.engine import gpu
from fedrepro.reporting import notebook

# On this device an operation comes as its `out` form, which says this of a loss averaged over nodes.
pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
# Beside that of the report: one with a method of its own, and one of a paper. Both train, and in little time.
NOTEBOOKS = ("engine/3-your-method", "fedsheafhn/4.4-discussion")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_trains_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook runs by papermill under `--profile smoke --device cuda`, and shows that its runs trained there."""
    monkeypatch.setattr(paths, "smoke", lambda: tmp_path)  # where the figures go
    copy = notebook.run(name, profile="smoke", device="cuda", output=tmp_path / "copy.ipynb")
    assert f"{simulated.NAME} (" in copy.read_text(encoding="utf-8")
    assert any(tmp_path.glob("figures/*/*.csv"))


def test_the_report_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make gpu-report` in its short form says where everything stands; a section that breaks is told, and counts."""
    page, well = gpu.write(short=True)
    text = page.read_text(encoding="utf-8")
    assert well and all(f"\n## {title}\n" in text for title in gpu.SECTIONS)
    assert simulated.NAME in text and "1 of 1 notebooks run" in text and "| identical |" in text
    assert {run.method for run in gpu.methods()} >= {
        "FedAvg",
        "FedGAT",
        "FedStruct",
        "GFL-APPNP",
        "Feras",
        "FedSheafHN",
    }

    def breaks(short: bool) -> tuple[str, bool]:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(gpu, "SECTIONS", {"Memory": breaks})
    assert gpu.write(short=True)[1] is False
    assert "ended early: RuntimeError: CUDA error" in page.read_text(encoding="utf-8")
    page.unlink()
