"""Merge the results of another store, such as one that a second machine or worktree has filled."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from fedrepro.errors import require
from fedrepro.runs import lines, provenance, records, verification
from fedrepro.runs.lines import Fault, Record
from fedrepro.runs.store import Store


class Merged(NamedTuple):
    """How many records were added, how many were here already, and what was refused."""

    added: int
    present: int
    refused: list[Fault]


def merge(folder: Path | str, store: Store) -> Merged:
    """Append the finished records of another store that this one lacks, by key, to the files of the same names.

    A record that is stale here is replaced by one of the code as it is now, whatever the clocks of the machines say:
    the new one comes into the file of the old, and has the time at which it was merged. Lines that are torn or damaged
    there are refused, and so is a record whose key is not that of its run and version.

    Args:
        folder: of the other store, or one in which `results` is that folder, such as `build/fresh`.
        store: to which records are added.

    Raises:
        ArgumentError: `folder` is not a folder with results.
        StoreError: a file cannot be read or written.
    """
    other = Store(folder)
    if not len(other) and (Path(folder) / "results").is_dir():
        other = Store(Path(folder) / "results")
    require(len(other) > 0, "folder", "a folder that holds finished results", str(folder))
    store.refresh()
    fresh: defaultdict[str, list[Record]] = defaultdict(list)
    old = {record["key"] for record in verification.stale(store)}
    refused, present = other.faults, 0
    for record in other:
        key = str(record["key"])
        if not lines.fits(record):
            refused.append(Fault(other.file(key), 0, f"holds a key that is not its run's: {key}"))
        elif key in store and not (key in old and record["fingerprint"] == provenance.current(*lines.cell_of(record))):
            present += 1
        else:
            environment = other.environments.get(str(record.get("environment")))
            before = store.age(key)
            merged = {"merged": max(records.now(), before[0])} if before else {}
            fresh[before[1] if before else other.file(key)].append(
                record | merged | ({"environment": environment} if environment else {})
            )
    for file, added in sorted(fresh.items()):
        store.append(file, *added)
    return Merged(sum(map(len, fresh.values())), present, refused)
