"""Do the work of `fedrepro run`: tell how notebooks end, or compute for some minutes what their exhibits lack."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrepro import paths
from fedrepro.errors import DamagedError, one_of, require
from fedrepro.reporting import exhibits, notebook, terminal
from fedrepro.reporting.session import MINE, check_parameter
from fedrepro.runs import cache, codehash, provenance, verification
from fedrepro.runs.run import Run
from fedrepro.runs.store import opened

PROFILE = "quick"  # of every notebook, where none is given


def told(ends: Iterable[notebook.Outcome], given: Mapping[str, Any]) -> int:
    """Print a line as each notebook ends, a summary, and where copies and figures are.

    Args:
        given: the parameters of the notebooks that were given.

    Returns:
        1 if a notebook failed, else 0.
    """
    start = time.monotonic()
    profile = given.get("profile", PROFILE)
    all_ = []
    for end in ends:
        all_.append(end)
        word = "FAILED" if end.error else "same" if end.unchanged else "ok"
        runs = f"{end.done} of {end.wanted} runs" if end.wanted else ""
        print(f"{word:6s} {end.name:28s} {end.seconds:6.1f} s  {runs}".rstrip(), flush=True)
        if end.error:
            print(f"       {terminal.shown(end.error)}", file=sys.stderr, flush=True)
    failed = sum(bool(end.error) for end in all_)
    same = sum(end.unchanged for end in all_)
    parts = [
        f"{len(all_) - failed - same} executed",
        f"{same} unchanged" if same else "",
        f"{failed} failed" if failed else "",
    ]
    wanted = sum(end.wanted for end in all_)  # none on a reader's graph, whose runs have a separate store
    runs = f"; {sum(end.done for end in all_)} of {wanted} runs are in the store" if wanted else ""
    print(f"{', '.join(filter(None, parts))} with the profile {profile} in {time.monotonic() - start:.0f} s{runs}")
    of_user = notebook.is_own(given)
    print(f"The copies with their outputs, as .ipynb and .html, are in {notebook.built(profile, of_user)}")
    apart = paths.smoke() if profile == "smoke" else paths.personal() if of_user else None
    figures = apart / "figures" if apart and not os.environ.get("FEDREPRO_FIGURES") else paths.figures()
    papers = [MINE] if of_user else dict.fromkeys(end.name.partition("/")[0] for end in all_ if not end.error)
    drawn = [figures / paper for paper in papers]
    if drawn := [folder for folder in drawn if folder.is_dir()]:
        print(f"The figures are in {', '.join(map(str, drawn))}")
    for line in _replaced(drawn, given.get("seeds", 0)):
        print(line)
    if same:
        print("Those unchanged are what a run would give again; --again runs them all the same.")
    return 1 if failed else 0


def _replaced(folders: Sequence[Path], seeds: int) -> list[str]:
    """Return sentences on committed figures that others have replaced, and how to get them back."""
    if not paths.CHECKOUT or not all(folder.is_relative_to(paths.root() / "figures") for folder in folders):
        return []
    at = [str(folder.relative_to(paths.root())) for folder in folders]
    changed = provenance.git("diff", "--name-only", "HEAD", "--", *at).decode().split("\n")[:-1] if at else []
    told = []
    if seeds and folders and (changed or not provenance.git("rev-parse", "HEAD")):
        said = f"They are drawn with {seeds} seed{'s' if seeds > 1 else ''}, in place of those of the whole grid"
        told.append(f"{said}. Run again without `seeds` to draw these.")
    if changed:
        some = ", ".join(changed[:5]) + (", ..." if len(changed) > 5 else "")
        files = "1 file there differs" if len(changed) == 1 else f"{len(changed)} files there differ"
        told.append(f"{files} from what is committed: {some}. `git restore {' '.join(at)}` brings that back.")
    return told


def rewrite(papers: Sequence[str]) -> None:
    """Rewrite the gallery, all of it only if a file of it, of the package or of the store has changed.

    Print the files written.
    """
    paths.require_checkout("report")

    def now() -> str:
        package = cache.below(codehash.root(), (*cache.READ, ".md"))  # with the templates of pages
        tests = cache.below(paths.root() / "tests", (".py",))  # which the page on how to read a paper names
        stored = cache.state(cache.below(paths.store(), (".jsonl",)))  # of which pages say when it was computed
        return stored and stored + cache.content([*cache.below(paths.figures(), ("",)), *package, *tests])

    if not papers and cache.load("report", now()):
        print("The gallery is what it would be again.")
        return
    from fedrepro.reporting import report

    for path in report.write(only=papers):
        print(path)
    if not papers:
        cache.save("report", now(), True)


def fill(
    names: Sequence[str], minutes: float, beside: str, given: Mapping[str, Any], *, only_stale: bool = False
) -> int:
    """Compute missing runs of the notebooks' exhibits, or stale ones again, until the time is up.

    Args:
        only_stale: compute stale runs instead of missing ones. Their new results replace the old ones.
        beside: number of seeds of a cell trained as one batch, or `auto`, see `execute.seeds_in_cache`.

    Returns:
        1 if a run failed or a file of a graph is damaged, else 0.
    """
    require(minutes > 0, "--budget", "a number of minutes > 0", minutes)
    counted = beside.isdecimal() and int(beside) > 0
    require(counted or beside == "auto", "--side-by-side", "a number of seeds > 0 or auto", beside)
    seeds: int | str = int(beside) if counted else beside
    settings: dict[str, Any] = {"profile": PROFILE, "device": "auto", "seeds": 0, "engine": "local"}
    for name, value in given.items():
        default = settings[one_of("with --budget, a parameter", name, settings)]
        settings[name] = check_parameter(name, value, default)
    end = time.monotonic() + 60 * minutes
    stale = {str(record["key"]): record.get("when") for record in verification.stale(opened())} if only_stale else {}
    work = {
        source.name: _lacking(source.name, settings, stale if only_stale else None) for source in notebook.select(names)
    }
    computed = failed = 0
    damaged: dict[str, None] = {}
    for name, runs in _portions(work, seeds):
        left = (end - time.monotonic()) / 60
        if left > 0:
            at_work = notebook.begin(name, **settings)
            try:
                frame = at_work.execute(runs, left, seeds, stale)
            except DamagedError as error:  # the runs of other graphs are computed all the same
                damaged[str(error)] = None
                frame = at_work.stored(runs)
            computed += len(frame)
            if stale:
                computed -= sum(stale.get(key) == when for key, when in zip(frame["key"], frame["when"]))
            failed += len(frame.attrs["failed"])
    wanted = "stale" if only_stale else "missing"
    print(f"{computed} of {sum(map(len, work.values()))} {wanted} runs computed")
    for text in damaged:
        print(f"fedrepro: {text}", file=sys.stderr)
    return 1 if failed or damaged else 0


def _lacking(name: str, settings: dict[str, Any], stale: Collection[str] | None) -> list[Run]:
    """Return the stale runs of a notebook's exhibits, or the missing ones if None is given."""
    store = opened()
    wanted = settings["profile"], settings["seeds"]
    runs = [run for exhibit in exhibits.drawn_by(name) for run in exhibit.runs(*wanted)]
    return [run for run in dict.fromkeys(runs) if (run.key not in store if stale is None else run.key in stale)]


def _portions(work: dict[str, list[Run]], beside: int | str) -> list[tuple[str, list[Run]]]:
    """Yield one notebook in one portion, which `execute` orders; several in turn, seed by seed."""
    if len(work) == 1 or beside not in (1, "auto"):
        return list(work.items())
    seeds = sorted({run.seed for runs in work.values() for run in runs})
    return [(name, [run for run in runs if run.seed == seed]) for seed in seeds for name, runs in work.items()]
