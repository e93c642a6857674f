"""Print what there is: notebooks, exhibits, methods, checks, data sets and partitions. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro import registry
from fedrepro.data.shapes import SHAPES
from fedrepro.errors import one_of
from fedrepro.reporting import exhibits, notebook, state, terminal

KINDS = ("notebooks", "exhibits", "methods", "checks", "attacks", "benchmarks", "datasets", "partitions")
TASKS = {"methods": ("train",), "checks": ("check", "partition", "traffic"), "attacks": ("attack",)}
TASKS |= {"benchmarks": ("bench",)}
HEADS = {"datasets": "data sets (name~standin: a synthetic graph of its shape)"}


def show(what: str = "") -> None:
    """Print all there is, or only what is of a kind or of a paper.

    Raises:
        ArgumentError: there is no such kind and no such paper.
    """
    papers = dict.fromkeys(source.paper for source in notebook.find())
    one_of("WHAT", what, ["", *KINDS, *papers])
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


def status(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print what `state.rows` gives, and below it why runs are stale, or how to ask for that."""
    counts = ("done", "wanted", "stale", "failed", "missing")
    terminal.table(
        ("exhibit", *counts, "time left", "what"),
        [
            (row["exhibit"], *(row[name] for name in counts), state.clock(row["seconds_missing"]), row["title"])
            for row in rows
        ],
        right=(*counts, "time left"),
        whole=("exhibit", *counts, "time left"),
    )
    for row in rows:
        for line in row.get("why_stale", ()):
            print(terminal.shown(f"\n{row['exhibit']}, stale: {line}"))
    if any(row["stale"] and "why_stale" not in row for row in rows):
        print("\n`fedrepro status EXHIBIT` says why runs are stale.")
