"""GFL-APPNP (GFL, Algorithm 1): every client is a node of a graph and shares its hidden representation h.

    h_j = MLP(x_j; W)      C_k = sum_{j != k} A_kj h_j      prediction of k = softmax(A_kk h_k + C_k)    (Eq. 13, 15)

One round: the server averages W; every client computes h_j and its gradient under that average; the server sends
C_k and grad C_k = sum_{j != k} A_kj grad h_j; clients take I local steps along (y^ - y) (A_kk grad h_k + grad C_k),
with C_k and grad C_k as received (the compensation).

How local weights are stored. For a two-layer MLP without biases every local step moves the first layer within the
span of what the client holds: its samples x_s, and the received gradient, which is M_k = sum_{j != k} A_kj x_j m_j^T
scaled by column (m_j: which hidden units of j are on). So during the local steps

    W1_k = W1 + sum_s x_s u_s^T + M_k diag(W2 w_k) [+ sum_c w_kc noise_kc]

and a client's first layer is u_k `[samples, hidden]` and w_k `[classes]`: a step costs a few products of that size
instead of `[features, hidden]`. Gradients of u and w are those of W1 in these coordinates; plain SGD on them is plain
SGD on W1, to rounding (tested against automatic differentiation of the weights themselves).

Decisions the paper leaves open, or its text and numbers tell apart:

    GFL-Q1   propagation: "appnp" sums a (1-a)^i S^i with the rest of the weight on the last power; "truncated", which
             gave the published numbers, leaves that rest out; "printed" is Eq. 13b
    GFL-Q3   steps follow (y^ - y), descent; the printed sign ascends
    GFL-Q7   h_j of a client with several samples is their mean: over all of them where its label is fixed (the test
             nodes' features are known in semi-supervised learning), over the training ones in supervised classification
    GFL-Q10  ReLU, PyTorch's default initialization, all nodes take part in the propagation
    GFL-Q13  clients without training samples take no step and are not averaged; they share h alone
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import Method, State, Step, Update
from fedrepro.engine.nn import layers, random
from fedrepro.engine.nn.models import MLP
from fedrepro.engine.nn.optim import Optimizer
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require
from fedrepro.papers.gfl import noise as gfl_noise
from fedrepro.papers.gfl.clients import (
    FIRST,
    SECOND,
    Graph,
    Own,
    PlainSGD,
    Trace,
    initial_weights,
    one_slice_for_the_rest,
    own_samples,
    propagation,
    propagation_weights,
    training_rows,
)  # fmt: skip

U, RECEIVED = "layer1.own", "layer1.received"


@dataclass(frozen=True)
class Received:
    """What the last exchange brought: messages to the training clients, and what the server keeps to add up the round.

    Shapes: `shared` `[clients, classes]` C_k; `own` `[clients]` A_kk; `active` `[clients, hidden]` grad C_k by layer 2;
    `projected` `[clients, samples, hidden]` grad C_k by layer 1 at the client's own samples; `on`, one a run, `[held
    samples, hidden]` 0/1 for each sample of a mean h_j; `logits` `[nodes, classes]` of what the average predicts;
    `noise1` `[clients, classes, features, hidden]`, where it is needed whole, and `noise2` `[clients, classes, hidden,
    classes]`, or None; `noise_at` `[clients, samples, classes, hidden]`.
    """

    shared: Tensor
    own: Tensor
    active: Tensor
    projected: Tensor
    on: list[Tensor]
    logits: Tensor
    noise1: Tensor | None = None
    noise2: Tensor | None = None
    noise_at: Tensor | None = None


@dataclass(frozen=True)
class Memory:
    """Between rounds: the graphs, the average and what the last exchange under it brought, each client's training
    samples, and the losses measured so far.
    """

    graphs: tuple[Graph, ...]
    average: Weights
    received: Received
    own: Own
    trace: Trace


@dataclass(frozen=True, kw_only=True)
class GFLAPPNP(Method):
    """GFL-APPNP with `local_epochs` = I local updates a round; T updates are T / I rounds.

    Args:
        model: an `MLP` of two layers; its biases are not used.
        alpha, steps: of the propagation (alpha, M).
        propagation: one of `PROPAGATIONS`.
        compensation: False sends h alone (V2).
        noise: standard deviation of what each client adds to the gradient of h it uploads (V1: 1).
        batch: training samples in a step, drawn anew for each pass over them; 0 for all.
        update: what one of the I updates is: a "step" on one batch, or a "pass" over all batches as in the authors'
            code. The same where `batch` is 0.
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
        require(self.optimizer == "sgd", "optimizer", "'sgd'", self.optimizer)
        for name in ("momentum", "weight_decay"):
            require(getattr(self, name) == 0, name, "0", getattr(self, name))
        require(type(self.model) is MLP and self.model.layers == 2, "model", "an MLP of 2 layers", self.model)
        require(self.noise >= 0, "noise", "at least 0", self.noise)

    def rule(self) -> Optimizer:
        """SGD without momentum."""
        return PlainSGD("sgd", self.lr, self.weight_decay, self.momentum)

    # -- hooks --------------------------------------------------------------------------------------------------------

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Each training client gets a slice of its own, all others of a run share one; then the first exchange."""
        fed, nodes = one_slice_for_the_rest(fed)
        own = own_samples(fed, training_rows(fed))
        graphs = tuple(self._graph(fed, own, run, nodes[run]) for run in range(fed.runs))
        shared = initial_weights(self.model, fed)
        return fed, State(shared, {}, Memory(graphs, shared, self._exchange(fed, graphs, own, shared, 0), own, Trace()))

    def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
        """Local weights at the server's average, in the coordinates of the module's text."""
        _count(self, fed, state, t)
        own = self._current(fed, state)
        clients, samples = own.rows.shape
        base = own.x.new_empty(clients, samples, self.model.hidden)
        for run, graph in enumerate(state.more.graphs):
            torch.matmul(own.x[graph.clients], state.shared[FIRST][run], out=base[graph.clients])
        return {
            "layer1.base": base,
            U: base.new_zeros(clients, samples, self.model.hidden),
            RECEIVED: base.new_zeros(clients, fed.classes),
            SECOND: state.shared[SECOND][fed.run],
            "layer2.base": state.shared[SECOND][fed.run],
        }

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """I updates; with batches a "pass" is several steps."""
        for step in range(self.local_epochs * (self._batches(state) if self.update == "pass" else 1)):
            yield Step((U, RECEIVED, SECOND), partial(self.local_loss, fed=fed.at(t, step), state=state, t=t))

    def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
        """Each client's loss `[clients]` on a batch of its training samples, with the gradient of Eq. 15b."""
        assert fed.clock is not None
        own, got = self._current(fed, state), state.more.received
        u, w, second = weights[U], weights[RECEIVED], weights[SECOND]
        with torch.no_grad():
            z = weights["layer1.base"] + own.gram @ u
            if self.compensation and fed.clock.step:
                z += got.projected * torch.einsum("khc,kc->kh", weights["layer2.base"], w)[:, None]
            if got.noise_at is not None and fed.clock.step:
                z += torch.einsum("kc,ksch->ksh", w, got.noise_at)
        hidden = F.relu(z + _nothing(u))
        logits = got.own[:, None, None] * (hidden @ second) + got.shared[:, None]
        if self.compensation:
            silent = _nothing(second)
            extra = _nothing(w) + torch.einsum("kh,khc->kc", got.active, silent)
            if got.noise2 is not None:
                extra = extra + torch.einsum("kchd,khd->kc", got.noise2, silent)
            logits = logits + extra[:, None]
        share = own.share if not self.batch else self._batch(fed, state, own)
        y = fed.batch.y[own.rows]
        each = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view_as(share)
        return (each * share).sum(1)

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Logits `[nodes, classes]` under each client's own weights after its local steps, with C_k as received."""
        got: Received = state.more.received
        if _nothing_but_training(fed):
            return got.logits  # the rest predicts with what it received
        hidden = F.relu(layers.linear(fed, fed.input, self.first_layers(weights, fed, state)))
        h = layers.linear(fed, hidden, weights[SECOND])
        trained = (fed.count("train") > 0)[fed.batch.batch][:, None]
        client = fed.batch.batch
        return torch.where(trained, got.own[client, None] * h + got.shared[client], got.logits)

    def aggregate(self, state: State, update: Update) -> State:
        """The average of the clients' weights, then the next exchange under it."""
        fed, memory, after = update.fed, state.more, update.after
        own = self._current(fed, state)
        by = update.by.to(after[U].dtype)
        shared = {name: w.clone() for name, w in state.shared.items()}
        for run, graph in enumerate(memory.graphs):
            part = graph.trained
            share = by[part] / by[part].sum()
            move = self._mean_move(memory, own, run, share, after, state.shared[SECOND][run])
            if self.noise and self.compensation:
                w = share[:, None] * after[RECEIVED][part]
                move = move + self._noise_in_mean(memory, own, run, w, fed.seeds[run], update.round)
            shared[FIRST][run] += move
            shared[SECOND][run] = torch.einsum("k,khc->hc", share, after[SECOND][part])
        received = self._exchange(fed, memory.graphs, own, shared, update.round + 1)
        memory.trace.add(fed, memory.graphs, received.logits, votes=self.share == "all")
        return State(shared, {}, replace(memory, average=shared, received=received))

    def predict(self, fed: Federation, state: State) -> Tensor:
        """Logits `[nodes, classes]` of the average, with h_j recomputed under it."""
        got: Tensor = state.more.received.logits
        return got

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """`Trace.facts`."""
        found: list[dict[str, float]] = state.more.trace.facts()
        return found

    # -- the exchange -------------------------------------------------------------------------------------------------

    def _exchange(self, fed: Federation, graphs: tuple[Graph, ...], own: Own, shared: Weights, t: int) -> Received:
        """h_j, C_k and grad C_k under the server's average."""
        clients, samples = own.rows.shape
        hidden, classes, new = self.model.hidden, fed.classes, shared[FIRST].new_zeros
        unset = shared[FIRST].new_empty  # for the largest tensors, which need not be filled twice
        got = Received(
            shared=new(clients, classes), own=new(clients), active=new(clients, hidden),
            projected=new(clients, samples, hidden), on=[], logits=new(fed.nodes, classes),
        )  # fmt: skip
        if self.noise:
            whole = samples > 1 or not _nothing_but_training(fed)  # W1_k written out, or more than one product with it
            got = replace(
                got, noise1=unset(clients, classes, fed.features, hidden) if whole else None,
                noise2=unset(clients, classes, hidden, classes), noise_at=new(clients, samples, classes, hidden),
            )  # fmt: skip
        for run, graph in enumerate(graphs):
            part = graph.trained
            z = F.relu(graph.x @ shared[FIRST][run])
            on = (z[graph.held] > 0).to(z.dtype)
            h = z @ shared[SECOND][run]
            means = graph.share[graph.held, None] * z[graph.held]
            sums = new(len(graph.a), hidden).index_add_(0, graph.node[graph.held], means)
            diagonal = graph.a.diagonal()
            c = graph.a @ (sums @ shared[SECOND][run]) - diagonal[:, None] * (sums @ shared[SECOND][run])
            got.on.append(on)
            got.logits[graph.rows] = diagonal[graph.node, None] * h + c[graph.node]
            got.shared[part], got.own[part] = c[graph.train], diagonal[graph.train]
            if self.compensation:
                got.active[part] = graph.off @ sums
                if graph.gram is not None:
                    got.projected[part] = (graph.gram @ on).view(-1, samples, hidden)
                if self.noise:
                    self._draw_noise(got, own, graph, part, fed.seeds[run], t)
        return got

    def _draw_noise(self, got: Received, own: Own, graph: Graph, part: slice, seed: int, t: int) -> None:
        """What the noise of all neighbours adds to grad C_k, a function of (seed, round) alone (`gfl_noise`)."""
        assert got.noise2 is not None and got.noise_at is not None
        mix, source = self.noise**2 * graph.mix, _generator("gfl noise", seed, t)
        if got.noise1 is None:
            x = own.x[part, 0].double().cpu()
            got.noise_at[part, 0] = gfl_noise.at_samples(mix, x, got.noise_at.shape[2], got.noise_at.shape[3], source)
        for noise in (got.noise1, got.noise2):
            if noise is not None:
                gfl_noise.draw(mix, source, noise[part])
                noise[part.stop : graph.clients.stop] = 0
        if got.noise1 is not None:
            got.noise_at[part] = (own.x[part, None] @ got.noise1[part]).transpose(1, 2)

    def _noise_in_mean(self, memory: Memory, own: Own, run: int, w: Tensor, seed: int, t: int) -> Tensor:
        """sum_kc w_kc N_kc of a round, `[features, hidden]`, with `w` `[training clients, classes]`."""
        graph, got = memory.graphs[run], memory.received
        if got.noise1 is not None:
            return torch.einsum("kc,kcph->ph", w, got.noise1[graph.trained])
        assert got.noise_at is not None
        x, w64, at = (y.double().cpu() for y in (own.x[graph.trained, 0], w, got.noise_at[graph.trained, 0]))
        source = _generator("gfl noise in the mean", seed, t)
        return gfl_noise.total(self.noise**2 * graph.mix, x, w64, at, source).to(w)

    def _mean_move(self, memory: Memory, own: Own, run: int, share: Tensor, after: Weights, second: Tensor) -> Tensor:
        """The weighted mean over clients of what the round added to the first layer, `[features, hidden]`."""
        graph = memory.graphs[run]
        part = graph.trained
        u = share[:, None, None] * after[U][part]
        move = own.x[part].flatten(0, 1).T @ u.flatten(0, 1)
        if not self.compensation:
            return move
        w = share[:, None] * after[RECEIVED][part]
        at_node = graph.off.T @ (w @ second.T)
        rows = at_node.index_select(0, graph.node[graph.held])
        rows.mul_(graph.share[graph.held, None]).mul_(memory.received.on[run])
        return move + graph.transposed @ rows

    def first_layers(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """W1_k of every client, written out: `[clients, features, hidden]`."""
        got, own = state.more.received, self._current(fed, state)
        first: Tensor = state.more.average[FIRST][fed.run] + own.x.transpose(1, 2) @ weights[U]
        if not self.compensation:
            return first
        w = weights[RECEIVED]
        scale = torch.einsum("khc,kc->kh", state.more.average[SECOND][fed.run], w)
        for run, graph in enumerate(state.more.graphs):
            x = graph.x.dense() if isinstance(graph.x, Sparse) else graph.x
            on = graph.share[graph.held, None] * got.on[run]
            each = (x[graph.held][:, :, None] * on[:, None]).flatten(1)
            sums = each.new_zeros(len(graph.a), each.shape[1]).index_add_(0, graph.node[graph.held], each)
            first[graph.trained] += (graph.off @ sums).view(-1, *first.shape[1:]) * scale[graph.trained, None]
        if self.noise:
            assert got.noise1 is not None, "drawn only where `forward` needs it"
            first += torch.einsum("kc,kcph->kph", w, got.noise1)
        return first

    # -- what is fixed ------------------------------------------------------------------------------------------------

    def _graph(self, fed: Federation, own: Own, run: int, node: Tensor) -> Graph:
        source = fed.sources[run]
        owner = torch.empty(source.data.num_nodes, dtype=torch.long)
        for number, part in enumerate(source.parts):
            owner[part] = number
        ends = owner[source.data.edge_index]
        a = propagation(ends[:, ends[0] != ends[1]], len(source.parts), self.propagation, self.alpha, self.steps).to(
            fed.device, fed.dtype
        )
        mine = (fed.run == run).nonzero().squeeze(1)
        clients = slice(int(mine[0]), int(mine[-1]) + 1)
        rows = slice(int(fed.batch.ptr[clients.start]), int(fed.batch.ptr[clients.stop]))
        held = fed.batch.train_mask[rows] if self.share == "train" else torch.ones_like(node, dtype=torch.bool)
        count = torch.bincount(node[held], minlength=len(a)).clamp(min=1)
        share = held.to(fed.dtype) / count[node].to(fed.dtype)
        trained = int((fed.count("train")[clients] > 0).sum())
        train = node[own.rows[clients.start : clients.start + trained, 0] - rows.start]
        every = torch.arange(rows.start, rows.stop, device=fed.device)
        held_x = fed.x.rows(every) if isinstance(fed.x, Sparse) else fed.x[rows]
        graph = Graph(rows, held_x, clients, a, node, share, train, None)
        if not self.compensation or self._steps_a_round(own) == 1:
            return graph
        x, samples = own.x[graph.trained], own.x.shape[1]
        products = (held_x @ x.flatten(0, 1).T.contiguous())[graph.held].T.view(trained, samples, -1)
        at = (graph.off[:, node] * share)[:, None, graph.held]
        return replace(graph, gram=(products * at).flatten(0, 1))

    def _current(self, fed: Federation, state: State) -> Own:
        """The clients' training samples, taken again where the federation's features are not those of the start."""
        own: Own = state.more.own
        return own if own.source is fed.x else own_samples(fed, own.rows)

    def _batches(self, state: State) -> int:
        return -(-state.more.own.rows.shape[1] // self.batch) if self.batch else 1

    def _steps_a_round(self, own: Own) -> int:
        passes = -(-own.rows.shape[1] // self.batch) if self.batch and self.update == "pass" else 1
        return self.local_epochs * passes

    def _batch(self, fed: Federation, state: State, own: Own) -> Tensor:
        """Weights `[clients, samples]` of the samples of this step's batch: each pass goes through them in a new order,
        a function of (seed, client, pass).
        """
        assert fed.clock is not None
        batches = self._batches(state)
        steps = self.local_epochs * (batches if self.update == "pass" else 1)
        number, place = divmod(fed.clock.round * steps + fed.clock.step, batches)
        seeds = np.asarray(fed.seeds)[fed.run.cpu().numpy()][:, None]
        client = fed.number.cpu().numpy()[:, None]
        keys = random.keys("batch", seeds, client, number, np.arange(own.rows.shape[1])[None])
        keys = np.where(own.share.cpu().numpy() > 0, keys, np.uint64(2**64 - 1))  # padding comes last
        rank = torch.from_numpy(keys.argsort(1).argsort(1)).to(own.share.device)
        chosen = (rank // self.batch == place) & (own.share > 0)
        return chosen / chosen.sum(1, keepdim=True).clamp(min=1).to(own.share.dtype)


# -- parts --------------------------------------------------------------------------------------------------------


def _generator(name: str, seed: int, t: int) -> torch.Generator:
    return torch.Generator(device="cpu").manual_seed(int(random.keys(name, seed, t) >> np.uint64(1)))


def _nothing_but_training(fed: Federation) -> bool:
    """Whether every client that trains holds training nodes alone."""
    count = fed.count("train")
    return not bool(((count > 0) & (count < fed.count("all"))).any())


def _nothing(w: Tensor) -> Tensor:
    """Zero, whose gradient is that of `w`."""
    return w - w.detach()


def _count(method: GFLAPPNP, fed: Federation, state: State, t: int) -> None:
    """Every client uploads h and its gradient (one number per class and weight) and receives C and its gradient; those
    that do not train also receive the average, without which they could not compute h.
    """
    each = sum(w[0].numel() for w in state.shared.values())
    nodes = np.array([len(graph.a) for graph in state.more.graphs])
    rest = nodes - np.array([len(graph.train) for graph in state.more.graphs])
    if rest.any() and method.propagation != "none":
        fed.traffic.send("down", "weights", rest * each, round=t)
    if method.propagation == "none":
        return
    for direction, name in (("up", "h"), ("down", "C")):
        fed.traffic.send(direction, name, nodes * fed.classes, round=t)
        if method.compensation:
            fed.traffic.send(direction, f"gradient of {name}", nodes * fed.classes * each, round=t)
