"""Verdicts against published numbers, and the error rates of the rule that gives them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedrepro.errors import ArgumentError
from fedrepro.reporting import published
from fedrepro.reporting.compare import (
    CLAIM_COLUMNS,
    VERDICTS,
    Claim,
    Paired,
    Verdict,
    _alone,
    _decide,
    claims_table,
    interval,
    judge,
    limit,
    paired,
    rank_agreement,
    slope,
    table,
    verdict,
    verdicts,
)

TRIES = 2000
Rule = Callable[[np.ndarray, float, float], str]


def the_rule(ours: np.ndarray, mean: float, spread: float) -> str:
    return verdict(list(ours), mean, spread, spread_kind="sd").verdict


def point_estimates_only(ours: np.ndarray, mean: float, spread: float) -> str:
    """A broken rule, blind to chance."""
    return "reproduced" if abs(ours.mean() - mean) <= max(0.01, spread) else "differs"


def nothing_significant_is_equal(ours: np.ndarray, mean: float, spread: float) -> str:
    """A broken rule that takes a missing proof of difference for a proof of equality, and has no margin."""
    p = stats.ttest_ind_from_stats(ours.mean(), ours.std(ddof=1), len(ours), mean, spread, 10, equal_var=False).pvalue
    return "differs" if p < 0.05 else "reproduced"


def share(rule: Rule, word: str, gap: float, sd: float = 0.005, runs: int = 10, tries: int = TRIES) -> float:
    """How often the rule says `word` if the truth is `gap` apart."""
    rng = np.random.default_rng(20240)
    theirs = rng.normal(0.8, sd, (tries, 10))
    ours = rng.normal(0.8 + gap, sd, (tries, runs))
    said = [rule(a, b.mean(), b.std(ddof=1)) for a, b in zip(ours, theirs)]
    return said.count(word) / tries


# ---------------------------------------------------------------------------------------------------------
# error rates


@pytest.mark.parametrize(("sd", "runs"), [(0.005, 10), (0.005, 2), (0.02, 3), (0.02, 10)])
def test_equal_truth_seldom_differs(sd: float, runs: int) -> None:
    """If the truth is equal, `differs` comes up in at most 5% of repetitions."""
    assert share(the_rule, "differs", 0.0, sd, runs, tries=1500) <= 0.05


def test_equal_truth_is_mostly_reproduced() -> None:
    """With ten runs of half a point's spread, an equal truth is recognized."""
    assert share(the_rule, "reproduced", 0.0) > 0.95


@pytest.mark.parametrize("gap", [-0.03, 0.03])
def test_truth_three_margins_off_is_never_reproduced(gap: float) -> None:
    """If the truth is three margins off, `reproduced` stays below 5% and `differs` is the rule."""
    assert share(the_rule, "reproduced", gap) < 0.05
    assert share(the_rule, "differs", gap) > 0.95


@pytest.mark.parametrize("gap", [-0.01, 0.01])
def test_truth_at_the_margin_errs_at_its_level(gap: float) -> None:
    """If the truth is exactly at the margin, either wrong claim stays at about 5% (three standard errors)."""
    bound = 0.05 + 3 * math.sqrt(0.05 * 0.95 / TRIES)
    assert share(the_rule, "reproduced", gap) <= bound
    assert share(the_rule, "differs", gap) <= bound


def test_broken_rules_fail_the_same_bounds() -> None:
    """The bounds can be broken: by comparing means alone, and by taking 'not significant' for equal."""
    assert share(point_estimates_only, "reproduced", 0.01) > 0.2
    assert share(point_estimates_only, "differs", 0.0, sd=0.02, runs=3) > 0.05
    assert share(nothing_significant_is_equal, "reproduced", 0.03, sd=0.02, runs=2, tries=1000) > 0.2


def test_benjamini_hochberg_keeps_false_discoveries_low() -> None:
    """Over 20 equal cells a `differs` anywhere comes up in at most 5% of exhibits, single tests in most."""
    rng = np.random.default_rng(5)
    blank = Verdict("differs", 0, 0, 10, 0, 0, 0, 0.0, None, "")
    alone = together = 0
    for _ in range(400):
        p = rng.uniform(size=20)
        rows = [Verdict(**{**vars(blank), "p": v, "verdict": "differs" if v <= 0.05 else "undecided"}) for v in p]
        alone += any(row.verdict == "differs" for row in rows)
        together += any(row.verdict == "differs" for row in verdicts(rows))
    assert alone / 400 > 0.5
    assert together / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_a_cell_that_the_exhibit_keeps_open_says_how_many_runs_it_needs() -> None:
    """So many runs, all else staying, and Benjamini-Hochberg keeps its `differs`; one fewer, and it does not."""
    rng = np.random.default_rng(3)
    near = [verdict(rng.normal(0.8, 0.01, 5).tolist(), 0.8, 0.01) for _ in range(30)]

    def cell(runs: int) -> Verdict:
        scores = 0.823 + 0.012 * np.tile([1.0, -1.0], runs)[:runs]
        return verdict((scores - scores.mean() + 0.823).tolist(), 0.8, 0.01)

    def found(runs: int) -> Verdict:
        spread = cell(6).sides
        assert spread is not None
        ours, theirs, margin = spread
        return verdicts([_decide(ours._replace(runs=runs), theirs, margin), *near])[0]

    assert cell(6).verdict == "differs"
    open_cell = found(6)
    assert open_cell.verdict == "undecided" and open_cell.needed_runs is not None
    assert f"{open_cell.needed_runs} runs would" in open_cell.why
    assert found(open_cell.needed_runs).verdict == "differs"
    assert found(open_cell.needed_runs - 1).verdict == "undecided"


@pytest.mark.parametrize("runs", [3, 10])
def test_the_papers_own_spread_as_margin_errs_as_documented(runs: int) -> None:
    """If the margin is the paper's estimated spread and the truth at it, `differs` stays near 10%."""
    assert share(the_rule, "reproduced", 0.02, sd=0.02, runs=runs, tries=1500) <= 0.07
    assert share(the_rule, "differs", 0.02, sd=0.02, runs=runs, tries=1500) <= 0.13


# ---------------------------------------------------------------------------------------------------------
# one cell


def test_interval_of_the_difference_is_welch() -> None:
    """The interval is that of Welch's t, as SciPy computes it from the scores themselves."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.8, 0.02, 7), rng.normal(0.79, 0.01, 10)
    found = verdict(list(a), b.mean(), b.std(ddof=1), spread_kind="sd")
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.90)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.difference == pytest.approx(a.mean() - b.mean())


def test_standard_errors_and_confidence_intervals_become_standard_deviations() -> None:
    """A cell gives one interval, however its spread is printed."""
    ours, sd = [0.78, 0.80, 0.81], 0.02
    half = float(stats.t.ppf(0.975, 9)) * sd / math.sqrt(10)
    plain = verdict(ours, 0.8, sd, spread_kind="sd")
    for kind, printed in (("standard error", sd / math.sqrt(10)), ("ci95", half)):
        other = verdict(ours, 0.8, printed, spread_kind=kind)
        assert (other.low, other.high) == pytest.approx((plain.low, plain.high))


def test_own_spread_widens_the_margin() -> None:
    """A paper whose runs scatter by five points is reproduced two points off, a sharper one is not."""
    ours = [0.82, 0.821, 0.819, 0.82, 0.82]
    assert verdict(ours, 0.80, 0.05).verdict == "reproduced"
    assert verdict(ours, 0.80, 0.002).verdict == "differs"


def test_undecided_says_how_many_runs_it_needs() -> None:
    """With the runs it asks for, mean and spread unchanged, the cell is decided; with one less it is not."""
    found = verdict([0.79, 0.82, 0.80], 0.80, 0.004)
    assert found.verdict == "undecided" and found.needed_runs is not None
    assert f"{found.needed_runs} runs" in found.why

    def repeated(runs: int) -> str:
        base = np.resize([-1.0, 1.0], runs) - np.resize([-1.0, 1.0], runs).mean()
        scores = found.ours_mean + base / base.std(ddof=1) * found.ours_sd
        return verdict(list(scores), 0.80, 0.004).verdict

    assert repeated(found.needed_runs) == "reproduced"
    assert repeated(found.needed_runs - 1) == "undecided"


def test_hopeless_cell_says_so() -> None:
    """A difference that sits on the margin is decided by no number of runs."""
    found = verdict([0.809, 0.811, 0.810], 0.80, 0.001)
    assert (found.verdict, found.needed_runs) == ("undecided", None)
    assert "not even 1000 runs" in found.why


@pytest.mark.parametrize(
    ("ours", "mean", "spread", "more", "word"),
    [
        ([], 0.8, 0.01, {}, "not measured"),
        ([0.8], 0.8, 0.01, {}, "one run only"),
        ([0.8, 0.8], None, None, {}, "nothing published"),
        ([0.8, 0.8], 0.8, None, {}, "no spread published"),
        ([0.8, 0.82], 0.79, None, {"spread_kind": "peak"}, "peak"),
        ([0.8, 0.82], 0.79, None, {"peak": True}, "peak"),
        ([0.8, 0.8], 0.8, 0.01, {"standin": True}, "stand-in"),
    ],
)
def test_what_cannot_be_judged_is_not_comparable(
    ours: list[float], mean: float | None, spread: float | None, more: dict[str, object], word: str
) -> None:
    """Too few runs, no spread, a peak, an empty cell or a stand-in: not comparable, and why."""
    found = verdict(ours, mean, spread, **more)  # type: ignore[arg-type]
    assert found.verdict == "not comparable" and word in found.why
    assert math.isnan(found.p)
    if ours and mean is not None:
        assert found.difference == pytest.approx(np.mean(ours) - mean)


def test_an_unstated_spread_is_named_as_assumption() -> None:
    """Where the paper does not say what ± means, the verdict says what it was taken for."""
    assert "standard deviation over 10 runs" in verdict([0.8, 0.81], 0.8, 0.01, spread_kind="not stated").why
    assert "not stated" not in verdict([0.8, 0.81], 0.8, 0.01, spread_kind="sd").why


def test_spreads_of_zero_are_exact() -> None:
    """Without any scatter on either side the difference itself decides."""
    assert verdict([0.8, 0.8], 0.805, 0.0).verdict == "reproduced"
    assert verdict([0.8, 0.8], 0.9, 0.0).verdict == "differs"


@pytest.mark.parametrize(
    ("ours", "spread", "kind", "word"),
    [
        ([0.8, math.nan], 0.01, "sd", "finite"),
        ([0.8, 0.8], -1.0, "sd", "at least 0"),
        ([0.8], 0.1, "sdd", "'sd'"),
    ],
)
def test_impossible_input_is_named(ours: list[float], spread: float, kind: str, word: str) -> None:
    """A score that is no number, a negative spread, an unknown kind: each an error with what is allowed."""
    with pytest.raises(ArgumentError, match=word):
        verdict(ours, 0.8, spread, spread_kind=kind)


# ---------------------------------------------------------------------------------------------------------
# one exhibit


def runs_of(scores: dict[tuple[str, str, int, str], list[float]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "dataset": d,
                "method": m,
                "clients": c,
                "partition": p,
                "seed": seed,
                "status": "ok",
                "test": score,
            }
            for (d, m, c, p), values in scores.items()
            for seed, score in enumerate(values)
        ]
    )


NON_IID = "dirichlet(beta=1)"


def fg_t1() -> pd.DataFrame:
    cells = published.load("fedgat")
    return cells[cells["exhibit"] == "FG-T1"]


def test_table_has_one_row_per_published_cell() -> None:
    """Every published cell is there, measured or not, in the paper's order, as printed."""
    ours = runs_of({("Cora", "FedGAT", 10, NON_IID): [0.798, 0.801, 0.802, 0.799, 0.800]})
    found = table(ours, fg_t1())
    assert len(found) == 24
    assert set(found["verdict"]) <= set(VERDICTS)
    cell = found[(found["dataset"] == "Cora") & (found["method"] == "FedGAT") & (found["setting"] == "non-iid")].iloc[0]
    assert cell["published"] == "0.80 ± 0.005"
    assert (cell["runs"], cell["verdict"]) == (5, "reproduced")
    assert cell["ours_mean"] == pytest.approx(0.8)
    assert (found["runs"] == 0).sum() == 23
    assert found.loc[found["runs"] == 0, "verdict"].eq("not comparable").all()


def test_table_scales_to_percent() -> None:
    """Fractions are held against a paper that prints percent."""
    ours = runs_of({("Cora", "FedGAT", 10, NON_IID): [0.80, 0.81]})
    cells = fg_t1()
    cells = cells.assign(value_number=100 * cells["value_number"], spread_number=100 * cells["spread_number"])
    found = table(ours, cells, scale=100, margin=1.0)
    assert found["ours_mean"].dropna().tolist() == pytest.approx([80.5])


def test_table_never_takes_a_standin_for_the_data() -> None:
    """A stand-in fills an empty cell as not comparable, and leaves a measured one alone."""
    real = runs_of({("Cora", "FedGAT", 10, NON_IID): [0.80, 0.80, 0.80]})
    fake = runs_of({(f"{name}~standin", "FedGAT", 10, NON_IID): [0.1, 0.1] for name in ("Cora", "PubMed")})
    found = table(pd.concat([real, fake]), fg_t1()).set_index(["dataset", "method", "setting"])
    assert found.loc[("Cora", "FedGAT", "non-iid"), "verdict"] == "reproduced"
    assert found.loc[("PubMed", "FedGAT", "non-iid"), "verdict"] == "not comparable"
    assert "stand-in" in found.loc[("PubMed", "FedGAT", "non-iid"), "why"]


def test_table_leaves_failed_runs_out() -> None:
    """A failed run is no result."""
    ours = runs_of({("Cora", "FedGAT", 10, NON_IID): [0.80, 0.80, 0.80]})
    ours.loc[2, ["status", "test"]] = ["failed", math.nan]
    assert table(ours, fg_t1())["runs"].sum() == 2


def test_table_refuses_to_mix_runs() -> None:
    """Two runs of one seed in one cell mean that `on` does not tell them apart."""
    ours = runs_of({("Cora", "FedGAT", 10, NON_IID): [0.80, 0.80]})
    with pytest.raises(ArgumentError, match="tell runs of one seed apart"):
        table(pd.concat([ours, ours.assign(hidden=8)]), fg_t1())


def test_table_of_nothing_is_all_unmeasured() -> None:
    """An empty store gives the published cells and no verdict."""
    found = table(pd.DataFrame(), fg_t1())
    assert len(found) == 24 and found["why"].str.startswith("not measured").all()


def test_verdicts_of_a_table_are_corrected_over_the_exhibit() -> None:
    """A difference that would count alone, at p just below 5%, does not among other undecided cells."""
    lone = next(
        found
        for gap in np.arange(0.010, 0.03, 0.0001)
        if (found := verdict([0.8 + gap - 0.005, 0.8 + gap, 0.8 + gap + 0.005], 0.8, 0.005, spread_kind="sd")).p <= 0.05
    )
    assert lone.verdict == "differs"
    other = Verdict(**{**vars(lone), "verdict": "undecided", "p": 0.6})
    assert [row.verdict for row in verdicts([lone])] == ["differs"]
    assert [row.verdict for row in verdicts([lone, other])] == ["undecided", "undecided"]


def test_rank_agreement_is_kendalls_tau() -> None:
    """Tau counts concordant less discordant pairs: one swap among four methods gives (5 - 1) / 6."""
    frame = pd.DataFrame(
        {
            "dataset": ["Cora"] * 4 + ["PubMed"] * 2,
            "method": ["a", "b", "c", "d", "a", "b"],
            "published_mean": [1.0, 2.0, 3.0, 4.0, 1.0, 2.0],
            "ours_mean": [1.0, 3.0, 2.0, 4.0, 1.0, math.nan],
        }
    )
    found = rank_agreement(frame, by=["dataset"])
    assert found["methods"].tolist() == [4, 1]
    assert found["tau"].iloc[0] == pytest.approx(4 / 6)
    assert math.isnan(found["tau"].iloc[1])
    with pytest.raises(ArgumentError, match="unique"):
        rank_agreement(frame.assign(method="a"), by=["dataset"])


# ---------------------------------------------------------------------------------------------------------
# intervals, pairs, rates, claims


def test_interval_is_the_t_interval() -> None:
    """The interval of 1, 2, 3 is 2 ± 4.3027 / sqrt(3); one value has a mean and no interval."""
    found = interval([1.0, 2.0, 3.0])
    assert (found.mean, found.low, found.high) == pytest.approx(
        (2, 2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), abs=1e-5
    )
    assert interval([5.0]).mean == 5 and math.isnan(interval([5.0]).low)
    with pytest.raises(ArgumentError):
        interval([])


def test_paired_agrees_with_scipy_and_brute_force() -> None:
    """The t test equals SciPy's, and the sign-flip p a loop over all sign patterns."""
    rng = np.random.default_rng(3)
    a = rng.normal(0.8, 0.02, 8)
    b = a - 0.01 + rng.normal(0, 0.01, 8)
    found = paired(list(a), list(b))
    reference = stats.ttest_rel(a, b)
    ends = reference.confidence_interval(0.95)
    assert (found.p, found.low, found.high) == pytest.approx((reference.pvalue, ends.low, ends.high))
    gaps = a - b
    sums = [abs(np.dot(signs, gaps)) for signs in itertools.product([-1, 1], repeat=8)]
    assert found.p_signflip == pytest.approx(np.mean([value >= abs(gaps.sum()) - 1e-12 for value in sums]))


def test_paired_uses_the_pairing() -> None:
    """A small steady gain across seeds that differ much is seen in pairs, and lost without them."""
    base = np.linspace(0.6, 0.9, 10)
    gain = base + 0.005 + 0.001 * np.cos(np.arange(10))
    assert paired(list(gain), list(base)).p < 1e-4
    assert stats.ttest_ind(gain, base).pvalue > 0.5
    assert math.isnan(paired(list(range(13)), [0.5] * 13).p_signflip)
    with pytest.raises(ArgumentError):
        paired([1.0, 2.0], [1.0])
    with pytest.raises(ArgumentError, match="b must be finite scores"):
        paired([1.0, 2.0], [1.0, math.nan])


def test_slope_recovers_an_exponent() -> None:
    """Points on y = 2 x^-1.5 give slope -1.5, and noisy ones SciPy's slope and interval."""
    x = np.array([1.0, 2, 4, 8, 16])
    exact = slope(list(x), list(2 * x**-1.5))
    assert (exact.slope, math.exp(exact.intercept)) == pytest.approx((-1.5, 2))
    y = x**2 * np.exp(np.random.default_rng(0).normal(0, 0.1, 5))
    reference = stats.linregress(np.log(x), np.log(y))
    half = stats.t.ppf(0.975, 3) * reference.stderr
    found = slope(list(x), list(y))
    assert (found.slope, found.low, found.high) == pytest.approx(
        (reference.slope, reference.slope - half, reference.slope + half)
    )
    assert math.isnan(slope([1, 2], [1, 2]).low)
    with pytest.raises(ArgumentError, match="positive"):
        slope([1, 0], [1, 2])


@pytest.mark.parametrize(
    ("signs", "of_all", "of_most"),
    [("+++", "holds", "holds"), ("++-", "holds in part", "holds"), ("++0", "holds in part", "holds"),
     ("+-0", "holds in part", "holds in part"), ("+--", "holds in part", "fails"), ("--0", "fails", "fails"),
     ("+00", "holds in part", "holds in part"), ("-00", "fails", "undecided"),
     ("000", "undecided", "undecided")],
)  # fmt: skip
def test_a_claim_of_most_parts_needs_more_than_half(signs: str, of_all: str, of_most: str) -> None:
    """A claim of all parts holds where all are shown; of most, where more than half are; half against refute it."""
    ends = {"+": (1.0, 2.0), "-": (-2.0, -1.0), "0": (-1.0, 1.0)}
    parts = {
        f"{place}": (Paired(sum(ends[sign]) / 2, *ends[sign], 0.5, 0.5, 3), 0.0, math.inf)
        for place, sign in enumerate(signs)
    }
    assert (judge(parts)[1], judge(parts, most=True)[1]) == (of_all, of_most)


@pytest.mark.parametrize(
    ("signs", "verdict"),
    [("+--", "holds"), ("+00", "holds"), ("---", "fails"), ("--0", "undecided"), ("000", "undecided")],
)
def test_a_claim_of_some_parts_needs_one(signs: str, verdict: str) -> None:
    """One part shown is enough, and all contradicted refute it; one that is undecided or was not compared saves it."""
    ends = {"+": (1.0, 2.0), "-": (-2.0, -1.0), "0": (-1.0, 1.0)}
    parts: dict[str, Any] = {
        f"{place}": (Paired(sum(ends[sign]) / 2, *ends[sign], 0.5, 0.5, 3), 0.0, math.inf)
        for place, sign in enumerate(signs)
    }
    assert judge(parts, some=True)[1] == verdict
    missing = {"missing": (None, 0.0, math.inf)}
    assert judge(parts | missing, some=True)[1] == ("undecided" if verdict == "fails" else verdict)


def test_what_was_not_compared_is_neither_for_nor_against_most() -> None:
    """Two of 24 parts, contradicted, refute nothing about most of them."""
    down = Paired(-1.0, -1.5, -0.5, 0.5, 0.5, 3)
    missing = {f"{place}": (None, 0.0, math.inf) for place in range(22)}
    parts = {"Cora": (down, 0.0, math.inf), "CiteSeer": (down, 0.0, math.inf)}
    assert judge(parts, most=True)[1] == "fails"
    assert judge(parts | missing, most=True)[1] == "undecided"


def test_many_parts_are_not_shown_by_chance() -> None:
    """Of claims of ten parts that are all zero, few have a part shown or contradicted; of one part, 5%."""
    draws = np.random.default_rng(0).normal(size=(400, 10, 3))

    def decided(parts: int) -> float:
        """Share of claims of which any part is decided."""
        texts = [
            judge({f"{n}": (paired(gaps.tolist(), [0.0] * 3), 0.0, math.inf) for n, gaps in enumerate(one[:parts])})[0]
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
    assert judge({"tie": (tie, 0.0, math.inf)})[1] == judge({"tie": (tie, -math.inf, 0.0)})[1] == "undecided"
    assert judge({"one": (one, 0.0, math.inf)})[1] == "holds" and judge({"one": (one, -math.inf, 0.0)})[1] == "fails"


def test_a_part_shown_alone_says_so() -> None:
    """An interval inside its range that many undecided parts outweigh is undecided, and named; two are shown."""
    sure, open_part = paired([1.0, 1.4, 1.2], [0.0] * 3), paired([1.0, -1.0, 0.1], [0.0] * 3)
    parts = {f"{place}": (open_part, 0.0, math.inf) for place in range(9)}
    text, verdict = judge(parts | {"one": (sure, 0.0, math.inf)})
    assert verdict == "undecided"
    assert text.startswith("0 shown, 0 contradicted, 10 undecided: 0 +0.0 [")
    assert text.endswith("one +1.2 [+0.7, +1.7] undecided (shown if alone) (points)")
    assert judge({"one": (sure, 0.0, math.inf)})[1] == "holds"


@pytest.mark.parametrize("within", [(-2.0, 2.0), (-2.0, math.inf), (3.0, math.inf), (1.1, 1.3)])
def test_a_parts_p_value_agrees_with_its_interval(within: tuple[float, float]) -> None:
    """A part alone is decided exactly where its p-value, that of a t test against the nearer end, is at most 5%."""
    for shift in np.linspace(-6, 6, 49):
        gaps = [1.0 + shift, 1.4 + shift, 1.2 + shift]
        alone, p = _alone(interval(gaps), *within)
        assert (p <= 0.05) == (alone != "undecided")
        tests = [stats.ttest_1samp(gaps, edge).pvalue for edge in within if math.isfinite(edge)]
        assert p == pytest.approx(max(tests))


def test_a_claim_of_all_parts_does_not_hold_while_one_was_not_compared() -> None:
    """What has no two runs is named, and keeps a claim from holding, but not from failing."""
    up, down = (Paired(x, x - 0.5, x + 0.5, 0.5, 0.5, 3) for x in (1.0, -1.0))
    text, verdict = judge({"Cora": (up, 0.0, math.inf), "Photo": (None, 0.0, math.inf)})
    assert verdict == "holds in part"
    assert text.endswith("(points); not compared: Photo")
    assert judge({"Cora": (up, 0.0, math.inf)})[1] == "holds"
    assert judge({"Cora": (down, 0.0, math.inf), "Photo": (None, 0.0, math.inf)})[1] == "fails"
    assert judge({"Photo": (None, 0.0, math.inf)})[1] == "cannot be checked here"


def test_claims_are_judged_by_their_checks() -> None:
    """A claim's row holds what was checked, the evidence and the verdict its check returns."""

    def check(get: Callable[..., pd.DataFrame]) -> tuple[str, str]:
        """Mean over all runs."""
        return f"{get('FG-T1')['test'].mean():.2f}", "holds"

    found = claims_table([Claim("FG-C1", "fedgat", "High.", check)], lambda _: pd.DataFrame({"test": [0.5, 1.0]}))
    assert tuple(found.columns) == CLAIM_COLUMNS
    assert found.iloc[0].tolist() == ["FG-C1", "fedgat", "High.", "Mean over all runs.", "0.75", "holds"]


def test_a_claim_needs_a_known_verdict() -> None:
    """A verdict that is none of the four, or a check that does not say what it checks, is an error."""

    def wrong(get: Callable[..., pd.DataFrame]) -> tuple[str, str]:
        """Nothing."""
        return "", "hold"

    with pytest.raises(ArgumentError, match="Did you mean 'holds'"):
        claims_table([Claim("x", "fedgat", "", wrong)], lambda _: pd.DataFrame())
    with pytest.raises(ArgumentError, match="docstring"):
        claims_table([Claim("x", "fedgat", "", lambda get: ("", "holds"))], lambda _: pd.DataFrame())


@pytest.mark.parametrize(
    ("measured", "bound", "verdict"),
    [(2.0, {"most": 2.0}, "holds"), (2.01, {"most": 2.0}, "fails"), (2.0, {"least": 2.0}, "holds"),
     (1.9, {"least": 2.0}, "fails"), (None, {"most": 2.0}, "not measured"), (math.nan, {"least": 2.0}, "not measured")],
)  # fmt: skip
def test_a_limit_is_kept_broken_or_not_measured(measured: float | None, bound: dict[str, float], verdict: str) -> None:
    """A limit belongs to what keeps it; what was not measured keeps none."""
    assert limit("x", "a number", measured, **bound)["verdict"] == verdict


def test_a_limit_is_one_number() -> None:
    """Two limits, or none, are an error."""
    for bounds in ({}, {"most": 1.0, "least": 0.0}):
        with pytest.raises(ArgumentError, match="exactly one limit"):
            limit("x", "a number", 1.0, **bounds)
