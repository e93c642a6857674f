"""Copies of notebooks: pages, students' versions, solutions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from fedrepro import paths
from fedrepro.reporting.site import copies

NOTEBOOKS = sorted((paths.root() / "notebooks").glob("*/*.ipynb"))
EXERCISES = """## Exercises

1. How many?
   <details><summary>Hint</summary>Count.</details>
   <details><summary>Solution</summary>Three.</details>
2. Why?

## Provenance"""


def markdown(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": str(abs(hash(source)))[:8], "metadata": {}, "source": source}


def code(source: str, *outputs: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    cell = {"cell_type": "code", "id": "c", "metadata": metadata, "source": source, "outputs": list(outputs)}
    return {**cell, "execution_count": 3}


def shown(**data: str) -> dict[str, Any]:
    named = {name.replace("_", "/", 1): value for name, value in data.items()}
    return {"output_type": "display_data", "metadata": {}, "data": named}


def book(*cells: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"cells": [markdown("# Title\n\ntext"), *cells], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def texts(notebook: dict[str, Any]) -> list[str]:
    return [copies.text(cell) for cell in notebook["cells"]]


def test_students_get_an_empty_cell_for_each_exercise() -> None:
    """Outputs and solutions go, hints stay, and an empty code cell follows each exercise."""
    young = copies.student(book(code("1 + 1", shown(text_plain="2")), markdown(EXERCISES)))
    assert texts(young)[2:] == [
        "## Exercises",
        "1. How many?\n   <details><summary>Hint</summary>Count.</details>",
        "",
        "2. Why?",
        "",
        "## Provenance",
    ]
    made = [cell for cell in young["cells"] if cell["cell_type"] == "code"]
    assert len(made) == 3 and not any(cell["outputs"] or cell["execution_count"] for cell in made)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_notebook_has_a_version_for_students(path: Path) -> None:
    """The version for students is a valid notebook with an empty cell for each exercise."""
    source = json.loads(path.read_text(encoding="utf-8"))
    young = copies.student(source)
    nbformat.validate(nbformat.from_dict(young))
    exercises = [cell for cell in young["cells"] if cell["id"].startswith("exercise-")]
    assert len(exercises) >= 3
    empty = [cell for cell in young["cells"] if cell["cell_type"] == "code" and not copies.text(cell)]
    assert len(empty) == len(exercises)


def test_solutions_are_collected_and_left_out_of_pages() -> None:
    """Folded solutions and cells tagged `solution` are on the page of solutions and nowhere else."""
    given = book(markdown(EXERCISES), code("print(3)", tags=["solution"]))
    found = copies.solutions(given)
    assert "1. How many?" in found and "Three." in found and "```python\nprint(3)\n```" in found
    assert "Why?" not in found
    for made in (copies.student(given), copies.page(given, "links", {})):
        assert "Three." not in "".join(texts(made)) and "print(3)" not in "".join(texts(made))
    assert copies.solutions(book(markdown("## Exercises\n\n1. Why?"))) == ""


def test_folded_text_is_markdown() -> None:
    """A hint stands between blank lines, so that its mathematics is set."""
    page = copies.page(
        book(markdown("1. How?\n   <details><summary>Hint</summary>Look at $x$.</details>\n2. Why?")), "", {}
    )
    folded = "   <details><summary>Hint</summary>\n\n   Look at $x$.\n\n   </details>\n"
    assert texts(page)[2] == f"1. How?\n{folded}\n2. Why?"


def test_pictures_are_described() -> None:
    """A picture is described by the exhibits of its cell, else by the heading above it; never by nothing."""
    picture = shown(image_png="AAAA")
    page = copies.page(
        book(code('nb.save("FG-F2a", frame)', picture), markdown("## The $x$ axis"), code("figure", picture)),
        "links",
        {"FG-F2a": "Accuracy against clients"},
    )
    told = [cell["metadata"]["mystnb"]["image"]["alt"] for cell in page["cells"] if cell["cell_type"] == "code"]
    assert "FG-F2a, Accuracy against clients" in told[0] and "The x axis" in told[1]


def test_a_page_has_its_links_and_keeps_nothing_of_the_run() -> None:
    """Links follow the title, and what a run leaves in the metadata is dropped."""
    made = copies.page(book(code("1", papermill={"duration": 3.0}), papermill={"input_path": "x"}), "links", {})
    assert texts(made)[1] == "links"
    assert "papermill" not in json.dumps(made)


def test_styled_tables_have_lasting_names() -> None:
    """The random name of a styled table is replaced, and the table follows the theme unless it has colours."""
    html = '<style>#T_0a1b2_row0 {font-weight: bold}</style><table id="T_0a1b2"><td id="T_0a1b2_row0">T_later</td>'
    tidied = copies.tidy(shown(text_html=html), "3-0")["data"]["text/html"]
    assert "0a1b2" not in tidied and '<table class="dataframe" id="T_3-0">' in tidied and "T_later" in tidied
    coloured = html.replace("font-weight: bold", "background-color: red")
    assert "dataframe" not in copies.tidy(shown(text_html=coloured), "3-0")["data"]["text/html"]
