"""The ledger of messages, and what the methods that send whole weights write into it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from graphs import block_model, unequal_parts, without_labels

from fedrepro.engine.central import Central
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.fedsgd import FedSGD
from fedrepro.engine.local import Local
from fedrepro.engine.method import Method
from fedrepro.engine.nn import models
from fedrepro.engine.traffic import Traffic
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError

GCN = models.GCN(features=7, classes=3, hidden=5)
P = 7 * 5 + 5 + 5 * 3 + 3


def federation(seed: int = 0, clients: int = 6, dtype: torch.dtype = torch.float32) -> Federation:
    """Six clients of which two have no training nodes."""
    data = block_model(48, seed=seed)
    parts = unequal_parts(48, clients, seed)
    return Federation.of(without_labels(data, parts, [0, 3]), parts, seed, dtype=dtype)


def test_messages_of_one_name_add_up() -> None:
    """Scalars and bytes are summed per round, direction and name; a round lists its own only."""
    ledger = Traffic(2, size=8)
    ledger.send("up", "features", np.array([10, 20]))
    ledger.send("down", "weights", 5, round=0)
    ledger.send("down", "weights", np.array([1, 2]), round=0)
    ledger.send("up", "weights", 7, round=1)
    assert ledger.summary(1) == {
        "before": {"up.features": 20},
        "training": {"down.weights": 7, "up.weights": 7},
        "bytes": {"before": 20 * 8, "training": 14 * 8},
    }
    assert ledger.summary(0)["training"] == {"down.weights": 6, "up.weights": 7}
    assert ledger.round(0) == {"down.weights": 6} and ledger.round(1, 1) == {"up.weights": 7}
    assert ledger.round(2) == {}


def test_a_message_is_not_changed_after_it_was_sent() -> None:
    """The ledger keeps no view of the counts it was given."""
    ledger, count = Traffic(2), np.array([1.0, 2.0])
    ledger.send("up", "weights", count, round=0)
    count += 100
    assert ledger.round(0, 1) == {"up.weights": 2}


def test_an_unknown_direction_is_refused() -> None:
    """Messages go up or down."""
    with pytest.raises(ArgumentError, match="direction must be one of 'up', 'down'"):
        Traffic().send("sideways", "weights", 1)


@pytest.mark.parametrize(("kind", "up"), [(FedAvg, "up.weights"), (FedSGD, "up.gradients")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_every_active_client_receives_and_sends_all_parameters_once_a_round(
    kind: type[Method], up: str, dtype: torch.dtype
) -> None:
    """P down and P up per client with training nodes and round, in each run, nothing before training."""
    fed = Federation.stack([federation(0, dtype=dtype), federation(1, 5, dtype)])
    ledger = train(kind(model=GCN), fed, 3).fed.traffic
    for run, active in enumerate((4, 3)):
        for t in range(3):
            assert ledger.round(t, run) == {"down.weights": active * P, up: active * P}
        summary = ledger.summary(run)
        size = torch.finfo(dtype).bits // 8
        assert summary["before"] == {} and summary["training"] == {"down.weights": 3 * active * P, up: 3 * active * P}
        assert summary["bytes"] == {"before": 0, "training": 2 * 3 * active * P * size}


@pytest.mark.parametrize("options", [{"local_epochs": 3}, {"average": "nodes"}, {"optimizer_state": "reset"}], ids=str)
def test_traffic_does_not_depend_on_what_clients_do_with_the_weights(options: dict[str, Any]) -> None:
    """Local epochs, averages and optimizer state send nothing."""
    ledger = train(FedAvg(model=GCN, **options), federation(), 2).fed.traffic
    assert ledger.round(1) == {"down.weights": 4 * P, "up.weights": 4 * P}


def test_clients_that_are_not_selected_send_nothing() -> None:
    """Half of the four clients with training nodes: two a round."""
    ledger = train(FedAvg(model=GCN, participation=0.5), federation(), 2).fed.traffic
    assert ledger.round(0) == ledger.round(1) == {"down.weights": 2 * P, "up.weights": 2 * P}


def test_local_and_central_training_send_nothing() -> None:
    """Their ledgers are empty."""
    data = block_model(48)
    for method, fed in (
        (Local(model=GCN), federation()),
        (Central(model=GCN), Federation.of(data, [torch.arange(48)])),
    ):
        summary = train(method, fed, 2).fed.traffic.summary()
        assert summary == {"before": {}, "training": {}, "bytes": {"before": 0, "training": 0}}


def test_a_federation_trained_twice_counts_each_training_by_itself() -> None:
    """The ledger of a second training on the same federation does not hold the first one's messages."""
    fed = federation()
    first = train(FedAvg(model=GCN), fed, 2).fed.traffic.summary()
    assert train(FedAvg(model=GCN), fed, 2).fed.traffic.summary() == first
