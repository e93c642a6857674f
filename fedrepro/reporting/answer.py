"""State what a paper's numbers came to: the words of its main tables, its method's leads, and its claims.

Everything is read from the files of `figures/<paper>`, so that the text follows the store. A printed cell that several
tables repeat counts once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import stdtr, stdtrit

from fedrepro.data.shapes import whole
from fedrepro.reporting import compare, effects, exhibits, files, frames, priors, readings, rule
from fedrepro.reporting.claims import VERDICTS as CLAIM_VERDICTS
from fedrepro.reporting.style import MARKERS, style

TESTED = rule.WORDS[:-1]
PICTURE = "answer"  # the file of the picture of printed against measured numbers
COLOURS_OF_WORDS = ("#179850", "#004AC9", "#343434", "#B18A0B", "#952800")  # those of the explorer
NUMBERS = ("published_mean", "ours_mean", "runs", "difference", "half90", "half95")
NEEDED = ("dataset", *NUMBERS, "verdict", "why", "provenance", "point")


def cells(folder: Path, paper: str, tables: Sequence[str] = ()) -> pd.DataFrame:
    """Return the distinct printed cells of a paper's main tables, or of some, as its files hold them.

    Returns:
        The rows of `compare.judge_table` for each table that was drawn, with the columns `paper` and `point`.
    """
    printed, ids = exhibits.published(paper), tables or exhibits.study(paper).tables
    by_table = [pd.DataFrame(columns=list(NEEDED))]
    text = {"clients": str, "published": str, "setting": str}
    for exhibit_id, frame in _files(folder / paper, ids, numbers=NUMBERS, dtype=text).items():
        point = float(printed.loc[printed["exhibit"].eq(exhibit_id), "point"].max())
        frame = frame.reindex(columns=list(dict.fromkeys([*frame, *NEEDED])))
        by_table.append(frame[frame["published_mean"].notna()].assign(paper=paper, point=point, exhibit=exhibit_id))
    table = pd.concat([frame for frame in by_table if len(frame)] or by_table, ignore_index=True)
    return frames.distinct(table).reset_index(drop=True)


def leads(folder: Path, paper: str, tables: Sequence[str] = ()) -> pd.DataFrame:
    """Return the leads of a paper's method, as `effects.effects` gives them, with the column `exhibit`."""
    ids = tables or exhibits.study(paper).tables
    known = _files(folder / paper, ids, "-effects", numbers=effects.COLUMNS[1:3], dtype={"clients": str})
    found = [frame.assign(exhibit=exhibit_id) for exhibit_id, frame in known.items()]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["exhibit", *effects.COLUMNS])


def _files(folder: Path, ids: Iterable[str], form: str = "", **how: Any) -> dict[str, pd.DataFrame]:
    """Return the files `<ID><form>.csv` of a folder that were drawn, by ID; see `files.read`."""
    places = {id_: folder / f"{id_}{form}.csv" for id_ in ids}
    return {id_: files.read(path, **how) for id_, path in places.items() if path.is_file()}


def counted(table: pd.DataFrame, margin: float = rule.MARGIN) -> dict[str, int]:
    """Count the words of the tested cells under a margin, from their differences and half-widths."""
    tested = table[table["verdict"].ne(rule.NOT_TESTED)]
    said = rule.words(tested["difference"], tested["half90"], tested["half95"], margin=margin)
    found = Counter(np.atleast_1d(said).tolist())
    return {word: found[word] for word in TESTED}


def expected(table: pd.DataFrame, margin: float = rule.MARGIN) -> dict[str, float]:
    """Return how often each word would be said, on average, if every tested number were that of a perfect copy.

    If nothing differs, the difference of a cell over its standard error has a t distribution. Its quantiles are the
    cell's half-widths.
    """
    tested = table[table["verdict"].ne(rule.NOT_TESTED)]
    sums = dict.fromkeys(TESTED, 0.0)
    for h90, h95, peak in zip(tested["half90"], tested["half95"], compare.peaks(tested), strict=True):
        for word, share in _shares(float(h90), float(h95), margin, rule.PEAK_TAIL if peak else rule.TAIL).items():
            sums[word] += share
    return sums


def _shares(h90: float, h95: float, margin: float, tail: float) -> dict[str, float]:
    """Return the probability of each word for one cell, of whose interval `half90` a share `tail` lies to each side."""
    if h95 == 0:
        return {rule.AGREES: 1.0}
    freedom = _freedom(h95 / h90, tail)
    error = h95 / float(stdtrit(freedom, 1 - tail / 2))

    def within(size: float) -> float:
        return 2 * float(stdtr(freedom, size / error)) - 1 if size > 0 else 0.0

    agrees = within(margin - h90)
    near = max(agrees, 1 - tail)
    far = min(1 - near, 1 - within(margin + h90))
    compatible = rule.COMPATIBLE if h95 <= rule.WIDEST else rule.WIDE
    return {rule.AGREES: agrees, compatible: near - agrees, rule.DIFFERS: far, rule.LITTLE: 1 - near - far}


def _freedom(ratio: float, tail: float) -> float:
    """Return the degrees of freedom at which the quantiles of two intervals have a ratio."""

    def gap(freedom: float) -> float:
        return float(stdtrit(freedom, 1 - tail / 2) / stdtrit(freedom, 1 - tail)) - ratio

    return math.inf if gap(1e6) >= 0 else float(brentq(gap, 0.4, 1e6)) if gap(0.4) > 0 else 0.4


def numbers(folder: Path, paper: str, tables: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a paper's main tables, or some of them, came to in numbers.

    Returns:
        `printed` and `tested` cells, of the tested ones those that fit, their number and their median difference, for
        rows of the paper's method and for all others (`rows`), the reasons of those not tested (`untested`, a count
        by reason), the graphs on which nothing was measured (`absent`), the words and those `expected` of a perfect
        copy, the `median` difference, the share `within` two points, the share `narrow` whose half-width is at most
        five points, how many are of each incomplete graph (`partly`), how many rest on a `single` run (all in tested
        cells), whose spread is that of a prior (`prior_sds`, in points), the `causes` of those that differ and on
        which another reading was run (a count by reading, when it was fixed, and word), how many are `unread`, with
        no other reading, the median number of other `readings` run on one, and what noise explains (`placebo`), the
        words of the exhibits that compare a table in another unit (`beside`), the `leads` over rows that are no
        variants of the paper's method (see `effects.summary`), and the verdicts of the `claims` with the main one of
        them (`main`).
    """
    table, lead = cells(folder, paper, tables), leads(folder, paper, tables)
    lead = lead.drop_duplicates([name for name in lead if name != "exhibit"])  # one that several tables repeat
    methods = {str(known.headline["method"]).partition(" ")[0] for known in exhibits.study(paper).tables.values()}
    lead = lead[~lead["over"].astype(str).str.startswith(tuple(methods))]
    tested = table[table["verdict"].ne(rule.NOT_TESTED)]
    untested = table[table["verdict"].eq(rule.NOT_TESTED)]
    of_paper = tested.get("method", pd.Series(dtype=str)).astype(str).str.startswith(tuple(methods))
    path = folder / paper / "claims.csv"
    needed = ["id", "claim", "evidence", "verdict"]
    judged = files.read(path, needed=needed) if path.is_file() else pd.DataFrame(columns=needed)
    claims = Counter(judged["verdict"])
    main = judged[judged["id"].eq(exhibits.study(paper).claim)]
    causes, placebo = differing(folder, paper, table)
    read = causes["readings run"].ne("none")
    return {
        "printed": len(table),
        "tested": len(tested),
        "untested": Counter(untested["why"].fillna("").map(reason)) if len(untested) else Counter(),
        "rows": [_fitting(tested[of_paper]), _fitting(tested[~of_paper])],
        "absent": sorted({*untested["dataset"][untested["why"].eq("not measured")]} - {*tested["dataset"]}),
        "words": counted(table),
        "expected": expected(table),
        "median": float(tested["difference"].median()) if len(tested) else math.nan,
        "within": float(tested["difference"].abs().le(rule.MARGIN).mean()) if len(tested) else math.nan,
        "narrow": float(tested["half95"].le(rule.WIDEST).mean()) if len(tested) else math.nan,
        "partly": Counter(tested["dataset"][tested["dataset"].str.endswith(compare.INCOMPLETE)]),
        "single": int(tested["runs"].eq(1).sum()),
        "prior_sds": sorted(
            {math.sqrt(priors.prior(paper, whole(name)).variance) for name in tested["dataset"][tested["runs"].eq(1)]}
        ),
        "causes": Counter(causes.loc[read, ["cause", "fixed", "verdict"]].itertuples(index=False, name=None)),
        "unread": int((~read).sum()),
        "readings": float(causes.loc[read, "readings run"].str.count("; ").add(1).median()) if read.any() else 0.0,
        "placebo": placebo,
        "beside": {
            text: _in_order(files.read(folder / paper / f"{name}.csv")["verdict"])
            for name, text in exhibits.study(paper).beside.items()
            if (folder / paper / f"{name}.csv").is_file() and (not tables or name.rpartition("-")[0] in tables)
        },
        "leads": effects.summary(lead) if len(lead) else {},
        "claims": {word: claims[word] for word in CLAIM_VERDICTS},
        "main": tuple(main.iloc[0][["claim", "verdict", "evidence"]]) if len(main) else ("", "", ""),
    }


def _fitting(tested: pd.DataFrame) -> tuple[int, int, float]:
    """Return how many of some tested cells agree or are compatible, how many they are, and their median difference."""
    fits = tested["verdict"].isin([rule.AGREES, rule.COMPATIBLE, rule.WIDE])
    return int(fits.sum()), len(tested), float(tested["difference"].median()) if len(tested) else math.nan


def _in_order(verdicts: Iterable[str]) -> dict[str, int]:
    """Count words in the order in which the rule has them."""
    found = Counter(verdicts)
    return {word: found[word] for word in rule.WORDS}


def differing(folder: Path, paper: str, table: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, tuple[int, int]]]:
    """Return the cells of `cells` that differ, with the readings run on them and their cause, and what noise explains.

    Returns:
        The differing rows with the columns `readings run` and `cause`, from `<ID>-causes.csv`, and `fixed`, which says
        whether the cause was fixed before or after our numbers were seen. The second value has how many cells the
        placebo explains of those that it could, by their word (see `readings.placebo_rates`).
    """
    differing_cells = table[table["verdict"].isin([rule.LITTLE, rule.DIFFERS])]
    causes, by_reading = (_beside(folder, paper, table, name) for name in ("causes", "by-reading"))
    at_hand = {readings.cell_of(row): row for row in causes.to_dict("records")}
    known = [at_hand.get(readings.cell_of(row), {}) for row in differing_cells.to_dict("records")]
    names = {"readings run": "none", "cause": readings.NO_CAUSE}
    told = {name: [cell.get(name, default) for cell in known] for name, default in names.items()}
    listed = by_reading.drop_duplicates(["exhibit", "reading"]).to_dict("records") if len(by_reading) else []
    fixed = {(row["exhibit"], row["reading"]): row["fixed"] for row in listed}
    places = (row["exhibit"] for row in differing_cells.to_dict("records"))
    when = [fixed.get(pair, "") for pair in zip(places, told["cause"])]
    rates = readings.placebo_rates(by_reading) if len(by_reading) else {}
    return differing_cells.assign(**told, fixed=when), rates


def _beside(folder: Path, paper: str, table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the rows of `<ID>-<name>.csv` for the distinct cells of some tables."""
    distinct = {readings.cell_of(row) for row in table.to_dict("records")}
    text = {"clients": str, "setting": str}
    ids = table.get("exhibit", pd.Series(dtype=str)).unique()
    known = _files(folder / paper, ids, f"-{name}", needed=readings.CELL, dtype=text)
    rows = pd.concat(known.values(), ignore_index=True) if known else pd.DataFrame()
    return rows[[readings.cell_of(row) in distinct for row in rows.to_dict("records")]] if len(rows) else rows


def reason(why: str) -> str:
    """Return the first reason of a cell that was not tested, with numbers of other works as one reason."""
    first = str(why).partition("; ")[0]
    return "the printed number is of another protocol or row" if first.startswith("the printed number") else first


def picture(table: pd.DataFrame, title: str) -> Any:
    """Draw every tested number, printed against ours in percent, coloured by its word, a panel a paper; None if none.

    The band around the diagonal is the margin. The legend counts the numbers of each word. Words with many numbers are
    drawn first, and those that agree last, so that none lies under others.
    """
    tested = table[table["verdict"].ne(rule.NOT_TESTED) & table["published_mean"].notna()]
    if tested.empty:
        return None
    said = rule.words(tested["difference"], tested["half90"], tested["half95"])
    printed = tested["published_mean"] / tested["point"]
    both = [printed, printed + tested["difference"]]  # ours is a peak, too, next to a printed peak
    ends = np.array([min(map(min, both)) - 1, max(map(max, both)) + 1])
    papers = list(dict.fromkeys(tested["paper"]))
    columns = min(len(papers), 2)
    rows = -(-len(papers) // columns)
    width, height = 1.8 + 3.6 * columns, 0.5 + 3.7 * rows  # panels are square, and the legend is next to them
    with style():
        figure = plt.figure(figsize=(width, height), layout="none")
        for place, paper in enumerate(papers):
            row, column = divmod(place, columns)
            corner = ((0.6 + 3.6 * column) / width, 1 - (0.4 + 3.7 * row + 2.9) / height)
            ax = figure.add_axes((*corner, 2.9 / width, 2.9 / height))
            ax.fill_between(ends, ends - rule.MARGIN, ends + rule.MARGIN, color="#EEEEEE", lw=0)
            ax.plot(ends, ends, color="#888888", lw=0.8)
            for word, colour, marker in reversed([*zip(TESTED, COLOURS_OF_WORDS, MARKERS, strict=False)]):
                x, y = (values[(said == word) & tested["paper"].eq(paper)] for values in both)
                ax.scatter(x, y, s=12, marker=marker, color=colour, alpha=0.6, lw=0, zorder=3)
            name = exhibits.papers()[paper] if len(papers) > 1 else title
            ax.set(
                xlabel="printed (percent)", ylabel="ours (percent)", title=name, xlim=ends, ylim=ends, aspect="equal"
            )
            if column == columns - 1 and not row:
                counts = [f"{word} ({int((said == word).sum())})" for word in TESTED]
                marks = ax.collections[:0:-1]  # all but the band, the last one first
                ax.legend(marks, counts, loc="upper left", bbox_to_anchor=(1.02, 1.0), title="band: within two points")
        plt.close(figure)
    return figure


def margins(folder: Path, papers: Sequence[str]) -> pd.DataFrame:
    """Return the words of each paper under margins of one, two and three points, next to those of a perfect copy."""
    rows = []
    for paper in papers:
        table = cells(folder, paper)
        for margin in (1.0, 2.0, 3.0):
            words, perfect = counted(table, margin), expected(table, margin)
            told = {word: f"{words[word]} ({perfect[word]:.0f})" for word in TESTED}
            rows.append({"paper": exhibits.papers().get(paper, paper), "margin": f"{margin:.0f}", **told})
    return pd.DataFrame(rows)
