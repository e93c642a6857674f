"""Train FedSheafHN: a server generates every client's backbone from embeddings that sheaf diffusion has mixed.

"Personalized Subgraph Federated Learning with Sheaf Collaboration", Wenfei Liang, Yanan Zhao, Rui She, Yiming Li and
Wee Peng Tay, ECAI 2025, https://arxiv.org/abs/2508.13642. Public code: https://github.com/CarrieWFF/FedSheafHN

The server generates the backbone of every client's model from one vector per client, the mean of the client's node
embeddings. It joins similar clients by edges, mixes their vectors by sheaf diffusion S, and turns the results into
weights by a hypernetwork H. Every client trains from its generated weights; its head, a linear classifier, never leaves
it. The server trains S and H along what the clients changed, and averages no weights:

    omega_b = H(S(X_0; theta); phi)                                                                       (Eq. 9, 11)
    theta <- theta - alpha J_theta(omega_b) Delta,  phi <- phi - beta J_phi(omega_b) Delta                (Eq. 12, 13)

X_0 `[clients, width]` holds the clients' embeddings, omega_b the generated weights of every client's convolutions, and
Delta `[clients, ...]` the change of omega_b in local training. theta and phi are the weights of S and H.

Algorithm 1 and its functions:

    1. every client trains from common weights by itself and sends its embedding (Eq. 3)    `start`, `warmed`
    2. every r_in rounds the server takes the embeddings it received as X_0                 `aggregate`, `_is_refresh`
    3. the server computes S(X_0; theta), generates omega_b and sends it                    `Server.generate`
    4. every client trains T_c epochs from its part of omega_b                              `local_steps` of `Method`
    5. every r_in rounds every client sends its embedding again                             `_embeddings`
    6. every client sends Delta                                                             `change`
    7. the server takes a step of theta and phi                                             `Server.step`

Decisions the paper leaves open, or that its text and its code answer differently:

    sign          The printed Delta, trained - generated, climbs the loss. We follow generated - trained (SH-Q3).
    age           With "printed" age the server uses embeddings that are r_in rounds old: those of round 0 serve rounds
                  5 to 9, before that those of step 1. "fresh" ones are of the round before (SH-Q5; see `protocol`).
    server step   Adam (Section 4.1), or plain steps (Eq. 12, 13), along the sum over clients (SH-Q6).
    ablations     In "+ Collaboration graph" the embeddings go straight to H and stay as they are (SH-Q8).
    neighbours    K = 3 up to 10 clients, else 5, by cosine similarity, made symmetric (SH-Q9).
    head          The last weight layer, the linear classifier of a `GCNHead` (SH-Q11).
    vectors       The server centres and scales each column of X_0 over the clients (SH-X0). Neither paper nor code
                  does it. Without it clients get nearly equal weights on Cora with 20 clients: how far apart they
                  end with it and without it is the column `generated_spread` of SH-M2.

This file is the corrected method. Its server descends, and clients use and train the generated weights. `protocol`
has the method as printed and as coded. `fedrepro.baselines.malicious` has the paper's attack on embeddings, since
FED-PUB is attacked with it too. pFedHN has a hypernetwork too, but learns a client's vector and joins no clients.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedrepro.baselines.malicious import Forgery
from fedrepro.baselines.personal import clients_of, embed
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.local import Local
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.nn.optim import Optimizer
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.engine.scores import score
from fedrepro.engine.traffic import BEFORE_TRAINING
from fedrepro.engine.training import train
from fedrepro.errors import one_of, require
from fedrepro.papers.fedsheafhn.hypernetwork import Hypernetwork, Shapes
from fedrepro.papers.fedsheafhn.server import Server
from fedrepro.papers.fedsheafhn.sheaf import Diffusion

P = TypeVar("P", Diffusion, Hypernetwork, Forgery)


@dataclass(frozen=True)
class Memory:
    """The state of FedSheafHN between rounds, next to the clients' weights.

    Args:
        servers: one per run.
        used: X_0 as the server uses it, before centring `[clients, width]`.
        sent: the embeddings that arrived last `[clients, width]`.
        first: X_0 of the first round `[clients, width]`.
        trained: the clients' weights after their last local training `[clients, ...]`.
        delta: per run, the norm of the last Delta over that of the generated weights.
    """

    servers: tuple[Server, ...]
    used: Tensor
    sent: Tensor
    first: Tensor
    trained: Weights
    delta: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class FedSheafHN(Method):
    """Personalized models generated by a server from the clients' embeddings (Algorithm 1).

    The options are flat, as in the key of a `Run`. Those of a part of the server take their defaults from that part
    and are put together once, in `collaboration`, `hyper` and `forgery`.

    Args:
        model: a `GCN`, whose last weight layer is the head.
        warmup: local epochs before the first embedding; -1 for `local_epochs`.
        refresh: r_in, rounds between two updates of X_0; 0 for none after the first.
        age: "printed" or "fresh" embeddings, see the module's text.
        vectors: the server describes a client by its "embedding", or by its number ("one-hot").
        standardized: the server centres and scales the columns of X_0.
        graph, neighbours: the collaboration graph, "knn" with K neighbours (0 for the rule above) or "complete".
        sign: the server's step is a "descent", or the printed "ascent".
        server_optimizer: "adam" or "sgd", of both parts of the server.
        sheaf_lr, sheaf_weight_decay, hyper_lr, hyper_weight_decay: of theta and of phi (Table 9).
        diffusion, residual, steps, channels, stalk, maps, learner, maps_made, gate, augmented, sheaf_dropout: see
            `Diffusion`, where the first is `kind` and the last `dropout`.
        attention, hyper_hidden, hyper_layers, output, hyper_dropout: see `Hypernetwork`.
        malicious, attack, tau: see `Forgery`, where the first is `share`.
    """

    model: GCN
    warmup: int = -1
    refresh: int = 5
    age: str = "printed"
    vectors: str = "embedding"
    standardized: bool = True
    graph: str = "knn"
    neighbours: int = 0
    sign: str = "descent"
    server_optimizer: str = "adam"
    sheaf_lr: float = 0.001
    sheaf_weight_decay: float = 5e-4
    hyper_lr: float = 0.001
    hyper_weight_decay: float = 0.0
    diffusion: str = Diffusion.kind
    residual: bool = Diffusion.residual
    steps: int = Diffusion.steps
    channels: int = Diffusion.channels
    stalk: int = Diffusion.stalk
    maps: str = Diffusion.maps
    learner: str = Diffusion.learner
    maps_made: str = Diffusion.maps_made
    gate: bool = Diffusion.gate
    augmented: bool = Diffusion.augmented
    sheaf_dropout: float = Diffusion.dropout
    attention: str = Hypernetwork.attention
    hyper_hidden: int = Hypernetwork.hidden
    hyper_layers: int = Hypernetwork.layers
    output: str = Hypernetwork.output
    hyper_dropout: float = Hypernetwork.dropout
    malicious: float = Forgery.share
    attack: str = Forgery.attack
    tau: float = Forgery.tau

    def __post_init__(self) -> None:
        super().__post_init__()
        plain = isinstance(self.model, GCN) and not self.model.input_norm
        require(plain, "model", "a GCN without input_norm", self.model)
        require(len(self.model.widths) >= 2, "layers", "at least 2, the last of which is the head", self.model.layers)
        one_of("age", self.age, ("printed", "fresh"))
        one_of("vectors", self.vectors, ("embedding", "one-hot"))
        one_of("graph", self.graph, ("knn", "complete"))
        one_of("sign", self.sign, ("descent", "ascent"))
        for name, least in (("warmup", -1), ("refresh", 0), ("neighbours", 0)):
            require(getattr(self, name) >= least, name, f"at least {least}", getattr(self, name))
        # Each part raises if one of its options is impossible.
        _ = self.collaboration, self.hyper, self.forgery, self.rules

    # -- the parts of the server, from the options --------------------------------------------------------------------

    @cached_property
    def collaboration(self) -> Diffusion:
        """Return S, the network on the collaboration graph."""
        return self._part(Diffusion, kind="diffusion", dropout="sheaf_dropout")

    @cached_property
    def hyper(self) -> Hypernetwork:
        """Return H, the hypernetwork."""
        return self._part(Hypernetwork, hidden="hyper_hidden", layers="hyper_layers", dropout="hyper_dropout")

    @cached_property
    def forgery(self) -> Forgery:
        """Return the attack on the embeddings."""
        return self._part(Forgery, share="malicious")

    def _part(self, part: type[P], /, **flat: str) -> P:
        """Return a part of the server, each option taken by name.

        Args:
            part: its class.
            flat: our names of those options that have another name in the part.
        """
        return part(**{item.name: getattr(self, flat.get(item.name, item.name)) for item in fields(part)})

    @cached_property
    def rules(self) -> dict[str, Optimizer]:
        """Return the optimizers of theta and phi."""
        return {
            "sheaf": Optimizer(self.server_optimizer, lr=self.sheaf_lr, weight_decay=self.sheaf_weight_decay),
            "hyper": Optimizer(self.server_optimizer, lr=self.hyper_lr, weight_decay=self.hyper_weight_decay),
        }

    @property
    def shapes(self) -> Shapes:
        """Return names and shapes of the generated tensors, the weights and biases of the backbone."""
        layers = enumerate(self.model.widths[:-1], start=1)
        return tuple(
            (f"layer{i}.{part}", shape)
            for i, widths in layers
            for part, shape in (("weight", widths), ("bias", widths[1:]))
        )

    @property
    def personal(self) -> tuple[str, ...]:
        """Return the names of the head's weights, which stay with the client."""
        return tuple(f"layer{len(self.model.widths)}.{part}" for part in ("weight", "bias"))

    @property
    def received(self) -> tuple[str, ...]:
        """Return the names of the generated tensors that take effect at the clients, here all."""
        return tuple(name for name, _ in self.shapes)

    @property
    def uses_embeddings(self) -> bool:
        """Return whether clients send embeddings at all."""
        return self.vectors == "embedding"

    def vectors_of(self, embeddings: Tensor, trained: Tensor | None = None) -> Tensor:
        """Return X_0, which describes the clients of one run at its server `[clients, width]`.

        Args:
            embeddings: as they arrived `[clients, width]`.
            trained: the embeddings whose mean and standard deviation are used, those of the clients that trained;
                None for `embeddings`.
        """
        if not self.uses_embeddings:
            return torch.eye(len(embeddings), dtype=embeddings.dtype, device=embeddings.device)
        if not self.standardized or len(embeddings) == 1:
            return embeddings
        base = embeddings if trained is None else trained
        mean = base.mean(0)
        return (embeddings - mean) / (base - mean).square().mean(0).sqrt().clamp(min=1e-12)

    def server(self, seed: int, embeddings: Tensor) -> Server:
        """Return the server of a run at the start, a function of its seed and its clients' first embeddings."""
        vectors = self.vectors_of(embeddings)
        model = {name: w[0] for name, w in self.model.init([seed], vectors.dtype, vectors.device).items()}
        near = None if self.graph == "complete" else self.neighbours or (3 if len(vectors) <= 10 else 5)
        server = Server(seed=seed, neighbours=near, diffusion=self.collaboration, hyper=self.hyper, rules=self.rules)
        return server.initialize(vectors, model)

    # -- a round ------------------------------------------------------------------------------------------------------

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Train every client by itself, send the first embeddings, and generate the first weights.

        The state holds what each client starts the next round with as its `personal` weights: the generated backbone
        and the head that stayed with the client. So the hooks of `Method` serve for the local epochs.
        """
        trained = self.warmed(fed)
        sent = self._embeddings(fed, trained, BEFORE_TRAINING)
        fed.traffic.send("up", "embedding", _per_run(fed) * sent.shape[1] if self.uses_embeddings else 0)
        servers = tuple(self.server(seed, sent[clients_of(fed, run)]) for run, seed in enumerate(fed.seeds))
        memory = Memory(servers, used=sent, sent=sent, first=sent, trained=trained, delta=(0.0,) * fed.runs)
        return fed, State({}, self._generate(fed, memory, 0), memory)

    def aggregate(self, state: State, update: Update) -> State:
        """Take the server's step (Eq. 12, 13), refresh the embeddings in their round, and generate the next weights."""
        fed, t, memory = update.fed, update.round, state.more
        sizes = []
        for run, server in enumerate(memory.servers):
            members = clients_of(fed, run)
            delta, size = self.change(update, members)
            server.step(self.vectors_of(memory.used[members]), t, delta)
            sizes.append(size)
        sent, used = memory.sent, memory.used
        if self._is_sending(t):
            arrived = self._embeddings(fed, update.after, t)
            sent = torch.where(update.active[:, None], arrived, sent)
        if self._is_refresh(t + 1):
            used = sent
        self._count_messages(fed, update)
        memory = replace(memory, used=used, sent=sent, trained=update.after, delta=tuple(sizes))
        return State({}, self._generate(fed, memory, t + 1), memory)

    def change(self, update: Update, members: slice) -> tuple[Weights, float]:
        """Return Delta of one run's clients `[clients, ...]`, and its norm over that of the generated weights.

        The sign of Delta is such that the server subtracts J^T Delta (SH-Q3).
        """
        before = {name: update.before[name][members] for name, _ in self.shapes}
        after = {name: update.after[name][members] for name in before}
        minuend, subtrahend = (after, before) if self.sign == "ascent" else (before, after)
        delta = {name: w - subtrahend[name] for name, w in minuend.items()}
        norms = [sum(float(w.norm()) ** 2 for w in part.values()) ** 0.5 for part in (delta, before)]
        return delta, norms[0] / norms[1] if norms[1] else 0.0

    def _is_refresh(self, t: int) -> bool:
        """Return whether the server takes new embeddings before round `t`."""
        return bool(self.refresh) and t % self.refresh == 0

    def _is_sending(self, t: int) -> bool:
        """Return whether clients send their embedding after round `t`."""
        return self._is_refresh(t if self.age == "printed" else t + 1)

    def _generate(self, fed: Federation, memory: Memory, t: int) -> Weights:
        """Return the weights with which clients start round `t`: generated ones (Eq. 9, 11), and the clients' heads."""
        parts = []
        with torch.no_grad():
            for run, server in enumerate(memory.servers):
                vectors = self.vectors_of(memory.used[clients_of(fed, run)])
                parts.append(server.generate(server.weights, vectors, t))
        return self.deliver(parts, memory.trained)

    def deliver(self, generated: list[Weights], weights: Weights) -> Weights:
        """Return the clients' weights after the server sent what it generated.

        Args:
            generated: the tensors of every run's clients, `[clients of the run, ...]`.
            weights: what the clients had `[clients, ...]`.
        """
        new = {name: torch.cat([part[name] for part in generated]) for name in self.received}
        return {**weights, **new}

    # -- embeddings ---------------------------------------------------------------------------------------------------

    def local_options(self, epochs: int) -> dict[str, Any]:
        """Return the options of `Local` for a client that trains by itself, at least one epoch."""
        common = {item.name: getattr(self, item.name) for item in fields(Local)}
        return {**common, "local_epochs": max(1, epochs), "participation": 1.0}

    def warmed(self, fed: Federation) -> Weights:
        """Return every client's weights `[clients, ...]` after `warmup` epochs by itself."""
        epochs = self.local_epochs if self.warmup < 0 else self.warmup
        alone = Local(**self.local_options(epochs))
        return train(alone, fed, 1, evaluate=()).state.personal if epochs else alone.start(fed)[1].personal

    def mean_embeddings(self, fed: Federation, weights: Weights) -> Tensor:
        """Return the clients' embeddings `[clients, hidden]`, the mean over their nodes (Eq. 3).

        A node's embedding is the output of the last convolution, before the ReLU and without dropout.
        """
        h = embed(self.model, weights, fed)
        client = fed.batch.batch
        share = 1.0 / fed.count()[client].to(h.dtype)
        mean: Tensor = (
            Sparse.of(client, torch.arange(fed.nodes, device=fed.device), share, (fed.clients, fed.nodes)) @ h
        )
        return mean

    def _embeddings(self, fed: Federation, weights: Weights, t: int) -> Tensor:
        """Return what arrives at the server as the clients' embeddings `[clients, width]`."""
        if not self.uses_embeddings:
            return torch.zeros(fed.clients, 1, dtype=fed.dtype, device=fed.device)
        with torch.no_grad():
            return self.forgery.arrived(fed, self.mean_embeddings(fed, weights), t)

    # -- traffic and facts --------------------------------------------------------------------------------------------

    def _count_messages(self, fed: Federation, update: Update) -> None:
        """Count a round's messages. A client that does not train gets weights too, which is not counted (SH-CNT)."""
        clients, t = _per_run(fed, update.active), update.round
        scalars = sum(int(np.prod(shape)) for _, shape in self.shapes)
        fed.traffic.send("down", "generated weights", clients * scalars, round=t)
        fed.traffic.send("up", "weight change", clients * scalars, round=t)
        if self.uses_embeddings and self._is_sending(t):
            fed.traffic.send("up", "embedding", clients * self.model.widths[-1][0], round=t)

    def facts(self, fed: Federation, state: State) -> list[dict[str, Any]]:
        """Return what each run reports of itself after the last round.

        Returns:
            Per run `delta` (see `Memory`), the entries of `Server.facts`, and of the clients after local training:
            `client_test`, the test accuracy of each (None without test nodes), its mean `client_mean` and standard
            deviation `client_sd` over clients, its mean `honest_test` over honest clients, and `malicious_clients`, the
            numbers of the others.
        """
        memory: Memory = state.more
        with torch.no_grad():
            accuracies = score(fed, self.forward(memory.trained, fed, state))["each"]
        malicious = self.forgery.clients(fed).cpu().numpy()
        facts = []
        for run, server in enumerate(memory.servers):
            members = clients_of(fed, run)
            accuracy, forged = accuracies[members], malicious[members]
            scored = np.isfinite(accuracy)
            clients = {
                "client_test": [float(a) if ok else None for a, ok in zip(accuracy, scored, strict=True)],
                "client_mean": float(accuracy[scored].mean()),
                "client_sd": float(accuracy[scored].std()),
                "honest_test": float(accuracy[scored & ~forged].mean()),
                "malicious_clients": np.flatnonzero(forged).tolist(),
                "delta": memory.delta[run],
            }
            start = self.server(server.seed, memory.first[members]).weights
            facts.append({**clients, **server.facts(self.vectors_of(memory.used[members]), start)})
        return facts


def _per_run(fed: Federation, chosen: Tensor | slice = slice(None)) -> np.ndarray:
    """Return how many of some clients belong to each run, `[runs]`."""
    return np.bincount(fed.run[chosen].cpu().numpy(), minlength=fed.runs)
