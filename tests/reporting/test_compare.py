"""The word of a published number, cell by cell and over a table."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedrepro.errors import ArgumentError
from fedrepro.reporting import exhibits, rule
from fedrepro.reporting.compare import judge_cell, judge_table, over_graphs, rank_agreement
from fedrepro.reporting.rule import Prior

# ---------------------------------------------------------------------------------------------------------
# one cell


def test_the_difference_is_in_points() -> None:
    """Fractions and percent give the same difference, intervals and word."""
    ours = [0.79, 0.80, 0.82, 0.81]
    a = judge_cell(ours, 0.80, 0.01, spread_kind="sd", redrawn=True, rounding=0.001)
    b = judge_cell([100 * score for score in ours], 80.0, 1.0, point=1.0, spread_kind="sd", redrawn=True, rounding=0.1)
    assert (a.difference, a.half90, a.half95) == pytest.approx((b.difference, b.half90, b.half95))
    assert a.difference == pytest.approx(0.5) and a.verdict == b.verdict


def test_interval_of_the_difference_is_welch() -> None:
    """The intervals of a redrawn study are those of Welch's t, as SciPy computes them from the scores themselves."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(80, 2, 7), rng.normal(79, 1, 10)
    found = judge_cell(list(a), b.mean(), b.std(ddof=1), point=1.0, spread_kind="sd", redrawn=True)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert found.difference - found.half95 == pytest.approx(expected.low)


def test_standard_errors_and_confidence_intervals_become_standard_deviations() -> None:
    """A cell gives one interval, however its spread is printed."""
    ours, sd = [0.78, 0.80, 0.81], 0.02
    half = float(stats.t.ppf(0.975, 9)) * sd / math.sqrt(10)
    normal = 1.96 * (sd * math.sqrt(9 / 10)) / math.sqrt(10)
    plain = judge_cell(ours, 0.8, sd, spread_kind="sd", redrawn=True)
    for kind, printed in (("standard error", sd / math.sqrt(10)), ("ci95", half), ("ci95 normal", normal)):
        other = judge_cell(ours, 0.8, printed, spread_kind=kind, redrawn=True)
        assert (other.half90, other.half95) == pytest.approx((plain.half90, plain.half95))


def test_a_kept_split_widens_the_interval() -> None:
    """A split that a paper kept widens the interval; both words are there, and the flag chooses between them."""
    ours = [0.78, 0.80, 0.82, 0.81, 0.79]
    kept, redrawn, unknown = (judge_cell(ours, 0.76, 0.002, redrawn=flag) for flag in (False, True, None))
    assert kept.half95 > redrawn.half95
    assert kept.verdict == kept.if_kept == unknown.verdict != redrawn.verdict == redrawn.if_redrawn
    assert (kept.if_kept, kept.if_redrawn) == (redrawn.if_kept, redrawn.if_redrawn)
    assert "not known whether splits were redrawn" in unknown.why and not kept.why.count("not known")


def test_an_open_question_that_changes_no_word_is_not_told() -> None:
    """An unknown redrawing of splits is told only if the two words differ."""
    assert "not known" not in judge_cell([0.79, 0.80, 0.81], 0.40, 0.01).why
    assert "not known" in judge_cell([0.78, 0.80, 0.82, 0.81, 0.79], 0.76, 0.002).why


@pytest.mark.parametrize("redrawn", [True, False])
def test_graphs_drawn_anew_have_their_own_variance_without_the_prior(redrawn: bool) -> None:
    """Both means err by the graph too if our runs keep one, as far as graphs drawn anew show; see `rule`."""
    ours, anew = [0.79, 0.80, 0.82, 0.81], (0.03, 6)
    judged = judge_cell(
        ours, 0.80, None, spread_kind="", redrawn=redrawn, rounding=0.01, prior=Prior(0.2, 9), anew=anew
    )
    within = (9 * 0.2 + 3 * np.var(np.multiply(100, ours), ddof=1)) / (9 + 3)
    variance = within / 4 + (9.0 - within) + 9.0 / (10 if redrawn else 1) + 1 / 12
    assert judged.half95 == pytest.approx(stats.t.ppf(0.975, 5) * math.sqrt(variance))


def test_the_expected_peak_has_its_own_errors() -> None:
    """Our standard deviation errs by about its size over the root of twice its freedom, and so does our peak."""
    ours = [0.79, 0.80, 0.81, 0.80, 0.79, 0.81]
    sd, draws = 100 * float(np.std(ours, ddof=1)), np.random.default_rng(0).normal(size=(400_000, 10)).max(axis=1)
    variance = sd**2 * (1 / 6 + draws.mean() ** 2 / (2 * 5) + draws.var())
    half = stats.t.ppf(1 - 0.025 / 2, 5) * math.sqrt(variance)
    assert judge_cell(ours, 0.80, None, spread_kind="peak").half95 == pytest.approx(half, rel=0.005)


def test_spreads_over_graphs_are_those_of_samples() -> None:
    """The scores on graphs drawn anew of a printed cell are a sample of five."""
    scores = pd.Series([0.70, 0.80, 0.75, 0.90, 0.65])
    assert over_graphs({"anew": scores}) == (pytest.approx(np.std(scores, ddof=1)), 5)


def test_one_run_has_the_spread_of_the_prior() -> None:
    """With a prior a single run is tested, and says so; without one it is not."""
    prior = Prior(1.0, 8.0)
    alone = judge_cell([0.80], 0.81, 0.01, redrawn=True, prior=prior)
    assert alone.verdict == rule.COMPATIBLE and "one run: its spread is the prior's" in alone.why
    assert math.isnan(alone.ours_sd)
    none = judge_cell([0.80], 0.81, 0.01, redrawn=True)
    assert none.verdict == rule.NOT_TESTED and "one run only" in none.why


def test_a_peak_is_held_against_our_expected_peak() -> None:
    """The published best of ten runs lies 1.54 standard deviations above the mean that made it."""
    ours = [0.79, 0.80, 0.81, 0.80, 0.79, 0.81]
    sd = float(np.std(ours, ddof=1))
    found = judge_cell(ours, 0.80, None, spread_kind="peak")
    assert found.difference == pytest.approx(100 * (1.53875 * sd), abs=1e-3)
    assert "peak" in found.why


@pytest.mark.parametrize(
    ("ours", "mean", "untested", "word"),
    [
        ([], 0.8, "", "not measured"),
        ([0.8, 0.8], None, "", "nothing published"),
        ([0.8, 0.8], 0.8, "measured on a stand-in", "stand-in"),
    ],
)
def test_what_cannot_be_tested_says_why(ours: list[float], mean: float | None, untested: str, word: str) -> None:
    """No run, an empty cell, a stand-in: not tested, and why."""
    found = judge_cell(ours, mean, 0.01, untested=untested)
    assert found.verdict == rule.NOT_TESTED and word in found.why and math.isnan(found.p)


def test_what_was_assumed_is_said() -> None:
    """An unexplained ±, and a spread that is not printed."""
    assert "standard deviation over 10 runs" in judge_cell([0.8, 0.81], 0.8, 0.01, spread_kind="not stated").why
    assert "ours stands for it" in judge_cell([0.8, 0.81], 0.8, None, spread_kind="").why
    assert judge_cell([0.8, 0.81], 0.8, 0.01, spread_kind="sd", redrawn=True).why == ""


def test_spreads_of_zero_are_exact() -> None:
    """Without any scatter on either side the difference itself decides."""
    assert judge_cell([0.8, 0.8], 0.805, 0.0, redrawn=True).verdict == rule.AGREES
    assert judge_cell([0.8, 0.8], 0.9, 0.0, redrawn=True).verdict == rule.DIFFERS


@pytest.mark.parametrize(
    ("ours", "published", "spread", "kind", "word"),
    [
        ([0.8, math.nan], 0.8, 0.01, "sd", "ours must be finite numbers"),
        (["a"], 0.8, 0.01, "sd", "ours must be finite numbers"),
        (0.8, 0.8, 0.01, "sd", "ours must be a list"),
        ([0.8, 0.8], math.inf, 0.01, "sd", "published must be"),
        ([0.8, 0.8], 0.8, -1.0, "sd", "at least 0"),
        ([0.8], 0.8, 0.1, "sdd", "'sd'"),
    ],
)
def test_impossible_input_is_named(ours: list[float], published: float, spread: float, kind: str, word: str) -> None:
    """A score that is not a number, no list, an infinite number, a negative spread, an unknown kind: each is named."""
    with pytest.raises(ArgumentError, match=word):
        judge_cell(ours, published, spread, spread_kind=kind)


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
    judged = judge_table(ours, fg_t1())
    assert len(judged) == 24
    assert set(judged["verdict"]) <= set(rule.WORDS)
    cell = judged[
        (judged["dataset"] == "Cora") & (judged["method"] == "FedGAT") & (judged["setting"] == "non-iid")
    ].iloc[0]
    assert cell["published"] == "0.80 ± 0.005"
    assert (cell["runs"], cell["verdict"]) == (5, rule.AGREES)
    assert cell["ours_mean"] == pytest.approx(0.8)
    assert (judged["runs"] == 0).sum() == 23
    assert judged.loc[judged["runs"] == 0, "verdict"].eq(rule.NOT_TESTED).all()


def test_a_number_of_another_protocol_is_not_tested() -> None:
    """A printed number that equals one of another protocol gets no word, and the reason says so."""
    ours = runs_of({("Cora", "FedGAT", 10, NON_IID): [0.80, 0.80, 0.80]})
    copied = fg_t1().assign(provenance="equals Another Paper, Table 1")
    found = judge_table(ours, copied).query("runs > 0").iloc[0]
    assert found["verdict"] == rule.NOT_TESTED and "equals Another Paper" in found["why"]
    assert found["provenance"] == "equals Another Paper, Table 1"
    assert judge_table(ours, copied.assign(provenance="own")).query("runs > 0").iloc[0]["verdict"] != rule.NOT_TESTED


def test_shifted_numbers_flip_words() -> None:
    """Negative control: printed numbers five points off turn "agrees" into "differs"."""
    ours = runs_of({("Cora", "FedGAT", 10, NON_IID): [0.798, 0.801, 0.802, 0.799, 0.800, 0.797, 0.803]})
    cells = fg_t1().assign(redrawn=True)
    assert judge_table(ours, cells).query("runs > 0")["verdict"].tolist() == [rule.AGREES]
    shifted = cells.assign(value_number=cells["value_number"] + 0.05)
    assert judge_table(ours, shifted).query("runs > 0")["verdict"].tolist() == [rule.DIFFERS]


def test_table_never_takes_a_standin_for_the_data() -> None:
    """A stand-in fills an empty cell untested, and leaves a measured one alone."""
    real = runs_of({("Cora", "FedGAT", 10, NON_IID): [0.80, 0.80, 0.80]})
    fake = runs_of({(f"{name}~standin", "FedGAT", 10, NON_IID): [0.1, 0.1] for name in ("Cora", "PubMed")})
    judged = judge_table(pd.concat([real, fake]), fg_t1()).set_index(["dataset", "method", "setting"])
    assert judged.loc[("Cora", "FedGAT", "non-iid"), "verdict"] == rule.AGREES
    assert judged.loc[("PubMed", "FedGAT", "non-iid"), "verdict"] == rule.NOT_TESTED
    standin = judged.loc[("PubMed", "FedGAT", "non-iid")]
    assert "stand-in" in standin["why"] and math.isnan(standin["difference"])


def test_table_judges_an_incomplete_graph_under_its_own_name() -> None:
    """It is judged where no run on the whole graph exists, before a stand-in, and the row has its name and says so."""
    kinds = {"~incomplete": [0.80, 0.80, 0.80], "~standin": [0.1, 0.1]}
    both = [
        runs_of({(name + kind, "FedGAT", 10, NON_IID): values for name in ("Cora", "PubMed")})
        for kind, values in kinds.items()
    ]
    real = runs_of({("PubMed", "FedGAT", 10, NON_IID): [0.7, 0.7, 0.7]})
    judged = judge_table(pd.concat([*both, real]), fg_t1()).query("runs > 0").set_index("dataset")
    assert set(judged.index) == {"Cora~incomplete", "PubMed"}
    partly = judged.loc["Cora~incomplete"]
    assert partly["verdict"] == rule.AGREES and partly["why"].startswith("measured on a graph of which a part")
    assert math.isfinite(partly["difference"]) and partly["runs"] == 3
    assert judged.loc["PubMed", "ours_mean"] == pytest.approx(0.7) and "part" not in judged.loc["PubMed", "why"]


def test_table_leaves_failed_runs_out() -> None:
    """A failed run is no result."""
    ours = runs_of({("Cora", "FedGAT", 10, NON_IID): [0.80, 0.80, 0.80]})
    ours.loc[2, ["status", "test"]] = ["failed", math.nan]
    assert judge_table(ours, fg_t1())["runs"].sum() == 2


def test_table_refuses_to_mix_runs() -> None:
    """Two runs of one seed in one cell mean that `on` does not tell them apart."""
    ours = runs_of({("Cora", "FedGAT", 10, NON_IID): [0.80, 0.80]})
    with pytest.raises(ArgumentError, match="tell runs of one seed apart"):
        judge_table(pd.concat([ours, ours.assign(hidden=8)]), fg_t1())


def test_table_of_nothing_is_all_unmeasured() -> None:
    """An empty store gives the published cells and no verdict."""
    found = judge_table(pd.DataFrame(), fg_t1())
    assert len(found) == 24 and found["why"].str.startswith("not measured").all()


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
    agreement = rank_agreement(frame, by=["dataset"])
    assert agreement["methods"].tolist() == [4, 1]
    assert agreement["tau"].iloc[0] == pytest.approx(4 / 6)
    assert math.isnan(agreement["tau"].iloc[1])
    with pytest.raises(ArgumentError, match="unique"):
        rank_agreement(frame.assign(method="a"), by=["dataset"])

    equal = frame.assign(ours_mean=[1.0, 1.0, 1.0, 1.0, 1.0, 2.0])
    assert math.isnan(rank_agreement(equal, by=["dataset"])["tau"].iloc[0])  # all of ours are level
