"""From a run to numbers: options, errors that say what is allowed, and runs that diverge."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from graphs import block_model, largest_difference
from torch_geometric.data import Data

import fedrepro
from fedrepro import registry
from fedrepro.data import datasets
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.nn import models
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError, DivergedError
from fedrepro.runs import run as runs
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

NAME = "block model of the tests"


def graph(seed: int = 0) -> Data:
    """A small graph without masks; that of seed 7 has features no training survives."""
    data = block_model(60, seed=seed)
    for mask in ("train_mask", "val_mask", "test_mask"):
        del data[mask]
    if seed == 7:
        data.x = data.x.sign() * 3e38
    return data


@pytest.fixture(autouse=True)
def _dataset() -> Iterator[None]:
    datasets.register(NAME, graph)
    yield
    datasets._own.pop(NAME)


def run(method: str = "FedAvg", *, clients: int = 3, seed: int = 0, partition: str = "random", **options: Any) -> Run:
    cell = {"dataset": NAME, "split": "20/40/40", "partition": partition, "clients": clients, "seed": seed}
    return Run("train", "test", method, **cell, options={"rounds": 3, "hidden": 5, **options})


def numbers(nested: Any) -> Iterator[float]:
    """All numbers in nested dictionaries and lists."""
    if isinstance(nested, dict | list):
        for entry in nested.values() if isinstance(nested, dict) else nested:
            yield from numbers(entry)
    elif nested is not None:
        yield float(nested)


def test_options_reach_the_model_the_method_and_the_loop() -> None:
    """Sizes go to the model, hyper-parameters to the method, the rest to the loop; what is not given has a default."""
    asked = run(model="GAT", heads=2, dropout=0.5, lr=0.1, average="nodes", series=True)
    built, loop = tasks.method(asked, 7, 3)
    assert built == FedAvg(
        model=models.GAT(features=7, classes=3, hidden=5, heads=2, dropout=0.5), lr=0.1, average="nodes"
    )
    assert loop == {"rounds": 3, "series": ("val", "test"), "keep": ""}
    built, loop = tasks.method(Run(task="train", paper="test", method="FedSGD"), 7, 3)
    assert built == FedSGD(model=models.GCN(features=7, classes=3)) and loop == {
        "rounds": 100,
        "series": (),
        "keep": "",
    }


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("FedAvg", {"local_epoch": 2}, "options of FedAvg must be among .*local_epochs.*Did you mean 'local_epochs'"),
        ("FedAvg", {"hiden": 8}, "Got 'hiden'. Did you mean 'hidden'"),
        ("FedAvg", {"heads": 8}, "options of FedAvg must be among .*Got 'heads'"),
        ("FedAvg", {"model": "GTA"}, "model must be one of 'GCN', .*'GAT'.*Got 'GTA'. Did you mean 'GAT'"),
        ("FedAvg", {"average": "sizes"}, "average must be one of 'equal', 'train', 'nodes'"),
        ("FedAvg", {"optimizer": "adamw"}, "optimizer must be one of 'adam', 'sgd'.*Did you mean 'adam'"),
        ("FedAvg", {"dropout": 1.5}, r"dropout must be in \[0, 1\)"),
        ("FedAvg", {"lr": -1}, "lr must be positive"),
        ("FedAvg", {"rounds": 0}, "rounds must be at least 1"),
        ("FedSGD", {"local_epochs": 2}, "local_epochs must be 1 for FedSGD"),
        ("Central", {}, "clients must be 1"),
    ],
)
def test_an_option_no_one_knows_is_refused(method: str, options: dict[str, Any], message: str) -> None:
    """An `ArgumentError` names the option, what is allowed and the nearest match."""
    with pytest.raises(ArgumentError, match=message):
        tasks.train([run(method, **options)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": 61, "partition": "metis"}, r"clients must be .*60.*Got 61"),
        ({"clients": 61, "partition": "random"}, r"clients must be .*60.*Got 61"),
        ({"partition": "mettis"}, "mettis.*Did you mean 'metis'"),
        ({"dataset": NAME + "s"}, "data set must be one of .*Did you mean"),
        ({"split": "20/40"}, "split must be 'public', or three positive percentages"),
    ],
)
def test_a_run_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    """More clients than nodes, unknown partitions, data sets and splits are errors that name what was given."""
    with pytest.raises(ArgumentError, match=message):
        tasks.train([run().replace(**changes)])


def test_an_unknown_method_is_refused_when_the_run_is_made() -> None:
    """`Run` itself says which methods there are."""
    with pytest.raises(ArgumentError, match=r"method must be one of .*Did you mean 'FedAvg'"):
        run("FedAvgg")


@pytest.mark.parametrize("value", [2.5, "3"])
def test_a_number_of_rounds_that_is_no_whole_number_is_refused(value: object) -> None:
    """Neither rounded silently nor a bare TypeError."""
    with pytest.raises(ArgumentError, match="rounds"):
        tasks.train([run(rounds=value)])


@pytest.mark.parametrize("options", [{"lr": "0.1"}, {"hidden": 8.5}, {"hidden": "8"}, {"dropout": "half"}], ids=str)
def test_an_option_of_the_wrong_type_is_refused(options: dict[str, object]) -> None:
    """An `ArgumentError` names the option."""
    with pytest.raises(ArgumentError, match=next(iter(options))):
        tasks.train([run(**options)])


def test_runs_side_by_side_give_what_each_gives_alone() -> None:
    """Results, chunk and series have the same shape, and the numbers agree to rounding."""
    together = tasks.train([run(seed=seed, dropout=0.5, series=True) for seed in (0, 1)])
    for seed in (0, 1):
        (alone,) = tasks.train([run(seed=seed, dropout=0.5, series=True)])
        assert alone.keys() == together[seed].keys() == {"result", "chunk", "series"}
        assert np.allclose(list(numbers(alone["result"])), list(numbers(together[seed]["result"])), atol=1e-5)
        assert {name: len(values) for name, values in alone["series"].items()} == dict.fromkeys(
            ["before.val", "before.test", "after.val", "after.test", "train_loss"], 3
        )


def test_runs_that_differ_in_more_than_their_seed_are_refused() -> None:
    """They cannot be trained side by side."""
    with pytest.raises(ArgumentError, match="runs must be alike but for their seed"):
        tasks.train([run(), run(lr=0.5)])


def test_the_result_has_scores_traffic_and_loss() -> None:
    """Both views at three rounds each, the ledger's totals and the last round's training loss, all finite."""
    (made,) = tasks.train([run()])
    result = made["result"]
    assert set(result) == {"before", "after", "train_loss", "traffic", "facts", "majority"}
    for view in ("before", "after"):
        assert set(result[view]) == {"last", "best", "best_loss"}
        named = {"round", "val", "test", "val_clients", "test_clients", "val_loss"}
        further = {f"{mask}_{name}" for mask in ("val", "test") for name in ("f1", "auc", "classes")}
        assert set(result[view]["best_loss"]) == named
        assert set(result[view]["best"]) == set(result[view]["last"]) == named | further
        assert result[view]["last"]["round"] == 3
    parameters = 7 * 5 + 5 + 5 * 3 + 3
    assert result["traffic"]["training"] == {"down.weights": 9 * parameters, "up.weights": 9 * parameters}
    assert all(math.isfinite(number) for number in numbers(result))


def test_predictions_are_kept_where_a_run_asks_for_them() -> None:
    """They give the recorded score again, and a run that does not ask for them keeps none."""
    (kept,), (plain,) = tasks.train([run(keep="predictions")]), tasks.train([run()])
    assert "series" not in plain and kept["result"] == plain["result"]
    test = kept["series"]["predictions"]["test"]
    right = [a == b for a, b in zip(test["label"], test["before"], strict=True)]
    assert abs(sum(right) / len(right) - kept["result"]["before"]["best"]["test"]) < 1e-12
    with pytest.raises(ArgumentError, match=r"option 'keep'.*Got 'prediction'"):
        tasks.train([run(keep="prediction")])


@pytest.mark.parametrize("method", ["FedAvg", "FedSGD", "Local"])
def test_a_single_run_that_diverges_is_an_error(method: str) -> None:
    """A learning rate of 1e30 raises `DivergedError`, which names the round."""
    with pytest.raises(DivergedError, match=r"not a number in round [12]"):
        tasks.train([run(method, lr=1e30)])


@pytest.mark.parametrize("method", ["FedAvg", "FedSGD", "Local"])
def test_divergence_in_the_last_step_is_an_error_too(method: str) -> None:
    """Weights that only the last step spoils give no result with scores that are NaN."""
    with pytest.raises(DivergedError):
        tasks.train([run(method, lr=1e30, rounds=1)])


@pytest.mark.parametrize("method", ["FedAvg", "FedSGD", "Local"])
def test_one_of_several_runs_that_diverges_spoils_no_other(method: str) -> None:
    """It has an "error" and no "result"; the others have what they have without it."""
    with_, without = (tasks.train([run(method, seed=seed) for seed in seeds]) for seeds in ((0, 7, 2), (0, 2)))
    assert set(with_[1]) == {"error"} and with_[1]["error"].startswith("DivergedError: ")
    for spoilt, clean in zip((with_[0], with_[2]), without, strict=True):
        a, b = (list(numbers(made["result"])) for made in (spoilt, clean))
        assert len(a) == len(b) and all(math.isfinite(number) for number in a)
        assert np.allclose(a, b, atol=1e-5)


def test_a_run_without_training_nodes_names_its_split() -> None:
    """A run that was given no split has nothing to train on, and the error says what to give."""
    with pytest.raises(ArgumentError, match=r"split must be 'public', or percentages .*Got ''"):
        tasks.train([run().replace(split="")])


@pytest.mark.parametrize("text", [fedrepro.__doc__, runs.__doc__], ids=["fedrepro", "fedrepro.runs.run"])
def test_the_first_example_trains(text: str) -> None:
    """The sweep a reader tries first has a split and a partition; here on the stand-in, for one round."""
    (call,) = re.findall(r"sweep\((.*?)\)\n", text, re.DOTALL)
    first = eval(f"sweep({call})", {"sweep": runs.sweep})[0]
    (made,) = tasks.train([first.replace(dataset=f"{first.dataset}~standin", options={"rounds": 1})])
    assert first.clients == 10 and made["result"]["before"]["last"]["round"] == 1


def test_the_federation_of_a_run_is_its_graph_split_and_partition() -> None:
    """Partition, split and initial weights follow only the run's seed."""
    first, second = tasks.federation([run(seed=3)]), tasks.federation([run(seed=4), run(seed=3)])
    assert second.seeds == (4, 3) and first.clients == 3
    mine = second.batch.batch >= 3
    for name in ("node_id", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(first.batch[name], second.batch[name][mine])
    made, _ = tasks.method(run(), 7, 3)
    a, b = train(made, first, 1).state.shared, train(made, second, 1).state.shared
    assert largest_difference(a, {name: w[1:] for name, w in b.items()}) < 1e-6


def test_series_keeps_the_entries_it_names() -> None:
    """And every client's score of the best round; a name it does not know is refused."""
    (output,) = tasks.train([run(series=("test_clients", "clients"))])
    views = ("before", "after")
    assert set(output["series"]) == {f"{v}.{n}" for v in views for n in ("test_clients", "clients")} | {"train_loss"}
    for view in views:
        picked = output["result"][view]["best"]["test_clients"]
        assert np.mean([v for v in output["series"][f"{view}.clients"] if v is not None]) == pytest.approx(picked)
    with pytest.raises(ArgumentError, match=r"option 'series' must be .*Got \('tets',\)"):
        tasks.method(run(series=("tets",)), 7, 3)


class Undecorated(FedAvg):
    """A method whose author forgot `@dataclass`."""

    beta: float = 0.5


def test_a_method_is_a_dataclass_with_its_options() -> None:
    """A function or class that is no method is refused, and so is an option that is no field, before a run."""
    registry.register("train", "Function", lambda run: {})
    registry.register("train", "Class", Data)
    for name in ("Function", "Class"):
        with pytest.raises(ArgumentError, match=f"the method '{name}' must be a dataclass derived from .*Method"):
            tasks.check(run(name))
    registry.register("train", "Undecorated", Undecorated)
    tasks.check(run("Undecorated"))
    with pytest.raises(
        ArgumentError, match=r"'beta' must be a field of Undecorated: write @dataclass\(frozen=True, kw"
    ):
        tasks.check(run("Undecorated", beta=0.1))


@dataclass(frozen=True, kw_only=True)
class NoDefault(FedAvg):
    """A method with a field that has no default value."""

    mu: float
    sizes: list[int] = field(default_factory=list)


@pytest.mark.parametrize("options", [{}, {"mu": 1.0}])
def test_a_field_without_a_default_is_refused(options: dict[str, Any]) -> None:
    registry.register("train", "NoDefault", NoDefault)
    with pytest.raises(ArgumentError, match="field 'mu' of NoDefault must be one with a plain default value"):
        tasks.check(run("NoDefault", **options))
