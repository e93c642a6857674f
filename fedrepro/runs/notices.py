"""Report what a reader of a frame of finished runs would miss: failures, old code, constant predictions."""

from __future__ import annotations

import re
import sysconfig
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro import registry
from fedrepro.data.shapes import SHAPES, whole
from fedrepro.errors import FedreproError
from fedrepro.runs import process, provenance, records
from fedrepro.runs.lines import Record, cell_of

if TYPE_CHECKING:
    from pandas import DataFrame

PACKAGE = Path(__file__).resolve().parent.parent


def counted(what: str, troubles: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line for each error, such as `3 runs failed: RuntimeError: ...`."""
    counts = Counter(trouble["error"].partition("\n")[0] for trouble in troubles)
    return [f"{count} run{'s' if count > 1 else ''} {what}: {error}" for error, count in counts.items()]


def troubles(frame: DataFrame) -> list[str]:
    """Return one line for each error of the runs that a frame of `execute` lacks."""
    return [*counted("failed", frame.attrs["failed"]), *counted("left out", frame.attrs["unavailable"])]


def emptied(frame: DataFrame) -> list[str]:
    """Return a line that names the runs of a frame of `execute` which all failed or were left out, if they did."""
    lost = [trouble["run"] for trouble in (*frame.attrs["failed"], *frame.attrs["unavailable"])]
    if not lost or not frame.empty:
        return []
    names = dict.fromkeys(" on ".join(filter(None, (run["method"], run["dataset"]))) for run in lost)
    listed = ", ".join([*names][:5]) + (", ..." if len(names) > 5 else "")
    return [f"The frame is empty, and has no column of scores, since none of its runs finished: {listed}."]


def constant(frame: DataFrame) -> list[str]:
    """Return a line that counts the runs which are no better than a constant prediction, by method and graph."""
    if "note" not in frame:
        return []
    told = frame[frame["note"].ne("")]
    counts = told.groupby(["method", "dataset"], sort=False).size()
    listed = ", ".join(f"{method} on {dataset} ({count})" for (method, dataset), count in counts.items())
    runs = "1 run is" if len(told) == 1 else f"{len(told)} runs are"
    return [f"{runs} no better than a constant prediction, see the column `note`: {listed}"]


def edited(results: Sequence[Record]) -> list[str]:
    """Return a line for each method or graph registered by hand that has changed since some results were computed.

    `fedrepro status` tells the same about methods of the package.
    """
    own = [record for record in results if registry.by_hand(*cell_of(record)[:2])]
    now = {cell: provenance.current(*cell) for cell in {cell_of(record) for record in own}}
    methods = Counter(cell_of(record)[1] for record in own if record["fingerprint"] != now[cell_of(record)])
    graphs = Counter(cell_of(record)[2] for record in _on_other_graphs(results))
    code, graph = "by other code of it: raise `version` in `register`", "on another graph: give this one another name"
    return [
        f"{count} result{'s' if count > 1 else ''} of {name!r} {'were' if count > 1 else 'was'} computed {mend}, "
        "or give `execute` their keys as `again`."
        for counts, mend in ((methods, code), (graphs, graph))
        for name, count in counts.items()
    ]


def _on_other_graphs(results: Sequence[Record]) -> list[Record]:
    """Return the results on a graph registered by hand that is another one now."""
    registered = [record for record in results if record.get("data") and whole(cell_of(record)[2]) not in SHAPES]
    if not registered:
        return []
    from fedrepro.data import datasets  # takes long to import

    def now(name: str, seed: int) -> str:
        with suppress(FedreproError), process.restored(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were told when the runs were computed
            datasets.load(name, seed)
        return provenance.data(name, seed)

    known = {graph: now(*graph) for graph in {_graph(record) for record in registered}}
    return [record for record in registered if known[_graph(record)] not in ("", record["data"])]


def _graph(record: Record) -> tuple[str, int]:
    return record["run"]["dataset"], record["run"]["seed"]


def described(error: BaseException) -> str:
    """Return type and message of an error, and in its first line the code that an unexpected one came from.

    That is the last line outside Python and its installed packages that the error went through. Errors that this
    package raises on purpose have sentences that need none.
    """
    first, *more = records.describe(error).split("\n")
    frames = [] if isinstance(error, FedreproError) else traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if not _installed(frame.filename)]
    return "\n".join([f"{first} ({_file(ours[-1].filename)}:{ours[-1].lineno})" if ours else first, *more])


def _installed(file: str) -> bool:
    standard = sysconfig.get_paths()["stdlib"]
    elsewhere = "site-packages" in Path(file).parts or Path(file).is_relative_to(standard) or file.startswith("<frozen")
    return elsewhere and not Path(file).is_relative_to(PACKAGE)


def _file(path: str) -> str:
    """Return the name of a file; of one of this package the way to it."""
    if re.search(r"ipykernel_\d+|<ipython-input", path):
        return "a cell"
    place = Path(path)
    return place.relative_to(PACKAGE.parent).as_posix() if place.is_relative_to(PACKAGE) else place.name
