"""Measurements at the scored round agree with programs that are written out here."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import add_self_loops, scatter, softmax

from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError, DivergedError
from fedrepro.papers.fedgat.exhibits import grids
from fedrepro.papers.fedgat.method import FedGAT
from fedrepro.papers.fedgat.theory.scored import scored_round
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

OPTIONS = {"rounds": 12, "model": "GAT", "hidden": 4, "heads": 2, "lr": 0.1, "weight_decay": 0.001}


def a_run(**options: object) -> Run:
    where = {"dataset": "Cora~standin", "partition": "dirichlet(beta=1)", "clients": 3}
    return Run(
        "check", "fedgat", "FedGAT-scored", options=OPTIONS | options, prepare="unit-norm", split="public", **where
    )


def gat(weights: dict[str, Tensor], x: Tensor, edge_index: Tensor, plain: bool = False) -> Tensor:
    """Return the logits of a GAT of two layers on the whole graph; with `plain`, layer 1 is the mean of neighbours."""
    (source, target), _ = add_self_loops(edge_index, num_nodes=len(x))

    def layer(h: Tensor, number: int, plain: bool) -> Tensor:
        a, b = weights[f"layer{number}.source"], weights[f"layer{number}.target"]
        h = (h @ weights[f"layer{number}.weight"]).view(len(x), *a.shape)
        score = F.leaky_relu((h * a).sum(-1)[source] + (h * b).sum(-1)[target], 0.2)
        share = softmax(0 * score if plain else score, target, num_nodes=len(x))
        return scatter(share[:, :, None] * h[source], target, dim_size=len(x))

    h = F.elu(layer(x, 1, plain).flatten(1) + weights["layer1.bias"])
    return layer(h, 2, False).mean(1) + weights["layer2.bias"]


def test_the_scored_round_against_a_gat_on_the_whole_graph() -> None:
    """Round, accuracy and facts are those of training; both shares are those of a plain GAT with the scored weights."""
    run = a_run(degree=12)
    scored = scored_round(run)["result"]
    training = run.replace(task="train", method="FedGAT")
    outcome = tasks.train([training])[0]["result"]
    best = outcome["before"]["best"]
    assert (scored["round"], scored["test"]) == (best["round"], best["test"])
    assert scored["round"] < 12 and scored["last"] == outcome["facts"]

    fed = tasks.federation([run])
    method = tasks.method(training, fed.features, fed.classes)[0]
    assert isinstance(method, FedGAT)
    _, extended, state = train(method, fed, scored["round"], evaluate=())
    weights, data = {name: w[0] for name, w in state.shared.items()}, fed.sources[0].data
    ours = torch.empty(data.num_nodes, fed.classes)
    inner = extended.batch.ring == 0
    with torch.no_grad():
        ours[extended.batch.node_id[inner]] = method.predict(extended, state)[inner]
    label = ours.argmax(1)[data.test_mask]
    for name, plain in (("other", False), ("mean_other", True)):
        logits = gat(weights, data.x, data.edge_index, plain)[data.test_mask]
        assert scored[name] == pytest.approx(float((logits.argmax(1) != label).float().mean()), abs=1e-9)
        accuracy = float((logits.argmax(1) == data.y[data.test_mask]).float().mean())
        assert scored["gat_test" if name == "other" else "mean_test"] == pytest.approx(accuracy, abs=1e-6)


def test_a_polynomial_of_degree_one_is_told_apart() -> None:
    """The control: a poor polynomial predicts otherwise than the GAT, and the paper's degree does so less often."""
    poor, good = (scored_round(a_run(degree=degree))["result"]["other"] for degree in (1, 16))
    assert poor > good


def test_what_is_measured() -> None:
    """Every run is one of FedGAT's in the reading text, and the code's score is refused."""
    runs = grids.scored_rounds()
    trained = {run.replace(task="train", method="FedGAT") for run in runs}
    assert trained <= {*grids.table1(), *grids.by_clients("Cora", grids.NON_IID)}
    assert {run for run in grids.table1() if run.method == "FedGAT"} <= trained
    with pytest.raises(ArgumentError, match="score"):
        scored_round(a_run(score="code", rounds=1))
    with pytest.raises(DivergedError, match="round"):
        scored_round(a_run(interval=0.02))
