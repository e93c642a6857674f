"""The attacker across the papers: between its controls, above a guess, and on the messages that methods send."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import subgraph

from fedrepro.across import attacker, exhibits, messages, page, protocol, tables
from fedrepro.data import partition
from fedrepro.runs import tasks


def victim(nodes: int = 40) -> attacker.Victim:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(nodes, 60, generator=generator) * (torch.rand(nodes, 60, generator=generator) < 0.3)
    a = (torch.rand(nodes, nodes, generator=generator) < 0.1).float().triu(1)
    y = torch.arange(nodes) % 4
    return attacker.Victim(x, a + a.T, y, torch.rand(nodes, generator=generator) < 0.5, 4)


def test_noise_gives_chance_and_plain_data_gives_everything() -> None:
    """Features of nodes by number: 0 and 1; edges: one half and 1; labels: one over the classes and 1."""
    known = victim()
    known.x[3] = 0  # a node without features is not counted
    assert attacker.rate(attacker.plain(known), known) == dict.fromkeys(attacker.GOALS, pytest.approx(1.0, abs=1e-6))
    sent = {"rows": known.x, "update": torch.randn(60, 8), "bias": torch.randn(4)}
    drawn = [attacker.rate(attacker.guess(attacker.noise(sent, seed), known, seed), known) for seed in range(40)]
    mean = {goal: np.mean([one[goal] for one in drawn]) for goal in attacker.GOALS}
    chance = attacker.chance(sent, known)
    assert mean["features"] <= chance["features"] + 0.05
    assert abs(mean["edges"] - 0.5) < 0.05 and abs(mean["labels"] - 0.25) < 0.06
    mirrored = attacker.plain(known)._replace(vectors=-known.x)  # a direction up to its sign
    assert attacker.rate(mirrored, known)["features"] == pytest.approx(1.0, abs=1e-6)
    rebuilt = attacker.rate(attacker.guess(sent, known, 0), known)
    assert rebuilt["features"] == pytest.approx(1.0, abs=1e-6), "rows in the clear are the features"


def test_a_vector_for_each_node_has_the_chance_of_one() -> None:
    """The mean cosine of random rows is below the bound of one random vector, which is lower than that of the best."""
    known, width = victim()._replace(x=torch.randn(400, 60), y=torch.arange(400) % 4), 60
    drawn = torch.nn.functional.cosine_similarity(torch.randn(400, width), known.x).abs()
    rows, loose = {"rows": known.x}, {"update": torch.randn(width, 64)}
    by_node, best, none = (attacker.chance(seen, known)["features"] for seen in (rows | loose, loose, {}))
    assert drawn.mean() < by_node == pytest.approx((math.sqrt(2 * math.log(2)) + 1) / math.sqrt(width))
    assert best == pytest.approx((math.sqrt(2 * math.log(2 * 64)) + 1) / math.sqrt(width)) and none == 0.0


def test_noise_is_drawn_anew_for_each_run_and_client_and_often_for_one_class() -> None:
    """A client of one class is guessed right at the rate of chance, and two clients do not share their noise."""
    known = victim()._replace(y=torch.zeros(40, dtype=torch.long))
    sent = {"update": torch.randn(60, 8), "bias": torch.randn(4)}
    rates = [attacker.from_noise(sent, known, 0, client)["labels"] for client in range(4)]
    # The standard error is sqrt(3) / 4 / sqrt(400) = 0.022; with 20 draws it is 0.097.
    assert max(abs(labels - 0.25) for labels in rates) < 0.07 and len(set(rates)) > 1
    first, second = (attacker.noise(sent, 0, client, 0)["bias"] for client in (0, 1))
    assert not torch.equal(first, second)


def test_a_guess_from_the_other_clients_needs_no_message() -> None:
    """It is their mean row and commonest class, and the share of the client's own commonest class is counted too."""
    known = victim()
    other, labels = torch.rand(30, 60), torch.tensor([2] * 5 + [1] * 4)
    prior = attacker.prior(known, other, labels)
    mean = other.mean(0)
    cosine = (known.x @ mean / known.x.norm(dim=1) / mean.norm()).abs().mean()
    assert prior["features"] == pytest.approx(float(cosine), abs=1e-6) and prior["edges"] == 0.5
    assert prior["labels"] == pytest.approx(float((known.y[known.train] == 2).float().mean()))
    assert attacker.prior(known, other, labels[:0])["labels"] == 0.0, "no label, no guess"


def attacked(method: str) -> dict[str, float]:
    """Return the row of the table of one small attack on Cora's stand-in."""
    (run,) = exhibits.small(
        lambda: protocol.cell(method, protocol.ground(method, "Cora"), [0], task="attack", name="across-leak")
    )()
    result = attacker.leak(run)["result"]
    flat = {
        f"{kind}.{goal}": value
        for kind in ("sent", "noise", "plain", "chance", "prior")
        for goal, value in result[kind].items()
    }
    frame = pd.DataFrame(
        [{"dataset": run.dataset, "of": run.options["of"], "class": result["class"], "used": "", "unused": ""} | flat]
    )
    return dict(tables.leaks(frame).iloc[0])


def test_the_prior_guess_knows_the_rows_and_training_labels_of_other_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row and no label of the attacked client is in it, and no label of a validation or test node."""
    given: list[tuple[torch.Tensor, torch.Tensor]] = []
    rated = attacker.prior
    monkeypatch.setattr(attacker, "prior", lambda who, x, y: given.append((x, y)) or rated(who, x, y))
    (run,) = exhibits.small(
        lambda: protocol.cell("FedAvg", protocol.ground("FedAvg", "Cora"), [0], task="attack", name="across-leak")
    )()
    attacker.leak(run)
    data = tasks.graph(messages.trained(run))
    parts = partition.divide(data, run.partition, run.clients, run.seed)
    assert len(given) == min(len(parts), attacker.VICTIMS) > 1
    for part, (x, y) in zip(parts, given):
        rest = torch.from_numpy(np.setdiff1d(np.arange(len(data.y)), part.numpy()))
        assert torch.equal(x, messages.dense(data.x).float()[rest])
        assert torch.equal(y, data.y[rest][data.train_mask[rest]])


def test_what_a_guess_gives_is_no_leak() -> None:
    """Labels of FedAvg's update are one class: as right as the commonest class at most, and less than it reveals."""
    row = attacked("FedAvg")
    assert row["labels measured"] <= row["class measured"] + 1e-6
    assert row["features guessed"] > 0 and row["features"] == max(
        0.0, (row["features measured"] - row["features guessed"]) / (1 - row["features guessed"])
    )


def test_edges_that_the_server_holds_count_as_known() -> None:
    """The attack on the rows stays in the table, and the page names these methods apart from the others."""
    runs = [
        {"dataset": "Cora", "of": of, "used": "", "unused": ""}
        | {
            f"{kind}.{goal}": value
            for kind, value in (("sent", 0.6), ("chance", 0.5), ("prior", 0.55))
            for goal in tables.GOALS
        }
        for of in ("FedAvg", "Feras")
    ]
    leaks = tables.leaks(pd.DataFrame(runs)).set_index("row")
    assert leaks.loc["Feras", "edges"] == 1 and leaks.loc["Feras", "edges measured"] == pytest.approx(0.6)
    assert leaks.loc["FedAvg", "edges"] == pytest.approx(0.05 / 0.45) and leaks.loc["FedAvg", "edges held"] == ""
    (told,) = (
        one
        for one in page._leaks(pd.DataFrame({"column": [], "row": [], "accuracy": []}), leaks.reset_index())
        if "edges" in one
    )
    assert "The server of Feras holds the edges by protocol. Of the others FedAvg reveals most" in told


def listened(method: str) -> tuple[Any, ...]:
    """Return a small run without dropout, and what `messages.listen` returns of it."""
    (run,) = exhibits.small(lambda: protocol.cell(method, protocol.ground(method, "Cora"), [0]))()
    run = run.replace(options={**run.options, "dropout": 0.0})
    return (run, *messages.listen(run))


def test_feras_is_heard_as_it_sends() -> None:
    """The attacker hears as many numbers as are counted, and its first rows are relu(A X W + b) of the step."""
    run, method, fed, log, heard = listened("Feras")
    (plain,) = tasks.train([run])
    assert fed.traffic.summary() == plain["result"]["traffic"]
    counted = sum(
        float(count[0])
        for (t, way, name), count in fed.traffic._scalars.items()
        if (t, way, name) == (0, "up", "embeddings")
    )
    assert counted == sum(values.numel() for _, _, values in heard.rows) > 0
    ready, state = method.start(tasks.federation([run]))
    sample = method.sample(ready.at(0, 0), state, 0)
    a, x = sample.a.dense(), messages.dense(sample.fed.x)
    client = sample.fed.batch.batch
    weights = log.updates[0].before
    z = torch.stack(
        [(a @ (x @ weights["layer1.weight"][c]))[i] + weights["layer1.bias"][c] for i, c in enumerate(client.tolist())]
    )
    seen = sample.fed.batch.visible
    assert torch.allclose(heard.rows[0][2], z.relu()[seen], atol=1e-5)
    sent = messages.of_client(run, 0, (method, fed, log, heard))["embeddings"]
    assert 0 < int(sent.any(1).sum()) < len(sent), "nodes that no host has drawn are not heard"


def test_the_mean_embedding_of_fedsheafhn_is_heard_as_it_is_sent() -> None:
    """It is the mean of A X W over the client's own graph; the bias is taken off, since the server knows it."""
    run, method, fed, log, heard = listened("FedSheafHN")
    data, nodes = fed.sources[0].data, fed.sources[0].parts[0]
    edge_index, _ = subgraph(nodes, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)
    edges, values = gcn_norm(edge_index, num_nodes=len(nodes), dtype=torch.float32)
    a = torch.zeros(len(nodes), len(nodes)).index_put_((edges[1], edges[0]), values, accumulate=True)
    messages_sent = messages.of_client(run, 0, (method, fed, log, heard))
    expected = (a @ messages.dense(data.x).float()[nodes] @ messages_sent["known"]).mean(0)
    assert np.allclose(messages_sent["mean"][0], expected, atol=1e-5)
