"""Tell whether a notebook would give again what its executed copy holds, so that it need not be run.

Each executed copy has a stamp next to it. The stamp lists:

    - the hash of the notebook's source
    - the notebook's parameters
    - the versions of the packages that it ran under
    - the graphs that were on the machine, and the folders of data, store and figures
    - the files that the notebook read and wrote, from the trace of its kernel (`trace`)
    - the runs that the notebook asked for, from the same trace

A file counts by its content. A run counts by the checksum of its record and by the fingerprint of the code behind it.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache as once
from pathlib import Path
from typing import Any

from fedrepro import paths
from fedrepro.runs import codehash, derived, lines, provenance
from fedrepro.runs.index import Index, opened

# Tables that several notebooks of a paper write together, each its own rows.
SHARED = ("claims.csv", "checks.csv", "deviations.csv")
# Files that only start notebooks or print do not change what is in the copies.
STARTS = ("cli.py", "__main__.py", *(f"reporting/{name}.py" for name in ("kernel", "notebook", "stamps", "trace")))


def path(output: Path) -> Path:
    """Return where the stamp of an executed copy is."""
    return output.with_suffix(".stamp.json")


def write(output: Path, source: Path, values: Mapping[str, Any], traced: Path) -> None:
    """Write the stamp of a copy that was just executed; leave none if its trace is missing."""
    path(output).unlink(missing_ok=True)
    with suppress(OSError, ValueError):
        told = json.loads(traced.read_text(encoding="utf-8"))
        written = {file for file in told["written"] if Path(file).name not in SHARED}
        left_out = {str(codehash.root() / name) for name in STARTS} | {*told["written"]}
        stamp = {
            "inputs": _inputs(source, values),
            "read": {file: _hash(file) for file in told["read"] if file not in left_out},
            "written": {file: _hash(file) for file in written},
            "shared": sorted({*told["written"]} - written),
            "asked": told["asked"],
            "executed": told["executed"],
            "runs": _runs(opened(), told["asked"]),
        }
        paths.replace_file(path(output), json.dumps(stamp).encode())


def unchanged(output: Path, source: Path, values: Mapping[str, Any], store: Index) -> bool:
    """Return whether the executed copy of a notebook is what a run would give again."""
    _hash.cache_clear()
    try:
        stamp = json.loads(path(output).read_text(encoding="utf-8"))
        files = {**stamp["read"], **stamp["written"]}
        return (
            output.is_file()
            and output.with_suffix(".html").is_file()
            and stamp["inputs"] == _inputs(source, values)
            and all(map(os.path.isfile, stamp["shared"]))
            and not any(store.failure(key) for key in stamp["executed"])
            and all(_hash(each) == known for each, known in files.items())
            and stamp["runs"] == _runs(store, stamp["asked"])
        )
    except (OSError, ValueError, KeyError):
        return False


def counts(output: Path, store: Index) -> tuple[int, int]:
    """Return how many of the runs that a notebook wants the store has, and how many it wants."""
    with suppress(OSError, ValueError, KeyError):
        keys = json.loads(path(output).read_text(encoding="utf-8"))["executed"]
        return sum(key in store for key in keys), len(keys)
    return 0, 0


def _inputs(source: Path, values: Mapping[str, Any]) -> str:
    """Return the hash of a notebook, its parameters, the versions, the folders, and which graphs are here.

    A parameter that names a file counts by the file's content too.
    """
    here = provenance.environment("") | {"threads": 1}  # a kernel has one, whatever this process has
    places = {name: os.environ.get(name, "") for name in ("FEDREPRO_STORE", "FEDREPRO_FIGURES", "FEDREPRO_DATA")}
    files = [_hash(value) for value in values.values() if isinstance(value, str) and os.path.isfile(value)]
    told = [sorted(values.items()), files, here, places, _graphs()]
    return hashlib.sha256(source.read_bytes() + lines.canonical(told).encode()).hexdigest()


def _graphs() -> list[str]:
    from fedrepro.data import sources

    return [name for name, source in sources.SOURCES.items() if sources.locate(source) is not None]


@once
def _hash(file: str) -> str:
    """Return the hash of a file's content, or nothing where there is none."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""


def _runs(store: Index, keys: Iterable[str]) -> str:
    """Return a hash of what the store has of some runs, of the code behind them, and of what verifications found."""
    sums, cells = [], set()
    for key in keys:
        record = store.get(key) or store.failure(key)
        sums.append((key, record["sum"] if record else 0))
        if record:
            cells.add(lines.cell_of(record))
    verified = {cell[:3] for cell in cells}
    told = [finding["sum"] for finding in derived.findings(store) if tuple(finding["result"]["cell"]) in verified]
    codes = [provenance.current(*cell) for cell in sorted(cells)]
    return f"{zlib.crc32(repr((sorted(sums), sorted(told), codes)).encode()):08x}"
