"""Keep results in a folder of JSON Lines files, one a notebook, to which records are only appended.

A record is one line, which ends in a checksum (`fedrepro.runs.lines`). It is written whole, under a lock that processes
share, and is on the disk before the call returns; so a process killed at any moment leaves at most one torn last line.
A torn or damaged line is named (`Store.faults`) and left out, never fatal, and closed off by the next append.
Reading takes no lock and creates nothing.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from fedrepro import paths
from fedrepro.errors import StoreError, require
from fedrepro.runs import claims, lines, process
from fedrepro.runs.lines import ENVIRONMENTS, Fault, Record

if TYPE_CHECKING:
    from pandas import DataFrame

    from fedrepro.runs.run import Run

LOCK = "store.lock"
LOCK_SECONDS = 60.0
LAST = 256  # bytes, which hold a line's key or its time

_LAST = ("status", "seconds", "when", "environment")


class _File:
    """The state of reading a file: bytes and lines read, the last bytes, and the lines that are faulty."""

    def __init__(self, identity: int) -> None:
        self.identity = identity
        self.modified = 0  # st_mtime_ns when it was read
        self.offset = 0
        self.last = b""  # the bytes before the offset: another file may get the name, the inode and a larger size
        self.lines = 0
        self.faults: list[Fault] = []
        self.tail: list[Fault] = []  # of the bytes after the last line feed
        self.unsealed: list[int] = []  # numbers of the lines without a checksum


class Store:
    """Records by the key of their run. If several have one key, the store serves the one finished or merged last.

    Args:
        folder: where the files are; default `paths.store()`. It need not exist before something is written.
        containing: a text without which an intact line is not read further, such as the start of a key.

    Raises:
        StoreError: a file in the folder cannot be read.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, containing: str = "") -> None:
        self.folder = Path(folder) if folder is not None else paths.store()
        self._containing = containing.encode()
        self._odd: list[Fault] = []
        self._forget()
        self.refresh()

    def _forget(self) -> None:
        self._files: dict[str, _File] = {}
        self._done: dict[str, tuple[tuple[str, str, int], Record]] = {}
        self._failed: dict[str, tuple[tuple[str, str, int], Record]] = {}
        self.environments: dict[str, dict[str, Any]] = {}
        self.derived: dict[Any, Any] = {}  # see `derived.of_store`

    @property
    def faults(self) -> list[Fault]:
        """Return what is left out: lines that are torn or damaged, and entries of the folder that are no files."""
        return sorted([*self._odd, *(fault for file in self._files.values() for fault in (*file.faults, *file.tail))])

    @property
    def unsealed(self) -> list[Fault]:
        """Return the files with lines that have no checksum. Their records are served; `seal` adds checksums."""
        found = [(name, file.unsealed) for name, file in sorted(self._files.items()) if file.unsealed]
        others = [f"and {len(at) - 1} others have" if len(at) > 1 else "has" for _, at in found]
        return [Fault(name, at[0], f"{what} no checksum") for (name, at), what in zip(found, others)]

    def refresh(self) -> None:
        """Read what this or another process has written since the last look."""
        with process.uncollected(), told(self.folder, "read"):
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
                    self.refresh()
                    break

    def _present(self) -> dict[str, os.stat_result]:
        present, self._odd = {}, []
        with suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in sorted((each for each in entries if each.name.endswith(".jsonl")), key=lambda each: each.name):
                if os.path.isfile(entry):
                    present[entry.name] = entry.stat()
                elif os.path.lexists(entry):  # else it was removed just now
                    what = "folder" if os.path.isdir(entry) else "link to no file" if entry.is_symlink() else "pipe"
                    self._odd.append(Fault(entry.name, 0, f"is a {what}"))
        return present

    def _read(self, path: Path, file: _File) -> bool:
        """Take what is new in a file. If it is not the file that was read before, take nothing and return False."""
        with path.open("rb") as stream:
            stream.seek(file.offset - len(file.last))
            if stream.read(len(file.last)) != file.last:
                return False
            new = stream.read()
        end = new.rfind(b"\n") + 1
        file.last = (file.last + new[max(0, end - LAST) : end])[-LAST:]
        *whole, tail = new.split(b"\n")
        for line in whole:
            file.lines += 1
            file.offset += len(line) + 1
            if line.strip():
                self._take(path.name, file.lines, line, file.faults, file.unsealed)
        # JSON without its last brace is no JSON, so a last line that can be read lacks only the line feed.
        # The offset stays before it, as another process may be writing the rest right now.
        file.tail = []
        if tail:
            self._take(path.name, file.lines + 1, tail, file.tail, [])
        return True

    def _take(self, file: str, number: int, line: bytes, faults: list[Fault], unsealed: list[int]) -> None:
        if self._containing not in line and lines.intact(line):
            return
        try:
            record, sealed = lines.read(line, file)
        except lines.LineError as error:
            faults.append(Fault(file, number, str(error)))
            return
        if not sealed:
            unsealed.append(number)
        self.derived.clear()
        if file == ENVIRONMENTS:
            self.environments[record["hash"]] = record["environment"]
        else:
            self._keep(record, file, number)

    def _keep(self, record: Record, file: str, number: int) -> None:
        kept = self._done if record["status"] == "ok" else self._failed
        age = (str(record.get("merged") or record.get("when", "")), file, number)
        if record["key"] not in kept or age >= kept[record["key"]][0]:
            kept[record["key"]] = (age, record)

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

    def records(self, keys: Iterable[str]) -> Iterator[Record]:
        """Iterate over the finished records of some keys, in their order; a key without one is left out."""
        return (self._done[key][1] for key in keys if key in self._done)

    def failure(self, key: str) -> Record | None:
        """Return the last failed record of a key that has no finished one, or None."""
        return self._failed[key][1] if key in self._failed and key not in self._done else None

    def age(self, key: str) -> tuple[str, str, int] | None:
        """Return when the record that `get` returns was computed or merged, its file and its line; None without one."""
        return self._done[key][0] if key in self._done else None

    def file(self, key: str) -> str:
        """Return the name of the file that holds the record that `get` returns."""
        return self._done[key][0][1]

    def find(self, start: str) -> list[Record]:
        """Return the records, finished or else failed, whose key begins with `start`, sorted by key."""
        keys = sorted(key for key in {*self._done, *self._failed} if key.startswith(start))
        return [record for key in keys if (record := self.get(key) or self.failure(key)) is not None]

    def on_gpu(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record was computed on a GPU."""
        return str(self.environments.get(str(record.get("environment")), {}).get("device", "cpu")) != "cpu"

    def frame(self, runs: Iterable[Run]) -> DataFrame:
        """Return finished runs as a tidy table, one row a run, in the order given, without those the store lacks.

        Columns: `key`, the fields of the run, its options under their own names (lists as tuples),
        its result with nested names joined by dots, `status`, `seconds`, `when`, `environment`.
        A name of the result that is taken already is preceded by `result.`.
        """
        import pandas as pd

        records = list(self.records(dict.fromkeys(run.key for run in runs)))
        options = dict.fromkeys(name for record in records for name in record["run"].get("options", {}))
        taken = {"key", *lines.RUN, *options, *_LAST}
        rows, names = [], dict[str, None]()
        for record in records:
            given = record["run"].get("options", {})
            row = {"key": record["key"], **{name: record["run"].get(name) for name in lines.RUN}}
            row |= {name: lines.hashable(value) for name, value in given.items()}
            result = lines.flat(record.get("result") or {})
            result = {f"result.{name}" if name in taken else name: value for name, value in result.items()}
            names |= dict.fromkeys(result)
            rows.append(row | result | {name: record.get(name) for name in _LAST})
        return pd.DataFrame(rows, columns=["key", *lines.RUN, *options, *names, *_LAST])

    def append(self, file: str, *records: Mapping[str, Any]) -> None:
        """Write records at the end of a file, one line each; they are on the disk when this returns.

        Args:
            file: the notebook's name; a slash in it becomes a hyphen, `.jsonl` is added where it is missing.
            records: mappings of JSON values with at least `key`, `status`, `run` and `result`; an `environment`
                still spelled out is kept once, and referred to by its hash.

        Raises:
            StoreError: the disk is full, the folder is read-only, or another process held the lock for a
                minute. Nothing of the records is left in the file, and all that was there can be read.
            ArgumentError: a file name with other characters, or a record that is no JSON or could not be read back.
        """
        name = file_name(file)
        written = b"".join(lines.write(self._referring(record), name) for record in records)
        if not written:
            return
        with self._writing(name):
            _append_lines(self.folder / name, written)
        self.refresh()

    def _referring(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        require(isinstance(record, Mapping), "record", "a mapping of names to JSON values", record)
        where = record.get("environment")
        return {**record, "environment": self.environment(where)} if isinstance(where, Mapping) else record

    def environment(self, description: Mapping[str, Any]) -> str:
        """Keep the description of an environment once, and return the hash by which records refer to it.

        Raises:
            StoreError: as for `append`.
        """
        name = lines.hash_of(description)
        self.refresh()
        if name not in self.environments:
            line = lines.write({"hash": name, "environment": dict(description)}, ENVIRONMENTS)
            with self._writing(ENVIRONMENTS):
                self.refresh()
                if name not in self.environments:
                    _append_lines(self.folder / ENVIRONMENTS, line)
            self.refresh()
        return name

    def claim(self, key: str) -> bool:
        """Claim a run to compute it, until `release` or the end of this process; return False if somebody else has it.

        Raises:
            StoreError: nothing can be written in the folder.
        """
        with told(self.folder / claims.FILE):
            return claims.claims_of(self.folder).claim(key)

    def release(self, key: str) -> None:
        """Give a claimed run back."""
        claims.claims_of(self.folder).release(key)

    def seal(self) -> int:
        """Give each line without a checksum one, and return how many there were.

        Damaged lines stay as they are. A line that its file has twice then, as after a merge of branches by Git, is
        kept once.

        Raises:
            StoreError: as for `append`.
        """
        count = 0
        for name in [fault.file for fault in self.unsealed]:
            with self._writing(name):
                path = (self.folder / name).resolve()
                kept: dict[bytes, None] = {}
                for line in path.read_bytes().split(b"\n"):
                    with suppress(lines.LineError):
                        if not lines.read(line, name)[1]:
                            line = lines.seal(line)
                            count += 1
                    if line.strip():
                        kept[line] = None
                paths.replace_file(path, b"\n".join([*kept, b""]))
        self.refresh()
        return count

    def check(self) -> list[Fault]:
        """Return all that is wrong with the store.

        Next to `faults` and `unsealed` these are records whose key is not that of their run, or whose environment is
        described nowhere.
        """
        faults = [*self.faults, *self.unsealed]
        for (_, file, number), record in (*self._done.values(), *self._failed.values()):
            if not lines.fits(record):
                faults.append(Fault(file, number, "has a key that is not its run's"))
            if record.get("environment") not in self.environments:
                faults.append(Fault(file, number, f"has an environment that {ENVIRONMENTS} does not describe"))
        return sorted(faults)

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        with told(self.folder / name):
            paths.make_folder(self.folder)
            with FileLock(self.folder / LOCK, timeout=LOCK_SECONDS, poll_interval=0.01):
                yield


@contextmanager
def told(path: Path, what: str = "written") -> Iterator[None]:
    """Raise a `StoreError` that says why a file cannot be written or read, for an error of the system or a lock."""
    try:
        yield
    except Timeout as error:
        raise StoreError(
            f"{str(path)!r} cannot be written: another process has held {LOCK} for {LOCK_SECONDS:.0f} s."
        ) from error
    except StoreError:
        raise
    except OSError as error:
        place = error.filename or path if what == "read" else path
        raise StoreError(f"{str(place)!r} cannot be {what}: {_reason(error)}.") from error


def _append_lines(path: Path, written: bytes) -> None:
    """Write at the end and sync, a new file's folder too; on an error cut the file back to what it was."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        if size and os.lseek(descriptor, size - 1, os.SEEK_SET) >= 0 and os.read(descriptor, 1) != b"\n":
            written = b"\n" + written  # a torn line before: start on a fresh one
        try:
            rest = memoryview(written)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
            if not size:
                paths.sync(path.parent)
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


def file_name(file: str) -> str:
    """Return the name in the folder of a file that is named for a notebook.

    Raises:
        ArgumentError: it is no string, or has other characters than names of notebooks have.
    """
    require(isinstance(file, str), "file", "the notebook's name, a string", file)
    name = file.replace("/", "-").removesuffix(".jsonl") + ".jsonl"
    plain = re.fullmatch(r"\w[\w.~-]*", name) is not None and name != ENVIRONMENTS
    require(plain, "file", f"a name of letters, digits, '.', '~', '_' and '-', not {ENVIRONMENTS}", file)
    return name


@cache
def _opened(folder: Path) -> Store:
    return Store(folder)


def opened() -> Store:
    """Return the store of `paths.store()`. It is read once a process; each call reads what is new."""
    store = _opened(paths.store())
    store.refresh()
    return store
