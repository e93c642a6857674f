"""Print tables that fit a terminal; where there is none, 80 columns or `$COLUMNS`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def shown(text: str) -> str:
    """Return text in which control characters are spelled out, so that stored text cannot steer the terminal."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Iterable[str] = (), whole: Iterable[str] = ()
) -> None:
    """Print rows under their columns; what does not fit is folded inside its cell.

    Args:
        columns: the headings.
        rows: the cells, which are printed as they are, but for control characters.
        right: columns aligned at the right.
        whole: columns that are never folded, such as names.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    right, whole = set(right), set(whole)
    drawn = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in columns:
        justify: Any = "right" if name in right else "left"
        drawn.add_column(Text(shown(name)), justify=justify, no_wrap=name in whole, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text("" if cell is None else shown(str(cell))) for cell in row))
    Console(highlight=False).print(drawn)


def frame(given: pd.DataFrame, whole: Iterable[str] = ()) -> None:
    """Print a frame. What is the same in all of its rows is said once, above."""
    import pandas as pd

    text = given.map(lambda value: f"{value:.4g}" if isinstance(value, float) and value == value else value)
    text = text.astype(object).where(given.notna(), "").astype(str)
    text = text[[name for name in text if text[name].ne("").any()]]
    kept = [name for name in text if len(text) < 2 or text[name].nunique() > 1]
    for name in [name for name in text if name not in kept]:
        print(shown(f"{name}: {text[name].iloc[0]}"))
    right = [name for name in kept if pd.api.types.is_numeric_dtype(given[name])]
    if kept:
        table(kept, text[kept].values.tolist(), right, whole)


def lines(words: Sequence[str], indent: int = 2, between: str = "") -> None:
    """Print names, separated by a space behind `between`, in lines that fit; a name is never broken."""
    from rich.console import Console

    kept = "\N{NO-BREAK SPACE}"
    text = f"{between} ".join(word.replace(" ", kept) for word in words)
    width = max(1, Console().width - indent)
    for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
        print(" " * indent + line.replace(kept, " "))
