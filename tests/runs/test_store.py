from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedrepro.errors import ArgumentError, StoreError
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store, Torn, opened


def record(key: str = "k", status: str = "ok", **changes: Any) -> dict[str, Any]:
    return {"key": key, "status": status, "when": "2026-01-01T00:00:00+00:00", "result": {"x": 0.1}, **changes}


def stored(run: Run, **changes: Any) -> dict[str, Any]:
    return record(run.key, run=run.to_dict(), seconds=1.5, environment="e", **changes)


def lines(folder: Path, file: str = "a.jsonl") -> list[bytes]:
    return (folder / file).read_bytes().split(b"\n")


def test_round_trip_is_exact(tmp_path: Path) -> None:
    """What is read is what was written, floats to the last bit, in another store object too."""
    value = {"third": 1 / 3, "tiny": 5e-324, "text": "Österreich\n", "list": [1, 2.0, None, True]}
    store = Store(tmp_path / "new" / "folder")
    store.append("fedgat/6-experiments", record(result=value))
    for reader in (store, Store(tmp_path / "new" / "folder")):
        assert reader.get("k")["result"] == value  # type: ignore[index]
        assert reader.file("k") == "fedgat-6-experiments.jsonl"
    assert store.torn == [] and len(store) == 1 and "k" in store and "l" not in store


def test_reading_creates_nothing(tmp_path: Path) -> None:
    """Opening and reading a store leaves no file and no folder behind."""
    store = Store(tmp_path / "absent")
    assert store.get("k") is None and list(store) == [] and not (tmp_path / "absent").exists()
    Store(tmp_path).append("a", record())
    before = sorted(tmp_path.iterdir())
    (tmp_path / "store.lock").unlink()
    assert len(Store(tmp_path)) == 1
    assert sorted(tmp_path.iterdir()) == [path for path in before if path.name != "store.lock"]


@pytest.mark.parametrize("cut", range(1, len(json.dumps(record("l"), separators=(",", ":"))) + 1))
def test_torn_last_line(tmp_path: Path, cut: int) -> None:
    """Wherever the last line is torn, it is reported and what is written next loses nothing."""
    Store(tmp_path).append("a", record("k"), record("l"))
    path = tmp_path / "a.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    complete = cut == 1  # only the line feed is missing
    store = Store(tmp_path)
    length = len(lines(tmp_path)[-1])
    expected = [] if complete or not length else [Torn("a.jsonl", 2, length)]
    assert store.torn == expected and ("l" in store) == complete and "k" in store
    store.append("a", record("m"))
    for reader in (store, Store(tmp_path)):
        assert reader.torn == expected and {"k", "m"} <= {found["key"] for found in reader}


def test_corrupt_lines_in_the_middle(tmp_path: Path) -> None:
    """Lines that are no records are reported with file, number and length; the others are read."""
    good = json.dumps(record("k")).encode()
    junk = [b"\xff\xfe\x00", b"{", b"[1]", b'{"key": 3, "status": "ok"}', b"<<<<<<< HEAD", b'"text"']
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([*junk, b"", good, b"   "]) + b"\n")
    (tmp_path / "environments.jsonl").write_bytes(b'{"hash": "x"}\n')
    store = Store(tmp_path)
    bad = [Torn("a.jsonl", number, len(line)) for number, line in enumerate(junk, 1)]
    assert store.torn == [*bad, Torn("environments.jsonl", 1, 13)]
    assert [found["key"] for found in store] == ["k"]


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
    first = "".join(json.dumps(record(key)) + "\n" for key in "kl")
    other = "".join(json.dumps(record(key)) + "\n" for key in ("mno" if longer else "mn"))
    path.write_text(first)
    store, before = Store(tmp_path), path.stat()
    path.write_text(other)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
    assert path.stat().st_ino == before.st_ino
    store.refresh()
    assert sorted(one["key"] for one in store) == list("mno" if longer else "mn") and store.torn == []


def test_a_line_being_written(tmp_path: Path) -> None:
    """Half a line that another process is writing becomes a record when the rest is there."""
    whole = json.dumps(record("k")).encode() + b"\n"
    path = tmp_path / "a.jsonl"
    path.write_bytes(whole[:20])
    store = Store(tmp_path)
    assert store.torn == [Torn("a.jsonl", 1, 20)] and "k" not in store
    path.write_bytes(whole)
    store.refresh()
    assert store.torn == [] and "k" in store


def test_environments_once(tmp_path: Path) -> None:
    """An environment is stored once, whoever meets it, and records refer to it."""
    first, second = Store(tmp_path), Store(tmp_path)
    first.append("a", record("k", environment={"torch": "2.13.0", "threads": 1}))
    second.append("a", record("l", environment={"threads": 1, "torch": "2.13.0"}))
    second.append("a", record("m", environment={"threads": 2, "torch": "2.13.0"}))
    assert len(lines(tmp_path, "environments.jsonl")) == 2 + 1
    name = Store(tmp_path).get("l")["environment"]  # type: ignore[index]
    assert second.environments[name] == {"torch": "2.13.0", "threads": 1}


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


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_only_json(tmp_path: Path, value: object) -> None:
    """A record that is no JSON is an error, and nothing of what was to be written with it is."""
    with pytest.raises(ArgumentError, match="JSON"):
        Store(tmp_path).append("a", record(), record(result={"x": value}))
    assert list(tmp_path.glob("*.jsonl")) == []


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
    """Opening parses every line once, adding a record parses and writes that one alone, another look nothing."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record(str(number))) + "\n" for number in range(200)))
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
        lines = [line for line in written if b"key" in line]
        assert parsed == [f"new in {file}"] and [loads(line)["key"] for line in lines] == parsed
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
    assert (tmp_path / "a.jsonl").read_bytes() == before and "k" in store and store.torn == []
    store.append("a", record("l"))
    assert {"k", "l"} == {found["key"] for found in Store(tmp_path)}


def test_full_disk_that_cannot_be_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the half line cannot be taken back it is a torn line: reported, and closed off by the next."""
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
    assert store.torn == [Torn("a.jsonl", 2, 10)] and "k" in store
    store.append("a", record("l"))
    assert {"k", "l"} == {found["key"] for found in Store(tmp_path)}


def test_unreadable_places(tmp_path: Path) -> None:
    """A file where the folder should be, or a folder where a file should be, is an error that says so."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be read: a file stands where the folder should be"):
        Store(tmp_path / "file")
    store = Store(tmp_path / "file2")
    (tmp_path / "file2").write_text("")
    with pytest.raises(StoreError, match="cannot be written: a file stands where the folder should be"):
        store.append("a", record())
    (tmp_path / "folder" / "a.jsonl").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"cannot be read"):
        Store(tmp_path / "folder")


def test_opened_is_one_store_a_process_that_sees_what_was_written_since() -> None:
    """`opened` reads the folder once, and each call what another store object appended to it."""
    store = opened()
    assert "k" not in store
    Store().append("a", record())
    assert opened() is store and "k" in store
