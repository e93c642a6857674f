"""Find the checkout, the store of results, the figures and the raw graphs; read tables, and write files whole."""

from __future__ import annotations

import csv
import errno
import os
import tomllib
from pathlib import Path
from typing import Any

from fedrepro.errors import StoreError, require

_PLACE = Path(__file__).resolve().parent.parent
CHECKOUT = _PLACE if (_PLACE / "pyproject.toml").is_file() else None  # None for an installed copy


def root() -> Path:
    """Return the checkout that this package was imported from.

    An installed copy has the user's folder of data in its place, `$XDG_DATA_HOME/fedrepro`, so that it writes nothing
    into the folder in which somebody happens to work.
    """
    return CHECKOUT or Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "fedrepro"


def notebooks() -> Path:
    """Return the folder of the notebooks, of which an installed copy has its own."""
    return root() / "notebooks" if CHECKOUT else Path(__file__).resolve().parent / "notebooks"


def require_checkout(command: str) -> None:
    """Raise for an installed copy, which has neither the gallery nor the stored results.

    Args:
        command: what needs them.

    Raises:
        ArgumentError: this package was not imported from a checkout.
    """
    allowed = (
        "that of a checkout of fedrepro, which has the gallery and the stored results; an installed copy has neither"
    )
    require(CHECKOUT is not None, f"`fedrepro {command}`", allowed, str(Path(__file__).parent))


def store() -> Path:
    """Return the folder of results: `$FEDREPRO_STORE`, else `data/results`."""
    return Path(os.environ.get("FEDREPRO_STORE") or root() / "data" / "results")


def elsewhere() -> bool:
    """Return whether `$FEDREPRO_STORE` names another folder of results than `data/results`."""
    return store().resolve() != (root() / "data" / "results").resolve()


def require_own_figures() -> None:
    """Raise if the gallery, which is of `data/results`, would be rewritten from another store.

    Raises:
        ArgumentError: `$FEDREPRO_STORE` names another folder, and `$FEDREPRO_FIGURES` none.
    """
    apart = not elsewhere() or bool(os.environ.get("FEDREPRO_FIGURES"))
    allowed = f"set too, since FEDREPRO_STORE is {store()} and the gallery in {figures()} is of data/results"
    require(apart, "FEDREPRO_FIGURES", allowed, "")


def personal() -> Path:
    """Return the folder of results that belong to no paper: `$FEDREPRO_STORE`, else `build/mine`."""
    return Path(os.environ.get("FEDREPRO_STORE") or root() / "build" / "mine")


def figures() -> Path:
    """Return the folder of exhibits: `$FEDREPRO_FIGURES`, else `figures`."""
    return Path(os.environ.get("FEDREPRO_FIGURES") or root() / "figures")


def smoke() -> Path:
    """Return where two-round results and their figures go, apart from the real ones: `build/smoke`."""
    return root() / "build" / "smoke"


def cache() -> Path:
    """Return where what can be worked out again is kept: `build/cache`, or the user's cache without a checkout."""
    if CHECKOUT:
        return root() / "build" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedrepro"


def raw_folders() -> list[Path]:
    """Return the folders searched for raw graphs, in order: `$FEDREPRO_DATA`, then `data/raw`."""
    extra = os.environ.get("FEDREPRO_DATA")
    return ([Path(extra)] if extra else []) + [root() / "data" / "raw"]


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table with a heading, as texts by the names of their columns."""
    with path.open(encoding="utf-8", newline="") as content:
        return list(csv.DictReader(content))


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a settings file by their names."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def make_folder(folder: Path) -> None:
    """Make a folder and those it lies in, and sync the names of the new ones."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        sync(path.parent)


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on the disk, so that they are there after a power cut.

    Windows and some network file systems cannot do this, and nothing happens there.
    """
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all, making its folder; it is on the disk when this returns.

    Raises:
        StoreError: the file cannot be written; its former content is still there.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        make_folder(path.parent)
        try:
            partial.write_bytes(content)
            sync(partial)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        sync(path.parent)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from error
    return path
