"""A sweep in a separate process, for the tests that kill it: `sweep_child.py STORE LOG FILE FIRST LAST WORKERS`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import fake_tasks

from fedrepro.runs import execute as engine
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store


def wanted(log: str, first: int, last: int) -> list[Run]:
    options = {"log": log, "pause": float(os.environ.get("PAUSE", "0.01"))}
    return sweep(task="check", paper="p", method="logged", seed=range(first, last), options=options)


def write_slowly(descriptor: int, data: memoryview) -> int:
    """A line in two pieces, so that a kill can come between them."""
    half = len(data) // 2 or len(data)
    time.sleep(0.002)
    return WRITE(descriptor, data[:half] if len(data) > 200 else data)


WRITE = os.write

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell would ignore it
    folder, log, file, first, last, workers = sys.argv[1:]
    fake_tasks.register()
    runs = wanted(log, int(first), int(last))
    store = Store(folder)
    if os.environ.get("WRITE_SLOWLY"):
        os.write = write_slowly  # type: ignore[assignment]
    (Path(folder).parent / f"started-{os.getpid()}").touch()
    frame = engine.execute(runs, store=store, file=file, workers=int(workers), progress=False)
    print(len(frame), len(frame.attrs["failed"]), len(Store(folder).faults))
