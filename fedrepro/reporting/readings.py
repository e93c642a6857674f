"""Compare every reading of a paper that was run on a whole table with its printed numbers.

A reading is one way to take what a paper leaves open: the public code at the paper's date, the text, the protocol of
the works it cites (lineage), or a setting taken literally. The file `papers/<paper>/readings.csv` lists the readings of
each main table in a fixed order: its kind, whether it was fixed before or after our numbers were seen, and where it
departs from its source.

A reading *explains* a cell if the word of the cell is "agrees" or "compatible" under it and neither under the main
reading, and if its mean lies at most half as far from the printed number as the main reading's. Without the second
condition a reading that changes nothing would explain a cell by being run once or twice, since its interval is wide.
`tests/reporting/test_readings.py` simulates both. The condition was chosen by that simulation, after the numbers had
been seen and before causes were counted under it.

Noise by itself explains some cells. A placebo says how many. The main reading is judged on half of the seeds, and the
other half, which is the same reading, is taken for another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from fedrepro.errors import one_of
from fedrepro.reporting import compare, exhibits, rule
from fedrepro.reporting.exhibits import MainTable

MAIN, PLACEBO = "main", "placebo"
CELL = ("exhibit", "dataset", "method", "clients", "partition", "setting")
FOUND = ("ours_mean", "runs", "difference", "half95", "verdict", "explains", "open")
COLUMNS = (*CELL, "published", "reading", "kind", "fixed", *FOUND)
NO_CAUSE = "no cause found"
READ_AS = {"code": "as the public code does", "text": "as the text says"}  # in a figure
NEARER = 0.5  # the most that may be left of the main reading's difference under a reading that explains it


def listed(paper: str, exhibit_id: str) -> pd.DataFrame:
    """Return the readings of a main table in their order: exhibit, reading, kind, fixed, departures."""
    file = exhibits.folder(paper) / "readings.csv"
    columns = ["exhibit", "reading", "kind", "fixed", "departures"]
    known = pd.read_csv(file, dtype=str, keep_default_na=False) if file.is_file() else pd.DataFrame(columns=columns)
    return known[known["exhibit"].eq(exhibit_id)]


def flagged(published: pd.DataFrame, reading: str) -> pd.DataFrame:
    """Return the printed numbers of a main table with the flag `redrawn` under which one of its readings is judged.

    The rows of `study.json` say of the main reading's kind that our runs draw nothing anew. In a reading of another
    kind they may draw anew what those keep, so that the flag of the graph stands there.

    Raises:
        ArgumentError: the paper's `readings.csv` does not list the reading.
    """
    if published.empty:
        return published
    paper, exhibit_id = published["paper"].iloc[0], published["exhibit"].iloc[0]
    kinds = listed(paper, exhibit_id).set_index("reading")["kind"]
    if kinds[one_of("reading", reading, list(kinds.index))] == kinds.get(MAIN):
        return published
    drawn = pd.Series([*map(exhibits.study(paper).drawn, published["dataset"])], index=published.index, dtype=object)
    return published.assign(redrawn=drawn)


def table(
    main: pd.DataFrame,
    others: Mapping[str, pd.DataFrame],
    published: pd.DataFrame,
    layout: MainTable,
    redrawn: Mapping[str, pd.DataFrame] | None = None,
) -> pd.DataFrame:
    """Return one row for each printed cell and reading that measured it, in the order of `listed`.

    Args:
        main: the runs of the main reading, one row a run.
        others: the runs of each other reading by its name in `readings.csv`.
        published, layout: of the main table, see `session.main_runs`.
        redrawn: replaces `published` in readings whose scores on graphs drawn anew are not the main reading's.

    Raises:
        ArgumentError: the paper's `readings.csv` does not list a reading.
    """
    paper, exhibit_id = published["paper"].iloc[0], published["exhibit"].iloc[0]
    known = listed(paper, exhibit_id).set_index("reading")
    for name in others:
        one_of("reading", name, list(known.index))
    judge = partial(compare.judge_table, published=published, on=layout.key, value=layout.value)
    odd = main["seed"].astype(int).mod(2).eq(1) if len(main) else pd.Series(dtype=bool)
    first = judge(main[~odd])  # of the placebo, which is the other half of the seeds
    judged = {MAIN: judge(main)}
    for name in filter(others.__contains__, known.index):
        judged[name] = judge(others[name], published=flagged((redrawn or {}).get(name, published), name))
    judged[PLACEBO] = judge(main[odd])
    rows = []
    for name, words in judged.items():
        base = first if name == PLACEBO else judged[MAIN]
        fits = words["verdict"].isin(rule.FITS)
        nearer = words["difference"].abs().le(NEARER * base["difference"].abs())
        explains = fits & nearer & ~base["verdict"].isin([*rule.FITS, rule.NOT_TESTED])
        facts = known.loc[name] if name in known.index else {"kind": name, "fixed": "before"}
        measured = words.assign(reading=name, kind=facts["kind"], fixed=facts["fixed"], explains=explains)
        rows.append(measured.assign(open=base["verdict"])[measured["runs"].gt(0)])
    return pd.concat(rows, ignore_index=True).reindex(columns=list(COLUMNS))


def beside(main: pd.DataFrame, other: pd.DataFrame, reading: str) -> pd.DataFrame:
    """Return a table of `compare.judge_table` followed by what another reading measured, in columns `... (reading)`."""
    return main.join(other[list(compare.MEASURED)].add_suffix(f" ({reading})"))


def causes(readings: pd.DataFrame) -> pd.DataFrame:
    """Return every cell whose main reading differs, with the readings that were run on it and what explains it.

    Returns:
        The cell, its printed number, the main reading's word and difference, the other readings with their words, the
        `cause`: the first reading that explains it, or "no cause found".
    """
    rows = []
    for cell, group in readings.groupby(list(CELL), sort=False, dropna=False):
        main = group[group["reading"].eq(MAIN)]
        if main.empty or main["verdict"].iloc[0] not in (rule.DIFFERS, rule.LITTLE):
            continue
        others = group[~group["reading"].isin([MAIN, PLACEBO])]
        told = "; ".join(f"{row.reading}: {row.verdict} ({row.difference:+.1f})" for row in others.itertuples())
        fitting = others[others["explains"]]["reading"]
        top = main.iloc[0]
        rows.append(
            dict(zip(CELL, cell, strict=True))
            | {"published": top["published"], "difference": top["difference"], "verdict": top["verdict"]}
            | {"readings run": told or "none", "cause": fitting.iloc[0] if len(fitting) else NO_CAUSE}
        )
    return pd.DataFrame(rows, columns=[*CELL, "published", "difference", "verdict", "readings run", "cause"])


def coverage(readings: pd.DataFrame) -> pd.DataFrame:
    """Return how far each reading was run, in their order, and how often it fits.

    Returns:
        One row a reading: its kind, whether it was `fixed` before or after our numbers were seen, on how many printed
        numbers of the table it was run, under how many of these the number agrees or is compatible, and how many of
        those that differ it explains. Of the readings run on the whole table the one that fits most often is `best`.
    """
    rows = []
    for name, group in readings[readings["reading"].ne(PLACEBO)].groupby("reading", sort=False):
        fits = int(group["verdict"].isin(rule.FITS).sum())
        first = group.iloc[0]
        explains = group["explains"] & group["open"].isin([rule.LITTLE, rule.DIFFERS])
        rows.append([name, first["kind"], first["fixed"], len(group), fits, int(explains.sum())])
    table = pd.DataFrame(rows, columns=["reading", "kind", "fixed", "run on", "fits", "explains"])
    whole = table["run on"].eq(table["run on"].max())
    most = whole & table["fits"].eq(table["fits"][whole].max()) & (whole.sum() > 1)
    return table.assign(best=most.map({True: "best", False: ""}))


def cell_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the printed cell that a row of a table is about, the same however its numbers are written."""
    return compare.cell_key({name: "" if pd.isna(row[name]) else row[name] for name in CELL}, CELL)


def placebo_rates(readings: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """Return how many open cells the placebo explains, and of how many, by their word."""
    rows = readings[readings["reading"].eq(PLACEBO)]
    words = (rule.LITTLE, rule.DIFFERS, rule.WIDE)
    by_word = {word: rows.loc[rows["open"].eq(word), "explains"] for word in words}
    return {word: (int(explains.sum()), len(explains)) for word, explains in by_word.items() if len(explains)}


def placebo_rate(readings: pd.DataFrame) -> tuple[int, int]:
    """Return how many open cells the placebo explains, and of how many."""
    rates = placebo_rates(readings).values()
    return sum(explained for explained, _ in rates), sum(of for _, of in rates)
