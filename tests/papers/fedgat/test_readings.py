"""FedGAT's readings: a cell has one word in every table that shows the reading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedrepro.papers.fedgat.exhibits import grids
from fedrepro.reporting import compare, exhibits, readings, session

OTHERS = ("code in part", "text", "literal")


def runs(published: pd.DataFrame) -> pd.DataFrame:
    """Return ten runs of each printed cell, whose mean lies one standard deviation of a run above the printed one."""
    scatter = 0.02 * np.array([-1.5, -1.0, -0.8, -0.3, 0.0, 0.1, 0.4, 0.8, 1.0, 1.3])
    cells: list[dict[str, Any]] = published.to_dict("records")
    return pd.DataFrame(
        {name: cell[name] for name in ("dataset", "method", "clients", "partition")}
        | {"seed": seed, "score": cell["value_number"] + 0.02 + scatter[seed]}
        for cell in cells
        for seed in range(10)
    )


@pytest.mark.parametrize("reading", OTHERS)
def test_both_tables_of_a_reading_have_the_same_words(reading: str) -> None:
    """The table of one reading and its part in FG-T1-by-reading agree in every cell."""
    nb = session.begin("fedgat/6-experiments", device="cpu")
    published = nb.published("FG-T1")
    frame, layout = runs(published), exhibits.study("fedgat").tables["FG-T1"]
    alone = compare.judge_table(frame, nb.published("FG-T1", reading), value="score")
    beside = readings.table(frame, {reading: frame}, published, layout)
    beside = beside[beside["reading"].eq(reading)].reset_index(drop=True)
    assert beside["verdict"].tolist() == alone["verdict"].tolist()
    assert beside["half95"].tolist() == alone["half95"].tolist()
    main = compare.judge_table(frame, published, value="score")
    other = main["verdict"].ne(alone["verdict"])
    assert set(main.loc[other, "method"]) == (set() if reading == "code in part" else {"FedGAT"})


def test_only_readings_of_the_code_say_that_fedgat_keeps_its_graph() -> None:
    """The flag of FedGAT's row in `study.json` holds where gradients are averaged, and in no other reading."""
    nb = session.begin("fedgat/6-experiments", device="cpu")
    for reading in readings.listed("fedgat", "FG-T1")["reading"]:
        flags = nb.published("FG-T1", reading).set_index("method")["redrawn"]
        coded = reading in (readings.MAIN, grids.PART_OF_CODE)
        assert set(flags["FedGAT"]) == ({True} if coded else {None})
        assert set(flags.drop("FedGAT")) == {None}
