"""FedGAT's Theorems 1 to 5 and Lemma 1, with bounds by hand, counterexamples, and worst cases by brute force."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest

from fedrepro.errors import ArgumentError
from fedrepro.papers.fedgat import protocol
from fedrepro.papers.fedgat.chebyshev import coefficients
from fedrepro.papers.fedgat.theory import bounds, identities, theorems, trials
from fedrepro.papers.fedgat.theory.bounds import (
    Function,
    chebyshev_error,
    exp_leaky_relu,
    rate,
    slope_variation,
    theorem2_bound,
)
from fedrepro.runs.run import Run


@pytest.fixture(scope="module")
def result() -> dict:
    return theorems.theorems(Run("check", "fedgat", "FedGAT-theorems"))["result"]


@pytest.fixture(scope="module")
def verdicts(result: dict) -> dict[str, str]:
    return {row["id"]: row["verdict"] for row in result["checks"]}


# -- the counterexamples of FG-Q10 -----------------------------------------------------------------------------------


def test_theorem_3_fails_by_hand(result: dict) -> None:
    """One score of 20 at x = -2 rises by 0.05 and the others fall, which moves alpha by more than the bound."""
    e = math.exp(-0.4)
    error = (e + 0.05) / (e + 0.05 + 19 * (e - 0.05)) - 1 / 20
    cases = result["counterexamples"]
    assert abs(cases["attention"] - error) < 1e-15
    assert abs(cases["attention bound"] - (1 / 20) * 0.1 / 0.95) < 1e-15
    assert cases["attention bound"] < 0.0053 < 0.0075 < cases["attention"] < cases["attention corrected"]


def test_equation_15_fails_by_hand(result: dict) -> None:
    """With ReLU at x = 2 and delta = 0.01 the score grows by seven times the printed bound."""
    cases = result["counterexamples"]
    assert abs(cases["scores"] - (math.exp(2.02) - math.exp(2))) < 1e-12
    assert abs(cases["scores bound"] - 0.02 * math.exp(0.02)) < 1e-12
    assert 7 * cases["scores bound"] < cases["scores"] < cases["scores corrected"]


def test_theorem_4_fails_where_scores_fall_below_one_half(result: dict, verdicts: dict[str, str]) -> None:
    """The identity as psi breaks it by a factor near 2. ReLU, LeakyReLU and ELU do not break it."""
    cases = result["counterexamples"]
    assert 1.9 * cases["embedding bound"] < cases["embedding"] < cases["embedding corrected"]
    score = math.exp(-1 - math.cos(math.radians(52)))  # at the angle of the largest error
    assert cases["embedding corrected"] == pytest.approx(0.002 / score / (1 - 0.001 / score), rel=1e-12)
    by_psi = {psi: verdicts[f"FG-Th4-{psi}"] for psi in bounds.PSI}
    assert by_psi == {"ReLU": "holds", "LeakyReLU": "holds", "ELU": "holds", "tanh": "fails", "identity": "fails"}


def test_equation_17_fails_by_hand(verdicts: dict[str, str]) -> None:
    """Two opposed neighbours that move apart and to one side break it as printed, with psi the identity."""
    a, s, delta = math.radians(63.4), 1.225, 0.001

    def layer(along: float, across: float) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and embedding of neighbours at -b cos a and both sides of it, with the node itself at -b."""
        near = (1 - delta) * np.array([[-math.cos(a), math.sin(a)], [-math.cos(a), -math.sin(a)]])
        near += np.array([[along, across], [-along, across]])
        e = np.exp(-(1 - delta) + near[:, 0])
        return e, e @ near / e.sum()

    (e, h), (e_hat, h_hat) = layer(0.0, 0.0), layer(delta * math.cos(s), delta * math.sin(s))
    epsilon = np.abs(e_hat - e).max()
    ratio = np.linalg.norm(h_hat - h) / (2 * epsilon / (1 - epsilon) + delta)
    assert ratio > 1.07
    measured = theorems.propagation_ratios("identity", delta)
    assert ratio < measured["embeddings measured"] + 1e-3 and measured["embeddings"] < 1
    by_psi = {psi: verdicts[f"FG-Th5-17-{psi}"] for psi in bounds.PSI}
    assert by_psi == {"ReLU": "holds", "LeakyReLU": "holds", "ELU": "holds", "tanh": "fails", "identity": "fails"}


def test_theorem_4_raises_one_of_two_opposed_neighbours() -> None:
    """Their b_2 is an axis. The search must also go across it, where one score rises and the other one falls."""
    layer, epsilon = trials.opposed_neighbours(), 0.01
    e = np.exp(bounds.PSI["ELU"](layer.scores()))
    moved = layer.embed(e + epsilon * np.array([1.0, -1.0])) - layer.embed(e)
    apart = np.linalg.norm(moved, axis=-1).max() / bounds.attention_factor(epsilon)
    assert theorems.embedding_ratio("ELU", epsilon, False) >= apart > 0.97


def test_the_opposed_neighbours_satisfy_the_assumptions() -> None:
    """All vectors of the counterexample to Theorem 4 have norm 1, and both scores of a node are equal."""
    layer = trials.opposed_neighbours()
    for v in layer:
        assert np.abs(np.linalg.norm(v, axis=-1) - 1).max() < 1e-12
    x = layer.scores()
    assert np.abs(x[:, 0] - x[:, 1]).max() < 1e-12 and x.min() == -2.0


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_worst_attention_error_is_the_worst() -> None:
    """The worst error is the largest one over all 2^5 corners of the box of scores within epsilon."""
    e, epsilon = np.array([0.7, 1.0, 1.3, 2.0, 5.0]), 0.3
    alpha = e / e.sum()
    corners = [e + epsilon * np.array(signs) for signs in itertools.product((-1, 1), repeat=5)]
    brute = np.max([np.abs(c / c.sum() - alpha) for c in corners], axis=0)
    assert np.abs(bounds.worst_attention_error(e, epsilon) - brute).max() < 1e-15


@pytest.mark.parametrize("least", [0.5, 1.0, 3.0])
def test_attention_factor_by_hand(least: float) -> None:
    """The factor is 2 eta / (1 - eta) with eta = epsilon / least, and an epsilon of `least` or more is an error."""
    assert abs(bounds.attention_factor(0.1, least) - 2 * (0.1 / least) / (1 - 0.1 / least)) < 1e-15
    with pytest.raises(ArgumentError, match="epsilon must be at least 0 and below the smallest score"):
        bounds.attention_factor(least, least)


def test_embedding_bound_by_hand() -> None:
    """The bound is Eq. 17 at delta = 0.01, kappa_psi = 1 and kappa_phi = 2."""
    epsilon = 0.02 * math.exp(0.02)
    assert abs(bounds.embedding_bound(0.01, 1.0, 2.0) - 2 * (2 * epsilon / (1 - epsilon) + 0.01)) < 1e-15


def test_errors_after_layers() -> None:
    """The error is delta after no layer and Eq. 17 after one. After many, only the appendix says something."""
    assert bounds.after_layers(0.01, 0) == {"eq17": 0.01, "appendix": 0.01, "section": 0.01}
    one = bounds.after_layers(0.01, 1)
    assert one["eq17"] == bounds.embedding_bound(0.01)
    assert abs(one["appendix"] - (1 + 4 * math.exp(0.02)) * 0.01) < 1e-15
    assert math.isnan(bounds.after_layers(0.01, 5)["eq17"])


def test_lemma_1() -> None:
    """It holds on [0, log c], is an equality at 0, and fails for negative x and for x large."""
    c = 1.5
    inside = np.linspace(0, math.log(c), 101)
    assert bounds.lemma1_slack(inside, c).min() >= 0 and bounds.lemma1_slack(0.0, c) == 0
    assert bounds.lemma1_slack(-0.1, c) < 0 and bounds.lemma1_slack(3.0, c) < 0


# -- Theorem 1 -------------------------------------------------------------------------------------------------------


def test_the_exact_count_by_form() -> None:
    """With 3 neighbours and 5 features the forms send 2 * 5 * 36 + 6 + 30 and 3 * 30 + 36 + 6 scalars."""
    assert protocol.scalars("matrix", 3, 5) == 396
    assert protocol.scalars("vector", 3, 5) == 132
    assert bounds.appendix_d(3, 5) == 180
    assert bounds.theorem1(2, 10, 5, 3, 3) == 2 * 10 * 5 * 27


def test_growth_with_the_degree(result: dict) -> None:
    """The Matrix form grows as g^2 and the Vector form as g, so the cubic bound is never reached."""
    g = np.log(result["theorem1.g"])
    grown = {form: np.polyfit(g, np.log(result[f"theorem1.{form}"]), 1)[0] for form in protocol.FORMS}
    assert 1.9 < grown["matrix"] < 2.05 and 1.0 < grown["vector"] < 1.15


# -- Theorem 2 --------------------------------------------------------------------------------------------------------

exp_relu = partial(exp_leaky_relu, slope=0.0)
DEGREES = range(2, 65)
DOUBLING = [2, 4, 8, 16, 32, 64]
SCORES = pytest.mark.parametrize("f", [exp_leaky_relu, exp_relu], ids=["LeakyReLU", "ReLU"])


def test_series_of_a_known_function() -> None:
    """The coefficients of exp(t) are I_0(1), 2 I_1(1), 2 I_2(1), ..., which are modified Bessel functions."""

    def bessel(n: int) -> float:
        return sum(0.5 ** (2 * m + n) / (math.factorial(m) * math.factorial(m + n)) for m in range(20))

    expected = [bessel(0)] + [2 * bessel(n) for n in range(1, 9)]
    assert np.abs(coefficients(np.exp, 8) - expected).max() < 1e-14


def test_series_of_a_polynomial_is_exact() -> None:
    """A cubic has no error from degree 3 on, and one below."""

    def cubic(x: np.ndarray) -> np.ndarray:
        return x**3 - 2 * x + 0.5

    assert chebyshev_error(cubic, 3, radius=3.0) < 1e-12
    assert abs(chebyshev_error(cubic, 2, radius=3.0) - 27 / 4) < 1e-12  # t^3 = (3 T_1 + T_3) / 4


@pytest.mark.parametrize(("radius", "degree", "known"), [(1, 8, 0.028), (1, 16, 0.015), (2, 8, 0.055), (2, 16, 0.030)])
def test_error_of_the_gat_score(radius: float, degree: int, known: float) -> None:
    """The errors of exp(LeakyReLU) at degree 8 and 16 on [-1, 1] and [-2, 2] (FG-Q11)."""
    assert abs(chebyshev_error(exp_leaky_relu, degree, radius) - known) < 6e-4


@pytest.mark.parametrize(("radius", "slope"), [(1.0, 0.2), (1.0, 0.0), (2.0, 0.2)])
def test_variation_in_closed_form(radius: float, slope: float) -> None:
    """The slope of exp(LeakyReLU) only rises, so its variation is what it gains from one end to the other."""
    gained = radius * (math.exp(radius) - slope * math.exp(-slope * radius))
    measured = slope_variation(partial(exp_leaky_relu, slope=slope), radius)
    assert abs(measured - gained) < 1e-3 * gained


@SCORES
def test_bound_holds_at_every_degree(f: Function) -> None:
    """The bound 2V / (pi (p - 1)) is never below the error, for p = 2..64 on [-1, 1]."""
    variation = slope_variation(f)
    assert all(chebyshev_error(f, p) <= theorem2_bound(variation, p) for p in DEGREES)


@SCORES
def test_a_tenth_of_the_variation_breaks_the_bound(f: Function) -> None:
    """With V / 10, a negative control, the bound is below the error at most degrees."""
    variation = slope_variation(f) / 10
    broken = [p for p in DEGREES if chebyshev_error(f, p) > theorem2_bound(variation, p)]
    assert len(broken) > 55 and broken[-1] == 64


@pytest.mark.parametrize(("f", "jump"), [(exp_leaky_relu, 0.8), (exp_relu, 1.0)], ids=["LeakyReLU", "ReLU"])
def test_a_kink_costs_one_over_p(f: Function, jump: float) -> None:
    """The slope is -1 as Theorem 2 says for k = 1, and p times the error tends to (jump of f') / pi."""
    assert -1.02 < rate(f, range(16, 65)) < -0.95
    assert -1.0 < rate(f, DOUBLING) < -0.85
    assert abs(64 * chebyshev_error(f, 64) - jump / math.pi) < 0.02 * jump / math.pi


def test_a_smooth_score_falls_much_faster() -> None:
    """The error of exp(x), which has no kink, falls much faster than that of the kinked scores."""
    assert rate(np.exp, [2, 4, 8]) < -8
    assert chebyshev_error(np.exp, 16) < 1e-12 < 1e-2 < chebyshev_error(exp_leaky_relu, 16)


def test_bound_in_numbers() -> None:
    """By hand, V = pi, p = 5 and k = 2 give 2 / (2 * 9)."""
    assert abs(theorem2_bound(math.pi, 5, 2) - 1 / 9) < 1e-15


def test_arguments_are_checked() -> None:
    """A degree of at most k, a radius of 0 and a single degree are errors that name the argument."""
    with pytest.raises(ArgumentError, match=r"degree must be larger than k = 1\. Got 1\."):
        theorem2_bound(1.0, 1)
    with pytest.raises(ArgumentError, match="radius must be positive"):
        chebyshev_error(np.exp, 3, 0.0)
    with pytest.raises(ArgumentError, match="degrees must be at least two different degrees"):
        rate(np.exp, [4, 4])


# -- the rows --------------------------------------------------------------------------------------------------------


def test_corrected_bounds_hold_and_a_quarter_of_them_breaks(verdicts: dict[str, str]) -> None:
    """Each theorem and the lemma has a row that holds and a control that fails."""
    for name in ("FG-Th1", "FG-Th3", "FG-Th4", "FG-Th5-15", "FG-Th5-16", "FG-Th5-17", "FG-L1"):
        assert verdicts[name] == "holds", name
        assert verdicts[f"{name}-control"] == "fails, as it must", name
    for radius in (1, 2):
        for score in ("ReLU", "LeakyReLU"):
            assert verdicts[f"FG-Th2-{score}-{radius}"] == verdicts[f"FG-Th2-{score}-{radius}-rate"] == "holds"
            assert verdicts[f"FG-Th2-{score}-{radius}-control"] == "fails, as it must"
    assert not [name for name, verdict in verdicts.items() if verdict == "passes, as it must not"]


def test_what_fails_as_printed(verdicts: dict[str, str]) -> None:
    """Theorem 3 holds only for ReLU, Eq. 15 holds for no psi, and Lemma 1 does not hold below zero."""
    assert [psi for psi in bounds.PSI if verdicts[f"FG-Th3-{psi}"] == "holds"] == ["ReLU"]
    assert {verdicts[f"FG-Th5-15-{psi}"] for psi in bounds.PSI} == {"fails"}
    assert verdicts["FG-Th1-work"] == "not tested"  # the exponent of a formula
    assert verdicts["FG-L1-printed"] == verdicts["FG-Th1-count"] == verdicts["FG-Th5-section"] == "fails"


def test_random_layers_satisfy_the_assumptions() -> None:
    """Features and b_1, b_2 have norm at most 1, and scores reach both ends of [-2, 2]."""
    low, high = 0.0, 0.0
    for layer in trials.random_layers(3):
        for v in layer:
            assert np.linalg.norm(v, axis=-1).max() <= 1 + 1e-12
        x = layer.scores()
        low, high = min(low, x.min()), max(high, x.max())
    assert low < -1.99 and high > 1.99


def test_float32_powers_are_worse_than_the_recurrence(result: dict) -> None:
    """At degree 24 the error of powers of x is over 1000 times that of the recurrence. At degree 4 both are small."""
    errors = result["float32"]
    at = errors["degree"].index(24)
    assert errors["powers"][at] > 1000 * errors["recurrence"][at]
    assert max(errors["recurrence"]) < 1e-4 and errors["powers"][0] < 1e-4


# -- numbers that are not finite --------------------------------------------------------------------------------------


def test_the_largest_of_the_trials_is_nan_if_one_is() -> None:
    """A trial whose error is NaN decides its name, wherever it stands, and no other name."""
    for order in itertools.permutations([{"a": 1.0, "b": 1.0}, {"a": math.nan, "b": 2.0}, {"a": 3.0, "b": 0.5}]):
        worst = trials.largest(order)
        assert math.isnan(worst["a"]) and worst["b"] == 2.0


def test_a_layer_whose_error_is_nan_breaks_theorems_3_and_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch of layers among many is enough, and neither ratio is then below its bound."""
    worst, embed, calls = bounds.worst_attention_error, trials.Layer.embed, itertools.count()

    def broken(e: np.ndarray, epsilon: float) -> np.ndarray:
        return worst(e, epsilon) * (math.nan if next(calls) == 2 else 1.0)

    def lost(layer: trials.Layer, e: np.ndarray) -> np.ndarray:
        return embed(layer, e) * (math.nan if next(calls) == 9 else 1.0)

    monkeypatch.setattr(bounds, "worst_attention_error", broken)
    assert math.isnan(theorems.attention_ratio("ELU", 0.01, True))
    monkeypatch.setattr(trials.Layer, "embed", lost)
    assert math.isnan(theorems.embedding_ratio("ELU", 0.01, True))


def test_an_identity_whose_error_is_nan_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two measurements of an identity is NaN at the smallest node."""
    gap, calls = identities._gap, itertools.count()
    monkeypatch.setattr(identities, "_gap", lambda a, b: math.nan if next(calls) < 40 else gap(a, b))
    rows = identities.identities(Run("check", "fedgat", "FedGAT-identities"))["result"]["checks"]
    verdicts = {row["id"]: row["verdict"] for row in rows}
    assert {verdicts[name] for name in identities.STATEMENTS} == {"fails"}
