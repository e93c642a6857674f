"""The strict runner, on tiny notebooks executed by real kernels, and the session object."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pandas as pd
import papermill.engines
import pytest
from notebooks_written import STANDARD, write

from fedrepro import paths
from fedrepro.errors import ArgumentError, FedreproError
from fedrepro.reporting import kernel, notebook


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty checkout in a temporary folder; returns its notebooks folder."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    return tmp_path / "notebooks"


def printed(path: Path) -> str:
    """Everything the executed notebook's cells wrote to stdout."""
    cells = nbformat.read(path, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def test_find_reads_title_and_exhibits(suite: Path) -> None:
    """Notebooks are listed in natural order with the title and exhibit IDs of their first cell."""
    write(suite, "fedgat/10-appendix")
    write(
        suite,
        "fedgat/6-experiments",
        first="# Experiments\n\nFG-T1, FG-F4a, SH-Th2; decided in FG-Q6. FG-T1 again.",
    )
    sources = notebook.find()
    assert [source.name for source in sources] == ["fedgat/6-experiments", "fedgat/10-appendix"]
    assert sources[0].title == "Experiments"
    assert sources[0].exhibits == ("FG-T1", "FG-F4a", "SH-Th2")


def test_select_suggests_the_nearest_name(suite: Path) -> None:
    """A misspelled notebook is an error that names the nearest one."""
    write(suite, "fedgat/6-experiments")
    for names in (["fedgat", "all"], ["fedgat/6"]):
        assert [source.name for source in notebook.select(names)] == ["fedgat/6-experiments"]
    with pytest.raises(ArgumentError, match=r"Got 'fedgat/6-experiment'\. Did you mean 'fedgat/6-experiments'"):
        notebook.select(["fedgat/6-experiment"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"profil": "quick"}, r"Got 'profil'\. Did you mean 'profile'"),
        ({"profile": "quik"}, r"Got 'quik'\. Did you mean 'quick'"),
        ({"device": "gpu"}, r"device must be one of 'auto', 'cpu', 'cuda'\. Got 'gpu'"),
        ({"seeds": "3"}, r"seeds must be an integer >= 0.*Got '3'"),
        ({"seeds": True}, r"seeds must be .*Got True"),
        ({"seeds": -1}, r"seeds must be .*Got -1"),
        ({"rate": "0.1"}, r"rate must be of type float, like 0.5\. Got '0.1'"),
        ({"flag": 1}, r"flag must be of type bool, like True\. Got 1"),
    ],
)
def test_wrong_parameters_are_errors(tmp_path: Path, given: dict[str, object], message: str) -> None:
    """An unknown name, a wrong type and a value that is no choice are errors that say what is allowed."""
    path = write(tmp_path, "p/1-a", parameters=STANDARD + "\nrate = 0.5\nflag = True")
    with pytest.raises(ArgumentError, match=message):
        notebook.check_parameters(path, given)


def test_right_parameters_pass(tmp_path: Path) -> None:
    """Values of the default's type pass, and an integer serves where the default is a float."""
    path = write(tmp_path, "p/1-a", parameters=STANDARD + "\nrate = 0.5\nsizes = [1, 2]")
    given = {"profile": "paper", "seeds": 3, "rate": 1, "sizes": [4]}
    assert notebook.check_parameters(path, given) == given
    assert type(notebook.check_parameters(path, given)["rate"]) is float


@pytest.mark.parametrize(
    "line", ["x = dict(a=1)", "x: int = 1", "x = y = 1", "import os", "x = [\n    1,\n]", "x, y = 1, 2"]
)
def test_parameters_are_one_line_literals(tmp_path: Path, line: str) -> None:
    """Anything but `name = literal` on one line in the parameters cell is an error that quotes it."""
    path = write(tmp_path, "p/1-a", parameters=f"{STANDARD}\n{line}")
    with pytest.raises(ArgumentError, match="must hold one-line"):
        notebook.parameters(path)


def test_a_parameters_cell_is_required(tmp_path: Path) -> None:
    """A notebook without a cell tagged `parameters` is refused."""
    path = tmp_path / "plain.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]), path)
    with pytest.raises(ArgumentError, match="one cell tagged 'parameters'"):
        notebook.parameters(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("0.5", 0.5), ("true", True), ("quick", "quick"), ("[1, 2]", [1, 2]), ("a=b", "a=b"), ("{{}}", "{{}}")],
)
def test_parse_reads_literals(text: str, value: object) -> None:
    """A typed value is a Python literal where it is one, and text where it is not."""
    assert notebook.parse(text) == value


def test_smoke_run_is_isolated_and_complete(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A smoke run gets its parameters, this interpreter, an empty store, no folder of raw graphs, no network."""
    monkeypatch.setenv("HOME", str(suite.parent / "home"))
    monkeypatch.setenv("FEDREPRO_DATA", "elsewhere")
    cells = [
        "import os, sys; print(sys.executable, profile, seeds)",
        "print(os.environ['FEDREPRO_STORE'], os.environ['FEDREPRO_DATA'], os.environ['OMP_NUM_THREADS'])",
        "print(os.path.exists(os.environ['FEDREPRO_STORE']), os.environ['https_proxy'])",
        "print(os.environ['FEDREPRO_FIGURES'])",
    ]
    write(suite, "p/1-a", *cells)
    done = notebook.run("p/1-a", {"profile": "smoke", "seeds": 2})
    assert done == suite.parent / "build/smoke/notebooks/p/1-a.ipynb"
    first, second, third, figures = printed(done).splitlines()
    assert first == f"{sys.executable} smoke 2"
    store, data, threads = second.split()
    assert not Path(store).parent.exists() and "elsewhere" not in data and threads == "1"
    assert third == "False http://127.0.0.1:9"
    assert figures == f"{suite.parent}/build/smoke/figures"
    assert "smoke 2" in done.with_suffix(".html").read_text()
    assert sorted(path.name for path in done.parent.iterdir()) == ["1-a.html", "1-a.ipynb"]


def test_smoke_in_jupyterlab_keeps_to_itself(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two-round results and figures do not go among the real ones; `FEDREPRO_FIGURES` moves the figures elsewhere."""
    for name in ("FEDREPRO_STORE", "FEDREPRO_FIGURES"):
        monkeypatch.delenv(name, raising=False)
    smoke, quick = (
        notebook.begin("gfl/6-x", profile=profile, device="cpu", seeds=0, engine="local")
        for profile in ("smoke", "quick")
    )
    assert smoke.store.folder == suite.parent / "build/smoke/results" and quick.store.folder == paths.store()
    smoke.checks([])
    assert (suite.parent / "build/smoke/figures/gfl/checks.csv").is_file() and quick.figures == paths.figures()
    for given, folder in (("elsewhere", Path("elsewhere")), ("", suite.parent / "build/smoke/figures")):
        monkeypatch.setenv("FEDREPRO_FIGURES", given)
        assert smoke.figures == folder


def test_a_failure_leaves_no_finished_copy(suite: Path) -> None:
    """After a failing run nothing is left under the final name, only the failed copy beside it."""
    path = write(suite, "p/1-a", "print('first')")
    done = notebook.run("p/1-a")
    assert done.exists()
    write(suite, "p/1-a", "print('before')\nraise ValueError('no such thing')", "print('after')")
    with pytest.raises(notebook.NotebookError, match=r"cell \[2\] `print\('before'\)`: ValueError: no such thing"):
        notebook.run(path)
    assert [file.name for file in done.parent.iterdir()] == ["1-a.failed.ipynb"]
    assert printed(done.with_suffix(".failed.ipynb")) == "before\n"


def test_the_copy_is_saved_once(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before and after each cell; a kernel that ends in a cell leaves the copy as far as it came."""
    saved: list[str] = []
    to_disk = papermill.iorw.write_ipynb

    def save(nb: nbformat.NotebookNode, path: str) -> None:
        saved.append(path)
        to_disk(nb, path)

    for module in ("iorw", "engines", "execute"):
        monkeypatch.setattr(f"papermill.{module}.write_ipynb", save)
    write(suite, "p/1-a", *["print('before')"] * 9)
    notebook.run("p/1-a")
    assert len(saved) == 1
    write(suite, "p/1-a", "print('before')", "import os; os._exit(3)", "print('after')")
    with pytest.raises(notebook.NotebookError, match="a cell that ended the kernel") as caught:
        notebook.run("p/1-a")
    assert len(saved) == 2 and printed(caught.value.copy) == "before\n"


def test_an_error_of_the_package_is_a_sentence(suite: Path) -> None:
    """A kernel shows the cell's line and the sentence in place of a traceback; the failed copy names the cell."""
    lines = "import fedrepro as fr\nfr.begin('p/1-a', profile='papr')"
    path = write(suite, "p/1-a", "1", lines, "[][0]")
    with pytest.raises(
        notebook.NotebookError, match=r"cell \[3\] `import fedrepro as fr`: ArgumentError: profile must"
    ):
        notebook.run(path)
    cells = nbformat.read(notebook.executed_copy(notebook.read(path)).with_suffix(".failed.ipynb"), 4).cells
    (error,) = (each for cell in cells for each in cell.get("outputs", ()) if each.output_type == "error")
    where, said = error.traceback
    assert where == "in line 2 of the cell: fr.begin('p/1-a', profile='papr')"
    assert said.startswith("ArgumentError: profile must be one of") and "Did you mean 'paper'?" in said
    assert any('id="papermill-error-cell"' in cell.source for cell in cells)


def test_run_all_goes_on_after_a_failure(suite: Path) -> None:
    """A notebook that fails, by leaving early, does not end the others; a wrong parameter starts none."""
    write(suite, "p/1-a", "import sys; sys.exit(0)", "print('never')")
    write(suite, "p/2-b", "print('fine')")
    with pytest.raises(ArgumentError, match="Did you mean 'seeds'"):
        list(notebook.run_all(["p"], {"seed": 1}, jobs=2))
    assert not (suite.parent / "build").exists()
    ends = {end.name: end.error for end in notebook.run_all(["p"], {"seeds": 1}, jobs=1)}
    assert ends["p/2-b"] == ""
    assert "was never executed" in ends["p/1-a"] or "SystemExit" in ends["p/1-a"]


def test_a_figure_is_a_picture_in_the_copy(suite: Path) -> None:
    """Also in a kernel forked from a process that has imported matplotlib already."""
    write(suite, "p/1-a", "import matplotlib.pyplot as plt\nfigure, _ = plt.subplots()\nplt.close(figure)\nfigure")
    (end,) = notebook.run_all(["p"], jobs=2)
    cells = nbformat.read(suite.parent / "build/notebooks/p/1-a.ipynb", as_version=4).cells
    kinds = {kind for cell in cells for output in cell.get("outputs", []) for kind in output.get("data", {})}
    assert end.error == "" and "image/png" in kinds


def test_run_takes_one_notebook(suite: Path) -> None:
    """A name that several notebooks answer to is an error, not the first of them."""
    for name in ("p/1-a", "p/2-b"):
        write(suite, name, "print('fine')")
    with pytest.raises(ArgumentError, match=r"path_or_name must be one notebook, such as 'p/1-a'\. Got 'p'"):
        notebook.run("p")


def test_an_interrupt_begins_no_further_notebook(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notebooks that wait for a process are cancelled when whoever reads the outcomes stops."""

    class Threads(ThreadPoolExecutor):
        def __init__(self, jobs: int, **_: object) -> None:
            super().__init__(jobs)

    begun: list[str] = []

    def attempt(source: notebook.Source, *_: object) -> notebook.Outcome:
        begun.append(source.name)
        time.sleep(0.05)
        return notebook.Outcome(source.name, 0.05)

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", Threads)
    monkeypatch.setattr(notebook, "_attempt", attempt)
    for number in range(9):
        write(suite, f"p/{number}-a")
    ends = notebook.run_all(["p"])
    next(ends)
    ends.close()  # type: ignore[attr-defined]
    time.sleep(0.3)
    assert len(begun) <= 3


def test_the_users_number_of_workers_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notebooks share the cores this process may use, unless the user has said how many workers to take."""
    monkeypatch.setattr("fedrepro.runs.executors.cores", lambda: 4)
    for given, expected in (("7", "7"), ("", "2")):
        monkeypatch.setenv("FEDREPRO_WORKERS", given)
        with kernel.environment("quick", jobs=4):
            assert os.environ["FEDREPRO_WORKERS"] == expected
        assert os.environ["FEDREPRO_WORKERS"] == given


def test_begin_checks_its_arguments() -> None:
    """The session refuses what the runner refuses, and knows the file its records go to."""
    nb = notebook.begin("fedgat/6-experiments", profile="quick", device="cpu", seeds=0, engine="local")
    assert (nb.paper, nb.file) == ("fedgat", "fedgat-6-experiments.jsonl")
    with pytest.raises(ArgumentError, match="engine must be one of"):
        notebook.begin("fedgat/6-experiments", profile="quick", device="cpu", seeds=0, engine="ray")
    with pytest.raises(ArgumentError, match="paper/n-section"):
        notebook.begin("experiments", profile="quick", device="cpu", seeds=0, engine="local")


def test_rows_are_merged_by_id(tmp_path: Path) -> None:
    """Rows of several notebooks share a file in the order of their ids; later rows replace earlier ones."""
    nb = notebook.begin("fedgat/4-theory", profile="quick", device="cpu", seeds=0, engine="local")
    row = {"statement": "s", "bound": 1.0, "verdict": "holds"}
    nb.checks([{"id": "FG-I10", "measured": 1e-15, **row}, {"id": "FG-I2", "measured": 1 / 3, **row}])
    nb.checks([{"id": "FG-I10", "measured": 0.0, **row}, {"id": "FG-I1", "measured": 2, **row}])
    path = tmp_path / "figures" / "fedgat" / "checks.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["id"], r["measured"]) for r in rows] == [
        ("FG-I1", "2"),
        ("FG-I2", "0.333333"),
        ("FG-I10", "< 1e-12"),
    ]
    before = path.read_bytes()
    nb.checks([{"id": "FG-I2", "measured": 1 / 3, **row}])
    assert path.read_bytes() == before
    with pytest.raises(ArgumentError, match="a row of checks must be"):
        nb.checks([{"id": "FG-I3", **row}])


def test_provenance_tells_stored_from_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs older than the session count as stored, younger ones as computed now; changed code is told of."""
    from fedrepro.reporting.exhibits import registered
    from fedrepro.runs import execute as engine
    from fedrepro.runs import provenance

    nb = notebook.begin("fedgat/6-experiments", profile="quick", device="cpu", seeds=0, engine="local")
    now = nb.started.strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted = [registered()["FG-A1"].runs("smoke")[0].replace(seed=seed) for seed in range(3)]
    records = [record for run in wanted for record in engine.compute([run])]
    gpu = records[0]["environment"] | {"device": "some GPU"}
    early = {"when": "2020-01-01T00:00:00Z"}
    nb.store.append(nb.file, records[0] | early | {"environment": gpu}, records[1] | early)
    nb.store.append(nb.file, records[2] | {"when": now})
    items = ["runs from the store", "runs computed now", "runs by code changed since, not verified"]
    for changed, old in ((False, "0"), (True, "3")):
        if changed:
            monkeypatch.setattr(provenance, "fingerprint", lambda *_: "another")
        table = nb.provenance(nb.stored(wanted)).set_index("item")["value"]
        assert table[items].tolist() == ["2", "1", old]
        assert table["computed on"] == "CPU (2), some GPU (1)"


def test_save_writes_the_exhibit(tmp_path: Path) -> None:
    """`save` writes the exhibit under this notebook's paper and gives the frame back, for display."""
    nb = notebook.begin("fedgat/6-experiments", profile="quick", device="cpu", seeds=0, engine="local")
    frame = pd.DataFrame({"method": ["FedGAT"], "test": [0.8]})
    assert nb.save("FG-T1", frame) is frame
    assert (tmp_path / "figures/fedgat/FG-T1.csv").read_text() == "method,test\nFedGAT,0.8\n"


def test_execute_goes_through_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """`execute` asks the engine with this notebook's file, device and executor; `stored` computes nothing."""
    import fedrepro

    asked: list[tuple[object, ...]] = []

    def execute(runs: object, *, store: object, **given: object) -> pd.DataFrame:
        asked.append((given["file"], given["executor"], given["budget"], given["device"], given.get("side_by_side")))
        return frame

    frame = pd.DataFrame()
    frame.attrs = {"failed": [], "unavailable": []}
    monkeypatch.setattr(fedrepro.runs.execute, "execute", execute)
    nb = notebook.begin("gfl/5-experiments", profile="quick", device="cpu", seeds=0, engine="dask")
    assert nb.execute([], side_by_side=20) is nb.stored([]) is frame
    file = "gfl-5-experiments.jsonl"
    assert asked == [(file, "dask", None, "cpu", 20), (file, "dask", 0.0, "cpu", None)]


def test_failed_runs_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line an error; in profile smoke an error itself, unless only the graph was missing."""
    frame = pd.DataFrame()
    monkeypatch.setattr("fedrepro.runs.execute.execute", lambda *_, **__: frame)
    failed = [{"error": "RuntimeError: no"}, {"error": "RuntimeError: no"}, {"error": "KeyError: 'x'\nand more"}]
    missing = [{"error": "DataError: Reddit is not here"}]
    quick, smoke = (
        notebook.begin("gfl/6-x", profile=profile, device="cpu", seeds=0, engine="local")
        for profile in ("quick", "smoke")
    )
    frame.attrs = {"failed": [], "unavailable": missing}
    assert smoke.execute([]) is frame
    assert capsys.readouterr().out == "1 run left out: DataError: Reddit is not here\n"
    frame.attrs["failed"] = failed
    quick.execute([])
    told = ["2 runs failed: RuntimeError: no", "1 run failed: KeyError: 'x'"]
    assert capsys.readouterr().out.splitlines()[:2] == told
    with pytest.raises(FedreproError, match=r"2 runs failed: RuntimeError: no; 1 run failed: KeyError: 'x'"):
        smoke.execute([])


def test_a_notebook_that_computes_nothing_needs_no_torch() -> None:
    """With `auto`, and all from the store, nothing imports torch, which takes seconds; a run that is missing does."""
    code = """
import sys
from fedrepro.reporting import session
nb = session.begin("engine/9-none", profile="quick", device="auto", seeds=0, engine="local")
assert len(nb.execute([])) == 0 and "torch" not in sys.modules
from fedrepro.reporting.exhibits import registered
assert len(nb.execute(registered()["FG-A1"].runs("smoke")[:1])) == 1 and "torch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(os.name != "posix", reason="kernels without ports are not tested: socket files are POSIX's")
def test_a_kernel_needs_no_port(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports chosen before the kernel binds them can be taken by then; two managers never share a socket file."""
    from jupyter_client.connect import LocalPortCache

    monkeypatch.setattr(LocalPortCache, "find_available_port", lambda *_: pytest.fail("a port was chosen"))
    path = write(suite, "gfl/1-answer", "print(6 * 7)")
    assert printed(notebook.run(path)) == "42\n"
    with kernel.manager() as one, kernel.manager() as two:
        assert one().ip != two().ip


def test_a_temporary_folder_of_any_length(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook runs although the path of a socket file in the temporary folder would be too long."""
    folder = suite.parent / ("long" * 25)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)  # asked anew
    assert printed(notebook.run(write(suite, "gfl/1-answer", "print(6 * 7)"))) == "42\n"
