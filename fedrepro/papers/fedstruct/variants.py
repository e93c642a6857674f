"""Train FedStruct with other messages than Section 5: shared sums (Appendix G.1), or a known graph (Appendix H).

The registry's entry "FedStruct" is `choice`, which builds `FedStruct`, `SharedSums` or `KnownGraph` by the options of a
run. Algorithm 4, for a server that knows the graph:

    1. The server computes S from the edges                              `structure.features`, `hop2vec`
    2. In each round it computes z_v of all nodes by a network           `KnownGraph.parts`
    3.   It sends theta, z_v and dz_v / dtheta_s at labelled nodes v     counted in `KnownGraph.aggregate`
    4.   A client computes h_v on its subgraph and combines it with z_v  `KnownGraph.parts` (Eq. 51)
    5.   It sends the gradient of its loss (Proposition 4)               autograd, see `gradients.gradients`
    6.   The server takes one step (Eq. 5)                               `StructureMethod.aggregate`
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_matrix, diags
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.models import MLP, Model, SAGEHead
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require
from fedrepro.papers.fedstruct import network, powers, structure
from fedrepro.papers.fedstruct.method import FedStruct, StructureMethod, per_run, relay
from fedrepro.papers.fedstruct.network import Exchanged


@dataclass(frozen=True, kw_only=True)
class SharedSums(FedStruct):
    """FedStruct without shared structure features (Appendix G.1).

    Client i sends its entries of A- once. In a round client j then sends, for each labelled node v of i, the part of
    z_v over its own nodes u (Eq. 47 and 49) and the Jacobian of that part by the weights of g (Eq. 48).

    The ledger counts too much for a Hop2Vec: all of S goes down to every client in each round. In G.1 the server
    returns to a client only what concerns the rows of its own nodes. No stored exhibit counts this.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        # Eq. 49 and 50 are for a Hop2Vec without g. With g a client would need the Jacobian at others' nodes.
        suited = self.head == "direct" or self.structure != "H2V"
        require(suited, "head", "'direct' to share aggregates of H2V", self.head)

    def aggregate(self, state: State, update: Update) -> State:
        """Count the sums, `classes` per labelled node and other client, and their Jacobians; then step as FedStruct."""
        fed, of_g = update.fed, _scalars(network.weights_of_g(state.shared))
        pairs = per_run(fed, fed.count("train")) * (per_run(fed) - 1)
        relay(fed, "aggregates", pairs * fed.classes * (1.0 + of_g), update.round)
        return super().aggregate(state, update)

    def _count_exchange(self, fed: Federation, matrices: tuple[csr_matrix, ...], columns: int) -> None:
        """Count the entries of A- that clients send each other: columns of others in rows of training nodes."""
        pairs = zip(matrices, fed.sources, strict=True)
        entries = [powers.crossing(m, s) if self.prune else powers.rows_elsewhere(s) for m, s in pairs]
        relay(fed, "combined entries", entries)


@dataclass(frozen=True, kw_only=True)
class KnownGraph(StructureMethod):
    """FedStruct with a server that knows all edges (Appendix H, Algorithm 4).

    No power is exchanged and none is pruned. In a round the server computes z_v by a network on the whole graph, and
    sends each client z_v and its Jacobians at the client's labelled nodes v (Proposition 4).

    The ledger counts too much for a Hop2Vec: all of S goes down to every client in each round, K n d_s scalars. In
    Algorithm 4 S stays at the server. The Jacobians are counted dense: H.4 would leave out those that are zero.

    Args:
        backbone: "decoupled" (Eq. 9), or "GraphSAGE" on the whole graph with `structure_hidden` as widths.
        combine: "add" (Eq. 6, the code), or "layer", a linear layer Theta_c on both embeddings (Eq. 51).
    """

    backbone: str = "decoupled"
    combine: str = "add"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("backbone", self.backbone, ("decoupled", "GraphSAGE"))
        one_of("combine", self.combine, ("add", "layer"))
        require(not self._sage or self.head == "mlp", "head", "'mlp' for a GraphSAGE", self.head)
        require(not self._sage or self.structure_hidden != (), "structure_hidden", "of one layer at least", ())

    @property
    def _sage(self) -> bool:
        return self.backbone == "GraphSAGE"

    def aggregate(self, state: State, update: Update) -> State:
        """Count the embeddings and Jacobians that the server sends (line 3), then step as FedStruct does (line 6)."""
        if state.more.exchanged is not None:
            of_structure = _scalars({name: w for name, w in state.shared.items() if name.startswith("structure")})
            scalars = per_run(update.fed, update.fed.count("train")) * update.fed.classes
            send = partial(update.fed.traffic.send, "down", round=update.round)
            send("structure embeddings", scalars)
            send("structure jacobians", scalars * float(of_structure))
        return super().aggregate(state, update)

    def parts(self, weights: Weights, fed: Federation, state: State) -> tuple[Tensor, Tensor]:
        """Return both parts of the logits (lines 2 and 4), each times its half of Theta_c if `combine` is "layer"."""
        h, z = super().parts(weights, fed, state)
        if self.combine == "add" or state.more.exchanged is None:
            return h, z
        return layers.linear(fed, h, weights["combine.features"]), layers.linear(fed, z, weights["combine.structure"])

    def _mean(self, fed: Federation, got: Exchanged) -> Sparse | None:
        return network.blocks(fed, got) if self._sage else None

    def _propagate(self, g: Tensor, fed: Federation, got: Exchanged) -> Tensor:
        # A GraphSAGE propagates inside its layers.
        return network.at_own_nodes(fed, got, g) if self._sage else super()._propagate(g, fed, got)

    def _obtain(self, fed: Federation, columns: int) -> tuple[csr_matrix, ...]:
        if not self._sage:
            return super()._obtain(fed, columns)
        matrices = [structure.adjacency(source.data) for source in fed.sources]
        degrees = [np.diff(a.indptr) for a in matrices]
        inverses = [diags(np.where(d > 0, 1.0 / np.maximum(d, 1), 0.0)) for d in degrees]
        return tuple((inverse @ a).tocsr() for inverse, a in zip(inverses, matrices, strict=True))

    def _initial(self, got: Exchanged, classes: int, seed: int, kind: type[Model] = MLP) -> Weights:
        weights = super()._initial(got, classes, seed, SAGEHead if self._sage else MLP)
        if self.combine == "layer":
            for name in ("combine.features", "combine.structure"):
                drawn = network.initial(MLP, self.model, name, seed, features=classes, classes=classes)
                weights[name] = drawn[f"{name}1.weight"]
        return weights


def _scalars(weights: Weights) -> int:
    """Return the number of scalars of one slice of some weights."""
    return sum(w[0].numel() for w in weights.values())


# -- the registry's entry ---------------------------------------------------------------------------------------------


@dataclass
class Choice:
    """The registry's entry "FedStruct", which builds the method that the options of a run ask for.

    `dataclasses.fields` of a `Choice` are the options of all three methods and those of this class. An option of a
    method that is not chosen may be given only with a value that changes nothing.

    Args:
        sharing: "structure" for `FedStruct`, or "aggregates" for `SharedSums`.
        graph: "known" for `KnownGraph`, or "unknown".
    """

    sharing: str = "structure"
    graph: str = "unknown"

    upload: ClassVar[str] = FedSGD.upload
    _WITHOUT_EFFECT: ClassVar[dict[str, tuple[Any, ...]]] = {
        "prune": (0,),
        "budget": powers.BUDGETS,
        "backbone": ("decoupled",),
        "combine": ("add",),
    }

    def __post_init__(self) -> None:
        kinds = (SharedSums, KnownGraph, Choice)
        options = {name: option for kind in kinds for name, option in kind.__dataclass_fields__.items()}
        vars(self)["__dataclass_fields__"] = options

    def __call__(self, *, sharing: str = "structure", graph: str = "unknown", **options: Any) -> StructureMethod:
        """Build the method.

        Raises:
            ArgumentError: an option has a value that the chosen method does not allow.
        """
        one_of("sharing", sharing, ("structure", "aggregates"))
        one_of("graph", graph, ("unknown", "known"))
        known = graph == "known"
        require(not known or sharing == "structure", "sharing", "'structure' where the server knows the graph", sharing)
        kind = KnownGraph if known else SharedSums if sharing == "aggregates" else FedStruct
        for name in {*options} & {*self._WITHOUT_EFFECT} - {option.name for option in fields(kind)}:
            value, allowed = options.pop(name), self._WITHOUT_EFFECT[name]
            require(value in allowed, name, f"{' or '.join(map(repr, allowed))} for graph {graph!r}", value)
        return kind(**options)


choice = Choice()
