"""Readings of Tables 1 and 2 that need no run of their own."""

import pandas as pd
import pytest

from fedrepro.papers.fedsheafhn.exhibits import readings, tables
from fedrepro.reporting.readings import listed


def runs(method: str, before: float, after: float, last: float) -> pd.DataFrame:
    """Return two runs of a method, a point apart, with their accuracies in both views and after the last round."""
    rows = []
    for seed in range(2):
        scores = {"before.best": before, "after.best": after, "before.last": last, "after.last": last}
        row = {f"{name}.test_clients": value + 0.01 * seed for name, value in scores.items()}
        rows.append({"method": method, "dataset": "Cora", "clients": 10, "seed": seed, **row})
    return pd.DataFrame(rows)


def test_views_are_the_same_runs_scored_elsewhere() -> None:
    """FedAvg's other view is after local training, FedSheafHN's before it; Local has none, and a missing score none."""
    parts = [runs("FedAvg", 0.5, 0.7, 0.4), runs("FedSheafHN", 0.3, 0.8, 0.6), runs("Local", 0.1, 0.2, 0.9)]
    frame = tables.scored(pd.concat(parts, ignore_index=True))
    main = frame.groupby("method")["percent"].min()
    assert main.to_dict() == pytest.approx({"FedAvg": 50, "FedSheafHN": 80, "Local": 20})
    found = readings.views(frame)
    other, last = (found[name].groupby("method")["percent"].min() for name in ("the other view", "the last round"))
    assert other.to_dict() == pytest.approx({"FedAvg": 70, "FedSheafHN": 30})
    assert last.to_dict() == pytest.approx({"FedAvg": 40, "FedSheafHN": 60, "Local": 90})
    assert all(found[name]["seed"].tolist() == [0, 1] * len(found[name]["method"].unique()) for name in found)
    assert readings.views(frame.assign(other=None))["the other view"].empty
    for exhibit in ("SH-T1", "SH-T2"):
        rows = listed("fedsheafhn", exhibit).set_index("reading")
        assert set(rows.loc[list(found), "fixed"]) == {"after"}
