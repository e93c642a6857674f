from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro import registry
from fedrepro.errors import ArgumentError
from fedrepro.runs.run import Run, sweep


def run(**changes: object) -> Run:
    return Run(**{"task": "train", "paper": "fedgat", "method": "FedAvg", "dataset": "Cora", **changes})


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
OPTIONS = st.dictionaries(st.text(min_size=1).map("o_".__add__), SCALARS | st.lists(SCALARS, max_size=3), max_size=4)


@given(OPTIONS)
def test_dict_round_trip(options: dict[str, object]) -> None:
    """A run rebuilt from its dictionary is the same run, with the same key and hash."""
    first = run(options=options)
    again = Run.from_dict(first.to_dict())
    assert again == first and again.key == first.key and hash(again) == hash(first)


def test_key_is_the_same_in_another_process() -> None:
    """The key depends on no process, hash seed or order of options."""
    code = (
        "from fedrepro.runs.run import Run;"
        "print(Run('train', 'fedgat', 'FedAvg', 'Cora', options={'b': [1, 2], 'a': 0.5}).key)"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert output.stdout.strip() == run(options={"a": 0.5, "b": (1, 2)}).key


def test_numbers_are_canonical() -> None:
    """1, 1.0 and NumPy's 1 give one key; True, "1" and 1.5 give others."""
    keys = [run(options={"a": value}).key for value in (1, 1.0, np.int64(1), np.float64(1), True, "1", 1.5)]
    assert len(set(keys[:4])) == 1 and len(set(keys[3:])) == 4
    assert run(options={"a": -0.0}).key == run(options={"a": 0}).key
    assert run(clients=10.0, seed=3.0).key == run(clients=10, seed=3).key


def test_every_field_changes_the_key() -> None:
    """No two runs that differ in one field share a key."""
    changes: list[dict[str, object]] = [
        {},
        {"task": "check", "method": "quick"},
        {"paper": "fedstruct"},
        {"dataset": "Cora~standin"},
        {"prepare": "row-sum"},
        {"split": "public"},
        {"partition": "metis"},
        {"method": "Local"},
        {"clients": 2},
        {"seed": 1},
        {"options": {"lr": 0.1}},
        {"options": {"lr": 0.2}},
        {"options": {"lr": None}},
        {"options": {"lr": [0.1]}},
    ]
    registry.register("check", "quick", "fake_tasks:quick")
    try:
        assert len({run(**change).key for change in changes}) == len(changes)
    finally:
        del registry.REGISTRY["check", "quick"]


@pytest.mark.parametrize(
    ("task", "name", "told"),
    [
        ("train", "FedAvg", "name must be one that nothing of task 'train' in this package has. Got 'FedAvg'"),
        ("training", "mine", "task must be one of 'train'.*Got 'training'.*Did you mean 'train'"),
    ],
)
def test_own_methods_take_no_published_name(task: str, name: str, told: str) -> None:
    """A class of one's own under a name of this package would get the keys of its results; tasks are known ones."""
    before = dict(registry.REGISTRY)
    with pytest.raises(ArgumentError, match=told):
        registry.register(task, name, "fake_tasks:quick")
    assert before == registry.REGISTRY


def test_what_is_registered_last_counts() -> None:
    """A target given as text replaces the function given before it under the same name."""
    registry.register("check", "mine", lambda run: {"result": {}})
    registry.register("check", "mine", "fake_tasks:quick")
    try:
        assert registry.load("check", "mine").__name__ == "quick"
    finally:
        del registry.REGISTRY["check", "mine"]


def test_version_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raising the version of a method gives its runs new keys, and those of no other."""
    before, other = run().key, run(method="Local").key
    entry = registry.REGISTRY["train", "FedAvg"]
    raised = registry.Entry(entry.target, entry.version + 1)
    monkeypatch.setitem(registry.REGISTRY, ("train", "FedAvg"), raised)
    assert run().key != before and run(method="Local").key == other


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"task": "training"}, "task must be one of 'train'.*Got 'training'.*Did you mean 'train'"),
        ({"method": "FedAvgg"}, "method must be one of .*Got 'FedAvgg'.*Did you mean 'FedAvg'"),
        ({"clients": 0}, "clients must be an integer >= 1. Got 0"),
        ({"clients": True}, "clients must be an integer"),
        ({"clients": "3"}, "clients must be an integer"),
        ({"clients": math.nan}, "clients must be an integer"),
        ({"seed": -1}, "seed must be an integer >= 0. Got -1"),
        ({"seed": 0.5}, "seed must be an integer"),
        ({"seed": 2**64}, r"seed must be below 2\^64. Got 18446744073709551616"),
        ({"dataset": None}, "dataset must be a string"),
        ({"options": [1]}, "options must be a mapping"),
        ({"options": {"lr": math.nan}}, "'lr' must be a finite number. Got nan"),
        ({"options": {"lr": [1, math.inf]}}, "'lr' must be a finite number"),
        ({"options": {"lr": {"a": 1}}}, "'lr' must be a string, number"),
        ({"options": {"lr": object()}}, "'lr' must be a string, number"),
        ({"options": {"seed": 1}}, "option's name must be .*Got 'seed'"),
        ({"options": {"status": 1}}, "option's name must be .*Got 'status'"),
        ({"options": {1: 1}}, "option's name must be a string"),
    ],
)
def test_errors_name_what_was_given(changes: dict[str, object], told: str) -> None:
    """Each wrong value is an error that says which, what is allowed and what was given."""
    with pytest.raises(ArgumentError, match=told):
        run(**changes)


def test_unknown_fields() -> None:
    """A field that does not exist is an error in a dictionary, a change and a sweep."""
    with pytest.raises(ArgumentError, match=r"field of Run must be one of.*Did you mean 'clients'"):
        Run.from_dict({**run().to_dict(), "client": 3})
    with pytest.raises(ArgumentError, match="field of Run"):
        run().replace(client=3)
    with pytest.raises(ArgumentError, match="axis must be one of"):
        sweep(task="train", paper="fedgat", method="FedAvg", seeds=[1])
    with pytest.raises(ArgumentError, match="method must be given"):
        Run.from_dict({"task": "train", "paper": "fedgat"})


def test_runs_are_immutable_and_pickle() -> None:
    """A run cannot be changed, and survives the way to a worker process."""
    first = run(options={"layers": [16, [8, 4]], "lr": 0.1})
    with pytest.raises(AttributeError):
        first.seed = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        first.options["lr"] = 2  # type: ignore[index]
    again = pickle.loads(pickle.dumps(first))
    assert again == first and again.key == first.key and again.options["layers"] == (16, (8, 4))
    assert first.replace(seed=4).seed == 4 and first.replace(seed=0) == first
    assert first.to_dict()["options"] == {"layers": [16, [8, 4]], "lr": 0.1}


def test_sweep_order() -> None:
    """The last axis is the fastest, and the seed the slowest wherever it stands."""
    runs = sweep(task="train", paper="p", seed=range(2), method=["FedAvg", "Local"], dataset=("A", "B"))
    assert [(run.seed, run.method, run.dataset) for run in runs] == [
        (seed, method, dataset) for seed in (0, 1) for method in ("FedAvg", "Local") for dataset in "AB"
    ]


def test_sweep_options() -> None:
    """Within the options a list is an axis and a tuple a value; several mappings are an axis too."""
    runs = sweep(
        task="train", paper="p", method="FedAvg", options={"lr": [0.1, 0.2], "hidden": (16, 8)}, clients={10, 2}
    )
    found = [(run.options["lr"], run.options["hidden"], run.clients) for run in runs]
    assert found == [(0.1, (16, 8), 2), (0.1, (16, 8), 10), (0.2, (16, 8), 2), (0.2, (16, 8), 10)]
    pairs = sweep(task="train", paper="p", method="FedAvg", options=[{"a": [1, 2]}, {"b": 3}])
    assert [dict(run.options) for run in pairs] == [{"a": 1}, {"a": 2}, {"b": 3}]


@pytest.mark.parametrize("axes", [{"seed": []}, {"options": {"lr": []}}, {"dataset": ()}])
def test_empty_axes(axes: dict[str, object]) -> None:
    """An axis without values is an error, not a sweep without runs."""
    with pytest.raises(ArgumentError, match="at least one"):
        sweep(task="train", paper="p", method="FedAvg", **axes)


def test_import_is_light() -> None:
    """Neither torch nor pandas is loaded to name, look up or compute runs."""
    modules = "fedrepro.runs.run, fedrepro.runs.store, fedrepro.runs.execute"
    code = f"import sys, {modules}; print({{'torch', 'pandas'}} & {{*sys.modules}})"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "set()"


def test_a_run_can_be_sent_before_its_method_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker process takes a run, and only then what was registered by hand."""
    registry.register("check", "by hand", "nowhere:nothing")
    sent = pickle.dumps(Run("check", "p", "by hand", seed=3))
    monkeypatch.delitem(registry.REGISTRY, ("check", "by hand"))
    assert pickle.loads(sent).seed == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sed": 1}, r"a field of Run must be one of .*Got 'sed'\. Did you mean 'seed'"),
        ({"options": {"rounds": True}}, "option 'rounds' must be an integer. Got True"),
        ({"partition": "random(equal='no')"}, 'equal must be True or False. Got "random'),
    ],
)
def test_what_a_run_would_take_for_something_else(fields: dict[str, Any], message: str) -> None:
    """A misspelled field, a flag as a number and text as a flag are refused when the run is made."""
    with pytest.raises(ArgumentError, match=message):
        Run(**{"task": "train", "paper": "p", "method": "FedAvg"} | fields)
    assert Run("train", "p", "FedAvg", partition="random(equal=False)").partition == "random(equal=False)"
