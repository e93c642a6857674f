"""Why a result is stale: the definitions that changed since its commit, the folders that differ, or what is missing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedrepro import paths, registry
from fedrepro.runs import changes, codehash, provenance

CODE = {
    "registry.py": 'REGISTRY = {("check", "mine"): Entry("fedrepro.engine.method:Method")}\n',
    "engine/method.py": '''
from fedrepro.data.graph import load, gone

class Method:
    """What it is."""
    def step(self): return load(1)
    def loss(self): return gone
''',
    "data/graph.py": "def load(x): return x\ngone = 1\n",
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a checkout of a small package, with one commit, instead of this one."""
    for name, text in CODE.items():
        (tmp_path / "fedrepro" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fedrepro" / name).write_text(text)
    commit(tmp_path, "init", "-q")
    monkeypatch.setattr(codehash, "root", lambda: tmp_path / "fedrepro")
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setattr(paths, "CHECKOUT", tmp_path)
    monkeypatch.setitem(registry.REGISTRY, ("check", "mine"), registry.Entry("fedrepro.engine.method:Method"))
    forget()
    yield tmp_path
    forget()


def commit(folder: Path, *first: str) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (*([first] if first else []), ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *command], check=True, cwd=folder)


def forget() -> None:
    cached = (codehash.load_module, provenance.hash_code, provenance._known, provenance.loaded_commit)
    for each in (*cached, changes._reason, changes._history, changes._definitions, changes._sources):
        each.cache_clear()


def stored(**changed: Any) -> dict[str, Any]:
    """Return what a record of the code as it is now would hold."""
    forget()
    run = {"task": "check", "method": "mine", "dataset": ""}
    made = {"run": run, "fingerprint": provenance.fingerprint("check", "mine"), "when": "2099-01-01T00:00:00+00:00"}
    return made | {"code": provenance.parts("check", "mine"), "commit": provenance.commit()} | changed


def edit(folder: Path) -> None:
    """Change a method of a class, take a definition out, and bring in a new one; move another to a new file."""
    (folder / "fedrepro/data/graph.py").unlink()
    (folder / "fedrepro/data/other.py").write_text("new = 2\ndef load(x): return x\n")
    text = (
        CODE["engine/method.py"]
        .replace("data.graph", "data.other")
        .replace("return gone", "return new + 1")
        .replace("gone", "new")
    )
    (folder / "fedrepro/engine/method.py").write_text(text)
    forget()


@pytest.mark.parametrize("named", [True, False])
def test_changed_definitions_are_named(checkout: Path, named: bool) -> None:
    """Since the commit that a record names, or that has its code, changed functions are named, and moved ones not."""
    record = stored() if named else stored(commit="")
    edit(checkout)
    said = changes.reason(record)
    assert f"since commit {stored()['commit'][:12]}" in said
    assert (
        said.endswith("new (data/other.py) is new; gone (data/graph.py) is gone.")
        and "Method.loss (engine/method.py) has changed" in said
    )
    assert "step" not in said and "load" not in said
    assert changes.reasons([record, record]) == [f"2 runs of mine: {said}"]


def test_code_that_was_never_committed_is_said_to_be(checkout: Path) -> None:
    """The reason names the folders that differ from the commit, and says that no commit has the record's code."""
    edit(checkout)
    record = stored()
    assert record["commit"].endswith("-dirty")
    (checkout / "fedrepro/engine/method.py").write_text(CODE["engine/method.py"].replace("data.graph", "data.other"))
    forget()
    said = changes.reason(record)
    assert said.startswith("the code in data, engine has changed. No commit was found with exactly the code")


def test_without_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git the folders are named if the record has their hashes; else the sentence says that it cannot tell."""
    record, old = stored(), stored(code=None)
    edit(checkout)
    monkeypatch.setenv("PATH", "")
    assert changes.reason(record).startswith("the code in data, engine has changed; which definitions cannot be told")
    forget()
    assert changes.reason(old).startswith("the code has changed; which definitions cannot be told, since git")


def test_many_definitions_are_counted() -> None:
    """More than a handful of changes are counted by folder."""
    old = [changes.Definition("fedrepro.engine.a", f"f{k}", f"{k}", {}) for k in range(9)]
    new = [changes.Definition("fedrepro.papers.gfl.b", f"f{k}", f"new {k}", {}) for k in range(9)]
    assert changes.differences(old, new) == "9 definitions have changed: in papers/gfl (9)"
    assert changes.differences(old, old[::-1]) == ""


def test_namesakes_in_two_files_are_told_apart() -> None:
    """Each of two functions of one name in two files is compared with its own, and a lone one with the other's."""
    old = [changes.Definition(f"fedrepro.engine.{file}", "_check", f"old {file}", {}) for file in "ab"]
    new = [changes.Definition(f"fedrepro.engine.{file}", "_check", f"new {file}", {}) for file in "ab"]
    assert changes.differences(old, new) == "_check (engine/a.py), _check (engine/b.py) have changed"
    assert changes.differences(old, new[:1]) == "_check (engine/a.py) has changed; _check (engine/b.py) is gone"
    assert changes.differences(old[1:], new) == "_check (engine/b.py) has changed; _check (engine/a.py) is new"
    assert changes.differences(old[:1], new[1:]) == "_check (engine/b.py) has changed"


def test_a_method_of_a_notebook_is_not_known(checkout: Path) -> None:
    """A method that is registered nowhere cannot be compared, and the sentence says so."""
    record = stored() | {"run": {"task": "check", "method": "elsewhere", "dataset": ""}}
    assert "'elsewhere' is defined in a notebook or no longer registered" in changes.reason(record)


@pytest.mark.parametrize(
    "files",
    [
        {"registry.py": '("check", "mine"): Entry(\n    "a.b:C", 2)'},
        {"registry.toml": '[check]\nmine = "a.b:C"\n', "registry.py": ""},
        {"registry.toml": '[check.mine]\ntarget = "a.b:C"\nversion = 2\n', "registry.py": ""},
    ],
    ids=["a table in Python", "a line", "a table"],
)
def test_a_former_registry_is_read_in_all_its_forms(files: dict[str, str]) -> None:
    """The registry was a table in Python and is a TOML file; a method that it does not have begins nowhere."""
    assert changes._targets_at(files, ("check", "mine", "", "")) == ["a.b:C"]
    assert changes._targets_at(files, ("check", "other", "", "")) == []
    assert changes._targets_at({}, ("check", "mine", "", "")) == []


def test_a_method_that_a_check_trained_is_read_too() -> None:
    """The code of a check began at its function and at the method that it trained."""
    files = {"registry.toml": '[check]\nmine = "a.b:C"\n[train]\nFedAvg = "d:E"\n'}
    assert changes._targets_at(files, ("check", "mine", "", "FedAvg")) == ["a.b:C", "d:E"]
