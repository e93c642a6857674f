"""Sums over groups of nodes, clients and edges come out as `index_add` computes them on a CPU, to the last bit.

On a GPU `index_add` sums in the order in which its threads arrive, so that the methods use `sum_groups`.
"""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from promises import CASES, build, runs
from torch import Tensor

from fedrepro.baselines import fedprox, prototypes
from fedrepro.engine.nn.sparse import Pattern
from fedrepro.engine.training import train
from fedrepro.papers.fedsheafhn import sheaf
from fedrepro.papers.feras.saint import method as saint
from fedrepro.papers.gfl import clients

SUMMING = {"FedProx": fedprox, "FGGP": prototypes, "FedSheafHN": sheaf, "GFL-APPNP": clients}
SUMMING |= {"GraphSAINT": saint, "Feras": saint}


@pytest.mark.parametrize(("name", "module"), SUMMING.items())
def test_a_method_is_the_one_with_index_add(name: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs of each method that sums over groups: weights, scores and facts after five rounds."""
    called = []

    def former(rows: Tensor, by: Pattern) -> Tensor:
        called.append(name)
        return rows.new_zeros(by.shape[1], *rows.shape[1:]).index_add(0, by.col, rows)

    def outcome() -> tuple[list[str], list[Tensor]]:
        method = build(name, dropout=0.3)
        made = train(method, runs(name), 5)
        said = [repr(made.history.result(run)) for run in range(3)] + [repr(method.facts(made.fed, made.state))]
        return said, [*made.state.shared.values(), *made.state.personal.values()]

    said, weights = outcome()
    monkeypatch.setattr(module, "sum_groups", former)
    said_before, weights_before = outcome()
    assert called and name in CASES
    assert said == said_before
    assert weights and all(map(torch.equal, weights, weights_before))
