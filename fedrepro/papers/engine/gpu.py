"""Try a GPU and write one page about it: `make gpu-report`, the first thing for whoever owns one.

The page, `figures/engine/EN-GPU.md`, says how long a round takes on the GPU and on the CPU, which kernels take the
time, how much memory training takes, how far every method is from the CPU, whether two runs on the GPU have the same
bits, whether stored results are met again, how long the profile `paper` would take, and whether every notebook runs
under the profile `smoke`. `EN-GPU.csv` has the seconds of a round. Nothing is downloaded, and the store is left alone.
Nothing is begun once ten minutes are over, and the page says what was not measured for that reason.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import torch

from fedrepro import paths
from fedrepro.data import sources
from fedrepro.data.shapes import SHAPES
from fedrepro.errors import ArgumentError, one_of
from fedrepro.papers.engine import bench
from fedrepro.papers.engine import exhibits as engine
from fedrepro.reporting import exhibits, files, notebook
from fedrepro.runs import derived, executors, process, provenance, tasks, verification
from fedrepro.runs import records as records_
from fedrepro.runs.execute import compute, compute_all, execute
from fedrepro.runs.lines import Record, cell_of
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store, opened

ROUNDS = 10
GOOD = {"identical", "close"}
MIB = 2**20
SECONDS = 600.0  # for the whole page
MINUTES = 1.0  # of these at most for stored results, and for the hours of the profile `paper`
LATE = "Not measured, since the time was over"
DEAREST = 60.0  # seconds of a stored result that is computed again
PAIRS = 14  # of method and graph, whose training is timed to tell what the profile `paper` would take

T = TypeVar("T")


def write(short: bool = False, only: Sequence[str] = (), seconds: float = SECONDS) -> tuple[Path, bool]:
    """Write the page, section by section; return its path, and whether everything that was measured held.

    Args:
        short: try the page itself, with one notebook, two methods and the smallest graphs.
        only: titles of the sections to measure again; the page keeps the others. All by default.
        seconds: how long after the call something may still be begun. The page names what is not measured then.

    Raises:
        ArgumentError: there is no GPU, no checkout, or no section of such a title.
    """
    until = time.monotonic() + seconds
    for title in only:
        one_of("only", title, tuple(SECTIONS))
    paths.require_checkout("gpu-report")
    executors.resolved("cuda")
    page = paths.root() / "build/gpu-report-short.md" if short else paths.figures() / "engine" / "EN-GPU.md"
    kept = _sections(page) if only and page.exists() else {}
    well = True
    for title in only or SECTIONS:
        print(f"{time.strftime('%H:%M:%S')} {title}", flush=True)
        begun, late = records_.now(), time.monotonic() >= until
        try:
            told, held = (f"{LATE}.", True) if late else SECTIONS[title](short, until)
        except (RuntimeError, MemoryError) as error:  # the GPU broke; what was measured before it stays
            told, held = f"This section ended early: {records_.describe(error)}", False
        kept[title] = told if late else f"Begun {begun} on one {torch.cuda.get_device_name()}.\n\n{told.strip()}"
        well &= held
        body = "\n\n".join(f"## {title}\n\n{kept[title]}" for title in SECTIONS if title in kept)
        text = f"# A GPU, tried\n\n`make gpu-report` writes this page.\n\n{body}\n"
        paths.replace_file(page, text.encode())
    return page, well


def _sections(page: Path) -> dict[str, str]:
    """Return the sections of a page that was written before, by title."""
    parts = page.read_text(encoding="utf-8").split("\n## ")[1:]
    return {title: told.strip() for title, _, told in (part.partition("\n") for part in parts)}


def _in_time(steps: Mapping[str, T], until: float, late: list[str]) -> Iterator[T]:
    """Yield steps as long as there is time; the names of the others go to `late`."""
    for name, step in steps.items():
        if time.monotonic() < until:
            yield step
        else:
            late.append(name)


def _missing(late: list[str]) -> str:
    """Return a paragraph on the steps for which there was no time, or nothing."""
    return f"\n\n{LATE}: {', '.join(late)}." if late else ""


def _machine(short: bool, until: float) -> tuple[str, bool]:
    with process.restored():
        process.settle("cuda")
        described = provenance.environment("cuda")
    rows = [*described.items(), ("GPUs", len(executors.gpus())), ("fedrepro", version("fedrepro"))]
    return files.table(["item", "value"], rows), True


def _notebooks(short: bool, until: float) -> tuple[str, bool]:
    names = ["engine/3-your-method"] if short else ["all"]
    ends = []
    asked = notebook.run_all(names, {"profile": "smoke", "device": "cuda"}, jobs=executors.at_once("cuda"))
    for end in asked:
        ends.append(end)
        print(end.name, f"{end.seconds:.0f} s", end.error, flush=True)
        if time.monotonic() > until:
            break
    asked.close()
    failed = [(end.name, end.error) for end in ends if end.error]
    count, all_ = len(ends), len(notebook.select(names))
    told = f"{count - len(failed)} of {count} notebooks run under `--profile smoke --device cuda`."
    told += f" The time did not suffice for {all_ - count} others." if count < all_ else ""
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


def _methods(short: bool, until: float) -> tuple[str, bool]:
    runs = [run for run in methods() if not short or run.method in ("Central", "FedGAT")]
    with tempfile.TemporaryDirectory() as folder:
        places = {"cpu": "cpu", "once": "cuda", "twice": "cuda"}
        cpu, once, twice = (_computed(runs, Path(folder) / name, at, short, until) for name, at in places.items())
    rows = [_row(run, cpu[run.key], once[run.key], twice[run.key]) for run in runs]
    table = pd.DataFrame(rows).fillna("")
    measured = table[table["against the CPU"] != "not measured"]
    held = set(measured["against the CPU"]) <= GOOD and set(measured["a second time"]) <= {"identical", "not measured"}
    told = f"Each method trains {ROUNDS} rounds on a small graph, once on the CPU and twice on the GPU. "
    told += "`close` means that no score differs by more than `fedrepro verify` allows between devices; losses are"
    told += " not compared."
    return f"{told}\n\n{files.table(list(table), table.to_numpy().tolist())}", held


def _computed(runs: list[Run], folder: Path, device: str, short: bool, until: float) -> dict[str, dict[str, Any]]:
    """Return a record for each run, by key, from the processes that a sweep has: those that broke or wait say so."""
    store, workers = Store(folder), 1 if short else None
    minutes = max(0.0, until - time.monotonic()) / 60
    frame = execute(runs, store=store, file="gpu", device=device, workers=workers, budget=minutes, quiet=True)
    told = {trouble["key"]: {"status": "lost", **trouble} for trouble in frame.attrs["failed"]}
    late = {"status": "not measured", "error": "the time was over"}
    return {run.key: store.get(run.key) or store.failure(run.key) or told.get(run.key, late) for run in runs}


def _row(run: Run, cpu: dict[str, Any], once: dict[str, Any], twice: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"method": run.method, "graph": run.dataset, "clients": run.clients}
    if bad := next((record for record in (cpu, once) if record["status"] != "ok"), None):
        return row | {"against the CPU": bad["status"], "a second time": "", "where": bad["error"]}
    there = verification.Finding(cpu, once)
    row |= {"against the CPU": there.verdict, "a second time": twice["status"]}
    row |= {"largest difference": f"{there.difference:.2g}", "where": there.field}
    row |= {"s on the CPU": round(cpu["seconds"], 2)}
    if twice["status"] != "ok":
        return row | {"where": f"{there.field or 'equal'}; the second time: {twice['error']}"}
    again = verification.Finding(once, twice)
    return row | {"a second time": again.verdict, "s on the GPU": round(twice["seconds"], 2)}


def _speed(short: bool, until: float) -> tuple[str, bool]:
    rows: list[tuple[Any, ...]] = []
    late: list[str] = []
    for run in _in_time({f"{run.clients} clients": run for run in _benches(short)}, until, late):
        here, there = (compute([run], device)[0] for device in ("cpu", "cuda"))
        for record in (here, there):
            if record["status"] != "ok":
                return f"{run.clients} clients: {record['error']}", False
        for way in engine.WAYS:
            cpu, gpu = (1000 * record["result"][way]["timing"]["seconds_per_round"] for record in (here, there))
            rows.append((run.clients, way, f"{cpu:.2f}", f"{gpu:.2f}", f"{cpu / gpu:.2f}"))
    heads = ["clients", "way", "ms a round on the CPU", "ms on the GPU", "GPU is faster by"]
    if rows and not short:
        files.save("engine", "EN-GPU", pd.DataFrame(rows, columns=heads))
    told = files.table(heads, rows)
    for seeds in _in_time({"seeds side by side": 2 if short else 10}, until, late):
        told += f"\n\n{_side_by_side(seeds, 2 if short else 50)}"
    return told + _missing(late), True


def _benches(short: bool) -> list[Run]:
    if short:
        return engine.smallest_speed()
    chosen = [run for run in engine.speed() if run.options["hidden"] == 64 and run.clients in (1, 10, 20, 100)]
    fewer = {"memory": False, "rounds": 5, "repeats": 3}
    return [run.replace(dataset="Cora~standin", options={**run.options, **fewer}) for run in chosen]


def _kernels(short: bool, until: float) -> tuple[str, bool]:
    graphs = {"Cora~standin": 64} if short else {"Cora~standin": 64, "PubMed~standin": 128}
    late: list[str] = []
    timely = _in_time({graph: (graph, hidden) for graph, hidden in graphs.items()}, until, late)
    return "\n\n".join(_profiled(*graph, 1 if short else 5) for graph in timely) + _missing(late), True


def _profiled(dataset: str, hidden: int, rounds: int) -> str:
    """Tell which kernels the rounds of `bench.stepper` spend the GPU's time on."""
    options = {"hidden": hidden, "local_epochs": 3}
    (run,) = engine.rounds(dataset=dataset, split="40/30/30", clients=10, options=options)
    with process.restored():
        process.settle("cuda")
        step = bench.stepper(run, "stack", "cuda")
        step(rounds)  # the first pays for what is loaded
        seconds, _ = bench.timed(step, rounds, "cuda")
        with torch.profiler.profile() as profiler:
            bench.timed(step, rounds, "cuda")
    spent: Counter[str] = Counter()
    launches: Counter[str] = Counter()
    for event in profiler.key_averages():
        if event.device_type == torch.autograd.DeviceType.CUDA:  # type: ignore[attr-defined]
            spent[event.key.split("<")[0]] += event.self_device_time_total
            launches[event.key.split("<")[0]] += event.count
    busy, count = sum(spent.values()) / 1000 / rounds, sum(launches.values()) / rounds
    told = f"{dataset}, 10 clients, {hidden} hidden units, 3 local epochs: a round takes {1000 * seconds / rounds:.2f} "
    told += f"ms. It has {count:.0f} kernels and copies, which keep the GPU busy for {busy:.2f} ms."
    most = [(name, launches[name] / rounds, f"{t / sum(spent.values()):.1%}") for name, t in spent.most_common(8)]
    return told + "\n\n" + files.table(["kernel", "launches a round", "share of the busy time"], most)


def _train(method: str, dataset: str, clients: int, **options: Any) -> Run:
    given = {"dataset": dataset, "prepare": "unit-norm", "split": "40/30/30", "partition": "metis", "clients": clients}
    run = {"task": "train", "paper": "engine", "method": method, "seed": 0, "options": options, **given}
    return Run.from_dict(run)


def _side_by_side(seeds: int, rounds: int) -> str:
    run = _train("FedAvg", "Cora~standin", 10, hidden=64, local_epochs=3, rounds=rounds)
    compute([run], "cuda")  # the first pays for what is loaded
    one, all_ = (compute([run.replace(seed=s) for s in range(n)], "cuda")[0]["batch"]["seconds"] for n in (1, seeds))
    return f"{seeds} seeds side by side take {all_ / one:.2f} times as long as one ({one:.2f} s for {rounds} rounds)."


def _memory(short: bool, until: float) -> tuple[str, bool]:
    rows, held = [], True
    late: list[str] = []
    graphs = ["Cora~standin"] if short else ["Cora~standin", "PubMed~standin", "Physics~standin"]
    models = {"FedAvg": "GCN", "DistGAT": "GAT", "FedGCN": "GCN", "FedGAT": "GAT"}
    runs = [_train(method, graph, 10, model=models[method], rounds=2) for graph in graphs for method in models]
    compute([_train("FedAvg", "Cora~standin", 10, rounds=1)], "cuda")  # the first product has cuBLAS take its workspace
    for run in _in_time({f"{run.method} on {run.dataset}": run for run in runs}, until, late):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        (record,) = compute([run], "cuda")
        peak, left = torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before
        held &= record["status"] == "ok" and left <= 0
        stacked = f"{record['chunk'] * _client_bytes(run) / MIB:.1f}" if record["chunk"] else ""
        sizes = (stacked, f"{peak / MIB:.1f}", f"{left / MIB:.1f}")
        rows.append((run.dataset, run.method, record["chunk"], *sizes, record["error"] or ""))
    heads = ["graph", "method", "clients at a time", "MiB of stacked weights", "peak MiB", "MiB kept", "error"]
    told = "Ten clients train two rounds. The rule for clients at a time counts nothing but their stacked weights. "
    told += "Memory that a finished run keeps is a fault."
    return f"{told}\n\n{files.table(heads, rows)}{_missing(late)}", held


def _client_bytes(run: Run) -> int:
    """Return the bytes of one client's weights, which `training.chunk_size` counts."""
    shape = SHAPES[run.dataset.removesuffix("~standin")]
    model = tasks.method(run, shape.features, len(shape.classes))[0].model
    return sum(weight.nbytes for weight in model.init([run.seed]).values())


def _stored(short: bool, until: float) -> tuple[str, bool]:
    """Compute stored results again, one of each method and graph in random order, as far as time and data go."""
    store = opened()
    cells: dict[tuple[str, ...], Record] = {}
    dearest = 0.1 if short else DEAREST
    trained = (record for record in store if record["run"]["task"] == "train" and record["seconds"] < dearest)
    alone = (record for record in trained if len(record["batch"]["seeds"]) == 1)
    records = [record for record in alone if verification.can_repeat(record)]
    random.Random(0).shuffle(records)
    for record in records:
        if sources.is_at_hand(record["run"]["dataset"], download=False):
            cells.setdefault(cell_of(record), record)
    old = set(map(id, verification.stale(store, cells.values())))
    chosen = {record["key"]: record for record in cells.values() if id(record) not in old}
    findings: list[verification.Finding] = []

    def keep(new: list[Record]) -> None:
        findings.extend(verification.Finding(chosen[record["key"]], record) for record in new)

    batches = [[Run.from_dict(record["run"])] for record in list(chosen.values())[: 2 if short else None]]
    deadline = min(until, time.monotonic() + 60 * MINUTES)
    compute_all(batches, keep, device="cuda", workers=1, progress=False, deadline=deadline)
    if batches and not findings:
        return f"{LATE}.", True
    computed = [finding for finding in findings if finding.verdict not in ("unavailable", "damaged")]
    if not computed:
        return "None was computed again, since there is no stored result of a graph that is here.", True
    verdicts = Counter(finding.verdict for finding in computed)
    told = f"{len(computed)} stored results, each of another method and graph, were computed again on the GPU: "
    told += ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()) + "."
    here, there = (sum(record["seconds"] for record in side) for side in zip(*((f.old, f.new) for f in computed)))
    told += f" They had taken {here:.0f} s where they were first computed, and took {there:.0f} s."
    worst = sorted(computed, key=lambda finding: (finding.verdict in GOOD, -finding.difference))[:12]
    rows = [
        (
            f.old["run"]["method"],
            f.old["run"]["dataset"],
            f.verdict,
            f"{f.difference:.2g}",
            f.field or f.new["error"] or "",
        )
        for f in worst
    ]
    if late := len(batches) - len(findings):
        told += f" The time did not suffice for {late} others."
    heads = ["method", "graph", "verdict", "largest difference", "where"]
    return f"{told} The largest differences:\n\n{files.table(heads, rows)}", set(verdicts) <= GOOD


def _hours(short: bool, until: float) -> tuple[str, bool]:
    """Estimate what the training of profile `paper` takes on this GPU, from the pairs that cost most in the store."""
    wanted: defaultdict[tuple[str, ...], dict[str, Run]] = defaultdict(dict)
    for exhibit in exhibits.registered().values():
        for run in exhibit.runs("paper"):
            if run.task == "train" and not run.dataset.startswith("subCora"):  # cut from a graph that may not be here
                wanted[run.task, run.method, run.dataset][run.key] = run
    like = derived.means(opened())
    means = {cell: next((like[level] for level in derived.levels(cell) if level in like), 0.0) for cell in wanted}
    hours = {cell: len(runs) * means[cell] / 3600 for cell, runs in wanted.items()}
    dearest = sorted(hours, key=lambda cell: -hours[cell])
    dearest = [cell for cell in dearest if cell[2] == "Cora"][-1:] if short else dearest[:PAIRS]
    rows, there, timed = [], 0.0, []
    until = min(until, time.monotonic() + 60 * MINUTES)
    for cell in dearest:
        if time.monotonic() > until:
            break
        timed.append(cell)
        runs = list(wanted[cell].values())
        seconds = statistics.fmean(_whole(runs[0], [int(run.options.get("rounds", 100)) for run in runs]))
        there += len(runs) * seconds / 3600
        rows.append((*cell[1:], len(runs), f"{hours[cell]:.2f}", f"{len(runs) * seconds / 3600:.2f}"))
    if not timed:
        return f"{LATE}.", True
    all_, here = sum(hours.values()), sum(hours[cell] for cell in timed)
    told = f"The training runs of the profile `paper` take {all_:.0f} hours of one core by the seconds of the store. "
    told += f"The pairs below are {here:.0f} of these. On this GPU they would take {there:.1f} hours, estimated from "
    told += "the first rounds of one run each, on a stand-in of the same size, one run after the other. That run is "
    told += "the first of its pair, often the one of fewest clients: the hours are too few where others have more."
    told += f" The time did not suffice for {late} other pairs." if (late := len(dearest) - len(timed)) else ""
    heads = ["method", "graph", "runs", "hours on one core", "hours on the GPU"]
    return f"{told}\n\n{files.table(heads, rows)}", True


def _whole(run: Run, rounds: list[int]) -> Iterator[float]:
    """Yield the estimated seconds of runs that are like one but for their number of rounds, from its first rounds."""
    dataset = run.dataset.removesuffix("~standin")
    run = run.replace(dataset=f"{dataset}~standin" if dataset in SHAPES else dataset)
    seconds = []
    for count in (1, 1, 3):  # the first pays for what is loaded
        (record,) = compute([run.replace(options={**run.options, "rounds": count})], "cuda")
        if record["status"] != "ok":
            raise RuntimeError(f"{run.method} on {run.dataset}: {record['error']}")
        seconds.append(record["seconds"])
    a_round = max(0.0, seconds[2] - seconds[1]) / 2
    yield from (seconds[1] + (count - 1) * a_round for count in rounds)


# Cheap and important ones come first; notebooks get the time that is left.
SECTIONS: dict[str, Callable[[bool, float], tuple[str, bool]]] = {
    "The machine": _machine,
    "Milliseconds a round": _speed,
    "Memory": _memory,
    "Every method against the CPU": _methods,
    "Hours of the profile `paper`": _hours,
    "Kernels": _kernels,
    "Stored results, computed again": _stored,
    "Every notebook": _notebooks,
}


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--short"]
    try:
        where, all_held = write(short="--short" in sys.argv[1:], only=given)
    except ArgumentError as error:
        sys.exit(f"gpu-report: {error}")
    print(f"{where}: {'what was measured held' if all_held else 'not everything held, see there'}")
    sys.exit(0 if all_held else 1)
