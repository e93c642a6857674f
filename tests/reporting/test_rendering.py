"""Tests of the HTML pages of executed notebooks."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell

from fedrepro.reporting import rendering

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><text>1 &lt; 2</text></svg>'
DATA: list[dict[str, Any]] = [
    {"text/html": '<table class="a"><td>1 &amp; 2</td></table><img src="x.png" alt="described">'},
    {"image/svg+xml": SVG},
    {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"},
    {"text/markdown": "**b** $a < b$ and `c`"},
    {"text/plain": '<div class="jp-OutputArea-output">'},
    {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "a widget"},
]


def page() -> Any:
    outputs = [new_output("display_data", data) for data in DATA]  # type: ignore[no-untyped-call]
    outputs.append(new_output("stream", name="stderr", text="\x1b[31m<red>\x1b[0m\n"))  # type: ignore[no-untyped-call]
    cells = [
        new_markdown_cell("# Title\n\n<b>bold</b> $x_1 < y$ [link](a.html)"),  # type: ignore[no-untyped-call]
        new_code_cell("print('<div class=\"jp-Cell-inputWrapper\"> &amp; <script>')  # 'a' < b", outputs=outputs),  # type: ignore[no-untyped-call]
        new_code_cell('%%bash\necho "<b>"'),  # type: ignore[no-untyped-call]
        new_code_cell(""),  # type: ignore[no-untyped-call]
        new_raw_cell("<script>alert(1)</script>"),  # type: ignore[no-untyped-call]
    ]
    return new_notebook(cells=cells, metadata={"language_info": {"name": "python", "pygments_lexer": "ipython3"}})  # type: ignore[no-untyped-call]


def tree(text: str) -> BeautifulSoup:
    """Parse a page, without the words for pictures that have none."""
    soup = BeautifulSoup(text, features="html.parser")
    for image in soup.select("img"):
        assert image["alt"]
        if image["alt"] in ("figure", "No description has been provided for this image"):
            del image["alt"]
    return soup


def test_a_page_is_that_of_nbconvert(tmp_path: Path) -> None:
    """The cleaning and parsing that is left out changes no element and no attribute, and raw cells stay cleaned."""
    notebook = page()
    plain, _ = HTMLExporter().from_notebook_node(notebook)  # type: ignore[no-untyped-call]
    path = tmp_path / "a.ipynb"
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    rendering.write(path)
    ours = path.with_suffix(".html").read_text(encoding="utf-8")
    assert tree(ours) == tree(plain)
    assert len(tree(ours).select('[tabindex="0"]')) > 5
    assert "<script>alert(1)" not in ours


@pytest.mark.parametrize("word", ['alt="figure"', 'tabindex="0"'])
def test_a_page_that_lacks_something_is_told_apart(word: str) -> None:
    text, _ = rendering.exporter().from_notebook_node(page())
    plain, _ = HTMLExporter().from_notebook_node(page())  # type: ignore[no-untyped-call]
    if word.startswith("alt"):
        with pytest.raises(KeyError):
            tree(text.replace(word, ""))
    else:
        assert tree(text.replace(word, "", 1)) != tree(plain)
