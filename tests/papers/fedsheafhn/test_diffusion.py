"""A trained server of FedSheafHN taken apart, and clients that join it, against plain loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fedsheafhn_checks import SMALL, compute
from graphs import block_model, gap
from torch import Tensor

from fedrepro.data import datasets, partition
from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import random
from fedrepro.engine.nn.models import GCNHead
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.server import Server
from fedrepro.papers.fedsheafhn.theory.clients import join

pytestmark = pytest.mark.usefixtures("block")
MODEL = GCNHead(7, 3, 6)


def method_of(options: dict[str, Any]) -> FedSheafHN:
    """Return the method that a check trains with these options."""
    return FedSheafHN(
        model=MODEL, **{name: value for name, value in options.items() if name not in ("model", "hidden")}
    )


def plainly(new: list[Federation], weights: dict[str, Tensor], epochs: int) -> float:
    """Train clients one by one with PyTorch's Adam, and return their mean test accuracy."""
    accuracies = []
    for i, alone in enumerate(new):
        leaves = {name: w[i : i + 1].detach().clone().requires_grad_() for name, w in weights.items()}
        steps = torch.optim.Adam(list(leaves.values()), lr=0.3)
        model, data = MODEL, alone.batch
        for _ in range(epochs):
            steps.zero_grad()
            F.cross_entropy(model(leaves, alone)[data.train_mask], data.y[data.train_mask]).backward()
            steps.step()
        with torch.no_grad():
            right = model(leaves, alone).argmax(1) == data.y
        accuracies.append(float(right[data.test_mask].float().mean()))
    return sum(accuracies) / len(accuracies)


@pytest.mark.parametrize("options", [{}, {"maps_made": "once"}, {"stalk": 2, "maps": "general"}], ids=str)
def test_stages_of_the_sheaf(options: dict[str, Any]) -> None:
    """The stages equal loops over edges, layers and pairs, for the server before and after training (SH-F3)."""
    options = {**SMALL, "neighbours": 2, **options}
    result = compute("check", "FedSheafHN-diffusion", rounds=3, **options)
    fed = Federation.of(*_small_federation(), 0)
    method = method_of(options)
    memory = train(method, fed, 3).state.more
    start = method.server(0, memory.first)
    for name, server, x in (("start", start, memory.first), ("end", memory.servers[0], memory.used)):
        expected = _plain_stages(server, method.vectors_of(x))
        got = result[name]
        assert got.keys() == expected.keys()
        assert got["stage"] == ["vectors", "encoded", "layer 1", "layer 2", "decoded"]
        for row in expected.keys() - {"stage"}:
            assert got[row] == pytest.approx(expected[row], abs=1e-4), row
    assert result["start"]["step"] != result["end"]["step"]
    with pytest.raises(ArgumentError, match="diffusion must be 'sheaf'"):
        compute("check", "FedSheafHN-diffusion", rounds=1, **SMALL, diffusion="gcn")


def _small_federation() -> tuple[Any, list[Tensor]]:
    data = datasets.assemble("block", "", "40/30/30", 0)
    return data, partition.partition(data, "random(equal=True)", 6, 0)


def _plain_stages(server: Server, vectors: Tensor) -> dict[str, list[Any]]:
    """Return the lists of `trace` by loops over edges in float64."""
    w = {name: value.double() for name, value in server.weights.items() if name.startswith("sheaf")}
    part, x = server.diffusion, vectors.double()
    edges = [tuple(pair) for pair in server.pairs(vectors).T.tolist()]
    n, d, h = len(x), part.stalk, part.channels
    rows: dict[str, list[Any]] = {name: [None, None] for name in ("step", "energy", "map_size", "map_spread")}
    state = F.elu(x @ w["sheaf.encode.weight"] + w["sheaf.encode.bias"])
    states = [state]
    for t in range(part.steps):
        source = t if part.maps_made == "layer" else 0
        maps = {}
        for u, v in edges:
            for a, b in ((u, v), (v, u)):
                pair = torch.cat([states[source][a], states[source][b]])
                inner = torch.relu(pair @ w[f"sheaf.{source}.map0.weight"] + w[f"sheaf.{source}.map0.bias"])
                values = torch.tanh(inner @ w[f"sheaf.{source}.map1.weight"])
                maps[a, b] = values.view(d, d) if part.maps == "general" else torch.diag(values)
        roots = []
        for v in range(n):
            block = sum((m.T @ m for (a, _), m in maps.items() if a == v), torch.zeros(d, d).double())
            value, vector = torch.linalg.eigh(block + torch.eye(d).double())
            roots.append(vector @ torch.diag(value**-0.5) @ vector.T)
        nodes = states[-1].view(n, d, h)

        def along(y: Tensor, maps: dict[Any, Tensor] = maps, roots: list[Tensor] = roots) -> Tensor:
            out = torch.zeros_like(y)
            for u, v in edges:
                gap_ = maps[u, v] @ roots[u] @ y[u] - maps[v, u] @ roots[v] @ y[v]
                out[u] += roots[u] @ maps[u, v].T @ gap_
                out[v] -= roots[v] @ maps[v, u].T @ gap_
            return out

        inner = torch.stack([w[f"sheaf.{t}.w1"] @ y for y in nodes])
        change = F.elu(along(inner) @ w[f"sheaf.{t}.w2"])
        entries = torch.cat([m.flatten() for m in maps.values()])
        rows["step"].append(float(change.norm() / nodes.norm()))
        rows["energy"].append(float((nodes * along(nodes)).sum() / nodes.square().sum()))
        rows["map_size"].append(float(entries.abs().mean()))
        rows["map_spread"].append(float(np.std(entries.numpy())))
        states.append((nodes - change).reshape(n, -1))
    decoded = states[-1] @ w["sheaf.decode.weight"] + w["sheaf.decode.bias"]
    cosines: dict[str, list[float]] = {"neighbours": [], "others": []}
    for y in (x, *states, decoded):
        near, far = [], []
        for a in range(n):
            for b in range(a + 1, n):
                (near if (a, b) in edges else far).append(float(F.cosine_similarity(y[a], y[b], dim=0)))
        cosines["neighbours"].append(float(np.mean(near)))
        cosines["others"].append(float(np.mean(far)))
    names = ["vectors", "encoded", *(f"layer {t + 1}" for t in range(part.steps)), "decoded"]
    return {"stage": names, **cosines} | {name: [*values, None] for name, values in rows.items()}


def test_a_trained_server_with_a_part_switched_off() -> None:
    """Every switch equals weights generated by hand and a plain loop of local training."""
    options = {**SMALL, "hyper_lr": 0.05, "lr": 0.3}
    result = compute("check", "FedSheafHN-diffusion", rounds=4, **options)["off"]
    data, parts = _small_federation()
    fed = Federation.of(data, parts, 0)
    method = method_of(options)
    state = train(method, fed, 4).state
    server, x = state.more.servers[0], method.vectors_of(state.more.used)
    start, w = method.server(0, state.more.first), server.weights
    encoded = F.elu(x @ w["sheaf.encode.weight"] + w["sheaf.encode.bias"])
    decoded = server.diffusion.decode(w, encoded)
    expected = {
        "as trained": server.generate(server.weights, x, None),
        "one client's vector for all": server.generate(server.weights, x[[0] * 6], None),
        "another client's vector": server.generate(server.weights, x[[3, 4, 5, 0, 1, 2]], None),
        "no diffusion": server.hyper(server.weights, decoded, lambda h, p, name: h),
        "untrained server": start.generate(start.weights, x, None),
    }
    assert result["switch"] == list(expected)
    clients = [Federation.of(data, [part], 0) for part in parts]
    test, usual = fed.batch.test_mask, None
    for index, generated in enumerate(expected.values()):
        weights = {**state.personal, **generated}
        classes = method.model(weights, fed).argmax(1)[test]
        usual = classes if usual is None else usual
        assert result["changed"][index] == pytest.approx(float((classes != usual).float().mean()), abs=1e-6)
        assert result["received"][index] == pytest.approx(plainly(clients, weights, 0), abs=1e-6)
        assert result["trained"][index] == pytest.approx(plainly(clients, weights, 2), abs=1e-6)
    assert result["changed"][0] == 0 and result["changed"][4] > 0.1


def test_new_clients() -> None:
    """Two of six clients join, and all numbers equal those of a training without them and of plain loops."""
    options = {**SMALL, "lr": 0.3}
    result = compute("check", "FedSheafHN-new-clients", ratio=0.3, rounds=3, **options)
    assert (result["new"], result["trained"]) == (2, 4)
    late = sorted(random.uniform((6,), "new clients", 0).argsort().tolist()[:2])
    data, parts = _small_federation()
    fed = Federation.of(data, [part for i, part in enumerate(parts) if i not in late], 0)
    method = method_of(options)
    trained = train(method, fed, 3)
    after = trained.history.result(0)["after"]
    assert result["train_test"] == after["last"]["test_clients"]
    assert result["train_best"] == after["best"]["test_clients"]
    new = Federation.of(data, [parts[i] for i in late], 0)
    received, alone = join(method, trained.state, new), method.warmed(new)
    clients = [Federation.of(data, [parts[i]], 0) for i in late]
    assert result["new_received"] == pytest.approx(plainly(clients, received, 0), abs=1e-6)
    assert result["new_test"] == pytest.approx(plainly(clients, received, 2), abs=1e-6)
    assert result["new_alone"] == pytest.approx(plainly(clients, alone, 2), abs=1e-6)
    assert len({round(result[name], 6) for name in ("new_received", "new_test", "new_alone")}) > 1


def test_joining_clients_change_no_trained_vector() -> None:
    """Trained clients keep their vectors, and each new one gets weights of the frozen server."""
    data = block_model(60, degree=8, isolated=0)
    parts = list(torch.arange(60).view(6, -1))
    method = FedSheafHN(model=MODEL, local_epochs=2, hyper_hidden=8, attention="none", diffusion="none")
    _, _, state = train(method, Federation.of(data, parts[:4], 0), 2)
    new = Federation.of(data, parts[4:], 0)
    got = join(method, state, new)
    server, used = state.more.servers[0], state.more.used
    warmed = method.warmed(new)
    x = method.mean_embeddings(new, warmed)
    standardized = (x - used.mean(0)) / used.std(0, correction=0)
    h = F.relu(standardized @ server.weights["hyper.mlp0.weight"] + server.weights["hyper.mlp0.bias"])
    h = F.relu(h @ server.weights["hyper.mlp1.weight"] + server.weights["hyper.mlp1.bias"])
    flat = h @ server.weights["hyper.out.layer2.weight.weight"] + server.weights["hyper.out.layer2.weight.bias"]
    assert gap(got["layer2.weight"], math.sqrt(2 / 12) * flat.view(2, 6, 6)) < 1e-5
    assert torch.equal(got["layer3.weight"], warmed["layer3.weight"])
    both = method.vectors_of(torch.cat([used, x]), trained=used)
    assert gap(both[:4], method.vectors_of(used)) < 1e-6
    assert gap(got["layer1.weight"][0], got["layer1.weight"][1]) > 1e-6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ratio": 0.01}, "ratio"),
        ({"ratio": 0.3, "of": "FedAvg"}, "FedSheafHN or a variant"),
        ({"ratio": 0.3, "attention": "free"}, "which fix the clients"),
        ({"ratio": 0.3, "vectors": "one-hot", "diffusion": "none"}, "which fix the clients"),
    ],
)
def test_who_cannot_join(options: dict[str, Any], words: str) -> None:
    """No client joins with an impossible share, another method, or a server of fixed size."""
    sizes = SMALL if "of" not in options else {"model": "GCNHead", "hidden": 6}
    with pytest.raises(ArgumentError, match=words):
        compute("check", "FedSheafHN-new-clients", rounds=1, **sizes, **options)
