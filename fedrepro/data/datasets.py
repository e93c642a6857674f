"""Load a graph by its name as one PyG `Data`: a real graph, a stand-in, or a graph of the user's own.

    data = split(prepare(load("Cora"), "undirected+row-sum"), "10/10/80", seed=0)

Files of real graphs are looked for in `$FEDREPRO_DATA`, then in `data/raw`. Their checksums are verified before they
are read.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import sys
import zipfile
import zlib
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.data import Data
from torch_geometric.utils import remove_self_loops, to_undirected

from fedrepro import paths, registry
from fedrepro.data import catalogue, formats, own, sources
from fedrepro.data.formats import PARTS, csr_matrix, csr_tensor, pack, standard, unpack
from fedrepro.errors import ArgumentError, DamagedError, one_of, require

if TYPE_CHECKING:
    import pandas as pd

NAMES = tuple(sources.SOURCES)
"""The real data sets; each has a stand-in, `"<name>~standin"`."""

STEPS = (
    "undirected",
    "no-self-loops",
    "largest-component",
    "row-sum",
    "unit-norm",
    "centred-norm",
    "standardized",
    "layer-norm",
)
"""The steps of `prepare`."""

# It stays, since `sources.verify` names the files in data/processed by the code that reads graphs.
_FORMAT = 1
_own: dict[str, Callable[..., Data]] = {}


def load(name: str, seed: int = 0) -> Data:
    """Return the graph of a name.

    Args:
        name: one of `NAMES`, one of them with `~standin`, one of `sources.INCOMPLETE`, or a registered name.
        seed: the seed of a stand-in, or of a registered loader that takes one. Real graphs ignore it.

    Returns:
        A graph with

        - `x`: float32 `[nodes, features]`, as `torch.sparse_csr` if less than 25% of the entries are non-zero.
        - `y`: int64 `[nodes]`, or float32 `[nodes, labels]` if a node has several labels.
        - `edge_index`: int64 `[2, edges]`, without repetitions and sorted by (row, col).
        - `num_classes` and `name`.
        - `public`: bool `[nodes, splits, 3]` for training, validation and test, if the data set publishes a split.
          `split` turns it into masks.

    Raises:
        ArgumentError: nothing has this name.
        DataError: the graph is not here and cannot be downloaded, or a file has another checksum or format.
    """
    generator = registry.generator(name)
    # A stand-in's code is imported by name, so that the fingerprints of results on real graphs do not depend on it.
    generates = importlib.import_module(generator.partition(":")[0]) if generator else None
    if name in _own:
        takes_seed = bool(inspect.signature(_own[name]).parameters)
        return standard(_own[name](seed) if takes_seed else _own[name](), name)
    one_of("data set", name, [*NAMES, *(f"{real}~standin" for real in NAMES), *_own])
    if generates is not None:
        return copy.copy(_standin(generates.standin, name.removesuffix("~standin"), seed))
    folder = sources.stage(sources.SOURCES[name])
    if folder is None:
        folder = sources.fetch_and_stage(name, limit=sources.ASK_ABOVE)
    return _read(name, folder, sources.verify(name, folder))


@lru_cache(maxsize=2)
def _standin(standin: Callable[[str, int], Data], name: str, seed: int) -> Data:
    return standin(name, seed)


def fetch(name: str) -> Path:
    """Download a data set of any size into `data/raw` unless it is here, and a damaged file of it again.

    Returns:
        The folder of the data set.

    Raises:
        ArgumentError: no data set has this name.
        DataError: the data set has no link, or the host cannot be reached.
        DamagedError: a file that came from the link is damaged, or one that has no link or is in `$FEDREPRO_DATA`,
            where nothing is written.
    """
    source = sources.SOURCES[one_of("data set", name, NAMES)]
    folder = sources.locate(source)
    if folder is None:
        return sources.fetch(name)
    try:
        load(name)
    except DamagedError:
        if not source.urls or folder != sources.download_folder(source):
            raise
        return sources.replace(name)
    return folder


def by_hand(name: str) -> bool:
    """Return whether a graph was registered by hand, and is none of the package's own."""
    return name in _own and registry.generator(name) is None


def register(name: str, loader: Callable[..., Data]) -> None:
    """Add a graph of your own under a name.

    Args:
        name: the name for a `Run`, not one of `NAMES`.
        loader: a function of nothing or of the seed, which goes to a parameter named `seed` or to one without a
            default. It returns a `Data` with `x`, `y`, `edge_index` and, if the graph has a split, all of `train_mask`,
            `val_mask` and `test_mask`, `[nodes]` or `[nodes, splits]`. Labels are integers from 0 upwards, and edges
            have neither weights nor attributes. Each `load` calls it and checks its graph.

    Raises:
        ArgumentError: the name is no string or is taken by a real data set or a stand-in, or the loader cannot be
            called with nothing or with the seed.
    """
    require(isinstance(name, str), "name", "a string", name)
    generated = registry.generator(name) is not None and not name.endswith("~standin")
    require(not generated, "name", "none that a paper of the suite gives to graphs that it generates", name)
    add(name, own.checked(name, loader))


def add(name: str, loader: Callable[..., Data]) -> None:
    """Add a graph that a paper of the suite makes. `register` adds one of the user's own, and checks more."""
    require(callable(loader), "loader", "a function that returns a Data", loader)
    free = bool(name) and name.removesuffix("~standin") not in NAMES
    require(free, "name", "a name that no real data set or stand-in has", name)
    _own[name] = loader


def _read(name: str, folder: Path, sha256: str) -> Data:
    """Return a real graph from the copy in `data/processed`, or else from the copies of its files that were verified.

    Args:
        folder: private to this process.
    """
    cached = paths.root() / "data" / "processed" / f"{sha256[:16]}-{_FORMAT}.npz"
    # `sources.verify` has removed a copy that is damaged. One that is missing is written again.
    with contextlib.suppress(OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return unpack(cached, name)
    source = sources.SOURCES[name]
    try:
        data = formats.read(source.format, folder, source.files, **source.arguments)
    except (LookupError, ValueError, TypeError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise DamagedError(f"A file of {name} in {folder} cannot be read: {error!r}.") from error
    data = standard(data, name)
    # In a read-only checkout there is no copy, and the raw files are read each time.
    with contextlib.suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        sources.keep(cached, pack(data))
    return data


def prepare(data: Data, steps: str) -> Data:
    """Return a prepared copy of a graph, with steps applied in the order written.

    - `undirected`: add the reverse of every edge.
    - `no-self-loops`: remove self-loops.
    - `largest-component`: keep the largest weakly connected component, of equal ones that with the lowest node.
    - `row-sum`: divide each row of x by its sum. Zero rows stay zero.
    - `unit-norm`: divide each row of x by its L2 norm. Zero rows stay zero.
    - `centred-norm`: subtract its mean from each row, then divide the row by its L2 norm.
    - `standardized`: subtract the training nodes' mean from each column, then divide by their standard deviation.
    - `layer-norm`: subtract its mean from each row, then divide by sqrt(variance + 1e-5).

    Sparse features stay sparse under the first five. The other three make them dense.

    Args:
        data: a graph as `load` returns it.
        steps: names from `STEPS` joined by "+", such as `"undirected+row-sum"`. The empty string does nothing.

    Raises:
        ArgumentError: an unknown step, `row-sum` of negative features, or `standardized` before `split`.
    """
    data = copy.copy(data)
    for step in steps.split("+") if steps else []:
        one_of("prepare step", step, STEPS)
        if step == "undirected":
            data.edge_index = to_undirected(data.edge_index, num_nodes=data.num_nodes)
        elif step == "no-self-loops":
            data.edge_index = remove_self_loops(data.edge_index)[0]
        elif step == "largest-component":
            data = _largest_component(data)
        elif step in ("row-sum", "unit-norm"):
            data.x = _rows_scaled(data.x, step)
        else:
            data.x = _rows_centred(data, step)
    return data


def _largest_component(data: Data) -> Data:
    nodes = data.num_nodes
    row, col = data.edge_index.numpy()
    graph = sp.coo_matrix((np.ones(row.size, np.int8), (row, col)), (nodes, nodes))
    _, component = sp.csgraph.connected_components(graph, directed=True, connection="weak")
    return subgraph(data, torch.from_numpy(component == np.bincount(component).argmax()))


def subgraph(data: Data, keep: torch.Tensor) -> Data:
    """Return the nodes for which `keep` `[nodes]` is true, in their order, and the edges between them."""
    part = copy.copy(data)
    new_index = torch.cumsum(keep, 0) - 1
    part.edge_index = new_index[data.edge_index[:, keep[data.edge_index].all(0)]]
    for key in ("y", "public", *(f"{name}_mask" for name in PARTS)):
        if key in data:
            part[key] = data[key][keep]
    sparse = data.x.layout == torch.sparse_csr
    part.x = csr_tensor(csr_matrix(data.x)[keep.numpy()]) if sparse else data.x[keep]
    return part


def _rows_scaled(x: torch.Tensor, step: str) -> torch.Tensor:
    sparse = x.layout == torch.sparse_csr
    matrix: Any = csr_matrix(x) if sparse else x.numpy()
    if step == "row-sum":
        lowest = float((matrix.data if sparse else matrix).min(initial=0))
        require(lowest >= 0, "prepare step 'row-sum'", "given features without negative entries", lowest)
        size = np.asarray(matrix.sum(1)).ravel()
    else:
        squares = matrix.multiply(matrix) if sparse else matrix**2
        size = np.sqrt(np.asarray(squares.sum(1)).ravel())
    scale = np.where(size > 0, 1 / np.maximum(size, np.finfo(np.float32).tiny), 0).astype(np.float32)
    if sparse:
        return csr_tensor(sp.csr_matrix(sp.diags(scale) @ matrix))
    return torch.from_numpy(matrix * scale[:, None])


def _rows_centred(data: Data, step: str) -> torch.Tensor:
    x: torch.Tensor = data.x.to_dense()
    if step == "standardized":
        ready = "train_mask" in data
        require(ready, "prepare step 'standardized'", "applied after split", "a graph without train_mask")
        train = x[data.train_mask].double()
        mean, deviation = train.mean(0), train.std(0, correction=0)
        deviation = torch.where(deviation > 0, deviation, 1.0)
        return (x - mean.float()) / deviation.float()
    if step == "layer-norm":
        return torch.nn.functional.layer_norm(x, x.shape[1:])
    return torch.nn.functional.normalize(x - x.mean(1, keepdim=True), dim=1, eps=1e-6)


def split(data: Data, name: str, seed: int = 0) -> Data:
    """Return a copy of a graph with `train_mask`, `val_mask` and `test_mask`, bool `[nodes]`.

    Args:
        data: a graph as `load` or `prepare` returns it.
        name: `"public"` for the published split (of several, number `seed` modulo their count), or percentages
            `"a/b/c"` of training, validation and test nodes. They are drawn uniformly over all nodes, not by class.
            Training and test are rounded down and validation is the rest, as in the public code of FedStruct and
            FedSheafHN.
        seed: the seed of the draw, which depends on nothing else.

    Raises:
        ArgumentError: the data set has no public split, the percentages are not three positive numbers with sum 100,
            or a part is empty.
    """
    require(seed >= 0, "seed", "an integer of at least 0", seed)
    if name == "public":
        require("public" in data, "split", "percentages such as '10/10/80': this set publishes none", name)
        masks = data.public[:, seed % data.public.shape[1]]
    else:
        masks = _percentages(data.num_nodes, name, seed)
    data = copy.copy(data)
    for part, mask in zip(PARTS, masks.unbind(1), strict=True):
        data[f"{part}_mask"] = mask.clone()
    return data


def _percentages(nodes: int, name: str, seed: int) -> torch.Tensor:
    allowed = "'public', or three positive percentages with sum 100 such as '10/10/80'"
    try:
        shares = [Fraction(share) for share in name.split("/")]
    except ValueError:
        raise ArgumentError(f"split must be {allowed}. Got {name!r}.") from None
    require(len(shares) == 3 and min(shares) > 0 and sum(shares) == 100, "split", allowed, name)
    train, test = (int(nodes * shares[part] / 100) for part in (0, 2))
    full = min(train, test, nodes - train - test) > 0
    require(full, "split", f"of parts with at least one of the {nodes} nodes", name)
    order = np.random.default_rng([seed, zlib.crc32(b"split")]).permutation(nodes)
    masks = torch.zeros(nodes, 3, dtype=torch.bool)
    for part, members in enumerate((order[:train], order[train : nodes - test], order[nodes - test :])):
        masks[members, part] = True
    return masks


def assemble(name: str, steps: str = "", split_name: str = "", seed: int = 0) -> Data:
    """Load, prepare and split a graph. Steps before `standardized` come before the split, the others after it.

    Args:
        name: name of the data set.
        steps: the steps, see `prepare`.
        split_name: the split, see `split`. The empty string leaves the graph without masks.
        seed: the seed of the split, and of a stand-in.

    Raises:
        ArgumentError, DataError: see `load`, `prepare` and `split`.
    """
    before, mark, after = steps.partition("standardized")
    data = prepare(load(name, seed), before.removesuffix("+"))
    if split_name:
        data = split(data, split_name, seed)
    return prepare(data, mark + after)


def check(name: str, steps: str = "", split_name: str = "") -> None:
    """Raise unless `assemble` knows a graph, steps and split by these names. Nothing is loaded.

    Raises:
        ArgumentError: the message names what is not known.
    """
    generator = registry.generator(name)
    if generator:
        importlib.import_module(generator.partition(":")[0])  # which adds its graphs
    one_of("data set", name, [*NAMES, *(f"{real}~standin" for real in NAMES), *_own])
    for step in steps.split("+") if steps else []:
        one_of("prepare step", step, STEPS)
    if split_name not in ("", "public"):
        _percentages(10**5, split_name, 0)


def describe() -> pd.DataFrame:
    """Return a table of the real data sets: where they are, the size of a download, licence and size of the graph.

    Returns:
        Columns `name`, `here`, `folder`, `download_MB`, `download` ("at first use", "on request" or "by hand"),
        `licence`, `origin`, `nodes`, `directed_edges`, `undirected_edges`, `features`, `classes` and `lacks`, what is
        missing of an incomplete one. Registered graphs follow, with only their name.
    """
    import pandas as pd

    rows = catalogue.rows()
    rows += [{"name": name, "here": True, "folder": "registered"} for name in _own if name not in sources.INCOMPLETE]
    return pd.DataFrame(rows)


def evaluator(name: str) -> Callable[[torch.Tensor, torch.Tensor], float]:
    """Return the scoring function that the publishers of a data set prescribe.

    Args:
        name: "ogbn-arxiv", the only graph here with an official evaluator (ogb's).

    Returns:
        A function of the predicted and the true classes `[nodes]` that returns the accuracy, from 0 to 1.

    Raises:
        ArgumentError: the data set has no official evaluator.
    """
    one_of("data set with an official evaluator", name, ["ogbn-arxiv"])
    # When imported, ogb starts a thread that asks PyPI for its newest version, unless `outdated` cannot be imported.
    installed = sys.modules.get("outdated")
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        from ogb.nodeproppred import Evaluator
    finally:
        if installed is None:
            del sys.modules["outdated"]
        else:
            sys.modules["outdated"] = installed
    official = Evaluator(name)

    def accuracy(predicted: torch.Tensor, true: torch.Tensor) -> float:
        scores: dict[str, float] = official.eval({"y_pred": predicted[:, None], "y_true": true[:, None]})
        return scores["acc"]

    return accuracy
