"""Graphs of the user's own: sound ones are loaded as they are, those that loading would change are refused."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from fedrepro.data import datasets
from fedrepro.errors import ArgumentError, DataError


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_own", {})


def load(**changes: Any) -> Data:
    """Load a graph of four nodes with some of its tensors replaced."""
    usual = {"x": torch.eye(4), "y": torch.tensor([0, 1, 0, 1]), "edge_index": torch.tensor([[0, 1], [1, 0]])}
    datasets.register("mine", lambda: Data(**usual | changes))
    return datasets.load("mine")


def masks(train: Any, other: Any = None) -> dict[str, Any]:
    empty = torch.zeros(4) if other is None else other
    return {"train_mask": train, "val_mask": empty, "test_mask": empty}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": torch.tensor([0.5, 1.5, 0, 1])}, "y must be whole numbers"),
        ({"y": torch.tensor([0.0, 1.0, 0.0, 2.0])}, r"y must be integers, .* got torch.float32; give y.long\(\)"),
        ({"y": torch.tensor([1, 2, 1, 2])}, r"y must be classes from 0 .* got 1 as the first; give y - y.min\(\)"),
        ({"y": torch.ones(4, requires_grad=True)}, r"y must carry no gradient, got one that does; give y.detach\(\)"),
        ({"x": torch.eye(4, requires_grad=True)}, r"x must carry no gradient, got one that does; give x.detach\(\)"),
        ({"x": torch.full((4, 2), 1e300, dtype=torch.float64)}, "x must be finite as float32, got"),
        ({"edge_attr": torch.rand(2)}, "edge_attr must be left out, `del data.edge_attr`"),
        ({"edge_attr": torch.rand(2, 3)}, "edge_attr must be left out"),
        ({"edge_weight": torch.rand(2)}, "edge_weight must be left out"),
        ({"y": torch.tensor([0, 1, math.nan, 1])}, "y must be finite real numbers"),
        ({"y": torch.zeros(4, dtype=torch.complex64)}, "y must be finite real numbers"),
        ({"y": torch.tensor([0, 1, 2, 10**12])}, "y must be classes below 1000, got 1000000000000"),
        (
            {"y": torch.eye(4)[:, :2] + torch.eye(4)[:, 2:]},
            r"y must be classes.* got one-hot rows .* by F1; give y\.argmax\(1\)",
        ),
        ({"y": torch.full((4, 2), 0.5)}, "y must be whole numbers"),
        ({"y": torch.full((4, 2), 3)}, "y of several labels a node must hold 0 and 1"),
        ({"edge_index": torch.zeros(2, 3, dtype=torch.bool)}, "edge_index must be integers .* got torch.bool"),
        ({"edge_index": torch.zeros(2, 3, dtype=torch.complex64)}, "edge_index must be integers"),
        ({"x": torch.zeros(4, 2, dtype=torch.complex64)}, "x must be real numbers, got torch.complex64"),
        ({"x": torch.full((4, 2), math.nan).to_sparse()}, "x must be finite as float32, got"),
        ({"x": torch.full((4, 2), math.inf).to_sparse_csr()}, "x must be finite as float32, got"),
        ({"x": torch.zeros(4, 0)}, r"x must have a row for each node and a column, got \(4, 0\)"),
        (masks(torch.tensor([3, 2, 1, 0])), "train_mask must be bool, or numbers 0 and 1"),
        (masks([True, False, False, False]), "train_mask must be a tensor, got list"),
        (masks(torch.zeros(4, 2), torch.zeros(4, 3)), "train_mask has 2, val_mask has 3"),
        ({"x": torch.tensor(1.0)}, r"x must be \[nodes, features\], got \(\)"),
        ({"y": torch.tensor([0, 1, 0, 1]).to_sparse()}, "y must be a dense tensor, got the layout torch.sparse_coo"),
        (masks(torch.ones(4, dtype=torch.bool).to_sparse()), "train_mask must be a dense tensor, got the layout"),
        (masks(torch.zeros(4, 0)), r"train_mask must be \[nodes\] or \[nodes, splits\], got \(4, 0\)"),
        (masks(torch.zeros(4, 2, 2)), r"train_mask must be \[nodes\] or \[nodes, splits\], got \(4, 2, 2\)"),
    ],
)
def test_what_would_be_changed_is_refused(changes: dict[str, Any], message: str) -> None:
    """A tensor that the standard form would round, cut or misread is named with what it should be."""
    with pytest.raises(DataError, match=rf"'mine': .*{message}"):
        load(**changes)


@pytest.mark.parametrize(
    ("changes", "classes"),
    [
        ({"y": torch.tensor([0, 1, 0, 2], dtype=torch.uint8)}, 3),
        ({"y": torch.tensor([[0], [1], [0], [2]])}, 3),
        ({"y": torch.tensor([True, False, True, False])}, 2),
        ({"y": torch.tensor([[1, 1], [0, 1], [1, 0], [0, 0]])}, 2),
        ({"x": torch.ones(4, 1, dtype=torch.bool)}, 2),
        ({"x": torch.eye(4, dtype=torch.int32).to_sparse()}, 2),
        (masks(torch.tensor([1, 0, 1, 0]), torch.tensor([0, 0, 0, 0])), 2),
        (masks(torch.tensor([True, False, False, False]), torch.zeros(4, 1)), 2),
        ({"edge_index": torch.zeros(2, 0, dtype=torch.int32)}, 2),
    ],
)
def test_sound_graphs_pass(changes: dict[str, Any], classes: int) -> None:
    """Whole numbers in another type, several labels a node, masks of zeros and ones and no edges are all right."""
    assert load(**changes).num_classes == classes


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.tensor([0, 1, 0, 999]), "'mine': 997 of its 1000 classes have no node.*return_inverse"),
        (torch.eye(4)[:, :2], "'mine': no node has two labels.* F1.* y of one dimension"),
    ],
)
def test_labels_that_are_seldom_meant_are_said_aloud(y: torch.Tensor, message: str) -> None:
    """Classes without nodes, and columns that no node has two of, load with a warning that says how to mend it."""
    with pytest.warns(UserWarning, match=message):
        load(y=y)


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (lambda: 1 / 0, "The loader of 'mine' failed with ZeroDivisionError: division by zero"),
        (lambda seed: {}[seed], "The loader of 'mine' failed with KeyError: 0"),
        (lambda: 1, "a loader must return a torch_geometric Data, got int"),
    ],
)
def test_a_loader_that_fails_is_named(loader: Callable[..., Any], message: str) -> None:
    """The error of a loader tells its data set, type and text if it failed, or that it returned no graph."""
    datasets.register("mine", loader)
    with pytest.raises(DataError, match=message):
        datasets.load("mine")


def test_an_error_of_the_package_stays_as_it_is() -> None:
    """A loader that builds on the package's own functions passes their errors on."""
    datasets.register("mine", lambda: datasets.load("nothing"))
    with pytest.raises(ArgumentError, match="'nothing'"):
        datasets.load("mine")


@pytest.mark.parametrize(
    ("name", "loader", "message"),
    [
        (5, Data, "name must be a string. Got 5"),
        ("", dict, "name must be a name that no real"),
        ("mine", 5, "loader must be a function that returns a Data, such as `lambda: data`. Got 5"),
        ("mine", Data(x=torch.eye(2)), "loader must be a function .* such as `lambda: data`. Got Data"),
        ("csbm-mine", lambda: 1, "name must be none that a paper of the suite gives to graphs .* Got 'csbm-mine'"),
        ("mine", lambda a, b: 1, "loader must be a function of nothing or of the seed"),
        ("mine", lambda a, seed: 1, "loader must be a function of nothing or of the seed"),
        ("mine", lambda *, a: 1, "loader must be a function of nothing or of the seed"),
    ],
)
def test_what_cannot_be_registered(name: Any, loader: Any, message: str) -> None:
    """A wrong name or loader is refused when it is registered, before a run asks for the graph."""
    with pytest.raises(ArgumentError, match=message):
        datasets.register(name, loader)
    assert datasets._own == {}


def test_registered_graph(graph: Data, loaded: Data) -> None:
    """A registered graph is brought into standard form and its masks become the public split."""
    assert loaded.edge_index.tolist() == [[0, 0, 1, 2, 3, 4], [1, 2, 0, 2, 2, 5]]
    assert (loaded.name, loaded.num_classes) == ("tiny", 2)
    assert torch.equal(datasets.split(loaded, "public").test_mask, graph.test_mask)
    assert "train_mask" not in loaded


def test_registered_loader_gets_the_seed(graph: Data) -> None:
    """A loader with a parameter is called with the seed."""
    datasets.register("seeded", lambda seed: Data(x=graph.x * seed, y=graph.y, edge_index=graph.edge_index))
    assert torch.equal(datasets.load("seeded", 3).x, graph.x * 3)


@pytest.mark.parametrize(
    ("loader", "given"),
    [
        (lambda k=2: k, 2),
        (lambda k=2, *more, **named: k, 2),
        (partial(lambda k: k, k=2), 2),
        (lambda k=2, seed=0: k * seed, 6),
        (lambda *, seed: seed, 3),
        (lambda number, k=2: k * number, 6),
        (lambda seed, /: seed, 3),
    ],
)
def test_a_parameter_with_a_default_keeps_it(loader: Callable[..., int], given: int, graph: Data) -> None:
    """The seed goes to a parameter that must be given or is named so, and never instead of a default."""

    def scaled(*places: int, **names: int) -> Data:
        return Data(x=graph.x * loader(*places, **names), y=graph.y, edge_index=graph.edge_index)

    scaled.__signature__ = inspect.signature(loader)  # type: ignore[attr-defined]
    datasets.register("kept", scaled)
    assert torch.equal(datasets.load("kept", 3).x, graph.x * given)


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
def test_registered_graph_is_checked(change: dict[str, Any], message: str, graph: Data) -> None:
    """A graph that is none is refused with what is wrong about it."""
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
