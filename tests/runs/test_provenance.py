from __future__ import annotations

import ast
import hashlib
import linecache
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedrepro import registry
from fedrepro.runs import Run, codehash, provenance
from fedrepro.runs.lines import cell_of

FILES = {
    "main.py": '''
"""What it is."""
import numpy, fedrepro.extra
from fedrepro import helper, paths
from fedrepro.deep import shown as other
LIMIT: int = 3
def method(x: int, sign=1):  # a comment
    """What it does."""
    from .near import thing
    total = 0
    for value in range(LIMIT):
        total += thing(value) + helper.help(value)
    label = f"{x!r:>{3}}" + "a" 'b'
    return [total, label, other, fedrepro.extra.A, numpy.float32(sign), paths.C]
''',
    "extra.py": "A = 1\nUNUSED = 2\n",
    "helper.py": "from .extra import A\ndef help(x): return x - A\n",
    "near.py": "def thing(x): return x + 1\ndef beside(x): return x - 1\n",
    "paths.py": "C = 1\n",
    "deep/__init__.py": "from fedrepro.deep.inner import shown\n",
    "deep/inner.py": "from ..other import TABLE\nshown = {'a': TABLE}\n",
    "other.py": "from fedrepro.main import method\nTABLE = [method]\nTABLE.append(2)\n",
    "unrelated.py": "g = 1\n",
    "tasks.py": "from fedrepro.unrelated import g\ndef train(x): return g\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a small package instead of fedrepro, with a method in `main` for the tasks check and train."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(codehash, "root", lambda: tmp_path)
    monkeypatch.setattr(registry, "TRAIN", "fedrepro.tasks:train")
    register(monkeypatch, "fedrepro.main:method")
    yield tmp_path
    forget()


def register(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    for task in ("check", "train"):
        monkeypatch.setitem(registry.REGISTRY, (task, "mine"), registry.Entry(target))


def forget() -> None:
    codehash.load_module.cache_clear()
    provenance.hash_code.cache_clear()
    provenance._known.cache_clear()


def look(task: str = "check") -> str:
    forget()
    return provenance.fingerprint(task, "mine")


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, f"{old!r} is not in {file}"
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "seen"),
    [
        ("main.py", "+=", "-=", True),
        ("main.py", "LIMIT: int = 3", "LIMIT: int = 4", True),
        ("main.py", "sign=1", "sign=2", True),
        ("main.py", "sign", "direction", True),
        ("main.py", "'b'", "'c'", True),
        ("main.py", "float32", "float64", True),
        ("near.py", "x + 1", "x * 1", True),
        ("extra.py", "A = 1", "A = 2", True),
        ("deep/inner.py", "'a'", "'b'", True),
        ("other.py", "append(2)", "append(3)", True),
        ("near.py", "x - 1", "x - 2", False),
        ("extra.py", "UNUSED = 2", "UNUSED = 3", False),
        ("paths.py", "C = 1", "C = 2", False),
        ("unrelated.py", "g = 1", "g = 2", False),
    ],
)
def test_code_that_is_reached_counts(package: Path, file: str, old: str, new: str, seen: bool) -> None:
    """A change is seen if and only if the method reaches the statement, and its module has a part in values."""
    before = look()
    edit(package / file, old, new)
    assert (look() != before) == seen


def test_what_trains_counts_for_training_only(package: Path) -> None:
    """Code that `tasks.train` reaches is part of the fingerprint of a training method, and of no check."""
    before, before_train = look(), look("train")
    edit(package / "unrelated.py", "g = 1", "g = 2")
    assert look() == before and look("train") != before_train


def test_only_code_counts(package: Path) -> None:
    """Comments, docstrings, annotations, quotes, line breaks, order, imports and local names do not count."""
    before = look()
    for old, new in (
        ("# a comment", "# another"),
        ("What it does.", "What else.\n\n    More."),
        ('"""What it is."""', ""),
        ("def method(x: int, sign=1):", "def method(\n    x: float, sign=1,\n) -> list:"),
        ("\"a\" 'b'", "'ab'"),
        ("total", "answer"),
        ("value", "step"),
        ("import numpy, fedrepro.extra", "import fedrepro.extra\nimport numpy\nfrom fedrepro.near import thing"),
        ("    from .near import thing\n", ""),
    ):
        edit(package / "main.py", old, new)
        assert look() == before, new
    edit(package / "main.py", "LIMIT: int = 3\n", "")
    (package / "main.py").write_text((package / "main.py").read_text() + "LIMIT: float = 3\n")
    assert look() == before


def test_another_function_under_the_same_name_is_seen(package: Path) -> None:
    """Two functions that are both reached, exchanged under one local name, change the fingerprint."""
    edit(package / "main.py", "import thing", "import thing, beside")
    edit(package / "main.py", "thing(value) +", "thing(value) * beside(value) ** 2 +")
    before = look()
    edit(package / "main.py", "import thing, beside", "import thing as beside, beside as thing")
    assert look() != before


def test_a_table_that_grows_counts_from_its_first_line(package: Path) -> None:
    """Each statement that fills a table which is reached counts, and one of a table that nobody reaches does not."""
    edit(package / "extra.py", "A = 1", "A = 1\nA += 2\nA += 3")
    edit(package / "extra.py", "UNUSED = 2", "UNUSED = 2\nUNUSED += 2")
    before = look()
    for old, new in (("A = 1", "A = 2"), ("A += 2", "A += 4"), ("A += 3", "A -= 3")):
        edit(package / "extra.py", old, new)
        assert look() != before, new
        edit(package / "extra.py", new, old)
    edit(package / "extra.py", "UNUSED += 2", "UNUSED += 3")
    assert look() == before


def test_a_local_name_is_no_global_one(package: Path) -> None:
    """A local variable that hides a definition of the module is not taken for it."""
    before = look()
    edit(package / "main.py", "total = 0", "LIMIT = total = 0")
    edit(package / "main.py", "LIMIT: int = 3", "OTHER: int = 3")
    assert look() != before


def test_moves_change_nothing(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module moved and renamed, functions renamed, two modules merged, one split: the fingerprint stays."""
    before, before_train = look(), look("train")
    (package / "rooms").mkdir()
    (package / "rooms/__init__.py").write_text("")
    (package / "helper.py").rename(package / "rooms/renamed.py")
    edit(package / "rooms/renamed.py", "from .extra", "from ..extra")
    edit(package / "main.py", "import helper, paths", "import paths\nfrom fedrepro.rooms import renamed as helper")
    assert look() == before
    edit(package / "rooms/renamed.py", "def help(", "def assist(")
    edit(package / "main.py", "helper.help(", "helper.assist(")
    assert look() == before
    (package / "extra.py").write_text((package / "extra.py").read_text() + (package / "near.py").read_text())
    (package / "near.py").unlink()
    edit(package / "main.py", "from .near", "from .extra")
    assert look() == before
    (package / "rooms/method.py").write_text((package / "main.py").read_text().replace("LIMIT: int = 3\n", ""))
    edit(package / "rooms/method.py", "from .extra", "from fedrepro.extra")
    edit(package / "rooms/method.py", "import paths\n", "import paths\nfrom fedrepro.main import LIMIT\n")
    (package / "main.py").write_text("LIMIT: int = 3\n")
    edit(package / "other.py", "fedrepro.main", "fedrepro.rooms.method")
    register(monkeypatch, "fedrepro.rooms.method:method")
    assert (look(), look("train")) == (before, before_train)


def test_circles_of_imports_are_harmless(package: Path) -> None:
    """`main` reaches `other`, whose table holds the method of `main`; a change there is seen from both sides."""
    definitions = [codehash.definition(f"fedrepro.{name}") for name in ("main:method", "other:TABLE")]
    reached = [set(codehash.reached([start], ())) for start in definitions if start]
    assert len(reached) == 2 and reached[0] == reached[1]


def test_absent_and_none_are_one() -> None:
    """Fields that a version of Python lacks, or leaves empty, do not count."""
    tree = ast.parse("class A:\n    def f(self): return None\n").body[0]
    without = ast.parse("class A:\n    def f(self): return None\n").body[0]
    for node in ast.walk(without):
        for name in ("type_params", "type_comment", "kind", "decorator_list"):
            if hasattr(node, name):
                delattr(node, name)
    module = codehash.Module("", "", False)
    texts = [codehash.Statement(module, node, ("A",)).normalize() for node in (tree, without)]
    assert texts[0] == texts[1]
    assert codehash.normalize_source("return_ = None") != codehash.normalize_source("return_ = 0")


def test_the_code_is_hashed_once(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again, as for every record of a method, the fingerprint is known."""
    look()
    monkeypatch.delattr(codehash, "hash_of")
    provenance.fingerprint("check", "mine")


def test_known_digest() -> None:
    """The normal form of a source is the same on every Python (this one was computed on 3.11)."""
    digest = hashlib.sha256(codehash.normalize_source(FILES["main.py"]).encode()).hexdigest()
    assert digest == "7cc45a0d24192d03c2189b26a6f789cda6359d784c0202f8f73dd93468fc0047"


def test_written_in_a_notebook(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class without a module is known by its source and by the code of its bases."""

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


def test_written_in_a_module_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class of a module outside the package is known by its source, and only by its name if it is not found."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of one second, in which sources of one size look alike
    for task in ("check", "train"):
        monkeypatch.setitem(registry.REGISTRY, (task, "mine"), registry.Entry("my_methods:Mine"))
    fingerprints, attacked = [], []
    for body in ("return 1", "return 2", "return  2  # as before", ""):
        (tmp_path / "my_methods.py").write_text(f"class Mine:\n    def loss(self):\n        {body}\n" if body else "")
        monkeypatch.delitem(sys.modules, "my_methods", raising=False)
        linecache.clearcache()
        fingerprints.append(provenance.fingerprint("check", "mine"))
        attacked.append(provenance.fingerprint("attack", "across-leak", "Cora", "mine"))
    for first, second, same, gone in (fingerprints, attacked):
        assert first != second == same != gone


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the package itself."""
    folder = tmp_path_factory.mktemp("copy") / "fedrepro"
    shutil.copytree(codehash.root(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def all_fingerprints(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    forget()
    with monkeypatch.context() as patch:
        patch.setattr(codehash, "root", lambda: folder)
        found = {entry: provenance.fingerprint(*entry) for entry in registry.REGISTRY if entry in BUILT_IN}
    forget()
    return found


BUILT_IN = tuple(registry.REGISTRY)


def test_moves_in_the_package_itself(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the layers moved and renamed, and the optimizers merged into them, no registered fingerprint changes."""
    before = all_fingerprints(codehash.root(), monkeypatch)
    assert len(set(before.values())) == len(before) > 70
    layers, optimizers = copied / "engine/nn/layers.py", copied / "engine/nn/optim.py"
    future = "from __future__ import annotations\n"
    (copied / "stacked.py").write_text(layers.read_text() + optimizers.read_text().replace(future, ""))
    layers.unlink()
    optimizers.unlink()
    for file in copied.rglob("*.py"):
        text = file.read_text()
        text = re.sub(r"fedrepro\.engine\.nn\.(layers|optim)\b", "fedrepro.stacked", text)
        together = r"(?m)^( *)from fedrepro\.engine\.nn import (.*)\blayers\b(?:, )?(.*)$"
        apart = r"\1from fedrepro.engine.nn import \2random, \3\n\1from fedrepro import stacked as layers"
        text = re.sub(together, apart, text)
        file.write_text(text.replace(", \n", "\n"))
    assert all_fingerprints(copied, monkeypatch) == before
    edit(copied / "stacked.py", 'kind: str = "gcn"', 'kind: str = "row"')
    after = all_fingerprints(copied, monkeypatch)
    assert {entry for entry in before if before[entry] != after[entry]} >= {("train", "FedAvg"), ("train", "FedGCN")}
    assert before["attack", "gfl-differences"] == after["attack", "gfl-differences"]


def reached() -> tuple[set[str], set[str]]:
    """Return the modules whose code counts for some method of the package, and those that it refers to directly."""
    entries = [(task, name) for task in registry.TASKS for name in registry.names(task)]
    targets = {target for entry in entries for target in provenance.starts(*entry, "")[0]}
    statements = codehash.reached(provenance.definitions(sorted(targets)), provenance.ASIDE)
    beside = {target.module.name for statement in statements for target in statement.references}
    return {statement.module.name for statement in statements}, beside


def test_each_module_aside_is_reached() -> None:
    """No module is set aside that no method refers to, so that a renamed one is not forgotten."""
    counted, beside = reached()
    assert beside - counted == set(provenance.ASIDE)


def test_what_stores_and_shows_is_not_reached() -> None:
    """No method computes with the store, the exhibits or the pages, whose code changes no value."""
    counted, _ = reached()
    others = ("runs", "reporting", "cli", "exhibits")
    assert {name for name in counted if {*name.split(".")} & {*others}} == {
        "fedrepro.reporting.checks",
        "fedrepro.runs.process",
        "fedrepro.runs.tasks",
    }


def test_every_registered_method_has_a_fingerprint() -> None:
    """Every entry whose module exists has a fingerprint, and looking imports no torch."""
    code = (
        "import sys; from fedrepro import registry; from fedrepro.runs import provenance;"
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


@pytest.mark.parametrize(
    ("entry", "options", "trained"),
    [
        ({"trains": "other"}, {}, "other"),
        ({"trains": "of", "options": {"of": str}}, {"of": "other"}, "other"),
        ({"trains": "of", "options": {"of": "other"}}, {}, "other"),
        ({"trains": "of", "options": {"of": "mine"}}, {"of": "other"}, "other"),
        ({"trains": "of", "options": {"of": "other"}}, {"of": "mine"}, "mine"),
        ({}, {"of": "other"}, ""),
    ],
)
def test_the_code_of_the_method_that_is_trained_counts(
    package: Path, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], options: dict[str, str], trained: str
) -> None:
    """A function that trains the method of an option does not refer to its code, which alters its results."""
    (package / "beside.py").write_text("def other(x): return x + 5\n")
    monkeypatch.setitem(registry.REGISTRY, ("train", "other"), registry.Entry("fedrepro.beside:other"))
    monkeypatch.setitem(registry.REGISTRY, ("attack", "on"), registry.Entry("fedrepro.near:beside", **entry))
    run = Run(task="attack", paper="p", method="on", dataset="Cora", options=options)
    assert run.cell == ("attack", "on", "Cora", trained) == cell_of({"run": run.to_dict()})

    def look() -> tuple[str, dict[str, str]]:
        forget()
        return provenance.fingerprint(*run.cell), provenance.parts(*run.cell)

    before = look()
    edit(package / "beside.py", "x + 5", "x + 6")
    after = look()
    assert (before != after) == (before[0] != after[0]) == (trained == "other") == ("beside" in after[1])


def test_parts_tell_the_folder(package: Path) -> None:
    """Only the folder in which code was changed has another hash, and one that is not reached has none."""

    def parts() -> dict[str, str]:
        forget()
        return provenance.parts("check", "mine")

    before = parts()
    edit(package / "deep/inner.py", "'a'", "'b'")
    after = parts()
    assert {part for part in after if after[part] != before[part]} == {"deep"} and "unrelated" not in after
