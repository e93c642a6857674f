"""Specify what to compute: a run is one frozen, hashable specification, and a sweep is a grid of runs.

    Run(task="train", paper="fedgat", method="FedAvg", dataset="Cora", split="public",
        partition="metis", clients=10, options={"hidden": 64, "lr": 0.1})
    sweep(task="train", paper="fedgat", method=["FedAvg", "FedGAT"], dataset="Cora", split="public",
          partition="metis", clients=10, seed=range(10))

A run has a key, by which the store knows it. The key depends only on what is in the run, so whatever changes a
result must be a field or an option.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import numbers
import re
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fedrepro import registry
from fedrepro.errors import ArgumentError, one_of, require

TASKS = registry.TASKS

_TEXTS = ("paper", "method", "dataset", "prepare", "split", "partition")


class Options(Mapping[str, Any]):
    """An immutable mapping, sorted by name, of what changes the result beyond the fields of a run."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._items = {name: _canonical(name, given[name]) for name in sorted(given)}

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> ItemsView[str, Any]:
        """Return the items of the mapping within; the method of the base class takes four times as long."""
        return self._items.items()

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def _canonical(name: str, value: Any) -> Any:
    """Return the one form of a value: lists as tuples, whole numbers as int, so that 1 and 1.0 give one key."""
    if value is None or type(value) in (bool, int) or isinstance(value, str):  # first what takes no abstract class
        return value
    if not isinstance(value, float) and isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, float | numbers.Real):  # float is named, since the check of an abstract class is slow
        number = float(value)
        require(math.isfinite(number), f"option {name!r}", "a finite number", value)
        return int(number) if number.is_integer() else number
    if isinstance(value, list | tuple):
        return tuple(_canonical(name, entry) for entry in value)
    raise ArgumentError(f"option {name!r} must be a string, number, boolean, None or a list of these. Got {value!r}.")


def _plain(value: Any) -> Any:
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value


def _whole(name: str, value: Any, least: int) -> int:
    if type(value) is int and value >= least:
        return value
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    whole = isinstance(value, numbers.Integral) or (number and float(value).is_integer())
    require(number and whole and value >= least, name, f"an integer >= {least}", value)
    return int(value)


@dataclass(frozen=True, eq=False)
class Run:
    """A specification of one computation. Two runs are equal if everything that identifies them is.

    Attributes:
        task: one of `TASKS`.
        paper: where its exhibit stands, such as `fedgat`.
        method: a name registered for the task.
        dataset: a name of `datasets.load`; empty where none is used.
        prepare: steps of `datasets.prepare`, joined by `+`.
        split: `public`, or percentages of training, validation and test nodes such as `10/10/80`.
        partition: a partition in call form, such as `dirichlet(beta=1)`.
        clients: number of clients.
        seed: seed of the partition, split, initialization and sampling.
        options: everything else that changes the result; strings, numbers, booleans, None, or lists of these.

    Raises:
        ArgumentError: an unknown task or method, or a value out of range.
    """

    task: str
    paper: str
    method: str
    dataset: str = ""
    prepare: str = ""
    split: str = ""
    partition: str = ""
    clients: int = 1
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __new__(cls, *values: Any, **named: Any) -> Run:
        for name in named:
            if name not in FIELDS:
                one_of("a field of Run", name, FIELDS)
        require(len(values) <= len(FIELDS), "a Run", f"made of at most {len(FIELDS)} values", values)
        for name in ("task", "paper", "method"):
            require(name in named or name in FIELDS[: len(values)], name, "given", named)
        return super().__new__(cls)

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by its values: a worker knows what was registered by hand only after it has the run.
        return object.__new__, (Run,), dict(vars(self))

    def __post_init__(self) -> None:
        one_of("task", self.task, TASKS)
        for name in _TEXTS:
            value = getattr(self, name)
            require(isinstance(value, str), name, "a string", value)
        registry.find(self.task, self.method)
        # The partition itself is read with the graph. Its one flag would be taken for true whatever else it is.
        flag = re.search(r"\bequal\s*=\s*([^,)]*)", self.partition) if "equal" in self.partition else None
        require(flag is None or flag[1].strip() in ("True", "False"), "equal", "True or False", self.partition)
        object.__setattr__(self, "clients", _whole("clients", self.clients, 1))
        object.__setattr__(self, "seed", _whole("seed", self.seed, 0))
        require(self.seed < 2**64, "seed", "below 2^64", self.seed)
        require(isinstance(self.options, Mapping), "options", "a mapping of names to values", self.options)
        for name in self.options:
            allowed = "a string, and not the name of a field of Run or of a column of results"
            require(isinstance(name, str) and name not in _TAKEN, "an option's name", allowed, name)
        rounds = self.options.get("rounds", 1)
        require(not isinstance(rounds, bool), "option 'rounds'", "an integer", rounds)
        object.__setattr__(self, "options", Options(self.options))

    @cached_property
    def text(self) -> str:
        """Return the canonical JSON of the run, from which its key is made."""
        return _encode(self.to_dict())

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Run) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def key(self) -> str:
        """Return the SHA-256 (hexadecimal) of the run and the version of its method."""
        version = registry.find(self.task, self.method).version
        return hashlib.sha256(f"{self.text}\nversion {version}".encode()).hexdigest()

    @property
    def cell(self) -> tuple[str, str, str, str]:
        """Return task, method and data set, and the method that a function of another task trains."""
        return self.task, self.method, self.dataset, registry.trained(self.task, self.method, self.options)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; `Run.from_dict` is the inverse."""
        fields = {name: getattr(self, name) for name in FIELDS if name != "options"}
        return {**fields, "options": {name: _plain(value) for name, value in self.options.items()}}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Run:
        """Return the run of `to_dict`.

        Raises:
            ArgumentError: a name is no field, a field is missing, or a value is out of range.
        """
        require(isinstance(fields, Mapping), "fields", "a mapping, as Run.to_dict returns it", fields)
        return cls(**fields)

    def replace(self, **changes: Any) -> Run:
        """Return a copy with other values in some fields."""
        return dataclasses.replace(self, **changes)


FIELDS = tuple(entry.name for entry in dataclasses.fields(Run))
_TAKEN = frozenset(FIELDS) | {"key", "status", "seconds", "when", "environment"}  # names that no option may have
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def sweep(**axes: Any) -> list[Run]:
    """Return the grid of runs over all combinations of the axes.

    A list, tuple, range or set is an axis, anything else is the same for all. Within `options` a list
    is an axis and a tuple a value. The last axis varies fastest, but `seed` slowest of all, so that
    a sweep cut short has whole seeds: 0, then 1, ...

    Raises:
        ArgumentError: a field is unknown, an axis has no values, or no run can take a value.
    """
    for name in axes:
        one_of("an axis", name, FIELDS)
    names = sorted(axes, key=lambda name: name != "seed")
    columns = [_values(name, axes[name]) for name in names]
    return [Run.from_dict(dict(zip(names, values))) for values in itertools.product(*columns)]


def _values(name: str, given: Any) -> list[Any]:
    if isinstance(given, set | frozenset):
        given = sorted(given, key=lambda value: (str(type(value)), value))
    values = list(given) if isinstance(given, list | tuple | range) else [given]
    require(bool(values), name, "a value or at least one of them", given)
    return [variant for value in values for variant in _variants(value)] if name == "options" else values


def _variants(options: Any) -> list[dict[str, Any]]:
    require(isinstance(options, Mapping), "options", "a mapping of names to values", options)
    for name, value in options.items():
        require(value != [], f"option {name!r}", "a value or at least one of them", value)
    columns = [value if isinstance(value, list) else [value] for value in options.values()]
    return [dict(zip(options, values)) for values in itertools.product(*columns)]
