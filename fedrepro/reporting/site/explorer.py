"""Collect every printed number next to ours, with where it is shown and what recomputes it, for the explorer."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from fedrepro.reporting import exhibits, rule
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
    **dict.fromkeys(("reproduced", "to the digit"), "agrees"),
    **dict.fromkeys(("not comparable", "not run", "stand-in", "graph not here", NONE), "not tested"),
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
    cell = [row[name] for name in dict.fromkeys([*layout.columns, *layout.rows]) if row.get(name)]
    return shlex.join(["fedrepro", "show", table, *cell])


def rows(figures: Path) -> list[Row]:
    """Return one row for each printed number and each table that compares it with ours, with the columns `SHOWN`.

    Tables of `figures/<paper>/` that compare have their verdicts. A printed number that no such table holds is looked
    for in the exhibit's own table, and is listed without ours if it is not found.
    """
    return [row for paper in exhibits.papers() for row in _paper(paper, figures / paper)]


def read(path: Path) -> list[Row]:
    """Return the rows of a CSV file, none if there is no such file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as content:
        return list(csv.DictReader(content, restval=""))


def _paper(paper: str, folder: Path) -> Iterator[Row]:
    known = {row["id"]: row for row in exhibits.listed(paper)}
    printed = read(exhibits.folder(paper) / "published.csv")
    left = {(row["exhibit"], *_cell(row)): row for row in printed}
    for file in sorted(folder.glob("*.csv"), key=lambda path: natural(path.stem)):
        table = read(file)
        if not table or not {*KEYS, "exhibit", "published_mean"} <= set(table[0]):
            continue
        for row in table:
            if row["published_mean"] or row.get("published"):
                told = left.pop((row["exhibit"], *_cell(row)), {})
                yield _row(paper, known, file.stem, {**told, **row}, row.get("published", ""), row.get("ours_mean", ""))
    tables: dict[str, list[Row]] = {}
    for row in left.values():
        id_ = row["exhibit"]
        if id_ not in tables:
            tables[id_] = read(folder / f"{id_}.csv")
        found = _found(row, tables[id_])
        ours = found.get("ours") or found.get("ours_mean") or found.get(row["metric"], "")
        spread = f" ± {row['spread']}" if row["spread"] else ""
        told = (
            {} if ours else {"why": "no row of the exhibit's table stands next to this number", "state": "not tested"}
        )
        interval = {"low": "", "high": ""}  # where such a table has an interval, it is not one of the difference
        yield _row(paper, known, id_, {**told, **found, **row, **interval}, f"{row['value']}{spread}", ours)


def _row(paper: str, known: Mapping[str, Row], table: str, row: Row, printed: str, ours: str) -> Row:
    about = known.get(table) or known.get(row["exhibit"], {"label": "", "notebook": ""})
    score = row["metric"].startswith(("test accuracy", "F1", "local accuracy"))
    factor = 100 if score and "percent" not in row["metric"] else 1
    theirs = _number(row.get("published_mean") or row.get("value", ""))
    mine = _number(ours)
    both = theirs is not None and mine is not None
    gap = _number(row.get("difference", ""))
    if gap is None and theirs is not None and mine is not None:
        gap = (mine - theirs) * (factor if "half90" in row else 1)
    half, points = _number(row.get("half90", "")), 1 if "half90" in row else factor  # such tables have points
    limits = {name: _number(row.get(name, "")) for name in ("low", "high")}
    if half is not None and gap is not None:
        limits = {"low": gap - half, "high": gap + half}
    word = next((row[name] for name in WORD if row.get(name)), NONE)
    short = re.split(r" [+-]?\d", word)[0]  # "differs by" of "differs by +1.9%", which the reason keeps
    return {
        **{name: row[name] for name in KEYS},
        "paper": exhibits.papers()[paper],
        "table": table,
        "label": about["label"],
        "printed": printed,
        "ours": _short(mine) if mine is not None else ours,
        "difference": _short(gap, points),
        **{name: _short(value, points) for name, value in limits.items()},
        "runs": row.get("runs", ""),
        "word": short,
        "reading": row.get("reading") or table.removeprefix(row["exhibit"]).lstrip("-") or "main",
        "provenance": row.get("provenance", ""),
        "why": row.get("why") or (word if word != short else ""),
        "page": f"papers/{paper}.html",
        "stored": stored(paper, table, row) if mine is not None else "",
        "command": command(f"{paper}/{about['notebook']}"),
        "x": _short(theirs, factor) if score and both else "",
        "y": _short(mine, factor) if score and both else "",
    }


def _cell(row: Row) -> tuple[str, ...]:
    return tuple(_canonical(row[name]) for name in KEYS)


def _canonical(value: str) -> str:
    number = _number(value)
    return value if number is None else f"{number:.12g}"


def _found(row: Row, table: list[Row]) -> Row:
    """Return the one row of a table that holds a printed number under its data set, method, clients and metric."""
    needed = ["dataset", "metric", *(name for name in ("method", "clients") if table and name in table[0])]
    wanted = {_canonical(row[name]) for name in needed if row[name]}
    value = _canonical(row["value"])
    fitting = [
        one
        for one in table
        if any(_canonical(one.get(name, "")) == value for name in PRINTED)
        if wanted <= {*map(_canonical, one.values()), *one}
    ]
    return fitting[0] if len(fitting) == 1 else {}


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if number == number else None


def _short(value: float | None, factor: float = 1) -> str:
    """Return a number with as many digits as a reader compares, empty for none."""
    return "" if value is None else f"{value * factor:.4g}"


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
    found = rows(figures)
    for row in found:
        row["page"] += f"#{row['table'].lower()}" if row["table"] in anchors else ""
    content = {
        "columns": SHOWN,
        "rows": [[row[name] for name in SHOWN] for row in found],
        "looks": looks(row["word"] for row in found),
        "margin": rule.MARGIN,
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
