"""Graphs of one's own from two tables or from arrays, and what is said of files that are no graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

import fedrepro as fr
from fedrepro.data import datasets
from fedrepro.errors import ArgumentError, FedreproError
from fedrepro.reporting import notebook


def tables(folder: Path, count: int = 6) -> tuple[Path, Path]:
    """Write a ring of nodes named a0, a1, ... in reverse order, each edge once."""
    names = [f"a{number}" for number in range(count)]
    rng = np.random.default_rng(0)
    nodes = pd.DataFrame({"id": names, "age": rng.normal(size=count), "label": ["no", "yes"] * (count // 2)})
    nodes["height"] = nodes.index * 1.5
    edges = pd.DataFrame({"from": names, "to": [*names[1:], names[0]]})
    for table, name in ((nodes[::-1], "nodes.csv"), (edges, "edges.csv")):
        table.to_csv(folder / name, index=False)
    return folder / "nodes.csv", folder / "edges.csv"


def test_two_tables_are_a_graph(tmp_path: Path) -> None:
    """Rows become nodes, words become classes in sorted order, names become numbers, and edges get both directions."""
    nodes, edges = tables(tmp_path)
    data = fr.load(fr.graph(nodes=nodes, edges=edges))
    table = pd.read_csv(nodes)
    assert torch.equal(data.x, torch.from_numpy(table[["age", "height"]].to_numpy(np.float32)))
    assert data.y.tolist() == (table["label"] == "yes").astype(int).tolist() and data.num_classes == 2
    names = table["id"].tolist()
    found = {(names[a], names[b]) for a, b in data.edge_index.T.tolist()}
    listed = {(row[0], row[1]) for row in pd.read_csv(edges).itertuples(index=False)}
    assert found == listed | {(b, a) for a, b in listed}
    assert "public" not in data


def test_arrays_are_the_same_graph(tmp_path: Path) -> None:
    """An .npz of x, y and edge_index gives the graph of the tables; masks give a public split."""
    nodes, edges = tables(tmp_path)
    data = fr.load(fr.graph(nodes=nodes, edges=edges))
    masks = {f"{part}_mask": np.arange(6) % 3 == at for at, part in enumerate(("train", "val", "test"))}
    np.savez(tmp_path / "mine.npz", x=data.x, y=data.y, edge_index=data.edge_index, **masks)
    other = fr.load(fr.graph(tmp_path / "mine.npz"))
    assert torch.equal(other.x, data.x) and torch.equal(other.edge_index, data.edge_index)
    split = datasets.split(other, "public")
    assert all(torch.equal(split[key], torch.from_numpy(mask)) for key, mask in masks.items())


def test_weights_are_not_used_and_one_class_is_refused(tmp_path: Path) -> None:
    """Further columns of edges come with a warning that they are not used, and labels of one class are refused."""
    nodes, edges = tables(tmp_path)
    plain = fr.load(fr.graph(nodes=nodes, edges=edges))
    pd.read_csv(edges).assign(weight=2, kind="a").to_csv(edges, index=False)
    with pytest.warns(UserWarning, match=r"edges\.csv: what is in 'weight', 'kind' is not used") as told:
        weighted = fr.load(fr.graph(nodes=nodes, edges=edges))
    assert torch.equal(weighted.edge_index, plain.edge_index) and told[0].filename == __file__
    nodes, edges = tables(tmp_path)
    pd.read_csv(nodes).assign(label="yes").to_csv(nodes, index=False)
    with pytest.raises(ArgumentError, match=r"nodes\.csv must be of two classes or more\. Got one class\."):
        fr.graph(nodes=nodes, edges=edges)


def test_rows_have_numbers_and_a_split(tmp_path: Path) -> None:
    """Without ids edges name rows from 0; numbers as labels sort as numbers; a column `split` is the public split."""
    split = ["train", "val", "test", ""] * 3
    nodes = pd.DataFrame({"x": np.arange(12), "label": [2, 10, 9] * 4, "split": split})
    nodes.to_csv(tmp_path / "n.csv", index=False)
    (tmp_path / "e.csv").write_text("a,b\n0,1\n11,2\n")
    data = fr.load(fr.graph(nodes=tmp_path / "n.csv", edges=tmp_path / "e.csv"))
    assert data.y.tolist() == [0, 2, 1] * 4 and data.edge_index.T.tolist() == [[0, 1], [1, 0], [2, 11], [11, 2]]
    assert datasets.split(data, "public").val_mask.tolist() == [part == "val" for part in split]


def test_na_and_none_are_words(tmp_path: Path) -> None:
    """A class or a node that is called NA, None or null is one like any other; a name next to `id` is a feature."""
    (tmp_path / "n.csv").write_text("id,label,node\nNA,US,1\nnull,NA,2\nx,None,3\n")
    (tmp_path / "e.csv").write_text("a,b\nNA,null\nnull,x\n")
    data = fr.load(fr.graph(nodes=tmp_path / "n.csv", edges=tmp_path / "e.csv"))
    assert data.y.tolist() == [2, 0, 1] and data.num_features == 1
    assert data.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]


def test_a_changed_file_is_another_data_set(tmp_path: Path) -> None:
    """The name holds the checksum of the files, so that no stored result of the former graph is served."""
    nodes, edges = tables(tmp_path)
    first = fr.graph(nodes=nodes, edges=edges)
    assert first == fr.graph(nodes=nodes, edges=edges) and first.startswith("nodes-")
    edges.write_text(edges.read_text() + "a0,a2\n")
    other = fr.graph(nodes=nodes, edges=edges, name="mine")
    assert other.startswith("mine-") and other[-8:] != first[-8:]
    assert fr.load(other).num_edges == fr.load(first).num_edges + 2


def replaced(column: str, value: object) -> Callable[[Path, Path], None]:
    def change(nodes: Path, edges: Path) -> None:
        table = pd.read_csv(nodes, dtype=object)
        table.loc[2, column] = value
        table.to_csv(nodes, index=False)

    return change


def renamed(path: Path, old: str, new: str) -> None:
    pd.read_csv(path).rename(columns={old: new}).to_csv(path, index=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced("age", "old"), r"nodes.csv must hold numbers in 'age'. Row 4 has 'old'"),
        (replaced("age", None), r"nodes.csv must hold numbers in 'age'. Row 4 has nothing"),
        (replaced("label", None), r"nodes.csv has no label in row 4"),
        (replaced("id", "a5"), r"nodes.csv has two rows with the id 'a5'"),
        (replaced("split", "training"), r"split of .*nodes.csv must be one of 'train', 'val', 'test', ''.*'training'"),
        (lambda n, e: e.write_text("a,b\na0,a1\na0,b7\n"), r"edges.csv must name nodes. Row 3 has 'b7' in 'b'"),
        (lambda n, e: e.write_text("a\na0\n"), r"edges must be a table of at least two columns"),
        (lambda n, e: e.write_text(""), r"edges.csv is no table of CSV: No columns"),
        (lambda n, e: e.write_text("a,b\n"), r"edges.csv must have at least one row below its heading"),
        (
            lambda n, e: n.write_text("id;age;label\na0;1;0\n"),
            r"must have a column 'label', separated by commas. It has 'id;age;label'",
        ),
        (
            lambda n, e: pd.read_csv(n).to_csv(n),
            r"nodes.csv must have a name for each column. Got 'Unnamed: 0': pandas",
        ),
        (
            lambda n, e: pd.read_csv(e).to_csv(e),
            r"edges.csv must have a name for each column. Got 'Unnamed: 0': pandas",
        ),
        (lambda n, e: e.write_text("a,b\na0,a1,3\na1,a2,1\n"), r"edges.csv must have a name .* more columns than its"),
        (lambda n, e: e.write_text("a,b\na0,a1,\n"), r"edges.csv must have a name for each column. Its rows have more"),
        (
            lambda n, e: n.write_text("id,label,label,age\na0,0,0,1\na1,1,1,2\n"),
            r"nodes.csv must have columns of different names. Got 'label' twice",
        ),
        (lambda n, e: renamed(n, "id", "ID"), r"nodes.csv has a column 'ID', which would be a feature. Call it 'id'"),
        (lambda n, e: renamed(n, "id", "node_id"), r"has a column 'node_id', which would be a feature. Call it 'id'"),
        (lambda n, e: renamed(n, "label", "Label "), r"has a column 'Label ', .* Call it 'label'"),
        (lambda n, e: e.write_text("a0,a1\na1,a2\n"), r"edges.csv must have a heading, .* two nodes, 'a0' and 'a1'"),
        (lambda n, e: n.write_text("id,label\na0,1\n"), r"nodes must be a table with columns of features"),
        (lambda n, e: n.unlink(), r"nodes must be a file. Got '.*nodes.csv'"),
    ],
)
def test_tables_that_are_no_graph(tmp_path: Path, change: Callable[[Path, Path], None], message: str) -> None:
    """Each mistake is one sentence with the file, the column or the row, and the value."""
    nodes, edges = tables(tmp_path)
    change(nodes, edges)
    with pytest.raises(FedreproError, match=message):
        fr.graph(nodes=nodes, edges=edges)


def test_arrays_that_are_no_graph(tmp_path: Path) -> None:
    """Missing, unknown, wrong and pickled arrays, and a file of another kind, are told."""
    good = {"x": np.ones((3, 2), np.float32), "y": np.array([0, 1, 1]), "edge_index": np.array([[0, 1], [1, 2]])}
    wrong = {
        "lacks the array 'edge_index'": {name: good[name] for name in ("x", "y")},
        "has an array 'weights'": {**good, "weights": np.ones(2)},
        "a.npz is no whole .npz file of plain arrays": {**good, "y": np.array([0, 1, "one"], object)},
        "at most 64 bits in the array 'y'. Got <U3": {
            **good,
            "y": np.array(["one", "two", "two"]),
        },
        "at most 64 bits in the array 'x'": {**good, "x": np.ones((3, 2), np.longdouble)},
        r"must hold numbers below 2\*\*63 in .* Got 1844": {
            **good,
            "y": np.array([0, 1, 2**64 - 1], "<u8"),
        },
        "edge_index": {**good, "edge_index": np.array([[0, 1], [1, 9]])},
        "y must be integers": {**good, "y": np.array([0.0, 1.0, 1.0])},
    }
    for message, arrays in wrong.items():
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises(FedreproError, match=message):
            fr.graph(tmp_path / "a.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    for damaged in (b"x,y\n1,2\n", whole[:-30], whole[:200] + bytes([whole[200] ^ 255]) + whole[201:]):
        (tmp_path / "a.npz").write_bytes(damaged)
        with pytest.raises(FedreproError, match=r"a.npz is no whole .npz file"):
            fr.graph(tmp_path / "a.npz")
    np.save(tmp_path / "a.npy", good["x"])
    with pytest.raises(FedreproError, match=r"a.npy is no whole .npz file"):
        fr.graph(tmp_path / "a.npy")
    with pytest.raises(FedreproError, match=r"datasets.register.* Got 'Data'"):
        fr.graph(Data())  # type: ignore[arg-type]
    for given in ({}, {"nodes": "n.csv"}, {"file": "a.npz", "nodes": "n.csv", "edges": "e.csv"}):
        with pytest.raises(FedreproError, match="the files must be either file, or both nodes and edges"):
            fr.graph(**given)


@pytest.mark.parametrize("kind", [">i4", "<u4", "<u8", "<i2"])
def test_whole_numbers_of_any_kind_are_read(tmp_path: Path, kind: str) -> None:
    """Unsigned numbers, and those in another order of bytes, give the graph that int64 gives."""
    x, y, edges = np.ones((3, 2), np.float32), [0, 1, 1], [[0, 1], [1, 2]]
    graphs = []
    for number, form in enumerate((kind, "<i8")):
        np.savez(tmp_path / f"{number}.npz", x=x.astype(">f4"), y=np.array(y, form), edge_index=np.array(edges, form))
        graphs.append(datasets.load(fr.graph(tmp_path / f"{number}.npz")))
    for name in ("x", "y", "edge_index"):
        assert torch.equal(graphs[0][name], graphs[1][name])


def test_a_table_of_targets_or_of_one_part_is_refused(tmp_path: Path) -> None:
    """Numbers that are no classes, and a split that lacks a part, name the column."""
    nodes, edges = tables(tmp_path, 12)
    table = pd.read_csv(nodes)
    table.assign(label=np.linspace(0, 1, len(table))).to_csv(nodes, index=False)
    with pytest.raises(FedreproError, match="whole numbers in the column label"):
        fr.graph(nodes=nodes, edges=edges)
    table.assign(split="train").to_csv(nodes, index=False)
    with pytest.raises(FedreproError, match=r"in the column split\. No row has val"):
        fr.graph(nodes=nodes, edges=edges)


def test_the_notebook_takes_a_graph(tmp_path: Path) -> None:
    """`engine/2-your-graph` runs on two tables and ends with one table of methods; no exhibit of the suite is drawn."""
    nodes, edges = tables(tmp_path, 240)
    given = {"nodes": str(nodes), "edges": str(edges), "profile": "smoke", "device": "cpu"}
    done = notebook.run("engine/2-your-graph", given, output=tmp_path / "o.ipynb")
    cells = nbformat.read(done, as_version=4).cells
    (shown,) = [cell for cell in cells if cell.get("id") == "whole"]
    text = shown.outputs[-1]["data"]["text/html"]
    for word in ("FedAvg", "FedStruct (H2V)", "FedSheafHN", "macro-F1", "AUC", "MiB", "not attacked: all data"):
        assert word in text
    assert "nodes-" in "".join(str(cell.get("outputs")) for cell in cells if cell.get("id") == "campus")
