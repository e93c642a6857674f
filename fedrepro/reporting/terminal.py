"""Print tables: as wide as they are where the output is read by a program, and within the lines of a terminal."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


KEPT = "\N{NO-BREAK SPACE}"


def shown(text: str) -> str:
    """Return text in which control characters are spelled out, so that stored text cannot steer the terminal."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)


def warned(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Print a warning as one line on stderr, without the code that it comes from, instead of `warnings.showwarning`.

    A line that cannot be written is lost, as Python's own is.
    """
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"fedrepro: {shown(' '.join(str(message).split()))}", file=sys.stderr)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Iterable[str] = (), whole: Iterable[str] = ()
) -> None:
    """Print rows under their columns.

    In a terminal, or within `$COLUMNS`, cells are wrapped between words if the lines would be too long. If even
    the longest words are too long, each row is printed as a paragraph of `column: value`. A word is never broken.

    Args:
        columns: the headings.
        rows: the cells, which are printed as they are, but for control characters.
        right: columns aligned at the right.
        whole: columns that are never wrapped, such as names.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    right, whole = set(right), set(whole)
    text = [["" if cell is None else shown(str(cell)).expandtabs() for cell in row] for row in (columns, *rows)]
    natural, words = (
        [max(cell_len(part) for row in text for part in (row[k].split(at) or [""])) for k in range(len(columns))]
        for at in ("\n", None)
    )
    least = [natural[k] if name in whole else words[k] for k, name in enumerate(columns)]
    room = _width() - len(columns) if sys.stdout.isatty() or "COLUMNS" in os.environ else sum(natural)
    if sum(least) > room:
        for row in text[1:]:
            _paragraph([f"{name}: {cell}" for name, cell in zip(text[0], row) if cell])
        return
    widths = list(natural)
    while sum(widths) > room:  # the widest is narrowed first
        widest = max((k for k in range(len(widths)) if widths[k] > least[k]), key=widths.__getitem__)
        widths[widest] -= 1
    drawn = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name, width in zip(text[0], widths):
        drawn.add_column(Text(name), justify="right" if name in right else "left", width=width)
    for row in text[1:]:
        drawn.add_row(*map(Text, row))
    console = Console(highlight=False, width=sum(widths) + len(columns))
    with console.capture() as captured:
        console.print(drawn)
    for line in captured.get().splitlines():
        print(line.rstrip())


def frame(given: pd.DataFrame, whole: Iterable[str] = (), notes: Iterable[str] = ()) -> None:
    """Print a frame. A value that is the same in all of its rows is printed once, above.

    The texts of the columns `notes`, which are sentences, are numbered and stand below, and the table has their
    numbers.
    """
    import pandas as pd

    text = given.map(lambda value: f"{value:.4g}" if isinstance(value, float) and value == value else value)
    text = text.astype(object).where(given.notna(), "").astype(str)
    text = text[[name for name in text if text[name].ne("").any()]]
    kept = [name for name in text if len(text) < 2 or text[name].nunique() > 1]
    for name in [name for name in text if name not in kept]:
        print(shown(f"{name}: {text[name].iloc[0]}"))
    below = []
    for name in (name for name in notes if name in kept):
        numbers = {said: str(k) for k, said in enumerate(filter(None, dict.fromkeys(text[name])), 1)}
        text[name] = text[name].map({"": "", **numbers})
        below += [f"{name} {number}: {said}" for said, number in numbers.items()]
    right = [name for name in kept if pd.api.types.is_numeric_dtype(given[name])]
    if kept:
        table(kept, text[kept].values.tolist(), right, whole)
    print("\n".join(map(shown, ["", *below] if below else [])), end="\n" if below else "")


def csv(given: pd.DataFrame | Sequence[Mapping[str, Any]]) -> None:
    """Print a frame, or rows, as CSV, all of it."""
    import pandas as pd

    plain = pd.DataFrame(given).map(lambda value: shown(value) if isinstance(value, str) else value)
    plain.to_csv(sys.stdout, index=False, lineterminator="\n")


def lines(words: Sequence[str], indent: int = 2, between: str = "") -> None:
    """Print names, separated by a space behind `between`, in lines that fit; a name is never broken."""
    text = f"{between} ".join(word.replace(" ", KEPT) for word in words)
    print("".join(f"{' ' * indent}{line}\n" for line in _wrapped(text, indent)), end="")


def _paragraph(parts: Sequence[str]) -> None:
    """Print parts of which those that fit into a line are not broken; all lines but the first are indented."""
    text = "  ".join(part.replace(" ", KEPT) if len(part) <= _width() - 2 else part for part in parts)
    print("\n  ".join(_wrapped(text, 2)))


def _wrapped(text: str, indent: int) -> list[str]:
    lines = textwrap.wrap(text, max(1, _width() - indent), break_long_words=False, break_on_hyphens=False)
    return [line.replace(KEPT, " ") for line in lines]


def _width() -> int:
    from rich.console import Console

    return Console().width
