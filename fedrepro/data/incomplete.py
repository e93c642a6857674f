"""Read a real graph of which a part is missing, under the separate name `"<name>~incomplete"`.

`sources.toml` says which part is missing. Results on such a graph keep its name. They are compared with printed numbers
only where the missing part hardly matters, and never count as results on the whole graph.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from fedrepro.data import datasets, formats, sources
from fedrepro.errors import DamagedError


def load(name: str) -> Data:
    """Return the graph of a name in `sources.INCOMPLETE` from verified copies of its raw files.

    Raises:
        DataError: the graph is not here, or a file has another checksum or format.
    """
    source = sources.INCOMPLETE[name]
    folder = sources.stage(source)
    if folder is None:
        raise sources.missing(name)
    sources.verify(name, folder)
    try:
        return READERS[source.format](folder, source.files)
    except (LookupError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise DamagedError(f"A file of {name} in {folder.origin} cannot be read: {error!r}.") from error


def read_without_features(folder: Path, files: tuple[str, ...]) -> Data:
    """Read ogb's files of edges, labels and split, in this order. Features are `[nodes, 0]`."""
    import pandas as pd

    def table(file: str) -> torch.Tensor:
        frame = pd.read_csv(folder / file, header=None, dtype=np.int64, compression="gzip")
        return torch.from_numpy(frame.to_numpy(copy=True))

    edges, labels, *split = (table(file) for file in files)
    nodes = len(labels)
    data = Data(x=torch.zeros(nodes, 0), y=labels.squeeze(1), edge_index=coalesce(edges.t(), num_nodes=nodes))
    for part, index in zip(formats.PARTS, split, strict=True):
        data[f"{part}_mask"] = torch.zeros(nodes, dtype=torch.bool).index_fill(0, index.squeeze(1), True)
    return data


READERS: dict[str, Callable[[Path, tuple[str, ...]], Data]] = {
    "heterophilous": formats.read_heterophilous,
    "ogb-csv-without-features": read_without_features,
}

for _name in sources.INCOMPLETE:
    datasets.add(_name, partial(load, _name))
