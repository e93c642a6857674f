"""FedStruct's claims: each can come out either way."""

from __future__ import annotations

import pandas as pd
import pytest
from fedstruct_frames import judge, stored

from fedrepro.papers.fedstruct.exhibits import CLAIMS, tables
from fedrepro.reporting import claims

HOP2VEC = ("FedStruct (H2V)", "FedStruct (H2V)-F")


@pytest.mark.parametrize(("score", "verdict"), [(0.9, "holds"), (0.1, "fails")], ids=["far above", "far below"])
@pytest.mark.parametrize("claim", ["FS-C2", "FS-C3", "FS-C4a", "FS-C8", "FS-C8-partitions"])
def test_claims_come_out_either_way(claim: str, score: float, verdict: str) -> None:
    """A store where Hop2Vec is far above or far below the others decides the claims accordingly."""
    assert judge(claim, lambda name: stored(name, dict.fromkeys(HOP2VEC, score)))[1] == verdict


@pytest.mark.parametrize(("score", "verdict"), [(0.49, "holds"), (0.1, "fails")])
def test_close_to_central_can_fail(score: float, verdict: str) -> None:
    """One point below Central GNN is close, forty are not."""
    assert judge("FS-C1", lambda name: stored(name, dict.fromkeys(HOP2VEC, score)))[1] == verdict


@pytest.mark.parametrize(("low", "verdict"), [((), "holds"), ((60,), "mixed"), ((1,), "mixed")])
def test_stability_needs_both_ends(low: tuple[int, ...], verdict: str) -> None:
    """The claim FS-C6 holds if only GraphSAGE falls with depth, and is mixed if Hop2Vec is low at either end."""

    def get(name: str) -> pd.DataFrame:
        frame = stored(name, {})
        sage = frame["method"].isin(["Central GNN", "FedSGD GNN"])
        fall = (sage & frame["propagations"].eq(20)) * 20.0 + (~sage & frame["propagations"].isin(low)) * 30.0
        return frame.assign(percent=frame["percent"] - fall)

    assert judge("FS-C6", get)[1] == verdict


@pytest.mark.parametrize(("fall", "worst", "verdict"), [(20, 5, "holds"), (0, 5, "mixed"), (20, 0, "holds in part")])
def test_more_clients_cost_fedsgd_and_fedpub(fall: float, worst: float, verdict: str) -> None:
    """The claim FS-C6-clients holds if both fall and FedPub ends lowest; FS-C6 does not ask for it."""

    def get(name: str) -> pd.DataFrame:
        frame = stored(name, {})
        pub = frame["method"].eq("FedPub")
        many = frame["clients"].eq(50) & (pub | frame["method"].eq("FedSGD GNN"))
        return frame.assign(percent=frame["percent"] - fall * many - worst * (pub & many))

    evidence, found = judge("FS-C6-clients", get)
    assert found == verdict and "FedPub minus FedGCN-2hop, 50 clients" in evidence
    assert "FedPub" not in judge("FS-C6", get)[0]


def test_stability_in_clients_tells_whose_it_is() -> None:
    """The evidence of FS-C6 has a part for FedStruct and one for FedGCN, which claim and check name."""
    (chosen,) = claims.select(CLAIMS, ["FS-C6"])
    evidence, _ = chosen.judge(lambda name: stored(name, {}))
    assert all(f"{row}, 50 minus 5 clients" in evidence for row in ("FedStruct (H2V)", "FedGCN-2hop"))
    assert "FedGCN" in chosen.text and "FedGCN" in chosen.check


def test_claims_judge_the_rows_and_settings_of_the_text() -> None:
    """The claim FS-C1 has all numbers of clients of Figure 4(c), and FS-C8 has neither FedSGD nor Squirrel."""
    evidence = {one.id: one.judge(lambda name: stored(name, {}))[0] for one in CLAIMS if one.id != "FS-C7"}
    assert all(f"Chameleon, {count} clients" in evidence["FS-C1"] for count in (5, 20, 30, 40, 50))
    assert "FedSGD" not in evidence["FS-C8"] and "Squirrel" not in evidence["FS-C8"]
    assert "Chameleon, louvain, over FedPub" in evidence["FS-C8"]
    assert "5% labelled, over FedSage+" in evidence["FS-C2"] and "5% labelled, over FedSGD" not in evidence["FS-C2"]
    assert "louvain, over FedStruct (Deg)" in evidence["FS-C4a"]


@pytest.mark.parametrize(("best", "verdict"), [(10, "holds"), (5, "mixed")])
def test_the_structure_alone_peaks_where_the_paper_says(best: int, verdict: str) -> None:
    """The claim FS-C6-structure holds with the peak at 10 propagations, and is mixed with one at 5."""

    def get(name: str) -> pd.DataFrame:
        frame = stored(name, {})
        return frame.assign(**{"structure only": 90 - (frame["propagations"] - best).abs()})

    assert judge("FS-C6-structure", get)[1] == verdict


@pytest.mark.parametrize(("exponent", "verdict"), [(1.0, "holds"), (2.0, "fails")])
def test_linear_growth_can_fail(exponent: float, verdict: str) -> None:
    """Counts that grow with the number of nodes hold, with its square fail."""
    sizes = [n for n in (2000.0, 3000.0, 5000.0, 20000.0) for _ in range(2)]
    run = {"rounds": 40, "sizes.K": 10, "sizes.theta": 1000}
    frame = pd.DataFrame({"structure": ["Deg", "H2V"] * 4, **run, "sizes.n": sizes})
    wobble = [1.0, 1.0, 1.01, 1.01, 0.99, 0.99, 1.0, 1.0]
    frame["before.up.power blocks"] = frame["sizes.n"] ** exponent * wobble
    frame["training.up.gradients"] = 40.0 * 10 * 1000
    frame["training.down.weights"] = 40.0 * 10 * 1000
    frame = tables.prepare(frame, "FS-T1")
    assert frame["beside"].tolist() == frame["before.up.power blocks"].tolist()
    both = pd.concat([frame.assign(budget=budget) for budget in ("matrix", "blocks")])
    assert judge("FS-C7", lambda _: both)[1] == verdict
    evidence, partly = judge("FS-C7", lambda _: frame.assign(budget="blocks"))
    assert "p n of each power" in evidence.split("not compared")[1]
    assert partly == ("holds in part" if verdict == "holds" else "fails")


N2V, H2V, FULL = "FedStruct (DGCN+N2V)", "FedStruct (DGCN+H2V)", "FedStruct (H2V)-F"


@pytest.mark.parametrize(
    ("full", "verdict"),
    [({}, "holds"), ({FULL: 0.9}, "fails"), ({FULL: 0.7}, "undecided")],
    ids=["above", "below", "below on one graph"],
)
def test_node2vec_is_compared_with_hop2vec_without_pruning(full: dict[str, float], verdict: str) -> None:
    """The claim FS-C4b holds if Node2Vec is above unpruned Hop2Vec, fails if below, and is undecided if unclear."""
    scores = {N2V: 0.7, H2V: 0.1, "FedStruct (H2V)": 0.1} | full

    def get(name: str) -> pd.DataFrame:
        frame = stored(name, scores)
        if verdict == "undecided":  # on Cora 20 points below, elsewhere below or above by the seed
            move = (10 * (frame["seed"] - 1)).where(frame["dataset"] != "Cora", -20)
            frame["percent"] += move * frame["method"].eq(N2V)
        return frame

    assert judge("FS-C4b", get)[1] == verdict


def test_pruning_is_judged_where_something_is_pruned() -> None:
    """The check of FS-C5 speaks of Chameleon, whose one power is never pruned, and its evidence has no part there."""
    (chosen,) = claims.select(CLAIMS, ["FS-C5"])
    evidence, _ = chosen.judge(lambda name: stored(name, {}))
    assert "Chameleon" in chosen.check and "Chameleon" not in evidence
    assert "Cora, random, H2V" in evidence


def test_both_decoupled_kinds_are_compared_with_central() -> None:
    """The claim FS-C9 is mixed once Hop2Vec with a decoupled GCN is far below Central GNN, Node2Vec staying near."""
    for below, verdict in ((0.49, "holds"), (0.3, "mixed")):
        scores = {"FedStruct (DGCN+H2V)": below, "FedStruct (GNN+H2V)": 0.2, "FedStruct (GNN+N2V)": 0.2}
        frame = stored("FS-F6", scores)
        assert judge("FS-C9", lambda _, frame=frame: frame)[1] == verdict  # type: ignore[misc]


def test_no_claim_without_runs() -> None:
    """An empty store gives no verdict, not a favourable one."""
    judged = claims.claims_table(CLAIMS, lambda name: tables.prepare(pd.DataFrame(), name), "fedstruct")
    assert set(judged["verdict"]) == {"cannot be checked here"}
