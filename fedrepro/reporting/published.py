"""What the papers print: their numbers, and the list of their exhibits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedrepro import paths
from fedrepro.errors import one_of

if TYPE_CHECKING:
    from pandas import DataFrame

EXHIBITS = Path(__file__).with_name("exhibits.csv")
PAPERS = {
    "fedgat": "FedGAT",
    "fedstruct": "FedStruct",
    "gfl": "GFL-APPNP",
    "feras": "Feras",
    "fedsheafhn": "FedSheafHN",
}


def load(paper: str) -> DataFrame:
    """The numbers a paper prints, one row a number.

    Returns:
        The columns exhibit, dataset, method, clients, partition, setting, metric, value, spread, spread_kind
        and line (in the paper's text), all as printed, therefore strings and empty where there is nothing;
        beside them value_number and spread_number, floats, NaN where nothing is printed.

    Raises:
        ArgumentError: the paper's numbers are not here.
    """
    import pandas as pd

    one_of("paper", paper, list(PAPERS))
    frame = _read(paths.paper(paper) / "published.csv")
    for column in ("value", "spread"):
        frame[f"{column}_number"] = pd.to_numeric(frame[column], errors="coerce").astype(float)
    return frame


def exhibits() -> DataFrame:
    """All exhibits of the five papers, one row each: id, paper, label, kind, title."""
    return _read(EXHIBITS)


def _read(file: Path) -> DataFrame:
    import pandas as pd

    return pd.read_csv(file, dtype=str, keep_default_na=False)
