"""Rows of the store with made-up results."""

from __future__ import annotations

from typing import Any

from fedrepro.runs.run import Run


def row_of(run: Run, results: dict[str, Any]) -> dict[str, Any]:
    """Return a run's row in a frame of the store: its fields and options, and the results given."""
    fields = {name: value for name, value in run.to_dict().items() if name != "options"}
    return {"key": run.key, **fields, **run.options, "status": "ok", "environment": "here", **results}
