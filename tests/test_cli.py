"""The commands: what they print, which exit status they end with, and that errors are one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from notebooks_written import write
from records import record

from fedrepro import cli, paths
from fedrepro.reporting import notebook
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store

RELEASE = {"pyproject.toml": 'version = "{}"', "CITATION.cff": "version: {}", "CHANGELOG.md": "## {} ("}


def executed(runs: list[Run], *errors: str) -> pd.DataFrame:
    """Return a frame as `engine.execute` does: a row a run, and in `attrs` what failed."""
    frame = pd.DataFrame({"key": [run.key for run in runs]})
    frame.attrs = {"failed": [{"error": error} for error in errors], "unavailable": []}
    return frame


@pytest.fixture
def exhibits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Make a checkout with one notebook, its exhibit (two methods, two graphs, two seeds), and the graphs at hand."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setattr("fedrepro.data.sources.locate", lambda source: tmp_path)
    write(tmp_path / "notebooks", "fedgat/6-experiments")
    runs = sweep(task="train", paper="fedgat", method=["FedAvg", "DistGAT"], dataset=["PubMed", "Cora"], seed=range(2))
    exhibit = SimpleNamespace(
        id="FG-T1",
        paper="fedgat",
        notebook="fedgat/6-experiments",
        title="Table 1",
        runs=lambda profile, seeds=0: [
            run for run in (runs if profile == "paper" else runs[:4]) if not seeds or run.seed < seeds
        ],
    )
    known = {"FG-T1": exhibit}
    monkeypatch.setattr("fedrepro.reporting.exhibits.registered", lambda: known)
    return runs


def test_an_error_is_one_line_and_status_2() -> None:
    """A wrong name ends with status 2 and one line on stderr, without a traceback."""
    command = [sys.executable, "-m", "fedrepro", "run", "al"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "Got 'al'. Did you mean 'all'?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fedgat", "-p", "profil=quick"], "Did you mean 'profile'"),
        (["fedgat", "-p", "profile"], "-p must be of the form name=value. Got 'profile'"),
        (["fedgat", "--profile", "quik"], "--profile must be one of 'smoke', 'quick', 'paper'. Got 'quik'"),
        (["fedgat", "--jobs", "0"], "jobs must be an integer >= 1. Got 0"),
        (["fedgat", "--stale"], "--stale must be given together with --budget"),
        (["fedgat", "--budget", "0"], "--budget must be a number of minutes > 0. Got 0.0"),
        (["fedgat", "--budget", "1", "-p", "split=public"], "Got 'split'"),
        (["fedgat", "--budget", "1", "-p", "seeds=abc"], "seeds must be an integer >= 0"),
        (["fedgat", "--budget", "1", "-p", "seeds=-1"], "Got -1"),
        (["fedgta"], "Did you mean 'fedgat'"),
    ],
)
def test_wrong_arguments_of_run(
    exhibits: list[Run], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """Each wrong argument of `run` is named with what is allowed, before anything runs."""
    assert cli.main(["run", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_failed_notebook_is_status_1(
    exhibits: list[Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` reports every notebook and ends with status 1 if one failed, with 0 if none did; by default
    as many at once as there are workers.
    """
    given: list[Any] = []

    def run_all(names: list[str], parameters: dict[str, Any], *, jobs: int, **_: Any) -> list[notebook.Outcome]:
        given.append((names, parameters, jobs))
        return ends

    monkeypatch.setattr(notebook, "run_all", run_all)
    monkeypatch.setenv("FEDREPRO_WORKERS", "5")
    ends = [notebook.Outcome("a/1-b", 1.0)]
    assert cli.main(["run", "a", "-p", "seeds=3", "-p", "split=10/10/80", "--device", "cpu", "--jobs", "3"]) == 0
    assert given == [(["a"], {"seeds": 3, "split": "10/10/80", "device": "cpu"}, 3)]
    assert "1 executed with the profile quick" in capsys.readouterr().out
    ends.append(notebook.Outcome("a/2-c", 2.0, "ValueError: no"))
    assert cli.main(["run", "a"]) == 1
    printed = capsys.readouterr()
    assert given[1] == (["a"], {}, 6)
    assert "ok     a/1-b" in printed.out and "FAILED a/2-c" in printed.out and "ValueError: no" in printed.err


def test_budget_computes_what_is_missing(
    exhibits: list[Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A budget computes what an exhibit lacks, within the time, and executes no notebook."""
    asked: list[tuple[str, list[Run]]] = []

    def execute(runs: list[Run], *, budget: float, file: str, device: str, **_: Any) -> pd.DataFrame:
        assert 0 < budget <= 2 and device == "cpu"
        asked.append((file, runs))
        return executed(runs)

    monkeypatch.setattr("fedrepro.runs.execute.execute", execute)
    Store().append("fedgat-6-experiments", record(exhibits[0]))
    arguments = ["--profile", "paper", "--device", "cpu", "--budget", "2"]
    assert cli.main(["run", "fedgat", *arguments]) == 0
    assert asked == [("fedgat-6-experiments.jsonl", exhibits[1:])]
    assert "7 of 7 missing runs computed" in capsys.readouterr().out
    assert not (paths.root() / "build" / "notebooks").exists()


def test_stale_runs_are_computed_again(
    exhibits: list[Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--stale` a budget computes stale runs instead of missing ones, and counts those with a new result."""
    asked: list[tuple[list[Run], set[str]]] = []
    old = "2020-01-01T00:00:00+00:00"

    def execute(runs: list[Run], *, again: dict[str, str], **_: Any) -> pd.DataFrame:
        asked.append((runs, set(again)))
        return executed(runs).assign(when=["2100-01-01T00:00:00+00:00", old])

    monkeypatch.setattr("fedrepro.runs.execute.execute", execute)
    changed = [record(run, fingerprint="of other code", when=old) for run in exhibits[1:3]]
    Store().append("fedgat-6-experiments", record(exhibits[0]), *changed)
    assert cli.main(["run", "fedgat", "--profile", "paper", "--device", "cpu", "--budget", "2", "--stale"]) == 0
    assert asked == [(exhibits[1:3], {run.key for run in exhibits[1:3]})]
    assert "1 of 2 stale runs computed" in capsys.readouterr().out


def test_a_failed_run_of_a_budget_is_status_1(
    exhibits: list[Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a budget, too, a run that failed is told and changes the exit status."""
    monkeypatch.setattr("fedrepro.runs.execute.execute", lambda runs, **_: executed(runs[1:], "ValueError: no"))
    assert cli.main(["run", "fedgat", "--profile", "paper", "--device", "cpu", "--budget", "2"]) == 1
    assert capsys.readouterr().out == "1 run failed: ValueError: no\n7 of 8 missing runs computed\n"


def test_notebooks_share_a_budget_seed_by_seed(exhibits: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """With several notebooks the first seed of all comes before the second of any."""
    write(paths.root() / "notebooks", "gfl/5-experiments")
    from fedrepro.reporting.exhibits import registered

    other = [run.replace(paper="gfl") for run in exhibits]
    registered()["GFL-T1"] = SimpleNamespace(notebook="gfl/5-experiments", runs=lambda profile, seeds=0: other)
    asked: list[tuple[str, set[int]]] = []

    def execute(runs: list[Run], *, file: str, **_: Any) -> pd.DataFrame:
        asked.append((file.partition("-")[0], {run.seed for run in runs}))
        return executed([])

    monkeypatch.setattr("fedrepro.runs.execute.execute", execute)
    assert cli.main(["run", "all", "--device", "cpu", "--profile", "paper", "--budget", "1"]) == 0
    assert asked == [("fedgat", {0}), ("gfl", {0}), ("fedgat", {1}), ("gfl", {1})]


def test_status_counts(exhibits: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    """`status --json` counts done, stale, failed and missing runs and tells the time they need."""
    Store().append(
        "fedgat-6-experiments",
        record(exhibits[0], seconds=10.0),
        record(exhibits[1], seconds=30.0, fingerprint="another"),
        record(exhibits[2], status="failed", error="no", result={}),
    )
    assert cli.main(["status", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["exhibits"]
    counts = {name: row[name] for name in ("done", "wanted", "stale", "failed", "missing")}
    assert counts == {"done": 2, "wanted": 8, "stale": 1, "failed": 1, "missing": 6}
    # PubMed takes 10 s and Cora 30 s, whatever the method; three runs of each are missing
    assert row["seconds_missing"] == pytest.approx(120.0)
    assert cli.main(["status", "--profile", "quick"]) == 0
    line = capsys.readouterr().out.splitlines()[1].split()
    assert line[:7] == ["FG-T1", "2", "4", "1", "1", "2", "0"]


def test_list_names_everything(exhibits: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    """`list` names notebooks with exhibits, whatever their text calls them, methods, data sets and partitions."""
    from fedrepro.reporting.exhibits import registered

    registered()["FG-T1-code"] = SimpleNamespace(id="FG-T1-code", notebook="fedgat/6-experiments")
    write(paths.root() / "notebooks", "engine/1-a", first="# Without runs\n\nEN-1a")
    assert cli.main(["list"]) == 0
    text = capsys.readouterr().out
    for word in ("fedgat/6-experiments", "FG-T1 FG-T1-code", "EN-1a", "FedGAT", "CiteSeer", "metis"):
        assert word in text


def test_data_says_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    """`data` lists every graph with its licence; an unknown name is an error with a suggestion."""
    assert cli.main(["data"]) == 0
    text = capsys.readouterr().out
    assert "PubMed" in text and "ODC-BY" in text
    assert cli.main(["data", "--fetch", "Coar"]) == 2
    assert "Did you mean 'Cora'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verdicts", "status"), [(["identical", "close"], 0), (["identical", "differs"], 1), (["damaged"], 1), ([], 0)]
)
def test_verify_ends_with_its_verdict(
    verdicts: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify` prints a row a run, and ends with status 1 if one of them differs."""
    frame = pd.DataFrame({"key": list("ab")[: len(verdicts)], "verdict": verdicts})
    monkeypatch.setattr("fedrepro.runs.verification.verify", lambda store, n, **more: frame)
    assert cli.main(["verify", "-n", "2"]) == status
    assert all(verdict in capsys.readouterr().out for verdict in verdicts[:1])


def test_report_writes_the_galleries(capsys: pytest.CaptureFixture[str]) -> None:
    """`report` writes the gallery pages and prints where."""
    assert cli.main(["report"]) == 0
    assert (paths.figures() / "README.md").is_file()
    assert "README.md" in capsys.readouterr().out


def test_the_gallery_is_written_once(exhibits: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    """`report` writes nothing where nothing has changed, and all again after a page was removed or a run was stored."""
    sys.modules.pop("fedrepro.reporting.exhibits")  # the real ones
    page = paths.figures() / "README.md"
    for _ in range(2):
        assert cli.main(["report"]) == 0 and str(page) in capsys.readouterr().out
        assert cli.main(["report"]) == 0 and "what it would be again" in capsys.readouterr().out
        page.unlink()
    assert cli.main(["report"]) == 0 and str(page) in capsys.readouterr().out
    Store().append("fedgat-6-experiments", record(exhibits[0]))
    assert cli.main(["report"]) == 0 and str(page) in capsys.readouterr().out


def test_another_store_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`status` and `show` say of which folder they speak if it is not the suite's, and `report` keeps the gallery."""
    assert cli.main(["status", "FG-A1"]) == 0 and str(paths.store()) in capsys.readouterr().err
    assert cli.main(["show", "abc"]) == 2 and f"stored in {paths.store()}" in capsys.readouterr().err
    monkeypatch.delenv("FEDREPRO_FIGURES")
    assert cli.main(["report"]) == 2
    told = capsys.readouterr().err
    assert "FEDREPRO_FIGURES must be set too, since FEDREPRO_STORE is" in told and len(told.splitlines()) == 1
    for folder in ("", str(paths.root() / "data" / "results")):
        monkeypatch.setenv("FEDREPRO_STORE", folder)
        paths.require_own_figures()
        assert cli.main(["show", "0" * 64]) == 2 and "a key that is stored, or" in capsys.readouterr().err
        assert not paths.elsewhere()


def test_outside_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An installed copy says in one sentence that it has no gallery; it writes into the user's folder of data."""
    monkeypatch.setattr(paths, "CHECKOUT", None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for command in ("report", "site"):
        assert cli.main([command]) == 2
        told = capsys.readouterr().err
        assert len(told.splitlines()) == 1 and f"`fedrepro {command}` must be that of a checkout" in told
    assert not [*tmp_path.iterdir()]
    assert cli.main(["list", "methods"]) == 0 and cli.main(["data"]) == 0
    assert paths.root() == tmp_path / "data" / "fedrepro" and paths.personal().is_relative_to(tmp_path)
    assert paths.notebooks() == Path(paths.__file__).parent / "notebooks"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`fedrepro --version` prints the version that pyproject.toml, CITATION.cff and CHANGELOG.md name."""
    assert cli.main(["--version"]) == 0
    version = capsys.readouterr().out.split()[-1]
    texts = {name: (paths.root() / name).read_text(encoding="utf-8") for name in RELEASE}
    assert all(line.format(version) in texts[name] for name, line in RELEASE.items())


def test_bare_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`fedrepro` without a command lists the commands."""
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("list", "run", "status", "--install-completion"))
    assert "..." not in text.partition("Commands:")[2], "what a command does is cut off"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "x", "--sedes", "2"], "No such option: --sedes (Possible options: --seeds)"),
        (["run"], "Missing argument 'NOTEBOOK'"),
        (["verify", "-n", "many"], "Invalid value for '-n'"),
        (["stauts"], "No such command 'stauts'"),
        (["status", "FG-T99"], "Got 'FG-T99'. Did you mean 'FG-"),
        (["status", "mine"], "`fedrepro list exhibits`. Got 'mine'.\n"),
        (["list", "metods"], "Did you mean 'methods'"),
        (["report", "fedgta"], "Did you mean 'fedgat'"),
        (["data", "Coar"], "Did you mean 'Cora'"),
        (["run", "x", "--seeds", "2", "--seeds=3"], "--seeds must be given once. Got it 2 times."),
        (["show", "FG-T99"], "Got 'FG-T99'. Did you mean 'FG-"),
        (["compare", "FG-T9"], "names. Got 'FG-T9'. Did you mean 'FG-T2'? They are 'FG-T1', "),
        (["list", "foo"], "WHAT must be one of 'notebooks', "),
    ],
)
def test_wrong_words_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong option, argument or filter is one line that names it, and status 2."""
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err and len(printed.err.splitlines()) == 1 and printed.out == ""


def test_filters_choose(capsys: pytest.CaptureFixture[str]) -> None:
    """`list`, `status`, `data` and `report` take names, and print what they name and nothing else."""
    assert cli.main(["list", "methods"]) == 0
    text = capsys.readouterr().out
    assert "FedGAT" in text and "Cora" not in text and "metis" not in text
    assert cli.main(["list", "gfl"]) == 0
    text = capsys.readouterr().out
    assert "gfl/6-experiments" in text and "fedgat/" not in text
    assert cli.main(["status", "FG-T1", "engine/4-speed"]) == 0
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:] if line[0] != " "]
    assert shown == ["FG-T1", "EN-4", "EN-5", "EN-6", "EN-7"]
    assert cli.main(["data", "Cora"]) == 0
    text = capsys.readouterr().out
    assert "10556" in text and "PubMed" not in text
    assert cli.main(["report", "gfl"]) == 0
    assert (paths.figures() / "gfl/README.md").is_file() and not (paths.figures() / "feras/README.md").exists()


@pytest.mark.parametrize(
    "arguments", [["list"], ["list", "exhibits"], ["data"], ["status", "fedgat"], ["show", "FG-A1"]]
)
def test_tables_fit_the_terminal(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In 80 columns no line of a table is longer; the titles of `list` are lines of text."""
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert all(len(line) <= 80 for line in lines if "?" not in line and not line.startswith("fedrepro show"))


def test_seeds_and_a_missing_gpu(
    exhibits: list[Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--seeds` is a parameter; `--device cuda` without a GPU is refused before a notebook is started."""
    given: list[Any] = []
    monkeypatch.setattr(notebook, "run_all", lambda names, parameters, **_: given.append(parameters) or [])
    assert cli.main(["run", "fedgat", "--seeds", "2"]) == 0 and given == [{"seeds": 2}]
    assert cli.main(["run", "fedgat", "--seeds", "-1"]) == 2
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for arguments in (["--device", "cuda"], ["-p", "device=cuda"], ["--device", "cuda", "--budget", "1"]):
        assert cli.main(["run", "fedgat", *arguments]) == 2
        assert "device must be 'auto' or 'cpu' where no GPU is found" in capsys.readouterr().err
    assert len(given) == 1


def test_partitions_are_listed_as_they_are() -> None:
    """The names that need no torch are those of the partitions."""
    from fedrepro import registry
    from fedrepro.data import partition

    assert tuple(partition.PARTITIONS) == registry.PARTITIONS


@pytest.mark.parametrize("arguments", [["list"], ["data"], ["status"], ["show", "FG-A1"]])
def test_looking_needs_no_torch(arguments: list[str]) -> None:
    """A command that only looks imports neither torch nor what compiles grammars of addresses."""
    code = f"import sys; from fedrepro import cli; assert cli.main({arguments}) == 0; "
    code += "assert not {'torch', 'rfc3987_syntax', 'jsonschema'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_narrow_prints_the_plan_and_buys_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a budget the plan is printed with its sentences; with one its runs are computed and counted."""
    from fedrepro.reporting import narrow

    row = ["SH-T1", "Cora", "Flow", 1, 2, "3.0 min", "3.0 min", "92.0%"]
    table = pd.DataFrame([row], columns=list(narrow.COLUMNS))
    monkeypatch.setattr(narrow, "plan", lambda papers: (table, [f"{papers[0]}: 9 of 10."]))
    monkeypatch.setattr(narrow, "buy", lambda papers, minutes: int(minutes))
    assert cli.main(["narrow", "fedsheafhn"]) == 0
    told = capsys.readouterr().out
    assert "Flow" in told and "92.0%" in told and "fedsheafhn: 9 of 10." in told
    assert cli.main(["narrow", "fedsheafhn", "--budget", "7"]) == 0
    assert capsys.readouterr().out == "7 runs computed\n"
