"""The third mark of Table 1's figure: what another work prints for the same cells."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedrepro.papers.fedsheafhn.exhibits import readings
from fedrepro.reporting import compare, exhibits, figures


def test_each_diamond_is_the_other_works_number_in_the_row_of_its_cell() -> None:
    """On Cora FedProx's diamonds lie on the printed numbers, which equal them; Local's with 10 clients lies off it."""
    printed = exhibits.published("fedsheafhn").query("exhibit == 'SH-T1' and dataset in ('Cora', 'CiteSeer')")
    runs = printed.assign(seed=0, status="ok", percent=printed["value_number"])
    table = compare.judge_table(runs, printed, on=["dataset", "method", "clients"], value="percent")
    figure = figures.dots(table, rows=("method", "clients"))
    readings.mark_elsewhere(figure, table, ("method", "clients"), "another work")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][2:] == ["another work"]
    for axes in figure.axes:
        (diamonds,) = (line for line in axes.get_lines() if line.get_marker() == "D")
        rows = [text.get_text() for text in figure.axes[0].get_yticklabels()]
        shown = {rows[int(y)]: x for x, y in zip(*diamonds.get_data(), strict=True)}
        numbers = printed[printed["dataset"].eq(axes.get_title())].set_index(["method", "clients"])["value_number"]
        assert len(shown) == 12 and all(np.isfinite(list(shown.values())))
        for clients in ("10", "20"):
            assert shown[f"FedProx {clients}"] == numbers["FedProx", clients]
            assert shown[f"FedAvg {clients}"] != numbers["FedAvg", clients]
        assert (shown["Local 10"] == numbers["Local", "10"]) == (axes.get_title() == "CiteSeer")


def test_no_other_graph_or_row_is_marked() -> None:
    """A table without the other work's rows has no diamond."""
    printed = exhibits.published("fedsheafhn").query("exhibit == 'SH-T1' and dataset == 'Cora' and method == 'Flow'")
    runs = printed.assign(seed=0, status="ok", percent=printed["value_number"])
    table = compare.judge_table(runs, printed, on=["dataset", "method", "clients"], value="percent")
    figure = figures.dots(table, rows=("method", "clients"))
    readings.mark_elsewhere(figure, table, ("method", "clients"), "another work")
    (diamonds,) = (line for line in figure.axes[0].get_lines() if line.get_marker() == "D")
    assert len(pd.Series(diamonds.get_xdata())) == 0
