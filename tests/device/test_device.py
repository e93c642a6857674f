"""Start the tests that need an accelerator on the simulated one, in processes that load it before torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from device import simulated


# Two processes of xdist run them side by side, see `conftest.py`. Both take about as long.
@pytest.mark.parametrize("files", ["on_device.py sweeps_on_device.py", "report_on_device.py notebooks_on_device.py"])
def test_on_the_simulated_device(files: str) -> None:
    """It compiles with the pinned torch, and all tests of some files pass on it."""
    if told := simulated.obstacle():
        pytest.skip(told)
    try:
        variables = simulated.environment()
    except subprocess.CalledProcessError as error:
        pytest.fail(f"device.cpp does not compile: {error.stderr}")
    tests = [str(Path(simulated.__file__).with_name(file)) for file in files.split()]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=simulated.ROOT)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-6000:] + done.stderr[-2000:]
