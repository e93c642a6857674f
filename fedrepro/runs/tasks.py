"""Compute the tasks of a `Run`: from a specification to numbers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import torch
from torch_geometric.data import Data

from fedrepro import registry
from fedrepro.data import datasets, partition, statistics
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import Method
from fedrepro.engine.nn.models import MODELS, Model, model
from fedrepro.engine.scores import History
from fedrepro.engine.training import train as train_federation
from fedrepro.errors import ArgumentError, DivergedError, did_you_mean, one_of, require
from fedrepro.runs.run import Run

SERIES = ("val", "test")  # what `series=True` keeps
FEATURES, CLASSES = 1433, 7  # of any graph: what `check` builds a method for
CHOICES = (*SERIES, "val_clients", "test_clients", "val_loss", "clients")


def graph(run: Run) -> Data:
    """Return the prepared and split graph of a run."""
    return datasets.assemble(run.dataset, run.prepare, run.split, run.seed)


def federation(runs: Sequence[Run], device: str = "cpu", dtype: torch.dtype = torch.float32) -> Federation:
    """Return the federations of runs that differ only in their seed, side by side."""
    federations = []
    for run in runs:
        data = graph(run)
        parts = partition.divide(data, run.partition or "single", run.clients, run.seed)
        federations.append(Federation.of(data, parts, run.seed, device=device, dtype=dtype))
    return federations[0] if len(federations) == 1 else Federation.stack(federations)


def method(run: Run, features: int, classes: int) -> tuple[Method, dict[str, Any]]:
    """Build the method of a run from its options; return it with the options of the loop ("rounds", "series", "keep").

    Raises:
        ArgumentError: neither the loop, the model nor the method knows an option.
    """
    given = dict(run.options)
    loop = {"rounds": given.pop("rounds", 100), "series": given.pop("series", False), "keep": given.pop("keep", "")}
    require(isinstance(loop["rounds"], int), "option 'rounds'", "a whole number", loop["rounds"])
    kept = loop["series"]
    named = isinstance(kept, tuple) and set(kept) <= set(CHOICES)
    require(isinstance(kept, bool) or named, "option 'series'", f"true, false or names among {CHOICES}", kept)
    loop["series"] = SERIES if kept is True else kept or ()
    one_of("option 'keep'", loop["keep"], ("", "predictions"))
    kind = given.pop("model", "GCN")
    network = model(kind, features=features, classes=classes, **_taken(given, MODELS.get(kind, Model)))
    built = registry.load("train", run.method)
    known = {f.name for f in fields(built)} - {"model"}
    for name in given:
        if name not in known:
            choices = sorted(known | {f.name for f in fields(network)} | {"rounds", "series", "keep", "model"})
            allowed = f"options of {run.method} must be among {', '.join(choices)}"
            raise ArgumentError(f"{allowed}. Got {name!r}.{did_you_mean(name, choices)}")
    for name, value in given.items():
        _typed(name, value, built)
    return built(model=network, **given), loop


def check(run: Run) -> None:
    """Raise unless each name in a run, and each option of a training run, is known and has a sound value.

    Nothing is loaded or trained. Conditions on the graph, such as its number of nodes, are checked when it is loaded.
    The options of another task are checked by `fedrepro.runs.options`.

    Raises:
        ArgumentError: the message names the field or the option, what is allowed, and what was given.
    """
    if run.task == "train" or run.dataset:
        datasets.check(run.dataset, run.prepare, run.split)
    if run.partition:
        partition.parse(run.partition)
    if run.task == "train":
        _check_class(run)
        _check_fixed(run)
        rounds = method(run, FEATURES, CLASSES)[1]["rounds"]
        require(rounds >= 1, "option 'rounds'", "an integer >= 1", rounds)


def _check_class(run: Run) -> None:
    """Raise unless a run's method is a dataclass derived from `Method` that has the options which the class declares.

    Training does not call this function, so that it is no part of the code of a method.
    """
    kind = registry.load("train", run.method)
    derived = is_dataclass(kind) and (not isinstance(kind, type) or issubclass(kind, Method))  # FedStruct is a choice
    require(derived, f"the method {run.method!r}", "a dataclass derived from fedrepro.engine.method.Method", kind)
    for option in fields(kind) if isinstance(kind, type) else ():
        usual = option.name == "model" or option.default is not MISSING
        require(usual, f"field {option.name!r} of {kind.__name__}", "one with a plain default value", "none")
    declared = inspect.get_annotations(kind).keys() if isinstance(kind, type) else set()
    for name in declared - {f.name for f in fields(kind)}:
        allowed = f"a field of {kind.__name__}: write @dataclass(frozen=True, kw_only=True) above the class"
        require(name not in run.options, f"option {name!r}", allowed, run.options.get(name))


def _check_fixed(run: Run) -> None:
    """Raise if a run changes an option whose usual value is the only one that its method supports."""
    given = set(registry.find("train", run.method).fixed) & set(run.options)
    rest = {name: value for name, value in run.options.items() if name not in given}
    plain = method(run.replace(options=rest), FEATURES, CLASSES)[0]
    usual = {**vars(plain.model), **vars(plain), "model": type(plain.model).__name__}
    for name in sorted(given):
        allowed = f"{usual.get(name)!r}, the only value that the method supports"
        require(run.options[name] == usual.get(name), f"option {name!r} of {run.method}", allowed, run.options[name])


def _taken(options: dict[str, Any], kind: type[Model]) -> dict[str, Any]:
    """Remove and return the options that are sizes of the model."""
    sizes = {f.name for f in fields(kind)} - {"features", "classes"}
    for name in sizes & set(options):
        _typed(name, options[name], kind)
    return {name: options.pop(name) for name in list(options) if name in sizes}


def _typed(name: str, value: Any, kind: type) -> None:
    """Raise unless an option has the type of its field's default; a whole number does for a float."""
    default = next(f.default for f in fields(kind) if f.name == name)
    wanted = (int, float) if type(default) is float else type(default)
    right = isinstance(value, wanted) and isinstance(value, bool) == isinstance(default, bool)
    require(right, f"option {name!r}", f"of type {type(default).__name__}, like {default!r}", value)


def train(runs: Sequence[Run], device: str = "cpu") -> list[dict[str, Any]]:
    """Train runs that differ only in their seed, side by side.

    Returns:
        One dictionary per run: "result" (scores as `History.result`, "traffic", "facts", "train_loss", "majority"),
        "chunk", and "series" where the run's option `series` asks for it: True for validation and test scores of every
        round, or names of entries of `Scores`; "clients" gives every client's test score at the round of best
        validation. The option `keep="predictions"` adds `History.predictions` to "series". A run whose loss is not
        finite has "error" instead of "result"; the other runs are not affected.

    Raises:
        ArgumentError: the runs differ in more than their seed, or their split leaves one without training nodes.
        DivergedError: the only run diverged.
    """
    for run in runs[1:]:
        require(run.replace(seed=runs[0].seed) == runs[0], "runs", "alike but for their seed", run)
    given = [federation(runs, device)]
    labelled = torch.bincount(given[0].run, given[0].count("train"), minlength=len(runs))
    allowed = "'public', or percentages such as '10/10/80', with training nodes at the clients"
    require(bool((labelled > 0).all()), "split", allowed, runs[0].split)
    chosen, loop = method(runs[0], given[0].features, given[0].classes)
    # The list is emptied, so that a federation which the method replaces at its start does not stay in memory.
    history, fed, state = train_federation(chosen, given.pop(), int(loop["rounds"]))
    facts = chosen.facts(fed, state)
    return [_outcome(history, fed, facts, number, loop, len(runs)) for number in range(len(runs))]


def _outcome(
    history: History, fed: Federation, facts: list[dict[str, float]], number: int, loop: dict[str, Any], runs: int
) -> dict[str, Any]:
    if number in history.diverged:
        error = DivergedError(f"a loss or weight was not a number in round {history.diverged[number]}")
        if runs == 1:
            raise error
        return {"error": f"DivergedError: {error}"}
    result: dict[str, Any] = dict(history.result(number))
    result["train_loss"] = float(history.loss[-1][number])
    result["traffic"] = fed.traffic.summary(number)
    result["facts"] = facts[number]
    result["majority"] = history.majority(number)
    out: dict[str, Any] = {"result": result, "chunk": history.chunk}
    if series := loop["series"]:
        out["series"] = {
            f"{view}.{name}": values
            for view in ("before", "after")
            for name, values in getattr(history, view).series(number).items()
            if name in series
        }
        if "clients" in series:
            for view in ("before", "after"):
                each = getattr(history, view).each.get(number, ())
                out["series"][f"{view}.clients"] = [None if math.isnan(value) else float(value) for value in each]
        out["series"]["train_loss"] = [float(loss[number]) for loss in history.loss]
    if loop["keep"]:
        out.setdefault("series", {})["predictions"] = history.predictions(number)
    return out


def graph_statistics(run: Run) -> dict[str, Any]:
    """Count a run's prepared graph and its split, see `statistics.summarize`."""
    return {"result": statistics.summarize(graph(run))}


def partition_manifest(run: Run) -> dict[str, Any]:
    """Return the manifest of a run's partition, see `statistics.manifest`."""
    data = graph(run)
    return {"result": statistics.manifest(data, partition.divide(data, run.partition, run.clients, run.seed))}
