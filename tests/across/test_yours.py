"""The protocol on a user's graph: its split, its store, its arguments, and a graph of one class."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from graphs import block_model
from torch_geometric.data import Data

import fedrepro as fr
from fedrepro import paths
from fedrepro.across import protocol, yours
from fedrepro.data import datasets
from fedrepro.errors import ArgumentError, FedreproError
from fedrepro.runs.store import Store

MORE = {"rounds": 1, "hidden": 4, "local_epochs": 1}
MINE = "graph of the tests"


def graph(*, masks: bool = True, one_class: bool = False) -> Data:
    data = block_model(60, seed=0)
    if one_class:
        data.y = data.y * 0
    if not masks:
        for mask in ("train_mask", "val_mask", "test_mask"):
            del data[mask]
    return data


@pytest.fixture(autouse=True)
def _dataset() -> Iterator[None]:
    datasets.register(MINE, lambda: graph())
    yield
    for name in [name for name in datasets._own if name.startswith(MINE)]:
        datasets._own.pop(name)


def cells(store: Store) -> set[tuple[str, int, int]]:
    """Return split, clients and seed of the runs that are no tuning."""
    seeds = ((record["run"], record["run"]["seed"]) for record in store)
    return {(run["split"], run["clients"], seed) for run, seed in seeds if seed != protocol.TUNING_SEED}


def test_a_graphs_own_split_is_taken(tmp_path: Path) -> None:
    """The masks of a user's graph are its split, without masks it is the protocol's; a split may be given."""
    datasets.register(f"{MINE} 2", lambda: graph(masks=False))
    for number, (name, given, split) in enumerate(
        [(MINE, "", "public"), (f"{MINE} 2", "", "20/40/40"), (MINE, "30/30/40", "30/30/40")]
    ):
        store = Store(tmp_path / str(number))
        table = fr.across(dataset=name, split=given, clients=2, seeds=[3], beside="Local", store=store, **MORE)
        assert cells(store) == {(split, 2, 3)} and table["row"].tolist() == ["Local"]


def test_runs_on_another_graph_are_no_part_of_the_suites_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go to the personal store, and those on a graph of the protocol to the suite's."""
    monkeypatch.delenv("FEDREPRO_STORE")
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    fr.across(dataset=MINE, clients=2, seeds=1, partitions="random", beside="Local", **MORE)
    assert [path.name for path in paths.personal().glob("across*")] == ["across-yours.jsonl"]
    assert not paths.store().exists()


def test_other_settings_stand_in_columns_of_their_own(tmp_path: Path) -> None:
    """Two strengths of one partition are two columns, and Central alone has none."""
    both = ["dirichlet(beta=1)", "dirichlet(beta=0.1)"]
    of = {"dataset": MINE, "clients": 2, "seeds": 1, "store": Store(tmp_path)}
    table = fr.across(partitions=both, beside="Local", **of, **MORE)
    assert set(table["column"]) == {f"{MINE} dirichlet 2", f"{MINE} dirichlet(beta=0.1) 2"}
    with pytest.raises(ArgumentError, match="beside must be a method other than Central"):
        fr.across(beside="Central", **of, **MORE)
    assert protocol.Column("Cora", "metis", split="public").label == "Cora metis 10, public"


def test_one_class_has_no_auc(tmp_path: Path) -> None:
    """A graph of one class has accuracies and an empty AUC, by which nothing can be tuned."""
    datasets.register(f"{MINE} 1", lambda: graph(one_class=True))
    of = {"dataset": f"{MINE} 1", "clients": 2, "seeds": 2, "beside": ["Local"], "store": Store(tmp_path)}
    table = fr.across(**of, **MORE)
    assert table["accuracy"].tolist() == [100.0] and table["AUC"].isna().all()
    with pytest.raises(ArgumentError, match="metric must be a score that the runs of Local"):
        fr.across(**of, metric="auc", **MORE)


def test_the_call_shows_its_arguments() -> None:
    """Its signature is that of the function, and the help of the module names every argument."""
    assert inspect.signature(fr.across) == inspect.signature(yours.across)
    for name in inspect.signature(fr.across).parameters:
        assert re.search(rf"^ +(and )?{name} ", str(fr.across.__doc__), re.MULTILINE), name


@pytest.mark.parametrize("seeds", [0, -1, 1.5, True, [], [100], "2", None])
def test_seeds_are_a_number_or_seeds(seeds: object, tmp_path: Path) -> None:
    """Nothing else is taken, nor the seed of tuning."""
    with pytest.raises(ArgumentError, match="seeds must be an integer >= 1, or integers >= 0 other than 100"):
        fr.across(seeds=seeds, store=Store(tmp_path))


def test_a_graph_that_cannot_be_had_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are not left out in silence."""
    frame = pd.DataFrame()
    gone = {"run": {"method": "Local", "dataset": "PPI"}, "error": "DataError: PPI is not here"}
    frame.attrs = {"failed": [], "unavailable": [gone]}
    monkeypatch.setattr(yours, "execute", lambda *_, **__: frame)
    with pytest.raises(FedreproError, match="A run of Local on PPI failed: DataError: PPI is not here"):
        fr.across(dataset="PPI", seeds=1, beside="Local", store=Store(tmp_path), **MORE)
