"""FedStruct's figures: a method has one colour in all of them, and partitions have the paper's names."""

from __future__ import annotations

import pandas as pd
import pytest

from fedrepro.papers.fedstruct.exhibits import cells, drawing
from fedrepro.reporting.style import COLOURS

DRAWN = {
    "FS-F1": cells.BARS,
    "FS-F4a": cells.F4A,
    "FS-F4b": (*cells.F4B, "FedStruct (H2V s)"),
    "FS-F4c": cells.F4C,
    "FS-F4d": tuple(row for row in (*cells.BARS, "FedPub") if row != cells.CENTRAL),
    "FS-F6": cells.F6,
}


@pytest.mark.parametrize("exhibit", DRAWN)
def test_every_method_of_a_figure_has_a_colour_of_its_own(exhibit: str) -> None:
    """All methods of the figure are in the order, and no two have places with the same colour."""
    places = [drawing.COLOURED.index(name) % len(COLOURS) for name in DRAWN[exhibit]]
    assert len(set(places)) == len(DRAWN[exhibit])


def test_partitions_are_named_in_what_is_drawn_only() -> None:
    """Names change in the copy, those without another name stay, and the rows given are left as they are."""
    rows = pd.DataFrame({"partition": ["louvain", "random", "kmeans", ""], "percent": range(4)})
    assert drawing.with_partition_names(rows)["partition"].tolist() == ["Louvain", "random", "K-means", ""]
    assert rows["partition"].tolist() == ["louvain", "random", "kmeans", ""]
    assert drawing.with_partition_names(rows[:0]).empty
