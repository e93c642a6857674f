"""Collect every printed number next to ours, with where it is shown and what recomputes it, for the explorer."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from fedrepro.reporting import exhibits, files, rule
from fedrepro.reporting.compare import canonical, cell_key
from fedrepro.reporting.exhibits import natural

Row = dict[str, str]

KEYS = ("dataset", "method", "clients", "partition", "setting", "metric")
PRINTED = ("published_mean", "published", "value")
WORD = ("verdict", "state", "agreement")
NONE = "not judged"
SHOWN = (
    "paper", "table", "label", *KEYS, "printed", "ours", "difference", "low", "high", "runs", "word", "reading",
    "provenance", "why", "page", "stored", "command", "x", "y",
)  # fmt: skip

# A word's colour in the light and in the dark theme, and its mark. Words that are not listed get the last ones in turn.
# The colours stay apart for colour-blind readers, which a test simulates; the hues are those of the answer's picture.
LOOKS: dict[str, tuple[str, str, str]] = {
    "agrees": ("#179850", "#32FF99", "circle"),
    "compatible": ("#004AC9", "#388CFF", "square"),
    "compatible, but wide": ("#343434", "#C0C0C0", "triangle"),
    "differs a little": ("#B18A0B", "#F5D110", "diamond"),
    "differs": ("#952800", "#EE5C2A", "down"),
    "undecided": ("#8B328F", "#CA7DC7", "ring"),
    "not tested": ("#8F8F8F", "#787878", "cross"),
}
ALIASES = {
    "to the digit": "agrees",
    **dict.fromkeys(("not run", "stand-in", "graph not here", NONE), "not tested"),
    "within our range": "compatible",
    "differs by": "differs a little",
}


def command(notebook: str) -> str:
    """Return the command that recomputes a notebook's numbers, as published and from an empty store."""
    apart = "FEDREPRO_STORE=build/fresh/results FEDREPRO_FIGURES=build/fresh/figures"
    return f"{apart} fedrepro run {notebook} --profile paper"


def stored(paper: str, table: str, row: Row) -> str:
    """Return the command that lists the runs behind a number of a main table, empty for another table."""
    layout = exhibits.study(paper).tables.get(table)
    if layout is None:
        return ""
    cell = [row[name] for name in dict.fromkeys(layout.key) if row.get(name)]
    return shlex.join(["fedrepro", "show", table, *cell])


def rows(figures: Path) -> list[Row]:
    """Return one row for each printed number and each table that compares it with ours, with the columns `SHOWN`.

    Tables of `figures/<paper>/` that compare have their verdicts. A printed number that no such table holds is looked
    for in the exhibit's own table, and is listed without ours if it is not found.
    """
    return [row for paper in exhibits.papers() for row in _paper(paper, figures / paper)]


def _paper(paper: str, folder: Path) -> Iterator[Row]:
    known = {row["id"]: row for row in exhibits.listed(paper)}
    printed = files.read_rows(exhibits.folder(paper) / "published.csv")
    left = {(row["exhibit"], *cell_key(row, KEYS)): row for row in printed}
    for file in sorted(folder.glob("*.csv"), key=lambda path: natural(path.stem)):
        table = files.read_rows(file)
        if not table or not {*KEYS, "exhibit", "published_mean"} <= set(table[0]):
            continue
        for row in table:
            if row["published_mean"] or row.get("published"):
                told = left.pop((row["exhibit"], *cell_key(row, KEYS)), {})
                yield _row(paper, known, file.stem, {**told, **row}, row.get("published", ""), row.get("ours_mean", ""))
    tables: dict[str, list[Row]] = {}
    for row in left.values():
        id_ = row["exhibit"]
        if id_ not in tables:
            tables[id_] = files.read_rows(folder / f"{id_}.csv")
        table_row = _found(row, tables[id_])
        ours = table_row.get("ours") or table_row.get("ours_mean") or table_row.get(row["metric"], "")
        spread = f" ± {row['spread']}" if row["spread"] else ""
        told = (
            {} if ours else {"why": "no row of the exhibit's table stands next to this number", "state": "not tested"}
        )
        interval = {"low": "", "high": ""}  # where such a table has an interval, it is not one of the difference
        yield _row(paper, known, id_, {**told, **table_row, **row, **interval}, f"{row['value']}{spread}", ours)


def _row(paper: str, known: Mapping[str, Row], table: str, row: Row, printed: str, ours: str) -> Row:
    about = known.get(table) or known.get(row["exhibit"], {"label": "", "notebook": ""})
    score = row["metric"].startswith(("test accuracy", "F1", "local accuracy"))
    factor = 100 if score and "percent" not in row["metric"] else 1
    theirs = _number(row.get("published_mean") or row.get("value", ""))
    ours_mean, gap, half = _number(ours), _number(row.get("difference", "")), _number(row.get("half90", ""))
    low, high = _number(row.get("low", "")), _number(row.get("high", ""))
    points = 1 if "half90" in row else factor  # such tables have points
    if math.isnan(gap):
        gap = (ours_mean - theirs) * (factor if "half90" in row else 1)
    if not math.isnan(gap + half):
        low, high = gap - half, gap + half
    both = score and not math.isnan(theirs + ours_mean)
    word = next((row[name] for name in WORD if row.get(name)), NONE)
    short = re.split(r" [+-]?\d", word)[0]  # "differs by" of "differs by +1.9%", which the reason keeps
    return {
        **{name: row[name] for name in KEYS},
        "paper": exhibits.papers()[paper],
        "table": table,
        "label": about["label"],
        "printed": printed,
        "ours": _short(ours_mean) or ours,
        "difference": _short(gap, points),
        "low": _short(low, points),
        "high": _short(high, points),
        "runs": row.get("runs", ""),
        "word": short,
        "reading": row.get("reading") or table.removeprefix(row["exhibit"]).lstrip("-") or "main",
        "provenance": row.get("provenance", ""),
        "why": row.get("why") or (word if word != short else ""),
        "page": f"papers/{paper}.html",
        "stored": stored(paper, table, row) if not math.isnan(ours_mean) else "",
        "command": command(f"{paper}/{about['notebook']}"),
        "x": _short(theirs, factor) if both else "",
        "y": _short(ours_mean, factor) if both else "",
    }


def _found(row: Row, table: list[Row]) -> Row:
    """Return the one row of a table that holds a printed number under its data set, method, clients and metric."""
    needed = ["dataset", "metric", *(name for name in ("method", "clients") if table and name in table[0])]
    wanted = {canonical(row[name]) for name in needed if row[name]}
    value = canonical(row["value"])
    fitting = [
        one
        for one in table
        if any(canonical(one.get(name, "")) == value for name in PRINTED)
        if wanted <= {*map(canonical, one.values()), *one}
    ]
    return fitting[0] if len(fitting) == 1 else {}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _short(value: float, factor: float = 1) -> str:
    """Return a number with as many digits as a reader compares, empty for none."""
    return "" if math.isnan(value) else f"{value * factor:.4g}"


def looks(words: Iterable[str]) -> dict[str, tuple[str, str, str]]:
    """Return colour in the light theme, colour in the dark theme, and mark of each word, in the order of `LOOKS`."""
    names, spare = list(LOOKS), list(LOOKS.values())[::-1]
    known = {word: ALIASES.get(word, word) for word in sorted(set(words))}
    ordered = sorted(known, key=lambda word: names.index(known[word]) if known[word] in LOOKS else len(names))
    return {word: LOOKS.get(known[word]) or spare[place % len(spare)] for place, word in enumerate(ordered)}


def data(figures: Path, anchors: Collection[str]) -> str:
    """Return the explorer's data as JSON that can stand inside a page: columns, rows, looks of the words, and margin.

    Args:
        anchors: the exhibits that the paper's page can be opened at.
    """
    number_rows = rows(figures)
    for row in number_rows:
        row["page"] += f"#{row['table'].lower()}" if row["table"] in anchors else ""
    content = {
        "columns": SHOWN,
        "rows": [[row[name] for name in SHOWN] for row in number_rows],
        "looks": looks(row["word"] for row in number_rows),
        "margin": rule.MARGIN,
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
