"""The prose of the project: how docstrings open, which words and names are used, and what Markdown cells may hold."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "fedrepro").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*/*.ipynb"))
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "changelog.d").glob("*.md"))]
TEXTS = [*sorted((ROOT / "fedrepro/reporting").rglob("pages/*.md")), *sorted((ROOT / "fedrepro/papers").rglob("*.csv"))]
TEXTS += sorted((ROOT / "fedrepro/papers").rglob("study.json"))

OPENINGS = re.compile(r"(What|Where|Which|Of|Whether|As|Args|The same)\b|[A-Z]{2,3}-[A-Z][A-Za-z]*\d")
# Up to eight words of one sentence may stand between the two of an idiom.
IDIOMS = re.compile(
    r"\bh(?:old|olds|eld|olding)\b(?:\s+[^\s<]*[^\s<.:;!?]){0,8}?\s+against\b|\bis worth\b|\bare worth\b"
    r"|\bis no number\b|\bnot a number of its own\b|\bword by word\b|\bfits? on a hand\b|\babroad\b",
    re.IGNORECASE,
)
# Names that say nothing of what they hold.
EMPTY = {"found", "made", "each", "mine", "own", "place", "id"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (*FUNCTIONS, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# A decimal or a percentage; not a version, a section ("4.2"), an ID or part of a name.
DIGITS = re.compile(r"(?<![\w.§/-])\d+\.\d+(?![\w.]|-)|\b\d+(?:\.\d+)? ?%")
NOT_PROSE = re.compile(
    r"\$\$.*?\$\$|\$[^$]*\$|```.*?```|`[^`]*`|\[[^\]]*\]\([^)]*\)|https?://\S+"
    r"|(?:Section|Sections|Appendix|Eq\.|Table|Figure|Theorem|Corollary|Lemma|Definition|Algorithm|Python|Proposition)"
    r" \(?\d+(?:\.\d+)*\)?(?:(?:,| and| to) \d+(?:\.\d+)*)*",
    re.DOTALL,
)


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of everything in a file that has one, fields of classes included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = getattr(node, "name", "module")
            if text := ast.get_docstring(node):
                yield name, text
            for field, after in pairwise(node.body):
                told = after.value if isinstance(after, ast.Expr) else None
                if isinstance(field, ast.AnnAssign | ast.Assign) and isinstance(told, ast.Constant):
                    yield f"{name}, line {after.lineno}", str(told.value)


def empty_names(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """Yield the variables named in `EMPTY` that live over more than three lines: function, name and first line."""

    def bound(node: ast.AST) -> Iterator[str]:
        """Yield the names that a scope binds, without those of the scopes in it."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                yield child.id
            elif isinstance(child, ast.arg):
                yield child.arg
            if not isinstance(child, SCOPES):
                yield from bound(child)

    def uses(node: ast.AST, name: str) -> Iterator[int]:
        """Yield the lines on which a scope uses its variable, without scopes that bind the name again."""
        for child in ast.iter_child_nodes(node):
            if name in (getattr(child, "id", ""), getattr(child, "arg", "")) and isinstance(child, ast.Name | ast.arg):
                yield child.lineno
            if not (isinstance(child, SCOPES) and name in bound(child)):
                yield from uses(child, name)

    def visit(node: ast.AST, function: str) -> Iterator[tuple[str, str, int]]:
        function = getattr(node, "name", function) if isinstance(node, FUNCTIONS) else function
        if isinstance(node, (ast.Module, *SCOPES)) and not isinstance(node, ast.ClassDef):  # fields are no variables
            for name in sorted(EMPTY & {*bound(node)}):
                lines = [*uses(node, name)]
                if max(lines) - min(lines) >= 3:
                    yield function, name, min(lines)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, function)

    yield from visit(tree, "module")


def typed_digits(markdown: str) -> list[str]:
    """Return the decimals and percentages of a text outside mathematics, code, links and numbers of sections."""
    return DIGITS.findall(NOT_PROSE.sub(" ", markdown))


def markdown_cells(path: Path) -> list[tuple[int, str]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [(n, "".join(cell["source"])) for n, cell in enumerate(cells) if cell["cell_type"] == "markdown"]


@pytest.mark.parametrize("path", [*MODULES, *TESTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_open_with_a_sentence(path: Path) -> None:
    """No docstring of the package or of the tests opens with a fragment or an ID."""
    assert [f"{name}: {text.splitlines()[0]}" for name, text in docstrings(path) if OPENINGS.match(text)] == []


@pytest.mark.parametrize(
    "path", [*MODULES, *TESTS, *NOTEBOOKS, *PAGES, *TEXTS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_idioms(path: Path) -> None:
    """The words that a reader of the field would not use are not used."""
    assert IDIOMS.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", [*MODULES, *TESTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_names_say_what_they_hold(path: Path) -> None:
    """A variable that lives over more than three lines has a name that says what it holds."""
    empty = empty_names(ast.parse(path.read_text(encoding="utf-8")))
    assert [f"{name} in {function}, line {line}" for function, name, line in empty] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_measured_digit_is_typed(path: Path) -> None:
    """Markdown cells hold no decimal and no percentage: the next seed would make it wrong."""
    typed = {n: typed_digits(text) for n, text in markdown_cells(path)}
    assert {n: digits for n, digits in typed.items() if digits} == {}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_markdown_is_short(path: Path) -> None:
    """A Markdown cell has at most 170 words outside mathematics, and a paragraph at most 100."""
    for n, text in markdown_cells(path):
        plain = NOT_PROSE.sub(" x ", text)
        assert len(plain.split()) <= 170, f"cell {n} has {len(plain.split())} words"
        for paragraph in re.split(r"\n\s*\n", plain):
            if not paragraph.lstrip().startswith(("|", "-", "*", "1.")):
                assert len(paragraph.split()) <= 100, f"a paragraph of cell {n} has {len(paragraph.split())} words"


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("It reaches 79.4 points.", ["79.4"]),
        ("It gains 3% over Local.", ["3%"]),
        ("A rate of $0.1$ and `lr=0.1`, Section 4.2, Eq. 2.1, FG-T1, [0.5](x.md), version 3.", []),
    ],
)
def test_a_planted_digit_is_seen(text: str, digits: list[str]) -> None:
    """The rule sees a measured number in prose, and none in mathematics, code, links and numbers of sections."""
    assert typed_digits(text) == digits


def test_a_planted_digit_in_a_notebook_is_seen(tmp_path: Path) -> None:
    """A decimal planted in a Markdown cell of a real notebook is found, in its cell, and in a code cell it is not."""
    source = json.loads(NOTEBOOKS[0].read_text(encoding="utf-8"))
    number = len(source["cells"])
    for kind in ("code", "markdown"):
        source["cells"].append({"cell_type": kind, "metadata": {}, "source": ["FedAvg reaches\n", "79.4 points here."]})
    planted = tmp_path / "planted.ipynb"
    planted.write_text(json.dumps(source), encoding="utf-8")
    assert {n: typed_digits(text) for n, text in markdown_cells(planted) if typed_digits(text)} == {
        number + 1: ["79.4"]
    }


def test_a_planted_fragment_is_seen() -> None:
    """The rule sees openings that are no sentence."""
    assert all(OPENINGS.match(text) for text in ("What it is.", "The same again.", "FG-T1 at once.", "Args: x"))
    assert not any(OPENINGS.match(text) for text in ("Return it.", "A method.", "Train the clients."))


def test_a_planted_idiom_is_seen() -> None:
    """The rule sees an idiom whose words stand apart, and not the words by themselves."""
    seen = ("hold our runs {} it", "held all of the numbers {} a bound", "It holds\nthem {} x.")
    assert all(IDIOMS.search(text.format("against")) for text in seen)
    assert not any(IDIOMS.search(text.format("for")) for text in seen)


@pytest.mark.parametrize(
    ("code", "empty"),
    [
        ("def f(x):\n    found = x\n    y = 1\n    z = 2\n    return found", [("f", "found", 2)]),
        ("def f(own):\n    def g():\n        y = 1\n        return own", [("f", "own", 1)]),
        ("def f(x):\n    found = x\n    y = 1\n    return found", []),
        ("def f(x):\n    a = [id for id in x]\n\n\n    return [id for id in a]", []),
        ("class C:\n    id: str\n\n    def f(self):\n        y = 1\n        return self.id", []),
    ],
)
def test_a_planted_name_is_seen(code: str, empty: list[tuple[str, str, int]]) -> None:
    """The rule sees a name that lives over four lines, of a parameter too, and neither a shorter life nor a field."""
    assert [*empty_names(ast.parse(code))] == empty
