"""Say what a method, a check, an attack, a benchmark or a partition is, and which options it takes."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import compress
from typing import Any, NamedTuple

from fedrepro import registry
from fedrepro.errors import ArgumentError
from fedrepro.reporting import terminal

# The options of training itself, which `fedrepro.runs.tasks.method` reads.
LOOP = {
    "rounds": (100, "rounds of training."),
    "series": (False, "True to keep validation and test scores of every round, or names of the scores to keep."),
    "keep": ("", '"predictions" to keep the predicted class of every node.'),
}


class Option(NamedTuple):
    """An option of a run, its default, and its meaning; `of` names the methods, models or whatever reads it."""

    of: str
    option: str
    default: str
    meaning: str


def show(name: str) -> None:
    """Print what is registered under a name, its summary and its options."""
    if name in registry.PARTITIONS:
        from fedrepro.data.partition import PARTITIONS

        options = arguments(name)
        call = f"{name}({', '.join(f'{each.option}=...' for each in options)})" if options else name
        print(f"{name}: a partition, written {call!r} in a run")
        print(terminal.shown(_text(PARTITIONS[name])))
        _print(options)
    for task in [task for task in registry.TASKS if name in registry.names(task)]:
        entry = registry.find(task, name)
        print(f"{name}: task {task!r}, version {entry.version}, {entry.target}")
        print(terminal.shown(_summary(registry.load(task, name))))
        _print(own(task, name))
        _print(sizes(name) if task == "train" else [])
        if entry.trains:
            trained = "the method that the option 'of' names" if entry.trains == "of" else entry.trains
            print(f"\nA run may have the options of {trained} besides.")


def _print(options: Sequence[Option]) -> None:
    """Print options as a table, without a column that says nothing."""
    if options:
        shown = (len({one.of for one in options}) > 1, True, True, any(one.meaning for one in options))
        heads, *rows = ([*compress(row, shown)] for row in (Option._fields, *options))
        print()
        terminal.table(heads, rows, (), ("option",))


def arguments(partition: str) -> list[Option]:
    """Return the arguments of a partition besides the graph, the number of clients and the seed."""
    from fedrepro.data.partition import PARTITIONS

    home = PARTITIONS[partition]
    told = _arguments(inspect.cleandoc(home.__doc__ or ""))
    rows = []
    for each in list(inspect.signature(home).parameters.values())[3:]:
        usual = f"none, of type {each.annotation}" if each.default is each.empty else repr(each.default)
        rows.append(Option(partition, each.name, usual, told.get(each.name, "")))
    return rows


def own(task: str, name: str) -> list[Option]:
    """Return the options that a method, check, attack or benchmark uses, those of its model left out.

    Raises:
        ArgumentError: nothing is registered under this name.
    """
    entry = registry.find(task, name)
    if task == "train":
        names = models(name)
        usual = repr("GCN") if "GCN" in names else "none"
        told = [("model", usual, f"the network of a client: {', '.join(map(repr, names))}.")]
        told += [row for row in _fields(registry.load(task, name)) if row[0] not in ("model", *entry.fixed)]
        told += [(option, repr(default), meaning) for option, (default, meaning) in LOOP.items()]
        return [Option(name, *row) for row in told]
    given = (entry.options or {}).items()
    needed = {option: f"none, of type {usual.__name__}" for option, usual in given if isinstance(usual, type)}
    return [Option(name, option, needed.get(option, repr(usual)), "") for option, usual in given]


def models(method: str) -> list[str]:
    """Return the names of the models that a method trains, where all else is as usual."""
    from fedrepro.engine.nn.models import MODELS
    from fedrepro.runs import tasks
    from fedrepro.runs.run import Run

    names = []
    for name in MODELS:
        with contextlib.suppress(ArgumentError):
            run = Run(task="train", paper="", method=method, dataset="Cora", options={"model": name})
            tasks.check(run)
            names.append(name)
    return names


def sizes(method: str) -> list[Option]:
    """Return the options of the models that a method trains; those with one default and meaning are one row."""
    from fedrepro.engine.nn.models import MODELS

    rows: dict[tuple[str, str, str], list[str]] = {}
    fixed = registry.find("train", method).fixed
    for label in models(method):
        for row in _fields(MODELS[label]):
            if row[0] not in ("features", "classes", *fixed):
                rows.setdefault(row, []).append(label)
    return [Option(", ".join(labels), *row) for row, labels in rows.items()]


def _fields(kind: Any) -> Iterator[tuple[str, str, str]]:
    """Yield name, default and meaning of each field of a dataclass, in the order of its arguments.

    A function that chooses a class by the options of a run is described by the classes that its module knows.
    """
    known = vars(sys.modules[type(kind).__module__]).values()
    choices = [one for one in known if isinstance(one, type) and is_dataclass(one)]
    told: dict[str, str] = {}
    for base in [base for one in ([kind] if isinstance(kind, type) else choices) for base in reversed(one.__mro__)]:
        told |= _arguments(inspect.cleandoc(base.__doc__ or ""))
    for field in fields(kind):
        yield field.name, repr(field.default), told.get(field.name, "")


def _arguments(text: str) -> dict[str, str]:
    """Return the meanings in the section `Args` of a docstring, by name."""
    section = re.search(r"^Args:\n((?:[ ].*\n?|\n)+)", text, re.MULTILINE)
    entries = re.findall(r"^ {4}([\w, ]+): (.*(?:\n {5,}.*)*)", section[1] if section else "", re.MULTILINE)
    told: dict[str, str] = {}
    for names, meaning in entries:
        told |= dict.fromkeys(names.split(", "), " ".join(meaning.split()))
    return told


def _summary(home: Any) -> str:
    """Return the first paragraph of what is written about a class or function."""
    return " ".join(_text(home).split("\n\n")[0].split())


def _text(home: Any) -> str:
    """Return what is written about a class or function, without its arguments, results and errors."""
    text = inspect.cleandoc(getattr(home, "__doc__", None) or "")
    return re.split(r"\n\n(?:Args|Returns|Raises):\n", text)[0]
