"""A run that is no better than a constant prediction says so, in the frame, in a notebook and in `fedrepro show`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import fedrepro as fr
from fedrepro import cli
from fedrepro.data import datasets
from fedrepro.runs import records
from fedrepro.runs.run import sweep
from fedrepro.runs.store import Store

SHARE = "the share of the most frequent class"


def unequal() -> Data:
    """Return a ring of 200 nodes, of which the first class has 80%, whose features tell nothing of it."""
    generator = torch.Generator().manual_seed(0)
    ring = torch.arange(200)
    edges = torch.stack([ring, (ring + 1) % 200])
    y = (torch.randperm(200, generator=generator) < 40).long()
    return Data(x=torch.rand(200, 4, generator=generator), y=y, edge_index=torch.cat([edges, edges.flip(0)], 1))


def test_a_frame_without_runs_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning names the runs and says that the frame has no column of scores if all fail, and only then."""
    datasets.register("unequal", unequal)
    same = {"task": "train", "paper": "mine", "dataset": "unequal", "split": "20/40/40", "partition": "metis"}
    runs = sweep(**same, method=["FedAvg", "Local"], clients=500, seed=range(2), options={"rounds": 1})
    with pytest.warns(UserWarning) as said:
        frame = fr.execute(runs, progress=False, workers=1)
    assert frame.empty and "before.best.test" not in frame
    told = str(said[-1].message)
    assert "no column of scores" in told and "FedAvg on unequal, Local on unequal" in told
    with pytest.warns(UserWarning) as said:
        assert len(fr.execute([*runs, runs[0].replace(clients=2)], progress=False, workers=1)) == 1
    assert not any("no column of scores" in str(one.message) for one in said)


def test_one_predicted_class_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """FedAvg predicts one class; the last column, a printed line and `show` say that its accuracy is that share."""
    monkeypatch.setenv("FEDREPRO_STORE", str(tmp_path))
    datasets.register("unequal", unequal)
    same = {"task": "train", "paper": "mine", "dataset": "unequal", "split": "20/40/40", "partition": "metis"}
    runs = sweep(**same, method="FedAvg", clients=2, options={"rounds": 10, "hidden": 4, "lr": 0.01})
    frame = fr.execute(runs, progress=False)
    (run,) = frame.to_dict("records")
    assert run["before.best.test_classes"] == 1 and run["before.best.test"] == run["majority.test"] > 0.7
    assert list(frame)[-1] == "note" and run["note"].startswith("before local training one class is predicted")
    assert f"the test accuracy {run['majority.test']:.3f} is {SHARE}" in run["note"]
    fr.begin(device="cpu").execute(runs)
    assert "1 run is no better than a constant prediction" in (line := capsys.readouterr().out)
    assert "FedAvg on unequal (1)" in line
    assert cli.main(["show", run["key"][:12]]) == 0
    assert f"# {run['note']}" in capsys.readouterr().out


def test_a_run_that_learns_has_no_note(tmp_path: Path) -> None:
    """A frame has no column `note` if its run tells classes apart."""
    same = {"task": "train", "paper": "mine", "dataset": "Cora~standin", "split": "20/40/40", "partition": "metis"}
    runs = sweep(**same, method="FedAvg", clients=2, options={"rounds": 8, "hidden": 8, "lr": 0.05})
    assert "note" not in fr.execute(runs, store=Store(tmp_path), progress=False)


@pytest.mark.parametrize(
    ("test", "classes", "share", "told"),
    [
        (0.8, 1, 0.8, f"one class is predicted for every node, and the test accuracy 0.800 is {SHARE}"),
        (0.1, 1, 0.8, f"one class is predicted for every node, and the test accuracy 0.100 is below 0.800, {SHARE}"),
        (0.7, 3, 0.8, f"the test accuracy 0.700 is below 0.800, {SHARE}"),
        (0.9, 2, 0.8, ""),
        (0.8, 1, None, ""),
        (0.8, 1, float("nan"), ""),
        (None, None, 0.8, ""),
    ],
)
def test_the_sentence(test: float | None, classes: float | None, share: float | None, told: str) -> None:
    """It says by how much, and nothing where the share is not known, as in older records."""
    assert records.constant(test, classes, share) == told


def test_views_are_named() -> None:
    """A run whose clients learn in local training has the note only for the average."""
    views = {"before": {"best": {"test": 0.8, "test_classes": 1.0}}, "after": {"last": {"test": 0.9}}}
    assert records.note({**views, "majority": {"test": 0.8}}).startswith("before local training one class")
    assert records.note(views) == records.note({}) == ""


def test_a_number_under_the_name_of_a_score_is_no_score() -> None:
    """Checks and attacks have results of their own, which say nothing of a constant prediction."""
    assert records.note({"majority": 0.8, "before": {"best": 0.8}, "after": 1.0}) == ""
