"""The server of FedSheafHN: it generates the weights of all clients, and steps along what they send back.

    vectors X_0 -> collaboration graph (Eq. 4) -> diffusion S (Eq. 9) -> hypernetwork H (Eq. 11) -> generated weights
    change Delta of the clients -> J^T Delta (Eq. 12 to 15) -> a step of theta (`sheaf.*`) and phi (`hyper.*`)

One `Server` serves one run. Runs that train side by side have a server each and share nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedrepro.engine.federation import Weights
from fedrepro.engine.nn import random
from fedrepro.engine.nn.optim import Optimizer, OptimizerState
from fedrepro.papers.fedsheafhn import sheaf
from fedrepro.papers.fedsheafhn.hypernetwork import BLOCK, Hypernetwork, blocks, by_columns, gradient_blocks
from fedrepro.papers.fedsheafhn.sheaf import Diffusion, Drop, keep_all


@dataclass(frozen=True, kw_only=True)
class Server:
    """The server of one run.

    Args:
        seed: of the run.
        neighbours: K of the collaboration graph; None for the complete graph.
        diffusion: S, the network on the collaboration graph.
        hyper: H, the hypernetwork.
        rules: the optimizers of theta ("sheaf") and phi ("hyper").
        weights: theta and phi in one dictionary. `step` moves them in place, because with their moments they are
            about four hundred times as large as a client's weights.
        size: norm of phi at the start.
        moments: of the optimizers, from the first step on.
    """

    seed: int
    neighbours: int | None
    diffusion: Diffusion
    hyper: Hypernetwork
    rules: dict[str, Optimizer]
    weights: Weights = field(default_factory=dict)
    size: float = 0.0
    moments: dict[str, OptimizerState] = field(default_factory=dict)

    def initialize(self, vectors: Tensor, model: Weights) -> Server:
        """Return this server with initial weights.

        Args:
            vectors: the clients' first vectors `[clients, width]`.
            model: the common initial model, see `Hypernetwork.init`.
        """
        theta = {name: w.to(vectors) for name, w in self.diffusion.init(self.seed, vectors.shape[1]).items()}
        phi = self.hyper.init(self.seed, self.diffused(theta, vectors, keep_all), model)
        size = sum(float(w.square().sum()) for w in phi.values()) ** 0.5
        return replace(self, weights={**theta, **phi}, size=size)

    def pairs(self, vectors: Tensor) -> Tensor:
        """Return the edges of the collaboration graph `[2, pairs]` (Eq. 4)."""
        if self.neighbours is None:
            return sheaf.complete(len(vectors), vectors.device)
        return sheaf.nearest(vectors, self.neighbours)

    def diffused(self, weights: Weights, vectors: Tensor, drop: Drop) -> Tensor:
        """Return X_Ts, the vectors after the diffusion `[clients, width]`."""
        return self.diffusion(weights, vectors, self.pairs(vectors), drop)

    def generate(self, weights: Weights, vectors: Tensor, t: int | None) -> Weights:
        """Return the generated tensors `[clients, ...]`.

        Args:
            weights: theta and phi.
            vectors: X_0 `[clients, width]`.
            t: the round, of which the dropout is a function; None for no dropout.
        """
        drop = keep_all if t is None else self._dropout(t)
        return self.hyper(weights, self.diffused(weights, vectors, drop), drop)

    def _dropout(self, t: int) -> Drop:
        """Return the dropout of round `t`, a function of the run's seed, the round and the layer's name."""

        def drop(x: Tensor, p: float, name: str) -> Tensor:
            if not p:
                return x
            mask = random.uniform((x.shape[0], x.shape[1]), "server dropout", self.seed, name, t) >= p
            return x * mask.to(x.device, x.dtype).div_(1 - p)

        return drop

    def gradient(self, vectors: Tensor, t: int, change: Weights) -> Weights:
        """Return J^T Delta of every weight (Eq. 12 to 15).

        Args:
            vectors: X_0 of round `t`, `[clients, width]`.
            t: the round.
            change: Delta of every generated tensor `[clients, ...]`. A step against J^T Delta descends the clients'
                loss for Delta = generated - trained. The printed Delta is trained - generated.
        """
        a, gradient = self._gradient(vectors, t, change)
        for name, delta in change.items():
            gradient[f"hyper.out.{name}.weight"] = (self.hyper.scale(name) * a).T @ delta.flatten(1)
        return {name: gradient[name] for name in self.weights if name in gradient}

    def _gradient(self, vectors: Tensor, t: int, change: Weights) -> tuple[Tensor, Weights]:
        """Return the features of round `t`, and J^T Delta of all weights but the output matrices."""
        leaves = {name: w.detach().requires_grad_() for name, w in self.weights.items() if not _is_output(name)}
        drop = self._dropout(t)
        a = self.hyper.features(leaves, self.diffused(leaves, vectors, drop), drop)
        back = self.hyper.back(self.weights, change)
        grads = torch.autograd.grad(a, list(leaves.values()), back, allow_unused=True)
        gradient = {name: g for name, g in zip(leaves, grads, strict=True) if g is not None}
        for name, delta in change.items():
            gradient[f"hyper.out.{name}.bias"] = self.hyper.scale(name) * delta.flatten(1).sum(0)
        return a.detach(), gradient

    def step(self, vectors: Tensor, t: int, change: Weights) -> None:
        """Move weights and moments in place by the step of round `t`; for the arguments see `gradient`."""
        if not self.moments:
            # Only a server that steps needs its output matrices column by column.
            self.weights.update({name: by_columns(w) for name, w in self.weights.items() if _is_output(name)})
            self.moments.update({part: rule.init(_part(self._views(), part)) for part, rule in self.rules.items()})
        a, gradient = self._gradient(vectors, t, change)
        views = self._views()
        for part, rule in self.rules.items():
            rule.step(views, {name: g[None] for name, g in _part(gradient, part).items()}, self.moments[part])
        for name, delta in change.items():
            scaled = self.hyper.scale(name) * a
            for block, g in gradient_blocks(f"hyper.out.{name}.weight", scaled, delta.flatten(1)):
                self.rules["hyper"].step(views, {block: g}, self.moments["hyper"])

    def _views(self) -> Weights:
        """Return the weights as an optimizer takes them, in one slice; output matrices in blocks of columns."""
        views: Weights = {}
        for name, w in self.weights.items():
            views |= blocks(name, w) if _is_output(name) else {name: w[None]}
        return views

    @torch.no_grad()
    def facts(self, vectors: Tensor, start: Weights) -> dict[str, float]:
        """Return what the server reports of itself after training.

        Args:
            vectors: X_0 of the last round `[clients, width]`.
            start: the weights of the start. They are overwritten.

        Returns:
            `generated_spread`: root mean square distance of the clients' generated weights from their mean, over their
            root mean square norm. `server_moved`: the distance phi moved in training, over its norm at the start. With
            sheaf diffusion also `map_size`, the mean absolute entry of the first layer's restriction maps, and
            `diffusion_change`, the distance the layers move the encoded states, over the norm of these.
        """
        flat = torch.cat([w.flatten(1) for w in self.generate(self.weights, vectors, None).values()], 1)
        spread = (flat - flat.mean(0)).square().sum(1).mean().sqrt() / flat.square().sum(1).mean().sqrt()
        phi = _part(start, "hyper")
        for name, old in phi.items():
            # Block by block, because the two are laid out differently.
            for block, now in zip(torch.split(old, BLOCK, -1), torch.split(self.weights[name], BLOCK, -1)):
                block.sub_(now)
        moved = sum(float(difference.square_().sum()) for difference in phi.values()) ** 0.5
        facts = {"generated_spread": float(spread), "server_moved": moved / self.size if self.size else 0.0}
        if self.diffusion.kind == "sheaf":
            pairs = self.pairs(vectors)
            states = self.diffusion.states(self.weights, self.diffusion.encode(self.weights, vectors), pairs)
            maps = torch.cat(self.diffusion.restriction_maps(self.weights, states[0], pairs, 0))
            facts["map_size"] = float(maps.abs().mean()) if len(maps) else 0.0
            facts["diffusion_change"] = float((states[-1] - states[0]).norm() / states[0].norm())
        return facts


def _part(weights: Weights, part: str) -> Weights:
    """Return theta ("sheaf") or phi ("hyper")."""
    return {name: w for name, w in weights.items() if name.startswith(part)}


def _is_output(name: str) -> bool:
    """Return whether a weight is an output matrix W_k of the hypernetwork."""
    return name.startswith("hyper.out.") and name.endswith(".weight")
