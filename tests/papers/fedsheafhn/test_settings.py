"""FedSheafHN's runs of Tables 1 and 2 compared with Section 4.1 and with the ranges of Table 9."""

from __future__ import annotations

import pytest
from fedsheafhn_frames import TABLE1, TABLE2

from fedrepro.papers.fedsheafhn.exhibits import GRIDS
from fedrepro.runs import tasks

RUNS = [*TABLE1, *TABLE2]
# Rounds and local epochs (Section 4.1).
TRAINING = {
    "Cora": (100, 3),
    "CiteSeer": (100, 3),
    "PubMed": (100, 15),
    "Computers": (100, 10),
    "Photo": (150, 10),
    "ogbn-arxiv": (150, 10),
}


@pytest.mark.parametrize("dataset", TRAINING)
def test_all_methods_train_as_section_4_1_says(dataset: str) -> None:
    """Rounds, local epochs, two convolutions of width 128, the split 40/30/30 and five runs are those of the text."""
    runs = [run for run in RUNS if run.dataset == dataset]
    assert {run.clients for run in runs} == {10, 20, 30, 50} and {run.seed for run in runs} == set(range(5))
    assert {run.split for run in runs} == {"40/30/30"} and len({run.method for run in runs}) == 11
    for run in (run for run in runs if run.seed == 0):
        method, loop = tasks.method(run, features=20, classes=4)
        assert (loop["rounds"], method.local_epochs) == TRAINING[dataset]
        assert method.model.widths == [(20, 128), (128, 128), (128, 4)]  # the last is the head
        # SH-B3: pFedHN's clients have SGD, as Adam kills its hypernetwork.
        assert method.optimizer == ("sgd" if run.method == "pFedHN" else "adam")


def test_fedsheafhn_is_within_table_9() -> None:
    """The hypernetwork has attention and two layers of 128, r_in is 5, and rates, channels, decay and dropout fit."""
    for run in (run for run in RUNS if run.method == "FedSheafHN"):
        method, _ = tasks.method(run, features=20, classes=4)
        assert (method.attention, method.hyper_layers, method.hyper_hidden) == ("softmax", 2, 128)
        assert (method.refresh, method.server_optimizer, method.sheaf_weight_decay) == (5, "adam", 0.0005)
        assert method.sheaf_lr in (0.02, 0.01, 0.001, 0.0001, 0.00001) and method.channels in (5, 10, 20)
        assert method.hyper_lr in (0.02, 0.01, 0.001) and method.lr in (0.02, 0.01, 0.001)
        assert 0 <= method.sheaf_dropout <= 0.6 and 0 <= method.model.dropout <= 0.6
        assert method.hyper_dropout in (0.3, 0.0)  # SH-Q13: none is tried too
        assert method.weight_decay in (0.0005, 1e-6)  # SH-Q13


def test_every_literal_method_keeps_adams_moments() -> None:
    """Adam keeps its moments in every row of SH-T1-literal (SH-B2), where pFedHN's clients have it too."""
    for run in (run for run in GRIDS["SH-T1-literal"].paper() if run.seed == 0 and run.clients == 10):
        method, _ = tasks.method(run, features=20, classes=4)
        assert (method.optimizer, method.optimizer_state) == ("adam", "kept"), run.method
