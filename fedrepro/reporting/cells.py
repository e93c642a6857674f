"""Go from a printed number to our runs: what the commands `compare` and `show` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedrepro import paths
from fedrepro.errors import ArgumentError, one_of, require

if TYPE_CHECKING:
    import pandas as pd

SHOWN = (
    "dataset", "method", "setting", "partition", "clients", "published", "ours_mean", "runs", "difference", "half95",
    "verdict",
)  # fmt: skip


def compared(exhibit_id: str, dataset: str = "") -> pd.DataFrame:
    """Return the words of an exhibit from its committed file, one row a printed number.

    Raises:
        ArgumentError: there is no such exhibit, it compares with no printed number, or has no such data set.
    """
    from fedrepro.reporting import exhibits, files

    paper = exhibits.find(exhibit_id).paper
    path = paths.figures() / paper / f"{exhibit_id}.csv"
    require(path.is_file(), "exhibit", f"one that was drawn, {path}", exhibit_id)
    table = files.read(path, dtype={"clients": str, "setting": str, "published": str}, keep_default_na=False)
    require({"published", "verdict"} <= set(table), "exhibit", "a table with printed numbers", exhibit_id)
    if dataset:
        table = table[table["dataset"].eq(one_of("--dataset", dataset, list(table["dataset"].unique())))]
    return table[[name for name in SHOWN if name in table]]


def runs_behind(exhibit_id: str, cell: Sequence[str]) -> pd.DataFrame:
    """Return the stored runs behind one number of a main table: its cell, seed, score, when it was computed, and key.

    Args:
        cell: values that the cell's columns have, such as `["Cora", "FedStruct (H2V)", "10"]`, in any order.

    Raises:
        ArgumentError: the exhibit is no main table, or no stored run has all these values.
    """
    from fedrepro.reporting.session import begin, main_runs

    notebook = begin(f"{_paper(exhibit_id)}/show", profile="paper", device="cpu", seeds=0, engine="local")
    frame, _, layout = main_runs(notebook, exhibit_id)
    names = [name for name in dict.fromkeys([*layout.columns, *layout.rows]) if name in frame]
    text = frame[names].astype(str)
    for value in cell:
        chosen = text.eq(str(value)).any(axis=1)
        if not chosen.any():
            known = sorted({entry for name in names for entry in text[name]})
            raise ArgumentError(f"The cell of {exhibit_id} must be named by {', '.join(known)}. Got {value!r}.")
        frame, text = frame[chosen], text[chosen]
    return frame[[*names, "seed", layout.value, "when", "key"]].sort_values([*names, "seed"])


def _paper(exhibit_id: str) -> str:
    from fedrepro.reporting import exhibits

    return exhibits.find(exhibit_id).paper
