"""Keep in `build/cache` what was worked out from files, until one of these files changes.

A file counts as unchanged while its inode, its size and its time are. One written in the last two seconds could change
once more within a tick of the clock, and nothing is kept of it. Nothing here is needed: the folder may be removed, or
read-only, at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from fedrepro import paths
from fedrepro.runs import codehash

T = TypeVar("T")
JUST_NOW = 2.0  # seconds
READ = (".py", ".csv", ".json", ".toml")


def state(files: Iterable[Path | str]) -> str:
    """Return a hash of which files there are, and of their inodes, sizes and times; empty if one was just written."""
    known, newest = [], 0.0
    for file in files:
        try:
            stat = os.stat(file)
        except OSError:
            known.append((str(file), 0, 0, 0))
            continue
        known.append((str(file), stat.st_ino, stat.st_size, stat.st_mtime_ns))
        newest = max(newest, stat.st_mtime)
    fresh = newest > time.time() - JUST_NOW
    return "" if fresh else hashlib.sha256(repr(known).encode()).hexdigest()


def content(files: Iterable[str]) -> str:
    """Return a hash of files and what is in them."""
    known = hashlib.sha256()
    for file in files:
        known.update(file.encode() + b"\0" + Path(file).read_bytes())
    return known.hexdigest()


def package() -> str:
    """Return the state of all files of this package that its results, grids and tables come from."""
    return state(below(codehash.root(), READ))


def below(folder: Path, kinds: tuple[str, ...]) -> list[str]:
    """Return the files below a folder whose names end in one of `kinds`, sorted."""
    walked = os.walk(folder)
    return sorted(os.path.join(place, name) for place, _, names in walked for name in names if name.endswith(kinds))


def load(name: str, of: str) -> Any:
    """Return what `save` kept under a name for the state `of`, or None."""
    with suppress(OSError, ValueError):
        kept = json.loads((paths.cache() / f"{name}.json").read_bytes())
        if of and kept["of"] == of:
            return kept["value"]
    return None


def save(name: str, of: str, value: Any) -> None:
    """Keep a value of JSON for a state, if that is known and the folder can be written."""
    if of:
        with suppress(OSError):
            content = json.dumps({"of": of, "value": value}, separators=(",", ":"))
            paths.replace_file(paths.cache() / f"{name}.json", content.encode())


def kept(name: str, of: str, compute: Callable[[], T]) -> T:
    """Return what is kept under a name for a state; else compute it and keep it."""
    known: T | None = load(name, of)
    if known is None:
        known = compute()
        save(name, of, known)
    return known
