"""Raw files in their publishers' formats, written by the test, and the real ones where they are at hand."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from raw_files import REAL, arxiv, dense, graphsaint, needs_real, no_network, ratings, relinked
from torch_geometric.data import Data

from fedrepro.data import copies, datasets, formats, sources
from fedrepro.data.statistics import summarize
from fedrepro.errors import DataError

# --- original formats ---------------------------------------------------------------------------------------


def test_amazon_ratings_format(home: Path) -> None:
    """The heterophilous layout gives both directions, ten public splits, and a hash recorded at first use."""
    file = home / "data/raw/amazon_ratings/raw/amazon_ratings.npz"
    file.parent.mkdir(parents=True)
    content = ratings(file, np.random.default_rng(0))
    data = datasets.load("Amazon Ratings")
    pairs = {(int(a), int(b)) for a, b in content["edges"]}
    assert [tuple(edge) for edge in data.edge_index.t().tolist()] == sorted(pairs | {(b, a) for a, b in pairs})
    assert np.array_equal(data.x.numpy(), content["node_features"]) and data.num_classes == 4
    for column in (0, 13):
        part = datasets.split(data, "public", column)
        assert np.array_equal(part.val_mask.numpy(), content["val_masks"][column % 10])
    recorded = (home / "data/raw/amazon_ratings/SHA256SUMS").read_text()
    assert recorded == f"{hashlib.sha256(file.read_bytes()).hexdigest()}  raw/amazon_ratings.npz\n"


def test_file_changed_after_first_use(home: Path) -> None:
    """A file without a published checksum may not change between two uses."""
    file = home / "data/raw/amazon_ratings/raw/amazon_ratings.npz"
    file.parent.mkdir(parents=True)
    ratings(file, np.random.default_rng(0))
    datasets.load("Amazon Ratings")
    ratings(file, np.random.default_rng(1))
    with pytest.raises(DataError, match=r"wrong checksum: expected sha256 .* recorded in .*SHA256SUMS, found"):
        datasets.load("Amazon Ratings")


def test_pickles_are_refused(home: Path) -> None:
    """An npz or npy with pickled objects is not read where no checksum is known."""
    file = home / "data/raw/amazon_ratings/raw/amazon_ratings.npz"
    file.parent.mkdir(parents=True)
    np.savez(file, node_features=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match=r"Amazon Ratings.*cannot be read.*allow_pickle"):
        datasets.load("Amazon Ratings")


def check_arxiv(data: Data) -> None:
    assert data.edge_index.tolist() == [[0, 3, 4], [1, 2, 0]]
    assert data.x.tolist() == [[i + 0.5, -i, 0.25] for i in range(5)]
    assert data.y.tolist() == [3, 0, 1, 2, 0] and data.num_classes == 4
    part = datasets.split(data, "public")
    found = [part[f"{each}_mask"].nonzero().flatten().tolist() for each in ("train", "val", "test")]
    assert found == [[0, 4], [2], [1, 3]]


def test_ogb_format(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compressed CSV files are read directly, directed as listed; ogb is not imported and nothing is asked."""
    monkeypatch.setitem(__import__("sys").modules, "ogb", None)
    monkeypatch.setattr("builtins.input", no_network)
    monkeypatch.setattr("torch.load", no_network)
    arxiv(home / "data/raw/ogbn_arxiv")
    check_arxiv(datasets.load("ogbn-arxiv"))


def test_ogb_zip(home: Path, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The zip is not fetched by load; by fetch it is, only the needed members are taken, and it is removed."""
    address, folder = server
    arxiv(folder / "arxiv")
    with zipfile.ZipFile(folder / "arxiv.zip", "w") as archive:
        for file in (folder / "arxiv").rglob("*.gz"):
            archive.write(file, file.relative_to(folder))
        archive.writestr("../outside.txt", "escaped")
    relinked(monkeypatch, "ogbn-arxiv", urls=(f"{address}/arxiv.zip",))
    with pytest.raises(DataError, match=r"81 MB"):
        datasets.load("ogbn-arxiv")
    datasets.fetch("ogbn-arxiv")
    check_arxiv(datasets.load("ogbn-arxiv"))
    there = {file.name for file in (home / "data/raw").rglob("*") if file.is_file()}
    assert there == {Path(file).name for file in sources.SOURCES["ogbn-arxiv"].files} | {"SHA256SUMS"}


@pytest.mark.parametrize("name", ["Flickr", "Reddit"])
def test_graphsaint_format(name: str, home: Path) -> None:
    """Single labels give int64 classes; adj_train is the sub-graph of the training nodes."""
    folder = home / "data/raw" / name / "raw"
    adjacency = graphsaint(folder, [2, 0, 1, 1, 0])
    data = datasets.split(datasets.load(name), "public")
    assert data.y.tolist() == [2, 0, 1, 1, 0] and data.y.dtype == torch.int64 and data.num_classes == 3
    assert sorted(zip(*adjacency.nonzero(), strict=True)) == [tuple(edge) for edge in data.edge_index.t().tolist()]
    assert data.x.tolist() == np.arange(15.0).reshape(5, 3).tolist() and data.x.dtype == torch.float32
    assert data.train_mask.tolist() == [True, True, False, False, True]
    inside = datasets.subgraph(data, data.train_mask).edge_index
    stored = sp.load_npz(folder / "adj_train.npz")[[0, 1, 4]][:, [0, 1, 4]].tocoo()
    assert sorted(zip(stored.row, stored.col, strict=True)) == [tuple(edge) for edge in inside.t().tolist()]


def test_multi_label_format(home: Path) -> None:
    """Lists of labels give float32 labels with one column each."""
    labels = [[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [0, 0, 1]]
    graphsaint(home / "data/raw/PPI/raw", labels)
    data = datasets.load("PPI")
    assert data.y.dtype == torch.float32 and data.y.tolist() == labels and data.num_classes == 3
    assert np.isnan(summarize(data)["homophily"])


def test_damaged_file(home: Path) -> None:
    """A file that is not in its format is an error that names the set and the folder."""
    graphsaint(home / "data/raw/PPI/raw", [0, 1, 0, 1, 0])
    (home / "data/raw/PPI/raw/role.json").write_text("{")
    with pytest.raises(DataError, match=r"PPI in .*cannot be read"):
        datasets.load("PPI")


# --- real graphs --------------------------------------------------------------------------------------------


@needs_real
@pytest.mark.parametrize(
    ("name", "expected"),
    [  # nodes, columns of edge_index, self-loops, features, classes, public split
        ("Cora", (2708, 10556, 0, 1433, 7, [140, 500, 1000])),
        ("CiteSeer", (3327, 9104, 0, 3703, 6, [120, 500, 1000])),
        ("PubMed", (19717, 88648, 0, 500, 3, [60, 500, 1000])),
        ("Chameleon", (2277, 36101, 50, 2325, 5, [1092, 729, 456])),
        ("Squirrel", (5201, 217073, 140, 2089, 5, [2496, 1664, 1041])),
        ("Photo", (7650, 238162, 0, 745, 8, [0, 0, 0])),
        ("Computers", (13752, 491722, 0, 767, 10, [0, 0, 0])),
        ("CS", (18333, 163788, 0, 6805, 15, [0, 0, 0])),
        ("Physics", (34493, 495924, 0, 8415, 5, [0, 0, 0])),
    ],
)
def test_real_counts(name: str, expected: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each real graph has the counts its publishers print, offline, and writes nothing next to the raw files."""
    monkeypatch.setattr("requests.get", no_network)
    before = sorted(Path(REAL or "").rglob("*"))
    data = datasets.load(name)
    counts = summarize(data)
    keys = ("nodes", "directed_edges", "self_loops", "features", "classes")
    split = [counts[part] for part in ("train", "val", "test")]
    assert (*(counts[key] for key in keys), split) == expected
    assert sorted(Path(REAL or "").rglob("*")) == before
    assert (data.x.layout == torch.sparse_csr) == (counts["density"] < 0.25) == (name not in ("Photo", "Computers"))
    assert data.name == name and data.x.dtype == torch.float32


@needs_real
def test_second_load_equals_the_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy in data/processed gives the same graph; a torn or empty copy is made again."""
    monkeypatch.setenv("FEDREPRO_DATA", REAL or "")
    first = datasets.load("Chameleon")
    (copy,) = (home / "data/processed").glob("*.npz")
    for left in (1000, 0, None):
        again = datasets.load("Chameleon")
        assert torch.equal(first.edge_index, again.edge_index) and torch.equal(first.public, again.public)
        assert np.array_equal(dense(first.x), dense(again.x)) and torch.equal(first.y, again.y)
        copy.write_bytes(copy.read_bytes()[:left])


@pytest.mark.parametrize("mended", ["formats.py", "PyG"])
def test_a_copy_does_not_outlive_its_reader(home: Path, monkeypatch: pytest.MonkeyPatch, mended: str) -> None:
    """After the code that reads graphs has changed, a graph is read from its raw files and not from the old copy."""
    file = home / "data/raw/amazon_ratings/raw/amazon_ratings.npz"
    file.parent.mkdir(parents=True)
    content = ratings(file, np.random.default_rng(0))
    read, hashed = formats.READERS["heterophilous"], copies.sha256

    def mend(folder: Path, files: tuple[str, ...]) -> Data:
        data = read(folder, files)
        return Data(x=2 * data.x, y=data.y, edge_index=data.edge_index)

    datasets.load("Amazon Ratings")
    monkeypatch.setitem(formats.READERS, "heterophilous", mend)
    assert np.array_equal(datasets.load("Amazon Ratings").x, content["node_features"])
    if mended == "PyG":
        monkeypatch.setattr(sources, "version", lambda package: f"another {package}")
    else:
        monkeypatch.setattr(copies, "sha256", lambda path: "another" if path.name == mended else hashed(path))
    assert np.array_equal(datasets.load("Amazon Ratings").x, 2 * content["node_features"])


@needs_real
def test_largest_component_of_cora() -> None:
    """The largest component of Cora is that of FedSheafHN's Table 7: 2,485 nodes and 10,138 directed edges."""
    part = datasets.prepare(datasets.load("Cora"), "largest-component")
    assert (part.num_nodes, part.num_edges, part.y.shape, part.public.shape) == (2485, 10138, (2485,), (2485, 1, 3))


def test_processed_copy_has_no_pickle(home: Path) -> None:
    """The copy in data/processed holds arrays only."""
    graphsaint(home / "data/raw/PPI/raw", [0, 1, 0, 1, 0])
    datasets.load("PPI")
    (copy,) = (home / "data/processed").glob("*.npz")
    with np.load(io.BytesIO(copy.read_bytes()), allow_pickle=False) as arrays:
        assert set(arrays) == {"x", "y", "edge_index", "classes", "public"}
