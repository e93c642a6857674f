"""Notebooks' parameters, frames, figures, comparisons, claims, commands and the site: bad inputs are named."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from refused import bad, refuses

import fedrepro as fr
from fedrepro import cli
from fedrepro.reporting import (
    cells,
    checks,
    claims,
    compare,
    exhibits,
    figures,
    files,
    frames,
    notebook,
    report,
    statistics,
)
from fedrepro.reporting.session import check_parameter
from fedrepro.reporting.site import build

FRAME = pd.DataFrame({"dataset": "Cora", "method": ["a", "b"], "seed": [0, 1], "x": [1, 2], "y": [0.1, 0.2]})
TEXT = FRAME.assign(y="high")


def begin(name: Any = "fedgat/6-x", **changes: Any) -> Callable[[], Any]:
    return lambda: fr.begin(name, **{"profile": "quick", "device": "cpu", "seeds": 0, "engine": "local"} | changes)


def nb() -> notebook.Notebook:
    made: notebook.Notebook = begin()()
    return made


def verdict(ours: Any = (0.7, 0.8), published: Any = 0.8, spread: Any = 0.1, **more: Any) -> Callable[[], Any]:
    return lambda: compare.judge_cell(ours, published, spread, **more)


def table(frame: Any = FRAME, on: Any = ("dataset", "method"), value: str = "y") -> Callable[[], Any]:
    return lambda: compare.judge_table(frame, exhibits.published("fedgat"), on=on, value=value)


def drawn(form: str, *values: Any, **named: Any) -> Callable[[], Any]:
    return lambda: getattr(figures, form)(*values, **named)


def save(paper: Any = "a", exhibit: Any = "b", frame: Any = FRAME, figure: Any = None) -> Callable[[], Any]:
    return lambda: files.save(paper, exhibit, frame, figure)


def claim(**changes: Any) -> Callable[[], Any]:
    parts = {"here": (statistics.paired([1.0, 2.0], [0.5, 1.0]), 0.0, math.inf)}
    return lambda: claims.judge_claim(parts, **changes)


SOUND = {"id": "X", "statement": "s", "measured": 1.0, "bound": 2.0, "verdict": "holds"}
BEGUN = [
    bad("a number as name", begin(5), "name", "'paper/n-section'", "Got 5"),
    bad("a name without section", begin("fedgat"), "name", "'paper/n-section'", "'fedgat'"),
    bad("a name above", begin("../x/y"), "name", "'../x/y'"),
    bad("an unknown profile", begin(profile="quik"), "profile", "'quik'", "Did you mean 'quick'?"),
    bad("no profile", begin(profile=None), "profile", "Got None"),
    bad("an unknown device", begin(device="gpu"), "device", "'gpu'"),
    bad("negative seeds", begin(seeds=-1), "seeds", ">= 0", "Got -1"),
    bad("True seeds", begin(seeds=True), "seeds", "Got True"),
    bad("a list of seeds", begin(seeds=[0, 1]), "seeds", "Got [0, 1]"),
    bad("an unknown engine", begin(engine="ray"), "engine", "'ray'"),
    bad("a parameter of another type", lambda: check_parameter("hidden", "wide", 4), "hidden", "of type int", "'wide'"),
    bad("a parameter that is True", lambda: check_parameter("hidden", True, 4), "hidden", "Got True"),
    bad("an unknown notebook", lambda: notebook.select(["fedgta"]), "notebook", "'fedgta'", "Did you mean 'fedgat'?"),
    bad("an unknown exhibit", lambda: nb().runs("FG-T99"), "exhibit", "'FG-T99'"),
    bad("an exhibit in small letters", lambda: nb().runs("fg-t1"), "exhibit", "'fg-t1'", "Did you mean 'FG-T1'?"),
    bad("no main table", lambda: nb().main_table("FG-F1"), "exhibit", "'FG-F1'"),
    bad("an unknown deviation", lambda: nb().deviations("FG-Q999"), "deviation", "'FG-Q999'"),
    bad("an unknown claim", lambda: nb().claims("FG-C99"), "claim", "'FG-C99'"),
    bad("a check without verdict", lambda: nb().checks([{"id": "X"}]), "a row of checks", "verdict", "{'id': 'X'}"),
    bad("a check with more", lambda: nb().checks([{**SOUND, "why": ""}]), "a row of checks", "why"),
    bad("an unknown paper", lambda: exhibits.published("fedgta"), "paper", "'fedgta'", "Did you mean 'fedgat'?"),
    bad("deviations of nobody", lambda: exhibits.deviations("engine"), "paper", "'engine'"),
    bad("a study of nobody", lambda: exhibits.study("nobody"), "paper", "'nobody'"),
    bad("a folder of nobody", lambda: exhibits.folder("nobody"), "paper", "'nobody'"),
    bad("an unknown profile of runs", lambda: exhibits.find("FG-T1").runs("full"), "profile", "'full'"),
]
NUMBERS = [
    bad("scores of text", verdict(["a"]), "ours", "finite numbers", "['a']"),
    bad("one score", verdict(0.8), "ours", "a list", "Got 0.8"),
    bad("a text of scores", verdict("0.8"), "ours", "a list", "'0.8'"),
    bad("a score of NaN", verdict([0.8, math.nan]), "ours", "finite numbers", "nan"),
    bad("an infinite printed number", verdict(published=math.inf), "published", "inf"),
    bad("a printed text", verdict(published="high"), "published", "'high'"),
    bad("a negative spread", verdict(spread=-0.1), "spread", "at least 0", "-0.1"),
    bad("a spread of text", verdict(spread="wide"), "spread", "'wide'"),
    bad("an unknown spread", verdict(spread_kind="variance"), "spread_kind", "'variance'"),
    bad("points of 0", verdict(point=0), "point", "above 0", "Got 0"),
    bad("one printed run", verdict(runs_published=1), "runs_published", "at least 2", "Got 1"),
    bad("scores of text in a frame", table(TEXT), "value", "a column of numbers", "'y'"),
    bad("an unknown score", table(value="acc"), "value must", "'acc'"),
    bad("an unknown column", table(on=("dataset", "metod")), "on", "'metod'", "Did you mean 'method'?"),
    bad("runs that are mixed", table(FRAME.assign(seed=0, method="FedGAT")), "on", "one seed"),
    bad("a list as frame", table([1]), "frame", "list"),
    bad("no values", lambda: statistics.interval([]), "values", "at least one", "[]"),
    bad("values of text", lambda: statistics.interval(["a"]), "values", "numbers", "['a']"),
    bad("a level of 2", lambda: statistics.interval([1, 2], level=2), "level", "between 0 and 1", "Got 2"),
    bad("a level of 0", lambda: statistics.interval([1, 2], level=0), "level", "Got 0"),
    bad("a level of text", lambda: statistics.interval([1, 2], level="95%"), "level", "'95%'"),  # type: ignore[arg-type]
    bad("pairs of other lengths", lambda: statistics.paired([1, 2], [1]), "b", "as long as a, 2", "Got 1"),
    bad("one pair", lambda: statistics.paired([1], [1]), "a", "at least two", "[1]"),
    bad("pairs of text", lambda: statistics.paired(["a", "b"], [1, 2]), "a", "finite numbers", "['a', 'b']"),
    bad("points below 0", lambda: statistics.slope([1, -2], [1, 2]), "x and y", "positive", "-2"),
    bad("one point", lambda: statistics.slope([1, 1], [1, 2]), "x", "two different values", "[1, 1]"),
    bad("two runs of one seed", lambda: frames.scores(FRAME.assign(seed=0), {"dataset": "Cora"}, "y"), "where", "seed"),
    bad("no provenance", lambda: frames.distinct(FRAME), "column", "'provenance'"),
    bad("an unknown quantifier", claim(quantifier="any"), "quantifier", "'any'"),
    bad("both limits", lambda: checks.limit("X", "s", 1.0, most=1, least=0), "most, least", "one limit", "(1, 0)"),
    bad("no limit", lambda: checks.limit("X", "s", 1.0), "most, least", "(None, None)"),
    bad("no claims", lambda: claims.select([], ["X"]), "claims", "at least one", "[]"),
    bad("an exhibit that is none", lambda: cells.compared("FG-T99"), "exhibit", "'FG-T99'"),
    bad("an exhibit not drawn", lambda: cells.compared("FG-T1"), "exhibit", "drawn", "'FG-T1'"),
    bad("a cell that is none", lambda: cells.runs_behind("FG-T1", ["Coar"]), "FG-T1", "'Coar'"),
    bad(
        "a ranking with one method twice",
        lambda: compare.rank_agreement(FRAME.assign(method="a", published_mean=[1, 2], ours_mean=[1, 2]), ["dataset"]),
        "by",
        "method",
    ),
]
DRAWN = [
    bad("an unknown x", drawn("curves", FRAME, "xx", "y", "method"), "x must", "'xx'", "Did you mean 'x'?"),
    bad("an unknown y", drawn("bars", FRAME, "x", "yy", "method"), "y must", "'yy'", "Did you mean 'y'?"),
    bad("an unknown by", drawn("bars", FRAME, "x", "y", "metod"), "by must", "'metod'"),
    bad("boxes of nothing", drawn("boxes", FRAME, "x", "yy"), "y must", "'yy'"),
    bad("slopes of text", drawn("slopes", TEXT, "x", "y", "method"), "y must", "numbers", "'y'"),
    bad("curves of text", drawn("curves", TEXT, "x", "y", "method"), "y must", "numbers", "'y'"),
    bad("an unknown band", drawn("curves", FRAME, "x", "y", "method", band="sd"), "band", "'sd'"),
    bad("a list as frame", drawn("curves", [1, 2], "x", "y", "method"), "frame", "list"),
    bad("dots of a frame of runs", drawn("dots", FRAME), "table must have", "Got one without setting"),
    bad("dots of nothing", drawn("dots", FRAME[:0]), "table", "rows"),
    bad("an empty matrix", drawn("heat", np.zeros((0, 0))), "matrix", "not empty", "(0, 0)"),
    bad("a matrix of text", drawn("heat", [["a"]]), "matrix", "numbers", "[['a']]"),
    bad("a vector", drawn("heat", [1, 2]), "matrix", "two-dimensional", "(2,)"),
    bad("too few names of rows", drawn("heat", [[1, 2]], rows=["a", "b"]), "rows", "1", "['a', 'b']"),
    bad("too many names of columns", drawn("heat", [[1, 2]], columns="abc"), "columns", "2", "'abc'"),
    bad("panels by nothing", drawn("panels", FRAME, "datset", figures.bars, by="method"), "panel", "'datset'"),
    bad("panels of no form", drawn("panels", FRAME, "dataset", "bars", by="method"), "draw", "'bars'"),
    bad("a number as exhibit", save(exhibit=5), "exhibit_id", "Got 5"),
    bad("a folder above", save(paper=".."), "paper", "'..'"),
    bad("an exhibit with a slash", save(exhibit="a/b"), "exhibit_id", "'a/b'"),
    bad("an exhibit with markup", save(exhibit="<b>"), "exhibit_id", "'<b>'"),
    bad("a list as table", save(frame=[1]), "frame", "a pandas DataFrame", "[1]"),
    bad("a text as figure", save(figure="x.png"), "figure", "'x.png'"),
]
COMMANDS = {
    "a folder that is none": (["merge", "/nowhere"], "folder must be", "'/nowhere'"),
    "an unknown notebook": (["run", "al"], "notebook must be", "'al'"),
    "an unknown parameter": (["run", "gfl", "-p", "profil=quick"], "a parameter of", "'profil'"),
    "a parameter without value": (["run", "gfl", "-p", "seeds"], "-p must be", "'seeds'"),
    "no jobs": (["run", "gfl", "--jobs", "0"], "jobs must be", "Got 0"),
    "an unknown profile": (["run", "gfl", "--profile", "full"], "--profile must be", "'full'"),
    "an unknown device": (["run", "gfl", "--device", "gpu"], "--device must be", "'gpu'"),
    "no minutes": (["run", "gfl", "--budget", "0"], "--budget must be", "Got 0"),
    "not a number of minutes": (["run", "gfl", "--budget", "nan"], "--budget must be", "nan"),
    "no seeds side by side": (["run", "gfl", "--budget", "1", "--side-by-side", "0"], "--side-by-side", "Got '0'"),
    "a status of no profile": (["status", "--profile", "full"], "--profile must be", "'full'"),
    "an unknown key": (["show", "zzz"], "KEY must be", "'zzz'"),
    "an unknown exhibit": (["compare", "FG-T99"], "exhibit must be", "'FG-T99'"),
    "an unknown cell": (["show", "FG-T99", "Cora"], "exhibit must be", "'FG-T99'"),
    "nothing to verify": (["verify", "-n", "0"], "-n must be", "Got 0"),
    "an unknown data set": (["data", "--fetch", "Coar"], "data set must be", "'Coar'"),
    "a site of no profile": (["site", "--profile", "full"], "--profile must be", "'full'"),
}
NOTEBOOKS = {
    "a list": ("[1]", "notebook must be"),
    "nothing": ("", "notebook must be"),
    "no cells": ("{}", "notebook must be"),
    "no cell of parameters": ({"cells": []}, "one cell tagged 'parameters'"),
    "a sum as parameter": ("a = 1 + b", "'a = 1 + b'"),
    "a line that is none": ("a = ", "'a =': invalid syntax"),
}


@pytest.fixture(autouse=True)
def _closed() -> Any:
    yield
    plt.close("all")


@pytest.mark.parametrize(("call", "words"), [*BEGUN, *NUMBERS])
def test_a_bad_name_or_number_is_named(call: Callable[[], Any], words: tuple[str, ...]) -> None:
    """Parameters, IDs, scores, levels and limits that are not allowed are refused with what is."""
    refuses(call, words)


@pytest.mark.parametrize(("call", "words"), DRAWN)
def test_a_bad_figure_is_named(call: Callable[[], Any], words: tuple[str, ...]) -> None:
    """A form that cannot be drawn, or a file name that is none, is refused with its argument."""
    refuses(call, words)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_bad_command_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong argument ends with status 2 and one line that names it."""
    given, *words = COMMANDS[name]
    assert cli.main(given) == 2  # type: ignore[arg-type]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedrepro: ") and all(str(word) in line for word in words), line


@pytest.mark.parametrize("given", [["run"], ["fetch"], ["run", "gfl", "--jobs", "two"], ["verify", "-n", "all"]])
def test_what_the_parser_refuses_has_status_2(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A command or number that is none is refused by the parser, which names it."""
    assert cli.main(given) == 2
    told = capsys.readouterr().err
    assert told.startswith("fedrepro: ") and (len(given) < 2 or given[-1] in told or "NAME" in told), told


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_bad_notebook_is_named(name: str, tmp_path: Path) -> None:
    """A file that is no notebook, or whose parameters cannot be read, is named with what is wrong."""
    source, words = NOTEBOOKS[name]
    path = tmp_path / "x.ipynb"
    if isinstance(source, str) and source.startswith("a"):
        cell = {"cell_type": "code", "id": "a", "metadata": {"tags": ["parameters"]}, "source": source}
        source = {"cells": [cell | {"outputs": [], "execution_count": None}]}
    whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}}
    path.write_text(source if isinstance(source, str) else json.dumps(source | whole))
    refuses(lambda: notebook.parameters(path), ("x.ipynb", words))


def test_what_lies_in_the_way_of_pages_is_named(tmp_path: Path) -> None:
    """A page that cannot be written, and a file that cannot be read, are named."""
    (tmp_path / "file").write_text("")
    refuses(lambda: report.write(tmp_path / "file"), ("file",))
    (tmp_path / "fedgat").mkdir()
    (tmp_path / "fedgat" / "FG-T1.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    refuses(lambda: report.write(tmp_path), ("FG-T1.csv",))
    refuses(lambda: build.build("full"), ("profile", "'full'"))


def test_good_inputs_pass() -> None:
    """The controls: sound parameters, scores, figures, checks and commands are refused nowhere."""
    assert nb().name == "fedgat/6-x" and check_parameter("rate", 1, 0.5) == 1.0
    assert verdict(published=None)().verdict == "not tested" and verdict()().runs == 2
    assert len(table()()) == len(exhibits.published("fedgat"))
    assert statistics.interval([1, 2], level=0.5).mean == 1.5 and claim()()[1] in claims.VERDICTS
    for form in (drawn("curves", FRAME, "x", "y", "method"), drawn("boxes", FRAME, "x", "y"), drawn("heat", [[1, 2]])):
        assert form().axes
    assert drawn("heat", [[1, 2]], rows=["a"], columns="ab")().axes
    assert [path.suffix for path in save(figure=plt.figure())()] == [".csv", ".svg"]
    assert len(nb().checks([SOUND])) == 1 and checks.limit("X", "s", 1.0, most=2)["verdict"] == "holds"
    assert cli.main(["status"]) == 0
