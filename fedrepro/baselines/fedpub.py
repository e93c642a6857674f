"""Train by FED-PUB, from "Personalized Subgraph Federated Learning".

J. Baek, W. Jeong, J. Jin, J. Yoon and S. J. Hwang, ICML 2023, arXiv:2206.10206. Every client receives a separate
average, in which clients weigh more if their models act alike on one random graph, the proxy. A client also masks the
weights W_i that it receives. Its mask mu_i has the shape of each matrix, starts at 1 and never leaves the client:

    loss        L_i(W_i o mu_i) + l1 ||mu_i||_1 + l2 ||W_i - W_i^received||                                      (1)
    embedding   h_i = mean over the proxy's nodes of the last hidden layer under pruned W_i o mu_i, `[hidden]`   (2)
    server      a_ij = exp(scale cos(h_i, h_j)) / sum_k exp(scale cos(h_i, h_k)),    W_i <- sum_j a_ij W_j       (3)

Before training the server draws the proxy and sends it to all clients (`FedPub.start`). In each round:

1. the server sends W_i to client i, which keeps its mask and its optimizer state (`Method.begin_round`);
2. every client takes `local_epochs` steps on (1) (`FedPub.local_loss`);
3. every client computes its embedding (2) and sends it with its unmasked weights (`FedPub.embeddings`);
4. the server computes the similarities and the averages of (3) (`FedPub.similarity`, `FedPub.aggregate`).

The paper leaves these decisions open, or its public code takes them otherwise:

- The code computes both penalties from detached copies, so that their gradient is 0 (`penalties="coded"`).
- The code does not square the norm of the proximal term, which it takes of each tensor (`norm="plain"`). We take this
  norm under both `penalties`, also the printed ones.
- The first round starts from one common model and has no proximal term.
- A client without training nodes takes no step and enters no average. It still sends its embedding and receives one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.baselines.malicious import check_attack_options, forge_embeddings
from fedrepro.baselines.personal import chunk_of, clients_of, embed, receivers, require_layers
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.nn import random
from fedrepro.errors import one_of, require

MASK = ".mask"


class Server(NamedTuple):
    """The server's memory: the proxy graph and the last averaging weights `[receivers, senders]` of each run."""

    proxies: tuple[Federation, ...]
    similarity: tuple[Tensor, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FedPub(Method):
    """A personal masked network per client, averaged by similarity on a random graph.

    Args:
        scale: factor of the cosine in the exponent: 3 for disjoint clients, 5 for overlapping ones. With 0 the
            average is uniform.
        sparsity: l1, weight of the masks' L1 norm. Mask entries below it count as 0 in evaluation.
        proximal: l2, weight of the distance to the received weights.
        penalties: "printed" (with their gradient), or "coded" (without it, as in the authors' public code).
        norm: norm of the proximal term, for each tensor: "plain" (as in the code, under both `penalties`) or "squared".
        masks: whether weights are masked.
        proxies: number of random graphs that form the proxy.
        proxy_nodes: nodes of each of them.
        proxy_density: their edge probability.
        malicious, attack, tau: forged embeddings of a share of the clients, see `malicious` (FedSheafHN, Figure 7).
    """

    scale: float = 3.0
    sparsity: float = 1e-3
    proximal: float = 1e-3
    penalties: str = "printed"
    norm: str = "plain"
    masks: bool = True
    proxies: int = 5
    proxy_nodes: int = 100
    proxy_density: float = 0.1
    malicious: float = 0.0
    attack: str = "same"
    tau: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_layers(self.model, "FED-PUB")
        check_attack_options(self.malicious, self.attack, self.tau)
        one_of("penalties", self.penalties, ("printed", "coded"))
        one_of("norm", self.norm, ("plain", "squared"))
        for name in ("scale", "sparsity", "proximal"):
            require(getattr(self, name) >= 0, name, "zero or positive", getattr(self, name))
        require(self.proxies >= 1 and self.proxy_nodes >= 1, "proxies", "at least one node", self.proxies)
        require(0 <= self.proxy_density <= 1, "proxy_density", "in [0, 1]", self.proxy_density)

    @property
    def receptive(self) -> int | None:
        """Return the model's hops, since neither penalty depends on a node."""
        return self.model.hops

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Draw one common model, masks of ones for its matrices, and the proxy graph, which every client receives."""
        common = self.model.init(fed.seeds, fed.dtype, fed.device)
        personal = {name: w[fed.run].clone() for name, w in common.items()}
        if self.masks:
            personal |= {name + MASK: torch.ones_like(w) for name, w in personal.items() if w.dim() > 2}
        graphs = tuple(self._proxy(fed, seed) for seed in fed.seeds)
        # The proxy has both directions of an edge, and one of them costs two indices.
        sizes = [g.nodes * g.features + g.batch.edge_index.shape[1] for g in graphs]
        sent = torch.bincount(fed.run, minlength=fed.runs) * torch.tensor(sizes, device=fed.device)
        fed.traffic.send("down", "proxy graph", sent.cpu().numpy())
        return fed, State({}, personal, Server(graphs))

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return the logits of the masked network. Masks are pruned in evaluation."""
        return self.model(self.masked(weights, pruned=fed.clock is None), fed)

    def masked(self, weights: Weights, pruned: bool) -> Weights:
        """Return W o mu for each matrix, without the entries |mu| < l1 if `pruned`."""
        out = {name: w for name, w in weights.items() if not name.endswith(MASK)}
        for name in list(out):
            mask = weights.get(name + MASK)
            if mask is not None:
                out[name] = out[name] * (mask * (mask.abs() >= self.sparsity) if pruned else mask)
        return out

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Return the loss (1), `[clients]`."""
        loss = super().local_loss(weights, fed, state, t)
        if self.penalties == "coded":
            return loss
        if self.sparsity:
            for name in (name for name in weights if name.endswith(MASK)):
                loss = loss + self.sparsity * weights[name].abs().flatten(1).sum(1)
        if self.proximal and t > 0:
            part = chunk_of(fed)
            for name in (name for name in weights if not name.endswith(MASK)):
                away = (weights[name] - state.personal[name][part]).flatten(1)
                norm = away.square().sum(1) if self.norm == "squared" else torch.linalg.vector_norm(away, dim=1)
                loss = loss + self.proximal * norm
        return loss

    def aggregate(self, state: State, update: Update) -> State:
        """Average the clients that trained for each client that receives, by (3). Masks stay with their clients."""
        fed, server = update.fed, state.more
        taking, similarities = receivers(fed, update.active), []
        personal = {name: w if name.endswith(MASK) else w.clone() for name, w in update.after.items()}
        sent = self.embeddings(fed, update.after, server.proxies, taking)
        sent = forge_embeddings(fed, sent, self.malicious, self.attack, self.tau, update.round)
        for run in range(fed.runs):
            part = clients_of(fed, run)
            senders, takers = (index[part].nonzero().squeeze(1) for index in (update.active, taking))
            a = self.similarity(sent[part], takers, senders)
            for name, w in personal.items():
                if not name.endswith(MASK):
                    given = update.after[name][part][senders].flatten(1)
                    w[part][takers] = (a @ given).view(-1, *w.shape[1:])
            similarities.append(a)
        self._count(fed, update, taking)
        return State({}, personal, server._replace(similarity=tuple(similarities)))

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Return per run the share `pruned` of mask entries that evaluation sets to 0, and, if all clients trained,
        facts about the averaging weights.

        `similarity_spread` is the spread of the weights between different clients, `similarity_self` the mean weight
        of a client in its own average.
        """
        masks = [w for name, w in state.personal.items() if name.endswith(MASK)]
        facts = []
        for run, a in enumerate(state.more.similarity):
            part = clients_of(fed, run)
            below = sum(int((w[part].abs() < self.sparsity).sum()) for w in masks)
            entries = sum(w[part].numel() for w in masks)
            fact = {"pruned": below / max(1, entries)}
            if a.shape[0] == a.shape[1] > 1:
                others = a[~torch.eye(len(a), dtype=torch.bool, device=a.device)]
                fact["similarity_spread"] = float(others.max() - others.min())
                fact["similarity_self"] = float(a.diagonal().mean())
            facts.append(fact)
        return facts

    # -- the server ---------------------------------------------------------------------------------------------------

    def _proxy(self, fed: Federation, seed: int) -> Federation:
        """Draw random graphs with normal features, the same for all clients and rounds of a run."""
        count, nodes = self.proxies, self.proxy_nodes
        drawn = random.uniform((count, nodes, nodes), "proxy edges", seed) < self.proxy_density
        block, row, col = torch.triu(drawn, diagonal=1).nonzero(as_tuple=True)
        ends = torch.stack([row, col]) + block * nodes
        data = Data(
            x=random.normal((count * nodes, fed.features), "proxy features", seed),
            edge_index=torch.cat([ends, ends.flip(0)], dim=1),
            y=torch.zeros(count * nodes, dtype=torch.long),
            num_classes=fed.classes,
        )
        return Federation.of(data, [torch.arange(count * nodes)], seed, device=fed.device, dtype=fed.dtype)

    @torch.no_grad()
    def embeddings(self, fed: Federation, weights: Weights, proxies: tuple[Federation, ...], who: Tensor) -> Tensor:
        """Return h_i of equation (2), `[clients, hidden]`; 0 for clients that are not in `who`."""
        out = torch.zeros(fed.clients, self.model.widths[-1][0], dtype=fed.dtype, device=fed.device)
        for client in who.nonzero().squeeze(1).tolist():
            pruned = self.masked({name: w[client : client + 1] for name, w in weights.items()}, pruned=True)
            out[client] = embed(self.model, pruned, proxies[int(fed.run[client])]).mean(0)
        return out

    def similarity(self, h: Tensor, takers: Tensor, senders: Tensor) -> Tensor:
        """Return a_ij of equation (3), `[takers, senders]`. Rows sum to 1."""
        unit = F.normalize(h, dim=1)
        return torch.softmax(self.scale * unit[takers] @ unit[senders].T, dim=1)

    def _count(self, fed: Federation, update: Update, taking: Tensor) -> None:
        """Count unmasked weights up, an embedding up for each client that receives, and one model down for each."""
        size = sum(w[0].numel() for name, w in update.after.items() if not name.endswith(MASK))
        trained, received = (
            torch.bincount(fed.run[who], minlength=fed.runs).cpu().numpy() for who in (update.active, taking)
        )
        fed.traffic.send("up", "weights", trained * size, round=update.round)
        fed.traffic.send("down", "weights", received * size, round=update.round)
        width = self.model.widths[-1][0]
        fed.traffic.send("up", "functional embedding", received * width, round=update.round)
