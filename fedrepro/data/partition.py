"""Divide the nodes of a graph among clients.

Each partition is a plain function `name(data, clients, seed, ...)`. It returns one int64 tensor of node ids per client,
sorted and not empty. A client holds an edge if it holds both its ends. `partition` calls a function by its name in a
`Run`, such as `"dirichlet(beta=1)"`. Randomness comes from generators seeded by (seed, name), never from global ones.
"""

from __future__ import annotations

import ast
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

from fedrepro.data.statistics import count_nodes, directed_edges, undirected_edges
from fedrepro.errors import ArgumentError, one_of, require

Ids = npt.NDArray[np.int64]
ATTEMPTS = 10_000  # draws of a Dirichlet partition before it is given up


def single(data: Data, clients: int, seed: int) -> list[Tensor]:
    """Give every node to one client, for central models.

    Raises:
        ArgumentError: `clients` is not 1.
    """
    nodes = _checked(data, clients, seed)
    require(clients == 1, "clients", "1 for the partition 'single'", clients)
    return [torch.arange(nodes)]


def one_node_per_client(data: Data, clients: int, seed: int) -> list[Tensor]:
    """Give node i to client i, and nothing else (GFL-APPNP).

    Raises:
        ArgumentError: `clients` is not the number of nodes.
    """
    nodes = _checked(data, clients, seed)
    require(clients == nodes, "clients", f"the number of nodes, {nodes}, for 'one-node-per-client'", clients)
    return list(torch.arange(nodes)[:, None])


def blocks(data: Data, clients: int, seed: int) -> list[Tensor]:
    """Give client i the i-th of equally long stretches of consecutive nodes.

    In GFL-APPNP a client is one node of the graph and holds several samples, which are the nodes of its stretch.

    Raises:
        ArgumentError: `clients` does not divide the number of nodes.
    """
    nodes = _checked(data, clients, seed)
    require(nodes % clients == 0, "clients", f"a divisor of the number of nodes, {nodes}, for 'blocks'", clients)
    return list(torch.arange(nodes).view(clients, -1))


def random_uniform(data: Data, clients: int, seed: int, equal: bool = False) -> list[Tensor]:
    """Draw the client of each node uniformly (FedStruct, Section 6).

    Args:
        equal: whether to cut one random permutation into parts whose sizes differ by at most one instead.

    Raises:
        ArgumentError: a client drew no node.
    """
    nodes = _checked(data, clients, seed)
    rng = _generator(seed, "random")
    if equal:
        return _tensors(np.array_split(rng.permutation(nodes), clients))
    # The text's "uniformly at random" leaves the sizes open (FS-P1). The authors' code draws independently.
    return _by_owner(rng.integers(clients, size=nodes), clients, "Use random(equal=True) or fewer clients.")


def louvain(data: Data, clients: int, seed: int, slack: int = 0) -> list[Tensor]:
    """Split and merge Louvain communities to parts of about n/K nodes (FedStruct, Appendix F).

    Edge directions are ignored. See `_split_and_merge` for the rule of sizes.

    Args:
        slack: nodes that a part may have beyond n/K. The authors' code uses 20, their paper none.
    """
    import networkx

    nodes = _checked(data, clients, seed)
    graph = networkx.Graph()
    graph.add_nodes_from(range(nodes))
    low, high = undirected_edges(data)
    graph.add_edges_from(zip(low.tolist(), high.tolist(), strict=True))
    draw = int(_generator(seed, "louvain").integers(2**31))
    communities = networkx.community.louvain_communities(graph, resolution=1, seed=draw)
    # To Louvain every node without neighbours is a community. They form one, as in the authors' code (FS-Q14).
    isolated = [node for node in range(nodes) if not graph.degree[node]]
    parts = [sorted(part) for part in communities if graph.degree[min(part)]] + [isolated] * bool(isolated)
    return _split_and_merge([np.array(part, dtype=np.int64) for part in parts], clients, slack)


def kmeans(data: Data, clients: int, seed: int, slack: int = 0) -> list[Tensor]:
    """Split and merge K-means clusters of the node features as in `louvain` (FedStruct, Appendix F).

    Args:
        slack: nodes that a part may have beyond n/K. The authors' code uses 20, their paper none.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    _checked(data, clients, seed)
    draw = int(_generator(seed, "kmeans").integers(2**31))
    model = KMeans(clients, n_init="auto", random_state=draw)
    # With one thread the clusters do not depend on the number of cores. On Photo they do on the processor's rounding.
    with threadpool_limits(1), warnings.catch_warnings():
        # It warns of too few distinct rows, whose clusters are split below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit_predict(_features(data))
    return _split_and_merge([np.flatnonzero(labels == label) for label in np.unique(labels)], clients, slack)


def metis(data: Data, clients: int, seed: int) -> list[Tensor]:
    """Divide into parts of even size with few edges between them, by METIS' k-way algorithm (FedSheafHN, Section 4.1).

    Self-loops and duplicates are dropped and neighbours sorted, so the order of edges does not matter.

    Raises:
        ArgumentError: an edge lacks its reverse, for which METIS returns wrong parts without an error; or a part is
            empty.
    """
    import pymetis

    nodes = _checked(data, clients, seed)
    require(seed < 2**31 - 1, "seed", "below 2^31 - 1 for METIS", seed)
    rows, columns = directed_edges(data)
    if not np.array_equal(np.sort(columns * nodes + rows), rows * nodes + columns):
        raise ArgumentError(
            f"metis needs a symmetric edge_index; in {_name(data)} some edges lack their reverse. "
            'Prepare the graph with "undirected" first.'
        )
    adjacency = pymetis.CSRAdjacency(np.searchsorted(rows, np.arange(nodes + 1)), columns)
    # With recursive=None up to 8 parts would be bisected. The authors' metispy always takes the k-way algorithm.
    # METIS treats seeds 0 and 1 alike, so repetition s takes the seed s + 1.
    options = pymetis.Options(seed=seed + 1)
    _, owner = pymetis.part_graph(clients, adjacency=adjacency, recursive=False, options=options)
    return _by_owner(np.asarray(owner, dtype=np.int64), clients, "METIS was asked for too many parts.")


def overlapping_metis(data: Data, clients: int, seed: int, parts: int) -> list[Tensor]:
    """Draw half the nodes of each METIS part five times, for 5 * parts clients (FedSheafHN, Appendix A.1).

    Clients 5p to 5p+4 come from part p. Several clients of a part may hold a node, or none.

    Raises:
        ArgumentError: `clients` is not 5 * parts, or a part has fewer than two nodes.
    """
    _checked(data, clients, seed)
    _check_integer("parts", parts, 1)
    require(clients == 5 * parts, "clients", f"5 * parts = {5 * parts}", clients)
    rng = _generator(seed, "overlapping-metis")
    whole = [part.numpy() for part in metis(data, parts, seed)]
    # Half is rounded down, and the five draws are independent (SH-P2).
    return _tensors([rng.permutation(part)[: len(part) // 2] for part in whole for _ in range(5)])


def dirichlet(data: Data, clients: int, seed: int, beta: float, minimum: int = 10) -> list[Tensor]:
    """Divide the nodes of each class in proportions drawn from Dirichlet(beta), which skews the labels.

    The method is that of Hsu, Qi and Brown (2019), in the form that FedGAT (Section 6) takes from FedML. Class after
    class, a client that already holds N/K nodes or more gets none. Everything is drawn again until each client has
    `minimum` nodes. All N nodes take part, not only training nodes. FedGAT calls beta = 1 non-iid and 10000 iid.

    Raises:
        ArgumentError: nodes do not have one class each, or some client was too small in all of `ATTEMPTS` draws.
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
    # The paper names neither the minimum nor the cap at N/K. Both are those of FedML (FG-P1).
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
    """Give each private node to one host and each public node to all hosts (Feras, Section 5.2).

    Each of N hosts cannot see a share kappa = (N-1)/N pi of the nodes, from which the share pi of private nodes
    follows.

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
    # "Uniformly distributed to all hosts" is read as equal shares, so that kappa holds for each host (FR-P1).
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
    """Return the name and the arguments of a partition written as a call with literals, `"dirichlet(beta=1)"`.

    Raises:
        ArgumentError: `spec` is no such call, or names an unknown partition, or an argument is unknown or missing.
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
    """Return the node ids of each client by the partition that `spec` names.

    Args:
        data: the graph.
        spec: a name of `PARTITIONS`, with its arguments if any, such as `"metis"` or `"dirichlet(beta=1)"`.
        clients: number of clients K, at least 1 and at most the number of nodes.
        seed: the repetition. Another seed gives another partition.

    Returns:
        K int64 tensors, sorted. Unless the partition is among `OVERLAPPING`, every node is in exactly one.

    Raises:
        ArgumentError: an argument is not possible, a client gets no node, or the partition refuses the graph.
    """
    require(isinstance(data, Data), "data", "a graph, as datasets.load returns it", data)
    require(isinstance(spec, str), "spec", "a string such as 'metis'", spec)
    equal = parse(spec)[1].get("equal", True)
    require(isinstance(equal, bool), "equal", "True or False", equal)
    return divide(data, spec, clients, seed)


def divide(data: Data, spec: str, clients: int, seed: int) -> list[Tensor]:
    """Return the node ids of each client, as `partition` does, of a graph and a specification that were checked."""
    name, arguments = parse(spec)
    parts = PARTITIONS[name](data, clients, seed, **arguments)
    if name not in OVERLAPPING:
        held = torch.cat(parts).sort().values
        if not torch.equal(held, torch.arange(count_nodes(data))):
            raise ArgumentError(f"The partition {name!r} must put every node with exactly one client.")
    return parts


def _split_and_merge(parts: list[Ids], clients: int, slack: int) -> list[Tensor]:
    """Split and merge parts of any sizes into K clients of about n/K nodes (FS-P2, FS-P3).

    While a part has more than n/K + slack nodes it is split in two. The K largest parts go to the K clients. Each
    further part, in descending order, goes to the first client below n/K that stays within n/K + slack.
    """
    _check_integer("slack", slack, 0)
    even = sum(map(len, parts)) / clients
    limit = even + slack
    # The paper does not say how a part is "split in two". Here the lower and the higher half of the node ids are
    # separated, since the authors' code cuts stretches of consecutive ids (FS-Q14). With fewer parts than clients
    # the largest parts are split, too.
    while len(parts) < clients or max(map(len, parts)) > limit:
        parts.sort(key=_descending)
        parts[:1] = np.array_split(parts[0], 2)
    parts.sort(key=_descending)
    merged = [[part] for part in parts[:clients]]
    sizes = [len(part) for part in parts[:clients]]
    for part in parts[clients:]:
        room = [client for client, size in enumerate(sizes) if size < even and size + len(part) <= limit]
        # A part that fits nowhere goes to the smallest client, as in the authors' code (FS-Q14).
        client = room[0] if room else int(np.argmin(sizes))
        merged[client].append(part)
        sizes[client] += len(part)
    return _tensors([np.concatenate(pieces) for pieces in merged])


def _descending(part: Ids) -> tuple[int, int]:
    """Return a sort key that puts large parts first and breaks ties by the smallest node id."""
    return -len(part), int(part[0])


def _dirichlet_bounds(rng: np.random.Generator, sizes: list[int], clients: int, beta: float) -> Ids | None:
    """Return the cuts of each class, `[classes, clients + 1]`, from 0 to its size, or None if the shares underflow."""
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
    """Return the number of nodes after checking `clients` and `seed`."""
    nodes = count_nodes(data)
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
    # crc32 is the same in every process, unlike hash().
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _by_owner(owner: Ids, clients: int, advice: str = "") -> list[Tensor]:
    """Return the parts, given the client of each node, `[nodes]`."""
    return _tensors([np.flatnonzero(owner == client) for client in range(clients)], advice)


def _tensors(parts: Sequence[Ids], advice: str = "Use fewer clients.") -> list[Tensor]:
    """Return sorted int64 tensors, or raise if one is empty."""
    empty = [client for client, part in enumerate(parts) if not len(part)]
    if empty:
        raise ArgumentError(f"Each client must hold a node. {len(empty)} of {len(parts)} got none. {advice}")
    return [torch.from_numpy(np.sort(part).astype(np.int64)) for part in parts]


def _features(data: Data) -> Any:
    """Return the features `[nodes, features]` as a NumPy array, or as SciPy CSR if sparse."""
    if data.x.layout != torch.sparse_csr:
        return data.x.numpy()
    from scipy.sparse import csr_matrix

    parts = (data.x.values(), data.x.col_indices(), data.x.crow_indices())
    return csr_matrix(tuple(part.numpy() for part in parts), data.x.shape)


def _name(data: Data) -> str:
    return str(getattr(data, "name", None) or "this graph")
