"""The whole project keeps its rules: sources without outputs, layers, start-up time, real commands."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer

from fedrepro import cli
from fedrepro.reporting import notebook
from fedrepro.reporting.session import PARAMETERS

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "fedrepro").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*/*.ipynb"))

# A room imports from itself and from rooms before it, never the reverse.
ROOMS = ["base", "data", "engine", "baselines", "runs", "reporting", "papers", "across", "cli"]
BASE = {"errors", "paths", "registry", "signals"}
PAPERS = ["fedgat", "fedstruct", "gfl", "feras", "fedsheafhn"]
PARTS = ["method", "protocol", "theory", "attack", "exhibits"]
METHODS = [*(ROOT / f"fedrepro/papers/{paper}/method.py" for paper in PAPERS)]
METHODS += sorted((ROOT / "fedrepro/baselines").glob("*.py"))
CITES = re.compile(r"\b(?:19|20)\d\d\b")
LINK = re.compile(r"arXiv:\d{4}\.\d{4,5}|https?://\S")
TORCH_FREE = ["cli", "errors", "paths", "registry"]
TORCH_FREE += [f"reporting.{name}" for name in ("claims", "compare", "exhibits", "figures", "notebook", "report")]
TORCH_FREE += ["reporting.session", "runs.provenance", "runs.process", "runs.run", "runs.store"]


def room(module: str) -> str:
    """Return the room of a module, given its dotted name."""
    first = module.split(".")[1] if "." in module else "__main__"
    return "base" if first in BASE else "cli" if first == "__main__" else first


def imported(path: Path, top_level_only: bool) -> set[str]:
    """Return the dotted names of this package's modules that a file imports, those for type checkers among them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()

    def visit(node: ast.AST) -> None:
        if top_level_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return {name for name in names if name.startswith("fedrepro.")}


def tracked() -> list[Path]:
    """Files git tracks, or would on `git add`; every source file where this is no git checkout."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    files = [*ROOT.glob("*"), *MODULES, *NOTEBOOKS, *TESTS]
    with suppress(FileNotFoundError):  # no git
        listed = subprocess.run(command, capture_output=True, text=True)
        if listed.returncode == 0:
            files = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in files if path.is_file()]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_notebooks_are_sources(path: Path) -> None:
    """A notebook has cell ids, the four parameters and a heading, and no output or execution count."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code), "strip the outputs"
    assert len({cell["id"] for cell in cells}) == len(cells)
    defaults = notebook.parameters(path)
    assert set(PARAMETERS) <= set(defaults)
    notebook.check_parameters(path, defaults)
    assert cells[0]["cell_type"] == "markdown" and "".join(cells[0]["source"]).startswith("# ")


def test_files_are_listed_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources are listed if there is no git on the path."""
    monkeypatch.setenv("PATH", "")
    assert {ROOT / "pyproject.toml", Path(__file__), *MODULES, *NOTEBOOKS} <= set(tracked())


def test_files_belong_to_no_machine() -> None:
    """No tracked file names a folder of one machine; none is larger than 3 MB, or a file of the store than 30 MB.

    A file of the store holds a notebook's runs and grows with them. Code hosts warn of a file from 50 MB.
    """
    folder = re.compile(r"(?<![\w.-])/(work|root|farm|tmp|home)/[a-z.]")
    odd, large = [], []
    for path in tracked():
        if path.stat().st_size > (30_000_000 if path.suffix == ".jsonl" else 3_000_000):
            large.append(path.name)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        odd += [f"{path.relative_to(ROOT)}:{n}" for n, line in enumerate(lines, 1) if folder.search(line)]
    assert not odd
    assert not large


def test_nothing_is_left_open() -> None:
    """The package has no stub and no note of work to be done."""
    words = re.compile("NotImplemented" + r"Error|\b(TO" + "DO|FIX" + r"ME)\b")
    assert not [str(path) for path in MODULES if words.search(path.read_text(encoding="utf-8"))]


def test_files_are_short() -> None:
    """A file of the package or of the tests has at most 400 lines."""
    held = (*MODULES, *TESTS)
    lengths = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in held}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_the_formatter_skips_little() -> None:
    """At most 20 statements are formatted by hand: tables whose rows say more side by side."""
    mark = "# fmt: " + "skip"
    kept = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count(mark) for path in (*MODULES, *TESTS)}
    assert sum(kept.values()) <= 20, {name: count for name, count in kept.items() if count}


def test_importing_loads_next_to_nothing() -> None:
    """`import fedrepro` loads a few modules of its own and of Python, and no library."""
    code = "import sys; before = {*sys.modules}; import fedrepro; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = done.stdout.split()
    libraries = {name.split(".")[0] for name in loaded} - {"fedrepro"} - sys.stdlib_module_names
    assert "fedrepro" in loaded and not libraries
    assert len(loaded) < 100


@pytest.mark.parametrize("name", TORCH_FREE)
def test_reporting_knows_no_torch(name: str) -> None:
    """A module that specifies, stores or shows results can be imported without torch."""
    code = f"import sys, fedrepro.{name}; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_public_names_exist() -> None:
    """Every name in `fedrepro.__all__` can be had, and an unknown one is an AttributeError."""
    import fedrepro

    for name in fedrepro.__all__:
        assert getattr(fedrepro, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fedrepro.nothing


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_say_what_they_are_for(path: Path) -> None:
    """Every file of the package begins with a docstring."""
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_every_module_has_its_room() -> None:
    """A new module stands in one of the rooms."""
    assert {room(dotted(path)) for path in MODULES} <= set(ROOMS)


def dotted(path: Path) -> str:
    """`fedrepro.engine.nn.sparse`; a package is named without its `__init__`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_imports_run_one_way() -> None:
    """A module imports only from its own room and those below, inside functions too."""
    height = {name: level for level, name in enumerate(ROOMS)}
    upward = [
        f"{dotted(path)} -> {name}"
        for path in MODULES
        for name in imported(path, top_level_only=False)
        if height[room(name)] > height[room(dotted(path))]
    ]
    assert not upward


def test_no_paper_imports_another() -> None:
    """Each paper stands by itself: it imports no other paper."""
    crossing = [
        f"{dotted(path)} -> {name}"
        for path in MODULES
        for name in imported(path, top_level_only=False)
        if room(dotted(path)) == room(name) == "papers"
        if dotted(path).count(".") > 1 and name.split(".")[2] != dotted(path).split(".")[2]
    ]
    assert not crossing


def test_methods_know_neither_runs_nor_reporting() -> None:
    """The method and the protocol of a paper import neither the store, nor the comparison, nor the figures."""
    files = [ROOT / "fedrepro/papers" / paper / f"{part}.py" for paper in PAPERS for part in ("method", "protocol")]
    known = {
        f"{dotted(path)} -> {name}"
        for path in files
        for name in imported(path, top_level_only=False)
        if room(name) in ("runs", "reporting")
    }
    assert not known


@pytest.mark.parametrize("paper", PAPERS)
def test_papers_have_the_five_parts(paper: str) -> None:
    """Each paper has its five parts as a file or a folder, or the docstring of its package says which module has it."""
    folder = ROOT / "fedrepro/papers" / paper
    told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    missing = [part for part in PARTS if not (folder / f"{part}.py").is_file() and not (folder / part).is_dir()]
    assert [part for part in missing if elsewhere(part, told) not in {dotted(path) for path in MODULES}] == []


def elsewhere(part: str, told: str) -> str:
    """Return the module that a docstring names for a part of a paper, none if it names none."""
    sentence = re.search(rf"\b{part}s?\b[^.:]*: see `([\w.]+)`", " ".join(told.split()))
    return sentence[1] if sentence else ""


def test_a_part_without_a_module_is_seen() -> None:
    """A part that the docstring merely mentions has no module."""
    assert elsewhere("attack", "The attacks forge\nembeddings: see `fedrepro.baselines.malicious`, since") == (
        "fedrepro.baselines.malicious"
    )
    assert elsewhere("attack", "Method, protocol, theory, attacks and exhibits. See `fedrepro.across`.") == ""


@pytest.mark.parametrize("path", METHODS, ids=lambda path: str(path.relative_to(ROOT / "fedrepro")))
def test_methods_link_their_papers(path: Path) -> None:
    """A file of a method or of a baseline that cites a paper has a link to it, or its number on arXiv."""
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert not CITES.search(told) or LINK.search(told), "the docstring cites a paper without a link"


def test_a_citation_without_a_link_is_seen() -> None:
    """A year stands for a citation, and neither a number nor a place in a paper is one."""
    assert CITES.search("Y. Yao and W. Jin, NeurIPS 2023.") and not CITES.search("Section 4.4, Figure 7, 12023 nodes")
    assert LINK.search("arXiv:2201.12433") and LINK.search("see https://openreview.net/x") and not LINK.search("arXiv")


def test_imports_close_no_circle() -> None:
    """No module imports itself by way of others, neither when it is loaded nor for type checkers."""
    known = {dotted(path) for path in MODULES}
    graph = {
        dotted(path): {
            name if name in known else name.rpartition(".")[0] for name in imported(path, top_level_only=True)
        }
        for path in MODULES
    }
    done: set[str] = set()
    while ready := {name for name in graph if name not in done and graph[name] & known <= done | {name}}:
        done |= ready
    assert done == known, f"a circle among {sorted(known - done)}"


def parsed(words: list[str]) -> None:
    """Parse a command line as `fedrepro` does, and run nothing."""
    group: Any = typer.main.get_command(cli.app)
    context = group.make_context("fedrepro", list(words))
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    command.make_context(name, rest, parent=context)


def test_documented_commands_exist() -> None:
    """Every `fedrepro ...` and `make ...` the README, CONTRIBUTING and Makefile name exists."""
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))
    quoted = re.findall(r"```[a-z]*\n(.*?)```|`([^`\n]+)`", text, re.DOTALL)
    code = "\n".join(block or span for block, span in quoted)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {*re.findall(r"^([a-z-]+):", makefile, re.MULTILINE), *(path.parent.name for path in NOTEBOOKS)}
    made = set(re.findall(r"^\s*make ([a-z-]+)", code, re.MULTILINE))
    assert made and made <= targets
    lines = re.findall(r"^\s*(?:\S*/)?fedrepro ((?:\S+ ?)+)", code, re.MULTILINE)
    assert len(lines) > 8
    for line in lines:
        if line.strip() != "--version":  # prints and exits; tests/test_cli.py has its test
            parsed(shlex.split(line))
    commands = {line.split()[0] for line in lines} | set(re.findall(r"\$\(FEDREPRO\) ([a-z]+)", makefile))
    for command in commands:
        assert cli.main([command, "--help"]) == 0, command


def test_constraints_pin_every_dependency() -> None:
    """Each dependency and extra has one exact version in constraints.txt, without a local label."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(name for extra in extras for name in extra)]
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines}
    assert {re.split(r"[<>=]", name)[0] for name in wanted} <= pinned


def test_every_dependency_is_used() -> None:
    """Each declared dependency is imported somewhere; JupyterLab and its kernel are started by name."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["dask"], *extras["slurm"]]
    module = {"scikit-learn": "sklearn", "torch-geometric": "torch_geometric", "dask": "distributed"}
    started = {"jupyterlab": "jupyter lab", "ipykernel": "ipykernel"}
    sources = [*MODULES, *NOTEBOOKS, ROOT / "Makefile"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    for name in (re.split(r"[<>=]", entry)[0] for entry in wanted):
        imported_as = module.get(name, name)
        pattern = re.escape(started[name]) if name in started else rf"\b(?:import|from) {imported_as}\b"
        assert re.search(pattern, text), name


def test_make_help_lists_the_targets() -> None:
    """`make` alone prints every target with what it does, and needs no environment for that."""
    done = subprocess.run(["make", "-C", str(ROOT), "--no-print-directory"], capture_output=True, text=True)
    listed = set(re.findall(r"^  ([a-z-]+) {2,}\S", done.stdout, re.MULTILINE))
    assert {"all", "test", "faults", "smoke", "lab", "verify", "bench", "report", "clean", "help"} <= listed


def test_make_leaves_the_number_of_jobs_to_the_command() -> None:
    """`fedrepro run` knows how many cores it may use; `JOBS` is passed on where it is given."""
    for given, passed in ([], False), (["JOBS=3"], True):
        for target in ("engine", "smoke"):
            command = ["make", "-n", "-C", str(ROOT), "VENV=none", *given, target]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            assert ("--jobs 3" in done.stdout) == ("--jobs" in done.stdout) == passed


@pytest.mark.parametrize(("given", "device"), [((), "cpu"), (("DEVICE=cuda",), "cuda"), (("DEVICE=cpu",), "cpu")])
def test_make_smoke_honours_the_device(given: tuple[str, ...], device: str) -> None:
    """`make smoke` runs on the CPU, and on a GPU for whoever asks for it."""
    done = subprocess.run(["make", "-n", "-C", str(ROOT), "VENV=none", *given, "smoke"], capture_output=True, text=True)
    assert f"run all --profile smoke --device {device} " in done.stdout


def test_make_clean_keeps_results(tmp_path: Path) -> None:
    """`make clean` removes what can be built again; results stay, and so do runs and notebooks of the user's own."""
    kept = {"build/fresh/results/a.jsonl", "data/results/a.jsonl"}
    kept |= {"build/mine/mine.jsonl", "build/edit/notebooks/engine/1-a.ipynb"}
    for name in (*kept, "build/notebooks/engine/1-a.html", ".mypy_cache/a.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    command = ["make", "-C", str(tmp_path), "-f", str(ROOT / "Makefile"), "clean"]
    subprocess.run(command, capture_output=True, check=True)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == kept
