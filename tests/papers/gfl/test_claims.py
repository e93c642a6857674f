"""GFL's claims, judged on made-up scores."""

from __future__ import annotations

import pandas as pd
import pytest
from gfl_frames import frames

from fedrepro.papers.gfl.exhibits import CLAIMS, grids, tables
from fedrepro.reporting.claims import claims_table


@pytest.mark.parametrize(
    ("better", "verdicts"),
    [
        (9.0, ["fails", "holds", "holds"]),
        (6.0, ["fails", "holds", "mixed"]),
        (1.0, ["holds", "holds", "mixed"]),
        (-1.0, ["holds", "holds", "fails"]),
        (-3.0, ["fails", "fails", "fails"]),
        (20.0, ["fails", "holds", "mixed"]),
        (-9.0, ["fails", "fails", "fails"]),
    ],
)
def test_claims_come_out_either_way(better: float, verdicts: list[str]) -> None:
    """Far above the rest GFL beats all baselines and no longer matches I = 1; far below it fails everything; 20 points
    and 6 are not about 9. One point off still matches I = 1. One point below still rivals, 3 points do not.
    """
    frame = tables.prepare(frames(better, lambda: [*grids.table(), *grids.readings()]), "GFL-T2")
    judged = claims_table(CLAIMS[:3], lambda _: frame, "gfl")
    assert judged.verdict.tolist() == verdicts


def test_about_nine_points_are_asked_over_fedmlp_alone() -> None:
    """The printed number of MLPs is another row's (GFL-Q4), so GFL-C3 asks for a lead over them and for no size of it.

    Six points are about 9 over no row. They contradict the claim over FedMLP at I = 10 and 20, in both readings.
    """
    frame = tables.prepare(frames(6.0), "GFL-T2")
    evidence, verdict = CLAIMS[2].judge(lambda _: frame)
    assert verdict == "mixed" and evidence.startswith("6 shown, 4 contradicted, 0 undecided")
    assert "beats MLPs, code" in evidence and "about 9 over MLPs" not in evidence
    assert "about 9 over FedMLP I=20, text" in evidence and "I=50" not in evidence


@pytest.mark.parametrize(("percent", "verdict"), [(90.0, "holds"), (55.0, "mixed"), (45.0, "fails")])
def test_the_method_works_where_it_beats_a_constant_prediction(percent: float, verdict: str) -> None:
    """With four of five nodes in one class a constant prediction is right on 80% of SNC and on 62% of SC (GFL-C7)."""
    frame = tables.prepare(frames(0.0), "GFL-T2")
    frame["percent"] = percent + frame["seed"] / 10 + 8.0 * frame["column"].eq("csbm-SC")
    graphs = pd.DataFrame({"dataset": ["csbm-SNC", "csbm-SC"], "nodes": [200, 50], "positive": [40, 40]})
    held = {"GFL-T2": frame, "GFL-I5": graphs}
    assert CLAIMS[6].judge(lambda name: held[name])[1] == verdict


def test_local_updates_are_compared_at_one_rate() -> None:
    """In the code's reading of DNC, I = 1 at the printed rate counts in GFL-C1, and at the code's rate it does not."""
    frame = tables.prepare(frames(0.5, lambda: [*grids.table(), *grids.readings()]), "GFL-T2")
    first = frame["column"].eq("csbm-DNC") & frame["method"].eq("GFL-APPNP") & frame["setting"].eq("I=1")
    for reading, verdict in (("code", "holds"), ("code, printed rate", "mixed")):
        moved = frame.assign(percent=frame["percent"] + 9.0 * (first & frame["reading"].eq(reading)))
        assert claims_table(CLAIMS[:1], lambda _, moved=moved: moved, "gfl").verdict.tolist() == [verdict]


def test_claims_without_runs_cannot_be_checked() -> None:
    """An empty store gives no verdict."""
    judged = claims_table(CLAIMS, lambda _: pd.DataFrame(), "gfl")
    assert set(judged.verdict) == {"cannot be checked here"}


def by_degree(endings: tuple[str, ...], sign: float, spread: float) -> pd.DataFrame:
    """Return runs on GFL-F2a's graphs, a point apart in the order of `sign`, with a spread between repetitions."""
    rows = []
    for ending in endings:
        for rank, degree in enumerate(grids.DEGREES):
            for run in grids.cell(grids.TEN, f"csbm-d{degree}{ending}", "code", range(6)):
                score = 0.9 - 0.01 * sign * rank + spread * ((3 * run.seed + 2 * rank) % 5 - 2)
                rows.append({**run.to_dict(), **run.options, tables.SCORE: score})
    return pd.DataFrame(rows).drop(columns="options")


@pytest.mark.parametrize(
    ("sign", "spread", "verdict"), [(1, 1e-4, "holds"), (1, 0.2, "undecided"), (-1, 1e-4, "fails")]
)
def test_connectivity_is_judged_on_graphs_drawn_anew(sign: float, spread: float, verdict: str) -> None:
    """One graph a degree, on which each lead is sure, decides nothing about GFL-C5 and is reported."""
    held = {
        "GFL-F2a": tables.prepare(by_degree(("",), 1, 1e-4), "GFL-F2a"),
        "GFL-T2-redrawn": tables.prepare(by_degree((" redrawn",), sign, spread), "GFL-T2-redrawn"),
    }
    evidence, judged = CLAIMS[4].judge(lambda name: held[name])
    assert judged == verdict and "one graph a degree, which judges nothing, has 3 shown" in evidence
    assert set(held["GFL-T2-redrawn"]["column"]) <= {run.dataset.removesuffix(" redrawn") for run in grids.redrawn()}
    held["GFL-T2-redrawn"] = pd.DataFrame()
    assert CLAIMS[4].judge(lambda name: held[name])[1] == "cannot be checked here"
