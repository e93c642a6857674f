"""Frames of FedSheafHN's runs with made-up scores, as the store gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from stored import row_of

from fedrepro import paths
from fedrepro.papers.fedsheafhn.exhibits import (
    GRIDS,
)
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

Extra = Callable[[Run], dict[str, Any]]
EMPTY = Store(paths.root() / "nowhere").frame([])
TABLE1, TABLE2 = GRIDS["SH-T1"].paper(), GRIDS["SH-T2"].paper()


def frame(runs: list[Run], extra: Extra) -> pd.DataFrame:
    """A frame as the store makes it: fields and options of runs, with made-up results."""
    return pd.DataFrame([row_of(run, extra(run)) for run in dict.fromkeys(runs)])


def scored(score: Callable[[Run], float]) -> Extra:
    """Both views at the best and the last round, on test and on validation nodes."""
    names = [f"{v}.{r}.{on}_clients" for v in ("before", "after") for r in ("best", "last") for on in ("test", "val")]
    return lambda run: dict.fromkeys(names, score(run))


def in_both_views(**series: list[float]) -> dict[str, list[float]]:
    """Return the series under the names of both views: between rounds and after local training."""
    return {f"series.{view}.{name}": values for view in ("before", "after") for name, values in series.items()}


def chosen(test: float, val: float) -> dict[str, float]:
    """Return the scores at the best round under the names of both views."""
    scores = {"test": test, "val": val}
    return {f"{view}.best.{on}_clients": score for view in ("before", "after") for on, score in scores.items()}


def few(runs: list[Run], seeds: int = 3) -> list[Run]:
    """The first seeds, without the large graphs."""
    return [run for run in runs if run.seed < seeds and run.dataset in ("Cora", "CiteSeer")]
