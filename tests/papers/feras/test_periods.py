"""The claims of Feras about q, the epochs between two averages: judged where q can matter, and not tested elsewhere."""

from __future__ import annotations

import pandas as pd
import pytest
from feras_tables import checks, stored

from fedrepro.papers.feras.exhibits import claims, curves, grids


def by_period(drop: dict[int, float], graphs: tuple[str, ...] = ("Photo",), at: int = 40) -> pd.DataFrame:
    """Return the runs of FR-F5 with a nearly constant score, which changes by `drop` after epoch `at` for some q."""
    runs = [run for run in grids.periods() if run.dataset in graphs]
    less = {run.key: drop.get(int(run.options["q"]), 0.0) for run in runs}
    return stored(runs, lambda run, t: 0.8 + less[run.key] * (t > at) + 0.0001 * (run.seed * run.options["q"] % 7))


@pytest.mark.parametrize(
    ("late", "lemma", "verdict"),
    [(0.0, "holds", "holds"), (0.0, "fails", "mixed"), (-0.1, "fails", "fails")],
)
def test_claim_1_rests_on_lemma_and_runs(late: float, lemma: str, verdict: str) -> None:
    """Late scores of all q at or below those of q = 1, and the printed lemma as its check says."""
    frame = by_period(dict.fromkeys(grids.PERIODS[1:], late))
    frames = {"FR-F5": frame, "FR-L1": checks(FR_L1_layer1=lemma, FR_L1_control="fails, as it must")}
    found = claims.convergence(lambda name: frames.get(name, frame.iloc[:0]))
    assert found[1] == verdict and f"FR-L1-layer1 {lemma}" in found[0] and "control" not in found[0]


def test_claim_1_has_the_rate_under_both_conditions_and_between_averages() -> None:
    """A rate that holds under the corrected condition only is mixed, and where the averages lead does not count."""
    frame = by_period({})
    kept = {"FR_Th3": "holds", "FR_X1_q5": "holds"}
    for more, verdict in (
        ({"FR_drift": "fails"}, "holds"),
        ({"FR_Th3_printed": "fails"}, "mixed"),
        ({"FR_X1_q5_printed": "fails"}, "mixed"),
        ({"FR_X1_between": "fails"}, "mixed"),
    ):
        frames = {"FR-F5": frame, "FR-Th3": checks(**kept, **more)}
        text, found = claims.convergence(lambda name, frames=frames: frames.get(name, frame.iloc[:0]))
        assert found == verdict and "FR-Th3 holds; FR-X1-q5 holds" in text and "drift" not in text


@pytest.mark.parametrize(
    ("drop", "at", "verdicts"),
    [
        ({70: -0.005}, 40, ["holds", "not tested", "not tested"]),  # no q matters by a point
        ({70: -0.2}, 40, ["mixed", "holds", "fails"]),
        ({70: -0.2}, 138, ["mixed", "holds", "fails"]),  # at only one epoch
        ({15: -0.1}, 40, ["mixed", "holds", "holds"]),  # not the largest q
        ({15: -0.1, 30: -0.1, 70: -0.1}, 40, ["mixed", "holds", "holds"]),
        ({5: -0.1, 15: -0.1}, 40, ["mixed", "mixed", "holds"]),
        ({5: -0.1, 10: -0.2, 15: -0.1, 30: -0.1, 70: -0.1}, 40, ["fails", "fails", "fails"]),
    ],
)
def test_q_is_tested_only_where_it_can_matter(drop: dict[int, float], at: int, verdicts: list[str]) -> None:
    """The claims FR-H8 and FR-H7 are judged only if some q leaves q = 1 by more than a point at some late epoch, and
    FR-H1, that all q are close to q = 1, always.
    """
    frame = by_period(drop, at=at)
    found = [judge(lambda name: frame if name == "FR-F5" else frame.iloc[:0]) for judge in BY_Q]
    assert [verdict for _, verdict in found] == verdicts
    told = ["Photo tests nothing: no curve, up to q=70" in text for text, _ in found]
    assert told == [False, *["not tested" in verdicts] * 2]


BY_Q = (claims.convergence, claims.close_periods, claims.longer_period)


def test_a_graph_without_an_effect_of_q_is_named_next_to_the_others() -> None:
    """Only PubMed is judged if q matters only there. Without the runs of q = 1 nothing says that q cannot matter."""
    frame = pd.concat([by_period({}), by_period({15: -0.1, 70: -0.1}, ("PubMed",))], ignore_index=True)
    text, verdict = claims.longer_period(lambda name: frame)
    assert verdict == "holds" and text.startswith("1 shown, 0 contradicted") and "Photo tests nothing" in text
    assert curves.largest_effect(curves.curves(by_period({}).query("q > 1"))) is None
    assert claims.longer_period(lambda name: by_period({}).query("q > 1"))[1] == "fails"


def test_each_q_has_a_panel_next_to_q_1() -> None:
    """The curves of q = 1 are in every panel and those of another q in one; without another q there is one panel."""
    points = curves.curves(by_period({}, ("Photo", "PubMed")))
    pairs = curves.next_to_one(points)
    shown = pairs.groupby("beside")["q"].unique().map(set).to_dict()
    assert shown == {f"q = {q}": {1, q} for q in set(points["q"]) - {1}}
    assert pairs["dataset"].is_monotonic_increasing
    first = points[points["q"].eq(1)]
    assert curves.next_to_one(first).drop(columns="beside").equals(first)
