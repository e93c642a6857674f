"""The process that those of notebooks are forked from: what it has ready, and that nothing ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from notebooks_written import write

from fedrepro import paths
from fedrepro.reporting import notebook

TOLD = """
import gc, json, os
import fedrepro.reporting.warm
from fedrepro.reporting import kernel, rendering
from fedrepro.runs import index, store
kept = [cached.cache_info().currsize for cached in (rendering.exporter, store._opened, index._opened)]
print(json.dumps([kernel.warm, *kept, gc.get_freeze_count() > 100_000, len(os.listdir("/proc/self/task"))]))
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="no warm process is started: those of notebooks are forked on Linux alone"
)
@pytest.mark.parametrize("readable", [True, False])
def test_what_a_warm_process_has(readable: bool, tmp_path: Path) -> None:
    """Imports, templates, store, index, apart from the collector, in one thread; a store it cannot read is left out."""
    folder = tmp_path / "results"
    if not readable:
        folder.write_text("a file where the store should be")
    variables = os.environ | {"FEDREPRO_STORE": str(folder)}
    done = subprocess.run([sys.executable, "-c", TOLD], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, 1, int(readable), int(readable), True, 1]


def test_notebooks_with_many_exhibits_begin_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long notebook that begins last would keep all other cores waiting."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    for name in ("p/1-a", "p/2-b", "p/3-c"):
        write(tmp_path / "notebooks", name)
    drawn = {"p/1-a": [1], "p/2-b": [], "p/3-c": [1, 2]}
    monkeypatch.setattr(notebook.exhibits, "drawn_by", lambda name: drawn[name])
    assert [end.name for end in notebook.run_all(["p"], jobs=1)] == ["p/3-c", "p/1-a", "p/2-b"]
