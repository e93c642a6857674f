"""Commands print what was compared, tables as CSV, the cost of `verify` and its end, and where `run` has drawn."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedrepro import cli, paths
from fedrepro.reporting import budget, cells, compare, exhibits, files, notebook, rule
from fedrepro.runs import provenance, verification

SCORES = [0.80, 0.82, 0.81, 0.80, 0.82]


@pytest.fixture
def drawn() -> pd.DataFrame:
    """Draw FG-T1 to its file with a published peak and a published mean, and return what the file holds."""
    printed = exhibits.published("fedgat").query("exhibit == 'FG-T1' and dataset == 'Cora'")
    rows = [
        {"method": name, "seed": seed, "score": score}
        for name in ("GCN", "FedGAT")
        for seed, score in enumerate(SCORES)
    ]
    table = compare.judge_table(
        pd.DataFrame(rows), printed[printed["method"].isin(["GCN", "FedGAT"])], ("method",), "score"
    )
    files.save("fedgat", "FG-T1", table)
    return table


def test_compare_shows_what_was_compared(drawn: pd.DataFrame) -> None:
    """In one unit, ours or what was held in its place minus published is the difference; the why is there."""
    table = cells.compared("FG-T1")
    assert list(table["ours"]) == pytest.approx([81.0] * len(table))
    held = table["compared"].fillna(table["ours"])
    published = table["published"].str.partition(" ")[0].astype(float)
    assert list(held - published) == pytest.approx(list(table["difference"]), abs=1e-3)
    peak = table["why"].str.contains("peak")
    assert peak.any() and not peak.all() and list(table["compared"].notna()) == list(peak)
    assert list(table["difference"]) == pytest.approx(list(drawn["difference"]), rel=1e-5)
    assert set(table["verdict"]) <= set(rule.WORDS)


def test_compare_names_tables_where_an_exhibit_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """An exhibit without printed numbers to compare with is refused with the tables that have them."""
    for paper, exhibit in (("fedgat", "FG-F2a"), ("across", "AX-1")):
        files.save(paper, exhibit, pd.DataFrame({"dataset": ["Cora"]}))
        assert cli.main(["compare", exhibit]) == 2
        assert "such as FG-T1, FS-T2, " in " ".join(capsys.readouterr().err.split())


def test_compare_explains_its_numbers(drawn: pd.DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    """`compare` says below the table why a word was found, the unit, and what half95 is; `--csv` is only the table."""
    assert cli.main(["compare", "FG-T1"]) == 0
    told = capsys.readouterr().out
    assert "why 1: the published number is a peak" in told and "in percent" in told and "half95 is half" in told
    assert cli.main(["compare", "FG-T1", "--csv"]) == 0
    read = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert len(read) == len(drawn) and {"compared", "why"} <= set(read)


@pytest.mark.parametrize(
    ("printed", "point", "percent"),
    [("0.80 ± 0.005", 0.01, "80 ± 0.5"), ("0.684", 0.01, "68.4"), ("68.40", 1.0, "68.40"), ("", 0.01, "")],
)
def test_printed_digits_are_kept(printed: str, point: float, percent: str) -> None:
    """A printed fraction in percent has the digits that were printed."""
    assert cells._percent(printed, point) == percent


def test_status_and_show_print_csv(capsys: pytest.CaptureFixture[str]) -> None:
    """`status` and `show` print their tables as CSV too; a single record is no table."""
    assert cli.main(["status", "FG-T1", "--csv"]) == 0
    (row,) = pd.read_csv(io.StringIO(capsys.readouterr().out)).to_dict("records")
    assert row["exhibit"] == "FG-T1" and row["missing"] + row["not_at_hand"] == row["wanted"]
    assert cli.main(["show", "FG-A1", "--csv"]) == 0
    keys = pd.read_csv(io.StringIO(capsys.readouterr().out))["key"]
    assert all(len(key) == 64 for key in keys)
    assert cli.main(["show", "abc", "--csv"]) == 2
    assert "--csv must be given with an exhibit" in capsys.readouterr().err


def test_status_says_what_is_not_at_hand(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs without their graph's files have a column, and a line below says what it means; else there is no line."""
    monkeypatch.setenv("COLUMNS", "200")  # so that no title takes a second line
    monkeypatch.setattr("fedrepro.data.sources.ASK_ABOVE", 0)  # megabytes: no graph is downloaded unasked
    for folder in (None, Path()):
        monkeypatch.setattr("fedrepro.data.sources.locate", lambda source, folder=folder: folder)
        assert cli.main(["status", "FG-T1", "FG-Th1"]) == 0
        head, first, second, *below = capsys.readouterr().out.splitlines()
        assert head.split()[4:10] == ["failed", "missing", "not", "at", "hand", "time"]
        wanted, missing, without = (int(first.split()[k]) for k in (2, 5, 6))
        assert (missing, without) == ((0, wanted) if folder is None else (wanted, 0))
        assert second.split()[5:7] == ["1", "0"], "a check of theory needs no graph"
        assert any(line.startswith("not at hand: ") for line in below) == (folder is None)


def test_the_field_of_a_score_is_found() -> None:
    """The field is the one that is the score in all runs of a method; where none is, none is named."""
    fields = {"before.best.test": [0.5, 0.7, 0.1, 0.2], "after.best.test": [0.5, 0.6, 0.3, 0.4]}
    frame = pd.DataFrame({"method": ["a", "a", "b", "b"], **fields, "percent": [50.0, 60.0, 30.0, 40.0]})
    assert cells._fields(frame, "percent") == ["100 * after.best.test"] * 4
    frame["percent"] = [50.0, 60.0, 30.0, 41.0]
    assert cells._fields(frame, "percent") == ["100 * after.best.test"] * 2 + [""] * 2


def test_show_marks_the_number_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each table that draws a record a sentence says its number and the field of the record."""
    key = next(iter(exhibits.registered()["FG-T1"].runs("quick"))).key
    frame = pd.DataFrame({"key": [key], "score": [0.8125], "field": ["after.best.test"]})
    monkeypatch.setattr(cells, "runs_behind", lambda exhibit_id: frame)
    value = exhibits.study("fedgat").tables["FG-T1"].value
    frame[value] = frame["score"]
    (told,) = cells.printed_as({"key": key})
    assert "FG-T1" in told and "0.8125, the field after.best.test of its result" in told
    assert cells.printed_as({"key": "0" * 64}) == []


def test_verify_says_its_cost_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is computed `verify` says how long the runs took, and what shortens it."""

    def verify(store: Any, n: int, *, before: Any, **more: Any) -> pd.DataFrame:
        before(2, 38 * 60.0)
        told = capsys.readouterr().err
        assert "2 runs" in told and "38.0 min" in told and "--budget" in told and "--cheapest" in told
        return pd.DataFrame({"key": ["a", "b"], "verdict": ["identical"] * 2, "error": [""] * 2})

    monkeypatch.setattr(verification, "verify", verify)
    assert cli.main(["verify", "-n", "2"]) == 0


def test_verify_without_graphs_compared_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify` says that nothing was compared and ends with status 1 if no graph can be had, and with 0 if one can."""
    error = "DataError: Cora is not here. https://example.org/a/long/address"
    rows = {"key": ["a", "b"], "verdict": ["unavailable"] * 2, "error": [error, error + "2"]}
    monkeypatch.setattr(verification, "verify", lambda store, n, **more: pd.DataFrame(rows))
    assert cli.main(["verify"]) == 1
    printed = capsys.readouterr()
    assert "Nothing was compared" in printed.err and f"error 2: {error}2" in printed.out
    rows["verdict"] = ["unavailable", "identical"]
    assert cli.main(["verify"]) == 0


def test_run_says_where_figures_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` names profile and figures, and says which committed ones others have replaced, and how to undo that."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.delenv("FEDREPRO_FIGURES", raising=False)
    for folder in (paths.figures(), paths.smoke() / "figures"):
        (folder / "fedgat").mkdir(parents=True)
    changed = b"figures/fedgat/FG-T1.csv\nfigures/fedgat/FG-T1.svg\n"
    monkeypatch.setattr(provenance, "git", lambda *words: changed if words[0] == "diff" else b"abc")
    ends = [notebook.Outcome("fedgat/6-experiments", 1.0)]
    assert budget.told(ends, {"seeds": 2}) == 0
    told = capsys.readouterr().out
    assert "with the profile quick" in told and f"The figures are in {tmp_path / 'figures/fedgat'}\n" in told
    assert "drawn with 2 seeds" in told and "2 files there differ" in told and "FG-T1.svg" in told
    assert "`git restore figures/fedgat`" in told
    changed = b""
    assert budget.told(ends, {"seeds": 2}) == 0 and "differ" not in capsys.readouterr().out
    monkeypatch.setattr(provenance, "git", lambda *words: b"")  # without git
    assert budget.told(ends, {"seeds": 2}) == 0 and "drawn with 2 seeds" in capsys.readouterr().out
    assert budget.told(ends, {"profile": "smoke", "seeds": 1}) == 0
    told = capsys.readouterr().out
    assert f"The figures are in {tmp_path / 'build/smoke/figures/fedgat'}\n" in told and "seed" not in told


def test_counts_of_graphs_have_no_seeds() -> None:
    """A number of seeds that is asked for changes nothing in FG-T2, a table of one row a graph."""
    exhibit = exhibits.registered()["FG-T2"]
    assert exhibit.runs("quick", 2) == exhibit.runs("quick")
