"""Find the checkout, the store of results, the figures and the raw graphs."""

from __future__ import annotations

import os
from pathlib import Path


def root() -> Path:
    """Return the checkout that this package was imported from, or the current directory for an installed copy."""
    checkout = Path(__file__).resolve().parent.parent
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


def store() -> Path:
    """Return the folder of results: `$FEDREPRO_STORE`, else `data/results`."""
    return Path(os.environ.get("FEDREPRO_STORE") or root() / "data" / "results")


def figures() -> Path:
    """Return the folder of exhibits: `$FEDREPRO_FIGURES`, else `figures`."""
    return Path(os.environ.get("FEDREPRO_FIGURES") or root() / "figures")


def smoke() -> Path:
    """Return where two-round results and their figures go, apart from the real ones: `build/smoke`."""
    return root() / "build" / "smoke"


def raw_folders() -> list[Path]:
    """Return the folders searched for raw graphs, in order: `$FEDREPRO_DATA`, then `data/raw`."""
    extra = os.environ.get("FEDREPRO_DATA")
    return ([Path(extra)] if extra else []) + [root() / "data" / "raw"]
