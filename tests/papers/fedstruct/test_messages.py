"""FedStruct's messages: a client computes from what it received, and every scalar that travels is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fedstruct_plain import CLIENTS, DEPTH, EVERY, KINDS, MODEL, NODES, build, graph, start
from graphs import identical, largest_difference

from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State
from fedrepro.engine.training import client_gradients, train
from fedrepro.papers.fedstruct import powers
from fedrepro.papers.fedstruct.method import StructureMethod

# -- what crosses a client's border -----------------------------------------------------------------------------------


@EVERY
def test_the_servers_gradient_is_the_mean_of_the_clients(options: dict[str, Any]) -> None:
    """The mean is weighted by training nodes (Eq. 5); dropout is on, since all clients draw the same masks for g."""
    method, fed, state = start(options, model=replace(MODEL, dropout=0.4))
    gradients = client_gradients(method, fed, state, t=2)
    leaves = {name: w.clone().requires_grad_() for name, w in state.shared.items()}
    share = fed.count("train") / fed.count("train").sum()
    loss = (method.local_loss(leaves, fed.shared().at(2, 0), state, 2) * share).sum()
    whole = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))
    mean = {name: torch.einsum("k,k...->...", share.to(w.dtype), w)[None] for name, w in gradients.items()}
    # f's masks are each client's own, and the same either way
    assert largest_difference(whole, mean) < 1e-12


def with_edges(fed: Federation, client: int) -> Federation:
    """Remove every second edge inside all other clients, after the exchange."""
    batch = fed.batch.clone()
    other = batch.batch[batch.edge_index[1]] != client
    batch.edge_index = batch.edge_index[:, ~other | (other.cumsum(0) % 2 == 0)]
    return replace(fed, batch=batch, _cache={})


def with_labels(fed: Federation, client: int) -> Federation:
    """Change the labels at all other clients."""
    batch = fed.batch.clone()
    batch.y = torch.where(batch.batch == client, batch.y, (batch.y + 1) % 3)
    return replace(fed, batch=batch, _cache={})


@EVERY
@pytest.mark.parametrize("change", [with_edges, with_labels])
def test_a_client_computes_from_what_it_received(options: dict[str, Any], change: Any) -> None:
    """Other clients' edges and labels, changed after the exchange, leave a client's gradient bitwise as it was."""
    method, fed, state = start(options, model=replace(MODEL, dropout=0.4))
    before = client_gradients(method, fed, state)
    for client in range(CLIENTS):
        after = client_gradients(method, change(fed, client), state)
        changed = [not torch.equal(a[k], b[k]) for a, b in zip(before.values(), after.values()) for k in [client]]
        assert not any(changed), client


def test_a_client_needs_its_rows_and_s_alone() -> None:
    """Other clients' rows of A- do not matter to a client, and its own do (Proposition 1)."""
    method, fed, state = start(KINDS[1])
    before = client_gradients(method, fed, state)
    got, nodes = state.more.exchanged, fed.sources[0].parts[3].numpy()
    for inside in (False, True):
        m = got.matrices[0].toarray()
        rows = np.isin(np.arange(NODES), nodes) == inside
        m[rows] *= 1.5
        moved = got._replace(matrices=(type(got.matrices[0])(m),))
        after = client_gradients(method, fed, replace(state, more=state.more._replace(exchanged=moved)))
        assert identical(*({n: w[3] for n, w in g.items()} for g in (before, after))) is not inside


def test_runs_side_by_side_are_runs_alone() -> None:
    """Three rounds of three seeds on three graphs, with dropout, equal the runs by themselves to 1e-10."""
    method = build(KINDS[1], model=replace(MODEL, dropout=0.4), lr=0.02)
    alone = [Federation.of(*graph(seed), seed, dtype=torch.float64) for seed in (0, 1, 2)]
    together = train(method, Federation.stack(alone), 3).state.shared
    for run, fed in enumerate(alone):
        made = train(method, fed, 3).state.shared
        assert largest_difference({n: w[0] for n, w in made.items()}, {n: w[run] for n, w in together.items()}) < 1e-10


# -- traffic ----------------------------------------------------------------------------------------------------------


def traffic(options: dict[str, Any]) -> tuple[StructureMethod, Federation, dict[str, dict[str, float]], State]:
    method = build(options)
    made = train(method, Federation.of(*graph()), 2)
    return method, made.fed, made.fed.traffic.summary(), made.state


def test_before_training_blocks_and_structure_features_travel() -> None:
    """S goes up once and down to the other clients; each value of a pruned block comes with two indices."""
    _, fed, seen, _ = traffic(KINDS[1])
    source = fed.sources[0]
    sent = powers.combined(source.data, source.parts, [0, 0, 0, 1], 4)[1]
    blocks = {"up.power blocks": sent, "down.power blocks": sent}
    indices = {"up.power indices": 2 * sent, "down.power indices": 2 * sent}
    features = {"up.structure features": NODES * 6, "down.structure features": (CLIENTS - 1) * NODES * 6}
    assert seen["before"] == blocks | indices | features
    assert sent > 0


def test_unpruned_rows_travel_whole() -> None:
    """A row of n numbers is sent for each power from the second, each node, and each other client with a neighbour."""
    _, _, seen, _ = traffic(KINDS[0])
    data, parts = graph()
    owner = powers.owners(parts, NODES)
    pairs = {(v, owner[u]) for u, v in data.edge_index.T.tolist() if owner[u] != owner[v]}
    assert seen["before"]["up.power blocks"] == (DEPTH - 1) * NODES * len(pairs)
    assert "up.power indices" not in seen["before"]


def test_each_round_weights_and_gradients_travel() -> None:
    """Every client with training nodes receives weights and sends gradients; S is among them only for Hop2Vec."""
    for options, s in ((KINDS[1], NODES * 6), (KINDS[5], 0)):
        _, _, seen, state = traffic(options)
        scalars = sum(w[0].numel() for w in state.shared.values())
        assert ("structure" in state.shared) == bool(s) and scalars > s
        assert seen["training"] == {"down.weights": 2 * 3 * scalars, "up.gradients": 2 * 3 * scalars}


def test_aggregates_are_sent_in_place_of_s() -> None:
    """A labelled node and another client cost c sums, and with a fixed S also c per weight of g (Eq. 47 and 48)."""
    for options in ({"structure": "Deg", "prune": 4}, {"structure": "H2V", "head": "direct", "prune": 4}):
        plain, (method, fed, seen, state) = traffic(options), traffic({**options, "sharing": "aggregates"})
        assert identical(plain[3].shared, state.shared)
        labelled = int(fed.batch.train_mask.sum())
        g = sum(w[0].numel() for n, w in state.shared.items() if n.startswith("structure") and n != "structure")
        assert (g > 0) == (method.structure == "Deg")
        assert seen["training"]["up.aggregates"] == 2 * labelled * (CLIENTS - 1) * 3 * (1 + g)
        assert "up.structure features" not in seen["before"]
        m, source = state.more.exchanged.matrices[0].toarray(), fed.sources[0]
        owner = powers.owners(source.parts, NODES)
        rows = (owner[:, None] != owner[None]) & source.data.train_mask.numpy()[:, None]
        assert seen["before"]["up.combined entries"] == (m[rows.nonzero()] > 0).sum()


def test_a_server_that_knows_the_graph_sends_embeddings_and_jacobians() -> None:
    """The server sends nothing before training; then c numbers per labelled node, and c per weight of the branch."""
    _, fed, seen, state = traffic(KINDS[9])
    labelled = int(fed.batch.train_mask.sum())
    g = sum(w[0].numel() for n, w in state.shared.items() if n.startswith("structure"))
    assert seen["before"] == {}
    assert seen["training"]["down.structure embeddings"] == 2 * labelled * 3
    assert seen["training"]["down.structure jacobians"] == 2 * labelled * 3 * g


def test_the_ledger_sends_s_down_where_the_server_knows_the_graph() -> None:
    """With Hop2Vec all of S is among the weights sent down, which Algorithm 4 keeps at the server (FS-LEDGER)."""
    _, _, seen, state = traffic({"structure": "H2V", "graph": "known"})
    theta = sum(w[0].numel() for name, w in state.shared.items() if name != "structure")
    assert seen["training"]["down.weights"] - 2 * 3 * theta == 2 * 3 * NODES * 6
