"""Write the page "Which method should I take?" from the tables, sentence by sentence, each by a rule.

No sentence is written by hand for a method. If the numbers change sides, the sentences do, and a test flips them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro import paths
from fedrepro.across import protocol, statistics, tables, twins
from fedrepro.reporting import checks, files, frames
from fedrepro.reporting.statistics import discoveries

CLOSE = 2.0  # points below the best mean within which a method is still considered
GRAPH = "Cora"  # whose leaks the page tells
COLUMN = protocol.Column(GRAPH, protocol.METIS).label
PAGE = "WHICH.md"
GUESS = "a guess without messages"
PARTS = {"metis": "parts of neighbours (METIS)", "random": "random parts", "dirichlet": "parts of unlike labels"}
HETEROPHILIC = "heterophilic graphs"
CHEAP = f"least bytes within {CLOSE:g} points of the best"


def best(table: pd.DataFrame, label: str) -> tuple[str, float, list[str]] | None:
    """Return the row of highest mean accuracy in a column, that mean, and the rows that are not shown to be worse.

    A row is shown to be worse by the rule of AX-4: the 95% interval of its paired difference to the best lies below
    zero, and Benjamini and Hochberg's procedure over the column's rows keeps it. That the best was chosen by the same
    runs is not corrected. Central training is no choice of a client and is left out, and so is a row of one run. None
    if no row has two runs.
    """
    part = table[(table["column"] == label) & (table["row"] != "Central")]
    means = part.groupby("row")["accuracy"].agg(["mean", "count"]).query("count > 1")["mean"]
    if means.empty:
        return None
    first = str(means.idxmax())
    names = tables.order([row for row in means.index if row != first])
    gaps = frames.leads(part, first, names, "accuracy", "row")
    kept = discoveries([gap.p for gap in gaps.values()], statistics.LEVEL)
    worse = {name for (name, gap), keep in zip(gaps.items(), kept, strict=True) if keep and gap.high < 0}
    return first, float(means[first]), [name for name in names if name not in worse]


def sentences(
    table: pd.DataFrame,
    leaks: pd.DataFrame | None = None,
    controls: Sequence[checks.Row] = (),
    read: pd.DataFrame | None = None,
    leads: pd.DataFrame | None = None,
) -> list[str]:
    """Return the statements of the page, in their order.

    Args:
        table: as `tables.scored` gives it.
        leaks: row, features, edges and labels, as shares between a guess (0) and everything (1), see `tables.leaks`.
        controls: the attacker's controls, see `tables.controls`. The page has them with the leaks.
        read: readings of FedAvg with FedSGD, as `tables.readings` gives them.
        leads: leads over Local on test nodes with a training twin and on the others, as `twins.leads` gives them.
    """
    told = [
        *_accuracy(table),
        *_bases(table),
        *_readings(read),
        *_twins(leads),
        *costs(table),
        *_leaks(table, leaks),
        *_controls(controls),
    ]
    return [*told, *_open(table)]


def _headings(table: pd.DataFrame) -> dict[str, str]:
    """Return the name of each column in words, with the number of runs of a method where some lack runs."""
    cells = tables.summary(table)
    cells = cells[cells["row"].ne("Central") & (cells["runs"].gt(0) | cells["note"].eq("not computed yet"))]
    runs = {label: part["runs"] for label, part in cells.groupby("column")}
    told = {}
    for label, dataset in dict(zip(table["column"], table["dataset"])).items():
        wanted = protocol.SEEDS.get(str(dataset).removesuffix("~standin"), 1)
        low, high = (runs[label].min(), runs[label].max()) if label in runs else (wanted, wanted)
        some = f"{low}-{high}" if low < high else f"{low}"
        name = tables.spoken(label)
        told[label] = name if low >= wanted else f"{name} ({some} of {wanted} runs a method)"
    return told


def _accuracy(table: pd.DataFrame) -> Iterator[str]:
    for label, heading in _headings(table).items():
        top = best(table, label)
        if top:
            first, mean, tied = top
            rest = f"not shown to be worse: {', '.join(tied)}" if tied else "all others are shown to be worse"
            yield f"**Accuracy, {heading}.** {first} has the highest mean, {mean:.1f}%; {rest}."


def _bases(table: pd.DataFrame) -> Iterator[str]:
    gaps = statistics.differences(table)
    for base in statistics.BASES:
        part = gaps[(gaps["base"] == base) & (gaps["row"] != "Central")]
        if part.empty:
            continue
        columns = part["row"].value_counts()  # by method, as few run in all
        counts = part.groupby("row", sort=False)["verdict"].value_counts().unstack(fill_value=0)
        counts = counts.reindex(columns=["above", "below"], fill_value=0)
        for side in ("above", "below"):
            sizes = counts[side].sort_values(ascending=False, kind="stable")
            names = [f"{name} ({n} of {columns[name]})" for name, n in sizes.items() if n]
            told = ", ".join(names) or "no method"
            yield f"**{base} as the measure.** Shown {side} {base}, in so many of its columns: {told}."


def _readings(read: pd.DataFrame | None) -> Iterator[str]:
    """Yield for each column how far FedAvg and its readings lie from FedSGD, with 95% intervals."""
    if read is None or read.empty:
        return
    for label, part in read.groupby("column", sort=False):
        gaps = frames.leads(part, "FedSGD", list(protocol.FEDAVG_READINGS), "accuracy", "row")
        told = [f"{name} {gap.difference:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]" for name, gap in gaps.items()]
        if told:
            yield f"**FedAvg minus FedSGD in points, {tables.spoken(label)}.** {'; '.join(told)} (AX-13)."


def _twins(leads: pd.DataFrame | None) -> Iterator[str]:
    """Yield for each column the methods above Local, by the kind of nodes on which their lead is shown to be larger.

    A method is above Local if its 95% interval is, on one kind of nodes or on both. That a lead is shown on only one
    kind does not say that it is larger there, which another test decides (see `twins.leads`).
    """
    if leads is None or leads.empty:
        return
    above = leads[(leads["low"] > 0) & (leads["row"] != "Central")]
    for label in dict.fromkeys(leads["column"]):
        part = above[above["column"] == label]
        kinds = {
            "larger on test nodes with a training twin": part["larger"].eq(twins.WITH),
            "larger on the others": part["larger"].eq(twins.WITHOUT),
            "above Local, not shown to depend on twins": ~part["larger"].isin([twins.WITH, twins.WITHOUT]),
        }
        told = "; ".join(
            f"{kind}: {', '.join(tables.order(list(part.loc[chosen, 'row']))) or 'none'}"
            for kind, chosen in kinds.items()
        )
        yield f"**Duplicated pages, {tables.spoken(label)}.** Leads over Local, {told} (AX-14)."


def cheapest(points: pd.DataFrame) -> pd.Series:
    """Return the row that sends least of those within `CLOSE` points of the best, the most accurate of equals.

    Args:
        points: the rows of one column, as `tables.against` gives them.
    """
    near = points[points["accuracy"] >= points["accuracy"].max() - CLOSE]
    return near.sort_values(["bytes", "accuracy"], ascending=[True, False], kind="stable").iloc[0]


def costs(table: pd.DataFrame) -> Iterator[str]:
    """Yield for each column the method of few bytes near the best accuracy, and the Pareto front of both."""
    for label, heading in _headings(table).items():
        points = tables.against(table, [label])
        if len(points) < 2:
            continue
        least = cheapest(points)
        names = ", ".join(points[points["front"]].sort_values("bytes")["row"])
        size = f"{least['bytes']:{'.3g' if least['bytes'] < 100 else ',.0f'}} MiB"
        yield (
            f"**Bytes, {heading}.** Of the methods within {CLOSE:g} points of the best, {least['row']} sends least, "
            f"{size} per client; on the Pareto front of bytes and accuracy are {names}."
        )


def _leaks(table: pd.DataFrame, leaks: pd.DataFrame | None) -> Iterator[str]:
    if leaks is None or leaks.empty:
        return
    leaks = leaks[leaks["row"] != "Central"]  # it counts no message, since all data are in one place
    means = table[table["column"] == COLUMN].groupby("row")["accuracy"].mean()
    held = leaks.assign(worst=leaks[["features", "edges", "labels"]].max(axis=1), accuracy=leaks["row"].map(means))
    known = leaks["edges held"].ne("") if "edges held" in leaks else pd.Series(False, index=leaks.index)
    for goal in ("features", "edges", "labels"):
        rest = held[~known] if goal == "edges" else held
        if rest.empty:
            continue
        top = rest.sort_values(goal, ascending=False, kind="stable").iloc[0]
        most = f"{top['row']} reveals most to this attacker: {top[goal]:.0%} of the way from {GUESS} to everything"
        given = f"The server of {', '.join(held.loc[known, 'row'])} holds the edges by protocol. Of the others "
        yield f"**Leaks on {GRAPH}, {goal}.** {given if goal == 'edges' and known.any() else ''}{most}."
    held = held.dropna(subset=["accuracy"])
    near = held[held["accuracy"] >= held["accuracy"].max() - CLOSE] if len(held) else held
    if len(near):
        least = near.sort_values("worst", kind="stable").iloc[0]
        yield (
            f"**Leaks on {tables.spoken(COLUMN)}.** Of the methods within {CLOSE:g} points of the best, {least['row']} "
            f"reveals least to this attacker: its worst of three goals is {least['worst']:.0%} of the way from {GUESS} "
            "to everything."
        )


def _controls(controls: Sequence[checks.Row]) -> Iterator[str]:
    for one in controls:
        fails = one["verdict"] == checks.FAILS
        yield (
            f"**Leaks, a control {'fails' if fails else 'holds'}.** {one['id']}: {one['statement']}, is "
            f"{one['measured']:.3g} and may be at most {one['bound']:g}."
            f"{' Smaller leaks are not told from chance.' if fails else ''}"
        )


def kinds(table: pd.DataFrame) -> pd.Series:
    """Return the kind of a setting that each row of a scored table belongs to: its parts, and its graph's kind."""
    graph = table["dataset"].str.removesuffix("~standin").isin(protocol.TWINS_OF)
    parts = table["partition"].str.partition("(")[0].map(PARTS)
    return parts.where(parts.isna() | ~graph, parts + ", " + HETEROPHILIC).fillna("another method's own clients")


def shortlist(table: pd.DataFrame, leaks: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return in how many columns of each kind a method is the best or not shown to be worse than the best.

    Further columns count where a method is within `CLOSE` points of the best mean, and sends least of those, and have
    what an attacker rebuilds on `GRAPH`. The method that is named in most columns comes first. Rows of methods that
    are named nowhere are left out.
    """
    named = []
    for label, part in table.groupby("column", sort=False):
        if top := best(table, str(label)):
            first, _, tied = top
            kind = str(kinds(part).iloc[0])
            named += [(kind, label, row) for row in (first, *tied)]
            named.append((CHEAP, label, cheapest(tables.against(table, [str(label)]))["row"]))
    held = pd.DataFrame(named, columns=["kind", "column", "method"])
    if held.empty:
        return held
    totals = held.groupby("kind", sort=False)["column"].nunique()
    order = [*totals.index.drop(CHEAP), CHEAP]
    counts = pd.crosstab(held["method"], held["kind"]).loc[held["method"].unique(), order]
    most = counts.drop(columns=CHEAP).sum(axis=1).sort_values(ascending=False, kind="stable")
    counts = counts.loc[most.index].rename(columns=lambda kind: f"{kind} (of {totals[kind]})")
    counts_by_column = counts.rename_axis(columns=None).reset_index()
    if leaks is None or leaks.empty:
        return counts_by_column
    told = {str(row["row"]): _rebuilt(row) for row in leaks.to_dict("records")}
    known = counts_by_column["method"].str.removesuffix(" (fine-tuned)").map(told).fillna("")
    return counts_by_column.assign(**{f"this attacker rebuilds on {GRAPH}": known})


def _rebuilt(row: Mapping[Hashable, Any]) -> str:
    """Return the largest share of a goal that the attacker reaches, and which messages it made no use of.

    Nothing rebuilt by one attacker is no proof of privacy, unless nothing is sent.
    """
    share = max(row[goal] for goal in tables.GOALS)
    if share != share:
        return ""
    told = [row[name] if isinstance(row.get(name), str) else "" for name in ("used", "unused")]
    if not share and not any(told):
        return "nothing is sent"
    unused = f" (no use made of {told[1]})" if told[1] else ""
    return f"{f'{share:.0%}' if share else 'nothing'}{unused}"


def answers(short: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence for each kind of clients: the methods that stand in most of its columns."""
    for name in short.columns:
        kind, _, total = str(name).rpartition(" (of ")
        if not kind or kind == CHEAP:
            continue
        top = short[short[name] == short[name].max()]
        others = short[(short[name] >= short[name].max() / 2) & ~short["method"].isin(top["method"])]
        rest = ", ".join(f"{row} ({n})" for row, n in zip(others["method"], others[name]))
        most = f"{' and '.join(top['method'])} in {short[name].max()} of {total.rstrip(')')} columns"
        yield f"**{kind[:1].upper()}{kind[1:]}**: {most}{f'; then {rest}' if rest else ''}."


def _open(table: pd.DataFrame) -> Iterator[str]:
    cells = tables.missing(tables.summary(table))
    lacking = cells[cells["missing"] > 0]
    total = int((cells["with runs"] + cells["missing"]).sum())
    yield f"**What is open.** {int(cells['with runs'].sum())} of {total} cells of the protocol have all their runs."
    if len(lacking):
        yield f"Columns that are not complete: {'; '.join(map(tables.spoken, lacking['column']))}."
    ranking = statistics.ranks(table)
    if ranking:
        yield f"Ranks over {ranking.graphs} graphs, for {len(ranking.mean)} methods: {_power(ranking)} (AX-5)."
        if ranking.left_out:
            told = ", ".join(ranking.left_out)
            yield f"Left out of the ranks, since they have no runs on some graph: {told}."
        if table["row"].eq(protocol.FINE_TUNED).any():
            yield f"Left out, since it scores FedAvg's runs: {protocol.FINE_TUNED}."


def _power(ranking: statistics.Ranks) -> str:
    """Return with what chance the ranks show an advantage, or why they cannot show any."""
    if ranking.critical >= ranking.reach:
        return (
            f"a method that is first on every graph lies {ranking.reach:g} ranks before the middle of the others if"
            f" these are alike, and the critical difference is {ranking.critical:.1f}, so that no method can be told"
            " from the middle of the others"
        )
    told = "; ".join(f"{value:.0%} for {shift:g} standard deviations" for shift, value in ranking.power.items())
    return f"one method with an advantage over all others is told from the middle with a chance of {told}"


def write(folder: Path, statements: Sequence[str], short: pd.DataFrame | None = None) -> str:
    """Write the page to a folder of figures, and return its text: the short answer, and all statements behind it."""
    short = pd.DataFrame() if short is None else short
    text = files.page(
        "which.md",
        statements=statements,
        answers=list(answers(short)),
        counts=files.table(list(short), short.to_numpy().tolist()),
        column=COLUMN,
        spoken=tables.spoken(COLUMN),
    )
    paths.replace_file(folder / protocol.PAPER / PAGE, text.encode())
    return text
