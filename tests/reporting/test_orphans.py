"""A command that runs a notebook takes its processes with it, however it ends, and says what happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from notebooks_written import write

from fedrepro.reporting import kernel
from fedrepro.runs import executors

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and process groups are not tried: they are POSIX's")

# A command in a checkout of its own.
SOON = 20  # seconds: five where the machine is idle, more where two cores are shared by the workers of the tests

COMMAND = """
import sys
from pathlib import Path
from fedrepro import cli, paths
paths.root = lambda: Path(sys.argv[1])
sys.exit(cli.main(["run", *sys.argv[2:]]))
"""
# A cell with two workers of a pool: one computes for ever, one holds the lock of the interpreter for long.
CELL = """
import json, os, time
from pathlib import Path
from fedrepro.runs import executors
pool = executors.pool(2)
waiting = [pool.submit(sum, range(10**12)), pool.submit(time.sleep, 999)]
while len(pool._processes) < 2:
    time.sleep(0.05)
ids = [os.getpid(), *(process.pid for process in pool._processes.values())]
Path("started.partial").write_text(json.dumps(ids))
os.replace("started.partial", "started.json")
sum(range(10**12))
"""


def start(root: Path, *names: str, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", COMMAND, str(root), *names]
    variables = os.environ | {"PYTHONPATH": str(Path(kernel.__file__).parents[2])}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=variables, **pipes, **options)  # type: ignore[call-overload, no-any-return]


def at_work(marks: list[Path], child: subprocess.Popen[str]) -> list[psutil.Process]:
    """Wait until the notebooks compute; return all processes below the command, and those that the notebooks named."""
    end = time.monotonic() + 120
    while not all(mark.exists() for mark in marks):
        assert child.poll() is None and time.monotonic() < end, child.communicate()
        time.sleep(0.05)
    named = {process for mark in marks for process in json.loads(mark.read_text())}
    below = psutil.Process(child.pid).children(recursive=True)
    assert named <= {process.pid for process in below}
    return below


def gone(processes: list[psutil.Process], seconds: float) -> bool:
    """Return whether all have ended in time, and end those that have not."""
    left = psutil.wait_procs(processes, timeout=seconds)[1]
    for process in left:
        process.kill()
    return not left


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"])
def test_no_process_is_left(name: str, tmp_path: Path) -> None:
    """Soon after a signal to the command, its process, the kernel and the kernel's workers are gone."""
    number = getattr(signal, name)
    mark = write(tmp_path / "notebooks", "p/1-a", CELL).parent / "started.json"
    # Where the tests run under nohup or in the background, a child would ignore what they ignore.
    heeding = None if name == "SIGKILL" else lambda: signal.signal(number, signal.SIG_DFL)
    child = start(tmp_path, "p", "--jobs", "1", preexec_fn=heeding)
    try:
        below = at_work([mark], child)
        child.send_signal(number)
        sent = time.monotonic()
        child.wait(timeout=SOON)
        assert gone(below, SOON - (time.monotonic() - sent)), f"processes outlive {name}"
        output, errors = child.communicate(timeout=SOON)
    finally:
        child.kill()
    assert child.returncode == (-9 if name == "SIGKILL" else 128 + number)
    told = "interrupted" if name == "SIGINT" else f"ended by {name}"
    if name != "SIGKILL":  # after which Python's own tracker may speak
        assert errors == f"fedrepro: {told}; what was finished is kept\n" and output == ""
    left = [path.name for path in (tmp_path / "build").rglob("*") if path.is_file()]
    assert left == [], "partial copies are left"


def warming(child: subprocess.Popen[str]) -> None:
    """Wait until the command has started the process from which others are forked."""
    end = time.monotonic() + 120
    command = psutil.Process(child.pid)
    while not any("multiprocessing.forkserver" in " ".join(below.cmdline()) for below in command.children()):
        assert child.poll() is None and time.monotonic() < end, child.communicate()
        time.sleep(0.005)


@pytest.mark.skipif(
    sys.platform != "linux" or executors.has_driver(),
    reason="Control-C while warming is not tested: here no process is warmed",
)
@pytest.mark.parametrize("seconds", [0.05, 1.0], ids=["as it starts", "as it imports"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_command_that_warms_ends_quietly(name: str, seconds: float, tmp_path: Path) -> None:
    """Control-C, which all processes of a terminal get, or SIGTERM in the first seconds is one line and no process."""
    write(tmp_path / "notebooks", "p/1-a", CELL)
    # Where the tests run in the background, a child would ignore SIGINT as they do.
    heeding = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    child = start(tmp_path, "p", "--jobs", "1", start_new_session=True, preexec_fn=heeding)
    try:
        warming(child)
        time.sleep(seconds)
        below = psutil.Process(child.pid).children(recursive=True)
        end = os.killpg if name == "SIGINT" else os.kill
        end(child.pid, getattr(signal, name))
        assert gone(below, SOON), f"processes outlive {name}"
        output, errors = child.communicate(timeout=SOON)
    finally:
        child.kill()
    told = "interrupted" if name == "SIGINT" else f"ended by {name}"
    assert (output, errors) == ("", f"fedrepro: {told}; what was finished is kept\n")
    assert child.returncode == 128 + getattr(signal, name)


@pytest.mark.parametrize("above", [0, 1, 2], ids=["the kernel", "who looks after it", "who runs the notebook"])
def test_whoever_is_killed_takes_the_rest_along(above: int, tmp_path: Path) -> None:
    """If one process between the command and a cell is killed, the others end, and the command says what failed."""
    mark = write(tmp_path / "notebooks", "p/1-a", CELL).parent / "started.json"
    child = start(tmp_path, "p", "--jobs", "1")
    try:
        below = at_work([mark], child)
        killed = psutil.Process(json.loads(mark.read_text())[0])
        for _ in range(above):
            killed = killed.parent()
        killed.kill()
        output, errors = child.communicate(timeout=30)
        assert gone(below, 5), "processes outlive the command"
    finally:
        child.kill()
    assert child.returncode == 1 and output.startswith("FAILED p/1-a")
    told = "the process was ended from outside, perhaps for lack of memory" if above == 2 else "Kernel died"
    assert told in errors and "Traceback" not in errors


def test_a_hangup_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """Under nohup a closed terminal ends nothing."""
    mark = write(tmp_path / "notebooks", "p/1-a", CELL).parent / "started.json"
    child = start(tmp_path, "p", "--jobs", "1", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    try:
        below = at_work([mark], child)
        child.send_signal(signal.SIGHUP)
        time.sleep(1)
        assert child.poll() is None and all(process.is_running() for process in below)
        child.terminate()
        assert gone(below, 5) and child.wait(timeout=5) == 143
    finally:
        child.kill()
        child.communicate()


def test_a_sweep_ends_on_sigterm_as_on_an_interrupt(tmp_path: Path) -> None:
    """`--budget` keeps what was finished, ends its workers and says which signal it was."""
    code = """
import sys, time
from types import SimpleNamespace
sys.path.insert(0, sys.argv[2])
import fake_tasks
from fedrepro import cli, paths
from fedrepro.reporting import exhibits
from fedrepro.runs.run import sweep
from pathlib import Path
if __name__ == "__main__":
    fake_tasks.register()
    paths.root = lambda: Path(sys.argv[1])
    options = {"log": sys.argv[1] + "/log", "pause": 0.05}
    runs = sweep(task="check", paper="p", method="logged", seed=range(2000), options=options)
    exhibit = SimpleNamespace(notebook="p/1-a", runs=lambda *_: runs)
    exhibits.registered = lambda: {"EN-1": exhibit}
    sys.exit(cli.main(["run", "p", "--budget", "5", "--device", "cpu"]))
"""
    write(tmp_path / "notebooks", "p/1-a")
    script = tmp_path / "script.py"
    script.write_text(code)
    tests = Path(__file__).parents[1]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)]), "FEDREPRO_WORKERS": "2"}
    command = [sys.executable, str(script), str(tmp_path), str(tests)]
    child = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 60
        stored = tmp_path / "results/p-1-a.jsonl"
        while not stored.exists() or not stored.stat().st_size:  # it is there, empty, before its first record
            assert child.poll() is None and time.monotonic() < end, child.communicate()
            time.sleep(0.05)
        below = psutil.Process(child.pid).children(recursive=True)
        child.terminate()
        _, errors = child.communicate(timeout=10)
        assert gone(below, 5)
    finally:
        child.kill()
    assert child.returncode == 143
    # Python's own pool may speak after it, if a worker ends while a result is read.
    assert "fedrepro: ended by SIGTERM; what was finished is kept" in errors.splitlines()
    assert stored.read_bytes().endswith(b"}\n")


def test_partial_copies_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """The next run removes what a killed one left, but not the copy of a process that is at work."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = [f"1-a.{ended.pid}.partial.ipynb", f"1-a.{os.getpid()}.partial.ipynb", "1-a.x.partial.ipynb"]
    for name in names:
        (tmp_path / name).touch()
    kernel.remove_abandoned(tmp_path / "1-a.ipynb")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])
