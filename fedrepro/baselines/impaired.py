"""Prepare what a neighbour generator learns from: a client's graph without some nodes, and the graphs of other clients.

The generator is in `fedrepro.baselines.neighgen`, the method in `fedrepro.baselines.fedsage`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedrepro.engine.client_graphs import feature_rows
from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import random
from fedrepro.engine.nn.sparse import Sparse


class ClientView(NamedTuple):
    """The data that one client holds.

    Args:
        x: features `[nodes, features]`.
        y: labels `[nodes]`.
        train: training nodes `[nodes]` bool.
        edges: inner edges (source, target) without self-loops, `[2, edges]`.
        keys: 64-bit keys of the nodes, for random numbers.
        missing: number of neighbours of each node at other clients, `[nodes]`.
        seed: the run's seed.
        number: the client's number.
    """

    x: Tensor
    y: Tensor
    train: Tensor
    edges: Tensor
    keys: Tensor
    missing: Tensor
    seed: int
    number: int

    @classmethod
    def of(cls, fed: Federation, client: int) -> ClientView:
        """Return the part of a federation without halo that belongs to one client."""
        first, last = int(fed.batch.ptr[client]), int(fed.batch.ptr[client + 1])
        rows = torch.arange(first, last, device=fed.device)
        source, target = fed.batch.edge_index
        inside = (fed.batch.batch[target] == client) & (source != target)
        run = int(fed.run[client])
        return cls(
            x=fed.x.rows(rows).dense() if isinstance(fed.x, Sparse) else fed.x[rows],
            y=fed.batch.y[rows],
            train=fed.batch.train_mask[rows],
            edges=fed.batch.edge_index[:, inside] - first,
            keys=fed.node_key[rows],
            missing=_count_missing(fed, run, client, rows),
            seed=fed.seeds[run],
            number=int(fed.number[client]),
        )


class Impaired(NamedTuple):
    """A client's graph without its hidden nodes, and the hidden neighbours that a generator must find.

    Args:
        nodes: the client's nodes that are left, `[left]`. Their indices here are the numbers used below.
        edges: edges among them, `[2, edges]`.
        train: training nodes among them, `[left]` bool.
        near: training nodes and their neighbours.
        missing: number of hidden neighbours of each node, `[left]`.
        rows: the first q of these as nodes of the client, `[left, q]`.
        filled: the entries of `rows` that exist, `[left, q]` bool.
        x: features as layers take them, `[left, features]`.
    """

    nodes: Tensor
    edges: Tensor
    train: Tensor
    near: Tensor
    missing: Tensor
    rows: Tensor
    filled: Tensor
    x: Tensor | Sparse


class OtherClient(NamedTuple):
    """Another client's graph by rows, from which neighbours are drawn.

    Args:
        held: the client's data.
        start: index in `neighbours` of each node's first neighbour, `[nodes]`.
        neighbours: the neighbours of all nodes, one node after another, `[edges]`.
        degree: number of neighbours of each node, `[nodes]`.
        able: the nodes that have any.
        squares: squared lengths of the nodes' features, `[nodes]`.
    """

    held: ClientView
    start: Tensor
    neighbours: Tensor
    degree: Tensor
    able: Tensor
    squares: Tensor

    @classmethod
    def of(cls, held: ClientView) -> OtherClient:
        """Sort a client's edges by their targets."""
        order = torch.argsort(held.edges[1], stable=True)
        degree = torch.bincount(held.edges[1], minlength=len(held.x))
        able = degree.nonzero().squeeze(1)
        squares = held.x.square().sum(1)
        return cls(held, degree.cumsum(0) - degree, held.edges[0][order], degree, able, squares)

    def draw(self, nodes: int, most: int, asking: ClientView, epoch: int) -> Tensor:
        """Draw neighbourhoods for some nodes of the client that asks, `[nodes, most]`.

        Each is made of `most` neighbours, with repetition, of one random node that has any.
        """
        parts = ("cross", asking.seed, asking.number, self.held.number, epoch)
        drawn = random.uniform((nodes, 1 + most), *parts).to(self.start.device)
        node = self.able[(drawn[:, 0] * len(self.able)).long()]
        offset = (drawn[:, 1:] * self.degree[node][:, None]).long()
        return self.neighbours[self.start[node][:, None] + offset]


def hide_nodes(held: ClientView, share: float, most: int) -> Impaired:
    """Remove a random share of a client's nodes from its graph, none of them a training node."""
    n = len(held.x)
    drawn = random.uniform((n,), "hidden", held.seed, held.number).to(held.x.device)
    order = torch.where(held.train, math.inf, drawn).argsort()
    hidden = torch.zeros(n, dtype=torch.bool, device=held.x.device)
    hidden[order[: min(round(share * n), int((~held.train).sum()))]] = True
    source, target = held.edges
    broken = hidden[source] & ~hidden[target]
    pairs = torch.stack([target[broken], source[broken]])
    pairs = pairs[:, torch.argsort(pairs[0] * n + pairs[1])]
    count = torch.bincount(pairs[0], minlength=n)
    position = torch.arange(pairs.shape[1], device=count.device) - (count.cumsum(0) - count)[pairs[0]]
    first = position < most
    rows = torch.zeros(n, most, dtype=torch.long, device=count.device)
    rows[pairs[0][first], position[first]] = pairs[1][first]
    filled = torch.arange(most, device=count.device) < count[:, None]
    nodes = (~hidden).nonzero().squeeze(1)
    index = torch.full((n,), -1, device=count.device)
    index[nodes] = torch.arange(len(nodes), device=count.device)
    edges = index[held.edges]
    edges = edges[:, (edges >= 0).all(0)]
    train = held.train[nodes]
    seen = train.clone()
    seen[edges[0][train[edges[1]]]] = True
    near, x = seen.nonzero().squeeze(1), feature_rows(held.x, nodes)
    return Impaired(nodes, edges, train, near, count[nodes], rows[nodes], filled[nodes], x)


def _count_missing(fed: Federation, run: int, client: int, rows: Tensor) -> Tensor:
    """Count the neighbours at other clients of each of a client's nodes."""
    data, ids = fed.sources[run].data, fed.batch.node_id[rows].cpu()
    held = torch.zeros(data.num_nodes, dtype=torch.bool)
    held[ids] = True
    source, target = data.edge_index.cpu()
    cut = torch.bincount(target[held[target] & ~held[source]], minlength=data.num_nodes)
    return cut[ids].to(rows.device)
