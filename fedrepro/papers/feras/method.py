"""Feras (Yu et al. 2021): GraphSAINT's hosts share weights and, in every step, the embeddings after layer p.

Algorithm 1 (`exchange="average"`), one iteration:

    line 4-5    every host n draws a sub-graph V_n of the whole training graph, features of unseen nodes are zero
    line 7-9    x^_n = the first p layers on it; the rows of nodes it sees go to the aggregation server
    line 10-12  x~_n(v) = mean of x^_m(v) over the hosts m that see v and drew it, for every v in V_n     (Eq. 7 to 9)
    line 13-14  the remaining layers on x~_n, the loss, a step
    line 18     weights are averaged, every q units

Section 5.2 trains hosts one after another with a table of embeddings instead (`exchange="table"`): host n writes the
rows of the nodes it sees, then takes for every other node what was written last, by a host before it in this
iteration or by any in an earlier one; zero before the first. Embeddings at p = 1 depend on nothing another host sent,
and no host's weights on the order, so the sequence is computed as one batch, with equal results.

Decisions the paper leaves open:

    FR-Q3   both exchanges. A node whose owners did not draw it takes zero by Eq. 40 (`absent="zero"`), or what the host
            computed itself ("own"); in the table a stale row. At prediction every host sends all nodes it sees
    FR-Q4   gradients stop at rows received from others (Eq. 20 treats them as constants): a host's own part of the mean
            has one; `gradient="through"` lets every host's loss reach the first layers of the others
    FR-Q10  a node is public if two or more hosts see it; the partition makes those visible to all
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import one_of, require
from fedrepro.papers.feras.saint.hosts import Host
from fedrepro.papers.feras.saint.method import GraphSAINTSW, Sample
from fedrepro.papers.feras.saint.network import one_client, rows_of

EXCHANGES = ("average", "table")


@dataclass(frozen=True, kw_only=True)
class Feras(GraphSAINTSW):
    """Weights averaged every `q` units, embeddings shared in every step.

    Args:
        exchange: "average" (Algorithm 1) or "table" (Section 5.2).
        gradient: "stopped" or "through", at rows received from other hosts.
        absent: "zero" or "own", what "average" gives a node that no owner drew.
        p: the convolution after which embeddings are shared.
    """

    exchange: str = "average"
    gradient: str = "stopped"
    absent: str = "zero"
    p: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("exchange", self.exchange, EXCHANGES)
        one_of("gradient", self.gradient, ("stopped", "through"))
        one_of("absent", self.absent, ("zero", "own"))
        require(1 <= self.p < self.model.layers, "p", f"from 1 to {self.model.layers - 1}, a convolution", self.p)

    # -- training -----------------------------------------------------------------------------------------------------

    def share(self, sample: Sample, h: Tensor, layer: int, state: State, t: int) -> Tensor:
        """Embeddings `[nodes, width]` as hosts use them in the layers after the p-th."""
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
        # FR-Q4: the value is the server's; its gradient is that of the host's own share in it (0 is added).
        own = torch.where(rows.seen, share, 0.0)
        return received + own[:, None] * (h - h.detach())

    def receive(self, fed: Federation, rows: Rows, h: Tensor, state: State, t: int) -> tuple[Tensor, Tensor]:
        """What the server sends every host for the nodes of its sub-graph.

        Args:
            fed: the sub-graphs of all hosts.
            rows: which of their nodes are the same.
            h: embeddings as hosts computed them, `[nodes, width]`.

        Returns:
            `[nodes, width]`, and the share `[nodes]` in it of each row the server received for the node, 0 without any.
        """
        if self.exchange == "average":
            count = rows.count[rows.node]
            self._note_held(fed, rows, count > 0, count > 0, state)
            return rows.mean(h), torch.where(count > 0, 1.0 / count.clamp(min=1).to(h.dtype), 0.0)
        memory, work = state.more, state.more.work
        table = memory.table if fed.clock is None or fed.clock.step == 0 else work.table
        if table is None:
            table = h.new_zeros(sum(source.data.num_nodes for source in fed.sources), h.shape[1])
        stale = table[rows.key]
        fresh, pulled = rows.latest(h, stale)
        work.table = rows.written(table, h.detach())
        self._note_held(fed, rows, fresh, fresh | stale.any(1), state)
        return pulled, torch.ones_like(pulled[:, 0])

    def aggregate(self, state: State, update: Update) -> State:
        """As GraphSAINT-SW; the table stays at the server for the next round."""
        made = super().aggregate(state, update)
        return replace(made, more=replace(made.more, table=made.more.work.table))

    def _count(self, fed: Federation, rows: Rows, width: int, t: int) -> None:
        """Up: rows of nodes the host sees (blanks carry nothing). Down: rows it uses in place of its own."""
        seen = _per_run(fed, rows.seen)
        down = _per_run(fed, torch.ones_like(rows.seen))
        fed.traffic.send("up", "embeddings", seen * width, round=t)
        fed.traffic.send("down", "embeddings", (down if self.exchange == "average" else down - seen) * width, round=t)

    def _note_held(self, fed: Federation, rows: Rows, fresh: Tensor, held: Tensor, state: State) -> None:
        counts = state.more.work.counts
        for name, which in (("unseen", ~rows.seen), ("fresh", fresh & ~rows.seen), ("held", held & ~rows.seen)):
            counts[name] = counts.get(name, 0) + _per_run(fed, which)

    # -- prediction ---------------------------------------------------------------------------------------------------

    def _predict(
        self, weights: Weights, fed: Federation, known: tuple[Host, ...], clients: list[int], out: Tensor
    ) -> None:
        """Logits of one run's hosts: all embed the whole graph, exchange, and go on."""
        alone = {client: one_client(fed, client) for client in clients}
        own = {client: {name: w[client : client + 1] for name, w in weights.items()} for client in clients}
        spread = {client: partial(known[client].spread, layer=self.layer) for client in clients}
        hidden: dict[int, Tensor] = {}
        for client in clients:
            h: Tensor | None = None
            for i in range(1, self.p + 1):
                h = self.network.convolution(own[client], alone[client], spread[client], h, i)
            assert h is not None
            hidden[client] = h
        seen = {client: fed.batch.visible[rows_of(fed, client), None] for client in clients}
        shared = self._shared(hidden, seen)
        for client in clients:
            h = hidden.pop(client)
            h = torch.where(seen[client], h, shared) if self.exchange == "table" else shared
            for i in range(self.p + 1, self.model.layers):
                h = self.network.convolution(own[client], alone[client], spread[client], h, i)
            out[rows_of(fed, client)] = self.network.dense(own[client], alone[client], h)

    def _shared(self, hidden: dict[int, Tensor], seen: dict[int, Tensor]) -> Tensor:
        """What the server holds of every node: the mean over the hosts that see it, or the last one's (the table)."""
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
        """Those of GraphSAINT; of the nodes sampled by a host that cannot see them, the share whose embedding came from
        this iteration ("fresh"), and whose embedding was there at all ("held").
        """
        found, counts = super().facts(fed, state), state.more.work.counts
        for run, each in enumerate(found):
            for name in ("fresh", "held"):
                each[name] = float(counts[name][run] / max(counts["unseen"][run], 1))
        return found


@dataclass(frozen=True)
class Rows:
    """Which nodes of several hosts' sub-graphs are the same node of the same run.

    Shapes, `[nodes]` of the sub-graphs: `node`, a number of the node among the different ones; `key`, its place in a
    table of all runs' nodes; `host`, the host's number; `seen`, whether the host sees it. `count` `[different nodes]`,
    by how many hosts that see it each was drawn.
    """

    node: Tensor
    key: Tensor
    host: Tensor
    seen: Tensor
    count: Tensor

    @classmethod
    def of(cls, fed: Federation) -> Rows:
        """Of a federation of sub-graphs."""
        sizes = torch.tensor([0, *(source.data.num_nodes for source in fed.sources)], device=fed.device)
        client = fed.batch.batch
        key = fed.batch.node_id + sizes.cumsum(0)[fed.run[client]]
        different, node = torch.unique(key, return_inverse=True)
        seen = fed.batch.visible
        count = torch.bincount(node[seen], minlength=len(different))
        return cls(node, key, fed.number[client], seen, count)

    def mean(self, h: Tensor) -> Tensor:
        """For each row the mean over the rows of the same node at hosts that see it, 0 without any: Theta x^ of Eq. 7
        and 8.
        """
        row = self.seen.nonzero().squeeze(1)
        node, every = self.node[row], torch.arange(len(h), device=h.device)
        gather = Sparse.of(node, row, 1.0 / self.count[node].to(h.dtype), (len(self.count), len(h)))
        spread = Sparse.of(every, self.node, torch.ones_like(every, dtype=h.dtype), (len(h), len(self.count)))
        return spread @ (gather @ h)

    @cached_property
    def _sequence(self) -> tuple[Tensor, Tensor, int]:
        """Rows of nodes their hosts see, by node and then by host; their places in that order; hosts."""
        hosts = int(self.host.max()) + 1 if len(self.host) else 1
        row = self.seen.nonzero().squeeze(1)
        place, order = torch.sort((self.node * hosts + self.host)[row])
        return row[order], place, hosts

    def latest(self, h: Tensor, stale: Tensor) -> tuple[Tensor, Tensor]:
        """Own rows where the host sees the node, else the row of the last host before it in this iteration, else
        `stale`; and which came from this iteration.
        """
        row, place, hosts = self._sequence
        if not len(row):
            return torch.zeros_like(self.seen), stale
        before = torch.searchsorted(place, self.node * hosts + self.host) - 1
        found = before.clamp(min=0)
        fresh = (before >= 0) & ~self.seen & (place[found] // hosts == self.node)
        pulled = torch.where(fresh[:, None], h[row[found]], stale)
        return fresh, torch.where(self.seen[:, None], h, pulled)

    def written(self, table: Tensor, h: Tensor) -> Tensor:
        """The table after every host, in order, wrote the rows of the nodes it sees."""
        row, place, hosts = self._sequence
        last = torch.ones_like(place, dtype=torch.bool)
        last[:-1] = place[1:] // hosts != place[:-1] // hosts
        return table.index_copy(0, self.key[row[last]], h[row[last]])


def _per_run(fed: Federation, which: Tensor) -> np.ndarray:
    """How many nodes of each run's sub-graphs something holds for: `[runs]`."""
    return torch.bincount(fed.run[fed.batch.batch[which]], minlength=fed.runs).cpu().numpy()
