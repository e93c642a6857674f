"""Halos and views of a federation, against brute force over nodes and edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from federations import F64, SIZES, dense, federation, held
from graphs import gap, largest_difference
from torch import Tensor

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import layers, models
from fedrepro.engine.traffic import Traffic
from fedrepro.errors import ArgumentError

MODELS: dict[str, models.Model] = {
    "GCN": models.GCN(**SIZES, dropout=0.6),
    "GCN of three layers": models.GCN(**SIZES, layers=3, dropout=0.6),
    "GAT": models.GAT(**SIZES, heads=3, dropout=0.6),
    "GraphSAGE": models.GraphSAGE(**SIZES, dropout=0.6),
    "MLP": models.MLP(**SIZES, dropout=0.6),
    "APPNP": models.APPNP(**SIZES, steps=3, dropout=0.6),
    "DGCN": models.DGCN(**SIZES, depth=2, dropout=0.6),
}


def wide(seed: int = 0, *, sparse: bool = False, directed: bool = True) -> Federation:
    """Graphs whose training and test nodes are few, so that a hop more or less matters."""
    fed = federation(seed, nodes=150, sparse=sparse, directed=directed)
    data, parts = fed.sources[0]
    for mask in ("train", "test"):
        data[f"{mask}_mask"] &= torch.arange(150) % 5 == 0
    return Federation.of(data, parts, seed, dtype=F64)


def arriving(edge_index: Tensor) -> dict[int, set[int]]:
    """For each node, the nodes an edge comes from."""
    sources: dict[int, set[int]] = {}
    for a, b in edge_index.T.tolist():
        sources.setdefault(b, set()).add(a)
    return sources


def distances(start: set[int], incoming: dict[int, set[int]], hops: int) -> dict[int, int]:
    """Hops against the edges' direction from a set of nodes, up to `hops`."""
    hops_of = dict.fromkeys(start, 0)
    for hop in range(1, hops + 1):
        for node in [n for n, d in hops_of.items() if d == hop - 1]:
            for source in incoming.get(node, ()):
                hops_of.setdefault(source, hop)
    return hops_of


# -- halo ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed with self-loops"])
@pytest.mark.parametrize("hops", [0, 1, 2])
def test_a_halo_has_the_nodes_within_reach_and_the_edges_that_arrive_inside(hops: int, directed: bool) -> None:
    """Own nodes first, then ring by ring; the edges are all those arriving at rings below `hops`."""
    fed = federation(directed=directed)
    data, parts = fed.sources[0]
    incoming, halo = arriving(data.edge_index), fed.halo(hops)
    for client, part in enumerate(parts):
        ids, rings, edges = held(halo, client)
        ring = distances(set(part.tolist()), incoming, hops)
        assert dict(zip(ids, rings, strict=True)) == ring
        assert ids == sorted(ids, key=lambda node: (ring[node], node))
        inside = {n for n in ring if ring[n] < max(hops, 1)}
        assert edges == {(a, b) for b in inside for a in incoming.get(b, ()) if a in ring}
    if hops:
        assert halo.nodes > fed.nodes
    assert torch.equal(halo.count("all"), fed.count("all")) and torch.equal(halo.count("train"), fed.count("train"))


def test_a_halo_may_come_from_other_graphs_on_the_same_nodes() -> None:
    """Features, edges and `edge_weight` are taken from the graphs given, the partition stays."""
    fed = federation()
    data, parts = fed.sources[0]
    other = data.clone()
    other.x = data.x * 2
    other.edge_index = data.edge_index.flip(0)
    other.edge_weight = torch.arange(1.0, data.edge_index.shape[1] + 1)
    halo = fed.halo(1, [other])
    weight = {tuple(pair): w for pair, w in zip(other.edge_index.T.tolist(), other.edge_weight.tolist(), strict=True)}
    incoming = arriving(other.edge_index)
    for client, part in enumerate(parts):
        at_client = set(part.tolist())
        of_client = halo.batch.batch[halo.batch.edge_index[1]] == client
        pairs = [tuple(p) for p in halo.batch.node_id[halo.batch.edge_index[:, of_client]].T.tolist()]
        assert set(pairs) == {(a, b) for b in at_client for a in incoming.get(b, ())}
        assert halo.batch.edge_weight[of_client].tolist() == [weight[pair] for pair in pairs]
    assert torch.equal(dense(halo), 2 * data.x[halo.batch.node_id].double())
    assert halo.sources is fed.sources


def own_outputs(model: models.Model, hops: int, directed: bool) -> tuple[Tensor, Tensor]:
    """Logits of own nodes on a halo, and those of one client that holds everything, with the same weights."""
    fed = federation(directed=directed)
    data = fed.sources[0].data
    weights = model.init([7], F64)
    central = model(weights, Federation.of(data, [torch.arange(40)], dtype=F64))
    halo = fed.halo(hops).shared()
    own = halo.batch.ring == 0
    return model(weights, halo)[own], central[halo.batch.node_id[own]]


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed with self-loops"])
@pytest.mark.parametrize("name", ["GAT", "GraphSAGE", "DGCN"])
def test_models_that_normalize_at_the_target_are_central_on_a_halo_of_their_depth(name: str, directed: bool) -> None:
    """With as many hops as layers, attention, means and row-normalized sums at own nodes are the central model's."""
    model = MODELS[name]
    assert gap(*own_outputs(model, model.hops, directed)) < 1e-12
    assert gap(*own_outputs(model, model.hops - 1, directed)) > 1e-3


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed with self-loops"])
@pytest.mark.parametrize("layers_", [2, 3])
def test_a_gcn_is_central_on_a_halo_one_hop_deeper_than_its_layers(layers_: int, directed: bool) -> None:
    """Its symmetric norm needs degrees at the sources, and a halo's outermost ring does not know its own."""
    model = models.GCN(**SIZES, layers=layers_)
    assert gap(*own_outputs(model, layers_ + 1, directed)) < 1e-12
    assert gap(*own_outputs(model, layers_, directed)) > 1e-3


def test_halo_degrees_are_those_of_the_whole_graph_below_the_outermost_ring() -> None:
    """Nodes of rings below `hops` have all edges that arrive at them; the outermost ring has none."""
    fed = federation()
    degree = torch.bincount(fed.sources[0].data.edge_index[1], minlength=40)
    halo = fed.halo(2)
    counted = torch.bincount(halo.batch.edge_index[1], minlength=halo.nodes)
    inner = halo.batch.ring < 2
    assert torch.equal(counted[inner], degree[halo.batch.node_id[inner]])
    assert not bool(counted[~inner].any())


def test_a_negative_halo_is_refused() -> None:
    """Hops must not be negative."""
    with pytest.raises(ArgumentError, match="hops"):
        federation().halo(-1)


@pytest.mark.parametrize(
    "view",
    [
        lambda fed: fed.select([0]),
        lambda fed: fed.focus(1),
        lambda fed: fed.shared(),
        lambda fed: fed.with_features(torch.zeros(fed.nodes, 3)),
        lambda fed: fed.halo(0, [source.data for source in fed.sources]),
    ],
    ids=["select", "focus", "shared", "with_features", "halo of other graphs"],
)
def test_a_view_is_neither_extended_nor_stacked(view: Callable[[Federation], Federation]) -> None:
    """Both would be made of the runs' graphs again, with all clients and the features as they were."""
    other = view(federation())
    with pytest.raises(ArgumentError, match=r"a federation to extend must be .*Got 'a part or view"):
        other.halo(1)
    with pytest.raises(ArgumentError, match=r"federations\[1\] must be as `Federation\.of` made it"):
        Federation.stack([federation(), other])


def test_halo_nodes_are_not_stacked() -> None:
    """Stack first, then extend."""
    with pytest.raises(ArgumentError, match=r"federations\[0\] must be without halo nodes"):
        Federation.stack([federation().halo(1), federation(1)])


# -- views -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_selected_clients_stand_alone(sparse: bool) -> None:
    """`select` keeps the named clients, in increasing order, with one slice each and what they held."""
    stack = Federation.stack([federation(0, sparse=sparse), federation(1, sparse=sparse)])
    chosen = stack.select([6, 1, 3])
    assert (chosen.clients, chosen.slices) == (3, 3)
    assert chosen.run.tolist() == [0, 0, 1] and chosen.number.tolist() == [1, 3, 2]
    for place, client in enumerate([1, 3, 6]):
        assert held(chosen, place) == held(stack, client)
    assert chosen.parent is not None
    keys = torch.cat([stack.node_key[stack.batch.batch == client] for client in (1, 3, 6)])
    assert torch.equal(chosen.node_key, keys)
    for kind in ("gcn", "row", "mean"):
        nodes = chosen.parent[1]
        assert torch.equal(chosen.operator(kind).dense(), stack.operator(kind).dense()[nodes][:, nodes])


def test_shared_weights_have_one_slice_per_run() -> None:
    """`shared` changes which slice a node uses and nothing else."""
    stack = Federation.stack([federation(0), federation(1)])
    shared = stack.shared()
    assert (shared.slices, shared.clients, shared.nodes) == (2, 8, 80)
    assert torch.equal(shared.node_slice, stack.run[stack.batch.batch])
    assert shared.batch is stack.batch and shared.x is stack.x


@pytest.mark.parametrize("masks", [("train",), ("val", "test")], ids=str)
@pytest.mark.parametrize("hops", [0, 1, 2])
def test_focus_has_the_nodes_within_reach_of_a_split(hops: int, masks: tuple[str, ...]) -> None:
    """Ring 0 is a client's nodes in the splits, ring k what is k edges away inside the client, nothing else."""
    fed = federation()
    focused = fed.focus(hops, masks)
    data = fed.sources[0].data
    wanted = torch.stack([data[f"{mask}_mask"] for mask in masks]).any(0)
    for client, part in enumerate(fed.sources[0].parts):
        _, _, inner = held(fed, client)
        incoming = arriving(torch.tensor(sorted(inner)).view(-1, 2).T)
        ring = distances({n for n in part.tolist() if bool(wanted[n])}, incoming, hops)
        ids, rings, edges = held(focused, client)
        assert dict(zip(ids, rings, strict=True)) == ring
        assert edges == {(a, b) for a, b in inner if a in ring and b in ring}


def focused_gap(model: models.Model, whole: Federation, hops: int, mask: str) -> tuple[float, float]:
    """Largest differences of logits at nodes of a split, and of the gradients of their loss, focused against whole."""
    results: list[tuple[Tensor, dict[str, Tensor]]] = []
    for fed in (whole, whole.focus(hops, (mask,))):
        weights = {name: w.requires_grad_() for name, w in model.init(range(fed.clients), F64).items()}
        logits = model(weights, fed.at(4, 2))
        loss = layers.cross_entropy(fed, logits, mask)
        gradient = torch.autograd.grad(loss.sum(), list(weights.values()))
        results.append((logits[fed.rows(mask)[0]], dict(zip(weights, gradient, strict=True))))
    (a, b), (c, d) = results
    return gap(a, c), largest_difference(b, d)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed with self-loops"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_focus_changes_no_output_and_no_gradient(model: models.Model, directed: bool, sparse: bool) -> None:
    """With the model's hops, logits of the split and gradients of its loss are the same to 1e-12, dropout on."""
    fed = Federation.stack([wide(seed, directed=directed, sparse=sparse) for seed in (0, 1)])
    assert fed.focus(model.hops, ("train",)).nodes < fed.nodes
    for mask in ("train", "test"):
        assert max(focused_gap(model, fed, model.hops, mask)) < 1e-12


@pytest.mark.parametrize("model", [m for m in MODELS.values() if m.hops], ids=[n for n in MODELS if n != "MLP"])
def test_focus_on_one_hop_less_would_change_them(model: models.Model) -> None:
    """Negative control: a hop less gives other logits and other gradients."""
    fed = wide()
    assert min(focused_gap(model, fed, model.hops - 1, "train")) > 1e-4


def test_views_can_be_taken_of_views() -> None:
    """Focus of a halo, and clients selected from it, give the halo's outputs at the wanted nodes."""
    model = models.GAT(**SIZES, heads=2)
    halo = federation().halo(2)
    weights = model.init(range(4), F64)
    logits = model(weights, halo)
    focused = halo.focus(2, ("test",))
    picked = focused.select([1, 3])
    for fed, chosen in ((focused, [0, 1, 2, 3]), (picked, [1, 3])):
        rows, _ = fed.rows("test")
        seen = model({name: w[chosen] for name, w in weights.items()}, fed)[rows]
        all_rows = halo.rows("test")[0]
        of_chosen = all_rows[torch.isin(halo.batch.batch[all_rows], torch.tensor(chosen))]
        assert len(rows) == len(of_chosen) > 0
        assert gap(seen, logits[of_chosen]) < 1e-12


@pytest.mark.parametrize("view", ["shared", "focus"])
def test_a_view_keeps_no_clock_of_another(view: str) -> None:
    """A view of a training federation has its clock; one of the same federation in evaluation has none."""
    fed = federation()

    def take(of: Federation) -> Federation:
        return of.shared() if view == "shared" else of.focus(1)

    clocks = [take(fed.at(3, 1)).clock, take(fed).clock, take(fed.at(4, 0)).clock]
    assert clocks == [(3, 1), None, (4, 0)]


@pytest.mark.parametrize("view", ["shared", "focus"])
def test_a_view_counts_the_messages_of_its_federation(view: str) -> None:
    """Training gives a federation a new ledger; views made before it count into that one too."""
    fed = federation()
    for of in (fed, replace(fed, traffic=Traffic())):
        assert (of.shared() if view == "shared" else of.focus(1)).traffic is of.traffic


def test_rows_and_their_means_are_those_of_own_nodes() -> None:
    """`rows` lists a split's own nodes, halo copies left out, and its matrix averages over each client's."""
    halo = federation().halo(1)
    rows, mean = halo.rows("val")
    expected = [n for n in range(halo.nodes) if bool(halo.batch.val_mask[n]) and int(halo.batch.ring[n]) == 0]
    assert rows.tolist() == expected
    value = torch.randn(len(rows), 1, dtype=F64)
    client = halo.batch.batch[rows]
    for number in range(halo.clients):
        mine = value[client == number]
        assert abs(float((mean @ value)[number]) - (float(mine.mean()) if len(mine) else 0.0)) < 1e-12
    assert int(halo.count("val").sum()) == len(rows)
