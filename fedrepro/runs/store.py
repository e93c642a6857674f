"""Keep results in a folder of JSON Lines files, one a notebook, to which records are only appended.

A record is one line. It is written whole, under a lock that processes share, and synced before the
call returns; so a process killed at any moment leaves at most one torn last line, which is reported
(`Store.torn`), never fatal, and closed off by the next append. Reading takes no lock and creates nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from filelock import FileLock, Timeout

from fedrepro import paths
from fedrepro.errors import ArgumentError, StoreError, require

if TYPE_CHECKING:
    from pandas import DataFrame

    from fedrepro.runs.run import Run

Record = dict[str, Any]

ENVIRONMENTS = "environments.jsonl"
LOCK = "store.lock"
LOCK_SECONDS = 60.0
LAST = 256  # bytes, which hold a line's key or its time

_FIELDS = ("task", "paper", "method", "dataset", "prepare", "split", "partition", "clients", "seed")
_LAST = ("status", "seconds", "when", "environment")


class Torn(NamedTuple):
    """A line that is no record: name of the file, number of the line (from 1) and its length in bytes."""

    file: str
    line: int
    length: int


class _File:
    """The state of reading a file: bytes and lines read, the last bytes, and the lines that are no records."""

    def __init__(self, identity: int) -> None:
        self.identity = identity
        self.modified = 0  # st_mtime_ns when it was read
        self.offset = 0
        self.last = b""  # the bytes before the offset: another file may get the name, the inode and a larger size
        self.lines = 0
        self.corrupt: list[Torn] = []
        self.tail: list[Torn] = []


class Store:
    """Records by the key of their run. Of several records with one key the last finished one is served.

    Args:
        folder: where the files are; default `paths.store()`. It need not exist before something is written.

    Raises:
        StoreError: a file in the folder cannot be read.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder) if folder is not None else paths.store()
        self._forget()
        self.refresh()

    def _forget(self) -> None:
        self._files: dict[str, _File] = {}
        self._done: dict[str, tuple[tuple[str, str, int], Record]] = {}
        self._failed: dict[str, tuple[tuple[str, str, int], Record]] = {}
        self.environments: dict[str, dict[str, Any]] = {}

    # --- reading --------------------------------------------------------------------------------------------

    @property
    def torn(self) -> list[Torn]:
        """Return the lines that are no records, left by a killed process or in a damaged file."""
        return [torn for _, file in sorted(self._files.items()) for torn in (*file.corrupt, *file.tail)]

    def refresh(self) -> None:
        """Read what this or another process has written since the last look."""
        try:
            present = self._present()
            for name, file in self._files.items():
                stat = present.get(name)
                if stat is None or stat.st_ino != file.identity or stat.st_size < file.offset:
                    self._forget()  # a file was removed, replaced or cut: what came from it must go
                    break
            for name, stat in present.items():
                file = self._files.setdefault(name, _File(stat.st_ino))
                unread = stat.st_size > file.offset or stat.st_mtime_ns != file.modified
                file.modified = stat.st_mtime_ns
                if unread and not self._read(self.folder / name, file):
                    self._forget()
                    return self.refresh()
        except OSError as error:
            raise StoreError(f"the store {str(self.folder)!r} cannot be read: {_reason(error)}.") from error

    def _present(self) -> dict[str, os.stat_result]:
        try:
            names = sorted(name for name in os.listdir(self.folder) if name.endswith(".jsonl"))
        except FileNotFoundError:
            return {}
        return {name: (self.folder / name).stat() for name in names}

    def _read(self, path: Path, file: _File) -> bool:
        """Take what is new in a file. If it is not the file that was read before, take nothing and return False."""
        with path.open("rb") as stream:
            stream.seek(file.offset - len(file.last))
            if stream.read(len(file.last)) != file.last:
                return False
            new = stream.read()
        end = new.rfind(b"\n") + 1
        file.last = (file.last + new[max(0, end - LAST) : end])[-LAST:]
        *lines, tail = new.split(b"\n")
        for line in lines:
            file.lines += 1
            file.offset += len(line) + 1
            if line.strip() and not self._take(path.name, file.lines, line):
                file.corrupt.append(Torn(path.name, file.lines, len(line)))
        # JSON without its last brace is no JSON, so a last line that can be read lacks only the line feed.
        # The offset stays before it, as another process may be writing the rest right now.
        whole = not tail or self._take(path.name, file.lines + 1, tail)
        file.tail = [] if whole else [Torn(path.name, file.lines + 1, len(tail))]
        return True

    def _take(self, file: str, line: int, text: bytes) -> bool:
        try:
            record = json.loads(text)
        except ValueError:
            return False
        if file == ENVIRONMENTS:
            if not (isinstance(record, dict) and isinstance(record.get("environment"), dict)):
                return False
            self.environments[str(record.get("hash"))] = record["environment"]
            return True
        if not (isinstance(record, dict) and isinstance(record.get("key"), str) and "status" in record):
            return False
        kept = self._done if record["status"] == "ok" else self._failed
        age = (str(record.get("when", "")), file, line)
        if record["key"] not in kept or age >= kept[record["key"]][0]:
            kept[record["key"]] = (age, record)
        return True

    def __contains__(self, key: object) -> bool:
        return key in self._done

    def __len__(self) -> int:
        return len(self._done)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the finished records, one a key."""
        return (record for _, record in self._done.values())

    def get(self, key: str) -> Record | None:
        """Return the finished record of a key, or None."""
        return self._done[key][1] if key in self._done else None

    def failure(self, key: str) -> Record | None:
        """Return the last failed record of a key that has no finished one, or None."""
        return self._failed[key][1] if key in self._failed and key not in self._done else None

    def file(self, key: str) -> str:
        """Return the name of the file that holds the record that `get` returns."""
        return self._done[key][0][1]

    def find(self, start: str) -> list[Record]:
        """Return the records, finished or else failed, whose key begins with `start`, sorted by key."""
        keys = sorted(key for key in {*self._done, *self._failed} if key.startswith(start))
        return [record for key in keys if (record := self.get(key) or self.failure(key)) is not None]

    def frame(self, runs: Iterable[Run]) -> DataFrame:
        """Return finished runs as a tidy table, one row a run, in the order given, without those the store lacks.

        Columns: `key`, the fields of the run, its options under their own names (lists as tuples),
        its result with nested names joined by dots, `status`, `seconds`, `when`, `environment`.
        A name of the result that is taken already is preceded by `result.`.
        """
        import pandas as pd

        by_key = {run.key: self.get(run.key) for run in runs}
        records = [record for record in by_key.values() if record is not None]
        options = dict.fromkeys(name for record in records for name in record["run"].get("options", {}))
        taken = {"key", *_FIELDS, *options, *_LAST}
        rows, names = [], dict[str, None]()
        for record in records:
            given = record["run"].get("options", {})
            row = {"key": record["key"], **{name: record["run"].get(name) for name in _FIELDS}}
            row |= {name: _hashable(value) for name, value in given.items()}
            result = dict(_flat(record.get("result") or {}))
            result = {f"result.{name}" if name in taken else name: value for name, value in result.items()}
            names |= dict.fromkeys(result)
            rows.append(row | result | {name: record.get(name) for name in _LAST})
        return pd.DataFrame(rows, columns=["key", *_FIELDS, *options, *names, *_LAST])

    # --- writing --------------------------------------------------------------------------------------------

    def append(self, file: str, *records: Mapping[str, Any]) -> None:
        """Write records at the end of a file, one line each; they are on the disk when this returns.

        Args:
            file: the notebook's name; a slash in it becomes a hyphen, `.jsonl` is added where it is missing.
            records: mappings of JSON values with at least `key` and `status`; an `environment` still spelled
                out is kept once, and referred to by its hash.

        Raises:
            StoreError: the disk is full, the folder is read-only, or another process held the lock for a
                minute. Nothing of the records is left in the file, and all that was there can be read.
            ArgumentError: a file name with other characters, or a record that is no JSON.
        """
        name = _file_name(file)
        lines = b"".join(_line(self._referring(record)) for record in records)
        if not lines:
            return
        with self._writing(name):
            _append_lines(self.folder / name, lines)
        self.refresh()

    def _referring(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        where = record.get("environment")
        return {**record, "environment": self.environment(where)} if isinstance(where, Mapping) else record

    def environment(self, description: Mapping[str, Any]) -> str:
        """Keep the description of an environment once, and return the hash by which records refer to it.

        Raises:
            StoreError: as for `append`.
        """
        text = json.dumps(description, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        if name not in self.environments:
            with self._writing(ENVIRONMENTS):
                self.refresh()
                if name not in self.environments:
                    line = _line({"hash": name, "environment": dict(description)})
                    _append_lines(self.folder / ENVIRONMENTS, line)
            self.refresh()
        return name

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        path = self.folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / LOCK, timeout=LOCK_SECONDS, poll_interval=0.01):
                yield
        except Timeout as error:
            raise StoreError(
                f"{str(path)!r} cannot be written: another process has held {LOCK} for {LOCK_SECONDS:.0f} s."
            ) from error
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"{str(path)!r} cannot be written: {_reason(error)}.") from error


def _append_lines(path: Path, lines: bytes) -> None:
    """Write at the end and sync; on an error cut the file back to what it was."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        if size and os.lseek(descriptor, size - 1, os.SEEK_SET) >= 0 and os.read(descriptor, 1) != b"\n":
            lines = b"\n" + lines  # a torn line before: start on a fresh one
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except BaseException:
            with suppress(OSError):  # else the next reader reports a torn line, and the next writer closes it
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    full, locked = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG), (errno.EACCES, errno.EPERM, errno.EROFS)
    text = error.strerror or str(error)
    if error.errno in full:
        return f"the disk is full ({text})"
    if error.errno in locked:
        return f"it is read-only for this user ({text}); FEDREPRO_STORE names another folder"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"a file stands where the folder should be ({text})"
    return text


def _file_name(file: str) -> str:
    name = file.replace("/", "-").removesuffix(".jsonl") + ".jsonl"
    plain = re.fullmatch(r"\w[\w.~-]*", name) is not None and name != ENVIRONMENTS
    require(plain, "file", f"a name of letters, digits, '.', '~', '_' and '-', not {ENVIRONMENTS}", file)
    return name


def _line(record: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"record must be made of JSON values. Got one that is not: {error}.") from error
    return text.encode(errors="backslashreplace") + b"\n"


def _flat(result: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in result.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _hashable(value: Any) -> Any:
    return tuple(_hashable(entry) for entry in value) if isinstance(value, list) else value


@cache
def _opened(folder: Path) -> Store:
    return Store(folder)


def opened() -> Store:
    """Return the store of `paths.store()`. It is read once a process; each call reads what is new."""
    store = _opened(paths.store())
    store.refresh()
    return store
