"""FED-PUB against a plain loop over clients with dense matrices, and at its limits."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from graphs import identical, largest_difference
from loop import DROPPING, GCN, task, watch
from plain import (
    F64,
    Client,
    Weights,
    able,
    clients_of,
    detached,
    hidden,
    initial,
    leaves,
    loss,
    optimizer_of,
    options,
    row,
    step,
)
from torch import Tensor

from fedrepro.baselines import fedpub, malicious
from fedrepro.baselines.fedpub import FedPub
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.local import Local
from fedrepro.engine.nn.models import GAT
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError

MATRICES = ("layer1.weight", "layer2.weight")
SMALL: dict[str, Any] = {"proxies": 2, "proxy_nodes": 12, "proxy_density": 0.3}


def proxy_client(proxy: Federation) -> Client:
    """The proxy graph in dense matrices, from only its edges."""
    n = proxy.nodes
    a = torch.eye(n, dtype=F64)
    a[proxy.batch.edge_index[1], proxy.batch.edge_index[0]] = 1
    d = a.sum(1).rsqrt()
    assert isinstance(proxy.x, Tensor)
    none = torch.zeros(n, dtype=torch.long)
    return Client(proxy.x, d[:, None] * a * d, a, none, none.bool(), proxy.batch)


def masked(w: Weights, mask: Weights, threshold: float = 0.0) -> Weights:
    kept = {name: m * (m.abs() >= threshold) for name, m in mask.items()}
    return {name: value * kept[name] if name in kept else value for name, value in w.items()}


def penalty(method: FedPub, w: Weights, mask: Weights, received: Weights, t: int) -> Tensor:
    total = method.sparsity * sum(m.abs().sum() for m in mask.values())
    for name, value in w.items() if t else ():
        away = (value - received[name]).square().sum()
        norm = torch.norm(value - received[name]) if method.norm == "plain" else away
        total = total + method.proximal * norm
    return total


def plain_loop(method: FedPub, held: list[Client], proxy: Client, rounds: int) -> tuple[list[Weights], list[Weights]]:
    """Each client's weights as received after the last round, and its masks."""
    clients = [leaves(initial(method)) for _ in held]
    masks = [leaves({name: torch.ones_like(w[name]) for name in MATRICES}) for w in clients]
    steps = [optimizer_of(method, [*w.values(), *m.values()]) for w, m in zip(clients, masks)]
    received = [detached(w) for w in clients]
    for t in range(rounds):
        for i in able(held):
            for _ in range(method.local_epochs):
                value = loss(masked(clients[i], masks[i]), held[i])
                if method.penalties == "printed":
                    value = value + penalty(method, clients[i], masks[i], received[i], t)
                step(steps[i], value)
        with torch.no_grad():
            h = [hidden(masked(w, m, method.sparsity), proxy).mean(0) for w, m in zip(clients, masks)]
            sent = [detached(w) for w in clients]
            for i, w in enumerate(clients):
                score = torch.tensor([method.scale * torch.cosine_similarity(h[i], h[j], 0) for j in able(held)])
                a = score.double().exp() / score.double().exp().sum()
                for name in w:
                    w[name].copy_(sum(p * sent[j][name] for p, j in zip(a, able(held))))
        received = [detached(w) for w in clients]
    return received, [detached(m) for m in masks]


@pytest.mark.parametrize(
    "kind", [{}, {"norm": "squared", "proximal": 0.1}, {"penalties": "coded"}, {"scale": 40.0, "sparsity": 0.02}]
)
def test_fedpub_is_its_plain_loop(kind: dict[str, Any]) -> None:
    """Received weights and masks of every client after three rounds, two of five without training nodes: to 1e-9."""
    data, parts = task(5)
    method = FedPub(model=GCN, local_epochs=3, **options(lr=0.1), **SMALL, **kind)
    trained = train(method, Federation.of(data, parts, dtype=F64), 3)
    received, masks = plain_loop(method, clients_of(data, parts), proxy_client(trained.state.more.proxies[0]), 3)
    for i, (w, mask) in enumerate(zip(received, masks)):
        got = row(trained.state.personal, i)
        assert largest_difference({name: got[name] for name in w}, w) < 1e-9
        assert largest_difference({name: got[f"{name}.mask"] for name in mask}, mask) < 1e-9
    assert largest_difference(row(trained.state.personal, 2), row(trained.state.personal, 4)) > 1e-3


def test_the_penalties_pull() -> None:
    """Printed penalties (l1 = l2 = 1), unlike coded ones, shrink a mask and keep a client near what it received."""
    fed, sizes, moves = Federation.of(*task(5), dtype=F64), [], []
    for kind in ("printed", "coded"):
        both = {"sparsity": 1.0, "proximal": 1.0, "penalties": kind}
        method, updates = watch(FedPub(model=GCN, local_epochs=5, **both, **SMALL))
        train(method, fed, 2)
        sizes.append(float(updates[1].after["layer1.weight.mask"][1].abs().mean()))
        moves.append(float((updates[1].after["layer1.bias"][1] - updates[1].before["layer1.bias"][1]).norm()))
    assert sizes[0] < 0.95 < sizes[1]
    assert moves[0] < 0.9 * moves[1]


def test_uniform_averages_without_masks_are_fedavg() -> None:
    """With scale = 0, dropout, no masks and no penalty every client holds FedAvg's weights; with scale it does not."""
    fed = Federation.of(*task(5), dtype=F64)
    off: dict[str, Any] = {"masks": False, "penalties": "coded", "local_epochs": 2, **SMALL}
    plain = train(FedAvg(model=DROPPING, local_epochs=2), fed, 3).state.shared
    made = train(FedPub(model=DROPPING, scale=0.0, **off), fed, 3).state.personal
    for i in range(fed.clients):
        assert largest_difference(row(made, i), row(plain, 0)) < 1e-12
    tilted = train(FedPub(model=DROPPING, scale=3.0, **off), fed, 3).state.personal
    assert largest_difference(row(tilted, 1), row(plain, 0)) > 1e-6


def test_a_large_scale_is_local_training() -> None:
    """Each client is most like itself: weights of clients that train agree with Local to 1e-10."""
    fed = Federation.of(*task(5), dtype=F64)
    off: dict[str, Any] = {"masks": False, "penalties": "coded", "local_epochs": 2, **SMALL}
    alone = train(Local(model=DROPPING, local_epochs=2), fed, 3).state.personal
    made = train(FedPub(model=DROPPING, scale=1e9, **off), fed, 3).state.personal
    for i in (1, 2, 4):
        assert largest_difference(row(made, i), row(alone, i)) < 1e-10


def test_embeddings_see_no_client_data() -> None:
    """Clients with the same model weigh the same whatever they hold; rows sum to 1; the matrix is not symmetric."""
    fed = Federation.of(*task(10), dtype=F64)
    method, updates = watch(FedPub(model=GCN, scale=5.0, local_epochs=4, lr=0.1, **SMALL))
    outcome = train(method, fed, 3)
    (a,) = outcome.state.more.similarity
    assert float((a.sum(1) - 1).abs().max()) < 1e-12
    trained = updates[-1].active
    square = a[trained]
    assert float((square - square.T).abs().max()) > 1e-6
    facts = method.facts(outcome.fed, outcome.state)[0]
    assert set(facts) == {"pruned"}  # two clients do not train, so that the matrix is not square
    alike = {name: w[:1].expand_as(w) for name, w in updates[-1].after.items()}
    every = torch.arange(10)
    h = method.embeddings(fed, alike, outcome.state.more.proxies, every >= 0)
    same = method.similarity(h, every, every)
    assert float((same - 0.1).abs().max()) < 1e-12


def test_facts_are_of_the_averaging_weights() -> None:
    """If all of three clients train: the spread of a_ij between different clients, and the mean of a_ii, by hand."""
    data, parts = task(5)
    parts = [parts[i] for i in (1, 2, 4)]  # the clients that have training nodes
    method, updates = watch(FedPub(model=GCN, scale=5.0, local_epochs=4, lr=0.1, **SMALL))
    made = train(method, Federation.of(data, parts, dtype=F64), 3)
    (facts,), proxy = method.facts(made.fed, made.state), proxy_client(made.state.more.proxies[0])
    h = []
    for i in range(3):
        w = row(updates[-1].after, i)
        h.append(hidden(masked(w, {name: w[f"{name}.mask"] for name in MATRICES}, method.sparsity), proxy).mean(0))
    a = [torch.stack([5.0 * torch.cosine_similarity(x, y, 0) for y in h]).softmax(0).tolist() for x in h]
    others = [a[i][j] for i in range(3) for j in range(3) if i != j]
    assert facts["similarity_spread"] == pytest.approx(max(others) - min(others), rel=1e-9)
    assert facts["similarity_self"] == pytest.approx((a[0][0] + a[1][1] + a[2][2]) / 3, rel=1e-12)
    assert facts["similarity_spread"] > 1e-2 and facts["similarity_self"] > 0.34


def test_masks_are_pruned_in_evaluation_only() -> None:
    """Entries below the threshold count while training and not in predictions; `pruned` reports their share."""
    method = FedPub(model=GCN, sparsity=0.5, **SMALL)
    trained = train(method, Federation.of(*task(3), dtype=F64), 1)
    trained.state.personal["layer1.weight.mask"][:] = 0.4
    assert float(method.forward(trained.state.personal, trained.fed.at(0, 0), trained.state).std(0).max()) > 1e-3
    quiet = method.predict(trained.fed, trained.state)
    biases = trained.state.personal["layer1.bias"], trained.state.personal["layer2.bias"]
    w = {
        "layer1.bias": biases[0][2],
        "layer2.bias": biases[1][2],
        "layer2.weight": trained.state.personal[MATRICES[1]][2],
    }
    first, last = int(trained.fed.batch.ptr[2]), int(trained.fed.batch.ptr[3])
    held = clients_of(*task(3))[2]
    kept = trained.state.personal["layer2.weight.mask"][2]
    assert bool((kept >= 0.5).all())
    expected = held.s @ torch.relu(w["layer1.bias"]).expand(len(held.x), -1) @ (w["layer2.weight"] * kept)
    assert largest_difference({"q": quiet[first:last]}, {"q": expected + w["layer2.bias"]}) < 1e-12
    assert method.facts(trained.fed, trained.state)[0]["pruned"] == 7 * 5 / (7 * 5 + 5 * 3)


def test_forged_embeddings_change_averages_alone() -> None:
    """Half of the clients malicious: what clients train in the first round is the same, what they receive is not."""
    fed, rounds = Federation.of(*task(10)), []
    for share in (0.0, 0.5):
        method, updates = watch(FedPub(model=GCN, malicious=share, attack="gaussian", scale=5.0, **SMALL))
        made = train(method, fed, 1)
        rounds.append((updates[0].after, made.state.personal))
    assert identical(rounds[0][0], rounds[1][0])
    assert largest_difference(rounds[0][1], rounds[1][1]) > 1e-4


def test_every_option_of_the_attack_reaches_the_forgery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share, attack and tau arrive at the check and at the forgery under the names that these have for them."""
    signatures = {
        name: inspect.signature(getattr(malicious, name)) for name in ("check_attack_options", "forge_embeddings")
    }
    arrived: dict[str, dict[str, Any]] = {}

    def record(name: str) -> None:
        def recorded(*given: Any, **named: Any) -> Any:
            arrived[name] = signatures[name].bind(*given, **named).arguments
            return arrived[name].get("embeddings")

        monkeypatch.setattr(fedpub, name, recorded)

    for name in signatures:
        record(name)
    given = {"share": 0.25, "attack": "gaussian", "tau": 0.5}
    method = FedPub(model=GCN, malicious=given["share"], attack=given["attack"], tau=given["tau"], **SMALL)
    train(method, Federation.of(*task(5)), 2)
    assert {name: arrived["check_attack_options"][name] for name in given} == given
    assert {name: arrived["forge_embeddings"][name] for name in given} == given and arrived["forge_embeddings"][
        "t"
    ] == 1


@pytest.mark.parametrize(
    ("clients", "participation", "trained", "received"), [(1, 1.0, 1, 1), (5, 1.0, 3, 5), (5, 0.5, 2, 4)]
)
def test_what_fedpub_sends(clients: int, participation: float, trained: int, received: int) -> None:
    """P up from clients that train, an embedding up and P down also for those without training nodes, the proxy graph
    once to every client.
    """
    fed = Federation.of(*task(clients), dtype=F64)
    method = FedPub(model=GCN, participation=participation, **SMALL)
    outcome = train(method, fed, 2)
    scalars = 7 * 5 + 5 + 5 * 3 + 3
    sent = {
        "up.weights": trained * scalars,
        "down.weights": received * scalars,
        "up.functional embedding": received * 5,
    }
    assert outcome.fed.traffic.round(0) == outcome.fed.traffic.round(1) == sent
    proxy = outcome.state.more.proxies[0]
    source, target = proxy.batch.edge_index
    assert set(zip(source.tolist(), target.tolist())) == set(zip(target.tolist(), source.tolist()))
    assert bool((source // 12 == target // 12).all()) and not bool((source == target).any())
    assert abs(len(source) / (2 * 12 * 11) - 0.3) < 0.1
    assert outcome.fed.traffic.summary()["before"] == {"down.proxy graph": clients * (24 * 7 + len(source))}


def test_masks_differ_between_clients_and_never_travel() -> None:
    """Three clients that train end with three masks, those of the others are ones."""
    made = train(FedPub(model=GCN, local_epochs=2, **SMALL), Federation.of(*task(5)), 3)
    mask = made.state.personal["layer1.weight.mask"]
    assert not torch.equal(mask[1], mask[2]) and not torch.equal(mask[2], mask[4])
    assert identical({"m": mask[[0, 3]]}, {"m": torch.ones(2, 7, 5)})


def test_bad_options_of_fedpub_are_refused() -> None:
    """A model without layers of its own kind, a negative weight, an unknown choice."""
    with pytest.raises(ArgumentError, match="sequence of layers"):
        FedPub(model=GAT(7, 3))
    for wrong in ({"scale": -1.0}, {"penalties": "both"}, {"proxy_density": 2.0}, {"proxies": 0}, {"norm": "l2"}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            FedPub(model=GCN, **wrong)  # type: ignore[arg-type]
