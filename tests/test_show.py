"""The command `show`: a record by its key, the command that computes it again, an exhibit's runs and their keys."""

from __future__ import annotations

import json
import shlex

import pytest
from records import CELL, record

from fedrepro import cli
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store


def test_show_prints_the_record_and_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`show` takes the start of a key, prints its record, and a command line that names exactly this run."""
    other = CELL.replace(seed=1)
    Store().append("fedgat-6-experiments", record(CELL), record(other))
    assert cli.main(["show", CELL.key[:12]]) == 0
    text, _, command = capsys.readouterr().out.partition("# computes it again:")
    assert json.loads(text)["result"] == {"before": {"best": {"test": 0.8}}}
    program, option, code = shlex.split(command)
    assert (program, option) == ("python", "-c")
    start = code.index("{")
    assert Run.from_dict(eval(code[start : code.rindex("}") + 1])).key == CELL.key


def test_show_names_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    """The command that `show` prints computes a record of a GPU on a GPU."""
    Store().append("fedgat-6-experiments", record(CELL, environment={"device": "some GPU"}))
    assert cli.main(["show", CELL.key[:12]]) == 0
    text, _, command = capsys.readouterr().out.partition("# computes it again:")
    assert json.loads(text)["environment"] == {"device": "some GPU"}
    assert shlex.split(command)[2].endswith("], 'cuda'))")


def test_show_of_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """For what `verify` found, `show` prints the command that shows the run it recomputed."""
    run = {**CELL.to_dict(), "task": "check", "method": "verify"}
    result = {"verified": CELL.key, "verdict": "identical"}
    Store().append("verify", {**record(CELL), "key": "f" * 64, "run": run, "result": result})
    assert cli.main(["show", "ffff"]) == 0
    text, _, command = capsys.readouterr().out.partition("# the run that was computed again, and its command:")
    assert json.loads(text)["result"]["verdict"] == "identical"
    assert shlex.split(command) == ["fedrepro", "show", CELL.key]


@pytest.mark.parametrize(("key", "message"), [("zz", "Got 'zz'"), ("", "KEY must name one record")])
def test_show_needs_one_record(capsys: pytest.CaptureFixture[str], key: str, message: str) -> None:
    """A key that no record or more than one begins with is an error."""
    Store().append("fedgat-6-experiments", record(CELL), record(CELL.replace(seed=1)))
    assert cli.main(["show", key]) == 2
    assert message in capsys.readouterr().err


def test_show_lists_the_keys_of_an_exhibit(capsys: pytest.CaptureFixture[str]) -> None:
    """`show ID` lists the runs of an exhibit with their state and keys, `show ID VALUE` those that have the value."""
    from fedrepro.reporting.exhibits import registered

    runs = registered()["FG-A1"].runs("paper")
    Store().append("fedgat-4-algorithm", record(runs[0]))
    assert cli.main(["show", "FG-A1"]) == 0
    text = capsys.readouterr().out
    assert all(run.key[:16] in text for run in runs) and f"fedrepro show {runs[0].key}" in text
    assert cli.main(["show", "FG-A1", "nothing"]) == 2
    told = capsys.readouterr().err
    assert "the cell of FG-A1 must be one of " in told and "'Cora'" in told and "Got 'nothing'" in told
    assert cli.main(["show", "FG-A1", "cora"]) == 2
    assert "Did you mean 'Cora'?" in capsys.readouterr().err
