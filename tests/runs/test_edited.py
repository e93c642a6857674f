"""Results of code or of a graph that has changed since are told from those of what is there now."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import fedrepro as fr
from fedrepro import paths
from fedrepro.data import datasets
from fedrepro.runs import codehash
from fedrepro.runs.store import Store

NODES = 60
RUNS = """
import json, sys
from pathlib import Path
import fedrepro as fr
from fedrepro.runs import provenance
from fedrepro.runs.execute import compute, execute
from fedrepro.runs.store import Store

run = fr.Run(task="train", paper="p", method="FedAvg", dataset="Cora~standin", split="10/10/80", partition="random",
             clients=2, options={"rounds": 1, "hidden": 2})
other = run.replace(method="FedProx")
file = Path(fr.__file__).parent / "baselines" / "fedprox.py"


def edit():
    text = file.read_text()
    assert "/ 2" in text
    file.write_text(text.replace("/ 2", "/ 3"))


def told(*runs):
    frame = execute(runs, store=Store("kept"), progress=False, workers=1, quiet=True)
    print(json.dumps([sorted(frame["method"]), [each["error"] for each in frame.attrs["failed"]]]))


"""


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    datasets._own.pop("toy", None)


def graph(number: int) -> Data:
    """Return a random graph of three classes."""
    generator = torch.Generator().manual_seed(number)
    edges = torch.randint(0, NODES, (2, 200), generator=generator)
    return Data(x=torch.rand(NODES, 5, generator=generator), y=torch.arange(NODES) % 3, edge_index=edges)


@pytest.mark.parametrize(
    ("former", "now", "changed"),
    [
        (lambda: graph(1), lambda: graph(2), "2 results of 'toy' were"),
        (lambda seed: graph(seed), lambda seed: graph(2 * seed), "1 result of 'toy' was"),  # with seed 0 it is the same
    ],
)
def test_another_graph_under_one_name_is_told(
    tmp_path: Path, former: Callable[..., Data], now: Callable[..., Data], changed: str
) -> None:
    """Stored results of another graph come with a warning that counts them, until they are computed again."""
    same: dict[str, Any] = {"task": "train", "paper": "mine", "dataset": "toy", "split": "20/40/40"}
    options = {"rounds": 2, "hidden": 4}
    runs = fr.sweep(**same, method="FedAvg", partition="random", clients=2, seed=range(2), options=options)
    store = Store(tmp_path)
    datasets.register("toy", former)
    before = [fr.execute(runs, store=store, progress=False) for _ in range(2)][1]
    datasets.register("toy", now)
    with pytest.warns(UserWarning, match=f"^{changed} computed on another graph: give this one another name, or give"):
        after = fr.execute(runs, store=store, progress=False)
    assert list(after["before.last.val_loss"]) == list(before["before.last.val_loss"])
    again = fr.execute(runs, store=store, progress=False, again=after["key"])
    assert again["before.last.val_loss"].iloc[1] != before["before.last.val_loss"].iloc[1]
    assert {len(record["data"]) for record in store} == {16}


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], list[Any]]:
    """Return a function that runs a script of the process that works on a copy of the package."""
    shutil.copytree(codehash.root(), tmp_path / "fedrepro", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(paths.root() / "pyproject.toml", tmp_path)

    def ran(text: str) -> list[Any]:
        where = {**os.environ, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-c", RUNS + text]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=where)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ran


@pytest.mark.parametrize(
    "before",
    [
        "from fedrepro.baselines import fedprox",  # it is edited after it was imported
        "compute([run]); provenance.fingerprint('train', 'FedProx', run.dataset)",  # hashed before, and imported after
    ],
)
def test_code_that_was_edited_in_the_same_process_is_refused(script: Callable[[str], list[Any]], before: str) -> None:
    """A result would belong to no code; others are computed, and the next process computes it by the code as it is."""
    (computed, (error,)) = script(f"{before}\nedit()\ntold(run, other)")[0]
    assert computed == ["FedAvg"]
    assert error.startswith("CodeChangedError: fedrepro/baselines/fedprox.py changed since this process imported the")
    assert "Restart the process" in error
    assert script("told(run, other)") == [[["FedAvg", "FedProx"], []]]


def test_code_that_is_edited_after_its_first_run_is_that_of_the_next(script: Callable[[str], list[Any]]) -> None:
    """Code that was imported and hashed goes on after an edit, with one fingerprint; the next process has another."""
    last = "told(other.replace(seed=1)); print(json.dumps(len({record['fingerprint'] for record in Store('kept')})))"
    assert script(f"told(other)\nedit()\n{last}")[1:] == [[["FedProx"], []], 1]
    assert script("told(other.replace(seed=2)); " + last.partition("; ")[2])[1] == 2
