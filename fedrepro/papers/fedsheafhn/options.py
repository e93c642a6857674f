"""FedSheafHN's options, and what follows from them alone: which tensors the server makes, and with what parts.

Decisions the paper leaves open, or its text and code tell apart:

    SH-Q3    sign: "descent" follows generated - trained; the printed trained - generated climbs the loss
    SH-Q5    age: "printed" embeddings are r_in rounds old; "fresh" ones, as coded, are sent the round before
    SH-Q6    server: Adam (Section 4.1), or plain steps (Eq.); the gradient is the sum over clients
    SH-Q9    cosine, an edge where one is among the K nearest of the other; K = 3 up to 10 clients, else 5
    SH-Q11   the head is the last weight layer: the linear classifier of a `GCNHead`
    stalks, layers, channels (d = 1, T_s = 4, 20) and D + I in Eq. 6 are those of the public code
    standardized: the server centres and scales each column of X_0 over the clients. Neither paper nor code does it, but
        without it clients get nearly the same weights: on Cora with 20 clients they end 0.001 to 0.017 of their norm
        apart over three seeds (`generated_spread`), with it 0.25 to 0.58 (SH-M2)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.baselines import malicious
from fedrepro.engine.method import Method
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.nn.optim import Optimizer
from fedrepro.errors import one_of, require
from fedrepro.papers.fedsheafhn.collaboration import DIFFUSIONS, Diffusion
from fedrepro.papers.fedsheafhn.hypernetwork import Hypernetwork
from fedrepro.papers.fedsheafhn.server import Server


@dataclass(frozen=True, kw_only=True)
class Options(Method):
    """Args:
    model: a `GCN`; its last weight layer is the head.
    warmup: local epochs before the first embedding; -1 for `local_epochs` (Algorithm 1's initialization).
    refresh: r_in, rounds between two updates of the embeddings; 0 for none after the first.
    age: "printed" or "fresh" (SH-Q5).
    vectors: "embedding", or "one-hot": a client's number.
    standardized: see above.
    graph, neighbours: the collaboration graph: "knn" (K; 0 for the rule of SH-Q9) or "complete".
    diffusion: "sheaf", "gcn", "gat" or "none".
    residual, steps, channels, stalk, maps, learner, maps_made, gate, augmented: see `Diffusion`.
    attention, hyper_hidden, hyper_layers, output: see `Hypernetwork`.
    sheaf_lr, sheaf_weight_decay, sheaf_dropout, hyper_lr, hyper_weight_decay, hyper_dropout: of the server's two
        parts (Table 9).
    server_optimizer: "adam" or "sgd".
    sign: "descent" or "ascent" (SH-Q3).
    malicious, attack, tau: share of clients whose embeddings are forged, how, and their deviation (see
        `fedrepro.baselines.malicious`).
    """

    model: GCN
    warmup: int = -1
    refresh: int = 5
    age: str = "printed"
    vectors: str = "embedding"
    standardized: bool = True
    graph: str = "knn"
    neighbours: int = 0
    diffusion: str = "sheaf"
    residual: bool = False
    steps: int = 4
    channels: int = 20
    stalk: int = 1
    maps: str = "diagonal"
    learner: str = "mlp"
    maps_made: str = "layer"
    gate: bool = False
    augmented: bool = True
    attention: str = "softmax"
    hyper_hidden: int = 128
    hyper_layers: int = 2
    output: str = "anchored"
    sheaf_lr: float = 0.001
    sheaf_weight_decay: float = 5e-4
    sheaf_dropout: float = 0.3
    hyper_lr: float = 0.001
    hyper_weight_decay: float = 0.0
    hyper_dropout: float = 0.3
    server_optimizer: str = "adam"
    sign: str = "descent"
    malicious: float = 0.0
    attack: str = "same"
    tau: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        plain = isinstance(self.model, GCN) and not self.model.input_norm
        require(plain, "model", "a GCN without input_norm", self.model)
        require(len(self.model.widths) >= 2, "layers", "at least 2, the last of which is the head", self.model.layers)
        one_of("age", self.age, ("printed", "fresh"))
        one_of("vectors", self.vectors, ("embedding", "one-hot"))
        one_of("graph", self.graph, ("knn", "complete"))
        one_of("diffusion", self.diffusion, DIFFUSIONS)
        one_of("sign", self.sign, ("descent", "ascent"))
        require(self.warmup >= -1, "warmup", "at least -1", self.warmup)
        require(self.refresh >= 0, "refresh", "at least 0", self.refresh)
        require(self.neighbours >= 0, "neighbours", "at least 0", self.neighbours)
        malicious.check(self.malicious, self.attack, self.tau)
        self._rules()
        self._diffusion(1)
        self._hypernetwork(1)

    @property
    def depth(self) -> int:
        """Number of convolutions of the backbone."""
        return len(self.model.widths) - 1

    @property
    def shapes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of the generated tensors: weights and biases of the backbone."""
        found: list[tuple[str, tuple[int, ...]]] = []
        for i, (a, b) in enumerate(self.model.widths[:-1], start=1):
            found += [(f"layer{i}.weight", (a, b)), (f"layer{i}.bias", (b,))]
        return tuple(found)

    @property
    def personal(self) -> tuple[str, ...]:
        """The head."""
        return tuple(f"layer{self.depth + 1}.{part}" for part in ("weight", "bias"))

    @property
    def received(self) -> tuple[str, ...]:
        """Names of the generated tensors that take effect at the clients: all."""
        return tuple(name for name, _ in self.shapes)

    @property
    def width(self) -> int:
        """Width of an embedding."""
        return self.model.widths[-1][0]

    @property
    def uses_embeddings(self) -> bool:
        """Whether clients send embeddings at all."""
        return self.vectors == "embedding"

    def vectors_of(self, embeddings: Tensor, trained: Tensor | None = None) -> Tensor:
        """What describes the clients of a run at its server `[clients, width]`.

        Args:
            embeddings: `[clients, width]`.
            trained: those of the clients that centre and scale are taken from; None for all.
        """
        if self.vectors == "one-hot":
            return torch.eye(len(embeddings), dtype=embeddings.dtype, device=embeddings.device)
        if not self.standardized or len(embeddings) == 1:
            return embeddings
        base = embeddings if trained is None else trained
        mean = base.mean(0)
        return (embeddings - mean) / (base - mean).square().mean(0).sqrt().clamp(min=1e-12)

    def server(self, seed: int, embeddings: Tensor) -> Server:
        """The server of a run at the start, a function of its seed and its clients' first embeddings `[clients,
        width]`.
        """
        clients, vectors = len(embeddings), self.vectors_of(embeddings)
        model = {name: w[0] for name, w in self.model.init([seed], vectors.dtype, vectors.device).items()}
        neighbours = self.neighbours or (3 if clients <= 10 else 5)  # SH-Q9
        parts = self._diffusion(clients), self._hypernetwork(clients), self._rules()
        return Server.start(seed, self.graph, neighbours, *parts, vectors, model)

    def _diffusion(self, clients: int) -> Diffusion:
        return Diffusion(
            self.width if self.uses_embeddings else clients, self.diffusion, self.steps, self.channels, self.stalk,
            self.maps, self.learner, self.maps_made, self.gate, self.augmented, self.sheaf_dropout,
            self.residual,
        )  # fmt: skip

    def _hypernetwork(self, clients: int) -> Hypernetwork:
        return Hypernetwork(
            self.width if self.uses_embeddings else clients, self.shapes, clients, self.attention,
            self.hyper_hidden, self.hyper_layers, self.output, self.hyper_dropout,
        )  # fmt: skip

    def _rules(self) -> dict[str, Optimizer]:
        return {
            "sheaf": Optimizer(self.server_optimizer, self.sheaf_lr, self.sheaf_weight_decay),
            "hyper": Optimizer(self.server_optimizer, self.hyper_lr, self.hyper_weight_decay),
        }
