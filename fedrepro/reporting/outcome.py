"""State what claims and checks came to, one fact a sentence, for the part of a notebook that says what came out."""

from __future__ import annotations

import copy
import html
from collections import Counter
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedrepro.errors import require
from fedrepro.reporting import checks, files

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

LISTED = 6  # checks that are named one by one


def sentences(frame: pd.DataFrame) -> list[str]:
    """Return what a frame of judged claims or of checks came to.

    Args:
        frame: of `Notebook.claims` or of `checks.collect`, which have a column `verdict` and one of `claim` and
            `statement`.

    Raises:
        ArgumentError: the frame has none of these.
    """
    known = "verdict" in frame and ("claim" in frame or "statement" in frame)
    require(known, "frame", "one of claims or of checks", list(frame.columns))
    return of_claims(frame) if "claim" in frame else of_checks(frame)


def of_claims(frame: pd.DataFrame) -> list[str]:
    """Return the count of each verdict, and one sentence a claim with the verdict first."""
    counts = ", ".join(f"{count} {files.plain(verdict)}" for verdict, count in Counter(frame["verdict"]).items())
    said = [f"Of {len(frame)} claims: {counts}."] if len(frame) > 1 else []
    return said + [_sentence(row.verdict, row.id, row.claim) for row in frame.itertuples()]


def of_checks(frame: pd.DataFrame) -> list[str]:
    """Return how many checks hold, the ones that do not, and what the negative controls came to."""
    control = frame["id"].astype(str).str.endswith("-control")
    plain, controls = frame[~control], frame[control]
    if frame.empty:
        return ["No check was run."]
    said = [f"{int(plain['verdict'].eq(checks.HOLDS).sum())} of {len(plain)} checks hold."] if len(plain) else []
    other = plain[plain["verdict"].ne(checks.HOLDS)]
    said += [_sentence(row.verdict, row.id, row.statement) for row in other.head(LISTED).itertuples()]
    if len(other) > LISTED:
        rest = Counter(other["verdict"].iloc[LISTED:])
        said.append(
            "Of the others that do not hold, "
            + ", ".join(f"{n}: {files.plain(word)}" for word, n in rest.items())
            + "."
        )
    if len(controls):
        caught = int(controls["verdict"].eq(checks.CAUGHT).sum())
        said.append(f"{caught} of {len(controls)} negative controls fail, as they must.")
    missed = controls[controls["verdict"].ne(checks.CAUGHT)]
    return said + [_sentence(row.verdict, row.id, row.statement) for row in missed.itertuples()]


def _sentence(verdict: Any, id_: Any, text: str) -> str:
    return f"**{files.plain(verdict)}** ({files.plain(id_)}): {files.plain(text).rstrip('.')}."


def styled(table: Styler) -> str:
    """Return a styled table as HTML in which the text of cells and headings is no markup, as that of a plain table."""

    def escaped(value: Any) -> Any:
        return html.escape(value) if isinstance(value, str) else value

    shown = copy.copy(table)
    shown.data = (
        table.data.map(escaped).rename(index=escaped, columns=escaped).rename_axis(index=escaped, columns=escaped)
    )
    shown.index, shown.columns = shown.data.index, shown.data.columns
    return str(shown.to_html())


def folded(frame: pd.DataFrame, what: str = "numbered deviations from the paper") -> Any:
    """Return a table that is folded under the count of its rows, for JupyterLab and for pages."""
    from IPython.display import HTML

    table = frame.to_html(index=False, border=0, classes="dataframe", justify="left")
    return HTML(f"<details><summary>{len(frame)} {html.escape(what)}</summary>{table}</details>")  # type: ignore[no-untyped-call]
