"""FedStruct: identities and propositions as rows of id, statement, measured, bound, verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fedrepro.errors import one_of

if TYPE_CHECKING:
    import pandas as pd

EXACT = 1e-10
HOLDS, FAILS, CONTROL, PASSED = "holds", "fails", "fails, as it must", "holds, but must not"


class Check(NamedTuple):
    """One entry of a check's result that has to stay below a bound, or, as a control, above it."""

    statement: str
    entry: str
    control: bool = False


CHECKS: dict[str, dict[str, Check]] = {
    "FS-L1": {
        "FS-L1": Check("Lemma 1: the gradient of softmax with cross-entropy is y^ - y (Eq. 17)", "lemma1"),
        "FS-L1-control": Check("the same with the softmax applied twice", "lemma1_control", True),
    },
    "FS-Th1": {
        "FS-Th1": Check("Proposition 1: other clients' rows of A- do not enter a client's gradients", "prop1_outside"),
        "FS-Th1-control": Check("its own rows do", "prop1_inside", True),
    },
    "FS-Th2": {
        "FS-Th2": Check("Proposition 2: gradient with respect to S (Eq. 16)", "prop2"),
        "FS-Th2-control": Check("the same with A- transposed", "prop2_control", True),
    },
    "FS-Th3": {
        "FS-Th3": Check("Proposition 3: local gradients (Eq. 22)", "prop3"),
        "FS-Th3-control": Check("the same summed over the client's own nodes alone", "prop3_control", True),
    },
    "FS-Th4": {
        "FS-Th4": Check("Proposition 4: gradients with Theta_c, summed over the client's labelled nodes", "prop4"),
        "FS-Th4-control": Check("the same without Theta_c", "prop4_control", True),
        "FS-Th4-printed": Check("as printed: summed over the labelled nodes of all clients", "prop4_printed"),
    },
    "FS-I1": {
        "FS-I1": Check("Z = U T(Lambda) U^-1 G (Eq. 11 and 12 with the inverse)", "inverse"),
        "FS-I1-printed": Check("as printed: U^T for U^-1, though A^ is not symmetric (FS-Q8)", "transpose"),
        "FS-I1-symmetric": Check("U^T for the symmetric normalization", "symmetric"),
    },
    "FS-I2": {
        "FS-I2": Check("blocks put together without pruning equal the central power", "full_difference"),
        "FS-I2-quick": Check("Algorithm 3 word by word equals the form used in training", "difference"),
    },
    "FS-A3": {"FS-A3": Check("the same with pruned blocks (ceil(p/K) n_i of each)", "difference")},
    "FS-A5": {
        "FS-A5": Check("predictions from shared sums equal those from S (Eq. 45 to 49)", "prediction"),
        "FS-A5-gradient": Check("and so do gradients (Eq. 46, 48, 50)", "gradient"),
    },
}
for _id, _box in (("FS-A1", "Algorithm 1"), ("FS-A2", "Algorithm 2"), ("FS-A4", "Algorithm 4")):
    CHECKS[_id] = {
        _id: Check(f"{_box} as a plain loop over clients: weights after three rounds", "weights"),
        f"{_id}-predictions": Check("and predictions", "predictions"),
        f"{_id}-control": Check("the same with one client's gradient left out", "one_step_control", True),
    }


def check_rows(frame: pd.DataFrame, exhibit: str) -> pd.DataFrame:
    """The checks of an exhibit on its stored runs: the worst run decides, for a control the mildest."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for name, check in CHECKS[one_of("exhibit", exhibit, CHECKS)].items():
        values = frame[check.entry].dropna().astype(float) if check.entry in frame else pd.Series(dtype=float)
        if len(values):
            measured = float(values.min() if check.control else values.max())
            inside = measured < EXACT
            found = (PASSED if inside else CONTROL) if check.control else (HOLDS if inside else FAILS)
            rows.append({"id": name, "statement": check.statement, "measured": measured, "bound": EXACT,
                         "verdict": found})  # fmt: skip
    return pd.DataFrame(rows, columns=["id", "statement", "measured", "bound", "verdict"])
