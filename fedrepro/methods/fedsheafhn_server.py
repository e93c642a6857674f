"""What FedSheafHN's server computes in a round: vectors -> collaboration graph -> diffusion -> hypernetwork -> weights
of every client, and its own step along the vector-Jacobian product of Eq. 12 to 15.

One `Server` serves one run; runs side by side have one each and share nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.federation import Weights
from fedrepro.methods.collaboration import Diffusion, Drop, complete, nearest
from fedrepro.methods.hypernetwork import Hypernetwork
from fedrepro.nn import random
from fedrepro.nn.optim import Optimizer, OptimizerState


@dataclass(frozen=True)
class Server:
    """The server of one run.

    Args:
        seed: of the run.
        graph: "knn" or "complete".
        neighbours: K.
        rules: optimizers of the diffusion's weights (`sheaf.*`) and of the hypernetwork's (`hyper.*`).
        weights: of both, one dictionary.
        moments: of the optimizers, moved along in place.
    """

    seed: int
    graph: str
    neighbours: int
    diffusion: Diffusion
    hyper: Hypernetwork
    rules: dict[str, Optimizer]
    weights: Weights
    moments: dict[str, OptimizerState]

    @classmethod
    def start(
        cls, seed: int, graph: str, neighbours: int, diffusion: Diffusion, hyper: Hypernetwork,
        rules: dict[str, Optimizer], vectors: Tensor, model: Weights,
    ) -> Server:  # fmt: skip
        """Initial weights.

        Args:
            vectors: the clients' first vectors `[clients, width]`.
            model: the common initial model (see `Hypernetwork.init`).
        """
        weights = {name: w.to(vectors) for name, w in diffusion.init(seed).items()}
        new = cls(seed, graph, neighbours, diffusion, hyper, rules, weights, {})
        weights = {**weights, **hyper.init(seed, new.diffused(weights, vectors, _kept), model)}
        moments = {part: rule.init(_stacked(_part(weights, part))) for part, rule in rules.items()}
        return cls(seed, graph, neighbours, diffusion, hyper, rules, weights, moments)

    def pairs(self, vectors: Tensor) -> Tensor:
        """The edges of the collaboration graph `[2, pairs]` (Eq. 4)."""
        if self.graph == "complete":
            return complete(len(vectors), vectors.device)
        return nearest(vectors, self.neighbours)

    def diffused(self, weights: Weights, vectors: Tensor, drop: Drop) -> Tensor:
        """X_Ts `[clients, width]`."""
        if self.diffusion.kind == "none":
            return vectors
        return self.diffusion(weights, vectors, self.pairs(vectors), drop)

    def generate(self, weights: Weights, vectors: Tensor, t: int | None) -> Weights:
        """The generated tensors `[clients, ...]` of round `t`, whose number the dropout depends on; None: without."""
        drop = _kept if t is None else self._dropping(t)
        return self.hyper(weights, self.diffused(weights, vectors, drop), drop)

    def _dropping(self, t: int) -> Drop:
        def drop(x: Tensor, p: float, name: str) -> Tensor:
            if not p:
                return x
            kept = random.uniform((x.shape[0], x.shape[1]), "server dropout", self.seed, name, t) >= p
            return x * kept.to(x.device, x.dtype).div_(1 - p)

        return drop

    def gradient(self, vectors: Tensor, t: int, change: Weights) -> Weights:
        """Eq. 12 to 15: the vector-Jacobian product of what was generated in round `t` with `change`, by weight.

        Args:
            change: `[clients, ...]` of every generated tensor; generated minus trained gives the direction whose
                negative descends, trained minus generated is the printed one.
        """
        return self._product({name: w.clone().requires_grad_() for name, w in self.weights.items()}, vectors, t, change)

    def _product(self, leaves: Weights, vectors: Tensor, t: int, change: Weights) -> Weights:
        generated = self.generate(leaves, vectors, t)
        outputs, cotangents = zip(*[(generated[name], w) for name, w in change.items()], strict=True)
        found = torch.autograd.grad(outputs, list(leaves.values()), cotangents, allow_unused=True)
        return {name: g for name, g in zip(leaves, found, strict=True) if g is not None}

    def step(self, vectors: Tensor, t: int, change: Weights | None) -> Server:
        """The server after its step of round `t`.

        Args:
            change: see `gradient`; None is zero everywhere: moments and weight decay alone then move the weights.
        """
        moved = {name: w.clone().requires_grad_() for name, w in self.weights.items()}
        if change is None:
            gradient = {name: torch.zeros_like(w) for name, w in self.weights.items()}
        else:
            gradient = self._product(moved, vectors, t, change)
        for part, rule in self.rules.items():
            rule.step(_stacked(_part(moved, part)), _stacked(_part(gradient, part)), self.moments[part])
        return self._with({name: w.detach() for name, w in moved.items()})

    def _with(self, weights: Weights) -> Server:
        return Server(
            self.seed, self.graph, self.neighbours, self.diffusion, self.hyper, self.rules, weights, self.moments
        )


def _kept(x: Tensor, p: float, name: str) -> Tensor:
    return x


def _part(weights: Weights, part: str) -> Weights:
    return {name: w for name, w in weights.items() if name.startswith(part)}


def _stacked(weights: Weights) -> Weights:
    """The optimizers take weights with one slice per run: here one."""
    return {name: w[None] for name, w in weights.items()}


def together(parts: Sequence[Weights]) -> Weights:
    """The tensors of several runs' clients one after another: `[clients, ...]` over all runs."""
    if len(parts) == 1:
        return parts[0]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
