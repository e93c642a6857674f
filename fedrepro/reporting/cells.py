"""Go from a printed number to our runs: what the commands `compare` and `show` print."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedrepro import paths
from fedrepro.errors import one_of, require
from fedrepro.reporting import exhibits, state
from fedrepro.reporting.session import begin, main_runs
from fedrepro.runs import cache, changes, codehash, records, verification
from fedrepro.runs.index import Index
from fedrepro.runs.lines import Record, is_finding
from fedrepro.runs.store import Store

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
    from fedrepro.reporting import files

    paper = exhibits.find(exhibit_id).paper
    path = paths.figures() / paper / f"{exhibit_id}.csv"
    require(path.is_file(), "exhibit", f"one that was drawn, {path}", exhibit_id)
    table = files.read(path, dtype={"clients": str, "setting": str, "published": str}, keep_default_na=False)
    require({"published", "verdict"} <= set(table), "exhibit", "a table with printed numbers", exhibit_id)
    if dataset:
        table = table[table["dataset"].eq(one_of("--dataset", dataset, list(table["dataset"].unique())))]
    return table[[name for name in SHOWN if name in table]]


def runs_behind(exhibit_id: str, cell: Sequence[str] = ()) -> pd.DataFrame:
    """Return the runs behind an exhibit, or behind one number of it, with their keys.

    Args:
        cell: values that the cell's columns have, such as `["Cora", "FedStruct (H2V)", "10"]`, in any order.

    Returns:
        For a main table its stored runs under the paper's names: cell, seed, score, when it was computed, and key. For
        another exhibit all its runs: fields, state (`done`, `failed` or `missing`), and key.

    Raises:
        ArgumentError: there is no such exhibit, or no run has all these values.
    """
    import pandas as pd

    paper = exhibits.find(exhibit_id).paper
    if paper in exhibits.papers() and exhibit_id in exhibits.study(paper).tables:
        of = cache.state([*cache.below(paths.store(), (".jsonl",)), *cache.below(codehash.root(), cache.READ)])
        frame = pd.DataFrame(**cache.kept(f"show-{exhibit_id}", of, lambda: _main(exhibit_id).to_dict("split")))
    else:
        store, runs = Index(), state.wanted("paper")[exhibit_id]
        told = {key: "done" if key in store else "failed" if store.failure(key) else "missing" for key in runs}
        rows = [[*fields, told[key], key] for key, fields in runs.items()]
        frame = pd.DataFrame(rows, columns=[*state.FIELDS, "state", "key"])
    text = frame.drop(columns=["seed", "key"]).astype(str)
    names = [name for name in text if name != "when" and not pd.api.types.is_float_dtype(frame[name])]
    for value in cell:
        chosen = text.eq(str(value)).any(axis=1)
        if not chosen.any():
            known = sorted({entry for name in names for entry in text[name]} - {""})
            require(bool(known), f"the cells of {exhibit_id}", f"among stored runs in {paths.store()}", value)
            one_of(f"the cell of {exhibit_id}", str(value), known)
        frame, text = frame[chosen], text[chosen]
    return frame


def why_stale(record: Record) -> str:
    """Return which code has changed since a finished record was computed; nothing for one that still holds."""
    known = record["status"] == "ok" and not is_finding(record)
    return changes.reason(record) if known and verification.stale(Index(), [record]) else ""


def recipe(record: Record) -> str:
    """Return what a reader of a record needs to know beside it: whether it says anything, and how to compute it again.

    The text is one of comments and commands of a shell.
    """
    result = record["result"]
    if "verified" in result:
        return f"\n# the run that was computed again, and its command:\nfedrepro show {result['verified']}"
    told = records.note(result)
    again = f"\n# computes it again:\n{command(record)}"
    return f"\n# {told}\n{again}" if told else again


def _main(exhibit_id: str) -> pd.DataFrame:
    paper = exhibits.find(exhibit_id).paper
    notebook = begin(f"{paper}/show", profile="paper", device="cpu", seeds=0, engine="local")
    frame, _, layout = main_runs(notebook, exhibit_id)
    names = [name for name in dict.fromkeys([*layout.columns, *layout.rows]) if name in frame]
    columns = [*names, "seed", layout.value, "when", "key"]  # an empty store has none of them
    return frame.reindex(columns=columns).sort_values([*names, "seed"])


def environment(record: Record) -> dict[str, Any]:
    """Return where a record was computed: versions, machine, processor, device and threads."""
    known = str(record.get("environment", ""))  # none in a record that was written by hand
    return Store(containing=known).environments.get(known, {})


def command(record: Record) -> str:
    """Return the command that computes a record again, on the kind of device that computed it."""
    device = "cpu" if environment(record).get("device", "cpu") == "cpu" else "cuda"
    code = "from fedrepro.runs import Run; from fedrepro.runs.execute import compute; "
    code += f"print(compute([Run.from_dict({record['run']!r})], {device!r}))"
    return shlex.join(["python", "-c", code])
