"""Open a working copy of a notebook in JupyterLab, so that trying things changes no committed notebook and no figure.

The copies are in `build/edit/notebooks`, all of them, since notebooks link to each other. Exhibits that they draw go to
`build/edit/figures`, which begins as a copy of `figures`. Runs are kept in the store as ever: a result depends on its
run only, and not on who asked for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fedrepro import paths
from fedrepro.errors import require
from fedrepro.reporting import notebook


def folder() -> Path:
    """Return the folder of working copies and of what they draw."""
    return paths.root() / "build" / "edit"


def copy(name: str, anew: bool = False) -> Path:
    """Return the working copy of a notebook, which is made unless it is there.

    Args:
        name: `paper/n-section`.
        anew: make a fresh one; the former one stays next to it, as `<name>.1.ipynb` and so on.

    Raises:
        ArgumentError: the name is that of no notebook, or of several.
    """
    found = notebook.select([name], single=True)
    require(len(found) == 1, "NOTEBOOK", f"one notebook, such as {found[0].name!r}", name)
    (source,) = found
    chosen = _place(source)
    if anew and chosen.exists():
        number = next(n for n in range(1, sys.maxsize) if not chosen.with_suffix(f".{n}.ipynb").exists())
        chosen.rename(chosen.with_suffix(f".{number}.ipynb"))
    for listed in [*notebook.find(), source]:
        if not (path := _place(listed)).exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(listed.path, path)
    if paths.figures().is_dir() and not (folder() / "figures").exists():
        shutil.copytree(paths.figures(), folder() / "figures")
    return chosen


def _place(source: notebook.Source) -> Path:
    return folder() / "notebooks" / source.paper / source.path.name


def command(path: Path, options: Sequence[str] = ()) -> list[str]:
    """Return the command that opens a notebook in JupyterLab, with further options of it."""
    root = hasattr(os, "getuid") and os.getuid() == 0
    allowed = ["--allow-root"] if root else []
    return [sys.executable, "-m", "jupyter", "lab", *allowed, f"--ServerApp.root_dir={folder()}", *options, str(path)]


def edit(name: str, options: Sequence[str] = (), anew: bool = False) -> int:
    """Open the working copy of a notebook, and return the exit status of JupyterLab once it ends."""
    path = copy(name, anew)
    print(f"The working copy is {path}.", flush=True)
    variables = os.environ | {"FEDREPRO_FIGURES": str(folder() / "figures")}
    return subprocess.run(command(path, options), env=variables).returncode
