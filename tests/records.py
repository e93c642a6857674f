"""A stored record, made up for the test."""

from __future__ import annotations

from typing import Any

from fedrepro.runs.provenance import fingerprint
from fedrepro.runs.run import Run

CELL = Run(task="train", paper="fedgat", method="FedAvg", dataset="Cora", split="public", clients=10)


def record(run: Run, **changes: Any) -> dict[str, Any]:
    """A stored record of a run, made up for the test."""
    entry = {
        "key": run.key,
        "run": run.to_dict(),
        "status": "ok",
        "error": None,
        "result": {"before": {"best": {"test": 0.8}}},
        "fingerprint": fingerprint(run.task, run.method),
        "environment": "0",
        "when": "2026-01-01T00:00:00Z",
        "seconds": 60.0,
    }
    return {**entry, **changes}
