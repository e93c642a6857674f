"""The process that those of notebooks are forked from: what it has ready, and that nothing ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOLD = """
import gc, json, os
import fedrepro.reporting.warm
from fedrepro.reporting import kernel, notebook
from fedrepro.runs import store
kept = [cached.cache_info().currsize for cached in (notebook.exporter, store._opened)]
print(json.dumps([kernel.warm, *kept, gc.get_freeze_count() > 100_000, len(os.listdir("/proc/self/task"))]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes of notebooks are forked on Linux alone")
@pytest.mark.parametrize("readable", [True, False])
def test_what_a_warm_process_has(readable: bool, tmp_path: Path) -> None:
    """Imports, templates and the store, apart from the collector, in one thread; a store it cannot read is left out."""
    folder = tmp_path / "results"
    if not readable:
        folder.write_text("a file where the store should be")
    variables = os.environ | {"FEDREPRO_STORE": str(folder)}
    done = subprocess.run([sys.executable, "-c", TOLD], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, 1, int(readable), True, 1]
