"""The README's script runs on a graph of one's own, and its versions are those that were tried."""

from __future__ import annotations

import json
import os
import re
import shlex
import struct
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TRIED = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
METHODS = ["Local", "FedAvg", "FedProx", "FedPer", "Central"]


@pytest.mark.skipif(os.name != "posix", reason="the script is not run: where there is no pseudo-terminal it has no bar")
def test_the_script_runs_as_written(tmp_path: Path) -> None:
    """At most 30 lines without a main guard give accuracy and AUC of five methods, with a bar in a terminal."""
    (script,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(script.splitlines()) <= 30 and "__main__" not in script
    (tmp_path / "mine.py").write_text(script)
    nodes = "\n".join(f"p{n},{'no' if n % 2 else 'yes'},{n % 2 + n % 7 / 4},{n % 5}" for n in range(100))
    edges = "\n".join(f"p{n},p{(n + step) % 100}" for n in range(100) for step in (2, 6, 7))
    (tmp_path / "nodes.csv").write_text(f"id,label,age,height\n{nodes}\n")
    (tmp_path / "edges.csv").write_text(f"from,to\n{edges}\n")
    import fcntl
    import termios

    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))  # a terminal of 80 columns
    command = [sys.executable, "mine.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # Linux tells the end so
        pass
    os.close(ours)
    assert done.returncode == 0, shown.decode()
    assert "15/15" in shown.decode() and "run" in shown.decode()
    heading, _, *rows = done.stdout.splitlines()
    assert heading.split() == ["accuracy", "macro-F1", "AUC", "majority"]
    table = {name: [float(value) for value in values] for name, *values in map(str.split, rows[: len(METHODS)])}
    assert list(table) == METHODS
    assert all(0 < value <= 1 for values in table.values() for value in values)
    assert not any(path.suffix == ".jsonl" for path in tmp_path.iterdir())


def test_versions_are_those_that_were_tried() -> None:
    """README names the Pythons and the oldest torch of pyproject.toml; its other lower bounds are what is pinned."""
    assert f"Python {' or '.join(TRIED)}" in README
    tuples = [tuple(map(int, version.split("."))) for version in TRIED]
    (least, most) = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups()  # type: ignore[union-attr]
    assert int(least) == min(tuples)[1] and int(most) == max(tuples)[1] + 1
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()[1:])
    bounds = dict(entry.split(">=") for entry in PROJECT["dependencies"] if ">=" in entry)
    torch = bounds.pop("torch")
    assert f"torch {torch} and {'.'.join(pinned['torch'].split('.')[:2])}" in README
    assert {"numpy", "scipy", "matplotlib"} <= set(bounds)
    for name, bound in bounds.items():
        assert pinned[name].split(".")[:2] == bound.split(".")[:2], name


def test_a_browser_gets_the_same_versions() -> None:
    """Binder and the development container have a Python that was tried, and install under constraints.txt."""
    runtime = (ROOT / ".binder/runtime.txt").read_text().strip()
    assert runtime.removeprefix("python-") in TRIED
    build = ROOT / ".binder/postBuild"
    assert os.access(build, os.X_OK) and "--constraint constraints.txt --editable ." in build.read_text()
    assert subprocess.run(["bash", "-n", str(build)]).returncode == 0
    copied = re.search(r"^cp (\S+)", build.read_text(), re.MULTILINE)
    assert copied and (ROOT / copied[1]).is_file()
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    image = re.fullmatch(r"mcr\.microsoft\.com/devcontainers/python:([\d.]+)-\w+", container["image"])
    assert image and image[1] in TRIED
    makefile = (ROOT / "Makefile").read_text()
    for command in (container["postCreateCommand"], container["postAttachCommand"]):
        assert re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE), command
    # make knows how to do both, and the configuration that it gives JupyterLab is there
    commands = [shlex.split(container[name])[1:] for name in ("postCreateCommand", "postAttachCommand")]
    told = [
        subprocess.run(["make", "-n", "-C", str(ROOT), "VENV=none", *each], check=True, capture_output=True, text=True)
        for each in commands
    ]
    config = re.search(r"--config (\S+)", told[1].stdout)
    assert config and (ROOT / config[1]).is_file()
