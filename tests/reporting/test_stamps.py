"""A notebook is run again after a change of anything that is in its executed copy, and after nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from notebooks_written import write

from fedrepro.reporting import stamps
from fedrepro.runs import codehash, provenance
from fedrepro.runs.provenance import fingerprint
from fedrepro.runs.store import Store

NAME = "fedgat/9-small"
CELL = """
import matplotlib.pyplot as plt
import fedrepro as fr
from fedrepro.reporting import figures
nb = fr.begin("fedgat/9-small", profile=profile, device=device, seeds=seeds, engine=engine)
frame = nb.execute(nb.runs("FG-A1"))
assert len(frame) and len(nb.published("FG-T1"))
nb.save("FG-A1", frame[["method", "status"]], plt.figure())
nb.deviations()
"""
# Says in a process of its own, which has read nothing yet, whether the notebook would be run.
ASK = f"""
from fedrepro.reporting import notebook, stamps
from fedrepro.runs.index import Index
(source,) = notebook.select(["{NAME}"])
print(stamps.unchanged(notebook.executed_copy(source), source.path, PROFILE, Index()))
"""


class Checkout:
    """A copy of the package in a folder of its own, with one small notebook and its record."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(codehash.root(), root / "fedrepro", ignore=shutil.ignore_patterns("__pycache__", "mathjax"))
        (root / "pyproject.toml").write_text("")
        self.notebook = write(root / "notebooks", NAME, CELL)
        from fedrepro.reporting.exhibits import registered

        self.store = Store(root / "data/results")
        for run in registered()["FG-A1"].runs("quick"):
            self.record = {
                "key": run.key,
                "run": run.to_dict(),
                "version": 1,
                "status": "ok",
                "error": None,
                "result": {"a": 1},
                "fingerprint": fingerprint(run.task, run.method),
                "when": "2026-01-01T00:00:00+00:00",
                "seconds": 1.0,
                "environment": {"python": "3"},
            }
            self.store.append("fedgat-9-small", self.record)

    def python(self, *arguments: str) -> str:
        left_out = ("FEDREPRO_STORE", "FEDREPRO_FIGURES", "FEDREPRO_DATA")
        variables = {name: value for name, value in os.environ.items() if name not in left_out}
        variables["PYTHONPATH"] = str(self.root)
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=self.root, env=variables, capture_output=True, text=True)
        assert done.returncode == 0 and "ERROR" not in done.stderr, done.stderr
        return done.stdout

    def unchanged(self, profile: dict[str, Any] | None = None) -> bool:
        return json.loads(self.python("-c", ASK.replace("PROFILE", repr(profile or {}))).lower()) is True


def edit(path: Path, old: str, new: str) -> Callable[[], object]:
    """Change a file, and return what changes it back."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return lambda: path.write_text(text)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    tree = Checkout(tmp_path_factory.mktemp("checkout"))
    first, second = (tree.python("-m", "fedrepro", "run", NAME) for _ in range(2))
    assert first.startswith(f"ok     {NAME}") and "1 of 1 runs" in first
    assert second.startswith(f"same   {NAME}") and "1 unchanged" in second
    return tree


CHANGES = {
    "its source": ("notebooks/fedgat/9-small.ipynb", "assert len(frame)", "assert  len(frame)"),
    "code it imports": ("fedrepro/reporting/figures.py", "import annotations\n", "import annotations\n# a comment\n"),
    "code behind its runs": ("fedrepro/papers/fedgat/theory/identities.py", "share = 3.5 /", "share = 3.6 /"),
    "a published number": ("fedrepro/papers/fedgat/published.csv", "FG-T1,Cora", "FG-T1, Cora"),
    "a deviation": ("fedrepro/papers/fedgat/deviations.csv", "FG-", "FG--"),
    "a table that is read before its kernel begins": ("fedrepro/registry.toml", "#", "##"),
    "a record": ("data/results/fedgat-9-small.jsonl", '"a":1', '"a":2'),
    "a figure": ("figures/fedgat/FG-A1.svg", "<svg", "<svg "),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen(checkout: Checkout, what: str) -> None:
    """After a change of one thing the notebook would run again, and once it is undone it would not."""
    file, old, new = CHANGES[what]
    undo = edit(checkout.root / file, old, new)
    try:
        assert not checkout.unchanged()
    finally:
        undo()
    assert checkout.unchanged()


@pytest.mark.parametrize(
    "file", ["figures/fedgat/FG-A1.svg", "figures/fedgat/FG-A1.csv", "figures/fedgat/deviations.csv", "build"]
)
def test_a_removed_file_is_seen(checkout: Checkout, file: str) -> None:
    """After a figure, its table, a table shared by notebooks or the executed copy was removed, it would run again."""
    path = checkout.root / file
    away = path.with_name("away")
    path.rename(away)
    try:
        assert not checkout.unchanged()
    finally:
        shutil.rmtree(path, ignore_errors=True)
        away.rename(path)
    assert checkout.unchanged()


def test_another_profile_is_seen(checkout: Checkout) -> None:
    """Under another profile, or other seeds, it would run again."""
    assert not checkout.unchanged({"profile": "paper"}) and not checkout.unchanged({"seeds": 1})


def test_what_it_does_not_reach_changes_nothing(checkout: Checkout) -> None:
    """Code of another paper, the command line, a comment behind its runs and another's record are not in its copy."""
    undo = [
        edit(checkout.root / file, "import annotations\n", "import annotations\n# a comment\n")
        for file in ("fedrepro/papers/feras/attack.py", "fedrepro/cli.py", "fedrepro/papers/fedgat/protocol.py")
    ]
    from fedrepro.reporting.exhibits import registered

    other = registered()["FR-T2"].runs("paper")[0]
    checkout.store.append("feras-1", checkout.record | {"key": other.key, "run": other.to_dict()})
    undo.append((checkout.root / "data/results/feras-1.jsonl").unlink)
    try:
        assert checkout.unchanged()
    finally:
        for each in undo:
            each()


def test_a_removed_figure_is_drawn_again(checkout: Checkout) -> None:
    """The command draws a figure again that was removed; `--again` runs the notebook all the same."""
    figure = checkout.root / "figures/fedgat/FG-A1.svg"
    before = figure.read_bytes()
    figure.unlink()
    assert checkout.python("-m", "fedrepro", "run", NAME).startswith("ok ")
    assert figure.read_bytes() == before and checkout.unchanged()
    assert checkout.python("-m", "fedrepro", "run", NAME, "--again").startswith("ok ")


def test_a_kernel_that_ends_slowly_leaves_its_stamp(checkout: Checkout) -> None:
    """On a busy machine a kernel takes seconds to write its trace: it is not killed before."""
    slow = """
import time
from fedrepro.reporting import trace
trace._counts = lambda *given, real=trace._counts, rest=[4.0]: (time.sleep(rest.pop() if rest else 0), real(*given))[1]
"""
    source = write(checkout.root / "notebooks", "fedgat/8-slow", slow)
    told = checkout.python("-m", "fedrepro", "run", "fedgat/8-slow")
    source.unlink()
    assert told.startswith("ok ") and list((checkout.root / "build").rglob("8-slow.stamp.json"))


def test_a_file_that_a_parameter_names_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content of a user's table is an input of its notebook; the threads of the process that asks are not."""
    table = tmp_path / "nodes.csv"
    table.write_text("id,label\n")
    source = write(tmp_path, "a/1-b")
    first = stamps._inputs(source, {"nodes": str(table), "seeds": 2})
    monkeypatch.setattr(provenance, "environment", lambda _, real=provenance.environment: real("") | {"threads": 7})
    assert stamps._inputs(source, {"nodes": str(table), "seeds": 2}) == first
    table.write_text("id,label,x\n")
    stamps._hash.cache_clear()  # as `unchanged` does
    assert stamps._inputs(source, {"nodes": str(table), "seeds": 2}) != first
