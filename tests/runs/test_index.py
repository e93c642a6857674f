"""The index counts as the store does, whatever is kept of it; what is kept goes with its files."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path

import fake_tasks
import pytest

from fedrepro import paths, registry
from fedrepro.runs import cache, provenance, statuses
from fedrepro.runs.execute import execute
from fedrepro.runs.index import Index, opened
from fedrepro.runs.lines import cell_of
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store


@pytest.fixture(autouse=True)
def _fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    fake_tasks.register()
    yield
    fake_tasks.forget()


def older(folder: Path) -> None:
    """Make the files of a folder old enough to be kept."""
    for path in folder.glob("*"):
        os.utime(path, (time.time() - 60, time.time() - 60))


def filled(folder: Path) -> tuple[Store, list[Run]]:
    store = Store(folder)
    runs = [
        run for method in ("quick", "fails") for run in sweep(task="check", paper="p", method=method, seed=range(3))
    ]
    execute(runs, store=store, file="a", workers=1, progress=False, quiet=True)
    older(folder)
    return Store(folder), runs


def test_the_index_counts_as_the_store(tmp_path: Path) -> None:
    """Read anew or from what is kept, the index gives the counts of the store; a new record is seen."""
    store, runs = filled(tmp_path / "s")
    wanted = [*runs, runs[0].replace(seed=9)]
    counts = statuses.status(store, wanted)
    assert (counts["done"], counts["failed"], counts["missing"]) == (3, 3, 4)
    assert statuses.status(Index(store.folder), wanted) == counts
    (kept,) = paths.cache().glob("index-*.json")
    assert statuses.status(Index(store.folder), wanted) == counts
    kept.write_text("{torn")
    assert statuses.status(Index(store.folder), wanted) == counts
    execute([wanted[-1]], store=store, file="a", workers=1, progress=False)
    older(store.folder)
    assert statuses.status(Index(store.folder), wanted)["done"] == 4


def test_the_index_knows_the_method_that_was_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code is a part of the fingerprint, so that both must call the same results stale."""
    trains = dataclasses.replace(registry.find("check", "quick"), trains="of")
    monkeypatch.setitem(registry.REGISTRY, ("check", "quick"), trains)
    store, run = Store(tmp_path / "s"), Run(task="check", paper="p", method="quick")
    runs = [run.replace(options={"of": method}) for method in ("FedAvg", "Local")]
    execute(runs, store=store, file="a", workers=1, progress=False, quiet=True)
    cells = {run.key: ("check", "quick", "", run.options["of"]) for run in runs}
    for read in (Store(store.folder), Index(store.folder)):
        assert {record["key"]: cell_of(record) for record in read} == cells == {run.key: run.cell for run in runs}
        assert statuses.status(read, runs)["stale"] == 0
    other = runs[0].replace(options={"of": "FedSGD"})
    assert provenance.current(*other.cell) not in {record["fingerprint"] for record in store}


def test_damage_is_named(tmp_path: Path) -> None:
    """A damaged line is left out and named as in the store, also from what is kept."""
    store, _ = filled(tmp_path / "s")
    path = store.folder / "a.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"seconds":', b'"secands":', 1))
    older(store.folder)
    faults = Store(store.folder).faults
    assert len(faults) == 1
    assert [Index(store.folder).faults for _ in range(2)] == [faults, faults]


def test_part_of_a_store(tmp_path: Path) -> None:
    """A store read for a key finds what the whole finds, and names all that is damaged."""
    store, runs = filled(tmp_path / "s")
    key = runs[1].key[:12]
    part = Store(store.folder, containing=key)
    assert part.find(key) == store.find(key) and len(part) == 1
    path = store.folder / "a.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"seconds":', b'"secands":', 1))
    assert Store(store.folder, containing=key).faults == Store(store.folder).faults != []


def test_kept_until_a_file_changes(tmp_path: Path) -> None:
    """A value is computed again after a change of a file, and never kept of a file that was just written."""
    file, asked = tmp_path / "a", []

    def value() -> int:
        asked.append(1)
        return len(asked)

    file.write_text("x")
    assert cache.state([file]) == ""
    assert [cache.kept("n", cache.state([file]), value) for _ in range(2)] == [1, 2]
    older(tmp_path)
    assert [cache.kept("n", cache.state([file]), value) for _ in range(2)] == [3, 3]
    os.utime(file, (time.time() - 50, time.time() - 50))
    assert cache.kept("n", cache.state([file]), value) == 4
    file.unlink()
    assert cache.kept("n", cache.state([file]), value) == 5


def test_an_opened_index_is_read_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """`opened` gives one index a process. Files that stay as they are, are not read, and a new record is seen."""
    _, runs = filled(paths.store())
    index = opened()
    with monkeypatch.context() as patch:
        patch.delattr(Store, "_keep")
        assert opened() is index and runs[0].key in index
    new = runs[0].replace(seed=9)
    assert new.key not in index
    execute([new], store=Store(), file="a", workers=1, progress=False)
    assert opened() is index and new.key in index
