"""Where things lie: the checkout, the store of results, the figures, the raw graphs."""

from __future__ import annotations

import os
from pathlib import Path


def root() -> Path:
    """The checkout this package was imported from; the current directory for an installed copy."""
    checkout = Path(__file__).resolve().parent.parent
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


def paper(name: str) -> Path:
    """Return the folder of a paper in this package, with its printed numbers and deviations."""
    return Path(__file__).resolve().parent / "papers" / name


def store() -> Path:
    """The folder of results: `$FEDREPRO_STORE`, else `data/results`."""
    return Path(os.environ.get("FEDREPRO_STORE") or root() / "data" / "results")


def figures() -> Path:
    """The folder of exhibits: `$FEDREPRO_FIGURES`, else `figures`."""
    return Path(os.environ.get("FEDREPRO_FIGURES") or root() / "figures")


def smoke() -> Path:
    """Where two-round results and their figures go, apart from the real ones: `build/smoke`."""
    return root() / "build" / "smoke"


def raw_folders() -> list[Path]:
    """Folders searched for raw graphs, in order: `$FEDREPRO_DATA`, then `data/raw`."""
    given = os.environ.get("FEDREPRO_DATA")
    return ([Path(given)] if given else []) + [root() / "data" / "raw"]
