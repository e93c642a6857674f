"""Register what can be run: the published methods, and the checks, attacks and benchmarks.

`registry.toml` lists what the package has. An entry is imported only when it is used, so that listing methods
and computing the key of a run need no torch. Raise `version` when a change alters results. The keys of the runs change
with it, and results under the old keys are never served for the new ones.
"""

from __future__ import annotations

import fnmatch
import importlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrepro.errors import is_whole, one_of, require

TASKS = ("train", "check", "attack", "partition", "traffic", "bench")


@dataclass(frozen=True)
class Entry:
    """The home of a registered class or function and the version of its results.

    Args:
        target: `"package.module:Name"`.
        version: raised when a change alters results.
        on_device: whether the function is also given the device. All others but training compute on the CPU.
        options: the options of a function that reads a run's options itself: each name with what is taken where a run
            does not give it, or with a type where a run must give it. None leaves them unchecked.
        trains: the method whose options a run may have, too, since the function trains it; `"of"` if the option of
            this name says which.
        fixed: options that a method takes from its base class or its model, and that it would ignore or follow in part.
            A run may give them their usual value only.
    """

    target: str
    version: int = 1
    on_device: bool = False
    options: Mapping[str, Any] | None = field(default_factory=dict)
    trains: str = ""
    fixed: tuple[str, ...] = ()


TYPES = {"int": int, "float": float, "str": str}


def _entry(given: str | dict[str, Any]) -> Entry:
    """Return the entry that a line of `registry.toml` describes: only its target, or a table."""
    if isinstance(given, str):
        return Entry(given)
    needed = {name: TYPES[kind] for name, kind in given.get("needs", {}).items()}
    usual = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.get("options", {}).items()
    }
    rest = {name: value for name, value in given.items() if name not in ("needs", "fixed")}
    return Entry(**rest | {"options": needed | usual, "fixed": tuple(given.get("fixed", ()))})


FILE = Path(__file__).with_suffix(".toml")
_LISTED = tomllib.loads(FILE.read_text(encoding="utf-8"))
# The names of `fedrepro.data.partition.PARTITIONS`, which needs torch.
PARTITIONS = tuple(_LISTED["partitions"])
# The functions that generate graphs, by a pattern of the graphs' names.
GENERATORS: dict[str, str] = _LISTED["generators"]
# The function that trains a run with any method.
TRAIN = "fedrepro.runs.tasks:train"
REGISTRY = {(task, name): _entry(given) for task in TASKS for name, given in _LISTED.get(task, {}).items()}
_BUILT_IN = frozenset(REGISTRY)
_own: dict[tuple[str, str], Any] = {}


def register(task: str, name: str, target: Any, version: int = 1, options: Mapping[str, Any] | None = None) -> None:
    """Add your method (or check, attack, bench) under `name`.

    Args:
        task: one of `TASKS`.
        name: as it will be written in a `Run`; not one of this package's, whose results are stored under it.
        target: the class or function itself, or `"module:Name"` (needed where worker processes must find it).
        version: raise it when its results change.
        options: of a function that does not train, the options that it reads, as `Entry` has them; default unchecked.

    Raises:
        ArgumentError: an unknown task, a name that this package has for it, or a target, version or options that are
            none.
    """
    one_of("task", task, TASKS)
    require(isinstance(name, str) and bool(name), "name", "a string", name)
    spelled = not isinstance(target, str) or re.fullmatch(r"[\w.]+:[\w.]+", target)
    named = isinstance(target, str) or (callable(target) and hasattr(target, "__qualname__"))
    require(bool(spelled and named), "target", "a class, a function, or 'module:name'", target)
    require(is_whole(version), "version", "an integer >= 1", version)
    require(options is None or isinstance(options, Mapping), "options", "a mapping of names to values", options)
    require((task, name) not in _BUILT_IN, "name", f"one that nothing of task {task!r} in this package has", name)
    _own.pop((task, name), None)
    if isinstance(target, str):
        REGISTRY[task, name] = Entry(target, version, options=options)
        return
    REGISTRY[task, name] = Entry(f"{target.__module__}:{target.__qualname__}", version, options=options)
    _own[task, name] = target


def by_hand(task: str, name: str) -> bool:
    """Return whether a name is none of the package's own."""
    return (task, name) not in _BUILT_IN


def generator(dataset: str) -> str | None:
    """Return the `"module:function"` that makes a graph of this name, or None if the package does not generate it.

    Raises:
        ArgumentError: the name is no string.
    """
    require(isinstance(dataset, str), "data set", "a string", dataset)
    return next((target for pattern, target in GENERATORS.items() if fnmatch.fnmatchcase(dataset, pattern)), None)


def names(task: str) -> list[str]:
    """Return the names registered for a task, sorted."""
    return sorted(name for kind, name in REGISTRY if kind == task)


def find(task: str, name: str) -> Entry:
    """Return the entry of a task and name.

    Raises:
        ArgumentError: nothing of this name is registered; the message lists the names.
    """
    if (task, name) not in REGISTRY:
        one_of("method" if task == "train" else f"method of task {task!r}", name, names(task))
    return REGISTRY[task, name]


def trained(task: str, name: str, options: Mapping[str, Any]) -> str:
    """Return the method that a function trains in a run with some options; nothing where it trains none."""
    entry = REGISTRY.get((task, name))
    if entry is None or entry.trains != "of":
        return entry.trains if entry else ""
    return str(options.get("of", (entry.options or {}).get("of", "")))


def load(task: str, name: str) -> Any:
    """Import and return the class (task `train`) or function of a name."""
    entry = find(task, name)
    if (task, name) in _own:
        return _own[task, name]
    module, _, attribute = entry.target.partition(":")
    return getattr(importlib.import_module(module), attribute)
