"""FedSheafHN's checks on a small graph, run as the store runs them."""

from __future__ import annotations

from typing import Any

from fedrepro import registry
from fedrepro.runs.run import Run

SMALL = {"model": "GCNHead", "hidden": 6, "hyper_hidden": 8, "channels": 4, "steps": 2, "lr": 0.02, "local_epochs": 2}


def run(task: str, name: str, **options: Any) -> Run:
    fields = {"dataset": "block", "split": "40/30/30", "partition": "random(equal=True)", "clients": 6}
    return Run(task, "fedsheafhn", name, options=options, **fields)


def compute(task: str, name: str, seed: int = 0, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = registry.load(task, name)(run(task, name, **options).replace(seed=seed))["result"]
    return found
