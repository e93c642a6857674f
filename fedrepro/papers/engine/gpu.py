"""Try a GPU and write one page about it: `make gpu-report`, the first thing for whoever owns one.

The page, `build/gpu-report.md`, says whether every notebook runs there under profile `smoke`, how far every method is
from the CPU and whether two runs on the GPU have the same bits, how long a round takes on both, and how much memory
training takes. Nothing is downloaded, and the store is left alone.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedrepro import paths
from fedrepro.papers.engine import exhibits as engine
from fedrepro.reporting import exhibits, files, notebook
from fedrepro.runs import executors, process, provenance, verification
from fedrepro.runs import records as records_
from fedrepro.runs.execute import compute, execute
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

ROUNDS = 10
GOOD = {"identical", "close"}
MIB = 2**20


def write(short: bool = False) -> tuple[Path, bool]:
    """Write the page, section by section; return its path, and whether everything held.

    Args:
        short: try the page itself, with one notebook, three methods and the smallest graphs.

    Raises:
        ArgumentError: there is no GPU, or no checkout.
    """
    paths.require_checkout("gpu-report")
    executors.resolved("cuda")
    page = paths.root() / "build" / ("gpu-report-short.md" if short else "gpu-report.md")
    text, well = f"# A GPU, tried\n\nWritten {records_.now()}.\n", True
    for title, section in SECTIONS.items():
        print(title, flush=True)
        try:
            told, held = section(short)
        except (RuntimeError, MemoryError) as error:  # the GPU broke; what comes before is worth reading
            told, held = f"This section ended early: {records_.describe(error)}", False
        text += f"\n## {title}\n\n{told}\n"
        well &= held
        paths.replace_file(page, text.encode())
    return page, well


def _machine(short: bool) -> tuple[str, bool]:
    with process.restored():
        process.settle("cuda")
        described = provenance.environment("cuda")
    rows = [*described.items(), ("GPUs", len(executors.gpus())), ("fedrepro", version("fedrepro"))]
    return files.table(["item", "value"], rows), True


def _notebooks(short: bool) -> tuple[str, bool]:
    names = ["engine/2-your-graph"] if short else ["all"]
    ends = list(notebook.run_all(names, {"profile": "smoke", "device": "cuda"}, jobs=executors.at_once("cuda")))
    failed = [(end.name, end.error) for end in ends if end.error]
    told = f"{len(ends) - len(failed)} of {len(ends)} notebooks run under `--profile smoke --device cuda`."
    told += "\n\n" + files.table(["notebook", "error"], failed) if failed else ""
    return told, not failed


def methods() -> list[Run]:
    """Return one run of each training method, with the options of the first smoke run that an exhibit has of it."""
    runs: dict[str, Run] = {}
    for exhibit in exhibits.registered().values():
        for run in exhibit.runs("smoke"):
            if run.task == "train":
                runs.setdefault(run.method, run.replace(options={**run.options, "rounds": ROUNDS}))
    return [runs[name] for name in sorted(runs)]


def _methods(short: bool) -> tuple[str, bool]:
    runs = methods()[:: 15 if short else 1]
    with tempfile.TemporaryDirectory() as folder:
        places = {"cpu": "cpu", "once": "cuda", "twice": "cuda"}
        cpu, once, twice = (_computed(runs, Path(folder) / name, at, short) for name, at in places.items())
    rows = [_row(run, cpu[run.key], once[run.key], twice[run.key]) for run in runs]
    table = pd.DataFrame(rows).fillna("")
    held = set(table["against the CPU"]) <= GOOD and set(table["a second time"]) == {"identical"}
    told = f"Each method trains {ROUNDS} rounds on a small graph, once on the CPU and twice on the GPU. What is "
    told += "`close` differs by what `fedrepro verify` lets another device change; losses are not compared."
    return f"{told}\n\n{files.table(list(table), table.to_numpy().tolist())}", held


def _computed(runs: list[Run], folder: Path, device: str, short: bool) -> dict[str, dict[str, Any]]:
    """Return a record for each run, by key, from the processes that a sweep has: those that broke say so."""
    store = Store(folder)
    frame = execute(runs, store=store, file="gpu", device=device, workers=1 if short else None)
    told = {trouble["key"]: {"status": "lost", **trouble} for trouble in frame.attrs["failed"]}
    return {run.key: store.get(run.key) or store.failure(run.key) or told[run.key] for run in runs}


def _row(run: Run, cpu: dict[str, Any], once: dict[str, Any], twice: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"method": run.method, "graph": run.dataset, "clients": run.clients}
    bad = next((record for record in (cpu, once, twice) if record["status"] != "ok"), None)
    if bad is not None:
        return row | {"against the CPU": bad["status"], "a second time": "", "where": bad["error"]}
    there, again = verification.Finding(cpu, once), verification.Finding(once, twice)
    moved = {"largest difference": f"{there.difference:.2g}", "where": there.field}
    seconds = {"s on the CPU": round(cpu["seconds"], 2), "s on the GPU": round(twice["seconds"], 2)}
    return row | {"against the CPU": there.verdict, "a second time": again.verdict, **moved, **seconds}


def _speed(short: bool) -> tuple[str, bool]:
    rows = []
    for run in _benches(short):
        here, there = (compute([run], device)[0] for device in ("cpu", "cuda"))
        for record in (here, there):
            if record["status"] != "ok":
                return f"{run.clients} clients: {record['error']}", False
        for way in engine.WAYS:
            cpu, gpu = (1000 * record["result"][way]["timing"]["seconds_per_round"] for record in (here, there))
            rows.append((run.clients, way, f"{cpu:.2f}", f"{gpu:.2f}", f"{cpu / gpu:.2f}"))
    heads = ["clients", "way", "ms a round on the CPU", "ms on the GPU", "GPU is faster by"]
    several = _side_by_side(2 if short else 10, 2 if short else 50)
    return f"{files.table(heads, rows)}\n\n{several}", True


def _benches(short: bool) -> list[Run]:
    if short:
        return engine.smallest_speed()
    chosen = [run for run in engine.speed() if run.options["hidden"] == 64 and run.clients in (1, 10, 20, 100)]
    return [run.replace(dataset="Cora~standin", options={**run.options, "memory": False}) for run in chosen]


def _train(method: str, dataset: str, clients: int, **options: Any) -> Run:
    given = {"dataset": dataset, "prepare": "unit-norm", "split": "public", "partition": "metis", "clients": clients}
    run = {"task": "train", "paper": "engine", "method": method, "seed": 0, "options": options, **given}
    return Run.from_dict(run)


def _side_by_side(seeds: int, rounds: int) -> str:
    run = _train("FedAvg", "Cora~standin", 10, hidden=64, local_epochs=3, rounds=rounds)
    compute([run], "cuda")  # the first pays for what is loaded
    one, all_ = (compute([run.replace(seed=s) for s in range(n)], "cuda")[0]["batch"]["seconds"] for n in (1, seeds))
    return f"{seeds} seeds side by side take {all_ / one:.2f} times as long as one ({one:.2f} s for {rounds} rounds)."


def _memory(short: bool) -> tuple[str, bool]:
    rows, held = [], True
    graphs = ["Cora~standin"] if short else ["Cora~standin", "PubMed~standin", "Physics~standin"]
    for dataset in graphs:
        for method, model in (("FedAvg", "GCN"), ("DistGAT", "GAT"), ("FedGCN", "GCN"), ("FedGAT", "GAT")):
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            (record,) = compute([_train(method, dataset, 10, model=model, rounds=2)], "cuda")
            peak, left = torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before
            told = record["error"] or ""
            held &= record["status"] == "ok" and left <= 0
            rows.append((dataset, method, record["chunk"], f"{peak / MIB:.1f}", f"{left / MIB:.1f}", told))
    heads = ["graph", "method", "clients at a time", "peak MiB", "MiB kept", "error"]
    told = "Ten clients train two rounds. Memory that a finished run keeps is a fault."
    return f"{told}\n\n{files.table(heads, rows)}", held


SECTIONS: dict[str, Callable[[bool], tuple[str, bool]]] = {
    "The machine": _machine,
    "Every notebook": _notebooks,
    "Every method against the CPU": _methods,
    "Seconds a round": _speed,
    "Memory": _memory,
}


if __name__ == "__main__":
    where, all_held = write(short="--short" in sys.argv[1:])
    print(f"{where}: {'everything held' if all_held else 'not everything held, see there'}")
    sys.exit(0 if all_held else 1)
