"""Say what there is and how far it is: exhibits by name, and how many of their runs are done. It imports no grid twice.

The keys of all runs of a profile are kept until a file of the package changes, and the store is read through its index.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fedrepro.errors import ArgumentError, did_you_mean
from fedrepro.runs import cache, verification
from fedrepro.runs.store import Store

if TYPE_CHECKING:
    from fedrepro.reporting.exhibits import Exhibit

FIELDS = ("task", "method", "dataset", "prepare", "split", "partition", "clients", "seed")


def wanted(profile: str) -> dict[str, dict[str, list[Any]]]:
    """Return by exhibit the runs of a profile: their keys, and the `FIELDS` of each."""
    from fedrepro.reporting.exhibits import registered

    def compute() -> dict[str, dict[str, list[Any]]]:
        return {
            exhibit.id: {run.key: [getattr(run, name) for name in FIELDS] for run in exhibit.runs(profile)}
            for exhibit in registered().values()
        }

    return cache.kept(f"runs-{profile}", cache.package(), compute)


def named(names: Iterable[str]) -> list[Exhibit]:
    """Return the exhibits of some names, all if there is none: an ID, a paper, or a notebook.

    Raises:
        ArgumentError: a name is none of these.
    """
    from fedrepro.reporting.exhibits import registered

    every, chosen = list(registered().values()), {*names}
    known = [name for exhibit in every for name in (exhibit.id, exhibit.paper, exhibit.notebook)]
    for name in chosen - {*known}:
        allowed = "an exhibit, a paper or a notebook of `fedrepro list exhibits`"
        raise ArgumentError(f"NAME must be {allowed}. Got {name!r}.{did_you_mean(name, known)}")
    return [each for each in every if not chosen or chosen & {each.id, each.paper, each.notebook}]


def rows(store: Store, profile: str, names: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return one row an exhibit: `exhibit`, `notebook`, `title`, and the counts of `verification.statuses`."""
    exhibits = named(names)
    runs = wanted(profile)
    cells = {
        each.id: {key: (field[0], field[1], field[2]) for key, field in runs[each.id].items()} for each in exhibits
    }
    counted = verification.statuses(store, cells)
    return [
        {"exhibit": each.id, "notebook": each.notebook, "title": each.title} | counted[each.id] for each in exhibits
    ]
