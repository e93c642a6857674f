"""Compare the options that FedStruct's runs train with, not those of the settings, with its Table 5."""

from __future__ import annotations

import pytest

from fedrepro.papers.fedstruct.exhibits import grids
from fedrepro.runs import tasks

# Features and classes, rate (lambda and lambda_s), weight decay, epochs, L, L_s, and the hidden layers of theta_f and
# theta_s as Table 5 prints them. Its d_s is 256 and its p is 30 on every graph.
TABLE5 = {
    "Cora": (1433, 7, 0.002, 0.0005, 40, 2, 10, [64], [256]),
    "CiteSeer": (3703, 6, 0.002, 0.0005, 60, 2, 20, [64], [128, 64]),
    "PubMed": (500, 3, 0.008, 0.001, 125, 2, 20, [128], [128]),
    "Chameleon": (2325, 5, 0.003, 0.0003, 60, 1, 1, [64], [256]),
    "Photo": (745, 8, 0.005, 0.001, 150, 1, 3, [256], [256]),
    "Amazon Ratings": (300, 5, 0.002, 0.0002, 70, 2, 5, [64], [256]),
}


@pytest.mark.parametrize("exhibit", ["FS-T2", "FS-T6"])
@pytest.mark.parametrize("dataset", TABLE5)
def test_fedstruct_trains_with_table_5(exhibit: str, dataset: str) -> None:
    """Every row of FedStruct has its graph's settings; p = 30 prunes, but for the rows whose name ends in -F."""
    features, classes, *printed = TABLE5[dataset]
    cells = [(row, run) for row, run in grids.TRAINED[exhibit].cells() if row.startswith("FedStruct (")]
    rows = [(row, run) for row, run in cells if run.dataset == dataset]
    assert {row for row, _ in rows} == {f"FedStruct ({kind})" for kind in ("Deg", "Fed*", "H2V")} | {
        "FedStruct (H2V)-F"
    }
    for row, run in rows:
        method, loop = tasks.method(run, features, classes)
        widths = method.model.widths
        used = [method.lr, method.weight_decay, loop["rounds"], method.model.depth, method.structure_depth]
        assert [*used, [width for _, width in widths[:-1]], list(method.structure_hidden)] == printed
        assert (widths[0][0], widths[-1][1], method.width) == (features, classes, 256)
        assert method.prune == (0 if row.endswith("-F") else 30) and run.split == "10/10/80"
