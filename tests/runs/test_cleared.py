"""A verification clears other code's results of its own model; a result computed again replaces the former one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from fake_tasks import fill, runs

from fedrepro.runs import provenance, statuses, verification
from fedrepro.runs.execute import execute
from fedrepro.runs.index import Index
from fedrepro.runs.lines import Record
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store

pytestmark = pytest.mark.usefixtures("fakes")


@pytest.mark.parametrize("told", [True, False], ids=["as it is now", "an older finding"])
def test_a_result_of_todays_code_clears_no_older_one(store: Store, told: bool) -> None:
    """A rerun of what today's code computed, such as on another machine, says nothing of older code."""
    each = [Run("check", "p", "quick", dataset="Cora", seed=seed) for seed in range(3)]
    fill(store, each[:2], fingerprint="old")
    fill(store, each[2:])
    (today,) = [record for record in store if record["fingerprint"] != "old"]
    finding = verification.Finding(today, today | {"when": "2100-01-01T00:00:00+00:00"}).record()
    if not told:
        del finding["result"]["was"]
    store.append("a", finding)
    assert len(verification.stale(store)) == 2
    verification.verify(store, 1, workers=1)
    assert verification.stale(store) == []


@pytest.mark.parametrize("ahead", [0, 3600])
def test_a_result_computed_again_is_the_result_whatever_the_clock_says(store: Store, ahead: int) -> None:
    """The machine that computed the first one may have been an hour ahead, and its file sorts after the other."""
    run = Run("check", "p", "quick", dataset="Cora")
    when = (datetime.now(UTC) + timedelta(seconds=ahead)).isoformat(timespec="seconds")
    (first,) = fill(store, [run], when=when, fingerprint="old")
    execute([run], store=store, file="0", workers=1, progress=False, again=[run.key])
    for each in (store, Store(store.folder), Index(store.folder)):
        held = each.get(run.key)
        assert held is not None and held["fingerprint"] != "old" == first["fingerprint"]
    assert verification.stale(store) == []


def test_the_index_tells_models_apart(store: Store) -> None:
    """A verification of one model clears only that model, in the index as in the store, for either's records."""
    both = {"model": ["A", "B"]}
    wanted = sweep(task="check", paper="p", method="quick", dataset="Cora", seed=range(3), options=both)
    fill(store, wanted, fingerprint="old")
    verification.verify(store, 1, workers=1)
    index, whole = Index(store.folder), Store(store.folder)
    kept = {record["key"] for record in verification.stale(whole)}
    assert len(kept) == 3 and statuses.status(index, wanted)["stale"] == 3
    assert {record["key"] for record in verification.stale(index)} == kept
    assert {record["key"] for record in verification.stale(index, whole)} == kept


def test_a_run_of_one_model_clears_no_other_model(store: Store) -> None:
    """A recomputed run says nothing of a model that it does not have, and a difference of one says it of all."""
    two_models = [
        Run("check", "p", "quick", dataset="Cora", seed=seed, options={"model": m})
        for m in ("A", "B")
        for seed in range(3)
    ]
    fill(store, two_models, fingerprint="old")
    verification.verify(store, 1, workers=1)
    (held,) = {record["run"]["options"]["model"] for record in verification.stale(store)}
    assert len(verification.stale(store)) == 3
    frame = verification.verify(store, 1, workers=1)
    assert frame["stale"].all() and verification.stale(store) == []
    (last,) = [record for record in store if record["key"] == frame["key"][0]]
    assert last["run"]["options"]["model"] == held
    other = next(record for record in store if record["run"]["options"].get("model") not in (None, held))
    store.append("a", other | {"result": {"score": {"test": 0.9}}, "when": "2100-01-01T00:00:00+00:00"})
    verification.verify(store, 6, workers=1)
    assert len(verification.stale(store)) == 6


def test_a_difference_clears_nothing(store: Store) -> None:
    """Runs that pass next to one that differs do not clear the rest of their method and data set."""
    _, second, _ = fill(store, runs(), fingerprint="old")
    store.append("a", second | {"result": {"score": {"test": 0.9}}, "when": "2100-01-01T00:00:00+00:00"})
    frame = verification.verify(store, 3, workers=1)
    assert sorted(frame["verdict"]) == ["differs", "identical", "identical"] and frame["stale"].all()
    assert len(verification.stale(store)) == 3


@pytest.mark.parametrize("verdict", ["identical", "differs"])
@pytest.mark.parametrize("recomputed", ["old", "older"])
def test_a_pass_clears_only_what_held_before_the_change(store: Store, recomputed: str, verdict: str) -> None:
    """Results of one older code stay stale, unless a verification had compared it with the one that was recomputed."""
    each = [Run("check", "p", "quick", dataset="Cora", seed=seed) for seed in range(4)]
    older, _ = fill(store, each[:2], fingerprint="older")
    old, _ = fill(store, each[2:], fingerprint="old")
    first, rest = (old, "older") if recomputed == "old" else (older, "old")
    store.append("a", _finding(first, provenance.current("check", "quick", "Cora")))
    assert [record["fingerprint"] for record in verification.stale(store)] == [rest, rest]
    store.append("a", _finding(older, "old", verdict))
    assert len(verification.stale(store)) == {"identical": 0, "differs": 2}[verdict]


def _finding(record: Record, fingerprint: str, verdict: str = "identical") -> Record:
    """Return what a verification stores that recomputed a record with the code of a fingerprint."""
    finding = verification.Finding(record, record | {"fingerprint": fingerprint})
    finding.verdict = verdict
    return finding.record()
