"""State what claims and checks came to, one fact a sentence, for the part of a notebook that says what came out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from fedrepro.errors import require
from fedrepro.reporting import checks

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
    counts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(frame["verdict"]).items())
    said = [f"Of {len(frame)} claims: {counts}."] if len(frame) > 1 else []
    return said + [f"**{row.verdict}** ({row.id}): {row.claim.rstrip('.')}." for row in frame.itertuples()]


def of_checks(frame: pd.DataFrame) -> list[str]:
    """Return how many checks hold, the ones that do not, and what the negative controls came to."""
    control = frame["id"].astype(str).str.endswith("-control")
    plain, controls = frame[~control], frame[control]
    if frame.empty:
        return ["No check was run."]
    judged = plain["verdict"][plain["verdict"].isin((checks.HOLDS, checks.FAILS))]  # an attack has other words
    said = [f"{int(judged.eq(checks.HOLDS).sum())} of {len(judged)} checks hold."] if len(judged) else []
    other = plain[plain["verdict"].ne(checks.HOLDS)]
    said += [f"**{row.verdict}** ({row.id}): {row.statement.rstrip('.')}." for row in other.head(LISTED).itertuples()]
    if len(other) > LISTED:
        rest = Counter(other["verdict"].iloc[LISTED:])
        said.append("Of the others that do not hold, " + ", ".join(f"{n}: {word}" for word, n in rest.items()) + ".")
    if len(controls):
        caught = int(controls["verdict"].eq(checks.CAUGHT).sum())
        said.append(f"{caught} of {len(controls)} negative controls fail, as they must.")
    missed = controls[controls["verdict"].ne(checks.CAUGHT)]
    return said + [f"**{row.verdict}** ({row.id}): {row.statement.rstrip('.')}." for row in missed.itertuples()]


def folded(frame: pd.DataFrame, what: str = "numbered deviations from the paper") -> Any:
    """Return a table that is folded under the count of its rows, for JupyterLab and for pages."""
    from IPython.display import HTML

    table = frame.to_html(index=False, border=0, classes="dataframe", justify="left")
    return HTML(f"<details><summary>{len(frame)} {what}</summary>{table}</details>")  # type: ignore[no-untyped-call]
