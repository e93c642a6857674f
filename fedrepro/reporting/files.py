"""Write tables and pages: the same bytes in any process, and each file whole or not at all.

A page is Markdown around text that is data: names, words and sentences of tables. `plain` and `link` are how such text
gets into a page, so that nothing in it becomes markup. Text for HTML goes through `html.escape`.
"""

from __future__ import annotations

import html
import io
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from fedrepro import paths
from fedrepro.errors import StoreError, require
from fedrepro.reporting.exhibits import natural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, str]

# Characters that are markup in Markdown, on GitHub or on the site. `**` is not among them, since sentences are stored
# with it. Neither are characters that begin nothing: a bracket before no link or definition, and a star or underscore
# that ends a word. None of these can do more than set letters in another type.
_MARKUP = re.compile(r"[\\`|$~]|\](?=[(\[:{])|&(?=#?\w+;)|(?<!\*)\*(?!\*)(?=\w)|(?<![*\w])\*(?=[^*\s])|(?<!\w)_(?=\S)")
_START = re.compile(r"[#>%]|[-+](?=[\s+-]|$)|\((?=\S*\)=)|\d+(?=[.)](\s|$))")  # what is markup where a block begins


def save(
    paper: str,
    exhibit_id: str,
    frame: pd.DataFrame,
    figure: Figure | None = None,
    folder: Path | str | None = None,
) -> list[Path]:
    """Write an exhibit: `<folder>/<paper>/<exhibit_id>.csv`, and with a figure `.svg`.

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
    folder = Path(folder or paths.figures()) / paper
    written = [paths.replace_file(folder / f"{exhibit_id}.csv", csv_text(frame).encode())]
    if figure is not None:
        from fedrepro.reporting import legible, shown

        legible.arrange(figure)
        figure.set_layout_engine(None)  # laid out now; doing it again costs as much as drawing
        picture = drawn(figure)
        for fault in legible.faults(figure, drawn=True):
            warnings.warn(f"{exhibit_id} cannot be read in full: {fault}", stacklevel=2)
        written.append(paths.replace_file(folder / f"{exhibit_id}.svg", picture))
        shown.keep(figure, picture.decode())
    return written


def drawn(figure: Figure) -> bytes:
    """Return a figure as the content of an SVG file, the same bytes in any process."""
    import matplotlib.pyplot as plt

    from fedrepro.reporting.style import style

    with style(), plt.rc_context({"figure.constrained_layout.use": False}):
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _rounded(_name_clips(buffer.getvalue()))


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
    return str(frame.map(_cell).to_csv(index=False, lineterminator="\n"))


def read(path: Path, numbers: Iterable[str] = (), needed: Iterable[str] = (), **arguments: Any) -> pd.DataFrame:
    """Return a table that `save` wrote.

    Args:
        numbers: columns which must hold numbers, where the table has them.
        needed: columns which the table must have.
        arguments: those of `pandas.read_csv`.

    Raises:
        StoreError: it cannot be read, is no table, lacks a column, or holds text instead of a number.
    """
    try:
        frame: pd.DataFrame = pd.read_csv(path, **arguments)
    except (OSError, ValueError) as error:
        raise StoreError(f"Cannot read {path}: {error}.") from error
    needed = list(needed)
    if absent := [name for name in needed if name not in frame]:
        told = f"it must have the columns {', '.join(needed)}, and lacks {', '.join(absent)}"
        raise StoreError(f"Cannot read {path}: {told}.")
    for name in numbers:
        if name in frame and not pd.api.types.is_numeric_dtype(frame[name]):
            wrong = frame[name][pd.to_numeric(frame[name], errors="coerce").isna() & frame[name].notna()]
            raise StoreError(f"Cannot read {path}: the column {name} must hold numbers. Got {wrong.iloc[0]!r}.")
    return frame


def read_rows(path: Path, needed: Iterable[str] = ()) -> list[Row]:
    """Return the rows of a table as texts; none if there is no such file. Raises as `read` does."""
    if not path.is_file():
        return []
    frame = read(path, needed=needed, dtype=str, keep_default_na=False).fillna("")
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


class Markdown(str):
    """Text that is Markdown already, which `plain` leaves as it is."""


def plain(value: object) -> Markdown:
    """Return a value as one line of Markdown in which nothing is markup but `**`."""
    if isinstance(value, Markdown):
        return value
    return Markdown(_MARKUP.sub(r"\\\g<0>", " ".join(str(value).split())).replace("<", "&lt;"))


def item(value: object) -> Markdown:
    """Return a value as one line of a list, which begins a new block."""
    text = plain(value)
    start = _START.match(text)
    place = start.end() if start and start[0].isdigit() else 0
    return Markdown(f"- {text[:place]}\\{text[place:]}\n" if start else f"- {text}\n")


def link(value: object, target: str) -> Markdown:
    """Return a link of Markdown to a file, named from the page's folder."""
    text = re.sub(r"(?<!\\)[\[\]]", r"\\\g<0>", plain(value))
    return Markdown(f"[{text}]({quote(target)})")


def folded(heading: object, body: str) -> str:
    """Return Markdown that a page shows when its heading is clicked."""
    text = html.escape(" ".join(str(heading).split()), quote=False).replace("$", "&#36;")  # no mathematics either
    return f"<details><summary>{text}</summary>\n\n{body}\n</details>\n"


# `DataFrame.to_markdown` escapes no markup in cells, and these cells hold text of users, such as the name of a graph.
def table(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Return a table as Markdown, in which the text of cells is no markup."""
    shown = [head, [Markdown("---")] * len(head), *lines]
    return "".join(f"| {' | '.join(map(plain, line))} |\n" for line in shown)


def rows(given: Sequence[Row], head: Sequence[str] = (), most: int = 0) -> str:
    """Return rows as a table in Markdown, with the columns `head` or all; of a longer one than `most` the rest folded.

    A table without `most` is not folded.
    """
    head, rest = head or list(given[0]), given[most:] if most else []
    shown = table(head, [[row[name] for name in head] for row in (given[:most] if rest else given)])
    others = f"The other {len(rest)} rows" if rest[1:] else "The last row"
    return f"{shown}\n{folded(others, rows(rest, head))}" if rest else shown


@cache
def _pages() -> Any:
    """Return the templates of pages, in which text from a store is shown as text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = FileSystemLoader(Path(__file__).with_name("pages"))
    pages = Environment(loader=folder, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    pages.filters["plain"] = plain
    pages.globals |= {"link": link, "folded": folded, "rows": rows}
    return pages


def page(template: str, /, **values: Any) -> str:
    """Return the page of a template in `pages/`, with values filled in."""
    return f"{_pages().get_template(template).render(values).strip()}\n"


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
        merged: dict[str, Mapping[Any, Any]] = {row["id"]: row for row in [*read_rows(path), *records]}
        ordered = [merged[key] for key in sorted(merged, key=natural)]
        save(paper, kind, pd.DataFrame(ordered, columns=list(columns)), folder=folder)
    return pd.DataFrame(records, columns=list(columns))
