from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedrepro.errors import ArgumentError, StoreError
from fedrepro.runs import lines
from fedrepro.runs.lines import Fault
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store, opened

RUN = Run("train", "p", "FedAvg")
TORN = "is torn, or no JSON"


def record(key: str = "k", status: str = "ok", **changes: Any) -> dict[str, Any]:
    made = {"key": key, "run": RUN.to_dict(), "status": status, "when": "2026-01-01T00:00:00+00:00"}
    return {**made, "result": {"x": 0.1}, **changes}


def line(key: str) -> bytes:
    return lines.write(record(key), "a.jsonl")


def stored(run: Run, **changes: Any) -> dict[str, Any]:
    return record(run.key, run=run.to_dict(), seconds=1.5, environment="e", **changes)


def split(folder: Path, file: str = "a.jsonl") -> list[bytes]:
    return (folder / file).read_bytes().split(b"\n")


def test_round_trip_is_exact(tmp_path: Path) -> None:
    """A record is read as it was written, floats to the last bit, by another store object too."""
    value = {"third": 1 / 3, "tiny": 5e-324, "text": "Österreich\n", "list": [1, 2.0, None, True]}
    store = Store(tmp_path / "new" / "folder")
    store.append("fedgat/6-experiments", record(result=value))
    for reader in (store, Store(tmp_path / "new" / "folder")):
        assert reader.get("k")["result"] == value  # type: ignore[index]
        assert reader.file("k") == "fedgat-6-experiments.jsonl"
    assert store.faults == [] and len(store) == 1 and "k" in store and "l" not in store


def test_reading_creates_nothing(tmp_path: Path) -> None:
    """Opening and reading a store leaves no file and no folder behind."""
    store = Store(tmp_path / "absent")
    assert store.get("k") is None and list(store) == [] and not (tmp_path / "absent").exists()
    Store(tmp_path).append("a", record())
    before = sorted(tmp_path.iterdir())
    (tmp_path / "store.lock").unlink()
    assert len(Store(tmp_path)) == 1
    assert sorted(tmp_path.iterdir()) == [path for path in before if path.name != "store.lock"]


@pytest.mark.parametrize("cut", [*range(1, 30), *range(30, len(line("l")), 7)])
def test_torn_last_line(tmp_path: Path, cut: int) -> None:
    """Wherever the last line is torn, it is reported and what is written next loses nothing."""
    Store(tmp_path).append("a", record("k"), record("l"))
    path = tmp_path / "a.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    complete = cut == 1  # only the line feed is missing
    store = Store(tmp_path)
    expected = [] if complete else [Fault("a.jsonl", 2, TORN)]
    assert store.faults == expected and ("l" in store) == complete and "k" in store
    store.append("a", record("m"))
    for reader in (store, Store(tmp_path)):
        assert reader.faults == expected and {"k", "m"} <= {found["key"] for found in reader}


def test_lines_that_are_no_records(tmp_path: Path) -> None:
    """Lines that are no records are named with file, number and reason; the others are read."""
    bare = [{"key": "k", "status": "ok", "result": {}}, record(run={"task": "check"}), record(3), record(result=None)]
    junk = [b"\xff\xfe\x00", b"{", b"<<<<<<< HEAD", b"[" * 100_000, b"[1]", b'"text"', *map(sealed, bare)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([*junk, b"", line("k").rstrip(b"\n"), b"   "]) + b"\n")
    (tmp_path / "environments.jsonl").write_bytes(b'{"hash": "x"}\n' + sealed({"hash": "x", "environment": {}}))
    store = Store(tmp_path)
    faults = [(fault.file, fault.line, fault.what.split()[0]) for fault in store.faults]
    bad = [("a.jsonl", number, "is" if number < 5 else "lacks") for number in range(1, len(junk) + 1)]
    assert faults == [*bad, ("environments.jsonl", 1, "lacks"), ("environments.jsonl", 2, "lacks")]
    assert [faults["key"] for faults in store] == ["k"] and store.environments == {}


def sealed(value: Any) -> bytes:
    return lines.seal(json.dumps(value).encode())


def test_odd_entries_are_named_and_left_out(tmp_path: Path) -> None:
    """A folder, a link to nothing or to itself and a pipe among the files are named; the files are read."""
    Store(tmp_path).append("k", record())
    (tmp_path / "a.jsonl").mkdir()
    (tmp_path / "b.jsonl").symlink_to("/nowhere")
    (tmp_path / "c.jsonl").symlink_to(tmp_path / "c.jsonl")
    os.mkfifo(tmp_path / "d.jsonl")
    (tmp_path / "l.jsonl").symlink_to(tmp_path / "k.jsonl")
    store = Store(tmp_path)
    told = [
        "a.jsonl is a folder",
        *(f"{name}.jsonl is a link to no file" for name in "bc"),
        "d.jsonl is a pipe",
    ]
    assert list(map(str, store.faults)) == told and "k" in store
    store.append("k", record("l"))
    with pytest.raises(StoreError, match=r"a\.jsonl' cannot be written: Is a directory"):
        store.append("a", record("m"))
    (tmp_path / "a.jsonl").rmdir()
    store.append("a", record("m"))
    (tmp_path / "new").write_bytes(line("m"))
    (tmp_path / "new").rename(tmp_path / "a.jsonl")
    store.refresh()  # as a file is another one, all is read again
    assert {"k", "l", "m"} == {found["key"] for found in store} and len(store.faults) == 3


def test_a_failed_record_hides_nothing(tmp_path: Path) -> None:
    """The last finished record of a key is served, whatever failed before or after; a failure never is."""
    store = Store(tmp_path)
    store.append("a", record(status="failed", error="E: one"))
    assert "k" not in store and store.get("k") is None and store.failure("k")["error"] == "E: one"  # type: ignore[index]
    store.append("a", record(result={"x": 1}), record(result={"x": 2}), record(status="failed", error="E: two"))
    for reader in (store, Store(tmp_path)):
        assert reader.get("k")["result"] == {"x": 2}  # type: ignore[index]
        assert reader.failure("k") is None and len(reader) == 1


def test_the_last_of_several_files(tmp_path: Path) -> None:
    """Among files the later record is served, in whichever order they are read."""
    late, early = (record(when=f"2026-01-0{day}T00:00:00+00:00", result={"x": day}) for day in (2, 1))
    Store(tmp_path).append("a", late)
    store = Store(tmp_path)
    store.append("b", early)
    for reader in (store, Store(tmp_path)):
        assert reader.get("k")["result"] == {"x": 2}  # type: ignore[index]


def test_refresh(tmp_path: Path) -> None:
    """A store sees what others append, and forgets what was taken out of a file."""
    reader, writer = Store(tmp_path), Store(tmp_path)
    writer.append("a", record("k"))
    assert "k" not in reader
    reader.refresh()
    assert "k" in reader
    (tmp_path / "a.jsonl").write_bytes(b"")
    writer.append("b", record("l"))
    reader.refresh()
    assert "k" not in reader and "l" in reader


@pytest.mark.parametrize("longer", [True, False])
def test_another_file_in_the_same_place(tmp_path: Path, longer: bool) -> None:
    """A file rewritten under its name and inode, as by a checkout, is read anew, be it longer or as long."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(map(line, "kl")))
    store, before = Store(tmp_path), path.stat()
    path.write_bytes(b"".join(map(line, "mno" if longer else "mn")))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
    assert path.stat().st_ino == before.st_ino
    store.refresh()
    assert sorted(one["key"] for one in store) == list("mno" if longer else "mn") and store.faults == []


def test_a_line_being_written(tmp_path: Path) -> None:
    """Half a line that another process is writing becomes a record when the rest is there."""
    whole = line("k")
    path = tmp_path / "a.jsonl"
    path.write_bytes(whole[:20])
    store = Store(tmp_path)
    assert store.faults == [Fault("a.jsonl", 1, TORN)] and "k" not in store
    path.write_bytes(whole)
    store.refresh()
    assert store.faults == [] and "k" in store


def test_environments_once(tmp_path: Path) -> None:
    """An environment is stored once, whoever meets it, and records refer to it."""
    first, second = Store(tmp_path), Store(tmp_path)
    first.append("a", record("k", environment={"torch": "2.13.0", "threads": 1}))
    second.append("a", record("l", environment={"threads": 1, "torch": "2.13.0"}))
    second.append("a", record("m", environment={"threads": 2, "torch": "2.13.0"}))
    assert len(split(tmp_path, "environments.jsonl")) == 2 + 1
    name = Store(tmp_path).get("l")["environment"]  # type: ignore[index]
    assert second.environments[name] == {"torch": "2.13.0", "threads": 1}


def test_an_environment_that_was_removed_is_written_again(tmp_path: Path) -> None:
    """An environment is looked up in its file, whatever this process has written or read of it before."""
    store = Store(tmp_path)
    for _ in range(2):
        name = store.environment({"a": 1})
        assert Store(tmp_path).environments == {name: {"a": 1}}
        (tmp_path / "environments.jsonl").unlink()


def test_find(tmp_path: Path) -> None:
    """Records are found by the beginning of their key, failed ones where there is no finished one."""
    store = Store(tmp_path)
    store.append("a", record("ab1"), record("ab2", status="failed"), record("ab1", status="failed"), record("b"))
    assert [(found["key"], found["status"]) for found in store.find("ab")] == [("ab1", "ok"), ("ab2", "failed")]
    assert store.find("c") == []


@pytest.mark.parametrize("name", ["", "../a", "a b", "environments", ".hidden"])
def test_file_names(tmp_path: Path, name: str) -> None:
    """A name that is no plain file name is an error, and nothing is written."""
    with pytest.raises(ArgumentError, match="file must be a name"):
        Store(tmp_path).append(name, record())
    assert list(tmp_path.glob("*.jsonl")) == []


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(10**5):
        nested = [nested]
    return nested


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), deep()], ids=["nan", "inf", "object", "deep"])
def test_only_json(tmp_path: Path, value: object) -> None:
    """A record that is no JSON is an error, and nothing of what was to be written with it is."""
    with pytest.raises(ArgumentError, match="JSON"):
        Store(tmp_path).append("a", record(), record(result={"x": value}))
    assert list(tmp_path.glob("*.jsonl")) == []


@pytest.mark.parametrize("change", [{"key": 3}, {"status": None}, {"run": {"task": "check"}}, {"result": [1]}])
def test_what_could_not_be_read_back_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """A record without key, status, run or result is an error, not a line that the next reader leaves out."""
    store = Store(tmp_path)
    with pytest.raises(ArgumentError, match=r"record must be one that can be read back\. Got one that lacks key"):
        store.append("a", record(), record() | change)
    assert len(store) == 0 and list(tmp_path.glob("*.jsonl")) == []


def test_frame(tmp_path: Path) -> None:
    """One row a run in the order asked for, options and dotted results as columns, clashes marked."""
    runs = sweep(task="train", paper="p", method="FedAvg", seed=range(3), options={"lr": [0.1, 0.2], "sizes": (1, 2)})
    store = Store(tmp_path)
    for run in runs[:5]:
        store.append("a", stored(run, result={"best": {"test": run.seed / 10}, "lr": 9, "seed": 8, "list": [1]}))
    store.append("a", stored(runs[5], status="failed"))
    frame = store.frame([*runs[::-1], runs[0]])
    assert list(frame.columns) == [
        *("key", "task", "paper", "method", "dataset", "prepare", "split", "partition", "clients", "seed"),
        *("lr", "sizes", "best.test", "result.lr", "result.seed", "list"),
        *("status", "seconds", "when", "environment"),
    ]
    assert list(frame["key"]) == [run.key for run in runs[4::-1]]
    assert list(frame["lr"]) == [0.1, 0.2, 0.1, 0.2, 0.1] and list(frame["best.test"]) == [0.2, 0.1, 0.1, 0, 0]
    assert frame["sizes"].unique().tolist() == [(1, 2)] and set(frame["status"]) == {"ok"}
    empty = store.frame([])
    assert isinstance(empty, pd.DataFrame) and len(empty) == 0 and "seed" in empty


def test_each_line_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening parses every line once, adding a record parses (before and after) that one, another look nothing."""
    (tmp_path / "a.jsonl").write_bytes(b"".join(line(str(number)) for number in range(200)))
    before = (tmp_path / "a.jsonl").read_bytes()
    loads, write = json.loads, os.write
    parsed: list[str] = []
    written: list[bytes] = []

    def counted(text: bytes) -> Any:
        found = loads(text)
        parsed.append(found["key"])
        return found

    def noted(descriptor: int, data: Any) -> int:
        written.append(bytes(data))
        return write(descriptor, data)

    monkeypatch.setattr(json, "loads", counted)
    monkeypatch.setattr(os, "write", noted)
    store = Store(tmp_path)
    assert parsed == [str(number) for number in range(200)] and len(store) == 200
    for file in ("a", "b"):
        parsed.clear()
        written.clear()
        store.append(file, record(f"new in {file}"))
        added = [text for text in written if b"key" in text]
        assert parsed == [f"new in {file}"] * 2 and [loads(text)["key"] for text in added] == parsed[:1]
    assert (tmp_path / "a.jsonl").read_bytes().startswith(before)
    parsed.clear()
    store.refresh()
    assert parsed == []
    (tmp_path / "a.jsonl").write_bytes(before)  # replaced by something shorter: only reading it all again is right
    store.refresh()
    assert len(parsed) == 201 and len(store) == 201


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up in the middle of a line: the error says so, nothing half written stays."""
    store = Store(tmp_path)
    store.append("a", record("k"))
    before = (tmp_path / "a.jsonl").read_bytes()
    write, calls = os.write, []

    def full(descriptor: int, data: Any) -> int:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return write(descriptor, bytes(data)[:10])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match=r"a\.jsonl.* cannot be written: the disk is full"):
        store.append("a", record("l"))
    monkeypatch.undo()
    assert (tmp_path / "a.jsonl").read_bytes() == before and "k" in store and store.faults == []
    store.append("a", record("l"))
    assert {"k", "l"} == {found["key"] for found in Store(tmp_path)}


def test_full_disk_that_cannot_be_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half line that cannot be taken back is reported as a torn line, and the next record closes it off."""
    store = Store(tmp_path)
    store.append("a", record("k"))
    write, calls = os.write, []

    def full(descriptor: int, data: Any) -> int:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return write(descriptor, bytes(data)[:10])

    def stuck(descriptor: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        patch.setattr(os, "ftruncate", stuck)
        with pytest.raises(StoreError, match="the disk is full"):
            store.append("a", record("l"))
    store = Store(tmp_path)
    assert store.faults == [Fault("a.jsonl", 2, TORN)] and "k" in store
    store.append("a", record("l"))
    assert {"k", "l"} == {found["key"] for found in Store(tmp_path)}


def test_unreadable_places(tmp_path: Path) -> None:
    """A file where the folder should be is an error that says so."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be read: a file stands where the folder should be"):
        Store(tmp_path / "file")
    store = Store(tmp_path / "file2")
    (tmp_path / "file2").write_text("")
    with pytest.raises(StoreError, match="cannot be written: a file stands where the folder should be"):
        store.append("a", record())


def test_new_names_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a new file is synced, and that of a new folder; an append to an old file syncs only the file."""
    synced: list[Path] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    if not Path("/proc/self/fd").exists():
        pytest.skip("which folders are synced is not tested: it needs /proc")
    monkeypatch.setattr(os, "fsync", noted)
    store = Store(tmp_path / "new" / "folder")
    store.append("a", record())
    assert synced == [tmp_path / "new", tmp_path, store.folder / "a.jsonl", store.folder]
    synced.clear()
    store.append("a", record("l"))
    assert synced == [store.folder / "a.jsonl"]


def test_opened_is_one_store_a_process_that_sees_what_was_written_since() -> None:
    """`opened` reads the folder once, and each call what another store object appended to it."""
    store = opened()
    assert "k" not in store
    Store().append("a", record())
    assert opened() is store and "k" in store
