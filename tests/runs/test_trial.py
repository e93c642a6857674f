"""A method that the package does not have is tried before its runs: what hooks return, and seeds side by side."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import fedrepro as fr
from fedrepro import registry
from fedrepro.data import datasets
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.method import State, Update
from fedrepro.runs.store import Store


@dataclass(frozen=True)
class Median(FedAvg):
    """The coordinate-wise median of the clients' weights (Yin et al. 2018), in each run by itself."""

    def aggregate(self, state: State, update: Update) -> State:
        """Return the median over the clients of each run."""
        of_run = [update.fed.run == run for run in range(update.fed.runs)]
        return State(
            {n: torch.stack([w[mine].median(0).values for mine in of_run]) for n, w in update.after.items()}, {}
        )


@dataclass(frozen=True)
class MixedMedian(FedAvg):
    """Take the median over the clients of all runs, which is right for only one run."""

    def aggregate(self, state: State, update: Update) -> State:
        """Return one median for all runs."""
        runs = update.fed.runs
        return State(
            {n: w.median(0, keepdim=True).values.expand(runs, *w.shape[1:]) for n, w in update.after.items()}, {}
        )


@dataclass(frozen=True)
class MeanLoss(FedAvg):
    """A loss that is the mean over clients, as one writes it without the stack."""

    def local_loss(self, *args: Any, **named: Any) -> Tensor:
        """Return one number."""
        return super().local_loss(*args, **named).mean()


@dataclass(frozen=True)
class ReturnsNothing(FedAvg):
    """A step of the server without a return."""

    def aggregate(self, state: State, update: Update) -> State:  # type: ignore[return]
        """Forget to return."""
        super().aggregate(state, update)


@dataclass(frozen=True)
class OneSlice(FedAvg):
    """A step of the server that keeps one slice for all runs."""

    def aggregate(self, state: State, update: Update) -> State:
        """Return the mean over all clients, without a first dimension."""
        return State({name: w.mean(0) for name, w in update.after.items()}, {})


def computed(kind: type, folder: Path, seeds: int = 2, side_by_side: int = 2) -> Any:
    """Return the frame of three rounds of a method on some seeds, of which so many are trained as one batch."""
    registry.register("train", kind.__name__, kind)
    runs = fr.sweep(
        task="train",
        paper="mine",
        method=kind.__name__,
        dataset="Cora~standin",
        split="10/10/80",
        partition="metis",
        clients=3,
        seed=range(seeds),
        options={"rounds": 3, "hidden": 8, "local_epochs": 2},
    )
    return fr.execute(runs, store=Store(folder), workers=1, side_by_side=side_by_side, quiet=True)


def test_a_rule_over_the_clients_of_each_run_is_trained_side_by_side(tmp_path: Path) -> None:
    """It gets no warning, and both seeds are one batch."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = computed(Median, tmp_path)
    assert [record["batch"]["seeds"] for record in Store(tmp_path)] == [[0, 1]] * 2 and len(frame) == 2


def test_a_rule_over_the_clients_of_all_runs_is_trained_seed_by_seed(tmp_path: Path) -> None:
    """There is a warning, and every seed gives what it gives by itself."""
    with pytest.warns(UserWarning, match="MixedMedian trains seeds side by side otherwise than alone"):
        frame = computed(MixedMedian, tmp_path)
    assert [record["batch"]["seeds"] for record in Store(tmp_path)] == [[0], [1]]
    alone = computed(Median, tmp_path, side_by_side=1)  # as one batch they may differ by rounding
    for name in ("before.last.test", "before.last.val_loss", "train_loss"):
        assert frame[name].tolist() == alone[name].tolist()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (MeanLoss, r"local_loss of MeanLoss must be one loss for each of the clients, of shape \(3,\)\. Got \(\)"),
        (ReturnsNothing, "aggregate of ReturnsNothing must be a State. Got None"),
        (OneSlice, "aggregate of OneSlice, layer1.weight must be one tensor for each of the 1 runs"),
    ],
)
def test_a_hook_that_returns_something_else_is_named(kind: type, told: str, tmp_path: Path) -> None:
    """Its runs fail with a message that says which hook, what was allowed and what was given."""
    (failed,) = computed(kind, tmp_path, 1).attrs["failed"]
    assert re.search(told, failed["error"]), failed["error"]


def drawn(seed: int) -> Data:
    """A random graph of 40 nodes with 3 classes, and with 4 for even seeds."""
    random = torch.Generator().manual_seed(seed)
    y = torch.arange(40) % (4 - seed % 2)
    edges = torch.randint(0, 40, (2, 120), generator=random)
    return Data(x=torch.randn(40, 6, generator=random), y=y, edge_index=edges)


def test_graphs_of_other_sizes_are_trained_one_by_one(tmp_path: Path) -> None:
    """A loader that gives a seed another number of classes gives each run the result that it has by itself."""
    datasets.register("drawn", drawn)
    same = {"task": "train", "paper": "mine", "method": "FedAvg", "dataset": "drawn", "split": "40/30/30"}
    runs = fr.sweep(**same, partition="random", clients=2, seed=[0, 1], options={"rounds": 3})
    try:
        alone = fr.execute(runs, store=Store(tmp_path / "alone"), workers=1, progress=False)
        with pytest.warns(UserWarning, match="6 features and 3 classes and 6 features and 4 classes, by seed"):
            beside = fr.execute(runs, store=Store(tmp_path / "b"), workers=1, progress=False, side_by_side=2)
    finally:
        datasets._own.pop("drawn")
    assert alone["before.best.val_loss"].tolist() == beside["before.best.val_loss"].tolist()
