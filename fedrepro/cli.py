"""Define the command `fedrepro`; `fedrepro --help` says what it can do, and `fedrepro COMMAND --help` how.

Errors of the package end as one line on stderr and exit status 2. A failed notebook or check, or a damaged file of a
graph, is status 1. A signal that ends the command is one line, and status 128 and its number, as in a shell.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

import fedrepro
from fedrepro import paths, signals
from fedrepro.data.shapes import SHAPES
from fedrepro.errors import ArgumentError, DamagedError, FedreproError, did_you_mean, one_of, require
from fedrepro.reporting import cells, exhibits, listing, notebook, state, terminal, working
from fedrepro.reporting.budget import fill, rewrite, told
from fedrepro.reporting.session import CHOICES, check_parameter
from fedrepro.runs import executors, references, verification
from fedrepro.runs.index import Index
from fedrepro.runs.merge import merge
from fedrepro.runs.store import Store

app = typer.Typer(
    name="fedrepro",
    help="Five papers on federated learning over graphs, replicated.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    command: Any = typer.main.get_command(app)
    if arguments is None:  # this process is the command
        warnings.showwarning = terminal.warned
    if "_FEDREPRO_COMPLETE" in os.environ:  # a shell asks what could come next
        command.main(prog_name="fedrepro")
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        # Not `command.main`, which would take an interrupt for its own.
        _require_once(command, given)
        with signals.as_interrupts(), command.make_context("fedrepro", given) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as end:
        return end.exit_code
    except TyperException as error:
        told = " ".join(error.format_message().split()).rstrip(".")
        told += "" if told.endswith("?") else "."
        # The parser's sentence names an option of the wrong type, and not what was given for it.
        options = getattr(getattr(error, "param", None), "opts", [])
        values = [value for option, value in pairwise(given) if option in options]
        told += f" Got {values[0]!r}." if values and values[0] not in told else ""
        where = getattr(getattr(error, "ctx", None), "command_path", "fedrepro")
        print(f"fedrepro: {told} `{where} --help` says what there is.", file=sys.stderr)
        return 2
    except FedreproError as error:
        print(f"fedrepro: {terminal.shown(str(error))}", file=sys.stderr)
        return 1 if isinstance(error, DamagedError) else 2
    except KeyboardInterrupt as end:
        what = f"ended by {end.args[0].name}" if end.args else "interrupted"
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(f"fedrepro: {what}; what was finished is kept", file=sys.stderr)
        return 128 + (end.args[0] if end.args else signal.SIGINT)
    except BrokenPipeError:  # `fedrepro list | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0


def _require_once(command: Any, given: Sequence[str]) -> None:
    """Raise if an option that takes one value is given twice, of which the parser would take the last one."""
    words = given[: given.index("--")] if "--" in given else given
    known = getattr(command.commands.get(words[0] if words else ""), "params", ())
    for name in (name for option in known if not option.multiple and option.nargs == 1 for name in option.opts):
        times = sum(word == name or word.startswith(f"{name}=") for word in words)
        if times > 1 and name.startswith("-"):
            raise ArgumentError(f"{name} must be given once. Got it {times} times.")


def _graphs() -> list[str]:
    """Return the names that a shell can complete a word to; typer takes those that begin with it."""
    return list(SHAPES)


def _choice(name: str) -> Any:
    """Return the option of a parameter that has a few values, which a shell can complete."""
    *others, last = CHOICES[name]

    def checked(value: str | None) -> str | None:
        return value if value is None else one_of(f"--{name}", value, CHOICES[name])

    words = f"{', '.join(others)} or {last}"
    return typer.Option(help=words, callback=checked, autocompletion=lambda: list(CHOICES[name]))


Notebooks = Annotated[
    list[str],
    typer.Argument(
        metavar="NOTEBOOK", help="all, a paper, paper/n or paper/n-section", autocompletion=notebook.selectable
    ),
]
Exhibits = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]", help="an exhibit, a paper or a notebook", autocompletion=state.nameable),
]
Profile = Annotated[str, _choice("profile")]
AsCsv = Annotated[bool, typer.Option("--csv", help="a table of CSV, with all of its columns")]


@app.callback(invoke_without_command=True)
def _bare(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="print the version")] = False
) -> None:
    """Replicate five papers on federated learning over graphs."""
    if version:
        print(f"fedrepro {fedrepro.__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
    else:
        return
    raise typer.Exit()


@app.command("list")
def list_(
    what: Annotated[
        str,
        typer.Argument(help="a kind, such as methods, a paper, or a method", autocompletion=listing.nameable),
    ] = "",
) -> None:
    """List notebooks, methods and data sets, or a method's options."""
    listing.show(what)


@app.command("data")
def data_(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="all about one graph", autocompletion=_graphs)] = "",
    fetch: Annotated[str, typer.Option(metavar="NAME", help="download this one", autocompletion=_graphs)] = "",
) -> None:
    """Say which graphs are here or would be downloaded, and licences."""
    from fedrepro.data import catalogue

    if fetch:
        from fedrepro.data import datasets

        print(datasets.fetch(fetch))
        return
    rows = {row["name"]: row for row in catalogue.rows()}
    if name:
        print("\n".join(f"{what}: {told}" for what, told in rows[one_of("data set", name, rows)].items()))
        return
    listing.graphs(rows.values())


@app.command("run")
def run_(
    notebooks: Notebooks,
    parameters: Annotated[
        list[str] | None, typer.Option("-p", metavar="NAME=VALUE", help="a parameter of the notebook")
    ] = None,
    profile: Annotated[str | None, _choice("profile")] = None,
    device: Annotated[str | None, _choice("device")] = None,
    engine: Annotated[str | None, _choice("engine")] = None,
    seeds: Annotated[int | None, typer.Option(help="seeds 0, 1, ...; 0 for the profile's own")] = None,
    jobs: Annotated[int | None, typer.Option(help="notebooks at once (default: cores and one, or by GPUs)")] = None,
    again: Annotated[bool, typer.Option("--again", help="also those that nothing has changed for")] = False,
    budget: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", help="compute missing runs for so long instead, small graphs first"),
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="with --budget: stale runs instead; the new results replace the old")
    ] = False,
    side_by_side: Annotated[
        str,
        typer.Option(metavar="SEEDS", help="with --budget: seeds trained as one batch; auto: as many as fit the cache"),
    ] = "auto",
) -> int:
    """Execute notebooks, or compute what their exhibits lack."""
    given = dict(_pair(text) for text in parameters or ())
    chosen = {"profile": profile, "device": device, "engine": engine, "seeds": seeds}
    given |= {name: check_parameter(name, value, 0) for name, value in chosen.items() if value is not None}
    if given.get("device") == "cuda" and given.get("engine", "local") == "local":
        executors.resolved("cuda")  # said before anything is started
    require(budget is not None or not stale, "--stale", "given together with --budget", "no --budget")
    if budget is not None:
        return fill(notebooks, budget, side_by_side, given, only_stale=stale)
    at_once = executors.at_once(given.get("device", "auto"), given.get("engine", "local")) if jobs is None else jobs
    ends = notebook.run_all(notebooks, given, jobs=at_once, again=again)
    return told(ends, given)


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    require(bool(name and equals), "-p", "of the form name=value", text)
    # A notebook runs in its own folder, from which the way to a file is another one.
    return name, os.path.abspath(value) if name not in CHOICES and os.path.isfile(value) else notebook.parse(value)


def _faulty(store: Store) -> Store:
    """Name on the error stream what of a store is left out or has no checksum, and return it."""
    for fault in store.faults:
        print(terminal.shown(f"fedrepro: {fault}, and is left out"), file=sys.stderr)
    for fault in store.unsealed:
        print(terminal.shown(f"fedrepro: {fault}; `fedrepro check --seal` adds it"), file=sys.stderr)
    return store


@app.command("edit")
def edit_(
    name: Annotated[
        str, typer.Argument(metavar="NOTEBOOK", help="paper/n-section", autocompletion=notebook.selectable)
    ],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTION]", help="of JupyterLab, such as --no-browser")
    ] = None,
    anew: Annotated[bool, typer.Option("--anew", help="begin with a fresh copy; the former one is kept aside")] = False,
) -> int:
    """Open a working copy of a notebook in JupyterLab. The notebook and the figures of the suite stay as they are."""
    return working.edit(name, options or (), anew)


@app.command("status")
def status_(
    names: Exhibits = None,
    profile: Profile = "paper",
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
    as_csv: AsCsv = False,
) -> None:
    """Count the runs of each exhibit that are done, stale or missing.

    It also counts those that failed or lack their graph, and tells the time left. With NAME it says why runs are stale.
    """
    rows = state.rows(_faulty(Index()), profile, names or ())
    if not paths.CHECKOUT:
        print(f"fedrepro: an installed copy has the results that it computed, in {paths.store()}", file=sys.stderr)
    elif paths.elsewhere():
        print(f"fedrepro: these are the results in {paths.store()}, which FEDREPRO_STORE names", file=sys.stderr)
    if as_json:
        print(json.dumps({"profile": profile, "exhibits": rows}, indent=1))
        return
    (terminal.csv if as_csv else listing.status)(rows)


@app.command("narrow")
def narrow_(
    papers: Annotated[list[str] | None, typer.Argument(metavar="[PAPER]", help="fedgat, fedstruct, ...")] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="compute them for so long, in their order")
    ] = None,
) -> None:
    """List the runs that would narrow intervals of main tables.

    Those that take the least time come first, each with its time.
    """
    from fedrepro.reporting import narrow

    if budget is not None:
        print(f"{narrow.buy(papers or (), budget)} runs computed")
        return
    table, said = narrow.plan(papers or ())
    if len(table):
        terminal.frame(table)
    print("\n".join(["", *said]))


@app.command("compare")
def compare_(
    exhibit: Annotated[str, typer.Argument(metavar="EXHIBIT", help="such as FS-T6", autocompletion=state.nameable)],
    dataset: Annotated[str, typer.Option(help="one graph", autocompletion=_graphs)] = "",
    as_csv: AsCsv = False,
) -> None:
    """Compare an exhibit's printed numbers with ours, a word for each."""
    (terminal.csv if as_csv else listing.compared)(cells.compared(exhibit, dataset))


@app.command("show")
def show_(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="the first characters of a run's key, or an exhibit", autocompletion=state.nameable
        ),
    ],
    cell: Annotated[
        list[str] | None, typer.Argument(metavar="[VALUE]", help='values of its cell: Cora "FedStruct (H2V)" 10')
    ] = None,
    as_csv: AsCsv = False,
) -> None:
    """Print a stored record, or the runs behind an exhibit or a number.

    Below a record stand the number of a table that it holds, and the command that computes it again.
    """
    if cell or (key and not _is_key(key) and key in exhibits.registered()):
        (terminal.csv if as_csv else listing.runs)(cells.runs_behind(key, cell or ()))
        return
    require(not as_csv, "--csv", "given with an exhibit, whose runs are a table", key)
    records = _faulty(Store(containing=key)).find(key) if _is_key(key) else []
    if not records:
        where = f" in {paths.store()}" if paths.elsewhere() else ""
        near = did_you_mean(key, exhibits.registered())
        raise ArgumentError(f"KEY must be the start of a key that is stored{where}, or an exhibit. Got {key!r}.{near}")
    if len(records) > 1:
        first = ", ".join(record["key"][:16] for record in records[:5])
        raise ArgumentError(f"KEY must name one record. Got {key!r}, which {len(records)} begin with: {first}.")
    (record,) = records
    listing.record(record)


def _is_key(text: str) -> bool:
    return not set(text) - set("0123456789abcdef")


@app.command("verify")
def verify_(
    number: Annotated[int | None, typer.Option("-n", metavar="N", help="how many; 5, or with --budget all")] = None,
    seed: Annotated[int, typer.Option(help="seed of the random sample")] = 0,
    cheapest: Annotated[bool, typer.Option("--cheapest", help="begin with the runs that cost least")] = False,
    budget: Annotated[float | None, typer.Option(metavar="MIN", help="minutes; what does not fit is left out")] = None,
    device: Annotated[str, typer.Option(help="own (each record's), auto, cpu or cuda")] = "own",
    reference: Annotated[bool, typer.Option("--references", help="before a change: what to compare with")] = False,
) -> int:
    """Recompute stored runs, stale ones first, and compare.

    Each finding is stored as it comes, in `verify.jsonl` of the store. Before a change of the engine, `--references`
    computes short runs, which `--cheapest` recomputes after it.
    """
    if reference:
        require(number is None, "-n", "left out with --references, which computes all that are missing", number)
        return listing.referenced(references.compute(_faulty(Store()), budget))
    require(number is None or number >= 1, "-n", "an integer >= 1", number)
    n = 5 if number is None and budget is None else number
    given: Any = {"seed": seed, "cheapest": cheapest, "budget": budget, "device": device}
    frame = verification.verify(_faulty(Store()), n, **given, before=listing.announce)
    return listing.verified(frame)


@app.command("check")
def check_(
    seal: Annotated[bool, typer.Option("--seal", help="first give the lines without a checksum one")] = False,
) -> int:
    """Read the whole store, and name what is torn or damaged.

    A line without a checksum is named, too.
    """
    store = Store()
    named = os.environ.get("FEDREPRO_STORE")
    require(not named or store.folder.is_dir(), "FEDREPRO_STORE", "an existing folder", named)
    if seal:
        print(f"{store.seal()} lines were given a checksum")
    faults = store.check()
    for fault in faults:
        print(terminal.shown(str(fault)))
    print(f"{len(store)} finished runs in {store.folder}: {len(faults) or 'nothing'} wrong")
    return 1 if faults else 0


@app.command("merge")
def merge_(folder: Annotated[str, typer.Argument(metavar="FOLDER", help="the other store's folder")]) -> int:
    """Add the results of another store, such as a second machine's."""
    merged = merge(folder, _faulty(Store()))
    print(f"{merged.added} added, {merged.present} present already, {len(merged.refused)} refused")
    for fault in merged.refused:
        print(terminal.shown(f"refused: {fault}"))
    return 1 if merged.refused else 0


@app.command("report")
def report_(
    papers: Annotated[
        list[str] | None, typer.Argument(metavar="[PAPER]", help="only the pages of these papers")
    ] = None,
) -> None:
    """Rewrite the gallery and the state of every exhibit."""
    paths.require_checkout("report")
    paths.require_own_figures()
    rewrite(papers or ())


@app.command("site")
def site_(profile: Profile = "quick") -> None:
    """Build the site from executed notebooks, gallery and docstrings."""
    paths.require_checkout("site")
    from fedrepro.reporting.site.build import build

    built = build(profile)
    for line in built.warnings:
        print(f"fedrepro: {line}", file=sys.stderr)
    print(f"The site is built. Open {built.start.as_uri()}")
