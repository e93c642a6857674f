"""The command `fedrepro check`, and what a command says when it is interrupted or warns."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedrepro import cli, paths


@pytest.mark.parametrize("options", [[], ["--seal"]])
def test_a_folder_that_is_not_there_is_refused(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt FEDREPRO_STORE is one line and status 2. No store is called sound, and no folder is made."""
    folder = tmp_path / "reslts"
    monkeypatch.setenv("FEDREPRO_STORE", str(folder))
    assert cli.main(["check", *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"fedrepro: FEDREPRO_STORE must be an existing folder. Got {str(folder)!r}.\n"
    assert not folder.exists()


def test_an_empty_folder_is_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is there and holds nothing has nothing wrong."""
    monkeypatch.setenv("FEDREPRO_STORE", str(tmp_path))
    assert cli.main(["check"]) == 0
    assert capsys.readouterr().out == f"0 finished runs in {tmp_path}: nothing wrong\n"


def test_a_warning_of_the_command_is_a_line() -> None:
    """A warning is one line on stderr, without the place in the code that Python would print with it."""
    code = "import sys, warnings; from fedrepro import cli; sys.argv = ['fedrepro', 'list']; cli.main(); "
    code += "warnings.warn('774 of these runs\\nwere computed on a GPU.'); print('after', flush=True)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr == "fedrepro: 774 of these runs were computed on a GPU.\n"
    for closed in ("2>&-", "2>/dev/full"):  # the line is lost, and nothing else
        command = f'"$0" -c "$1" {closed}'
        bare = subprocess.run(["sh", "-c", command, sys.executable, code], stdout=subprocess.PIPE, text=True)
        assert bare.stdout == done.stdout and done.stdout.endswith("after\n")


def test_an_interrupt_before_the_command_has_begun_is_a_line() -> None:
    """Ctrl-C while the command still imports what it needs ends it with one line and the status of a signal."""
    code = """
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from fedrepro.__main__ import main
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "fedrepro: interrupted before it began\n")
    project = tomllib.loads((paths.root() / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"fedrepro": "fedrepro.__main__:main"}
