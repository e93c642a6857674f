"""Count the runs of exhibits: how many are done, stale, failed or missing, and how many lack their graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from fedrepro.runs import verification
from fedrepro.runs.derived import levels, means
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store


def status(store: Store, runs: Iterable[Run]) -> dict[str, Any]:
    """Count how many of some runs are done, stale, failed or missing, see `by_exhibit`."""
    return by_exhibit(store, {"": {run.key: run.cell for run in runs}})[""]


def by_exhibit(store: Store, wanted: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, dict[str, Any]]:
    """Count, for each of several exhibits, how many of its runs are done, stale, failed or missing.

    Args:
        wanted: by name of the exhibit, the keys of its runs with their task, method and data set.

    Returns:
        For each name `wanted`, `done`, `stale` (of those done), `not_at_hand` (not done, and no graph for
        `sources.is_at_hand`), `missing` (all others that are not done), `failed` (of those missing), and
        `seconds_missing`: the mean of the store for the same data set and method, else for the method, else for all,
        summed over the missing runs; None where the store is empty.
    """
    like, at_hand = means(store), cache(_at_hand)
    stored = {key: record for cells in wanted.values() for key in cells if (record := store.get(key)) is not None}
    stale = {record["key"] for record in verification.stale(store, stored.values())}

    def count(cells: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        undone = [key for key in cells if key not in stored]
        missing = [key for key in undone if at_hand(cells[key][2])]
        seconds = [next((like[level] for level in levels(cells[key]) if level in like), None) for key in missing]
        return {
            "done": len(cells) - len(undone),
            "wanted": len(cells),
            "stale": sum(key in stale for key in cells),
            "failed": sum(store.failure(key) is not None for key in missing),
            "missing": len(missing),
            "not_at_hand": len(undone) - len(missing),
            "seconds_missing": None if None in seconds else sum(time for time in seconds if time is not None),
        }

    return {name: count(cells) for name, cells in wanted.items()}


def _at_hand(dataset: str) -> bool:
    from fedrepro.data import sources  # takes long to import, and is asked only for runs that are not done

    return sources.is_at_hand(dataset, download=True)
