"""Processes that are killed, share a store, or write to it at once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import sweep_child
from faults.judge import complete, computed, ended, fork, lines, results, runs, sweep

from fedrepro.runs import execute as engine
from fedrepro.runs.store import Store


def kill(workspace: Path, draw: random.Random) -> Counter[str]:
    """A sweep in one process is killed (-9), terminated or interrupted again and again, then completed."""
    wanted = runs(workspace, 40)
    outcome: Counter[str] = Counter()
    for _ in range(draw.randint(1, 6)):
        before, begun = set(lines(results(workspace))[0]), computed(workspace)
        child = fork(lambda: sweep(workspace, wanted, slowly=True))
        time.sleep(draw.uniform(0, 0.4))
        number = draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        os.kill(child, number)
        status = ended(child)
        assert status in (0, -number, 130), f"status {status} after signal {number}"
        by_key, _ = lines(results(workspace))
        assert before <= set(by_key), "a finished run was lost"
        assert not before & set(computed(workspace) - begun), "a finished run was computed again"
        outcome["kills"] += status != 0
    assert ended(fork(lambda: sweep(workspace, wanted))) == 0
    lost = computed(workspace).total() - len(wanted)
    assert lost <= outcome["kills"], "a kill cost more than the run in flight"
    told = {"runs in flight begun again": lost, "torn lines": complete(workspace, wanted), "runs": len(wanted)}
    outcome.update(told)
    return outcome


def share(workspace: Path, draw: random.Random) -> Counter[str]:
    """Two, four or eight processes do one sweep, and some of them are killed: each run is computed once."""
    wanted, processes = runs(workspace, 40), draw.choice([2, 4, 8])
    children = [fork(lambda: sweep(workspace, wanted, slowly=True)) for _ in range(processes)]
    killed = 0
    for child in children[: draw.randrange(processes)]:
        time.sleep(draw.uniform(0, 0.15))
        os.kill(child, signal.SIGKILL)
        killed += ended(child) != 0
    statuses = [ended(child) for child in children if not gone(child)]
    assert set(statuses) == {0}, f"statuses {statuses}"
    again = computed(workspace).total() - len(wanted)
    assert 0 <= again <= killed, "a run was computed twice, and no process that had it was killed"
    told = {"processes": processes, "kills": killed, "runs taken over": again}
    return Counter(told | {"torn lines": complete(workspace, wanted), "runs": len(wanted)})


def gone(child: int) -> bool:
    """Return whether a child has been waited for."""
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def write(workspace: Path, draw: random.Random) -> Counter[str]:
    """Several processes append to one file and two, a line or several at once, while others read."""
    writers, per_writer = draw.randint(2, 6), 24
    shares = [runs(workspace, per_writer * (number + 1), per_writer * number) for number in range(writers)]
    sizes = [draw.randint(1, 6) for _ in range(writers)]
    files = [draw.choice("ab") for _ in range(writers)]

    def append(number: int) -> None:
        os.write = sweep_child.write_slowly  # type: ignore[assignment]
        store = Store(results(workspace))
        for start in range(0, per_writer, sizes[number]):
            store.append(files[number], *engine.compute(shares[number][start : start + sizes[number]]))

    def read() -> None:
        store, count = Store(results(workspace)), 0
        while count < writers * per_writer:
            store.refresh()
            assert len(store) >= count, "the number of records fell"
            assert len(store.faults) <= 2, "more than the lines being written"  # one a file
            count = len(store)

    children = [fork(lambda number=number: append(number)) for number in range(writers)]  # type: ignore[misc]
    readers = [fork(read) for _ in range(2)]
    statuses = [ended(child) for child in children]
    if set(statuses) != {0}:
        for reader in readers:
            os.kill(reader, signal.SIGKILL)
    statuses += [ended(reader) for reader in readers]
    assert set(statuses) == {0}, f"statuses {statuses}"
    assert complete(workspace, [run for runs in shares for run in runs]) == 0
    return Counter({"writers": writers, "records": writers * per_writer})
