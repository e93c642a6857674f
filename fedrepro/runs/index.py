"""Read the parts of a store that commands count, without the results, as an index that is kept until a file changes."""

from __future__ import annotations

import zlib
from functools import cache as once
from pathlib import Path
from typing import Any

from fedrepro import paths
from fedrepro.runs import cache, lines, process
from fedrepro.runs.lines import ENVIRONMENTS, Fault, Record
from fedrepro.runs.store import Store, _File, told

_SLIM = ("key", "status", "when", "seconds", "fingerprint", "environment")
_FORM = "files, environments, papers, models, trained"  # what is kept; another form is not read
_LATER = ("code", "commit", "merged")  # which older records lack


class Index(Store):
    """A store for reading whose records have no result, but for what verifications found.

    The run of a record has only task, paper, method, data set and, of its options, the model and the trained method
    (`of`), which `verification.stale` asks for. `sum` is the CRC-32 of its line.

    Raises:
        StoreError: a file in the folder cannot be read.
    """

    _states: dict[str, str] | None = None  # of the files, when they were read

    def refresh(self) -> None:
        """Read the files that have changed since they were indexed."""
        with process.uncollected(), told(self.folder, "read"):
            present = self._present()
            states = {file: cache.state([self.folder / file]) for file in present}
            if self._states == states and all(states.values()):
                return
            self._forget()
            self._states = states
            name = f"index-{zlib.crc32(str(self.folder.resolve()).encode()):08x}"
            before: dict[str, Any] = cache.load(name, _FORM) or {}
            now = {}
            for file, stat in present.items():
                of = states[file]
                known = before.get(file)
                entry = known if of and known and known["of"] == of else self._scanned(file, of)
                self._files[file] = place = _File(stat.st_ino)
                place.faults = [Fault(file, number, what) for number, what in entry["faults"]]
                place.unsealed = entry["unsealed"]
                self.environments |= entry["environments"]
                for number, record in entry["records"]:
                    self._keep(record, file, number)
                now[file] = entry
        if now != before:
            cache.save(name, _FORM, {file: entry for file, entry in now.items() if entry["of"]})

    def _scanned(self, file: str, of: str) -> dict[str, Any]:
        faults, unsealed, records, environments = [], [], [], {}
        for number, line in enumerate((self.folder / file).read_bytes().split(b"\n"), 1):
            if line.strip():
                try:
                    record, sealed = lines.read(line, file)
                except lines.LineError as error:
                    faults.append((number, str(error)))
                    continue
                if not sealed:
                    unsealed.append(number)
                if file == ENVIRONMENTS:
                    environments[record["hash"]] = record["environment"]
                else:
                    records.append((number, _slim(record) | {"sum": zlib.crc32(line)}))
        found = {"faults": faults, "unsealed": unsealed, "records": records, "environments": environments}
        return {"of": of, **found}


@once
def _opened(folder: Path) -> Index:
    return Index(folder)


def opened() -> Index:
    """Return the index of `paths.store()`. It is read once a process; each call reads what is new."""
    index = _opened(paths.store())
    index.refresh()
    return index


def _slim(record: Record) -> Record:
    run = {name: record["run"][name] for name in ("task", "paper", "method", "dataset")}
    given = record["run"].get("options", {})
    if options := {name: given[name] for name in ("model", "of") if name in given}:
        run["options"] = options
    result = record["result"] if lines.is_finding(record) else {}
    later = {name: record[name] for name in _LATER if name in record}
    return {name: record.get(name) for name in _SLIM} | later | {"run": run, "result": result}
