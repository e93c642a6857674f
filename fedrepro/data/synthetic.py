"""Generate synthetic graphs: contextual stochastic block models, and stand-ins for the real data sets.

A stand-in is a degree-corrected stochastic block model with a fixed degree sequence. Its statistics equal the published
ones of a real graph, and its name is that graph's name followed by `~standin`. It shows that a method runs, and not how
the method scores on the real graph.
"""

from __future__ import annotations

import math
import numbers
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from fedrepro.data.formats import features_of
from fedrepro.data.shapes import SHAPES, Shape
from fedrepro.errors import one_of, require

Array = npt.NDArray[Any]


def csbm(
    nodes: int,
    degree: float,
    lam: float,
    mu: float,
    features: int,
    seed: int = 0,
    *,
    noise: str = "1/sqrt(p)",
    noise_seed: int | None = None,
) -> Data:
    """Draw a contextual stochastic block model with two classes (GFL-APPNP, Section 5; Deshpande et al. 2018).

    The class v_i = +-1 of each node is a fair coin. With N nodes and p features,

        P(edge i-j) = (degree + lam sqrt(degree)) / N  within a class, and with - in place of + between classes,
        x_i = sqrt(mu / N) v_i u + z_i / sqrt(p),  u ~ N(0, I / p),  z_i ~ N(0, I).

    Args:
        nodes: number of nodes N.
        degree: mean degree.
        lam: strength of the graph. A negative value means a heterophilic graph.
        mu: strength of the features.
        features: number of features p.
        seed: seed of the classes v, the edges and the direction u.
        noise: scale of z, `"1/sqrt(p)"`, or `"1/p"` as the paper prints it, with which the features by themselves
            determine the classes (GFL-Q2).
        noise_seed: seed of only the noise z, so that features can be redrawn over one graph. None means `seed`.

    Returns:
        `x` `[nodes, features]`, `y` `[nodes]` (0 if v = -1), `edge_index` in both directions without self-loops, and
        `parameters` with the arguments, `v` `[nodes]`, `u` `[features]` and `phi = 2/pi arctan(lam sqrt(N/p) / mu)`.

    Raises:
        ArgumentError: an argument has another type or is out of range, or an edge probability is not within [0, 1].
    """
    for name, number, smallest in (("nodes", nodes, 2), ("features", features, 1), ("seed", seed, 0)):
        _whole(name, number, smallest)
    if noise_seed is not None:
        _whole("noise_seed", noise_seed, 0)
    for name, strength, least in (("degree", degree, 0.0), ("mu", mu, 0.0), ("lam", lam, -math.inf)):
        finite = isinstance(strength, numbers.Real) and not isinstance(strength, bool) and math.isfinite(strength)
        told = "a finite number" if least < 0 else "a finite number of at least 0"
        require(finite and strength >= least, name, told, strength)
    return draw_csbm(nodes, degree, lam, mu, features, seed, noise=noise, noise_seed=noise_seed)


def _whole(name: str, value: Any, least: int) -> None:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least
    require(whole, name, f"an integer of at least {least}", value)


def draw_csbm(
    nodes: int,
    degree: float,
    lam: float,
    mu: float,
    features: int,
    seed: int = 0,
    *,
    noise: str = "1/sqrt(p)",
    noise_seed: int | None = None,
) -> Data:
    """Draw the graph of `csbm`, whose arguments have the right types."""
    one_of("noise", noise, ["1/sqrt(p)", "1/p"])
    require(nodes > 1, "nodes", "at least 2", nodes)
    require(features > 0, "features", "at least 1", features)
    require(mu >= 0, "mu", "at least 0", mu)
    inside, outside = (degree + sign * lam * math.sqrt(degree) for sign in (1, -1))
    require(min(inside, outside) >= 0, "lam", "within [-sqrt(degree), sqrt(degree)]", lam)
    require(max(inside, outside) <= nodes, "degree", "small enough for edge probabilities up to 1", degree)
    rng = np.random.default_rng([seed, zlib.crc32(b"csbm")])
    v = np.where(rng.random(nodes) < 0.5, -1, 1)
    u = rng.standard_normal(features) / math.sqrt(features)
    row, col = np.triu_indices(nodes, 1)
    linked = rng.random(row.size) < np.where(v[row] == v[col], inside, outside) / nodes
    z = np.random.default_rng([seed if noise_seed is None else noise_seed, zlib.crc32(b"noise")])
    scale = math.sqrt(features) if noise == "1/sqrt(p)" else features
    x = math.sqrt(mu / nodes) * np.outer(v, u) + z.standard_normal((nodes, features)) / scale
    data = Data(x=torch.from_numpy(x).float(), edge_index=_both(row[linked], col[linked], nodes))
    data.y = torch.from_numpy((v + 1) // 2)
    data.num_classes, data.name = 2, "csbm"
    phi = 2 / math.pi * math.atan2(lam * math.sqrt(nodes / features), mu)
    data.parameters = {"degree": degree, "lam": lam, "mu": mu, "noise": noise, "seed": seed, "phi": phi, "v": v, "u": u}
    return data


def _both(row: Array, col: Array, nodes: int) -> torch.Tensor:
    """Return both directions of every edge, sorted by (row, col)."""
    keys = np.sort(np.concatenate([row * nodes + col, col * nodes + row]).astype(np.int64))
    return torch.from_numpy(np.stack([keys // nodes, keys % nodes]))


def standin(name: str, seed: int = 0) -> Data:
    """Draw a random graph with the statistics of a real one, named `"<name>~standin"`.

    Nodes, directed and undirected edges, self-loops, features, class sizes and sizes of the public split equal those of
    the real graph. Homophily differs by at most 0.02, and degree quantiles (50, 90, 99) and feature density by at most
    10%. A GCN scores at least 3 points more than an MLP and less than 98% (F1-micro for PPI).

    Amazon Ratings, ogbn-arxiv, PPI, Flickr and Reddit copy the sizes that the papers print, and Amazon Ratings its
    homophily. Their degree quantiles, class sizes, feature density, other homophilies and exact split sizes are assumed
    and not measured.

    Args:
        name: name of the real data set, such as `"Cora"`.
        seed: another seed gives another graph.

    Returns:
        The graph in the form of `fedrepro.data.datasets.load`.

    Raises:
        ArgumentError: no data set of this name has a stand-in, or the seed is no integer of at least 0.
    """
    _whole("seed", seed, 0)
    return draw_standin(name, seed)


def draw_standin(name: str, seed: int = 0) -> Data:
    """Draw the graph of `standin`, whose seed is an integer."""
    shape = SHAPES[one_of("name", name, SHAPES)]
    require(seed >= 0, "seed", "an integer of at least 0", seed)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    classes = rng.permutation(np.repeat(np.arange(len(shape.classes)), shape.classes))
    # `block` decides edges and features; the class differs from it on a few nodes.
    block = classes.copy()
    flipped = rng.permutation(shape.nodes)[: round(shape.flipped * shape.nodes)]
    block[flipped] = rng.permutation(block[flipped])
    pairs = _pairs(rng, shape, block, classes)
    data = Data(x=_features(rng, shape, block), edge_index=_orient(rng, shape, *pairs))
    labels = _labels(rng, shape, classes) if shape.labels else classes
    data.y = torch.from_numpy(labels)
    data.num_classes, data.name = shape.labels or len(shape.classes), f"{name}~standin"
    if shape.split:
        data.public = _public(rng, shape, classes)
    return data


def _pairs(rng: np.random.Generator, shape: Shape, block: Array, classes: Array) -> tuple[Array, Array]:
    """Draw the ends of `shape.pairs` distinct undirected edges."""
    degree = rng.permutation(_degrees(shape))
    counts = _mixing(shape, degree, block, classes)
    row, col, cell = _match(rng, degree, block, counts)
    return _simple(rng, row, col, cell, np.where(degree > 0, block, len(counts)))


def _degrees(shape: Shape) -> Array:
    """Return an ascending degree sequence `[nodes]` with the given quantiles and the sum `2 pairs`.

    Between the known quantiles the quantile function is `low (high / low)^(t^gamma)`. Bisection finds the gamma that
    gives the sum.
    """
    quantile = np.linspace(0, 1, shape.nodes)[shape.isolated :]
    knots = np.array([quantile[0], 0.5, 0.9, 0.99, 1.0])
    values = np.array([shape.smallest, *shape.degrees])
    part = np.clip(np.searchsorted(knots, quantile, side="right") - 1, 0, 3)
    t = (quantile - knots[part]) / (knots[part + 1] - knots[part])
    low, high = values[part], values[part + 1]

    def sequence(gamma: float) -> Array:
        degree: Array = np.rint(low * (high / low) ** t**gamma).astype(np.int64)
        return degree

    small, large = 1e-3, 1e3
    for _ in range(80):
        gamma = math.sqrt(small * large)
        small, large = (gamma, large) if sequence(gamma).sum() > 2 * shape.pairs else (small, gamma)
    degree = sequence(gamma)
    missing = 2 * shape.pairs - int(degree.sum())
    free = np.flatnonzero((degree > shape.smallest) & (degree < shape.degrees[3]))
    np.add.at(degree, free[np.linspace(0, free.size - 1, abs(missing)).astype(int)], np.sign(missing))
    return np.concatenate([np.zeros(shape.isolated, np.int64), degree])


def _mixing(shape: Shape, degree: Array, block: Array, classes: Array) -> Array:
    """Return the numbers of edge ends `[blocks, blocks]` from block k to l, symmetric and with the given homophily."""
    size = len(shape.classes)
    ends = np.bincount(block, degree, size)
    share = sp.coo_matrix((degree, (block, classes)), (size, size)).toarray() / np.maximum(ends, 1)[:, None]
    # The probability that a node of block k and one of block l have the same class.
    same_class = share @ share.T
    step = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    ring = shape.ring * (np.minimum(step, size - step) == 1)
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        expected = _scaled(np.exp(middle * np.eye(size) + ring), ends)
        low, high = (middle, high) if (expected * same_class).sum() / ends.sum() < shape.homophily else (low, middle)
    counts = np.floor(expected).astype(np.int64)
    counts[np.diag_indices(size)] -= counts.diagonal() % 2
    left = (ends - counts.sum(1)).astype(np.int64)
    odd = np.flatnonzero(left % 2)
    for k, other in zip(odd[::2], odd[1::2], strict=True):
        counts[k, other] += 1
        counts[other, k] += 1
        left[[k, other]] -= 1
    counts[np.diag_indices(size)] += left
    return counts


def _scaled(affinity: Array, ends: Array) -> Array:
    """Return `diag(a) affinity diag(a)` with row sums `ends`, by Sinkhorn's iteration."""
    a = np.sqrt(ends)
    for _ in range(2000):
        step = np.sqrt(ends / np.maximum(a * (affinity @ a), 1e-300))
        a = a * step
        if np.abs(step - 1).max() < 1e-9:
            break
    scaled: Array = a[:, None] * affinity * a
    return scaled


def _match(rng: np.random.Generator, degree: Array, block: Array, counts: Array) -> tuple[Array, Array, Array]:
    """Pair edge ends at random, `counts[k, l]` of them between blocks k and l, with loops and repetitions."""
    stubs = rng.permutation(np.repeat(np.arange(degree.size), degree))
    stubs = stubs[np.argsort(block[stubs], kind="stable")]
    pieces = np.split(stubs, np.cumsum(counts.ravel())[:-1])
    size = len(counts)
    row, col, cell = [], [], []
    for k in range(size):
        for other in range(k, size):
            first, second = pieces[k * size + other], pieces[other * size + k]
            if k == other:
                first, second = first[::2], first[1::2]
            row.append(first)
            col.append(second)
            cell.append(np.full(first.size, k * size + other))
    return np.concatenate(row), np.concatenate(col), np.concatenate(cell)


def _simple(rng: np.random.Generator, row: Array, col: Array, cell: Array, block: Array) -> tuple[Array, Array]:
    """Remove loops and repeated edges by exchanging ends with edges of the same two blocks, which keeps all degrees.

    Edges that no exchange repairs, as between hubs, become new edges between nodes of these blocks.
    """
    nodes = block.size
    # The last cell is that of the last block with itself.
    size = math.isqrt(int(cell[-1])) + 1

    def key(a: Array, b: Array) -> Array:
        lower: Array = np.minimum(a, b) * nodes + np.maximum(a, b)
        return lower

    taken, first = np.unique(key(row, col), return_index=True)
    good = np.zeros(row.size, bool)
    good[first] = True
    good &= row != col
    starts = np.searchsorted(cell, np.arange(size * size + 1))
    before = row.size
    while (bad := np.flatnonzero(~good)).size and bad.size < 0.995 * before:
        before = bad.size
        partner, index = np.unique(rng.integers(starts[cell[bad]], starts[cell[bad] + 1]), return_index=True)
        bad, partner = bad[index][good[partner]], partner[good[partner]]
        one, two = key(row[bad], col[partner]), key(row[partner], col[bad])
        fine = _new(np.concatenate([one, two]), taken, nodes).reshape(2, -1).all(0)
        bad, partner = bad[fine], partner[fine]
        col[bad], col[partner] = col[partner], col[bad]
        good[bad] = True
        taken = np.sort(np.concatenate([taken, one[fine], two[fine]]), kind="stable")
    taken = np.sort(key(row[good], col[good]), kind="stable")
    members = np.argsort(block, kind="stable")
    first_of = np.searchsorted(block[members], np.arange(size + 1))
    attempt = 0
    while (bad := np.flatnonzero(~good)).size:
        attempt += 1
        # Ends are first drawn in proportion to degree, then uniformly, for blocks where that finds no new edge.
        if attempt <= 30:
            ends = [end[rng.integers(starts[cell[bad]], starts[cell[bad] + 1])] for end in (row, col)]
        else:
            blocks = (cell[bad] // size, cell[bad] % size)
            ends = [members[rng.integers(first_of[part], first_of[part + 1])] for part in blocks]
        fine = _new(key(*ends), taken, nodes)
        row[bad[fine]], col[bad[fine]] = ends[0][fine], ends[1][fine]
        good[bad[fine]] = True
        taken = np.sort(np.concatenate([taken, key(*ends)[fine]]), kind="stable")
    return row, col


def _new(keys: Array, taken: Array, nodes: int) -> Array:
    """Return whether each key is no loop, not in the ascending `taken`, and not among the keys before it."""
    fresh = np.zeros(keys.size, bool)
    fresh[np.unique(keys, return_index=True)[1]] = True
    seen = taken[np.minimum(np.searchsorted(taken, keys), taken.size - 1)] == keys
    new: Array = fresh & ~seen & (keys // nodes != keys % nodes)
    return new


def _orient(rng: np.random.Generator, shape: Shape, row: Array, col: Array) -> torch.Tensor:
    """Return `edge_index` with loops and as many pairs in both directions as in the real graph, `[2, edges]`."""
    mutual = shape.edges - shape.loops - shape.pairs
    order, turned = rng.permutation(row.size), rng.random(row.size) < 0.5
    row, col = np.where(turned, col, row)[order], np.where(turned, row, col)[order]
    loops = rng.choice(shape.nodes, shape.loops, replace=False)
    source = np.concatenate([row, col[:mutual], loops])
    target = np.concatenate([col, row[:mutual], loops])
    keys = np.sort(source * shape.nodes + target)
    return torch.from_numpy(np.stack([keys // shape.nodes, keys % shape.nodes]))


def _features(rng: np.random.Generator, shape: Shape, block: Array) -> torch.Tensor:
    """Draw features `[nodes, features]`, where two blocks' distributions are `shape.separation` apart on average."""
    size = len(shape.classes)
    if shape.density == 1:
        centres = rng.standard_normal((size, shape.features), dtype=np.float32)
        centres *= np.float32(shape.separation / math.sqrt(2 * shape.features))
        x = rng.standard_normal((shape.nodes, shape.features), dtype=np.float32)
        for start in range(0, shape.nodes, 8192):
            x[start : start + 8192] += centres[block[start : start + 8192]]
        return torch.from_numpy(x)
    word = _words(rng, shape, size)
    chunks = []
    for start in range(0, shape.nodes, 1024):
        chance = word[block[start : start + 1024]]
        drawn = rng.random(chance.shape, dtype=np.float32) < chance
        chunks.append(sp.csr_matrix(drawn, dtype=np.float32))
    return features_of(sp.vstack(chunks, format="csr"))


def _words(rng: np.random.Generator, shape: Shape, size: int) -> Array:
    """Return the probability of each word in a document of each block, `[blocks, features]`.

    The popularity of a word is a power of its rank. Each block uses a tenth of the vocabulary more often than the other
    blocks. Bisection finds the factor that gives the wanted separation.
    """
    popularity = rng.permutation((10.0 + np.arange(shape.features)) ** -0.8)
    topic = rng.random((size, shape.features)) < 0.1

    def chance(boost: float) -> Array:
        weight = popularity * np.where(topic, boost, 1.0)
        scale = np.full((size, 1), shape.density * shape.features) / weight.sum(1, keepdims=True)
        for _ in range(50):
            p: Array = np.minimum(scale * weight, 0.95)
            scale *= shape.density / p.mean(1, keepdims=True)
        return p

    low, high = 1.0, 200.0
    for _ in range(30):
        boost = math.sqrt(low * high)
        low, high = (boost, high) if _separation(chance(boost)) < shape.separation else (low, boost)
    return chance(boost).astype(np.float32)


def _separation(p: Array) -> float:
    """Return the distance between the word probabilities of two blocks, in standard deviations, averaged over pairs."""
    k, other = np.triu_indices(len(p), 1)
    mean = (p[k] + p[other]) / 2
    return float(np.sqrt(((p[k] - p[other]) ** 2 / (mean * (1 - mean))).sum(1)).mean())


def _labels(rng: np.random.Generator, shape: Shape, classes: Array) -> Array:
    """Draw labels `[nodes, labels]` in {0, 1}. A community has 30% of them, and its nodes each of these with 90%."""
    usual = rng.random((len(shape.classes), shape.labels)) < 0.3
    chance = np.where(usual, 0.9, 0.05)[classes]
    return (rng.random(chance.shape) < chance).astype(np.float32)


def _public(rng: np.random.Generator, shape: Shape, classes: Array) -> torch.Tensor:
    """Draw masks `[nodes, splits, 3]` of the public split's sizes, with 20 training nodes per class if it has these."""
    assert shape.split is not None
    masks = np.zeros((shape.nodes, shape.splits, 3), bool)
    train, val, test = shape.split
    for column in range(shape.splits):
        order = rng.permutation(shape.nodes)
        if train == 20 * len(shape.classes):
            first = np.concatenate([order[classes[order] == k][:20] for k in range(len(shape.classes))])
            order = np.concatenate([first, order[~np.isin(order, first)]])
        for part, (start, stop) in enumerate([(0, train), (train, train + val), (train + val, train + val + test)]):
            masks[order[start:stop], column, part] = True
    return torch.from_numpy(masks)
