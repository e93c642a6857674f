"""Benchmarks time the run that was asked for, and leave out the seconds of its start."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pandas as pd
import pytest

from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State
from fedrepro.errors import ArgumentError, FedreproError
from fedrepro.papers.engine import bench, exhibits, openfgl
from fedrepro.runs.execute import execute
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store


def run(**options: object) -> Run:
    options = {"of": "FedAvg", "hidden": 4, "repeats": 1, "memory": False, **options}
    return Run("bench", "engine", "training", "Cora~standin", "unit-norm", "public", "metis", 3, options=options)


def test_a_rounds_price_leaves_the_start_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that takes a second does not show in seconds per round."""
    start = FedAvg.start

    def slow(self: FedAvg, fed: Federation) -> tuple[Federation, State]:
        time.sleep(1.0)
        return start(self, fed)

    monkeypatch.setattr(FedAvg, "start", slow)
    timing = bench.training(run(rounds=6))["result"]["timing"]
    assert timing["seconds_per_round"] < 0.15 and timing["peak_mebibytes"] is None


def test_a_single_round_has_no_length_to_compare() -> None:
    """At least two rounds are needed, and an option the method does not know is refused as in training."""
    with pytest.raises(ArgumentError, match=r"option 'rounds' must be at least 2\. Got 1"):
        bench.training(run(rounds=1))
    with pytest.raises(ArgumentError, match="Got 'hiden'"):
        bench.training(run(rounds=2, hiden=3))


def test_a_random_graph_of_any_size_is_timed() -> None:
    """The graph has the nodes, edges, splits and clients that the run asks for, and a round takes some time."""
    (small,) = (run for run in exhibits.smallest_regimes() if run.method == "nodes")
    fed, method = bench._random(small)
    assert (fed.nodes, fed.clients, fed.features, fed.classes) == (200, 10, 32, 5)
    assert method.model.hidden == 4
    assert fed.sources[0].data.edge_index.shape == (2, 2000)
    split = [int(fed.count(mask).sum()) for mask in ("train", "val", "test")]
    assert sum(split) == 200 and split[0] > split[1] + split[2]
    timing = bench.nodes(small)["result"]["stack"]["timing"]
    assert math.isfinite(timing["seconds_per_round"]) and timing["peak_mebibytes"] is None


def test_the_table_of_regimes(tmp_path: Path) -> None:
    """A setting with loops has a row a way, a random graph one for the stack; an empty store gives an empty table."""
    frame = execute(exhibits.smallest_regimes(), store=Store(tmp_path), progress=False, workers=1)
    table = exhibits.regimes_table(frame)
    assert list(table["graph"]) == ["Cora~standin"] * 5 + ["random, 200 nodes"]
    assert list(table["way"]) == [*exhibits.WAYS, "stack"]
    assert set(table.loc[table["way"] == "stack", "stack is faster by"]) == {1}
    assert exhibits.regimes_table(frame[:0]).empty
    large = [run for run in exhibits.regimes() if run.method == "rounds"]
    assert {(run.dataset, run.split, run.clients) for run in large} == {
        ("PubMed", "40/30/30", 10),
        ("Computers", "40/30/30", 10),
        ("Cora", "public", 2708),
    }


def test_the_tables_have_every_way_that_is_measured() -> None:
    """The exhibits list the ways themselves, since a page without runs loads no torch."""
    assert exhibits.WAYS == bench.WAYS


# A stand-in of OpenFGL: half a second a training, and an error for other settings than the run's.
OPENFGL = """
import time

class FGLTrainer:
    def __init__(self, args):
        given = args.dataset, args.num_clients, args.num_rounds, args.num_epochs, args.hid_dim, args.train_val_test
        assert given == (["Cora"], 3, 2, 1, 4, "0.2-0.4-0.4"), given
    def train(self):
        time.sleep(0.5)
"""


def against_openfgl(clients: int) -> Run:
    options = {"hidden": 4, "local_epochs": 1, "rounds": 2, "repeats": 1}
    (run,) = exhibits.rounds(method="OpenFGL", dataset="Cora", split="20/40/40", clients=clients, options=options)
    return run


def test_openfgl_is_left_out_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The run is none that failed: nothing is stored, and the reason says what to install."""
    monkeypatch.setattr(openfgl, "find_spec", lambda name: None)
    store = Store(tmp_path)
    frame = execute([against_openfgl(3)], store=store, progress=False, workers=1, quiet=True)
    (left_out,) = frame.attrs["unavailable"]
    assert "`pip install openfgl-lib" in left_out["error"] and not frame.attrs["failed"] and not len(store)


def test_openfgl_trains_what_the_run_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its program gets the run's settings, its seconds are those of training, and its failure is an error."""
    for name, text in {
        "__init__": "",
        "config": "class args: pass",
        "flcore/__init__": "",
        "flcore/trainer": OPENFGL,
    }.items():
        path = tmp_path / "openfgl" / f"{name}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(openfgl.datasets, "fetch", lambda name: tmp_path / "cora")
    (tmp_path / "cora" / "raw").mkdir(parents=True)
    monkeypatch.setattr(bench, "stepper", lambda run, way: lambda count: 0.0)
    result = openfgl.beside(against_openfgl(3))["result"]
    assert 0.25 <= result["OpenFGL"]["timing"]["seconds_per_round"] < 1
    frame = pd.DataFrame([{"clients": 3, "hidden": 4, "method": "OpenFGL", "dataset": "Cora", "split": "20/40/40"}])
    frame = frame.assign(
        repeats=1, **{f"{way}.timing.seconds_per_round": value for way, value in (("stack", 0.1), ("OpenFGL", 0.4))}
    )
    assert list(exhibits.openfgl_table(frame)["stack is faster by"]) == [1, 4]
    with pytest.raises(FedreproError, match="OpenFGL ended with 1"):
        openfgl.beside(against_openfgl(4))
