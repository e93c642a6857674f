"""Feras's published numbers: two readings of the text agree, and the counts are the listed ones."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fedrepro.data.shapes import SHAPES
from fedrepro.reporting import exhibits

SECOND = Path(__file__).with_name("second.csv")


def test_second_reading_agrees() -> None:
    """Tables 1 and 2 as a second program reads them, from the text's other notation, are those of the file."""
    with SECOND.open(encoding="utf-8", newline="") as file:
        second = sorted(tuple(row.values()) for row in csv.DictReader(file))
    frame = exhibits.published("feras")
    tables = frame[frame.exhibit.isin(["FR-T1", "FR-T2"])]
    kappa = tables.setting.str.extract(r"kappa=(\d+)%")[0].fillna("")
    names = ["exhibit", "dataset", "method", "clients", "kappa", "metric", "value", "spread", "line"]
    assert sorted(tables.assign(kappa=kappa)[names].itertuples(index=False, name=None)) == second


def test_numbers_are_counted() -> None:
    """44 results and 4 empty cells (Reddit with five hosts), 24 numbers of the data sets, 13 settings."""
    frame = exhibits.published("feras")
    counts = {"FR-T1": 24, "FR-T2": 48, "FR-A2": 5, "FR-P1": 2, "FR-F3a": 2, "FR-F3b": 2, "FR-F5": 2}
    assert frame.exhibit.value_counts().to_dict() == counts
    assert set(frame.exhibit) <= set({row["id"] for row in exhibits.listed("feras")})
    table = frame[frame.exhibit == "FR-T2"]
    empty = table[table.value == ""]
    assert len(empty) == 4 and set(empty.dataset) == {"Reddit"} and set(empty.clients) == {"5"}
    assert empty.value_number.isna().all() and (empty.spread == "").all()
    full = table[table.value != ""]
    assert full.value_number.between(0.4, 1).all() and full.spread_number.between(0.001, 0.01).all()
    assert table.groupby(["dataset", "method", "clients", "partition"]).size().eq(1).all()
    assert table.groupby(["partition", "method", "clients"]).dataset.nunique().eq(3).all()


def test_settings_and_partitions_name_the_same_kappa() -> None:
    """The partition's argument is the setting's percentage."""
    frame = exhibits.published("feras")
    both = frame[frame.setting.str.startswith("kappa=")]
    percent = both.setting.str.extract(r"kappa=(\d+)%")[0].astype(float)
    share = both.partition.str.extract(r"kappa=([\d.]+)\)")[0].astype(float)
    assert len(both) == 48 + 4
    assert (percent - 100 * share).abs().max() < 1e-9


@pytest.mark.parametrize("name", ["PPI", "Flickr", "Reddit"])
def test_table_1_is_consistent(name: str) -> None:
    """Shares of the split sum to one; the printed degree is edges over nodes; stand-ins have these sizes."""
    frame = exhibits.published("feras")
    row = frame[(frame.exhibit == "FR-T1") & (frame.dataset == name)].set_index("metric").value_number
    assert row[["train", "validation", "test"]].sum() == pytest.approx(1)
    assert row["degree"] == pytest.approx(row["edges"] / row["nodes"], abs=0.5)
    shape = SHAPES[name]
    assert (shape.nodes, shape.features) == (row["nodes"], row["features"])
    assert (shape.labels or len(shape.classes)) == row["classes"]
    assert row["edges"] in (shape.pairs, shape.edges)
