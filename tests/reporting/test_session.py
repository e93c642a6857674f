"""The cells of a notebook show a paper's settings, stored runs, claims and deviations."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from fedrepro.errors import ArgumentError
from fedrepro.reporting import exhibits, session
from fedrepro.reporting.claims import Claim
from fedrepro.reporting.exhibits import Exhibit, Grid
from fedrepro.reporting.session import Notebook, begin
from fedrepro.runs.run import Run, sweep

CLAIMS = [
    Claim(f"TO-C{n}", "High.", "The mean.", finding=lambda get: (str(len(get("TO-T1"))), "holds")) for n in (1, 2)
]
DEVIATIONS = pd.DataFrame(
    [[f"TO-Q{n}", "This.", "That.", "Why."] for n in (1, 2)], columns=["id", "what the paper says", "what we do", "why"]
)


def paper() -> list[Run]:
    """Return three seeds of FedAvg with 10 and 20 clients, and one run of DistGAT with an option more."""
    common: dict[str, Any] = {"task": "train", "paper": "toy", "dataset": "Cora", "split": "public"}
    return [
        *sweep(**common, method="FedAvg", clients=[10, 20], seed=range(3), options={"lr": 0.1}),
        *sweep(**common, method="DistGAT", clients=10, options={"lr": 0.1, "heads": 8}),
    ]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[Run]]:
    """Put one toy exhibit in place of the papers'; return the lists of runs that the engine is asked for."""
    calls: list[list[Run]] = []

    def execute(runs: list[Run], *, budget: float | None, **_: object) -> pd.DataFrame:
        calls.append(runs)
        frame = pd.DataFrame({"method": [one.method for one in runs], "test": 0.5})
        frame.attrs = {"failed": [], "unavailable": []}
        return frame

    exhibit = Exhibit("TO-T1", "toy", "Table 1", "table", "toy/1-toy", "Accuracy")
    module = SimpleNamespace(
        GRIDS={"TO-T1": Grid(paper)},
        CLAIMS=CLAIMS,
        prepare=lambda frame, id_: frame.assign(percent=100 * frame["test"], id=id_),
    )
    monkeypatch.setattr("fedrepro.runs.execute.execute", execute)
    monkeypatch.setattr(exhibits, "find", lambda _: exhibit)
    monkeypatch.setattr(exhibits, "paper_module", lambda _: module)
    monkeypatch.setattr(exhibits, "deviations", lambda _: DEVIATIONS)
    return calls


def notebook(profile: str = "quick", seeds: int = 0) -> Notebook:
    return begin("toy/1-toy", profile=profile, device="cpu", seeds=seeds, engine="local")


def test_settings_have_one_row_a_method(asked: list[list[Run]]) -> None:
    """Values that differ are listed, seeds and runs are counted, and nothing is computed."""
    table = notebook().settings("TO-T1").set_index("method")
    row = table.loc["FedAvg", ["dataset", "split", "clients", "lr", "heads", "seeds", "runs"]].tolist()
    assert row == ["Cora", "public", "10, 20", "0.1", "", 3, 6]
    assert table.loc["DistGAT", ["clients", "heads", "seeds", "runs"]].tolist() == ["10", "8", 1, 1]
    assert asked == []


def test_settings_leave_out_what_no_run_has(asked: list[list[Run]]) -> None:
    """A field that is empty in all runs has no column."""
    assert not {"prepare", "partition"} & set(notebook().settings("TO-T1"))


def test_settings_are_those_of_the_paper(asked: list[list[Run]]) -> None:
    """Neither the profile nor the seeds of a notebook change what the paper trains."""
    pd.testing.assert_frame_equal(notebook("smoke", 7).settings("TO-T1"), notebook().settings("TO-T1"))


def test_stored_shows_all_runs_of_the_paper(asked: list[list[Run]]) -> None:
    """The profile `quick` shows every stored run, whatever its seeds, under the paper's names."""
    frame = notebook("quick", 1).stored("TO-T1")
    assert asked == [paper()] and set(frame["id"]) == {"TO-T1"} and set(frame["percent"]) == {50.0}


def test_stored_in_smoke_shows_the_small_runs(asked: list[list[Run]]) -> None:
    """The profile `smoke` shows its throw-away runs, with its seeds."""
    notebook("smoke", 2).stored("TO-T1")
    assert asked == [Grid(paper).runs("smoke", 2)]


def test_stored_is_read_again_after_runs(asked: list[list[Run]]) -> None:
    """Two cells share one reading of the store, and a cell that computes makes the next one read it anew."""
    nb = notebook()
    assert nb.stored("TO-T1") is nb.stored("TO-T1") and len(asked) == 1
    nb.execute("TO-T1")
    nb.stored("TO-T1")
    assert asked == [paper(), Grid(paper).runs("quick"), paper()]


def test_stored_runs_are_returned_as_they_are(asked: list[list[Run]]) -> None:
    """Runs given in place of an ID keep the registered names."""
    assert "percent" not in notebook().stored(paper()[:2]) and asked == [paper()[:2]]


def test_claims_are_judged_and_written(asked: list[list[Run]]) -> None:
    """The claims asked for are judged on the stored runs, returned and written."""
    nb = notebook()
    table = nb.claims("TO-C2")
    assert table[["id", "paper", "evidence", "verdict"]].to_numpy().tolist() == [["TO-C2", "toy", "7", "holds"]]
    assert pd.read_csv(nb.figures / "toy" / "claims.csv")["id"].tolist() == ["TO-C2"]


def test_an_unknown_claim_is_an_error(asked: list[list[Run]]) -> None:
    """A misspelled claim is named and nothing is written."""
    nb = notebook()
    with pytest.raises(ArgumentError, match="TO-C3"):
        nb.claims("TO-C1", "TO-C3")
    assert not (nb.figures / "toy" / "claims.csv").exists()


@pytest.mark.parametrize(("ids", "rows"), [((), ["TO-Q1", "TO-Q2"]), (("TO-Q2",), ["TO-Q2"])])
def test_deviations_are_all_or_those_asked_for(asked: list[list[Run]], ids: tuple[str, ...], rows: list[str]) -> None:
    """Without IDs a notebook shows and writes all deviations."""
    nb = notebook()
    assert nb.deviations(*ids)["id"].tolist() == rows
    assert pd.read_csv(nb.figures / "toy" / "deviations.csv")["id"].tolist() == rows


def test_an_unknown_deviation_is_an_error(asked: list[list[Run]]) -> None:
    """A misspelled deviation is named."""
    with pytest.raises(ArgumentError, match="TO-Q3"):
        notebook().deviations("TO-Q3")


def test_own_runs_are_no_part_of_the_suites_counts(asked: list[list[Run]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that a notebook below `mine/` computes are not counted among those of the suite."""
    monkeypatch.setattr(session, "executed", set())
    begin("mine/2-your-graph", device="cpu").execute(paper())
    assert asked == [paper()] and session.executed == set()
    notebook().execute(paper())
    assert session.executed == {run.key for run in paper()}


def test_a_wide_frame_is_plain_text_with_all_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook's kernel no column of a printed frame is left out, such as that of the verdicts."""
    from IPython.core.formatters import DisplayFormatter

    wide = pd.DataFrame([[name * 9 for name in "abcdefghijklmnopqrstuvwxyz"]], columns=[*"abcdefghijklmnopqrstuvwxyz"])
    shell = SimpleNamespace(
        config=SimpleNamespace(InlineBackend=SimpleNamespace()), display_formatter=DisplayFormatter()
    )
    with pd.option_context("display.max_columns", 20, "display.width", 80):
        assert "..." in repr(wide)
        monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: shell)
        session.begin("fedgat/6-x", profile="quick", device="cpu")
        assert "..." not in repr(wide) and "mmmmmmmmm" in repr(wide)
