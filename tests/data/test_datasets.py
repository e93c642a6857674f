"""Describing graphs and scoring guesses: counts made by hand, and ogb's evaluator."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from raw_files import REAL, arxiv, needs_real
from torch_geometric.data import Data

from fedrepro.data import datasets
from fedrepro.data.statistics import summarize
from fedrepro.engine.federation import Federation
from fedrepro.engine.scores import score
from fedrepro.errors import ArgumentError


def accuracy(logits: torch.Tensor, true: torch.Tensor) -> float:
    """The engine's pooled test accuracy, every node being a test node of one client."""
    nodes = len(true)
    data = Data(x=torch.ones(nodes, 1), y=true, edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=nodes)
    data.num_classes = logits.shape[1]
    data.train_mask = data.val_mask = torch.zeros(nodes, dtype=torch.bool)
    data.test_mask = ~data.train_mask
    return float(score(Federation.of(data, [torch.arange(nodes)]), logits)["test"][0])


def test_statistics(loaded: Data) -> None:
    """Counts equal those made by hand."""
    counts = summarize(loaded)
    wanted = {"nodes": 6, "directed_edges": 6, "undirected_edges": 4, "self_loops": 1, "features": 4, "classes": 2}
    wanted |= {"class_nodes": [3, 3], "homophily": 0.75, "degree_50": 1.0, "degree_90": 2.0, "degree_99": 2.0}
    wanted |= {"isolated": 0, "train": 3, "val": 1, "test": 2}
    assert {key: counts[key] for key in wanted} == wanted
    assert counts["density"] == pytest.approx(12 / 24)


def test_describe(home: Path, loaded: Data) -> None:
    """The table lists all fourteen sets, what is here, and what a download would cost."""
    arxiv(home / "data/raw/ogbn_arxiv")
    table = datasets.describe().set_index("name")
    assert list(table.index[:14]) == list(datasets.NAMES) and table.index[-1] == "tiny"
    assert table.loc["ogbn-arxiv", "here"] and not table.loc["Reddit", "here"]
    assert table.loc["Reddit", "download"] == "on request" and table.loc["PPI", "download"] == "by hand"
    assert table.loc["Cora", "licence"] == "MIT (repository)" and table.loc["Cora", "undirected_edges"] == 5278


def test_official_evaluator() -> None:
    """Our accuracy is that of ogb's evaluator, and ogb does not load the module that asks for its newest version."""
    generator = torch.Generator().manual_seed(0)
    true, logits = torch.randint(40, (500,), generator=generator), torch.randn(500, 40, generator=generator)
    logits[torch.arange(0, 500, 3), true[::3]] += 9
    measured = accuracy(logits, true)
    assert 0.3 < measured < 0.5
    assert datasets.evaluator("ogbn-arxiv")(logits.argmax(1), true) == measured
    assert "outdated" not in sys.modules
    with pytest.raises(ArgumentError, match="'Cora'"):
        datasets.evaluator("Cora")


@needs_real
def test_official_evaluator_on_the_real_labels() -> None:
    """A guess of the most frequent class of ogbn-arxiv scores the same with us and with ogb's evaluator."""
    labels = Path(REAL or "") / "ogbn_arxiv/raw/node-label.csv.gz"
    if not labels.is_file():
        pytest.skip(f"our accuracy is not compared with ogb's on the real labels: there is no {labels}")
    true = torch.from_numpy(np.loadtxt(labels, dtype=np.int64))
    logits = torch.zeros(len(true), 40)
    logits[:, int(torch.bincount(true).argmax())] = 1
    measured = accuracy(logits, true)
    assert datasets.evaluator("ogbn-arxiv")(logits.argmax(1), true) == measured == pytest.approx(0.1613, abs=1e-4)
