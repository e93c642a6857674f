"""Measure how far rounding by itself moves a method's results, and print the table `fedrepro/runs/rounding.csv`.

    python tests/rounding.py FOLDER

computes the same runs twice with the same code on the same machine: once with the instructions that the processor has,
and once without vector instructions, which changes the order of sums and the rounding of products and nothing else.
Runs that are in FOLDER already are not computed again. It takes about an hour on one core.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import fedrepro as fr
from fedrepro.reporting.exhibits import find
from fedrepro.runs import tolerances, verification
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

# Seeds by data set and method, in the settings of FedSheafHN's Table 1 with 10 clients.
WANTED = {
    ("Cora", 5): ("FedAvg", "FedSheafHN", "FGGP", "pFedHN"),
    ("Cora", 3): ("Local", "FedPer", "pFedGraph", "FED-PUB", "Flow"),
    ("CiteSeer", 3): ("FedSheafHN", "FGGP"),
}
PLAIN = {"ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}


def runs() -> list[Run]:
    """Return the runs to compute."""
    return [
        run
        for (dataset, seeds), methods in WANTED.items()
        for run in find("SH-T1").runs("paper")
        if (run.dataset, run.clients) == (dataset, 10) and run.method in methods and run.seed < seeds
    ]


def compute(folder: Path) -> None:
    """Compute the runs into a store, with one thread."""
    fr.execute(runs(), store=Store(folder), workers=1, device="cpu")


def table(native: Store, plain: Store) -> list[str]:
    """Return one line for each method and part of a record: fields, root mean square of their changes, the largest.

    Parts that rounding moves by less than a third of what any other machine may change are left out, but for FedAvg.
    """
    moved: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs():
        if run.key in native and run.key in plain:
            for at, change in verification.compare(native.get(run.key), plain.get(run.key)).items():
                moved[run.method, tolerances.part(at)].append(change)
    lines = []
    for (method, part), changes in sorted(moved.items()):
        size, largest = math.sqrt(statistics.fmean(change**2 for change in changes)), max(map(abs, changes))
        if size * tolerances.SPREADS > tolerances.POINT or method == "FedAvg":
            lines.append(f"{method},{part},{len(changes)},{size:.4f},{largest:.4f}")
    return lines


def main(folder: Path, way: str = "") -> None:
    """Compute both ways in processes of their own, and print the table."""
    if way:
        compute(folder / way)
        return
    for name, more in (("native", {}), ("default", PLAIN)):
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **more}
        subprocess.run([sys.executable, __file__, str(folder), name], check=True, env=variables)
    print("method,part,fields,moved,largest")
    print("\n".join(table(Store(folder / "native"), Store(folder / "default"))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
