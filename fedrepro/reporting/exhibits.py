"""The exhibits of every paper: what each is, which notebook draws it, and the runs behind it.

An exhibit is one row of `papers/<paper>/exhibits.csv` and one `Grid` of `papers/<paper>/exhibits`. The row holds the
exhibit's ID, the paper's label, its kind, its notebook and its title. The grid holds the runs in the paper's setting
and the part of them that the other profiles compute. Listing exhibits needs neither torch nor a graph, and no grid.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedrepro import paths
from fedrepro.data.shapes import SHAPES, whole
from fedrepro.errors import ArgumentError, one_of
from fedrepro.runs.run import FIELDS, Run

if TYPE_CHECKING:
    from pandas import DataFrame, Series

PROFILES = ("smoke", "quick", "paper")
OURS = "ours"  # the kind of an exhibit that no paper has
ACROSS = "across"  # the room above the papers, which lists its exhibits as they do

SMOKE_ROUNDS, SMOKE_HIDDEN, SMOKE_CLIENTS = 2, 16, 5
SMOKE_MOST = {"hidden": SMOKE_HIDDEN, "generator_width": SMOKE_HIDDEN, "generator_epochs": 1}


def first_seed(run: Run) -> bool:
    """Return whether a run has seed 0."""
    return run.seed == 0


def keeps(**values: Sequence[Any]) -> Callable[[Run], bool]:
    """Return the rule that keeps the runs of seed 0 whose fields and options have one of some values.

    Args:
        values: a field or an option of a run to the values that it may have, such as `dataset=["Cora"]`; None stands
            for a run that lacks the option.
    """
    return lambda run: first_seed(run) and all(_value(run, name) in allowed for name, allowed in values.items())


@dataclass(frozen=True)
class Grid:
    """The runs of an exhibit, and how each profile reduces them.

    The profile `paper` has all runs of `paper()`. The profile `quick` has those that `quick` accepts, so that it is a
    part of `paper` by construction. The profile `smoke` has one run for each combination of `per`, made small: a
    stand-in, two rounds, 16 hidden units and at most five clients.

    Args:
        paper: returns the runs in the paper's setting.
        quick: decides which of them the profile `quick` has.
        per: names of fields or options of a run. `smoke` keeps the first run for each combination of their values.
        smoke: options that replace those of the runs in `smoke`, such as `{"nodes": 16}`. It may also be a function
            that returns the runs of `smoke`, for an exhibit whose small form follows another rule.
        seeded: whether the number of seeds that a user asks for replaces the grid's. It does not for tuning runs,
            whose seed no reported run uses.
        series: whether stored frames carry what the records keep of rounds and clients, see `frames.with_series`.
    """

    paper: Callable[[], Sequence[Run]]
    quick: Callable[[Run], bool] = first_seed
    per: Sequence[str] = ("task", "method", "model")
    smoke: Mapping[str, Any] | Callable[[], Sequence[Run]] = field(default_factory=dict)
    seeded: bool = True
    series: bool = False

    @cached_property
    def _wanted(self) -> Sequence[Run]:
        return tuple(self.paper())

    @property
    def task(self) -> str:
        """Return the task of the runs, such as `train`."""
        return self._wanted[0].task

    def runs(self, profile: str, seeds: int = 0) -> list[Run]:
        """Return the runs of a profile; with `seeds`, the same cells with seeds 0 to `seeds - 1`, seed slowest.

        Raises:
            ArgumentError: there is no such profile.
        """
        one_of("profile", profile, PROFILES)
        if profile == "smoke":
            runs = list(self.smoke()) if callable(self.smoke) else smallest(self._wanted, self.per, self.smoke)
        else:
            runs = [run for run in self._wanted if profile == "paper" or self.quick(run)]
        if seeds == 0 or not self.seeded:
            return list(dict.fromkeys(runs))
        cells = dict.fromkeys(run.replace(seed=0) for run in runs)
        return [cell.replace(seed=seed) for seed in range(seeds) for cell in cells]


def smallest(runs: Iterable[Run], per: Sequence[str], options: Mapping[str, Any]) -> list[Run]:
    """Return the first run for each combination of some fields and options, made small, with `options` replaced."""
    first: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        first.setdefault(tuple(_value(run, name) for name in per), run)
    return list(dict.fromkeys(shrunk(run, options) for run in first.values()))


def shrunk(run: Run, options: Mapping[str, Any]) -> Run:
    """Return a run on the stand-in of its graph (of Cora's for a larger graph), short and narrow."""
    known = dict(run.options)
    if run.task == "train":
        known["rounds"] = SMOKE_ROUNDS
    known |= {name: most for name, most in SMOKE_MOST.items() if known.get(name, 0) > most}
    name = whole(run.dataset)
    if name not in SHAPES:  # a graph that the package generates is small, and may have a client for each node
        return run.replace(options={**known, **options})
    small = SHAPES[name].nodes <= SHAPES["Cora"].nodes and not SHAPES[name].labels
    clients = min(run.clients, SMOKE_CLIENTS)
    return run.replace(dataset=f"{name if small else 'Cora'}~standin", clients=clients, options={**known, **options})


def _value(run: Run, name: str) -> Any:
    return getattr(run, name) if name in FIELDS else run.options.get(name)


@dataclass(frozen=True)
class Exhibit:
    """An exhibit: its ID, its paper, its label there, its kind, the notebook that draws it, and its title."""

    id: str
    paper: str
    label: str
    kind: str
    notebook: str
    title: str

    @property
    def grid(self) -> Grid:
        """Return the exhibit's grid; the paper's grids are imported for it.

        Raises:
            ArgumentError: the paper lists the exhibit and has no grid for it.
        """
        grids: dict[str, Grid] = paper_module(self.paper).GRIDS
        return grids[one_of(f"an exhibit that exhibits.csv of {self.paper} lists, in GRIDS", self.id, grids)]

    def runs(self, profile: str, seeds: int = 0) -> list[Run]:
        """Return the runs of a profile, see `Grid.runs`."""
        return self.grid.runs(profile, seeds)


def _package(paper: str) -> ModuleType:
    """Import and return the package of a paper, or of the room that compares all methods."""
    return importlib.import_module(f"fedrepro.{paper}" if paper == ACROSS else f"fedrepro.papers.{paper}")


def folders() -> list[str]:
    """Return all folders with exhibits: the papers in their order, the suite's own, and the comparison of methods."""
    package = importlib.import_module("fedrepro.papers")
    present = _modules(*package.__path__)
    return [name for name in package.ORDER if name in present] + sorted(present - set(package.ORDER)) + [ACROSS]


@cache
def _modules(*places: str) -> frozenset[str]:
    """Return the names of the modules in some folders, which are looked through once a process."""
    return frozenset(module.name for module in pkgutil.iter_modules(places))


def papers() -> dict[str, str]:
    """Return the printed name of each paper by its folder; a folder without `NAME` is no paper."""
    packages = {name: _package(name) for name in folders()}
    return {name: package.NAME for name, package in packages.items() if hasattr(package, "NAME")}


def folder(paper: str) -> Path:
    """Return the folder of a paper, with its list of exhibits, printed numbers and deviations.

    Raises:
        ArgumentError: no folder has this name.
    """
    return Path(str(_package(one_of("paper", paper, folders())).__file__)).parent


def paper_module(paper: str) -> ModuleType:
    """Import and return the package `exhibits` of a paper.

    It holds `GRIDS` (an ID to its grid). It may hold `CLAIMS`, and `prepare(frame, exhibit_id)`, which gives the frame
    of an exhibit's runs the paper's names. It may also hold `main_reading(frame, exhibit_id)`, which selects the runs
    of a main table that are compared with the printed numbers, where the exhibit has others too, and
    `printed_rows(published)`, which names the printed rows as these runs are named.
    """
    return importlib.import_module(f"{_package(one_of('paper', paper, folders())).__name__}.exhibits")


def listed(paper: str) -> list[dict[str, str]]:
    """Return the rows of a paper's list: id, label, kind, notebook (its name in the paper's folder) and title."""
    return paths.read_csv(folder(paper) / "exhibits.csv")


@cache
def registered() -> dict[str, Exhibit]:
    """Return every exhibit by its ID, in the order of the papers and their lists.

    Raises:
        ArgumentError: two papers list one ID, as when the folder of one was copied.
    """
    by_id: dict[str, Exhibit] = {}
    for paper in folders():
        for row in listed(paper):
            exhibit = by_id.setdefault(
                row["id"],
                Exhibit(row["id"], paper, row["label"], row["kind"], f"{paper}/{row['notebook']}", row["title"]),
            )
            if exhibit.paper != paper:
                raise ArgumentError(
                    f"An exhibit must be of one paper. {row['id']} is of {exhibit.paper} and of {paper}."
                )
    return by_id


def drawn_by(notebook: str) -> list[Exhibit]:
    """Return the exhibits that a notebook draws."""
    return [exhibit for exhibit in registered().values() if exhibit.notebook == notebook]


def find(exhibit_id: str) -> Exhibit:
    """Return the exhibit of an ID.

    Raises:
        ArgumentError: there is none.
    """
    return registered()[one_of("exhibit", exhibit_id, registered())]


@dataclass(frozen=True)
class MainTable:
    """How a main table of a paper is laid out.

    Args:
        headline: the columns and values that name the row of the paper's own method.
        rows, columns: the columns of stored and printed numbers that name a row and a column of the table.
        value: the column of the stored score, in the printed unit.
    """

    headline: Mapping[str, str]
    rows: Sequence[str] = ("method",)
    columns: Sequence[str] = ("dataset", "clients", "partition")
    value: str = "percent"

    @property
    def key(self) -> list[str]:
        """Return the columns that name a cell of the table."""
        return [*self.columns, *self.rows]


@dataclass(frozen=True)
class Study:
    """How a paper measured the numbers that it prints, from `papers/<paper>/study.json`.

    Args:
        runs: number of runs behind a printed mean.
        redrawn: a data set, or `*` for all others, to whether split and partition were drawn anew for each run (None
            where this is not stated) and the source of this statement.
        rows: a method to the same, for rows on which our runs draw nothing anew that the paper may have kept.
        tables: the main tables by their IDs.
        beside: exhibits that compare rows of a main table otherwise, with a clause that says how.
        claim: the ID of the claim that the paper rests on.
        learned: what came out and why, in words without measured digits, with the IDs of what shows it.
    """

    runs: int = 10
    redrawn: Mapping[str, tuple[bool | None, str]] = field(default_factory=lambda: {"*": (None, "not stated")})
    rows: Mapping[str, tuple[bool | None, str]] = field(default_factory=dict)
    tables: Mapping[str, MainTable] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)
    claim: str = ""
    learned: Sequence[str] = ()

    def drawn(self, dataset: str, method: str = "") -> bool | None:
        """Return whether a row's split and partition were drawn anew for each run, as ours; None if not known."""
        return self.rows.get(method, self.redrawn.get(dataset, self.redrawn["*"]))[0]


@cache
def study(paper: str) -> Study:
    """Return how a paper measured its numbers; the defaults of `Study` for a paper without this file.

    Raises:
        ArgumentError: no paper has this name.
    """
    file = folder(one_of("paper", paper, papers())) / "study.json"
    if not file.is_file():
        return Study()
    known = json.loads(file.read_text(encoding="utf-8"))
    tables = {id_: MainTable(**layout) for id_, layout in known.pop("tables").items()}
    return Study(**known, tables=tables)


def settings(paper: str) -> dict[str, Any]:
    """Return the tables of a paper's `settings.toml`."""
    return paths.read_toml(folder(paper) / "settings.toml")


def published(paper: str, name: str = "published.csv") -> DataFrame:
    """Return the numbers that a paper prints, one row a number.

    Args:
        paper: the paper's folder.
        name: a file of that folder. `elsewhere.csv` has numbers that another work prints for an exhibit's cells, with
            printed_in, protocol and citation instead of line, provenance and evidence.

    Returns:
        The columns exhibit, dataset, method, clients, partition, setting, metric, value, spread, spread_kind and line
        (in the paper's text) hold what is printed, as strings, empty where nothing is printed. The columns
        value_number and spread_number hold floats, NaN where nothing is printed. What a comparison needs besides is in
        `paper`, `point` (one accuracy point in the unit of the value), `runs_published` and `redrawn`, see `Study`. The
        column provenance says where a number comes from, and evidence why we say so:

            own                              the paper's own, as far as is known
            own, equal by rounding in FR-T2  equal to another cell of that table, as rounded numbers may be
            repeats FS-T2                    the same cell, printed in that table too; see `frames.distinct`
            equals FedAux Table 1            equal to a number of another work, which has another protocol
            another row of GFL-T2            a misprint: the number belongs to another row
            unknown                          there are reasons to doubt that it is the paper's own

    Raises:
        ArgumentError: no paper has this name.
    """
    import pandas as pd

    file = folder(one_of("paper", paper, papers())) / name
    frame = pd.read_csv(file, dtype=str, keep_default_na=False)
    for column in ("value", "spread"):
        frame[f"{column}_number"] = pd.to_numeric(frame[column], errors="coerce").astype(float)
    measured = study(paper)
    drawn = pd.Series(
        [measured.drawn(*names) for names in zip(frame["dataset"], frame["method"])], index=frame.index, dtype=object
    )
    return frame.assign(paper=paper, point=points(frame["metric"]), runs_published=measured.runs, redrawn=drawn)


def points(metrics: Series) -> Series:
    """Return one accuracy point in the unit of each metric: 1 for percent, and 0.01 for fractions."""
    return metrics.str.contains("percent|points").map({True: 1.0, False: 0.01})


def deviations(paper: str) -> DataFrame:
    """Return a paper's numbered deviations: id, what the paper says, what we do, why."""
    import pandas as pd

    return pd.read_csv(folder(one_of("paper", paper, papers())) / "deviations.csv")


def natural(text: str) -> list[Any]:
    """Return a sort key under which `FG-T2` precedes `FG-T10`; a part is (is text, number, text)."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text)]
