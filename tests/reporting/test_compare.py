"""Verdicts against published numbers, and the error rates of the rule that gives them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedrepro.errors import ArgumentError
from fedrepro.reporting import exhibits
from fedrepro.reporting.compare import (
    VERDICTS,
    Verdict,
    _decide,
    rank_agreement,
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
    cells = exhibits.published("fedgat")
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
