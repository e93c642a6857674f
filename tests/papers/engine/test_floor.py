"""The floor of a round: the counts are those of dense matrices, and the rates are numbers."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import torch
from torch_geometric.utils import to_dense_adj

from fedrepro.papers.engine import exhibits, floor
from fedrepro.runs import tasks


def test_the_counts_are_those_of_dense_matrices() -> None:
    """Stored entries are counted on each client's whole graph, cut by powers of its adjacency."""
    (run,) = exhibits.smallest_speed()
    fed, hidden, epochs = tasks.federation([run]), 16, 3
    entries = near = training = clients = 0
    for client in range(fed.clients):
        part = fed.select([client])
        graph = part.batch
        x = part.x if isinstance(part.x, torch.Tensor) else part.x.dense()
        a = to_dense_adj(graph.edge_index, max_num_nodes=graph.num_nodes)[0] + torch.eye(graph.num_nodes)
        wanted = graph.train_mask.float()
        one, two = (((torch.linalg.matrix_power(a, hops) @ wanted) > 0) for hops in (1, 2))
        entries += int((x[two] != 0).sum())
        near += int((a[one] != 0).sum())
        training += int((a[graph.train_mask] != 0).sum())
        clients += bool(graph.train_mask.any())
    counts = floor.counts(fed, hidden, epochs)
    weights = hidden * fed.features + hidden + hidden * fed.classes + fed.classes
    assert counts["bytes"] == epochs * clients * 28 * weights
    assert counts["operations"] == epochs * 4 * (entries * hidden + near * hidden + training * fed.classes)
    assert 0 < training < near < entries


def test_the_floor_is_the_work_at_the_measured_speed() -> None:
    """Both parts are positive, and their sum is the floor."""
    (run,) = exhibits.smallest_floors()
    result = floor.floor(run)["result"]
    timing = result["timing"]
    parts = result["bytes"] / timing["bytes_per_second"], result["operations"] / timing["operations_per_second"]
    assert timing["seconds_per_round"] == pytest.approx(sum(parts)) and min(parts) > 0 and math.isfinite(sum(parts))


def test_the_table_puts_the_stack_of_the_same_setting_beside() -> None:
    """A setting that was not timed has a floor and no ratio."""
    floors = pd.DataFrame([run.to_dict() | {"hidden": run.options["hidden"]} for run in exhibits.floors()])
    rates = {"timing.bytes_per_second": 2e9, "timing.operations_per_second": 3e9, "timing.seconds_per_round": 0.5}
    timed = pd.DataFrame([run.to_dict() | {"hidden": run.options["hidden"]} for run in exhibits.speed()])
    floors = floors.assign(**rates)
    table = exhibits.floor_table(floors, timed.assign(**{"stack.timing.seconds_per_round": 2.0}))
    assert list(table.columns[:4]) == ["graph", "split", "clients", "hidden"] and len(table) == len(exhibits.floors())
    on_cora = table["graph"] == "Cora"
    assert set(table.loc[on_cora, "stack over floor"]) == {4.0} and table.loc[~on_cora, "stack over floor"].isna().all()
    assert exhibits.floor_table(floors[:0], timed[:0]).empty
