"""A copied or unfinished paper is told, and what is made of an own graph replaces nothing of the suite."""

from __future__ import annotations

import pytest

from fedrepro.errors import ArgumentError
from fedrepro.reporting import budget, exhibits, notebook

KEYS = ("label", "kind", "notebook", "title")


def test_an_id_of_two_papers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ID that two papers list, as after a folder was copied, is an error that names the ID and a paper."""
    monkeypatch.setattr(exhibits, "listed", lambda paper: [{"id": "FR-T1", **dict.fromkeys(KEYS, "a")}])
    with pytest.raises(ArgumentError, match=r"An exhibit must be of one paper\. FR-T1 is of fedgat and of "):
        exhibits.registered.__wrapped__()


def test_an_exhibit_without_a_grid_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhibits.paper_module("feras"), "GRIDS", {"FR-T2": None})
    with pytest.raises(ArgumentError, match=r"exhibits.csv of feras lists, in GRIDS.*Got 'FR-T1'"):
        exhibits.Exhibit("FR-T1", "feras", "", "", "", "").runs("paper")


def test_an_own_graph_has_its_own_copies(capsys: pytest.CaptureFixture[str]) -> None:
    """Its executed copy and its figures are below build/mine; a profile or seeds alone change nothing of that."""
    (source,) = notebook.select(["engine/2-your-graph"])
    assert not notebook.is_own({"profile": "paper", "seeds": 2, "nodes": "", "graph": ""})
    own = notebook.is_own({"nodes": "n.csv", "edges": "e.csv"})
    assert own and notebook.executed_copy(source, "quick", own) != notebook.executed_copy(source, "quick")
    assert notebook.executed_copy(source, "smoke", own).is_relative_to(notebook.built("smoke"))
    budget.told([notebook.Outcome(source.name, 1.0)], {"graph": "g.npz", "profile": "quick"})
    said = capsys.readouterr().out
    assert "mine/notebooks" in said and "figures/engine" not in said
