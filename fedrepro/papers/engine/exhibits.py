"""The engine's own exhibits: what a round costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedrepro.reporting.compare import limit
from fedrepro.reporting.legacy import Exhibit
from fedrepro.runs.run import Run, sweep

if TYPE_CHECKING:
    import pandas as pd

WAYS = ("stack", "chunk of 1", "PyG loop", "sparse loop", "fused loop")
GIB = 1024.0


def speed(profile: str) -> list[Run]:
    """EN-4: FedAvg on METIS parts of Cora; one client is the central case."""
    sizes = {"smoke": ([3], [16]), "quick": ([10], [64]), "paper": ([1, 10, 20, 50, 100], [16, 64, 128])}[profile]
    small = profile == "smoke"
    options: dict[str, Any] = {
        "hidden": sizes[1],
        "local_epochs": 3,
        "rounds": 2 if small else 10,
        "repeats": 1 if small else 5,
    }
    if small:
        options["memory"] = False
    return sweep(
        task="bench", paper="engine", method="rounds", dataset="Cora~standin" if small else "Cora",
        prepare="unit-norm", split="public", partition="metis", clients=sizes[0], options=options,
    )  # fmt: skip


def speed_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per size and way: median seconds per round, peak memory in MiB, and the stack's advantage."""
    import pandas as pd

    columns = [
        "clients",
        "hidden",
        "way",
        "seconds per round",
        "peak MiB",
        "stack is faster by",
        "chunk",
        "test",
        "runs",
    ]
    rows: list[dict[str, Any]] = []
    for run in frame.sort_values(["hidden", "clients"]).to_dict("records") if len(frame) else []:
        stack = run["stack.timing.seconds_per_round"]
        for way in WAYS:
            seconds = run[f"{way}.timing.seconds_per_round"]
            rows.append(
                {
                    "clients": run["clients"],
                    "hidden": run["hidden"],
                    "way": way,
                    "seconds per round": seconds,
                    "peak MiB": run[f"{way}.timing.peak_mebibytes"],
                    "stack is faster by": seconds / stack,
                    "chunk": run["stack.chunk"] if way == "stack" else None,
                    "test": run[f"{way}.test"],
                    "runs": run["repeats"],
                }
            )
    return pd.DataFrame(rows, columns=columns)


def speed_checks(table: pd.DataFrame) -> list[dict[str, str]]:
    """The engine's promises held against the table: rows of id, statement, measured, bound, verdict."""

    def ratio(way: str, clients: int, hidden: int) -> float | None:
        cell = table[(table["way"] == way) & (table["clients"] == clients) & (table["hidden"] == hidden)]
        return None if cell.empty else float(cell["stack is faster by"].iloc[0])

    sparse = table.loc[table["way"] == "sparse loop", "stack is faster by"]
    memory = table.loc[table["way"] == "stack", "peak MiB"].dropna()
    return [
        limit("EN-4a", "times faster than the PyG loop, 10 clients, 64 hidden", ratio("PyG loop", 10, 64), least=4),
        limit("EN-4b", "times faster than the sparse loop, 100 clients, 64 hidden", ratio("sparse loop", 100, 64),
              least=2.5),
        limit("EN-4c", "times faster than the sparse loop, worst size", sparse.min(), least=0.87),
        limit("EN-4d", "peak memory over 1 GiB, largest size", memory.max() / GIB, most=1),
    ]  # fmt: skip


EXHIBITS = [Exhibit("EN-4", "engine", "engine/4-speed", "Seconds per round and memory, stack against loops", speed)]
