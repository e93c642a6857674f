"""A working copy of a notebook: what is tried in it changes neither the notebook nor the figures of the suite."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from notebooks_written import write

from fedrepro import cli, paths
from fedrepro.reporting import working


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two notebooks and one figure."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setattr(paths, "notebooks", lambda: tmp_path / "notebooks")
    monkeypatch.setattr(paths, "figures", lambda: tmp_path / "figures")
    for name in ("p/1-a", "q/2-b"):
        write(tmp_path / "notebooks", name, "1")
    (tmp_path / "figures/p").mkdir(parents=True)
    (tmp_path / "figures/p/FG-T1.csv").write_text("a\n1\n")
    return tmp_path


def test_edit_opens_a_copy(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JupyterLab opens the copy, with the options given, and what it draws goes beside it."""
    called: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        called.append((command, env))
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(working.subprocess, "run", run)
    assert cli.main(["edit", "p/1-a", "--", "--no-browser"]) == 3
    ((command, variables),) = called
    copy = checkout / "build/edit/notebooks/p/1-a.ipynb"
    assert command[-2:] == ["--no-browser", str(copy)] and command[1:4] == ["-m", "jupyter", "lab"]
    assert ("--allow-root" in command) == (os.name == "posix" and os.getuid() == 0)
    assert copy.read_bytes() == (checkout / "notebooks/p/1-a.ipynb").read_bytes()
    assert Path(variables["FEDREPRO_FIGURES"], "p/FG-T1.csv").read_text() == "a\n1\n"


def test_a_copy_is_kept(checkout: Path) -> None:
    """A copy keeps what was saved in it until `anew` lays it aside, and linked notebooks lie beside it."""
    copy = working.copy("p/1-a")
    assert (copy.parents[1] / "q/2-b.ipynb").is_file()
    source = (checkout / "notebooks/p/1-a.ipynb").read_text()
    copy.write_text("mine")
    assert working.copy("p/1-a").read_text() == "mine"
    assert working.copy("p/1-a", anew=True).read_text() == source
    assert copy.with_suffix(".1.ipynb").read_text() == "mine"
    assert (checkout / "notebooks/p/1-a.ipynb").read_text() == source


def test_edit_needs_one_notebook(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name of no notebook, or of several, is one sentence."""
    assert cli.main(["edit", "all"]) == 2
    assert "NOTEBOOK must be one notebook, such as 'p/1-a'. Got 'all'." in capsys.readouterr().err
    assert cli.main(["edit", "p/1-b"]) == 2
    assert "Got 'p/1-b'. Did you mean 'p/1-a'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nope", "al"])
def test_edit_of_an_unknown_notebook(checkout: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """An unknown name is one line and status 2. Neither a paper nor `all` is called allowed or suggested."""
    assert cli.main(["edit", name]) == 2
    allowed = "paper/n or paper/n-section (see `fedrepro list`)"
    assert capsys.readouterr().err == f"fedrepro: NOTEBOOK must be {allowed}. Got {name!r}.\n"
    assert not (checkout / "build").exists()
