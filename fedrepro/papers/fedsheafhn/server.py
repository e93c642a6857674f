"""What FedSheafHN's server computes in a round: vectors -> collaboration graph -> diffusion -> hypernetwork -> weights
of every client, and its own step along the vector-Jacobian product of Eq. 12 to 15.

One `Server` serves one run; runs side by side have one each and share nothing. It moves in place: with moments its
weights are about four hundred times a client's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedrepro.engine.federation import Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.optim import Optimizer, OptimizerState
from fedrepro.papers.fedsheafhn.collaboration import Diffusion, Drop, complete, kept, nearest
from fedrepro.papers.fedsheafhn.hypernetwork import Hypernetwork, blocks, by_columns, gradient_blocks


@dataclass(frozen=True)
class Server:
    """The server of one run.

    Args:
        seed: of the run.
        graph: "knn" or "complete".
        neighbours: K.
        rules: optimizers of the diffusion's weights (`sheaf.*`) and of the hypernetwork's (`hyper.*`).
        weights: of both, one dictionary, moved in place.
        size: norm of the hypernetwork's weights at the start.
        moments: of the optimizers, from the first step on.
    """

    seed: int
    graph: str
    neighbours: int
    diffusion: Diffusion
    hyper: Hypernetwork
    rules: dict[str, Optimizer]
    weights: Weights
    size: float = 0.0
    moments: dict[str, OptimizerState] = field(default_factory=dict)

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
        new = cls(seed, graph, neighbours, diffusion, hyper, rules, weights)
        made = hyper.init(seed, new.diffused(weights, vectors, kept), model)
        size = sum(float(w.square().sum()) for w in made.values()) ** 0.5
        return replace(new, weights={**weights, **made}, size=size)

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
        drop = kept if t is None else self._dropping(t)
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
        a, found = self._gradient(vectors, t, change)
        for name, delta in change.items():
            found[f"hyper.out.{name}.weight"] = (self.hyper.scale(name) * a).T @ delta.flatten(1)
        return {name: found[name] for name in self.weights if name in found}

    def _gradient(self, vectors: Tensor, t: int, change: Weights) -> tuple[Tensor, Weights]:
        """The features of round `t`, and `gradient` of all weights but the output matrices."""
        leaves = {name: w.detach().requires_grad_() for name, w in self.weights.items() if not _is_output(name)}
        drop = self._dropping(t)
        a = self.hyper.features(leaves, self.diffused(leaves, vectors, drop), drop)
        back = self.hyper.back(self.weights, change)
        grads = torch.autograd.grad(a, list(leaves.values()), back, allow_unused=True)
        found = {name: g for name, g in zip(leaves, grads, strict=True) if g is not None}
        for name, delta in change.items():
            found[f"hyper.out.{name}.bias"] = self.hyper.scale(name) * delta.flatten(1).sum(0)
        return a.detach(), found

    def step(self, vectors: Tensor, t: int, change: Weights) -> None:
        """Move weights and moments in place by the step of round `t`.

        Args:
            change: see `gradient`.
        """
        if not self.moments:
            self._prepare()
        a, small = self._gradient(vectors, t, change)
        views = _views(self.weights)
        for part, rule in self.rules.items():
            rule.step(views, {name: g[None] for name, g in _part(small, part).items()}, self.moments[part])
        for name, delta in change.items():
            scaled = self.hyper.scale(name) * a
            for block, g in gradient_blocks(f"hyper.out.{name}.weight", scaled, delta.flatten(1)):
                self.rules["hyper"].step(views, {block: g}, self.moments["hyper"])

    def _prepare(self) -> None:
        """Output matrices as their blocks need them, and moments: for a server that steps."""
        self.weights.update({name: by_columns(w) for name, w in self.weights.items() if _is_output(name)})
        views = _views(self.weights)
        self.moments.update({part: rule.init(_part(views, part)) for part, rule in self.rules.items()})


def _part(weights: Weights, part: str) -> Weights:
    return {name: w for name, w in weights.items() if name.startswith(part)}


def _is_output(name: str) -> bool:
    return name.startswith("hyper.out.") and name.endswith(".weight")


def _views(weights: Weights) -> Weights:
    """The weights as the optimizers take them, with one slice per run, here one; output matrices in blocks."""
    views: Weights = {}
    for name, w in weights.items():
        views |= blocks(name, w) if _is_output(name) else {name: w[None]}
    return views


def together(parts: Sequence[Weights]) -> Weights:
    """The tensors of several runs' clients one after another: `[clients, ...]` over all runs."""
    if len(parts) == 1:
        return parts[0]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
