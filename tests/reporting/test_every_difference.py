"""Committed pages tell each number that differs, its readings and its cause, and follow the records."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from fedrepro import paths
from fedrepro.reporting import answer, effects, exhibits, files, readings, report, rule, session
from fedrepro.runs.store import Store

FIGURES = paths.root() / "figures"
PAPERS = [paper for paper in exhibits.papers() if exhibits.study(paper).tables]
SHOWN = ["dataset", "method", "clients", "partition", "setting", "published"]


def page_rows(page: str) -> Iterator[tuple[str, bool, dict[str, str]]]:
    """Yield each row of a page's tables of what differs: the exhibit, whether a placebo is told, and the cells."""
    told = page.partition("## What differs, and why\n")[2].partition("\n## ")[0]
    for section in re.split(r"^### ", told, flags=re.MULTILINE)[1:]:
        exhibit_id, _, body = section.partition("\n")
        placebo = re.search(r"noise (?:alone|by itself) explains (\d+|none):", body)
        # The rest of a long table is folded and has a second heading.
        parts = [block for block in body.split("\n\n") if " | cause |" in block.partition("\n")[0]]
        assert parts, f"{exhibit_id} has no table of causes"
        for table in parts:
            lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
            for line in lines[2:]:
                plain = [re.sub(r"\\([~*_])", r"\1", cell.strip()) for cell in line]  # as before escaping
                yield exhibit_id, placebo is not None, dict(zip(lines[0], plain, strict=True))


def lacking(folder: Path, paper: str) -> list[str]:
    """Return what the pages of a folder lack of each distinct number of a main table that differs."""
    differing, _ = answer.differing(folder, paper, answer.cells(folder, paper))
    page = (folder / paper / "README.md").read_text(encoding="utf-8")
    told = {}
    for exhibit_id, placebo, row in page_rows(page):
        told[exhibit_id, *(row.get(name, "") for name in SHOWN)] = (placebo, row)
    listed = pd.concat([readings.listed(paper, exhibit_id) for exhibit_id in exhibits.study(paper).tables])
    known = set(zip(listed["exhibit"], listed["reading"]))
    faults = []
    for cell in differing.to_dict("records"):
        name = (cell["exhibit"], *("" if pd.isna(cell[part]) else str(cell[part]) for part in SHOWN))
        placebo, row = told.get(name, (False, {}))
        run = {one.rpartition(": ")[0] for one in row.get("readings run", "").split("; ")}
        cause = row.get("cause", "")
        if not row or not placebo or not row["readings run"]:
            faults.append(f"{name}: no readings or no placebo")
        elif cause != readings.NO_CAUSE and not (cause in run and (cell["exhibit"], cause) in known):
            faults.append(f"{name}: the cause {cause!r} is no reading that was run")
    return faults


@pytest.mark.parametrize("paper", PAPERS)
def test_every_difference_has_its_readings_the_placebo_and_a_cause(paper: str) -> None:
    """Each distinct number that differs names the readings run on it, a cause or "no cause found", and the placebo."""
    assert lacking(FIGURES, paper) == []


@pytest.mark.parametrize("planted", ["row", "cause", "placebo"])
def test_a_planted_difference_without_a_cause_is_seen(tmp_path: Path, planted: str) -> None:
    """A differing row that is on no page, a cause that is no reading, and a table without its placebo are found."""
    shutil.copytree(FIGURES / "fedgat", tmp_path / "fedgat")
    page, table = tmp_path / "fedgat" / "README.md", tmp_path / "fedgat" / "FG-T1.csv"
    assert lacking(tmp_path, "fedgat") == []
    if planted == "row":
        rows = pd.read_csv(table, dtype=str, keep_default_na=False)
        rows.loc[rows["verdict"].eq(rule.COMPATIBLE).idxmax(), "verdict"] = rule.DIFFERS
        rows.to_csv(table, index=False)
    else:
        old, new = {"cause": (readings.NO_CAUSE, "a guess"), "placebo": (r"noise (alone|by itself)", "nothing")}[
            planted
        ]
        page.write_text(re.sub(old, new, page.read_text(encoding="utf-8")), encoding="utf-8")
    assert lacking(tmp_path, "fedgat") != []


@pytest.fixture(scope="module")
def stored() -> list[dict[str, Any]]:
    """The committed records behind FG-T1."""
    store = Store(paths.root() / "data" / "results")
    records = (store.get(run.key) for run in exhibits.find("FG-T1").runs("paper"))
    return [record for record in records if record is not None]


class Drawn(NamedTuple):
    page: str
    leads: pd.DataFrame
    runs: pd.DataFrame


@pytest.fixture
def draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Drawn]:
    """Return a function that stores records and draws FG-T1 from them, with the page above the papers."""

    def drawn(name: str, records: list[dict[str, Any]]) -> Drawn:
        for variable, folder in (("FEDREPRO_STORE", "results"), ("FEDREPRO_FIGURES", "figures")):
            monkeypatch.setenv(variable, str(tmp_path / name / folder))
        notebook = session.begin("fedgat/6-experiments", profile="paper", device="cpu")
        notebook.store.append(notebook.file, *records)
        table, leads = notebook.main_table("FG-T1")
        notebook.save("FG-T1", table)
        report.write(only=["fedgat"])
        page = (tmp_path / name / "figures" / "README.md").read_text(encoding="utf-8")
        return Drawn(page, leads, session.main_runs(notebook, "FG-T1")[0])

    return drawn


def spoiled(value: Any, name: str = "") -> Any:
    """Return a result whose scores on test nodes are 30 points lower."""
    if isinstance(value, dict):
        return {key: spoiled(part, key) for key, part in value.items()}
    return value - 0.3 if isinstance(value, float) and name.startswith("test") else value


def test_the_page_changes_with_one_record(stored: list[dict[str, Any]], draw: Callable[..., Drawn]) -> None:
    """One record of FedGAT is 30 points lower, and the text above the papers is another; a copy gives the same text."""
    before, again = draw("before", stored), draw("again", stored)
    assert before.page == again.page and "24 could be tested" in before.page
    key = before.runs.query("method == 'FedGAT' and seed == 3 and dataset == 'Cora'")["key"].iloc[0]
    moved = [record | ({"result": spoiled(record["result"])} if record["key"] == key else {}) for record in stored]
    assert draw("after", moved).page != before.page


def test_shuffled_records_flip_the_leads(stored: list[dict[str, Any]], draw: Callable[..., Drawn]) -> None:
    """Negative control: where FedGAT and DistGAT exchange their records, FedGAT's leads over it change their sign."""
    right = draw("right", stored)
    pairs = right.runs.pivot(index=["dataset", "partition", "seed"], columns="method", values="key")
    pairs = pairs[["FedGAT", "DistGAT"]].dropna()
    other = dict(zip(pairs["FedGAT"], pairs["DistGAT"])) | dict(zip(pairs["DistGAT"], pairs["FedGAT"]))
    results = {record["key"]: record["result"] for record in stored}
    wrong = draw("wrong", [r | {"result": results[other.get(r["key"], r["key"])]} for r in stored])
    over = [one.leads[one.leads["over"].eq("DistGAT")] for one in (right, wrong)]
    assert len(pairs) == 60 and len(over[1]) == 6
    assert (over[0]["our_lead"] > 0).all() and (over[1]["our_lead"] < 0).all()
    differ = [int(leads["verdict"].eq(rule.DIFFERS).sum()) for leads in over]
    assert differ[0] <= 2 and differ[1] >= 5
    assert effects.summary(over[1])["same_sign"] == 0 < effects.summary(over[0])["same_sign"]


def test_causes_are_told_of_distinct_numbers_only() -> None:
    """A number that two tables repeat is counted once among those that differ."""
    cells = answer.cells(FIGURES, "fedstruct")
    differing, _ = answer.differing(FIGURES, "fedstruct", cells)
    rows = sum(
        len(files.read(FIGURES / "fedstruct" / f"{name}-causes.csv")) for name in exhibits.study("fedstruct").tables
    )
    assert len(differing) < rows
    assert not differing.duplicated(["dataset", "method", "clients", "partition", "published"]).any()


@pytest.mark.parametrize("paper", PAPERS)
def test_numbers_without_another_reading_are_counted_apart(paper: str) -> None:
    """A number on which no reading was run counts apart; an explained one tells when its reading was fixed."""
    differing, _ = answer.differing(FIGURES, paper, answer.cells(FIGURES, paper))
    known = answer.numbers(FIGURES, paper)
    assert known["unread"] == int(differing["readings run"].eq("none").sum())
    assert sum(known["causes"].values()) + known["unread"] == len(differing)
    explained = differing[differing["cause"].ne(readings.NO_CAUSE)]
    assert explained["fixed"].isin(["before", "after"]).all() and explained["readings run"].ne("none").all()
