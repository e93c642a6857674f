"""Train FedStruct, which gives clients structure features of the whole graph and no node features of others.

"Decoupled Subgraph Federated Learning", Javad Aliakbari, Johan Östman and Alexandre Graell i Amat, ICLR 2025,
https://arxiv.org/abs/2402.19163. A graph is cut into the subgraphs of K clients. A client predicts the label of a node
v from its own subgraph, and from the position of v in the whole graph:

    y_v = softmax( f(v) + sum_u A-_vu g(s_u) )                                                                  (Eq. 10)

    f       a GNN on the client's own subgraph, the option `model` (a decoupled GCN in the paper); f(v) is `[classes]`
    S       structure features, a row s_u `[columns]` for each node u of the whole graph (`structure`)
    g       a network on s_u with `classes` outputs (`network.structure_network`)
    A-      sum_l beta_l A^^l over l = 0, ..., L_s with A^ = D~^-1 (A+I), `[nodes, nodes]`; Section 5.2 sums from l = 0,
            and Eq. 2 from l = 1 (`powers`)

A client holds only the rows of A- of its own nodes, and no other client's edges, features or labels. Algorithms 1 and 2
differ in S: generators of Algorithm 1 fix S before training, Hop2Vec (Algorithm 2) trains S together with f and g.

Algorithms 1 and 2, line by line:

    1. The clients exchange blocks of powers for their rows of A-   (Algorithm 3)    `StructureMethod._obtain`, `powers`
    2. Every client computes and shares its rows of S                                `structure.features`, `hop2vec`
    3. In each round the server sends the weights, and S moves along (Eq. 14)        `FedSGD`
    4.   A client computes its predictions (Eq. 10) and its loss (Eq. 4)             `StructureMethod.local_loss`
    5.   It sends the gradient of its loss by the weights (Propositions 2 and 3)     autograd, see `gradients.gradients`
    6.   The server adds the gradients and takes one step (Eq. 5)                    `StructureMethod.aggregate`

The methods below name these six lines. The loss of Eq. 4 is a sum over the labelled nodes V~_i. Here it is divided by
|V~_i|, and the server weighs each client by |V~_i|. Weights are equal at all clients, so they exist once per run. All
clients draw the same dropout masks for g from a seed that they share, so g(s_u) is one number for all of them. Three
methods differ in what is sent for z_v = sum_u A-_vu g(s_u):

    `FedStruct`             every client holds S and g                                                (Section 5)
    `variants.SharedSums`   clients send each other parts of z_v and of its Jacobian in place of S    (Appendix G.1)
    `variants.KnownGraph`   the server knows all edges, and sends z_v and its Jacobian (Algorithm 4)  (Appendix H)

Sums of parts are the sums themselves. `SharedSums` therefore trains exactly as `FedStruct` does, and only its messages
differ. `protocol` has Algorithm 3 and the round of G.1 message by message; they return the same numbers.

The paper leaves open, or its text and code differ in:

    the head of Hop2Vec: g on a 256-wide S (Eq. 10, Table 5, the code), or S itself with a column per class (FS-Q6)
    the rule that prunes powers: `fedrepro.papers.fedstruct.powers` (FS-Q9)
    the server's optimizer: one Adam for all weights, whose weight decay acts on S, too, as in the code (FS-Q10)
    the rows of A-: a client holds them for all of its nodes, since test nodes need them (FS-Q11)
    the start of S: normal with standard deviation 0.05; the widths of Deg and Fed* (FS-Q16)

The diagonals of Fed* are those of unpruned powers. Exchanging the powers beyond L_s is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from fedrepro.engine.client_graphs import Source
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.models import MLP, Model
from fedrepro.engine.nn.optim import OptimizerState
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.engine.scores import score
from fedrepro.engine.traffic import BEFORE_TRAINING
from fedrepro.errors import one_of, require
from fedrepro.papers.fedstruct import network, powers, structure
from fedrepro.papers.fedstruct.network import Exchanged


class Memory(NamedTuple):
    """The server's optimizer and the values exchanged before training (None for `structure="none"`)."""

    optimizer: OptimizerState
    exchanged: Exchanged | None


def structure_features(state: State) -> Tensor:
    """Return S of the first run, `[nodes, columns]`."""
    got: Exchanged = state.more.exchanged
    s: Tensor = state.shared["structure"] if got.features is None else got.features
    return s[0]


@dataclass(frozen=True, kw_only=True)
class StructureMethod(FedSGD):
    """A method that adds structure embeddings to the logits of a feature model; the base of the three methods.

    Args:
        structure: "H2V" (Hop2Vec), "Deg", "Fed*", "GDV", "GDV-73", "N2V" (see `structure`), or "none" for f by itself.
        width: d_s, the columns of S; "GDV" has 15, "GDV-73" 73, and the head "direct" one per class.
        walk: number of diagonals in "Fed*".
        loops: whether the random walk of "Fed*" has self-loops.
        walk_epochs: epochs of "N2V".
        feature_seed: seed of "N2V", which is trained once per graph and equal in all runs.
        head: "mlp", or "direct" for a Hop2Vec without g (FS-Q6).
        structure_hidden: hidden widths of g.
        structure_depth: L_s; with 0, A- is the identity.
        beta: beta_0, ..., beta_Ls; () for the last power only, as in all of the paper's experiments.
        norm: whether the input of g is normalized, by LayerNorm (by BatchNorm before a GraphSAGE).
        double_softmax: whether to train on the loss of the authors' code, a cross-entropy that takes probabilities for
            logits.
        inference: "both", or one part of the logits to predict with: "structure" ("H2V s" in the tables) or "features".
    """

    structure: str = "H2V"
    width: int = 256
    walk: int = 50
    loops: bool = True
    walk_epochs: int = 50
    feature_seed: int = 0
    head: str = "mlp"
    structure_hidden: tuple[int, ...] = (256,)
    structure_depth: int = 10
    beta: tuple[float, ...] = ()
    norm: bool = True
    double_softmax: bool = False
    inference: str = "both"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("structure", self.structure, (*structure.STRUCTURES, "none"))
        one_of("head", self.head, ("mlp", "direct"))
        one_of("inference", self.inference, ("both", "structure", "features"))
        for name in ("width", "walk", "walk_epochs"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(self.structure_depth >= 0, "structure_depth", "at least 0", self.structure_depth)
        require(min(self.structure_hidden, default=1) >= 1, "structure_hidden", "positive", self.structure_hidden)
        allowed = f"() or {self.structure_depth + 1} numbers for this structure_depth"
        require(len(self.beta) in (0, self.structure_depth + 1), "beta", allowed, self.beta)
        trained = self.head == "mlp" or self.structure == "H2V"
        require(trained, "head", "'mlp' for structure features that are fixed", self.head)

    @property
    def receptive(self) -> int:
        """Return the hops of f; the structure branch reads no neighbours in the batch."""
        return self.model.hops

    @property
    def weights_of_powers(self) -> tuple[float, ...]:
        """Return beta_0, ..., beta_Ls."""
        return self.beta or (*[0.0] * self.structure_depth, 1.0)

    # -- the hooks of a round -----------------------------------------------------------------------------------------

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Exchange powers and structure features, and draw the initial weights (lines 1 and 2)."""
        fed, state = super().start(fed)
        if self.structure == "none":
            return fed, replace(state, more=Memory(state.more, None))
        sizes = {int(source.data.num_nodes) for source in fed.sources}
        require(len(sizes) == 1, "fed", "runs on graphs of the same number of nodes", sorted(sizes))
        s = None if self.structure == "H2V" else torch.stack([self._features(source) for source in fed.sources])
        columns = self.width if self.head == "mlp" else fed.classes
        if s is not None:
            s, columns = s.to(fed.device, fed.dtype), s.shape[-1]
        got = Exchanged(self._obtain(fed, columns), s, sizes.pop(), columns)
        drawn = [self._initial(got, fed.classes, seed) for seed in fed.seeds]
        added = {name: torch.stack([w[name] for w in drawn]).to(fed.device, fed.dtype) for name in drawn[0]}
        shared = {**state.shared, **added}
        return fed, replace(state, shared=shared, more=Memory(self.rule().init(shared), got))

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Return each client's mean cross-entropy (line 4, Eq. 4), `[clients]`."""
        h, z = self.parts(weights, fed, state)
        logits = h + z
        return layers.cross_entropy(fed, logits.softmax(1) if self.double_softmax else logits)

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return the logits (Eq. 10), or the part of them that `inference` names, `[nodes, classes]`."""
        h, z = self.parts(weights, fed, state)
        return {"both": h + z, "features": h, "structure": z}[self.inference]

    def aggregate(self, state: State, update: Update) -> State:
        """Take one step of the server's optimizer for theta (line 6, Eq. 5) and S (line 3, Eq. 14)."""
        moved = super().aggregate(replace(state, more=state.more.optimizer), update)
        return replace(moved, more=state.more)

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Return, per run, the accuracies of either part of the logits, the entries of A- per node, and S's columns."""
        with torch.no_grad():
            h, z = self.parts(state.shared, fed.shared(), state)
        scores = {"features": score(fed, h), "structure": score(fed, z)}
        got: Exchanged | None = state.more.exchanged
        facts = []
        for run in range(fed.runs):
            of_run = {f"{part}_{mask}": float(s[mask][run]) for part, s in scores.items() for mask in ("val", "test")}
            if got is not None:
                of_run |= {"kept_per_node": self._kept_per_node(got, run), "columns": float(got.columns)}
            facts.append(of_run)
        return facts

    # -- the two branches ---------------------------------------------------------------------------------------------

    def parts(self, weights: Weights, fed: Federation, state: State) -> tuple[Tensor, Tensor]:
        """Return the feature and the structure part of the logits, each `[nodes, classes]`."""
        h, got = self.model(weights, fed), state.more.exchanged
        return h, torch.zeros_like(h) if got is None else self._embeddings(weights, fed, got)

    def _embeddings(self, weights: Weights, fed: Federation, got: Exchanged) -> Tensor:
        """Return z_v = sum_u A-_vu g(s_u) (Eq. 9) at each client's own nodes and 0 at others, `[nodes, classes]`."""
        s = weights["structure"] if got.features is None else got.features[network.runs_of(fed)]
        if self.head == "mlp":
            drop = None
            if fed.clock is not None:
                key = fed.cached(("structure keys", got.nodes), lambda: network.dropout_keys(fed, got.nodes))
                clock = fed.clock.round, fed.clock.step
                drop = partial(network.mask, key=key, clock=clock, p=self.model.dropout)
            s = network.structure_network(weights, s, self._mean(fed, got), drop)
        return self._propagate(s.flatten(0, 1), fed, got)

    def _mean(self, fed: Federation, got: Exchanged) -> Sparse | None:
        """Return the operator of the layers of g, or None for an MLP."""
        return None

    def _propagate(self, g: Tensor, fed: Federation, got: Exchanged) -> Tensor:
        """Return the clients' rows of A- g, from L_s products with A^; no power of A^ is stored."""
        step, power, total = network.blocks(fed, got), g, self.weights_of_powers[0] * g
        for beta in self.weights_of_powers[1:]:
            power = step @ power
            total = total + beta * power if beta else total
        return network.at_own_nodes(fed, got, total)

    # -- before training ----------------------------------------------------------------------------------------------

    def _obtain(self, fed: Federation, columns: int) -> tuple[csr_matrix, ...]:
        """Return the matrix of each run that propagates g, and count the messages before training (line 1)."""
        return tuple(powers.transition(source.data) for source in fed.sources)

    def _kept_per_node(self, got: Exchanged, run: int) -> float:
        """Return the entries of A- per row; unpruned powers fill in."""
        return float(got.nodes)

    def _features(self, source: Source) -> Tensor:
        options: dict[str, Any] = {"walk": self.walk, "loops": self.loops}
        options |= {"epochs": self.walk_epochs, "seed": self.feature_seed}
        return structure.features(self.structure, source.data, self.width, **options)

    def _initial(self, got: Exchanged, classes: int, seed: int, kind: type[Model] = MLP) -> Weights:
        """Return the weights next to those of f: S for Hop2Vec, and g."""
        weights = {} if got.features is not None else {"structure": structure.hop2vec(got.nodes, got.columns, seed)}
        if self.head == "mlp":
            sizes = {"features": got.columns, "classes": classes, "stack": self.structure_hidden}
            weights |= network.initial(kind, self.model, "structure", seed, **sizes, input_norm=self.norm)
        return weights


@dataclass(frozen=True, kw_only=True)
class FedStruct(StructureMethod):
    """FedStruct (Section 5, Algorithms 1 and 2): every client holds its rows of A-, all of S, and g.

    Args:
        prune: p, the number of entries per node that a power keeps; 0 keeps all.
        budget: "matrix" or "blocks", the rule by which powers are pruned (FS-Q9, see `powers`).
    """

    prune: int = 30
    budget: str = "matrix"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("budget", self.budget, powers.BUDGETS)
        require(self.prune >= 0, "prune", "0 (full) or positive", self.prune)

    def _propagate(self, g: Tensor, fed: Federation, got: Exchanged) -> Tensor:
        return network.client_rows(fed, got) @ g if self.prune else super()._propagate(g, fed, got)

    def _kept_per_node(self, got: Exchanged, run: int) -> float:
        return float(got.matrices[run].nnz / got.nodes) if self.prune else super()._kept_per_node(got, run)

    def _obtain(self, fed: Federation, columns: int) -> tuple[csr_matrix, ...]:
        if self.prune:
            rule = self.weights_of_powers, self.prune, self.budget
            matrices, sent = zip(*(powers.combined(source.data, source.parts, *rule) for source in fed.sources))
            relay(fed, "power blocks", sent)
            # A kept entry costs one value and two indices.
            relay(fed, "power indices", [2 * number for number in sent])
        else:
            matrices = super()._obtain(fed, columns)
            relay(fed, "power blocks", [powers.full_blocks(source, self.structure_depth) for source in fed.sources])
        self._count_exchange(fed, matrices, columns)
        return matrices

    def _count_exchange(self, fed: Federation, matrices: tuple[csr_matrix, ...], columns: int) -> None:
        """Count the structure features: up once, and down to each of the other clients."""
        scalars = float(columns) * np.array([source.data.num_nodes for source in fed.sources])
        fed.traffic.send("up", "structure features", scalars)
        fed.traffic.send("down", "structure features", scalars * (per_run(fed) - 1))


# -- messages ---------------------------------------------------------------------------------------------------------


def relay(fed: Federation, name: str, scalars: Any, t: int = BEFORE_TRAINING) -> None:
    """Count messages from client to client, which go through the server: up once, and down once."""
    for direction in ("up", "down"):
        fed.traffic.send(direction, name, np.asarray(scalars, dtype=float), round=t)


def per_run(fed: Federation, counts: Tensor | None = None) -> np.ndarray:
    """Return the sum of a count `[clients]` over the clients of each run, or their number, `[runs]`."""
    return np.bincount(fed.run.cpu().numpy(), None if counts is None else counts.cpu().numpy(), fed.runs)
