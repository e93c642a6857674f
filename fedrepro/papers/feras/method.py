"""Train Feras: the hosts of GraphSAINT share weights and, in every step, the embeddings after layer p.

"Federated Graph-based Networks with Shared Embedding", Tianyi Yu, Pei Lai and Fei Teng, 2022,
https://arxiv.org/abs/2210.01803.

Every host knows the edges of one graph and the features of some of its nodes. In every step it draws a sub-graph of the
whole training graph, and the features of nodes that it cannot see are zero. The aggregation server sends it embeddings
of these nodes. The embedding of node v that host n continues with is the mean (Eq. 7 to 9)

    x~_n(v) = mean of x^_m(v) over the hosts m that see v and drew it in this iteration

x^_m `[nodes of the sub-graph, width]` is the output of the first p layers at host m (`h` in `Feras.share`), and x~_n
has the same shape. The weights W1 of the first layers, `[features, width]`, and all further weights are averaged.

Algorithm 1 (`exchange="average"`), one iteration:

    1. Host n draws a sub-graph V_n; features of nodes it cannot see are 0 (lines 4 to 6).  `GraphSAINT.sample`
    2. Host n computes x^_n by the first p layers (line 7).                               `GraphSAINT.local_loss`
    3. Host n sends the rows of the nodes that it sees to the server (line 8).            `Feras.receive`
    4. The server sends x~_n(v) for every v in V_n (lines 10 to 12).                      `Rows.mean`
    5. Host n computes the other layers on x~_n, the loss, and a step (lines 13 to 14).   `GraphSAINT.local_loss`
    6. The server averages the weights, every q units (lines 15 to 18).                   `GraphSAINTSW.aggregate`

Section 5.2 (`exchange="table"`), hosts one after another with a table of embeddings:

    1. Host n writes the rows of the nodes that it sees into the table.                   `Rows.written`
    2. For every other node it reads the row that was written last.                       `Rows.latest`

That row comes from a host before it in this iteration, or from any host in an earlier iteration. It is zero before the
first. For p = 1 a row depends on nothing that another host sent, and the weights of a host do not depend on the order.
The sequence is therefore computed as one batch, with equal results.

Decisions the paper leaves open:

    exchange   Both forms are run. If no host that sees a node drew it, the node's row is zero by Eq. 40
               (`absent="zero"`), or the row that the host computed itself (`absent="own"`). The table gives an old
               row instead. For predictions every host sends all nodes that it sees. (FR-Q3)
    gradient   Rows received from others are constants, as in Eq. 20, so only a host's share in a mean has a gradient.
               `gradient="through"` lets every host's loss reach the first layers of the others. (FR-Q4)
    public     A node is public if two or more hosts see it. The partition makes public nodes visible to all. (FR-Q10)

Not to be confused with GraphSAINT-SW, which shares weights only, nor with a halo exchange before training: here the
embeddings travel inside every training step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require
from fedrepro.papers.feras.saint.hosts import Host
from fedrepro.papers.feras.saint.method import GraphSAINTSW, Sample
from fedrepro.papers.feras.saint.network import rows_of


@dataclass(frozen=True, kw_only=True)
class Feras(GraphSAINTSW):
    """GraphSAINT-SW whose hosts also share the embeddings after convolution `p`, in every step.

    Args:
        exchange: "average" (Algorithm 1) or "table" (Section 5.2).
        gradient: "stopped" or "through", at rows received from other hosts.
        absent: "zero" or "own", the row that "average" gives a node if no host that sees it drew it.
        p: number of the convolution after which embeddings are shared.
    """

    exchange: str = "average"
    gradient: str = "stopped"
    absent: str = "zero"
    p: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("exchange", self.exchange, ("average", "table"))
        one_of("gradient", self.gradient, ("stopped", "through"))
        one_of("absent", self.absent, ("zero", "own"))
        require(1 <= self.p < self.model.layers, "p", f"from 1 to {self.model.layers - 1}, a convolution", self.p)

    # -- training -----------------------------------------------------------------------------------------------------

    def share(self, sample: Sample, h: Tensor, layer: int, state: State, t: int) -> Tensor:
        """Exchange embeddings after convolution p (Eq. 7 to 9).

        Return those that hosts continue with, `[nodes, width]`.
        """
        if layer != self.p:
            return h
        through = self.gradient == "through"
        rows = Rows.of(sample.fed)
        received, share = self.receive(sample.fed, rows, h if through else h.detach(), state, t)
        self._count(sample.fed, rows, h.shape[1], t)
        if self.exchange == "average" and self.absent == "own":
            received = torch.where(share[:, None] == 0, h, received)
        if through:
            return received
        # The value is that of the server. The added term is 0 and has the gradient of the host's share (FR-Q4).
        host_share = torch.where(rows.seen, share, 0.0)
        return received + host_share[:, None] * (h - h.detach())

    def receive(self, fed: Federation, rows: Rows, h: Tensor, state: State, t: int) -> tuple[Tensor, Tensor]:
        """Return the rows that the server sends every host for the nodes of its sub-graph.

        Args:
            fed: the sub-graphs of all hosts.
            rows: says which of their nodes are the same.
            h: embeddings as the hosts computed them, `[nodes, width]`.
            state: holds the table.
            t: the round.

        Returns:
            The rows `[nodes, width]`, and the share in each of one row that the server received, `[nodes]`. The share
            is 0 if the server received none.
        """
        if self.exchange == "average":
            count = rows.count[rows.node]
            self._note_unseen(fed, rows, count > 0, count > 0, state)
            return rows.mean(h), torch.where(count > 0, 1.0 / count.clamp(min=1).to(h.dtype), 0.0)
        memory, work = state.more, state.more.work
        table = memory.table if fed.clock is None or fed.clock.step == 0 else work.table
        if table is None:
            table = h.new_zeros(sum(source.data.num_nodes for source in fed.sources), h.shape[1])
        stale = table[rows.key]
        fresh, pulled = rows.latest(h, stale)
        work.table = rows.written(table, h.detach())
        self._note_unseen(fed, rows, fresh, fresh | stale.any(1), state)
        return pulled, torch.ones_like(pulled[:, 0])

    def aggregate(self, state: State, update: Update) -> State:
        """Average as GraphSAINT-SW does (lines 15 to 18). The table stays at the server for the next round."""
        kept = super().aggregate(state, update)
        return replace(kept, more=replace(kept.more, table=kept.more.work.table))

    def _count(self, fed: Federation, rows: Rows, width: int, t: int) -> None:
        """Count the rows that travel.

        A host sends rows of the nodes that it sees, since a blank row carries nothing. It receives the rows that
        replace those it computed.
        """
        up = _per_run(fed, rows.seen)
        down = _per_run(fed, torch.ones_like(rows.seen)) - (0 if self.exchange == "average" else up)
        fed.traffic.send("up", "embeddings", up * width, round=t)
        fed.traffic.send("down", "embeddings", down * width, round=t)

    def _note_unseen(self, fed: Federation, rows: Rows, fresh: Tensor, held: Tensor, state: State) -> None:
        """Count the nodes that hosts cannot see: all, those with a row of this iteration, and those with any row."""
        counts = state.more.work.counts
        for name, mask in (("unseen", ~rows.seen), ("fresh", fresh & ~rows.seen), ("held", held & ~rows.seen)):
            counts[name] = counts.get(name, 0) + _per_run(fed, mask)

    # -- prediction ---------------------------------------------------------------------------------------------------

    def _predict(
        self, weights: Weights, fed: Federation, known: tuple[Host, ...], clients: list[int], out: Tensor
    ) -> None:
        """Write the logits of one run's hosts: all embed the whole graph, exchange, and continue."""
        views = {client: self._view(weights, fed, known, client) for client in clients}
        hidden = {n: self.network.convolutions(view, None, range(1, self.p + 1)) for n, view in views.items()}
        seen = {client: fed.batch.visible[rows_of(fed, client), None] for client in clients}
        shared = self._shared(hidden, seen)
        for client, view in views.items():
            computed = hidden.pop(client)
            h = torch.where(seen[client], computed, shared) if self.exchange == "table" else shared
            h = self.network.convolutions(view, h, range(self.p + 1, self.model.layers))
            out[rows_of(fed, client)] = self.network.dense(view.weights, view.fed, h)

    def _shared(self, hidden: dict[int, Tensor], seen: dict[int, Tensor]) -> Tensor:
        """Return the server's row of every node: the mean over the hosts that see it, or that of the last (table)."""
        first = next(iter(hidden.values()))
        total, count = torch.zeros_like(first), first.new_zeros(len(first), 1)
        for client, h in hidden.items():
            if self.exchange == "table":
                total = torch.where(seen[client], h, total)
            else:
                total += torch.where(seen[client], h, 0.0)
                count += seen[client]
        return total if self.exchange == "table" else total.div_(count.clamp_(min=1))

    def facts(self, fed: Federation, state: State) -> list[dict[str, float]]:
        """Return the facts of GraphSAINT, and how often a sampled node that its host cannot see had a row.

        "fresh" is the share of such nodes with a row of the same iteration, "held" the share with any row.
        """
        facts, counts = super().facts(fed, state), state.more.work.counts
        for run, of_run in enumerate(facts):
            for name in ("fresh", "held"):
                of_run[name] = float(counts[name][run] / max(counts["unseen"][run], 1))
        return facts


@dataclass(frozen=True)
class Rows:
    """The rows of several hosts' sub-graphs, of which some are the same node of the same run.

    Shapes, `[nodes]` of the sub-graphs: `node` numbers the distinct nodes, `key` is the node's row in a table of all
    runs' nodes, `host` is the host's number, and `seen` is True if the host sees the node. `count` `[distinct nodes]`
    is the number of hosts that see the node and drew it.
    """

    node: Tensor
    key: Tensor
    host: Tensor
    seen: Tensor
    count: Tensor

    @classmethod
    def of(cls, fed: Federation) -> Rows:
        """Return the rows of a federation of sub-graphs."""
        sizes = torch.tensor([0, *(source.data.num_nodes for source in fed.sources)], device=fed.device)
        client, seen = fed.batch.batch, fed.batch.visible
        key = fed.batch.node_id + sizes.cumsum(0)[fed.run[client]]
        distinct, node = torch.unique(key, return_inverse=True)
        return cls(node, key, fed.number[client], seen, torch.bincount(node[seen], minlength=len(distinct)))

    def mean(self, h: Tensor) -> Tensor:
        """Return Theta x^ of Eq. 7 and 8, `[nodes, width]`.

        A row is the mean over the rows of the same node at hosts that see it, and 0 if there is none.
        """
        row = self.seen.nonzero().squeeze(1)
        node, every = self.node[row], torch.arange(len(h), device=h.device)
        gather = Sparse.of(node, row, 1.0 / self.count[node].to(h.dtype), (len(self.count), len(h)))
        spread = Sparse.of(every, self.node, torch.ones_like(every, dtype=h.dtype), (len(h), len(self.count)))
        return spread @ (gather @ h)

    @cached_property
    def _sequence(self) -> tuple[Tensor, Tensor, int]:
        """Return the rows of nodes that their hosts see, sorted by (node, host); the sorted keys; the hosts."""
        hosts = int(self.host.max()) + 1 if len(self.host) else 1
        row = self.seen.nonzero().squeeze(1)
        order, index = torch.sort((self.node * hosts + self.host)[row])
        return row[index], order, hosts

    def latest(self, h: Tensor, stale: Tensor) -> tuple[Tensor, Tensor]:
        """Return which rows come from another host in this iteration, and the rows that a host reads in the table.

        A host keeps its row of a node that it sees. Else it reads the row of the last host before it in this iteration,
        and `stale` if there is none.
        """
        row, order, hosts = self._sequence
        if not len(row):
            return torch.zeros_like(self.seen), stale
        before = torch.searchsorted(order, self.node * hosts + self.host) - 1
        index = before.clamp(min=0)
        fresh = (before >= 0) & ~self.seen & (order[index] // hosts == self.node)
        pulled = torch.where(fresh[:, None], h[row[index]], stale)
        return fresh, torch.where(self.seen[:, None], h, pulled)

    def written(self, table: Tensor, h: Tensor) -> Tensor:
        """Return the table after every host, in order, wrote the rows of the nodes that it sees."""
        row, order, hosts = self._sequence
        last = torch.ones_like(order, dtype=torch.bool)
        last[:-1] = order[1:] // hosts != order[:-1] // hosts
        return table.index_copy(0, self.key[row[last]], h[row[last]])


def _per_run(fed: Federation, mask: Tensor) -> np.ndarray:
    """Count the nodes of each run's sub-graphs at which a mask is True, `[runs]`."""
    return torch.bincount(fed.run[fed.batch.batch[mask]], minlength=fed.runs).cpu().numpy()
