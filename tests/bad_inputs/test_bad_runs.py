"""Runs, sweeps, what computes them and what keeps them: each bad input is named, and a good one passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fake_tasks
import pytest
from refused import bad, refuses

import fedrepro as fr
from fedrepro import registry
from fedrepro.errors import ArgumentError, StoreError
from fedrepro.runs import execute as engine
from fedrepro.runs import executors, lines, verification
from fedrepro.runs.merge import merge
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

HERE = Path(__file__)


def new(**changes: Any) -> Run:
    usual: dict[str, Any] = {"task": "train", "paper": "p", "method": "FedAvg", "dataset": "Cora~standin"}
    usual |= {"prepare": "undirected", "split": "30/30/40", "partition": "metis", "clients": 2}
    return Run(**usual | {"options": {"rounds": 1, "hidden": 4}} | changes)


def make(**changes: Any) -> Callable[[], Run]:
    return lambda: new(**changes)


def nothing(run: Run) -> dict[str, Any]:
    return {"result": {}}


def do(runs: Any = (), **arguments: Any) -> Callable[[], Any]:
    """Execute in a fresh store of this test, with some arguments replaced."""
    usual = {"file": "a/b", "progress": False}
    return lambda: fr.execute(list(runs) or runs, **{"store": Store(), **usual, **arguments})


def executed(**changes: Any) -> Callable[[], Any]:
    """Make a run and execute it."""
    return lambda: do([new(**changes)])()


def option(name: str, value: Any, method: str = "FedAvg") -> Callable[[], Any]:
    return executed(method=method, options={"rounds": 1, "hidden": 4} | {name: value})


def swept(**axes: Any) -> Callable[[], Any]:
    return lambda: fr.sweep(**{"task": "train", "paper": "p", "method": "FedAvg"} | axes)


def register(task: Any, name: Any, target: Any, version: Any = 1) -> Callable[[], None]:
    return lambda: registry.register(task, name, target, version)


def record(**changes: Any) -> dict[str, Any]:
    run = dict.fromkeys(lines.RUN, "")
    return {"key": "k", "status": "ok", "run": run, "result": {}} | changes


def append(given: Any, file: Any = "a") -> Callable[[], Any]:
    return lambda: Store().append(file, given)


REGISTRY = [
    bad("an unknown task", register("trian", "mine", nothing), "task", "'trian'", "Did you mean 'train'?"),
    bad("an empty name", register("check", "", nothing), "name", "''"),
    bad("a number as name", register("check", 5, nothing), "name", "Got 5"),
    bad("a name of the package", register("train", "FedAvg", nothing), "name", "'train'", "'FedAvg'"),
    bad("no target", register("check", "mine", None), "target", "'module:name'", "None"),
    bad("a module alone", register("check", "mine", "json"), "target", "'module:name'", "'json'"),
    bad("a file", register("check", "mine", "a/b.py:f"), "target", "'module:name'", "'a/b.py:f'"),
    bad("an instance", register("check", "mine", SimpleCall := type("SimpleCall", (), {})()), "target", "SimpleCall"),
    bad("version 0", register("check", "mine", nothing, 0), "version", "Got 0"),
    bad("version True", register("check", "mine", nothing, True), "version", "Got True"),
    bad("version of text", register("check", "mine", nothing, "2"), "version", "Got '2'"),
    bad(
        "an unknown method", lambda: registry.find("train", "FedAvgg"), "method", "'FedAvgg'", "Did you mean 'FedAvg'?"
    ),
]
FIELDS = [
    bad("an unknown field", make(sed=1), "a field of Run", "'sed'", "Did you mean 'seed'?"),
    bad("another word for a field", make(num_clients=3), "a field of Run", "Did you mean 'clients'?"),
    bad("eleven values", lambda: Run(*"abcdefghijk"), "a Run", "at most 10 values"),
    bad("no method", lambda: Run(task="train", paper="p"), "method must be given"),
    bad("an unknown task", make(task="trian"), "task", "'trian'", "Did you mean 'train'?"),
    bad("an unknown method", make(method="FedAvgg"), "method", "'FedAvgg'", "Did you mean 'FedAvg'?"),
    bad("a method of another task", make(method="gfl-weights"), "method", "'gfl-weights'"),
    bad("a number as paper", make(paper=5), "paper", "a string", "Got 5"),
    bad("None as dataset", make(dataset=None), "dataset", "a string", "Got None"),
    bad("a list of steps", make(prepare=["undirected"]), "prepare", "a string", "['undirected']"),
    bad("a tuple as split", make(split=(10, 10, 80)), "split", "a string", "(10, 10, 80)"),
    bad("a function as partition", make(partition=print), "partition", "a string", "print"),
    bad("text as flag", make(partition="random(equal='no')"), "equal", "True or False", "'no'"),
    bad("no clients", make(clients=0), "clients", "Got 0"),
    bad("half a client", make(clients=1.5), "clients", "Got 1.5"),
    bad("True clients", make(clients=True), "clients", "Got True"),
    bad("clients of text", make(clients="2"), "clients", "Got '2'"),
    bad("a negative seed", make(seed=-1), "seed", "Got -1"),
    bad("no seed", make(seed=None), "seed", "Got None"),
    bad("a list of options", make(options=[("lr", 1)]), "options", "a mapping", "('lr', 1)"),
    bad("a number as option's name", make(options={1: 2}), "an option's name", "Got 1"),
    bad("a field as option", make(options={"seed": 1}), "an option's name", "'seed'"),
    bad("a column as option", make(options={"key": 1}), "an option's name", "'key'"),
    bad("NaN as option", make(options={"lr": float("nan")}), "option 'lr'", "finite", "nan"),
    bad("a mapping as option", make(options={"lr": {"a": 1}}), "option 'lr'", "{'a': 1}"),
    bad("True rounds", make(options={"rounds": True}), "option 'rounds'", "Got True"),
    bad("no mapping", lambda: Run.from_dict([1]), "fields", "a mapping", "[1]"),  # type: ignore[arg-type]
    bad("a changed field", lambda: new().replace(client=3), "a field of Run", "'client'", "'clients'"),
    bad("an unknown axis", swept(datasets=["Cora"]), "an axis", "'datasets'", "'dataset'"),
    bad("an axis without values", swept(seed=[]), "seed", "at least one"),
    bad("an option without values", swept(options={"lr": []}), "option 'lr'", "at least one"),
    bad("options that are no mapping", swept(options=3), "options", "a mapping", "Got 3"),
    bad("a nested axis", swept(method=[["FedAvg"]]), "method", "['FedAvg']"),
]
EXECUTED = [
    bad("an unknown graph", executed(dataset="Coar"), "data set", "'Coar'", "Did you mean 'Cora'?"),
    bad("no graph", executed(dataset=""), "data set", "''"),
    bad("an unknown step", executed(prepare="undirect"), "prepare step", "'undirect'", "'undirected'"),
    bad("a split beyond 100", executed(split="50/50/50"), "split", "'50/50/50'"),
    bad("a split of letters", executed(split="half"), "split", "'half'"),
    bad("an unknown partition", executed(partition="metsi"), "partition", "'metsi'", "Did you mean 'metis'?"),
    bad("an unknown argument", executed(partition="dirichlet(bet=1)"), "'dirichlet'", "'bet'"),
    bad("learning_rate", option("learning_rate", 0.1), "options of FedAvg", "'learning_rate'", "Did you mean 'lr'?"),
    bad("num_layers", option("num_layers", 2), "'num_layers'", "Did you mean 'layers'?"),
    bad("hidden-dim", option("hidden-dim", 2), "'hidden-dim'", "Did you mean 'hidden'?"),
    bad("epochs", option("epochs", 2), "'epochs'", "Did you mean 'local_epochs'?"),
    bad("L2", option("L2", 0.1), "'L2'", "Did you mean 'weight_decay'?"),
    bad("fraction", option("fraction", 0.1), "'fraction'", "Did you mean 'participation'?"),
    bad("proximal", option("proximal", 0.1, "FedProx"), "options of FedProx", "Did you mean 'mu'?"),
    bad("an option of another method", option("mu", 0.1), "options of FedAvg", "'mu'"),
    bad("no rounds", option("rounds", 0), "option 'rounds'", ">= 1", "Got 0"),
    bad("negative rounds", option("rounds", -3), "option 'rounds'", "Got -3"),
    bad("half a round", option("rounds", 1.5), "option 'rounds'", "Got 1.5"),
    bad("rounds of text", option("rounds", "2"), "option 'rounds'", "Got '2'"),
    bad("no width", option("hidden", 0), "hidden", "at least 1", "Got 0"),
    bad("a width of text", option("hidden", "wide"), "option 'hidden'", "of type int", "'wide'"),
    bad("no layers", option("layers", 0), "layers", "at least 1", "Got 0"),
    bad("all dropped", option("dropout", 1), "dropout", "[0, 1)", "Got 1"),
    bad("a negative rate", option("lr", -0.1), "lr", "positive", "Got -0.1"),
    bad("a rate of 0", option("lr", 0), "lr", "positive", "Got 0"),
    bad("a rate of text", option("lr", "fast"), "option 'lr'", "of type float", "'fast'"),
    bad("negative decay", option("weight_decay", -1.0), "weight_decay", "Got -1"),
    bad("an unknown optimizer", option("optimizer", "adamw"), "optimizer", "'adamw'", "Did you mean 'adam'?"),
    bad("an unknown model", option("model", "GNC"), "model", "'GNC'", "Did you mean 'GCN'?"),
    bad("an unknown average", option("average", "mean"), "average", "'mean'"),
    bad("no epochs", option("local_epochs", 0), "local_epochs", "at least 1", "Got 0"),
    bad("nobody takes part", option("participation", 0), "participation", "(0, 1]", "Got 0"),
    bad("a series of nothing", option("series", ("loss",)), "option 'series'", "('loss',)"),
    bad("a state of nothing", option("optimizer_state", "forgot"), "optimizer_state", "'forgot'"),
]
ENGINE = [
    bad("text as run", do(["x"]), "runs", "of type Run", "'x'"),
    bad("a mapping as run", do([{"task": "train"}]), "runs", "of type Run", "'train'"),
    bad("a store's name", do([new()], store="results"), "store", "a Store", "'results'"),
    bad("no file", do([new()], file=None), "file", "a string", "None"),
    bad("a file outside", do([new()], file="../x"), "file", "'../x'"),
    bad("no workers", do([new()], workers=0), "workers", ">= 1", "Got 0"),
    bad("half a worker", do([new()], workers=1.5), "workers", "Got 1.5"),
    bad("True workers", do([new()], workers=True), "workers", "Got True"),
    bad("none side by side", do([new()], side_by_side=0), "side_by_side", "Got 0"),
    bad("text side by side", do([new()], side_by_side="all"), "side_by_side", "Got 'all'"),
    bad("a negative budget", do([new()], budget=-1), "budget", "Got -1"),
    bad("a budget of text", do([new()], budget="5"), "budget", "Got '5'"),
    bad("a number as executor", do([new()], executor=5), "executor", "'dask'", "Got 5"),
    bad("an unknown executor", do([new()], executor="dusk"), "executor", "'dusk'", "Did you mean 'dask'?"),
    bad("an unknown device", do([new()], device="gpu"), "device", "'gpu'"),
    bad("nothing to compute", lambda: engine.compute([]), "runs", "at least one Run", "[]"),
    bad("compute of text", lambda: engine.compute(["x"]), "runs", "of type Run", "'x'"),  # type: ignore[list-item]
    bad("an unknown engine", lambda: executors.executor("ray"), "engine", "'ray'"),
    bad("a pool of none", lambda: executors.executor("local", workers=0), "workers", "Got 0"),
    bad("no scheduler", lambda: executors.executor("dask"), "address", "tcp://host:8786", "''"),
    bad("no address", lambda: executors.executor("dask", "here"), "address", "tcp://host:8786", "'here'"),
    bad("nobody there", lambda: executors.executor("dask", "tcp://127.0.0.1:1"), "address", "'tcp://127.0.0.1:1'"),
    bad("a number as address", lambda: executors.executor("dask", 1), "address", "Got 1"),  # type: ignore[arg-type]
]
KEPT = [
    bad("no record", append({"x": 1}), "record", "lacks key, status, run or result"),
    bad("a list", append([1]), "record"),
    bad("a run without fields", append(record(run={"task": "train"})), "record", "run"),
    bad("a result that is a list", append(record(result=[1])), "record", "result"),
    bad("an infinite result", append(record(result={"a": float("inf")})), "record", "JSON"),
    bad("an object", append(record(result={"a": object()})), "record", "JSON", "object"),
    bad("the environments' file", append(record(), "environments"), "file", "'environments'"),
    bad("an empty file name", append(record(), ""), "file", "''"),
    bad("a file above", append(record(), ".."), "file", "'..'"),
    bad("a folder that is a file", lambda: Store(HERE), "test_bad_runs.py", "cannot be read"),
    bad("a merge with nothing", lambda: merge("/nowhere", Store()), "folder", "'/nowhere'"),
    bad("a merge with a file", lambda: merge(HERE, Store()), "test_bad_runs.py", "cannot be read"),
    bad("no verification", lambda: verification.verify(Store(), 0), "n", "Got 0"),
    bad("verification by text", lambda: verification.verify(Store(), "5"), "n", "'5'"),  # type: ignore[arg-type]
]


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("FEDREPRO_ADDRESS", raising=False)
    fake_tasks.register()
    yield
    fake_tasks.forget()


@pytest.mark.parametrize(("call", "words"), [*REGISTRY, *FIELDS])
def test_a_bad_field_is_named_when_the_run_is_made(call: Callable[[], Any], words: tuple[str, ...]) -> None:
    """Fields, axes and registrations that are not allowed are refused at once."""
    assert isinstance(refuses(call, words), ArgumentError)


@pytest.mark.parametrize(("call", "words"), EXECUTED)
def test_a_bad_name_or_option_is_named_before_anything_is_computed(
    call: Callable[[], Any], words: tuple[str, ...]
) -> None:
    """A name or option that is not known stops a sweep with an error, and the store stays empty."""
    assert isinstance(refuses(call, words), ArgumentError)
    assert not Store().folder.exists()


@pytest.mark.parametrize(("call", "words"), [*ENGINE, *KEPT])
def test_a_bad_argument_of_engine_or_store_is_named(call: Callable[[], Any], words: tuple[str, ...]) -> None:
    """Whatever computes or keeps runs refuses what it would misread."""
    refuses(call, words)


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_bad_environment_variables_are_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number of workers that is none is named with its variable."""
    monkeypatch.setenv("FEDREPRO_WORKERS", value)
    refuses(executors.cores, ("FEDREPRO_WORKERS", repr(value)))


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file in the place of the folder is an error that names it."""
    (tmp_path / "file").write_text("")
    told = refuses(lambda: Store(tmp_path / "file" / "sub").append("a", record()), ("sub", "file"))
    assert isinstance(told, StoreError)


def test_good_inputs_pass(tmp_path: Path) -> None:
    """The controls: sound runs are made, checked, computed and kept, also on an executor of the caller's."""
    quick = [new(task="check", method="quick", seed=seed, dataset="", partition="") for seed in (0, 1)]
    with ThreadPoolExecutor(1) as pool:
        frame = do(quick, executor=pool, workers=1, side_by_side=2, budget=1)()
    assert list(frame["count"]) == [2, 2] and not frame.attrs["failed"]
    assert len(swept(seed=range(2), options={"lr": [0.1, 1]})()) == 4
    assert len(verification.verify(Store(), 1)) == 1
    trained = do([new()])()
    assert trained["rounds"].tolist() == [1] and not trained.attrs["failed"]
    assert do([new(options={"rounds": 0})], budget=0)().empty, "what is not computed is not checked"
    kept = json.loads((Store().folder / "a-b.jsonl").read_bytes().split(b"\n")[0])
    assert kept["run"]["method"] == "quick"
