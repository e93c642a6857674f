"""Say what there is and how far it is: exhibits by name, and how many of their runs are done. It imports no grid twice.

The keys of all runs of a profile are kept until a file of the package changes, and the store is read through its index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedrepro.errors import ArgumentError, did_you_mean
from fedrepro.reporting import exhibits
from fedrepro.runs import cache, changes, derived, statuses, verification
from fedrepro.runs.store import Store

if TYPE_CHECKING:
    from pandas import DataFrame

    from fedrepro.runs.run import Run

FIELDS = ("task", "method", "dataset", "prepare", "split", "partition", "clients", "seed")


def wanted(profile: str) -> dict[str, dict[str, list[Any]]]:
    """Return by exhibit the runs of a profile: their keys, and the `FIELDS` of each."""

    def compute() -> dict[str, dict[str, list[Any]]]:
        return {
            exhibit.id: {run.key: [getattr(run, name) for name in FIELDS] for run in exhibit.runs(profile)}
            for exhibit in exhibits.registered().values()
        }

    return cache.kept(f"runs-{profile}", cache.package(), compute)


def nameable() -> list[str]:
    """Return the names that `expand` takes."""
    every = exhibits.registered().values()
    return list(dict.fromkeys(name for exhibit in every for name in (exhibit.id, exhibit.paper, exhibit.notebook)))


def expand(names: Iterable[str]) -> list[exhibits.Exhibit]:
    """Return the exhibits of some names, all if there is none: an ID, a paper, or a notebook.

    Raises:
        ArgumentError: a name is none of these.
    """
    known, chosen = nameable(), {*names}
    for name in chosen - {*known}:
        allowed = "an exhibit, a paper or a notebook of `fedrepro list exhibits`"
        raise ArgumentError(f"NAME must be {allowed}. Got {name!r}.{did_you_mean(name, known)}")
    every = exhibits.registered().values()
    return [each for each in every if not chosen or chosen & {each.id, each.paper, each.notebook}]


def rows(store: Store, profile: str, names: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return one row an exhibit: `exhibit`, `notebook`, `title`, and the counts of `statuses.by_exhibit`.

    Rows of exhibits that were named also have `why_stale`, sentences that say which code has changed.
    """
    chosen, names = expand(names), {*names}
    runs = wanted(profile)
    cells = {
        exhibit.id: {key: (field[0], field[1], field[2]) for key, field in runs[exhibit.id].items()}
        for exhibit in chosen
    }
    counted = statuses.by_exhibit(store, cells)
    listed = []
    for exhibit in chosen:
        row = {"exhibit": exhibit.id, "notebook": exhibit.notebook, "title": exhibit.title} | counted[exhibit.id]
        if names:
            row["why_stale"] = changes.reasons(verification.stale(store, store.records(runs[exhibit.id])))
        listed.append(row)
    return listed


def cost(store: Store, runs: Iterable[Run]) -> dict[str, float]:
    """Return what some runs cost on one core.

    Returns:
        `runs`; how many are `stored`, and the `seconds` that these took; how many of these ran on a GPU (`on_gpu`), and
        their `gpu_seconds`, which are not in `seconds`; of the others `alike`, with a stored run of the same method on
        the same graph, and the seconds that they would take by the mean of such runs (`left`); and `unknown`, without
        one.
    """
    runs = list(dict.fromkeys(runs))
    like = derived.means(store) if any(run.key not in store for run in runs) else {}
    counts = ("runs", "stored", "seconds", "on_gpu", "gpu_seconds", "alike", "left", "unknown")
    told: dict[str, float] = dict.fromkeys(counts, 0)
    for run in runs:
        record, mean = store.get(run.key), like.get((run.task, run.method, run.dataset))
        told["runs"] += 1
        if record is not None:
            there = store.on_gpu(record)
            told["stored"], told["on_gpu"] = told["stored"] + 1, told["on_gpu"] + there
            told["gpu_seconds" if there else "seconds"] += record["seconds"]
        elif mean is not None:
            told["alike"], told["left"] = told["alike"] + 1, told["left"] + mean
        else:
            told["unknown"] += 1
    return told


def clock(seconds: float | None) -> str:
    """Return a time on one process as text, `?` where nothing like it has been measured."""
    if seconds is None:
        return "?"
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.1f} min"


def told(known: Mapping[str, float]) -> str:
    """Return what `cost` found in sentences."""
    if not known["runs"]:
        return "This notebook has no runs that are stored."
    said = [f"With the profile `paper` this notebook has {known['runs']:.0f} runs."]
    if known["stored"]:
        some = "All" if known["stored"] == known["runs"] else f"Of them {known['stored']:.0f}"
        took = f"took {clock(known['seconds'])} on one core."
        gpu = f"{known['on_gpu']:.0f} took {clock(known['gpu_seconds'])} on a GPU"
        rest = f", and the others {took}" if known["on_gpu"] < known["stored"] else "."
        said.append(f"{some} are stored" + (f": {gpu}{rest}" if known["on_gpu"] else f" and {took}"))
    if missing := known["runs"] - known["stored"]:
        said.append(
            f"{missing:.0f} {'is' if missing == 1 else 'are'} missing: running the notebook computes those that its"
            " profile asks for, and until then the exhibits show what is stored."
        )
    if known["alike"]:
        said.append(
            f"Those that are missing would take {clock(known['left'])} more, by the mean of the stored runs of the same"
            f" method on the same graph ({known['alike']:.0f} runs)."
        )
    if known["unknown"]:
        said.append(f"{known['unknown']:.0f} have no such run, so their cost is not known.")
    return " ".join(said)


def settings(runs: Sequence[Run]) -> DataFrame:
    """Return one row a method, with every value that its fields and options take in some runs; seeds are counted."""
    import pandas as pd

    rows = []
    for method in dict.fromkeys(run.method for run in runs):
        of_method = [run for run in runs if run.method == method]
        taken: dict[str, dict[str, None]] = {}
        for run in of_method:
            fields = {name: getattr(run, name) for name in ("dataset", "prepare", "split", "partition", "clients")}
            for name, value in {**fields, **run.options}.items():
                taken.setdefault(name, {})[str(value)] = None
        listed = {name: ", ".join(values) for name, values in taken.items() if any(values)}
        rows.append({"method": method, **listed, "seeds": len({run.seed for run in of_method}), "runs": len(of_method)})
    return pd.DataFrame(rows).fillna("")
