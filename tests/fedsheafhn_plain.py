"""A small federation for FedSheafHN, and training that keeps the state and the update of every round."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from graphs import block_model, unequal_parts, without_labels
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn.models import GCNHead
from fedrepro.engine.training import Trained, train
from fedrepro.papers.fedsheafhn.method import FedSheafHN

CLIENTS, FEATURES, CLASSES, HIDDEN = 6, 7, 3, 5
MODEL = GCNHead(FEATURES, CLASSES, HIDDEN)
BARE: dict[str, Any] = {"sheaf_dropout": 0.0, "hyper_dropout": 0.0, "hyper_hidden": 8, "channels": 4, "steps": 2}
QUICK: dict[str, Any] = {"lr": 0.05, "local_epochs": 2, "hyper_lr": 0.02, "sheaf_lr": 0.01, "neighbours": 2}
UNLABELLED = [2]


def graph(seed: int = 0) -> tuple[Data, list[Tensor]]:
    data, parts = block_model(48, degree=8, seed=seed), unequal_parts(48, CLIENTS, seed)
    return without_labels(data, parts, UNLABELLED), parts


def federate(seed: int = 0, dtype: torch.dtype = torch.float64) -> Federation:
    return Federation.of(*graph(seed), seed, dtype=dtype)


def build(kind: type[FedSheafHN] = FedSheafHN, **options: Any) -> FedSheafHN:
    return kind(model=MODEL, **{**BARE, **QUICK, **options})


def watched(
    method: FedSheafHN, rounds: int, fed: Federation | None = None
) -> tuple[Trained, list[State], list[Update]]:
    """Train, and return the state after and the update of every round too."""
    states: list[State] = []
    updates: list[Update] = []

    class Watched(type(method)):  # type: ignore[misc]
        def aggregate(self, state: State, update: Update) -> State:
            updates.append(update)
            states.append(super().aggregate(state, update))
            return states[-1]

    options = {item.name: getattr(method, item.name) for item in fields(method)}
    return train(Watched(**options), fed or federate(), rounds), states, updates
