"""A reference run is the beginning of a run that holds, and a verification of it must agree to the last bit."""

from __future__ import annotations

import pytest
import torch

from fedrepro.errors import ArgumentError
from fedrepro.runs import references, verification
from fedrepro.runs.execute import execute
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

RUN = Run(
    "train",
    "p",
    "FedAvg",
    dataset="Cora~standin",
    split="public",
    partition="random",
    clients=2,
    seed=3,
    options={"model": "GCN", "hidden": 4, "rounds": 20, "series": ["val"]},
)


@pytest.fixture
def stored(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with one run of 20 rounds, which counts as a dear one."""
    monkeypatch.setattr(references, "CHEAP", 0.0)
    execute([RUN], store=store, file="a", workers=1, progress=False)
    return store


def test_a_reference_run_is_the_beginning_of_a_run(stored: Store) -> None:
    """It has twelve rounds, its own field `paper`, and the same scores; it is computed once."""
    (short,) = references.missing(stored)
    assert short == RUN.replace(paper="reference", options={**RUN.options, "rounds": references.ROUNDS})
    assert references.compute(stored) == (1, 0) and references.missing(stored) == []
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)  # as in a process that has not been settled
    try:
        assert references.missing(stored) == []
    finally:
        torch.set_num_threads(threads)
    whole, part = (stored.get(run.key) for run in (RUN, short))
    assert whole is not None and part is not None
    assert part["series"] == {name: scores[:12] for name, scores in whole["series"].items()}


@pytest.mark.parametrize("change", ["stale", "a GPU", "another machine", "cheap", "short"])
def test_which_runs_need_a_reference_run(stored: Store, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """None is made of a stale run, of a GPU's, of a cheap or a short one; one of another machine is computed again."""
    record = stored.get(RUN.key)
    assert record is not None
    if change == "stale":
        stored.append("a", record | {"fingerprint": "old", "when": "2100-01-01T00:00:00+00:00"})
        assert references.missing(stored) == []
    elif change == "a GPU":
        where = {**stored.environments[record["environment"]], "device": "cuda"}
        stored.append("a", record | {"environment": where, "when": "2100-01-01T00:00:00+00:00"})
        assert references.missing(stored) == []
    elif change == "cheap":
        monkeypatch.setattr(references, "CHEAP", 1e6)
        assert references.missing(stored) == []
    elif change == "short":
        monkeypatch.setattr(references, "ROUNDS", 19)
        assert references.missing(stored) == []
    else:
        references.compute(stored)
        (short,) = [record for record in stored if record["run"]["paper"] == "reference"]
        where = {**stored.environments[short["environment"]], "cpu": "another"}
        stored.append("a", short | {"environment": where, "when": "2100-01-01T00:00:00+00:00"})
        assert [run.key for run in references.missing(stored)] == [short["key"]]


@pytest.mark.parametrize("verdict", ["identical", "close", "differs"])
def test_a_reference_run_clears_only_to_the_last_bit(stored: Store, verdict: str) -> None:
    """Rounding has no time to grow in twelve rounds, so that a close one says nothing; a difference counts."""
    references.compute(stored)
    new = {record["key"]: record["fingerprint"] for record in stored}
    for record in list(stored):
        stored.append("a", record | {"fingerprint": "old", "when": "2100-01-01T00:00:00+00:00"})
    (short,) = [record for record in stored if record["run"]["paper"] == "reference"]
    finding = verification.Finding(short, short | {"fingerprint": new[short["key"]]})
    finding.verdict = verdict
    stored.append("a", finding.record())
    assert len(verification.stale(stored)) == (0 if verdict == "identical" else 2)


def test_a_budget_that_is_no_number_is_refused(stored: Store) -> None:
    """Nothing is computed then."""
    with pytest.raises(ArgumentError, match="budget"):
        references.compute(stored, -1.0)
    assert len(list(stored)) == 1
