"""Values worked out from all records of a store are worked out once, and again after a record was read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fake_tasks
import pytest

from fedrepro import paths
from fedrepro.runs import derived, verification
from fedrepro.runs.execute import execute
from fedrepro.runs.index import Index
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Run]]:
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    fake_tasks.register()
    yield sweep(task="check", paper="p", method="quick", seed=range(3))
    fake_tasks.forget()


def test_once_until_a_record_is_read(runs: list[Run], tmp_path: Path) -> None:
    """Two stores do not share; a record that another process wrote is seen after the next look, a lost file too."""
    calls = []

    @derived.of_store
    def keys(store: Store) -> set[str]:
        calls.append(store)
        return {record["key"] for record in store}

    store, other = Store(tmp_path / "s"), Store(tmp_path / "s")
    assert keys(store) == keys(store) == keys(other) == set() and len(calls) == 2
    execute(runs[:1], store=other, file="a", workers=1, progress=False, quiet=True)
    assert keys(other) == {runs[0].key}
    assert keys(store) == set()
    store.refresh()
    assert keys(store) == {runs[0].key}
    before = len(calls)
    store.refresh()
    assert keys(store) == {runs[0].key} and len(calls) == before
    for path in store.folder.glob("*.jsonl"):
        path.unlink()
    store.refresh()
    assert keys(store) == set()


def test_an_index_and_a_finding(runs: list[Run], tmp_path: Path) -> None:
    """A finding counts at once, in store and index; times are means of results only."""
    store = Store(tmp_path / "s")
    execute(runs, store=store, file="a", workers=1, progress=False, quiet=True)
    index = Index(store.folder)
    assert derived.findings(store) == derived.findings(index) == []
    seconds = [record["seconds"] for record in store]
    assert derived.means(store)[()] == pytest.approx(sum(seconds) / 3)
    verification.verify(store, 1, workers=1, progress=False)
    index.refresh()
    assert [record["key"] for record in derived.findings(store)] == [each["key"] for each in derived.findings(index)]
    assert len(derived.findings(store)) == 1
    assert derived.means(store)[()] == pytest.approx(sum(seconds) / 3)
    assert derived.levels(("check", "quick", "none")) == (("check", "quick", "none"), ("check", "quick"), ())
