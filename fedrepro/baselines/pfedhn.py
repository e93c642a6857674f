"""pFedHN (Shamsian et al. 2021): a hypernetwork at the server writes every client's weights.

    theta_i = h(v_i; phi)                    generated; v_i is a learned description of client i, kept at the server
    Delta_i = theta_i - theta~_i             theta~_i after client i's local steps
    phi <- phi - beta (d theta_i / d phi)^T Delta_i,   v_i <- v_i - beta (d theta_i / d v_i)^T Delta_i

With one plain local step Delta is a multiple of the gradient, so that this descends; the printed sign of Delta, after
minus before with a minus, would ascend. Nothing but weights travels. The published method draws one client a step; here
all clients train in a round and the server takes one step along their mean, or one for each in turn.

The output layers are scaled such that every generated tensor starts with the spread of the model's own initialization:
a plain linear layer's would be far off for wide inputs. What the server holds is moved in place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.baselines.personal import clients_of, last_layers, stacked
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import glorot
from fedrepro.engine.nn.optim import Optimizer, OptimizerState
from fedrepro.errors import one_of, require

OUT = "out."  # the names of the output layers, one per generated tensor


class Server(NamedTuple):
    """Per run: the hypernetwork as one slice, its optimizer's state, and the last Delta's relative size."""

    networks: tuple[Weights, ...]
    moments: tuple[OptimizerState, ...]
    delta: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class PFedHN(Method):
    """Args:
    server_lr, server_momentum, server_weight_decay: of the server's SGD, for the hypernetwork and the descriptions.
    hyper_hidden, hyper_layers: width and number of hidden layers of the hypernetwork.
    embedding: length of a description v_i; 0 for 1 + clients // 4.
    clip: the server's gradient is scaled down to this norm.
    server_steps: "one" a round along the mean over clients, or "each" client's in turn.
    personal_layers: how many layers, from the last, are not generated but stay with the client (1: pFedHN-PC).
    """

    optimizer_state: str = "reset"
    server_lr: float = 0.01
    server_momentum: float = 0.9
    server_weight_decay: float = 1e-3
    hyper_hidden: int = 100
    hyper_layers: int = 3
    embedding: int = 0
    clip: float = 50.0
    server_steps: str = "one"
    personal_layers: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("server_steps", self.server_steps, ("one", "each"))
        for name, least in (("hyper_hidden", 1), ("hyper_layers", 0), ("embedding", 0)):
            require(getattr(self, name) >= least, name, f"at least {least}", getattr(self, name))
        require(self.clip > 0, "clip", "positive", self.clip)
        most = len(self.model.widths) - 1
        require(0 <= self.personal_layers <= most, "personal_layers", f"from 0 to {most}", self.personal_layers)
        self._server_rule()

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the weights that are not generated."""
        return last_layers(self.model, self.personal_layers)

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """The hypernetworks and what they generate."""
        common = self.model.init(fed.seeds, fed.dtype, fed.device)
        own = {name: w[fed.run].clone() for name, w in common.items()}
        generated = {name: w for name, w in common.items() if name not in self.heads}
        made = [self._initial(fed, run, {n: w[run] for n, w in generated.items()}) for run in range(fed.runs)]
        moments = tuple(self._server_rule().init(network) for network in made)
        server = Server(tuple(made), moments, (math.nan,) * fed.runs)
        return fed, State({}, self._written(fed, server, own), server)

    def aggregate(self, state: State, update: Update) -> State:
        """The server's steps along Delta, and the weights it then generates."""
        fed, server = update.fed, state.more
        sizes = []
        for run, (network, moments) in enumerate(zip(server.networks, server.moments)):
            part = clients_of(fed, run)
            trained = update.active[part].nonzero().squeeze(1)
            names = [name.removeprefix(OUT).removesuffix(".weight") for name in network if _is_output(name)]
            delta = {name: (update.before[name][part] - update.after[name][part])[trained] for name in names}
            groups = [[i] for i in range(len(trained))] if self.server_steps == "each" else [[*range(len(trained))]]
            for group in groups:
                self._step(network, moments, trained[group], {name: d[group] for name, d in delta.items()})
            received = {name: update.before[name][part] for name in names}
            sizes.append(float(stacked(delta, slice(None)).norm() / stacked(received, trained).norm()))
        self._count(fed, update)
        server = server._replace(delta=tuple(sizes))
        return State({}, self._written(fed, server, update.after), server)

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Per run: `delta`, size of the last Delta over that of the weights; `spread`, mean distance of clients'
        generated weights from their mean, over that mean's norm.
        """
        found = []
        for run, delta in enumerate(state.more.delta):
            written = {name: w for name, w in state.personal.items() if name not in self.heads}
            rows = stacked(written, clients_of(fed, run))
            spread = (rows - rows.mean(0)).norm(dim=1).mean() / rows.mean(0).norm()
            found.append({"delta": delta, "spread": float(spread)})
        return found

    # -- the hypernetwork ---------------------------------------------------------------------------------------------

    def _server_rule(self) -> Optimizer:
        return Optimizer("sgd", self.server_lr, self.server_weight_decay, self.server_momentum)

    def _initial(self, fed: Federation, run: int, like: Weights) -> Weights:
        """One run's hypernetwork: `[1, ...]` tensors; output layers scaled to the spread of `like`, the model's
        initial weights, and constant ones (biases) written as they are.
        """
        clients, seed = len(fed.sources[run].parts), fed.seeds[run]
        width = self.embedding or 1 + clients // 4
        made = {"clients": random.normal((clients, width), "hypernetwork clients", seed)}
        for i in range(self.hyper_layers + 1):
            shape = (width if i == 0 else self.hyper_hidden, self.hyper_hidden)
            made[f"hyper{i}.weight"] = glorot(*shape, seed=seed, name=f"hyper{i}.weight")
            made[f"hyper{i}.bias"] = torch.zeros(self.hyper_hidden)
        network = {name: w.to(fed.device, fed.dtype)[None] for name, w in made.items()}
        hidden = self._hidden(network, torch.arange(clients, device=fed.device))
        for name, w in like.items():
            drawn = glorot(self.hyper_hidden, w.numel(), seed=seed, name=f"{OUT}{name}").to(fed.device, fed.dtype)
            spread = w.std(correction=0) if w.numel() > 1 else w.new_zeros(())
            written = (hidden @ drawn).std(correction=0)
            network[f"{OUT}{name}.weight"] = drawn.mul_(spread / written)[None]
            bias = torch.zeros_like(w) if bool(spread > 0) else w
            network[f"{OUT}{name}.bias"] = bias.flatten()[None].clone()
        return network

    def _hidden(self, network: Weights, clients: Tensor) -> Tensor:
        h = network["clients"][0][clients]
        for i in range(self.hyper_layers + 1):
            h = (F.relu(h) if i else h) @ network[f"hyper{i}.weight"][0] + network[f"hyper{i}.bias"]
        return h

    def generate(self, network: Weights, clients: Tensor) -> Weights:
        """h(v_i; phi) of some clients of a run: `[clients, parameters]` per generated tensor."""
        h = self._hidden(network, clients)
        outputs = [name.removesuffix(".weight") for name in network if _is_output(name)]
        return {n.removeprefix(OUT): h @ network[f"{n}.weight"][0] + network[f"{n}.bias"] for n in outputs}

    def _written(self, fed: Federation, server: Server, held: Weights) -> Weights:
        """What clients hold: generated weights, and their own heads as they are in `held`."""
        out = dict(held)
        for name in (name for name in held if name not in self.heads):
            out[name] = torch.empty_like(held[name])
        with torch.no_grad():
            for run, network in enumerate(server.networks):
                part = clients_of(fed, run)
                every = torch.arange(part.stop - part.start, device=fed.device)
                for name, w in self.generate(network, every).items():
                    out[name][part] = w.view(-1, *held[name].shape[1:])
        return out

    def _step(self, network: Weights, moments: OptimizerState, clients: Tensor, delta: Weights) -> None:
        """One step along the vector-Jacobian products of the clients' Delta, their mean; in place."""
        change = {name: d.flatten(1) * (1 / len(clients)) for name, d in delta.items()}
        leaves = {name: w.detach().requires_grad_() for name, w in network.items() if not name.startswith(OUT)}
        with torch.enable_grad():
            h = self._hidden(leaves, clients)
        back = [d @ network[f"{OUT}{name}.weight"][0].T for name, d in reversed(change.items())]
        found = torch.autograd.grad(h, list(leaves.values()), sum(back[1:], back[0]))
        h, grads = h.detach(), dict(zip(leaves, found))
        grads |= {f"{OUT}{name}.bias": d.sum(0, keepdim=True) for name, d in change.items()}
        grads |= {f"{OUT}{name}.weight": (h.T @ d)[None] for name, d in change.items()}
        norm = torch.stack([grads[name].norm() for name in network]).norm()
        scale = torch.clamp(self.clip / (norm + 1e-6), max=1.0)
        decay, rule = self.server_weight_decay, Optimizer("sgd", self.server_lr, 0.0, self.server_momentum)
        # weight decay after clipping, added in place: the output layers are a hundred times the client's weights
        rule.step(network, {n: g.mul_(scale).add_(network[n], alpha=decay) for n, g in grads.items()}, moments)

    def _count(self, fed: Federation, update: Update) -> None:
        each = sum(w[0].numel() for name, w in update.after.items() if name not in self.heads)
        trained = torch.bincount(fed.run[update.active], minlength=fed.runs).cpu().numpy()
        fed.traffic.send("down", "weights", trained * each, round=update.round)
        fed.traffic.send("up", "weights", trained * each, round=update.round)


def _is_output(name: str) -> bool:
    return name.startswith(OUT) and name.endswith(".weight")
