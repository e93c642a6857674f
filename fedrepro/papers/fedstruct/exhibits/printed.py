"""Compare numbers and sentences of the text with the paper's own tables (FS-Q1, FS-Q19).

Everything here but `prose_against_runs` is computed from the published numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from fedrepro import paths
from fedrepro.papers.fedstruct.exhibits.cells import CENTRAL, SPLIT, labelled
from fedrepro.papers.fedstruct.exhibits.settings import DATASETS, PARTITIONS
from fedrepro.reporting import exhibits, frames, rule

ACCURACY = "test accuracy (percent)"
CLOSE = rule.MARGIN  # points; the paper gives no number for close, far and stable (FS-CLOSE)
SLIGHT = 1.0  # points
ROUNDED = 0.015  # two numbers with two decimals agree within it
HETEROPHILIC = ("Chameleon", "Amazon Ratings")

# Points by which the left row of a sentence may lie below and above the right one. "Above" allows no equal numbers.
ALLOWED = {
    "similar": (CLOSE, CLOSE),
    "close": (CLOSE, math.inf),
    "above": (-0.001, math.inf),
    "far above": (-CLOSE, math.inf),
}
# Each row is a sentence in short, with its section, on two rows of one table or figure of the paper. The sentence is of
# the graphs that it names, or of all.
SENTENCES = exhibits.folder("fedstruct") / "sentences.csv"

Place = tuple[str, str, str, str]  # dataset, method, clients, partition


def accuracies(*tables: str, setting: str = "") -> dict[Place, float]:
    """Return the accuracies printed in some tables in one setting, by dataset, method, clients and partition."""
    frame = exhibits.published("fedstruct")
    frame = frame[frame["exhibit"].isin(tables) & frame["metric"].eq(ACCURACY) & frame["setting"].eq(setting)]
    keys = frame[["dataset", "method", "clients", "partition"]].itertuples(index=False, name=None)
    return dict(zip(keys, frame["value_number"]))


def value_of(cells: dict[Place, float], dataset: str, method: str, clients: str, partition: str) -> float:
    """Return a printed accuracy, or for `A - B` the difference of two; NaN where a table lacks one of them."""
    numbers = [
        cells.get((dataset, name, *(("1", "single") if name.startswith("Central") else (clients, partition))), math.nan)
        for name in method.split(" - ")
    ]
    return numbers[0] - sum(numbers[1:])


def prose_against_tables() -> pd.DataFrame:
    """Return every number of the text, the same number from the tables, and whether they agree but for rounding."""
    cells = accuracies("FS-T2", "FS-T6", "FS-T8")
    rows = []
    for row in exhibits.published("fedstruct").query("exhibit == 'FS-X1'").to_dict("records"):
        in_tables = value_of(cells, row["dataset"], row["method"], row["clients"], row["partition"])
        gap = row["value_number"] - in_tables
        state = "no such cell" if math.isnan(gap) else "agrees" if abs(gap) < ROUNDED else "differs"
        if row["setting"].endswith("labelled") or row["setting"].startswith("best depth"):
            in_tables, gap, state = math.nan, math.nan, "of a figure"  # another split or depth than the tables'
        where = {name: row[name] for name in ("setting", "dataset", "method", "partition", "clients")}
        rows.append({**where, "prose": row["value_number"], "tables": in_tables, "difference": gap, "state": state})
    return pd.DataFrame(rows)


def prose_against_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `prose_against_tables` with our mean for the same number and its runs (FS-X1).

    A number at the best depth is read off Figure 4(b), and has none here.

    Args:
        frame: the runs of FS-X1.
    """
    table = prose_against_tables()
    means, runs = [], []
    for row in table.to_dict("records"):
        of_share = row["state"] == "of a figure" and "%" in row["setting"]
        split = labelled(int(row["setting"].split("%")[0])) if of_share else SPLIT
        first, *others = (_scores(frame, name, row, split) for name in row["method"].split(" - "))
        for other in others:
            first = (first - other).dropna()
        known = len(first) and not row["setting"].startswith("best depth")
        means.append(float(first.mean()) if known else math.nan)
        runs.append(len(first) if known else 0)
    return table.assign(ours=means, runs=runs)


def _scores(frame: pd.DataFrame, method: str, row: dict[str, Any], split: str) -> pd.Series:
    where = {"method": method, "dataset": row["dataset"], "split": split}
    if not method.startswith("Central"):
        where |= {"clients": int(row["clients"]), "partition": row["partition"]}
    # The depth of Table 2 stands first in the grid, and those of Figure 4(b) behind it.
    return frames.scores(frames.select(frame, where).drop_duplicates("seed"), {}, "percent")


def claims_against_tables() -> pd.DataFrame:
    """Return the printed cells that contradict a sentence of the paper, one row a cell (FS-Q19)."""
    columns = ["claim", "dataset", "partition", "clients", "setting", "left", "right", "left value", "right value"]
    table = pd.DataFrame([*_apart(), *_order(), *_pruning()], columns=columns).drop_duplicates(ignore_index=True)
    return table.assign(difference=table["left value"] - table["right value"])


Row = tuple[str, str, str, str, str, str, str, float, float]  # the number of clients is empty where none is printed


def _apart() -> Iterator[Row]:
    """Yield the cells where two rows lie otherwise than a sentence allows."""
    for row in paths.read_csv(SENTENCES):
        below, over = ALLOWED[row["says"]]
        text, setting, left, right = (row[name] for name in ("text", "setting", "left", "right"))
        cells = accuracies(row["exhibit"], setting=setting)
        for (dataset, method, clients, partition), ours in cells.items():
            if method != left or dataset not in (row["graphs"].split("; ") if row["graphs"] else DATASETS):
                continue
            theirs = value_of(cells, dataset, right, clients, partition)
            if theirs - ours > below or ours - theirs > over:
                yield text, dataset, partition, clients, setting, left, right, ours, theirs


def _order() -> Iterator[Row]:
    """Yield the graphs where the gap of local training is not largest for random, then K-means, then Louvain."""
    cells = accuracies("FS-T6")
    text = "the local gap is largest for random, then K-means, for all graphs (Appendix F.1)"
    for dataset in DATASETS:
        gaps = {p: value_of(cells, dataset, f"{CENTRAL} - Local GNN", "10", p) for p in PARTITIONS}
        for left, right in (("random", "kmeans"), ("kmeans", "louvain")):
            if gaps[left] <= gaps[right]:
                yield text, dataset, "", "10", "", f"gap, {left}", f"gap, {right}", gaps[left], gaps[right]


def _pruning() -> Iterator[Row]:
    """Yield the cells of Table 7 that pruning moves by more than one point."""
    text, cells = "pruning changes very little (Appendix F.2)", accuracies("FS-T7")
    for (dataset, full, clients, partition), theirs in cells.items():
        pruned = full.removesuffix("-F")
        if pruned != full and abs((ours := cells[dataset, pruned, clients, partition]) - theirs) > SLIGHT:
            yield text, dataset, partition, clients, "", pruned, full, ours, theirs
