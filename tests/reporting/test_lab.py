"""JupyterLab as `make lab` starts it saves notebooks of the suite without outputs, and takes options."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
from notebooks_written import write

from fedrepro.reporting import lab

ROOT = Path(lab.__file__).parents[2]
# Saves the notebook of the current folder twice, through the manager that JupyterLab makes of the configuration.
SAVE = """
import sys
from jupyter_server.services.contents.largefilemanager import LargeFileManager
from traitlets.config.loader import PyFileConfigLoader
manager = LargeFileManager(root_dir=".", config=PyFileConfigLoader(sys.argv[1]).load_config())
for path in ("notebooks/p/1-a.ipynb", "build/1-a.ipynb"):
    model = manager.get(path)
    cell = model["content"]["cells"][2]
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "1"}]
    cell["execution_count"] = 3
    manager.save(model, path)
"""


def test_saving_leaves_a_notebook_without_outputs(tmp_path: Path) -> None:
    """A notebook of the suite that was run is saved byte for byte as a source; one in build keeps its outputs."""
    source = write(tmp_path / "notebooks", "p/1-a", "1")
    (tmp_path / "build").mkdir()
    shutil.copy(source, tmp_path / "build/1-a.ipynb")
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    for _ in range(2):
        before = source.read_bytes()
        command = [sys.executable, "-W", "ignore", "-c", SAVE, lab.__file__]
        subprocess.run(command, cwd=tmp_path, env=variables, check=True)
    assert source.read_bytes() == before
    saved, copy = (nbformat.read(path, 4).cells[2] for path in (source, tmp_path / "build/1-a.ipynb"))
    assert saved.outputs == [] and saved.execution_count is None
    assert len(copy.outputs) == 1 and copy.execution_count == 3


def test_make_lab_passes_options_on() -> None:
    """`make lab LAB=...` opens the whole repository with these options."""
    command = ["make", "-n", "-C", str(ROOT), "VENV=none", "lab", "LAB=--ip 0.0.0.0 --no-browser"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f'--ServerApp.root_dir="{ROOT}" --ip 0.0.0.0 --no-browser' in told
    assert ("--allow-root" in told) == (os.name == "posix" and os.getuid() == 0)
