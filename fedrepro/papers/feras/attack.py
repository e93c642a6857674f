"""Can features be rebuilt from the embeddings Feras shares? (The paper leaves attacks to future work.)

The aggregation server knows the topology, the sub-graphs it hands out and the weights it averaged. After one
convolution a host sends, for every node it sees and drew,

    h = relu(A x W + b)

of which each entry above zero is a linear equation in the features x: half the width in equations per node, and as
many more in every further iteration, with another sub-graph and other weights. The host's unseen neighbours are zero
and no unknowns. Once equations exceed unknowns x follows by least squares, for every node of which enough was sent.
After two convolutions the server fits x by gradient descent through both.

Both fits go on until what they explain of the messages is off by less than `TOLERANCE`, or to a number of steps. A fit
that stopped there tells less of x than the messages give away: what is rebuilt is then a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.data import datasets, partition
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import GCN
from fedrepro.engine.training import train
from fedrepro.errors import one_of, require
from fedrepro.papers.feras.method import Feras
from fedrepro.papers.feras.saint.method import Sample
from fedrepro.runs.run import Run

RECOVERED = 0.01  # relative error of a row that counts as rebuilt
TOLERANCE = 1e-6  # of the residual, as a share of the messages' norm
STEPS = {1: 20000, 2: 500}  # at most, of conjugate gradients and of Adam


class Seen(NamedTuple):
    """What the server has of the first host from one iteration.

    Shapes: `nodes` `[drawn]` numbers in the graph; `sees` `[drawn]` bool; `a` `[drawn, drawn]`; `weights` `{name: [in,
    out] or [out]}`; `h` `[sent, width]`, rows of the nodes it sees.
    """

    nodes: Tensor
    sees: Tensor
    a: Tensor
    weights: dict[str, Tensor]
    h: Tensor


class Fit(NamedTuple):
    """Features that explain the messages, the norm of what they leave unexplained over the messages' norm, and the
    steps taken (0 for a direct solution).
    """

    x: Tensor
    residual: float
    steps: int


def inversion(run: Run) -> dict[str, Any]:
    """How well the server rebuilds the first host's features.

    Options: depth (1 or 2, convolutions before sharing), hidden (256), observations (1, iterations), nodes (300, of the
    part of the graph it is tried on; 0 all of it), steps (at most; `STEPS` of conjugate gradients for depth 1, of Adam
    for depth 2), sampler ("rw").

    Returns:
        "cosine": mean over the rows sent; "relative_error": median; "recovered": share of rows with a relative error
        below `RECOVERED`; "control_cosine": of the guess to other nodes' features; "rows"; "equations_per_feature":
        entries above zero over unknowns; "kappa", as it came out; "residual" and "steps" of the fit; "converged":
        whether the residual is within `TOLERANCE`.
    """
    options = run.options
    depth = one_of("option 'depth'", int(options.get("depth", 1)), (1, 2))
    observations, steps = int(options.get("observations", 1)), int(options.get("steps", STEPS[depth]))
    require(observations >= 1, "option 'observations'", "at least 1", observations)
    data = neighbourhood(
        datasets.assemble(run.dataset, run.prepare, run.split, run.seed), run, int(options.get("nodes", 300))
    )
    parts = partition.partition(data, run.partition, run.clients, run.seed)
    fed = Federation.of(data, parts, run.seed, dtype=torch.float64)
    model = GCN(fed.features, fed.classes, int(options.get("hidden", 256)), layers=depth + 2)
    seen = overheard(model, fed, depth, observations, str(options.get("sampler", "rw")))
    nodes, fit = rebuild(seen, data.num_nodes, fed.features, depth, steps, run.seed)
    truth = (data.x if data.x.layout == torch.strided else data.x.to_dense()).double()[nodes]
    equations = sum(int((each.h > 0).sum()) for each in seen)
    found = compared(fit.x, truth) | {
        "rows": len(nodes), "equations_per_feature": equations / truth.numel(), "residual": fit.residual,
        "steps": fit.steps, "converged": fit.residual <= TOLERANCE, "kappa": 1 - len(parts[0]) / data.num_nodes,
    }  # fmt: skip
    return {"result": found}


def neighbourhood(data: Data, run: Run, size: int) -> Data:
    """The nodes nearest to one drawn by the run's seed, all of them to train on."""
    count = data.num_nodes
    if size and size < count:
        start = int(random.uniform((1,), "neighbourhood", run.seed) * count)
        source, target = data.edge_index.numpy()
        kept = np.zeros(count, bool)
        kept[start] = True
        while kept.sum() < size:
            near = np.zeros(count, bool)
            near[target[kept[source]]] = True
            near &= ~kept
            if not near.any():  # the component is exhausted
                near[np.flatnonzero(~kept)[:1]] = True
            chosen = np.flatnonzero(near)
            keys = random.keys("neighbourhood", run.seed, chosen)
            kept[chosen[keys.argsort()[: size - kept.sum()]]] = True
        data = datasets.subgraph(data, torch.from_numpy(kept))
    data = data.clone()
    data.train_mask = torch.ones(data.num_nodes, dtype=torch.bool)
    data.val_mask = data.test_mask = torch.zeros(data.num_nodes, dtype=torch.bool)
    return data


def overheard(model: GCN, fed: Federation, depth: int, observations: int, sampler: str) -> list[Seen]:
    """The first host's messages in the first iterations of training by Algorithm 1."""
    out: list[Seen] = []

    @dataclass(frozen=True, kw_only=True)
    class Watched(Feras):
        def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
            current.update({name: w[0].detach().clone() for name, w in weights.items()})
            return super().local_loss(weights, fed, state, t)

        def share(self, sample: Sample, h: Tensor, layer: int, state: State, t: int) -> Tensor:
            if layer == self.p:
                batch = sample.fed.batch
                mine = slice(0, int(batch.ptr[1]))
                sees = batch.visible[mine]
                a = sample.a.dense()[mine, mine]
                out.append(Seen(batch.node_id[mine], sees, a, dict(current), h[mine][sees].detach()))
            return super().share(sample, h, layer, state, t)

    current: dict[str, Tensor] = {}
    train(Watched(model=model, p=depth, q=1, unit="iteration", sampler=sampler), fed, observations, evaluate=())
    return out


def rebuild(seen: list[Seen], count: int, features: int, depth: int, steps: int, seed: int) -> tuple[Tensor, Fit]:
    """The nodes of which rows were sent, and the fit of their features `[nodes, features]`."""
    sent = torch.zeros(count, dtype=torch.bool)
    for each in seen:
        sent[each.nodes[each.sees]] = True
    nodes = sent.nonzero().squeeze(1)
    place = torch.full((count,), -1)
    place[nodes] = torch.arange(len(nodes))
    columns = [place[each.nodes[each.sees]] for each in seen]
    if depth == 1:
        return nodes, _least_squares(seen, columns, (len(nodes), features), steps)
    return nodes, _descent(seen, columns, (len(nodes), features), steps, seed)


def _least_squares(seen: list[Seen], columns: list[Tensor], shape: tuple[int, int], steps: int) -> Fit:
    """What fits all entries above zero; the shortest solution, by conjugate gradients, where they are too few."""

    system = [
        (each.a[each.sees][:, each.sees], column, each.weights["layer1.weight"], (each.h > 0).double())
        for each, column in zip(seen, columns, strict=True)
    ]

    def forward(x: Tensor) -> list[Tensor]:
        return [(a @ x[column] @ weight) * above for a, column, weight, above in system]

    def adjoint(values: list[Tensor]) -> Tensor:
        out = torch.zeros(shape, dtype=torch.float64)
        for (a, column, weight, _), value in zip(system, values, strict=True):
            out.index_add_(0, column, a.T @ (value @ weight.T))
        return out

    wanted = [(each.h - each.weights["layer1.bias"]) * (each.h > 0) for each in seen]
    if len(seen) == 1 and int((seen[0].h > 0).sum(1).min()) >= shape[1]:
        x = _row_by_row(seen[0], wanted[0])
        return Fit(x, _norm([a - b for a, b in zip(forward(x), wanted, strict=True)]) / _norm(wanted), 0)
    return conjugate_gradients(forward, adjoint, wanted, shape, steps)


def _row_by_row(seen: Seen, wanted: Tensor) -> Tensor:
    """With enough equations in each row of one message: first the rows of A x, then x."""
    weight = seen.weights["layer1.weight"]
    rows = [
        torch.linalg.lstsq(weight[:, above].T, value[above][:, None], driver="gelsy").solution[:, 0]
        for above, value in zip(seen.h > 0, wanted, strict=True)
    ]
    solved: Tensor = torch.linalg.lstsq(seen.a[seen.sees][:, seen.sees], torch.stack(rows), driver="gelsy").solution
    return solved


def _norm(values: list[Tensor]) -> float:
    return math.sqrt(sum(float(value.detach().square().sum()) for value in values))


def conjugate_gradients(
    forward: Callable[[Tensor], list[Tensor]], adjoint: Callable[[list[Tensor]], Tensor], wanted: list[Tensor],
    shape: tuple[int, int], steps: int, tolerance: float = TOLERANCE,
) -> Fit:  # fmt: skip
    """The least-squares solution of `forward(x) = wanted` nearest to 0 (CGLS).

    It stops where the residual is within `tolerance` of the norm of `wanted`, or no longer falls because the equations
    contradict each other (its gradient is within 1e-10 of the first), or after `steps`.
    """
    x = torch.zeros(shape, dtype=torch.float64)
    residual, whole = [value.clone() for value in wanted], _norm(wanted)
    s = adjoint(residual)
    p, size = s.clone(), float(s.square().sum())
    first, step = size, 0
    while step < steps and _norm(residual) > tolerance * whole and size > 1e-20 * first:
        q = forward(p)
        alpha = size / _norm(q) ** 2
        x += alpha * p
        for value, moved in zip(residual, q, strict=True):
            value -= alpha * moved
        s = adjoint(residual)
        after = float(s.square().sum())
        p = s + (after / size) * p
        size, step = after, step + 1
    return Fit(x, _norm(residual) / whole, step)


def _descent(seen: list[Seen], columns: list[Tensor], shape: tuple[int, int], steps: int, seed: int) -> Fit:
    """Adam on the squared error of both convolutions, from small random features, until within `TOLERANCE`."""
    x = (0.1 * random.normal(shape, "inversion", seed)).requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.05)
    whole = _norm([each.h for each in seen])

    def missed() -> list[Tensor]:
        out = []
        for each, column in zip(seen, columns, strict=True):
            held = torch.zeros(len(each.nodes), shape[1], dtype=torch.float64)
            h = held.index_copy(0, each.sees.nonzero().squeeze(1), x[column])
            for i in (1, 2):
                h = F.relu(each.a @ (h @ each.weights[f"layer{i}.weight"]) + each.weights[f"layer{i}.bias"])
            out.append(h[each.sees] - each.h)
        return out

    step, gaps = 0, missed()
    while step < steps and _norm(gaps) > TOLERANCE * whole:
        optimizer.zero_grad()
        torch.stack([gap.square().mean() for gap in gaps]).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step, gaps = step + 1, missed()
    return Fit(x.detach(), _norm(gaps) / whole, step)


def compared(guess: Tensor, truth: Tensor) -> dict[str, float]:
    """Cosine, relative error and share recovered of the rows with any feature; the control is the next row's truth."""
    some = truth.norm(dim=1) > 0
    guess, truth = guess[some], truth[some]
    error = (guess - truth).norm(dim=1) / truth.norm(dim=1)
    return {
        "cosine": float(F.cosine_similarity(guess, truth).mean()),
        "relative_error": float(error.median()),
        "recovered": float((error < RECOVERED).double().mean()),
        "control_cosine": float(F.cosine_similarity(guess, truth.roll(1, 0)).mean()),
    }
