"""Check FedStruct's algorithms, propositions and identities, which `checks.csv` states with negative controls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from fedrepro import paths
from fedrepro.errors import one_of
from fedrepro.reporting import checks, exhibits

if TYPE_CHECKING:
    from fedrepro.reporting.session import Notebook

EXACT = 1e-10  # what two ways to compute a number in float64 may differ by

# The checks of each exhibit: ID, statement, and the entry of the record that must stay below `EXACT`. The entry of a
# control must not.
STATED = paths.read_csv(exhibits.folder("fedstruct") / "checks.csv")


def rows(frame: pd.DataFrame, *exhibit_ids: str) -> pd.DataFrame:
    """Return the checks of some exhibits on their runs: the worst run decides, and for a control the mildest.

    A run that has no number, or NaN, fails. No client can follow the budget "matrix" of FS-A3, whose runs are left out.

    Raises:
        ArgumentError: an exhibit has no checks.
    """
    by_run: list[list[checks.Row]] = []
    for exhibit_id in exhibit_ids:
        one_of("exhibit", exhibit_id, {check["exhibit"] for check in STATED})
        runs = frame[frame["budget"].eq("blocks")] if exhibit_id == "FS-A3" and len(frame) else frame
        stated = [check for check in STATED if check["exhibit"] == exhibit_id and check["entry"] in runs]
        errors = zip(*(runs[check["entry"]].astype(float) for check in stated))
        by_run += [[_judge(check, error) for check, error in zip(stated, of_run)] for of_run in errors]
    return checks.collect(pd.DataFrame({"checks": by_run})).astype({"measured": float})


def _judge(check: dict[str, str], error: float) -> checks.Row:
    """Return the row of a stated check on one run; its number is None where the run has NaN, as the store keeps it."""
    judge = checks.control if checks.is_control(check) else checks.row
    row = judge(check["id"].removesuffix("-control"), check["statement"], error, EXACT)
    return row | {"measured": None} if math.isnan(error) else row


def save(nb: Notebook, frame: pd.DataFrame, *exhibit_ids: str) -> pd.DataFrame:
    """Write the checks of some exhibits, each to its own file and all to the paper's, and return them."""
    table = rows(frame, *exhibit_ids)
    checks.save(nb, table, *exhibit_ids)
    return table


def derivatives_check(collusion: pd.DataFrame) -> checks.Row:
    """Return whether G.1's condition on the derivatives (Eq. 48) holds on all graphs if all clients but one collude.

    Args:
        collusion: as `counts.colluding` returns it.
    """
    statement = "G.1 with Table 5's g: m d_s > c |theta_s| |V~_1|, all clients but one together (right side over left)"
    ratio = collusion.loc[collusion["client_1"].eq("all but one"), "derivatives"].max(skipna=False)
    return checks.row("FS-I5-graphs-derivatives", statement, ratio, 1.0)


def example_check(misprints: pd.DataFrame) -> checks.Row:
    """Return whether the worked example is printed as its definitions give it (FS-I3)."""
    statement = "places of D.2 that differ from what the definitions give (FS-Q13)"
    return checks.row("FS-I3", statement, len(misprints), 0)
