"""Feras: its headline claims as functions of the store.

Each is judged on differences paired over seeds, on every graph stored but stand-ins, which prove nothing, and where
it rests on a theorem on that theorem's checks. What the paper's own Table 2 says (FR-Q1) stands beside claim 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fedrepro.papers.feras.exhibits.curves import LATE, curves, epochs_saved
from fedrepro.papers.feras.exhibits.gains import published_gaps
from fedrepro.papers.feras.exhibits.tables import FERAS, ISOLATED, METHODS, SHARED, chosen, named
from fedrepro.reporting.compare import LEVEL, UNDECIDED, Claim, Interval, Paired, common, interval, judge

if TYPE_CHECKING:
    import pandas as pd

Get = Callable[..., "pd.DataFrame"]
Part = tuple[Paired | Interval | None, float, float]
NEAR = 0.01  # one accuracy point


def _with_checks(judged: tuple[str, str], checks: dict[str, bool]) -> tuple[str, str]:
    """What runs show together with what the checks of a theorem show: one verdict over both."""
    text, verdict = judged
    marks = ["holds" if held else "fails" for held in checks.values()]
    told = "; ".join(f"{name} {mark}" for name, mark in zip(checks, marks))
    marks += [verdict] if verdict not in (UNDECIDED, "cannot be checked here") else []
    both = "; ".join(part for part in (told, text) if part)
    if not marks:
        return both, verdict
    return both, marks[0] if len(set(marks)) == 1 else "holds in part"


def _table2(get: Get) -> pd.DataFrame:
    """The runs of FR-T2, each method at its best of the samplers that all methods of the cell have (FR-S2)."""
    import pandas as pd

    frames = [get("FR-T2"), get("FR-T2-samplers")]
    stored = [frame for frame in frames if not frame.empty] or frames[:1]
    return chosen(named(pd.concat(stored, ignore_index=True)))


def gap(frame: pd.DataFrame, a: str, b: str, dataset: str, kappa: int, hosts: int) -> pd.Series:
    """Scores of method `a` minus those of `b` on common seeds; `frame` as `chosen` returns it."""
    cells = frame[frame["dataset"].eq(dataset) & frame["kappa"].eq(kappa) & frame["hosts"].eq(hosts)]
    wide = cells.pivot_table(index="seed", columns="method", values="score").reindex(columns=[a, b])
    return (wide[a] - wide[b]).dropna()


def _judged(gaps: pd.Series) -> Paired | None:
    """Differences against 0; None below two of them."""
    return common(gaps, 0 * gaps)


def lowest(cells: Sequence[pd.Series]) -> Interval | None:
    """The lowest of the cells' mean differences with a 95% interval; None where no cell has two differences.

    Its lower end is the lowest of the cells' lower ends, its upper end the lowest of their upper ends, each at
    Bonferroni's level: it lies below 0 only if some cell surely does, above 0 only if all do.
    """
    several = [cell.tolist() for cell in cells if len(cell) > 1]
    if not several:
        return None
    each = [interval(cell) for cell in several]
    strict = [interval(cell, level=1 - LEVEL / len(several)) for cell in several]
    low, high = min(found.low for found in each), min(found.high for found in strict)
    return Interval(min(found.mean for found in each), low, high, min(map(len, several)))


def _cells(frame: pd.DataFrame) -> list[tuple[str, int, int]]:
    """(graph, kappa, hosts) of the cells of FR-T2 that are stored, stand-ins left out: they prove nothing."""
    if frame.empty:
        return []
    real = frame[~frame["dataset"].astype(str).str.endswith("~standin")]
    return sorted({(str(d), int(k), int(n)) for d, k, n in zip(real["dataset"], real["kappa"], real["hosts"])})


def _growth(frame: pd.DataFrame, other: str, dataset: str, hosts: int) -> Paired | None:
    """By how much Feras's gain over `other` is larger at kappa 60% than at 40%, on common seeds."""
    late, early = (gap(frame, FERAS, other, dataset, kappa, hosts) for kappa in (60, 40))
    return common(late, early)


def _claim_converges(get: Get) -> tuple[str, str]:
    """Lemma 4.2 on the two-layer model with its constant measured; from epoch 50, q = 10 within a point of q = 1."""
    from fedrepro.papers.feras.exhibits import theory as feras_theory

    points = curves(named(get("FR-F5")))
    late = points[points["epoch"].ge(LATE) & points["epoch"].mod(5).eq(0)]
    wide = late.pivot_table(index=["dataset", "seed"], columns="q", values="F1-micro")
    parts: dict[str, Part] = {}
    for dataset in sorted({str(name) for name in late["dataset"] if not str(name).endswith("~standin")}):
        both = wide.loc[[dataset]].reindex(columns=[10, 1])
        parts[f"{dataset}, q=10 minus q=1"] = (common(both[10], both[1]), -NEAR, NEAR)
    return _with_checks(judge(parts, scale=100), feras_theory.contracting(get))


def _claim_looser(get: Get) -> tuple[str, str]:
    """Theorem 4.6, features non-negative and signed; Feras reaches the others' best validation score earlier (F3)."""
    import pandas as pd

    from fedrepro.papers.feras.exhibits import theory as feras_theory

    points = curves(named(pd.concat([get("FR-F3a"), get("FR-F3b")], ignore_index=True)))
    found = epochs_saved(points[~points["dataset"].astype(str).str.endswith("~standin")])
    parts: dict[str, Part] = {}
    for (dataset, kappa, over), cell in found.groupby(["dataset", "kappa", "over"]):
        saved = cell.groupby("seed")["saved"].mean()  # over the numbers of hosts
        parts[f"{dataset}, {kappa}%, to the best of {over}"] = (_judged(saved), 0.0, math.inf)
    text, verdict = judge(parts, unit="epochs saved")
    if len(found):
        text += f"; of {len(found)} pairs of runs Feras is earlier in {found['saved'].gt(0).sum()}, level in "
        text += f"{found['saved'].eq(0).sum()}, later in {found['saved'].lt(0).sum()}, "
        text += f"and never gets there in {found['feras'].isna().sum()} of them"
    return _with_checks((text, verdict), feras_theory.looser_bound(get))


def _claim_better(get: Get) -> tuple[str, str]:
    """Feras minus isolation and minus shared weights above 0, larger at kappa 60% than 40%; same samplers for all."""
    frame = _table2(get)
    parts: dict[str, Part] = {}
    for dataset, kappa, hosts in _cells(frame):
        for other in METHODS[:2]:
            found = _judged(gap(frame, FERAS, other, dataset, kappa, hosts))
            parts[f"{dataset}, {kappa}%, N={hosts}, over {other}"] = (found, 0.0, math.inf)
    for dataset, hosts in sorted({(d, n) for d, _, n in _cells(frame)}):
        for other in METHODS[:2]:
            parts[f"{dataset}, N={hosts}, 60% minus 40%, over {other}"] = (
                _growth(frame, other, dataset, hosts), 0.0, math.inf,
            )  # fmt: skip
    text, verdict = judge(parts, scale=100)
    return f"{text}. {printed_gains()}", verdict


def _claim_sharing(get: Get) -> tuple[str, str]:
    """Shared weights minus isolation, same samplers: below a point in each cell, be it above 0; below 0 in one cell."""
    frame = _table2(get)
    gaps = {f"{d}, {k}%, N={n}": gap(frame, SHARED, ISOLATED, d, k, n) for d, k, n in _cells(frame)}
    parts: dict[str, Part] = {f"{name}, very limited": (_judged(each), -math.inf, NEAR) for name, each in gaps.items()}
    least = lowest(list(gaps.values()))
    parts[f"the lowest of {sum(len(each) > 1 for each in gaps.values())}, sometimes worse"] = (least, -math.inf, 0.0)
    text, verdict = judge(parts, scale=100)
    means = [each.mean() for each in gaps.values() if len(each)]
    below, above = sum(mean < 0 for mean in means), sum(mean > 0 for mean in means)
    sure = sum(each.low > 0 for each in map(_judged, gaps.values()) if each)
    return f"{text}. On average {below} of {len(means)} cells are below 0, {above} above; {sure} surely above", verdict


def printed_gains() -> str:
    """What the paper's own Table 2 says of Feras over the best isolated row (FR-Q1)."""
    cells = published_gaps().query("gain == 'Feras over GraphSAINT'").dropna(subset=["published"])
    ahead, behind = cells["published"] > cells["published_spread"], cells["published"] < -cells["published_spread"]
    large = cells[cells["published"] > NEAR]
    where = ", ".join(sorted({f"{row.dataset} {row.setting}" for row in large.itertuples()}))
    return (
        f"Printed (FR-Q1): of {len(cells)} cells Feras is beyond the spreads above the best isolated row in "
        f"{ahead.sum()}, below it in {behind.sum()}; by more than a point only on {where}"
    )


CLAIMS = (
    Claim("FR-H1", "feras", "Feras converges with constant 1 - eta lambda/2, unchanged by q.", _claim_converges),
    Claim("FR-H2", "feras", "It allows a looser bound than weight sharing, hence converges faster.", _claim_looser),
    Claim("FR-H3", "feras", "It beats isolated and weight-shared GraphSAINT, more so as kappa grows.", _claim_better),
    Claim("FR-H4", "feras", "Sharing weights is not enough: a very limited gain, sometimes a loss.", _claim_sharing),
)  # fmt: skip
