"""Stores that are damaged, hold odd entries, or lie on a disk that is full."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import fake_tasks
from faults.judge import ROOT, Skip, complete, computed, ended, fork, python, results, runs, sweep

from fedrepro.errors import StoreError
from fedrepro.runs import execute as engine
from fedrepro.runs import lines
from fedrepro.runs.lines import ENVIRONMENTS, Record
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store


def filled(workspace: Path, count: int = 24) -> list[Run]:
    """Fill two files of a store; return the runs."""
    wanted = runs(workspace, count)
    store = Store(results(workspace))
    for file, part in (("a", wanted[: count // 2]), ("b", wanted[count // 2 :])):
        store.append(file, *(record for run in part for record in engine.compute([run])))
    return wanted


def served(folder: Path) -> dict[str, Record]:
    return {record["key"]: record for record in Store(folder)}


def held(folder: Path) -> dict[str, list[Record]]:
    """Every record of each key that the undamaged files hold."""
    records: dict[str, list[Record]] = {}
    for path in set(folder.glob("*.jsonl")) - {folder / ENVIRONMENTS}:
        for line in path.read_bytes().splitlines():
            record, _ = lines.read(line, path.name)
            records.setdefault(record["key"], []).append(record)
    return records


def flip(workspace: Path, draw: random.Random) -> Counter[str]:
    """Single bits are flipped, in a small store and in a file of the committed one: each is named with its line."""
    filled(workspace)
    committed = sorted((ROOT / "data" / "results").glob("*.jsonl"))
    (workspace / "committed").mkdir()
    for path in (draw.choice([path for path in committed if path.stat().st_size < 300_000]), committed[0].parent):
        shutil.copy(path / ENVIRONMENTS if path.is_dir() else path, workspace / "committed")
    outcome: Counter[str] = Counter()
    for folder, flips in ((results(workspace), 60), (workspace / "committed", 4)):
        whole, lines_of = served(folder), held(folder)
        for _ in range(flips):
            path = draw.choice(sorted(folder.glob("*.jsonl")))
            content = path.read_bytes()
            bit = draw.randrange(8 * len(content))
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            number = content[: bit // 8].count(b"\n") + 1
            store = Store(folder)
            assert (path.name, number) in {(fault.file, fault.line) for fault in store.faults}, "not named"
            now = {record["key"]: record for record in store}
            # Of a run that was computed again the former record is served, where the latter is damaged.
            assert all(record in lines_of[key] for key, record in now.items()), "a changed record was served"
            lost = len(whole) - len(now)  # the line feed between two lines guards both
            assert lost <= (0 if path.name == ENVIRONMENTS else 1 + (content[bit // 8] == 10)), "whole lines are lost"
            path.write_bytes(content)
            outcome.update({"flips named": 1, "records left out": lost})
        assert served(folder) == whole
    return outcome


def spoil(workspace: Path, draw: random.Random) -> Counter[str]:
    """A block of a file is zeroed, overwritten, lost, doubled or cut off, and the sweep is done again."""
    wanted = filled(workspace)
    whole = served(results(workspace))
    path = draw.choice(sorted(results(workspace).glob("*.jsonl")))
    content = path.read_bytes()
    start = draw.randrange(len(content))
    end = min(len(content), start + draw.choice([1, 7, 100, 512, 4096]))
    kind = draw.choice(["zeroed", "overwritten", "lost", "doubled", "cut off"])
    length = end - start
    block = {"zeroed": bytes(length), "overwritten": draw.randbytes(length), "doubled": content[start:end] * 2}
    path.write_bytes(content[:start] + block.get(kind, b"") + (b"" if kind == "cut off" else content[end:]))
    store = Store(results(workspace))
    now = {record["key"]: record for record in store}
    assert all(record == whole[key] for key, record in now.items()), "a damaged record was served"
    at_line = start in (0, len(content)) or content[start - 1 : start] == b"\n"
    gone = (kind == "cut off" and at_line) or (kind == "lost" and at_line and content[end - 1 : end] == b"\n")
    assert len(now) == len(whole) or store.faults or gone, "what is left out is not named"
    engine.execute(wanted, store=store, file="c", workers=1, progress=False)
    by_key = served(results(workspace))
    assert {key: record["result"]["score"] for key, record in by_key.items()} == {
        key: record["result"]["score"] for key, record in whole.items()
    }
    return Counter({f"blocks {kind}": 1, "records computed again": len(whole) - len(now)})


ODD = {
    "folders": lambda path: path.mkdir(),
    "links to nothing": lambda path: path.symlink_to("/nowhere/at/all"),
    "links to themselves": lambda path: path.symlink_to(path),
    "pipes": lambda path: os.mkfifo(path),
    "deep brackets": lambda path: path.write_bytes(b"[" * 10**5),
    "records without a run": lambda path: path.write_bytes(b'{"key":"k","status":"ok"}\n'),
    "noise": lambda path: path.write_bytes(random.Random(0).randbytes(4096) + b"x"),
    "texts": lambda path: path.write_bytes('{\n "key": 1\n}\n'.encode("utf-16")),
}


def odd(workspace: Path, draw: random.Random) -> Counter[str]:
    """Folders, links, pipes, deep brackets and noise stand among the files: each is named, the rest served."""
    wanted = filled(workspace, 8)
    kinds = draw.sample(sorted(ODD), draw.randint(1, len(ODD)))
    for number, kind in enumerate(kinds):
        ODD[kind](results(workspace) / f"{draw.choice('0az')}{number}.jsonl")
    store = Store(results(workspace))
    named = {fault.file for fault in store.faults}
    assert len(named) == len(kinds) and len(store) == len(wanted) and store.check()
    sweep(workspace, wanted)
    store.append("more", *engine.compute([runs(workspace, 9)[8]]))
    assert len(store) == len(wanted) + 1
    return Counter(kinds)


def full(workspace: Path, draw: random.Random) -> Counter[str]:
    """No file may grow beyond a random size (as on a full disk) in the middle of a sweep, which then goes on."""
    wanted, stopped = runs(workspace, 24), 0
    size = draw.randint(200, 4000)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try:
            sweep(workspace, wanted)
        except StoreError as error:
            assert "the disk is full" in str(error), error
            os._exit(28)

    while size < 40_000:
        status = ended(fork(limited))
        assert status in (0, 28), f"status {status}"
        assert Store(results(workspace)).faults == [], "half a line was left"
        stopped += status == 28
        size += draw.randint(1000, 8000)
    assert ended(fork(lambda: sweep(workspace, wanted))) == 0
    assert complete(workspace, wanted) == 0 and computed(workspace).total() == len(wanted) + stopped
    return Counter({"times full": stopped, "runs": len(wanted)})


def mount(workspace: Path, draw: random.Random) -> Counter[str]:
    """A file system of 32 to 96 KB is filled until an append fails, and goes on when there is room."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise Skip("a file system can be mounted by root only")
    command, variables = python("-c", "from faults import damage; damage.fill()", workspace)
    size = draw.choice([32, 48, 64, 96])
    inside = f'mount -t tmpfs -o size={size}k none {workspace} || exit 77; exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", inside, "sh", *command], capture_output=True, text=True, env=variables
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        raise Skip("no file system can be mounted here")
    assert done.returncode == 0, done.stderr
    return Counter({"times full": 1, "records before": int(done.stdout)})


def fill() -> None:
    """Fill the folder that the command line names; print how many records it took."""
    folder = Path(sys.argv[1])
    (folder / "ballast").write_bytes(bytes(8192))
    fake_tasks.register()
    (record,) = engine.compute(runs(folder, 1))
    store, kept = Store(folder / "results"), 0
    try:
        while True:
            store.append("a", record | {"key": str(kept)})
            kept += 1
    except StoreError as error:
        assert "the disk is full" in str(error), error
    again = Store(folder / "results")
    assert len(store) == len(again) == kept and again.faults == []
    (folder / "ballast").unlink()
    store.append("a", record | {"key": str(kept)})
    assert len(Store(folder / "results")) == kept + 1
    print(kept)
