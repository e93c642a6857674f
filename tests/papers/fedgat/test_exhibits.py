"""FedGAT's exhibits: choices follow from the store, tables are judged, and claims can come out either way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pytest

from fedrepro import paths
from fedrepro.papers.fedgat.exhibits import CLAIMS, GRIDS, grids, main_reading, prepare, tables
from fedrepro.papers.fedgat.exhibits.grids import DATASETS, IID, NON_IID
from fedrepro.reporting import claims, compare, exhibits, readings
from fedrepro.runs.store import Store

CELL = ["method", "dataset", "partition"]


def judge(get: Callable[[str], pd.DataFrame]) -> pd.DataFrame:
    """Return evidence and verdict of every claim, by its ID."""
    return claims.claims_table(CLAIMS, get, "fedgat").set_index("id")


def judge_one(claim: str, frames: dict[str, pd.DataFrame]) -> str:
    """Return the verdict of one claim on a store that holds some exhibits."""
    chosen = claims.select(CLAIMS, [claim])
    return str(claims.claims_table(chosen, lambda name: frames.get(name, pd.DataFrame()), "fedgat")["verdict"][0])


# -- settings and grids ------------------------------------------------------------------------------------------------


def test_the_list_and_the_grids_are_the_same() -> None:
    """Every exhibit of the list has a grid, and no grid is without an exhibit."""
    assert set(GRIDS) == {row["id"] for row in exhibits.listed("fedgat")}


def test_chosen_points_follow_from_the_stored_tuning_runs() -> None:
    """Each cell's point has the highest validation accuracy of those tried, and is the first of equals."""
    frame = prepare(Store(paths.root() / "data" / "results").frame(grids.tuning()), "FG-T1-tuning")
    defaults = {"optimizer": "adam", "local_epochs": 1}
    frame = frame.fillna(defaults)
    for row, dataset, partition in grids.cells():
        cell = frame[(frame[CELL] == [row, dataset, partition]).all(axis=1)]
        scores = cell.set_index(["optimizer", "lr", "weight_decay", "local_epochs"])["before.best.val"]
        tried = grids.tried(row)
        assert len(cell) == len(tried) == 6 and set(cell["rounds"]) == {30}  # one budget for all rows
        best = max(tried, key=lambda point: scores[tuple({**defaults, **point}[name] for name in scores.index.names)])
        assert grids.chosen(row, dataset, partition) == best


def test_partly_iid_labels_take_the_point_of_iid_ones() -> None:
    """No tuning run has partly i.i.d. labels, so their point is that of i.i.d. labels."""
    point = grids.chosen("FedGAT", "CiteSeer", grids.PARTLY_IID)
    assert point == grids.chosen("FedGAT", "CiteSeer", IID) != grids.chosen("FedGAT", "CiteSeer", NON_IID)


def test_fg_t1_code_averages_gradients() -> None:
    """The runs of FG-T1-code are FedGAT and DistGAT by the public code's steps, ten seeds of each printed cell."""
    runs = GRIDS["FG-T1-code"].runs("paper")
    cells = {(run.method, run.dataset, run.partition) for run in runs}
    assert {method for method, _, _ in cells} == {"DistGAT (FedSGD)", "FedGAT (FedSGD)"}
    assert len(cells) == 12 and len(runs) == 120
    for run in runs:
        expected = (0.04, 0.003, 30) if run.dataset == "PubMed" else (0.06, 0.002, 35)
        assert tuple(run.options[name] for name in ("lr", "weight_decay", "rounds")) == expected
        assert run.options.get("score") == ("code" if run.method.startswith("FedGAT") else None)


def test_both_readings_have_every_cell() -> None:
    """Each reading of FG-T1 has ten seeds of 24 cells, and the code's trains one round less than it counts."""
    runs = GRIDS["FG-T1"].runs("paper")
    for reading in grids.READINGS:
        in_reading = [run for run in runs if grids.reading(run.method, run.prepare) == reading]
        assert (
            len(in_reading) == 240
            and len({(run.method, run.options["model"], run.dataset, run.partition) for run in in_reading}) == 24
        )
    coded = [run for run in runs if run.method.endswith("(as coded)")]
    assert {run.prepare for run in coded} == {"centred-norm"} and {run.options["output_heads"] for run in coded} == {1}
    for run in coded:
        expected = (0.04, 0.003, 29) if run.dataset == "PubMed" else (0.06, 0.002, 34)
        assert tuple(run.options[name] for name in ("lr", "weight_decay", "rounds")) == expected


def test_steps_to_the_code_end_at_its_reading() -> None:
    """The last step of FG-T1-code-full are runs of FG-T1, and each earlier one lacks a part of them."""
    runs, full = set(GRIDS["FG-T1-code-full"].runs("paper")), set(GRIDS["FG-T1"].runs("paper"))
    earlier = runs - full
    assert len(runs & full) == 120 and len(earlier) == 5 * (6 + 2 * 3)
    assert all(run.prepare == "unit-norm" or run.options["first_layer"] == "gat" for run in earlier)


@pytest.mark.parametrize("panel", ["FG-F2a", "FG-F5a"])
def test_curves_have_the_same_points_in_both_readings(panel: str) -> None:
    """Each number of clients, or degree, of a method has at least three seeds in each reading."""
    runs = GRIDS[panel].runs("paper")
    seeds: dict[str, dict[Any, set[int]]] = {reading: {} for reading in grids.READINGS}
    for run in runs:
        point = (run.method.removesuffix(grids.AS_CODED), run.clients, run.options.get("degree"))
        seeds[grids.reading(run.method, run.prepare)].setdefault(point, set()).add(run.seed)
    assert seeds["code"].keys() == seeds["text"].keys()
    assert all({0, 1, 2} <= held for points in seeds.values() for held in points.values())


def test_both_forms_of_a_count_are_curves_in_smoke() -> None:
    """The smoke runs of a count have two numbers of clients, without which no exponent can be fitted."""
    for name in ("FG-F3a", "FG-F4", "FG-F8", "FG-X1", "FG-X2"):
        assert {run.clients for run in GRIDS[name].runs("smoke")} == {2, 5}


# -- tables ------------------------------------------------------------------------------------------------------------


def test_runs_carry_the_names_of_table_1() -> None:
    """Central models are named by their model, methods by what they train, and each run by its reading."""
    methods = ["Central", "FedGAT (FedSGD)", "FedGAT", "FedGAT (as coded)", "DistGAT (as coded)", "Central"]
    partitions = ["single", IID, IID, IID, "single", "single"]
    prepared = [*["unit-norm"] * 3, *["centred-norm"] * 2, "row-sum"]
    models = ["GCN", "GAT", "GAT", "GAT", "GAT", "GCN"]
    frame = pd.DataFrame({"method": methods, "model": models, "partition": partitions, "prepare": prepared})
    named = prepare(frame.assign(**{tables.SCORE: 0.5, tables.LAST: 0.25}), "FG-T1")
    assert named["method"].tolist() == ["GCN", "FedGAT", "FedGAT", "FedGAT", "GAT", "GCN"]
    assert named["registered"].tolist() == methods
    assert named["reading"].tolist() == ["text", "code in part", "text", "code", "code", "code"]
    assert named["percent"].tolist() == [50.0, 50.0, 50.0, 25.0, 25.0, 25.0]
    assert prepare(pd.DataFrame(), "FG-T1").empty


def test_table_1_has_the_code_first_and_the_text_beside_it() -> None:
    """A cell's own columns are those of the reading code; the text's have its name, and no cell is lost."""
    frame = pd.concat(
        [table1(0.0).assign(reading=reading, score=score) for reading, score in (("code", 0.7), ("text", 0.6))]
    )
    frame = frame.assign(clients=[1 if row in ("GCN", "GAT") else 10 for row in frame["method"]])
    printed = exhibits.published("fedgat").query("exhibit == 'FG-T1'")
    main = main_reading(frame, "FG-T1")
    code, text = (
        compare.judge_table(part, printed, value="score") for part in (main, frame.query("reading == 'text'"))
    )
    table = readings.beside(code, text, "text")
    assert len(table) == len(printed) == 24
    assert set(table["ours_mean"]) == {0.7} and set(table["ours_mean (text)"]) == {0.6}
    assert table.columns.tolist().index("verdict") < table.columns.tolist().index("verdict (text)")


def test_readings_stand_in_their_order() -> None:
    """The public code comes before the text, and each reading says where it departs from its source."""
    known = readings.listed("fedgat", "FG-T1")
    assert known["reading"].tolist() == ["main", "code in part", "text", "FedGCN's own steps", "literal"]
    assert known["kind"].tolist() == ["code", "code", "text", "lineage", "literal"]
    assert known["departures"].str.len().min() > 50


def test_steps_to_the_code_are_told_apart() -> None:
    """A row a cell and step, in their order: FG-T1-code, two softmaxes, centred features, the code's layer 1."""
    base = {"dataset": "Cora", "partition": NON_IID, "seed": 0, tables.SCORE: 0.8, tables.LAST: 0.7}
    steps = [
        {"method": "FedGAT", "prepare": "centred-norm", "first_layer": None},
        {"method": "FedGAT", "prepare": "centred-norm", "first_layer": "gat"},
        {"method": "FedGAT", "prepare": "unit-norm", "first_layer": "gat"},
        {"method": "DistGAT", "prepare": "centred-norm", "first_layer": None},
        {"method": "DistGAT", "prepare": "unit-norm", "first_layer": None},
    ]
    frame = pd.DataFrame([base | step for step in steps])
    before = pd.DataFrame([base | {"method": row} for row in ("FedGAT", "DistGAT")])
    table = tables.steps_to_code(frame, before, exhibits.published("fedgat").query("exhibit == 'FG-T1'"))
    order = table.groupby("method", sort=False)["step"].apply(list)
    assert order["FedGAT"] == list(tables.STEPS) and order["DistGAT"] == list(tables.STEPS[:3])
    assert set(table["last"].round(9)) == {70.0} and set(table["best_validation"].round(9)) == {80.0}
    assert table["published"].tolist() == [68.4] * 3 + [80.0] * 4


def test_the_rule_for_lone_neighbours_is_named_where_it_is_the_default() -> None:
    """A run without the option keeps lone neighbours."""
    frame = pd.DataFrame({"method": "FedGAT", "lone_neighbour": [None, "dropped"], tables.SCORE: 0.5})
    assert prepare(frame, "FG-X3")["lone_neighbour"].tolist() == ["kept", "dropped"]


def test_tuning_is_a_table_of_named_columns() -> None:
    """A row is a cell and a column is a point under its name; a point that was not tried for a row is left blank."""
    frame = pd.DataFrame(
        {
            "method": ["GCN", "GCN", "FedGCN", "FedGCN"],
            "dataset": "Cora",
            "partition": ["single", "single", IID, IID],
            "rounds": [30, 30, 100, 100],
            "optimizer": [None, None, None, "sgd"],
            "lr": [0.1, 0.06, 0.1, 0.5],
            "weight_decay": [0.001, 0.002, 0.001, 0.0005],
            "before.best.val": [0.1, 0.2, 0.3, 0.4],
        }
    )
    table = tables.validation_table(frame)
    points = ["lr 0.1, decay 0.001", "lr 0.06, decay 0.002", "its own paper's"]
    assert table.columns.tolist() == ["dataset", "method", "partition", "rounds", *points]
    assert table[points].fillna(-1).to_numpy().tolist() == [[0.1, 0.2, -1], [0.3, -1, 0.4]]
    without = tables.validation_table(frame.iloc[:2].drop(columns="optimizer"))
    assert without.columns.tolist() == table.columns.tolist()[:-1]


@pytest.mark.parametrize(
    ("seconds", "memory", "verdicts"),
    [(0.05, 500.0, ["holds", "holds"]), (0.09, 2000.0, ["fails", "fails"]), (0.05, None, ["holds", "not measured"])],
)
def test_a_round_can_cost_too_much(seconds: float, memory: float | None, verdicts: list[str]) -> None:
    """FedGAT's round is compared with one of DistGAT that takes 10 ms; memory that was not measured keeps no limit."""
    frame = pd.DataFrame(
        {
            "of": ["DistGAT", "FedGAT"],
            "timing.seconds_per_round": [0.01, seconds],
            "timing.peak_mebibytes": [None, memory],
        }
    )
    assert [row["verdict"] for row in tables.cost_checks(frame)] == verdicts
    assert {row["verdict"] for row in tables.cost_checks(pd.DataFrame())} == {"not measured"}


@pytest.mark.parametrize(("error", "verdicts"), [(1e-12, ["holds", "fails, as it must"]), (1.0, ["fails"])])
def test_the_protocol_is_judged_by_its_worst_layer(error: float, verdicts: list[str]) -> None:
    """One layer that differs fails the algorithm, and a control that does not differ is reported."""
    good = {"matrix": 1e-13, "matrix_in_blocks": 1e-13, "vector": 1e-13, "matrix_control": 1.0, "vector_control": 1.0}
    shared: dict[str, Any] = {"dataset": "Cora", "whole": 5, "in_blocks": 1}
    frame = pd.DataFrame([shared | good, shared | good | {"matrix": error}])
    outcomes = tables.protocol_checks(frame).set_index("id")["verdict"]
    assert set(outcomes.index) == {"FG-A1", "FG-A1-control", "FG-A3", "FG-A3-control"}  # each number stands once
    assert outcomes[["FG-A1", "FG-A1-control"]].tolist()[: len(verdicts)] == verdicts
    assert outcomes["FG-A3"] == "holds"
    missed = tables.protocol_checks(frame.assign(matrix_control=0.0)).set_index("id")["verdict"]
    assert missed["FG-A1-control"] == "passes, as it must not"


# -- claims on accuracy ------------------------------------------------------------------------------------------------


def table1(gap: float) -> pd.DataFrame:
    """Return Table 1 on five seeds; FedGAT is `gap` points above every other row."""
    rows = []
    for row, dataset, partition in grids.cells():
        for seed in range(5):
            percent = 70 + 0.1 * ((7 * seed + len(row)) % 5) + (gap if row == "FedGAT" else 0.0)
            percent += 0.01 * (seed * len(partition) % 3)
            rows.append({"method": row, "dataset": dataset, "partition": partition, "seed": seed, "percent": percent})
    return pd.DataFrame(rows)


def store(text: float, code: float, few: float | None = None) -> Callable[[str], pd.DataFrame]:
    """Return a store of Table 1 and Figure 2 in two readings with a gap each, and of FedGCN's own steps.

    Figure 2 has the same accuracy for each number of clients, and with 2 clients the gap `few` where it is given.
    """
    both = pd.concat([table1(code).assign(reading="code"), table1(text).assign(reading="text")])
    held = {"FG-T1": both, "FG-Q12b": table1(text)}
    for panel, (dataset, partition) in grids.PANELS.items():
        cell = both[both["dataset"].eq(dataset) & both["partition"].eq(partition)]
        curve = cell.merge(pd.DataFrame({"clients": [2, 5, 15, 20]}), how="cross")
        if few is not None:
            moved = curve["clients"].eq(2) & curve["method"].eq("FedGAT")
            curve.loc[moved, "percent"] += few - curve["reading"].map({"text": text, "code": code})
        held[f"FG-F2{panel}"] = curve
    return lambda exhibit: held.get(exhibit, pd.DataFrame())


@pytest.mark.parametrize(
    ("text", "code", "verdicts"),
    [
        (10, 10, ["holds", "holds", "holds", "holds"]),
        (-10, -10, ["fails", "holds", "fails", "fails"]),
        (10, -10, ["mixed", "holds", "mixed", "mixed"]),
    ],
)
def test_claims_on_table_1_come_out_either_way(text: float, code: float, verdicts: list[str]) -> None:
    """Tables where FedGAT is far above or far below the others decide the claims, in each reading by itself."""
    judged = judge(store(text, code))["verdict"]
    assert judged[["FG-C1", "FG-C2", "FG-C2-DistGAT", "FG-C3"]].tolist() == verdicts
    assert set(judged[["FG-C2-clients", "FG-C5"]]) == {"cannot be checked here"}  # neither has runs


def test_one_number_of_clients_can_contradict_the_lead() -> None:
    """FedGAT is above the others in Table 1, and below them with 2 clients in Figure 2."""
    judged = judge(store(10, 10, few=-10))
    assert judged.loc[["FG-C2-DistGAT", "FG-C3"], "verdict"].tolist() == ["mixed", "mixed"]
    assert "Cora, non-iid, 2 clients, code, over DistGAT -1" in judged.loc["FG-C2-DistGAT", "evidence"]


def test_the_margin_of_one_point_is_missed_by_four_printed_differences() -> None:
    """In four of six cells of Table 1, FedGAT is more than a point below the central GAT, as FG-C1 and FG-Q13 say."""
    printed = exhibits.published("fedgat").query("exhibit == 'FG-T1'").set_index(["method", "dataset", "setting"])
    percent = 100 * printed["value_number"]
    gaps = [percent["FedGAT", d, p] - percent["GAT", d, "central"] for d in DATASETS for p in ("non-iid", "iid")]
    assert (len(gaps), sum(gap < -1 for gap in gaps)) == (6, 4)


def in_both_readings(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a frame in which each run is one of either reading."""
    return pd.DataFrame([{**row, "reading": reading} for row in rows for reading in grids.READINGS])


@pytest.mark.parametrize(
    ("ours", "cut", "verdict"),
    [(0.0, 10.0, "holds"), (5.0, 10.0, "mixed"), (10.0, -1.0, "fails"), (-5.0, -1.0, "mixed")],
)
def test_the_claim_about_clients_can_fail(ours: float, cut: float, verdict: str) -> None:
    """FedGAT must keep its accuracy from 1 to 20 clients, and DistGAT must lose some, and more than FedGAT."""
    rows = [
        {"method": row, "clients": n, "seed": seed, "percent": 80 - fall * n / 20 + 0.01 * (seed * n % 3)}
        for row, fall in (("FedGAT", ours), ("DistGAT", cut))
        for n in (1, 10, 20)
        for seed in range(4)
    ]
    frames = {f"FG-F2{panel}": in_both_readings(rows) for panel in grids.PANELS}
    assert judge_one("FG-C2-clients", frames) == verdict
    evidence = claims.claims_table(claims.select(CLAIMS, ["FG-C2-clients"]), frames.__getitem__, "fedgat")["evidence"][
        0
    ]
    falls = [part for part in evidence.split("; ") if "DistGAT's change" in part]
    assert len(falls) == 4 and all(("shown" if cut > 0 else "contradicted") in part for part in falls)


def degrees(gain: float, readings: Sequence[str] = tuple(grids.READINGS)) -> pd.DataFrame:
    """Return runs of FedGAT at two degrees in both readings, of which some gain points by the higher one."""
    return pd.DataFrame(
        {
            "method": "FedGAT",
            "degree": degree,
            "seed": seed,
            "reading": reading,
            "percent": 80 + 0.01 * (seed * degree % 3) + gain * (degree == 16 and reading in readings),
        }
        for reading in grids.READINGS
        for degree in (8, 16)
        for seed in range(3)
    )


@pytest.mark.parametrize(("gain", "readings", "verdict"), [(0.0, [], "holds"), (5.0, grids.READINGS, "fails")])
def test_the_claim_about_the_degree_can_fail(gain: float, readings: Sequence[str], verdict: str) -> None:
    """Degree 8 must be as good as degree 16; one that matters in one of the readings makes the claim mixed."""
    frames = {f"FG-F5{panel}": degrees(gain, [*readings]) for panel in grids.BETAS}
    assert judge_one("FG-C5", frames) == verdict
    assert judge_one("FG-C5", {name: degrees(5.0, ["code"]) for name in frames}) == "mixed"


def test_a_wide_interval_decides_no_claim() -> None:
    """Two seeds that differ by twenty points show nothing and contradict nothing."""
    frame = in_both_readings(table1(0.0).query("seed < 2").to_dict("records"))
    frame.loc[(frame["method"] == "FedGAT") & (frame["seed"] == 1), "percent"] += 20
    first = judge(lambda name: frame if name.startswith("FG-T1") else pd.DataFrame()).loc["FG-C1"]
    assert first["verdict"] == "undecided" and "0 shown, 0 contradicted" in first["evidence"]


def test_a_claim_without_runs_cannot_be_checked() -> None:
    """An empty store gives no verdict, not a favourable one."""
    assert set(judge(lambda _: pd.DataFrame())["verdict"]) == {"cannot be checked here"}


def test_every_data_set_of_the_table_is_judged() -> None:
    """The evidence of the first claim names each data set in both readings."""
    evidence = judge(store(10, 10)).loc["FG-C1", "evidence"]
    parts = ("any partition, code", "non-iid, text", "iid, text")
    assert all(f"{dataset}, {part}" in evidence for dataset in DATASETS for part in parts)


def test_a_number_that_no_partition_changes_is_one_part() -> None:
    """FedGAT as coded and central models are one part for all partitions, FedGCN and DistGAT one for each."""
    judged = judge(store(10, 10))["evidence"]
    assert judged["FG-C1"].startswith("9 shown") and judged["FG-C3"].startswith(f"{12 + 9 + 6 + 32} shown")
    assert judged["FG-C2-DistGAT"].startswith(f"{12 + 32} shown") and "iid, code, over GCN" not in judged["FG-C3"]
    evidence = judge(lambda name: degrees(0.0) if "F5" in name else pd.DataFrame()).loc["FG-C5", "evidence"]
    assert evidence.startswith("4 shown") and evidence.count(", code") == 1
