"""Write the galleries, `figures/<paper>/README.md` and `figures/README.md`, from the files next to them.

An exhibit counts as drawn if its CSV has a row. The column `runs` of the CSV says how many runs each number has, and
the verdicts in its column `verdict` are counted.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro import paths
from fedrepro.errors import StoreError, one_of
from fedrepro.reporting import answer, compare, exhibits, files, origin, outcome, priors, reading, readings, statistics
from fedrepro.reporting.claims import VERDICTS as CLAIM_VERDICTS
from fedrepro.reporting.exhibits import OURS, Exhibit
from fedrepro.reporting.files import Row, rows, table
from fedrepro.reporting.session import COLUMNS
from fedrepro.runs import process

RULE, GLOSSARY = "RULE.md", "COLUMNS.md"
MEANINGS = Path(__file__).with_name("columns.csv")  # of the columns that many files of the figures have
LONG = 20  # rows of a table above which a page folds the rest, or leaves the numbers of an exhibit to its file
FURTHER = Path(__file__).with_name("further.csv")  # titles of what notebooks draw that is in no paper's list
FORMER = Path(__file__).with_name("former_rule.csv")
FORMER_PRIORS = Path(__file__).with_name("former_priors.csv")  # words of all papers, with one prior each
FORMER_WORDS = Path(__file__).with_name("former_words.csv")  # of one paper, before its kept graphs had their variance
TABLES = ("claims", "checks", "deviations")
BESIDE = {"across": "All methods under one protocol", "engine": "The engine of the suite"}  # folders that are no paper
COUNT = re.compile(r"\d+(\.0+)?")


@dataclass(frozen=True)
class Drawn:
    """One exhibit as its files show it."""

    id: str
    rows: list[Row]
    picture: bool = False
    same: str = ""  # the exhibit with the same numbers that has the picture

    @property
    def runs(self) -> str:
        """Return how many runs the numbers have, as `3-10` or `10`, or a dash where they have none."""
        counts = [float(row["runs"]) for row in self.rows if row.get("runs")]
        return statistics.runs(counts).rpartition(" ")[0] if counts else "–"

    @property
    def graphs(self) -> str:
        """Return the graphs of the rows, which need not be those of the paper's title; nothing where there are none."""
        return ", ".join(dict.fromkeys(row["dataset"] for row in self.rows if row.get("dataset")))

    @property
    def counted(self) -> str:
        """Count the verdicts. In a table with a column of published numbers, rows without one are ignored."""
        told = [row["verdict"] for row in self.rows if row.get("verdict") and row.get("published_mean") != ""]
        counts = Counter(told)
        known = [name for name in outcome.SAID if name in counts]
        return "; ".join(outcome.brief(name, counts[name]) for name in [*known, *sorted(set(counts) - set(known))])

    @property
    def links(self) -> files.Markdown:
        kinds = ["csv", *(["svg"] if self.picture else [])]
        return files.Markdown(" ".join(files.link(kind, f"{self.id}.{kind}") for kind in kinds))

    @property
    def exhibit(self) -> Exhibit | None:
        """Return the exhibit of a file, also of a form of it, as SH-T1-cells and SH-T1-by-reading."""
        known, parts = exhibits.registered(), self.id.split("-")
        forms = ["-".join(parts[:count]) for count in range(len(parts), 1, -1)]
        return next((known[name] for name in [*forms, self.id.rstrip("abcdef")] if name in known), None)


@process.uncollected()
def write(folder: Path | str | None = None, only: Sequence[str] = ()) -> list[Path]:
    """Write the gallery of every paper and the page above them.

    Args:
        folder: the figures; default `paths.figures()`.
        only: the papers whose pages are written, besides the page above them; default all.

    Returns:
        The files written.

    Raises:
        ArgumentError: a paper has no gallery.
        StoreError: a file cannot be read or written.
    """
    folder = Path(folder or paths.figures())
    papers = exhibits.papers()
    listed = [row | {"paper": paper} for paper in papers for row in exhibits.listed(paper) if row["kind"] != OURS]
    others = sorted(path.name for path in folder.glob("*") if path.is_dir() and path.name not in papers)
    written, told = _pictures(folder, papers), origin.teller()
    written.append(paths.replace_file(folder / RULE, rule_page(folder, list(papers)).encode()))
    glossary = files.page("columns.md", columns=paths.read_csv(MEANINGS))
    written.append(paths.replace_file(folder / GLOSSARY, glossary.encode()))
    chosen = {one_of("paper", name, [*papers, *others]) for name in only}
    drawn = {name: _drawn(folder / name) for name in [*papers, *others]}
    known = {name: answer.numbers(folder, name) for name in papers}
    for paper in [name for name in drawn if not chosen or name in chosen]:
        guide = reading.page(paper, folder / paper) if paper in papers else ""
        if guide:
            written.append(paths.replace_file(folder / paper / reading.FILE, guide.encode()))
        rows_of = [row for row in listed if row["paper"] == paper]
        text = gallery(folder / paper, paper, rows_of, drawn[paper], known.get(paper), bool(guide), told)
        written.append(paths.replace_file(folder / paper / "README.md", text.encode()))
    written.append(paths.replace_file(folder / "README.md", summary(folder, listed, drawn, known).encode()))
    return written


def gallery(
    folder: Path,
    paper: str,
    listed: Sequence[Row],
    drawn: Mapping[str, Drawn],
    known: Mapping[str, Any] | None,
    guide: bool,
    origins: Callable[[str], str],
) -> str:
    """Return the page of one paper: the state of every exhibit, claims, checks, deviations and pictures.

    Args:
        listed: the rows of the paper's list of exhibits.
        drawn: what its folder holds, by ID.
        known: what its main tables came to, as `answer.numbers` gives it; None for a folder that is no paper.
        guide: whether there is a reading page.
        origins: says of an exhibit where its runs come from, see `origin`.
    """
    ids = [row["id"] for row in listed]
    extra = [drawn[name] for name in sorted(drawn, key=exhibits.natural) if name not in ids]
    titles = {row["id"]: row["title"] for row in paths.read_csv(FURTHER)}
    told = {one.id: titles.get(one.id.removeprefix(one.exhibit.id), one.exhibit.title) for one in extra if one.exhibit}
    titles = told | titles
    return files.page(
        "gallery.md",
        name=exhibits.papers().get(paper) or BESIDE.get(paper, paper),
        guide=reading.FILE if guide else "",
        answer=_illustrated(folder, exhibits.papers()[paper]) + _answer(known, paper) if known else "",
        listed=listed,
        done=sum(bool(drawn[name].rows) for name in ids if name in drawn),
        states=_states(listed, drawn),
        **{name: _read(folder / f"{name}.csv", COLUMNS[name] if name == "claims" else ()) for name in TABLES},
        evidence=_evidence,
        long=LONG,
        causes=_causes(folder, paper),
        here=[(drawn[r["id"]], f"{r['id']}, {r['label']}: {r['title']}") for r in listed if r["id"] in drawn],
        extra=[(one, f"{one.id}: {titles[one.id]}" if one.id in titles else one.id) for one in extra],
        place=lambda known: os.path.relpath(paths.notebooks() / f"{known.notebook}.ipynb", folder),
        no_cause=readings.NO_CAUSE,
        origins=origins,
    )


def summary(
    folder: Path,
    listed: Sequence[Row],
    drawn: Mapping[str, Mapping[str, Drawn]],
    numbers: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return the page above the galleries: the answer of each paper, then counts of exhibits and claims."""
    shown, words, claims = [], [], []
    done = 0
    for paper, name in exhibits.papers().items():
        ids = [row["id"] for row in listed if row["paper"] == paper]
        here = [one for one in drawn[paper].values() if one.id in ids and one.rows]
        known = numbers[paper]
        behind = Drawn("", [row for one in here for row in one.rows]).runs
        held = f"{known['tested']} of {known['printed']}"
        held += f" (no run on {outcome.joined(known['absent'])})" if known["absent"] else ""
        shown.append([files.link(name, f"{paper}/README.md"), len(here), len(ids), behind, held])
        told = [f"{known['words'][word]} ({known['expected'][word]:.0f})" for word in answer.TESTED]
        told.append(outcome.share(known["narrow"]))
        words.append([name, known["printed"], known["tested"], *(told if known["tested"] else [""] * len(told))])
        done += len(here)
        claims.append([name, *known["claims"].values()])
    return files.page(
        "summary.md",
        rule=RULE,
        glossary=GLOSSARY,
        picture=_illustrated(folder, "each paper of which a number could be tested"),
        answers={name: _answer(numbers[paper], paper) for paper, name in exhibits.papers().items()},
        words=table(["paper", "printed", "tested", *answer.TESTED, "at most 5 points"], words),
        claims=table(["paper", *CLAIM_VERDICTS], claims),
        drawn=done,
        listed=len(listed),
        exhibits=table(["paper", "drawn", "exhibits", "runs behind each number", "printed numbers tested"], shown),
        others=_beside(folder, [name for name in drawn if name not in numbers]),
    )


def _beside(folder: Path, others: Iterable[str]) -> dict[str, str]:
    """Return the pages in folders that are no paper's: path and title, of galleries first in each."""
    pages = {}
    for name in others:
        pages[f"{name}/README.md"] = BESIDE.get(name, name)
        for page in sorted({*(folder / name).glob("*.md")} - {folder / name / "README.md"}):
            pages[f"{name}/{page.name}"] = page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
    return pages


def rule_page(folder: Path, papers: Sequence[str]) -> str:
    """Return the page that says how a word is found, why the margin changed, and what other margins would give."""
    margins = answer.margins(folder, papers)
    flags = [
        [exhibits.papers()[paper], name, {True: "yes", False: "no", None: "not known"}[drawn], source]
        for paper in papers
        for known in (exhibits.study(paper).redrawn, exhibits.study(paper).rows)
        for name, (drawn, source) in known.items()
    ]
    known = [{**row, "paper": exhibits.papers().get(row["paper"], row["paper"])} for row in _read(priors.FILE)]
    return files.page(
        "rule.md",
        glossary=GLOSSARY,
        examples=_examples(folder, papers),
        margins=table(list(margins), margins.values.tolist()),
        before=_moved(folder, FORMER_PRIORS),
        priors=rows(known, priors.COLUMNS),
        former=_read(FORMER),
        moved=_moved(folder, FORMER_WORDS),
        flags=table(["paper", "data set or row", "redrawn", "source"], flags),
    )


def _examples(folder: Path, papers: Sequence[str]) -> str:
    """Return one number of each word, the first of three runs or more, with what its word is found from."""
    cells = pd.concat([answer.cells(folder, paper) for paper in papers], ignore_index=True)
    cells = cells[cells["runs"].ge(3) & ~cells["why"].fillna("").str.contains(compare.PEAK, regex=False)]
    lines = []
    for word in answer.TESTED:
        for cell in cells[cells["verdict"].eq(word)].head(1).to_dict("records"):
            names = (cell[name] for name in ("exhibit", "dataset", "method", "clients", "partition"))
            ours = f"{cell['ours_mean']:.4g} ± {cell['ours_sd']:.2g} ({cell['runs']})"
            low90, high90, low95, high95 = (
                f"{cell['difference'] + sign * cell[half]:+.2f}" for half in ("half90", "half95") for sign in (-1, 1)
            )
            known = [", ".join(str(name) for name in names if str(name)), cell["published"], ours]
            lines.append([word, *known, f"{cell['difference']:+.2f}", f"{low90} to {high90}", f"{low95} to {high95}"])
    told = "One number of each word, with d and its intervals in points:\n\n"
    heads = ["word", "number", "printed", "ours ± sd (runs)", "d", "90% interval", "95% interval"]
    return told + table(heads, lines) if lines else ""


def _moved(folder: Path, file: Path) -> str:
    """Return the counts of words in a file, of papers before a change of the rule, with those of today."""
    lines = []
    for row in _read(file):
        (paper,) = (name for name, title in exhibits.papers().items() if title == row["paper"])
        now = answer.counted(answer.cells(folder, paper))
        lines += [[row["paper"], "before", *list(row.values())[1:]]]
        lines += [[row["paper"], "now", *(str(now[word]) for word in answer.TESTED)]]
    return table(["paper", "", *answer.TESTED], lines)


def _pictures(folder: Path, papers: Iterable[str]) -> list[Path]:
    """Draw the printed against the measured numbers of each paper, and of all; return the files."""
    known = {folder / paper: (answer.cells(folder, paper), exhibits.papers()[paper]) for paper in papers}
    by_paper = [cells for cells, _ in known.values()]
    known[folder] = pd.concat([cells for cells in by_paper if len(cells)] or by_paper), "All papers"
    written = []
    for target, (cells, title) in known.items():
        figure = answer.picture(cells, title)
        if figure is not None:
            written.append(paths.replace_file(target / f"{answer.PICTURE}.svg", files.drawn(figure)))
    return written


def _answer(known: Mapping[str, Any], paper: str) -> str:
    """Return the verdict on a paper's numbers, what was learned, and the folded sentences of `outcome.of_tables`."""
    said = outcome.of_tables(known, f"the main tables of {exhibits.papers()[paper]}")
    parts = (outcome.main_findings(known), exhibits.study(paper).learned, said)
    verdict, learned, whole = ("".join(f"- {one}\n" for one in lines) for lines in parts)
    learned = f"\nWhat we learned:\n\n{learned}" if learned else ""
    return f"{verdict}{learned}\n{files.folded('The statistics behind it', whole)}" if verdict else whole


def _illustrated(folder: Path, name: str) -> str:
    """Return the picture of printed and measured numbers with its alternative text, if it was drawn."""
    told = f"Printed numbers against ours, {name}: one point a number, coloured by its word"
    return f"![{told}]({answer.PICTURE}.svg)\n\n" if (folder / f"{answer.PICTURE}.svg").is_file() else ""


def _evidence(row: Row) -> str:
    """Return the evidence of a claim, folded, one line a part."""
    judged = outcome.JUDGED.match(row["evidence"])
    told = row["evidence"][judged.end() :] if judged else row["evidence"]  # a finding has no counts of its parts
    head = f"{row['id']}, {row['verdict']}" + (f": {judged[1]}{judged[2] or ''}" if judged else "")
    return files.folded(head, "".join(map(files.item, told.split("; "))))


def _causes(folder: Path, paper: str) -> list[dict[str, object]]:
    """Return what differs in each main table: its cells, with the readings run on them and the one that explains it."""
    causes: list[dict[str, object]] = []
    for exhibit_id in exhibits.study(paper).tables if paper in exhibits.papers() else ():
        names = ["dataset", "method", "clients", "partition", "setting", "published", "difference", "verdict"]
        names += ["readings run", "cause"]
        cells = _read(folder / f"{exhibit_id}-causes.csv", names)
        if cells:
            needed = ["reading", "kind", "fixed", "verdict", "explains", "open"]
            known = _read(folder / f"{exhibit_id}-by-reading.csv", needed)
            read = pd.DataFrame(known).assign(explains=[row["explains"] == "True" for row in known])
            explained, of = readings.placebo_rate(read)
            run = readings.coverage(read)
            run = run[[name for name in run if name != "best" or run["best"].any()]]
            for row in cells:
                row["difference"] = _signed(row["difference"])
            told = rows(cells, [name for name in names if any(row[name] for row in cells)], LONG)
            coverage = table(list(run), run.values.tolist())
            causes.append({"id": exhibit_id, "coverage": coverage, "of": of, "explained": explained, "cells": told})
    return causes


def _signed(text: str) -> str:
    """Return the text of a number with its sign and one decimal, and any other text as it is."""
    try:
        return f"{float(text):+.1f}"
    except ValueError:
        return text


def _states(listed: Sequence[Row], drawn: Mapping[str, Drawn]) -> str:
    lines = []
    for row in listed:
        one = drawn.get(row["id"])
        state = ["drawn", one.runs, one.counted, one.links] if one and one.rows else ["not yet", "", "", ""]
        lines.append([row["id"], row["label"], row["kind"], row["title"], *state])
    head = ["exhibit", "label", "kind", "what", "state", "runs behind each number", "verdicts", "files"]
    return table(head, lines)


def _drawn(folder: Path) -> dict[str, Drawn]:
    """Return what a folder holds of each exhibit."""
    drawn_exhibits: dict[str, Drawn] = {}
    pictured: dict[bytes, str] = {}
    for path in sorted(folder.glob("*.csv"), key=lambda path: exhibits.natural(path.stem)):
        if path.stem not in TABLES and path.stem != answer.PICTURE:
            numbers, picture = path.read_bytes(), path.with_suffix(".svg").is_file()
            if picture:
                pictured.setdefault(numbers, path.stem)
            drawn_exhibits[path.stem] = Drawn(
                path.stem, _read(path), picture, "" if picture else pictured.get(numbers, "")
            )
    return drawn_exhibits


def _read(path: Path, needed: Sequence[str] = ()) -> list[Row]:
    """Return the rows of a CSV file; none if there is no such file.

    Raises:
        StoreError: it cannot be read, lacks a column that is needed, or counts runs by other than whole numbers.
    """
    records = files.read_rows(path, needed)
    for row in records:
        if not COUNT.fullmatch(row.get("runs") or "0"):
            raise StoreError(f"Cannot read {path}: the column runs must hold whole numbers. Got {row['runs']!r}.")
    return records
