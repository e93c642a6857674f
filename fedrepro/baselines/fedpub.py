"""FED-PUB (Baek et al. 2023): clients average with those whose models act alike on one random graph, and mask what
they receive.

    masked weights     W o mu, where the mask mu stays with its client and starts at 1
    local loss         L_i(W o mu) + l1 ||mu||_1 + l2 ||W - W_received||
    embedding          h_i = mean over the proxy graph's nodes of the last hidden layer of client i's pruned network
    server             a_ij = exp(scale cos(h_i, h_j)) / sum_k exp(scale cos(h_i, h_k));   W_i <- sum_j a_ij W_j

Decisions the paper leaves open, or that its public code takes otherwise:

    penalties  the code computes both from detached copies, so that their gradient is 0 ("coded")
    norm       of each tensor, not squared in the code ("plain")
    round 1    starts from one common model and has no proximal term
    A client without training nodes takes no step and enters no average; it still sends its embedding and receives one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.baselines.malicious import check_attack_options, forge_embeddings
from fedrepro.baselines.personal import clients_of, embed, place, receives, require_layers
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Update
from fedrepro.engine.nn import random
from fedrepro.errors import one_of, require

MASK = ".mask"


class Server(NamedTuple):
    """What the server keeps: each run's proxy graph, and the last averaging weights, one `[clients, clients]` a run."""

    proxies: tuple[Federation, ...]
    similarity: tuple[Tensor, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FedPub(Method):
    """Args:
    scale: of the cosine in the exponent (3 for disjoint clients, 5 for overlapping ones); 0 averages uniformly.
    sparsity: l1, weight of the masks' L1 norm; mask entries below it count as 0 in evaluation.
    proximal: l2.
    penalties: "printed", or "coded": without gradient, as in the authors' public code.
    norm: of the proximal term, of each tensor: "plain" or "squared".
    masks: whether weights are masked at all.
    proxies, proxy_nodes, proxy_density: random graphs the proxy is made of, their nodes, their edge probability.
    malicious, attack, tau: share of clients that send a forged embedding, see `malicious` (FedSheafHN, Figure 7).
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
        """Neither penalty looks at a node."""
        return self.model.hops

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """One common model, masks of ones for its matrices, and the proxy graph, which travels to every client."""
        common = self.model.init(fed.seeds, fed.dtype, fed.device)
        own = {name: w[fed.run].clone() for name, w in common.items()}
        if self.masks:
            own |= {name + MASK: torch.ones_like(w) for name, w in own.items() if w.dim() > 2}
        graphs = tuple(self._proxy(fed, seed) for seed in fed.seeds)
        sizes = [g.nodes * g.features + g.batch.edge_index.shape[1] for g in graphs]  # an edge is two indices
        sent = torch.bincount(fed.run, minlength=fed.runs) * torch.tensor(sizes, device=fed.device)
        fed.traffic.send("down", "proxy graph", sent.cpu().numpy())
        return fed, State({}, own, Server(graphs))

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Logits of the masked network; masks are pruned in evaluation."""
        return self.model(self.masked(weights, pruned=fed.clock is None), fed)

    def masked(self, weights: Weights, pruned: bool) -> Weights:
        """W o mu for each matrix, with entries |mu| < l1 set to 0 where `pruned`."""
        out = {name: w for name, w in weights.items() if not name.endswith(MASK)}
        for name in list(out):
            mask = weights.get(name + MASK)
            if mask is not None:
                out[name] = out[name] * (mask * (mask.abs() >= self.sparsity) if pruned else mask)
        return out

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Cross-entropy of the masked network, the masks' L1 norm and the distance to the received weights."""
        loss = super().local_loss(weights, fed, state, t)
        if self.penalties == "coded":
            return loss
        if self.sparsity:
            for name in (name for name in weights if name.endswith(MASK)):
                loss = loss + self.sparsity * weights[name].abs().flatten(1).sum(1)
        if self.proximal and t > 0:
            part = place(fed)
            for name in (name for name in weights if not name.endswith(MASK)):
                away = (weights[name] - state.personal[name][part]).flatten(1)
                each = away.square().sum(1) if self.norm == "squared" else torch.linalg.vector_norm(away, dim=1)
                loss = loss + self.proximal * each
        return loss

    def aggregate(self, state: State, update: Update) -> State:
        """Every client receives its own average of the clients that trained; masks stay where they are."""
        fed, server = update.fed, state.more
        taking, rows = receives(fed, update.active), []
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
            rows.append(a)
        self._count(fed, update, taking)
        return State({}, personal, server._replace(similarity=tuple(rows)))

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Per run: share of mask entries that evaluation sets to 0, spread of the averaging weights between different
        clients, mean weight of a client in its own average (the latter two where all clients trained).
        """
        masks = [w for name, w in state.personal.items() if name.endswith(MASK)]
        found = []
        for run, a in enumerate(state.more.similarity):
            part = clients_of(fed, run)
            below = sum(int((w[part].abs() < self.sparsity).sum()) for w in masks)
            entries = sum(w[part].numel() for w in masks)
            fact = {"pruned": below / max(1, entries)}
            if a.shape[0] == a.shape[1] > 1:
                others = a[~torch.eye(len(a), dtype=torch.bool, device=a.device)]
                fact["similarity_spread"] = float(others.max() - others.min())
                fact["similarity_self"] = float(a.diagonal().mean())
            found.append(fact)
        return found

    # -- the server ---------------------------------------------------------------------------------------------------

    def _proxy(self, fed: Federation, seed: int) -> Federation:
        """Random graphs side by side with normal features: drawn once, the same for all clients and rounds."""
        count, nodes = self.proxies, self.proxy_nodes
        drawn = random.uniform((count, nodes, nodes), "proxy edges", seed) < self.proxy_density
        block, row, col = torch.triu(drawn, diagonal=1).nonzero(as_tuple=True)
        ends = torch.stack([row, col]) + block * nodes
        data = Data(
            x=random.normal((count * nodes, fed.features), "proxy features", seed),
            edge_index=torch.cat([ends, ends.flip(0)], dim=1), y=torch.zeros(count * nodes, dtype=torch.long),
            num_classes=fed.classes,
        )  # fmt: skip
        return Federation.of(data, [torch.arange(count * nodes)], seed, device=fed.device, dtype=fed.dtype)

    @torch.no_grad()
    def embeddings(self, fed: Federation, weights: Weights, proxies: tuple[Federation, ...], who: Tensor) -> Tensor:
        """h_i `[clients, hidden]` under each client's pruned weights on its run's proxy; 0 for who is not asked."""
        out = torch.zeros(fed.clients, self.model.widths[-1][0], dtype=fed.dtype, device=fed.device)
        for client in who.nonzero().squeeze(1).tolist():
            mine = self.masked({name: w[client : client + 1] for name, w in weights.items()}, pruned=True)
            out[client] = embed(self.model, mine, proxies[int(fed.run[client])]).mean(0)
        return out

    def similarity(self, h: Tensor, takers: Tensor, senders: Tensor) -> Tensor:
        """a_ij of the clients that receive over those that trained, `[takers, senders]`: rows sum to 1."""
        unit = F.normalize(h, dim=1)
        return torch.softmax(self.scale * unit[takers] @ unit[senders].T, dim=1)

    def _count(self, fed: Federation, update: Update, taking: Tensor) -> None:
        """Up: raw weights of those that trained, an embedding of each that receives. Down: one model each."""
        each = sum(w[0].numel() for name, w in update.after.items() if not name.endswith(MASK))
        trained, received = (torch.bincount(fed.run[who], minlength=fed.runs).cpu().numpy() for who in
                             (update.active, taking))  # fmt: skip
        fed.traffic.send("up", "weights", trained * each, round=update.round)
        fed.traffic.send("down", "weights", received * each, round=update.round)
        width = self.model.widths[-1][0]
        fed.traffic.send("up", "functional embedding", received * width, round=update.round)
