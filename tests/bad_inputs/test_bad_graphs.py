"""Graphs, their files, partitions and synthetic graphs: each bad input is named, and a good one passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refused import bad, refuses
from torch_geometric.data import Data, HeteroData

import fedrepro as fr
from fedrepro.data import copies, datasets, formats, partition, sources, synthetic
from fedrepro.errors import DataError

SMALL = Data(x=torch.eye(6), y=torch.arange(6) % 2, edge_index=torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]))


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets, "_own", {})
    monkeypatch.setenv("FEDREPRO_DATA", str(tmp_path / "raw"))


def own(**changes: Any) -> Callable[[], Data]:
    """Load a graph of one's own with some tensors replaced."""

    def load() -> Data:
        fr.datasets.register("mine", lambda: Data(**{**SMALL.to_dict(), **changes}))
        return fr.load("mine")

    return load


def whole(**changes: Any) -> Callable[[], Data]:
    return lambda: formats.standard(Data(**{**SMALL.to_dict(), **changes}), "mine")


def loader(made: Any) -> Callable[[], Data]:
    def load() -> Data:
        fr.datasets.register("mine", lambda: made)
        return fr.load("mine")

    return load


def masks(train: Any, val: Any = None, test: Any = None) -> dict[str, Any]:
    empty = torch.zeros(6, dtype=torch.bool)
    return {
        "train_mask": train,
        "val_mask": empty if val is None else val,
        "test_mask": empty if test is None else test,
    }


def split_of(spec: str, clients: Any, seed: Any = 0, data: Any = SMALL) -> Callable[[], Any]:
    return lambda: fr.partition.partition(data, spec, clients, seed)


def csbm(**changes: Any) -> Callable[[], Data]:
    usual = {"nodes": 40, "degree": 5.0, "lam": 1.0, "mu": 1.0, "features": 4}
    return lambda: synthetic.csbm(**usual | changes)


ON = torch.ones(6, dtype=torch.bool)
NAMES = [
    bad("a name with a typo", lambda: fr.load("Coar"), "data set", "'Coar'", "Did you mean 'Cora'?"),
    bad("an empty name", lambda: fr.load(""), "data set", "''"),
    bad("a number", lambda: fr.load(5), "data set", "a string", "Got 5"),  # type: ignore[arg-type]
    bad("None", lambda: fr.load(None), "data set", "None"),  # type: ignore[arg-type]
    bad("a stand-in of nothing", lambda: fr.load("Corra~standin"), "data set", "'Corra~standin'"),
    bad("a generated graph of no such size", lambda: fr.load("csbm-1"), "data set", "'csbm-1'"),
    bad("fetch of an unknown set", lambda: datasets.fetch("Coar"), "data set", "'Coar'"),
    bad("an unknown evaluator", lambda: datasets.evaluator("Cora"), "official evaluator", "'Cora'", "ogbn-arxiv"),
    bad("files that no link has", lambda: datasets.fetch("PPI"), "PPI"),
    bad("negative seed", lambda: fr.load("Cora~standin", -1), "seed", "-1"),
    bad("step with a typo", lambda: datasets.prepare(SMALL, "undirect"), "prepare step", "'undirect'", "'undirected'"),
    bad("empty step", lambda: datasets.prepare(SMALL, "undirected+"), "prepare step", "''"),
    bad("row-sum of negative features", lambda: datasets.prepare(whole(x=-torch.eye(6))(), "row-sum"), "row-sum", "-1"),
    bad("standardized without split", lambda: datasets.prepare(whole()(), "standardized"), "standardized", "split"),
    bad("split of letters", lambda: datasets.split(SMALL, "half"), "split", "'half'", "10/10/80"),
    bad("split of two", lambda: datasets.split(SMALL, "50/50"), "split", "'50/50'"),
    bad("split beyond 100", lambda: datasets.split(SMALL, "50/40/30"), "split", "'50/40/30'"),
    bad("split of nothing", lambda: datasets.split(SMALL, "100/0/0"), "split", "'100/0/0'"),
    bad("split by zero", lambda: datasets.split(SMALL, "1/0/0/1/99"), "split", "'1/0/0/1/99'"),
    bad("split too fine", lambda: datasets.split(SMALL, "1/1/98"), "split", "6 nodes", "'1/1/98'"),
    bad("no public split", lambda: datasets.split(SMALL, "public"), "split", "'public'"),
    bad("negative seed of a split", lambda: datasets.split(SMALL, "10/10/80", -1), "seed", "-1"),
]
REGISTERED = [
    bad("a number as name", lambda: datasets.register(5, Data), "name", "a string", "Got 5"),  # type: ignore[arg-type]
    bad("an empty name", lambda: datasets.register("", dict), "name", "''"),
    bad("a taken name", lambda: datasets.register("Cora", dict), "name", "'Cora'"),
    bad("a stand-in's name", lambda: datasets.register("Cora~standin", dict), "name", "'Cora~standin'"),
    bad("a graph", lambda: datasets.register("mine", SMALL), "loader", "`lambda: data`", "Got Data"),
    bad("None as loader", lambda: datasets.register("mine", None), "loader", "Got None"),  # type: ignore[arg-type]
    bad("two arguments", lambda: datasets.register("mine", lambda a, b: SMALL), "loader", "the seed", "Got <function"),
    bad("a loader that returns None", loader(None), "'mine'", "Data", "NoneType"),
    bad("a loader that returns a tuple", loader((SMALL, 1)), "'mine'", "tuple"),
    bad("a heterogeneous graph", loader(HeteroData()), "'mine'", "HeteroData"),
    bad("an empty graph", loader(Data()), "'mine'", "x is missing"),
    bad("x as array", own(x=np.eye(6)), "'mine'", "x is missing or no tensor"),
    bad("x of one dimension", own(x=torch.ones(6)), "x must be [nodes, features]", "(6,)"),
    bad("x with NaN", own(x=torch.full((6, 2), math.nan)), "x has entries that are not finite"),
    bad("x beyond float32", own(x=torch.full((6, 2), 1e300, dtype=torch.float64)), "x", "float32"),
    bad("x with a gradient", own(x=torch.eye(6, requires_grad=True)), "x must carry no gradient", "x.detach()"),
    bad("labels missing", own(y=None), "y is missing"),
    bad("labels too short", own(y=torch.tensor([0, 1])), "y must have one row a node (6)", "(2,)"),
    bad("labels from 1", own(y=torch.arange(6) % 2 + 1), "y must be classes from 0", "got 1", "y - y.min()"),
    bad("labels below 0", own(y=torch.arange(6) - 1), "y must be classes from 0"),
    bad("float labels", own(y=(torch.arange(6) % 2).float()), "y must be integers", "torch.float32", "y.long()"),
    bad("half labels", own(y=torch.full((6,), 0.5)), "y must be whole numbers"),
    bad("labels of a million", own(y=torch.tensor([0, 1, 0, 1, 0, 10**6])), "y must be classes below", "1000000"),
    bad("labels one-hot", own(y=torch.eye(2)[torch.arange(6) % 2]), "one-hot", "argmax(1)"),
    bad("labels of three dimensions", own(y=torch.zeros(6, 2, 2)), "y must have one row a node", "(6, 2, 2)"),
    bad("no nodes", own(x=torch.zeros(0, 2), y=torch.zeros(0).long(), edge_index=torch.zeros(2, 0).long()), "y"),
    bad("edges outside", own(edge_index=torch.tensor([[0], [6]])), "edge_index must name nodes from 0 to 5"),
    bad("edges below 0", own(edge_index=torch.tensor([[0], [-1]])), "edge_index must name nodes from 0 to 5"),
    bad("edges as floats", own(edge_index=torch.zeros(2, 3)), "edge_index must be integers", "torch.float32"),
    bad("edges as rows", own(edge_index=torch.zeros(3, 2).long()), "edge_index", "[2, edges]", "(3, 2)"),
    bad("an adjacency", own(edge_index=torch.eye(6).long()), "edge_index", "(6, 6)"),
    bad("edge attributes", own(edge_attr=torch.rand(4)), "edge_attr is not used", "del data.edge_attr"),
    bad("edge weights", own(edge_weight=torch.rand(4)), "edge_weight is not used", "del data.edge_weight"),
    bad("one mask of three", own(train_mask=ON), "train_mask, val_mask and test_mask", "1 of 3"),
    bad("a short mask", own(**masks(ON[:3])), "masks must have one row a node"),
    bad("masks that overlap", own(**masks(ON, ON)), "in two of train_mask, val_mask, test_mask"),
    bad("a mask of node numbers", own(**masks(torch.tensor([3, 2]))), "train_mask must be bool", "numbers of nodes"),
    bad(
        "masks of other splits", own(**masks(torch.zeros(6, 2), torch.zeros(6, 3))), "train_mask has 2, val_mask has 3"
    ),
]
PARTITIONS = [
    bad("no graph", split_of("metis", 2, data=None), "data", "Got None"),
    bad("a number", split_of(5, 2), "spec", "Got 5"),  # type: ignore[arg-type]
    bad("a typo", split_of("metsi", 2), "partition", "'metsi'", "Did you mean 'metis'?"),
    bad("an unknown argument", split_of("dirichlet(bet=1)", 2), "'dirichlet'", "'bet'", "Did you mean 'beta'?"),
    bad("an argument where none is", split_of("metis(k=1)", 2), "'metis'", "without arguments", "metis(k=1)"),
    bad("a missing argument", split_of("dirichlet", 2), "'dirichlet'", "beta", "'dirichlet'"),
    bad("a positional argument", split_of("dirichlet(1)", 2), "keywords", "'dirichlet(1)'"),
    bad("code", split_of("dirichlet(beta=__import__('os').getpid())", 2), "literal values", "__import__"),
    bad("an open bracket", split_of("dirichlet(beta=1", 2), "partition", "'dirichlet(beta=1'"),
    bad("text as flag", split_of("random(equal='no')", 2), "equal", "True or False", "'no'"),
    bad("text as beta", split_of("dirichlet(beta='x')", 2), "beta", "'x'"),
    bad("beta of 0", split_of("dirichlet(beta=0)", 2), "beta", "0"),
    bad("kappa above its bound", split_of("private-public(kappa=0.9)", 2), "kappa", "0.9"),
    bad("slack below 0", split_of("louvain(slack=-1)", 2), "slack", "-1"),
    bad("no clients", split_of("metis", 0), "clients", "at least 1", "0"),
    bad("half a client", split_of("metis", 1.5), "clients", "an integer", "1.5"),
    bad("True clients", split_of("metis", True), "clients", "an integer", "True"),
    bad("more clients than nodes", split_of("random", 7), "clients", "number of nodes, 6", "7"),
    bad("two clients of single", split_of("single", 2), "clients", "1 for the partition 'single'", "2"),
    bad("blocks that do not fit", split_of("blocks", 4), "clients", "divisor", "4"),
    bad("clients that are no nodes", split_of("one-node-per-client", 2), "clients", "6", "2"),
    bad("a negative seed", split_of("random", 2, -1), "seed", "-1"),
    bad("a seed of text", split_of("random", 2, "0"), "seed", "'0'"),
    bad("directed metis", split_of("metis", 2, data=whole(edge_index=torch.tensor([[0], [1]]))()), "undirected"),
]
SYNTHETIC = [
    bad("one node", csbm(nodes=1), "nodes", "at least 2", "1"),
    bad("no features", csbm(features=0), "features", "at least 1", "0"),
    bad("half a node", csbm(nodes=40.5), "nodes", "an integer", "Got 40.5"),
    bad("nodes of text", csbm(nodes="40"), "nodes", "an integer", "'40'"),
    bad("True features", csbm(features=True), "features", "an integer", "True"),
    bad("degree below 0", csbm(degree=-1), "degree", "at least 0", "Got -1"),
    bad("degree of text", csbm(degree="5"), "degree", "a finite number", "'5'"),
    bad("no degree", csbm(degree=None), "degree", "a finite number", "None"),
    bad("degree that is none", csbm(degree=math.nan), "degree", "a finite number", "nan"),
    bad("lam without end", csbm(lam=-math.inf), "lam", "a finite number", "-inf"),
    bad("lam of text", csbm(lam="1"), "lam", "a finite number", "'1'"),
    bad("mu without end", csbm(mu=math.inf), "mu", "a finite number", "inf"),
    bad("mu below 0", csbm(mu=-1.0), "mu", "at least 0", "-1"),
    bad("csbm with a negative seed", csbm(seed=-1), "seed", "at least 0", "-1"),
    bad("csbm with half a seed", csbm(seed=0.5), "seed", "an integer", "0.5"),
    bad("a negative noise seed", csbm(noise_seed=-2), "noise_seed", "at least 0", "-2"),
    bad("a noise seed of text", csbm(noise_seed="a"), "noise_seed", "an integer", "'a'"),
    bad("lam too strong", csbm(lam=9.0), "lam", "sqrt(degree)", "9"),
    bad("degree too large", csbm(degree=50.0), "degree", "50"),
    bad("an unknown noise", csbm(noise="1/q"), "noise", "'1/q'"),
    bad("a stand-in of nothing", lambda: synthetic.standin("Corra"), "name", "'Corra'", "Did you mean 'Cora'?"),
    bad("a negative seed", lambda: synthetic.standin("Cora", -1), "seed", "-1"),
    bad("half a seed", lambda: synthetic.standin("Cora", 0.5), "seed", "an integer", "0.5"),  # type: ignore[arg-type]
    bad("a seed of text", lambda: synthetic.standin("Cora", "0"), "seed", "an integer", "'0'"),  # type: ignore[arg-type]
    bad("a stand-in without name", lambda: synthetic.standin(None), "name", "None"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "words"), [*NAMES, *PARTITIONS, *SYNTHETIC])
def test_a_bad_name_or_number_is_named(call: Callable[[], Any], words: tuple[str, ...]) -> None:
    """Names, steps, splits, partitions and sizes that are not allowed are refused with what is."""
    refuses(call, words)


@pytest.mark.parametrize(("call", "words"), REGISTERED)
def test_a_bad_graph_of_ones_own_is_named(call: Callable[[], Any], words: tuple[str, ...]) -> None:
    """A graph or loader that would be misread is refused, and the message says which part and what was found."""
    refuses(call, words)


def test_what_lies_in_the_way_of_files_is_named(tmp_path: Path) -> None:
    """A folder of data that is not there, or lacks a file, is named with the file that is missing."""
    told = refuses(lambda: sources.stage(sources.SOURCES["PPI"]) or fr.load("PPI"), ("PPI", "FEDREPRO_DATA"))
    assert isinstance(told, DataError)
    (tmp_path / "raw/Cora/raw").mkdir(parents=True)
    (tmp_path / "raw/Cora/raw/ind.cora.x").mkdir()
    refuses(lambda: copies.copy(tmp_path / "nothing", tmp_path / "there"), ("nothing", "No such file"))
    refuses(lambda: copies.sha256(tmp_path / "nothing"), ("nothing", "No such file"))


def test_good_inputs_pass() -> None:
    """The controls: a sound graph, step, split, partition and size are refused nowhere."""
    assert own()().num_nodes == own(**masks(ON))().num_nodes == loader(SMALL)().num_nodes == 6
    prepared = datasets.prepare(whole()(), "undirected+row-sum")
    assert datasets.split(prepared, "20/20/60").train_mask.sum() == 1
    for spec in ("random(equal=True)", "dirichlet(beta=10, minimum=1)", "metis", "blocks", "private-public(kappa=0.4)"):
        assert len(split_of(spec, 2, data=prepared)()) == 2
    assert csbm()().num_nodes == 40 and partition.parse("louvain(slack=2)") == ("louvain", {"slack": 2})
    datasets.check("Cora", "undirected+row-sum", "10/10/80")
    datasets.check("Cora~standin", "", "public")
