"""The verdicts on claims: parts, quantifiers, the correction for many parts, and the cells that a claim compares."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedrepro.errors import ArgumentError
from fedrepro.reporting import exhibits
from fedrepro.reporting.claims import (
    COLUMNS,
    MIXED,
    NOT_CHECKED,
    Claim,
    Difference,
    Get,
    Parts,
    claims_table,
    combine,
    judge_claim,
    judge_interval,
    read,
    select,
)
from fedrepro.reporting.statistics import Paired, interval, paired, slope

FRAME = pd.DataFrame(
    [
        {"method": method, "dataset": dataset, "seed": seed, "percent": 80.0 + gain + seed + 0.1 * (seed == 1) * gain}
        for dataset, more in (("Cora", 2.0), ("PubMed", -2.0))
        for method, gain in (("FedGAT", more), ("FedAvg", 0.0))
        for seed in range(3)
    ]
)
OVER = Difference("T1", {"method": "FedGAT"}, {"method": "FedAvg"}, {"dataset": ("Cora", "PubMed")}, above=0.0)


def get(exhibit: str) -> pd.DataFrame:
    """Return the runs of exhibit T1; T2 is an empty store's."""
    return FRAME if exhibit == "T1" else pd.DataFrame()


@pytest.mark.parametrize(
    ("signs", "of_all", "of_most"),
    [("+++", "holds", "holds"), ("++-", "mixed", "holds"), ("++0", "holds in part", "holds"),
     ("+-0", "mixed", "undecided"), ("+--", "mixed", "fails"), ("--0", "fails", "fails"),
     ("+00", "holds in part", "undecided"), ("-00", "fails", "undecided"),
     ("000", "undecided", "undecided")],
)  # fmt: skip
def test_a_claim_of_most_parts_needs_more_than_half(signs: str, of_all: str, of_most: str) -> None:
    """A claim of all parts holds where all are shown and can be mixed; of most, more than half; half refute it."""
    ends = {"+": (1.0, 2.0), "-": (-2.0, -1.0), "0": (-1.0, 1.0)}
    parts = {
        f"{index}": (Paired(sum(ends[sign]) / 2, *ends[sign], 0.5, 3), 0.0, math.inf)
        for index, sign in enumerate(signs)
    }
    assert (judge_claim(parts)[1], judge_claim(parts, quantifier="most")[1]) == (of_all, of_most)


@pytest.mark.parametrize(
    ("signs", "verdict"),
    [("+--", "holds"), ("+00", "holds"), ("---", "fails"), ("--0", "undecided"), ("000", "undecided")],
)
def test_a_claim_of_some_parts_needs_one(signs: str, verdict: str) -> None:
    """One part shown is enough, and all contradicted refute it; one that is undecided or was not compared saves it."""
    ends = {"+": (1.0, 2.0), "-": (-2.0, -1.0), "0": (-1.0, 1.0)}
    parts: dict[str, Any] = {
        f"{index}": (Paired(sum(ends[sign]) / 2, *ends[sign], 0.5, 3), 0.0, math.inf)
        for index, sign in enumerate(signs)
    }
    assert judge_claim(parts, quantifier="some")[1] == verdict
    missing = {"missing": (None, 0.0, math.inf)}
    assert judge_claim(parts | missing, quantifier="some")[1] == ("undecided" if verdict == "fails" else verdict)


def test_what_was_not_compared_is_neither_for_nor_against_most() -> None:
    """Two of 24 parts, contradicted, refute nothing about most of them."""
    down = Paired(-1.0, -1.5, -0.5, 0.5, 3)
    missing = {f"{index}": (None, 0.0, math.inf) for index in range(22)}
    parts = {"Cora": (down, 0.0, math.inf), "CiteSeer": (down, 0.0, math.inf)}
    assert judge_claim(parts, quantifier="most")[1] == "fails"
    assert judge_claim(parts | missing, quantifier="most")[1] == "undecided"


def test_many_parts_are_not_shown_by_chance() -> None:
    """Fewer than 7.5% of claims have a decided part if all are zero, with one part and with ten; uncorrected, 30%."""
    draws = np.random.default_rng(0).normal(size=(400, 10, 3))

    def decided(parts: int) -> float:
        """Share of claims of which any part is decided."""
        texts = [
            judge_claim(
                {f"{n}": (paired(gaps.tolist(), [0.0] * 3), 0.0, math.inf) for n, gaps in enumerate(one[:parts])}
            )[0]
            for one in draws
        ]
        return float(np.mean([not text.startswith("0 shown, 0 contradicted") for text in texts]))

    assert 0.03 < decided(1) < 0.075
    assert decided(10) < 0.075
    alone = np.mean([any(interval(gaps).low * interval(gaps).high > 0 for gaps in one) for one in draws])
    assert alone > 0.3  # as they would be without the correction


def test_runs_that_tie_on_the_edge_decide_nothing() -> None:
    """Three differences of exactly zero neither show nor contradict that there is one; three of one do."""
    tie, one = paired([2, 3, 4], [2, 3, 4]), paired([3, 4, 5], [2, 3, 4])
    assert (
        judge_claim({"tie": (tie, 0.0, math.inf)})[1] == judge_claim({"tie": (tie, -math.inf, 0.0)})[1] == "undecided"
    )
    # Nor does a tie on another edge ease the test of other parts, as a small p-value would.
    assert judge_interval(paired([3, 4, 5], [2, 3, 4]), 1.0, math.inf) == ("undecided", 1.0)
    assert (
        judge_claim({"one": (one, 0.0, math.inf)})[1] == "holds"
        and judge_claim({"one": (one, -math.inf, 0.0)})[1] == "fails"
    )


def test_a_part_shown_alone_says_so() -> None:
    """An interval inside its range that many undecided parts outweigh is undecided, and named; two are shown."""
    sure, open_part = paired([1.0, 1.4, 1.2], [0.0] * 3), paired([1.0, -1.0, 0.1], [0.0] * 3)
    parts = {f"{index}": (open_part, 0.0, math.inf) for index in range(9)}
    text, verdict = judge_claim(parts | {"one": (sure, 0.0, math.inf)})
    assert verdict == "undecided"
    assert text.startswith("0 shown, 0 contradicted, 10 undecided, in points: 0 +0.0 [")
    assert text.endswith("one +1.2 [+0.7, +1.7] undecided (shown if alone)")
    assert judge_claim({"one": (sure, 0.0, math.inf)})[1] == "holds"


@pytest.mark.parametrize("within", [(-2.0, 2.0), (-2.0, math.inf), (3.0, math.inf), (1.1, 1.3)])
def test_a_parts_p_value_agrees_with_its_interval(within: tuple[float, float]) -> None:
    """A part alone is decided exactly where its p-value, that of a t test against the nearer end, is at most 5%."""
    for shift in np.linspace(-6, 6, 49):
        gaps = [1.0 + shift, 1.4 + shift, 1.2 + shift]
        alone, p = judge_interval(interval(gaps), *within)
        assert (p <= 0.05) == (alone != "undecided")
        tests = [stats.ttest_1samp(gaps, edge).pvalue for edge in within if math.isfinite(edge)]
        assert p == pytest.approx(max(tests))


def test_a_claim_of_all_parts_does_not_hold_while_one_was_not_compared() -> None:
    """A part without two runs is named, and keeps a claim from holding, but not from failing."""
    up, down = (Paired(x, x - 0.5, x + 0.5, 0.5, 3) for x in (1.0, -1.0))
    text, verdict = judge_claim({"Cora": (up, 0.0, math.inf), "Photo": (None, 0.0, math.inf)})
    assert verdict == "holds in part"
    assert text.endswith("; not compared: Photo")
    assert judge_claim({"Cora": (up, 0.0, math.inf)})[1] == "holds"
    assert judge_claim({"Cora": (down, 0.0, math.inf), "Photo": (None, 0.0, math.inf)})[1] == "fails"
    assert judge_claim({"Photo": (None, 0.0, math.inf)})[1] == "cannot be checked here"


def test_parts_without_scatter_ease_no_other() -> None:
    """Two settings with one number in every run differ by little for certain; the other parts are judged as alone."""
    same = (paired([80.0, 81.0, 82.0], [80.0, 81.0, 82.0]), -1.0, 1.0)
    steps = np.array([-1, -0.5, 0, 0.5, 1])
    gap = stats.t.isf(0.02, 4) * steps.std(ddof=1) / math.sqrt(5)
    near = (paired(gap + steps, [0.0] * 5), 0.0, math.inf)  # p = 0.04, one of two
    other = (paired(0.1 + steps, [0.0] * 5), 0.0, math.inf)
    alone = judge_claim({"near": near, "other": other})
    beside = judge_claim({"a": same, "b": same, "c": same, "near": near, "other": other})
    assert "near +1.1" in alone[0] and "undecided (shown if alone)" in alone[0] and alone[1] == "undecided"
    assert "0 shown, 0 contradicted, 2 undecided" in beside[0] and "undecided (shown if alone)" in beside[0]
    assert beside[0].count("the same in every run") == 3 and beside[1] == "undecided"


def test_what_no_run_could_refute_does_not_count() -> None:
    """Settings that are the same by construction save no claim, and one of such parts alone is not tested.

    A tie where the claim wants a difference is a part like any other.
    """
    same = paired([80.0, 81.0, 82.0], [80.0, 81.0, 82.0])
    down = (Paired(-5.0, -5.5, -4.5, 0.5, 3), -1.0, 1.0)
    parts = {f"{index}": (same, -1.0, 1.0) for index in range(3)}
    assert judge_claim(parts)[1] == "not tested" and judge_claim(parts | {"down": down})[1] == "fails"
    assert judge_claim(parts | {"up": (Paired(0.1, 0.0, 0.2, 0.5, 3), -1.0, 1.0)})[1] == "holds"
    assert judge_claim(parts | {"tie": (same, 0.0, math.inf)})[1] == "undecided"


def test_a_slope_is_judged_with_two_degrees_of_freedom_less() -> None:
    """The p-value of a slope is that of SciPy's regression, not of a mean over as many runs."""
    x, y = [1.0, 2.0, 4.0, 8.0], [1.0, 2.3, 3.5, 8.4]
    assert judge_interval(slope(x, y), 0.0, math.inf)[1] == pytest.approx(stats.linregress(np.log(x), np.log(y)).pvalue)


def test_an_unknown_quantifier_is_an_error() -> None:
    """A claim is about all parts, most or some."""
    with pytest.raises(ArgumentError, match="quantifier must be one of 'all', 'most', 'some'"):
        judge_claim({}, quantifier="any")


def test_a_difference_has_a_part_for_each_cell() -> None:
    """Each combination of `per` gives SciPy's paired difference of the two cells, in the range of the claim."""
    parts = dict(OVER.parts(get))
    assert list(parts) == ["Cora", "PubMed"]
    gap, low, high = parts["Cora"]
    assert gap == paired([82.0, 83.2, 84.0], [80.0, 81.0, 82.0]) and (low, high) == (0.0, math.inf)


def test_a_difference_from_zero() -> None:
    """Without a second cell the scores themselves are compared with zero."""
    (_, (gap, _, _)), *_ = Difference("T1", {"method": "FedAvg", "dataset": "Cora"}).parts(get)
    assert gap == paired([80.0, 81.0, 82.0], [0.0] * 3)


def test_a_difference_between_two_exhibits() -> None:
    """The second cell comes from the runs of another exhibit, which may have none."""
    part = Difference("T1", OVER.left, OVER.minus, OVER.per, minus_exhibit="T2")
    assert [gap for _, (gap, _, _) in part.parts(get)] == [None, None]


def test_parts_are_named_by_a_format_and_labels() -> None:
    """A part's name is the format over the columns, written with their labels."""
    part = Difference("T1", OVER.left, OVER.minus, OVER.per, name="on {dataset}", labels={"Cora": "the small one"})
    assert [name for name, _ in part.parts(get)] == ["on the small one", "on PubMed"]


def test_a_claim_is_judged_on_its_cells() -> None:
    """A gain on one data set and a loss on the other are mixed for a claim about both, and hold for some."""
    verdicts = [Claim("X-C1", "", "", [OVER], quantifier).judge(get)[1] for quantifier in ("all", "most", "some")]
    assert verdicts == ["mixed", "fails", "holds"]


def test_parts_of_a_function_are_measured() -> None:
    """A function among the parts asks the store itself, and its parts are judged like differences."""

    def up(get: Get) -> Parts:
        return {"up": (interval(get("T1")["percent"]), 0.0, math.inf)}

    assert Claim("X-C1", "", "", [up]).judge(get)[1] == "holds"


@pytest.mark.parametrize(
    ("held", "verdict"),
    [([True, True], "holds"), ([True, False], MIXED), ([False, False], "fails"), ([], NOT_CHECKED)],
)
def test_a_claim_on_several_results(held: list[bool], verdict: str) -> None:
    """A claim holds if all results do, fails if none does, and is mixed else; without results nothing was checked."""
    assert combine(held) == verdict


def test_two_parts_of_one_name_are_an_error() -> None:
    """Parts that would replace each other are named; none is lost."""
    with pytest.raises(ArgumentError, match=r"X-C1.*one part"):
        Claim("X-C1", "", "", [OVER, OVER]).judge(get)


def test_an_empty_store_decides_no_claim() -> None:
    """Without runs nothing is compared."""
    assert Claim("X-C1", "", "", [OVER]).judge(lambda _: pd.DataFrame())[1] == "cannot be checked here"


def test_claims_are_rows() -> None:
    """A claim's row holds its text, what was checked, the evidence and the verdict."""
    table = claims_table([Claim("X-C1", "High.", "The mean.", finding=lambda get: ("0.75", "holds"))], get, "toy")
    assert tuple(table) == COLUMNS
    assert table.iloc[0].tolist() == ["X-C1", "toy", "High.", "The mean.", "0.75", "holds"]


def test_a_finding_needs_a_known_verdict() -> None:
    """A verdict that is none of those allowed is an error that names the nearest."""
    with pytest.raises(ArgumentError, match="Did you mean 'holds'"):
        Claim("X-C1", "", "", finding=lambda get: ("", "hold")).judge(get)


def test_claims_are_chosen_by_id() -> None:
    """Claims come in the order asked for, and an unknown ID is an error."""
    claims = [Claim(id_, "", "") for id_ in ("X-C1", "X-C2")]
    assert select(claims, ["X-C2", "X-C1"]) == claims[::-1]
    with pytest.raises(ArgumentError, match="X-C3"):
        select(claims, ["X-C3"])


def test_a_graph_that_is_not_at_hand_does_not_keep_a_claim_from_holding_elsewhere() -> None:
    """All parts shown but those on a graph without any run: it holds on every graph at hand, and says what lacks.

    A graph with one run, which is at hand, still keeps it from that.
    """
    graphs = {"dataset": ("Cora", "Amazon Ratings")}
    part = Difference("T1", {"method": "FedGAT"}, {"method": "FedAvg"}, graphs, above=0.0)
    text, verdict = Claim("X-C2", "", "", [part]).judge(get)
    assert verdict == "holds on every graph at hand" and text.endswith("not compared: Amazon Ratings")
    one = pd.DataFrame([{"method": "FedGAT", "dataset": "Amazon Ratings", "seed": 0, "percent": 1.0}])
    assert Claim("X-C2", "", "", [part]).judge(lambda _: pd.concat([FRAME, one]))[1] == "holds in part"
    standin = one.assign(dataset="Amazon Ratings~standin")
    assert Claim("X-C2", "", "", [part]).judge(lambda _: pd.concat([FRAME, standin]))[1] == verdict
    worse = Difference("T1", {"method": "FedGAT"}, {"method": "FedAvg"}, graphs, above=5.0)
    assert Claim("X-C2", "", "", [worse]).judge(get)[1] == "fails"
    assert Claim("X-C2", "", "", [part]).judge(lambda _: pd.DataFrame())[1] == "cannot be checked here"
    assert not list(Difference("T1", {"method": "FedGAT"}).absent(get))


def test_claims_are_read_from_the_papers_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts, quantifier and unit come from the file, in its order; a claim without a measurement is an error."""
    text = "id,claim,check,quantifier,scale\nX-C1,One.,How.,,100\nX-C2,Two.,So.,some,\n"
    (tmp_path / "claims.csv").write_text(text, encoding="utf-8")
    monkeypatch.setattr(exhibits, "folder", lambda paper: tmp_path)
    part = Difference("X-T1", {"method": "a"}, {"method": "b"})
    first, second = read("x", {"X-C2": [part], "X-C1": lambda get: ("nothing stored", NOT_CHECKED)})
    assert (first.id, first.text, first.check, first.quantifier, first.scale) == ("X-C1", "One.", "How.", "all", 100)
    assert first.judge(lambda name: pd.DataFrame()) == ("nothing stored", NOT_CHECKED)
    assert (second.quantifier, second.scale, second.parts) == ("some", 1.0, [part])
    with pytest.raises(ArgumentError, match=r"measured must be for the claims X-C1, X-C2\. Got \['X-C1'\]"):
        read("x", {"X-C1": [part]})
