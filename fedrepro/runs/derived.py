"""Work out what all records of a store give, once until one is read: the findings, the mean times."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeVar

from fedrepro.runs.lines import REFERENCE, Record, cell_of, is_finding
from fedrepro.runs.store import Store

T = TypeVar("T")


def of_store(compute: Callable[[Store], T]) -> Callable[[Store], T]:
    """Keep what a function gives of a store until a record of the store is read."""

    @wraps(compute)
    def kept(store: Store) -> T:
        if compute not in store.derived:
            store.derived[compute] = compute(store)
        known: T = store.derived[compute]
        return known

    return kept


@of_store
def findings(store: Store) -> list[Record]:
    """Return the records in a store of what verifications found."""
    return [record for record in store if is_finding(record)]


def levels(cell: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return what a run may have in common with others: task, method and data set; task and method; nothing."""
    return tuple(cell[:3]), tuple(cell[:2]), ()


@of_store
def means(store: Store) -> dict[tuple[str, ...], float]:
    """Return the mean seconds of the stored runs of each of the `levels`: on a CPU, else on a GPU.

    Reference runs, which are short, do not count.
    """
    times: dict[bool, defaultdict[tuple[str, ...], list[float]]] = {True: defaultdict(list), False: defaultdict(list)}
    for record in store:
        if not is_finding(record) and record["run"]["paper"] != REFERENCE:
            side = times[store.on_gpu(record)]
            for level in levels(cell_of(record)):
                side[level].append(record["seconds"])
    return {level: statistics.fmean(seconds) for level, seconds in (times[True] | times[False]).items()}
