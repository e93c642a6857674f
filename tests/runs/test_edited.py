"""Results of code or of a graph that has changed since are told from those of what is there now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import fedrepro as fr
from fedrepro.data import datasets
from fedrepro.runs.store import Store

NODES = 60


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    datasets._own.pop("toy", None)


def graph(number: int) -> Data:
    """Return a random graph of three classes."""
    generator = torch.Generator().manual_seed(number)
    edges = torch.randint(0, NODES, (2, 200), generator=generator)
    return Data(x=torch.rand(NODES, 5, generator=generator), y=torch.arange(NODES) % 3, edge_index=edges)


@pytest.mark.parametrize(
    ("former", "now", "changed"),
    [
        (lambda: graph(1), lambda: graph(2), "2 results of 'toy' were"),
        (lambda seed: graph(seed), lambda seed: graph(2 * seed), "1 result of 'toy' was"),  # with seed 0 it is the same
    ],
)
def test_another_graph_under_one_name_is_told(
    tmp_path: Path, former: Callable[..., Data], now: Callable[..., Data], changed: str
) -> None:
    """Stored results of another graph come with a warning that counts them, until they are computed again."""
    same: dict[str, Any] = {"task": "train", "paper": "mine", "dataset": "toy", "split": "20/40/40"}
    options = {"rounds": 2, "hidden": 4}
    runs = fr.sweep(**same, method="FedAvg", partition="random", clients=2, seed=range(2), options=options)
    store = Store(tmp_path)
    datasets.register("toy", former)
    before = [fr.execute(runs, store=store, progress=False) for _ in range(2)][1]
    datasets.register("toy", now)
    with pytest.warns(UserWarning, match=f"^{changed} computed on another graph: give this one another name, or give"):
        after = fr.execute(runs, store=store, progress=False)
    assert list(after["before.last.val_loss"]) == list(before["before.last.val_loss"])
    again = fr.execute(runs, store=store, progress=False, again=after["key"])
    assert again["before.last.val_loss"].iloc[1] != before["before.last.val_loss"].iloc[1]
    assert {len(record["data"]) for record in store} == {16}
