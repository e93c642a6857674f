"""The wheel: what is in it, and what an installed copy can do far from a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="the wheel is not built without hatchling, of the extra dev")

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """
import fedrepro as fr
from fedrepro import registry
from fedrepro.engine.fedavg import FedAvg


class Mine(FedAvg):
    pass


registry.register("train", "Mine", Mine)
graph = fr.graph(nodes="nodes.csv", edges="edges.csv")
runs = fr.sweep(task="train", paper="mine", method=["Mine", "FedAvg"], dataset=graph, split="20/40/40",
                partition="metis", clients=2, options={"rounds": 2, "hidden": 4})
frame = fr.execute(runs)
print(sorted(frame["method"]), frame["before.best.test_auc"].notna().all())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel with the backend that is installed, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_what_is_in_the_wheel(wheel: Path) -> None:
    """It holds every module, table and page of the package and every notebook, and neither results nor tests."""
    names = set(zipfile.ZipFile(wheel).namelist())
    notebooks = {f"fedrepro/{path.relative_to(ROOT)}" for path in (ROOT / "notebooks").glob("*/*.ipynb")}
    package = [path for path in (ROOT / "fedrepro").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    files = {path.relative_to(ROOT).as_posix() for path in package}
    held = {name for name in names if ".dist-info/" not in name}
    assert len(notebooks) > 30 and files | notebooks == held
    assert {"fedrepro/papers/fedgat/published.csv", "fedrepro/data/checksums.txt"} <= held


def test_an_installed_copy_works(wheel: Path, tmp_path: Path) -> None:
    """Its commands and a script with a graph and a method of one's own work; nothing is left in the current folder."""
    here, data = tmp_path / "here", tmp_path / "data"
    here.mkdir()
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    names = [f"a{number}" for number in range(40)]
    nodes = "\n".join(f"{name},{number % 2},{number % 3}" for number, name in enumerate(names))
    edges = "\n".join(f"{a},{b}" for a, b in zip(names, [*names[1:], names[0]]))
    (here / "nodes.csv").write_text(f"id,label,x\n{nodes}\n")
    (here / "edges.csv").write_text(f"from,to\n{edges}\n")
    (here / "mine.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FEDREPRO_")}
    environment |= {"PYTHONPATH": str(tmp_path / "site"), "XDG_DATA_HOME": str(data)}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}

    def called(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *words], cwd=here, env=environment, capture_output=True, text=True)

    place = called("-c", "import fedrepro; print(fedrepro.__file__)").stdout
    assert place.startswith(str(tmp_path / "site"))
    listed = called("-m", "fedrepro", "list")
    assert listed.returncode == 0 and "engine/1-one-program" in listed.stdout and "FedGAT" in listed.stdout
    graphs = called("-m", "fedrepro", "data")
    assert graphs.returncode == 0 and "PubMed" in graphs.stdout
    status = called("-m", "fedrepro", "status", "EN-4")
    assert status.returncode == 0 and f"the results that it computed, in {data}" in status.stderr
    for command in ("report", "site"):
        refused = called("-m", "fedrepro", command)
        assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1 and "checkout" in refused.stderr
    script = called("mine.py")
    assert script.stdout == "['FedAvg', 'Mine'] True\n", script.stderr
    assert (data / "fedrepro/build/mine/mine.jsonl").is_file()
    assert {path.name for path in here.iterdir()} == {"nodes.csv", "edges.csv", "mine.py"}
