"""Compare Algorithm 3 and the round of Appendix G.1, message by message, with central powers and autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from graphs import block_model, dense_operator, gap, unequal_parts
from scipy.sparse import csr_matrix

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.models import DGCN
from fedrepro.engine.traffic import Traffic
from fedrepro.engine.training import client_gradients
from fedrepro.errors import ArgumentError
from fedrepro.papers.fedstruct import powers, protocol
from fedrepro.papers.fedstruct.method import FedStruct
from fedrepro.papers.fedstruct.theory import exchange
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

NODES, CLIENTS = 48, 4
BETA = [0.5, -0.2, 0.0, 0.7]
DATA = block_model(NODES, seed=3)
PARTS = unequal_parts(NODES, CLIENTS, 3)


def central(prune: int) -> np.ndarray:
    step = dense_operator("row", DATA.edge_index, NODES)
    return np.asarray(sum(b * np.linalg.matrix_power(step, k) for k, b in enumerate(BETA, start=1)))


def test_without_pruning_the_blocks_are_the_central_powers() -> None:
    """Each client's rows of A- are central to 1e-14, and without one block they are not (FS-I2)."""
    clients = protocol.acquire(DATA, PARTS, BETA)
    assert np.abs(protocol.assembled(clients).toarray() - central(0)).max() < 1e-14
    for client in clients:
        order = np.concatenate([other.nodes for other in clients])
        assert np.abs(client.rows().toarray() - central(0)[client.nodes][:, order]).max() < 1e-14
    silent = protocol.clients_of(DATA, PARTS)
    for client in silent:
        client.begin(1.0)
    blocks = {(j, k.number): k.block(3, j) * (k.number != 2) for k in silent for j in range(CLIENTS)}
    silent[3].collect({key: csr_matrix(b) for key, b in blocks.items()}, 1.0)
    step = dense_operator("row", DATA.edge_index, NODES)
    order = np.concatenate([other.nodes for other in silent])
    assert np.abs(silent[3].rows().toarray() - (step + step @ step)[silent[3].nodes][:, order]).max() > 0.01


@pytest.mark.parametrize("p", [1, 5, 9, 200])
def test_with_pruning_it_is_the_form_used_in_training(p: int) -> None:
    """Both forms keep the same entries, to 1e-14 in value, and send the same numbers."""
    traffic = Traffic()
    literal = protocol.assembled(protocol.acquire(DATA, PARTS, BETA, p, traffic))
    quick, sent = powers.combined(DATA, PARTS, [0.0, *BETA], p, "blocks")
    assert np.abs(literal.toarray() - quick.toarray()).max() < 1e-14
    blocks = {"up.power blocks": sent, "down.power blocks": sent}
    assert traffic.summary()["before"] == blocks | {"up.power indices": 2 * sent, "down.power indices": 2 * sent}
    error = np.abs(literal.toarray() - central(0)).max()
    assert (error > 0.01) == (p < 200) and (p < 200 or error < 1e-14)


def test_rows_sent_whole_are_counted_as_in_training() -> None:
    """Without pruning the messages are those that `powers.full_blocks` counts."""
    traffic = Traffic()
    protocol.acquire(DATA, PARTS, BETA, 0, traffic)
    sent = powers.full_blocks(Federation.of(DATA, PARTS).sources[0], len(BETA))
    assert traffic.summary()["before"] == {"up.power blocks": sent, "down.power blocks": sent}


def test_a_client_starts_from_its_own_edges() -> None:
    """Edges between two other clients change nothing that a client holds before the exchange, and do after it."""
    source, target = DATA.edge_index
    owner = powers.owners(PARTS, NODES)
    far = torch.from_numpy((owner[source] != 3) & (owner[target] != 3))
    other = DATA.clone()
    other.edge_index = DATA.edge_index[:, ~far]
    before, after = (protocol.clients_of(d, PARTS)[3] for d in (DATA, other))
    for name in ("outgoing", "incoming"):
        a, b = getattr(before, name), getattr(after, name)
        assert all((x != y).nnz == 0 for k, (x, y) in enumerate(zip(a, b)))
    assert np.array_equal(before.inverse, after.inverse)
    made = [protocol.acquire(d, PARTS, [0.0, 1.0])[3].rows() for d in (DATA, other)]
    assert np.abs((made[0] - made[1]).toarray()).max() > 0.01


# -- sums in place of structure features ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"structure": "Deg", "prune": 4},
        {"structure": "GDV", "prune": 6, "structure_hidden": (5, 4)},
        {"structure": "Deg", "prune": 4, "norm": False},
        {"structure": "H2V", "head": "direct", "prune": 4},
    ],
)
def test_sums_give_the_same_predictions_and_gradients(options: dict[str, Any]) -> None:
    """Predictions and every client's gradient equal those of FedStruct to 1e-12 (FS-A5)."""
    method = FedStruct(model=DGCN(7, 3, hidden=4, depth=1), width=6, **{"structure_hidden": (4,), **options})
    fed, state = method.start(Federation.of(DATA, PARTS, dtype=torch.float64))
    traffic = Traffic()
    predictions, gradients = protocol.aggregate_round(method, fed, state, traffic)
    logits = method.predict(fed, state)[fed.batch.node_id.argsort()]
    expected = client_gradients(method, fed, state)
    for i, part in enumerate(PARTS):
        v = part.sort().values
        v = v[DATA.train_mask[v]]
        assert gap(predictions[i], logits[v].softmax(1)) < 1e-12
        for name, g in gradients.items():
            assert gap(g[i], len(v) * expected[name][i]) < 1e-12
    assert set(gradients) == {n for n in state.shared if n.startswith("structure")}
    labelled = int(DATA.train_mask.sum())
    size = sum(w[0].numel() for n, w in state.shared.items() if n.startswith("structure") and n != "structure")
    assert traffic.summary()["before"]["up.aggregates"] == labelled * (CLIENTS - 1) * 3 * (1 + size)
    assert max(float(g.abs().max()) for g in gradients.values()) > 1e-3


def test_hop2vec_with_g_cannot_share_sums() -> None:
    """The gradient of such a Hop2Vec needs the Jacobian of g at others' structure features."""
    method = FedStruct(model=DGCN(7, 3, hidden=4), width=6, prune=4)
    with pytest.raises(ArgumentError, match="'direct' for H2V"):
        protocol.aggregate_round(method, *method.start(Federation.of(DATA, PARTS)), Traffic())


# -- the tasks --------------------------------------------------------------------------------------------------------

RUN = Run(
    task="check",
    paper="fedstruct",
    method="fedstruct-powers",
    dataset="Cora~standin",
    prepare="undirected+no-self-loops",
    split="10/10/80",
    partition="random",
    clients=3,
)


def test_the_example_and_its_misprints() -> None:
    """Some of the printed matrices follow from the printed adjacency matrix, and some do not (FS-I3)."""
    example = exchange.example(Run(task="check", paper="fedstruct", method="fedstruct-example"))["result"]
    agree = {name for name, same in example["agrees"].items() if same}
    assert agree == {"B_221", "B_231", "B_213", "B_223", "A~_2^[1]", "A~_1^[3]"}
    assert {m["place"] for m in example["misprints"]} >= {"B_211", "B_233", "Eq. 39: A~_2^[3]", "Eq. 38: known entries"}
    assert example["computed"]["B_211"] == [[0, 0, 0], [0, 0, 0], [1, 1, 1]]
    assert example["transposed"] == ["B_211", "B_233"]
    step = dense_operator("row", protocol.example()[0].edge_index, 9)
    loops = (step > 0).astype(int)
    square = np.array(example["second power of A~, rows of client 2"])
    assert np.array_equal(square, (loops @ loops)[3:6])


def test_powers_are_checked_on_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The literal form equals that of training; errors and counts are compared with p and the bounds (FS-A3)."""
    monkeypatch.setattr(tasks, "graph", lambda run: DATA)
    run = RUN.replace(options={"prune": 4, "structure_depth": 4}, clients=CLIENTS)
    some = exchange.powers(run)["result"]
    full = exchange.powers(run.replace(options={"prune": 0, "structure_depth": 4}))["result"]
    assert some["difference"] < 1e-14 and full["difference"] < 1e-14 and full["full_difference"] < 1e-14
    assert some["relative_error"] > 0.05 and full["relative_error"] < 1e-14
    assert 0 < some["row_sum"] < 1 and abs(full["row_sum"] - 1) < 1e-14
    assert some["bound"] == 4 * CLIENTS * 4 * NODES and some["text_bound"] == 4 * 4 * NODES
    assert some["blocks"] / CLIENTS <= some["text_bound"]  # the text's number is for one client (D.1)
    assert some["blocks"] < full["blocks"] and some["indices"] == 2 * some["blocks"] and full["indices"] == 0
    whole = exchange.powers(run.replace(options={"prune": 4, "structure_depth": 4, "budget": "matrix"}))["result"]
    assert whole["kept_per_node"] <= 4 and whole["difference"] is None


def test_communication_is_counted_beside_the_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of a run come from the ledger of training, next to the orders of Tables 1 and 9."""
    monkeypatch.setattr(tasks, "graph", lambda run: DATA)
    options = {"model": "DGCN", "hidden": 4, "width": 6, "structure_hidden": (4,), "structure_depth": 3, "prune": 4}
    run = RUN.replace(task="traffic", method="FedStruct", clients=CLIENTS, options={**options, "rounds": 5})
    hop = exchange.communication(run)["result"]
    deg = exchange.communication(run.replace(options={**options, "rounds": 5, "structure": "Deg"}))["result"]
    theta = hop["sizes"]["theta"]
    assert hop["formula"]["before"] == 3 * CLIENTS * 4 * NODES
    assert deg["formula"]["before"] == CLIENTS * 6 * NODES + 3 * CLIENTS * 4 * NODES
    assert deg["formula"]["training"] == 5 * CLIENTS * theta
    assert hop["formula"]["training"] == 5 * CLIENTS * theta + 5 * CLIENTS * 6 * NODES
    assert hop["training"]["up.gradients"] == 5 * CLIENTS * (theta + NODES * 6)
    assert deg["training"]["down.weights"] == 5 * CLIENTS * deg["sizes"]["theta"] and hop["sizes"]["S"] == NODES * 6
    known = {**options, "prune": 0, "graph": "known", "rounds": 5, "structure": "Deg"}
    server = exchange.communication(run.replace(options=known))["result"]
    assert server["before"] == {} and server["formula"]["before"] == 0
    assert server["formula"]["training"] == 5 * CLIENTS * theta + 5 * NODES * 6 * theta


def test_sums_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The round of sums is equal to rounding, and Eq. 48 takes more numbers than the text counts (FS-A5)."""
    for structure in ("Deg", "H2V"):
        result = exchange.aggregates(RUN.replace(method="fedstruct-aggregates", options={"structure": structure}))[
            "result"
        ]
        assert result["prediction"] < 1e-12 and result["gradient"] < 1e-12
        assert (result["sent"] > result["claimed"]) == (structure == "Deg")
