"""Check the options of runs that do not train, by what the registry says of their functions.

The options of a training run are fields of its method and its model, see `fedrepro.runs.tasks.check`.
"""

from __future__ import annotations

from typing import Any

from fedrepro import registry
from fedrepro.errors import ArgumentError, one_of, require
from fedrepro.runs.run import Run


def check(run: Run) -> None:
    """Raise unless each option of a run that does not train is known and has the right type.

    Torch is imported only where the function trains a method, whose options the run may have, too.

    Raises:
        ArgumentError: the message names the option, what is allowed, and what was given.
    """
    entry = registry.find(run.task, run.method)
    if run.task == "train" or entry.options is None:
        return
    for name, usual in entry.options.items():
        needed = isinstance(usual, type)
        kind = usual if needed else type(usual)
        told = f"of type {kind.__name__}" + ("" if needed else f", like {usual!r}")
        if name in run.options:
            require(_fits(run.options[name], kind), f"option {name!r}", told, run.options[name])
        else:
            require(not needed, f"option {name!r} of {run.method}", f"given, {told}", None)
    others = {name: value for name, value in run.options.items() if name not in entry.options}
    if entry.trains:
        _check_training(run, entry, others)
    for name in () if entry.trains else others:
        require(bool(entry.options), f"options of {run.method}", "none", name)
        one_of(f"options of {run.method}", name, entry.options)


def _fits(value: Any, kind: type) -> bool:
    """Return whether a value has a type; a whole number does for a float."""
    wanted = (int, float) if kind is float else kind
    return isinstance(value, wanted) and isinstance(value, bool) == (kind is bool)


def _check_training(run: Run, entry: registry.Entry, others: dict[str, Any]) -> None:
    """Raise unless the method that a function trains takes all other options of a run."""
    from fedrepro.runs import tasks

    declared = entry.options or {}
    method = registry.trained(run.task, run.method, run.options)
    trained = run.replace(task="train", method=method, options=others)
    try:
        tasks.method(trained, tasks.FEATURES, tasks.CLASSES)
    except ArgumentError as error:
        besides = f" {run.method} itself takes {', '.join(map(repr, declared))}." if declared else ""
        raise ArgumentError(f"{error}{besides}") from None
