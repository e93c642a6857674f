"""FedStruct (Aliakbari et al. 2025, Sections 5.1 to 5.5, Algorithms 1, 2 and 4).

A client predicts a node v from its own features and edges, and from where v stands in the whole graph:

    y_v = softmax( f(v) + sum_u A-_vu g(s_u) )        A- = sum_l beta_l A^^l,  A^ = D~^-1 (A+I)        (Eq. 2, 10)

Before training clients obtain their rows of A- by exchanging blocks of powers (Algorithm 3), and all structure features
s_u. In a round each sends one gradient; the server adds them up and takes one step (Eq. 5). With Hop2Vec the features S
themselves are weights and move along (Eq. 14). Weights are equal at all clients, so they exist once per run.

Decisions the paper leaves open, or its text and code tell apart:

    FS-Q6   Hop2Vec's head: "mlp" keeps g on a 256-wide S (Eq. 10, Table 5, the code), "direct" absorbs it (Eq. 15)
    FS-Q9   how powers are pruned: `fedrepro.papers.fedstruct.powers`
    FS-Q10  one Adam at the server for all weights, S among them and weight decay on it too (the code)
    FS-Q11  a client holds its rows of A- for all its nodes, since test nodes need them
    FS-Q16  S starts normal with deviation 0.05; Deg has `width` columns, Fed* `width` of which `walk` are diagonals, of
            unpruned powers; the exchange of those beyond L_s is not counted

All clients draw the same dropout masks for g, from a seed they share, so g(S) is one number for all of them. Where no
entry of A- is pruned, its rows times g(S) are computed by L_s sparse products: the same number, in less memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix, diags
from torch import Tensor

from fedrepro.engine.client_graphs import Source
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.optim import OptimizerState
from fedrepro.engine.training import score
from fedrepro.errors import one_of, require
from fedrepro.papers.fedstruct import network as net
from fedrepro.papers.fedstruct import powers as adjacency
from fedrepro.papers.fedstruct import rows, structure
from fedrepro.papers.fedstruct import traffic as messages


class Memory(NamedTuple):
    """Between rounds: the server's optimizer and what was exchanged (None for `structure="none"`)."""

    optimizer: OptimizerState
    exchanged: rows.Exchanged | None


@dataclass(frozen=True, kw_only=True)
class FedStruct(FedSGD):
    """Args:
    model: f; a DGCN in the paper (L is its `depth`). Its `dropout` is that of g too; its `input_norm` is its own.
    structure: "H2V" (Hop2Vec), "Deg", "Fed*", "GDV", "GDV-73", "N2V" (see `structure`), or "none",
        f alone.
    width: d_s, columns of S ("GDV": 15, "GDV-73": 73, "direct": classes).
    walk, loops: of "Fed*".
    walk_epochs, feature_seed: of "N2V", which is trained once per graph and the same in all runs.
    head: "mlp" or "direct" (FS-Q6); "direct" for "H2V" alone.
    structure_hidden: hidden widths of g.
    structure_depth: L_s; with 0, A- is the identity.
    beta: beta_0, ..., beta_Ls; () for the last power alone, as in all of the paper's experiments.
    prune: p; 0 keeps all entries.
    budget: "matrix" or "blocks" (FS-Q9).
    norm: LayerNorm on the input of g (BatchNorm before a GraphSAGE).
    double_softmax: the loss of the authors' code, a cross-entropy of probabilities taken for logits.
    inference: predict with "both", "structure" (sum_u A-_vu g(s_u) alone, "H2V s") or "features" (f alone).
    sharing: "structure": all clients hold S; "aggregates": they send sums instead (Eq. 45 to 50), for the same result.
    graph: "known" if the server knows all edges and computes the structure embeddings (Appendix H).
    backbone: "decoupled", or "GraphSAGE" on the whole graph with `structure_hidden` as widths (a known graph alone).
    combine: "add" (Eq. 6, the code) or "layer", a linear layer on both embeddings (Eq. 51; a known graph alone).
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
    prune: int = 30
    budget: str = "matrix"
    norm: bool = True
    double_softmax: bool = False
    inference: str = "both"
    sharing: str = "structure"
    graph: str = "unknown"
    backbone: str = "decoupled"
    combine: str = "add"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("structure", self.structure, (*structure.STRUCTURES, "none"))
        one_of("head", self.head, ("mlp", "direct"))
        one_of("budget", self.budget, adjacency.BUDGETS)
        one_of("inference", self.inference, ("both", "structure", "features"))
        one_of("sharing", self.sharing, ("structure", "aggregates"))
        one_of("graph", self.graph, ("unknown", "known"))
        one_of("backbone", self.backbone, ("decoupled", "GraphSAGE"))
        one_of("combine", self.combine, ("add", "layer"))
        for name in ("width", "walk", "walk_epochs"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(self.structure_depth >= 0, "structure_depth", "at least 0", self.structure_depth)
        require(min(self.structure_hidden, default=1) >= 1, "structure_hidden", "positive", self.structure_hidden)
        require(self.prune >= 0, "prune", "0 (full) or positive", self.prune)
        many = len(self.beta) in (0, self.structure_depth + 1)
        require(many, "beta", f"() or {self.structure_depth + 1} numbers for this structure_depth", self.beta)
        direct = self.head == "direct"
        require(not direct or self.structure == "H2V", "head", "'mlp' for structure features that are fixed", self.head)
        known = self.graph == "known"
        require(not (known and self.prune), "prune", "0 where the server knows the graph", self.prune)
        require(
            known or self.backbone == "decoupled", "backbone", "'decoupled' where no one knows the graph", self.backbone
        )
        require(known or self.combine == "add", "combine", "'add' where no one knows the graph", self.combine)
        sage = self.backbone == "GraphSAGE"
        require(not (sage and direct), "head", "'mlp' for a GraphSAGE", self.head)
        require(not sage or self.structure_hidden != (), "structure_hidden", "of one layer at least", ())
        sums = self.sharing == "aggregates"
        require(not (sums and known), "sharing", "'structure' where the server knows the graph", self.sharing)
        # Eq. 49 and 50 are for a Hop2Vec without g; with g a client would need the Jacobian at others' nodes
        require(not sums or direct or self.structure != "H2V", "head", "'direct' to share aggregates of H2V", self.head)

    @property
    def receptive(self) -> int:
        """Hops of f; the structure branch is looked at only at the nodes that count."""
        return self.model.hops

    @property
    def weights_of_powers(self) -> tuple[float, ...]:
        """beta_0, ..., beta_Ls."""
        return self.beta or (*[0.0] * self.structure_depth, 1.0)

    # -- hooks --------------------------------------------------------------------------------------------------------

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """The exchange of powers and structure features, and initial weights."""
        fed, state = super().start(fed)
        exchanged = None
        sizes = {int(source.data.num_nodes) for source in fed.sources}
        require(len(sizes) == 1, "fed", "runs on graphs of the same number of nodes", sorted(sizes))
        if self.structure != "none":
            made = [self._exchange(source) for source in fed.sources]
            columns = [m.features for m in made if m.features is not None]
            s = torch.stack(columns).to(fed.device, fed.dtype) if columns else None
            exchanged = rows.Exchanged(tuple(m.matrix for m in made), s, sizes.pop())
            messages.count_before(self, fed, [m.sent for m in made], [m.matrix for m in made], self._columns(fed, s))
        each = [self._initial(fed, exchanged, seed) for seed in fed.seeds]
        added = {name: torch.stack([w[name] for w in each]).to(fed.device, fed.dtype) for name in each[0]}
        shared = {**state.shared, **added}
        return fed, replace(state, shared=shared, more=Memory(self.rule().init(shared), exchanged))

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Each client's mean cross-entropy, `[clients]`."""
        logits = self._logits(weights, fed, state)
        return layers.cross_entropy(fed, logits.softmax(1) if self.double_softmax else logits)

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Logits (Eq. 10), or the part of them that `inference` names: `[nodes, classes]`."""
        if self.inference == "both":
            return self._logits(weights, fed, state)
        return self.parts(weights, fed, state)[self.inference == "structure"]

    def aggregate(self, state: State, update: Update) -> State:
        """One step of the server's optimizer (Eq. 5 and 14)."""
        messages.count_round(self, update.fed, state.shared, update.round)
        moved = super().aggregate(replace(state, more=state.more.optimizer), update)
        return replace(moved, more=state.more)

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Per run: accuracies of either part alone at the last weights, entries of A- per node, columns of S."""
        shared = fed.shared()
        with torch.no_grad():
            parts = dict(zip(("features", "structure"), self.parts(state.shared, shared, state)))
        found = {name: score(fed, logits) for name, logits in parts.items()}
        out = []
        for run in range(fed.runs):
            each = {f"{name}_{mask}": float(s[mask][run]) for name, s in found.items() for mask in ("val", "test")}
            got: rows.Exchanged | None = state.more.exchanged
            if got is not None:
                each["kept_per_node"] = got.matrices[run].nnz / got.nodes if self.prune else float(got.nodes)
                each["columns"] = float(self._columns(fed, got.features))
            out.append(each)
        return out

    # -- the two branches ---------------------------------------------------------------------------------------------

    def parts(self, weights: Weights, fed: Federation, state: State) -> tuple[Tensor, Tensor]:
        """What f and what the structure add to the logits, each `[nodes, classes]`."""
        h, got = self.model(weights, fed), state.more.exchanged
        if got is None:
            return h, torch.zeros_like(h)
        z = self._embeddings(weights, fed, got)
        if self.combine == "layer":
            h = layers.linear(fed, h, weights["combine.features"])
            z = layers.linear(fed, z, weights["combine.structure"])
        return h, z

    def _logits(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        h, z = self.parts(weights, fed, state)
        return h + z

    def _embeddings(self, weights: Weights, fed: Federation, got: rows.Exchanged) -> Tensor:
        """z_v = sum_u A-_vu g(s_u) (Eq. 9) at each client's nodes that count, zero at others: `[nodes, classes]`."""
        runs = rows.runs_of(fed)
        s = weights["structure"] if got.features is None else got.features[runs]
        g = s
        if self.head == "mlp":
            clock = None if fed.clock is None else (fed.clock.round, fed.clock.step)
            key = fed.cached(("structure keys", got.nodes), lambda: rows.keys_of(fed, runs, got.nodes))
            if self.backbone == "GraphSAGE":
                mean = rows.cached(fed, got, "blocks", lambda: rows.of_slices(fed, got, runs))
                g = net.structure_sage(weights, s, mean, key, clock, self.model.dropout)
            else:
                g = net.structure_mlp(weights, s, key, clock, self.model.dropout)
        flat = g.flatten(0, 1)
        if self.prune:
            product: Tensor = rows.cached(fed, got, "rows", lambda: rows.of_clients(fed, got)) @ flat
            return product
        if self.backbone == "decoupled":
            step, power = rows.cached(fed, got, "blocks", lambda: rows.of_slices(fed, got, runs)), flat
            flat = self.weights_of_powers[0] * flat
            for beta in self.weights_of_powers[1:]:
                power = step @ power
                flat = flat + beta * power if beta else flat
        at = fed.node_slice * got.nodes + fed.batch.node_id
        own = (fed.batch.ring == 0)[:, None]
        return torch.where(own, flat[at], 0.0)

    # -- before training ----------------------------------------------------------------------------------------------

    def _exchange(self, source: Source) -> _Made:
        data, sent = source.data, 0
        if self.prune:
            matrix, sent = adjacency.combined(data, source.parts, self.weights_of_powers, self.prune, self.budget)
        elif self.backbone == "decoupled":
            matrix = adjacency.transition(data)
        else:
            a = structure.adjacency(data)
            d = np.diff(a.indptr)
            matrix = (diags(np.where(d > 0, 1.0 / np.maximum(d, 1), 0.0)) @ a).tocsr()
        if self.structure == "H2V":
            return _Made(matrix, None, sent)
        options: dict[str, Any] = {"walk": self.walk, "loops": self.loops}
        options |= {"epochs": self.walk_epochs, "seed": self.feature_seed}
        return _Made(matrix, structure.features(self.structure, data, self.width, **options), sent)

    def _columns(self, fed: Federation, s: Tensor | None) -> int:
        if s is not None:
            return int(s.shape[-1])
        return fed.classes if self.head == "direct" else self.width

    def _initial(self, fed: Federation, got: rows.Exchanged | None, seed: int) -> Weights:
        """The weights beside those of f: S for Hop2Vec, g, and the combining layer."""
        made: Weights = {}
        if got is None:
            return made
        columns = self._columns(fed, got.features)
        if got.features is None:
            made["structure"] = structure.hop2vec(got.nodes, columns, seed)
        if self.head == "mlp":
            sage = self.backbone == "GraphSAGE"
            made |= net.structure_weights(
                self.model, columns, self.structure_hidden, fed.classes, seed, norm=self.norm, sage=sage
            )
        if self.combine == "layer":
            made |= net.combining_weights(self.model, fed.classes, seed)
        return made


class _Made(NamedTuple):
    matrix: csr_matrix
    features: Tensor | None
    sent: int
