"""What a neighbour generator learns from: a client's graph without some of its nodes, and those of other clients."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedrepro.engine.client_graphs import feature_rows
from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import random
from fedrepro.engine.nn.sparse import Sparse


class Held(NamedTuple):
    """What one client holds: features `[nodes, features]`, labels, which nodes train, inner edges `[2, edges]`, 64-bit
    keys of its nodes, the number of neighbours each has at other clients, the run's seed and the client's number.
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
    def of(cls, fed: Federation, client: int) -> Held:
        """The part of a federation without halo that belongs to one client."""
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
            missing=_missing(fed, run, client, rows),
            seed=fed.seeds[run],
            number=int(fed.number[client]),
        )


class Impaired(NamedTuple):
    """A client's graph without its hidden nodes: those that are left `[left]`, edges and training nodes among them in
    the new numbers, the nodes that training nodes see, the true neighbours that are hidden: their number `[left]`, the
    first q of them `[left, q]` as nodes of the client, and which of these places are filled; features as layers take
    them `[left, features]`.
    """

    nodes: Tensor
    edges: Tensor
    train: Tensor
    near: Tensor
    missing: Tensor
    rows: Tensor
    filled: Tensor
    x: Tensor | Sparse


class Other(NamedTuple):
    """Another client's graph by rows: where each node's neighbours start, who they are, and who has any; squared
    lengths of its nodes' features.
    """

    held: Held
    start: Tensor
    neighbours: Tensor
    degree: Tensor
    able: Tensor
    squares: Tensor

    @classmethod
    def of(cls, held: Held) -> Other:
        order = torch.argsort(held.edges[1], stable=True)
        degree = torch.bincount(held.edges[1], minlength=len(held.x))
        able = degree.nonzero().squeeze(1)
        squares = held.x.square().sum(1)
        return cls(held, degree.cumsum(0) - degree, held.edges[0][order], degree, able, squares)

    def draw(self, nodes: int, most: int, asking: Held, epoch: int) -> Tensor:
        """For each of some nodes, `most` neighbours, with repetition, of one random node that has any: `[nodes,
        most]`.
        """
        parts = ("cross", asking.seed, asking.number, self.held.number, epoch)
        drawn = random.uniform((nodes, 1 + most), *parts).to(self.start.device)
        node = self.able[(drawn[:, 0] * len(self.able)).long()]
        place = (drawn[:, 1:] * self.degree[node][:, None]).long()
        return self.neighbours[self.start[node][:, None] + place]


def impaired(held: Held, share: float, most: int) -> Impaired:
    """A client's graph without a random share of its nodes, none of them a training node."""
    n = len(held.x)
    drawn = random.uniform((n,), "hidden", held.seed, held.number).to(held.x.device)
    order = torch.where(held.train, math.inf, drawn).argsort()
    hidden = torch.zeros(n, dtype=torch.bool, device=held.x.device)
    hidden[order[: min(round(share * n), int((~held.train).sum()))]] = True
    source, target = held.edges
    out = hidden[source] & ~hidden[target]
    pairs = torch.stack([target[out], source[out]])
    pairs = pairs[:, torch.argsort(pairs[0] * n + pairs[1])]
    count = torch.bincount(pairs[0], minlength=n)
    position = torch.arange(pairs.shape[1], device=count.device) - (count.cumsum(0) - count)[pairs[0]]
    first = position < most
    rows = torch.zeros(n, most, dtype=torch.long, device=count.device)
    rows[pairs[0][first], position[first]] = pairs[1][first]
    filled = torch.arange(most, device=count.device) < count[:, None]
    nodes = (~hidden).nonzero().squeeze(1)
    new = torch.full((n,), -1, device=count.device)
    new[nodes] = torch.arange(len(nodes), device=count.device)
    edges = new[held.edges]
    edges = edges[:, (edges >= 0).all(0)]
    train = held.train[nodes]
    seen = train.clone()
    seen[edges[0][train[edges[1]]]] = True
    near, x = seen.nonzero().squeeze(1), feature_rows(held.x, nodes)
    return Impaired(nodes, edges, train, near, count[nodes], rows[nodes], filled[nodes], x)


def _missing(fed: Federation, run: int, client: int, rows: Tensor) -> Tensor:
    """Of each of a client's nodes, how many neighbours it has at other clients."""
    data, ids = fed.sources[run].data, fed.batch.node_id[rows].cpu()
    held = torch.zeros(data.num_nodes, dtype=torch.bool)
    held[ids] = True
    source, target = data.edge_index.cpu()
    cut = torch.bincount(target[held[target] & ~held[source]], minlength=data.num_nodes)
    return cut[ids].to(rows.device)
