"""Graphs of which a part is missing: names, checksums, and how they differ from whole graphs and stand-ins."""

from __future__ import annotations

import gzip
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from raw_files import arxiv, needs_real, no_network, ratings

from fedrepro.data import catalogue, datasets, sources
from fedrepro.data.statistics import undirected_edges
from fedrepro.errors import ArgumentError, DamagedError, DataError
from fedrepro.runs import provenance
from fedrepro.runs.execute import execute
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

RATINGS, ARXIV = "Amazon Ratings~incomplete", "ogbn-arxiv~incomplete"


def sealed(monkeypatch: pytest.MonkeyPatch, name: str, folder: Path) -> None:
    """Take the tiny files of a folder for those of a graph."""
    source = sources.INCOMPLETE[name]
    sums = tuple(sha256((folder / file).read_bytes()).hexdigest() for file in source.files)
    monkeypatch.setitem(sources.INCOMPLETE, name, replace(source, sha256=sums))


@pytest.fixture
def tiny_ratings(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Path]:
    file = home / "data/raw/partial/amazon_ratings/raw/amazon_ratings.npz"
    file.parent.mkdir(parents=True)
    content = ratings(file, np.random.default_rng(0))
    sealed(monkeypatch, RATINGS, file.parents[1])
    return content, file


@pytest.fixture
def tiny_arxiv(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = home / "data/raw/ogbn_arxiv"
    arxiv(folder)
    (folder / "raw/node-feat.csv.gz").unlink()
    sealed(monkeypatch, ARXIV, folder)
    return folder


def test_it_is_read_as_the_whole_graph_would_be(tiny_ratings: tuple[dict[str, Any], Path]) -> None:
    """All arrays of the file arrive, edges in both directions, under the graph's own name."""
    content, _ = tiny_ratings
    data = datasets.load(RATINGS)
    assert data.name == RATINGS and torch.equal(data.x, torch.from_numpy(content["node_features"]))
    both = np.concatenate([content["edges"], content["edges"][:, ::-1]])
    assert sorted(map(tuple, data.edge_index.T.tolist())) == sorted(map(tuple, both.tolist()))
    assert data.public.shape == (12, 10, 3)
    assert not (Path(tiny_ratings[1].parents[4]) / "processed").exists()  # it is never taken for the whole graph


def test_it_has_no_features_where_they_are_missing(tiny_arxiv: Path) -> None:
    """Edges keep their direction, a repeated one is one, and labels and the split are those of the files."""
    data = datasets.load(ARXIV)
    assert data.x.shape == (5, 0) and data.y.tolist() == [3, 0, 1, 2, 0]
    assert sorted(map(tuple, data.edge_index.T.tolist())) == [(0, 1), (3, 2), (4, 0)]
    assert [mask.nonzero().flatten().tolist() for mask in data.public[:, 0].unbind(1)] == [[0, 4], [2], [1, 3]]


def test_nothing_is_trained_without_features(tiny_arxiv: Path, tmp_path: Path) -> None:
    """A training run fails and says why."""
    run = Run("train", "fedgat", "FedAvg", dataset=ARXIV, split="public", partition="random", clients=2)
    store = Store(tmp_path / "store")
    run = run.replace(options={"rounds": 1, "hidden": 4, "lr": 0.1})
    with pytest.warns(UserWarning) as told:
        execute([run], store=store, progress=False)
    assert any("features must be at least 1. Got 0" in str(one.message) for one in told)
    assert run.key not in store


def test_another_file_is_refused(tiny_ratings: tuple[dict[str, Any], Path], tiny_arxiv: Path) -> None:
    """A file with another checksum is named; nothing is read from it."""
    _, file = tiny_ratings
    ratings(file, np.random.default_rng(1))
    with pytest.raises(
        DamagedError, match=r"amazon_ratings\.npz has the wrong checksum.*whole graph, 'Amazon Ratings'"
    ):
        datasets.load(RATINGS)
    labels = tiny_arxiv / "raw/node-label.csv.gz"
    labels.write_bytes(gzip.compress(b"0\n1\n"))
    with pytest.raises(DamagedError, match=r"node-label\.csv\.gz has the wrong checksum"):
        datasets.load(ARXIV)


def test_an_unreadable_file_is_damaged(tiny_arxiv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with the right checksum that holds something else ends as one error, too."""
    (tiny_arxiv / "raw/node-label.csv.gz").write_bytes(gzip.compress(b"0\nnone\n"))
    sealed(monkeypatch, ARXIV, tiny_arxiv)
    with pytest.raises(DamagedError, match="cannot be read"):
        datasets.load(ARXIV)


def test_it_is_never_downloaded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error says which files are missing and where they go; the graph has no separate stand-in."""
    monkeypatch.setattr(sources.pooch, "create", no_network)
    with pytest.raises(DataError, match=r"Put raw/amazon_ratings\.npz into .* by hand.*'Amazon Ratings~standin'"):
        datasets.load(RATINGS)
    with pytest.raises(ArgumentError, match="'Amazon Ratings~incomplete~standin'"):
        datasets.load(f"{RATINGS}~standin")
    with pytest.raises(ArgumentError, match="Did you mean"):
        datasets.load("Cora~incomplete")


def test_it_is_no_whole_graph(tiny_ratings: tuple[dict[str, Any], Path]) -> None:
    """It is listed after the whole graphs, once, with what it lacks; the whole graph is still not here."""
    datasets.load(RATINGS)
    assert not any("~" in name for name in datasets.NAMES)
    table = datasets.describe().set_index("name")
    assert list(table.index[14:16]) == [RATINGS, ARXIV] and table.index.is_unique
    assert table.loc[RATINGS, "here"] and not table.loc["Amazon Ratings", "here"]
    assert "1146 of the 93050 edges" in table.loc[RATINGS, "lacks"] and not table.loc["Cora", "lacks"]
    with pytest.raises(ArgumentError, match="name must be"):
        datasets.register("Cora~standin", lambda: None)  # type: ignore[arg-type, return-value]


def test_records_name_its_files(tiny_ratings: tuple[dict[str, Any], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum of a record is that of the files, and changes with them."""
    first = provenance.data(RATINGS)
    assert len(first) == 16 and first == sha256(sources.INCOMPLETE[RATINGS].sha256[0].encode()).hexdigest()[:16]
    ratings(tiny_ratings[1], np.random.default_rng(1))
    sealed(monkeypatch, RATINGS, tiny_ratings[1].parents[1])
    assert provenance.data(RATINGS) != first


@needs_real
@pytest.mark.parametrize("name", sources.INCOMPLETE)
def test_real_files(name: str) -> None:
    """The real files have the checksums and sizes that are listed."""
    if sources.locate(sources.INCOMPLETE[name]) is None:
        pytest.skip(f"the real files of {name} are not read: they are not in FEDREPRO_DATA")
    data = datasets.load(name)
    listed = next(row for row in catalogue.rows() if row["name"] == name)
    assert data.num_nodes == listed["nodes"] and data.edge_index.shape[1] == listed["directed_edges"]
    assert data.x.shape[1] == listed["features"] and data.num_classes == listed["classes"]
    low, _ = undirected_edges(data)
    assert len(low) == listed["undirected_edges"]
