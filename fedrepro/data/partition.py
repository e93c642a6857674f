"""Partitions: which client holds which nodes.

Each partition is a plain function `name(data, clients, seed, ...)` giving one int64 tensor of node ids per
client, sorted, none empty; a client holds the edges both of whose ends it holds. `partition` calls one by its
name in a `Run`, `"dirichlet(beta=1)"`, and `manifest` says what came out. Randomness comes from generators
seeded by (seed, name); the global ones are neither read nor moved.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import math
import re
import warnings
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.errors import ArgumentError, one_of, require

Ids = npt.NDArray[np.int64]
ATTEMPTS = 10_000  # draws of a Dirichlet partition before it is given up


def single(data: Data, clients: int, seed: int) -> list[Tensor]:
    """One client holds every node; for central models.

    Raises:
        ArgumentError: `clients` is not 1.
    """
    nodes = _checked(data, clients, seed)
    require(clients == 1, "clients", "1 for the partition 'single'", clients)
    return [torch.arange(nodes)]


def one_node_per_client(data: Data, clients: int, seed: int) -> list[Tensor]:
    """Client i holds node i alone (GFL-APPNP).

    Raises:
        ArgumentError: `clients` is not the number of nodes.
    """
    nodes = _checked(data, clients, seed)
    require(clients == nodes, "clients", f"the number of nodes, {nodes}, for 'one-node-per-client'", clients)
    return list(torch.arange(nodes)[:, None])


def blocks(data: Data, clients: int, seed: int) -> list[Tensor]:
    """Client i holds the i-th of equally long runs of consecutive nodes: the samples of one node of GFL-APPNP's graph.

    Raises:
        ArgumentError: `clients` does not divide the number of nodes.
    """
    nodes = _checked(data, clients, seed)
    require(nodes % clients == 0, "clients", f"a divisor of the number of nodes, {nodes}, for 'blocks'", clients)
    return list(torch.arange(nodes).view(clients, -1))


def random_uniform(data: Data, clients: int, seed: int, equal: bool = False) -> list[Tensor]:
    """Each node draws its client uniformly (FedStruct, Section 6).

    Args:
        equal: cut one random permutation into parts whose sizes differ by at most one, instead.

    Raises:
        ArgumentError: a client drew no node.
    """
    nodes = _checked(data, clients, seed)
    rng = _generator(seed, "random")
    if equal:
        return _tensors(np.array_split(rng.permutation(nodes), clients))
    # FS-P1: "uniformly at random" leaves the sizes open; independent draws, as in the authors' code.
    return _by_owner(rng.integers(clients, size=nodes), clients, "Use random(equal=True) or fewer clients.")


def louvain(data: Data, clients: int, seed: int, slack: int = 0) -> list[Tensor]:
    """Louvain communities, split and merged to parts of about n/K nodes (FedStruct, Appendix F).

    Edge directions are ignored. See `_split_and_merge` for the rule of sizes.

    Args:
        slack: nodes a part may have beyond n/K; the authors' code uses 20, their paper none.
    """
    import networkx

    nodes = _checked(data, clients, seed)
    graph = networkx.Graph()
    graph.add_nodes_from(range(nodes))
    low, high = _undirected(data)
    graph.add_edges_from(zip(low.tolist(), high.tolist(), strict=True))
    draw = int(_generator(seed, "louvain").integers(2**31))
    communities = networkx.community.louvain_communities(graph, resolution=1, seed=draw)
    # FS-Q14: nodes without neighbours, each a community to Louvain, are one, as in the authors' code.
    isolated = [node for node in range(nodes) if not graph.degree[node]]
    parts = [sorted(part) for part in communities if graph.degree[min(part)]] + [isolated] * bool(isolated)
    return _split_and_merge([np.array(part, dtype=np.int64) for part in parts], clients, slack)


def kmeans(data: Data, clients: int, seed: int, slack: int = 0) -> list[Tensor]:
    """K-means clusters of the node features, split and merged as in `louvain` (FedStruct, Appendix F).

    Args:
        slack: nodes a part may have beyond n/K; the authors' code uses 20, their paper none.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    _checked(data, clients, seed)
    draw = int(_generator(seed, "kmeans").integers(2**31))
    model = KMeans(clients, n_init="auto", random_state=draw)
    # One thread: the order of summation, and so the clusters, must not depend on the number of cores.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # too few distinct rows: clusters are split below
        labels = model.fit_predict(_features(data))
    return _split_and_merge([np.flatnonzero(labels == label) for label in np.unique(labels)], clients, slack)


def metis(data: Data, clients: int, seed: int) -> list[Tensor]:
    """Parts of even size with few edges between them, by METIS' k-way algorithm (FedSheafHN, Section 4.1).

    Self-loops and duplicates are dropped and neighbours sorted: the order of edges does not matter.

    Raises:
        ArgumentError: an edge lacks its reverse (METIS would return nonsense), or a part is empty.
    """
    import pymetis

    nodes = _checked(data, clients, seed)
    require(seed < 2**31 - 1, "seed", "below 2^31 - 1 for METIS", seed)
    rows, columns = _directed(data)
    if not np.array_equal(np.sort(columns * nodes + rows), rows * nodes + columns):
        raise ArgumentError(
            f"metis needs a symmetric edge_index; in {_name(data)} some edges lack their reverse. "
            'Prepare the graph with "undirected" first.'
        )
    adjacency = pymetis.CSRAdjacency(np.searchsorted(rows, np.arange(nodes + 1)), columns)
    # recursive=None would bisect recursively up to 8 parts; metispy, which the authors used, is always k-way.
    # METIS takes seeds 0 and 1 for the same, so repetition s has s + 1.
    options = pymetis.Options(seed=seed + 1)
    _, owner = pymetis.part_graph(clients, adjacency=adjacency, recursive=False, options=options)
    return _by_owner(np.asarray(owner, dtype=np.int64), clients, "METIS was asked for too many parts.")


def overlapping_metis(data: Data, clients: int, seed: int, parts: int) -> list[Tensor]:
    """Five draws of half the nodes of each METIS part (FedSheafHN, Appendix A.1), so 5 * parts clients.

    Clients 5p to 5p+4 come from part p. A node may be with several clients of its part, or with none.

    Raises:
        ArgumentError: `clients` is not 5 * parts, or a part has fewer than two nodes.
    """
    _checked(data, clients, seed)
    _check_integer("parts", parts, 1)
    require(clients == 5 * parts, "clients", f"5 * parts = {5 * parts}", clients)
    rng = _generator(seed, "overlapping-metis")
    whole = [part.numpy() for part in metis(data, parts, seed)]
    # SH-P2
    return _tensors([rng.permutation(part)[: len(part) // 2] for part in whole for _ in range(5)])


def dirichlet(data: Data, clients: int, seed: int, beta: float, minimum: int = 10) -> list[Tensor]:
    """Label skew: the nodes of each class are shared out in proportions drawn from Dirichlet(beta).

    Hsu, Qi and Brown 2019, in the form FedGAT (Section 6) takes from FedML: class after class, a client that
    already holds N/K nodes or more gets none, and everything is drawn again until each client has `minimum`
    nodes. All N nodes take part, not only the training set. FedGAT calls beta = 1 non-iid and 10000 iid.

    Raises:
        ArgumentError: not one class per node; or some client was too small in all of `ATTEMPTS` draws.
    """
    nodes = _checked(data, clients, seed)
    require(_is_number(beta) and 0 < beta < math.inf, "beta", "a positive number", beta)
    _check_integer("minimum", minimum, 1)
    require(minimum * clients <= nodes, "minimum", f"at most nodes/clients = {nodes}/{clients}", minimum)
    if data.y.dim() != 1:
        raise ArgumentError(
            f"dirichlet needs one class per node, y of shape [nodes]; {_name(data)} has several labels "
            f"per node, y of shape {list(data.y.shape)}. Use another partition."
        )
    # FG-P1
    rng = _generator(seed, "dirichlet")
    classes = [np.flatnonzero(data.y.numpy() == label) for label in np.unique(data.y.numpy())]
    for _ in range(ATTEMPTS):
        bounds = _dirichlet_bounds(rng, [len(members) for members in classes], clients, beta)
        if bounds is not None and np.diff(bounds).sum(0).min() >= minimum:
            break
    else:
        raise ArgumentError(
            f"In {ATTEMPTS} draws dirichlet(beta={beta}) never gave each of {clients} clients {minimum} of "
            f"the {nodes} nodes. Use a larger beta, a smaller minimum or fewer clients."
        )
    owner = np.empty(nodes, dtype=np.int64)
    for members, bound in zip(classes, bounds, strict=True):
        owner[rng.permutation(members)] = np.repeat(np.arange(clients), np.diff(bound))
    return _by_owner(owner, clients)


def private_public(data: Data, clients: int, seed: int, kappa: float) -> list[Tensor]:
    """Private nodes belong to one host each, public nodes to all (Feras, Section 5.2): overlapping parts.

    The share pi of private nodes follows from kappa = (N-1)/N pi, what each of N hosts cannot see.

    Raises:
        ArgumentError: fewer than two clients, or kappa outside [0, (N-1)/N].
    """
    nodes = _checked(data, clients, seed)
    require(clients >= 2, "clients", "at least 2 for 'private-public'", clients)
    most = (clients - 1) / clients
    valid = _is_number(kappa) and 0 <= kappa <= most + 1e-9
    require(valid, "kappa", f"in [0, (clients-1)/clients = {most:.4g}]", kappa)
    order = _generator(seed, "private-public").permutation(nodes)
    private = min(nodes, round(kappa / most * nodes))
    # FR-P1: "uniformly distributed to all hosts" as equal shares, so that kappa holds for each host.
    shares = np.array_split(order[:private], clients)
    return _tensors([np.concatenate([share, order[private:]]) for share in shares])


PARTITIONS: dict[str, Callable[..., list[Tensor]]] = {
    "single": single,
    "random": random_uniform,
    "louvain": louvain,
    "kmeans": kmeans,
    "metis": metis,
    "overlapping-metis": overlapping_metis,
    "dirichlet": dirichlet,
    "private-public": private_public,
    "one-node-per-client": one_node_per_client,
    "blocks": blocks,
}
OVERLAPPING = frozenset({"overlapping-metis", "private-public"})


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """The name and arguments of a partition written as a call, `"dirichlet(beta=1)"`; values are literals.

    Raises:
        ArgumentError: not of this form, an unknown partition, or an unknown or missing argument.
    """
    match = re.fullmatch(r"([\w-]+)(\(.*\))?", str(spec).strip(), flags=re.DOTALL)
    name, call = match.groups() if match else (spec, None)
    one_of("partition", name, PARTITIONS)
    try:
        tree = ast.parse(f"f{call or '()'}", mode="eval").body
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.args:
            raise ValueError("not one call with keywords only")
        arguments = {item.arg or "**": ast.literal_eval(item.value) for item in tree.keywords}
    except (SyntaxError, ValueError):
        form = 'keywords with literal values, as in "dirichlet(beta=1)"'
        raise ArgumentError(f"The arguments of a partition must be {form}. Got {spec!r}.") from None
    parameters = list(inspect.signature(PARTITIONS[name]).parameters.values())[3:]
    names = [parameter.name for parameter in parameters]
    for argument in arguments:
        require(bool(names), f"The partition {name!r}", "without arguments", spec)
        one_of(f"The argument of {name!r}", argument, names)
    for item in parameters:
        given = item.name in arguments or item.default is not item.empty
        require(given, f"The partition {name!r}", f"given {item.name}, '{name}({item.name}=...)'", spec)
    return name, arguments


def partition(data: Data, spec: str, clients: int, seed: int) -> list[Tensor]:
    """The node ids of each client, sorted, by the partition named in `spec`.

    Args:
        data: the graph.
        spec: a name of `PARTITIONS`, with its arguments if any: `"metis"`, `"dirichlet(beta=1)"`.
        clients: number of clients K, at least 1 and at most the number of nodes.
        seed: the repetition; another seed gives another partition.

    Returns:
        K int64 tensors. Unless the partition is among `OVERLAPPING`, every node is in exactly one.

    Raises:
        ArgumentError: unknown partition or argument, clients below 1 or above the number of nodes, an empty
            client, and what the partition itself refuses.
    """
    name, arguments = parse(spec)
    parts = PARTITIONS[name](data, clients, seed, **arguments)
    if name not in OVERLAPPING:
        held = torch.cat(parts).sort().values
        if not torch.equal(held, torch.arange(_nodes(data))):
            raise ArgumentError(f"The partition {name!r} must put every node with exactly one client.")
    return parts


def manifest(data: Data, parts: Sequence[Tensor]) -> dict[str, Any]:
    """What a partition looks like, as plain numbers.

    Edges are counted undirected: an edge and its reverse are one, duplicates are one, self-loops are none. An
    edge is inner if a client holds both its ends, cross-client if both ends are held but by no client
    together, and neither if an end is held by no client. Where parts overlap, an inner edge that several
    clients hold counts once in the total.

    Returns:
        `clients`; for each of them `nodes`, `inner_edges`, `labels` (histogram over the classes; over the
        labels where a node has several), `isolated_nodes` (without a neighbour in the client's own graph);
        for the whole graph `edges`, `total_inner_edges`, `cross_client_edges`, `uncovered_nodes` (held by no
        client); and `checksum`.
    """
    low, high = _undirected(data)
    member = _membership(data, parts)
    inner = member[:, low] & member[:, high]
    linked = [len(np.union1d(low[held], high[held])) for held in inner]
    return {
        "clients": len(parts),
        "nodes": [len(part) for part in parts],
        "inner_edges": inner.sum(1).tolist(),
        "labels": [_histogram(data, part) for part in parts],
        "isolated_nodes": [len(part) - with_edge for part, with_edge in zip(parts, linked, strict=True)],
        "edges": len(low),
        "total_inner_edges": int(inner.any(0).sum()),
        "cross_client_edges": cross_client_edges(data, parts),
        "uncovered_nodes": int((~member.any(0)).sum()),
        "checksum": checksum(parts),
    }


def cross_client_edges(data: Data, parts: Sequence[Tensor]) -> int:
    """Number of undirected edges whose ends are both held, but by no client together (see `manifest`)."""
    low, high = _undirected(data)
    member = _membership(data, parts)
    held = member.sum(0) > 0
    together = (member[:, low] & member[:, high]).any(0)
    return int((held[low] & held[high] & ~together).sum())


def checksum(parts: Sequence[Tensor]) -> str:
    """SHA-256 over each part's length and node ids, as little-endian 64-bit integers."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.asarray([len(part), *part.tolist()], dtype="<i8").tobytes())
    return digest.hexdigest()


def _membership(data: Data, parts: Sequence[Tensor]) -> npt.NDArray[np.bool_]:
    """Which client holds which node: bool `[clients, nodes]`."""
    member = np.zeros((len(parts), _nodes(data)), dtype=bool)
    for row, part in zip(member, parts, strict=True):
        row[part.numpy()] = True
    return member


def _histogram(data: Data, part: Tensor) -> list[int]:
    labels = data.y[part]
    if labels.dim() == 2:
        return [int(count) for count in labels.sum(0).tolist()]
    classes = getattr(data, "num_classes", None) or int(data.y.max()) + 1
    return [int(count) for count in torch.bincount(labels, minlength=classes).tolist()]


def _split_and_merge(parts: list[Ids], clients: int, slack: int) -> list[Tensor]:
    """Parts of any sizes made into K clients of about n/K nodes (FS-P2, FS-P3).

    While a part has more than n/K + slack nodes it is split in two. The K largest go to the K clients; each
    further one, in descending order, to the first client below n/K that stays within n/K + slack.
    """
    _check_integer("slack", slack, 0)
    even = sum(map(len, parts)) / clients
    limit = even + slack
    # FS-Q14: how a part is "split in two" is not stated; here into halves, lower and higher node ids (the
    # authors' code cuts runs of consecutive ids). With fewer parts than clients the largest are split, too.
    while len(parts) < clients or max(map(len, parts)) > limit:
        parts.sort(key=_descending)
        parts[:1] = np.array_split(parts[0], 2)
    parts.sort(key=_descending)
    merged = [[part] for part in parts[:clients]]
    sizes = [len(part) for part in parts[:clients]]
    for part in parts[clients:]:
        room = [client for client, size in enumerate(sizes) if size < even and size + len(part) <= limit]
        # FS-Q14: a part that fits nowhere goes to the smallest client, as in the authors' code.
        client = room[0] if room else int(np.argmin(sizes))
        merged[client].append(part)
        sizes[client] += len(part)
    return _tensors([np.concatenate(pieces) for pieces in merged])


def _descending(part: Ids) -> tuple[int, int]:
    """Sort key: large parts first, ties by the smallest node id."""
    return -len(part), int(part[0])


def _dirichlet_bounds(rng: np.random.Generator, sizes: list[int], clients: int, beta: float) -> Ids | None:
    """Where each class is cut, `[classes, clients + 1]`, from 0 to its size; None if the shares underflow."""
    held = np.zeros(clients, dtype=np.int64)
    bounds = np.zeros((len(sizes), clients + 1), dtype=np.int64)
    for row, size in zip(bounds, sizes, strict=True):
        shares = rng.dirichlet(np.full(clients, float(beta)))
        shares[held * clients >= sum(sizes)] = 0
        shares = np.cumsum(shares)
        if not 0 < shares[-1] < math.inf:
            return None
        row[1:] = (shares / shares[-1] * size).astype(np.int64)
        held += np.diff(row)
    return bounds


def _checked(data: Data, clients: int, seed: int) -> int:
    """The number of nodes, once `clients` and `seed` are known to be possible."""
    nodes = _nodes(data)
    _check_integer("seed", seed, 0)
    _check_integer("clients", clients, 1)
    require(clients <= nodes, "clients", f"at most the number of nodes, {nodes} in {_name(data)}", clients)
    return nodes


def _check_integer(argument: str, given: object, least: int) -> None:
    valid = isinstance(given, int) and not isinstance(given, bool) and given >= least
    require(valid, argument, f"an integer of at least {least}", given)


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _generator(seed: int, name: str) -> np.random.Generator:
    # crc32 and not hash(): the tag of a name must be the same in every process.
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _by_owner(owner: Ids, clients: int, advice: str = "") -> list[Tensor]:
    """Parts from the client of each node, `[nodes]`."""
    return _tensors([np.flatnonzero(owner == client) for client in range(clients)], advice)


def _tensors(parts: Sequence[Ids], advice: str = "Use fewer clients.") -> list[Tensor]:
    """Sorted int64 tensors, none of them empty."""
    empty = [client for client, part in enumerate(parts) if not len(part)]
    if empty:
        raise ArgumentError(f"Each client must hold a node. {len(empty)} of {len(parts)} got none. {advice}")
    return [torch.from_numpy(np.sort(part).astype(np.int64)) for part in parts]


def _directed(data: Data) -> tuple[Ids, Ids]:
    """Rows and columns of the distinct edges without self-loops, sorted by (row, column)."""
    rows, columns = data.edge_index.numpy()
    nodes = _nodes(data)
    keys = np.unique((rows * nodes + columns)[rows != columns])
    return keys // nodes, keys % nodes


def _undirected(data: Data) -> tuple[Ids, Ids]:
    """The distinct pairs (low, high), low < high, joined by an edge in either direction."""
    rows, columns = _directed(data)
    nodes = _nodes(data)
    keys = np.unique(np.minimum(rows, columns) * nodes + np.maximum(rows, columns))
    return keys // nodes, keys % nodes


def _features(data: Data) -> Any:
    """`[nodes, features]` as NumPy, or as SciPy CSR when sparse."""
    if data.x.layout != torch.sparse_csr:
        return data.x.numpy()
    from scipy.sparse import csr_matrix

    parts = (data.x.values(), data.x.col_indices(), data.x.crow_indices())
    return csr_matrix(tuple(part.numpy() for part in parts), data.x.shape)


def _nodes(data: Data) -> int:
    return int(data.y.shape[0])


def _name(data: Data) -> str:
    return str(getattr(data, "name", None) or "this graph")
