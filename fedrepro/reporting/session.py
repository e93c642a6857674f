"""Serve the cells of a notebook: check its parameters, find and compute its runs, write its exhibits."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro import paths
from fedrepro.errors import DamagedError, FedreproError, is_whole, one_of, require
from fedrepro.reporting import exhibits, shown, state, terminal
from fedrepro.runs import notices, verification
from fedrepro.runs.executors import ENGINES, resolved
from fedrepro.runs.provenance import commit
from fedrepro.runs.store import Store, opened

if TYPE_CHECKING:
    from pandas import DataFrame

    from fedrepro.runs.run import Run

CHOICES: dict[str, tuple[str, ...]] = {"profile": ("smoke", "quick", "paper"), "device": ("auto", "cpu", "cuda")}
CHOICES["engine"] = ENGINES
MINE = "mine"  # instead of a paper: notebooks and results of the user
SCORES = "accuracy|F1"  # the metrics that a main table compares
PARAMETERS = ("profile", "device", "seeds", "engine")

asked: set[str] = set()  # keys of the runs that this process asked the store for, see `trace`
executed: set[str] = set()  # and of those that it wanted computed

COLUMNS: dict[str, tuple[str, ...]] = {
    "checks": ("id", "statement", "measured", "bound", "verdict"),
    "claims": ("id", "paper", "claim", "check", "evidence", "verdict"),
    "deviations": ("id", "what the paper says", "what we do", "why"),
}


def check_parameter(name: str, value: Any, default: Any) -> Any:
    """Return `value` if it has the type of `default` and, where there are choices, is one of them.

    Raises:
        ArgumentError: it has another type or is no choice.
    """
    if name in CHOICES:
        return one_of(name, value, CHOICES[name])
    if name == "seeds":
        allowed = "an integer >= 0 (0: as many as the profile has)"
        require(is_whole(value, 0), name, allowed, value)
        return value
    if isinstance(default, float) and type(value) is int:
        return float(value)
    require(type(value) is type(default), name, f"of type {type(default).__name__}, like {default!r}", value)
    return value


@dataclass
class Notebook:
    """A notebook at work, as `begin` returns it."""

    name: str
    profile: str
    device: str
    seeds: int
    engine: str
    started: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    _frames: dict[str, DataFrame] = field(default_factory=dict, repr=False)

    @property
    def paper(self) -> str:
        return self.name.split("/")[0]

    @property
    def file(self) -> str:
        """Return the name of the store's file for the runs that this notebook computes."""
        return self.name.replace("/", "-") + ".jsonl"

    @cached_property
    def store(self) -> Store:
        """Return the store, which is read once; `execute` looks for new records in it."""
        if self.profile == "smoke" and not os.environ.get("FEDREPRO_STORE"):
            return Store(paths.smoke() / "results")
        return Store(paths.personal()) if self.paper == MINE else opened()

    @property
    def figures(self) -> Path:
        """Return the folder of exhibits."""
        apart = paths.smoke() if self.profile == "smoke" else paths.personal() if self.paper == MINE else None
        return apart / "figures" if apart and not os.environ.get("FEDREPRO_FIGURES") else paths.figures()

    def runs(self, exhibit_id: str) -> list[Run]:
        """Return the runs of an exhibit under this notebook's profile and seeds."""
        return exhibits.find(exhibit_id).runs(self.profile, self.seeds)

    def execute(
        self,
        runs: str | Sequence[Run],
        budget: float | None = None,
        side_by_side: int | str | None = None,
        again: Collection[str] = (),
    ) -> DataFrame:
        """Compute what the store lacks, for `budget` minutes at most, and return the frame, one row a run.

        Print how many runs failed or lack their graph, one line an error, and how many are no better than a constant
        prediction. Warn of results of an own method that other code of it computed.

        Args:
            runs: runs, or the ID of an exhibit for those of this profile.
            side_by_side: how many training runs that differ only in their seed are trained as one batch, or `auto`;
                by default one on the CPU, and ten on a GPU.
            again: keys of runs to compute although the store has them.

        Raises:
            FedreproError: a run failed in profile `smoke`, which has no run that is expected to.
            DamagedError: a file of a graph is damaged. The runs of other graphs are stored.
        """
        self._frames.clear()
        wanted = self.runs(runs) if isinstance(runs, str) else runs
        frame = self._engine(wanted, budget, side_by_side=side_by_side, again=again)
        for line in [*notices.troubles(frame), *notices.constant(frame)]:
            print(terminal.shown(line))
        if (failed := frame.attrs["failed"]) and self.profile == "smoke":
            raise FedreproError("; ".join(notices.counted("failed", failed)))
        for trouble in frame.attrs["unavailable"]:
            kind, _, text = trouble["error"].partition(": ")
            if kind == DamagedError.__name__:
                raise DamagedError(text)
        return frame

    def stored(self, exhibit_id: str | Sequence[Run]) -> DataFrame:
        """Return the frame of all runs of an exhibit that the store holds, under the paper's names; compute nothing.

        All profiles show all that the store holds, but for `smoke`, whose store is a throw-away one. Given runs instead
        of an ID, return their frame as it is.
        """
        if not isinstance(exhibit_id, str):
            return self._engine(exhibit_id, 0.0)
        if exhibit_id not in self._frames:
            exhibit = exhibits.find(exhibit_id)
            profile = "smoke" if self.profile == "smoke" else "paper"
            frame = self._engine(exhibit.runs(profile, self.seeds if profile == "smoke" else 0), 0.0)
            frame.attrs.clear()  # pandas copies them, entry by entry, with every part of a frame
            if exhibit.grid.series:
                from fedrepro.reporting import frames

                frame = frames.with_series(frame, self.store)
            module = exhibits.paper_module(exhibit.paper)
            self._frames[exhibit_id] = module.prepare(frame, exhibit_id) if hasattr(module, "prepare") else frame
        return self._frames[exhibit_id]

    def published(self, exhibit_id: str = "", reading: str = "") -> DataFrame:
        """Return the numbers that the paper prints, of one exhibit or of all, or `flagged` for one of its readings.

        Raises:
            ArgumentError: a reading that is not listed, or one without an exhibit.
        """
        from fedrepro.reporting import readings

        require(bool(exhibit_id) or not reading, "reading", "given together with an exhibit", reading)
        frame = exhibits.published(self.paper)
        frame = frame[frame["exhibit"].eq(exhibit_id)] if exhibit_id else frame
        return readings.flagged(frame, reading) if reading else frame

    def main_table(self, exhibit_id: str) -> tuple[DataFrame, DataFrame]:
        """Compare a main table of the paper with the store. Return it, and write and return the leads of its method.

        Returns:
            The table as `compare.judge_table` and the leads as `effects.effects` give them; the leads are written to
            `<ID>-effects.csv`, and the table in the paper's layout to `<ID>.md` and `<ID>.tex`.

        Raises:
            ArgumentError: the paper's `study.json` has no such table.
        """
        from fedrepro.reporting import compare, effects
        from fedrepro.reporting import layout as layouts

        frame, published, layout = main_runs(self, exhibit_id)
        table = compare.judge_table(frame, published, on=layout.key, value=layout.value)
        leads = effects.effects(frame, published, layout)
        whole = layouts.wide(table, layout)
        for kind, text in (("md", layouts.markdown(whole)), ("tex", layouts.latex(whole))):
            paths.replace_file(self.figures / self.paper / f"{exhibit_id}.{kind}", text.encode())
        return table, self.save(f"{exhibit_id}-effects", leads)

    def readings(self, exhibit_id: str, others: Mapping[str, DataFrame]) -> DataFrame:
        """Compare the other readings of a main table with its printed numbers. Write them, and return the causes.

        Args:
            others: the runs of each reading by its name in the paper's `readings.csv`.

        Returns:
            What `readings.causes` gives. The readings are written to `<ID>-by-reading.csv`, the causes to
            `<ID>-causes.csv`.
        """
        from fedrepro.reporting import readings

        frame, published, layout = main_runs(self, exhibit_id)
        own = {name: printed(self, exhibit_id, name) for name in others}
        found = readings.table(frame, others, published, layout, own)
        self.save(f"{exhibit_id}-by-reading", found)
        return self.save(f"{exhibit_id}-causes", readings.causes(found))

    def came_out(self, *shown: str | DataFrame) -> Any:
        """Return what tables, claims and checks came to as a list in Markdown, one fact a sentence.

        Args:
            shown: IDs of main tables, which are read from the files that this paper's notebooks wrote, and frames of
                judged claims or of checks.
        """
        from IPython.display import Markdown

        from fedrepro.reporting import answer, outcome

        ids = [one for one in shown if isinstance(one, str)]
        # Claims are told where they are judged: those on file may be of a notebook that is still to run.
        known = answer.numbers(self.figures, self.paper, ids) | {"claims": {}} if ids else {}
        told = outcome.of_tables(known, " and ".join(ids)) if ids else []
        told += [line for one in shown if not isinstance(one, str) for line in outcome.sentences(one)]
        return Markdown("\n".join(f"- {one}" for one in told))  # type: ignore[no-untyped-call]

    def cost(self) -> Any:
        """Return what this notebook's runs cost with the profile `paper`, in sentences that the store gives."""
        from IPython.display import Markdown

        own = exhibits.drawn_by(self.name) if self.profile != "smoke" else []
        runs = [run for exhibit in own for run in exhibit.runs("paper")]
        text = state.told(state.cost(self.store, runs)) if runs else "The profile `smoke` measures no time."
        return Markdown(text)  # type: ignore[no-untyped-call]

    def settings(self, exhibit_id: str | Sequence[Run]) -> DataFrame:
        """Return what an exhibit trains: one row a method, with every field and option of its runs in the paper's grid.

        Runs may be given instead of an ID. A column lists the values that the method's runs take, such as `10, 20`
        clients. Seeds are counted.
        """
        runs = exhibits.find(exhibit_id).runs("paper") if isinstance(exhibit_id, str) else exhibit_id
        return state.settings(runs)

    def _engine(self, runs: Sequence[Run], budget: float | None, **more: Any) -> DataFrame:
        """Call `execute`, with `more` of its arguments, and note which runs were asked for."""
        from fedrepro.runs import execute as engine

        runs = list(runs)
        if self.paper != MINE:  # whose runs are in a separate store, and are not counted for the suite
            asked.update(run.key for run in runs)
            executed.update(run.key for run in runs if budget is None)
        return engine.execute(
            runs,
            store=self.store,
            file=self.file,
            executor=None if self.engine == "local" else self.engine,
            budget=budget,
            device=self.device,
            quiet=True,
            # Starting a worker takes longer than a smoke run, and two benchmarks at once measure each other.
            workers=1 if self.profile == "smoke" or any(run.task == "bench" for run in runs) else None,
            **more,
        )

    def save(self, exhibit_id: str, frame: DataFrame, figure: Any = None) -> DataFrame:
        """Write an exhibit, `figures/<paper>/<ID>.csv` and, with a figure, `.svg`; return the frame."""
        from fedrepro.reporting import files

        files.save(self.paper, exhibit_id, frame, figure, self.figures)
        return frame

    def checks(self, rows: DataFrame | Iterable[Mapping[str, Any]]) -> DataFrame:
        """Write theorem and identity checks: rows of id, statement, measured, bound, verdict."""
        return self._merged("checks", rows)

    def claims(self, *ids: str) -> DataFrame:
        """Judge the paper's claims with these IDs on the store, write and return them.

        Returns:
            One row a claim: id, paper, claim, check, evidence, verdict.
        """
        from fedrepro.reporting import claims

        chosen = claims.select(getattr(exhibits.paper_module(self.paper), "CLAIMS", ()), ids)
        return self._merged("claims", claims.claims_table(chosen, self.stored, self.paper))

    def deviations(self, *ids: str) -> DataFrame:
        """Write and return where the suite parts from the paper: the numbered deviations with these IDs, or all."""
        table = exhibits.deviations(self.paper)
        for id_ in ids:
            one_of("deviation", id_, list(table["id"]))
        return self._merged("deviations", table[table["id"].isin(ids)] if ids else table)

    def _merged(self, kind: str, rows: DataFrame | Iterable[Mapping[str, Any]]) -> DataFrame:
        from fedrepro.reporting import files

        return files.merge(self.figures, self.paper, kind, COLUMNS[kind], rows)

    def provenance(self, frame: DataFrame | None = None) -> DataFrame:
        """Return what this notebook rests on: parameters, versions, and numbers of runs.

        The runs are counted by whether they were computed now, came from the store, or are stale: computed by code
        that has changed since and that no verification cleared. They are also counted by CPU and kind of GPU.
        """
        import platform
        from importlib.metadata import version

        import pandas as pd

        rows = {
            "notebook": self.name,
            "profile": self.profile,
            "device": self.device,
            "engine": self.engine,
            "commit": commit(),
            "Python": platform.python_version(),
            **{package: version(package) for package in ("fedrepro", "torch", "torch-geometric", "numpy")},
        }
        if frame is not None and len(frame):
            now = int((frame["when"] >= self.started.strftime("%Y-%m-%dT%H:%M:%S")).sum())
            old = verification.stale(self.store, self.store.records(frame["key"].unique()))
            known = self.store.environments
            devices = frame["environment"].map(lambda name: known.get(name, {}).get("device", "cpu"))
            counts = devices.replace("cpu", "CPU").value_counts().items()
            rows |= {
                "runs from the store": str(len(frame) - now),
                "runs by code changed since, not verified": str(len(old)),
                "runs computed now": str(now),
                "computed on": ", ".join(f"{name} ({count})" for name, count in counts),
                "measured between": f"{frame['when'].min()} and {frame['when'].max()}",
            }
        return pd.DataFrame({"item": list(rows), "value": list(rows.values())})


def main_runs(notebook: Notebook, exhibit_id: str) -> tuple[DataFrame, DataFrame, Any]:
    """Return the stored runs of a main table, in the main reading, its printed numbers, and its layout.

    Raises:
        ArgumentError: the paper's `study.json` has no such table.
    """
    paper = exhibits.find(exhibit_id).paper
    layout = exhibits.study(paper).tables[one_of("exhibit", exhibit_id, exhibits.study(paper).tables)]
    module = exhibits.paper_module(paper)
    frame = notebook.stored(exhibit_id)
    frame = module.main_reading(frame, exhibit_id) if hasattr(module, "main_reading") else frame
    return frame, printed(notebook, exhibit_id), layout


def printed(notebook: Notebook, exhibit_id: str, reading: str = "main") -> DataFrame:
    """Return the printed numbers of a main table, with a reading's scores on graphs drawn anew where there are any."""
    paper = exhibits.find(exhibit_id).paper
    module, published = exhibits.paper_module(paper), exhibits.published(paper)
    published = published[published["exhibit"].eq(exhibit_id) & published["metric"].str.contains(SCORES)]
    if hasattr(module, "printed_rows"):
        published = module.printed_rows(published)
    if hasattr(module, "with_new_graphs"):
        published = module.with_new_graphs(published, notebook.stored, reading)
    return published


def _styled(table: Any) -> str:
    from fedrepro.reporting import outcome

    return outcome.styled(table)


def begin(
    name: str = f"{MINE}/own", *, profile: str = "quick", device: str = "auto", seeds: int = 0, engine: str = "local"
) -> Notebook:
    """Check the parameters of a notebook and start it.

    Args:
        name: `paper/n-section`, by which records and exhibits are kept; those of `mine/...` stand apart.
        profile: `smoke`, `quick` or `paper`.
        device: `auto` (a GPU if there is one), `cpu` or `cuda`.
        seeds: number of seeds; 0 for the profile's own.
        engine: `local`, `dask` or `slurm`.

    Raises:
        ArgumentError: the name has another form, a value has a wrong type or is no choice, or `cuda` has no GPU.
    """
    formed = re.fullmatch(r"[\w~-]+/[\w.-]+", name if isinstance(name, str) else "")
    require(bool(formed), "name", "of the form 'paper/n-section'", name)
    for key, value in (("profile", profile), ("device", device), ("seeds", seeds), ("engine", engine)):
        check_parameter(key, value, None)
    # "auto" is resolved when something is computed, by the worker of another engine: importing torch takes seconds.
    if device != "auto" and engine == "local":
        device = resolved(device)
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        shown.by(shell)
        # Pandas escapes the text of a table, but not that of a styled table.
        import pandas as pd

        # Tables would show dots instead of verdicts, of the end of a sentence, or of all rows but ten.
        pd.options.display.max_columns = pd.options.display.max_colwidth = None
        pd.options.display.max_rows, pd.options.display.width = 200, 200
        shell.display_formatter.formatters["text/html"].for_type_by_name("pandas.io.formats.style", "Styler", _styled)
    return Notebook(name, profile, device, seeds, engine)
