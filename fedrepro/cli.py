"""The command `fedrepro`: list, data, run, status, show, compare, verify, check, merge, report, site, --version.

Errors of the package end as one line on stderr and exit status 2. A failed notebook or check, or a damaged file of a
graph, is status 1. A signal that ends the command is one line, and status 128 and its number, as in a shell.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import fedrepro
from fedrepro.errors import ArgumentError, DamagedError, FedreproError, one_of, require
from fedrepro.reporting import notebook
from fedrepro.reporting.session import CHOICES, check_parameter
from fedrepro.runs import executors

if TYPE_CHECKING:
    from fedrepro.runs.run import Run
    from fedrepro.runs.store import Store


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        with _signals():
            return command(options)
    except FedreproError as error:
        print(f"fedrepro: {error}", file=sys.stderr)
        return 1 if isinstance(error, DamagedError) else 2
    except KeyboardInterrupt as end:
        what = f"ended by {end.args[0].name}" if end.args else "interrupted"
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(f"fedrepro: {what}; what was finished is kept", file=sys.stderr)
        return 128 + (end.args[0] if end.args else signal.SIGINT)
    except BrokenPipeError:  # `fedrepro list | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP, as of a job scheduler or a closed terminal, end a command as SIGINT does."""

    def end(number: int, _: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number))

    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = threading.current_thread() is threading.main_thread()
    # One that is ignored stays so: nohup.
    before = {
        number: signal.signal(number, end) for number in known if ours and signal.getsignal(number) == signal.SIG_DFL
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fedrepro", description="Five papers on federated graph learning, replicated."
    )
    parser.add_argument("--version", action="version", version=f"fedrepro {fedrepro.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        return sub

    add("list", list_, "notebooks and exhibits; methods, data sets and partitions")
    data = add("data", data_, "which graphs are here, which would be downloaded, and their licences")
    data.add_argument("--fetch", metavar="NAME", help="download this one")
    run = add("run", run_, "execute notebooks, or compute what their exhibits lack")
    run.add_argument("notebooks", nargs="+", metavar="NOTEBOOK", help="all, a paper, or paper/n-section")
    run.add_argument("-p", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the notebook")
    run.add_argument("--profile", help="smoke, quick or paper")
    run.add_argument("--device", help="auto, cpu or cuda")
    run.add_argument("--engine", help="local, dask or slurm")
    run.add_argument("--jobs", type=int, help="notebooks at once (default: cores)")
    run.add_argument(
        "--budget",
        type=float,
        metavar="MINUTES",
        help="compute missing runs for so long instead, seeds 0, 1, ..., small graphs first",
    )
    run.add_argument(
        "--side-by-side",
        type=int,
        default=1,
        metavar="SEEDS",
        help="with --budget: train so many seeds of a cell as one batch; cell by cell, then, not seed by seed",
    )
    status = add("status", status_, "per exhibit: runs done, stale, failed, missing, and the time they will take")
    status.add_argument("--profile", default="paper", help="smoke, quick or paper (default)")
    status.add_argument("--json", action="store_true", help="for programs")
    show = add("show", show_, "one stored record, and the command that rebuilds it")
    show.add_argument("key", metavar="KEY", help="key of a run, or its first characters; or the ID of a main table")
    show.add_argument("cell", nargs="*", metavar="VALUE", help='the values of its cell: Cora "FedStruct (H2V)" 10')
    compare = add("compare", compare_, "the printed numbers of an exhibit beside ours, with their words")
    compare.add_argument("exhibit", metavar="EXHIBIT", help="such as FS-T6")
    compare.add_argument("--dataset", default="", help="one graph")
    verify = add("verify", verify_, "recompute stored runs, stale ones first, and compare")
    verify.add_argument("-n", type=int, default=5, metavar="N", help="how many (default 5)")
    check = add("check", check_, "read the whole store, and name what is torn, damaged or without a checksum")
    check.add_argument("--seal", action="store_true", help="first give the lines without a checksum one")
    merge = add("merge", merge_, "add the results of another store, such as one filled on a second machine")
    merge.add_argument("folder", metavar="FOLDER", help="the other store's folder")
    add("report", report_, "rewrite the gallery and the state of every exhibit")
    site = add("site", site_, "build the site from the executed notebooks, the gallery and the docstrings")
    site.add_argument("--profile", default="quick", help="smoke: from the notebooks of the smoke runs")
    return parser


def list_(options: argparse.Namespace) -> int:
    from fedrepro import registry
    from fedrepro.data import datasets, partition
    from fedrepro.reporting.exhibits import registered

    print("notebooks")
    for source in notebook.find():
        print(f"  {source.name:28s} {source.title}")
        with_runs = [exhibit.id for exhibit in registered().values() if exhibit.notebook == source.name]
        if ids := with_runs or source.exhibits:
            print(f"  {'':28s} {' '.join(ids)}")
    for task in registry.TASKS:
        if names := registry.names(task):
            print(f"\n{'methods' if task == 'train' else task}\n  {', '.join(names)}")
    print(f"\ndata sets (name~standin: a synthetic graph of its shape)\n  {', '.join(datasets.NAMES)}")
    print(f"\npartitions\n  {', '.join(partition.PARTITIONS)}")
    return 0


def data_(options: argparse.Namespace) -> int:
    from fedrepro.data import datasets

    if options.fetch:
        print(datasets.fetch(options.fetch))
    else:
        print(datasets.describe().to_string(index=False))
    return 0


def run_(options: argparse.Namespace) -> int:
    given = dict(_pair(text) for text in options.p)
    for name in ("profile", "device", "engine"):
        if (value := getattr(options, name)) is not None:
            given[name] = one_of(f"--{name}", value, CHOICES[name])
    if options.budget is not None:
        return _fill(options.notebooks, options.budget, options.side_by_side, given)
    failed = 0
    jobs = executors.cores() if options.jobs is None else options.jobs
    for end in notebook.run_all(options.notebooks, given, jobs=jobs):
        failed += bool(end.error)
        print(f"{'FAILED' if end.error else 'ok':6s} {end.name:28s} {end.seconds:6.1f} s", flush=True)
        if end.error:
            print(f"       {end.error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    require(bool(name and equals), "-p", "of the form name=value", text)
    return name, notebook.parse(value)


def _fill(names: Sequence[str], minutes: float, beside: int, given: dict[str, Any]) -> int:
    """Compute missing runs of the notebooks' exhibits until the time is up.

    Returns:
        1 if a run failed or a file of a graph is damaged, else 0.
    """
    require(minutes > 0, "--budget", "a number of minutes > 0", minutes)
    require(beside > 0, "--side-by-side", "a number of seeds > 0", beside)
    settings: dict[str, Any] = {"profile": "quick", "device": "auto", "seeds": 0, "engine": "local"}
    for name, value in given.items():
        default = settings[one_of("with --budget, a parameter", name, settings)]
        settings[name] = check_parameter(name, value, default)
    end = time.monotonic() + 60 * minutes
    work = {source.name: _missing(source.name, settings) for source in notebook.select(names)}
    computed = failed = 0
    damaged: dict[str, None] = {}
    for name, runs in _portions(work, beside):
        left = (end - time.monotonic()) / 60
        if left > 0:
            at_work = notebook.begin(name, **settings)
            try:
                frame = at_work.execute(runs, left, beside)
            except DamagedError as error:  # the runs of other graphs are computed all the same
                damaged[str(error)] = None
                frame = at_work.stored(runs)
            computed += len(frame)
            failed += len(frame.attrs["failed"])
    print(f"{computed} of {sum(map(len, work.values()))} missing runs computed")
    for text in damaged:
        print(f"fedrepro: {text}", file=sys.stderr)
    return 1 if failed or damaged else 0


def _missing(name: str, settings: dict[str, Any]) -> list[Run]:
    from fedrepro.reporting.exhibits import registered
    from fedrepro.runs.store import opened

    store = opened()
    wanted = settings["profile"], settings["seeds"]
    runs = [run for exhibit in registered().values() if exhibit.notebook == name for run in exhibit.runs(*wanted)]
    return [run for run in dict.fromkeys(runs) if run.key not in store]


def _portions(work: dict[str, list[Run]], beside: int) -> list[tuple[str, list[Run]]]:
    """Yield one notebook in one portion, which `execute` orders; several in turn, seed by seed."""
    if len(work) == 1 or beside > 1:
        return list(work.items())
    seeds = sorted({run.seed for runs in work.values() for run in runs})
    return [(name, [run for run in runs if run.seed == seed]) for seed in seeds for name, runs in work.items()]


def _store() -> Store:
    """Open the store, and name on the error stream what of it is left out or has no checksum."""
    from fedrepro.runs.store import Store

    store = Store()
    for fault in store.faults:
        print(f"fedrepro: {fault}, and is left out", file=sys.stderr)
    for fault in store.unsealed:
        print(f"fedrepro: {fault}; `fedrepro check --seal` adds it", file=sys.stderr)
    return store


def status_(options: argparse.Namespace) -> int:
    from fedrepro.reporting.exhibits import registered
    from fedrepro.runs import verification

    one_of("--profile", options.profile, CHOICES["profile"])
    store = _store()
    rows = [
        {"exhibit": exhibit.id, "notebook": exhibit.notebook, "title": exhibit.title}
        | verification.status(store, exhibit.runs(options.profile))
        for exhibit in registered().values()
    ]
    if options.json:
        print(json.dumps({"profile": options.profile, "exhibits": rows}, indent=1))
        return 0
    print(f"{'exhibit':9s}   done wanted  stale failed missing   time left  what")
    for row in rows:
        counts = " ".join(f"{row[name]:6d}" for name in ("done", "wanted", "stale", "failed", "missing"))
        print(f"{row['exhibit']:9s} {counts} {_clock(row['seconds_missing']):>12s}  {row['title']}")
    return 0


def _clock(seconds: float | None) -> str:
    """Return a time on one process as text, `?` where nothing like it has been measured."""
    if seconds is None:
        return "?"
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.1f} min"


def compare_(options: argparse.Namespace) -> int:
    from fedrepro.reporting import cells

    print(cells.compared(options.exhibit, options.dataset).to_string(index=False))
    return 0


def show_(options: argparse.Namespace) -> int:
    if options.cell:
        from fedrepro.reporting import cells

        frame = cells.runs_behind(options.key, options.cell)
        print(frame.to_string(index=False))
        print(f"\n# a run and the command that computes it again:\nfedrepro show {frame['key'].iloc[0]}")
        return 0
    found = _store().find(options.key)
    require(bool(found), "KEY", "the start of a stored key", options.key)
    if len(found) > 1:
        first = ", ".join(record["key"][:16] for record in found[:5])
        raise ArgumentError(f"KEY must name one record. Got {options.key!r}, which {len(found)} begin with: {first}.")
    (record,) = found
    print(json.dumps(record, indent=1, ensure_ascii=False))
    if "verified" in record["result"]:
        print(f"\n# the run that was computed again, and its command:\nfedrepro show {record['result']['verified']}")
        return 0
    code = "from fedrepro.runs import Run; from fedrepro.runs.execute import compute; "
    code += f"print(compute([Run.from_dict({record['run']!r})], 'cpu'))"
    print(f"\n# computes it again:\n{shlex.join(['python', '-c', code])}")
    return 0


def verify_(options: argparse.Namespace) -> int:
    from fedrepro.runs import verification

    require(options.n >= 1, "-n", "an integer >= 1", options.n)
    frame = verification.verify(_store(), options.n)
    print(frame.to_string(index=False) if len(frame) else "the store has no runs to verify")
    return 1 if set(frame["verdict"]) & {"differs", "failed", "damaged"} else 0


def check_(options: argparse.Namespace) -> int:
    from fedrepro.runs.store import Store

    store = Store()
    if options.seal:
        print(f"{store.seal()} lines were given a checksum")
    faults = store.check()
    for fault in faults:
        print(fault)
    print(f"{len(store)} finished runs in {store.folder}: {len(faults) or 'nothing'} wrong")
    return 1 if faults else 0


def merge_(options: argparse.Namespace) -> int:
    from fedrepro.runs.merge import merge

    merged = merge(options.folder, _store())
    print(f"{merged.added} added, {merged.present} present already, {len(merged.refused)} refused")
    for fault in merged.refused:
        print(f"refused: {fault}")
    return 1 if merged.refused else 0


def report_(options: argparse.Namespace) -> int:
    from fedrepro.reporting import report

    for path in report.write():
        print(path)
    return 0


def site_(options: argparse.Namespace) -> int:
    from fedrepro.reporting.site.build import build

    built = build(one_of("--profile", options.profile, CHOICES["profile"]))
    for line in built.warnings:
        print(f"fedrepro: {line}", file=sys.stderr)
    print(f"The site is built. Open {built.start.as_uri()}")
    return 0
