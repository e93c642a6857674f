"""A sweep that is killed or interrupted, or may not write, or finds the disk full, loses no finished run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
import sweep_child

from fedrepro.errors import StoreError
from fedrepro.runs import lines
from fedrepro.runs.store import Store

CHILD = Path(sweep_child.__file__)


pytestmark = pytest.mark.usefixtures("fakes")


def record(key: str) -> dict[str, Any]:
    return {"key": key, "status": "ok", "run": dict.fromkeys(lines.RUN, ""), "result": {}}


def start(folder: Path, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(CHILD), str(folder / "results"), str(folder / "log"), *map(str, arguments)]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(CHILD.parents[1]), str(CHILD.parent)])} | environment
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)


def finish(child: subprocess.Popen[str]) -> list[int]:
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    return [int(number) for number in output.split()]


def started(folder: Path, child: subprocess.Popen[str]) -> None:
    """Wait until the child has imported everything, so that kills fall into the sweep itself."""
    while not (folder / f"started-{child.pid}").exists():
        assert child.poll() is None, child.stderr.read()  # type: ignore[union-attr]
        time.sleep(0.002)


def gone(processes: list[psutil.Process]) -> bool:
    """Return whether all have ended within five seconds, and end those that have not."""
    left = psutil.wait_procs(processes, timeout=5)[1]
    for process in left:
        process.kill()
    return not left


def computed(folder: Path) -> list[str]:
    log = folder / "log"
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def finished(folder: Path) -> Counter[str]:
    """How many finished records each key has, read without the store's help."""
    counts: Counter[str] = Counter()
    for path in (folder / "results").glob("*.jsonl"):
        for line in path.read_bytes().split(b"\n") if path.name != "environments.jsonl" else []:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            counts[record["key"]] += record["status"] == "ok"
    return counts


@pytest.mark.parametrize(("kills", "workers"), [(17, 1), (3, 2)])
def test_kill_nine(tmp_path: Path, kills: int, workers: int) -> None:
    """A sweep killed at random times and started again loses no finished run and repeats none."""
    times = random.Random(workers)
    arguments = ("fedgat/6-x", 0, 200, workers)
    cut_short = 0
    for _ in range(kills):
        before = set(finished(tmp_path))
        already = len(computed(tmp_path))
        child = start(tmp_path, *arguments, WRITE_SLOWLY="1")
        started(tmp_path, child)
        runs_more, moment = times.randrange(10), times.uniform(0, 0.03)
        while len(computed(tmp_path)) < already + runs_more and child.poll() is None:
            time.sleep(0.002)
        time.sleep(moment)
        workers_left = psutil.Process(child.pid).children(recursive=True) if child.poll() is None else []
        cut_short += child.poll() is None
        with child:  # not communicate: a worker left behind would hold the pipe open
            child.kill()
        assert gone(workers_left), "workers outlive the process that was killed"
        assert before <= set(finished(tmp_path)), "a finished run was lost"
        assert not before & set(computed(tmp_path)[already:]), "a finished run was computed again"
        store = Store(tmp_path / "results")
        assert {record["key"] for record in store} == set(finished(tmp_path))
    assert cut_short == kills, "the sweep was over before it could be killed"
    before, already = set(finished(tmp_path)), len(computed(tmp_path))
    assert 0 < len(before) < 200
    frame_rows, failed, torn = finish(start(tmp_path, *arguments))
    assert (frame_rows, failed) == (200, 0)
    assert not before & set(computed(tmp_path)[already:])
    assert len(finished(tmp_path)) == 200 and set(finished(tmp_path).values()) == {1}
    lines = [
        line
        for path in (tmp_path / "results").glob("*.jsonl")
        for line in path.read_bytes().split(b"\n")
        if line.strip() and not is_json(line)
    ]
    assert torn == len(lines), "every torn line is reported"


def is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def test_torn_lines_and_restarts(tmp_path: Path) -> None:
    """Wherever a kill tears the last line, the same command restores the run, and the tear is reported."""
    finish(start(tmp_path, "a", 0, 3, 1))
    path = tmp_path / "results" / "a.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    rows, failed, torn = finish(start(tmp_path, "a", 0, 5, 1))
    assert (rows, failed, torn) == (5, 0, 1) and len(computed(tmp_path)) == 6
    (tear,) = Store(tmp_path / "results").faults
    assert (tear.file, tear.line) == ("a.jsonl", 3)


@pytest.mark.parametrize("files", [("a", "a"), ("a", "b")])
def test_two_processes_at_once(tmp_path: Path, files: tuple[str, str]) -> None:
    """Two sweeps writing at once, to one file or two: all records are there, none torn, none twice."""
    children = [start(tmp_path, file, 40 * i, 40 * i + 40, 1, WRITE_SLOWLY="1") for i, file in enumerate(files)]
    assert [finish(child)[:2] for child in children] == [[40, 0], [40, 0]]
    store = Store(tmp_path / "results")
    assert len(store) == 80 and store.faults == [] and set(finished(tmp_path).values()) == {1}
    assert len(store.environments) == 1
    assert (tmp_path / "results" / "environments.jsonl").read_bytes().count(b"\n") == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted_from_the_terminal(tmp_path: Path, workers: int) -> None:
    """After an interrupt everything finished is stored, no worker is left, and the error is KeyboardInterrupt."""
    child = start(tmp_path, "a", 0, 500, workers)
    started(tmp_path, child)
    while len(finished(tmp_path)) < 5:
        time.sleep(0.01)
    left = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert errors.rstrip().endswith("KeyboardInterrupt") and child.returncode != 0
    assert gone(left)
    store = Store(tmp_path / "results")
    assert store.faults == [] and len(computed(tmp_path)) - len(store) <= workers


def test_interrupt_ends_long_runs(tmp_path: Path) -> None:
    """An interrupt does not wait for what workers are in the middle of."""
    child = start(tmp_path, "a", 0, 9, 2, PAUSE="60")
    while len(computed(tmp_path)) < 2:
        assert child.poll() is None
        time.sleep(0.01)
    left = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(signal.SIGINT)
    try:
        child.communicate(timeout=20)
    finally:
        child.kill()
    assert gone(left) and len(Store(tmp_path / "results")) == 0


FILL = """
import errno, json, sys
from fedrepro.errors import StoreError
from fedrepro.runs import lines
from fedrepro.runs.store import Store
store = Store(sys.argv[1])
written = 0
try:
    while True:
        run = dict.fromkeys(lines.RUN, "")
        store.append("a", {"key": str(written), "status": "ok", "run": run, "result": {"x": "x" * 3000}})
        written += 1
except StoreError as error:
    again = Store(sys.argv[1])
    print(json.dumps([written, len(store), len(again), len(again.faults), str(error)]))
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """On a file system of 64 KB the error says the disk is full, and all written before can be read."""
    if shutil.which("unshare") is None:
        pytest.skip("a disk that is really full is not tested: there is no unshare to mount one apart from the system")
    place = tmp_path / "small"
    place.mkdir()
    mount = f'mount -t tmpfs -o size=64k none {place} || exit 77; exec {sys.executable} -c "$1" {place}'
    alone = ["-m"] if os.geteuid() == 0 else ["-r", "-m"]  # who is not root is root in a separate namespace
    command = ["unshare", *alone, "sh", "-c", mount, "sh", FILL]
    variables = os.environ | {"PYTHONPATH": str(CHILD.parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=30)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"a disk that is really full is not tested: none can be mounted here ({done.stderr.strip()})")
    written, in_memory, on_disk, torn, error = json.loads(done.stdout)
    assert written == in_memory == on_disk > 3 and torn == 0
    assert "cannot be written: the disk is full" in error and "a.jsonl" in error


def test_read_only_folder() -> None:
    """In a folder one may not write to, the error says so and what is there can be read."""
    folder = Path(tempfile.mkdtemp())
    try:
        Store(folder).append("a", record("k"))
        (folder / "store.lock").unlink()
        os.chmod(folder / "a.jsonl", 0o444)
        os.chmod(folder, 0o555)
        was_root = os.geteuid() == 0
        if was_root:
            os.seteuid(65534)  # nobody
        try:
            store = Store(folder)
            with pytest.raises(StoreError, match=r"a\.jsonl' cannot be written: it is read-only"):
                store.append("a", record("l"))
            assert "k" in store and len(Store(folder)) == 1
        finally:
            if was_root:
                os.seteuid(0)
    finally:
        os.chmod(folder, 0o755)
        shutil.rmtree(folder)


def test_read_only_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a read-only file system the error says so, and the store can be read."""
    store = Store(tmp_path)
    store.append("a", record("k"))
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(30, "Read-only file system", str(path))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match="it is read-only for this user"):
        store.append("a", record("l"))
    assert len(Store(tmp_path)) == 1
