"""Frames of FedStruct's exhibits as a store would give them, for tests of tables and claims."""

from __future__ import annotations

import pandas as pd

from fedrepro.papers.fedstruct.exhibits import CLAIMS, grids, tables
from fedrepro.reporting import claims

VIEWS = ("before.last.test", "after.last.test")


def runs_of(exhibit: str, score: dict[str, float], seeds: int = 3, noise: float = 0.001) -> pd.DataFrame:
    """A frame as the store would give it: row -> accuracy (fraction), other rows 0.5."""
    rows = []
    for row, run in grids.TRAINED[exhibit].cells():
        if run.seed < seeds:
            value = score.get(row, 0.5) + noise * ((7 * run.seed + len(row)) % 3)
            fields = {name: value for name, value in run.to_dict().items() if name != "options"}
            options = dict(run.options)
            rows.append({"key": run.key, **fields, **options, "status": "ok"} | dict.fromkeys(VIEWS, value))
    return pd.DataFrame(rows).drop_duplicates("key").reset_index(drop=True)


def stored(exhibit: str, score: dict[str, float], seeds: int = 3) -> pd.DataFrame:
    """Return the frame of `runs_of` under the paper's names."""
    return tables.prepare(runs_of(exhibit, score, seeds), exhibit)


def judge(claim: str, get: claims.Get) -> tuple[str, str]:
    """Evidence and verdict of a claim."""
    (chosen,) = claims.select(CLAIMS, [claim])
    return chosen.judge(get)
