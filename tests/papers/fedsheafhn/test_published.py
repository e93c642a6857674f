"""FedSheafHN's numbers: two programs of different make read the same from the paper, and they agree with themselves."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from fedrepro.reporting import exhibits

SECOND = Path(__file__).with_name("second.csv")
RESULTS = {"SH-T1": 130, "SH-T2": 130, "SH-T3": 8, "SH-T4": 12, "SH-T5": 8, "SH-T6": 14, "SH-F1b": 2, "SH-X1": 5}
BLANK = ("OOM", "N/A")


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return exhibits.published("fedsheafhn")


def test_second_transcription_agrees() -> None:
    """A reading by character offsets and one by lines give the same cells, digits, settings and lines."""

    def rows(path: Path) -> list[tuple[str, ...]]:
        with path.open(encoding="utf-8", newline="") as file:
            return sorted(tuple(row.values())[:11] for row in csv.DictReader(file))  # without provenance and evidence

    first = rows(exhibits.folder("fedsheafhn") / "published.csv")
    assert first == rows(SECOND)
    assert len(set(first)) == len(first)


def test_numbers_are_counted(frame: pd.DataFrame) -> None:
    """There are 309 results in eight exhibits, 172 other numbers, ranges and settings, 4 cells OOM and 12 N/A."""
    printed = frame[~frame.value.isin(BLANK)]
    counts = printed.exhibit.value_counts().to_dict()
    assert {name: counts[name] for name in RESULTS} == RESULTS and sum(RESULTS.values()) == 309
    assert len(printed) - 309 == 172 and counts["SH-T7"] == counts["SH-T8"] == 72
    assert frame.value.value_counts()[list(BLANK)].tolist() == [4, 12]
    assert set(frame.exhibit) <= {row["id"] for row in exhibits.listed("fedsheafhn")}


def test_every_cell_is_there_once(frame: pd.DataFrame) -> None:
    """Eleven methods, six data sets and two numbers of clients a table; a spread wherever there is a value."""
    for exhibit, clients in (("SH-T1", {"10", "20"}), ("SH-T2", {"30", "50"})):
        table = frame[frame.exhibit == exhibit]
        cells = table.groupby(["dataset", "method", "clients"]).size()
        assert len(cells) == 132 and cells.eq(1).all() and set(table.clients) == clients
        assert ((table.value == "OOM") == (table.spread == "")).all()
        assert set(table.spread_kind) == {"sd", ""} and table.value_number.dropna().between(40, 95).all()


def test_the_best_cells_are_where_the_paper_says(frame: pd.DataFrame) -> None:
    """FedSheafHN has the highest number in all columns of Table 1 and in ten of Table 2: all but PubMed's (SH-Q2)."""
    best = {}
    for exhibit in ("SH-T1", "SH-T2"):
        table = frame[frame.exhibit == exhibit].dropna(subset=["value_number"])
        highest = table.loc[table.groupby(["dataset", "clients"]).value_number.idxmax()]
        best[exhibit] = highest[highest.method != "FedSheafHN"][["dataset", "method"]].values.tolist()
    assert best == {"SH-T1": [], "SH-T2": [["PubMed", "FED-PUB"]] * 2}


def test_statistics_agree_with_each_other(frame: pd.DataFrame) -> None:
    """A client's mean number of nodes is the graph's over the clients, or half a METIS part; both tables start from
    the same graphs.
    """
    table = frame[frame.metric == "nodes"].set_index(["exhibit", "dataset", "clients"]).value_number
    for exhibit, clients in (("SH-T7", (10, 20)), ("SH-T8", (30, 50))):
        for dataset in table[exhibit].index.unique("dataset"):
            whole = table[exhibit, dataset, ""]
            for count in clients:
                share = 1 / count if exhibit == "SH-T7" else 0.5 / (count / 5)
                assert table[exhibit, dataset, str(count)] == pytest.approx(whole * share, abs=0.75)
    original = frame[frame.setting == "original"]
    seven, eight = (original[original.exhibit == exhibit].value.tolist() for exhibit in ("SH-T7", "SH-T8"))
    assert seven == eight


def test_one_experiment_has_several_numbers(frame: pd.DataFrame) -> None:
    """FedSheafHN on ogbn-arxiv, 20 clients, is printed as 71.75, 71.87, 71.88 (SH-Q1), FedAvg as 42.02 and 36.56."""
    cell = frame[(frame.dataset == "ogbn-arxiv") & (frame.clients == "20") & (frame.line.astype(int) > 29)]
    ours = cell[cell.method.isin(["FedSheafHN", "+ Dynamic embedding", "w/ Sheaf diffusion"])]
    percent = ours[ours.metric.str.contains("accuracy") & ~ours.setting.str.startswith("without")]
    assert sorted(set(percent.value)) == ["71.75", "71.87", "71.88"]
    base = cell[cell.method.isin(["FedAvg", "Base model (FedAvg)"]) & cell.metric.str.contains("accuracy")]
    assert sorted(base.value) == ["36.56", "42.02"]
