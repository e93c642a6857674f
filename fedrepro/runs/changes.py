"""Say why stored results are stale: which code has changed since they were computed.

A record holds one hash of all code that its run reached. In a checkout of git the commit is looked for at which this
code had that hash, and its definitions are compared with those of today. Newer records name their commit, and hold a
short hash of each folder of the package, by which the folders that differ can be named without git.
"""

from __future__ import annotations

import ast
import io
import re
import tarfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import NamedTuple

from fedrepro import paths, registry
from fedrepro.errors import ArgumentError
from fedrepro.runs import cache as kept
from fedrepro.runs import codehash, provenance
from fedrepro.runs.lines import Cell, Record, cell_of

LATER = 2  # commits after a run at which its code is looked for too
NAMED = 8  # definitions that are named; more are counted by their folders


class Commit(NamedTuple):
    """A commit, and its date as ISO 8601."""

    name: str
    date: str


@dataclass(frozen=True)
class Definition:
    """A top-level statement: where it stands, its hash, and the hash of each function if it is a class."""

    module: str
    name: str
    digest: str
    members: Mapping[str, str]


def reasons(records: Iterable[Record]) -> list[str]:
    """Return in sentences why stale records are stale, one sentence for all that have the same reason."""
    told: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        told[reason(record)].append(record)
    return [f"{_counted(alike)}: {why}" for why, alike in told.items()]


def reason(record: Record) -> str:
    """Return in a sentence which code has changed since a stale record was computed, or why this cannot be told."""
    task, method, dataset, trained = cell_of(record)
    dataset = dataset if registry.generator(dataset) else ""  # the code of other graphs is not hashed
    cell = (task, method, dataset, trained)
    try:
        commits = candidates(cell, record["when"], record.get("commit") or "")
        code = tuple(sorted((record.get("code") or {}).items()))
        return _reason(cell, record["fingerprint"], code, commits)
    except ArgumentError:
        return f"the method {method!r} is defined in a notebook or no longer registered, so its code is not known here."


@cache
def _reason(cell: Cell, fingerprint: str, code: tuple[tuple[str, str], ...], commits: tuple[Commit, ...]) -> str:
    at = next((commit for commit in commits if _known_fingerprint(commit.name, cell) == fingerprint), None)
    if at is not None:
        changed = differences(_at(at.name, cell), _definitions(cell))
        called = f"{at.name[:12]} of {at.date[:10]}"
        return f"since commit {called} {changed or 'what a name refers to has changed'}."
    before, now = dict(code), provenance.parts(*cell)
    differ = [part for part in sorted({*before, *now}) if before.get(part) != now.get(part)]
    said = f"the code in {', '.join(differ)} has changed" if code and differ else "the code has changed"
    if not commits:
        return f"{said}; which definitions cannot be told, since git does not know the commit of these runs."
    changed = differences(_at(commits[0].name, cell), _definitions(cell))
    return (
        f"{said}. No commit was found with exactly the code of these runs. Since the one of their time, of"
        f" {commits[0].date[:10]}, {changed or 'nothing has changed, so that they ran code that was never committed'}."
    )


def candidates(cell: Cell, when: str, commit: str = "") -> tuple[Commit, ...]:
    """Return the commits at which the code of a record is looked for, the likeliest first.

    That is the commit that the record names. For a record that names none it is the last one before it was computed
    that touched a file which its method reaches, and the next `LATER` ones: code may be committed after it has run.
    """
    if commit:
        return _log("-1", commit.removesuffix("-dirty"), "--")
    history, at = _history(cell), datetime.fromisoformat(when)
    first = next((k for k, each in enumerate(history) if datetime.fromisoformat(each.date) <= at), len(history) - 1)
    return history[max(0, first - LATER) : first + 1][::-1]


def _known_fingerprint(commit: str, cell: Cell) -> str:
    """Return the fingerprint of a cell at a commit, which is computed once."""
    known: dict[str, str] = kept.load("commits", "fingerprints") or {}
    name = f"{commit} {' '.join(cell)}"
    if name not in known:
        known[name] = _fingerprint_at(commit, cell)
        kept.save("commits", "fingerprints", known)
    return known[name]


def differences(old: Iterable[Definition], new: Iterable[Definition]) -> str:
    """Return the definitions that have changed, are new or are gone, by their files; one that only moved is none."""
    before, after = list(old), list(new)
    same = {unit.digest for unit in before} & {unit.digest for unit in after}
    was = [unit for unit in before if unit.digest not in same]
    changes: dict[str, list[tuple[str, str]]] = defaultdict(list)
    stayed = {(unit.module, unit.name) for unit in was}  # come first, so that no namesake that moved takes their place
    changed = [unit for unit in after if unit.digest not in same]
    for unit in sorted(changed, key=lambda unit: (unit.module, unit.name) not in stayed):
        namesakes = [former for former in was if former.name == unit.name]
        if not namesakes:
            changes["new"].append((unit.module, unit.name))
            continue
        former = next((one for one in namesakes if one.module == unit.module), namesakes[0])
        was.remove(former)
        members = [m for m in {**former.members, **unit.members} if former.members.get(m) != unit.members.get(m)]
        names = [f"{unit.name}.{member}" for member in members] or [unit.name]
        changes["changed"] += [(unit.module, name) for name in names]
    changes["gone"] = [(unit.module, unit.name) for unit in was]
    if sum(map(len, changes.values())) > NAMED:
        folders = Counter(provenance.part_of(module) for places in changes.values() for module, _ in places)
        listed = [f"{folder} ({number})" for folder, number in folders.most_common()]
        return f"{folders.total()} definitions have changed: in {', '.join(listed)}"
    listed = []
    for what, (one, several) in _VERBS.items():
        names = [f"{name} ({module.removeprefix('fedrepro.').replace('.', '/')}.py)" for module, name in changes[what]]
        if names:
            listed.append(f"{', '.join(names)} {several if len(names) > 1 else one}")
    return "; ".join(listed)


_VERBS = {"changed": ("has changed", "have changed"), "new": ("is new", "are new"), "gone": ("is gone", "are gone")}


def _counted(records: list[Record]) -> str:
    methods = dict.fromkeys(record["run"]["method"] for record in records)
    graphs = dict.fromkeys(record["run"]["dataset"] for record in records if record["run"]["dataset"])
    runs = "1 run" if len(records) == 1 else f"{len(records)} runs"
    on = f" on {', '.join(graphs)}" if graphs else ""
    return f"{runs} of {', '.join(methods)}{on}"


@cache
def _history(cell: Cell) -> tuple[Commit, ...]:
    """Return the commits that touched a file which a method reaches, the newest first; none without git."""
    modules = {each.module.replace(".", "/") for each in _definitions(cell)}
    files = [file for module in sorted(modules) for file in (f"{module}.py", f"{module}/__init__.py")]
    return _log("--", *files, "fedrepro/registry.py", "fedrepro/registry.toml")


def _log(*arguments: str) -> tuple[Commit, ...]:
    """Return the commits that `git log` lists; none without a checkout."""
    printed = provenance.git("log", "--format=%H %cI", *arguments) if paths.CHECKOUT else b""
    return tuple(Commit(*line.split(" ")) for line in printed.decode().splitlines())


@cache
def _sources(commit: str) -> dict[str, str]:
    """Return the Python files of the package at a commit, and its registry, by their paths below the package."""
    archive = provenance.git("archive", "--format=tar", commit, "fedrepro")
    if not archive:
        return {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        read = {one.name: files.extractfile(one) for one in files if one.name.endswith((".py", "/registry.toml"))}
        return {name.removeprefix("fedrepro/"): file.read().decode() for name, file in read.items() if file}


def _targets_at(files: Mapping[str, str], cell: Cell) -> list[str]:
    """Return where the code behind a method began, by the registry of a former commit."""
    task, method, dataset, trained = cell
    target = _target_at(files, task, method)
    if not target:
        return []
    starts = [registry.TRAIN] if task == "train" else []
    starts += [generator] if (generator := registry.generator(dataset)) else []
    return [*starts, target, *filter(None, [_target_at(files, "train", trained)])]


def _target_at(files: Mapping[str, str], task: str, method: str) -> str:
    entry = tomllib.loads(files.get("registry.toml", "")).get(task, {}).get(method)
    target = entry["target"] if isinstance(entry, dict) else entry
    # Earlier the registry was a table in Python.
    named = rf'\("{re.escape(task)}", "{re.escape(method)}"\):\s*Entry\(\s*"([^"]+)"'
    found = re.search(named, files.get("registry.py", ""))
    return str(target or (found[1] if found else ""))


def _fingerprint_at(commit: str, cell: Cell) -> str:
    files = _sources(commit)
    with codehash.reading(files), suppress(SyntaxError):
        starts = provenance.definitions(_targets_at(files, cell))
        return codehash.hash_of(starts, provenance.ASIDE) if starts else ""
    return ""


def _at(commit: str, cell: Cell) -> list[Definition]:
    files = _sources(commit)
    with codehash.reading(files):
        return _described(_targets_at(files, cell))


@cache
def _definitions(cell: Cell) -> list[Definition]:
    return _described(provenance.starts(*cell)[0])


def _described(targets: Iterable[str]) -> list[Definition]:
    hashed = codehash.hashes(provenance.definitions(targets), provenance.ASIDE)
    return [
        Definition(
            statement.module.name,
            ", ".join(statement.names) or ast.unparse(statement.node).partition("\n")[0][:60],
            digest,
            _members(statement.node),
        )
        for statement, digest in hashed.items()
    ]


def _members(node: ast.stmt) -> dict[str, str]:
    """Return the code of each function of a class without its docstring; nothing for another statement."""
    code = {}
    for function in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(function, ast.FunctionDef):
            body = function.body[1:] if ast.get_docstring(function) is not None else function.body
            code[function.name] = "\n".join(map(ast.unparse, [function.args, *function.decorator_list, *body]))
    return code
