"""The papers' numbers and the list of their exhibits."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import pytest

from fedrepro.errors import ArgumentError
from fedrepro.reporting import exhibits

COLUMNS = [
    "exhibit",
    "dataset",
    "method",
    "clients",
    "partition",
    "setting",
    "metric",
    "value",
    "spread",
    "spread_kind",
    "line",
]
SECOND = Path(__file__).with_name("second.csv")
# The checksum is that of the sorted rows; a change of any printed digit, setting or line changes it.
FEDGAT_DIGEST = "4a611bb2576a0b61d69453e3d3316f67ecd6185a115f675b9fa6e2759ff5f1a3"


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return sorted([row[column].strip() for column in COLUMNS] for row in csv.DictReader(file))


def digest(path: Path) -> str:
    return hashlib.sha256("\n".join("|".join(row) for row in rows(path)).encode()).hexdigest()


def test_fedgat_numbers_are_the_transcribed_ones() -> None:
    """FedGAT's numbers carry the digest on which two transcriptions agreed."""
    assert digest(exhibits.folder("fedgat") / "published.csv") == FEDGAT_DIGEST


def test_second_transcription_agrees() -> None:
    """The second transcription of FedGAT has the same rows."""
    assert rows(SECOND) == rows(exhibits.folder("fedgat") / "published.csv")


def test_fedgat_cells_are_counted() -> None:
    """FedGAT prints 24 numbers in Table 1, 21 in Table 2 and one in the text."""
    frame = exhibits.published("fedgat")
    assert frame["exhibit"].value_counts().to_dict() == {"FG-T1": 24, "FG-T2": 21, "FG-X1": 1}
    table = frame[frame["exhibit"] == "FG-T1"]
    assert table.groupby(["dataset", "method", "setting"]).size().eq(1).all()
    assert (table["spread"] == "").sum() == (table["spread_kind"] == "peak").sum() == 6


def test_load_keeps_what_is_printed_beside_numbers() -> None:
    """The text `0.80 ± 0.005` keeps its last zero, and there is a number next to it."""
    frame = exhibits.published("fedgat")
    cell = frame[(frame["dataset"] == "Cora") & (frame["method"] == "FedGAT") & (frame["setting"] == "non-iid")].iloc[0]
    assert (cell["value"], cell["spread"], cell["line"]) == ("0.80", "0.005", "293")
    assert (cell["value_number"], cell["spread_number"]) == (0.8, 0.005)
    assert frame["value_number"].notna().all()
    assert frame.loc[frame["spread"] == "", "spread_number"].isna().all()


def test_load_names_the_papers_it_has() -> None:
    """An unknown paper is an error that names the nearest one."""
    with pytest.raises(ArgumentError, match="Did you mean 'fedgat'"):
        exhibits.published("fedgatt")


def test_exhibits_are_all_there() -> None:
    """The five papers have 39, 40, 29, 23 and 34 exhibits, 165 in all, each under a separate ID."""
    rows = {p: [row for row in exhibits.listed(p) if row["kind"] != exhibits.OURS] for p in exhibits.papers()}
    counts = {paper: len(listed) for paper, listed in rows.items()}
    assert counts == {"fedgat": 39, "fedstruct": 40, "gfl": 29, "feras": 23, "fedsheafhn": 34}
    everything = [row for listed in rows.values() for row in listed]
    assert len({row["id"] for row in everything}) == 165
    assert all(value for row in everything for value in row.values())


def test_exhibit_ids_belong_to_their_paper() -> None:
    """An ID's first letters name its paper, and those that follow its kind."""
    prefix = {"FG": "fedgat", "FS": "fedstruct", "GFL": "gfl", "FR": "feras", "SH": "fedsheafhn"}
    kinds = {
        "T": {"table"},
        "F": {"figure", "diagram"},
        "A": {"algorithm"},
        "P": {"procedure"},
        "X": {"claim"},
    }
    kinds |= {"Th": {"theorem"}, "L": {"theorem"}, "C": {"theorem"}, "I": {"identity"}}
    rows = [(name, row) for name in exhibits.papers() for row in exhibits.listed(name)]
    for folder, row in rows:
        if row["kind"] == exhibits.OURS:
            continue
        paper, rest = row["id"].split("-")
        assert prefix[paper] == folder
        assert row["kind"] in kinds["Th" if rest.startswith("Th") else rest[0]]


def test_every_number_belongs_to_an_exhibit() -> None:
    """Published numbers name exhibits of the list."""
    assert set(exhibits.published("fedgat")["exhibit"]) <= {row["id"] for row in exhibits.listed("fedgat")}
