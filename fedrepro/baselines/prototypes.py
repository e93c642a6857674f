"""Compute FGGP's class prototypes: weighted class means, their contrast, their clusters and a bank to predict from.

The method is in `fedrepro.baselines.fggp`. The clusters are those of FINCH (Sarfraz et al. 2019,
arXiv:1902.11266).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.engine.nn.sparse import groups_of, sum_groups
from fedrepro.errors import require


def class_means(h: Tensor, label: Tensor, weight: Tensor, group: Tensor, groups: int, classes: int) -> Tensor:
    """Return `sum w_v h_v / sum w_v` over the nodes of a group with a label: `[groups, classes, width]`.

    The mean of a class without nodes is 0.

    Args:
        h: `[nodes, width]`.
        label, weight, group: `[nodes]`.
    """
    cells = groups_of(group * classes + label, groups * classes)
    total, size = sum_groups(weight[:, None] * h, cells), sum_groups(weight, cells)
    mean = total / torch.where(size > 0, size, 1.0)[:, None]
    return mean.view(groups, classes, -1)


def contrast(a: Tensor, b: Tensor, present: Tensor, temperature: float) -> Tensor:
    """Return the InfoNCE loss between two views' prototypes, with cosine similarity: `[groups]`.

    For each class c that is present the positive pair is (a_c, b_c). The negative pairs are (a_c, b_c') and
    (a_c, a_c') for the other classes present. The loss is a mean over classes, and 0 for a group with one class.

    Args:
        a, b: `[groups, classes, width]`.
        present: `[groups, classes]`.
    """
    a, b = (F.normalize(part, dim=2) for part in (a, b))
    across = a @ b.transpose(1, 2) / temperature
    within = a @ a.transpose(1, 2) / temperature
    absent = ~present[:, None]
    same = torch.eye(a.shape[1], dtype=torch.bool, device=a.device)
    pairs = torch.cat([across.masked_fill(absent, -torch.inf), within.masked_fill(absent | same, -torch.inf)], dim=2)
    # The row of an absent class would give infinities.
    pairs = torch.where(present[..., None], pairs, 0.0)
    loss = torch.logsumexp(pairs, dim=2) - across.diagonal(dim1=1, dim2=2)
    return torch.where(present, loss, 0.0).sum(1) / present.sum(1).clamp(min=1)


def finch(points: Tensor) -> Tensor:
    """Cluster points by their first neighbours under cosine similarity (FINCH): `[points]`, numbers from 0.

    A point is linked to its nearest other point and to those with the same nearest point. The connected components are
    clusters, whose means are clustered again. This stops before everything is one cluster, or if nothing merges.

    Args:
        points: `[points, width]`, at least one.

    Raises:
        ArgumentError: there is no point.
    """
    require(len(points) >= 1, "points", "at least one", len(points))
    label = _link(points)
    while int(label.max()) > 0:
        coarser = _link(cluster_means(points, label))[label]
        if int(coarser.max()) in (0, int(label.max())):
            break
        label = coarser
    return label


def cluster_means(points: Tensor, label: Tensor) -> Tensor:
    """Return the mean of each cluster: `[clusters, width]`."""
    count = torch.bincount(label)
    return sum_groups(points, groups_of(label, len(count))) / count[:, None]


def _link(points: Tensor) -> Tensor:
    """Return the clusters of one level of FINCH."""
    n = len(points)
    if n == 1:
        return torch.zeros(1, dtype=torch.long, device=points.device)
    unit = F.normalize(points, dim=1)
    similarity = (unit @ unit.T).fill_diagonal_(-torch.inf)
    # Points that share a first neighbour are linked through it.
    label = list(range(n))
    for i, j in enumerate(similarity.argmax(1).tolist()):
        old, new = label[i], label[j]
        label = [new if cluster == old else cluster for cluster in label]
    numbers = {old: number for number, old in enumerate(dict.fromkeys(label))}
    return torch.tensor([numbers[cluster] for cluster in label], device=points.device)


class Bank(NamedTuple):
    """The prototypes from which a run predicts.

    Args:
        rows: prototypes of unit length, `[classes, slots, width]`.
        filled: the slots that hold one, `[classes, slots]` bool.
        place: the slot of each class that is written next, `[classes]`.
    """

    rows: Tensor
    filled: Tensor
    place: Tensor

    @classmethod
    def empty(cls, classes: int, slots: int, like: Tensor) -> Bank:
        """Return a bank without prototypes. Random ones, as in the public code, would vote for a class."""
        rows = like.new_zeros(classes, slots, like.shape[-1])
        return cls(rows, rows.new_zeros(classes, slots).bool(), torch.zeros(classes, dtype=torch.long))

    def written(self, label: int, rows: Tensor) -> Bank:
        """Return the bank with more prototypes of a class, each of which replaces the oldest one."""
        held, filled, following = self.rows.clone(), self.filled.clone(), self.place.clone()
        for row in F.normalize(rows, dim=1):
            slot = int(following[label])
            held[label, slot], filled[label, slot] = row, True
            following[label] = (slot + 1) % held.shape[1]
        return Bank(held, filled, following)

    def scores(self, h: Tensor, nearest: int, temperature: float = 0.1) -> Tensor:
        """Return the log of each class's share of the softmax over the `nearest` prototypes: `[nodes, classes]`."""
        rows, label = self.rows[self.filled], self.filled.nonzero()[:, 0]
        similarity = F.normalize(h, dim=1) @ rows.T
        best = similarity.topk(min(nearest, len(rows)), dim=1)
        share = torch.softmax(best.values / temperature, dim=1)
        row = torch.arange(len(h), device=h.device)[:, None]
        cells = groups_of((row * len(self.rows) + label[best.indices]).flatten(), len(h) * len(self.rows))
        return sum_groups(share.flatten(), cells).view(len(h), -1).clamp(min=1e-12).log()
