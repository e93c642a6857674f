"""FedGAT's runs of Table 1 in the reading *text* compared with what Section 6 and the appendix print."""

from __future__ import annotations

import pytest

from fedrepro.papers.fedgat.exhibits import GRIDS, grids
from fedrepro.runs import tasks

RUNS = [run for run in GRIDS["FG-T1"].runs("paper") if grids.reading(run.method, run.prepare) == "text"]
LITERAL = GRIDS["FG-T1-literal"].runs("paper")


@pytest.mark.parametrize("runs", [RUNS, LITERAL], ids=["text", "literal"])
def test_cells_are_those_of_table_1(runs: list[grids.Run]) -> None:
    """Ten runs a cell: central models once, federated ones with 10 clients and labels of beta 1 and 10000."""
    rows = {("Central", "GCN"), ("Central", "GAT"), ("DistGAT", "GAT"), ("FedGCN", "GCN"), ("FedGAT", "GAT")}
    cells = {
        (method, model, dataset, partition, clients)
        for method, model in rows
        for dataset in ("Cora", "CiteSeer", "PubMed")
        for partition, clients in (
            [("single", 1)] if method == "Central" else [("dirichlet(beta=1)", 10), ("dirichlet(beta=10000)", 10)]
        )
    }
    keys = [(run.method, run.options["model"], run.dataset, run.partition, run.clients) for run in runs]
    assert set(keys) == cells and all(keys.count(cell) == 10 for cell in cells)
    assert {run.split for run in runs} == {"public"}  # the counts of the appendix's Table 2


def test_networks_are_those_of_the_appendix() -> None:
    """A GAT has 8 heads of 8 units, and 8 output heads only on PubMed; FedGAT's degree is 16; there is no dropout."""
    for run in [*RUNS, *LITERAL]:
        method, _ = tasks.method(run, features=20, classes=4)
        assert (method.model.dropout, method.model.first_dropout) == (0, 0)
        if run.options["model"] == "GAT":
            heads = 8 if run.dataset == "PubMed" else 1
            assert (method.model.hidden, method.model.heads, method.model.output_heads) == (8, 8, heads)
        if run.method == "FedGAT":
            assert method.degree == 16


def test_the_literal_reading_has_the_printed_steps() -> None:
    """The runs of FG-T1-literal have Adam at 0.1 with regularization 0.001 on all graphs, as printed for Cora."""
    for run in LITERAL:
        method, _ = tasks.method(run, features=20, classes=4)
        assert (method.optimizer, method.lr, method.weight_decay) == ("adam", 0.1, 0.001)
