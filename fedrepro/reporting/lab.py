"""Configure JupyterLab for `make lab`: what is saved into a notebook of the suite has no outputs.

jupyter lab --config fedrepro/reporting/lab.py
"""

from __future__ import annotations

from typing import Any


def strip(model: dict[str, Any], path: str, **_: Any) -> None:
    """Remove outputs, execution counts and traces of a run from a notebook of `notebooks/` before it is saved.

    The page that is open keeps them. Notebooks elsewhere, such as executed copies, are saved as they are.
    """
    if model["type"] != "notebook" or not path.lstrip("/").startswith("notebooks/"):
        return
    notebook = model["content"]
    notebook["metadata"].pop("widgets", None)
    for cell in notebook["cells"]:
        cell["metadata"].pop("execution", None)
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None


if "get_config" in globals():  # JupyterLab reads this file
    _config: Any = globals()["get_config"]()
    _config.FileContentsManager.pre_save_hook = strip
