"""Train GFL-APPNP and the methods that GFL compares it with: FedMLP, MLPs, and central models without biases.

"Graph Federated Learning with Hidden Representation Sharing", Shuang Wu, Mingxuan Zhang, Yuantong Li, Carl Yang and
Pan Li, CIKM Workshop 2022, https://arxiv.org/abs/2212.12158.

Every client is a node of a graph and holds separate samples. All clients train one encoder, a two-layer MLP. They share
hidden representations h, not samples. The server mixes these along the graph with a fixed matrix A (Eq. 13, 15):

    h_k = MLP(x_k; W)      C_k = sum_{j != k} A_kj h_j      prediction of k = softmax(A_kk h_k + C_k)

A is `Graph.a` `[nodes, nodes]`, W has the parts `FIRST` W1 `[features, hidden]` and `SECOND` W2 `[hidden, classes]`,
and C is `Received.c` `[clients, classes]`. A client's gradient is (y^_k - y_k) (A_kk grad h_k + grad C_k). It keeps C_k
and grad C_k as received during its I local steps, which the paper calls compensation.

Algorithm 1, for T updates, thus T / I rounds:

    1. Clients upload W_k, and the server broadcasts their mean W.        `GFLAPPNP.aggregate`
    2. Client j computes and uploads h_j and grad h_j under W.            `exchange.exchange`
    3. The server computes and broadcasts C_k and grad C_k.               `exchange.exchange`
    4. Client k sets W_k = W.                                             `GFLAPPNP.begin_round`
    5. Client k takes I steps along its gradient.                         `GFLAPPNP.local_steps`, `local_loss`

Storage of local weights. Both terms of the gradient lie in the span of vectors that are fixed during a round: the
client's samples x_s, and M_k W2, where M_k = sum_{j != k} A_kj x_j m_j^T and m_j says which hidden units of j are on.
During the local steps we can therefore write

    W1_k = W1 + sum_s x_s u_s^T + M_k diag(W2 w_k) [+ sum_c w_kc noise_kc]

and train u_k `[samples, hidden]` (`U`) and w_k `[classes]` (`RECEIVED`) instead of W1_k `[features, hidden]`. The
gradients of u and w are those of W1_k in these coordinates. Plain SGD on them is plain SGD on W1_k, to rounding. On
block models (100 features) a run that stores W1_k took up to 3.3 times as long, and on subCora (1,433 features) 20 to
97 times (one CPU thread, 1 and 4 seeds).

Decisions the paper leaves open, and points where its text and its numbers differ:

    propagation     "appnp" sums a (1-a)^i S^i and puts the rest of the weight on the last power. "truncated", which
                    gave the published numbers, drops that rest. "printed" is Eq. 13b. (GFL-Q1)
    sign            Steps follow (y^ - y), which descends; the printed sign ascends. (GFL-Q3)
    means           h_j of a client with several samples is their mean. If labels are fixed per client it is taken over
                    all samples, since features of test nodes are known in semi-supervised learning. In supervised
                    classification it is taken over training samples. (GFL-Q7)
    network         ReLU, PyTorch's default initialization; all nodes take part in the propagation. (GFL-Q10)
    no labels       Clients without training samples take no step and are not averaged. They share h only. (GFL-Q13)

Not to be confused with a federated GNN on subgraphs, such as FedAvg of a GCN: here a client is one node, and the graph
is between clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.central import Central
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Step, Update
from fedrepro.engine.nn import layers, random
from fedrepro.engine.nn.models import MLP
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require
from fedrepro.papers.gfl.clients import (
    FIRST,
    SECOND,
    Graph,
    Samples,
    Trace,
    client_edges,
    group_untrained,
    initial_weights,
    propagation,
    propagation_weights,
    torch_uniform,
)
from fedrepro.papers.gfl.exchange import Received, count_messages, exchange, only_training_nodes

U, RECEIVED = "layer1.own", "layer1.received"
BASE1, BASE2 = "layer1.base", "layer2.base"  # under the average: x_s W1 `[clients, samples, hidden]`, and W2


@dataclass(frozen=True)
class Memory:
    """All that persists between rounds next to the server's weights.

    Args:
        graphs: one per run.
        samples: the clients' training samples.
        average: the weights under which the last exchange took place, `[runs, ...]`.
        received: the result of that exchange.
        trace: the losses so far.
    """

    graphs: list[Graph]
    samples: Samples
    average: Weights
    received: Received
    trace: Trace

    def samples_of(self, fed: Federation) -> Samples:
        """Return the training samples, collected again if the federation's features are not those of the start."""
        return self.samples if self.samples.source is fed.x else Samples.of(fed)


@dataclass(frozen=True, kw_only=True)
class GFLAPPNP(Method):
    """GFL-APPNP with `local_epochs` = I local updates per round.

    Args:
        model: an `MLP` of two layers; its biases are not used.
        alpha: teleport probability of the propagation.
        steps: M, the number of propagation steps.
        propagation: one of `PROPAGATIONS` (GFL-Q1).
        compensation: False exchanges h without its gradient (V2).
        noise: standard deviation of what each client adds to the gradient of h that it uploads (V1 has 1).
        batch: training samples in a step, drawn anew for each pass over them; 0 for all.
        update: whether one of the I updates is a "step" on one batch, or a "pass" over all batches, which is the
            reading of the authors' code. Both are equal if `batch` is 0.
        share: samples in the mean h_j: "all" or "train" (GFL-Q7).
    """

    model: MLP
    optimizer: str = "sgd"
    lr: float = 0.5
    alpha: float = 0.1
    steps: int = 10
    propagation: str = "appnp"
    compensation: bool = True
    noise: float = 0.0
    batch: int = 0
    update: str = "step"
    share: str = "all"

    sync = "step"  # the local steps are too small for chunks to pay

    def __post_init__(self) -> None:
        super().__post_init__()
        propagation_weights(self.propagation, self.alpha, self.steps)
        one_of("update", self.update, ("step", "pass"))
        one_of("share", self.share, ("all", "train"))
        # Momentum and weight decay of u and w would not be those of W1_k.
        require(self.optimizer == "sgd", "optimizer", "'sgd'", self.optimizer)
        for name in ("momentum", "weight_decay"):
            require(getattr(self, name) == 0, name, "0", getattr(self, name))
        require(type(self.model) is MLP and self.model.layers == 2, "model", "an MLP of 2 layers", self.model)
        require(self.noise >= 0, "noise", "at least 0", self.noise)

    # -- the hooks of a round ---------------------------------------------------------------------------------------

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Give each training client a slice of the stacked weights, and perform the first exchange (lines 2, 3)."""
        fed, nodes = group_untrained(fed)
        samples, graphs = Samples.of(fed), []
        # A round of one step never returns to the samples after its first move.
        products = self.compensation and self._steps(samples) > 1
        for run, source in enumerate(fed.sources):
            a = propagation(client_edges(source), len(source.parts), self.propagation, self.alpha, self.steps)
            graph = Graph.of(fed, samples, run, nodes[run], a.to(fed.device, fed.dtype), self.share)
            graphs.append(graph.with_products(samples) if products else graph)
        shared = initial_weights(self.model, fed)
        received = exchange(fed, graphs, samples, shared, 0, self.compensation, self.noise)
        return fed, State(shared, {}, Memory(graphs, samples, shared, received, Trace()))

    def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
        """Return local weights equal to the server's average (line 4): u = 0 and w = 0."""
        memory: Memory = state.more
        if self.propagation != "none":
            count_messages(fed, memory.graphs, state.shared, t, self.compensation)
        x, first, second = memory.samples_of(fed).x, state.shared[FIRST], state.shared[SECOND][fed.run]
        base = torch.cat([x[graph.clients] @ first[run] for run, graph in enumerate(memory.graphs)])
        u, w = torch.zeros_like(base), base.new_zeros(len(base), fed.classes)
        return {BASE1: base, U: u, RECEIVED: w, SECOND: second, BASE2: second}

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """Yield the steps of I updates (line 5)."""
        for step in range(self._steps(state.more.samples)):
            yield Step((U, RECEIVED, SECOND), partial(self.local_loss, fed=fed.at(t, step), state=state, t=t))

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Return each client's loss on a batch of its training samples, `[clients]`, with the gradient of Eq. 15b.

        The value is the cross-entropy of Eq. 15a. Terms that are zero but have a gradient add the rest of Eq. 15b.
        """
        assert fed.clock is not None
        samples, received = state.more.samples_of(fed), state.more.received
        u, w, second, noise = weights[U], weights[RECEIVED], weights[SECOND], received.noise
        with torch.no_grad():
            z = weights[BASE1] + samples.gram @ u
            if self.compensation and fed.clock.step:  # w is 0 in the first step
                z += received.projected * torch.einsum("khc,kc->kh", weights[BASE2], w)[:, None]
                if noise is not None:
                    z += torch.einsum("kc,ksch->ksh", w, noise.at_samples)
        hidden = F.relu(z + _zero(u))
        logits = received.diagonal[:, None, None] * (hidden @ second) + received.c[:, None]
        if self.compensation:
            gradient_of_c = _zero(w) + torch.einsum("kh,khc->kc", received.active, _zero(second))
            if noise is not None:
                gradient_of_c = gradient_of_c + torch.einsum("kchd,khd->kc", noise.second, _zero(second))
            logits = logits + gradient_of_c[:, None]
        share = self._batch(fed, samples) if self.batch else samples.share
        y = fed.batch.y[samples.rows]
        losses = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view_as(share)
        return (losses * share).sum(1)

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return logits `[nodes, classes]` under each client's weights after its local steps, with C_k as received."""
        received: Received = state.more.received
        if only_training_nodes(fed):
            return received.logits  # no scored client has moved from the average
        hidden = F.relu(layers.linear(fed, fed.input, self.first_layers(weights, fed, state)))
        h, client = layers.linear(fed, hidden, weights[SECOND]), fed.batch.batch
        trained = (fed.count("train") > 0)[client][:, None]
        return torch.where(trained, received.diagonal[client, None] * h + received.c[client], received.logits)

    def aggregate(self, state: State, update: Update) -> State:
        """Average the weights of the clients that trained (line 1), and exchange h under the average (lines 2, 3)."""
        fed, memory, after = update.fed, state.more, update.after
        samples, received = memory.samples_of(fed), memory.received
        by = update.by.to(after[U].dtype)
        shared = {name: w.clone() for name, w in state.shared.items()}
        for run, graph in enumerate(memory.graphs):
            part = graph.trained
            mean = by[part] / by[part].sum()
            u, w = mean[:, None, None] * after[U][part], mean[:, None] * after[RECEIVED][part]
            move = samples.x[part].flatten(0, 1).T @ u.flatten(0, 1)
            if self.compensation:
                # This is sum_k M_k diag(W2 w_k). The sum over clients comes before that over samples.
                at_node = graph.off.T @ (w @ state.shared[SECOND][run].T)
                rows = at_node.index_select(0, graph.node[graph.held])
                rows.mul_(graph.share[graph.held, None]).mul_(received.on[run])
                move = move + graph.transposed @ rows
            if received.noise is not None:
                move = move + received.noise.mean(graph, samples, w, fed.seeds[run])
            shared[FIRST][run] += move
            shared[SECOND][run] = torch.einsum("k,khc->hc", mean, after[SECOND][part])
        received = exchange(fed, memory.graphs, samples, shared, update.round + 1, self.compensation, self.noise)
        memory.trace.add(fed, memory.graphs, received.logits, votes=self.share == "all")
        return State(shared, {}, replace(memory, average=shared, received=received))

    def predict(self, fed: Federation, state: State) -> Tensor:
        """Return logits `[nodes, classes]` of the average, with h_j computed under it."""
        memory: Memory = state.more
        return memory.received.logits

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Return the loss curves and the majority score, see `Trace.facts`."""
        memory: Memory = state.more
        return memory.trace.facts()

    # -- parts of the hooks -----------------------------------------------------------------------------------------

    def first_layers(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return W1_k of every client, `[clients, features, hidden]`."""
        memory, w = state.more, weights[RECEIVED]
        first: Tensor = memory.average[FIRST][fed.run] + memory.samples_of(fed).x.transpose(1, 2) @ weights[U]
        if not self.compensation:
            return first
        scale = torch.einsum("khc,kc->kh", memory.average[SECOND][fed.run], w)
        for graph, on in zip(memory.graphs, memory.received.on):
            x = graph.x_held.dense() if isinstance(graph.x_held, Sparse) else graph.x_held
            means = graph.means((x[:, :, None] * on[:, None]).flatten(1))
            first[graph.trained] += (graph.off @ means).view(-1, *first.shape[1:]) * scale[graph.trained, None]
        if memory.received.noise is not None:
            first += torch.einsum("kc,kcph->kph", w, memory.received.noise.first)
        return first

    def _batches(self, samples: Samples) -> int:
        """Return the number of batches in a pass over the samples."""
        return -(-samples.rows.shape[1] // self.batch) if self.batch else 1

    def _steps(self, samples: Samples) -> int:
        """Return the number of local steps in a round."""
        return self.local_epochs * (self._batches(samples) if self.update == "pass" else 1)

    def _batch(self, fed: Federation, samples: Samples) -> Tensor:
        """Return the weights `[clients, samples]` of the samples in this step's batch.

        Each pass goes through the samples in a new order, a function of (seed, client, pass).
        """
        assert fed.clock is not None
        batches = self._batches(samples)
        number, index = divmod(fed.clock.round * self._steps(samples) + fed.clock.step, batches)
        seeds = np.asarray(fed.seeds)[fed.run.cpu().numpy()][:, None]
        client = fed.number.cpu().numpy()[:, None]
        keys = random.keys("batch", seeds, client, number, np.arange(samples.rows.shape[1])[None])
        keys = np.where(samples.share.cpu().numpy() > 0, keys, np.uint64(2**64 - 1))  # padding comes last
        rank = torch.from_numpy(keys.argsort(1).argsort(1)).to(samples.share.device)
        chosen = (rank // self.batch == index) & (samples.share > 0)
        return chosen / chosen.sum(1, keepdim=True).clamp(min=1).to(samples.share.dtype)


def _zero(w: Tensor) -> Tensor:
    """Return zeros whose gradient is that of `w`."""
    return w - w.detach()


@dataclass(frozen=True, kw_only=True)
class FedMLP(GFLAPPNP):
    """FedAvg of the encoder with SGD on batches (Section 6.3). It is GFL with the identity for A (Remark 1)."""

    propagation: str = "none"
    compensation: bool = False
    share: str = "train"

    def __post_init__(self) -> None:
        super().__post_init__()
        without = self.propagation == "none" and not self.compensation
        require(without, "propagation", "'none', without compensation, for an MLP", self.propagation)


@dataclass(frozen=True, kw_only=True)
class MLPs(FedMLP):
    """FedMLP without averages. Every client trains an MLP from common initial weights and sends nothing."""

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Give every client the initial weights."""
        fed, state = super().start(fed)
        return fed, State({}, super().begin_round(fed, state, 0), state.more)

    def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
        """Return the weights with which each client ended the last round."""
        return state.personal

    def aggregate(self, state: State, update: Update) -> State:
        """Keep all weights where they are, and score them."""
        logits = self.forward(update.after, update.fed, state)
        state.more.trace.add(update.fed, state.more.graphs, logits, votes=False)
        memory = replace(state.more, received=replace(state.more.received, logits=logits))
        return replace(state, personal=update.after, more=memory)


@dataclass(frozen=True, kw_only=True)
class CentralUnbiased(Central):
    """Central GCN, GAT or GraphSAGE, trained on the full batch without bias terms (Appendix A.2.2).

    Args:
        torch_init: whether weights start as PyTorch's linear layers do (GFL-B). Otherwise they start as the model's
            default, and attention vectors always do.
    """

    torch_init: bool = False

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Draw the initial weights."""
        fed, state = super().start(fed)
        for name, w in state.personal.items():
            if self.torch_init and w.dim() == 3 and not name.endswith((".source", ".target")):
                for client, seed in enumerate(fed.seeds):
                    w[client] = torch_uniform(tuple(w.shape[1:]), seed, name).to(w)
        return fed, state

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """Yield steps that move all weights but the biases."""
        for step in super().local_steps(fed, state, t):
            yield step._replace(names=tuple(name for name in step.names if not name.endswith("bias")))
