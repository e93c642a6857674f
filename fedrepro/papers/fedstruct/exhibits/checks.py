"""State FedStruct's algorithms, propositions and identities as checks with a bound and negative controls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from fedrepro.errors import one_of
from fedrepro.reporting import checks, files

if TYPE_CHECKING:
    from fedrepro.reporting.session import Notebook

EXACT = 1e-10  # what two ways to compute a number in float64 may differ by

# Exhibit -> ID of a check -> its statement, and the entry of the record that must stay below `EXACT`. The entry of a
# control must not.
CHECKS: dict[str, dict[str, tuple[str, str]]] = {
    "FS-L1": {
        "FS-L1": ("Lemma 1: the gradient of softmax with cross-entropy is y^ - y (Eq. 17)", "lemma1"),
        "FS-L1-control": ("the same with the softmax applied twice", "lemma1_control"),
    },
    "FS-Th1": {
        "FS-Th1": (
            "Proposition 1: a client's gradients do not change with rows of A- other than those of its labelled nodes, "
            "nor with features, labels and edges of others",
            "prop1_outside",
        ),
        "FS-Th1-control": ("with changed rows of its labelled nodes", "prop1_inside"),
        "FS-Th1-predictions": ("nor do its logits at labelled nodes", "prop1_logits"),
        "FS-Th1-predictions-control": ("with changed rows of its labelled nodes", "prop1_logits_inside"),
        "FS-Th1-features-control": ("with changed features of its own: logits at labelled nodes", "prop1_features"),
    },
    "FS-Th2": {
        "FS-Th2": ("Proposition 2: gradient with respect to S (Eq. 16)", "prop2"),
        "FS-Th2-control": ("the same with A- transposed", "prop2_control"),
    },
    "FS-Th3": {
        "FS-Th3": ("Proposition 3: local gradients (Eq. 22)", "prop3"),
        "FS-Th3-control": ("the same summed over the client's own nodes only", "prop3_control"),
    },
    "FS-Th4": {
        "FS-Th4": ("Proposition 4: gradients with Theta_c, summed over the client's labelled nodes", "prop4"),
        "FS-Th4-control": ("the same without Theta_c", "prop4_control"),
        "FS-Th4-printed": ("as printed: summed over the labelled nodes of all clients", "prop4_printed"),
    },
    "FS-I1": {
        "FS-I1": ("Z = U T(Lambda) U^-1 G (Eq. 11 and 12 with the inverse)", "inverse"),
        "FS-I1-printed": ("as printed: U^T for U^-1, though A^ is not symmetric (FS-Q8)", "transpose"),
        "FS-I1-symmetric": ("U^T for the symmetric normalization", "symmetric"),
    },
    "FS-I2": {
        "FS-I2": ("blocks put together without pruning equal the central power", "full_difference"),
        "FS-I2-control": ("the same without one client's blocks at the others", "full_difference_control"),
        "FS-I2-quick": ("Algorithm 3 executed line by line equals the form used in training", "difference"),
        "FS-I2-quick-control": ("the same without one client's blocks at the others", "difference_control"),
    },
    "FS-I5-graphs": {
        "FS-I5-graphs": (
            "G.1 with Hop2Vec: m > |V~_1| where all clients but one collude (share of clients without it)",
            "together.broken",
        ),
    },
    "FS-A3": {
        "FS-A3": (
            "Algorithm 3 executed line by line with pruned blocks (ceil(p/K) n_i of each) equals the form used in "
            "training",
            "difference",
        ),
        "FS-A3-control": ("the same without one client's blocks at the others", "difference_control"),
    },
    "FS-A5": {
        "FS-A5": ("predictions from shared sums equal those from S (Eq. 45 to 49)", "prediction"),
        "FS-A5-control": ("the same without one client's sums", "prediction_control"),
        "FS-A5-gradient": ("and so do gradients (Eq. 46, 48, 50)", "gradient"),
        "FS-A5-gradient-control": ("the same without one client's sums", "gradient_control"),
    },
}
for _id, _box in (("FS-A1", "Algorithm 1"), ("FS-A2", "Algorithm 2"), ("FS-A4", "Algorithm 4")):
    CHECKS[_id] = {
        _id: (f"{_box} as a plain loop over clients: weights after three rounds", "weights"),
        f"{_id}-predictions": ("and predictions", "predictions"),
        f"{_id}-control": ("the same with one client's gradient left out", "one_step_control"),
    }
CHECKS["FS-A2"] |= {
    "FS-A2-structure": ("and the features S", "result.structure"),
    "FS-A2-structure-control": ("S with one client's gradient left out", "structure_control"),
}


def rows(frame: pd.DataFrame, *exhibit_ids: str) -> pd.DataFrame:
    """Return the checks of some exhibits on their runs: the worst run decides, and for a control the mildest.

    A run that has no number, or NaN, fails. No client can follow the budget "matrix" of FS-A3, whose runs are left out.

    Raises:
        ArgumentError: an exhibit has no checks.
    """
    found = []
    for exhibit_id in exhibit_ids:
        stated = CHECKS[one_of("exhibit", exhibit_id, CHECKS)]
        runs = frame[frame["budget"].eq("blocks")] if exhibit_id == "FS-A3" and len(frame) else frame
        for id_, (statement, entry) in stated.items():
            errors = runs[entry].astype(float) if entry in runs else pd.Series(dtype=float)
            if errors.empty:
                continue
            if checks.is_control({"id": id_}):
                found.append(checks.control(id_.removesuffix("-control"), statement, errors.min(skipna=False), EXACT))
            else:
                found.append(checks.row(id_, statement, errors.max(skipna=False), EXACT))
    return pd.DataFrame(found, columns=list(checks.COLUMNS))


def save(nb: Notebook, frame: pd.DataFrame, *exhibit_ids: str) -> pd.DataFrame:
    """Write the checks of some exhibits, each to its own file and all to the paper's, and return them."""
    table = rows(frame, *exhibit_ids)
    nb.checks(table)
    for exhibit_id in exhibit_ids:
        own = rows(frame, exhibit_id)
        nb.save(exhibit_id, own.assign(measured=own["measured"].map(files.machine)))
    return table


def derivatives_check(collusion: pd.DataFrame) -> checks.Row:
    """Return whether G.1's condition on the derivatives (Eq. 48) holds on all graphs if all clients but one collude.

    Args:
        collusion: as `counts.colluding` returns it.
    """
    statement = "G.1 with Table 5's g: m d_s > c |theta_s| |V~_1|, all clients but one together (right side over left)"
    return checks.row(
        "FS-I5-graphs-derivatives",
        statement,
        collusion.loc[collusion["client_1"].eq("all but one"), "derivatives"].max(skipna=False),
        1.0,
    )


def example_check(misprints: pd.DataFrame) -> checks.Row:
    """Return whether the worked example is printed as its definitions give it (FS-I3)."""
    statement = "places of D.2 that differ from what the definitions give (FS-Q13)"
    return checks.row("FS-I3", statement, len(misprints), 0)
