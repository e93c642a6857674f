"""The curves of FedGAT's figures say how many seeds of Table 1 are behind them."""

from __future__ import annotations

import pandas as pd
import pytest

from fedrepro.papers.fedgat.exhibits import tables


@pytest.mark.parametrize(
    ("seeds", "told"), [(3, "; at 10 clients 3 of the 5 seeds of FG-T1"), (5, ""), (0, "; at 10 clients 0 of the 5")]
)
def test_a_curve_says_how_many_seeds_of_table_1_it_has(seeds: int, told: str) -> None:
    """Seeds at other numbers of clients, of other cells and of central models do not count."""
    cell = {"dataset": "Cora", "partition": "iid", "method": "FedGAT"}
    table1 = pd.DataFrame([cell | {"clients": 10, "seed": seed} for seed in range(5)])
    others = pd.DataFrame([cell | {"clients": 10, "seed": 9, name: "other"} for name in cell])
    curve = [cell | {"clients": 10, "seed": seed} for seed in range(seeds)]
    curve += [cell | {"clients": 1, "seed": seed} for seed in range(7)]
    text = tables.seeds_told(pd.DataFrame(curve), pd.concat([table1, others]))
    assert text.startswith(told) and bool(text) == bool(told)
