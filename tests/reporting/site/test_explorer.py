"""The explorer's rows against the files that they are made from, and its colours for colour-blind readers."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pytest
from sight import GROUNDS, SIGHT, closest, contrast

from fedrepro.reporting import exhibits, files
from fedrepro.reporting.site import explorer


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", [0, 1])
def test_words_can_be_told_apart(sight: str, theme: int) -> None:
    """The colours of the words stay 20 apart in CIELAB for every kind of sight; 2 is a difference just seen."""
    assert closest([look[theme] for look in explorer.LOOKS.values()], SIGHT[sight]) > 20


def test_the_simulation_finds_red_and_green() -> None:
    """A red and a green that full sight separates well are close for two kinds of colour blindness."""
    pair = ["#B00000", "#5A6A00"]
    assert closest(pair, SIGHT["full"]) > 60
    assert closest(pair, SIGHT["deuteranopia"]) < 20 or closest(pair, SIGHT["protanopia"]) < 20


def test_words_stand_out_from_the_page() -> None:
    """Marks have a contrast of at least 3 to the page in both themes, and every word has a separate mark."""
    for theme, ground in enumerate(GROUNDS):
        assert min(contrast(look[theme], ground) for look in explorer.LOOKS.values()) >= 3
    assert len({look[2] for look in explorer.LOOKS.values()}) == len(explorer.LOOKS)
    assert contrast("#DDDD00", GROUNDS[0]) < 3


def compared(**changes: object) -> pd.DataFrame:
    """One row of a table that compares FG-T1's first printed number with ours."""
    row = {
        "exhibit": "FG-T1", "dataset": "Cora", "method": "GCN", "clients": 1, "partition": "single",
        "setting": "central", "metric": "test accuracy", "published": "0.805", "published_mean": 0.805,
        "ours_mean": 0.8124, "runs": 10, "difference": 0.74, "half90": 0.3, "verdict": "agrees", "why": "",
    }  # fmt: skip
    return pd.DataFrame([row | changes])


def found(folder: Path, table: str) -> dict[str, str]:
    rows = [row for row in explorer.rows(folder) if row["table"] == table]
    assert rows
    return rows[0]


def test_every_printed_number_is_listed(tmp_path: Path) -> None:
    """Without any table of ours each printed number still has one row, without a number of ours."""
    printed = 0
    for paper in exhibits.papers():
        with (exhibits.folder(paper) / "published.csv").open(encoding="utf-8", newline="") as content:
            printed += len(
                {tuple(row[name] for name in ("exhibit", *explorer.KEYS)) for row in csv.DictReader(content)}
            )
    rows = explorer.rows(tmp_path)
    assert len(rows) == printed
    assert {row["word"] for row in rows} == {"not tested"} and not any(row["ours"] for row in rows)


def test_a_compared_number_takes_the_place_of_the_printed_one(tmp_path: Path) -> None:
    """A row of a table that compares has its word, difference and interval, and replaces the bare one."""
    before = len(explorer.rows(tmp_path))
    files.save("fedgat", "FG-T1", compared(), folder=tmp_path)
    row = found(tmp_path, "FG-T1")
    assert len(explorer.rows(tmp_path)) == before
    assert [row[name] for name in ("printed", "ours", "word", "runs")] == ["0.805", "0.8124", "agrees", "10"]
    assert [row[name] for name in ("difference", "low", "high")] == ["0.74", "0.44", "1.04"]
    assert (row["x"], row["y"], row["reading"]) == ("80.5", "81.24", "main")
    assert row["page"] == "papers/fedgat.html" and "run fedgat/6-experiments" in row["command"]
    assert row["stored"] == "fedrepro show FG-T1 Cora 1 single GCN"


def test_a_table_of_a_reading_is_further_rows(tmp_path: Path) -> None:
    """A variant of a table is named by its reading, which a column may say in its own words."""
    files.save("fedgat", "FG-T1", compared(), folder=tmp_path)
    files.save("fedgat", "FG-T1-literal", compared(verdict="differs"), folder=tmp_path)
    files.save("fedgat", "FG-T1-more", compared(reading="code", provenance="equals numbers of X"), folder=tmp_path)
    assert found(tmp_path, "FG-T1-literal")["reading"] == "literal"
    told = found(tmp_path, "FG-T1-more")
    assert (told["reading"], told["provenance"]) == ("code", "equals numbers of X")


def test_fractions_of_the_former_tables_become_points(tmp_path: Path) -> None:
    """In a table without half-widths the difference is in the printed unit, and is shown in points."""
    table = compared(difference=0.0074).drop(columns="half90").assign(low=0.004, high=0.011)
    files.save("fedgat", "FG-T1", table, folder=tmp_path)
    row = found(tmp_path, "FG-T1")
    assert [row[name] for name in ("difference", "low", "high")] == ["0.74", "0.4", "1.1"]


def test_counts_stand_next_to_ours(tmp_path: Path) -> None:
    """A printed count is found in its exhibit's table by value, data set and name; a doubtful one is not."""
    table = pd.DataFrame({"dataset": "Cora", "metric": ["nodes"], "value": [2708], "ours": [2708], "runs": [1]})
    files.save("fedgat", "FG-T2", table, folder=tmp_path)
    row = found(tmp_path, "FG-T2")
    assert (row["printed"], row["ours"], row["difference"], row["word"]) == ("2708", "2708", "0", explorer.NONE)
    assert row["x"] == ""
    files.save("fedgat", "FG-T2", pd.concat([table, table]), folder=tmp_path)
    assert found(tmp_path, "FG-T2")["ours"] == ""


def test_words_that_are_new_get_a_look() -> None:
    """Each word has colours and a mark, in the order of the rule's words; aliases share those of their word."""
    looks = explorer.looks(["something new", "differs", "to the digit", "agrees"])
    assert list(looks)[-1] == "something new" and list(looks)[-2] == "differs"
    assert looks["to the digit"] == looks["agrees"] == explorer.LOOKS["agrees"]


def test_the_data_can_stand_in_a_page(tmp_path: Path) -> None:
    """The data is JSON that closes no script, and rows link to an exhibit only if the page has it."""
    files.save("fedgat", "FG-T1", compared(why="</script>"), folder=tmp_path)
    text = explorer.data(tmp_path, {"FG-T1"})
    assert "</" not in text
    data = json.loads(text)
    position = {name: number for number, name in enumerate(data["columns"])}
    row = next(row for row in data["rows"] if row[position["table"]] == "FG-T1")
    assert row[position["page"]] == "papers/fedgat.html#fg-t1" and row[position["why"]] == "</script>"
    assert set(data["looks"]) == {row[position["word"]] for row in data["rows"]}
