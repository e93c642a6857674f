"""The headline claims of Feras.

Each is judged on differences paired over seeds, on every stored graph but stand-ins, which prove nothing. A claim that
rests on a theorem is also judged by the checks of that theorem.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from fedrepro.papers.feras.exhibits.curves import LATE, curves, epochs_saved, largest_effect
from fedrepro.papers.feras.exhibits.grids import FERAS, HOSTS, ISOLATED, METHODS, PERIODS, SHARED
from fedrepro.papers.feras.exhibits.tables import (
    CELL,
    GAINS,
    kappa_slopes,
    published_gains,
    random_walk,
    real,
    score_slopes,
)
from fedrepro.reporting import checks, claims, frames
from fedrepro.reporting.claims import Get, Parts, judge_claim
from fedrepro.reporting.statistics import Interval, Paired, common, interval

NEAR = 0.01  # one accuracy point
POINTS = 100  # scores are fractions


def with_checks(judged: tuple[str, str], held: dict[str, bool]) -> tuple[str, str]:
    """Join the evidence and verdict of runs with those of a theorem's checks."""
    text, verdict = judged
    marks = ["holds" if holds else "fails" for holds in held.values()]
    told = "; ".join(f"{name} {mark}" for name, mark in zip(held, marks))
    marks += [verdict] if verdict not in (claims.UNDECIDED, claims.NOT_CHECKED, claims.NOT_TESTED) else []
    both = "; ".join(part for part in (told, text) if part)
    if not marks:
        return both, verdict
    if len(set(marks)) == 1:
        return both, marks[0]
    return both, claims.MIXED if {"fails", claims.MIXED} & {*marks} else claims.IN_PART


def held(rows: pd.DataFrame, *ids: str) -> dict[str, bool]:
    """Return whether the stored checks with some IDs hold."""
    verdicts = {id_: rows.loc[rows["id"].eq(id_), "verdict"] for id_ in ids}
    return {id_: bool(verdict.eq(checks.HOLDS).all()) for id_, verdict in verdicts.items() if len(verdict)}


def table2(get: Get) -> pd.DataFrame:
    """Return the runs of Table 2 with the random walk for all methods (FR-S2)."""
    return random_walk(get("FR-T2"))


def ahead(frame: pd.DataFrame, value: str = "score") -> pd.DataFrame:
    """Return how far one method is above another in every stored cell on a real graph, seed by seed.

    Returns:
        One row for each graph, kappa, number of hosts and seed, sorted by these. `ahead(frame)[a, b]` has the scores of
        method `a` minus those of `b`, for each pair of `GAINS`, and NaN where one has no run.
    """
    kept = real(frame.reindex(columns=[*CELL, "seed", "method", value]))
    scores = kept.pivot(index=[*CELL, "seed"], columns="method", values=value).astype(float).reindex(columns=METHODS)
    return pd.DataFrame({(a, b): scores[a] - scores[b] for a, b in GAINS}, scores.index)


def over_zero(gaps: pd.Series) -> Paired | None:
    """Return the differences paired with zero; None below two of them."""
    return common(gaps, 0 * gaps)


def lowest(cells: Sequence[pd.Series]) -> Interval | None:
    """Return the lowest of the cells' mean differences with a 95% interval; None if no cell has two differences.

    Its lower end is the lowest of the cells' lower ends. Its upper end is the lowest of their upper ends, each at
    Bonferroni's level. It lies below 0 only if some cell surely does, and above 0 only if all do.
    """
    several = [cell.tolist() for cell in cells if len(cell) > 1]
    if not several:
        return None
    usual = [interval(cell) for cell in several]
    strict = [interval(cell, level=1 - claims.LEVEL / len(several)) for cell in several]
    low, high = min(cell.low for cell in usual), min(cell.high for cell in strict)
    return Interval(min(cell.mean for cell in usual), low, high, min(map(len, several)))


def convergence(get: Get) -> tuple[str, str]:
    """Judge the constant of the contraction, the rate for every q, and that scores hardly depend on q from epoch 50 on.

    The rows of the rate are those under the printed conditions, under the corrected one, and between averages. FR-drift
    is not among them, since the claim is about the rate and not about where it leads.
    """
    parts = Parts()
    for dataset, late in late_by_q(get):
        wide = late.pivot_table(index="seed", columns="q", values="F1-micro").reindex(columns=PERIODS)
        parts |= {f"{dataset}, q={q} minus q=1": (common(wide[q], wide[1]), -NEAR, NEAR) for q in PERIODS[1:]}
    lemma = checks.collect(get("FR-L1"), "FR-L", "FR-Th")
    rates = checks.collect(get("FR-Th3"), "FR-Th", "FR-X")
    theorems = held(lemma, "FR-L1-layer1", "FR-L1-layer2", "FR-L2", "FR-Th2")
    of_rate = ("FR-Th3", "FR-X1-q5", "FR-X1-q10")
    theorems |= held(rates, *(f"{id_}{kind}" for kind in ("-printed", "") for id_ in of_rate), "FR-X1-between")
    return with_checks(judge_claim(parts, scale=POINTS), theorems)


def looser(get: Get) -> tuple[str, str]:
    """Judge Theorem 4.6, and whether Feras is earlier at a score that both reach and in its own rise."""
    points = curves(pd.concat([get("FR-F3a"), get("FR-F3b")], ignore_index=True))
    saved = epochs_saved(real(points))
    parts: Parts = {}
    for (dataset, kappa, over), cell in saved.groupby(["dataset", "kappa", "over"]):
        means = cell.groupby("seed")[["saved", "own saved"]].mean()  # over the numbers of hosts
        parts[f"{dataset}, {kappa}%, against {over}"] = (over_zero(means["saved"]), 0.0, math.inf)
        parts[f"{dataset}, {kappa}%, against {over}, own rise"] = (over_zero(means["own saved"]), 0.0, math.inf)
    text, verdict = judge_claim(parts, unit="epochs saved")
    if len(saved):
        text += f"; of {len(saved)} pairs of runs Feras is earlier in {saved['saved'].gt(0).sum()}, level in "
        text += f"{saved['saved'].eq(0).sum()}, later in {saved['saved'].lt(0).sum()}, "
        text += f"and never reaches the other's highest score in {saved['missed'].sum()} of them"
    theorem = held(checks.collect(get("FR-Th4"), "FR-Th4"), "FR-Th4", "FR-Th4-signed")
    return with_checks((text, verdict), theorem)


def gains(gaps: pd.DataFrame) -> Parts:
    """Return Feras minus isolation and minus shared weights in every cell of what `ahead` returns."""
    return {
        f"{d}, {k}%, N={n}, over {other}": (over_zero(cell[FERAS, other]), 0.0, math.inf)
        for (d, k, n), cell in gaps.groupby(CELL)
        for other in METHODS[:2]
    }


def better(get: Get) -> tuple[str, str]:
    """Judge Feras's gain over isolation and shared weights, and the slope of the gain over the four kappas of FR-F4.

    All methods have the random walk (FR-S2).
    """
    slopes: Parts = {}
    for (d, other), runs in kappa_slopes(real(get("FR-F4"))).groupby(["dataset", "over"], sort=False):
        slope = runs.set_index("seed")["slope"] / POINTS
        slopes[f"{d}, over {other}, per 10% of kappa"] = (over_zero(slope), 0.0, math.inf)

    text, verdict = judge_claim(gains(ahead(table2(get))) | slopes, scale=POINTS)
    return f"{text}; {printed_gains()}", verdict


def falling(get: Get) -> Parts:
    """Return the slope of every method's score over the four kappas of FR-F4."""
    slopes = score_slopes(real(get("FR-F4"))).groupby(["dataset", "method"], sort=False)
    return {
        f"{d}, {method}, per 10% of kappa": (over_zero(runs.set_index("seed")["slope"] / POINTS), -math.inf, 0.0)
        for (d, method), runs in slopes
    }


def better_saint(get: Get) -> Parts:
    """Return the gains under GraphSAINT's own layer, and the gain at kappa 60% minus that at 40%."""
    gaps = ahead(get("FR-T2-saint"))
    parts = gains(gaps)
    for (d, n), cell in gaps.groupby(["dataset", "hosts"]):
        for other in METHODS[:2]:
            kappas = cell[FERAS, other].droplevel(["dataset", "hosts"]).unstack("kappa").reindex(columns=[40, 60])
            parts[f"{d}, N={n}, 60% minus 40%, over {other}"] = (common(kappas[60], kappas[40]), 0.0, math.inf)
    return parts


def smallest_kappa(get: Get) -> Parts:
    """Return Feras minus each other method at kappa 30% and 40%, a mean over the numbers of hosts."""
    means, parts = ahead(get("FR-F4")).groupby(["dataset", "kappa", "seed"]).mean(), Parts()
    for d in means.index.unique("dataset"):
        for kappa, low, high in ((30, -math.inf, NEAR), (40, 0.0, math.inf)):
            for other in METHODS[:2]:
                chosen = means.query("dataset == @d and kappa == @kappa")[FERAS, other]
                parts[f"{d}, {kappa}%, over {other}"] = (over_zero(chosen), low, high)
    return parts


def more_hosts(get: Get) -> tuple[str, str]:
    """Judge whether five hosts are earlier at the highest validation score that both reach, and compare scores."""
    points = real(curves(pd.concat([get("FR-F3a"), get("FR-F3b")], ignore_index=True)))
    five = points["hosts"].eq(HOSTS[1])
    # `epochs_saved` compares methods, so three hosts take the other method's name here.
    named = points.assign(method=five.map({True: FERAS, False: SHARED}), hosts=HOSTS[1])[points["method"].eq(FERAS)]
    parts: Parts = {}
    for (d, kappa), cell in epochs_saved(named).groupby(["dataset", "kappa"]):
        parts[f"{d}, {kappa}%"] = (over_zero(cell.set_index("seed")["saved"]), 0.0, math.inf)
    text, verdict = judge_claim(parts, unit="epochs saved by N=5")
    frame, told = table2(get), []
    for (d, k), cell in real(frame).groupby(["dataset", "kappa"]) if len(frame) else ():
        ours = cell[cell["method"].eq(FERAS)].assign(points=POINTS * cell["score"])
        both = frames.difference(ours, {"hosts": HOSTS[1]}, {"hosts": HOSTS[0]}, "points")
        told += [f"{d}, {k}% {both.difference:+.1f} [{both.low:+.1f}, {both.high:+.1f}]"] if both else []
    return f"{text}. Score of N=5 minus N=3 (points): {'; '.join(told)}" if told else text, verdict


def close_periods(get: Get) -> tuple[str, str]:
    """Judge that q = 10 is within a point of q = 1 and of q = 5 from epoch 50 on."""
    return from_ten(get, (1, 5), -NEAR, NEAR)


def longer_period(get: Get) -> tuple[str, str]:
    """Judge that q = 10 is more than a point above q = 15 from epoch 50 on."""
    return from_ten(get, (15,), NEAR, math.inf)


def from_ten(get: Get, others: Sequence[int], low: float, high: float) -> tuple[str, str]:
    """Judge q = 10 minus each other q, the mean score from epoch 50 on, on each real graph of FR-F5.

    A graph on which every q, up to the largest, keeps within a point of q = 1 tests nothing. The score hardly depends
    on q there, so that a claim of close values holds and one of a gap fails, whatever the method does. The evidence
    names such a graph, which does not count. This condition was added after the numbers had been seen.
    """
    parts, idle = Parts(), []
    for dataset, late in late_by_q(get):
        effect = largest_effect(late)
        if effect is not None and effect <= NEAR:
            most = f"{POINTS * effect:.1f} points from that of q=1 at any epoch from {LATE} on"
            largest = f"q={late['q'].max():.0f}"
            idle.append(f"{dataset} tests nothing: no curve, up to {largest}, is more than {most}")
        else:
            wide = late.pivot_table(index="seed", columns="q", values="F1-micro").reindex(columns=[10, *others])
            parts |= {f"{dataset}, q=10 minus q={q}": (common(wide[10], wide[q]), low, high) for q in others}
    if idle and not parts:
        return "; ".join(idle), claims.NOT_TESTED
    text, verdict = judge_claim(parts, scale=POINTS)
    return "; ".join([text, *idle]), verdict


def late_by_q(get: Get) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each real graph of FR-F5 with its scores from epoch 50 on."""
    points = real(curves(get("FR-F5")))
    late = points[points["epoch"].ge(LATE) & points["epoch"].mod(5).eq(0)]
    for dataset in sorted(set(late["dataset"].astype(str))):
        yield dataset, late[late["dataset"].eq(dataset)]


def limited(frame: pd.DataFrame) -> tuple[str, str]:
    """Judge that shared weights gain less than a point over isolation, and lose in some cell of Table 2."""
    gaps = {f"{d}, {k}%, N={n}": cell[SHARED, ISOLATED].dropna() for (d, k, n), cell in ahead(frame).groupby(CELL)}
    parts: Parts = {f"{name}, very limited": (over_zero(cell), -math.inf, NEAR) for name, cell in gaps.items()}
    several = sum(len(cell) > 1 for cell in gaps.values())
    parts[f"the lowest of {several}, sometimes worse"] = (lowest(list(gaps.values())), -math.inf, 0.0)
    text, verdict = judge_claim(parts, scale=POINTS)
    means = [cell.mean() for cell in gaps.values() if len(cell)]
    below, above = sum(mean < 0 for mean in means), sum(mean > 0 for mean in means)
    sure = sum(cell.low > 0 for cell in map(over_zero, gaps.values()) if cell)
    if not means:
        return text, verdict
    told = f"on average {below} of {len(means)} cells are below 0, {above} above and {sure} surely above"
    return f"{text}; {told}", verdict


def printed_gains() -> str:
    """Return what the paper's Table 2 says of Feras over the best isolated row (FR-Q1)."""
    cells = published_gains().query("gain == 'Feras over GraphSAINT'").dropna(subset=["published"])
    ahead, behind = cells["published"] > cells["published_spread"], cells["published"] < -cells["published_spread"]
    large = cells[cells["published"] > NEAR]
    where = ", ".join(sorted({f"{row.dataset} {row.setting}" for row in large.itertuples()}))
    return (
        f"printed (FR-Q1): of {len(cells)} cells Feras is beyond the spreads above the best isolated row in "
        f"{ahead.sum()} (by more than a point only on {where}), below it in {behind.sum()}"
    )


CLAIMS = claims.read(
    "feras",
    {
        "FR-H1": convergence,
        "FR-H2": looser,
        "FR-H3": better,
        "FR-H3-saint": [better_saint],
        "FR-H3-visible": [lambda get: gains(ahead(table2(get), "facts.test_seen"))],  # at the last round
        "FR-H4": lambda get: limited(table2(get)),
        "FR-H4-saint": lambda get: limited(get("FR-T2-saint")),
        "FR-H5": [smallest_kappa],
        "FR-H6": more_hosts,
        "FR-H7": longer_period,
        "FR-H8": close_periods,
        "FR-H9": [falling],
    },
)
