"""Read a graph of the user's own from files: two tables, or arrays of NumPy."""

from __future__ import annotations

import copy
import hashlib
import os
import re
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from fedrepro.data import datasets
from fedrepro.data.formats import PARTS
from fedrepro.errors import ArgumentError, DataError, one_of, require

ARRAYS = ("x", "y", "edge_index")
NAMED = ("id", "label", "split")  # columns that are no features
IDS = ("node_id", "node", "name")  # other words for `id`, which would be features


def graph(
    file: str | os.PathLike[str] = "",
    *,
    nodes: str | os.PathLike[str] = "",
    edges: str | os.PathLike[str] = "",
    name: str = "",
) -> str:
    """Read a graph, register it, and return the name by which a `Run` and `fr.load` know it.

    Args:
        file: an .npz file with the arrays `x` `[nodes, features]`, `y` `[nodes]` and `edge_index` `[2, edges]`, and
            perhaps `train_mask`, `val_mask` and `test_mask` `[nodes]`.
        nodes: instead of `file`, a CSV table with a heading and one row a node. The column `label` holds its class, a
            number or a word such as NA, and classes are numbered in sorted order. A column `id` names the node; without
            one, nodes are numbered by row from 0. A column `split` holds train, val, test or nothing. All other columns
            are features.
        edges: a CSV table with a heading, whose first two columns name the nodes of an edge. A warning names others,
            such as weights, which are not used.
        name: how the name begins; default the name of the file. The checksum of the files follows, so that a changed
            file is another data set, and no result of the former is shown for it.

    Returns:
        The name. Each edge has both directions. With a split the graph has the split `public`.

    Raises:
        ArgumentError: neither a file nor both tables are given, one of them is no file, or all nodes have one label.
        DataError: a file cannot be read as such a graph; the message says what is wrong where.
    """
    given = {"file": file, "nodes": nodes, "edges": edges}
    for argument, path in given.items():
        told = "the path of a file (a Data is given a name by `fr.datasets.register(name, lambda: data)`)"
        require(isinstance(path, str | os.PathLike), argument, told, type(path).__name__)
    named = [argument for argument, path in given.items() if path]
    require(named in (["file"], ["nodes", "edges"]), "the files", "either file, or both nodes and edges", named)
    inputs = [Path(given[argument]) for argument in named]
    for argument, path in zip(named, inputs, strict=True):
        require(path.is_file(), argument, "a file", str(path))
    data = _arrays(inputs[0]) if file else _tables(*inputs)
    content = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    name = f"{name or inputs[0].stem}-{content[:8]}"
    datasets.register(name, lambda: copy.copy(data))
    if data.edge_index.dim() == 2 and len(data.edge_index) == 2 and data.edge_index.numel():
        datasets.load(name)  # whose checks are told here
        data.edge_index = to_undirected(data.edge_index, num_nodes=len(data.x))
    datasets.load(name)
    if len(torch.unique(data.y)) == 1:
        raise ArgumentError(f"the labels in {inputs[0]} must be of two classes or more. Got one class.")
    return name


def _arrays(path: Path) -> Data:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            held = {key: file[key] for key in file.files}
    except (ValueError, TypeError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is no whole .npz file of plain arrays, as `numpy.savez` writes it.") from error
    known = (*ARRAYS, *(f"{part}_mask" for part in PARTS))
    for key in (*ARRAYS, *held):
        if key not in held or key not in known:
            what = f"lacks the array {key!r}" if key not in held else f"has an array {key!r} that has no meaning here"
            raise DataError(f"{path} {what}. It must have {', '.join(ARRAYS)}, and may have {', '.join(known[3:])}.")
    for key, array in held.items():
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise DataError(f"{path} must hold numbers of at most 64 bits in the array {key!r}. Got {array.dtype}.")
        if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
            raise DataError(f"{path} must hold numbers below 2**63 in the array {key!r}. Got {array.max()}.")
        # Torch computes neither with unsigned numbers nor with another order of bytes.
        held[key] = array.astype({"i": np.int64, "u": np.int64}.get(array.dtype.kind, array.dtype.newbyteorder("=")))
    return Data(**{key: torch.from_numpy(array) for key, array in held.items()})


def _tables(nodes: Path, edges: Path) -> Data:
    table = _read(nodes, dict.fromkeys(NAMED, str))
    _check_heading(nodes, list(table))
    empty = table["label"].isna()
    if empty.any():
        raise DataError(f"{nodes} has no label in row {_row(empty)}.")
    features = [column for column in table if column not in NAMED]
    require(bool(features), "nodes", "a table with columns of features, such as one of ones", list(table))
    for column in features:
        odd = pd.to_numeric(table[column], errors="coerce").isna()
        if odd.any():
            value = table[column].astype(object)[odd].iloc[0]
            told = repr(value) if isinstance(value, str) else "nothing"
            raise DataError(f"{nodes} must hold numbers in {column!r}. Row {_row(odd)} has {told}.")
    ids = table["id"] if "id" in table else table.index.astype(str).to_series(index=table.index)
    if ids.duplicated().any():
        raise DataError(f"{nodes} has two rows with the id {ids[ids.duplicated()].iloc[0]!r}.")
    labels = table["label"]
    numbers = pd.to_numeric(labels, errors="coerce")
    between = numbers[numbers != numbers.round()]
    if len(between) and not numbers.isna().any():
        raise DataError(f"{nodes} must hold words or whole numbers in the column label. Got {between.iloc[0]}.")
    y = (labels if numbers.isna().any() else numbers).factorize(sort=True)[0]
    data = Data(
        x=torch.from_numpy(table[features].to_numpy(np.float32, copy=True)),
        y=torch.from_numpy(y.astype(np.int64)),
        edge_index=_ends(edges, ids),
    )
    if "split" in table:
        parts = table["split"].fillna("")
        for part in parts.unique():
            one_of(f"the column split of {nodes}", part, [*PARTS, ""])
        if absent := [part for part in PARTS if not (parts == part).any()]:
            raise DataError(f"{nodes} must have {', '.join(PARTS)} in the column split. No row has {absent[0]}.")
        data.update({f"{part}_mask": torch.from_numpy((parts == part).to_numpy(copy=True)) for part in PARTS})
    return data


def _check_heading(path: Path, columns: list[str]) -> None:
    """Raise if a column of nodes lacks, or if one seems to be meant that would be read as a feature."""
    _check_named(path, columns)
    meant = dict.fromkeys(NAMED) if "id" in columns else dict.fromkeys((*NAMED, *IDS))
    for column in columns:
        plain = column.strip().lower()
        if plain in meant and column not in NAMED:
            name = "id" if plain in IDS else plain
            told = "or, if it is a feature, something else"
            raise DataError(f"{path} has a column {column!r}, which would be a feature. Call it {name!r} {told}.")
    if "label" not in columns:
        has = ", ".join(map(repr, columns))
        raise DataError(f"{path} must have a column 'label', separated by commas. It has {has}.")


def _check_named(path: Path, columns: list[str]) -> None:
    """Raise if a column has no name, as the index that pandas writes."""
    for column in columns:
        if re.fullmatch(r"Unnamed: \d+", column):
            told = "pandas writes its index so; `to_csv(..., index=False)` leaves it out"
            raise DataError(f"{path} must have a name for each column. Got {column!r}: {told}.")


def _ends(path: Path, ids: pd.Series) -> torch.Tensor:
    table = _read(path, str)
    require(
        table.shape[1] >= 2, "edges", f"a table of at least two columns, such as source and target, {path}", list(table)
    )
    ends_at = list(table.columns[:2])
    _check_named(path, ends_at)
    if set(ends_at) <= set(ids):
        told = f"Its first line names two nodes, {ends_at[0]!r} and {ends_at[1]!r}"
        raise DataError(f"{path} must have a heading, such as source,target, which names no nodes. {told}.")
    if more := [str(name) for name in table.columns[2:]]:
        told = "a method weighs edges by degree, and edges have no features"
        warnings.warn(f"{path}: what is in {', '.join(map(repr, more))} is not used, since {told}.", stacklevel=4)
    place = pd.Series(np.arange(len(ids)), index=ids)
    ends = [place.reindex(table[column]) for column in table.columns[:2]]
    for column, end in zip(table.columns, ends):
        odd = end.isna().reset_index(drop=True)
        if odd.any():
            raise DataError(
                f"{path} must name nodes. Row {_row(odd)} has {table[column][odd].iloc[0]!r} in {column!r}."
            )
    return torch.from_numpy(np.stack([end.to_numpy(np.int64) for end in ends]))


def _read(path: Path, dtype: type | dict[str, type]) -> pd.DataFrame:
    try:
        heading = pd.read_csv(path, dtype=str, skipinitialspace=True, header=None, nrows=1).iloc[0].dropna().tolist()
        table = pd.read_csv(path, dtype=dtype, skipinitialspace=True, keep_default_na=False, na_values=[""])
    except (ValueError, OSError) as error:  # of which pandas' own errors are kinds
        raise DataError(f"{path} is no table of CSV: {' '.join(str(error).split())}") from error
    if not isinstance(table.index, pd.RangeIndex):  # pandas takes a first column without a heading for an index
        raise DataError(f"{path} must have a name for each column. Its rows have more columns than its heading.")
    if twice := [name for name, count in Counter(heading).items() if count > 1]:
        raise DataError(f"{path} must have columns of different names. Got {twice[0]!r} twice.")
    if table.empty:
        raise ArgumentError(f"{path} must have at least one row below its heading. Got none.")
    return table


def _row(wrong: pd.Series) -> int:
    """Return the number of the first line of a table that is wrong; the heading is line 1."""
    return int(wrong.to_numpy().argmax()) + 2
