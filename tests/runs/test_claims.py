"""One of several processes on a store computes each run, and a claim ends with the process that holds it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import sweep_child
from fake_training import fake_training

from fedrepro.errors import StoreError
from fedrepro.runs import claims
from fedrepro.runs import execute as engine
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store

CHILD = Path(sweep_child.__file__)
HOLD = """
import sys
from pathlib import Path
from fedrepro.runs.claims import claims_of
print(claims_of(Path(sys.argv[1])).claim(sys.argv[2]), flush=True)
sys.stdin.read()
"""


pytestmark = pytest.mark.usefixtures("fakes")


def holder(folder: Path, key: str) -> subprocess.Popen[str]:
    """A process that has claimed a key, unless somebody else had it, and waits."""
    command = [sys.executable, "-c", HOLD, str(folder), key]
    variables = os.environ | {"PYTHONPATH": str(CHILD.parents[1])}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=variables)


def runs(seeds: int, log: Path, pause: float = 0.0) -> list[Run]:
    return sweep(task="check", paper="p", method="logged", seed=range(seeds), options={"log": str(log), "pause": pause})


def computed(log: Path) -> list[str]:
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def test_a_claim_holds_until_its_process_ends(tmp_path: Path) -> None:
    """A key that another process has claimed cannot be claimed before it is killed, and other keys can."""
    first, second = (run.key for run in runs(2, tmp_path))
    here = claims.claims_of(tmp_path)
    with holder(tmp_path, first) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        assert not here.claim(first) and here.claim(second) and not here.claim(second)
        other.kill()
    assert here.claim(first)
    for expected in ("False\n", "True\n"):
        with holder(tmp_path, first) as other:
            assert other.stdout is not None and other.stdout.readline() == expected
            other.kill()
        here.release(first)
    here.release(second)


def test_looking_up_claims_nothing(tmp_path: Path) -> None:
    """A store that is read, and a sweep of which nothing is missing or computed, make no file."""
    store = Store(tmp_path / "results")
    engine.execute(runs(2, tmp_path), store=store, file="a", budget=0)
    assert not store.folder.exists()


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_each_run_is_computed_once(tmp_path: Path, processes: int) -> None:
    """Two, four and eight processes on one sweep of 100 runs compute each once, and each gets all of them."""
    arguments = [tmp_path / "results", tmp_path / "log", "a", 0, 100, 1]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(CHILD.parents[1]), str(CHILD.parent)])}
    command = [sys.executable, str(CHILD), *map(str, arguments)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) for _ in range(processes)]
    assert [child.communicate(timeout=120)[0].split() for child in children] == [["100", "0", "0"]] * processes
    assert len(computed(tmp_path / "log")) == len(set(computed(tmp_path / "log"))) == 100
    workers = {line.split()[1] for line in (tmp_path / "log").read_text().splitlines()}
    assert len(workers) > 1, "one process did it all"
    keys = Counter(line.split(b'"')[3] for line in (tmp_path / "results" / "a.jsonl").read_bytes().splitlines())
    assert len(keys) == 100 and set(keys.values()) == {1}


def test_a_killed_claimant_is_taken_over(tmp_path: Path) -> None:
    """A process computes the others, waits for the run that another has claimed, and computes it after a kill."""
    wanted = runs(5, tmp_path / "log")
    store = Store(tmp_path / "results")
    with holder(store.folder, wanted[0].key) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        seen: list[int] = []

        def kill() -> None:
            while len(computed(tmp_path / "log")) < 4:
                time.sleep(0.01)
            time.sleep(0.3)  # a process that does not wait would be done
            seen.append(len(computed(tmp_path / "log")))
            other.kill()

        threading.Thread(target=kill).start()
        frame = engine.execute(wanted, store=store, file="a", workers=1, progress=False)
    assert seen == [4] and len(frame) == 5
    assert computed(tmp_path / "log") == [run.key for run in (*wanted[1:], wanted[0])]


def test_a_budget_does_not_wait(tmp_path: Path) -> None:
    """When the time is spent, what another process is still computing is left to it."""
    wanted = runs(3, tmp_path / "log")
    store = Store(tmp_path / "results")
    with holder(store.folder, wanted[1].key) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        frame = engine.execute(wanted, store=store, file="a", workers=1, progress=False, budget=0.5 / 60)
        assert list(frame["seed"]) == [0, 2]
        other.kill()


def test_a_failure_elsewhere_is_not_tried_again(tmp_path: Path) -> None:
    """A run that fails in another process meanwhile is told as failed; one that had failed before is tried again."""
    (run,) = sweep(task="check", paper="p", method="fails")
    store, other = Store(tmp_path / "results"), Store(tmp_path / "results")
    other.append("b", engine.compute([run])[0] | {"error": "E: before", "when": "2000-01-01T00:00:00+00:00"})
    frame = engine.execute([run], store=store, file="a", workers=1, progress=False, quiet=True)
    assert frame.attrs["failed"][0]["error"].startswith("KeyError: 'seed 0'")
    assert other.claim(run.key)

    def fail() -> None:  # as the other process would, which has claimed the run
        time.sleep(0.3)
        other.append("b", engine.compute([run])[0] | {"error": "E: elsewhere", "when": "2100-01-01T00:00:00+00:00"})
        other.release(run.key)

    thread = threading.Thread(target=fail)
    thread.start()
    frame = engine.execute([run], store=store, file="a", workers=1, progress=False, quiet=True)
    thread.join()
    assert frame.attrs["failed"][0]["error"] == "E: elsewhere"


def test_batches_are_claimed_run_by_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a batch that another process has is left to it, and the rest is trained side by side as one batch."""
    calls = fake_training(monkeypatch)
    wanted = sweep(task="train", paper="p", method="FedAvg", seed=[0, 1, 3, 4])
    store, other = Store(tmp_path / "results"), Store(tmp_path / "results")
    assert other.claim(wanted[1].key)

    def land() -> None:
        while not calls:
            time.sleep(0.01)
        other.append("b", *engine.compute([wanted[1]]))
        other.release(wanted[1].key)

    thread = threading.Thread(target=land)
    thread.start()
    frame = engine.execute(wanted, store=store, file="a", workers=1, side_by_side=4, progress=False)
    thread.join()
    assert calls == [[0, 3, 4], [1]] and sorted(frame["seed"]) == [0, 1, 3, 4]
    assert store.file(wanted[1].key) == "b.jsonl"


def test_nothing_stays_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupt or a full disk the runs in flight can be claimed again in the same process."""
    wanted = runs(3, tmp_path / "log")
    store = Store(tmp_path / "results")
    for error in (KeyboardInterrupt(), StoreError("the disk is full")):

        def stop(*records: object, error: BaseException = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(store, "append", stop)
            with pytest.raises(type(error)):
                engine.execute(wanted, store=store, file="a", workers=1, progress=False)
        assert all(store.claim(run.key) for run in wanted)
        for run in wanted:
            store.release(run.key)
    assert len(engine.execute(wanted, store=store, file="a", workers=1, progress=False)) == 3


def test_a_folder_that_cannot_be_written_is_told_before_computing(tmp_path: Path) -> None:
    """An error says that the claim cannot be written, and nothing is computed."""
    store = Store(tmp_path / "results")
    (store.folder / claims.FILE).mkdir(parents=True)
    with pytest.raises(StoreError, match=r"claims\.lock' cannot be written: Is a directory"):
        engine.execute(runs(2, tmp_path / "log"), store=store, file="a", workers=1, progress=False)
    assert computed(tmp_path / "log") == []
