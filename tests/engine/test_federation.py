"""Federations: client graphs and averages, against brute force over nodes and edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import F64, federation, held
from graphs import block_model, largest_difference

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import ArgumentError

# -- making one ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_clients_hold_their_nodes_and_the_edges_between_them(sparse: bool) -> None:
    """Nodes in increasing order, all in ring 0, edges both of whose ends are in the part, fields of those nodes."""
    fed = federation(sparse=sparse)
    data, parts = fed.sources[0]
    every = {(a, b) for a, b in data.edge_index.T.tolist()}
    for client, part in enumerate(parts):
        ids, rings, edges = held(fed, client)
        own = set(part.tolist())
        assert ids == sorted(own) and not any(rings)
        assert edges == {(a, b) for a, b in every if a in own and b in own}
    assert (fed.clients, fed.runs, fed.nodes, fed.features, fed.classes) == (4, 1, 40, 7, 3)


def test_a_stack_has_the_clients_of_each_run_in_order() -> None:
    """Runs side by side hold what each holds by itself, with run, number and seed of each client."""
    alone = [federation(3), federation(5, clients=2), federation(3)]
    stack = Federation.stack(alone)
    assert stack.run.tolist() == [0] * 4 + [1] * 2 + [2] * 4
    assert stack.number.tolist() == [0, 1, 2, 3, 0, 1, 0, 1, 2, 3]
    assert stack.seeds == (3, 5, 3)
    client = 0
    for fed in alone:
        for number in range(fed.clients):
            assert held(stack, client) == held(fed, number)
            client += 1
    assert torch.equal(stack.node_key, torch.cat([fed.node_key for fed in alone]))


def test_clients_may_hold_the_same_node() -> None:
    """Overlapping parts give every client a separate copy."""
    data = block_model(12, isolated=0)
    fed = Federation.of(data, [torch.arange(8), torch.arange(4, 12)], dtype=F64)
    assert held(fed, 0)[0] == list(range(8)) and held(fed, 1)[0] == list(range(4, 12))
    assert len(fed.node_key.unique()) == 16


def test_a_federation_without_clients_is_refused() -> None:
    """No parts at all is an `ArgumentError`."""
    with pytest.raises(ArgumentError, match="parts must be at least one client"):
        Federation.of(block_model(12), [])


# -- the server ------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["equal", "count"])
def test_average_is_the_weighted_mean_of_each_run(by: str) -> None:
    """NumPy's weighted mean over a run's clients, whatever the scale of the weights."""
    stack = Federation.stack([federation(0), federation(1, clients=3)])
    weights = {"a": torch.randn(7, 2, 3, dtype=F64), "b": torch.randn(7, 4, dtype=F64)}
    share = torch.ones(7, dtype=F64) if by == "equal" else stack.count("all")
    averaged = stack.average(weights, share)
    for name, w in weights.items():
        for run, clients in enumerate((range(4), range(4, 7))):
            chosen = list(clients)
            expected = np.average(w[chosen].numpy(), axis=0, weights=share[chosen].numpy())
            assert np.abs(averaged[name][run].numpy() - expected).max() < 1e-12


def test_a_client_of_weight_zero_is_left_out_of_the_average() -> None:
    """Even weights that are NaN do not reach the mean, nor do those of the other run."""
    stack = Federation.stack([federation(0), federation(1)])
    w = torch.randn(8, 3, dtype=F64)
    by = torch.tensor([1.0, 2, 0, 1, 1, 1, 1, 1], dtype=F64)
    expected = stack.average({"w": w}, by)["w"]
    bad = w.clone()
    bad[2] = torch.nan
    assert torch.equal(stack.average({"w": bad}, by)["w"], expected)
    bad[6] = torch.nan
    found = stack.average({"w": bad}, by)["w"]
    assert torch.equal(found[0], expected[0]) and bool(found[1].isnan().all())


@pytest.mark.parametrize("runs", [1, 2])
def test_the_mean_of_one_client_is_its_weights(runs: int) -> None:
    """Its weight in the mean changes no bit, whoever else is there and has no weight."""
    stack = Federation.stack([federation(seed) for seed in range(runs)])
    w = torch.randn(4 * runs, 3, dtype=F64)
    w[0] = torch.nan
    by = torch.zeros(4 * runs, dtype=F64)
    by[1::4] = 0.3
    assert torch.equal(stack.average({"w": w}, by)["w"], w[1::4])


def test_a_run_in_which_nobody_weighs_anything_has_no_average() -> None:
    """Its mean is NaN, the other run's is not."""
    stack = Federation.stack([federation(0, clients=2), federation(1, clients=2)])
    found = stack.average({"w": torch.ones(4, 3, dtype=F64)}, torch.tensor([0.0, 0, 1, 1]))["w"]
    assert bool(found[0].isnan().all()) and torch.equal(found[1], torch.ones(3, dtype=F64))


def test_broadcast_gives_each_client_the_weights_of_its_run() -> None:
    """`broadcast` repeats a run's slice for its clients, and averaging gives it back."""
    stack = Federation.stack([federation(0), federation(1, clients=3)])
    server = {"w": torch.randn(2, 5, dtype=F64)}
    clients = stack.broadcast(server)
    assert torch.equal(clients["w"], server["w"][stack.run])
    assert largest_difference(stack.average(clients, torch.ones(7, dtype=F64)), server) < 1e-15
    alone = federation(0)
    assert torch.equal(alone.broadcast({"w": server["w"][:1]})["w"], server["w"][:1].expand(4, 5))


def test_replaced_features_are_used_by_layers() -> None:
    """`with_features` keeps the graph and gives layers the new features."""
    fed = federation(sparse=True)
    assert isinstance(fed.input, Sparse)
    other = fed.with_features(torch.randn(fed.nodes, 5, dtype=F64))
    assert other.features == 5 and other.input is other.x
    assert other.batch is fed.batch


NO_PARTS = [([0, 0], "different nodes"), ([0, 60], "node ids from 0 to 59"), ([-1], "node ids from 0")]
NO_VECTORS = [[0.5], [True] * 60, [[0, 1]]]


@pytest.mark.parametrize(("part", "message"), [*NO_PARTS, *((part, "a vector") for part in NO_VECTORS)])
def test_a_part_is_a_set_of_nodes(part: list[object], message: str) -> None:
    """A repeated or unknown node, or something that is no vector of node ids, is an error that names the part."""
    data = block_model(60)
    with pytest.raises(ArgumentError, match=rf"parts\[1\].*{message}"):
        Federation.of(data, [torch.arange(5), torch.tensor(part)])
    with pytest.raises(ArgumentError, match=r"parts\[0\]"):
        Federation.of(data, [[0, 1]])  # type: ignore[list-item]


def test_a_mask_says_yes_or_no_of_each_node() -> None:
    """A mask that is not boolean, which would count as node ids, or is too short is refused."""
    data, mask = block_model(60), block_model(60).val_mask
    for wrong in (mask.long(), mask[:-1]):
        data.val_mask = wrong
        with pytest.raises(ArgumentError, match="val_mask must be boolean"):
            Federation.of(data, [torch.arange(60)])


def test_a_misspelled_operator_is_refused() -> None:
    """A kind that does not exist is no random walk."""
    with pytest.raises(ArgumentError, match="kind must be one of"):
        Federation.of(block_model(60), [torch.arange(60)]).operator("gnc")
