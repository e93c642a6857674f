"""A name becomes one PyG `Data`: a real graph, checked by checksum, a stand-in, or a graph of the user's own.

    data = split(prepare(load("Cora"), "undirected+row-sum"), "10/10/80", seed=0)

Real graphs are looked for in `$FEDREPRO_DATA`, then in `data/raw`.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
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
from fedrepro.data import formats, sources
from fedrepro.data.formats import PARTS, csr_matrix, csr_tensor, pack, standard, unpack
from fedrepro.data.shapes import SHAPES
from fedrepro.errors import ArgumentError, DataError, one_of, require

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
"""What `prepare` can do."""

_FORMAT = 1  # of the files in data/processed; raise it when a reader or `formats.standard` changes
_own: dict[str, Callable[..., Data]] = {}


def load(name: str, seed: int = 0) -> Data:
    """The graph of a name.

    Args:
        name: one of `NAMES`, one of them with `~standin`, or a registered name.
        seed: of a stand-in, and of a registered loader that takes one; a real graph has none.

    Returns:
        `x` float32 `[nodes, features]` (`torch.sparse_csr` where under 25% is non-zero), `y` int64 `[nodes]`
        or, with several labels a node, float32 `[nodes, labels]`, `edge_index` int64 `[2, edges]` without
        repetitions and sorted by (row, col), `num_classes`, `name`, and, where the set publishes a split,
        `public`, bool `[nodes, splits, 3]`: training, validation and test. `split` makes the masks.

    Raises:
        ArgumentError: nothing has this name.
        DataError: the graph is not here and cannot be downloaded, or a file is not what it should be.
    """
    generator = registry.generator(name)
    # A stand-in's code is imported by name, so that it does not count as code behind the results on a real graph.
    generates = importlib.import_module(generator.partition(":")[0]) if generator else None
    if name in _own:
        takes_seed = bool(inspect.signature(_own[name]).parameters)
        return standard(_own[name](seed) if takes_seed else _own[name](), name)
    one_of("data set", name, [*NAMES, *(f"{each}~standin" for each in NAMES), *_own])
    if generates is not None:
        return copy.copy(_standin(generates.standin, name.removesuffix("~standin"), seed))
    folder = sources.locate(sources.SOURCES[name])
    if folder is None:
        folder = sources.fetch(name, limit=sources.ASK_ABOVE)
    return _read(name, folder, sources.verify(name, folder))


@lru_cache(maxsize=2)
def _standin(standin: Callable[[str, int], Data], name: str, seed: int) -> Data:
    return standin(name, seed)


def fetch(name: str) -> Path:
    """Download a data set of any size into `data/raw` unless it is here.

    Returns:
        Its folder.

    Raises:
        ArgumentError: no data set has this name.
        DataError: it must be got by hand, the host cannot be reached, or a checksum differs.
    """
    folder = sources.locate(sources.SOURCES[one_of("data set", name, NAMES)])
    return sources.fetch(name) if folder is None else folder


def register(name: str, loader: Callable[..., Data]) -> None:
    """Add a graph of your own under `name`.

    Args:
        name: as it will be written in a `Run`; not one of `NAMES`.
        loader: a function of nothing or of the seed that returns a `Data` with `x`, `y`, `edge_index` and, if
            the graph has a split, all of `train_mask`, `val_mask`, `test_mask`, `[nodes]` or `[nodes, splits]`.
            Edges have no weights. It is called at each `load`, and what it returns is checked there.

    Raises:
        ArgumentError: the name is taken by a real data set or a stand-in, or the loader cannot be called.
    """
    require(callable(loader), "loader", "a function that returns a Data", loader)
    free = bool(name) and name.removesuffix("~standin") not in NAMES
    require(free, "name", "a name that no real data set or stand-in has", name)
    _own[name] = loader


# --- reading ------------------------------------------------------------------------------------------------


def _read(name: str, folder: Path, sha256: str) -> Data:
    """A real graph whose files have been verified, from the copy in `data/processed` if there is one."""
    cached = paths.root() / "data" / "processed" / f"{sha256[:16]}-{_FORMAT}.npz"
    with contextlib.suppress(OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):  # none, or torn: made again
        return unpack(cached, name)
    source = sources.SOURCES[name]
    try:
        data = formats.read(source.format, folder, source.files, **source.arguments)
    except (LookupError, ValueError, TypeError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"A file of {name} in {folder} cannot be read: {error!r}.") from error
    data = standard(data, name)
    with contextlib.suppress(OSError):  # in a read-only checkout it is read again each time
        cached.parent.mkdir(parents=True, exist_ok=True)
        sources.write(cached, pack(data))
    return data


# --- preparing and splitting --------------------------------------------------------------------------------


def prepare(data: Data, steps: str) -> Data:
    """Apply steps in the order written; `data` itself is left as it is.

    - `undirected`: every edge in both directions. `no-self-loops`: none.
    - `largest-component`: the largest weakly connected component, of several the one with the lowest node.
    - `row-sum`: each row of x divided by its sum. `unit-norm`: by its L2 norm. Zero rows stay zero.
    - `centred-norm`: each row minus its mean, then divided by its L2 norm.
    - `standardized`: each column minus the training nodes' mean, divided by their standard deviation.
    - `layer-norm`: each row minus its mean, divided by sqrt(variance + 1e-5).

    Sparse features stay sparse under the first five; the other three make them dense.

    Args:
        data: as `load` returns it.
        steps: names from `STEPS` joined by "+", such as `"undirected+row-sum"`; "" does nothing.

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
    """The nodes where `keep` `[nodes]` is true, in their order, and the edges among them."""
    part = copy.copy(data)
    number = torch.cumsum(keep, 0) - 1
    part.edge_index = number[data.edge_index[:, keep[data.edge_index].all(0)]]
    for key in ("y", "public", *(f"{each}_mask" for each in PARTS)):
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
    """Add `train_mask`, `val_mask`, `test_mask`, bool `[nodes]`; `data` itself is left as it is.

    Args:
        data: as `load` or `prepare` returns it.
        name: `"public"`, the split the set publishes (of several, number `seed` modulo their count); or
            percentages `"a/b/c"` of training, validation and test nodes, drawn uniformly over all nodes, not
            by class: training and test are rounded down and validation is the rest, as in the public code of
            FedStruct and FedSheafHN.
        seed: of the draw, a function of it alone.

    Raises:
        ArgumentError: the set has no public split; or no three positive numbers, or not 100 in sum, or an
            empty part.
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
    for part, chosen in enumerate((order[:train], order[train : nodes - test], order[nodes - test :])):
        masks[chosen, part] = True
    return masks


def assemble(name: str, steps: str = "", split_name: str = "", seed: int = 0) -> Data:
    """Load, prepare and split: steps before `standardized` come before the split, the rest after it.

    Args:
        name: of the data set.
        steps: as in `prepare`.
        split_name: as in `split`; "" leaves the graph without masks.
        seed: of the split, and of a stand-in.

    Raises:
        ArgumentError, DataError: as `load`, `prepare` and `split`.
    """
    before, mark, after = steps.partition("standardized")
    data = prepare(load(name, seed), before.removesuffix("+"))
    if split_name:
        data = split(data, split_name, seed)
    return prepare(data, mark + after)


# --- describing ---------------------------------------------------------------------------------------------


def statistics(data: Data) -> dict[str, Any]:
    """Counts of a graph, with edges in every convention the papers mix (FG-Q18, FS-Q15, SH-Q15).

    Returns:
        `nodes`; `directed_edges`: columns of `edge_index`, that is both directions of an undirected edge, and
        self-loops; `undirected_edges`: distinct pairs of different nodes joined in either direction;
        `self_loops`; `features`; `classes`; `class_nodes`: nodes per class (per label); `homophily`: share of
        `undirected_edges` within a class (nan with several labels a node); `degree_50`, `degree_90`,
        `degree_99`: quantiles of the degree in `undirected_edges`; `isolated`: nodes of degree 0; `density`:
        share of non-zero features; `train`, `val`, `test`: nodes of the present split, else of the (first)
        public one, else 0.

    FedGAT's 5429, 4732 and 44338 edges of Cora, CiteSeer and PubMed are half the entries of the raw adjacency lists,
    with repetitions and self-loops; FedStruct's 5278, 4676 and 44327 are `undirected_edges` plus the self-loops of the
    raw files (0, 124, 3), which PyG removes on loading; FedSheafHN's are `directed_edges` of the largest component.
    """
    nodes = data.num_nodes
    row, col = data.edge_index.numpy()
    apart = row != col
    low, high = np.minimum(row, col)[apart], np.maximum(row, col)[apart]
    pairs = np.unique(low * nodes + high)
    one, two = pairs // nodes, pairs % nodes
    degree = np.bincount(one, minlength=nodes) + np.bincount(two, minlength=nodes)
    y = data.y.numpy()
    counts = np.bincount(y, minlength=data.num_classes) if y.ndim == 1 else y.sum(0).astype(int)
    same = float(np.mean(y[one] == y[two])) if y.ndim == 1 and pairs.size else float("nan")
    filled = data.x.values() if data.x.layout == torch.sparse_csr else data.x
    quantiles = {f"degree_{part}": float(np.quantile(degree, part / 100)) for part in (50, 90, 99)}
    masks = [data.get(f"{part}_mask") for part in PARTS]
    if masks[0] is None:
        masks = list(data.public[:, 0].unbind(1)) if "public" in data else [torch.zeros(0)] * 3
    return {
        "nodes": nodes,
        "directed_edges": row.size,
        "undirected_edges": pairs.size,
        "self_loops": int((~apart).sum()),
        "features": data.x.shape[1],
        "classes": data.num_classes,
        "class_nodes": counts.tolist(),
        "homophily": same,
        **quantiles,
        "isolated": int((degree == 0).sum()),
        "density": int(torch.count_nonzero(filled)) / (nodes * data.x.shape[1]),
        **{part: int(mask.sum()) for part, mask in zip(PARTS, masks, strict=True)},
    }


def describe() -> pd.DataFrame:
    """One row per real data set: whether and where it is here, what would be downloaded, licence and size.

    Returns:
        Columns `name`, `here`, `folder`, `download_MB`, `download` ("at first use", "on request" or "by
        hand"), `licence`, `origin`, `nodes`, `directed_edges`, `undirected_edges`, `features`, `classes`;
        registered graphs follow with their name alone.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for name, source in sources.SOURCES.items():
        shape, folder = SHAPES[name], sources.locate(source)
        small = "at first use" if source.megabytes <= sources.ASK_ABOVE else "on request"
        rows.append(
            {
                "name": name,
                "here": folder is not None,
                "folder": str(folder or ""),
                "download_MB": source.megabytes,
                "download": small if source.urls else "by hand",
                "licence": source.licence,
                "origin": source.origin,
                "nodes": shape.nodes,
                "directed_edges": shape.edges,
                "undirected_edges": shape.pairs,
                "features": shape.features,
                "classes": shape.labels or len(shape.classes),
            }
        )
    rows += [{"name": name, "here": True, "folder": "registered"} for name in _own]
    return pd.DataFrame(rows)
