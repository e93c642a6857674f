from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import fake_tasks
import pytest

from fedrepro import cli
from fedrepro.errors import ArgumentError
from fedrepro.runs import lines, verification
from fedrepro.runs.execute import execute
from fedrepro.runs.index import Index
from fedrepro.runs.lines import Fault
from fedrepro.runs.merge import merge
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

pytestmark = pytest.mark.usefixtures("_fake")


@pytest.fixture
def _fake() -> Iterator[None]:
    fake_tasks.register()
    yield
    fake_tasks.forget()


def fill(folder: Path, seeds: range) -> Store:
    store = Store(folder)
    runs = [Run("check", "p", "quick", seed=seed) for seed in seeds]
    execute(runs, store=store, file="p-1", progress=False)
    return store


def test_what_is_missing_is_added(tmp_path: Path) -> None:
    """Records that the store lacks are appended to the file of their name; those present stay as they are."""
    here, there = fill(tmp_path / "here", range(2)), fill(tmp_path / "there", range(1, 5))
    before = [here.get(record["key"]) for record in here]
    assert merge(there.folder, here) == (3, 1, [])
    assert len(here) == 5 and [here.get(str(r["key"])) for r in before if r] == before
    assert {here.file(record["key"]) for record in here} == {"p-1.jsonl"}
    assert all(record["environment"] in here.environments for record in here)
    assert merge(there.folder, here) == (0, 4, [])


def test_a_stale_record_is_replaced(tmp_path: Path) -> None:
    """A record of code that has changed since is replaced by one of the code of now; one as stale as itself is not."""
    here, there = Store(tmp_path / "here"), fill(tmp_path / "there", range(2))
    first, second = there
    old = {"fingerprint": "of other code", "environment": there.environments[str(first["environment"])]}
    here.append("p-1", *(record | old | {"when": "2020-01-01T00:00:00+00:00"} for record in (first, second)))
    there.append("p-1", second | old | {"when": "2100-01-01T00:00:00+00:00"})
    assert merge(there.folder, here) == (1, 1, [])
    merged = here.get(str(first["key"])) or {}
    assert {name: merged[name] for name in first} == first
    assert verification.stale(here) == [here.get(str(second["key"]))]


@pytest.mark.parametrize("when", ["2020-01-01T00:00:00+00:00", "2100-01-01T00:00:00+00:00"])
def test_a_stale_record_is_replaced_whatever_the_clocks_say(tmp_path: Path, when: str) -> None:
    """The record of the code of now is served though the stale one was computed later, and is not added twice."""
    here, there = Store(tmp_path / "here"), fill(tmp_path / "there", range(1))
    (record,) = there
    key, described = str(record["key"]), there.environments[str(record["environment"])]
    here.append("z", record | {"fingerprint": "of other code", "environment": described, "when": when})
    assert merge(there.folder, here) == (1, 0, [])
    for store in (here, Store(here.folder), Index(here.folder)):
        served = store.get(key)
        assert served is not None and served["fingerprint"] == record["fingerprint"]
        assert served["when"] == record["when"] and verification.stale(store) == []
    assert merge(there.folder, here) == (0, 1, []) and here.check() == []


def test_a_key_of_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A record whose run was edited is named and not taken, and the command says so by its status."""
    here, there = fill(tmp_path / "here", range(1)), fill(tmp_path / "there", range(1, 3))
    file = there.folder / "p-1.jsonl"
    records = [lines.read(line, file.name)[0] for line in file.read_bytes().splitlines()]
    records[0]["run"]["seed"] = 9
    told = "p-1.jsonl line 1 has a key that is not its run's"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert merge(there.folder, here) == (1, 0, [Fault("p-1.jsonl", 1, "has a key that is not its run's")])
    assert cli.main(["merge", str(there.folder)]) == 1
    assert f"refused: {told}" in capsys.readouterr().out
    file.write_bytes(b"".join(lines.write(record, file.name) for record in records))  # edited and sealed
    told = f"holds a key that is not its run's: {records[0]['key']}"
    assert merge(there.folder, here) == (0, 1, [Fault("p-1.jsonl", 0, told)])


@pytest.mark.parametrize("sealed", [True, False])
def test_both_forms_of_lines_are_taken(tmp_path: Path, sealed: bool) -> None:
    """Records of a store without checksums are merged like others, and have one then."""
    here, there = Store(tmp_path / "here"), fill(tmp_path / "there", range(3))
    if not sealed:
        for path in there.folder.glob("*.jsonl"):
            text = [line[: line.rindex(',"sum"')] + "}\n" for line in path.read_text().splitlines()]
            path.write_text("".join(text))
        there.refresh()
    assert bool(there.unsealed) == (not sealed)
    assert merge(there.folder, here) == (3, 0, [])
    assert here.unsealed == [] and here.check() == [] and list(here) == list(there)


def test_the_folder_around_a_store_will_do(tmp_path: Path) -> None:
    """`make all FRESH=1` speaks of `build/fresh`, whose results lie in a folder of it."""
    here = fill(tmp_path / "here", range(1))
    fill(tmp_path / "fresh" / "results", range(1, 3))
    assert merge(tmp_path / "fresh", here).added == 2 and len(here) == 3


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    """A folder without results is named."""
    with pytest.raises(ArgumentError, match="folder must be a folder that holds finished results"):
        merge(tmp_path, Store(tmp_path / "here"))
