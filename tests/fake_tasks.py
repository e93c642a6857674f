"""Things to run that need no torch: worker processes import them by name."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from fedrepro import registry
from fedrepro.errors import DamagedError, DataError, DivergedError
from fedrepro.runs.execute import compute
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Record, Store


def register() -> None:
    """Make the functions below known as checks."""
    for name in ("quick", "logged", "fails", "diverges", "absent", "kills", "once", "numbers", "nothing", "leaves"):
        registry.register("check", name, f"fake_tasks:{name}")
    registry.register("bench", "clock", "fake_tasks:quick")


def forget() -> None:
    for key in [key for key, entry in registry.REGISTRY.items() if entry.target.startswith("fake_tasks:")]:
        del registry.REGISTRY[key]


def quick(run: Run) -> dict[str, Any]:
    return {"result": {"score": {"test": (run.seed + 1) / 7}, "count": run.clients, "timing": time.time()}}


def logged(run: Run) -> dict[str, Any]:
    """Note the key in the file of the option `log`, then take 20 ms."""
    line = f"{run.key} {os.getpid()}\n".encode()
    descriptor = os.open(str(run.options["log"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line)
    os.close(descriptor)
    time.sleep(float(run.options.get("pause", 0.02)))
    return quick(run)


def fails(run: Run) -> dict[str, Any]:
    raise KeyError(f"seed {run.seed}")


def diverges(run: Run) -> dict[str, Any]:
    raise DivergedError("the loss is not a number in round 3")


def absent(run: Run) -> dict[str, Any]:
    raise DataError(f"put the files of {run.dataset} into data/raw")


def damaged(run: Run) -> dict[str, Any]:
    raise DamagedError("x has the wrong checksum")


def kills(run: Run) -> dict[str, Any]:
    """End the worker process, as running out of memory would."""
    if run.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return quick(run)


def once(run: Run) -> dict[str, Any]:
    """End the worker process the first time."""
    seen = Path(str(run.options["log"])) / str(run.seed)
    if run.seed == 1 and not seen.exists():
        seen.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return quick(run)


def numbers(run: Run) -> dict[str, Any]:
    """Return as `value` what the option `value` names: NaN, infinity, a NumPy number, an array, or itself."""
    import numpy as np

    values = {"nan": float("nan"), "inf": float("inf"), "numpy": np.float64(0.1), "array": np.arange(3)}
    return {"result": {"value": values.get(str(run.options["value"]), run.options["value"])}, "chunk": 4}


def nothing(run: Run) -> Any:
    return None


def leaves(run: Run) -> dict[str, Any]:
    """End the program instead of returning."""
    return sys.exit(0) if run.seed == 0 else quick(run)


def threads(run: Run) -> dict[str, Any]:
    time.sleep(0.1)
    return {"result": {"process": os.getpid(), "omp": os.environ.get("OMP_NUM_THREADS")}}


def on_device(run: Run, device: str) -> dict[str, Any]:
    """Fill a tensor on the device; with seed 1 read one of its numbers beyond the end."""
    import torch

    filled = torch.ones(3, device=device)
    filled[torch.tensor([5 if run.seed == 1 else 2], device=device)]
    return {"result": {"process": os.getpid(), "sum": float(filled.sum()), "frozen": gc.get_freeze_count()}}


def meeting(run: Run, device: str) -> dict[str, Any]:
    """Wait until `count` processes are here at once."""
    folder, end = Path(str(run.options["folder"])), time.monotonic() + 60
    folder.mkdir(exist_ok=True)
    (folder / str(run.seed)).touch()
    while len(list(folder.iterdir())) < int(str(run.options["count"])):
        if time.monotonic() > end:
            raise TimeoutError("nobody else came")
        time.sleep(0.01)
    return {"result": {"process": os.getpid()}}


def runs(method: str = "quick", seeds: int = 3, **axes: Any) -> list[Run]:
    """Return the runs of one of the functions above."""
    return sweep(**{"task": "check", "paper": "p", "method": method, "seed": range(seeds), **axes})


def fill(store: Store, wanted: list[Run], **changes: Any) -> list[Record]:
    """Compute runs and store their records with some fields changed."""
    records = [record | changes for record in compute(wanted)]
    store.append("a", *records)
    return records
