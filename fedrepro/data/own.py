"""Check a graph of the user's own, before `formats.standard` converts it and what was wrong cannot be seen any more."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.data.formats import PARTS
from fedrepro.errors import DataError, FedreproError, require

CLASSES = 1000
"""Number of classes that a graph of fewer nodes may have."""


def checked(name: str, loader: Callable[..., Data]) -> Callable[..., Data]:
    """Return a loader that calls `loader` and checks its graph.

    Args:
        name: of the data set, for messages.
        loader: a function of nothing or of the seed.

    Raises:
        ArgumentError: the loader takes something else, or is a graph itself. The loader that is returned raises
            `DataError` where `loader` fails, or where its graph would be changed by the conversion, and warns of
            labels that are sound and seldom meant.
    """
    called = "a function that returns a Data, such as `lambda: data`"  # a Data can be called, to iterate over it
    require(callable(loader) and not isinstance(loader, Data), "loader", called, loader)
    require(_suits(loader), "loader", "a function of nothing or of the seed", loader)

    @functools.wraps(loader)
    def load(*seed: int) -> Data:
        try:
            data = loader(*seed)
        except FedreproError:
            raise
        except Exception as error:
            raise DataError(f"The loader of {name!r} failed with {type(error).__name__}: {error}.") from error
        check(data, name)
        return data

    return load


def _suits(loader: Callable[..., Data]) -> bool:
    """Return whether a loader can be called with nothing, or with one seed if it has a parameter at all."""
    try:
        signature = inspect.signature(loader)
    except (TypeError, ValueError):
        return True  # Python cannot tell, as for some functions written in C
    try:
        signature.bind(*[0] if signature.parameters else [])
    except TypeError:
        return False
    return True


def check(data: Any, name: str) -> None:
    """Raise an error if the conversion into standard form would silently change a graph.

    Raises:
        DataError: the message says what is wrong, and what would be right.
    """

    def need(condition: bool, what: str) -> None:
        if not condition:
            raise DataError(f"Data set {name!r}: {what}.")

    if not isinstance(data, Data):
        return  # `formats.standard` says so, and what is missing
    x, y, edges = (data.get(key) for key in ("x", "y", "edge_index"))
    if isinstance(x, Tensor) and x.dim() == 2:
        need(not x.is_complex(), f"x must be real numbers, got {x.dtype}")
        need(x.shape[1] > 0, "x has no columns; a graph without features takes one of ones")
        values = x if x.layout == torch.strided else x.coalesce() if x.layout == torch.sparse_coo else x
        finite = values if values.layout == torch.strided else values.values()
        need(bool(torch.isfinite(finite.float()).all()), "x has entries that are not finite as float32")
    if isinstance(edges, Tensor):
        number = not edges.is_floating_point() and not edges.is_complex() and edges.dtype != torch.bool
        need(number, f"edge_index must be integers [2, edges], got {edges.dtype}")
    for key in ("edge_attr", "edge_weight"):
        unused = f"{key} is not used: methods weigh edges by degree, so leave it out, `del data.{key}`"
        need(data.get(key) is None, unused)
    for key in ("x", "y"):
        need(not getattr(data.get(key), "requires_grad", False), f"{key} must carry no gradient; give {key}.detach()")
    if isinstance(y, Tensor) and y.dim() in (1, 2) and len(y):
        _check_labels(y, need, name)
    masks = {f"{part}_mask": data.get(f"{part}_mask") for part in PARTS}
    for key, mask in masks.items():
        need(mask is None or isinstance(mask, Tensor), f"{key} must be a tensor, got {type(mask).__name__}")
    given = {key: mask for key, mask in masks.items() if isinstance(mask, Tensor)}
    for key, mask in given.items():
        zero_one = mask.dtype == torch.bool or bool(((mask == 0) | (mask == 1)).all())
        need(zero_one, f"{key} must be bool, or numbers 0 and 1; numbers of nodes make no mask")
        need(mask.dim() in (1, 2), f"{key} must be [nodes] or [nodes, splits], got {tuple(mask.shape)}")
    splits = {key: 1 if mask.dim() == 1 else mask.shape[1] for key, mask in given.items()}
    told = ", ".join(f"{key} has {count}" for key, count in splits.items())
    need(len(set(splits.values())) <= 1, f"masks must have as many splits each, but {told}")


def _check_labels(y: Tensor, need: Callable[[bool, str], None], name: str) -> None:
    need(not y.is_complex() and bool(torch.isfinite(y).all()), f"y must be finite real numbers, got {y.dtype}")
    need(bool((y == y.round()).all()) if y.is_floating_point() else True, "y must be whole numbers, one class a node")
    if y.dim() == 1 or y.shape[1] == 1:
        need(not y.is_floating_point(), f"y must be integers, one class a node, got {y.dtype}; give y.long()")
        most = max(len(y), CLASSES)
        need(int(y.max()) < most, f"y must be classes below {most}, got {int(y.max())}; number them from 0 upwards")
        used = torch.unique(y)
        need(int(used[0]) <= 0, f"y must be classes from 0 upwards, got {int(used[0])} as the first; give y - y.min()")
        if len(used) <= int(used[-1]):
            empty = f"{int(used[-1]) + 1 - len(used)} of its {int(used[-1]) + 1} classes have no node"
            _tell(f"Data set {name!r}: {empty}. torch.unique(y, return_inverse=True)[1] numbers those that have.")
        return
    need(bool(((y == 0) | (y == 1)).all()), "y of several labels a node must hold 0 and 1")
    one_hot = bool((y.sum(1) == 1).all())
    need(not one_hot, "y is one-hot and would be scored as several labels a node, by F1; give classes, y.argmax(1)")
    if bool((y.sum(1) <= 1).all()):
        told = "no node has two labels, but y has several columns, so that scores are F1"
        _tell(f"Data set {name!r}: {told}. For one class a node give a y of one dimension.")


def _tell(text: str) -> None:
    warnings.warn(text, stacklevel=2)
