"""Write small notebooks for tests."""

from __future__ import annotations

from pathlib import Path

import nbformat

STANDARD = 'profile = "quick"\ndevice = "auto"\nseeds = 0\nengine = "local"'


def write(folder: Path, name: str, *cells: str, parameters: str = STANDARD, first: str = "# A title\n\nFG-T1") -> Path:
    """A notebook `folder/name.ipynb` of a first cell, a parameters cell and code cells."""
    v4 = nbformat.v4
    tagged = v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
    nb = v4.new_notebook(cells=[v4.new_markdown_cell(first), tagged, *map(v4.new_code_cell, cells)])
    path = folder / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, path)
    return path
