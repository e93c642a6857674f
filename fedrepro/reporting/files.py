"""Write tables and pages: the same bytes in any process, and each file whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedrepro import paths
from fedrepro.errors import StoreError, require
from fedrepro.reporting.exhibits import natural

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(
    paper: str,
    exhibit_id: str,
    frame: pd.DataFrame,
    figure: Figure | None = None,
    folder: Path | str | None = None,
) -> list[Path]:
    """Write an exhibit: `<folder>/<paper>/<exhibit_id>.csv`, and with a figure `.svg` and `.png`.

    The same frame and figure give the same bytes in any process. Each file is replaced whole or not at all.

    Args:
        paper: folder name, such as `fedgat` or `engine`.
        exhibit_id: such as `FG-T1`; `claims`, `checks` and `deviations` for the tables of a paper.
        frame: the table; its index is not written.
        folder: default `paths.figures()`.

    Raises:
        ArgumentError: a name is no plain file name, or `frame` no frame.
        StoreError: a file cannot be written.
    """
    for argument, name in (("paper", paper), ("exhibit_id", exhibit_id)):
        plain = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name)
        require(bool(plain), argument, "letters, digits, - and _", name)
    require(isinstance(frame, pd.DataFrame), "frame", "a pandas DataFrame", frame)
    require(figure is None or hasattr(figure, "savefig"), "figure", "a matplotlib Figure or None", figure)
    place = Path(folder or paths.figures()) / paper
    written = [paths.replace_file(place / f"{exhibit_id}.csv", csv_text(frame).encode())]
    if figure is not None:
        from fedrepro.reporting import legible

        legible.arrange(figure)
        for fault in legible.faults(figure):
            warnings.warn(f"{exhibit_id} cannot be read in full: {fault}", stacklevel=2)
        figure.set_layout_engine(None)  # laid out now; doing it again costs as much as drawing
        written += [paths.replace_file(place / f"{exhibit_id}.{kind}", drawn(figure, kind)) for kind in ("svg", "png")]
    return written


def drawn(figure: Figure, kind: str) -> bytes:
    """Return a figure as the content of an `svg` or `png` file, the same bytes in any process."""
    import matplotlib.pyplot as plt

    from fedrepro.reporting.style import style

    metadata = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[kind]
    with style(), plt.rc_context({"figure.constrained_layout.use": False}):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=metadata)
    return _rounded(_name_clips(buffer.getvalue())) if kind == "svg" else buffer.getvalue()


def _name_clips(svg: bytes) -> bytes:
    """Number the clip paths of a drawing in their order.

    Matplotlib names a path after a hash of all bits of its rectangle, and the last bits depend on the processor.
    """
    names: dict[bytes, bytes] = {}
    return re.sub(rb"\bp[0-9a-f]{10}\b", lambda found: names.setdefault(found[0], b"clip%d" % len(names)), svg)


def _rounded(svg: bytes) -> bytes:
    """Return a drawing with two decimals in its coordinates, since the last ones depend on the processor."""
    places = rb'(?<= d=")[^"]*|translate\([^)]*\)|(?<= [xy]=")[^"]*|(?<= [xy][12]=")[^"]*'
    shorten = lambda found: re.sub(rb"-?\d+\.\d{3,}", lambda number: b"%.2f" % float(number[0]), found[0])  # noqa: E731
    return re.sub(places, shorten, svg)


def csv_text(frame: pd.DataFrame) -> str:
    """Return a frame as CSV: six significant digits, LF, whole numbers in full, nothing for a missing value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(frame.columns)
    columns = [[_cell(value) for value in frame.iloc[:, place].tolist()] for place in range(frame.shape[1])]
    writer.writerows(zip(*columns))
    return text.getvalue()


def read(path: Path, **arguments: Any) -> pd.DataFrame:
    """Return a table that `save` wrote; `arguments` are those of `pandas.read_csv`.

    Raises:
        StoreError: it cannot be read, or is no table.
    """
    try:
        return pd.read_csv(path, **arguments)
    except (OSError, ValueError) as error:
        raise StoreError(f"Cannot read {path}: {error}.") from error


def machine(value: float) -> str:
    """Return the error of an identity with six significant digits, or `< 1e-12` where only rounding is left."""
    return "< 1e-12" if abs(value) < 1e-12 else f"{value:.6g}"


def _cell(value: Any) -> Any:
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, sort_keys=True)
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return ""
    if isinstance(value, (float, np.floating)):
        return f"{float(value) + 0.0:.6g}"  # + 0.0 turns -0 into 0
    return value


def merge(
    folder: Path, paper: str, kind: str, columns: Sequence[str], rows: pd.DataFrame | Iterable[Mapping[str, Any]]
) -> pd.DataFrame:
    """Merge rows by id into `<folder>/<paper>/<kind>.csv`, in the order of the ids; return the rows given.

    Raises:
        ArgumentError: a row has other columns.
    """
    from filelock import FileLock

    records = rows.to_dict("records") if isinstance(rows, pd.DataFrame) else [dict(row) for row in rows]
    for row in records:
        require(set(row) == set(columns), f"a row of {kind}", f"a mapping with keys {columns}", row)
        if isinstance(row.get("measured"), float):
            row["measured"] = machine(row["measured"])
    path = folder / paper / f"{kind}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        merged: dict[str, Mapping[Any, Any]] = {}
        if path.exists():
            old = read(path, dtype=str, keep_default_na=False)
            merged = {row["id"]: row for row in old.to_dict("records")}
        merged |= {row["id"]: row for row in records}
        ordered = [merged[key] for key in sorted(merged, key=natural)]
        save(paper, kind, pd.DataFrame(ordered, columns=list(columns)), folder=folder)
    return pd.DataFrame(records, columns=list(columns))
