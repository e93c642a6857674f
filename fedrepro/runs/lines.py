"""Write records as lines of JSON that end in a checksum, and read them back.

    {"key":"ee8f7094...","run":{...},"status":"ok",...,"chunk":null,"sum":"5d0b1c9e"}

The last field is the CRC-32 of all bytes before it. It tells every change of one or two bits, and every change within
four bytes, wherever it is in the line. Any other damage goes unnoticed once in 4 billion times.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from fedrepro import registry
from fedrepro.errors import ArgumentError

Record = dict[str, Any]
Cell = tuple[str, str, str, str]  # task, method, data set, and the method that a function of another task trains

ENVIRONMENTS = "environments.jsonl"

RUN = ("task", "paper", "method", "dataset", "prepare", "split", "partition", "clients", "seed")
_RUN = frozenset(RUN)
_FIELDS = {"key", "run", "version", "status", "error", "result", "series", "fingerprint", "environment"}
_FIELDS |= {"code", "commit", "data"}
_FIELDS |= {"when", "merged", "seconds", "batch", "chunk"}
_MARK, _END = b',"sum":"', b'"}'
_LENGTH = len(_MARK) + 8 + len(_END)


class Fault(NamedTuple):
    """A fault in the store: file, number of the line (0 for the whole entry), and what is wrong there."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file} line {self.line} {self.what}" if self.line else f"{self.file} {self.what}"


class LineError(ValueError):
    """A line that is no record; the message says why, as "has a wrong checksum"."""


def write(record: Mapping[str, Any], file: str) -> bytes:
    """Return a record as a line, with its checksum and line feed.

    Raises:
        ArgumentError: it is no JSON, or `read` would not take it.
    """
    try:
        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        line = seal(text.encode(errors="backslashreplace"))
        read(line, file)
    except LineError as error:
        raise ArgumentError(f"record must be one that can be read back. Got one that {error}.") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"record must be made of JSON values. Got one that is not: {error}.") from error
    return line + b"\n"


def seal(line: bytes) -> bytes:
    """Return a line of JSON with its checksum as the last field."""
    body = line.strip()[:-1]
    return body + _MARK + b"%08x" % zlib.crc32(body) + _END


def read(line: bytes, file: str) -> tuple[Record, bool]:
    """Return the record of a line without its checksum, and whether it has one.

    A line without a checksum, as older stores have them, must have the fields of a record and no others, and the key of
    its run: a damaged name of the field `sum` is told by that.

    Raises:
        LineError: the line is no record, or damaged.
    """
    line = line.removesuffix(b"\r")
    sealed = _sealed(line)
    if sealed and not intact(line):
        raise LineError("has a wrong checksum")
    if sealed:
        line = line[:-_LENGTH] + b"}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise LineError("is torn, or no JSON") from None
    described = file == ENVIRONMENTS
    if not isinstance(record, dict) or not (_described(record) if described else _complete(record)):
        raise LineError("lacks key, status, run or result, or an environment its hash")
    if not (sealed or record.keys() <= ({"hash", "environment"} if described else _FIELDS)):
        raise LineError("has a field that no record has")
    if not (sealed or described or fits(record)):
        raise LineError("has a key that is not its run's")
    return record, sealed


def _sealed(line: bytes) -> bool:
    return line[-_LENGTH:].startswith(_MARK) and line.endswith(_END)


def intact(line: bytes) -> bool:
    """Return whether a line has a checksum, and the right one."""
    return _sealed(line) and b"%08x" % zlib.crc32(line[:-_LENGTH]) == line[-10:-2]


def _complete(record: Record) -> bool:
    run = record.get("run")
    named = isinstance(record.get("key"), str) and isinstance(record.get("status"), str)
    return named and isinstance(record.get("result"), dict) and isinstance(run, dict) and run.keys() >= _RUN


def _described(record: Record) -> bool:
    given = record.get("environment")
    return isinstance(given, dict) and record.get("hash") == hash_of(given)


def canonical(value: Any) -> str:
    """Return a value as JSON, the same text for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def hash_of(environment: Mapping[str, Any]) -> str:
    """Return the name by which records refer to an environment."""
    return hashlib.sha256(canonical(environment).encode(errors="replace")).hexdigest()[:16]


def cell_of(record: Record) -> Cell:
    """Return task, method and data set of a record, and the method that a function of another task trains."""
    run = record["run"]
    trained = registry.trained(run["task"], run["method"], run.get("options", {}))
    return run["task"], run["method"], run["dataset"], trained


REFERENCE = "reference"  # the field `paper` of a reference run, so that it is the run of no exhibit


def is_finding(record: Record) -> bool:
    """Return whether a record is what a verification found, and not a result."""
    return (record["run"]["task"], record["run"]["method"]) == ("check", "verify")


def fits(record: Record) -> bool:
    """Return whether the key of a record is the hash of its run and of the version of its method at the time.

    The key of a verification's finding names the record that was recomputed, and cannot be checked this way.
    """
    text = f"{canonical(record['run'])}\nversion {record.get('version')}"
    return is_finding(record) or record["key"] == hashlib.sha256(text.encode(errors="replace")).hexdigest()


def flat(result: Record, before: str = "") -> Record:
    """Return the values of nested dictionaries, with their names joined by dots."""
    flattened: Record = {}
    for name, value in result.items():
        if isinstance(value, dict):
            flattened |= flat(value, f"{before}{name}.")
        else:
            flattened[before + name] = value
    return flattened


def hashable(value: Any) -> Any:
    """Return a value of JSON with its lists as tuples."""
    return tuple(hashable(entry) for entry in value) if isinstance(value, list) else value
