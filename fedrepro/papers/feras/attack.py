"""Rebuild features from the embeddings that Feras shares; the paper leaves attacks to future work.

The aggregation server is curious. It knows the topology, the sub-graphs that it hands out, and the weights that it
averages. After one convolution a host sends, for every node that it sees and drew, a row of

    h = relu(A x W + b)

with A `[drawn, drawn]`, x `[drawn, features]`, W `[features, width]`, b `[width]` and h `[sent, width]`. Each entry
above zero is a linear equation in the features x. An iteration gives about half the width in equations per node. A
further iteration, with another sub-graph and other weights, gives as many more for the nodes that it holds again. The
host's unseen neighbours have zero features and are no unknowns. Once there are more equations than unknowns, x follows
by least squares. After two convolutions the server fits x by gradient descent through both.

Both fits stop when the part of the messages that they leave unexplained is less than `TOLERANCE`, or after a number of
steps. A fit that stopped at the number of steps rebuilds less of x than the messages give away. The rebuilt part is
then a lower bound.

These are clean messages, without dropout. Hosts send such messages when they score (`Feras._predict`), there for all
nodes that they see and over the whole graph. In training, Feras drops a share p of the features before this
convolution. A message then holds

    h = relu(A (x o mask / (1 - p)) W + b)

with a new mask in each iteration, which the server does not know. The option `dropout` is p. It was added after the
attacks on clean messages had been seen. Both ways to rebuild x then use that the server knows p:

    some messages have enough equations   Each of them gives its x o mask / (1 - p). An entry is rebuilt if one mask
                                          kept it: the largest value by size, times 1 - p. A node in one such message
                                          loses a share p of its entries, and one in two of them p^2. The other messages
                                          are not used, and a node that is only in these stays zero.
    none has                              Least squares fit one x to all messages, as if there were no mask, and stop at
                                          the residual that masks leave (`tolerated`). Many more steps follow the masks.

The server could also fit the masks, which is not tried. The part rebuilt under dropout is thus a lower bound, whether
or not a fit converged.
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

RECOVERED = 0.01  # largest relative error of a row that counts as rebuilt
TOLERANCE = 1e-6  # of the residual, as a share of the messages' norm
STEPS = {1: 20000, 2: 500}  # largest number of steps of conjugate gradients and of Adam, by depth
Forward = Callable[[Tensor], list[Tensor]]  # features -> the messages that they would give
Adjoint = Callable[[list[Tensor]], Tensor]  # its transpose


class Seen(NamedTuple):
    """The messages of the first host in one iteration, with all that the server knows about them.

    Shapes: `nodes` `[drawn]` numbers in the graph; `sees` `[drawn]` bool; `a` `[drawn, drawn]`; `weights` `{name: [in,
    out] or [out]}`; `h` `[sent, width]`, rows of the nodes that the host sees.
    """

    nodes: Tensor
    sees: Tensor
    a: Tensor
    weights: dict[str, Tensor]
    h: Tensor


class Fit(NamedTuple):
    """Features that explain the messages, and how well.

    `x` is `[nodes, features]`. `residual` is the norm of the unexplained part over the norm of the messages. `steps` is
    the number of steps, 0 for a direct solution.
    """

    x: Tensor
    residual: float
    steps: int


def inversion(run: Run) -> dict[str, Any]:
    """Measure how well the server rebuilds the first host's features.

    Options: depth (1 or 2, convolutions before sharing), hidden (256), observations (1, iterations), nodes (300, the
    size of the part of the graph that is attacked; 0 is all of it), steps (the largest number; `STEPS` by default),
    sampler ("rw"), dropout (0, the share of the features that hosts drop before they send; only with depth 1).

    Returns:
        "cosine": mean over the rows sent; "relative_error": median; "recovered": share of rows with a relative error
        below `RECOVERED`; "control_cosine": cosine of the guess with other nodes' features; "rows": number of rows;
        "equations_per_feature": entries above zero over unknowns; "kappa": the measured share of unseen nodes;
        "residual" and "steps" of the fit; "converged": True if the residual is within `tolerated`. With
        dropout also "entries": share of entries with a relative error of at most `RECOVERED`.

    Raises:
        ArgumentError: depth is not 1 or 2, observations is below 1, or dropout is outside [0, 1) or not 0 at depth 2.
    """
    options = run.options
    depth = one_of("option 'depth'", int(options.get("depth", 1)), (1, 2))
    observations, steps = int(options.get("observations", 1)), int(options.get("steps", STEPS[depth]))
    require(observations >= 1, "option 'observations'", "at least 1", observations)
    dropout = float(options.get("dropout", 0.0))
    require(0 <= dropout < 1 and (depth == 1 or not dropout), "option 'dropout'", "in [0, 1), 0 at depth 2", dropout)
    data = datasets.assemble(run.dataset, run.prepare, run.split, run.seed)
    data = neighbourhood(data, run, int(options.get("nodes", 300)))
    parts = partition.divide(data, run.partition, run.clients, run.seed)
    fed = Federation.of(data, parts, run.seed, dtype=torch.float64)
    model = GCN(fed.features, fed.classes, int(options.get("hidden", 256)), layers=depth + 2, dropout=dropout)
    seen = overheard(model, fed, depth, observations, str(options.get("sampler", "rw")))
    nodes, fit = rebuild(seen, data.num_nodes, fed.features, depth, steps, run.seed, dropout)
    truth = (data.x if data.x.layout == torch.strided else data.x.to_dense()).double()[nodes]
    equations = sum(int((message.h > 0).sum()) for message in seen)
    known = {"rows": len(nodes), "equations_per_feature": equations / truth.numel()}
    known["kappa"] = 1 - len(parts[0]) / data.num_nodes
    fitted = {"residual": fit.residual, "steps": fit.steps, "converged": fit.residual <= tolerated(dropout)}
    if dropout:
        known["entries"] = float(((fit.x - truth).abs() <= RECOVERED * truth.abs()).double().mean())
    return {"result": compare(fit.x, truth) | known | fitted}


def tolerated(dropout: float) -> float:
    """Return the residual at which a fit stops: `TOLERANCE`, or what unknown masks leave of a message.

    The factor mask / (1 - p) of a feature has mean 1 and variance p / (1 - p). Its deviation is the share of the
    features that one x for all messages does not explain.
    """
    return max(TOLERANCE, math.sqrt(dropout / (1 - dropout)))


def neighbourhood(data: Data, run: Run, size: int) -> Data:
    """Return the `size` nodes nearest to one that the run's seed draws (0: all nodes), all of them to train on."""
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
    """Return the first host's messages in the first iterations of training by Algorithm 1."""
    out: list[Seen] = []

    @dataclass(frozen=True, kw_only=True)
    class Watched(Feras):
        def local_loss(self, weights: Weights, fed: Federation, state: State, t: int) -> Tensor:
            current.update({name: w[0].detach().clone() for name, w in weights.items()})
            return super().local_loss(weights, fed, state, t)

        def share(self, sample: Sample, h: Tensor, layer: int, state: State, t: int) -> Tensor:
            if layer == self.p:
                batch = sample.fed.batch
                first = slice(0, int(batch.ptr[1]))
                sees = batch.visible[first]
                a = sample.a.dense()[first, first]
                out.append(Seen(batch.node_id[first], sees, a, dict(current), h[first][sees].detach()))
            return super().share(sample, h, layer, state, t)

    current: dict[str, Tensor] = {}
    train(Watched(model=model, p=depth, q=1, unit="iteration", sampler=sampler), fed, observations, evaluate=())
    return out


def rebuild(
    seen: list[Seen], count: int, features: int, depth: int, steps: int, seed: int, dropout: float = 0.0
) -> tuple[Tensor, Fit]:
    """Return the nodes of which rows were sent, and the fit of their features `[nodes, features]`."""
    sent = torch.zeros(count, dtype=torch.bool)
    for message in seen:
        sent[message.nodes[message.sees]] = True
    nodes = sent.nonzero().squeeze(1)
    index = torch.full((count,), -1)
    index[nodes] = torch.arange(len(nodes))
    unknowns = [index[message.nodes[message.sees]] for message in seen]
    shape = (len(nodes), features)
    whole = [pair for pair in zip(seen, unknowns, strict=True) if _determines(pair[0], features)]
    if depth == 1 and dropout and whole:
        return nodes, _entry_by_entry(whole, shape, dropout)
    if depth == 1:
        return nodes, _least_squares(seen, unknowns, shape, steps, tolerated(dropout))
    return nodes, _descent(seen, unknowns, shape, steps, seed)


def _determines(message: Seen, features: int) -> bool:
    """Return True if every row of a message has at least as many equations as a node has features."""
    return int((message.h > 0).sum(1).min()) >= features


def _entry_by_entry(whole: list[tuple[Seen, Tensor]], shape: tuple[int, int], dropout: float) -> Fit:
    """Solve each message by itself, and take of each entry the value that a mask kept."""
    x, gaps, all_wanted = torch.zeros(shape, dtype=torch.float64), [], []
    for message, rows in whole:
        above, weight = message.h > 0, message.weights["layer1.weight"]
        wanted = (message.h - message.weights["layer1.bias"]) * above
        masked = _row_by_row(message, wanted)
        gaps.append((message.a[message.sees][:, message.sees] @ masked @ weight) * above - wanted)
        all_wanted.append(wanted)
        x[rows] = torch.where(masked.abs() > x[rows].abs(), masked, x[rows])
    return Fit((1 - dropout) * x, _norm(gaps) / _norm(all_wanted), 0)


def _least_squares(
    seen: list[Seen], unknowns: list[Tensor], shape: tuple[int, int], steps: int, tolerance: float
) -> Fit:
    """Fit all entries above zero; if they are too few, conjugate gradients give the shortest solution."""
    system = [
        (message.a[message.sees][:, message.sees], rows, message.weights["layer1.weight"], (message.h > 0).double())
        for message, rows in zip(seen, unknowns, strict=True)
    ]

    def forward(x: Tensor) -> list[Tensor]:
        return [(a @ x[rows] @ weight) * above for a, rows, weight, above in system]

    def adjoint(values: list[Tensor]) -> Tensor:
        out = torch.zeros(shape, dtype=torch.float64)
        for (a, rows, weight, _), value in zip(system, values, strict=True):
            out.index_add_(0, rows, a.T @ (value @ weight.T))
        return out

    wanted = [(message.h - message.weights["layer1.bias"]) * (message.h > 0) for message in seen]
    if len(seen) == 1 and _determines(seen[0], shape[1]):
        x = _row_by_row(seen[0], wanted[0])
        return Fit(x, _norm([a - b for a, b in zip(forward(x), wanted, strict=True)]) / _norm(wanted), 0)
    return conjugate_gradients(forward, adjoint, wanted, steps, tolerance)


def _row_by_row(seen: Seen, wanted: Tensor) -> Tensor:
    """Solve one message with enough equations in each row: first for the rows of A x, then for x."""
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
    forward: Forward, adjoint: Adjoint, wanted: list[Tensor], steps: int, tolerance: float = TOLERANCE
) -> Fit:
    """Return the least-squares solution of `forward(x) = wanted` that is nearest to 0 (CGLS).

    The iteration stops in three cases: the residual is within `tolerance` of the norm of `wanted`; the residual no
    longer falls, because the equations contradict each other (its gradient is within 1e-10 of the first); or `steps`
    are done.
    """
    residual, whole = [value.clone() for value in wanted], _norm(wanted)
    s = adjoint(residual)
    x = torch.zeros_like(s)
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


def _descent(seen: list[Seen], unknowns: list[Tensor], shape: tuple[int, int], steps: int, seed: int) -> Fit:
    """Fit both convolutions by Adam on the squared error, from small random features."""
    x = (0.1 * random.normal(shape, "inversion", seed)).requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.05)
    whole = _norm([message.h for message in seen])

    def missed() -> list[Tensor]:
        out = []
        for message, rows in zip(seen, unknowns, strict=True):
            held = torch.zeros(len(message.nodes), shape[1], dtype=torch.float64)
            h = held.index_copy(0, message.sees.nonzero().squeeze(1), x[rows])
            for i in (1, 2):
                h = F.relu(message.a @ (h @ message.weights[f"layer{i}.weight"]) + message.weights[f"layer{i}.bias"])
            out.append(h[message.sees] - message.h)
        return out

    step, gaps = 0, missed()
    while step < steps and _norm(gaps) > TOLERANCE * whole:
        optimizer.zero_grad()
        torch.stack([gap.square().mean() for gap in gaps]).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step, gaps = step + 1, missed()
    return Fit(x.detach(), _norm(gaps) / whole, step)


def compare(guess: Tensor, truth: Tensor) -> dict[str, float]:
    """Return cosine, relative error and share recovered of the rows with a feature; the control is the next row."""
    present = truth.norm(dim=1) > 0
    guess, truth = guess[present], truth[present]
    error = (guess - truth).norm(dim=1) / truth.norm(dim=1)
    return {
        "cosine": float(F.cosine_similarity(guess, truth).mean()),
        "relative_error": float(error.median()),
        "recovered": float((error < RECOVERED).double().mean()),
        "control_cosine": float(F.cosine_similarity(guess, truth.roll(1, 0)).mean()),
    }
