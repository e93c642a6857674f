"""Readings of Tables 1 and 2 that need no further run, and differences that are looked at together."""

import math
from typing import Any

import pandas as pd
import pytest
from fedsheafhn_frames import EMPTY, frame, scored
from scipy.stats import ttest_rel

from fedrepro.papers.fedsheafhn.exhibits import ablations, grids, prepare, readings, settings, tables
from fedrepro.reporting.readings import listed
from fedrepro.reporting.statistics import Interval, interval
from fedrepro.runs.run import Run


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
    views = readings.views(frame)
    other, last = (views[name].groupby("method")["percent"].min() for name in ("the other view", "the last round"))
    assert other.to_dict() == pytest.approx({"FedAvg": 70, "FedSheafHN": 30})
    assert last.to_dict() == pytest.approx({"FedAvg": 40, "FedSheafHN": 60, "Local": 90})
    assert all(views[name]["seed"].tolist() == [0, 1] * len(views[name]["method"].unique()) for name in views)
    assert readings.views(frame.assign(other=None))["the other view"].empty
    for exhibit in ("SH-T1", "SH-T2"):
        rows = listed("fedsheafhn", exhibit).set_index("reading")
        assert set(rows.loc[list(views), "fixed"]) == {"after"}


# -- differences looked at together -----------------------------------------------------------------------------------


def test_the_chance_is_that_of_the_paired_test() -> None:
    """The p-value of the interval is scipy's, whatever the sign; a single run has none, and equal runs are certain."""
    left, right = [80.0, 82.5, 81.0, 83.0], [79.0, 81.0, 80.5, 80.0]
    for one, other in ((left, right), (right, left)):
        gaps = [a - b for a, b in zip(one, other)]
        assert ablations.chance(interval(gaps)) == pytest.approx(ttest_rel(one, other).pvalue)
    assert math.isnan(ablations.chance(Interval(1.0, math.nan, math.nan, 1)))
    assert ablations.chance(interval([1.0, -1.0])) == pytest.approx(1)


def test_holms_procedure() -> None:
    """The smallest of three p-values counts threefold, none less than a smaller one or more than 1, NaN not."""
    given = pd.Series([0.6, 0.01, math.nan, 0.011], list("abcd"))
    assert ablations.together(given).to_dict() == pytest.approx(
        {"a": 0.6, "b": 0.03, "c": math.nan, "d": 0.03}, nan_ok=True
    )
    assert ablations.together(pd.Series([0.9, 0.8])).tolist() == [1.0, 1.0]
    assert ablations.together(pd.Series([], dtype=float)).empty


def choices(at: dict[str, tuple[float, float, float]]) -> pd.DataFrame:
    """Return SH-M3 with made-up gains of methods without dropout of the input, in points by seed; others gain 0.1."""

    def score(run: Run) -> float:
        gain = at.get(run.method, (0.1, -0.1, 0.1))[run.seed] if "input_dropout" in run.options else 0.0
        return 0.5 + 0.01 * run.seed + 0.01 * gain

    return ablations.choice_table(prepare(frame(grids.choices(), scored(score)), "SH-M3"))


def test_intervals_that_leave_out_zero_are_named_alone_and_together() -> None:
    """Two of eleven differences leave out zero by themselves, and only the surer one with all looked at together."""
    table = choices({"FGGP": (3.0, 3.01, 2.99), "FED-PUB": (-1.2, -1.0, -1.45)})
    rows = table[table["choice"].eq("input features not dropped")]
    alone = rows.set_index("method")
    for name, sure in (("FGGP", True), ("FED-PUB", False)):
        assert (alone["p, Holm"][name] < 0.05) == sure and alone["p"][name] < 0.05
    assert alone["p, Holm"]["FGGP"] == pytest.approx(11 * alone["p"]["FGGP"])
    assert alone["p, Holm"]["FED-PUB"] == pytest.approx(10 * alone["p"]["FED-PUB"])
    told = ablations.left_out(rows, "method", "so minus SH-T1")
    first, _, second = told.partition("; all looked at together (Holm), ")
    assert first == "2 of 11 intervals leave out zero (FGGP +3.0; FED-PUB -1.2)"
    assert second.startswith("1 (FGGP, p = ") and "FED-PUB" not in second
    # Each of the other choices is another family, of one row.
    other = table[table["choice"].ne("input features not dropped")]
    assert other["p, Holm"].tolist() == other["p"].tolist() and len(other) == 2


def test_noise_alone_leaves_out_no_zero() -> None:
    """Differences within their intervals, a single run and an empty store name no method."""
    rows = choices({})
    told = ablations.left_out(rows[rows["choice"].eq("input features not dropped")], "method", "so minus SH-T1")
    assert told == "0 of 11 intervals leave out zero; all looked at together (Holm), 0."
    one = ablations.left_out(rows.assign(p=math.nan), "method", "so minus SH-T1")
    assert one == "0 of 0 intervals leave out zero; all looked at together (Holm), 0."


def test_a_reading_tells_its_chance_and_how_far_the_clients_weights_differ() -> None:
    """Table 1 itself is no test; a reading whose clients end with one model has the spread zero."""
    rows = list(settings.READINGS)

    def extra(run: Run) -> dict[str, Any]:
        dead = run.options.get("hyper_lr") == 0.02
        worse = 0.01 * dead * (2 + 0.1 * run.seed)
        return scored(lambda _: 0.8 + 0.01 * run.seed - worse)(run) | {
            "facts.generated_spread": 0.0 if dead else 0.3 + 0.1 * run.seed
        }

    made = prepare(frame(grids.readings(), extra), "SH-M2")
    table = ablations.reading_table(made)
    assert table.index.tolist() == rows and table.index.name == "row"
    assert math.isnan(table["p"][rows[0]]) and math.isnan(table["p, Holm"][rows[0]])
    ends = ["generated_spread", "generated_spread_low", "generated_spread_high"]
    assert table.loc[rows[0], ends].tolist() == pytest.approx([0.4, 0.3, 0.5])
    assert table.loc["hypernetwork's rate 0.02", ends].tolist() == [0, 0, 0]
    dead = table.loc["hypernetwork's rate 0.02"]
    assert dead["p, Holm"] == pytest.approx((len(rows) - 1) * dead["p"])
    told = ablations.left_out(table.reset_index(), "row", "minus SH-T1")
    assert told.startswith(f"1 of {len(rows) - 1} intervals leave out zero (hypernetwork's rate 0.02 -2.1)")
    empty = ablations.reading_table(prepare(EMPTY, "SH-M2"))
    assert empty.empty and {"p", "p, Holm", *ends} <= set(empty.columns)
    assert ablations.left_out(empty.reset_index(), "row", "minus SH-T1").startswith("0 of 0 ")
