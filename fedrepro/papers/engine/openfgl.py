"""Time OpenFGL's own program and this package on one machine (EN-6).

Both train FedAvg with a 2-layer GCN on a graph that METIS cuts for the clients, in rounds of some local epochs with a
score in each. It is not the same work to the letter. OpenFGL (Li et al. 2024, arXiv:2408.16288) drops half of the
hidden units, weights clients by their nodes, splits within each client, and cuts its own METIS parts. It is installed
apart, by `pip install openfgl-lib scikit-network munkres`.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedrepro.data import datasets
from fedrepro.errors import DataError, FedreproError
from fedrepro.papers.engine import bench
from fedrepro.runs.run import Run

# It runs in another process, since OpenFGL reads the command line when it is imported.
THEIRS = """
import sys, time
import torch
torch.set_num_threads(1)
root, graph, split, *counts = sys.argv[1:]
sys.argv = sys.argv[:1]
import openfgl.config as config
from openfgl.flcore.trainer import FGLTrainer
args = config.args
args.root, args.dataset, args.model, args.metrics = root, [graph], ["gcn"], ["accuracy"]
args.simulation_mode, args.fl_algorithm, args.train_val_test = "subgraph_fl_metis", "fedavg", split
args.num_clients, args.num_rounds, args.num_epochs, args.hid_dim = map(int, counts)
args.use_cuda = False
trainer = FGLTrainer(args)
start = time.perf_counter()
trainer.train()
print("seconds", time.perf_counter() - start)
"""


def beside(run: Run) -> dict[str, Any]:
    """Measure the median seconds per round of the stack and of OpenFGL, which train in turn.

    The options of the run are "hidden", "local_epochs" (3), "rounds" (100) and "repeats" (3).

    Returns:
        "result": `{way: {"timing": {"seconds_per_round"}}}` for the ways `stack` and `OpenFGL`, and the "version" of
        OpenFGL.

    Raises:
        DataError: OpenFGL is not installed. The run is then left out, as one whose graph is not here.
        FedreproError: OpenFGL has failed.
    """
    if find_spec("openfgl") is None:
        hint = "`pip install openfgl-lib scikit-network munkres`"
        raise DataError(f"OpenFGL is not installed, so that it cannot be timed. {hint} installs it.")
    count, repeats = int(run.options.get("rounds", 100)), int(run.options.get("repeats", 3))
    step = bench.stepper(run, "stack")
    step(1)  # the first pays for what is loaded
    seconds: dict[str, list[float]] = {"stack": [], "OpenFGL": []}
    with tempfile.TemporaryDirectory() as root:
        raw = datasets.fetch(run.dataset) / "raw"
        shutil.copytree(raw, Path(root, "global", "subgraph_fl", run.dataset, "raw"))
        for _ in range(repeats):
            seconds["stack"].append(bench.timed(step, count, "cpu")[0] / count)
            seconds["OpenFGL"].append(_their_seconds(run, root, count) / count)
    result: dict[str, Any] = {
        way: {"timing": {"seconds_per_round": statistics.median(times)}} for way, times in seconds.items()
    }
    try:
        result["OpenFGL"]["version"] = version("openfgl-lib")
    except PackageNotFoundError:  # it is a checkout
        result["OpenFGL"]["version"] = ""
    return {"result": result}


def _their_seconds(run: Run, root: str, count: int) -> float:
    split = "-".join(str(int(share) / 100) for share in run.split.split("/"))
    counts = run.clients, count, run.options.get("local_epochs", 3), run.options["hidden"]
    command = [sys.executable, "-c", THEIRS, root, run.dataset, split, *map(str, counts)]
    # It reads graphs that it has itself written into this folder, in a form that torch 2.6 and later refuse unasked.
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    lines = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("seconds ")]
    if done.returncode or not lines:
        raise FedreproError(f"OpenFGL ended with {done.returncode}: {done.stderr[-2000:]}")
    return float(lines[-1])
