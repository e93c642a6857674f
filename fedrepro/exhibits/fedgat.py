"""FedGAT: the runs behind its exhibits, its deviations and its claims."""

from __future__ import annotations

from typing import Any

from fedrepro.exhibits import Exhibit
from fedrepro.runs import Run, sweep

DATASETS = ("Cora", "CiteSeer", "PubMed")
NON_IID, IID = "dirichlet(beta=1)", "dirichlet(beta=10000)"
ROUNDS = 100
TUNING_ROUNDS, TUNING_SEED = 30, 100  # a seed that no reported run uses
# (learning rate, weight decay): the paper's pair, the public code's, and four smaller steps.
GRID = ((0.1, 0.001), (0.06, 0.002), (0.03, 0.001), (0.03, 0.0005), (0.01, 0.001), (0.01, 0.0005))
LITERAL = GRID[0]

# Rows of FG-T1: the published method's name -> the registered method, its model, and its partitions.
ROWS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "GCN": ("Central", {"model": "GCN", "hidden": 16}, ("single",)),
    "GAT": ("Central", {"model": "GAT", "hidden": 8, "heads": 8}, ("single",)),
    "DistGAT": ("DistGAT", {"model": "GAT", "hidden": 8, "heads": 8}, (NON_IID, IID)),
    "FedGCN": ("FedGCN", {"model": "GCN", "hidden": 16, "hops": 2}, (NON_IID, IID)),
    "FedGAT": ("FedGAT", {"model": "GAT", "hidden": 8, "heads": 8, "degree": 16, "interval": 4.0}, (NON_IID, IID)),
}


def cell(
    row: str, dataset: str, partition: str, pair: tuple[float, float], seeds: range | list[int], rounds: int = ROUNDS
) -> list[Run]:
    """The runs of one cell of FG-T1.

    Args:
        row: a key of `ROWS`.
        pair: learning rate and weight decay.
    """
    method, options, _ = ROWS[row]
    options = {**options, "lr": pair[0], "weight_decay": pair[1], "rounds": rounds}
    if row not in ("GCN", "FedGCN") and dataset.startswith("PubMed"):
        options["output_heads"] = 8
    return sweep(
        task="train", paper="fedgat", method=method, dataset=dataset, prepare="unit-norm", split="public",
        partition=partition, clients=1 if partition == "single" else 10, seed=list(seeds), options=options,
    )  # fmt: skip


def cells(datasets: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """(row, dataset, partition) of every cell of FG-T1 on these data sets, in the paper's order."""
    return [(row, d, p) for d in datasets for row, (_, _, partitions) in ROWS.items() for p in partitions]


def tuning(profile: str) -> list[Run]:
    """Six points on one seed and 30 rounds, the same for every cell."""
    if profile == "smoke":
        points = cells(("Cora~standin",))
        return [r for row, d, p in points for r in cell(row, d, p, GRID[2], [TUNING_SEED], rounds=2)]
    datasets = DATASETS if profile == "paper" else ("Cora",)
    return [
        run
        for row, d, p in cells(datasets)
        for pair in GRID
        for run in cell(row, d, p, pair, [TUNING_SEED], TUNING_ROUNDS)
    ]
EXHIBITS: list[Exhibit] = []
