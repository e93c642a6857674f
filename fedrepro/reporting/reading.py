"""Write a paper's page "How to read this paper in thirty minutes": line of the algorithm, function, test, exhibit.

The page is generated from the numbered lists in the docstrings of the paper's modules, so it follows the code:

    1. The server averages the weights (Eq. 19).      `Method.aggregate`

A line has a number, what happens, and behind two blanks the functions that do it.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from fedrepro import paths
from fedrepro.reporting import exhibits, files

FILE = "READING.md"
STEP = re.compile(r"^ +(\d+)\. +(.*?) *(?: {2}(.*))?$", re.MULTILINE)
BOX = re.compile(r"^ +\d+\. .*(?:\n(?: +\d+\. .*|  .*|(?=\n)))*", re.MULTILINE)  # steps, and what is below them
NAME = re.compile(r"`([^`]+)`")
# The tests that compare the training of a paper with its algorithm written out, client by client or message by message.
WRITTEN_OUT = (
    "test_rounds_equal_algorithm_1",
    "test_three_rounds_equal_the_plain_program",
    "test_training_by_messages_equals_training_by_edges",
    "test_training_is_central_training_of_the_reference",
)
NO_FUNCTION = "none, since the line names no function"
LABEL = re.compile(r"\b(Algorithm|Section)s? ([0-9.]*[0-9])(?: and ([0-9.]*[0-9]))?")


@dataclass(frozen=True)
class Step:
    """One line of an algorithm: its number, its text, and the functions named behind it."""

    number: str
    text: str
    functions: tuple[str, ...]


@dataclass(frozen=True)
class Box:
    """An algorithm as a docstring writes it: the sentence before it, and its lines."""

    heading: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Module:
    """A Python file of the checkout, with the names that it defines."""

    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """Return every function, class and `Class.method`; a class comes with the names of its bases."""
        bases: dict[str, list[str]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                bases[node.name] = []
            elif isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base).rpartition(".")[2].partition("[")[0] for base in node.bases]
                bases |= {f"{node.name}.{item.name}": [] for item in node.body if isinstance(item, ast.FunctionDef)}
        return bases

    @cached_property
    def tests(self) -> dict[str, tuple[set[str], set[str]]]:
        """Return every test function, with the names that it calls, and those that occur in it.

        Neither a name before a dot counts, which is a module or an object whose attribute is used, nor a helper that
        the file defines, which may have the name of a function of the package.
        """
        helpers = {part.name for part in ast.walk(self.tree) if isinstance(part, ast.FunctionDef)}
        names_in = {}
        for test in self.tree.body:
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                parts = [part for part in ast.walk(test) if getattr(part, "id", "") not in helpers]
                owners = {part.value for part in parts if isinstance(part, ast.Attribute)}
                called = {_name(part.func) for part in parts if isinstance(part, ast.Call) and part.func in parts}
                names_in[test.name] = (called, {_name(part) for part in parts if part not in owners})
        return names_in

    @cached_property
    def bodies(self) -> dict[str, set[str]]:
        """Return every function and `Class.method`, with the names that occur in it."""
        bodies = {}
        for node in self.tree.body:
            for item in node.body if isinstance(node, ast.ClassDef) else [node]:
                if isinstance(item, ast.FunctionDef):
                    name = f"{node.name}.{item.name}" if isinstance(node, ast.ClassDef) else item.name
                    bodies[name] = {_name(part) for part in ast.walk(item)}
        return bodies

    def boxes(self) -> Iterator[Box]:
        """Yield the numbered lists of the docstring."""
        text = ast.get_docstring(self.tree) or ""
        for box in BOX.finditer(text):
            before = " ".join(text[: box.start()].rstrip().rpartition("\n\n")[2].split())
            steps = (Step(number, what, tuple(NAME.findall(by))) for number, what, by in STEP.findall(box[0]))
            yield Box(before.rpartition(". ")[2].rstrip(":."), tuple(steps))


@cache
def _modules(folder: Path, names: str) -> tuple[Module, ...]:
    """Return the Python files of a folder, sorted; each is parsed once, since all papers share the engine's."""
    return tuple(Module(path) for path in sorted(folder.glob(names)))


class Tested(NamedTuple):
    """A test of a line: its file, its name, which is empty if all tests of the file are meant, and what it calls."""

    file: Module
    name: str
    through: str = ""  # the function that the test calls and that leads to the line's; empty if it is the line's


class Index:
    """Find the definition of a name that a docstring writes, and a test that uses it.

    Args:
        paper: the name of the paper's folder.
    """

    def __init__(self, paper: str) -> None:
        package, tests = paths.root() / "fedrepro", paths.root() / "tests"
        sources = sorted(exhibits.folder(paper).rglob("*.py"))
        self.paper = [Module(path) for path in sources if path.parent.name != "exhibits"]
        self.all = [*self.paper, *_modules(package / "engine", "**/*.py")]
        self.folder = tests / "papers" / paper
        folders = [self.folder, tests / "engine"]
        self.tests = [module for folder in folders for module in _modules(folder, "test_*.py")]

    def find(self, name: str, near: Module) -> Module | None:
        """Return the module that defines `name`, looking at `near` first, then at the paper, then at the engine."""
        *owner, last = name.removeprefix("fedrepro.").split(".")
        order = [near, *(module for module in self.all if module.path != near.path)]
        for module in order:
            if module.path.stem == last and (not owner or module.path.parent.name == owner[-1]):
                return module
            here = not owner or module.path.stem == owner[-1]
            methods = {known.rpartition(".")[2] for known in module.names} if module is near else set()
            if name in module.names or (here and (last in module.names or last in methods)):
                return module
        return self._inherited(owner, last, near)

    def _inherited(self, owner: list[str], last: str, near: Module) -> Module | None:
        """Follow the bases of the class `owner[-1]`, or of every class near by, to the method `last`."""
        bases = [base for known, above in near.names.items() if not owner or known == owner[-1] for base in above]
        if owner and not bases:
            bases = [base for module in self.all for base in module.names.get(owner[-1], [])]
        for base in bases:
            for module in [near, *self.all]:
                if f"{base}.{last}" in module.names:
                    return module
                if base in module.names and module.path != near.path:
                    further = self._inherited([base], last, module)
                    if further:
                        return further
        return None

    def test(self, name: str, module: Module) -> Tested | None:
        """Return a test of the function `name` that `module` defines, or None if there is none.

        A hook of a training method is called by the training loop. Its test is the one that compares the paper's
        training with the algorithm written out. Any other function has the first test that calls it, or else the first
        in which it occurs. The test file of the function's module comes before others, and only tests of the paper test
        a function of the paper. A function without such a test has the test of a function that calls it. A module has
        all tests of its test file.
        """
        last = name.rpartition(".")[2]
        if last == module.path.stem and last not in module.bodies:
            return next((Tested(test, "") for test in self.tests if test.path.stem == f"test_{last}"), None)
        seen, wave = {last}, [(name, module)]
        while wave:
            for function, home in wave:
                if test := self._direct(function, home):
                    return Tested(*test, "" if function == name else function)
            wave = [pair for function, home in wave for pair in self._callers(function, home)]
            wave = [pair for pair in dict.fromkeys(wave) if pair[0].rpartition(".")[2] not in seen]
            seen |= {function.rpartition(".")[2] for function, _ in wave}
        return None

    def _direct(self, name: str, module: Module) -> tuple[Module, str] | None:
        """Return the first test that calls a function or names it, or that of the written-out algorithm for a hook."""
        last = name.rpartition(".")[2]
        written = [(test, one) for test in self.tests for one in test.tests if one in WRITTEN_OUT]
        if self._is_hook(name, module) and written:
            return written[0]
        of_paper = [test for test in self.tests if module not in self.paper or test.path.is_relative_to(self.folder)]
        ordered = sorted(of_paper, key=lambda test: test.path.stem != f"test_{module.path.stem}")
        for kind in (0, 1) if last != module.path.stem else (0,):  # a bare name may also be that of the module
            for test in ordered:
                for one, names in test.tests.items():
                    if last in names[kind]:
                        return test, one
        return None

    def _callers(self, name: str, module: Module) -> Iterator[tuple[str, Module]]:
        """Yield the functions in which a function occurs: of its module, and of the paper's unless it is private."""
        last = name.rpartition(".")[2]
        for home in [module] if last.startswith("_") else dict.fromkeys([module, *self.paper]):
            yield from ((caller, home) for caller, names in home.bodies.items() if last in names)

    def _is_hook(self, name: str, module: Module) -> bool:
        """Return whether `name` is defined in `module` by a class that descends from the engine's `Method`."""
        *owner, last = name.split(".")
        owners = [known.partition(".")[0] for known in module.names if known.endswith(f".{last}")]
        return any(self._trains(one) for one in owners if not owner or one == owner[-1])

    def _trains(self, name: str) -> bool:
        bases = next((module.names[name] for module in self.all if name in module.names), [])
        return name == "Method" or any(self._trains(base) for base in bases if base != name)


def _name(node: ast.AST) -> str:
    """Return the last part of a name, and "" for anything else."""
    return str(getattr(node, "id", getattr(node, "attr", "")))


def page(paper: str, folder: Path) -> str:
    """Return the page of a paper as Markdown, with links from `folder`; empty if its docstrings have no box."""
    index = Index(paper)
    boxes = [(module, box) for module in _ordered(index.paper) for box in module.boxes()]
    if not boxes:
        return ""
    shown = []
    for module, box in boxes:
        labels = {f"{kind} {number}" for kind, *numbers in LABEL.findall(box.heading) for number in numbers}
        ids = [row["id"] for row in exhibits.listed(paper) if row["label"] in labels and row["kind"] == "algorithm"]
        drawn = ", ".join(f"[{one}]({one}.csv)" for one in ids if (folder / f"{one}.csv").is_file()) or "–"
        steps = [[*_cells(step, module, index, folder), drawn] for step in box.steps]
        shown.append((box.heading, _link(module.path, folder), steps))
    notebooks: dict[str, list[str]] = {}
    for row in exhibits.listed(paper):
        target = os.path.relpath(paths.root() / "notebooks" / paper / f"{row['notebook']}.ipynb", folder)
        notebooks.setdefault(f"[{row['notebook']}]({target})", []).append(row["id"])
    about = _docstring(index.paper)
    name = exhibits.papers()[paper]
    return files.page("reading.md", paper=name, about=about, boxes=shown, notebooks=list(notebooks.items()))


def _ordered(modules: list[Module]) -> list[Module]:
    """Put the module `method` of the paper's folder first and `protocol` second."""
    first = ["method", "protocol"]
    depth = min(len(module.path.parts) for module in modules)
    return sorted(
        modules,
        key=lambda one: first.index(one.path.stem) if one.path.stem in first and len(one.path.parts) == depth else 2,
    )


def _docstring(modules: list[Module]) -> str:
    """Return the paragraphs of the package's docstring that follow its first line."""
    package = min((one for one in modules if one.path.stem == "__init__"), key=lambda one: len(one.path.parts))
    text = (ast.get_docstring(package.tree) or "").partition("\n\n")[2].strip()
    return f"```\n{text}\n```" if re.search(r"\S {2,}\S", text) else text


def _cells(step: Step, module: Module, index: Index, folder: Path) -> list[str]:
    """Return number, text, functions and tests of a line, with links from `folder`."""
    functions, tests = [], []
    for name in step.functions:
        home = index.find(name, module)
        functions.append(f"`{name}` in {_link(home.path, folder)}" if home else f"`{name}`")
        tests.append(_tested(index.test(name, home) if home else None, folder))
    text = step.text.replace("|", "\\|")
    return [step.number, text, "; ".join(functions) or "–", "; ".join(dict.fromkeys(tests)) or NO_FUNCTION]


def _tested(test: Tested | None, folder: Path) -> str:
    """Return the link to a test with what it calls, or why there is none."""
    if test is None:
        return "none, since no test calls the function or a function that calls it"
    if not test.name:
        return f"all tests of {_link(test.file.path, folder)}, since the line names a module"
    through = f", which calls `{test.through}`" if test.through else ""
    return f"{_link(test.file.path, folder)}: `{test.name}`{through}"


def _link(path: Path, folder: Path) -> str:
    return f"[{path.name}]({os.path.relpath(path, folder)})"
