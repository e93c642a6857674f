"""Sweeps in interpreters of their own: pools and Dask clusters whose workers are killed, and the command line."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fake_tasks
import psutil
from faults.judge import ROOT, Skip, complete, computed, lines, log, python, results, runs

from fedrepro.runs import execute as engine
from fedrepro.runs.store import Store


def start(*arguments: object, **variables: str) -> subprocess.Popen[str]:
    command, environment = python(*arguments, **variables)
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(child: subprocess.Popen[str]) -> str:
    output, errors = child.communicate(timeout=900)
    assert child.returncode == 0, errors
    return output


def until(condition: Any, child: subprocess.Popen[str]) -> None:
    """Wait while a process works until a condition holds or the process has ended."""
    while not condition() and child.poll() is None:
        time.sleep(0.005)


def pool(workspace: Path, draw: random.Random) -> Counter[str]:
    """A sweep with two spawned workers is killed, and completed by another, of which a worker is killed."""
    wanted = runs(workspace, 60)
    arguments = [ROOT / "tests" / "sweep_child.py", results(workspace), log(workspace), "fedgat/6-x", 0, len(wanted), 2]
    outcome: Counter[str] = Counter()
    for victim in ("sweeps", "workers"):
        child = start(*arguments, WRITE_SLOWLY="1")
        begun = computed(workspace).total()
        until(lambda begun=begun: computed(workspace).total() > begun, child)  # type: ignore[misc]
        time.sleep(draw.uniform(0, 0.2))
        crew = psutil.Process(child.pid).children(recursive=True) if child.poll() is None else []
        with suppress(psutil.NoSuchProcess):
            workers = [process for process in crew if "spawn_main" in " ".join(process.cmdline())]
            if workers:
                (child if victim == "sweeps" else draw.choice(workers)).kill()
                outcome[f"{victim} killed"] += 1
        if victim == "workers":
            assert finish(child).split()[:2] == [str(len(wanted)), "0"], "runs failed or are missing"
        with child:  # not communicate: a worker left behind would hold the pipe open
            left = psutil.wait_procs(crew, timeout=10)[1]
        assert not left, "workers outlive the process that was killed"
    told = {"torn lines": complete(workspace, wanted), "runs": len(wanted)}
    outcome.update(told | {"runs begun again": computed(workspace).total() - len(wanted)})
    return outcome


BUDGET = ("run", "feras/3-feras", "--profile", "smoke", "--device", "cpu", "--budget", "9")
_undisturbed: dict[str, Any] = {}


def budget(workspace: Path, draw: random.Random) -> Counter[str]:
    """`fedrepro run ... --budget` with real training is killed, then completed, and compared bit by bit."""
    variables = {"FEDREPRO_STORE": str(results(workspace)), "FEDREPRO_DATA": ""}
    if not _undisturbed:
        finish(start("-m", "fedrepro", *BUDGET, **variables | {"FEDREPRO_STORE": str(workspace / "undisturbed")}))
        _undisturbed.update(values(workspace / "undisturbed"))
    child = start("-m", "fedrepro", *BUDGET, **variables)
    goal = draw.randrange(1, len(_undisturbed) - 2)
    until(lambda: len(lines(results(workspace))[0]) >= goal, child)
    child.send_signal(draw.choice([signal.SIGKILL, signal.SIGINT]))
    child.communicate()
    before = values(results(workspace))
    finish(start("-m", "fedrepro", *BUDGET, **variables))
    now = values(results(workspace))
    assert before == {key: now[key] for key in before}, "a finished run was lost or changed"
    assert now == _undisturbed, "other values than without a kill"
    killed = int(child.returncode != 0)
    return Counter({"kills": killed, "runs before": len(before), "runs, all values equal": len(now)})


def values(folder: Path) -> dict[str, Any]:
    """The one result a key has, without what is measured in seconds."""
    by_key, _ = lines(folder)
    assert all(len(records) == 1 for records in by_key.values()), "a run was computed twice"
    return {key: plain(records[0]["result"]) for key, records in by_key.items()}


def plain(result: Any) -> Any:
    if isinstance(result, dict):
        return {name: plain(value) for name, value in result.items() if name not in ("timing", "seconds")}
    return [plain(value) for value in result] if isinstance(result, list) else result


def dask(workspace: Path, draw: random.Random) -> Counter[str]:
    """A Dask cluster of two processes loses workers (kill -9) during a sweep: each run is stored once."""
    if find_spec("distributed") is None:
        raise Skip("Dask is not installed")
    kills = draw.randint(1, 3)
    script = "from faults import clusters; clusters.on_dask()"
    told = json.loads(finish(start("-c", script, workspace, kills, draw.random())).splitlines()[-1])
    complete(workspace, runs(workspace, 40, pause=0.1))
    return Counter({"workers killed": told, "runs": 40, "runs begun again": computed(workspace).total() - 40})


def on_dask() -> None:
    """Do the sweep of `dask` in the folder that the command line names; print how many workers were killed."""
    import distributed

    workspace, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    fake_tasks.register()
    draw, killed = random.Random(seed), []

    def strike(cluster: Any) -> None:
        for _ in range(kills):
            begun = computed(workspace).total()
            while computed(workspace).total() <= begun:
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.5))
            pids = [worker.process.pid for worker in cluster.workers.values() if worker.process and worker.process.pid]
            if pids and computed(workspace).total() < 38:
                os.kill(draw.choice(pids), signal.SIGKILL)
                killed.append(1)

    make: Any = distributed.LocalCluster
    with make(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50) as cluster:
        os.environ["FEDREPRO_ADDRESS"] = cluster.scheduler_address
        threading.Thread(target=strike, args=(cluster,), daemon=True).start()
        wanted = runs(workspace, 40, pause=0.1)
        frame = engine.execute(wanted, store=Store(results(workspace)), file="a", executor="dask", progress=False)
    assert len(frame) == 40 and frame.attrs["failed"] == [], frame.attrs
    print(len(killed))
