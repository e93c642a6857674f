"""Copy a notebook for readers: as a page of the site, as a student's version, and its solutions."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

Cell = dict[str, Any]
Notebook = dict[str, Any]

EXERCISES = "## Exercises"
ID = re.compile(r"\b[A-Z]{2,3}-[A-Z][A-Za-z]*\d+[a-z]?(?:-\w+)*\b|\bEN-\d+[a-z]?\b")
_STYLER = re.compile(r"\bT_[0-9a-f]{5}(?=[_\"\s])")
_SOLUTION = re.compile(r"[ \t]*<details>\s*<summary>Solution</summary>(.*?)</details>\n?", re.DOTALL)
_FOLDED = re.compile(r"^([ \t]*)<details>\s*<summary>(.*?)</summary>\s*(.*?)\s*</details>", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ +(.*)", re.MULTILINE)
_ITEM = re.compile(r"^(?=\d+\. )", re.MULTILINE)


def text(cell: Cell) -> str:
    """Return the source of a cell, which a file may hold as a list of lines."""
    return "".join(cell["source"])


def page(notebook: Notebook, links: str, titles: Mapping[str, str]) -> Notebook:
    """Return a notebook as a page of the site.

    Links follow the title, each picture has an alternative text, and solutions are left out, since they have a page.
    The metadata of a run is removed, so that a notebook that was run again with the same outputs is the same page.

    Args:
        notebook: the executed copy, or the source.
        links: Markdown that is put behind the title's cell.
        titles: the titles of the paper's exhibits by ID.
    """
    cells: list[dict[str, Any]] = []
    heading = ""
    for cell in map(copy.deepcopy, without_solutions(notebook)["cells"]):
        cell["metadata"] = {"tags": cell["metadata"].get("tags", [])}
        if cell["cell_type"] == "markdown":
            heading = [heading, *_HEADING.findall(text(cell))][-1]
            # With blank lines, without which what is folded is no Markdown.
            cell["source"] = _FOLDED.sub(r"\1<details><summary>\2</summary>\n\n\1\3\n\n\1</details>\n", text(cell))
        if cell["cell_type"] == "code":
            cell["outputs"] = [tidy(output, f"{len(cells)}-{place}") for place, output in enumerate(cell["outputs"])]
            if any(kind.startswith("image/") for output in cell["outputs"] for kind in output.get("data", {})):
                cell["metadata"]["mystnb"] = {"image": {"alt": alternative(cell, heading, titles)}}
        cells.append(cell)
    cells.insert(1, {"cell_type": "markdown", "id": "links", "metadata": {}, "source": links})
    kept = {
        name: notebook["metadata"][name] for name in ("kernelspec", "language_info") if name in notebook["metadata"]
    }
    return {**notebook, "cells": cells, "metadata": kept}


def alternative(cell: Cell, heading: str, titles: Mapping[str, str]) -> str:
    """Return an alternative text for the pictures of a cell: the exhibits that it draws, else the section's heading."""
    drawn = [f"{id_}, {titles[id_]}" for id_ in dict.fromkeys(ID.findall(text(cell))) if id_ in titles]
    plain = re.sub(r"[$`*\\]", "", "; ".join(drawn) or heading)
    return f"Figure: {plain}. The table or text next to it has its numbers."


def tidy(output: Cell, name: str) -> Cell:
    """Return an output whose styled table has a name that stays, and the class of tables that follow the page's theme.

    A table that sets colours keeps its light ground.
    """
    html = "".join(output.get("data", {}).get("text/html", ""))
    if not _STYLER.search(html):
        return output
    html = _STYLER.sub(f"T_{name}", html)
    if "background-color" not in html:
        html = html.replace("<table id=", '<table class="dataframe" id=')
    return {**output, "data": {**output["data"], "text/html": html}}


def without_solutions(notebook: Notebook) -> Notebook:
    """Return a notebook without the cells tagged `solution` and without folded solutions."""
    cells = [copy.copy(cell) for cell in notebook["cells"] if "solution" not in cell["metadata"].get("tags", [])]
    for cell in cells:
        if cell["cell_type"] == "markdown":
            cell["source"] = _SOLUTION.sub("", text(cell))
    return {**notebook, "cells": cells}


def solutions(notebook: Notebook) -> str:
    """Return the solutions of a notebook as Markdown, empty if it has none."""
    parts = []
    for cell in notebook["cells"]:
        tagged = "solution" in cell["metadata"].get("tags", [])
        if tagged:
            parts.append(text(cell) if cell["cell_type"] == "markdown" else f"```python\n{text(cell)}\n```")
            continue
        for item in _ITEM.split(text(cell)) if cell["cell_type"] == "markdown" else ():
            for found in _SOLUTION.findall(item):
                question = item.partition("<details>")[0].strip()
                parts += [f"{question}\n", found.strip()]
    return "\n\n".join(parts)


def student(notebook: Notebook) -> Notebook:
    """Return a notebook for students: no outputs, no solutions, and an empty cell behind each exercise."""
    cells: list[Cell] = []
    for cell in map(copy.deepcopy, without_solutions(notebook)["cells"]):
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        if cell["cell_type"] != "markdown" or EXERCISES not in text(cell):
            cells.append(cell)
            continue
        before, _, exercises = text(cell).partition(EXERCISES)
        exercises, further, rest = exercises.partition("\n## ")
        intro, *items = _ITEM.split(exercises)
        cells.append({**cell, "source": f"{before}{EXERCISES}{intro}".rstrip()})
        for number, item in enumerate(items, 1):
            cells.append({"cell_type": "markdown", "id": f"exercise-{number}", "metadata": {}, "source": item.rstrip()})
            cells.append({"cell_type": "code", "id": f"answer-{number}", "metadata": {}, "source": "", "outputs": []})
            cells[-1]["execution_count"] = None
        if further:
            source = f"{further.lstrip()}{rest}"
            cells.append({"cell_type": "markdown", "id": "after-exercises", "metadata": {}, "source": source})
    return {**notebook, "cells": cells}
