"""Try a method or graph that the package does not have, before its runs are computed.

The engine trains the clients of several seeds as one stack. A hook that reduces over the first dimension without a look
at `fed.run` mixes the seeds, and nothing would fail. So the first two runs of a batch are trained for a few rounds side
by side and one by one, and what their weights moved is compared. Nothing would fail either if a loader gave graphs of
other features or classes for other seeds, since the stack has one model, of the first graph's sizes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from torch import Tensor

from fedrepro import registry
from fedrepro.data import datasets
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.training import Trained, train
from fedrepro.errors import FedreproError, require
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

ROUNDS = 2
LARGEST = 0.05  # share of a run's movement by which it may differ, for rounding: mixed seeds differ by about all of it


def check(runs: Sequence[Run]) -> None:
    """Raise unless training runs that differ only in seed can be trained side by side.

    Methods and graphs of the package are not tried.

    Raises:
        ArgumentError: a hook of the method returns what the engine cannot use; the message names the hook.
        SeedsMixedError: the runs of a batch give other numbers than one by one, or their graphs have other sizes; there
            is a warning, too.
    """
    if len(runs) > 1 and datasets.by_hand(runs[0].dataset):
        _check_graphs(runs)
    if registry.by_hand("train", runs[0].method):
        _check_method(runs)


def _check_graphs(runs: Sequence[Run]) -> None:
    graphs = [tasks.graph(run) for run in runs]
    sizes = {(graph.num_features, int(graph.num_classes)) for graph in graphs}
    if len(sizes) > 1:
        told = " and ".join(f"{features} features and {classes} classes" for features, classes in sorted(sizes))
        _one_by_one(f"The graphs of {runs[0].dataset!r} have {told}, by seed.")


def _check_method(runs: Sequence[Run]) -> None:
    beside = _trained(runs[:2])
    alone = [_trained([run]) for run in runs[:2]] if len(runs) > 1 else []
    if any(_far(_of_run(beside, number), _of_run(one, 0)) for number, one in enumerate(alone)):
        told = (
            f"{runs[0].method} trains seeds side by side otherwise than alone. Does a hook reduce over the clients of"
            " all runs, without `fed.run`?"
        )
        _one_by_one(told)


def _one_by_one(told: str) -> NoReturn:
    warnings.warn(f"{told} Its seeds are computed one by one.", stacklevel=4)
    raise SeedsMixedError(told)


class SeedsMixedError(FedreproError):
    """A method lets the seeds of a batch change each other."""


def _trained(runs: Sequence[Run]) -> tuple[State, Trained]:
    """Return the first and the last state of a few rounds of runs that differ only in seed."""
    fed = tasks.federation(runs)
    method = tasks.method(runs[0], fed.features, fed.classes)[0]
    started: list[State] = []
    ended = train(_checked(method, started), fed, ROUNDS, evaluate=())
    return started[0], ended


def _checked(method: Method, started: list[State]) -> Method:
    """Return a method that computes the same, checks what its hooks return, and notes its first state."""
    kind: Any = type(method)

    def start(self: Any, fed: Federation) -> tuple[Federation, State]:
        returned = kind.start(self, fed)
        pair = isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], State)
        require(pair, f"start of {kind.__name__}", "a federation and a State", returned)
        started.append(returned[1])
        return returned[0], returned[1]

    def local_loss(self: Any, weights: Weights, fed: Federation, *rest: Any, **named: Any) -> Tensor:
        loss: Tensor = kind.local_loss(self, weights, fed, *rest, **named)
        shape = tuple(loss.shape) if isinstance(loss, Tensor) else loss
        allowed = f"one loss for each of the clients, of shape ({fed.clients},)"
        require(shape == (fed.clients,), f"local_loss of {kind.__name__}", allowed, shape)
        return loss

    def aggregate(self: Any, state: State, update: Update) -> State:
        returned: State = kind.aggregate(self, state, update)
        require(isinstance(returned, State), f"aggregate of {kind.__name__}", "a State", returned)
        for name, w in returned.shared.items():
            allowed = f"one tensor for each of the {update.fed.runs} runs, of shape {tuple(state.shared[name].shape)}"
            require(
                w.shape == state.shared[name].shape, f"aggregate of {kind.__name__}, {name}", allowed, tuple(w.shape)
            )
        return returned

    hooks = {hook.__name__: hook for hook in (start, local_loss, aggregate)}
    built: Any = object.__new__(type(kind.__name__, (kind,), hooks))
    built.__dict__.update(method.__dict__)  # a frozen dataclass cannot be filled otherwise
    checked: Method = built
    return checked


def _of_run(trained: tuple[State, Trained], number: int) -> list[tuple[Tensor, Tensor]]:
    """Return the weights of one run, at the start and at the end."""
    first, (_, fed, last) = trained
    of_run = fed.run == number
    shared = [(first.shared[name][number], w[number]) for name, w in last.shared.items() if name in first.shared]
    return shared + [
        (first.personal[name][of_run], w[of_run]) for name, w in last.personal.items() if name in first.personal
    ]


def _far(one: list[tuple[Tensor, Tensor]], other: list[tuple[Tensor, Tensor]]) -> bool:
    """Return whether two trainings of a run differ by more than `LARGEST` of what they move."""
    apart = sum(float((a - b).square().sum()) for (_, a), (_, b) in zip(one, other, strict=True))
    moved = sum(float((end - begin).square().sum()) for begin, end in other)
    return bool(apart**0.5 > LARGEST * moved**0.5)
