"""Class prototypes, as FGGP uses them: weighted class means, their contrast, FINCH clusters, a bank to predict from."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.errors import require


def class_means(h: Tensor, label: Tensor, weight: Tensor, group: Tensor, groups: int, classes: int) -> Tensor:
    """`sum w_v h_v / sum w_v` over the nodes of a group with a label: `[groups, classes, width]`; 0 where none is.

    Args:
        h: `[nodes, width]`.
        label, weight, group: `[nodes]`.
    """
    at = group * classes + label
    total = h.new_zeros(groups * classes, h.shape[1]).index_add(0, at, weight[:, None] * h)
    size = h.new_zeros(groups * classes).index_add(0, at, weight)
    mean = total / torch.where(size > 0, size, 1.0)[:, None]
    return mean.view(groups, classes, -1)


def contrast(a: Tensor, b: Tensor, present: Tensor, temperature: float) -> Tensor:
    """InfoNCE between two views' prototypes, cosine similarity: `[groups]`.

    For each class c that is present the positive is (a_c, b_c); negatives are (a_c, b_c') and (a_c, a_c') of the other
    classes present. The mean over classes; 0 for a group with one class.

    Args:
        a, b: `[groups, classes, width]`.
        present: `[groups, classes]`.
    """
    a, b = (F.normalize(part, dim=2) for part in (a, b))
    across = a @ b.transpose(1, 2) / temperature
    within = a @ a.transpose(1, 2) / temperature
    absent = ~present[:, None]
    own = torch.eye(a.shape[1], dtype=torch.bool, device=a.device)
    every = torch.cat([across.masked_fill(absent, -torch.inf), within.masked_fill(absent | own, -torch.inf)], dim=2)
    every = torch.where(present[..., None], every, 0.0)  # a class that is absent would give infinities
    loss = torch.logsumexp(every, dim=2) - across.diagonal(dim1=1, dim2=2)
    return torch.where(present, loss, 0.0).sum(1) / present.sum(1).clamp(min=1)


def finch(points: Tensor) -> Tensor:
    """Clusters by first neighbours (FINCH, Sarfraz et al. 2019), cosine similarity: `[points]`, numbers from 0.

    Points are linked to their nearest other point and to those with the same nearest; clusters are the connected
    components; the same is done to the clusters' means, as long as more than one cluster results and something merges.

    Args:
        points: `[points, width]`, at least one.
    """
    require(len(points) >= 1, "points", "at least one", len(points))
    label = _linked(points)
    while int(label.max()) > 0:
        coarser = _linked(cluster_means(points, label))[label]
        if int(coarser.max()) in (0, int(label.max())):
            break
        label = coarser
    return label


def cluster_means(points: Tensor, label: Tensor) -> Tensor:
    """Mean of each cluster: `[clusters, width]`."""
    count = torch.bincount(label)
    total = points.new_zeros(len(count), points.shape[1]).index_add(0, label, points)
    return total / count[:, None]


def _linked(points: Tensor) -> Tensor:
    """One level of FINCH."""
    n = len(points)
    if n == 1:
        return torch.zeros(1, dtype=torch.long, device=points.device)
    unit = F.normalize(points, dim=1)
    similarity = (unit @ unit.T).fill_diagonal_(-torch.inf)
    label = list(range(n))  # points that share a first neighbour are linked through it
    for i, j in enumerate(similarity.argmax(1).tolist()):
        old, new = label[i], label[j]
        label = [new if at == old else at for at in label]
    numbers = {old: number for number, old in enumerate(dict.fromkeys(label))}
    return torch.tensor([numbers[at] for at in label], device=points.device)


class Bank(NamedTuple):
    """Prototypes of unit length a run predicts from: `[classes, slots, width]`, which slots are filled, and the slot of
    each class that is written next.
    """

    rows: Tensor
    filled: Tensor
    place: Tensor

    @classmethod
    def empty(cls, classes: int, slots: int, like: Tensor) -> Bank:
        """No slot filled: random ones would vote for a class nobody meant."""
        rows = like.new_zeros(classes, slots, like.shape[-1])
        return cls(rows, rows.new_zeros(classes, slots).bool(), torch.zeros(classes, dtype=torch.long))

    def written(self, label: int, rows: Tensor) -> Bank:
        """With more prototypes of a class, each over its oldest."""
        held, filled, place = self.rows.clone(), self.filled.clone(), self.place.clone()
        for row in F.normalize(rows, dim=1):
            at = int(place[label])
            held[label, at], filled[label, at] = row, True
            place[label] = (at + 1) % held.shape[1]
        return Bank(held, filled, place)

    def scores(self, h: Tensor, nearest: int, temperature: float = 0.1) -> Tensor:
        """Log of each class's share of the softmax over the `nearest` prototypes: `[nodes, classes]`."""
        rows, label = self.rows[self.filled], self.filled.nonzero()[:, 0]
        similarity = F.normalize(h, dim=1) @ rows.T
        best = similarity.topk(min(nearest, len(rows)), dim=1)
        share = torch.softmax(best.values / temperature, dim=1)
        votes = h.new_zeros(len(h), len(self.rows)).scatter_add(1, label[best.indices], share)
        return votes.clamp(min=1e-12).log()
