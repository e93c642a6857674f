"""FedSage+'s generator: its losses as plain loops over nodes, and small clients to train it on."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from loop import task
from plain import F64, Weights
from torch import Tensor
from torch_geometric.nn import SAGEConv

from fedrepro.baselines.fedsage import FedSage
from fedrepro.baselines.impaired import ClientView, Impaired, OtherClient
from fedrepro.baselines.neighgen import NeighGen
from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import GraphSAGE

MODEL = GraphSAGE(features=7, classes=3, hidden=5)
SMALL: dict[str, Any] = {"generator_epochs": 4, "generator_lr": 0.02, "generator_hidden": 6, "generator_width": 9}
SMALL |= {"latent": 5, "encoder_hidden": 4, "most": 3, "hidden_share": 0.4}


def generator(**options: Any) -> NeighGen:
    return FedSage(model=MODEL, **{**SMALL, "generator_dropout": 0.0, **options}).generator


def held(clients: int = 3, seed: int = 0) -> list[ClientView]:
    fed = Federation.of(*task(clients, seed), seed, dtype=F64)
    return [ClientView.of(fed, client) for client in range(clients)]


def dropped(gen: NeighGen, h: Tensor, keys: Tensor, place: str, epoch: int) -> Tensor:
    """Inverted dropout, with a mask for each key, place and epoch."""
    by = random.row_keys(keys, "neighgen", place, epoch)
    return h * random.keep(by[:, None], torch.arange(h.shape[1]), gen.dropout) / (1 - gen.dropout)


def plain_rows(gen: NeighGen, w: Weights, z: Tensor, nodes: Tensor, h: ClientView, epoch: int | None) -> Tensor:
    """All q rows of fGen at some nodes, `[nodes, q, features]`; without an epoch as in evaluation, without dropout."""
    noise = random.normal(tuple(z.shape), "neighgen noise", h.seed, h.number, -1 if epoch is None else epoch)
    out = (z + noise)[nodes]
    for name in ("feature1", "feature2"):
        out = torch.relu(out @ w[f"{name}.weight"][0] + w[f"{name}.bias"])
    out = out if epoch is None else dropped(gen, out, h.keys[nodes], "feature", epoch)
    rows = torch.tanh(out @ w["feature3.weight"][0] + w["feature3.bias"]).view(len(nodes), gen.most, -1)
    return rows / rows.abs().sum(2, keepdim=True) if gen.row_sum else rows


def own_loss(rows: Tensor, kept: list[int], targets: list[Tensor]) -> Tensor:
    """Each generated row that counts against the nearest target of its node, one after another."""
    total = rows.new_zeros(())
    for row, k, given in zip(rows, kept, targets):
        for number in range(k if len(given) else 0):
            total = total + min((row[number] - u).square().mean() for u in given)
    return total


def mended_logits(w: Weights, h: ClientView, graph: Impaired, rows: Tensor, kept: list[int]) -> Tensor:
    """PyG's SAGEConv on the impaired graph with the generated nodes of ALL its nodes that any training node sees."""
    x, edges = [h.x[graph.nodes]], [graph.edges]
    count = len(graph.nodes)
    for place, v in enumerate(graph.near.tolist()):
        for number in range(kept[v]):
            x.append(rows[place, number][None])
            edges.append(torch.tensor([[count, v], [v, count]]))
            count += 1
    features, index = torch.cat(x), torch.cat(edges, dim=1)
    for name in ("classifier1", "classifier2"):
        conv = SAGEConv(features.shape[1], w[f"{name}.bias"].shape[1]).double()
        pieces = {"lin_l.weight": w[f"{name}.weight"][0].T, "lin_l.bias": w[f"{name}.bias"][0]}
        pieces["lin_r.weight"] = w[f"{name}.root"][0].T
        features = torch.func.functional_call(conv, pieces, (features, index))
        features = features.relu() if name == "classifier1" else features
    return features


def plain_losses(
    gen: NeighGen, w: Weights, h: ClientView, graph: Impaired, others: list[OtherClient], epoch: int
) -> tuple[Tensor, Tensor, Tensor]:
    """L_d + L_f + L_c, L_f, and the sum of L_f(j), with loops over nodes and dense matrices."""
    n = len(graph.nodes)
    a = torch.eye(n, dtype=F64)
    a[graph.edges[1], graph.edges[0]] = 1
    r = a / a.sum(1, keepdim=True)
    z = torch.relu(r @ h.x[graph.nodes] @ w["encoder1.weight"][0] + w["encoder1.bias"])
    z = dropped(gen, z, h.keys[graph.nodes], "encoder", epoch)
    z = torch.relu(r @ z @ w["encoder2.weight"][0] + w["encoder2.bias"])
    count = torch.relu(z @ w["count.weight"][0] + w["count.bias"])[:, 0]
    rows = plain_rows(gen, w, z, graph.near, h, epoch)
    number = graph.missing.tolist() if gen.true_count else [round(value) for value in count.tolist()]
    kept = [min(max(k, 0), gen.most) for k in number]
    here = graph.train.nonzero().squeeze(1).tolist()
    row_of = {v: i for i, v in enumerate(graph.near.tolist())}
    generated = torch.stack([rows[row_of[v]] for v in here])
    generated_kept = [kept[v] for v in here]
    targets = [h.x[graph.rows[v][graph.filled[v]]] for v in here]
    scale: float | Tensor = len(here) * gen.most if gen.scheme == "original" else max(1, sum(generated_kept))
    scale = scale * (h.x**2).sum() / h.x.numel() if gen.scaled else scale
    feature_loss = own_loss(generated, generated_kept, targets) / scale
    error = torch.stack([count[v] - graph.missing[v] for v in here]).abs()
    degree = torch.where(error < 1, error.square() / 2, error - 0.5).mean()
    logits = mended_logits(w, h, graph, rows, kept)
    wrong = F.cross_entropy(logits[here], h.y[graph.nodes][here])
    cross = generated.new_zeros(())
    for other in others:
        given = other.held.x[other.draw(len(here), gen.most, h, epoch)]
        cross = cross + own_loss(generated, generated_kept, list(given)) / scale
    return degree + feature_loss + wrong, feature_loss, cross
