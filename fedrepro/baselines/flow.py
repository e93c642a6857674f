"""Flow (Panchal et al. 2023): every instance is routed, layer by layer, through the global model or a local copy.

    h_k = act( q_k,global F_k(h_{k-1}; theta) + q_k,local F_k(h_{k-1}; theta_local) ),   q_k = softmax(policy exit k)

One round: a client copies the global model; half of its training instances fine-tune the copy; on the other half steps
of the policy (models fixed) alternate with steps of the global model on its own route. Global model and policy are
averaged; the copy is dropped. Routes are soft while training and hard in prediction.

On a graph an instance is a node, and a layer's rows are mixed by the target node's q; the policy sees the node's own
features. Halves are drawn anew each round; a client with fewer than two training nodes uses them for both.

Decisions the paper leaves open, or its public code takes otherwise:

    penalty    mean of -log(q^2 + 1e-6) on the global route, so that nodes go local where that pays ("global"); by its
               index the code penalizes the local route in its image models ("local")
    copy       made anew each round and never averaged; the code comments the reset out
    steps      `local_epochs` for the copy, and as many pairs of steps for policy and global model
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.baselines.personal import first_input, layer, next_input, require_layers
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State, Step
from fedrepro.engine.nn import layers, random
from fedrepro.engine.nn.models import glorot
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require

LOCAL, POLICY = "local.", "policy."
ROUTES = ("learned", "global", "local")


class Half(NamedTuple):
    """Training nodes of one half `[rows]`, and the matrix that averages over each client's `[clients, rows]`."""

    rows: Tensor
    mean: Sparse


@dataclass(frozen=True, kw_only=True)
class Flow(FedAvg):
    """Args:
    penalty: weight of the route's penalty.
    penalized: the route it is on, "global" or "local".
    policy_hidden: width of the policy's first hidden layer, halved from layer to layer.
    route: "learned"; "global" and "local" fix every q.
    """

    average: str = "train"
    penalty: float = 0.01
    penalized: str = "global"
    policy_hidden: int = 128
    route: str = "learned"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_layers(self.model, "Flow")
        require(self.penalty >= 0, "penalty", "zero or positive", self.penalty)
        require(self.policy_hidden >= 1, "policy_hidden", "at least 1", self.policy_hidden)
        one_of("penalized", self.penalized, ("global", "local"))
        one_of("route", self.route, ROUTES)

    @property
    def receptive(self) -> int | None:
        """The policy sees a node's own features."""
        return self.model.hops

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """The global model and the policy."""
        fed, state = super().start(fed)
        each = [self._policy(seed) for seed in fed.seeds]
        policy = {name: torch.stack([w[name] for w in each]).to(fed.device, fed.dtype) for name in each[0]}
        return fed, State({**state.shared, **policy}, {})

    def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
        """What the server sent, and the copy of the global model."""
        received = super().begin_round(fed, state, t)
        return {**received, **{LOCAL + name: w for name, w in self.parts(received)[0].items()}}

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """The copy on one half; policy and global model in turn on the other."""
        model = tuple(self.parts(state.shared)[0])
        local = tuple(LOCAL + name for name in model)
        policy = tuple(name for name in state.shared if name.startswith(POLICY))
        mine, theirs = halves(fed, t)
        for epoch in range(self.local_epochs):
            yield Step(local, partial(self._alone, fed=fed.at(t, epoch), half=mine, local=True))
        for epoch in range(self.local_epochs, 2 * self.local_epochs):
            seen = fed.at(t, epoch)
            if self.route == "learned":
                yield Step(policy, partial(self.routed_loss, fed=seen, half=theirs))
            yield Step(model, partial(self._alone, fed=seen, half=theirs, local=False))

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """The policy's loss on all training nodes, `[clients]`."""
        return self.routed_loss(weights, fed, Half(*fed.rows("train")))

    def routed_loss(self, weights: Weights, fed: Federation, half: Half) -> Tensor:
        """Cross-entropy under soft routes, and the penalty, a mean over nodes and layers."""
        q = self.routes(weights, fed)
        loss = self._mean_loss(self._mixed(weights, fed, q), fed, half)
        at = 0 if self.penalized == "global" else 1
        each = [-(part[half.rows, at].square() + 1e-6).log() for part in q]
        regular = half.mean @ (sum(each[1:], each[0]) / len(each))[:, None]
        return loss + self.penalty * regular.squeeze(1)

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Logits: of the routed model where there is a copy (hard routes in evaluation), else of the global one."""
        model, copy = self.parts(weights)
        if self.route != "learned" or not copy:
            return self.model(copy if copy and self.route == "local" else model, fed)
        q = self.routes(weights, fed)
        if fed.clock is None:
            q = [F.one_hot(part.argmax(1), 2).to(part.dtype) for part in q]
        return self._mixed(weights, fed, q)

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Per run: share of own nodes that the averaged policy sends to the local route, layer by layer."""
        with torch.no_grad():
            q = self.routes(state.shared, fed.shared())
        run = fed.run[fed.batch.batch].masked_fill(fed.batch.ring > 0, -1)
        local = [(part[:, 1] > part[:, 0]).double() for part in q]
        return [
            {f"local_share_{k}": float(p[run == r].mean()) for k, p in enumerate(local, 1)} for r in range(fed.runs)
        ]

    # -- the network --------------------------------------------------------------------------------------------------

    def parts(self, weights: Weights) -> tuple[Weights, Weights]:
        """The global model and the local copy (empty where there is none), each under the model's names."""
        model = {name: w for name, w in weights.items() if not name.startswith((LOCAL, POLICY))}
        copy = {name.removeprefix(LOCAL): w for name, w in weights.items() if name.startswith(LOCAL)}
        return model, copy

    def routes(self, weights: Weights, fed: Federation) -> list[Tensor]:
        """q of every layer, `[nodes, 2]` each: global, local. Every hidden layer of the policy has an exit."""
        found: list[Tensor] = []
        h: Tensor | Sparse = fed.input
        for k in range(1, len(self.model.widths) + 1):
            name = f"{POLICY}{{}}{k}.{{}}"
            hidden = layers.linear(fed, h, *(weights[name.format("hidden", part)] for part in ("weight", "bias")))
            h = F.relu(hidden)
            out = layers.linear(fed, h, *(weights[name.format("exit", part)] for part in ("weight", "bias")))
            found.append(torch.softmax(out, dim=1))
        return found

    def _mixed(self, weights: Weights, fed: Federation, q: list[Tensor]) -> Tensor:
        """Logits with the rows of both models mixed in every layer, before the activation."""
        model, copy = self.parts(weights)
        h, model = first_input(self.model, fed, model)
        copy = first_input(self.model, fed, copy)[1] if self.model.input_norm else copy
        for i, part in enumerate(q, start=1):
            both = [layer(self.model, fed, h, w, i) for w in (model, copy)]
            mixed = part[:, :1] * both[0] + part[:, 1:] * both[1]
            h = next_input(self.model, fed, mixed, i + 1) if i < len(q) else mixed
        assert isinstance(h, Tensor)
        return h

    def _alone(self, weights: Weights, fed: Federation, half: Half, local: bool) -> Tensor:
        """Cross-entropy of the pure local or global route."""
        return self._mean_loss(self.model(self.parts(weights)[local], fed), fed, half)

    def _mean_loss(self, logits: Tensor, fed: Federation, half: Half) -> Tensor:
        each = layers.node_losses(logits[half.rows], fed.batch.y[half.rows])
        return (half.mean @ each[:, None]).squeeze(1)

    def _policy(self, seed: int) -> Weights:
        made, width = {}, self.model.features
        for k in range(1, len(self.model.widths) + 1):
            hidden = max(2, self.policy_hidden >> (k - 1))
            for part, shape in (("hidden", (width, hidden)), ("exit", (hidden, 2))):
                name = f"{POLICY}{part}{k}"
                made[f"{name}.weight"] = glorot(*shape, seed=seed, name=f"{name}.weight")
                made[f"{name}.bias"] = torch.zeros(shape[1])
            width = hidden
        return made


def halves(fed: Federation, t: int) -> tuple[Half, Half]:
    """Two random halves of every client's training nodes in round `t`, the first the smaller; both are all of them
    where there are fewer than two.
    """
    rows, _ = fed.rows("train")
    client = fed.batch.batch[rows]
    key = random.row_keys(fed.node_key[rows], "halves", t).long()
    order = torch.argsort(client * 2**34 + key)
    count = torch.bincount(client, minlength=fed.clients)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(rows), device=rows.device) - (count.cumsum(0) - count)[client[order]]
    first = place < count[client] // 2
    alone = count[client] < 2
    return _half(fed, rows[first | alone]), _half(fed, rows[~first | alone])


def _half(fed: Federation, rows: Tensor) -> Half:
    client = fed.batch.batch[rows]
    value = 1.0 / torch.bincount(client, minlength=fed.clients)[client].to(fed.dtype)
    place = torch.arange(len(rows), device=rows.device)
    return Half(rows, Sparse.of(client, place, value, (fed.clients, len(rows))))
