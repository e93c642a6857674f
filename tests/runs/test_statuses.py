"""Counts of the runs of an exhibit: done, stale, failed, missing, and on a graph that is not at hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_tasks import fill, runs

from fedrepro.data import sources
from fedrepro.reporting import state
from fedrepro.runs import statuses
from fedrepro.runs.index import Index
from fedrepro.runs.store import Store

pytestmark = pytest.mark.usefixtures("fakes")


def have(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the raw files of some data sets, and of no others, be here."""
    folders = {sources.SOURCES[name].folder for name in names}
    monkeypatch.setattr(sources, "locate", lambda source: Path("raw") if source.folder in folders else None)


def test_status(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts are those of done, failed and missing runs, and the time left is by the means of the store."""
    have(monkeypatch, "Cora", "CS", "Physics")
    wanted = runs(seeds=4, dataset=["Cora", "CS", "Physics"])
    assert statuses.status(store, wanted) == {
        "done": 0,
        "wanted": 12,
        "stale": 0,
        "failed": 0,
        "missing": 12,
        "not_at_hand": 0,
        "seconds_missing": None,
    }
    for seconds, run in zip((1.0, 2.0, 9.0), [run for run in wanted if run.dataset == "Cora"]):
        fill(store, [run], seconds=seconds)
    fill(store, [run for run in wanted if run.dataset == "CS"][:1], seconds=10.0)
    fill(store, [run for run in wanted if run.dataset == "CS"][1:2], status="failed")
    # One of Cora is missing at its mean 4, three of CS at 10, four of Physics at the mean of (1, 2, 9, 10).
    assert statuses.status(store, [*wanted, *wanted]) == {
        "done": 4,
        "wanted": 12,
        "stale": 0,
        "failed": 1,
        "missing": 8,
        "not_at_hand": 0,
        "seconds_missing": 4 + 3 * 10 + 4 * 5.5,
    }
    assert statuses.status(store, [])["seconds_missing"] == 0


def test_runs_of_a_graph_that_is_not_here_are_not_missing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without its graph's files counts as not at hand, and neither as missing or failed nor in the time left.

    What is stored counts as done whether the graph is here or not, and a stand-in needs no files.
    """
    have(monkeypatch, "Cora")
    names = ["Cora", "Reddit", "Cora~standin", "Amazon Ratings~incomplete"]
    wanted = runs(seeds=2, dataset=names)
    of = {name: [run for run in wanted if run.dataset == name] for name in names}
    fill(store, [of["Cora"][0]], seconds=3.0)
    fill(store, [of["Reddit"][0]], seconds=5.0)
    fill(store, [of["Reddit"][1]], status="unavailable")
    counted = statuses.status(store, wanted)
    counts = {"done": 2, "wanted": 8, "stale": 0, "failed": 0, "missing": 3, "not_at_hand": 3}
    # One of Cora is missing at its mean 3, two of the stand-in at the mean of (3, 5).
    assert counted == {**counts, "seconds_missing": 3 + 2 * 4}
    have(monkeypatch, "Cora", "Reddit")
    counted = statuses.status(store, wanted)
    assert (counted["missing"], counted["failed"], counted["not_at_hand"]) == (4, 1, 2)


def test_a_small_graph_is_fetched_when_it_is_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs on a graph that is downloaded at first use are missing, and so are those on subCora, a part of one."""
    have(monkeypatch)
    graphs = ["Cora", "subCora", "Reddit"]
    counted = statuses.status(store, runs(seeds=1, dataset=graphs))
    assert (counted["missing"], counted["not_at_hand"]) == (2, 1)
    monkeypatch.setattr(sources, "ASK_ABOVE", 0)
    assert statuses.status(store, runs(seeds=1, dataset=graphs))["not_at_hand"] == 3


def test_only_missing_runs_ask_for_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If all runs are done, no folder of raw graphs is looked at."""
    monkeypatch.setattr(sources, "locate", lambda source: pytest.fail("a folder was looked at"))
    wanted = runs(seeds=2, dataset="Reddit")
    fill(store, wanted)
    assert statuses.status(store, wanted)["done"] == 2


def test_seconds_of_a_gpu_are_not_those_of_a_core(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing runs cost a GPU's seconds only if no CPU has computed runs like them; both are told apart."""
    have(monkeypatch, "Cora", "CS")
    wanted = runs(seeds=4, dataset=["Cora", "CS"])
    cora, cs = ([run for run in wanted if run.dataset == name] for name in ("Cora", "CS"))
    (record,) = fill(store, cora[:1], seconds=600.0)
    gpu = record["environment"] | {"device": "some GPU"}
    fill(store, [*cora[1:2], *cs[:1]], seconds=6.0, environment=gpu)
    # Two of Cora are missing, at 600 s each, and three of CS, at 6 s each.
    for reader in (store, Index(store.folder)):
        assert statuses.status(reader, wanted)["seconds_missing"] == 2 * 600 + 3 * 6
    known = state.cost(store, wanted)
    assert (known["seconds"], known["on_gpu"], known["gpu_seconds"], known["left"]) == (600, 2, 12, 1218)
    assert "3 are stored: 2 took 0.2 min on a GPU, and the others took 10.0 min on one core." in state.told(known)
    assert "All are stored: 1 took 0.1 min on a GPU." in state.told(state.cost(store, cs[:1]))
