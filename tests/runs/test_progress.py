"""A script that uses the package works without a main guard, keeps its runs apart, and tells how far it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedrepro import paths
from fedrepro.runs import progress

ROOT = Path(progress.__file__).parents[2]
SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import fedrepro as fr, fake_tasks
print("begun")
fake_tasks.register()
runs = fr.sweep(task="check", paper="p", method="quick", seed=range(3))
frame = fr.execute(runs)
nb = fr.begin()
assert len(frame) == len(nb.execute(runs)) == 3
print(nb.store.folder)
"""


def run(script: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("FEDREPRO_STORE", "FEDREPRO_FIGURES")}
    variables = kept | {"PYTHONPATH": str(ROOT), "FEDREPRO_WORKERS": "2"} | variables
    return subprocess.run([sys.executable, script], env=variables, capture_output=True, text=True, timeout=120)


def test_a_script_without_a_guard_works(tmp_path: Path) -> None:
    """It computes in its own process, begins once, and one sentence says why and how to use workers."""
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT.format(tests=str(ROOT / "tests")))
    done = run(script, FEDREPRO_STORE=str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["begun", str(tmp_path / "store")]
    assert 'has no `if __name__ == "__main__":`' in done.stderr and "Traceback" not in done.stderr


def test_work_above_a_guard_is_not_guarded(tmp_path: Path) -> None:
    """A guard below the work would let each worker begin the work anew, and wait for what its parent computes."""
    script = tmp_path / "mine.py"
    work = 'fr.execute(fr.sweep(task="check", paper="feras", method="feras-identities", seed=range(2)))'
    script.write_text(f'import fedrepro as fr\nframe = {work}\nif __name__ == "__main__":\n    print(len(frame))\n')
    done = run(script, FEDREPRO_STORE=str(tmp_path / "store"))
    assert (done.returncode, done.stdout.split()) == (0, ["2"]), done.stderr
    assert "All is computed in this process" in done.stderr


def test_a_guard_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work below a guard may go to worker processes; a module run with -m, a notebook and -c have nothing to guard."""
    script = tmp_path / "mine.py"
    script.write_text("import sys\nprint(1)\n")
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__=str(script)))
    assert progress.unguarded() == str(script)
    script.write_text("if __name__ == '__main__':\n    print(1)\n")
    assert progress.unguarded() == ""
    for main in (SimpleNamespace(), SimpleNamespace(__file__=str(script), __spec__=object())):
        monkeypatch.setitem(sys.modules, "__main__", main)
        assert progress.unguarded() == ""


def test_own_runs_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `$FEDREPRO_STORE` they go to build/mine, with figures next to them; those of a paper go to its store."""
    from fedrepro.reporting.session import begin

    for name in ("FEDREPRO_STORE", "FEDREPRO_FIGURES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    nb, of_paper = begin(), begin("gfl/6-experiments", device="cpu")
    assert nb.store.folder == tmp_path / "build/mine" and nb.figures == tmp_path / "build/mine/figures"
    assert of_paper.store.folder == tmp_path / "data/results" and of_paper.figures == tmp_path / "figures"


def test_a_log_has_a_line_a_minute(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A log gets lines of what takes longer than `SECONDS`, the last one at the end, and none of what takes less."""
    monkeypatch.delenv("FEDREPRO_TRACE", raising=False)
    with progress.bar(10) as quick:
        quick.set_description_str("waiting for another process")
        quick.update(10)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "SECONDS", 0.01)
    import time

    with progress.bar(3) as slow:
        for _ in range(3):
            time.sleep(0.05)
            slow.update(1)
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    assert 2 <= len(lines) <= 4 and "3/3" in lines[-1] and "\r" not in lines[0]
    monkeypatch.setenv("FEDREPRO_TRACE", "somewhere")
    assert progress.bar(3).disable


def test_jupyter_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel that somebody looks at the bar is that of tqdm.auto."""
    import tqdm.auto

    monkeypatch.delenv("FEDREPRO_TRACE", raising=False)
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    bars: list[dict[str, object]] = []
    monkeypatch.setattr(tqdm.auto, "tqdm", lambda **options: bars.append(options))
    progress.bar(7)
    assert bars == [{"total": 7, "unit": "run", "mininterval": 0.5}]
