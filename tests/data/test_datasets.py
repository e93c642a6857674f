"""Loading, preparing, splitting and describing graphs; every raw file is written by the test, none is fetched."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import os
import pickle
import socket
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from fedrepro import paths
from fedrepro.data import datasets, formats, sources
from fedrepro.data.formats import csr_matrix, csr_tensor, features_of
from fedrepro.data.statistics import summarize
from fedrepro.engine.federation import Federation
from fedrepro.engine.scores import score
from fedrepro.errors import ArgumentError, DataError

REAL = os.environ.get("FEDREPRO_DATA")
needs_real = pytest.mark.skipif(REAL is None, reason="the real files are not read: FEDREPRO_DATA is unset")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty checkout without raw graphs."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA", raising=False)
    return tmp_path


@pytest.fixture
def graph() -> Data:
    """Six nodes, a repeated edge, a self-loop, one edge in both directions, two components; column 3 is constant."""
    x = torch.tensor([[1, 0, 2, 1], [0, 0, 0, 1], [3, 1, 0, 1], [0, 2, 0, 1], [0, 0, 0, 1], [5, 0, 0, 1]]).float()
    edges = torch.tensor([[1, 0, 0, 2, 3, 4, 0], [0, 1, 2, 2, 2, 5, 2]])
    masks = torch.eye(6, dtype=torch.bool)
    data = Data(x=x, y=torch.tensor([0, 1, 0, 0, 1, 1]), edge_index=edges)
    data.train_mask, data.val_mask, data.test_mask = masks[0] | masks[1] | masks[2], masks[3], masks[4] | masks[5]
    return data


@pytest.fixture
def loaded(graph: Data, monkeypatch: pytest.MonkeyPatch) -> Data:
    monkeypatch.setattr(datasets, "_own", {})
    datasets.register("tiny", lambda: graph)
    return datasets.load("tiny")


def dense(x: torch.Tensor) -> np.ndarray[Any, Any]:
    return x.to_dense().numpy()


def accuracy(logits: torch.Tensor, true: torch.Tensor) -> float:
    """The engine's pooled test accuracy, every node being a test node of one client."""
    nodes = len(true)
    data = Data(x=torch.ones(nodes, 1), y=true, edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=nodes)
    data.num_classes = logits.shape[1]
    data.train_mask = data.val_mask = torch.zeros(nodes, dtype=torch.bool)
    data.test_mask = ~data.train_mask
    return float(score(Federation.of(data, [torch.arange(nodes)]), logits)["test"][0])


def no_network(*_: object, **__: object) -> None:
    raise AssertionError("the network was used")


# --- names and errors ---------------------------------------------------------------------------------------


def test_unknown_name() -> None:
    """An unknown name is an error that lists what is allowed and suggests the nearest."""
    with pytest.raises(ArgumentError, match=r"'Citeseer'.*Did you mean 'CiteSeer'"):
        datasets.load("Citeseer")
    with pytest.raises(ArgumentError, match=r"'ogbn-arxiv'"):
        datasets.load("arxiv")


def test_missing_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one file of a large set missing the error names that file and where to put it, and nothing is fetched."""
    monkeypatch.setattr("requests.get", no_network)
    folder = home / "data/raw/Flickr/raw"
    folder.mkdir(parents=True)
    for file in ("adj_full.npz", "feats.npy", "role.json"):
        (folder / file).touch()
    with pytest.raises(DataError) as error:
        datasets.load("Flickr")
    assert "class_map.json" in str(error.value) and "role.json" not in str(error.value)
    assert str(folder.parent) in str(error.value) and "--fetch 'Flickr'" in str(error.value)


def test_by_hand_only(home: Path) -> None:
    """A set without a link says so even when asked to be fetched."""
    with pytest.raises(DataError, match=r"PPI is not here: 4 of 4 files.*by hand"):
        datasets.fetch("PPI")


def test_wrong_checksum_before_unpickling(home: Path) -> None:
    """A file with a known checksum that differs is named with both sums, and nothing in it is executed."""
    folder = home / "data/raw/Cora/raw"
    folder.mkdir(parents=True)
    proof = home / "executed"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (proof,))

    for file in sources.SOURCES["Cora"].files:
        (home / "data/raw/Cora" / file).write_bytes(pickle.dumps(Evil()))
    with pytest.raises(
        DataError, match=r"ind.cora.x has the wrong checksum: expected sha256 23cfa55d.* found"
    ) as error:
        datasets.load("Cora")
    assert hashlib.sha256((folder / "ind.cora.x").read_bytes()).hexdigest() in str(error.value)
    assert not proof.exists()


def test_every_file_for_pyg_has_a_checksum() -> None:
    """No file is given to a reader that may unpickle unless its checksum is known."""
    known = sources._published()
    for source in sources.SOURCES.values():
        if source.format not in formats.READERS:
            assert all(f"{source.folder}/{file}" in known for file in source.files), source.folder


# --- downloading --------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A web server on this machine: its address and the folder it serves."""
    folder = tmp_path_factory.mktemp("served")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", folder
        server.shutdown()
        thread.join()


def ratings(file: Any, rng: np.random.Generator) -> dict[str, Any]:
    """A tiny graph in the layout of the heterophilous graphs, written to `file`."""
    parts = rng.permuted(np.tile(np.arange(12) % 3, (10, 1)), axis=1)
    content = {
        "node_features": rng.standard_normal((12, 5)).astype(np.float32),
        "node_labels": np.arange(12) % 4,
        "edges": np.array([[0, 1], [1, 2], [5, 3], [11, 0]]),
        **{f"{part}_masks": parts == i for i, part in enumerate(("train", "val", "test"))},
    }
    np.savez(file, **content)
    return content


def relinked(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> None:
    monkeypatch.setitem(sources.SOURCES, name, replace(sources.SOURCES[name], **changes))


def test_small_set_is_downloaded_at_first_use(
    home: Path, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set of at most 50 MB is fetched into data/raw, loaded, and read from there the next time."""
    address, folder = server
    ratings(folder / "amazon_ratings.npz", np.random.default_rng(0))
    relinked(monkeypatch, "Amazon Ratings", urls=(f"{address}/amazon_ratings.npz",))
    assert datasets.load("Amazon Ratings").num_nodes == 12
    monkeypatch.setattr("requests.get", no_network)
    assert datasets.load("Amazon Ratings").num_nodes == 12
    assert [file.name for file in (home / "data/raw/amazon_ratings/raw").iterdir()] == ["amazon_ratings.npz"]


def test_download_with_wrong_checksum_leaves_nothing(
    home: Path, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What arrives with another checksum than the known one is not kept."""
    address, folder = server
    (folder / "photo.npz").write_bytes(b"not the graph")
    relinked(monkeypatch, "Photo", urls=(f"{address}/photo.npz",))
    with pytest.raises(DataError, match=r"amazon_electronics_photo.npz.* wrong checksum"):
        datasets.load("Photo")
    assert list((home / "data/raw/Photo/raw").iterdir()) == []


def test_damaged_file_is_replaced_on_request(
    home: Path, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fetch` downloads a file again if its checksum is wrong, and no file that is already here and right."""
    address, folder = server
    files = {"raw/a": b"first", "raw/b": b"second"}
    for file, content in files.items():
        (folder / Path(file).name).write_bytes(content)
    known = {f"Photo/{file}": hashlib.sha256(content).hexdigest() for file, content in files.items()}
    monkeypatch.setattr(sources, "_published", lambda: known)
    relinked(monkeypatch, "Photo", files=tuple(files), urls=(f"{address}/a", f"{address}/b"))
    here = home / "data/raw/Photo/raw"
    here.mkdir(parents=True)
    (here / "a").write_bytes(b"torn")
    (here / "b").write_bytes(b"second")
    (folder / "b").unlink()
    assert sources.fetch("Photo") == here.parent
    assert {file.name: file.read_bytes() for file in here.iterdir()} == {"a": b"first", "b": b"second"}


def test_download_larger_than_announced(home: Path, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """An unasked download stops at the limit."""
    address, folder = server
    (folder / "big.npz").write_bytes(bytes(2_000_000))
    monkeypatch.setattr(sources, "ASK_ABOVE", 1)
    relinked(monkeypatch, "Amazon Ratings", urls=(f"{address}/big.npz",), megabytes=0.5)
    with pytest.raises(DataError, match=r"larger than 1 MB"):
        datasets.load("Amazon Ratings")


def test_unreachable_host(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that does not answer is an error with the address, the reason and where to put the file."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    relinked(monkeypatch, "Amazon Ratings", urls=(f"http://127.0.0.1:{port}/amazon_ratings.npz",))
    with pytest.raises(DataError, match=rf"{port}.*could not be downloaded.*refused.*put the file at"):
        datasets.load("Amazon Ratings")


def test_a_folder_that_cannot_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download that has no place to go is an error of the data, with the address and the reason."""
    (home / "data").touch()
    monkeypatch.setattr("requests.get", no_network)
    relinked(monkeypatch, "Amazon Ratings", urls=("http://host/amazon_ratings.npz",))
    with pytest.raises(DataError, match=r"^http://host/\S+ could not be downloaded: .*Not a directory"):
        datasets.load("Amazon Ratings")


def test_silent_host(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that accepts and then says nothing is given up after the time limit."""
    monkeypatch.setattr(sources, "TIMEOUT_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/x.npz"
        relinked(monkeypatch, "Amazon Ratings", urls=(address,))
        with pytest.raises(DataError, match=r"timed out"):
            datasets.load("Amazon Ratings")
    assert sources.TIMEOUT_SECONDS < 5 <= 5.0


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


def arxiv(folder: Path) -> None:
    """A tiny graph in the layout of ogb's zip: five nodes, edges listed one way, split by time."""
    tables = {
        "raw/edge": "0,1\n3,2\n4,0\n0,1\n",
        "raw/node-feat": "".join(f"{i}.5,-{i},0.25\n" for i in range(5)),
        "raw/node-label": "3\n0\n1\n2\n0\n",
        "raw/node_year": "2013\n" * 5,
        "split/time/train": "0\n4\n",
        "split/time/valid": "2\n",
        "split/time/test": "1\n3\n",
    }
    for name, text in tables.items():
        file = folder / f"{name}.csv.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(text.encode()))


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


def graphsaint(folder: Path, labels: list[Any]) -> sp.csr_matrix:
    """A tiny graph in GraphSAINT's format, all five files."""
    folder.mkdir(parents=True)
    pairs = np.array([[0, 1], [1, 2], [3, 4], [0, 4]])
    row, col = np.concatenate([pairs, pairs[:, ::-1]]).T
    adjacency = sp.csr_matrix((np.ones(8, bool), (row, col)), (5, 5))
    sp.save_npz(folder / "adj_full.npz", adjacency)
    training = sp.diags_array(np.array([1.0, 1.0, 0.0, 0.0, 1.0]))
    sp.save_npz(folder / "adj_train.npz", sp.csr_matrix(training @ adjacency @ training))
    np.save(folder / "feats.npy", np.arange(15.0).reshape(5, 3))
    (folder / "class_map.json").write_text(json.dumps({str(i): labels[i] for i in (4, 2, 0, 1, 3)}))
    (folder / "role.json").write_text(json.dumps({"tr": [4, 0, 1], "va": [2], "te": [3]}))
    return adjacency


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
    """Each real graph has the counts its publishers print, offline, and writes nothing beside the raw files."""
    monkeypatch.setattr("requests.get", no_network)
    before = sorted(Path(REAL or "").rglob("*"))
    data = datasets.load(name)
    found = summarize(data)
    keys = ("nodes", "directed_edges", "self_loops", "features", "classes")
    split = [found[part] for part in ("train", "val", "test")]
    assert (*(found[key] for key in keys), split) == expected
    assert sorted(Path(REAL or "").rglob("*")) == before
    assert (data.x.layout == torch.sparse_csr) == (found["density"] < 0.25) == (name not in ("Photo", "Computers"))
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


@needs_real
def test_largest_component_of_cora() -> None:
    """The largest component of Cora is that of FedSheafHN's Table 7: 2,485 nodes and 10,138 directed edges."""
    part = datasets.prepare(datasets.load("Cora"), "largest-component")
    assert (part.num_nodes, part.num_edges, part.y.shape, part.public.shape) == (2485, 10138, (2485,), (2485, 1, 3))


# --- own graphs ---------------------------------------------------------------------------------------------


def test_registered_graph(graph: Data, loaded: Data) -> None:
    """A registered graph is brought into standard form and its masks become the public split."""
    assert loaded.edge_index.tolist() == [[0, 0, 1, 2, 3, 4], [1, 2, 0, 2, 2, 5]]
    assert (loaded.name, loaded.num_classes) == ("tiny", 2)
    assert torch.equal(datasets.split(loaded, "public").test_mask, graph.test_mask)
    assert "train_mask" not in loaded


def test_registered_loader_gets_the_seed(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader with a parameter is called with the seed."""
    monkeypatch.setattr(datasets, "_own", {})
    datasets.register("seeded", lambda seed: Data(x=graph.x * seed, y=graph.y, edge_index=graph.edge_index))
    assert torch.equal(datasets.load("seeded", 3).x, graph.x * 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge_index": torch.tensor([[0], [6]])}, "nodes from 0 to 5"),
        ({"edge_index": torch.tensor([[0], [-1]])}, "nodes from 0 to 5"),
        ({"edge_index": torch.rand(2, 3)}, "integers"),
        ({"y": torch.tensor([0, 1])}, r"one row a node \(6\), got \(2,\)"),
        ({"y": torch.tensor([0, 1, 2, 3, 4, -1])}, "from 0 upwards"),
        ({"x": None}, "x must be a tensor"),
        ({"x": torch.full((6, 2), float("nan"))}, "x must be finite"),
        ({"val_mask": torch.ones(6, dtype=torch.bool)}, "no node in common"),
        ({"val_mask": None}, "must all be given, or none; got 2 of 3"),
        ({"edge_weight": torch.ones(6)}, "edge_weight must be left out"),
    ],
)
def test_registered_graph_is_checked(
    change: dict[str, Any], message: str, graph: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph that is none is refused with what is wrong about it."""
    monkeypatch.setattr(datasets, "_own", {})
    for key, value in change.items():
        graph[key] = value
    datasets.register("broken", lambda: graph)
    with pytest.raises(DataError, match=rf"'broken'.*{message}"):
        datasets.load("broken")


def test_register_refuses_real_names() -> None:
    """The name of a real graph or of a stand-in cannot be taken."""
    for name in ("Cora", "Cora~standin"):
        with pytest.raises(ArgumentError, match=r"no real data set or stand-in"):
            datasets.register(name, Data)


# --- prepare ------------------------------------------------------------------------------------------------


def test_graph_steps(loaded: Data) -> None:
    """Edges are mirrored, self-loops removed, and the largest component relabelled; the given graph is untouched."""
    before = loaded.edge_index.clone()
    both = datasets.prepare(loaded, "undirected+no-self-loops").edge_index
    assert both.tolist() == [[0, 0, 1, 2, 2, 3, 4, 5], [1, 2, 0, 0, 3, 2, 5, 4]]
    part = datasets.prepare(loaded, "largest-component")
    assert part.edge_index.tolist() == [[0, 0, 1, 2, 3], [1, 2, 0, 2, 2]] and part.y.tolist() == [0, 1, 0, 0]
    assert torch.equal(part.public, loaded.public[:4]) and torch.equal(part.x, loaded.x[:4])
    assert torch.equal(loaded.edge_index, before) and loaded.num_nodes == 6


@pytest.mark.parametrize("sparse", [False, True])
def test_feature_steps(sparse: bool, loaded: Data) -> None:
    """Every normalization equals NumPy; the first two keep sparse features sparse, zero rows stay zero."""
    x = loaded.x.numpy().astype(np.float64)
    x[:, 3] = 0
    loaded.x = csr_tensor(sp.csr_matrix(x.astype(np.float32))) if sparse else torch.from_numpy(x).float()
    loaded = datasets.split(loaded, "public")
    centred = x - x.mean(1, keepdims=True)

    def safe(a: Any, b: Any) -> Any:
        return np.divide(a, b, out=np.zeros_like(a), where=b > 0)

    train = x[:3]
    expected = {
        "row-sum": safe(x, x.sum(1, keepdims=True) * np.ones_like(x)),
        "unit-norm": safe(x, np.linalg.norm(x, axis=1, keepdims=True) * np.ones_like(x)),
        "centred-norm": safe(centred, np.linalg.norm(centred, axis=1, keepdims=True) * np.ones_like(x)),
        "standardized": (x - train.mean(0)) / np.where(train.std(0) > 0, train.std(0), 1),
        "layer-norm": centred / np.sqrt(x.var(1, keepdims=True) + 1e-5),
    }
    for step, wanted in expected.items():
        found = datasets.prepare(loaded, step).x
        assert np.allclose(dense(found), wanted, atol=1e-6), step
        assert (found.layout == torch.sparse_csr) == (sparse and step in ("row-sum", "unit-norm"))


def test_sparse_component_stays_sparse(loaded: Data) -> None:
    """Taking a component keeps sparse features sparse and their rows."""
    wanted = loaded.x[:4].numpy()
    loaded.x = csr_tensor(sp.csr_matrix(loaded.x.numpy()))
    part = datasets.prepare(loaded, "largest-component")
    assert part.x.layout == torch.sparse_csr and np.array_equal(dense(part.x), wanted)


def test_prepare_errors(loaded: Data) -> None:
    """An unknown step, negative features under row-sum and standardizing without a split are named."""
    with pytest.raises(ArgumentError, match=r"prepare step must be one of .*Did you mean 'row-sum'"):
        datasets.prepare(loaded, "undirected+rowsum")
    with pytest.raises(ArgumentError, match=r"after split"):
        datasets.prepare(loaded, "standardized")
    loaded.x = -loaded.x
    with pytest.raises(ArgumentError, match=r"without negative entries. Got -5.0"):
        datasets.prepare(loaded, "row-sum")


def test_assemble_standardizes_after_the_split(loaded: Data) -> None:
    """In one call, steps before `standardized` come before the split and the rest after."""
    data = datasets.assemble("tiny", "largest-component+standardized", "public")
    train = loaded.x[:3].numpy().astype(np.float64)
    wanted = (loaded.x[:4].numpy() - train.mean(0)) / np.where(train.std(0) > 0, train.std(0), 1)
    assert np.allclose(data.x.numpy(), wanted, atol=1e-6)
    assert "train_mask" not in datasets.assemble("tiny", "undirected")


def test_sparse_below_a_quarter() -> None:
    """Features with less than a quarter of non-zero entries are sparse, others dense, values the same."""
    for filled, layout in ((24, torch.sparse_csr), (25, torch.strided)):
        x = np.zeros(100, np.float32)
        x[np.random.default_rng(0).permutation(100)[:filled]] = 2
        kept = features_of(torch.from_numpy(x.reshape(10, 10)))
        assert kept.layout == layout and np.array_equal(dense(kept), x.reshape(10, 10))
        if layout == torch.sparse_csr:
            assert np.array_equal(csr_matrix(kept).toarray(), x.reshape(10, 10))


# --- split --------------------------------------------------------------------------------------------------


def test_percentages(loaded: Data) -> None:
    """Percentages cover all nodes once, are a function of the seed, and leave the global generators alone."""
    big = Data(x=torch.zeros(1003, 1), y=torch.zeros(1003, dtype=torch.long), edge_index=loaded.edge_index)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    one, two, other = (datasets.split(big, "10/10/80", seed) for seed in (4, 4, 5))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)
    counts = [int(one[f"{part}_mask"].sum()) for part in ("train", "val", "test")]
    assert counts == [100, 101, 802]
    assert torch.equal(one.train_mask.int() + one.val_mask.int() + one.test_mask.int(), torch.ones(1003).int())
    assert torch.equal(one.train_mask, two.train_mask) and not torch.equal(one.train_mask, other.train_mask)


def test_percentages_are_uniform(loaded: Data) -> None:
    """Over seeds every node is a training node about equally often: chi-square below its 99.9% quantile."""
    small = Data(x=torch.zeros(20, 1), y=torch.zeros(20, dtype=torch.long), edge_index=loaded.edge_index)
    hits = sum(datasets.split(small, "20/20/60", seed).train_mask.double() for seed in range(500))
    # Each node is drawn with probability 0.2 in 500 splits; 19 degrees of freedom: 43.8.
    statistic = float(((hits - 100) ** 2 / (100 * 0.8)).sum()) * 19 / 20  # type: ignore[union-attr]
    assert statistic < 43.8


@pytest.mark.parametrize(
    "name", ["10/10/70", "50/50", "a/b/c", "0/10/90", "-10/20/90", "random", "", "1e999/1/1", "1/0/99"]
)
def test_split_errors(name: str, loaded: Data) -> None:
    """Percentages that are not three positive numbers of sum 100 are refused with what was given."""
    with pytest.raises(ArgumentError, match=r"split must be .*100"):
        datasets.split(loaded, name)


def test_empty_part_and_no_public_split(loaded: Data) -> None:
    """A part without nodes, a public split that does not exist and a negative seed are errors."""
    with pytest.raises(ArgumentError, match=r"at least one of the 6 nodes"):
        datasets.split(loaded, "10/10/80")
    del loaded.public
    with pytest.raises(ArgumentError, match=r"publishes none"):
        datasets.split(loaded, "public")
    with pytest.raises(ArgumentError, match=r"seed"):
        datasets.split(loaded, "40/30/30", -1)


# --- describing ---------------------------------------------------------------------------------------------


def test_statistics(loaded: Data) -> None:
    """Counts equal those made by hand."""
    found = summarize(loaded)
    wanted = {
        "nodes": 6, "directed_edges": 6, "undirected_edges": 4, "self_loops": 1, "features": 4, "classes": 2,
        "class_nodes": [3, 3], "homophily": 0.75, "degree_50": 1.0, "degree_90": 2.0, "degree_99": 2.0,
        "isolated": 0, "train": 3, "val": 1, "test": 2,
    }  # fmt: skip
    assert {key: found[key] for key in wanted} == wanted
    assert found["density"] == pytest.approx(12 / 24)


def test_describe(home: Path, loaded: Data) -> None:
    """The table lists all fourteen sets, what is here, and what a download would cost."""
    arxiv(home / "data/raw/ogbn_arxiv")
    table = datasets.describe().set_index("name")
    assert list(table.index[:14]) == list(datasets.NAMES) and table.index[-1] == "tiny"
    assert table.loc["ogbn-arxiv", "here"] and not table.loc["Reddit", "here"]
    assert table.loc["Reddit", "download"] == "on request" and table.loc["PPI", "download"] == "by hand"
    assert table.loc["Cora", "licence"] == "MIT (repository)" and table.loc["Cora", "undirected_edges"] == 5278


def test_official_evaluator() -> None:
    """Our accuracy is that of ogb's evaluator, and ogb does not load the module that asks for its newest version."""
    generator = torch.Generator().manual_seed(0)
    true, logits = torch.randint(40, (500,), generator=generator), torch.randn(500, 40, generator=generator)
    logits[torch.arange(0, 500, 3), true[::3]] += 9
    measured = accuracy(logits, true)
    assert 0.3 < measured < 0.5
    assert datasets.evaluator("ogbn-arxiv")(logits.argmax(1), true) == measured
    assert "outdated" not in sys.modules
    with pytest.raises(ArgumentError, match="'Cora'"):
        datasets.evaluator("Cora")


@needs_real
def test_official_evaluator_on_the_real_labels() -> None:
    """A guess of the most frequent class of ogbn-arxiv scores the same with us and with ogb's evaluator."""
    labels = Path(REAL or "") / "ogbn_arxiv/raw/node-label.csv.gz"
    if not labels.is_file():
        pytest.skip("the labels of ogbn-arxiv are not here")
    true = torch.from_numpy(np.loadtxt(labels, dtype=np.int64))
    logits = torch.zeros(len(true), 40)
    logits[:, int(torch.bincount(true).argmax())] = 1
    measured = accuracy(logits, true)
    assert datasets.evaluator("ogbn-arxiv")(logits.argmax(1), true) == measured == pytest.approx(0.1613, abs=1e-4)


def test_processed_copy_has_no_pickle(home: Path) -> None:
    """The copy in data/processed holds arrays only."""
    graphsaint(home / "data/raw/PPI/raw", [0, 1, 0, 1, 0])
    datasets.load("PPI")
    (copy,) = (home / "data/processed").glob("*.npz")
    with np.load(io.BytesIO(copy.read_bytes()), allow_pickle=False) as arrays:
        assert set(arrays) == {"x", "y", "edge_index", "classes", "public"}
