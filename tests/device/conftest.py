"""Place the tests of the simulated device, the longest of all, where the processes of xdist begin, and shorten them."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)  # after those that leave tests out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let each process begin with another of these tests: neighbours would go to one process, one after the other.

    xdist first gives each process a quarter of its share of all tests, in their order.
    """
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    device_tests = [item for item in items if item.path.parent == Path(__file__).parent]
    if processes == 1 or len(device_tests) == len(items):
        return
    batch = max(len(items) // processes // 4, 2)
    items[:] = [item for item in items if item not in device_tests]
    for number, item in enumerate(device_tests):
        items.insert(number * batch, item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """On the device, spare the garbage collector what was imported: tests and runs there ask it for full searches."""
    if "SIMULATED_DEVICE" in os.environ:
        gc.freeze()
