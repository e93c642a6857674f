"""The prose of the project: how docstrings open, and what Markdown cells may hold."""

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

OPENINGS = re.compile(r"(What|Where|Which|Of|Whether|As|Args|The same)\b|[A-Z]{2,3}-[A-Z][A-Za-z]*\d")
IDIOMS = re.compile(
    r"\b(held? against|holds? \w+ against|is no number|not a number of its own|word by word|fits? on a hand|abroad|"
    r"what \w+ is worth)\b",
    re.IGNORECASE,
)
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


@pytest.mark.parametrize("path", [*MODULES, *NOTEBOOKS, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_idioms(path: Path) -> None:
    """The words that a reader of the field would not use are not used."""
    assert IDIOMS.findall(path.read_text(encoding="utf-8")) == []


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
