from __future__ import annotations

import ast
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedrepro import provenance, registry

MAIN = '''
"""What it is."""
import numpy, fedrepro.extra
from fedrepro import runs, helper
from fedrepro.deep import shown
def method(x):  # a comment
    """What it does."""
    from .near import thing
    return f"{x!r:>{3}}" + "a" 'b'
'''
FILES = {
    "package/main.py": MAIN,
    "package/extra.py": "a = 1\n",
    "package/helper.py": "from .extra import a\nfrom . import late\n",
    "package/late.py": "b = 1\n",
    "package/runs.py": "c = 1\n",
    "package/near.py": "d = 1\n",
    "package/other.py": "e = 1\n",
    "package/deep/__init__.py": "from fedrepro.deep.inner import shown\n",
    "package/deep/inner.py": "from ..other import e as shown\nfrom . import sibling\n",
    "package/deep/sibling.py": "f = 1\n",
    "package/unrelated.py": "g = 1\n",
    "package/tasks.py": "from fedrepro.unrelated import g\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small package in the place of fedrepro, with a method in `main` for the tasks check and train."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(provenance, "_PACKAGE", tmp_path / "package")
    for task in ("check", "train"):
        monkeypatch.setitem(registry.REGISTRY, (task, "mine"), registry.Entry("fedrepro.main:method"))
    yield tmp_path / "package"
    forget()


def forget() -> None:
    provenance._module.cache_clear()
    provenance._hashed.cache_clear()


def look(task: str = "check") -> str:
    forget()
    return provenance.fingerprint(task, "mine")


@pytest.mark.parametrize("name", sorted(FILES))
def test_follows_imports(package: Path, name: str) -> None:
    """The fingerprint changes with a module if and only if the method imports it, however it is written."""
    file = package / name.removeprefix("package/")
    before, before_train = look(), look("train")
    file.write_text(file.read_text() + "\nchanged = 1\n")
    behind = name not in ("package/runs.py", "package/unrelated.py", "package/tasks.py")
    assert (look() != before) == behind
    assert (look("train") != before_train) == (name != "package/runs.py")


def test_only_code_counts(package: Path) -> None:
    """Comments, docstrings, quotes and line breaks do not change the fingerprint; code does."""
    before = look()
    changed = MAIN.replace("# a comment", "# another").replace("What it does.", "What else.\n\n    More.")
    changed = changed.replace('"""What it is."""', "").replace("def method(x):", "def method(\n    x,\n):")
    (package / "main.py").write_text(changed.replace("\"a\" 'b'", "'ab'"))
    assert look() == before
    (package / "main.py").write_text(changed.replace("'b'", "'c'"))
    assert look() != before


def test_absent_and_none_are_one(package: Path) -> None:
    """Fields a Python version lacks, or leaves empty, do not count: a tree without them is the same."""
    tree = ast.parse("class A:\n    def f(self): return None\n")
    without = ast.parse("class A:\n    def f(self): return None\n")
    for node in ast.walk(without):
        for field in ("type_params", "type_comment", "kind", "decorator_list"):
            if hasattr(node, field):
                delattr(node, field)
    assert provenance._shape(tree) == provenance._shape(without)
    assert provenance.normalized("return_ = None") != provenance.normalized("return_ = 0")


def test_the_code_is_hashed_once(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again, as for every record of a method, the fingerprint is known."""
    first = look()
    monkeypatch.delattr(provenance, "_code")
    assert provenance.fingerprint("check", "mine") == first


def test_known_digest() -> None:
    """The normal form of a source is the same on every Python (this one was computed on 3.11, 3.12 and 3.13)."""
    digest = hashlib.sha256(provenance.normalized(MAIN).encode()).hexdigest()
    assert digest == "e1be5fdec20bb54cdf1429b33206668960bfd08a6e3eabc97fc977419217530c"


def test_written_in_a_notebook(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class without a module of its own is known by its source and that of the modules of its bases."""

    class Mine:
        def loss(self) -> int:
            return 1

    Mine.__module__ = "__main__"
    monkeypatch.setitem(registry.REGISTRY, ("check", "mine"), registry.Entry("__main__:Mine"))
    monkeypatch.setitem(registry._own, ("check", "mine"), Mine)
    first = look()

    class Mine:  # type: ignore[no-redef]
        def loss(self) -> int:
            return 2

    Mine.__module__ = "__main__"
    monkeypatch.setitem(registry._own, ("check", "mine"), Mine)
    assert look() != first


def test_every_registered_method_has_a_fingerprint() -> None:
    """Every entry whose module exists has a fingerprint, and looking imports no torch."""
    code = (
        "import sys; from fedrepro import provenance, registry;"
        "print(len({provenance.fingerprint(*e) for e in registry.REGISTRY}), 'torch' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, loaded = output.stdout.split()
    assert int(count) >= 2 and loaded == "False"


def test_the_code_of_a_graph_counts() -> None:
    """A graph this package makes brings the code that makes it; one that is read brings none."""
    plain, made = (provenance.fingerprint("train", "GFL-APPNP", name) for name in ("Cora", "csbm-SC"))
    assert plain == provenance.fingerprint("train", "GFL-APPNP") != made
    assert made == provenance.fingerprint("train", "GFL-APPNP", "subCora-0")


def test_environment() -> None:
    """The environment names versions, machine, device and threads, and is the same when asked again."""
    found = provenance.environment("cpu")
    assert found == provenance.environment("cpu")
    assert found["python"].split(".")[:2] == [str(part) for part in sys.version_info[:2]]
    assert found["torch"] and found["cpu"] and found["device"] == "cpu" and found["threads"] >= 1


def test_a_gpu_that_is_not_here_is_called_by_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a cluster's login node has no GPU, the record of a worker that was lost can be written all the same."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert provenance.environment("cuda")["device"] == "cuda"


def test_processors_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Family and model stand beside the name, where the system tells them."""
    told = []
    for family, model in ((25, 17), (26, 2)):
        text = f"processor\t: 0\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: Some CPU\n\nprocessor\t: 1\n"
        monkeypatch.setattr(Path, "read_text", lambda self, text=text, **_: text)
        told.append(provenance._processor())
    assert told == ["Some CPU (family 25, model 17)", "Some CPU (family 26, model 2)"]
