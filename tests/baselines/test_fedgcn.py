"""FedGCN, against a dense GCN on the whole graph and brute-force counts of its messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import graph_of
from loop import dropout_masks
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.baselines.fedgcn import FedGCN
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.method import State
from fedrepro.engine.nn import layers
from fedrepro.engine.nn.models import GAT, GCN
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.engine.training import client_gradients, train
from fedrepro.errors import ArgumentError

NODES, FEATURES, CLASSES, HIDDEN = 40, 5, 3, 4
MODEL = GCN(FEATURES, CLASSES, hidden=HIDDEN)
SPARSE = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


class From(FedGCN):
    """FedGCN from given initial weights."""

    def start(self, fed: Federation) -> tuple[Federation, State]:
        fed, state = super().start(fed)
        return fed, replace(state, shared=random_weights(state.shared))


def random_weights(like: Weights) -> Weights:
    """One set of weights, none of them zero, for every run."""
    generator = torch.Generator().manual_seed(0)
    drawn = {name: torch.randn(w.shape[1:], generator=generator, dtype=torch.float64) for name, w in like.items()}
    return {name: drawn[name].expand_as(w).clone() for name, w in like.items()}


def graph(seed: int = 0, sparse: bool = False, across: bool = True) -> Data:
    """An undirected graph of 40 nodes in float64: the last has no edge, one has a self-loop; half of them a role.

    Args:
        across: whether edges join nodes of different `parts`.
    """
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((NODES, NODES)) < 0.08, 1)
    upper[:, -1] = False
    if not across:
        client = np.zeros(NODES, dtype=int)
        for number, part in enumerate(parts(4)):
            client[part] = number
        upper &= client[:, None] == client
    adjacency = upper | upper.T
    adjacency[3, 3] = True
    x = rng.normal(size=(NODES, FEATURES))
    if sparse:
        x *= rng.random(x.shape) < 0.15
    split = np.maximum(rng.integers(5, size=NODES) - 1, 0)
    return graph_of(torch.from_numpy(x), rng.integers(CLASSES, size=NODES), adjacency, split, num_classes=CLASSES)


def parts(clients: int) -> list[Tensor]:
    """Clients of unequal size, the first with one node."""
    order = np.random.default_rng(1).permutation(NODES)
    return [torch.from_numpy(p) for p in np.split(order, [1, *np.linspace(4, NODES, clients).astype(int)[:-2]])]


def federate(data: Data, clients: int = 4) -> Federation:
    return Federation.of(data, parts(clients), dtype=torch.float64)


def started(data: Data, hops: int, clients: int = 4) -> tuple[From, Federation, State]:
    method = From(model=MODEL, hops=hops)
    return method, *method.start(federate(data, clients))


def single(weights: Weights) -> Weights:
    """The weights of the only run."""
    return {name: w[0] for name, w in weights.items()}


def own(fed: Federation, out: Tensor) -> Tensor:
    """Rows of own nodes in the graph's order."""
    mine = fed.batch.ring == 0
    return out[mine][fed.batch.node_id[mine].argsort()]


def neighbours(data: Data) -> list[set[int]]:
    """N~(v): each node's neighbours and itself."""
    near = [{v} for v in range(NODES)]
    for u, v in data.edge_index.T.tolist():
        near[v].add(u)
    return near


def normalized(data: Data) -> Tensor:
    """S, dense."""
    a = torch.zeros(NODES, NODES, dtype=torch.float64)
    for v, near in enumerate(neighbours(data)):
        a[v, list(near)] = 1.0
    scale = a.sum(1) ** -0.5
    return scale[:, None] * a * scale


def central(data: Data, weights: Weights) -> Tensor:
    """The dense GCN on the whole graph: S relu(S X W1 + b1) W2 + b2."""
    s = normalized(data)
    h = torch.relu(s @ data.x @ weights["layer1.weight"] + weights["layer1.bias"])
    return s @ h @ weights["layer2.weight"] + weights["layer2.bias"]


# -- exactness --------------------------------------------------------------------------------------------------------


@SPARSE
@pytest.mark.parametrize("clients", [2, 4, 10])
def test_two_hops_are_the_central_gcn(clients: int, sparse: bool) -> None:
    """Logits of own nodes equal those of the dense GCN on the whole graph, to 1e-12."""
    data = graph(sparse=sparse)
    method, fed, state = started(data, 2, clients)
    expected = central(data, single(state.shared))
    assert (own(fed, method.predict(fed, state)) - expected).abs().max() < 1e-12


def test_fewer_hops_are_not_exact_and_differ_from_each_other() -> None:
    """Logits of 0 and 1 hops differ from the central ones and from each other; no two of the three losses agree."""
    data = graph()
    logits, losses = [], []
    for hops in (0, 1, 2):
        method, fed, state = started(data, hops)
        logits.append(own(fed, method.predict(fed, state)))
        losses.append(float(method.local_loss(fed.broadcast(state.shared), fed, state, 0).sum()))
    expected = central(data, single(state.shared))
    assert (logits[0] - expected).abs().max() > 0.1 and (logits[1] - expected).abs().max() > 0.1
    assert (logits[0] - logits[1]).abs().max() > 0.1
    assert min(abs(a - b) for a, b in zip(losses, [*losses[1:], losses[0]])) > 1e-3


def test_one_hop_is_exact_in_layer_one() -> None:
    """With 1 hop a client's rows are (S X)_v of its own nodes, and layer 2 takes S between own nodes only."""
    data = graph(1)
    method, fed, state = started(data, 1)
    client = torch.empty(NODES, dtype=torch.long)
    for number, part in enumerate(parts(4)):
        client[part] = number
    near = neighbours(data)
    entries = [[(u in near[v]) / (len(near[u]) * len(near[v])) ** 0.5 for u in range(NODES)] for v in range(NODES)]
    s, w = torch.tensor(entries, dtype=torch.float64), single(state.shared)
    h = torch.relu(s @ data.x @ w["layer1.weight"] + w["layer1.bias"])
    expected = (s * (client[:, None] == client)) @ h @ w["layer2.weight"] + w["layer2.bias"]
    assert (own(fed, method.predict(fed, state)) - expected).abs().max() < 1e-12


def test_no_cross_client_edges_make_all_hops_equal() -> None:
    """The logits of 0, 1 and 2 hops are the central ones if no edge is cut."""
    data = graph(2, across=False)
    for hops in (0, 1, 2):
        method, fed, state = started(data, hops)
        assert (own(fed, method.predict(fed, state)) - central(data, single(state.shared))).abs().max() < 1e-12


@SPARSE
def test_summed_gradients_are_central(sparse: bool) -> None:
    """With 2 hops the clients' gradients of summed losses add up to the central gradient; with 1 they do not."""
    data = graph(3, sparse)
    for hops in (1, 2):
        method, fed, state = started(data, hops)
        leaves = {name: w.clone().requires_grad_() for name, w in single(state.shared).items()}
        loss = F.cross_entropy(central(data, leaves)[data.train_mask], data.y[data.train_mask], reduction="sum")
        expected = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))
        count = fed.count("train").double()
        assert 0 in count  # a client without labels is among them
        gradient = client_gradients(method, fed, state)
        error = max(float((torch.tensordot(count, g, 1) - expected[name]).abs().max()) for name, g in gradient.items())
        assert error < 1e-12 if hops == 2 else error > 1e-2


@SPARSE
def test_dropout_is_in_both_layers(sparse: bool) -> None:
    """Client by client with masks written out: logits at own nodes are S (M2 o relu((M1 o S X) W1 + b1)) W2 + b2, to
    1e-12, with another probability in each layer.
    """
    data = graph(3)
    if sparse:
        data.x *= torch.from_numpy(np.random.default_rng(0).random(data.x.shape) < 0.05)
    first, second = (GCN(FEATURES, CLASSES, hidden=HIDDEN, dropout=p) for p in (0.3, 0.6))
    method = From(model=replace(second, input_dropout=0.3))
    fed, state = method.start(federate(data))
    assert isinstance(fed.x, Sparse) == sparse
    got, s, w = method.forward(fed.broadcast(state.shared), fed.at(2, 1), state), normalized(data), single(state.shared)
    for client in range(4):
        rows = fed.batch.batch == client
        ids = fed.batch.node_id[rows]
        held = Data(x=s[ids] @ data.x, node_id=ids)
        x = held.x * dropout_masks(first, held, 0, client, 2, 1)[0]
        h = torch.relu(x @ w["layer1.weight"] + w["layer1.bias"])
        h = h * dropout_masks(second, held, 0, client, 2, 1)[1]
        mine = fed.batch.ring[rows] == 0
        expected = s[ids[mine]][:, ids] @ h @ w["layer2.weight"] + w["layer2.bias"]
        assert (got[rows][mine] - expected).abs().max() < 1e-12


def trained(data: Data, weights: Weights, rounds: int, lr: float) -> Weights:
    """Gradient descent of the dense GCN on the mean loss over all training nodes."""
    now = {name: w.clone() for name, w in single(weights).items()}
    for _ in range(rounds):
        leaves = {name: w.requires_grad_() for name, w in now.items()}
        loss = F.cross_entropy(central(data, leaves)[data.train_mask], data.y[data.train_mask])
        grads = torch.autograd.grad(loss, list(leaves.values()))
        now = {name: (w - lr * g).detach() for (name, w), g in zip(leaves.items(), grads)}
    return now


@pytest.mark.parametrize("chunk", [None, 1], ids=["together", "one by one"])
def test_trajectory_is_central(chunk: int | None) -> None:
    """Five rounds of one gradient step each, weighted by training nodes, end at the central weights with 2 hops."""
    data = graph(4)
    method = From(model=MODEL, optimizer="sgd", lr=0.3, average="train")
    history, _, state = train(method, federate(data), 5, chunk=chunk)
    start = random_weights(state.shared)
    expected = trained(data, start, 5, 0.3)
    assert all((state.shared[name][0] - w).abs().max() < 1e-12 for name, w in expected.items())
    assert all((expected[name] - w[0]).abs().max() > 1e-2 for name, w in start.items())
    right = central(data, expected).argmax(1) == data.y
    assert history.result(0)["before"]["last"]["test"] == float(right[data.test_mask].double().mean())
    one_hop = From(model=MODEL, optimizer="sgd", lr=0.3, average="train", hops=1)
    apart = train(one_hop, federate(data), 5).state.shared
    assert max(float((apart[name][0] - w).abs().max()) for name, w in expected.items()) > 1e-2


# -- what a client knows ----------------------------------------------------------------------------------------------


def test_rows_held_are_neighbourhood_sums() -> None:
    """With 2 hops a client holds (S X)_u of its nodes and of their neighbours, and edges into its own nodes only."""
    data = graph(5)
    _, fed, _ = started(data, 2)
    near = neighbours(data)
    for client, part in enumerate(parts(4)):
        nodes = set(part.tolist())
        held = {u for v in nodes for u in near[v]} | nodes
        rows = fed.batch.batch == client
        ids = fed.batch.node_id[rows].tolist()
        assert sorted(ids) == sorted(held)
        for u, x in zip(ids, fed.x[rows]):
            expected = sum(data.x[v] / (len(near[u]) * len(near[v])) ** 0.5 for v in near[u])
            assert (x - expected).abs().max() < 1e-12
        source, target = fed.batch.node_id[fed.batch.edge_index[:, rows[fed.batch.edge_index[1]]]].tolist()
        assert set(zip(source, target)) == {(u, v) for v in nodes for u in near[v]}


def distances(data: Data, start: set[int]) -> dict[int, int]:
    near, distance, frontier = neighbours(data), dict.fromkeys(start, 0), start
    while frontier:
        frontier = {u for v in frontier for u in near[v]} - distance.keys()
        distance |= dict.fromkeys(frontier, 1 + max(distance.values()))
    return distance


def test_features_beyond_two_hops_change_nothing() -> None:
    """Changing x_u leaves a client's logits bitwise as they were unless u is within two hops, where they change."""
    data = graph(6)
    method, fed, state = started(data, 2)
    before = own(fed, method.predict(fed, state))
    part = parts(4)[1]
    ball = distances(data, set(part.tolist()))
    kinds = set()
    for u in range(NODES - 1):
        changed = data.clone()
        changed.x = data.x.clone()
        changed.x[u] += 1.0
        method, fed, state = started(changed, 2)
        same = torch.equal(own(fed, method.predict(fed, state))[part], before[part])
        assert same == (ball.get(u, 9) > 2), u
        kinds.add(ball.get(u, 9))
    assert {0, 1, 2, 3} <= kinds


def test_zeroing_a_received_row_changes_exactly_its_neighbours() -> None:
    """Each row a client received of another's node is used: by its neighbours in the client, and by no one else."""
    data = graph(7)
    method, fed, state = started(data, 2)
    before = method.predict(fed, state)
    received = (fed.batch.ring == 1).nonzero().squeeze(1).tolist()
    assert len(received) > 20
    for row in received:
        x = fed.x.clone()
        x[row] = 0.0
        after = method.predict(fed.with_features(x), state)
        moved = ((after - before).abs().max(1).values > 1e-12) & (fed.batch.ring == 0)
        source, target = fed.batch.edge_index
        assert set(moved.nonzero().squeeze(1).tolist()) == set(target[source == row].tolist())


# -- traffic ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hops", [0, 1, 2])
def test_traffic_is_that_of_the_protocol(hops: int) -> None:
    """Parts of sums up, sums down, once; then all weights down and up for every client with training nodes."""
    data = graph(8)
    _, fed, _ = train(From(model=MODEL, hops=hops), federate(data), 3)
    near, held = neighbours(data), [set(part.tolist()) for part in parts(4)]
    up = FEATURES * sum(1 for v in range(NODES) for nodes in held if near[v] & nodes)
    down = FEATURES * NODES
    if hops == 2:
        down = FEATURES * sum(len(nodes | {u for v in nodes for u in near[v]}) for nodes in held)
    size = FEATURES * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES
    training = sum(bool(data.train_mask[part].any()) for part in parts(4))
    assert training < 4
    summary = fed.traffic.summary()
    assert summary["before"] == ({"up.neighbour sums": up, "down.neighbour sums": down} if hops else {})
    assert summary["training"] == {"up.weights": 3 * training * size, "down.weights": 3 * training * size}
    assert fed.traffic.round(1) == {"up.weights": training * size, "down.weights": training * size}


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.float64, 8)])
def test_bytes_are_scalars_times_their_size(dtype: torch.dtype, size: int) -> None:
    """Before training as in training, a scalar takes the bytes of the federation's type."""
    fed = Federation.of(graph(8), parts(4), dtype=dtype)
    _, fed, _ = train(FedGCN(model=MODEL), fed, 2)
    found = fed.traffic.summary()
    assert found["bytes"] == {stage: size * sum(found[stage].values()) for stage in ("before", "training")}


def test_only_the_layers_a_client_can_compute_are_looked_at() -> None:
    """Training looks one hop around training nodes once sums are exchanged: that changes no loss."""
    data = graph(9)
    for hops in (0, 1, 2):
        method, fed, state = started(data, hops)
        near = fed.focus(method.receptive, ("train",))
        assert near.nodes < fed.nodes
        weights = fed.broadcast(state.shared)
        whole, part = (layers.cross_entropy(f, method.forward(weights, f, state)) for f in (fed, near))
        assert (whole - part).abs().max() < 1e-12


def test_bad_options_of_fedgcn_are_refused() -> None:
    """Three hops, a GAT and a GCN of three layers are refused by name."""
    with pytest.raises(ArgumentError, match="hops"):
        FedGCN(model=MODEL, hops=3)
    for model in (GAT(FEATURES, CLASSES), GCN(FEATURES, CLASSES, layers=3)):
        with pytest.raises(ArgumentError, match="a GCN of two layers"):
            FedGCN(model=model)
