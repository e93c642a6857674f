"""The options that `fedrepro list NAME` names are those that a run takes, each with its default and a meaning."""

import ast

import pytest

from fedrepro import registry
from fedrepro.cli import main
from fedrepro.data.partition import PARTITIONS, parse
from fedrepro.engine.nn.models import MODELS
from fedrepro.errors import ArgumentError
from fedrepro.reporting import describing
from fedrepro.runs import options, tasks
from fedrepro.runs.run import Run

METHODS = pytest.mark.parametrize("name", registry.names("train"))


@METHODS
def test_every_option_of_a_method_has_a_meaning_and_is_accepted_with_its_default(name: str) -> None:
    own = describing.own("train", name)
    assert not [row.option for row in own if not row.meaning]
    given = {row.option: ast.literal_eval(row.default) for row in own if row.default != "none"}
    given.setdefault("model", describing.models(name)[0])
    run = Run(task="train", paper="fedstruct", method=name, options=given)
    method, loop = tasks.method(run, tasks.FEATURES, tasks.CLASSES)
    assert loop == {key: given[key] for key in ("rounds", "keep")} | {"series": ()}
    for option, value in given.items():
        if option not in ("model", *describing.LOOP) and hasattr(method, option):
            assert getattr(method, option) == value


@METHODS
def test_a_method_takes_no_option_that_is_not_listed(name: str) -> None:
    model = describing.models(name)[0]
    run = Run(task="train", paper="fedstruct", method=name, options={"model": model, "no-such-option": 1})
    with pytest.raises(ArgumentError) as caught:
        tasks.method(run, tasks.FEATURES, tasks.CLASSES)
    allowed = str(caught.value).partition(" must be among ")[2].partition(". Got")[0].split(", ")
    listed = {row.option for row in describing.own("train", name)}
    sizes = {row.option for row in describing.sizes(name) if model in row.of.split(", ")}
    fixed = {*registry.find("train", name).fixed} - {"model"}  # whose only name is listed
    assert {*allowed} - {"features", "classes"} - fixed == listed | sizes


def test_every_size_of_a_model_has_a_meaning_and_is_named_once_a_model() -> None:
    rows = describing.sizes("FedAvg")
    assert not [row.option for row in rows if not row.meaning]
    named = [(label, row.option) for row in rows for label in row.of.split(", ")]
    assert len(named) == len(set(named)) and {label for label, _ in named} == {*MODELS}


@pytest.mark.parametrize(("task", "name"), [key for key in registry.REGISTRY if key[0] != "train"])
def test_the_options_of_what_does_not_train_are_those_that_are_checked(task: str, name: str) -> None:
    known = registry.find(task, name).options or {}
    assert {row.option for row in describing.own(task, name)} == {*known}
    if known and not registry.find(task, name).trains:
        with pytest.raises(ArgumentError):
            options.check(Run(task=task, paper="engine", method=name, options={"no-such-option": 1}))


@pytest.mark.parametrize("name", PARTITIONS)
def test_the_arguments_of_a_partition_are_those_that_it_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = describing.arguments(name)
    describing.show(name)
    above = capsys.readouterr().out.partition("\n\noption ")[0].partition("\n")[2]
    assert not [row.option for row in rows if not row.meaning and row.option not in above]
    given = ", ".join(f"{row.option}={'2' if row.default.startswith('none') else row.default}" for row in rows)
    assert parse(f"{name}({given})")[1].keys() == {row.option for row in rows}
    with pytest.raises(ArgumentError):
        parse(f"{name}(no_such_argument=1)")


def test_the_command_prints_a_method_and_everything_of_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "FedStruct"]) == 0
    told = capsys.readouterr().out
    assert "FedStruct: task 'train'" in told and "FedStruct: task 'traffic'" in told
    assert "structure_depth" in told and "L_s; with 0" in told and "GCNHead, SAGEHead" in told
    assert main(["list", "feras-inversion"]) == 0
    told = capsys.readouterr().out
    assert "observations" in told and "GCNHead" not in told
    assert main(["list", "dirichlet"]) == 0
    assert "'dirichlet(beta=..., minimum=...)'" in capsys.readouterr().out


def test_a_name_that_is_not_known_is_told_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "FedProxx"]) == 2
    assert "Did you mean 'FedProx'?" in capsys.readouterr().err
