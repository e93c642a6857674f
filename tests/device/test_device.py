"""Start the tests that need an accelerator on the simulated one, in a process that loads it before torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from device import simulated

ON_DEVICE = [str(Path(simulated.__file__).with_name(name)) for name in ("on_device.py", "sweeps_on_device.py")]


def test_on_the_simulated_device() -> None:
    """It compiles with the pinned torch, and all tests of `on_device.py` and `sweeps_on_device.py` pass on it."""
    if told := simulated.obstacle():
        pytest.skip(told)
    try:
        variables = simulated.environment()
    except subprocess.CalledProcessError as error:
        pytest.fail(f"device.cpp does not compile: {error.stderr}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *ON_DEVICE]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=simulated.ROOT)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-6000:] + done.stderr[-2000:]
