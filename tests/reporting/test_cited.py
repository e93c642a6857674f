"""A reader finds in a notebook every numbered deviation that its text cites."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from fedrepro import paths
from fedrepro.reporting import exhibits

NOTEBOOKS = [path for paper in exhibits.papers() for path in sorted((paths.notebooks() / paper).glob("*.ipynb"))]


def sources(path: Path, kind: str) -> list[str]:
    """Return the cells of a kind."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


def shown(path: Path, known: list[str]) -> set[str]:
    """Return the deviations that a notebook lists: all for a call without IDs, else its literal arguments."""
    lists: dict[str, list[str]] = {}
    listed: set[str] = set()
    for node in ast.walk(ast.parse("\n".join(sources(path, "code")))):
        if isinstance(node, ast.Assign | ast.AugAssign) and isinstance(node.value, ast.List | ast.Tuple):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                texts = [one.value for one in node.value.elts if isinstance(one, ast.Constant)]
                lists.setdefault(target.id, []).extend(str(text) for text in texts)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "deviations":
            listed |= set() if node.args else {*known}
            for one in node.args:
                inner = one.value if isinstance(one, ast.Starred) else one
                if isinstance(inner, ast.Name):
                    listed |= {*lists[inner.id]}
                elif isinstance(inner, ast.Constant):
                    listed.add(str(inner.value))
    return listed


def cited(path: Path, known: list[str]) -> set[str]:
    """Return the deviations that the text of a notebook names."""
    text = "\n".join(sources(path, "markdown"))
    return {name for name in known if re.search(rf"\b{re.escape(name)}(?![\w-])", text)}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_cited_deviation_is_listed(path: Path) -> None:
    known = list(exhibits.deviations(path.parent.name)["id"])
    assert not sorted(cited(path, known) - shown(path, known))


def test_a_missing_one_is_seen(tmp_path: Path) -> None:
    """The one of three cited deviations that no call lists is missed; the others stand in a list that grows."""
    code = 'ids = ["FG-Q1"]\nids += ["FG-Q2"]\nnb.deviations(*ids)'
    cells = [
        {"cell_type": "markdown", "source": "We part here (FG-Q1, FG-Q2) and there (FG-Q10), see FG-Q1-printed."},
        {"cell_type": "code", "source": code},
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    known = ["FG-Q1", "FG-Q2", "FG-Q10", "FG-Q3"]
    assert cited(path, known) == {"FG-Q1", "FG-Q2", "FG-Q10"} and shown(path, known) == {"FG-Q1", "FG-Q2"}
