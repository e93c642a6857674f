"""Check a graph of the user's own, before `formats.standard` converts it and what was wrong cannot be seen any more."""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.data.formats import PARTS, pack, standard
from fedrepro.errors import DataError, FedreproError, require

CLASSES = 1000
"""Number of classes that a graph of fewer nodes may have."""


_seen: dict[str, dict[tuple[int, ...], str]] = {}


def checked(name: str, loader: Callable[..., Data]) -> Callable[..., Data]:
    """Return a loader that calls `loader` and checks its graph, of which `seen` then tells the hash.

    Args:
        name: of the data set, for messages.
        loader: a function of nothing or of the seed. The seed goes to a parameter that must be given, or to one named
            `seed`; other parameters keep their defaults.

    Returns:
        A function of nothing, or of the seed where `loader` takes it.

    Raises:
        ArgumentError: the loader takes something else, or is a graph itself. The loader that is returned raises
            `DataError` where `loader` fails, or where its graph would be changed by the conversion, and warns of
            labels that are sound and seldom meant.
    """
    called = "a function that returns a Data, such as `lambda: data`"  # a Data can be called, to iterate over it
    require(callable(loader) and not isinstance(loader, Data), "loader", called, loader)
    by_place, by_name = _seed_of(loader)
    seen = _seen[name] = {}

    def load(*seed: int) -> Data:
        try:
            data = loader(*seed[:by_place], **dict(zip(by_name, seed)))
        except FedreproError:
            raise
        except Exception as error:
            raise DataError(f"The loader of {name!r} failed with {type(error).__name__}: {error}.") from error
        check(data, name)
        seen[seed] = hashlib.sha256(pack(standard(data, name))).hexdigest()[:16]
        return data

    return (lambda seed: load(seed)) if by_place or by_name else (lambda: load())


def seen(name: str, seed: int) -> str:
    """Return the hash of a graph registered by hand as it was last loaded; nothing if it was not."""
    graphs = _seen.get(name, {})
    return graphs.get((seed,)) or graphs.get((), "")


def _seed_of(loader: Callable[..., Data]) -> tuple[int, list[str]]:
    """Return how many seeds a loader takes by position, 0 or 1, and the names of the parameters that take it by name.

    Raises:
        ArgumentError: it cannot be called with nothing or with the seed.
    """
    try:
        signature = inspect.signature(loader)
    except (TypeError, ValueError):
        return 0, []  # Python cannot tell, as for some functions written in C
    known = [part for part in signature.parameters.values() if part.kind not in (part.VAR_POSITIONAL, part.VAR_KEYWORD)]
    by_name = [part.name for part in known if part.name == "seed" and part.kind != part.POSITIONAL_ONLY]
    by_place = int(not by_name and any(part.default is part.empty for part in known))
    try:
        signature.bind(*[0] * by_place, **dict.fromkeys(by_name, 0))
    except TypeError:
        require(False, "loader", "a function of nothing or of the seed", loader)
    return by_place, by_name


def check(data: Any, name: str) -> None:
    """Raise an error if the conversion into standard form would silently change a graph.

    Raises:
        DataError: the message says what is wrong, and what would be right.
    """

    def need(condition: bool, what: str) -> None:
        if not condition:
            raise DataError(f"Data set {name!r}: {what}.")

    need(isinstance(data, Data), f"a loader must return a torch_geometric Data, got {type(data).__name__}")
    x, y, edges = (data.get(key) for key in ("x", "y", "edge_index"))
    for key, value in (("x", x), ("y", y), ("edge_index", edges)):
        need(isinstance(value, Tensor), f"{key} must be a tensor, got {type(value).__name__}")
        dense = key == "x" or value.layout == torch.strided
        need(dense, f"{key} must be a dense tensor, got the layout {value.layout}")
    need(x.dim() > 0, f"x must be [nodes, features], got {tuple(x.shape)}")
    if x.dim() == 2:
        need(not x.is_complex(), f"x must be real numbers, got {x.dtype}")
        told = f"got {tuple(x.shape)}; a graph without features takes one of ones"
        need(min(x.shape) > 0, f"x must have a row for each node and a column, {told}")
        values = x if x.layout == torch.strided else x.coalesce() if x.layout == torch.sparse_coo else x
        entries = (values if values.layout == torch.strided else values.values()).flatten()
        odd = entries[~torch.isfinite(entries.float())]
        need(not len(odd), f"x must be finite as float32, got {odd[:1].tolist()}")
    number = not edges.is_floating_point() and not edges.is_complex() and edges.dtype != torch.bool
    need(number, f"edge_index must be integers [2, edges], got {edges.dtype}")
    far = edges[(edges < 0) | (edges >= len(x))][:1].tolist() if edges.dim() == 2 and len(edges) == 2 else []
    need(not far, f"edge_index must name nodes from 0 to {len(x) - 1}, got {far}")
    for key in ("edge_attr", "edge_weight"):
        unused = f"{key} must be left out, `del data.{key}`, since methods weigh edges by degree; got a value for it"
        need(data.get(key) is None, unused)
    for key in ("x", "y"):
        need(not data[key].requires_grad, f"{key} must carry no gradient, got one that does; give {key}.detach()")
    if y.dim() in (1, 2) and len(y):
        _check_labels(y, need, name)
    masks = {f"{part}_mask": data.get(f"{part}_mask") for part in PARTS}
    for key, mask in masks.items():
        need(mask is None or isinstance(mask, Tensor), f"{key} must be a tensor, got {type(mask).__name__}")
    given = {key: mask for key, mask in masks.items() if isinstance(mask, Tensor)}
    for key, mask in given.items():
        need(mask.layout == torch.strided, f"{key} must be a dense tensor, got the layout {mask.layout}")
        need(mask.numel() > 0, f"{key} must be [nodes] or [nodes, splits], got {tuple(mask.shape)}")
        zero_one = mask.dtype == torch.bool or bool(((mask == 0) | (mask == 1)).all())
        most = "" if zero_one else mask.max().item()
        need(zero_one, f"{key} must be bool, or numbers 0 and 1, got {most}; numbers of nodes make no mask")
        right = mask.dim() in (1, 2) and len(mask) == len(x)
        need(right, f"{key} must be [nodes] or [nodes, splits], got {tuple(mask.shape)}")
    splits = {key: 1 if mask.dim() == 1 else mask.shape[1] for key, mask in given.items()}
    told = ", ".join(f"{key} has {count}" for key, count in splits.items())
    need(len(set(splits.values())) <= 1, f"masks must have as many splits each, got {told}")
    if len(given) == len(PARTS):
        taken = torch.stack([mask.bool().reshape(len(mask), -1) for mask in given.values()]).sum(0)
        twice = int((taken > 1).sum())
        need(not twice, f"{', '.join(given)} must have no node in common, got {twice} in two of them")


def _check_labels(y: Tensor, need: Callable[[bool, str], None], name: str) -> None:
    need(not y.is_complex() and bool(torch.isfinite(y).all()), f"y must be finite real numbers, got {y.dtype}")
    part = y[y != y.round()].flatten()[:1].tolist() if y.is_floating_point() else []
    need(not part, f"y must be whole numbers, one class a node, got {part}")
    if y.dim() == 1 or y.shape[1] == 1:
        need(not y.is_floating_point(), f"y must be integers, one class a node, got {y.dtype}; give y.long()")
        most = max(len(y), CLASSES)
        need(int(y.max()) < most, f"y must be classes below {most}, got {int(y.max())}; number them from 0 upwards")
        used = torch.unique(y)
        need(int(used[0]) == 0, f"y must be classes from 0 upwards, got {int(used[0])} as the first; give y - y.min()")
        if len(used) <= int(used[-1]):
            empty = f"{int(used[-1]) + 1 - len(used)} of its {int(used[-1]) + 1} classes have no node"
            _tell(f"Data set {name!r}: {empty}. torch.unique(y, return_inverse=True)[1] numbers those that have.")
        return
    other = y[(y != 0) & (y != 1)][:1].tolist()
    need(not other, f"y of several labels a node must hold 0 and 1, got {other}")
    one_hot = bool((y.sum(1) == 1).all())
    told = f"got one-hot rows {tuple(y.shape)}, which would be scored as several labels, by F1; give y.argmax(1)"
    need(not one_hot, f"y must be classes, one a node, {told}")
    if bool((y.sum(1) <= 1).all()):
        told = "no node has two labels, but y has several columns, so that scores are F1"
        _tell(f"Data set {name!r}: {told}. For one class a node give a y of one dimension.")


def _tell(text: str) -> None:
    warnings.warn(text, stacklevel=2)
