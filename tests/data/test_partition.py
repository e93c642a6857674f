"""Partitions hold every node, depend only on their seed and refuse wrong specs; manifests agree with plain loops."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
import torch
from parts import CALLS, FULL, block_model, same, with_edges
from torch_geometric.data import Data

from fedrepro.data.partition import OVERLAPPING, PARTITIONS, parse, partition
from fedrepro.data.statistics import cross_client_edges, manifest
from fedrepro.errors import ArgumentError


def test_every_partition_is_tested() -> None:
    """The table of calls above has each registered partition."""
    assert set(FULL) == set(PARTITIONS)


@pytest.mark.parametrize(("spec", "clients"), CALLS)
def test_parts_are_sorted_distinct_int64_and_cover(spec: str, clients: int) -> None:
    """Parts are sorted distinct int64 ids, none empty; disjoint partitions hold each node exactly once."""
    data = block_model(isolated=7)
    for seed in range(4):
        parts = partition(data, spec, clients, seed)
        assert len(parts) == clients
        assert all(part.dtype == torch.int64 and part.dim() == 1 and len(part) for part in parts)
        assert all((part.diff() > 0).all() for part in parts)
        held = sorted(torch.cat(parts).tolist())
        assert set(held) <= set(range(240))
        if parse(spec)[0] not in OVERLAPPING:
            assert held == list(range(240))


@pytest.mark.parametrize(("spec", "clients"), CALLS)
def test_same_seed_same_parts_whatever_the_global_generators(spec: str, clients: int) -> None:
    """A partition depends only on its seed, and neither reads nor moves the global generators."""
    data = block_model()
    torch.manual_seed(1)
    np.random.seed(1)
    first = partition(data, spec, clients, 3)
    torch.manual_seed(2)
    np.random.seed(2)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    assert same(first, partition(data, spec, clients, 3))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()


@pytest.mark.parametrize("name", sorted(set(FULL) - {"single", "one-node-per-client", "blocks", "louvain", "kmeans"}))
def test_repetitions_differ(name: str) -> None:
    """Repetitions 0, 1 and 2 have different partitions (METIS itself takes seeds 0 and 1 for the same)."""
    spec, clients = FULL[name]
    data = block_model()
    sums = {manifest(data, partition(data, spec, clients, seed))["checksum"] for seed in range(3)}
    assert len(sums) == 3


@pytest.mark.parametrize("name", ["louvain", "kmeans"])
def test_repetitions_differ_without_structure(name: str) -> None:
    """Louvain and k-means depend on the seed where graph and features have no clear communities."""
    data = block_model(blocks=1)
    data.x = torch.from_numpy(np.random.default_rng(0).normal(size=(240, 8)))
    assert not same(partition(data, name, 5, 0), partition(data, name, 5, 1))


@pytest.mark.parametrize(
    ("spec", "clients", "message"),
    [
        ("meits", 4, "partition must be one of .*Did you mean 'metis'"),
        ("one node", 4, "partition must be one of"),
        ("dirichlet", 4, "given beta"),
        ("dirichlet(betta=1)", 4, "must be one of 'beta', 'minimum'.*Did you mean 'beta'"),
        ("metis(seed=3)", 4, "'metis' must be without arguments"),
        ("dirichlet(1)", 4, "keywords with literal values"),
        ("dirichlet(beta=2*3)", 4, "keywords with literal values"),
        ("dirichlet(beta=__import__('os').getcwd())", 4, "keywords with literal values"),
        ("dirichlet(beta=1) or f(beta=2)", 4, "partition must be one of|keywords with literal values"),
        ("dirichlet(**{'beta': 1})", 4, "must be one of 'beta'"),
        ("dirichlet(beta=", 4, "partition must be one of|keywords with literal values"),
        ("dirichlet(beta=0)", 4, "beta must be a positive number. Got 0"),
        ("dirichlet(beta='1')", 4, "beta must be a positive number"),
        ("dirichlet(beta=1, minimum=0)", 4, "minimum must be an integer of at least 1"),
        ("louvain(slack=-1)", 4, "slack must be an integer of at least 0"),
        ("private-public(kappa=0.8)", 4, "kappa must be in .*0.75"),
        ("private-public(kappa=0.4)", 1, "clients must be at least 2"),
        ("overlapping-metis(parts=6)", 10, r"clients must be 5 \* parts = 30. Got 10"),
        ("random", 0, "clients must be an integer of at least 1. Got 0"),
        ("random", 41, "clients must be at most the number of nodes, 40 in block model. Got 41"),
        ("metis", True, "clients must be an integer"),
        ("single", 2, "clients must be 1"),
        ("one-node-per-client", 4, "clients must be the number of nodes, 40"),
        ("random", 40, r"Each client must hold a node.*random\(equal=True\)"),
    ],
)
def test_errors_name_what_was_given(spec: str, clients: int, message: str) -> None:
    """A wrong spec or number of clients is an error that names the argument and what is allowed or was given."""
    with pytest.raises(ArgumentError, match=message):
        partition(block_model(nodes=40), spec, clients, 0)


@pytest.mark.parametrize("seed", [-1, 1.5, "0"])
def test_seeds_are_natural_numbers(seed: object) -> None:
    """A seed that is no integer from 0 up is an error."""
    with pytest.raises(ArgumentError, match="seed must be an integer of at least 0"):
        partition(block_model(nodes=40), "random", 4, seed)  # type: ignore[arg-type]


def test_parse_reads_literals() -> None:
    """A spec in call form becomes a name and keyword arguments."""
    assert parse("metis") == ("metis", {})
    assert parse("metis()") == ("metis", {})
    assert parse(" dirichlet(beta = 1e4, minimum=3) ") == ("dirichlet", {"beta": 1e4, "minimum": 3})
    assert parse("random(equal=True)") == ("random", {"equal": True})


def test_partition_must_cover_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registered partition that forgets or repeats a node is caught."""
    data = block_model(nodes=40)
    forgets = [torch.arange(20), torch.arange(19, 39)]
    monkeypatch.setitem(PARTITIONS, "leaky", lambda data, clients, seed: forgets)
    with pytest.raises(ArgumentError, match="'leaky' must put every node with exactly one client"):
        partition(data, "leaky", 2, 0)


def reference_manifest(data: Data, parts: list[torch.Tensor]) -> dict[str, object]:
    """The manifest by loops over sets."""
    pairs = {frozenset(edge) for edge in data.edge_index.T.tolist() if edge[0] != edge[1]}
    homes = [{c for c, part in enumerate(parts) if node in part.tolist()} for node in range(len(data.y))]
    inner = [{pair for pair in pairs if all(c in homes[node] for node in pair)} for c in range(len(parts))]
    return {
        "clients": len(parts),
        "nodes": [len(part) for part in parts],
        "inner_edges": [len(edges) for edges in inner],
        "labels": [[sum(int(data.y[i]) == label for i in part) for label in range(4)] for part in parts],
        "isolated_nodes": [
            sum(not any(node in pair for pair in edges) for node in part.tolist())
            for edges, part in zip(inner, parts, strict=True)
        ],
        "edges": len(pairs),
        "total_inner_edges": len(set().union(*inner)),
        "cross_client_edges": sum(
            not set.intersection(*(homes[n] for n in pair)) and all(homes[n] for n in pair) for pair in pairs
        ),
        "uncovered_nodes": sum(not home for home in homes),
        "checksum": hashlib.sha256(
            b"".join(struct.pack(f"<{len(part) + 1}q", len(part), *part.tolist()) for part in parts)
        ).hexdigest(),
    }


@pytest.mark.parametrize("name", ["random", "metis", *sorted(OVERLAPPING)])
def test_manifest_equals_brute_force(name: str) -> None:
    """Counts agree with loops over sets, with directed, repeated and self-looped edges in the graph."""
    data = block_model(nodes=80, isolated=5)
    parts = partition(data, *FULL[name], 0)
    loops = torch.arange(70, 80).repeat(2, 1)
    messy = with_edges(data, torch.cat([data.edge_index[:, ::3], data.edge_index[:, :40], loops], dim=1))
    for graph in (data, messy):
        assert manifest(graph, parts) == reference_manifest(graph, parts)
        assert cross_client_edges(graph, parts) == reference_manifest(graph, parts)["cross_client_edges"]


def test_manifest_adds_up_and_is_plain() -> None:
    """Inner and cross-client edges of a disjoint partition are all edges; the manifest survives JSON."""
    import json

    data = block_model()
    counts = manifest(data, partition(data, "louvain", 5, 0))
    assert sum(counts["inner_edges"]) == counts["total_inner_edges"]
    assert counts["total_inner_edges"] + counts["cross_client_edges"] == counts["edges"]
    assert counts["edges"] == data.edge_index.shape[1] // 2
    assert json.loads(json.dumps(counts)) == counts


def test_manifest_of_several_labels_per_node() -> None:
    """With labels [nodes, labels] the histogram counts each label."""
    data = block_model(nodes=40)
    data.y = (torch.rand(40, 3, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    found = manifest(data, partition(data, "random", 3, 0))
    assert np.sum(found["labels"], axis=0).tolist() == data.y.sum(0).tolist()
