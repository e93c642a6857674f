"""Note what a notebook reads and writes, so that it need not run again before something of it has changed.

A kernel notes the files of the checkout that it opens or replaces, the modules of this package that it has imported,
and the runs that its notebook asked the store for.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedrepro import paths, registry
from fedrepro.runs import codehash

FILE = "FEDREPRO_TRACE"  # names the file that the trace is written to
LEFT_OUT = ("build", "data", ".git")
KINDS = (".py", ".csv", ".json", ".toml", ".ipynb", ".md", ".tex", ".txt", ".svg")  # not compiled ones or locks


_read: set[str] = set()
_written: set[str] = set()


@functools.cache
def begin() -> None:
    """Note from now on what this process, and each that is forked from it, opens or replaces."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | os.PathLike):
            flags = arguments[2] or 0
            (_written if flags & (os.O_WRONLY | os.O_RDWR) else _read).add(os.path.abspath(arguments[0]))
        elif event == "os.rename" and isinstance(arguments[1], str | os.PathLike):
            _written.add(os.path.abspath(arguments[1]))

    sys.addaudithook(note)


@contextlib.contextmanager
def kept(file: str) -> Iterator[None]:
    """Trace this process until the end of the block, and write the trace to a file; do nothing without one."""
    if not file:
        yield
        return
    root, figures = str(paths.root()), str(paths.figures())
    begin()
    yield
    # Other sources of the package are read for fingerprints, which count by themselves.
    modules = {
        getattr(module, "__file__", None) for name, module in [*sys.modules.items()] if name.startswith("fedrepro")
    }
    read = {path for path in _read if not path.endswith(".py")} | {os.path.abspath(path) for path in modules if path}
    read.add(str(registry.FILE))  # which is read with the first import of this package
    session: Any = sys.modules.get("fedrepro.reporting.session")
    told = {
        "read": sorted(path for path in read if _counts(path, root, figures)),
        "written": sorted(path for path in _written if _within(path, figures) and os.path.isfile(path)),
        "asked": sorted(session.asked) if session else [],
        "executed": sorted(session.executed) if session else [],
    }
    Path(file).write_text(json.dumps(told), encoding="utf-8")


def _within(path: str, *folders: str) -> bool:
    return path.startswith(tuple(folder + os.sep for folder in folders)) and path.endswith(KINDS)


def _counts(path: str, root: str, figures: str) -> bool:
    inside = _within(path, root) and Path(path).relative_to(root).parts[0] not in LEFT_OUT
    return inside or _within(path, figures, str(codehash.root()))  # an installed package is not below the root
