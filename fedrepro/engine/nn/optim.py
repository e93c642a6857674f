"""Step with SGD or Adam on stacked weights, element by element, so that every slice takes its own client's step.

The state has one slice and one step count per client. A client that does not take part is left bitwise unchanged, its
state included. Otherwise weight decay and momentum would move its weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedrepro.engine.federation import Weights
from fedrepro.errors import one_of, require


@dataclass
class OptimizerState:
    """The moments of each weight, and the number of steps that each of its slices has taken.

    `first[name]` and `second[name]` have the weight's shape `[slices, ...]`. `steps[name]` is `[slices]`, on the CPU.
    """

    steps: dict[str, np.ndarray]
    first: Weights = field(default_factory=dict)
    second: Weights = field(default_factory=dict)

    def view(self, index: slice) -> OptimizerState:
        """Return the state of consecutive slices as views of this state."""
        return OptimizerState(
            {name: count[index] for name, count in self.steps.items()},
            {name: moment[index] for name, moment in self.first.items()},
            {name: moment[index] for name, moment in self.second.items()},
        )


@dataclass(frozen=True)
class Optimizer:
    """The rule of a step.

    Args:
        name: "adam" (Kingma and Ba 2015) or "sgd".
        lr: learning rate.
        weight_decay: `weight_decay * weight` is added to the gradient (L2 regularization, not decoupled).
        momentum: momentum of SGD.
    """

    name: str = "adam"
    lr: float = 0.01
    weight_decay: float = 0.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        one_of("optimizer", self.name, ("adam", "sgd"))
        require(self.lr > 0, "lr", "positive", self.lr)
        require(self.weight_decay >= 0, "weight_decay", "zero or positive", self.weight_decay)
        require(0 <= self.momentum < 1, "momentum", "in [0, 1)", self.momentum)

    def init(self, weights: Mapping[str, Tensor]) -> OptimizerState:
        """Return zero moments for weights of these shapes."""
        state = OptimizerState({name: np.zeros(w.shape[0]) for name, w in weights.items()})
        if self.name == "adam" or self.momentum:
            state.first = {name: torch.zeros_like(w, requires_grad=False) for name, w in weights.items()}
        if self.name == "adam":
            state.second = {name: torch.zeros_like(w, requires_grad=False) for name, w in weights.items()}
        return state

    @torch.no_grad()
    def step(self, weights: Weights, grads: Weights, state: OptimizerState, active: Tensor | None = None) -> None:
        """Move the weights in place by one step.

        Args:
            weights, grads: `[slices, ...]` under the same names.
            state: their moments and step counts, changed in place.
            active: `[slices]` bool, on the CPU, the slices that step. None means all.
        """
        # Adam's kernel takes one step count for all its tensors, so weights with equal counts go together.
        alike: dict[tuple[float, ...], list[str]] = {}
        for name in grads:
            alike.setdefault(tuple(state.steps[name].tolist()), []).append(name)
        for counts, names in alike.items():
            whole = slice(0, len(counts))
            for part, count in _segments(counts, active):
                kinds = (weights, grads, state.first, state.second)
                moved = [[w[n] if part == whole else w[n][part] for n in names] if w else [] for w in kinds]
                self._move(moved[0], moved[1], moved[2], moved[3], count)
        taken = 1 if active is None else active.numpy()
        for name in grads:
            state.steps[name] += taken

    def _move(
        self, weights: list[Tensor], grads: list[Tensor], first: list[Tensor], second: list[Tensor], count: float
    ) -> None:
        if self.name == "adam":
            # The fused kernel of a CPU ignores strides and reads entries in the order of memory.
            grads = [
                g if g.stride() == w.stride() else torch.empty_like(w).copy_(g)
                for w, g in zip(weights, grads, strict=True)
            ]
            # The kernel itself, since `torch.optim.adam.adam` takes twice as long to reach it, which small graphs feel.
            step = torch.full((), count + 1, device=weights[0].device)
            torch._fused_adam_(
                weights,
                grads,
                first,
                second,
                [],
                [step] * len(weights),
                lr=self.lr,
                beta1=0.9,
                beta2=0.999,
                weight_decay=self.weight_decay,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )
            return
        for at, (weight, grad) in enumerate(zip(weights, grads, strict=True)):
            if self.weight_decay:
                grad = grad.add(weight, alpha=self.weight_decay)
            if first:
                grad = first[at].mul_(self.momentum).add_(grad)
            weight.add_(grad, alpha=-self.lr)


def _segments(counts: Sequence[float], active: Tensor | None) -> Iterator[tuple[slice, float]]:
    """Yield stretches of active slices with equal step counts, and the count. As slices they copy nothing."""
    on = [True] * len(counts) if active is None else active.tolist()
    start = 0
    while start < len(counts):
        stop = start + 1
        while stop < len(counts) and (counts[stop], on[stop]) == (counts[start], on[start]):
            stop += 1
        if on[start]:
            yield slice(start, stop), counts[start]
        start = stop
