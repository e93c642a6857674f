"""Merge the results of another store, such as one that a second machine or worktree has filled."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from fedrepro.errors import ArgumentError, require
from fedrepro.runs.run import Run
from fedrepro.runs.store import Record, Store
from fedrepro.runs.verification import is_finding


class Merged(NamedTuple):
    """How many records were added, how many were here already, and the keys of those that were refused."""

    added: int
    present: int
    refused: list[str]


def merge(folder: Path | str, store: Store) -> Merged:
    """Append the finished records of another store that this one lacks, by key, to the files of the same names.

    A record is refused if its key is not that of its run and version. Such a record was edited or damaged.

    Raises:
        ArgumentError: `folder` is not a folder with results.
        StoreError: a file cannot be read or written.
    """
    other = Store(folder)
    require(len(other) > 0, "folder", "a folder that holds finished results", str(folder))
    store.refresh()
    fresh: defaultdict[str, list[Record]] = defaultdict(list)
    refused, present = [], 0
    for record in other:
        key = str(record["key"])
        if not has_its_key(record):
            refused.append(key)
        elif key in store:
            present += 1
        else:
            environment = other.environments.get(str(record["environment"]), record["environment"])
            fresh[other.file(key)].append(record | {"environment": environment})
    for file, records in sorted(fresh.items()):
        store.append(file, *records)
    return Merged(sum(map(len, fresh.values())), present, refused)


def has_its_key(record: Record) -> bool:
    """Return whether a record's key is the hash of its run and of the version of its method at the time.

    The key of a verification's finding names the record that was recomputed, and cannot be checked this way.
    """
    if is_finding(record):
        return True
    try:
        text = Run.from_dict(record["run"]).text
    except ArgumentError:
        return False
    version = record["version"]
    return str(record["key"]) == hashlib.sha256(f"{text}\nversion {version}".encode()).hexdigest()
