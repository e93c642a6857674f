"""Errors that say which argument was wrong, what was allowed and what was given.

FedreproError
├── ArgumentError    (also a ValueError)    a value no function here can take
├── DataError        (also an OSError)      a graph cannot be had, or a file is not what it should be
├── StoreError       (also an OSError)      a result cannot be written or read
└── DivergedError    (also an ArithmeticError)  training produced a loss that is not a number
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


class FedreproError(Exception):
    """Base of every error this package raises on purpose."""


class ArgumentError(FedreproError, ValueError):
    """A value no function here can take."""


class DataError(FedreproError, OSError):
    """A graph cannot be had, or a file is not what it should be."""


class StoreError(FedreproError, OSError):
    """A result cannot be written or read."""


class DivergedError(FedreproError, ArithmeticError):
    """Training produced a loss that is not a number."""


def did_you_mean(given: object, allowed: Iterable[object]) -> str:
    """`" Did you mean 'metis'?"` when a near match exists, else an empty string."""
    names = {str(name).lower(): str(name) for name in allowed}
    near = difflib.get_close_matches(str(given).lower(), names, n=1, cutoff=0.5)
    return f" Did you mean {names[near[0]]!r}?" if near else ""


def one_of(argument: str, given: T, allowed: Iterable[T]) -> T:
    """Return `given` if it is among `allowed`.

    Raises:
        ArgumentError: it is not; the message lists what is allowed and the nearest match.
    """
    choices = list(allowed)
    if given in choices:
        return given
    listed = ", ".join(repr(choice) for choice in choices)
    raise ArgumentError(f"{argument} must be one of {listed}. Got {given!r}.{did_you_mean(given, choices)}")


def require(condition: bool, argument: str, allowed: str, given: object) -> None:
    """Raise unless `condition` holds.

    Raises:
        ArgumentError: with the sentence "<argument> must be <allowed>. Got <given>."
    """
    if not condition:
        raise ArgumentError(f"{argument} must be {allowed}. Got {given!r}.")
