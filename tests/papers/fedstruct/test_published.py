"""FedStruct's numbers: two parses of the paper agree, and so does the paper where it prints a number twice."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import pandas as pd
import pytest

from fedrepro.reporting import exhibits

CELL = ("exhibit", "dataset", "method", "clients", "partition", "setting", "metric")
COLUMNS = (*CELL, "value", "spread", "spread_kind", "line")
SECOND = Path(__file__).with_name("second.csv")
# The digest of the sorted rows. A change of any printed digit, setting or line changes it.
DIGEST = "73255723858fe9fc2b7a94a7a4423952c13b390d09416b2f221feb6319e0191f"
ACCURACY, GAP = "test accuracy (percent)", "gap (points)"
RESULTS = {"FS-T2": 168, "FS-T6": 324, "FS-T7": 120, "FS-T8": 114}
RESULTS |= {"FS-F1": 15, "FS-F4c": 1, "FS-F4d": 16, "FS-F6": 18, "FS-X1": 28}
OTHERS = {"FS-T1": 6, "FS-T2": 6, "FS-T4": 30, "FS-T5": 60, "FS-T9": 9, "FS-A3": 3, "FS-A5": 2, "FS-I5": 3}


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return sorted([row[column].strip() for column in COLUMNS] for row in csv.DictReader(file))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return exhibits.published("fedstruct")


def cells(frame: pd.DataFrame, exhibit: str) -> dict[tuple[str, ...], tuple[str, str]]:
    """(dataset, method, clients, partition) -> what is printed, of one table."""
    chosen = frame[(frame["exhibit"] == exhibit) & (frame["metric"] == ACCURACY)]
    keys = chosen[["dataset", "method", "clients", "partition"]].itertuples(index=False, name=None)
    return dict(zip(keys, zip(chosen["value"], chosen["spread"], strict=True), strict=True))


def shared(frame: pd.DataFrame, one: str, two: str) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    a, b = cells(frame, one), cells(frame, two)
    return [(a[key], b[key]) for key in a if key in b]


def test_numbers_are_the_transcribed_ones() -> None:
    """The numbers carry the digest on which two parses agreed."""
    text = "\n".join("|".join(row) for row in rows(exhibits.folder("fedstruct") / "published.csv"))
    assert hashlib.sha256(text.encode()).hexdigest() == DIGEST


def test_second_parse_agrees() -> None:
    """A parse line by line and one of the stream of numbers give the same rows."""
    assert rows(SECOND) == rows(exhibits.folder("fedstruct") / "published.csv")


def test_cells_are_counted(frame: pd.DataFrame) -> None:
    """804 results, 119 other numbers, formulas and settings, and the 25 marks of Table 3 that the text lost."""
    result = frame["metric"].isin([ACCURACY, GAP])
    lost = frame["value"] == ""
    assert frame[result & ~lost]["exhibit"].value_counts().to_dict() == RESULTS
    assert frame[~result & ~lost]["exhibit"].value_counts().to_dict() == OTHERS
    assert frame[lost]["exhibit"].value_counts().to_dict() == {"FS-T3": 25}
    assert (sum(RESULTS.values()), sum(OTHERS.values())) == (804, 119)
    assert frame.loc[result, "value_number"].notna().all()


def test_no_cell_is_printed_twice_in_a_table(frame: pd.DataFrame) -> None:
    """Within a table a data set, method, number of clients and partition name one number."""
    for exhibit in ("FS-T2", "FS-T6", "FS-T7", "FS-T8"):
        chosen = frame[(frame["exhibit"] == exhibit) & (frame["metric"] == ACCURACY)]
        assert not chosen.duplicated(["dataset", "method", "clients", "partition"]).any()
        assert (chosen["spread"] != "").all()


def test_tables_share_their_cells(frame: pd.DataFrame) -> None:
    """The random column of FS-T6 is the 10-client column of FS-T2, and FS-T7 repeats 84 cells of FS-T6."""
    for one, two, count in (("FS-T2", "FS-T6", 60), ("FS-T7", "FS-T6", 84)):
        both = shared(frame, one, two)
        assert len(both) == count
        assert all(a == b for a, b in both)


def test_bars_are_rounded_cells(frame: pd.DataFrame) -> None:
    """The bars of FS-F1 and FS-F4d lie within half a point of the cells of FS-T6, as rounded numbers do."""
    table = frame[frame["exhibit"] == "FS-T6"].set_index(["dataset", "method", "partition"])["value_number"]
    bars = frame[frame["exhibit"].isin(["FS-F1", "FS-F4d"])]
    assert set(bars["exhibit"]) == {"FS-F1", "FS-F4d"}
    for row in bars.to_dict("records"):
        part = row["partition"] or ("single" if row["method"] == "Central GNN" else "random")
        assert abs(row["value_number"] - table[row["dataset"], row["method"], part]) <= 0.5


def test_the_one_bar_that_disagrees(frame: pd.DataFrame) -> None:
    """At 10% labels FS-F6 agrees with FS-T8's K-means column but for (GNN, N2V): 93 against 91.59 (FS-Q1)."""
    table = frame[frame["exhibit"] == "FS-T8"].set_index(["dataset", "method", "partition"])["value_number"]
    apart = {}
    for row in frame[(frame["exhibit"] == "FS-F6") & (frame["setting"] == "10% labelled")].to_dict("records"):
        if (key := ("Photo", row["method"], "kmeans")) in table:
            apart[row["method"]] = row["value_number"] - table[key]
    assert len(apart) == 4
    assert {name for name, gap in apart.items() if abs(gap) > 0.5} == {"FedStruct (GNN+N2V)"}


def test_the_doubtful_spread_is_kept_as_printed(frame: pd.DataFrame) -> None:
    """Central MLP on Cora has the spread 0.019 in FS-T6 and FS-T7 (FS-Q3)."""
    chosen = frame[(frame["dataset"] == "Cora") & (frame["method"] == "Central MLP")]
    assert chosen[["value", "spread"]].values.tolist() == [["65.47", "0.019"]] * 2


def test_every_number_belongs_to_an_exhibit(frame: pd.DataFrame) -> None:
    """The numbers name exhibits of the list."""
    assert set(frame["exhibit"]) <= {row["id"] for row in exhibits.listed("fedstruct")}
