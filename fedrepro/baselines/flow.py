"""Train by Flow, from "Flow: Per-instance Personalized Federated Learning".

K. Panchal, S. Choudhary, N. Parikh, L. Zhang and H. Guan, NeurIPS 2023,
https://papers.nips.cc/paper_files/paper/2023/hash/3baf4eeffad860ca9c54aeab632716b4-Abstract-Conference.html.
Every instance is routed, layer by layer, through the global model theta or a local copy of it. Layer k of the routed
model mixes both before its activation:

    h_k = act( q_k,global F_k(h_{k-1}; theta) + q_k,local F_k(h_{k-1}; theta_local) ),   q_k = softmax(exit k)   (1)

A policy psi, which is a small network with one exit per layer, computes q_k `[instances, 2]` from the raw features. Its
loss is that of the routed model and a penalty on the route g, a mean over instances and layers:

    L(routed) + penalty mean -log(q_k,g^2 + 1e-6)                                                                (2)

In each round:

1. the server sends theta and psi; every client sets theta_local <- theta (`Flow.begin_round`);
2. every client splits its training instances into two random halves (`halves`);
3. on the first half the client takes `local_epochs` steps of theta_local on its cross-entropy (`Flow.local_steps`);
4. on the second half the client takes as many pairs of steps: psi on (2) with the models fixed (`Flow.routed_loss`),
   then theta on the cross-entropy of the pure global route (`Flow.local_steps`);
5. the server averages theta and psi; the copy is dropped (`Method.aggregate`).

Routes are soft in training and hard in prediction (`Flow.forward`). On a graph an instance is a node, and its own q
mixes its row of each layer. The policy reads only the node's own features. A client with fewer than two training nodes
uses them for both halves.

The paper leaves these decisions open, or its public code takes them otherwise:

- The penalty is on the global route (g = global), so that a node goes local where that pays. By its index the code
  penalizes the local route in its image models (`penalized="local"`).
- The copy is made anew in each round and never averaged; what its optimizer remembers stays, unless `optimizer_state`
  is "reset". The code comments the reset of the copy out, and averages the copy.
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
    """The training nodes of one half `[rows]`, and the matrix that averages over each client's `[clients, rows]`."""

    rows: Tensor
    mean: Sparse


@dataclass(frozen=True, kw_only=True)
class Flow(FedAvg):
    """FedAvg of a global model and a policy that routes nodes through it or through a local copy.

    Args:
        penalty: weight of the penalty on a route.
        penalized: that route, "global" or "local".
        policy_hidden: width of the policy's first hidden layer, which is halved from layer to layer.
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
        """Return the model's hops, since the policy reads only a node's own features."""
        return self.model.hops

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Draw the global model and the policy."""
        fed, state = super().start(fed)
        drawn = [self._policy(seed) for seed in fed.seeds]
        policy = {name: torch.stack([w[name] for w in drawn]).to(fed.device, fed.dtype) for name in drawn[0]}
        return fed, State({**state.shared, **policy}, {})

    def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
        """Return the received weights and a local copy of the global model (step 1)."""
        received = super().begin_round(fed, state, t)
        return {**received, **{LOCAL + name: w for name, w in self.parts(received)[0].items()}}

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """Yield the local steps of a round (steps 3 and 4).

        First the local copy moves, on one half of the training nodes. Then policy and global model move in turn, on
        the other half.
        """
        model = tuple(self.parts(state.shared)[0])
        local = tuple(LOCAL + name for name in model)
        policy = tuple(name for name in state.shared if name.startswith(POLICY))
        first, second = halves(fed, t)
        for epoch in range(self.local_epochs):
            yield Step(local, partial(self._alone, fed=fed.at(t, epoch), half=first, local=True))
        for epoch in range(self.local_epochs, 2 * self.local_epochs):
            seen = fed.at(t, epoch)
            if self.route == "learned":
                yield Step(policy, partial(self.routed_loss, fed=seen, half=second))
            yield Step(model, partial(self._alone, fed=seen, half=second, local=False))

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Return the policy's loss on all training nodes, `[clients]`."""
        return self.routed_loss(weights, fed, Half(*fed.rows("train")))

    def routed_loss(self, weights: Weights, fed: Federation, half: Half) -> Tensor:
        """Return the policy's loss (2) on one half, `[clients]`."""
        q = self.routes(weights, fed)
        loss = self._mean_loss(self._mixed(weights, fed, q), fed, half)
        side = 0 if self.penalized == "global" else 1
        terms = [-(part[half.rows, side].square() + 1e-6).log() for part in q]
        regular = half.mean @ (sum(terms[1:], terms[0]) / len(terms))[:, None]
        return loss + self.penalty * regular.squeeze(1)

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return the logits of the routed model (hard routes in evaluation), or of the global one without a copy."""
        model, copy = self.parts(weights)
        if self.route != "learned" or not copy:
            return self.model(copy if copy and self.route == "local" else model, fed)
        q = self.routes(weights, fed)
        if fed.clock is None:
            q = [F.one_hot(part.argmax(1), 2).to(part.dtype) for part in q]
        return self._mixed(weights, fed, q)

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Return per run the share of nodes that the averaged policy sends to the local route, layer by layer."""
        with torch.no_grad():
            q = self.routes(state.shared, fed.shared())
        run = fed.run[fed.batch.batch].masked_fill(fed.batch.ring > 0, -1)
        local = [(part[:, 1] > part[:, 0]).double() for part in q]
        return [
            {f"local_share_{k}": float(p[run == r].mean()) for k, p in enumerate(local, 1)} for r in range(fed.runs)
        ]

    # -- the network --------------------------------------------------------------------------------------------------

    def parts(self, weights: Weights) -> tuple[Weights, Weights]:
        """Return the global model and the local copy, which may be empty, each under the model's names."""
        model = {name: w for name, w in weights.items() if not name.startswith((LOCAL, POLICY))}
        copy = {name.removeprefix(LOCAL): w for name, w in weights.items() if name.startswith(LOCAL)}
        return model, copy

    def routes(self, weights: Weights, fed: Federation) -> list[Tensor]:
        """Return q of every layer, `[nodes, 2]` each: global, local. Every hidden layer of the policy has an exit."""
        q: list[Tensor] = []
        h: Tensor | Sparse = fed.input
        for k in range(1, len(self.model.widths) + 1):
            name = f"{POLICY}{{}}{k}.{{}}"
            hidden = layers.linear(fed, h, *(weights[name.format("hidden", part)] for part in ("weight", "bias")))
            h = F.relu(hidden)
            out = layers.linear(fed, h, *(weights[name.format("exit", part)] for part in ("weight", "bias")))
            q.append(torch.softmax(out, dim=1))
        return q

    def _mixed(self, weights: Weights, fed: Federation, q: list[Tensor]) -> Tensor:
        """Return the logits of the routed model, by (1)."""
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
        """Return the cross-entropy of the pure local or global route on one half, `[clients]`."""
        return self._mean_loss(self.model(self.parts(weights)[local], fed), fed, half)

    def _mean_loss(self, logits: Tensor, fed: Federation, half: Half) -> Tensor:
        """Return each client's mean cross-entropy over one half, `[clients]`."""
        losses = layers.node_losses(logits[half.rows], fed.batch.y[half.rows])
        return (half.mean @ losses[:, None]).squeeze(1)

    def _policy(self, seed: int) -> Weights:
        """Draw one run's policy, with Glorot's weights and zero biases."""
        policy, width = {}, self.model.features
        for k in range(1, len(self.model.widths) + 1):
            hidden = max(2, self.policy_hidden >> (k - 1))
            for part, shape in (("hidden", (width, hidden)), ("exit", (hidden, 2))):
                name = f"{POLICY}{part}{k}"
                policy[f"{name}.weight"] = glorot(*shape, seed=seed, name=f"{name}.weight")
                policy[f"{name}.bias"] = torch.zeros(shape[1])
            width = hidden
        return policy


def halves(fed: Federation, t: int) -> tuple[Half, Half]:
    """Split every client's training nodes at random for round `t`.

    The first half is the smaller. Both halves are all training nodes of a client that has fewer than two.
    """
    rows, _ = fed.rows("train")
    client = fed.batch.batch[rows]
    key = random.row_keys(fed.node_key[rows], "halves", t).long()
    order = torch.argsort(client * 2**34 + key)
    count = torch.bincount(client, minlength=fed.clients)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(rows), device=rows.device) - (count.cumsum(0) - count)[client[order]]
    first = rank < count[client] // 2
    alone = count[client] < 2
    return _half(fed, rows[first | alone]), _half(fed, rows[~first | alone])


def _half(fed: Federation, rows: Tensor) -> Half:
    """Return a half with the matrix of its clients' means."""
    client = fed.batch.batch[rows]
    value = 1.0 / torch.bincount(client, minlength=fed.clients)[client].to(fed.dtype)
    column = torch.arange(len(rows), device=rows.device)
    return Half(rows, Sparse.of(client, column, value, (fed.clients, len(rows))))
