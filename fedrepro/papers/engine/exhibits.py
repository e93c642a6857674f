"""List the suite's own exhibits EN-4 to EN-7, the cost of a round, with their tables, and judge their checks."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from fedrepro import paths
from fedrepro.reporting.checks import FAILS, HOLDS, ROUNDING, limit
from fedrepro.reporting.exhibits import Grid
from fedrepro.runs.run import Run, sweep

WAYS = ("stack", "chunk of 1", "PyG loop", "sparse loop", "fused loop")
GIB = 1024.0
COLUMNS = ("clients", "hidden", "way", "seconds per round", "peak MiB", "stack is faster by", "chunk", "test", "runs")
rounds = partial(
    sweep, task="bench", paper="engine", method="rounds", prepare="unit-norm", split="public", partition="metis"
)


def speed() -> list[Run]:
    """Return the runs of EN-4: FedAvg on METIS parts of Cora, where one client is the central case.

    With one client the times of the ways lie nearest to each other. Over five repeats the ratio of two of them scatters
    by a tenth, so these runs have forty repeats.
    """
    options = {"hidden": [16, 64, 128], "local_epochs": 3, "rounds": 10, "repeats": 5}
    central = rounds(dataset="Cora", clients=1, options=options | {"repeats": 40})
    return central + rounds(dataset="Cora", clients=[10, 20, 50, 100], options=options)


def smallest_speed() -> list[Run]:
    """Return one run of two rounds on a stand-in, without the peak memory, whose processes take seconds to start."""
    options = {"hidden": 16, "local_epochs": 3, "rounds": 2, "repeats": 1, "memory": False}
    return rounds(dataset="Cora~standin", clients=3, options=options)


def regimes() -> list[Run]:
    """Return the runs of EN-5: where clients train on hundreds of nodes, hold one node each, or share a large graph."""
    options: dict[str, Any] = {"hidden": 128, "local_epochs": 3, "rounds": 4, "repeats": 5}
    runs = rounds(dataset=["PubMed", "Computers"], split="40/30/30", clients=10, options=options)
    single = options | {"hidden": 16, "rounds": 2, "repeats": 3}
    runs += rounds(dataset="Cora", partition="random(equal=True)", clients=2708, options=single)
    return runs + [_large(nodes, {"hidden": 64, "rounds": 3, "repeats": 3}) for nodes in (10_000, 100_000, 1_000_000)]


def beside_openfgl() -> list[Run]:
    """Return the runs of EN-6: FedAvg on METIS parts of Cora, by this package and by OpenFGL's own program."""
    options = {"hidden": 64, "local_epochs": 3, "rounds": 100, "repeats": 3}
    return rounds(method="OpenFGL", dataset="Cora", split="20/40/40", clients=[5, 10, 20], options=options)


def floors() -> list[Run]:
    """Return the runs of EN-7: the floor of every round of EN-4, and of those of EN-5 on large clients."""
    timed = [run for run in (*speed(), *regimes()) if run.method == "rounds" and run.clients <= 100]
    return [_floor(run, 20) for run in timed]


def _floor(timed: Run, repeats: int) -> Run:
    options = {name: timed.options[name] for name in ("hidden", "local_epochs")}
    return timed.replace(method="floor", options={**options, "repeats": repeats})


def smallest_floors() -> list[Run]:
    """Return the floor of the run of `smallest_speed`."""
    return [_floor(run, 1) for run in smallest_speed()]


def smallest_regimes() -> list[Run]:
    """Return two runs of two rounds on made-up graphs."""
    options = {"hidden": 4, "rounds": 2, "repeats": 1, "memory": False}
    return [*smallest_speed(), _large(200, options)]


def _large(nodes: int, options: dict[str, Any]) -> Run:
    return Run("bench", "engine", "nodes", clients=10, options={"nodes": nodes, **options})


def regimes_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return median seconds per round, peak memory and the stack's advantage, one row per setting and way (EN-5)."""
    return _costs(frame, ("graph", "split", *COLUMNS[:6], "runs"))


def speed_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the same for each size and way, with the stack's chunk and the test accuracy (EN-4)."""
    return _costs(frame.sort_values(["hidden", "clients"]) if len(frame) else frame, COLUMNS)


def openfgl_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return median seconds per round of the stack and of OpenFGL, and the stack's advantage, by clients (EN-6)."""
    return _costs(frame, ("clients", "hidden", "way", "seconds per round", "stack is faster by", "runs"))


def floor_table(floors: pd.DataFrame, timed: pd.DataFrame) -> pd.DataFrame:
    """Return the floor of each setting, the seconds of the stack there, and how many floors these are (EN-7).

    Args:
        floors: the runs of EN-7.
        timed: the runs of EN-4 and EN-5; a setting without one has no seconds of the stack.
    """
    setting = ["dataset", "split", "clients", "hidden"]
    took = "stack.timing.seconds_per_round"
    known = timed.reindex(columns=[*setting, took]).drop_duplicates(setting, keep="last").set_index(setting)[took]
    stack = known.reindex(pd.MultiIndex.from_frame(floors[setting])).to_numpy(dtype=float)
    seconds = floors["timing.seconds_per_round"]
    rates = {
        "optimizer GB/s": floors["timing.bytes_per_second"] / 1e9,
        "sparse products GFLOP/s": floors["timing.operations_per_second"] / 1e9,
        "floor, seconds per round": seconds,
        "stack, seconds per round": stack,
        "stack over floor": stack / seconds,
    }
    return floors[setting].rename(columns={"dataset": "graph"}).assign(**rates)


def gpu_table() -> pd.DataFrame:
    """Return the milliseconds of a round on a GPU and on the CPU of its machine, measured by `make gpu-report`.

    Graph and rounds are those of `gpu`: a stand-in of Cora, and 64 hidden units. It is empty where none was measured.
    """
    measured = paths.figures() / "engine" / "EN-GPU.csv"
    return pd.read_csv(measured) if measured.exists() else pd.DataFrame()


def _costs(frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    """Return some columns of the costs of each run and way; a random graph has the stack only."""
    rows = []
    ways = {"nodes": WAYS[:1], "OpenFGL": (WAYS[0], "OpenFGL")}
    for run in frame.to_dict("records"):
        random = run["method"] == "nodes"
        for way in ways.get(run["method"], WAYS):
            seconds = run[f"{way}.timing.seconds_per_round"]
            row = {
                "graph": f"random, {int(run['nodes']):,} nodes" if random else run["dataset"],
                "split": "60/20/20" if random else run["split"],
                "seconds per round": seconds,
                "peak MiB": run.get(f"{way}.timing.peak_mebibytes"),
                "stack is faster by": seconds / run["stack.timing.seconds_per_round"],
                "chunk": run.get("stack.chunk") if way == "stack" else None,
                "test": run.get(f"{way}.test"),
            }
            rows.append({"clients": run["clients"], "hidden": run["hidden"], "way": way, "runs": run["repeats"], **row})
    return pd.DataFrame(rows, columns=list(columns))


def speed_checks(table: pd.DataFrame) -> list[dict[str, str]]:
    """Judge the engine's promises about speed and memory by the table."""

    def ratio(way: str, clients: int, hidden: int) -> float | None:
        cell = table[(table["way"] == way) & (table["clients"] == clients) & (table["hidden"] == hidden)]
        return None if cell.empty else float(cell["stack is faster by"].iloc[0])

    pyg, sparse = ratio("PyG loop", 10, 64), ratio("sparse loop", 100, 64)
    worst, worst_fused = (
        table.loc[table["way"] == way, "stack is faster by"].min() for way in ("sparse loop", "fused loop")
    )
    memory = table.loc[table["way"] == "stack", "peak MiB"].dropna().max() / GIB
    return [
        limit("EN-4a", "times faster than the PyG loop, 10 clients, 64 hidden", pyg, least=4),
        limit("EN-4b", "times faster than the sparse loop, 100 clients, 64 hidden", sparse, least=2.5),
        limit("EN-4c", "times faster than the sparse loop, worst size", worst, least=0.87),
        limit("EN-4d", "peak memory as a share of 1 GiB, at the largest size", memory, most=1),
        limit("EN-4e", "times faster than the fused loop, worst size", worst_fused, least=0.95),
    ]


def identity(
    number: int, statement: str, error: float, bound: float = ROUNDING, *, above: bool = False
) -> dict[str, str]:
    """Judge an identity of the engine by its error, or a version that breaks it on purpose by the error it must have.

    Rounding differs from one processor to the next. An identity that holds therefore shows its bound, not its error.

    Args:
        number: the check is called `EN-I<number>`.
        bound: largest error of an identity, where 0 asks for the same bits.
        above: whether the error must exceed the bound.
    """
    limit_text = f"> {bound:g}" if above else f"< {bound:g}" if bound else "0 (bitwise)"
    holds = error > bound if above else error <= bound
    return {
        "id": f"EN-I{number}",
        "statement": statement,
        "measured": limit_text if holds and bound and not above else f"{error:.3g}",
        "bound": limit_text,
        "verdict": HOLDS if holds else FAILS,
    }


GRIDS = {
    "EN-5": Grid(regimes, quick=lambda run: run.options.get("nodes") == 10_000, smoke=smallest_regimes),
    "EN-7": Grid(floors, quick=lambda run: (run.clients, run.options["hidden"]) == (10, 64), smoke=smallest_floors),
    "EN-6": Grid(beside_openfgl, quick=lambda run: run.clients == 10, smoke=list),
    "EN-4": Grid(speed, quick=lambda run: (run.clients, run.options["hidden"]) == (10, 64), smoke=smallest_speed),
}
