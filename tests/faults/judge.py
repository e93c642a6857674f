"""Read stores without the help of the store, and run pieces of work in processes of their own."""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sweep_child

from fedrepro.runs import execute as engine
from fedrepro.runs.lines import Record
from fedrepro.runs.run import Run
from fedrepro.runs.run import sweep as grid
from fedrepro.runs.store import Store

Trial = Callable[[Path, random.Random], Counter[str]]

ROOT = Path(sweep_child.__file__).parents[1]


class Skip(Exception):
    """Say why a kind of trial cannot be run here."""


def results(workspace: Path) -> Path:
    return workspace / "results"


def log(workspace: Path) -> str:
    return str(workspace / "log")


def runs(workspace: Path, last: int, first: int = 0, pause: float = 0.01) -> list[Run]:
    """Runs that note themselves in the log, take `pause` seconds and give (seed + 1) / 7."""
    options = {"log": log(workspace), "pause": pause}
    return grid(task="check", paper="p", method="logged", seed=range(first, last), options=options)


def computed(workspace: Path) -> Counter[str]:
    """How often each key was begun."""
    path = Path(log(workspace))
    return Counter(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else Counter()


def lines(folder: Path) -> tuple[dict[str, list[Record]], int]:
    """Finished records by key, and the number of lines that are torn or have a wrong checksum."""
    by_key: defaultdict[str, list[Record]] = defaultdict(list)
    bad = 0
    for path in folder.glob("*.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            body, mark, end = line.rpartition(b',"sum":"')
            if mark and end == b'%08x"}' % zlib.crc32(body):
                record: Record = json.loads(body + b"}")
                if record.get("status") == "ok":
                    by_key[record["key"]].append(record)
            else:
                bad += bool(line)
    return by_key, bad


def complete(workspace: Path, wanted: list[Run]) -> int:
    """Check that a store holds each run once with the right result, and names each bad line; return how many are."""
    by_key, bad = lines(results(workspace))
    assert {key: len(records) for key, records in by_key.items()} == {run.key: 1 for run in wanted}, "lost or doubled"
    for run in wanted:
        assert by_key[run.key][0]["result"]["score"]["test"] == (run.seed + 1) / 7, "a wrong result"
    store = Store(results(workspace))
    assert len(store.faults) == bad, "a bad line is not named"
    assert {record["key"]: record for record in store} == {key: records[0] for key, records in by_key.items()}
    return bad


def sweep(workspace: Path, wanted: list[Run], slowly: bool = False) -> None:
    """Compute runs in this process; `slowly`, a line is written in two pieces with a pause between."""
    if slowly:
        os.write = sweep_child.write_slowly  # type: ignore[assignment]
    store = Store(results(workspace))
    frame = engine.execute(wanted, store=store, file="fedgat/6-x", workers=1, progress=False)
    assert len(frame) == len(wanted)


def fork(work: Callable[[], object]) -> int:
    """Do some work in a process of its own, which ends with 0, or with 1 and the error on its error stream."""
    child = os.fork()
    if child:
        return child
    status = 0
    try:
        work()
    except KeyboardInterrupt:
        status = 130
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        os._exit(status)


def ended(child: int) -> int:
    """Wait for a process; return its status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def python(*arguments: object, **variables: str) -> tuple[list[str], dict[str, Any]]:
    """The command line of a new interpreter and its environment, with this checkout on its path."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return [sys.executable, *map(str, arguments)], os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | variables
