"""Time OpenFGL's own program beside this package on this machine: `python -m fedrepro.papers.engine.openfgl`.

Both train FedAvg with a 2-layer GCN of 64 hidden units on Cora, cut by METIS for 10 clients, in 100 rounds of 3 local
epochs with a score in each. It is not the same work to the letter. OpenFGL (Li et al. 2024, arXiv:2408.16288) drops
half of the hidden units, weights clients by their nodes, splits 20/40/40 within each client, and has METIS parts of its
own. It is installed apart, by `pip install openfgl-lib scikit-network munkres`. Without it the script says so.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch

from fedrepro.data import datasets
from fedrepro.papers.engine import bench, exhibits
from fedrepro.runs import process

ROUNDS, PASSES = 100, 3
# A process of its own, since OpenFGL reads the command line when it is imported.
THEIRS = """
import sys, time
import torch
torch.set_num_threads(1)
root, rounds = sys.argv[1], int(sys.argv[2])
sys.argv = sys.argv[:1]
import openfgl.config as config
from openfgl.flcore.trainer import FGLTrainer
args = config.args
args.root, args.dataset, args.model, args.metrics = root, ["Cora"], ["gcn"], ["accuracy"]
args.simulation_mode, args.num_clients, args.fl_algorithm = "subgraph_fl_metis", 10, "fedavg"
args.num_rounds, args.num_epochs, args.hid_dim, args.train_val_test = rounds, 3, 64, "0.2-0.4-0.4"
args.use_cuda = False
trainer = FGLTrainer(args)
start = time.perf_counter()
trainer.train()
print("seconds", time.perf_counter() - start)
"""


def main() -> int:
    """Print the seconds of both, three times in turn, and their medians; return the exit status."""
    if find_spec("openfgl") is None:
        print("OpenFGL is not installed, so nothing is timed: `pip install openfgl-lib scikit-network munkres`.")
        return 0
    torch.set_num_threads(1)
    process.settle()
    options = {"hidden": 64, "local_epochs": 3}
    (run,) = exhibits.rounds(dataset="Cora", split="20/40/40", clients=10, options=options)
    step = bench.stepper(run, "stack")
    step(1)  # the first pays for what is loaded
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(datasets.fetch("Cora") / "raw", Path(root, "global", "subgraph_fl", "Cora", "raw"))
        for _ in range(PASSES):
            ours.append(bench.timed(step, ROUNDS, "cpu")[0])
            theirs.append(_their_seconds(root))
            print(f"fedrepro {ours[-1]:.2f} s, OpenFGL {theirs[-1]:.2f} s", flush=True)
    here, there = statistics.median(ours), statistics.median(theirs)
    print(f"{ROUNDS} rounds, medians: fedrepro {here:.2f} s, OpenFGL {there:.2f} s, {there / here:.1f} times as long")
    return 0


def _their_seconds(root: str) -> float:
    command = [sys.executable, "-c", THEIRS, root, str(ROUNDS)]
    # It reads graphs that it has itself written into this folder, in a form that torch 2.6 and later refuse unasked.
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    lines = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("seconds ")]
    if done.returncode or not lines:
        raise SystemExit(f"OpenFGL ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return float(lines[-1])


if __name__ == "__main__":
    sys.exit(main())
