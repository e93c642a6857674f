"""Go from a printed number to our runs: what the commands `compare` and `show` print."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from decimal import Decimal
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

CELL = ("dataset", "method", "setting", "partition", "clients")
FOUND = ("runs", "difference", "half95", "verdict", "why")
NUMBERS = ("published_mean", "ours_mean", "difference", "half95")


def compared(exhibit_id: str, dataset: str = "") -> pd.DataFrame:
    """Return the words of an exhibit from its committed file, one row a printed number, with all numbers in percent.

    Returns:
        The columns that name the cell, with the `row` of the table if they alone do not; what is `published`, `ours`
        (the mean over runs), and, where another number of ours was compared with the published one, this number
        (`compared`); `runs`; and the `difference` of the two with the half-width of its 95% interval (`half95`), the
        verdict, and `why` it was found so.

    Raises:
        ArgumentError: there is no such exhibit, it compares with no printed number, or has no such data set.
    """
    from fedrepro.reporting import files

    paper = exhibits.find(exhibit_id).paper
    path = paths.figures() / paper / f"{exhibit_id}.csv"
    require(path.is_file(), "exhibit", f"one that was drawn, {path}", exhibit_id)
    text = {"clients": str, "setting": str, "published": str, "why": str}
    table = files.read(path, NUMBERS, dtype=text, keep_default_na=False, na_values=[""])
    needed = {"metric", "published", *CELL, *FOUND, *NUMBERS}
    tables = ", ".join(name for one in exhibits.papers() for name in exhibits.study(one).tables)
    allowed = f"a table that `compare.judge_table` made, such as {tables}"
    require(needed <= set(table), "exhibit", allowed, exhibit_id)
    if dataset:
        table = table[table["dataset"].eq(one_of("--dataset", dataset, list(table["dataset"].unique())))]
    point = exhibits.points(table["metric"])
    ours, held = table["ours_mean"] / point, table["published_mean"] / point + table["difference"]
    printed = [_percent(text, unit) for text, unit in zip(table["published"].fillna(""), point)]
    apart = held.where((held - ours).abs() > 1e-3)  # the file has six digits
    cell = [*CELL, *(["row"] if "row" in table and table.duplicated([*CELL]).any() else [])]
    return table.assign(published=printed, ours=ours, compared=apart)[[*cell, "published", "ours", "compared", *FOUND]]


def _percent(printed: str, point: float) -> str:
    """Return a printed number and its spread in percent, with the digits that were printed."""
    if point == 1 or not printed:
        return printed
    return " ± ".join(f"{Decimal(text).scaleb(2):f}" for text in printed.split(" ± "))


def runs_behind(exhibit_id: str, cell: Sequence[str] = ()) -> pd.DataFrame:
    """Return the runs behind an exhibit, or behind one number of it, with their keys.

    Args:
        cell: values that the cell's columns have, such as `["Cora", "FedStruct (H2V)", "10"]`, in any order.

    Returns:
        For a main table its stored runs under the paper's names: cell, seed, score, the `field` of the record that is
        this score (see `_fields`), when it was computed, and key. For another exhibit all its runs: fields, state
        (`done`, `failed` or `missing`), and key.

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
    """Return what a reader of a record needs to know next to it: whether it says anything, and how to compute it again.

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
    names = [name for name in dict.fromkeys(layout.key) if name in frame]
    if layout.value in frame:
        frame = frame.assign(field=_fields(frame, layout.value))
    columns = [*names, "seed", layout.value, "field", "when", "key"]  # an empty store has none of them
    return frame.reindex(columns=columns).sort_values([*names, "seed"])


def _fields(frame: pd.DataFrame, value: str) -> list[str]:
    """Return for each run the field of its result that is the table's score, such as `100 * after.best.test`.

    The field holds the score in all runs of a method. If several fields do, take the one that does so in most runs of
    the table. The name is empty if the score is computed from several fields.
    """
    import numpy as np
    import pandas as pd

    equal = {}
    for name in frame:
        if "." in str(name) and pd.api.types.is_numeric_dtype(frame[name]):
            for factor, told in ((1, f"{name}"), (100, f"100 * {name}")):
                alike = np.isclose(factor * frame[name].astype(float), frame[value].astype(float), rtol=1e-9)
                if alike.any():
                    equal[told] = alike
    likely = sorted(equal, key=lambda told: -int(equal[told].sum()))
    methods = frame["method"].to_numpy()
    of = {name: next((told for told in likely if equal[told][methods == name].all()), "") for name in set(methods)}
    return [of[name] for name in methods]


def printed_as(record: Record) -> list[str]:
    """Return a sentence for each main table that draws a record, with the field of the record that it takes."""
    said: dict[str, list[str]] = {}
    wanted = state.wanted("paper")
    for paper in exhibits.papers():
        for exhibit_id, layout in exhibits.study(paper).tables.items():
            if record["key"] in wanted[exhibit_id]:
                frame = runs_behind(exhibit_id)
                for score, field in frame.loc[frame["key"].eq(record["key"]), [layout.value, "field"]].to_numpy():
                    if field:
                        said.setdefault(f"{score:.4g}, the field {field} of its result", []).append(exhibit_id)
    return [f"in {', '.join(dict.fromkeys(ids))} it is {told}" for told, ids in said.items()]


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
