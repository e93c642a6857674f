"""What benchmarks measure: the run asked for, in seconds that are positive, with nothing of the start."""

from __future__ import annotations

import time

import pytest

from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State
from fedrepro.errors import ArgumentError
from fedrepro.papers.engine import bench
from fedrepro.runs.run import Run


def run(**options: object) -> Run:
    options = {"of": "FedAvg", "hidden": 4, "repeats": 1, "memory": False, **options}
    return Run("bench", "engine", "training", "Cora~standin", "unit-norm", "public", "metis", 3, options=options)


def test_a_rounds_price_leaves_the_start_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that takes a second does not show in seconds per round."""
    start = FedAvg.start

    def slow(self: FedAvg, fed: Federation) -> tuple[Federation, State]:
        time.sleep(0.5)
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
