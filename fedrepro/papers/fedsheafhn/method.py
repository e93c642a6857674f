"""FedSheafHN (Liang et al. 2025, Algorithm 1): the server makes every client's weights from its graph embedding.

    a client's embedding x_i     mean over its nodes of the last convolution's output                       (Eq. 3)
    collaboration graph          nearest neighbours among the embeddings                                    (Eq. 4)
    sheaf diffusion              X <- X - sigma(Delta_F (I (x) W1) X W2), T_s times                         (Eq. 5-9)
    hypernetwork                 attention over clients, MLP, weights of both convolutions of every client  (Eq. 10, 11)
    clients                      T_c local epochs from these weights, with a linear head that stays local
    server                       a step along J^T Delta, Delta from generated and trained weights           (Eq. 12-15)

This is the corrected variant: it descends, and the generated weights are used and trained. `fedsheafhn_variants` has it
as printed (the sign that ascends) and as coded.

Decisions the paper leaves open stand in `fedsheafhn_options`, and here:

    SH-Q5    the first round uses the embeddings of the initialization; with r_in = 5 and "printed" age those of round 0
             serve rounds 5 to 9
    SH-Q8    "+ collaboration graph" before "+ sheaf diffusion": embeddings go straight to the hypernetwork, and stay
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrepro.baselines import malicious
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.local import Local
from fedrepro.engine.method import State, Update
from fedrepro.engine.traffic import BEFORE_TRAINING
from fedrepro.engine.training import train
from fedrepro.papers.fedsheafhn.facts import Memory, client_facts, clients_of, embed, server_facts
from fedrepro.papers.fedsheafhn.options import Options
from fedrepro.papers.fedsheafhn.server import together


@dataclass(frozen=True, kw_only=True)
class FedSheafHN(Options):
    """The rounds of Algorithm 1."""

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Local training from common initial weights, the first embeddings, and the first generated weights."""
        trained = self.warmed(fed)
        sent = self._embeddings(fed, trained, BEFORE_TRAINING)
        fed.traffic.send("up", "embedding", self._count_all(fed) * sent.shape[1] if self.uses_embeddings else 0)
        servers = [self.server(seed, sent[mine]) for seed, mine in zip(fed.seeds, clients_of(fed), strict=True)]
        memory = Memory(tuple(servers), sent, sent, sent, trained, (0.0,) * fed.runs)
        return fed, State({}, self._held(fed, memory, trained, 0), memory)

    def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
        """The generated weights, and what stayed with the client."""
        return state.personal

    def aggregate(self, state: State, update: Update) -> State:
        """The server's step, the embeddings where their round has come, and the weights of the next round."""
        fed, t, memory = update.fed, update.round, state.more
        delta = []
        for server, mine in zip(memory.servers, clients_of(fed), strict=True):
            vectors = self.vectors_of(memory.used[mine])
            change, size = self._change(update, mine)
            server.step(vectors, t, change)
            delta.append(size)
        sent, used = memory.sent, memory.used
        if self._at(t if self.age == "printed" else t + 1):
            arrived = self._embeddings(fed, update.after, t)
            sent = torch.where(update.active[:, None], arrived, sent)
        if self._at(t + 1):
            used = sent
        self._send(fed, update)
        after = Memory(memory.servers, used, sent, memory.first, update.after, tuple(delta))
        return State({}, self._held(fed, after, update.after, t + 1), after)

    def _change(self, update: Update, mine: slice) -> tuple[Weights, float]:
        """Delta of one run's clients, signed for descent, and its norm over that of the generated weights."""
        before = {name: update.before[name][mine] for name, _ in self.shapes}
        after = {name: update.after[name][mine] for name in before}
        one, two = (after, before) if self.sign == "ascent" else (before, after)  # SH-Q3
        change = {name: w - two[name] for name, w in one.items()}
        norms = [sum(float(w.norm()) ** 2 for w in part.values()) ** 0.5 for part in (change, before)]
        return change, norms[0] / norms[1] if norms[1] else 0.0

    def _at(self, t: int) -> bool:
        return bool(self.refresh) and t % self.refresh == 0

    def _held(self, fed: Federation, memory: Memory, own: Weights, t: int) -> Weights:
        """What the clients start round `t` with: their own weights, and what the server made for them."""
        made = []
        with torch.no_grad():
            for server, mine in zip(memory.servers, clients_of(fed), strict=True):
                vectors = self.vectors_of(memory.used[mine])
                made.append(server.generate(server.weights, vectors, t))
        new = together(made)
        return {name: new[name] if name in self.received else own[name] for name in own}

    # -- embeddings ---------------------------------------------------------------------------------------------------

    def warmed(self, fed: Federation) -> Weights:
        """Every client's weights after `warmup` epochs alone, `[clients, ...]`."""
        alone = Local(
            model=self.model, optimizer=self.optimizer, lr=self.lr, weight_decay=self.weight_decay,
            momentum=self.momentum, local_epochs=max(1, self._warmup),
        )  # fmt: skip
        return alone.start(fed)[1].personal if self._warmup == 0 else train(alone, fed, 1, evaluate=()).state.personal

    @property
    def _warmup(self) -> int:
        return self.local_epochs if self.warmup < 0 else self.warmup

    def _embeddings(self, fed: Federation, weights: Weights, t: int) -> Tensor:
        """What arrives at the server as the clients' embeddings `[clients, width]`."""
        if not self.uses_embeddings:
            return torch.zeros(fed.clients, 1, dtype=fed.dtype, device=fed.device)
        with torch.no_grad():
            found = embed(fed, weights, self.depth)
        return malicious.forged(fed, found, self.malicious, self.attack, self.tau, t)

    # -- traffic and facts --------------------------------------------------------------------------------------------

    def _count_all(self, fed: Federation) -> np.ndarray:
        return np.bincount(fed.run.cpu().numpy(), minlength=fed.runs)

    def _send(self, fed: Federation, update: Update) -> None:
        """Generated weights down, their change up, embeddings up in the rounds that ask for them; head and all else
        stay.
        """
        clients = np.bincount(fed.run[update.active].cpu().numpy(), minlength=fed.runs)
        each, t = sum(int(np.prod(shape)) for _, shape in self.shapes), update.round
        fed.traffic.send("down", "generated weights", clients * each, round=t)
        fed.traffic.send("up", "weight change", clients * each, round=t)
        if self.uses_embeddings and self._at(t if self.age == "printed" else t + 1):
            fed.traffic.send("up", "embedding", clients * self.width, round=t)

    def facts(self, fed: Federation, state: State) -> list[dict[str, Any]]:
        """Per run, after the last round: `delta` (see `Memory`) and the entries of `client_facts`, of the weights after
        local training, and of `server_facts`.
        """
        memory: Memory = state.more
        with torch.no_grad():
            logits = self.forward(memory.trained, fed, state)
        out = client_facts(fed, logits, malicious.chosen(fed, self.malicious))
        for run, (server, mine) in enumerate(zip(memory.servers, clients_of(fed), strict=True)):
            start = self.server(server.seed, memory.first[mine]).weights
            own = server_facts(server, self.vectors_of(memory.used[mine]), start)
            out[run] = {**out[run], "delta": memory.delta[run], **own}
        return out
