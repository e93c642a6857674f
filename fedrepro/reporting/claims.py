"""The papers' headline claims as data, and how one is judged on stored runs.

A claim has parts, such as the cells of a table. Each part is a number with a 95% interval over runs, and the open range
in which the claim wants it. A part is *shown* if the interval lies inside the range, *contradicted* if it lies outside,
and *undecided* otherwise. Benjamini and Hochberg's procedure over the parts leaves undecided what a few of many
intervals would show by chance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fedrepro import paths
from fedrepro.errors import one_of, require
from fedrepro.reporting import checks, exhibits, frames, statistics
from fedrepro.reporting.frames import Where
from fedrepro.reporting.statistics import Interval, Paired, Slope

LEVEL = 0.05
SHOWN, CONTRADICTED, UNDECIDED = "shown", "contradicted", "undecided"
NOT_CHECKED = "cannot be checked here"
NOT_TESTED = checks.NOT_TESTED
AT_HAND, IN_PART, MIXED = "holds on every graph at hand", "holds in part", "mixed"
VERDICTS = ("holds", AT_HAND, IN_PART, MIXED, "fails", UNDECIDED, NOT_CHECKED, NOT_TESTED)
COLUMNS = ("id", "paper", "claim", "check", "evidence", "verdict")
QUANTIFIERS = ("all", "most", "some")
NEEDED = {"all": "", "most": " (more than half must be shown)", "some": " (one shown is enough)"}

Get = Callable[[str], pd.DataFrame]  # the frame of an exhibit's stored runs
Measured = tuple[Paired | Slope | Interval | None, float, float]
Parts = dict[str, Measured]
Finding = Callable[[Get], tuple[str, str]]


@dataclass(frozen=True)
class Difference:
    """Differences of scores, paired over seeds: one part for each combination of `per`.

    Args:
        exhibit: whose stored runs are compared.
        left: columns and values that select the first cell, such as `{"method": "FedGAT"}`.
        minus: columns and values of the second cell, over those of `per`; None compares with zero.
        per: columns to the values for which a part is made; they select both cells.
        above, below: the open range that the claim wants.
        name: a format string over the columns of `per`, by default their values joined by commas.
        labels: what `name` writes for a value of `per`.
        value: the column of scores, in the unit of the range.
        minus_exhibit: whose runs give the second cell, if not those of `exhibit`.
        of: makes the table that has the scores from an exhibit's runs, where they are no column of the runs.
    """

    exhibit: str
    left: Where
    minus: Where | None = None
    per: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    above: float = -math.inf
    below: float = math.inf
    name: str = ""
    labels: Mapping[Any, str] = field(default_factory=dict)
    value: str = "percent"
    minus_exhibit: str = ""
    of: Callable[[pd.DataFrame], pd.DataFrame] = lambda runs: runs

    def parts(self, get: Get) -> Iterator[tuple[str, Measured]]:
        """Yield the name of each part with its difference and range."""
        frame = self.of(get(self.exhibit))
        other = self.of(get(self.minus_exhibit)) if self.minus_exhibit else frame
        for name, where in self._cells():
            left = frames.scores(frame, {**where, **self.left}, self.value)
            right = 0 * left if self.minus is None else frames.scores(other, {**where, **self.minus}, self.value)
            yield name, (statistics.common(left, right), self.above, self.below)

    def absent(self, get: Get) -> Iterator[str]:
        """Yield the names of the parts on graphs of which the exhibit has no run at all: they are not at hand."""
        frame = get(self.exhibit)
        stored = set(frame["dataset"].astype(str)) if "dataset" in frame else set()
        for name, where in self._cells():
            graph = {**where, **self.left}.get("dataset")
            if graph is not None and graph not in stored:
                yield name

    def _cells(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name of each part with its values of `per`."""
        for values in itertools.product(*self.per.values()):
            where = dict(zip(self.per, values))
            told = {column: self.labels.get(value, value) for column, value in where.items()}
            yield self.name.format(**told) if self.name else ", ".join(map(str, told.values())), where


# A function is for parts that need more than two cells of one table: it returns them by name.
Part = Difference | Callable[[Get], Parts]


@dataclass(frozen=True)
class Claim:
    """A headline claim of a paper.

    Args:
        id: such as `FG-C1`.
        text: the claim in our words.
        check: one sentence on what is compared, and in which range it must lie.
        parts: what is measured.
        quantifier: `all` parts, `most` or `some`: how many must be shown.
        unit: of the printed numbers.
        scale: of the printed numbers (100 for points where scores are fractions).
        digits: decimals printed.
        finding: instead of parts, a function of the store that returns evidence and verdict, for a claim about checks
            and attacks rather than scores.
    """

    id: str
    text: str
    check: str
    parts: Sequence[Part] = ()
    quantifier: str = "all"
    unit: str = "points"
    scale: float = 1.0
    digits: int = 1
    finding: Finding | None = None

    def judge(self, get: Get) -> tuple[str, str]:
        """Return the evidence and the verdict, one of `VERDICTS`.

        Raises:
            ArgumentError: two parts have one name, or a finding has an unknown verdict.
        """
        if self.finding is not None:
            evidence, verdict = self.finding(get)
            return evidence, one_of(f"the verdict of {self.id}", verdict, VERDICTS)
        told = (part(get).items() if callable(part) else part.parts(get) for part in self.parts)
        measured = [named for parts in told for named in parts]
        absent = {name for part in self.parts if isinstance(part, Difference) for name in part.absent(get)}
        names = [name for name, _ in measured]
        require(len(set(names)) == len(names), f"the parts of {self.id}", "one part for each name", names)
        return judge_claim(
            dict(measured), absent, quantifier=self.quantifier, unit=self.unit, scale=self.scale, digits=self.digits
        )


def claims_table(claims: Sequence[Claim], get: Get, paper: str) -> pd.DataFrame:
    """Judge every claim; return one row a claim with the columns of `COLUMNS`."""
    rows = [(one.id, paper, one.text, one.check, *one.judge(get)) for one in claims]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def judge_claim(
    parts: Parts,
    absent: Collection[str] = (),
    *,
    quantifier: str = "all",
    unit: str = "points",
    scale: float = 1.0,
    digits: int = 1,
) -> tuple[str, str]:
    """Return the evidence line and the verdict of a claim from its parts.

    Use None for a part with fewer than two comparable runs. It is listed as "not compared", and a claim about all parts
    can then hold in part at most. If all such parts are `absent`, on graphs that are not at hand, and all others are
    shown, it holds on every graph at hand. A claim about all parts is mixed if some are shown and some contradicted,
    and holds in part if some are shown and none is contradicted. A claim about most parts holds if more than half are
    shown, fails if half or more are contradicted, and is undecided otherwise. A part without a number counts among
    these parts: it is neither shown nor contradicted, so that more than half of the parts named by the claim must be
    shown, and not of the compared ones. A claim about some parts holds if one is shown, and fails if all are
    contradicted.

    Two settings with one number in every run differ by zero for certain. No run could refute a claim that wants no
    difference between them: such a part is listed and does not count, neither in the verdict nor in Benjamini and
    Hochberg's procedure. A claim that has only such parts is not tested.

    Raises:
        ArgumentError: an unknown quantifier.
    """
    one_of("quantifier", quantifier, QUANTIFIERS)
    judged = {
        name: (gap, *judge_interval(gap, low, high)) for name, (gap, low, high) in parts.items() if gap is not None
    }
    missing = [name for name in parts if name not in judged]
    rest = f"; not compared: {'; '.join(missing)}" if missing else ""
    if not judged:
        return f"no two runs of one seed to compare{rest}", NOT_CHECKED
    tied = {name for name, (gap, _, _) in judged.items() if gap[0] == gap.low == gap.high == 0}
    certain = {name for name in tied if judged[name][1] == SHOWN}
    scattered = {name: p for name, (_, _, p) in judged.items() if name not in tied}
    kept = dict(zip(scattered, statistics.discoveries([*scattered.values()], LEVEL), strict=True))
    marks, texts = [], []
    for name, (gap, alone, _) in judged.items():
        open_now = alone != UNDECIDED and not kept.get(name, True)
        middle, *ends = (f"{scale * value:+.{digits}f}" for value in (gap[0], gap.low, gap.high))
        mark = "the same in every run" if name in certain else UNDECIDED if open_now else alone
        texts.append(f"{name} {middle} [{', '.join(ends)}] {mark}{f' ({alone} if alone)' if open_now else ''}")
        marks.append(mark)
    shown, against, undecided = (marks.count(mark) for mark in (SHOWN, CONTRADICTED, UNDECIDED))
    asked = len(parts) - len(certain)
    holds = {"all": shown == asked, "most": 2 * shown > asked, "some": shown > 0}[quantifier]
    fails = {"all": against > 0 and shown == 0, "most": 2 * against >= asked, "some": against == asked}[quantifier]
    at_hand = quantifier == "all" and 0 < shown == len(judged) - len(certain) and {*missing} <= {*absent}
    part = UNDECIDED if quantifier != "all" or not shown else MIXED if against else IN_PART
    verdict = "holds" if holds else AT_HAND if at_hand else "fails" if fails else part
    if len(judged) == len(certain):
        verdict = NOT_TESTED
    counts = f"{shown} shown, {against} contradicted, {undecided} undecided"
    return f"{counts}, in {unit}{NEEDED[quantifier]}: {'; '.join(texts)}{rest}", verdict


def judge_interval(gap: Paired | Slope | Interval, low: float, high: float) -> tuple[str, float]:
    """Judge one 95% interval against an open range.

    Returns:
        The verdict (shown, contradicted or undecided) and a p-value, which is at most 0.05 unless it is undecided.
    """
    freedom = gap[-1] - (2 if isinstance(gap, Slope) else 1)

    def p(end: float, edge: float) -> float:
        """Return the p-value of a value beyond `edge`, from the half of the interval between the mean and `end`."""
        half = abs(end - gap[0])
        if math.isnan(half) or half == 0:  # runs that all tie on the edge decide nothing
            return 1.0 if math.isnan(half) or gap[0] == edge else 0.0
        return 2 * statistics.tail(abs(edge - gap[0]) / half * statistics.quantile(0.975, freedom), 1.0, freedom)

    if low < gap[0] < high:
        return SHOWN if low < gap.low and gap.high < high else UNDECIDED, max(p(gap.low, low), p(gap.high, high))
    out = gap.high < low or gap.low > high
    return CONTRADICTED if out else UNDECIDED, p(gap.high, low) if gap[0] <= low else p(gap.low, high)


def combine(held: Collection[bool]) -> str:
    """Return the verdict of a claim that rests on yes-or-no results."""
    return NOT_CHECKED if not held else "holds" if all(held) else MIXED if any(held) else "fails"


def select(claims: Sequence[Claim], ids: Sequence[str]) -> list[Claim]:
    """Return the claims with these IDs, in their order.

    Raises:
        ArgumentError: no claim has one of the IDs.
    """
    known = {claim.id: claim for claim in claims}
    require(bool(known), "claims", "at least one", claims)
    return [known[one_of("claim", id_, known)] for id_ in ids]


def read(paper: str, measured: Mapping[str, Sequence[Part] | Finding]) -> list[Claim]:
    """Return the claims of `papers/<paper>/claims.csv` in its order, each with what is measured for it.

    The file has the columns id, claim and check, and those of quantifier, unit, scale and digits that a claim needs; an
    empty entry is the default of `Claim`.

    Args:
        paper: the paper's folder.
        measured: the ID of each claim to its parts, or to its finding.

    Raises:
        ArgumentError: the file and `measured` name different claims.
    """
    rows = {row["id"]: row for row in paths.read_csv(exhibits.folder(paper) / "claims.csv")}
    require(rows.keys() == measured.keys(), "measured", f"for the claims {', '.join(rows)}", sorted(measured))
    read_as: dict[str, type] = {"quantifier": str, "unit": str, "scale": float, "digits": int}
    claims = []
    for id_, row in rows.items():
        taken = measured[id_]
        given: dict[str, Any] = {name: kind(row[name]) for name, kind in read_as.items() if row.get(name)}
        given |= {"finding": taken} if callable(taken) else {"parts": taken}
        claims.append(Claim(id_, row["claim"], row["check"], **given))
    return claims
