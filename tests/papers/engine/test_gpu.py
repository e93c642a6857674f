"""Try the report on a GPU without one: its ten minutes on a clock of the test's, and the graphs that it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedrepro import paths
from fedrepro.data import sources
from fedrepro.papers.engine import gpu
from fedrepro.reporting.notebook import Outcome
from fedrepro.runs import records
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store


class Clock:
    """Seconds that go by as the test says, and `done`, whatever was begun with the second of its beginning."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.done: list[tuple[Any, float]] = []

    def monotonic(self) -> float:
        return self.seconds

    def strftime(self, form: str) -> str:
        return time.strftime(form)

    def does(self, what: Any, result: Any = None, seconds: float = 1.0) -> Any:
        self.done.append((what, self.seconds))
        self.seconds += seconds
        return result


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let the report see a clock of the test's, and a GPU that has a name and nothing else."""
    clock = Clock()
    monkeypatch.setattr(gpu, "time", clock)
    monkeypatch.setattr(gpu.executors, "resolved", lambda device: device)
    for name in ("memory_allocated", "max_memory_allocated", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A card")
    return clock


def sections(page: Path) -> dict[str, str]:
    """Return the text of each section of a page, by title."""
    parts = page.read_text(encoding="utf-8").split("\n## ")[1:]
    return {part.splitlines()[0]: "\n".join(part.splitlines()[1:]).strip() for part in parts}


def test_all_sections_share_ten_minutes(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A section may begin until ten minutes after the call, all know when these end, and the page names the others."""
    clock.seconds = 1000.0

    def takes(name: str, seconds: float, held: bool = True) -> Callable[[bool, float], tuple[str, bool]]:
        return lambda short, until: clock.does((name, until), (f"{name} said.", held), seconds)

    five = {"a": takes("a", 300), "b": takes("b", 299), "c": takes("c", 1), "d": takes("d", 1), "e": takes("e", 1)}
    monkeypatch.setattr(gpu, "SECTIONS", five)
    page, well = gpu.write()
    assert clock.done == [(("a", 1600), 1000), (("b", 1600), 1300), (("c", 1600), 1599)] and well
    told = sections(page)
    assert list(told) == list(five) and told["d"] == told["e"] == "Not measured, since the time was over."
    assert all(told[name].startswith("Begun ") and told[name].endswith(f"{name} said.") for name in "abc")
    clock.done.clear()
    assert sections(gpu.write(only=("e",), seconds=0.5)[0]) == told | {"e": sections(page)["e"]}
    assert clock.done == [(("e", clock.seconds - 0.5), clock.seconds - 1)] and "e said." in sections(page)["e"]
    monkeypatch.setattr(gpu, "SECTIONS", {"a": takes("a", 9, held=False), "b": takes("b", 9)})
    assert not gpu.write(seconds=5)[1], "what was measured and did not hold still counts"


def test_no_section_is_left_out_for_want_of_time(clock: Clock) -> None:
    """Without any time the page names all sections, none with a number."""
    page, well = gpu.write(seconds=0)
    assert well and set(sections(page)) == set(gpu.SECTIONS)
    assert set(sections(page).values()) == {"Not measured, since the time was over."}
    assert list(gpu.SECTIONS)[-1] == "Every notebook", "which gets the time that is left"
    assert not (paths.figures() / "engine" / "EN-GPU.csv").exists()


def seconds_of(runs: list[Run], device: str) -> dict[str, Any]:
    """Return a record for a run, which took a second."""
    ways = {way: {"timing": {"seconds_per_round": 0.25}} for way in gpu.engine.WAYS}
    record = {"run": runs[0].to_dict(), "status": "ok", "error": None, "chunk": 5, "seconds": 1.0}
    return record | {"result": ways, "batch": {"seconds": 1.0}}


@pytest.mark.parametrize(
    ("section", "until", "begun", "told"),
    [
        # Each way to compute takes a second: 1 client here and on the GPU, then 10.
        (gpu._speed, 3, 4, "since the time was over: 20 clients, 100 clients, seeds side by side."),
        (gpu._speed, 8, 8, "since the time was over: seeds side by side."),
        # Before the first of four methods on three graphs the device is warmed up.
        (gpu._memory, 10.5, 11, "since the time was over: FedGCN on Physics~standin, FedGAT on Physics~standin."),
        (gpu._kernels, 1, 1, "since the time was over: PubMed~standin."),
        (gpu._hours, -1, 0, "Not measured, since the time was over."),
    ],
)
def test_a_section_ends_in_time(
    section: Any, until: float, begun: int, told: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A section begins nothing after the time, keeps what it has measured, and names what it has not."""
    monkeypatch.setattr(gpu, "compute", lambda runs, device: clock.does(runs, [seconds_of(runs, device)]))
    monkeypatch.setattr(gpu, "_profiled", lambda *given: clock.does(given, f"{given[0]} was measured."))
    text, held = section(False, until)
    assert held and len(clock.done) == begun and text.endswith(told)
    lines = sum(line.startswith("| ") for line in text.splitlines())
    assert lines == {gpu._speed: 2 + 5 * begun // 2, gpu._memory: 2 + begun - 1}.get(section, 0)


def test_hours_are_told_of_what_was_timed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate ends between two pairs, each of which three short runs time, and says how many are left out."""
    monkeypatch.setattr(gpu, "compute", lambda runs, device: clock.does(runs, [seconds_of(runs, device)]))
    for short, until, pairs in ((False, 4.0, 2), (True, 100.0, 1)):
        clock.seconds, clock.done = 0.0, []
        text, held = gpu._hours(short, until)
        rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
        assert held and len(rows) == pairs and len(clock.done) == 3 * pairs
        assert (f"did not suffice for {gpu.PAIRS - pairs} other pairs" in text) is not short
    assert "| Cora |" in rows[0], "the report tried in short takes a small graph"


def test_methods_and_notebooks_end_in_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that were not begun say so in their rows, and the notebooks take all that is left, however long."""
    clock.seconds = 100.0
    text, held = gpu._methods(True, 100.0)
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    assert held and [row.split(" | ")[0] for row in rows] == ["| Central", "| FedGAT"]
    assert all("| not measured |" in row and "the time was over" in row for row in rows)

    def run_all(names: list[str], given: dict[str, Any], jobs: int) -> Iterator[Outcome]:
        for name in ("a", "b", "c", "d"):
            yield clock.does(name, Outcome(name, 1.0), 500.0)

    monkeypatch.setattr(gpu.notebook, "run_all", run_all)
    monkeypatch.setattr(gpu.notebook, "select", lambda names: ["a", "b", "c", "d"])
    told, held = gpu._notebooks(False, 1100.0)
    assert [name for name, _ in clock.done] == ["a", "b", "c"]
    assert held and told.startswith("3 of 3 notebooks run") and "did not suffice for 1 others" in told


def test_a_difference_is_told_without_a_second_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method whose second run on the GPU came too late is still compared with the CPU, and counts if it differs."""
    late = {"status": "not measured", "error": "the time was over"}

    def computed(*scores: float) -> tuple[str, bool]:
        passes = iter(scores)

        def records_of(runs: list[Run], *given: object) -> dict[str, Any]:
            if (score := next(passes, None)) is None:
                return {run.key: late for run in runs}
            result = {"result": {"before": {"last": {"test": score}}, "series": {}}}
            return {run.key: records.record(run, "cpu", records.batch_of([run], 1.0), result) for run in runs}

        monkeypatch.setattr(gpu, "_computed", records_of)
        return gpu._methods(True, 1.0)

    for second, held in ((0.5, True), (0.9, False)):
        text, well = computed(0.5, second)
        assert well is held and "| not measured |" in text and ("| differs |" in text) is not held
        assert "the second time: the time was over" in text
    late |= {"status": "failed", "error": "a device was lost"}
    text, well = computed(0.5, 0.5)
    assert not well and "the second time: a device was lost" in text


def test_nothing_is_downloaded(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only stored results of graphs whose files are here are computed again; subCora is cut from Cora."""
    monkeypatch.setattr(gpu.paths, "raw_folders", lambda: [tmp_path / "raw"])
    graphs = ("Cora", "CiteSeer", "subCora", "subCora as coded", "Amazon Ratings~incomplete", "csbm-DNC")
    runs = [Run("train", "p", "FedAvg", graph, split="public", clients=2) for graph in (*graphs, "Cora~standin")]
    made = [records.record(run, "cpu", records.batch_of([run], 1.0), {"result": {}, "chunk": 2}) for run in runs]
    Store(paths.store()).append("a", *made)

    def computed(*here: str) -> set[str]:
        for name in here:
            source = sources.source_of(name)
            for file in source.files:
                (tmp_path / "raw" / source.folder / file).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / "raw" / source.folder / file).touch()
        asked: list[Run] = []
        monkeypatch.setattr(gpu, "compute_all", lambda batches, keep, **more: asked.extend(run for (run,) in batches))
        gpu._stored(False, 600.0)
        return {run.dataset for run in asked}

    assert computed() == {"csbm-DNC", "Cora~standin"}
    assert computed("CiteSeer", "Amazon Ratings~incomplete") == {*graphs[:2], *graphs[4:], "Cora~standin"} - {"Cora"}
    assert computed("Cora") == {*graphs, "Cora~standin"}


def test_stored_results_and_the_deadline(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored results have a minute, or what is left of the ten; with no time they are told as not measured."""
    assert gpu._stored(False, 600.0) == (
        "None was computed again, since there is no stored result of a graph that is here.",
        True,
    )
    run = Run("train", "p", "FedAvg", "Cora~standin", split="public", clients=2)
    Store(paths.store()).append("a", records.record(run, "cpu", records.batch_of([run], 1.0), {"result": {}}))
    ends: list[float] = []
    monkeypatch.setattr(gpu, "compute_all", lambda batches, keep, deadline, **more: ends.append(deadline))
    for until in (600.0, 20.0):
        assert gpu._stored(False, until) == ("Not measured, since the time was over.", True)
    assert ends == [60.0, 20.0]
