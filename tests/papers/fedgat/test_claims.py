"""FedGAT's claims on messages, bounds and attacks can come out either way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from fedrepro.papers.fedgat.exhibits import CLAIMS, tables
from fedrepro.papers.fedgat.exhibits.grids import IID, NON_IID
from fedrepro.reporting import claims
from fedrepro.runs.run import Run


def judge(claim: str, frames: dict[str, pd.DataFrame]) -> tuple[str, str]:
    """Return evidence and verdict of one claim on a store that holds some exhibits."""
    return claims.select(CLAIMS, [claim])[0].judge(lambda name: frames.get(name, pd.DataFrame()))


def sent(
    power: float, iid: float, ratio: float, constant: float = 0.0, clients: Sequence[int] = (20, 50, 100)
) -> pd.DataFrame:
    """Return a constant and counts that rise as a power of the clients, `iid` times as large in iid partitions."""
    rows = []
    for n in clients:
        for partition, factor in ((NON_IID, 1.0), (IID, iid)):
            matrix = factor * (constant + 1e6 * n**power)
            row = {"dataset": "Cora", "partition": partition, "clients": n, "seed": 0, "cross_client_edges": 1}
            for name in ("matrix", "vector", "raw"):
                size = matrix / (ratio if name == "vector" else 1.0)
                row |= {f"{name}.scalars": size, f"{name}.bytes": 4 * size}
            rows.append(row | {"theorem1.cubed": 1.0, "theorem1.squared": 1.0})
    return pd.DataFrame(rows)


def costs(counts: pd.DataFrame, few: pd.DataFrame | None = None) -> dict[str, pd.DataFrame]:
    """Return a store of the three figures of the cost, in the first two of which `few` may stand."""
    return dict.fromkeys(("FG-F3a", "FG-F3b"), counts if few is None else few) | {"FG-F4": counts}


def leak(matrix: float, vector: float, kept: float | None = None) -> pd.DataFrame:
    """Return attacks on each form that recover these shares of ten nodes; `kept` is that with lone neighbours kept."""
    rows = [
        {"form": form, "lone": lone, "exact": int(10 * share), "cross_client.recovered": share}
        for lone in ("kept", "dropped")
        for form, dropped in (("matrix", matrix), ("vector", vector))
        for share in [dropped if lone == "dropped" or kept is None else kept]
    ]
    return pd.DataFrame(rows).assign(**{"result.nodes": 10, "error.largest": 1e-12})


def test_the_attack_is_judged_by_the_form() -> None:
    """Recovered features fail the claim, and a control that recovers something is reported."""
    attacks = leak(1.0, 0.5).assign(control=[0.0, 0.5, 0.0, 0.0])
    checks = tables.attack_checks(attacks).set_index("id")["verdict"]
    assert checks["FG-I6"] == checks["FG-I6-vector"] == "fails"
    assert checks["FG-I6-control"] == "fails, as it must"
    assert checks["FG-I6-vector-control"] == "passes, as it must not"
    assert tables.attack_checks(pd.DataFrame()).empty


def test_the_claim_on_cost_comes_out_either_way() -> None:
    """The claim holds, is mixed or fails as the counts of its three figures say."""

    def verdict(counts: pd.DataFrame, few: pd.DataFrame | None = None) -> str:
        return judge("FG-C4", costs(counts, few))[1]

    straight = sent(1.0, 1.2, 10)
    assert verdict(straight) == verdict(sent(1.0, 1.2, 10, constant=1e8)) == "holds"
    assert verdict(sent(0.5, 1.2, 10)) == "mixed"
    assert verdict(sent(-0.5, 0.8, 10)) == "fails"
    part = pd.concat([sent(1.0, 1.01, 10).query("clients < 100"), sent(1.0, 0.99, 10).query("clients == 100")])
    assert verdict(part) == "mixed"  # iid does not cost more everywhere
    assert verdict(straight, sent(0.5, 1.2, 10, clients=(1, 2, 10, 20))) == "mixed"  # two figures are not straight
    assert judge("FG-C4", {"FG-F4": straight})[1] == claims.NOT_CHECKED
    alone = sent(1.0, 1.0, 10, clients=(1,))  # all partitions are one for one client
    assert verdict(straight, pd.concat([alone, sent(1.0, 1.2, 10, clients=(2, 10, 20))])) == "holds"


def test_a_cost_that_falls_at_one_step_does_not_rise() -> None:
    """The ends and the middle lie on a line, and the count between them falls."""
    counts = sent(1.0, 1.2, 10, clients=(20, 40, 60, 80, 100))
    counts.loc[counts["clients"].eq(40), [name for name in counts if name.endswith("scalars")]] /= 4
    evidence, verdict = judge("FG-C4", costs(counts))
    assert verdict == "mixed" and "rises at 3 of 4 steps, 1.00 times as steep" in evidence


def test_the_claim_on_the_vector_form_comes_out_either_way() -> None:
    """It wants one layer, a ratio near ten somewhere below 10 clients, and a Vector form that reveals more."""
    same = pd.DataFrame([{"matrix": 1e-12, "matrix_in_blocks": 1e-12, "vector": 1e-12}])

    def verdict(ratio: float, leaks: pd.DataFrame, layers: pd.DataFrame = same, last: float = 30.0) -> str:
        counts = pd.concat([sent(1.0, 1.2, ratio, clients=(2, 5)), sent(1.0, 1.2, last, clients=(20,))])
        return judge("FG-C6", {"FG-A3": layers, "FG-X1": counts, "FG-I6": leaks})[1]

    assert verdict(10, leak(0.0, 1.0)) == "holds"
    assert verdict(10, leak(1.0, 1.0)) == verdict(30, leak(0.0, 1.0)) == "mixed"
    assert verdict(30, leak(1.0, 1.0), 1e9 * same) == verdict(30, leak(1.0, 1.0), 1e9 * same, last=10) == "fails"


def test_the_vector_form_is_compared_in_the_attack_on_the_most_nodes() -> None:
    """An attack on fewer nodes that recovers more decides nothing."""
    same = pd.DataFrame([{"matrix": 1e-12, "matrix_in_blocks": 1e-12, "vector": 1e-12}])
    small = leak(1.0, 0.0).assign(**{"result.nodes": 5})
    held = {"FG-A3": same, "FG-X1": sent(1.0, 1.2, 10, clients=(2, 5))}
    assert judge("FG-C6", held | {"FG-I6": pd.concat([small, leak(0.0, 1.0)], ignore_index=True)})[1] == "holds"


def test_the_claim_on_privacy_is_judged_with_lone_neighbours_dropped() -> None:
    """The paper's guarantee drops them; the attack with them kept is reported and decides nothing."""
    assert judge("FG-C8", {"FG-I6": leak(0.0, 0.0)})[1] == "holds"
    assert judge("FG-C8", {"FG-I6": leak(0.5, 0.0)})[1] == "fails"
    evidence, verdict = judge("FG-C8", {"FG-I6": leak(0.0, 0.0, kept=1.0)})
    assert verdict == "holds" and "matrix, lone neighbours kept: 10 of 10 nodes in full" in evidence
    assert judge("FG-C8", {"FG-I6": leak(0.5, 0.0).query("lone == 'kept'")})[1] == claims.NOT_CHECKED


def test_the_claim_on_errors_counts_printed_and_corrected_bounds() -> None:
    """With the checks of the theorems it is mixed; with all of them fulfilled it holds."""
    from fedrepro.papers.fedgat.theory import theorems

    rows = theorems.theorems(Run("check", "fedgat", "FedGAT-theorems"))["result"]["checks"]

    def judged(rows: list[dict[str, Any]]) -> tuple[str, str]:
        return judge("FG-C7", {"FG-Th5": pd.DataFrame([{"checks": rows}])})

    evidence, verdict = judged(rows)
    assert verdict == "mixed"
    assert evidence.endswith("with the proof's epsilon, for any psi, 2 of 2; as corrected 4 of 4")
    told = {row["id"]: row["statement"] for row in rows}
    for equation in (16, 17):
        proof, statement = told[f"FG-Th5-{equation}"], told[f"FG-Th5-{equation}-identity"]
        assert "the proof's epsilon" in proof and "the statement's epsilon" in statement
        assert not any("corrected" in text for text in (proof, statement))
    remarks = ("FG-Th5-appendix", "FG-Th5-section")  # neither theorem nor lemma, and not counted
    assert set(remarks) <= told.keys()
    fulfilled = [row if row["id"] in remarks else row | {"verdict": "holds"} for row in rows]
    assert judged(fulfilled)[1] == "holds"
    broken = [row | {"verdict": "fails"} if row["id"] == "FG-Th5-17" else row for row in fulfilled]
    assert judged(broken)[1] == "mixed"
