"""State what tables, claims and checks came to, one fact a sentence, for pages and for notebooks."""

from __future__ import annotations

import copy
import csv
import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedrepro.errors import require
from fedrepro.reporting import checks, files, readings, rule

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

# How a word is said of one number and of several.
SAID = {word: said for word, *said in csv.reader(Path(__file__).with_name("said.csv").read_text().splitlines()[1:])}
# How the evidence of judged parts begins.
JUDGED = re.compile(r"(.*?\d+ shown, \d+ contradicted, \d+ undecided)(, in [^:]+)?: ")
LISTED = 6  # checks that are named one by one
FITTING = (rule.AGREES, rule.COMPATIBLE, rule.WIDE)  # words of a number that is not shown to differ


def sentences(frame: pd.DataFrame) -> list[str]:
    """Return what a frame of judged claims or of checks came to.

    Args:
        frame: of `Notebook.claims` or of `checks.collect`, which have a column `verdict` and one of `claim` and
            `statement`.

    Raises:
        ArgumentError: the frame has none of these.
    """
    known = "verdict" in frame and ("claim" in frame or "statement" in frame)
    require(known, "frame", "one of claims or of checks", list(frame.columns))
    return of_claims(frame) if "claim" in frame else of_checks(frame)


def of_claims(frame: pd.DataFrame) -> list[str]:
    """Return the count of each verdict, and one sentence a claim with the verdict first."""
    said = [f"Among {len(frame)} claims, {counted(Counter(frame['verdict']))}."] if len(frame) > 1 else []
    return said + [_sentence(row.verdict, row.id, row.claim) for row in frame.itertuples()]


def of_checks(frame: pd.DataFrame) -> list[str]:
    """Return how many checks hold, the ones that do not, and what the negative controls came to."""
    control = frame["id"].astype(str).str.endswith("-control")
    plain, controls = frame[~control], frame[control]
    if frame.empty:
        return ["No check was run."]
    judged = plain["verdict"][plain["verdict"].isin((checks.HOLDS, checks.FAILS))]  # an attack has other words
    said = [f"{int(judged.eq(checks.HOLDS).sum())} of {len(judged)} checks hold."] if len(judged) else []
    other = plain[plain["verdict"].ne(checks.HOLDS)]
    said += [_sentence(row.verdict, row.id, row.statement) for row in other.head(LISTED).itertuples()]
    if len(other) > LISTED:
        rest = Counter(other["verdict"].iloc[LISTED:])
        told = ", ".join(f"{n} with the verdict {files.plain(word)}" for word, n in rest.items())
        said.append(f"The tables name the others that do not hold: {told}.")
    if len(controls):
        caught = int(controls["verdict"].eq(checks.CAUGHT).sum())
        said.append(f"{caught} of {len(controls)} negative controls fail, as they must.")
    missed = controls[controls["verdict"].ne(checks.CAUGHT)]
    return said + [_sentence(row.verdict, row.id, row.statement) for row in missed.itertuples()]


def _sentence(verdict: Any, id_: Any, text: str) -> str:
    return f"**{files.plain(verdict)}** ({files.plain(id_)}): {files.plain(text).rstrip('.')}."


def styled(table: Styler) -> str:
    """Return a styled table as HTML in which the text of cells and headings is no markup, as that of a plain table."""

    def escaped(value: Any) -> Any:
        return html.escape(value) if isinstance(value, str) else value

    shown = copy.copy(table)
    shown.data = (
        table.data.map(escaped).rename(index=escaped, columns=escaped).rename_axis(index=escaped, columns=escaped)
    )
    shown.index, shown.columns = shown.data.index, shown.data.columns
    return str(shown.to_html())


def of_tables(known: Mapping[str, Any], what: str) -> list[str]:
    """Return what main tables came to, see `answer.numbers`; `what` is told, such as "the main tables of FedGAT"."""
    if not known["printed"]:
        return [f"Nothing of {what} was drawn."]
    tested, plural = known["tested"], "s" if known["printed"] != 1 else ""
    said = [
        f"The paper prints {known['printed']} distinct number{plural} in {what}; {tested or 'none'} could be tested."
    ]
    said += [_untested(known)] if known["untested"] else []
    if tested:
        expected = counted({word: round(number) for word, number in known["expected"].items()})
        said += [
            f"Among the tested numbers, {counted(known['words'])}.",
            f"For a perfect copy, with the same runs and spreads, one would expect that {expected}.",
            f"Our number is {_off(known['median'])} in the median, and {share(known['within'])} of the tested numbers"
            " lie within two points of the printed ones.",
            f"The 95% interval reaches at most five points either way for {share(known['narrow'])} of them.",
        ]
    if known["partly"]:
        names, count = joined([*known["partly"]]), sum(known["partly"].values())
        said.append(f"{count} of the tested numbers were measured on {names}, of which a part is missing.")
    if known["single"]:
        one = (
            "1 of the tested numbers rests" if known["single"] == 1 else f"{known['single']} of the tested numbers rest"
        )
        ends = " to ".join(dict.fromkeys(f"{sd:.1f}" for sd in (known["prior_sds"][0], known["prior_sds"][-1])))
        said.append(f"{one} on one run, whose spread is the prior's ({ends} points, by graph).")
    said += _of_causes(known["causes"], known["unread"], known["placebo"], known["readings"])
    said += [f"{files.plain(text)}: {counted(words)}." for text, words in known["beside"].items() if words]
    leads = known["leads"]
    if leads and leads["leads"]:
        some = " that are not zero in print" if leads["signed"] < leads["leads"] else ""
        said.append(
            f"The paper's method leads a row that is no variant of it by {leads['printed_lead']:z.1f} points in print"
            f" and by {leads['our_lead']:z.1f} here, in the median of {leads['leads']} tested leads;"
            f" {leads['same_sign']} of {leads['signed']}{some} have the printed sign."
        )
    claims = sum(known["claims"].values())
    if claims:
        said += [f"Among {claims} claims that were judged, {counted(known['claims'])}."]
        if known["main"][0]:
            said.append(_main_claim(*known["main"]))
    return said


def main_findings(known: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know of a paper's numbers (see `answer.numbers`), in at most four items.

    1. How many tested numbers replicate, next to those of a perfect copy, or why none was tested.
    2. How the rows of the paper's method do, next to all others.
    3. The main claim, and the lead of the method.
    4. What explains the numbers that differ.

    Numbers replicate as a copy's would if at least as many agree or are compatible.
    """
    if not known["printed"]:
        return []
    said = [_replicated(known) if known["tested"] else f"**No number could be tested.** {_untested(known)}"]
    said += _of_rows(known["rows"])
    parts = [_main_claim(*known["main"])] if known["main"][0] else []
    leads = known["leads"]
    if leads and leads["leads"]:
        parts.append(
            f"The paper's method leads other methods by {leads['printed_lead']:z.1f} points in print and by"
            f" {leads['our_lead']:z.1f} here, in the median."
        )
    said += [" ".join(parts)] if parts else []
    read, unread = sum(known["causes"].values()), known["unread"]
    if read + unread:
        some = sum(count for (name, _, _), count in known["causes"].items() if name != readings.NO_CAUSE)
        ends = {
            "another reading of the paper fits": some,
            "none that was run fits": read - some,
            "no other reading was run on": unread,
        }
        told = joined(f"{end} {count}" for end, count in ends.items() if count)
        said.append(f"Among the {read + unread} numbers that differ, if only a little, {told}.")
        by_chance, of = (sum(part) for part in zip(*known["placebo"].values())) if known["placebo"] else (0, 0)
        said[-1] += f" Chance alone fits {by_chance} of {of}, as told below." if some and by_chance else ""
    return said


def _replicated(known: Mapping[str, Any]) -> str:
    """Return how many tested numbers are not shown to differ, next to how many of a perfect copy's would not be."""
    fits, copy_fits = ([counts[word] for word in FITTING] for counts in (known["words"], known["expected"]))
    like, most = sum(fits) >= round(sum(copy_fits)), 2 * sum(fits) > known["tested"]
    head = "The numbers replicate as those of a perfect copy would" if like else "Most numbers replicate"
    head = head if like or most else "Most numbers do not replicate"
    wide = f" ({fits[-1]} of them within an interval too wide to tell much)" if fits[-1] else ""
    return (
        f"**{head}.** {sum(fits)} of {known['tested']} tested numbers agree or are compatible{wide}. Of a"
        f" perfect copy's numbers, {round(sum(copy_fits))} would."
    )


def _of_rows(rows: Sequence[tuple[int, int, float]]) -> list[str]:
    """Return how the numbers of the paper's method fit, next to those of all other rows; nothing if one has none."""
    if not all(tested for _, tested, _ in rows):
        return []
    told = [
        f"{fits} of {tested} agree or are compatible, and ours is {_off(median)} in the median"
        for fits, tested, median in rows
    ]
    whose = "the paper's method and its variants"
    return [f"Among the numbers of {whose}, {told[0]}; among those of other rows, {told[1]}."]


def _main_claim(claim: str, judged: str, evidence: str) -> str:
    told = SAID.get(judged, (files.plain(judged),))[0]
    counts = JUDGED.match(evidence)
    parts = f" ({counts[1]} parts)" if counts else ""
    return f"The paper's main claim {told}{parts}: {files.plain(claim).rstrip('.')}."


def _untested(known: Mapping[str, Any]) -> str:
    """Return why numbers were not tested, counted by reason, with the graphs on which we have no run."""
    reasons, graphs = dict(known["untested"].most_common()), known["absent"]
    what = "others" if known["tested"] else "printed ones"
    where = f" We have no run on {joined(graphs)}; the exhibits show other graphs instead." if graphs else ""
    return f"Among the {what}, {counted(reasons)}.{where}"


def _of_causes(
    causes: Mapping[tuple[str, str, str], int], unread: int, placebo: Mapping[str, tuple[int, int]], per_number: float
) -> list[str]:
    """Return on how many numbers that differ other readings were run, which explain some, and how many noise would.

    Args:
        causes: counts by cause, when it was fixed, and word, of the numbers on which another reading was run.
        unread: how many have no other reading.
        placebo: how many noise explains, and of how many, by word.
        per_number: how many other readings were run on one, in the median.
    """
    read = sum(causes.values())
    if not read + unread:
        return []
    explained = Counter({key: count for key, count in causes.items() if key[0] != readings.NO_CAUSE})
    some, said = explained.total(), []
    which = f"Among the {read + unread} that differ or differ a little, "
    if not read:
        said.append(f"{which}other readings were run on none.")
    else:
        rest = read - some
        told = f"{some or 'none'}{f' ({_when(explained)})' if some else ''}"
        others = f" and not the other {rest}" if some and rest else ""
        said.append(f"{which}other readings were run on {read}; they explain {told}{others}.")
        if some:
            words = Counter(word for _, _, word in explained.elements())
            said.append(f"Among the explained numbers, {counted(words)} in the main reading." if some > 1 else "")
    if read and unread:
        said.append(f"On {unread} no other reading was run.")
    if placebo:
        some, of = (sum(part) for part in zip(*placebo.values()))
        by_word = joined(f"{n or 'none'} of {total} that {SAID[word][1]}" for word, (n, total) in placebo.items())
        said.append(
            "A reading may fit by chance. To see how often, one half of our seeds was taken for another reading: of the"
            f" {of} numbers that the other half leaves open (they differ, or the interval is wide), it fits"
            f" {some or 'none'}{f' ({by_word})' if some else ''}."
        )
        if read and per_number > 1:
            many = f"In the median {per_number:g} other readings were run on a number"
            said.append(f"{many}; the more there are, the more often one fits by chance.")
    return [one for one in said if one]


def _when(explained: Counter[tuple[str, str, str]]) -> str:
    """Return which readings explain how many numbers, and whether they were chosen before our numbers were seen."""
    parts = []
    for fixed in sorted({fixed for _, fixed, _ in explained}):
        names = Counter(name for name, when, _ in explained.elements() if when == fixed)
        listed = joined(f"{count} by “{files.plain(name)}”" for name, count in names.most_common())
        parts.append(f"{listed}, chosen {fixed} our numbers were seen")
    return "; ".join(parts)


def share(part: float) -> str:
    """Return a share in percent, which is 0% only if it is none and 100% only if it is all."""
    return f"{part:.0%}" if part in (0, 1) or 0.005 < part < 0.995 else f"{part:.1%}"


def _off(points: float) -> str:
    """Return a difference of ours to a printed number in words."""
    size = f"{abs(points):.1f}"
    return (
        "equal to the printed one"
        if size == "0.0"
        else f"{size} points {'above' if points > 0 else 'below'} the printed one"
    )


def counted(counts: Mapping[str, int]) -> str:
    """Return the counts of words or verdicts as the rest of a sentence, without those that do not occur."""
    return joined(f"{n} {SAID[word][n != 1] if word in SAID else files.plain(word)}" for word, n in counts.items() if n)


def brief(word: str, count: int) -> str:
    """Return the count of a word for a cell of a table: without the verb `to be`, and with its number elsewhere."""
    return f"{count} {re.sub(r'^(is|are|was|were) ', '', SAID.get(word, (word, word))[count != 1])}"


def joined(parts: Iterable[str]) -> str:
    """Return parts as a list in a sentence, with `and` before the last."""
    known: Sequence[str] = list(parts)
    return " and ".join(part for part in (", ".join(known[:-1]), *known[-1:]) if part)


def folded(frame: pd.DataFrame, what: str = "numbered deviations from the paper") -> Any:
    """Return a table that is folded under the count of its rows, for JupyterLab and for pages."""
    from IPython.display import HTML

    table = frame.to_html(index=False, border=0, classes="dataframe", justify="left")
    return HTML(f"<details><summary>{len(frame)} {html.escape(what)}</summary>{table}</details>")  # type: ignore[no-untyped-call]
