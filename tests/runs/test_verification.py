from __future__ import annotations

import math
import time
from typing import Any

import fake_tasks
import pytest
from fake_tasks import fill, runs

from fedrepro import registry
from fedrepro.errors import ArgumentError
from fedrepro.reporting import listing, state
from fedrepro.runs import execute as engine
from fedrepro.runs import provenance, statuses, tolerances, verification
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store

pytestmark = pytest.mark.usefixtures("fakes")


def change_code(monkeypatch: pytest.MonkeyPatch, method: str, fingerprint: str) -> None:
    """Give a method another fingerprint, as if its code were another one."""
    real = provenance.fingerprint

    def other(task: str, name: str, dataset: str = "", trained: str = "") -> str:
        return fingerprint if name == method else real(task, name, dataset, trained)

    monkeypatch.setattr(provenance, "fingerprint", other)


def test_identical(store: Store) -> None:
    """On the same machine a run computed again is the same to the last bit; times are not compared."""
    wanted = runs()
    fill(store, wanted)
    frame = verification.verify(store, 2, progress=False, workers=1)
    assert list(frame["verdict"]) == ["identical"] * 2 and list(frame["difference"]) == [0.0] * 2
    assert set(frame["key"]) < {run.key for run in wanted} and not frame["stale"].any()
    found = [record for record in Store(store.folder) if record["run"]["method"] == "verify"]
    assert {record["result"]["verified"] for record in found} == set(frame["key"])
    assert all(store.file(record["key"]) == "verify.jsonl" for record in found)
    assert len(verification.verify(store, 99, workers=1)) == 3, "findings themselves are not verified"


def test_the_cost_is_told_before(store: Store) -> None:
    """Before anything is computed the caller is told the runs and the stored seconds of all that they were part of."""
    records = engine.compute(runs(seeds=4))
    batches = ([0, 1], [0, 1], [2], [3])
    for record, seeds, seconds in zip(records, batches, (5.0, 5.0, 7.0, 11.0), strict=True):
        store.append("a", record | {"seconds": seconds, "batch": record["batch"] | {"seeds": seeds}})
    told: list[tuple[int, float]] = []

    def before(count: int, seconds: float) -> None:
        assert not (store.folder / "verify.jsonl").exists()
        told.append((count, seconds))

    verification.verify(store, 4, workers=1, progress=False, before=before)
    assert told == [(4, 28.0)]


def test_sample_is_seeded(store: Store) -> None:
    """A seed gives one sample each time, and another seed gives another sample."""
    fill(store, runs(seeds=30))
    samples = [tuple(verification.verify(store, 5, seed=seed, workers=1)["key"]) for seed in (0, 0, 1)]
    assert samples[0] == samples[1] != samples[2]


@pytest.mark.parametrize("test", [math.nextafter(1 / 7, 1), 1 / 7 + 0.005, 0.1])
def test_same_machine_other_bits(store: Store, test: float) -> None:
    """On the same machine any difference at all is one."""
    (record,) = engine.compute(runs(seeds=1))
    record["result"]["score"]["test"] = test
    store.append("a", record)
    (row,) = verification.verify(store, 1, workers=1).to_dict("records")
    assert row["verdict"] == "differs" and 0 < row["difference"] < 0.1 and row["field"] == "score.test"


@pytest.mark.parametrize(
    ("test", "verdict"), [(1 / 7, "close"), (1 / 7 + 0.0099, "close"), (1 / 7 - 0.0101, "differs"), (None, "differs")]
)
def test_elsewhere(store: Store, test: float | None, verdict: str) -> None:
    """On another machine a run may differ by a point, and no more."""
    (record,) = engine.compute(runs(seeds=1))
    record["environment"]["cpu"] = "another"
    record["result"]["score"]["test"] = test
    store.append("a", record)
    assert list(verification.verify(store, 1, workers=1)["verdict"]) == [verdict]


def test_a_field_added_later_is_not_compared_and_a_lost_one_is(store: Store) -> None:
    """A record of before further metrics were added verifies; one with a field that is computed no more differs."""
    (record,) = engine.compute(runs(seeds=1))
    name = next(name for name in record["result"] if name not in ("timing", "seconds"))
    fewer = {key: value for key, value in record["result"].items() if key != name}
    store.append("a", record | {"result": fewer})
    assert set(verification.verify(store, 1, progress=False)["verdict"]) == {"identical"}
    other = Store(store.folder.parent / "other")
    other.append("a", record | {"result": record["result"] | {"former": 1.0}})
    assert set(verification.verify(other, 1, progress=False)["verdict"]) == {"differs"}


@pytest.mark.parametrize(("shifts", "verdict"), [((0.005, -0.004, 0), "close"), ((0.005, 0.004, 0.002), "differs")])
def test_means_elsewhere(store: Store, shifts: tuple[float, ...], verdict: str) -> None:
    """On another machine the mean over runs of one method and data set may differ by 0.003."""
    for record, shift in zip(engine.compute(runs()), shifts):
        record["environment"]["cpu"] = "another"
        record["result"]["score"]["test"] += shift
        store.append("a", record)
    assert set(verification.verify(store, 3, workers=1)["verdict"]) == {verdict}


def test_losses_and_sizes(store: Store) -> None:
    """Elsewhere losses are not compared, and numbers above 1 by their size; on the same machine all are."""
    now = {"train_loss": 1.0, "bytes": 1000, "series": [0.5], "best_loss": {"test": 0.5}}
    registry.register("check", "quick", lambda run: {"result": now})
    changes = {0: {"bytes": 1009}, 1: {"bytes": 1011}, 2: {"best_loss": {"test": 0.52}}}
    for seed, change in changes.items():
        (record,) = engine.compute([runs()[seed].replace(dataset=str(seed))])
        record["environment"]["cpu"] = "another"
        store.append("a", record | {"result": now | {"train_loss": 2.0} | change})
    (record,) = engine.compute([runs(seeds=4)[3]])
    store.append("a", record | {"result": now | {"train_loss": 2.0}})
    frame = verification.verify(store, 4, workers=1).set_index("seed")
    assert frame["verdict"].to_dict() == {0: "close", 1: "differs", 2: "differs", 3: "differs"}
    assert frame["difference"].to_dict() == pytest.approx({0: 9 / 1009, 1: 11 / 1011, 2: 0.02, 3: 0.5})
    assert frame["field"].to_dict() == {0: "bytes", 1: "bytes", 2: "best_loss.test", 3: "train_loss"}


@pytest.mark.parametrize(("new", "difference"), [([9, -7, 3], 12.5 / 3), ([1, -8, 3], 5 / 3), ([1, 2, 3], 0.0)])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_every_entry_of_a_list_counts(store: Store, new: list[int], difference: float, elsewhere: bool) -> None:
    """The change of a list is the mean size of its entries' changes, each relative to its size, wherever they are."""
    registry.register("check", "quick", lambda run: {"result": {"entries": new}})
    (record,) = engine.compute(runs(seeds=1))
    if elsewhere:
        record["environment"]["cpu"] = "another"
    store.append("a", record | {"result": {"entries": [1, 2, 3]}})
    (row,) = verification.verify(store, 1, workers=1).to_dict("records")
    verdict = "differs" if difference else ("close" if elsewhere else "identical")
    assert (row["verdict"], row["field"]) == (verdict, "entries" if difference else "")
    assert row["difference"] == pytest.approx(difference)


def test_rounds_of_training(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere the best round of a training run, a whole number, may be another one."""
    from fake_training import fake_training

    fake_training(monkeypatch)
    (record,) = engine.compute([Run("train", "p", "FedAvg", seed=3)])
    record["environment"]["cpu"] = "another"
    store.append("a", record | {"result": {"seed_was": 90}})
    assert list(verification.verify(store, 1, workers=1)["verdict"]) == ["close"]


def test_other_chunk_is_elsewhere(store: Store) -> None:
    """Runs computed in another chunk are not expected to be the same to the last bit."""
    fill(store, [Run("check", "p", "numbers", options={"value": 0.25})], chunk=3)
    assert list(verification.verify(store, 1, workers=1)["verdict"]) == ["close"]


def test_stale_and_cleared(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed code makes records stale; a verification that passes clears its method and data set, for that code."""
    wanted = runs(dataset=["Cora", "CS"])
    fill(store, wanted)
    assert verification.stale(store) == [] and statuses.status(store, wanted)["stale"] == 0
    change_code(monkeypatch, "quick", "second")
    assert statuses.status(store, wanted)["stale"] == 6
    (row,) = verification.verify(store, 1, workers=1).to_dict("records")
    assert row["stale"] and row["verdict"] == "identical"
    stale = verification.stale(store)
    assert len(stale) == 3 and {record["run"]["dataset"] for record in stale} == {"Cora", "CS"} - {row["dataset"]}
    verification.verify(store, 1, workers=1)
    assert verification.stale(store) == []
    change_code(monkeypatch, "quick", "third")
    assert len(verification.stale(store)) == 6


def test_stale_ones_first(store: Store) -> None:
    """Stale runs come before the sample, one of each method and data set before a second of any."""
    fill(store, runs(seeds=20, dataset="Physics"))
    fill(store, runs(seeds=3, dataset=["Cora", "CS"]), fingerprint="old")
    frame = verification.verify(store, 4, workers=1)
    assert frame["stale"].all() and set(frame["dataset"][:2]) == {"Cora", "CS"}


def test_cheapest_first(store: Store) -> None:
    """With `cheapest`, the cheapest run of each method and data set is taken, and the cheapest of these first."""
    for dataset, costs in {"Cora": (5, 3, 4), "CS": (2, 9, 8), "Physics": (7, 7, 6)}.items():
        for run, seconds in zip(runs(dataset=dataset), costs):
            fill(store, [run], fingerprint="old", seconds=float(seconds))
    frame = verification.verify(store, 3, cheapest=True, workers=1)
    assert list(zip(frame["dataset"], frame["seed"])) == [("CS", 0), ("Cora", 1), ("Physics", 2)]


def test_seconds_of_a_gpu_are_not_cheap(store: Store) -> None:
    """With `cheapest`, a run of a GPU comes after those of a CPU, though it took fewer seconds."""
    gpu, cpu = runs(seeds=2, dataset="Cora")
    fill(store, [gpu], fingerprint="old", seconds=1.0, environment={"device": "cuda"})
    fill(store, [cpu], fingerprint="old", seconds=9.0)
    frame = verification.verify(store, 1, cheapest=True, device="cpu", workers=1)
    assert list(frame["seed"]) == [cpu.seed]


def test_a_finding_is_stored_as_it_comes(store: Store) -> None:
    """An interruption loses only the run that was being computed."""
    fill(store, runs(seeds=5))
    calls = []

    def quick(run: Run) -> dict[str, Any]:
        calls.append(run.seed)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fake_tasks.quick(run)

    registry.register("check", "quick", quick)
    with pytest.raises(KeyboardInterrupt):
        verification.verify(store, None, workers=1)
    findings = [record for record in Store(store.folder) if record["run"]["method"] == "verify"]
    assert sorted(record["run"]["seed"] for record in findings) == sorted(calls[:2])


def test_budget(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the budget nothing is started, and what was computed until then is in the frame."""
    fill(store, runs(seeds=9))
    calls, clock = [], time.monotonic

    def quick(run: Run) -> dict[str, Any]:
        calls.append(run.seed)
        return fake_tasks.quick(run)

    registry.register("check", "quick", quick)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 60 * len(calls))  # every run takes a minute
    assert len(verification.verify(store, None, budget=2.5, workers=1)) == len(calls) == 3
    with pytest.raises(ArgumentError, match="budget must be a number of minutes > 0"):
        verification.verify(store, 1, budget=0)


def test_no_run_is_started_that_the_budget_cannot_hold(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs are left out if they, and the runs computed with them, took longer than the whole budget; others are not."""
    records = fill(store, runs(seeds=4))
    long = [
        records[0] | {"seconds": 90.0},
        records[1] | {"seconds": 30.0, "batch": records[1]["batch"] | {"seeds": [1, 7, 8]}},
    ]
    store.append("long", *long)
    left_out = {record["key"] for record in long}
    checked = verification.verify(store, None, budget=1, workers=1)
    assert set(checked["key"]) == {record["key"] for record in records} - left_out
    assert checked.attrs["left"] == 2 and listing.verified(checked) == 0
    assert listing.verified(checked[:0]) == 1 and "2 runs were left out" in capsys.readouterr().err
    assert left_out <= set(verification.verify(store, None, budget=2, workers=1)["key"])


def test_a_planted_difference_is_found(store: Store) -> None:
    """A score that was changed by 0.02 in one of six records differs, and so does its mean elsewhere."""
    records = fill(store, runs(seeds=6))
    planted = records[4] | {"result": {"score": {"test": 5 / 7 + 0.02}, "count": 1}, "when": "2100-01-01"}
    store.append("a", planted)
    frame = verification.verify(store, None, workers=1).set_index("seed")
    assert frame["verdict"].to_dict() == {seed: "differs" if seed == 4 else "identical" for seed in range(6)}
    assert frame.loc[4, "difference"] == pytest.approx(0.02) and frame.loc[4, "field"] == "score.test"


def test_what_is_not_verified(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks, failures, other versions and methods that are gone are left out, not an error."""
    fill(store, [Run("bench", "p", "clock")])
    fill(store, runs("fails", 1))
    fill(store, runs("once", 1, options={"log": "/tmp"}))
    fill(store, runs("quick", 1))
    del registry.REGISTRY["check", "once"]
    registry.register("check", "quick", "fake_tasks:quick", version=2)
    assert len(verification.verify(store, 9, workers=1)) == 0
    assert [record["run"]["method"] for record in verification.stale(store)] == ["once"]
    with pytest.raises(ArgumentError, match="n must be an integer >= 1"):
        verification.verify(store, 0)


def test_which_graphs_are_known(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training on the package's own generated graphs is verified; on a graph registered in a notebook it is not."""
    from fake_training import fake_training

    fake_training(monkeypatch)
    graphs = ["Cora", "PPI~standin", "csbm-SC", "csbm-d25", "csbm-DNC redrawn", "subCora as coded", "mine"]
    store.append("a", *(engine.compute([Run("train", "p", "FedAvg", dataset=graph)])[0] for graph in graphs))
    assert set(verification.verify(store, 9, workers=1)["dataset"]) == {*graphs} - {"mine"}


def test_recomputing_fails(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that fails now, or whose graph is not here or damaged now, says so."""
    fill(store, runs(seeds=1, dataset="Cora"), fingerprint="old")
    with monkeypatch.context() as patch:
        patch.setattr(fake_tasks, "quick", fake_tasks.absent)
        (row,) = verification.verify(store, 1, workers=1).to_dict("records")
        assert row["verdict"] == "unavailable" and row["error"].startswith("DataError")
        patch.setattr(fake_tasks, "quick", fake_tasks.damaged)
        (row,) = verification.verify(store, 1, workers=1).to_dict("records")
        assert row["verdict"] == "damaged" and row["error"] == "DamagedError: x has the wrong checksum"
        patch.setattr(fake_tasks, "quick", fake_tasks.fails)
        (row,) = verification.verify(store, 1, workers=1).to_dict("records")
        assert row["verdict"] == "failed" and row["error"].startswith("KeyError: 'seed 0'")
    assert len(verification.stale(store)) == 1 and store.get(runs(seeds=1, dataset="Cora")[0].key) is not None


def test_a_record_of_a_gpu_where_there_is_none(store: Store) -> None:
    """A run of a GPU is computed on the CPU where there is no GPU, which is said, and compared as on another."""
    (record,) = engine.compute(runs(seeds=1))
    fill(store, runs(seeds=1), environment=record["environment"] | {"device": "some GPU", "cuda": "13.0"})
    with pytest.warns(UserWarning, match="1 of these runs were computed on a GPU, and no GPU is found"):
        assert list(verification.verify(store, 1, workers=1)["verdict"]) == ["close"]
    assert list(verification.verify(store, 1, workers=1, device="cpu")["verdict"]) == ["close"]
    with pytest.raises(ArgumentError, match="device must be one of"):
        verification.verify(store, 1, device="here")


def test_same_batch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs trained side by side are recomputed side by side."""
    from fake_training import fake_training

    calls = fake_training(monkeypatch)
    wanted = sweep(task="train", paper="p", method="FedAvg", seed=[0, 1, 3, 4])
    engine.execute(wanted, store=store, file="a", workers=1, side_by_side=4)
    assert list(verification.verify(store, 1, workers=1)["verdict"]) == ["identical"]
    assert calls == [[0, 1, 3, 4]] * 2


def test_the_cost_of_runs_is_stored_or_told_by_the_mean(store: Store) -> None:
    """Stored seconds are summed, missing runs cost the mean of their method and graph, others are not known."""
    wanted = runs(seeds=4, dataset=["Cora", "CS"])
    assert state.told(state.cost(store, wanted)).endswith("8 have no such run, so their cost is not known.")
    fill(store, wanted[:1], seconds=3000.0)
    known = state.cost(store, [*wanted, *wanted])
    same = [run for run in wanted[1:] if run.dataset == wanted[0].dataset]
    counts = {"runs": 8, "stored": 1, "on_gpu": 0, "gpu_seconds": 0, "alike": 3, "unknown": 4}
    assert known == {**counts, "seconds": 3000.0, "left": 9000.0} and len(same) == 3
    fill(store, [run.replace(paper="reference") for run in wanted[:1]], seconds=30.0)  # short, so it counts for nothing
    assert state.cost(store, [*wanted, *wanted]) == known
    said = state.told(known)
    assert "Of them 1 are stored and took 50.0 min" in said and "would take 2.5 h more" in said
    assert "7 are missing: running the notebook computes those that its profile asks for" in said
    assert "All are stored and took" in state.told(state.cost(store, wanted[:1]))
    assert state.told(state.cost(store, [])) == "This notebook has no runs that are stored."


def test_constants() -> None:
    """The tolerances are those the documentation promises: one point a run, 0.3 on a mean."""
    assert (tolerances.POINT, tolerances.MEAN_POINT) == (0.01, 0.003)
