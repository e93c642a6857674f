"""List the runs that would narrow the intervals of main tables, by their time a number, and compute them.

A printed number is narrow if the 95% interval of its difference reaches at most five points either way. For each wide
one, the plan has the fewest further seeds with which it would be narrow. Its expected half-width is that of `rule` at
the spread that the cell has now (the prior's if it has one run).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from fedrepro.errors import one_of, require
from fedrepro.reporting import compare, exhibits, frames, rule, state
from fedrepro.reporting.priors import prior
from fedrepro.reporting.session import Notebook, begin, main_runs
from fedrepro.runs.run import Run

MOST = 20  # seeds that a plan would buy for a number
WANTED = 0.9  # share of narrow numbers that is aimed at
COLUMNS = ("exhibit", "dataset", "method", "numbers", "runs", "time", "time in all", "narrow then")


class Wide(NamedTuple):
    """A printed number that is wide: its exhibit, its graph and row, and the runs that would make it narrow."""

    exhibit: str
    dataset: str
    method: str
    runs: tuple[Run, ...]
    seconds: float


def numbers(paper: str) -> tuple[int, int, list[Wide]]:
    """Return how many distinct numbers of a paper's main tables are tested and narrow, and those that runs can narrow.

    The last are in the order of their cost. A number that even `MOST` seeds would leave wide is in no list.
    """
    tested, narrow, wide = 0, 0, []
    notebook = begin(f"{paper}/narrow", profile="paper", device="cpu")
    for exhibit_id in exhibits.study(paper).tables:
        for cell, row, frame in _cells(notebook, exhibit_id):
            tested += 1
            if row["half95"] <= rule.WIDEST:
                narrow += 1
                continue
            count = next((n for n in range(int(row["runs"]) + 1, MOST + 1) if half95(cell, row, n) <= rule.WIDEST), 0)
            if count:
                runs = _further(notebook, frame, count)
                on_gpu = pd.Series([notebook.store.on_gpu(run) for run in frame.to_dict("records")], frame.index)
                seconds = len(runs) * float(frame["seconds"][on_gpu if on_gpu.all() else ~on_gpu].mean())
                wide.append(Wide(exhibit_id, row["dataset"], row["method"], tuple(runs), seconds))
    return tested, narrow, sorted(wide, key=lambda one: one.seconds)


def half95(cell: Mapping[str, Any], row: Mapping[str, Any], runs: int) -> float:
    """Return the half-width (points) that a number is expected to have with so many runs.

    Args:
        cell: of `exhibits.published`.
        row: of `compare.judge_table`, as the number is now.
    """
    known, point = prior(cell["paper"], cell["dataset"]), cell["point"]
    sd = math.sqrt(known.variance) if math.isnan(row["ours_sd"]) else row["ours_sd"] / point
    count = cell["runs_published"]
    anew, graphs = compare.over_graphs(cell)
    intervals = rule.intervals(
        0.0,
        *rule.moderated(sd, runs, known),
        runs,
        0.0,
        compare.as_sd(cell["spread_number"], cell["spread_kind"], count) / point,
        count,
        redrawn=bool(cell["redrawn"]),
        peak=cell["spread_kind"] == "peak",
        rounding=compare.last_digit(cell["value"]) / point,
        anew=rule.moderated(anew / point, graphs) if graphs > 1 else (math.nan, math.nan),
    )
    return float(intervals.half95)


def plan(papers: Sequence[str] = ()) -> tuple[pd.DataFrame, list[str]]:
    """Return what to buy, in order, and a sentence on each paper and on all together.

    Returns:
        One row for each main table, graph and method with wide numbers that runs can narrow: how many, the runs, their
        hours on one core, those of all rows up to it, and the share of the tested numbers that would be narrow.
    """
    names, by_paper = exhibits.papers(), {paper: numbers(paper) for paper in _chosen(papers)}
    said = [_told(names[paper], *known) for paper, known in by_paper.items() if known[0]]
    tested, narrow = sum(known[0] for known in by_paper.values()), sum(known[1] for known in by_paper.values())
    wide = sorted((one for known in by_paper.values() for one in known[2]), key=lambda one: one.seconds)
    said += [_told("All", tested, narrow, wide)] if len(said) > 1 else []
    groups: dict[tuple[str, str, str], list[Wide]] = {}
    for one in wide:
        groups.setdefault((one.exhibit, one.dataset, one.method), []).append(one)
    rows, spent = [], 0.0
    for key, group in sorted(groups.items(), key=lambda item: sum(one.seconds for one in item[1]) / len(item[1])):
        seconds, count = sum(one.seconds for one in group), sum(len(one.runs) for one in group)
        spent, narrow = spent + seconds, narrow + len(group)
        rows.append([*key, len(group), count, state.clock(seconds), state.clock(spent), f"{narrow / tested:.1%}"])
    return pd.DataFrame(rows, columns=list(COLUMNS)), said


def _chosen(papers: Sequence[str]) -> list[str]:
    known = [name for name in exhibits.papers() if exhibits.study(name).tables]
    return [one_of("paper", name, known) for name in papers] or known


def _told(name: str, tested: int, narrow: int, wide: Sequence[Wide]) -> str:
    """Return a sentence on how many numbers are narrow, and what would bring their share to `WANTED`."""
    share = f"{name}: {narrow} of {tested} tested numbers are narrow ({narrow / tested:.0%})"
    missing = math.ceil(WANTED * tested) - narrow
    if missing <= 0:
        return f"{share}." if wide or narrow == tested else f"{share}; up to {MOST} seeds leave the rest wide."
    chosen = wide[:missing]
    cost = f"{sum(len(one.runs) for one in chosen)} runs, {state.clock(sum(one.seconds for one in chosen))} on one core"
    if len(chosen) == missing:
        return f"{share}; the cheapest {missing} more bring it to {WANTED:.0%} ({cost})."
    some = f"runs can narrow {len(chosen)} more ({cost})" if chosen else "runs can narrow no other"
    return f"{share}; {some}, since up to {MOST} seeds leave the rest wide."


def buy(papers: Sequence[str], minutes: float) -> int:
    """Compute the plan's runs in its order for some minutes, and return how many were computed."""
    require(minutes > 0, "--budget", "a number of minutes > 0", minutes)
    end, done = time.monotonic() + 60 * minutes, 0
    wide = (one for paper in _chosen(papers) for one in numbers(paper)[2])
    for one in sorted(wide, key=lambda one: one.seconds):
        left = (end - time.monotonic()) / 60
        if left > 0:
            done += len(begin(exhibits.find(one.exhibit).notebook, profile="paper").execute(list(one.runs), left))
    return done


def _cells(notebook: Notebook, exhibit_id: str) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], pd.DataFrame]]:
    """Yield each distinct tested number of a main table: as it is printed, its row of the table, and its runs."""
    frame, published, layout = main_runs(notebook, exhibit_id)
    on = layout.key
    table = compare.judge_table(frame, published, on=on, value=layout.value)
    keys = pd.Series([compare.cell_key(run, on) for run in frame[on].to_dict("records")], index=frame.index)
    scored = frame[frame[layout.value].notna()]
    by_cell = {key: scored.loc[places] for key, places in scored.groupby(keys[scored.index]).groups.items()}
    for cell, row in zip(published.to_dict("records"), table.to_dict("records"), strict=True):
        again = str(cell.get("provenance") or "").startswith(frames.REPEATS)
        if row["verdict"] != rule.NOT_TESTED and not again:
            yield cell, row, by_cell[compare.cell_key(cell | {"dataset": row["dataset"]}, on)]


def _further(notebook: Notebook, frame: pd.DataFrame, count: int) -> list[Run]:
    """Return the runs of a cell with the lowest seeds that it lacks, up to a number of seeds."""
    record = notebook.store.get(frame["key"].iloc[0])
    known = Run.from_dict(record["run"]) if record else None
    seeds = {int(seed) for seed in frame["seed"]}
    new = [seed for seed in range(count + len(seeds)) if seed not in seeds][: count - len(seeds)]
    return [known.replace(seed=seed) for seed in new] if known else []
