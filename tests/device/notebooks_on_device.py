"""Notebooks on the simulated accelerator.

As `on_device.py`, it is started by `test_device.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from device import simulated

from fedrepro import paths
from fedrepro.reporting import notebook

# On this device an operation comes as its `out` form, which says this of a loss averaged over nodes.
pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
# Beside that of the report, which has a method of its own: one that measures and one that trains, both in little time.
NOTEBOOKS = ("engine/4-speed", "fedsheafhn/4.4-discussion")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_computes_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook runs by papermill under `--profile smoke --device cuda`, and shows that it computed there."""
    monkeypatch.setattr(paths, "smoke", lambda: tmp_path)  # where the figures go
    copy = notebook.run(name, {"profile": "smoke", "device": "cuda"}, output=tmp_path / "copy.ipynb")
    assert f"{simulated.NAME} (" in copy.read_text(encoding="utf-8")
    assert any(tmp_path.glob("figures/*/*.csv"))
