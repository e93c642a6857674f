"""Find the notebooks of the suite, and run them headlessly under checked parameters.

Papermill lets an unknown parameter pass with a warning, and a notebook that fails leaves a file that looks like a
finished one. Here an unknown parameter is an error, and a file under the final name is always a complete run.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedrepro import paths
from fedrepro.errors import ArgumentError, FedreproError, did_you_mean, is_whole, one_of, require
from fedrepro.reporting import exhibits, kernel, rendering, stamps
from fedrepro.reporting.exhibits import natural
from fedrepro.reporting.session import PARAMETERS, check_parameter
from fedrepro.reporting.session import Notebook as Notebook
from fedrepro.reporting.session import begin as begin
from fedrepro.runs import executors
from fedrepro.runs.index import opened

_EXHIBIT = re.compile(r"\b(?:EN-\d+[a-z]?|[A-Z]{2,3}-(?:Th|[TFALIPXC])\d+[a-z]?)\b")


class NotebookError(FedreproError):
    """A notebook raised an error in `cell` (number and first line). Its unfinished `copy` is kept."""

    def __init__(self, name: str, cell: str, message: str, copy: Path) -> None:
        super().__init__(name, cell, message, copy)
        self.name, self.cell, self.message, self.copy = name, cell, message, copy

    def __str__(self) -> str:
        return f"{self.name} failed in {self.cell}: {self.message} (as far as it came: {self.copy})"


@dataclass(frozen=True)
class Source:
    """A notebook of the suite: its path, and the title and exhibits that its first cell names."""

    path: Path
    title: str
    exhibits: tuple[str, ...]

    @property
    def paper(self) -> str:
        return self.path.parent.name

    @property
    def section(self) -> str:
        """Return number and name within the paper, such as `6-experiments`."""
        return self.path.stem

    @property
    def name(self) -> str:
        return f"{self.paper}/{self.section}"


def _cells(path: Path) -> list[SimpleNamespace]:
    """Read the cells of a file as they are: nbformat would check them, and takes long to import."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return [SimpleNamespace(**cell | {"source": "".join(cell["source"])}) for cell in cells]
    except Exception as error:  # of many kinds, by where a file stops being a notebook
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".")
        raise ArgumentError(f"notebook must be a readable .ipynb file. Got {str(path)!r}: {told}.") from error


def read(path: Path) -> Source:
    """Read the notebook at a path: its first heading is the title, and its first cell names the exhibits."""
    cells = _cells(path)
    text = cells[0].source if cells and cells[0].cell_type == "markdown" else ""
    heading = re.search(r"^#\s+(.+)$", text, re.MULTILINE)
    exhibits = tuple(dict.fromkeys(_EXHIBIT.findall(text)))
    return Source(path, heading.group(1).strip() if heading else path.stem, exhibits)


def find(folder: Path | None = None) -> list[Source]:
    """Return every `<paper>/<n>-<section>.ipynb` under `folder` (default: `paths.notebooks()`), in order."""
    folder = folder or paths.notebooks()
    found = folder.glob("[!.]*/[!.]*.ipynb")
    return [read(path) for path in sorted(found, key=lambda path: (path.parent.name, natural(path.stem)))]


def selectable() -> list[str]:
    """Return the names that `select` takes: `all`, the papers and the notebooks."""
    sources = find()
    return ["all", *dict.fromkeys(source.paper for source in sources), *(source.name for source in sources)]


def select(names: Iterable[str], single: bool = False) -> list[Source]:
    """Return the notebooks of some names: `all`, a paper, `paper/n-section`, `paper/n`, or the path of an .ipynb file.

    Raises:
        ArgumentError: a name is none of these; the message holds the nearest one. If the caller takes a `single`
            notebook, the message names only what gives one.
    """
    sources = find()
    chosen: dict[Path, Source] = {}
    for name in names:
        if name.endswith(".ipynb") and Path(name).is_file():
            matching = [read(Path(name).resolve())]
        else:
            short = [source.name.partition("-")[0] for source in sources]
            matching = [s for s, number in zip(sources, short) if name in ("all", s.paper, number, s.name)]
        if not matching:
            _require_written(name, {source.paper for source in sources})
            allowed = "'all', a paper or paper/n-section"
            told = "NOTEBOOK must be paper/n or paper/n-section" if single else f"notebook must be {allowed}"
            near = did_you_mean(name, [source.name for source in sources] if single else selectable())
            raise ArgumentError(f"{told} (see `fedrepro list`). Got {name!r}.{near}")
        chosen.update({source.path: source for source in matching})
    return list(chosen.values())


def _require_written(name: str, written: Collection[str]) -> None:
    """Raise if a name is that of a paper, or of its notebook, without any notebook: say which to write, and where."""
    paper = name.partition("/")[0]
    if paper in written or paper not in exhibits.papers():
        return
    wanted = dict.fromkeys(f"{paper}/{row['notebook']}" for row in exhibits.listed(paper)) or [f"{paper}/1-NAME"]
    places = ", ".join(str(paths.notebooks() / f"{one}.ipynb") for one in wanted)
    raise ArgumentError(
        f"{paper} has no notebook yet. Write {places}: one cell tagged `parameters`, as in the notebooks of other "
        'papers, and a first cell that names the exhibits (CONTRIBUTING.md, "Add a paper").'
    )


def parameters(path: Path) -> dict[str, Any]:
    """Return the names and default values in the cell tagged `parameters`.

    Only `name = literal` on one line is allowed there: for anything else papermill would take a
    declared name for an unknown one.

    Raises:
        ArgumentError: no such cell, or a line that is no simple assignment.
    """
    cells = [cell for cell in _cells(path) if "parameters" in cell.metadata.get("tags", ())]
    require(len(cells) == 1, path.name, "a notebook with one cell tagged 'parameters'", len(cells))
    defaults: dict[str, Any] = {}
    allowed = f"the parameters cell of {path.name} must hold one-line `name = literal`"
    try:
        body = ast.parse(cells[0].source).body
    except SyntaxError as error:
        raise ArgumentError(f"{allowed}. Got {(error.text or '').strip()!r}: {error.msg}.") from None
    for node in body:
        line = ast.unparse(node)
        simple = isinstance(node, ast.Assign) and len(node.targets) == 1 and node.lineno == node.end_lineno
        try:
            assert simple and isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            defaults[node.targets[0].id] = ast.literal_eval(node.value)
        except (AssertionError, ValueError):
            raise ArgumentError(f"{allowed}. Got {line!r}.") from None
    return defaults


def check_parameters(path: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check given values against the notebook's parameters and return them.

    Raises:
        ArgumentError: an unknown name, a wrong type, or a value that is no choice.
    """
    defaults = parameters(path)
    return {
        one_of(f"a parameter of {path.name}", name, defaults): check_parameter(name, value, defaults[name])
        for name, value in given.items()
    }


def parse(text: str) -> Any:
    """Return the value of a parameter typed on a command line: a Python literal, else the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return {"true": True, "false": False}.get(text.lower(), text)


def _execute(source: Path, partial: Path, values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Execute into `partial`; return the failing cell and its message, or None."""
    import nbformat
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.engines import NBClientEngine, papermill_engines
    from papermill.iorw import write_ipynb

    class SavedOnce(NBClientEngine):  # type: ignore[misc]
        """The engine of papermill without its unfinished copies; papermill saves the finished one."""

        @classmethod
        def execute_notebook(cls, nb: Any, kernel_name: str, output_path: str, **more: Any) -> Any:
            try:
                return super().execute_notebook(nb, kernel_name, None, **more)
            except Exception:  # papermill writes nothing after such an error, for example of a kernel that died
                write_ipynb(nb, output_path)
                raise

    papermill_engines.register("saved once", SavedOnce)
    try:
        with kernel.manager() as manager:
            done = papermill.execute_notebook(
                str(source),
                str(partial),
                engine_name="saved once",
                parameters=dict(values),
                kernel_name="python3",
                language="python",
                kernel_manager_class=manager,
                cwd=str(source.parent),
                progress_bar=False,
                start_timeout=180,
            )
    except papermill.PapermillExecutionError as error:
        first = next((line for line in error.source.splitlines() if line.strip()), "")
        return f"cell [{error.exec_count}] `{first.strip()}`", f"{error.ename}: {error.evalue}"
    except DeadKernelError as error:
        return "a cell that ended the kernel", str(error)
    # Papermill takes `sys.exit(0)` in a cell for success, whatever cells were still to come.
    for cell in done.cells:
        if cell.cell_type == "code" and cell.source.strip() and cell.execution_count is None:
            nbformat.write(done, partial)  # type: ignore[no-untyped-call]
            return f"cell `{cell.source.strip().splitlines()[0]}`", "was never executed"
    return None


def is_own(values: Mapping[str, Any]) -> bool:
    """Return whether parameters name something of the user, such as a graph, instead of the suite's."""
    return any(value for name, value in values.items() if name not in PARAMETERS)


def built(profile: str = "", own: bool = False) -> Path:
    """Return the folder of the executed copies; neither smoke runs nor those on own graphs overwrite the suite's."""
    folder = "smoke/notebooks" if profile == "smoke" else "mine/notebooks" if own else "notebooks"
    return paths.root() / "build" / folder


def executed_copy(source: Source, profile: str = "", own: bool = False) -> Path:
    """Return where the executed copy of a notebook goes."""
    return built(profile, own) / source.paper / f"{source.section}.ipynb"


def run(
    path_or_name: str | Path,
    parameters: Mapping[str, Any] | None = None,
    *,
    output: Path | None = None,
    jobs: int = 1,
) -> Path:
    """Execute one notebook and render it as HTML next to the executed copy.

    Args:
        path_or_name: `paper/n-section`, or the path of an .ipynb file.
        parameters: values for names of its parameters cell. With the profile `smoke` the notebook runs from an empty
            throw-away store, without `$FEDREPRO_DATA` or network.
        output: the executed copy; default `build/notebooks/<paper>/<n>-<section>.ipynb`, below `build/mine` where a
            parameter names an own graph.
        jobs: how many notebooks run at this time, which share the cores.

    Returns:
        The executed copy. It exists under this name only if every cell ran.

    Raises:
        ArgumentError: no such notebook or more than one, an unknown parameter, a wrong type, a value that is no choice.
        NotebookError: a cell raised; the copy is kept as `<n>-<section>.failed.ipynb`.
    """
    found = select([str(path_or_name)])
    require(len(found) == 1, "path_or_name", f"one notebook, such as {found[0].name!r}", str(path_or_name))
    (source,) = found
    values = check_parameters(source.path, parameters or {})
    mode = values.get("profile", "")
    output = output or executed_copy(source, mode, is_own(values))
    output.parent.mkdir(parents=True, exist_ok=True)
    failed = output.with_suffix(".failed.ipynb")
    partial = output.with_suffix(f".{os.getpid()}.partial.ipynb")
    kernel.remove_abandoned(output)
    traced = partial.with_suffix(".trace")
    for stale in (output, output.with_suffix(".html"), stamps.path(output), failed):
        stale.unlink(missing_ok=True)
    with kernel.unfinished(partial), kernel.unfinished(traced):
        with kernel.environment(mode, jobs, traced):
            failure = _execute(source.path, partial, values)
        if failure:
            partial.replace(failed)
            raise NotebookError(source.name, *failure, failed)
        partial.replace(output)
        rendering.write(output)
        if mode != "smoke":
            stamps.write(output, source.path, values, traced)
    return output


@dataclass(frozen=True)
class Outcome:
    """The end of one notebook of `run_all`; `error` is empty if it succeeded.

    `done` of the runs that it wanted, `wanted`, are in the store. `unchanged` says that it was not run again.
    """

    name: str
    seconds: float
    error: str = ""
    done: int = 0
    wanted: int = 0
    unchanged: bool = False


def _begin() -> None:
    """Settle a process that will run notebooks: import what that needs, once, and end with the process above."""
    # The checker of JSON schemas would compile grammars of addresses, which no notebook has.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    import nbconvert
    import papermill

    assert nbconvert and papermill
    kernel.end_when_told()


def _attempt(source: Source, values: dict[str, Any], output: Path, jobs: int) -> Outcome:
    start = time.monotonic()
    error = ""
    try:
        run(source.path, values, output=output, jobs=jobs)
    except Exception as caught:  # one notebook's failure must not end the others
        error = str(caught) if isinstance(caught, FedreproError) else f"{type(caught).__name__}: {caught}"
    return Outcome(source.name, time.monotonic() - start, error, *stamps.counts(output, opened()))


def run_all(
    names: Sequence[str], parameters: Mapping[str, Any] | None = None, *, jobs: int = 1, again: bool = True
) -> Generator[Outcome, None, None]:
    """Execute notebooks, `jobs` at a time, each in a separate process; yield each as it ends.

    On Linux these processes and their kernels are forked from one that has imported what notebooks need. If the caller
    is interrupted, or does not ask for the next outcome, kernels and processes are ended at once.

    Args:
        names: as for `select`.
        parameters: as for `run`.
        jobs: how many at a time.
        again: whether notebooks are run, too, whose executed copy is what they would give again, see `stamps`.

    Raises:
        ArgumentError: before any is started, if a name or a parameter is wrong for one of them.
    """
    from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, as_completed

    require(is_whole(jobs), "jobs", "an integer >= 1", jobs)
    sources = select(names)
    values = dict(parameters or {})
    for source in sources:
        check_parameters(source.path, values)
    copies = {source: executed_copy(source, values.get("profile", ""), is_own(values)) for source in sources}
    store = opened()
    for source in [] if again else sources:
        given = check_parameters(source.path, values)
        if stamps.unchanged(copies[source], source.path, given, store):
            yield Outcome(source.name, 0.0, "", *stamps.counts(copies[source], store), unchanged=True)
            del copies[source]
    if not copies:
        return
    jobs = min(jobs, len(copies))
    long_first = sorted(copies, key=lambda source: -len(exhibits.drawn_by(source.name)))
    pool = ProcessPoolExecutor(jobs, **kernel.processes(), initializer=_begin)
    ends: dict[Future[Outcome], Source] = {}
    try:
        for source in long_first:
            ends[pool.submit(_attempt, source, values, copies[source], jobs)] = source
        for end in as_completed(ends):
            try:
                yield end.result()
            except BrokenExecutor:
                yield Outcome(ends[end].name, 0.0, "the process was ended from outside, perhaps for lack of memory")
    except BaseException:  # an interrupt: what waits is not begun, what runs is ended
        if not ends:  # the first process waits for the warm one
            kernel.stop_warming()
        executors.give_up(pool)
        raise
    pool.shutdown()
