"""Measure FedGAT's attention scores at the round of best validation accuracy, which the reading *text* scores (FG-Q3).

The facts of a training run are those of its last round, when weights have often grown far beyond the scored ones.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.scores import score
from fedrepro.engine.training import train
from fedrepro.errors import DivergedError, require
from fedrepro.papers.fedgat.method import FedGAT
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

VECTORS = ("layer1.source", "layer1.target")


@dataclass(frozen=True, kw_only=True)
class ExactGAT(FedGAT):
    """FedGAT with the exponential in place of its polynomial, so that layer 1 is that of a GAT (Eq. 3 and 4)."""

    def forward(self, weights: Weights, fed: Federation, state: State) -> Tensor:
        """Return the logits `[nodes, classes]` of the GAT."""
        return self.model(weights, fed)


def scored_round(run: Run) -> dict[str, Any]:
    """Train FedGAT twice, to its last round and to the round of best validation accuracy, and measure both.

    At the scored weights the same is computed by a GAT, and by one whose attention vectors are zero, so that its layer
    1 is a plain mean of the neighbours. The second is a control. It shows the effect of the first layer's
    attention.

    The options are those of the training run, whose `score` must be that of the paper.

    Returns:
        "round" is the scored round, from 1, and "test" the accuracy there. "largest_score", "outside" and "negative"
        are the facts of `FedGAT.facts` there, and "last" those of the last round. "other" is the share of test nodes
        whose class the GAT predicts otherwise, and "gat_test" its accuracy. "mean_other" and "mean_test" are those of
        the plain mean.

    Raises:
        ArgumentError: an option does not fit.
        DivergedError: a loss or a weight is not finite.
    """
    fed = tasks.federation([run])
    method, loop = tasks.method(run.replace(task="train", method="FedGAT"), fed.features, fed.classes)
    assert isinstance(method, FedGAT)
    require(method.score == "paper", "option 'score'", "'paper', whose layer is that of a GAT", method.score)
    history, extended, state = train(method, fed, int(loop["rounds"]), evaluate=("before",))
    if 0 in history.diverged:
        raise DivergedError(f"a loss or weight was not a number in round {history.diverged[0]}")
    last, best = method.facts(extended, state)[0], history.result(0)["before"]["best"]
    _, extended, state = train(method, fed, int(best["round"]), evaluate=())
    gat = ExactGAT(**{field.name: getattr(method, field.name) for field in fields(method)})
    flat = replace(state, shared={name: 0 * w if name in VECTORS else w for name, w in state.shared.items()})
    rows = extended.rows("test")[0]
    with torch.no_grad():
        ours, exact, mean = (one.predict(extended, at) for one, at in ((method, state), (gat, state), (gat, flat)))

    def other(logits: Tensor) -> float:
        return float((logits[rows].argmax(1) != ours[rows].argmax(1)).double().mean())

    return {
        "result": {
            "round": int(best["round"]),
            "test": float(score(extended, ours)["test"][0]),
            **method.facts(extended, state)[0],
            "last": last,
            "other": other(exact),
            "gat_test": float(score(extended, exact)["test"][0]),
            "mean_other": other(mean),
            "mean_test": float(score(extended, mean)["test"][0]),
        }
    }
