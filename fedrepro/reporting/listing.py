"""Print what there is: notebooks, exhibits, methods, data sets, stored runs and records. Nothing here needs torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedrepro import registry
from fedrepro.data.shapes import SHAPES
from fedrepro.errors import ArgumentError, did_you_mean
from fedrepro.reporting import cells, describing, exhibits, notebook, state, terminal
from fedrepro.runs.lines import Record

if TYPE_CHECKING:
    from pandas import DataFrame

KINDS = ("notebooks", "exhibits", "methods", "checks", "attacks", "benchmarks", "datasets", "partitions")
TASKS = {"methods": ("train",), "checks": ("check", "partition", "traffic"), "attacks": ("attack",)}
TASKS |= {"benchmarks": ("bench",)}
HEADS = {"datasets": "data sets (name~standin: a synthetic graph of its shape)"}


def nameable() -> list[str]:
    """Return the words that `show` takes: kinds, papers, methods and the like, and partitions."""
    papers = dict.fromkeys(source.paper for source in notebook.find())
    registered = dict.fromkeys(name for task in registry.TASKS for name in registry.names(task))
    return [*KINDS, *papers, *registered, *registry.PARTITIONS]


def show(what: str = "") -> None:
    """Print all there is, only what is of a kind or of a paper, or what a method, check, attack or partition is.

    Raises:
        ArgumentError: there is none of these.
    """
    papers = dict.fromkeys(source.paper for source in notebook.find())
    if what and what not in (*KINDS, *papers):
        if what not in nameable():
            allowed = f"{', '.join(map(repr, KINDS))}, a paper, a method, check, attack or benchmark, or a partition"
            raise ArgumentError(f"WHAT must be one of {allowed}. Got {what!r}.{did_you_mean(what, nameable())}")
        describing.show(what)
        return
    paper = what if what in papers else ""
    if what == "exhibits":
        known = [(each.id, each.notebook, each.title) for each in exhibits.registered().values()]
        terminal.table(("exhibit", "notebook", "title"), known, whole=("exhibit", "notebook"))
    if what in ("", "notebooks", paper):
        print("notebooks")
        for source in notebook.find():
            if paper in ("", source.paper):
                with_runs = [exhibit.id for exhibit in exhibits.drawn_by(source.name)]
                print(f"  {source.name:28s} {source.title}")
                terminal.lines(with_runs or source.exhibits, 4)
    listed = {kind: [name for task in tasks for name in registry.names(task)] for kind, tasks in TASKS.items()}
    listed |= {"datasets": list(SHAPES), "partitions": list(registry.PARTITIONS)}
    for kind, names in listed.items():
        if what in ("", kind):
            print(f"{'' if what else chr(10)}{HEADS.get(kind, kind)}")
            terminal.lines(names, between=",")
    if what in (*TASKS, "partitions"):
        print("\n`fedrepro list NAME` says what one of them is, and which options it takes.")


def status(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print what `state.rows` gives, and below it what "not at hand" means and why runs are stale, or how to ask."""
    counts = ("done", "wanted", "stale", "failed", "missing", "not at hand")
    numbers = [[row[name.replace(" ", "_")] for name in counts] for row in rows]
    terminal.table(
        ("exhibit", *counts, "time left", "what"),
        [
            (row["exhibit"], *counted, state.clock(row["seconds_missing"]), row["title"])
            for row, counted in zip(rows, numbers, strict=True)
        ],
        right=(*counts, "time left"),
        whole=("exhibit", *counts, "time left"),
    )
    if any(row["not_at_hand"] for row in rows):
        print("\nnot at hand: runs that are not done, on a graph that is neither here nor fetched unasked.")
        print("They count neither as missing nor in the time left. `fedrepro data NAME` says how to get a graph.")
    for row in rows:
        for line in row.get("why_stale", ()):
            print(terminal.shown(f"\n{row['exhibit']}, stale: {line}"))
    if any(row["stale"] and "why_stale" not in row for row in rows):
        print("\n`fedrepro status EXHIBIT` says why runs are stale.")


def compared(frame: DataFrame) -> None:
    """Print what `cells.compared` gives, and below it what its columns mean."""
    terminal.frame(frame, notes=("why",))
    print("\nNumbers are in percent.")
    if frame["difference"].notna().any():
        print("difference is compared (where it is empty, ours) minus published, in points.")
        print("half95 is half the width of the 95% interval of the difference.")


def runs(frame: DataFrame) -> None:
    """Print what `cells.runs_behind` gives, and how to see one of these runs."""
    terminal.frame(frame.assign(key=frame["key"].str[:16]), whole=("key",), notes=("field",))
    if (stored := frame["key"][frame["key"].ne("")]).size:
        print("\n# the record of one of these runs, and the command that computes it again:")
        print(f"fedrepro show {stored.iloc[0]}")


def record(stored: Record) -> None:
    """Print a stored record, what tables take from it, and the command that computes it again."""
    machine = cells.environment(stored)
    whole = stored | {"environment": machine} if machine else stored
    print(terminal.shown(json.dumps(whole, indent=1, ensure_ascii=False)))
    for told in cells.printed_as(stored):
        print(terminal.shown(f"\n# {told}"))
    if old := cells.why_stale(stored):
        print(terminal.shown(f"\n# stale: {old}"))
    print(terminal.shown(cells.recipe(stored)))


def graphs(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print the data sets, as rows of `catalogue.rows`, and how to learn more of one."""
    shown = ("name", "here", "download_MB", "nodes", "undirected_edges", "features", "classes", "licence")
    heads = ("name", "here", "MB", "nodes", "edges", "features", "classes", "licence")
    words = {True: "yes", False: "no"}
    lines = [[words[row[key]] if key == "here" else row[key] for key in shown] for row in rows]
    terminal.table(heads, lines, right=heads[2:7], whole=heads[:2])
    print("\n`fedrepro data NAME` says where a graph is; `--fetch NAME` downloads it.")


def announce(runs: int, seconds: float) -> None:
    """Say what `verify` is going to cost before it begins."""
    told = f"{runs} run{'s' if runs > 1 else ''} to compute again, with those beside them"
    cost = f"when they were stored they took {state.clock(seconds)}, one after the other"
    hint = "--budget MIN ends earlier, --cheapest begins with those that cost least"
    print(f"fedrepro: {told}; {cost}; {hint}", file=sys.stderr, flush=True)


def referenced(computed: tuple[int, int]) -> int:
    """Print what `references.compute` gives; return 1 if a reference run is still missing, else 0."""
    done, left = computed
    print(f"{done} reference run{'' if done == 1 else 's'} computed, {left} missing")
    return int(left > 0)


def verified(frame: DataFrame) -> int:
    """Print what `verification.verify` gives.

    Returns:
        1 if a run was found to differ, failed, was lost or damaged, or if none could be compared, else 0.
    """
    verdicts = set(frame["verdict"])
    if left := frame.attrs.get("left", 0):
        print(f"{left} run{'s were' if left > 1 else ' was'} left out, which the budget does not hold", file=sys.stderr)
        if not verdicts:
            return 1
    if not verdicts:
        print("the store has no runs to verify")
        return 0
    terminal.frame(frame.assign(key=frame["key"].str[:16]), whole=("key", "verdict"), notes=("error",))
    if verdicts == {"unavailable"}:
        print("Nothing was compared, since the graphs of these runs cannot be had here.", file=sys.stderr)
        return 1
    return 1 if verdicts & {"differs", "failed", "lost", "damaged"} else 0
